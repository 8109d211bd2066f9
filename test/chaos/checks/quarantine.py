"""
Nothing is given up before its time: a split only after max_attempts ends that were not graceful, each by an epoch of its own that neither was given back nor finished the split; a task only after more
than max_restarts failures; and the one that always fails is.
"""
from found import Found

DOOMED, MAX_RESTARTS = 'doomed', 3


def check(history):
    found = Found()
    graceful = {(op['plan'], op['split'], op['epoch']): op for op in history.some('release_split', 'drained') if history.survives(op)}
    graceful.update({(op['plan'], op['split'], op['epoch']): op for op in history.some('commit_split') if op.get('done') and history.survives(op)})
    most = {row['plan']: row['max_attempts'] for row in history.final['plan']}
    for row in history.final['split']:
        if row['state'] != 'quarantined':
            continue
        found.look()
        epochs = [reason['epoch'] for reason in row['reasons'] or ()]
        if row['attempts'] < most[row['plan']] or len(set(epochs)) < most[row['plan']]:
            found.violation(f"a split was given up after {row['attempts']} attempts, by {len(set(epochs))} epochs", row)
        for epoch in epochs:
            end = graceful.get((row['plan'], row['split'], epoch))
            if end is not None:
                found.violation('an attempt was counted that had ended gracefully', end, row)
    for row in history.final['task']:
        if row['phase'] == 'quarantined':
            found.look()
            if row['name'] != DOOMED or row['failures'] <= MAX_RESTARTS:
                found.violation(f"a task was given up after {row['failures']} failures", row)
        elif row['name'] == DOOMED:
            found.violation('a task that always fails was not given up', row)
    return found
