# What a dump, or a template, brings along is held until it is adopted, and then delivered once; its numbers are not given away again.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use IPC::Run;
use Mail;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "max_worker_processes = 24\nrevenant.max_runners = 8");
$node->start;
asks($node);
my $dir = PostgreSQL::Test::Utils::tempdir;

sql('CREATE ROLE alice LOGIN; CREATE ROLE gone LOGIN; CREATE ROLE limited LOGIN; CREATE DATABASE source');
mail_setup($node, 'source');
mail_handler($node, 'source', 'broken', q{RAISE EXCEPTION 'no';});
$node->safe_psql('source', "SELECT revenant.grant_usage(r, 'user') FROM unnest(ARRAY['alice', 'gone']) AS r; SELECT revenant.grant_usage('limited', 'admin')");
$node->safe_psql('source', 'REVOKE ALL ON DATABASE source FROM PUBLIC');
$node->safe_psql('source', "SET ROLE alice; SELECT revenant.send_after('noted', 'timer', jsonb_build_object('n', n), '1.5 s') FROM generate_series(1, 3) AS n;
	SELECT revenant.send_after('noted', 'later', '{\"n\": 4}', '1 h'); SELECT revenant.send('noted', 'noted', '{\"n\": 5}')");
$node->safe_psql('source', "SET ROLE gone; SELECT revenant.send_after('noted', 'gone', '{\"n\": 6}', '1.5 s')");
my $aside = $node->safe_psql('source', "SELECT revenant.send('broken', 'aside', '{\"n\": 7}')");
ok($node->poll_query_until('source', "SELECT state = 'retrying' FROM revenant.messages WHERE message_id = $aside"), 'one fails');
$node->safe_psql('source', "UPDATE revenant.message SET lane = 3, deliver_at = NULL, attempts = 6, set_aside_at = now() WHERE message_id = $aside");
# alice may not connect here, so what she has sent stays
my $pending = $node->safe_psql('source', 'SELECT count(*) FROM revenant.messages');
my $last = $node->safe_psql('source', 'SELECT max(message_id) FROM revenant.messages');
cmp_ok($pending, '>=', 6, 'messages are pending');

$node->command_ok([ 'pg_dump', '-d', $node->connstr('source'), '-Fc', '-f', "$dir/dump" ], 'dumped');
sql('CREATE DATABASE restored');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('restored'), "$dir/dump" ], 'restored');
$node->safe_psql('postgres', 'CREATE DATABASE copied TEMPLATE source');

foreach my $database ('restored', 'copied')
{
	my $before = $node->safe_psql($database, 'SELECT count(*) FROM applied');
	is($node->safe_psql($database, "SELECT count(*), count(*) FILTER (WHERE state = 'held') FROM revenant.messages"), "$pending|$pending", "$database: all is held");
	is($node->safe_psql($database, "SELECT count(*), count(message_id) FROM revenant.message WHERE message_id > $last"), '0|0', 'nothing is new');
	# a message of its own shows that it delivers, and is not mistaken
	my $number = $node->safe_psql($database, "SELECT revenant.send('noted', 'own', '{\"n\": 100}')");
	cmp_ok($number, '>', $last, 'numbers go on');
	ok($node->poll_query_until($database, 'SELECT count(*) = 1 FROM applied WHERE n = 100'), 'its own are delivered');
	# by now the timers are due
	ok($node->poll_query_until($database, "SELECT count(*) >= 4 FROM revenant.messages WHERE due_at < now()"), 'the others are due');
	is($node->safe_psql($database, "SELECT count(*) - $before FROM applied"), 1, 'and are not delivered');
	my (undef, undef, $err) = $node->psql($database, "\\set VERBOSITY sqlstate\nSET ROLE limited; SELECT revenant.adopt()");
	like($err, qr/42501/, 'nobody adopts what would run as a role that he cannot become');
	(undef, undef, $err) = $node->psql($database, "\\set VERBOSITY sqlstate\nSELECT revenant.resend_message($aside)");
	like($err, qr/55000/, 'what is held cannot be sent again');
}
$node->safe_psql('postgres', 'DROP DATABASE source');
foreach my $database ('restored', 'copied')
{
	$node->safe_psql($database, "SELECT revenant.revoke_usage('gone'); REVOKE ALL ON DATABASE $database FROM gone; GRANT CONNECT ON DATABASE $database TO PUBLIC");
}
sql('DROP ROLE gone');
foreach my $database ('restored', 'copied')
{
	is($node->safe_psql($database, 'SELECT revenant.adopt()'), $pending, "$database: adopted");
	ok($node->poll_query_until($database, 'SELECT count(*) = 3 FROM applied WHERE id = \'timer\''), 'what is due is delivered');
	is($node->safe_psql($database, "SELECT string_agg(n || who, ' ' ORDER BY seq) FROM applied WHERE id = 'timer'"), '1alice 2alice 3alice', 'once, in order, as its sender');
	ok($node->poll_query_until($database, "SELECT count(*) = 1 FROM revenant.messages WHERE error = 'role \"gone\" does not exist' AND state = 'set aside'"), 'what a role has sent that is not here is set aside');
	is($node->safe_psql($database, "SELECT state FROM revenant.messages WHERE message ->> 'n' = '4'"), 'scheduled', 'what is not due waits');
	is($node->safe_psql($database, "SELECT state FROM revenant.messages WHERE message_id = $aside"), 'set aside', 'what was set aside still is');
	is($node->safe_psql($database, 'SELECT revenant.adopt()'), 0, 'there is nothing more to adopt');
}

$node->stop('fast');
done_testing();
