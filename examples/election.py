#!/usr/bin/env python3
"""An election: of all programs that run this, one at a time appends to the table "work".

    election.py CANDIDATE [TTL_SECONDS]

The connection comes from PGHOST, PGDATABASE and so on. See README.md here.
"""
import sys
import time

import psycopg

ELECTION = 'example'
candidate = sys.argv[1]
ttl = float(sys.argv[2]) if len(sys.argv) > 2 else 30.0


def ask(conn, call, *arguments):
    """One call of claim() or refresh(): (is_leader, token, seconds until the next one)."""
    return conn.execute(
        'SELECT is_leader, token, extract(epoch FROM refresh_after)::float8 FROM revenant.' + call,
        arguments).fetchone()


def work(conn, token):
    """One transaction of what only a leader may do. If fence() returns, nobody else leads before it ends."""
    with conn.transaction():
        conn.execute('SELECT revenant.fence(%s, %s)', (ELECTION, token))
        conn.execute('INSERT INTO work (candidate, token) VALUES (%s, %s)', (candidate, token))


def run(conn):
    token = None
    while True:
        sent = time.monotonic()         # one's own deadline counts from before the request
        if token is None:
            leads, token, after = ask(conn, "claim(%s, %s, make_interval(secs => %s))", ELECTION, candidate, ttl)
        else:
            leads, token, after = ask(conn, 'refresh(%s, %s)', ELECTION, token)
        print('leads' if leads else 'waits', flush=True)
        while leads and time.monotonic() < sent + after:
            work(conn, token)
            time.sleep(0.02)
        if not leads:
            time.sleep(after)


while True:
    try:
        with psycopg.connect(autocommit=True) as conn:
            run(conn)
    except psycopg.Error as error:      # RV001, RV002: somebody else leads now; else the connection
        print('lost:', error.sqlstate, flush=True)
        time.sleep(0.1)
