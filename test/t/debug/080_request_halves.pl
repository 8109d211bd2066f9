# An answer to a request is kept for an hour from its commit, also of a transaction that was open for longer than that, and no table of answers grows for ever.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";

use Asks;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
asks($node);
sql(q{
	CREATE EXTENSION revenant;
	CREATE FUNCTION handler(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS $$ SELECT to_jsonb(coalesce($2::int, 0) + 1), to_jsonb(coalesce($2::int, 0) + 1), NULL::text $$;
	SELECT revenant.create_snapshot_table('entities');
	SELECT revenant.create_entity_type('e', 'entities', 'handler');
});
becomes("SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'", 'there is a supervisor');

# The n-th request: always for an entity of its own, so that the reply is 1 for as long as its answer is known, and 2 after that.
sub request { return sql(sprintf "SELECT revenant.call('e', '%d', '1', request_id => '00000000-0000-0000-0000-%012d')", $_[0], $_[0]) }
sub minutes { return sql("SELECT revenant._debug_tick($_[0], '1 min')") }
sub halves { return sql('SELECT (SELECT count(*) FROM revenant._request_0), (SELECT count(*) FROM revenant._request_1)') }

is(request(1), '1', 'a request');
is(halves(), '1|0', 'is in the first half');
minutes(50);
is(request(2), '1', 'another one, fifty minutes later');
is(halves(), '2|0', 'is there, too: the other half is not an hour old yet');
minutes(20);
is(request(3), '1', 'one after the first hour');
is(halves(), '2|1', 'is in the other half');
is(request($_), '1', "request $_ is not done twice") foreach 1 .. 3;
is(halves(), '2|1', 'and a repeat writes nothing');

# While an answer in the old half is not committed, its hour has not begun. (It was opened before the halves changed places.)
minutes(30);
is(request($_), '1', "half an hour after that, request $_ is known") foreach 1 .. 3;
minutes(45);
is(halves(), '0|1', 'an hour after that, the old half is empty');
is(request(3), '1', 'the request of the other half is known still');
is(request(1), '2', 'one that is two hours old is done again');
is(halves(), '1|1', 'in the half that is new again');

# An answer that is committed late
my $open = $node->background_psql('postgres');
$open->query_safe("BEGIN; SELECT revenant.call('e', 'late', '1', request_id => '00000000-0000-0000-0000-00000000000a');");
is(halves(), '1|1', 'a request that is not committed');
minutes(70);
is(request(4), '1', 'one that comes after the halves have changed places');
is(halves(), '1|1', 'is in the other half');
minutes(300);
is(request(4), '1', 'as long as the late one is open, nothing is forgotten');
is(request(1), '2', 'of what is in its half, neither');
$open->query_safe('COMMIT');
$open->quit;
my $late = "SELECT revenant.call('e', 'late', '1', request_id => '00000000-0000-0000-0000-00000000000a')";
minutes(55);
is(sql($late), '1', 'and it is known for nearly an hour from its commit');
minutes(20);
is(sql($late), '2', 'not much longer');

# A supervisor that begins anew counts the hour anew.
is(request(5), '1', 'a request before a restart');
minutes(40);
$node->restart;
becomes("SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'revenant supervisor'", 'there is a supervisor again');
minutes(40);
is(request(5), '1', 'is known after it');

# Many, over many hours: no half has more than two hours of them.
my $n = 100;
foreach my $hour (1 .. 12)
{
	request($n++) foreach 1 .. 20;
	minutes(65);
}
my ($zero, $one) = split /\|/, halves();
cmp_ok($zero, '<=', 40, 'the first half did not grow');
cmp_ok($one, '<=', 40, 'nor did the second');
unlike(slurp_file($node->logfile), qr/ERROR|could not forget/, 'no error in the log');

$node->stop;
done_testing();
