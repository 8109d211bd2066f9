# One user who takes what he can get: what that costs the others is what the documentation says, and no more. Asking costs nothing at all.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "max_worker_processes = 24\nlog_statement = none\nrevenant.shared_memory = '4 MB'\nautovacuum = off");
$node->start;
asks($node);
sql(q{
	CREATE EXTENSION revenant;
	CREATE ROLE mallory LOGIN; CREATE ROLE looker LOGIN; CREATE ROLE alice LOGIN;
	SELECT revenant.grant_usage('mallory'), revenant.grant_usage('alice'), revenant.grant_usage('looker', 'reader');
	CREATE TABLE ran (task text DEFAULT revenant.current_task()); GRANT INSERT ON ran TO PUBLIC;
	CREATE FUNCTION refused(statement text, n int) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1 .. n LOOP
			BEGIN EXECUTE format(statement, i); EXCEPTION WHEN OTHERS THEN NULL; END;
		END LOOP;
	END $$;
});

# --- asking: more names than memory could hold, if it held them

sql("SET SESSION AUTHORIZATION looker; SELECT count(revenant.explain_lease('l' || i)), count((revenant.leader('m' || i)).leader) FROM generate_series(1, 20000) AS i");
sql("SET SESSION AUTHORIZATION looker; SELECT count(s.*) FROM generate_series(1, 20000) AS i, revenant._stat_task('s' || i, now()) AS s");
sql("SET SESSION AUTHORIZATION mallory; SELECT count(revenant.is_current('a' || i, i)), count(revenant.renew('b' || i, i)), count(revenant.release('c' || i, i)), count(revenant.held_token('d' || i)) FROM generate_series(1, 20000) AS i");
sql("SET SESSION AUTHORIZATION mallory; DO \$\$ DECLARE seen bigint; BEGIN FOR i IN 1 .. 20000 LOOP seen := NULL; CALL revenant.await_change('e' || i, seen); END LOOP; END \$\$");
sql("SET SESSION AUTHORIZATION mallory; SELECT public.refused('SELECT revenant.fence(''f%s'', 1)', 5000), public.refused('SELECT revenant.refresh(''g%s'', 1)', 5000), public.refused('SELECT revenant.poll_plan(''h%s'', 1)', 5000),
	public.refused('SELECT revenant.claim_splits(''i%s'', ''w'')', 5000), public.refused('SELECT revenant.call(''j%s'', ''a'', ''1'')', 5000)");
# whatever is left of it is gone with the next look
is(sql("SET SESSION AUTHORIZATION alice; SELECT count(revenant.acquire('alice ' || i, ttl => '1 h')) FROM generate_series(1, 900) AS i"), 900, 'names that were only asked for take no memory');
is(sql("SELECT count(*) FROM revenant._lease_check()"), 0, 'shared memory and locks agree');

# --- taking

sql("SELECT revenant.create_task('before', 'INSERT INTO public.ran DEFAULT VALUES', '100 ms', run_as => 'alice', max_restarts => 0, restart_window => '1 h')");
becomes("SELECT count(*) > 0 FROM ran", 'a task runs');
# what is left over by one round is taken by the next
sub flood
{
	my ($role, $count) = @_;
	my (undef, undef, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\nSET SESSION AUTHORIZATION $role; DO \$\$ BEGIN FOR i IN 1 .. $count LOOP PERFORM revenant.acquire('flood of $role ' || extract(epoch FROM clock_timestamp()), ttl => '1 h'); COMMIT; END LOOP; END \$\$");
	return $err;
}
like(flood('mallory', 100000), qr/53200/, 'somebody takes all leases that there is memory for') foreach 1 .. 3;
like(flood('alice', 100), qr/53200/, 'another user gets no new one');
is(sql("SET SESSION AUTHORIZATION alice; SELECT count(*) >= 900 AND count(*) = count(revenant.renew(lease, token)) FROM revenant.leases WHERE role = 'alice'"), 't', 'but keeps those that are there');
is(sql("SET SESSION AUTHORIZATION alice; SELECT revenant.release(lease, token) FROM revenant.leases WHERE lease = 'alice 1'"), 't', 'and can give one up');
# tasks are not stopped by that: theirs come from what is kept for them
my $ran = sql('SELECT count(*) FROM ran');
becomes("SELECT count(*) > $ran + 5 FROM ran", 'a task goes on');
sql("SELECT revenant.create_task('while', 'INSERT INTO public.ran DEFAULT VALUES', '100 ms', run_as => 'alice', max_restarts => 0, restart_window => '1 h')");
becomes("SELECT count(*) > 5 FROM ran WHERE task = 'while'", 'and a new one begins');
is(sql("SELECT count(*) FROM revenant.tasks WHERE failures > 0"), 0, 'none has failed');
sql('CREATE DATABASE elsewhere');
$node->safe_psql('elsewhere', "CREATE EXTENSION revenant; SELECT revenant.create_task('elsewhere', 'SELECT pg_sleep(3600)')");
ok($node->poll_query_until('elsewhere', "SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = 'elsewhere' AND backend_type = 'revenant runner' AND wait_event = 'PgSleep'"), 'also in another database');

# --- giving back: an admin takes it away, and all is as before

sql("DO \$\$ DECLARE l text; n int := 0; BEGIN FOR l IN SELECT lease FROM revenant.leases WHERE role = 'mallory' LOOP PERFORM revenant.revoke(l); n := n + 1; IF n % 300 = 0 THEN COMMIT; END IF; END LOOP; END \$\$");
is(sql("SELECT count(*) FROM revenant.leases WHERE role = 'mallory'"), 0, 'what he has can be taken away');
is(sql("SET SESSION AUTHORIZATION alice; SELECT revenant.acquire('new', ttl => '1 h') IS NOT NULL"), 't', 'then there is room');
is(sql("SELECT count(*) FROM revenant._lease_check()"), 0, 'shared memory and locks agree');
unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal/, 'nothing crashed');

$node->stop;
done_testing();
