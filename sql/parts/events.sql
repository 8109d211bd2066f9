-- What happened last. The ring is in shared memory: src/events.c.
CREATE FUNCTION revenant.events(since bigint DEFAULT 0) RETURNS TABLE (
	seq bigint, at timestamp with time zone, event text, subject text, phase text, token bigint, node text, pid integer,
	detail jsonb)
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 100 AS 'MODULE_PATHNAME', 'revenant_events';
COMMENT ON FUNCTION revenant.events(bigint) IS
'the latest events of this database on this server with a number above "since", oldest first; token and detail for members of the role that they are about and for admins';
REVOKE ALL ON FUNCTION revenant.events(bigint) FROM PUBLIC;
