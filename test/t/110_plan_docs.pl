# What docs/plans.md shows can be pasted into psql as it stands, and each recipe does what is said beside it, with workers that are processes of their own:
# a backfill is done once although two of its four workers are killed, and partitions are spread evenly over workers that come, leave and die.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Asks;
use Docs;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
asks($node);
sql('CREATE EXTENSION revenant; CREATE DATABASE examples');
$node->safe_psql('examples', 'CREATE EXTENSION revenant');

# A block of SQL goes as the docs say; what it prints.
sub goes
{
	my ($database, $sql, $name) = @_;
	my ($status, $out, $err) = paste($node, $database, $sql);

	is($status, 0, "pasted: $name") or diag($err);
	return $out;
}

# --- the short ones

my @examples = examples('plans.md');
my %printed;
cmp_ok(scalar @examples / 2, '>=', 8, 'there are examples');
while (my ($heading, $sql) = splice @examples, 0, 2)
{
	$printed{$heading} .= goes('examples', $sql, $heading || 'the beginning') . "\n" unless $heading eq 'Recipes';
}

# What is said in comments beside the statements that do not fail
sub says
{
	my ($heading, $what, $name) = @_;

	like($printed{$heading}, $what, $name);
	return;
}

says('', qr/^ok\|2\n\n2\|1\|0\|1\na-m\|done\|\nn-z\|runnable\|$/m, 'one of two splits is done');
says('Planning', qr/^\|f\|0\nok\|3\|3\|1\n[^\n]+\nt\n/m, 'splits are published, a generation is renewed, and ends');
says('Planning', qr/^30\n30\|\{"from": "[0-9-]+"\}\|ok\|\n\nscheduled\|[^\n]+$/m, 'a function plans, and is called again');
says('Working by pulling', qr/^n-z\|[^\n]*|0$/m, 'a split is handed on');
says('Working by pulling', qr/^0$/m, 'and the plan is complete');
says('Exactly once in effect', qr/^1\n1\n+worker 2\n\n/m, 'who was too late has done nothing, nor has who was on time done anything twice');
says('Working by assignment', qr/^2\n(?:\d+\|gained\|(?:one|two)\|\d+\|\n){2}worker 1\|live\|2\|2\n2$/m, 'a member is given both splits, and gives them back');
says('Attempts and quarantine', qr/^bad\.csv\|1\|\[\{[^\n]*"reason": "line 7 has no date"[^\n]*\}\]\n0\nstalled\|1\n\nfinal\n/m, 'a split is quarantined, and requeued');
says('When a plan is over', qr/^complete\|t\|2\|2\|0\n0\n\nopen\|0\n/m, 'a plan is complete, and reset');
is($node->safe_psql('examples', q{SELECT string_agg(plan, ', ' ORDER BY plan) FROM revenant.plans}), 'files, shards', 'they leave what they say');

# --- recipes

my %recipes = recipes('plans.md', 'Recipes');
my %starts = recipes('plans.md', 'Recipes', 'sh');
my %running;

sub named
{
	my ($name, $from) = @_;
	my ($full) = grep { index($_, $name) == 0 } keys %$from;

	return delete $from->{ $full // die "no recipe \"$name\"" };
}

# A recipe's SQL, with other times, since nobody waits that long here.
sub recipe
{
	my ($name, %hurry) = @_;
	my $sql = named($name, \%recipes);

	foreach my $text (keys %hurry)
	{
		is($sql =~ s/\Q$text\E/$hurry{$text}/g, 1, "\"$text\" can be made shorter");
	}
	return goes('postgres', $sql, $name);
}

# The line by which a recipe starts a worker.
sub line_of
{
	my ($name) = @_;

	named($name, \%starts) =~ /^\s*(psql .*?)(?: &)?$/m or die "\"$name\" starts nothing";
	return $1;
}

$ENV{PGHOST} = $node->host;
$ENV{PGPORT} = $node->port;
$ENV{PGDATABASE} = 'postgres';
my $dir = PostgreSQL::Test::Utils::tempdir;

# A worker, in a process of its own that is replaced by psql.
sub start_worker
{
	my ($worker, $line, %variables) = @_;

	local @ENV{ keys %variables } = values %variables;
	$running{$worker} = IPC::Run::start([ 'bash', '-c', "exec $line" ], '<', \undef, '>', "$dir/$worker.out", '2>', "$dir/$worker.err");
	return;
}

sub kill_worker
{
	my ($worker) = @_;
	my $run = delete $running{$worker};

	$run->signal('KILL');
	eval { $run->finish };
	return;
}

sub ends_well
{
	my ($worker) = @_;
	my $run = delete $running{$worker};

	$run->finish;
	is($run->full_result(0), 0, "$worker ends well") or diag(slurp_file("$dir/$worker.err"));
	return;
}

is(scalar keys %recipes, 2, 'there are recipes');

# --- a backfill

my $backfill = line_of('A backfill');
recipe('A backfill', "lease_ttl => '10 s'" => "lease_ttl => '2 s'");
is(sql(q{SELECT planned, done FROM revenant.plans WHERE plan = 'to cents'}), '100|0', 'all ranges are planned');

# each worker gets one range, and comes to a row of it that somebody has locked, and 101 is in the first one
my $keeper = $node->background_psql('postgres');
$keeper->query_safe('BEGIN; SELECT count(*) FROM (SELECT FROM payment WHERE id % 1000 = 501 FOR UPDATE) AS p');
start_worker("worker $_", $backfill, n => $_) foreach 1 .. 4;
becomes(q{SELECT count(*) = 4 FROM revenant.splits WHERE plan = 'to cents' AND state = 'owned'}, 'four workers have a range each');
becomes(q{SELECT count(*) = 4 FROM pg_stat_activity WHERE query ~ 'CALL to_cents' AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()}, 'and are in the middle of it');
my $orphans = q{(SELECT count(*) FROM revenant.splits WHERE plan = 'to cents' AND worker IN ('worker 1', 'worker 3'))};
is(sql("SELECT $orphans"), '2', 'two of the ranges are those of two of them');
kill_worker("worker $_") foreach 1, 3;
becomes(q{SELECT count(*) = 2 FROM pg_stat_activity WHERE query ~ 'CALL to_cents' AND pid <> pg_backend_pid()}, 'who are killed, and their sessions end');
is(sql('SELECT count(*) FROM payment WHERE amount <> id % 100'), '0', 'nothing is written yet');
becomes(q{SELECT count(*) = 2 FROM revenant.splits WHERE plan = 'to cents' AND ended = 'expired' AND attempts = 1}, 'what they had is to be claimed again');
becomes(q{SELECT count(*) = 2 FROM revenant.splits WHERE plan = 'to cents' AND state = 'owned' AND deadline < now()}, 'the others keep theirs, though their time is over');
$keeper->query_safe('COMMIT');
$keeper->quit;
ends_well("worker $_") foreach 2, 4;
becomes(q{SELECT state = 'complete' FROM revenant.plans WHERE plan = 'to cents'}, 'all is done');
is(sql('BEGIN; UPDATE payment SET amount = amount * 100 WHERE id = 4711; SELECT count(*) FROM payment WHERE amount <> id % 100 * 100; ROLLBACK'), '1', 'what is done twice would be seen');
is(sql('SELECT count(*), count(*) FILTER (WHERE amount = id % 100 * 100) FROM payment'), '100000|100000', 'once, for each row');
is(sql(q{SELECT acquired_create, acquired_expired, lost_expired, finished FROM revenant.stat_plans WHERE plan = 'to cents'}), '100|2|2|100', 'and two ranges were begun twice');
is(sql(q{SELECT string_agg(jsonb_array_length(reasons) || ' ' || (reasons -> 0 ->> 'worker'), ', ' ORDER BY reasons -> 0 ->> 'worker') FROM revenant.splits WHERE plan = 'to cents' AND reasons IS NOT NULL}),
	'1 worker 1, 1 worker 3', 'which is written down');
start_worker('late', $backfill, n => 5);
ends_well('late');
is(sql('SELECT count(*) FROM payment WHERE amount <> id % 100 * 100'), '0', 'who comes late does nothing');

# what cannot be done
sql(q{SELECT revenant.reset_plan('to cents'); SELECT revenant.alter_plan('to cents', '{"max_attempts": 2}'); ALTER TABLE payment ADD CHECK (id <> 4711 OR amount < 100000)});
sql(q{SELECT revenant.publish('to cents', revenant.lead_plan('to cents', 'set up'), '[{"id": "good", "spec": {"from": 1, "to": 9}}, {"id": "bad", "spec": {"from": 4711, "to": 4712}}]', final => true)});
sql(q{UPDATE payment SET amount = id WHERE id IN (4711, 4712)});
start_worker('one', $backfill, n => 1);
ends_well('one');
is(sql(q{SELECT state, done, quarantined FROM revenant.plans WHERE plan = 'to cents'}), 'stalled|1|1', 'a range that cannot be done is given up');
is(sql(q{SELECT attempts, reasons -> 1 ->> 'reason' ~ 'check constraint' FROM revenant.splits WHERE plan = 'to cents' AND split = 'bad'}), '2|t', 'for a reason');
is(sql('SELECT amount FROM payment WHERE id = 4712'), '4712', 'and nothing of it is written');
sql(q{ALTER TABLE payment DROP CONSTRAINT payment_check; SELECT revenant.requeue_split('to cents', 'bad')});
start_worker('two', $backfill, n => 2);
ends_well('two');
is(sql(q{SELECT string_agg(amount::text, ' ' ORDER BY id) FROM payment WHERE id IN (4711, 4712)}), '471100 471200', 'until it can');
is(sql(q{SELECT state FROM revenant.plans WHERE plan = 'to cents'}), 'complete', 'and then all is done');

# --- partitions

my $partitions = line_of('Eight partitions');
recipe('Eight partitions', "lease_ttl => '5 s'" => "lease_ttl => '2 s'", "rebalance_delay => '2 s'" => "rebalance_delay => '500 ms'");
my $shares = q{(SELECT COALESCE(string_agg(owned::text, ' ' ORDER BY owned DESC), '') FROM revenant.members WHERE plan = 'totals' AND state = 'live')};
my $moves = q{(SELECT revocations_requested FROM revenant.stat_plans WHERE plan = 'totals')};
my $sent = 20000;
my $amount = 20000 * 20001 / 2;

sub shares_are
{
	my ($shares_wanted, $name) = @_;

	return becomes("SELECT $shares = '$shares_wanted'", $name);
}

# More work, in all partitions, while the fleet changes
sub more_work
{
	sql('INSERT INTO event (part, amount) SELECT n % 8, 1 FROM generate_series(1, 4000) AS n');
	$sent += 4000;
	$amount += 4000;
	return;
}

start_worker('one', $partitions, name => 'one');
shares_are('8', 'one worker has all partitions');
start_worker('two', $partitions, name => 'two');
shares_are('4 4', 'of two each has half of them');
more_work();
start_worker('three', $partitions, name => 'three');
shares_are('3 3 2', 'and three are even');
is(sql("SELECT $moves"), '6', 'for which six moved: four, and then two');
is(sql(q{SELECT revocations_drained, revocations_forced, lost_revoked FROM revenant.stat_plans WHERE plan = 'totals'}), '6|0|0', 'all of them handed over');
becomes("SELECT $sent = sum(n) FROM total", 'what there is is summed up');

more_work();
sql(q{DELETE FROM fleet WHERE worker = 'two'});
ends_well('two');
shares_are('4 4', 'what one had that left is the others\'');
is(sql(q{SELECT sum(attempts) FROM revenant.splits WHERE plan = 'totals'}), '0', 'and nobody calls that a failure');

more_work();
my $his = sql(q{SELECT string_agg(split, ',' ORDER BY split) FROM revenant.splits WHERE plan = 'totals' AND worker = 'three'});
kill_worker('three');
shares_are('8', 'what one had that was killed, too');
becomes("SELECT $sent = sum(n) FROM total", 'all is summed up');
is(sql(q{SELECT string_agg(split, ',' ORDER BY split) FROM revenant.splits WHERE plan = 'totals' AND reasons IS NOT NULL}), $his, 'that was one failed attempt for each');
more_work();
becomes("SELECT $sent = sum(n) FROM total", 'and more of it');
is(sql(q{SELECT sum(attempts) FROM revenant.splits WHERE plan = 'totals'}), '0', 'which is forgotten, since they advanced');
my $seed = sql("SELECT $moves");
start_worker('three', $partitions, name => 'three');
shares_are('4 4', 'it comes back');
is(sql("SELECT $moves - $seed"), '4', 'and four move');

# a second one under the name of the first
start_worker('twin', $partitions, name => 'one');
$running{one}->finish;
isnt($running{one}->full_result(0), 0, 'one that is replaced ends');
like(slurp_file("$dir/one.err"), qr/another worker joined plan "totals" as "one"/, 'and is told by whom');
delete $running{one};
shares_are('4 4', 'the other one goes on with what it had');
more_work();
becomes("SELECT $sent = sum(n) FROM total", 'all is summed up');
sql('DELETE FROM fleet');
ends_well($_) foreach 'three', 'twin';
is(sql("SELECT sum(n) || ' ' || sum(amount) FROM total"), "$sent $amount", 'each event once');
is(sql('SELECT count(*) FROM event'), '0', 'and none is left');
is(sql(q{SELECT bool_and(s.progress = to_jsonb(t.n)) FROM revenant.splits AS s JOIN total AS t ON s.spec = to_jsonb(t.part) WHERE s.plan = 'totals'}), 't', 'as the splits say, too');
is(sql("SELECT $shares"), '', 'nobody is a member any more');

is(join(', ', keys %recipes, keys %starts), '', 'no recipe is left out');

$node->stop;
done_testing();
