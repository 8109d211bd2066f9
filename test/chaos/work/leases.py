#!/usr/bin/env python3
"""Leases in every scope, on the same few names, and what is written by them. See client.py."""
import time
import uuid

from client import Client, Lost

NAMES = [f'lease {n}' for n in range(8)]
LATE = frozenset(('RV001', 'RV002'))


class Leases(Client):
    """Through the pooler: those that need no session."""

    expected = LATE

    def __init__(self):
        super().__init__()
        self.asked = None           # an acquire whose outcome is not known, with its request_id

    def begun(self):
        self.token = None
        if self.asked is not None:
            asked, self.asked = self.asked, None
            self.hold_ttl(*asked)

    def step(self):
        shape = self.random.random()
        if shape < 0.45:
            self.hold_ttl(*self.ttl_request())
        elif shape < 0.7 and not self.pooled:
            self.hold_session()
        else:
            self.in_transaction()

    def names(self):
        """Mostly one; else a set."""
        return self.random.sample(NAMES, 1 if self.random.random() < 0.75 else self.random.randint(2, 3))

    # -----------------------------------------------------------------
    # ttl
    # -----------------------------------------------------------------

    def ttl_request(self):
        request = str(uuid.UUID(int=self.random.getrandbits(128), version=4)) if self.random.random() < 0.5 else None
        arguments = {'leases': self.names(), 'ttl': self.random.choice((1.0, 2.0, 5.0)), 'bound': self.random.random() < 0.15 and not self.pooled, 'req': request}
        if self.random.random() < 0.1:
            arguments['delay'] = 0.3
        how = self.random.choice(('try', 'wait', 'wait', 'await'))
        return how, arguments, time.monotonic_ns()

    def hold_ttl(self, how, arguments, first):
        """`first` is from when on the server may have granted it: when it was first asked for."""
        leases, ttl = arguments['leases'], arguments['ttl']
        values = {'ttl': ttl, 'holder': self.name, 'bound': arguments['bound'], 'delay': arguments.get('delay', 0), 'req': arguments['req']}
        if arguments['req'] is not None:
            self.asked = how, arguments, first
        with self.operation('acquire', scope='ttl', how=how, first=first, **arguments) as op:
            op.says(token=self.acquire_ttl(how, leases, values))
        self.asked = None
        token = op.result.get('token')
        if not op.ok or token is None:
            return
        renewed = op.t0
        for _ in range(self.random.randint(0, 4)):
            time.sleep(self.random.expovariate(20) if self.random.random() < 0.95 else ttl * self.random.uniform(0.7, 1.4))
            if time.monotonic_ns() > renewed + ttl / 3 * 1e9:
                with self.operation('renew', leases=leases, token=token, ttl=ttl) as op:
                    renewal = 'renew(%s, %s)' if len(leases) == 1 else 'renew_all(%s, %s)'
                    held = self.value('SELECT revenant.' + renewal, leases[0] if len(leases) == 1 else leases, token) is not None
                    op.says(held=held)
                if not op.ok or not held:
                    return
                renewed = op.t0
            if not self.effect('ttl', leases, token):
                return
        if self.random.random() < 0.85:
            self.release('ttl', leases, token)

    def acquire_ttl(self, how, leases, values):
        single = len(leases) == 1
        values['lease'] = leases[0] if single else leases
        options = "make_interval(secs => %(ttl)s), %(holder)s, bound => %(bound)s, lock_delay => make_interval(secs => %(delay)s), request_id => %(req)s"
        if how == 'await' and single:
            return self.conn.execute(
                "CALL revenant.await_lease(%(lease)s, NULL, make_interval(secs => %(ttl)s), %(holder)s, bound => %(bound)s, "
                "lock_delay => make_interval(secs => %(delay)s), request_id => %(req)s, wait => '3 s')", values).fetchone()[0]
        name = ('try_acquire' if how == 'try' else 'acquire') + ('' if single else '_all')
        wait = '' if how == 'try' else ", wait => '3 s'"
        return self.conn.execute(f'SELECT revenant.{name}(%(lease)s, {options}{wait})', values).fetchone()[0]

    def release(self, scope, leases, token):
        hold_off = 0.2 if scope == 'ttl' and len(leases) == 1 and self.random.random() < 0.05 else None
        with self.operation('release', scope=scope, leases=leases, token=token, hold_off=hold_off) as op:
            if len(leases) > 1:
                op.says(released=self.value('SELECT revenant.release_all(%s, %s)', leases, token) > 0)
            elif hold_off is not None:
                op.says(released=self.value('SELECT revenant.release(%s, %s, hold_off => make_interval(secs => %s))', leases[0], token, hold_off))
            else:
                op.says(released=self.value('SELECT revenant.release(%s, %s)', leases[0], token))

    # -----------------------------------------------------------------
    # What is written by a lease
    # -----------------------------------------------------------------

    def effect(self, scope, leases, token, shared=False):
        """A fenced transaction: one row for each name, in its order. True: committed."""
        with self.transaction('effect', scope=scope, leases=leases, token=token, shared=shared) as op:
            for lease in sorted(leases):
                self.conn.execute('SELECT revenant.fence(%s, %s)', (lease, token))
            op.says(tf=time.monotonic_ns())
            self.write(op, leases, token, shared)
        return op.ok

    def write(self, op, leases, token, shared):
        op.says(n=[self.value('SELECT chaos.effect(%s, %s, %s, %s, %s)', lease, token, shared, self.name, op.number) for lease in sorted(leases)])
        if self.random.random() < 0.1:
            time.sleep(self.random.expovariate(5))

    # -----------------------------------------------------------------
    # Session and transaction
    # -----------------------------------------------------------------

    def hold_session(self):
        leases = self.names()
        shared = self.random.random() < 0.4
        how = self.random.choice(('try', 'wait'))
        name = ('try_acquire' if how == 'try' else 'acquire') + ('' if len(leases) == 1 else '_all')
        wait = '' if how == 'try' else ", wait => '3 s'"
        with self.operation('acquire', scope='session', how=how, leases=leases, shared=shared) as op:
            op.says(token=self.value(f'SELECT revenant.{name}(%s, holder => %s, shared => %s{wait})',
                                     leases[0] if len(leases) == 1 else leases, self.name, shared))
        token = op.result.get('token')
        if not op.ok or token is None:
            return
        for _ in range(self.random.randint(0, 4)):
            time.sleep(self.random.expovariate(20))
            if not self.effect('session', leases, token, shared):
                break
        self.release('session', leases, token)
        if self.value_or_lost('SELECT count(*) FROM unnest(%s::text[]) AS lease WHERE revenant.held_token(lease) IS NOT NULL', leases) > 0:
            # an error before the release: whatever is left goes with the session
            raise Lost

    def value_or_lost(self, query, *arguments):
        row = self.quietly(query, *arguments)
        if row is None:
            raise Lost
        return row[0]

    def in_transaction(self):
        leases = self.names()
        shared = self.random.random() < 0.3
        how = self.random.choice(('try', 'wait'))
        name = ('try_acquire' if how == 'try' else 'acquire') + ('_xact' if len(leases) == 1 else '_all_xact')
        wait = '' if how == 'try' else ", wait => '3 s'"
        with self.transaction('xact', leases=leases, how=how, shared=shared) as op:
            token = self.value(f'SELECT revenant.{name}(%s, holder => %s, shared => %s{wait})',
                               leases[0] if len(leases) == 1 else leases, self.name, shared)
            op.says(token=token, tg=time.monotonic_ns())
            if token is not None:
                self.write(op, leases, token, shared)


if __name__ == '__main__':
    Leases().run()
