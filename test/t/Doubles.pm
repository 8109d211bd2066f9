# Everything in pg_catalog has a double in public, of somebody who wants to know when it is used: the functions, operators, types and tables
# that a statement finds which does not say what it means.

package Doubles;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT = qw(doubles_make doubles_reached);

# They are evil's, who may create in public; whoever reaches one of them counts, in the sequence public.reached.
sub doubles_make
{
	my ($node, $database) = @_;

	$node->safe_psql($database, q{
		SET SESSION AUTHORIZATION evil;
		CREATE SEQUENCE public.reached; GRANT ALL ON SEQUENCE public.reached TO PUBLIC;
		DO $do$
		DECLARE
			p record;
		BEGIN
			FOR p IN SELECT *, pg_get_function_identity_arguments(oid) AS args, format_type(prorettype, NULL) AS result FROM pg_proc AS p
				WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind IN ('f', 'a', 'w')
			LOOP
				BEGIN
					EXECUTE format($$CREATE FUNCTION public.%I(%s) RETURNS %s%s LANGUAGE plpgsql AS
						'BEGIN PERFORM pg_catalog.nextval(''public.reached''); RAISE EXCEPTION ''%s was reached''; END'$$,
						p.proname, oidvectortypes(p.proargtypes), CASE WHEN p.proretset THEN 'SETOF ' END, p.result, p.proname);
				EXCEPTION WHEN OTHERS THEN NULL;	-- of pseudo-types, for C code
				END;
			END LOOP;
			FOR p IN SELECT *, format_type(NULLIF(oprleft, 0), NULL) AS l, format_type(oprright, NULL) AS r, c.proname FROM pg_operator AS o JOIN pg_proc AS c ON c.oid = o.oprcode
			LOOP
				BEGIN
					EXECUTE format('CREATE OPERATOR public.%s (%s RIGHTARG = %s, FUNCTION = public.%I)', p.oprname, 'LEFTARG = ' || p.l || ',', p.r, p.proname);
				EXCEPTION WHEN OTHERS THEN NULL;
				END;
			END LOOP;
			FOR p IN SELECT typname FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype = 'b' AND typcategory <> 'A'
			LOOP
				EXECUTE format('CREATE DOMAIN public.%I AS pg_catalog.bool CHECK (false)', p.typname);
			END LOOP;
			FOR p IN SELECT relname FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v')
			LOOP
				EXECUTE format('CREATE VIEW public.%I AS SELECT pg_catalog.nextval(''public.reached'') / 0 AS oid', p.relname);
				EXECUTE format('GRANT SELECT ON public.%I TO PUBLIC', p.relname);
			END LOOP;
		END $do$;
	});
	return;
}

# How often one was.
sub doubles_reached { my ($node, $database) = @_; return $node->safe_psql($database, 'SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM public.reached') }

1;
