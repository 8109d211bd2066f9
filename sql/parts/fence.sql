-- Fence tokens: see src/fence.c for what each number means.
CREATE SEQUENCE revenant._token_mark AS bigint MINVALUE 0 START WITH 0 NO CYCLE;
COMMENT ON SEQUENCE revenant._token_mark IS 'the highest fence token that may have been issued';
CREATE SEQUENCE revenant._token_lineage AS bigint MINVALUE 0 START WITH 0 NO CYCLE;
COMMENT ON SEQUENCE revenant._token_lineage IS 'what is added to the timeline to make an era, and a digest of whose it is';
CREATE SEQUENCE revenant._token_dump AS bigint MINVALUE 0 START WITH 0 NO CYCLE;
COMMENT ON SEQUENCE revenant._token_dump IS 'the present era and a digest of whose it is: what a dump carries';
SELECT pg_catalog.pg_extension_config_dump('revenant._token_dump', '');

CREATE FUNCTION revenant.advance_tokens(beyond bigint) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_advance_tokens';
COMMENT ON FUNCTION revenant.advance_tokens(bigint) IS
'makes every later fence token greater than the given one, for what the server cannot know (a restored snapshot of files, a second restore of one dump); not undone by a rollback';
REVOKE ALL ON FUNCTION revenant.advance_tokens(bigint) FROM PUBLIC;
