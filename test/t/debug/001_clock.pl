# A lapsed lease can be taken: with a clock that the test moves, nobody waits for it.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION revenant');

my $take = "SELECT revenant.try_acquire('lapsing', ttl => '1 h')";
my $first = $node->safe_psql('postgres', $take);
cmp_ok($first, '>', 0, 'taken');
is($node->safe_psql('postgres', $take), '', 'busy within its time');
$node->safe_psql('postgres', "SELECT revenant._debug_move_clock('2 h')");
cmp_ok($node->safe_psql('postgres', $take),
	'>', $first, 'free after it, with a greater token');

done_testing();
