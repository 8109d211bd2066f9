# A time in which nobody gets a lease outlasts a restart and a crash, never shorter than it was; what was bound to a
# session is held for its ttl after either; and a request that is repeated after a crash gets the token that it had.

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
# Nobody flushes by chance what a commit did not flush.
$node->append_conf('postgresql.conf', "log_statement = none\nwal_writer_delay = '10s'");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION revenant');

my $id = "'00000000-0000-0000-0000-00000000000a'";

sub sql { return $node->safe_psql('postgres', $_[0]); }

sub acquire
{
	my ($lease, $more) = @_;
	return sql("SELECT revenant.try_acquire('$lease', $more)");
}

sub is_free
{
	my ($lease) = @_;
	return sql("SELECT revenant.try_acquire_xact('$lease') IS NOT NULL");
}

foreach my $how ('restart', 'crash')
{
	# lapsed, with a delay; held, with a delay; released, to be held off: of ttl and of session scope
	acquire("lapsed-$how", "ttl => '100 ms', lock_delay => '1 h'");
	acquire("short-$how", "ttl => '300 ms', lock_delay => '700 ms'");
	my $held = acquire("held-$how", "ttl => '1 h', lock_delay => '1 h'");
	sql("SELECT revenant.release('off-$how', revenant.acquire('off-$how', ttl => '1 h', lock_delay => '1 s'), hold_off => '1 h')");
	sql("SELECT revenant.release('off-session-$how', revenant.acquire('off-session-$how'), hold_off => '1 h')");
	sql("SELECT revenant.release('off-short-$how', revenant.acquire('off-short-$how'), hold_off => '1 s')");
	sql("BEGIN; SELECT revenant.release('off-undone-$how', revenant.acquire('off-undone-$how'), hold_off => '1 h'); ROLLBACK");
	# released without one
	sql("SELECT revenant.release('released-$how', revenant.acquire('released-$how', ttl => '1 h', lock_delay => '1 h'))");
	# the session that it is bound to goes with the server
	my ($in, $out, $err) = ("SELECT 'taken ' || revenant.acquire('bound-$how', ttl => '1 h', bound => true, lock_delay => '1 h');\n", '', '');
	my $timer = IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default);
	my $session = IPC::Run::start([ 'psql', '-X', '-q', '-A', '-t', '-f', '-', '-d', $node->connstr('postgres') ],
		'<', \$in, '>', \$out, '2>', \$err, $timer);
	ok(pump_until($session, $timer, \$out, qr/taken (\d+)/), 'a session has a bound lease');
	my ($bound) = $out =~ /taken (\d+)/;
	is(sql("SELECT revenant.is_current('bound-$how', $bound)"), 't', 'which is current');
	my $request = acquire("request-$how", "ttl => '1 h', request_id => $id");
	my $set = sql("SELECT revenant.acquire_all('{set-a-$how,set-b-$how}', ttl => '1 h', request_id => $id)");

	if ($how eq 'restart')
	{
		$node->restart;
	}
	else
	{
		$node->stop('immediate');
		$node->start;
	}
	my $started = time;
	$in .= "\\q\n";
	eval { $session->finish };

	is(is_free("lapsed-$how"), 'f', "$how: nobody gets it in its lock_delay");
	is(is_free("held-$how"), 'f', "$how: what was held is held");
	is(sql("SELECT revenant.is_current('held-$how', $held), revenant.renew('held-$how', $held) IS NOT NULL"), 't|t', "$how: by its holder");
	is(is_free("$_-$how"), 'f', "$how: nobody gets it in its hold_off ($_)") for 'off', 'off-session';
	is(is_free("off-undone-$how"), 't', "$how: a hold_off that was rolled back is none");
	is(is_free("released-$how"), 't', "$how: a release without one left no delay");
	is(sql("SELECT revenant.is_current('bound-$how', $bound)"), 't', "$how: a bound lease is held");
	is(is_free("bound-$how"), 'f', "$how: its time alone ends it, since its holder may not know yet");
	is(sql("SELECT count(*) FROM revenant.leases WHERE lease ~ '^(off|lapsed)'"), '0', "$how: the view shows no holder of these");

	is(acquire("request-$how", "ttl => '1 h', request_id => $id"), $request, "$how: a request that is repeated gets its token");
	is(acquire("request-$how", "ttl => '1 h', request_id => '00000000-0000-0000-0000-00000000000b'"), '', "$how: another one is told that it is busy");
	is(sql("SELECT revenant.acquire_all('{set-b-$how,set-a-$how}', ttl => '1 h', request_id => $id)"), $set, "$how: so does that of a set");
	is(sql("SELECT revenant.release_all('{set-b-$how,set-a-$how}', $set)"), '2', "$how: which it can release");

	# ttl and lock_delay, and hold_off, count from when this server began to accept writes
	sql("SELECT revenant.acquire('off-short-$how', wait => '1 min')");
	cmp_ok(time - $started, '<', 30, "$how: a short hold_off is over in time");
	sql("SELECT revenant.acquire('short-$how', wait => '1 min')");
	cmp_ok(time - $started, '<', 30, "$how: a short lock_delay is over in time");
	cmp_ok(sql("SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) >= 1"), 'eq', 't', "$how: and not before");
}

$node->stop;
done_testing();
