# Functions that users name or put on their tables are run by our processes: as whom, and for how long, is not theirs to say.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use Client qw(monotonic);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Relaxed;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', 'max_worker_processes = 24');
$node->start;
asks($node);
relaxed_setup($node);
sql(q{
	CREATE ROLE mallory LOGIN; CREATE ROLE victim LOGIN; CREATE ROLE other LOGIN;
	GRANT CREATE ON SCHEMA public TO mallory, victim, other;
	SELECT revenant.grant_usage('mallory', 'admin'), revenant.grant_usage('victim', 'admin'), revenant.grant_usage('other', 'admin');
});

# --- what ends idle entities runs as the owner of their table: so the functions are to be of somebody who could become that

# The three forms of it: a terminator of mallory's; an upgrade of hers beside a terminator of the new owner's; and one beside a terminator that is gone.
my @cases = qw(terminator upgrade gone);
foreach my $type (@cases)
{
	# A trace that no rollback takes away.
	sql("CREATE SEQUENCE ${type}_as_$_; GRANT ALL ON SEQUENCE ${type}_as_$_ TO PUBLIC") foreach qw(mallory victim);
	sql(qq{SET SESSION AUTHORIZATION mallory;
		CREATE FUNCTION ${type}_end(id text, state jsonb, reason text) RETURNS void LANGUAGE sql AS 'SELECT nextval((''public.${type}_as_'' || current_user)::regclass)';
		CREATE FUNCTION ${type}_up(vsn int, state jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT nextval((''public.${type}_as_'' || current_user)::regclass); SELECT state';
		SELECT revenant.create_snapshot_table('${type}_state');
		SELECT revenant.create_entity_type('$type', '${type}_state', 'public.counter', durability => 'on_stop', idle_timeout => '10 s', terminator => '${type}_end', upgrade => '${type}_up')});
	warm($node, $type, 'one');
	# She leaves, and what was hers is another's; all of it long before the entity is idle.
	my $dirty = sql(join ";\n", 'SET SESSION AUTHORIZATION mallory', "SELECT revenant.call('$type', 'one', '1') IS NULL",
		$type eq 'terminator' ? () : "SELECT count(revenant.alter_entity_type('$type', '{\"vsn\": 2}')::text) IS NULL", 'RESET SESSION AUTHORIZATION', "ALTER TABLE ${type}_state OWNER TO victim",
		$type eq 'upgrade' ? "ALTER FUNCTION ${type}_end OWNER TO victim" : (), $type eq 'gone' ? "DROP FUNCTION ${type}_end" : (),
		"SELECT dirty FROM revenant.loaded_entities WHERE type = '$type' AND id = 'one'");
	like($dirty, qr/t$/, "$type: an entity is ahead of its row when its table gets another owner");
}
sub traces { return sql("SELECT (SELECT is_called FROM $_[0]_as_mallory), (SELECT is_called FROM $_[0]_as_victim)") }
foreach my $type (@cases)
{
	becomes("SELECT count(*) = 1 FROM revenant.messages WHERE type = '$type' AND kind = 'stop' AND sender = 'victim' AND attempts > 0", "$type: it is idle, and that is told to a process of the new owner's");
	is(sql("SELECT sqlstate FROM revenant.messages WHERE type = '$type'"), $type eq 'gone' ? '42883' : '42501', "$type: which refuses what it would be told by");
	is(traces($type), 'f|f', "$type: and has run nothing of it");
	# in the new owner's hands it works
	sql("SET SESSION AUTHORIZATION mallory; CREATE FUNCTION gone_end(id text, state jsonb, reason text) RETURNS void LANGUAGE sql AS 'SELECT nextval(''public.gone_as_'' || current_user)'") if $type eq 'gone';
	sql("ALTER FUNCTION ${type}_up OWNER TO victim; ALTER FUNCTION ${type}_end OWNER TO victim;
		SELECT revenant.resend_message(message_id) FROM revenant.messages WHERE type = '$type' AND state = 'set aside'");
	becomes("SELECT count(*) = 0 FROM revenant.loaded_entities WHERE type = '$type'", "$type: once they are the owner's, it is ended");
	is(traces($type), 'f|t', "$type: by them");
}

# --- a function that goes on after it was cancelled keeps its own role's process, for a while, and nobody else

sql(q{
	CREATE FUNCTION stubborn(state jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		WHILE current_setting('application_name') LIKE 'revenant flush%' LOOP
			BEGIN
				PERFORM pg_sleep(3600);
			EXCEPTION WHEN query_canceled THEN
				RAISE LOG 'cancelled, and goes on';
			END;
		END LOOP;
		RETURN true;
	END $$;
});
sql("SET SESSION AUTHORIZATION $_; SELECT revenant.create_snapshot_table('${_}_state'); SELECT revenant.create_entity_type('$_', '${_}_state', 'public.counter', durability => 'interval', flush_every => '100 ms')")
	foreach qw(mallory other);
warm($node, 'mallory', 'one');
warm($node, 'other', 'one');
sql("SET SESSION AUTHORIZATION mallory; SELECT revenant.create_snapshot_table('second_state'); SELECT revenant.create_entity_type('second', 'second_state', 'public.counter', durability => 'interval', flush_every => '100 ms')");
warm($node, 'second', 'one');
sql('ALTER TABLE mallory_state ADD CHECK (stubborn(state)) NOT VALID');
my $flusher = "SELECT %s FROM pg_stat_activity WHERE backend_type = 'revenant flush' AND usename = 'mallory'";
sub keep_busy
{
	$node->poll_query_until('postgres', "SELECT revenant.call('mallory', 'one', '1') IS NOT NULL AND EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'revenant flush' AND usename = 'mallory' AND wait_event = 'PgSleep')");
	return;
}
keep_busy();
my $pid = sql(sprintf $flusher, 'pid');
ok($pid, "mallory's flusher is in her function");
sql("SELECT revenant.call('other', 'one', '1')");
my $n = sql("SELECT state ->> 'n' FROM revenant.read_entity('other', 'one')");
becomes("SELECT state ->> 'n' = '$n' FROM other_state WHERE id = 'one'", "meanwhile another owner's entities are written");
ok($node->wait_for_log(qr/cancelled, and goes on/), 'it is cancelled after its time, and does not care');
becomes("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)", 'then its process is ended');
like(slurp_file($node->logfile), qr/revenant ended the flusher of role "mallory": a function went on although it was cancelled/, 'and the log says why');
my $mallorys = sql("SELECT state ->> 'n' FROM revenant.read_entity('mallory', 'one')");
is(sql("SELECT dirty FROM revenant.loaded_entities WHERE type = 'mallory' AND id = 'one'"), 't', 'what it had to write is in memory still');

# the next one does not begin with it
sql("SELECT revenant.call('second', 'one', '1')");
$n = sql("SELECT state ->> 'n' FROM revenant.read_entity('second', 'one')");
becomes("SELECT state ->> 'n' = '$n' FROM second_state WHERE id = 'one'", 'what is in another table of hers is written by the next one');

# who wants the process to end waits for it, though not for ever
keep_busy();
$pid = sql(sprintf $flusher, 'pid');
is(sql("SELECT pg_terminate_backend($pid, 60000)"), 't', 'it can be terminated');
# the same of a task's command, and of a handler
sql(q{
	CREATE FUNCTION deaf() RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		LOOP
			BEGIN
				PERFORM pg_sleep(3600);
			EXCEPTION WHEN query_canceled THEN NULL;
			END;
		END LOOP;
	END $$;
	CREATE FUNCTION deaf_handler(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS 'SELECT deaf(); SELECT NULL::jsonb, NULL::jsonb, NULL::text';
	SET SESSION AUTHORIZATION mallory;
	SELECT revenant.create_snapshot_table('deaf_state');
	SELECT revenant.create_entity_type('deaf', 'deaf_state', 'deaf_handler');
	SELECT revenant.send('deaf', 'one', '1');
	SELECT revenant.create_task('deaf', 'SELECT public.deaf()', timeout => '100 ms');
});
becomes("SELECT count(*) = 2 FROM pg_stat_activity WHERE usename = 'mallory' AND backend_type IN ('revenant runner', 'revenant delivery') AND wait_event = 'PgSleep'", 'others of her processes do not listen, either');
keep_busy();
my $start = monotonic();
$node->stop('fast');
cmp_ok(monotonic() - $start, '<', 40, 'and a fast shutdown comes to its end');
my $log = slurp_file($node->logfile);
unlike($log, qr/PANIC|terminated by signal|immediate shutdown/, 'in good order');

done_testing();
