"""
receipt_status() tells the truth: a transaction that it says is committed is there, unless a promotion cut that off after the answer; one that it says is aborted never is. What it did
is seen by its row; by the number of its entity where it wrote none, which counts what was committed and durable.
"""
import collections

from found import Found


def check(history):
    found = Found()
    present = collections.Counter(row['tag'] for row in history.final['call'])
    numbers = {(row['type'], row['id']): row['state']['n'] for row in history.final['state']}
    rowless = {f'{op.p}#{op.op}' for op in history.ops.get('call', ()) if op.get('row') is False}
    for op in history.some('receipt_status'):
        found.look()
        there = present[op['tag']] > 0
        if op['status'] == 'committed' and not history.survives(op):
            continue
        if op['status'] == 'committed' and op['tag'] in rowless:
            if numbers.get((op['type'], op['id']), 0) < op['n']:
                found.violation('it was said to be committed, and its entity is not as far', op)
        elif op['status'] == 'committed' and not there:
            found.violation('it was said to be committed, and is not there', op)
        elif op['status'] == 'aborted' and there:
            found.violation('it was said to be aborted, and is there', op)
        elif op['status'] not in ('committed', 'aborted', 'in progress'):
            found.violation('what became of a transaction of this history is not known', op)
    return found
