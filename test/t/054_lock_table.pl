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

# One that keeps what it has, and more of them: others work, also if it is by fences or in transaction scope.
my @keepers = ($greedy, map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 3);
my $loop = "DO \$\$ BEGIN FOR i IN 1..5000 LOOP PERFORM revenant.acquire('k%d-' || i); COMMIT; END LOOP; END \$\$";

sub fails_with
{
	my ($session, $expected, $statement, $test) = @_;
	$session->{stderr} = '';
	$session->query("\\set VERBOSITY sqlstate\n$statement");
	like($session->{stderr}, qr/ERROR:  $expected/, $test);
	$session->{stderr} = '';
	return;
}

fails_with($keepers[0], '53200', sprintf($loop, 0), 'one session keeps as much as it gets, to a clean error');
cmp_ok(userlocks($pid), '>', 100, 'which is a lot');
others_work('beside it');
fails_with($keepers[1], '53200', sprintf($loop, 1), 'another one is refused');
fails_with($keepers[2], '53200', "BEGIN; SELECT revenant.try_acquire_xact('x' || i) FROM generate_series(1, 5000) AS i", 'in transaction scope');
others_work('beside both');
$keepers[2]->query("ROLLBACK");
is($keepers[2]->query_safe("SELECT revenant.renew('ttl', $ttl) IS NOT NULL"), 't', 'a renewal takes none');
is($keepers[2]->query_safe("BEGIN; SELECT revenant.fence('ttl', $ttl); COMMIT"), '', 'there is room for a fence');
is($keepers[2]->query_safe("SELECT revenant.release('ttl 2', revenant.acquire('ttl 2', ttl => '1 h'))"), 't', 'and for a ttl lease, as the hint says');

# What they have comes back, in each way in which it can.
$keepers[0]->query_safe('DISCARD ALL');
is($keepers[1]->query_safe("SELECT revenant.try_acquire('room') IS NOT NULL"), 't', 'DISCARD ALL makes room');
fails_with($keepers[0], '53200', sprintf($loop, 0), 'filled again');
$keepers[0]->query_safe('SELECT pg_advisory_unlock_all()');
$keepers[0]->query_safe("SELECT revenant.try_acquire('again')");
is($keepers[1]->query_safe("SELECT revenant.try_acquire('room 2') IS NOT NULL"), 't', 'so does pg_advisory_unlock_all, from its next lease on');
fails_with($keepers[0], '53200', sprintf($loop, 0), 'filled again');
$keepers[0]->query_safe("DO \$\$ DECLARE l record; BEGIN FOR l IN SELECT lease, token FROM revenant.leases WHERE pid = pg_backend_pid() AND scope = 'session' LIMIT 100 LOOP PERFORM revenant.release(l.lease, l.token); END LOOP; END \$\$");
is($keepers[1]->query_safe("SELECT revenant.try_acquire('room 3') IS NOT NULL"), 't', 'so do releases');
fails_with($keepers[0], '53200', sprintf($loop, 0), 'filled again');
sql("SELECT pg_terminate_backend($pid, 60000)");
is($keepers[1]->query_safe("SELECT revenant.try_acquire('room 4') IS NOT NULL"), 't', 'and so does its end');
$keepers[2]->query_safe("BEGIN; SELECT count(revenant.try_acquire_xact('x' || i)) FROM generate_series(1, 50) AS i; ROLLBACK; BEGIN; SELECT revenant.fence('ttl', $ttl); COMMIT") for 1 .. 50;
is($keepers[2]->query_safe("BEGIN; SELECT count(revenant.try_acquire_xact('x' || i)) FROM generate_series(1, 50) AS i; SAVEPOINT a; SELECT count(revenant.try_acquire_xact('y' || i)) FROM generate_series(1, 20) AS i; ROLLBACK TO a; COMMIT"),
	"50\n20", 'what ends with its transaction or savepoint takes nothing for good');
$keepers[2]->query_safe("DO \$\$ DECLARE t bigint; BEGIN FOR i IN 1 .. 900 LOOP t := revenant.try_acquire('b' || i, ttl => '1 h', bound => true); COMMIT; PERFORM revenant.release('b' || i, t); COMMIT; END LOOP; END \$\$");
is($keepers[2]->query_safe("SELECT revenant.try_acquire('b', ttl => '1 h', bound => true) IS NOT NULL"), 't', 'nor does what was bound and released');
$keepers[1]->query_safe("SELECT revenant.try_acquire('r' || i, ttl => '1 h') FROM generate_series(1, 100) AS i") ;
$keepers[1]->query_safe("DO \$\$ BEGIN FOR i IN 1 .. 2000 LOOP PERFORM revenant.try_acquire('r' || i, ttl => '1 h'); COMMIT; END LOOP; END \$\$");
fails_with($keepers[1], '53200', "SELECT count(revenant.release('r' || i, t.token)) FROM generate_series(1, 2000) AS i JOIN revenant.leases AS t ON t.lease = 'r' || i", 'releases of very many at once are refused');
others_work('beside them');
is(sql('SELECT count(*) FROM revenant._lease_check()'), 0, 'shared memory and locks agree');

$node->stop;
done_testing();
