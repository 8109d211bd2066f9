-- Leases: ttl holds are rows, written when one is acquired and deleted when it is released or taken over.
-- src/lease_row.h has the columns' numbers.
CREATE TABLE revenant.lease (
	name text COLLATE "C" NOT NULL,
	token bigint NOT NULL,
	holder text,
	role text NOT NULL,
	role_oid bigint NOT NULL,
	pid integer NOT NULL,
	ttl interval NOT NULL,
	bound boolean NOT NULL,
	election boolean NOT NULL,
	lock_delay interval NOT NULL,
	hold_off interval,
	metadata jsonb,
	acquired_at timestamp with time zone NOT NULL,
	request_id uuid,
	system_identifier bigint NOT NULL,
	database_oid bigint NOT NULL,
	deadline_us bigint,			-- on the monotonic clock, as long as the server that has this start is up: where shared memory has no room
	server_start bigint,
	CONSTRAINT lease_pkey PRIMARY KEY (name)
);
COMMENT ON TABLE revenant.lease IS 'ttl leases as a restart finds them; read the view revenant.leases instead';
REVOKE ALL ON TABLE revenant.lease FROM PUBLIC;

CREATE FUNCTION revenant.try_acquire(
	lease text, ttl interval DEFAULT NULL, holder text DEFAULT NULL, metadata jsonb DEFAULT NULL,
	shared boolean DEFAULT false, bound boolean DEFAULT false, lock_delay interval DEFAULT '0',
	request_id uuid DEFAULT NULL) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_try_acquire';
COMMENT ON FUNCTION revenant.try_acquire(text, interval, text, jsonb, boolean, boolean, interval, uuid) IS
'acquires a lease and returns its fence token, or NULL if it is busy; without a ttl it is held until released or until the session ends';
REVOKE ALL ON FUNCTION revenant.try_acquire(text, interval, text, jsonb, boolean, boolean, interval, uuid) FROM PUBLIC;

CREATE FUNCTION revenant.acquire(
	lease text, ttl interval DEFAULT NULL, holder text DEFAULT NULL, metadata jsonb DEFAULT NULL,
	shared boolean DEFAULT false, bound boolean DEFAULT false, lock_delay interval DEFAULT '0',
	request_id uuid DEFAULT NULL, wait interval DEFAULT NULL) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_acquire';
COMMENT ON FUNCTION revenant.acquire(text, interval, text, jsonb, boolean, boolean, interval, uuid, interval) IS
'acquires a lease, first come, first served, and returns its fence token, or NULL if it was not free within "wait" (NULL: as long as lock_timeout allows)';
REVOKE ALL ON FUNCTION revenant.acquire(text, interval, text, jsonb, boolean, boolean, interval, uuid, interval) FROM PUBLIC;

CREATE FUNCTION revenant.try_acquire_xact(
	lease text, holder text DEFAULT NULL, metadata jsonb DEFAULT NULL, shared boolean DEFAULT false) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_try_acquire_xact';
COMMENT ON FUNCTION revenant.try_acquire_xact(text, text, jsonb, boolean) IS
'acquires a lease until the end of this transaction and returns its fence token, or NULL if it is busy';
REVOKE ALL ON FUNCTION revenant.try_acquire_xact(text, text, jsonb, boolean) FROM PUBLIC;

CREATE FUNCTION revenant.acquire_xact(
	lease text, holder text DEFAULT NULL, metadata jsonb DEFAULT NULL, shared boolean DEFAULT false,
	wait interval DEFAULT NULL) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_acquire_xact';
COMMENT ON FUNCTION revenant.acquire_xact(text, text, jsonb, boolean, interval) IS
'acquires a lease until the end of this transaction, first come, first served, and returns its fence token, or NULL if it was not free within "wait"';
REVOKE ALL ON FUNCTION revenant.acquire_xact(text, text, jsonb, boolean, interval) FROM PUBLIC;

CREATE FUNCTION revenant.try_acquire_all(
	leases text[],
	ttl interval DEFAULT NULL, holder text DEFAULT NULL, metadata jsonb DEFAULT NULL,
	shared boolean DEFAULT false, bound boolean DEFAULT false, lock_delay interval DEFAULT '0',
	request_id uuid DEFAULT NULL) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_try_acquire_all';
COMMENT ON FUNCTION revenant.try_acquire_all(text[], interval, text, jsonb, boolean, boolean, interval, uuid) IS
'acquires a set of leases, all or none, and returns one fence token for them, or NULL if one is busy; the empty set is the lease "*"';
REVOKE ALL ON FUNCTION revenant.try_acquire_all(text[], interval, text, jsonb, boolean, boolean, interval, uuid) FROM PUBLIC;

CREATE FUNCTION revenant.acquire_all(
	leases text[],
	ttl interval DEFAULT NULL, holder text DEFAULT NULL, metadata jsonb DEFAULT NULL,
	shared boolean DEFAULT false, bound boolean DEFAULT false, lock_delay interval DEFAULT '0',
	request_id uuid DEFAULT NULL, wait interval DEFAULT NULL) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_acquire_all';
COMMENT ON FUNCTION revenant.acquire_all(text[], interval, text, jsonb, boolean, boolean, interval, uuid, interval) IS
'acquires a set of leases, all or none, in any order without deadlock, and returns one fence token for them, or NULL if they were not free within "wait"';
REVOKE ALL ON FUNCTION revenant.acquire_all(text[], interval, text, jsonb, boolean, boolean, interval, uuid, interval) FROM PUBLIC;

CREATE FUNCTION revenant.try_acquire_all_xact(
	leases text[], holder text DEFAULT NULL, metadata jsonb DEFAULT NULL, shared boolean DEFAULT false) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_try_acquire_all_xact';
COMMENT ON FUNCTION revenant.try_acquire_all_xact(text[], text, jsonb, boolean) IS
'acquires a set of leases until the end of this transaction, all or none, and returns one fence token for them, or NULL if one is busy';
REVOKE ALL ON FUNCTION revenant.try_acquire_all_xact(text[], text, jsonb, boolean) FROM PUBLIC;

CREATE FUNCTION revenant.acquire_all_xact(
	leases text[], holder text DEFAULT NULL, metadata jsonb DEFAULT NULL, shared boolean DEFAULT false,
	wait interval DEFAULT NULL) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_acquire_all_xact';
COMMENT ON FUNCTION revenant.acquire_all_xact(text[], text, jsonb, boolean, interval) IS
'acquires a set of leases until the end of this transaction, all or none, and returns one fence token for them, or NULL if they were not free within "wait"';
REVOKE ALL ON FUNCTION revenant.acquire_all_xact(text[], text, jsonb, boolean, interval) FROM PUBLIC;

CREATE FUNCTION revenant.renew(lease text, token bigint, ttl interval DEFAULT NULL) RETURNS timestamp with time zone
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_renew';
COMMENT ON FUNCTION revenant.renew(text, bigint, interval) IS
'moves the deadline of a ttl lease to its ttl from now and returns it, for people to read, or NULL if the lease is lost; a holder counts its own deadline from before it sent the request';
REVOKE ALL ON FUNCTION revenant.renew(text, bigint, interval) FROM PUBLIC;

CREATE FUNCTION revenant.release(lease text, token bigint, hold_off interval DEFAULT NULL) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_release';
COMMENT ON FUNCTION revenant.release(text, bigint, interval) IS
'releases a lease at commit; false if the token is not the current one or its time was over';
REVOKE ALL ON FUNCTION revenant.release(text, bigint, interval) FROM PUBLIC;

CREATE FUNCTION revenant.renew_all(leases text[], token bigint, ttl interval DEFAULT NULL) RETURNS timestamp with time zone
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_renew_all';
COMMENT ON FUNCTION revenant.renew_all(text[], bigint, interval) IS
'renews a set of ttl leases and returns the earliest new deadline; NULL, and none is renewed, if one is lost';
REVOKE ALL ON FUNCTION revenant.renew_all(text[], bigint, interval) FROM PUBLIC;

CREATE FUNCTION revenant.release_all(leases text[], token bigint) RETURNS integer
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_release_all';
COMMENT ON FUNCTION revenant.release_all(text[], bigint) IS 'releases a set of leases at commit and returns how many of them were current';
REVOKE ALL ON FUNCTION revenant.release_all(text[], bigint) FROM PUBLIC;

CREATE FUNCTION revenant.is_current(lease text, token bigint) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_is_current';
COMMENT ON FUNCTION revenant.is_current(text, bigint) IS
'whether a token is the current one of a lease at this moment; a write needs fence() instead';
REVOKE ALL ON FUNCTION revenant.is_current(text, bigint) FROM PUBLIC;

CREATE FUNCTION revenant.fence(lease text, token bigint) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_fence';
COMMENT ON FUNCTION revenant.fence(text, bigint) IS
'fails unless the token is the current one (RV001, RV002); if it returns, the lease cannot change hands before this transaction ends';
REVOKE ALL ON FUNCTION revenant.fence(text, bigint) FROM PUBLIC;

CREATE FUNCTION revenant.held_token(lease text) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_held_token';
COMMENT ON FUNCTION revenant.held_token(text) IS
'the token by which this session or transaction holds a lease, or NULL; not of ttl leases, which belong to no session';
REVOKE ALL ON FUNCTION revenant.held_token(text) FROM PUBLIC;

CREATE PROCEDURE revenant.await_lease(
	IN lease text, INOUT token bigint DEFAULT NULL, IN ttl interval DEFAULT NULL, IN holder text DEFAULT NULL,
	IN metadata jsonb DEFAULT NULL, IN shared boolean DEFAULT false, IN bound boolean DEFAULT false,
	IN lock_delay interval DEFAULT '0', IN request_id uuid DEFAULT NULL, IN wait interval DEFAULT NULL)
LANGUAGE c AS 'MODULE_PATHNAME', 'revenant_await_lease';
COMMENT ON PROCEDURE revenant.await_lease(text, bigint, interval, text, jsonb, boolean, boolean, interval, uuid, interval) IS
'acquire() as a procedure: called at top level it waits without a snapshot, so that it holds back no vacuum';
REVOKE ALL ON PROCEDURE revenant.await_lease(text, bigint, interval, text, jsonb, boolean, boolean, interval, uuid, interval) FROM PUBLIC;

CREATE PROCEDURE revenant.await_change(IN lease text, INOUT seen bigint DEFAULT NULL, IN wait interval DEFAULT NULL)
LANGUAGE c AS 'MODULE_PATHNAME', 'revenant_await_change';
COMMENT ON PROCEDURE revenant.await_change(text, bigint, interval) IS
'waits until a lease changes hands, is released or lapses: gives the change counter at once for NULL, else when it differs from the one given, or at "wait"; it may return early';
REVOKE ALL ON PROCEDURE revenant.await_change(text, bigint, interval) FROM PUBLIC;

CREATE FUNCTION revenant.revoke(lease text, reason text DEFAULT NULL, terminate boolean DEFAULT false) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_revoke';
COMMENT ON FUNCTION revenant.revoke(text, text, boolean) IS
'takes a lease away from whoever holds it and returns the token that is worth nothing any more; "terminate" ends the processes in the way';
REVOKE ALL ON FUNCTION revenant.revoke(text, text, boolean) FROM PUBLIC;

CREATE FUNCTION revenant.explain_lease(lease text) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_explain_lease';
COMMENT ON FUNCTION revenant.explain_lease(text) IS 'who holds a lease, until when, and what it waits for, in words';
REVOKE ALL ON FUNCTION revenant.explain_lease(text) FROM PUBLIC;

CREATE FUNCTION revenant._leases(
	OUT lease text, OUT scope text, OUT token bigint, OUT holder text, OUT role text, OUT pid integer,
	OUT shared boolean, OUT bound boolean, OUT acquired_at timestamp with time zone, OUT ttl interval,
	OUT deadline timestamp with time zone, OUT remaining interval, OUT waiters integer, OUT fenced integer,
	OUT metadata jsonb) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_leases';
REVOKE ALL ON FUNCTION revenant._leases() FROM PUBLIC;

-- For tests and bug reports: a line for each disagreement between shared memory, the lock manager and the rows.
CREATE FUNCTION revenant._lease_check() RETURNS SETOF text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_lease_check';
REVOKE ALL ON FUNCTION revenant._lease_check() FROM PUBLIC;

CREATE VIEW revenant.leases AS
SELECT l.lease, l.scope, l.token, l.holder, l.role, l.pid, l.shared, l.bound, l.acquired_at, l.ttl,
       l.deadline, l.remaining, l.waiters, l.fenced, l.metadata
FROM revenant._leases() AS l;
COMMENT ON VIEW revenant.leases IS
'the leases that are held now; tokens and metadata only for members of the role that acquired and for admins';
COMMENT ON COLUMN revenant.leases.lease IS 'its name';
COMMENT ON COLUMN revenant.leases.scope IS 'session, transaction or ttl: what ends it unless it is released';
COMMENT ON COLUMN revenant.leases.token IS 'its fence token; null for who may not see it';
COMMENT ON COLUMN revenant.leases.holder IS 'as the holder has named itself; null: it has not';
COMMENT ON COLUMN revenant.leases.role IS 'the role that acquired it';
COMMENT ON COLUMN revenant.leases.pid IS 'the process that acquired it; of a ttl lease it may be gone';
COMMENT ON COLUMN revenant.leases.shared IS 'others may hold it, too, if they share it';
COMMENT ON COLUMN revenant.leases.bound IS 'a ttl lease that also ends with the session that acquired it';
COMMENT ON COLUMN revenant.leases.acquired_at IS 'when it was granted, by the clock of then';
COMMENT ON COLUMN revenant.leases.ttl IS 'how long it lives without a renewal; null in the other scopes';
COMMENT ON COLUMN revenant.leases.deadline IS 'when that is over, for people to read; null on a standby, and in the other scopes';
COMMENT ON COLUMN revenant.leases.remaining IS 'how long that is from now';
COMMENT ON COLUMN revenant.leases.waiters IS 'how many sessions wait for it';
COMMENT ON COLUMN revenant.leases.fenced IS 'how many transactions are fenced by it: nobody takes it over before they end';
COMMENT ON COLUMN revenant.leases.metadata IS 'as given by the holder; null for who may not see it';
REVOKE ALL ON TABLE revenant.leases FROM PUBLIC;

-- Elections: a ttl lease with an answer made for a loop.
CREATE TYPE revenant.claim_result AS (is_leader boolean, token bigint, leader text, refresh_after interval);
REVOKE ALL ON TYPE revenant.claim_result FROM PUBLIC;
COMMENT ON TYPE revenant.claim_result IS 'whether one leads, by which token, who leads, and when to call again';

CREATE FUNCTION revenant.claim(
	election text, candidate text, ttl interval DEFAULT '30 s', request_id uuid DEFAULT NULL) RETURNS revenant.claim_result
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_claim';
COMMENT ON FUNCTION revenant.claim(text, text, interval, uuid) IS 'tries to lead; refresh_after says when to call refresh() or to try again';
REVOKE ALL ON FUNCTION revenant.claim(text, text, interval, uuid) FROM PUBLIC;

CREATE FUNCTION revenant.refresh(election text, token bigint) RETURNS revenant.claim_result
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_refresh';
COMMENT ON FUNCTION revenant.refresh(text, bigint) IS 'goes on leading for the ttl from now; is_leader = false: stop your work first';
REVOKE ALL ON FUNCTION revenant.refresh(text, bigint) FROM PUBLIC;

CREATE FUNCTION revenant.abdicate(election text, token bigint) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_abdicate';
COMMENT ON FUNCTION revenant.abdicate(text, bigint) IS 'gives leadership up, after your work has stopped; false if it was not yours any more';
REVOKE ALL ON FUNCTION revenant.abdicate(text, bigint) FROM PUBLIC;

CREATE FUNCTION revenant.leader(
	election text, OUT leader text, OUT token bigint, OUT since timestamp with time zone) RETURNS record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_leader';
COMMENT ON FUNCTION revenant.leader(text) IS 'who leads now; the token only if it is yours';
REVOKE ALL ON FUNCTION revenant.leader(text) FROM PUBLIC;
