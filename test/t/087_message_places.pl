# However many tasks run, messages are delivered; and whoever needs the database for himself does not wait for a handler.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use Client qw(monotonic);
use Mail;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "max_worker_processes = 24\nrevenant.max_runners = 1");
$node->start;
asks($node);
sql('CREATE ROLE alice LOGIN; CREATE ROLE bob LOGIN');
mail_setup($node, 'postgres');
mail_handler($node, 'postgres', 'slow', q{PERFORM pg_sleep(3600);});
sql("SELECT revenant.grant_usage(r, 'user') FROM unnest(ARRAY['alice', 'bob']) AS r");
my $delivery = "SELECT %s FROM pg_stat_activity WHERE backend_type = 'revenant delivery'";

# --- places

sql("SELECT revenant.create_task('long', 'SELECT pg_sleep(3600)'), revenant.create_task('other', 'SELECT pg_sleep(3600)')");
becomes("SELECT string_agg(phase, ' ' ORDER BY phase) = 'leading waiting_for_slot' FROM revenant.tasks", 'tasks take what places there are for them');
sql("SET ROLE alice; SELECT revenant.send('noted', 'a', '{\"n\": 1}')");
becomes('SELECT count(*) = 1 FROM applied WHERE n = 1', 'a message is delivered all the same');
is(sql("SELECT string_agg(phase, ' ' ORDER BY phase) FROM revenant.tasks"), 'leading waiting_for_slot', 'no task has taken its place');
becomes(sprintf($delivery, 'count(*) = 0'), 'it is free again');
sql("SET ROLE alice; SELECT revenant.send('slow', 'a', '{}')");
becomes(sprintf($delivery, "count(*) = 1 AND bool_and(wait_event = 'PgSleep')"), 'a long handler has it');
sql("SET ROLE bob; SELECT revenant.send('noted', 'a', '{\"n\": 2}')");
ok($node->wait_for_log(qr/messages or entities of role "bob" wait for a free runner/), 'then another sender waits, and the log says so');
is(sql("SELECT count(*) FROM applied WHERE n = 2"), 0, 'the place that is left is for others');
sql("SELECT revenant.drop_task('other'), revenant.drop_task('long')");
becomes('SELECT count(*) = 1 FROM applied WHERE n = 2', 'it has the place of a task that is gone');

# --- who needs the database for himself

sql('CREATE DATABASE one');
mail_setup($node, 'one');
mail_handler($node, 'one', 'slow', q{PERFORM pg_sleep(CASE WHEN EXISTS (SELECT FROM public.applied) THEN 0 ELSE 3600 END);});
my $name = 'one';
sub runs_there
{
	becomes("SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'revenant delivery' AND datname = '$name' AND wait_event = 'PgSleep'", "in $name a handler runs");
	return;
}
$node->safe_psql('one', "SELECT revenant.send('slow', 'a', '{}')");
runs_there();
my $start = monotonic();
sql('ALTER DATABASE one RENAME TO two');
cmp_ok(monotonic() - $start, '<', 3, 'a database is renamed while a handler runs there');
$name = 'two';
runs_there();
$start = monotonic();
sql('CREATE DATABASE three TEMPLATE two');
cmp_ok(monotonic() - $start, '<', 3, 'and copied');
is($node->safe_psql('three', 'SELECT string_agg(state, \' \') FROM revenant.messages'), 'held', 'what was under way is held in the copy');
runs_there();
sql("ALTER SYSTEM SET revenant.databases = 'postgres'");
sql('SELECT pg_reload_conf()');
becomes("SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type LIKE 'revenant%' AND datname = 'two'", 'it is left alone where revenant.databases does not name it');
sql('ALTER SYSTEM RESET revenant.databases');
sql('SELECT pg_reload_conf()');
runs_there();
is($node->safe_psql('three', 'SELECT attempts FROM revenant.messages'), 0, 'in the copy it has no attempt');
is($node->safe_psql('two', 'SELECT attempts <= 1 FROM revenant.messages'), 't', 'what was cut off by others was no attempt');
# somebody ends the process, which is one
$node->safe_psql('two', "INSERT INTO applied (n) VALUES (0); SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = 'two'");
ok($node->poll_query_until('two', 'SELECT count(*) = 1 FROM slow_state'), 'the message that all of this was in the way of is applied');
is($node->safe_psql('two', 'SELECT version FROM slow_state'), 1, 'once');
$node->safe_psql('two', "TRUNCATE applied; SELECT revenant.send('slow', 'a', '{}')");
runs_there();
$start = monotonic();
$node->safe_psql('two', 'DROP EXTENSION revenant CASCADE');
cmp_ok(monotonic() - $start, '<', 3, 'the extension is dropped while a handler runs');
$node->safe_psql('three', 'SELECT revenant.adopt()');
$name = 'three';
runs_there();
$start = monotonic();
sql('DROP DATABASE three');
cmp_ok(monotonic() - $start, '<', 3, 'so is the database');

$node->stop('fast');
unlike(slurp_file($node->logfile), qr/ (WARNING|PANIC):|terminated by signal|revenant supervisor could not/, 'and the log has no complaint');
done_testing();
