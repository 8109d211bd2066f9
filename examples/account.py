#!/usr/bin/env python3
"""An account: deposits that are made once, whatever happens to the connection.

    account.py ACCOUNT AMOUNT

The connection comes from PGHOST, PGDATABASE and so on. See README.md here.
"""
import sys
import time
import uuid

import psycopg
from psycopg.types.json import Jsonb

ATTEMPTS = 60
account = sys.argv[1]
amount = int(sys.argv[2])


def once(request_id):
    """One transaction; it commits at the end of the block. What it returns is true from then on."""
    with psycopg.connect() as conn:
        return conn.execute("SELECT revenant.call('account', %s, %s, request_id => %s)",
                            (account, Jsonb({'do': 'deposit', 'amount': amount}), request_id)).fetchone()[0]


def deposit():
    """The balance after it. The same request again is answered again, and not done again."""
    request_id = uuid.uuid4()           # before the first attempt: it stands for this one deposit
    for _ in range(ATTEMPTS):
        try:
            return once(request_id)
        except psycopg.OperationalError as error:
            # the connection, a failover, a deadlock, a timeout: it is done, or it is not
            print('asks again:', error.sqlstate, flush=True)
            time.sleep(0.5)
    raise TimeoutError('nobody knows whether it is done')


print('balance:', deposit(), flush=True)
