# The programs in examples/ do what they are an example of. Elections: two never lead, one that is killed is followed by the other,
# and one that was paused past its ttl cannot write when it goes on. Accounts: a deposit is made once, whenever the connection dies.
# Workers of a plan: each split is done once, though one of them is killed, one is paused, one is cut off, and the reply to a COMMIT is lost.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use Cwd qw(abs_path);
use File::Basename;
use File::Copy;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $examples = abs_path(dirname(__FILE__) . '/../../examples');
my $dir = PostgreSQL::Test::Utils::tempdir;
my @programs;
my @accounts;
my @workers;

# What this machine can run.
copy("$examples/$_", "$dir/$_") or die "$_: $!" for 'account.js', 'account.py', 'account.sql', 'election.js', 'election.py', 'package.json', 'plan.sql',
	'plan_worker.js', 'plan_worker.py';
if (system('python3 -c "import psycopg" >/dev/null 2>&1') == 0)
{
	push @programs, [ 'python3', "$dir/election.py" ];
	push @accounts, [ 'python3', "$dir/account.py" ];
	push @workers, [ 'python3', "$dir/plan_worker.py" ];
}
if (system('npm --version >/dev/null 2>&1') == 0
	&& system("cd '$dir' && npm install --no-audit --no-fund --no-package-lock --loglevel=error >npm.log 2>&1") == 0)
{
	push @programs, [ 'node', "$dir/election.js" ];
	push @accounts, [ 'node', "$dir/account.js" ];
	push @workers, [ 'node', "$dir/plan_worker.js" ];
}
plan skip_all => 'neither psycopg nor pg for node is there' unless @programs;
diag('not tested: ' . (@programs > 1 ? 'nothing' : $programs[0][0] eq 'node' ? 'python' : 'node')) if @programs < 2;

my $node = PostgreSQL::Test::Cluster->new('main');
# with WAL senders commits can be made to wait
$node->init(allows_streaming => 1);
$node->append_conf('postgresql.conf', <<'END');
log_statement = none
# one that is paused in the middle of a fenced transaction keeps everybody out until that ends
revenant.fence_grace = 500ms
END
$node->start;
asks($node);

sql(q{
	CREATE EXTENSION revenant;
	CREATE TABLE work (id bigserial PRIMARY KEY, candidate text, token bigint, at timestamptz DEFAULT clock_timestamp());
	SELECT revenant.guard_table('work', 'example');
});

$ENV{PGHOST} = $node->host;
$ENV{PGPORT} = $node->port;
$ENV{PGDATABASE} = 'postgres';
$ENV{PGUSER} = getpwuid($>);
my %running;

sub start_candidate
{
	my ($name, $program) = @_;
	$running{$name} = IPC::Run::start([ @$program, $name, 1 ], '<', \undef, '>', "$dir/$name.out", '2>', "$dir/$name.err");
	return;
}

sub leader { return sql("SELECT leader FROM revenant.leader('example')"); }

sub next_leader
{
	my ($old, $name) = @_;
	becomes("SELECT leader <> '$old' FROM revenant.leader('example')", $name);
	my $new = leader();
	becomes("SELECT count(*) > 0 FROM work AS w, revenant.leader('example') AS l WHERE w.candidate = l.leader AND w.token = l.token",
		"$new works");
	return $new;
}

my $number = 0;
# three of them: one is killed, one is paused, and one is left to lead
foreach my $program ((@programs, ($programs[-1]) x 2)[0 .. 2])
{
	$number++;
	start_candidate("candidate-$number", $program);
}

my $first = next_leader('', 'somebody leads');

# --- killed

$running{$first}->signal('KILL');
eval { $running{$first}->finish };
delete $running{$first};
my $second = next_leader($first, 'after it was killed, another one leads');

# --- paused in the middle of whatever it does, past its ttl

$running{$second}->signal('STOP');
my $third = next_leader($second, 'after one was paused, another one leads');
my $late = sql("SELECT count(*) FROM work WHERE candidate = '$second'");
my $last = sql("SELECT max(id) FROM work WHERE candidate = '$second'");
$running{$second}->signal('CONT');
my $said = "$dir/$second.out";
for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
{
	last if slurp_file($said) =~ /^lost: RV00[12]$|(?s:leads.*waits)/m;
	select undef, undef, undef, 0.1;
}
like(slurp_file($said), qr/^lost: RV00[12]$|(?s:leads.*waits)/m, 'the paused one is told that it does not lead');
is(sql("SELECT count(*) FROM work WHERE candidate = '$second' AND id > $last AND token = (SELECT token FROM work WHERE id = $last)"),
	'0', 'and did not write once more by its old token');

# --- two at once, ever

my $now = leader();
becomes("SELECT count(*) > 20 FROM work WHERE token = (SELECT max(token) FROM work)", 'the work goes on');
is(sql('SELECT count(*) FROM (SELECT token < lag(token) OVER (ORDER BY id) AS back FROM work) AS w WHERE back'), '0',
	'nobody wrote after one with a newer token');
is(sql('SELECT count(*) FROM (SELECT FROM work GROUP BY token HAVING count(DISTINCT candidate) > 1) AS w'), '0',
	'no token is of two candidates');
cmp_ok(sql('SELECT count(DISTINCT token) FROM work'), '>=', 3, 'three of them led');

foreach my $name (keys %running)
{
	$running{$name}->signal('KILL');
	eval { $running{$name}->finish };
	is(slurp_file("$dir/$name.err"), '', "$name had nothing to complain about");
}

# --- deposits

$node->safe_psql('postgres', slurp_file("$dir/account.sql"));

sub balance { return sql(q{SELECT state ->> 'balance' FROM account WHERE id = 'ada'}) }

# How a program that makes a deposit ends: what it said.
sub deposits
{
	my ($run, $out, $err) = @_;

	$run->finish;
	is($run->full_result(0), 0, 'it comes to its end') or diag(slurp_file($err));
	return slurp_file($out);
}

my $expected = 0;
foreach my $program (@accounts)
{
	my ($out, $err) = ("$dir/account.out", "$dir/account.err");
	my @deposit = ([ @$program, 'ada', 10 ], '<', \undef, '>', $out, '2>', $err);

	$expected += 10;
	is(deposits(IPC::Run::start(@deposit), $out, $err), "balance: $expected\n", "$program->[0]: a deposit");

	# at COMMIT: it is done, and nobody says so. A commit waits for a standby that there is none of
	sql(q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'});
	$node->reload;
	my $run = IPC::Run::start(@deposit);
	becomes(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND backend_type = 'client backend'}, 'it waits at its COMMIT');
	sql(q{ALTER SYSTEM RESET synchronous_standby_names});
	sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND backend_type = 'client backend'});
	$node->reload;
	$expected += 10;
	like(deposits($run, $out, $err), qr/^asks again: \S+\nbalance: $expected\n\z/, "$program->[0]: its connection is killed at COMMIT, and it asks again");
	is(balance(), $expected, 'the deposit was made once');

	# before: it is not done
	my $keeper = $node->background_psql('postgres');
	$keeper->query_safe(q{BEGIN; SELECT id FROM account WHERE id = 'ada' FOR UPDATE});
	$run = IPC::Run::start(@deposit);
	becomes(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'revenant.call' AND pid <> pg_backend_pid()}, 'it waits in its call');
	sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'revenant.call' AND pid <> pg_backend_pid()});
	$keeper->query_safe('COMMIT');
	$keeper->quit;
	$expected += 10;
	like(deposits($run, $out, $err), qr/^asks again: \S+\nbalance: $expected\n\z/, "$program->[0]: its connection is killed before that, and it asks again");
	is(balance(), $expected, 'the deposit was made once');

	# what is refused is not repeated
	$run = IPC::Run::start([ @$program, 'ada', -10 ], '<', \undef, '>', $out, '2>', $err);
	$run->finish;
	isnt($run->full_result(0), 0, "$program->[0]: it is told what is wrong with a deposit");
	like(slurp_file($err), qr/an amount must be positive/, 'in words');
	is(slurp_file($out), '', 'and asks once');
}

# --- workers of a plan

my $points = q{(SELECT string_agg(points || ': ' || n, ', ' ORDER BY points) FROM (SELECT points, count(*) AS n FROM customer GROUP BY points) AS c)};

sub start_worker
{
	my ($name, $program) = @_;

	local $ENV{PGAPPNAME} = $name;
	$running{$name} = IPC::Run::start([ @$program, $name ], '<', \undef, '>', "$dir/$name.out", '2>', "$dir/$name.err");
	return;
}

# What a worker has said that came to its end.
sub said
{
	my ($name) = @_;

	return deposits(delete $running{$name}, "$dir/$name.out", "$dir/$name.err");
}

# How many of these programs' sessions are in some state.
sub sessions { return "(SELECT count(*) FROM pg_stat_activity WHERE application_name IN ('one', 'two', 'three', 'four') AND $_[0])" }

%running = ();
foreach my $program (@workers)
{
	my $runs = $program->[0];

	sql(q{DROP TABLE IF EXISTS customer; SELECT revenant.drop_plan(plan) FROM revenant.plans});
	$node->safe_psql('postgres', slurp_file("$dir/plan.sql"));
	sql(q{SELECT revenant.alter_plan('example', '{"lease_ttl": "2 s"}')});
	is(sql("SELECT planned FROM revenant.plans"), '20', 'there is something to do');

	# three of them in the middle of their transactions: one is killed, one is paused, one is paused and loses its connection
	my $keeper = $node->background_psql('postgres');
	$keeper->query_safe('BEGIN; SELECT count(*) FROM (SELECT FROM customer WHERE id % 1000 = 501 FOR UPDATE) AS c');
	start_worker($_, $program) foreach 'one', 'two', 'three';
	becomes('SELECT 3 = ' . sessions(q{wait_event_type = 'Lock'}), "$runs: three of them work");
	$running{one}->signal('KILL');
	eval { $running{one}->finish };
	delete $running{one};
	$running{$_}->signal('STOP') foreach 'two', 'three';
	sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'three'});
	$keeper->query_safe('COMMIT');
	$keeper->quit;
	start_worker('four', $program);
	becomes('SELECT done = 19 FROM revenant.plans', 'another one does what the first and the third had, and all the rest');
	becomes(q{SELECT worker = 'two' AND deadline < now() FROM revenant.splits WHERE state = 'owned'}, 'but not what one has that is paused in its transaction, though its time is over');
	$running{three}->signal('CONT');
	becomes('SELECT 1 = ' . sessions(q{application_name = 'three' AND query ~ 'await_splits'}), 'one that was cut off comes back, and waits for work');
	$running{two}->signal('CONT');
	like(said('two'), qr/^done: from \d+\n\z/, 'and the paused one comes to its end');
	like(said('three'), qr/^connects again: \S+\n\z/, 'what was taken from the other one is not done again');
	is(() = said('four') =~ /^done: /mg, 19, 'which is all');
	is(sql("SELECT $points"), '10: 20000', 'each customer has ten points');
	is(sql(q{SELECT state FROM revenant.plans}), 'complete', 'and the plan is complete');
	is(sql(q{SELECT count(*) FROM revenant.splits WHERE reasons IS NOT NULL}), '2', 'two splits were begun twice');

	# at COMMIT, which waits for a standby that there is none of
	sql(q{SELECT revenant.reset_plan('example'); UPDATE customer SET points = 0});
	sql(q{SELECT revenant.publish('example', revenant.lead_plan('example', 'test'), '[{"id": "a", "spec": {"from": 1, "to": 5000}}, {"id": "b", "spec": {"from": 5001, "to": 20000}}]', final => true)});
	sql(q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'});
	$node->reload;
	start_worker('one', $program);
	becomes(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'one'}, "$runs: one waits at its COMMIT");
	sql(q{ALTER SYSTEM RESET synchronous_standby_names});
	sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'one'});
	$node->reload;
	like(said('one'), qr/^connects again: \S+\ndone: b\n\z/, 'whose reply is lost: it connects again, and goes on with the next one');
	is(sql("SELECT $points"), '10: 20000', 'each customer has ten points');

	# and what cannot be done
	sql(q{SELECT revenant.reset_plan('example'); ALTER TABLE customer ADD CHECK (points < 20)});
	sql(q{SELECT revenant.publish('example', revenant.lead_plan('example', 'test'), '[{"id": "a", "spec": {"from": 1, "to": 5000}}]', final => true)});
	start_worker('two', $program);
	is(said('two'), "not done: a 23514\n" x 4, "$runs: what cannot be done is tried four times");
	is(sql(q{SELECT state FROM revenant.plans}), 'stalled', 'and given up');
	like(sql(q{SELECT reasons -> 3 ->> 'reason' FROM revenant.splits}), qr/check constraint/, 'with its reason');
}

$node->stop;
done_testing();
