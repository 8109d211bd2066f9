-- Last: enters the first era of tokens, and wakes the launcher at commit.
CREATE FUNCTION revenant._created() RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_created';
REVOKE ALL ON FUNCTION revenant._created() FROM PUBLIC;
SELECT revenant._created();
