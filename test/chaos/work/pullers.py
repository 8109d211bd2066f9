#!/usr/bin/env python3
"""Workers that pull splits: step by step or many at once, some slow, some failing, some giving back. See client.py."""
import time
import uuid

from psycopg.types.json import Jsonb

from client import Client

PLANS = ('pulled', 'planned')
TTL = 3.0


class Pullers(Client):
    expected = frozenset(('RV001', 'RV002'))

    def __init__(self):
        super().__init__()
        self.plan = None
        self.claimed = {}           # split: [epoch, spec, steps done]
        self.unsure = {}            # split: epoch, where a commit may have happened: never again by the same epoch
        self.asked = None

    def begun(self):
        self.unsure.update({split: claim[0] for split, claim in self.claimed.items() if len(claim) > 3})
        for split in self.unsure:
            self.claimed.pop(split, None)

    def step(self):
        if self.unsure:
            split, epoch = next(iter(self.unsure.items()))
            if self.give_back(split, epoch):
                del self.unsure[split]
        elif not self.claimed:
            self.claim()
        else:
            self.work()

    def claim(self):
        self.plan, n, request, first = self.asked or (
            self.random.choice(PLANS), self.random.choice((1, 1, 3, 10)), str(uuid.UUID(int=self.random.getrandbits(128), version=4)), time.monotonic_ns())
        self.asked = self.plan, n, request, first
        with self.operation('claim_splits', plan=self.plan, max=n, req=request, first=first) as op:
            rows = self.rows('SELECT split, epoch, spec, progress, attempt FROM revenant.claim_splits(%s, %s, %s, request_id => %s)',
                             self.plan, self.name, n, request)
            op.says(splits=[[split, epoch, attempt, progress] for split, epoch, _, progress, attempt in rows])
        if not op.ok:
            return
        self.asked = None
        self.claimed = {split: [epoch, spec, (progress or {}).get('step', 0)] for split, epoch, spec, progress, _ in rows}
        if not rows:
            self.quietly("CALL revenant.await_splits(%s, NULL, '1 s')", self.plan)

    def work(self):
        split = next(iter(self.claimed))
        epoch, spec, done = self.claimed[split][:3]
        shape = self.random.random()
        if spec.get('poison') or shape < 0.02:
            self.fail(split, epoch)
        elif shape < 0.05:
            self.give_back(split, epoch)
            self.claimed.pop(split, None)
        elif shape < 0.07:
            self.claimed.clear()                            # a worker that died
        elif shape < 0.1:
            self.renew()
        elif len(self.claimed) > 1 and shape < 0.4:
            self.finish_all()
        else:
            self.advance(split, epoch, spec, done)

    def advance(self, split, epoch, spec, done):
        """The next step of one split, and that it is done: one transaction."""
        last = False
        self.claimed[split].append('under way')
        with self.transaction('commit_split', plan=self.plan, split=split, epoch=epoch) as op:
            if self.pooled or self.random.random() < 0.3:
                self.conn.execute('SELECT revenant.fence_split(%s, %s, %s)', (self.plan, split, epoch))
            if self.random.random() < 0.03:
                time.sleep(self.random.uniform(0.5, 1.3) * TTL)
            step = self.steps_done(self.plan, split, done) + 1
            last = step >= spec['steps']
            op.says(step=step, done=last)
            self.write(op, split, step, epoch)
            self.conn.execute('SELECT revenant.commit_split(%s, %s, %s, progress => %s, watermark => %s, done => %s)',
                              (self.plan, split, epoch, Jsonb({'step': step}), step, last))
        self.claimed[split].pop()
        if op.ok and not last:
            self.claimed[split][2] = step
        elif op.ok or op.sqlstate in self.expected:
            del self.claimed[split]
        # else an error that is nobody's fault: once more

    def finish_all(self):
        """What is left of all that is claimed, in one transaction, all or none."""
        commits = [{'split': split, 'epoch': claim[0], 'progress': {'step': claim[1]['steps']}, 'done': True} for split, claim in self.claimed.items()
                   if not claim[1].get('poison')]
        for commit in commits:
            self.claimed[commit['split']].append('under way')
        with self.transaction('commit_splits', plan=self.plan, commits=commits) as op:
            if self.pooled:
                for commit in commits:
                    self.conn.execute('SELECT revenant.fence_split(%s, %s, %s)', (self.plan, commit['split'], commit['epoch']))
            steps = [(split, step, claim[0]) for split, claim in self.claimed.items() if not claim[1].get('poison')
                     for step in range(self.steps_done(self.plan, split, claim[2]) + 1, claim[1]['steps'] + 1)]
            op.says(rows=len(steps))
            for step in steps:
                self.write(op, *step)
            self.conn.execute('SELECT revenant.commit_splits(%s, %s)', (self.plan, Jsonb(commits)))
        for commit in commits:
            self.claimed[commit['split']].pop()
        if op.ok:
            for commit in commits:
                del self.claimed[commit['split']]
        elif op.sqlstate in self.expected:                  # one of them is another one's: who has the others is found out one by one
            self.renew()

    def write(self, op, split, step, epoch):
        self.conn.execute('INSERT INTO chaos.step (plan, split, step, epoch, batch, p, op) VALUES (%s, %s, %s, %s, %s, %s, %s)',
                          (self.plan, split, step, epoch, f'{self.name}#{op.number}', self.name, op.number))

    def renew(self):
        splits = list(self.claimed)
        with self.operation('renew_splits', plan=self.plan, splits=splits) as op:
            lost = [row[0] for row in self.rows('SELECT * FROM revenant.renew_splits(%s, %s, %s)', self.plan, splits, [self.claimed[split][0] for split in splits])]
            op.says(lost=lost)
        if op.ok:
            for split in lost:
                del self.claimed[split]

    def fail(self, split, epoch):
        with self.operation('fail_split', plan=self.plan, split=split, epoch=epoch) as op:
            self.conn.execute('SELECT revenant.fail_split(%s, %s, %s, %s)', (self.plan, split, epoch, 'told to fail'))
        if op.ok or op.sqlstate in self.expected:
            del self.claimed[split]

    def give_back(self, split, epoch):
        with self.operation('release_split', plan=self.plan, split=split, epoch=epoch) as op:
            self.conn.execute('SELECT revenant.release_split(%s, %s, %s)', (self.plan, split, epoch))
        return op.ok or op.sqlstate in self.expected


if __name__ == '__main__':
    Pullers().run()
