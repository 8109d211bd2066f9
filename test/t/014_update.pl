# ALTER EXTENSION revenant UPDATE: from each version that was released, with everything in use, it leads to what a fresh installation is.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Catalog;
use Client qw(answers monotonic);
use Filled;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "max_worker_processes = 60\nrevenant.max_runners = 16");
$node->start;
fill_roles($node);
my $dir = PostgreSQL::Test::Utils::tempdir;

sub in { return $node->safe_psql($_[0], $_[1]) }

sub fails
{
	my ($database, $expected, $statement, $name) = @_;
	my (undef, undef, $err) = $node->psql($database, "\\set VERBOSITY sqlstate\n$statement");

	return like($err, qr/ERROR:  $expected\b/, $name);
}

sub version { return in($_[0], q{SELECT extversion FROM pg_extension WHERE extname = 'revenant'}) }
sub survived { return unlike(slurp_file($node->logfile), qr/terminated by signal|PANIC|TRAP/, $_[0]) }

# What each function answers, without arguments and with some that are not worth much: the SQLSTATE, or OK. Nothing is left of it.
my $ask_all = q{
	CREATE FUNCTION pg_temp.ask(OUT what text, OUT answer text) RETURNS SETOF record LANGUAGE plpgsql AS $$
	DECLARE
		f record;
	BEGIN
		FOR f IN
			SELECT format('%s revenant.%I(%s)', CASE p.prokind WHEN 'p' THEN 'CALL' ELSE 'SELECT * FROM' END, p.proname,
				(SELECT string_agg(format('%s::%s', CASE WHEN empty THEN 'NULL' ELSE CASE t::regtype::text
					WHEN 'text' THEN '''x''' WHEN 'bigint' THEN '1' WHEN 'integer' THEN '1' WHEN 'boolean' THEN 'false' WHEN 'interval' THEN '''1 s''' WHEN 'jsonb' THEN '''{}'''
					WHEN 'regclass' THEN '''public.saved''' WHEN 'text[]' THEN '''{x}''' WHEN 'bigint[]' THEN '''{1}''' WHEN 'uuid' THEN '''2d0c3f6e-2f0b-4c57-a4b6-5b1f1d3c9a11'''
					WHEN 'timestamp with time zone' THEN '''2020-01-01''' ELSE 'NULL' END END, t::regtype), ', ' ORDER BY n)
				FROM unnest(p.proargtypes) WITH ORDINALITY AS a (t, n))) AS call
			FROM pg_proc AS p, unnest(ARRAY[true, false]) AS empty
			WHERE p.pronamespace = 'revenant'::regnamespace AND p.prorettype NOT IN ('trigger'::regtype) AND p.proname !~ '^_(created|debug)' AND p.proname <> 'stat_reset'
			ORDER BY 1
		LOOP
			what := f.call;
			BEGIN
				EXECUTE f.call;
				answer := 'OK';
				RAISE EXCEPTION USING ERRCODE = 'ZZ000';
			EXCEPTION WHEN OTHERS THEN
				IF sqlstate <> 'ZZ000' THEN answer := sqlstate; END IF;
			END;
			RETURN NEXT;
		END LOOP;
	END $$;
	SET statement_timeout = '60 s';
	SELECT * FROM pg_temp.ask()
};

my $scripts = `pg_config --sharedir`;
chomp $scripts;
$scripts .= '/extension';
my %made;
END { unlink keys %made }

my $current = in('postgres', q{SELECT default_version FROM pg_available_extensions WHERE name = 'revenant'});
my @released = split /\n/, in('postgres', qq{SELECT version FROM pg_available_extension_versions WHERE name = 'revenant' AND version ~ '^[0-9.]+\$' AND version <> '$current' ORDER BY version});
cmp_ok(scalar @released, '>', 0, "there are versions before $current");

# --- as it is when it is new

in('postgres', 'CREATE DATABASE fresh');
in('fresh', 'CREATE EXTENSION revenant');
fill($node, 'fresh');
my $fresh = catalog($node, 'fresh');
my $answers = in('fresh', $ask_all);
is(join("\n", grep { /\|XX/ } split /\n/, $answers), '', 'every function answers');
survived('... and lives');

foreach my $released (@released)
{
	my $database = qq{was '"$released};
	my $quoted = $database =~ s/"/""/gr;

	# --- this library, that version

	in('postgres', qq{CREATE DATABASE "$quoted"});
	in($database, "CREATE EXTENSION revenant VERSION '$released'");
	fill($node, $database);
	my $old = catalog($node, $database);
	isnt(differences($old, $fresh), '', "$released is another version");
	{
		my %answers = map { split /\|/ } split /\n/, $answers;
		my @others = grep { my ($what, $answer) = split /\|/; ($answers{$what} // $answer) ne $answer } split /\n/, in($database, $ask_all);

		is(join("\n", @others), '', "$released: each of its functions answers as it does in $current");
	}
	survived('... and nothing crashed');
	my $before = filled_rows($node, $database);
	my ($plain, $pid) = split /\|/, in($database, q{SELECT token, (SELECT pid FROM revenant.tasks WHERE name = 'always') FROM revenant.leases WHERE lease = 'plain'});
	my $member = in($database, q{SELECT member FROM revenant.members WHERE plan LIKE 'job%'});
	fails($database, '42501', q{SET ROLE carol; CREATE FUNCTION pg_temp.f() RETURNS revenant.claim_result LANGUAGE sql AS 'SELECT NULL::revenant.claim_result'}, 'a reader may not return what claim() does');

	# --- not updated

	fails($database, '42501', "SET ROLE $_; ALTER EXTENSION revenant UPDATE", "$_ may not update it") foreach 'alice', 'carol';
	is(in($database, q{SELECT pid FROM revenant.tasks WHERE name = 'always'}), $pid, '... which disturbs nobody');
	in($database, 'BEGIN; ALTER EXTENSION revenant UPDATE; SELECT revenant.try_acquire_xact(\'y\'); ROLLBACK');
	is(version($database), $released, 'a rollback leaves it as it was');
	is(differences(catalog($node, $database), $old), '', '... all of it');
	ok($node->poll_query_until($database, q{SELECT phase = 'leading' FROM revenant.tasks WHERE name = 'always'}), '... and work goes on');
	$node->command_ok([ 'pg_dump', '-Fc', '-d', $node->connstr($database), '-f', "$dir/old" ], 'dumped');

	# --- updated, under load

	my $busy = Client->new($node, $database);
	$busy->query(q{CREATE PROCEDURE public.busy() LANGUAGE plpgsql AS $$
		BEGIN
			LOOP
				PERFORM revenant.release('busy', revenant.try_acquire('busy', '1 min')), revenant.call('odd ''type" of all', 'busy', '1');
				COMMIT;
			END LOOP;
		END $$});
	$busy->send('CALL public.busy()');
	in($database, 'ALTER EXTENSION revenant UPDATE');
	is(version($database), $current, 'updated');
	ok(in($database, q{SELECT pg_sleep(0.1)}) eq '' && $busy->{busy}, 'who called meanwhile goes on');
	in($database, "SELECT pg_cancel_backend($busy->{pid})");
	answers(monotonic() + $PostgreSQL::Test::Utils::timeout_default, $busy);
	like($busy->{error}, qr/^57014/, '... until it is told to end');
	$busy->quit;

	my $updated = catalog($node, $database);
	is(differences($updated, $fresh), '', "from $released, it is as a fresh one");
	is(differences(filled_rows($node, $database) =~ s/^.*\bbusy\b.*\n//mgr, $before), '', 'its rows are as they were');
	is(in($database, "SELECT revenant.renew('plain', $plain) IS NOT NULL"), 't', 'who holds a lease holds it');
	is(in($database, qq{SET ROLE alice; SELECT count(*) FROM revenant.poll_plan('job ''of" all', $member)}), 2, 'so does a member its splits');
	in($database, q{SET ROLE "bob 'the "" builder"; CREATE FUNCTION pg_temp.f() RETURNS revenant.claim_result LANGUAGE sql AS 'SELECT NULL::revenant.claim_result'});
	$node->command_ok([ 'pg_dump', '-Fc', '-d', $node->connstr($database), '-f', "$dir/updated" ], 'dumped');
	goes_on($node, $database, "from $released");

	# --- a dump of it as it was, and of what was updated

	foreach my $dump ('old', 'updated')
	{
		my $restored = qq{$dump "of" $released};

		in('postgres', sprintf 'CREATE DATABASE "%s"', $restored =~ s/"/""/gr);
		$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr($restored), "$dir/$dump" ], "$dump: restored");
		is(version($restored), $current, "... into $current");
		# what an old dump did not know of
		in($restored, 'SELECT revenant.grant_usage(role, level) FROM revenant.usage_grant');
		is(differences(catalog($node, $restored), $fresh), '', '... it is as a fresh one');
		is(in($restored, q{SELECT count(*) FILTER (WHERE phase = 'held'), count(*) FROM revenant.tasks WHERE enabled}), '4|4', '... what ran is held');
		cmp_ok(in($restored, 'SELECT revenant.adopt()'), '>', 8, '... and adopted');
		goes_on($node, $restored, "the dump of $dump $released", $database);
	}

	# --- owned by somebody who is no superuser any more

	in('postgres', 'CREATE ROLE keeper SUPERUSER; CREATE DATABASE kept');
	in('kept', "SET SESSION AUTHORIZATION keeper; CREATE EXTENSION revenant VERSION '$released'; SELECT revenant.grant_usage('carol'); RESET SESSION AUTHORIZATION; ALTER ROLE keeper NOSUPERUSER");
	fails('kept', '42501', 'SET ROLE keeper; ALTER EXTENSION revenant UPDATE', 'its owner, who is no superuser, may not update it');
	in('kept', 'ALTER EXTENSION revenant UPDATE');
	# with one of each kind
	my $more = "$scripts/revenant--$current--more.sql";
	$made{$more} = 1;
	unlink $more;
	append_to_file($more, 'CREATE TABLE revenant.more (n int); CREATE VIEW revenant.sees AS TABLE revenant.more; CREATE SEQUENCE revenant.counts; CREATE TYPE revenant.kind AS (n int);
		CREATE FUNCTION revenant.does("a b" int[]) RETURNS int LANGUAGE sql AS $$ SELECT 1 $$; CREATE PROCEDURE revenant.calls(revenant.kind) LANGUAGE sql AS $$ SELECT 1 $$');
	in('kept', "ALTER EXTENSION revenant UPDATE TO 'more'");
	my $kept = catalog($node, 'kept');
	like($kept, qr/^revenant\.\Q$_\E \| belongs to \| keeper$/m, "a superuser may, and it belongs to its owner: $_") foreach '_require_library(pg_catalog.text)', 'more', 'sees', 'counts', 'kind', 'does(integer[])', 'calls(revenant.kind)';
	unlike($kept, qr/\| belongs to \| (?!keeper)/, '... and nothing to anybody else');
	in('kept', q{SET ROLE keeper; SELECT revenant.grant_usage('dave'), revenant.grant_usage('carol', 'admin'), revenant.revoke_usage('carol')});
	is(in('kept', q{SELECT has_type_privilege('dave', 'revenant.claim_result', 'USAGE'), has_type_privilege('carol', 'revenant.claim_result', 'USAGE')}), 't|f', '... who can grant it');
	in('postgres', 'DROP DATABASE kept; DROP ROLE keeper');
}
is(version('fresh'), $current, 'all the time another database had another version');

# --- the library is too old for a script, or the tables are

fails('fresh', '55000', q{SELECT revenant._require_library('99.0')}, 'a library that is too old is not used');
in('fresh', "SELECT revenant._require_library('$current'), revenant._require_library('0.1')");
fails('fresh', '22023', "SELECT revenant._require_library('$_')", "\"$_\" is no version") foreach '', '1', '1.x', '1.2.3';
in('postgres', 'CREATE DATABASE changed');
in('changed', q{CREATE EXTENSION revenant; SELECT revenant.create_snapshot_table('public.saved');
	DO $$ DECLARE t regclass; BEGIN
		FOR t IN SELECT c.oid FROM pg_class AS c WHERE c.relnamespace = 'revenant'::regnamespace AND c.relkind = 'r' LOOP EXECUTE format('ALTER TABLE %s ADD COLUMN more text DEFAULT repeat(''x'', 100)', t); END LOOP;
	END $$});
my @answers = split /\n/, in('changed', $ask_all);
is(join("\n", grep { /\|XX/ } @answers), '', 'over tables of another version no function is at a loss');
cmp_ok(scalar(grep { /\|55000$/ } @answers), '>', 50, '... most say what to do');
survived('... and none crashes');

# --- the comparison notices what is missing, and what is too much

foreach my $released (@released)
{
	# what is led on by several is noticed in the last one
	next unless -e "$scripts/revenant--$released--$current.sql";
	my $script = slurp_file("$scripts/revenant--$released--$current.sql") =~ s/^\\echo.*\n//r;
	my @statements = split /(?<=;)\n/, $script;
	my $file = "$scripts/revenant--$released--without.sql";

	cmp_ok(scalar @statements, '>', 3, "from $released there are statements");
	in('postgres', 'CREATE DATABASE plain');
	in('plain', "CREATE EXTENSION revenant VERSION '$released'");
	my $target = catalog($node, 'plain', 'ALTER EXTENSION revenant UPDATE');
	foreach my $without (0 .. $#statements)
	{
		my $left_out = $statements[$without] =~ s/^(--.*\n|\s+)*//r;
		my ($first_line) = split /\n/, $left_out;

		next if $left_out =~ /^SELECT revenant\._require_library/;
		$made{$file} = 1;
		unlink $file;
		append_to_file($file, join "\n", map { $statements[$_] } grep { $_ != $without } 0 .. $#statements);
		my $facts = eval { catalog($node, 'plain', "ALTER EXTENSION revenant UPDATE TO 'without'") } // 'it fails';
		isnt(differences($facts =~ s/^(extension \| itself \|) without/$1 $current/mr, $target), '', "noticed without: $first_line");
	}
	in('postgres', 'DROP DATABASE plain');
}
in('postgres', 'CREATE DATABASE plain');
in('plain', 'CREATE EXTENSION revenant');
my $plain = catalog($node, 'plain');
foreach my $change (
	'ALTER TABLE revenant.task ADD COLUMN more int', 'ALTER TABLE revenant.lease ALTER COLUMN token DROP NOT NULL', 'ALTER TABLE revenant.task_state ALTER COLUMN run_requests SET DEFAULT 1',
	'ALTER TABLE revenant.task_run SET (fillfactor = 90)', 'ALTER TABLE revenant.member ALTER COLUMN capacity TYPE bigint', 'ALTER TABLE revenant.split ALTER COLUMN spec SET STORAGE MAIN',
	'ALTER TABLE revenant.plan RENAME CONSTRAINT plan_pkey TO plan_key', 'DROP INDEX revenant.task_run_name_run_idx', 'CREATE INDEX ON revenant.message (type)', 'ALTER TABLE revenant.plan ADD CHECK (planned >= 0)',
	'ALTER SEQUENCE revenant._task_run_number CACHE 10', 'COMMENT ON FUNCTION revenant.acquire_xact(text, text, jsonb, boolean, interval) IS NULL', "COMMENT ON COLUMN revenant.splits.ended IS 'x'",
	'GRANT EXECUTE ON FUNCTION revenant.fence(text, bigint) TO PUBLIC', 'GRANT SELECT (name) ON revenant.task TO dave', 'ALTER FUNCTION revenant.call(text, text, jsonb, text, uuid) COST 1',
	'ALTER FUNCTION revenant.renew(text, bigint, interval) STRICT', 'ALTER FUNCTION revenant.revoke_usage(text) RESET search_path', 'ALTER VIEW revenant.messages RESET (security_barrier)',
	"CREATE OR REPLACE VIEW revenant.task_runs AS SELECT r.run, r.name, r.token, r.node, r.pid, r.started_at, r.finished_at, r.outcome, r.sqlstate, r.message FROM revenant.task_run AS r WHERE r.run > 0",
	'ALTER TYPE revenant.reply ADD ATTRIBUTE more int', 'ALTER EXTENSION revenant DROP FUNCTION revenant.current_task()', 'CREATE FUNCTION revenant.more() RETURNS int LANGUAGE sql AS \'SELECT 1\'; ALTER EXTENSION revenant ADD FUNCTION revenant.more()',
	"DELETE FROM revenant._usage_object WHERE object = 'TABLE revenant.tasks' AND level = 'reader'", 'ALTER TABLE revenant.usage_grant OWNER TO alice', 'ALTER TABLE revenant.split ENABLE ROW LEVEL SECURITY')
{
	isnt(differences(catalog($node, 'plain', $change), $plain), '', "noticed: $change");
}

# --- what a script makes anew is found by sessions that knew the old one, and granted again

my $script = "$scripts/revenant--$current--anew.sql";
$made{$script} = 1;
append_to_file($script, q{
	DROP FUNCTION revenant.advance_tokens(bigint);
	CREATE FUNCTION revenant.advance_tokens(beyond bigint) RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_advance_tokens';
	REVOKE ALL ON FUNCTION revenant.advance_tokens(bigint) FROM PUBLIC;
});
in('fresh', 'REVOKE EXECUTE ON FUNCTION revenant.revoke(text, text, boolean) FROM alice');
$fresh = catalog($node, 'fresh');
# where nobody has a level, only what was granted by hand; it makes an admin
in('plain', q{GRANT USAGE ON SCHEMA revenant TO dave; GRANT SELECT ON revenant.leases TO dave; GRANT EXECUTE ON FUNCTION revenant._leases(), revenant.advance_tokens(bigint) TO dave;
	SELECT revenant.try_acquire('plain', '1 h')});
foreach my $place ([ 'fresh', 'alice', 't' ], [ 'plain', 'dave', 'f' ])
{
	my ($database, $role, $afterwards) = @$place;
	my $session = Client->new($node, $database);
	my $knows = q{SELECT bool_or(token IS NOT NULL) FROM revenant.leases WHERE lease = 'plain'};

	$session->query("SET ROLE $role");
	is($session->query($knows), 't', "$role, who is an admin, sees a token");
	in($database, q{BEGIN; ALTER EXTENSION revenant UPDATE TO 'anew'; SELECT revenant.adopt(); ROLLBACK});
	is($session->query($knows), 't', '... after an update that was undone, too');
	in($database, q{ALTER EXTENSION revenant UPDATE TO 'anew'});
	is($session->query($knows), $afterwards, '... and after one that replaced what makes an admin: only by a level');
	$session->quit;
}
is(differences(catalog($node, 'fresh') =~ s/^(extension \| itself \|) anew/$1 $current/mr, $fresh) =~ s/^> .* is described .*\n?//mr, '', 'all that belonged to a level does again, and nothing that was taken by hand');
survived('to the end');
done_testing();
