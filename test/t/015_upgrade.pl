# pg_upgrade brings everything along: rows, rights and definitions are the same, tokens go on above all that were issued, leases are nobody's,
# and what would start by itself is held until it is adopted.
#
# REVENANT_OLD_SERVER in the environment is a folder with an older major, as test/harness/stage makes it, with what this system lacks of its
# libraries in lib/; test/harness/matrix provides one. Without it this server is upgraded to itself.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Catalog;
use Client;
use Filled;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my @path;
if (my $server = $ENV{REVENANT_OLD_SERVER})
{
	my ($found) = glob "$server/usr/lib/postgresql/*";

	@path = (install_path => $found // die "no server in $server");
	# only what is missing here, so it is in nobody else's way
	$ENV{LD_LIBRARY_PATH} = "$server/lib";
}
my $settings = "max_worker_processes = 60\nrevenant.max_runners = 16\nlog_min_messages = debug1";
my $dir = PostgreSQL::Test::Utils::tempdir;
my @databases = ('postgres', q{second '"one});

sub major
{
	my ($major) = $_[0]->config_data('--version') =~ /PostgreSQL (\d+)/;

	return $major;
}

# A new server for what an old one has, and the command that leads there.
sub new_server
{
	my ($name, $from, $conf) = @_;
	my $new = PostgreSQL::Test::Cluster->new($name);

	# there are none in the old one, which 18 would have without a word
	$new->init(major($new) >= 18 ? (extra => ['--no-data-checksums']) : ());
	$new->append_conf('postgresql.conf', $conf);
	return ($new,
		'pg_upgrade', '--retain', '-d', $from->data_dir, '-D', $new->data_dir, '-b', $from->config_data('--bindir'), '-B', $new->config_data('--bindir'),
		'-s', $new->host, '-p', $from->port, '-P', $new->port);
}

# An old release may write down what the newer major does not know yet: then PostgreSQL upgrades no table between the two, with or without us.
sub upgrades_a_table
{
	my $plain = PostgreSQL::Test::Cluster->new('plain', @path);

	$plain->init;
	$plain->append_conf('postgresql.conf', q(shared_preload_libraries = ''));
	$plain->start;
	$plain->safe_psql('postgres', 'CREATE TABLE plain (a int, b text)');
	$plain->stop('fast');
	my ($new, @command) = new_server('plain_new', $plain, q(shared_preload_libraries = ''));
	chdir $dir or die $!;
	return run_log(\@command) ? 1 : 0;
}

plan(skip_all => 'this PostgreSQL cannot be upgraded to that one: a table alone fails, without revenant')
  if @path && !upgrades_a_table();

my $old = PostgreSQL::Test::Cluster->new('old', @path);
$old->init;
$old->append_conf('postgresql.conf', $settings);
$old->start;
fill_roles($old);
$old->safe_psql('postgres', 'CREATE DATABASE "second \'""one"');
my ($current, $released) = split /\n/, $old->safe_psql('postgres', q{
	SELECT default_version FROM pg_available_extensions WHERE name = 'revenant';
	SELECT max(version) FROM pg_available_extension_versions AS v JOIN pg_available_extensions AS e USING (name) WHERE name = 'revenant' AND version ~ '^[0-9.]+$' AND version <> default_version});
my %version = ($databases[0] => $current, $databases[1] => $released);
my (%rows, %catalog, %token, %busy);
foreach my $database (@databases)
{
	$old->safe_psql($database, "CREATE EXTENSION revenant VERSION '$version{$database}'");
	fill($old, $database);
	$token{$database} = $old->safe_psql($database, q{SELECT token FROM revenant.leases WHERE lease = 'plain'});
	$rows{$database} = filled_rows($old, $database);
	$catalog{$database} = catalog($old, $database);
	# who holds a lease when the server stops
	$busy{$database} = Client->new($old, $database);
	$busy{$database}->query(q{SELECT revenant.try_acquire('of a session')});
}
my $from = $old->safe_psql('postgres', q{SELECT current_setting('server_version_num')::int / 10000});
$old->stop('fast');

# Upgrades to a new server, which is returned, started.
sub upgrade
{
	my ($name, @options) = @_;
	my ($new, @command) = new_server($name, $old, $settings);
	my $major = major($new);

	chdir $dir or die $!;
	command_ok([ @command, '--check' ], "$name: pg_upgrade --check, from $from to $major");
	command_ok([ @command, @options ], "$name: pg_upgrade @options");

	my @logs = glob $new->data_dir . '/pg_upgrade_output.d/*/log/pg_upgrade_server.log';
	my $said = join '', map { slurp_file($_) } @logs;
	like($said, qr/starting background worker process "logical replication launcher"|database system is ready/, "$name: its servers have said something");
	unlike($said, qr/starting background worker process "revenant|revenant (launcher|supervisor|runner|delivery|flusher)/, '... but no worker of ours was there');
	$new->start;
	return $new;
}

# Of a catalog the definitions of views, or all but these.
sub views
{
	my ($wanted, $catalog) = @_;

	return join "\n", grep { $wanted == (/\| is defined \| +SELECT/ ? 1 : 0) } split /\n/, $catalog;
}

# Nothing has begun, and nothing is lost.
sub is_held
{
	my ($node, $database, $name) = @_;
	my $in = sub { return $node->safe_psql($database, $_[0]) };
	my $fails = sub {
		my (undef, undef, $err) = $node->psql($database, "\\set VERBOSITY sqlstate\n$_[1]");
		return like($err, qr/ERROR:  $_[0]\b/, "$name: $_[2]");
	};

	ok($node->poll_query_until($database, q{SELECT count(*) FILTER (WHERE phase = 'held') = 4 AND count(*) = 5 FROM revenant.tasks}), "$name: the tasks that were enabled are held")
	  or diag $in->('TABLE revenant.tasks');
	is(differences(filled_rows($node, $database), $rows{$database}), '', "$name: its rows are as they were");
	my $catalog = catalog($node, $database);
	is(differences(views(0, $catalog), views(0, $catalog{$database})), '', "$name: so is what the catalogs say of the extension");
	# which are printed in another way by each major
	$node->safe_psql('postgres', 'DROP DATABASE IF EXISTS fresh');
	$node->safe_psql('postgres', 'CREATE DATABASE fresh');
	$node->safe_psql('fresh', "CREATE EXTENSION revenant VERSION '$version{$database}'");
	is(differences(views(1, $catalog), views(1, catalog($node, 'fresh'))), '', "$name: its views are those of a fresh one");
	is($in->(q{SELECT count(*), count(*) FILTER (WHERE state = 'held') FROM revenant.messages}), '4|4', "$name: messages and timers are held");
	is($in->(q{SELECT string_agg(DISTINCT state, ' ') FROM revenant.plans}), 'held', "$name: plans are held");
	$fails->('55000', q{SET ROLE alice; SELECT revenant.claim_splits('job ''of" all', 'w', 1, '1 h', 'f')}, 'nobody can claim a split');
	$fails->('55000', q{SET ROLE alice; SELECT revenant.lead_plan('tasked', 'me')}, 'nor plan');
	is($in->('SELECT count(*) FROM revenant.members'), 0, "$name: nobody is a member");
	is($in->(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ '^revenant (runner|delivery|flusher)' AND datname = current_database()}), 0, "$name: nothing runs");
	is($in->(q{SELECT count(*) FROM public.applied}), 1, "$name: nothing is delivered");
	is($in->(q{SELECT revenant.call('odd ''type" of all', 'asked', '5', request_id => r.request_id)
		FROM (SELECT request_id FROM revenant._request_0 UNION ALL SELECT request_id FROM revenant._request_1) AS r}), 5, "$name: a request of before is answered as before");

	is($in->(q{SELECT count(*) FROM revenant.leases}), 0, "$name: no lease is held");
	is($in->(qq{SELECT revenant.renew('plain', $token{$database}) IS NULL, revenant.release('plain', $token{$database}), revenant.is_current('plain', $token{$database})}), 't|f|f', "$name: who held one has lost it");
	$fails->('RV00[12]', "SELECT revenant.fence('plain', $token{$database})", 'and is fenced');
	is($in->(qq{SELECT count(*) FILTER (WHERE revenant.try_acquire(name, '1 h') > $token{$database}) FROM unnest(ARRAY['plain', 'a', 'it''s "b"', 'election', 'off', 'of a session', 'task/always']) AS name}), 7,
		"$name: all can be had, by greater tokens");
	$in->(q{SELECT revenant.revoke('task/always')});
	return;
}

sub is_adopted
{
	my ($node, $database, $name) = @_;

	my (undef, undef, $err) = $node->psql($database, "\\set VERBOSITY sqlstate\nSET ROLE alice; SELECT revenant.adopt()");
	like($err, qr/ERROR:  42501/, "$name: it is not adopted by who could not become those that it runs as");
	# five tasks, four messages, three plans
	is($node->safe_psql($database, 'SELECT revenant.adopt()'), 12, "$name: all of it is adopted");
	goes_on($node, $database, $name);
	is($node->safe_psql($database, 'SELECT revenant.adopt()'), 0, "$name: once");
	return;
}

# Where there is but one major, the shorter way.
foreach my $way (@path ? ['copied'] : (), [ 'linked', '--link' ])
{
	my ($name) = @$way;
	my $new = upgrade(@$way);

	foreach my $database (@databases)
	{
		is_held($new, $database, "$name, $version{$database}");
		is_adopted($new, $database, "$name, $version{$database}");
	}
	like(slurp_file("$dir/update_extensions.sql"), qr/ALTER EXTENSION "?revenant"? UPDATE/, "$name: pg_upgrade says what to update");
	$new->safe_psql($databases[1], 'ALTER EXTENSION revenant UPDATE');
	is(differences(catalog($new, $databases[1]), catalog($new, $databases[0])), '', "$name: updated, one is as the other");
	$new->stop('fast');
	unlike(slurp_file($new->logfile), qr/terminated by signal|PANIC|TRAP/, "$name: nothing crashed");
}
done_testing();
