"""
The effects of splits are there exactly once: each step of each split has one row, without gaps, up to what the split says of its progress, and all of them if it is done. An epoch that was replaced writes
no more: the epochs of a split's steps only grow, and none commits after a newer one was known.
"""
import collections

from found import Found


def check(history):
    found = Found()
    rows_of = collections.defaultdict(list)
    for row in history.final['step']:
        rows_of[row['plan'], row['split']].append(row)
    splits = {(row['plan'], row['split']): row for row in history.final['split']}
    for key, rows in rows_of.items():
        rows.sort(key=lambda row: (row['step'], row['epoch']))
        if key not in splits:
            found.violation('a split has effects and is not there', *rows)
            continue
        for number, row in enumerate(rows, 1):
            found.look()
            if row['step'] != number:
                found.violation(f"{key[1]} has no step {number}, or one twice", *rows[max(number - 2, 0):number])
                break
            if number > 1 and row['epoch'] < rows[number - 2]['epoch']:
                found.violation(f'{key[1]}: a step by an older epoch came after one by a newer', rows[number - 2], row)
    for key, split in splits.items():
        found.look()
        progress = split['progress'] or {}
        said = progress.get('step', progress.get('n', 0))
        if said != len(rows_of.get(key, ())):
            found.violation(f'a split says that it is at {said}, and has {len(rows_of.get(key, ()))} effects', split)
        if split['state'] == 'done' and split['spec'] and said != split['spec']['steps']:
            found.violation(f'a split is done, at {said}', split)
    stale_commits(found, history)
    return found


def stale_commits(found, history):
    """A claim is not flushed by its commit, so an outage may undo it: then the older epoch goes on."""
    events = []
    for op in history.some('claim_splits'):
        for split, epoch, *_ in op['splits']:
            events.append((op.t1, 0, op['plan'], split, epoch, op))
    for op in history.some('poll'):
        for _, event, split, epoch in op['events']:
            if event == 'gained':
                events.append((op.t1, 0, op['plan'], split, epoch, op))
    for op in history.some('commit_split'):
        events.append((op.t0, 1, op['plan'], op['split'], op['epoch'], op))
    for op in history.some('commit_splits'):
        for commit in op['commits']:
            events.append((op.t0, 1, op['plan'], commit['split'], commit['epoch'], op))
    events.sort(key=lambda event: event[:2])
    greatest = {}
    for _, kind, plan, split, epoch, op in events:
        newest = greatest.get((plan, split))
        if kind == 0:
            if newest is None or epoch > newest[0]:
                greatest[plan, split] = epoch, op
            continue
        found.look()
        if newest is not None and newest[0] > epoch and not any(newest[1].t0 < outage.up and outage.down < op.t1 for outage in history.outages):
            found.violation(f'{split}: an epoch committed after a newer one was known', newest[1], op)
