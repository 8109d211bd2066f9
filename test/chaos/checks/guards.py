"""A guarded table has no row that was written without its fence, and each has its numbered effect: what is not there was rolled back with it."""
from found import Found


def check(history):
    found = Found()
    for op in history.ops.get('unfenced', ()):
        found.look()
        if op.e == 'ok':
            found.violation('a write without a fence succeeded', op)
    effects = {(row['n'], row['token'], row['p'], row['op']) for row in history.final['effect'] if row['stream'] == 'guarded'}
    rows = [(row['n'], row['token'], row['p'], row['op']) for row in history.final['guarded']]
    found.look(len(rows))
    for row in set(rows) ^ effects:
        found.violation('a guarded row and its effect are not there together', row)
    if len(rows) != len(set(rows)):
        found.violation('a guarded row is there twice')
    return found
