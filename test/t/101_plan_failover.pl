# A promoted standby goes on with the plan as it was: claims and members stand, the old primary's planner and workers are fenced where they are behind; a standby
# refuses all but to look.

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
$primary->append_conf('postgresql.conf', 'log_statement = none');
$primary->start;
asks($primary);
sql("CREATE EXTENSION revenant;
	CREATE TABLE effects (split text, node text);
	CREATE TABLE runs (cursor jsonb, generation bigint);
	CREATE FUNCTION planner(cursor jsonb, generation bigint) RETURNS revenant.split_plan LANGUAGE plpgsql AS \$\$
	BEGIN
		INSERT INTO public.runs VALUES (cursor, generation);
		RETURN ROW('[]'::jsonb, to_jsonb(coalesce(cursor::int, 0) + 1), false)::revenant.split_plan;
	END \$\$;
	SELECT revenant.create_plan('job', lease_ttl => '10 min', rebalance_delay => '0');
	SELECT revenant.create_plan('tasked', planner_function => 'planner', replan_every => '1 h')");
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

my $generation = sql("SELECT revenant.lead_plan('job', 'old planner', '10 min')");
sql("SELECT revenant.publish('job', $generation, (SELECT jsonb_agg(jsonb_build_object('id', 's' || i, 'spec', i, 'weight', 2)) FROM generate_series(1, 20) AS i), '\"twenty\"')");
my $member = sql("SELECT revenant.join_plan('job', 'member', 3)");
becomes("SELECT count(*) = 3 FROM revenant.poll_plan('job', $member)", 'a member has its splits');
my $gained = sql("SELECT seq, event, split, epoch, spec FROM revenant.poll_plan('job', $member)");
sql('CREATE TABLE claims (who text, split text, epoch bigint)');
sql("INSERT INTO claims SELECT 'worker', split, epoch FROM revenant.claim_splits('job', 'worker', 5, '1 h')");
my ($split, $epoch) = split /\|/, sql("SELECT split, epoch FROM claims WHERE who = 'worker' ORDER BY epoch LIMIT 1");
sql("SELECT revenant.commit_split('job', '$split', $epoch, '\"far\"', 12)");
my ($done, $done_epoch) = split /\|/, sql("SELECT split, epoch FROM claims WHERE who = 'worker' ORDER BY epoch DESC LIMIT 1");
sql("SELECT revenant.commit_split('job', '$done', $done_epoch, done => true)");
becomes("SELECT count(*) = 1 FROM runs", 'a planner in the database runs');
becomes("SELECT cursor = '1' FROM revenant.plans WHERE plan = 'tasked'", 'and publishes');
# what this becomes after its time the standby is not to hear of
sql("INSERT INTO claims SELECT 'brief', split, epoch FROM revenant.claim_splits('job', 'brief', 1, '5 s')");
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
$standby->append_conf('postgresql.conf', "primary_conninfo = ''");
$standby->reload;
$standby->poll_query_until('postgres', 'SELECT count(*) = 0 FROM pg_stat_wal_receiver') or die 'the standby goes on receiving';

# ---- a standby

asks($standby);
foreach my $call (
	"create_plan('x')", "alter_plan('job', '{\"max_attempts\": 2}')", "drop_plan('job')", "reset_plan('job')", "purge_plan('job', now())",
	"lead_plan('job', 'me')", "planner_state('job', $generation)", "publish('job', $generation, '[]')", "resign_plan('job', $generation)",
	"join_plan('job', 'me')", "poll_plan('job', $member)", "leave_plan('job', $member)", "drained('job', '$split', $epoch)", "decline_revoke('job', '$split', $epoch)",
	"claim_splits('job', 'me')", "commit_split('job', '$split', $epoch)", "commit_split('job', '$split', 1)", "commit_splits('job', '[]')",
	"fence_split('job', '$split', $epoch)", "renew_splits('job', ARRAY['$split'], ARRAY[$epoch])", "fail_split('job', '$split', $epoch, 'no')",
	"release_split('job', '$split', $epoch)", "requeue_split('job', '$split')", 'adopt()')
{
	sqlstate('25006', "SELECT revenant.$call", "on a standby: $call");
}
sqlstate('25006', "CALL revenant.await_splits('job')", 'on a standby: await_splits');
is(sql("SELECT state, final, planned, done, quarantined, revision, generation, cursor FROM revenant.plans WHERE plan = 'job'"), "open|f|20|1|0|1|$generation|\"twenty\"", 'the view plans works there');
is(sql("SELECT planned, runnable, owned, done, quarantined, rate IS NULL, eta IS NULL FROM revenant.plan_progress('job')"), '20|11|8|1|0|t|t', 'and plan_progress()');
is(sql("SELECT state, worker, epoch, watermark, progress, deadline IS NULL FROM revenant.splits WHERE plan = 'job' AND split = '$split'"), "owned|worker|$epoch|12|\"far\"|t", 'and the view splits');
is(sql("SELECT worker, capacity, member FROM revenant.members WHERE plan = 'job'"), "member|3|$member", 'and members');
is(sql("SELECT plan, done, owned FROM revenant.stat_plans ORDER BY plan"), "job|1|8\ntasked|0|0", 'and stat_plans');
sqlstate('42704', "SELECT * FROM revenant.plan_progress('nowhere')", 'which knows what is not there');

# ---- what the old primary does that nobody has heard of

asks($primary);
my $runs = sql('SELECT count(*) FROM runs');
sql("SELECT revenant.publish('job', $generation, '[{\"id\": \"unheard\"}]')");
my ($unheard, $unheard_epoch) = split /\|/, sql("SELECT split, epoch FROM revenant.claim_splits('job', 'unheard') LIMIT 1");
sql("INSERT INTO effects VALUES ('$unheard', 'old'); SELECT revenant.commit_split('job', '$unheard', $unheard_epoch, '\"done there\"')");
my $unheard_member = sql("SELECT revenant.join_plan('job', 'unheard', 1)");
my $rejoined = sql("SELECT revenant.join_plan('job', 'member', 3)");

$standby->promote;
asks($standby);
is(sql("SELECT planned, runnable, owned, done, quarantined FROM revenant.plan_progress('job')"), '20|11|8|1|0', 'promoted, it has what it has heard of');
is(sql("SELECT generation, cursor FROM revenant.plans WHERE plan = 'job'"), "$generation|\"twenty\"", 'the planner leads');
is(sql("SELECT revision, planned FROM revenant.planner_state('job', $generation)"), '1|20', 'and goes on from there');
is(sql("SELECT revenant.lead_plan('job', 'another one') IS NULL"), 't', 'for its ttl, at least');
is(sql("SELECT outcome, created FROM revenant.publish('job', $generation, '[{\"id\": \"unheard\"}]')"), 'ok|1', 'it publishes again what was lost');
is(sql("SELECT revenant.renew_splits('job', array_agg(split), array_agg(epoch)) FROM claims WHERE who = 'worker' AND split <> '$done'"), '', 'workers have what they had');
sql("SELECT revenant.commit_split('job', '$split', $epoch, '\"farther\"', 13)");
is(sql("SELECT progress, watermark FROM revenant.splits WHERE plan = 'job' AND split = '$split'"), '"farther"|13', 'and go on with it');
sqlstate('22023', "SELECT revenant.commit_split('job', '$split', $epoch, '\"back\"', 11)", 'never back');
sqlstate('RV001', "SELECT revenant.commit_split('job', '$unheard', $unheard_epoch, '\"done there\"')", 'but not who claimed what it had not heard of');
sqlstate('RV001', "SELECT revenant.$_", "nor who works on what was published there only: $_")
	foreach "commit_split('job', 'lost', $unheard_epoch)", "fence_split('job', 'lost', $unheard_epoch)", "release_split('job', 'lost', $unheard_epoch)", "fail_split('job', 'lost', $unheard_epoch, 'no')";
sqlstate('42704', "SELECT revenant.commit_split('job', 'lost', c.epoch) FROM revenant.claim_splits('job', 'here') AS c", 'an epoch of this server knows that there is none');
is(sql("SELECT revenant.commit_split('job', '$done', $done_epoch, done => true)"), '', 'what is done is done');
is(sql("SELECT seq, event, split, epoch, spec FROM revenant.poll_plan('job', $member)"), $gained, 'the member goes on by its token');
sqlstate('RV001', "SELECT * FROM revenant.poll_plan('job', $_)", 'who joined unheard did not') foreach $unheard_member, $rejoined;
is(sql("SELECT count(*) FROM revenant.splits WHERE plan = 'job' AND worker = 'brief' AND state = 'owned' AND deadline > now() + interval '5 min'"), 1, 'all stand for lease_ttl');
is(sql("SELECT count(*) FROM revenant.claim_splits('job', 'new', 100) AS c WHERE c.epoch > $unheard_epoch"), 12, 'what nobody owns can be claimed, by epochs that the old primary has never given');
is(sql("SELECT count(*) FROM effects"), 0, 'what it did there is not here');
becomes("SELECT cursor = '2' FROM revenant.plans WHERE plan = 'tasked'", 'the planner in the database runs at once');
is(sql('SELECT count(*), count(*) FILTER (WHERE generation > (SELECT min(generation) FROM runs)) FROM runs'), ($runs + 1) . "|$runs", 'once, by a greater generation');

# a successor here fences the planner, wherever that is
is(sql("SELECT revenant.resign_plan('job', $generation)"), 't', 'the planner resigns');
my $successor = sql("SELECT revenant.lead_plan('job', 'successor')");
cmp_ok($successor, '>', $rejoined, 'its successor is above all that the old primary has given');
sqlstate('RV001', "SELECT * FROM revenant.publish('job', $generation, '[{\"id\": \"late\"}]')", 'from then on it publishes nothing');
sqlstate('RV001', "SELECT revenant.planner_state('job', $generation)", 'and is told nothing');
is(sql("SELECT outcome, planned FROM revenant.publish('job', $successor, '[{\"id\": \"new\"}]', final => true)"), 'ok|22', 'it does');
$primary->stop('immediate');

# ---- a clean restart of the promoted one

my $seen = sql("SELECT max(seq) FROM revenant.poll_plan('job', $member)");
$standby->restart;
is(sql("SELECT count(*) FROM revenant.poll_plan('job', $member, $seen)"), 0, 'after a restart the member is there');
is(sql("SELECT planned, runnable, owned, done, quarantined FROM revenant.plan_progress('job')"), '22|1|20|1|0', 'and so is all that is claimed');
is(sql("SELECT revenant.renew_splits('job', ARRAY['$split'], ARRAY[$epoch]::bigint[])"), '', 'none is lost');

$standby->stop;
done_testing();
