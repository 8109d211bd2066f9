# A crash at any point leaves a plan that counts what is there: what was committed is neither lost nor done twice, who was alive goes on, and a claim
# that was lost fences its worker.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use Client;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $dir = PostgreSQL::Test::Utils::tempdir;
my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
# Nobody flushes by chance what a transaction did not flush.
$node->append_conf('postgresql.conf', "log_statement = none\nwal_writer_delay = '10s'\nautovacuum = off");
$node->start;
asks($node);
sql('CREATE EXTENSION revenant');

sub crash
{
	$node->stop('immediate');
	$node->start;
	return;
}

# The numbers of a plan: as memory counts them, and as its rows do.
sub counts
{
	my ($plan) = @_;

	return sql("SELECT planned, runnable, owned, done, quarantined FROM revenant.plan_progress('$plan')");
}

sub rows
{
	my ($plan) = @_;

	return sql("SELECT count(*), count(*) FILTER (WHERE state = 'runnable'), count(*) FILTER (WHERE state = 'owned'), count(*) FILTER (WHERE state = 'done'),"
		  . " count(*) FILTER (WHERE state = 'quarantined') FROM revenant.splits WHERE plan = '$plan'");
}

sub splits
{
	my ($from, $to) = @_;

	return "(SELECT jsonb_agg(jsonb_build_object('id', 's' || i, 'spec', i)) FROM generate_series($from, $to) AS i)";
}

# ---- published, and halfway

sql("SELECT revenant.create_plan('p', lease_ttl => '20 s')");
my $generation = sql("SELECT revenant.lead_plan('p', 'me')");
sql("SELECT revenant.publish('p', $generation, " . splits(1, 100) . ", '\"hundred\"')");
my $halfway = Client->new($node);
my $successor = Client->new($node);
is($halfway->query("BEGIN; SELECT created, planned FROM revenant.publish('p', $generation, " . splits(51, 150) . ", '\"more\"')"), '50|150', 'a publication that is not committed');
# what it wrote gets to the disk, so that it is there to be ignored
sql('CREATE TABLE flushed ()');
crash();
is(counts('p'), '100|100|0|0|0', 'what was published is counted after a crash, and the other is not');
is(rows('p'), counts('p'), 'as the rows say');
is(sql('SELECT count(*), count(DISTINCT number) FROM revenant.split'), '100|100', 'and no split is there that nobody counts');
is(sql("SELECT cursor, revision, final, planned FROM revenant.planner_state('p', $generation)"), '"hundred"|1|f|100', 'its planner still leads');
is(sql("SELECT revenant.lead_plan('p', 'other') IS NULL"), 't', 'and nobody else');
is(sql("SELECT outcome, created, planned, revision FROM revenant.publish('p', $generation, " . splits(51, 150) . ", '\"more\"')"), 'ok|50|150|2', 'it publishes the same again');
is(sql("SELECT outcome, created, planned, revision FROM revenant.publish('p', $generation, " . splits(51, 150) . ", '\"more\"')"), 'noop|0|150|2', 'and again, if the reply was lost');
is(sql("SELECT revenant.resign_plan('p', $generation)"), 't', 'it resigns');
$successor = Client->new($node);
my $lost = $successor->query("BEGIN; SELECT revenant.lead_plan('p', 'successor')");
sql('CREATE TABLE flushed_again ()');
crash();
sqlstate('RV001', "SELECT revenant.publish('p', $lost, '[{\"id\": \"x\"}]')", 'a generation that was not committed publishes nothing');
sqlstate('RV001', "SELECT revenant.publish('p', $generation, '[{\"id\": \"x\"}]')", 'nor does one that had resigned');
my $next = sql("SELECT revenant.lead_plan('p', 'next')");
cmp_ok($next, '>', $lost, 'the next one is greater than both');

# ---- claimed

sql("CREATE TABLE claims (what text, split text, epoch bigint)");
sub claim
{
	my ($what, $n, $plan) = @_;

	return sql("INSERT INTO claims SELECT '$what', split, epoch FROM revenant.claim_splits('" . ($plan // 'p') . "', '$what', $n, '300 s')");
}

# in the transaction that writes something else, which is flushed
claim('kept', 20);
# this one is not, and nothing after it; what is read is not written
my ($split, $epoch) = split /\|/, sql("SELECT split, epoch FROM revenant.claim_splits('p', 'lost')");
is(sql("SELECT state, worker FROM revenant.splits WHERE plan = 'p' AND split = '$split' AND epoch = $epoch"), 'owned|lost', 'a claim that nothing has flushed');
crash();
is(sql("SELECT state, epoch FROM revenant.splits WHERE plan = 'p' AND split = '$split'"), 'runnable|0', 'is lost by a crash');
sqlstate('RV001', "SELECT revenant.commit_split('p', '$split', $epoch, done => true)", 'and refused then');
sqlstate('RV001', "SELECT revenant.fence_split('p', '$split', $epoch)", 'whatever it is used for');
is(sql("SELECT revenant.renew_splits('p', ARRAY['$split'], ARRAY[$epoch]::bigint[])"), $split, 'it is lost for who renews it');
is(counts('p'), '150|130|20|0|0', 'the others are still owned');
is(rows('p'), counts('p'), 'as the rows say');
is(sql("SELECT revenant.renew_splits('p', array_agg(split), array_agg(epoch)) FROM claims"), '', 'and none of these is lost');
is(sql("SELECT count(*) FROM revenant.splits WHERE plan = 'p' AND state = 'owned' AND deadline BETWEEN now() + interval '15 s' AND now() + interval '20 s'"),
	20, 'they stand for lease_ttl from the start on');

# all that can be claimed can be, once
sql("INSERT INTO claims SELECT 'rest', split, epoch FROM revenant.claim_splits('p', 'rest', 1000)");
is(sql("SELECT count(*), count(DISTINCT split), count(DISTINCT epoch), bool_and(what = 'kept' OR epoch > $epoch) FROM claims"), '150|150|150|t', 'all the rest can be claimed, each once');
is(sql("SELECT count(*) FROM revenant.claim_splits('p', 'rest', 1000)"), 0, 'and nothing else');

# ---- committed, failed, released, quarantined

sql("SELECT revenant.alter_plan('p', '{\"max_attempts\": 2}')");
sql("SELECT revenant.commit_split('p', split, epoch, '\"half\"', 7) FROM claims WHERE what = 'kept'");
sql("SELECT revenant.commit_split('p', split, epoch, done => true) FROM claims WHERE split IN (SELECT split FROM claims WHERE what = 'rest' ORDER BY epoch LIMIT 60)");
sql("SELECT revenant.release_split('p', split, epoch) FROM claims WHERE split IN (SELECT split FROM claims WHERE what = 'rest' ORDER BY epoch OFFSET 60 LIMIT 10)");
sql("SELECT revenant.fail_split('p', split, epoch, 'it is broken') FROM claims WHERE split IN (SELECT split FROM claims WHERE what = 'rest' ORDER BY epoch OFFSET 70 LIMIT 10)");
sql("CREATE TABLE twice AS SELECT c.* FROM revenant.claim_splits('p', 'twice', 20) AS c");
is(sql("SELECT count(*), count(*) FILTER (WHERE attempt = 2) FROM twice"), '20|10', 'what was given back is claimed, first what was released');
sql("SELECT revenant.fail_split('p', split, epoch, 'it is still broken') FROM twice WHERE attempt = 2");
my $open = Client->new($node);
is($open->query("BEGIN; SELECT count(revenant.commit_split('p', split, epoch, done => true)::text) FROM claims WHERE what = 'kept'"), 20, 'some are done in a transaction that does not end');
sql('CREATE TABLE flushed_more ()');
crash();
is(counts('p'), '150|0|80|60|10', 'each is where it was');
is(rows('p'), counts('p'), 'as the rows say');
is(sql("SELECT count(*), min(watermark), min(progress::text) FROM revenant.splits WHERE plan = 'p' AND worker = 'kept'"), '20|7|"half"', 'with the progress that was committed');
is(sql("SELECT count(*) FROM revenant.splits WHERE plan = 'p' AND state = 'quarantined' AND jsonb_array_length(reasons) = 2"), 10, 'and the reasons');
is(sql("SELECT count(revenant.commit_split('p', split, epoch, done => true)::text) FROM claims WHERE what = 'kept'"), 20, 'who was at it goes on by his epochs');
is(sql("SELECT count(revenant.commit_split('p', c.split, c.epoch, done => true)::text) FROM claims AS c WHERE split IN (SELECT split FROM claims WHERE what = 'rest' ORDER BY epoch LIMIT 60)"),
	60, 'and says again what was done, if the reply was lost');
is(counts('p'), '150|0|60|80|10', 'which counts once');

# ---- nothing is heard of who had a claim

sql("SELECT revenant.create_plan('brief', lease_ttl => '3 s')");
sql("SELECT revenant.publish('brief', revenant.lead_plan('brief', 'me'), " . splits(1, 5) . ')');
claim('gone', 3, 'brief');
my $flushed = sql("SELECT split || '|' || epoch FROM claims WHERE what = 'gone' ORDER BY epoch LIMIT 1");
crash();
is(sql("SELECT count(*) FROM revenant.claim_splits('brief', 'other', 10, '1 h')"), 2, 'after a start what is claimed is given to nobody');
becomes("SELECT count(*) = 3 FROM revenant.splits WHERE plan = 'brief' AND state = 'runnable' AND attempts = 1", 'until its time is over');
is(sql("SELECT count(*) FROM revenant.splits WHERE plan = 'brief' AND ended = 'expired' AND updated_at < pg_postmaster_start_time() + interval '3 s'"), 0, 'which is lease_ttl from the start on, though the claim was for longer');
($split, $epoch) = split /\|/, $flushed;
sqlstate('RV002', "SELECT revenant.commit_split('brief', '$split', $epoch)", 'then it is too late');
is(sql("SELECT count(*) FROM revenant.claim_splits('brief', 'other', 10, '1 h') AS c JOIN claims AS l ON l.what = 'gone' AND l.split = c.split WHERE c.epoch > l.epoch AND c.attempt = 2"),
	3, 'and others do it');
sqlstate('RV001', "SELECT revenant.commit_split('brief', '$split', $epoch)", 'with newer epochs');

# ---- members

sql("SELECT revenant.create_plan('m', lease_ttl => '20 s', rebalance_delay => '0')");
sql("SELECT revenant.publish('m', revenant.lead_plan('m', 'me'), " . splits(1, 6) . ')');
my $one = sql("SELECT revenant.join_plan('m', 'one', 3)");
my $two = sql("SELECT revenant.join_plan('m', 'two', 3, '2 s')");
my %gained;
foreach my $member ($one, $two)
{
	ok($node->poll_query_until('postgres', "SELECT count(*) = 3 FROM revenant.poll_plan('m', $member) WHERE event = 'gained'"), 'a member gains its splits');
	$gained{$member} = sql("SELECT seq, event, split, epoch FROM revenant.poll_plan('m', $member) ORDER BY seq");
}
my $seen = sql("SELECT max(seq) FROM revenant.poll_plan('m', $one)");
is(sql("SELECT count(*) FROM revenant.poll_plan('m', $one, $seen)"), 0, 'one of them says that it knows');
my $uncommitted = Client->new($node);
my $third = $uncommitted->query("BEGIN; SELECT revenant.join_plan('m', 'three')");
sql('CREATE TABLE flushed_for_members ()');
crash();
is(sql("SELECT count(*) FROM revenant.poll_plan('m', $one, $seen)"), 0, 'after a crash it is told nothing that it knows');
is(sql("SELECT seq, event, split, epoch FROM revenant.poll_plan('m', $two) ORDER BY seq"), $gained{$two}, 'who had not said so is told again, the same');
sqlstate('RV001', "SELECT * FROM revenant.poll_plan('m', $third)", 'who had not joined is no member');
is(sql("SELECT string_agg(worker || ' ' || owned || ' ' || state, ', ' ORDER BY worker) FROM revenant.members WHERE plan = 'm'"), 'one 3 live, two 3 live', 'both own what they had');
is(sql("SELECT count(*) FROM revenant.members WHERE plan = 'm' AND deadline > pg_postmaster_start_time() + interval '15 s'"), 2, 'and stand for lease_ttl, though one asked for less');
($split, $epoch) = (split /\|/, (split /\n/, $gained{$one})[0])[2, 3];
sql("SELECT revenant.commit_split('m', '$split', $epoch, done => true)");
is(sql("SELECT acquired_reassigned + lost_fenced + lost_expired + revocations_requested FROM revenant.stat_plans WHERE plan = 'm'"), 0, 'nothing moves');

# ---- all is done, and nobody has said so

sql("SELECT revenant.create_plan('v', lease_ttl => '20 s')");
sql("SELECT revenant.publish('v', revenant.lead_plan('v', 'me'), " . splits(1, 2) . ', final => true)');
my $member = sql("SELECT revenant.join_plan('v', 'watches', 1)");
becomes("SELECT count(*) = 1 FROM revenant.poll_plan('v', $member)", 'a member has one');
my $other = sql("SELECT revenant.join_plan('v', 'watches, too', 1)");
becomes("SELECT count(*) = 1 FROM revenant.poll_plan('v', $other)", 'another one the other');
# who reaches the verdict waits for nobody who has the plan's row
my $lock = Client->new($node);
$lock->query("BEGIN; SELECT FROM revenant.plan WHERE plan = 'v' FOR UPDATE");
sql("SELECT revenant.commit_split('v', p.split, p.epoch, done => true) FROM revenant.poll_plan('v', $_) AS p") foreach $member, $other;
is(counts('v'), '2|0|0|2|0', 'all is done');
is(sql("SELECT state FROM revenant.plans WHERE plan = 'v'"), 'final', 'and no verdict yet');
is(sql("SELECT count(*) FROM revenant.poll_plan('v', $member) WHERE event = 'complete'"), 0, 'so nobody is told');
crash();
becomes("SELECT state = 'complete' FROM revenant.plans WHERE plan = 'v'", 'it is reached after the start');
my $told = sql("SELECT seq, detail FROM revenant.poll_plan('v', $member) WHERE event = 'complete'");
like($told, qr/^\d+\|\{"completed": 2\}$/, 'a member is told');
my ($seq) = split /\|/, $told;
is(sql("SELECT seq FROM revenant.poll_plan('v', $other)"), $seq, 'the other one, too, and nothing else');
is(sql("SELECT count(*) FROM revenant.poll_plan('v', $member, $seq)"), 0, 'once');
is(sql("SELECT count(*) FROM revenant.events() WHERE event = 'plan.complete' AND subject = 'v'"), 1, 'so is who follows events');
crash();
is(sql("SELECT count(*) FROM revenant.poll_plan('v', $member, $seq)"), 0, 'not again after another crash');
is(sql("SELECT seq FROM revenant.poll_plan('v', $other)"), $seq, 'but who has not said that it knows');
is(sql("SELECT verdict_seq FROM revenant.plan WHERE plan = 'v'"), $seq, 'it is the same verdict');
is(scalar(() = slurp_file($node->logfile) =~ /plan\.complete|plan "v" is complete/g), 1, 'told to the log once');

# ---- at any moment

sql("CREATE TABLE effects (split text, epoch bigint);
	SELECT revenant.create_plan('many', lease_ttl => '1 s', max_attempts => 1000);
	CREATE PROCEDURE work(worker text) LANGUAGE plpgsql AS \$\$
	DECLARE
		c record;
		generation bigint;
	BEGIN
		LOOP
			IF random() < 0.05 THEN
				generation := revenant.lead_plan('many', worker, '300 ms');
				IF generation IS NOT NULL THEN
					COMMIT;
					PERFORM revenant.publish('many', generation, (SELECT jsonb_agg(jsonb_build_object('id', worker || ' ' || generation || ' ' || i)) FROM generate_series(1, 20) AS i));
					COMMIT;
					RAISE INFO 'published %', generation;
					PERFORM revenant.resign_plan('many', generation);
				END IF;
				COMMIT;
			END IF;
			FOR c IN SELECT * FROM revenant.claim_splits('many', worker, 3) LOOP
				COMMIT;
				CASE (random() * 5)::int
					WHEN 0 THEN PERFORM revenant.fail_split('many', c.split, c.epoch, 'by chance');
					WHEN 1 THEN PERFORM revenant.release_split('many', c.split, c.epoch);
					ELSE
						INSERT INTO public.effects VALUES (c.split, c.epoch);
						PERFORM revenant.commit_split('many', c.split, c.epoch, done => true);
						COMMIT;
						RAISE INFO 'done % %', c.epoch, c.split;
				END CASE;
				COMMIT;
			END LOOP;
		END LOOP;
	END \$\$");
sql("SELECT revenant.publish('many', g, " . splits(1, 300) . "), revenant.resign_plan('many', g) FROM revenant.lead_plan('many', 'first') AS g");

# A psql that works until the server is gone; what it says of it is in a file.
sub start_worker
{
	my ($number, $file) = @_;

	return IPC::Run::start([ 'psql', '-X', '-q', '-d', $node->connstr('postgres'), '-c', "CALL work('worker $number')" ], '<', \undef, '>', '/dev/null', '2>', $file);
}

my $before = 0;
foreach my $round (1 .. 3)
{
	my @running = map { start_worker($_, "$dir/round$round.$_") } 1 .. 6;
	$node->poll_query_until('postgres', "SELECT count(*) > $before + 150 FROM effects") or die 'nothing is done';
	crash();
	$_->finish foreach @running;

	my @said = map { slurp_file("$dir/round$round.$_") =~ /^INFO:  done (.*)$/mg } 1 .. 6;
	cmp_ok(scalar(@said), '>', 50, "round $round: much was done");
	is(sql("SELECT count(*) FROM unnest(ARRAY['" . join("', '", @said) . "']) AS x LEFT JOIN revenant.splits AS s ON s.plan = 'many' AND s.state = 'done' AND s.epoch || ' ' || s.split = x WHERE s.split IS NULL"),
		0, 'nothing that was done is lost');
	is(sql("SELECT count(*), count(DISTINCT split) FROM effects"), sql("SELECT count(*), count(*) FROM revenant.splits WHERE plan = 'many' AND state = 'done'"), 'and each is done once');
	is(sql("SELECT count(*) FROM effects AS e JOIN revenant.splits AS s USING (split, epoch) WHERE s.plan = 'many' AND s.state = 'done'"), sql('SELECT count(*) FROM effects'), 'by its last claim');
	is(sql("SELECT planned FROM revenant.plans WHERE plan = 'many'"), sql("SELECT count(*) FROM revenant.splits WHERE plan = 'many'"), 'what is planned is exact');
	my @generations = map { slurp_file("$dir/round$round.$_") =~ /^INFO:  published (\d+)$/mg } 1 .. 6;
	is(sql('SELECT count(*) FROM revenant.splits WHERE plan = \'many\' AND generation IN (' . join(', ', 0, @generations) . ')'), 20 * @generations, 'as a whole what was published is there');
	is(sql("SELECT count(*) FROM (SELECT FROM revenant.splits WHERE plan = 'many' AND split LIKE 'worker%' GROUP BY generation HAVING count(*) <> 20) AS t"), 0, 'or nothing of it');
	# nothing changes while it is looked at: what is owned is about to expire
	becomes("SELECT count(*) = 0 FROM revenant.splits WHERE plan = 'many' AND state = 'owned'", 'nobody owns anything after lease_ttl');
	is(counts('many'), rows('many'), 'the counts are those of the rows');
	$before = sql('SELECT count(*) FROM effects');
}
my $left = sql("SELECT runnable FROM revenant.plan_progress('many')");
sql("CREATE TABLE rest AS SELECT * FROM revenant.claim_splits('many', 'the last', 10000, '10 min')");
is(sql("SELECT count(*), count(DISTINCT split) FROM rest"), "$left|$left", 'what is left can be claimed, each once');
sql("SELECT revenant.commit_split('many', split, epoch, done => true) FROM rest");
is(sql("SELECT runnable + owned + quarantined FROM revenant.plan_progress('many')"), 0, 'and then all is done');

$node->stop;
done_testing();
