-- What a role may do to an entity, and know of it, is what it may do to the row, also while the state is in memory only: by its privileges on the
-- table and on the handler, whole or on columns, with and without row security.

CREATE ROLE regress_owner LOGIN;
CREATE ROLE regress_no;
CREATE ROLE regress_select;
CREATE ROLE regress_column;
CREATE ROLE regress_update;
CREATE ROLE regress_write;
CREATE ROLE regress_reader;
SELECT revenant.grant_usage(r) FROM unnest('{regress_no, regress_select, regress_column, regress_update, regress_write}'::text[]) AS r;
SELECT revenant.grant_usage('regress_owner', 'admin'), revenant.grant_usage('regress_reader', 'reader');
GRANT CREATE ON SCHEMA public TO regress_owner;
CREATE TABLE se_said (n serial, role text, call text, answer text);
GRANT ALL ON se_said, se_said_n_seq TO PUBLIC;
CREATE FUNCTION se_try(call text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	BEGIN
		EXECUTE 'SELECT (' || call || ')::text' INTO answer;
		answer := CASE WHEN answer ~ 'secret' THEN 'told' ELSE 'done' END;
		RAISE SQLSTATE 'ZZ000';
	EXCEPTION WHEN SQLSTATE 'ZZ000' THEN NULL; WHEN OTHERS THEN
		answer := SQLSTATE;
	END;
	INSERT INTO se_said (role, call, answer) VALUES (current_user, substring(call FROM 'revenant\.(\w+)'), answer);
END $$;

SET ROLE regress_owner;
CREATE FUNCTION se_handler(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS $$ SELECT 'null'::jsonb, message, NULL::text $$;
CREATE FUNCTION se_other(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS $$ SELECT 'null'::jsonb, message, NULL::text $$;
REVOKE ALL ON FUNCTION se_handler, se_other FROM PUBLIC;
GRANT EXECUTE ON FUNCTION se_handler TO regress_no, regress_select, regress_column, regress_update;
SELECT revenant.create_snapshot_table('se_relaxed');
SELECT revenant.create_entity_type('se-relaxed', 'se_relaxed', 'se_handler', durability => 'on_stop', idle_timeout => NULL);
GRANT SELECT ON se_relaxed TO regress_select;
GRANT SELECT (id, version), UPDATE (version) ON se_relaxed TO regress_column;
GRANT UPDATE, INSERT ON se_relaxed TO regress_update;
GRANT SELECT, INSERT, UPDATE, DELETE ON se_relaxed TO regress_write;
RESET ROLE;
SET SESSION AUTHORIZATION regress_owner;
-- Until it is ahead of its row, which it stays.
DO $$
BEGIN
	LOOP
		PERFORM revenant.call('se-relaxed', 'a', jsonb_build_object('secret', clock_timestamp()));
		COMMIT;
		EXIT WHEN EXISTS (SELECT FROM revenant.loaded_entities WHERE type = 'se-relaxed' AND dirty);
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
RESET SESSION AUTHORIZATION;

CREATE TEMP TABLE se_call AS SELECT call, n FROM unnest(ARRAY[
	$$revenant.call('se-relaxed', 'a', '{"x": 1}')$$, $$revenant.call('se-relaxed', 'new', '{"x": 1}')$$, $$revenant.read_entity('se-relaxed', 'a')$$, $$revenant.load('se_relaxed', 'a')$$,
	$$revenant.load('se_relaxed', 'a', for_update => true)$$, $$revenant.history('se_relaxed', 'a')$$, $$revenant.load_version('se_relaxed', 'a', 1)$$, $$revenant.load_as_of('se_relaxed', 'a', now())$$,
	$$revenant.save('se_relaxed', 'b', 0, '{"x": 1}')$$, $$revenant.remove('se_relaxed', 'a', 1)$$, $$revenant.stop_entity('se-relaxed', 'a')$$, $$revenant.delete_entity('se-relaxed', 'a')$$,
	$$revenant.purge_deleted('se_relaxed', now())$$, $$revenant.upgrade_all('se-relaxed')$$, $$revenant.flush_entities('se-relaxed', 'none')$$]) WITH ORDINALITY AS c (call, n);
GRANT SELECT ON se_call TO PUBLIC;
SET ROLE regress_no;
SELECT FROM se_call, se_try(call);
SELECT count(*) AS loaded FROM revenant.loaded_entities;
SELECT revenant.flush_entities();
SET ROLE regress_reader;
SELECT FROM se_call, se_try(call);
SELECT count(*) AS loaded FROM revenant.loaded_entities;
SET ROLE regress_select;
SELECT FROM se_call, se_try(call);
SELECT count(*) AS loaded FROM revenant.loaded_entities;
SET ROLE regress_column;
SELECT FROM se_call, se_try(call);
SELECT count(*) AS loaded FROM revenant.loaded_entities;
SET ROLE regress_update;
SELECT FROM se_call, se_try(call);
SELECT count(*) AS loaded FROM revenant.loaded_entities;
SET ROLE regress_write;	-- all of the table, and not the handler
SELECT FROM se_call, se_try(call);
RESET ROLE;
SELECT call, string_agg(answer, ' ' ORDER BY n) FILTER (WHERE role = 'regress_no') AS no, string_agg(answer, ' ' ORDER BY n) FILTER (WHERE role = 'regress_reader') AS reader,
	string_agg(answer, ' ' ORDER BY n) FILTER (WHERE role = 'regress_select') AS "select", string_agg(answer, ' ' ORDER BY n) FILTER (WHERE role = 'regress_column') AS "column",
	string_agg(answer, ' ' ORDER BY n) FILTER (WHERE role = 'regress_update') AS "update", string_agg(answer, ' ' ORDER BY n) FILTER (WHERE role = 'regress_write') AS write
FROM se_said GROUP BY call ORDER BY min(n);

-- What is of others: types, and the table of a type.
SET ROLE regress_owner;
CREATE TABLE se_mine (LIKE se_relaxed INCLUDING ALL);
RESET ROLE;
SELECT revenant.grant_usage('regress_write', 'admin');
SET ROLE regress_write;
\set VERBOSITY sqlstate
SELECT revenant.create_entity_type('se-mine', 'se_mine', 'se_handler');
SELECT revenant.create_entity_type('se-again', 'se_relaxed', 'se_handler');
SELECT revenant.alter_entity_type('se-relaxed', '{"handler": "se_other"}');
SELECT revenant.alter_entity_type('se-relaxed', '{"terminator": null}');
SELECT revenant.drop_entity_type('se-relaxed');
RESET ROLE;
SET ROLE regress_owner;
SELECT revenant.alter_entity_type('se-relaxed', '{"snapshots": "pg_catalog.pg_class"}');
SELECT revenant.alter_entity_type('se-relaxed', '{"snapshots": "revenant.message"}');
SELECT revenant.alter_entity_type('se-relaxed', '{"snapshots_oid": 1}');
SELECT revenant.create_entity_type('se-ours', 'revenant.message', 'se_handler');
RESET ROLE;
\set VERBOSITY default

SELECT revenant.drop_entity_type('se-relaxed');
DROP TABLE se_relaxed, se_mine, se_said, se_call;
DROP FUNCTION se_try, se_handler, se_other;
SELECT revenant.revoke_usage(r) FROM unnest('{regress_owner, regress_no, regress_select, regress_column, regress_update, regress_write, regress_reader}'::text[]) AS r;
REVOKE CREATE ON SCHEMA public FROM regress_owner;
DROP ROLE regress_owner, regress_no, regress_select, regress_column, regress_update, regress_write, regress_reader;
