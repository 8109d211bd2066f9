# The launcher and the supervisors do not grow, however long they live: more than a day of their ticks, with tasks of all kinds, in
# as little time as it takes them.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";

use Asks;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $ticks = 18_000;			# after the first ones
my $first = 2_000;			# in which whatever is made once is made
my $batch = 500;
my $apart = '5 s';			# a supervisor that nobody wakes ticks every ten seconds at least
my $growth = 128 * 1024;	# bytes that are no growth: what is freed and taken again does not lie as it did before
my $leak = 16;				# bytes of each of them that must be noticed

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', 'revenant.max_runners = 8');
$node->start;
asks($node);
sql('CREATE EXTENSION revenant');

# --- what is measured

my %pid;

sub find_workers
{
	foreach my $who ('launcher', 'supervisor')
	{
		becomes("SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'revenant $who'", "there is a $who");
		$pid{$who} = sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'revenant $who'");
	}
	return;
}

# Bytes in use in all of a process's memory contexts, as it says itself.
sub contexts
{
	my ($who) = @_;
	my $from = -s $node->logfile;
	my $total = qr/\[$pid{$who}\] .*Grand total: \d+ bytes in \d+ blocks; .* (\d+) used/;

	is(sql("SELECT pg_log_backend_memory_contexts($pid{$who})"), 't', "the $who is asked for its memory");
	$node->wait_for_log($total, $from);
	substr(slurp_file($node->logfile), $from) =~ $total or die 'no total';
	return $1;
}

# Bytes of a process that belong to no file and no shared memory: what does not come from a memory context is in there, too.
# Nothing where nobody can tell.
sub anonymous
{
	my ($who) = @_;

	open(my $status, '<', "/proc/$pid{$who}/status") or return;
	my ($kilobytes) = map { /^RssAnon:\s*(\d+) kB/ } <$status>;
	close($status);
	return defined $kilobytes ? $kilobytes * 1024 : undef;
}

sub measure
{
	my %size;

	foreach my $who ('launcher', 'supervisor')
	{
		$size{"memory contexts of the $who"} = contexts($who);
		my $anonymous = anonymous($who);
		$size{"memory of its own of the $who"} = $anonymous if defined $anonymous;
	}
	return \%size;
}

# What has grown by more than that.
sub grown
{
	my ($before, $after, $limit) = @_;

	return map { sprintf '%s: from %d to %d bytes', $_, $before->{$_}, $after->{$_} }
	  grep { $after->{$_} - $before->{$_} > $limit } sort keys %$before;
}

# In transactions of their own. Meanwhile tasks come and go, and leases lapse.
sub tick
{
	my ($count) = @_;
	my $done = 0;

	while ($done < $count)
	{
		sql("SELECT revenant._debug_tick($batch, '$apart')");
		$done += $batch;
		sql("SELECT revenant.drop_task(name) FROM revenant.tasks WHERE name LIKE 'passing%'");
		sql("SELECT revenant.create_task('passing $done ' || n, 'SELECT 1', '1 h') FROM generate_series(1, 5) AS n");
		sql("SELECT count(revenant.try_acquire('lapsing $done ' || n, ttl => '1 s')) FROM generate_series(1, 20) AS n");
	}
	return;
}

# --- tasks of all kinds, about fifty

sql(q{
	CREATE ROLE leaves LOGIN;
	CREATE PROCEDURE busy() LANGUAGE plpgsql AS $$ BEGIN FOR i IN 1 .. 3 LOOP PERFORM i; COMMIT; END LOOP; END $$;
	SELECT revenant.create_task('interval ' || n, 'SELECT 1', n || ' h') FROM generate_series(1, 7) AS n;
	SELECT revenant.create_task('calendar ' || n, 'SELECT 1', n || '-59/7 3 * jan-jun mon,fri') FROM generate_series(1, 5) AS n;
	SELECT revenant.create_task('zone ' || n, 'SELECT 1', '@weekly', timezone => 'Europe/Berlin') FROM generate_series(1, 3) AS n;
	SELECT revenant.create_task('at start', 'SELECT 1', '@reboot');
	SELECT revenant.create_task('often ' || n, 'CALL public.busy()', n || ' s') FROM generate_series(1, 2) AS n;
	SELECT revenant.create_task('every second', 'SELECT 1', '* * * * * *');
	SELECT revenant.create_task('failing ' || n, 'SELECT 1/0', backoff_max => '1 h', max_restarts => 100, restart_window => '1 us') FROM generate_series(1, 6) AS n;
	SELECT revenant.create_task('failing by schedule', 'SELECT 1/0', '1 s', backoff_max => '1 h', max_restarts => 100, restart_window => '1 us');
	SELECT revenant.create_task('given up ' || n, 'SELEC 1', max_restarts => 0) FROM generate_series(1, 2) AS n;
	SELECT revenant.create_task('once ' || n, 'SELECT 1', restart => 'temporary') FROM generate_series(1, 2) AS n;
	SELECT revenant.create_task('endless ' || n, 'SELECT pg_sleep(36000)', lease => 'their only one') FROM generate_series(1, 2) AS n;
	SELECT revenant.create_task('disabled ' || n, 'SELECT 1', '1 min', enabled => false) FROM generate_series(1, 5) AS n;
	SELECT revenant.create_task('held by its role ' || n, 'SELECT 1', '1 min', run_as => 'leaves') FROM generate_series(1, 3) AS n;
	SELECT revenant.create_task('held by its schedule ' || n, 'SELECT 1', '1 min') FROM generate_series(1, 3) AS n;
	SELECT revenant.create_task('held by its row ' || n, 'SELECT ' || quote_literal((SELECT string_agg(md5(n || ' ' || i), '') FROM generate_series(1, 500) AS i)), '1 min') FROM generate_series(1, 2) AS n;
	SELECT revenant.create_task('of elsewhere ' || n, 'SELECT 1', '1 min') FROM generate_series(1, 2) AS n;
	SELECT revenant.create_task(repeat('long ', 90), 'SELECT 1', '5 h', settings => '{"work_mem": "8MB"}', metadata => '{"any": 1}');
	ALTER ROLE leaves RENAME TO has_left;
	UPDATE revenant.task SET schedule = 'now and then' WHERE name LIKE 'held by its schedule%';
	UPDATE revenant.task SET system_identifier = 1 WHERE name LIKE 'of elsewhere%';
	CREATE EXTENSION pg_surgery;
});
# what those two commands consist of is lost
my $toast = sql("SELECT reltoastrelid::regclass FROM pg_class WHERE oid = 'revenant.task'::regclass");
sql("SELECT heap_force_kill('$toast'::regclass, array_agg(ctid)) FROM $toast");
find_workers();
# nobody was told of that
sql("SELECT revenant._debug_tick(2, '0')");
foreach my $expected ([ scheduled => 'interval', 7 ], [ scheduled => 'calendar', 5 ], [ scheduled => 'zone', 3 ], [ quarantined => 'given up', 2 ],
	[ finished => 'once', 2 ], [ leading => 'endless', 1 ], [ claiming => 'endless', 1 ], [ disabled => 'disabled', 5 ], [ held => 'held by', 8 ], [ held => 'of elsewhere', 2 ])
{
	my ($phase, $kind, $count) = @$expected;

	becomes("SELECT count(*) = $count FROM revenant.tasks WHERE phase = '$phase' AND name LIKE '$kind%'", "$kind: $phase");
}

# --- more than a day of ticks

my $start = time;
tick($first);
my $before = measure();
tick($ticks);
my $after = measure();
my $virtual = ($first + $ticks) * 5 / 3600;
diag(sprintf '%d ticks, %.0f hours of them, in %.1f s', $first + $ticks, $virtual, time - $start);
diag(sprintf '%s: from %d to %d bytes', $_, $before->{$_}, $after->{$_}) foreach sort keys %$after;
cmp_ok($virtual, '>', 24, 'more than a day');
is(join("\n", grown($before, $after, $growth)), '', "nothing grows in $ticks ticks");

my %same = %pid;
find_workers();
is_deeply(\%pid, \%same, 'by the same processes');
cmp_ok(sql("SELECT min(failures) FROM revenant.tasks WHERE name ~ '^failing \\d'"), '>', 10, 'the failing tasks were tried again and again');
cmp_ok(sql("SELECT min(runs) FROM revenant.tasks WHERE name LIKE 'often%' OR name = 'every second'"), '>', 1, 'what is due often ran often');
cmp_ok(sql("SELECT count(*) FROM revenant.lease WHERE name LIKE 'lapsing %'"), '<=', 20, 'and what lapsed was swept');
unlike(slurp_file($node->logfile), qr/cannot go from phase|supervisor could not|TRAP/, 'no step failed');

# --- ticks that leave a little behind would be noticed; fewer of them show it, with as much more each

$before = measure();
sql('SELECT revenant._debug_leak(' . $leak * $ticks / $first . ')');
tick($first);
sql('SELECT revenant._debug_leak(0)');
my @grown = grown($before, measure(), $growth);
is(scalar(grep { /memory contexts/ } @grown), 2, "what is left behind is noticed, $leak bytes of each tick");
diag($_) foreach @grown;

$node->stop;
done_testing();
