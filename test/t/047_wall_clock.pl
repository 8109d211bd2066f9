# The wall clock of the server is set an hour ahead and back, while it runs, while it is down and before a standby is
# promoted: nobody gets a lease before its holder believes it to be over, nobody waits longer than its deadline, and no other
# time is longer or shorter.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Client qw(answers monotonic);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $hour = 3600;
my $late = 0.050;		# a lapsed lease is free that soon
my $patience = 10;		# for what is to come within a second or two; far from an hour

# ---- a wall clock that can be set

my ($faketime) = glob('/usr/lib/*/faketime/libfaketime.so.1');
die 'there is no libfaketime.so.1: install the package libfaketime, as test/harness/packages test does' unless defined $faketime;

my $dir = PostgreSQL::Test::Utils::tempdir;

# Sets the wall clock of a node to so many seconds beside the true one, also while it runs.
sub set_clock
{
	my ($node, $seconds) = @_;
	my $file = "$dir/clock-" . $node->name;

	# whoever reads it meets one or the other
	append_to_file("$file.new", sprintf("%+d\n", $seconds));
	rename("$file.new", $file) or die "rename: $!";
	return;
}

# What a program needs in its environment to have the wall clock of a node, and the true monotonic one.
sub clock_environment
{
	my ($node) = @_;

	return (
		LD_PRELOAD => $faketime,
		FAKETIME_TIMESTAMP_FILE => "$dir/clock-" . $node->name,
		FAKETIME_NO_CACHE => 1,
		FAKETIME_DONT_FAKE_MONOTONIC => 1);
}

# pg_ctl compares times with the server, so it has the same clock.
sub start
{
	my ($node) = @_;
	local %ENV = (%ENV, clock_environment($node));

	$node->start;
	return;
}

# How far the server's wall clock is from ours; and how far both clocks are that a program with the server's environment reads.
sub clocks
{
	my ($node) = @_;
	my $wall = $node->safe_psql('postgres', 'SELECT extract(epoch FROM clock_timestamp())') - time;
	local %ENV = (%ENV, clock_environment($node));

	# without a shell, which would leave files of the library behind
	open my $program, '-|', $^X, '-MTime::HiRes=clock_gettime,CLOCK_MONOTONIC', '-e', 'print time, q( ), clock_gettime(CLOCK_MONOTONIC)'
	  or die "perl: $!";
	my ($its_wall, $its_monotonic) = split ' ', <$program>;
	close $program or die "perl: $!";
	return ($wall, $its_wall - time, $its_monotonic - monotonic());
}

sub clock_is
{
	my ($node, $seconds, $when) = @_;
	my ($wall, $its_wall, $its_monotonic) = clocks($node);

	cmp_ok(abs($wall - $seconds), '<', 60, "$when: the server's wall clock is $seconds s from the true one")
	  or die('the wall clock cannot be set: this test would prove nothing');
	cmp_ok(abs($its_wall - $seconds), '<', 60, "$when: so is that of any program with its environment");
	cmp_ok(abs($its_monotonic), '<', 60, "$when: the monotonic clock is not")
	  or die('the monotonic clock was set, too: this test would prove nothing');
	return;
}

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(allows_streaming => 1);
$node->append_conf('postgresql.conf', "log_statement = none\nmax_connections = 50");
set_clock($node, 0);
start($node);
$node->safe_psql('postgres', 'CREATE EXTENSION revenant');
clock_is($node, 0, 'at the start');
my $watch = Client->new($node);
my $quiet = $watch->query("SELECT revenant.acquire('quiet', ttl => '30 min', holder => 'me')");

# The extension's own reading: of half an hour there is more left than a minute less than that, whatever the wall clock was set to.
sub half_an_hour_is_left
{
	my ($when) = @_;

	is( $watch->query("SELECT remaining BETWEEN '29 min' AND '30 min', deadline - clock_timestamp() BETWEEN '29 min' AND '30 min'"
			  . " FROM revenant.leases WHERE lease = 'quiet'"),
		't|t', "$when: of half an hour there is as much left as before");
	return;
}

foreach my $seconds ($hour, -$hour, 0)
{
	set_clock($node, $seconds);
	clock_is($node, $seconds, 'set while it runs');
	half_an_hour_is_left("wall clock at $seconds s");
}

# ---- leases that are renewed: whoever waits for one does not get it

# Renews; from before it was sent the holder counts.
sub renew
{
	my ($held) = @_;
	my $renewed = $held->{holder}->query("SELECT revenant.renew('$held->{lease}', $held->{token}) IS NOT NULL");

	@$held{qw(sent got)} = @{ $held->{holder} }{qw(sent got)} if $renewed eq 't';
	return $renewed eq 't';
}

# A ttl lease, its holder's session, and somebody who waits for it.
sub hold_and_wait
{
	my ($lease, $ttl, $waiting) = @_;
	my %held = (lease => $lease, ttl => $ttl, holder => Client->new($node), waiter => Client->new($node));

	$held{token} = $held{holder}->query("SELECT revenant.acquire('$lease', ttl => '$ttl s')");
	@held{qw(sent got)} = @{ $held{holder} }{qw(sent got)};
	$held{waiter}->send($waiting // "SELECT revenant.acquire('$lease', ttl => '1 h')");
	return \%held;
}

my @held = map { hold_and_wait("renewed-$_", 2) } 1 .. 4;
my $rival = Client->new($node)->send("SELECT revenant.acquire('quiet', ttl => '1 h')");
my ($renewals, $lost) = (0, 0);
foreach my $seconds ($hour, 0, -$hour, 0)
{
	set_clock($node, $seconds);
	foreach my $round (1 .. 6)
	{
		renew($_) ? $renewals++ : $lost++ foreach @held;
		$watch->query("SELECT revenant.try_acquire('$_->{lease}', ttl => '1 h')") eq '' or $lost++ foreach @held;
		answers(monotonic() + 0.04, $rival, map { $_->{waiter} } @held);
	}
	half_an_hour_is_left("wall clock set to $seconds s under holders that renew");
}
is("$renewals renewed, $lost lost", '96 renewed, 0 lost', 'every renewal holds, whatever the wall clock does');
is(scalar(grep { !$_->{waiter}{busy} } @held), 0, 'nobody who waits gets a lease that is renewed');
ok($rival->{busy}, 'nor one whose time is not over');

# ---- leases that are not renewed any more: free at the deadline, not before, not later

# When each waiter got it, beside the last renewal; the clock is set while they sleep.
sub times_after_renewal
{
	my ($from, $to, @held) = @_;

	set_clock($node, $from);
	renew($_) or die 'lost' foreach @held;
	set_clock($node, $to);
	my $all = answers(monotonic() + $patience, map { $_->{waiter} } @held);
	ok($all, "set from $from s to $to s: whoever waits gets the lease of a holder that renews no more");
	return unless $all;
	my @early = grep { $_->{waiter}{got} < $_->{sent} + $_->{ttl} } @held;
	my ($best) = sort { $a <=> $b } map { $_->{waiter}{got} - $_->{got} - $_->{ttl} } @held;
	is(scalar @early, 0, "set from $from s to $to s: none of them before the holder's own deadline");
	cmp_ok($best, '<=', $late, "set from $from s to $to s: within 50 ms after it");
	diag(sprintf 'from %d to %d s: %s ms after the deadline', $from, $to,
		join ', ', map { sprintf '%.1f', 1000 * ($_->{waiter}{got} - $_->{got} - $_->{ttl}) } @held);
	foreach my $one (@held)
	{
		ok(!renew($one), "the old token of $one->{lease} is lost");
		cmp_ok($one->{waiter}->answer, '>', $one->{token}, 'and a newer one is there');
		$_->quit foreach @$one{qw(holder waiter)};
	}
	return;
}

times_after_renewal(0, $hour, @held);
times_after_renewal($hour, 0, map { hold_and_wait("lapsing-a-$_", 0.5) } 1 .. 4);
times_after_renewal(0, -$hour, map { hold_and_wait("lapsing-b-$_", 0.5) } 1 .. 4);
times_after_renewal(-$hour, $hour, map { hold_and_wait("lapsing-c-$_", 0.5) } 1 .. 4);

# ---- every other time that somebody waits for

my $owner = Client->new($node);
$owner->query("SELECT revenant.acquire('session')");
my @bounded = (
	[ 'acquire behind a ttl holder', "SELECT revenant.acquire('quiet', wait => '600 ms')" ],
	[ 'await_lease behind a ttl holder', "CALL revenant.await_lease('ttl-too', wait => '600 ms')" ],
	[ 'lock_timeout behind a ttl holder', "SET lock_timeout = '600 ms'; SELECT revenant.acquire('ttl-three')" ],
	[ 'acquire_all', "SELECT revenant.acquire_all('{free,ttl-four}', wait => '600 ms')" ],
	[ 'acquire in the queue of a session', "SELECT revenant.acquire('session', wait => '600 ms')" ],
	[ 'await_lease in the queue of a session', "CALL revenant.await_lease('session', wait => '600 ms')" ],
	[ 'await_change', "CALL revenant.await_change('quiet', :seen, '600 ms')" ],
	[ 'hold_off', "SELECT revenant.acquire('off', wait => '1 min')", 1 ],
	[ 'lock_delay', "SELECT revenant.acquire('delayed', wait => '1 min')", 1 ]);
# it is the head of the queue for this lease
$watch->query('SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE query ~ \'acquire\\(.quiet\' AND pid <> pg_backend_pid()');
$watch->query("SELECT revenant.acquire('$_', ttl => '1 h')") foreach qw(ttl-too ttl-three ttl-four);
# A signal handler that interrupts a wait reads the true clock, since the library lets the waiting call alone. So both steps
# end at the true time: then what such a handler reads is what it would read after a real step.
foreach my $from (-$hour, $hour)
{
	my $to = 0;

	set_clock($node, $from);
	my $seen = $watch->query("CALL revenant.await_change('quiet')");
	my @clients = map { Client->new($node) } @bounded;
	$watch->query("SELECT revenant.release('off', revenant.acquire('off', ttl => '1 min'), hold_off => '600 ms')");
	my ($begin, $began) = @$watch{qw(sent got)};
	$watch->query("SELECT revenant.acquire('delayed', ttl => '200 ms', lock_delay => '400 ms')");
	my ($begin_delayed, $began_delayed) = @$watch{qw(sent got)};
	foreach my $i (0 .. $#bounded)
	{
		$clients[$i]->send($bounded[$i][1] =~ s/:seen/$seen/r);
	}
	# all of them wait
	$watch->query(q{DO $$ BEGIN
		WHILE (SELECT count(*) FROM pg_stat_activity WHERE wait_event_type IN ('Lock', 'Extension') AND backend_type = 'client backend') < }
		  . scalar(@bounded) . q{ LOOP PERFORM pg_stat_clear_snapshot(); END LOOP; END $$});
	set_clock($node, $to);
	answers(monotonic() + $patience, @clients);
	foreach my $i (0 .. $#bounded)
	{
		my ($name, undef, $gets) = @{ $bounded[$i] };
		my ($earliest, $latest) = ($clients[$i]{sent}) x 2;

		($earliest, $latest) = ($begin, $began) if $name eq 'hold_off';
		($earliest, $latest) = ($begin_delayed, $began_delayed) if $name eq 'lock_delay';
		if ($clients[$i]{busy})
		{
			fail("set from $from s to $to s: $name has an end");
			$watch->query("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE wait_event_type IN ('Lock', 'Extension')"
				  . " AND backend_type = 'client backend'");
			answers(monotonic() + $patience, $clients[$i]);
			next;
		}
		my ($after, $over) = ($clients[$i]{got} - $earliest, $clients[$i]{got} - $latest);
		is(($clients[$i]{rows}[0] // '') =~ /^\d+$/ ? 'gets it' : 'does not', $gets || $name eq 'await_change' ? 'gets it' : 'does not',
			"$name: what it says");
		cmp_ok($after, '>=', 0.6, "set from $from s to $to s: $name ends no earlier than it should");
		cmp_ok($over, '<=', 0.6 + 0.5, "set from $from s to $to s: $name ends no later than it should");
		$clients[$i]->quit;
	}
	$watch->query("SELECT pg_stat_clear_snapshot()");
}
$owner->quit;
$watch->quit;

# ---- while the server is down, and before a standby is promoted

my $ttl = 0.5;
my $delay = 1;		# longer than a start takes, so that what is too early is seen

sub client_says
{
	my ($server, $query) = @_;
	my $client = Client->new($server);
	my $answer = $client->query($query);

	$client->quit;
	return $answer;
}

# Leases that are held when the server goes.
sub hold_some
{
	my ($what) = @_;
	my $client = Client->new($node);
	my %held = (what => $what);

	foreach (1 .. 3)
	{
		my $token = $client->query("SELECT revenant.acquire('short-$_-$what', ttl => '$ttl s', lock_delay => '$delay s')");
		push @{ $held{short} }, { lease => "short-$_-$what", token => $token, believed => $client->{sent} + $ttl };
	}
	foreach (@{ $held{short} })
	{
		my $renewed = $client->query("SELECT revenant.renew('$_->{lease}', $_->{token}) IS NOT NULL");
		$_->{believed} = $client->{sent} + $ttl if $renewed eq 't';
	}
	$held{long} = $client->query("SELECT revenant.acquire('long-$what', ttl => '30 min')");
	$held{renewed} = $client->query("SELECT revenant.acquire('renewed-$what', ttl => '20 s')");
	$held{off} = $client->query("SELECT revenant.release('off-$what', revenant.acquire('off-$what'), hold_off => '30 min')");
	$client->quit;
	return \%held;
}

my %after_deadline;		# ms, of each kind of start

# What is true of them after `begin`, when the server cannot have accepted writes yet.
sub still_held
{
	my ($server, $held, $kind, $when, $begin) = @_;
	my $what = $held->{what};
	my $client = Client->new($server);

	is( $client->query("SELECT revenant.is_current('long-$what', $held->{long}), revenant.renew('long-$what', $held->{long}) IS NOT NULL,"
			  . " revenant.is_current('renewed-$what', $held->{renewed}), revenant.renew('renewed-$what', $held->{renewed}) IS NOT NULL"),
		't|t|t|t', "$when: who held a lease holds it, and renews it by the token it had");
	my $up = $client->{got};
	my @waiters = map { Client->new($server)->send("SELECT revenant.acquire('$_->{lease}', ttl => '1 h')") } @{ $held->{short} };
	is( $client->query("SELECT revenant.try_acquire('long-$what', ttl => '1 h') IS NULL, revenant.try_acquire('renewed-$what') IS NULL,"
			  . " revenant.try_acquire('off-$what') IS NULL"),
		't|t|t', "$when: nobody else gets it, nor what is held off");
	is( $client->query("SELECT remaining BETWEEN '29 min' AND '30 min', deadline - clock_timestamp() BETWEEN '29 min' AND '30 min'"
			  . " FROM revenant.leases WHERE lease = 'long-$what'"),
		't|t', "$when: half an hour is as long as ever");

	ok(answers(monotonic() + $patience, @waiters), "$when: whoever waits for a short lease gets it") or return;
	foreach my $i (0 .. $#waiters)
	{
		my $one = $held->{short}[$i];

		cmp_ok($waiters[$i]{got}, '>=', $one->{believed}, "$when: not before its holder believes it to be over");
		cmp_ok($waiters[$i]{got}, '>=', $begin + $ttl + $delay, "$when: nor before its ttl and lock_delay after the start");
		push @{ $after_deadline{$kind} }, $waiters[$i]{got} - $up - $ttl - $delay;
		cmp_ok($waiters[$i]->answer, '>', $one->{token}, "$when: the token is a newer one");
		is($client->query("SELECT revenant.is_current('$one->{lease}', $one->{token}), revenant.renew('$one->{lease}', $one->{token}) IS NULL"),
			'f|t', "$when: the old one is lost");
	}
	$_->quit foreach $client, @waiters;
	return;
}

foreach my $case ([ 'fast', $hour ], [ 'fast', -$hour ], [ 'immediate', $hour ], [ 'immediate', -$hour ])
{
	my ($how, $seconds) = @$case;
	my $when = sprintf 'stopped (%s), set by %+d s', $how, $seconds;

	set_clock($node, 0);
	my $held = hold_some("$how$seconds");
	$node->stop($how);
	set_clock($node, $seconds);
	my $begin = monotonic();
	start($node);
	clock_is($node, $seconds, $when);
	still_held($node, $held, $how, $when, $begin);
}

set_clock($node, 0);
$node->backup('base');
my @standbys = map { PostgreSQL::Test::Cluster->new($_) } qw(ahead behind);
foreach my $standby (@standbys)
{
	$standby->init_from_backup($node, 'base', has_streaming => 1);
	set_clock($standby, 0);
	start($standby);
}
my $held = hold_some('promotion');
$node->wait_for_catchup($_, 'replay', $node->lsn('flush')) foreach @standbys;
$node->stop('immediate');
foreach my $i (0, 1)
{
	my $seconds = $i == 0 ? $hour : -$hour;
	my $when = sprintf 'promoted, set by %+d s', $seconds;

	set_clock($standbys[$i], $seconds);
	my $begin = monotonic();
	$standbys[$i]->promote;
	clock_is($standbys[$i], $seconds, $when);
	still_held($standbys[$i], $held, 'promotion', $when, $begin);
	$standbys[$i]->stop;
}

foreach my $kind (sort keys %after_deadline)
{
	my @sorted = sort { $a <=> $b } @{ $after_deadline{$kind} };

	cmp_ok($sorted[0], '<=', $late, "$kind: free within 50 ms after the deadline that counts from the start");
	diag(sprintf '%s: %s ms after the first answer, ttl and lock_delay', $kind, join ', ', map { sprintf '%.1f', 1000 * $_ } @sorted);
}

done_testing();
