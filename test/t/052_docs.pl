# What the docs show can be pasted: every recipe of docs/leases.md runs in psql as it stands, and does what is said beside it.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $docs = abs_path(dirname(__FILE__) . '/../../docs');

# The blocks of SQL below one heading.
sub recipes
{
	my ($page, $heading) = @_;
	my ($part) = slurp_file("$docs/$page") =~ /^## \Q$heading\E\n(.*?)(?=^## |\z)/ms or die "$page has no \"$heading\"";

	return $part =~ /^\*\*([^*]+?)\.?\*\*.*?^```sql\n(.*?)^```$/msg;
}

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION revenant');

my @recipes = recipes('leases.md', 'Recipes');
cmp_ok(scalar @recipes / 2, '>=', 6, 'there are recipes');
isnt(($node->psql('postgres', "SELECT 1;\nSELECT revenant.fence('nothing', 1);", on_error_stop => 1))[0], 0, 'a mistake in one would be seen');
while (my ($name, $sql) = splice @recipes, 0, 2)
{
	my ($status, $out, $err) = $node->psql('postgres', $sql, on_error_stop => 1);

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
