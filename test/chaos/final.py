#!/usr/bin/env python3
"""What is left at the end: the tables, as JSON lines.

    final.py --history DIR --dsn DSN [--wait SECONDS]

Waits until everything that was sent is delivered or set aside, writes what entities have in memory, and reads. As a superuser, with no client at work.
"""
import argparse
import json
import os
import time

import psycopg

import history

# What is asked, and under which name it is in final.jsonl.
READINGS = {
    'effect': 'SELECT stream, n, token, shared, p, op, note FROM chaos.effect',
    'call': 'SELECT type, id, n, tag FROM chaos.call',
    'state': """
        SELECT 'strict' AS type, id, version, state FROM chaos.strict
        UNION ALL SELECT 'interval', id, version, state FROM chaos.interval
        UNION ALL SELECT 'on_stop', id, version, state FROM chaos.on_stop""",
    'page': "SELECT id, version, state, deleted FROM chaos.page UNION ALL SELECT id, version, state, deleted FROM chaos.page_history",
    'life': "SELECT id, version, state, deleted FROM chaos.mortal UNION ALL SELECT id, version, state, deleted FROM chaos.mortal_history",
    'serial': 'SELECT stream, n FROM chaos.serial',
    'guarded': 'SELECT n, token, p, op FROM chaos.guarded',
    'delivery': 'SELECT id, n, tag, hops, kind, sender, message_id, attempt FROM chaos.delivery',
    'message': 'SELECT message_id, type, id, kind, message, sender, state, attempts, sqlstate FROM revenant.messages',
    'step': 'SELECT plan, split, step, epoch, batch, p, op FROM chaos.step',
    'split': 'SELECT plan, split, state, epoch, worker, attempts, progress, spec, reasons, generation FROM revenant.splits',
    'plan': 'SELECT plan, state, generation, planned, done, quarantined, cursor, max_attempts FROM revenant.plans',
    'twin': 'SELECT task, token FROM chaos.twin',
    'beaten': 'SELECT token FROM chaos.beaten',
    'task': 'SELECT name, phase, token, runs, failures, last_error FROM revenant.tasks',
    'task_run': 'SELECT run, name, token, outcome FROM revenant.task_runs',
    'state_history': "SELECT 'strict' AS type, id, version, state FROM chaos.strict_history",
}
# A timer that a step of the wall clock has put off for longer than that is not waited for: it is there, and not delivered.
DUE = "SELECT count(*) FROM revenant.messages WHERE state IN ('pending', 'scheduled', 'retrying') AND coalesce(due_at, sent_at) < now() + interval '1 min'"


def settle(conn, seconds):
    """Whether everything that was sent has arrived within that time, or was given up."""
    end = time.monotonic() + seconds
    while conn.execute(DUE).fetchone()[0] > 0:
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


def read(conn, folder):
    """Writes final.jsonl: all of it as at one moment, since tasks go on."""
    path = os.path.join(folder, history.FINAL + '.jsonl')
    with open(path, 'w', encoding='utf-8') as file:
        for table, query in READINGS.items():
            with conn.cursor(name='reading') as cursor:
                cursor.itersize = 10000
                cursor.execute(query)
                names = [column.name for column in cursor.description]
                for row in cursor:
                    file.write(json.dumps({'table': table, **dict(zip(names, row))}, separators=(',', ':'), default=str) + '\n')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--history', required=True)
    parser.add_argument('--dsn', required=True)
    parser.add_argument('--wait', type=float, default=120)
    options = parser.parse_args()
    with psycopg.connect(options.dsn, prepare_threshold=None) as conn:
        conn.autocommit = True
        if not settle(conn, options.wait):
            print('not everything that was sent has been delivered')
        conn.execute('SELECT revenant.flush_entities()')
        conn.autocommit = False
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        read(conn, options.history)


if __name__ == '__main__':
    main()
