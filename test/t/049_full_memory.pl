# More leases than shared memory has room for, as a smaller setting and a restart leave them: none is lost, none is given away early, each can be
# renewed, fenced and released by its holder, and only a new one is refused.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use FullMemory;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $leases = 16000;				# three quarters of 16 MB hold them, seven eighths of 4 MB do not

my $node = full_memory_node($leases);
asks($node);
sql('CREATE TABLE guarded (id int)');
is(sql('SELECT count(*) FROM revenant.leases'), $leases, "$leases leases are held");
is(sql('SELECT count(*) FROM held WHERE token IS NULL'), 0, 'each with a token');
is(sql('CALL renew_leases(NULL)'), 0, 'each can be renewed');
is(sql('SELECT count(*) FROM kept_by_row'), 0, 'without a row');
my $brief = sql("SELECT revenant.try_acquire('brief', ttl => '8 s')");

# --- a restart with too little

less_memory($node);
$node->restart;
is(sql("SELECT count(*) FROM revenant.leases WHERE lease LIKE 'lease %'"), $leases, 'after a restart with less memory all are still held');
is(sql('CALL renew_leases(NULL)'), 0, 'each can be renewed');
my $rows = sql('SELECT count(*) FROM kept_by_row');
cmp_ok($rows, '>', 1000, "$rows of them by their rows");
cmp_ok($rows, '<', $leases, 'and the rest as ever');
is(sql('SELECT count(*) FROM revenant.leases WHERE remaining > \'59 min\''), $leases, 'the view tells their deadlines');
is(sql("SELECT revenant.renew('brief', $brief) IS NOT NULL"), 't', 'a brief one is renewed by its row, too');
sqlstate('53200', "SELECT revenant.try_acquire('new', ttl => '1 h')", 'a new one is refused');
sqlstate('53200', "SELECT revenant.try_acquire('new')", 'in session scope, too');
my ($name, $token) = split /\|/, sql('SELECT name, token FROM kept_by_row ORDER BY name LIMIT 1');
ok($name, 'one that is kept by its row');

# --- what its holder can do, and nobody else

is(sql("SELECT revenant.is_current('$name', $token), revenant.is_current('$name', $token - 1), revenant.is_current('$name', $token + 1)"),
	't|f|f', 'the token is the current one, and no other');
sqlstate('53200', "SELECT revenant.try_acquire('$name', ttl => '1 h')", 'it is not given away');
sqlstate('RV001', "SELECT revenant.fence('$name', $token - 1)", 'an old token fences nothing');
is(sql("SELECT revenant.release('$name', $token - 1)"), 'f', 'and releases nothing');
is(sql("SELECT revenant.renew('$name', $token - 1) IS NULL"), 't', 'and renews nothing');
sql("CREATE ROLE stranger; SELECT revenant.grant_usage('stranger')");
sqlstate('42501', "SET ROLE stranger; SELECT revenant.renew('$name', $token)", 'the token alone opens nothing');
sql("SELECT revenant.guard_table('guarded', '$name')");
sqlstate('RV008', 'INSERT INTO guarded VALUES (1)', 'a table that it guards cannot be written without it');
sql("BEGIN; SELECT revenant.fence('$name', $token); INSERT INTO guarded VALUES (1); COMMIT");
is(sql('SELECT count(*) FROM guarded'), 1, 'and can with it');

# a renewal by the row counts from its commit
my $deadline = sql("SELECT deadline_us FROM revenant.lease WHERE name = '$name'");
is(sql("BEGIN; SELECT revenant.renew('$name', $token, '2 h') > now() + interval '110 min'; ROLLBACK"), 't', 'a renewal in a transaction');
is(sql("SELECT deadline_us FROM revenant.lease WHERE name = '$name'"), $deadline, 'that is rolled back was none');
sql("BEGIN; SELECT revenant.renew('$name', $token, '2 h'); SELECT revenant.renew('$name', $token, '3 h'); COMMIT");
is(sql("SELECT l.ttl, r.remaining > '170 min' FROM revenant.lease AS l JOIN revenant.leases AS r ON r.lease = l.name WHERE l.name = '$name'"),
	'03:00:00|t', 'and one that committed is one, with its longer ttl');
is(sql("SELECT revenant.renew('$name', $token, '1 s') > now() + interval '2 h'"), 't', 'a shorter one never brings the deadline nearer');

# released, and rolled back
sql("BEGIN; SELECT revenant.release('$name', $token); ROLLBACK");
is(sql("SELECT revenant.is_current('$name', $token)"), 't', 'a release that was rolled back was none');
is(sql("BEGIN; SELECT revenant.release('$name', $token); SELECT revenant.is_current('$name', $token); ROLLBACK"), "t\nf", 'it is over for who released it');

# --- two at once, each by an entry of its own

my $one = $node->background_psql('postgres', on_error_stop => 0);
my $two = $node->background_psql('postgres', on_error_stop => 0);
$one->query_safe("BEGIN; SELECT revenant.fence('$name', $token)");
$two->query_safe("BEGIN; SELECT revenant.renew('$name', $token, '4 h')");
is($one->query_safe("SELECT revenant.is_current('$name', $token)"), 't', 'fenced here and renewed there');
$two->query_safe('COMMIT');
$one->query_safe("SELECT revenant.renew('$name', $token, '5 h'); COMMIT");
is(sql("SELECT ttl FROM revenant.lease WHERE name = '$name'"), '05:00:00', 'one after the other');
$two->query_safe("BEGIN; SELECT revenant.release('$name', $token)");
$one->query_until(qr/at it/, "\\echo at it\nSELECT revenant.renew('$name', $token) IS NULL AS lost;\n");
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"), 'a renewal beside a release waits for it');
$two->query_safe('COMMIT');
is($one->query_safe('SELECT 1'), "t\n1", 'and is lost then');
$_->quit foreach $one, $two;
is(sql("SELECT count(*) FROM revenant.lease WHERE name = '$name'"), 0, 'its row is gone');

# --- a lapse by the row; who waits does so until then, and the fence still keeps it

($name, $token) = split /\|/, sql('SELECT name, token FROM kept_by_row ORDER BY name LIMIT 1');
is(sql("SELECT revenant.revoke('$name', 'to make room')"), $token, 'one that is kept by its row can be revoked');
is(sql("SELECT revenant.is_current('$name', $token)"), 'f', 'and is over then');

# --- there is room again

# an entry in shared memory is made for one while its holder's transaction has one of its own
$one = $node->background_psql('postgres', on_error_stop => 0);
$two = $node->background_psql('postgres', on_error_stop => 0);
$one->query_safe("BEGIN; SELECT revenant.fence('brief', $brief)");
sql("DO \$\$ DECLARE h record; BEGIN FOR h IN SELECT * FROM held WHERE n <= 6000 LOOP PERFORM revenant.release(h.name, h.token); IF h.n % 500 = 0 THEN COMMIT; END IF; END LOOP; END \$\$");
sql('DELETE FROM held WHERE n <= 6000');
ok($node->poll_query_until('postgres', "SELECT revenant.try_acquire('new', ttl => '1 h') IS NOT NULL"), 'as soon as there is room a new one is granted');
$two->query_until(qr/at it/, "\\echo at it\nSELECT revenant.acquire('brief', ttl => '1 h', wait => '1 min') > $brief AS taken_over, revenant.is_current('brief', $brief);\n");
ok($node->poll_query_until('postgres', q{SELECT waiters = 1 FROM revenant.leases WHERE lease = 'brief'}), 'somebody waits for it in shared memory');
is(sql("SELECT revenant.is_current('brief', $brief)"), 't', 'where it is held');
my $until = $one->query_safe("SELECT extract(epoch FROM revenant.renew('brief', $brief, '12 s')); COMMIT");
is($two->query_safe('SELECT extract(epoch FROM clock_timestamp()) >= ' . $until), "t|f\nt", 'and it is not given away before the deadline that its holder was told');
$_->quit foreach $one, $two;

($name, $token) = split /\|/, sql('SELECT name, token FROM kept_by_row ORDER BY name LIMIT 1');
$deadline = sql("SELECT deadline_us FROM revenant.lease WHERE name = '$name'");
is(sql("SELECT revenant.try_acquire('$name', ttl => '1 h') IS NULL"), 't', 'one that was kept by its row is still held');
is(sql("SELECT revenant.is_current('$name', $token), revenant.renew('$name', $token) IS NOT NULL"), 't|t', 'by its holder');
is(sql("SELECT deadline_us FROM revenant.lease WHERE name = '$name'"), $deadline, 'and its row is left alone from then on');
is(sql("SELECT revenant.release('$name', $token)"), 't', 'and can be released');
is(sql("SELECT revenant.try_acquire('$name', ttl => '1 h') > $token"), 't', 'and taken by somebody else');

# --- a restart again: what is in the rows is no deadline of this server any more

sql("CREATE TABLE of_rows AS SELECT * FROM kept_by_row");
$node->stop('immediate');
$node->start;

is(sql("SELECT count(*) FROM of_rows AS r WHERE NOT revenant.is_current(r.name, r.token) AND EXISTS (SELECT FROM held AS h WHERE h.token = r.token AND h.name <> '$name')"),
	0, 'after a crash all are held again');
is(sql("SELECT count(*) FROM revenant.leases AS l JOIN of_rows AS r ON r.name = l.lease WHERE l.remaining > l.ttl"), 0, 'for their ttl');

$node->stop;
done_testing();
