# The programs in examples/ do what they are an example of: two never lead, one that is killed is followed by the other,
# and one that was paused past its ttl cannot write when it goes on.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use Cwd qw(abs_path);
use File::Basename;
use File::Copy;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $examples = abs_path(dirname(__FILE__) . '/../../examples');
my $dir = PostgreSQL::Test::Utils::tempdir;
my @programs;

# What this machine can run.
copy("$examples/$_", "$dir/$_") or die "$_: $!" for 'election.py', 'election.js', 'package.json';
my $installed = '';
push @programs, [ 'python3', "$dir/election.py" ] if system('python3 -c "import psycopg" >/dev/null 2>&1') == 0;
if (system('npm --version >/dev/null 2>&1') == 0
	&& system("cd '$dir' && npm install --no-audit --no-fund --no-package-lock --loglevel=error >npm.log 2>&1") == 0)
{
	push @programs, [ 'node', "$dir/election.js" ];
}
plan skip_all => 'neither psycopg nor pg for node is there' unless @programs;
diag('not tested: ' . (@programs > 1 ? 'nothing' : $programs[0][0] eq 'node' ? 'python' : 'node')) if @programs < 2;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', <<'END');
log_statement = none
# one that is paused in the middle of a fenced transaction keeps everybody out until that ends
revenant.fence_grace = 500ms
END
$node->start;
asks($node);

sql(q{
	CREATE EXTENSION revenant;
	CREATE TABLE work (id bigserial PRIMARY KEY, candidate text, token bigint, at timestamptz DEFAULT clock_timestamp());
	SELECT revenant.guard_table('work', 'example');
});

$ENV{PGHOST} = $node->host;
$ENV{PGPORT} = $node->port;
$ENV{PGDATABASE} = 'postgres';
$ENV{PGUSER} = getpwuid($>);
my %running;

sub start_candidate
{
	my ($name, $program) = @_;
	$running{$name} = IPC::Run::start([ @$program, $name, 1 ], '<', \undef, '>', "$dir/$name.out", '2>', "$dir/$name.err");
	return;
}

sub leader { return sql("SELECT leader FROM revenant.leader('example')"); }

sub next_leader
{
	my ($old, $name) = @_;
	becomes("SELECT leader <> '$old' FROM revenant.leader('example')", $name);
	my $new = leader();
	becomes("SELECT count(*) > 0 FROM work AS w, revenant.leader('example') AS l WHERE w.candidate = l.leader AND w.token = l.token",
		"$new works");
	return $new;
}

my $number = 0;
# three of them: one is killed, one is paused, and one is left to lead
foreach my $program ((@programs, ($programs[-1]) x 2)[0 .. 2])
{
	$number++;
	start_candidate("candidate-$number", $program);
}

my $first = next_leader('', 'somebody leads');

# --- killed

$running{$first}->signal('KILL');
eval { $running{$first}->finish };
delete $running{$first};
my $second = next_leader($first, 'after it was killed, another one leads');

# --- paused in the middle of whatever it does, past its ttl

$running{$second}->signal('STOP');
my $third = next_leader($second, 'after one was paused, another one leads');
my $late = sql("SELECT count(*) FROM work WHERE candidate = '$second'");
my $last = sql("SELECT max(id) FROM work WHERE candidate = '$second'");
$running{$second}->signal('CONT');
my $said = "$dir/$second.out";
for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
{
	last if slurp_file($said) =~ /^lost: RV00[12]$|(?s:leads.*waits)/m;
	select undef, undef, undef, 0.1;
}
like(slurp_file($said), qr/^lost: RV00[12]$|(?s:leads.*waits)/m, 'the paused one is told that it does not lead');
is(sql("SELECT count(*) FROM work WHERE candidate = '$second' AND id > $last AND token = (SELECT token FROM work WHERE id = $last)"),
	'0', 'and did not write once more by its old token');

# --- two at once, ever

my $now = leader();
becomes("SELECT count(*) > 20 FROM work WHERE token = (SELECT max(token) FROM work)", 'the work goes on');
is(sql('SELECT count(*) FROM (SELECT token < lag(token) OVER (ORDER BY id) AS back FROM work) AS w WHERE back'), '0',
	'nobody wrote after one with a newer token');
is(sql('SELECT count(*) FROM (SELECT FROM work GROUP BY token HAVING count(DISTINCT candidate) > 1) AS w'), '0',
	'no token is of two candidates');
cmp_ok(sql('SELECT count(DISTINCT token) FROM work'), '>=', 3, 'three of them led');

foreach my $name (keys %running)
{
	$running{$name}->signal('KILL');
	eval { $running{$name}->finish };
	is(slurp_file("$dir/$name.err"), '', "$name had nothing to complain about");
}
$node->stop;
done_testing();
