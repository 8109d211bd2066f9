# More relaxed entities than memory has room for, and more callers than processors: some calls are strict, none is lost, none is done twice.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use Client qw(monotonic);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Relaxed;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "max_worker_processes = 24\nautovacuum = off\nlog_statement = none\nrevenant.shared_memory = '4 MB'\ndeadlock_timeout = '50 ms'\nmax_connections = 60");
$node->start;
asks($node);
relaxed_setup($node);
relaxed_type($node, 'stops', "durability => 'on_stop', idle_timeout => NULL");
relaxed_type($node, 'timed', "durability => 'interval', flush_every => '50 ms', idle_timeout => NULL");

# --- money is neither made nor lost, whoever moves it and however durable that is

my $accounts = 12;
my @clients = map { Client->new($node) } 1 .. 32;
my ($until, %changes, %refused, $moved) = (monotonic() + 8);
while (monotonic() < $until)
{
	foreach my $client (grep { !$_->{busy} } @clients)
	{
		my ($from, $to) = map { 'a' . int rand $accounts } 1 .. 2;
		my ($one, $other) = map { (qw(stops timed))[ rand 2 ] } 1 .. 2;
		my $how = (", 'strict'", '', '', '')[ rand 4 ];
		my $end = rand() < 0.1 ? 'ROLLBACK' : 'COMMIT';
		# in a third of them one call only, of 0: it changes nothing
		my @calls = rand() < 0.3 ? ([ 'stops', 'hot', 1 ]) : rand() < 0.2 ? ([ $one, $from, 0 ]) : ([ $one, $from, -1 ], [ $other, $to, 1 ]);
		$client->{changes} = $end eq 'COMMIT' ? [ map { "$_->[0] $_->[1]" } grep { $_->[2] } @calls ] : [];
		$client->send(join '; ', 'BEGIN', (map { "SELECT revenant.call('$_->[0]', '$_->[1]', '$_->[2]'$how)" } @calls), $end);
	}
	Client::answers(monotonic() + 0.002, @clients);
	settle($_) foreach grep { !$_->{busy} } @clients;
}
Client::answers(monotonic() + $PostgreSQL::Test::Utils::timeout_default, @clients) or die 'no answer';
settle($_) foreach @clients;

sub settle
{
	my ($client) = @_;

	my $changes = delete $client->{changes} or return;
	if (defined $client->{error})
	{
		$refused{ substr $client->{error}, 0, 5 }++;
		$client->{busy} = 0;
		$client->query('ROLLBACK');
		return;
	}
	$moved++ if @$changes;
	$changes{$_}++ foreach @$changes;
	return;
}

is(join(' ', grep { $_ ne '40P01' } keys %refused), '', 'no call failed but by a deadlock');
diag(sprintf '%d transactions, %d deadlocks', $moved, $refused{'40P01'} // 0);
my $all = "SELECT 'stops ' || id AS of, r.* FROM stops_state AS s, revenant.read_entity('stops', s.id) AS r UNION ALL SELECT 'timed ' || id, r.* FROM timed_state AS s, revenant.read_entity('timed', s.id) AS r";
$all =~ s/\bid AS of/s.id AS of/; $all =~ s/'timed ' \|\| id/'timed ' || s.id/;
is(sql("SELECT sum((state ->> 'n')::int) FROM ($all) AS a WHERE id LIKE 'a%'"), 0, 'as seen by readers all accounts together have nothing');
is(sql("SELECT state ->> 'n' FROM revenant.read_entity('stops', 'hot')"), $changes{'stops hot'}, 'the hot one has counted every call');
# the first call of each may have been one that changed nothing
is(join(', ', grep { my ($of, $version) = split /=/; my $told = $changes{$of} // 0; $version != $told && $version != $told + 1 } split /\n/, sql("SELECT of || '=' || version FROM ($all) AS a WHERE id LIKE 'a%'")),
	'', 'versions have grown by one with every change');
sql('SELECT revenant.flush_entities()');
is(sql("SELECT sum((state ->> 'n')::int) FROM (SELECT id, state FROM stops_state UNION ALL SELECT id, state FROM timed_state) AS a WHERE id LIKE 'a%'"), 0, 'so have their rows');

# --- more than there is room for

my $many = 6000;
my $size = 2000;
sql(qq{
	CREATE FUNCTION large(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS \$\$
	SELECT ROW(NULL, jsonb_build_object('n', coalesce((state ->> 'n')::int, 0) + 1, 'more', repeat('x', $size)), NULL)::revenant.reply \$\$;
	SELECT revenant.create_snapshot_table('large_state');
	SELECT revenant.create_entity_type('large', 'large_state', 'large', durability => 'on_stop', idle_timeout => NULL)});
foreach my $round (1 .. 3)
{
	sql(qq{DO \$\$ BEGIN FOR i IN 1 .. $many LOOP PERFORM revenant.call('large', 'e' || (i * 7919) % $many, '1'); COMMIT; END LOOP; END \$\$});
	is(sql("SELECT count(*), min((r.state ->> 'n')::int), max((r.state ->> 'n')::int) FROM large_state AS s, revenant.read_entity('large', s.id) AS r"), "$many|$round|$round",
		"$many entities of $size bytes in 4 MB: each has counted its calls, $round");
	is(sql("SELECT min(r.version), max(r.version) FROM large_state AS s, revenant.read_entity('large', s.id) AS r"), "$round|$round", '... and its versions have grown by one');
}
my $loaded = sql("SELECT count(*) FROM revenant.loaded_entities WHERE type = 'large'");
cmp_ok($loaded, '<', $many, "$loaded of them are in memory");
cmp_ok($loaded, '>', 10, '... some are');
# the hot ones of another type are still written in time beside that
sql("SELECT revenant.call('timed', 'a1', '1'), revenant.call('large', 'e' || i % $many, '1') FROM generate_series(1, 3) AS i");
is(sql("SELECT revenant.flush_entities('timed') >= 0"), 't', 'others are flushed as ever');
$_->quit foreach @clients;
my $start = monotonic();
$node->stop('fast');
cmp_ok(monotonic() - $start, '<', 30, sprintf('stopped after %.1f s', monotonic() - $start));
$node->start;
is(sql('SELECT count(*) FROM large_state WHERE reserved <> version'), 0, 'no version is skipped');
is(sql("SELECT sum((state ->> 'n')::int) FROM large_state"), 3 * $many + 3, 'all is in the rows');
$node->stop('fast');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, 'nothing else is wrong');
done_testing();
