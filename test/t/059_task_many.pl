# A thousand tasks in one database and fifty databases with tasks, on a small server: all are seen and looked after, a new one does
# not wait for them, and the log says nothing twice.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $databases = 50;
my $prompt = 1.0;	# seconds, where it takes some milliseconds: a turn of everything that others have to be done would be longer
my $tries = 5;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
# the launcher and another worker of ours, the server's own, a supervisor for each database and this one, sixteen runners
$node->append_conf('postgresql.conf', 'shared_buffers = 16MB
max_connections = 20
max_worker_processes = ' . (3 + $databases + 1 + 16));
$node->start;
asks($node);
sql('CREATE EXTENSION revenant; CREATE TABLE log (at timestamptz DEFAULT clock_timestamp(), task text)');
my $note = 'INSERT INTO public.log (task) VALUES (revenant.current_task())';

sub timed
{
	my ($what, $database, $query) = @_;
	my $start = time;
	my $answer = $node->safe_psql($database, $query);

	diag(sprintf '%s: %.2f s', $what, time - $start);
	return $answer;
}

# How many tasks of a database are in which phase.
sub phases { return "SELECT string_agg(phase || ' ' || count, ', ' ORDER BY phase) FROM (SELECT phase, count(*) FROM revenant.tasks GROUP BY phase) AS p" }

sub phases_become
{
	my ($expected, $name) = @_;

	ok($node->poll_query_until('postgres', phases(), $expected), $name);
	return;
}

# The first statement of a new task comes soon after the commit; the best of some, since the machine has other things to do.
sub starts_promptly
{
	my ($database, $where) = @_;
	my $best = 1e9;

	for my $try (1 .. $tries)
	{
		my $asked = $node->safe_psql($database, "DELETE FROM log WHERE task = 'new';
			BEGIN; SELECT revenant.create_task('new', '$note', restart => 'temporary') \\g /dev/null
			SELECT clock_timestamp(); COMMIT");
		$node->poll_query_until($database, "SELECT EXISTS (SELECT FROM log WHERE task = 'new')") or die 'it never came';
		my $took = $node->safe_psql($database, "SELECT extract(epoch FROM at - '$asked') FROM log WHERE task = 'new'");
		$best = $took if $took < $best;
		$node->safe_psql($database, "SELECT revenant.drop_task('new')");
	}
	diag(sprintf '%s: %.1f ms', $where, 1000 * $best);
	cmp_ok($best, '<', $prompt, "a new task does not wait for the others: $where");
	return;
}

# --- a thousand tasks in one database

timed('create a thousand tasks', 'postgres', "
	SELECT revenant.create_task('interval ' || n, '$note', n || ' h') FROM generate_series(1, 500) AS n;
	SELECT revenant.create_task('calendar ' || n, '$note', '0 0 1 1 *', timezone => CASE WHEN n % 2 = 0 THEN 'Asia/Tokyo' END) FROM generate_series(1, 300) AS n;
	SELECT revenant.create_task('disabled ' || n, '$note', '1 s', enabled => false) FROM generate_series(1, 100) AS n;
	SELECT revenant.create_task('once ' || n, '$note', restart => 'temporary') FROM generate_series(1, 100) AS n");
phases_become('disabled 100, finished 100, scheduled 800', 'each of a thousand tasks is in its phase');
is(sql("SELECT count(*), count(DISTINCT task) FROM log WHERE task LIKE 'once%'"), '100|100', 'those that were due have run, once each');
is(sql('SELECT count(*) FROM revenant.tasks WHERE next_run > now()'), 800, 'the others have a time');
starts_promptly('postgres', 'among a thousand in one database');

timed('disable half of the scheduled ones', 'postgres', "SELECT revenant.disable_task(name) FROM revenant.tasks WHERE phase = 'scheduled' ORDER BY name LIMIT 400");
phases_become('disabled 500, finished 100, scheduled 400', 'half of them disabled');
timed('and enable them', 'postgres', "SELECT revenant.enable_task(name) FROM revenant.tasks WHERE phase = 'disabled' AND name NOT LIKE 'disabled%'");
phases_become('disabled 100, finished 100, scheduled 800', 'and enabled');
my $start = time;
timed('ask for five hundred runs', 'postgres', "SELECT revenant.run_task(name) FROM revenant.tasks WHERE name LIKE 'interval%'");
becomes("SELECT count(DISTINCT task) = 500 AND count(*) = 500 FROM log WHERE task LIKE 'interval%'", 'five hundred that are to run at once all do, once each');
diag(sprintf 'until they have run: %.2f s', time - $start);
starts_promptly('postgres', 'after that');

# --- fifty databases with a task

$start = time;
foreach my $n (1 .. $databases)
{
	sql("CREATE DATABASE db$n");
	$node->safe_psql("db$n", "CREATE EXTENSION revenant; CREATE TABLE log (at timestamptz DEFAULT clock_timestamp(), task text);
		SELECT revenant.create_task('its', '$note; SELECT pg_sleep(1)', '1 day')");
}
diag(sprintf 'make %d databases: %.2f s', $databases, time - $start);

sub all_supervised
{
	my ($expected, $name) = @_;

	becomes("SELECT count(DISTINCT datname) = $expected AND count(*) = $expected FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'", $name);
	return;
}

all_supervised($databases + 1, 'each database has its supervisor');
is(join(',', grep { $node->safe_psql("db$_", "SELECT phase, next_run > now() FROM revenant.tasks") ne 'scheduled|t' } 1 .. $databases), '', 'which knows its task');
starts_promptly('db25', 'in one of fifty databases');
starts_promptly('postgres', 'among a thousand, beside fifty databases');

# more of them at once than there are runners
$start = time;
$node->safe_psql("db$_", "SELECT revenant.run_task('its')") foreach 1 .. $databases;
is(join(',', grep { !$node->poll_query_until("db$_", "SELECT count(*) = 1 FROM log WHERE task = 'its'") } 1 .. $databases), '', 'all of them run, once each');
diag(sprintf 'one run in each of %d databases: %.2f s', $databases, time - $start);

# --- it goes on after a restart, and all that is gone is gone

$node->restart;
$start = time;
all_supervised($databases + 1, 'after a restart each database has its supervisor');
phases_become('disabled 100, finished 100, scheduled 800', 'and a thousand tasks are what they were');
diag(sprintf 'until then: %.2f s', time - $start);
is(join(',', grep { !$node->poll_query_until("db$_", "SELECT phase = 'scheduled' FROM revenant.tasks") } 1 .. $databases), '', 'so is the one in each database');
starts_promptly('db50', 'in one of fifty databases, after a restart');

timed('drop the thousand', 'postgres', "SELECT revenant.drop_task(name) FROM revenant.tasks");
is(sql('SELECT count(*) FROM revenant.tasks'), 0, 'a thousand tasks can be dropped');
becomes('SELECT count(*) = 0 FROM revenant.task_state', 'and nothing is left of them');
becomes('SELECT count(*) = 0 FROM revenant._task_status()', 'anywhere');
timed('drop a database', 'postgres', 'DROP DATABASE db1');
all_supervised($databases, 'a database can be dropped');
$node->safe_psql('db2', 'DROP EXTENSION revenant');
all_supervised($databases - 1, 'or have the extension dropped');
starts_promptly('db3', 'and the others go on');
$start = time;
$node->stop('fast');
cmp_ok(time - $start, '<', 5, 'all of them end at once');

# --- the log

my %said;
foreach my $line (split /\n/, slurp_file($node->logfile))
{
	next if $line =~ /LOG:  leadership\./;	# told of each run of a task without a schedule
	$said{$1}++ if $line =~ /(\[\d+\] revenant (?:launcher|supervisor|runner) .*)/;
}
is(join("\n", map { "$said{$_} times: $_" } grep { $said{$_} > 1 } sort keys %said), '', 'nobody has said anything twice');

done_testing();
