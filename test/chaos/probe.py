"""After a fault each capability works again, within a stated time and without a hand."""
import threading
import time

import psycopg
from psycopg.types.json import Jsonb

LIMIT = 30              # seconds after a fault was healed
PAUSE = 0.1


def lease(conn, key):
    """Acquired and released."""
    token, = conn.execute("SELECT revenant.try_acquire(%s, ttl => '10 s')", (key,)).fetchone()
    return token is not None and conn.execute('SELECT revenant.release(%s, %s)', (key, token)).fetchone()[0]


def entity(conn, key):
    """Called."""
    return conn.execute("SELECT revenant.call('probe', 'called', %s)", (Jsonb(key),)).fetchone()[0] == key


def message(conn, key):
    """Sent, and delivered."""
    conn.execute("SELECT revenant.send('probe', %s, %s)", (f'sent {threading.get_ident()}', Jsonb(key)))
    return until(conn, "SELECT state = to_jsonb(%s::text) FROM probe.entity WHERE id = %s", key, f'sent {threading.get_ident()}')


def task(conn, key):
    """It beats."""
    before, = conn.execute('SELECT beats FROM probe.beat').fetchone()
    return until(conn, 'SELECT beats > %s FROM probe.beat', before)


def split(conn, key):
    """Published, claimed and done."""
    generation, = conn.execute("SELECT revenant.lead_plan('probe', %s)", (key,)).fetchone()
    if generation is None:
        return False
    conn.execute("SELECT revenant.publish('probe', %s, %s)", (generation, Jsonb([{'id': key}])))
    done = False
    for name, epoch in conn.execute("SELECT split, epoch FROM revenant.claim_splits('probe', 'probe', 100)").fetchall():
        conn.execute("SELECT revenant.commit_split('probe', %s, %s, done => true)", (name, epoch))
        done = done or name == key
    conn.execute("SELECT revenant.resign_plan('probe', %s)", (generation,))
    return done


ALL = (lease, entity, message, task, split)


def until(conn, query, *arguments):
    """The query comes true, in a few seconds; else the probe begins again."""
    end = time.monotonic() + 5
    while time.monotonic() < end:
        row = conn.execute(query, arguments).fetchone()
        if row and row[0]:
            return True
        time.sleep(PAUSE)
    return False


def attempts(probe, dsn, key, result):
    """Again and again, each on a connection of its own, until it succeeds or its time is over."""
    begin, number, error = time.monotonic(), 0, None
    while time.monotonic() < begin + LIMIT:
        number += 1
        try:
            with psycopg.connect(dsn, autocommit=True, prepare_threshold=None, application_name='driver',
                                 options='-c statement_timeout=10s') as conn:
                if probe(conn, f'{key} {number}'):
                    result[probe.__name__] = {'ok': True, 'seconds': round(time.monotonic() - begin, 3), 'attempts': number}
                    return
                error = 'no'
        except psycopg.Error as failure:
            error = f'{failure.sqlstate} {failure}'.strip()
        time.sleep(PAUSE)
    result[probe.__name__] = {'ok': False, 'seconds': round(time.monotonic() - begin, 3), 'attempts': number, 'error': error}


def all_of_them(dsn, key):
    """{name: {ok, seconds, attempts, error}} of each, all at once."""
    result = {}
    threads = [threading.Thread(target=attempts, args=(probe, dsn, key, result)) for probe in ALL]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {name: {'limit': LIMIT, **facts} for name, facts in result.items()}
