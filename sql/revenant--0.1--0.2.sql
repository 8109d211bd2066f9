\echo Use "ALTER EXTENSION revenant UPDATE TO '0.2'" to load this file. \quit

CREATE FUNCTION revenant._require_library(version pg_catalog.text) RETURNS pg_catalog.void
LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'revenant_require_library';
REVOKE ALL ON FUNCTION revenant._require_library(pg_catalog.text) FROM PUBLIC;
SELECT revenant._require_library('0.2');

-- A function of one's own can return what claim() does.
INSERT INTO revenant._usage_object (object, privilege, level) VALUES
	('TYPE revenant.claim_result', 'USAGE', 'user');

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
