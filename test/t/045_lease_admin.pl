# Taking a lease away: from a ttl holder, from sessions, past fenced transactions; and what it must not do.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION revenant;
	CREATE ROLE chief; CREATE ROLE worker;
	SELECT revenant.grant_usage('chief', 'admin');
	SELECT revenant.grant_usage('worker');
});

sub sql { return $node->safe_psql('postgres', $_[0]) }

sub sqlstate
{
	my ($expected, $statement, $name) = @_;
	my ($status, $out, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\n$statement");
	like($err, qr/ERROR:  $expected/, $name);
	return;
}

# --- who may
sqlstate('42501', "SET ROLE worker; SELECT revenant.revoke('x')", 'revoke is for admins');
is(sql("SET ROLE chief; SELECT revenant.revoke('x') IS NULL"), 't', 'nobody holds it: null');

# --- a ttl lease
my $token = sql("SELECT revenant.try_acquire('x', ttl => '1 h')");
like(sql("SELECT revenant.explain_lease('x')"), qr/"x" is held in ttl scope/, 'explain_lease says who holds it');
sql("BEGIN; SELECT revenant.revoke('x'); ROLLBACK");
is(sql("SELECT revenant.is_current('x', $token)"), 't', 'a revocation that was rolled back took nothing away');
is(sql("SELECT revenant.revoke('x', 'it is stuck')"), $token, 'revoke returns the token');
is(sql("SELECT revenant.is_current('x', $token)"), 'f', 'which is worth nothing any more');
sqlstate('RV001', "SELECT revenant.fence('x', $token)", 'also for a fence');
like(slurp_file($node->logfile), qr/lease "x" was revoked by role "\w+"\n.*it is stuck/, 'the log has the reason');
like(sql("SELECT revenant.explain_lease('x')"), qr/is free/, 'and it is free');

# --- past a fenced transaction
my $fenced = $node->background_psql('postgres', on_error_stop => 0);
$token = sql("SELECT revenant.try_acquire('y', ttl => '1 h')");
$fenced->query_safe("BEGIN; SELECT revenant.fence('y', $token)");
sqlstate('55P03', "SET lock_timeout = '100 ms'; SELECT revenant.revoke('y')", 'a revocation waits for a fenced transaction');
is(sql("SELECT revenant.is_current('y', $token)"), 't', 'and then took nothing away');
like(sql("SELECT revenant.explain_lease('y')"), qr/fenced by it/, 'explain_lease names the fenced process');
is(sql("SELECT revenant.revoke('y', terminate => true)"), $token, 'with terminate it ends it');

my $session = $node->background_psql('postgres');
my $held = $session->query_safe("SELECT revenant.try_acquire('z')");
sqlstate('55006', "SELECT revenant.revoke('z')", 'a session hold ends with its process only');
is($session->query_safe("SELECT revenant.is_current('z', $held)"), 't', 'which goes on holding it');
sqlstate('42501', "SET ROLE chief; SELECT revenant.revoke('z', terminate => true)", 'no admin ends a superuser\'s process');
is(sql("SELECT revenant.revoke('z', terminate => true)"), $held, 'with terminate it ends it');
is(sql("SELECT revenant.try_acquire('z') > $held"), 't', 'and is free when revoke returns');

# --- fence_grace
is(sql("SHOW revenant.fence_grace"), '0', 'by default a fenced transaction is waited for');
my $slow = $node->background_psql('postgres', on_error_stop => 0);
$token = sql("SELECT revenant.try_acquire('slow', ttl => '200 ms')");
$slow->query_safe("BEGIN; SELECT revenant.fence('slow', $token)");
my $pid = $slow->query_safe('SELECT pg_backend_pid()');
is(sql("SELECT revenant.acquire('slow', ttl => '1 h', wait => '400 ms') IS NULL"), 't', 'and blocks a takeover, whatever the clock says');
is(sql("SET revenant.fence_grace = '100 ms'; SELECT revenant.acquire('slow', ttl => '1 h', wait => '1 min') > $token"),
	't', 'with fence_grace who waits ends it and takes over');
is(sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid"), '0', 'its process is gone');
sqlstate('42501', "SET ROLE worker; SET revenant.fence_grace = '1 s'", 'fence_grace is a superuser\'s');

$node->stop;
done_testing();
