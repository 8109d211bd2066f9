-- A name is data, whatever is in it: quotes, backslashes, dollar signs, line ends, statements, formats. It comes back as it was given, is the
-- same thing for everybody, and nothing in it is run or told as if we had said it.

CREATE ROLE regress_user LOGIN;
SELECT revenant.grant_usage('regress_user', 'admin');
GRANT CREATE ON SCHEMA public TO regress_user;
CREATE TABLE sn_name AS SELECT n, name FROM unnest(ARRAY[
	'''; DROP TABLE sn_name; --', '"; DROP TABLE sn_name; --', '$$; DROP TABLE sn_name; --', E'\\''; DROP TABLE sn_name; --', E'\\', '$revenant$', '%s%n%d$1',
	E'two\nLOG:  forged\tlines', E'bell\u0007 \u202E turned', '{"a": "b"}', ' ', 'é' || repeat('ü', 60), 'pg_catalog.int4', '"quoted"."name"', 'public', 'NULL', '-- comment', '/* open'])
	WITH ORDINALITY AS s (name, n);
GRANT SELECT ON sn_name TO regress_user;
SET ROLE regress_user;
SET standard_conforming_strings = off;	-- what is quoted by us must hold with either
SET escape_string_warning = off;

/* ---- leases, elections, events */

SELECT count(revenant.acquire(name, ttl => '1 h', holder => name, metadata => jsonb_build_object(name, name))) AS acquired FROM sn_name;
SELECT count(*) AS there, bool_and(l.holder = s.name AND l.metadata = jsonb_build_object(s.name, s.name)) AS same FROM revenant.leases AS l JOIN sn_name AS s ON s.name = l.lease;
SELECT bool_and(strpos(revenant.explain_lease(name), '"' || name || '" is held in ttl scope by "' || name || '"') = 1) AS explained FROM sn_name;
SELECT count(*) AS released FROM revenant.leases AS l JOIN sn_name AS s ON s.name = l.lease WHERE revenant.release(l.lease, l.token);
SELECT count(*) AS led FROM sn_name WHERE (revenant.claim(name, name, '1 h')).is_leader;
SELECT bool_and((revenant.leader(name)).leader = name) AS same FROM sn_name;
SELECT bool_and(revenant.revoke(name, name) IS NOT NULL) AS revoked FROM sn_name;
SELECT count(*) AS told, bool_and(e.detail ->> 'reason' = s.name) AS same FROM revenant.events() AS e JOIN sn_name AS s ON s.name = e.subject WHERE e.event = 'leadership.revoked';

/* ---- the guard of a table says the name in a trigger, a hint, and a lookup */

DO $$
DECLARE
	one record;
	hint text;
	told bigint;
BEGIN
	FOR one IN SELECT s.n, s.name FROM sn_name AS s LOOP
		EXECUTE format('CREATE TABLE %I (a int)', 'sn ' || left(one.name, 20));
		PERFORM revenant.guard_table(format('%I', 'sn ' || left(one.name, 20))::regclass, one.name);
		BEGIN
			EXECUTE format('INSERT INTO %I VALUES (1)', 'sn ' || left(one.name, 20));
			RAISE 'not refused: %', one.name;
		EXCEPTION WHEN SQLSTATE 'RV008' THEN
			GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
		END;
		-- the hint can be pasted, and means the same lease
		told := revenant.acquire(one.name, ttl => '1 h');
		EXECUTE regexp_replace(replace(hint, 'token)', told || ')'), '^Call (.*) first in this transaction, or hold.*$', E'\\1');
		EXECUTE format('INSERT INTO %I VALUES (1)', 'sn ' || left(one.name, 20));
		PERFORM revenant.unguard_table(format('%I', 'sn ' || left(one.name, 20))::regclass);
		EXECUTE format('DROP TABLE %I', 'sn ' || left(one.name, 20));
	END LOOP;
END $$;
SELECT count(*) AS released FROM revenant.leases AS l JOIN sn_name AS s ON s.name = l.lease WHERE revenant.release(l.lease, l.token);

/* ---- tasks, and their leases */

SELECT count(revenant.create_task(name, 'SELECT 1', enabled => false)::text) AS created FROM sn_name;
SELECT bool_and(t.lease = 'task/' || s.name) AS same, count(*) AS there FROM revenant.tasks AS t JOIN sn_name AS s ON s.name = t.name;
SELECT count(revenant.try_acquire('task/' || name)) AS held FROM sn_name;
SELECT count(*) AS released FROM sn_name WHERE revenant.release('task/' || name, revenant.held_token('task/' || name));
SELECT count(revenant.drop_task(name)::text) AS dropped FROM sn_name;

/* ---- plans, their splits, workers and planners */

CREATE FUNCTION "sn'""; planner"(cursor jsonb, generation bigint) RETURNS revenant.split_plan LANGUAGE sql AS $$ SELECT '[]'::jsonb, NULL::jsonb, true $$;
SELECT count(revenant.create_plan(name, fingerprint => name)::text) AS created FROM sn_name;
SELECT count(revenant.publish(p.plan, p.generation, jsonb_build_array(jsonb_build_object('id', left(p.plan, 60), 'spec', p.plan)))) AS published
FROM (SELECT s.name AS plan, revenant.lead_plan(s.name, s.name) AS generation FROM sn_name AS s OFFSET 0) AS p;
SELECT count(c.*) AS claimed, bool_and(c.spec #>> '{}' = s.name AND c.split = left(s.name, 60)) AS same FROM sn_name AS s, revenant.claim_splits(s.name, s.name) AS c;
SELECT count(*) AS there, bool_and(worker = plan) AS same FROM revenant.splits AS p JOIN sn_name AS s ON s.name = p.plan;
SELECT count(revenant.join_plan(name, name)) AS members FROM sn_name;
SELECT count(revenant.drop_plan(name)::text) AS dropped FROM sn_name;
SELECT revenant.create_plan('sn '' -- plan', planner_function => '"sn''""; planner"');
SELECT planner_function FROM revenant.plans WHERE plan LIKE 'sn %';
SELECT command FROM revenant.tasks WHERE name LIKE 'plan/sn %';
SELECT revenant.drop_plan('sn '' -- plan');

/* ---- entities: the type, the id, the table, the functions */

CREATE FUNCTION "sn'""; handler"(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS $$ SELECT to_jsonb($1), $3, NULL::text $$;
SELECT revenant.create_snapshot_table('"sn ''""; table"', history => 1);
SELECT revenant.create_entity_type(E'sn \'"; type', '"sn ''""; table"', '"sn''""; handler"', durability => 'interval');
SELECT handler, snapshots FROM revenant.entity_type;
SELECT bool_and(revenant.call(E'sn \'"; type', name, to_jsonb(name)) = to_jsonb(name)) AS replied FROM sn_name;
SELECT bool_and((revenant.read_entity(E'sn \'"; type', name)).state = to_jsonb(name)) AS same FROM sn_name;
BEGIN;
SELECT count(revenant.send(E'sn \'"; type', name, to_jsonb(name))) AS sent FROM sn_name;
SELECT bool_and(m.message = to_jsonb(s.name)) AS same FROM revenant.messages AS m JOIN sn_name AS s ON s.name = m.id;
ROLLBACK;
SELECT revenant.drop_entity_type(E'sn \'"; type');
DROP TABLE "sn '""; table", "sn '""; table_history";
DROP FUNCTION "sn'""; handler", "sn'""; planner";
-- Names that are no names of functions, tables, roles.
\set VERBOSITY sqlstate
SELECT revenant.create_snapshot_table('sn; DROP TABLE sn_name');
SELECT revenant.create_snapshot_table('pg_catalog.sn');
SELECT revenant.create_snapshot_table('revenant.sn');
SELECT revenant.create_snapshot_table('a.b.c.sn');
SELECT revenant.create_snapshot_table('');
SELECT revenant.create_plan('sn', planner_function => 'pg_catalog.now(); DROP TABLE sn_name');
SELECT revenant.grant_usage('regress_user; ALTER ROLE regress_user SUPERUSER');
RESET ROLE;
SELECT revenant.grant_usage('regress_user"; ALTER ROLE regress_user SUPERUSER; --');
SELECT revenant.grant_usage('public');
SELECT revenant.grant_usage('regress_user', 'user; --');
\set VERBOSITY default
RESET standard_conforming_strings;
RESET escape_string_warning;

-- A role whose name has everything in it.
CREATE ROLE "regress 'a""b\c$$; --";
SELECT revenant.grant_usage('regress ''a"b\c$$; --', 'admin');
SET ROLE "regress 'a""b\c$$; --";
SELECT revenant.acquire('sn-role', ttl => '1 h') IS NOT NULL AS acquired;
SELECT role, revenant.release(lease, token) AS released FROM revenant.leases WHERE lease = 'sn-role';
RESET ROLE;
SELECT revenant.revoke_usage('regress ''a"b\c$$; --');
DROP ROLE "regress 'a""b\c$$; --";

SELECT count(*) AS names FROM sn_name;
DROP TABLE sn_name;
REVOKE CREATE ON SCHEMA public FROM regress_user;
SELECT revenant.revoke_usage('regress_user');
DROP ROLE regress_user;
