# Planners in the database: one that fails, is slow, returns nothing, is replaced, dropped or not allowed any more holds up no other plan and no worker, and goes on by
# itself when it can.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use Client qw(answers monotonic);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "log_statement = none\nmax_worker_processes = 24\nrevenant.max_runners = 8");
$node->start;
asks($node);
sql("CREATE EXTENSION revenant;
	CREATE ROLE bob LOGIN;
	SELECT revenant.grant_usage('bob', 'admin');
	GRANT CREATE ON SCHEMA public TO bob;
	CREATE TABLE runs (seq bigserial, plan text, generation bigint, cursor jsonb, who text DEFAULT current_user, at timestamptz DEFAULT clock_timestamp());
	GRANT ALL ON TABLE runs TO bob;
	GRANT ALL ON SEQUENCE runs_seq_seq TO bob");

# A planner_function: it writes down that it was called, and then does this.
sub planner
{
	my ($name, $body) = @_;

	return "CREATE OR REPLACE FUNCTION plan_$name(cursor jsonb, generation bigint) RETURNS revenant.split_plan LANGUAGE plpgsql AS \$\$
		DECLARE
			n int := coalesce(cursor::int, 0) + 1;
		BEGIN
			INSERT INTO public.runs (plan, generation, cursor) VALUES ('$name', generation, cursor);
			$body
		END \$\$;";
}

my $one_more = "RETURN ROW(jsonb_build_array(jsonb_build_object('id', 's' || n, 'spec', generation)), to_jsonb(n), false)::revenant.split_plan;";

sub create
{
	my ($name, $every, $body) = @_;

	return sql(planner($name, $body) . "SELECT revenant.create_plan('$name', planner_function => 'plan_$name', lease_ttl => '400 ms', replan_every => '$every')");
}

sub runs { return sql("SELECT count(*) FROM runs WHERE plan = '$_[0]'") }

# It has run once more.
sub runs_again
{
	my ($plan, $name) = @_;
	my $runs = runs($plan);

	return becomes("SELECT count(*) > $runs FROM runs WHERE plan = '$plan'", $name);
}

# ---- when

create('hourly', '1 h', $one_more);
becomes("SELECT planned = 1 AND replan_outcome = 'ok' FROM revenant.plans WHERE plan = 'hourly'", 'a planner runs at once');
is(runs('hourly'), 1, 'once');
create('often', '500 ms', $one_more);
becomes("SELECT planned >= 3 FROM revenant.plans WHERE plan = 'often'", 'another one every replan_every');
is(sql("SELECT min(at - before) > '400 ms' FROM (SELECT at, lag(at) OVER (ORDER BY seq) AS before FROM runs WHERE plan = 'often') AS t"), 't', 'not oftener');
is(sql("SELECT bool_and(generation > before) FROM (SELECT generation, lag(generation) OVER (ORDER BY seq) AS before FROM runs WHERE plan = 'often') AS t WHERE before IS NOT NULL"), 't', 'each run with a greater generation');
is(sql("SELECT string_agg(coalesce(cursor::text, '-'), ' ' ORDER BY seq) FROM (SELECT * FROM runs WHERE plan = 'often' ORDER BY seq LIMIT 3) AS t"), '- 1 2', 'and the cursor that the one before it has returned');
is(sql("SELECT count(*) FROM revenant.splits AS s LEFT JOIN runs AS r ON r.plan = s.plan AND r.generation = s.generation AND s.spec = to_jsonb(r.generation) WHERE s.plan = 'often' AND r.plan IS NULL"), 0, 'which is what it publishes by');
$node->restart;
becomes("SELECT count(*) = 2 FROM runs WHERE plan = 'hourly'", 'after a restart it runs at once');
$node->stop('immediate');
$node->start;
becomes("SELECT count(*) = 3 FROM runs WHERE plan = 'hourly'", 'after a crash, too');
becomes("SELECT planned = 3 FROM revenant.plans WHERE plan = 'hourly'", 'and publishes');
runs_again('often', 'so does the other one') or diag(sql("SELECT * FROM revenant.tasks"));

# ---- one that fails

create('broken', '500 ms', "RAISE 'no idea, %', 'today';");
becomes("SELECT replan_outcome = 'error' AND replan_error = 'no idea, today' AND replan_at IS NOT NULL FROM revenant.plans WHERE plan = 'broken'", 'one that fails says so');
becomes("SELECT replans_error >= 3 FROM revenant.stat_plans WHERE plan = 'broken'", 'it is tried again and again');
is(runs('broken'), 0, 'what it has written is rolled back');
is(sql("SELECT count(*), min(detail ->> 'error') FROM revenant.events() WHERE event = 'plan.replan_failed' AND subject = 'broken'"), '1|no idea, today', 'the event is told once');
is(scalar(() = slurp_file($node->logfile) =~ /WARNING:.*the planner of plan "broken" failed: no idea, today/g), 1, 'and the log');
is(sql("SELECT phase IN ('backoff', 'quarantined'), failures FROM revenant.tasks WHERE name = 'plan/broken'"), 'f|0', 'its task has not failed');
runs_again('often', 'the others go on');
sql(planner('broken', "n := n / 0; $one_more"));
becomes("SELECT replan_error = 'division by zero' FROM revenant.plans WHERE plan = 'broken'", 'another error is told, too');
sql(planner('broken', "RETURN ROW('[{\"id\": \"a\"}, {}]'::jsonb, NULL, true)::revenant.split_plan;"));
becomes("SELECT replan_outcome = 'error' AND replan_error <> 'division by zero' FROM revenant.plans WHERE plan = 'broken'", 'so is a result that is no splits');
is(sql("SELECT planned, final, revision FROM revenant.plans WHERE plan = 'broken'"), '0|f|0', 'of which nothing is published');
sql(planner('broken', 'PERFORM pg_terminate_backend(pg_backend_pid()); ' . $one_more));
becomes("SELECT failures >= 1 FROM revenant.tasks WHERE name = 'plan/broken'", 'one that ends its process fails as a task');
sql(planner('broken', $one_more));
becomes("SELECT planned >= 1 AND replan_outcome = 'ok' AND replan_error IS NULL FROM revenant.plans WHERE plan = 'broken'", 'when it can it goes on');

# ---- one that returns nothing

create('idle', '500 ms', 'RETURN NULL;');
becomes("SELECT replans_noop >= 2 FROM revenant.stat_plans WHERE plan = 'idle'", 'null is nothing new');
sql(planner('idle', "RETURN ROW('[]'::jsonb, NULL, NULL)::revenant.split_plan;"));
my $noops = sql("SELECT replans_noop FROM revenant.stat_plans WHERE plan = 'idle'");
becomes("SELECT replans_noop >= $noops + 2 FROM revenant.stat_plans WHERE plan = 'idle'", 'so is an empty array');
sql(planner('idle', 'RETURN ROW(NULL, NULL, NULL)::revenant.split_plan;'));
$noops = sql("SELECT replans_noop FROM revenant.stat_plans WHERE plan = 'idle'");
becomes("SELECT replans_noop >= $noops + 2 FROM revenant.stat_plans WHERE plan = 'idle'", 'and nothing at all');
is(sql("SELECT planned, revision, cursor IS NULL, final, replan_outcome FROM revenant.plans WHERE plan = 'idle'"), '0|0|t|f|noop', 'nothing has changed');
is(sql("SELECT replans_ok, replans_error FROM revenant.stat_plans WHERE plan = 'idle'"), '0|0', 'nor failed');

# ---- one that is slow: it waits until somebody lets go of a lock

my $lock = Client->new($node);
$lock->query('SELECT pg_advisory_lock(1)');
my $slow = 'PERFORM pg_advisory_lock(1); PERFORM pg_advisory_unlock(1); ';
sub is_running { return becomes("SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", $_[0]) }

create('slow', '500 ms', $slow . $one_more);
is_running('a slow one runs');
sql("SELECT revenant.alter_plan('slow', '{\"max_in_flight\": 2}')");
my $member = sql("SELECT revenant.join_plan('often', 'member', 1, '30 s')");
becomes("SELECT count(*) = 1 FROM revenant.poll_plan('often', $member)", 'workers of other plans get splits');
my $begun = monotonic();
my $client = Client->new($node);
foreach (1 .. 20)
{
	$client->query("SELECT * FROM revenant.poll_plan('often', $member)");
	$client->query("SELECT revenant.claim_splits('often', 'w', 1)");
	$client->query("SELECT * FROM revenant.claim_splits('slow', 'w', 1)");
	$client->query("SELECT * FROM revenant.plan_progress('slow')");
}
my $slow_member = $client->query("SELECT revenant.join_plan('slow', 'member', 1, '30 s')");
$client->query("SELECT * FROM revenant.poll_plan('slow', $slow_member)") foreach 1 .. 3;
cmp_ok(monotonic() - $begun, '<', 5, 'it holds up no worker, and no heartbeat');
runs_again('often', 'and no other planner');
is(sql("SELECT count(*) FROM runs WHERE plan = 'slow'"), 0, 'though it runs all the time');
# for longer than its lease's ttl
is(sql("SELECT leader FROM revenant.plans WHERE plan = 'slow'"), 'task plan/slow', 'it leads meanwhile');
is(sql("SELECT revenant.lead_plan('slow', 'somebody') IS NULL"), 't', 'and nobody else');

# ---- replaced while it runs

sql(planner('slow', "RETURN ROW('[{\"id\": \"by the new one\"}]'::jsonb, NULL, false)::revenant.split_plan;"));
$lock->query('SELECT pg_advisory_unlock(1)');
becomes("SELECT count(*) = 2 FROM revenant.splits WHERE plan = 'slow'", 'a function that is replaced while it runs comes to its end, and the next one is called then');
is(sql("SELECT string_agg(split, ', ' ORDER BY split) FROM revenant.splits WHERE plan = 'slow'"), 'by the new one, s1', 'each has published');
becomes("SELECT count(*) = 1 FROM revenant.poll_plan('slow', $slow_member)", 'and workers have that');

# ---- dropped

sql('DROP FUNCTION plan_idle(jsonb, bigint)');
becomes("SELECT replan_outcome = 'error' AND replan_error LIKE '%plan_idle% does not exist' FROM revenant.plans WHERE plan = 'idle'", 'one whose function is dropped says so');
sql('CREATE FUNCTION plan_idle(jsonb, bigint) RETURNS text LANGUAGE sql AS $$ SELECT \'x\' $$');
my $errors = sql("SELECT replans_error FROM revenant.stat_plans WHERE plan = 'idle'");
becomes("SELECT replans_error >= $errors + 2 FROM revenant.stat_plans WHERE plan = 'idle'", 'another one of its name with another result is none');
sql('DROP FUNCTION plan_idle(jsonb, bigint)');
sql(planner('idle', $one_more));
becomes("SELECT replan_outcome = 'ok' AND planned >= 1 FROM revenant.plans WHERE plan = 'idle'", 'when it is there again it goes on');

# ---- final

create('ends', '500 ms', "RETURN ROW(jsonb_build_array(jsonb_build_object('id', 's' || n)), to_jsonb(n), n = 2)::revenant.split_plan;");
becomes("SELECT final FROM revenant.plans WHERE plan = 'ends'", 'one that has planned all');
becomes("SELECT NOT enabled FROM revenant.tasks WHERE name = 'plan/ends'", 'rests');
my $other = runs('often');
becomes("SELECT count(*) >= $other + 2 FROM runs WHERE plan = 'often'", 'while others run twice');
is(sql("SELECT count(*), count(DISTINCT s) FROM (SELECT split AS s FROM revenant.splits WHERE plan = 'ends') AS t"), '2|2', 'it has published both');
is(runs('ends'), 2, 'and does not run any more');
$node->restart;
runs_again('often', 'not after a restart, either');
is(runs('ends'), 2, 'as one that is not final does');
sql("SELECT revenant.claim_splits('ends', 'w', 10); SELECT revenant.reset_plan('ends')");
becomes("SELECT count(*) = 4 FROM runs WHERE plan = 'ends'", 'after a reset it plans again');
is(sql("SELECT cursor IS NULL FROM runs WHERE plan = 'ends' ORDER BY seq OFFSET 2 LIMIT 1"), 't', 'from the start');
becomes("SELECT final AND planned = 2 FROM revenant.plans WHERE plan = 'ends'", 'to the end');
is(sql("SELECT count(*) FROM revenant.claim_splits('ends', 'w', 10)"), 2, 'and workers begin anew');

# ---- altered

sql(planner('other', "RETURN ROW('[{\"id\": \"other\"}]'::jsonb, NULL, false)::revenant.split_plan;"));
sql("SELECT revenant.alter_plan('hourly', '{\"planner_function\": \"plan_other\"}')");
becomes("SELECT count(*) = 1 FROM revenant.splits WHERE plan = 'hourly' AND split = 'other'", 'another function runs at once');
my $hourly = runs('hourly');
sql("SELECT revenant.alter_plan('hourly', '{\"planner_function\": null}')");
is(sql("SELECT count(*) FROM revenant.tasks WHERE name = 'plan/hourly'"), 0, 'without one there is no task');
sql("SELECT revenant.publish('hourly', revenant.lead_plan('hourly', 'by hand'), '[{\"id\": \"by hand\"}]')");
is(sql("SELECT count(*) FROM revenant.splits WHERE plan = 'hourly' AND split = 'by hand'"), 1, 'and somebody else may plan');
is(runs('hourly'), $hourly, 'the first one never runs again');

# ---- dropped while it runs

$lock->quit;
$lock = Client->new($node);
$lock->query('SELECT pg_advisory_lock(1)');
sql(planner('slow', $slow . $one_more));
is_running('one runs');
$begun = monotonic();
sql("SELECT revenant.drop_plan('slow')");
cmp_ok(monotonic() - $begun, '<', 8, 'its plan can be dropped');
is(sql("SELECT count(*) FROM revenant.tasks WHERE name = 'plan/slow'"), 0, 'the task is gone');
is(sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"), 0, 'it does not run any more');
$lock->query('SELECT pg_advisory_unlock(1)');
sqlstate('42704', "SELECT * FROM revenant.plan_progress('slow')", 'so is the plan');
is(sql("SELECT count(*) FROM revenant.split AS s WHERE NOT EXISTS (SELECT FROM revenant.plan AS p WHERE p.plan_id = s.plan_id)"), 0, 'and all of its splits');
create('slow', '500 ms', $one_more);
becomes("SELECT planned >= 1 FROM revenant.plans WHERE plan = 'slow'", 'another one of its name runs');

# ---- as its owner

$node->safe_psql('postgres', 'SET ROLE bob; ' . planner('bobs', $one_more) . "SELECT revenant.create_plan('bobs', planner_function => 'plan_bobs', lease_ttl => '400 ms', replan_every => '500 ms')");
becomes("SELECT count(*) >= 1 FROM runs WHERE plan = 'bobs' AND who = 'bob'", 'a planner runs as the owner of the plan');
sql('ALTER ROLE bob RENAME TO robert');
becomes("SELECT phase NOT IN ('scheduled', 'running') AND reason LIKE '%bob%' FROM revenant.tasks WHERE name = 'plan/bobs'", 'who is renamed: it is set aside, with a reason') or diag(sql("SELECT phase, reason FROM revenant.tasks WHERE name = 'plan/bobs'"));
runs_again('often', 'others go on');
is(sql("SELECT count(*) > 0 FROM revenant.claim_splits('bobs', 'w', 1)"), 't', 'so do workers');
sql('ALTER ROLE robert RENAME TO bob');
runs_again('bobs', 'when the name is right again it goes on');
SKIP:
{
	# a task needs no login there
	skip 'from PostgreSQL 17 on any role will do', 2 if $node->pg_version >= 17;
	sql('ALTER ROLE bob NOLOGIN');
	becomes("SELECT phase NOT IN ('scheduled', 'running') AND reason IS NOT NULL FROM revenant.tasks WHERE name = 'plan/bobs'", 'as one who must not log in')
	  or diag(sql("SELECT phase, reason FROM revenant.tasks WHERE name = 'plan/bobs'"));
	sql('ALTER ROLE bob LOGIN');
	runs_again('bobs', 'and may again');
}
sql('REVOKE ALL ON TABLE runs FROM bob');
becomes("SELECT replan_outcome = 'error' AND replan_error LIKE 'permission denied%' FROM revenant.plans WHERE plan = 'bobs'", 'what it may not do it cannot');

$node->stop;
done_testing();
