# Many sessions save the same snapshot at the same version: one of them wins each round, versions have no gap, and nothing of a loser's is left.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use Client qw(answers monotonic);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $sessions = 64;
my $rounds = 40;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "max_connections = 100\nlog_statement = none\ndeadlock_timeout = '50ms'\nsynchronous_commit = off");
$node->start;
asks($node);

# The three ways to the row: without the executor, by statements, and those with a history.
sql(q{
	CREATE EXTENSION revenant;
	SELECT revenant.create_snapshot_table('plain');
	SELECT revenant.create_snapshot_table('secured');
	ALTER TABLE secured ENABLE ROW LEVEL SECURITY;
	SELECT revenant.create_snapshot_table('kept', -1);
	CREATE TABLE won (kind text, version bigint, session int);
});
my @clients = map { Client->new($node) } 1 .. $sessions;

foreach my $kind ('plain', 'secured', 'kept')
{
	my ($winners, $conflicts, @others) = (0, 0);

	foreach my $round (0 .. $rounds - 1)
	{
		# Every fifth round removes it, the next one makes it again.
		my $what =
		    $round % 5 == 4 ? "revenant.remove('$kind', 'x', $round)"
		  : $round % 5 == 0 ? "revenant.save('$kind', 'x', 0, '%d')"
		  :                   "revenant.save('$kind', 'x', $round, '%d')";
		$clients[$_]->send("INSERT INTO won SELECT '$kind', " . $what =~ s/%d/$_/r . ", $_") foreach 0 .. $#clients;
		answers(monotonic() + $PostgreSQL::Test::Utils::timeout_default, @clients) or die 'no answer';
		my @won = grep { !defined $clients[$_]->{error} } 0 .. $#clients;
		$winners += @won == 1;
		$conflicts += grep { ($_->{error} // '') =~ /^RV003 / } @clients;
		push @others, grep { $_ !~ /^RV003 / } map { $_->{error} // () } @clients;
	}
	is($winners, $rounds, "$kind: one won each round");
	is($conflicts, $rounds * ($sessions - 1), 'all others got RV003');
	is_deeply(\@others, [], 'and nothing else');
	is(sql("SELECT string_agg(version::text, ' ' ORDER BY version) FROM won WHERE kind = '$kind'"), join(' ', 1 .. $rounds), 'versions have no gap');
	is(sql("SELECT version, reserved, deleted FROM $kind"), "$rounds|$rounds|t", 'and the row is at the last one');
}
is( sql(q{
	SELECT count(*) FROM revenant.history('kept', 'x') AS h JOIN won AS w ON w.kind = 'kept' AND w.version = h.version
	WHERE h.state IS NULL OR h.state::int = w.session}),
	$rounds, "the history has each winner's state");
$_->quit foreach @clients;

# Without rounds: calls and saves of few entities, each counts what it did.
sql(q{
	CREATE FUNCTION add(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE plpgsql AS $$
	BEGIN
		RETURN ROW(to_jsonb(coalesce(state::int, 0) + 1), to_jsonb(coalesce(state::int, 0) + 1), NULL)::revenant.reply;
	END $$;
	CREATE UNLOGGED TABLE done (kind text, id text);
	TRUNCATE plain, secured, kept;
	SELECT revenant.create_entity_type(k, k::regclass, 'add') FROM unnest('{plain,secured,kept}'::text[]) AS k;
	CREATE PROCEDURE once(k text, id text, how int) LANGUAGE plpgsql AS $$
	DECLARE
		s revenant.snapshot;
	BEGIN
		BEGIN
			IF how < 6 THEN
				PERFORM revenant.call(k, id, '1');
			ELSE
				s := revenant.load(k::regclass, id);
				PERFORM revenant.save(k::regclass, id, coalesce(s.version, 0), to_jsonb(coalesce(s.state::int, 0) + 1));
			END IF;
		EXCEPTION WHEN SQLSTATE 'RV003' THEN
			-- the stale save, and the first call that finds a row which was saved meanwhile
			RETURN;
		END;
		IF how = 5 THEN
			ROLLBACK;
			RETURN;
		END IF;
		INSERT INTO public.done VALUES (k, id);
	END $$;
});
append_to_file($node->basedir . '/once.sql', "\\set k random(0, 2)\n\\set id random(1, 5)\n\\set how random(0, 7)\n"
	  . "CALL once(('{plain,secured,kept}'::text[])[:k + 1], :id::text, :how);\n");
my ($out, $err);
my $ok = IPC::Run::run([ 'pgbench', '-n', '-c', $sessions, '-j', 2, '-T', 6, '-f', $node->basedir . '/once.sql', $node->connstr('postgres') ],
	'<', \undef, '>', \$out, '2>', \$err, IPC::Run::timeout(3 * $PostgreSQL::Test::Utils::timeout_default));
ok($ok, 'no client failed') or diag $err;
unlike(slurp_file($node->logfile), qr/deadlock detected|XX000|could not/, 'no deadlock, no internal error');
is( sql(q{
	SELECT count(*) FROM (
		SELECT 'plain' AS kind, id, version, state FROM plain UNION ALL SELECT 'secured', id, version, state FROM secured UNION ALL SELECT 'kept', id, version, state FROM kept
	) AS s LEFT JOIN (SELECT kind, id, count(*) AS n FROM done GROUP BY kind, id) AS d USING (kind, id)
	WHERE d.n IS DISTINCT FROM s.version OR d.n <> s.state::int}),
	'0', 'every version is one that somebody was told of, and no state was lost');
cmp_ok(sql('SELECT count(*) FROM done'), '>', 500, 'they were many');
is(sql("SELECT max(version) - count(*) FROM revenant.history('kept', '1')"), '0', 'the history has them all');
ok($node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'userlock'"), 'nothing is left in pg_locks');

$node->stop;
done_testing();
