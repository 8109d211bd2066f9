# Whatever is killed, what a client was told is sent is applied once, and what it was not told at most once.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use Client qw(monotonic);
use Cwd ();
use Mail;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "max_worker_processes = 24\nrevenant.max_runners = 8\nrestart_after_crash = on");
$node->start;
asks($node);
sql('CREATE ROLE alice LOGIN');
mail_setup($node, 'postgres');
sql("SELECT revenant.grant_usage('alice')");

my $n = 0;
my %acknowledged;
my %doubtful;

# Sends from several sessions until one of them is cut off, which `$kill` sees to after a while.
sub send_until
{
	my ($kill) = @_;
	my @senders = map { Client->new($node) } 1 .. 4;
	my $until = monotonic() + 0.7;
	my $killed = 0;
	my %sent;

	$senders[$_]->query('SET ROLE alice') foreach 0, 1;
	while (1)
	{
		foreach my $sender (@senders)
		{
			$n++;
			$sent{$sender} = $n;
			eval { $sender->send("SELECT revenant.send('noted', 'e ' || $n % 10, '{\"n\": $n}')") };
			@$sender{qw(busy error)} = (0, $@) if $@;
		}
		if (!$killed && monotonic() > $until)
		{
			$killed = 1;
			$kill->();
		}
		Client::answers(monotonic() + $PostgreSQL::Test::Utils::timeout_default, @senders) or die 'no answer';
		$acknowledged{ $sent{$_} } = 1 foreach grep { !defined $_->{error} } @senders;
		$doubtful{ $sent{$_} } = 1 foreach grep { defined $_->{error} } @senders;
		last if grep { defined $_->{error} } @senders;
	}
	return;
}

sub all_is_applied
{
	my ($name) = @_;

	becomes('SELECT count(*) = 0 FROM revenant.messages', "$name: all is delivered");
	my %applied;
	$applied{$_}++ foreach split /\n/, sql('SELECT n FROM applied');
	is(join(' ', sort { $a <=> $b } grep { !$applied{$_} } keys %acknowledged), '', 'what was acknowledged is applied');
	is(join(' ', sort { $a <=> $b } grep { $applied{$_} > 1 } keys %applied), '', 'nothing is applied twice');
	is(join(' ', sort { $a <=> $b } grep { !$acknowledged{$_} && !$doubtful{$_} } keys %applied), '', 'nothing else is applied');
	is(sql("SELECT sum((state)::int) = (SELECT count(*) FROM applied) FROM noted_state"), 't', 'the entities have counted as many');
	diag(sprintf '%d acknowledged, %d in doubt', scalar keys %acknowledged, scalar keys %doubtful);
	return;
}

foreach my $round (1 .. 2)
{
	send_until(sub { $node->kill9 });
	# what is left of the old server must be gone before another one can begin
	my $until = monotonic() + $PostgreSQL::Test::Utils::timeout_default;
	my $place = Cwd::realpath($node->data_dir);
	1 while grep({ (readlink($_) // '') eq $place } glob '/proc/[0-9]*/cwd') && monotonic() < $until;
	unlink $node->data_dir . '/postmaster.pid', $node->host . '/.s.PGSQL.' . $node->port . '.lock';
	$node->start;
	all_is_applied("the server is killed, $round");
}

# the process that delivers is killed, which restarts the server
send_until(sub {
	my $pid = sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'revenant delivery' LIMIT 1");
	PostgreSQL::Test::Utils::system_log('pg_ctl', 'kill', 'KILL', $pid);
});
ok($node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()'), 'the server is back');
all_is_applied('the process that delivers is killed');

# it is terminated, again and again
my $pid_of_delivery = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type IN ('revenant delivery', 'revenant supervisor')";
my @senders = map { Client->new($node) } 1 .. 4;
foreach my $round (1 .. 200)
{
	foreach my $sender (@senders)
	{
		$n++;
		$acknowledged{$n} = 1;
		$sender->send("SELECT revenant.send('noted', 'e ' || $n % 10, '{\"n\": $n}')");
	}
	sql($pid_of_delivery) if $round % 20 == 0;
	Client::answers(monotonic() + $PostgreSQL::Test::Utils::timeout_default, @senders) or die 'no answer';
	$_->answer foreach @senders;
}
all_is_applied('processes are terminated');

$node->stop('fast');
done_testing();
