# After a crash, a restart or a promotion nobody gets a ttl lease earlier than its holder believes, what was released stays released,
# and a standby says no to everything that could be taken for a yes.

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = PostgreSQL::Test::Cluster->new('primary');
$node->init(allows_streaming => 1);
# Nobody flushes by chance what a commit did not flush.
$node->append_conf('postgresql.conf', "log_statement = none\nwal_writer_delay = '10s'");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION revenant');

my $timer = IPC::Run::timer($PostgreSQL::Test::Utils::timeout_default);

sub sql
{
	my ($query, $server) = @_;

	return ($server // $node)->safe_psql('postgres', $query);
}

# A psql that stays, and what it answered to the lines it was sent.
sub session
{
	my ($lines) = @_;
	my %session = (in => "$lines\n\\echo done\n", out => '');

	$session{psql} = IPC::Run::start([ 'psql', '-X', '-q', '-A', '-t', '-f', '-', '-d', $node->connstr('postgres') ],
		'<', \$session{in}, '>', \$session{out}, '2>', \$session{err}, $timer);
	pump_until($session{psql}, $timer, \$session{out}, qr/^done$/m) or die 'no answer';
	return \%session;
}

# Tells it to go: a server that was started since then has its standard input open, too, so that it would not see its end.
sub finish
{
	my ($session) = @_;

	$session->{in} .= "\\q\n";
	$session->{psql}->finish;
	return;
}

# What a token is worth: is_current, a renewal, a fence, a second one that asks.
sub standing
{
	my ($lease, $token, $server) = @_;

	return sql("SELECT revenant.is_current('$lease', $token), revenant.renew('$lease', $token) IS NOT NULL,"
		  . " revenant.fence('$lease', $token) IS NOT NULL, revenant.try_acquire('$lease', ttl => '1 h') IS NULL",
		$server);
}

# ---- a crash

# The short one is long enough for a crash to come in between, and is not renewed.
my $long = sql("SELECT revenant.acquire('long', ttl => '1 h', holder => 'me', metadata => '{\"a\": 1}')");
my $deadline = sql("SELECT revenant.renew('long', $long)");
my $short = sql("SELECT revenant.acquire('short', ttl => '2 s')");
my $renewed = sql("SELECT revenant.acquire('renewed', ttl => '20 s')");
# What is acquired or made longer is flushed, whatever synchronous_commit is.
my $async = sql("SET synchronous_commit = off; SELECT revenant.acquire('async', ttl => '1 h')");
my $longer = sql("SELECT revenant.acquire('longer', ttl => '100 ms')");
my $taken = sql("SET synchronous_commit = off; SELECT revenant.acquire('longer', ttl => '1 h')");
cmp_ok($taken, '>', $longer, 'one that lapsed is taken over');
my $session = session("SELECT revenant.acquire('session');\nBEGIN;\nSELECT revenant.acquire_xact('xact');\nSELECT revenant.acquire('uncommitted', ttl => '1 h');");
my ($session_token) = $session->{out} =~ /^(\d+)$/m;
# Each of these is the last that was written: only it can flush itself.
my $released = sql("SELECT revenant.acquire('released', ttl => '1 h')");
sql("SET synchronous_commit = off; SELECT revenant.release('released', $released)");
$node->stop('immediate');
finish($session);
$node->start;

is(sql('SELECT lease, scope, holder, metadata FROM revenant.leases WHERE lease IN (\'session\', \'xact\', \'uncommitted\', \'released\', \'long\') ORDER BY lease'),
	'long|ttl|me|{"a": 1}', 'of them only the committed ttl lease is there after a crash');
is(standing('long', $long), 't|t|t|t', 'its token is good for everything, and nobody else gets it');
is(standing('async', $async), 't|t|t|t', 'one that was acquired with synchronous_commit = off as well');
is(standing('longer', $taken), 't|t|t|t', 'and one that was taken over');
is(sql("SELECT revenant.is_current('longer', $longer), revenant.release('longer', $longer), revenant.renew('longer', $longer) IS NULL"),
	'f|f|t', 'the holder before did not come back');
is(sql("SELECT revenant.is_current('released', $released)"), 'f', 'a released lease does not come back');
cmp_ok(sql("SELECT revenant.try_acquire('released')"), '>', $released, 'it is free');
is(sql("SELECT revenant.is_current('session', $session_token)"), 'f', 'a session lease is gone with its session');
cmp_ok(sql("SELECT revenant.try_acquire('session')"), '>', $session_token, 'and free');
is(sql("SELECT revenant.try_acquire_xact('xact') IS NOT NULL, revenant.try_acquire_xact('uncommitted') IS NOT NULL"),
	't|t', 'so is what was never committed');
# A renewal after the restart counts like any other.
is(sql("SELECT revenant.renew('renewed', $renewed, '1 h') IS NOT NULL"), 't', 'one can be made longer after a crash');

is(sql(
		"SELECT token > $short, clock_timestamp() - pg_postmaster_start_time() >= interval '2 s'"
		  . " FROM revenant.acquire('short', ttl => '1 h', wait => '1 min') AS token"),
	't|t', 'a second one gets the short lease, no earlier than its ttl after the start');
is(sql("SELECT revenant.is_current('short', $short), revenant.release('short', $short)"), 'f|f', 'its first holder has lost it');

# A session that takes a lapsed ttl lease over deletes a row, which must not come back either.
my $lapsed = sql("SELECT revenant.acquire('lapsed', ttl => '100 ms')");
sql("SET synchronous_commit = off; SELECT revenant.acquire('lapsed')");
$node->stop('immediate');
$node->start;
is(sql("SELECT revenant.is_current('lapsed', $lapsed)"), 'f', 'nor does one that a session took over');
is(sql("SELECT revenant.try_acquire('lapsed', ttl => '1 h') > $lapsed"), 't', 'it is free after the crash of that session');
# Twice is as once.
is(standing('long', $long), 't|t|t|t', 'held after the second crash, too');
is(standing('renewed', $renewed), 't|t|t|t', 'with the longer ttl');

# ---- a clean restart

$node->restart;
is(standing('long', $long), 't|t|t|t', 'held after a restart');
is(sql("SELECT revenant.release('long', $long)"), 't', 'and can be released');
is(sql("SELECT revenant.try_acquire('long', ttl => '1 h') > $long"), 't', 'which frees it');

# ---- a standby

sql("CREATE TABLE guarded (a int); SELECT revenant.guard_table('guarded', 'kept'); CREATE ROLE somebody");
my $kept = sql("SELECT revenant.acquire('kept', ttl => '1 h', holder => 'me')");
my $brief = sql("SELECT revenant.acquire('brief', ttl => '3 s')");
$session = session("SELECT revenant.acquire('of-a-session');");
($session_token) = $session->{out} =~ /^(\d+)$/m;

$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->wait_for_catchup('standby', 'replay', $node->lsn('flush'));

foreach my $call (
	"try_acquire('a')", "try_acquire('a', ttl => '1 h')", "acquire('a')", "acquire('a', ttl => '1 h', wait => '0')",
	"try_acquire_xact('a')", "acquire_xact('a')",
	"renew('kept', $kept)", "renew('kept', 1)", "renew('kept', NULL)", "renew('kept', $kept, '2 h')",
	"release('kept', $kept)", "release('kept', 1)", "release('kept', NULL)",
	"is_current('kept', $kept)", "is_current('kept', 1)", "is_current('kept', NULL)", "is_current('nobody', 1)",
	"fence('kept', $kept)", "fence('kept', 1)", "fence('kept', NULL)",
	"guard_table('guarded', 'kept')", "unguard_table('guarded')",
	'advance_tokens(1)', "grant_usage('somebody')", "revoke_usage('somebody')")
{
	my (undef, $out, $err) = $standby->psql('postgres', "\\set VERBOSITY sqlstate\nSELECT revenant.$call");
	like($err, qr/ERROR:  25006/, "on a standby: $call");
	is($out, '', 'and no answer');
}
my ($status) = $standby->psql('postgres', 'SELECT lease, scope, token FROM revenant.leases');
is($status, 0, 'the view can be read there');

# ---- promotion

my $last = sql("SELECT revenant.try_acquire_xact('last')");
$node->wait_for_catchup('standby', 'replay', $node->lsn('flush'));
$node->stop('immediate');
finish($session);
my $before = time;
$standby->promote;
is(standing('kept', $kept, $standby), 't|t|t|t', 'the token renews and fences on the promoted standby, and nobody else gets the lease');
is(sql("SELECT revenant.renew('kept', $kept, '2 h') IS NOT NULL", $standby), 't', 'it can be made longer there');
is(sql("BEGIN; SELECT revenant.fence('kept', $kept); INSERT INTO guarded VALUES (1); COMMIT; SELECT count(*) FROM guarded", $standby),
	"\n1", 'and write what it guards');
is(sql("SELECT revenant.is_current('of-a-session', $session_token)", $standby), 'f', "a session lease is gone with the primary's session");
cmp_ok(sql("SELECT revenant.try_acquire('of-a-session')", $standby), '>', $last, 'it is free, and its token is above all of the old primary');
is(sql("SELECT token > $brief FROM revenant.acquire('brief', ttl => '1 h', wait => '1 min') AS token", $standby),
	't', 'another one gets the brief lease');
cmp_ok(time - $before, '>=', 3, 'no earlier than its ttl after the promotion');

$standby->stop;
done_testing();
