# A planner in the database that is ended, or whose server crashes, between its first look and the end of its commit has
# published all that it returned, or nothing: each split is there once, counted, claimed and done once.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";

use Asks;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
asks($node);
sql('CREATE EXTENSION revenant;
	CREATE FUNCTION ten_more(cursor jsonb, generation bigint) RETURNS revenant.split_plan LANGUAGE sql AS $$
		SELECT ROW((SELECT jsonb_agg(jsonb_build_object(\'id\', \'s\' || n)) FROM generate_series(next.n * 10 + 1, next.n * 10 + 10) AS n),
			to_jsonb(next.n + 1), next.n >= 2)::revenant.split_plan
		FROM (SELECT coalesce(cursor::int, 0)) AS next (n) $$');

my $planner = "SELECT pid FROM revenant.tasks WHERE name = 'plan/job' AND pid IS NOT NULL";

# Who can stop there, and be seen to have: at a point that waits on a lock, or at a quiet one, which polls a flag.
my %stops = (
	'planner-before-publish' => 0,
	'plan-before-publication' => 0,
	'plan-before-publish' => 1);

sub hold
{
	my ($point, $control) = @_;

	if ($stops{$point}) { $control->query_safe("SELECT revenant._debug_hold_quiet('$point')") }
	else { $control->query_safe("SELECT revenant._debug_hold('$point')") }
	return;
}

sub is_stopped
{
	my ($point) = @_;

	return becomes($stops{$point} ? "SELECT revenant._debug_quiet_waiters('$point') = 1" :
		  "SELECT count(*) = 1 FROM pg_locks AS l WHERE l.pid IN ($planner) AND NOT l.granted",
		"the planner stops at $point");
}

sub let_go
{
	my ($point, $control) = @_;

	$control->query_safe(($stops{$point} ? 'SELECT revenant._debug_let_go_quiet' : 'SELECT revenant._debug_let_go') . "('$point')");
	return;
}

# All is planned in the end, once, and can be done once; memory says what the rows say.
sub is_whole
{
	my ($what) = @_;

	becomes("SELECT final FROM revenant.plans WHERE plan = 'job'", "$what: the planner goes on by itself");
	is(sql("SELECT planned, revision, cursor FROM revenant.plans WHERE plan = 'job'"), '30|3|3', '... and each of its steps is published once');
	is(sql("SELECT count(*), count(DISTINCT s.split) FROM revenant.splits AS s WHERE s.plan = 'job'"), '30|30', '... with the splits that they say');
	is(sql("SELECT planned, runnable, owned, done FROM revenant.plan_progress('job')"), '30|30|0|0', '... as memory counts them');
	is(sql("WITH c AS MATERIALIZED (SELECT * FROM revenant.claim_splits('job', 'w', 100))
			SELECT count(*), count(DISTINCT split), revenant.commit_splits('job', jsonb_agg(jsonb_build_object('split', split, 'epoch', epoch, 'done', true))) FROM c"),
		'30|30|30', '... each of which is claimed and done once');
	becomes("SELECT state = 'complete' FROM revenant.plans WHERE plan = 'job'", '... and then all is done');
	return;
}

foreach my $point (sort keys %stops)
{
	foreach my $how ('ended', 'crashed')
	{
		my $control = $node->background_psql('postgres');

		# the first step is not held up, since the making of the plan comes by the last point, too
		sql("SELECT revenant.create_plan('job', planner_function => 'ten_more', replan_every => '1 s', lease_ttl => '1 s')");
		becomes("SELECT planned >= 10 FROM revenant.plans WHERE plan = 'job'", 'it has begun to plan');
		hold($point, $control);
		is_stopped($point);
		if ($how eq 'ended')
		{
			is(sql("SELECT pg_terminate_backend(($planner))"), 't', 'it is ended there');
			let_go($point, $control);
			$control->quit;
		}
		else
		{
			$node->stop('immediate');
			eval { $control->quit };
			$node->start;
		}
		is_whole("$how at $point");
		sql("SELECT revenant.drop_plan('job')");
	}
}

done_testing();
