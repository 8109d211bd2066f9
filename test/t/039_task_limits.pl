# A run that takes too long is ended and is a failure like any other, and a task has the settings that it asks for, as far as its role could set them.

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

sql(q{
	CREATE EXTENSION revenant;
	CREATE ROLE worker LOGIN; SELECT revenant.grant_usage('worker');
	CREATE TABLE log (id bigserial, at timestamptz DEFAULT clock_timestamp(), task text, what text);
	GRANT ALL ON log TO worker; GRANT ALL ON SEQUENCE log_id_seq TO worker;
});

# --- timeout

sql("SELECT revenant.create_task('slow', 'INSERT INTO public.log (task) VALUES (revenant.current_task()); SELECT pg_sleep(600)', timeout => '300 ms', backoff_min => '100 ms', backoff_max => '100 ms', max_restarts => 2)");
becomes("SELECT phase = 'quarantined' FROM revenant.tasks WHERE name = 'slow'", 'a run that is too long is a failure, and too many are the end');
is(sql("SELECT count(*) FROM log WHERE task = 'slow'"), '3', 'after as many runs as are allowed');
is(sql("SELECT last_sqlstate || ' ' || last_error FROM revenant.tasks WHERE name = 'slow'"), '57014 the run took longer than its timeout of 0.300 s', 'the reason shows');
is(sql("SELECT last_duration BETWEEN '300 ms' AND '5 s' FROM revenant.tasks WHERE name = 'slow'"), 't', 'it is ended in time');

# the whole run counts, not each statement; and one that catches the cancel is canceled again
sql("SELECT revenant.create_task('many', 'SELECT pg_sleep(0.2); SELECT pg_sleep(0.2); SELECT pg_sleep(0.2); INSERT INTO public.log (task) VALUES (revenant.current_task())', timeout => '450 ms', restart => 'temporary')");
sql(q{SELECT revenant.create_task('stubborn', $$DO $b$ BEGIN FOR i IN 1 .. 2 LOOP BEGIN PERFORM pg_sleep(600); EXCEPTION WHEN query_canceled THEN RAISE NOTICE 'not me'; END; END LOOP; PERFORM pg_sleep(600); END $b$ $$, timeout => '200 ms', restart => 'temporary')});
sql("SELECT revenant.create_task('quick', 'SELECT pg_sleep(0.1); INSERT INTO public.log (task) VALUES (revenant.current_task())', timeout => '1 min', restart => 'temporary')");
becomes("SELECT count(*) = 3 FROM revenant.tasks WHERE name IN ('many', 'stubborn', 'quick') AND phase = 'finished'", 'all of them end');
is(sql("SELECT string_agg(name || ' ' || coalesce(last_sqlstate, 'ok'), ', ' ORDER BY name) FROM revenant.tasks WHERE name IN ('many', 'stubborn', 'quick')"),
	'many 57014, quick ok, stubborn 57014', 'as they should');
is(sql("SELECT string_agg(task, ' ') FROM log WHERE task IN ('many', 'quick')"), 'quick', 'and what came after the end was not done');
sqlstate('22023', "SELECT revenant.create_task('x', 'SELECT 1', timeout => $_)") for "'0'", "'-1 s'", "'1 us'", "'11 years'";

# --- settings

my $note = q{INSERT INTO public.log (task, what) SELECT revenant.current_task(), concat_ws(' ', current_setting('work_mem'), current_setting('search_path'), current_setting('enable_seqscan'), current_setting('my.own', true), current_setting('statement_timeout'), current_setting('log_min_duration_statement'), current_user)};
sql("SELECT revenant.create_task('set', \$\$$note\$\$, restart => 'temporary', run_as => 'worker',
	settings => '{\"work_mem\": \"77MB\", \"search_path\": \"pg_catalog\", \"enable_seqscan\": false, \"my.own\": \"it''s \\\"mine\\\"\", \"statement_timeout\": 60000}')");
becomes("SELECT count(*) = 1 FROM log WHERE task = 'set'", 'a task with settings runs');
is(sql("SELECT what FROM log WHERE task = 'set'"), q{77MB pg_catalog off it's "mine" 1min -1 worker}, 'and has them');
sql("SELECT revenant.create_task('unset', \$\$$note\$\$, restart => 'temporary', run_as => 'worker')");
becomes("SELECT count(*) = 1 FROM log WHERE task = 'unset'", 'one without them');
like(sql("SELECT what FROM log WHERE task = 'unset'"), qr/^4MB "\$user", public on\s+0 -1 worker$/, 'has none');
sqlstate('42501', "SELECT revenant.create_task('x', 'SELECT 1', run_as => 'worker', settings => '{\"log_min_duration_statement\": 0}')", 'what its role could not set is refused, also to a superuser');
sql("SELECT revenant.create_task('super', \$\$$note\$\$, restart => 'temporary', settings => '{\"log_min_duration_statement\": 1000000}')");
becomes("SELECT count(*) = 1 FROM log WHERE task = 'super' AND what LIKE '% 1000s %'", 'a superuser\'s task may');
sqlstate('42704', "SELECT revenant.create_task('x', 'SELECT 1', settings => '{\"no_such_setting\": 1}')");
sqlstate('22023', "SELECT revenant.create_task('x', 'SELECT 1', settings => '$_')") for '[]', '"work_mem"', '{"work_mem": "much"}', '{"work_mem": null}', '{"work_mem": [1]}', '{"work_mem": -5}';
sqlstate('55P02', "SELECT revenant.create_task('x', 'SELECT 1', settings => '{\"shared_buffers\": \"1GB\"}')", 'one of the server');
is(sql("SELECT count(*) FROM revenant.tasks WHERE name = 'x'"), 0, 'nothing of that is there');

# one that is no good any more is that task's trouble alone
sql("GRANT SET ON PARAMETER log_min_duration_statement TO worker;
	SELECT revenant.create_task('granted', \$\$$note\$\$, '\@yearly', run_as => 'worker', restart => 'temporary', settings => '{\"log_min_duration_statement\": 1000000}');
	SELECT revenant.run_task('granted')");
becomes("SELECT count(*) = 1 FROM log WHERE task = 'granted' AND what LIKE '% 1000s %'", 'what was granted to its role it may, too');
sql("REVOKE SET ON PARAMETER log_min_duration_statement FROM worker; SELECT revenant.run_task('granted')");
becomes("SELECT failures = 1 AND last_sqlstate = '42501' FROM revenant.tasks WHERE name = 'granted'", 'and not when that is revoked: the run fails');
is(sql("SELECT count(*) FROM log WHERE task = 'granted'"), 1, 'before it did anything');

$node->stop;
done_testing();
