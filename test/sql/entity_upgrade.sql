-- A state of an older vsn never reaches a newer handler, one of a newer vsn is no damage, and an upgrade that fails says whose it is and writes nothing.
\set VERBOSITY sqlstate
\pset null (null)

CREATE SCHEMA entup;
SET search_path = entup, public;
CREATE FUNCTION keeper(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS $$ SELECT $2, $3, NULL::text $$;
CREATE FUNCTION step(old_vsn int, state jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF state ? 'fail' AND (state ->> 'fail')::int = old_vsn THEN RAISE EXCEPTION 'no way from here' USING ERRCODE = 'XY001'; END IF;
	IF state ? 'null' AND (state ->> 'null')::int = old_vsn THEN RETURN NULL; END IF;
	RETURN jsonb_set(state, '{steps}', coalesce(state -> 'steps', '[]') || to_jsonb(old_vsn));
END $$;
CREATE FUNCTION shown(s revenant.snapshot) RETURNS text LANGUAGE sql AS $$
	SELECT format('%s v%s vsn%s %s%s', (s).id, (s).version, (s).vsn, coalesce((s).state::text, '-'), CASE WHEN (s).deleted THEN ' deleted' END)
$$;
SELECT revenant.create_snapshot_table('states', -1);
SELECT revenant.create_entity_type('up', 'states', 'keeper');

SELECT revenant.call('up', 'a', '{}'), revenant.call('up', 'b', '{}'), revenant.call('up', 'gone', '{}'), revenant.delete_entity('up', 'gone');
SELECT revenant.alter_entity_type('up', '{"vsn": 4, "upgrade": "step"}');
-- Each step once, in order; what is not changed is not written.
CREATE FUNCTION reader(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS $$ SELECT $2, NULL::jsonb, NULL::text $$;
SELECT revenant.alter_entity_type('up', '{"handler": "reader"}');
SELECT revenant.call('up', 'a', '1'), shown(revenant.read_entity('up', 'a'));
-- a handler that returns the state that it got has changed it, since the row is another one
CREATE FUNCTION same(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS $$ SELECT $2, $2, NULL::text $$;
SELECT revenant.alter_entity_type('up', '{"handler": "same"}');
SELECT revenant.call('up', 'a', '1'), shown(revenant.read_entity('up', 'a')), revenant.call('up', 'a', '1'), shown(revenant.read_entity('up', 'a'));
SELECT shown(h) FROM revenant.history('states', 'a') AS h;
-- Nothing is upgraded that is new, or begins again.
SELECT revenant.call('up', 'new', '1'), revenant.call('up', 'gone', '1');
SELECT revenant.alter_entity_type('up', '{"handler": "keeper"}');
SELECT revenant.call('up', 'gone', '{}'), shown(revenant.read_entity('up', 'gone'));

/* ---- steps that fail */

SELECT revenant.save('states', 'fail', 0, '{"fail": 2}'), revenant.save('states', 'null', 0, '{"null": 3}'), revenant.save('states', 'first', 0, '{"fail": 1}');
\set VERBOSITY default
\set SHOW_CONTEXT never
SELECT revenant.call('up', 'fail', '1');
SELECT revenant.call('up', 'null', '1');
SELECT revenant.call('up', 'first', '1');
\set VERBOSITY sqlstate
SELECT revenant.call('up', 'fail', '1');
SELECT shown(revenant.read_entity('up', 'fail')), shown(revenant.read_entity('up', 'null'));
-- in the middle of a transaction, and caught
DO $$
BEGIN
	PERFORM revenant.call('up', 'b', '{"n": 1}');
	BEGIN
		PERFORM revenant.call('up', 'fail', '1');
	EXCEPTION WHEN SQLSTATE 'RV006' THEN
		PERFORM revenant.call('up', 'c', '{"n": 2}');
	END;
END $$;
SELECT shown(revenant.read_entity('up', 'b')), shown(revenant.read_entity('up', 'c'));
-- what cancels the call is no fault of the step's
CREATE FUNCTION slow(old_vsn int, state jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT pg_sleep(60); SELECT '1'::jsonb $$;
SELECT revenant.alter_entity_type('up', '{"upgrade": "slow"}');
SET statement_timeout = '10 ms';
SELECT revenant.call('up', 'fail', '1');
RESET statement_timeout;
-- one that calls its own entity, one that is not there any more, one that may not be executed, none
CREATE FUNCTION own(old_vsn int, state jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT revenant.call('up', 'fail', '1') $$;
SELECT revenant.alter_entity_type('up', '{"upgrade": "own"}');
SELECT revenant.call('up', 'fail', '1');
DROP FUNCTION own;
SELECT revenant.call('up', 'fail', '1');
SELECT revenant.call('up', 'b', '1');
SELECT revenant.alter_entity_type('up', '{"upgrade": null}');
SELECT revenant.call('up', 'fail', '1');
SELECT revenant.upgrade_all('up');
-- A snapshot without a state
INSERT INTO states (id) VALUES ('stateless');
CREATE FUNCTION strictly(old_vsn int, state jsonb) RETURNS jsonb LANGUAGE sql STRICT AS $$ SELECT '1'::jsonb $$;
SELECT revenant.alter_entity_type('up', '{"upgrade": "strictly"}');
SELECT revenant.call('up', 'stateless', '1');
DELETE FROM states WHERE id = 'stateless';

/* ---- a snapshot that is newer */

SELECT revenant.alter_entity_type('up', '{"vsn": 2, "upgrade": "step"}');
SELECT revenant.call('up', 'b', '1');
\set VERBOSITY default
SELECT revenant.call('up', 'a', '1');
\set VERBOSITY sqlstate
SELECT shown(revenant.read_entity('up', 'a')), revenant.upgrade_all('up', 1) AS upgraded;
SELECT revenant.alter_entity_type('up', '{"vsn": 4}');
SELECT revenant.call('up', 'a', '{"back": true}');
-- deleted and begun again, it is of the type's vsn
SELECT revenant.save('states', 'newer', 0, '1', 9);
SELECT revenant.call('up', 'newer', '1');
SELECT revenant.delete_entity('up', 'newer'), revenant.call('up', 'newer', '{}'), shown(revenant.read_entity('up', 'newer'));

/* ---- upgrade_all */

DELETE FROM states;
SELECT count(revenant.save('states', 'many ' || i, 0, jsonb_build_object('i', i), i % 5)) FROM generate_series(1, 250) AS i;
SELECT revenant.remove('states', 'many 1', 1);
SELECT revenant.upgrade_all('up', NULL);
SELECT revenant.upgrade_all('up', 0);
SELECT revenant.upgrade_all(NULL);
SELECT revenant.upgrade_all('none');
-- 200 are behind, one of them is deleted; of vsn 4 there are 50
SELECT revenant.upgrade_all('up', 90), revenant.upgrade_all('up', 90), revenant.upgrade_all('up', 90), revenant.upgrade_all('up', 90);
SELECT vsn, count(*), count(DISTINCT state -> 'steps') AS steps, min(version), max(version) FROM states GROUP BY vsn ORDER BY vsn;
SELECT state FROM states WHERE id IN ('many 2', 'many 5', 'many 249') ORDER BY id;
SELECT revenant.upgrade_all('up');
-- One that cannot be upgraded is named, and keeps its batch as it was.
SELECT revenant.alter_entity_type('up', '{"vsn": 5}');
UPDATE states SET state = '{"fail": 4}' WHERE id = 'many 77';
\set VERBOSITY default
SELECT revenant.upgrade_all('up');
\set VERBOSITY sqlstate
SELECT count(*) FROM states WHERE vsn = 5;
UPDATE states SET state = '{}' WHERE id = 'many 77';
CREATE PROCEDURE upgrade() LANGUAGE plpgsql AS $$ BEGIN WHILE revenant.upgrade_all('up', 100) > 0 LOOP COMMIT; END LOOP; END $$;
CALL upgrade();
SELECT vsn, count(*) FROM states GROUP BY vsn ORDER BY vsn;
-- The history has the states as they were.
SELECT count(*) FROM revenant.history('states', 'many 10') AS h WHERE h.version = 1 AND h.vsn = 0 AND NOT h.state ? 'steps';

SET client_min_messages = warning;
SELECT revenant.drop_entity_type('up');
DROP SCHEMA entup CASCADE;
