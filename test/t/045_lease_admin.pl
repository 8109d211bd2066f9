# Taking a lease away: from a ttl holder, from sessions, past fenced transactions; and what it must not do.

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
$node->start;
asks($node);
$node->safe_psql('postgres', q{
	CREATE EXTENSION revenant;
	CREATE ROLE chief; CREATE ROLE worker;
	SELECT revenant.grant_usage('chief', 'admin');
	SELECT revenant.grant_usage('worker');
});

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
like(slurp_file($node->logfile), qr/LOG:  leadership\.revoked: "x"\n.*it is stuck/, 'the log has the reason');
is(sql("SELECT e.token || ' ' || (e.detail ->> 'reason') FROM revenant.events() AS e WHERE e.event = 'leadership.revoked' AND e.subject = 'x'"),
	"$token it is stuck", 'and it is an event');
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
is(sql("BEGIN; SELECT revenant.revoke('z', 'in the way', terminate => true); ROLLBACK"), $held, 'with terminate it ends it');
is(sql("SELECT e.token || ' ' || (e.detail ->> 'reason') FROM revenant.events() AS e WHERE e.event = 'leadership.revoked' AND e.subject = 'z'"),
	"$held in the way", 'which is an event, though the transaction was rolled back');
is(sql("SELECT revenant.try_acquire('z') > $held"), 't', 'and is free when revoke returns');

# --- the other scopes: a transaction's, shared holds, one name of a set
my $open = $node->background_psql('postgres', on_error_stop => 0);
$held = $open->query_safe("BEGIN; SELECT revenant.try_acquire_xact('open')");
sqlstate('55006', "SELECT revenant.revoke('open')", 'a transaction\'s hold ends with its process only');
is(sql("SELECT revenant.revoke('open', terminate => true)"), $held, 'with terminate it ends it');
is(sql("SELECT revenant.try_acquire_xact('open') > $held"), 't', 'and it is free');
my @shared = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 2;
my @shares = map { $_->query_safe("SELECT revenant.try_acquire('shared', shared => true)") } @shared;
sqlstate('55006', "SELECT revenant.revoke('shared')", 'shared holds end with their processes only');
is($shared[0]->query_safe("SELECT revenant.is_current('shared', $shares[0]), revenant.is_current('shared', $shares[1])"), 't|t', 'and stay, all of them');
is(sql("SELECT revenant.revoke('shared', 'all of them', terminate => true)"), $shares[1], 'with terminate it ends all of them, and returns the newest token');
is(sql("SELECT revenant.is_current('shared', $shares[0]), revenant.is_current('shared', $shares[1])"), 'f|f', 'which is worth nothing any more');
is(sql("SELECT string_agg(e.token::text, ' ' ORDER BY e.token) FROM revenant.events() AS e WHERE e.subject = 'shared' AND e.detail ->> 'reason' = 'all of them'"),
	"@shares", 'an event for each');
is(sql("SELECT revenant.try_acquire('shared') > $shares[1]"), 't', 'and it is free');
$token = sql("SELECT revenant.try_acquire_all('{one, two}', ttl => '1 h')");
is(sql("SELECT revenant.revoke('one')"), $token, 'one name of a set can be revoked');
is(sql("SELECT revenant.is_current('one', $token), revenant.is_current('two', $token), revenant.renew_all('{one, two}', $token) IS NULL"), 'f|t|t',
	'the rest of it stays, and is no set any more');
# somebody waits: the one who was first gets it, at once
my $first = $node->background_psql('postgres', on_error_stop => 0);
$token = sql("SELECT revenant.try_acquire('wanted', ttl => '1 h')");
$first->query_until(qr/at it/, "\\echo at it\nSELECT revenant.acquire('wanted', ttl => '1 h', wait => '1 min') > $token;\n");
ok($node->poll_query_until('postgres', "SELECT waiters = 1 FROM revenant.leases WHERE lease = 'wanted'"), 'somebody waits');
is(sql("SELECT revenant.revoke('wanted')"), $token, 'a revocation');
is($first->query_safe('SELECT 1'), "t\n1", 'wakes who waits');
# who may be ended by whom: an admin ends what is fenced, but no superuser's process
$fenced = $node->background_psql('postgres', on_error_stop => 0);
$token = sql("SELECT revenant.try_acquire('mine', ttl => '1 h')");
$fenced->query_safe("BEGIN; SELECT revenant.fence('mine', $token)");
sqlstate('42501', "SET ROLE chief; SELECT revenant.revoke('mine', terminate => true)", 'no admin ends a superuser\'s fenced transaction');
is($fenced->query_safe("SELECT revenant.is_current('mine', $token); COMMIT"), 't', 'which goes on');
is(sql("SELECT count(*) FROM revenant._lease_check()"), 0, 'shared memory and locks agree');

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
# somebody who only tries ends it, too, and gets it at a later try
$slow = $node->background_psql('postgres', on_error_stop => 0);
$token = sql("SELECT revenant.try_acquire('tried', ttl => '1 s')");
$slow->query_safe("BEGIN; SELECT revenant.fence('tried', $token)");
ok($node->poll_query_until('postgres', "SELECT NOT revenant.is_current('tried', $token)"), 'a fenced lease lapses');
is(sql("SELECT (revenant.claim('tried', 'one')).is_leader"), 'f', 'and cannot be claimed while the transaction is open');
ok($node->poll_query_until('postgres', "SELECT (revenant.claim('tried', 'one')).is_leader FROM set_config('revenant.fence_grace', '100 ms', false)"),
	'until fence_grace is over');
sqlstate('42501', "SET ROLE worker; SET revenant.fence_grace = '1 s'", 'fence_grace is a superuser\'s');

# --- events in the log and on the channel, as the settings say
my $at = -s $node->logfile;
my $heard = sql(q{LISTEN revenant; SELECT revenant.try_acquire('quiet', ttl => '1 h') IS NOT NULL; SELECT revenant.revoke('quiet') > 0});
unlike($heard, qr/notification/, 'by default nobody is notified');
$node->append_conf('postgresql.conf', "revenant.notify = on\nrevenant.log_events = 'leadership.lost, leadership.cl'");
$node->reload;
ok($node->poll_query_until('postgres', q{SELECT current_setting('revenant.notify') = 'on'}), 'reloaded');
$at = -s $node->logfile;
$heard = sql(q{
	LISTEN revenant;
	SELECT (revenant.claim('heard', 'secret label', '1 h')).token AS token \gset
	SELECT (revenant.refresh('heard', :token)).is_leader;
	BEGIN;
	SELECT revenant.revoke('heard') = :token;
	ROLLBACK;
	BEGIN;
	SELECT revenant.revoke('heard', 'secret reason') = :token;
	COMMIT;});
is(() = $heard =~ /Asynchronous notification/g, 2, 'a listener hears what committed') or diag($heard);
like($heard, qr/\{"event": "leadership.claimed", "subject": "heard"\}.*\{"event": "leadership.revoked", "subject": "heard"\}/s, 'by name');
unlike($heard, qr/secret|refreshed/, 'and no more than names');
my $log = slurp_file($node->logfile, $at);
like($log, qr/leadership\.claimed: "heard"/, 'the log has what begins as it was told');
unlike($log, qr/leadership\.revoked: "heard"/, 'and nothing else');
sql("SELECT (revenant.claim('silent', 'one', '200 ms')).is_leader");
my $asked = time;
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM revenant.events() WHERE subject = 'silent' AND event = 'leadership.lost' AND detail ->> 'reason' = 'expired'}),
	'a leader that lapsed and whose place nobody asks for is told of');
cmp_ok(time - $asked, '<', 30, 'long before the next minute');
$node->append_conf('postgresql.conf', "revenant.log_events = all");
$node->reload;
ok($node->poll_query_until('postgres', q{SELECT current_setting('revenant.log_events') = 'all'}), 'reloaded');
sql(q{SELECT (revenant.claim('counted', 'one', '1 h')).token AS token \gset
	SELECT (revenant.refresh('counted', :token)).is_leader});
like(slurp_file($node->logfile, $at), qr/leadership\.refreshed: "counted"/, 'all has renewals, too');

# the ring keeps the latest ones
$node->append_conf('postgresql.conf', "revenant.event_buffer = 16\nrevenant.notify = off");
my $seen = sql('SELECT max(seq) FROM revenant.events()');
$node->restart;
is(sql("SELECT count(*) FROM revenant.events() WHERE event NOT LIKE 'process.%'"), '0', 'a restart empties the ring');
sql(q{DO $$ BEGIN FOR i IN 1 .. 40 LOOP PERFORM revenant.try_acquire('ring ' || i, ttl => '1 h'); COMMIT; PERFORM revenant.revoke('ring ' || i); COMMIT; END LOOP; END $$});
is(sql("SELECT count(*) || ' ' || min(subject) || ' ' || max(subject) FROM revenant.events($seen)"), '16 ring 25 ring 40',
	'which keeps as many as it has places, numbered on');

$node->stop;
done_testing();
