# Many pull splits of a great plan beside a transaction that has been open since its beginning, and autovacuum: each split is given to one of them, none is forgotten. Who
# waits for work is woken by it, and holds no snapshot.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use Client qw(answers monotonic);
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $splits = 200_000;
my $clients = 8;
my $dir = PostgreSQL::Test::Utils::tempdir;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "log_statement = none\nsynchronous_commit = off\nautovacuum_naptime = '1s'\nautovacuum_vacuum_cost_delay = 0\nmax_wal_size = '4GB'");
$node->start;
asks($node);
sql("CREATE EXTENSION revenant;
	CREATE TABLE effects (plan text, split text, epoch bigint, pid int) WITH (autovacuum_enabled = off);
	-- claims, and does what it has claimed in another transaction, until nothing is left
	CREATE PROCEDURE work(plan text, n int) LANGUAGE plpgsql AS \$\$
	DECLARE
		claims jsonb;
		left_over bigint := 0;
	BEGIN
		LOOP
			SELECT jsonb_agg(jsonb_build_object('split', c.split, 'epoch', c.epoch, 'done', true)) INTO claims FROM revenant.claim_splits(plan, pg_backend_pid()::text, n) AS c;
			COMMIT;
			IF claims IS NOT NULL THEN
				INSERT INTO public.effects SELECT work.plan, c ->> 'split', (c ->> 'epoch')::bigint, pg_backend_pid() FROM jsonb_array_elements(claims) AS c;
				PERFORM revenant.commit_splits(plan, claims);
				COMMIT;
			ELSE
				EXIT WHEN (SELECT state = 'complete' FROM revenant.plans AS p WHERE p.plan = work.plan);
				PERFORM pg_sleep(0.01);
			END IF;
		END LOOP;
	END \$\$");

# Makes a plan of so many splits, all published.
sub make
{
	my ($plan, $count) = @_;

	sql("SELECT revenant.create_plan('$plan', lease_ttl => '1 min');
		SELECT revenant.publish('$plan', revenant.lead_plan('$plan', 'test'), (SELECT jsonb_agg(jsonb_build_object('id', 's' || i, 'spec', i)) FROM generate_series(1, $count) AS i), final => true)");
	return;
}

sub pgbench
{
	my ($script, $transactions) = @_;
	my ($out, $err);

	append_to_file("$dir/script", '');
	open my $file, '>', "$dir/script" or die "open: $!";
	print $file $script;
	close $file;
	ok(IPC::Run::run([ 'pgbench', '-n', '-c', $clients, '-j', 2, '-t', $transactions, '-f', "$dir/script", $node->connstr('postgres') ],
			'<', \undef, '>', \$out, '2>', \$err, IPC::Run::timeout(4 * $PostgreSQL::Test::Utils::timeout_default)), 'no client failed') or diag($err);
	return;
}

# ---- many

my $old = Client->new($node);
$old->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current()');
make('great', $splits);
is(sql("SELECT planned, runnable FROM revenant.plan_progress('great')"), "$splits|$splits", 'a great plan');
pgbench("CALL work('great', 200);\n", 1);
is(sql("SELECT count(*), count(DISTINCT split) FROM effects WHERE plan = 'great'"), "$splits|$splits", 'each split is done once');
cmp_ok(sql("SELECT count(DISTINCT pid) FROM effects WHERE plan = 'great'"), '>', 1, 'by several clients');
is(sql("SELECT planned, runnable, owned, done, quarantined FROM revenant.plan_progress('great')"), "$splits|0|0|$splits|0", 'as it is counted');
is(sql("SELECT count(*) FROM revenant.split_state WHERE state = 2 AND attempts = 0"), $splits, 'and as the rows say');
is(sql('SELECT acquired_create, acquired_reclaimed, acquired_expired, finished FROM revenant.stat_plans'), "$splits|0|0|$splits", 'nothing was claimed a second time');
is($old->query('SELECT count(*) FROM revenant.split_state'), 0, 'the old transaction sees nothing of it');
becomes("SELECT autovacuum_count > 0 FROM pg_stat_all_tables WHERE relid = 'revenant.split_state'::regclass", 'autovacuum was there');

# ---- one at a time

make('small', $clients * 200);
pgbench("SELECT quote_literal(split) AS s, epoch AS e FROM revenant.claim_splits('small', 'w') \\gset\nSELECT revenant.commit_split('small', :s, :e, done => true);\n", 200);
is(sql("SELECT count(*) FROM revenant.splits WHERE plan = 'small' AND state = 'done'"), $clients * 200, 'each client always had one');

# ---- given back at random, and rolled back

make('again', 2000);
sql("SELECT revenant.alter_plan('again', '{\"max_attempts\": 1000}')");
sql(q{CREATE PROCEDURE spoil() LANGUAGE plpgsql AS $$
	DECLARE
		c record;
	BEGIN
		FOR c IN SELECT * FROM revenant.claim_splits('again', 'spoils', 5) LOOP
			IF random() < 0.3 THEN
				PERFORM revenant.fail_split('again', c.split, c.epoch, 'by chance');
			ELSIF random() < 0.5 THEN
				PERFORM revenant.release_split('again', c.split, c.epoch);
			ELSE
				PERFORM revenant.commit_split('again', c.split, c.epoch, done => true);
				INSERT INTO public.effects VALUES ('again', c.split, c.epoch, pg_backend_pid());
			END IF;
		END LOOP;
		IF random() < 0.3 THEN ROLLBACK; END IF;
	END $$});
pgbench("CALL spoil();\n", 150);
my $done = sql("SELECT count(*) FROM effects WHERE plan = 'again'");
is(sql("SELECT planned, runnable, owned, done, quarantined FROM revenant.plan_progress('again')"), '2000|' . (2000 - $done) . "|0|$done|0", 'what was rolled back, released or failed is not lost');
is(sql("SELECT count(DISTINCT split) FROM effects WHERE plan = 'again'"), $done, 'nothing was done twice');
sql("CREATE TABLE rest AS SELECT * FROM revenant.claim_splits('again', 'rest', 10000)");
is(sql('SELECT count(*), count(DISTINCT split) FROM rest'), (2000 - $done) . '|' . (2000 - $done), 'all of it can be claimed, once');

# ---- waiting

sql("SELECT revenant.create_plan('wait', lease_ttl => '1 min', max_attempts => 2)");
my $generation = sql("SELECT revenant.lead_plan('wait', 'test')");
my @waiters = map { Client->new($node) } 1 .. 3;
my $pids = join ', ', map { $_->{pid} } @waiters;

# All wait; then this happens; then they are answered soon, with what there is.
sub wakes
{
	my ($what, $statement, $available, $name) = @_;

	$_->send("CALL revenant.await_splits('wait', NULL, '2 min')") foreach @waiters;
	# the wait event has a name of its own in later versions
	ok($node->poll_query_until('postgres', "SELECT count(*) = 3 FROM pg_stat_activity WHERE pid IN ($pids) AND state = 'active' AND (wait_event = 'RevenantAwaitSplits' OR wait_event_type = 'Extension')"),
		"$what: they wait");
	is(sql("SELECT count(*) FROM pg_stat_activity WHERE pid IN ($pids) AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)"), 0, 'and hold no snapshot');
	sql($statement);
	my $begun = monotonic();
	ok(answers(monotonic() + 10, @waiters), 'they are woken') or return;
	my ($last) = sort { $b <=> $a } map { $_->{got} } @waiters;
	cmp_ok($last - $begun, '<', 2, 'soon');
	is(join(' ', map { $_->answer } @waiters), "$available $available $available", 'and told how many there are') if defined $available;
	return;
}

wakes('a publication', "SELECT revenant.publish('wait', $generation, '[{\"id\": \"a\"}, {\"id\": \"b\"}]')", 2);
is($waiters[0]->query("CALL revenant.await_splits('wait', NULL, '2 min')"), 2, 'who comes now need not wait');
sql("CREATE TABLE claims AS SELECT * FROM revenant.claim_splits('wait', 'w', 2)");
is($waiters[0]->query("CALL revenant.await_splits('wait', NULL, '0')"), 0, 'nor who will not');
my $begun = monotonic();
is($waiters[0]->query("CALL revenant.await_splits('wait', NULL, '300 ms')"), 0, 'who waits for so long is told that there is nothing');
cmp_ok(monotonic() - $begun, '>=', 0.3, 'then');
wakes('a release', "SELECT revenant.release_split('wait', 'a', epoch) FROM claims WHERE split = 'a'", 1);
sql("DELETE FROM claims WHERE split = 'a'; INSERT INTO claims SELECT * FROM revenant.claim_splits('wait', 'w')");
wakes('a failure', "SELECT revenant.fail_split('wait', 'b', epoch, 'no') FROM claims WHERE split = 'b'", 1);
sql("DELETE FROM claims WHERE split = 'b'; INSERT INTO claims SELECT * FROM revenant.claim_splits('wait', 'w')");
is(sql('SELECT count(*) FROM claims'), 2, 'all is claimed again');
wakes('a quarantine', "SELECT revenant.fail_split('wait', 'b', epoch, 'no') FROM claims WHERE split = 'b'; SELECT revenant.requeue_split('wait', 'b')", undef);
my $taker = Client->new($node);
is($taker->query("BEGIN; SELECT split FROM revenant.claim_splits('wait', 'taker', 10)"), 'b', 'somebody claims it, and does not commit');
$_->send("CALL revenant.await_splits('wait', NULL, '2 min')") foreach @waiters;
ok($node->poll_query_until('postgres', "SELECT count(*) = 3 FROM pg_stat_activity WHERE pid IN ($pids) AND state = 'active' AND (wait_event = 'RevenantAwaitSplits' OR wait_event_type = 'Extension')"),
	'which is nothing for the others');
$begun = monotonic();
$taker->query('ROLLBACK');
ok(answers(monotonic() + 10, @waiters) && $waiters[0]{got} - $begun < 2, 'until it is rolled back');
is(sql("SELECT split FROM revenant.claim_splits('wait', 'brief', 1, '3 s')"), 'b', 'it is claimed by somebody who says nothing more');
wakes('an expiry', "SELECT pg_sleep_until(deadline) FROM revenant.splits WHERE plan = 'wait' AND split = 'b'", 1);
is(sql("SELECT ended, attempts FROM revenant.splits WHERE plan = 'wait' AND split = 'b'"), 'expired|1', 'when it has expired');
sql("UPDATE claims SET epoch = c.epoch FROM revenant.claim_splits('wait', 'w') AS c WHERE claims.split = c.split");
wakes('the end', "SELECT revenant.publish('wait', $generation, '[]', final => true);
	SELECT revenant.commit_splits('wait', jsonb_agg(jsonb_build_object('split', split, 'epoch', epoch, 'done', true))) FROM claims", 0);
is(sql("SELECT state FROM revenant.plans WHERE plan = 'wait'"), 'complete', 'all is done');
sql("SELECT revenant.create_plan('dropped'); SELECT revenant.drop_plan('wait'); SELECT revenant.create_plan('wait')");
wakes('a plan that is dropped', "SELECT revenant.drop_plan('wait')", 0);

$old->query('ROLLBACK');
$node->stop;
done_testing();
