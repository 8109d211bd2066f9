# Who somebody is: in another database, by a name that was another's before, with the right to signal, with a login and nothing else.

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
	CREATE DATABASE other;
	CREATE EXTENSION revenant;
	CREATE ROLE alice LOGIN; CREATE ROLE mallory LOGIN; CREATE ROLE signaller LOGIN IN ROLE pg_signal_backend; CREATE ROLE kid LOGIN IN ROLE alice; CREATE ROLE nobody_at_all LOGIN;
	SELECT revenant.grant_usage(r, 'admin') FROM unnest('{alice, mallory, kid}'::text[]) AS r;
	GRANT CREATE ON SCHEMA public TO alice;
});
$node->safe_psql('other', "CREATE EXTENSION revenant; SELECT revenant.grant_usage('mallory', 'admin')");
sub other { return $node->safe_psql('other', "SET SESSION AUTHORIZATION mallory; $_[0]") }

# --- in another database, as an admin there

my $token = sql("SET SESSION AUTHORIZATION alice; SELECT revenant.acquire('shared name', ttl => '1 h', holder => 'alice', metadata => '{\"secret\": 1}')");
is(other('SELECT count(*) FROM revenant.leases'), 0, 'leases of one database are not seen in another one');
is(other("SELECT revenant.explain_lease('shared name')"), '"shared name" is free.', 'nor explained');
is(other("SELECT revenant.is_current('shared name', $token), revenant.release('shared name', $token), revenant.renew('shared name', $token) IS NULL, revenant.revoke('shared name') IS NULL"), 'f|f|t|t', 'its tokens are nothing there');
is(other("SELECT revenant.acquire('shared name', ttl => '1 h') IS NOT NULL"), 't', 'and the same name is another lease');
is(other("SELECT revenant.revoke('shared name') IS NOT NULL"), 't', 'which can be revoked');
is(sql("SET SESSION AUTHORIZATION alice; SELECT revenant.is_current('shared name', $token)"), 't', 'without a change to the first one');
is(other("SELECT count(*) FROM revenant.events() WHERE pid NOT IN (SELECT pid FROM pg_stat_activity WHERE datname = 'other') AND subject <> 'shared name'"), 0, 'no event of another database is told');
sql("SET SESSION AUTHORIZATION alice; SELECT revenant.create_task('private', 'SELECT pg_sleep(3600)', restart => 'permanent', backoff_min => '10 ms', max_restarts => 50)");
becomes("SELECT phase = 'leading' FROM revenant.tasks", 'a task runs');
is(other("SELECT (SELECT count(*) FROM revenant.tasks), (SELECT count(*) FROM revenant.events() WHERE subject = 'private')"), '0|0', 'which is not told there, either');

# --- what a login without a level sees and can do

is($node->safe_psql('postgres', "SET SESSION AUTHORIZATION nobody_at_all; SELECT string_agg(concat_ws('|', application_name, query, backend_type), ' ') FROM pg_stat_activity WHERE application_name LIKE 'revenant task%'"),
	'revenant task private|<insufficient privilege>', 'the name of a task, and nothing else of it');
sqlstate('42501', 'SET SESSION AUTHORIZATION nobody_at_all; SELECT revenant.events()', 'nothing of events');
sqlstate('42501', 'SET SESSION AUTHORIZATION nobody_at_all; TABLE revenant.stat_database', 'nor of statistics');

# --- signals

my $runner = sql("SELECT pid FROM revenant.tasks WHERE name = 'private'");
foreach my $role (qw(nobody_at_all mallory))
{
	sqlstate('42501', "SET SESSION AUTHORIZATION $role; SELECT pg_terminate_backend($runner)", "$role does not end a run of alice's");
	sqlstate('42501', "SET SESSION AUTHORIZATION $role; SELECT pg_cancel_backend($runner)", 'nor cancel it');
}
foreach my $type ('launcher', 'supervisor')
{
	my $pid = sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'revenant $type' AND coalesce(datname, 'postgres') = 'postgres'");
	sqlstate('42501', "SET SESSION AUTHORIZATION $_; SELECT pg_terminate_backend($pid)", "$_ does not end the $type") foreach qw(signaller mallory kid);
}
sql("SELECT revenant.create_task('the boss''s', 'SELECT pg_sleep(3600)')");
becomes("SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'the boss''s'", "a superuser's task runs");
sqlstate('42501', "SET SESSION AUTHORIZATION signaller; SELECT pg_terminate_backend(" . sql("SELECT pid FROM revenant.tasks WHERE name = 'the boss''s'") . ')', 'nobody else ends that');
foreach my $role (qw(kid signaller))
{
	my $failures = sql("SELECT failures FROM revenant.tasks WHERE name = 'private'");
	$runner = sql("SELECT pid FROM revenant.tasks WHERE name = 'private'");
	is(sql("SET SESSION AUTHORIZATION $role; SELECT pg_terminate_backend($runner)"), 't', "$role may end alice's, as PostgreSQL has it");
	becomes("SELECT phase = 'leading' AND failures = $failures + 1 AND pid <> $runner FROM revenant.tasks WHERE name = 'private'", 'that is a failure, and it runs again');
}

# --- a role is dropped, and somebody else gets its name

sql(q{
	SET SESSION AUTHORIZATION alice;
	SELECT revenant.create_plan('alice''s');
	SELECT (revenant.publish('alice''s', revenant.lead_plan('alice''s', 'a'), '[{"id": "one", "spec": {"secret": 1}}, {"id": "two"}]')).created;
	SELECT revenant.create_snapshot_table('counted');
	CREATE FUNCTION h(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS 'SELECT $3, $3, NULL::text';
	SELECT revenant.create_entity_type('counted', 'counted', 'h');
	SELECT revenant.call('counted', 'a', '{"secret": 1}', request_id => '00000000-0000-0000-0000-000000000001');
	SELECT revenant.send_after('counted', 'a', '{"secret": 1}', '10 days');
});
my ($epoch) = split /\|/, sql("SET SESSION AUTHORIZATION alice; SELECT epoch FROM revenant.claim_splits('alice''s', 'w')");
my $timer = sql('SELECT message_id FROM revenant.message');
sql("REASSIGN OWNED BY alice TO mallory; DROP OWNED BY alice; DROP ROLE alice; CREATE ROLE alice LOGIN");
becomes("SELECT phase = 'held' FROM revenant.tasks WHERE name = 'private'", 'her task is held');
is(sql("SELECT has_schema_privilege('alice', 'revenant', 'USAGE')"), 'f', 'another role of her name has no level');
sql("SELECT revenant.grant_usage('alice', 'user'); GRANT ALL ON counted TO alice");
sqlstate('42501', "SET SESSION AUTHORIZATION alice; SELECT revenant.$_", "and is not given what was hers: $_")
	foreach ("renew('shared name', $token)", "release('shared name', $token)", "fence('shared name', $token)", "try_acquire('task/private')", "try_acquire('plan/alice''s')",
	"claim_splits('alice''s', 'w')", "commit_split('alice''s', 'one', $epoch)", "lead_plan('alice''s', 'a')", "join_plan('alice''s', 'w')", "cancel_timer($timer)", "discard_message($timer)");
is(sql("SET SESSION AUTHORIZATION alice; SELECT (SELECT count(token) FROM revenant.leases), (SELECT count(*) FROM revenant.messages), (SELECT count(spec) + count(epoch) FROM revenant.splits), (SELECT count(generation) FROM revenant.plans),
	(SELECT count(token) + count(detail) FROM revenant.events())"), '0|0|0|0|0', 'nor shown');
sqlstate('22023', "SET SESSION AUTHORIZATION alice; SELECT revenant.call('counted', 'a', '{\"secret\": 1}', request_id => '00000000-0000-0000-0000-000000000001')", 'nor told what was answered');
is(sql("SELECT role, revenant.is_current(lease, token) FROM revenant.leases WHERE lease = 'shared name'"), 'alice|t', 'the lease is held to its end');
unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal/, 'nothing crashed');

$node->stop;
done_testing();
