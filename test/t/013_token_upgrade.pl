# After pg_upgrade, which begins with timeline 1 again, tokens go on above the old cluster's.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

sub token
{
	my ($node, $database) = @_;

	return $node->safe_psql($database, "SELECT revenant.try_acquire_xact('one')");
}

my $old = PostgreSQL::Test::Cluster->new('old');
$old->init(allows_streaming => 1);
$old->start;
$old->safe_psql('postgres', 'CREATE DATABASE quiet');
foreach my $database ('postgres', 'quiet')
{
	$old->safe_psql($database, 'CREATE EXTENSION revenant');
	token($old, $database);
}

# A server that is its own standby takes a new timeline.
foreach my $timeline (2, 3)
{
	$old->stop;
	$old->set_standby_mode;
	$old->start;
	$old->promote;
	ok( $old->poll_query_until($_, "SELECT last_value >> 40 = $timeline FROM revenant._token_mark"),
		"$_ is on timeline $timeline")
	  foreach 'postgres', 'quiet';
}
my $greatest = token($old, 'postgres');
is($greatest >> 40, 3, 'the old cluster has a third era');
$old->stop;

my $new = PostgreSQL::Test::Cluster->new('new');
$new->init;
chdir(PostgreSQL::Test::Utils::tempdir) or die $!;
my $bin = $new->config_data('--bindir');
command_ok(
	[
		'pg_upgrade', '-d', $old->data_dir, '-D', $new->data_dir, '-b', $bin, '-B', $bin,
		'-s', $new->host, '-p', $old->port, '-P', $new->port
	],
	'pg_upgrade');

$new->start;
my $control = $new->safe_psql('postgres', 'SELECT timeline_id FROM pg_control_checkpoint()');
is($control, '1', 'the new cluster is on timeline 1');
my $first = token($new, 'postgres');
cmp_ok($first, '>', $greatest, 'its first token is above all of the old cluster');
cmp_ok($first >> 40, '>', 3, 'and above all that a lost standby of it might have issued');
ok($new->poll_query_until('quiet', 'SELECT last_value >> 40 > 3 FROM revenant._token_mark'),
	'a database in which nobody asks has entered its era');
cmp_ok(token($new, 'quiet') >> 40, '>', 3, 'and goes on there');

done_testing();
