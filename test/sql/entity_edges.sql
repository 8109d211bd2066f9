-- What is read of a table that somebody else made is what it must be, and what a table hides no memory tells.
\set VERBOSITY sqlstate
\pset null (null)

CREATE ROLE revenant_edge_owner LOGIN;
CREATE ROLE revenant_edge_user;
SELECT revenant.grant_usage('revenant_edge_owner', 'admin');
SELECT revenant.grant_usage('revenant_edge_user');
CREATE SCHEMA edge AUTHORIZATION revenant_edge_owner;
GRANT USAGE ON SCHEMA edge TO revenant_edge_user;
SET search_path = edge, pg_catalog;
SET client_min_messages = warning;
CREATE FUNCTION edge.count(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE plpgsql AS $$
BEGIN
	IF message = '"look"' THEN
		RETURN ROW(state, NULL, NULL)::revenant.reply;
	END IF;
	RETURN ROW(state, jsonb_build_object('n', coalesce((state ->> 'n')::int, 0) + 1), NULL)::revenant.reply;
END $$;
-- Calls an entity until it is in memory, which needs a process to be started.
CREATE PROCEDURE edge.load(type text, id text) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 600 LOOP
		PERFORM revenant.call(type, id, '"add"');
		COMMIT;
		EXIT WHEN EXISTS (SELECT FROM revenant.loaded_entities AS l WHERE l.type = load.type AND l.id = load.id);
		PERFORM pg_sleep(0.05);
	END LOOP;
	PERFORM revenant.call(type, id, '"add"');
END $$;

/* ---- a history whose columns are of other types */
SET ROLE revenant_edge_owner;
SELECT revenant.create_snapshot_table('edge.hostile');
SELECT revenant.save('hostile', 'a', 0, '1');
CREATE TABLE edge.hostile_history (id text, version bigint, vsn int, state bigint, updated_at timestamptz, deleted boolean);
INSERT INTO edge.hostile_history VALUES ('a', 7, 1, 12345, '2000-01-01', false);
SELECT revenant.load_version('hostile', 'a', 7);
SELECT revenant.load_as_of('hostile', 'a', '2001-01-01');
SELECT * FROM revenant.history('hostile', 'a');
ALTER TABLE edge.hostile_history DROP COLUMN state;
SELECT * FROM revenant.history('hostile', 'a');
ALTER TABLE edge.hostile_history ADD COLUMN state jsonb;
SELECT id, version, state FROM revenant.history('hostile', 'a');
-- and that has been altered since it was read
ALTER TABLE edge.hostile_history ALTER COLUMN state TYPE text;
SELECT * FROM revenant.history('hostile', 'a');

/* ---- a history of a partitioned table */
CREATE TABLE edge.parted (LIKE edge.hostile INCLUDING DEFAULTS) PARTITION BY HASH (id);
ALTER TABLE edge.parted ADD PRIMARY KEY (id);
CREATE TABLE edge.parted_0 PARTITION OF edge.parted FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE edge.parted_1 PARTITION OF edge.parted FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE TABLE edge.parted_history (id text, version bigint, vsn int, state jsonb, updated_at timestamptz, deleted boolean, PRIMARY KEY (id, version));
CREATE TRIGGER revenant_history AFTER UPDATE OR DELETE ON edge.parted FOR EACH ROW EXECUTE FUNCTION revenant._keep_history('-1');
SELECT revenant.save('parted', i::text, 0, '1') + revenant.save('parted', i::text, 1, '2') AS versions FROM generate_series(1, 3) AS i;
SELECT i, h.version, h.state FROM generate_series(1, 3) AS i, revenant.history('parted', i::text) AS h;
DELETE FROM edge.parted;
SELECT count(*) FROM edge.parted_history;

/* ---- row security that came after the entity was loaded */
SELECT revenant.create_snapshot_table('edge.secret');
SELECT revenant.create_entity_type('secret', 'edge.secret', 'edge.count', durability => 'on_stop');
GRANT ALL ON edge.secret TO revenant_edge_user;
RESET ROLE;
CALL edge.load('secret', 's');
SELECT dirty FROM revenant.loaded_entities WHERE type = 'secret';
ALTER TABLE edge.secret ENABLE ROW LEVEL SECURITY;
CREATE POLICY mine ON edge.secret USING (id = 'mine');
SET ROLE revenant_edge_user;
SELECT revenant.read_entity('secret', 's') IS NULL AS hidden, revenant.load('secret', 's') IS NULL AS load_hidden;
SELECT count(*) FROM revenant.loaded_entities WHERE type = 'secret';
SELECT revenant.call('secret', 's', '"look"');
SELECT revenant.call('secret', 's', '"add"');
SELECT revenant.stop_entity('secret', 's');
SELECT revenant.call('secret', 'mine', '"add"'), revenant.call('secret', 'mine', '"add"');
RESET ROLE;
-- nothing of it is lost
SELECT dirty FROM revenant.loaded_entities WHERE type = 'secret' AND id = 's';
SELECT revenant.flush_entities('secret', 's');
SELECT (s.state ->> 'n')::int = s.version AS whole FROM edge.secret AS s WHERE id = 's';

/* ---- a table that is gone */
SELECT revenant.create_snapshot_table('edge.gone');
SELECT revenant.create_entity_type('gone', 'edge.gone', 'edge.count');
DROP TABLE edge.gone;
SELECT revenant.flush_entities('gone', 'g');

/* ---- ids that are the same to their table only */
CREATE COLLATION edge.insensitive (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE edge.alike (id text COLLATE edge.insensitive PRIMARY KEY, version bigint NOT NULL DEFAULT 1, vsn int NOT NULL DEFAULT 1, state jsonb,
	updated_at timestamptz NOT NULL DEFAULT now(), deleted boolean NOT NULL DEFAULT false, reserved bigint NOT NULL DEFAULT 0);
SELECT revenant.create_entity_type('alike', 'edge.alike', 'edge.count', durability => 'on_stop');
SELECT revenant.call('alike', 'A', '"add"');
SELECT revenant.call('alike', 'a', '"add"');
SELECT revenant.call('alike', 'A', '"add"');
SELECT id, version, state FROM edge.alike;
SELECT count(*) FROM revenant.loaded_entities WHERE type = 'alike';

/* ---- what is not durable does not say it is */
CREATE UNLOGGED TABLE edge.unlogged (LIKE edge.secret INCLUDING ALL);
SELECT revenant.create_entity_type('unlogged', 'edge.unlogged', 'edge.count');
SELECT revenant.call('unlogged', 'u', '"add"');
SELECT version, durable FROM revenant.receipt();

/* ---- requests that leave no row take a lock each */
SELECT revenant.create_snapshot_table('edge.many');
SELECT revenant.create_entity_type('many', 'edge.many', 'edge.count');
SELECT count(revenant.call('many', 'm' || i, '"look"', request_id => md5(i::text)::uuid)) FROM generate_series(1, 1000) AS i;
SELECT count(revenant.call('many', 'm' || i, '"look"', request_id => md5('a' || i)::uuid)) FROM generate_series(1, 1001) AS i;
SELECT count(revenant.call('many', 'm' || i, '"add"', request_id => md5('b' || i)::uuid)) FROM generate_series(1, 1500) AS i;

/* ---- a terminator of a former owner's is not run as the new one */
SET ROLE revenant_edge_owner;
SELECT revenant.create_snapshot_table('edge.given');
CREATE FUNCTION edge.trap(id text, state jsonb, reason text) RETURNS void LANGUAGE plpgsql AS 'BEGIN CREATE TABLE edge.trapped AS SELECT current_user; END';
SELECT revenant.create_entity_type('given', 'edge.given', 'edge.count', durability => 'interval', idle_timeout => '200 ms', terminator => 'edge.trap');
RESET ROLE;
DO 'BEGIN EXECUTE format(''ALTER TABLE edge.given OWNER TO %I'', current_user); END';
CALL edge.load('given', 'g');
DO $$
BEGIN
	FOR i IN 1 .. 600 LOOP
		EXIT WHEN EXISTS (SELECT FROM revenant.messages AS m WHERE m.type = 'given' AND m.sqlstate IS NOT NULL);
		PERFORM pg_sleep(0.05);
	END LOOP;
END $$;
SELECT kind, sqlstate FROM revenant.messages WHERE type = 'given';
SELECT to_regclass('edge.trapped') IS NULL AS not_run;
SELECT revenant.discard_message(message_id) FROM revenant.messages WHERE type = 'given';
SELECT revenant.drop_entity_type('given');

SELECT revenant.drop_entity_type(type) FROM revenant.entity_type WHERE type IN ('secret', 'gone', 'alike', 'unlogged', 'many');
SELECT revenant.revoke_usage('revenant_edge_owner'), revenant.revoke_usage('revenant_edge_user');
DROP SCHEMA edge CASCADE;
DROP ROLE revenant_edge_owner, revenant_edge_user;
