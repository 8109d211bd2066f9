"""What all clients share: a connection that comes back, and operations that are written down.

    <kind>.py --name NAME --seed N --history DIR --dsn DSN [--dsn-direct DSN]

A client runs until SIGTERM. DSN may lead through a pooler in transaction mode; what needs a session uses the other one.
"""
import argparse
import contextlib
import os
import random
import signal
import sys
import time

import psycopg

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import history  # noqa: E402

# What any statement may end with while servers are killed, full, or change their roles. Whether there was a reason is the checker's question.
TRANSIENT = frozenset((
    '08000', '08001', '08003', '08006', '08P01', '57P01', '57P02', '57P03', '57P05', '25006', '25P03', '57014', '55P03',
    '53000', '53100', '53200', '53300', '58030', '55000'))


class Lost(Exception):
    """The connection is gone. What was under way is written down already."""


class Operation:
    """One that is under way. `result` is what an ok will say; `open` whether it may have happened already."""

    def __init__(self, number, t0):
        self.number = number
        self.t0 = t0
        self.open = True
        self.result = {}
        self.e = None
        self.sqlstate = None
        self.error = None

    def says(self, **fields):
        self.result.update(fields)

    @property
    def ok(self):
        return self.e == 'ok'


class Client:
    """A kind of client has `step`, one round of its work, and the errors that its calls promise."""

    direct = False              # needs a session of its own
    expected = frozenset()
    pause = 0.03                # between steps, on average

    def __init__(self):
        parser = argparse.ArgumentParser()
        parser.add_argument('--name', required=True)
        parser.add_argument('--seed', type=int, required=True)
        parser.add_argument('--history', required=True)
        parser.add_argument('--dsn', required=True)
        parser.add_argument('--dsn-direct')
        options = parser.parse_args()
        self.name = options.name
        self.pooled = options.dsn_direct is not None and not self.direct
        self.dsn = options.dsn_direct if self.direct and options.dsn_direct else options.dsn
        self.random = random.Random(f'{options.name} {options.seed}')
        self.writer = history.Writer(options.history, options.name)
        self.stopping = False
        self.conn = None
        self.connections = 0
        signal.signal(signal.SIGTERM, self.on_term)
        signal.signal(signal.SIGINT, self.on_term)

    def on_term(self, *_):
        self.stopping = True

    # -----------------------------------------------------------------
    # The connection
    # -----------------------------------------------------------------

    def connect(self):
        """False: not now."""
        try:
            self.conn = psycopg.connect(self.dsn, autocommit=True, prepare_threshold=None)
        except psycopg.Error:
            return False
        self.connections += 1
        return True

    def run(self):
        wait = 0.05
        while not self.stopping:
            if not self.connect():
                time.sleep(wait * self.random.uniform(0.5, 1.5))
                wait = min(wait * 2, 1)
                continue
            wait = 0.05
            try:
                self.begun()
                while not self.stopping:
                    self.step()
                    time.sleep(self.random.expovariate(1 / self.pause))
            except Lost:
                time.sleep(0.05)
            finally:
                with contextlib.suppress(psycopg.Error):
                    self.conn.close()

    def begun(self):
        """There is a new connection."""

    def step(self):
        raise NotImplementedError

    # -----------------------------------------------------------------
    # Statements
    # -----------------------------------------------------------------

    def row(self, query, *arguments):
        return self.conn.execute(query, arguments).fetchone()

    def value(self, query, *arguments):
        return self.row(query, *arguments)[0]

    def rows(self, query, *arguments):
        return self.conn.execute(query, arguments).fetchall()

    # -----------------------------------------------------------------
    # Operations
    # -----------------------------------------------------------------

    @contextlib.contextmanager
    def operation(self, f, **arguments):
        """
        Writes down what the block does. An error of the server's ends the block and is in the operation: the caller looks at `ok`. Lost is raised when the
        connection is gone. `c` numbers connections: what is bound to a session is over when that ended.
        """
        number, t0 = self.writer.invoke(f, c=self.connections, **arguments)
        op = Operation(number, t0)
        try:
            yield op
        except psycopg.Error as error:
            self.failed(f, op, error)
            return
        t1 = time.monotonic_ns()
        op.e = 'ok'
        point = {}
        try:
            if not self.pooled:
                point['lsn'], point['tli'] = self.row(
                    "SELECT lsn::text, ('x' || left(pg_walfile_name(lsn), 8))::bit(32)::int FROM pg_current_wal_insert_lsn() AS lsn")
        except psycopg.Error:
            point.clear()
        self.writer.event(number, 'ok', f, t=t1, **point, **op.result)
        if not self.pooled and not point:
            raise Lost

    def failed(self, f, op, error):
        op.sqlstate, op.error = error.sqlstate, str(error)
        fatal = error.diag is not None and error.diag.severity_nonlocalized in ('FATAL', 'PANIC')
        gone = self.conn.closed or fatal or error.sqlstate is None
        op.e = 'info' if gone and op.open else 'fail'
        self.writer.event(op.number, op.e, f, sqlstate=error.sqlstate, message=op.error[:300], **op.result)
        if error.sqlstate is not None and error.sqlstate not in TRANSIENT and error.sqlstate not in self.expected:
            self.writer.event(op.number, 'alien', f, sqlstate=error.sqlstate, message=op.error[:2000])
        if gone:
            raise Lost from error
        if self.conn.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            self.quietly('ROLLBACK')
        if error.sqlstate == '25006':           # a server that was demoted, or is not promoted yet
            raise Lost from error

    def steps_done(self, plan, split, known):
        """
        How far a split is, in a transaction that has fenced it. Through a pooler a failover may have taken back what was committed, without that a connection broke: what
        a worker remembers may be ahead of what is there.
        """
        return self.value('SELECT count(*) FROM chaos.step WHERE plan = %s AND split = %s', plan, split) if self.pooled else known

    def quietly(self, query, *arguments):
        """A statement that is no operation. Its row, or None if it failed."""
        try:
            cursor = self.conn.execute(query, arguments)
            return cursor.fetchone() if cursor.description else None
        except psycopg.Error as error:
            if self.conn.closed or self.conn.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                raise Lost from error
            return None

    @contextlib.contextmanager
    def transaction(self, f, **arguments):
        """An operation that is one transaction. Until COMMIT is sent it has not happened for sure."""
        with self.operation(f, **arguments) as op:
            op.open = False
            self.conn.execute('BEGIN')
            yield op
            if self.conn.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS:
                op.says(tc=time.monotonic_ns())         # until then it held what it had for its transaction
                op.open = True
                self.conn.execute('COMMIT')
