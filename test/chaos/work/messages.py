#!/usr/bin/env python3
"""Messages and timers: to few entities, in order, some sent on, some that fail for a while or for ever, some taken back. See client.py."""
import collections
import time
import uuid

from psycopg.types.json import Jsonb

from client import Client

AGAIN = 0.1             # of those requests that were answered
NEVER = 1000            # failures: so often nothing is tried


class Messages(Client):
    def __init__(self):
        super().__init__()
        self.asked = None                                   # a send with a request_id whose outcome is not known
        self.timers = collections.deque(maxlen=20)
        self.doomed = False                                 # one has been sent that always fails

    def begun(self):
        if self.asked is not None:
            self.send_once(*self.asked)

    def step(self):
        shape = self.random.random()
        id_ = f'sink {self.random.randint(0, 4)}'
        if not self.doomed or shape < 0.002:
            self.send_doomed()
        elif shape < 0.35:
            self.send(id_)
        elif shape < 0.6:
            request = str(uuid.UUID(int=self.random.getrandbits(128), version=4)), self.contents()
            self.send_once(id_, *request)
            if self.asked is None and self.random.random() < AGAIN:
                self.send_once(id_, *request)
        elif shape < 0.85:
            self.set_timer(id_)
        elif self.timers:
            self.cancel()

    def contents(self):
        """A few are sent on, and a few fail at first: what is behind them waits."""
        return {'hops': self.random.choice((0, 0, 0, 0, 1, 3)), 'fails': self.random.choice((1, 2)) if self.random.random() < 0.01 else 0}

    def send(self, id_):
        """Several in one transaction, which arrive in this order, or not at all: some of these roll back."""
        with self.transaction('send', id=id_) as op:
            tags = [f'{self.name}#{op.number}.{k}' for k in range(self.random.choice((1, 1, 1, 2, 3)))]
            contents = self.contents()
            op.says(tags=tags, **contents)
            op.says(messages=[self.value('SELECT revenant.send(%s, %s, %s)', 'sink', id_, Jsonb({'tag': tag, **contents})) for tag in tags])
            if self.random.random() < 0.05:
                self.conn.execute('ROLLBACK')
                op.says(undone=True)

    def send_once(self, id_, request, contents):
        self.asked = id_, request, contents
        tag = f'request {request}'
        with self.operation('send_once', id=id_, req=request, tags=[tag], **contents) as op:
            op.says(messages=[self.value('SELECT revenant.send(%s, %s, %s, %s)', 'sink', id_, Jsonb({'tag': tag, **contents}), request)])
        if op.ok:
            self.asked = None

    def send_doomed(self):
        """To an entity of its own, since it holds up what is behind it."""
        with self.operation('send', id='doomed') as op:
            tag, contents = f'{self.name}#{op.number}', {'hops': 0, 'fails': NEVER}
            op.says(tags=[tag], **contents)
            op.says(messages=[self.value('SELECT revenant.send(%s, %s, %s)', 'sink', f'doomed {tag}', Jsonb({'tag': tag, **contents}))])
        self.doomed = op.ok

    def set_timer(self, id_):
        delay = self.random.choice((0.0, 0.05, 0.5, 2.0, 8.0))
        with self.operation('timer', id=id_, delay=delay) as op:
            tag = f'{self.name}#{op.number}'
            op.says(tags=[tag], hops=0, fails=0)
            timer = self.value('SELECT revenant.send_after(%s, %s, %s, make_interval(secs => %s))', 'sink', id_, Jsonb({'tag': tag}), delay)
            op.says(messages=[timer])
        if op.ok:
            self.timers.append((timer, tag))

    def cancel(self):
        timer, tag = self.timers.popleft() if self.random.random() < 0.5 else self.timers.pop()
        with self.operation('cancel', timer=timer, tag=tag) as op:
            op.says(taken=self.value('SELECT revenant.cancel_timer(%s)', timer))


if __name__ == '__main__':
    Messages().run()
