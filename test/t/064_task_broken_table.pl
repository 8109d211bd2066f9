# Tables of the extension that are not as it made them end in an error or in a task that is held, not in a crash of the server.

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
sql('CREATE EXTENSION revenant; CREATE TABLE ran (task text)');

sub columns
{
	my ($table) = @_;
	return split /\n/, sql("SELECT attname FROM pg_attribute WHERE attrelid = 'revenant.$table'::regclass AND attnum > 0 AND attnotnull AND attname <> 'name' ORDER BY attnum");
}

sub survived { return unlike(slurp_file($node->logfile), qr/terminated by signal/, $_[0]) }

# Another task is made and runs.
my $others = 0;
sub others_run
{
	my ($name) = @_;
	$others++;
	sql("SELECT revenant.create_task('other $others', 'INSERT INTO public.ran VALUES (''other $others'')', restart => 'temporary')");
	becomes("SELECT count(*) = 1 FROM ran WHERE task = 'other $others'", $name);
	return survived('... and nothing crashed');
}

# --- a value that must be there is not

my @columns = columns('task');
sql(join '; ', map { "SELECT revenant.create_task('no $_', 'INSERT INTO public.ran VALUES (''bad'')', '300 days')" } @columns);
becomes("SELECT count(*) = @{[ scalar @columns ]} FROM revenant.tasks WHERE phase = 'scheduled'", 'as they were made they are good');
sql(join '; ', map { "ALTER TABLE revenant.task ALTER COLUMN $_ DROP NOT NULL; UPDATE revenant.task SET $_ = NULL WHERE name = 'no $_'" } @columns);
others_run('among rows with a NULL another task runs') or die 'the server crashes';
foreach my $column (@columns)
{
	ok($node->poll_query_until('postgres', "SELECT phase = 'held' AND reason LIKE 'its row cannot be read%' FROM revenant.tasks WHERE name = 'no $column'"), "no $column: it is held")
	  or diag sql("SELECT phase, reason FROM revenant.tasks WHERE name = 'no $column'");
	$node->psql('postgres', "SELECT revenant.${_}_task('no $column')") foreach qw(enable disable run restart unquarantine);
	survived("... whatever is asked of it");
}
$node->psql('postgres', 'SELECT revenant.adopt()');
survived('... also by adopt');
foreach my $column (@columns)
{
	$node->psql('postgres', "SELECT revenant.drop_task('no $column')");
	survived("no $column: it can be asked to go");
}
is(sql("SELECT count(*) FROM ran WHERE task = 'bad'"), 0, 'nothing of it ran');
sql("DELETE FROM revenant.task WHERE name LIKE 'no %'");

my @state = columns('task_state');
sql(join '; ', map { "SELECT revenant.create_task('state $_', 'SELECT pg_sleep(3600)', backoff_min => '10 ms')" } @state);
becomes("SELECT count(*) = @{[ scalar @state ]} FROM revenant.tasks WHERE phase = 'leading'", 'tasks run');
sql(join '; ', map { "ALTER TABLE revenant.task_state ALTER COLUMN $_ DROP NOT NULL; UPDATE revenant.task_state SET $_ = NULL WHERE name = 'state $_'" } @state);
others_run('where a state has a NULL another task runs') or die 'the server crashes';
sql("SELECT pg_terminate_backend(pid) FROM revenant.tasks WHERE pid IS NOT NULL");
others_run('also after those have ended');
sql("SELECT revenant.drop_task(name) FROM revenant.tasks");

# --- a table of another version

foreach my $table ('task', 'task_state')
{
	sql("ALTER TABLE revenant.$table ADD COLUMN more int, ADD COLUMN still_more text DEFAULT repeat('x', 100)");
	my (undef, undef, $said) = $node->psql('postgres', "\\set VERBOSITY verbose\nSELECT revenant.create_task('$table', 'SELECT 1')");
	like($said, qr/ERROR:  55000: .*HINT:  Run ALTER EXTENSION revenant UPDATE/s, "$table of another version: what to do");
	is(sql("CREATE TABLE beside_$table AS SELECT 1 AS x; INSERT INTO beside_$table VALUES (2); SELECT count(*) FROM beside_$table"), '2', 'and it is in nobody else\'s way');
	$node->psql('postgres', $_) foreach 'TABLE revenant.tasks', 'SELECT revenant.adopt()', "SELECT revenant.drop_task('$table')";
	$node->restart;
	survived("$table with columns that we do not know");
	sql("ALTER TABLE revenant.$table DROP COLUMN more, DROP COLUMN still_more");
	$node->psql('postgres', "SELECT revenant.create_task('$table', 'SELECT 1')");
	$node->restart;
	survived("... and with dropped ones");
}
$node->stop('fast');
survived('to the end');
done_testing();
