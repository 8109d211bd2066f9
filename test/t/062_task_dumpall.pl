# A dump of a whole cluster is restored into one whose scheduler runs, without a deadlock and without an error; what was restored
# starts nothing, until it is adopted. A role that is missing is the trouble of its tasks alone.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Client qw(monotonic);
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $dir = PostgreSQL::Test::Utils::tempdir;
my @databases = map { "db_$_" } 1 .. 10;

sub server
{
	my ($name) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init;
	$node->append_conf('postgresql.conf', "max_worker_processes = 60\nrevenant.max_runners = 40");
	$node->start;
	return $node;
}

# A program ends well, says nothing, and soon enough.
sub run_well
{
	my ($name, @command) = @_;
	my ($out, $err);
	my $start = monotonic();

	ok(IPC::Run::run(\@command, '<', \undef, '>', \$out, '2>', \$err, IPC::Run::timeout(60)), $name);
	is($err, '', '... without a word');
	cmp_ok(monotonic() - $start, '<', 30, sprintf('... in %.2f s', monotonic() - $start));
	return;
}

# What is said of the tasks of each database
sub tasks
{
	my ($node, $database) = @_;

	return $node->safe_psql($database, "SELECT name, phase, coalesce(reason, '') FROM revenant.tasks ORDER BY name");
}

sub runs
{
	my ($node, $database, $name) = @_;

	ok( $node->poll_query_until($database, "SELECT string_agg(name || ' ' || phase, ', ' ORDER BY name)
			= 'daemon leading, later scheduled, off disabled, worker leading' FROM revenant.tasks"), $name)
	  or diag tasks($node, $database);
	return;
}

my $foreign = 'it was made in another database or cluster: revenant.adopt() takes it over';

# --- the source

my $source = server('source');
$source->safe_psql('postgres', 'CREATE ROLE worker LOGIN; CREATE ROLE admin LOGIN');
foreach my $database (@databases)
{
	$source->safe_psql('postgres', "CREATE DATABASE $database");
	$source->safe_psql($database, q{
		CREATE EXTENSION revenant;
		CREATE TABLE log (task text, at timestamptz DEFAULT clock_timestamp(), token bigint);
		GRANT INSERT ON log TO worker;
		SELECT revenant.grant_usage('worker', 'user'), revenant.grant_usage('admin', 'admin');
		SELECT revenant.guard_table('log', 'task/daemon');
		SELECT revenant.create_task('daemon', 'INSERT INTO public.log VALUES (revenant.current_task(), DEFAULT, revenant.current_token()); SELECT pg_sleep(3600)');
		SELECT revenant.create_task('worker', 'SELECT pg_sleep(3600)', run_as => 'worker', settings => '{"work_mem": "5MB"}', metadata => '{"a": 1}');
		SELECT revenant.create_task('later', 'SELECT 1', '0 3 * * *', timezone => 'Europe/Berlin');
		SELECT revenant.create_task('off', 'SELECT 1', enabled => false);
	});
}
runs($source, $_, "$_: its tasks run") foreach @databases;
is($source->safe_psql('db_1', 'SELECT revenant.adopt()'), 0, 'where they were made there is nothing to adopt');

run_well('pg_dumpall', 'pg_dumpall', '-d', $source->connstr('postgres'), '-f', "$dir/all.sql");
run_well('pg_dump', 'pg_dump', '-Fd', '--jobs=2', '-d', $source->connstr('db_1'), '-f', "$dir/one");

# --- all of it, into a server whose scheduler is running

my $target = server('target');
# the one role that is in both
my $me = $target->safe_psql('postgres', 'SELECT current_user');
my $all = slurp_file("$dir/all.sql");
like($all, qr/^CREATE ROLE $me;/m, 'the dump makes the role that is there already');
$all =~ s/^CREATE ROLE $me;\n//m;
append_to_file("$dir/restored.sql", $all);
my $deadlocks = "SELECT sum(deadlocks) FROM pg_stat_database";
run_well('psql restores the dump', 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-o', '/dev/null', '-d', $target->connstr('postgres'), '-f', "$dir/restored.sql");
is($target->safe_psql('postgres', $deadlocks), 0, 'no deadlock');

foreach my $database (@databases)
{
	my $start = monotonic();
	ok( $target->poll_query_until($database, "SELECT count(*) = 4 AND bool_and(CASE WHEN name = 'off' THEN phase = 'disabled'
			ELSE phase = 'held' AND reason = '$foreign' AND pid IS NULL END) FROM revenant.tasks"), "$database: restored, and held")
	  or diag tasks($target, $database);
	cmp_ok(monotonic() - $start, '<', 5, '... soon');
	is($target->safe_psql($database, "SELECT count(*), count(token) FROM log"), '1|1', '... with the data of then');
}
is($target->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'revenant runner'"), 0, 'nothing of it runs');
is($target->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'"), 10, 'though every database is supervised');
foreach my $database (@databases)
{
	is($target->safe_psql($database, 'SELECT revenant.adopt()'), 4, "$database: adopted");
	runs($target, $database, '... its tasks run');
	is($target->safe_psql($database, 'SELECT count(*) = count(DISTINCT token) FROM log'), 't', '... with a token of their own');
}
is($target->safe_psql('db_1', "SELECT settings, metadata, timezone, run_as FROM revenant.task WHERE name IN ('worker', 'later') ORDER BY name"),
	"||Europe/Berlin|$me\n" . '{"work_mem": "5MB"}|{"a": 1}||worker', 'what belongs to a task came along');
unlike(slurp_file($target->logfile), qr/^\d{4}-.* (ERROR|FATAL|WARNING):|revenant supervisor could not/m, 'and the log has nothing of it');

# --- one database, by two processes

$target->safe_psql('postgres', 'CREATE DATABASE parallel');
run_well('pg_restore --jobs=2', 'pg_restore', '--exit-on-error', '--jobs=2', '-d', $target->connstr('parallel'), "$dir/one");
ok($target->poll_query_until('parallel', "SELECT count(*) = 3 FROM revenant.tasks WHERE phase = 'held'"), 'restored, and held');
is($target->safe_psql('parallel', 'SELECT revenant.adopt()'), 4, 'adopted');
runs($target, 'parallel', 'its tasks run');

# once more over what runs: nothing of it comes back that was not there
run_well('pg_restore --clean', 'pg_restore', '--exit-on-error', '--clean', '--jobs=2', '-d', $target->connstr('parallel'), "$dir/one");
ok($target->poll_query_until('parallel', "SELECT count(*) = 3 FROM revenant.tasks WHERE phase = 'held' AND reason = '$foreign'"), 'restored over itself, they are held again');
is($target->safe_psql('parallel', 'SELECT revenant.adopt()'), 4, 'adopted');
runs($target, 'parallel', 'its tasks run');

# --- a server without the roles

my $other = server('other');
$other->safe_psql('postgres', 'CREATE DATABASE one');
my ($out, $err);
IPC::Run::run([ 'pg_restore', '-d', $other->connstr('one'), "$dir/one" ], '<', \undef, '>', \$out, '2>', \$err);
like($err, qr/role "worker" does not exist/, 'a restore over roles that do not exist complains');
unlike(join("\n", grep { /ERROR:/ } split /\n/, $err), qr/ERROR:  (?!role "(worker|admin)" does not exist)/, '... of nothing but them');
ok($other->poll_query_until('one', "SELECT count(*) = 3 FROM revenant.tasks WHERE phase = 'held'"), 'its tasks are there, and held');
is($other->safe_psql('one', 'SELECT revenant.adopt()'), 4, 'they can be adopted');
ok( $other->poll_query_until('one', "SELECT string_agg(name || ' ' || phase, ', ' ORDER BY name)
		= 'daemon leading, later scheduled, off disabled, worker held' FROM revenant.tasks"), 'then those run that can')
  or diag tasks($other, 'one');
is($other->safe_psql('one', "SELECT reason FROM revenant.tasks WHERE name = 'worker'"), 'role "worker" does not exist', 'and the other one says why not');
is(scalar(() = slurp_file($other->logfile) =~ /task "worker" is held: role "worker" does not exist/g), 1, 'the log says it once');
$other->safe_psql('one', 'CREATE ROLE worker LOGIN');
ok($other->poll_query_until('one', "SELECT phase = 'held' AND reason LIKE '%is not the role%' FROM revenant.tasks WHERE name = 'worker'"),
	'a role of that name that comes later does not run it');

$_->stop('fast') foreach $source, $target, $other;
done_testing();
