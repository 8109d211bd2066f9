#!/usr/bin/env python3
"""An administrator of a task of its own: creates, disables, alters, restarts and drops it, and looks whether it has really stopped. See client.py."""
import time

from client import Client


class Tasks(Client):
    # a run that does not end in time, one that runs already, a task that is there already, or not any more
    expected = frozenset(('55006', '42710', '42704', '40001'))
    pause = 0.3

    def step(self):
        task = self.name
        row = self.quietly('SELECT enabled, phase FROM revenant.tasks WHERE name = %s', task)
        if row is None:
            self.create(task)
        elif not row[0]:
            self.look(task)
            self.enable(task)
        else:
            shape = self.random.random()
            if shape < 0.5:
                self.stop('disable_task', task)
            elif shape < 0.6:
                self.stop('drop_task', task)
            else:
                self.other(self.random.choice(('restart_task', 'run_task', 'alter')), task)

    def create(self, task):
        """A loop, or a schedule. `n` is how much it has written until then: nothing was added while it was not there."""
        schedule = self.random.choice((None, '1 s', '* * * * * *'))
        command = f"CALL chaos.beat('{task}', false)" if schedule is None else f"CALL chaos.fail_sometimes('{task}', 0.05)"
        with self.operation('create_task', task=task, schedule=schedule) as op:
            op.says(n=self.written(task))
            self.conn.execute("SELECT revenant.create_task(%s, %s, %s, backoff_min => '100 ms', backoff_max => '1 s', max_restarts => 100, restart_window => '10 s')",
                              (task, command, schedule))

    def written(self, task):
        return self.value("SELECT coalesce(max(n), 0) FROM chaos.serial WHERE stream = 'task/' || %s", task)

    def stop(self, f, task):
        """Its run has ended when this returns."""
        with self.operation(f, task=task) as op:
            self.conn.execute(f'SELECT revenant.{f}(%s)', (task,))
        if op.ok:
            self.look(task)
            time.sleep(self.random.uniform(0, 1.5))
            self.look(task)

    def look(self, task):
        with self.operation('look', task=task) as op:
            op.says(n=self.written(task))

    def enable(self, task):
        with self.operation('enable_task', task=task) as op:
            self.conn.execute('SELECT revenant.enable_task(%s)', (task,))

    def other(self, f, task):
        with self.operation(f, task=task) as op:
            if f == 'alter':
                self.conn.execute('SELECT revenant.alter_task(%s, %s)', (task, '{"timeout": "%d s"}' % self.random.randint(5, 60)))
            else:
                self.conn.execute(f'SELECT revenant.{f}(%s)', (task,))


if __name__ == '__main__':
    Tasks().run()
