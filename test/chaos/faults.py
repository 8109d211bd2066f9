"""
What goes wrong. A fault is a class: inject() does it and heal() undoes it, each returns what the history is to know of it. Both choose by
the random numbers that they are given only, so that the same seed gives the same sequence.
"""
import os
import random
import signal
import threading
import time

import psycopg

from fleet import DATABASE
from scratch import kill, wait_until

CLIENTS = "backend_type = 'client backend' AND application_name <> 'driver' AND usename IN ('app', 'pooled')"
WORKERS = "backend_type LIKE 'revenant%'"
ALL = {}


class Fault:
    """The fleet, the clients' processes by name, and a source of random numbers of this one fault."""
    explains = ()           # what it may leave in the servers' logs, beside what is always fine: see serverlog.py
    lasts = False           # whether another one may come in the middle of it: BESIDE

    def __init__(self, fleet, clients, rng):
        self.fleet, self.clients, self.rng = fleet, clients, rng
        self.hold = rng.uniform(0.5, 3)         # seconds between inject and heal

    def __init_subclass__(cls):
        if not cls.__name__.startswith('_'):
            ALL[cls.name] = cls

    @staticmethod
    def missing(fleet):
        """Why it cannot be done here, or None."""
        return None

    def inject(self):
        return {}

    def heal(self):
        return {}


class _Down(Fault):
    """The server goes, and comes back; whoever starts a postmaster that was ended is the only hand."""

    def __init__(self, fleet, clients, rng):
        super().__init__(fleet, clients, rng)
        self.node = fleet.primary
        self.hold = rng.choice([0, rng.uniform(0, 2)])

    def went_down(self, **facts):
        self.down = time.monotonic_ns()
        return {'node': self.node.name, 'down': self.down, **facts}

    def heal(self):
        up = self.node.back()
        return {'node': self.node.name, 'down': self.down, 'up': up, 'seconds': round((up - self.down) / 1e9, 3)}


class _KillOne(_Down):
    """kill -9 of one process of the server, which then ends all others and recovers by itself."""

    def inject(self):
        facts = {}
        with self.node.connect() as watch:
            for _ in range(8):
                try:
                    pid, kind = self.choose(watch)
                except psycopg.OperationalError:
                    if facts:                   # it has noticed the last one late
                        return facts
                    raise
                facts = facts or self.went_down()
                facts.update(pid=pid, victim=kind)
                # Until the server has noticed, or what comes back would be what has not gone yet. Who had just ended by itself is no victim.
                if kill(pid, signal.SIGKILL) and wait_until(lambda: self.is_lost(watch), 10):
                    return facts
        raise RuntimeError(f'nobody could be killed, at last {kind} {pid}')

    def choose(self, watch):
        rows = wait_until(lambda: watch.execute(
            f'SELECT pid, backend_type FROM pg_stat_activity WHERE {self.victims} ORDER BY backend_start, pid').fetchall(), 10)
        if not rows:
            raise RuntimeError(f'nobody to kill: {self.victims}')
        kind = self.rng.choice(sorted({kind for _, kind in rows}))
        return self.rng.choice([row for row in rows if row[1] == kind])

    @staticmethod
    def is_lost(watch):
        try:
            watch.execute('SELECT 1')
            return False
        except psycopg.Error:
            return True


class KillBackend(_KillOne):
    name = 'kill_backend'
    victims = CLIENTS


class KillWorker(_KillOne):
    name = 'kill_worker'
    victims = WORKERS


class KillPostmaster(_Down):
    """kill -9 of the postmaster, alone or with all its children."""
    name = 'kill_postmaster'

    def inject(self):
        alone = self.rng.random() < 0.5
        self.node.note_shared_memory()
        facts = self.went_down(alone=alone)
        if alone:
            self.node.kill_postmaster()
        else:
            self.node.kill_all()
        return facts


class _Restart(_Down):
    def inject(self):
        facts = self.went_down()
        facts['took'] = round(self.node.stop(self.number), 3)
        return facts


class RestartFast(_Restart):
    name = 'restart_fast'
    number = signal.SIGINT


class RestartImmediate(_Restart):
    name = 'restart_immediate'
    number = signal.SIGQUIT


class Promote(Fault):
    """The standby hears no more while the primary commits on; the primary dies, the standby takes over, and the old primary follows it."""
    name = 'promote'

    def __init__(self, fleet, clients, rng):
        super().__init__(fleet, clients, rng)
        self.unheard, self.how = rng.uniform(0.2, 3), rng.choice(['rewind', 'basebackup'])
        self.hold = 0

    def inject(self):
        fleet = self.fleet
        if not wait_until(fleet.streaming, 60) or not fleet.caught_up():
            raise RuntimeError('the standby does not follow')
        receiver = fleet.cut_off()
        time.sleep(self.unheard)
        rows = fleet.primary.ask("SELECT pg_current_wal_insert_lsn()::text, ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int")
        old_lsn, old_timeline = rows[0] if rows else (None, None)
        fleet.primary.note_shared_memory()
        down = time.monotonic_ns()
        fleet.primary.kill_all()
        up, timeline, switch = fleet.promote(receiver)
        return {'node': fleet.primary.name, 'down': down, 'up': up, 'seconds': round((up - down) / 1e9, 3), 'unheard': round(self.unheard, 3),
                'old_lsn': old_lsn, 'old_tli': old_timeline, 'tli': timeline, 'switch_lsn': switch}

    def heal(self):
        return {'standby': self.fleet.standby.name, 'how': self.fleet.follow(self.how)}


class StopClients(Fault):
    """SIGSTOP of some clients for longer than they are trusted; then they go on where they were."""
    name = 'stop_clients'
    lasts = True

    def __init__(self, fleet, clients, rng):
        super().__init__(fleet, clients, rng)
        self.hold = rng.uniform(2, 8)
        self.chosen = []

    def inject(self):
        names = sorted(name for name, client in self.clients.items() if client.poll() is None)
        self.chosen = self.rng.sample(names, min(len(names), self.rng.randint(1, 1 + len(names) // 2)))
        for name in self.chosen:
            kill(self.clients[name].pid, signal.SIGSTOP)
        return {'clients': self.chosen, 'stopped': time.monotonic_ns()}

    def heal(self):
        continued = time.monotonic_ns()
        for name in self.chosen:
            kill(self.clients[name].pid, signal.SIGCONT)
        return {'clients': self.chosen, 'continued': continued}


class Terminate(Fault):
    """A storm of pg_terminate_backend, of clients, and in half of the cases of our workers, too."""
    name = 'terminate'

    def __init__(self, fleet, clients, rng):
        super().__init__(fleet, clients, rng)
        self.hold, self.who = 0, rng.choice([CLIENTS, f'({CLIENTS} OR {WORKERS})'])
        self.rounds, self.pause = rng.randint(5, 20), rng.uniform(0.05, 0.3)

    def inject(self):
        ended = 0
        with self.fleet.primary.connect() as conn:
            for _ in range(self.rounds):
                ended += conn.execute(f'SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {self.who}) AS t').fetchone()[0]
                time.sleep(self.pause)
        return {'workers': WORKERS in self.who, 'ended': ended}


class PoolerKill(Fault):
    name = 'pooler_kill'

    def inject(self):
        self.fleet.pooler.kill()
        return {}

    def heal(self):
        self.fleet.pooler.start()
        return {}


class PoolerReload(Fault):
    name = 'pooler_reload'

    def inject(self):
        for _ in range(self.rng.randint(1, 5)):
            self.fleet.pooler.reload()
            time.sleep(self.rng.uniform(0.05, 0.5))
        return {}


class Clock(Fault):
    """The wall clock of one server or both is stepped, and stays so until the next time."""
    name = 'clock'
    steps = [60, 600, 3600, 5 * 3600]

    def inject(self):
        nodes = self.rng.choice([[self.fleet.primary], self.fleet.nodes])
        ahead = self.rng.choice([0] + self.steps + [-step for step in self.steps])
        facts = {'nodes': [node.name for node in nodes], 'before': [node.ahead for node in nodes], 'offset': ahead}
        for node in nodes:
            node.bend(ahead=ahead)
        return facts


class FullMemory(Fault):
    """All of our shared memory is taken, by leases of nobody else."""
    name = 'full_memory'
    lasts = True
    most = 100000           # leases, far more than fit
    at_once = 500           # in a transaction, which has a limit

    def __init__(self, fleet, clients, rng):
        super().__init__(fleet, clients, rng)
        self.hold = rng.uniform(1, 5)
        self.held = []

    def inject(self):
        refused = None
        with self.fleet.primary.connect(DATABASE) as conn:
            while refused is None and len(self.held) < self.most:
                names = [f'full {len(self.held) + i}' for i in range(self.at_once)]
                try:
                    self.held += conn.execute("SELECT l, revenant.try_acquire(l, ttl => '1 h') FROM unnest(%s::text[]) AS l", (names,)).fetchall()
                except psycopg.Error as error:
                    if error.sqlstate != '53200':
                        raise
                    refused = error.sqlstate
                    if self.at_once > 1:        # to the last place
                        self.at_once, refused = self.at_once // 5 or 1, None
        return {'leases': len(self.held), 'refused': refused}

    def heal(self):
        released = 0
        for begin in range(0, len(self.held), 500):
            some = self.held[begin:begin + 500]
            released += wait_until(lambda: self.release(some), 60) or 0
        if released != len(self.held):
            raise RuntimeError(f'{released} of {len(self.held)} leases could be released')
        return {'released': released}

    def release(self, some):
        """Repeated if it fails: what is released already counts, too."""
        names, tokens = zip(*some)
        rows = self.fleet.primary.ask('''SELECT revenant.release(lease, token) OR NOT revenant.is_current(lease, token)
            FROM unnest(%s::text[], %s::bigint[]) AS held (lease, token)''', (list(names), list(tokens)), DATABASE)
        return rows and [row[0] for row in rows].count(True)


class FullDisk(Fault):
    """The primary's small file system is filled by a file. In half of the cases it has to find place for WAL, too, which ends it."""
    name = 'full_disk'
    # PostgreSQL does not say why it could not write that file
    explains = ('No space left on device', 'could not write init file', 'aborting startup due to startup process failure', 'was terminated by signal 6', 'shutting down due to startup process failure')

    def __init__(self, fleet, clients, rng):
        super().__init__(fleet, clients, rng)
        self.hold = rng.uniform(2, 6)
        self.node = fleet.primary
        self.switches = rng.choice([0, 12])
        self.file = None if self.node.disk is None else os.path.join(self.node.disk, 'full')

    @staticmethod
    def missing(fleet):
        return None if fleet.primary.disk else 'it needs root and a loop device'

    def inject(self):
        self.down = time.monotonic_ns()
        taken = self.fill()
        for _ in range(self.switches):
            # a segment each, and something in the next one, so that it counts
            if self.node.ask("SELECT pg_switch_wal(), pg_logical_emit_message(false, 'full', repeat('x', 1000))") is None:
                break
        return {'node': self.node.name, 'down': self.down, 'bytes': taken, 'switches': self.switches}

    def fill(self):
        taken = 0
        with open(self.file, 'wb') as file:
            for size in 1 << 24, 1 << 20, 1 << 16, 1 << 12:
                while True:
                    try:
                        os.posix_fallocate(file.fileno(), taken, size)
                        taken += size
                    except OSError:
                        break
        return taken

    def heal(self):
        os.unlink(self.file)
        gone = not self.node.alive()
        up = self.node.back()
        return {'node': self.node.name, 'down': self.down, 'up': up, 'started': gone}


class NoConnections(Fault):
    """Every connection that is not kept for superusers is taken."""
    name = 'no_connections'
    lasts = True

    def __init__(self, fleet, clients, rng):
        super().__init__(fleet, clients, rng)
        self.held = []

    def inject(self):
        end = time.monotonic() + 1
        while time.monotonic() < end:           # who loses one in this second does not get it back
            try:
                self.held.append(psycopg.connect(self.fleet.primary.conninfo('app', DATABASE)))
            except psycopg.Error:
                time.sleep(0.02)
        return {'connections': len(self.held)}

    def heal(self):
        for conn in self.held:
            conn.close()
        return {}


class NoWorkers(Fault):
    """Every slot for background workers is taken by parallel queries, and ours are ended, so that they need theirs anew."""
    name = 'no_workers'

    def __init__(self, fleet, clients, rng):
        super().__init__(fleet, clients, rng)
        self.hold = rng.uniform(2, 6)
        self.over = threading.Event()
        self.eaters = [threading.Thread(target=self.eat) for _ in range(3)]

    def eat(self):
        while not self.over.is_set():
            try:
                with self.fleet.primary.connect(DATABASE) as conn:
                    for setting in 'parallel_setup_cost = 0', 'parallel_tuple_cost = 0', 'max_parallel_workers_per_gather = 14':
                        conn.execute(f'SET {setting}')
                    while not self.over.is_set():
                        conn.execute('SELECT count(pg_sleep(0.02)) FROM probe.wide')
            except psycopg.Error:
                time.sleep(0.1)

    def inject(self):
        for eater in self.eaters:
            eater.start()
        count = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'"
        wait_until(lambda: (self.fleet.primary.ask(count) or [(0,)])[0][0], 10)
        ended = self.fleet.primary.ask(f'SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {WORKERS}) AS t')
        return {'ended': ended and ended[0][0], 'parallel': (self.fleet.primary.ask(count) or [(None,)])[0][0]}

    def heal(self):
        self.over.set()
        for eater in self.eaters:
            eater.join()
        return {}


class SlowFsync(Fault):
    name = 'slow_fsync'

    def __init__(self, fleet, clients, rng):
        super().__init__(fleet, clients, rng)
        self.hold, self.delay = rng.uniform(3, 8), rng.choice([0.02, 0.1, 0.5])

    @staticmethod
    def missing(fleet):
        return None if fleet.fsync else 'fsync is off in this run'

    def inject(self):
        for node in self.fleet.nodes:
            node.bend(slow=self.delay)
        return {'delay': self.delay}

    def heal(self):
        for node in self.fleet.nodes:
            node.bend(slow=0)
        return {}


# What may come in the middle of one that lasts: they take nothing that its heal() needs, and need nothing that it has taken.
BESIDE = ('kill_backend', 'kill_worker', 'kill_postmaster', 'restart_fast', 'restart_immediate', 'promote', 'terminate', 'clock')


def beside(name, seed, names):
    """In every other time of a fault that lasts, (name, seed) of one of `names` that comes in the middle of it; else None."""
    rng = random.Random(f'beside {seed}')
    others = sorted(set(names) & set(BESIDE))
    if not ALL[name].lasts or not others or rng.random() < 0.5:
        return None
    return rng.choice(others), rng.getrandbits(32)


def schedule(seed, names):
    """
    For ever: (pause before it in seconds, name, seed of its own). Each of the names comes once before any comes again.
    """
    rng = random.Random(seed)
    while True:
        for name in rng.sample(sorted(names), len(names)):
            yield rng.uniform(1, 4), name, rng.getrandbits(32)
