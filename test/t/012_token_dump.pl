# What is restored or copied from a database issues tokens above the source's, and nothing lowers them.

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $dir = PostgreSQL::Test::Utils::tempdir;
my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;

sub token
{
	my ($database, $on) = @_;

	return ($on // $node)->safe_psql($database, "SELECT revenant.try_acquire_xact('one')");
}

# The greatest of some thousand tokens.
sub thousands
{
	my ($count, $database) = @_;

	my $query = "SELECT max(revenant.try_acquire_xact(i::text)) FROM generate_series(1, 1000) AS i";
	my ($greatest) = sort { $b <=> $a } split /\n/, $node->safe_psql($database, join(';', ($query) x $count));
	return $greatest;
}

sub sequences
{
	my ($database) = @_;

	return $node->safe_psql($database,
		'SELECT m.last_value, l.last_value FROM revenant._token_mark AS m, revenant._token_lineage AS l');
}

sub run_ok
{
	my ($name, @command) = @_;

	my ($out, $err);
	ok(IPC::Run::run(\@command, '<', \undef, '>', \$out, '2>', \$err), $name) or diag $err;
}

sub restore_plain
{
	my ($file, $database, $on) = @_;

	run_ok("$file into $database", 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1',
		'-f', "$dir/$file", '-d', ($on // $node)->connstr($database));
}

sub restore_custom
{
	my ($file, $database, $on, @options) = @_;

	run_ok("$file into $database @options", 'pg_restore', '--exit-on-error', @options,
		'-d', ($on // $node)->connstr($database), "$dir/$file");
}

sub sqlstate_is
{
	my ($query, $sqlstate, $name) = @_;

	my ($status, $out, $err) = $node->psql('source', "\\set VERBOSITY sqlstate\n$query");
	like($err, qr/ERROR:  $sqlstate/, $name);
}

$node->safe_psql('postgres', 'CREATE DATABASE source');
$node->safe_psql('source', 'CREATE EXTENSION revenant');

# The source goes on after the dump, in the block of then and in later ones.
thousands(1, 'source');
run_ok('pg_dump', 'pg_dump', '-d', $node->connstr('source'), '-f', "$dir/plain.sql");
run_ok('pg_dump -Fc', 'pg_dump', '-Fc', '-d', $node->connstr('source'), '-f', "$dir/custom.dump");
run_ok('pg_dumpall', 'pg_dumpall', '-d', $node->connstr('postgres'), '-f', "$dir/all.sql");
my $greatest = thousands(9, 'source');

# The same cluster
$node->safe_psql('postgres', "CREATE DATABASE $_") foreach 'plain', 'custom', 'sections';
restore_plain('plain.sql', 'plain');
cmp_ok(token('plain'), '>', $greatest, 'a plain dump: the first token is above all of the source');
restore_custom('custom.dump', 'custom');
cmp_ok(token('custom'), '>', $greatest, 'a custom dump: as well');
restore_custom('custom.dump', 'sections', $node, '--section=pre-data');
token('sections');
restore_custom('custom.dump', 'sections', $node, '--section=data');
cmp_ok(token('sections'), '>', $greatest, 'also if somebody asked for a token before the data came');

# Another cluster, where the timeline is the first, too
my $other = PostgreSQL::Test::Cluster->new('other');
$other->init;
$other->start;
$other->safe_psql('postgres', "CREATE DATABASE $_") foreach 'plain', 'custom';
restore_plain('plain.sql', 'plain', $other);
cmp_ok(token('plain', $other), '>', $greatest, 'another cluster, a plain dump');
restore_custom('custom.dump', 'custom', $other);
cmp_ok(token('custom', $other), '>', $greatest, 'another cluster, a custom dump');
# The roles are there already, so not every statement succeeds.
$other->safe_psql('postgres', 'DROP DATABASE plain');
$other->psql('postgres', "\\i $dir/all.sql", on_error_stop => 0);
cmp_ok(token('source', $other), '>', $greatest, 'another cluster, pg_dumpall');

# Templates, of a database with tokens and of a copy
$node->safe_psql('postgres', 'CREATE DATABASE copied TEMPLATE source');
my $before = thousands(9, 'source');
cmp_ok(token('copied'), '>', $before, 'a template: above what the source issued before and after');
$greatest = token('copied');
$node->safe_psql('postgres', 'CREATE DATABASE copied_again TEMPLATE copied');
cmp_ok(token('copied_again'), '>', $greatest, 'a copy of the copy');
$node->safe_psql('postgres', 'CREATE DATABASE untouched TEMPLATE copied');
ok( $node->poll_query_until('untouched', "SELECT last_value >> 40 > $greatest >> 40 FROM revenant._token_mark"),
	'a copy in which nobody asked for a token has entered its era');

# Data alone, over the database that it came from
run_ok('pg_dump -a', 'pg_dump', '-a', '-Fc', '-d', $node->connstr('source'), '-f', "$dir/data.dump");
$greatest = thousands(1, 'source');
$node->safe_psql('source', 'SELECT revenant.advance_tokens(' . (3 << 40) . ')');
$greatest = token('source');
$before = sequences('source');
restore_custom('data.dump', 'source');
# the supervisor sees the restore at once, and may have entered its era
my ($mark, $base) = split /\|/, sequences('source');
my ($mark_before, $base_before) = split /\|/, $before;
cmp_ok($mark, '>=', $mark_before, 'the mark was not lowered');
is($base, $base_before, 'nor was the base');
cmp_ok(token('source'), '>', $greatest, 'and the next token is greater');
run_ok('another pg_dump', 'pg_dump', '-d', $node->connstr('source'), '-f', "$dir/later.sql");
$node->safe_psql('postgres', 'CREATE DATABASE later');
restore_plain('later.sql', 'later');
cmp_ok(token('later'), '>', token('source'), 'a dump taken after that is above the source');

# Over another database, which has tokens of its own, and over itself from scratch
$node->safe_psql('postgres', 'CREATE DATABASE used');
$node->safe_psql('used', 'CREATE EXTENSION revenant');
thousands(1, 'used');
run_ok('pg_dump -a', 'pg_dump', '-a', '-Fc', '-d', $node->connstr('source'), '-f', "$dir/data_again.dump");
restore_custom('data_again.dump', 'used');
cmp_ok(token('used'), '>', token('source'), 'the data of another database');
run_ok('pg_dump --clean', 'pg_dump', '-c', '--if-exists', '-d', $node->connstr('source'), '-f', "$dir/clean.sql");
$greatest = token('source');
restore_plain('clean.sql', 'source');
cmp_ok(token('source'), '>', $greatest, 'dropped and restored by pg_dump --clean');

# advance_tokens
my $beyond = (17 << 40) + 12345;
$node->safe_psql('source', "BEGIN; SELECT revenant.advance_tokens($beyond); ROLLBACK");
my $first = token('source');
cmp_ok($first, '>', $beyond, 'a rollback does not undo advance_tokens');
is($first >> 40, 18, 'the next token is of the era above');
$node->safe_psql('source', 'SELECT revenant.advance_tokens(0)');
cmp_ok(token('source'), '>', $first, 'advancing beyond a lower one lowers nothing');
$beyond = (30 << 40) + ((1 << 40) - 1);
$node->safe_psql('source', "SELECT revenant.advance_tokens($beyond)");
$node->stop('immediate');
$node->start;
$first = token('source');
cmp_ok($first, '>', $beyond, 'a crash does not undo it');
is($first >> 40, 31, 'nor does it skip another era');

sqlstate_is('SELECT revenant.advance_tokens(NULL)', '22004', 'null');
sqlstate_is('SELECT revenant.advance_tokens(-1)', '22023', 'a negative one');
sqlstate_is('SELECT revenant.advance_tokens(4611686018427387903)', '22023', 'the greatest token');
sqlstate_is('SELECT revenant.advance_tokens(9223372036854775807)', '22023', 'the greatest number');
sqlstate_is('BEGIN READ ONLY; SELECT revenant.advance_tokens(1)', '25006', 'in a read-only transaction');
sqlstate_is("BEGIN READ ONLY; SELECT revenant.try_acquire_xact('one')", '25006', 'a token in one');
cmp_ok(token('source'), '>', $first, 'all of which changed nothing');
is(token('source') >> 40, 31, 'also not the era');

# The last era has tokens, too. Then there is an error, and no small number.
$node->safe_psql('source', 'SELECT revenant.advance_tokens(4611684918915760127)');
cmp_ok(token('source'), '>', 4611684918915760127, 'the last era can be entered');
is(token('source') >> 40, (1 << 22) - 1, 'and is the last');
sqlstate_is('SELECT revenant.advance_tokens(4611684918915760128)', '22023', 'but not left');
$node->safe_psql('postgres', 'CREATE DATABASE too_late TEMPLATE source');
my ($status, $out, $err) =
  $node->psql('too_late', "\\set VERBOSITY sqlstate\nSELECT revenant.try_acquire_xact('one')");
like($err, qr/ERROR:  54000/, 'a copy of that database has no era');

# Dropping the extension forgets
$node->safe_psql('source', 'DROP EXTENSION revenant; CREATE EXTENSION revenant');
is(token('source') >> 40, 1, 'dropped and created, it begins again');
$node->safe_psql('source', 'BEGIN; DROP EXTENSION revenant; ROLLBACK');
cmp_ok(token('source'), '>', 1 << 40, 'a rolled back DROP leaves it as it was');

done_testing();
