-- What CREATE EXTENSION leaves behind.
SELECT extversion, extrelocatable, extnamespace::regnamespace AS schema
FROM pg_catalog.pg_extension
WHERE extname = 'revenant';

-- Functions that PUBLIC may run: none.
SELECT p.oid::regprocedure::text AS function
FROM pg_catalog.pg_proc AS p
WHERE p.pronamespace = 'revenant'::regnamespace
	AND EXISTS (
		SELECT FROM pg_catalog.aclexplode(coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))) AS acl
		WHERE acl.grantee = 0)
ORDER BY function;

-- Tables and views that PUBLIC may read: none.
SELECT c.oid::regclass::text AS relation
FROM pg_catalog.pg_class AS c
WHERE c.relnamespace = 'revenant'::regnamespace
	AND EXISTS (SELECT FROM pg_catalog.aclexplode(c.relacl) AS acl WHERE acl.grantee = 0)
ORDER BY relation;

-- Functions with the rights of their owner: none.
SELECT p.oid::regprocedure::text AS function
FROM pg_catalog.pg_proc AS p
WHERE p.pronamespace = 'revenant'::regnamespace AND p.prosecdef
ORDER BY function;

-- Public functions and views without a comment: none.
SELECT p.oid::regprocedure::text AS object
FROM pg_catalog.pg_proc AS p
WHERE p.pronamespace = 'revenant'::regnamespace
	AND p.proname NOT LIKE '\_%'
	AND pg_catalog.obj_description(p.oid, 'pg_proc') IS NULL
UNION ALL
SELECT c.oid::regclass::text
FROM pg_catalog.pg_class AS c
WHERE c.relnamespace = 'revenant'::regnamespace
	AND c.relkind = 'v'
	AND c.relname NOT LIKE '\_%'
	AND pg_catalog.obj_description(c.oid, 'pg_class') IS NULL
ORDER BY object;
