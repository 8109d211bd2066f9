# A dump, or a template, brings plans along as they were: held until they are adopted, then what somebody worked on there can be claimed here, under greater epochs.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use Client qw(monotonic);
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "max_worker_processes = 24\nrevenant.max_runners = 8");
$node->start;
asks($node);
my $dir = PostgreSQL::Test::Utils::tempdir;

# In a database, perhaps of another server.
sub within
{
	my ($database, $query, $on) = @_;

	return ($on // $node)->safe_psql($database, $query);
}

sub fails
{
	my ($database, $expected, $statement, $name, $on) = @_;
	my (undef, undef, $err) = ($on // $node)->psql($database, "\\set VERBOSITY sqlstate\n$statement");

	like($err, qr/ERROR:  $expected\b/, $name);
	return;
}

sql('CREATE ROLE alice LOGIN; CREATE ROLE gone; CREATE ROLE reader LOGIN; CREATE ROLE limited LOGIN; CREATE DATABASE source');
within('source', "CREATE EXTENSION revenant;
	SELECT revenant.grant_usage('alice', 'admin'), revenant.grant_usage('gone', 'admin'), revenant.grant_usage('limited', 'admin'), revenant.grant_usage('reader', 'reader');
	CREATE TABLE runs (database text);
	GRANT ALL ON TABLE runs TO alice;
	CREATE FUNCTION planner(cursor jsonb, generation bigint) RETURNS revenant.split_plan LANGUAGE plpgsql AS \$\$
	BEGIN
		INSERT INTO public.runs VALUES (current_database());
		RETURN ROW(jsonb_build_array(jsonb_build_object('id', 'in ' || current_database())), NULL, false)::revenant.split_plan;
	END \$\$;
	SET ROLE alice;
	SELECT revenant.create_plan('job', fingerprint => 'f', max_attempts => 2, metadata => '{\"a\": 1}');
	SELECT revenant.create_plan('tasked', planner_function => 'planner', replan_every => '1 h');
	SELECT revenant.create_plan('over');
	SELECT revenant.publish('over', revenant.lead_plan('over', 'a'), '[{\"id\": \"a\", \"seed\": {\"done\": true}}]', final => true);
	SET ROLE gone;
	SELECT revenant.create_plan('of nobody')");
my $generation = within('source', "SET ROLE alice; SELECT revenant.lead_plan('job', 'planner', '1 h')");
within('source', "SET ROLE alice;
	SELECT revenant.publish('job', $generation, (SELECT jsonb_agg(jsonb_build_object('id', 's' || i, 'weight', i, 'spec', i)) FROM generate_series(1, 20) AS i), '\"twenty\"');
	CREATE TEMP TABLE claims AS SELECT * FROM revenant.claim_splits('job', 'w', 10, '1 h');
	SELECT revenant.commit_split('job', split, epoch, done => true) FROM claims WHERE split IN ('s1', 's2', 's3');
	SELECT revenant.commit_split('job', 's4', epoch, '\"half\"', 50) FROM claims WHERE split = 's4';
	SELECT revenant.fail_split('job', 's5', epoch, 'once') FROM claims WHERE split = 's5';
	SELECT revenant.release_split('job', 's6', epoch) FROM claims WHERE split = 's6'");
within('source', "SET ROLE alice; SELECT revenant.claim_splits('job', 'w2', 10, '1 h')");
within('source', "SET ROLE alice; SELECT revenant.fail_split('job', 's5', epoch, 'twice') FROM revenant.claim_splits('job', 'w3', 2, '1 h') WHERE split = 's5'");
my $member = within('source', "SET ROLE alice; SELECT revenant.join_plan('job', 'member', 5, '1 h')");
my $counts = "SELECT planned, runnable, owned, done, quarantined FROM revenant.plan_progress('job')";
within('source', "SET ROLE alice; SELECT revenant.release_split('job', split, epoch) FROM revenant.splits WHERE plan = 'job' AND state = 'owned' AND worker = 'w2' AND split IN ('s11', 's12')");
my $until = monotonic() + $PostgreSQL::Test::Utils::timeout_default;
select undef, undef, undef, 0.01 while within('source', "SET ROLE alice; SELECT count(*) FROM revenant.poll_plan('job', $member)") < 2 && monotonic() < $until;
ok($node->poll_query_until('source', "SELECT state = 'complete' FROM revenant.plans WHERE plan = 'over'"), 'one plan is complete');
ok($node->poll_query_until('source', 'SELECT count(*) = 1 FROM runs'), 'a planner runs');
is(within('source', $counts), '20|0|16|3|1', 'work is under way');
my $rows = "SELECT s.split, s.state, s.epoch, s.weight, s.spec, s.progress, s.watermark, s.attempts, s.reasons, s.generation FROM revenant.splits AS s WHERE plan = 'job' ORDER BY split";
my $before = within('source', $rows);
my ($s4, $greatest) = split /\|/, within('source', "SELECT epoch, (SELECT max(epoch) FROM revenant.splits) FROM revenant.splits WHERE plan = 'job' AND split = 's4'");

# ---- dumped, by anybody who may look, and copied

within('source', 'GRANT SELECT ON TABLE runs TO reader');
$node->command_ok([ 'pg_dump', '-U', 'reader', '-d', $node->connstr('source'), '-Fc', '-f', "$dir/by_reader" ], 'a reader can dump it');
$node->command_ok([ 'pg_dump', '-d', $node->connstr('source'), '-Fc', '-f', "$dir/dump" ], 'dumped');
sql('CREATE DATABASE restored');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('restored'), "$dir/dump" ], 'restored');
sql('CREATE DATABASE copied TEMPLATE source');
sql('CREATE DATABASE by_reader');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('by_reader'), "$dir/by_reader" ], 'what a reader has dumped can be restored');
is(within('by_reader', $rows), $before, 'and has it all');

my $other = PostgreSQL::Test::Cluster->new('other');
$other->init;
$other->start;
$node->command_ok([ 'pg_dumpall', '-d', $node->connstr('postgres'), '-f', "$dir/all" ], 'all is dumped');
my ($out, $err);
IPC::Run::run([ 'psql', '-X', '-q', '-d', $other->connstr('postgres'), '-f', "$dir/all" ], '<', \undef, '>', \$out, '2>', \$err);
is(join("\n", grep { !/role "\w+" already exists/ } split /\n/, $err), '', 'into another cluster');

# ---- held

my %runs;
foreach my $place ([ 'restored', $node ], [ 'copied', $node ], [ 'source', $other ])
{
	my ($database, $on) = @$place;
	my $name = "$database, on " . $on->name;

	is(within($database, "SELECT string_agg(plan || ' ' || state, ', ' ORDER BY plan) FROM revenant.plans", $on), 'job held, of nobody held, over held, tasked held', "$name: all is held");
	is(within($database, "SELECT planned, final, revision, cursor, metadata, fingerprint, max_attempts, generation FROM revenant.plans WHERE plan = 'job'", $on), "20|f|1|\"twenty\"|{\"a\": 1}|f|2|$generation", 'as it was');
	is(within($database, $rows, $on), $before, 'each split as it was');
	is(within($database, $counts, $on), '20|0|16|3|1', 'and counted');
	fails($database, '55000', "SET ROLE alice; SELECT revenant.$_", "held: $_", $on)
	  foreach "claim_splits('job', 'w')", "commit_split('job', 's4', $s4)", "lead_plan('job', 'x')", "publish('job', $generation, '[]')", "join_plan('job', 'x')", "poll_plan('job', $member)",
	  "alter_plan('job', '{\"max_attempts\": 3}')", "reset_plan('job')", "purge_plan('job', now())", "requeue_split('job', 's5')";
	fails($database, '55000', "SET ROLE alice; CALL revenant.await_splits('job')", 'held: await_splits', $on);
	is(within($database, 'SELECT count(*) FROM revenant.members', $on), 0, 'nobody is a member');
	fails($database, '42501', 'SET ROLE limited; SELECT revenant.adopt()', 'it is not adopted by who cannot become its owner', $on);
	# in the source it has run since then, if its processes had to make way for the copy
	$runs{$name} = within($database, 'SELECT count(*) FROM runs', $on);
	is(within($database, "SELECT count(*) FROM runs WHERE database <> 'source'", $on), 0, 'no planner runs');
}

# ---- adopted

foreach my $place ([ 'restored', $node ], [ 'copied', $node ], [ 'source', $other ])
{
	my ($database, $on) = @$place;
	my $name = "$database, on " . $on->name;

	if ($database eq 'source')
	{
		# as if the role had not been there
		within($_, 'DROP OWNED BY gone', $on) foreach 'source', 'restored', 'copied', 'by_reader';
		within('source', 'DROP ROLE gone', $on);
	}
	cmp_ok(within($database, 'SELECT revenant.adopt()', $on), '>=', 3, "$name: adopted");
	is(within($database, "SELECT string_agg(plan || ' ' || state, ', ' ORDER BY plan) FROM revenant.plans", $on),
		$database eq 'source' ? 'job open, of nobody held, over complete, tasked open' : 'job open, of nobody open, over complete, tasked open', 'all whose owner is there');
	is(within($database, $counts, $on), '20|16|0|3|1', 'what was worked on there can be claimed here');
	is(within($database, 'SELECT count(*) FROM revenant.member', $on), 0, 'no member is left');
	is(within($database, "SELECT count(*) FROM revenant.splits WHERE attempts > 0 AND split <> 's5'", $on), 0, 'which was no attempt');
	fails($database, 'RV001', "SET ROLE alice; SELECT revenant.commit_split('job', 's4', $s4, '\"far\"')", 'who worked there is fenced', $on);
	fails($database, 'RV001', "SET ROLE alice; SELECT * FROM revenant.poll_plan('job', $member)", 'so is who was a member', $on);
	fails($database, 'RV00[12]', "SET ROLE alice; SELECT revenant.publish('job', $generation, '[{\"id\": \"x\"}]')", 'and its planner', $on);
	my $led = within($database, "SET ROLE alice; SELECT revenant.lead_plan('job', 'planner')", $on);
	cmp_ok($led, '>', $greatest, 'the next generation is greater');
	is(within($database, "SET ROLE alice; SELECT outcome, created, planned, revision FROM revenant.publish('job', $led, '[{\"id\": \"s1\"}, {\"id\": \"new\"}]')", $on), 'ok|1|21|2', 'it goes on from there');
	is(within($database, "SET ROLE alice; SELECT count(*), min(epoch) > $greatest, min(progress::text) FILTER (WHERE split = 's4') FROM revenant.claim_splits('job', 'w', 100)", $on), '17|t|"half"', 'all of it can be claimed');
	within($database, "SET ROLE alice; SELECT revenant.requeue_split('job', 's5')", $on);
	is(within($database, $counts, $on), '21|1|17|3|0', 'and counted');
	ok($on->poll_query_until($database, "SELECT count(*) = $runs{$name} + 1 FROM runs"), 'the planner runs') or diag(within($database, 'SELECT name, phase, reason FROM revenant.tasks', $on));
	ok($on->poll_query_until($database, "SELECT count(*) = 1 FROM revenant.splits WHERE plan = 'tasked' AND split = 'in $database'"), 'and publishes');
	is(within($database, 'SELECT revenant.adopt()', $on), 0, 'there is nothing more to adopt') unless $database eq 'source';
	is(within($database, "SET ROLE alice; SELECT revenant.leave_plan('job', revenant.join_plan('job', 'member'))", $on), 0, 'workers can join');
}
is(within('source', $counts), '20|0|16|3|1', 'the source goes on');
is(within('source', 'SET ROLE alice; ' . "SELECT count(*) FROM revenant.poll_plan('job', $member)"), 2, 'with its member');
is(within('source', $rows), $before, 'and all its splits');

# ---- dropped, and made anew

$node->stop;
$node->start;
within('restored', 'DROP EXTENSION revenant CASCADE; CREATE EXTENSION revenant');
is(within('restored', "SELECT count(*) FROM revenant.plans"), 0, 'nothing is left after DROP EXTENSION');
within('restored', "SELECT revenant.create_plan('job', max_attempts => 7); SELECT revenant.publish('job', revenant.lead_plan('job', 'x'), '[{\"id\": \"s4\"}]')");
is(within('restored', $counts), '1|1|0|0|0', 'a plan of the same name is another one');
is(within('restored', "SELECT split, attempt FROM revenant.claim_splits('job', 'w', 10)"), 's4|1', 'with its own splits');
fails('restored', 'RV001', "SELECT revenant.commit_split('job', 's4', $s4)", 'no epoch from before is good for it');
is(within('restored', "SELECT count(*) FROM revenant.stat_plans WHERE finished > 0 OR planned <> 1"), 0, 'nor is anything counted from before');
# without a restart in between
within('restored', 'DROP EXTENSION revenant CASCADE; CREATE EXTENSION revenant');
within('restored', "SELECT revenant.create_plan('job')");
is(within('restored', $counts), '0|0|0|0|0', 'at once, too');
is(within('restored', "SELECT count(*) FROM revenant.claim_splits('job', 'w', 10)"), 0, 'nothing can be claimed');

$other->stop;
$node->stop('fast');
done_testing();
