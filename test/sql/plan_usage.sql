-- Nobody plans or works on what is not his; what is no plan, split, worker, number or time is refused; nobody is shown what he could misuse; and every counter counts what its comment says.
\set VERBOSITY sqlstate
\pset null (null)

CREATE ROLE revenant_pu_none;
CREATE ROLE revenant_pu_reader;
CREATE ROLE revenant_pu_user;
CREATE ROLE revenant_pu_admin;
CREATE ROLE revenant_pu_owner LOGIN;
CREATE ROLE revenant_pu_worker IN ROLE revenant_pu_owner;
CREATE ROLE revenant_pu_other IN ROLE revenant_pu_owner;
CREATE ROLE revenant_pu_chief IN ROLE revenant_pu_owner;
SELECT revenant.grant_usage('revenant_pu_reader', 'reader'), revenant.grant_usage('revenant_pu_user', 'user'), revenant.grant_usage('revenant_pu_admin', 'admin'),
	revenant.grant_usage('revenant_pu_chief', 'admin'), revenant.grant_usage('revenant_pu_owner', 'admin');
CREATE SCHEMA pu;
GRANT USAGE ON SCHEMA pu TO PUBLIC;
GRANT CREATE ON SCHEMA pu TO revenant_pu_owner;
SET search_path = pu, public;
-- What becomes of a command as a role; whatever it does is undone.
CREATE FUNCTION outcome(role text, command text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('SET LOCAL ROLE %I', role);
	EXECUTE command;
	RAISE EXCEPTION USING ERRCODE = 'XYZ00';
EXCEPTION
	WHEN SQLSTATE 'XYZ00' THEN RETURN 'ok';
	WHEN OTHERS THEN RETURN SQLSTATE;
END $$;
-- Each function that takes the name of a plan, for format()
CREATE TABLE call (n int GENERATED ALWAYS AS IDENTITY, function text, command text);
INSERT INTO call (function, command) VALUES
	('create_plan', 'SELECT revenant.create_plan(%s)'),
	('alter_plan', 'SELECT revenant.alter_plan(%s, ''{}'')'),
	('reset_plan', 'SELECT revenant.reset_plan(%s)'),
	('purge_plan', 'SELECT revenant.purge_plan(%s, now())'),
	('drop_plan', 'SELECT revenant.drop_plan(%s)'),
	('lead_plan', 'SELECT revenant.lead_plan(%s, ''candidate'')'),
	('planner_state', 'SELECT revenant.planner_state(%s, (SELECT generation FROM known))'),
	('publish', 'SELECT revenant.publish(%s, (SELECT generation FROM known), ''[{"id": "new"}]'')'),
	('resign_plan', 'SELECT revenant.resign_plan(%s, (SELECT generation FROM known))'),
	('claim_splits', 'SELECT revenant.claim_splits(%s, ''w'')'),
	('commit_split', 'SELECT revenant.commit_split(%s, ''a'', (SELECT a FROM known), ''1'')'),
	('commit_splits', 'SELECT revenant.commit_splits(%s, (SELECT jsonb_build_array(jsonb_build_object(''split'', ''a'', ''epoch'', a)) FROM known))'),
	('fence_split', 'SELECT revenant.fence_split(%s, ''a'', (SELECT a FROM known))'),
	('renew_splits', 'SELECT revenant.renew_splits(%s, ''{a}'', (SELECT ARRAY[a] FROM known))'),
	('fail_split', 'SELECT revenant.fail_split(%s, ''a'', (SELECT a FROM known), ''no'')'),
	('release_split', 'SELECT revenant.release_split(%s, ''a'', (SELECT a FROM known))'),
	('requeue_split', 'SELECT revenant.requeue_split(%s, ''q'')'),
	('await_splits', 'CALL revenant.await_splits(%s, NULL, ''0'')'),
	('join_plan', 'SELECT revenant.join_plan(%s, ''w'')'),
	('poll_plan', 'SELECT revenant.poll_plan(%s, (SELECT member FROM known))'),
	('drained', 'SELECT revenant.drained(%s, ''a'', (SELECT a FROM known))'),
	('decline_revoke', 'SELECT revenant.decline_revoke(%s, ''a'', (SELECT a FROM known))'),
	('leave_plan', 'SELECT revenant.leave_plan(%s, (SELECT member FROM known))'),
	('plan_progress', 'SELECT revenant.plan_progress(%s)');
CREATE TABLE known (generation bigint, a bigint, member bigint);
GRANT SELECT ON known, call TO PUBLIC;
GRANT INSERT, UPDATE ON known TO revenant_pu_owner;
INSERT INTO known VALUES (1, 1, 1);

/* ---- levels */

SELECT p.proname AS function, has_function_privilege('revenant_pu_none', p.oid, 'EXECUTE') AS none, has_function_privilege('revenant_pu_reader', p.oid, 'EXECUTE') AS reader,
	has_function_privilege('revenant_pu_user', p.oid, 'EXECUTE') AS "user", has_function_privilege('revenant_pu_admin', p.oid, 'EXECUTE') AS admin
FROM pg_proc AS p WHERE p.pronamespace = 'revenant'::regnamespace AND (p.proname ~ 'plan|split' OR p.proname IN ('publish', 'drained', 'decline_revoke', '_members', '_run_planner')) ORDER BY p.proname COLLATE "C";
SELECT c.relname AS relation, has_table_privilege('revenant_pu_none', c.oid, 'SELECT') AS none, has_table_privilege('revenant_pu_reader', c.oid, 'SELECT') AS reader,
	has_table_privilege('revenant_pu_user', c.oid, 'SELECT') AS "user", has_table_privilege('revenant_pu_admin', c.oid, 'SELECT') AS admin,
	has_table_privilege('revenant_pu_admin', c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE') AS writes
FROM pg_class AS c WHERE c.relnamespace = 'revenant'::regnamespace AND c.relname IN ('plan', 'split', 'split_state', 'member', 'plans', 'splits', 'members', 'stat_plans') ORDER BY c.relname COLLATE "C";

/* ---- names that are none, and arguments */

SELECT c.function, outcome('revenant_pu_owner', format(c.command, 'NULL')) AS "null", outcome('revenant_pu_owner', format(c.command, '''''')) AS empty,
	outcome('revenant_pu_owner', format(c.command, 'repeat(''x'', 401)')) AS long, outcome('revenant_pu_owner', format(c.command, '''pu none''')) AS "unknown" FROM call AS c ORDER BY c.n;
SET ROLE revenant_pu_owner;
SELECT revenant.create_plan('pu', max_attempts => 1);
SELECT revenant.lead_plan('pu', 'planner', '1 h') AS g \gset
SELECT outcome FROM revenant.publish('pu', :g, '[{"id": "a", "spec": "secret", "weight": 3}, {"id": "q"}, {"id": "b"}]', '"secret"');
SELECT split, epoch AS a FROM revenant.claim_splits('pu', 'w1', ttl => '1 h') \gset
SELECT revenant.commit_split('pu', 'a', :a, '"secret"', 7);
SELECT split, epoch AS q FROM revenant.claim_splits('pu', 'w1', ttl => '1 h') \gset
SELECT revenant.fail_split('pu', 'q', :q, 'secret');
SELECT revenant.join_plan('pu', 'm', 1, '1 h') AS member \gset
UPDATE known SET generation = :g, a = :a, member = :member;
RESET ROLE;
-- Splits that are none
WITH f (function, command) AS (VALUES
	('commit_split', 'SELECT revenant.commit_split(''pu'', %s, 1)'), ('fence_split', 'SELECT revenant.fence_split(''pu'', %s, 1)'), ('fail_split', 'SELECT revenant.fail_split(''pu'', %s, 1, ''no'')'),
	('release_split', 'SELECT revenant.release_split(''pu'', %s, 1)'), ('requeue_split', 'SELECT revenant.requeue_split(''pu'', %s)'), ('drained', 'SELECT revenant.drained(''pu'', %s, 1)'),
	('decline_revoke', 'SELECT revenant.decline_revoke(''pu'', %s, 1)'))
SELECT f.function, outcome('revenant_pu_owner', format(f.command, 'NULL')) AS "null", outcome('revenant_pu_owner', format(f.command, '''''')) AS empty,
	outcome('revenant_pu_owner', format(f.command, 'repeat(''x'', 129)')) AS long, outcome('revenant_pu_owner', format(f.command, '''none''')) AS "unknown" FROM f;
-- Everything else, by what is wrong with it
WITH f (command) AS (VALUES
	($$create_plan('pu x', replan_every => NULL)$$), ($$create_plan('pu x', lease_ttl => NULL)$$), ($$create_plan('pu x', max_attempts => NULL)$$), ($$create_plan('pu x', max_in_flight => NULL)$$),
	($$create_plan('pu x', rebalance_delay => NULL)$$), ($$create_plan('pu x', drain_deadline => NULL)$$),
	($$create_plan('pu x', lease_ttl => '299 ms')$$), ($$create_plan('pu x', lease_ttl => '-1 s')$$), ($$create_plan('pu x', replan_every => '11 years', lease_ttl => '11 years')$$),
	($$create_plan('pu x', replan_every => '29 s')$$), ($$create_plan('pu x', replan_every => '11 years')$$), ($$create_plan('pu x', lease_ttl => '61 s')$$),
	($$create_plan('pu x', max_attempts => 0)$$), ($$create_plan('pu x', max_attempts => 1000001)$$), ($$create_plan('pu x', max_in_flight => 0)$$), ($$create_plan('pu x', max_in_flight => -1)$$),
	($$create_plan('pu x', rebalance_delay => '-1 s')$$), ($$create_plan('pu x', rebalance_delay => '11 years')$$), ($$create_plan('pu x', drain_deadline => '-1 s')$$), ($$create_plan('pu x', drain_deadline => '11 years')$$),
	($$create_plan('pu x', lease_ttl => '300 ms', replan_every => '300 ms', rebalance_delay => '0', drain_deadline => '0')$$),
	($$create_plan('pu x', lease_ttl => '10 years', replan_every => '10 years', max_attempts => 1000000, max_in_flight => 1000000)$$), ($$create_plan('pu x', '')$$),
	($$lead_plan('pu', NULL)$$), ($$lead_plan('pu', '')$$), ($$lead_plan('pu', repeat('x', 513))$$), ($$lead_plan('pu', 'a', '299 ms')$$), ($$lead_plan('pu', 'a', '-1 s')$$), ($$lead_plan('pu', 'a', '0')$$),
	($$lead_plan('pu', 'a', '11 years')$$), ($$lead_plan('pu', 'a', '300 ms')$$), ($$lead_plan('pu', repeat('x', 512), '10 years')$$), ($$lead_plan('pu', 'a', fingerprint => '')$$),
	($$claim_splits('pu', NULL)$$), ($$claim_splits('pu', '')$$), ($$claim_splits('pu', repeat('x', 513))$$), ($$claim_splits('pu', 'w', NULL)$$), ($$claim_splits('pu', 'w', 0)$$), ($$claim_splits('pu', 'w', -1)$$),
	($$claim_splits('pu', 'w', 10001)$$), ($$claim_splits('pu', 'w', 10000)$$), ($$claim_splits('pu', 'w', 1, '299 ms')$$), ($$claim_splits('pu', 'w', 1, '-1 s')$$), ($$claim_splits('pu', 'w', 1, '11 years')$$),
	($$claim_splits('pu', repeat('x', 512), 1, '300 ms')$$), ($$claim_splits('pu', 'w', fingerprint => 'another')$$),
	($$commit_splits('pu', NULL)$$), ($$fail_split('pu', 'a', 1, NULL)$$),
	($$renew_splits('pu', NULL, '{1}')$$), ($$renew_splits('pu', '{a}', NULL)$$), ($$renew_splits('pu', '{a}', '{}')$$), ($$renew_splits('pu', '{}', '{1}')$$), ($$renew_splits('pu', '{NULL}', '{1}')$$),
	($$renew_splits('pu', '{a}', '{NULL}')$$), ($$renew_splits('pu', '{a}', '{1}', '299 ms')$$), ($$renew_splits('pu', '{a}', '{1}', '-1 s')$$), ($$renew_splits('pu', '{a}', '{1}', '11 years')$$),
	($$renew_splits('pu', '{{a,b},{c,d}}', '{1,2,3,4}')$$),
	($$join_plan('pu', NULL)$$), ($$join_plan('pu', '')$$), ($$join_plan('pu', repeat('x', 513))$$), ($$join_plan('pu', 'w', 0)$$), ($$join_plan('pu', 'w', -1)$$), ($$join_plan('pu', 'w', 1000001)$$),
	($$join_plan('pu', 'w', 1000000)$$), ($$join_plan('pu', 'w', 1, '299 ms')$$), ($$join_plan('pu', 'w', 1, '-1 s')$$), ($$join_plan('pu', 'w', 1, '11 years')$$), ($$join_plan('pu', repeat('x', 512), 1, '300 ms')$$),
	($$join_plan('pu', 'w', fingerprint => 'another')$$), ($$poll_plan('pu', 1, -1)$$), ($$purge_plan('pu', NULL)$$), ($$alter_plan('pu', NULL)$$))
SELECT f.command, outcome('revenant_pu_owner', 'SELECT revenant.' || f.command) FROM f;
SELECT outcome('revenant_pu_owner', $$CALL revenant.await_splits('pu', NULL, '-1 s')$$) AS await_splits, outcome('revenant_pu_owner', $$CALL revenant.await_splits('pu', NULL, '11 years')$$) AS years;
-- In expressions that a set cannot be in; private functions with anything
SELECT outcome('revenant_pu_owner', $$SELECT * FROM revenant.claim_splits('pu', 'w') WHERE EXISTS (SELECT revenant.poll_plan('pu', 1))$$);
SELECT revenant._plan_live(NULL) IS NULL AS live, revenant._plan_live('pu none') IS NULL AS unknown, revenant._split_live(NULL, NULL, NULL), revenant._split_live(1, 1, 1), revenant._split_live(-1, -1, -9223372036854775808);
SELECT outcome('revenant_pu_owner', $$SELECT revenant._run_planner('pu', true)$$), outcome('revenant_pu_owner', $$SELECT revenant._run_planner(NULL, NULL)$$);

/* ---- whose it is */

-- As somebody without a level, reader, user and admin who are no members of the owner's role; and as its members.
SELECT c.function, outcome('revenant_pu_none', format(c.command, '''pu''')) AS none, outcome('revenant_pu_reader', format(c.command, '''pu''')) AS reader, outcome('revenant_pu_user', format(c.command, '''pu''')) AS "user",
	outcome('revenant_pu_admin', format(c.command, '''pu''')) AS admin, outcome('revenant_pu_worker', format(c.command, '''pu''')) AS worker, outcome('revenant_pu_owner', format(c.command, '''pu''')) AS owner FROM call AS c ORDER BY c.n;
-- A plan is its creator's, whose level may change: then he and his members work on it, and an admin among them defines it.
SELECT revenant.grant_usage('revenant_pu_owner', 'user');
SELECT c.function, outcome('revenant_pu_owner', format(c.command, '''pu''')) AS owner, outcome('revenant_pu_worker', format(c.command, '''pu''')) AS worker, outcome('revenant_pu_chief', format(c.command, '''pu''')) AS chief FROM call AS c ORDER BY c.n;
SELECT revenant.grant_usage('revenant_pu_owner', 'admin');
-- The right epoch of another role opens nothing, also where both are members of the owner's.
SET ROLE revenant_pu_worker;
SELECT split, epoch AS b FROM revenant.claim_splits('pu', 'w2', ttl => '1 h') \gset
RESET ROLE;
WITH f (command) AS (VALUES ('commit_split(%L, %L, %s)'), ('commit_split(%L, %L, %s, ''1'')'), ('commit_split(%L, %L, %s, done => true)'), ('fence_split(%L, %L, %s)'), ('fail_split(%L, %L, %s, ''no'')'),
	('release_split(%L, %L, %s)'), ('drained(%L, %L, %s)'), ('decline_revoke(%L, %L, %s)'), ('renew_splits(%L, ARRAY[%L], ARRAY[%s])'), ('commit_splits(%L, jsonb_build_array(jsonb_build_object(''split'', %L, ''epoch'', %s)))'))
SELECT f.command, outcome('revenant_pu_other', format('SELECT revenant.' || f.command, 'pu', 'b', :b)) AS other, outcome('revenant_pu_owner', format('SELECT revenant.' || f.command, 'pu', 'b', :b)) AS owner,
	outcome('revenant_pu_other', format('SELECT revenant.' || f.command, 'pu', 'b', :b - 1)) AS wrong, outcome('revenant_pu_worker', format('SELECT revenant.' || f.command, 'pu', 'b', :b)) AS worker,
	outcome(current_user::text, format('SELECT revenant.' || f.command, 'pu', 'b', :b)) AS superuser FROM f;
SET ROLE revenant_pu_worker;
SELECT revenant.commit_split('pu', 'b', :b, '"b"', done => true);
SET ROLE revenant_pu_other;
SELECT revenant.commit_split('pu', 'b', :b, '"b"', done => true);
RESET ROLE;
-- The lease of a plan is taken by members only, and by nobody where there is no such plan.
SELECT r.role, outcome(r.role, $$SELECT revenant.try_acquire('plan/pu', ttl => '1 h')$$) AS try_acquire, outcome(r.role, $$SELECT revenant.acquire_xact('plan/pu', wait => '0')$$) AS acquire_xact,
	outcome(r.role, $$SELECT revenant.claim('plan/pu', 'me')$$) AS claim, outcome(r.role, format($$SELECT revenant.renew('plan/pu', %s)$$, :g)) AS renew, outcome(r.role, format($$SELECT revenant.fence('plan/pu', %s)$$, :g)) AS fence,
	outcome(r.role, format($$SELECT revenant.release('plan/pu', %s)$$, :g)) AS release, outcome(r.role, $$SELECT revenant.try_acquire('plan/pu none', ttl => '1 h')$$) AS none,
	outcome(r.role, $$SELECT revenant.try_acquire_all('{a,plan/pu}', ttl => '1 h')$$) AS try_acquire_all
FROM unnest('{revenant_pu_none,revenant_pu_user,revenant_pu_admin,revenant_pu_worker,revenant_pu_owner}'::text[]) AS r (role);
-- An admin may revoke it, as any lease: who planned is told.
SET ROLE revenant_pu_admin;
BEGIN;
SELECT revenant.revoke('plan/pu', 'for a reason') = :g AS revoked;
SET ROLE revenant_pu_owner;
SELECT revenant.publish('pu', :g, '[]');
ROLLBACK;
RESET ROLE;
SELECT outcome('revenant_pu_user', $$SELECT revenant.revoke('plan/pu')$$);
-- An owner that is renamed is the owner; but where another role has his name now nobody changes the plan but a superuser, and that role has nothing of it.
ALTER ROLE revenant_pu_owner RENAME TO revenant_pu_renamed;
SELECT c.function, outcome('revenant_pu_renamed', format(c.command, '''pu''')) AS renamed, outcome(current_user::text, format(c.command, '''pu''')) AS superuser FROM call AS c WHERE c.function <> 'create_plan' ORDER BY c.n;
CREATE ROLE revenant_pu_owner;
SELECT revenant.grant_usage('revenant_pu_owner', 'admin');
SELECT c.function, outcome('revenant_pu_renamed', format(c.command, '''pu''')) AS renamed, outcome('revenant_pu_owner', format(c.command, '''pu''')) AS another, outcome(current_user::text, format(c.command, '''pu''')) AS superuser
FROM call AS c WHERE c.function <> 'create_plan' ORDER BY c.n;
SELECT revenant.revoke_usage('revenant_pu_owner');
DROP ROLE revenant_pu_owner;
ALTER ROLE revenant_pu_renamed RENAME TO revenant_pu_owner;
SELECT revenant.grant_usage('revenant_pu_owner', 'admin');

/* ---- what is shown */

CREATE FUNCTION show() RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY SELECT format('%s %s %s %s planned=%s done=%s quarantined=%s generation=%s cursor=%s', p.plan, p.owner, p.state, p.leader, p.planned, p.done, p.quarantined, p.generation IS NOT NULL, coalesce(p.cursor::text, '-'))
		FROM revenant.plans AS p WHERE p.plan = 'pu';
	RETURN QUERY SELECT format('%s %s %s attempts=%s weight=%s deadline=%s epoch=%s watermark=%s progress=%s spec=%s reasons=%s generation=%s', s.split, s.state, coalesce(s.worker, '-'), s.attempts, s.weight, s.deadline IS NOT NULL,
		s.epoch IS NOT NULL, coalesce(s.watermark::text, '-'), coalesce(s.progress::text, '-'), coalesce(s.spec::text, '-'), s.reasons IS NOT NULL, s.generation IS NOT NULL) FROM revenant.splits AS s WHERE s.plan = 'pu' ORDER BY s.split;
	RETURN QUERY SELECT format('%s %s owned=%s member=%s', m.worker, m.state, m.owned, m.member IS NOT NULL) FROM revenant.members AS m WHERE m.plan = 'pu';
END $$;
SET ROLE revenant_pu_none;
SELECT show();
SET ROLE revenant_pu_reader;
SELECT show();
SET ROLE revenant_pu_user;
SELECT show();
SELECT count(*) FROM revenant.plan;
SELECT count(*) FROM revenant.split;
SELECT count(*) FROM revenant.split_state;
SELECT count(*) FROM revenant.member;
SET ROLE revenant_pu_admin;
SELECT show();
SET ROLE revenant_pu_worker;
SELECT show();
RESET ROLE;
-- Nobody writes the tables but the functions.
SELECT t AS "table", outcome('revenant_pu_chief', format('DELETE FROM revenant.%I', t)) AS delete, outcome('revenant_pu_chief', format('UPDATE revenant.%I SET plan_id = 1', t)) AS update FROM unnest('{plan,split,split_state,member}'::text[]) AS t;

/* ---- hostile names */

CREATE FUNCTION work(p text, s text, w text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	g bigint;
	c record;
	told text;
BEGIN
	PERFORM revenant.create_plan(p);
	g := revenant.lead_plan(p, w);
	PERFORM revenant.publish(p, g, jsonb_build_array(jsonb_build_object('id', s, 'spec', s)));
	SELECT * INTO STRICT c FROM revenant.claim_splits(p, w);
	PERFORM revenant.commit_splits(p, jsonb_build_array(jsonb_build_object('split', c.split, 'epoch', c.epoch, 'progress', w)));
	PERFORM revenant.join_plan(p, w);
	PERFORM revenant.fail_split(p, s, c.epoch, w);
	SELECT concat_ws(' ', v.split = s, v.spec = to_jsonb(s), v.progress = to_jsonb(w), v.reasons -> 0 ->> 'worker' = w, v.reasons -> 0 ->> 'reason' = w) INTO STRICT told FROM revenant.splits AS v WHERE v.plan = p;
	SELECT concat_ws(' ', told, m.worker = w, v.leader = w) INTO STRICT told FROM revenant.members AS m JOIN revenant.plans AS v USING (plan) WHERE m.plan = p;
	PERFORM revenant.drop_plan(p);
	RETURN told;
END $$;
SELECT work(n.p, n.s, n.w) FROM (VALUES ($$it's "a" plan; DROP TABLE pu.known; --$$, $$it's "a" split\$$, $$it's "a" worker %s %n$$), (E'\n\t\b', E'\x01', E'\r\n'), (repeat('x', 400), repeat('x', 128), repeat('x', 512)),
	(repeat('ü', 200), repeat('ü', 64), repeat('ü', 256)), ('plan/plan/', 'NULL', 'null'), (' ', ' ', ' '), ('%s', '{}', '[]'), ('NULL', '"', '\'), ('🐘', '🐘', '🐘')) AS n (p, s, w);
CREATE SCHEMA "it's ""pu""" AUTHORIZATION revenant_pu_owner;
SET ROLE revenant_pu_owner;
SELECT revenant.create_plan($$it's "a" plan$$, 'it''s');
\set VERBOSITY default
SELECT revenant.publish($$it's "a" plan$$, NULL, '[]');
SELECT revenant.claim_splits($$it's "a" plan$$, 'w', fingerprint => $$"it's" %s$$);
SELECT revenant.fence_split($$it's "a" plan$$, $$no "such" split's$$, 1);
\set VERBOSITY sqlstate
SELECT revenant.drop_plan($$it's "a" plan$$);
-- Also for those that are planned in the database, whose names are in a command
CREATE FUNCTION planner(cursor jsonb, generation bigint) RETURNS revenant.split_plan LANGUAGE sql AS $$ SELECT '[{"id": "it''s"}]'::jsonb, NULL::jsonb, true $$;
CREATE FUNCTION "it's ""pu"""."it's" (cursor jsonb, generation bigint) RETURNS revenant.split_plan LANGUAGE sql AS $$ SELECT '[{"id": "it''s"}]'::jsonb, NULL::jsonb, true $$;
SELECT revenant.create_plan('pu x', planner_function => $$"it's ""pu""".it's$$);
SELECT revenant.create_plan(repeat('x', 400), planner_function => 'planner'), revenant.create_plan($$it's "a" plan $$ || repeat('''', 380), planner_function => $$"it's ""pu"""."it's"$$);
DO $$
BEGIN
	WHILE EXISTS (SELECT FROM revenant.plans WHERE planner_function IS NOT NULL AND replan_outcome IS NULL) LOOP COMMIT; PERFORM pg_sleep(0.01); END LOOP;
END $$;
SELECT length(plan) AS length, planner_function, replan_outcome, planned, state FROM revenant.plans WHERE planner_function IS NOT NULL ORDER BY plan COLLATE "C";
SELECT revenant.drop_plan(plan) FROM revenant.plans WHERE planner_function IS NOT NULL;
RESET ROLE;

/* ---- the names of tasks */

SELECT outcome('revenant_pu_owner', $$SELECT revenant.create_task('plan/pu', 'SELECT 1')$$) AS create_task, outcome('revenant_pu_owner', $$SELECT revenant.create_task('plan/', 'SELECT 1')$$) AS no_name,
	outcome('revenant_pu_owner', $$SELECT revenant.create_task('pu task', 'SELECT 1', lease => 'plan/pu')$$) AS lease, outcome('revenant_pu_owner', $$SELECT revenant.create_task('Plan/pu', 'SELECT 1')$$) AS another;
SET ROLE revenant_pu_owner;
CREATE FUNCTION waiter(cursor jsonb, generation bigint) RETURNS revenant.split_plan LANGUAGE sql AS $$ SELECT NULL::jsonb, NULL::jsonb, false $$;
SELECT revenant.create_plan('pu task', planner_function => 'waiter');
RESET ROLE;
SELECT outcome('revenant_pu_owner', $$SELECT revenant.alter_task('plan/pu task', '{"command": "SELECT 1"}')$$) AS alter_task, outcome('revenant_pu_owner', $$SELECT revenant.drop_task('plan/pu task')$$) AS drop_task,
	outcome('revenant_pu_owner', $$SELECT revenant.alter_task('plan/none', '{}')$$) AS alter_none, outcome('revenant_pu_owner', $$SELECT revenant.drop_task('plan/none')$$) AS drop_none,
	outcome(current_user::text, $$SELECT revenant.drop_task('plan/pu task')$$) AS superuser;
\set VERBOSITY default
SELECT revenant.create_task('plan/it''s', 'SELECT 1');
SELECT revenant.alter_task('plan/pu task', '{"command": "SELECT 1"}');
SELECT revenant.drop_task('plan/pu task');
\set VERBOSITY sqlstate
-- What is not its definition is its owner's to do, when it does not run just now.
DO $$
BEGIN
	WHILE NOT EXISTS (SELECT FROM revenant.plans AS p JOIN revenant.tasks AS t ON t.name = 'plan/' || p.plan WHERE p.plan = 'pu task' AND p.replan_outcome = 'noop' AND t.pid IS NULL) LOOP
		COMMIT;
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
SELECT f, outcome('revenant_pu_owner', format('SELECT revenant.%I(%L)', f, 'plan/pu task')) AS owner, outcome('revenant_pu_admin', format('SELECT revenant.%I(%L)', f, 'plan/pu task')) AS admin
FROM unnest('{disable_task,enable_task,restart_task,run_task,unquarantine_task}'::text[]) AS f;
-- Whoever cannot become the owner does not say what runs as the owner.
SELECT outcome('revenant_pu_chief', $$SELECT revenant.alter_plan('pu task', '{"planner_function": "pu.planner"}')$$) AS member, outcome('revenant_pu_admin', $$SELECT revenant.alter_plan('pu task', '{"planner_function": null}')$$) AS admin,
	outcome('revenant_pu_admin', $$SELECT revenant.drop_plan('pu task')$$) AS drop_plan;
SELECT revenant.drop_plan('pu task');
SELECT count(*) FROM revenant.tasks WHERE name LIKE 'plan/pu%';

/* ---- read-only transactions */

SELECT c.function, outcome('revenant_pu_owner', 'SET LOCAL transaction_read_only = on; ' || format(c.command, '''pu''')) AS read_only FROM call AS c ORDER BY c.n;
BEGIN READ ONLY;
SELECT count(*) FROM revenant.plans WHERE plan = 'pu';
SELECT count(*) FROM revenant.splits WHERE plan = 'pu';
SELECT count(*) FROM revenant.members WHERE plan = 'pu';
SELECT count(*) FROM revenant.stat_plans WHERE plan = 'pu';
SELECT planned FROM revenant.plan_progress('pu');
COMMIT;

/* ---- what came from elsewhere is held, until it is adopted */

INSERT INTO revenant.plan SELECT 'pu held' AS plan, 7 AS plan_id, owner, owner_oid, fingerprint, planner_function, replan_every, lease_ttl, max_attempts, max_in_flight, rebalance_delay, drain_deadline, metadata, created_at, 1 AS system_identifier,
	database_oid, generation, leader, final, planned, last_number, revision, cursor, updated_at, verdict, verdict_seq, replan_at, replan_outcome, replan_error FROM revenant.plan WHERE plan = 'pu';
INSERT INTO revenant.split SELECT 7, number, split, weight, generation, spec FROM revenant.split WHERE plan_id = (SELECT plan_id FROM revenant.plan WHERE plan = 'pu');
INSERT INTO revenant.split_state SELECT 7, number, epoch, member, updated_at, role_oid, attempts, state, ended, worker, watermark, progress, reasons FROM revenant.split_state WHERE plan_id = (SELECT plan_id FROM revenant.plan WHERE plan = 'pu');
SELECT plan, state, planned, done, quarantined, owned FROM revenant.plans WHERE plan = 'pu held';
SELECT c.function, outcome('revenant_pu_owner', format(c.command, '''pu held''')) AS owner, outcome(current_user::text, format(c.command, '''pu held''')) AS superuser FROM call AS c ORDER BY c.n;
SELECT outcome('revenant_pu_owner', $$SELECT revenant.try_acquire('plan/pu held', ttl => '1 h')$$) AS lease, outcome('revenant_pu_admin', $$SELECT revenant.adopt()$$) AS adopt;
\set VERBOSITY default
SELECT revenant.claim_splits('pu held', 'w');
\set VERBOSITY sqlstate
SELECT revenant.adopt();
SELECT plan, owner, state, planned, done, quarantined, owned FROM revenant.plans WHERE plan = 'pu held';
SET ROLE revenant_pu_owner;
SELECT revenant.lead_plan('pu held', 'planner', '1 h') AS held \gset
SELECT * FROM revenant.planner_state('pu held', :held);
SELECT split, epoch > :a AS newer, spec, progress, attempt FROM revenant.claim_splits('pu held', 'w', 10);
SELECT revenant.commit_split('pu held', 'a', :a, '1');
SELECT planned, runnable, owned, done, quarantined FROM revenant.plan_progress('pu held');
SELECT revenant.drop_plan('pu held');
RESET ROLE;
-- A row that says what none of our functions writes is refused, and does no more harm than that.
BEGIN;
UPDATE revenant.plan SET max_attempts = 0 WHERE plan = 'pu';
SAVEPOINT s;
SELECT revenant.alter_plan('pu', '{"max_attempts": 3}');
ROLLBACK TO s;
UPDATE revenant.plan SET max_attempts = 1, verdict = 'maybe' WHERE plan = 'pu';
SAVEPOINT s;
SELECT revenant.reset_plan('pu');
ROLLBACK;
SELECT outcome('revenant_pu_owner', $$SELECT revenant.alter_plan('pu', '{"max_attempts": 3}')$$);

/* ---- what is counted */

SET ROLE revenant_pu_owner;
SELECT revenant.create_plan('pu stat', max_attempts => 2, lease_ttl => '1 s', rebalance_delay => '0', drain_deadline => '1 h');
RESET ROLE;
CREATE VIEW counted AS SELECT acquired_create AS "create", acquired_reclaimed AS reclaimed, acquired_expired AS expired, acquired_reassigned AS reassigned, lost_fenced, lost_expired, releases, commits, finished, failures, quarantines,
	planned, replans_ok AS ok, replans_noop AS noop, replans_fenced AS fenced, fenced_writes FROM revenant.stat_plans WHERE plan = 'pu stat';
CREATE VIEW gauged AS SELECT owned, done, quarantined, live_members, leader, idle_members, draining FROM revenant.stat_plans WHERE plan = 'pu stat';
SELECT * FROM counted;
SELECT * FROM gauged;
SET ROLE revenant_pu_owner;
SELECT revenant.lead_plan('pu stat', 'planner', '1 h') AS g \gset
SELECT outcome FROM revenant.publish('pu stat', :g, '[{"id": "a"}, {"id": "b"}, {"id": "c"}, {"id": "d", "seed": {"done": true}}]');
SELECT outcome FROM revenant.publish('pu stat', :g, '[{"id": "a"}]');
SELECT revenant.publish('pu stat', :g - 1, '[{"id": "e"}]');
BEGIN;
SELECT outcome FROM revenant.publish('pu stat', :g, '[{"id": "e"}]');
SELECT count(*) FROM revenant.claim_splits('pu stat', 'w', 10);
ROLLBACK;
RESET ROLE;
SELECT * FROM counted;
SELECT * FROM gauged;
SET ROLE revenant_pu_owner;
SELECT split, epoch AS a FROM revenant.claim_splits('pu stat', 'w', ttl => '1 h') \gset
SELECT revenant.commit_split('pu stat', 'a', :a, '1'), revenant.commit_split('pu stat', 'a', :a, '1'), revenant.commit_split('pu stat', 'a', :a);
BEGIN;
SELECT revenant.commit_split('pu stat', 'a', :a, '2'), revenant.commit_split('pu stat', 'a', :a, '3');
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT revenant.commit_split('pu stat', 'a', :a, '2');
ROLLBACK TO s;
SELECT revenant.commit_split('pu stat', 'a', :a, '4');
COMMIT;
SELECT revenant.commit_split('pu stat', 'a', :a - 1, '2');
BEGIN;
SELECT revenant.release_split('pu stat', 'a', :a);
ROLLBACK;
BEGIN;
SELECT revenant.fail_split('pu stat', 'a', :a, 'no');
ROLLBACK;
RESET ROLE;
SELECT * FROM counted;
SET ROLE revenant_pu_owner;
SELECT revenant.release_split('pu stat', 'a', :a), revenant.release_split('pu stat', 'a', :a);
SELECT split, epoch AS b FROM revenant.claim_splits('pu stat', 'w', ttl => '1 h') \gset
SELECT revenant.fail_split('pu stat', 'b', :b, 'no'), revenant.fail_split('pu stat', 'b', :b, 'no');
SELECT split, epoch AS c FROM revenant.claim_splits('pu stat', 'w', ttl => '1 h') \gset
SELECT split, epoch AS a FROM revenant.claim_splits('pu stat', 'w', ttl => '1 h') \gset
SELECT split, epoch AS b FROM revenant.claim_splits('pu stat', 'w', ttl => '1 h') \gset
SELECT revenant.fail_split('pu stat', 'b', :b, 'no'), revenant.commit_split('pu stat', 'a', :a, done => true), revenant.commit_split('pu stat', 'a', :a, done => true), revenant.drained('pu stat', 'c', :c);
RESET ROLE;
SELECT * FROM counted;
SELECT * FROM gauged;
-- A member: what it gains, what goes on under a new epoch, and what it gives back; and a claim that expires.
SET ROLE revenant_pu_owner;
SELECT revenant.join_plan('pu stat', 'm', ttl => '1 h') AS member \gset
CREATE PROCEDURE poll_once(plan text, member bigint) LANGUAGE plpgsql AS $$
BEGIN
	WHILE NOT EXISTS (SELECT FROM revenant.poll_plan($1, $2)) LOOP COMMIT; PERFORM pg_sleep(0.01); COMMIT; END LOOP;
END $$;
CALL poll_once('pu stat', :member);
SELECT revenant.join_plan('pu stat', 'm', ttl => '1 h') AS member \gset
RESET ROLE;
SELECT * FROM gauged;
SET ROLE revenant_pu_owner;
SELECT revenant.leave_plan('pu stat', :member);
SELECT split FROM revenant.claim_splits('pu stat', 'w', ttl => '300 ms');
DO $$ BEGIN WHILE EXISTS (SELECT FROM revenant.splits WHERE plan = 'pu stat' AND state = 'owned') LOOP COMMIT; PERFORM pg_sleep(0.01); END LOOP; END $$;
SELECT split, epoch AS c FROM revenant.claim_splits('pu stat', 'w', ttl => '1 h') \gset
SELECT revenant.join_plan('pu stat', 'idle', ttl => '1 h') AS member \gset
RESET ROLE;
SELECT * FROM counted;
SELECT * FROM gauged;
-- A reset of the counters: at once, and what is there now stays.
SELECT stats_reset AS before FROM revenant.stat_plans WHERE plan = 'pu stat' \gset
BEGIN;
SELECT revenant.stat_reset();
ROLLBACK;
SELECT * FROM counted;
SELECT * FROM gauged;
SELECT stats_reset > :'before' AS later FROM revenant.stat_plans WHERE plan = 'pu stat';
SELECT outcome('revenant_pu_none', 'SELECT count(*) FROM revenant.stat_plans') AS none, outcome('revenant_pu_reader', 'SELECT count(*) FROM revenant.stat_plans') AS reader, outcome('revenant_pu_user', 'SELECT revenant.stat_reset()') AS "user";
-- One that was made anew begins at zero.
SET ROLE revenant_pu_owner;
SELECT revenant.commit_split('pu stat', 'c', :c, '1');
SELECT revenant.commit_split('pu stat', 'c', :c - 1, '1');
RESET ROLE;
SELECT * FROM counted;
SELECT revenant.drop_plan('pu stat');
SELECT count(*) FROM counted;
SELECT revenant.create_plan('pu stat');
SELECT * FROM counted;
SELECT * FROM gauged;

/* ---- nothing is left */

SELECT revenant.drop_plan(plan) FROM revenant.plans WHERE plan LIKE 'pu%';
SELECT count(*) FROM revenant.split_state;
SELECT count(*) FROM revenant.member;
SELECT revenant.revoke_usage(r) FROM unnest('{revenant_pu_reader,revenant_pu_user,revenant_pu_admin,revenant_pu_chief,revenant_pu_owner}'::text[]) AS r;
\set VERBOSITY terse
SET client_min_messages = warning;
DROP SCHEMA pu, "it's ""pu""" CASCADE;
DROP ROLE revenant_pu_none, revenant_pu_reader, revenant_pu_user, revenant_pu_admin, revenant_pu_worker, revenant_pu_other, revenant_pu_chief, revenant_pu_owner;
