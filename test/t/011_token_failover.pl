# A promoted standby's tokens are above the old primary's, also above those it never heard of.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# The greatest of some thousand tokens.
sub thousands
{
	my ($node, $count, $database) = @_;

	my $query = "SELECT max(revenant.try_acquire_xact(i::text)) FROM generate_series(1, 1000) AS i";
	my @all = split /\n/, $node->safe_psql($database // 'postgres', join(';', ($query) x $count));
	my ($greatest) = sort { $b <=> $a } @all;

	die 'tokens are missing' if @all != $count;
	return $greatest;
}

sub token
{
	my ($node, $database) = @_;

	return $node->safe_psql($database // 'postgres', "SELECT revenant.try_acquire_xact('one')");
}

sub new_standby
{
	my ($name, $primary) = @_;

	$primary->backup("for_$name");
	my $standby = PostgreSQL::Test::Cluster->new($name);
	$standby->init_from_backup($primary, "for_$name", has_streaming => 1);
	$standby->start;
	$primary->wait_for_catchup($name, 'replay', $primary->lsn('insert'));
	return $standby;
}

sub cut_off
{
	my ($standby) = @_;

	$standby->append_conf('postgresql.conf', "primary_conninfo = ''");
	$standby->reload;
	$standby->poll_query_until('postgres', 'SELECT count(*) = 0 FROM pg_stat_wal_receiver')
	  or die 'the standby goes on receiving';
}

my $era = '(last_value >> 40)';

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->start;
$primary->safe_psql('postgres', 'CREATE DATABASE quiet');
$primary->safe_psql($_, 'CREATE EXTENSION revenant') foreach 'postgres', 'quiet';
thousands($primary, 3);

my $standby = new_standby('standby', $primary);
thousands($primary, 1);
$primary->wait_for_catchup('standby', 'replay', $primary->lsn('insert'));

# What a standby cannot do
foreach my $call ("try_acquire('a')", "try_acquire_xact('a')", 'advance_tokens(1)')
{
	my ($status, $out, $err) = $standby->psql('postgres', "\\set VERBOSITY sqlstate\nSELECT revenant.$call");
	like($err, qr/ERROR:  25006/, "$call needs a primary");
}

# Some of the old primary's last tokens are of blocks that the standby has seen, most are not.
cut_off($standby);
my $mark_seen = $standby->safe_psql('postgres', 'SELECT last_value FROM revenant._token_mark');
my $greatest = thousands($primary, 26);
cmp_ok($greatest, '>', $mark_seen + 2 * 8192, 'the old primary went on for blocks that the standby never saw');

$standby->promote;
my $first = token($standby);
cmp_ok($first, '>', $greatest, 'the first token of the promoted standby is above them');
cmp_ok(thousands($primary, 3), '<', $first, 'and above those that the old primary issues even later');
is($first >> 40, 2, 'because it is of the next era');
$primary->stop('immediate');

# The promoted one crashes
$greatest = thousands($standby, 9);
$standby->stop('immediate');
$standby->start;
$first = token($standby);
cmp_ok($first, '>', $greatest, 'after a crash of the promoted one, too');
is($first >> 40, 2, 'within its era');
ok($standby->poll_query_until('quiet', "SELECT $era = 2 FROM revenant._token_mark"),
	'a database in which nobody asked for a token has entered the era');

# The next one, on which nobody asks for a token
my $second = new_standby('second', $standby);
cut_off($second);
$greatest = thousands($standby, 9);
$standby->stop('immediate');
$second->promote;
ok($second->poll_query_until($_, "SELECT $era = 3 FROM revenant._token_mark"),
	"database $_ has entered the third era, wanted or not")
  foreach 'postgres', 'quiet';
cmp_ok(token($second), '>', $greatest, 'and its tokens are above');
is(token($second, 'quiet') >> 40, 3, 'in both databases');

# advance_tokens, once it is replayed, holds on a standby, too
my $last = new_standby('last', $second);
my $beyond = (41 << 40) + 7;
$second->safe_psql('postgres', "SELECT revenant.advance_tokens($beyond)");
$second->wait_for_catchup('last', 'replay', $second->lsn('flush'));
$greatest = token($second);
cmp_ok($greatest, '>', $beyond, 'advance_tokens on the primary');
$second->stop('immediate');
$last->promote;
cmp_ok(token($last), '>', $greatest, 'and on the standby that replayed it');

done_testing();
