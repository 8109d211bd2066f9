# Whatever becomes of the processes that pull splits, each split has its effect once, and only an end that is not graceful uses up an attempt.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use Crew;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $splits = 300;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', 'log_statement = none');
$node->start;
asks($node);
sql("CREATE EXTENSION revenant;
	-- what is written in the transaction that commits the split, and what is written before it
	CREATE TABLE effects (split text, worker text, epoch bigint, attempt int);
	CREATE TABLE unfenced (LIKE effects);
	SELECT revenant.create_plan('job', lease_ttl => '1 min');
	SELECT revenant.publish('job', revenant.lead_plan('job', 'test'),
		(SELECT jsonb_agg(jsonb_build_object('id', 'split ' || i, 'spec', jsonb_build_object('n', i))) FROM generate_series(1, $splits) AS i), final => true)");

# A worker that goes on until the plan is complete; what comes first is up to its role.
sub hire
{
	my ($name, $first) = @_;

	return Crew->hire(
		$node,
		sub {
			my ($worker) = @_;
			my $claim = sub {
				my ($n, $ttl) = @_;
				my @claims = map { [ split /\|/ ] } split /\n/, $worker->try("SELECT split, epoch, attempt FROM revenant.claim_splits('job', '$name', $n, '$ttl')") // die $worker->{failure};

				$worker->say("claimed $_->[0]") foreach @claims;
				return @claims;
			};
			my $values = sub { return "('$_[0][0]', '$name', $_[0][1], $_[0][2])" };
			my $work = sub {
				my ($claim) = @_;

				$worker->try('INSERT INTO unfenced VALUES ' . $values->($claim)) // die $worker->{failure};
				return if defined $worker->try('INSERT INTO effects VALUES ' . $values->($claim) . "; SELECT revenant.commit_split('job', '$claim->[0]', $claim->[1], done => true)");
				$worker->say("refused $claim->[0] $worker->{failure}");
			};

			$first->($worker, $claim, $values, $work);
			while (1)
			{
				my @claims = $claim->(2, '1 h');

				$work->($_) foreach @claims;
				next if @claims;
				$worker->try("CALL revenant.await_splits('job', NULL, '5 s')") // die $worker->{failure};
				last if $worker->try("SELECT state FROM revenant.plans WHERE plan = 'job'") eq 'complete';
			}
		});
}

sub claimed
{
	my ($worker) = @_;

	return map { /^claimed (.*)/ ? $1 : () } $worker->lines;
}

# ---- each in its own way

my $between = hire('killed between', sub {
	my ($worker, $claim) = @_;

	$claim->(3, '3 s');
	$worker->pause;
});
my $within = hire('killed within', sub {
	my ($worker, $claim, $values) = @_;
	my ($one, @others) = $claim->(3, '3 s');

	$worker->try('BEGIN; INSERT INTO effects VALUES ' . $values->($one) . "; SELECT revenant.commit_split('job', '$one->[0]', $one->[1], done => true)") // die $worker->{failure};
	$worker->pause;
});
# with its effect written, and not committed
my $stopped = hire('stopped', sub {
	my ($worker, $claim, $values, $work) = @_;
	my ($one, @others) = $claim->(3, '3 s');

	$worker->try('INSERT INTO unfenced VALUES ' . $values->($one)) // die $worker->{failure};
	$worker->try('BEGIN; INSERT INTO effects VALUES ' . $values->($one)) // die $worker->{failure};
	$worker->pause;
	$worker->say("late $worker->{failure}") unless defined $worker->try("SELECT revenant.commit_split('job', '$one->[0]', $one->[1], done => true)");
	$worker->try('COMMIT');
	$work->($_) foreach @others;
});
my $fenced = hire('fenced', sub {
	my ($worker, $claim, $values) = @_;
	my ($one) = $claim->(1, '3 s');

	$worker->try("BEGIN; SELECT revenant.fence_split('job', '$one->[0]', $one->[1])") // die $worker->{failure};
	$worker->try('INSERT INTO effects VALUES ' . $values->($one)) // die $worker->{failure};
	$worker->pause;
	$worker->try("SELECT revenant.commit_split('job', '$one->[0]', $one->[1], done => true); COMMIT") // die $worker->{failure};
});
my $graceful = hire('graceful', sub {
	my ($worker, $claim) = @_;

	foreach my $one ($claim->(3, '1 h'))
	{
		$worker->try("SELECT revenant.release_split('job', '$one->[0]', $one->[1])") // die $worker->{failure};
	}
	$worker->pause;
});
my @special = ($between, $within, $stopped, $fenced, $graceful);
is(scalar(grep { $_->says('^pausing') } @special), @special, 'each is in the middle of something');
is(sql('SELECT owned FROM revenant.plan_progress(\'job\')'), 10, 'and owns what it claimed');

# ---- and one that has nothing to fear

my $steady = hire('steady', sub { });
$stopped->signal('STOP');
$fenced->signal('STOP');
$_->kill foreach $between, $within;
my %lost = map { $_ => 1 } claimed($between), claimed($within), claimed($stopped);
is(scalar(keys %lost), 9, 'nine splits are left behind');
my $names = join ', ', map { "'$_'" } keys %lost;
becomes("SELECT count(*) = 9 FROM revenant.splits WHERE plan = 'job' AND split IN ($names) AND jsonb_array_length(reasons) = 1", 'they expire');
my ($kept) = claimed($fenced);
is(sql("SELECT state, worker, deadline < now() FROM revenant.splits WHERE plan = 'job' AND split = '$kept'"), 'owned|fenced|t', 'the one that is fenced does not, though its time is over');
becomes("SELECT count(*) = 9 FROM effects WHERE split IN ($names)", 'the steady worker has done them');
becomes("SELECT done = $splits - 1 FROM revenant.plan_progress('job')", 'and all the rest');
is(sql("SELECT state FROM revenant.plans WHERE plan = 'job'"), 'final', 'but that is not all');

# ---- those that were stopped go on

foreach my $worker ($stopped, $fenced, $graceful)
{
	$worker->go;
	$worker->signal('CONT');
}
foreach my $worker ($stopped, $fenced, $graceful, $steady)
{
	ok($worker->finish, 'a worker ends when all is done') or diag(join "\n", $worker->lines);
}
my ($one, @others) = claimed($stopped);
is(scalar(grep { /^late RV001 / } $stopped->lines), 1, 'a commit that comes too late is refused') or diag(join "\n", $stopped->lines);
is(join("\n", map { /^refused (.*) (RV001) / ? "$1 $2" : () } $stopped->lines), "$others[0] RV001\n$others[1] RV001", 'each of them');

# ---- what came of it

is(sql('SELECT count(*), count(DISTINCT split) FROM effects'), "$splits|$splits", 'each split has its effect, once');
is(sql('SELECT count(*) FROM effects AS e LEFT JOIN revenant.splits AS s ON s.plan = \'job\' AND s.split = e.split AND s.epoch = e.epoch AND s.state = \'done\' WHERE s.split IS NULL'),
	0, 'by the claim that is the last one');
is(sql("SELECT count(*) FROM (SELECT split FROM unfenced GROUP BY split HAVING count(*) = 2 INTERSECT SELECT split FROM effects WHERE split IN ($names)) AS t"),
	3, 'where nothing was fenced what the stopped worker did happened twice');
is(sql("SELECT string_agg(DISTINCT attempt::text, ' ') FROM effects WHERE split IN ($names)"), '2', 'what was left behind was the second attempt');
is(sql("SELECT string_agg(DISTINCT attempt::text, ' ') FROM effects WHERE split NOT IN ($names)"), '1', 'nothing else was');
is(sql("SELECT count(*) FROM revenant.splits WHERE plan = 'job' AND jsonb_array_length(coalesce(reasons, '[]')) > 0 AND split NOT IN ($names)"), 0, 'and has no reason to show');
is(sql("SELECT worker FROM effects WHERE split = '$kept'"), 'fenced', 'who had fenced his split did it himself');
is(sql('SELECT acquired_create, acquired_expired, lost_expired, releases, finished, quarantines, failures FROM revenant.stat_plans'),
	"$splits|9|9|3|$splits|0|0", 'it was counted so');
is(sql('SELECT planned, runnable, owned, done, quarantined FROM revenant.plan_progress(\'job\')'), "$splits|0|0|$splits|0", 'nothing is left');

# a name is a label: somebody who comes back by it has nothing of the other's
sql("SELECT revenant.create_plan('names', lease_ttl => '1 min');
	SELECT revenant.publish('names', revenant.lead_plan('names', 'test'), '[{\"id\": \"a\"}, {\"id\": \"b\"}]')");
my $epoch = sql("SELECT epoch FROM revenant.claim_splits('names', 'twin')");
is(sql("SELECT split FROM revenant.claim_splits('names', 'twin', 10)"), 'b', 'a second worker of the same name gets other splits');
sql("SELECT revenant.commit_split('names', 'a', $epoch, '1')");
is(sql("SELECT progress FROM revenant.splits WHERE plan = 'names' AND split = 'a'"), '1', 'and the first one keeps its own');

$node->stop;
done_testing();
