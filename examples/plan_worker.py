#!/usr/bin/env python3
"""A worker: of all programs that run this, each split of the plan "example" is done by one, once.

    plan_worker.py WORKER

The connection comes from PGHOST, PGDATABASE and so on. See README.md here.
"""
import sys
import time

import psycopg

PLAN = 'example'
LATE = ('RV001', 'RV002')               # somebody else has the split, or may have it in a moment
worker = sys.argv[1]
claimed = None                          # (split, epoch, spec): when a connection breaks it may be done, or not


def work(conn, split, epoch, spec):
    """One transaction: the writes of a split, and that it is done. If somebody else has it, all of it rolls back."""
    with conn.transaction():
        conn.execute('SELECT revenant.fence_split(%s, %s, %s)', (PLAN, split, epoch))
        conn.execute('UPDATE customer SET points = points + 10 WHERE id BETWEEN %s AND %s', (spec['from'], spec['to']))
        conn.execute('SELECT revenant.commit_split(%s, %s, %s, done => true)', (PLAN, split, epoch))


def give_back(conn, split, epoch, reason=None):
    """Anybody can claim it anew, unless it is done or somebody else's already."""
    try:
        if reason is None:
            conn.execute('SELECT revenant.release_split(%s, %s, %s)', (PLAN, split, epoch))
        else:
            conn.execute('SELECT revenant.fail_split(%s, %s, %s, %s)', (PLAN, split, epoch, reason))
    except psycopg.DatabaseError as error:
        if error.sqlstate not in LATE:
            raise


def is_over(conn):
    return conn.execute("SELECT state IN ('complete', 'stalled') FROM revenant.plans WHERE plan = %s", (PLAN,)).fetchone()[0]


def step(conn):
    """Does one split, or waits for one. False: there will be none any more."""
    global claimed
    claimed = conn.execute('SELECT split, epoch, spec FROM revenant.claim_splits(%s, %s)', (PLAN, worker)).fetchone()
    if claimed is None:
        if is_over(conn):
            return False
        conn.execute("CALL revenant.await_splits(%s, NULL, '5 s')", (PLAN,))
        return True
    try:
        work(conn, *claimed)
        print('done:', claimed[0], flush=True)
    except psycopg.DatabaseError as error:
        if conn.closed:
            raise
        print('not done:', claimed[0], error.sqlstate, flush=True)
        if isinstance(error, psycopg.OperationalError):         # a deadlock, a timeout: nobody's fault
            give_back(conn, *claimed[:2])
        elif error.sqlstate not in LATE:
            give_back(conn, *claimed[:2], reason=str(error))
    return True


while True:
    try:
        with psycopg.connect(autocommit=True) as conn:
            if claimed is not None:     # from before the connection broke: never again by the same epoch
                give_back(conn, *claimed[:2])
            while step(conn):
                pass
        break
    except psycopg.OperationalError as error:
        print('connects again:', error.sqlstate, flush=True)
        time.sleep(0.2)
