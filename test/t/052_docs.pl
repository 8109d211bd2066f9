# What the docs show can be pasted: every recipe of docs/leases.md runs in psql as it stands, and does what is said beside it.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Docs;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION revenant');

my @recipes = recipes('leases.md', 'Recipes');
cmp_ok(scalar @recipes / 2, '>=', 6, 'there are recipes');
isnt((paste($node, 'postgres', "SELECT 1;\nSELECT revenant.fence('nothing', 1);"))[0], 0, 'a mistake in one would be seen');
while (my ($name, $sql) = splice @recipes, 0, 2)
{
	my ($status, undef, $err) = paste($node, 'postgres', $sql);

	is($status, 0, "pasted: $name") or diag($err);
	is($node->safe_psql('postgres', 'SELECT string_agg(lease, \', \') FROM revenant.leases'), '', 'and it leaves no lease behind');
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM report'), 1, 'the report was made');
is($node->safe_psql('postgres', q{SELECT revenant.try_acquire('nightly-report') IS NULL}), 't', 'and nobody makes it again for a while');
is($node->safe_psql('postgres', 'SELECT sum(amount) FROM ledger'), 10, 'the ledger was written');
isnt(($node->psql('postgres', 'INSERT INTO ledger (amount) VALUES (1)'))[0], 0, 'by nobody else');
is($node->safe_psql('postgres', 'SELECT value FROM outside'), 'new', 'the outside store has the value');

$node->stop;
done_testing();
