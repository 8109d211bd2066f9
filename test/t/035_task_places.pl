# Where there are fewer places than tasks: nobody loops, supervisors come first, and the task
# that has been due for longest is next, whichever database it is in.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

sub cpu
{
	my ($pid) = @_;
	open(my $file, '<', "/proc/$pid/stat") or return;
	my $line = <$file>;
	close($file);
	$line =~ s/^.*\) //;
	my @fields = split(' ', $line);
	return ($fields[11] + $fields[12]) / 100;
}

my $node = PostgreSQL::Test::Cluster->new('few');
$node->init;
# the server's own launcher of logical replication has one place, ours two
$node->append_conf('postgresql.conf', "max_worker_processes = 5\nrevenant.max_runners = 12");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION revenant; CREATE DATABASE second');
$node->safe_psql('postgres', "SELECT revenant.create_task('task ' || n, 'SELECT pg_sleep(3600)') FROM generate_series(1, 4) AS n");
ok( $node->poll_query_until('postgres',
		"SELECT count(*) FILTER (WHERE phase = 'leading') = 2 AND count(*) FILTER (WHERE phase = 'waiting_for_slot') = 2 FROM revenant.tasks"),
	'max_worker_processes is used up');
my $supervisor = $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'");
my $before = cpu($supervisor);
my $start = time;
$node->poll_query_until('postgres', "SELECT clock_timestamp() > to_timestamp($start) + interval '3 s'");
SKIP:
{
	skip 'no /proc', 1 unless defined $before;
	cmp_ok(cpu($supervisor) - $before, '<', 0.5, 'the supervisor waits, and does not loop');
}

is($node->safe_psql('postgres', "SELECT count(*) FILTER (WHERE event = 'task.claiming') <= 4, count(*) FILTER (WHERE event = 'task.waiting_for_slot') FROM revenant.events()"),
	't|2', 'what waits is told once, however often it is tried');
is($node->safe_psql('postgres', "SELECT count(*), count(*) FILTER (WHERE outcome = 'running') FROM revenant.task_runs"), '2|2', 'it leaves nothing in the history');
is(scalar(() = slurp_file($node->logfile) =~ /tasks wait for a free runner/g), 1, 'and one line in the log');

# --- a supervisor that finds no place gets the next one

$node->safe_psql('second', "CREATE EXTENSION revenant; SELECT revenant.create_task('there', 'SELECT pg_sleep(3600)')");
is( $node->safe_psql('second', "SELECT phase, reason LIKE 'no supervisor runs%' FROM revenant.tasks"),
	'scheduled|t', 'a database without a supervisor says so');
$node->wait_for_log(qr/no background worker is free for the supervisor/);
$node->safe_psql('postgres', "SELECT revenant.drop_task(name) FROM revenant.tasks WHERE phase = 'leading' LIMIT 1");
ok( $node->poll_query_until('second',
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'revenant supervisor' AND datname = 'second'"),
	'the supervisor comes before the tasks that wait');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'revenant runner'"), '1', 'which got no place');
$node->safe_psql('postgres', "SELECT revenant.drop_task(name) FROM revenant.tasks");
ok($node->poll_query_until('second', "SELECT phase = 'leading' FROM revenant.tasks"), 'with room, its task runs');
$node->stop('fast');
unlike(slurp_file($node->logfile), qr/cannot go from phase/, 'no transition was outside the table');

# --- in order of lateness over all databases

$node = PostgreSQL::Test::Cluster->new('fair');
$node->init;
$node->append_conf('postgresql.conf', 'revenant.max_runners = 1');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION revenant; CREATE DATABASE second');
$node->safe_psql('second', 'CREATE EXTENSION revenant');
$node->safe_psql('postgres', "SELECT revenant.create_task('first', 'SELECT pg_sleep(3600)')");
ok($node->poll_query_until('postgres', "SELECT phase = 'leading' FROM revenant.tasks"), 'a task has the only runner');
$node->safe_psql('second', "SELECT revenant.create_task('second', 'SELECT pg_sleep(3600)')");
ok($node->poll_query_until('second', "SELECT phase = 'waiting_for_slot' FROM revenant.tasks"), 'a second one waits in another database');
$node->safe_psql('postgres', "SELECT revenant.create_task('third ' || n, 'SELECT pg_sleep(3600)') FROM generate_series(1, 5) AS n");
ok($node->poll_query_until('postgres', "SELECT count(*) = 5 FROM revenant.tasks WHERE phase = 'waiting_for_slot'"), 'more of them in the first');
$node->safe_psql('postgres', "SELECT revenant.drop_task('first')");
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'revenant runner'"), 'the runner is free, and taken');
ok($node->poll_query_until('second', "SELECT phase = 'leading' FROM revenant.tasks"), 'by the one that waited for longest');
$node->safe_psql('second', "SELECT revenant.drop_task('second')");
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM revenant.tasks WHERE phase = 'leading'"), 'then the others get it');
$node->stop('fast');

# --- no process to be had from the system

$node = PostgreSQL::Test::Cluster->new('forkless');
$node->init;
$node->start;
$node->safe_psql('postgres', "CREATE EXTENSION revenant; SELECT revenant.create_task('kept', 'SELECT pg_sleep(3600)');
	SELECT revenant.create_task('timely', 'SELECT 1', '1 h'); SELECT revenant.create_task('over', 'SELECT 1', restart => 'temporary')");
ok($node->poll_query_until('postgres', "SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'kept'"), 'a task runs');
ok($node->poll_query_until('postgres', "SELECT phase = 'finished' FROM revenant.tasks WHERE name = 'over'"), 'another one ran');
my $session = $node->background_psql('postgres');
my ($postmaster) = slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/;

# What the session sees, as nobody else can connect meanwhile.
sub sees
{
	my ($query, $name) = @_;
	my $seen = '';
	for (my $i = 0; $i < 600 && $seen ne 't'; $i++)
	{
		$seen = $session->query_safe($query);
		usleep(20_000) if $seen ne 't';
	}
	is($seen, 't', $name);
	return;
}

my ($limit) = run_command([ 'prlimit', "--pid=$postmaster", '--nproc', '--noheadings', '--output=SOFT' ]);
system_or_bail('prlimit', "--pid=$postmaster", '--nproc=1:');
$session->query_safe("SELECT revenant.create_task('barred', 'SELECT pg_sleep(3600)', max_restarts => 0); SELECT revenant.run_task('timely'); SELECT revenant.run_task('over')");
sees("SELECT count(*) = 3 FROM revenant.tasks WHERE phase = 'waiting_for_slot' AND reason LIKE '%could not start its process%'", 'tasks wait while the server cannot start a process');
sees("SELECT count(*) >= 4 FROM revenant.events() WHERE event = 'task.claiming' AND subject IN ('barred', 'timely')", 'and are tried again');
is($session->query_safe("SELECT sum(failures), (SELECT count(*) FROM revenant.task_runs) FROM revenant.tasks"), '0|2', 'which is nobody\'s failure, and no run');
is($session->query_safe("SELECT phase FROM revenant.tasks WHERE name = 'kept'"), 'leading', 'what ran goes on');
system_or_bail('prlimit', "--pid=$postmaster", "--nproc=$limit:");
sees("SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'barred'", 'as soon as it can, they run');
sees("SELECT runs = 2 FROM revenant.tasks WHERE name = 'over'", 'also what was only asked for');
sees("SELECT runs = 1 AND phase = 'scheduled' AND next_run BETWEEN now() + '50 min' AND now() + '1 h' FROM revenant.tasks WHERE name = 'timely'", 'each as it was due');
$session->quit;
$node->stop('fast');
unlike(slurp_file($node->logfile), qr/cannot go from phase/, 'no transition was outside the table');

done_testing();
