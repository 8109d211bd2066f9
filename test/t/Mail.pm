# Entities that write down what reached them: what the tests of messages send to.

package Mail;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT = qw(mail_handler mail_setup);

# What every such test needs in a database: the extension, a table of what was applied, and types that write there.
sub mail_setup
{
	my ($node, $database) = @_;

	$node->safe_psql($database, q{
		CREATE EXTENSION IF NOT EXISTS revenant;
		CREATE TABLE public.applied (
			seq bigserial, id text, n bigint, who name DEFAULT current_user, pid int DEFAULT pg_backend_pid(),
			at timestamptz DEFAULT clock_timestamp(), xid xid8 DEFAULT pg_current_xact_id());
		GRANT ALL ON public.applied, public.applied_seq_seq TO PUBLIC;
	});
	mail_handler($node, $database, 'noted', q{INSERT INTO public.applied (id, n) VALUES (id, (message ->> 'n')::bigint);});
	return;
}

# A type whose handler does this, in PL/pgSQL, with "id" and "message"; its state is the number of messages so far.
sub mail_handler
{
	my ($node, $database, $type, $body) = @_;

	$node->safe_psql($database, qq{
		CREATE OR REPLACE FUNCTION public.${type}_handler(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE plpgsql AS \$\$
		BEGIN
			$body
			RETURN ROW(NULL, to_jsonb(coalesce(state::int, 0) + 1), NULL)::revenant.reply;
		END \$\$;
		SELECT revenant.create_snapshot_table('public.${type}_state') WHERE to_regclass('public.${type}_state') IS NULL;
		GRANT ALL ON public.${type}_state TO PUBLIC;
		SELECT revenant.create_entity_type('$type', 'public.${type}_state', 'public.${type}_handler')
		WHERE NOT EXISTS (SELECT FROM revenant.entity_type AS t WHERE t.type = '$type');
	});
	return;
}

1;
