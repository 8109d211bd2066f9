# Nothing that a user does keeps the supervisor from its other tasks: no lock, no cancel, no missing table;
# and a task of an earlier life leaves nothing to its successor of the same name.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
asks($node);

# The other task is terminated and comes back.
sub lives
{
	my ($name) = @_;
	my $token = sql("SELECT max(token) FROM log WHERE task = 'other'");
	sql("SELECT pg_terminate_backend(pid) FROM revenant.tasks WHERE name = 'other'");
	becomes("SELECT max(token) > $token FROM log WHERE task = 'other'", $name);
	becomes("SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'other'", '... and leads');
	return;
}

# Seconds of CPU that a process has used; undef where nobody can tell.
sub cpu
{
	my ($pid) = @_;
	open(my $file, '<', "/proc/$pid/stat") or return;
	my $line = <$file>;
	close($file);
	$line =~ s/^.*\) //;
	my @fields = split(' ', $line);
	return ($fields[11] + $fields[12]) / 100;
}

sub supervisor { return sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'"); }

# The supervisor of the database idles for two seconds.
sub idles
{
	my ($name) = @_;
	my $pid = supervisor();
	my $before = cpu($pid);
	my $start = time;
	$node->poll_query_until('postgres', "SELECT clock_timestamp() > to_timestamp($start) + interval '2 s'");
  SKIP:
	{
		skip 'no /proc', 1 unless defined $before;
		cmp_ok(cpu($pid) - $before, '<', 0.5, $name);
	}
	return;
}

sql("CREATE EXTENSION revenant; CREATE TABLE log (at timestamptz DEFAULT clock_timestamp(), task text, token bigint, note text)");
my $note = 'INSERT INTO public.log (task, token) VALUES (revenant.current_task(), revenant.current_token())';
sql("SELECT revenant.create_task('other', '$note; SELECT pg_sleep(3600)', backoff_min => '10 ms', backoff_max => '10 ms');
	SELECT revenant.create_task('mine', '$note; SELECT pg_sleep(3600)', backoff_min => '10 ms', backoff_max => '10 ms')");
becomes("SELECT count(*) = 2 FROM revenant.tasks WHERE phase = 'leading'", 'two tasks run');

# --- a transaction that stays open

my $session = $node->background_psql('postgres', on_error_stop => 0);
foreach my $what ("SELECT revenant.drop_task('mine')", "SELECT revenant.disable_task('mine')",
	"SELECT revenant.disable_task('mine'), revenant.enable_task('mine')")
{
	$session->query_safe("BEGIN; $what");
	lives("$what is open, and another task comes back");
	$session->query_safe('ROLLBACK');
	becomes("SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'mine'", 'rolled back, it runs again');
}

# --- a lock on the supervisor's own row and table

my $failures = sql("SELECT failures FROM revenant.tasks WHERE name = 'mine'");
$session->query_safe("BEGIN; SELECT FROM revenant.task_state WHERE name = 'mine' FOR UPDATE");
sql("SELECT pg_terminate_backend(pid) FROM revenant.tasks WHERE name = 'mine'");
becomes("SELECT reason LIKE '%task_state%' FROM revenant.tasks WHERE name = 'mine'", 'a locked row is a reason');
lives('and another task comes back');
$session->query_safe('COMMIT');
becomes("SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'mine'", 'unlocked, it runs');
is(sql("SELECT failures - $failures FROM revenant.tasks WHERE name = 'mine'"), '1', 'and the failure was counted once');

foreach my $what ('LOCK TABLE revenant.task', 'LOCK TABLE revenant.task_state', 'DROP EXTENSION revenant CASCADE')
{
	my $start = sql('SELECT clock_timestamp()');
	$session->query_safe("BEGIN; $what; SAVEPOINT s");
	sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'revenant task mine'");
	$node->poll_query_until('postgres', "SELECT clock_timestamp() > '$start'::timestamptz + interval '1.5 s'");
	is( sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'revenant supervisor' AND wait_event_type = 'Lock'"),
		'0', "the supervisor does not wait for: $what");
	$session->query_safe('ROLLBACK');
	becomes("SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'mine'", 'and goes on after it');
}
sql("SELECT revenant.drop_task('mine')");

# --- another life under the same name

sql("SELECT revenant.create_task('once', '$note; SELECT revenant.drop_task(revenant.current_task())')");
becomes("SELECT count(*) = 1 FROM log WHERE task = 'once'", 'a task drops itself');
becomes("SELECT NOT EXISTS (SELECT FROM revenant.task_state WHERE name = 'once')", 'and nothing is left of it');
sql("SELECT revenant.create_task('once', 'SELECT 1/0', backoff_min => '1 h', backoff_max => '1 h')");
becomes("SELECT phase = 'backoff' FROM revenant.tasks WHERE name = 'once'", 'a task fails');
sql("BEGIN; SELECT revenant.drop_task('once'); SELECT revenant.create_task('once', '$note; SELECT pg_sleep(3600)'); COMMIT");
becomes("SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'once'", 'another one of its name does not wait for its backoff');
is(sql("SELECT runs, failures, last_error FROM revenant.tasks WHERE name = 'once'"), '0|0|', 'nor has its counters');
sql("SELECT revenant.drop_task('once')");
sql("SELECT revenant.create_task('self', 'DO \$\$ BEGIN
	PERFORM revenant.drop_task(''self'');
	PERFORM revenant.create_task(''self'', ''INSERT INTO public.log (task, note) VALUES (''''self'''', ''''new'''')'', backoff_min => ''1 h'', backoff_max => ''1 h'');
	END \$\$; SELECT pg_sleep(3600)')");
becomes("SELECT count(*) = 1 FROM log WHERE task = 'self' AND note = 'new'", 'a task that made another one of itself ends, and that one runs');
is(sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'revenant task self'"), '0', 'the old command is gone');
sql("SELECT revenant.drop_task('self')");
sql("SELECT revenant.create_task('again', 'SELECT 1/0', backoff_min => '1 h', backoff_max => '1 h')");
becomes("SELECT phase = 'backoff' FROM revenant.tasks WHERE name = 'again'", 'a task waits for its backoff');
sql("BEGIN; SELECT revenant.disable_task('again'); SELECT revenant.enable_task('again'); COMMIT");
becomes("SELECT failures = 2 FROM revenant.tasks WHERE name = 'again'", 'enabled again, it does not');
sql("SELECT revenant.drop_task('again')");

# --- the lease is looked at once more at the end, and who waits for it does not hold back vacuum

sql("SELECT revenant.create_task('last', 'DISCARD ALL', backoff_min => '1 h', backoff_max => '1 h')");
becomes("SELECT last_sqlstate = 'RV001' FROM revenant.tasks WHERE name = 'last'", 'a command that ends by losing its lease has failed');
sql("SELECT revenant.drop_task('last')");
$session->query_safe("SELECT revenant.acquire('taken')");
sql("SELECT revenant.create_task('waiting', 'SELECT pg_sleep(3600)', lease => 'taken')");
becomes("SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'revenant task waiting' AND wait_event_type = 'Lock'",
	'a runner waits for its lease');
is(sql("SELECT backend_xmin IS NULL AND backend_xid IS NULL FROM pg_stat_activity WHERE application_name = 'revenant task waiting'"),
	't', 'without a snapshot');
sql("SELECT revenant.drop_task('waiting')");
$session->query_safe("SELECT revenant.release('taken', token) FROM revenant.leases WHERE lease = 'taken'");

# --- cancels

my $supervisor = supervisor();
my $launcher = sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'revenant launcher'");
sql("SELECT pg_cancel_backend($supervisor), pg_cancel_backend($launcher)");
lives('after the supervisor was cancelled');
is(supervisor(), $supervisor, 'it is the same supervisor');
is(sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'revenant launcher'"), $launcher, 'and the same launcher');

# --- roles: at once, not at the next look

sql("CREATE ROLE worker LOGIN; CREATE ROLE ops LOGIN; SELECT revenant.grant_usage('ops', 'admin')");
sql("SELECT revenant.create_task('roled', 'SELECT pg_sleep(3600)', run_as => 'worker')");
becomes("SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'roled'", 'a task runs as a role');
my $start = time;
sql('DROP ROLE worker');
becomes("SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'revenant task roled'", 'dropped, it runs no more');
cmp_ok(time - $start, '<', 4, 'at once');
becomes("SELECT phase = 'held' FROM revenant.tasks WHERE name = 'roled'", 'it is held');

# --- whose task it is

sqlstate('42501', "SET SESSION AUTHORIZATION ops; SELECT revenant.disable_task('other')");
sql("UPDATE revenant.task SET system_identifier = 1, run_as_oid = 1 WHERE name = 'other'");
sqlstate('42501', "SET SESSION AUTHORIZATION ops; SELECT revenant.$_('other')") for 'enable_task', 'disable_task', 'drop_task';
sqlstate('42501', "SET SESSION AUTHORIZATION ops; SELECT revenant.adopt()");
is(sql("SELECT revenant.adopt()"), '1', 'who may run as the role adopts it');
becomes("SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'other'", 'then it runs');
$node->safe_psql('postgres', "SET SESSION AUTHORIZATION ops; SELECT revenant.drop_task('roled')");
pass('a task whose role is gone can be dropped by any admin');

# --- libraries of the role

sql("CREATE ROLE explainer LOGIN SUPERUSER; ALTER ROLE explainer SET session_preload_libraries = 'auto_explain'");
sql("SELECT revenant.create_task('explained', 'INSERT INTO public.log (task, note) SELECT ''explained'', setting FROM pg_settings
	WHERE name = ''auto_explain.log_level''', run_as => 'explainer', backoff_min => '1 h', backoff_max => '1 h')");
becomes("SELECT runs = 1 FROM revenant.tasks WHERE name = 'explained'", 'a task runs as a role with libraries of its own');
is(sql("SELECT count(*) FROM log WHERE task = 'explained'"), '1', 'and they are loaded');
sql("SELECT revenant.drop_task('explained')");

# --- the list of databases

sqlstate('22023', "ALTER SYSTEM SET revenant.databases = 'a b'");
sqlstate('22023', "ALTER SYSTEM SET revenant.databases = 'postgres,'");
$node->append_conf('postgresql.conf', "revenant.databases = 'elsewhere'");
$node->reload;
becomes("SELECT phase = 'scheduled' AND pid IS NULL AND reason LIKE 'revenant.databases%' FROM revenant.tasks WHERE name = 'other'",
	'a database that is left out: its task says so');
is(sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type IN ('revenant supervisor', 'revenant runner')"), '0', 'and nothing runs');
$node->append_conf('postgresql.conf', "revenant.databases = 'postgres'");
$node->reload;
becomes("SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'other'", 'listed again, it runs');

# --- a table that is missing

my $marker = -s $node->logfile;
$supervisor = supervisor();
sql('ALTER TABLE revenant.task_state RENAME TO gone; SELECT revenant.enable_task(\'other\')');
idles('a missing table is no loop');
sql('ALTER TABLE revenant.gone RENAME TO task_state');
lives('back again, work goes on');
is(supervisor(), $supervisor, 'under the same supervisor');
my $log = substr(slurp_file($node->logfile), $marker);
cmp_ok(scalar(() = $log =~ /revenant supervisor could not/g), '<=', 1, 'the log has a line of it');

$session->quit;
$node->stop('fast');
unlike(slurp_file($node->logfile), qr/cannot go from phase/, 'no transition was outside the table');

done_testing();
