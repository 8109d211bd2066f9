# What docs/entities.md shows can be pasted into psql as it stands, and each recipe does what is said beside it: also after a crash.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Asks;
use Docs;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
asks($node);
sql('CREATE EXTENSION revenant; CREATE DATABASE examples');
$node->safe_psql('examples', 'CREATE EXTENSION revenant');

# A block of SQL goes as the docs say; what it prints.
sub goes
{
	my ($database, $sql, $name) = @_;
	my ($status, $out, $err) = paste($node, $database, $sql);

	is($status, 0, "pasted: $name") or diag($err);
	return $out;
}

# --- the short ones

my @examples = examples('entities.md');
my $printed = '';
cmp_ok(scalar @examples / 2, '>=', 12, 'there are examples');
while (my ($heading, $sql) = splice @examples, 0, 2)
{
	$printed .= "\n== $heading ==\n" . goes('examples', $sql, $heading || 'the beginning') unless $heading eq 'Recipes';
}

# What is said in comments beside the statements that do not fail
sub says
{
	my ($what, $name) = @_;

	like($printed, $what, $name);
	return;
}

says(qr/^1\n3\nvisits\|2\|3\|[^\n]*\nvisits\|2\|3$/m, 'the smallest example counts, and is a row');
says(qr/^article\n1\n1\|\{"title": "Helo"\}\n2$/m, 'the first versions of a snapshot');
says(qr/^2\|[^|\n]*\|\{"title": "Hello"\}\n\{"title": "Helo"\}\n\n3\nt\n4\n0$/m, 'its history, its tombstone, and another life');
says(qr/== Who needs what ==\n\n4\nt\n== Who needs what ==\n1\n/, 'a caller may call, and delete; or only what a function does for it');
says(qr/== Receipts[^\n]*\n1\n1\n== Receipts[^\n]*\n2\ncommitted$/m, 'a repeated request, and a receipt');
says(qr/== Messages and timers ==\n\d+\n(?:[^\n]*\|send\|[^\n]*\n)?[^\n]*\|timer\|scheduled\|[^\n]*\nt$/m, 'a timer is seen, and cancelled');
says(qr/^\d+\|retrying\|\d\|22P02\|invalid input syntax for type bigint: "one"\n/m, 'a message whose handler fails');
ok($node->poll_query_until('examples', q{SELECT revenant.call('gauge', 'other', '{"add": 1}') IS NOT NULL AND NOT (revenant.receipt()).durable}), 'a relaxed entity is left to memory');
is($node->safe_psql('examples', q{SELECT l.dirty AND l.version > g.version FROM revenant.loaded_entities AS l JOIN gauge AS g USING (id) WHERE l.id = 'other'}), 't', 'ahead of its row');
is($node->safe_psql('examples', q{SELECT revenant.flush_entities('gauge'); SELECT NOT l.dirty AND l.version = g.version FROM revenant.loaded_entities AS l JOIN gauge AS g USING (id) WHERE l.id = 'other'}), "1\nt", 'until it is flushed');
says(qr/^(?:ada\|2\|[^\n]*\nalan\|1\||alan\|1\|[^\n]*\nada\|2\|)/m, 'an upgrade at the first call');
is($node->safe_psql('examples', 'SELECT string_agg(DISTINCT vsn::text, \', \') FROM person'), '2', 'and of all');
is($node->safe_psql('examples', q{SELECT count(*) FROM device_0, device_1}), '0', 'a row of a partitioned table is in one partition');
is($node->safe_psql('examples', q{SELECT state FROM device}), '20', 'and there');

# --- recipes

my %recipes = recipes('entities.md', 'Recipes');
my @names = sort keys %recipes;

sub recipe
{
	my ($name, %hurry) = @_;
	my ($full) = grep { index($_, $name) == 0 } @names or die "no recipe \"$name\"";
	my $sql = delete $recipes{$full};

	foreach my $text (keys %hurry)
	{
		is($sql =~ s/\Q$text\E/$hurry{$text}/g, 1, "\"$text\" can be made shorter");
	}
	return goes('postgres', $sql, $full);
}

sub crash
{
	$node->stop('immediate');
	$node->start;
	return;
}

is(scalar @names, 5, 'there are recipes');

like(recipe('An account'), qr/\n100\n70\n30\n1\|[^|\n]+\|100\n2\|[^|\n]+\|70\n100$/, 'money is moved, and all of its history there');
sqlstate('23514', q{BEGIN; SELECT revenant.call('account', 'bob', '{"do": "deposit", "amount": 500}'), revenant.call('account', 'cy', '{"do": "withdraw", "amount": 500}'); COMMIT},
	'who has nothing can give nothing');
sqlstate('22023', qq{SELECT revenant.call('account', 'bob', '{"do": "deposit", "amount": -1}')}, 'an amount is positive');
sqlstate('22023', qq{SELECT revenant.call('account', 'bob', '{"do": "deposit"}')}, 'and there');
sqlstate('20000', qq{SELECT revenant.call('account', 'bob', '{"do": "rob", "amount": 1}')}, 'an account does what it can');
is(sql(q{SELECT string_agg(id || ' ' || (state ->> 'balance') || ' ' || version, ', ' ORDER BY id) FROM account}), 'ada 70 2, bob 30 1', 'and nothing of it is left');
crash();
is(sql(q{SELECT string_agg(id || ' ' || (state ->> 'balance') || ' ' || version, ', ' ORDER BY id) FROM account}), 'ada 70 2, bob 30 1', 'after a crash it is the same');

my @allowed = recipe('A rate limiter') =~ /^(true|false)$/mg;
is("@allowed", join(' ', ('true') x 10, ('false') x 2), 'ten at once are allowed');
becomes(q{SELECT revenant.call('bucket', '192.0.2.7', '{}') = 'true'}, 'and more with the time');
is(sql(q{SELECT revenant.call('bucket', '192.0.2.8', '{}')}), 'true', 'others have a bucket of their own');
is(sql(q{SELECT array_agg(revenant.call('bucket', '192.0.2.8', '{}')) && '{false}' FROM generate_series(1, 20)}), 't', 'which is as deep');
becomes(q{SELECT revenant.call('bucket', '192.0.2.8', '{}') = 'true' AND EXISTS (SELECT FROM revenant.loaded_entities AS l WHERE l.type = 'bucket' AND l.id = '192.0.2.8')}, 'they are in memory');
becomes(q{SELECT bool_and(NOT dirty) FROM revenant.loaded_entities WHERE type = 'bucket'}, 'and written after a while');

my $shopped = recipe('A shopping cart', '30 min' => '2 s');
like($shopped, qr/^1\|[^|\n]+\|\{"tea": 2\}\n2\|[^|\n]+\|\{"tea": 2, "milk": 1\}\n3\|[^|\n]+\|\{"milk": 1\}\nada\|[^|\n]+$/m, 'the history of a cart, and its one timer');
is(sql(q{SELECT pg_sleep(1); SELECT revenant.call('cart', 'ada', '{"do": "put", "article": "jam"}')}), qq{\n{"jam": 1, "milk": 1}}, 'it goes on');
my $touched = sql(q{SELECT state ->> 'touched' FROM cart});
becomes(q{SELECT count(*) = 1 AND min(due_at) > now() + interval '10 ms' FROM revenant.messages WHERE type = 'cart'}, 'with one timer');
crash();
becomes(q{SELECT state = '{"items": {}}' FROM cart}, 'it expires, after a crash, too');
is(sql(qq{SELECT updated_at >= '$touched'::timestamptz + interval '2 s' FROM cart}), 't', 'not before its time');
is(sql(q{SELECT count(*) FROM revenant.messages WHERE type = 'cart'}), '0', 'and no timer is left');
is(sql(q{SELECT state -> 'items' FROM revenant.history('cart', 'ada') ORDER BY version DESC OFFSET 1 LIMIT 1}), '{"jam": 1, "milk": 1}', 'what was in it is known');

recipe('A saga');
becomes(q{SELECT count(*) = 3 AND bool_and(state ->> 'status' IN ('done', 'cancelled')) FROM order_state}, 'the orders come to their end');
is(sql(q{SELECT string_agg(state ->> 'status', ', ' ORDER BY version) FROM revenant.history('order_state', 'one')}), 'paying, shipping, done', 'one is shipped');
is(sql(q{SELECT string_agg(state ->> 'status', ', ' ORDER BY version) FROM revenant.history('order_state', 'two')}), 'paying, shipping, paying back, cancelled', 'one is paid back');
is(sql(q{SELECT string_agg(state ->> 'status', ', ' ORDER BY version) FROM revenant.history('order_state', 'three')}), 'paying, cancelled', 'one is not paid');
is(sql(q{SELECT string_agg(id || ' ' || state, ', ' ORDER BY id) FROM purse}), 'ada 60, bob 100', 'and the money is where it should be');
sql(q{SELECT revenant.call('order', 'crash ' || n, jsonb_build_object('do', 'place', 'customer', 'rich ' || n, 'article', 'pot ' || n % 50, 'price', 1)) FROM generate_series(1, 100) AS n});
crash();
becomes(q{SELECT count(*) = 100 AND bool_and(state ->> 'status' IN ('done', 'cancelled')) FROM order_state WHERE id ~ 'crash'}, 'also after a crash');
is(sql(q{SELECT count(*) FROM purse WHERE id ~ 'rich' AND state::int = 99}), '50', 'nobody has paid twice, or for nothing');
is(sql(q{SELECT count(*) FROM order_state WHERE state ->> 'status' = 'done' AND id ~ 'crash'}), '50', 'or shipped what is not there');
is(sql('SELECT count(*) FROM revenant.messages'), '0', 'no message is left');

like(recipe('A debounce'), qr/\n1$/, 'there is one timer after a hundred changes');
is(sql('SELECT count(*) FROM indexed'), '0', 'it is not done at once');
sql(q{SELECT revenant.call('page', 'home', '{}'); SELECT revenant.call('page', 'other', '{}')});
becomes('SELECT count(*) = 2 FROM indexed', 'it is done');
is(sql(q{SELECT string_agg(i.page, ', ' ORDER BY i.page) FROM indexed AS i}), 'home, other', 'once for each');
is(sql(q{SELECT bool_and(version > 1 AND state = '0') FROM page}), 't', 'and the timers are forgotten');

is(join(', ', keys %recipes), '', 'no recipe is left out');

$node->stop;
done_testing();
