# A server with tasks stops as fast as one without, whatever they are about; what ran comes back after the start, once; and no run is
# "running" for ever. Nothing here needs SIGKILL, so there is no crash but the one that the test makes.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use Client qw(monotonic);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(allows_streaming => 1);
# waits for a standby that does not exist are the exception here: only a task asks for them
$node->append_conf('postgresql.conf', "max_worker_processes = 40\nrevenant.max_runners = 24\nrestart_after_crash = on
synchronous_commit = local\nsynchronous_standby_names = 'nobody'\nautovacuum = off");
$node->start;
asks($node);

sql(q{
	CREATE EXTENSION revenant;
	CREATE TABLE log (task text, token bigint, at timestamptz DEFAULT clock_timestamp());
	CREATE TABLE twice (task text, pid int);
	-- the first thing that each run does: this lock is free unless another run of the task still lives
	CREATE PROCEDURE begin_run() LANGUAGE plpgsql AS $$
	BEGIN
		IF NOT pg_try_advisory_lock(hashtext(revenant.current_task())) THEN
			INSERT INTO public.twice VALUES (revenant.current_task(), pg_backend_pid());
		END IF;
		INSERT INTO public.log VALUES (revenant.current_task(), revenant.current_token());
	END $$;
});

# What each task does after that, its options, and what is seen of it: its phase, and what its process waits for.
my %task = (
	idle => [ 'SELECT pg_sleep(3600)', '', 'leading PgSleep' ],
	busy => [ 'DO $$ BEGIN LOOP END LOOP; END $$', '', 'leading' ],
	stubborn => [ 'DO $$ BEGIN LOOP BEGIN PERFORM pg_sleep(3600); EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; END $$', '', 'leading PgSleep' ],
	commits => [ 'SET synchronous_commit = on; CREATE TABLE IF NOT EXISTS public.waits (); INSERT INTO public.waits DEFAULT VALUES', '', 'leading SyncRep' ],
	block => [ 'BEGIN; LOCK TABLE revenant.lease IN ACCESS SHARE MODE; SELECT pg_sleep(3600)', '', 'leading PgSleep' ],
	later => [ 'SELECT 1', ", '1 h'", 'scheduled' ],
	fails => [ 'SELECT 1/0', ", backoff_max => '1 h', backoff_min => '1 h'", 'backoff' ],
	waiting => [ 'SELECT pg_sleep(3600)', ", lease => 'taken'", 'claiming userlock' ]);
# who has what the last one waits for
$task{holder} = [ 'SELECT pg_sleep(3600)', ", lease => 'taken'", 'leading PgSleep' ];
# somebody of these is being started all the time
my @brief = map { "brief $_" } 1 .. 4;
my @tasks = sort keys %task;

sub create
{
	my ($name, $command, $options) = @_;
	$command =~ s/'/''/g;
	sql("SELECT revenant.create_task('$name', 'CALL public.begin_run(); $command'$options" . ($options =~ /backoff/ ? ')' : ", backoff_min => '10 ms')"));
	return;
}

# Whether all tasks do what they should, as a query.
my $expected = join ', ', map { "('$_', '$task{$_}[2]')" } @tasks;
my $all_work = "SELECT NOT EXISTS (
	SELECT FROM (VALUES $expected) AS e (name, seen) LEFT JOIN revenant.tasks AS t USING (name)
	LEFT JOIN pg_stat_activity AS a ON a.pid = t.pid AND a.backend_type = 'revenant runner'
	WHERE concat_ws(' ', t.phase, a.wait_event) IS DISTINCT FROM e.seen)";
my $open = 'FROM revenant.task_state AS s WHERE s.started_at IS NOT NULL AND s.finished_at IS NULL';
# "waiting" and "holder" may have changed places
my $swapped = $all_work =~ s/'holder'/'x'/r =~ s/'waiting'/'holder'/r =~ s/'x'/'waiting'/r;

sub work
{
	my ($name) = @_;
	my $start = monotonic();

	becomes("SELECT ($all_work) OR ($swapped)", $name) or die sql("SELECT string_agg(concat_ws(' ', t.name, t.phase, t.reason, t.last_error, a.wait_event), E'\n')
		FROM revenant.tasks AS t LEFT JOIN pg_stat_activity AS a USING (pid) WHERE t.name NOT LIKE 'brief%'");
	return monotonic() - $start;
}

# Everything is as if nothing had happened, but for greater tokens.
my %token;
sub come_back
{
	my ($name) = @_;

	work("$name: all tasks are at it again");
	my $briefly = sql("SELECT count(*) FROM log WHERE task LIKE 'brief%'");
	becomes("SELECT count(*) > $briefly FROM log WHERE task LIKE 'brief%'", '... and the brief ones');
	becomes("SELECT NOT EXISTS (SELECT $open AND NOT EXISTS (SELECT FROM pg_stat_activity AS a WHERE a.pid = s.pid AND a.backend_type = 'revenant runner'))",
		'... no run is running for ever');
	is(sql('SELECT count(*) FROM twice'), 0, '... nothing ran twice at once');
	is(sql("SELECT string_agg(name, ' ') FROM revenant.tasks WHERE failures > 0 AND name <> 'fails'"), '', '... nothing of that is a failure');
	is(sql("SELECT count(*) FROM log WHERE task = 'fails'"), 1, '... what waits for its backoff still does');
	foreach my $task ('idle', 'busy', 'stubborn', 'block')
	{
		my $token = sql("SELECT max(token) FROM log WHERE task = '$task'");
		cmp_ok($token, '>', $token{$task} // 0, "... $task has a greater token");
		$token{$task} = $token;
	}
	return;
}

# --- before anything else: what is looked at can be told from what must not be

is(sql("SELECT ($all_work) OR ($swapped)"), 'f', 'without tasks nothing is at work');
create($_, @{ $task{$_} }[ 0, 1 ]) foreach @tasks;
create($_, 'SELECT 1', '') foreach @brief;
work('all tasks are at it');
cmp_ok(sql("SELECT count(*) $open"), '>=', 6, 'runs that are under way are seen as such');
my $guest = Client->new($node);
$guest->query("SELECT pg_advisory_lock(hashtext('twin'))");
create('twin', 'SELECT 1', ", restart => 'temporary'");
becomes('SELECT count(*) = 1 FROM twice', 'so is one that runs twice');
sql("SELECT revenant.drop_task('twin'); DELETE FROM twice");
come_back('at first');

# --- shutdowns

foreach my $mode ('fast', 'smart', 'immediate', 'fast while it reloads')
{
	my ($how) = split / /, $mode;

	if ($how eq 'smart')
	{
		# as long as somebody is connected everything goes on
		system_or_bail('pg_ctl', '-D', $node->data_dir, '-W', '-m', 'smart', 'stop');
		$node->wait_for_log(qr/received smart shutdown request/);
		my $briefly = $guest->query("SELECT count(*) FROM log WHERE task LIKE 'brief%'");
		ok($guest->becomes("SELECT count(*) > $briefly FROM log WHERE task LIKE 'brief%'"), 'smart: the tasks go on while a client is connected');
		ok($guest->becomes("SELECT ($all_work) OR ($swapped)"), '... all of them');
	}
	$guest->quit;
	$node->reload if $mode =~ /reload/;
	my $start = monotonic();
	# a smart shutdown is under way, and may be over before it is asked for again
	$node->stop($how, fail_ok => $how eq 'smart');
	cmp_ok(monotonic() - $start, '<', 5, sprintf('%s: it took %.2f s', $mode, monotonic() - $start));
	ok(!-e $node->data_dir . '/postmaster.pid', '... and the server is down');
	$node->start;
	come_back($mode);
	$guest = Client->new($node);
}

# a database that is paused for a command
sql('CREATE DATABASE other');
$node->safe_psql('other', "CREATE EXTENSION revenant; SELECT revenant.create_task('there', 'SELECT pg_sleep(3600)')");
$node->poll_query_until('other', "SELECT phase = 'leading' FROM revenant.tasks") or die 'it does not run';
$guest->query($_) foreach 'BEGIN', 'ALTER DATABASE other RENAME TO another';
my $start = monotonic();
$node->stop('fast');
cmp_ok(monotonic() - $start, '<', 5, sprintf('fast, with a database paused: it took %.2f s', monotonic() - $start));
$node->start;
ok($node->poll_query_until('other', "SELECT phase = 'leading' AND last_error = 'interrupted' FROM revenant.tasks"), 'its task is back');
come_back('with a database paused');

# --- a database that is dropped where a run waits for the standby. Nobody else does: PostgreSQL has DROP DATABASE wait for whoever does, everywhere.

sql("SELECT revenant.disable_task('commits')");
$node->safe_psql('other', "SELECT revenant.create_task('commits', 'SET synchronous_commit = on; CREATE TABLE public.waits ()')");
becomes("SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'", 'a run waits for the standby');
$start = monotonic();
sql('DROP DATABASE other');
cmp_ok(monotonic() - $start, '<', 2, sprintf('dropped all the same: it took %.2f s', monotonic() - $start));
sql("SELECT revenant.enable_task('commits')");
$guest = Client->new($node);

# --- off and on

sql('ALTER SYSTEM SET revenant.enabled = off');
$node->reload;
becomes("SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'revenant runner'", 'off: nothing runs');
becomes("SELECT bool_and(phase = 'held' AND reason = 'revenant.enabled is off') FROM revenant.tasks", '... and every task says why');
my $briefly = sql("SELECT count(*) FROM log");
sql('ALTER SYSTEM RESET revenant.enabled');
is(sql("SELECT count(*) FROM log"), $briefly, '... also without another reload');
$node->reload;
work('on: all tasks are at it again');

# --- workers that are terminated

my $both = "backend_type IN ('revenant launcher', 'revenant supervisor')";
my $runners = "SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM revenant.tasks WHERE name !~ 'brief|commits'";
my $running = sql($runners);
foreach my $who ("backend_type = 'revenant launcher'", "backend_type = 'revenant supervisor'", $both)
{
	# the second time it has just been started
	foreach my $time (1 .. 2)
	{
		my $old = sql("SELECT string_agg(pid::text, ',') FROM pg_stat_activity WHERE $who");
		my $since = monotonic();
		sql("SELECT pg_terminate_backend(pid) FROM unnest('{$old}'::int[]) AS pid");
		becomes("SELECT count(*) = 2 AND count(*) FILTER (WHERE pid IN ($old)) = 0 FROM pg_stat_activity WHERE $both", "SIGTERM where $who: back again");
		cmp_ok(monotonic() - $since, '<', 10, sprintf('... after %.2f s', monotonic() - $since));
	}
}
work('the tasks are all there');
is(sql($runners), $running, '... in the same processes');

# --- a crash

my $before = sql('SELECT count(*) FROM log');
$guest = Client->new($node);
is(sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $guest->{pid}"), 1, 'there is a backend');
$start = monotonic();
kill 'KILL', $guest->{pid};
$node->wait_for_log(qr/all server processes terminated; reinitializing/);
ok($node->poll_query_until('postgres', "SELECT ($all_work) OR ($swapped)"), 'after a crash all tasks are at it again');
cmp_ok(monotonic() - $start, '<', 10, sprintf('... after %.2f s', monotonic() - $start));
come_back('after a crash');

$guest->quit;
$start = monotonic();
$node->stop('fast');
cmp_ok(monotonic() - $start, '<', 5, sprintf('fast, after all that: it took %.2f s', monotonic() - $start));
my $log = slurp_file($node->logfile);
is(join(' ', $log =~ /terminated by (signal \d+)/g), 'signal 9', 'that crash was the only one');
unlike($log, qr/PANIC|cannot go from phase/, 'nothing else is wrong');

done_testing();
