"""
Batches are whole, and planned once: each has all of its splits, published by one generation; the generations of later batches are no less; the cursor, which commits with the batch, says how many there are; and what was
published for certain is there.
"""
import collections

from found import Found

SIZES = {'pulled': 10, 'planned': 20}


def check(history):
    found = Found()
    batches = collections.defaultdict(list)
    for row in history.final['split']:
        if row['plan'] in SIZES:
            batches[row['plan'], row['spec']['batch']].append(row)
    for plan in history.final['plan']:
        size = SIZES.get(plan['plan'])
        if size is None:
            continue
        until = (plan['cursor'] or {}).get('next', 0)
        there = sum(key[0] == plan['plan'] for key in batches)
        if until != size * there or plan['planned'] != until:
            found.violation(f"the cursor of a plan is at {until}, it has {there} batches, and counts {plan['planned']} splits", plan)
        newest = 0
        for number in range(there):
            found.look()
            splits = batches.get((plan['plan'], number), ())
            generations = {row['spec']['generation'] for row in splits} | {row['generation'] for row in splits}
            if len(splits) != size or len(generations) != 1:
                found.violation(f'batch {number} has {len(splits)} splits of {len(generations)} generations', *splits)
                continue
            if min(generations) < newest:
                found.violation(f'batch {number} was published by an older generation than the one before', *splits[:1])
            newest = max(generations)
    for op in history.some('publish'):
        if 'batch' not in op.values:
            continue
        found.look()
        splits = batches.get((op['plan'], op['batch']), ())
        if op['created'] != SIZES[op['plan']]:
            found.violation('a batch was there when it was planned', op)
        if history.survives(op) and (not splits or splits[0]['generation'] != op['generation']):
            found.violation('a batch that was published is not there', op, *splits[:1])
    return found
