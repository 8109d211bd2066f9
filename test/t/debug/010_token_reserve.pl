# Nobody gets a token of a block that is not durable, and a crash in the middle of its reservation repeats none.

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
# Nobody flushes by chance what a reservation did not flush, and no supervisor reserves after the restart.
$node->append_conf('postgresql.conf', "revenant.enabled = off\nwal_writer_delay = '10s'");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION revenant');

my $thousand = 'SELECT max(revenant.try_acquire_xact(i::text)) FROM generate_series(1, 1000) AS i';
my $timer = IPC::Run::timer($PostgreSQL::Test::Utils::timeout_default);

# A session that says "done" after each line; with what it printed in $out.
sub session
{
	my ($name) = @_;
	my %session = (in => '', out => '');

	$session{psql} = IPC::Run::start([ 'psql', '-X', '-q', '-A', '-t', '-f', '-', '-d',
			$node->connstr('postgres') . " application_name=$name" ],
		'<', \$session{in}, '>', \$session{out}, '2>', \$session{err}, $timer);
	return \%session;
}

sub send_line
{
	my ($session, $line) = @_;

	$session->{out} = '';
	$session->{in} .= "$line\n\\echo done\n";
	$session->{psql}->pump_nb;
}

sub answer
{
	my ($session) = @_;

	pump_until($session->{psql}, $timer, \$session->{out}, qr/^done$/m) or die 'no answer';
	return $session->{out};
}

sub waiting
{
	my ($names) = @_;

	return $node->poll_query_until('postgres',
		"SELECT count(*) = array_length('{$names}'::text[], 1) FROM pg_stat_activity"
		  . " WHERE wait_event_type = 'Lock' AND application_name = ANY ('{$names}')");
}

foreach my $point ('token-before-mark', 'token-before-publish')
{
	my $control = session('control');
	my $first = session('first');
	my $second = session('second');

	$node->safe_psql('postgres', join(';', ($thousand) x 8));
	my $before = $node->safe_psql('postgres', 'SELECT last_value FROM revenant._token_mark');
	send_line($control, "SELECT revenant._debug_hold('$point');");
	answer($control);
	send_line($first, "$thousand;");
	ok(waiting('first'), "$point: the one who reserves is stopped");
	send_line($second, "SELECT revenant.try_acquire_xact('second');");
	ok(waiting('first,second'), "$point: and another one gets no token meanwhile");

	my $mark = $node->safe_psql('postgres', 'SELECT last_value FROM revenant._token_mark');
	if ($point eq 'token-before-mark')
	{
		is($mark, $before, "$point: the mark is that of the block before");
	}
	else
	{
		cmp_ok($mark, '>', $before, "$point: the mark is above the one before");
	}
	$node->stop('immediate');
	$_->{psql}->finish foreach $control, $first, $second;
	$node->start;

	cmp_ok($node->safe_psql('postgres', 'SELECT last_value FROM revenant._token_mark'),
		'>=', $mark, "$point: the mark is durable");
	cmp_ok($node->safe_psql('postgres', "SELECT revenant.try_acquire_xact('next')"),
		'>', $before, "$point: and the next token is of a block above");
}

# Without a crash: the one who reserves can be cancelled, and the other goes on.
my $control = session('control');
my $first = session('first');
my $second = session('second');
my $before = $node->safe_psql('postgres', 'SELECT last_value FROM revenant._token_mark');
$node->safe_psql('postgres', join(';', ($thousand) x 8));
send_line($control, "SELECT revenant._debug_hold('token-before-publish');");
answer($control);
send_line($first, "$thousand;");
waiting('first') or die 'nobody reserves';
send_line($second, "SELECT revenant.try_acquire_xact('second');");
waiting('first,second') or die 'nobody waits';
send_line($control,
	"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'first';"
	  . " SELECT revenant._debug_let_go('token-before-publish');");
answer($control);
my ($token) = answer($second) =~ /^(\d+)$/m;
cmp_ok($token, '>', $before, 'after a cancelled reservation there is another');
answer($first);
like($first->{err}, qr/canceling statement/, 'which the one who was cancelled did not get');
$_->{in} .= "\\q\n" foreach $control, $first, $second;
$_->{psql}->finish foreach $control, $first, $second;

done_testing();
