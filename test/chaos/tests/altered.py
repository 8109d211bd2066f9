"""
A recorded history, and the alterations of it that the checker must notice: each in the one way that a property forbids. What is altered are lines and rows, as they were written.
"""
import collections
import copy
import json
import lzma
import os

from history import ENVELOPE, FAULTS, FINAL, WAL, History, read_lines

SORTS = {FAULTS: 'faults', WAL: 'wal', FINAL: 'final'}
ALL = []


class Recorded:
    """Its lines, by what they are. A copy is as deep as it is altered: who changes a line puts another one in its place."""

    def __init__(self, lines=(), faults=(), wal=(), final=()):
        self.lines, self.faults, self.wal, self.final = list(lines), list(faults), list(wal), list(final)

    @classmethod
    def read(cls, path):
        """From the folder of a run, or from a file that pack() has written."""
        recorded = cls()
        if os.path.isdir(path):
            for name in sorted(os.listdir(path)):
                if name.endswith('.jsonl'):
                    getattr(recorded, SORTS.get(name[:-len('.jsonl')], 'lines')).extend(read_lines(os.path.join(path, name)))
        else:
            with lzma.open(path, 'rt') as file:
                for text in file:
                    sort, content = json.loads(text)
                    getattr(recorded, sort).append(content)
        return recorded

    def pack(self, path):
        with lzma.open(path, 'wt', preset=9) as file:
            for sort in 'lines', 'faults', 'wal', 'final':
                for content in getattr(self, sort):
                    file.write(json.dumps([sort, content], separators=(',', ':')) + '\n')

    def copy(self):
        return Recorded(self.lines, self.faults, self.wal, self.final)

    def history(self):
        return History(self.lines, self.faults, self.wal, self.final)

    # ---- what alterations are made with

    def rows(self, table, **values):
        return [row for row in self.final if row['table'] == table and all(row[name] == value for name, value in values.items())]

    def replace(self, old, **changes):
        """A row or a line, by itself or with other values."""
        for lines in self.final, self.lines:
            for place, line in enumerate(lines):
                if line is old:
                    lines[place] = {**copy.deepcopy(old), **changes}
                    return lines[place]
        raise LookupError(old)

    def remove(self, *rows):
        gone = set(map(id, rows))
        self.final = [row for row in self.final if id(row) not in gone]

    def line(self, op, e):
        """The line of an operation."""
        return next(line for line in self.lines if line['p'] == op.p and line['op'] == op.op and (line['e'] == e or e is None and line['e'] != 'invoke'))

    def change(self, op, **changes):
        """What an operation was told, or `t0` and `t1`, when."""
        if 't0' in changes:
            self.replace(self.line(op, 'invoke'), t=changes.pop('t0'))
        if 't1' in changes:
            changes['t'] = changes.pop('t1')
        if changes:
            self.replace(self.line(op, None), **changes)


class alteration:
    """Of a copy, which is returned as it is if there is nothing to alter: false."""

    def __init__(self, check, what):
        self.check, self.what = check, what

    def __call__(self, alter):
        self.alter = lambda recorded: bool(alter(recorded, recorded.history()))
        ALL.append(self)
        return alter


def pairs(items, key):
    """Neighbours with the same key."""
    groups = collections.defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    for group in groups.values():
        yield from zip(group, group[1:])


def effects_in_order(recorded):
    return sorted(recorded.rows('effect'), key=lambda row: (row['stream'], row['n']))


def lease_pairs(history):
    """Grants of one lease, one after the other, of which the first has a ttl: the second begins when the first is known to be over."""
    grants = sorted((op for op in history.some('acquire', 'claim', 'lead') if op.get('token') and op.get('scope', 'ttl') == 'ttl' and not op.get('bound')
                     and len(op['leases']) == 1), key=lambda op: op['token'])
    return pairs(grants, lambda op: op['leases'][0])


@alteration('tokens', 'two draws have exchanged their tokens')
def tokens_exchanged(recorded, history):
    for one, other in lease_pairs(history):
        if one.t1 < other.get('first', other.t0):
            recorded.change(one, token=other['token'])
            recorded.change(other, token=one['token'])
            return True


@alteration('tokens', 'one token was given twice')
def token_twice(recorded, history):
    for one, other in lease_pairs(history):
        recorded.change(other, token=one['token'])
        return True


@alteration('tokens', 'a split was given the token of a lease')
def token_of_split(recorded, history):
    token = history.some('claim')[0]['token'] or next(op['token'] for op in history.some('acquire') if op['token'])
    for op in history.some('claim_splits'):
        if op['splits']:
            recorded.change(op, splits=[[op['splits'][0][0], token, 1, None]])
            return True


@alteration('effects', 'two effects by different tokens have exchanged their places')
def effects_exchanged(recorded, history):
    for one, other in pairs(effects_in_order(recorded), lambda row: row['stream']):
        if one['token'] < other['token'] and not one['shared'] and not other['shared']:
            recorded.replace(one, n=other['n'])
            recorded.replace(other, n=one['n'])
            return True


@alteration('effects', 'one is gone')
def effect_gone(recorded, history):
    recorded.remove(effects_in_order(recorded)[3])
    return True


@alteration('effects', 'a task wrote between those of its next run')
def task_interleaved(recorded, history):
    rows = [row for row in effects_in_order(recorded) if row['stream'] == 'task/beat']
    for one, other in zip(rows, rows[1:]):
        if one['token'] < other['token']:
            recorded.replace(rows[rows.index(other) + 1], token=one['token'])
            return True


@alteration('holders', 'the next one was granted the lease at once')
def granted_at_once(recorded, history):
    for one, other in lease_pairs(history):
        ended = [op.t0 for f in ('release', 'abdicate', 'resign') for op in history.ops.get(f, ()) if op['token'] == one['token']]
        if one.t1 + 4 < min(ended, default=one.t0 + one['ttl'] * 1e9):
            recorded.change(other, t0=one.t1 + 1, t1=one.t1 + 2)
            return True


@alteration('holders', 'a token fenced a transaction after the next one was granted')
def fenced_too_late(recorded, history):
    for one, other in lease_pairs(history):
        for op in history.some('effect'):
            if op['token'] == one['token']:
                recorded.change(op, t0=other.t1 + 1, t1=other.t1 + 2)
                return True


@alteration('holders', 'a token fenced a transaction after it was released')
def fenced_after_release(recorded, history):
    for end in history.some('release'):
        for op in history.some('effect'):
            if op['token'] == end['token'] and end['released'] and end['scope'] == 'ttl':
                recorded.change(op, t0=end.t1 + 1, t1=end.t1 + 2)
                return True


@alteration('holders', 'a lease was granted within a transaction that held it')
def granted_within(recorded, history):
    transactions = sorted((op for op in history.some('xact') if op.get('token') and not op['shared']), key=lambda op: op['token'])
    for one, other in pairs(transactions, lambda op: op['leases'][0]):
        recorded.change(other, tg=one['tc'] - 1)
        return True


@alteration('guards', 'a write without the fence succeeded')
def unfenced(recorded, history):
    recorded.change(history.ops['unfenced'][0], e='ok')
    return True


@alteration('guards', 'the effect of a guarded row is gone')
def guarded_alone(recorded, history):
    recorded.remove(recorded.rows('effect', stream='guarded')[0])
    return True


def op_rows(recorded, op, table='effect'):
    return recorded.rows(table, p=op.p, op=op.op)


@alteration('writes', 'what a transaction wrote is gone')
def write_gone(recorded, history):
    for op in history.some('effect'):
        rows = op_rows(recorded, op)
        if rows and history.survives(op):
            recorded.remove(*rows)
            return True


@alteration('writes', 'half of what a transaction wrote is gone')
def write_halved(recorded, history):
    for op in history.some('effect', 'xact'):
        rows = op_rows(recorded, op)
        if len(rows) > 1:
            recorded.remove(rows[0])
            return True


@alteration('writes', 'half of a batch of splits is gone')
def batch_halved(recorded, history):
    for op in history.some('commit_splits'):
        rows = op_rows(recorded, op, 'step')
        if len(rows) > 1:
            recorded.remove(rows[0])
            return True


@alteration('writes', 'what failed is there')
def failed_there(recorded, history):
    for op in history.some('effect', e='fail'):
        recorded.final.append({**recorded.rows('effect')[0], 'p': op.p, 'op': op.op})
        return True


@alteration('calls', 'a call is gone')
def call_gone(recorded, history):
    recorded.remove(recorded.rows('call', type='strict')[-1])
    return True


@alteration('calls', 'two calls have exchanged their numbers')
def calls_exchanged(recorded, history):
    for one, other in pairs(sorted(recorded.rows('call', type='strict'), key=lambda row: (row['id'], row['n'])), lambda row: row['id']):
        recorded.replace(one, n=other['n'])
        recorded.replace(other, n=one['n'])
        return True


@alteration('calls', 'a request has happened twice')
def request_twice(recorded, history):
    for row in recorded.rows('call'):
        if row['tag'].startswith('request'):
            recorded.final.append({**row, 'n': row['n'] + 1000})
            return True


@alteration('calls', 'a reply has the number of another')
def reply_wrong(recorded, history):
    op = next(op for op in history.some('call') if op['row'])
    recorded.change(op, n=op['n'] + 1)
    return True


@alteration('receipts', 'what was said to be committed is gone')
def committed_gone(recorded, history):
    for op in history.some('receipt_status'):
        rows = recorded.rows('call', tag=op['tag'])
        if op['status'] == 'committed' and rows and history.survives(op):
            recorded.remove(*rows)
            return True


@alteration('receipts', 'what was said to be committed was said to be aborted')
def said_aborted(recorded, history):
    for op in history.some('receipt_status'):
        if op['status'] == 'committed' and recorded.rows('call', tag=op['tag']):
            recorded.change(op, status='aborted')
            return True


@alteration('receipts', 'what was undone was said to be committed')
def said_committed(recorded, history):
    for op in history.some('receipt_status'):
        if op['status'] == 'aborted' and not recorded.rows('call', tag=op['tag']) and history.survives(op):
            recorded.change(op, status='committed')
            return True


@alteration('versions', 'the next state of a relaxed entity has the version of the one before')
def version_again(recorded, history):
    calls = [op for op in history.some('call') if op['type'] == 'interval' and history.survives(op)]
    for one, other in pairs(calls, lambda op: op['id']):
        recorded.change(other, version=one['version'])
        return True


@alteration('versions', 'a row has the version of an older state')
def version_of_row(recorded, history):
    for one, other in pairs(recorded.rows('state_history') + recorded.rows('state', type='strict'), lambda row: row['id']):
        recorded.replace(other, version=one['version'])
        return True


def relaxed_before(history, fault):
    """An outage of such a kind, and calls of one relaxed entity that were answered before it, and seen to have survived it."""
    for outage in history.outages:
        if (outage.fault == 'restart_fast') == (fault == 'restart_fast') and outage.tli is None:
            for op in reversed(history.some('call')):
                if op['type'] == 'interval' and op.t1 < outage.down and not op['durable'] and not any(op.t1 < other.down < outage.down for other in history.outages):
                    yield outage, op


@alteration('relaxed', 'a shutdown has lost the last calls')
def lost_by_shutdown(recorded, history):
    for _, op in relaxed_before(history, 'restart_fast'):
        recorded.change(op, n=op['n'] + 1000)
        return True


@alteration('relaxed', 'a call that was durable is lost')
def lost_durable(recorded, history):
    for outage in history.outages:
        for op in reversed(history.some('call')):
            if op['type'] != 'strict' and op['durable'] and op.t1 < outage.down and history.survives(op):
                recorded.change(op, n=op['n'] + 1000)
                return True


@alteration('relaxed', 'a number was given twice')
def number_twice(recorded, history):
    for one, other in pairs([op for op in history.some('call') if op['type'] == 'on_stop'], lambda op: op['id']):
        if not any(one.t0 < outage.up and outage.down < other.t1 for outage in history.outages):
            recorded.change(other, n=one['n'])
            return True


@alteration('relaxed', 'a state forgets one before it')
def past_forgotten(recorded, history):
    for one, other in pairs(sorted((op for op in history.some('call') if op['type'] == 'interval'), key=lambda op: op['n']), lambda op: op['id']):
        if other['n'] == one['n'] + 1 and not any(one.t0 < outage.up and outage.down < other.t1 for outage in history.outages):
            recorded.change(other, digest='0123456789ab')
            return True


@alteration('lives', 'a deletion is undone')
def lives_on(recorded, history):
    for row in recorded.rows('life', deleted=True):
        for after in recorded.rows('life', id=row['id'], version=row['version'] + 1):
            recorded.replace(after, state={**after['state'], 'n': after['state']['n'] + 1})
            return True


@alteration('lives', 'a call is gone')
def life_gone(recorded, history):
    op = max((op for op in history.some('live') if history.survives(op)), key=lambda op: op['version'])
    recorded.remove(*[row for row in recorded.rows('life', id=op['id']) if row['version'] >= op['version']])
    return True


@alteration('messages', 'one is not delivered')
def message_gone(recorded, history):
    for op in history.some('send_once'):
        rows = recorded.rows('delivery', tag=op['tags'][0])
        if rows and history.survives(op):
            recorded.remove(*rows)
            return True


@alteration('messages', 'one is delivered twice')
def message_twice(recorded, history):
    return delivered_twice(recorded, 'send')


@alteration('messages', 'a timer is delivered twice')
def timer_twice(recorded, history):
    return delivered_twice(recorded, 'timer')


def delivered_twice(recorded, kind):
    row = recorded.rows('delivery', kind=kind)[0]
    recorded.final.append({**row, 'n': row['n'] + 100000})
    return True


@alteration('messages', 'one that was sent on is gone')
def hop_gone(recorded, history):
    for row in recorded.rows('delivery'):
        if row['hops'] > 0:
            recorded.remove(*recorded.rows('delivery', tag=row['tag'], hops=row['hops'] - 1))
            return True


@alteration('messages', 'two of one client have exchanged their places')
def messages_exchanged(recorded, history):
    sends = [op for op in history.some('send') if not op.get('undone') and not op['hops']]
    for one, other in pairs(sends, lambda op: (op.p, op['id'])):
        first, second = recorded.rows('delivery', tag=one['tags'][-1], hops=0), recorded.rows('delivery', tag=other['tags'][0], hops=0)
        if first and second:
            recorded.replace(first[0], n=second[0]['n'])
            recorded.replace(second[0], n=first[0]['n'])
            return True


@alteration('messages', 'one that always fails was set aside an attempt too early')
def aside_early(recorded, history):
    for row in recorded.rows('message', state='set aside'):
        recorded.replace(row, attempts=row['attempts'] - 1)
        return True


@alteration('messages', 'one that always fails is tried for ever')
def never_aside(recorded, history):
    for row in recorded.rows('message', state='set aside'):
        recorded.replace(row, attempts=row['attempts'] + 5, state='retrying')
        return True


@alteration('messages', 'a timer that was taken back has come')
def cancelled_came(recorded, history):
    for op in history.some('cancel'):
        if op['taken'] and history.survives(op):
            recorded.final.append({**recorded.rows('delivery', kind='timer')[0], 'tag': op['tag'], 'n': 100000})
            return True


@alteration('splits', 'a step is there twice')
def step_twice(recorded, history):
    row = recorded.rows('step', plan='pulled')[0]
    recorded.final.append({**row, 'epoch': row['epoch'] + 1})
    return True


@alteration('splits', 'a step is gone')
def step_gone(recorded, history):
    recorded.remove(recorded.rows('step', plan='shards')[0])
    return True


@alteration('splits', 'an older epoch wrote after a newer one')
def epochs_exchanged(recorded, history):
    for one, other in pairs(sorted(recorded.rows('step', plan='shards'), key=lambda row: (row['split'], row['step'])), lambda row: row['split']):
        if one['epoch'] < other['epoch']:
            recorded.replace(one, epoch=other['epoch'])
            recorded.replace(other, epoch=one['epoch'])
            return True


@alteration('splits', 'an epoch that was replaced commits')
def replaced_commits(recorded, history):
    claims = [(split, epoch, op) for op in history.some('claim_splits') for split, epoch, *_ in op['splits']]
    for (split, epoch, one), (_, newer, other) in pairs(claims, lambda claim: (claim[2]['plan'], claim[0])):
        for op in history.some('commit_split'):
            if (op['plan'], op['split'], op['epoch']) == (one['plan'], split, epoch) and newer > epoch \
                    and not any(other.t0 < outage.up and outage.down < other.t1 + 2 for outage in history.outages):
                recorded.change(op, t0=other.t1 + 1, t1=other.t1 + 2)
                return True


@alteration('planners', 'a split of a batch is gone')
def batch_split_gone(recorded, history):
    recorded.remove(recorded.rows('split', plan='pulled')[4])
    return True


@alteration('planners', 'a batch is of another generation than was told')
def batch_of_another(recorded, history):
    for op in history.some('publish'):
        if 'batch' in op.values and history.survives(op):
            recorded.change(op, generation=op['generation'] - 1)
            return True


@alteration('planners', 'a batch is missing')
def batch_missing(recorded, history):
    recorded.remove(*[row for row in recorded.rows('split', plan='planned') if row['spec']['batch'] == 1])
    return True


@alteration('quarantine', 'a split was given up too early')
def given_up_early(recorded, history):
    recorded.replace(recorded.rows('split', plan='pulled')[0], state='quarantined', attempts=1, reasons=[])
    return True


@alteration('quarantine', 'a task was given up')
def task_given_up(recorded, history):
    recorded.replace(recorded.rows('task', name='tick')[0], phase='quarantined')
    return True


@alteration('tasks', 'two runs have exchanged their tokens')
def runs_exchanged(recorded, history):
    rows = sorted((row for row in recorded.rows('task_run', name='tick') if row['token']), key=lambda row: row['run'])
    recorded.replace(rows[0], token=rows[1]['token'])
    recorded.replace(rows[1], token=rows[0]['token'])
    return True


@alteration('tasks', 'one was still running when the next began')
def still_running(recorded, history):
    recorded.replace(recorded.rows('task_run', name='beat')[0], outcome='running')
    return True


@alteration('tasks', 'a task wrote while it was stopped')
def wrote_while_stopped(recorded, history):
    looks = [op for f in ('disable_task', 'drop_task', 'look', 'enable_task', 'create_task', 'run_task', 'restart_task') for op in history.ops.get(f, ())]
    looks.sort(key=lambda op: op.t0)
    for one, other in pairs(looks, lambda op: op['task']):
        if (one.f, other.f) == ('look', 'look') and one.e == other.e == 'ok':
            stop = [op for op in looks if op['task'] == one['task'] and op.t0 < one.t0][-1]
            if stop.f in ('disable_task', 'drop_task') and stop.e == 'ok' and history.survives(stop):
                recorded.change(other, n=other['n'] + 1)
                return True


@alteration('aliens', 'a deadlock')
def alien(recorded, history):
    line = recorded.lines[0]
    recorded.lines.append({**{name: line[name] for name in ENVELOPE & line.keys()}, 'e': 'alien', 'sqlstate': '40P01', 'message': 'deadlock detected'})
    return True


@alteration('aliens', 'an operation that ended twice')
def ended_twice(recorded, history):
    op = history.some('effect')[0]
    recorded.lines.append(recorded.line(op, 'ok'))
    return True


@alteration('saves', 'one is gone')
def save_gone(recorded, history):
    recorded.remove(recorded.rows('page')[0])
    return True


@alteration('saves', 'two were made from one version')
def saved_twice(recorded, history):
    for one, other in pairs(history.some('save'), lambda op: op['id']):
        recorded.change(other, base=one['base'], version=one['version'])
        return True


@alteration('saves', 'one has overwritten what it had not seen')
def overwritten(recorded, history):
    for row in recorded.rows('page', deleted=False):
        if row['version'] > 2:
            recorded.replace(row, state={**row['state'], 'digest': '0123456789ab'})
            return True
