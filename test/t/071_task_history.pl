# Each run has one row in the history, from its lease to its end, whatever ends it; none says "running" for a run that is gone, none is written
# for what did not run, and what is too old goes.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Asks;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(allows_streaming => 1);
$node->append_conf('postgresql.conf', "revenant.node_name = 'one'\nrevenant.max_runners = 4");
$node->start;
asks($node);
sql('CREATE EXTENSION revenant; CREATE ROLE worker LOGIN; CREATE ROLE reader LOGIN; CREATE ROLE nobody LOGIN');

# What the history has of a task, oldest first.
sub outcomes { return "(SELECT COALESCE(string_agg(outcome, ' ' ORDER BY run), '') FROM revenant.task_runs WHERE name = '$_[0]')" }

# What is open is there, and what is there is open.
my $true = q{SELECT NOT EXISTS (SELECT FROM revenant.task_runs AS r WHERE (r.outcome = 'running') IS DISTINCT FROM (r.finished_at IS NULL)
		OR (r.finished_at IS NULL AND NOT EXISTS (SELECT FROM pg_stat_activity AS a WHERE a.pid = r.pid AND a.backend_type = 'revenant runner')))
	AND NOT EXISTS (SELECT FROM revenant.tasks AS t WHERE t.phase = 'leading' AND NOT EXISTS (SELECT FROM revenant.task_runs AS r WHERE r.name = t.name AND r.pid = t.pid AND r.token = t.token AND r.finished_at IS NULL))};

is(sql('SELECT count(*) FROM revenant.task_runs'), '0', 'nothing ran yet');

# --- each end

sql("SELECT revenant.create_task('good', 'SELECT 1', '1 h'); SELECT revenant.run_task('good')");
becomes("SELECT " . outcomes('good') . " = 'succeeded'", 'succeeded');
is(sql("SELECT token = (SELECT token FROM revenant.tasks), node, pid IS NOT NULL, finished_at >= started_at, started_at = (SELECT started_at FROM revenant.tasks), sqlstate, message FROM revenant.task_runs"),
	't|one|t|t|t||', 'with all that is known');
sql("SELECT revenant.create_task('bad', 'SELECT 1/0', max_restarts => 1, backoff_min => '0')");
becomes("SELECT " . outcomes('bad') . " = 'failed failed'", 'failed');
is(sql("SELECT DISTINCT sqlstate, message FROM revenant.task_runs WHERE name = 'bad'"), '22012|division by zero', 'and why');
sql("SELECT revenant.create_task('long', 'SELECT pg_sleep(3600)', backoff_min => '10 ms')");
becomes("SELECT " . outcomes('long') . " = 'running'", 'running');
ok(sql($true) eq 't', 'which is true');
sql("SELECT revenant.restart_task('long')");
becomes("SELECT " . outcomes('long') . " = 'stopped running'", 'stopped');
sql("SELECT pg_terminate_backend(pid) FROM revenant.tasks WHERE name = 'long'");
becomes("SELECT " . outcomes('long') . " = 'stopped failed running'", 'terminated by somebody');
is(sql("SELECT sqlstate FROM revenant.task_runs WHERE name = 'long' AND outcome = 'failed'"), '57P01', 'is failed');
sql("SELECT revenant.drop_task('long')");
becomes("SELECT " . outcomes('long') . " = 'stopped failed stopped'", 'what a dropped task ran stays');
sql("SELECT revenant.create_task('self', 'SELECT revenant.drop_task(''self'')')");
becomes("SELECT " . outcomes('self') . " = 'succeeded'", 'a task that drops itself');
sql("ALTER ROLE worker SET session_preload_libraries = 'not_there'; SELECT revenant.create_task('barred', 'SELECT 1', run_as => 'worker', max_restarts => 0)");
becomes("SELECT " . outcomes('barred') . " = 'failed'", 'one that does not come as far as its lease');
is(sql("SELECT token, sqlstate, message FROM revenant.task_runs WHERE name = 'barred'"), '|58P01|could not access file "not_there": No such file or directory', 'and why');
sql("SELECT revenant.create_task('barred once', 'SELECT 1', run_as => 'worker', restart => 'temporary')");
becomes("SELECT " . outcomes('barred once') . " = 'failed' AND phase = 'finished' FROM revenant.tasks WHERE name = 'barred once'", 'one that is not to be started again');
my $first = sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'");
sql("SELECT pg_terminate_backend($first)");
becomes("SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'revenant supervisor' AND pid <> $first", 'another supervisor comes');
sql("SELECT revenant.run_task('good')");
becomes("SELECT runs = 2 FROM revenant.tasks WHERE name = 'good'", 'and looks');
is(sql("SELECT " . outcomes('barred once') . ", phase FROM revenant.tasks WHERE name = 'barred once'"), 'failed|finished', 'and does not start it again either');
is(sql("SELECT array_agg(run ORDER BY started_at) = array_agg(run ORDER BY run) FROM revenant.task_runs"), 't', 'they are numbered as they began');
is(sql("SELECT bool_and(t.runs = (SELECT count(*) FROM revenant.task_runs AS r WHERE r.name = t.name AND r.token IS NOT NULL)) FROM revenant.tasks AS t"), 't', 'as many as the view of tasks says');
sql('SELECT revenant.drop_task(name) FROM revenant.tasks');

# --- what did not run

sql("SELECT revenant.create_task('full ' || n, 'SELECT pg_sleep(3600)') FROM generate_series(1, 6) AS n");
becomes("SELECT count(*) FILTER (WHERE phase = 'leading') = 4 AND count(*) FILTER (WHERE phase = 'waiting_for_slot') = 2 FROM revenant.tasks", 'tasks wait for a runner');
is(sql("SELECT count(*) FROM revenant.task_runs WHERE name LIKE 'full%'"), '4', 'and leave nothing in the history');

# --- crash

my $last = sql('SELECT max(run) FROM revenant.task_runs');
$node->stop('immediate');
$node->start;
becomes("SELECT count(*) FILTER (WHERE outcome = 'interrupted') = 4 AND count(*) FILTER (WHERE outcome = 'running') = 4 FROM revenant.task_runs WHERE name LIKE 'full%'", 'a crash interrupts');
is(sql($true), 't', 'and nothing is said to run that does not');
is(sql("SELECT count(*) FROM revenant.task_runs WHERE run <= $last AND outcome = 'running'"), '0', 'of before');

# --- a task that is dropped while nobody looks

sql("SELECT revenant.drop_task(name) FROM revenant.tasks; SELECT revenant.create_task('gone', 'SELECT pg_sleep(3600)')");
becomes("SELECT " . outcomes('gone') . " = 'running'", 'one runs');
my $supervisor = sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'");
kill 'STOP', $supervisor;
sql("SELECT revenant.drop_task('gone')");
$node->stop('immediate');
kill 'KILL', $supervisor;
$node->start;
becomes("SELECT " . outcomes('gone') . " = 'interrupted'", 'is closed though its task is gone since');

# --- a lock on the history keeps nobody but who must write there

my $locker = $node->background_psql('postgres');
sql("SELECT revenant.create_task('short', 'SELECT 1', '1 h'); SELECT revenant.create_task('other', 'SELECT pg_sleep(3600)', backoff_min => '10 ms')");
becomes("SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'other'", 'one runs');
$locker->query_safe('BEGIN; LOCK TABLE revenant.task_run IN SHARE MODE');
sql("SELECT revenant.disable_task('other')");
becomes("SELECT phase = 'disabled' FROM revenant.tasks WHERE name = 'other'", 'while somebody has locked the history, a task can be stopped');
sql("SELECT revenant.run_task('short')");
becomes("SELECT phase = 'claiming' FROM revenant.tasks WHERE name = 'short'", 'and one that is to run waits');
$locker->query_safe('COMMIT');
$locker->quit;
becomes("SELECT " . outcomes('other') . " = 'stopped'", 'then it is written down');
becomes("SELECT " . outcomes('short') . " = 'succeeded'", 'and run');
sql('SELECT revenant.drop_task(name) FROM revenant.tasks');

# --- who may look

sql("SELECT revenant.grant_usage('reader', 'reader')");
is(sql('SET SESSION AUTHORIZATION reader; SELECT count(*) > 0 FROM revenant.task_runs'), 't', 'a reader may look');
sqlstate('42501', 'SET SESSION AUTHORIZATION nobody; SELECT * FROM revenant.task_runs');
sqlstate('42501', 'SET SESSION AUTHORIZATION reader; DELETE FROM revenant.task_runs');

# --- how long it goes back

sub retain
{
	my ($value) = @_;
	$node->append_conf('postgresql.conf', "revenant.history_retention = '$value'");
	$node->reload;
	becomes("SELECT setting = (SELECT setting FROM pg_settings WHERE name = 'revenant.history_retention') AND setting <> '' FROM pg_settings WHERE name = 'revenant.history_retention'", "retention is $value");
	# a new supervisor looks at once
	sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'");
	return;
}

sql("SELECT revenant.create_task('keeper', 'SELECT pg_sleep(3600)'); UPDATE revenant.task_run SET finished_at = finished_at - interval '8 days', started_at = started_at - interval '8 days' WHERE run <= (SELECT (min(run) + max(run)) / 2 FROM revenant.task_run);
	INSERT INTO revenant.task_run (run, name, node, started_at, finished_at, outcome) SELECT -n, 'old', 'one', now() - interval '9 days', now() - interval '8 days', 'succeeded' FROM generate_series(1, 2500) AS n");
becomes("SELECT " . outcomes('keeper') . " = 'running'", 'one runs');
sql("UPDATE revenant.task_run SET started_at = started_at - interval '30 days' WHERE name = 'keeper'");
my $young = sql("SELECT count(*) FROM revenant.task_runs WHERE started_at > now() - interval '1 day'");
cmp_ok($young, '>', 0, 'there are younger ones');
sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'");
becomes("SELECT count(*) = $young + 1 FROM revenant.task_runs", 'what is older than a week goes, in batches, but for what still runs');
is(sql("SELECT count(*) FROM revenant.task_runs WHERE started_at > now() - interval '1 day'"), $young, 'and nothing else');
retain('-1');
sql("UPDATE revenant.task_run SET finished_at = finished_at - interval '10 years', started_at = started_at - interval '10 years' WHERE finished_at IS NOT NULL; SELECT revenant.create_task('more', 'SELECT 1', '1 h'); SELECT revenant.run_task('more')");
becomes("SELECT " . outcomes('more') . " = 'succeeded'", 'for ever');
is(sql('SELECT count(*) FROM revenant.task_runs'), $young + 2, 'is for ever');
retain('0');
becomes("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'revenant supervisor' AND backend_start < (SELECT max(pg_conf_load_time())))", 'another supervisor is there');
sql("SELECT revenant.run_task('more')");
becomes("SELECT runs = 2 FROM revenant.tasks WHERE name = 'more'", 'without a history tasks run, too');
becomes("SELECT count(*) = 1 FROM revenant.task_runs", 'and nothing is in it but what was open');
sql("SELECT revenant.drop_task('keeper')");
becomes("SELECT " . outcomes('keeper') . " = 'stopped'", 'what was open is closed nonetheless');
retain('1 s');
becomes("SELECT count(*) = 0 OR max(finished_at) < clock_timestamp() - interval '1 s' FROM revenant.task_runs", 'all have ended a while ago, if they are not gone already');
sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'");
becomes('SELECT count(*) = 0 FROM revenant.task_runs', 'a short one');
sql("INSERT INTO revenant.task_run (run, name, node, started_at, finished_at, outcome) SELECT -n, 'old', 'one', now() + (n - 2) * interval '1 day', now() - interval '8 days', 'succeeded' FROM generate_series(1, 3) AS n");
sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'");
becomes('SELECT count(*) = 0 FROM revenant.task_runs', 'also of runs that began while the clock was ahead');
retain('1 h');

# --- a lock on what else it needs keeps the supervisor from nothing

sql("SELECT revenant.create_task('claims', 'SELECT 1', lease => 'taken', max_restarts => 9, backoff_min => '10 ms')");
my $holder = $node->background_psql('postgres');
$holder->query_safe("SELECT revenant.acquire('taken')");
becomes("SELECT phase = 'claiming' FROM revenant.tasks WHERE name = 'claims'", 'one waits for its lease');
foreach my $lock ('ALTER SEQUENCE revenant._task_run_number CACHE 1', 'REINDEX INDEX revenant.task_run_pkey')
{
	$locker = $node->background_psql('postgres');
	$locker->query_safe("BEGIN; $lock");
	sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'revenant task claims'");
	sql("SELECT revenant.create_task('beside', 'SELECT pg_sleep(3600)', enabled => false)");
	becomes("SELECT reason = 'it is disabled' FROM revenant.tasks WHERE name = 'beside'", "$lock: the supervisor looks");
	sql("SELECT revenant.drop_task('beside')");
	$locker->query_safe('COMMIT');
	$locker->quit;
	becomes("SELECT phase = 'claiming' FROM revenant.tasks WHERE name = 'claims'", 'and afterwards goes on with the rest');
}
becomes("SELECT count(*) = 2 FROM revenant.task_runs WHERE name = 'claims' AND outcome = 'failed'", 'which is all written down');
$holder->quit;
sql("SELECT revenant.drop_task('claims')");

# --- a database that is to be left alone

sql("SELECT revenant.create_task('left', 'SELECT pg_sleep(3600)')");
becomes("SELECT " . outcomes('left') . " = 'running'", 'one runs');
$node->append_conf('postgresql.conf', "revenant.databases = 'another'");
$node->reload;
becomes("SELECT " . outcomes('left') . " = 'stopped'", 'until its database is not listed any more');
becomes("SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'", 'then its supervisor goes');
$node->append_conf('postgresql.conf', "revenant.databases = ''");
$node->reload;
becomes("SELECT " . outcomes('left') . " = 'stopped running'", 'and comes back');

$node->stop;
done_testing();
