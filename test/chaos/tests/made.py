"""
Histories made by hand: of each property the least that it must reject, and next to each what looks alike and is right.

A case is (property, what it is, whether it must be accepted, the history). Times are in seconds.
"""
import itertools

from chain import chained
from history import History

CASES = []
ERA = 1 << 40


def case(check, what, good, *pieces):
    """Pieces are operations, each two lines, faults, samples of WAL, and rows of the end."""
    sorts = {'line': [], 'fault': [], 'wal': [], 'row': []}
    for sort, content in pieces:
        sorts[sort].extend(content)
    CASES.append((check, what, good, History(sorts['line'], sorts['fault'], sorts['wal'], sorts['row'])))


def accepts(check, what, *pieces):
    case(check, what, True, *pieces)


def rejects(check, what, *pieces):
    case(check, what, False, *pieces)


numbers = itertools.count(1)


def op(f, t0, t1, e='ok', p='a', number=None, lsn=None, tli=1, **values):
    """One operation. `number` where rows name it."""
    number = next(numbers) + 1000 if number is None else number
    values = {name: round(value * 1e9) if name in ('first', 'tc', 'tg', 'tf', 'joined') else value for name, value in values.items()}
    point = {} if lsn is None else {'lsn': lsn, 'tli': tli}
    lines = [{'t': round(t0 * 1e9), 'p': p, 'op': number, 'e': 'invoke', 'f': f, **values}]
    if e is not None:
        lines.append({'t': round(t1 * 1e9), 'p': p, 'op': number, 'e': e, 'f': f, **point})
    return 'line', lines


def outage(f, down, up, **more):
    """A promotion says `tli` and `switch_lsn`."""
    return 'fault', [{'t': round(down * 1e9), 'e': 'inject', 'f': f},
                     {'t': round(up * 1e9), 'e': 'heal', 'f': f, 'down': round(down * 1e9), 'up': round(up * 1e9), **more}]


def fault(f, begin, end):
    return 'fault', [{'t': round(begin * 1e9), 'e': 'inject', 'f': f}, {'t': round(end * 1e9), 'e': 'heal', 'f': f}]


def wal(*samples):
    return 'wal', [{'t': round(t * 1e9), 'tli': tli, 'lsn': lsn} for t, tli, lsn in samples]


def row(table, **values):
    return 'row', [{'table': table, **values}]


def grant(t0, t1, token, p='a', f='acquire', lease='x', **values):
    values = {'scope': 'ttl', 'ttl': 10, 'leases': [lease], 'token': token, **values}
    return op(f, t0, t1, p=p, **values)


def effect(stream, n, token, shared=False, p='a', number=0):
    return row('effect', stream=stream, n=n, token=token, shared=shared, p=p, op=number, note=None)


PROMOTION = outage('promote', 100, 110, tli=2, switch_lsn='0/1000')

# ---------------------------------------------------------------------
# tokens
# ---------------------------------------------------------------------

accepts('tokens', 'greater ones later', grant(1, 2, 5), grant(3, 4, 6))
rejects('tokens', 'an older one later', grant(1, 2, 6), grant(3, 4, 5))
accepts('tokens', 'in any order where calls overlap', grant(1, 4, 6), grant(3, 5, 5, p='b'))
rejects('tokens', 'one token twice', grant(1, 2, 5), grant(1.5, 3, 5, p='b', lease='y'))
accepts('tokens', 'a request that is repeated', grant(1, 2, 5, req='r', first=1), grant(3, 4, 6, p='b'), grant(5, 6, 5, req='r', first=1))
rejects('tokens', 'a request first made when a greater one was known', grant(1, 2, 6), grant(5, 6, 5, req='r', first=3))
rejects('tokens', 'not above the era before the failover', grant(1, 2, ERA + 7), PROMOTION, grant(120, 121, ERA + 3, p='b'))
rejects('tokens', 'not above one that the failover lost', grant(98, 99, ERA + 7, lsn='0/2000'), PROMOTION, grant(120, 121, ERA + 3, p='b'))
rejects('tokens', 'one of a lease and of a split', grant(1, 2, 5), op('claim_splits', 1, 3, p='b', plan='pulled', req='r', first=1, splits=[['s1', 5, 1, None]]))
accepts('tokens', 'an epoch that is seen twice', *[op('poll', t, t + 1, plan='shards', joined=1, events=[[5, 'gained', 's', 5]]) for t in (2, 4)])
rejects('tokens', 'an epoch that is older than what was known before its member joined', grant(1, 2, 9),
        op('poll', 5, 6, plan='shards', joined=3, events=[[5, 'gained', 's', 5]]))
rejects('tokens', 'one of a run and of a lease', grant(1, 2, 5), row('task_run', run=1, name='beat', token=5, outcome='succeeded'))
rejects('tokens', 'an older one in a transaction', op('xact', 1, 5, leases=['x'], token=6, tg=2, tc=4), op('xact', 3, 6, p='b', leases=['y'], token=5, tg=4, tc=5))

# ---------------------------------------------------------------------
# effects
# ---------------------------------------------------------------------

accepts('effects', 'in token order', effect('x', 1, 5), effect('x', 2, 5), effect('x', 3, 6), row('serial', stream='x', n=3))
rejects('effects', 'an old token after a newer', effect('x', 1, 5), effect('x', 2, 6), effect('x', 3, 5), row('serial', stream='x', n=3))
accepts('effects', 'shared ones beside each other', effect('x', 1, 5, True), effect('x', 2, 6, True), effect('x', 3, 5, True), row('serial', stream='x', n=3))
rejects('effects', 'a shared one after a newer exclusive one', effect('x', 1, 5, True), effect('x', 2, 6), effect('x', 3, 5, True), row('serial', stream='x', n=3))
rejects('effects', 'an exclusive one after a newer shared one', effect('x', 1, 5), effect('x', 2, 6, True), effect('x', 3, 5), row('serial', stream='x', n=3))
accepts('effects', 'each stream by itself', effect('x', 1, 5), effect('y', 1, 4), row('serial', stream='x', n=1), row('serial', stream='y', n=1))
rejects('effects', 'a gap', effect('x', 1, 5), effect('x', 3, 5), row('serial', stream='x', n=3))
rejects('effects', 'the last one gone', effect('x', 1, 5), row('serial', stream='x', n=2))
rejects('effects', 'one without a token', effect('x', 1, None), row('serial', stream='x', n=1))

# ---------------------------------------------------------------------
# holders
# ---------------------------------------------------------------------

accepts('holders', 'granted after the deadline', grant(1, 2, 5), grant(3, 11.5, 6, p='b'))
rejects('holders', 'granted before the deadline', grant(1, 2, 5), grant(3, 10.5, 6, p='b'))
accepts('holders', 'granted after the release', grant(1, 2, 5), op('release', 3, 4, token=5, leases=['x'], released=True), grant(3, 5, 6, p='b'))
rejects('holders', 'granted before the release', grant(1, 2, 5), op('release', 6, 7, token=5, leases=['x'], released=True), grant(3, 5, 6, p='b'))
rejects('holders', 'granted though it was renewed', grant(1, 2, 5), op('renew', 9, 10, token=5, leases=['x'], ttl=10, held=True), grant(3, 15, 6, p='b'))
accepts('holders', 'granted since the renewal came too late', grant(1, 2, 5), op('renew', 12, 13, token=5, leases=['x'], ttl=10, held=False), grant(3, 15, 6, p='b'))
accepts('holders', 'another name', grant(1, 2, 5), grant(3, 4, 6, p='b', lease='y'))
rejects('holders', 'one name of a set', grant(1, 2, 5, leases=['x', 'y']), grant(3, 4, 6, p='b', leases=['y', 'z']))
rejects('holders', 'two leaders', grant(1, 2, 5, f='claim'), grant(3, 4, 6, p='b', f='claim'))
rejects('holders', 'a crash is no excuse', grant(1, 2, 5), outage('kill_postmaster', 2.5, 2.9), grant(3, 4, 6, p='b'))
accepts('holders', 'a promotion that lost it', grant(98, 99, 5, lsn='0/2000'), PROMOTION, grant(102, 103, ERA, p='b'))
rejects('holders', 'a promotion that did not lose it', grant(98, 99, 5, ttl=60, lsn='0/500'), PROMOTION, grant(112, 113, ERA, p='b'))
rejects('holders', 'a promotion that did not lose it, by the time of its WAL', grant(96, 97, 5, ttl=60), wal((98, 1, '0/800'), (99, 1, '0/3000')), PROMOTION,
        grant(112, 113, ERA, p='b'))
accepts('holders', 'a promotion that may have lost it, by the time of its WAL', grant(98, 98.5, 5, ttl=60), wal((98, 1, '0/800'), (99, 1, '0/3000')), PROMOTION,
        grant(112, 113, ERA, p='b'))
accepts('holders', 'a lost grant in between', grant(80, 81, 5, ttl=10, lsn='0/500'), grant(95, 96, 6, p='b', lsn='0/2000'), PROMOTION,
        op('renew', 112, 113, token=5, leases=['x'], ttl=10, held=True))
accepts('holders', 'a bound one whose session may be gone', grant(1, 2, 5, bound=True, c=1), grant(3, 4, 6, p='b'))
rejects('holders', 'a bound one whose session answers', grant(1, 2, 5, bound=True, c=1), op('effect', 5, 6, c=1, token=5, leases=['x']), grant(3, 4, 6, p='b'))
rejects('holders', 'one of a session that answers', grant(1, 2, 5, scope='session', c=1), op('release', 8, 9, c=1, token=5, leases=['x'], released=True), grant(3, 4, 6, p='b'))
accepts('holders', 'shared beside shared', grant(1, 2, 5, scope='session', shared=True, c=1), op('release', 8, 9, c=1, token=5, leases=['x'], released=True),
        grant(3, 4, 6, p='b', scope='session', shared=True))
rejects('holders', 'exclusive beside shared', grant(1, 2, 5, scope='session', shared=True, c=1), op('release', 8, 9, c=1, token=5, leases=['x'], released=True), grant(3, 4, 6, p='b'))
rejects('holders', 'granted beside a transaction that holds it', op('xact', 1, 9, leases=['x'], token=5, tg=2, tc=8), grant(3, 4, 6, p='b'))
accepts('holders', 'granted after a transaction that held it', op('xact', 1, 9, leases=['x'], token=5, tg=2, tc=8), grant(3, 8.5, 6, p='b'))
rejects('holders', 'granted beside a fenced transaction, after the ttl', grant(1, 2, 5), op('effect', 10, 16, token=5, leases=['x'], tf=10.5, tc=15), grant(3, 14, 6, p='b'))
rejects('holders', 'fenced after another one was granted it', grant(1, 2, 5), grant(12, 13, 6, p='b'), op('effect', 14, 15, token=5, leases=['x']))
accepts('holders', 'fenced while another one is granted it', grant(1, 2, 5), grant(12, 14.5, 6, p='b'), op('effect', 14, 15, token=5, leases=['x']))
rejects('holders', 'fenced after the release', grant(1, 2, 5), op('release', 3, 4, token=5, leases=['x'], released=True), op('effect', 5, 6, token=5, leases=['x']))
accepts('holders', 'fenced after a release that a promotion lost', grant(1, 2, 5, ttl=500), op('release', 98, 99, token=5, leases=['x'], released=True, lsn='0/2000'), PROMOTION,
        op('effect', 112, 113, token=5, leases=['x']))

# ---------------------------------------------------------------------
# guards
# ---------------------------------------------------------------------

accepts('guards', 'refused, and written with the fence', op('unfenced', 1, 2, 'fail'), effect('guarded', 1, 5, number=3), row('guarded', n=1, token=5, p='a', op=3))
rejects('guards', 'written without the fence', op('unfenced', 1, 2))
rejects('guards', 'a row that nobody fenced', row('guarded', n=1, token=5, p='a', op=3))
rejects('guards', 'a row that is gone', effect('guarded', 1, 5, number=3))

# ---------------------------------------------------------------------
# writes
# ---------------------------------------------------------------------

ONE = {'leases': ['x'], 'token': 5, 'number': 1}
accepts('writes', 'committed and there', op('effect', 1, 2, n=[1], **ONE), effect('x', 1, 5, number=1))
rejects('writes', 'committed and not there', op('effect', 1, 2, n=[1], **ONE))
rejects('writes', 'committed and not there after a crash', op('effect', 1, 2, n=[1], **ONE), outage('kill_backend', 3, 4))
accepts('writes', 'committed and lost by a promotion', op('effect', 98, 99, n=[1], lsn='0/2000', **ONE), PROMOTION)
rejects('writes', 'committed and not lost by a promotion', op('effect', 98, 99, n=[1], lsn='0/1000', **ONE), PROMOTION)
rejects('writes', 'committed after a promotion', op('effect', 112, 113, n=[1], lsn='0/2000', tli=2, **ONE), PROMOTION)
rejects('writes', 'committed after a promotion, without a position', op('effect', 112, 113, n=[1], **ONE), PROMOTION)
rejects('writes', 'lost by neither of two promotions', op('effect', 98, 99, n=[1], lsn='0/900', **ONE), PROMOTION, outage('promote', 200, 210, tli=3, switch_lsn='0/5000'))
accepts('writes', 'lost by the second of two promotions', op('effect', 150, 151, n=[1], lsn='0/6000', tli=2, **ONE), PROMOTION, outage('promote', 200, 210, tli=3, switch_lsn='0/5000'))
rejects('writes', 'failed and there', op('effect', 1, 2, 'fail', **ONE), effect('x', 1, 5, number=1))
accepts('writes', 'not known and there', op('effect', 1, 2, 'info', **ONE), effect('x', 1, 5, number=1))
accepts('writes', 'not known and not there', op('effect', 1, 2, None, **ONE))
rejects('writes', 'half of it', op('effect', 1, 2, 'info', leases=['x', 'y'], token=5, number=1), effect('x', 1, 5, number=1))
rejects('writes', 'twice', op('effect', 1, 2, 'info', **ONE), effect('x', 1, 5, number=1), effect('x', 2, 5, number=1))
rejects('writes', 'another number', op('effect', 1, 2, n=[1], **ONE), effect('x', 2, 5, number=1))
rejects('writes', 'by nobody', op('unfenced', 1, 2, 'fail'), effect('x', 1, 5, number=77))
rejects('writes', 'half of a batch of splits', op('commit_splits', 1, 2, number=1, rows=2, commits=[]), row('step', plan='pulled', split='s1', step=1, epoch=5, p='a', op=1))

# ---------------------------------------------------------------------
# calls, receipts
# ---------------------------------------------------------------------

D1 = chained('', 'a#1')
D2 = chained(D1, 'request r')
CALL = {'type': 'strict', 'id': 's'}
FIRST = op('call', 1, 2, number=1, n=1, digest=D1, tag='a#1', row=True, version=1, durable=True, **CALL)
FIRST_ROW = row('call', n=1, tag='a#1', **CALL)


def state(n, digest, version=None, tag='?', type_='strict', id_='s'):
    return row('state', type=type_, id=id_, version=version or n, state={'n': n, 'digest': digest, 'tag': tag})


def request(t0, t1, e='ok', number=None, **values):
    return op('request', t0, t1, e, number=number, req='r', tag='request r', first=3, **CALL, **values)


accepts('calls', 'each has its row', FIRST, FIRST_ROW, state(1, D1))
rejects('calls', 'a reply without its row', FIRST, state(0, ''))
rejects('calls', 'a row and not its state', FIRST, FIRST_ROW, state(0, ''))
rejects('calls', 'a state of another past', FIRST, FIRST_ROW, state(1, 'beef'))
rejects('calls', 'twice', FIRST, FIRST_ROW, row('call', n=2, tag='a#1', **CALL), state(2, chained(D1, 'a#1')))
rejects('calls', 'another number', op('call', 1, 2, number=1, n=2, digest=D1, tag='a#1', row=True, version=1, durable=True, **CALL), FIRST_ROW, state(1, D1))
rejects('calls', 'a digest of another past', op('call', 1, 2, number=1, n=1, digest='beef', tag='a#1', row=True, version=1, durable=True, **CALL), FIRST_ROW, state(1, D1))
rejects('calls', 'failed and there', op('call', 1, 2, 'fail', number=1, **CALL), FIRST_ROW, state(1, D1))
rejects('calls', 'by nobody', FIRST_ROW, state(1, D1))
accepts('calls', 'a request whose first attempt is not known', FIRST, FIRST_ROW, request(3, 4, 'info'), request(5, 6, n=2, digest=D2), row('call', n=2, tag='request r', **CALL), state(2, D2))
rejects('calls', 'a request that has happened twice', FIRST, FIRST_ROW, request(3, 4, 'info'), request(5, 6, n=3, digest=chained(D2, 'request r')),
        row('call', n=2, tag='request r', **CALL), row('call', n=3, tag='request r', **CALL), state(3, chained(D2, 'request r')))
rejects('calls', 'a request that was answered, asked again, and has happened twice', FIRST, FIRST_ROW, request(3, 4, n=2, digest=D2), request(5, 6, n=3, digest=chained(D2, 'request r')),
        row('call', n=2, tag='request r', **CALL), row('call', n=3, tag='request r', **CALL), state(3, chained(D2, 'request r')))
rejects('calls', 'a request that was answered, asked again, and answered otherwise', FIRST, FIRST_ROW, request(3, 4, n=2, digest=D2), request(5, 6, n=3, digest=D2),
        row('call', n=2, tag='request r', **CALL), state(2, D2))
accepts('calls', 'lost by a promotion', op('call', 98, 99, number=1, lsn='0/2000', n=1, digest=D1, tag='a#1', row=True, version=1, durable=True, **CALL), PROMOTION, state(0, ''))
rejects('calls', 'not lost by a promotion', op('call', 98, 99, number=1, lsn='0/800', n=1, digest=D1, tag='a#1', row=True, version=1, durable=True, **CALL), PROMOTION, state(0, ''))


def status(t0, t1, what, **more):
    return op('receipt_status', t0, t1, tag='a#1', n=1, status=what, **CALL, **more)


accepts('receipts', 'committed and there', status(3, 4, 'committed'), FIRST_ROW)
rejects('receipts', 'committed and not there', status(3, 4, 'committed'))
rejects('receipts', 'aborted and there', status(3, 4, 'aborted'), FIRST_ROW)
accepts('receipts', 'aborted and not there', status(3, 4, 'aborted'))
accepts('receipts', 'committed, and then lost by a promotion', status(98, 99, 'committed', lsn='0/2000'), PROMOTION)
rejects('receipts', 'committed, said after the promotion, and not there', status(112, 113, 'committed', lsn='0/2000', tli=2), PROMOTION)
UNDONE = op('call', 1, 2, 'fail', number=1, n=1, digest=D1, tag='a#1', row=True, version=1, durable=True, **CALL)
accepts('receipts', 'aborted, undone, and not there', UNDONE, status(3, 4, 'aborted'), state(0, ''))
rejects('receipts', 'committed, undone, and not there', UNDONE, status(3, 4, 'committed'), state(0, ''))
rejects('receipts', 'not known', status(3, 4, 'unknown'), FIRST_ROW)
ROWLESS = op('call', 1, 2, 'info', number=1, n=1, digest=D1, tag='a#1', row=False, version=1, durable=True, **CALL)
accepts('receipts', 'committed, without a row, and its entity has come that far', ROWLESS, status(3, 4, 'committed'), state(2, 'd'))
rejects('receipts', 'committed, without a row, and its entity has not come that far', ROWLESS, status(3, 4, 'committed'), state(0, ''))

# ---------------------------------------------------------------------
# versions
# ---------------------------------------------------------------------


def called(t0, t1, version, n, tag, type_='interval', id_='i', digest='d', **more):
    return op('call', t0, t1, type=type_, id=id_, version=version, n=n, tag=tag, digest=digest, **{'durable': False, 'row': False, **more})


accepts('versions', 'one state, seen twice', called(1, 2, 1, 1, 'a'), op('read', 3, 4, type='interval', id='i', version=1, n=1, tag='a', digest='d'))
rejects('versions', 'two states', called(1, 2, 1, 1, 'a'), called(3, 4, 1, 1, 'b'))
rejects('versions', 'given again after a crash', called(1, 2, 7, 7, 'a'), outage('kill_backend', 3, 4), called(5, 6, 7, 3, 'b'))
rejects('versions', 'read, and another one in the row', op('read', 3, 4, type='strict', id='s', version=1, n=1, tag='a', digest='d'), state(1, 'e'))
accepts('versions', 'given again where a promotion lost it', called(98, 99, 7, 7, 'a', lsn='0/2000'), PROMOTION, called(112, 113, 7, 3, 'b', lsn='0/3000', tli=2))
rejects('versions', 'given again where a promotion did not lose what reserved it', called(98, 99, 7, 7, 'a', lsn='0/900'), PROMOTION, called(112, 113, 7, 3, 'b', lsn='0/3000', tli=2))
rejects('versions', 'twice before the promotion that lost both', called(97, 98, 7, 7, 'a', lsn='0/2000'), called(98, 99, 7, 7, 'b', lsn='0/2001'), PROMOTION)
rejects('versions', 'two in the history', row('state_history', type='strict', id='s', version=3, state={'n': 3, 'digest': 'd', 'tag': 'a'}), state(3, 'e'))

# ---------------------------------------------------------------------
# relaxed
# ---------------------------------------------------------------------

CRASH = outage('kill_backend', 20, 21)


def left(n, t0=22, type_='interval', id_='i'):
    """What is seen after an outage."""
    return op('read', t0, t0 + 1, type=type_, id=id_, version=1000, n=n, tag='?', digest='?')


accepts('relaxed', 'lost what was just before', called(19, 19.5, 5, 5, 'a'), CRASH, left(4))
rejects('relaxed', 'lost what was long before', called(5, 6, 5, 5, 'a'), CRASH, left(4))
rejects('relaxed', 'lost what was long before, by the next call', called(5, 6, 5, 5, 'a'), CRASH, called(22, 23, 1000, 5, 'b'))
accepts('relaxed', 'lost by the crash beside which it was called, not by the next one', called(20.2, 20.4, 5, 5, 'a'), CRASH, left(4), op('flush', 24, 25, type='interval', id='i', flushed=0),
        outage('kill_backend', 40, 41), left(4, t0=42))
rejects('relaxed', 'a shutdown lost what was called beside it', called(20.2, 20.4, 5, 5, 'a'), outage('restart_fast', 20, 21), left(4))
rejects('relaxed', 'lost by one of two shutdowns', called(19, 19.5, 5, 5, 'a'), outage('restart_fast', 20, 21), outage('restart_fast', 30, 31), left(4, t0=32))
accepts('relaxed', 'lost by a crash or the shutdown after it, who knows', called(19, 19.5, 5, 5, 'a', type_='on_stop'), outage('restart_fast', 30, 31), CRASH, left(4, t0=32, type_='on_stop'))
ASKED = [op('request', *when, type='interval', id='i', req='r', tag='request r', n=3, digest='d', first=when[0]) for when in ((2, 3), (22, 23))]
accepts('relaxed', 'a request that was repeated is answered with what it did before the crash', ASKED[0], called(5, 6, 5, 5, 'a'), CRASH, ASKED[1],
        state(5, 'd', type_='interval', id_='i'))
rejects('relaxed', 'a request that was made once is answered with what was left', called(5, 6, 5, 5, 'a'), CRASH, ASKED[1], state(5, 'd', type_='interval', id_='i'))
accepts('relaxed', 'nothing lost', called(5, 6, 5, 5, 'a'), CRASH, called(22, 23, 1000, 6, 'b', digest=chained('d', 'b')))
rejects('relaxed', 'lost in the end', called(5, 6, 5, 5, 'a'), CRASH, state(4, 'd', type_='interval', id_='i'))
accepts('relaxed', 'a full disk was in the way', called(5, 6, 5, 5, 'a'), fault('full_disk', 5, 17), CRASH, left(4))
rejects('relaxed', 'a full disk was in the way long ago', called(1, 2, 5, 5, 'a'), fault('full_disk', 2, 3), CRASH, left(4))
accepts('relaxed', 'kept until it stops', called(5, 6, 5, 5, 'a', type_='on_stop'), CRASH, left(4, type_='on_stop'))
rejects('relaxed', 'a shutdown lost what was kept', called(19, 19.5, 5, 5, 'a', type_='on_stop'), outage('restart_fast', 20, 21), left(4, type_='on_stop'))
rejects('relaxed', 'a shutdown lost what was just before', called(19, 19.5, 5, 5, 'a'), outage('restart_fast', 20, 21), left(4))
rejects('relaxed', 'lost what was durable', called(19, 19.5, 5, 5, 'a', durable=True), CRASH, left(4))
rejects('relaxed', 'lost what was flushed', called(15, 16, 5, 5, 'a', type_='on_stop'), op('flush', 17, 18, type='on_stop', id='i', flushed=1), CRASH, left(4, type_='on_stop'))
accepts('relaxed', 'lost what was called beside the flush', called(15, 17.5, 5, 5, 'a', type_='on_stop'), op('flush', 17, 18, type='on_stop', id='i', flushed=1), CRASH,
        left(4, type_='on_stop'))
rejects('relaxed', 'lost what was unloaded', called(15, 16, 5, 5, 'a', type_='on_stop'), op('stop', 17, 18, type='on_stop', id='i', stopped=True), CRASH, left(4, type_='on_stop'))
accepts('relaxed', 'lost what a promotion cut off', called(80, 81, 5, 5, 'a', lsn='0/2000'), wal((79, 1, '0/1000'), (82, 1, '0/1800')), PROMOTION, left(4, t0=112))
rejects('relaxed', 'lost what a promotion did not cut off', called(80, 81, 5, 5, 'a', lsn='0/900'), wal((99, 1, '0/1000')), PROMOTION, left(4, t0=112))
rejects('relaxed', 'one number twice', called(1, 2, 1, 1, 'a'), called(3, 4, 2, 1, 'b'))
rejects('relaxed', 'a state of another past', called(1, 2, 1, 1, 'a', digest='d'), called(3, 4, 2, 2, 'b', digest='beef'))
accepts('relaxed', 'a state of its past', called(1, 2, 1, 1, 'a', digest='d'), called(3, 4, 2, 2, 'b', digest=chained('d', 'b')))
accepts('relaxed', 'another past after a crash', called(18, 19, 1, 1, 'a'), called(19, 19.5, 2, 2, 'b', digest=chained('d', 'b')), CRASH, called(22, 23, 1000, 2, 'c', digest='e'))

# ---------------------------------------------------------------------
# lives
# ---------------------------------------------------------------------


def life(version, n, tag, digest, deleted=False):
    return row('life', id='k', version=version, state=None if deleted else {'n': n, 'tag': tag, 'digest': digest}, deleted=deleted)


def lived(t0, t1, version, n, tag, digest, e='ok', **more):
    return op('live', t0, t1, e, id='k', version=version, n=n, tag=tag, digest=digest, **more)


GONE = life(2, 0, None, None, deleted=True)
BORN, AGAIN = chained('', 'a'), chained('', 'b')
accepts('lives', 'called, deleted, called again', lived(1, 2, 1, 1, 'a', BORN), op('delete', 3, 4, id='k', deleted=True, version=2), lived(5, 6, 3, 1, 'b', AGAIN),
        life(1, 1, 'a', BORN), GONE, life(3, 1, 'b', AGAIN))
rejects('lives', 'what was deleted lives on', life(1, 1, 'a', BORN), GONE, life(3, 2, 'b', chained(BORN, 'b')))
rejects('lives', 'a deletion that was confirmed and is not there', op('delete', 3, 4, id='k', deleted=True, version=2), life(1, 1, 'a', BORN), life(2, 2, 'b', chained(BORN, 'b')))
rejects('lives', 'a deletion that was confirmed, and the end is before it', op('delete', 3, 4, id='k', deleted=True, version=2), life(1, 1, 'a', BORN))
accepts('lives', 'a deletion that a promotion lost', op('delete', 98, 99, lsn='0/2000', id='k', deleted=True, version=2), PROMOTION, life(1, 1, 'a', BORN))
rejects('lives', 'deleted twice', life(1, 1, 'a', BORN), GONE, life(3, 0, None, None, deleted=True))
rejects('lives', 'a version is missing', life(1, 1, 'a', BORN), life(3, 2, 'b', chained(BORN, 'b')))
rejects('lives', 'a version is there twice', life(1, 1, 'a', BORN), life(1, 1, 'b', AGAIN))
rejects('lives', 'a call that was confirmed is another one', lived(1, 2, 1, 1, 'b', AGAIN), life(1, 1, 'a', BORN))
rejects('lives', 'a call that failed is there', lived(1, 2, 1, 1, 'a', BORN, 'fail'), life(1, 1, 'a', BORN))
accepts('lives', 'a call that is not known', lived(1, 2, 1, 1, 'a', BORN, 'info'), life(1, 1, 'a', BORN))

# ---------------------------------------------------------------------
# messages
# ---------------------------------------------------------------------


def send(t0, t1, e='ok', tag='m', f='send', id_='k', hops=0, fails=0, **more):
    return op(f, t0, t1, e, id=id_, tags=[tag] if isinstance(tag, str) else tag, hops=hops, fails=fails, **more)


def delivery(n, tag='m', hops=0, id_='k', **more):
    return row('delivery', id=id_, n=n, tag=tag, hops=hops, kind='send', sender='app', message_id=n, attempt=1, **more)


def message(tag='m', state_='pending', attempts=0):
    return row('message', message_id=1, type='sink', id='k', kind='send', message={'tag': tag}, sender='app', state=state_, attempts=attempts, sqlstate=None)


accepts('messages', 'sent and delivered', send(1, 2), delivery(1))
rejects('messages', 'sent and not delivered', send(1, 2))
rejects('messages', 'delivered twice', send(1, 2), delivery(1), delivery(2))
rejects('messages', 'delivered and there still', send(1, 2), delivery(1), message())
rejects('messages', 'there still', send(1, 2), message())
accepts('messages', 'a timer that is not due', send(1, 2, f='timer'), message(state_='scheduled'))
rejects('messages', 'rolled back and delivered', send(1, 2, undone=True), delivery(1))
rejects('messages', 'failed and delivered', send(1, 2, 'fail'), delivery(1))
accepts('messages', 'not known and delivered', send(1, 2, 'info'), delivery(1))
accepts('messages', 'not known and not delivered', send(1, 2, 'info'))
rejects('messages', 'not known and delivered twice', send(1, 2, 'info'), delivery(1), delivery(2))
rejects('messages', 'repeated and delivered twice', send(1, 2, 'info', f='send_once', req='r'), send(3, 4, f='send_once', req='r'), delivery(1), delivery(2))
rejects('messages', 'by nobody', delivery(1))
accepts('messages', 'lost by a promotion', send(98, 99, lsn='0/2000'), PROMOTION)
rejects('messages', 'not lost by a promotion', send(98, 99, lsn='0/900'), PROMOTION)
accepts('messages', 'sent on', send(1, 2, hops=1), delivery(1, hops=1), delivery(1, hops=0, id_='hop 1'))
rejects('messages', 'not sent on', send(1, 2, hops=1), delivery(1, hops=1))
rejects('messages', 'sent on twice', send(1, 2, hops=1), delivery(1, hops=1), delivery(1, hops=0, id_='hop 1'), delivery(2, hops=0, id_='hop 1'))
rejects('messages', 'a timer that was taken back, and came', send(1, 2, f='timer'), op('cancel', 3, 4, tag='m', timer=1, taken=True), delivery(1))
accepts('messages', 'a timer that was taken back', send(1, 2, f='timer'), op('cancel', 3, 4, tag='m', timer=1, taken=True))
rejects('messages', 'a timer that was not taken back, and did not come', send(1, 2, f='timer'), op('cancel', 3, 4, tag='m', timer=1, taken=False))
accepts('messages', 'a timer that a promotion lost, and could not be taken back', send(98, 99, f='timer', lsn='0/2000'), PROMOTION,
        op('cancel', 112, 113, tag='m', timer=1, taken=False))
accepts('messages', 'in order', send(1, 2), send(3, 4, tag='o'), delivery(1), delivery(2, tag='o'))
rejects('messages', 'out of order', send(1, 2), send(3, 4, tag='o', p='b'), delivery(2), delivery(1, tag='o'))
accepts('messages', 'in any order where sends overlap', send(1, 4), send(3, 5, tag='o', p='b'), delivery(2), delivery(1, tag='o'))
rejects('messages', 'one transaction out of order', send(1, 2, tag=['m', 'o']), delivery(2), delivery(1, tag='o'))
rejects('messages', 'set aside', send(1, 2), message(state_='set aside', attempts=6))
accepts('messages', 'set aside, and always fails', send(1, 2, fails=1000), message(state_='set aside', attempts=6))
rejects('messages', 'set aside too early', send(1, 2, fails=1000), message(state_='set aside', attempts=5))
rejects('messages', 'not set aside in the end', send(1, 2, fails=1000), message(state_='retrying', attempts=7))
rejects('messages', 'always fails, and is gone', send(1, 2, fails=1000))
rejects('messages', 'set aside twice', send(1, 2, fails=1000), message(state_='set aside', attempts=6), message(state_='set aside', attempts=6))
rejects('messages', 'asked again and sent again', send(1, 2, f='send_once', req='r'), send(3, 4, f='send_once', req='r'), delivery(1), delivery(2))

# ---------------------------------------------------------------------
# splits, planners, quarantine
# ---------------------------------------------------------------------


def step(number, epoch, split='s1', plan='pulled'):
    return row('step', plan=plan, split=split, step=number, epoch=epoch, batch='b', p='z', op=number)


def split(state_, said, name='s1', plan='pulled', **more):
    spec = {'batch': 0, 'steps': 2, 'generation': 3}
    return row('split', **{'plan': plan, 'split': name, 'state': state_, 'epoch': 9, 'worker': 'a', 'attempts': 1, 'progress': {'step': said} if said else None, 'spec': spec,
                           'reasons': [], 'generation': 3, **more})


def commit(t0, t1, epoch, p='a'):
    return op('commit_split', t0, t1, p=p, plan='pulled', split='s1', epoch=epoch, step=1, done=False)


def claimed(t0, t1, epoch, p='b'):
    return op('claim_splits', t0, t1, p=p, plan='pulled', req=f'r{epoch}', first=t0, splits=[['s1', epoch, 1, None]])


accepts('splits', 'each step once', step(1, 5), step(2, 7), split('done', 2))
rejects('splits', 'a step twice', step(1, 5), step(2, 7), step(2, 8), split('done', 2))
rejects('splits', 'a step that is missing', step(2, 7), split('done', 2))
rejects('splits', 'done, and its effects are not', split('done', 2))
rejects('splits', 'effects beyond its progress', step(1, 5), step(2, 7), split('owned', 1))
rejects('splits', 'done too early', step(1, 5), split('done', 1))
rejects('splits', 'an old epoch after a newer', step(1, 7), step(2, 5), split('done', 2))
rejects('splits', 'effects without a split', step(1, 5))
rejects('splits', 'an old epoch commits after the new one was claimed', claimed(1, 2, 7), commit(3, 4, 5))
accepts('splits', 'an old epoch commits while the new one is claimed', claimed(1, 3.5, 7), commit(3, 4, 5))
accepts('splits', 'an old epoch commits after a crash that undid the claim', claimed(1, 2, 7), outage('kill_backend', 2.1, 2.5), commit(3, 4, 5))
rejects('splits', 'a crash before the claim is no excuse', outage('kill_backend', 0.1, 0.5), claimed(1, 2, 7), commit(3, 4, 5))


def batch(number, size=10, generation=3, plan='pulled'):
    return 'row', [dict(split('done', 2, name=f's{number * 10 + k}', plan=plan)[1][0], generation=generation, spec={'batch': number, 'steps': 2, 'generation': generation})
                   for k in range(size)]


def plan_row(until):
    return row('plan', plan='pulled', state='open', generation=9, planned=until, done=0, quarantined=0, cursor={'next': until}, max_attempts=4)


def publish(t0, t1, number, generation=3, **more):
    return op('publish', t0, t1, plan='pulled', generation=generation, batch=number, created=10, outcome='ok', **more)


accepts('planners', 'whole batches', publish(1, 2, 0), batch(0), batch(1, generation=4), plan_row(20))
rejects('planners', 'half a batch', publish(1, 2, 0), batch(0, size=9), plan_row(10))
rejects('planners', 'a batch beyond the cursor', batch(0), batch(1), plan_row(10))
rejects('planners', 'an older generation later', batch(0, generation=4), batch(1, generation=3), plan_row(20))
rejects('planners', 'published and not there', publish(1, 2, 0), plan_row(0))
rejects('planners', 'published, and by another one', publish(1, 2, 0), batch(0, generation=4), plan_row(10))
accepts('planners', 'lost by a promotion, and planned again', publish(98, 99, 0, lsn='0/2000'), PROMOTION, publish(112, 113, 0, generation=4, lsn='0/3000', tli=2),
        batch(0, generation=4), plan_row(10))


def given_up(attempts, *epochs):
    return split('quarantined', 0, attempts=attempts, reasons=[{'epoch': epoch, 'worker': 'a', 'reason': '?'} for epoch in epochs])


MOST = row('plan', plan='pulled', max_attempts=4)
DOOMED = row('task', name='doomed', phase='quarantined', failures=4)
accepts('quarantine', 'after all attempts', MOST, given_up(4, 1, 2, 3, 4), DOOMED)
rejects('quarantine', 'too early', MOST, given_up(3, 1, 2, 3), DOOMED)
rejects('quarantine', 'one attempt counted twice', MOST, given_up(4, 1, 2, 3, 3), DOOMED)
rejects('quarantine', 'an attempt that was given back', MOST, given_up(4, 1, 2, 3, 4), op('release_split', 1, 2, plan='pulled', split='s1', epoch=3), DOOMED)
rejects('quarantine', 'a task too early', row('task', name='doomed', phase='quarantined', failures=3))
rejects('quarantine', 'a task that was to live', DOOMED, row('task', name='beat', phase='quarantined', failures=400))
rejects('quarantine', 'never', row('task', name='doomed', phase='backoff', failures=400))

# ---------------------------------------------------------------------
# tasks, aliens
# ---------------------------------------------------------------------


def run(number, token, outcome='succeeded'):
    return row('task_run', run=number, name='beat', token=token, outcome=outcome)


def own(f, t0, t1, e='ok', **more):
    return op(f, t0, t1, e, task='own', **more)


accepts('tasks', 'one after the other', run(1, 5), run(2, None, 'failed'), run(3, 6, 'running'))
rejects('tasks', 'a twin', row('twin', task='beat', token=5), run(1, 5))
rejects('tasks', 'an older token later', run(1, 6), run(2, 5))
rejects('tasks', 'two that run', run(1, 5, 'running'), run(2, 6, 'running'))
accepts('tasks', 'stopped, and quiet', own('disable_task', 1, 2), own('look', 3, 4, n=7), own('look', 5, 6, n=7), own('enable_task', 7, 8), own('look', 9, 10, n=8))
rejects('tasks', 'stopped, and not quiet', own('disable_task', 1, 2), own('look', 3, 4, n=7), own('look', 5, 6, n=8))
accepts('tasks', 'not known to be stopped', own('disable_task', 1, 2, 'info'), own('look', 3, 4, n=7), own('look', 5, 6, n=8))
accepts('aliens', 'an error that is foreseen', op('effect', 1, 2, 'fail', sqlstate='RV001'))
rejects('aliens', 'one that is not', op('effect', 1, 2, 'fail', sqlstate='XX000', number=7), ('line', [{'t': 2, 'p': 'a', 'op': 7, 'e': 'alien', 'f': 'effect', 'sqlstate': 'XX000', 'message': '?'}]))
rejects('aliens', 'an end without a beginning', ('line', [{'t': 2, 'p': 'a', 'op': 7, 'e': 'ok', 'f': 'effect'}]))

# ---------------------------------------------------------------------
# saves
# ---------------------------------------------------------------------


def page(version, digest, tag, deleted=False):
    return row('page', id='p', version=version, state=None if deleted else {'tag': tag, 'digest': digest}, deleted=deleted)


def save(t0, t1, base, version, tag, e='ok', f='save', **more):
    return op(f, t0, t1, e, id='p', base=base, version=version, tag=tag, **more)


S1, S2 = chained('', 's'), chained(chained('', 's'), 't')
accepts('saves', 'each from the one before', save(1, 2, 0, 1, 's'), save(3, 4, 1, 2, 't'), page(1, S1, 's'), page(2, S2, 't'))
rejects('saves', 'two from the same one', save(1, 2, 0, 1, 's'), save(1, 4, 0, 1, 't', p='b'), page(1, S1, 's'))
rejects('saves', 'one that had not seen the one before', page(1, S1, 's'), page(2, chained('', 't'), 't'))
rejects('saves', 'one that is gone', save(1, 2, 0, 1, 's'), save(3, 4, 1, 2, 't'), page(1, S1, 's'))
accepts('saves', 'one that a promotion lost', save(1, 2, 0, 1, 's'), save(98, 99, 1, 2, 't', lsn='0/2000'), PROMOTION, page(1, S1, 's'))
rejects('saves', 'a version that was skipped', page(1, S1, 's'), page(3, S2, 't'))
accepts('saves', 'again after a removal', save(1, 2, 0, 1, 's'), save(3, 4, 1, 2, None, f='remove'), save(5, 6, 2, 3, 't'), page(1, S1, 's'), page(2, None, None, True), page(3, chained('', 't'), 't'))
rejects('saves', 'from the beginning after a removal', page(1, S1, 's'), page(2, None, None, True), page(1, chained('', 't'), 't'))
rejects('saves', 'a removal that is gone', save(1, 2, 0, 1, 's'), save(3, 4, 1, 2, None, f='remove'), page(1, S1, 's'))
rejects('saves', 'overtaken though it was locked', page(1, S1, 's'), save(1, 2, 1, 2, 't', 'fail', locked=True, sqlstate='RV003'))
