# A standby reads what is in the rows and calls nothing; what a primary that is stopped had in memory has come over, and the promoted one goes on from there.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Relaxed;
use Test::More;

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->append_conf('postgresql.conf', "max_worker_processes = 24\nautovacuum = off");
$primary->start;
asks($primary);
relaxed_setup($primary);
relaxed_type($primary, 'stops', "durability => 'on_stop', idle_timeout => NULL");
$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;

sql("SELECT revenant.call('stops', 'a', '1')") foreach 1 .. 3;
$primary->wait_for_catchup($standby);
is(sql("SELECT version, dirty FROM revenant.read_entity('stops', 'a')"), '3|t', 'the primary is ahead of its row');
is($standby->safe_psql('postgres', "SELECT version, dirty FROM revenant.read_entity('stops', 'a')"), '1|f', 'the standby has the row');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM revenant.loaded_entities'), 0, 'and nothing in memory');
foreach my $call ("call('stops', 'a', '1')", "stop_entity('stops', 'a')", "delete_entity('stops', 'a')", 'flush_entities()', "load('stops_state', 'a', true)")
{
	my (undef, undef, $err) = $standby->psql('postgres', "\\set VERBOSITY sqlstate\nSELECT revenant.$call");
	like($err, qr/ERROR:  25006/, "$call is refused");
}
$primary->stop('fast');
ok($standby->poll_query_until('postgres', "SELECT version = 3 AND state ->> 'n' = '3' FROM revenant.read_entity('stops', 'a')"), 'the primary is stopped: the standby has it all');
$standby->promote;
asks($standby);
is(sql("SELECT revenant.call('stops', 'a', '1')"), 4, 'promoted it goes on');
is(sql("SELECT version FROM revenant.read_entity('stops', 'a')"), 4, '... with the next version');
warm($standby, 'stops', 'warm');
sql("SELECT revenant.call('stops', 'a', '1')") foreach 1 .. 2;
is(sql("SELECT version, dirty FROM revenant.read_entity('stops', 'a')"), '6|t', '... in memory, as before');

# one that was not: what it had in memory is lost, and its versions are not given again
$standby->backup('backup');
my $third = PostgreSQL::Test::Cluster->new('third');
$third->init_from_backup($standby, 'backup', has_streaming => 1);
$third->start;
sql("SELECT revenant.call('stops', 'a', '1')") foreach 1 .. 3;
sql("SELECT revenant.call('stops', 'b', '1')") foreach 1 .. 3;
$standby->wait_for_catchup($third);
is(sql("SELECT version FROM revenant.read_entity('stops', 'a')"), 9, 'the next primary is ahead of its row');
$standby->stop('immediate');
$third->promote;
asks($third);
is(sql("SELECT revenant.call('stops', 'a', '1')"), 6, 'after an unclean end it goes on from the row') ;
cmp_ok(sql("SELECT version FROM revenant.read_entity('stops', 'a')"), '>', 9, '... with a version that nobody was given');
is(sql("SELECT revenant.call('stops', 'b', '1')"), 2, '... one that was new, too');
cmp_ok(sql("SELECT version FROM revenant.read_entity('stops', 'b')"), '>', 3, '... with such a version');
$third->stop('fast');
done_testing();
