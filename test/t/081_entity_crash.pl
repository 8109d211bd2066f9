# A crash takes no reply that was committed, though synchronous_commit is off, gives no version to two states, and leaves receipts that tell the truth.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $sessions = 8;
my $rounds = 4;
my $dir = PostgreSQL::Test::Utils::tempdir;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
# Nobody flushes by chance what a call did not flush.
$node->append_conf('postgresql.conf', "log_statement = none\nwal_writer_delay = '10s'\nsynchronous_commit = off\nautovacuum = off");
$node->start;
asks($node);
sql(q{
	CREATE EXTENSION revenant;
	CREATE TABLE noted (id text, n bigint);
	CREATE FUNCTION handler(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE plpgsql AS $$
	BEGIN
		IF message = '"note"' THEN
			-- writes elsewhere, and leaves its state as it is
			INSERT INTO public.noted VALUES (id, txid_current());
			RETURN ROW(to_jsonb(txid_current()), NULL, NULL)::revenant.reply;
		END IF;
		RETURN ROW(to_jsonb(txid_current()), jsonb_build_object('n', coalesce((state ->> 'n')::int, 0) + 1, 'by', txid_current()), NULL)::revenant.reply;
	END $$;
	SELECT revenant.create_snapshot_table('entities', -1);
	SELECT revenant.create_entity_type('e', 'entities', 'handler');
	SELECT revenant.create_snapshot_table('plain');
	SELECT revenant.create_entity_type('p', 'plain', 'handler');
});

# A psql that runs a script of its own until the server is gone; what it prints is in $dir/$name. Each line is printed after its commit.
sub start_session
{
	my ($number) = @_;

	my @command = ('psql', '-X', '-q', '-A', '-t', '-F', ' ', '-v', 'ON_ERROR_STOP=1', '-v', "session=$number", '-f', "$dir/calls.sql", '-d', $node->connstr('postgres'));
	return IPC::Run::start(\@command, '<', \undef, '>', "$dir/s$number", '2>', "$dir/s$number.err");
}

my $calls = '';
foreach my $kind ('e', 'p')
{
	$calls .= "SELECT 'call', '$kind', 'x' || :session % 3, r.version, r.xid, r.lsn, r.timeline, c FROM revenant.call('$kind', 'x' || :session % 3, '1') AS c, LATERAL (SELECT * FROM revenant.receipt() WHERE c IS NOT NULL) AS r;\n";
	$calls .= "SELECT 'note', '$kind', 'x' || :session % 3, r.version, r.xid, r.lsn, r.timeline, c FROM revenant.call('$kind', 'x' || :session % 3, '\"note\"') AS c, LATERAL (SELECT * FROM revenant.receipt() WHERE c IS NOT NULL) AS r;\n";
	$calls .= "SELECT 'new', '$kind', 'n' || c.xid, r.version, r.xid, r.lsn, r.timeline, c.c FROM (SELECT txid_current() AS xid, revenant.call('$kind', 'n' || txid_current(), '1') AS c OFFSET 0) AS c, LATERAL (SELECT * FROM revenant.receipt() WHERE c.c IS NOT NULL) AS r;\n";
}
append_to_file("$dir/calls.sql", $calls x 5000);

# $kind $id => version => the transaction that was told of it
my %told;
my %fate;
my $total = 0;
foreach my $round (1 .. $rounds)
{
	my $before = sql('SELECT coalesce(sum(version), 0) FROM entities');
	my @running = map { start_session($_) } 1 .. $sessions;
	$node->poll_query_until('postgres', "SELECT sum(version) > $before + 300 FROM entities") or die 'the calls do nothing';
	$node->stop('immediate');
	$_->finish foreach @running;
	$node->start;

	my ($lines, $twice) = (0, 0);
	my (@lost, @noted);
	foreach my $session (1 .. $sessions)
	{
		foreach (slurp_file("$dir/s$session") =~ /^(.*)\n/mg)
		{
			my ($what, $kind, $id, $version, $xid, $lsn, $timeline, $reply) = split / /;
			$lines++;
			die "a receipt is of another transaction: $_" if $xid ne $reply;
			$fate{"$xid $lsn $timeline"} = 'committed';
			if ($what eq 'note')
			{
				push @noted, $xid;
				next;
			}
			$twice++ if exists $told{"$kind $id"}{$version};
			$told{"$kind $id"}{$version} = $xid;
		}
	}
	$total += $lines;
	cmp_ok($lines, '>', 200, "round $round: there were replies");
	is($twice, 0, 'no version was given twice');

	# All that was told is there, by that transaction.
	my $values = join ',', map { my ($e) = $_; my ($k, $i) = split / /, $e; map { "('$k', '$i', $_, '$told{$e}{$_}')" } keys %{ $told{$e} } } sort keys %told;
	is( sql("WITH told (kind, id, version, xid) AS (VALUES $values)
		SELECT count(*) FROM told AS t WHERE t.kind = 'e' AND NOT EXISTS (
			SELECT FROM (SELECT id, version, state FROM entities UNION ALL SELECT id, version, state FROM entities_history) AS h
			WHERE h.id = t.id AND h.version = t.version AND h.state ->> 'by' = t.xid)"),
		'0', 'each state that was told is kept, with a history');
	is( sql("WITH told (kind, id, version, xid) AS (VALUES $values), newest AS (SELECT id, max(version) AS version FROM told WHERE kind = 'p' GROUP BY id)
		SELECT count(*) FROM newest AS n LEFT JOIN plain AS p USING (id) WHERE p.version IS NULL OR p.version < n.version OR (p.state ->> 'n')::int <> p.version"),
		'0', 'and without one, no entity is behind what was told');
	is(sql('SELECT count(*) FROM unnest(\'{' . join(',', @noted) . "}'::bigint[]) AS x WHERE NOT EXISTS (SELECT FROM noted AS n WHERE n.n = x)"),
		'0', 'what a handler wrote elsewhere is there, too');
	is( sql("SELECT count(*) FROM (SELECT id, count(*) AS n, max(version) AS newest FROM (SELECT id, version FROM entities UNION ALL SELECT id, version FROM entities_history) AS h GROUP BY id) AS c WHERE c.n <> c.newest"),
		'0', 'versions have no gap');
	my $receipts = join ',', map { my ($x, $l, $t) = split / /; "('$x'::xid8, '$l'::pg_lsn, $t)" } keys %fate;
	is(sql("SELECT string_agg(DISTINCT revenant.receipt_status(xid, lsn, timeline), ' ') FROM (VALUES $receipts) AS r (xid, lsn, timeline)"),
		'committed', 'their receipts say so');
}
note "$total replies";

# A transaction that was open at the crash
my ($in, $out, $err) = ('', '', '');
my $timer = IPC::Run::timer($PostgreSQL::Test::Utils::timeout_default);
my $psql = IPC::Run::start([ 'psql', '-X', '-q', '-A', '-t', '-f', '-', '-d', $node->connstr('postgres') ], '<', \$in, '>', \$out, '2>', \$err, $timer);
$in .= "BEGIN; SELECT revenant.call('p', 'open', '1', request_id => '00000000-0000-0000-0000-000000000001'); SELECT 'receipt ' || xid || ' ' || lsn || ' ' || timeline FROM revenant.receipt();\n";
ok(pump_until($psql, $timer, \$out, qr/receipt \d+ \S+ \d+\n/), 'a call that is not committed');
my ($xid, $lsn, $timeline) = $out =~ /receipt (\d+) (\S+) (\d+)/;
is(sql("SELECT revenant.receipt_status('$xid', '$lsn', $timeline)"), 'in progress', 'is in progress');
# so that its transaction is known after the crash
sql('SELECT pg_switch_wal(); CHECKPOINT');
$node->stop('immediate');
$psql->finish;
$node->start;
is(sql("SELECT revenant.receipt_status('$xid', '$lsn', $timeline)"), 'aborted', 'and is undone by the crash');
is(sql("SELECT revenant.read_entity('p', 'open') IS NULL"), 't', 'its entity is not there');
my $reply = sql("SELECT revenant.call('p', 'open', '1', request_id => '00000000-0000-0000-0000-000000000001')");
isnt($reply, $xid, 'and its request was never asked');

# A committed request survives: the first reply comes again.
$node->stop('immediate');
$node->start;
is(sql("SELECT revenant.call('p', 'open', '1', request_id => '00000000-0000-0000-0000-000000000001')"), $reply, 'a request that was answered before the crash is not done twice');
is(sql("SELECT (revenant.read_entity('p', 'open')).version"), '1', 'nor counted twice');

$node->stop;
done_testing();
