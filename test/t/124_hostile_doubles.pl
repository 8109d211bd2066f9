# Entities, messages and plans where everything in pg_catalog has a double that is found first: in public for every process, and in pg_temp, which is
# searched for tables and types before anything else, for the session that calls.

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
$node->append_conf('postgresql.conf', "max_worker_processes = 24\nlog_statement = none");
$node->start;
asks($node);
# The functions of users say where they look, as all should: pg_temp comes first unless it is said to come last.
sql('CREATE ROLE evil LOGIN; GRANT ALL ON SCHEMA public TO evil; CREATE ROLE honest LOGIN SUPERUSER; CREATE EXTENSION revenant');
sql(q{
	CREATE SCHEMA mine; ALTER SCHEMA mine OWNER TO honest; CREATE TABLE mine.ends (id text);
	CREATE FUNCTION mine.counter(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
	BEGIN RETURN ROW(to_jsonb(coalesce(state::bigint, 0) + 1), to_jsonb(coalesce(state::bigint, 0) + 1), NULL)::revenant.reply; END $$;
	CREATE FUNCTION mine.first(id text) RETURNS jsonb LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ SELECT '0'::jsonb $$;
	CREATE FUNCTION mine.upgrade(vsn int, state jsonb) RETURNS jsonb LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ SELECT $2 $$;
	CREATE FUNCTION mine.ended(id text, state jsonb, reason text) RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ INSERT INTO mine.ends VALUES ($1) $$;
	CREATE FUNCTION mine.planner(cursor jsonb, generation bigint) RETURNS revenant.split_plan LANGUAGE sql SET search_path = pg_catalog, pg_temp AS
		$$ SELECT ROW('[{"id": "one", "spec": {}}, {"id": "two", "weight": 2}]', NULL, true)::revenant.split_plan $$;
});
doubles_make($node, 'postgres');
sql('ALTER DATABASE postgres SET search_path = public, pg_catalog');

my @calls = (
	"revenant.create_snapshot_table('mine.snapshots', history => 2)", "revenant.save('mine.snapshots', 'a', 0, '1')", "revenant.save('mine.snapshots', 'a', 1, '2')", "revenant.load('mine.snapshots', 'a')",
	"revenant.load('mine.snapshots', 'a', for_update => true)", "revenant.load_version('mine.snapshots', 'a', 1)", "revenant.load_as_of('mine.snapshots', 'a', 'infinity')", "revenant.history('mine.snapshots', 'a')",
	"revenant.remove('mine.snapshots', 'a', 2)", "revenant.purge_deleted('mine.snapshots', 'infinity')",
	"revenant.create_entity_type('strict', 'mine.snapshots', 'mine.counter', initializer => 'mine.first')", "revenant.call('strict', 'a', '1')", "revenant.call('strict', 'a', '1', request_id => '00000000-0000-0000-0000-000000000001')",
	"revenant.call('strict', 'a', '1', request_id => '00000000-0000-0000-0000-000000000001')", "revenant.read_entity('strict', 'a')", "revenant.alter_entity_type('strict', '{\"vsn\": 2, \"upgrade\": \"mine.upgrade\"}')",
	"revenant.upgrade_all('strict')", "revenant.call('strict', 'a', '1')", "revenant.receipt()", "revenant.delete_entity('strict', 'a')",
	"revenant.create_snapshot_table('mine.kept')", "revenant.create_entity_type('kept', 'mine.kept', 'mine.counter', durability => 'interval', flush_every => '100 ms', idle_timeout => '500 ms', terminator => 'mine.ended')",
	(map { "revenant.call('kept', 'a', '1')" } 1 .. 5), "revenant.flush_entities()", "revenant.call('kept', 'b', '1')", "revenant.stop_entity('kept', 'b')", "revenant.call('kept', 'c', '1')", "revenant.call('kept', 'c', '1')",
	"revenant.send('strict', 'sent', '1')", "revenant.send('strict', 'sent', '1', request_id => '00000000-0000-0000-0000-000000000002')", "revenant.send_after('strict', 'timed', '1', '100 ms')", "revenant.cancel_timer(revenant.send_after('strict', 'never', '1', '1 day'))",
	"revenant.create_plan('planned', planner_function => 'mine.planner', replan_every => '30 s')",
	"revenant.create_plan('p')", "revenant.publish('p', revenant.lead_plan('p', 'me'), '[{\"id\": \"one\"}]')", "revenant.claim_splits('p', 'w')", "revenant.join_plan('p', 'w')", "revenant.plan_progress('p')",
	"revenant.alter_plan('p', '{\"max_attempts\": 2}')", "revenant.purge_plan('p', 'infinity')", "revenant.reset_plan('p')", "revenant.drop_plan('p')",
	"revenant.guard_table('mine.ends', 'g')", "revenant.unguard_table('mine.ends')");
my @views = qw(leases tasks task_runs messages loaded_entities plans splits members stat_leases stat_tasks stat_database stat_entities stat_plans);

{
	local $ENV{PGOPTIONS} = '-c search_path=pg_temp,public,pg_catalog';
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	# the session's own doubles, made with the real ones
	$session->query_safe(q{
		SET search_path = pg_catalog;
		DO $do$
		DECLARE
			p record;
		BEGIN
			FOR p IN SELECT relname FROM pg_catalog.pg_class WHERE relnamespace IN ('pg_catalog'::regnamespace, 'revenant'::regnamespace) AND relkind IN ('r', 'v') LOOP
				EXECUTE format('CREATE TEMP VIEW %I AS SELECT pg_catalog.nextval(''public.reached'') / 0 AS oid', p.relname);
			END LOOP;
			FOR p IN SELECT typname FROM pg_catalog.pg_type WHERE typnamespace IN ('pg_catalog'::regnamespace, 'revenant'::regnamespace) AND typtype IN ('b', 'c') AND typcategory IN ('B', 'D', 'N', 'S', 'T', 'U', 'I') LOOP
				BEGIN
					EXECUTE format('CREATE DOMAIN pg_temp.%I AS pg_catalog.bool CHECK (false)', p.typname);
				EXCEPTION WHEN OTHERS THEN NULL;	-- the name is a table's
				END;
			END LOOP;
		END $do$;
		SET search_path = pg_temp, public, pg_catalog});
	$session->query("SELECT '1'::pg_catalog.int4 + 1");
	like($session->{stderr}, qr/int4pl was reached/, 'operators have doubles');
	$session->{stderr} = '';
	$session->query('TABLE pg_class');
	like($session->{stderr}, qr/division by zero/, 'so have tables');
	$session->{stderr} = '';
	$session->query("SELECT '1'::text");
	like($session->{stderr}, qr/violates check constraint/, 'and types');
	$session->{stderr} = '';
	$session->query_safe("SELECT pg_catalog.setval('public.reached', 1, false)");
	foreach my $call ((map { "SELECT $_" } @calls), (map { "TABLE revenant.$_" } @views))
	{
		$session->{stderr} = '';
		$session->query($call);
		my $error = $session->{stderr};
		unlike($error, qr/was reached|division by zero|violates check/, "not reached by: $call");
		unlike($error, qr/ERROR/, '... and it works');
	}
	$session->quit;
}
$ENV{PGOPTIONS} = '-c search_path=pg_catalog';
becomes("SELECT count(*) = 2 FROM mine.snapshots WHERE id IN ('sent', 'timed') AND state IN ('2', '1')", 'messages and timers are delivered');
becomes("SELECT count(*) > 0 FROM mine.ends WHERE id IN ('a', 'c')", 'idle entities are ended');
becomes("SELECT count(*) = 0 FROM revenant.loaded_entities WHERE dirty", 'entities are flushed');
becomes("SELECT count(*) = 2 FROM revenant.splits WHERE plan = 'planned'", 'a planner has planned');
is(sql("SELECT count(*) FROM revenant.messages WHERE attempts > 0"), 0, 'no message has failed');
is(sql("SELECT string_agg(last_error, ' ') FROM revenant.tasks"), '', 'nor a task');
is(doubles_reached($node, 'postgres'), 0, 'and nothing of it was reached');

$node->stop;
done_testing();
