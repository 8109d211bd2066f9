# Our workers are in nobody's way: commands that need a database for themselves
# get it at once, and the work goes on after them, also after one that failed.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "max_worker_processes = 40\nrevenant.max_runners = 24");
$node->start;
my $space = PostgreSQL::Test::Utils::tempdir_short();
$node->safe_psql('postgres', "CREATE TABLESPACE elsewhere LOCATION '$space'");

# A database with an idle and a busy task.
sub make
{
	my ($database) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, "CREATE EXTENSION revenant;
		SELECT revenant.create_task('idle', 'SELECT pg_sleep(3600)', backoff_min => '10 ms');
		SELECT revenant.create_task('busy', 'DO \$\$ BEGIN LOOP END LOOP; END \$\$', backoff_min => '10 ms')");
	runs($database, "$database runs");
	return;
}

# Both tasks lead, in processes that are really there.
sub runs
{
	my ($database, $name) = @_;
	ok( $node->poll_query_until($database,
			"SELECT count(*) = 2 FROM revenant.tasks t JOIN pg_stat_activity a ON a.pid = t.pid
			 WHERE t.phase = 'leading' AND a.backend_type = 'revenant runner' AND a.datname = current_database()"),
		$name);
	return;
}

sub quick
{
	my ($limit, $sql) = @_;
	my $start = time;
	$node->safe_psql('postgres', $sql);
	my $took = time - $start;
	cmp_ok($took, '<', $limit, "$sql: " . sprintf('%.2f s', $took));
	return;
}

make('one');
quick(2, 'ALTER DATABASE one RENAME TO two');
runs('two', 'work goes on after RENAME');
is($node->safe_psql('two', "SELECT max(failures) FROM revenant.tasks"), '0', 'and it was no failure');

$node->psql('postgres', 'ALTER DATABASE two RENAME TO postgres');
runs('two', 'work goes on after a RENAME that failed');

quick(10, 'ALTER DATABASE two SET TABLESPACE elsewhere');
runs('two', 'work goes on after SET TABLESPACE');

quick(10, 'CREATE DATABASE three TEMPLATE two');
runs('two', 'work goes on after CREATE DATABASE TEMPLATE');
ok( $node->poll_query_until('three',
		"SELECT count(*) = 2 FROM revenant.tasks WHERE phase = 'held' AND reason LIKE '%adopt%'"),
	'what was copied is held');
is($node->safe_psql('three', 'SELECT revenant.adopt()'), '2', 'until it is adopted');
runs('three', 'and then runs');
is($node->safe_psql('three', 'SELECT revenant.adopt()'), '0', 'adopting again does nothing');

# --- somebody without the right

$node->safe_psql('postgres', 'CREATE ROLE nobody LOGIN');
my $pids = $node->safe_psql('two', "SELECT string_agg(pid::text, ',' ORDER BY pid) FROM revenant.tasks");
foreach my $sql ('DROP DATABASE two', 'ALTER DATABASE two RENAME TO mine', 'ALTER DATABASE two SET TABLESPACE pg_default',
	'CREATE DATABASE mine TEMPLATE two')
{
	my ($status) = $node->psql('postgres', "SET SESSION AUTHORIZATION nobody;\n$sql", on_error_stop => 1);
	isnt($status, 0, "nobody may not: $sql");
}
is($node->safe_psql('two', "SELECT string_agg(pid::text, ',' ORDER BY pid) FROM revenant.tasks"), $pids, 'and stops nothing by trying');

# --- one that fails because somebody else is connected

my $session = $node->background_psql('three');
$session->query_safe('SELECT 1');
my ($status, undef, $err) = $node->psql('postgres', 'DROP DATABASE three');
like($err, qr/is being accessed by other users/, 'another session keeps the database');
runs('three', 'and work goes on there');
$session->quit;

# --- one that fails or is undone under a savepoint, in a transaction that goes on

$session = $node->background_psql('postgres', on_error_stop => 0);
$session->query('BEGIN; SAVEPOINT s');
$session->query('ALTER DATABASE two RENAME TO postgres');
runs('two', 'work goes on while the transaction of a RENAME that failed is open');
$session->query('ROLLBACK TO s');
$session->query('ALTER DATABASE two RENAME TO other');
$session->query('ROLLBACK TO s');
runs('two', 'or that of one that was undone');
$pids = $node->safe_psql('two', "SELECT string_agg(pid::text, ',' ORDER BY pid) FROM revenant.tasks");
foreach my $sql ('DROP DATABASE two', 'ALTER DATABASE two SET TABLESPACE pg_default', 'CREATE DATABASE mine TEMPLATE two')
{
	$session->query('ROLLBACK TO s');
	$session->query($sql);
}
is($node->safe_psql('two', "SELECT string_agg(pid::text, ',' ORDER BY pid) FROM revenant.tasks"), $pids, 'what cannot be done in a block stops nothing');
$session->query('ROLLBACK');
$session->quit;

# --- DROP

quick(2, 'DROP DATABASE three');
quick(2, 'DROP DATABASE two WITH (FORCE)');
make('four');
$node->safe_psql('postgres', 'CREATE DATABASE bystander');
quick(2, 'DROP DATABASE bystander');
runs('four', 'dropping another database is no matter');
$node->safe_psql('postgres', 'CREATE ROLE dba LOGIN CREATEDB; ALTER DATABASE four OWNER TO dba');
quick(2, 'SET SESSION AUTHORIZATION dba; DROP DATABASE four');

# --- DROP EXTENSION

make('five');
my $old = $node->safe_psql('five', "SELECT string_agg(pid::text, ',') FROM revenant.tasks");
$node->safe_psql('five', 'BEGIN; DROP EXTENSION revenant; ROLLBACK');
runs('five', 'a DROP EXTENSION that was rolled back is no matter');
$node->safe_psql('five', 'DROP EXTENSION revenant');
ok( $node->poll_query_until('five', "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'five' AND backend_type LIKE 'revenant%'"),
	'DROP EXTENSION ends its workers');
$node->safe_psql('five', "CREATE EXTENSION revenant; SELECT revenant.create_task('idle', 'SELECT pg_sleep(3600)'); SELECT revenant.create_task('busy', 'SELECT pg_sleep(3600)')");
runs('five', 'created again, it works again');
$node->safe_psql('five', "BEGIN; DROP EXTENSION revenant CASCADE; CREATE EXTENSION revenant;
	SELECT revenant.create_task('other', 'SELECT pg_sleep(3600)'); COMMIT");
ok( $node->poll_query_until('five',
		"SELECT (SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'other') AND
			count(*) = 1 FROM pg_stat_activity WHERE datname = 'five' AND backend_type = 'revenant runner'"),
	'dropped and created in one transaction, only the new tasks run');
is($node->safe_psql('five', "SELECT string_agg(name, ',') FROM revenant._task_status()"), 'other', 'nothing is left of the old ones');

# --- a dump

my $dump = $node->basedir . '/dump.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, '-d', $node->connstr('five') ], 'the database can be dumped');
$node->safe_psql('postgres', 'CREATE DATABASE six');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', $node->connstr('six') ], 'and restored');
ok($node->poll_query_until('six', "SELECT phase = 'held' AND reason LIKE '%adopt%' FROM revenant.tasks"), 'a restored dump starts nothing');
is($node->safe_psql('six', 'SELECT revenant.adopt()'), '1', 'it can be adopted');
ok($node->poll_query_until('six', "SELECT phase = 'leading' FROM revenant.tasks"), 'and then runs');

my $start = time;
$node->stop('fast');
cmp_ok(time - $start, '<', 5, 'a fast shutdown is fast');
my $log = slurp_file($node->logfile);
unlike($log, qr/cannot go from phase/, 'no transition was outside the table');
unlike($log, qr/PANIC|signal \d+/, 'nothing crashed');

done_testing();
