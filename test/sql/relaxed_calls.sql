-- A relaxed call is as transactional as any: what is rolled back leaves nothing in memory, what commits with something else is written
-- with it, a receipt says what is durable, and versions grow by one through all of it.
CREATE SCHEMA regress_relaxed;
CREATE ROLE regress_relaxed_user;
SELECT revenant.grant_usage('regress_relaxed_user');
GRANT ALL ON SCHEMA regress_relaxed TO regress_relaxed_user;
SET search_path TO regress_relaxed;
CREATE TABLE effect (id text, n int);
GRANT ALL ON effect TO PUBLIC;
-- Adds, and may insert, fail, stop, or call another entity of its type.
CREATE FUNCTION handler(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE plpgsql AS $$
DECLARE
	n int := coalesce((state ->> 'n')::int, 0) + coalesce((message ->> 'add')::int, 0);
BEGIN
	IF message ? 'insert' THEN INSERT INTO regress_relaxed.effect VALUES (id, n); END IF;
	IF message ? 'then' THEN PERFORM revenant.call('relaxed', message ->> 'then', '{"add": 100}'); END IF;
	IF message ? 'fail' THEN RAISE EXCEPTION 'told to fail'; END IF;
	RETURN ROW(to_jsonb(n), CASE WHEN message ? 'add' THEN jsonb_build_object('n', n) END, message ->> 'stop')::revenant.reply;
END $$;
CREATE FUNCTION terminator(id text, state jsonb, reason text) RETURNS void LANGUAGE sql
AS $$ INSERT INTO regress_relaxed.effect VALUES (id || ': ' || reason, (state ->> 'n')::int) $$;
SELECT revenant.create_snapshot_table('regress_relaxed.entity');
SELECT revenant.create_entity_type('relaxed', 'entity', 'handler', durability => 'on_stop', terminator => 'terminator', idle_timeout => NULL);
-- What is in the row, in memory, and what a reader gets.
CREATE FUNCTION see(which text) RETURNS text LANGUAGE sql AS $$
SELECT format('row %s, %s; memory %s; read %s%s', coalesce(e.version::text, '-'), coalesce(e.state ->> 'n', '-'),
	coalesce(l.version || CASE WHEN l.dirty THEN ' dirty' ELSE '' END, '-'), r.state ->> 'n', CASE WHEN r.dirty THEN ' dirty' END)
FROM (VALUES (which)) AS w (id) LEFT JOIN regress_relaxed.entity AS e USING (id) LEFT JOIN revenant.loaded_entities AS l ON l.type = 'relaxed' AND l.id = w.id,
	revenant.read_entity('relaxed', which) AS r
$$;
CREATE FUNCTION durable() RETURNS text LANGUAGE sql AS $$ SELECT format('%s %s %s%s', id, version, durable, CASE WHEN xid IS NOT NULL THEN ' written' END) FROM revenant.receipt() $$;
CREATE FUNCTION add(which text, n int DEFAULT 1, durability text DEFAULT NULL) RETURNS text LANGUAGE sql
AS $$ SELECT (revenant.call('relaxed', which, jsonb_build_object('add', n), durability))::text $$;
-- The flusher comes when the first call asks for it.
CREATE PROCEDURE warm(which text) LANGUAGE plpgsql AS $$
BEGIN
	LOOP
		PERFORM revenant.call('relaxed', which, '{"add": 0, "t": 1}');
		PERFORM revenant.call('relaxed', which, '{"add": 1}');
		COMMIT;
		EXIT WHEN EXISTS (SELECT FROM revenant.loaded_entities AS l WHERE l.type = 'relaxed' AND l.id = which);
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
CALL warm('warm');

/* ---- one call */

SELECT add('a'), durable();
SELECT see('a');
SELECT add('a');
SELECT durable();
SELECT see('a');
-- unchanged: nothing is written, and what is pending stays so
SELECT revenant.call('relaxed', 'a', '{}'), durable();
SELECT see('a');
SELECT revenant.call('relaxed', 'a', '{"add": 0}'), durable();
-- unchanged, and strict: what is pending is written
SELECT revenant.call('relaxed', 'a', '{}', 'strict');
SELECT durable();
SELECT see('a');
SELECT revenant.call('relaxed', 'a', '{}', 'strict');
SELECT durable();
SELECT add('a'), add('a');
SELECT see('a');
SELECT add('a', 1, 'strict');
SELECT durable();
SELECT see('a');
-- with a request it is strict
SELECT revenant.call('relaxed', 'a', '{"add": 1}', NULL, '00000000-0000-0000-0000-00000000ee01');
SELECT durable();
SELECT see('a');
SELECT add('a', 1, 'interval');
SELECT durable();
SELECT revenant.flush_entities('relaxed', 'a');
SELECT see('a');
SELECT version, reserved FROM entity WHERE id = 'a';

/* ---- rolled back, as a whole or in part */

SELECT add('b'), add('b');
SELECT see('b');
BEGIN;
SELECT add('b', 10);
SELECT see('b');
ROLLBACK;
SELECT see('b');
BEGIN;
SELECT add('b', 1);
SAVEPOINT s;
SELECT add('b', 10);
SELECT see('b');
ROLLBACK TO s;
SELECT see('b');
SELECT add('b', 1);
RELEASE s;
SAVEPOINT s;
SELECT add('b', 1);
RELEASE s;
SELECT durable();
COMMIT;
SELECT see('b');
BEGIN;
SAVEPOINT s;
SELECT add('b', 1);
ROLLBACK TO s;
COMMIT;
SELECT see('b');
SELECT add('b', 5), 1 / (length(add('b', 5)) - length(add('b', 5)));
SELECT see('b');
SELECT revenant.call('relaxed', 'b', '{"add": 1, "fail": 1}');
SELECT see('b');
DO $$
BEGIN
	PERFORM revenant.call('relaxed', 'b', '{"add": 1}');
	BEGIN
		PERFORM revenant.call('relaxed', 'b', '{"add": 1, "fail": 1}');
	EXCEPTION WHEN raise_exception THEN
		PERFORM revenant.call('relaxed', 'b', '{"add": 1}');
	END;
END $$;
SELECT see('b');
-- the one that loads it is rolled back
BEGIN;
SELECT add('c');
SELECT see('c');
ROLLBACK;
SELECT see('c');
SELECT add('c');
SELECT see('c');

/* ---- with something else */

BEGIN;
SELECT add('b');
INSERT INTO effect VALUES ('beside', 1);
SELECT durable();
COMMIT;
SELECT durable();
SELECT see('b');
BEGIN;
INSERT INTO effect VALUES ('before', 1);
SELECT add('b');
SELECT durable();
COMMIT;
SELECT see('b');
BEGIN;
SELECT add('b');
SAVEPOINT s;
INSERT INTO effect VALUES ('gone', 1);
ROLLBACK TO s;
COMMIT;
SELECT see('b');
SELECT revenant.call('relaxed', 'b', '{"add": 1, "insert": true}');
SELECT durable();
SELECT see('b');
-- two of them: both are written; two where one is not changed: that one stays
BEGIN;
SELECT add('b'), add('c');
COMMIT;
SELECT see('b'), see('c');
BEGIN;
SELECT add('b'), revenant.call('relaxed', 'c', '{}');
COMMIT;
SELECT see('b'), see('c');
SELECT add('c');
BEGIN;
SELECT add('c');
SAVEPOINT s;
SELECT add('b');
ROLLBACK TO s;
COMMIT;
SELECT see('b'), see('c');
-- in the handler
SELECT revenant.call('relaxed', 'b', '{"add": 1, "then": "c"}');
SELECT see('b'), see('c');
SELECT revenant.call('relaxed', 'b', '{"add": 1, "then": "b"}');
-- a strict one after a relaxed one, and the other way round
BEGIN;
SELECT add('b'), add('b', 1, 'strict'), add('b');
COMMIT;
SELECT see('b');
BEGIN;
SELECT add('b');
SAVEPOINT s;
SELECT add('b', 1, 'strict');
ROLLBACK TO s;
COMMIT;
SELECT see('b');
BEGIN;
SELECT add('b');
PREPARE TRANSACTION 'regress_relaxed';
SELECT see('b');
BEGIN;
SELECT revenant.call('relaxed', 'b', '{}');
PREPARE TRANSACTION 'regress_relaxed';
-- what notifies or draws a number is no write
BEGIN;
SELECT add('b');
NOTIFY regress_relaxed;
COMMIT;
SELECT see('b');

/* ---- how it is seen by others and by snapshots of other kinds */

BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT add('b'), see('b');
COMMIT;
SELECT see('b');
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT add('b');
INSERT INTO effect VALUES ('serializable', 1);
COMMIT;
SELECT see('b');
SELECT add('b');
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT add('b', 1, 'strict');
COMMIT;
SELECT see('b');
BEGIN READ ONLY;
SELECT see('b');
SELECT add('b');
ROLLBACK;
SELECT add('b');
DISCARD ALL;
SET search_path TO regress_relaxed;
SELECT see('b');
CREATE PROCEDURE by_and_by() LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 3 LOOP
		PERFORM revenant.call('relaxed', 'b', '{"add": 1}');
		COMMIT;
		PERFORM revenant.call('relaxed', 'b', '{"add": 100}');
		ROLLBACK;
	END LOOP;
END $$;
CALL by_and_by();
SELECT see('b');
BEGIN;
DECLARE calls CURSOR FOR SELECT add('b') FROM generate_series(1, 3);
FETCH 2 FROM calls;
COMMIT;
SELECT see('b');

/* ---- stopped, deleted, saved over */

SELECT add('d'), add('d');
SELECT see('d');
SELECT revenant.stop_entity('relaxed', 'd'), revenant.stop_entity('relaxed', 'd');
SELECT see('d');
SELECT version = reserved AS nothing_is_reserved FROM entity WHERE id = 'd';
SELECT revenant.stop_entity('relaxed', 'never');
SELECT add('d'), add('d');
SELECT see('d');
BEGIN;
SELECT revenant.stop_entity('relaxed', 'd', 'undone');
SELECT see('d');
ROLLBACK;
SELECT see('d');
BEGIN;
SELECT add('d'), revenant.stop_entity('relaxed', 'd', 'shutdown'), add('d');
COMMIT;
SELECT see('d');
SELECT revenant.call('relaxed', 'd', '{"add": 1, "stop": "enough"}');
SELECT durable();
SELECT see('d');
SELECT revenant.call('relaxed', 'd', '{"stop": "unchanged"}');
SELECT add('d'), add('d');
SELECT revenant.call('relaxed', 'd', '{"stop": "pending"}');
SELECT see('d');
SELECT id, n FROM effect WHERE id LIKE 'd: %';
SELECT add('d'), add('d');
SELECT revenant.delete_entity('relaxed', 'd'), revenant.delete_entity('relaxed', 'd');
SELECT see('d');
SELECT add('d'), add('d');
SELECT see('d');
BEGIN;
SELECT add('d'), revenant.delete_entity('relaxed', 'd'), add('d');
COMMIT;
SELECT see('d');
SELECT add('d');
BEGIN;
SELECT revenant.delete_entity('relaxed', 'd');
SELECT see('d');
ROLLBACK;
SELECT see('d');
SELECT (revenant.load('entity', 'd')).version, (revenant.load('entity', 'd')).dirty;
\set VERBOSITY terse
SELECT revenant.save('entity', 'd', 1, '{"n": 0}');
\set VERBOSITY default
SELECT see('d');
SELECT revenant.save('entity', 'd', (revenant.load('entity', 'd')).version, '{"n": 50}');
SELECT see('d');
SELECT add('d'), add('d');
SELECT see('d');
BEGIN;
SELECT version, dirty, state FROM revenant.load('entity', 'd', true);
SELECT see('d');
SELECT add('d');
COMMIT;
SELECT see('d');
SELECT add('d');
SELECT revenant.remove('entity', 'd', (revenant.load('entity', 'd')).version) > 0;
SELECT see('d');
SELECT add('d'), add('d');
SELECT see('d');

/* ---- a row that was written past us */

SELECT add('e'), add('e');
SELECT see('e');
BEGIN;
UPDATE entity SET state = '{"n": 1000}' WHERE id = 'e';
SELECT add('e', 1, 'strict');
ROLLBACK;
SELECT see('e');
BEGIN;
DELETE FROM entity WHERE id = 'e';
SELECT add('e', 1, 'strict');
ROLLBACK;
SELECT see('e');
UPDATE entity SET state = '{"n": 1000}' WHERE id = 'e';
SELECT see('e');
SELECT add('e', 1, 'strict');
SELECT see('e');
SELECT add('e');
SELECT see('e');

/* ---- tables that something else looks at, and callers with less */

GRANT SELECT, UPDATE, INSERT ON entity TO regress_relaxed_user;
SET ROLE regress_relaxed_user;
SELECT add('a');
SELECT durable();
RESET ROLE;
REVOKE INSERT ON entity FROM regress_relaxed_user;
SET ROLE regress_relaxed_user;
SELECT add('a');
SELECT durable();
SELECT add('not yet');
RESET ROLE;
REVOKE UPDATE ON entity FROM regress_relaxed_user;
SET ROLE regress_relaxed_user;
SELECT add('a');
SELECT revenant.flush_entities('relaxed');
SELECT revenant.flush_entities('relaxed', 'a');
SELECT revenant.flush_entities();
SELECT revenant.stop_entity('relaxed', 'a');
SELECT version, dirty FROM revenant.read_entity('relaxed', 'a');
SELECT count(*) > 0 AS shown FROM revenant.loaded_entities;
RESET ROLE;
REVOKE SELECT ON entity FROM regress_relaxed_user;
SET ROLE regress_relaxed_user;
SELECT version, dirty FROM revenant.read_entity('relaxed', 'a');
SELECT count(*) > 0 AS shown FROM revenant.loaded_entities;
SELECT count(*) > 0 AS shown FROM revenant._loaded_entities();
RESET ROLE;
SELECT see('a');
SELECT add('b'), add('c');
SELECT see('b'), see('c');
ALTER TABLE entity ENABLE ROW LEVEL SECURITY;
SELECT add('b');
SELECT durable();
SELECT see('b'), see('c');
SELECT add('b');
SELECT see('b');
ALTER TABLE entity DISABLE ROW LEVEL SECURITY;
SELECT add('b'), add('b');
SELECT see('b');
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.state := NEW.state || '{"touched": true}'; RETURN NEW; END $$;
CREATE TRIGGER touch BEFORE UPDATE ON entity FOR EACH ROW EXECUTE FUNCTION touch();
SELECT add('b');
SELECT durable();
SELECT see('b'), see('c');
DROP TRIGGER touch ON entity;
CREATE RULE nothing AS ON DELETE TO entity DO ALSO NOTHING;
SELECT add('c');
SELECT durable();
SELECT see('c');
DROP RULE nothing ON entity;
SELECT add('c'), add('c');
SELECT see('c');
ALTER TABLE entity ADD CONSTRAINT small CHECK ((state ->> 'n')::int < 5000);
SELECT add('c', 10000);
SELECT durable();
\set VERBOSITY terse
SELECT add('c', 1, 'strict');
\set VERBOSITY default
SELECT revenant.flush_entities('relaxed', 'c');
SELECT see('c');
SELECT flush_failures > 0 AS failures_are_shown FROM revenant.loaded_entities WHERE id = 'c' AND type = 'relaxed';
SELECT add('c', -10000);
SELECT revenant.flush_entities('relaxed', 'c');
SELECT see('c'), flush_failures FROM revenant.loaded_entities WHERE id = 'c' AND type = 'relaxed';
ALTER TABLE entity DROP CONSTRAINT small;

/* ---- flush_entities, and types that change */

SELECT revenant.flush_entities(NULL, 'a');
SELECT revenant.flush_entities('no such type');
SELECT add('a'), add('b'), add('c');
SELECT add('a');
SELECT add('b');
SELECT revenant.flush_entities('relaxed', 'a'), revenant.flush_entities('relaxed', 'a'), revenant.flush_entities('relaxed'), revenant.flush_entities();
SELECT see('a'), see('b'), see('c');
BEGIN READ ONLY; SELECT revenant.flush_entities(); ROLLBACK;
SELECT add('a');
SELECT add('b');
BEGIN;
SELECT add('a');
SELECT revenant.alter_entity_type('relaxed', '{"durability": "strict"}');
SELECT see('a'), see('b');
SELECT add('a');
ROLLBACK;
SELECT see('a'), see('b');
BEGIN;
SELECT add('a'), add('new');
SELECT revenant.alter_entity_type('relaxed', '{"durability": "strict"}');
COMMIT;
SELECT see('a'), see('b'), see('new');
SELECT count(*) FROM revenant.loaded_entities WHERE type = 'relaxed';
SELECT count(*) AS skipping FROM entity WHERE reserved <> version;
SELECT add('a', 1, 'on_stop'), durable();
SELECT see('a');
SELECT revenant.alter_entity_type('relaxed', '{"durability": "interval", "flush_every": "1 h"}');
CALL warm('warm');
SELECT add('a'), add('a', 1, 'on_stop');
SELECT durable();
SELECT see('a');
SELECT revenant.alter_entity_type('relaxed', '{"durability": "on_stop"}');
SELECT add('a');
SELECT see('a');
-- a state in memory is upgraded as one in a row is
CREATE FUNCTION upgrade(old_vsn int, state jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('n', (state ->> 'n')::int * 10) $$;
SELECT revenant.alter_entity_type('relaxed', '{"vsn": 2, "upgrade": "upgrade"}');
SELECT revenant.call('relaxed', 'a', '{}'), durable();
SELECT see('a');
SELECT add('a');
SELECT see('a');
SELECT vsn, version, dirty FROM revenant.read_entity('relaxed', 'a');
SELECT revenant.upgrade_all('relaxed') > 0;
SELECT see('b');
CREATE OR REPLACE FUNCTION handler(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql
AS $$ SELECT ROW('"another"', state || '{"other": true}', NULL)::revenant.reply $$;
SELECT add('a');
SELECT state, dirty FROM revenant.read_entity('relaxed', 'a');
BEGIN;
SELECT revenant.call('relaxed', 'many ' || i, '{}') IS NULL AS void FROM generate_series(1, 1001) AS i;
ROLLBACK;
BEGIN;
SELECT count(revenant.call('relaxed', 'many ' || i, '{}')) FROM generate_series(1, 999) AS i;
COMMIT;
SELECT count(*) FROM revenant.loaded_entities WHERE id LIKE 'many %';
BEGIN;
SELECT revenant.drop_entity_type('relaxed');
ROLLBACK;
SELECT state, dirty FROM revenant.read_entity('relaxed', 'a');
SELECT add('a');
SELECT revenant.drop_entity_type('relaxed');
SELECT count(*) FROM revenant.loaded_entities WHERE type = 'relaxed';
SELECT count(*) AS skipping FROM entity WHERE reserved <> version;
SELECT version, state FROM entity WHERE id = 'a';
-- the next type that it serves goes on from there
SELECT revenant.create_entity_type('relaxed too', 'entity', 'handler', durability => 'interval', vsn => 2);
SELECT revenant.call('relaxed too', 'a', '{}');
SELECT version, durable, type FROM revenant.receipt();
SELECT DISTINCT type FROM revenant.loaded_entities WHERE id = 'a';
SELECT revenant.drop_entity_type('relaxed too');

/* ---- tables of other kinds */

CREATE OR REPLACE FUNCTION handler(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql
AS $$ SELECT ROW(message, coalesce(state, '[]') || message, NULL)::revenant.reply $$;
CREATE FUNCTION put(t text, n int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM revenant.call(t, 'x', to_jsonb(n));
	RETURN (SELECT format('version %s, durable %s', version, durable) FROM revenant.receipt());
END $$;
-- a history has what was written
SELECT revenant.create_snapshot_table('regress_relaxed.kept', history => -1);
SELECT revenant.create_entity_type('relaxed history', 'kept', 'handler', durability => 'on_stop');
SELECT put('relaxed history', 1);
SELECT put('relaxed history', 2);
SELECT put('relaxed history', 3);
SELECT revenant.flush_entities('relaxed history');
SELECT put('relaxed history', 4);
SELECT revenant.stop_entity('relaxed history', 'x');
SELECT version, state, dirty FROM revenant.history('kept', 'x');
-- partitions
CREATE TABLE parted (id text PRIMARY KEY, version bigint, vsn int, state jsonb, updated_at timestamptz, deleted boolean, reserved bigint) PARTITION BY HASH (id);
CREATE TABLE parted_0 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 1);
SELECT revenant.create_entity_type('relaxed parted', 'parted', 'handler', durability => 'interval', flush_every => '4 s');
SELECT put('relaxed parted', 1);
SELECT put('relaxed parted', 2);
SELECT version, state FROM parted;
SELECT revenant.flush_entities('relaxed parted');
SELECT version, state FROM parted;
SELECT put('relaxed parted', 3);
SELECT revenant.stop_entity('relaxed parted', 'x');
SELECT version, state, reserved FROM parted;
-- a temporary table: nobody else could write it
CREATE TEMPORARY TABLE passing (LIKE entity INCLUDING ALL);
SELECT revenant.create_entity_type('relaxed passing', 'passing', 'handler', durability => 'on_stop');
SELECT put('relaxed passing', 1);
SELECT put('relaxed passing', 2);
SELECT version, state, reserved FROM passing;
-- two types in one transaction are written, both
BEGIN;
SELECT put('relaxed parted', 4);
SELECT put('relaxed history', 5);
SELECT put('relaxed parted', 5);
COMMIT;
SELECT durable FROM revenant.receipt();
SELECT p.version, k.version FROM parted AS p, kept AS k;
-- what is ahead of a table that is gone stays, and is shown, until the type goes
SELECT put('relaxed parted', 6);
DROP TABLE parted;
SELECT put('relaxed parted', 7);
RESET ROLE;
SELECT revenant.alter_entity_type('relaxed parted', '{"vsn": 1}');
DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM revenant.loaded_entities WHERE type = 'relaxed parted' AND flush_failures > 0) LOOP PERFORM pg_sleep(0.01); END LOOP; END $$;
SELECT type, id, version, dirty FROM revenant.loaded_entities WHERE type = 'relaxed parted';
SELECT revenant.drop_entity_type('relaxed parted');
DO $$ BEGIN WHILE EXISTS (SELECT FROM revenant.loaded_entities WHERE type = 'relaxed parted') LOOP PERFORM pg_sleep(0.01); END LOOP; END $$;
SELECT revenant.drop_entity_type(t) FROM unnest('{relaxed history,relaxed passing}'::text[]) AS t;

\set VERBOSITY terse
SET client_min_messages TO warning;
DROP SCHEMA regress_relaxed CASCADE;
SELECT revenant.revoke_usage('regress_relaxed_user');
DROP ROLE regress_relaxed_user;
