#!/usr/bin/env bash
#
# demo.sh: what revenant does, live, in under a minute
#
# Starts a primary (alpha) and a streaming standby (beta) in a scratch folder,
# gives them a task, an account and a backfill, and then breaks things: a second copy, a
# killed runner, a holder that slept too long, a reply that got lost, killed workers, a
# primary that stops in the middle of its work.
# Every claim is checked as it is made. At the end stands a table of what was
# shown; the exit status is 1 if any of it did not hold. Nothing is left behind.

set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=demo/cluster.sh
source "$here/cluster.sh"
# shellcheck source=demo/show.sh
source "$here/show.sh"

database=demo

# ---------------------------------------------------------------------------
# The steps
# ---------------------------------------------------------------------------

start_servers()
{
	step 'A primary, alpha, and a streaming standby, beta'

	cluster_create alpha 54321 <<-'SETTINGS'
		fsync = on
		shared_buffers = 32MB
		max_connections = 40
		log_min_messages = warning
	SETTINGS
	cluster_start alpha
	database=postgres sql alpha 'CREATE DATABASE demo'
	sql alpha 'CREATE EXTENSION revenant'

	cluster_follow beta 54322 alpha
	cluster_start beta

	# Only now: without a standby, no commit would return. Its name goes into
	# alpha's own file, so beta, once promoted, waits for nobody.
	cluster_configure alpha "synchronous_standby_names = 'beta'"
	sql alpha 'SELECT pg_reload_conf()' >/dev/null
	await alpha 10 "EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')"

	show alpha "SELECT application_name, state, sync_state FROM pg_stat_replication;"
	holds 'a standby follows' 'synchronously' \
		"$(sql alpha "SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming'")"
}

guard_a_table()
{
	step 'A table that only the holder of a lease may write'

	sql alpha "
		CREATE ROLE demo_app LOGIN;
		SELECT revenant.grant_usage('demo_app');
		GRANT CREATE ON SCHEMA public TO demo_app;" >/dev/null

	show_as demo_app alpha "
CREATE TABLE ticks (n bigint PRIMARY KEY, token bigint NOT NULL,
                    node text NOT NULL, pid int NOT NULL, at timestamptz NOT NULL);"
	show alpha "SELECT revenant.guard_table('ticks', 'task/ticker');"
	show_as demo_app alpha "INSERT INTO ticks VALUES (1, 0, 'alpha', 0, now());"
	holds 'an unfenced write to a guarded table is refused' "$sqlstate" "$(is RV008 "$sqlstate")"
}

start_task()
{
	step 'A task that writes to it, started by its own commit'

	show_as demo_app alpha "
CREATE PROCEDURE tick() LANGUAGE plpgsql AS \$\$
BEGIN
  LOOP
    INSERT INTO ticks
      SELECT coalesce(max(n), 0) + 1, revenant.current_token(),
             current_setting('revenant.node_name'), pg_backend_pid(), clock_timestamp()
        FROM ticks;
    COMMIT;
    PERFORM pg_sleep(0.02);
  END LOOP;
END \$\$;"

	show alpha "SELECT revenant.create_task('ticker', 'CALL tick()', run_as => 'demo_app', backoff_min => '0');"
	called=$asked
	await alpha 10 'EXISTS (SELECT FROM ticks)'
	show alpha "SELECT name, phase, node, pid, token FROM revenant.tasks;"

	first_token=$(sql alpha 'SELECT max(token) FROM ticks')
	holds 'the task writes, with a token' \
		"first row $(sql alpha "$(milliseconds_since "$called" 'SELECT min(at) FROM ticks')") ms after the call" \
		"$(sql alpha "SELECT min(token) = max(token) AND min(token) = (SELECT token FROM revenant.tasks) FROM ticks")"
}

refuse_a_second_copy()
{
	step 'A second copy of it'

	show alpha "SELECT revenant.create_task('ticker', 'CALL tick()');"
	holds 'a second task of that name is refused' "$sqlstate" "$(is 42710 "$sqlstate")"

	show_as demo_app alpha "SELECT revenant.try_acquire('task/ticker');"
	local second
	second=$(sql alpha "SELECT coalesce(revenant.try_acquire('task/ticker')::text, 'NULL')" --username=demo_app)
	holds 'a second holder of its lease is refused' "$second" "$(is NULL "$second")"
}

kill_the_runner()
{
	step 'The process that runs it is terminated'

	show alpha "SELECT pg_terminate_backend(pid) FROM revenant.tasks WHERE name = 'ticker';"
	called=$asked
	await alpha 10 "EXISTS (SELECT FROM ticks WHERE token > $first_token)"
	show alpha "SELECT name, phase, pid, token, restarts FROM revenant.tasks;"

	second_token=$(sql alpha 'SELECT max(token) FROM ticks')
	holds 'a terminated task is back, with a higher token' \
		"after $(sql alpha "$(milliseconds_since "$called" "SELECT min(at) FROM ticks WHERE token > $first_token")") ms" \
		"$(sql alpha "SELECT $second_token > $first_token AND count(DISTINCT pid) = 2 FROM ticks")"
}

reject_zombies()
{
	step 'Zombies: the old run, and a holder that slept through its time'

	show_as demo_app alpha "
BEGIN;
SELECT revenant.fence('task/ticker', $first_token);
INSERT INTO ticks VALUES (-1, $first_token, 'alpha', 0, now());
COMMIT;"
	holds "a write with the old run's token is rejected" "$sqlstate" \
		"$(both "$(is RV001 "$sqlstate")" "$(sql alpha 'SELECT count(*) = 0 FROM ticks WHERE n = -1')")"

	sql alpha "CREATE TABLE orders (id int PRIMARY KEY, token bigint NOT NULL)" --username=demo_app
	sql alpha "SELECT revenant.guard_table('orders', 'orders-writer')" >/dev/null

	local old new
	show_as demo_app alpha "SELECT revenant.try_acquire('orders-writer', ttl => '300 ms');"
	old=$(shown_number)
	show_as demo_app alpha "SELECT revenant.acquire('orders-writer', ttl => '1 min', wait => '5 s');"
	new=$(shown_number)
	holds 'a lapsed lease goes to the next in line, with a higher token' \
		"$((new - old)) above" "$(is true "$([ "$new" -gt "$old" ] && echo true)")"

	show_as demo_app alpha "
BEGIN;
SELECT revenant.fence('orders-writer', $old);
INSERT INTO orders VALUES (1, $old);
COMMIT;"
	local refused=$sqlstate
	show_as demo_app alpha "
BEGIN;
SELECT revenant.fence('orders-writer', $new);
INSERT INTO orders VALUES (1, $new);
COMMIT;"
	holds "a late write of the sleeper is rejected, its successor's is not" "$refused" \
		"$(both "$(is RV001 "$refused")" "$(sql alpha "SELECT array_agg(token) = ARRAY[$new::bigint] FROM orders")")"
}

call_an_entity()
{
	step 'An account: a call, and its reply is a receipt'

	show_as demo_app alpha "
CREATE FUNCTION account_handler(id text, state jsonb, message jsonb) RETURNS revenant.reply
LANGUAGE sql AS \$\$
  SELECT to_jsonb(balance), to_jsonb(balance), NULL
    FROM (SELECT state::int + (message ->> 'deposit')::int) AS s (balance);
\$\$;
SELECT revenant.create_snapshot_table('account');"
	show alpha "SELECT revenant.create_entity_type('account', 'account', 'account_handler', initial_state => '0');"
	show_as demo_app alpha "SELECT revenant.call('account', 'ada', '{\"deposit\": 10}');"

	request=2d0c3f6e-2f0b-4c57-a4b6-5b1f1d3c9a10
	show_as demo_app alpha "
SELECT revenant.call('account', 'ada', '{\"deposit\": 32}', request_id => '$request');
SELECT xid, lsn, timeline FROM revenant.receipt();"
	receipt=$(sql alpha "
		SELECT revenant.call('account', 'ada', '{\"deposit\": 32}', request_id => '$request');
		SELECT format('%L, %L, %s', xid, lsn, timeline) FROM revenant.receipt()" --username=demo_app | tail -1)
	holds 'a request that is repeated is done once' \
		"$(sql alpha "SELECT state FROM account WHERE id = 'ada'")" \
		"$(sql alpha "SELECT state = '42' AND version = 2 FROM account WHERE id = 'ada'")"
}

share_work()
{
	step 'A backfill in forty pieces, by four workers, two of which are killed'

	sql alpha "SELECT revenant.grant_usage('demo_app', 'admin')" >/dev/null
	show_as demo_app alpha "
CREATE TABLE payment (id int PRIMARY KEY, amount int NOT NULL);
INSERT INTO payment SELECT n, n % 100 FROM generate_series(1, 20000) AS n;
SELECT revenant.create_plan('to cents', lease_ttl => '1 s');
SELECT revenant.lead_plan('to cents', 'demo') AS generation \\gset
SELECT * FROM revenant.publish('to cents', :generation, (
  SELECT jsonb_agg(jsonb_build_object('id', 'piece ' || n, 'spec', n)) FROM generate_series(0, 39) AS n), final => true);
CREATE PROCEDURE to_cents(worker text) LANGUAGE plpgsql AS \$\$
DECLARE
  job record;
  available bigint;
BEGIN
  LOOP
    SELECT * INTO job FROM revenant.claim_splits('to cents', worker);
    COMMIT;
    IF job.split IS NULL THEN
      EXIT WHEN (SELECT state = 'complete' FROM revenant.plans WHERE plan = 'to cents');
      CALL revenant.await_splits('to cents', available, '1 s');
      CONTINUE;
    END IF;
    UPDATE payment SET amount = amount * 100
     WHERE id BETWEEN job.spec::int * 500 + 1 AND job.spec::int * 500 + 500;
    PERFORM pg_sleep(0.02);
    PERFORM revenant.commit_split('to cents', job.split, job.epoch, done => true);
    COMMIT;
  END LOOP;
END \$\$;"

	# A server process notices only by this setting that its client is gone.
	local worker workers=()
	for worker in 1 2 3 4; do
		note "\$ psql --command=\"CALL to_cents('worker $worker')\" &"
		PGHOST=$scratch PGPORT=${port[alpha]} PGDATABASE=$database PGOPTIONS='-c client_connection_check_interval=50ms' \
			"$bin/psql" --no-psqlrc --quiet --username=demo_app --command="CALL to_cents('worker $worker')" &
		workers+=($!)
	done
	await alpha 10 "(SELECT done FROM revenant.plans) BETWEEN 6 AND 30"
	note "\$ kill -KILL ${workers[*]:0:2}"
	disown "${workers[@]:0:2}"
	kill -KILL "${workers[@]:0:2}"
	wait "${workers[@]:2}"

	show alpha "
SELECT planned, runnable, owned, done, quarantined FROM revenant.plan_progress('to cents');
SELECT split, reasons -> 0 ->> 'worker' AS killed, reasons -> 0 ->> 'reason' AS reason
  FROM revenant.splits WHERE reasons IS NOT NULL;"
	holds 'each piece is done once, though two of four workers were killed' \
		"$(sql alpha 'SELECT count(*) FROM revenant.splits WHERE reasons IS NOT NULL') of 40 begun twice" \
		"$(sql alpha "SELECT bool_and(amount = id % 100 * 100) AND (SELECT state = 'complete' AND done = 40 FROM revenant.plans) FROM payment")"
}

fail_over()
{
	step 'alpha stops without a word, in the middle of its work; beta is promoted'

	# What clients saw on alpha must be on beta. The last look comes before the
	# stop; the rows between the two were seen by nobody.
	local seen called took
	seen=$(sql alpha 'SELECT max(n) FROM ticks')
	digest_of_old=$(digest alpha "$seen")
	highest_token=$(sql alpha "SELECT greatest(
		(SELECT max(token) FROM ticks), (SELECT max(token) FROM revenant.leases))")

	note "\$ pg_ctl stop --mode=immediate --pgdata=alpha"
	cluster_stop alpha immediate

	show beta 'SELECT pg_promote();'
	called=$asked
	await beta 30 "EXISTS (SELECT FROM ticks WHERE node = 'beta')"
	took=$(sql beta "$(milliseconds_since "$called" "SELECT min(at) FROM ticks WHERE node = 'beta'")")
	show beta "SELECT name, phase, node, pid, token FROM revenant.tasks;"

	holds 'the task runs on the new primary within a second' "first row $took ms after the call" \
		"$(sql beta "SELECT $took < 1000")"
	holds 'its token is above every earlier one' \
		"$(sql beta "SELECT min(token) FROM ticks WHERE node = 'beta'") > $highest_token" \
		"$(sql beta "SELECT min(token) > $highest_token FROM ticks WHERE node = 'beta'")"
	holds 'nothing that was seen on alpha is lost' "$seen rows" \
		"$(is "$digest_of_old" "$(digest beta "$seen")")"
}

ask_again()
{
	step 'Who never saw the reply asks again, on beta'

	show_as demo_app beta "SELECT revenant.call('account', 'ada', '{\"deposit\": 32}', request_id => '$request');"
	show_as demo_app beta "SELECT revenant.receipt_status($receipt);"
	holds 'the entity is there, and knows what it answered' \
		"$(sql beta "SELECT state FROM account WHERE id = 'ada'")" \
		"$(sql beta "SELECT state = '42' AND version = 2 AND revenant.receipt_status($receipt) = 'committed'
			FROM account WHERE id = 'ada'")"
	show_as demo_app beta "SELECT revenant.call('account', 'ada', '{\"deposit\": 8}');"
	holds 'and it goes on, on the new primary' "version $(sql beta 'SELECT version FROM account')" \
		"$(sql beta "SELECT state = '50' AND version = 3 FROM account WHERE id = 'ada'")"
}

audit()
{
	step 'Nothing was written twice'

	show beta "
SELECT token, node, pid, count(*) AS rows, min(n) AS first, max(n) AS last
  FROM ticks GROUP BY token, node, pid ORDER BY token;"

	# In the order of n: no gap, tokens and times never go back, and no token
	# was used by two processes.
	holds 'nothing was written twice, nothing is missing' "$(sql beta 'SELECT max(n) FROM ticks') rows" \
		"$(sql beta "
			SELECT bool_and(in_order) AND min(n) = 1 AND max(n) = count(*)
				AND count(DISTINCT token) = count(DISTINCT (token, node, pid))
				AND count(DISTINCT token) = 3
			FROM (SELECT n, token, node, pid,
					token >= lag(token, 1, token) OVER w AND at >= lag(at, 1, at) OVER w AS in_order
				FROM ticks WINDOW w AS (ORDER BY n)) AS t")"
}

clean_up()
{
	local folder=$scratch

	scratch_close
	holds 'no process and no file is left' '' \
		"$(both "$(is '' "$(processes_of "$folder")")" "$([ -e "$folder" ] || echo true)")"
}

# ---------------------------------------------------------------------------
# Small questions
# ---------------------------------------------------------------------------

# milliseconds_since TIME QUERY: a query for how long after it.
milliseconds_since()
{
	echo "SELECT round(1000 * extract(epoch FROM ($2) - timestamptz '$1'))"
}

# digest NAME N: of the first N rows there.
digest()
{
	sql "$1" "SELECT md5(string_agg(t::text, E'\n' ORDER BY n)) FROM ticks AS t WHERE n BETWEEN 1 AND $2"
}

is() { if [ "$1" = "$2" ]; then echo true; fi; }

# both A B: true if both are, whether we or the server say so.
both() { if truth "$1" && truth "$2"; then echo true; fi; }

# ---------------------------------------------------------------------------

say 'revenant: leases, fencing, supervised tasks, entities and plans, live'
install_packages
scratch_open revenant-demo
stage_server
clock_start
start_servers
guard_a_table
start_task
refuse_a_second_copy
kill_the_runner
reject_zombies
call_an_entity
share_work
fail_over
ask_again
audit
clean_up
summary
