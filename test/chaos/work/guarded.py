#!/usr/bin/env python3
"""A guarded table: writes with its fence, in each scope, and without, which must fail. See client.py."""
import time

from client import Client

LEASE = 'guarded'


class Guarded(Client):
    direct = True
    expected = frozenset(('RV001', 'RV002', 'RV008'))

    def step(self):
        shape = self.random.random()
        if shape < 0.3:
            self.unfenced()
        elif shape < 0.6:
            self.in_transaction()
        else:
            self.fenced()

    def unfenced(self):
        """Somebody else may hold it, which is no fence of ours."""
        with self.operation('unfenced') as op:
            how = self.random.choice((
                "INSERT INTO chaos.guarded (n, p, op) VALUES (0, %(p)s, %(op)s)", 'UPDATE chaos.guarded SET n = 0', 'DELETE FROM chaos.guarded',
                "WITH w AS (INSERT INTO chaos.guarded (n, p, op) VALUES (0, %(p)s, %(op)s) RETURNING n) SELECT n FROM w"))
            op.says(how=how)
            self.conn.execute(how, {'p': self.name, 'op': op.number})

    def in_transaction(self):
        """Holding it is an implicit fence."""
        with self.transaction('xact', leases=[LEASE], how='try', shared=False) as op:
            token = self.value('SELECT revenant.try_acquire_xact(%s, holder => %s)', LEASE, self.name)
            op.says(token=token, tg=time.monotonic_ns())
            if token is not None:
                self.write(op, token)

    def fenced(self):
        ttl = self.random.choice((1.0, 2.0))
        first = time.monotonic_ns()
        with self.operation('acquire', scope='ttl', how='wait', leases=[LEASE], ttl=ttl, first=first, bound=False) as op:
            op.says(token=self.value("SELECT revenant.acquire(%s, make_interval(secs => %s), %s, wait => '2 s')", LEASE, ttl, self.name))
        token = op.result.get('token')
        if not op.ok or token is None:
            return
        for _ in range(self.random.randint(1, 5)):
            time.sleep(self.random.expovariate(20) if self.random.random() < 0.95 else ttl * 1.2)
            with self.transaction('effect', scope='ttl', leases=[LEASE], token=token, shared=False) as op:
                self.conn.execute('SELECT revenant.fence(%s, %s)', (LEASE, token))
                op.says(tf=time.monotonic_ns())
                self.write(op, token)
            if not op.ok:
                return
        with self.operation('release', scope='ttl', leases=[LEASE], token=token, hold_off=None) as op:
            op.says(released=self.value('SELECT revenant.release(%s, %s)', LEASE, token))

    def write(self, op, token):
        n = self.value('SELECT chaos.effect(%s, %s, false, %s, %s)', LEASE, token, self.name, op.number)
        self.conn.execute('INSERT INTO chaos.guarded (n, token, p, op) VALUES (%s, %s, %s, %s)', (n, token, self.name, op.number))
        op.says(n=[n])


if __name__ == '__main__':
    Guarded().run()
