"""
A task runs once at a time: no run has met another one alive; the tokens of its runs grow in the order in which they began; none but the latest says that it runs; and while it was disabled or dropped it has
written nothing. (That the rows of its runs do not interleave is in effects.py.)
"""
import collections

from found import Found

STOPS = ('disable_task', 'drop_task')
STARTS = ('enable_task', 'create_task', 'run_task', 'restart_task')


def check(history):
    found = Found()
    for row in history.final['twin']:
        found.violation('a run has met another one', row)
    runs = collections.defaultdict(list)
    for row in history.final['task_run']:
        runs[row['name']].append(row)
    for name, rows in runs.items():
        rows.sort(key=lambda row: row['run'])
        newest = None
        for row in rows:
            found.look()
            if row['outcome'] == 'running' and row is not rows[-1]:
                found.violation(f'a run of {name} is not the latest, and runs', row, rows[-1])
            if row['token'] is None:
                continue
            if newest is not None and row['token'] <= newest['token']:
                found.violation(f'a later run of {name} has an older token', newest, row)
            newest = row
    stopped(found, history)
    return found


def stopped(found, history):
    """Between a stop that was confirmed and the next start what the task has written stays."""
    by_task = collections.defaultdict(list)
    for f in STOPS + STARTS + ('look',):
        for op in history.ops.get(f, ()):
            by_task[op['task']].append(op)
    for ops in by_task.values():
        ops.sort(key=lambda op: op.t0)
        stop = first = None
        for op in ops:
            if op.f in STARTS:
                stop = first = None
            elif op.f in STOPS:
                stop, first = (op if op.e == 'ok' and history.survives(op) else None), None
            elif stop is not None and op.e == 'ok':
                found.look()
                if first is not None and op['n'] > first['n']:
                    found.violation('a task has written while it was stopped', stop, first, op)
                first = first or op
