# Who takes a message back while it is delivered waits, and then knows what became of it; a caller with whom the delivery of many messages would
# end in a deadlock is not made its victim.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";

use Client qw(monotonic);
use Mail;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "max_worker_processes = 24\nrevenant.max_runners = 8");
$node->start;
mail_setup($node, 'postgres');
mail_handler($node, 'postgres', 'broken', q{INSERT INTO public.applied (id, n) VALUES (id, (message ->> 'n')::bigint); RAISE EXCEPTION 'no';});
my ($control, $a, $b) = map { Client->new($node) } 1 .. 3;
my $until = sub { monotonic() + $PostgreSQL::Test::Utils::timeout_default };

sub waits
{
	my ($who, $name) = @_;

	ok($control->becomes("SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND $who"), $name);
	return;
}
my $delivery = "backend_type = 'revenant delivery'";

# --- cancel_timer and discard_message beside a delivery that is committed, or fails

foreach my $case ([ 'cancel_timer', 'noted', 'f', 1 ], [ 'discard_message', 'noted', undef, 1 ], [ 'cancel_timer', 'broken', 't', 0 ], [ 'discard_message', 'broken', '', 0 ])
{
	my ($function, $type, $answer, $applied) = @$case;
	my $name = "$function beside a delivery that " . ($applied ? 'commits' : 'fails');

	$control->query("SELECT revenant._debug_hold('delivery-before-handler')");
	my $timer = $a->query("SELECT revenant.send_after('$type', '$name', '{\"n\": 1}', '0')");
	waits($delivery, "$name: it is under way");
	$b->send("SELECT revenant.$function($timer)");
	waits("pid = $b->{pid}", '... who takes it back waits');
	is($a->query('SELECT count(*) FROM revenant.messages'), 1, '... others see it');
	$control->query("SELECT revenant._debug_let_go('delivery-before-handler')");
	Client::answers($until->(), $b) or die 'no answer';
	if (defined $answer)
	{
		is($b->answer, $answer, '... and is told what became of it');
	}
	else
	{
		like($b->{error}, qr/^42704/, '... and is told that it is gone');
	}
	ok($control->becomes('SELECT count(*) = 0 FROM revenant.messages'), '... then nothing is left');
	is($a->query("SELECT count(*) FROM applied WHERE id = '$name'"), $applied, '... and it is applied, or not');
}

# the other way round: it is taken back first, and the delivery does not wait for that
my $timer = $a->query("SELECT revenant.send_after('noted', 'first', '{\"n\": 1}', '0.2 s')");
$b->query('BEGIN');
$b->query("SELECT revenant.cancel_timer($timer)");
$a->query("SELECT revenant.send('noted', 'first', '{\"n\": 2}'), revenant.send_after('noted', 'second', '{\"n\": 3}', '0.3 s'), revenant.send_after('noted', 'first', '{\"n\": 4}', '0.4 s')");
ok($control->becomes("SELECT count(*) = 2 FROM applied WHERE n IN (2, 3)"), 'others go on');
is($a->query('SELECT count(*) FROM applied WHERE n = 4'), 0, 'but for what follows it to that entity');
$b->query('COMMIT');
ok($control->becomes("SELECT count(*) = 1 FROM applied WHERE n = 4"), 'until it is known');
is($a->query("SELECT count(*) FROM applied WHERE n = 1 AND id = 'first'"), 0, 'it is not applied');

# --- a deadlock that would be

# a caller has the second entity and wants the first one, which a delivery of both has in its transaction
# (a process begins with one message in each transaction)
$a->query("SELECT revenant.send('noted', 'warm', '{\"n\": 100}') FROM generate_series(1, 100)");
ok($control->becomes('SELECT count(*) = 100 AND count(DISTINCT xid) < 80 FROM applied WHERE n = 100'), 'many are delivered in one transaction');
$a->query("SELECT revenant.call('noted', x, '{\"n\": 0}') FROM unnest(ARRAY['one', 'two']) AS x");
$b->query("SET deadlock_timeout = '10 s'; BEGIN");
$b->query("SELECT revenant.call('noted', 'two', '{\"n\": 10}')");
my $conflicts = $a->query("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'");
$a->query("SELECT revenant.send('noted', 'one', '{\"n\": 11}'), revenant.send('noted', 'two', '{\"n\": 12}')");
$b->send("SELECT revenant.call('noted', 'one', '{\"n\": 13}')");
my $start = monotonic();
Client::answers($until->(), $b) or die 'no answer';
ok(!defined $b->{error}, 'a caller that has what a delivery wants, and wants what it has, is answered');
cmp_ok(monotonic() - $start, '<', 0.9, 'before anybody looks for a deadlock');
$b->query('COMMIT');
ok($control->becomes('SELECT count(*) = 1 FROM applied WHERE n = 12'), 'and the delivery goes on');
is($a->query("SELECT count(*) FROM applied WHERE n IN (10, 11, 12, 13)"), 4, 'all of it is applied');
is($a->query("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'"), $conflicts, 'nobody was a victim');

$_->quit foreach $control, $a, $b;
$node->stop('fast');
done_testing();
