# That a plan is complete, or stalled, is found once, by whoever finishes last, and told once to each member and to who follows events; also if many finish at the same
# time, and again after a requeue. What is said of the rate and the time left is about right.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use Client qw(answers monotonic);
use Crew;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $members = 20;
my $workers = 8;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', 'log_statement = none');
$node->start;
asks($node);
sql("CREATE EXTENSION revenant;
	CREATE TABLE crew (plan text, member bigint, seen bigint DEFAULT 0);
	CREATE TABLE told (plan text, member bigint, seq bigint, event text, detail jsonb);
	-- each member polls, and says the next time that it knows
	CREATE PROCEDURE poll_all(name text) LANGUAGE plpgsql AS \$\$
	DECLARE
		c record;
		p record;
	BEGIN
		FOR c IN SELECT * FROM public.crew WHERE plan = name LOOP
			FOR p IN SELECT * FROM revenant.poll_plan(name, c.member, c.seen) LOOP
				INSERT INTO public.told VALUES (name, c.member, p.seq, p.event, p.detail);
				UPDATE public.crew SET seen = greatest(seen, p.seq) WHERE member = c.member;
			END LOOP;
			COMMIT;
		END LOOP;
	END \$\$");

sub publish
{
	my ($plan, $from, $to, $final) = @_;

	return sql("SELECT revenant.publish('$plan', g, (SELECT jsonb_agg(jsonb_build_object('id', 's' || i)) FROM generate_series($from, $to) AS i), final => $final), revenant.resign_plan('$plan', g) FROM revenant.lead_plan('$plan', 'p') AS g");
}

# What each member was told of the end, and how many were.
sub told
{
	my ($plan) = @_;

	sql("CALL poll_all('$plan')") foreach 1 .. 2;
	return sql("SELECT string_agg(n || ' x ' || event || ' ' || detail, ', ' ORDER BY seq) FROM (SELECT seq, event, detail, count(*) AS n FROM told WHERE plan = '$plan' AND event IN ('complete', 'stalled') GROUP BY seq, event, detail) AS t");
}

sub events
{
	my ($plan) = @_;

	return sql("SELECT string_agg(event || ' ' || detail, ', ' ORDER BY seq) FROM revenant.events() WHERE subject = '$plan' AND event IN ('plan.complete', 'plan.stalled')");
}

# ---- many finish at the same time, again and again

foreach my $round (1 .. 5)
{
	my $plan = "round $round";

	sql("SELECT revenant.create_plan('$plan')");
	sql("INSERT INTO crew SELECT '$plan', revenant.join_plan('$plan', 'member ' || i, 1) FROM generate_series(1, $members) AS i");
	publish($plan, 1, $workers, 'true');
	my @clients = map { Client->new($node) } 1 .. $workers;
	foreach my $client (@clients)
	{
		my $claim = $client->query("SELECT quote_literal(split) || ', ' || epoch FROM revenant.claim_splits('$plan', 'w')");

		$client->query("BEGIN; SELECT revenant.commit_split('$plan', $claim, done => true)") if $claim;
		$client->{claim} = $claim;
	}
	is(scalar(grep { $_->{claim} } @clients), $workers, "$plan: each has finished one, and none has committed");
	is(sql("SELECT done FROM revenant.plan_progress('$plan')"), 0, 'none is done');
	is(sql("SELECT state FROM revenant.plans WHERE plan = '$plan'"), 'final', 'there is no verdict');
	# half of them as one, the others as they come
	$_->send('COMMIT') foreach @clients;
	ok(answers(monotonic() + 10, @clients), 'they commit');
	becomes("SELECT state = 'complete' FROM revenant.plans WHERE plan = '$plan'", 'it is complete');
	is(told($plan), "$members x complete {\"completed\": $workers}", 'each member is told, once');
	is(events($plan), "plan.complete {\"completed\": \"$workers\"}", 'and who follows events');
	$_->quit foreach @clients;
}

# ---- stalled, requeued, and so on

sql("SELECT revenant.create_plan('stalls', max_attempts => 1)");
sql("INSERT INTO crew SELECT 'stalls', revenant.join_plan('stalls', 'member ' || i, 1) FROM generate_series(1, $members) AS i");
publish('stalls', 1, 60, 'true');
# members have some of them, and the others are pulled
sql("CALL poll_all('stalls')");
my @said;
foreach my $bad (7, 3, 1, 0)
{
	my @crew = map {
		my $name = "worker $_";
		Crew->hire(
			$node,
			sub {
				my ($worker) = @_;

				until ($worker->try("SELECT state IN ('complete', 'stalled') FROM revenant.plans WHERE plan = 'stalls'") eq 't')
				{
					my $claims = $worker->try("SELECT quote_literal(split) || ', ' || epoch, ltrim(split, 's')::int FROM revenant.claim_splits('stalls', '$name')") // die $worker->{failure};

					$worker->try("CALL revenant.await_splits('stalls', NULL, '50 ms')") unless $claims;
					foreach (split /\n/, $claims)
					{
						my ($claim, $n) = split /\|/;
						$worker->try("SELECT revenant." . ($n > $bad ? "commit_split('stalls', $claim, done => true)" : "fail_split('stalls', $claim, 'bad')")) // die $worker->{failure};
					}
				}
			})
	} 1 .. $workers;
	# what members have they do, too
	my $until = monotonic() + $PostgreSQL::Test::Utils::timeout_default;
	my $over = 0;
	while (!$over && monotonic() < $until)
	{
		sql("CALL poll_all('stalls')");
		sql("SELECT CASE WHEN ltrim(split, 's')::int > $bad THEN revenant.commit_split('stalls', split, epoch, done => true) ELSE revenant.fail_split('stalls', split, epoch, 'bad') END
			FROM revenant.splits WHERE plan = 'stalls' AND state = 'owned' AND worker LIKE 'member%'");
		$over = sql("SELECT state IN ('complete', 'stalled') FROM revenant.plans WHERE plan = 'stalls'") eq 't';
	}
	is(scalar(grep { $_->finish } @crew), $workers, 'all end') or diag(map { join "\n", $_->lines } @crew);
	push @said, $bad ? "stalled {\"completed\": " . (60 - $bad) . ", \"quarantined\": $bad}" : 'complete {"completed": 60}';
	is(told('stalls'), join(', ', map { "$members x $_" } @said), "with $bad bad ones: each member is told, once");
	is(events('stalls'), join(', ', map { 'plan.' . s/: (\d+)/: "$1"/gr } @said), 'and who follows events');
	is(sql("SELECT done, quarantined, runnable, owned FROM revenant.plan_progress('stalls')"), (60 - $bad) . "|$bad|0|0", 'as it is');
	if ($bad)
	{
		is(sql("SELECT count(*) FROM revenant.events() WHERE subject = 'stalls' AND event = 'plan.quarantined'"), { 7 => 7, 3 => 10, 1 => 11 }->{$bad}, 'so is each that is given up');
		sql("SELECT revenant.requeue_split('stalls', split) FROM revenant.splits WHERE plan = 'stalls' AND state = 'quarantined'");
		isnt(sql("SELECT state FROM revenant.plans WHERE plan = 'stalls'"), 'stalled', 'what is requeued makes it go on');
	}
}
sqlstate('55000', "SELECT revenant.requeue_split('stalls', 's1')", 'what is done cannot be requeued');

# a member that comes later is told, too, and a verdict stands
my $late = sql("SELECT revenant.join_plan('stalls', 'late')");
is(sql("SELECT event FROM revenant.poll_plan('stalls', $late)"), 'complete', 'who joins late is told how it ended');

# ---- several in one transaction of the supervisor's

sql("SELECT revenant.create_plan('silent', max_attempts => 1); INSERT INTO crew SELECT 'silent', revenant.join_plan('silent', 'member', 1)");
publish('silent', 1, 5, 'true');
sql("CALL poll_all('silent')") while sql("SELECT owned FROM revenant.plan_progress('silent')") eq '0';
is(sql("SELECT count(*) FROM revenant.claim_splits('silent', 'w', 5, '300 ms')"), 4, 'some are claimed, and never heard of');
sql("SELECT revenant.commit_split('silent', split, epoch, done => true) FROM revenant.splits WHERE plan = 'silent' AND worker = 'member'");
becomes("SELECT state = 'stalled' FROM revenant.plans WHERE plan = 'silent'", 'so the plan is stalled');
is(told('silent'), '1 x stalled {"completed": 1, "quarantined": 4}', 'as its member is told');
is(sql("SELECT count(*), count(DISTINCT detail ->> 'split') FROM revenant.events() WHERE subject = 'silent' AND event = 'plan.quarantined'"), '4|4', 'each of them is an event');

# ---- purged

is(sql("SELECT revenant.purge_plan('stalls', now() - interval '1 h')"), 0, 'nothing is so old');
is(sql("SELECT revenant.purge_plan('stalls', clock_timestamp())"), 60, 'all of it is purged');
is(sql("SELECT planned, runnable, owned, done, quarantined FROM revenant.plan_progress('stalls')"), '0|0|0|0|0', 'and not counted any more');
is(sql("SELECT count(*) FROM revenant.split AS s JOIN revenant.plan AS p USING (plan_id) WHERE p.plan = 'stalls'"), 0, 'nor there');
is(told('stalls'), join(', ', map { "$members x $_" } @said), 'which is no news');
sql("SELECT revenant.create_plan('grows')");
publish('grows', 1, 10, 'false');
sql("SELECT revenant.commit_split('grows', split, epoch, done => true) FROM revenant.claim_splits('grows', 'w', 6)");
my $claim = sql("SELECT quote_literal(split) || ', ' || epoch FROM revenant.claim_splits('grows', 'w')");
is(sql("SELECT revenant.purge_plan('grows', clock_timestamp())"), 6, 'of one that goes on what is done is purged');
is(sql("SELECT planned, runnable, owned, done, quarantined FROM revenant.plan_progress('grows')"), '4|3|1|0|0', 'and the rest stays');
publish('grows', 1, 12, 'true');
is(sql("SELECT planned FROM revenant.plans WHERE plan = 'grows'"), 12, 'what is published again is there again');
sql("SELECT revenant.commit_split('grows', $claim, done => true)");
sql("SELECT revenant.commit_split('grows', split, epoch, done => true) FROM revenant.claim_splits('grows', 'w', 100)");
becomes("SELECT state = 'complete' FROM revenant.plans WHERE plan = 'grows'", 'to its end');
is(events('grows'), 'plan.complete {"completed": "12"}', 'which is told');

# ---- nothing to do at all

sql("SELECT revenant.create_plan('empty')");
sql("INSERT INTO crew SELECT 'empty', revenant.join_plan('empty', 'member ' || i, 1) FROM generate_series(1, $members) AS i");
sql("SELECT revenant.publish('empty', revenant.lead_plan('empty', 'p'), '[]', final => true)");
becomes("SELECT state = 'complete' FROM revenant.plans WHERE plan = 'empty'", 'one without any split is complete');
is(told('empty'), "$members x complete {\"completed\": 0}", 'as each is told');

# ---- how fast it goes

sql("SELECT revenant.create_plan('watched')");
publish('watched', 1, 1000, 'true');
is(sql("SELECT rate, eta IS NULL FROM revenant.plan_progress('watched')"), '0|t', 'nobody knows how long it takes as long as nothing is done');
my $watcher = Client->new($node);
my $begun = monotonic();
my $done = 0;
my (@rates, @etas);
while (monotonic() - $begun < 5)
{
	# about a hundred in a second
	my $due = int((monotonic() - $begun) * 100) - $done;

	$done += $watcher->query("SELECT count(revenant.commit_split('watched', split, epoch, done => true)::text) FROM revenant.claim_splits('watched', 'w', $due)") if $due > 0;
	if (monotonic() - $begun > 2 + @rates)
	{
		my ($rate, $eta) = split /\|/, $watcher->query("SELECT rate, extract(epoch FROM eta) FROM revenant.plan_progress('watched')");
		my $took = monotonic() - $begun;

		push @rates, $rate * $took / $done;
		push @etas, $eta / ((1000 - $done) / ($done / $took));
	}
	select undef, undef, undef, 0.02;
}
cmp_ok(scalar(@rates), '>=', 2, 'watched for some seconds');
is(scalar(grep { $_ > 0.6 && $_ < 1.6 } @rates), @rates, 'the rate is what was done in that time') or diag("@rates");
is(scalar(grep { $_ > 0.6 && $_ < 1.6 } @etas), @etas, 'and the rest will take as long as it says') or diag("@etas");
sql("SELECT revenant.commit_split('watched', split, epoch, done => true) FROM revenant.claim_splits('watched', 'w', 1000)");
is(sql("SELECT eta, done FROM revenant.plan_progress('watched')"), '00:00:00|1000', 'in the end nothing is left to wait for');

$node->stop;
done_testing();
