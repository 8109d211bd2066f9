"""
Strict replies are all present. Each call of a strict entity writes a row, in its transaction, with the number that its state gave it: so each reply that is known has its row, exactly one, with that
number; the rows have no gaps and none twice; and the digest of all of them, in this order, is what the state says. What a promotion may have cut off can be missing. A request that was repeated
has happened once. Calls of relaxed entities that wrote a row, which makes them strict, have it as well.
"""
import collections

from chain import chained
from found import Found


def tagged(history):
    """tag: its attempts."""
    attempts = collections.defaultdict(list)
    for op in history.ops.get('call', ()):
        if op.get('row') or op.e != 'ok':
            attempts[f'{op.p}#{op.op}'].append(op)
    for op in history.ops.get('request', ()):
        attempts[op['tag']].append(op)
    return attempts


def check(history):
    found = Found()
    attempts = tagged(history)
    by_tag, by_entity = collections.defaultdict(list), collections.defaultdict(list)
    for row in history.final['call']:
        by_tag[row['tag']].append(row)
        by_entity[row['type'], row['id']].append(row)
    for tag, ops in attempts.items():
        found.look()
        rows = by_tag.get(tag, ())
        if len(rows) > 1:
            found.violation('a call has happened twice', *ops, *rows)
        for op in ops:
            if op.e != 'ok':
                continue
            if not rows:
                if history.survives(op):
                    found.violation('a reply is known, and the call is not there', op)
            elif history.survives(op) and (rows[0]['n'], rows[0]['type'], rows[0]['id']) != (op['n'], op['type'], op['id']):
                found.violation('a reply is not what the call has done', op, *rows)
        if rows and all(op.e == 'fail' for op in ops):
            found.violation('a call that failed has happened', *ops, *rows)
    for tag, rows in by_tag.items():
        if tag not in attempts:
            found.violation('nobody has called that', *rows)
    strict_entities(found, history, by_entity)
    return found


def strict_entities(found, history, by_entity):
    replies = collections.defaultdict(list)
    for op in history.some('call', 'request'):
        replies[op['type'], op['id']].append(op)
    for state in history.final['state']:
        rows = sorted(by_entity.get((state['type'], state['id']), ()), key=lambda row: row['n'])
        for one, other in zip(rows, rows[1:]):
            if one['n'] == other['n']:
                found.violation('two calls have one number', one, other)
        if state['type'] != 'strict':
            continue
        digests = ['']
        for number, row in enumerate(rows, 1):
            found.look()
            if row['n'] != number:
                found.violation(f"{state['id']} has no call {number}", row)
                break
            digests.append(chained(digests[-1], row['tag']))
        else:
            if (state['state']['n'], state['state']['digest']) != (len(rows), digests[-1]):
                found.violation(f'the state is not what {len(rows)} calls make', state, *rows[-1:])
        for op in replies[state['type'], state['id']]:
            if history.survives(op) and op['n'] < len(digests) and op['digest'] != digests[op['n']]:
                found.violation('a reply is of another past', op)
