# No count is lost, none is made up, and none is another's: many sessions at once, every way in which a run of a task can end, a reset, a restart,
# a crash, a standby and its promotion, another instance of the extension beside a session that counts for the old one, and a full memory.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use Cwd qw(abs_path);
use File::Basename;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $sessions = 8;
my $transactions = 1000;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(allows_streaming => 1);
$node->append_conf('postgresql.conf', "log_statement = none\nrevenant.max_runners = 2\nmax_connections = 30\nrestart_after_crash = on");
$node->start;
asks($node);
sql('CREATE EXTENSION revenant');

# What was counted of leases, or of one task.
sub leases { return sql("SELECT $_[0] FROM revenant.stat_leases") }
sub task { return sql("SELECT $_[1] FROM revenant.stat_tasks WHERE name = '$_[0]'") }

sub becomes_of_task
{
	my ($task, $condition, $name) = @_;
	becomes("SELECT $condition FROM revenant.stat_tasks WHERE name = '$task'", $name);
	return;
}

# --- what follows would notice a count that is not made, and one that is made twice

is(leases('acquired, released, waits'), '0|0|0', 'nothing was counted yet');
sql("SELECT revenant.release('one', revenant.acquire('one'))");
is(leases('acquired, released, waits'), '1|1|0', 'then something was');

# --- many sessions at once, each on a name of its own, then all on one

my $script = $node->basedir . '/own.sql';
append_to_file($script, "SELECT revenant.acquire('own-' || :client_id) AS token \\gset\nSELECT revenant.release('own-' || :client_id, :token);\n");
sql('SELECT revenant.stat_reset()');
$node->command_ok([ 'pgbench', '-n', '-f', $script, '-c', $sessions, '-j', 2, '-t', $transactions, 'postgres' ], "$sessions sessions, $transactions times each");
my $all = $sessions * $transactions;
is(leases('acquired, released, rejected'), "$all|$all|0", 'each is counted');
is(sql("SELECT tokens, leases_acquired FROM revenant.stat_database WHERE datname = 'postgres'"), "$all|$all", 'for the database, too');

my $one = $node->basedir . '/one.sql';
append_to_file($one, "SELECT coalesce(revenant.try_acquire('one'), 0) AS token \\gset\nSELECT revenant.release('one', :token);\n");
sql('SELECT revenant.stat_reset()');
$node->command_ok([ 'pgbench', '-n', '-f', $one, '-c', $sessions, '-j', 2, '-t', $transactions, 'postgres' ], 'the same on one name');
is(leases("acquired + rejected, acquired = released, acquired > 0"), "$all|t|t", 'each got it or did not');

# --- a wait in the lock manager's queue: counted when it is over

sql('SELECT revenant.stat_reset()');
my $holder = $node->background_psql('postgres', on_error_stop => 0);
my $waiter = $node->background_psql('postgres', on_error_stop => 0);
$holder->query_safe("SELECT revenant.acquire('queue') AS token \\gset");
$waiter->query_until(qr/^waiting$/m, "\\echo waiting\nSELECT revenant.acquire('queue', wait => '10 min') IS NOT NULL;\n");
becomes("SELECT waiters = 1 FROM revenant.leases WHERE lease = 'queue'", 'somebody waits');
is(leases('waits, total_wait_time'), '0|0', 'and is counted later');
my $since = sql('SELECT clock_timestamp()');
becomes("SELECT clock_timestamp() > '$since'::timestamptz + interval '50 ms'", 'for a while');
$holder->query_safe("SELECT revenant.release('queue', :token)");
becomes("SELECT acquired = 2 FROM revenant.stat_leases", 'it gets the lease');
is(leases('waits, total_wait_time >= 50, total_wait_time = max_wait_time, rejected'), '1|t|t|0', 'and has waited');
$waiter->query("SELECT 1");
my $cancelled = $node->background_psql('postgres', on_error_stop => 0);
$cancelled->query_until(qr/^waiting$/m, "\\echo waiting\nSELECT revenant.acquire('queue');\n");
becomes("SELECT waiters = 1 FROM revenant.leases WHERE lease = 'queue'", 'another one waits');
sql("SELECT pg_cancel_backend(pid) FROM pg_locks WHERE locktype = 'userlock' AND NOT granted");
becomes('SELECT waits = 2 FROM revenant.stat_leases', 'cancelled, it has waited as well');
is(leases('acquired, rejected'), '2|0', 'for nothing, but not rejected');
$cancelled->query('SELECT 1');
$cancelled->quit;

# --- a hold that ends with its session, and one that an administrator ends

sql('SELECT revenant.stat_reset()');
$waiter->query_safe("SELECT revenant.acquire('bound', ttl => '1 h', bound => true)");
$waiter->quit;
ok(sql("SELECT revenant.acquire('bound', ttl => '1 h', wait => '1 min')"), 'a lease is taken over from a session that is gone');
is(leases('lapsed, released'), '1|0', 'which counts as a lapse');
$holder->query_safe("SELECT revenant.acquire('held')");
ok(sql("SELECT revenant.revoke('held', terminate => true)"), 'a session ends by an administrator');
is(leases('revoked, released'), '1|0', 'which counts as revoked');
$holder->{run}->finish;
sql("SELECT revenant.acquire('brief', ttl => '100 ms')");
becomes("SELECT clock_timestamp() > acquired_at + interval '101 ms' FROM revenant.lease WHERE name = 'brief'", 'a lease lapses');
sql("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'");
becomes("SELECT lapsed = 2 FROM revenant.stat_leases", 'the sweep counts it');
is(sql("SELECT count(*) FROM revenant.lease WHERE name = 'brief'"), 0, 'when it removes it');

# --- how runs end

sql('CREATE TABLE log (task text)');
sql('SELECT revenant.stat_reset()');
sql("SELECT revenant.create_task('good', 'SELECT pg_sleep(0.02)', restart => 'transient')");
becomes_of_task('good', 'runs = 1', 'a run ended');
is(task('good', 'runs, succeeded, failed, stopped, interrupted, restarts, slot_waits, quarantined'), '1|1|0|0|0|0|0|0', 'well');
is(task('good', 'total_run_time >= 20, total_run_time = max_run_time, total_start_delay > 0, total_start_delay = max_start_delay'), 't|t|t|t', 'with its times');
sql("SELECT revenant.run_task('good')");
becomes_of_task('good', 'runs = 2', 'another one ended');
is(task('good', 'runs, succeeded, total_run_time > max_run_time, total_start_delay > max_start_delay'), '2|2|t|t', 'times add up');

sql("SELECT revenant.create_task('bad', 'SELECT 1/0', backoff_min => '10 ms', backoff_max => '10 ms', max_restarts => 2)");
becomes_of_task('bad', 'quarantined = 1', 'a task is given up');
is(task('bad', 'runs, succeeded, failed, stopped, interrupted, restarts, quarantined'), '3|0|3|0|0|2|1', 'after three failures and two restarts');
is(sql("SELECT s.runs = t.runs AND s.failed = t.failures AND s.restarts = t.restarts FROM revenant.stat_tasks AS s JOIN revenant.tasks AS t USING (name) WHERE name = 'bad'"),
	't', 'as the view of tasks has it');

sql("SELECT revenant.create_task('daemon', 'SELECT pg_sleep(3600)')");
becomes("SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'daemon'", 'a task runs on');
is(task('daemon', 'runs'), 0, 'and is not counted yet');
sql("SELECT revenant.disable_task('daemon')");
becomes_of_task('daemon', 'stopped = 1', 'it was stopped');
is(task('daemon', 'runs, succeeded, failed, stopped, restarts'), '1|0|0|1|0', 'which is no failure');
sql("SELECT revenant.enable_task('daemon')");
becomes("SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'daemon'", 'it runs again');
is(task('daemon', 'runs, stopped'), '1|1', 'counters outlast that');

sql("SELECT revenant.create_task('second', 'SELECT pg_sleep(3600)')");
becomes("SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'second'", 'both runners are taken');
sql("SELECT revenant.create_task('late', 'INSERT INTO public.log VALUES (''late'')', restart => 'temporary')");
becomes("SELECT phase = 'waiting_for_slot' FROM revenant.tasks WHERE name = 'late'", 'a third task waits');
my $ticks = sql("SELECT supervisor_ticks FROM revenant.stat_database WHERE datname = 'postgres'");
$since = sql('SELECT clock_timestamp()');
becomes("SELECT supervisor_ticks >= $ticks + 2 AND clock_timestamp() > '$since'::timestamptz + interval '0.2 s' FROM revenant.stat_database WHERE datname = 'postgres'",
	'and is looked at again and again');
is(task('late', 'runs, slot_waits'), '0|1', 'which is one wait');
sql("SELECT revenant.drop_task('second')");
becomes_of_task('late', 'runs = 1', 'then it runs');
is(task('late', 'succeeded, slot_waits, max_start_delay > 200'), '1|1|t', 'late');

is(sql("SELECT task_runs, task_failures, supervisor_loads > 0, total_load_time >= max_load_time AND max_load_time > 0 FROM revenant.stat_database WHERE datname = 'postgres'"),
	'8|3|t|t', 'the database has it all, the dropped task\'s run too');
is(sql("SELECT count(*) FROM revenant.stat_tasks WHERE name = 'second'"), 0, 'which has no row any more');
sql("BEGIN; SELECT revenant.drop_task('bad'); SELECT revenant.create_task('bad', 'SELECT 1', restart => 'temporary'); COMMIT");
becomes_of_task('bad', 'runs = 1', 'a new task with an old name runs');
is(task('bad', 'runs, succeeded, failed, quarantined'), '1|1|0|0', 'and begins at zero');

# --- what the page about monitoring asks can be pasted

my @queries = slurp_file(abs_path(dirname(__FILE__) . '/../../docs/monitoring.md')) =~ /^```sql\n(.*?)^```$/msg;
cmp_ok(scalar @queries, '>=', 5, 'there are queries');
foreach my $query (@queries)
{
	my ($status, undef, $err) = $node->psql('postgres', $query, on_error_stop => 1);

	is($status, 0, 'pasted: ' . ($query =~ /FROM ([a-z_.]+)/)[0]) or diag($err);
}

# --- a reset, beside a run that is under way

my $before = leases('stats_reset');
sql('SELECT revenant.stat_reset()');
is(sql('SELECT sum(runs + succeeded + failed + stopped + interrupted + restarts + slot_waits + quarantined), sum(total_run_time + max_run_time + total_start_delay + max_start_delay) FROM revenant.stat_tasks'),
	'0|0', 'after a reset all tasks are at zero');
is(sql("SELECT task_runs, task_failures FROM revenant.stat_database WHERE datname = 'postgres'"), '0|0', 'and the database');
is(sql("SELECT bool_and(stats_reset > '$before') FROM (SELECT stats_reset FROM revenant.stat_tasks UNION ALL SELECT stats_reset FROM revenant.stat_leases UNION ALL
	SELECT stats_reset FROM revenant.stat_database WHERE datname = 'postgres') AS s"), 't', 'since now');
sql("SELECT revenant.restart_task('daemon')");
becomes_of_task('daemon', 'stopped = 1', 'the next end is counted');

# --- a standby has counters of its own

$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "revenant.node_name = 'standby'");
$standby->start;
$node->wait_for_catchup('standby', 'replay', $node->lsn('flush'));
sql("SELECT revenant.release('one', revenant.acquire('one'))");
is(leases('acquired > 0'), 't', 'the primary counts');
$before = leases('acquired');
is($standby->safe_psql('postgres', 'SELECT acquired, released, stats_reset IS NOT NULL FROM revenant.stat_leases'), '0|0|t', 'a standby has no part in that');
is($standby->safe_psql('postgres', "SELECT sum(runs), count(*) > 0 FROM revenant.stat_tasks"), '0|t', 'nor of its tasks, which it lists');
ok( $standby->poll_query_until('postgres', "SELECT supervisor_ticks > 0 FROM revenant.stat_database WHERE datname = 'postgres'"), 'it counts what it does itself');
$standby->safe_psql('postgres', 'SELECT revenant.stat_reset()');
is(leases('acquired'), $before, 'a reset there is not one here');

# --- a promotion: the run that was under way elsewhere

becomes("SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'daemon'", 'a task runs');
$node->wait_for_catchup('standby', 'replay', $node->lsn('insert'));
$node->stop('immediate');
$standby->promote;
asks($standby);
becomes_of_task('daemon', 'interrupted = 1', 'the new primary finds that a run was interrupted');
is(task('daemon', 'runs, succeeded, failed, stopped, restarts'), '1|0|0|0|1', 'and counts it once');
becomes("SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'daemon'", 'it runs there');

# --- a restart and a crash begin at zero

sql("SELECT revenant.release('one', revenant.acquire('one')); SELECT revenant.run_task('good')");
becomes_of_task('good', 'runs = 1', 'something was counted');
$before = leases('stats_reset');
$standby->restart;
is(leases("released, stats_reset > '$before'"), '0|t', 'not any more after a restart');
is(task('good', 'runs'), 0, 'nor for a task');
becomes("SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'daemon'", 'the task runs again');
sql("SELECT revenant.release('one', revenant.acquire('one'))");
kill 'QUIT', sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'revenant launcher'");
ok($standby->poll_query_until('postgres', 'SELECT released = 0 FROM revenant.stat_leases'), 'nor after a crash');
becomes_of_task('daemon', 'interrupted = 1', 'which is an interruption');

# --- another instance of the extension: who counted for the old one does so for the new one, and who does nothing harms nobody

my $busy = $standby->background_psql('postgres', on_error_stop => 0);
my $idle = $standby->background_psql('postgres', on_error_stop => 0);
$_->query_safe("SELECT revenant.release('one', revenant.acquire('one'))") foreach $busy, $idle;
my $shown = "SELECT count(*) FROM revenant.stat_database WHERE datname = 'postgres'";
sql('CREATE DATABASE other');
$standby->safe_psql('other', 'CREATE EXTENSION revenant');
is($standby->safe_psql('other', $shown), 1, 'another database sees one row of this');
sql('DROP EXTENSION revenant');
ok($standby->poll_query_until('other', $shown, '0'), 'and none when its extension is gone, whoever still is attached to it');
sql('CREATE EXTENSION revenant');
is(leases('acquired, released'), '0|0', 'made again it begins at zero');
$busy->query_safe("SELECT revenant.release('one', revenant.acquire('one'))");
is(leases('acquired, released'), '1|1', 'and a session of before counts for it');
is($standby->safe_psql('other', $shown), 1, 'another database sees one row again');
is($standby->safe_psql('other', "SELECT leases_acquired FROM revenant.stat_database WHERE datname = 'postgres'"), 1, 'the new one');
$idle->query_safe('SELECT 1');
$idle->quit;
$busy->quit;
sql('DROP DATABASE other');
is(sql("SELECT count(*) FROM revenant.stat_database"), 1, 'a database that is gone is not shown');

# --- no room: nothing is counted, and nobody notices

$standby->append_conf('postgresql.conf', "revenant.shared_memory = '4 MB'");
$standby->restart;
sql('CREATE DATABASE late');
$standby->psql('postgres', q{DO $$ BEGIN
	FOR i IN 1 .. 100000 LOOP
		PERFORM revenant.try_acquire('lease ' || i, ttl => '1 h');
		COMMIT;
	END LOOP;
END $$});
sqlstate('53200', "SELECT revenant.try_acquire('no room')", 'shared memory is full');
cmp_ok(leases('acquired'), '>', 1000, 'who counted before does so still');
$standby->safe_psql('late', 'CREATE EXTENSION revenant');
is($standby->safe_psql('late', 'SELECT acquired, rejected, total_wait_time, stats_reset FROM revenant.stat_leases'), '0|0|0|', 'another database has no counters');
is($standby->safe_psql('late', "SELECT count(*), count(stats_reset) FROM revenant.stat_database WHERE datname = 'late'"), '1|0', 'and says so');
is($standby->safe_psql('late', "SELECT revenant.stat_reset(), revenant.renew('nothing', 1) IS NULL"), '|t', 'and everything else is as ever');
sql("DO \$\$ BEGIN PERFORM revenant.revoke(lease) FROM (SELECT lease FROM revenant.leases LIMIT 500) AS l; END \$\$");
sql("SELECT revenant.release('one', revenant.acquire('one'))");
ok($standby->poll_query_until('late', 'SELECT stats_reset IS NOT NULL FROM revenant.stat_leases'), 'with room again it counts');
is($standby->safe_psql('late', "SELECT revenant.release('one', revenant.acquire('one')); SELECT acquired FROM revenant.stat_leases"), "t\n1", 'what is done then');

$standby->stop('fast');
done_testing();
