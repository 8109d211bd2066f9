# Every transition of a task is an event, in its order, in the ring; what the log and NOTIFY get of them is as the settings say.

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
$node->append_conf('postgresql.conf', "revenant.node_name = 'one'\nrevenant.max_runners = 2\nrevenant.event_buffer = 4096");
$node->start;
asks($node);
sql('CREATE EXTENSION revenant; CREATE ROLE reader LOGIN; CREATE ROLE worker LOGIN; CREATE ROLE member LOGIN IN ROLE worker');
$node->backup('base');

# The events of a task, oldest first.
sub events { return sql("SELECT string_agg(event, ' ' ORDER BY seq) FROM revenant.events() WHERE subject = '$_[0]'") }

sub tells
{
	my ($task, $expected, $name) = @_;

	is(events($task), $expected, $name);
	return;
}

becomes("SELECT count(*) = 1 FROM revenant.events() WHERE event = 'process.initialized' AND subject = 'postgres'", 'a supervisor tells that it is there');
is(sql("SELECT count(*) FROM revenant.events() WHERE event LIKE 'task.%' OR event LIKE 'child.%'"), '0', 'and nothing else has happened');

# --- what pg_stat_activity says of the processes

# a wait event of its own takes a server that lets extensions have one
my $named = sql("SELECT current_setting('server_version_num')::int >= 170000") eq 't';
becomes("SELECT string_agg(backend_type || ' ' || wait_event_type || ' ' || wait_event, ', ' ORDER BY backend_type) = '"
	  . join(', ', map { "revenant \l$_ Extension " . ($named ? "Revenant${_}Main" : 'Extension') } qw(Launcher Supervisor))
	  . "' FROM pg_stat_activity WHERE backend_type IN ('revenant launcher', 'revenant supervisor')",
	'the workers say what they are and what they wait for');

# --- one run, from its creation to its end

sql("BEGIN; SELECT revenant.create_task('run', 'SELECT 1', '1 h', run_as => 'worker'); SELECT revenant.run_task('run'); COMMIT");
becomes("SELECT phase = 'scheduled' AND runs = 1 FROM revenant.tasks WHERE name = 'run'", 'it ran');
my $run = 'task.claiming leadership.claimed child.started child.exited leadership.lost';
tells('run', $run, 'a run is told from its claim to its end');
is(sql("SELECT count(DISTINCT token), min(token) = (SELECT token FROM revenant.tasks), min(node) FROM revenant.events() WHERE subject = 'run'"), '1|t|one', 'with its token');
is(sql("SELECT count(DISTINCT pid) FROM revenant.events() WHERE subject = 'run' AND event <> 'task.claiming'"), '1', 'and its process');
is(sql("SELECT pid = (SELECT pid FROM revenant.task_runs) FROM revenant.events() WHERE event = 'child.exited'"), 't', 'which is its own');
is(sql("SELECT phase, detail ->> 'outcome' FROM revenant.events() WHERE event = 'child.exited'"), 'scheduled|succeeded', 'how it ended');
is(sql("SELECT phase, detail ->> 'lease' FROM revenant.events() WHERE event = 'leadership.claimed'"), 'leading|task/run', 'and by which lease');
sql("SELECT revenant.disable_task('run')");
becomes("SELECT phase = 'disabled' FROM revenant.tasks WHERE name = 'run'", 'it is disabled');
sql("SELECT revenant.enable_task('run')");
becomes("SELECT phase = 'scheduled' FROM revenant.tasks WHERE name = 'run'", 'and enabled');
tells('run', "$run task.disabled task.scheduled", 'so are these');

# --- each other phase

sql("SELECT revenant.create_task('stop', 'SELECT pg_sleep(3600)')");
becomes("SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'stop'", 'one runs');
is(sql("SELECT backend_type || ', ' || application_name || ', ' || query FROM pg_stat_activity WHERE pid = (SELECT pid FROM revenant.tasks WHERE name = 'stop')"),
	'revenant runner, revenant task stop, SELECT pg_sleep(3600)', 'as a process that says what it is');
sql("SELECT revenant.disable_task('stop')");
becomes("SELECT phase = 'disabled' FROM revenant.tasks WHERE name = 'stop'", 'and is stopped');
# a supervisor in the middle of a tick may start another process, which finds that it is disabled
like(events('stop'), qr/^task\.claiming leadership\.claimed child\.started (task\.stopping )?child\.stopped leadership\.lost (task\.\w+ )*task\.disabled$/, 'which is no exit');
sql("SELECT revenant.create_task('fail', 'SELECT 1/0', max_restarts => 1, backoff_min => '50 ms')");
becomes("SELECT phase = 'quarantined' FROM revenant.tasks WHERE name = 'fail'", 'one fails');
tells('fail', "$run task.backoff $run task.quarantined", 'is tried again, and given up');
is(sql("SELECT detail ->> 'outcome', detail ->> 'sqlstate', detail ->> 'message' FROM revenant.events() WHERE subject = 'fail' AND event = 'child.exited' LIMIT 1"), 'failed|22012|division by zero', 'and why');
like(sql("SELECT detail ->> 'reason' FROM revenant.events() WHERE event = 'task.quarantined'"), qr/failed more often than its max_restarts \(1\)/, 'in words');
sql("SELECT revenant.create_task('once', 'SELECT 1', restart => 'temporary')");
becomes("SELECT phase = 'finished' FROM revenant.tasks WHERE name = 'once'", 'one has ended');
tells('once', "$run task.finished", 'for good');
sql("SELECT revenant.create_task('full ' || n, 'SELECT pg_sleep(3600)') FROM generate_series(1, 3) AS n");
becomes("SELECT count(*) = 1 FROM revenant.tasks WHERE phase = 'waiting_for_slot'", 'one waits for a runner');
is(sql("SELECT count(*) FROM revenant.events() WHERE event = 'task.waiting_for_slot'"), '1', 'which is told once');
sql("SELECT revenant.drop_task(name) FROM revenant.tasks WHERE name LIKE 'full%'; ALTER ROLE worker RENAME TO other");
becomes("SELECT phase = 'held' FROM revenant.tasks WHERE name = 'run'", 'one is held');
like(sql("SELECT detail ->> 'reason' FROM revenant.events() WHERE event = 'task.held' AND subject = 'run'"), qr/renamed/, 'for a reason');
sql('ALTER ROLE other RENAME TO worker');

# --- who sees what

sql("SELECT revenant.grant_usage('reader', 'reader'); SELECT revenant.grant_usage('member', 'reader')");
is(sql("SET SESSION AUTHORIZATION reader; SELECT count(*) > 0, count(token), count(detail) FROM revenant.events() WHERE subject = 'run'"), 't|0|0', 'a reader sees that something happened');
is(sql("SET SESSION AUTHORIZATION member; SELECT count(token) > 0 AND count(detail) > 0 FROM revenant.events() WHERE subject = 'run'"), 't', 'who may become its role sees what');

# --- the log, and NOTIFY

my $log = slurp_file($node->logfile);
like($log, qr/LOG:  leadership\.claimed: "stop"/, 'who leads is in the log');
unlike($log, qr/LOG:  leadership\.\w+: "run"/, 'but not for each time of a schedule');
unlike($log, qr/LOG:  (child|task)\./, 'each step is not');
my $offset = -s $node->logfile;
$node->append_conf('postgresql.conf', "revenant.log_events = 'child., task.quarantined'\nrevenant.notify = on");
$node->reload;
my $listener = $node->background_psql('postgres');
$listener->query_safe('LISTEN revenant');
sql("SELECT revenant.unquarantine_task('fail')");
$node->wait_for_log(qr/LOG:  task\.quarantined: "fail"/, $offset);
$log = slurp_file($node->logfile, $offset);
like($log, qr/LOG:  child\.exited: "fail"/, 'it can be asked for');
unlike($log, qr/LOG:  (leadership|task\.backoff)/, 'instead of the rest');
$offset = -s $node->logfile;
$node->append_conf('postgresql.conf', "revenant.log_events = 'leadership.'");
$node->reload;
sql("SELECT revenant.run_task('run')");
$node->wait_for_log(qr/LOG:  leadership\.lost: "run"/, $offset);
ok(1, 'what is routine can be asked for, too');
becomes("SELECT phase = 'quarantined' FROM revenant.tasks WHERE name = 'fail'", 'it failed again');
my $told = $listener->query_safe('SELECT 1');
like($told, qr/\{"event": "$_", "subject": "fail"\}/, "NOTIFY tells of $_") for qw(leadership.claimed child.started child.exited task.quarantined);
unlike($told, qr/division|22012/, 'by name alone');
$listener->quit;

# --- somebody else's NOTIFY, which waits for a standby that is not there

$node->append_conf('postgresql.conf', "synchronous_standby_names = 'nobody'\nsynchronous_commit = local");
$node->reload;
my $stuck = IPC::Run::start(
	[ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', 'SET synchronous_commit = on', '-c', 'BEGIN; CREATE TABLE stuck (x int); NOTIFY something; COMMIT' ],
	'>', \my $out, '2>', \my $err);
becomes("SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'", 'a commit with a NOTIFY waits');
sql("SELECT revenant.create_task('beside', 'SELECT pg_sleep(3600)')");
becomes("SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'beside'", 'and keeps no task from running');
for my $again (1 .. 2)
{
	sql("SELECT revenant.restart_task('beside')");
	becomes("SELECT count(*) = $again + 1 FROM revenant.events() WHERE subject = 'beside' AND event = 'child.started'", 'nor from running again');
}
is(sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'revenant %' AND wait_event_type = 'Lock'"), '0', 'nor a worker waiting');
$listener = $node->background_psql('postgres');
$listener->query_safe('LISTEN revenant');
sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
$stuck->finish;
sql("SELECT revenant.drop_task('beside')");
my $beside = '';
for (my $i = 0; $i < 300 && (() = $beside =~ /child.stopped/g) < 3; $i++)
{
	$beside .= $listener->query_safe('SELECT pg_sleep(0.05)');
}
is(scalar(() = $beside =~ /"child.stopped", "subject": "beside"/g), 3, 'what it did is notified afterwards, each time');
$listener->quit;
$node->append_conf('postgresql.conf', "synchronous_standby_names = ''");
$node->reload;

# --- a standby, and its promotion

$node->append_conf('postgresql.conf', "revenant.log_events = 'transitions'\nrevenant.notify = off");
$node->reload;
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "revenant.node_name = 'two'");
$standby->start;
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
asks($standby);
becomes("SELECT count(*) = 1 FROM revenant.events() WHERE subject = 'run' AND event = 'monitor.started'", 'a standby begins to follow');
sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'");
becomes("SELECT count(*) = 2 FROM revenant.events() WHERE event = 'process.initialized'", 'another supervisor comes');
is(sql("SELECT string_agg(event, ' ' ORDER BY seq) FROM revenant.events() WHERE event LIKE 'process.%'"), 'process.initialized process.terminating process.initialized', 'which the one before it told');
is(sql("SELECT count(*) FROM revenant.events() WHERE subject = 'run' AND event = 'monitor.started'"), '1', 'and follows what is followed already');
$node->stop('immediate');
$standby->promote;
becomes("SELECT phase = 'scheduled' FROM revenant.tasks WHERE name = 'run'", 'it leads');
is(events('run'), 'monitor.started monitor.leader_down task.scheduled', 'since the leader is gone');
like(slurp_file($standby->logfile), qr/LOG:  monitor\.leader_down: "run"/, 'as the log says');
$standby->stop('fast');
like(slurp_file($standby->logfile), qr/LOG:  process\.terminating: "postgres"/, 'at the end it tells that it goes');
unlike(slurp_file($standby->logfile) . slurp_file($node->logfile), qr/cannot go from phase/, 'no transition was outside the table');

done_testing();
