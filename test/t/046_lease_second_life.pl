# What ended must stay ended: tokens of shared and bound holds that the session lost and took again, delays that begin
# while somebody waits, changes that nobody made. And what ended must not use anything up.

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
$node->safe_psql('postgres', 'CREATE EXTENSION revenant');

sub session { return $node->background_psql('postgres', on_error_stop => 0) }
my ($one, $two) = (session(), session());
my ($first, $second, $third);

# --- a shared token that DISCARD ALL ended
$first = $one->query_safe("SELECT revenant.try_acquire('shared', shared => true)");
$one->query_safe('DISCARD ALL');
is(sql("SELECT revenant.is_current('shared', $first)"), 'f', 'DISCARD ALL ends a shared hold');
sql("SELECT revenant.release('shared', revenant.try_acquire('shared'))");
$third = $one->query_safe("SELECT revenant.try_acquire('shared', shared => true)");
is(sql("SELECT revenant.is_current('shared', $first)"), 'f', 'and its token is not current again when the session takes another');
is(sql("SELECT revenant.is_current('shared', $third)"), 't', 'whose token is');

# --- a bound token, likewise
$first = $one->query_safe("SELECT revenant.try_acquire('bound', ttl => '1 h', bound => true)");
$one->query_safe('DISCARD ALL');
is(sql("SELECT revenant.is_current('bound', $first)"), 'f', 'DISCARD ALL ends a bound hold');
$second = $one->query_safe("BEGIN; SELECT revenant.acquire('bound', ttl => '1 h', bound => true)");
is(sql("SELECT revenant.is_current('bound', $first), revenant.renew('bound', $first) IS NULL"), 'f|t',
	'and its token is not current again while the session takes another');
$one->query_safe('COMMIT');
is(sql("SELECT revenant.is_current('bound', $second)"), 't', 'whose token is');

# --- a hold_off that begins while somebody waits: the ttl lapsed in the middle of the release
$first = sql("SELECT revenant.try_acquire('off', ttl => '300 ms')");
$one->query_safe("BEGIN; SELECT revenant.release('off', $first, hold_off => '2 s')");
$two->query_until(qr/started/, "\\echo started\nSELECT 'got', revenant.acquire('off', ttl => '1 h');\n");
becomes("SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'userlock' AND NOT granted", 'it waits for the release that is open');
$one->query_safe('COMMIT');
is(sql("SELECT revenant.try_acquire('off', ttl => '1 h') IS NULL AND count(*) = 0 FROM revenant.leases WHERE lease = 'off'"),
	't', 'nobody gets it during the hold_off, who waited for it neither');
becomes("SELECT count(*) = 1 FROM revenant.leases WHERE lease = 'off'", 'who waited gets it afterwards');

# --- a second release is not to undo the first one's hold_off
$first = sql("SELECT revenant.try_acquire('twice', ttl => '1 h')");
$one->query_safe("BEGIN; SELECT revenant.release('twice', $first, hold_off => '1 h')");
my $again = session();
$again->query_until(qr/started/, "\\echo started\nSELECT 'again', revenant.release('twice', $first);\n");
becomes("SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND locktype IN ('transactionid', 'tuple')", 'it waits for the row');
$one->query_safe('COMMIT');
like($again->query_safe("SELECT revenant.try_acquire('twice', ttl => '1 h') IS NULL"), qr/^again\|f\nt$/, 'is told false, and the name is still held off');
$again->quit;

# --- shared fences of transactions that have not committed
$one->query_safe("BEGIN; SELECT revenant.fence('fences', revenant.acquire('fences', shared => true))");
is(sql("BEGIN; SELECT revenant.try_acquire_xact('fences', shared => true) > 0; COMMIT"), 't',
	'a shared holder that fences before it commits keeps no other shared one away');
$one->query_safe('COMMIT');

# --- a row that lapsed, and two shared acquirers
$first = sql("SELECT revenant.try_acquire('lapsed', ttl => '100 ms')");
becomes("SELECT NOT revenant.is_current('lapsed', $first)", 'it lapses');
$one->query_safe("BEGIN; SELECT revenant.try_acquire('lapsed', shared => true)");
is(sql("SET statement_timeout = '10 s'; SELECT revenant.try_acquire('lapsed', shared => true) IS NULL"), 't',
	'the second is told "busy" until the first, who removes the row, has committed');
$one->query_safe('ROLLBACK');
is(sql("SELECT revenant.try_acquire('lapsed', shared => true) > 0"), 't', 'then it removes the row itself');
$first = sql("SELECT revenant.try_acquire('lapsed', ttl => '100 ms')");
becomes("SELECT NOT revenant.is_current('lapsed', $first)", 'it lapses again');
$one->query_safe("BEGIN; SELECT revenant.try_acquire('lapsed', shared => true); ROLLBACK");
is(sql("SELECT revenant.try_acquire('lapsed', ttl => '1 h') > 0"), 't', 'and the row may come back all the same');
is(sql("SELECT count(*) FROM revenant.lease WHERE name = 'lapsed'"), '1', 'as one row');

# --- changes that nobody made
$first = sql("SELECT revenant.try_acquire('change', ttl => '100 ms')");
my $seen = sql("CALL revenant.await_change('change')");
becomes("SELECT NOT revenant.is_current('change', $first)", 'it lapses while nobody looks');
isnt(sql("CALL revenant.await_change('change', $seen, '1 min')"), $seen, 'which is a change for who looks later');
$seen = sql("CALL revenant.await_change('change')");
is(sql("CALL revenant.await_change('change', $seen, '100 ms')"), $seen, 'once');
my $holder = session();
$holder->query_safe("SELECT revenant.try_acquire('change')");
$seen = sql("CALL revenant.await_change('change')");
$holder->quit;
isnt(sql("CALL revenant.await_change('change', $seen, '1 min')"), $seen, 'the end of a session is one, too');

# --- what ended uses nothing up
is($one->query_safe("SELECT count(revenant.try_acquire('b' || i, ttl => '100 ms', bound => true)) FROM generate_series(1, 900) AS i"),
	'900', '900 bound leases');
becomes("SELECT count(*) = 0 FROM revenant.leases WHERE lease ~ '^b[0-9]'", 'lapse');
is($one->query_safe("SELECT count(revenant.try_acquire('c' || i, ttl => '1 h', bound => true)) FROM generate_series(1, 900) AS i"),
	'900', 'and make room for others');
cmp_ok($one->query_safe("SELECT count(*) FROM pg_locks WHERE locktype = 'userlock' AND pid = pg_backend_pid()"),
	'<', 1000, 'also in the lock table');
my $pooled = session();
$pooled->query_safe("SELECT revenant.try_acquire('pooled', shared => true);\nDISCARD ALL") for 1 .. 1010;
is($pooled->query_safe("SELECT revenant.try_acquire('pooled', shared => true) > 0"), 't',
	'a session that is given back by DISCARD ALL a thousand times may go on');
is($pooled->query_safe("SELECT count(revenant.try_acquire('p' || i)) FROM generate_series(1, 998) AS i"), '998', 'up to its limit');
my ($status, $out, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\nSELECT count(revenant.try_acquire('q' || i)) FROM generate_series(1, 999) AS i;
	SELECT revenant.try_acquire_all(ARRAY['q-x', 'q-y']);");
like($err, qr/54000/, 'which counts the names of a set');

$_->quit for $one, $two, $pooled;
$node->stop;
done_testing();
