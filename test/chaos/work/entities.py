#!/usr/bin/env python3
"""Calls of entities at each durability, and what a client can find out about those whose reply was lost. See client.py."""
import collections
import time
import uuid

from psycopg.types.json import Jsonb

from client import Client

TYPES = ('strict', 'interval', 'on_stop')
LEFT_ALONE = 3                      # from this one on nobody asks for more than the type promises: nothing but time writes them
KEPT = 200                          # receipts that are asked about again after a failover
UNDONE = 0.03                       # of the calls
AGAIN = 0.1                         # of the requests that were answered


class Entities(Client):
    # of a relaxed entity whose row another server's life has written; of what is undone
    expected = frozenset(('RV003', '22012'))

    def __init__(self):
        super().__init__()
        self.asked = None                                   # a request_id whose outcome is not known
        self.unknown = None                                 # a receipt whose transaction's outcome is not known
        self.receipts = collections.deque(maxlen=KEPT)
        self.timeline = None

    def begun(self):
        if self.unknown is not None:
            unknown, self.unknown = self.unknown, None
            self.ask_about(*unknown)
        if self.asked is not None:
            self.request(*self.asked)
        row = self.quietly("SELECT ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int")
        if row is not None and row[0] != self.timeline:
            if self.timeline is not None:
                for receipt in list(self.receipts):
                    self.ask_about(*receipt)
            self.timeline = row[0]

    def step(self):
        shape = self.random.random()
        type_ = self.random.choice(TYPES)
        number = self.random.randint(0, 5)
        id_ = f'{type_} {number}'
        if number >= LEFT_ALONE:
            if shape < 0.9:
                self.call(type_, id_, plain=True)
            else:
                self.read(type_, id_)
        elif shape < 0.7:
            self.call(type_, id_)
        elif shape < 0.85:
            request = type_, id_, str(uuid.UUID(int=self.random.getrandbits(128), version=4)), time.monotonic_ns()
            self.request(*request)
            if self.asked is None and self.random.random() < AGAIN:
                self.request(*request)
        elif shape < 0.95:
            self.read(type_, id_)
        elif shape < 0.98:
            self.flush(type_, id_)
        elif shape < 0.99:
            self.stop(type_, id_)
        elif self.receipts:
            self.ask_about(*self.random.choice(self.receipts))

    def message(self, type_, tag):
        return Jsonb({'tag': tag, 'row': type_} if type_ == 'strict' else {'tag': tag})

    def call(self, type_, id_, plain=False):
        """In a transaction, so that there is a receipt before it commits. Some relaxed ones are asked to be strict, or write beside; some are undone."""
        relaxed = type_ != 'strict' and not plain
        durability = 'strict' if relaxed and self.random.random() < 0.1 else None
        beside = relaxed and self.random.random() < 0.05
        with self.unknown_after(self.transaction('call', type=type_, id=id_, durability=durability)) as op:
            tag = f'{self.name}#{op.number}'
            message = self.message('strict' if beside else type_, tag)
            if beside:
                message.obj['row'] = type_
            reply = self.value('SELECT revenant.call(%s, %s, %s, %s)', type_, id_, message, durability)
            version, durable, xid, lsn, timeline = self.row('SELECT version, durable, xid::text, lsn::text, timeline FROM revenant.receipt()')
            op.says(tag=tag, n=reply['n'], digest=reply['digest'], version=version, durable=durable, row='row' in message.obj)
            op.receipt = (tag, type_, id_, reply['n'], xid, lsn, timeline) if xid is not None else None
            if op.receipt is not None and 'row' in message.obj:
                self.receipts.append(op.receipt)
            if self.random.random() < UNDONE:
                self.conn.execute('SELECT 1 / 0')
        if op.sqlstate == '22012' and op.receipt is not None:
            self.ask_about(*op.receipt)

    def unknown_after(self, transaction):
        """Remembers the receipt of a transaction whose connection breaks at COMMIT."""
        return Remembering(self, transaction)

    def request(self, type_, id_, request, first):
        """The same again until there is an answer: once it has happened it happens no more."""
        self.asked = type_, id_, request, first
        tag = f'request {request}'
        with self.operation('request', type=type_, id=id_, req=request, first=first, tag=tag) as op:
            reply = self.value('SELECT revenant.call(%s, %s, %s, request_id => %s)', type_, id_, Jsonb({'tag': tag, 'row': type_}), request)
            op.says(n=reply['n'], digest=reply['digest'])
        if op.ok:
            self.asked = None

    def ask_about(self, tag, type_, id_, n, xid, lsn, timeline):
        status = 'in progress'
        for _ in range(100):
            with self.operation('receipt_status', type=type_, id=id_, tag=tag, n=n, xid=xid, at=lsn, of=timeline) as op:
                status = self.value('SELECT revenant.receipt_status(%s::xid8, %s::pg_lsn, %s)', xid, lsn, timeline)
                op.says(status=status)
            if not op.ok or status != 'in progress':
                return
            time.sleep(0.1)

    def read(self, type_, id_):
        with self.operation('read', type=type_, id=id_) as op:
            row = self.row('SELECT version, state FROM revenant.read_entity(%s, %s)', type_, id_)
            if row[0] is not None:
                op.says(version=row[0], **row[1])

    def flush(self, type_, id_):
        with self.operation('flush', type=type_, id=id_) as op:
            op.says(flushed=self.value('SELECT revenant.flush_entities(%s, %s)', type_, id_))

    def stop(self, type_, id_):
        with self.operation('stop', type=type_, id=id_) as op:
            op.says(stopped=self.value('SELECT revenant.stop_entity(%s, %s)', type_, id_))


class Remembering:
    """Around a transaction: a receipt that was fetched in one that then is neither known to have happened nor not is asked about later."""

    def __init__(self, client, transaction):
        self.client = client
        self.transaction = transaction

    def __enter__(self):
        self.op = self.transaction.__enter__()
        self.op.receipt = None
        return self.op

    def __exit__(self, *error):
        try:
            return self.transaction.__exit__(*error)
        finally:
            if self.op.e == 'info':
                self.client.unknown = self.op.receipt


if __name__ == '__main__':
    Entities().run()
