# What somebody prepared before CREATE EXTENSION is refused or never reached; an extension that goes, or a table that is not what it
# was, is no loop of errors; and a row that makes no sense is the trouble of one task.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use Doubles;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "max_worker_processes = 40\nlog_statement = none");
$node->start;
asks($node);

# Lines of the log, from a place on, that tell of something wrong.
sub complaints
{
	my ($from) = @_;
	return grep { /revenant (supervisor|runner|launcher) (ERROR|FATAL|PANIC|WARNING):|could not|is held/ } split /\n/, substr(slurp_file($node->logfile), $from);
}

# Nothing of ours is in a database, and nothing comes: not even after somebody asked for it.
sub nobody_comes
{
	my ($database, $name) = @_;
	ok($node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = '$database' AND backend_type LIKE 'revenant%'"), $name);
	return;
}

# --- the schema, made by somebody else

sql('CREATE ROLE evil LOGIN; CREATE DATABASE squatted; GRANT CREATE ON DATABASE squatted TO evil');
my $from = -s $node->logfile;
$node->safe_psql('squatted', q{
	SET SESSION AUTHORIZATION evil;
	CREATE SCHEMA revenant;
	CREATE TABLE revenant.reached (what text);
	CREATE TABLE revenant.task (name text PRIMARY KEY, command text, run_as text);
	INSERT INTO revenant.task VALUES ('mine', 'INSERT INTO revenant.reached VALUES (1)', 'postgres');
	CREATE FUNCTION revenant._created() RETURNS void LANGUAGE sql AS 'INSERT INTO revenant.reached VALUES (2)';
	GRANT ALL ON SCHEMA revenant TO PUBLIC; GRANT ALL ON ALL TABLES IN SCHEMA revenant TO PUBLIC;
});
my (undef, undef, $err) = $node->psql('squatted', "\\set VERBOSITY sqlstate\nCREATE EXTENSION revenant");
like($err, qr/ERROR:  42P06/, 'a schema that somebody else made is refused');
($err) = ($node->psql('squatted', "\\set VERBOSITY sqlstate\nCREATE EXTENSION revenant SCHEMA revenant"))[2];
like($err, qr/ERROR:  /, 'also by name');
is($node->safe_psql('squatted', "SELECT count(*) FROM pg_extension WHERE extname = 'revenant'"), 0, 'nothing was created');
is($node->safe_psql('squatted', 'SELECT count(*) FROM revenant.reached'), 0, 'nothing of it was run');
nobody_comes('squatted', 'nobody is there who would');
is(join("\n", complaints($from)), '', 'and nobody complains');
$node->safe_psql('squatted', 'DROP SCHEMA revenant CASCADE; CREATE EXTENSION revenant');
pass('without it there is room');

# ... and one that takes the place of ours
$node->safe_psql('squatted', "SELECT revenant.create_task('daemon', 'SELECT pg_sleep(3600)')");
ok($node->poll_query_until('squatted', "SELECT phase = 'leading' FROM revenant.tasks"), 'a task runs');
$from = -s $node->logfile;
$node->safe_psql('squatted', 'ALTER SCHEMA revenant RENAME TO ours');
$node->safe_psql('squatted', q{
	CREATE SCHEMA revenant AUTHORIZATION evil;
	CREATE TABLE revenant.reached (what text);
	CREATE TABLE revenant.task (LIKE ours.task INCLUDING ALL);
	CREATE TABLE revenant.task_state (LIKE ours.task_state INCLUDING ALL);
	INSERT INTO revenant.task TABLE ours.task;
	UPDATE revenant.task SET name = 'mine', command = 'INSERT INTO revenant.reached VALUES (1)';
	ALTER TABLE revenant.task OWNER TO evil; ALTER TABLE revenant.task_state OWNER TO evil;
});
nobody_comes('squatted', 'renamed away, nothing of it runs');
is($node->safe_psql('squatted', 'SELECT count(*) FROM revenant.reached'), 0, 'nor of what took its place');
cmp_ok(scalar(complaints($from)), '<=', 1, 'one line at most tells of it') or diag join "\n", complaints($from);
$node->safe_psql('squatted', 'DROP SCHEMA revenant CASCADE; ALTER SCHEMA ours RENAME TO revenant; SELECT revenant.enable_task(\'daemon\')');
ok($node->poll_query_until('squatted', "SELECT phase = 'leading' FROM revenant.tasks"), 'renamed back, it runs');

# --- everything in pg_catalog has a double in public, which is searched first

sql('CREATE DATABASE shadowed; GRANT CREATE ON DATABASE shadowed TO evil');
$node->safe_psql('shadowed', 'GRANT ALL ON SCHEMA public TO evil');
doubles_make($node, 'shadowed');
cmp_ok($node->safe_psql('shadowed', "SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace"), '>', 2000, 'functions have doubles');
cmp_ok($node->safe_psql('shadowed', "SELECT count(*) FROM pg_operator WHERE oprnamespace = 'public'::regnamespace"), '>', 500, 'so have operators');

my $search = 'public, pg_catalog';
($err) = ($node->psql('shadowed', "SET search_path = $search; SELECT now()"))[2];
like($err, qr/now was reached/, 'they are found');
($err) = ($node->psql('shadowed', "SET search_path = $search; SELECT 'a'::pg_catalog.text || 'b'::pg_catalog.text"))[2];
like($err, qr/textcat was reached/, 'operators, too');
($err) = ($node->psql('shadowed', "SET search_path = $search; TABLE pg_class"))[2];
like($err, qr/division by zero/, 'and tables');
is(doubles_reached($node, 'shadowed'), 3, 'which is counted');
$node->safe_psql('shadowed', "ALTER SEQUENCE public.reached RESTART");

# from here on every session and every worker of this database searches there first; the looks of this test do not
sql("ALTER DATABASE shadowed SET search_path = $search");
{
	local $ENV{PGOPTIONS} = "-c search_path=public,pg_catalog";
	my @calls = (
		"CREATE EXTENSION revenant",
		"SELECT revenant.create_task('daemon', 'INSERT INTO public.ran VALUES (1); CALL public.forever()', timezone => NULL, settings => '{\"work_mem\": \"5MB\"}', metadata => '{}')",
		"SELECT revenant.create_task('calendar', 'INSERT INTO public.ran VALUES (2)', '*/5 * * * *', timezone => 'Europe/Berlin')",
		"SELECT revenant.create_task('interval', 'INSERT INTO public.ran VALUES (3)', '100 ms', claim_delay => '0 s', timeout => '1 min')",
		"SELECT revenant.create_task('fails', 'no command at all', backoff_min => '100 ms', backoff_max => '100 ms')",
		"TABLE revenant.tasks", "TABLE revenant.leases", "SELECT revenant.events()", "SELECT revenant.preview_schedule('\@daily', 'UTC')",
		"SELECT revenant.run_task('calendar')", "SELECT revenant.restart_task('daemon')", "SELECT revenant.disable_task('calendar')",
		"SELECT revenant.enable_task('calendar')", "SELECT revenant.adopt()", "SELECT revenant.grant_usage('evil', 'admin')", "SELECT revenant.revoke_usage('evil')",
		"SELECT revenant.guard_table('public.guarded', 'a')", "SELECT revenant.acquire('a', ttl => '1 h'), revenant.acquire_all('{b,c}', ttl => '1 h')",
		"INSERT INTO public.guarded VALUES (1)", "SELECT revenant.explain_lease('a')", "SELECT revenant.revoke('a')", "SELECT revenant.unguard_table('public.guarded')",
		"SELECT revenant.claim('e', 'me', ttl => '1 h')", "SELECT revenant.leader('e')", "SELECT revenant.advance_tokens(1)");
	$node->safe_psql('shadowed', 'CREATE TABLE public.ran (n pg_catalog.int4); CREATE TABLE public.guarded (n pg_catalog.int4)');
	$node->safe_psql('shadowed', "CREATE PROCEDURE public.forever() LANGUAGE plpgsql SET search_path = pg_catalog AS 'BEGIN PERFORM pg_sleep(3600); END'");
	foreach my $call (@calls)
	{
		my (undef, undef, $said) = $node->psql('shadowed', $call);
		unlike($said, qr/was reached|division by zero/, "not reached by: $call");
		note $said if $said;
	}
}
$ENV{PGOPTIONS} = '-c search_path=pg_catalog';
ok($node->poll_query_until('shadowed', 'SELECT count(DISTINCT n) = 3 FROM public.ran'), 'tasks of every kind run there');
ok($node->poll_query_until('shadowed', "SELECT failures > 1 FROM revenant.tasks WHERE name = 'fails'"), 'and fail');
is($node->safe_psql('shadowed', "SELECT string_agg(name || ' ' || last_error, ',') FROM revenant.tasks WHERE last_error IS NOT NULL AND name <> 'fails'"), '', 'only for their own reasons');
is(doubles_reached($node, 'shadowed'), 0, 'and nothing of it was reached');
{
	local $ENV{PGOPTIONS} = "-c search_path=public,pg_catalog";
	$node->safe_psql('shadowed', 'SELECT revenant.drop_task(\'daemon\')');
	$node->safe_psql('shadowed', 'DROP EXTENSION revenant');
}
is(doubles_reached($node, 'shadowed'), 0, 'also not at the end');
delete $ENV{PGOPTIONS};
sql('DROP DATABASE shadowed');

# --- the extension is dropped under its workers

sql('CREATE DATABASE dropped');
foreach my $round (1 .. 3)
{
	$node->safe_psql('dropped', "CREATE EXTENSION revenant; CREATE TABLE IF NOT EXISTS ran ();
		SELECT revenant.create_task('sleeps', 'SELECT pg_sleep(3600)');
		SELECT revenant.create_task('brief ' || n, 'INSERT INTO public.ran DEFAULT VALUES', backoff_min => '0') FROM generate_series(1, 4) AS n");
	ok($node->poll_query_until('dropped', "SELECT count(*) = 1 FROM revenant.tasks WHERE phase = 'leading' AND name = 'sleeps'"), 'tasks run');
	$from = -s $node->logfile;
	$node->safe_psql('dropped', 'DROP EXTENSION revenant');
	nobody_comes('dropped', 'dropped, nothing of ours is there');
	# a run that is ended at its beginning says so; how many begin at that moment depends on the machine
	my @lines = grep { !/terminating background worker|was told to end before it began/ } complaints($from);
	cmp_ok(scalar(@lines), '<=', 1, 'one line at most tells of it') or diag join "\n", @lines;
}

# --- rows that make no sense

sql('CREATE EXTENSION revenant; CREATE TABLE ran (task text)');
sql("SELECT revenant.create_task('good', 'INSERT INTO public.ran VALUES (''good''); SELECT pg_sleep(3600)', backoff_min => '10 ms')");
# what is written, and the phases that may follow
my %nonsense = (
	"schedule = 'now and then'" => 'held', "schedule = ''" => 'held', "schedule = '61 * * * *'" => 'held', "schedule = '0 0 31 2 *'" => 'held scheduled',
	"schedule = '0 3 * * *', timezone = 'Nowhere'" => 'held', "timezone = repeat('x', 100000)" => 'held scheduled',
	"run_as = ''" => 'held', "run_as = repeat('x', 10000)" => 'held', "run_as_oid = 0" => 'held', "run_as_oid = -1" => 'held', "run_as_oid = 1::bigint << 40" => 'held',
	"restart = 'sometimes'" => 'held scheduled', "restart = ''" => 'held scheduled', "catch_up = 'maybe'" => 'held scheduled',
	"max_restarts = -1" => 'held scheduled', "max_restarts = 2147483647" => 'held scheduled',
	(map { ("$_ = '178000000 years'" => 'held scheduled', "$_ = '-1 day'" => 'held scheduled', "$_ = '0'" => 'held scheduled') }
		qw(restart_window backoff_min backoff_max timeout claim_delay)),
	"lease = ''" => 'held scheduled', "lease = repeat('x', 100000)" => 'held scheduled', "command = ''" => 'held scheduled',
	"settings = '[1]'" => 'held scheduled', "settings = '\"x\"'" => 'held scheduled', "settings = '{\"a\": {\"b\": 1}}'" => 'held scheduled',
	(map { ("$_ = 'infinity'" => 'held scheduled', "$_ = '-infinity'" => 'held scheduled', "$_ = '294276-12-31'" => 'held scheduled', "$_ = '4713-01-01 BC'" => 'held scheduled') }
		qw(created_at enabled_at)),
	"system_identifier = 0" => 'held', "database_oid = -1" => 'held', "run_requests = -1" => 'held scheduled');
my @nonsense = sort keys %nonsense;
my $n = 0;
sql(join ";\n", map { $n++; "SELECT revenant.create_task('bad $n', 'INSERT INTO public.ran VALUES (''bad $n'')', '300 days')" } @nonsense);
becomes("SELECT count(*) = @{[ scalar @nonsense ]} FROM revenant.tasks WHERE phase = 'scheduled'", 'as they were made they are good');
becomes("SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'good'", 'and another one runs');
my $good = sql("SELECT pid FROM revenant.tasks WHERE name = 'good'");
my $supervisor = sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'revenant supervisor' AND datname = 'postgres'");
$from = -s $node->logfile;
$n = 0;
sql(join ";\n", map { $n++; "UPDATE revenant.task SET $_ WHERE name = 'bad $n'" } @nonsense);
sql("SELECT revenant.create_task('new', 'INSERT INTO public.ran VALUES (''new'')', restart => 'temporary')");
becomes("SELECT count(*) = 1 FROM ran WHERE task = 'new'", 'among rows that make no sense a new task runs');
becomes("SELECT count(*) > 0 FROM revenant.tasks WHERE phase = 'held'", 'and those are held');
$n = 0;
foreach my $what (@nonsense)
{
	$n++;
	my ($phase, $reason) = split /\|/, sql("SELECT phase, reason FROM revenant.tasks WHERE name = 'bad $n'");
	like(" $nonsense{$what} ", qr/ $phase /, substr("$what: $phase, $reason", 0, 150));
	ok($reason, '... and the reason shows');
}
is(sql("SELECT pid FROM revenant.tasks WHERE name = 'good'"), $good, 'another task was not touched');
is(sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'revenant supervisor' AND datname = 'postgres'"), $supervisor, 'nor was the supervisor');
is(sql("SELECT string_agg(DISTINCT task, ' ') FROM ran WHERE task LIKE 'bad%'"), '', 'nothing of them ran');
my %lines;
$lines{ $_ =~ s/^.*?LOG: //r }++ foreach complaints($from);
is(join("\n", grep { $lines{$_} > 1 } sort keys %lines), '', 'the log tells each thing once');
sql("SELECT revenant.drop_task(name) FROM revenant.tasks WHERE name LIKE 'bad%'");
pass('they can be dropped');

$node->stop('fast');
my $log = slurp_file($node->logfile);
unlike($log, qr/PANIC|terminated by signal|cannot go from phase/, 'nothing crashed');

done_testing();
