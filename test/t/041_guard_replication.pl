# Logical replication into a guarded table: with "replicas" a change that arrives is refused, TRUNCATE too; without, it is applied.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $publisher = PostgreSQL::Test::Cluster->new('publisher');
$publisher->init(allows_streaming => 'logical');
$publisher->start;

my $subscriber = PostgreSQL::Test::Cluster->new('subscriber');
$subscriber->init(allows_streaming => 'logical');
$subscriber->append_conf('postgresql.conf', "max_logical_replication_workers = 12\nwal_retrieve_retry_interval = '100ms'");
$subscriber->start;
$subscriber->safe_psql('postgres', 'CREATE EXTENSION revenant');

my @tables = ('open', 'closed_insert', 'closed_update', 'closed_delete', 'closed_truncate');
foreach my $table (@tables)
{
	$_->safe_psql('postgres', "CREATE TABLE $table (a int PRIMARY KEY, b text); INSERT INTO $table VALUES (1, 'one')")
	  foreach $publisher, $subscriber;
	my $replicas = $table eq 'open' ? 'false' : 'true';
	$subscriber->safe_psql('postgres', "SELECT revenant.guard_table('$table', 'guard', replicas => $replicas)");
	$publisher->safe_psql('postgres', "CREATE PUBLICATION $table FOR TABLE $table");
	$subscriber->safe_psql('postgres',
		"CREATE SUBSCRIPTION $table CONNECTION '" . $publisher->connstr . " dbname=postgres' PUBLICATION $table WITH (copy_data = false)");
}

sub rows
{
	my ($table) = @_;

	return $subscriber->safe_psql('postgres', "SELECT string_agg(a || ' ' || b, ', ' ORDER BY a) FROM $table");
}

sub arrives
{
	my ($table, $rows) = @_;

	return $subscriber->poll_query_until('postgres', "SELECT string_agg(a || ' ' || b, ', ' ORDER BY a) IS NOT DISTINCT FROM $rows FROM $table");
}

# Whatever the guard lets arrive, it lets nobody write here.
my (undef, undef, $err) = $subscriber->psql('postgres', "\\set VERBOSITY sqlstate\nINSERT INTO open VALUES (2, 'two')");
like($err, qr/ERROR:  RV008/, 'the guard holds for sessions');

$publisher->safe_psql('postgres', "INSERT INTO open VALUES (2, 'two')");
ok(arrives('open', "'1 one, 2 two'"), 'without "replicas" an INSERT is applied');
$publisher->safe_psql('postgres', "UPDATE open SET b = 'three' WHERE a = 1; DELETE FROM open WHERE a = 2");
ok(arrives('open', "'1 three'"), 'an UPDATE and a DELETE');
$publisher->safe_psql('postgres', 'TRUNCATE open');
ok(arrives('open', 'NULL'), 'and a TRUNCATE');

my %change = (
	closed_insert => [ "INSERT INTO closed_insert VALUES (2, 'two')", "'1 one, 2 two'" ],
	closed_update => [ "UPDATE closed_update SET b = 'two'", "'1 two'" ],
	closed_delete => [ 'DELETE FROM closed_delete', 'NULL' ],
	closed_truncate => [ 'TRUNCATE closed_truncate', 'NULL' ]);
foreach my $table (sort keys %change)
{
	my ($change, $after) = @{ $change{$table} };

	$publisher->safe_psql('postgres', $change);
	ok($subscriber->poll_query_until('postgres', "SELECT apply_error_count >= 2 FROM pg_stat_subscription_stats WHERE subname = '$table'"),
		"with \"replicas\": $change is refused, again and again");
	is(rows($table), '1 one', 'and changes nothing');
	like(slurp_file($subscriber->logfile), qr/a write to table "$table" needs a fence/, 'the log says why');
	$subscriber->safe_psql('postgres', "SELECT revenant.unguard_table('$table')");
	ok(arrives($table, $after), 'it is applied when the guard is taken away');
}

# The first copy of a table, too.
foreach my $server ($publisher, $subscriber)
{
	$server->safe_psql('postgres', 'CREATE TABLE copied (a int PRIMARY KEY, b text)');
}
$publisher->safe_psql('postgres', "INSERT INTO copied VALUES (1, 'one'); CREATE PUBLICATION copied FOR TABLE copied");
$subscriber->safe_psql('postgres', "SELECT revenant.guard_table('copied', 'guard', replicas => true)");
$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION copied CONNECTION '" . $publisher->connstr . " dbname=postgres' PUBLICATION copied");
ok($subscriber->poll_query_until('postgres', "SELECT sync_error_count >= 1 FROM pg_stat_subscription_stats WHERE subname = 'copied'"),
	'the first copy is refused');
is(rows('copied'), '', 'and nothing of it is there');
$subscriber->safe_psql('postgres', "SELECT revenant.unguard_table('copied')");
ok(arrives('copied', "'1 one'"), 'it comes when the guard is taken away');

$subscriber->safe_psql('postgres', "DROP SUBSCRIPTION $_") foreach @tables, 'copied';
$subscriber->stop;
$publisher->stop;
done_testing();
