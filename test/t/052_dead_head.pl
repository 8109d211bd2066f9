# Whoever waits at the head of the queue and dies is skipped at once, whether it waited for the queue, slept until a ttl holder was
# gone, or waited for what was fenced; and so is the one behind it.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "client_connection_check_interval = '20ms'");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION revenant');

sub sql { return $node->safe_psql('postgres', "SET statement_timeout = '30 s';\n$_[0]") }
sub becomes { my ($query, $name) = @_; ok($node->poll_query_until('postgres', $query), $name); return }

# A session that waits for the lease, and what it waits for.
sub waiter
{
	my ($name, $for, $query) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);

	$session->query_safe("SET application_name = '$name'");
	$session->query_until(qr/started/, "\\echo started\n$query;\n");
	becomes("SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = '$name' AND state = 'active' AND wait_event_type = '$for'", "$name waits");
	return $session;
}

sub pid { return sql("SELECT pid FROM pg_stat_activity WHERE application_name = '$_[0]'") }

my %die = (
	terminated => sub { sql("SELECT pg_terminate_backend($_[1])") },
	canceled => sub { sql("SELECT pg_cancel_backend($_[1])") },
	'left by its client' => sub { $_[0]->{run}->signal('KILL') });

foreach my $how (sort keys %die)
{
	foreach my $scope ("revenant.acquire('queue')", "revenant.acquire('queue', ttl => '1 h')", "revenant.acquire_xact('queue')")
	{
		foreach my $where ('in the queue', 'asleep', 'at a fence')
		{
			my $test = "$how $where, $scope";
			my $holder = $node->background_psql('postgres', on_error_stop => 0);
			my $token;

			if ($where eq 'in the queue')
			{
				$token = $holder->query_safe("SELECT revenant.acquire('queue')");
			}
			else
			{
				$token = $holder->query_safe("SELECT revenant.acquire('queue', ttl => '1 h')");
				$holder->query_safe("BEGIN; SELECT revenant.fence('queue', $token)");
				sql("SELECT revenant.release('queue', $token)") if $where eq 'at a fence';
			}
			my $first = waiter('first', $where eq 'asleep' ? 'Extension' : 'Lock', "SELECT $scope");
			my $second = waiter('second', 'Lock', "SELECT $scope");
			my $third = waiter('third', 'Lock', "SELECT 'third', revenant.acquire('queue')");
			my @pids = map { pid($_) } 'first', 'second';

			$die{$how}->($second, $pids[1]);
			$die{$how}->($first, $pids[0]);
			becomes("SELECT count(*) = 0 FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid) WHERE l.locktype = 'userlock' AND a.pid IN ($pids[0], $pids[1])",
				"$test: they have left the queue");
			$holder->query_safe('COMMIT') if $where ne 'in the queue';
			sql("SELECT revenant.release('queue', $token)") if $where eq 'asleep';
			$holder->query_safe("SELECT revenant.release('queue', $token)") if $where eq 'in the queue';
			like($third->query_safe("SELECT revenant.held_token('queue') > $token, revenant.release('queue', revenant.held_token('queue'))"),
				qr/^third\|\d+\nt\|t$/, "$test: the next one has it");
			$holder->quit;
			$third->quit;
			foreach my $dead ($first, $second)
			{
				if ($how eq 'canceled') { $dead->quit }
				else { $dead->{run}->kill_kill }
			}
		}
	}
}
is(sql('SELECT count(*) FROM revenant.leases'), '0', 'nobody holds it');
is(sql("SELECT count(*) FROM pg_locks WHERE locktype = 'userlock'"), '0', 'and nothing is left');

$node->stop;
done_testing();
