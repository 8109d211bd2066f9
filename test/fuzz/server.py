"""A server under fuzz: what is in it, and what must be true of it whatever was sent.

test/harness/with-server starts it, in a new folder of its own, where its log is, too; PGHOST, PGPORT and PGUSER lead to it.
"""
import os
import re
import subprocess
import sys
import tempfile
import time

import psycopg
from psycopg.types.string import TextLoader

from log import Log

HERE = os.path.dirname(os.path.abspath(__file__))
SEED = int(os.environ.get('FUZZ_SEED', '1'))
SECONDS = float(os.environ.get('FUZZ_SECONDS', '20'))
KEEP = os.environ.get('FUZZ_KEEP')
DATABASES = ['fuzz', 'fuzz_ascii']
# A worker's memory, at most.
WORKER_BYTES = 256 << 20

# As the server writes it, whatever the session's styles and the database's encoding are.
for kind in ('interval', 'timestamptz', 'timestamp', 'date', 'json', 'jsonb'):
    psycopg.adapters.register_loader(kind, TextLoader)


def begin():
    """Runs this program once more, beside a new server."""
    programs = os.environ.pop('FUZZ_BIN', None)
    if programs is None:
        return
    harness = os.path.join(HERE, '..', 'harness')
    place = tempfile.mkdtemp(prefix='fuzz.')
    with open(os.path.join(place, 'added.conf'), 'w') as file:
        for path in (os.path.join(harness, 'server.conf'), os.path.join(HERE, 'server.conf')):
            file.write(open(path).read())
    os.environ['TEMP_CONFIG'] = file.name
    os.execv(os.path.join(harness, 'with-server'), ['with-server', programs, place, sys.executable, '-B', os.path.abspath(sys.argv[0])])


def connect(user=None, database='fuzz', **settings):
    options = ' '.join(f'-c {name}={value}' for name, value in settings.items())
    return psycopg.connect(user=user or os.environ['PGUSER'], dbname=database, autocommit=True, options=options, application_name='fuzz')


def ask(conn, query):
    """The first column of the first row."""
    return conn.execute(query).fetchone()[0]


class Server:
    """What must be true of the server, whatever was sent."""

    def __init__(self):
        self.log = Log(os.path.join(os.path.dirname(os.environ['PGHOST']), 'server.log'))
        folder = os.path.join(HERE, '..', '..', 'src')
        self.sources = {name: open(os.path.join(folder, name)).read() for name in os.listdir(folder) if name.endswith(('.c', '.h'))}
        with connect(database='postgres') as conn:
            self.major = conn.info.server_version // 10000
            self.started = ask(conn, 'SELECT extract(epoch FROM pg_postmaster_start_time())::float8')
        self.tokens = {}

    def raised(self, diag):
        """Whether it was revenant that raised an error. PostgreSQL has files of the same names."""
        source = self.sources.get(os.path.basename(diag.source_file or ''), '')
        name = re.escape((diag.source_function or '?').removesuffix('_body'))       # what SQL_FUNCTION defines
        return re.search(rf'^(SQL_FUNCTION\()?{name}\b', source, re.MULTILINE) is not None

    def make(self):
        """Roles and databases, unless they are there already."""
        with connect(database='postgres') as conn:
            if ask(conn, "SELECT count(*) FROM pg_database WHERE datname = 'fuzz'"):
                return
            for statement in open(os.path.join(HERE, 'roles.sql')).read().split(';\n'):
                if statement.strip():
                    conn.execute(statement)
            conn.execute("CREATE DATABASE fuzz")
            conn.execute("CREATE DATABASE fuzz_ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
        for database in DATABASES:
            with connect(database=database) as conn:
                conn.execute('CREATE EXTENSION revenant; CREATE SEQUENCE public.canary')
            self.restore(database)

    def restore(self, database):
        """Puts back what the calls have dropped."""
        done = subprocess.run(['psql', '-X', '-q', '-o', os.devnull, '-v', 'ON_ERROR_STOP=1', '-v', f'database={database}', '-d', database, '-f', os.path.join(HERE, 'world.sql')],
                              capture_output=True, text=True, errors='replace', env={**os.environ, 'PGCLIENTENCODING': 'UTF8' if database == 'fuzz' else 'SQL_ASCII'})
        return [] if done.returncode == 0 else [f'{database}: the world cannot be made again: {done.stderr}']

    def tidy(self, database):
        """Removes what the calls have left, so that no run grows without bound."""
        findings = []
        with connect(database=database, statement_timeout=60000, lock_timeout=30000) as conn:
            for query in ("SELECT revenant.revoke(lease) FROM revenant.leases WHERE scope = 'ttl' AND lease NOT LIKE 'task/%'",
                          "SELECT revenant.drop_task(name) FROM revenant.task WHERE name NOT IN ('canary') AND name NOT LIKE 'plan/%'",
                          "SELECT revenant.drop_plan(plan) FROM revenant.plan",
                          "SELECT revenant.drop_entity_type(type) FROM revenant.entity_type WHERE type NOT IN ('account', 'page')",
                          "SELECT revenant.discard_message(message_id) FROM revenant.messages WHERE state <> 'waiting'",
                          "SELECT revenant.unguard_table(g) FROM (SELECT DISTINCT t.tgrelid FROM pg_catalog.pg_trigger AS t WHERE t.tgfoid = 'revenant._guard'::regproc AND t.tgparentid = 0) AS o (g)",
                          "TRUNCATE fz.planned, fz.guarded",
                          "DELETE FROM revenant.task_run WHERE started_at < now() - interval '1 min'"):
                try:
                    conn.execute(query)
                except psycopg.Error as error:
                    findings.append(f'{database}: {query}: {error.sqlstate} {error}')
        return findings

    def look(self, database):
        """Findings; none are what is hoped for."""
        findings = []
        try:
            with connect(database=database, statement_timeout=60000) as conn:
                if ask(conn, 'SELECT extract(epoch FROM pg_postmaster_start_time())::float8') != self.started:
                    findings.append('the server was restarted')
                views = [row[0] if isinstance(row[0], str) else row[0].decode() for row in conn.execute("SELECT c.oid::regclass::text FROM pg_class AS c WHERE relnamespace = 'revenant'::regnamespace AND relkind = 'v' ORDER BY 1").fetchall()]
                for view in views:
                    conn.execute(f'SELECT * FROM {view}').fetchall()
                conn.execute('SELECT * FROM revenant.events()').fetchall()
                token = ask(conn, "SELECT revenant.try_acquire_xact('fuzz/probe')")
                if token is None or token <= self.tokens.get(database, 0):
                    findings.append(f'{database}: token {token} came after {self.tokens.get(database)}')
                self.tokens[database] = token or 0
                for state, what in conn.execute("""SELECT sqlstate, message FROM revenant.task_runs WHERE sqlstate LIKE 'XX%' UNION SELECT sqlstate, error FROM revenant.messages WHERE sqlstate LIKE 'XX%'""").fetchall():
                    findings.append(f'{database}: a run or a message failed with {state}: {what}')
                findings += self.alive(conn, database)
                if database == 'fuzz':
                    findings += self.workers(conn)
        except psycopg.Error as error:
            findings.append(f'{database}: {error.sqlstate} {error}')
        return findings

    @staticmethod
    def alive(conn, database):
        """The supervisor is there, and runs a task."""
        before = ask(conn, 'SELECT last_value FROM public.canary')
        end = time.monotonic() + 90
        problem = 'the canary task does not run'
        while time.monotonic() < end:
            supervision = ask(conn, 'SELECT revenant._supervision()')
            if supervision is None and ask(conn, 'SELECT last_value FROM public.canary') > before:
                return []
            problem = supervision or problem
            time.sleep(0.1)
        row = conn.execute("SELECT phase, reason, last_error, next_run FROM revenant.tasks WHERE name = 'canary'").fetchone()
        return [f'{database}: {problem}: {row}']

    @staticmethod
    def workers(conn):
        """How much memory the processes that stay have."""
        findings = []
        for pid, kind in conn.execute("SELECT pid, backend_type FROM pg_stat_activity WHERE backend_type LIKE 'revenant%'").fetchall():
            try:
                status = open(f'/proc/{pid}/status').read()
            except OSError:
                continue
            size = re.search(r'RssAnon:\s*(\d+)', status)         # not of one that is about to end
            if size and int(size.group(1)) * 1024 > WORKER_BYTES:
                findings.append(f'{kind} has {size.group(1)} kB')
        return findings


def tap(number, good, name, findings=()):
    print(f'{"" if good else "not "}ok {number} - {name}', flush=True)
    for finding in findings:
        print('# ' + finding.replace('\n', '\n# '), file=sys.stderr, flush=True)
