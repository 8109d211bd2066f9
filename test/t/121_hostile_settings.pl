# Settings of roles and databases: who can set them for his own role or database changes nobody else's process, and no right.

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
$node->append_conf('postgresql.conf', 'max_worker_processes = 24');
$node->start;
asks($node);
sql(q{
	CREATE ROLE mallory LOGIN; CREATE ROLE alice LOGIN; 
	CREATE DATABASE theirs OWNER mallory;
	CREATE EXTENSION revenant;
	SELECT revenant.grant_usage(r, 'admin') FROM unnest('{mallory, alice}'::text[]) AS r;
});

# --- ALTER ROLE: hers alone, and not what we do before her command

sql(q{
	ALTER ROLE mallory SET search_path = pg_temp, evil, public; ALTER ROLE mallory SET default_transaction_isolation = serializable;
	ALTER ROLE mallory SET default_transaction_read_only = on; ALTER ROLE mallory SET statement_timeout = 1; ALTER ROLE mallory SET lock_timeout = 1;
	ALTER ROLE mallory SET idle_in_transaction_session_timeout = 1; ALTER ROLE mallory SET row_security = off; ALTER ROLE mallory SET synchronous_commit = off;
	ALTER ROLE mallory SET client_min_messages = error; ALTER ROLE mallory SET standard_conforming_strings = off; ALTER ROLE mallory SET DateStyle = 'German';
	ALTER ROLE mallory SET IntervalStyle = 'sql_standard'; ALTER ROLE mallory SET TimeZone = 'Asia/Kathmandu'; ALTER ROLE mallory SET application_name = 'psql';
	ALTER ROLE mallory SET local_preload_libraries = 'nothing';
});
sql("SET SESSION AUTHORIZATION mallory; SELECT revenant.create_task('set', 'SELECT pg_sleep(0.2)', '300 days', restart => 'temporary', run_as => 'mallory'); SELECT revenant.run_task('set')");
becomes("SELECT failures = 1 AND last_sqlstate IN ('57014', '58P01') FROM revenant.tasks WHERE name = 'set'", 'her own run has her own settings');
is(sql("SELECT count(*) FROM revenant.tasks WHERE name = 'set' AND phase = 'scheduled'"), 1, 'and is written down');

# --- ALTER DATABASE, by its owner: not the supervisor's, and no task of others gets his rights

$node->safe_psql('theirs', q{
	CREATE EXTENSION revenant;
	SELECT revenant.grant_usage('mallory', 'admin');
	CREATE TABLE ran (who text DEFAULT current_user, session text DEFAULT session_user); GRANT INSERT ON ran TO PUBLIC;
});
sql("SET SESSION AUTHORIZATION mallory;
	ALTER DATABASE theirs SET role = mallory; ALTER DATABASE theirs SET search_path = evil; ALTER DATABASE theirs SET statement_timeout = 1;
	ALTER DATABASE theirs SET lock_timeout = 1; ALTER DATABASE theirs SET default_transaction_read_only = on; ALTER DATABASE theirs SET default_transaction_isolation = serializable");
sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'theirs' AND backend_type = 'revenant supervisor'");
becomes("SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = 'theirs' AND backend_type = 'revenant supervisor'", 'a supervisor comes back');
{
	local $ENV{PGOPTIONS} = '-c statement_timeout=0 -c lock_timeout=0 -c default_transaction_read_only=off -c search_path=public -c role=postgres';
	$node->safe_psql('theirs', "SELECT revenant.create_task('alice''s', 'SET default_transaction_read_only = off; SET search_path = public; INSERT INTO ran DEFAULT VALUES', restart => 'temporary', run_as => 'alice', settings => '{\"statement_timeout\": 0}')");
	ok($node->poll_query_until('theirs', "SELECT count(*) = 1 FROM ran WHERE who = 'alice' AND session = 'alice'"), 'tasks of others run as those others');
	is($node->safe_psql('theirs', "SELECT phase FROM revenant.tasks"), 'finished', 'and the supervisor writes down how that went');
}
my $log = slurp_file($node->logfile);
unlike($log, qr/PANIC|terminated by signal/, 'nothing crashed');
unlike($log, qr/revenant (supervisor|launcher) (ERROR|FATAL):(?!.*terminating)/, 'and no worker of ours has failed');

$node->stop;
done_testing();
