#!/usr/bin/env python3
"""Members of a plan that is never over: each is given its share of the shards, and hands over what it is asked for. See client.py."""
import time
import uuid

from psycopg.types.json import Jsonb

from client import Client

PLAN = 'shards'
SHARDS = 8


class Members(Client):
    expected = frozenset(('RV001', 'RV002'))
    pause = 0.05

    def __init__(self):
        super().__init__()
        self.asked = None
        self.forget()

    def forget(self):
        """Whatever it was, it is a member no more; or it does not know what it has committed."""
        self.member = None
        self.mine = {}              # split: [epoch, n]
        self.draining = set()
        self.seen = 0
        self.left = False

    def begun(self):
        self.forget()               # joins again: all that it has, under new epochs

    def step(self):
        if self.member is None:
            self.plan_shards()
            self.join()
            return
        if not self.poll():
            return
        for split in list(self.mine):
            if self.stopping or self.member is None:
                return
            if split in self.draining:
                self.hand_over(split)
            else:
                self.advance(split)
        shape = self.random.random()
        if shape < 0.005:
            self.leave()
        elif shape < 0.01:
            time.sleep(self.random.uniform(1, 6))           # maybe longer than its ttl
        elif shape < 0.02 and self.mine:
            self.fail(self.random.choice(list(self.mine)))

    def plan_shards(self):
        """The first one that leads publishes all of them; again it is a noop."""
        with self.operation('lead', leases=['plan/' + PLAN], ttl=3.0, first=time.monotonic_ns()) as op:
            op.says(token=self.value("SELECT revenant.lead_plan(%s, %s, '3 s')", PLAN, self.name))
        generation = op.result.get('token')
        if not op.ok or generation is None:
            return
        with self.operation('publish', plan=PLAN, generation=generation) as op:
            outcome, created = self.row('SELECT outcome, created FROM revenant.publish(%s, %s, %s)', PLAN, generation,
                                        Jsonb([{'id': f'shard {k}', 'weight': k % 3 + 1} for k in range(SHARDS)]))
            op.says(outcome=outcome, created=created)
        with self.operation('resign', leases=['plan/' + PLAN], token=generation) as op:
            op.says(released=self.value('SELECT revenant.resign_plan(%s, %s)', PLAN, generation))

    def join(self):
        request, first, capacity = self.asked or (
            str(uuid.UUID(int=self.random.getrandbits(128), version=4)), time.monotonic_ns(), self.random.choice((2, 4, 8)))
        self.asked = request, first, capacity
        with self.operation('join', plan=PLAN, req=request, first=first, capacity=capacity) as op:
            op.says(member=self.value('SELECT revenant.join_plan(%s, %s, capacity => %s, request_id => %s)', PLAN, self.name, capacity, request))
        if op.ok:
            self.asked = None
            self.forget()
            self.member, self.joined = op.result['member'], first

    def poll(self):
        with self.operation('poll', plan=PLAN, member=self.member, seen=self.seen, joined=self.joined) as op:
            events = self.rows('SELECT seq, event, split, epoch, progress FROM revenant.poll_plan(%s, %s, %s)', PLAN, self.member, self.seen)
            op.says(events=[list(event[:4]) for event in events])
        if not op.ok:
            if op.sqlstate in self.expected:
                self.forget()
            return False
        for seq, event, split, epoch, progress in events:
            self.seen = seq
            if event == 'gained':
                if split not in self.mine or self.mine[split][0] != epoch:
                    self.mine[split] = [epoch, (progress or {}).get('n', 0)]
                self.draining.discard(split)
            elif event == 'revoke':
                self.draining.add(split)
            elif event == 'revoke_cancelled':
                self.draining.discard(split)
            elif event in ('lost', 'quarantined'):
                self.mine.pop(split, None)
        return True

    def advance(self, split):
        epoch, n = self.mine[split]
        with self.transaction('commit_split', plan=PLAN, split=split, epoch=epoch, done=False) as op:
            if self.pooled or self.random.random() < 0.1:
                self.conn.execute('SELECT revenant.fence_split(%s, %s, %s)', (PLAN, split, epoch))
            n = self.steps_done(PLAN, split, n)
            self.conn.execute('INSERT INTO chaos.step (plan, split, step, epoch, batch, p, op) VALUES (%s, %s, %s, %s, %s, %s, %s)',
                              (PLAN, split, n + 1, epoch, f'{self.name}#{op.number}', self.name, op.number))
            self.conn.execute('SELECT revenant.commit_split(%s, %s, %s, progress => %s, watermark => %s)', (PLAN, split, epoch, Jsonb({'n': n + 1}), n + 1))
        if op.ok:
            self.mine[split][1] = n + 1
        elif op.sqlstate in self.expected:
            del self.mine[split]

    def hand_over(self, split):
        shape = self.random.random()
        if shape < 0.1:
            return                                          # too late for the deadline, if that goes on
        f = 'decline_revoke' if shape < 0.3 else 'drained'
        with self.operation(f, plan=PLAN, split=split, epoch=self.mine[split][0]) as op:
            self.conn.execute(f'SELECT revenant.{f}(%s, %s, %s)', (PLAN, split, self.mine[split][0]))
        if op.ok or op.sqlstate in self.expected:
            self.draining.discard(split)
            if f == 'drained' or not op.ok:
                del self.mine[split]

    def fail(self, split):
        with self.operation('fail_split', plan=PLAN, split=split, epoch=self.mine[split][0]) as op:
            self.conn.execute('SELECT revenant.fail_split(%s, %s, %s, %s)', (PLAN, split, self.mine[split][0], 'told to fail'))
        if op.ok or op.sqlstate in self.expected:
            self.mine.pop(split, None)

    def leave(self):
        with self.operation('leave', plan=PLAN, member=self.member) as op:
            op.says(given=self.value('SELECT revenant.leave_plan(%s, %s)', PLAN, self.member))
        if op.ok:
            self.forget()


if __name__ == '__main__':
    Members().run()
