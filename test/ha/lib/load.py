#!/usr/bin/env python3
"""A client of the servers, which follows the primary and goes on whatever happens, until SIGTERM.

    load.py KIND NAME DSN HISTORY SEED

Writes to HISTORY/NAME.jsonl what it asks for and what it is answered, a JSON object a line: "invoke" before a statement is sent, then "ok" when its commit came back,
"fail" when it is known not to have happened, or "info" when the connection broke and nobody knows. "t" is the monotonic clock in seconds, the same for all processes.
"""
import json
import os
import random
import signal
import sys
import time
import uuid

import psycopg

LATE = ('RV001', 'RV002')
# Of a server that is going down, coming up, or is not the primary any more.
ELSEWHERE = ('25006', '57P01', '57P02', '57P03', '57P05')


class Stop(Exception):
    """SIGTERM came."""


class Alien(Exception):
    """An error that nothing explains."""


class Client:
    def __init__(self, name, dsn, history, seed):
        self.name = name
        self.dsn = dsn
        self.file = os.open(f'{history}/{name}.jsonl', os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.random = random.Random(f'{seed} {name}')
        self.connection = None
        self.number = 0
        self.over = False
        signal.signal(signal.SIGTERM, self.terminate)

    def terminate(self, *_):
        self.over = True

    def note(self, event, what, **more):
        line = {'t': time.monotonic(), 'wall': time.time(), 'p': self.name, 'op': self.number, 'e': event, 'f': what, **more}
        os.write(self.file, (json.dumps(line) + '\n').encode())

    def connected(self):
        while self.connection is None or self.connection.closed:
            if self.over:
                raise Stop
            try:
                self.connection = psycopg.connect(self.dsn, autocommit=True)
                self.note('ok', 'connect')
            except psycopg.OperationalError:
                time.sleep(0.05)
        return self.connection

    def once(self, what, work, allowed=(), **about):
        """Does work(connection). Returns its result; None, if it failed with an SQLSTATE that is allowed, or nobody knows whether it happened."""
        connection = self.connected()
        self.number += 1
        self.note('invoke', what, **about)
        return self.attempt(connection, what, work, allowed, about)[1]

    def surely(self, what, work, **about):
        """Does work(connection), which may be repeated (it has a request_id), until its outcome is known. The invocation is that of the first attempt."""
        self.number += 1
        self.note('invoke', what, **about)
        while True:
            known, result = self.attempt(self.connected(), what, work, (), about)
            if known:
                return result

    def attempt(self, connection, what, work, allowed, about):
        """(whether the outcome is known, the result)"""
        try:
            result = work(connection)
        except psycopg.Error as error:
            if error.sqlstate in allowed:
                self.note('fail', what, sqlstate=error.sqlstate, **about)
                return True, None
            broken = connection.closed or connection.broken
            connection.close()
            if broken or error.sqlstate in ELSEWHERE:
                self.note('info', what, sqlstate=error.sqlstate, **about)
                return False, None
            self.note('alien', what, sqlstate=error.sqlstate, message=str(error), **about)
            raise Alien from error
        self.note('ok', what, result=result, **about)
        return True, result

    def run(self):
        try:
            while not self.over:
                self.step()
        except Stop:
            pass


def value(connection, query, *arguments):
    row = connection.execute(query, arguments).fetchone()
    return None if row is None else row[0]


class Calls(Client):
    """Strict calls, each repeated with its request_id until it is answered."""

    def step(self):
        entity = f'{self.name} {self.random.randrange(2)}'
        request = uuid.uuid4()
        self.surely('call', lambda c: value(c, "SELECT revenant.call('counter', %s, '{}', request_id => %s)", entity, request), id=entity)
        time.sleep(0.03)


class Sends(Client):
    """Messages in order, also repeated; and timers, which have no request_id and are sent once."""

    def step(self):
        box = f'box {self.random.randrange(2)}'
        message = json.dumps({'from': self.name, 'n': self.number})
        if self.random.random() < 0.1:
            self.once('send_after', lambda c: value(c, "SELECT revenant.send_after('counter', %s, %s, '0.5 s')", box, message), id=box, n=self.number)
        else:
            request = uuid.uuid4()
            self.surely('send', lambda c: value(c, "SELECT revenant.send('counter', %s, %s, %s)", box, message, request), id=box, n=self.number)
        time.sleep(0.05)


class Holder(Client):
    """Takes a ttl lease, writes under it, renews it, gives it back; and tries what it had before."""
    lease, ttl = 'brief', 3.0

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.token = None
        self.until = self.renew_at = 0.0        # by its own clock, from before it sent the request
        self.left = 0
        self.old = []

    def acquire(self):
        request = uuid.uuid4()
        sent = time.monotonic()
        token = self.surely('acquire', lambda c: value(c, "SELECT revenant.acquire(%s, make_interval(secs => %s), holder => %s, wait => '0.5 s', request_id => %s)",
                                                       self.lease, self.ttl, self.name, request), lease=self.lease)
        return token, sent

    def renew(self):
        """Whether it still holds it; None: nobody knows."""
        self.number += 1
        connection = self.connected()
        sent = time.monotonic()
        self.note('invoke', 'renew', lease=self.lease, token=self.token)
        known, renewed = self.attempt(connection, 'renew', lambda c: value(c, 'SELECT revenant.renew(%s, %s) IS NOT NULL', self.lease, self.token), (),
                                      {'lease': self.lease, 'token': self.token, 'until': sent + self.ttl})
        if known and renewed:
            self.until = sent + self.ttl
            self.renew_at = sent + self.ttl / 3
        return renewed if known else None

    def release(self):
        self.once('release', lambda c: value(c, 'SELECT revenant.release(%s, %s)', self.lease, self.token), lease=self.lease, token=self.token)

    def write(self):
        written = str(uuid.uuid4())

        def work(connection):
            with connection.transaction():
                connection.execute('SELECT revenant.fence(%s, %s)', (self.lease, self.token))
                connection.execute('INSERT INTO public.ledger (lease, token, id) VALUES (%s, %s, %s)', (self.lease, self.token, written))
            return True

        self.number += 1
        self.note('invoke', 'write', lease=self.lease, token=self.token, id=written)
        known, result = self.attempt(self.connected(), 'write', work, LATE, {'lease': self.lease, 'token': self.token, 'id': written})
        return result is not None or not known

    def drop(self):
        self.note('ok', 'drop', lease=self.lease, token=self.token)
        self.old.append(self.token)
        self.token = None

    def step(self):
        if self.token is None:
            token, sent = self.acquire()
            if token is None:
                return
            self.token, self.until, self.renew_at = token, sent + self.ttl, sent + self.ttl / 3
            self.note('ok', 'hold', lease=self.lease, token=token, until=self.until)
            self.left = self.random.randrange(20, 200)
            self.try_old()
        elif time.monotonic() > self.renew_at:
            if self.renew() is False:           # if nobody knows: it is asked again
                self.drop()
        elif not self.write():
            self.drop()
        elif self.left == 0:
            self.release()
            self.drop()
        else:
            self.left -= 1
            time.sleep(0.03)

    def try_old(self):
        """What this client had before must not be worth anything."""
        for token in self.old[-2:]:
            def work(connection, token=token):
                with connection.transaction():
                    connection.execute('SELECT revenant.fence(%s, %s)', (self.lease, token))
                return True
            self.once('old fence', work, LATE, lease=self.lease, token=token)
            self.once('old renew', lambda c, token=token: value(c, 'SELECT revenant.renew(%s, %s) IS NOT NULL', self.lease, token), token=token)
            self.once('old release', lambda c, token=token: value(c, 'SELECT revenant.release(%s, %s)', self.lease, token), token=token)


class LongHolder(Holder):
    """One whose ttl is longer than any failover takes."""
    lease, ttl = 'long', 60.0


class Session(Holder):
    """Holds in session scope: what it has ends with its connection."""
    lease = 'session'

    def acquire(self):
        connection = self.connected()
        self.number += 1
        self.note('invoke', 'acquire', lease=self.lease)
        # not repeated: a hold of a lost session is gone
        _, token = self.attempt(connection, 'acquire', lambda c: value(c, "SELECT revenant.acquire(%s, holder => %s, wait => '0.5 s')", self.lease, self.name), (),
                                {'lease': self.lease})
        return token, time.monotonic()

    def renew(self):
        return None

    def step(self):
        self.renew_at = float('inf')
        if self.token is not None and (self.connection is None or self.connection.closed):
            self.drop()
        super().step()
        if self.connection is None or self.connection.closed:
            self.until = 0.0


class Candidate(Holder):
    """Stands for election."""
    lease, ttl = 'election', 4.0

    def acquire(self):
        request = uuid.uuid4()
        sent = time.monotonic()
        token = self.surely('acquire', lambda c: value(c, 'SELECT token FROM revenant.claim(%s, %s, make_interval(secs => %s), %s) WHERE is_leader',
                                                       self.lease, self.name, self.ttl, request), lease=self.lease)
        if token is None:
            time.sleep(0.2)
        return token, sent

    def release(self):
        self.once('release', lambda c: value(c, 'SELECT revenant.abdicate(%s, %s)', self.lease, self.token), lease=self.lease, token=self.token)


class Planner(Client):
    """Leads the plan, and publishes a few splits at a time; a publication whose outcome is not known is made again."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.generation = None
        self.serial = 0
        self.pending = None

    def step(self):
        if self.generation is None:
            request = uuid.uuid4()
            self.generation = self.surely('lead', lambda c: value(c, "SELECT revenant.lead_plan('work', %s, '20 s', request_id => %s)", self.name, request))
            if self.generation is None:
                time.sleep(0.2)
            return
        if self.pending is None:
            self.pending = [f'{self.name} {self.serial + i}' for i in range(3)]
            self.serial += 3
        splits = json.dumps([{'id': split} for split in self.pending])
        published = self.once('publish', lambda c: value(c, "SELECT outcome FROM revenant.publish('work', %s, %s)", self.generation, splits), LATE,
                              splits=self.pending, token=self.generation)
        if published:
            self.pending = None
            time.sleep(0.5)
        elif self.connection is not None and not self.connection.closed:
            self.generation = None


class Puller(Client):
    """Does splits of the plan. One whose commit is not known is left alone: it is done, or expires."""

    def step(self):
        claimed = self.once('claim', lambda c: c.execute("SELECT split, epoch FROM revenant.claim_splits('work', %s, 2)", (self.name,)).fetchall())
        for split, epoch in claimed or ():
            def work(connection, split=split, epoch=epoch):
                with connection.transaction():
                    connection.execute('INSERT INTO public.split_effect (split, epoch) VALUES (%s, %s)', (split, epoch))
                    connection.execute("SELECT revenant.commit_split('work', %s, %s, done => true)", (split, epoch))
                return True
            self.once('split', work, LATE, split=split, epoch=epoch)
        if not claimed:
            time.sleep(0.2)


KINDS = {'calls': Calls, 'sends': Sends, 'holder': Holder, 'long': LongHolder, 'session': Session, 'candidate': Candidate, 'planner': Planner, 'puller': Puller}

if __name__ == '__main__':
    kind, *rest = sys.argv[1:]
    client = KINDS[kind](*rest)
    try:
        client.run()
    except Alien:
        sys.exit(3)
