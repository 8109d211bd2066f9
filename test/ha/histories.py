#!/usr/bin/env python3
"""The checks of failover.py, each with a history that it must accept and some that it must reject."""
import os
import sys
import tempfile

sys.path.insert(0, f'{os.path.dirname(os.path.abspath(__file__))}/lib')
import checks                                       # noqa: E402
import tap as taps                                  # noqa: E402


def event(t, what, kind='ok', who='a', op=1, **more):
    return {'t': t, 'wall': t, 'p': who, 'op': op, 'e': kind, 'f': what, **more}


def asked(sent, got, what, who, op, **more):
    return [event(sent, what, 'invoke', who, op), event(got, what, 'ok', who, op, **more)]


def grant(sent, got, who, op, token):
    return asked(sent, got, 'acquire', who, op, result=token)


def hold(t, who, until, what='hold', **more):
    return event(t, what, who=who, lease='l', until=until, token=1, **more)


def in_order(*events):
    return sorted(events, key=lambda one: one['t'])


def log(*lines):
    folder = tempfile.mkdtemp(dir='.')
    os.mkdir(f'{folder}/log')
    with open(f'{folder}/log/x', 'w', encoding='utf-8') as file:
        file.writelines(line + '\n' for line in lines)
    return [f'{folder}/log/x']


CALLS = [event(n, 'call', id='x', result=n) for n in (1, 2, 3)]
EFFECTS = [('x', 'call', {})] * 3
SENDS = [event(1, 'send', n=1), event(2, 'send_after', n=2)]
DELIVERED = [('box', 'send', {'from': 'a', 'n': 1}), ('box', 'timer', {'from': 'a', 'n': 2})]
PUBLISHED = [event(1, 'publish', splits=['s'])]


def cases():
    """The check, what it accepts, what it rejects."""
    return [
        (checks.aliens, [([event(1, 'call'), event(2, 'call', 'info')],)], [([event(1, 'call', 'alien', sqlstate='XX000', message='')],)]),
        (checks.tokens_that_did_not_grow,
         [(in_order(*grant(1, 2, 'a', 1, 5), *grant(3, 4, 'b', 1, 6)),), (in_order(*grant(1, 3, 'a', 1, 6), *grant(2, 4, 'b', 1, 5)),),
          (in_order(*asked(1, 2, 'claim', 'a', 1, result=[['s', 5], ['t', 6]]), *grant(3, 4, 'b', 1, 7)),)],
         [(in_order(*grant(1, 2, 'a', 1, 6), *grant(3, 4, 'b', 1, 5)),), (in_order(*grant(1, 2, 'a', 1, 5), *grant(3, 4, 'b', 1, 5)),),
          (in_order(*asked(1, 2, 'claim', 'a', 1, result=[['s', 5], ['t', 7]]), *grant(3, 4, 'b', 1, 6)),)]),
        (checks.overlapping_beliefs,
         [([hold(1, 'a', 4), hold(5, 'b', 8)],), (checks.releases_first([hold(1, 'a', 9), event(2, 'release', 'invoke', lease='l'), hold(3, 'b', 8)]),),
          ([hold(1, 'a', 4), hold(2, 'a', 5, 'renew', result=False), hold(4.5, 'b', 8)],)],
         [([hold(1, 'a', 4), hold(3, 'b', 8)],), ([hold(1, 'a', 4), hold(2, 'a', 6, 'renew', result=True), hold(5, 'b', 8)],)]),
        (checks.fenced_writes_out_of_order, [([(1, 'l', 5, ''), (2, 'm', 4, ''), (3, 'l', 5, '')],)], [([(1, 'l', 5, ''), (2, 'l', 4, '')],)]),
        (checks.confirmed_writes_missing,
         [([event(1, 'write', lease='l', token=1, id='x'), event(2, 'write', 'info', lease='l', token=1, id='y')], [(1, 'l', 1, 'x')])],
         [([event(1, 'write', lease='l', token=1, id='x')], []), ([event(1, 'write', lease='l', token=1, id='x')], [(1, 'l', 1, 'x'), (2, 'l', 1, 'x')])]),
        (checks.old_tokens_accepted,
         [([event(1, 'old fence', 'fail', sqlstate='RV001'), event(2, 'old renew', result=False, token=1), event(3, 'old release', result=False, token=1)],)],
         [([event(1, 'old fence', lease='l', token=1)],), ([event(1, 'old fence', 'fail', sqlstate='RV002')],), ([event(1, 'old renew', result=True, token=1)],),
          ([event(1, 'old release', result=True, token=1)],)]),
        (checks.replies_lost,
         [(CALLS, {'x': 3}, EFFECTS), (CALLS[:2], {'x': 3}, EFFECTS)],
         [(CALLS, {'x': 2}, EFFECTS[:2]), (CALLS, {'x': 3}, EFFECTS[:2]), (CALLS, {'x': 3}, EFFECTS + EFFECTS[:1]), (CALLS[:1] + CALLS[2:], {'x': 3}, EFFECTS),
          (CALLS + CALLS[2:], {'x': 4}, EFFECTS + EFFECTS[:1])]),
        (checks.messages_not_once,
         [(SENDS, DELIVERED), (SENDS[:1], DELIVERED)],
         [(SENDS, DELIVERED[:1]), (SENDS, DELIVERED[1:]), (SENDS, DELIVERED + DELIVERED[:1]), (SENDS[:1], DELIVERED + DELIVERED[1:])]),
        (checks.messages_out_of_order,
         [([('box', 'send', {'from': 'a', 'n': 1}), ('box', 'timer', {'from': 'a', 'n': 9}), ('box', 'send', {'from': 'a', 'n': 2}), ('other', 'send', {'from': 'a', 'n': 1})],)],
         [([('box', 'send', {'from': 'a', 'n': 2}), ('box', 'send', {'from': 'a', 'n': 1})],)]),
        (checks.splits_not_once,
         [(PUBLISHED, {'s': ('done', 5)}, [('s', 5)])],
         [(PUBLISHED, {}, []), (PUBLISHED, {'s': ('owned', 5)}, []), (PUBLISHED, {'s': ('done', 5)}, []), (PUBLISHED, {'s': ('done', 5)}, [('s', 4)]),
          (PUBLISHED, {'s': ('done', 5)}, [('s', 4), ('s', 5)]), (PUBLISHED, {'s': ('done', 5)}, [('s', 5), ('t', 6)])]),
        (checks.runs_that_overlap,
         [([(1, 5, 'x'), (2, 5, 'x'), (3, 6, 'y')],)],
         [([(1, 5, 'x'), (2, 6, 'y'), (3, 5, 'x')],), ([(1, 5, 'x'), (2, 5, 'y')],)]),
        (checks.bad_lines,
         [(log('ERROR:  token 1 of lease "x" is not the current one', 'LOG:  server process (PID 1) was terminated by signal 9: Killed'),)],
         [(log('LOG:  server process (PID 1) was terminated by signal 11: Segmentation fault'),), (log('PANIC:  x'),), (log('ERROR:  task cannot go from phase x to y'),)]),
    ]


def test(tap, place):
    os.chdir(place)
    for check, accepted, rejected in cases():
        for case in accepted:
            tap.none(check(*case), f'{check.__name__} accepts what is right')
        for number, case in enumerate(rejected, 1):
            tap.ok(check(*case), f'{check.__name__} rejects what is wrong ({number})')


if __name__ == '__main__':
    taps.run(test)
