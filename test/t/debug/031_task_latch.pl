# What happens while the supervisor waits for a lock, or a runner is between two steps, is not lost.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
# its timer sets the latch, too, and hides what this is about
$node->append_conf('postgresql.conf', "deadlock_timeout = '1 min'");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION revenant; CREATE TABLE log (task text)');
my $control = $node->background_psql('postgres');
my $note = 'INSERT INTO public.log VALUES (revenant.current_task())';

# A wait for a lock resets the latch: what came in meanwhile must not wait for the next one.
$node->safe_psql('postgres', "SELECT revenant.create_task('one', '$note; SELECT pg_sleep(3600)')");
ok($node->poll_query_until('postgres', "SELECT phase = 'leading' FROM revenant.tasks"), 'a task runs');
$control->query_safe("SELECT revenant._debug_hold('supervisor-before-sweep')");
$node->safe_psql('postgres', "SELECT revenant._debug_move_clock('2 min')");
$node->safe_psql('postgres', "SELECT revenant.create_task('off', 'SELECT 1', enabled => false)");
ok( $node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'revenant supervisor' AND wait_event_type = 'Lock'"),
	'and then the supervisor waits for a lock');
$node->safe_psql('postgres', "SELECT revenant.create_task('two', '$note; SELECT pg_sleep(3600)')");
my $start = time;
$control->query_safe("SELECT revenant._debug_let_go('supervisor-before-sweep')");
ok($node->poll_query_until('postgres', 'SELECT count(*) = 2 FROM log'), 'both tasks run');
cmp_ok(time - $start, '<', 3, 'at once');
$node->safe_psql('postgres', "SELECT revenant.drop_task(name) FROM revenant.tasks");

# A runner that was told to end before it says that it leads does not say so.
$node->safe_psql('postgres', "SELECT revenant._debug_hold_quiet('runner-before-leading')");
$node->safe_psql('postgres', "SELECT revenant.create_task('late', '$note; SELECT pg_sleep(3600)')");
ok($node->poll_query_until('postgres', "SELECT revenant._debug_quiet_waiters('runner-before-leading') = 1"), 'a runner has its lease');
$node->append_conf('postgresql.conf', 'revenant.enabled = off');
$node->reload;
ok($node->poll_query_until('postgres', "SELECT phase = 'stopping' FROM revenant.tasks"), 'it is told to end');
$node->safe_psql('postgres', "SELECT revenant._debug_let_go_quiet('runner-before-leading')");
ok($node->poll_query_until('postgres', "SELECT phase = 'held' AND pid IS NULL FROM revenant.tasks"), 'and does');
is($node->safe_psql('postgres', "SELECT count(*) FROM log WHERE task = 'late'"), '0', 'without running the command');

$control->quit;
$node->stop('fast');
unlike(slurp_file($node->logfile), qr/cannot go from phase|TRAP/, 'no transition was outside the table');

done_testing();
