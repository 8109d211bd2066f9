-- What the clients need, made once, by a superuser, on the primary.

CREATE EXTENSION IF NOT EXISTS revenant;

-- Who owns everything and comes directly, and who comes through the pooler and may do the same.
DO $$
BEGIN
	IF to_regrole('app') IS NULL THEN
		CREATE ROLE app LOGIN;
	END IF;
	IF to_regrole('pooled') IS NULL THEN
		CREATE ROLE pooled LOGIN;
	END IF;
END
$$;
GRANT app TO pooled;
ALTER ROLE app SET statement_timeout = '30 s';
ALTER ROLE pooled SET statement_timeout = '30 s';
ALTER ROLE app SET idle_in_transaction_session_timeout = '60 s';
ALTER ROLE pooled SET idle_in_transaction_session_timeout = '60 s';
ALTER ROLE pooled SET revenant.session_leases = off;
SELECT revenant.grant_usage('app', 'admin'), revenant.grant_usage('pooled');
CREATE SCHEMA chaos AUTHORIZATION app;
SET ROLE app;
SET search_path = chaos;
SET client_min_messages = warning;

-- ---------------------------------------------------------------------
-- Effects: who wrote by which token, numbered under a row lock. So the numbers of a stream are in the order of the commits.
-- ---------------------------------------------------------------------

CREATE TABLE serial (stream text PRIMARY KEY, n bigint NOT NULL) WITH (fillfactor = 40);
CREATE TABLE effect (
	stream text NOT NULL, n bigint NOT NULL, token bigint, shared boolean NOT NULL,
	p text NOT NULL, op bigint NOT NULL, note jsonb, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX ON effect (stream, n);

CREATE FUNCTION next_serial(stream text) RETURNS bigint LANGUAGE sql AS $$
	INSERT INTO chaos.serial AS s VALUES (stream, 1) ON CONFLICT ON CONSTRAINT serial_pkey DO UPDATE SET n = s.n + 1 RETURNING n
$$;

CREATE FUNCTION effect(stream text, token bigint, shared boolean, p text, op bigint, note jsonb DEFAULT NULL) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n CONSTANT bigint := chaos.next_serial(stream);
BEGIN
	INSERT INTO chaos.effect (stream, n, token, shared, p, op, note) VALUES (stream, n, token, shared, p, op, note);
	RETURN n;
END
$$;

-- ---------------------------------------------------------------------
-- Entities: a counter, with a digest of all that it was told. A strict one, and one that is asked to, writes a row for each call as well.
-- ---------------------------------------------------------------------

CREATE TABLE call (type text NOT NULL, id text NOT NULL, n bigint NOT NULL, tag text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());

CREATE FUNCTION count_call(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE plpgsql AS $$
DECLARE
	n CONSTANT bigint := (state ->> 'n')::bigint + 1;
	next CONSTANT jsonb := jsonb_build_object('n', n, 'tag', message -> 'tag', 'digest', left(md5((state ->> 'digest') || (message ->> 'tag')), 12));
BEGIN
	IF message ? 'row' THEN
		INSERT INTO chaos.call (type, id, n, tag) VALUES (message ->> 'row', id, n, message ->> 'tag');
	END IF;
	RETURN (next, next, NULL)::revenant.reply;
END
$$;

SELECT revenant.create_snapshot_table('chaos.strict', history => 5);
SELECT revenant.create_snapshot_table('chaos.interval');
SELECT revenant.create_snapshot_table('chaos.on_stop');
SELECT revenant.create_entity_type('strict', 'chaos.strict', 'chaos.count_call', '{"n": 0, "digest": ""}');
SELECT revenant.create_entity_type('interval', 'chaos.interval', 'chaos.count_call', '{"n": 0, "digest": ""}',
	durability => 'interval', flush_every => '1 s', idle_timeout => '20 s');
SELECT revenant.create_entity_type('on_stop', 'chaos.on_stop', 'chaos.count_call', '{"n": 0, "digest": ""}',
	durability => 'on_stop', idle_timeout => '10 s');

-- Deleted now and then, and called again. All versions are kept.
SELECT revenant.create_snapshot_table('chaos.mortal', history => -1);
SELECT revenant.create_entity_type('mortal', 'chaos.mortal', 'chaos.count_call', '{"n": 0, "digest": ""}');

-- Snapshots by hand: who saves says which version it was made from. All versions are kept.
SELECT revenant.create_snapshot_table('chaos.page', history => -1);

-- ---------------------------------------------------------------------
-- Guarded: nobody writes this without the fence.
-- ---------------------------------------------------------------------

CREATE TABLE guarded (n bigint NOT NULL, token bigint, p text NOT NULL, op bigint NOT NULL);
SELECT revenant.guard_table('guarded', 'guarded');

-- ---------------------------------------------------------------------
-- Messages: whoever gets one writes that down, fails as often as the message says, and sends it on as often as it says.
-- ---------------------------------------------------------------------

CREATE TABLE delivery (
	id text NOT NULL, n bigint NOT NULL, tag text NOT NULL, hops int NOT NULL, kind text NOT NULL, sender text NOT NULL,
	message_id bigint, attempt int, at timestamptz NOT NULL DEFAULT clock_timestamp());

CREATE FUNCTION receive(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE plpgsql AS $$
DECLARE
	n CONSTANT bigint := (state ->> 'n')::bigint + 1;
	hops CONSTANT int := coalesce((message ->> 'hops')::int, 0);
	how CONSTANT record := revenant.current_message();
BEGIN
	IF how.attempt <= (message ->> 'fails')::int THEN
		RAISE 'told to fail' USING ERRCODE = 'CH001';
	END IF;
	INSERT INTO chaos.delivery (id, n, tag, hops, kind, sender, message_id, attempt)
	VALUES (id, n, message ->> 'tag', hops, how.kind, how.sender, how.message_id, how.attempt);
	IF hops > 0 THEN
		PERFORM revenant.send('sink', 'hop ' || hops % 3, message || jsonb_build_object('hops', hops - 1));
	END IF;
	RETURN (NULL, jsonb_build_object('n', n, 'tag', message -> 'tag'), NULL)::revenant.reply;
END
$$;
SELECT revenant.create_snapshot_table('chaos.sink');
SELECT revenant.create_entity_type('sink', 'chaos.sink', 'chaos.receive', '{"n": 0}');

-- ---------------------------------------------------------------------
-- Plans. Each step of a split is a row, in the transaction that says how far it is.
-- ---------------------------------------------------------------------

CREATE TABLE step (plan text NOT NULL, split text NOT NULL, step bigint NOT NULL, epoch bigint NOT NULL, batch text NOT NULL, p text NOT NULL, op bigint NOT NULL);
CREATE INDEX ON step (plan, split);

-- pulled, and planned by clients; planned in the database; assigned to members
SELECT revenant.create_plan('pulled', lease_ttl => '3 s', max_attempts => 4);
SELECT revenant.create_plan('shards', lease_ttl => '3 s', rebalance_delay => '1 s', drain_deadline => '2 s', max_attempts => 1000000);
CREATE FUNCTION plan_more(cursor jsonb, generation bigint) RETURNS revenant.split_plan LANGUAGE plpgsql AS $$
DECLARE
	first CONSTANT int := coalesce((cursor ->> 'next')::int, 0);
	waiting CONSTANT bigint := (SELECT p.runnable FROM revenant.plan_progress('planned') AS p);
	made CONSTANT int := CASE WHEN waiting > 100 THEN 0 ELSE 20 END;
BEGIN
	PERFORM chaos.effect('plan/planned', generation, false, 'plan_more', first);
	RETURN (
		(SELECT coalesce(jsonb_agg(jsonb_build_object('id', 's' || k, 'spec', jsonb_build_object('batch', first / 20, 'steps', k % 3 + 1, 'generation', generation))), '[]')
			FROM generate_series(first, first + made - 1) AS k),
		jsonb_build_object('next', first + made), false)::revenant.split_plan;
END
$$;
SELECT revenant.create_plan('planned', planner_function => 'chaos.plan_more', replan_every => '3 s', lease_ttl => '3 s', max_attempts => 4);

-- ---------------------------------------------------------------------
-- Tasks. Each run makes sure that no other one is alive, as far as an advisory lock can say, and writes by its token.
-- ---------------------------------------------------------------------

CREATE TABLE twin (task text NOT NULL, token bigint, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE beaten (token bigint NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());
SELECT revenant.guard_table('beaten', 'task/beat');

-- An earlier run's process lets go of its locks as it ends, of the lease maybe before this one: so it is given a moment.
CREATE FUNCTION alone(task text) RETURNS void LANGUAGE plpgsql SET lock_timeout = '2 s' AS $$
BEGIN
	PERFORM pg_advisory_lock(hashtext('chaos ' || task));
EXCEPTION WHEN lock_not_available THEN
	INSERT INTO chaos.twin (task, token) VALUES (task, revenant.current_token());
END
$$;

CREATE FUNCTION run_effect(task text) RETURNS void LANGUAGE sql AS $$
	SELECT chaos.effect('task/' || task, revenant.current_token(), false, 'task', 0)
$$;

-- By the monotonic clock, as pg_sleep() is not before PostgreSQL 16: a wall clock that is set back makes nobody sleep for hours.
CREATE PROCEDURE pause(seconds float8) LANGUAGE plpgsql AS $$
DECLARE
	seen bigint;
BEGIN
	CALL revenant.await_change('nobody', seen, '0 s');
	CALL revenant.await_change('nobody', seen, make_interval(secs => seconds));
END
$$;

CREATE PROCEDURE beat(task text, guarded boolean) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM chaos.alone(task);
	COMMIT;
	LOOP
		PERFORM chaos.run_effect(task);
		IF guarded THEN
			INSERT INTO chaos.beaten (token) VALUES (revenant.current_token());
		END IF;
		COMMIT;
		CALL chaos.pause(0.2);
	END LOOP;
END
$$;

CREATE PROCEDURE turn(task text, lease text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM chaos.alone(lease);
	PERFORM chaos.run_effect(lease);
	COMMIT;
	CALL chaos.pause(random() * 0.3);
	PERFORM chaos.run_effect(lease);
END
$$;

CREATE PROCEDURE fail_sometimes(task text, share float8) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM chaos.alone(task);
	PERFORM chaos.run_effect(task);
	IF random() < share THEN
		RAISE 'told to fail' USING ERRCODE = 'CH001';
	END IF;
END
$$;

-- Terminations of a storm count as failures: who is to live is given as many as it takes.
SELECT revenant.create_task('beat', $$CALL chaos.beat('beat', true)$$, backoff_min => '100 ms', backoff_max => '1 s', max_restarts => 100, restart_window => '10 s');
SELECT revenant.create_task('tick', $$CALL chaos.fail_sometimes('tick', 0)$$, '1 s', backoff_min => '100 ms', backoff_max => '1 s', max_restarts => 100, restart_window => '10 s');
SELECT revenant.create_task('cron', $$CALL chaos.fail_sometimes('cron', 0.1)$$, '*/2 * * * * *', backoff_min => '100 ms', backoff_max => '1 s', max_restarts => 100, restart_window => '10 s');
SELECT revenant.create_task('turn a', $$CALL chaos.turn('turn a', 'turn')$$, lease => 'turn', backoff_min => '100 ms', backoff_max => '1 s', max_restarts => 100, restart_window => '10 s');
SELECT revenant.create_task('turn b', $$CALL chaos.turn('turn b', 'turn')$$, '2 s', lease => 'turn', backoff_min => '100 ms', backoff_max => '1 s', max_restarts => 100, restart_window => '10 s');
SELECT revenant.create_task('doomed', $$CALL chaos.fail_sometimes('doomed', 1)$$, backoff_min => '1 s', backoff_max => '2 s', max_restarts => 3, restart_window => '1 hour');
