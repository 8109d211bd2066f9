# What ended is started again as its policy says, what fails too often is given up, visibly and for good, and both survive another
# supervisor, a crash and a promotion.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('primary');
$node->init(allows_streaming => 1);
$node->start;
asks($node);

sub task { return sql("SELECT phase FROM revenant.tasks WHERE name = '$_[0]'"); }

sql(q{
	CREATE EXTENSION revenant;
	CREATE TABLE log (id bigserial, at timestamptz DEFAULT clock_timestamp(), task text);
	CREATE TABLE how (task text PRIMARY KEY, fails boolean);
	CREATE PROCEDURE work() LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.log (task) VALUES (revenant.current_task());
		COMMIT;
		IF (SELECT fails FROM public.how WHERE task = revenant.current_task()) THEN
			RAISE 'task % fails', revenant.current_task();
		END IF;
	END $$;
});
sub runs { return sql("SELECT count(*) FROM log WHERE task = '$_[0]'"); }

# --- policies

foreach my $policy ('permanent', 'transient', 'temporary')
{
	foreach my $fails ('f', 't')
	{
		sql("INSERT INTO how VALUES ('$policy $fails', '$fails');
			SELECT revenant.create_task('$policy $fails', 'CALL public.work()', restart => '$policy', backoff_min => '100 ms', backoff_max => '100 ms', max_restarts => 3)");
	}
}
becomes("SELECT phase = 'finished' FROM revenant.tasks WHERE name = '$_'", "$_: finished") for 'transient f', 'temporary f', 'temporary t';
becomes("SELECT phase = 'quarantined' FROM revenant.tasks WHERE name = '$_'", "$_: quarantined") for 'permanent t', 'transient t';
becomes("SELECT count(*) > 6 FROM log WHERE task = 'permanent f'", 'permanent f: goes on');
is(runs($_), 1, "$_: ran once") for 'transient f', 'temporary f', 'temporary t';
is(runs($_), 4, "$_: three more times than once, and no more") for 'permanent t', 'transient t';
like(sql("SELECT reason FROM revenant.tasks WHERE name = 'permanent t'"), qr/failed more often than its max_restarts \(3\) within its restart_window.*unquarantine_task/, 'the reason shows');
is(sql("SELECT last_error || ' ' || failures || ' ' || restarts FROM revenant.tasks WHERE name = 'permanent t'"), 'task permanent t fails 4 3', 'and what was wrong');
like(slurp_file($node->logfile), qr/LOG:  task "permanent t" is quarantined: it failed 4 times.*\n.*DETAIL:  The last time: task permanent t fails/, 'the log tells once');
is(() = slurp_file($node->logfile) =~ /"permanent t" is quarantined/g, 1, 'and only once');
is(sql("SELECT reason FROM revenant.tasks WHERE name = 'temporary t'"), 'has ended, and restart is temporary', 'why a finished one does not run shows, too');

# --- another supervisor, a crash, a promotion: what is over stays over

my $others = "SELECT string_agg(name || ' ' || phase, ', ' ORDER BY name) FROM revenant.tasks WHERE name <> 'permanent f'";
my $before = sql($others);
my $supervisor = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'";
my $pid = sql($supervisor);
my $seen = runs('permanent f');
sql("SELECT pg_terminate_backend($pid)");
becomes("SELECT count(*) > $seen + 1 FROM log WHERE task = 'permanent f'", 'another supervisor comes');
is(sql($others), $before, 'all is as before');
$node->stop('immediate');
$node->start;
$seen = runs('permanent f');
becomes("SELECT count(*) > $seen + 1 FROM log WHERE task = 'permanent f'", 'after a crash');
is(sql($others), $before, 'all is as before');
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);
$node->stop('immediate');
$standby->promote;
my $primary = $node;
$node = $standby;
asks($node);
$seen = runs('permanent f');
becomes("SELECT count(*) > $seen + 1 FROM log WHERE task = 'permanent f'", 'after a promotion');
is(sql($others), $before, 'all is as before');

# --- a task that is quarantined begins anew when it is told to

sqlstate('RV007', "SELECT revenant.run_task('permanent t')", 'what is quarantined is not run by run_task');
sql("BEGIN; SELECT revenant.unquarantine_task('permanent t'); ROLLBACK");
is(task('permanent t'), 'quarantined', 'rolled back');
sql("UPDATE how SET fails = false WHERE task = 'permanent t'; SELECT revenant.unquarantine_task('permanent t')");
becomes("SELECT count(*) > 8 FROM log WHERE task = 'permanent t'", 'it runs again');
is(sql("SELECT phase IN ('claiming', 'leading', 'backoff', 'scheduled') FROM revenant.tasks WHERE name = 'permanent t'"), 't', 'and is like any other');
sql("UPDATE how SET fails = true WHERE task = 'permanent t'");
becomes("SELECT phase = 'quarantined' FROM revenant.tasks WHERE name = 'permanent t'", 'until it fails too often again');
sql("UPDATE how SET fails = false WHERE task = 'permanent t'; SELECT revenant.disable_task('permanent t'); SELECT revenant.enable_task('permanent t')");
$seen = runs('permanent t');
becomes("SELECT count(*) > $seen FROM log WHERE task = 'permanent t'", 'enable_task begins anew, too');
sql("SELECT revenant.unquarantine_task('temporary f')");
is(task('temporary f'), 'finished', 'one that is not quarantined is left as it is');

# --- failures spread over a longer time are none too many

sql("INSERT INTO how VALUES ('patient', true); SELECT revenant.create_task('patient', 'CALL public.work()', backoff_min => '300 ms', backoff_max => '300 ms', max_restarts => 1, restart_window => '200 ms')");
becomes("SELECT count(*) >= 6 FROM log WHERE task = 'patient'", 'one failure at a time goes on');
is(sql("SELECT phase <> 'quarantined' FROM revenant.tasks WHERE name = 'patient'"), 't', 'for ever');
sql("SELECT revenant.drop_task('patient')");

# --- with a schedule

sql("INSERT INTO how VALUES ('hourly', true), ('hourly once', true);
	SELECT revenant.create_task('hourly', 'CALL public.work()', '\@yearly', restart => 'transient', backoff_min => '100 ms', backoff_max => '100 ms', max_restarts => 2);
	SELECT revenant.create_task('hourly once', 'CALL public.work()', '\@yearly', restart => 'temporary')");
becomes("SELECT count(*) = 2 FROM revenant.tasks WHERE name LIKE 'hourly%' AND phase = 'scheduled'", 'scheduled');
sql("SELECT revenant.run_task('hourly'), revenant.run_task('hourly once')");
becomes("SELECT phase = 'quarantined' FROM revenant.tasks WHERE name = 'hourly'", 'a run that failed is tried again, within limits');
is(runs('hourly'), 3, 'two more times');
becomes("SELECT phase = 'scheduled' AND runs = 1 FROM revenant.tasks WHERE name = 'hourly once'", 'a temporary one waits for its next time instead');
is(sql("SELECT next_run = date_trunc('year', now()) + interval '1 year' FROM revenant.tasks WHERE name = 'hourly once'"), 't', 'which run_task did not move');

# --- run_task: once, at commit

sql("BEGIN; SELECT revenant.run_task('temporary f'); ROLLBACK");
sql("SELECT revenant.run_task('transient f')");
becomes("SELECT count(*) = 2 FROM log WHERE task = 'transient f'", 'run_task runs a finished task again');
becomes("SELECT phase = 'finished' FROM revenant.tasks WHERE name = 'transient f'", 'once');
is(runs('temporary f'), 1, 'and one that was rolled back does not');
sql("SELECT revenant.create_task('long', 'SELECT pg_sleep(600)', restart => 'temporary')");
becomes("SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'long'", 'a long one runs');
sqlstate('55006', "SELECT revenant.run_task('long')", 'and cannot be run beside itself');
sql("SELECT revenant.disable_task('temporary t')");
sqlstate('55006', "SELECT revenant.$_('temporary t')", "a disabled task: $_") for 'run_task', 'restart_task';

# --- restart_task

$pid = sql("SELECT pid FROM revenant.tasks WHERE name = 'long'");
sql("SELECT revenant.restart_task('long')");
is(sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid"), 0, 'restart_task returns when the old run is gone');
becomes("SELECT phase = 'leading' AND pid <> $pid FROM revenant.tasks WHERE name = 'long'", 'and another one runs');
$pid = sql("SELECT pid FROM revenant.tasks WHERE name = 'long'");
sql("BEGIN; SELECT revenant.restart_task('long'); ROLLBACK");
becomes("SELECT phase = 'leading' AND pid <> $pid FROM revenant.tasks WHERE name = 'long'", 'rolled back it is started again all the same');
sql("SELECT revenant.restart_task('transient t')");
becomes("SELECT count(*) >= 8 AND (SELECT phase = 'quarantined' FROM revenant.tasks WHERE name = 'transient t') FROM log WHERE task = 'transient t'", 'what is quarantined begins anew, too');

# --- arguments and rights

foreach my $function ('run_task', 'restart_task', 'unquarantine_task')
{
	sqlstate('22004', "SELECT revenant.$function(NULL)");
	sqlstate('22023', "SELECT revenant.$function('')");
	sqlstate('42704', "SELECT revenant.$function('nobody')");
	sqlstate('25006', "SET default_transaction_read_only = on; SELECT revenant.$function('long')");
	sqlstate('42501', "CREATE ROLE stranger_$function; SELECT revenant.grant_usage('stranger_$function', 'admin'); SET ROLE stranger_$function; SELECT revenant.$function('long')");
}
sqlstate('22023', "SELECT revenant.create_task('x', 'SELECT 1', max_restarts => 101)");

$node->stop;
done_testing();
