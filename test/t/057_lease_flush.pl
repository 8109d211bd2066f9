# Whatever ends or begins a hold that has a row is flushed at commit, though synchronous_commit is off: no crash brings an older
# holder's row back.

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
# Nobody flushes by chance what a commit did not flush.
$node->append_conf('postgresql.conf', "synchronous_commit = off\nwal_writer_delay = '10s'\nautovacuum = off\nlog_statement = none");
$node->start;
asks($node);
$node->safe_psql('postgres', 'CREATE EXTENSION revenant; CREATE TABLE other (a int)');

# How much of what was written up to the end of some statements is not flushed; a page header may lie between.
sub unflushed
{
	my ($statements) = @_;
	my $out = sql("$statements;\nSELECT pg_current_wal_insert_lsn() AS lsn \\gset\n"
		  . "SELECT 'unflushed', greatest(:'lsn' - pg_current_wal_flush_lsn(), 0)");
	my ($bytes) = $out =~ /unflushed\|(\d+)/;
	return $bytes;
}

sub is_flushed { my ($statements, $name) = @_; cmp_ok(unflushed($statements), '<=', 40, $name); return }

# A lease that lapsed, and whose row is there.
sub lapsed
{
	my ($lease) = @_;
	my $token = sql("SELECT revenant.acquire('$lease', ttl => '100 ms')");
	$node->poll_query_until('postgres', "SELECT NOT revenant.is_current('$lease', $token)") or die "$lease does not lapse";
	return;
}

sub held { my ($lease) = @_; return sql("SELECT revenant.acquire('$lease', ttl => '1 h')") }

sql("SELECT revenant.acquire('a', ttl => '1 h')");
cmp_ok(unflushed('INSERT INTO other VALUES (1)'), '>', 40, 'the commit of anything else is not flushed');

# --- acquire
is_flushed("SELECT revenant.acquire('ttl', ttl => '1 h')", 'acquire');
is_flushed("SELECT revenant.try_acquire('try', ttl => '1 h')", 'try_acquire');
is_flushed("SELECT revenant.acquire_all('{set-a,set-b}', ttl => '1 h')", 'acquire_all');
is_flushed("SELECT revenant.claim('election', 'me')", 'claim');
is_flushed("CALL revenant.await_lease('await', ttl => '1 h')", 'await_lease');
is_flushed("BEGIN; SELECT revenant.acquire('block', ttl => '1 h'); INSERT INTO other VALUES (1); COMMIT", 'in a block of transactions');
is_flushed("BEGIN; SAVEPOINT p; SELECT revenant.acquire('savepoint', ttl => '1 h'); RELEASE p; COMMIT", 'in a savepoint');
cmp_ok(unflushed("BEGIN; SELECT revenant.acquire('none', ttl => '1 h'); ROLLBACK; INSERT INTO other VALUES (1)"), '>', 40, 'one that was rolled back flushes nothing');

# --- a takeover, in every scope
lapsed("over-$_") foreach 'ttl', 'session', 'xact', 'shared', 'shared-xact', 'claim';
is_flushed("SELECT revenant.acquire('over-ttl', ttl => '1 h')", 'a takeover by ttl');
is_flushed("SELECT revenant.acquire('over-session')", 'in session scope');
is_flushed("SELECT revenant.acquire_xact('over-xact')", 'in transaction scope');
is_flushed("SELECT revenant.acquire('over-shared', shared => true)", 'shared');
is_flushed("SELECT revenant.acquire_xact('over-shared-xact', shared => true)", 'shared, in transaction scope');
is_flushed("SELECT revenant.claim('over-claim', 'me')", 'by a claim');

# --- release, a longer ttl, revoke
my $token = held('gone');
is_flushed("SELECT revenant.release('gone', $token)", 'release');
$token = held('off');
is_flushed("SELECT revenant.release('off', $token, hold_off => '1 h')", 'release with a hold_off');
is_flushed("SELECT revenant.release('off-session', revenant.acquire('off-session'), hold_off => '1 h')", 'of a session, too');
$token = sql("SELECT revenant.acquire_all('{gone-a,gone-b}', ttl => '1 h')");
is_flushed("SELECT revenant.release_all('{gone-a,gone-b}', $token)", 'release_all');
$token = sql("SELECT (revenant.claim('abdicated', 'me')).token");
is_flushed("SELECT revenant.abdicate('abdicated', $token)", 'abdicate');
my $longer = held('longer');
is_flushed("SELECT revenant.renew('longer', $longer, '2 h')", 'a renewal that makes the ttl longer');
$token = held('revoked');
is_flushed("SELECT revenant.revoke('revoked')", 'revoke');

# --- the sweep, which is another process
lapsed('swept');
sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'revenant supervisor%'");
becomes("SELECT count(*) = 0 FROM revenant.lease WHERE name = 'swept'", 'the sweep removes what lapsed');
$node->stop('immediate');
$node->start;
is(sql("SELECT string_agg(name, ' ' ORDER BY name) FROM revenant.lease WHERE name ~ '^(over|gone|off|abdicated|longer|revoked|swept|ttl|try|set|election|await|block|savepoint|none)'"),
	'await block election longer off off-session over-claim over-ttl savepoint set-a set-b try ttl', 'after a crash all of it is as it was');
is(sql("SELECT ttl FROM revenant.lease WHERE name = 'longer'"), '02:00:00', 'and as long');

$node->stop;
done_testing();
