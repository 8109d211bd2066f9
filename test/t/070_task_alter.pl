# alter_task changes what it names and nothing else; a run ends only if it would never come to the change, and a rollback undoes all of it.

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
$node->start;
asks($node);
sql('CREATE EXTENSION revenant; CREATE ROLE worker LOGIN; CREATE ROLE outsider LOGIN;
	CREATE TABLE log (task text, what text, pid int, setting text, role text);
	GRANT INSERT ON log TO PUBLIC; GRANT SELECT ON log TO PUBLIC;
	SELECT revenant.grant_usage(\'worker\')');

# A command that notes that it runs, and goes on for ever.
sub long
{
	my ($what) = @_;
	return "INSERT INTO public.log VALUES (revenant.current_task(), ''$what'', pg_backend_pid(), current_setting(''work_mem''), session_user::text); SELECT pg_sleep(3600)";
}

sub alter
{
	my ($task, $changes) = @_;
	sql("SELECT revenant.alter_task('$task', \$\$$changes\$\$)");
	return;
}

sub pid { return sql("SELECT pid FROM revenant.tasks WHERE name = '$_[0]'") }

sub leads
{
	my ($task, $name) = @_;
	becomes("SELECT phase = 'leading' AND EXISTS (SELECT FROM log AS l WHERE l.pid = t.pid) FROM revenant.tasks AS t WHERE name = '$task'", $name);
	return;
}

# --- what can be created can be altered to

my $columns = join(', ', qw(command schedule timezone follower_command run_as run_as_oid restart max_restarts restart_window backoff_min
	  backoff_max timeout catch_up claim_delay lease settings enabled metadata));
my $all = q{"command": "SELECT 2", "schedule": "0 9 * * mon", "timezone": "Asia/Tokyo", "follower_command": "SELECT 3", "run_as": "worker",
	"restart": "transient", "max_restarts": 7, "restart_window": "1 h", "backoff_min": "2 s", "backoff_max": "3 h", "timeout": "4 min",
	"catch_up": "once", "claim_delay": "5 s", "lease": "shared", "settings": {"work_mem": "9MB"}, "enabled": false, "metadata": {"team": ["x"]}};
sql(q{SELECT revenant.create_task('wanted', 'SELECT 2', '0 9 * * mon', 'Asia/Tokyo', 'SELECT 3', 'worker', 'transient', 7, '1 h', '2 s', '3 h', '4 min',
	'once', '5 s', 'shared', '{"work_mem": "9MB"}', false, '{"team": ["x"]}');
	SELECT revenant.create_task('plain', 'SELECT 1', enabled => false); SELECT revenant.create_task('altered', 'SELECT 1', enabled => false)});
my $same = "SELECT ((SELECT ($columns)::text FROM revenant.task WHERE name = 'altered') = (SELECT ($columns)::text FROM revenant.task WHERE name = '%s'))";
is(sql(sprintf $same, 'wanted'), 'f', 'two tasks differ');
alter('altered', "{$all}");
is(sql(sprintf $same, 'wanted'), 't', 'everything can be altered at once');
alter('altered', '{}');
is(sql(sprintf $same, 'wanted'), 't', 'and what is absent stays');
alter('altered', q{{"schedule": null, "timezone": null, "follower_command": null, "run_as": null, "timeout": null, "lease": null, "settings": null,
	"metadata": null, "command": "SELECT 1", "restart": "permanent", "max_restarts": 5, "restart_window": "10 min", "backoff_min": "1 s",
	"backoff_max": "5 min", "catch_up": "skip", "claim_delay": "0"}});
is(sql(sprintf $same, 'plain'), 't', 'null is what create_task makes of it');
sql("SELECT revenant.drop_task(name) FROM revenant.tasks");

# --- what is refused

sql("SELECT revenant.create_task('bad', 'SELECT 1', '1 h')");
my $before = sql("SELECT t::text FROM revenant.task AS t");
my %refused = (
	22023 => [
		'[]', '1', '{"name": "x"}', '{"nonsense": 1}', '{"command": " "}', '{"command": 1}', '{"schedule": "5"}', '{"schedule": "x * * * *"}',
		'{"timezone": "Europe/Berlin"}', '{"schedule": "0 9 * * *", "timezone": "Mars/Base"}', '{"schedule": null, "timezone": "UTC"}', '{"follower_command": ""}', '{"restart": "often"}',
		'{"max_restarts": -1}', '{"max_restarts": 101}', '{"max_restarts": "3"}', '{"max_restarts": 1.5}', '{"restart_window": "0"}', '{"backoff_min": "10 min"}',
		'{"backoff_max": "1 ms"}', '{"timeout": "0"}', '{"timeout": 5}', '{"timeout": "11 years"}', '{"catch_up": "twice"}', '{"claim_delay": "-1 s"}', '{"lease": "task/other"}',
		'{"lease": ""}', '{"settings": []}', '{"settings": {"work_mem": "much"}}', '{"settings": {"work_mem": []}}', '{"enabled": 1}'
	],
	22004 => [ map { "{\"$_\": null}" } qw(command restart max_restarts restart_window backoff_min backoff_max catch_up claim_delay enabled) ],
	22003 => ['{"max_restarts": 99999999999}'],
	22007 => ['{"timeout": "soon"}'],
	42704 => [ '{"run_as": "ghost"}', '{"settings": {"no_such_thing": 1}}' ],
);
foreach my $state (sort keys %refused)
{
	sqlstate($state, "SELECT revenant.alter_task('bad', '$_')") for @{ $refused{$state} };
}
sqlstate('22004', "SELECT revenant.alter_task('bad', NULL)");
sqlstate('22004', "SELECT revenant.alter_task(NULL, '{}')");
sqlstate('42704', "SELECT revenant.alter_task('ghost', '{}')");
sqlstate('25006', "BEGIN READ ONLY; SELECT revenant.alter_task('bad', '{}')");
is(sql("SELECT t::text FROM revenant.task AS t"), $before, 'and nothing of that is there');
sql("SELECT revenant.drop_task('bad')");

# --- a run goes on where it can

sql("SELECT revenant.create_task('long', '" . long('first') . "', backoff_min => '10 ms')");
leads('long', 'it runs');
my $pid = pid('long');
alter('long', q{{"follower_command": "SELECT 3", "restart": "transient", "max_restarts": 7, "restart_window": "1 h", "backoff_min": "20 ms", "backoff_max": "3 h",
	"timeout": "4 min", "catch_up": "once", "claim_delay": "1 ms", "metadata": {"a": 1}, "enabled": true}});
is(sql("SELECT phase || pid FROM revenant.tasks WHERE name = 'long'"), "leading$pid", 'what is only about later does not end a run');
alter('long', '{"command": "' . long('first') =~ s/''/'/gr . '"}');
is(pid('long'), $pid, 'nor does what is so already');

my %ends = (
	command => '"' . long('second') =~ s/''/'/gr . '"',
	lease => '"another"',
	settings => '{"work_mem": "9MB"}',
	run_as => '"worker"',
);
foreach my $what (sort keys %ends)
{
	alter('long', "{\"$what\": $ends{$what}}");
	is(sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid"), '0', "another $what ends the run before it returns");
	leads('long', 'and another one begins');
	$pid = pid('long');
}
is(sql("SELECT what, setting, role FROM log WHERE pid = $pid"), 'second|9MB|worker', 'with all that was altered');
is(sql("SELECT failures || ' ' || lease FROM revenant.tasks WHERE name = 'long'"), '0 another', 'which is no failure');
sql("BEGIN; SELECT revenant.alter_task('long', '{\"command\": \"SELECT 1/0\"}'); ROLLBACK");
leads('long', 'a rollback starts it again');
is(sql("SELECT what FROM log AS l JOIN revenant.tasks AS t USING (pid)"), 'second', 'as it was');
alter('long', '{"schedule": "1 h"}');
becomes("SELECT phase = 'scheduled' AND next_run > now() FROM revenant.tasks WHERE name = 'long'", 'what gets a schedule ends, too');
sql("SELECT revenant.run_task('long')");
leads('long', 'the run of a schedule');
$pid = pid('long');
alter('long', '{"command": "SELECT 1", "schedule": "2 h"}');
is(sql("SELECT phase || pid FROM revenant.tasks WHERE name = 'long'"), "leading$pid", 'goes on, whatever is altered');
sql("SELECT pg_terminate_backend($pid)");
becomes("SELECT phase = 'scheduled' AND next_run > now() + '1 h' FROM revenant.tasks WHERE name = 'long'", 'and the next one is by the new schedule');
sql("SELECT revenant.run_task('long')");
becomes("SELECT phase = 'scheduled' AND last_exit = 0 FROM revenant.tasks WHERE name = 'long'", 'with the new command');
alter('long', '{"command": "' . long('third') =~ s/''/'/gr . '"}');
sql("SELECT revenant.run_task('long')");
leads('long', 'the run of a schedule');
$pid = pid('long');
alter('long', '{"schedule": null, "backoff_min": "10 ms"}');
is(sql("SELECT phase || pid FROM revenant.tasks WHERE name = 'long'"), "leading$pid", 'goes on also if there is no schedule any more');
sql("SELECT pg_terminate_backend($pid)");
becomes("SELECT phase = 'leading' AND pid <> $pid FROM revenant.tasks WHERE name = 'long'", 'then it runs all the time');
alter('long', '{"schedule": "2 h"}');
becomes("SELECT phase = 'scheduled' FROM revenant.tasks WHERE name = 'long'", 'and again at its times');
alter('long', '{"enabled": false}');
is(sql("SELECT enabled FROM revenant.tasks WHERE name = 'long'"), 'f', 'it can be disabled');
becomes("SELECT phase = 'disabled' FROM revenant.tasks WHERE name = 'long'", 'so it is');
alter('long', '{"enabled": true}');
becomes("SELECT phase = 'scheduled' FROM revenant.tasks WHERE name = 'long'", 'and enabled');
sql("SELECT revenant.drop_task('long')");

# --- while it waits for its lease

my $holder = $node->background_psql('postgres');
$holder->query_safe("SELECT revenant.acquire('wanted')");
sql("SELECT revenant.create_task('waits', '" . long('old') . "', '1 h', lease => 'wanted'); SELECT revenant.run_task('waits')");
becomes("SELECT phase = 'claiming' FROM revenant.tasks WHERE name = 'waits'", 'a run waits for its lease');
alter('waits', '{"command": "' . long('new') =~ s/''/'/gr . '"}');
becomes("SELECT phase = 'claiming' FROM revenant.tasks WHERE name = 'waits'", 'and goes on to wait, whatever is to be run');
$holder->query_safe("SELECT revenant.release('wanted', revenant.held_token('wanted'))");
leads('waits', 'then it runs');
is(sql("SELECT what FROM log AS l JOIN revenant.tasks AS t USING (pid)"), 'new', 'what was altered meanwhile');
sql("SELECT revenant.drop_task('waits')");
$holder->query_safe("SELECT revenant.acquire('wanted')");
sql("SELECT revenant.create_task('waits', '" . long('old') . "', lease => 'wanted')");
becomes("SELECT phase = 'claiming' FROM revenant.tasks WHERE name = 'waits'", 'one waits for a lease');
alter('waits', '{"lease": "free"}');
leads('waits', 'and gets another one instead');
sql("SELECT revenant.drop_task('waits')");

# What a run was started for is neither lost nor done twice, whatever becomes of it before it has its lease.
my $in_time = "INSERT INTO public.log VALUES (revenant.current_task(), ''in time'')";
sub count_in_time { return "(SELECT count(*) FROM log WHERE task = '$_[0]')" }
sql(join '; ', map { "SELECT revenant.create_task('$_', '$in_time', '3 s', catch_up => 'once', lease => 'wanted')" } qw(policy supervisor lease command));
sql("SELECT revenant.create_task('asked', '$in_time', '1 h', lease => 'wanted'); SELECT revenant.create_task('forgotten', '$in_time', '1 h', lease => 'wanted');
	SELECT revenant.run_task('asked'); SELECT revenant.run_task('forgotten')");
becomes("SELECT count(*) = 6 FROM revenant.tasks WHERE phase = 'claiming'", 'runs wait for a lease: four for a time, two because they were asked for');
sql("SELECT revenant.disable_task('forgotten'); SELECT revenant.enable_task('forgotten')");
alter('policy', '{"restart": "transient"}');
sql("BEGIN; SELECT revenant.alter_task('lease', '{\"schedule\": \"3 s\", \"lease\": \"free\", \"metadata\": {}}'); SELECT revenant.alter_task('asked', '{\"lease\": \"free\"}'); COMMIT");
becomes("SELECT " . count_in_time('lease') . " >= 1 AND " . count_in_time('asked') . " = 1", 'those with another lease run');
alter('command', q({"command": "SELECT 1/0", "backoff_min": "0"}));
sql("SELECT revenant.alter_task(name, '{\"schedule\": \"1 h\"}') FROM revenant.tasks WHERE name = 'lease'");
my $supervisor = sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'");
sql("SELECT pg_terminate_backend($supervisor)");
becomes("SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'revenant supervisor' AND pid <> $supervisor", 'another supervisor comes');
becomes("SELECT count(*) = 3 FROM revenant.tasks WHERE phase = 'claiming'", 'three still wait');
$holder->query_safe("SELECT revenant.release('wanted', revenant.held_token('wanted'))");
becomes("SELECT " . count_in_time($_) . " >= 1", "$_: it runs") for qw(policy supervisor);
becomes("SELECT failures >= 2 FROM revenant.tasks WHERE name = 'command'", 'command: what was altered fails, and is tried again');
is(sql("SELECT enabled_at = (SELECT enabled_at FROM revenant.task AS t WHERE t.name = s.name) FROM revenant.task_state AS s WHERE name = 'command'"), 't', 'as what it is now');
sql("SELECT revenant.disable_task(name) FROM revenant.tasks WHERE name IN ('policy', 'supervisor', 'command')");
is(sql("SELECT string_agg(name, ' ') FROM (SELECT t.name, count(*) AS n FROM revenant.task_runs AS r JOIN revenant.task AS t USING (name) WHERE t.schedule = '3 s'
		GROUP BY t.name, floor(extract(epoch FROM r.started_at - t.created_at) / 3), t.name HAVING count(*) > 2) AS x WHERE name IN ('policy', 'supervisor')"), '', 'and no time was run twice');
sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'");
sql("SELECT revenant.run_task('asked')");
becomes("SELECT " . count_in_time('asked') . " = 2", 'what is asked for again runs again');
is(sql('SELECT ' . count_in_time('forgotten')), '0', 'what was disabled meanwhile is not asked for any more');
sql("SELECT revenant.drop_task(name) FROM revenant.tasks");

# ... also what nobody would make up for, a quarter of a minute after its time, and what comes once after a start
sql("SELECT revenant.create_task('once', '$in_time', '\@reboot', lease => 'wanted'); SELECT revenant.create_task('late', '$in_time', '3600 s', lease => 'wanted');
	UPDATE revenant.task SET created_at = clock_timestamp() - interval '3599 s' WHERE name = 'late'");
$holder->quit;
my $wanted = sql("SELECT revenant.try_acquire('wanted', ttl => '1 h')");
$node->restart;
$holder = $node->background_psql('postgres');
becomes("SELECT count(*) = 2 FROM revenant.tasks WHERE phase = 'claiming'", 'a run after a start, and one at its time, wait for a lease') or diag sql('SELECT name, phase, reason FROM revenant.tasks');
$supervisor = sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'");
sql("SELECT pg_terminate_backend($supervisor)");
becomes("SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'revenant supervisor' AND pid <> $supervisor", 'another supervisor comes');
becomes("SELECT clock_timestamp() > created_at + interval '3611 s' FROM revenant.task WHERE name = 'late'", 'it gets late');
alter('late', q({"command": "INSERT INTO public.log VALUES (revenant.current_task(), 'in time')", "settings": {"work_mem": "9MB"}}));
sql("SELECT revenant.release('wanted', $wanted)");
becomes("SELECT " . count_in_time('late') . " = 1 AND " . count_in_time('once') . " = 1", 'each runs');
sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'");
becomes("SELECT count(*) = 2 FROM revenant.tasks WHERE phase = 'scheduled'", 'and is over');
is(sql("SELECT count(*) FROM log WHERE what = 'in time' AND task IN ('late', 'once')"), '2', 'once');

# --- while nobody can read what it is now

sql("SELECT revenant.create_task('unread', 'SELECT 1', '1 h', lease => 'wanted')");
my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE revenant.task_state IN EXCLUSIVE MODE');
sql("BEGIN; SELECT revenant.alter_task('unread', '{\"lease\": \"free\"}'); SELECT revenant.run_task('unread'); COMMIT");
my $claims = "(SELECT count(*) FROM revenant.events() WHERE subject = 'unread' AND event = 'task.claiming')";
$supervisor = sql("SELECT clock_timestamp() + interval '2 s'");
becomes("SELECT clock_timestamp() > '$supervisor'", 'for a while');
cmp_ok(sql("SELECT $claims"), '<=', 4, 'it is not tried again and again');
$locker->query_safe('COMMIT');
$locker->quit;
becomes("SELECT runs = 1 FROM revenant.tasks WHERE name = 'unread'", 'then it runs');
$holder->quit;
sql("SELECT revenant.drop_task(name) FROM revenant.tasks");

# --- what was given up, or had ended

sql("SELECT revenant.create_task('broken', 'SELECT 1/0', backoff_min => '0', max_restarts => 0)");
becomes("SELECT phase = 'quarantined' FROM revenant.tasks WHERE name = 'broken'", 'it was given up');
alter('broken', '{"max_restarts": 3, "metadata": {}}');
is(sql("SELECT phase FROM revenant.tasks WHERE name = 'broken'"), 'quarantined', 'and stays so while it is the same');
alter('broken', '{"command": "' . long('repaired') =~ s/''/'/gr . '"}');
leads('broken', 'repaired, it runs again');
sql("SELECT revenant.drop_task('broken')");
sql("SELECT revenant.create_task('once', 'SELECT 1', restart => 'temporary')");
becomes("SELECT phase = 'finished' FROM revenant.tasks WHERE name = 'once'", 'it has ended for good');
alter('once', '{"restart": "permanent", "backoff_min": "10 ms"}');
becomes("SELECT runs > 1 FROM revenant.tasks WHERE name = 'once'", 'but not if it is permanent');
alter('once', '{"restart": "transient"}');
becomes("SELECT phase = 'finished' FROM revenant.tasks WHERE name = 'once'", 'and again');
my $runs = sql("SELECT runs FROM revenant.tasks WHERE name = 'once'");
sql("SELECT revenant.run_task('once')");
becomes("SELECT runs = $runs + 1 AND phase = 'finished' FROM revenant.tasks WHERE name = 'once'", 'run_task runs it once');
sql("BEGIN; SELECT revenant.drop_task('once'); SELECT revenant.create_task('once', 'SELECT 1', restart => 'temporary', enabled => false); COMMIT;
	SELECT revenant.enable_task('once')");
becomes("SELECT runs = 1 AND phase = 'finished' FROM revenant.tasks WHERE name = 'once'", 'another one of its name');
sql("SELECT revenant.run_task('once')");
becomes("SELECT runs = 2 AND phase = 'finished' FROM revenant.tasks WHERE name = 'once'", 'is run on request, too');
sql("SELECT revenant.drop_task('once')");

# --- whose it is

sql("SELECT revenant.create_task('theirs', 'SELECT 1', '1 h', run_as => 'worker'); SELECT revenant.grant_usage('outsider', 'admin')");
sqlstate('42501', "SET SESSION AUTHORIZATION outsider; SELECT revenant.alter_task('theirs', '{\"command\": \"SELECT 2\"}')");
sqlstate('42501', "SET SESSION AUTHORIZATION worker; SELECT revenant.alter_task('theirs', '{}')");
sql("GRANT worker TO outsider");
sqlstate('42501', "SET SESSION AUTHORIZATION outsider; SELECT revenant.alter_task('theirs', '{\"run_as\": \"" . sql('SELECT current_user') . "\"}')");
sqlstate('42501', "SET SESSION AUTHORIZATION outsider; SELECT revenant.alter_task('theirs', '{\"settings\": {\"log_statement\": \"none\"}}')");
sql("SET SESSION AUTHORIZATION outsider; SELECT revenant.alter_task('theirs', '{\"command\": \"SELECT 3\"}')");
is(sql("SELECT command || run_as FROM revenant.tasks"), 'SELECT 3worker', 'who may become its role may alter it');
sql("SET SESSION AUTHORIZATION outsider; SELECT revenant.alter_task('theirs', '{\"run_as\": null}')");
is(sql("SELECT run_as FROM revenant.tasks"), 'outsider', 'and take it over');
sql("SELECT revenant.alter_task('theirs', '{\"run_as\": \"worker\"}'); DROP OWNED BY worker; DROP ROLE worker; CREATE ROLE worker LOGIN; GRANT INSERT ON log TO worker");
becomes("SELECT phase = 'held' FROM revenant.tasks", 'a role of the same name is another one');
alter('theirs', '{"run_as": "worker"}');
becomes("SELECT phase = 'scheduled' FROM revenant.tasks", 'which can be given the task');
sql("SELECT revenant.drop_task('theirs')");

# --- itself

sql("SELECT revenant.create_task('self', 'SELECT revenant.alter_task(''self'', ''{\"command\": \"" . (long('altered') =~ s/''/''''/gr) . "\"}'')')");
leads('self', 'a task can alter itself');
is(sql("SELECT failures FROM revenant.tasks"), '0', 'without harm');
sql("SELECT revenant.drop_task('self')");
sql(q{CREATE PROCEDURE endless() LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM revenant.alter_task('endless', '{"command": "INSERT INTO public.log VALUES (revenant.current_task(), ''ended'', pg_backend_pid()); SELECT pg_sleep(3600)"}');
		LOOP
			COMMIT;
			PERFORM pg_sleep(0.001);
		END LOOP;
	END
	$$;
	SELECT revenant.create_task('endless', 'CALL public.endless()')});
leads('endless', 'also one that would never come to its end');
unlike(slurp_file($node->logfile), qr/cannot go from phase/, 'no transition was outside the table');

$node->stop;
done_testing();
