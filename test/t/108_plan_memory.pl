# With shared memory full, who claims or joins is refused, cleanly; nothing is lost, what is claimed is kept alive, and when there is room again all goes on. So it does after a
# restart with too little for what is claimed, as soon as there is enough.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use Client qw(monotonic);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $splits = 60_000;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "log_statement = none\nautovacuum = off\nsynchronous_commit = off\nrevenant.shared_memory = '4 MB'");
$node->start;
asks($node);
sql("CREATE EXTENSION revenant;
	CREATE TABLE claims (split text, epoch bigint);
	SELECT revenant.create_plan('big', lease_ttl => '10 min', replan_every => '1 h', max_in_flight => 10, rebalance_delay => '0');
	SELECT revenant.create_plan('small', lease_ttl => '10 min', replan_every => '1 h', max_in_flight => 10, rebalance_delay => '0');
	SELECT revenant.publish('big', revenant.lead_plan('big', 'p', '1 h'), (SELECT jsonb_agg(jsonb_build_object('id', 's' || i)) FROM generate_series(1, $splits) AS i));
	SELECT revenant.publish('small', revenant.lead_plan('small', 'p', '1 h'), (SELECT jsonb_agg(jsonb_build_object('id', 's' || i)) FROM generate_series(1, 100) AS i));
	-- claims until it is refused: how many it got then, and how it was refused
	CREATE PROCEDURE fill(n int, INOUT refused text) LANGUAGE plpgsql AS \$\$
	BEGIN
		LOOP
			BEGIN
				INSERT INTO public.claims SELECT split, epoch FROM revenant.claim_splits('big', 'w', n);
				EXIT WHEN NOT FOUND;
			EXCEPTION WHEN out_of_memory THEN
				refused := SQLSTATE || ' ' || SQLERRM;
				EXIT;
			END;
			COMMIT;
		END LOOP;
	END \$\$");
my $member = sql("SELECT revenant.join_plan('small', 'member', 2)");
becomes("SELECT count(*) = 2 FROM revenant.poll_plan('small', $member)", 'a member has some');

# What memory counts of a plan, what its rows say, and what those know that claimed.
sub exact
{
	my ($name) = @_;
	my $rows = sql("SELECT count(*), count(*) FILTER (WHERE state = 0), count(*) FILTER (WHERE state = 1), count(*) FILTER (WHERE state = 2), count(*) FILTER (WHERE state = 3) FROM revenant.split_state JOIN revenant.plan USING (plan_id) WHERE plan = 'big'");

	is(sql("SELECT planned, runnable, owned, done, quarantined FROM revenant.plan_progress('big')"), $rows, "$name: what is counted is what the rows say");
	is((split /\|/, $rows)[2], sql('SELECT count(*) FROM claims'), 'and what those know that claimed');
	return;
}

# ---- full

is(sql('CALL fill(500, NULL)'), '53200 out of shared memory for plans', 'when memory is full no more can be claimed');
sql('CALL fill(1, NULL)');
sqlstate('53200', "SELECT * FROM revenant.claim_splits('big', 'w')", 'not even one');
my $claimed = sql('SELECT count(*) FROM claims');
cmp_ok($claimed, '>', 3000, "$claimed are claimed");
cmp_ok($claimed, '<', $splits, 'which is not all');
exact('full');
sqlstate('53200', "SELECT revenant.join_plan('big', 'member')", 'nobody can join');
sqlstate('53200', "SELECT revenant.claim_splits('small', 'w')", 'nor claim of another plan');
is(sql("SELECT count(*) FROM revenant.members"), 1, 'who could not has not');
is(sql("SELECT count(*) FROM revenant.poll_plan('small', $member, (SELECT max(epoch) FROM revenant.splits WHERE plan = 'small'))"), 0, 'who had joined is a member');
is(sql("SELECT revenant.renew_splits('big', array_agg(split), array_agg(epoch)) FROM claims"), '', 'who has claimed keeps it');
my ($split, $epoch) = split /\|/, sql('SELECT split, epoch FROM claims ORDER BY epoch LIMIT 1');
sql("SELECT revenant.commit_split('big', '$split', $epoch)");
sql("BEGIN; SELECT revenant.fence_split('big', '$split', $epoch); SELECT revenant.commit_split('big', '$split', $epoch, '\"half\"', 1); COMMIT");
is(sql("SELECT progress FROM revenant.splits WHERE plan = 'big' AND split = '$split'"), '"half"', 'and goes on with it');
is(sql("SELECT count(*) FROM revenant.splits WHERE plan = 'big' AND attempts > 0"), 0, 'no attempt was used up');

# a member that is to have one more, which cannot be: it lives on
sql("SELECT revenant.commit_split('small', split, epoch, done => true) FROM (SELECT * FROM revenant.splits WHERE plan = 'small' AND worker = 'member' LIMIT 1) AS s");
sql('CALL fill(1, NULL)');
my $deadline = sql("SELECT deadline FROM revenant.members");
my $until = monotonic() + 3;
my $refused = 0;
while (monotonic() < $until && !$refused)
{
	my (undef, undef, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\nSELECT * FROM revenant.poll_plan('small', $member, 0)");
	$refused = $err =~ /53200/;
}
ok($refused, 'it is refused what it was to have');
cmp_ok(sql("SELECT deadline FROM revenant.members"), 'gt', $deadline, 'and is alive');
is(sql("SELECT owned FROM revenant.members"), 1, 'with what it has');

# ---- there is room again

sql("CREATE TABLE finished AS SELECT * FROM claims ORDER BY epoch LIMIT 1000");
sql("SELECT count(revenant.commit_split('big', split, epoch, done => true)) FROM finished; DELETE FROM claims WHERE epoch IN (SELECT epoch FROM finished)");
exact('some are done');
becomes("SELECT count(*) = 1 FROM revenant.claim_splits('small', 'w')", 'others can be claimed');
is(sql("SELECT revenant.leave_plan('big', revenant.join_plan('big', 'member'))"), 0, 'and joined');
sql('CALL fill(100, NULL)');
exact('full again');

# ---- all of it is given back at once, and nothing is forgotten

sql("SELECT count(revenant.release_split('big', split, epoch)) FROM claims; TRUNCATE claims");
exact('all is released');
my $left = sql("SELECT runnable FROM revenant.plan_progress('big')");
is($left, $splits - 1000, 'it can all be claimed');
sql("CREATE TABLE seen (split text);
	CREATE PROCEDURE go_through() LANGUAGE plpgsql AS \$\$
	BEGIN
		LOOP
			WITH c AS (SELECT * FROM revenant.claim_splits('big', 'w', 1000)), s AS (INSERT INTO public.seen SELECT split FROM c)
			INSERT INTO public.claims SELECT split, epoch FROM c;
			EXIT WHEN NOT FOUND;
			COMMIT;
			PERFORM revenant.commit_splits('big', (SELECT jsonb_agg(jsonb_build_object('split', split, 'epoch', epoch, 'done', true)) FROM public.claims));
			DELETE FROM public.claims;
			COMMIT;
		END LOOP;
	END \$\$;
	CALL go_through()");
is(sql('SELECT count(*), count(DISTINCT split) FROM seen'), "$left|$left", 'and was, each once');
exact('all is done');

# ---- a restart with too little memory for what is claimed

$node->append_conf('postgresql.conf', "revenant.shared_memory = '32 MB'");
$node->restart;
sql("SELECT revenant.reset_plan('big'); SELECT revenant.publish('big', revenant.lead_plan('big', 'p', '1 h'), (SELECT jsonb_agg(jsonb_build_object('id', 's' || i)) FROM generate_series(1, $splits) AS i))");
is(sql('CALL fill(1000, NULL)'), '', 'with more all can be claimed');
exact('all is claimed');
$node->append_conf('postgresql.conf', "revenant.shared_memory = '4 MB'");
$node->restart;
sqlstate('53200', "SELECT revenant.commit_split('big', split, epoch) FROM (SELECT * FROM claims LIMIT 1) AS c", 'a plan that memory has no room for cannot be used');
sqlstate('53200', "SELECT * FROM revenant.claim_splits('big', 'w')", 'nothing of it is given away');
sqlstate('53200', "SELECT revenant.join_plan('big', 'w')", 'nor can it be joined');
is(sql("SELECT count(*) FROM revenant.plan WHERE plan = 'big'"), 1, 'but it is there');
my $lines = sub { return scalar(() = slurp_file($node->logfile) =~ /out of shared memory for plans/g) };
my $before = $lines->();
becomes("SELECT clock_timestamp() > pg_postmaster_start_time() + interval '4 s'", 'some seconds later');
cmp_ok($lines->() - $before, '<', 10, 'the log is not full of it');
is(sql("SELECT count(*) FROM revenant.split_state AS s JOIN claims AS c USING (epoch) WHERE s.state = 1"), $splits, 'nothing has expired');
$node->append_conf('postgresql.conf', "revenant.shared_memory = '32 MB'");
$node->restart;
is(sql("SELECT revenant.renew_splits('big', array_agg(split), array_agg(epoch)) FROM claims"), '', 'with enough memory all is there');
exact('again');
becomes("SELECT count(*) = 2 FROM revenant.poll_plan('small', $member, 0) WHERE event = 'gained'", 'so is the member of the other plan, who has what it was to have');
is(sql("SELECT revenant.commit_splits('big', jsonb_agg(jsonb_build_object('split', split, 'epoch', epoch, 'done', true))) FROM (SELECT * FROM claims LIMIT 1000) AS c"), 1000, 'and goes on');

$node->stop;
done_testing();
