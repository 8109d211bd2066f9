# A server that is promoted with default_transaction_read_only in its configuration, as an HA engine does while the old primary may not be down yet: nothing runs there,
# nothing fails and nothing is given away before it accepts writes.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $reason = "reason = 'default_transaction_read_only is on in this server''s configuration'";
my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->append_conf('postgresql.conf', "max_worker_processes = 24\nrevenant.max_runners = 8");
$primary->start;
asks($primary);
sql(q{
	CREATE EXTENSION revenant;
	CREATE TABLE ran (what text, token bigint);
	SELECT revenant.create_task('daemon', 'INSERT INTO public.ran VALUES (''daemon'', revenant.current_token()); SELECT pg_sleep(3600)',
		follower_command => 'SELECT pg_sleep(3600)', backoff_min => '0');
	SELECT revenant.create_snapshot_table('box');
	CREATE FUNCTION note(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.ran VALUES ('message');
		RETURN ('null', 'null', NULL)::revenant.reply;
	END $$;
	SELECT revenant.create_entity_type('box', 'box', 'note');
	CREATE FUNCTION planner(cursor jsonb, generation bigint) RETURNS revenant.split_plan LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.ran VALUES ('planner', generation);
		RETURN ROW('[]'::jsonb, to_jsonb(1), false)::revenant.split_plan;
	END $$;
	SELECT revenant.create_plan('job', planner_function => 'planner', replan_every => '1 h');
});
becomes("SELECT count(*) > 0 FROM ran WHERE what = 'daemon'", 'the primary runs tasks');
becomes("SELECT count(*) = 1 FROM ran WHERE what = 'planner'", '... and planners');
# neither a database's setting nor a role's is the server's
sql(q{ALTER DATABASE postgres SET default_transaction_read_only = on});
sql(q{SET default_transaction_read_only = off; SELECT revenant.restart_task('daemon')});
becomes("SELECT count(*) > 0 FROM revenant.task_runs WHERE name = 'daemon' AND outcome = 'failed'", 'where the database says so a run has that setting, and fails');
is(sql("SELECT count(*) FROM revenant.tasks WHERE $reason"), 0, '... and nothing is held');
sql(q{SET default_transaction_read_only = off; ALTER DATABASE postgres RESET default_transaction_read_only});
sql(q{SELECT revenant.restart_task('daemon')});
becomes("SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'daemon'", 'it runs again');
sql("SELECT revenant.create_task('patient', 'SELECT pg_sleep(3600)', claim_delay => '1 s')");
becomes("SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'patient'", 'so does one that waits a second after the start');

$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', 'default_transaction_read_only = on');
$standby->start;

# what the primary has not delivered yet when it ends
sql("ALTER SYSTEM SET revenant.enabled = off; SELECT pg_reload_conf()");
becomes("SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type IN ('revenant delivery', 'revenant runner')", 'the primary runs nothing any more');
sql("SELECT revenant.send('box', 'a', '{}'); SELECT revenant.acquire('lease', ttl => '1 h')");
sql(q{
	SELECT revenant.create_plan('work', lease_ttl => '1 h', max_attempts => 1);
	SELECT revenant.publish('work', revenant.lead_plan('work', 'test'), '[{"id": "a"}]');
	SELECT revenant.claim_splits('work', 'worker');
});
my $before = sql('SELECT count(*) FROM ran');
my $failures = sql("SELECT count(*) FROM revenant.task_runs WHERE outcome = 'failed'");
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
asks($standby);
becomes("SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'revenant task daemon'", 'on a standby the setting is nobody\'s business: what follows goes on');

# --- held

$primary->stop('immediate');
$standby->promote;
becomes("SELECT count(*) = 3 FROM revenant.tasks WHERE phase = 'held' AND $reason", 'promoted, its tasks are held, and say why');
becomes("SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type IN ('revenant delivery', 'revenant runner')", 'no process of theirs is there');
is(sql('SELECT count(*) FROM revenant.messages'), 1, 'messages wait');
is(sql("SELECT count(*) FROM revenant.task_runs WHERE outcome = 'failed'"), $failures, 'nothing has failed');
is(sql('SELECT count(*) FROM ran'), $before, 'and nothing was done');
sqlstate('25006', "SELECT revenant.try_acquire('other', ttl => '1 s')", 'who asks is told that it is read-only');

# who only looks does not make the time run
is(sql("SELECT revenant.is_current('lease', 1)"), 'f', 'one can look at a lease');
is(sql("SELECT state, owned FROM revenant.plans WHERE plan = 'work'"), 'open|1', '... and at a plan');

# --- let go

my $lifted = sql('SELECT clock_timestamp()');
$standby->append_conf('postgresql.conf', 'default_transaction_read_only = off');
$standby->reload;
becomes("SELECT count(*) = 1 FROM revenant.tasks WHERE name = 'daemon' AND phase = 'leading'", 'once it accepts writes the task runs');
becomes("SELECT count(*) = 1 FROM ran WHERE what = 'message'", '... the message is delivered');
becomes("SELECT count(*) = 2 FROM ran WHERE what = 'planner'", '... and the planner runs');
becomes("SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'patient'", '... and what waits for its claim_delay');
is(sql("SELECT started_at >= '$lifted'::timestamptz + '1 s' FROM revenant.task_runs WHERE name = 'patient' ORDER BY run DESC LIMIT 1"), 't', 'which counts from there');
is(sql("SELECT deadline >= '$lifted'::timestamptz + ttl FROM revenant.leases WHERE lease = 'lease'"), 't', 'as does the time that a lease of the old primary is held for');
becomes("SELECT deadline >= '$lifted'::timestamptz + '1 h' FROM revenant.splits WHERE plan = 'work' AND split = 'a'", '... and a split is owned for');
is(sql("SELECT count(*) FROM revenant.task_runs WHERE outcome = 'failed'"), $failures, 'nothing has failed');

# --- and again, while it leads

$standby->append_conf('postgresql.conf', 'default_transaction_read_only = on');
$standby->reload;
becomes("SELECT count(*) = 3 FROM revenant.tasks WHERE phase = 'held' AND $reason", 'a server that is made read-only stops its tasks');
is(sql("SELECT outcome FROM revenant.task_runs WHERE name = 'daemon' ORDER BY run DESC LIMIT 1"), 'stopped', '... which is no failure');
$standby->restart;
becomes("SELECT count(*) = 3 FROM revenant.tasks WHERE phase = 'held' AND $reason", 'also after a restart');
$standby->append_conf('postgresql.conf', 'default_transaction_read_only = off');
$standby->reload;
becomes("SELECT count(*) = 1 FROM revenant.tasks WHERE name = 'daemon' AND phase = 'leading'", 'until it is let go');

$standby->stop;
done_testing();
