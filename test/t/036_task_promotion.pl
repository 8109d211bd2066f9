# A standby that had crashed, or whose databases had nothing of ours for long, still runs the tasks soon after its promotion.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->start;
$primary->safe_psql('postgres', 'CREATE EXTENSION revenant; CREATE DATABASE late');
$primary->safe_psql('postgres', "SELECT revenant.create_task('daemon', 'SELECT pg_sleep(3600)')");
$primary->backup('base');
my $late = $primary->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = 'late'");

sub standby
{
	my ($name) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init_from_backup($primary, 'base', has_streaming => 1);
	$node->append_conf('postgresql.conf', "restart_after_crash = on\nlog_min_messages = debug1");
	$node->start;
	ok( $node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'revenant supervisor' AND datname = 'postgres'"),
		"$name: a supervisor waits");
	return $node;
}

my $crashed = standby('crashed');
my $idle = standby('idle');

# --- a database is looked at in vain, ever more rarely

my $probe = qr/starting background worker process "revenant supervisor for database $late"/;
$idle->poll_query_until('postgres', 'SELECT true');
my $deadline = time + 60;
while (time < $deadline && (() = slurp_file($idle->logfile) =~ /$probe/g) < 3)
{
	$idle->poll_query_until('postgres', 'SELECT pg_sleep(0.1) IS NOT NULL');
}
$primary->safe_psql('late', "CREATE EXTENSION revenant; SELECT revenant.create_task('late', 'SELECT pg_sleep(3600)')");
$primary->wait_for_catchup($idle, 'replay', $primary->lsn('insert'));
$primary->wait_for_catchup($crashed, 'replay', $primary->lsn('insert'));

# --- crash of the other one

my $launcher = $crashed->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'revenant launcher'");
kill 'QUIT', $launcher;
ok( $crashed->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'revenant supervisor' AND datname = 'postgres'
		 AND NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $launcher)"),
	'after a crash the supervisor waits again');
$primary->stop('immediate');

foreach my $promoted ([ $idle, 'late' ], [ $crashed, 'postgres' ])
{
	my ($node, $database) = @$promoted;
	$node->promote;
	my $start = time;
	ok($node->poll_query_until($database, "SELECT phase = 'leading' FROM revenant.tasks"), $node->name . ': the task runs after the promotion');
	cmp_ok(time - $start, '<', 2.5, sprintf('soon: %.1f s', time - $start));
}

done_testing();
