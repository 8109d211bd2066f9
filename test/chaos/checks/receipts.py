"""receipt_status() tells the truth: a transaction that it says is committed is there, unless a promotion cut that off after the answer; one that it says is aborted never is."""
import collections

from found import Found


def check(history):
    found = Found()
    present = collections.Counter(row['tag'] for row in history.final['call'])
    for op in history.some('receipt_status'):
        found.look()
        there = present[op['tag']] > 0
        if op['status'] == 'committed' and not there and history.survives(op):
            found.violation('it was said to be committed, and is not there', op)
        elif op['status'] == 'aborted' and there:
            found.violation('it was said to be aborted, and is there', op)
        elif op['status'] not in ('committed', 'aborted', 'in progress'):
            found.violation('what became of a transaction of this history is not known', op)
    return found
