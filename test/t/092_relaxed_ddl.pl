# States in memory outlive whatever is done to their flusher, its role, their table, their database and the extension; and none of
# that waits for them, or they for it, longer than it must.

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
$node->append_conf('postgresql.conf', "max_worker_processes = 24\nautovacuum = off");
$node->start;
asks($node);
relaxed_setup($node);
sql('CREATE ROLE keeper LOGIN; CREATE ROLE heir LOGIN; GRANT ALL ON SCHEMA public TO keeper, heir');

# A type whose table is the role's.
sub kept_by
{
	my ($role, $type, $options) = @_;

	sql("SELECT revenant.create_snapshot_table('${type}_state'); ALTER TABLE ${type}_state OWNER TO $role;
		SELECT revenant.create_entity_type('$type', '${type}_state', 'public.counter', " . ($options // "durability => 'on_stop', idle_timeout => NULL") . ')');
	warm($node, $type, 'warm');
	return;
}

# Has an entity ahead of its row, at this count.
my %count;
sub dirty
{
	my ($type, $id) = @_;

	warm($node, $type, 'warm');
	sql("SELECT revenant.call('$type', '$id', '1')"), $count{"$type $id"}++ foreach 1 .. 2;
	is(sql("SELECT dirty FROM revenant.loaded_entities WHERE type = '$type' AND id = '$id'"), 't', "$type $id is ahead of its row");
	return;
}

# It is as it should be, to readers; and in its row, if so asked.
sub is_kept
{
	my ($type, $id, $name) = @_;

	is(sql("SELECT state ->> 'n' FROM revenant.read_entity('$type', '$id')"), $count{"$type $id"}, $name);
	return;
}

sub gets_written
{
	my ($type, $id, $name) = @_;

	becomes("SELECT state ->> 'n' = '" . $count{"$type $id"} . "' FROM ${type}_state WHERE id = '$id'", $name);
	return;
}

sub flusher { return "FROM pg_stat_activity WHERE backend_type = 'revenant flush'" . ($_[0] ? " AND usename = '$_[0]'" : '') }

# --- its processes

kept_by('keeper', 'kept');
is(sql('SELECT usename ' . flusher()), 'keeper', 'a flusher is connected as the owner of the table');
dirty('kept', 'a');
my $pid = sql('SELECT pid ' . flusher());
sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type IN ('revenant launcher', 'revenant supervisor')");
becomes("SELECT count(*) = 2 FROM pg_stat_activity WHERE backend_type IN ('revenant launcher', 'revenant supervisor')", 'launcher and supervisor are terminated, and back');
is_kept('kept', 'a', '... it is kept');
is(sql('SELECT pid ' . flusher()), $pid, '... by the same process');
dirty('kept', 'a');
sql("SELECT pg_terminate_backend($pid)");
gets_written('kept', 'a', 'the flusher is terminated: it writes first');
dirty('kept', 'a');
is(sql("SELECT count(*) " . flusher() . " AND pid <> $pid"), 1, '... there is another one');

# one that waits for a transaction is not gone, and calls are strict meanwhile
my $client = Client->new($node);
$client->query('BEGIN');
$client->query("SELECT revenant.call('kept', 'open', '1')") foreach 1 .. 2;
$client->query('COMMIT; BEGIN');
$client->query("SELECT revenant.call('kept', 'open', '1')");
$pid = sql('SELECT pid ' . flusher());
sql("SELECT pg_terminate_backend($pid)");
becomes("SELECT durable FROM (SELECT revenant.call('kept', 'b', '1') OFFSET 0) AS c, revenant.receipt()", 'while it waits for a transaction calls are strict');
is(sql("SELECT count(*) " . flusher() . " AND pid = $pid"), 1, '... it is still there');
$client->query('COMMIT');
becomes("SELECT state ->> 'n' = '3' FROM kept_state WHERE id = 'open'", '... and writes what that one left');

# --- its role

dirty('kept', 'a');
sql('ALTER ROLE keeper RENAME TO guardian');
is_kept('kept', 'a', 'the owner is renamed: it is kept');
dirty('kept', 'a');
sql("SELECT revenant.flush_entities('kept')");
gets_written('kept', 'a', '... and written');
dirty('kept', 'a');
dirty('kept', 'never called again');
sql('ALTER TABLE kept_state OWNER TO heir');
becomes('SELECT count(*) = 1 ' . flusher('heir'), 'the table has another owner: so has the flusher');
dirty('kept', 'a');
is(sql("SELECT revenant.flush_entities('kept') > 0"), 't', '... it writes what the other one had');
gets_written('kept', $_, "... $_") foreach 'a', 'never called again';
dirty('kept', 'a');
sql('REASSIGN OWNED BY heir TO guardian');
dirty('kept', 'a');
sql("SELECT revenant.flush_entities('kept')");
gets_written('kept', 'a', 'reassigned: it is written');
becomes("SELECT count(*) = 0 " . flusher('heir'), '... the flusher of who has nothing ends');
sql('REVOKE ALL ON SCHEMA public FROM heir; DROP ROLE heir');

SKIP:
{
	skip 'a role that cannot log in has a flusher', 4 if $node->pg_version >= 17;
	dirty('kept', 'a');
	sql('ALTER ROLE guardian NOLOGIN');
	gets_written('kept', 'a', 'the owner may not log in any more: its flusher writes and ends');
	is(sql("SELECT revenant.call('kept', 'a', '1')"), ++$count{'kept a'}, '... calls go on');
	is(sql("SELECT state ->> 'n' FROM kept_state WHERE id = 'a'"), $count{'kept a'}, '... strictly');
	sql('ALTER ROLE guardian LOGIN');
}
dirty('kept', 'a');

# --- its table

kept_by('guardian', 'timed', "durability => 'interval', flush_every => '100 ms', idle_timeout => NULL");
$client->query('BEGIN; LOCK TABLE kept_state');
sql("SELECT revenant.call('timed', 'a', '1')"), $count{'timed a'}++ foreach 1 .. 3;
gets_written('timed', 'a', 'a table is locked: others are written');
$client->query('COMMIT');
is_kept('kept', 'a', '... it is kept');
sql("SELECT revenant.flush_entities('kept')");
gets_written('kept', 'a', '... and written then');

sql("SELECT revenant.call('timed', 'locked', '1')"), $count{'timed locked'}++ foreach 1 .. 2;
$client->query("BEGIN; SELECT id FROM timed_state WHERE id = 'locked' FOR UPDATE");
sql("SELECT revenant.call('timed', $_, '1')"), $count{ 'timed ' . tr/'//dr }++ foreach map { ("'locked'", "'a'") } 1 .. 3;
gets_written('timed', 'a', 'a row is locked: others are written');
is(sql("SELECT dirty FROM revenant.loaded_entities WHERE id = 'locked'"), 't', '... it waits');
$client->query('COMMIT');
gets_written('timed', 'locked', '... and is written then');

# an index of the user's may make a write wait for somebody
sql("CREATE UNIQUE INDEX one_n ON timed_state ((state ->> 'n')) WHERE state ->> 'n' = '777'");
$client->query(q{BEGIN; INSERT INTO timed_state VALUES ('direct', 1, 1, '{"n": 777}', now(), false, 1)});
sql("SELECT revenant.call('timed', 'waits', '1'); SELECT revenant.call('timed', 'waits', '776')");
becomes("SELECT flush_failures > 0 FROM revenant.loaded_entities WHERE type = 'timed' AND id = 'waits'", 'one that a unique index makes wait is given up for now');
sql("SELECT revenant.call('timed', 'a', '1')"), $count{'timed a'}++ foreach 1 .. 2;
gets_written('timed', 'a', '... others are written');
$client->query('ROLLBACK');
becomes("SELECT state ->> 'n' = '777' FROM timed_state WHERE id = 'waits'", '... and then that one');

# a failure keeps none of the others from it, and is told
sql("ALTER TABLE timed_state ADD CONSTRAINT small CHECK ((state ->> 'n')::int < 1000) NOT VALID");
sql("SELECT revenant.call('timed', 'fails', '1'); SELECT revenant.call('timed', 'fails', '2000')");
becomes("SELECT flush_failures > 1 FROM revenant.loaded_entities WHERE id = 'fails'", 'what fails is shown, and tried again');
sql("SELECT revenant.call('timed', 'a', '1')"), $count{'timed a'}++ foreach 1 .. 2;
gets_written('timed', 'a', '... others are written');
is(scalar(() = slurp_file($node->logfile) =~ /could not write entity "fails"/g), 1, '... the log has it once');
sql('ALTER TABLE timed_state DROP CONSTRAINT small');
becomes("SELECT state ->> 'n' = '2001' FROM timed_state WHERE id = 'fails'", '... and it is written when it can be');
becomes("SELECT flush_failures = 0 AND NOT dirty FROM revenant.loaded_entities WHERE id = 'fails'", '... and is like any other');

# written past us
sql("SELECT revenant.call('timed', 'past', '1')") foreach 1 .. 2;
sql(q{SELECT revenant.flush_entities('timed', 'past'); UPDATE timed_state SET state = '{"n": 500}' WHERE id = 'past'});
is(sql("SELECT revenant.call('timed', 'past', '1')"), 3, 'a row that somebody else has written is not looked at');
becomes("SELECT NOT EXISTS (SELECT FROM revenant.loaded_entities WHERE id = 'past')", '... before it is to be written: what memory has is dropped');
is(sql("SELECT state ->> 'n' FROM timed_state WHERE id = 'past'"), 500, '... the row is not written over');
like(slurp_file($node->logfile), qr{entity\.conflict: "timed/past"}, '... and the log has it');
is(sql("SELECT revenant.call('timed', 'past', '1')"), 501, '... the next call goes on from the row');

# --- written in time, and not more often; unloaded when nobody uses it

sql("SELECT revenant.create_snapshot_table('paced_state', history => -1);
	SELECT revenant.create_entity_type('paced', 'paced_state', 'public.counter', durability => 'interval', flush_every => '500 ms', idle_timeout => '1 s')");
warm($node, 'paced', 'a');
my ($start, $calls) = (monotonic(), 0);
my $versions = sql("SELECT count(*) FROM paced_state_history WHERE id = 'a'");
while (monotonic() - $start < 3) { $client->query("SELECT revenant.call('paced', 'a', '1')"); $calls++ }
becomes("SELECT NOT EXISTS (SELECT FROM revenant.loaded_entities WHERE type = 'paced')", 'what nobody uses is unloaded');
$versions = sql("SELECT count(*) FROM paced_state_history WHERE id = 'a'") - $versions;
# callers write when the versions that are reserved are used up
cmp_ok($versions, '<=', 9 + int($calls / 4096), "$calls calls in three seconds: $versions versions were written");
cmp_ok($versions, '>=', 2, '... some');
is(sql("SELECT version = reserved FROM paced_state WHERE id = 'a'"), 't', '... and none is skipped');
sql("SELECT revenant.drop_entity_type('paced')");

# --- databases

dirty('kept', 'a');
sql("ALTER SYSTEM SET revenant.databases = 'another'");
$node->reload;
gets_written('kept', 'a', 'revenant.databases leaves it out: all is written');
becomes('SELECT count(*) = 0 ' . flusher(), '... the flusher is gone');
is(sql("SELECT revenant.call('kept', 'a', '1')"), ++$count{'kept a'}, '... calls go on');
gets_written('kept', 'a', '... strictly');
sql('ALTER SYSTEM RESET revenant.databases');
$node->reload;
dirty('kept', 'a');
sql('ALTER SYSTEM SET revenant.enabled = off');
$node->reload;
is(sql("SELECT revenant.call('kept', 'a', '1')"), ++$count{'kept a'}, 'revenant.enabled is off: calls go on');
sql("SELECT revenant.flush_entities('kept')");
gets_written('kept', 'a', '... and are written');
sql('ALTER SYSTEM RESET revenant.enabled');
$node->reload;
$client->quit;

sub other { return $node->safe_psql('other', $_[0]) }
sql('CREATE DATABASE other');
relaxed_setup($node, 'other');
relaxed_type($node, 'far', "durability => 'on_stop', idle_timeout => NULL", 'other');
other("SELECT revenant.call('far', 'a', '1')") foreach 1 .. 3;
is(other("SELECT dirty FROM revenant.loaded_entities WHERE id = 'a'"), 't', 'another database');
$start = monotonic();
sql('CREATE DATABASE copy TEMPLATE other');
cmp_ok(monotonic() - $start, '<', 10, '... is copied');
is($node->safe_psql('copy', "SELECT version, state ->> 'n' FROM far_state WHERE id = 'a'"), '3|3', '... with all that was in memory');
is(other("SELECT revenant.call('far', 'a', '1')"), 4, '... and goes on');
warm($node, 'far', 'warm', 'other');
other("SELECT revenant.call('far', 'a', '1')") foreach 1 .. 2;
sql('ALTER DATABASE other RENAME TO renamed; ALTER DATABASE renamed RENAME TO other');
is(other("SELECT state ->> 'n' FROM far_state WHERE id = 'a'"), 6, 'a renamed one has it in its rows');
warm($node, 'far', 'warm', 'other');
other("SELECT revenant.call('far', 'a', '1')") foreach 1 .. 2;
$start = monotonic();
sql('DROP DATABASE other');
cmp_ok(monotonic() - $start, '<', 5, 'one that is dropped does not wait');

# --- the extension

dirty('kept', 'a');
sql('ALTER EXTENSION revenant UPDATE');
is_kept('kept', 'a', 'updated: it is kept');
dirty('kept', 'a');
$start = monotonic();
sql("BEGIN; SELECT revenant.call('kept', 'a', '1'); DROP EXTENSION revenant CASCADE; ROLLBACK");
cmp_ok(monotonic() - $start, '<', 8, sprintf('dropped by who has just called, and not: %.1f s', monotonic() - $start));
is_kept('kept', 'a', '... it is as it was before');
dirty('kept', 'a');
sql('DROP EXTENSION revenant CASCADE');
is(sql("SELECT state ->> 'n', version = reserved FROM kept_state WHERE id = 'a'"), $count{'kept a'} . '|t', 'dropped: all is in its row');

$start = monotonic();
$node->stop('fast');
cmp_ok(monotonic() - $start, '<', 5, 'the end');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, 'nothing else is wrong');
done_testing();
