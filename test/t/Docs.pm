# What the docs show: the blocks of SQL on a page, and how to paste one into psql.

package Docs;

use strict;
use warnings;

use Cwd qw(abs_path);
use Exporter 'import';
use File::Basename;
use PostgreSQL::Test::Utils;

our @EXPORT = qw(examples paste recipes);

my $docs = abs_path(dirname(__FILE__) . '/../../docs');

# The parts of a page: a heading ('': the beginning) and the text below it, and so on.
sub parts
{
	my ($page) = @_;

	return ('', split /^## (.*)\n/m, slurp_file("$docs/$page"));
}

# The recipes below one heading: a name and the first block of SQL (or of another language) of each, and so on.
sub recipes
{
	my ($page, $heading, $language) = @_;
	my %parts = parts($page);

	$language //= 'sql';
	die "$page has no \"$heading\"" unless defined $parts{$heading};
	return $parts{$heading} =~ /^\*\*([^*]+?)\.?\*\*.*?^```$language\n(.*?)^```$/msg;
}

# All blocks of SQL: the heading of each and the block, and so on.
sub examples
{
	my ($page) = @_;
	my @parts = parts($page);
	my @examples;

	while (my ($heading, $text) = splice @parts, 0, 2)
	{
		push @examples, map { $heading => $_ } $text =~ /^```sql\n(.*?)^```$/msg;
	}
	return @examples;
}

# A line that ends in a comment that begins with a SQLSTATE has to fail with that.
sub fails
{
	my ($line, $sqlstate) = @_;

	return <<~"EOS";
		\\set ON_ERROR_STOP off
		$line
		SELECT :'SQLSTATE' = '$sqlstate' AS as_said \\gset
		\\set ON_ERROR_STOP on
		\\if :as_said
		\\else
			\\warn this was to fail with $sqlstate: :LAST_ERROR_SQLSTATE
			DO \$\$ BEGIN RAISE 'it is not as the docs say'; END \$\$;
		\\endif
		EOS
}

# What psql says of it, as it stands: the status, which is 0 if all went as the docs say, what it printed, and its errors.
sub paste
{
	my ($node, $database, $sql) = @_;

	$sql =~ s/^(\S.*;\s+-- ([0-9A-Z]{5}): .*)\n/fails($1, $2)/gme;
	return $node->psql($database, $sql, on_error_stop => 1);
}

1;
