"""The history of a run: what each process did, and when it knew how that went.

A folder. Each process appends to <process>.jsonl, one JSON object a line:

    {"t": monotonic ns, "p": process, "op": number, "e": "invoke", "f": function, ...arguments}
    {"t": ..., "p": ..., "op": the same, "e": "ok" | "fail" | "info", "f": ..., ...results}

`ok` is known to have happened, with "lsn" and "tli" where WAL ended after its commit; `fail` is known not to have happened, with its "sqlstate"; `info` is not
known. {"e": "alien"} is an error that nobody foresees. faults.jsonl has what was done to the servers, wal.jsonl samples of the primary's WAL position, final.jsonl what the
tables had at the end.
"""
import bisect
import collections
import json
import os
import time

FAULTS = 'faults'
WAL = 'wal'
FINAL = 'final'
NEVER = float('inf')


class Writer:
    """Appends to one process's file. A line is one write: what is cut off by a kill is the last line at most."""

    def __init__(self, folder, process):
        self.process = process
        path = os.path.join(folder, process + '.jsonl')
        # a process that is started again under its name goes on behind the numbers of its first life
        self.number = sum(1 for _ in open(path, 'rb')) if os.path.exists(path) else 0
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def line(self, **fields):
        os.write(self.file, (json.dumps(fields, separators=(',', ':'), default=str) + '\n').encode())

    def event(self, op, e, f, t=None, **fields):
        t = time.monotonic_ns() if t is None else t
        self.line(t=t, p=self.process, op=op, e=e, f=f, **fields)
        return t

    def invoke(self, f, **arguments):
        """The number of the operation, and when it was written down: before anything is sent."""
        self.number += 1
        return self.number, self.event(self.number, 'invoke', f, **arguments)


def lsn_number(lsn):
    """'16/B374D848' as a number, as which LSNs compare. A number is one already."""
    if isinstance(lsn, int):
        return lsn
    high, low = lsn.split('/')
    return int(high, 16) << 32 | int(low, 16)


class Op:
    """One operation: its invocation and how it went. What its lines say beside that is in `values`, results over arguments."""

    __slots__ = ('p', 'op', 'f', 'e', 't0', 't1', 'values', 'lsn', 'tli')

    def __init__(self, p, op, f, t0, values):
        self.p, self.op, self.f, self.t0, self.values = p, op, f, t0, values
        self.e, self.t1, self.lsn, self.tli = 'info', NEVER, None, None

    def __getitem__(self, name):
        return self.values[name]

    def get(self, name, otherwise=None):
        return self.values.get(name, otherwise)

    def __repr__(self):
        return f'{self.p}#{self.op} {self.f} {self.e} [{self.t0}, {self.t1}] {json.dumps(self.values, default=str)}'


class Outage:
    """From when until when no server accepted writes. Of a promotion: which timeline it began, and where."""

    def __init__(self, down, up, fault, tli=None, switch_lsn=None):
        self.down, self.up, self.fault, self.tli, self.switch_lsn = down, up, fault, tli, switch_lsn


ENVELOPE = frozenset(('t', 'p', 'op', 'e', 'f', 'lsn', 'tli'))


class History:
    """All of it. `ops` by function, each list in the order of invocation; `final` the rows of each table."""

    def __init__(self, lines=(), faults=(), wal=(), final=()):
        self.ops = collections.defaultdict(list)
        self.aliens = []
        self.broken = []
        pending = {}
        for line in lines:
            self._add(line, pending)
        for ops in self.ops.values():
            ops.sort(key=lambda op: op.t0)
        self.faults = sorted(faults, key=lambda line: line['t'])
        self.outages = sorted((Outage(line['down'], line['up'], line['f'], line.get('tli'),
                                      lsn_number(line['switch_lsn']) if line.get('switch_lsn') is not None else None)
                               for line in self.faults if line.get('up') is not None), key=lambda outage: outage.down)
        self.promotions = [outage for outage in self.outages if outage.tli is not None]
        self.wal = collections.defaultdict(list)
        for line in sorted(wal, key=lambda line: line['t']):
            self.wal[line['tli']].append((line['t'], lsn_number(line['lsn'])))
        self.final = collections.defaultdict(list)
        for row in final:
            self.final[row['table']].append(row)

    def _add(self, line, pending):
        e = line['e']
        if e == 'alien':
            self.aliens.append(line)
            return
        key = line['p'], line['op']
        values = {name: value for name, value in line.items() if name not in ENVELOPE}
        if e == 'invoke':
            op = pending[key] = Op(line['p'], line['op'], line['f'], line['t'], values)
            self.ops[line['f']].append(op)
            return
        op = pending.pop(key, None)
        if op is None:
            self.broken.append(line)
            return
        op.e = e
        if e != 'info':                     # what is not known may still happen
            op.t1 = line['t']
        op.values.update(values)
        if line.get('lsn') is not None:
            op.lsn, op.tli = lsn_number(line['lsn']), line['tli']

    def some(self, *functions, e='ok'):
        """Operations of these functions that ended so, in the order of invocation."""
        ops = [op for f in functions for op in self.ops.get(f, ()) if op.e == e]
        if len(functions) > 1:
            ops.sort(key=lambda op: op.t0)
        return ops

    def lost_by(self, op):
        """The first promotion that may have cut off the commit of `op`, or None: what is known to have happened is there for good."""
        for promotion in self.promotions:
            if op.tli is not None:
                if op.tli >= promotion.tli:
                    continue
                bound = op.lsn
            elif op.t0 >= promotion.up:
                continue
            else:
                bound = self.wal_after(op.t1, promotion)
            if bound > promotion.switch_lsn:
                return promotion
        return None

    def survives(self, op):
        return self.lost_by(op) is None

    def wal_after(self, t, promotion):
        """Where WAL was at the first look at `t` or later, on the timeline that the promotion ended: what was committed by `t` is before."""
        if t >= promotion.down:
            return NEVER
        older = [tli for tli in self.wal if tli < promotion.tli]
        samples = self.wal[max(older)] if older else []
        place = bisect.bisect_left(samples, (t,))
        return samples[place][1] if place < len(samples) else NEVER

    def wal_time(self, promotion):
        """When WAL was known to be no further than where the promotion cut it off: what was in it by then is there."""
        older = [tli for tli in self.wal if tli < promotion.tli]
        samples = self.wal[max(older)] if older else []
        place = bisect.bisect_right([lsn for _, lsn in samples], promotion.switch_lsn)
        return samples[place - 1][0] if place else 0


def read_lines(path):
    """The objects of a file. Its last line may be cut off: the process was killed while it wrote."""
    with open(path, encoding='utf-8') as file:
        for text in file:
            if not text.endswith('\n'):
                return
            yield json.loads(text)


def read(folder):
    """The history in a folder."""
    def of(name):
        path = os.path.join(folder, name + '.jsonl')
        return read_lines(path) if os.path.exists(path) else ()

    def of_processes():
        for name in sorted(os.listdir(folder)):
            if name.endswith('.jsonl') and name[:-len('.jsonl')] not in (FAULTS, WAL, FINAL):
                yield from read_lines(os.path.join(folder, name))

    return History(of_processes(), of(FAULTS), of(WAL), of(FINAL))
