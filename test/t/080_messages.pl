# A message is applied once, as its sender, in order, soon after the commit; a timer when it is due. Nothing is sent by a transaction that
# rolls back.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use Client qw(monotonic);
use Mail;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "max_worker_processes = 24\nrevenant.max_runners = 8");
$node->start;
asks($node);

sql('CREATE ROLE alice LOGIN; CREATE ROLE bob LOGIN; CREATE ROLE carol LOGIN');
mail_setup($node, 'postgres');
sql("SELECT revenant.grant_usage(r, 'user') FROM unnest(ARRAY['alice', 'bob', 'carol']) AS r");

# --- one message

# by whom is written down there and then: it does not stay for long
sql(q{CREATE FUNCTION by_whom() RETURNS text LANGUAGE sql AS $$SELECT concat_ws('|', backend_type, usename, application_name) FROM pg_stat_activity WHERE pid = pg_backend_pid()$$;
	ALTER TABLE applied ADD by_whom text DEFAULT by_whom()});
sql("SET ROLE alice; SELECT revenant.send('noted', 'a', '{\"n\": 1}')");
becomes('SELECT count(*) = 1 FROM applied', 'a message is applied');
is(sql('SELECT id, n, who FROM applied'), 'a|1|alice', 'with what was sent, as the sender');
is(sql('SELECT count(*) FROM revenant.messages'), 0, 'then it is gone');
is(sql('SELECT by_whom FROM applied'), 'revenant delivery|alice|revenant delivery', 'by a process of its own, connected as the sender');
sql('ALTER TABLE applied DROP by_whom');
becomes("SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'revenant delivery'", 'which ends when it has nothing to do');
my $ticks = sql('SELECT supervisor_ticks FROM revenant.stat_database');

# --- what is not sent

$node->safe_psql('postgres', "BEGIN; SELECT revenant.send('noted', 'never', '{}'); SELECT revenant.send_after('noted', 'never', '{}', '0'); ROLLBACK");
$node->safe_psql('postgres', "BEGIN; SAVEPOINT s; SELECT revenant.send('noted', 'never', '{}'); ROLLBACK TO s;
	SELECT revenant.send('noted', 'savepoint', '{}'); COMMIT");
becomes("SELECT count(*) = 1 FROM applied WHERE id = 'savepoint'", 'what follows a savepoint is sent');
is(sql("SELECT count(*) FROM applied WHERE id = 'never'"), 0, 'what was rolled back is not');

# --- order

sql('TRUNCATE applied');
sql("SELECT revenant.send('noted', 'order ' || n % 7, jsonb_build_object('n', n)) FROM generate_series(1, 5000) AS n");
becomes('SELECT count(*) = 5000 FROM applied', 'five thousand of one transaction are applied');
is(sql('SELECT count(DISTINCT n) FROM applied'), 5000, 'each once');
is(sql('SELECT count(*) FROM (SELECT n < lag(n) OVER (PARTITION BY id ORDER BY seq) AS wrong FROM applied) AS a WHERE wrong'), 0, 'in order');
cmp_ok(sql('SELECT count(DISTINCT xid) FROM applied'), '<', 1000, 'many of them in one transaction');

sql('TRUNCATE applied');
my @senders = map { Client->new($node) } 1 .. 6;
foreach my $i (0 .. $#senders)
{
	my $role = qw(alice bob carol)[$i % 3];
	$senders[$i]->query("SET ROLE $role");
	$senders[$i]->send("DO \$\$ BEGIN FOR n IN 1..300 LOOP PERFORM revenant.send('noted', '$i/' || n % 3, jsonb_build_object('n', n)); COMMIT; END LOOP; END \$\$");
}
Client::answers(monotonic() + $PostgreSQL::Test::Utils::timeout_default, @senders) or die 'no answer';
becomes('SELECT count(*) = 1800 FROM applied', 'what several senders send at once is applied');
is(sql('SELECT count(DISTINCT (id, n)) FROM applied'), 1800, 'each once');
is(sql('SELECT count(*) FROM (SELECT n < lag(n) OVER (PARTITION BY id ORDER BY seq) AS wrong FROM applied) AS a WHERE wrong'), 0, 'in order of each sender');
is(sql("SELECT string_agg(DISTINCT who, ' ' ORDER BY who) FROM applied"), 'alice bob carol', 'as each of them');
is(sql("SELECT count(*) FROM applied WHERE who <> (ARRAY['alice', 'bob', 'carol'])[split_part(id, '/', 1)::int % 3 + 1]"), 0, 'as nobody else');
$_->quit foreach @senders;

# --- timers

sql('TRUNCATE applied');
my $timer = sql("SELECT revenant.send_after('noted', 'later', '{\"n\": 3}', '1 h')");
sql("SELECT revenant.send_after('noted', 'timer', '{\"n\": 2}', '0.3 s'), revenant.send_after('noted', 'timer', '{\"n\": 1}', '0.1 s'),
	revenant.send('noted', 'timer', '{\"n\": 0}')");
is(sql("SELECT kind, state, due_at > now() + interval '50 min' FROM revenant.messages WHERE message_id = $timer"), 'timer|scheduled|t', 'a timer is scheduled');
becomes('SELECT count(*) = 3 FROM applied', 'timers are applied');
is(sql("SELECT string_agg(n::text, ' ' ORDER BY seq) FROM applied"), '0 1 2', 'when each is due');
is(sql("SELECT revenant.cancel_timer($timer), revenant.cancel_timer($timer)"), 't|f', 'one that is not due can be cancelled, once');
# after all processes have ended it is the supervisor that knows of it
sql("SELECT revenant.send_after('noted', 'alone', '{}', '2.5 s')");
becomes("SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'revenant delivery'", 'no process waits for a timer');
becomes("SELECT count(*) = 1 FROM applied WHERE id = 'alone'", 'it is delivered all the same');
cmp_ok(sql("SELECT extract(epoch FROM max(at) FILTER (WHERE id = 'alone') - max(at) FILTER (WHERE id = 'timer' AND n = 2)) FROM applied"), '>', 2, 'not before it is due');

# --- latency, with one message at a time

sql('TRUNCATE applied');
my $client = Client->new($node);
my @took;
foreach my $n (1 .. 50)
{
	my $start = monotonic();
	$client->query("SELECT revenant.send('noted', 'fast', '{\"n\": $n}')");
	1 until $client->query("SELECT count(*) FROM applied WHERE n = $n") eq '1' || monotonic() > $start + 5;
	push @took, 1000 * (monotonic() - $start);
}
@took = sort { $a <=> $b } @took;
diag(sprintf 'sent to seen applied: median %.2f ms, longest %.2f ms', $took[25], $took[-1]);
cmp_ok($took[25], '<', 50, 'a message is applied promptly');
$client->quit;

# --- switched off

sql('TRUNCATE applied');
sql('ALTER SYSTEM SET revenant.enabled = off');
sql('SELECT pg_reload_conf()');
becomes("SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'revenant delivery'", 'revenant.enabled = off ends the processes');
sql("SELECT revenant.send('noted', 'off', '{}')");
is(sql("SELECT state FROM revenant.messages"), 'pending', 'what is sent stays');
sql('ALTER SYSTEM RESET revenant.enabled');
sql('SELECT pg_reload_conf()');
becomes("SELECT count(*) = 1 FROM applied WHERE id = 'off'", 'until it is on again');

$node->stop('fast');
unlike(slurp_file($node->logfile), qr/ (WARNING|PANIC):|terminated by signal|revenant supervisor could not/, 'and the log has no complaint');
done_testing();
