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
	lock_delay interval NOT NULL,
	hold_off interval,
	metadata jsonb,
	acquired_at timestamp with time zone NOT NULL,
	request_id uuid,
	system_identifier bigint NOT NULL,
	database_oid bigint NOT NULL,
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

CREATE FUNCTION revenant._leases(
	OUT lease text, OUT scope text, OUT token bigint, OUT holder text, OUT role text, OUT pid integer,
	OUT shared boolean, OUT bound boolean, OUT acquired_at timestamp with time zone, OUT ttl interval,
	OUT deadline timestamp with time zone, OUT remaining interval, OUT waiters integer, OUT fenced integer,
	OUT metadata jsonb) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_leases';
REVOKE ALL ON FUNCTION revenant._leases() FROM PUBLIC;

CREATE VIEW revenant.leases AS
SELECT l.lease, l.scope, l.token, l.holder, l.role, l.pid, l.shared, l.bound, l.acquired_at, l.ttl,
       l.deadline, l.remaining, l.waiters, l.fenced, l.metadata
FROM revenant._leases() AS l;
COMMENT ON VIEW revenant.leases IS
'the leases that are held now; tokens and metadata only for members of the role that acquired and for admins';
REVOKE ALL ON TABLE revenant.leases FROM PUBLIC;
