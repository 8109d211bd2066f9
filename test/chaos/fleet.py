"""Two servers, one of which follows the other, and a pooler before the one that accepts writes."""
import os
import re
import shutil
import signal
import struct
import subprocess
import threading
import time

import psycopg

from scratch import kill, parent_of, processes, remove_shared_memory, shared_memory_of, wait_until

DATABASE = 'chaos'
START_LIMIT = 60        # seconds for a server to start, or to come back by itself, and accept writes
STOP_LIMIT = 60         # ... to shut down
DISK_SIZE = 1 << 30     # bytes of a server's file system, where it has one of its own

SETTINGS = '''
checkpoint_timeout = '30 s'
hot_standby_feedback = on
jit = off
listen_addresses = ''
log_line_prefix = '%m [%p] %e %b %a: '
max_connections = 60
max_parallel_workers = 14
max_wal_senders = 5
max_wal_size = '128 MB'
max_worker_processes = 14
min_wal_size = '64 MB'
restart_after_crash = on
revenant.max_runners = 6
revenant.shared_memory = '8 MB'
shared_buffers = '32 MB'
shared_preload_libraries = 'revenant'
wal_keep_size = '192 MB'
wal_level = replica
wal_log_hints = on
wal_receiver_status_interval = '1 s'
wal_retrieve_retry_interval = '500 ms'
'''


class Node:
    """One server: its data folder, its processes, its clock and its disk."""

    def __init__(self, fleet, name, port, disk):
        self.fleet, self.scratch, self.name, self.port = fleet, fleet.scratch, name, port
        self.log = self.scratch.path('log', f'{name}.log')
        self.disk = self.scratch.mount(f'disk-{name}', DISK_SIZE) if disk else None
        self.data = os.path.join(self.disk or self.scratch.folder, f'data-{name}')
        self.shim = self.scratch.path(f'shim-{name}')
        self.ahead = self.greatest_ahead = self.slow = 0
        self.postmaster = None
        self.shared_files, self.shared_segments = set(), set()
        self.bend(0, 0)

    # ---- what it believes of the world

    def bend(self, ahead=None, slow=None):
        """Sets its wall clock so many seconds ahead of the true one, and each of its fsyncs to take so many seconds longer, at once."""
        self.ahead = self.ahead if ahead is None else ahead
        self.slow = self.slow if slow is None else slow
        self.greatest_ahead = max(self.greatest_ahead, self.ahead)
        with open(self.shim, 'r+b' if os.path.exists(self.shim) else 'wb') as file:
            file.write(struct.pack('=qq', int(self.ahead * 1e6), int(self.slow * 1e6)))
        self.scratch.own(self.shim)

    # ---- connections

    def conninfo(self, user='postgres', database='postgres'):
        return f'host={self.fleet.sockets} port={self.port} user={user} dbname={database} connect_timeout=5'

    def connect(self, database='postgres', **more):
        return psycopg.connect(self.conninfo(database=database), autocommit=True, prepare_threshold=None, application_name='driver', **more)

    def ask(self, query, arguments=None, database='postgres'):
        """All rows, or None if there is no answer."""
        try:
            with self.connect(database) as conn:
                return conn.execute(query, arguments).fetchall()
        except psycopg.Error:
            return None

    def writable_at(self):
        """The monotonic time at which it accepted a write, or None."""
        try:
            with self.connect(DATABASE) as conn:
                conn.execute('SELECT pg_current_xact_id()')
                return time.monotonic_ns()
        except psycopg.Error:
            return None

    # ---- its processes

    def processes(self):
        """All that work in its data folder, children that outlived a postmaster included."""
        found = []
        for pid in processes():
            try:
                if os.readlink(f'/proc/{pid}/cwd') == self.data:
                    found.append(pid)
            except OSError:
                pass
        return found

    def children(self):
        return [pid for pid in self.processes() if self.postmaster and parent_of(pid) == self.postmaster.pid]

    def alive(self):
        return self.postmaster is not None and self.postmaster.poll() is None

    def launch(self):
        primary = self.fleet.other(self)
        self.postmaster = self.scratch.spawn(
            [self.fleet.program('postgres'), '-D', self.data, '-p', str(self.port), '-k', self.fleet.sockets,
             '-c', f'primary_conninfo=host={self.fleet.sockets} port={primary.port} user=postgres application_name={self.name}',
             '-c', f'revenant.node_name={self.name}'],
            self.log, {'LD_PRELOAD': self.fleet.shim_library, 'CHAOS_SHIM': self.shim})

    def note_shared_memory(self):
        """What a kill would leave: the next start removes it, if there is one."""
        for pid in self.processes():
            self.shared_files |= shared_memory_of(pid)
        try:
            with open(os.path.join(self.data, 'postmaster.pid'), encoding='ascii', errors='replace') as file:
                self.shared_segments.add(file.read().split('\n')[6].split()[1])
        except (OSError, IndexError):
            pass

    def start(self, writes=True):
        """
        Starts the postmaster, again if it cannot yet (children of a killed one are there still); returns the time at which the server
        accepts writes, or connections where it is to follow.
        """
        begin = time.monotonic()
        while time.monotonic() < begin + START_LIMIT:
            if not self.alive():
                self.launch()
            at = self.writable_at() if writes else self.ask('SELECT 1') and time.monotonic_ns()
            if at:
                return at
            time.sleep(0.1)
        raise RuntimeError(f'{self.name} accepts no {"writes" if writes else "connections"} {START_LIMIT} s after its start')

    def back(self):
        """Waits for a server that comes back by itself; starts the postmaster only if that is gone."""
        return self.start()

    def stop(self, number):
        """A shutdown, by SIGINT (fast) or SIGQUIT (immediate); returns how many seconds it took."""
        if not self.alive():
            return 0.0
        begin = time.monotonic()
        kill(self.postmaster.pid, signal.SIGCONT)
        kill(self.postmaster.pid, number)
        try:
            self.postmaster.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f'{self.name} has not stopped {STOP_LIMIT} s after signal {number}') from None
        return time.monotonic() - begin

    def kill_postmaster(self):
        """Its children find out by themselves. note_shared_memory() comes before."""
        self.postmaster.kill()
        self.postmaster.wait()

    def kill_all(self):
        """As if the machine had gone, but for what the kernel has in its cache."""
        self.kill_postmaster()
        while self.processes():
            for pid in self.processes():
                kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def wipe(self):
        self.note_shared_memory()
        shutil.rmtree(self.data, ignore_errors=True)
        remove_shared_memory(self.shared_files, self.shared_segments)


class Pooler:
    """pgbouncer in transaction mode. It leads to one server until it is told of another."""

    def __init__(self, fleet):
        self.fleet, self.scratch, self.port = fleet, fleet.scratch, 6432
        self.ini, self.users = self.scratch.path('pooler.ini'), self.scratch.path('pooler.users')
        self.process = None

    def point_to(self, node):
        with open(self.users, 'w', encoding='ascii') as file:
            file.write('"pooled" ""\n"postgres" ""\n')
        with open(self.ini + '.new', 'w', encoding='ascii') as file:
            file.write(f'''[databases]
{DATABASE} = host={self.fleet.sockets} port={node.port}
[pgbouncer]
listen_addr =
listen_port = {self.port}
unix_socket_dir = {self.fleet.sockets}
auth_type = trust
auth_file = {self.users}
admin_users = postgres
pool_mode = transaction
default_pool_size = 8
max_client_conn = 200
server_login_retry = 1
server_connect_timeout = 5
query_wait_timeout = 60
ignore_startup_parameters = extra_float_digits
''')
        os.rename(self.ini + '.new', self.ini)
        for file in self.ini, self.users:
            self.scratch.own(file)
        self.reload()

    def start(self):
        self.process = self.scratch.spawn(['/usr/sbin/pgbouncer', '-q', self.ini], self.scratch.path('log', 'pooler.log'))

    def reload(self):
        if self.process is not None:
            kill(self.process.pid, signal.SIGHUP)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()


class Fleet:
    """Who is the primary, and what is done to make it another one."""

    def __init__(self, scratch, server, disks, fsync):
        self.scratch, self.server, self.fsync = scratch, server, fsync
        scratch.make('log')
        self.sockets = scratch.make('s')
        self.shim_library = scratch.path('shim.so')
        scratch.run(['gcc', '-O2', '-shared', '-fPIC', '-o', self.shim_library, scratch.path('chaos', 'shim.c'), '-ldl'], scratch.path('log', 'shim'))
        self.nodes = [Node(self, 'a', 5432, disks), Node(self, 'b', 5433, disks)]
        self.primary, self.standby = self.nodes
        self.pooler = Pooler(self)
        self.ended = threading.Event()

    def program(self, name):
        return os.path.join(self.server, 'bin', name)

    def other(self, node):
        return self.nodes[1 - self.nodes.index(node)]

    def dsn(self, user='app'):
        """Leads to whichever server accepts writes."""
        return (f'host={self.sockets},{self.sockets} port={self.nodes[0].port},{self.nodes[1].port} dbname={DATABASE} user={user}'
                ' target_session_attrs=read-write connect_timeout=5')

    def dsn_pooled(self):
        return f'host={self.sockets} port={self.pooler.port} dbname={DATABASE} user=pooled connect_timeout=5'

    # ---- the beginning and the end

    def create(self):
        node = self.primary
        self.scratch.run([self.program('initdb'), '-D', node.data, '-U', 'postgres', '-A', 'trust', '-N', '--no-locale', '-E', 'UTF8'],
                         self.scratch.path('log', 'initdb'))
        with open(os.path.join(node.data, 'postgresql.conf'), 'a', encoding='ascii') as file:
            file.write(SETTINGS + f'fsync = {"on" if self.fsync else "off"}\n')
        node.launch()
        if not wait_until(lambda: node.ask('SELECT 1'), START_LIMIT):
            raise RuntimeError(f'{node.name} does not start, see {node.log}')
        with node.connect() as conn:
            conn.execute(f'CREATE DATABASE {DATABASE}')
        for name in 'schema.sql', 'probe.sql':
            self.scratch.run([self.program('psql'), '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', node.conninfo(database=DATABASE), '-f', self.scratch.path('chaos', name)],
                             self.scratch.path('log', name))
        self.pooler.point_to(node)
        self.pooler.start()
        self.follow('basebackup')

    def stop(self):
        self.ended.set()
        self.pooler.stop()
        for node in self.standby, self.primary:
            node.stop(signal.SIGINT)

    def close(self):
        """Whatever state it is in."""
        self.ended.set()
        for node in self.nodes:
            node.note_shared_memory()
        self.scratch.sweep()
        for node in self.nodes:
            remove_shared_memory(node.shared_files, node.shared_segments)

    # ---- replication

    def streaming(self):
        rows = self.primary.ask("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming' AND application_name = %s", (self.standby.name,))
        return bool(rows)

    def caught_up(self):
        """The standby has replayed what the primary had inserted a moment ago."""
        rows = self.primary.ask('SELECT pg_current_wal_insert_lsn()')
        return bool(rows) and wait_until(
            lambda: self.standby.ask('SELECT pg_last_wal_replay_lsn() >= %s', rows[0]) == [(True,)], START_LIMIT)

    def follow(self, how):
        """Makes the standby anew, from its own files (rewind) or none (basebackup); returns how it was made."""
        standby, source = self.standby, self.primary.conninfo()
        log = self.scratch.path('log', f'follow-{standby.name}')
        if how == 'rewind':
            self.primary.ask('CHECKPOINT')      # or pg_rewind would not see the new timeline
            try:
                self.scratch.run([self.program('pg_rewind'), '-D', standby.data, f'--source-server={source}', '--no-sync'], log)
            except RuntimeError as error:
                how = f'basebackup after: {str(error).strip().splitlines()[-1]}'
        if how != 'rewind':
            standby.wipe()
            self.scratch.run([self.program('pg_basebackup'), '-D', standby.data, '-d', source, '-c', 'fast', '-X', 'stream', '--no-sync'], log)
        with open(os.path.join(standby.data, 'standby.signal'), 'w', encoding='ascii'):
            pass
        self.scratch.own(os.path.join(standby.data, 'standby.signal'))
        standby.start(writes=False)
        if not wait_until(self.streaming, START_LIMIT):
            raise RuntimeError(f'{standby.name} does not stream {START_LIMIT} s after it was made by {how}')
        return how

    def cut_off(self):
        """Stops the standby's walreceiver: whatever the primary commits from now on does not arrive. Returns its process id."""
        rows = self.standby.ask("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walreceiver'")
        if not rows:
            raise RuntimeError('the standby has no walreceiver')
        kill(rows[0][0], signal.SIGSTOP)
        return rows[0][0]

    def promote(self, receiver):
        """
        The standby that was cut off becomes the primary. Its receiver is to end before it reads what still lies in its socket: a signal
        that waits for a stopped process comes first. Returns the time at which it accepts writes, the new timeline and where that begins.
        """
        kill(receiver, signal.SIGTERM)
        kill(receiver, signal.SIGCONT)
        self.primary, self.standby = self.standby, self.primary
        if not wait_until(lambda: self.primary.ask('SELECT pg_promote(wait => false)'), START_LIMIT):
            raise RuntimeError(f'{self.primary.name} cannot be promoted')
        up = wait_until(self.primary.writable_at, START_LIMIT)
        if not up:
            raise RuntimeError(f'{self.primary.name} accepts no writes {START_LIMIT} s after its promotion')
        self.pooler.point_to(self.primary)
        timeline = self.primary.ask("SELECT ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int")[0][0]
        with open(os.path.join(self.primary.data, 'pg_wal', f'{timeline:08X}.history'), encoding='ascii') as file:
            switch = [line.split() for line in file if re.match(r'\d', line)][-1][1]
        return up, timeline, switch

    # ---- what the primary has written so far

    def sample_wal(self, note):
        """Every 100 ms, in a thread of its own, until the end. A sample's time is that before it was asked for: what was committed by then is below it."""
        conn = None
        while not self.ended.wait(0.1):
            try:
                if conn is None or conn.closed:
                    conn = psycopg.connect(self.dsn('postgres'), autocommit=True, prepare_threshold=None, application_name='driver')
                begun = time.monotonic_ns()
                row = conn.execute("SELECT pg_current_wal_insert_lsn()::text, ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int").fetchone()
                note({'t': begun, 'lsn': row[0], 'tli': row[1]})
            except psycopg.Error:
                if conn is not None:
                    conn.close()
                conn = None
        if conn is not None:
            conn.close()
