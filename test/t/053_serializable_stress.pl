# Many clients take, renew, fence and release the same few leases, in REPEATABLE READ and SERIALIZABLE transactions that look at the
# view, too: none of them ever fails with 40001.

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $clients = 16;
my $seconds = 4;
my $dir = PostgreSQL::Test::Utils::tempdir;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "log_statement = none\nmax_pred_locks_per_transaction = 256");
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION revenant;
	CREATE UNLOGGED TABLE work (client int PRIMARY KEY, n int);
	INSERT INTO work SELECT i, 0 FROM generate_series(0, 31) AS i;
	SELECT revenant.guard_table('work', 'serial-1');
});

$node->safe_psql('postgres', q{
	CREATE PROCEDURE serial(lease text, how int, client int) LANGUAGE plpgsql AS $$
	DECLARE
		token bigint;
		looked bigint;
	BEGIN
		SELECT count(*) INTO looked FROM revenant.leases;
		IF how = 5 THEN
			token := (revenant.claim(lease, 'me', ttl => '1 min')).token;
		ELSIF how = 4 THEN
			token := revenant.acquire(lease, ttl => '1 min', wait => '20 ms', lock_delay => '1 ms');
		ELSE
			token := revenant.try_acquire(lease, ttl => CASE how WHEN 0 THEN interval '100 ms' ELSE interval '1 min' END, request_id => gen_random_uuid());
		END IF;
		COMMIT;
		IF token IS NULL THEN
			PERFORM revenant.acquire_xact(lease || '-x', wait => '5 ms');
			COMMIT;
			RETURN;
		END IF;
		IF how = 0 THEN
			RETURN;	-- it lapses
		END IF;
		SELECT count(*) INTO looked FROM revenant.leases AS l WHERE l.lease = serial.lease;
		ASSERT revenant.renew(lease, token, '2 min') IS NOT NULL, 'lost';
		COMMIT;
		SELECT count(*) INTO looked FROM revenant.leases AS l WHERE l.lease = serial.lease;
		PERFORM revenant.fence(lease, token);
		IF lease = 'serial-1' THEN
			UPDATE public.work AS w SET n = w.n + 1 WHERE w.client = serial.client;
		END IF;
		COMMIT;
		SELECT count(*) INTO looked FROM revenant.leases AS l WHERE l.lease = serial.lease;
		CASE how
			WHEN 1 THEN ASSERT revenant.release(lease, token, hold_off => '1 ms'), 'not released';
			WHEN 2 THEN ASSERT revenant.revoke(lease) = token, 'not revoked';
			WHEN 5 THEN ASSERT revenant.abdicate(lease, token), 'it did not lead';
			ELSE ASSERT revenant.release(lease, token), 'not released';
		END CASE;
		COMMIT;
	END $$;
});
append_to_file("$dir/serial.sql", "\\set lease random(1, 3)\n\\set how random(0, 5)\nCALL serial('serial-' || :lease, :how, :client_id);\n");

foreach my $level ('repeatable\ read', 'serializable')
{
	local $ENV{PGOPTIONS} = "-c default_transaction_isolation=$level";
	my ($out, $err);
	ok( IPC::Run::run([ 'pgbench', '-n', '-c', $clients, '-j', 2, '-T', $seconds, '-f', "$dir/serial.sql", $node->connstr('postgres') ],
			'<', \undef, '>', \$out, '2>', \$err, IPC::Run::timeout($seconds + 2 * $PostgreSQL::Test::Utils::timeout_default)),
		"$level: no client failed") or diag($err);
	my ($done) = $out =~ /transactions actually processed: (\d+)/;
	cmp_ok($done, '>', 10 * $clients, "$level: they worked");
	is($err =~ /ERROR|could not serialize/ ? $err : '', '', "$level: and met no error");
}
my $log = slurp_file($node->logfile);
unlike($log, qr/could not serialize|deadlock detected|ERROR:/, 'nor is there one in the log');
cmp_ok($node->safe_psql('postgres', 'SELECT sum(n) FROM work'), '>', 0, 'guarded writes were among it');

$node->stop;
done_testing();
