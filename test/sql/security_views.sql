-- No view shows a role what is another's to know: one of everything has the word in all that is its owner's own, and whoever reads whatever he
-- may read does not find it. A new view or column is looked at as well.

CREATE ROLE regress_alice LOGIN;
CREATE ROLE regress_kid NOINHERIT IN ROLE regress_alice;
CREATE ROLE regress_bob;
CREATE ROLE regress_reader;
CREATE ROLE regress_admin;
SELECT revenant.grant_usage('regress_alice', 'admin'), revenant.grant_usage('regress_kid'), revenant.grant_usage('regress_bob'), revenant.grant_usage('regress_reader', 'reader'),
	revenant.grant_usage('regress_admin', 'admin');
GRANT CREATE ON SCHEMA public TO regress_alice;

SET ROLE regress_alice;
SELECT revenant.acquire('sv-lease', ttl => '1 h', metadata => '{"a": "unspeakable"}') AS lease,
	revenant.acquire('sv-session', metadata => '{"a": "unspeakable"}') AS session, revenant.acquire('sv-shared', shared => true, metadata => '{"a": "unspeakable"}') AS shared,
	(revenant.claim('sv-election', 'me', '1 h')).token AS election \gset
SELECT revenant.create_plan('sv-plan', fingerprint => 'unspeakable', metadata => '{"a": "unspeakable"}', max_attempts => 1);
SELECT revenant.lead_plan('sv-plan', 'me', fingerprint => 'unspeakable') AS generation \gset
SELECT created FROM revenant.publish('sv-plan', :generation, '[{"id": "a", "spec": "unspeakable", "seed": {"progress": "unspeakable"}}, {"id": "b", "spec": "unspeakable"}, {"id": "c"}]', cursor => '"unspeakable"');
SELECT revenant.join_plan('sv-plan', 'w') AS member \gset
SELECT min(epoch) AS epoch, max(epoch) AS last_epoch FROM revenant.claim_splits('sv-plan', 'w', 2) \gset
SELECT revenant.commit_split('sv-plan', 'b', (SELECT epoch FROM revenant.splits WHERE split = 'b'), progress => '"unspeakable"');
SELECT revenant.fail_split('sv-plan', 'a', (SELECT epoch FROM revenant.splits WHERE split = 'a'), 'unspeakable');
CREATE FUNCTION sv_handler(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS $$ SELECT $3, $3, NULL::text $$;
SELECT revenant.create_snapshot_table('sv_entities');
SELECT revenant.create_entity_type('sv-type', 'sv_entities', 'sv_handler');
SELECT revenant.send_after('sv-type', 'a', '"unspeakable"', '1 year') > 0 AS sent;
RESET ROLE;
-- What only workers write.
UPDATE revenant.plan SET replan_outcome = 'error', replan_error = 'unspeakable' WHERE plan = 'sv-plan';
UPDATE revenant.message SET error = 'unspeakable', sqlstate = 'XX000';

-- What somebody may read of the schema, and in how much of it the word is, or one of the tokens.
CREATE FUNCTION sv_look(tokens text[], OUT relation text, OUT word bigint, OUT token bigint) RETURNS SETOF record LANGUAGE plpgsql AS $$
BEGIN
	FOR relation IN
		SELECT c.oid::regclass::text FROM pg_class AS c WHERE c.relnamespace = 'revenant'::regnamespace AND c.relkind = 'v' AND has_table_privilege(c.oid, 'SELECT')
		UNION ALL SELECT 'revenant.events()' WHERE has_function_privilege('revenant.events(bigint)', 'EXECUTE')
	LOOP
		EXECUTE format('SELECT count(*) FILTER (WHERE r::text LIKE ''%%unspeakable%%''), count(*) FILTER (WHERE r::text ~ ANY ($1)) FROM %s AS r', relation) INTO word, token USING tokens;
		RETURN NEXT;
	END LOOP;
END $$;
SET ROLE regress_bob;
SELECT count(*) > 5 AS looked, sum(word) AS word, sum(token) AS token FROM sv_look(ARRAY[:'lease', :'session', :'shared', :'election', :'generation', :'member', :'epoch', :'last_epoch']);
SET ROLE regress_reader;
SELECT count(*) > 5 AS looked, sum(word) AS word, sum(token) AS token FROM sv_look(ARRAY[:'lease', :'session', :'shared', :'election', :'generation', :'member', :'epoch', :'last_epoch']);
-- Whose it is sees it, by a membership too, and so does an admin: it is there to be found.
SET ROLE regress_kid;
SELECT relation, word, token > 0 AS token FROM sv_look(ARRAY[:'lease', :'session', :'shared', :'election', :'generation', :'member', :'epoch', :'last_epoch']) WHERE word > 0 OR token > 0 ORDER BY relation COLLATE "C";
SET ROLE regress_admin;
SELECT relation, word, token > 0 AS token FROM sv_look(ARRAY[:'lease', :'session', :'shared', :'election', :'generation', :'member', :'epoch', :'last_epoch']) WHERE word > 0 OR token > 0 ORDER BY relation COLLATE "C";
-- The tables behind them are for pg_dump, and a reader's: that is what the level is.
SET ROLE regress_bob;
SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = 'revenant'::regnamespace AND c.relkind IN ('r', 'S') AND has_table_privilege(c.oid, 'SELECT');
SET ROLE regress_reader;
SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = 'revenant'::regnamespace AND c.relkind IN ('r', 'S') AND has_table_privilege(c.oid, 'SELECT') ORDER BY c.relname;
-- A function that tells what passes by does not help: it sees what the view shows.
SET ROLE regress_bob;
CREATE FUNCTION pg_temp.tell(anyelement) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS $$ BEGIN RAISE NOTICE 'told: %', $1; RETURN true; END $$;
SELECT count(*) FROM revenant.messages WHERE pg_temp.tell(message);
SELECT count(*) FROM revenant.splits WHERE pg_temp.tell(spec) AND split = 'b';
SELECT count(*) FROM revenant.plans WHERE pg_temp.tell(metadata);
-- Errors of others' plans say nothing of them either.
\set VERBOSITY terse
SELECT revenant.lead_plan('sv-plan', 'me', fingerprint => 'another');
SELECT revenant.planner_state('sv-plan', :generation);
SELECT revenant.claim_splits('sv-plan', 'w', fingerprint => 'another');
SELECT revenant.create_plan('sv-plan', fingerprint => 'another');
SELECT revenant.call('sv-type', 'a', '1');
SELECT revenant.discard_message((SELECT min(message_id) FROM revenant.messages));
RESET ROLE;
\set VERBOSITY default

SELECT revenant.discard_message(message_id) FROM revenant.messages;
SELECT revenant.drop_plan('sv-plan'), revenant.drop_entity_type('sv-type');
SELECT count(*) FILTER (WHERE revenant.release(lease, token)) AS released FROM revenant.leases WHERE lease LIKE 'sv-%';
DROP TABLE sv_entities;
DROP FUNCTION sv_handler, sv_look, pg_temp.tell;
REVOKE CREATE ON SCHEMA public FROM regress_alice;
SELECT revenant.revoke_usage(r) FROM unnest('{regress_alice, regress_kid, regress_bob, regress_reader, regress_admin}'::text[]) AS r;
DROP ROLE regress_kid, regress_alice, regress_bob, regress_reader, regress_admin;
