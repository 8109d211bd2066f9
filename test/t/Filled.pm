# A database with something of everything in it: what an upgrade or an update must bring along.

package Filled;

use strict;
use warnings;

use Exporter 'import';
use Mail;
use Relaxed;
use Test::More;

our @EXPORT = qw(fill fill_roles filled_greatest filled_rows goes_on);

my $request = '2d0c3f6e-2f0b-4c57-a4b6-5b1f1d3c9a10';
my %greatest;

# The roles, of which one has no level, and one cannot connect to where fill() was.
sub fill_roles
{
	my ($node) = @_;

	$node->safe_psql('postgres', q{
		CREATE ROLE alice LOGIN; CREATE ROLE "bob 'the "" builder" LOGIN; CREATE ROLE carol LOGIN; CREATE ROLE dave LOGIN; CREATE ROLE mute LOGIN;
	});
	return;
}

# Fills a database that has the extension, in any version.
sub fill
{
	my ($node, $database) = @_;
	my $in = sub { return $node->safe_psql($database, $_[0]) };
	my $becomes = sub { return $node->poll_query_until($database, $_[0]) || die "never: $_[0]" };

	$in->(q{
		DO $$ BEGIN EXECUTE format('REVOKE CONNECT ON DATABASE %I FROM PUBLIC; GRANT CONNECT ON DATABASE %1$I TO alice, carol, dave, %I', current_database(), 'bob ''the " builder'); END $$;
		GRANT ALL ON SCHEMA public TO alice;
		SELECT revenant.grant_usage('alice', 'admin'), revenant.grant_usage('bob ''the " builder', 'user'), revenant.grant_usage('carol', 'reader'), revenant.grant_usage('mute');
		GRANT USAGE ON SCHEMA revenant TO dave;
		GRANT SELECT ON revenant.stat_leases TO dave WITH GRANT OPTION;
		REVOKE EXECUTE ON FUNCTION revenant.send(text, text, jsonb, uuid) FROM carol;

		-- what depends on us, and what looks at commands
		CREATE VIEW public.looks AS SELECT name, phase, reason FROM revenant.tasks;
		CREATE TABLE public.kept (at timestamptz DEFAULT now(), what revenant.snapshot);
		INSERT INTO public.kept (what) VALUES (ROW('a', 1, 2, '{"n": 3}', NULL, false, false));
		CREATE TABLE public.commands (tag text);
		CREATE FUNCTION public.note_command() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.commands VALUES (tg_tag); END $$;
		CREATE EVENT TRIGGER note_command ON ddl_command_end EXECUTE FUNCTION public.note_command();
		GRANT INSERT ON public.commands TO PUBLIC;

		CREATE TABLE public.orders (n int PRIMARY KEY);
		CREATE TABLE public.parts (n int) PARTITION BY RANGE (n);
		CREATE TABLE public.low PARTITION OF public.parts FOR VALUES FROM (0) TO (10);
		SELECT revenant.guard_table('public.orders', 'orders ''writer" of all'), revenant.guard_table('public.parts', 'parts', replicas => true);
		BEGIN;
		SELECT revenant.fence('orders ''writer" of all', revenant.try_acquire_xact('orders ''writer" of all'));
		INSERT INTO public.orders SELECT generate_series(1, 100);
		COMMIT;

		SELECT revenant.try_acquire('plain', '1 h', metadata => '{"a": 1}'), revenant.try_acquire_all(ARRAY['a', 'it''s "b"'], '1 h'), revenant.claim('election', 'me', '1 h');
		SELECT revenant.release('off', revenant.try_acquire('off', '1 h'), hold_off => '1 h');
	});

	# tasks
	$in->(q{
		CREATE TABLE public.ran (task text, token bigint, at timestamptz DEFAULT clock_timestamp(), who name DEFAULT current_user);
		GRANT ALL ON public.ran TO alice;
		SELECT revenant.create_task('every ''second" of all', 'INSERT INTO public.ran VALUES (revenant.current_task(), revenant.current_token())', '1 s'),
			revenant.create_task('always', 'INSERT INTO public.ran VALUES (revenant.current_task(), revenant.current_token()); SELECT pg_sleep(3600)', run_as => 'alice', settings => '{"work_mem": "5MB"}', metadata => '{"a": 1}'),
			revenant.create_task('off', 'SELECT 1', '0 3 * * *', timezone => 'Europe/Berlin', follower_command => 'SELECT 2', lease => 'of off', timeout => '1 min', enabled => false),
			revenant.create_task('broken', 'SELECT 1 / 0', max_restarts => 0);
	});

	# plans
	$in->(q{
		CREATE TABLE public.planned AS SELECT 'one' AS id;
		GRANT SELECT ON public.planned TO alice;
		CREATE FUNCTION public.planner(cursor jsonb, generation bigint) RETURNS revenant.split_plan LANGUAGE sql AS $$
			SELECT ROW(jsonb_agg(to_jsonb(p)), '"all"', false)::revenant.split_plan FROM public.planned AS p
		$$;
		SET ROLE alice;
		SELECT revenant.create_plan('job ''of" all', fingerprint => 'f', max_attempts => 1, metadata => '{"a": 1}'), revenant.create_plan('over'), revenant.create_plan('tasked', planner_function => 'public.planner', replan_every => '1 h');
		SELECT revenant.publish('over', revenant.lead_plan('over', 'me'), '[{"id": "a", "seed": {"done": true}}]', final => true);
		SELECT revenant.lead_plan('job ''of" all', 'me', '1 h', 'f') AS generation;
	});
	my ($generation) = $in->(q{SELECT generation FROM revenant.plan WHERE plan LIKE 'job%'});
	$in->(qq{SET ROLE alice;
		SELECT revenant.publish('job ''of" all', $generation, (SELECT jsonb_agg(jsonb_build_object('id', 's"' || i, 'weight', i, 'spec', i)) FROM generate_series(1, 9) AS i), '"nine"');
		CREATE TEMP TABLE claims AS SELECT * FROM revenant.claim_splits('job ''of" all', 'w', 6, '1 h', 'f');
		SELECT revenant.commit_split('job ''of" all', split, epoch, done => true) FROM claims WHERE split IN ('s"1', 's"2');
		SELECT revenant.commit_split('job ''of" all', split, epoch, '"half"', 50) FROM claims WHERE split = 's"3';
		SELECT revenant.fail_split('job ''of" all', split, epoch, 'it''s bad') FROM claims WHERE split = 's"4';
		SELECT revenant.release_split('job ''of" all', split, epoch) FROM claims WHERE split = 's"5'});
	my $member = $in->(q{SET ROLE alice; SELECT revenant.join_plan('job ''of" all', 'member', 2, '1 h', 'f')});
	# whoever polls is assigned something
	$becomes->(qq{SELECT count(*) = 2 FROM revenant.poll_plan('job ''of" all', $member) WHERE event = 'gained'});

	# entities, messages and timers
	relaxed_setup($node, $database);
	mail_setup($node, $database);
	mail_handler($node, $database, 'failing', q{RAISE EXCEPTION 'no';});
	relaxed_type($node, 'late', "durability => 'interval', flush_every => '1 h', idle_timeout => NULL", $database);
	relaxed_type($node, 'stops', "durability => 'on_stop', idle_timeout => NULL", $database);
	warm($node, $_, 'a', $database) foreach 'late', 'stops';
	$in->(qq{
		CREATE SCHEMA "Odd schema";
		CREATE FUNCTION "Odd schema"."It's"(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS \$\$ SELECT * FROM public.counter(id, state, message) \$\$;
		SELECT revenant.create_snapshot_table('"Odd schema"."The ""table"', 2);
		SELECT revenant.create_entity_type('odd ''type" of all', '"Odd schema"."The ""table"', '"Odd schema"."It''s"', vsn => 3);
		SELECT revenant.call('odd ''type" of all', id, '2') FROM generate_series(1, 4), unnest(ARRAY['a', 'it''s "b"']) AS id;
		SELECT revenant.call('odd ''type" of all', 'gone', '1'), revenant.call('odd ''type" of all', 'asked', '5', request_id => '$request');
		SELECT revenant.delete_entity('odd ''type" of all', 'gone');
		SELECT revenant.create_snapshot_table('public.saved', -1);
		SELECT revenant.save('public.saved', 'a', 0, '1'), revenant.save('public.saved', 'a', 1, '2'), revenant.save('public.saved', 'b', 0, '3');
		SELECT revenant.remove('public.saved', 'b', 1);
	});
	$in->(q{SELECT revenant.call(type, 'a', '1') FROM unnest(ARRAY['late', 'stops']) AS type}) foreach 1 .. 3;
	$in->(q{SET ROLE alice; SELECT revenant.send('noted', 'a', '{"n": 1}'), revenant.send_after('noted', 'a', '{"n": 2}', '1 h')});
	$in->(q{SET ROLE mute; SELECT revenant.send('noted', 'm', '{"n": 3}'), revenant.send_after('noted', 'm', '{"n": 4}', '100 ms')});
	my $aside = $in->(q{SET ROLE alice; SELECT revenant.send('failing', 'f', '{"n": 5}')});
	$becomes->("SELECT state = 'retrying' FROM revenant.messages WHERE message_id = $aside");
	$in->("UPDATE revenant.message SET lane = 3, deliver_at = NULL, attempts = 6, set_aside_at = now() WHERE message_id = $aside");

	# all has come to rest that does
	$becomes->(q{SELECT count(*) = 1 FROM public.applied});
	$becomes->(q{SELECT count(*) = 2 FROM revenant.messages WHERE state <> 'scheduled' AND sender = 'mute'});
	$becomes->(q{SELECT state = 'complete' FROM revenant.plans WHERE plan = 'over'});
	$becomes->(q{SELECT replan_outcome = 'ok' FROM revenant.plan WHERE plan = 'tasked'});
	$becomes->(q{SELECT string_agg(phase, ' ' ORDER BY name) = 'leading quarantined disabled' FROM revenant.tasks WHERE name IN ('always', 'broken', 'off')});
	$becomes->(q{SELECT count(*) >= 2 FROM public.ran WHERE task LIKE 'every%'});
	$greatest{$database} = filled_greatest($node, $database);
	return;
}

# A token above all that were issued there until now.
sub filled_greatest
{
	my ($node, $database) = @_;

	return $node->safe_psql($database, q{SELECT revenant.try_acquire_xact('one')});
}

# What is in its tables, and what entities say that may be ahead of theirs: all that is to be the same afterwards.
sub filled_rows
{
	my ($node, $database) = @_;
	my @queries = split /\n/, $node->safe_psql($database, q{
		SELECT format('SELECT %L, r FROM %s AS r%s ORDER BY r::text;', c.oid::regclass, c.oid::regclass,
			-- a planner runs again wherever a supervisor begins
			CASE WHEN c.relname IN ('plan', 'task') THEN ' WHERE r::text !~ ''tasked''' END)
		FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE c.relkind = 'r' AND n.nspname !~ '^(pg_|information_schema)' AND (n.nspname <> 'revenant' OR c.oid = ANY ((SELECT e.extconfig FROM pg_extension AS e WHERE e.extname = 'revenant')::oid[]))
			AND c.relname NOT IN ('ran', 'commands', 'late_state', 'stops_state')
		ORDER BY c.oid::regclass::text});

	return $node->safe_psql($database, join "\n", @queries,
		q{SELECT type, id, (revenant.read_entity(type, id)).state FROM (VALUES ('late', 'a'), ('stops', 'a'), ('odd ''type" of all', 'a')) AS e (type, id);
		SELECT revenant.history('"Odd schema"."The ""table"', 'a'), revenant.history('public.saved', 'b');
		SELECT split, state, worker, attempts, weight, watermark, progress, spec, reasons FROM revenant.splits ORDER BY plan, split;
		SELECT message_id, message, sender, attempts, error FROM revenant.messages ORDER BY message_id});
}

# Everything works there, in what was filled or came from such a source, also what was held or waited: tokens are above those of before, messages are delivered once, work is carried on.
sub goes_on
{
	my ($node, $database, $name, $source) = @_;
	my $greatest = $greatest{ $source // $database };
	my $in = sub { return $node->safe_psql($database, $_[0]) };
	my $becomes = sub { return ok($node->poll_query_until($database, $_[0]), "$name: $_[1]") };
	my $fails = sub {
		my (undef, undef, $err) = $node->psql($database, "\\set VERBOSITY sqlstate\n$_[1]");
		return like($err, qr/ERROR:  $_[0]\b/, "$name: $_[2]");
	};

	cmp_ok(filled_greatest($node, $database), '>', $greatest, "$name: tokens go on");

	$in->('TRUNCATE public.ran');
	$becomes->(qq{SELECT min(token) > $greatest AND count(*) >= 2 FROM public.ran WHERE task LIKE 'every%'}, 'what is scheduled runs');
	$becomes->(qq{SELECT phase = 'leading' AND token > 0 FROM revenant.tasks WHERE name = 'always'}, 'what runs always does');
	is($in->(q{SELECT count(*) FROM revenant.tasks WHERE name = 'off' AND phase = 'disabled'}), 1, "$name: what was off is off");
	$in->(q{SELECT revenant.alter_task('broken', '{"command": "INSERT INTO public.ran VALUES (''broken'', 1)", "schedule": "1 s"}')});
	$becomes->(q{SELECT count(*) > 0 FROM public.ran WHERE task = 'broken'}, 'what was broken can be repaired');

	$fails->('RV008', 'INSERT INTO public.orders VALUES (1000)', 'a guarded table is guarded');
	$fails->('RV008', 'INSERT INTO public.low VALUES (1)', 'so is a partition');
	$in->(q{BEGIN; SELECT revenant.fence('orders ''writer" of all', revenant.try_acquire_xact('orders ''writer" of all')); INSERT INTO public.orders VALUES (1000); COMMIT});

	my $sum = $in->(q{SELECT state ->> 'n' FROM "Odd schema"."The ""table" WHERE id = 'a'});
	is($in->(q{SELECT revenant.call('odd ''type" of all', 'a', '1')}), $sum + 1, "$name: an entity goes on");
	$sum = $in->(q{SELECT (revenant.read_entity('late', 'a')).state ->> 'n'});
	is($in->(q{SELECT revenant.call('late', 'a', '1')}), $sum + 1, "$name: a relaxed one, too");
	is($in->(q{SELECT (revenant.load_version('public.saved', 'a', 1)).state}), 1, "$name: history is there");

	$in->(q{DO $$ BEGIN EXECUTE format('GRANT CONNECT ON DATABASE %I TO mute', current_database()); END $$});
	$becomes->(q{SELECT string_agg(n || who, ' ' ORDER BY n) = '3mute 4mute' FROM public.applied WHERE id = 'm'}, 'what could not be delivered is, once');
	is($in->(q{SELECT state FROM revenant.messages WHERE message ->> 'n' = '2'}), 'scheduled', "$name: a timer waits");
	mail_handler($node, $database, 'failing', q{INSERT INTO public.applied (id, n) VALUES (id, (message ->> 'n')::bigint);});
	$in->(q{SELECT revenant.resend_message(message_id) FROM revenant.messages WHERE state = 'set aside'});
	$becomes->(q{SELECT count(*) = 1 FROM public.applied WHERE n = 5}, 'what was set aside can be sent again');
	$in->(q{SELECT revenant.send('noted', 'new', '{"n": 100}')});
	$becomes->(q{SELECT count(*) = 1 FROM public.applied WHERE id = 'new'}, 'new ones are delivered');

	my $before = $in->(q{SELECT max(epoch) FROM revenant.splits});
	my $claimed = $in->(q{SET ROLE alice; SELECT split, epoch FROM revenant.claim_splits('job ''of" all', 'w2', 1, '1 h', 'f')});
	my ($split, $epoch) = split /\|/, $claimed;
	cmp_ok($epoch, '>', $before, "$name: pulling goes on");
	$in->(qq{SET ROLE alice; SELECT revenant.commit_split('job ''of" all', '$split', $epoch, done => true)});
	$in->(q{SET ROLE alice; SELECT revenant.requeue_split('job ''of" all', 's"4')});
	is($in->(qq{SELECT state FROM revenant.splits WHERE plan LIKE 'job%' AND split IN ('s"4', '$split') ORDER BY split = '$split'}), "runnable\ndone", "$name: and ends");
	$in->(q{INSERT INTO public.planned VALUES ('two'); SET ROLE alice; SELECT revenant.run_task('plan/tasked')});
	$becomes->(q{SELECT count(*) >= 2 FROM revenant.splits WHERE plan = 'tasked'}, 'its planner plans');

	is($in->(q{SELECT count(*) FROM looks}), 5, "$name: what depends on it is there");
	is($in->(q{SELECT (what).state FROM kept}), '{"n": 3}', "$name: its types are");
	return;
}

1;
