-- What hostile calls find: roles of each level, tables, types, plans and tasks that they can name. It can be
-- run again, to bring back what they have dropped.
SET client_min_messages = error;
CREATE SCHEMA IF NOT EXISTS fz;
GRANT USAGE, CREATE ON SCHEMA fz TO fz_admin, fz_user, fz_team;
GRANT USAGE ON SCHEMA fz TO fz_reader, fz_none;
GRANT CREATE, TEMPORARY ON DATABASE :"database" TO fz_admin, fz_user;
SELECT revenant.grant_usage('fz_reader', 'reader');
SELECT revenant.grant_usage('fz_user', 'user');
SELECT revenant.grant_usage('fz_admin', 'admin');

CREATE OR REPLACE FUNCTION fz.handler(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE plpgsql AS $$
BEGIN
	CASE message ->> 'do'
		WHEN 'fail' THEN RAISE EXCEPTION 'failed' USING ERRCODE = 'XY001';
		WHEN 'stop' THEN RETURN ROW(message, state, message ->> 'reason')::revenant.reply;
		WHEN 'keep' THEN RETURN ROW(state, state, NULL)::revenant.reply;
		WHEN 'none' THEN RETURN NULL;
		WHEN 'call' THEN RETURN ROW(revenant.call(message ->> 'type', message ->> 'id', message -> 'message'), state, NULL)::revenant.reply;
		WHEN 'send' THEN RETURN ROW(to_jsonb(revenant.send(message ->> 'type', message ->> 'id', message -> 'message')), message, NULL)::revenant.reply;
		WHEN 'sleep' THEN PERFORM pg_catalog.pg_sleep(0.05);
		ELSE NULL;
	END CASE;
	RETURN ROW(state, message, NULL)::revenant.reply;
END $$;
CREATE OR REPLACE FUNCTION fz.start(id text) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(id) $$;
CREATE OR REPLACE FUNCTION fz.upgrade(old_vsn integer, state jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT CASE WHEN old_vsn > 5 THEN NULL ELSE state END $$;
CREATE OR REPLACE FUNCTION fz.finish(id text, state jsonb, reason text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF reason = 'fail' THEN RAISE EXCEPTION 'failed' USING ERRCODE = 'XY002'; END IF;
END $$;
CREATE TABLE IF NOT EXISTS fz.planned (splits jsonb);
ALTER TABLE fz.planned OWNER TO fz_team;
GRANT ALL ON fz.planned TO fz_admin;
-- What planners in the database return: one of the lists that the calls have left there.
CREATE OR REPLACE FUNCTION fz.planned() RETURNS jsonb LANGUAGE sql AS
$$ SELECT splits FROM fz.planned ORDER BY random() LIMIT 1 $$;
CREATE OR REPLACE FUNCTION fz.planner(cursor jsonb, generation bigint) RETURNS revenant.split_plan LANGUAGE sql AS
$$ SELECT (fz.planned(), cursor, false)::revenant.split_plan $$;
CREATE OR REPLACE FUNCTION fz.bad_planner(cursor jsonb, generation bigint) RETURNS revenant.split_plan LANGUAGE sql AS
$$ SELECT (NULL, cursor, NULL)::revenant.split_plan $$;

CREATE TABLE IF NOT EXISTS fz.guarded (a int);
CREATE TABLE IF NOT EXISTS fz.plain (id text PRIMARY KEY, n int);
CREATE TABLE IF NOT EXISTS fz.parted (a int) PARTITION BY LIST (a);
CREATE TABLE IF NOT EXISTS fz.part PARTITION OF fz.parted FOR VALUES IN (1);
CREATE TABLE IF NOT EXISTS fz.parent (a int);
CREATE TABLE IF NOT EXISTS fz.child () INHERITS (fz.parent);
CREATE UNLOGGED TABLE IF NOT EXISTS fz.unlogged (a int);
CREATE TABLE IF NOT EXISTS fz."quo""ted 'é" (a int);
CREATE OR REPLACE VIEW fz.seen AS SELECT id, n FROM fz.plain;
CREATE MATERIALIZED VIEW IF NOT EXISTS fz.kept AS SELECT id FROM fz.plain;
CREATE SEQUENCE IF NOT EXISTS fz.numbers;
ALTER TABLE fz.guarded OWNER TO fz_admin;
ALTER TABLE fz.plain OWNER TO fz_user;
ALTER TABLE fz.parted OWNER TO fz_user;
ALTER TABLE fz.part OWNER TO fz_user;
ALTER TABLE fz.parent OWNER TO fz_user;
ALTER TABLE fz.child OWNER TO fz_user;
ALTER TABLE fz.unlogged OWNER TO fz_user;
ALTER TABLE fz."quo""ted 'é" OWNER TO fz_user;

SELECT to_regclass('fz.accounts') IS NULL AS accounts_missing, to_regclass('fz.pages') IS NULL AS pages_missing,
	NOT EXISTS (SELECT FROM revenant.entity_type WHERE type = 'account') AS account_missing,
	NOT EXISTS (SELECT FROM revenant.entity_type WHERE type = 'page') AS page_missing,
	NOT EXISTS (SELECT FROM revenant.plan WHERE plan = 'p1') AS p1_missing,
	NOT EXISTS (SELECT FROM revenant.plan WHERE plan = 'p2') AS p2_missing,
	NOT EXISTS (SELECT FROM revenant.task WHERE name = 't1') AS t1_missing,
	NOT EXISTS (SELECT FROM revenant.task WHERE name = 't2') AS t2_missing,
	NOT EXISTS (SELECT FROM revenant.task WHERE name = 'canary') AS canary_missing \gset
SET ROLE fz_admin;
\if :accounts_missing
	SELECT revenant.create_snapshot_table('fz.accounts', 3);
\endif
\if :pages_missing
	SELECT revenant.create_snapshot_table('fz.pages');
\endif
\if :account_missing
	SELECT revenant.create_entity_type('account', 'fz.accounts', 'fz.handler', initializer => 'fz.start', upgrade => 'fz.upgrade', terminator => 'fz.finish');
\endif
\if :page_missing
	SELECT revenant.create_entity_type('page', 'fz.pages', 'fz.handler', initial_state => '{"n": 0}', durability => 'interval', flush_every => '20 ms', idle_timeout => '1 s');
\endif
RESET ROLE;
SELECT revenant.grant_usage('fz_team', 'admin');
SET ROLE fz_team;
\if :p1_missing
	SELECT revenant.create_plan('p1', lease_ttl => '1 s', max_attempts => 2, rebalance_delay => '10 ms', drain_deadline => '100 ms');
	SELECT revenant.lead_plan('p1', 'world', ttl => '1 h') AS generation \gset
	\if :{?generation}
		SELECT revenant.publish('p1', :generation, '[{"id": "s1"}, {"id": "s2", "spec": {"a": 1}, "weight": 7}, {"id": "s3", "seed": {"progress": 1, "watermark": 2}},
			{"id": "s4", "seed": {"done": true}}, {"id": "s5"}]');
		SELECT revenant.resign_plan('p1', :generation);
	\endif
\endif
\if :p2_missing
	SELECT revenant.create_plan('p2', planner_function => 'fz.planner', replan_every => '500 ms', lease_ttl => '500 ms');
\endif
RESET ROLE;
GRANT ALL ON ALL TABLES IN SCHEMA fz TO fz_user;
SELECT revenant.revoke_usage('fz_team');
SELECT revenant.grant_usage('fz_team', 'user');
SET ROLE fz_admin;
\if :t1_missing
	SELECT revenant.create_task('t1', 'SELECT 1', schedule => '1 s');
\endif
\if :t2_missing
	SELECT revenant.create_task('t2', 'SELECT pg_sleep(60)', restart => 'transient', backoff_min => '100 ms');
\endif
RESET ROLE;
\if :canary_missing
	SELECT revenant.create_task('canary', 'SELECT nextval(''public.canary'')', schedule => '500 ms', restart_window => '1 s', max_restarts => 100);
\endif
