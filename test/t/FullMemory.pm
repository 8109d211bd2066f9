# A server that has more leases than the memory that it is started with next has room for.

package FullMemory;

use strict;
use warnings;

use Exporter 'import';
use PostgreSQL::Test::Cluster;

our @EXPORT = qw(full_memory_node less_memory);

# full_memory_node($leases): all of them are held, by tokens that are in the table held. The view kept_by_row has those whose
# deadline is in their row; the procedure renew_leases() renews all and says how many were lost.
sub full_memory_node
{
	my ($leases) = @_;
	my $node = PostgreSQL::Test::Cluster->new('main');

	$node->init;
	$node->append_conf('postgresql.conf', "autovacuum = off\nlog_statement = none\nrevenant.shared_memory = '16 MB'");
	$node->start;
	# in batches, since a transaction may do so much only
	$node->safe_psql('postgres', qq{
		CREATE EXTENSION revenant;
		CREATE TABLE held (n int PRIMARY KEY, name text, token bigint);
		CREATE PROCEDURE renew_leases(INOUT lost int) LANGUAGE plpgsql AS \$\$
		DECLARE
			h record;
		BEGIN
			lost := 0;
			FOR h IN SELECT * FROM held ORDER BY n LOOP
				IF revenant.renew(h.name, h.token) IS NULL THEN lost := lost + 1; END IF;
				IF h.n % 500 = 0 THEN COMMIT; END IF;
			END LOOP;
		END \$\$;
		CREATE VIEW kept_by_row AS SELECT l.name, h.token, h.n FROM revenant.lease AS l JOIN held AS h USING (name) WHERE l.deadline_us IS NOT NULL;
		DO \$\$
		BEGIN
			FOR i IN 1 .. $leases LOOP
				INSERT INTO held VALUES (i, 'lease ' || i, revenant.try_acquire('lease ' || i, ttl => '1 h'));
				IF i % 500 = 0 THEN COMMIT; END IF;
			END LOOP;
		END \$\$});
	return $node;
}

# From the next start on there is too little.
sub less_memory
{
	my ($node) = @_;

	$node->append_conf('postgresql.conf', "revenant.shared_memory = '4 MB'");
	return;
}

1;
