# Twenty thousand live ttl leases: nobody waits for the sweep of as many that lapsed, a restart keeps every live one, and what
# shows them is right.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Client qw(answers monotonic);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $many = 20000;
my $at_once = 1000;		# what one transaction may do
my $asked_for = 10;	# of the lapsed ones, each that has such a number
my $some = 20;
my $longest_wait = 0.100;
my $longest_sweep = 45;		# the next one comes after a minute

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "log_statement = none");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION revenant; CREATE TABLE held (kind text, i int, token bigint, PRIMARY KEY (kind, i))');

my $watch = Client->new($node);

# Says how long something took; no more than that, since machines differ.
sub timed
{
	my ($what, $query) = @_;
	my $answer = $watch->query($query);

	diag(sprintf '%s: %.2f s', $what, $watch->{got} - $watch->{sent});
	return $answer;
}

# $many leases of a kind, in transactions that do as much as one may.
sub acquire_many
{
	my ($kind, $ttl) = @_;

	timed("acquire $many with ttl $ttl", "DO \$\$ BEGIN
		FOR base IN 0 .. $many - 1 BY $at_once LOOP
			INSERT INTO held SELECT '$kind', i, revenant.try_acquire('$kind-' || i, ttl => '$ttl')
			  FROM generate_series(base + 1, base + $at_once) AS i;
			COMMIT;
		END LOOP;
	END \$\$");
	is($watch->query("SELECT count(DISTINCT token) FROM held WHERE kind = '$kind'"), $many, "$many leases, each with a token of its own");
	return;
}

# Another supervisor sweeps as soon as it comes.
sub make_it_sweep
{
	ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'"), 'there is a supervisor');
	is($watch->query("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'"),
		't', 'the supervisor ends, and another one comes');
	return;
}

# What clients do while it sweeps, again and again: a statement, what it says, and what follows when that was a token.
my @loops = (
	{
		what => 'renew a live lease',
		next => sub { my $i = 1 + int rand $many; return "SELECT revenant.renew('live-' || i, token) IS NOT NULL FROM held WHERE (kind, i) = ('live', $i)" },
		right => qr/^t$/
	},
	{
		# they lapsed still when it has rolled back, and are in the sweep's way again and again
		what => "acquire $some that lapsed",
		next => sub { return "BEGIN; SELECT count(revenant.acquire('lapsed-' || i, ttl => '1 h')) = count(*)"
			  . " FROM (SELECT DISTINCT $asked_for * (1 + floor(random() * $many / $asked_for)::int) AS i FROM generate_series(1, $some)) AS s; ROLLBACK" },
		right => qr/^t$/
	},
	{
		what => 'acquire and release another one',
		next => sub { return "SELECT revenant.release('other', revenant.acquire('other', ttl => '1 h'))" },
		right => qr/^t$/
	},
	{
		what => 'acquire and release in session scope',
		next => sub { return "SELECT revenant.acquire('session')" },
		then => sub { my ($loop, $token) = @_; return "SELECT revenant.release('session', $token)" },
		right => qr/^(?:t|\d+)$/
	});

# The longest that anybody had to wait for an answer until no lapsed lease is left but those that are asked for, and
# whether that came to be.
sub sweep_beside_clients
{
	my $counter = Client->new($node);
	my ($left, %longest, %answers, %wrong);

	$_->{client} = Client->new($node) foreach @loops;
	make_it_sweep();
	my $begun = monotonic();
	do
	{
		my @busy = map { $_->{client} } @loops;

		$_->{client}->send($_->{query} // $_->{next}->($_)) foreach @loops;
		$counter->send("SELECT count(*) FROM revenant.lease WHERE name ~ '^lapsed' AND substr(name, 8)::int % $asked_for <> 0");
		answers(monotonic() + $PostgreSQL::Test::Utils::timeout_default, $counter, @busy) or die 'no answer';
		foreach my $loop (@loops)
		{
			my ($client, $what) = @$loop{qw(client what)};
			my $took = $client->{got} - $client->{sent};
			my $said = $client->answer;

			$longest{$what} = $took if $took > ($longest{$what} // 0);
			$answers{$what}++;
			$wrong{$what} = $said unless $said =~ $loop->{right};
			$loop->{query} = $loop->{then} && $said =~ /^\d+$/ ? $loop->{then}->($loop, $said) : undef;
		}
		$left = $counter->answer;
	} while (monotonic() < $begun + $longest_sweep && ($left > 0 || grep { $_->{query} } @loops));
	is($left, 0, "the sweep leaves none of $many that lapsed, of those that nobody asks for");
	diag(sprintf 'swept in %.1f s', monotonic() - $begun);
	foreach my $loop (@loops)
	{
		$loop->{client}->query(delete $loop->{query}) if defined $loop->{query};
		$loop->{client}->quit;
	}
	$counter->quit;
	make_it_sweep();
	ok($node->poll_query_until('postgres', "SELECT count(*) = 0 FROM revenant.lease WHERE name ~ '^lapsed'"), 'and the next one none of the others');
	foreach my $what (map { $_->{what} } @loops)
	{
		is($wrong{$what}, undef, "$what: every answer is right");
		cmp_ok($answers{$what}, '>', 1, "$what: more than one while it sweeps");
		diag(sprintf '%s: %d answers, the longest after %.1f ms', $what, $answers{$what}, 1000 * $longest{$what});
	}
	return ((sort { $b <=> $a } values %longest)[0], $left == 0);
}

# What is true of the live ones, whatever happened.
sub all_live
{
	my ($when) = @_;

	is(timed("renew $many", "SELECT count(revenant.renew('live-' || i, token)) FROM held WHERE kind = 'live'"),
		$many, "$when: every live lease is renewed by its token");
	is(timed("ask for $at_once", "SELECT count(revenant.try_acquire('live-' || i, ttl => '1 h')) FROM generate_series(1, $at_once) AS i"),
		0, "$when: nobody else gets one");
	is( timed('the view', "SELECT count(*), count(DISTINCT l.lease), bool_and(l.token = h.token), bool_and(l.ttl = '1 h'), bool_and(l.remaining BETWEEN '50 min' AND '1 h')"
			  . " FROM revenant.leases AS l LEFT JOIN held AS h ON h.kind = 'live' AND l.lease = 'live-' || h.i"),
		"$many|$many|t|t|t", "$when: the view shows them all, and nothing else");
	my $i = 1 + int rand $many;
	like(timed('explain_lease', "SELECT revenant.explain_lease('live-$i')"),
		qr/^"live-$i" is held in ttl scope by role .*it lapses in 3[0-9]{3}\./s, "$when: explain_lease() says who holds one of them");
	is($watch->query('SELECT count(*) FROM revenant.lease'), $many, "$when: each has its row");
	return;
}

acquire_many('live', '1 h');
all_live('at first');

# The best of three, since a machine has other things to do, too.
my ($longest, $swept) = (1000, 0);
foreach my $try (1 .. 5)
{
	# no sweep of its own accord may come while these lapse: another supervisor has just looked, and looks again in a minute
	make_it_sweep();
	ok($node->poll_query_until('postgres', "SELECT count(*) = $many FROM revenant.lease"), 'nothing is left of what lapsed before');
	acquire_many('lapsed', '100 ms');
	ok($node->poll_query_until('postgres', "SELECT count(*) = 0 FROM revenant.leases WHERE lease ~ '^lapsed'"), 'all of these lapse');
	my $rows = $watch->query('SELECT count(*) FROM revenant.lease');
	if ($rows < 2 * $many)
	{
		diag("a sweep came first: $rows rows");
		$watch->query("DELETE FROM held WHERE kind = 'lapsed'");
		next;
	}
	($longest, $swept) = sweep_beside_clients();
	$watch->query("DELETE FROM held WHERE kind = 'lapsed'");
	last if $longest <= $longest_wait || !$swept;
}
cmp_ok($longest, '<=', $longest_wait, 'nobody waits for the sweep');
all_live('after the sweep');

foreach my $how ('fast', 'immediate')
{
	$watch->quit;
	$node->stop($how);
	$node->start;
	$watch = Client->new($node);
	make_it_sweep();
	all_live("stopped ($how) and started");
}
is(timed("release $at_once", "SELECT count(*) FILTER (WHERE revenant.release('live-' || i, token)) FROM held WHERE kind = 'live' AND i <= $at_once"),
	$at_once, 'they can be released');
is(timed("acquire $at_once", "SELECT count(revenant.try_acquire('live-' || i, ttl => '1 h')) FROM generate_series(1, $at_once) AS i"),
	$at_once, 'and are free then');

$watch->quit;
$node->stop;
done_testing();
