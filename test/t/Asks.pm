# What nearly every test asks of its server, in one word each: asks($node) says which server that is.

package Asks;

use strict;
use warnings;

use Exporter 'import';
use Test::More;

our @EXPORT = qw(asks becomes sql sqlstate);

my $node;

# From here on the others are about this server.
sub asks { $node = $_[0]; return }

# What a query answers; the test dies with it if it fails.
sub sql { return $node->safe_psql('postgres', $_[0]) }

# A query becomes true.
sub becomes
{
	my ($query, $name) = @_;

	return ok($node->poll_query_until('postgres', $query), $name);
}

# A statement fails with this SQLSTATE.
sub sqlstate
{
	my ($expected, $statement, $name) = @_;
	my (undef, undef, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\n$statement");

	like($err, qr/ERROR:  $expected\b/, $name // "$expected: $statement");
	return;
}

1;
