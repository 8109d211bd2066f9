# Without shared_preload_libraries there is one clear error, and no crash.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->start;

my ($status, $out, $err) = $node->psql('postgres',
	"\\set VERBOSITY verbose\nCREATE EXTENSION revenant");
isnt($status, 0, 'CREATE EXTENSION fails');
like($err, qr/ERROR:  RV005:/, 'with the SQLSTATE of its own');
like($err, qr/HINT: .*shared_preload_libraries/, 'and says what to do');
is($node->safe_psql('postgres', 'SELECT 1'), '1', 'the server goes on');

$node->append_conf('postgresql.conf', "shared_preload_libraries = 'revenant'");
$node->restart;
$node->safe_psql('postgres', 'CREATE EXTENSION revenant');
is( $node->safe_psql('postgres', "SELECT count(*) FROM pg_available_extensions WHERE name = 'revenant' AND installed_version = default_version"),
	'1', 'preloaded, it can be created');

done_testing();
