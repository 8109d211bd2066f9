"""
Whole transactions: what is known to have committed is there, all of it, but for what a promotion may have cut off; what failed is not; and what is not known is there wholly or not at all.
Of effects, of steps of splits, and of batches of them.
"""
import collections

from found import Found


def expected(op):
    """How many rows it writes: of effects, or of steps. None: it does not say."""
    if op.f == 'effect':
        return len(op['leases'])
    if op.f == 'xact':
        return len(op['leases']) if op.get('token') is not None else 0 if op.e == 'ok' else None
    if op.f == 'publish':
        return 1 if 'batch' in op.values else 0 if op.e == 'ok' else None
    if op.f == 'commit_split':
        return 1
    return op.get('rows')


def check(history):
    found = Found()
    written = collections.defaultdict(list)
    for table in ('effect', 'step'):
        for row in history.final[table]:
            written[table, row['p'], row['op']].append(row)
    known = set()
    for f, table in (('effect', 'effect'), ('xact', 'effect'), ('publish', 'effect'), ('commit_split', 'step'), ('commit_splits', 'step')):
        for op in history.ops.get(f, ()):
            found.look()
            key = table, op.p, op.op
            known.add(key)
            rows, whole = written.get(key, ()), expected(op)
            if op.e == 'fail' and rows:
                found.violation('a transaction that failed has left something', op, *rows)
            elif op.e == 'ok' and not rows and whole and history.survives(op):
                found.violation('a transaction that committed is not there', op)
            elif rows and whole is not None and len(rows) != whole:
                found.violation(f'a transaction has written {len(rows)} rows of {whole}', op, *rows)
            if op.e == 'ok' and rows and 'n' in op.values and sorted(row['n'] for row in rows) != sorted(op['n']):
                found.violation('an effect has another number than its transaction was told', op, *rows)
    processes = {op.p for ops in history.ops.values() for op in ops}
    for key, rows in written.items():
        if key[1] in processes and key not in known:
            found.violation('nobody has written that', *rows)
    return found
