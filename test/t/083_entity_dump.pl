# A dump has types, states, tombstones and histories, and restores them elsewhere; a subscriber gets the rows of a snapshot table.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $dir = PostgreSQL::Test::Utils::tempdir;
my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(allows_streaming => 'logical');
$node->start;
asks($node);

sub run_ok
{
	my ($name, @command) = @_;

	my ($out, $err);
	ok(IPC::Run::run(\@command, '<', \undef, '>', \$out, '2>', \$err), $name) or diag $err;
	return;
}

$node->safe_psql('postgres', 'CREATE DATABASE source');
$node->safe_psql('source', q{
	CREATE EXTENSION revenant;
	CREATE SCHEMA "Odd schema";
	CREATE FUNCTION "Odd schema"."Handler"(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS $$ SELECT to_jsonb(coalesce($2::int, 0) + 1), to_jsonb(coalesce($2::int, 0) + 1), NULL::text $$;
	CREATE FUNCTION up(old_vsn int, state jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb($2::int + 100) $$;
	SELECT revenant.create_snapshot_table('"Odd schema"."Odd table"', -1);
	SELECT revenant.create_snapshot_table('public.plain');
	SELECT revenant.create_entity_type('odd "type"', '"Odd schema"."Odd table"', '"Odd schema"."Handler"', idle_timeout => NULL, flush_every => '1 min');
	SELECT revenant.create_entity_type('plain', 'plain', '"Odd schema"."Handler"', vsn => 2, upgrade => 'up');
	SELECT revenant.call('odd "type"', 'a', '1'), revenant.call('odd "type"', 'a', '1'), revenant.call('odd "type"', 'gone', '1'), revenant.delete_entity('odd "type"', 'gone');
	SELECT revenant.call('plain', 'a', '1', request_id => '00000000-0000-0000-0000-000000000001'), revenant.save('plain', 'old', 0, '1', 1);
});
run_ok('pg_dump', 'pg_dump', '-d', $node->connstr('source'), '-f', "$dir/plain.sql");
run_ok('pg_dump -Fc', 'pg_dump', '-Fc', '-d', $node->connstr('source'), '-f', "$dir/custom.dump");
unlike(slurp_file("$dir/plain.sql"), qr/00000000-0000-0000-0000-000000000001/, 'answers to requests are not dumped');

# Checks a database that was made from the source. The same entities go on from where they were.
sub check
{
	my ($database, $on, $answered) = @_;
	my $in = sub { return $on->safe_psql($database, $_[0]) };

	is( $in->('SELECT type, snapshots, handler, vsn, coalesce(upgrade, \'-\'), durability, flush_every, coalesce(idle_timeout::text, \'-\') FROM revenant.entity_type ORDER BY type'),
		qq{odd "type"|"Odd schema"."Odd table"|"Odd schema"."Handler"|1|-|strict|00:01:00|-\nplain|public.plain|"Odd schema"."Handler"|2|public.up|strict|00:00:01|00:05:00},
		"$database: the types");
	is($in->(q{SELECT revenant.call('odd "type"', 'a', '1'), revenant.call('odd "type"', 'gone', '1'), revenant.call('odd "type"', 'new', '1')}), '3|1|1', 'their states');
	is($in->(q{SELECT (revenant.read_entity('odd "type"', i)).version FROM unnest('{a,gone,new}'::text[]) AS i}), "3\n3\n1", 'and their versions go on');
	is($in->(q{SELECT h.version, h.state FROM revenant.history('"Odd schema"."Odd table"', 'a') AS h}), "1|1\n2|2\n3|3", 'with the history');
	is($in->(q{SELECT revenant.call('plain', 'old', '1'), revenant.upgrade_all('plain')}), '102|0', 'upgrades');
	is($in->(q{SELECT revenant.call('plain', 'a', '1', request_id => '00000000-0000-0000-0000-000000000001')}), $answered ? 1 : 2, 'a request of the source is answered where its answer is');
	my (undef, undef, $err) = $on->psql($database, q{\set VERBOSITY sqlstate
		SELECT revenant.create_entity_type('third', 'plain', '"Odd schema"."Handler"');});
	like($err, qr/42710/, 'a table still serves one type');
	$in->(q{ALTER TABLE plain RENAME TO renamed; SELECT revenant.alter_entity_type('plain', '{"snapshots": "renamed"}')});
	is($in->(q{SELECT revenant.call('plain', 'a', '1')}), $answered ? 2 : 3, 'it can be altered, and used');
	return;
}

$node->safe_psql('postgres', "CREATE DATABASE $_") foreach 'plain', 'custom', 'cleaned';
run_ok('restored', 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', "$dir/plain.sql", '-d', $node->connstr('plain'));
check('plain', $node);
# in another database of the same cluster the oid of the table may be another one's
run_ok('restored with pg_restore', 'pg_restore', '--exit-on-error', '-d', $node->connstr('custom'), "$dir/custom.dump");
check('custom', $node);
run_ok('restored once', 'pg_restore', '--exit-on-error', '-d', $node->connstr('cleaned'), "$dir/custom.dump");
run_ok('and over itself', 'pg_restore', '--exit-on-error', '--clean', '--if-exists', '-d', $node->connstr('cleaned'), "$dir/custom.dump");
check('cleaned', $node);
$node->safe_psql('postgres', 'CREATE DATABASE copied TEMPLATE source');
check('copied', $node, 1);
my $other = PostgreSQL::Test::Cluster->new('other');
$other->init(allows_streaming => 'logical');
$other->start;
$other->safe_psql('postgres', 'CREATE DATABASE elsewhere');
run_ok('restored elsewhere', 'pg_restore', '--exit-on-error', '-d', $other->connstr('elsewhere'), "$dir/custom.dump");
check('elsewhere', $other);
check('source', $node, 1);

# Logical replication, with and without the executor, with and without the extension on the other side
$node->safe_psql('postgres', q{
	CREATE EXTENSION revenant;
	CREATE FUNCTION handler(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS $$ SELECT to_jsonb(coalesce($2::int, 0) + 1), to_jsonb(coalesce($2::int, 0) + 1), NULL::text $$;
	SELECT revenant.create_snapshot_table('replicated');
	SELECT revenant.create_snapshot_table('kept', 3);
	SELECT revenant.create_snapshot_table('no_identity');
	SELECT revenant.create_entity_type('replicated', 'replicated', 'handler');
	SELECT revenant.call('replicated', 'before', '1');
	CREATE PUBLICATION p FOR TABLE replicated, kept, kept_history;
});
$other->safe_psql('postgres', 'CREATE EXTENSION revenant; SELECT revenant.create_snapshot_table(\'replicated\'), revenant.create_snapshot_table(\'kept\', 3)');
$other->safe_psql('postgres', "CREATE SUBSCRIPTION s CONNECTION '" . $node->connstr . " dbname=postgres' PUBLICATION p");
$other->wait_for_subscription_sync($node, 's') if $other->can('wait_for_subscription_sync');
sql(q{
	SELECT count(revenant.call('replicated', (i % 7)::text, '1')) FROM generate_series(1, 50) AS i;
	SELECT revenant.delete_entity('replicated', '1');
	SELECT revenant.save('kept', 'a', 0, '1'), revenant.save('kept', 'a', 1, to_jsonb(repeat('x', 100000))), revenant.save('kept', 'a', 2, '3'), revenant.remove('kept', 'a', 3);
});
$node->wait_for_catchup('s');
ok($other->poll_query_until('postgres', 'SELECT count(*) = 8 FROM replicated'), 'the subscriber has all entities');
my $rows = 'SELECT id, version, vsn, state, updated_at, deleted, reserved FROM %s ORDER BY id, version';
is($other->safe_psql('postgres', sprintf $rows, 'replicated'), sql(sprintf $rows, 'replicated'), 'as they are on the publisher');
is($other->safe_psql('postgres', sprintf $rows, 'kept'), sql(sprintf $rows, 'kept'), 'those with a history, too');
my $history = 'SELECT version, length(state::text), deleted FROM kept_history ORDER BY version';
is($other->safe_psql('postgres', $history), sql($history), 'and the history itself');
# a row that the publisher goes on writing is not the subscriber's: it is told by the version
is($other->safe_psql('postgres', q{SELECT revenant.save('replicated', 'local', 0, '1')}), '1', 'the subscriber can save, too');
# without a replica identity an update is refused, as PostgreSQL does
sql('ALTER TABLE no_identity REPLICA IDENTITY NOTHING; ALTER PUBLICATION p ADD TABLE no_identity');
sql("SELECT revenant.save('no_identity', 'a', 0, '1')");
sqlstate('55000', "SELECT revenant.save('no_identity', 'a', 1, '2')");

$other->safe_psql('postgres', 'DROP SUBSCRIPTION s');
$_->stop foreach $node, $other;
done_testing();
