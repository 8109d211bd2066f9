-- A type that is created twice is told from another one, nobody makes a type of somebody else's table, and what a type names is found when it is used.
\set VERBOSITY sqlstate
\pset null (null)

CREATE ROLE revenant_et_owner;
CREATE ROLE revenant_et_admin;
CREATE ROLE revenant_et_user;
SELECT revenant.grant_usage('revenant_et_owner', 'admin');
SELECT revenant.grant_usage('revenant_et_admin', 'admin');
SELECT revenant.grant_usage('revenant_et_user');
CREATE SCHEMA et;
GRANT CREATE, USAGE ON SCHEMA et TO revenant_et_owner;
GRANT USAGE ON SCHEMA et TO revenant_et_admin, revenant_et_user;
SET search_path = et, public;
SET ROLE revenant_et_owner;

-- Keeps each message as its state, and answers with the one before.
CREATE FUNCTION keep(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS $$ SELECT coalesce($2, '"none"'), $3, NULL::text $$;
CREATE FUNCTION keep_2(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS $$ SELECT '"second"'::jsonb, $3, NULL::text $$;
CREATE FUNCTION first(id text) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb('first of ' || $1) $$;
CREATE FUNCTION step(old_vsn int, state jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_array($1, $2) $$;
CREATE FUNCTION bye(id text, state jsonb, reason text) RETURNS void LANGUAGE sql AS $$ $$;
SELECT revenant.create_snapshot_table('one');
SELECT revenant.create_snapshot_table('two');
CREATE FUNCTION shown(name text) RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = '' AS $$
	SELECT format('%s handler=%s initial=%s initializer=%s vsn=%s upgrade=%s %s %s %s terminator=%s', t.snapshots, t.handler, coalesce(t.initial_state::text, '-'),
		coalesce(t.initializer, '-'), t.vsn, coalesce(t.upgrade, '-'), t.durability, t.flush_every, coalesce(t.idle_timeout::text, '-'), coalesce(t.terminator, '-'))
	FROM revenant.entity_type AS t WHERE t.type = $1
$$;
RESET ROLE;
GRANT SELECT ON revenant.entity_type TO revenant_et_owner;
SET ROLE revenant_et_owner;

/* ---- create */

SELECT revenant.create_entity_type('et one', 'one', 'keep');
SELECT shown('et one');
-- The same again, and each thing that can be another one
SELECT revenant.create_entity_type('et one', 'one', 'keep');
SELECT revenant.create_entity_type('et one', 'et.one', 'et.keep', durability => 'strict', flush_every => '1000 ms', idle_timeout => '300 s');
SELECT revenant.create_entity_type('et one', 'one', 'keep_2');
SELECT revenant.create_entity_type('et one', 'one', 'keep', '0');
SELECT revenant.create_entity_type('et one', 'one', 'keep', initializer => 'first');
SELECT revenant.create_entity_type('et one', 'one', 'keep', vsn => 2);
SELECT revenant.create_entity_type('et one', 'one', 'keep', upgrade => 'step');
SELECT revenant.create_entity_type('et one', 'one', 'keep', flush_every => '2 s');
SELECT revenant.create_entity_type('et one', 'one', 'keep', idle_timeout => NULL);
SELECT revenant.create_entity_type('et one', 'one', 'keep', terminator => 'bye');
SELECT revenant.create_entity_type('et one', 'two', 'keep');
\set VERBOSITY default
SELECT revenant.create_entity_type('et one', 'two', 'keep_2', vsn => 2);
SELECT revenant.create_entity_type('et one', 'one', 'keep');
\set VERBOSITY sqlstate
-- A table serves one type, under whatever name it is meant.
SELECT revenant.create_entity_type('et two', 'one', 'keep');
SELECT revenant.create_entity_type('et two', 'et.one'::regclass::oid::regclass, 'keep');
-- All arguments
SELECT revenant.create_entity_type('et two', 'two', 'keep', initializer => 'first', vsn => 0, upgrade => 'step', flush_every => '1 ms', idle_timeout => NULL, terminator => 'bye');
SELECT shown('et two');
SELECT revenant.drop_entity_type('et two');
-- Nulls, and what is out of range
SELECT revenant.create_entity_type(NULL, 'two', 'keep');
SELECT revenant.create_entity_type('et two', NULL, 'keep');
SELECT revenant.create_entity_type('et two', 'two', NULL);
SELECT revenant.create_entity_type('et two', 'two', 'keep', vsn => NULL);
SELECT revenant.create_entity_type('et two', 'two', 'keep', durability => NULL);
SELECT revenant.create_entity_type('et two', 'two', 'keep', flush_every => NULL);
SELECT revenant.create_entity_type('', 'two', 'keep');
SELECT revenant.create_entity_type(repeat('x', 256), 'two', 'keep');
SELECT revenant.create_entity_type('et two', 'two', 'keep', vsn => -1);
SELECT revenant.create_entity_type('et two', 'two', 'keep', durability => 'STRICT');
SELECT revenant.create_entity_type('et two', 'two', 'keep', durability => '');
SELECT revenant.create_entity_type('et two', 'two', 'keep', flush_every => '0');
SELECT revenant.create_entity_type('et two', 'two', 'keep', flush_every => '-1 s');
SELECT revenant.create_entity_type('et two', 'two', 'keep', flush_every => '11 years');
SELECT revenant.create_entity_type('et two', 'two', 'keep', idle_timeout => '0');
SELECT revenant.create_entity_type('et two', 'two', 'keep', '1', initializer => 'first');
-- Functions that are not there, or are others
SELECT revenant.create_entity_type('et two', 'two', 'none');
SELECT revenant.create_entity_type('et two', 'two', '');
SELECT revenant.create_entity_type('et two', 'two', 'a.b.c.d');
SELECT revenant.create_entity_type('et two', 'two', 'nowhere.keep');
SELECT revenant.create_entity_type('et two', 'two', 'keep(text, jsonb, jsonb)');
SELECT revenant.create_entity_type('et two', 'two', 'first');
SELECT revenant.create_entity_type('et two', 'two', 'keep', initializer => 'step');
SELECT revenant.create_entity_type('et two', 'two', 'keep', upgrade => 'first');
SELECT revenant.create_entity_type('et two', 'two', 'keep', terminator => 'keep');
CREATE FUNCTION wrong(id text, state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT $2 $$;
SELECT revenant.create_entity_type('et two', 'two', 'wrong');
DROP FUNCTION wrong;
CREATE FUNCTION wrong(id text, state jsonb, message jsonb) RETURNS SETOF revenant.reply LANGUAGE sql AS $$ SELECT NULL::jsonb, $2, NULL::text $$;
SELECT revenant.create_entity_type('et two', 'two', 'wrong');
DROP FUNCTION wrong;
CREATE FUNCTION wrong(id text, state jsonb, message jsonb) RETURNS record LANGUAGE sql AS $$ SELECT NULL::jsonb, $2, NULL::text $$;
SELECT revenant.create_entity_type('et two', 'two', 'wrong');
DROP FUNCTION wrong;
CREATE PROCEDURE wrong(id text, state jsonb, message jsonb) LANGUAGE sql AS $$ SELECT NULL::jsonb, $2, NULL::text $$;
SELECT revenant.create_entity_type('et two', 'two', 'wrong');
DROP PROCEDURE wrong;
CREATE FUNCTION wrong(id text, state jsonb, VARIADIC messages jsonb[]) RETURNS revenant.reply LANGUAGE sql AS $$ SELECT NULL::jsonb, $2, NULL::text $$;
SELECT revenant.create_entity_type('et two', 'two', 'wrong');
DROP FUNCTION wrong;
CREATE FUNCTION wrong(id varchar, state jsonb, message json) RETURNS revenant.reply LANGUAGE sql AS $$ SELECT NULL::jsonb, $2, NULL::text $$;
SELECT revenant.create_entity_type('et two', 'two', 'wrong');
DROP FUNCTION wrong;
CREATE FUNCTION wrong(id text) RETURNS text LANGUAGE sql AS $$ SELECT $1 $$;
SELECT revenant.create_entity_type('et two', 'two', 'keep', initializer => 'wrong');
DROP FUNCTION wrong;
-- Tables that are none
CREATE TABLE wrong (id text PRIMARY KEY);
SELECT revenant.create_entity_type('et two', 'wrong', 'keep');
SELECT revenant.create_entity_type('et two', 'nowhere', 'keep');
SELECT revenant.create_entity_type('et two', 0, 'keep');
CREATE VIEW wrong_view AS SELECT id FROM wrong;
SELECT revenant.create_entity_type('et two', 'wrong_view', 'keep');
DROP VIEW wrong_view;
DROP TABLE wrong;
BEGIN READ ONLY;
SELECT revenant.create_entity_type('et two', 'two', 'keep');
ROLLBACK;
-- Rolled back, it was never there, also for the session that made it.
BEGIN;
SELECT revenant.create_entity_type('et two', 'two', 'keep');
SELECT revenant.call('et two', 'a', '1');
ROLLBACK;
SELECT revenant.call('et two', 'a', '1');
SELECT count(*) FROM two;

/* ---- alter */

SELECT revenant.create_entity_type('et two', 'two', 'keep', '"start"');
SELECT revenant.call('et two', 'a', '1');
SELECT revenant.alter_entity_type('et two', '{"handler": "keep_2"}');
SELECT revenant.call('et two', 'a', '2');
SELECT revenant.alter_entity_type('et two', '{}');
SELECT revenant.alter_entity_type('et two', '{"initial_state": null, "initializer": "first", "vsn": 3, "upgrade": "et.step", "flush_every": "3 s", "idle_timeout": null, "terminator": "bye", "handler": "keep", "durability": "strict"}');
SELECT shown('et two');
SELECT revenant.call('et two', 'a', '3'), revenant.call('et two', 'b', '3');
SELECT revenant.alter_entity_type('et two', '{"initializer": null, "initial_state": "a text"}');
SELECT revenant.call('et two', 'c', '4');
SELECT revenant.alter_entity_type('et two', '{"initializer": "first"}');
SELECT revenant.alter_entity_type('et two', '{"handler": null}');
SELECT revenant.alter_entity_type('et two', '{"vsn": null}');
SELECT revenant.alter_entity_type('et two', '{"durability": null}');
SELECT revenant.alter_entity_type('et two', '{"snapshots": null}');
SELECT revenant.alter_entity_type('et two', '{"flush_every": null}');
SELECT revenant.alter_entity_type('et two', '{"vsn": "two"}');
SELECT revenant.alter_entity_type('et two', '{"vsn": 1.5}');
SELECT revenant.alter_entity_type('et two', '{"vsn": -1}');
SELECT revenant.alter_entity_type('et two', '{"durability": "sometimes"}');
SELECT revenant.alter_entity_type('et two', '{"handler": "none"}');
SELECT revenant.alter_entity_type('et two', '{"handler": 7}');
SELECT revenant.alter_entity_type('et two', '{"idle_timeout": "soon"}');
SELECT revenant.alter_entity_type('et two', '{"type": "other"}');
SELECT revenant.alter_entity_type('et two', '{"colour": "red"}');
SELECT revenant.alter_entity_type('et two', '[]');
SELECT revenant.alter_entity_type('et two', 'null');
SELECT revenant.alter_entity_type('et two', NULL);
SELECT revenant.alter_entity_type(NULL, '{}');
SELECT revenant.alter_entity_type('none', '{}');
SELECT revenant.alter_entity_type('et two', '{"snapshots": "one"}');
SELECT revenant.alter_entity_type('et two', '{"snapshots": "nowhere"}');
SELECT shown('et two');
BEGIN READ ONLY;
SELECT revenant.alter_entity_type('et two', '{"vsn": 4}');
ROLLBACK;
-- Another table: entities begin anew there, and are there again when it goes back.
SELECT revenant.create_snapshot_table('three');
SELECT revenant.alter_entity_type('et two', '{"snapshots": "three"}');
SELECT revenant.call('et two', 'a', '5'), (revenant.read_entity('et two', 'a')).version;
SELECT revenant.alter_entity_type('et two', '{"snapshots": "two"}');
SELECT (revenant.read_entity('et two', 'a')).version > 1 AS the_old_one;
-- Rolled back
BEGIN;
SELECT revenant.alter_entity_type('et two', '{"handler": "keep_2"}');
SELECT revenant.call('et two', 'a', '6');
ROLLBACK;
SELECT revenant.call('et two', 'a', '6');

/* ---- what it names changes */

-- Replaced in the middle of a session, dropped, made again, renamed
SELECT revenant.call('et one', 'a', '1'), revenant.call('et one', 'a', '2');
CREATE OR REPLACE FUNCTION keep(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS $$ SELECT '"replaced"'::jsonb, $3, NULL::text $$;
SELECT revenant.call('et one', 'a', '3');
ALTER FUNCTION keep RENAME TO kept;
SELECT revenant.call('et one', 'a', '4');
ALTER FUNCTION kept RENAME TO keep;
SELECT revenant.call('et one', 'a', '4');
BEGIN;
DROP FUNCTION keep(text, jsonb, jsonb);
SELECT revenant.call('et one', 'a', '5');
ROLLBACK;
SELECT revenant.call('et one', 'a', '5');
DROP FUNCTION keep(text, jsonb, jsonb);
CREATE FUNCTION keep(id text, state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT $3 $$;
SELECT revenant.call('et one', 'a', '5');
DROP FUNCTION keep(text, jsonb, jsonb);
CREATE FUNCTION keep(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE plpgsql AS $$ BEGIN RETURN ROW('"made again"', message, NULL)::revenant.reply; END $$;
SELECT revenant.call('et one', 'a', '5');
\set VERBOSITY default
BEGIN;
DROP FUNCTION keep(text, jsonb, jsonb);
SELECT revenant.call('et one', 'a', '5');
ROLLBACK;
\set VERBOSITY sqlstate
-- The table, too: renamed and moved it is the same one; dropped, there is none until another one has its name
ALTER TABLE one RENAME TO uno;
SELECT (revenant.read_entity('et one', 'a')).version, revenant.call('et one', 'a', '6');
RESET ROLE;
CREATE SCHEMA et_2 AUTHORIZATION revenant_et_owner;
SET ROLE revenant_et_owner;
ALTER TABLE uno SET SCHEMA et_2;
SELECT (revenant.read_entity('et one', 'a')).version, revenant.call('et one', 'a', '7');
RESET ROLE;
ALTER SCHEMA et_2 RENAME TO et_3;
SELECT (revenant.read_entity('et one', 'a')).version, revenant.call('et one', 'a', '8');
ALTER TABLE et_3.uno ENABLE ROW LEVEL SECURITY;
SELECT revenant.call('et one', 'a', '9');
ALTER SCHEMA et_3 RENAME TO et_4;
SELECT revenant.call('et one', 'a', '10');
SELECT snapshots FROM revenant.entity_type WHERE type = 'et one';
SET ROLE revenant_et_owner;
ALTER TABLE et_4.uno SET SCHEMA et;
ALTER TABLE uno RENAME TO one;
DROP TABLE one;
SELECT revenant.call('et one', 'a', '11');
SELECT revenant.read_entity('et one', 'a');
SELECT revenant.delete_entity('et one', 'a');
SELECT revenant.upgrade_all('et one');
SELECT revenant.create_snapshot_table('one');
SELECT revenant.call('et one', 'a', '12'), (revenant.read_entity('et one', 'a')).version;
-- A column that it needs
ALTER TABLE one RENAME COLUMN reserved TO kept_back;
SELECT revenant.call('et one', 'a', '13');
ALTER TABLE one RENAME COLUMN kept_back TO reserved;
SELECT revenant.call('et one', 'a', '13');
-- The schema of the handler
RESET ROLE;
ALTER SCHEMA et RENAME TO et_5;
SELECT revenant.call('et one', 'a', '14');
ALTER SCHEMA et_5 RENAME TO et;
SELECT revenant.call('et one', 'a', '14');

/* ---- who may do this */

-- An admin that does not own the table, an owner that is no admin, and a member of the owner
SET ROLE revenant_et_admin;
SELECT revenant.create_entity_type('et three', 'three', 'keep');
SELECT revenant.alter_entity_type('et one', '{"vsn": 9}');
SELECT revenant.drop_entity_type('et one');
RESET ROLE;
ALTER TABLE three OWNER TO revenant_et_user;
SET ROLE revenant_et_user;
SELECT revenant.create_entity_type('et three', 'three', 'keep');
SELECT revenant.alter_entity_type('et one', '{"vsn": 9}');
SELECT revenant.drop_entity_type('et one');
RESET ROLE;
GRANT revenant_et_owner TO revenant_et_admin;
SET ROLE revenant_et_admin;
SELECT revenant.alter_entity_type('et one', '{"vsn": 9}');
SELECT revenant.alter_entity_type('et one', '{"vsn": 1}');
SELECT revenant.alter_entity_type('et one', '{"snapshots": "three"}');
-- A handler that the creator may not execute
RESET ROLE;
CREATE FUNCTION secret(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS $$ SELECT NULL::jsonb, $3, NULL::text $$;
REVOKE ALL ON FUNCTION secret FROM PUBLIC;
SET ROLE revenant_et_owner;
SELECT revenant.create_snapshot_table('four');
SELECT revenant.create_entity_type('et four', 'four', 'secret');
SELECT revenant.alter_entity_type('et one', '{"handler": "secret"}');
-- The type of a table that is gone: an admin's
SELECT revenant.create_entity_type('et four', 'four', 'keep');
DROP TABLE four;
RESET ROLE;
SET ROLE revenant_et_user;
SELECT revenant.drop_entity_type('et four');
RESET ROLE;
REVOKE revenant_et_owner FROM revenant_et_admin;
SET ROLE revenant_et_admin;
SELECT revenant.drop_entity_type('et four');
RESET ROLE;

/* ---- drop */

BEGIN READ ONLY;
SELECT revenant.drop_entity_type('et one');
ROLLBACK;
SELECT revenant.drop_entity_type(NULL);
SELECT revenant.drop_entity_type('none');
BEGIN;
SELECT revenant.drop_entity_type('et one');
SELECT revenant.call('et one', 'a', '1');
ROLLBACK;
SELECT revenant.call('et one', 'a', '15');
SET ROLE revenant_et_owner;
SELECT revenant.drop_entity_type('et one'), revenant.drop_entity_type('et two');
SELECT revenant.call('et one', 'a', '1');
SELECT revenant.read_entity('et one', 'a');
SELECT revenant.stop_entity('et one', 'a');
SELECT revenant.delete_entity('et one', 'a');
SELECT revenant.upgrade_all('et one');
-- The table stays as it was, and the next type goes on with it.
SELECT (revenant.load('one', 'a')).version;
SELECT revenant.create_entity_type('et one again', 'one', 'keep');
SELECT revenant.call('et one again', 'a', '16'), (revenant.load('one', 'a')).version;
SELECT revenant.drop_entity_type('et one again');

/* ---- rows that somebody else has written, read by a new session */

RESET ROLE;
SELECT revenant.create_entity_type('et row', 'et.one', 'keep');
SELECT revenant.call('et row', 'a', '17');
UPDATE revenant.entity_type SET durability = 'never' WHERE type = 'et row';
\c
\set VERBOSITY sqlstate
SELECT revenant.call('et row', 'a', '18');
UPDATE revenant.entity_type SET durability = 'strict', handler = 'keep' WHERE type = 'et row';
\c
\set VERBOSITY sqlstate
SELECT revenant.call('et row', 'a', '18');
UPDATE revenant.entity_type SET handler = '"' WHERE type = 'et row';
\c
\set VERBOSITY sqlstate
SELECT revenant.call('et row', 'a', '18');
UPDATE revenant.entity_type SET handler = 'et.keep', snapshots = 'x', snapshots_oid = 1 WHERE type = 'et row';
\c
\set VERBOSITY sqlstate
SELECT revenant.call('et row', 'a', '18');
UPDATE revenant.entity_type SET snapshots_oid = 'pg_class'::regclass::oid WHERE type = 'et row';
\c
\set VERBOSITY sqlstate
SELECT revenant.call('et row', 'a', '18');
SELECT revenant.drop_entity_type('et row');
DELETE FROM revenant.entity_type WHERE type = 'et row';

SET client_min_messages = warning;
REVOKE SELECT ON revenant.entity_type FROM revenant_et_owner;
DROP SCHEMA et, et_4 CASCADE;
SELECT revenant.revoke_usage(r) FROM unnest('{revenant_et_owner,revenant_et_admin,revenant_et_user}'::text[]) AS r;
DROP ROLE revenant_et_owner, revenant_et_admin, revenant_et_user;
SELECT type FROM revenant.entity_type;
