# The head of the queue sleeps while a ttl holder renews, fences, writes and releases, or is revoked: it keeps its place, is in the way
# of nothing that the holder does, and gets the lease when what is fenced is over, at every isolation level.

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
	CREATE TABLE guarded (a text);
	CREATE TABLE row_lock (a int);
	INSERT INTO row_lock VALUES (1);
	SELECT revenant.guard_table('guarded', 'sleep');
});

my %session;

sub sql { return $node->safe_psql('postgres', "SET statement_timeout = '30 s';\n$_[0]") }
sub becomes { my ($query, $name) = @_; ok($node->poll_query_until('postgres', $query), $name); return }

# A psql of its own for each part.
foreach my $name ('holder', 'first', 'second', 'admin')
{
	$session{$name} = $node->background_psql('postgres', on_error_stop => 0);
	$session{$name}->query_safe("SET application_name = '$name'; SET deadlock_timeout = '10 ms'");
}

# Starts a query that will wait; its answer comes with the session's next query.
sub starts
{
	my ($name, $query) = @_;
	$session{$name}->query_until(qr/started/, "\\echo started\n$query;\n");
	return;
}

sub waits
{
	my ($name, $for, $test) = @_;
	becomes("SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = '$name' AND state = 'active' AND wait_event_type = '$for'", $test);
	return;
}

# Who has or wants which lock: kind, mode, whether it is granted.
sub locks
{
	my ($name) = @_;
	return sql("SELECT string_agg(substr('?HFB', (objsubid & 3) + 1, 1) || ' ' || mode || CASE WHEN granted THEN '' ELSE ' wanted' END, ', ' ORDER BY objsubid & 3)"
		  . " FROM pg_locks JOIN pg_stat_activity AS a USING (pid) WHERE locktype = 'userlock' AND a.application_name = '$name'");
}

my $id = "'00000000-0000-0000-0000-00000000000a'";

foreach my $level ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
{
	foreach my $end ('release', 'own release', 'revoke', 'lapse')
	{
		my $test = lc($level) . ", $end";
		my $ttl = $end eq 'lapse' ? '5 s' : '1 h';
		my $token = sql("SELECT revenant.acquire('sleep', ttl => '$ttl', request_id => $id)");

		sql('TRUNCATE row_lock; INSERT INTO row_lock VALUES (1)');
		starts('first', "SELECT 'first', revenant.acquire('sleep')");
		waits('first', 'Extension', "$test: the first one sleeps");
		starts('second', "SELECT 'second', revenant.acquire('sleep', ttl => '1 h')");
		waits('second', 'Lock', "$test: the second one is in the queue");
		is(locks('first'), 'H ExclusiveLock', "$test: who sleeps has H, and not F");
		is(locks('second'), 'H ExclusiveLock wanted', "$test: which the next one waits for");
		is(sql("SELECT revenant.try_acquire('sleep') IS NULL, revenant.try_acquire_xact('sleep') IS NULL,"
				. " revenant.try_acquire('sleep', ttl => '1 h') IS NULL, revenant.try_acquire('sleep', shared => true) IS NULL"),
			't|t|t|t', "$test: nobody overtakes them");

		# whatever the holder does waits for neither of them
		if ($end ne 'lapse')
		{
			is($session{holder}->query_safe("SELECT revenant.renew('sleep', $token) IS NOT NULL, revenant.renew('sleep', $token, '2 h') IS NOT NULL"),
				't|t', "$test: it is renewed, and made longer");
			is(sql("SELECT revenant.acquire('sleep', ttl => '1 h', request_id => $id)"), $token,
				"$test: a request that is repeated is answered without the queue");
		}
		$session{holder}->query_safe("BEGIN ISOLATION LEVEL $level; SET LOCAL statement_timeout = '30 s'; SELECT count(*) FROM guarded");
		$session{holder}->query_safe("SELECT revenant.fence('sleep', $token); INSERT INTO guarded VALUES ('$test')");

		if ($end eq 'release')
		{
			is(sql("SELECT revenant.release('sleep', $token)"), 't', "$test: released by another session");
			waits('first', 'Lock', "$test: the sleeper now waits for what is fenced");
		}
		elsif ($end eq 'own release')
		{
			is($session{holder}->query_safe("SELECT revenant.release('sleep', $token)"), 't', "$test: released by the fenced transaction");
			waits('first', 'Extension', "$test: which the sleeper learns of at its commit");
		}
		elsif ($end eq 'revoke')
		{
			starts('admin', "SELECT 'revoked', revenant.revoke('sleep') = $token");
			waits('admin', 'Lock', "$test: the revocation waits for what is fenced");
			waits('first', 'Extension', "$test: and the sleeper for the revocation");
		}
		else
		{
			waits('first', 'Lock', "$test: the sleeper now waits for what is fenced");
		}
		is(sql("SELECT count(*) FROM revenant.leases WHERE lease = 'sleep' AND token > $token"), '0', "$test: nobody has got it");
		$session{holder}->query_safe('COMMIT');
		is($session{admin}->query_safe('SELECT 1'), $end eq 'revoke' ? "revoked|t\n1" : '1', "$test: revoked") if $end eq 'revoke';

		like($session{first}->query_safe("SELECT revenant.held_token('sleep') > $token, revenant.release('sleep', revenant.held_token('sleep'))"),
			qr/^first\|\d+\nt\|t$/, "$test: the first one gets it");
		my ($next) = $session{second}->query_safe('SELECT 1') =~ /^second\|(\d+)\n1$/;
		is(sql("SELECT revenant.is_current('sleep', $token), revenant.release('sleep', $next)"), 'f|t', "$test: and then the second one");
		is(sql("SELECT count(*) FROM guarded WHERE a = '$test'"), '1', "$test: what was fenced is there");
	}
}

# --- what is fenced waits for somebody else: no deadlock, however often the sleeper looks
my $token = sql("SELECT revenant.acquire('sleep', ttl => '1 h')");
$session{admin}->query_safe('BEGIN; UPDATE row_lock SET a = 2');
$session{holder}->query_safe("BEGIN; SELECT revenant.fence('sleep', $token)");
starts('holder', 'UPDATE row_lock SET a = 3');
waits('holder', 'Lock', 'a fenced transaction waits for a row');
is(sql("SET deadlock_timeout = '10 ms'; SELECT revenant.acquire('sleep', wait => '300 ms') IS NULL"), 't', 'which is none of the sleeper\'s: no deadlock');
$session{admin}->query_safe('COMMIT');
$session{holder}->query_safe('COMMIT');

# --- a release that is rolled back does not wake anybody for good
starts('first', "SELECT 'first', revenant.acquire('sleep')");
waits('first', 'Extension', 'the first one sleeps');
$session{holder}->query_safe("BEGIN; SELECT revenant.release('sleep', $token); ROLLBACK");
is(sql("SELECT revenant.is_current('sleep', $token), revenant.renew('sleep', $token) IS NOT NULL"), 't|t', 'a release that was rolled back is none');
waits('first', 'Extension', 'the first one sleeps on');
is(sql("SELECT revenant.release('sleep', $token)"), 't', 'until the next one');
like($session{first}->query_safe('SELECT 1'), qr/^first\|\d+\n1$/, 'and gets it');

# --- a set that waits for one name has those that come before it in the order of the locks, whichever that is
my @names = ('set-a', 'set-b', 'set-c');
my $had = 0;
foreach my $busy (@names)
{
	$token = $session{holder}->query_safe("SELECT revenant.acquire('$busy')");
	starts('first', "SELECT 'first', revenant.acquire_all('{set-a,set-b,set-c}')");
	waits('first', 'Lock', "a set waits for $busy");
	my $free = sql("SELECT count(revenant.try_acquire_xact(n)) FROM unnest(ARRAY['set-a', 'set-b', 'set-c']) AS n");
	$had += 2 - $free;
	$session{holder}->query_safe("SELECT revenant.release('$busy', $token)");
	like($session{first}->query_safe("SELECT revenant.release_all('{set-a,set-b,set-c}', revenant.held_token('set-a'))"), qr/^first\|\d+\n3$/, 'and gets all of them');
}
is($had, 0 + 1 + 2, 'meanwhile it had none, one and two of the others');

$session{$_}->quit foreach sort keys %session;
$node->stop;
done_testing();
