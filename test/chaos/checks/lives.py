"""
A deleted entity is gone, and comes back as a new one: each version of it is the next one, made from the state before; the first one after a deletion from the initial state. All that was confirmed is in its
history, calls and deletions, in this order.
"""
from chain import chained, in_order, versions_of
from found import Found


def check(history):
    found = Found()
    lives = versions_of(found, history.final['life'])
    for id_, versions in lives.items():
        n, digest = 0, ''
        for row in in_order(found, id_, versions):
            if row['deleted']:
                if n == 0:
                    found.violation('what was deleted is deleted again', versions.get(row['version'] - 1), row)
                n, digest = 0, ''
                continue
            n, digest = n + 1, chained(digest, row['state']['tag'])
            if (row['state']['n'], row['state']['digest']) != (n, digest):
                found.violation(f"version {row['version']} was not made from what was there", versions.get(row['version'] - 1), row)
                n, digest = row['state']['n'], row['state']['digest']
    for op in history.some('live', 'delete'):
        if op.f == 'delete' and not op['deleted'] or not history.survives(op):
            continue
        found.look()
        row = lives[op['id']].get(op['version'])
        if row is None or row['deleted'] != (op.f == 'delete') or op.f == 'live' and row['state'] != {name: op[name] for name in ('n', 'tag', 'digest')}:
            found.violation('what was confirmed is not there', op, row)
    tags = {row['state']['tag'] for versions in lives.values() for row in versions.values() if not row['deleted']}
    for op in history.some('live', e='fail'):
        if op.get('tag') in tags:
            found.violation('what failed is there', op)
    return found
