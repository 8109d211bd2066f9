# A task runs one at a time, is stopped before its right is gone, comes back after
# whatever ended it, and takes nobody down with it.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "max_worker_processes = 24\nrevenant.max_runners = 12");
$node->start;
asks($node);

# Whether a task has this phase.
sub phase_becomes
{
	my ($task, $phase, $name) = @_;
	becomes("SELECT phase = '$phase' FROM revenant.tasks WHERE name = '$task'", $name);
	return;
}

sql('CREATE EXTENSION revenant');
sql('CREATE TABLE log (id bigserial, at timestamptz DEFAULT clock_timestamp(), task text, token bigint, pid int DEFAULT pg_backend_pid())');
my $note = 'INSERT INTO public.log (task, token) VALUES (revenant.current_task(), revenant.current_token())';

# --- created, rolled back, run

$node->safe_psql('postgres', "BEGIN; SELECT revenant.create_task('never', '$note'); ROLLBACK;");
sql("SELECT revenant.create_task('daemon', '$note; SELECT pg_sleep(3600)', backoff_min => '10 ms')");
becomes("SELECT count(*) = 1 FROM log WHERE task = 'daemon'", 'a created task runs');
is(sql("SELECT count(*) FROM log WHERE task = 'never'"), '0', 'a task whose creation was rolled back does not');
phase_becomes('daemon', 'leading', 'it leads');
is( sql("SELECT t.token = l.token AND t.pid = l.pid AND t.pid = a.pid
	FROM revenant.tasks t JOIN log l ON l.task = t.name JOIN pg_stat_activity a ON a.application_name = 'revenant task daemon'
	WHERE a.backend_type = 'revenant runner'"),
	't', 'the view, the run and pg_stat_activity agree');
is(sql("SELECT scope FROM revenant.leases WHERE lease = 'task/daemon'"), 'session', 'its runner holds its lease');
is(sql("SELECT revenant.try_acquire('other') IS NOT NULL, revenant.current_task(), revenant.current_token()"),
	't||', 'outside of a task there is none');

# --- arguments

sqlstate('22004', "SELECT revenant.create_task(NULL, 'SELECT 1')");
sqlstate('22004', "SELECT revenant.create_task('x', NULL)");
sqlstate('22004', "SELECT revenant.drop_task(NULL)");
sqlstate('22023', "SELECT revenant.create_task('', 'SELECT 1')");
sqlstate('22023', "SELECT revenant.create_task(repeat('x', 481), 'SELECT 1')");
sqlstate('22023', "SELECT revenant.create_task('x', ' ')");
sqlstate('22023', "SELECT revenant.create_task('x', 'SELECT 1', '$_')")
  for '5', '10:00', '1 h 5', '-5 min', '0 s', 'soon', '60 * * * *', '* * * * * * *', '@never', '1 day 10:00', '';
sqlstate('22023', "SELECT revenant.create_task('x', 'SELECT 1', $_)")
  for "restart => 'always'", "catch_up => 'all'", "timezone => 'Nowhere/Land'", "timeout => '-1 s'",
  "max_restarts => -1", "restart_window => '0'", "backoff_min => '1 h'", "backoff_min => '-1 s'",
  "claim_delay => '-1 s'", "claim_delay => '11 years'", "settings => '[]'", "lease => ''", "lease => 'task/y'",
  "lease => 'plan/y'", "lease => repeat('x', 513)", "follower_command => ' '",
  "timezone => 'UTC', restart => 'always'", "timezone => 'UTC'", "'5 min', timezone => 'UTC'", "'0 0 31 2 *'";
sqlstate('42710', "SELECT revenant.create_task('daemon', 'SELECT 1')");
sqlstate('42704', "SELECT revenant.$_('nobody')") for 'drop_task', 'enable_task', 'disable_task';
sqlstate('42704', "SELECT revenant.create_task('x', 'SELECT 1', run_as => 'nobody_at_all')");
sqlstate('25006', "SET default_transaction_read_only = on; SELECT revenant.create_task('x', 'SELECT 1')");
sqlstate('0A000', "BEGIN; SELECT revenant.create_task('x', 'SELECT 1'); PREPARE TRANSACTION 'x'");
my (undef, undef, $swapped) = $node->psql('postgres', "SELECT revenant.create_task('x', '*/5 * * * *', 'SELECT 1')");
like($swapped, qr/HINT:.*name, command, schedule/, 'swapped arguments get a hint');
is(sql("SELECT count(*) FROM revenant.tasks"), '1', 'nothing of that is there');

# --- disable, enable, drop, and their rollback

my $pid = sql("SELECT pid FROM revenant.tasks WHERE name = 'daemon'");
sql("SELECT revenant.disable_task('daemon')");
is(sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid"), '0', 'disable_task returns when the runner is gone');
phase_becomes('daemon', 'disabled', 'and the task is disabled');
sql("SELECT revenant.enable_task('daemon')");
phase_becomes('daemon', 'leading', 'enabled, it runs again');
$node->safe_psql('postgres', "BEGIN; SELECT revenant.disable_task('daemon');
	DO \$\$ BEGIN ASSERT (SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'revenant task daemon'); END \$\$;
	SELECT pg_sleep(0.3);
	DO \$\$ BEGIN PERFORM pg_stat_clear_snapshot(); ASSERT (SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'revenant task daemon'); END \$\$;
	ROLLBACK;");
pass('a stopped task is not started again before the transaction ends');
phase_becomes('daemon', 'leading', 'a rollback starts it again');
$node->safe_psql('postgres', "BEGIN; SELECT revenant.drop_task('daemon'); ROLLBACK;");
phase_becomes('daemon', 'leading', 'also that of drop_task');
is(sql("SELECT failures, last_error FROM revenant.tasks WHERE name = 'daemon'"), '0|', 'being stopped is no failure');

# --- it comes back

sub comes_back
{
	my ($who, $how) = @_;
	my $seen = sql("SELECT count(*) FROM log WHERE task = 'daemon'");
	sql($how);
	becomes("SELECT count(*) > $seen FROM log WHERE task = 'daemon'", "a new run after $who");
	return;
}

becomes("SELECT clock_timestamp() > started_at + interval '0.2 s' FROM revenant.tasks WHERE name = 'daemon'", 'it runs for a while');
comes_back('the runner was terminated', "SELECT pg_terminate_backend(pid) FROM revenant.tasks WHERE name = 'daemon'");
is(sql("SELECT failures, last_sqlstate FROM revenant.tasks WHERE name = 'daemon'"), '1|57P01', 'which counts as a failure');
is(sql("SELECT consecutive_failures FROM revenant.task_state WHERE name = 'daemon'"), '0', 'but not as one in a row: the next backoff is not longer');
comes_back('its statement was cancelled', "SELECT pg_cancel_backend(pid) FROM revenant.tasks WHERE name = 'daemon'");
is( sql("SELECT bool_and(token > before) FROM (SELECT token, lag(token) OVER (ORDER BY id) AS before FROM log) AS l"),
	't', 'each run has a greater token');

phase_becomes('daemon', 'leading', 'it leads again');
$pid = sql("SELECT pid FROM revenant.tasks WHERE name = 'daemon'");
my $supervisor = sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'");
sql("SELECT pg_terminate_backend($supervisor)");
becomes("SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'revenant supervisor' AND pid <> $supervisor",
	'the supervisor comes back');
my $launcher = sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'revenant launcher'");
sql("SELECT pg_terminate_backend($launcher)");
becomes("SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'revenant launcher' AND pid <> $launcher",
	'the launcher comes back');
is(sql("SELECT pid, phase FROM revenant.tasks WHERE name = 'daemon'"), "$pid|leading", 'neither is the end of a run');
comes_back('the runner was terminated under the new supervisor', "SELECT pg_terminate_backend($pid)");

# --- what is wrong with a task is wrong with that task

my %wrong = (
	syntax => [ 'SELEC 1', '42601' ],
	zero => [ "$note; SELECT 1/0", '22012' ],
	discard => [ 'DISCARD ALL; SELECT 1', 'RV001' ],
	block => [ 'BEGIN; CREATE TABLE left_open ()', '25001' ],
	copy => [ 'COPY public.log FROM STDIN', '0A000' ],
	missing => [ 'SELECT * FROM not_there', '42P01' ]);
foreach my $task (sort keys %wrong)
{
	my ($command, $state) = @{ $wrong{$task} };
	$node->safe_psql('postgres', "SELECT revenant.create_task('$task', '$command', backoff_min => '1 h', backoff_max => '1 h')");
	becomes("SELECT phase = 'backoff' AND last_sqlstate = '$state' AND failures = 1 AND runs = 1 AND last_exit = 1
		AND reason LIKE 'waits%' AND next_run > now() FROM revenant.tasks WHERE name = '$task'",
		"$task: $state, backoff, and a reason");
	sql("SELECT revenant.drop_task('$task')");
}
is(sql("SELECT to_regclass('left_open')"), '', 'a block that was left open is rolled back');
is(sql("SELECT count(*) FROM log WHERE task = 'zero'"), '1', 'the statements before the failed one are committed');

sql("SELECT revenant.create_task('garbled', 'SELECT pg_sleep(3600)', schedule => '1 h')");
sql("UPDATE revenant.task SET schedule = 'now and then' WHERE name = 'garbled'; SELECT revenant.enable_task('daemon')");
becomes("SELECT phase = 'held' AND reason LIKE 'its schedule%' FROM revenant.tasks WHERE name = 'garbled'", 'a row that makes no sense is held');
sql("SELECT revenant.drop_task('garbled')");

# --- backoff grows, success resets it

sql("SELECT revenant.create_task('failing', 'SELECT 1/0', backoff_min => '20 ms', backoff_max => '1 h')");
becomes("SELECT failures >= 5 FROM revenant.tasks WHERE name = 'failing'", 'a failing task is tried again and again');
cmp_ok(sql("SELECT extract(epoch FROM retry_at - finished_at) * 1000 FROM revenant.task_state WHERE name = 'failing'"),
	'>=', 250, 'but ever less often');
sql("SELECT revenant.drop_task('failing')");
sql("SELECT revenant.create_task('brief', '$note', backoff_min => '10 ms')");
becomes("SELECT runs >= 3 AND failures = 0 AND restarts >= 2 AND last_exit = 0 AND last_success IS NOT NULL
	FROM revenant.tasks WHERE name = 'brief'", 'a task that ends is restarted, and that is no failure');
sql("SELECT revenant.drop_task('brief')");

# --- statements are transactions of their own, unless the command says otherwise

sql("CREATE PROCEDURE twice() LANGUAGE plpgsql AS
	\$\$ BEGIN INSERT INTO log (task) VALUES ('kept'); COMMIT; INSERT INTO log (task) VALUES ('lost'); RAISE 'no'; END \$\$");
sql("SELECT revenant.create_task('call', 'CALL public.twice()', backoff_min => '1 h', backoff_max => '1 h')");
becomes("SELECT failures = 1 FROM revenant.tasks WHERE name = 'call'", 'a procedure may commit');
is(sql("SELECT string_agg(task, ',') FROM log WHERE task IN ('kept', 'lost')"), 'kept', 'and what it committed stays');
sql("SELECT revenant.drop_task('call')");
sql("SELECT revenant.create_task('block', 'BEGIN; INSERT INTO public.log (task) VALUES (''in block''); COMMIT; DO ''BEGIN RAISE NOTICE \$x\$from the task\$x\$; END''', backoff_min => '1 h', backoff_max => '1 h')");
becomes("SELECT runs = 1 AND failures = 0 FROM revenant.tasks WHERE name = 'block'", 'BEGIN and COMMIT work');
is(sql("SELECT count(*) FROM log WHERE task = 'in block'"), '1', 'and commit');
ok($node->wait_for_log(qr/NOTICE:  from the task/), 'a notice goes to the log');
sql("SELECT revenant.drop_task('block')");

# --- a task that drops itself

sql("SELECT revenant.create_task('once', '$note; SELECT revenant.drop_task(revenant.current_task())')");
becomes("SELECT NOT EXISTS (SELECT FROM revenant.tasks WHERE name = 'once') AND EXISTS (SELECT FROM log WHERE task = 'once')",
	'a task can drop itself');

# --- one lease, two tasks: one at a time

sql("SELECT revenant.create_task('left', 'SELECT pg_sleep(3600)', lease => 'pair')");
phase_becomes('left', 'leading', 'the first one leads');
sql("SELECT revenant.create_task('right', 'SELECT pg_sleep(3600)', lease => 'pair')");
phase_becomes('right', 'claiming', 'the second one waits for the lease');
sql("SELECT revenant.drop_task('left')");
phase_becomes('right', 'leading', 'and gets it');
sql("SELECT revenant.drop_task('right')");

# --- a schedule: on its grid, whatever a run does

sql("SELECT revenant.create_task('grid', '$note', schedule => '300 ms')");
becomes("SELECT count(*) >= 4 FROM log WHERE task = 'grid'", 'a schedule fires');
is( sql("SELECT bool_and(abs(offset_ms) < 250) AND min(k) >= 1 AND count(DISTINCT k) = count(*) FROM (
		SELECT extract(epoch FROM l.at - t.created_at) * 1000 - 300 * floor(extract(epoch FROM l.at - t.created_at) / 0.3) AS offset_ms,
			floor(extract(epoch FROM l.at - t.created_at) / 0.3) AS k
		FROM log l JOIN revenant.task t ON t.name = l.task WHERE t.name = 'grid') AS g"),
	't', 'on its grid, once for each point at most');
sql("SELECT revenant.drop_task('grid')");
sql("SELECT revenant.create_task('hourly', '$note', schedule => '1 h')");
becomes("SELECT phase = 'scheduled' AND next_run BETWEEN now() + '59 min' AND now() + '1 h' FROM revenant.tasks WHERE name = 'hourly'",
	'the first run is one interval after the creation');
sql("SELECT revenant.drop_task('hourly')");
sql("SELECT revenant.create_task('retried', '$note; SELECT 1/0', schedule => '10 s', backoff_min => '10 ms')");
becomes("SELECT count(*) >= 3 FROM log WHERE task = 'retried'", 'a failed run is tried again');
cmp_ok(sql("SELECT extract(epoch FROM max(at) - min(at)) FROM (SELECT at FROM log WHERE task = 'retried' ORDER BY id LIMIT 3) AS l"),
	'<', 9, 'before the next time of the schedule');
sql("SELECT revenant.drop_task('retried')");

# --- roles

sql("CREATE ROLE owner LOGIN; CREATE ROLE stranger LOGIN; CREATE ROLE ghost NOLOGIN;
	ALTER ROLE owner SET work_mem = '7MB'; ALTER ROLE owner SET lock_timeout = '1 ms';
	ALTER ROLE owner SET default_transaction_isolation = 'serializable'; ALTER ROLE owner SET default_transaction_read_only = on;
	CREATE TABLE seen (role text, setting text); GRANT INSERT ON seen TO PUBLIC;
	SELECT revenant.grant_usage('stranger', 'admin')");
sql("SELECT revenant.create_task('owned', 'BEGIN READ WRITE; INSERT INTO public.seen SELECT session_user, current_setting(''work_mem'') || current_setting(''lock_timeout''); COMMIT; SELECT pg_sleep(3600)', run_as => 'owner', backoff_min => '10 ms')");
becomes("SELECT count(*) = 1 FROM seen", 'a task runs as its role');
is(sql('SELECT role, setting FROM seen'), 'owner|7MB1ms', 'with the settings of a login of that role');
if (sql('SELECT current_setting(\'server_version_num\')::int < 170000') eq 't')
{
	sqlstate('0A000', "SELECT revenant.create_task('x', 'SELECT 1', run_as => 'ghost')");
}
sqlstate('42501', "SET SESSION AUTHORIZATION stranger; SELECT revenant.$_")
  for "drop_task('owned')", "disable_task('owned')", "enable_task('owned')", "create_task('x', 'SELECT 1', run_as => 'owner')";
sqlstate('42501', "SET SESSION AUTHORIZATION owner; SELECT revenant.create_task('x', 'SELECT 1')");
sqlstate('42501', "SET SESSION AUTHORIZATION owner; SELECT * FROM revenant.tasks");
sql("SELECT revenant.grant_usage('owner', 'reader')");
is($node->safe_psql('postgres', "SET SESSION AUTHORIZATION owner; SELECT phase FROM revenant.tasks WHERE name = 'owned'"), 'leading', 'a reader can look');
sqlstate('42501', "SET SESSION AUTHORIZATION owner; SELECT revenant.drop_task('owned')");
sql("SELECT revenant.revoke_usage('owner')");
sql("ALTER ROLE owner RENAME TO renamed; SELECT pg_terminate_backend(pid) FROM revenant.tasks WHERE name = 'owned'");
becomes("SELECT phase = 'held' AND reason LIKE '%renamed%' FROM revenant.tasks WHERE name = 'owned'", 'a renamed role holds the task');
sql("ALTER ROLE renamed RENAME TO owner");
phase_becomes('owned', 'leading', 'renamed back, it runs');
sql("DROP ROLE owner");
becomes("SELECT phase = 'held' AND pid IS NULL AND reason LIKE '%does not exist%' FROM revenant.tasks WHERE name = 'owned'",
	'a dropped role stops and holds it');
sql("CREATE ROLE owner LOGIN");
becomes("SELECT phase = 'held' AND reason LIKE '%is not the role%' FROM revenant.tasks WHERE name = 'owned'",
	'another role of that name does not inherit it');
sql("SELECT revenant.drop_task('owned')");
phase_becomes('daemon', 'leading', 'and the other task was not touched');

# --- a process that does not end

sql("SELECT revenant.create_task('stuck', 'SELECT pg_sleep(3600)', backoff_min => '10 ms')");
phase_becomes('stuck', 'leading', 'a task runs');
my $stuck = sql("SELECT pid FROM revenant.tasks WHERE name = 'stuck'");
kill 'STOP', $stuck;
my (undef, undef, $waited) = $node->psql('postgres', "\\set VERBOSITY verbose\nSELECT revenant.drop_task('stuck')");
like($waited, qr/ERROR:  55006: task "stuck" still runs in process $stuck\n.*10 seconds/s, 'a process that does not end within ten seconds is named');
is(sql("SELECT count(*) FROM revenant.tasks WHERE name = 'stuck'"), '1', 'and its task is not dropped');
kill 'CONT', $stuck;
becomes("SELECT phase = 'leading' AND pid <> $stuck FROM revenant.tasks WHERE name = 'stuck'", 'once it has ended the task goes on');
sql("SELECT revenant.drop_task('stuck')");

# --- slots

sql("SELECT revenant.create_task('many ' || n, 'SELECT pg_sleep(3600)') FROM generate_series(1, 14) AS n");
becomes("SELECT count(*) FILTER (WHERE phase = 'leading') = 12 AND count(*) FILTER (WHERE phase = 'waiting_for_slot' AND reason <> '') = 3 FROM revenant.tasks",
	'tasks beyond the slots wait');
sql("SELECT revenant.drop_task(name) FROM revenant.tasks WHERE name LIKE 'many%' AND phase = 'leading' LIMIT 4");
becomes("SELECT count(*) = 0 FROM revenant.tasks WHERE phase <> 'leading'", 'and run when there is room');
sql("SELECT revenant.drop_task(name) FROM revenant.tasks WHERE name LIKE 'many%'");
my $log = slurp_file($node->logfile);
is(scalar(() = $log =~ /tasks wait for a free runner/g), 1, 'the log says it once');

# --- off

$node->append_conf('postgresql.conf', 'revenant.enabled = off');
$node->reload;
phase_becomes('daemon', 'held', 'revenant.enabled = off stops everything');
is(sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'revenant runner'"), '0', 'all runners are gone');
$node->append_conf('postgresql.conf', 'revenant.enabled = on');
$node->reload;
phase_becomes('daemon', 'leading', 'on starts it again');

# --- a crash

my $before = sql("SELECT max(token) FROM log");
$node->stop('immediate');
$node->start;
becomes("SELECT count(*) = 1 FROM log WHERE task = 'daemon' AND token > $before", 'after a crash it runs with a greater token');
$node->stop('fast');
unlike(slurp_file($node->logfile), qr/cannot go from phase/, 'no transition was outside the table');

done_testing();
