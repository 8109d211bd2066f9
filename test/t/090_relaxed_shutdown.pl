# A server that is stopped, fast or smart, has in its rows whatever a relaxed call was told, however much that is; what cannot be written
# neither keeps the rest from it, nor the server from stopping.

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

my $many = 100_000;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(allows_streaming => 1);
$node->append_conf('postgresql.conf', "autovacuum = off\nlog_statement = none\nmax_worker_processes = 24\nrevenant.shared_memory = '256 MB'\nmax_prepared_transactions = 2");
$node->start;
asks($node);
relaxed_setup($node);
relaxed_type($node, 'stops', "durability => 'on_stop', idle_timeout => NULL");
relaxed_type($node, 'later', "durability => 'interval', flush_every => '1 h', idle_timeout => NULL");

# Stops the server; returns the seconds that it took.
sub stop
{
	my ($mode) = @_;
	my $start = monotonic();

	$node->stop($mode, fail_ok => $mode eq 'smart');
	ok(!-e $node->data_dir . '/postmaster.pid', "$mode: the server is down");
	return monotonic() - $start;
}

# --- many

my $start = monotonic();
sql(qq{DO \$\$ BEGIN FOR i IN 1 .. $many LOOP
	PERFORM revenant.call('stops', 'many ' || i, '1'); COMMIT;
	PERFORM revenant.call('stops', 'many ' || i, '1'); COMMIT;
END LOOP; END \$\$});
diag(sprintf '%d calls took %.1f s', 2 * $many, monotonic() - $start);
is(sql("SELECT count(*) FROM revenant.loaded_entities WHERE type = 'stops' AND id LIKE 'many %' AND dirty"), $many, "$many are ahead of their rows");
is(sql("SELECT sum((state ->> 'n')::int) FROM stops_state WHERE id LIKE 'many %'"), $many, 'their rows are behind');
my $took = stop('fast');
cmp_ok($took, '<', 60, sprintf('%d of them are written in %.1f s', $many, $took));
$node->start;
is(sql("SELECT count(*), sum((state ->> 'n')::int), min(version), max(version), count(*) FILTER (WHERE reserved <> version) FROM stops_state WHERE id LIKE 'many %'"),
	"$many|" . 2 * $many . '|2|2|0', 'all are in their rows, and no version is skipped');
sql("DELETE FROM stops_state WHERE id LIKE 'many %'");

# --- under load: what was answered is there

foreach my $mode ('fast', 'smart')
{
	warm($node, $_, 'warm') foreach 'stops', 'later';
	my @clients = map { Client->new($node) } 1 .. 8;
	my %before = map { split /=/ } split /\n/, sql("SELECT 'stops ' || id || '=' || (state ->> 'n') FROM stops_state UNION ALL SELECT 'later ' || id || '=' || (state ->> 'n') FROM later_state");
	my (%answered, %asked);
	my $until = monotonic() + 1;
	my $n = 0;
	my $stopping = 0;
	while (1)
	{
		foreach my $client (grep { !$_->{gone} } @clients)
		{
			my $type = $n % 2 ? 'stops' : 'later';
			$client->{of} = "$type e" . int($n++ / 2) % 5;
			my ($id) = $client->{of} =~ / (.*)/;
			$asked{ $client->{of} }++;
			eval { $client->send("SELECT revenant.call('$type', '$id', '1')") };
			@$client{qw(busy error)} = (0, $@) if $@;
		}
		if (!$stopping && monotonic() > $until)
		{
			$stopping = 1;
			system_or_bail('pg_ctl', '-D', $node->data_dir, '-W', '-m', $mode, 'stop');
			$until = monotonic() + 1;
		}
		Client::answers(monotonic() + $PostgreSQL::Test::Utils::timeout_default, grep { !$_->{gone} } @clients) or die 'no answer';
		foreach my $client (grep { !$_->{gone} } @clients)
		{
			$client->{gone} = 1 if defined $client->{error};
			$answered{ $client->{of} }++ unless defined $client->{error};
			# a smart one waits for those who are connected
			if ($mode eq 'smart' && $stopping && monotonic() > $until)
			{
				$client->{gone} = 1;
				$client->quit;
			}
		}
		last unless grep { !$_->{gone} } @clients;
	}
	my $since = monotonic();
	1 while -e $node->data_dir . '/postmaster.pid' && monotonic() - $since < 60 && !select(undef, undef, undef, 0.01);
	ok(!-e $node->data_dir . '/postmaster.pid', "$mode, under load: the server is down");
	$node->_update_pid(0);
	$node->start;
	my %after = map { split /=/ } split /\n/, sql("SELECT 'stops ' || id || '=' || (state ->> 'n') FROM stops_state UNION ALL SELECT 'later ' || id || '=' || (state ->> 'n') FROM later_state");
	is(join(', ', grep { $after{$_} < ($before{$_} // 0) + $answered{$_} || $after{$_} > ($before{$_} // 0) + $asked{$_} } sort keys %answered), '',
		sprintf('... nothing of %d calls is lost', eval { my $sum = 0; $sum += $_ foreach values %answered; $sum }));
	is(sql('SELECT count(*) FROM stops_state WHERE version <> reserved') + sql('SELECT count(*) FROM later_state WHERE version <> reserved'), 0, '... no version is skipped');
	is(sql("SELECT count(*) FROM stops_state WHERE id LIKE 'e%' AND version <> (state ->> 'n')::int"), 0, '... nor given twice');
}

# --- what cannot be written

sub dirty
{
	my (@ids) = @_;

	warm($node, 'stops', 'warm');
	sql("SELECT revenant.call('stops', '$_', '1')") foreach map { ($_, $_) } @ids;
	is(sql("SELECT count(*) FROM revenant.loaded_entities WHERE type = 'stops' AND dirty AND id IN ('" . join("', '", @ids) . "')"), scalar @ids, 'ahead of their rows: ' . join ', ', @ids);
	return;
}

dirty(map { "fails $_" } 1 .. 9);
sql("SELECT revenant.call('stops', 'fails 5', '1000')");
sql("ALTER TABLE stops_state ADD CONSTRAINT small CHECK ((state ->> 'n')::int < 1000) NOT VALID");
$took = stop('fast');
cmp_ok($took, '<', 15, sprintf('one that fails: stopped after %.1f s', $took));
$node->start;
is(sql("SELECT string_agg(right(id, 1) || '=' || (state ->> 'n'), ' ' ORDER BY id) FROM stops_state WHERE id LIKE 'fails%'"),
	'1=2 2=2 3=2 4=2 5=1 6=2 7=2 8=2 9=2', '... the others are written');
my $log = slurp_file($node->logfile);
is(scalar(() = $log =~ /could not write entity "fails 5"/g), 1, '... the log says why, once');
like($log, qr/WARNING:  revenant could not write 1 entities of role/, '... and that it is lost');
is(sql("SELECT revenant.call('stops', 'fails 5', '1')"), 2, '... it goes on from its row');
is(sql("SELECT version > 4000 FROM revenant.read_entity('stops', 'fails 5')"), 't', '... with a version that nobody was given');

dirty(map { "held $_" } 1 .. 3);
my $client = Client->new($node);
$client->query('BEGIN');
$client->query("SELECT id FROM stops_state WHERE id = 'held 2' FOR UPDATE");
$took = stop('fast');
cmp_ok($took, '<', 15, sprintf('one that a client has locked: stopped after %.1f s', $took));
$node->start;
is(sql("SELECT sum((state ->> 'n')::int) FROM stops_state WHERE id LIKE 'held%'"), 6, '... it is written when that one is gone');

dirty(map { "locked $_" } 1 .. 3);
sql("BEGIN; SELECT id FROM stops_state WHERE id = 'locked 2' FOR UPDATE; PREPARE TRANSACTION 'locks'");
$took = stop('fast');
cmp_ok($took, '<', 15, sprintf('one that a prepared transaction has locked: stopped after %.1f s', $took));
$node->start;
is(sql("SELECT sum((state ->> 'n')::int) FROM stops_state WHERE id LIKE 'locked%'"), 5, '... the others are written');
sql("ROLLBACK PREPARED 'locks'");

dirty('tabled');
sql("BEGIN; LOCK TABLE stops_state; PREPARE TRANSACTION 'locks'");
$took = stop('fast');
cmp_ok($took, '<', 15, sprintf('a table that a prepared transaction has locked: stopped after %.1f s', $took));
$node->start;
sql("ROLLBACK PREPARED 'locks'");

dirty('dropped');
sql('DROP TABLE stops_state');
$took = stop('fast');
cmp_ok($took, '<', 5, sprintf('a table that is gone: stopped after %.1f s', $took));

$node->start;
$took = stop('fast');
cmp_ok($took, '<', 5, 'nothing to write');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, 'nothing else is wrong');
done_testing();
