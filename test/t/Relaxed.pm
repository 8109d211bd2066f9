# Relaxed entities that count: what the tests of states in memory share.

package Relaxed;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT = qw(relaxed_setup relaxed_type warm);

# The extension, and a handler whose state is {"n": ...}: it adds, and answers with the sum.
sub relaxed_setup
{
	my ($node, $database) = @_;

	$node->safe_psql($database // 'postgres', q{
		CREATE EXTENSION IF NOT EXISTS revenant;
		CREATE FUNCTION public.counter(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS $$
		SELECT ROW(to_jsonb(n), jsonb_build_object('n', n), NULL)::revenant.reply FROM (SELECT coalesce((state ->> 'n')::bigint, 0) + message::bigint AS n) AS next
		$$;
		-- until the flusher is there and keeps it
		CREATE PROCEDURE public.warm(type text, id text) LANGUAGE plpgsql AS $$
		BEGIN
			LOOP
				PERFORM revenant.call(type, id, '0');
				COMMIT;
				EXIT WHEN EXISTS (SELECT FROM revenant.loaded_entities AS l WHERE l.type = warm.type AND l.id = warm.id);
				PERFORM revenant.call(type, id, '1');
				COMMIT;
				PERFORM pg_sleep(0.01);
			END LOOP;
		END $$;
	});
	return;
}

# relaxed_type($node, $type, $options): its table is ${type}_state.
sub relaxed_type
{
	my ($node, $type, $options, $database) = @_;

	$node->safe_psql($database // 'postgres', qq{
		SELECT revenant.create_snapshot_table('${type}_state');
		SELECT revenant.create_entity_type('$type', '${type}_state', 'public.counter', $options);
	});
	warm($node, $type, 'warm', $database);
	return;
}

# Returns when the flusher keeps this entity.
sub warm
{
	my ($node, $type, $id, $database) = @_;

	$node->safe_psql($database // 'postgres', "CALL public.warm('$type', '$id')");
	return;
}

1;
