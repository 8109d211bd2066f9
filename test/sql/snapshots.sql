-- A stale save overwrites nothing, a removed id never starts again at version 1, and older versions are there as long as they should be.
\set VERBOSITY sqlstate
\pset null (null)

CREATE ROLE revenant_snap_owner;
CREATE ROLE revenant_snap_user;
SELECT revenant.grant_usage('revenant_snap_owner');
SELECT revenant.grant_usage('revenant_snap_user');
CREATE SCHEMA snap AUTHORIZATION revenant_snap_owner;
-- What is there, without the time.
CREATE FUNCTION snap.shown(s revenant.snapshot) RETURNS text LANGUAGE sql AS $$
	SELECT format('%s v%s vsn%s %s%s%s', (s).id, (s).version, (s).vsn, coalesce((s).state::text, '-'),
		CASE WHEN (s).deleted THEN ' deleted' END, CASE WHEN (s).dirty THEN ' dirty' END)
$$;

/* ---- create_snapshot_table */

SET ROLE revenant_snap_owner;
SET search_path = snap, public;
SELECT revenant.create_snapshot_table('plain');
SELECT revenant.create_snapshot_table('snap."Odd "" näme"', 2);
SELECT revenant.create_snapshot_table('UPPER');
SELECT revenant.create_snapshot_table(history => -1, name => 'kept');
SELECT c.relname, n.nspname, pg_get_userbyid(c.relowner) AS owner, obj_description(c.oid) AS comment
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'snap' AND c.relkind = 'r' ORDER BY c.relname COLLATE "C";
SELECT a.attname, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull AS required, pg_get_expr(d.adbin, d.adrelid) AS "default"
FROM pg_attribute AS a LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = 'plain'::regclass AND a.attnum > 0 ORDER BY a.attnum;
SELECT pg_get_triggerdef(t.oid) FROM pg_trigger AS t WHERE t.tgrelid IN ('plain'::regclass, '"Odd "" näme"'::regclass, 'kept'::regclass) ORDER BY 1;
-- Nobody else may do anything with it.
SELECT relacl FROM pg_class WHERE oid = 'plain'::regclass;
SELECT revenant.save('"Odd "" näme"', 'a', 0, '1'), revenant.save('snap."Odd "" näme"', 'a', 1, '2');
SELECT snap.shown(h) FROM revenant.history('"Odd "" näme"', 'a') AS h;
-- What it refuses
SELECT revenant.create_snapshot_table('plain');
SELECT revenant.create_snapshot_table('snap.plain');
SELECT revenant.create_snapshot_table(NULL);
SELECT revenant.create_snapshot_table('x', NULL);
SELECT revenant.create_snapshot_table('x', -2);
SELECT revenant.create_snapshot_table('');
SELECT revenant.create_snapshot_table('a.b.c.d');
SELECT revenant.create_snapshot_table('other.snap.x');
SELECT revenant.create_snapshot_table('nowhere.x');
SELECT revenant.create_snapshot_table('pg_catalog.x');
SELECT revenant.create_snapshot_table('x; DROP TABLE plain');
SELECT revenant.create_snapshot_table('"unfinished');
-- 56 bytes are too many with a history, 55 and the 63 without one are not.
SELECT revenant.create_snapshot_table(repeat('y', 56), 1);
SELECT revenant.create_snapshot_table(repeat('y', 55), 1)::text = repeat('y', 55) AS made;
SELECT revenant.create_snapshot_table(repeat('z', 63))::text = repeat('z', 63) AS made;
-- The history's name is taken: neither of both is made.
CREATE TABLE taken_history (x int);
SELECT revenant.create_snapshot_table('taken', 1);
SELECT to_regclass('taken');
BEGIN READ ONLY;
SELECT revenant.create_snapshot_table('x');
ROLLBACK;
BEGIN;
SELECT revenant.create_snapshot_table('undone', 1);
ROLLBACK;
SELECT to_regclass('undone'), to_regclass('undone_history');
RESET ROLE;
SET ROLE revenant_snap_user;
SELECT revenant.create_snapshot_table('snap.mine');
SET search_path = '';
SELECT revenant.create_snapshot_table('mine');
SET search_path = snap, public;
-- What is made is not what is found first by that name.
RESET ROLE;
CREATE TEMP TABLE twin (x int);
SELECT revenant.create_snapshot_table('twin', 1);
SELECT relnamespace = pg_my_temp_schema() AS temporary, relhastriggers, obj_description(oid) IS NOT NULL AS comment FROM pg_class WHERE relname = 'twin' ORDER BY 1;
SELECT revenant.create_snapshot_table('pg_am');
SELECT relnamespace::regnamespace, left(obj_description(oid), 19) AS comment FROM pg_class WHERE relname = 'pg_am' ORDER BY 2;
DROP TABLE snap.twin, snap.twin_history, snap.pg_am, pg_temp.twin;
SELECT revenant.create_snapshot_table('pg_temp.temporary', 1) IS NOT NULL AS made;
SELECT revenant.save('temporary', 'a', 0, '1'), revenant.save('temporary', 'a', 1, '2'), (SELECT count(*) FROM revenant.history('temporary', 'a')) AS versions;

/* ---- save, load, remove */

SET ROLE revenant_snap_owner;
SELECT revenant.load('plain', 'a') IS NULL AS none, revenant.load('plain', 'a', true) IS NULL AS none_locked;
SELECT revenant.save('plain', 'a', 0, '{"n": 1}');
SELECT revenant.save('plain', 'a', 0, '{"n": 9}');
SELECT revenant.save('plain', 'a', 2, '{"n": 9}');
SELECT revenant.save('plain', 'b', 1, '{"n": 9}');
SELECT revenant.save('plain', 'a', 1, '{"n": 2}', 7);
SELECT revenant.save('plain', 'a', 1, '{"n": 9}');
SELECT snap.shown(revenant.load('plain', 'a')), snap.shown(revenant.load('plain', 'a', true));
SELECT (revenant.load('plain', 'a')).updated_at BETWEEN now() - interval '1 min' AND clock_timestamp() AS in_time;
-- The same state is a new version: save does as it is told.
SELECT revenant.save('plain', 'a', 2, '{"n": 2}', 7);
SELECT revenant.remove('plain', 'a', 2);
SELECT revenant.remove('plain', 'b', 1);
SELECT revenant.remove('plain', 'a', 3);
SELECT revenant.remove('plain', 'a', 4);
SELECT snap.shown(revenant.load('plain', 'a'));
-- The stale process that saves over the removal, and the one that saves over the next life.
SELECT revenant.save('plain', 'a', 3, '{"n": 9}');
SELECT revenant.save('plain', 'a', 0, '{"life": 2}');
SELECT revenant.save('plain', 'a', 1, '{"n": 9}');
SELECT revenant.save('plain', 'a', 4, '{"n": 9}');
SELECT revenant.remove('plain', 'a', 5);
-- A tombstone can be replaced by its version, too.
SELECT revenant.save('plain', 'a', 6, '{"life": 3}');
SELECT snap.shown(revenant.load('plain', 'a'));
SELECT count(*) FROM plain;
-- States of all kinds, and a large one
SELECT revenant.save('plain', 'null', 0, 'null'), revenant.save('plain', 'array', 0, '[]'), revenant.save('plain', 'text', 0, '"ä"'), revenant.save('plain', 'large', 0, to_jsonb(repeat('x', 3000000)));
SELECT snap.shown(revenant.load('plain', 'null')), snap.shown(revenant.load('plain', 'array')), snap.shown(revenant.load('plain', 'text')), length((revenant.load('plain', 'large')).state #>> '{}') AS large;
SELECT revenant.save('plain', 'large', 1, to_jsonb(repeat('y', 3000000)));
SELECT left((revenant.load('plain', 'large')).state #>> '{}', 3);
-- Ids of all kinds; the versions and schema versions that there can be
SELECT revenant.save('plain', ' ', 0, '1'), revenant.save('plain', 'Ä/%_''"', 0, '1'), revenant.save('plain', repeat('x', 1024), 0, '1');
SELECT revenant.save('plain', '', 0, '1');
SELECT revenant.save('plain', repeat('x', 1025), 0, '1');
SELECT revenant.save('plain', repeat('ä', 513), 0, '1');
SELECT revenant.save('plain', 'vsn', 0, '1', 0), revenant.save('plain', 'vsn', 1, '1', 2147483647);
SELECT revenant.save('plain', 'vsn', 2, '1', -1);
SELECT revenant.save('plain', 'vsn', -1, '1');
SELECT revenant.remove('plain', 'vsn', 0);
SELECT revenant.save('plain', 'vsn', 9223372036854775807, '1');
UPDATE plain SET version = 9223372036854775807 WHERE id = 'vsn';
SELECT revenant.save('plain', 'vsn', 9223372036854775807, '1');
SELECT revenant.remove('plain', 'vsn', 9223372036854775807);
UPDATE plain SET version = 8, reserved = 100 WHERE id = 'vsn';
SELECT revenant.save('plain', 'vsn', 8, '1') AS beyond_what_was_reserved;
-- Nulls
SELECT revenant.load(NULL, 'a');
SELECT revenant.load('plain', NULL);
SELECT revenant.load('plain', 'a', NULL) IS NOT NULL AS not_locked;
SELECT revenant.save(NULL, 'a', 0, '1');
SELECT revenant.save('plain', NULL, 0, '1');
SELECT revenant.save('plain', 'a', NULL, '1');
SELECT revenant.save('plain', 'a', 0, NULL);
SELECT revenant.save('plain', 'a', 0, '1', NULL);
SELECT revenant.remove(NULL, 'a', 1);
SELECT revenant.remove('plain', NULL, 1);
SELECT revenant.remove('plain', 'a', NULL);
SELECT revenant.purge_deleted(NULL, now());
SELECT revenant.purge_deleted('plain', NULL);
SELECT revenant.load_version('plain', 'a', NULL);
SELECT revenant.load_version('plain', NULL, 1);
SELECT revenant.load_as_of('plain', 'a', NULL);
SELECT revenant.load_as_of(NULL, 'a', now());
SELECT revenant.history('plain', NULL);
SELECT revenant.history(NULL, 'a');
-- A read-only transaction
BEGIN READ ONLY;
SELECT snap.shown(revenant.load('plain', 'a')), (SELECT count(*) FROM revenant.history('plain', 'a')) AS versions;
SAVEPOINT s;
SELECT revenant.load('plain', 'a', true);
ROLLBACK TO s;
SELECT revenant.save('plain', 'a', 7, '1');
ROLLBACK TO s;
SELECT revenant.remove('plain', 'a', 7);
ROLLBACK TO s;
SELECT revenant.purge_deleted('plain', now());
ROLLBACK;
-- What the errors say
\set VERBOSITY default
SELECT revenant.save('plain', 'none', 3, '1');
SELECT revenant.save('plain', 'none', NULL, '1');
\set VERBOSITY sqlstate

/* ---- inside of a transaction */

BEGIN;
SELECT revenant.save('plain', 'xact', 0, '1');
SAVEPOINT s;
SELECT revenant.save('plain', 'xact', 1, '2');
SELECT revenant.save('plain', 'xact', 1, '3');
ROLLBACK TO s;
SELECT snap.shown(revenant.load('plain', 'xact'));
SELECT revenant.save('plain', 'xact', 1, '4');
DECLARE c CURSOR FOR SELECT snap.shown(revenant.load('plain', 'xact')) FROM generate_series(1, 3);
FETCH 1 FROM c;
SELECT revenant.save('plain', 'xact', 2, '5');
-- a volatile function sees what is there when it is called
FETCH 1 FROM c;
COMMIT;
DO $$
DECLARE
	v bigint := 3;
	caught int := 0;
BEGIN
	FOR i IN 1 .. 100 LOOP
		BEGIN
			v := revenant.save('snap.plain', 'xact', v, to_jsonb(i));
			IF i % 3 = 0 THEN
				PERFORM revenant.save('snap.plain', 'xact', v - 1, '"stale"');
			END IF;
		EXCEPTION WHEN SQLSTATE 'RV003' THEN
			caught := caught + 1;
			v := v - 1;	-- undone with it
		END;
	END LOOP;
	ASSERT caught = 33 AND v = 70, format('%s caught, at version %s', caught, v);
END $$;
SELECT snap.shown(revenant.load('plain', 'xact'));
-- In the command that changed the row itself, it ends, and sees what that wrote.
SELECT revenant.save('plain', 'self', 0, '1');
SET statement_timeout = '30s';
UPDATE plain SET state = '2' WHERE id = 'self' RETURNING snap.shown(revenant.load('plain', 'self')) AS seen, revenant.save('plain', 'self', 1, '3');
WITH u AS (UPDATE plain SET state = '4' WHERE id = 'self' RETURNING id)
SELECT snap.shown(revenant.load('plain', u.id, true)), revenant.save('plain', u.id, 2, '5') FROM u;
WITH i AS (INSERT INTO plain (id, version, state) VALUES ('self-2', 1, '1') RETURNING id) SELECT revenant.save('plain', i.id, 1, '2') FROM i;
WITH d AS (DELETE FROM plain WHERE id = 'self-2' RETURNING id) SELECT revenant.save('plain', d.id, 0, '"again"') FROM d;
SELECT snap.shown(revenant.load('plain', 'self')), snap.shown(revenant.load('plain', 'self-2'));
RESET statement_timeout;
-- At the other isolation levels
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT revenant.save('plain', 'rr', 0, '1'), revenant.save('plain', 'rr', 1, '2'), snap.shown(revenant.load('plain', 'rr')), snap.shown(revenant.load('plain', 'rr', true));
SELECT revenant.save('plain', 'rr', 1, '2');
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT revenant.save('plain', 'rr', 0, '1'), revenant.remove('plain', 'rr', 1), revenant.save('plain', 'rr', 0, '2');
COMMIT;
SELECT snap.shown(revenant.load('plain', 'rr'));

/* ---- tombstones are purged on request */

SELECT revenant.remove('plain', 'text', 1);
UPDATE plain SET updated_at = now() - interval '1 day' WHERE id = 'text';
SELECT revenant.remove('plain', 'array', 1);
SELECT revenant.purge_deleted('plain', now() - interval '2 days'), revenant.purge_deleted('plain', now() - interval '1 hour'), revenant.purge_deleted('plain', now() - interval '1 hour');
SELECT revenant.load('plain', 'text'), snap.shown(revenant.load('plain', 'array'));
SELECT revenant.purge_deleted('plain', '-infinity'), revenant.purge_deleted('plain', 'infinity');
-- only then do its versions begin anew
SELECT revenant.save('plain', 'text', 0, '1');
SELECT count(*) FROM plain WHERE deleted;

/* ---- history */

SELECT revenant.create_snapshot_table('h2', 2);
SELECT revenant.save('h2', 'a', 0, '1'), revenant.save('h2', 'a', 1, '2', 2), revenant.save('h2', 'b', 0, '"b"');
SELECT snap.shown(h) FROM revenant.history('h2', 'a') AS h;
SELECT revenant.save('h2', 'a', 2, '3'), revenant.remove('h2', 'a', 3), revenant.save('h2', 'a', 0, '5');
SELECT snap.shown(h) FROM revenant.history('h2', 'a') AS h;
SELECT snap.shown(h) FROM revenant.history('h2', 'b') AS h;
SELECT count(*) FROM revenant.history('h2', 'none');
SELECT snap.shown(revenant.load_version('h2', 'a', 5)), snap.shown(revenant.load_version('h2', 'a', 4)), snap.shown(revenant.load_version('h2', 'a', 3));
SELECT revenant.load_version('h2', 'a', 2) IS NULL AS pruned, revenant.load_version('h2', 'a', 6) IS NULL AS not_yet, revenant.load_version('h2', 'a', 0) IS NULL AS never, revenant.load_version('h2', 'none', 1) IS NULL AS none;
SELECT revenant.load_version('plain', 'a', 7) IS NOT NULL AS current, revenant.load_version('plain', 'a', 6) IS NULL AS without_history;
-- By time, at and around each version
UPDATE h2 SET updated_at = '2020-01-05' WHERE id = 'a';
UPDATE h2_history SET updated_at = make_date(2020, 1, version::int) WHERE id = 'a';
SELECT t::date, snap.shown(revenant.load_as_of('h2', 'a', t))
FROM generate_series('2020-01-02'::timestamptz, '2020-01-06', '1 day') AS t;
SELECT snap.shown(revenant.load_as_of('h2', 'a', '2020-01-05'::timestamptz - interval '1 us')) AS just_before, revenant.load_as_of('h2', 'a', '-infinity') IS NULL AS never, snap.shown(revenant.load_as_of('h2', 'a', 'infinity')) AS last;
-- Time does not go back within an id.
UPDATE h2 SET updated_at = '2200-01-01' WHERE id = 'b';
SELECT revenant.save('h2', 'b', 1, '2'), (revenant.load('h2', 'b')).updated_at >= '2200-01-01'::timestamptz AS no_sooner;
-- Each writer keeps it: SQL, a rolled-back save does not, a change of nothing but the state replaces it.
UPDATE h2 SET version = version + 1, state = '"by hand"' WHERE id = 'b';
UPDATE h2 SET state = '"replaced"' WHERE id = 'b';
BEGIN;
SELECT revenant.save('h2', 'b', 3, '"undone"');
ROLLBACK;
SELECT snap.shown(h) FROM revenant.history('h2', 'b') AS h;
-- What is purged or deleted is gone from there, too.
SELECT revenant.remove('h2', 'b', 3), revenant.purge_deleted('h2', 'infinity');
DELETE FROM h2 WHERE id = 'a';
SELECT count(*) FROM h2_history;
-- All versions
SELECT count(revenant.save('kept', 'a', i, to_jsonb(i))) FROM generate_series(0, 99) AS i;
SELECT count(*), min(h.version), max(h.version), count(DISTINCT h.state) FROM revenant.history('kept', 'a') AS h;
SELECT snap.shown(revenant.load_version('kept', 'a', 42));
-- Renamed, moved, and its schema renamed: by this session, which has prepared its statements.
ALTER TABLE kept RENAME TO kept_2;
SELECT revenant.save('kept_2', 'a', 100, '1');
ALTER TABLE kept_history RENAME TO kept_2_history;
SELECT revenant.save('kept_2', 'a', 100, '1'), (SELECT count(*) FROM revenant.history('kept_2', 'a')) AS versions;
RESET ROLE;
ALTER SCHEMA snap RENAME TO snap_2;
SELECT revenant.save('snap_2.kept_2', 'a', 101, '1'), (SELECT count(*) FROM revenant.history('snap_2.kept_2', 'a')) AS versions;
ALTER SCHEMA snap_2 RENAME TO snap;
CREATE SCHEMA snap_3;
ALTER TABLE snap.kept_2 SET SCHEMA snap_3;
SELECT revenant.save('snap_3.kept_2', 'a', 102, '1');
ALTER TABLE snap.kept_2_history SET SCHEMA snap_3;
SELECT revenant.save('snap_3.kept_2', 'a', 102, '1'), (SELECT count(*) FROM revenant.history('snap_3.kept_2', 'a')) AS versions;
-- What somebody else calls like the history is none.
DROP TABLE snap_3.kept_2_history;
GRANT CREATE, USAGE ON SCHEMA snap_3 TO revenant_snap_user;
SET ROLE revenant_snap_user;
CREATE FUNCTION snap_3.stolen() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'ran as %', current_user; END $$;
CREATE VIEW snap_3.kept_2_history AS SELECT 'a'::text AS id, snap_3.stolen() AS version, 1 AS vsn, '1'::jsonb AS state, now() AS updated_at, false AS deleted;
GRANT ALL ON snap_3.kept_2_history TO PUBLIC;
RESET ROLE;
SELECT count(*) FROM revenant.history('snap_3.kept_2', 'a');
SELECT revenant.load_version('snap_3.kept_2', 'a', 1) IS NULL AS not_read, revenant.load_as_of('snap_3.kept_2', 'a', '-infinity') IS NULL AS nor_here;
SELECT revenant.save('snap_3.kept_2', 'a', 103, '1');
SET client_min_messages = warning;
DROP SCHEMA snap_3 CASCADE;
RESET client_min_messages;
-- The trigger's function by hand
CREATE TABLE snap.by_hand (LIKE snap.plain INCLUDING ALL);
SELECT revenant._keep_history();
CREATE TRIGGER t BEFORE UPDATE ON snap.by_hand FOR EACH ROW EXECUTE FUNCTION revenant._keep_history('1');
INSERT INTO snap.by_hand (id) VALUES ('a');
UPDATE snap.by_hand SET version = 2;
DROP TRIGGER t ON snap.by_hand;
CREATE TRIGGER t AFTER UPDATE ON snap.by_hand FOR EACH ROW EXECUTE FUNCTION revenant._keep_history('many');
UPDATE snap.by_hand SET version = 2;
DROP TRIGGER t ON snap.by_hand;
CREATE TRIGGER t AFTER UPDATE ON snap.by_hand FOR EACH ROW EXECUTE FUNCTION revenant._keep_history('1');
UPDATE snap.by_hand SET version = 2;
DROP TABLE snap.by_hand;

/* ---- what is no snapshot table */

CREATE TABLE snap.not_one (id text PRIMARY KEY, version int8, vsn int4, state jsonb, updated_at timestamptz, deleted bool);
SELECT revenant.load('not_one', 'a');
ALTER TABLE snap.not_one ADD COLUMN reserved int4;
SELECT revenant.load('not_one', 'a');
ALTER TABLE snap.not_one ALTER COLUMN reserved TYPE int8;
SELECT revenant.load('not_one', 'a') IS NULL AS now_it_is;
ALTER TABLE snap.not_one DROP CONSTRAINT not_one_pkey;
SELECT revenant.load('not_one', 'a');
CREATE INDEX ON snap.not_one (id);
CREATE UNIQUE INDEX ON snap.not_one (id, version);
CREATE UNIQUE INDEX ON snap.not_one (lower(id));
CREATE UNIQUE INDEX ON snap.not_one (id) WHERE NOT deleted;
ALTER TABLE snap.not_one ADD CONSTRAINT at_the_end UNIQUE (id) DEFERRABLE;
SELECT revenant.save('not_one', 'a', 0, '1');
ALTER TABLE snap.not_one DROP CONSTRAINT at_the_end;
CREATE UNIQUE INDEX ON snap.not_one (id);
SELECT revenant.save('not_one', 'a', 0, '1');
\set VERBOSITY default
ALTER TABLE snap.not_one DROP COLUMN reserved;
SELECT revenant.save('not_one', 'a', 1, '1');
\set VERBOSITY sqlstate
CREATE VIEW snap.a_view AS SELECT id, version, vsn, state, updated_at, deleted, reserved FROM snap.plain;
SELECT revenant.load('a_view', 'a');
SELECT revenant.load('pg_class', 'a');
SELECT revenant.save('revenant.entity_type', 'a', 0, '1');
SELECT revenant.load(0, 'a');
SELECT revenant.save(1, 'a', 0, '1');
SELECT revenant.load('nowhere', 'a');
DROP TABLE snap.not_one;
DROP VIEW snap.a_view;

/* ---- tables of the user's own making */

-- Everything at once: more columns, defaults, generated, identity, checks, dropped columns, indexes of all kinds
CREATE TABLE snap.rich (
	gone int, number int GENERATED ALWAYS AS IDENTITY, state jsonb CHECK (state <> '"forbidden"'), note text DEFAULT 'none', id text NOT NULL,
	twice int GENERATED ALWAYS AS ((state ->> 'n')::int * 2) STORED, gone_too text, deleted boolean NOT NULL, reserved bigint NOT NULL, vsn int NOT NULL,
	updated_at timestamptz NOT NULL, version bigint NOT NULL, large text
);
ALTER TABLE snap.rich DROP COLUMN gone, DROP COLUMN gone_too;
ALTER TABLE snap.rich ADD CONSTRAINT rich_key UNIQUE (id);
CREATE INDEX ON snap.rich ((state ->> 'n'));
CREATE UNIQUE INDEX rich_email ON snap.rich ((state ->> 'email')) WHERE NOT deleted;
CREATE INDEX ON snap.rich USING gin (state);
SELECT revenant.save('rich', 'a', 0, '{"n": 1, "email": "a@x"}'), revenant.save('rich', 'b', 0, '{"n": 2, "email": "b@x"}');
UPDATE snap.rich SET note = 'kept', large = (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 1000) AS i) WHERE id = 'a';
SELECT revenant.save('rich', 'a', 1, '{"n": 21, "email": "a@x"}');
SELECT revenant.save('rich', 'b', 1, '{"email": "a@x"}');
SELECT revenant.save('rich', 'b', 1, '"forbidden"');
SELECT revenant.save('rich', 'c', 0, '"forbidden"');
SELECT revenant.remove('rich', 'a', 2), revenant.save('rich', 'b', 1, '{"n": 3, "email": "a@x"}');
SELECT number, id, note, twice, version, state, deleted, length(large) AS large FROM snap.rich ORDER BY id;
-- The same without a generated column, which is the way without the executor
ALTER TABLE snap.rich DROP COLUMN twice;
SELECT revenant.save('rich', 'a', 0, '{"n": 4}'), revenant.save('rich', 'a', 4, '{"n": 5}');
SELECT revenant.save('rich', 'a', 5, '"forbidden"');
SELECT revenant.save('rich', 'a', 5, '{"email": "a@x"}');
SELECT number, note, version, state, length(large) AS large FROM snap.rich WHERE id = 'a';
SET enable_seqscan = off;
SELECT id FROM snap.rich WHERE state ->> 'n' = '5';
SELECT id FROM snap.rich WHERE state @> '{"email": "a@x"}';
RESET enable_seqscan;
-- A column without a default that must have a value: a first save cannot, a later one can.
ALTER TABLE snap.rich ADD COLUMN needed int;
UPDATE snap.rich SET needed = 1;
ALTER TABLE snap.rich ALTER COLUMN needed SET NOT NULL;
SELECT revenant.save('rich', 'd', 0, '1');
SELECT revenant.save('rich', 'a', 5, '1');
DROP TABLE snap.rich;
-- Partitions, by the id
CREATE TABLE snap.parts (LIKE snap.plain INCLUDING DEFAULTS, PRIMARY KEY (id)) PARTITION BY HASH (id);
CREATE TABLE snap.parts_0 PARTITION OF snap.parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE snap.parts_1 PARTITION OF snap.parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
SELECT count(revenant.save('parts', i::text, 0, to_jsonb(i))) FROM generate_series(1, 20) AS i;
SELECT count(revenant.save('parts', i::text, 1, to_jsonb(i * 2))) FROM generate_series(1, 20) AS i;
SELECT revenant.save('parts', '1', 1, '1');
SELECT revenant.remove('parts', '2', 2), revenant.save('parts', '2', 0, '"again"'), snap.shown(revenant.load('parts', '2'));
SELECT (SELECT count(*) > 0 FROM snap.parts_0) AND (SELECT count(*) > 0 FROM snap.parts_1) AS both, count(*), sum(version) FROM snap.parts;
-- one of them by itself: an id of the other one's is refused
SELECT id AS here FROM snap.parts_0 ORDER BY id LIMIT 1 \gset
SELECT id AS there FROM snap.parts_1 ORDER BY id LIMIT 1 \gset
SELECT snap.shown(revenant.load('parts_0', :'here')) IS NOT NULL AS found, revenant.save('parts_0', :'here', 2, '1');
SELECT revenant.save('parts_0', :'there', 0, '1');
-- Inheritance: rows of a child are the parent's, too
CREATE TABLE snap.parent (LIKE snap.plain INCLUDING ALL);
CREATE TABLE snap.child (PRIMARY KEY (id)) INHERITS (snap.parent);
SELECT revenant.save('child', 'a', 0, '1'), revenant.save('parent', 'a', 1, '2'), revenant.save('parent', 'b', 0, '1');
SELECT tableoid::regclass, id, version FROM snap.parent ORDER BY id;
-- … and the parent's guard is the child's.
SELECT revenant.acquire('snap-guard', ttl => '1 h') AS token \gset
SELECT revenant.save('child', 'c', 0, '1');
SELECT revenant.guard_table('snap.parent', 'snap-guard');
SELECT revenant.save('child', 'c', 1, '2');
BEGIN;
SELECT revenant.fence('snap-guard', :token);
SELECT revenant.save('child', 'c', 1, '2'), revenant.save('parent', 'b', 1, '2');
COMMIT;
SELECT revenant.save('parent', 'b', 2, '3');
SELECT revenant.release('snap-guard', :token);
SELECT revenant.guard_table('snap.plain', 'snap-guard');
SELECT revenant.save('plain', 'a', 7, '8');
SELECT snap.shown(revenant.load('plain', 'a'));
SELECT revenant.unguard_table('snap.plain');
-- Unlogged, and one that another table refers to
CREATE UNLOGGED TABLE snap.unlogged (LIKE snap.plain INCLUDING ALL);
SELECT revenant.save('unlogged', 'a', 0, '1'), revenant.save('unlogged', 'a', 1, '2');
CREATE TABLE snap.refers (id text REFERENCES snap.unlogged);
DROP TABLE snap.refers;
CREATE TABLE snap.referred (LIKE snap.plain INCLUDING ALL);
CREATE TABLE snap.refers (id text REFERENCES snap.referred);
SELECT revenant.save('referred', 'a', 0, '1');
INSERT INTO snap.refers VALUES ('a');
SELECT revenant.save('referred', 'a', 1, '2'), revenant.remove('referred', 'a', 2);
SELECT revenant.purge_deleted('referred', 'infinity');
SELECT snap.shown(revenant.load('referred', 'a'));
-- A collation for which two ids are one
CREATE COLLATION snap.insensitive (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE snap.insensitive (LIKE snap.plain INCLUDING DEFAULTS);
ALTER TABLE snap.insensitive ALTER COLUMN id TYPE text COLLATE snap.insensitive, ADD PRIMARY KEY (id);
SELECT revenant.save('insensitive', 'Straße', 0, '1'), revenant.save('insensitive', 'STRAßE', 1, '2');
SELECT revenant.save('insensitive', 'straße', 0, '1');
SELECT id, version FROM snap.insensitive;

/* ---- triggers and rules */

CREATE TABLE snap.triggered (LIKE snap.plain INCLUDING ALL);
CREATE TABLE snap.seen (at text, id text, version bigint, state jsonb);
CREATE FUNCTION snap.meddle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.state = '"suppress"' THEN RETURN NULL; END IF;
	IF NEW.state = '"error"' THEN RAISE EXCEPTION 'no'; END IF;
	NEW.state := jsonb_build_object('was', NEW.state);
	RETURN NEW;
END $$;
CREATE FUNCTION snap.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO snap.seen VALUES (TG_WHEN || ' ' || TG_OP, NEW.id, NEW.version, NEW.state);
	RETURN NULL;
END $$;
CREATE TRIGGER before BEFORE INSERT OR UPDATE ON snap.triggered FOR EACH ROW EXECUTE FUNCTION snap.meddle();
CREATE TRIGGER after AFTER INSERT OR UPDATE ON snap.triggered FOR EACH ROW EXECUTE FUNCTION snap.note();
SELECT revenant.save('triggered', 'a', 0, '1'), revenant.save('triggered', 'a', 1, '2');
SELECT revenant.save('triggered', 'a', 2, '"error"');
-- Nobody is told that somebody else has written.
SELECT revenant.save('triggered', 'a', 2, '"suppress"');
SELECT revenant.save('triggered', 'b', 0, '"suppress"');
SELECT revenant.save('triggered', 'a', 1, '"stale"');
SELECT snap.shown(revenant.load('triggered', 'a')), revenant.load('triggered', 'b') IS NULL AS none;
TABLE snap.seen;
-- A trigger that comes and goes is seen by a session that knew the table without it.
SELECT revenant.save('plain', 'a', 7, '8');
CREATE TRIGGER after AFTER INSERT OR UPDATE ON snap.plain FOR EACH ROW EXECUTE FUNCTION snap.note();
SELECT revenant.save('plain', 'a', 8, '9');
ALTER TABLE snap.plain DISABLE TRIGGER after;
SELECT revenant.save('plain', 'a', 9, '10');
DROP TRIGGER after ON snap.plain;
SELECT revenant.save('plain', 'a', 10, '11');
SELECT at, id, version FROM snap.seen WHERE version > 2;
-- One that saves the next version itself: the outer one is the stale one.
CREATE FUNCTION snap.ahead() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF pg_trigger_depth() = 1 THEN
		PERFORM revenant.save('snap.triggered', NEW.id, OLD.version, '"ahead"');
	END IF;
	RETURN NEW;
END $$;
CREATE TRIGGER a_first BEFORE UPDATE ON snap.triggered FOR EACH ROW EXECUTE FUNCTION snap.ahead();
SELECT revenant.save('triggered', 'a', 2, '3');
SELECT snap.shown(revenant.load('triggered', 'a'));
DROP TABLE snap.triggered;
-- Rules
CREATE TABLE snap.ruled (LIKE snap.plain INCLUDING ALL);
SELECT revenant.save('ruled', 'a', 0, '1');
CREATE RULE r AS ON UPDATE TO snap.ruled DO ALSO INSERT INTO snap.seen VALUES ('rule', NEW.id, NEW.version, NEW.state);
SELECT revenant.save('ruled', 'a', 1, '2');
SELECT at, version FROM snap.seen WHERE at = 'rule';
CREATE OR REPLACE RULE r AS ON UPDATE TO snap.ruled DO INSTEAD NOTHING;
SELECT revenant.save('ruled', 'a', 2, '3');
SELECT snap.shown(revenant.load('ruled', 'a'));
SELECT revenant.save('ruled', 'b', 0, '1');
DROP TABLE snap.ruled;

/* ---- privileges */

-- As a reader of the schema only
GRANT USAGE ON SCHEMA snap TO revenant_snap_user;
GRANT EXECUTE ON FUNCTION snap.shown TO revenant_snap_user;
SET ROLE revenant_snap_user;
SELECT revenant.load('plain', 'a');
SELECT revenant.save('plain', 'a', 11, '1');
SELECT revenant.remove('plain', 'a', 11);
SELECT revenant.purge_deleted('plain', now());
SELECT revenant.history('plain', 'a');
SELECT revenant.load_version('plain', 'a', 11);
SELECT revenant.load_as_of('plain', 'a', now());
RESET ROLE;
-- Each one of them alone is too little.
GRANT SELECT ON snap.plain TO revenant_snap_user;
SET ROLE revenant_snap_user;
SELECT snap.shown(revenant.load('plain', 'a'));
SELECT revenant.load('plain', 'a', true);
SELECT revenant.save('plain', 'a', 11, '1');
RESET ROLE;
GRANT UPDATE ON snap.plain TO revenant_snap_user;
SET ROLE revenant_snap_user;
SELECT revenant.save('plain', 'a', 11, '12');
SELECT revenant.save('plain', 'another', 0, '1');
SELECT revenant.purge_deleted('plain', now());
RESET ROLE;
GRANT INSERT ON snap.plain TO revenant_snap_user;
SET ROLE revenant_snap_user;
SELECT revenant.save('plain', 'another', 0, '1'), revenant.remove('plain', 'another', 1);
SELECT revenant.purge_deleted('plain', 'infinity');
RESET ROLE;
GRANT DELETE ON snap.plain TO revenant_snap_user;
SET ROLE revenant_snap_user;
SELECT revenant.purge_deleted('plain', 'infinity');
RESET ROLE;
REVOKE SELECT ON snap.plain FROM revenant_snap_user;
SET ROLE revenant_snap_user;
SELECT revenant.save('plain', 'a', 12, '1');
RESET ROLE;
REVOKE ALL ON snap.plain FROM revenant_snap_user;
-- Column by column
GRANT SELECT (id, version, vsn, state, updated_at, deleted, reserved), INSERT (id, version, vsn, state, updated_at, deleted, reserved),
	UPDATE (version, vsn, state, updated_at, deleted, reserved) ON snap.plain TO revenant_snap_user;
SET ROLE revenant_snap_user;
SELECT snap.shown(revenant.load('plain', 'a'));
-- a save compares the place of the row, too
SELECT revenant.save('plain', 'a', 12, '1');
RESET ROLE;
GRANT SELECT (ctid, xmin) ON snap.plain TO revenant_snap_user;
SET ROLE revenant_snap_user;
SELECT revenant.save('plain', 'a', 12, '13'), revenant.save('plain', 'columns', 0, '1');
RESET ROLE;
REVOKE UPDATE (state) ON snap.plain FROM revenant_snap_user;
SET ROLE revenant_snap_user;
SELECT revenant.save('plain', 'a', 13, '14');
RESET ROLE;
-- A history needs its own.
GRANT ALL ON snap.h2 TO revenant_snap_user;
SET ROLE revenant_snap_user;
SELECT revenant.save('h2', 'p', 0, '1');
SELECT revenant.save('h2', 'p', 1, '2');
SELECT revenant.history('h2', 'p');
RESET ROLE;
GRANT SELECT, INSERT, UPDATE, DELETE ON snap.h2_history TO revenant_snap_user;
SET ROLE revenant_snap_user;
SELECT revenant.save('h2', 'p', 1, '2'), (SELECT count(*) FROM revenant.history('h2', 'p')) AS versions;
RESET ROLE;

/* ---- row security */

CREATE TABLE snap.secured (LIKE snap.plain INCLUDING ALL);
ALTER TABLE snap.secured ENABLE ROW LEVEL SECURITY;
CREATE POLICY mine ON snap.secured TO revenant_snap_user USING (id LIKE current_user || '/%') WITH CHECK (state IS DISTINCT FROM '"forbidden"');
GRANT SELECT, INSERT, UPDATE, DELETE ON snap.secured TO revenant_snap_user;
SELECT revenant.save('secured', 'hidden', 0, '1'), revenant.save('secured', 'revenant_snap_user/a', 0, '1');
SET ROLE revenant_snap_user;
SELECT snap.shown(revenant.load('secured', 'revenant_snap_user/a')), revenant.load('secured', 'hidden') IS NULL AS hidden, revenant.load('secured', 'hidden', true) IS NULL AS hidden_locked;
SELECT revenant.save('secured', 'revenant_snap_user/a', 1, '2'), revenant.save('secured', 'revenant_snap_user/b', 0, '1');
SELECT revenant.save('secured', 'revenant_snap_user/a', 2, '"forbidden"');
SELECT revenant.save('secured', 'revenant_snap_user/c', 0, '"forbidden"');
SELECT revenant.save('secured', 'other', 0, '1');
SELECT revenant.save('secured', 'hidden', 1, '2');
SELECT revenant.save('secured', 'hidden', 0, '2');
SELECT revenant.remove('secured', 'hidden', 1);
SELECT revenant.remove('secured', 'revenant_snap_user/b', 1), revenant.purge_deleted('secured', 'infinity');
SELECT (SELECT count(*) FROM revenant.history('secured', 'hidden')) AS versions, revenant.load_version('secured', 'hidden', 1) IS NULL AS hidden, revenant.load_as_of('secured', 'hidden', 'infinity') IS NULL AS hidden_too;
RESET ROLE;
SELECT id, version, state FROM snap.secured ORDER BY id;
-- The same session with and without it, and one policy that comes later
SELECT snap.shown(revenant.load('secured', 'hidden'));
SELECT revenant.save('plain', 'rls', 0, '1');
GRANT ALL ON snap.plain TO revenant_snap_user;
SET ROLE revenant_snap_user;
SELECT revenant.save('plain', 'rls', 1, '2');
RESET ROLE;
ALTER TABLE snap.plain ENABLE ROW LEVEL SECURITY;
SET ROLE revenant_snap_user;
SELECT revenant.load('plain', 'rls') IS NULL AS hidden;
SELECT revenant.save('plain', 'rls', 2, '3');
SET row_security = off;
SELECT revenant.load('plain', 'rls');
RESET row_security;
RESET ROLE;
ALTER TABLE snap.plain DISABLE ROW LEVEL SECURITY;
SET ROLE revenant_snap_user;
SELECT revenant.save('plain', 'rls', 2, '3');
RESET ROLE;

/* ---- hostile names */

CREATE SCHEMA snap_hostile;
CREATE FUNCTION snap_hostile.no(anyelement, anyelement) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a hostile operator ran'; END $$;
CREATE FUNCTION snap_hostile.no(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a hostile operator ran'; END $$;
CREATE FUNCTION snap_hostile.no(timestamptz, timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a hostile operator ran'; END $$;
CREATE OPERATOR snap_hostile.= (FUNCTION = snap_hostile.no, LEFTARG = text, RIGHTARG = text);
CREATE OPERATOR snap_hostile.= (FUNCTION = snap_hostile.no, LEFTARG = anyelement, RIGHTARG = anyelement);
CREATE OPERATOR snap_hostile.< (FUNCTION = snap_hostile.no, LEFTARG = timestamptz, RIGHTARG = timestamptz);
CREATE OPERATOR snap_hostile.<= (FUNCTION = snap_hostile.no, LEFTARG = timestamptz, RIGHTARG = timestamptz);
CREATE OPERATOR snap_hostile.<= (FUNCTION = snap_hostile.no, LEFTARG = anyelement, RIGHTARG = anyelement);
CREATE FUNCTION snap_hostile.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a hostile function ran'; END $$;
CREATE DOMAIN snap_hostile.text AS int;
CREATE DOMAIN snap_hostile.jsonb AS int;
CREATE DOMAIN snap_hostile.bool AS int;
\c
\set VERBOSITY sqlstate
\pset null (null)
SET search_path = snap_hostile, pg_catalog;
SELECT revenant.create_snapshot_table('snap.safe', 1);
SELECT revenant.save('snap.safe', 'a', 0, '1'), revenant.save('snap.safe', 'a', 1, '2'), revenant.save('snap.safe', 'a', 2, '3'), revenant.remove('snap.safe', 'a', 3);
SELECT count(*) FROM revenant.history('snap.safe', 'a');
SELECT (revenant.load_as_of('snap.safe', 'a', 'infinity')).version, (revenant.load_version('snap.safe', 'a', 3)).version, (revenant.load('snap.safe', 'a', true)).version;
ALTER TABLE snap.safe ENABLE ROW LEVEL SECURITY;
SELECT (revenant.load('snap.safe', 'a')).version, revenant.save('snap.safe', 'a', 0, '5'), revenant.remove('snap.safe', 'a', 5), revenant.purge_deleted('snap.safe', 'infinity');
RESET search_path;
-- The default of its columns is what it was.
SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = 'snap.safe'::regclass ORDER BY adnum;

SET client_min_messages = warning;
DROP SCHEMA snap, snap_hostile CASCADE;
SELECT revenant.revoke_usage('revenant_snap_owner');
SELECT revenant.revoke_usage('revenant_snap_user');
DROP ROLE revenant_snap_owner, revenant_snap_user;
