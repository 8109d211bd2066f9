# A server that is only a standby says "yes" to nobody: every public function that could be taken for one fails with 25006, at once,
# whatever was true when it was the primary's copy. The list is the extension's own, so a new function is asked, too.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('primary');
$node->init(allows_streaming => 1);
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION revenant;
	CREATE ROLE somebody;
	CREATE TABLE guarded (a int);
	SELECT revenant.guard_table('guarded', 'held');
	SELECT revenant.create_task('held', 'SELECT 1', enabled => false);
});
my $token = $node->safe_psql('postgres', "SELECT revenant.acquire('held', ttl => '1 h', request_id => '00000000-0000-0000-0000-00000000000a')");
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->wait_for_catchup('standby', 'replay', $node->lsn('flush'));

# What only looks, or speaks of this session, which holds nothing here; and counters, which are this server's own.
my %looks = map { $_ => 1 } qw(current_message current_task current_token events held_token history load load_as_of load_version
	plan_progress preview_schedule read_entity receipt stat_reset);

# Each function with the arguments that it must have, and with all that it may have.
my $calls = $node->safe_psql('postgres', qq{
	SELECT p.proname || ' ' || CASE p.prokind WHEN 'p' THEN 'CALL' ELSE 'SELECT' END || ' revenant.' || p.proname || '(' ||
		coalesce((
			SELECT string_agg(CASE
				WHEN a.type = 'text[]'::regtype THEN '\$\${held}\$\$'
				WHEN a.type = 'regclass'::regtype THEN '\$\$guarded\$\$'
				WHEN a.type = 'bigint'::regtype THEN '$token'
				WHEN a.type = 'interval'::regtype THEN '\$\$1 h\$\$'
				WHEN a.type = 'boolean'::regtype THEN 'false'
				WHEN a.type = 'jsonb'::regtype THEN '\$\${}\$\$'
				WHEN a.type = 'uuid'::regtype THEN '\$\$00000000-0000-0000-0000-00000000000a\$\$'
				WHEN p.proargnames[a.number] = 'role' THEN '\$\$somebody\$\$'
				WHEN p.proargnames[a.number] = 'level' THEN '\$\$user\$\$'
				WHEN a.type = 'text'::regtype THEN '\$\$held\$\$'
				ELSE 'NULL' END, ', ' ORDER BY a.number)
			FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a (type, number)
			WHERE a.number <= p.pronargs - CASE WHEN every THEN 0 ELSE p.pronargdefaults END), '') || ')'
	FROM pg_proc AS p CROSS JOIN unnest(ARRAY[false, true]) AS every
	WHERE p.pronamespace = 'revenant'::regnamespace AND p.proname !~ '^_' AND p.prorettype <> 'trigger'::regtype AND p.prorettype <> 'event_trigger'::regtype
		AND (p.pronargdefaults > 0 OR NOT every)
	ORDER BY p.proname, every
});

my %asked;
foreach my $line (split /\n/, $calls)
{
	my ($name, $call) = split / /, $line, 2;
	my ($status, $out, $err) = $standby->psql('postgres', "\\set VERBOSITY sqlstate\nSET statement_timeout = '10 s';\n$call");

	$asked{$name} = 1;
	if ($looks{$name})
	{
		unlike($out // '', qr/$token/, "$call does not say that anything is held");
		next;
	}
	like($err, qr/ERROR:  25006/, "$call is refused");
	is($out, '', 'and gives no answer');
}
foreach my $name (qw(acquire try_acquire acquire_xact try_acquire_xact acquire_all try_acquire_all acquire_all_xact try_acquire_all_xact
	await_lease await_change is_current renew renew_all release release_all fence revoke claim refresh abdicate leader held_token))
{
	ok($asked{$name}, "$name was asked");
}
my (undef, undef, $err) = $standby->psql('postgres', "\\set VERBOSITY sqlstate\nINSERT INTO guarded VALUES (1)");
like($err, qr/ERROR:  25006/, 'nor can anything guarded be written');

# A connection that stays while the standby becomes the primary is told the truth from then on.
my $stays = $standby->background_psql('postgres', on_error_stop => 0);
$stays->query('SELECT 1');
$node->stop('immediate');
$standby->promote;
is($stays->query_safe("SELECT revenant.is_current('held', $token), revenant.try_acquire('held', ttl => '1 h') IS NULL"), 't|t',
	'after a promotion the same connection is told the truth');

$stays->quit;
$standby->stop;
done_testing();
