-- A call is a transaction of its row: what fails leaves nothing, what is unchanged writes nothing, and no entity is in two calls at a time.
\set VERBOSITY sqlstate
\pset null (null)

CREATE ROLE revenant_ent_owner;
CREATE ROLE revenant_ent_user;
SELECT revenant.grant_usage('revenant_ent_owner', 'admin');
SELECT revenant.grant_usage('revenant_ent_user');
CREATE SCHEMA ent;
GRANT CREATE, USAGE ON SCHEMA ent TO revenant_ent_owner, revenant_ent_user;
SET search_path = ent, public;
SET ROLE revenant_ent_owner;

CREATE TABLE noted (n int GENERATED ALWAYS AS IDENTITY, what text);
GRANT SELECT, INSERT ON noted TO revenant_ent_user;
CREATE FUNCTION note(what text) RETURNS void LANGUAGE sql AS $$ INSERT INTO ent.noted (what) VALUES ($1) $$;
-- A counter that does what it is told besides.
CREATE FUNCTION counter(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE plpgsql AS $$
DECLARE
	n int := coalesce((state ->> 'n')::int, 0);
	reply revenant.reply;
	m record;
BEGIN
	CASE message ->> 'do'
		WHEN 'add' THEN
			n := n + coalesce((message ->> 'n')::int, 1);
			reply := ROW(to_jsonb(n), jsonb_build_object('n', n), NULL);
		WHEN 'get' THEN
			reply := ROW(to_jsonb(n), NULL, NULL);
		WHEN 'same' THEN
			reply := ROW(to_jsonb(n), state, NULL);
		WHEN 'note' THEN
			PERFORM ent.note(format('%s noted %s', id, message ->> 'what'));
			reply := ROW(to_jsonb(n), jsonb_build_object('n', n + 1), NULL);
		WHEN 'note only' THEN
			PERFORM ent.note(format('%s noted only', id));
			reply := ROW(to_jsonb(n), NULL, NULL);
		WHEN 'fail' THEN
			PERFORM ent.note(format('%s is about to fail', id));
			RAISE EXCEPTION 'failed' USING ERRCODE = 'XY001';
		WHEN 'stop' THEN
			reply := ROW('"stopped"', jsonb_build_object('n', n + 1), message ->> 'reason');
		WHEN 'stop only' THEN
			reply := ROW('"stopped"', NULL, message ->> 'reason');
		WHEN 'null' THEN
			reply := NULL;
		WHEN 'null state' THEN
			reply := ROW('"null"', 'null', NULL);
		WHEN 'message' THEN
			SELECT * INTO m FROM revenant.current_message();
			reply := ROW(to_jsonb(m), NULL, NULL);
		WHEN 'call' THEN
			n := n + 1;
			reply := ROW(revenant.call(message ->> 'type', message ->> 'id', message -> 'message'), jsonb_build_object('n', n), NULL);
		WHEN 'try call' THEN
			BEGIN
				reply := ROW(revenant.call(message ->> 'type', message ->> 'id', message -> 'message'), jsonb_build_object('n', n + 1), NULL);
			EXCEPTION WHEN OTHERS THEN
				reply := ROW(to_jsonb('caught ' || SQLSTATE), jsonb_build_object('n', n + 1), NULL);
			END;
		WHEN 'sql' THEN
			n := n + 1;
			EXECUTE message ->> 'sql';
			reply := ROW('"done"', jsonb_build_object('n', n), NULL);
	END CASE;
	RETURN reply;
END $$;
CREATE FUNCTION started(id text) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM ent.note('start of ' || id); RETURN '{"n": 100}'; END $$;
CREATE FUNCTION ended(id text, state jsonb, reason text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM ent.note(format('end of %s at %s: %s', id, state, reason)); END $$;
SELECT revenant.create_snapshot_table('counters');
SELECT revenant.create_snapshot_table('others', 10);
SELECT revenant.create_entity_type('counter', 'counters', 'counter');
SELECT revenant.create_entity_type('other', 'others', 'counter', initializer => 'started', terminator => 'ended');
CREATE FUNCTION shown(s revenant.snapshot) RETURNS text LANGUAGE sql AS $$
	SELECT format('%s v%s vsn%s %s%s', (s).id, (s).version, (s).vsn, coalesce((s).state::text, '-'), CASE WHEN (s).deleted THEN ' deleted' END)
$$;
-- Where the row of an entity is, and who wrote it: as long as this is the same, nothing was written.
CREATE FUNCTION place(id text) RETURNS text LANGUAGE sql AS $$ SELECT format('%s %s', c.ctid, c.xmin) FROM ent.counters AS c WHERE c.id = $1 $$;

/* ---- a call */

SELECT revenant.receipt();
SELECT revenant.read_entity('counter', 'a') IS NULL AS none;
SELECT revenant.call('counter', 'a', '{"do": "get"}');
SELECT revenant.read_entity('counter', 'a') IS NULL AS still_none, (revenant.receipt()).xid IS NULL AS wrote_nothing, (revenant.receipt()).version;
SELECT revenant.call('counter', 'a', '{"do": "add"}'), revenant.call('counter', 'a', '{"do": "add", "n": 5}'), shown(revenant.read_entity('counter', 'a'));
SELECT r.type, r.id, r.version, r.durable, r.xid IS NOT NULL AS xid, r.lsn <= pg_current_wal_insert_lsn() AS lsn, r.timeline FROM revenant.receipt() AS r;
-- Unchanged states
SELECT place('a') AS place \gset
SELECT revenant.call('counter', 'a', '{"do": "get"}'), revenant.call('counter', 'a', '{"do": "same"}'), revenant.call('counter', 'a', '{"do": "null"}'), place('a') = :'place' AS unchanged;
SELECT r.version, r.durable, r.xid, r.lsn, r.timeline FROM revenant.receipt() AS r;
-- … but what the handler wrote elsewhere has a receipt.
SELECT revenant.call('counter', 'a', '{"do": "note only"}'), place('a') = :'place' AS unchanged;
SELECT r.version, r.durable, revenant.receipt_status(r.xid, r.lsn, r.timeline) FROM revenant.receipt() AS r;
SELECT revenant.call('counter', 'a', '{"do": "null state"}'), shown(revenant.read_entity('counter', 'a')), revenant.call('counter', 'a', '{"do": "add"}');
-- A message of null; a handler that is not called with one
SELECT revenant.call('counter', 'a', NULL);
CREATE FUNCTION strictly(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql STRICT AS $$ SELECT '"called"'::jsonb, message, NULL::text $$;
SELECT revenant.alter_entity_type('counter', '{"handler": "strictly"}');
SELECT revenant.call('counter', 'strict', '1'), revenant.call('counter', 'a', NULL), revenant.call('counter', 'a', '1'), revenant.read_entity('counter', 'strict') IS NULL AS none;
-- Other kinds of handlers
CREATE FUNCTION definer(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql SECURITY DEFINER SET search_path = '' AS $$ SELECT to_jsonb(current_user::text), message, NULL::text $$;
SELECT revenant.alter_entity_type('counter', '{"handler": "definer"}');
RESET ROLE;
SELECT revenant.call('counter', 'definer', '1');
SET ROLE revenant_ent_owner;
CREATE FUNCTION stable(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE plpgsql STABLE AS $$
BEGIN
	RETURN ROW(to_jsonb((SELECT count(*) FROM ent.noted)), message, NULL)::revenant.reply;
END $$;
SELECT revenant.alter_entity_type('counter', '{"handler": "stable"}');
SELECT revenant.call('counter', 'stable', '1'), note('seen'), revenant.call('counter', 'stable', '2'), shown(revenant.read_entity('counter', 'stable'));
CREATE FUNCTION immutable(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT $2, $3, NULL::text $$;
SELECT revenant.alter_entity_type('counter', '{"handler": "immutable"}');
SELECT revenant.call('counter', 'immutable', '1'), revenant.call('counter', 'immutable', '2');
-- Columns of the reply by OUT arguments, and a default beside
CREATE FUNCTION outs(id text, state jsonb, message jsonb, OUT reply jsonb, OUT state_ jsonb, OUT stop text) LANGUAGE sql AS $$ SELECT $2, $3, NULL $$;
SELECT revenant.alter_entity_type('counter', '{"handler": "outs"}');
SELECT revenant.alter_entity_type('counter', '{"handler": "counter"}');
-- A state that is large and grows
SELECT count(revenant.call('counter', 'large', jsonb_build_object('do', 'sql', 'sql', 'SELECT ' || quote_literal(repeat(md5(i::text), 10000))))) FROM generate_series(1, 3) AS i;

/* ---- arguments */

SELECT revenant.call(NULL, 'a', '1');
SELECT revenant.call('counter', NULL, '1');
SELECT revenant.call('', 'a', '1');
SELECT revenant.call('counter', '', '1');
SELECT revenant.call(repeat('x', 256), 'a', '1');
SELECT revenant.call('counter', repeat('x', 1025), '1');
SELECT revenant.call('counter', repeat('x', 1024), '{"do": "add"}');
SELECT revenant.call('none', 'a', '1');
SELECT revenant.call('counter', 'a', '{"do": "get"}', durability => 'sometimes');
SELECT revenant.call('counter', 'a', '{"do": "get"}', durability => 'strict'), revenant.call('counter', 'a', '{"do": "get"}', durability => 'interval');
SELECT revenant.read_entity(NULL, 'a');
SELECT revenant.read_entity('counter', NULL);
SELECT revenant.read_entity('none', 'a');
SELECT revenant.stop_entity('counter', 'a'), revenant.stop_entity('counter', 'none', 'because');
SELECT revenant.stop_entity('counter', 'a', NULL);
SELECT revenant.stop_entity(NULL, 'a');
SELECT revenant.delete_entity('counter', NULL);
SELECT revenant.delete_entity('none', 'a');
BEGIN READ ONLY;
SELECT shown(revenant.read_entity('counter', 'a'));
SAVEPOINT s;
SELECT revenant.call('counter', 'a', '{"do": "get"}');
ROLLBACK TO s;
SELECT revenant.stop_entity('counter', 'a');
ROLLBACK TO s;
SELECT revenant.delete_entity('counter', 'a');
ROLLBACK TO s;
SELECT revenant.upgrade_all('counter');
ROLLBACK TO s;
SELECT revenant.receipt_status('3', '0/1', 1);
ROLLBACK;

/* ---- the first state, and the last */

TRUNCATE noted;
SELECT revenant.call('other', 'b', '{"do": "get"}'), revenant.call('other', 'b', '{"do": "add"}'), revenant.call('other', 'b', '{"do": "add"}');
SELECT what FROM noted ORDER BY n;
TRUNCATE noted;
SELECT revenant.call('other', 'b', '{"do": "stop", "reason": "enough"}'), shown(revenant.read_entity('other', 'b'));
SELECT revenant.call('other', 'b', '{"do": "stop only", "reason": ""}'), revenant.call('other', 'b', '{"do": "stop only"}'), shown(revenant.read_entity('other', 'b'));
SELECT revenant.call('other', 'c', '{"do": "stop only", "reason": "never begun"}'), revenant.read_entity('other', 'c') IS NULL AS none;
SELECT what FROM noted ORDER BY n;
-- A terminator that fails, fails the call.
CREATE OR REPLACE FUNCTION ended(id text, state jsonb, reason text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'XY002'; END $$;
SELECT revenant.call('other', 'b', '{"do": "stop", "reason": "enough"}');
SELECT shown(revenant.read_entity('other', 'b'));
-- An initializer that returns null, or fails
CREATE OR REPLACE FUNCTION started(id text) RETURNS jsonb LANGUAGE sql AS $$ SELECT NULL::jsonb $$;
SELECT revenant.call('other', 'd', '{"do": "add"}');
CREATE OR REPLACE FUNCTION started(id text) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'XY003'; END $$;
SELECT revenant.call('other', 'e', '{"do": "add"}');
SELECT revenant.read_entity('other', 'e') IS NULL AS none;
-- No function of a type calls its own entity.
CREATE OR REPLACE FUNCTION started(id text) RETURNS jsonb LANGUAGE sql AS $$ SELECT revenant.call('other', $1, '{"do": "add"}') $$;
SELECT revenant.call('other', 'e', '{"do": "add"}');
CREATE OR REPLACE FUNCTION started(id text) RETURNS jsonb LANGUAGE sql AS $$ SELECT revenant.call('other', 'another', '{"do": "add"}') $$;
SELECT revenant.call('other', 'e', '{"do": "add"}');
CREATE OR REPLACE FUNCTION started(id text) RETURNS jsonb LANGUAGE sql AS $$ SELECT revenant.call('counter', $1, '{"do": "add"}'); SELECT '{"n": 5}'::jsonb $$;
SELECT revenant.call('other', 'e', '{"do": "add"}'), shown(revenant.read_entity('counter', 'e'));
CREATE OR REPLACE FUNCTION ended(id text, state jsonb, reason text) RETURNS void LANGUAGE sql AS $$ SELECT revenant.call('other', $1, '{"do": "stop", "reason": "again"}') $$;
SELECT revenant.call('other', 'e', '{"do": "stop", "reason": "enough"}');
SELECT shown(revenant.read_entity('other', 'e'));
SELECT revenant.alter_entity_type('other', '{"initializer": null, "terminator": null}');

/* ---- an error leaves nothing */

TRUNCATE noted;
SELECT revenant.call('counter', 'f', '{"do": "add"}');
SELECT revenant.call('counter', 'f', '{"do": "fail"}');
SELECT shown(revenant.read_entity('counter', 'f')), (SELECT count(*) FROM noted) AS notes;
BEGIN;
SELECT revenant.call('counter', 'f', '{"do": "note", "what": "first"}');
SAVEPOINT s;
SELECT revenant.call('counter', 'f', '{"do": "note", "what": "second"}');
SELECT revenant.call('counter', 'g', '{"do": "note", "what": "third"}');
SELECT revenant.call('counter', 'f', '{"do": "fail"}');
ROLLBACK TO s;
SELECT shown(revenant.read_entity('counter', 'f')), revenant.read_entity('counter', 'g') IS NULL AS none;
SELECT revenant.call('counter', 'g', '{"do": "note", "what": "fourth"}'), revenant.call('counter', 'f', '{"do": "add"}');
COMMIT;
SELECT shown(revenant.read_entity('counter', 'f')), shown(revenant.read_entity('counter', 'g'));
SELECT what FROM noted ORDER BY n;
-- A first call that fails leaves no lock behind.
BEGIN;
SAVEPOINT s;
SELECT revenant.call('counter', 'h', '{"do": "fail"}');
ROLLBACK TO s;
SELECT count(*) FROM pg_locks WHERE locktype NOT IN ('relation', 'virtualxid', 'transactionid') AND pid = pg_backend_pid();
ROLLBACK;

/* ---- calls inside of calls */

SELECT revenant.call('counter', 'i', '{"do": "call", "type": "counter", "id": "i", "message": {"do": "add"}}');
SELECT revenant.call('counter', 'i', '{"do": "call", "type": "counter", "id": "j", "message": {"do": "call", "type": "other", "id": "k", "message": {"do": "add"}}}');
SELECT shown(revenant.read_entity('counter', 'i')), shown(revenant.read_entity('counter', 'j')), shown(revenant.read_entity('other', 'k'));
-- its own entity through two others
SELECT revenant.call('counter', 'i', '{"do": "call", "type": "counter", "id": "j", "message": {"do": "call", "type": "other", "id": "k", "message": {"do": "call", "type": "counter", "id": "i", "message": {"do": "add"}}}}');
SELECT shown(revenant.read_entity('counter', 'i')), shown(revenant.read_entity('counter', 'j')), shown(revenant.read_entity('other', 'k'));
-- caught where it is raised, or further out: what is outside goes on
SELECT revenant.call('counter', 'i', '{"do": "try call", "type": "counter", "id": "i", "message": {"do": "add"}}'), revenant.call('counter', 'i', '{"do": "add"}');
SELECT revenant.call('counter', 'i', '{"do": "call", "type": "counter", "id": "j", "message": {"do": "try call", "type": "counter", "id": "i", "message": {"do": "add"}}}');
SELECT revenant.call('counter', 'i', '{"do": "try call", "type": "counter", "id": "j", "message": {"do": "call", "type": "other", "id": "k", "message": {"do": "call", "type": "counter", "id": "i", "message": {"do": "add"}}}}');
SELECT revenant.call('counter', 'i', '{"do": "try call", "type": "counter", "id": "j", "message": {"do": "fail"}}'), revenant.call('counter', 'j', '{"do": "add"}');
SELECT shown(revenant.read_entity('counter', 'i')), shown(revenant.read_entity('counter', 'j')), shown(revenant.read_entity('other', 'k'));
-- deleted, stopped, saved, or written by its own handler
SELECT revenant.call('counter', 'i', '{"do": "sql", "sql": "SELECT revenant.delete_entity(''counter'', ''i'')"}');
SELECT revenant.call('counter', 'i', '{"do": "sql", "sql": "SELECT revenant.save(''ent.counters'', ''i'', (revenant.load(''ent.counters'', ''i'')).version, ''{}'')"}');
SELECT revenant.call('counter', 'i', '{"do": "sql", "sql": "UPDATE ent.counters SET state = ''{}'' WHERE id = ''i''"}');
SELECT revenant.call('counter', 'i', '{"do": "sql", "sql": "DELETE FROM ent.counters WHERE id = ''i''"}');
SELECT revenant.call('counter', 'new', '{"do": "sql", "sql": "INSERT INTO ent.counters (id) VALUES (''new'')"}');
SELECT shown(revenant.read_entity('counter', 'i')), revenant.read_entity('counter', 'new') IS NULL AS none;
SELECT revenant.call('counter', 'i', '{"do": "sql", "sql": "DROP TABLE ent.counters CASCADE"}');
SELECT revenant.call('counter', 'i', '{"do": "sql", "sql": "ALTER TABLE ent.counters ADD COLUMN x int"}');
SELECT revenant.call('counter', 'i', '{"do": "sql", "sql": "TRUNCATE ent.counters"}');
-- another type, another handler, or none any more: this call ends as it began
SELECT revenant.call('counter', 'i', '{"do": "sql", "sql": "SELECT revenant.alter_entity_type(''counter'', ''{\"handler\": \"ent.immutable\", \"vsn\": 2}'')"}'), revenant.call('counter', 'l', '"immutable"'), shown(revenant.read_entity('counter', 'i'));
SELECT revenant.alter_entity_type('counter', '{"handler": "counter", "vsn": 1}');
SELECT revenant.delete_entity('counter', 'l');
BEGIN;
SELECT revenant.call('counter', 'i', '{"do": "sql", "sql": "SELECT revenant.drop_entity_type(''counter'')"}');
SELECT revenant.call('counter', 'i', '{"do": "add"}');
ROLLBACK;
BEGIN;
SELECT revenant.call('counter', 'i', '{"do": "sql", "sql": "DROP FUNCTION ent.counter"}');
SELECT revenant.call('counter', 'i', '{"do": "add"}');
ROLLBACK;
BEGIN;
SELECT revenant.call('counter', 'i', '{"do": "sql", "sql": "CREATE OR REPLACE FUNCTION ent.counter(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS ''SELECT NULL::jsonb, NULL::jsonb, NULL::text''"}');
SELECT revenant.call('counter', 'i', '{"do": "add"}');
ROLLBACK;

/* ---- current_message */

SELECT m.kind, m.message_id, m.attempt, m.sender FROM revenant.current_message() AS m;
SELECT revenant.call('counter', 'i', '{"do": "message"}'), revenant.call('counter', 'i', '{"do": "call", "type": "other", "id": "k", "message": {"do": "message"}}');
-- not what a call inside left behind, nor what an error did
SELECT revenant.call('counter', 'i', '{"do": "fail"}');
SELECT m.kind FROM revenant.current_message() AS m;
CREATE OR REPLACE FUNCTION started(id text) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(m) FROM revenant.current_message() AS m $$;
SELECT revenant.alter_entity_type('other', '{"initializer": "started", "handler": "immutable"}');
SELECT revenant.call('other', 'in the initializer', '1');
SELECT revenant.alter_entity_type('other', '{"initializer": null, "handler": "counter"}');

/* ---- delete, and live again */

SELECT revenant.call('counter', 'm', '{"do": "add", "n": 7}'), revenant.call('counter', 'm', '{"do": "add"}');
SELECT revenant.delete_entity('counter', 'm'), revenant.delete_entity('counter', 'm'), revenant.delete_entity('counter', 'none');
SELECT shown(revenant.read_entity('counter', 'm'));
SELECT revenant.call('counter', 'm', '{"do": "get"}'), shown(revenant.read_entity('counter', 'm'));
SELECT revenant.call('counter', 'm', '{"do": "add"}'), shown(revenant.read_entity('counter', 'm'));
-- a client that saves what it loaded before
SELECT revenant.save('counters', 'm', 2, '{"n": 9}');
BEGIN;
SELECT revenant.delete_entity('counter', 'm');
ROLLBACK;
SELECT shown(revenant.read_entity('counter', 'm'));

/* ---- request_id */

\set id '\'00000000-0000-0000-0000-0000000000a1\''
\set id2 '\'00000000-0000-0000-0000-0000000000a2\''
\set id3 '\'00000000-0000-0000-0000-0000000000a3\''
\set id4 '\'00000000-0000-0000-0000-0000000000a4\''
SELECT revenant.call('counter', 'r', '{"do": "add"}', request_id => :id);
SELECT r.version AS version, r.xid AS xid, r.lsn AS lsn, r.timeline AS timeline FROM revenant.receipt() AS r \gset
SELECT revenant.call('counter', 'r', '{"do": "add"}');
SELECT revenant.call('counter', 'r', '{"do": "add"}', request_id => :id) AS again, revenant.call('counter', 'r', '{"do":   "add"}', request_id => :id) AS and_again, shown(revenant.read_entity('counter', 'r'));
SELECT r.type, r.id, r.version, r.durable, r.xid = :'xid' AS xid, r.timeline = :timeline AS timeline, revenant.receipt_status(r.xid, r.lsn, r.timeline) FROM revenant.receipt() AS r;
-- anything else with the same id
SELECT revenant.call('counter', 'r', '{"do": "get"}', request_id => :id);
SELECT revenant.call('counter', 'r', NULL, request_id => :id);
SELECT revenant.call('counter', 's', '{"do": "add"}', request_id => :id);
SELECT revenant.call('other', 'r', '{"do": "add"}', request_id => :id);
RESET ROLE;
SELECT revenant.call('counter', 'r', '{"do": "add"}', request_id => :id);
SET ROLE revenant_ent_owner;
-- a reply of null, a call that changes nothing, a message of null
SELECT revenant.call('counter', 'r', '{"do": "null"}', request_id => :id2), revenant.call('counter', 'r', '{"do": "null"}', request_id => :id2);
SELECT r.version, revenant.receipt_status(r.xid, r.lsn, r.timeline) FROM revenant.receipt() AS r;
SELECT revenant.call('counter', 'unborn', '{"do": "get"}', request_id => :id3);
SELECT r.version, revenant.receipt_status(r.xid, r.lsn, r.timeline) FROM revenant.receipt() AS r;
SELECT revenant.call('counter', 'unborn', '{"do": "add"}'), revenant.call('counter', 'unborn', '{"do": "get"}', request_id => :id3) AS first_reply;
-- rolled back, and failed: it was never asked
BEGIN;
SELECT revenant.call('counter', 'r', '{"do": "add", "n": 10}', request_id => :id4);
SELECT revenant.call('counter', 'r', '{"do": "add", "n": 10}', request_id => :id4);
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT revenant.call('counter', 'r', '{"do": "add", "n": 10}', request_id => :id4);
ROLLBACK TO s;
SELECT revenant.call('counter', 'r', '{"do": "add", "n": 20}', request_id => :id4);
ROLLBACK;
SELECT revenant.call('counter', 'r', '{"do": "fail"}', request_id => :id4);
SELECT revenant.call('counter', 'r', '{"do": "add", "n": 30}', request_id => :id4), revenant.call('counter', 'r', '{"do": "add", "n": 30}', request_id => :id4), shown(revenant.read_entity('counter', 'r'));
-- A retry is answered when the entity was deleted since.
SELECT revenant.delete_entity('counter', 'r');
SELECT revenant.call('counter', 'r', '{"do": "add"}', request_id => :id) AS again, shown(revenant.read_entity('counter', 'r'));
-- at each isolation level
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT revenant.call('counter', 'r', '{"do": "add"}', request_id => :id) AS again, revenant.call('counter', 'r', '{"do": "add"}', request_id => '00000000-0000-0000-0000-0000000000a5'),
	revenant.call('counter', 'r', '{"do": "add"}', request_id => '00000000-0000-0000-0000-0000000000a5');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT revenant.call('counter', 'r', '{"do": "add"}', request_id => '00000000-0000-0000-0000-0000000000a6'), revenant.call('counter', 'r', '{"do": "add"}', request_id => '00000000-0000-0000-0000-0000000000a6'),
	revenant.call('counter', 'serializable', '{"do": "add"}'), revenant.call('counter', 'serializable', '{"do": "add"}');
COMMIT;

/* ---- receipts */

BEGIN;
SELECT revenant.call('counter', 't', '{"do": "add"}');
SELECT r.xid AS xid, r.lsn AS lsn, r.timeline AS timeline FROM revenant.receipt() AS r \gset
SELECT revenant.receipt_status(:'xid', :'lsn', :timeline);
SAVEPOINT s;
SELECT revenant.call('counter', 't', '{"do": "add"}');
SELECT r.xid AS sub_xid, r.lsn AS sub_lsn, r.version FROM revenant.receipt() AS r \gset
SELECT :'sub_xid' = :'xid' AS of_the_whole, :version AS version, revenant.receipt_status(:'sub_xid', :'sub_lsn', :timeline);
ROLLBACK TO s;
COMMIT;
SELECT revenant.receipt_status(:'xid', :'lsn', :timeline), revenant.receipt_status(:'sub_xid', :'sub_lsn', :timeline) AS of_the_part;
-- A part that stays is there when the whole is
BEGIN;
SAVEPOINT s;
SELECT revenant.call('counter', 'part', '{"do": "add"}');
RELEASE s;
SELECT revenant.receipt_status(r.xid, r.lsn, r.timeline) FROM revenant.receipt() AS r;
COMMIT;
SELECT revenant.receipt_status(r.xid, r.lsn, r.timeline) FROM revenant.receipt() AS r;
BEGIN;
SELECT revenant.call('counter', 't', '{"do": "add"}');
ROLLBACK;
SELECT revenant.receipt_status(r.xid, r.lsn, r.timeline) FROM revenant.receipt() AS r;
-- What it cannot know, and what cannot be
SELECT revenant.receipt_status('9223372036854775807', :'lsn', :timeline) AS not_yet, revenant.receipt_status('0', :'lsn', :timeline) AS no_xid, revenant.receipt_status('1', :'lsn', :timeline) AS bootstrap,
	revenant.receipt_status('18446744073709551615', :'lsn', :timeline) AS the_last;
SELECT revenant.receipt_status(:'xid', 'FFFFFFFF/0', :timeline) AS future_lsn, revenant.receipt_status(:'xid', :'lsn', 99) AS future_timeline, revenant.receipt_status(:'xid', :'lsn', 0) AS no_timeline, revenant.receipt_status(:'xid', :'lsn', -1) AS negative,
	revenant.receipt_status(:'xid', :'lsn', 2147483647) AS the_last;
SELECT revenant.receipt_status(NULL, :'lsn', 1);
SELECT revenant.receipt_status(:'xid', NULL, 1);
SELECT revenant.receipt_status(:'xid', :'lsn', NULL);
-- In a transaction that is prepared
BEGIN;
SELECT revenant.call('counter', 'prepared', '{"do": "add"}', request_id => '00000000-0000-0000-0000-0000000000a7');
SELECT r.xid AS xid, r.lsn AS lsn, r.timeline AS timeline FROM revenant.receipt() AS r \gset
PREPARE TRANSACTION 'revenant entities';
SELECT revenant.receipt_status(:'xid', :'lsn', :timeline), revenant.read_entity('counter', 'prepared') IS NULL AS not_yet;
SET lock_timeout = '10 ms';
SELECT revenant.call('counter', 'prepared', '{"do": "add"}');
RESET lock_timeout;
COMMIT PREPARED 'revenant entities';
SELECT revenant.receipt_status(:'xid', :'lsn', :timeline), revenant.call('counter', 'prepared', '{"do": "add"}', request_id => '00000000-0000-0000-0000-0000000000a7') AS again, shown(revenant.read_entity('counter', 'prepared'));

/* ---- from everywhere */

PREPARE adding(text) AS SELECT revenant.call('counter', $1, '{"do": "add"}');
EXECUTE adding('u');
SET plan_cache_mode = force_generic_plan;
EXECUTE adding('u');
ALTER TABLE counters ADD COLUMN extra text DEFAULT 'x';
EXECUTE adding('u');
RESET plan_cache_mode;
-- from a trigger of an ordinary table, from another entity's table, in a CHECK, at commit
CREATE TABLE calls (id text);
CREATE FUNCTION call_it() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM revenant.call('counter', NEW.id, '{"do": "add"}'); RETURN NEW; END $$;
CREATE TRIGGER t BEFORE INSERT ON calls FOR EACH ROW EXECUTE FUNCTION call_it();
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON calls DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION call_it();
INSERT INTO calls SELECT 'u' FROM generate_series(1, 10);
SELECT shown(revenant.read_entity('counter', 'u'));
CREATE TRIGGER own AFTER UPDATE ON others FOR EACH ROW EXECUTE FUNCTION call_it();
SELECT revenant.call('other', 'u', '{"do": "add"}'), revenant.call('other', 'u', '{"do": "add"}'), shown(revenant.read_entity('counter', 'u'));
-- … which calls the entity whose row is just written: the call is over then, it is the row that is busy
CREATE OR REPLACE FUNCTION call_it() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM revenant.call('other', NEW.id, '{"do": "get"}'); RETURN NEW; END $$;
SELECT revenant.call('other', 'u', '{"do": "add"}'), shown(revenant.read_entity('other', 'u'));
DROP TRIGGER own ON others;
DROP TABLE calls;
-- where parallel workers might run it
CREATE FUNCTION called_safe(id text) RETURNS jsonb LANGUAGE plpgsql PARALLEL SAFE AS $$ BEGIN RETURN revenant.call('counter', id, '{"do": "add"}'); END $$;
CREATE TABLE many AS SELECT i::text AS id FROM generate_series(1, 1000) AS i;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET parallel_leader_participation = off;
EXPLAIN (COSTS off) SELECT count(revenant.call('counter', id, '{"do": "add"}')) FROM many WHERE id <= '2';
SELECT count(ent.called_safe(id)) FROM many WHERE id <= '2';
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
RESET parallel_leader_participation;
-- a procedure that commits in between
CREATE PROCEDURE many_calls() LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 10 LOOP
		PERFORM revenant.call('counter', 'procedure', '{"do": "add"}');
		IF i % 3 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
	END LOOP;
END $$;
CALL many_calls();
SELECT shown(revenant.read_entity('counter', 'procedure'));
-- cursors: each row is a call when it is fetched
BEGIN;
DECLARE c CURSOR FOR SELECT revenant.call('counter', 'cursor', '{"do": "add"}') FROM generate_series(1, 5);
FETCH 2 FROM c;
SELECT shown(revenant.read_entity('counter', 'cursor'));
FETCH 1 FROM c;
COMMIT;
-- 20,000 new entities in one transaction take no 20,000 locks; where they would, it is refused
BEGIN;
SELECT count(revenant.call('counter', 'many ' || i, '{"do": "add"}')) FROM generate_series(1, 20000) AS i;
SELECT count(*) < 20 AS few FROM pg_locks WHERE pid = pg_backend_pid();
COMMIT;
ALTER TABLE counters ENABLE ROW LEVEL SECURITY;
BEGIN;
SELECT count(revenant.call('counter', 'few ' || i, '{"do": "add"}')) FROM generate_series(1, 1000) AS i;
SAVEPOINT s;
SELECT revenant.call('counter', 'one too many', '{"do": "add"}');
ROLLBACK TO s;
SELECT revenant.call('counter', 'few 1', '{"do": "add"}');
COMMIT;
SELECT revenant.call('counter', 'one too many', '{"do": "add"}');
ALTER TABLE counters DISABLE ROW LEVEL SECURITY;

/* ---- triggers and rules of the table */

CREATE FUNCTION suppress() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN CASE WHEN NEW.id LIKE 'suppress%' THEN NULL ELSE NEW END; END $$;
INSERT INTO others (id, state) VALUES ('suppressed', '{"n": 1}');
CREATE TRIGGER suppress BEFORE INSERT OR UPDATE ON others FOR EACH ROW EXECUTE FUNCTION suppress();
SELECT revenant.call('other', 'suppressed', '{"do": "add"}');
SELECT revenant.call('other', 'suppressed new', '{"do": "add"}');
SELECT revenant.delete_entity('other', 'suppressed');
SELECT revenant.call('other', 'suppressed', '{"do": "get"}'), shown(revenant.read_entity('other', 'suppressed'));
DROP TRIGGER suppress ON others;
-- the history of an entity
SELECT revenant.call('other', 'v', '{"do": "add"}'), revenant.call('other', 'v', '{"do": "get"}'), revenant.call('other', 'v', '{"do": "add"}'), revenant.delete_entity('other', 'v'), revenant.call('other', 'v', '{"do": "add"}');
SELECT shown(h) FROM revenant.history('others', 'v') AS h;
-- partitions
CREATE TABLE parts (LIKE counters INCLUDING DEFAULTS, PRIMARY KEY (id)) PARTITION BY HASH (id);
CREATE TABLE parts_0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
SELECT revenant.create_entity_type('part', 'parts', 'counter');
SELECT count(revenant.call('part', (i % 10)::text, '{"do": "add"}')) FROM generate_series(1, 100) AS i;
SELECT count(*), min(state::text), max(state::text), min(version), max(version) FROM parts;

/* ---- privileges */

RESET ROLE;
REVOKE CREATE ON SCHEMA ent FROM revenant_ent_user;
SET ROLE revenant_ent_owner;
REVOKE EXECUTE ON FUNCTION counter FROM PUBLIC;
SELECT revenant.call('counter', 'w', '{"do": "add"}');
RESET ROLE;
SET ROLE revenant_ent_user;
SELECT revenant.call('counter', 'w', '{"do": "get"}');
SELECT revenant.read_entity('counter', 'w');
SELECT revenant.delete_entity('counter', 'w');
SELECT revenant.upgrade_all('counter');
RESET ROLE;
-- the handler alone, the table alone
GRANT EXECUTE ON FUNCTION counter TO revenant_ent_user;
SET ROLE revenant_ent_user;
SELECT revenant.call('counter', 'w', '{"do": "get"}');
RESET ROLE;
REVOKE EXECUTE ON FUNCTION counter FROM revenant_ent_user;
GRANT SELECT, UPDATE ON counters TO revenant_ent_user;
SET ROLE revenant_ent_user;
SELECT revenant.call('counter', 'w', '{"do": "get"}');
SELECT shown(revenant.read_entity('counter', 'w'));
RESET ROLE;
-- both: what is there; to make a new one takes INSERT
GRANT EXECUTE ON FUNCTION counter TO revenant_ent_user;
SET ROLE revenant_ent_user;
SELECT revenant.call('counter', 'w', '{"do": "add"}'), revenant.call('counter', 'w', '{"do": "message"}') ->> 'sender' AS sender;
SELECT revenant.call('counter', 'made by the user', '{"do": "add"}');
RESET ROLE;
GRANT INSERT ON counters TO revenant_ent_user;
SET ROLE revenant_ent_user;
SELECT revenant.call('counter', 'made by the user', '{"do": "add"}'), revenant.delete_entity('counter', 'made by the user');
-- SELECT alone is too little for a call that changes nothing, too: it locks the row
RESET ROLE;
REVOKE INSERT, UPDATE ON counters FROM revenant_ent_user;
SET ROLE revenant_ent_user;
SELECT revenant.call('counter', 'w', '{"do": "get"}');
-- a handler gets no right of anybody else's
RESET ROLE;
GRANT INSERT, UPDATE ON counters TO revenant_ent_user;
REVOKE ALL ON noted FROM revenant_ent_user;
SET ROLE revenant_ent_user;
SELECT revenant.call('counter', 'w', '{"do": "note", "what": "x"}');
RESET ROLE;
-- row security
ALTER TABLE counters ENABLE ROW LEVEL SECURITY;
CREATE POLICY mine ON counters TO revenant_ent_user USING (id LIKE 'mine/%') WITH CHECK (state IS NULL OR (state ->> 'n')::int < 3);
INSERT INTO counters (id, state) VALUES ('mine/1', '{"n": 1}'), ('hidden', '{"n": 1}');
SET ROLE revenant_ent_user;
SELECT revenant.call('counter', 'mine/1', '{"do": "add"}'), revenant.call('counter', 'mine/2', '{"do": "add"}');
SELECT revenant.call('counter', 'mine/1', '{"do": "add"}');
SELECT revenant.read_entity('counter', 'hidden') IS NULL AS hidden, revenant.call('counter', 'hidden', '{"do": "get"}') AS as_if_new, revenant.delete_entity('counter', 'hidden');
SELECT revenant.call('counter', 'hidden', '{"do": "add"}');
SELECT revenant.delete_entity('counter', 'mine/2');
RESET ROLE;
SELECT id, version, state, deleted FROM counters WHERE id LIKE 'mine/%' OR id = 'hidden' ORDER BY id;
ALTER TABLE counters DISABLE ROW LEVEL SECURITY;
-- without any level, and with the one that only reads
SELECT revenant.grant_usage('revenant_ent_user', 'reader');
GRANT EXECUTE ON FUNCTION shown TO revenant_ent_user;
SET ROLE revenant_ent_user;
SELECT shown(revenant.read_entity('counter', 'mine/1'));
SELECT revenant.call('counter', 'mine/1', '{"do": "get"}');
SELECT revenant.receipt();
RESET ROLE;
SELECT revenant.revoke_usage('revenant_ent_user');
SET ROLE revenant_ent_user;
SELECT revenant.read_entity('counter', 'mine/1');
RESET ROLE;

/* ---- hostile names */

CREATE SCHEMA ent_hostile;
CREATE FUNCTION ent_hostile.counter(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a hostile handler ran'; END $$;
CREATE FUNCTION ent_hostile.no(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a hostile operator ran'; END $$;
CREATE FUNCTION ent_hostile.no(int, int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a hostile operator ran'; END $$;
CREATE OPERATOR ent_hostile.= (FUNCTION = ent_hostile.no, LEFTARG = text, RIGHTARG = text);
CREATE OPERATOR ent_hostile.< (FUNCTION = ent_hostile.no, LEFTARG = int, RIGHTARG = int);
CREATE TABLE ent_hostile.counters (x int);
CREATE FUNCTION raised(old_vsn int, state jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT state $$;
CREATE FUNCTION plain(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS $$ SELECT $2, $3, NULL::text $$;
SELECT revenant.create_snapshot_table('ent.hardened');
SELECT revenant.create_entity_type('hardened', 'ent.hardened', 'ent.plain');
CREATE TEMP TABLE hardened (x int);
CREATE FUNCTION pg_temp.plain(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a hostile handler ran'; END $$;
SET search_path = ent_hostile, pg_temp, pg_catalog;
SELECT revenant.call('hardened', 'a', '1'), revenant.call('hardened', 'a', '2');
ALTER TABLE ent.hardened ENABLE ROW LEVEL SECURITY;
SELECT revenant.call('hardened', 'a', '3'), revenant.call('hardened', 'b', '4'), revenant.delete_entity('hardened', 'b');
SELECT revenant.alter_entity_type('hardened', '{"vsn": 2, "upgrade": "ent.raised"}');
SELECT revenant.upgrade_all('hardened'), revenant.call('hardened', 'a', '5');
RESET search_path;

SET client_min_messages = warning;
SELECT revenant.drop_entity_type(type) FROM revenant.entity_type;
DROP SCHEMA ent, ent_hostile CASCADE;
DROP TABLE pg_temp.hardened;
SELECT revenant.revoke_usage('revenant_ent_owner');
DROP ROLE revenant_ent_owner, revenant_ent_user;
