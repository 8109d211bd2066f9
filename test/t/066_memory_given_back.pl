# Memory that leases have left is there for plans and entities as soon as these need it, whichever database's it was, without that a supervisor has
# looked; and what is still held is kept.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use Client qw(monotonic);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
# nobody sweeps the other database
$node->append_conf('postgresql.conf', "autovacuum = off\nlog_statement = none\nrevenant.shared_memory = '8 MB'\nrevenant.databases = 'postgres'");
$node->start;
asks($node);
sql('CREATE DATABASE other');
$node->safe_psql('other', q{
	CREATE EXTENSION revenant;
	CREATE TABLE held (n int, name text, token bigint);
	-- until not a single one more is granted
	CREATE PROCEDURE fill() LANGUAGE plpgsql AS $$
	DECLARE
		n int := 0;
		many int := 500;
	BEGIN
		WHILE many > 0 LOOP
			BEGIN
				INSERT INTO held SELECT i, 'lease ' || i, revenant.try_acquire('lease ' || i, ttl => '1 h') FROM generate_series(n + 1, n + many) AS i;
				n := n + many;
			EXCEPTION WHEN out_of_memory THEN
				many := CASE WHEN many > 1 THEN greatest(many / 5, 1) ELSE 0 END;
			END;
			COMMIT;
		END LOOP;
	END
	$$;
	-- and the last one has the longest holder that fits
	CREATE PROCEDURE fill_up() LANGUAGE plpgsql AS $$
	DECLARE
		last held;
	BEGIN
		DELETE FROM held WHERE n = (SELECT max(n) FROM held) RETURNING * INTO last;
		PERFORM revenant.release(last.name, last.token);
		COMMIT;
		FOR length IN REVERSE 500 .. 0 LOOP
			BEGIN
				INSERT INTO held VALUES (last.n, last.name, revenant.try_acquire(last.name, ttl => '1 h', holder => repeat('x', length)));
				EXIT;
			EXCEPTION WHEN out_of_memory THEN
				NULL;
			END;
		END LOOP;
	END
	$$;
	-- all but the first ones
	CREATE PROCEDURE leave(kept int, INOUT lost int) LANGUAGE plpgsql AS $$
	BEGIN
		lost := 0;
		FOR k IN 0 .. (SELECT max(n) / 500 FROM held) LOOP
			WITH those AS MATERIALIZED (DELETE FROM held WHERE n > kept AND n / 500 = k RETURNING name, token)
			SELECT lost + count(*) FILTER (WHERE NOT revenant.release(name, token)) INTO lost FROM those;
			COMMIT;
		END LOOP;
	END
	$$;
});
sql(q{
	CREATE EXTENSION revenant;
	SELECT revenant.create_plan('p', lease_ttl => '1 h');
	SELECT revenant.publish('p', revenant.lead_plan('p', 'planner', '1 h'), (SELECT jsonb_agg(jsonb_build_object('id', 's' || i)) FROM generate_series(1, 1000) AS i));
	CREATE FUNCTION handle(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS 'SELECT message, message, NULL::interval';
	SELECT revenant.create_snapshot_table('kept');
	SELECT revenant.create_entity_type('kept', 'kept', 'handle', durability => 'interval', flush_every => '1 h', idle_timeout => '1 h');
});
becomes("SELECT revenant.call('kept', gen_random_uuid()::text, '1') IS NOT NULL AND (SELECT count(*) > 0 FROM revenant.loaded_entities)", 'relaxed entities are in memory');

# Whether twenty of a kind are granted: what is left beside a lease that does not fit is too little for these.
my $ids = 0;
my %needs = (
	'a claim' => sub { return granted("SELECT revenant.claim_splits('p', 'w', 20)") },
	'a member' => sub { return granted("SELECT revenant.join_plan('p', 'm' || i) FROM generate_series(1, 20) AS i") },
	'a lease' => sub { $ids++; return granted("SELECT revenant.try_acquire('l$ids ' || i, ttl => '1 h') FROM generate_series(1, 20) AS i") },
	'a relaxed entity' => sub {
		$ids++;
		sql("SELECT revenant.call('kept', 'e$ids ' || i % 20, '1') FROM generate_series(0, 39) AS i");
		return sql("SELECT count(*) FROM revenant.loaded_entities WHERE id LIKE 'e$ids %'") == 20;
	},
);

sub granted
{
	my ($query) = @_;
	my (undef, undef, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\n$query");

	return $err eq '' ? 1 : $err =~ /53200/ ? 0 : $err;
}

# What the last try says: again and again, since nobody looks for room within a second, at most, after somebody has.
sub soon
{
	my ($need, $seconds) = @_;
	my $until = monotonic() + $seconds;
	my $granted;

	do { $granted = $needs{$need}->() } until $granted || monotonic() >= $until;
	return $granted;
}

# Each by itself: the first one that looks would help the others.
for my $need (sort keys %needs)
{
	$node->safe_psql('other', 'CALL fill()');
	ok(!$needs{$need}->(), "there is no room for $need beside leases that are held");
	is($node->safe_psql('other', 'CALL leave(100, NULL)'), 0, 'these are released');
	is(soon($need, 10), 1, 'and there is');
	is($node->safe_psql('other', 'SELECT count(*) FILTER (WHERE revenant.is_current(name, token)), count(*) FROM held'), '100|100', 'what is held is held still');
	is($node->safe_psql('other', 'CALL leave(0, NULL)'), 0, 'and can be released');
}

# --- who looks after relaxed entities can come anew beside leases that fill it

$node->safe_psql('other', $_) foreach 'CALL fill()', 'CALL fill_up()';
is($node->safe_psql('other', 'SELECT count(*) FROM held WHERE token IS NULL'), 0, 'memory is full to the last bytes');
my $flusher = "pg_stat_activity WHERE backend_type = 'revenant flush'";
my $calls = "SELECT revenant.call('kept', gen_random_uuid()::text, '1') IS NOT NULL AND (SELECT count(*) = 1 FROM $flusher";
becomes("$calls)", 'there is one that writes entities');
my $pid = sql("SELECT pid FROM $flusher");
sql("SELECT pg_terminate_backend($pid)");
becomes("$calls AND pid <> $pid)", 'and another one after it');
unlike(slurp_file($node->logfile), qr/was terminated by signal/, 'without a crash');
is($node->safe_psql('other', 'CALL leave(0, NULL)'), 0, 'these leases are released, too');

# --- a database that is dropped leaves nothing

sql('CREATE DATABASE dropped');
$node->safe_psql('dropped', q{
	CREATE EXTENSION revenant;
	SELECT revenant.create_plan('p', lease_ttl => '1 h');
	SELECT revenant.publish('p', revenant.lead_plan('p', 'planner', '1 h'), (SELECT jsonb_agg(jsonb_build_object('id', 's' || i)) FROM generate_series(1, 40000) AS i));
	DO $$
	BEGIN
		FOR i IN 1 .. 40 LOOP
			BEGIN
				PERFORM revenant.claim_splits('p', 'w', 1000);
			EXCEPTION WHEN out_of_memory THEN
				EXIT;
			END;
			COMMIT;
		END LOOP;
		LOOP
			BEGIN
				PERFORM revenant.claim_splits('p', 'w', 1);
			EXCEPTION WHEN out_of_memory THEN
				EXIT;
			END;
			COMMIT;
		END LOOP;
	END
	$$;
});
ok(!$needs{'a claim'}->(), 'there is no room beside the claims of another database');
sql('DROP DATABASE dropped WITH (FORCE)');
is(soon('a claim', 60), 1, 'when that is dropped there is');

done_testing();
