# A client asks the promoted standby what became of its call, and is not told of another transaction that has its number now.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

sub new_standby
{
	my ($name, $primary) = @_;

	$primary->backup("for_$name");
	my $standby = PostgreSQL::Test::Cluster->new($name);
	$standby->init_from_backup($primary, "for_$name", has_streaming => 1);
	$standby->start;
	# the backup has switched to a new segment: without a record in it there is nothing to wait for
	$primary->safe_psql('postgres', "SELECT pg_logical_emit_message(true, 'test', 'begun')");
	$primary->wait_for_catchup($name, 'replay', $primary->lsn('flush'));
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

# A call, and its receipt: "xid lsn timeline"
sub call
{
	my ($node, $id, $ending, $request) = @_;
	$request = $request ? ", request_id => '$request'" : '';
	my $out = $node->safe_psql('postgres', "BEGIN; SELECT revenant.call('e', '$id', '1'$request); SELECT 'receipt ' || xid || ' ' || lsn || ' ' || timeline FROM revenant.receipt(); $ending");

	return $out =~ /receipt (.*)/ ? $1 : die "no receipt: $out";
}

sub status
{
	my ($node, $receipt) = @_;
	my ($xid, $lsn, $timeline) = split / /, $receipt;

	return $node->safe_psql('postgres', "SELECT revenant.receipt_status('$xid', '$lsn', $timeline)");
}

my $request = '00000000-0000-0000-0000-000000000001';
my $lost_request = '00000000-0000-0000-0000-000000000002';
my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->append_conf('postgresql.conf', 'max_prepared_transactions = 10');
$primary->start;
$primary->safe_psql('postgres', q{
	CREATE EXTENSION revenant;
	CREATE FUNCTION handler(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS $$ SELECT to_jsonb(coalesce($2::int, 0) + 1), to_jsonb(coalesce($2::int, 0) + 1), NULL::text $$;
	SELECT revenant.create_snapshot_table('entities', 5);
	SELECT revenant.create_entity_type('e', 'entities', 'handler');
});
my $committed = call($primary, 'a', 'COMMIT', $request);
my $aborted = call($primary, 'a', 'ROLLBACK');
my $prepared = call($primary, 'prepared', "PREPARE TRANSACTION 'p'");
is(status($primary, $committed), 'committed', 'committed on the primary');
is(status($primary, $aborted), 'aborted', 'rolled back on the primary');
is(status($primary, $prepared), 'in progress', 'prepared on the primary');

# What a standby can do
my $standby = new_standby('standby', $primary);
my $other = new_standby('other', $primary);
asks($standby);
is(sql("SELECT (revenant.read_entity('e', 'a')).version, (revenant.load('entities', 'a')).state, (SELECT count(*) FROM revenant.history('entities', 'a')), revenant.load_version('entities', 'a', 1) IS NOT NULL, revenant.load_as_of('entities', 'a', now()) IS NOT NULL"),
	'1|1|1|t|t', 'a standby reads');
my ($xid, $lsn, $timeline) = split / /, $committed;
sqlstate('25006', "SELECT $_", "on a standby: $_") foreach "revenant.call('e', 'a', '1')", "revenant.call('e', 'a', '1', request_id => '$request')", "revenant.delete_entity('e', 'a')", "revenant.stop_entity('e', 'a')",
  "revenant.save('entities', 'a', 1, '1')", "revenant.remove('entities', 'a', 1)", "revenant.load('entities', 'a', true)", "revenant.purge_deleted('entities', now())", "revenant.upgrade_all('e')",
  "revenant.create_snapshot_table('x')", "revenant.create_entity_type('x', 'entities', 'handler')", "revenant.alter_entity_type('e', '{}')", "revenant.drop_entity_type('e')", "revenant.receipt_status('$xid', '$lsn', $timeline)";

# An open call whose rows the standby has, but not its commit; then calls that it never hears of
my $open = $primary->background_psql('postgres', on_error_stop => 0);
my $in_between = $open->query_safe("BEGIN; SELECT revenant.call('e', 'open', '1') IS NULL; SELECT xid || ' ' || lsn || ' ' || timeline FROM revenant.receipt();");
($in_between) = $in_between =~ /(\d+ \S+ \d+)/;
my $seen = call($primary, 'a', 'COMMIT');
$primary->wait_for_catchup($_, 'replay', $primary->lsn('flush')) foreach 'standby', 'other';
cut_off($standby);
cut_off($other);
$open->query_safe('COMMIT');
$open->quit;
my @lost = map { call($primary, "lost $_", 'COMMIT', $_ == 1 ? $lost_request : undef) } 1 .. 20;
is(status($primary, $in_between), 'committed', 'on the old primary: the one in between');
is(status($primary, $lost[0]), 'committed', 'on the old primary: the lost ones');
$standby->promote;
is(status($standby, $committed), 'committed', 'on the new one: what it has');
is(status($standby, $seen), 'committed', 'what was committed just before it was cut off');
is(status($standby, $aborted), 'aborted', 'what was rolled back');
is(status($standby, $prepared), 'in progress', 'what is still prepared');
is(status($standby, $in_between), 'aborted', 'what it has but for the commit');
is(status($standby, $lost[$_]), 'aborted', "what it never heard of ($_)") foreach 0, 19;

# The numbers of the lost ones are given again, and commit.
my @again = map { call($standby, "again $_", 'COMMIT') } 1 .. 25;
my %number = map { (split / /)[0] => 1 } @again;
my @same = grep { $number{ (split / /)[0] } } @lost;
cmp_ok(scalar @same, '>', 5, 'other transactions have their numbers now');
is(join(' ', map { status($standby, $_) } @same), join(' ', ('aborted') x @same), 'and it says aborted for each of them');
is(join(' ', map { status($standby, $_) } @again), join(' ', ('committed') x @again), 'committed for those of the new timeline');
is(status($primary, $again[0]), 'unknown', 'the old primary does not know the new timeline');

# Requests: the one that it has is answered, the lost one is done.
asks($standby);
is(sql("SELECT revenant.call('e', 'a', '1', request_id => '$request')"), '1', 'a request that was answered by the old primary');
is(sql("SELECT revenant.call('e', 'lost 1', '1', request_id => '$lost_request')"), '1', 'a request whose answer was lost is done');
is(sql("SELECT (revenant.read_entity('e', 'lost 1')).version, (revenant.read_entity('e', 'a')).version"), '1|2', 'once');
sql("COMMIT PREPARED 'p'");
is(status($standby, $prepared), 'committed', 'the prepared one is committed there');

# A second failover: two timelines to look back over
my $second = new_standby('second', $standby);
cut_off($second);
my $lost_again = call($standby, 'lost again', 'COMMIT');
$standby->stop('immediate');
$second->promote;
is(status($second, $committed), 'committed', 'after a second failover: of the first timeline');
is(status($second, $again[0]), 'committed', 'of the second one');
is(status($second, $lost[0]), 'aborted', 'lost at the first switch');
is(status($second, $lost_again), 'aborted', 'lost at the second one');

# A sibling chose the same timeline number: nothing can tell its receipts, but the old ones it tells.
$other->promote;
is(status($other, $committed), 'committed', 'a sibling knows what they have in common');
is(status($other, $lost[0]), 'aborted', 'and what neither of them got');

# A crash of the promoted one changes nothing.
$second->stop('immediate');
$second->start;
is(status($second, $lost[0]), 'aborted', 'after a crash, too');
is(status($second, $again[0]), 'committed', 'and committed stays');

$_->stop('immediate') foreach $primary, $other, $second;
done_testing();
