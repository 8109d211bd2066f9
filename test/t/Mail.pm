# Entities that only write down what reached them: what the tests of messages send to.

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
		CREATE EXTENSION revenant;
		CREATE TABLE public.applied (
			seq bigserial, id text, n bigint, who name DEFAULT current_user, pid int DEFAULT pg_backend_pid(),
			at timestamptz DEFAULT clock_timestamp(), xid xid8 DEFAULT pg_current_xact_id());
		GRANT ALL ON public.applied, public.applied_seq_seq TO PUBLIC;
	});
	mail_handler($node, $database, 'noted', q{INSERT INTO public.applied (id, n) VALUES (id, (message ->> 'n')::bigint);});
	return;
}

# A type whose handler does this, in PL/pgSQL, with "id" and "message".
sub mail_handler
{
	my ($node, $database, $type, $body) = @_;

	$node->safe_psql($database, "CREATE OR REPLACE FUNCTION public.$type(id text, message jsonb) RETURNS void LANGUAGE plpgsql AS \$\$ BEGIN $body END \$\$");
	return;
}

1;
