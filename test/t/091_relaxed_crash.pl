# Whatever is killed, at any moment: what a strict call was told is there, what a relaxed one was told is there if it is older than
# flush_every, and no version is given to two states.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use Client qw(monotonic);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Relaxed;
use Test::More;

my $flush_every = 0.2;
my $tolerance = 2;				# of a flusher on a machine that has other things to do
my $entities = 7;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "max_worker_processes = 24\nrestart_after_crash = on\nfsync = on\nsynchronous_commit = off\nautovacuum = off");
$node->start;
asks($node);
relaxed_setup($node);
relaxed_type($node, 'beats', "durability => 'interval', flush_every => '$flush_every s', idle_timeout => '300 ms'");
relaxed_type($node, 'rests', "durability => 'on_stop', idle_timeout => '500 ms'");

my %state;						# of each version of an entity that a client was told
my %twice;						# versions that were given to two states
my (%last, %strict, %first_of_life);	# "type id" => [n, version, when]

# Calls from several sessions until all are cut off. Each call answers with its state and version, in one transaction.
sub load_until
{
	my ($seconds, $kill) = @_;
	my @clients = map { Client->new($node) } 1 .. 6;
	my $until = monotonic() + $seconds;
	my $killed = 0;
	my ($calls, $cut) = (0, 0);

	while (grep { !$_->{gone} } @clients)
	{
		foreach my $client (grep { !$_->{gone} && !$_->{busy} } @clients)
		{
			my $type = rand() < 0.7 ? 'beats' : 'rests';
			my $id = 'e' . int rand $entities;
			$client->{of} = "$type $id";
			# some are never called strictly, so that nobody but the flusher writes them
			$client->{how} = $id lt 'e5' && rand() < 0.05 ? ", 'strict'" : '';
			# what is added is another number each time, so that no state comes again
			my $add = 1 + int rand 1e6;
			eval { $client->send("SELECT revenant.call('$type', '$id', '$add'$client->{how}); SELECT version, durable FROM revenant.receipt()") };
			@$client{qw(busy error)} = (0, $@) if $@;
		}
		if (!$killed && monotonic() > $until)
		{
			$killed = 1;
			$kill->();
		}
		# whoever has answered by now
		Client::answers(monotonic() + 0.001, grep { !$_->{gone} } @clients);
		die 'it goes on and on' if monotonic() > $until + 60;
		foreach my $client (grep { !$_->{gone} && !$_->{busy} } @clients)
		{
			if (defined $client->{error})
			{
				$client->{gone} = 1;
				$cut++;
				next;
			}
			next unless @{ $client->{rows} } == 2;
			$calls++;
			my ($n, $version, $durable) = ($client->{rows}[0], split /\|/, $client->{rows}[1]);
			my $told = \$state{"$client->{of} $version"};
			$twice{"$client->{of} version $version: $$told, $n"} = 1 if defined $$told && $$told != $n;
			$$told = $n;
			my $answer = { n => $n, version => $version, at => $client->{got} };
			push @{ $last{ $client->{of} } }, $answer;
			$strict{ $client->{of} } = $answer if $client->{how} && (!$strict{ $client->{of} } || $strict{ $client->{of} }{version} < $version);
			fail("a strict call is not durable: $client->{of} $version") if $client->{how} && $durable ne 't';
		}
	}
	return ($calls, $cut);
}

# What is there after the crash that came at this time.
sub check
{
	my ($name, $at) = @_;
	my (@lost, @lost_strict, @backwards);
	my $oldest = 0;

	foreach my $type ('beats', 'rests')
	{
		my %row = map { my ($id, @rest) = split /\|/; ("$type $id" => \@rest) } split /\n/, sql("SELECT id, state ->> 'n', version, reserved FROM ${type}_state");
		foreach my $of (grep { /^$type/ } keys %last)
		{
			my ($n, $version) = @{ $row{$of} // [ 0, 0 ] };
			push @lost_strict, "$of: $version < $strict{$of}{version}" if $strict{$of} && $version < $strict{$of}{version};
			push @backwards, "$of: version $version is $n, not $state{qq($of $version)}" if defined $state{"$of $version"} && $state{"$of $version"} != $n;
			foreach my $answer (grep { $_->{version} > $version } @{ $last{$of} })
			{
				my $age = $at - $answer->{at};
				$oldest = $age if $type eq 'beats' && $age > $oldest;
				push @lost, sprintf '%s %d of %.2f s before', $of, $answer->{version}, $age if $type eq 'beats' && $age > $flush_every + $tolerance;
			}
		}
	}
	is(join(', ', @lost_strict), '', "$name: every strict call is there");
	is(join(', ', @lost), '', sprintf '... and every relaxed one that is older than its flush_every; the oldest that is not was told %.3f s before', $oldest);
	is(join(', ', @backwards), '', '... rows say what clients were told of their versions');
	is(join(', ', sort keys %twice), '', '... no version was given to two states');
	%last = ();
	return;
}

my @victims = ("backend_type = 'client backend' AND pid <> pg_backend_pid()", "backend_type = 'revenant flush'", "backend_type = 'revenant supervisor'", "backend_type = 'walwriter'");
foreach my $round (0 .. 7)
{
	my $at;
	my $logged = -s $node->logfile;
	my ($calls, $cut) = load_until($round % 4 ? 1 + rand 1 : 4, sub {
		my $pid = sql("SELECT pid FROM pg_stat_activity WHERE $victims[$round % @victims] ORDER BY random() LIMIT 1");
		$at = monotonic();
		if ($pid) { system_log('pg_ctl', 'kill', 'KILL', $pid) }
		else { $node->stop('immediate') }
	});
	is($cut, 6, "round $round: all clients are cut off after $calls calls");
	$node->_update_pid(-1);
	$node->start if !-e $node->data_dir . '/postmaster.pid';
	ok($node->wait_for_log(qr/database system is ready to accept connections/, $logged), '... the server is back');
	check("round $round", $at);
}

# an immediate stop
my $at;
load_until(1, sub { $at = monotonic(); $node->stop('immediate') });
$node->start;
check('an immediate stop', $at);

# a clean end skips no version
warm($node, 'beats', 'clean');
sql("SELECT revenant.call('beats', 'clean', '1')") foreach 1 .. 3;
my $version = sql("SELECT version FROM revenant.read_entity('beats', 'clean')");
$node->restart;
sql("SELECT revenant.call('beats', 'clean', '1')");
is(sql("SELECT version FROM revenant.read_entity('beats', 'clean')"), $version + 1, 'after a clean end versions go on by one');

$node->stop('fast');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|signal 11|signal 6/, 'nothing has crashed by itself');
done_testing();
