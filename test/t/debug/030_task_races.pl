# A task that is dropped while it is being started is not started, and drop_task waits for it.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION revenant; CREATE TABLE log (task text)');

my $control = $node->background_psql('postgres');
my $note = 'INSERT INTO public.log VALUES (revenant.current_task())';

# The supervisor has taken a slot, and has not looked for a hold yet.
$control->query_safe("SELECT revenant._debug_hold('supervisor-before-hold-check')");
$node->safe_psql('postgres', "SELECT revenant.create_task('early', '$note; SELECT pg_sleep(3600)')");
ok( $node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'revenant supervisor' AND wait_event_type = 'Lock'"),
	'the supervisor is about to start the task');
my $dropper = $node->background_psql('postgres');
$dropper->query_until(qr/begun/, "\\echo begun\nSELECT revenant.drop_task('early');\n\\echo dropped\n");
ok( $node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%drop_task%' AND state = 'active' AND pid <> pg_backend_pid()"),
	'drop_task waits for it');
$control->query_safe("SELECT revenant._debug_let_go('supervisor-before-hold-check')");
ok($node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM revenant.tasks)"), 'and is done when the supervisor gave up');
$dropper->quit;
is($node->safe_psql('postgres', 'SELECT count(*) FROM log'), '0', 'the command never ran');

# The runner is there, and has not claimed yet.
$control->query_safe("SELECT revenant._debug_hold('runner-before-claim')");
$node->safe_psql('postgres', "SELECT revenant.create_task('late', '$note; SELECT pg_sleep(3600)')");
ok($node->poll_query_until('postgres', "SELECT phase = 'claiming' AND pid IS NOT NULL FROM revenant.tasks"), 'a runner is about to claim');
$node->safe_psql('postgres', "SELECT revenant.drop_task('late')");
$control->query_safe("SELECT revenant._debug_let_go('runner-before-claim')");
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'revenant runner'"), '0', 'drop_task ends it');
is($node->safe_psql('postgres', 'SELECT count(*) FROM log'), '0', 'the command never ran');
is($node->safe_psql('postgres', "SELECT count(*) FROM revenant._task_status() AS s WHERE s.phase <> 'held'"), '0', 'nothing is left of it')
  if $node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM revenant._task_status()');

$control->quit;
done_testing();
