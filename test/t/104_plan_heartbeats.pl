# Signs of life of a thousand members with many splits each, and of who pulls, write no row, no WAL, and take no transaction number; and they are signs of life.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use Client qw(monotonic);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $members = 1000;
my $each = 30;
my $splits = $members * $each;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
# nobody else writes
$node->append_conf('postgresql.conf', "log_statement = none\nautovacuum = off\ncheckpoint_timeout = '1h'\nmax_wal_size = '4GB'\nwal_level = minimal\nmax_wal_senders = 0\nrevenant.shared_memory = '256 MB'\nsynchronous_commit = off");
$node->start;
asks($node);
sql("CREATE EXTENSION revenant;
	SELECT revenant.create_plan('big', max_in_flight => $each, lease_ttl => '10 min', replan_every => '1 h');
	SELECT revenant.create_plan('pulled');
	CREATE TABLE crew AS SELECT i, NULL::bigint AS member, 0::bigint AS seen FROM generate_series(1, $members) AS i;
	CREATE TABLE claims (plan text, split text, epoch bigint)");
my $generation = sql("SELECT revenant.lead_plan('big', 'planner', '10 min')");
sql("SELECT revenant.publish('big', $generation, (SELECT jsonb_agg(jsonb_build_object('id', 's' || i, 'spec', i)) FROM generate_series(1, $splits) AS i))");
sql("UPDATE crew SET member = revenant.join_plan('big', 'member ' || i)");
my $begun = monotonic();
while (sql("SELECT owned FROM revenant.plan_progress('big')") < $splits && monotonic() < $begun + 3 * $PostgreSQL::Test::Utils::timeout_default)
{
	sql("INSERT INTO claims SELECT 'big', p.split, p.epoch FROM crew AS c, LATERAL revenant.poll_plan('big', c.member) AS p WHERE p.event = 'gained' AND c.i BETWEEN 1 + 100 * $_ AND 100 + 100 * $_ ON CONFLICT DO NOTHING") foreach 0 .. $members / 100 - 1;
}
note sprintf 'all is gained after %.1f s', monotonic() - $begun;
is(sql("SELECT count(*), min(owned), max(owned) FROM revenant.members"), "$members|$each|$each", 'a thousand members have all their splits');
sql("SELECT revenant.publish('pulled', revenant.lead_plan('pulled', 'p'), (SELECT jsonb_agg(jsonb_build_object('id', 's' || i)) FROM generate_series(1, 200) AS i))");
sql("INSERT INTO claims SELECT 'pulled', split, epoch FROM revenant.claim_splits('pulled', 'w', 200)");
sql("SELECT revenant.commit_split('pulled', split, epoch, jsonb_build_object('at', split), 5) FROM claims WHERE plan = 'pulled'");
# each of them knows what it has
sql("UPDATE crew AS c SET seen = (SELECT max(p.seq) FROM revenant.poll_plan('big', c.member) AS p)");
sql('TRUNCATE claims');
sql("INSERT INTO claims SELECT plan, split, epoch FROM revenant.splits");
sql('VACUUM (FREEZE, ANALYZE) claims; VACUUM (FREEZE) crew; VACUUM (FREEZE) revenant.plan; VACUUM (FREEZE) revenant.member; VACUUM (FREEZE, ANALYZE) revenant.split; VACUUM (FREEZE, ANALYZE) revenant.split_state; CHECKPOINT');

my $client = Client->new($node);
my $poll = "SELECT count(p.seq) FROM crew AS c LEFT JOIN LATERAL revenant.poll_plan('big', c.member, c.seen) AS p ON true";
my $written = 'SELECT pg_current_wal_insert_lsn(), pg_snapshot_xmax(pg_current_snapshot())';

# This writes nothing, whatever else there is to be written; and answers this.
sub writes_nothing
{
	my ($statement, $expected, $name) = @_;
	my $answer;

	$client->query($statement);
	my $before = $client->query($written);
	$answer = $client->query($statement) foreach 1 .. 3;
	is($client->query($written), $before, "$name writes nothing");
	is($answer, $expected, 'and says what it is to say') if defined $expected;
	return;
}

my $of_pulled = "FROM claims WHERE plan = 'pulled'";
writes_nothing($poll, 0, 'a poll of each member');
writes_nothing("SELECT count(*) FROM (SELECT revenant.renew_splits('big', array_agg(split), array_agg(epoch)) FROM claims WHERE plan = 'big') AS r", 0, 'a renewal of all splits of the members');
writes_nothing("SELECT revenant.renew_splits('pulled', array_agg(split), array_agg(epoch)) $of_pulled", '', 'a renewal of splits that were pulled');
writes_nothing("SELECT count(revenant.commit_split('pulled', split, epoch)::text) $of_pulled", 200, 'a commit that says nothing');
writes_nothing("SELECT count(revenant.commit_split('pulled', split, epoch, jsonb_build_object('at', split), 5)::text) $of_pulled", 200, 'a commit of what is there already');
writes_nothing("SELECT revenant.commit_splits('pulled', jsonb_agg(jsonb_build_object('split', split, 'epoch', epoch))) $of_pulled", 200, 'many of them at once');
writes_nothing("SELECT count(revenant.commit_split('big', split, epoch)::text) FROM (SELECT * FROM claims WHERE plan = 'big' ORDER BY epoch LIMIT 200) AS c", 200, 'a commit of members');
writes_nothing("SELECT count(revenant.fence_split('pulled', split, epoch)::text) $of_pulled", 200, 'a fence');
writes_nothing("SELECT count(*) FROM revenant.claim_splits('pulled', 'w', 100)", 0, 'a claim of what is not there');
writes_nothing("CALL revenant.await_splits('pulled', NULL, '0')", 0, 'a look whether there is something');
writes_nothing("SELECT revenant.renew('plan/big', $generation) IS NOT NULL", 't', "a planner's renewal");
writes_nothing("SELECT revision FROM revenant.planner_state('big', $generation)", 1, 'a look at the state');
writes_nothing("SELECT owned FROM revenant.plan_progress('big')", $splits, 'a look at the progress');

# so that it is known that this would be seen
my $before = $client->query($written);
$client->query("SELECT revenant.commit_split('pulled', split, epoch, watermark => 6) FROM (SELECT * $of_pulled LIMIT 1) AS c");
isnt($client->query($written), $before, 'a commit that says something new does write');

# ---- they are signs of life

sub deadline { return $client->query("SELECT min(deadline) FROM $_[0]") }

foreach (
	[ 'revenant.members', $poll, 'a poll' ],
	[ "revenant.splits WHERE plan = 'pulled'", "SELECT revenant.renew_splits('pulled', array_agg(split), array_agg(epoch)) $of_pulled", 'a renewal' ],
	[ "revenant.splits WHERE plan = 'pulled'", "SELECT revenant.commit_split('pulled', split, epoch) $of_pulled", 'a commit' ],
	[ "revenant.splits WHERE plan = 'pulled'", "SELECT revenant.fence_split('pulled', split, epoch) $of_pulled", 'a fence' ],
	[ 'revenant.members', "SELECT revenant.commit_splits('big', jsonb_agg(jsonb_build_object('split', split, 'epoch', epoch))) FROM (SELECT DISTINCT ON (s.worker) s.split, s.epoch FROM revenant.splits AS s WHERE s.plan = 'big' ORDER BY s.worker) AS c", 'a commit of one split of a member' ])
{
	my ($of, $statement, $name) = @$_;
	my $deadline = deadline($of);

	$client->query($statement);
	cmp_ok(deadline($of), 'gt', $deadline, "$name moves the deadline on");
}
sql("SELECT revenant.create_plan('brief', lease_ttl => '2 s');
	SELECT revenant.publish('brief', revenant.lead_plan('brief', 'p'), '[{\"id\": \"a\"}, {\"id\": \"b\"}, {\"id\": \"c\"}, {\"id\": \"d\"}]')");
my $alive = sql("SELECT revenant.join_plan('brief', 'alive', 1)");
becomes("SELECT count(*) = 1 FROM revenant.poll_plan('brief', $alive)", 'a member has one');
my %epoch = map { split /\|/ } split /\n/, sql("SELECT split, epoch FROM revenant.claim_splits('brief', 'w', 10)");
my ($committed, $renewed, $silent) = sort keys %epoch;
my $until = monotonic() + $PostgreSQL::Test::Utils::timeout_default;
while (monotonic() < $until && $client->query("SELECT state FROM revenant.splits WHERE plan = 'brief' AND split = '$silent'") eq 'owned')
{
	$client->query("SELECT count(*) FROM revenant.poll_plan('brief', $alive)");
	$client->query("SELECT revenant.commit_split('brief', '$committed', $epoch{$committed})");
	$client->query("SELECT revenant.renew_splits('brief', ARRAY['$renewed'], ARRAY[$epoch{$renewed}]::bigint[])");
	select undef, undef, undef, 0.05;
}
is(sql("SELECT state, ended FROM revenant.splits WHERE plan = 'brief' AND split = '$silent'"), 'runnable|expired', 'what nothing was heard of for its ttl has expired');
is(sql("SELECT string_agg(worker, ' ' ORDER BY worker) FROM revenant.splits WHERE plan = 'brief' AND state = 'owned'"), 'alive w w', 'what was heard of has not');

$node->stop;
done_testing();
