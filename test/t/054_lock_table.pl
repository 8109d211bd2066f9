# No use of leases takes the server away from others: a session's holds are bounded, what is too much fails with a clean error and leaves
# nothing, and all the time anybody can connect and work.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
# A small table of locks: some hundred for all.
$node->append_conf('postgresql.conf', "max_connections = 20\nmax_locks_per_transaction = 10\nmax_worker_processes = 8\nmax_prepared_transactions = 0\nlog_statement = none");
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION revenant;
	CREATE TABLE work (a int PRIMARY KEY, b text);
});

sub sql { return $node->safe_psql('postgres', $_[0]) }
sub userlocks { return sql("SELECT count(*) FROM pg_locks WHERE locktype = 'userlock' AND pid = $_[0]") }

# Others go on: a new connection, a table with an index, a lease of theirs that has no locks.
my $ttl = sql("SELECT revenant.acquire('ttl', ttl => '1 h')");

sub others_work
{
	my ($test) = @_;
	is(sql("INSERT INTO work VALUES (1, 'x'); UPDATE work SET b = 'y' WHERE a = 1; DELETE FROM work; SELECT count(*) FROM work"), '0',
		"$test: another connection works");
	is(sql("SELECT revenant.renew('ttl', $ttl) IS NOT NULL, revenant.is_current('ttl', $ttl)"), 't|t', "$test: and renews its lease");
	return;
}

my $greedy = $node->background_psql('postgres', on_error_stop => 0);
my $pid = $greedy->query_safe('SELECT pg_backend_pid()');

# Sets, one by one, in a transaction, in each scope: more than there is room for.
foreach my $statement (
	"SELECT count(revenant.try_acquire('a' || i)) FROM generate_series(1, 5000) AS i",
	"SELECT revenant.try_acquire_all((SELECT array_agg('b' || i) FROM generate_series(1, 1000) AS i))",
	"SELECT count(revenant.try_acquire('c' || i, ttl => '1 h')) FROM generate_series(1, 5000) AS i",
	"SELECT count(revenant.try_acquire('d' || i, ttl => '1 h', bound => true)) FROM generate_series(1, 5000) AS i",
	"SELECT count(revenant.try_acquire_xact('e' || i)) FROM generate_series(1, 5000) AS i",
	"SELECT count(revenant.try_acquire('f' || i, shared => true)) FROM generate_series(1, 5000) AS i")
{
	$greedy->{stderr} = '';
	$greedy->query("\\set VERBOSITY sqlstate\n$statement");
	like($greedy->{stderr}, qr/ERROR:  (53200|54000)/, "a clean error: $statement");
	$greedy->{stderr} = '';
	is(userlocks($pid), '0', 'it left no lock');
	is(sql("SELECT count(*) FROM revenant.leases WHERE lease <> 'ttl'"), '0', 'and no lease');
	others_work('after it');
}

$greedy->quit;
$node->stop;
done_testing();
