# Many clients take sets with names in common, in any order: no deadlock, two never hold one name, nothing stays behind.

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $clients = 64;
my $seconds = 10;
my $dir = PostgreSQL::Test::Utils::tempdir;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "max_connections = 100\nlog_statement = none\ndeadlock_timeout = '50ms'\nsynchronous_commit = off");
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION revenant;
	CREATE UNLOGGED TABLE inside (name text PRIMARY KEY, pid int);
	CREATE UNLOGGED TABLE done (kind text, pid int);
	-- Some of eight names, in any order.
	CREATE FUNCTION some_names() RETURNS text[] LANGUAGE sql VOLATILE AS $$
		SELECT array_agg('stress-' || i ORDER BY random())
		FROM (SELECT i FROM generate_series(1, 8) AS i ORDER BY random() LIMIT 2 + (random() * 2)::int) AS s
	$$;
	-- Who is inside writes a row for each name: a second one would get 23505, since nobody commits while inside.
	CREATE PROCEDURE visit(names text[]) LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.inside SELECT unnest(names), pg_backend_pid();
		COMMIT;
		DELETE FROM public.inside WHERE pid = pg_backend_pid() AND name = ANY (names);
		COMMIT;
	END $$;
	CREATE PROCEDURE once(kind int) LANGUAGE plpgsql AS $$
	DECLARE
		names text[] := public.some_names();
		token bigint;
	BEGIN
		CASE kind
			WHEN 0 THEN
				token := revenant.acquire_all(names);
				COMMIT;
				CALL public.visit(names);
				ASSERT revenant.release_all(names, token) = cardinality(names), 'not all were held';
			WHEN 1 THEN
				token := revenant.acquire_all(names, ttl => '1 min');
				COMMIT;
				CALL public.visit(names);
				ASSERT revenant.release_all(names, token) = cardinality(names), 'not all were held';
			WHEN 2 THEN
				-- to the end of the transaction, so no commit inside
				token := revenant.acquire_all_xact(names);
				INSERT INTO public.inside SELECT unnest(names), pg_backend_pid();
				DELETE FROM public.inside WHERE pid = pg_backend_pid();
			WHEN 3 THEN
				token := revenant.acquire_all(names, wait => '20 ms');
				COMMIT;
				IF token IS NOT NULL THEN
					CALL public.visit(names);
					ASSERT revenant.release_all(names, token) = cardinality(names), 'not all were held';
				END IF;
			ELSE
				token := revenant.acquire_all(names, shared => true);
				COMMIT;
				ASSERT NOT EXISTS (SELECT FROM public.inside AS i WHERE i.name = ANY (names)), 'an exclusive holder beside a shared one';
				ASSERT revenant.release_all(names, token) = cardinality(names), 'not all were held';
		END CASE;
		COMMIT;
		INSERT INTO public.done VALUES (kind, pg_backend_pid());
	END $$;
});
append_to_file("$dir/once.sql", "\\set kind random(0, 4)\nCALL once(:kind);\n");

my ($out, $err);
my $ok = IPC::Run::run([ 'pgbench', '-n', '-c', $clients, '-j', 2, '-T', $seconds, '-f', "$dir/once.sql", $node->connstr('postgres') ],
	'<', \undef, '>', \$out, '2>', \$err, IPC::Run::timeout($seconds + 3 * $PostgreSQL::Test::Utils::timeout_default));
ok($ok, 'no client failed') or diag($err);
unlike($err, qr/deadlock|duplicate key|not all were held|beside a shared/, 'and none says why');
my $log = slurp_file($node->logfile);
unlike($log, qr/deadlock detected/, 'no deadlock');
unlike($log, qr/could not serialize|out of shared memory/, 'nor anything else');
is($node->safe_psql('postgres', "SELECT count(DISTINCT kind) FROM done"), '5', 'every kind came to an end');
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM done'), '>', 5 * $clients, 'many of them');
is($node->safe_psql('postgres', 'SELECT count(*) FROM inside'), '0', 'nobody is inside');
is($node->safe_psql('postgres', 'SELECT count(*) FROM revenant.leases'), '0', 'no lease is held');
is($node->safe_psql('postgres', 'SELECT count(*) FROM revenant.lease'), '0', 'no row is left');
ok( $node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'userlock'"),
	'nothing is left in pg_locks');

$node->stop;
done_testing();
