# What docs/tasks.md shows can be pasted into psql as it stands, and each recipe does what is said beside it: also on a standby, and after a crash. The
# questions of docs/monitoring.md can be asked.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Asks;
use Docs;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->start;
asks($primary);
sql('CREATE EXTENSION revenant; CREATE EXTENSION pg_buffercache');
sql('CREATE DATABASE examples');
$primary->safe_psql('examples', 'CREATE EXTENSION revenant');
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', 'shared_buffers = 16MB');
$standby->start;

# A block of SQL goes as the docs say.
sub goes
{
	my ($database, $sql, $name) = @_;
	my ($status, undef, $err) = paste($primary, $database, $sql);

	is($status, 0, "pasted: $name") or diag($err);
	return;
}

# How the runs of a task went, oldest first.
sub outcomes { return "(SELECT COALESCE(string_agg(outcome, ' ' ORDER BY run), '') FROM revenant.task_runs WHERE name = '$_[0]')" }

sub have_ended
{
	my ($task, $outcomes, $name) = @_;

	becomes('SELECT ' . outcomes($task) . " = '$outcomes'", $name);
	return;
}

# --- this test can fail

isnt((paste($primary, 'postgres', "SELECT 1;\nSELECT 1/0;\n"))[0], 0, 'a mistake is seen');
isnt((paste($primary, 'postgres', "SELECT 1;   -- 22012: a division\n"))[0], 0, 'so is what should fail and does not');
isnt((paste($primary, 'postgres', "SELECT 'x'::int;   -- 22012: a division\n"))[0], 0, 'and what fails otherwise');
goes('postgres', "SELECT 1/0;   -- 22012: a division\nSELECT 1;\n", 'what fails as it should');

# --- the short ones

my @examples = examples('tasks.md');
cmp_ok(scalar @examples / 2, '>=', 15, 'there are examples');
while (my ($heading, $sql) = splice @examples, 0, 2)
{
	goes('examples', $sql, $heading || 'the beginning') unless $heading eq 'Recipes';
}
is($primary->safe_psql('examples', 'SELECT string_agg(name, \', \') FROM revenant.tasks'), 'sender', 'they leave what they say');
@examples = examples('monitoring.md');
cmp_ok(scalar @examples / 2, '>=', 5, 'there are questions');
while (my ($heading, $sql) = splice @examples, 0, 2)
{
	goes('examples', $sql, "monitoring: $heading");
}
$primary->safe_psql('examples', "SELECT revenant.drop_task('sender')");

# --- recipes

my %recipes = recipes('tasks.md', 'Recipes');
my @names = sort keys %recipes;

sub recipe
{
	my ($name) = @_;
	my ($full) = grep { index($_, $name) == 0 } @names or die "no recipe \"$name\"";

	goes('postgres', delete $recipes{$full}, $full);
	return;
}

recipe('A queue consumer');
becomes('SELECT count(*) = 250 AND count(done_at) = 250 FROM job', 'it empties the queue');
sql("INSERT INTO job (what) VALUES ('a letter that comes later')");
becomes('SELECT count(*) = 251 AND count(done_at) = 251 FROM job', 'and goes on to');
is(sql('SELECT ' . outcomes('jobs')), 'running', 'in the same run');
sql("SELECT revenant.drop_task('jobs')");
have_ended('jobs', 'stopped', 'which can be ended');

recipe('An hourly rollup');
my $summed = q{SELECT array_agg((hour, n, total) ORDER BY hour) = (
	SELECT array_agg((hour, n, total) ORDER BY hour) FROM (
		SELECT date_trunc('hour', at) AS hour, count(*) AS n, sum(value) AS total FROM sample
		WHERE at < date_trunc('hour', (SELECT started_at FROM revenant.tasks WHERE name = 'rollup')) GROUP BY 1
	) AS s) FROM per_hour};
have_ended('rollup', 'succeeded', 'it has run');
is(sql($summed), 't', 'all full hours are there');
cmp_ok(sql('SELECT count(*) FROM per_hour'), '>=', 4, 'which are some');
sql("INSERT INTO sample SELECT max(hour), 1000 FROM per_hour; DELETE FROM per_hour WHERE hour = (SELECT max(hour) FROM per_hour); SELECT revenant.run_task('rollup')");
have_ended('rollup', 'succeeded succeeded', 'it runs again');
is(sql($summed), 't', 'and catches up');
is(sql("SELECT count(*) FROM revenant.tasks WHERE name = 'rollup' AND next_run = date_trunc('hour', next_run) + interval '2 min'"), '1', 'the next time is two minutes past the hour');
sql("SELECT revenant.drop_task('rollup')");

recipe('Partitions');
my $partitions = q{(SELECT string_agg(inhrelid::regclass::text, ' ' ORDER BY inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = 'measurement'::regclass)};
my $wanted = q{to_char(now() AT TIME ZONE 'UTC', '"measurement_"YYYY_MM ') || to_char(now() AT TIME ZONE 'UTC' + interval '1 month', '"measurement_"YYYY_MM')};
have_ended('partitions', 'succeeded', 'it has run');
is(sql("SELECT $partitions = $wanted"), 't', 'this month and the next are there, and the old one is gone');
sql("INSERT INTO measurement SELECT date_trunc('month', now(), 'UTC') + n * interval '1 month' - interval '1 us', n FROM generate_series(1, 2) AS n;
	INSERT INTO measurement SELECT date_trunc('month', now(), 'UTC') + n * interval '1 month', n FROM generate_series(0, 1) AS n");
is(sql('SELECT count(DISTINCT tableoid) FROM measurement'), '2', 'and take all of these months');
sqlstate('23514', "INSERT INTO measurement SELECT date_trunc('month', now(), 'UTC') + interval '2 months', 1", 'and no more');
my $reader = $primary->background_psql('postgres');
sql("DO \$\$ BEGIN EXECUTE 'DROP TABLE ' || to_char(now() AT TIME ZONE 'UTC' + interval '1 month', '\"measurement_\"YYYY_MM'); END \$\$");
$reader->query_safe('BEGIN; SELECT count(*) FROM measurement');
sql("SELECT revenant.run_task('partitions')");
becomes("SELECT phase = 'backoff' AND last_sqlstate = '55P03' FROM revenant.tasks WHERE name = 'partitions'", 'it gives way to a long query');
is(sql("SELECT next_run - (SELECT max(finished_at) FROM revenant.task_runs WHERE name = 'partitions') BETWEEN '45 s' AND '75 s' FROM revenant.tasks WHERE name = 'partitions'"), 't', 'for about a minute');
$reader->query_safe('COMMIT');
$reader->quit;
sql("SELECT revenant.run_task('partitions')");
becomes("SELECT $partitions = $wanted", 'and comes back');
sql("SELECT revenant.drop_task('partitions')");

recipe('A warm cache');
have_ended('warm', 'succeeded', 'it runs on the primary');
# nothing of it is to be read for the sake of being replayed
sql('CHECKPOINT');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
$standby->restart;
asks($standby);
becomes("SELECT reason LIKE 'follower_command: ended, and waits for backoff_min%' FROM revenant.tasks WHERE name = 'warm'", 'and on a standby');
foreach my $what ('catalog', 'catalog_pkey')
{
	is(sql("SELECT count(*) = pg_relation_size('$what') / current_setting('block_size')::int AND count(*) > 20 FROM pg_buffercache
		WHERE relfilenode = pg_relation_filenode('$what') AND relforknumber = 0 AND reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database())"),
		't', "where all of $what is in memory");
}
asks($primary);
sql("SELECT revenant.drop_task('warm')");

recipe('A long job in steps');
have_ended('search names', 'succeeded', 'it has run');
is(sql("SELECT count(*) FROM person WHERE search_name = 'person ' || id"), '20000', 'and filled in all');
is(sql("SELECT phase FROM revenant.tasks WHERE name = 'search names'"), 'finished', 'once and for all');
sql('UPDATE person SET search_name = NULL; UPDATE progress SET done_to = 0');
my $holder = $primary->background_psql('postgres');
$holder->query_safe('BEGIN; SELECT id FROM person WHERE id = 5500 FOR UPDATE');
sql("SELECT revenant.restart_task('search names')");
becomes("SELECT done_to = 5000 AND EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'revenant task search names' AND wait_event_type = 'Lock') FROM progress", 'another time, as far as somebody lets it');
sql('CREATE TABLE before AS SELECT id, xmin::text AS xid FROM person WHERE id <= 5000');
$primary->stop('immediate');
$holder->{run}->finish;
$primary->start;
have_ended('search names', 'succeeded interrupted succeeded', 'a crash does not end it');
is(sql("SELECT count(*) FROM person WHERE search_name = 'person ' || id"), '20000', 'it fills in all');
is(sql('SELECT count(*) FROM before AS b JOIN person AS p ON p.id = b.id AND p.xmin::text = b.xid'), '5000', 'from where it was');
sql("SELECT revenant.drop_task('search names')");

recipe('Instead of a pg_cron job');
sql("INSERT INTO visit SELECT now() - n * interval '1 day' FROM generate_series(1, 100) AS n; SELECT revenant.run_task('forget visits')");
have_ended('forget visits', 'succeeded', 'it has run');
is(sql("SELECT count(*), max(now() - at) < '90 days' FROM visit"), '89|t', 'and done its work');
is(sql("SELECT to_char(next_run AT TIME ZONE 'GMT', 'HH24:MI') FROM revenant.tasks WHERE name = 'forget visits'"), '03:30', 'at its time it will again');

# what pg_cron has, as far as it matters here
sql(q{CREATE SCHEMA cron;
	CREATE TABLE cron.job (jobid bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, schedule text NOT NULL, command text NOT NULL, database text NOT NULL DEFAULT current_database(),
		username text NOT NULL DEFAULT current_user, active boolean NOT NULL DEFAULT true, jobname name);
	CREATE FUNCTION cron.unschedule(job_id bigint) RETURNS boolean LANGUAGE sql AS 'DELETE FROM cron.job WHERE jobid = job_id RETURNING true';
	CREATE ROLE worker LOGIN;
	INSERT INTO cron.job (schedule, command, jobname, username, active, database) VALUES ('0 10 * * *', 'VACUUM', 'nightly', current_user, true, current_database()),
		('30 seconds', 'SELECT $$it''s$$', NULL, 'worker', false, current_database()), ('@reboot', 'SELECT 1', 'boot', 'worker', true, current_database()),
		('0 10 * * *', 'SELECT 1', 'elsewhere', current_user, true, 'another')});
my ($last) = (reverse grep { /cron\.job/ } examples('tasks.md'));
goes('postgres', $last, 'what takes over the jobs of pg_cron');
is(sql(q{SELECT string_agg(format('%s: %s %s %s %s %s', name, command, schedule, timezone, run_as = current_user, enabled), ', ' ORDER BY created_at) FROM revenant.task WHERE name <> 'forget visits'}),
	q{nightly: VACUUM 0 10 * * * GMT t t, job 2: SELECT $$it's$$ 30 seconds  f f, boot: SELECT 1 @reboot  f t}, 'they are tasks');
is(sql('SELECT string_agg(jobname, \', \') FROM cron.job'), 'elsewhere', 'and jobs no more');

is(join(', ', keys %recipes), '', 'no recipe is left out');

$standby->stop;
$primary->stop;
done_testing();
