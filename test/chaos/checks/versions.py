"""
No version of an entity is given to two states: not by a crash either, which loses what a relaxed entity had in memory. Only what a promotion cut off, with the row that
reserved the version, may be given again there.
"""
import collections

from found import Found


def check(history):
    found = Found()
    among_all, by_timeline = collections.defaultdict(dict), collections.defaultdict(dict)

    def seen(group, key, state, evidence):
        found.look()
        other = group[key].setdefault(state, evidence)
        if other is evidence and len(group[key]) == 2:
            found.violation(f"version {key[2]} of {key[0]} {key[1]} is two states", *group[key].values())

    for op in history.some('call', 'read'):
        if op.get('version') is None:
            continue
        state = op['n'], op['digest'], op['tag']
        key = op['type'], op['id'], op['version']
        if history.survives(op):
            seen(among_all, key, state, op)
        elif op.tli is not None:
            seen(by_timeline, key + (op.tli,), state, op)
    for table in ('state', 'state_history'):
        for row in history.final[table]:
            state = row['state']
            if 'tag' in state:
                seen(among_all, (row['type'], row['id'], row['version']), (state['n'], state['digest'], state['tag']), row)
    return found
