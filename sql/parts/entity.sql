/* ---------------------------------------------------------------- snapshots */

CREATE TYPE revenant.snapshot AS (
	id pg_catalog.text,
	version pg_catalog.int8,
	vsn pg_catalog.int4,
	state pg_catalog.jsonb,
	updated_at pg_catalog.timestamptz,
	deleted pg_catalog.bool,
	dirty pg_catalog.bool
);
COMMENT ON TYPE revenant.snapshot IS 'one version of a snapshot; dirty: newer than what its row says';

CREATE FUNCTION revenant.create_snapshot_table(name pg_catalog.text, history pg_catalog.int4 DEFAULT 0) RETURNS pg_catalog.regclass
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_create_snapshot_table';
COMMENT ON FUNCTION revenant.create_snapshot_table(pg_catalog.text, pg_catalog.int4) IS
'makes a table of versioned snapshots, owned by the caller; history is how many older versions of each id are kept in name_history, -1 keeps all';
REVOKE ALL ON FUNCTION revenant.create_snapshot_table(pg_catalog.text, pg_catalog.int4) FROM PUBLIC;

-- The row trigger of a snapshot table with a history: src/snapshot_history.c.
CREATE FUNCTION revenant._keep_history() RETURNS pg_catalog.trigger
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_keep_history';
REVOKE ALL ON FUNCTION revenant._keep_history() FROM PUBLIC;

CREATE FUNCTION revenant.load(snapshots pg_catalog.regclass, id pg_catalog.text, for_update pg_catalog.bool DEFAULT false) RETURNS revenant.snapshot
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_load';
COMMENT ON FUNCTION revenant.load(pg_catalog.regclass, pg_catalog.text, pg_catalog.bool) IS
'the snapshot with this id, null if there is none; a removed one has deleted = true; for_update locks it to the end of the transaction';
REVOKE ALL ON FUNCTION revenant.load(pg_catalog.regclass, pg_catalog.text, pg_catalog.bool) FROM PUBLIC;

CREATE FUNCTION revenant.save(
	snapshots pg_catalog.regclass,
	id pg_catalog.text,
	expected_version pg_catalog.int8,
	state pg_catalog.jsonb,
	vsn pg_catalog.int4 DEFAULT 1
) RETURNS pg_catalog.int8
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_save';
COMMENT ON FUNCTION revenant.save(pg_catalog.regclass, pg_catalog.text, pg_catalog.int8, pg_catalog.jsonb, pg_catalog.int4) IS
'writes the next version of a snapshot and returns it; RV003 unless it is at expected_version, 0 for one that must not exist';
REVOKE ALL ON FUNCTION revenant.save(pg_catalog.regclass, pg_catalog.text, pg_catalog.int8, pg_catalog.jsonb, pg_catalog.int4) FROM PUBLIC;

CREATE FUNCTION revenant.remove(snapshots pg_catalog.regclass, id pg_catalog.text, expected_version pg_catalog.int8) RETURNS pg_catalog.int8
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_remove';
COMMENT ON FUNCTION revenant.remove(pg_catalog.regclass, pg_catalog.text, pg_catalog.int8) IS
'removes a snapshot and returns the version of the tombstone that stays; RV003 unless it is at expected_version';
REVOKE ALL ON FUNCTION revenant.remove(pg_catalog.regclass, pg_catalog.text, pg_catalog.int8) FROM PUBLIC;

CREATE FUNCTION revenant.load_version(snapshots pg_catalog.regclass, id pg_catalog.text, version pg_catalog.int8) RETURNS revenant.snapshot
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_load_version';
COMMENT ON FUNCTION revenant.load_version(pg_catalog.regclass, pg_catalog.text, pg_catalog.int8) IS
'the snapshot as it was at this version; null if it never was, or is not kept any more';
REVOKE ALL ON FUNCTION revenant.load_version(pg_catalog.regclass, pg_catalog.text, pg_catalog.int8) FROM PUBLIC;

CREATE FUNCTION revenant.load_as_of(snapshots pg_catalog.regclass, id pg_catalog.text, as_of pg_catalog.timestamptz) RETURNS revenant.snapshot
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_load_as_of';
COMMENT ON FUNCTION revenant.load_as_of(pg_catalog.regclass, pg_catalog.text, pg_catalog.timestamptz) IS
'the snapshot as it was at this time; null if there was none, or it is not kept any more';
REVOKE ALL ON FUNCTION revenant.load_as_of(pg_catalog.regclass, pg_catalog.text, pg_catalog.timestamptz) FROM PUBLIC;

CREATE FUNCTION revenant.history(snapshots pg_catalog.regclass, id pg_catalog.text) RETURNS SETOF revenant.snapshot
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 10 AS 'MODULE_PATHNAME', 'revenant_history';
COMMENT ON FUNCTION revenant.history(pg_catalog.regclass, pg_catalog.text) IS
'all versions of a snapshot that are kept, the current one last';
REVOKE ALL ON FUNCTION revenant.history(pg_catalog.regclass, pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION revenant.purge_deleted(snapshots pg_catalog.regclass, deleted_before pg_catalog.timestamptz) RETURNS pg_catalog.int8
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_purge_deleted';
COMMENT ON FUNCTION revenant.purge_deleted(pg_catalog.regclass, pg_catalog.timestamptz) IS
'deletes the tombstones that are older than this, with their history, and returns how many; versions of these ids begin anew';
REVOKE ALL ON FUNCTION revenant.purge_deleted(pg_catalog.regclass, pg_catalog.timestamptz) FROM PUBLIC;

/* ---------------------------------------------------------------- entities */

CREATE TYPE revenant.reply AS (
	reply pg_catalog.jsonb,
	state pg_catalog.jsonb,
	stop pg_catalog.text
);
COMMENT ON TYPE revenant.reply IS
'what a handler returns: the reply, the next state (null: unchanged), and a reason to stop (null: none)';

-- What a type is. Written by create_entity_type, alter_entity_type and drop_entity_type only. Dumped. Functions and the table
-- are named by text; the table by its oid, too, which counts in the database that the row was made in.
CREATE TABLE revenant.entity_type (
	type pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	snapshots pg_catalog.text NOT NULL,
	snapshots_oid pg_catalog.int8 NOT NULL,
	handler pg_catalog.text NOT NULL,
	initial_state pg_catalog.jsonb,
	initializer pg_catalog.text,
	vsn pg_catalog.int4 NOT NULL,
	upgrade pg_catalog.text,
	durability pg_catalog.text NOT NULL,
	flush_every pg_catalog.interval NOT NULL,
	idle_timeout pg_catalog.interval,
	terminator pg_catalog.text,
	created_at pg_catalog.timestamptz NOT NULL,
	system_identifier pg_catalog.int8 NOT NULL,
	database_oid pg_catalog.int8 NOT NULL,
	CONSTRAINT entity_type_pkey PRIMARY KEY (type)
);
COMMENT ON TABLE revenant.entity_type IS 'types of entities as they were created or altered; written by the functions of revenant only';
REVOKE ALL ON TABLE revenant.entity_type FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('revenant.entity_type', '');

-- What was answered to requests with a request_id: src/request.c. Not dumped.
CREATE TABLE revenant._request_0 (
	request_id pg_catalog.uuid NOT NULL,
	role_oid pg_catalog.int8 NOT NULL,
	verb pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	type pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	id pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	message_digest pg_catalog.bytea NOT NULL,
	reply pg_catalog.jsonb,
	number pg_catalog.int8 NOT NULL,
	xid pg_catalog.int8 NOT NULL,
	lsn pg_catalog.int8 NOT NULL,
	timeline pg_catalog.int4 NOT NULL,
	CONSTRAINT _request_0_pkey PRIMARY KEY (request_id)
);
REVOKE ALL ON TABLE revenant._request_0 FROM PUBLIC;
CREATE TABLE revenant._request_1 (LIKE revenant._request_0, CONSTRAINT _request_1_pkey PRIMARY KEY (request_id));
REVOKE ALL ON TABLE revenant._request_1 FROM PUBLIC;
CREATE SEQUENCE revenant._request_half;
REVOKE ALL ON SEQUENCE revenant._request_half FROM PUBLIC;

CREATE FUNCTION revenant.create_entity_type(
	type pg_catalog.text,
	snapshots pg_catalog.regclass,
	handler pg_catalog.text,
	initial_state pg_catalog.jsonb DEFAULT NULL,
	initializer pg_catalog.text DEFAULT NULL,
	vsn pg_catalog.int4 DEFAULT 1,
	upgrade pg_catalog.text DEFAULT NULL,
	durability pg_catalog.text DEFAULT 'strict',
	flush_every pg_catalog.interval DEFAULT '1 s',
	idle_timeout pg_catalog.interval DEFAULT '5 min',
	terminator pg_catalog.text DEFAULT NULL
) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_create_entity_type';
COMMENT ON FUNCTION revenant.create_entity_type(pg_catalog.text, pg_catalog.regclass, pg_catalog.text, pg_catalog.jsonb, pg_catalog.text, pg_catalog.int4, pg_catalog.text, pg_catalog.text, pg_catalog.interval, pg_catalog.interval, pg_catalog.text) IS
'makes a type of entities that live in a snapshot table of the caller''s; handler is the name of a function (id text, state jsonb, message jsonb) RETURNS revenant.reply';
REVOKE ALL ON FUNCTION revenant.create_entity_type(pg_catalog.text, pg_catalog.regclass, pg_catalog.text, pg_catalog.jsonb, pg_catalog.text, pg_catalog.int4, pg_catalog.text, pg_catalog.text, pg_catalog.interval, pg_catalog.interval, pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION revenant.alter_entity_type(type pg_catalog.text, changes pg_catalog.jsonb) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_alter_entity_type';
COMMENT ON FUNCTION revenant.alter_entity_type(pg_catalog.text, pg_catalog.jsonb) IS
'changes what of a type the JSON object names, such as {"vsn": 2, "upgrade": "account_upgrade"}; waits for calls that are under way';
REVOKE ALL ON FUNCTION revenant.alter_entity_type(pg_catalog.text, pg_catalog.jsonb) FROM PUBLIC;

CREATE FUNCTION revenant.drop_entity_type(type pg_catalog.text) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_drop_entity_type';
COMMENT ON FUNCTION revenant.drop_entity_type(pg_catalog.text) IS 'forgets a type of entities; its table and what is in it stay';
REVOKE ALL ON FUNCTION revenant.drop_entity_type(pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION revenant.call(
	type pg_catalog.text,
	id pg_catalog.text,
	message pg_catalog.jsonb,
	durability pg_catalog.text DEFAULT NULL,
	request_id pg_catalog.uuid DEFAULT NULL
) RETURNS pg_catalog.jsonb
LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000 AS 'MODULE_PATHNAME', 'revenant_call';
COMMENT ON FUNCTION revenant.call(pg_catalog.text, pg_catalog.text, pg_catalog.jsonb, pg_catalog.text, pg_catalog.uuid) IS
'runs an entity''s handler on a message and returns the reply; the new state commits with this transaction. The same request_id gives the first reply again';
REVOKE ALL ON FUNCTION revenant.call(pg_catalog.text, pg_catalog.text, pg_catalog.jsonb, pg_catalog.text, pg_catalog.uuid) FROM PUBLIC;

CREATE FUNCTION revenant.read_entity(type pg_catalog.text, id pg_catalog.text) RETURNS revenant.snapshot
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_read_entity';
COMMENT ON FUNCTION revenant.read_entity(pg_catalog.text, pg_catalog.text) IS 'the latest snapshot of an entity, null if there is none; runs nothing, works on standbys';
REVOKE ALL ON FUNCTION revenant.read_entity(pg_catalog.text, pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION revenant.stop_entity(type pg_catalog.text, id pg_catalog.text, reason pg_catalog.text DEFAULT 'normal') RETURNS pg_catalog.bool
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_stop_entity';
COMMENT ON FUNCTION revenant.stop_entity(pg_catalog.text, pg_catalog.text, pg_catalog.text) IS
'writes and unloads an entity; false: it was not loaded';
REVOKE ALL ON FUNCTION revenant.stop_entity(pg_catalog.text, pg_catalog.text, pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION revenant.delete_entity(type pg_catalog.text, id pg_catalog.text) RETURNS pg_catalog.bool
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_delete_entity';
COMMENT ON FUNCTION revenant.delete_entity(pg_catalog.text, pg_catalog.text) IS
'deletes an entity and leaves a tombstone, so that its versions go on if it is made again; false: there was none';
REVOKE ALL ON FUNCTION revenant.delete_entity(pg_catalog.text, pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION revenant.current_message(
	OUT kind pg_catalog.text, OUT message_id pg_catalog.int8, OUT attempt pg_catalog.int4, OUT sender pg_catalog.text
) RETURNS pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_current_message';
COMMENT ON FUNCTION revenant.current_message() IS
'in a handler: how its message came, call, send or timer, and from which role; nulls elsewhere';
REVOKE ALL ON FUNCTION revenant.current_message() FROM PUBLIC;

CREATE FUNCTION revenant.receipt(
	OUT type pg_catalog.text, OUT id pg_catalog.text, OUT version pg_catalog.int8, OUT durable pg_catalog.bool,
	OUT xid pg_catalog.xid8, OUT lsn pg_catalog.pg_lsn, OUT timeline pg_catalog.int4
) RETURNS pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_receipt';
COMMENT ON FUNCTION revenant.receipt() IS
'of the last call of this session: what receipt_status() needs to tell what became of it; nulls for what wrote nothing';
REVOKE ALL ON FUNCTION revenant.receipt() FROM PUBLIC;

CREATE FUNCTION revenant.receipt_status(xid pg_catalog.xid8, lsn pg_catalog.pg_lsn, timeline pg_catalog.int4) RETURNS pg_catalog.text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_receipt_status';
COMMENT ON FUNCTION revenant.receipt_status(pg_catalog.xid8, pg_catalog.pg_lsn, pg_catalog.int4) IS
'what became of the transaction of a receipt: committed, aborted, in progress or unknown; also on a standby that was promoted';
REVOKE ALL ON FUNCTION revenant.receipt_status(pg_catalog.xid8, pg_catalog.pg_lsn, pg_catalog.int4) FROM PUBLIC;

CREATE FUNCTION revenant.upgrade_all(type pg_catalog.text, batch pg_catalog.int4 DEFAULT 1000) RETURNS pg_catalog.int8
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_upgrade_all';
COMMENT ON FUNCTION revenant.upgrade_all(pg_catalog.text, pg_catalog.int4) IS
'upgrades up to batch snapshots to the vsn of their type and returns how many; call it until it says 0';
REVOKE ALL ON FUNCTION revenant.upgrade_all(pg_catalog.text, pg_catalog.int4) FROM PUBLIC;

CREATE FUNCTION revenant.flush_entities(type pg_catalog.text DEFAULT NULL, id pg_catalog.text DEFAULT NULL) RETURNS pg_catalog.int8
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_flush_entities';
COMMENT ON FUNCTION revenant.flush_entities(pg_catalog.text, pg_catalog.text) IS
'returns when what is in memory ahead of its rows is in them, of one entity, of a type, or of all; and how many entities that were';
REVOKE ALL ON FUNCTION revenant.flush_entities(pg_catalog.text, pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION revenant._loaded_entities(
	OUT type pg_catalog.text, OUT id pg_catalog.text, OUT version pg_catalog.int8, OUT dirty pg_catalog.bool,
	OUT dirty_since pg_catalog.timestamptz, OUT last_used pg_catalog.timestamptz, OUT bytes pg_catalog.int8,
	OUT flush_failures pg_catalog.int4
) RETURNS SETOF pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_loaded_entities';
REVOKE ALL ON FUNCTION revenant._loaded_entities() FROM PUBLIC;

CREATE VIEW revenant.loaded_entities AS
SELECT l.type, l.id, l.version, l.dirty, l.dirty_since, l.last_used, l.bytes, l.flush_failures
FROM revenant._loaded_entities() AS l;
COMMENT ON VIEW revenant.loaded_entities IS
'entities whose state is kept in shared memory, of the tables that the user may read; admins see all';
COMMENT ON COLUMN revenant.loaded_entities.version IS 'of the state in memory';
COMMENT ON COLUMN revenant.loaded_entities.dirty IS 'the state is ahead of the row';
COMMENT ON COLUMN revenant.loaded_entities.dirty_since IS 'the oldest change that is not in the row; null: all are';
COMMENT ON COLUMN revenant.loaded_entities.bytes IS 'of shared memory';
COMMENT ON COLUMN revenant.loaded_entities.flush_failures IS 'how often in a row it could not be written; the log says why';
REVOKE ALL ON TABLE revenant.loaded_entities FROM PUBLIC;
