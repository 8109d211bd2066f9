# Times on the wall clock are run once each, @reboot once for each time that a server begins to lead, and what was missed is made up
# for once or not at all, as the task says.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('primary');
$node->init(allows_streaming => 1);
$node->start;
asks($node);

my $note = 'INSERT INTO public.log (task) VALUES (revenant.current_task())';
sql('CREATE EXTENSION revenant; CREATE TABLE log (id bigserial, at timestamptz DEFAULT clock_timestamp(), task text)');

# --- each time once

sql("SELECT revenant.create_task('often', '$note', '*/2 * * * * *', timezone => 'Asia/Kathmandu')");
sql("SELECT revenant.create_task('boot', '$note', '\@reboot')");
sql("SELECT revenant.create_task('yearly', '$note', '\@yearly')");
sql("SELECT revenant.create_task('made up', '$note', '\@yearly', catch_up => 'once')");
becomes("SELECT count(*) >= 4 FROM log WHERE task = 'often'", 'a calendar schedule is run');
is(sql("SELECT count(*) FROM (SELECT floor(extract(epoch FROM at) / 2) - lag(floor(extract(epoch FROM at) / 2)) OVER (ORDER BY id) AS d FROM log WHERE task = 'often') AS s WHERE d <> 1"),
	'0', 'each of its times once');
is(sql("SELECT count(*) FROM log WHERE task = 'often' AND extract(epoch FROM at)::numeric % 2 > 1"), '0', 'and none before its time');
is(sql("SELECT string_agg(phase || ' ' || (next_run = date_trunc('year', now()) + interval '1 year')::text, ', ' ORDER BY name) FROM revenant.tasks WHERE name IN ('yearly', 'made up')"),
	'scheduled true, scheduled true', 'the next time is shown');
is(sql("SELECT phase || ': ' || reason FROM revenant.tasks WHERE name = 'boot'"), 'scheduled: waits until this server, or another one, begins to lead',
	'one that was made since this server leads waits for the next');
is(sql("SELECT count(*) FROM log WHERE task IN ('boot', 'yearly', 'made up')"), '0', 'nothing else ran');

# --- another supervisor, a restart, a promotion

my $supervisor = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'";
$node->restart;
becomes("SELECT count(*) = 1 FROM log WHERE task = 'boot'", 'after a restart it is run');
becomes("SELECT phase = 'scheduled' FROM revenant.tasks WHERE name = 'boot'", 'and is over');
my $pid = sql($supervisor);
sql("SELECT pg_terminate_backend($pid)");
becomes("SELECT pid <> $pid FROM ($supervisor) AS s", 'another supervisor comes');
my $runs = sql("SELECT count(*) FROM log WHERE task = 'often'");
becomes("SELECT count(*) > $runs FROM log WHERE task = 'often'", 'and has looked at the tasks');
is(sql("SELECT count(*) FROM log WHERE task = 'boot'"), '1', 'which is no reason to run it again');

# --- what was missed: as if the server had been down when the time came

sql("ALTER SYSTEM SET revenant.enabled = off; SELECT pg_reload_conf()");
becomes("SELECT bool_and(phase = 'held') FROM revenant.tasks", 'nothing runs');
sql("INSERT INTO revenant.task_state (name, next_run, runs, failures, restarts, consecutive_failures, created_at, enabled_at)
	SELECT name, now() - interval '1 hour', 0, 0, 0, 0, created_at, enabled_at FROM revenant.task WHERE name IN ('yearly', 'made up')");
sql("ALTER SYSTEM RESET revenant.enabled; SELECT pg_reload_conf()");
becomes("SELECT count(*) = 1 FROM log WHERE task = 'made up'", 'catch_up makes up for what was missed');
becomes("SELECT bool_and(phase = 'scheduled') FROM revenant.tasks WHERE name IN ('yearly', 'made up')", 'then');
is(sql("SELECT string_agg(task || ' ' || n, ', ' ORDER BY task) FROM (SELECT task, count(*) AS n FROM log WHERE task IN ('yearly', 'made up') GROUP BY task) AS s"),
	'made up 1', 'once, and only where it is asked for');
is(sql("SELECT bool_and(next_run = date_trunc('year', now()) + interval '1 year') FROM revenant.tasks WHERE name IN ('yearly', 'made up')"), 't', 'both go on as before');

$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);
$node->stop('immediate');
$standby->promote;
ok($standby->poll_query_until('postgres', "SELECT count(*) = 2 FROM log WHERE task = 'boot'"), 'a standby that is promoted begins to lead, too');
is($standby->safe_psql('postgres', "SELECT count(*) FROM log WHERE task IN ('yearly', 'made up')"), '1', 'and repeats nothing else');

# --- the database's time zone, as it is when it is needed

$standby->safe_psql('postgres', "ALTER DATABASE postgres SET TimeZone = 'Asia/Tokyo'; SELECT revenant.create_task('morning', 'SELECT 1', '0 9 * * *')");
ok($standby->poll_query_until('postgres', "SELECT extract(hour FROM next_run AT TIME ZONE 'UTC') = 0 FROM revenant.tasks WHERE name = 'morning'"), 'nine in Tokyo');
$standby->safe_psql('postgres', "ALTER DATABASE postgres SET TimeZone = 'America/New_York'");
ok($standby->poll_query_until('postgres', "SELECT extract(hour FROM next_run AT TIME ZONE 'America/New_York') = 9 FROM revenant.tasks WHERE name = 'morning'"),
	'is nine in New York when that is set');

$standby->stop;
done_testing();
