# A follower_command runs on every standby while it follows, by the rules of its task, and writes nothing, ever; it is gone before the
# task's own command starts there.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Asks;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->append_conf('postgresql.conf', "revenant.node_name = 'old'\nlog_min_messages = warning");
$primary->start;
$primary->safe_psql('postgres', q{CREATE EXTENSION revenant;
	CREATE TABLE log (what text, followers bigint);
	CREATE ROLE worker LOGIN;
	GRANT INSERT ON log TO worker;
	CREATE FUNCTION followers() RETURNS bigint LANGUAGE sql AS
		$$SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'revenant runner' AND query LIKE '%a follower%' AND pid <> pg_backend_pid()$$;
	CREATE PROCEDURE await_promotion() LANGUAGE plpgsql AS $$
	BEGIN
		WHILE pg_is_in_recovery() LOOP
			COMMIT;
			PERFORM pg_sleep(0.001);
		END LOOP;
		COMMIT;
	END
	$$;
	-- each tries what it can as soon as it could
	CREATE PROCEDURE creep_in_plainly() LANGUAGE plpgsql AS $$
	BEGIN
		CALL public.await_promotion();
		INSERT INTO public.log VALUES ('crept in');
		COMMIT;
	END
	$$;
	CREATE PROCEDURE creep_in_by_setting() LANGUAGE plpgsql AS $$
	BEGIN
		CALL public.await_promotion();
		SET default_transaction_read_only = off;
		COMMIT;
		INSERT INTO public.log VALUES ('crept in');
		COMMIT;
	END
	$$;
	CREATE PROCEDURE creep_in_by_transaction() LANGUAGE plpgsql AS $$
	BEGIN
		CALL public.await_promotion();
		SET TRANSACTION READ WRITE;
		INSERT INTO public.log VALUES ('crept in');
		COMMIT;
	END
	$$;
	CREATE PROCEDURE creep_in_by_lease() LANGUAGE plpgsql AS $$
	BEGIN
		CALL public.await_promotion();
		PERFORM revenant.try_acquire('crept in');
		COMMIT;
		PERFORM pg_sleep(3600);
	END
	$$});
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "revenant.node_name = 'new'");
$standby->start;
asks($standby);

sub create
{
	my ($name, $follower, $more) = @_;
	$primary->safe_psql('postgres', "SELECT revenant.create_task('$name', 'INSERT INTO public.log SELECT ''leads'', public.followers(); SELECT pg_sleep(3600)', follower_command => '$follower', $more)");
	return;
}

# How often a follower_command of a task began or ended so.
sub count_of
{
	my ($task, $event, $outcome) = @_;
	return "(SELECT count(*) FROM revenant.events() WHERE subject = '$task' AND event = '$event'" . ($outcome ? " AND detail ->> 'outcome' = '$outcome'" : '') . ')';
}

my $running = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'revenant runner' AND application_name = 'revenant task warm'";

# --- it runs there

is(sql($running), '0', 'nothing runs');
create('warm', '/* a follower */ SELECT pg_sleep(3600)', "backoff_min => '10 ms', run_as => 'worker'");
becomes("$running AND query LIKE '%a follower%' AND usename = 'worker'" =~ s/SELECT count\(\*\)/SELECT count(*) = 1/r, 'it runs on the standby, as the role of its task');
becomes("SELECT reason LIKE 'follower_command: runs in process %' FROM revenant.tasks", 'which the view tells');
is(sql("SELECT phase, node, token = (SELECT token FROM revenant.task_state) FROM revenant.tasks"), 'following|old|t', 'beside who leads');
is(sql("SELECT pid FROM revenant.tasks"), $primary->safe_psql('postgres', 'SELECT pid FROM revenant.tasks'), 'there');
is($primary->safe_psql('postgres', $running), '1', 'and on the primary runs the command');
is($primary->safe_psql('postgres', "SELECT public.followers()"), '0', 'alone');
is(sql("SELECT string_agg(event || ' ' || phase, ', ' ORDER BY seq) FROM revenant.events() WHERE subject = 'warm'"), 'monitor.started following, child.started following', 'events tell it');
is(sql("SELECT count(*) FROM revenant.events() WHERE token IS NOT NULL"), '0', 'nobody leads there');

# --- by the rules of its task

create('writer', 'INSERT INTO public.log VALUES (1)', "backoff_min => '10 ms', max_restarts => 2");
becomes("SELECT reason LIKE 'follower_command: failed more often than its max_restarts (2)%' FROM revenant.tasks WHERE name = 'writer'", 'one that fails too often is given up');
is(sql("SELECT count(*), min(detail ->> 'sqlstate') FROM revenant.events() WHERE subject = 'writer' AND event = 'child.exited'"), '3|25006', 'here for trying to write');
is($primary->safe_psql('postgres', "SELECT phase, failures FROM revenant.tasks WHERE name = 'writer'"), 'leading|0', 'which is not the leader\'s trouble');
create('once', 'SELECT 1', "restart => 'temporary'");
becomes('SELECT ' . count_of('once', 'child.exited', 'succeeded') . ' = 1', 'a temporary one runs once');
create('booting', 'SELECT 1', "schedule => '\@reboot'");
becomes('SELECT ' . count_of('booting', 'child.exited', 'succeeded') . ' = 1', 'one of @reboot once since the standby follows');
create('timely', 'SELECT 1', "schedule => '1 s'");
becomes('SELECT ' . count_of('timely', 'child.exited', 'succeeded') . ' >= 2', 'one with a schedule at its times');
create('slow', 'SELECT pg_sleep(3600)', "timeout => '50 ms', max_restarts => 0");
becomes("SELECT detail ->> 'message' LIKE '%timeout of 0.050 s%' FROM revenant.events() WHERE subject = 'slow' AND event = 'child.exited'", 'its timeout holds there, too');
create('often', 'SELECT 1', "backoff_min => '10 ms'");
becomes('SELECT ' . count_of('often', 'child.exited', 'succeeded') . ' >= 3', 'one without a schedule again and again');
$primary->safe_psql('postgres', "SELECT revenant.run_task('booting')");
create('marker', '/* a marker */ SELECT pg_sleep(3600)', "lease => 'task/marker'");
becomes('SELECT ' . count_of('marker', 'child.started') . ' = 1', 'a later one is seen');
is(sql('SELECT ' . count_of('booting', 'child.started')), '1', 'run_task is for who leads');

# --- another supervisor knows

my $supervisor = sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'");
my $follower = sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'revenant task warm'");
sql("SELECT pg_terminate_backend($supervisor)");
becomes("SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'revenant supervisor' AND pid <> $supervisor", 'another supervisor comes');
my $often = sql('SELECT ' . count_of('often', 'child.exited'));
becomes('SELECT ' . count_of('often', 'child.exited') . " > $often", 'and goes on');
is(sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'revenant task warm'"), $follower, 'with what runs');
is(sql('SELECT ' . count_of('writer', 'child.exited') . ',' . count_of('once', 'child.exited') . ',' . count_of('booting', 'child.exited')), '3|1|1', 'and nothing is run that was given up or had ended');

# --- what becomes of a change on the primary

$primary->safe_psql('postgres', q{SELECT revenant.alter_task('warm', '{"follower_command": "/* a follower, altered */ SELECT pg_sleep(3600)"}')});
becomes("SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'revenant task warm' AND query LIKE '%altered%'", 'another follower_command takes the place of the old one');
$primary->safe_psql('postgres', q{SELECT revenant.alter_task('writer', '{"follower_command": "SELECT pg_sleep(3600)"}')});
becomes("SELECT reason LIKE '%runs in process%' FROM revenant.tasks WHERE name = 'writer'", 'also of one that was given up');
$primary->safe_psql('postgres', "SELECT revenant.alter_task('writer', '{\"follower_command\": null}'); SELECT revenant.drop_task('marker')");
becomes("SELECT reason = 'this server is a standby' FROM revenant.tasks WHERE name = 'writer'", 'none is none');
becomes("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name IN ('revenant task marker', 'revenant task writer'))", 'nothing of those runs');
$primary->safe_psql('postgres', "SELECT revenant.disable_task('warm')");
becomes("SELECT phase = 'disabled' FROM revenant.tasks WHERE name = 'warm'", 'a disabled task');
is(sql($running), '0', 'does not run there either');
$primary->safe_psql('postgres', "SELECT revenant.enable_task('warm')");
becomes($running =~ s/count\(\*\)/count(*) = 1/r, 'an enabled one does');
$standby->append_conf('postgresql.conf', 'revenant.enabled = off');
$standby->reload;
becomes("SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'revenant runner'", 'revenant.enabled = off ends all of them');
$standby->append_conf('postgresql.conf', 'revenant.enabled = on');
$standby->reload;
becomes($running =~ s/count\(\*\)/count(*) = 1/r, 'on begins again');

# --- a conflict with what is replayed is no failure

$primary->safe_psql('postgres', "CREATE TABLE big AS SELECT 1 AS x; SELECT revenant.drop_task('often'); SELECT revenant.drop_task('timely'); SELECT revenant.drop_task('slow')");
$standby->append_conf('postgresql.conf', 'max_standby_streaming_delay = 0');
$standby->reload;
create('reader', 'SELECT count(*), pg_sleep(3600) FROM public.big', "backoff_min => '10 ms', max_restarts => 0");
becomes("SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'revenant task reader' AND wait_event = 'PgSleep'", 'one reads a table');
$primary->safe_psql('postgres', 'DROP TABLE big; CREATE TABLE big AS SELECT 1 AS x');
becomes('SELECT ' . count_of('reader', 'child.exited', 'failed') . ' >= 1', 'and is in the way of its removal');
becomes("SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'revenant task reader' AND wait_event = 'PgSleep'", 'and comes back, whatever max_restarts is');

# --- a lock that is replayed

$primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
my $locker = $primary->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE revenant.task; CREATE TABLE seen_by_standby (x int)');
$primary->safe_psql('postgres', 'CREATE TABLE nothing (x int)');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
ok($standby->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_locks WHERE relation = 'revenant.task'::regclass AND mode = 'AccessExclusiveLock'"), 'somebody locks the tasks on the primary');
my $ticks = sql('SELECT sum(supervisor_ticks) FROM revenant.stat_database');
my $until = sql("SELECT clock_timestamp() + interval '2 s'");
becomes("SELECT clock_timestamp() > '$until'", 'for a while');
cmp_ok(sql('SELECT sum(supervisor_ticks) FROM revenant.stat_database') - $ticks, '<', 100, 'and the supervisor does not loop');
$locker->query_safe('ROLLBACK');
$locker->quit;

# --- promotion, with a supervisor that is not there to end what follows

create('creeping ' . $_, "/* a follower */ CALL public.creep_in_$_()", "claim_delay => '1 ms'") for qw(plainly by_setting by_transaction by_lease);
$primary->safe_psql('postgres', "SELECT revenant.create_task('leader', 'SELECT pg_sleep(3600)')");
becomes("SELECT phase = 'following' FROM revenant.tasks WHERE name = 'leader'", 'one without a follower_command follows, too');
becomes("SELECT count(*) = 4 FROM pg_stat_activity WHERE application_name LIKE 'revenant task creeping%'", 'four wait for the moment in which they could write');
$supervisor = sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'");
$primary->safe_psql('postgres', 'DELETE FROM log');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
kill 'STOP', $supervisor;
$primary->stop('immediate');
$standby->promote;
becomes("SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name LIKE 'revenant task creeping%'", 'they tried');
is(sql("SELECT count(*) FROM log"), '0', 'and nothing of it is there');
is(sql("SELECT count(*) FROM revenant.leases WHERE lease = 'crept in'"), '0', 'no lease either');
is(sql("$running AND query LIKE '%a follower%'"), '1', 'one does not know of the promotion yet');
kill 'CONT', $supervisor;
becomes("SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'warm'", 'the task runs');
becomes("SELECT count(*) = 8 FROM log", 'as do the others, but for the temporary one');
is(sql('SELECT max(followers) FROM log'), '0', 'no follower was there when they began');
is(sql("SELECT count(*) FROM log WHERE what <> 'leads'"), '0', 'nobody crept in');
becomes("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE query LIKE '%a follower%' AND pid <> pg_backend_pid())", 'no follower is left');
is(sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'revenant task warm'"), '1', 'there is one of each');
is(sql("SELECT string_agg(event, ', ' ORDER BY seq) FROM (SELECT event, seq FROM revenant.events() WHERE subject = 'warm' ORDER BY seq DESC LIMIT 6) AS e"),
	'monitor.leader_down, task.stopping, child.stopped, task.claiming, leadership.claimed, child.started', 'which is told in its order');
is(sql("SELECT string_agg(event, ', ' ORDER BY seq) FROM revenant.events() WHERE subject = 'leader'"),
	'monitor.started, leadership.lost, monitor.leader_down, task.claiming, leadership.claimed, child.started', 'also of one that had nothing to stop');
unlike(slurp_file($standby->logfile), qr/cannot go from phase/, 'no transition was outside the table');

done_testing();
