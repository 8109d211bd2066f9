# Whoever waits by await_lease or await_change, also asleep until a ttl holder is gone, holds back neither vacuum nor
# CREATE INDEX CONCURRENTLY; whoever waits by a function or in a transaction block does, as any statement.

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION revenant; CREATE TABLE busy AS SELECT i FROM generate_series(1, 100) AS i');

sub sql { return $node->safe_psql('postgres', $_[0]); }

# A psql that runs lines until it is told to end.
sub session
{
	my ($name, $lines) = @_;
	my %session = (in => "SET application_name = '$name';\n$lines\n\\echo ended\n", out => '', err => '');

	$session{timer} = IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default);
	$session{psql} = IPC::Run::start([ 'psql', '-X', '-q', '-A', '-t', '-f', '-', '-d', $node->connstr('postgres') ],
		'<', \$session{in}, '>', \$session{out}, '2>', \$session{err}, $session{timer});
	$session{psql}->pump_nb while $session{in} ne '';
	return \%session;
}

sub ends
{
	my ($session, $name) = @_;
	ok(pump_until($session->{psql}, $session->{timer}, \$session->{out}, qr/^ended$/m), $name);
	$session->{in} .= "\\q\n";
	$session->{psql}->finish;
	return $session->{out};
}

# Waits until a session waits, for a lock or asleep, then says whether it has a snapshot.
sub has_snapshot
{
	my ($name) = @_;
	$node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = '$name' AND state = 'active' AND wait_event_type IN ('Lock', 'Extension')")
	  or die "$name does not wait";
	return sql("SELECT backend_xmin IS NOT NULL FROM pg_stat_activity WHERE application_name = '$name'");
}

my $token = sql("SELECT revenant.acquire('held', ttl => '1 h')");
my $number = 0;
foreach my $case (
	[ 'f', "CALL revenant.await_lease('held', wait => '1 min');" ],
	[ 'f', "CALL revenant.await_lease('held');" ],
	[ 'f', "CALL revenant.await_lease('held', ttl => '1 h', bound => true);" ],
	[ 't', "DO \$\$ DECLARE t bigint; BEGIN CALL revenant.await_lease('held', t); END \$\$;" ],
	[ 't', "BEGIN; CALL revenant.await_lease('held', wait => '1 min'); COMMIT;" ],
	[ 't', "SELECT revenant.acquire('held', wait => '1 min');" ])
{
	my ($expected, $lines) = @$case;
	my $waiter = session('waiter', $lines);

	is(has_snapshot('waiter'), $expected, "snapshot: $lines");
	if ($expected eq 'f')
	{
		$number++;
		is($node->psql('postgres', "CREATE INDEX CONCURRENTLY busy_$number ON busy (i)", timeout => 60), 0, 'an index is built beside it');
		# behind it in the queue
		my $second = session('second', "CALL revenant.await_lease('held', ttl => '100 ms');");
		is(has_snapshot('second'), 'f', 'and behind it in the queue');
		sql("SELECT revenant.release('held', $token)");
		ends($waiter, 'it gets it');
		ends($second, 'and the next one after it');
	}
	else
	{
		sql("SELECT revenant.release('held', $token)");
		ends($waiter, 'it gets it');
	}
	$token = sql("SELECT revenant.acquire('held', ttl => '1 h', wait => '1 min')");
}

# await_change: the counter, then a wait
my $seen = sql("CALL revenant.await_change('held')");
like($seen, qr/^\d+$/, 'a counter');
is(sql("CALL revenant.await_change('held', $seen, '1 ms')"), $seen, 'it is the same after a time in which nothing happened');
my $watcher = session('watcher', "CALL revenant.await_change('held', $seen);");
is(has_snapshot('watcher'), 'f', 'await_change has no snapshot');
is($node->psql('postgres', 'CREATE INDEX CONCURRENTLY busy_change ON busy (i)', timeout => 60), 0, 'an index is built beside it');
sql("SELECT revenant.release('held', $token)");
isnt(ends($watcher, 'await_change returns at the release'), '', 'with an answer');
isnt(sql("CALL revenant.await_change('held')"), $seen, 'and the counter is another');

# what leaves nothing behind
$token = sql("SELECT revenant.acquire('held', ttl => '1 h')");
foreach my $end ("SET statement_timeout = '50ms';", "SET lock_timeout = '50ms';")
{
	my (undef, undef, $err) = $node->psql('postgres', "$end\nCALL revenant.await_lease('held')");
	like($err, qr/timeout/, $end);
}
my $killed = session('killed', "CALL revenant.await_lease('held');");
has_snapshot('killed');
sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'killed'");
$killed->{in} .= "\\q\n";
eval { $killed->{psql}->finish };
ok($node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'userlock'"), 'nobody is left in the queue');
is(sql("SELECT revenant.is_current('held', $token), revenant.release('held', $token)"), 't|t', 'and the holder is who it was');

$node->stop;
done_testing();
