# A standby follows, and runs the tasks soon after its promotion, with greater tokens;
# what ran on the old primary is not "running" for ever.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->append_conf('postgresql.conf', "revenant.node_name = 'old'");
$primary->start;
$primary->safe_psql('postgres', 'CREATE EXTENSION revenant; CREATE TABLE log (at timestamptz DEFAULT clock_timestamp(), token bigint)');
$primary->backup('base');

my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "revenant.node_name = 'new'");
$standby->start;

my $note = 'INSERT INTO public.log (token) VALUES (revenant.current_token())';
$primary->safe_psql('postgres', "SELECT revenant.create_task('daemon', '$note; SELECT pg_sleep(3600)');
	SELECT revenant.create_task('off', 'SELECT 1', enabled => false)");
ok($primary->poll_query_until('postgres', "SELECT count(*) = 1 FROM log"), 'the task runs on the primary');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));

is( $standby->safe_psql('postgres', "SELECT phase, node, pid IS NOT NULL, reason IS NOT NULL FROM revenant.tasks WHERE name = 'daemon'"),
	'following|old|t|t', 'the standby follows, and names the leading node');
is($standby->safe_psql('postgres', "SELECT phase FROM revenant.tasks WHERE name = 'off'"), 'disabled', 'a disabled task is disabled there, too');
ok($standby->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'"),
	'a supervisor waits there');
is($standby->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'revenant runner'"), '0', 'and no runner');
my (undef, undef, $err) = $standby->psql('postgres', "\\set VERBOSITY sqlstate\nSELECT revenant.create_task('x', 'SELECT 1')");
like($err, qr/25006/, 'a task cannot be created there');

# --- a database that gets the extension while the standby looks on

$primary->safe_psql('postgres', 'CREATE DATABASE late');
$primary->safe_psql('late', "CREATE EXTENSION revenant; SELECT revenant.create_task('late', 'SELECT pg_sleep(3600)')");
ok($primary->poll_query_until('late', "SELECT phase = 'leading' FROM revenant.tasks"), 'it runs on the primary');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));

# --- promotion

my $before = $primary->safe_psql('postgres', 'SELECT max(token) FROM log');
$primary->stop('immediate');
$standby->promote;
my $promoted = time;
ok($standby->poll_query_until('postgres', "SELECT count(*) = 2 FROM log"), 'the task runs on the promoted standby');
note sprintf('seen %.0f ms after the promotion', (time - $promoted) * 1000);
cmp_ok($standby->safe_psql('postgres', 'SELECT max(token) FROM log'), '>', $before, 'with a greater token');
cmp_ok($standby->safe_psql('postgres', 'SELECT (max(token) >> 40) - (min(token) >> 40) FROM log'), '>=', 1, 'of a later era');
ok($standby->poll_query_until('postgres', "SELECT phase = 'leading' AND node = 'new' FROM revenant.tasks WHERE name = 'daemon'"), 'it leads there');
is($standby->safe_psql('postgres', "SELECT last_error, failures, restarts, runs FROM revenant.tasks WHERE name = 'daemon'"),
	'interrupted|0|1|1', 'the run of the old primary is closed as interrupted, which is no failure');
ok($standby->poll_query_until('late', "SELECT phase = 'leading' AND node = 'new' FROM revenant.tasks"), 'so it is in the other database');

# --- a claim_delay counts from the start

$standby->safe_psql('postgres', "SELECT revenant.create_task('patient', 'SELECT pg_sleep(3600)', claim_delay => '1 h')");
ok($standby->poll_query_until('postgres', "SELECT phase = 'scheduled' AND reason LIKE '%claim_delay%' FROM revenant.tasks WHERE name = 'patient'"),
	'claim_delay keeps a task back');

# --- a clean restart, too

$standby->restart;
ok($standby->poll_query_until('postgres', "SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'daemon'"), 'after a restart it runs again');
unlike(slurp_file($standby->logfile), qr/cannot go from phase/, 'no transition was outside the table');

done_testing();
