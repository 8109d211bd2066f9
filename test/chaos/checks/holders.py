"""
A lease is never held by two at once, and a token that is over fences nothing.

Somebody who was granted a lease holds it for certain until they let go of it, and a ttl one until their own deadline, which counts from before their latest renewal was sent. A grant that is
newer, by its token, and was known before that is a second holder. What a client does while it was stopped does not matter: all of its times are its own, and earlier than
what the server did for it. What a promotion may have cut off is left out: its row did not arrive, and somebody else may have the lease at once.
"""
import collections
import math

from found import Found

ENDS = ('release', 'abdicate', 'resign')
GRANTS = ('acquire', 'claim', 'lead')


class Hold:
    """By one token: until when it is certain."""

    def __init__(self, op, until):
        self.op, self.token, self.shared, self.until = op, op['token'], bool(op.get('shared')), until


def ttl_ends(history):
    """token: when its holder let go of it first, and what is known of its renewals."""
    ended, renewed = {}, {}
    for op in [op for f in ENDS for op in history.ops.get(f, ())]:
        ended[op['token']] = min(ended.get(op['token'], math.inf), op.t0)
    for op in history.some('renew', 'refresh'):
        if op['held']:
            renewed[op['token']] = max(renewed.get(op['token'], 0), op.t0)
    return ended, renewed


def last_seen(history):
    """(process, connection, token): when something by it was sent on that connection, the last time that there was an answer."""
    seen = {}
    for op in history.some('effect', 'renew', 'release'):
        if op.f == 'renew' and not op['held'] or op.f == 'release' and not op['released']:
            continue
        key = op.p, op.get('c'), op['token']
        seen[key] = max(seen.get(key, 0), op.t0)
    return seen


def holds(history):
    """(lease, Hold) of each grant, and of each fenced transaction: until it commits nobody else is granted it."""
    ended, renewed = ttl_ends(history)
    seen = last_seen(history)
    for op in history.some(*GRANTS):
        if op.get('token') is None:
            continue
        token = op['token']
        if op.get('scope', 'ttl') == 'session' or op.get('bound'):
            until = seen.get((op.p, op.get('c'), token), 0)
        else:
            until = max(op.t0, renewed.get(token, 0)) + op['ttl'] * 1e9
        until = min(until, ended.get(token, math.inf))
        promotion = history.lost_by(op)
        if promotion is not None:
            until = min(until, promotion.down)
        for lease in op['leases']:
            yield lease, Hold(op, until)
    for op in history.some('xact', 'effect'):
        if op.get('token') is not None and 'tc' in op.values:
            for lease in op['leases']:
                yield lease, Hold(op, op['tc'])



def grants(history):
    """(lease, op, when it was known)."""
    for op in history.some(*GRANTS):
        if op.get('token') is not None and history.survives(op):
            for lease in op['leases']:
                yield lease, op, op.t1
    for op in history.some('xact'):
        if op.get('token') is not None and history.survives(op):
            for lease in op['leases']:
                yield lease, op, op['tg']


def check(history):
    found = Found()
    by_lease = collections.defaultdict(lambda: ([], [], []))
    for lease, hold in holds(history):
        by_lease[lease][0].append(hold)
    for lease, op, known in grants(history):
        by_lease[lease][1].append((op, known))
    for op in history.some('effect'):
        for lease in op['leases']:
            by_lease[lease][2].append(op)
    for lease, (held, granted, effects) in by_lease.items():
        two_holders(found, lease, held, granted)
        stale_effects(found, lease, effects, granted)
    released_effects(found, history)
    return found


def two_holders(found, lease, held, granted):
    """By token, from the newest on: the earliest time at which a newer grant was known."""
    held.sort(key=lambda hold: -hold.token)
    granted.sort(key=lambda grant: -grant[0]['token'])
    earliest = {True: None, False: None}        # shared, exclusive
    place = 0
    for hold in held:
        found.look()
        while place < len(granted) and granted[place][0]['token'] > hold.token:
            shared = bool(granted[place][0].get('shared'))
            if earliest[shared] is None or granted[place][1] < earliest[shared][1]:
                earliest[shared] = granted[place]
            place += 1
        for shared in (False, True):
            newer = earliest[shared]
            if newer is not None and newer[1] < hold.until and not (shared and hold.shared):
                found.violation(f'{lease} was granted to a second one at {newer[1]} at the latest, while the first held it until {hold.until:.0f}', hold.op, newer[0])


def stale_effects(found, lease, effects, granted):
    """By time: the greatest token that was known before the fenced transaction began."""
    granted.sort(key=lambda grant: grant[1])
    greatest = {True: None, False: None}
    place = 0
    for op in sorted(effects, key=lambda op: op.t0):
        found.look()
        while place < len(granted) and granted[place][1] < op.t0:
            grant = granted[place][0]
            shared = bool(grant.get('shared'))
            if greatest[shared] is None or grant['token'] > greatest[shared]['token']:
                greatest[shared] = grant
            place += 1
        for shared in (False, True):
            newer = greatest[shared]
            if newer is not None and newer['token'] > op['token'] and not (shared and op.get('shared')):
                found.violation(f'{lease}: a token fenced a transaction after a newer one was granted', newer, op)


def released_effects(found, history):
    released = {}
    for op in history.some(*ENDS):
        if op['released'] and history.survives(op):
            released[op['token']] = op
    for op in history.some('effect'):
        end = released.get(op['token'])
        if end is not None and end.t1 < op.t0:
            found.violation('a token fenced a transaction after it was released', end, op)
