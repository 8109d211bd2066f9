#!/usr/bin/env python3
"""Planners of one plan: who leads publishes the next batch from the cursor on. See client.py."""
import time
import uuid

from psycopg.types.json import Jsonb

from client import Client

PLAN = 'pulled'
BATCH = 10
WAITING = 60            # splits that may wait; more are not planned


class Planners(Client):
    expected = frozenset(('RV001', 'RV002'))
    pause = 0.2

    def __init__(self):
        super().__init__()
        self.asked = None
        self.generation = None
        self.heard = 0

    def step(self):
        if self.generation is None:
            self.lead()
        elif time.monotonic_ns() > self.heard + 1e9:
            self.renew()
        else:
            self.publish()

    def lead(self):
        request, first = self.asked or (str(uuid.UUID(int=self.random.getrandbits(128), version=4)), time.monotonic_ns())
        self.asked = request, first
        with self.operation('lead', leases=['plan/' + PLAN], ttl=3.0, req=request, first=first) as op:
            op.says(token=self.value("SELECT revenant.lead_plan(%s, %s, '3 s', request_id => %s)", PLAN, self.name, request))
        if not op.ok:
            return
        self.asked = None
        self.generation, self.heard = op.result['token'], op.t0
        if self.generation is None:
            self.quietly("CALL revenant.await_change(%s, NULL, '1 s')", 'plan/' + PLAN)

    def renew(self):
        with self.operation('renew', leases=['plan/' + PLAN], token=self.generation, ttl=3.0) as op:
            held = self.value('SELECT revenant.renew(%s, %s)', 'plan/' + PLAN, self.generation) is not None
            op.says(held=held)
        if op.ok:
            self.heard = op.t0
            if not held:
                self.generation = None

    def publish(self):
        """Cursor, splits and the row of who published them are one transaction."""
        with self.transaction('publish', plan=PLAN, generation=self.generation) as op:
            cursor = self.value('SELECT s.cursor FROM revenant.planner_state(%s, %s) AS s', PLAN, self.generation)
            waiting = self.value('SELECT runnable FROM revenant.plan_progress(%s)', PLAN)
            begin = cursor['next'] if cursor else 0
            if waiting < WAITING:
                splits = [{'id': f's{k}', 'weight': self.random.randint(1, 5), 'spec': self.spec(k, begin // BATCH)} for k in range(begin, begin + BATCH)]
                if self.random.random() < 0.02:
                    time.sleep(self.random.uniform(1, 4))           # maybe it leads no more
                outcome, created = self.row('SELECT outcome, created FROM revenant.publish(%s, %s, %s, %s)',
                                            PLAN, self.generation, Jsonb(splits), Jsonb({'next': begin + BATCH}))
                op.says(outcome=outcome, created=created, batch=begin // BATCH)
                self.value('SELECT chaos.effect(%s, %s, false, %s, %s)', 'plan/' + PLAN, self.generation, self.name, op.number)
        if op.sqlstate in self.expected:
            self.generation = None
        elif op.ok and self.random.random() < 0.02:
            self.resign()

    def spec(self, k, batch):
        return {'batch': batch, 'steps': k % 3 + 1, 'generation': self.generation, 'poison': k % 97 == 50}

    def resign(self):
        with self.operation('resign', leases=['plan/' + PLAN], token=self.generation) as op:
            op.says(released=self.value('SELECT revenant.resign_plan(%s, %s)', PLAN, self.generation))
        if op.ok:
            self.generation = None


if __name__ == '__main__':
    Planners().run()
