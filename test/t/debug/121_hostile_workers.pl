# No way to stop or to bend a supervisor: by a lease that it sweeps, or by the role that somebody has set for its database.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";

use Asks;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
asks($node);
sql("CREATE EXTENSION revenant; CREATE ROLE chief; SELECT revenant.grant_usage('chief', 'admin')");
my $supervisor = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'revenant supervisor' AND datname = 'postgres'";
becomes("SELECT count(*) = 1 FROM ($supervisor) AS s", 'there is a supervisor');

# --- it has the lock by which a lease changes hands for a moment, and is not ended for that

my $holder = $node->background_psql('postgres');
foreach my $case ('an admin', 'a superuser')
{
	sql("SELECT revenant.try_acquire('swept', ttl => '1 h')");
	$holder->query_safe("SELECT revenant._debug_hold('lease-swept'), revenant._debug_hold('lease-before-revoke')");
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	$session->query_safe('SET ROLE chief') if $case eq 'an admin';
	$session->query_until(qr/at it/, "\\echo at it\nSELECT revenant.revoke('swept', terminate => true) IS NULL;\n");
	becomes("SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%revenant.revoke%' AND pid <> pg_backend_pid() AND wait_event_type = 'Lock'", "$case: is about to revoke a lease");
	# it lapses meanwhile; and a supervisor that begins sweeps at once
	sql("SELECT revenant._debug_move_clock('2 h'); SELECT pg_terminate_backend(pid) FROM ($supervisor) AS s");
	my $sweeps = "SELECT l.pid FROM pg_locks AS l JOIN ($supervisor) AS s USING (pid) WHERE l.locktype = 'userlock' AND l.mode = 'AccessExclusiveLock' AND l.granted";
	becomes("SELECT count(*) = 1 FROM ($sweeps) AS s", "$case: a supervisor has it, and sweeps");
	my $pid = sql($sweeps);
	$holder->query_safe("SELECT revenant._debug_let_go('lease-before-revoke')");
	# long enough for several rounds of ending whoever is in the way
	is(sql("$supervisor AND (SELECT true FROM pg_sleep(0.2))"), $pid, "$case: does not end the supervisor, $_") foreach 1 .. 5;
	$holder->query_safe("SELECT revenant._debug_let_go('lease-swept')");
	is($session->query_safe('SELECT 1'), "t\n1", "$case: comes to an end when it has swept");
	is(sql($supervisor), $pid, "$case: it is the same process");
	$session->quit;
}
$holder->quit;

# --- who owns the database says who its sessions are; the supervisor keeps the rights that its work needs

sql(q{
	CREATE ROLE dbo; ALTER DATABASE postgres OWNER TO dbo;
	CREATE FUNCTION handler(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS $$ SELECT $3, $3, NULL::text $$;
	SELECT revenant.create_snapshot_table('entities');
	SELECT revenant.create_entity_type('e', 'entities', 'handler');
});
foreach my $setting ('role', 'session_authorization')
{
	local $ENV{PGOPTIONS} = '-c role=postgres';
	sql("SELECT revenant.call('e', '$setting', '1', request_id => gen_random_uuid())");
	sql("SET ROLE dbo; ALTER DATABASE postgres SET $setting = dbo");
	my $pid = sql($supervisor);
	sql("SELECT pg_terminate_backend($pid)");
	becomes("SELECT count(*) = 1 FROM ($supervisor AND pid <> $pid) AS s", "$setting: a supervisor begins anew");
	my $halves = 'SELECT (SELECT count(*) FROM revenant._request_0) + (SELECT count(*) FROM revenant._request_1)';
	is(sql($halves), 1, "$setting: an answer is kept");
	sql("SELECT revenant._debug_tick(200, '1 min')");
	is(sql($halves), 0, "$setting: and emptied when it is old, as ever");
	sql("SET ROLE dbo; ALTER DATABASE postgres RESET $setting");
}
unlike(slurp_file($node->logfile), qr/could not forget old requests/, 'which the supervisor may');

$node->stop;
done_testing();
