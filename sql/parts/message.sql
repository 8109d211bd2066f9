/* ---------------------------------------------------------------- messages and timers of entities */

-- What is to be delivered. Written by send, send_after, cancel_timer, resend_message, discard_message, adopt in their callers' transactions; by the
-- runner that delivers; by the supervisor where there can be none. Dumped. A row is gone with the transaction that applied it.
-- "lane" and "deliver_at" say which queue of its sender it is in, and where: 0 sends, 1 timers, 2 what failed and is tried again, 3 what was set aside.
CREATE TABLE revenant.message (
	message_id pg_catalog.int8 NOT NULL,
	type pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	id pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	kind pg_catalog.text NOT NULL,		-- send, timer; stop: an idle entity whose terminator is to be told
	message pg_catalog.jsonb NOT NULL,
	sender pg_catalog.text NOT NULL,
	sender_oid pg_catalog.int8 NOT NULL,
	due_at pg_catalog.timestamptz,		-- of a timer
	lane pg_catalog.int4 NOT NULL,
	deliver_at pg_catalog.timestamptz,	-- not before that
	attempts pg_catalog.int4 NOT NULL,
	sqlstate pg_catalog.text,
	error pg_catalog.text,
	sent_at pg_catalog.timestamptz NOT NULL,
	set_aside_at pg_catalog.timestamptz,
	system_identifier pg_catalog.int8 NOT NULL,
	database_oid pg_catalog.int8 NOT NULL,
	CONSTRAINT message_pkey PRIMARY KEY (message_id)
);
COMMENT ON TABLE revenant.message IS 'messages and timers that were sent and not yet applied; written by the functions and workers of revenant only';
REVOKE ALL ON TABLE revenant.message FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('revenant.message', '');
-- What this database does not own is nowhere near what it does: who looks for what is due never meets it.
CREATE INDEX message_queue_idx ON revenant.message (system_identifier, database_oid, sender_oid, lane, deliver_at, message_id);

CREATE FUNCTION revenant.send(type pg_catalog.text, id pg_catalog.text, message pg_catalog.jsonb, request_id pg_catalog.uuid DEFAULT NULL) RETURNS pg_catalog.int8
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_send';
COMMENT ON FUNCTION revenant.send(pg_catalog.text, pg_catalog.text, pg_catalog.jsonb, pg_catalog.uuid)
	IS 'sends an entity a message, from the commit on: it is applied once, as the caller''s role, in order; returns its message_id';
REVOKE ALL ON FUNCTION revenant.send(pg_catalog.text, pg_catalog.text, pg_catalog.jsonb, pg_catalog.uuid) FROM PUBLIC;

CREATE FUNCTION revenant.send_after(type pg_catalog.text, id pg_catalog.text, message pg_catalog.jsonb, delay pg_catalog.interval) RETURNS pg_catalog.int8
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_send_after';
COMMENT ON FUNCTION revenant.send_after(pg_catalog.text, pg_catalog.text, pg_catalog.jsonb, pg_catalog.interval)
	IS 'a timer: sends an entity a message when the delay is over, counted from now; returns its message_id, for cancel_timer';
REVOKE ALL ON FUNCTION revenant.send_after(pg_catalog.text, pg_catalog.text, pg_catalog.jsonb, pg_catalog.interval) FROM PUBLIC;

CREATE FUNCTION revenant.cancel_timer(timer pg_catalog.int8) RETURNS pg_catalog.bool
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_cancel_timer';
COMMENT ON FUNCTION revenant.cancel_timer(pg_catalog.int8)
	IS 'takes a timer back; false: it was delivered, or there is no such timer. Waits for a delivery that is under way';
REVOKE ALL ON FUNCTION revenant.cancel_timer(pg_catalog.int8) FROM PUBLIC;

CREATE FUNCTION revenant.resend_message(message_id pg_catalog.int8) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_resend_message';
COMMENT ON FUNCTION revenant.resend_message(pg_catalog.int8) IS 'has a message delivered that was set aside, in its old place; its attempts are counted anew';
REVOKE ALL ON FUNCTION revenant.resend_message(pg_catalog.int8) FROM PUBLIC;

CREATE FUNCTION revenant.discard_message(message_id pg_catalog.int8) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_discard_message';
COMMENT ON FUNCTION revenant.discard_message(pg_catalog.int8) IS 'removes a message or timer that was not applied. Waits for a delivery that is under way';
REVOKE ALL ON FUNCTION revenant.discard_message(pg_catalog.int8) FROM PUBLIC;

-- Whether the caller may see, take back and resend what this role has sent.
CREATE FUNCTION revenant._may_see_message(
	sender pg_catalog.text, sender_oid pg_catalog.int8, system_identifier pg_catalog.int8, database_oid pg_catalog.int8
) RETURNS pg_catalog.bool
LANGUAGE c STABLE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'revenant_may_see_message';
REVOKE ALL ON FUNCTION revenant._may_see_message(pg_catalog.text, pg_catalog.int8, pg_catalog.int8, pg_catalog.int8) FROM PUBLIC;

-- Whether a row was made in, or adopted by, this database.
CREATE FUNCTION revenant._is_native(system_identifier pg_catalog.int8, database_oid pg_catalog.int8) RETURNS pg_catalog.bool
LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'revenant_is_native';
REVOKE ALL ON FUNCTION revenant._is_native(pg_catalog.int8, pg_catalog.int8) FROM PUBLIC;

CREATE VIEW revenant.messages WITH (security_barrier) AS
SELECT
	m.message_id, m.type, m.id, m.kind, m.message, m.sender, m.due_at,
	CASE
		WHEN NOT revenant._is_native(m.system_identifier, m.database_oid) THEN 'held'
		WHEN m.set_aside_at IS NOT NULL THEN 'set aside'
		WHEN m.attempts OPERATOR(pg_catalog.>) 0 THEN 'retrying'
		WHEN m.due_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp() THEN 'scheduled'
		ELSE 'pending' END AS state,
	m.attempts, m.sqlstate, m.error, m.sent_at
FROM revenant.message AS m
WHERE revenant._may_see_message(m.sender, m.sender_oid, m.system_identifier, m.database_oid);
COMMENT ON VIEW revenant.messages IS 'messages and timers that were sent and not yet applied, of those senders whose member the caller is; admins see all';
COMMENT ON COLUMN revenant.messages.message_id IS 'what send and send_after returned; it grows, though not in the order of commits';
COMMENT ON COLUMN revenant.messages.type IS 'the type of the entity that it is for';
COMMENT ON COLUMN revenant.messages.id IS 'the entity that it is for';
COMMENT ON COLUMN revenant.messages.kind IS 'send, timer, or stop: the terminator of an entity that was idle is to be told, as the owner of its table';
COMMENT ON COLUMN revenant.messages.message IS 'what the handler is given';
COMMENT ON COLUMN revenant.messages.sender IS 'the role that sent it, as which its handler runs';
COMMENT ON COLUMN revenant.messages.due_at IS 'when a timer is due; NULL for a send';
COMMENT ON COLUMN revenant.messages.state IS 'pending: to be delivered as soon as those before it are; scheduled: a timer that is not due yet; retrying: its handler failed, and is run again; set aside: given up, see error; held: it came from another database or cluster, see revenant.adopt()';
COMMENT ON COLUMN revenant.messages.attempts IS 'how often its handler has failed';
COMMENT ON COLUMN revenant.messages.sqlstate IS 'of the latest failure';
COMMENT ON COLUMN revenant.messages.error IS 'the message of the latest failure, or why it cannot be delivered';
COMMENT ON COLUMN revenant.messages.sent_at IS 'when it was sent, by the clock of then';
REVOKE ALL ON TABLE revenant.messages FROM PUBLIC;
