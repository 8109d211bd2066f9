# A hundred thousand timers that are not due cost nothing: neither the supervisor, nor the message that is sent now. Many messages are
# applied quickly, and what is behind a failure does not make it slow.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use Client qw(monotonic);
use Mail;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "max_worker_processes = 24\nrevenant.max_runners = 8\nlog_statement = none\nlog_min_messages = warning\nautovacuum = off");
$node->start;
asks($node);
mail_setup($node, 'postgres');
# one that does nothing besides its state
mail_handler($node, 'postgres', 'counter', 'NULL;');

my $supervisor = sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'");

# The processor time that a process has had, in milliseconds.
sub cpu_ms
{
	my ($pid) = @_;
	my @fields = split / /, (split /\) /, slurp_file("/proc/$pid/stat"))[-1];

	return ($fields[11] + $fields[12]) * 10;
}

sub ticks { return sql('SELECT supervisor_ticks FROM revenant.stat_database') }

# What the supervisor does in a while in which nothing happens: ticks, and milliseconds of processor.
sub idle
{
	my ($name) = @_;
	my ($ticks, $cpu, $until) = (ticks(), cpu_ms($supervisor), monotonic() + 3);

	select undef, undef, undef, 0.1 while monotonic() < $until;
	my @did = (ticks() - $ticks, cpu_ms($supervisor) - $cpu);
	diag("$name: $did[0] ticks, $did[1] ms of processor in 3 s");
	return @did;
}

# The median time from a send to its effect, in milliseconds.
sub latency
{
	my ($name) = @_;
	my $client = Client->new($node);
	my @took;

	foreach my $n (1 .. 50)
	{
		my $start = monotonic();
		$client->query("SELECT revenant.send('noted', 'fast', '{\"n\": $n}')");
		1 until $client->query("SELECT count(*) FROM applied WHERE id = 'fast' AND n = $n") ne '0' || monotonic() > $start + 5;
		push @took, 1000 * (monotonic() - $start);
	}
	$client->query("DELETE FROM applied");
	$client->quit;
	@took = sort { $a <=> $b } @took;
	diag(sprintf '%s: median %.2f ms, longest %.2f ms', $name, $took[25], $took[-1]);
	return $took[25];
}

my $prompt = 20;
cmp_ok(latency('nothing pending'), '<', $prompt, 'a message is applied promptly');
becomes("SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'revenant delivery'", 'nothing is left to do');
my @before = idle('nothing pending');

my $start = monotonic();
sql("SELECT revenant.send_after('counter', 'e ' || n % 1000, '{}', '1 day') FROM generate_series(1, 100000) AS n");
diag(sprintf 'a hundred thousand timers in %.2f s', monotonic() - $start);
sql('VACUUM ANALYZE revenant.message');
becomes("SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'revenant delivery'", 'no process waits for them');
my @after = idle('a hundred thousand timers');
cmp_ok($after[0], '<=', $before[0] + 2, 'the supervisor does not tick more often for them');
cmp_ok($after[1], '<=', $before[1] + 50, 'nor does it work');
cmp_ok(latency('a hundred thousand timers'), '<', $prompt, 'a message beside them is applied promptly');
$start = monotonic();
is(sql("SELECT count(*), count(*) FILTER (WHERE revenant.cancel_timer(message_id)) FROM revenant.messages WHERE type = 'counter'"), '100000|100000', 'all of them can be cancelled');
diag(sprintf 'cancelled in %.2f s', monotonic() - $start);
sql('VACUUM revenant.message');

# --- many messages

$start = monotonic();
sql("SELECT revenant.send('counter', 'e ' || n % 1000, '{}') FROM generate_series(1, 50000) AS n");
diag(sprintf 'sent at %.0f a second', 50000 / (monotonic() - $start));
$start = monotonic();
becomes('SELECT sum(version) = 50000 FROM counter_state', 'fifty thousand are applied');
my $rate = 50000 / (monotonic() - $start);
diag(sprintf 'applied at %.0f a second', $rate);
cmp_ok($rate, '>', 1000, 'quickly');
is(sql('SELECT count(*) FROM revenant.message'), 0, 'and gone');

# --- behind a failure

mail_handler($node, 'postgres', 'broken', q{RAISE EXCEPTION 'no';});
sql("SELECT revenant.send('broken', 'a', '{}'), revenant.send('broken', 'b', '{}')");
becomes("SELECT count(*) = 2 FROM revenant.messages WHERE state = 'retrying'", 'two fail');
sql("SELECT revenant.send('broken', 'a', '{}') FROM generate_series(1, 20000)");
cmp_ok(latency('behind twenty thousand that wait for a failure'), '<', 20 * $prompt, 'a message behind those that wait is applied promptly');
# no process is started again and again only to see that
sql("UPDATE revenant.message SET deliver_at = now() + interval '1 min' WHERE lane = 2");
my $pid = sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'revenant delivery'");
my $until = monotonic() + 2.5;
select undef, undef, undef, 0.1 while monotonic() < $until;
is(sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'revenant delivery'"), $pid, 'one process waits with them');

$node->stop('fast');
unlike(slurp_file($node->logfile), qr/ (WARNING|PANIC):|terminated by signal|revenant supervisor could not/, 'and the log has no complaint');
done_testing();
