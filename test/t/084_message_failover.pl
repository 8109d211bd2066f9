# A standby delivers nothing; once it is promoted it delivers what is due, and what comes due, once.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Mail;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->append_conf('postgresql.conf', "max_worker_processes = 24\nrevenant.max_runners = 8");
$primary->start;
mail_setup($primary, 'postgres');
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

$primary->safe_psql('postgres', "SELECT revenant.send('noted', 'before', jsonb_build_object('n', n)) FROM generate_series(1, 500) AS n");
ok($primary->poll_query_until('postgres', 'SELECT count(*) = 500 FROM applied'), 'the primary delivers');
# what is not delivered yet when it ends
$primary->safe_psql('postgres', q{
	ALTER SYSTEM SET revenant.enabled = off;
	SELECT pg_reload_conf();
});
ok($primary->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'revenant delivery'"), 'it delivers no more');
$primary->safe_psql('postgres', "SELECT revenant.send('noted', 'pending ' || n % 5, jsonb_build_object('n', n)) FROM generate_series(501, 1000) AS n;
	SELECT revenant.send_after('noted', 'overdue', '{\"n\": 1001}', '0'), revenant.send_after('noted', 'timer', '{\"n\": 1002}', '3 s'),
	revenant.send_after('noted', 'much later', '{\"n\": 1003}', '1 day')");
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));

is($standby->safe_psql('postgres', "SELECT count(*) FILTER (WHERE state = 'pending'), count(*) FILTER (WHERE state = 'scheduled') FROM revenant.messages"),
	'501|2', 'the standby shows what is pending');
foreach my $call ("send('noted', 'x', '{}')", "send_after('noted', 'x', '{}', '1 s')", 'cancel_timer(1)', 'resend_message(1)', 'discard_message(1)')
{
	my (undef, undef, $err) = $standby->psql('postgres', "\\set VERBOSITY sqlstate\nSELECT revenant.$call");
	like($err, qr/ERROR:  25006/, "it refuses $call");
}
is($standby->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'revenant delivery'"), 0, 'it delivers nothing');

# what it never hears of
$standby->append_conf('postgresql.conf', "primary_conninfo = ''");
$standby->reload;
ok($standby->poll_query_until('postgres', 'SELECT count(*) = 0 FROM pg_stat_wal_receiver'), 'the standby receives no more');
my @lost = split /\n/, $primary->safe_psql('postgres', "SELECT revenant.send_after('noted', 'lost', '{}', '1 day') FROM generate_series(1, 100)");

$primary->stop('immediate');
$standby->promote;
ok($standby->poll_query_until('postgres', 'SELECT count(*) = 1002 FROM applied'), 'promoted, it delivers what is due');
is($standby->safe_psql('postgres', 'SELECT count(DISTINCT n) FROM applied'), 1002, 'each once');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM (SELECT n < lag(n) OVER (PARTITION BY id ORDER BY seq) AS wrong FROM applied) AS a WHERE wrong'), 0, 'in order');
is($standby->safe_psql('postgres', 'SELECT message ->> \'n\', state FROM revenant.messages'), '1003|scheduled', 'and keeps the rest');
my ($greatest) = sort { $b <=> $a } @lost;
$standby->safe_psql('postgres', "SELECT revenant.send_after('noted', 'kept', '{}', '1 day') FROM generate_series(1, 200)");
cmp_ok($standby->safe_psql('postgres', "SELECT min(message_id) FROM revenant.messages WHERE id = 'kept'"), '>', $greatest, 'numbers go on above those that were lost');
is($standby->safe_psql('postgres', "SELECT count(*) FROM unnest('{" . join(',', @lost) . "}'::bigint[]) AS timer WHERE revenant.cancel_timer(timer)"),
	0, 'so who takes back what was lost takes back nothing of anybody');

$standby->stop('fast');
done_testing();
