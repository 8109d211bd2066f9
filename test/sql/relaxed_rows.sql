-- What is in memory is of a row: it goes with it through changes of the table, is hidden with it, and is written into no other one.
CREATE SCHEMA regress_rows;
CREATE ROLE regress_rows_user;
SELECT revenant.grant_usage('regress_rows_user');
GRANT ALL ON SCHEMA regress_rows TO regress_rows_user;
SET search_path TO regress_rows;
\set VERBOSITY terse
CREATE FUNCTION handler(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE plpgsql AS $$
BEGIN
	RETURN ROW(state, to_jsonb(coalesce(state::int, 0) + coalesce(message::int, 0)), NULL)::revenant.reply;
END $$;
SELECT revenant.create_snapshot_table('entity');
SELECT revenant.create_entity_type('rows', 'entity', 'handler', durability => 'on_stop', idle_timeout => NULL);
CREATE FUNCTION see(which text) RETURNS text LANGUAGE sql AS $$
SELECT format('row %s, %s; memory %s', e.version, e.state, coalesce(l.version || CASE WHEN l.dirty THEN ' dirty' ELSE '' END, '-'))
FROM entity AS e LEFT JOIN revenant.loaded_entities AS l ON l.type = 'rows' AND l.id = e.id WHERE e.id = which
$$;
CREATE FUNCTION add(which text, durability text DEFAULT NULL) RETURNS jsonb LANGUAGE sql AS $$ SELECT revenant.call('rows', which, '1', durability) $$;
-- The flusher comes when the first call asks for it.
CREATE PROCEDURE warm() LANGUAGE plpgsql AS $$
BEGIN
	LOOP
		PERFORM add('warm');
		COMMIT;
		EXIT WHEN EXISTS (SELECT FROM revenant.loaded_entities AS l WHERE l.type = 'rows');
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
CALL warm();

/* ---- several changes in one transaction: each is made of the one before */

SELECT add('a'), add('a');
SELECT see('a');
BEGIN;
SELECT add('a'), add('a');
SELECT revenant.stop_entity('rows', 'a');
COMMIT;
SELECT see('a');
SELECT add('a');
SELECT add('a');
BEGIN;
SELECT add('a');
SELECT revenant.call('rows', 'a', '0', 'strict');
COMMIT;
SELECT see('a');
DO $$
BEGIN
	PERFORM regress_rows.add('a');
	BEGIN
		PERFORM regress_rows.add('a');
		BEGIN
			PERFORM regress_rows.add('a');
			RAISE division_by_zero;
		EXCEPTION WHEN division_by_zero THEN
		END;
	EXCEPTION WHEN division_by_zero THEN
	END;
	BEGIN
		BEGIN
			PERFORM regress_rows.add('a');
		EXCEPTION WHEN division_by_zero THEN
		END;
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN
	END;
END $$;
SELECT version, state, dirty FROM revenant.read_entity('rows', 'a');
SELECT add('a', 'strict');
SELECT see('a');

/* ---- a rewrite of the table, and columns of somebody else's, lose nothing */

SELECT add('b');
SELECT add('b');
ALTER TABLE entity ADD COLUMN copied text GENERATED ALWAYS AS (state #>> '{}') STORED;
SELECT add('b', 'strict');
SELECT see('b');
ALTER TABLE entity DROP COLUMN copied, ADD COLUMN mine int;
SELECT add('b');
UPDATE entity SET mine = 7 WHERE id = 'b';
SELECT revenant.flush_entities('rows', 'b');
SELECT see('b'), mine FROM entity WHERE id = 'b';
SELECT add('b');
UPDATE entity SET mine = 8 WHERE id = 'b';
SELECT revenant.stop_entity('rows', 'b');
SELECT see('b'), mine FROM entity WHERE id = 'b';
-- but one of what is ours is a conflict
SELECT add('b');
SELECT add('b');
UPDATE entity SET deleted = true WHERE id = 'b';
SELECT add('b', 'strict');
SELECT see('b');

/* ---- row security hides both */

SELECT add('secret');
SELECT add('secret');
GRANT SELECT, INSERT, UPDATE ON entity TO regress_rows_user;
ALTER TABLE entity ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON entity TO regress_rows_user USING (id = 'own');
SET ROLE regress_rows_user;
SELECT count(*) FROM entity;
SELECT revenant.read_entity('rows', 'secret');
SELECT revenant.call('rows', 'secret', '0');
SELECT revenant.stop_entity('rows', 'secret'), revenant.delete_entity('rows', 'secret');
RESET ROLE;
SELECT see('secret');
SELECT add('secret');
SELECT see('secret');
ALTER TABLE entity DISABLE ROW LEVEL SECURITY;

/* ---- a guard that comes when memory is ahead: what was promised before it is in the row, and from then on calls need the fence */

SELECT add('g');
SELECT add('g');
SELECT see('g');
SELECT revenant.guard_table('entity', 'rows guard');
SELECT see('g');
\set VERBOSITY sqlstate
SELECT add('g');
\set VERBOSITY terse
SELECT revenant.unguard_table('entity');
SELECT add('g');
SELECT see('g');

/* ---- a table that goes with the transaction takes what it kept along */

SELECT add('c');
SELECT add('c');
BEGIN;
SELECT add('c');
DROP TABLE entity;
COMMIT;
SELECT revenant.drop_entity_type('rows');

SELECT revenant.revoke_usage('regress_rows_user');
\set VERBOSITY default
SET client_min_messages = warning;
DROP SCHEMA regress_rows CASCADE;
DROP ROLE regress_rows_user;
