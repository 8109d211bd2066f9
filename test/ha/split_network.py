#!/usr/bin/env python3
"""A primary that is cut off from its standby and from the monitor, with clients on both sides.

First pg_autoctl does what it is there for: the primary stops itself before the standby takes writes. Then it cannot, as it is stopped itself: two servers lead, and each claim of
docs/high-availability.md about what the two answer is looked at. In the end they are one cluster again.
"""
import os
import signal
import sys
import threading
import time

import psycopg

sys.path.insert(0, f'{os.path.dirname(os.path.abspath(__file__))}/lib')
import engine as ha                                 # noqa: E402
import tap as taps                                  # noqa: E402
from wire import Wire                               # noqa: E402

SCHEMA = """
CREATE EXTENSION revenant;
CREATE TABLE ledger (side text, token bigint);
CREATE TABLE work (side text, split text);
SELECT revenant.guard_table('ledger', 'kept');
SELECT revenant.create_snapshot_table('counters');
CREATE FUNCTION count_one(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE plpgsql AS $$
BEGIN
    RETURN (to_jsonb(state::bigint + 1), to_jsonb(state::bigint + 1), NULL)::revenant.reply;
END $$;
SELECT revenant.create_entity_type('strict', 'counters', 'count_one', initial_state => '0');
SELECT revenant.create_snapshot_table('relaxed_counters');
SELECT revenant.create_entity_type('relaxed', 'relaxed_counters', 'count_one', initial_state => '0', durability => 'interval', flush_every => '1 h');
SELECT revenant.create_plan('job', lease_ttl => '10 min');
-- does nothing in the database: what it does outside is its token, in a file
CREATE PROCEDURE outside(file text) LANGUAGE plpgsql AS $$
BEGIN
    LOOP
        EXECUTE format('COPY (SELECT %L, revenant.current_token()) TO PROGRAM %L', current_setting('port'), 'cat >> ' || file);
        COMMIT;
        PERFORM pg_sleep(0.2);
    END LOOP;
END $$;
"""


class Hanging(threading.Thread):
    """A transaction whose COMMIT is not answered."""

    def __init__(self, node, name, *statements):
        super().__init__(daemon=True)
        self.node, self.name, self.statements = node, name, statements
        self.confirmed = False
        self.error = None
        self.start()

    def run(self):
        try:
            with psycopg.connect(self.node.dsn(f"application_name='{self.name}'")) as connection:
                for statement in self.statements:
                    connection.execute(statement)
                connection.commit()
                self.confirmed = True
        except psycopg.Error as error:
            self.error = error

    def waits(self):
        """It has got as far as its commit, and waits for the standby."""
        return self.node.ask("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND wait_event = 'SyncRep'", self.name)[0] == 1


class Renewing(threading.Thread):
    """Goes on renewing a lease on one server."""

    def __init__(self, node, lease, token):
        super().__init__(daemon=True)
        self.node, self.lease, self.token = node, lease, token
        self.answers = []
        self.over = False
        self.start()

    def run(self):
        with self.node.connect() as connection:
            while not self.over:
                self.answers.append(connection.execute('SELECT revenant.renew(%s, %s) IS NOT NULL', (self.lease, self.token)).fetchone()[0])
                time.sleep(0.2)


class Split:
    def __init__(self, tap, place):
        self.tap = tap
        self.place = place
        self.engine = ha.Engine(f'{place}/e', taps.user())
        self.wires = []

    def start(self):
        """The first node is reached, and reaches the monitor, by wires."""
        first, second = self.engine.nodes
        monitor = self.engine.monitor
        first.hostname, second.hostname = '127.0.0.2', '127.0.0.3'
        self.engine.monitor_address[first.name] = ('127.0.0.4', monitor.port)
        self.engine.monitor_address[second.name] = ('127.0.0.5', monitor.port)
        here = {node.name: [Wire((node.hostname, node.port), (node.listen, node.port)),
                            Wire(self.engine.monitor_address[node.name], ('127.0.0.1', monitor.port))] for node in (first, second)}
        self.wires = here
        return self.engine.start()

    def cut(self, node):
        for wire in self.wires[node.name]:
            wire.cut()
        # who had asked the monitor something would wait for the answer as long as TCP does
        self.wires[node.name][1].drop()
        return time.monotonic()

    def mend(self, node):
        for wire in self.wires[node.name]:
            wire.mend()

    def close(self):
        self.engine.stop()
        for wires in self.wires.values():
            for wire in wires:
                wire.close()

    def guarded(self):
        """With pg_autoctl on both sides there is at no time a second server that takes writes."""
        old, new = self.engine.settled()
        cut = self.cut(old)
        ha.wait_until('the primary that was cut off stops', lambda: not old.leads(), every=0.02)
        stopped = time.monotonic() - cut
        accepts = new.ask("SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off'")[0]
        self.tap.ok(not accepts, f'a primary that is cut off stops itself, after {stopped:.1f} s, before the other one takes writes')
        ha.wait_until('the other one takes writes', lambda: new.ask("SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off'")[0], every=0.02)
        self.tap.say(f'the other one takes writes after {time.monotonic() - cut:.1f} s')
        self.mend(old)
        primary, secondary = self.engine.settled()
        self.tap.ok(primary is new and secondary is old, '... and is its standby when it is reached again')

    def third(self, source):
        """A standby that no manager knows of."""
        node = ha.Service(self.engine, 'node3', ha.free_ports(1)[0])
        self.engine.command('pg_basebackup', '-D', node.data, '-R', '-h', source.listen, '-p', str(source.port), '-U', self.engine.user, '-c', 'fast')
        node.configure(f"port = {node.port}\nlisten_addresses = '127.0.0.1'\nprimary_slot_name = ''\nsynchronous_standby_names = ''\n")
        self.pg_ctl(node, '-l', f'{self.place}/node3.log', 'start')
        return node

    def pg_ctl(self, node, *words):
        self.engine.command('pg_ctl', '-s', '-w', '-D', node.data, *words)

    def two_primaries(self):
        tap = self.tap
        a, b = self.engine.settled()                # a is going to be cut off
        file = f'{self.place}/outside'
        with a.connect() as connection:
            connection.execute(SCHEMA)
            connection.execute("SELECT revenant.create_task('outside', %s)", (f"CALL public.outside('{file}')",))
            generation = connection.execute("SELECT revenant.lead_plan('job', 'planner', '1 h')").fetchone()[0]
            connection.execute("SELECT revenant.publish('job', %s, '[{\"id\": \"one\"}, {\"id\": \"two\"}]')", (generation,))
            epoch = connection.execute("SELECT epoch FROM revenant.claim_splits('job', 'worker', 1)").fetchone()[0]
            split = connection.execute("SELECT split FROM revenant.splits WHERE state = 'owned'").fetchone()[0]
            connection.execute("SELECT revenant.call('strict', 'x', '{}')")

            def in_memory():
                reply[0] = connection.execute("SELECT revenant.call('relaxed', 'x', '{}')::int").fetchone()[0]
                return not connection.execute('SELECT durable FROM revenant.receipt()').fetchone()[0]
            reply = [0]
            ha.wait_until('calls of a relaxed entity are in memory', in_memory)
        ha.wait_until('the task does its work', lambda: os.path.exists(file) and os.path.getsize(file) > 0)
        kept = a.ask("SELECT revenant.acquire('kept', ttl => '1 h')")[0]
        third = self.third(a)
        self.engine.caught_up(third, a)

        brief = a.ask("SELECT revenant.acquire('brief', ttl => '5 s')")[0]
        renewing = Renewing(a, 'brief', brief)
        a.signal_keepers(signal.SIGSTOP)
        self.cut(a)
        ha.wait_until('the other node leads', lambda: b.ask("SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off'")[0])
        tap.ok(a.leads() and b.leads(), 'two servers lead')

        # what needs no WAL goes on where it was
        tap.ok(renewing.answers and all(renewing.answers), 'the side that is cut off renews a lease meanwhile')
        tap.equal(a.ask("SELECT revenant.is_current('kept', %s), revenant.renew('kept', %s) IS NOT NULL", kept, kept), (True, True), '... and says that it is current')
        tap.equal(b.ask("SELECT revenant.is_current('kept', %s), revenant.renew('kept', %s) IS NOT NULL", kept, kept), (True, True), 'so does the other side: for its ttl it is the same holder')
        tap.equal(b.ask("SELECT revenant.try_acquire('kept', ttl => '1 h')"), (None,), '... and nobody else')
        tap.equal(a.ask("SELECT count(*) FROM revenant.renew_splits('job', ARRAY[%s], ARRAY[%s]::bigint[])", split, epoch), (0,), 'owned splits are renewed on the side that is cut off')

        # a lease whose ttl is over is held on both sides
        other = ha.wait_until('the other side gives a lease away that nobody renews there', lambda: b.ask("SELECT revenant.try_acquire('brief', ttl => '1 h')")[0])
        tap.ok(all(renewing.answers) and a.ask("SELECT revenant.is_current('brief', %s)", brief)[0], 'a ttl lease can be held on both sides')
        tap.ok(other > brief, '... with a greater token on the one that was promoted', (brief, other))
        tap.equal(b.ask("SELECT revenant.is_current('brief', %s)", brief), (False,), '... which refuses the other')
        session_a, session_b = a.connect(), b.connect()
        tokens = [session.execute("SELECT revenant.try_acquire('session')").fetchone()[0] for session in (session_a, session_b)]
        tap.ok(None not in tokens and tokens[0] < tokens[1], 'so can session leases be acquired, which are no rows', tokens)

        # what is to be committed waits
        hanging = [
            Hanging(a, 'fenced write', f"SELECT revenant.fence('kept', {kept})", f"INSERT INTO ledger VALUES ('a', {kept})"),
            Hanging(a, 'acquire', "SELECT revenant.acquire('new', ttl => '1 h')"),
            Hanging(a, 'strict call', "SELECT revenant.call('strict', 'x', '{}')"),
            Hanging(a, 'first relaxed call', "SELECT revenant.call('relaxed', 'y', '{}')"),
            Hanging(a, 'send', "SELECT revenant.send('strict', 'y', '{}')"),
            Hanging(a, 'publish', f"SELECT * FROM revenant.publish('job', {generation}, '[{{\"id\": \"of a\"}}]')"),
            Hanging(a, 'commit_split', f"INSERT INTO work VALUES ('a', '{split}')", f"SELECT revenant.commit_split('job', '{split}', {epoch}, done => true)"),
        ]
        for one in hanging:
            ha.wait_until(f'{one.name} waits', one.waits)
        tap.none([one.name for one in hanging if one.confirmed], 'no fenced write, no acquire by ttl, no strict call, send, publication or commit of a split is confirmed there, nor the first relaxed call of an entity')
        claimed = a.ask("SELECT split, epoch FROM revenant.claim_splits('job', 'worker of a', 1)")
        tap.ok(claimed is not None, 'a claim of a split is answered there, since it is not waited for')
        hanging.append(Hanging(a, 'commit of that', "SELECT revenant.commit_split('job', '{}', {}, done => true)".format(*claimed)))
        ha.wait_until('its commit waits', hanging[-1].waits)
        try:
            b.ask("SELECT revenant.commit_split('job', %s, %s, done => true)", *claimed)
            tap.ok(False, '... and is worth nothing on the other side')
        except psycopg.Error as error:
            tap.equal(error.sqlstate, 'RV001', '... and is worth nothing on the other side')
        tap.equal(a.ask("SELECT revenant.call('relaxed', 'x', '{}')")[0], reply[0] + 1, 'a relaxed call of an entity that is loaded is answered there')
        with b.connect() as connection, connection.transaction():
            connection.execute("SELECT revenant.fence('kept', %s)", (kept,))
            connection.execute("INSERT INTO ledger VALUES ('b', %s)", (kept,))
        tap.ok(True, 'the other side takes fenced writes of the holder')
        tap.equal(b.ask("SELECT revenant.call('strict', 'x', '{}')")[0], 2, '... and calls, after what had been confirmed')
        tap.equal(b.ask("SELECT count(*) FROM revenant.renew_splits('job', ARRAY[%s], ARRAY[%s]::bigint[])", split, epoch), (0,), '... and the worker still owns its split')

        # asynchronous replication is as this session: nothing waits
        with a.connect() as connection:
            connection.execute('SET synchronous_commit = local')
            with connection.transaction():
                connection.execute("SELECT revenant.fence('kept', %s)", (kept,))
                connection.execute("INSERT INTO ledger VALUES ('a, asynchronous', %s)", (kept,))
            late = connection.execute("SELECT revenant.acquire('late', ttl => '1 h')").fetchone()[0]
        tap.ok(a.ask("SELECT count(*) FROM ledger WHERE side = 'a, asynchronous'")[0] == 1, 'without synchronous replication the side that is cut off confirms a fenced write')
        tap.ok(late < other, '... but its new tokens are lower than those of the other side', (late, other))

        # a task runs on both sides, and what it does outside of the database shows it
        def outside():
            with open(file, encoding='utf-8') as lines:
                return [line.split('\t') for line in lines.read().splitlines()]
        ha.wait_until('the task works there, too', lambda: any(node == str(b.port) for node, _ in outside()))
        seen = len(outside())
        ha.wait_until('both go on', lambda: {node for node, _ in outside()[seen:]} == {str(a.port), str(b.port)})
        highest, refused, accepted = 0, set(), set()
        for node, token in outside():
            (accepted if int(token) >= highest else refused).add(node)
            highest = max(highest, int(token))
        tap.equal((sorted(accepted), refused), (sorted([str(a.port), str(b.port)]), {str(a.port)}),
                  'a task runs on both sides; a store that remembers the highest token refuses that of the side that is cut off, from the first one of the other on')

        # a promotion that nobody else knows of chooses the same timeline, and the same numbers
        self.pg_ctl(third, 'promote')
        ha.wait_until('the third leads', third.leads)
        eras = [node.ask("SELECT revenant.acquire_xact('any') >> 40")[0] for node in (a, b, third)]
        tap.ok(eras[0] < eras[1] == eras[2], 'two standbys promoted in isolation are in the same era', eras)
        theirs = [set(node.ask("SELECT array_agg(revenant.acquire_xact('any ' || n)) FROM generate_series(1, 900) AS n")[0]) for node in (b, third)]
        tap.ok(theirs[0] & theirs[1], '... and issue the same tokens', *[(min(tokens), max(tokens)) for tokens in theirs])
        beyond = max(theirs[1])
        b.ask('SELECT revenant.advance_tokens(%s)', beyond)
        tap.ok(b.ask("SELECT revenant.acquire_xact('any')")[0] > beyond, 'advance_tokens() brings the side that is kept above the other')
        self.pg_ctl(third, '-m', 'immediate', 'stop')

        # together again
        renewing.over = True
        renewing.join()
        session_a.close()
        session_b.close()
        a.signal_keepers(signal.SIGCONT)
        self.mend(a)
        primary, secondary = self.engine.settled()
        tap.ok(primary is b and secondary is a, 'in the end the one that was cut off is a standby of the other')
        for one in hanging:
            one.join(60)
        tap.none([one.name for one in hanging if one.confirmed or one.is_alive()], 'none of what had waited was ever confirmed')
        tap.equal(b.ask("SELECT string_agg(side, ' ') FROM ledger"), ('b',), 'fenced writes of the side that was cut off are gone')
        self.engine.caught_up(a, b)
        tap.equal(a.ask("SELECT string_agg(side, ' ') FROM ledger"), ('b',), '... there as well')
        tap.equal(b.ask("SELECT revenant.is_current('late', %s)", late), (False,), 'a lease that was acquired there is unknown')
        tap.equal(b.ask("SELECT (SELECT state::int FROM counters WHERE id = 'x'), (SELECT count(*) FROM relaxed_counters WHERE id = 'x' AND state::int > %s), (SELECT count(*) FROM work)", reply[0]), (2, 0, 0),
                  '... so are its calls, answered or not, and its splits')
        with b.connect() as connection, connection.transaction():
            connection.execute("INSERT INTO work VALUES ('b', %s)", (split,))
            connection.execute("SELECT revenant.commit_split('job', %s, %s, done => true)", (split, epoch))
        tap.equal(b.ask("SELECT state FROM revenant.splits WHERE split = %s", split), ('done',), 'the worker does its split again, by the epoch that it had')
        ha.wait_until('the task runs in one place', lambda: a.ask("SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'revenant runner'")[0]
                      and b.ask("SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'outside'")[0])


def test(tap, place):
    split = Split(tap, place)
    try:
        split.start()
        split.guarded()
        split.two_primaries()
    finally:
        split.close()


if __name__ == '__main__':
    taps.run(test)
