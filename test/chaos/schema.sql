-- What the clients need, made once, by a superuser, on the primary.

CREATE EXTENSION revenant;
CREATE ROLE chaos LOGIN;
ALTER ROLE chaos SET statement_timeout = '30 s';
ALTER ROLE chaos SET idle_in_transaction_session_timeout = '60 s';
SELECT revenant.grant_usage('chaos', 'admin');
CREATE SCHEMA chaos AUTHORIZATION chaos;
SET ROLE chaos;
SET search_path = chaos;

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
