#!/usr/bin/env python3
"""Tasks, leases, entities, messages and a plan on two nodes of pg_auto_failover whose primary is lost, again and again.

    failover.py [--kills N] [--switches N]

Each time pg_autoctl and the postmaster of the primary are killed with SIGKILL; the other node is promoted, and the killed one brought back as an operator would, by starting
its pg_autoctl again. After these, so many times the monitor is asked to fail over, with everybody in good health. Clients go on all the time. Prints how long each took, and
checks what clients were told against what is there at the end.
"""
import argparse
import collections
import glob
import os
import platform
import signal
import statistics
import subprocess
import sys
import threading
import time

import psycopg

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, f'{here}/lib')
import checks                                       # noqa: E402
import engine as ha                                 # noqa: E402
import tap as taps                                  # noqa: E402

CLIENTS = {'calls': 2, 'sends': 2, 'holder': 2, 'long': 2, 'session': 2, 'candidate': 2, 'planner': 2, 'puller': 2}


class Load:
    """The clients."""

    def __init__(self, engine, history, seed):
        self.history = history
        os.makedirs(history)
        self.processes = {}
        for kind, count in CLIENTS.items():
            for number in range(1, count + 1):
                name = f'{kind} {number}'
                self.processes[name] = subprocess.Popen([sys.executable, f'{here}/lib/load.py', kind, name, engine.dsn(f"application_name='{name}'"), history, seed])

    def ended(self):
        return [f'{name}: {process.returncode}' for name, process in self.processes.items() if process.poll() is not None]

    def stop(self):
        """Returns those that did not end as they should."""
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        found = []
        for name, process in self.processes.items():
            try:
                if process.wait(60):
                    found.append(f'{name}: {process.returncode}')
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                found.append(f'{name}: did not end')
        return found


class Watch(threading.Thread):
    """Looks at a standby every few milliseconds. By its own clock, promoted is when it was none any more, and accepts when it first took a write: in between pg_auto_failover
    holds it with default_transaction_read_only until the old primary is down for sure."""

    def __init__(self, node):
        super().__init__(daemon=True)
        self.node = node
        self.promoted = None
        self.accepts = None
        self.over = False
        self.start()

    def run(self):
        while self.accepts is None and not self.over:
            try:
                with self.node.connect() as connection:
                    while self.accepts is None and not self.over:
                        at, standby, read_only = connection.execute(
                            "SELECT extract(epoch FROM clock_timestamp())::float8, pg_is_in_recovery(), current_setting('transaction_read_only')::boolean").fetchone()
                        if not standby and self.promoted is None:
                            self.promoted = at
                        if read_only:
                            time.sleep(0.005)
                            continue
                        connection.execute('INSERT INTO public.probe VALUES (clock_timestamp())')
                        self.accepts = at
            except psycopg.Error:
                time.sleep(0.005)


def take_over(engine, how):
    """Makes the other node primary; returns the seconds that it took: {what: seconds}."""
    old, new = engine.settled()
    time.sleep(2)                                   # of load, on a pair that is well
    token = old.ask('SELECT max(token) FROM public.beat')[0]
    watch = Watch(new)
    command = None
    if how == 'kill':
        begun = old.kill()
    else:
        begun, command = engine.perform_failover()
    try:
        accepts = ha.wait_until('the other node accepts writes', lambda: watch.accepts)
    finally:
        watch.over = True
    first = ha.wait_until('the task runs there', lambda: new.ask(
        'SELECT extract(epoch FROM min(at))::float8 FROM public.beat WHERE node = %s AND token > %s', str(new.port), token)[0])
    if command is not None:
        ha.wait_until('the command is done', lambda: command.poll() is not None)
    else:
        old.start()
    return {'promoted': watch.promoted - begun, 'accepts writes': accepts - begun, 'then the task': first - accepts, 'in all': first - begun, 'begun': begun}


def resumed(events, measures):
    """Adds when the first call of an entity by a client that follows the primary was answered."""
    for measure in measures:
        measure['a client'] = next(event['wall'] for event in checks.of(events, 'connect') if event['wall'] > measure['begun'] and event['p'].startswith('calls')) - measure['begun']


def table(title, measures):
    columns = ('promoted', 'accepts writes', 'then the task', 'in all', 'a client')
    yield f'| {title} | ' + ' | '.join(columns) + ' |'
    yield '| --- ' * (len(columns) + 1) + '|'
    for number, measure in enumerate(measures, 1):
        yield f'| {number} | ' + ' | '.join(f'{measure[name]:.3f} s' for name in columns) + ' |'
    for name, function in (('min', min), ('median', statistics.median), ('max', max)):
        yield f'| {name} | ' + ' | '.join(f'{function([measure[column] for measure in measures]):.3f} s' for column in columns) + ' |'


def machine(node):
    with open('/proc/cpuinfo', encoding='utf-8') as cpuinfo:
        model = next((line.partition(': ')[2].strip() for line in cpuinfo if line.startswith('model name')), platform.machine())
    version = subprocess.check_output(['pg_autoctl', 'version'], text=True).splitlines()[0]
    return f"{os.cpu_count()} cores ({model}), load {os.getloadavg()[0]:.1f}; PostgreSQL {node.ask('SHOW server_version')[0]}, {version}"


def wait_for_work(primary):
    """Until all that was sent is delivered and all that was published is done."""
    ha.wait_until('messages and timers are delivered', lambda: primary.ask('SELECT count(*) = 0 FROM revenant.messages')[0])


def finish_splits(engine, load_history, primary):
    puller = subprocess.Popen([sys.executable, f'{here}/lib/load.py', 'puller', 'last puller', engine.dsn(), load_history, '0'])
    try:
        ha.wait_until('splits are done', lambda: primary.ask("SELECT count(*) = 0 FROM revenant.splits WHERE state <> 'done'")[0])
    finally:
        puller.terminate()
        puller.wait()


def look(tap, events, primary, engine, takeovers):
    with primary.connect() as connection:
        def rows(query):
            return connection.execute(query).fetchall()
        ledger = rows('SELECT n, lease, token, id::text FROM public.ledger ORDER BY n')
        states = {identity: state for identity, state in rows('SELECT id, state FROM public.entity')}
        effects = rows('SELECT id, kind, what FROM public.effect ORDER BY n')
        splits = {split: (state, epoch) for split, state, epoch in rows("SELECT split, state, epoch FROM revenant.splits WHERE plan = 'work'")}
        split_effects = rows('SELECT split, epoch FROM public.split_effect ORDER BY n')
        beats = rows("SELECT n, token, node FROM public.beat WHERE node <> 'second' ORDER BY n")
        overlapping = rows("""SELECT a.run, b.run FROM revenant.task_runs AS a JOIN revenant.task_runs AS b ON a.name = b.name AND a.run < b.run
                              WHERE b.started_at < COALESCE(a.finished_at, 'infinity') AND a.outcome <> 'interrupted'""")
        stray = rows(f"SELECT name, run, node FROM revenant.task_runs WHERE outcome = 'running' AND node NOT LIKE '%:{primary.port}'")
        tasks = rows("SELECT phase, reason FROM revenant.tasks WHERE name = 'heart'")
    events = checks.releases_first(events)
    tap.say(f"{len(checks.grants(events))} tokens; {len(ledger)} fenced writes; {len(checks.of(events, 'call'))} strict calls, {len(checks.of(events, 'call', 'info'))} asked again; "
            f"{len(checks.of(events, 'send'))} messages and {len(checks.of(events, 'send_after'))} timers; {len(splits)} splits; {len(beats)} beats of {len({b[1] for b in beats})} runs")
    tap.none(checks.aliens(events), 'no client met an error that a failover does not explain')
    tap.none(checks.tokens_that_did_not_grow(events), 'a token that was asked for later is greater')
    tap.none(checks.runs_that_overlap(beats), 'runs of the task follow one another, with greater tokens')
    tap.ok(len({node for *_, node in beats}) == 2, 'on both nodes')
    tap.none(overlapping, 'no two runs of a task overlap in the history')
    tap.none(stray, 'none is "running" where it does not')
    tap.ok(tasks and tasks[0][0] == 'leading', 'the task leads at the end', tasks)
    tap.none(checks.fenced_writes_out_of_order(ledger), 'fenced writes are in the order of tokens')
    tap.none(checks.confirmed_writes_missing(events, ledger), 'each that was confirmed is there, once')
    tap.none(checks.overlapping_beliefs(events), 'nobody got a lease while somebody else could count on it')
    tap.none(checks.old_tokens_accepted(events), 'old tokens are refused')
    tap.ok(checks.of(events, 'old fence', 'fail'), '… and were tried')
    held = collections.defaultdict(list)
    for event in checks.of(events, 'write'):
        if event['lease'] == 'long':
            held[event['p'], event['token']].append(event['wall'])
    spans = [who for who, walls in held.items() for begun, accepted in takeovers if min(walls) < begun and accepted < max(walls)]
    tap.ok(spans, 'a holder with a long ttl went on with its token after a failover')
    tap.none(checks.replies_lost(events, states, effects), 'each strict reply is there: replies, states and effects agree')
    tap.none(checks.messages_not_once(events, effects), 'messages and timers were delivered once')
    tap.none(checks.messages_out_of_order(effects), '… messages in order')
    tap.none(checks.splits_not_once(events, splits, split_effects), 'splits were done once')
    tap.none(checks.bad_lines(glob.glob(f'{engine.place}/node*/log/*')), 'the servers have nothing to say that is ours')


def test(tap, place, arguments):
    engine = ha.Engine(f'{place}/e', taps.user())
    load = None
    try:
        primary, _ = engine.start()
        tap.ok(True, 'pg_auto_failover has a primary and a synchronous secondary, with revenant')
        with primary.connect() as connection, open(f'{here}/schema.sql', encoding='utf-8') as schema:
            connection.execute(schema.read())
        load = Load(engine, f'{place}/history', arguments.seed)
        ha.wait_until('there is some load', lambda: primary.ask('SELECT (SELECT count(*) FROM public.ledger) > 20 AND (SELECT count(*) FROM public.beat) > 20')[0])
        measures = {}
        for how in ['kill'] * arguments.kills + ['switch'] * arguments.switches:
            measure = take_over(engine, how)
            measures.setdefault(how, []).append(measure)
            tap.none(load.ended(), f"{'killed' if how == 'kill' else 'asked to fail over'}: the other node accepts writes after {measure['accepts writes']:.3f} s, the task runs "
                     f"{measure['then the task'] * 1000:.0f} ms later")
            tap.ok(measure['then the task'] < 1.0, '… which is within a second')
        primary, secondary = engine.settled()
        time.sleep(2)
        tap.none(load.stop(), 'the clients end')
        wait_for_work(primary)
        finish_splits(engine, load.history, primary)
        events = checks.read_history(load.history)
        for how, title in (('kill', 'killed'), ('switch', 'asked')):
            if how in measures:
                resumed(events, measures[how])
                for line in table(title, measures[how]):
                    tap.say(line)
        tap.say(machine(primary))
        look(tap, events, primary, engine, [(measure['begun'], measure['begun'] + measure['accepts writes']) for group in measures.values() for measure in group])
        engine.caught_up(secondary, primary)
        tap.equal(secondary.ask('SELECT (SELECT count(*) FROM public.ledger), (SELECT count(*) FROM public.effect)'),
                  primary.ask('SELECT (SELECT count(*) FROM public.ledger), (SELECT count(*) FROM public.effect)'), 'the secondary has what the primary has')
    finally:
        if load is not None:
            load.stop()
        engine.stop()


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--kills', type=int, default=int(os.environ.get('REVENANT_KILLS', '1')))
    parser.add_argument('--switches', type=int, default=int(os.environ.get('REVENANT_SWITCHES', '0')))
    parser.add_argument('--seed', default='1')
    options = parser.parse_args()
    taps.run(lambda tap, place: test(tap, place, options))
