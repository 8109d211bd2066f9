# Leases that shared memory has no room for, and two sessions at once: one by an entry of its own, the other by one in shared memory that
# came meanwhile. What is rolled back was nothing, nothing is given away early, nobody is told "lost" or ended who holds.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";

use Asks;
use FullMemory;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $leases = 30000;				# 16 MB have room for them, 4 MB for a third

my $node = full_memory_node($leases);
asks($node);
# the clock is moved past the first one's while the second one is still wanted
my %ttl = (grace => '100 s', awaited => '300 s');
my %brief = map { $_ => sql("SELECT revenant.try_acquire('$_', ttl => '$ttl{$_}')") } sort keys %ttl;
less_memory($node);

my ($one, $two);

# From here on there is no room; and again some.
sub fill
{
	$_->quit foreach grep { defined } $one, $two;
	$node->restart;
	($one, $two) = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 2;
	sql('CALL renew_leases(NULL)');
	cmp_ok(sql('SELECT count(*) FROM kept_by_row'), '>', 1000, 'some are kept by their rows');
	return;
}

my $freed = 0;

sub make_room
{
	my ($from, $to) = ($freed + 1, $freed += 3000);

	sql("DO \$\$ DECLARE h record; BEGIN FOR h IN SELECT * FROM held WHERE n BETWEEN $from AND $to LOOP PERFORM revenant.release(h.name, h.token); IF h.n % 500 = 0 THEN COMMIT; END IF; END LOOP; END \$\$");
	sql("DELETE FROM held WHERE n BETWEEN $from AND $to");
	ok($node->poll_query_until('postgres', "SELECT revenant.try_acquire('room $freed', ttl => '1 h') IS NOT NULL"), 'there is room');
	return;
}

sub row_kept { return split /\|/, sql("SELECT name, token FROM kept_by_row ORDER BY n DESC OFFSET $_[0] LIMIT 1") }

fill();

# --- many at once: nobody is told "lost" of what he holds, while others rewrite the row

my ($name, $token) = row_kept(0);
sql(qq{
	CREATE PROCEDURE again(count int, INOUT lost int) LANGUAGE plpgsql AS \$\$
	BEGIN
		lost := 0;
		FOR i IN 1 .. count LOOP
			IF revenant.renew('$name', $token) IS NULL THEN lost := lost + 1; END IF;
			IF NOT revenant.is_current('$name', $token) THEN lost := lost + 1; END IF;
			COMMIT;
		END LOOP;
	END \$\$});
$one->query_until(qr/at it/, "\\echo at it\nCALL again(2000, NULL);\n");
is($two->query_safe('CALL again(2000, NULL)'), 0, 'two renew at once, and none is lost');
is($one->query_safe('SELECT 1'), "0\n1", 'here neither');

# --- two renewals at once: the longer one stays

$one->query_safe("BEGIN; SELECT revenant.renew('$name', $token, '5 h')");
$two->query_until(qr/at it/, "\\echo at it\nSELECT revenant.renew('$name', $token) > now() + interval '4 h';\n");
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"), 'a renewal waits for a longer one');
$one->query_safe('COMMIT');
is($two->query_safe('SELECT 1'), "t\n1", 'and is told the later deadline');
is(sql("SELECT remaining > '4 h' FROM revenant.leases WHERE lease = '$name'"), 't', 'which is the one that holds');

# --- a fenced transaction whose lease lives on by its row is not ended

$one->query_safe("BEGIN; SELECT revenant.fence('grace', $brief{grace})");
my $pid = $one->query_safe('SELECT pg_backend_pid()');
make_room();
$two->query_until(qr/at it/, "\\echo at it\nSET revenant.fence_grace = '1 s';\nSELECT revenant.acquire('grace', ttl => '1 h', wait => '9 min') > $brief{grace} AS taken_over;\n");
ok($node->poll_query_until('postgres', "SELECT waiters = 1 FROM revenant.leases WHERE lease = 'grace'"), 'somebody waits for a lease that is fenced');
sql("SELECT revenant.renew('grace', $brief{grace}, '10 min')");
sql("SELECT revenant._debug_move_clock('110 s')");	# past the deadline that the waiter saw, and the grace
is(sql("SELECT revenant.is_current('grace', $brief{grace})"), 't', 'it was renewed and lives on');
my $looked = time + 3;
ok($node->poll_query_until('postgres', "SELECT extract(epoch FROM clock_timestamp()) > $looked"), 'for a while');
is(sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid"), 1, 'nobody ended the fenced transaction');
is($one->query_safe("SELECT revenant.is_current('grace', $brief{grace}); COMMIT"), 't', 'which holds it to its end');
is(sql("SELECT revenant.release('grace', $brief{grace})"), 't', 'and is released');
is($two->query_safe('SELECT 1'), "t\n1", 'and then taken by who waited');

# --- who awaits a change hears of the real lapse, not of the one that a renewal by the row put off

fill();
$one->query_safe("BEGIN; SELECT revenant.fence('awaited', $brief{awaited})");
make_room();
$two->query_until(qr/at it/, "\\echo at it\nCALL revenant.await_change('awaited', NULL) \\gset\nCALL revenant.await_change('awaited', :seen, '1 h') \\gset a\nSELECT NOT revenant.is_current('awaited', $brief{awaited}), :seen <> :aseen;\n");
ok($node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'CALL revenant.await_change(%1 h%'"), 'somebody awaits a change');
sql("SELECT revenant.renew('awaited', $brief{awaited}, '600 s')");
$one->query_safe('COMMIT');
sql("SELECT revenant._debug_move_clock('310 s')");
is(sql("SELECT revenant.is_current('awaited', $brief{awaited})"), 't', 'it lives on');
sql("SELECT revenant._debug_move_clock('300 s')");
is($two->query_safe('SELECT 1'), "t|t\n1", 'the change is that it lapsed');

# --- what is rolled back was nothing, also to who looked in the middle

foreach my $what ("release('%s', %s)", "renew('%s', %s, '9 h')", "revoke('%s', '%s')")
{
	fill();
	($name, $token) = row_kept(10);
	$one->query_safe("BEGIN; SELECT revenant.fence('$name', $token)");
	make_room();
	$two->query_safe(sprintf("BEGIN; SELECT revenant.$what", $name, $token)) if $what !~ /revoke/;
	$one->query_safe('COMMIT');
	$two->query_safe(sprintf("BEGIN; SELECT revenant.$what", $name, $token)) if $what =~ /revoke/;
	$two->query_safe("SELECT revenant.is_current('$name', $token); ROLLBACK");
	is(sql("SELECT revenant.is_current('$name', $token), revenant.try_acquire('$name') IS NULL, revenant.try_acquire('$name', ttl => '1 h') IS NULL"),
		't|t|t', "rolled back: $what");
	is(sql("SELECT remaining < '5 h' FROM revenant.leases WHERE lease = '$name'"), 't', 'with the deadline that it had');
	is(sql('SELECT revenant._lease_check()'), '', 'and memory and rows agree');
}

$_->quit foreach $one, $two;
$node->stop;
done_testing();
