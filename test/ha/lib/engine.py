"""pg_auto_failover on loopback: a monitor and two nodes, each with its pg_autoctl, below one folder.

What pg_autoctl needs of its surroundings (its configuration, its state, sockets, the server's programs)
is below that folder, too, so any unprivileged user can run it, and several at a time.
"""
import os
import signal
import socket
import subprocess
import time

import psycopg

# Everything is shortened, in the order that the defaults have: a primary that is cut off stops itself before the other node takes writes. It does so when it has heard neither of
# the monitor nor of the standby for network_partition_timeout, and it has a standby until wal_sender_timeout ends that connection; the loop of pg_autoctl adds some 4 s, when it has to wait for
# connections that nobody answers. The other node waits until the primary is found unhealthy, and then for primary_demote_timeout.
MONITOR_SETTINGS = {
    'health_check_period': 500,                     # 5 s by default
    'health_check_timeout': 1000,                   # 5 s
    'health_check_max_retries': 1,                  # 2
    'health_check_retry_delay': 250,                # 2 s
    'node_considered_unhealthy_timeout': 2500,      # 20 s
    'primary_demote_timeout': 8000,                 # 30 s
    'startup_grace_period': 1000,                   # 10 s
}
NETWORK_PARTITION_TIMEOUT = 2                       # seconds; 20 by default

# pg_autoctl sizes shared_buffers and the like after the machine, in a file that it includes first: what
# comes later in postgresql.conf wins. It says shared_preload_libraries there as well.
SERVER_SETTINGS = """
fsync = off
jit = off
max_connections = 60
shared_buffers = '32MB'
wal_keep_size = '256MB'
max_worker_processes = 24
unix_socket_directories = '{sockets}'
log_line_prefix = '%m [%p] %b %q%a %d '
"""
NODE_SETTINGS = """
shared_preload_libraries = 'revenant'
wal_sender_timeout = '4s'                           # pg_autoctl says 30 s
revenant.max_runners = 8
log_lock_waits = on
"""
PATIENCE = 180                                      # seconds for any single thing, on a machine that is busy


class Trouble(Exception):
    """The engine is not where it should be."""


def wait_until(what, condition, seconds=PATIENCE, every=0.1):
    """Returns what condition() returned as soon as that is true."""
    end = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > end:
            raise Trouble(f'{seconds} s have passed, and still not: {what}')
        time.sleep(every)


def free_ports(count):
    """So many that nobody listens on; below the range from which clients get theirs."""
    found = []
    candidate = 20000 + os.getpid() * 7 % 10000
    while len(found) < count:
        candidate += 1
        with socket.socket() as probe:
            try:
                probe.bind(('127.0.0.1', candidate))
            except OSError:
                continue
        found.append(candidate)
    return found


def alive(pid):
    """Whether it runs: one that nobody has waited for yet does not."""
    try:
        with open(f'/proc/{pid}/stat', encoding='ascii', errors='replace') as stat:
            return stat.read().rpartition(')')[2].split()[0] not in 'ZX'
    except (FileNotFoundError, ProcessLookupError):
        return False


class Service:
    """One pg_autoctl and the PostgreSQL that it runs, in a session of their own."""

    def __init__(self, engine, name, port, hostname='127.0.0.1', listen='127.0.0.1'):
        self.engine = engine
        self.name = name
        self.port = port
        self.hostname = hostname                    # where others find it
        self.listen = listen                        # where it is
        self.data = f'{engine.place}/{name}'
        self.process = None

    def initdb(self, settings):
        self.engine.command('initdb', '-D', self.data, '-A', 'trust', '-N', '--no-locale', '-E', 'UTF8')
        self.configure(SERVER_SETTINGS.format(sockets=self.engine.sockets) + settings)

    def configure(self, settings):
        with open(f'{self.data}/postgresql.conf', 'a', encoding='utf-8') as conf:
            conf.write(settings)

    def allow_all(self):
        """Every address of the loopback network may connect: pg_autoctl would allow single ones, as they come."""
        with open(f'{self.data}/pg_hba.conf', 'a', encoding='utf-8') as hba:
            hba.write('host all all 127.0.0.0/8 trust\nhost replication all 127.0.0.0/8 trust\n')

    def option(self, name, value):
        self.engine.command('pg_autoctl', 'config', 'set', '--pgdata', self.data, name, str(value))

    def start(self):
        with open(f'{self.engine.place}/{self.name}.log', 'ab') as log:
            self.process = subprocess.Popen(['pg_autoctl', 'run', '--pgdata', self.data], env=self.engine.environment,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def postmaster(self):
        try:
            with open(f'{self.data}/postmaster.pid', encoding='ascii') as file:
                return int(file.readline())
        except (FileNotFoundError, ValueError):
            return None

    def keepers(self):
        """The processes of pg_autoctl, without PostgreSQL's."""
        server = self.postmaster()
        found = []
        for entry in os.listdir('/proc'):
            if entry.isdigit() and int(entry) != server:
                try:
                    if os.getsid(int(entry)) == self.process.pid and alive(entry):
                        found.append(int(entry))
                except ProcessLookupError:
                    pass
        return found

    def signal_keepers(self, number):
        for pid in self.keepers():
            os.kill(pid, number)

    def kill(self):
        """kill -9 of pg_autoctl, so that nobody starts the server again, and of the postmaster. Returns when that was."""
        server = self.postmaster()
        self.signal_keepers(signal.SIGKILL)
        at = time.time()
        os.kill(server, signal.SIGKILL)
        self.process.wait()
        return at

    def stop(self):
        if self.process is None:
            return
        self.signal_keepers(signal.SIGCONT)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.signal_keepers(signal.SIGKILL)
        server = self.postmaster()
        if server and alive(server):
            os.kill(server, signal.SIGQUIT)
        self.process = None

    def dsn(self, more=''):
        return f'host={self.listen} port={self.port} dbname=postgres user={self.engine.user} connect_timeout=2 {more}'

    def connect(self, **more):
        return psycopg.connect(self.dsn(), autocommit=True, **more)

    def ask(self, query, *arguments):
        """The first row, in a connection of its own."""
        with self.connect() as connection:
            return connection.execute(query, arguments or None).fetchone()

    def leads(self):
        """Whether it answers, and is no standby."""
        try:
            return not self.ask('SELECT pg_is_in_recovery()')[0]
        except psycopg.OperationalError:
            return False


class Engine:
    """The monitor, and the nodes."""

    def __init__(self, place, user):
        self.place = place
        self.user = user
        self.sockets = f'{place}/s'
        self.environment = dict(os.environ, HOME=place, XDG_CONFIG_HOME=f'{place}/config', XDG_DATA_HOME=f'{place}/share',
                                XDG_RUNTIME_DIR=f'{place}/run')
        os.makedirs(self.sockets)
        os.makedirs(f'{place}/run')
        ports = free_ports(3)
        self.monitor = Service(self, 'monitor', ports[0])
        self.nodes = [Service(self, 'node1', ports[1]), Service(self, 'node2', ports[2])]
        # where each node finds the monitor: a test can put something in between
        self.monitor_address = {node.name: ('127.0.0.1', ports[0]) for node in self.nodes}

    def command(self, *words):
        with open(f'{self.place}/commands.log', 'ab') as log:
            log.write(f'$ {" ".join(words)}\n'.encode())
            log.flush()
            if subprocess.run(words, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=PATIENCE, check=False).returncode:
                raise Trouble(f'failed: {" ".join(words)}')

    def start(self, settings=''):
        """Returns when the monitor has a primary and a secondary, and replication is synchronous."""
        pg_ctl = f'{subprocess.check_output(["pg_config", "--bindir"], text=True).strip()}/pg_ctl'
        common = ('--auth', 'trust', '--no-ssl', '--pgctl', pg_ctl)
        self.monitor.initdb(''.join(f'pgautofailover.{name} = {value}\n' for name, value in MONITOR_SETTINGS.items()))
        self.monitor.allow_all()
        self.command('pg_autoctl', 'create', 'monitor', '--pgdata', self.monitor.data, '--pgport', str(self.monitor.port),
                     '--hostname', '127.0.0.1', *common)
        self.monitor.option('postgresql.listen_addresses', '127.0.0.1')
        self.monitor.start()
        wait_until('the monitor answers', self.monitor.leads)
        self.nodes[0].initdb(NODE_SETTINGS + settings)
        self.nodes[0].allow_all()
        for node in self.nodes:
            host, port = self.monitor_address[node.name]
            self.command('pg_autoctl', 'create', 'postgres', '--pgdata', node.data, '--pgport', str(node.port), '--name', node.name,
                         '--hostname', node.hostname, '--listen', node.listen, '--pghost', self.sockets, '--maximum-backup-rate', '1000M',
                         '--monitor', f'postgres://autoctl_node@{host}:{port}/pg_auto_failover?sslmode=prefer&connect_timeout=2', *common)
            node.option('timeout.network_partition_timeout', NETWORK_PARTITION_TIMEOUT)
            node.start()
            if node is self.nodes[0]:
                wait_until('the first node leads', node.leads)
        return self.settled()

    def states(self):
        """{name: (reported, goal)}, as the monitor has it."""
        query = 'SELECT nodename, reportedstate::text, goalstate::text FROM pgautofailover.node'
        with psycopg.connect(self.monitor.dsn().replace('dbname=postgres', 'dbname=pg_auto_failover')) as connection:
            return {name: (reported, goal) for name, reported, goal in connection.execute(query)}

    def primary(self):
        """The only node that leads."""
        leading = [node for node in self.nodes if node.leads()]
        return leading[0] if len(leading) == 1 else None

    def other(self, node):
        return self.nodes[1] if node is self.nodes[0] else self.nodes[0]

    def settled(self):
        """Waits until one is primary and the other one secondary, on whom its commits wait. Returns the two."""
        def condition():
            if sorted(self.states().values()) != [('primary', 'primary'), ('secondary', 'secondary')]:
                return None
            node = self.primary()
            if node is None or not node.ask("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state IN ('sync', 'quorum')")[0]:
                return None
            return node, self.other(node)
        return wait_until('a primary and a secondary', condition, every=0.3)

    @staticmethod
    def caught_up(standby, primary):
        """Waits until the standby has replayed what the primary has written by now."""
        end = primary.ask('SELECT pg_current_wal_insert_lsn()::text')[0]
        wait_until('the standby has all', lambda: standby.ask(f"SELECT pg_last_wal_replay_lsn() >= '{end}'")[0])

    def perform_failover(self):
        """As an administrator would; returns when it was asked for. Does not wait for its end."""
        at = time.time()
        with open(f'{self.place}/commands.log', 'ab') as log:
            command = subprocess.Popen(['pg_autoctl', 'perform', 'failover', '--pgdata', self.monitor.data], env=self.environment,
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return at, command

    def dsn(self, more=''):
        """Follows whoever leads."""
        hosts = ','.join(node.listen for node in self.nodes)
        ports = ','.join(str(node.port) for node in self.nodes)
        return f'host={hosts} port={ports} dbname=postgres user={self.user} target_session_attrs=read-write connect_timeout=2 {more}'

    def stop(self):
        for service in [*self.nodes, self.monitor]:
            service.stop()
