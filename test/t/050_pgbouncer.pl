# Behind pgbouncer in transaction mode, ttl and transaction scope work as without it, and nothing is stranded on the
# server's connections; what would be stranded there is refused with a hint.

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pgbouncer) = grep { -x } '/usr/sbin/pgbouncer', '/usr/bin/pgbouncer';
plan skip_all => 'there is no pgbouncer' unless $pgbouncer;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION revenant;
	CREATE ROLE pooled LOGIN;
	ALTER ROLE pooled SET revenant.session_leases = off;
	SELECT revenant.grant_usage('pooled');
	CREATE TABLE work (id bigserial, token bigint);
	SELECT revenant.guard_table('work', 'election');
	GRANT INSERT, SELECT ON work TO pooled;
	GRANT USAGE ON SEQUENCE work_id_seq TO pooled;
});

# Two server connections for all clients, which therefore change all the time.
my $dir = PostgreSQL::Test::Utils::tempdir_short;
my $port = PostgreSQL::Test::Cluster::get_free_port();
append_to_file("$dir/users", qq{"pooled" ""\n});
append_to_file("$dir/ini", join "\n", '[databases]',
	'postgres = host=' . $node->host . ' port=' . $node->port . ' dbname=postgres',
	'[pgbouncer]', 'listen_addr =', "listen_port = $port", "unix_socket_dir = $dir", 'auth_type = trust', "auth_file = $dir/users",
	'pool_mode = transaction', 'default_pool_size = 2', 'max_client_conn = 100', "logfile = $dir/log", "pidfile = $dir/pid", '');
my $bouncer = IPC::Run::start([ $pgbouncer, '-q', "$dir/ini" ], '<', \undef, '>', "$dir/out", '2>', "$dir/err");
my $pooled = "host=$dir port=$port dbname=postgres user=pooled";

sub sql { return $node->safe_psql('postgres', $_[0], connstr => $pooled); }

# The same without dying: status, output, errors.
sub try_sql
{
	my ($query) = @_;
	my ($out, $err);
	my $status = $node->psql('postgres', $query, connstr => $pooled, stdout => \$out, stderr => \$err, on_error_stop => 0);
	return ($out, $err // '');
}

sub stranded { return $node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE locktype = 'userlock'"); }

for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
{
	last if $node->psql('postgres', 'SELECT 1', connstr => $pooled) == 0;
	select undef, undef, undef, 0.1;
}
is(sql('SELECT current_user'), 'pooled', 'connected through the pooler');
is(sql('SHOW revenant.session_leases'), 'off', 'where session leases are off');

# --- session scope

foreach my $call ("revenant.try_acquire('s')", "revenant.acquire('s')", "revenant.try_acquire('s', shared => true)", "revenant.acquire_all('{s,t}')")
{
	my ($out, $err) = try_sql("SELECT $call");
	is($out, '', "$call is refused");
	like($err, qr/HINT:.*ttl.*acquire_xact/, 'with a hint');
}
is(stranded(), '0', 'nothing is stranded');

# --- ttl scope: taken on one connection, renewed, fenced and released on others

my $token = sql("SELECT revenant.acquire('t', ttl => '1 min')");
foreach my $round (1 .. 5)
{
	# One transaction occupies a server connection, so that what follows gets the other one.
	my ($in, $out, $err) = ("BEGIN;\nSELECT 'pid ' || pg_backend_pid();\n", '', '');
	my $timer = IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default);
	my $psql = IPC::Run::start([ 'psql', '-X', '-q', '-A', '-t', '-f', '-', '-d', $pooled ], '<', \$in, '>', \$out, '2>', \$err, $timer);
	ok(pump_until($psql, $timer, \$out, qr/pid (\d+)/), 'a connection is busy');
	my ($busy) = $out =~ /pid (\d+)/;
	is(sql("SELECT revenant.renew('t', $token) IS NOT NULL, revenant.is_current('t', $token), pg_backend_pid() <> $busy"), 't|t|t', 'renewed on another');
	$in .= "COMMIT;\n\\q\n";
	$psql->finish;
}
is(sql("BEGIN; SELECT revenant.fence('t', $token); COMMIT; SELECT revenant.try_acquire('t', ttl => '1 min') IS NULL"), "\nt", 'fenced, and busy for another');
is(sql("SELECT revenant.release('t', $token)"), 't', 'released');

# --- transaction scope

is(sql("BEGIN; SELECT revenant.acquire_xact('x') > 0, revenant.acquire_all_xact('{y,z}') > 0; COMMIT"), 't|t', 'transaction scope');
is(sql("BEGIN; SELECT revenant.acquire_xact('x', shared => true) > 0; ROLLBACK"), 't', 'shared, rolled back');
is(stranded(), '0', 'nothing is stranded');

# --- an election among many clients

append_to_file("$dir/claim.sql", <<'SQL');
DO $$
DECLARE
	mine revenant.claim_result := revenant.claim('election', 'somebody', ttl => '1 min');
BEGIN
	IF mine.is_leader THEN
		COMMIT;
		ASSERT (revenant.refresh('election', mine.token)).is_leader, 'it does not lead';
		PERFORM revenant.fence('election', mine.token);
		INSERT INTO public.work (token) VALUES (mine.token);
		COMMIT;
		ASSERT revenant.abdicate('election', mine.token), 'it did not lead any more';
	END IF;
END $$;
SQL
my ($out, $err);
ok( IPC::Run::run([ 'pgbench', '-n', '-c', 20, '-j', 2, '-T', 3, '-f', "$dir/claim.sql", $pooled ],
		'<', \undef, '>', \$out, '2>', \$err, IPC::Run::timeout(2 * $PostgreSQL::Test::Utils::timeout_default)),
	'a claim loop of twenty clients') or diag($err);
cmp_ok(sql('SELECT count(*) FROM work'), '>', 0, 'they led');
is(sql('SELECT count(*) - count(DISTINCT token) FROM work'), '0', 'each by a token of its own');
is(sql('SELECT count(*) FROM (SELECT token < lag(token) OVER (ORDER BY id) AS back FROM work) AS w WHERE back'), '0', 'that only grows');
($out, $err) = try_sql('INSERT INTO work (token) VALUES (0)');
like($err, qr/ERROR/, 'a write without a fence is refused');

is(stranded(), '0', 'nothing is stranded');
is($node->safe_psql('postgres', 'SELECT count(*) FROM revenant.leases'), '0', 'no lease is held');
cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE usename = 'pooled'"), '<=', 2, 'on two connections');

$bouncer->signal('INT');
$bouncer->finish;
$node->stop;
done_testing();
