# A message whose handler fails is tried again, ever later, and set aside at last. Meanwhile what follows it to that entity waits, and nothing else
# does: not even if the handler ends its process.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use Mail;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "max_worker_processes = 24\nrevenant.max_runners = 8");
$node->start;
asks($node);

sql('CREATE ROLE alice LOGIN; CREATE ROLE bob LOGIN');
mail_setup($node, 'postgres');
sql("SELECT revenant.grant_usage(r, 'user') FROM unnest(ARRAY['alice', 'bob']) AS r");
sql('CREATE TABLE broken (n bigint PRIMARY KEY); GRANT ALL ON broken TO PUBLIC');
my $note = q{INSERT INTO public.applied (id, n) VALUES (id, (message ->> 'n')::bigint);};
mail_handler($node, 'postgres', 'fragile', qq{$note IF EXISTS (SELECT FROM public.broken AS b WHERE b.n = (message ->> 'n')::bigint) THEN
	RAISE EXCEPTION 'it does not like %', message ->> 'n' USING ERRCODE = 'XX123'; END IF;});

# Sends as a role; returns the number of the last one.
sub send_as
{
	my ($role, @messages) = @_;
	my $calls = join ', ', map { my ($type, $id, $n) = @$_; "revenant.send('$type', '$id', '{\"n\": $n}')" } @messages;

	return (split /\|/, sql("SET ROLE $role; SELECT $calls"))[-1];
}

# A failed message is not to be waited for: its next attempt is due, and somebody looks.
sub hurry
{
	sql("UPDATE revenant.message SET deliver_at = now() WHERE lane = 2");
	send_as('alice', [ 'noted', 'hurry', 0 ]);
	return;
}

# --- it fails, and what follows waits

sql('INSERT INTO broken VALUES (2)');
my $id = send_as('alice', [ 'fragile', 'a', 1 ], [ 'fragile', 'a', 2 ]);
send_as('alice', [ 'fragile', 'a', 3 ], [ 'fragile', 'b', 4 ], [ 'noted', 'a', 5 ]);
send_as('bob', [ 'fragile', 'a', 6 ]);
becomes("SELECT state = 'retrying' FROM revenant.messages WHERE message_id = $id", 'a message whose handler fails is retrying');
is( sql("SELECT attempts, sqlstate, error, sender FROM revenant.messages WHERE message_id = $id"),
	'1|XX123|it does not like 2|alice', 'with its error');
becomes('SELECT count(*) = 4 FROM applied', 'others are not kept');
is(sql("SELECT string_agg(n::text, ' ' ORDER BY n) FROM applied"), '1 4 5 6', 'but for what follows it to that entity from that sender; and nothing of the failed attempt is left');
is(sql("SELECT string_agg(state, ' ') FROM revenant.messages WHERE (message ->> 'n')::int = 3"), 'pending', 'which is pending');
is( sql("SELECT deliver_at - sent_at BETWEEN interval '0.9 s' AND interval '5 s' FROM revenant.message WHERE message_id = $id"), 't', 'it is tried again after a second');
becomes("SELECT attempts = 2 FROM revenant.messages WHERE message_id = $id", 'then again');
is( sql("SELECT deliver_at - now() > interval '0.5 s' FROM revenant.message WHERE message_id = $id"), 't', 'then later');

# A time beyond its backoff is what a wall clock leaves that was set back: nobody waits for the clock to come there again.
sql("UPDATE revenant.message SET deliver_at = deliver_at + interval '1 hour' WHERE message_id = $id");
send_as('alice', [ 'noted', 'clock', 0 ]);
becomes("SELECT attempts >= 3 FROM revenant.messages WHERE message_id = $id", 'a wall clock that was set back does not put it off');
sql('DELETE FROM broken');
hurry();
becomes('SELECT count(*) = 6 FROM applied WHERE n <> 0', 'once its handler does not fail it is applied');
is(sql("SELECT string_agg(n::text, ' ' ORDER BY seq) FROM applied WHERE id = 'a' AND n IN (1, 2, 3)"), '1 2 3', 'before what follows it');

# --- set aside

sql('TRUNCATE applied; INSERT INTO broken VALUES (11)');
$id = send_as('alice', [ 'fragile', 'a', 11 ]);
send_as('alice', [ 'fragile', 'a', 12 ]);
foreach my $attempt (1 .. 6)
{
	becomes("SELECT attempts = $attempt FROM revenant.messages WHERE message_id = $id", "attempt $attempt");
	hurry();
}
is(sql("SELECT state, sqlstate, error FROM revenant.messages WHERE message_id = $id"), 'set aside|XX123|it does not like 11', 'after six it is set aside');
becomes("SELECT count(*) = 1 FROM applied WHERE n = 12", 'and what follows it goes on');
is(sql("SELECT string_agg(event || ' ' || subject, ',') FROM revenant.events() WHERE event LIKE 'message.%'"), 'message.set_aside fragile/a', 'an event tells of it');
like(slurp_file($node->logfile), qr/LOG:  message\.set_aside: "fragile\/a"/, 'in the log, too');
is(sql("SET ROLE alice; SELECT count(*) FROM revenant.messages"), 1, 'its sender sees it');
is(sql("SET ROLE bob; SELECT count(*) FROM revenant.messages"), 0, 'another role does not');
sqlstate('42501', "SET ROLE bob; SELECT revenant.$_($id)") foreach 'resend_message', 'discard_message';
sql("SET ROLE alice; SELECT revenant.resend_message($id)");
becomes("SELECT state = 'retrying' AND attempts = 1 FROM revenant.messages WHERE message_id = $id", 'sent again, its attempts are counted anew');
sqlstate('55000', "SELECT revenant.resend_message($id)", 'only what is set aside can be sent again');
sql("SET ROLE alice; SELECT revenant.discard_message($id)");
is(sql('SELECT count(*) FROM revenant.messages'), 0, 'it can be discarded');
sqlstate('42704', "SELECT revenant.$_($id)", "what is gone is gone: $_") foreach 'resend_message', 'discard_message';

# --- many at once, some of which fail: each once, in order

sql('TRUNCATE applied; TRUNCATE broken; INSERT INTO broken SELECT n FROM generate_series(0, 1000, 97) AS n');
sql("SET ROLE alice; SELECT revenant.send('fragile', 'many ' || n % 50, jsonb_build_object('n', n)) FROM generate_series(1, 1000) AS n");
becomes("SELECT count(*) = 10 FROM revenant.messages WHERE state = 'retrying'", 'each of those that fail is retrying');
sql('TRUNCATE broken');
hurry();
becomes("SELECT count(*) = 1000 FROM applied WHERE n <> 0", 'then all are applied');
is(sql('SELECT count(DISTINCT n) FROM applied WHERE n <> 0'), 1000, 'each once');
is(sql('SELECT count(*) FROM (SELECT n < lag(n) OVER (PARTITION BY id ORDER BY seq) AS wrong FROM applied) AS a WHERE wrong'), 0, 'in order');

# --- a transaction of many is none that they could tell

sql('TRUNCATE applied');
mail_handler($node, 'postgres', 'local', qq{INSERT INTO public.applied (id, n) VALUES (current_setting('work_mem'), (message ->> 'n')::bigint);
	PERFORM set_config('work_mem', '7MB', (message ->> 'n')::int % 2 = 0);});
send_as('alice', map { [ 'local', 'a', $_ ] } 1 .. 10);
becomes('SELECT count(*) = 10 FROM applied', 'ten messages');
is(sql('SELECT count(DISTINCT xid) < 10, string_agg(DISTINCT id, \' \') FROM applied'), 't|4MB', 'in one transaction, and none sees what another one has set');

sql("TRUNCATE applied; CREATE TABLE once (n bigint, CONSTRAINT once_n UNIQUE (n) DEFERRABLE INITIALLY DEFERRED); GRANT ALL ON once TO PUBLIC; INSERT INTO once VALUES (5)");
mail_handler($node, 'postgres', 'deferred', qq{$note INSERT INTO public.once VALUES ((message ->> 'n')::bigint);});
$id = send_as('alice', map { [ 'deferred', "d $_", $_ ] } 1 .. 10);
becomes('SELECT count(*) = 9 FROM applied', 'what fails at the commit fails alone');
becomes("SELECT string_agg(sqlstate, ' ') = '23505' FROM revenant.messages", 'with its error');
sql('SELECT revenant.discard_message(message_id) FROM revenant.messages');

sql('TRUNCATE applied');
mail_handler($node, 'postgres', 'slow', qq{$note PERFORM pg_sleep(CASE WHEN (message ->> 'n')::int % 3 = 0 THEN 0.2 ELSE 0 END);});
send_as('alice', map { [ 'slow', "s $_", $_ ] } 1 .. 12);
becomes('SELECT count(*) = 12 FROM applied', 'slow ones are not failures');
is(sql('SELECT count(*), count(DISTINCT n) FROM applied'), '12|12', 'each once');

# --- the role's own settings

sql("ALTER ROLE alice SET statement_timeout = '150 ms'; ALTER ROLE alice SET default_transaction_read_only = on; TRUNCATE applied");
becomes("SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'revenant delivery'", 'the processes end');
sql("SET ROLE alice; SET default_transaction_read_only = off; SELECT revenant.send('slow', 'x', '{\"n\": 1}'), revenant.send('slow', 'y', '{\"n\": 3}')");
becomes("SELECT count(*) = 1 FROM revenant.messages WHERE sqlstate = '57014'", 'statement_timeout is for each message');
is(sql("SELECT string_agg(n::text, ' ') FROM applied"), '1', 'and a role that reads only by default can receive');
sql('SELECT revenant.discard_message(message_id) FROM revenant.messages; ALTER ROLE alice RESET ALL');

# --- one that ends its process

sql('TRUNCATE applied');
mail_handler($node, 'postgres', 'poison', qq{$note IF message ->> 'n' = '100' THEN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(10); END IF;});
sql('GRANT pg_signal_backend TO alice');
send_as('alice', map { [ 'poison', "p $_", $_ ] } 95 .. 105);
$id = sql("SELECT message_id FROM revenant.messages WHERE (message ->> 'n')::int = 100");
send_as('alice', [ 'poison', 'p 100', 200 ]);
becomes('SELECT count(*) = 10 FROM applied WHERE n BETWEEN 95 AND 105', 'a message that ends its process does not keep the others');
is(sql("SELECT state, attempts >= 1, error FROM revenant.messages WHERE message_id = $id"), 'retrying|t|its handler was begun, and did not come to an end', 'it is tried again');
foreach my $attempt (2 .. 6)
{
	sql("UPDATE revenant.message SET deliver_at = now() WHERE lane = 2");
	send_as('alice', [ 'noted', 'hurry', 0 ]);
	becomes("SELECT attempts >= $attempt FROM revenant.messages WHERE message_id = $id", "attempt $attempt");
}
sql("UPDATE revenant.message SET deliver_at = now() WHERE lane = 2");
send_as('alice', [ 'noted', 'hurry', 0 ]);
becomes("SELECT state = 'set aside' FROM revenant.messages WHERE message_id = $id", 'and set aside at last');
becomes("SELECT count(*) = 1 FROM applied WHERE n = 200", 'then what follows it goes on');
sql("SELECT revenant.discard_message($id)");
is(sql("SELECT count(*) FROM revenant.messages"), 0, 'nothing else is left');

# --- a sender that is gone

sql('CREATE ROLE dave LOGIN; CREATE ROLE erin LOGIN');
sql("SELECT revenant.grant_usage(r, 'user') FROM unnest(ARRAY['dave', 'erin']) AS r");
sql('TRUNCATE applied');
sql("SET ROLE $_; SELECT revenant.send_after('noted', '$_', '{}', '2 s')") foreach 'dave', 'erin';
sql("SELECT revenant.revoke_usage('dave')");
sql('DROP ROLE dave');
sql('ALTER ROLE erin RENAME TO eris');
becomes("SELECT count(*) = 2 FROM revenant.messages WHERE state = 'set aside'", 'what a role has sent that is gone is set aside');
is( sql("SELECT string_agg(error, ', ' ORDER BY sender) FROM revenant.messages"), 'role "dave" does not exist, role "erin" was renamed to "eris"', 'with the reason');
sqlstate('55000', "SELECT revenant.resend_message(message_id) FROM revenant.messages WHERE sender = 'dave'", 'a role that is gone cannot receive');
sql("SELECT revenant.resend_message(message_id) FROM revenant.messages WHERE sender = 'erin'");
becomes("SELECT count(*) = 1 FROM applied WHERE who = 'eris'", 'one that was renamed can');
sql("SELECT revenant.discard_message(message_id) FROM revenant.messages");

# before 17 nothing can be connected as a role that may not log in
sql("ALTER ROLE eris NOLOGIN");
if ($node->pg_version < 17)
{
	sqlstate('0A000', "SET ROLE eris; SELECT revenant.send('noted', 'x', '{}')");
	sql("ALTER ROLE eris LOGIN; SET ROLE eris; SELECT revenant.send_after('noted', 'x', '{}', '1 s'); RESET ROLE; ALTER ROLE eris NOLOGIN");
	becomes("SELECT count(*) = 1 FROM revenant.messages WHERE state = 'set aside' AND error = 'role \"eris\" is not permitted to log in'", 'what a role has sent that may not log in is set aside');
	sql("ALTER ROLE eris LOGIN; SELECT revenant.resend_message(message_id) FROM revenant.messages");
}
else
{
	sql("SET ROLE eris; SELECT revenant.send('noted', 'x', '{}')");
}
becomes("SELECT count(*) = 1 FROM applied WHERE who = 'eris' AND id = 'x'", 'and delivered when it may');

$node->stop('fast');
unlike(slurp_file($node->logfile), qr/ (WARNING|PANIC):|terminated by signal|revenant supervisor could not/, 'and the log has no complaint');
done_testing();
