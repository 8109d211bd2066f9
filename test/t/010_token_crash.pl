# A crash repeats no token and lowers none, whatever was asked for when it came.

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $sessions = 8;
my $rounds = 3;
my $block = 8192;
my $dir = PostgreSQL::Test::Utils::tempdir;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
# Nobody flushes by chance what a reservation did not flush.
$node->append_conf('postgresql.conf', "log_statement = none\nwal_writer_delay = '10s'");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION revenant');

sub mark
{
	return $node->safe_psql('postgres', 'SELECT last_value FROM revenant._token_mark');
}

# A psql that runs a script of its own until the server is gone; what it prints is in $dir/$name.
sub start_session
{
	my ($name, $script) = @_;

	my @command = ('psql', '-X', '-q', '-A', '-t', '-v', 'ON_ERROR_STOP=1', '-v', "name=$name",
		'-f', $script, '-d', $node->connstr('postgres'));
	return IPC::Run::start(\@command, '<', \undef, '>', "$dir/$name", '2>', "$dir/$name.err");
}

my $twenty = "SELECT revenant.try_acquire_xact(:'name' || i) FROM generate_series(1, 20) AS i;\n";
append_to_file("$dir/xact.sql", $twenty x 30_000);
my $pair = "SELECT revenant.try_acquire(:'name') AS token \\gset\n"
  . "\\echo :token\n"
  . "SELECT revenant.release(:'name', :token) AS released \\gset\n";
append_to_file("$dir/session.sql", $pair x 30_000);

my %seen;
my $greatest = 0;
foreach my $round (1 .. $rounds)
{
	my $synchronous_commit = $round % 2 ? 'on' : 'off';
	my $name = "round $round, synchronous_commit = $synchronous_commit";

	$node->safe_psql('postgres', "ALTER SYSTEM SET synchronous_commit = $synchronous_commit");
	$node->reload;

	my $enough = mark() + $block;
	my @running = map { start_session("s$_", $_ % 2 ? "$dir/xact.sql" : "$dir/session.sql") } 1 .. $sessions;
	$node->poll_query_until('postgres', "SELECT last_value > $enough FROM revenant._token_mark")
	  or die 'the sessions get no tokens';
	$node->stop('immediate');
	$_->finish foreach @running;

	my ($tokens, $repeated, $unordered, $late) = (0, 0, 0, 0);
	my $before = $greatest;
	foreach my $session (1 .. $sessions)
	{
		my $last = 0;

		# A line that the crash cut off is no token.
		my @lines = slurp_file("$dir/s$session") =~ /^(\d+)\n/mg;
		foreach my $token (@lines)
		{
			$tokens++;
			$repeated++ if $seen{$token}++;
			$unordered++ if $token <= $last;
			$late++ if $token <= $before;
			$last = $token;
			$greatest = $token if $token > $greatest;
		}
	}
	cmp_ok($tokens, '>', $block / 2, "$name: there were tokens");
	is($repeated, 0, "$name: none twice");
	is($unordered, 0, "$name: no session got a lower one after a higher");
	is($late, 0, "$name: none from before the last crash");
	$node->start;
}

# Nothing but the reservation itself flushes its block: no transaction commits after it.
foreach my $blocks (1, 3)
{
	my ($in, $out, $err) = ('', '', '');
	my $timer = IPC::Run::timer($PostgreSQL::Test::Utils::timeout_default);
	my $psql = IPC::Run::start([ 'psql', '-X', '-q', '-A', '-t', '-f', '-', '-d', $node->connstr('postgres') ],
		'<', \$in, '>', \$out, '2>', \$err, $timer);
	my $first = $node->safe_psql('postgres', "SELECT revenant.try_acquire_xact('first')");

	cmp_ok($first, '>', $greatest, 'the first token after a crash is above all before it');
	$node->safe_psql('postgres',
		join(';', ("SELECT max(revenant.try_acquire_xact(i::text)) FROM generate_series(1, 1000) AS i") x (8 * $blocks)));
	my $mark = mark();
	$in .= "BEGIN; SELECT max(revenant.try_acquire_xact(i::text)) AS last FROM generate_series(1, 1000) AS i \\gset\n"
	  . "\\echo got :last\n";
	ok(pump_until($psql, $timer, \$out, qr/^got \d+$/m), 'tokens in a transaction that stays open');
	($greatest) = $out =~ /^got (\d+)$/m;
	cmp_ok($greatest, '>', $mark, 'from a block that it reserved itself');
	$node->stop('immediate');
	$psql->finish;
	$node->start;
	my $next = $node->safe_psql('postgres', "SELECT revenant.try_acquire_xact('next')");
	cmp_ok($next, '>', $greatest, 'it was flushed: no token of it comes again after a crash');
	$greatest = $next;
}

done_testing();
