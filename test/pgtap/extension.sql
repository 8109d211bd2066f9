-- The schema is the extension's own.
BEGIN;
SELECT plan(3);

SELECT has_extension('revenant');
SELECT has_schema('revenant');
SELECT is_empty(
	$$
		SELECT p.oid::regprocedure
		FROM pg_catalog.pg_proc AS p
		WHERE p.pronamespace = 'revenant'::regnamespace
			AND NOT EXISTS (
				SELECT FROM pg_catalog.pg_depend AS d
				JOIN pg_catalog.pg_extension AS e ON e.oid = d.refobjid AND d.refclassid = 'pg_extension'::regclass
				WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
					AND e.extname = 'revenant')
	$$,
	'every function in the schema belongs to the extension');

SELECT * FROM finish();
ROLLBACK;
