# Each time of a schedule is run once, at its time: a retry, a restart of the supervisor or
# a long run neither uses up the next one nor repeats the last one; and no failing task becomes a loop.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
asks($node);

# At which points of its grid a task's first runs began.
sub points
{
	my ($task, $seconds, $runs) = @_;
	return sql("SELECT string_agg(k::text, ',' ORDER BY id) FROM (
		SELECT l.id, floor(extract(epoch FROM l.at - t.created_at) / $seconds) AS k
		FROM log l JOIN revenant.task t ON t.name = l.task WHERE t.name = '$task' ORDER BY l.id LIMIT $runs) AS p");
}

sql('CREATE EXTENSION revenant; CREATE TABLE log (id bigserial, at timestamptz DEFAULT clock_timestamp(), task text)');
my $note = 'INSERT INTO public.log (task) VALUES (revenant.current_task())';

# These take their time; looked at further down.
sql("SELECT revenant.create_task('long', '$note; SELECT pg_sleep(15) WHERE (SELECT count(*) FROM public.log WHERE task = ''long'') = 1',
	schedule => '4 s')");
sql("SELECT revenant.create_task('overlapping', '$note; SELECT pg_sleep(2.5) WHERE (SELECT count(*) FROM public.log WHERE task = ''overlapping'') = 1',
	schedule => '2 s')");
sql("SELECT revenant.create_task('loop', 'SELECT 1/0', backoff_min => '0')");
sql("SELECT revenant.create_task('endless', 'SELECT 1/0', backoff_min => '0', backoff_max => '0')");

# --- a retry is no time of the schedule

sql("SELECT revenant.create_task('retried', '$note; SELECT 1 / ((SELECT count(*) FROM public.log WHERE task = ''retried'') - 1)',
	schedule => '2 s', backoff_min => '200 ms')");
becomes("SELECT count(*) >= 4 FROM log WHERE task = 'retried'", 'a task failed once and goes on');
is(points('retried', 2, 4), '1,1,2,3', 'a retry does not use up the next time of the schedule');
sql("SELECT revenant.drop_task('retried')");

# --- disabled, enabled, and another supervisor within the grace of a time that was run

sql("SELECT revenant.create_task('once', '$note', schedule => '4 s')");
becomes("SELECT count(*) = 1 FROM log WHERE task = 'once'", 'a time was run');
my $supervisor = sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'");
sql("SELECT revenant.disable_task('once'); SELECT revenant.enable_task('once'); SELECT pg_terminate_backend($supervisor)");
becomes("SELECT count(*) >= 2 FROM log WHERE task = 'once'", 'the next one is, too');
is(points('once', 4, 2), '1,2', 'and the first one not again');
sql("SELECT revenant.drop_task('once')");

# --- one that was missed while the task was disabled is not made up for

sql("SELECT revenant.create_task('off', '$note', schedule => '3 s')");
sql("SELECT revenant.disable_task('off')");
becomes("SELECT now() > created_at + '4 s' FROM revenant.task WHERE name = 'off'", 'a time passes');
sql("SELECT revenant.enable_task('off')");
becomes("SELECT count(*) >= 1 FROM log WHERE task = 'off'", 'the next one is run');
is(points('off', 3, 1), '2', 'and not before its time');
sql("SELECT revenant.drop_task('off')");

# --- failures in a row are not a loop, whatever the backoff

my $failures = sql("SELECT string_agg(failures || ' in ' || round(extract(epoch FROM now() - t.created_at)) || ' s', ', '),
	bool_and(failures < 5 + 12 * extract(epoch FROM now() - t.created_at)) AND max(failures) FILTER (WHERE t.name = 'loop') < 20
	FROM revenant.tasks JOIN revenant.task t USING (name) WHERE t.name IN ('loop', 'endless')");
like($failures, qr/\|t$/, "a failing command without a backoff: $failures");
sql("SELECT revenant.drop_task('loop'); SELECT revenant.drop_task('endless')");

# --- runs that take longer than the interval

becomes("SELECT count(*) >= 3 FROM log WHERE task = 'overlapping'", 'a run took longer than the interval');
is(sql("SELECT round(extract(epoch FROM at - lag(at) OVER (ORDER BY id)) * 10) BETWEEN 24 AND 29 FROM log WHERE task = 'overlapping' ORDER BY id OFFSET 1 LIMIT 1"),
	't', 'the next one begins when it has ended');
is(points('overlapping', 2, 3), '1,2,3', 'and the schedule goes on');
becomes("SELECT count(*) >= 2 FROM log WHERE task = 'long'", 'a run took much longer');
is(points('long', 4, 2), '1,5', 'times that are long over are skipped');
is( sql("SELECT extract(epoch FROM l.at - t.created_at) < 20.9 FROM log l JOIN revenant.task t ON t.name = l.task WHERE l.task = 'long' ORDER BY id OFFSET 1 LIMIT 1"),
	't', 'the next run is on the grid');

# --- switched off for a while

sql("SELECT revenant.drop_task('long'); SELECT revenant.drop_task('overlapping');
	SELECT revenant.create_task('switched', '$note', schedule => '7 s')");
$node->append_conf('postgresql.conf', 'revenant.enabled = off');
$node->reload;
becomes("SELECT phase = 'held' FROM revenant.tasks WHERE name = 'switched'", 'nothing runs');
becomes("SELECT now() > created_at + '18 s' FROM revenant.task WHERE name = 'switched'", 'for a while');
$node->append_conf('postgresql.conf', 'revenant.enabled = on');
$node->reload;
becomes("SELECT count(*) >= 1 FROM log WHERE task = 'switched'", 'it runs again');
is(points('switched', 7, 1), '3', 'at its next time, not at once');

$node->stop('fast');
unlike(slurp_file($node->logfile), qr/cannot go from phase/, 'no transition was outside the table');

done_testing();
