"""
What a relaxed entity loses is recent: of `interval` at most what was called within flush_every, and as long as writing takes, before its server went down, or before the moment at which a
promotion cut off its WAL. Nothing is lost by a fast shutdown, nothing that was durable by its receipt, and nothing that was flushed or unloaded since, but what a promotion cut off. And what
is lost is the end of one past: with a state's number and digest come those of all before it.

Its calls count: the first state that is seen after an outage is one more than what was left.
"""
import bisect
import collections

from chain import chained
from found import Found

FLUSH_EVERY = 1.0                   # seconds, as schema.sql makes the type
SLACK = 4.0                         # as long as writing may take, on a machine that is busy
RELAXED = ('interval', 'on_stop')
# While these are under way, and for that many seconds after, nobody can write, or is there to write; this time does not count. (After an outage calls are strict until somebody is.)
HINDRANCES = {'full_memory', 'full_disk', 'no_connections', 'no_workers', 'slow_fsync', 'terminate'}
AFTER = 5.0


def hindered(history):
    """Merged intervals in which rows of relaxed entities may be late."""
    intervals = [(outage.down, outage.up) for outage in history.outages]
    begun = {}
    for line in history.faults:
        if line['f'] in HINDRANCES and line['e'] == 'inject':
            begun[line['f']] = line['t']
        elif line['f'] in begun and line['e'] == 'heal':
            intervals.append((begun.pop(line['f']), line['t'] + AFTER * 1e9))
    intervals += [(t, float('inf')) for t in begun.values()]
    merged = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return merged


def quiet_before(intervals, t, seconds):
    """The time before which there were so many seconds until `t` in which nothing hindered."""
    left = seconds * 1e9
    for begin, end in reversed(intervals):
        if begin >= t:
            continue
        if end < t:
            if t - end >= left:
                return t - left
            left -= t - end
        t = begin
    return t - left


def check(history):
    found = Found()
    intervals = hindered(history)
    calls, seen = collections.defaultdict(list), collections.defaultdict(list)
    asked = collections.Counter(op['req'] for op in history.ops.get('request', ()))
    for op in history.some('call', 'request', 'read'):
        if op['type'] in RELAXED and op.get('n') is not None:
            key = op['type'], op['id']
            if op.f != 'read':
                calls[key].append(op)
            # what was there before it; what a request that was repeated is answered may be of long ago
            if op.f != 'request' or asked[op['req']] == 1:
                seen[key].append((op.t0, op['n'] - (op.f != 'read'), op))
    written = collections.defaultdict(list)
    for op in history.some('flush', 'stop'):
        written[op['type'], op['id']].append(op)
    final = {(row['type'], row['id']): row for row in history.final['state']}
    for key, ops in calls.items():
        found.look(len(ops))
        one_past(found, history, ops)
        lost_in(found, history, intervals, ops, seen[key], written[key], final.get(key))
    return found


def lost_in(found, history, intervals, ops, seen, written, final):
    seen.sort(key=lambda sight: sight[0])
    times = [sight[0] for sight in seen]
    ops.sort(key=lambda op: op.t1)
    ends = [op.t1 for op in ops]
    for number, outage in enumerate(history.outages):
        left, after, last = what_is_left(history, number, seen, times, final)
        if left is None:
            continue
        # replies of the life that it ended, from the latest one on; some were given while it was under way
        before = history.outages[number - 1] if number > 0 else None
        for op in reversed(ops[:bisect.bisect_left(ends, outage.up)]):
            if before is not None and op.t1 < before.down:
                break
            if op['n'] <= left or before is not None and op.t0 < before.up:
                continue
            found.look()
            # where nothing was seen between two outages it may have been either
            problems = [why_not(history, intervals, one, op, written) for one in history.outages[number:last + 1]]
            if all(problems):
                found.violation(f"{op['id']}: number {op['n']} is lost, though {problems[0]}", op, {'outage': outage.fault, 'down': outage.down, 'up': outage.up, 'left': left}, after)


def what_is_left(history, number, seen, times, final):
    """The least number that was seen in the next life in which one was, or in the end in the table; by what; and which outage was the last one before."""
    for last in range(number, len(history.outages)):
        until = history.outages[last + 1].down if last + 1 < len(history.outages) else float('inf')
        sights = seen[bisect.bisect_left(times, history.outages[last].up):bisect.bisect_left(times, until)]
        # who asked before the next one may have been answered after it
        sights = [(left, op) for _, left, op in sights if op.t1 < until]
        if until == float('inf') and final is not None:
            sights.append((final['state']['n'], final))
        if sights:
            return *min(sights, key=lambda sight: sight[0]), last
    return None, None, None


def why_not(history, intervals, outage, op, written):
    """Why that call must not be lost in that outage, or None."""
    if outage.tli is not None:
        if op.get('durable') and history.survives(op):
            return 'it was durable'
        for other in written:
            if op.t1 < other.t0 and other.t1 < outage.down and history.survives(other):
                return f'it was written since, by {other}'
        since = min(outage.down, history.wal_time(outage))
    else:
        if outage.fault == 'restart_fast':
            return 'the server was shut down'
        if op.get('durable'):
            return 'it was durable'
        for other in written:
            if op.t1 < other.t0 and other.t1 < outage.down:
                return f'it was written since, by {other}'
        since = outage.down
    if op['type'] == 'interval' and op.t1 < quiet_before(intervals, since, FLUSH_EVERY + SLACK):
        return f'it was answered {(since - op.t1) / 1e9:.1f} s before, and nothing hindered writing it'
    return None


def one_past(found, history, ops):
    """Between two outages each number is given once, and made from the one before."""
    downs = [outage.down for outage in history.outages]
    lives = collections.defaultdict(list)
    for op in ops:
        life = bisect.bisect_right(downs, op.t0)
        if bisect.bisect_right(downs, op.t1) == life and (life == 0 or op.t0 >= history.outages[life - 1].up):
            lives[life, op['n']].append(op)
    for (life, n), same in lives.items():
        if len({op['tag'] for op in same}) > 1:
            found.violation('one number was given to two calls', *same)
            continue
        for before in lives.get((life, n - 1), ())[:1]:
            if same[0]['digest'] != chained(before['digest'], same[0]['tag']):
                found.violation('a state is not made from the one before it', before, same[0])
