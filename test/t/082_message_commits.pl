# Commits come out of the order of numbers: what has a lower number than what was delivered is delivered all the same, once, and what one sender
# has sent to an entity one after the other is applied in that order.

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
mail_setup($node, 'postgres');

# --- a lower number is committed after a higher one was delivered

my ($late, $early, $other) = map { Client->new($node) } 1 .. 3;
$late->query('BEGIN');
my $low = $late->query("SELECT revenant.send('noted', 'a', '{\"n\": 1}')");
my $high = $early->query("SELECT revenant.send('noted', 'a', '{\"n\": 2}')");
cmp_ok($low, '<', $high, 'numbers are drawn when a message is sent');
becomes('SELECT count(*) = 1 FROM applied WHERE n = 2', 'the higher one is delivered');
$late->query('COMMIT');
becomes('SELECT count(*) = 1 FROM applied WHERE n = 1', 'so is the lower one, which is committed later');
# what the same session sends then comes behind it, whatever was delivered before
$late->query('BEGIN');
$late->query("SELECT revenant.send('noted', 'b', '{\"n\": 3}')");
$early->query("SELECT revenant.send('noted', 'b', '{\"n\": 4}')");
$late->query("COMMIT; SELECT revenant.send('noted', 'b', '{\"n\": 5}')");
becomes("SELECT count(*) = 3 FROM applied WHERE id = 'b'", 'all are delivered');
is(sql("SELECT (SELECT seq FROM applied WHERE n = 3) < (SELECT seq FROM applied WHERE n = 5)"), 't', 'in the order of the session');

# when no process is there it is the supervisor that must look at all of it
becomes("SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'revenant delivery'", 'the process ends');
$late->query('BEGIN');
$late->query("SELECT revenant.send('noted', 'c', '{\"n\": 6}')");
$early->query("SELECT revenant.send('noted', 'c', '{\"n\": 7}')");
becomes('SELECT count(*) = 1 FROM applied WHERE n = 7', 'the higher one is delivered');
becomes("SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'revenant delivery'", 'the process ends');
$late->query('COMMIT');
becomes('SELECT count(*) = 1 FROM applied WHERE n = 6', 'the lower one is delivered by another');

# --- a timer that is taken back while it is not committed whether it is

my $timer = $early->query("SELECT revenant.send_after('noted', 'd', '{\"n\": 8}', '0.2 s')");
$late->query('BEGIN');
is($late->query("SELECT revenant.cancel_timer($timer)"), 't', 'a timer is cancelled, and that is not committed');
$early->query("SELECT revenant.send('noted', 'd', '{\"n\": 9}'), pg_sleep(0.3)");
becomes('SELECT count(*) = 1 FROM applied WHERE n = 9', 'others to the entity are delivered');
is($early->query('SELECT count(*) FROM applied WHERE n = 8'), 0, 'it is not, though it is due');
$late->query('ROLLBACK');
becomes('SELECT count(*) = 1 FROM applied WHERE n = 8', 'it is after the rollback');
$timer = $early->query("SELECT revenant.send_after('noted', 'd', '{\"n\": 10}', '0.1 s')");
$late->query('BEGIN');
is($late->query("SELECT revenant.cancel_timer($timer)"), 't', 'another one');
$other->send("SELECT revenant.cancel_timer($timer)");
$late->query('COMMIT');
Client::answers(monotonic() + $PostgreSQL::Test::Utils::timeout_default, $other) or die 'no answer';
is($other->answer, 'f', 'who cancels it at the same time hears that it is gone');
is(sql('SELECT count(*) FROM revenant.messages'), 0, 'nothing is left');

# --- what was prepared is sent when that is committed

$late->query("BEGIN; SELECT revenant.send('noted', 'prepared', '{\"n\": 20}')");
$late->query("PREPARE TRANSACTION 'later'");
$early->query("SELECT revenant.send('noted', 'prepared', '{\"n\": 21}')");
becomes('SELECT count(*) = 1 FROM applied WHERE n = 21', 'others are delivered');
is(sql('SELECT count(*) FROM applied WHERE n = 20'), 0, 'what is prepared is not');
$other->query("COMMIT PREPARED 'later'");
my $start = monotonic();
becomes('SELECT count(*) = 1 FROM applied WHERE n = 20', 'until it is committed');
cmp_ok(monotonic() - $start, '<', 5, 'then soon');

# --- the same request at the same time is one message

$late->query('BEGIN');
my $first = $late->query("SELECT revenant.send('noted', 'e', '{}', '00000000-0000-0000-0000-00000000000e')");
$other->send("SELECT revenant.send('noted', 'e', '{}', '00000000-0000-0000-0000-00000000000e')");
ok($early->becomes("SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = $other->{pid} AND wait_event_type = 'Lock'"), 'the same request waits for the first one');
$late->query('COMMIT');
Client::answers(monotonic() + $PostgreSQL::Test::Utils::timeout_default, $other) or die 'no answer';
is($other->answer, $first, 'and is answered as that');
becomes("SELECT count(*) = 1 FROM applied WHERE id = 'e'", 'it is one message');

# --- many sessions that commit and roll back as they like

sql('TRUNCATE applied');
my @senders = map { Client->new($node) } 1 .. 8;
foreach my $i (0 .. $#senders)
{
	$senders[$i]->send("DO \$\$
	DECLARE rolled_back boolean;
	BEGIN
		PERFORM setseed($i / 10.0);
		FOR n IN 1..200 LOOP
			rolled_back := random() < 0.3;
			PERFORM revenant.send('noted', '$i/' || n % 3, jsonb_build_object('n', CASE WHEN rolled_back THEN -1 ELSE n END));
			IF random() < 0.1 THEN PERFORM pg_sleep(random() / 20); END IF;
			IF rolled_back THEN ROLLBACK; ELSE INSERT INTO public.acknowledged VALUES ('$i/' || n % 3, n); COMMIT; END IF;
		END LOOP;
	END \$\$") if $i > 0 || sql('CREATE TABLE acknowledged (id text, n bigint)') eq '';
}
Client::answers(monotonic() + 5 * $PostgreSQL::Test::Utils::timeout_default, @senders) or die 'no answer';
$_->answer foreach @senders;
becomes('SELECT count(*) = 0 FROM revenant.messages', 'all is delivered');
is(sql('SELECT count(*) FROM (TABLE acknowledged EXCEPT ALL SELECT id, n FROM applied) AS a'), 0, 'everything that was committed');
is(sql('SELECT count(*) FROM (SELECT id, n FROM applied EXCEPT ALL TABLE acknowledged) AS a'), 0, 'once, and nothing else');
is(sql('SELECT count(*) FROM (SELECT n < lag(n) OVER (PARTITION BY id ORDER BY seq) AS wrong FROM applied) AS a WHERE wrong'), 0, 'in order of each session');

# --- at every isolation level, beside callers

sql('TRUNCATE applied; CREATE ROLE ser LOGIN; CREATE ROLE rep LOGIN');
sql("ALTER ROLE ser SET default_transaction_isolation = 'serializable'; ALTER ROLE rep SET default_transaction_isolation = 'repeatable read'");
sql("SELECT revenant.grant_usage(r, 'user') FROM unnest(ARRAY['ser', 'rep']) AS r");
$senders[$_]->query('SET ROLE ' . ('ser', 'rep')[$_ % 2]) foreach 0 .. 3;
$senders[$_]->send("DO \$\$ BEGIN FOR n IN 1..300 LOOP PERFORM revenant." . ($_ < 4 ? 'send' : 'call') . "('noted', 'i ' || n % 3, jsonb_build_object('n', $_ * 1000 + n)); COMMIT; END LOOP; END \$\$") foreach 0 .. 7;
Client::answers(monotonic() + 5 * $PostgreSQL::Test::Utils::timeout_default, @senders) or die 'no answer';
is(join(' ', map { $_->{error} // () } @senders), '', 'no caller is a victim');
becomes('SELECT count(*) = 0 FROM revenant.messages', 'all is delivered');
is(sql('SELECT count(*), count(DISTINCT n) FROM applied'), '2400|2400', 'once');
is(sql("SELECT sum(version) FROM noted_state WHERE id LIKE 'i %'"), 2400, 'and counted');

$node->stop('fast');
done_testing();
