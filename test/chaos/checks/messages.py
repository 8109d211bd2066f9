"""
Messages and timers are applied exactly once: each that was sent for certain has one delivery, or waits still; none that rolled back, was refused or taken back has any; one whose send is not known has
all or nothing. What a delivery sends on goes with it. For each sender and entity sends are applied in the order in which they were sent. A message is set aside after six failures and not
before, so that one that always fails is there in the end, and no other one.
"""
import collections

from found import Found

ATTEMPTS = 6


def check(history):
    found = Found()
    delivered, waiting = collections.defaultdict(list), collections.defaultdict(list)
    for row in history.final['delivery']:
        delivered[row['tag'], row['hops']].append(row)
    for row in history.final['message']:
        if row['type'] == 'sink':
            waiting[row['message']['tag'], row['message'].get('hops', 0)].append(row)
    taken = {op['tag']: op for op in history.ops.get('cancel', ()) if op.e == 'info' or op.get('taken')}
    sent = attempts(history)
    for tag, (ops, hops) in sent.items():
        found.look()
        fate(found, history, tag, ops, hops, delivered, waiting, taken)
    for (tag, _), rows in delivered.items():
        if tag not in sent:
            found.violation('nobody has sent that', *rows)
    for op in history.some('cancel'):
        sends = sent.get(op['tag'], ((), 0))[0]
        if not op['taken'] and not delivered.get((op['tag'], 0)) and any(send.e == 'ok' and history.survives(send) for send in sends):
            found.violation('a timer could not be taken back, and is not delivered', op)
    in_order(found, history, delivered)
    return found


def attempts(history):
    """tag: (operations that may have sent it, how often it is to be sent on)."""
    sent = {}
    for op in [op for f in ('send', 'send_once', 'timer') for op in history.ops.get(f, ())]:
        for tag in op.get('tags', ()):
            sent.setdefault(tag, ([], op.get('hops', 0)))[0].append(op)
    return sent


def fate(found, history, tag, ops, hops, delivered, waiting, taken):
    rows = delivered.get((tag, hops), ())
    still = waiting.get((tag, hops), ())
    count = len(rows) + len(still)
    undone = all(op.e == 'fail' or op.get('undone') for op in ops)
    cancelled = taken.get(tag)
    if count > 1:
        found.violation('a message is there twice', *ops, *rows, *still)
    elif count and undone:
        found.violation('a message that was not sent has come', *ops, *rows, *still)
    elif count and cancelled is not None and cancelled.e == 'ok' and history.survives(cancelled):
        found.violation('a timer has come that was taken back', *ops, cancelled, *rows, *still)
    elif not count and not undone and cancelled is None:
        for op in ops:
            if op.e == 'ok' and history.survives(op):
                found.violation('a message has not come', op)
                break
    doomed = any(op.get('fails', 0) >= ATTEMPTS for op in ops)
    for row in still:
        if row['state'] == 'set aside':
            if not doomed or row['attempts'] < ATTEMPTS:
                found.violation(f"a message was set aside after {row['attempts']} attempts", *ops, row)
        elif row['state'] != 'scheduled':
            found.violation(f"a message is {'not set aside, and always fails' if doomed else 'not delivered in the end'}", *ops, row)
    # what was delivered was sent on with it
    for hop in range(hops, 0, -1):
        if not delivered.get((tag, hop)):
            break
        found.look()
        after = list(delivered.get((tag, hop - 1), ())) + list(waiting.get((tag, hop - 1), ()))
        if len(after) != 1:
            found.violation(f'a message was sent on {len(after)} times', *delivered[tag, hop], *after)


def in_order(found, history, delivered):
    """Of two sends the second of which began when the first was known, the first one is applied first."""
    begun = {}
    for op in history.ops.get('send_once', ()):
        begun.setdefault(op['req'], op.t0)
    lanes = collections.defaultdict(list)
    for op in history.some('send', 'send_once'):
        if op.get('undone'):
            continue
        last = None
        for tag in op['tags']:
            for row in delivered.get((tag, op['hops']), ()):
                lanes[row['sender'], row['id']].append((row['n'], begun.get(op.get('req'), op.t0), op))
                if last is not None and row['n'] < last:
                    found.violation('messages of one transaction came in another order', op, row)
                last = row['n']
    for lane, sends in lanes.items():
        sends.sort(key=lambda send: send[0])
        latest = None
        for n, first, op in sends:
            found.look()
            if latest is not None and op.t1 < latest[0]:
                found.violation(f'{lane[1]}: a message came after one that was sent later', op, latest[1])
            if latest is None or first > latest[0]:
                latest = first, op
