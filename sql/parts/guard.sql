-- Guarded tables.
CREATE FUNCTION revenant._guard() RETURNS trigger
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_guard';
REVOKE ALL ON FUNCTION revenant._guard() FROM PUBLIC;

CREATE FUNCTION revenant.guard_table(target regclass, lease text, replicas boolean DEFAULT false) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_guard_table';
COMMENT ON FUNCTION revenant.guard_table(regclass, text, boolean) IS
'from now on a write to the table (and to its partitions and children) needs a transaction that is fenced by the lease; "replicas" also refuses logical apply, at a cost per row';
REVOKE ALL ON FUNCTION revenant.guard_table(regclass, text, boolean) FROM PUBLIC;

CREATE FUNCTION revenant.unguard_table(target regclass) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_unguard_table';
COMMENT ON FUNCTION revenant.unguard_table(regclass) IS 'takes the guard of a table away';
REVOKE ALL ON FUNCTION revenant.unguard_table(regclass) FROM PUBLIC;
