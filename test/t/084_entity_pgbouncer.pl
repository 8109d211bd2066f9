# Behind pgbouncer in transaction mode, where each transaction may be on another connection, no connection goes on with what it remembers of a type.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($pgbouncer) = grep { -x } '/usr/sbin/pgbouncer', '/usr/bin/pgbouncer';
plan skip_all => 'there is no pgbouncer' unless $pgbouncer;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', 'log_statement = none');
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION revenant;
	CREATE ROLE pooled LOGIN;
	SELECT revenant.grant_usage('pooled');
	CREATE FUNCTION handler(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS $$ SELECT to_jsonb(coalesce($2::int, 0) + $3::int), to_jsonb(coalesce($2::int, 0) + $3::int), NULL::text $$;
	CREATE FUNCTION step(old_vsn int, state jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb($2::int + 1000000) $$;
	SELECT revenant.create_snapshot_table('entities');
	SELECT revenant.create_entity_type('e', 'entities', 'handler');
	GRANT SELECT, INSERT, UPDATE ON entities TO pooled;
	CREATE TABLE wanted (id uuid, entity int);
	GRANT SELECT, INSERT ON wanted TO pooled;
});

my $dir = PostgreSQL::Test::Utils::tempdir_short;
my $port = PostgreSQL::Test::Cluster::get_free_port();
append_to_file("$dir/users", qq{"pooled" ""\n});
append_to_file("$dir/ini", join "\n", '[databases]',
	'postgres = host=' . $node->host . ' port=' . $node->port . ' dbname=postgres',
	'[pgbouncer]', 'listen_addr =', "listen_port = $port", "unix_socket_dir = $dir", 'auth_type = trust', "auth_file = $dir/users",
	'pool_mode = transaction', 'default_pool_size = 3', 'max_client_conn = 100', "logfile = $dir/log", "pidfile = $dir/pid", '');
my $bouncer = IPC::Run::start([ $pgbouncer, '-q', "$dir/ini" ], '<', \undef, '>', "$dir/out", '2>', "$dir/err");
my $pooled = "host=$dir port=$port dbname=postgres user=pooled";

sub sql { return $node->safe_psql('postgres', $_[0], connstr => $pooled); }

for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
{
	last if $node->psql('postgres', 'SELECT 1', connstr => $pooled) == 0;
	select undef, undef, undef, 0.1;
}

# Each request is made twice, by two transactions, while the type is altered beside them.
append_to_file("$dir/calls.sql", <<'SQL');
\set entity random(1, 4)
\set request random(1, 1000000000000)
BEGIN;
INSERT INTO wanted VALUES (md5(:client_id || ' ' || :request)::uuid, :entity);
SELECT revenant.call('e', (:entity)::text, '1', request_id => md5(:client_id || ' ' || :request)::uuid) AS first \gset
COMMIT;
SELECT revenant.call('e', (:entity)::text, '1', request_id => md5(:client_id || ' ' || :request)::uuid) AS second \gset
SELECT 1 / (:first = :second)::int;
SQL
# They last longer where a test may last longer.
my $seconds = int($PostgreSQL::Test::Utils::timeout_default / 15);
my ($out, $err) = ('', '');
my $bench = IPC::Run::start([ 'pgbench', '-n', '-c', 20, '-j', 2, '-T', $seconds, '-f', "$dir/calls.sql", $pooled ],
	'<', \undef, '>', \$out, '2>', \$err, IPC::Run::timeout(3 * $PostgreSQL::Test::Utils::timeout_default));
foreach my $vsn (2 .. 4)
{
	my $before = $node->safe_psql('postgres', 'SELECT count(*) FROM wanted');
	$node->poll_query_until('postgres', "SELECT count(*) > $before + 20 FROM wanted") or die 'nobody calls';
	$node->safe_psql('postgres', qq{SELECT revenant.alter_entity_type('e', '{"vsn": $vsn, "upgrade": "step"}')});
}
ok($bench->finish, 'no client failed') or diag $err;
is($node->safe_psql('postgres', "SELECT count(*) FROM entities AS e JOIN (SELECT entity::text AS id, count(*) AS n FROM wanted GROUP BY 1) AS w USING (id) WHERE e.state::bigint % 1000000 <> w.n OR e.version <> w.n"),
	'0', 'each request was done once');
is($node->safe_psql('postgres', 'SELECT string_agg(DISTINCT vsn::text, \' \'), string_agg(DISTINCT (state::bigint / 1000000)::text, \' \') FROM entities'), '4|3', 'every upgrade step was done once');
cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE usename = 'pooled'"), '<=', 3, 'on three connections');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE locktype = 'userlock'"), '0', 'nothing is stranded');

# receipt() is of the session: to be asked in the transaction of the call
is(sql("BEGIN; SELECT revenant.call('e', 'receipt', '1'); SELECT r.id || r.version FROM revenant.receipt() AS r; COMMIT"), "1\nreceipt1", 'a receipt in the same transaction');

$bouncer->signal('INT');
$bouncer->finish;
$node->stop;
done_testing();
