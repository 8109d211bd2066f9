"""
Fence tokens only grow, in real time and across failover: one that was drawn after another was known is greater. And none is given twice: leases,
generations, epochs, members and runs of tasks draw from one space.
"""
from found import Found


def draws(history):
    """(earliest, latest, token, for what, op) of each. A request that is repeated may have drawn at its first attempt."""
    for op in history.some('acquire', 'claim', 'lead'):
        if op.get('token') is not None:
            yield op.get('first', op.t0), op.t1, op['token'], f"{op.f} {op.get('req') or op.p + '#' + str(op.op)}", op
    for op in history.some('xact'):
        if op.get('token') is not None:
            yield op.t0, op['tg'], op['token'], f'xact {op.p}#{op.op}', op
    for op in history.some('join'):
        yield op['first'], op.t1, op['member'], f"join {op['req']}", op
    seen = set()
    for op in history.some('claim_splits', 'poll'):
        if op.f == 'claim_splits':
            first, epochs = op['first'], [split[:2] for split in op['splits']]
        else:                       # drawn by whoever assigned it, after the member had joined
            first, epochs = op['joined'], [event[2:] for event in op['events'] if event[1] == 'gained']
        for split, epoch in epochs:
            if (op['plan'], split, epoch) not in seen:
                seen.add((op['plan'], split, epoch))
                yield first, op.t1, epoch, f"split {op['plan']} {split}", op


def check(history):
    found = Found()
    all_draws = sorted(draws(history), key=lambda draw: draw[0])
    by_end = sorted(all_draws, key=lambda draw: draw[1])
    whose = {}
    known, place = None, 0
    for draw in all_draws:
        earliest, _, token, what, op = draw
        found.look()
        while place < len(by_end) and by_end[place][1] < earliest:
            if known is None or by_end[place][2] > known[2]:
                known = by_end[place]
            place += 1
        # the same request again is answered with its token
        if known is not None and token <= known[2] and what != known[3]:
            found.violation(f'token {token} was drawn after {known[2]} was known', known[4], op)
        other = whose.setdefault(token, (what, op))
        if other[0] != what:
            found.violation(f'token {token} was given twice', other[1], op)
    for row in history.final['task_run']:
        if row['token'] is None:
            continue
        found.look()
        other = whose.setdefault(row['token'], (f"run {row['run']}", row))
        if other[0] != f"run {row['run']}":
            found.violation(f"token {row['token']} was given twice", other[1], row)
    return found
