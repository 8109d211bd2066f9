#!/usr/bin/env python3
"""An election loop: claim, refresh and work while leading, abdicate now and then. See client.py."""
import time
import uuid

from client import Client

ELECTIONS = ('election 0', 'election 1')


class Elections(Client):
    expected = frozenset(('RV001', 'RV002'))

    def __init__(self):
        super().__init__()
        self.election = self.random.choice(ELECTIONS)
        self.asked = None           # (request_id, since when) of a claim whose outcome is not known
        self.token = None
        self.next = 0               # when to refresh

    def step(self):
        if self.token is None:
            self.claim()
        elif time.monotonic_ns() >= self.next:
            self.refresh()
        else:
            self.work()

    def claim(self):
        ttl = self.random.choice((1.0, 2.0, 4.0))
        request, first, ttl = self.asked or (str(uuid.UUID(int=self.random.getrandbits(128), version=4)), time.monotonic_ns(), ttl)
        self.asked = request, first, ttl
        with self.operation('claim', leases=[self.election], ttl=ttl, req=request, first=first) as op:
            leads, token, leader, after = self.row(
                'SELECT is_leader, token, leader, extract(epoch FROM refresh_after)::float8 FROM revenant.claim(%s, %s, make_interval(secs => %s), %s)',
                self.election, self.name, ttl, request)
            op.says(token=token if leads else None, leader=leader)
        if op.e == 'ok':
            self.asked = None
        if op.ok and leads:
            self.token, self.next = token, op.t0 + after * 1e9
        elif op.ok:
            self.await_change()

    def await_change(self):
        """Told at once of a vacancy, or not: that is looked at by those who wait."""
        self.quietly("CALL revenant.await_change(%s, NULL, '1 s')", self.election)
        time.sleep(self.random.uniform(0, 0.3))

    def refresh(self):
        with self.operation('refresh', leases=[self.election], token=self.token) as op:
            leads, after = self.row(
                'SELECT is_leader, extract(epoch FROM refresh_after)::float8 FROM revenant.refresh(%s, %s)', self.election, self.token)
            op.says(held=leads)
        if not op.ok:
            return
        if not leads:
            self.token = None
        else:
            self.next = op.t0 + after * 1e9

    def work(self):
        with self.transaction('effect', scope='ttl', leases=[self.election], token=self.token, shared=False) as op:
            self.conn.execute('SELECT revenant.fence(%s, %s)', (self.election, self.token))
            op.says(tf=time.monotonic_ns(), n=[self.value('SELECT chaos.effect(%s, %s, false, %s, %s)', self.election, self.token, self.name, op.number)])
        if op.sqlstate in self.expected:
            self.token = None
        elif self.random.random() < 0.02:
            self.abdicate()
        elif self.random.random() < 0.01:
            time.sleep(self.random.uniform(1, 5))       # too slow for its ttl

    def abdicate(self):
        with self.operation('abdicate', leases=[self.election], token=self.token) as op:
            op.says(released=self.value('SELECT revenant.abdicate(%s, %s)', self.election, self.token))
        if op.ok:
            self.token = None


if __name__ == '__main__':
    Elections().run()
