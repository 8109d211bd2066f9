-- The schema. One that somebody else made before is an error: nothing of it could be trusted.
CREATE SCHEMA revenant;
COMMENT ON SCHEMA revenant IS 'leases, fencing, elected tasks, durable entities and plans: there is only one';

-- The first statement of every script that updates: src/update.c.
CREATE FUNCTION revenant._require_library(version pg_catalog.text) RETURNS pg_catalog.void
LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'revenant_require_library';
REVOKE ALL ON FUNCTION revenant._require_library(pg_catalog.text) FROM PUBLIC;
