-- A renewal costs no row and no WAL, unless it makes the ttl longer; that is in the row, which a restart relies on.
\set VERBOSITY sqlstate

-- Runs a renewal and says what it wrote. Nobody else writes here: the test is alone, and so is its server.
CREATE FUNCTION renew_writes(lease text, token bigint, ttl interval, OUT renewed boolean, OUT row_changed boolean, OUT wal_bytes numeric)
LANGUAGE plpgsql AS $$
DECLARE
	row_before text;
	row_after text;
	lsn pg_lsn;
	best numeric;
BEGIN
	SELECT r.ctid || ' ' || r.xmin INTO row_before FROM revenant.lease AS r WHERE r.name = lease;
	-- The background writer may log something of its own now and then: the least of several is ours.
	FOR i IN 1..5 LOOP
		lsn := pg_current_wal_insert_lsn();
		renewed := revenant.renew(lease, token, ttl) IS NOT NULL;
		best := pg_current_wal_insert_lsn() - lsn;
		wal_bytes := least(wal_bytes, best);
	END LOOP;
	SELECT r.ctid || ' ' || r.xmin INTO row_after FROM revenant.lease AS r WHERE r.name = lease;
	row_changed := row_before IS DISTINCT FROM row_after;
END
$$;
CREATE VIEW renew_row AS SELECT r.name, r.ttl, r.holder, r.metadata FROM revenant.lease AS r WHERE r.name LIKE 'renew-%';

SELECT revenant.acquire('renew-a', ttl => '1 h', holder => 'me', metadata => '{"a": 1}') AS a \gset
SELECT deadline AS before FROM revenant.leases WHERE lease = 'renew-a' \gset

-- The same ttl, named or not, and a shorter one.
SELECT renewed, row_changed, wal_bytes FROM renew_writes('renew-a', :a, NULL);
SELECT renewed, row_changed, wal_bytes FROM renew_writes('renew-a', :a, '1 h');
SELECT renewed, row_changed, wal_bytes FROM renew_writes('renew-a', :a, '1 min');
SELECT renewed, row_changed, wal_bytes FROM renew_writes('renew-a', :a, '100 ms');
-- Nothing of that brought the deadline nearer, or changed the row.
SELECT deadline >= :'before' AS not_nearer, ttl FROM revenant.leases WHERE lease = 'renew-a';
SELECT * FROM renew_row;
-- A renewal takes no lock that stays, and no transaction id.
BEGIN;
SELECT revenant.renew('renew-a', :a) > now() AS renewed;
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid,
	(SELECT count(*) FROM pg_locks WHERE locktype = 'userlock' AND pid = pg_backend_pid()) AS locks;
ROLLBACK;

-- What is lost stays lost, and a lost renewal writes nothing either.
SELECT renewed, row_changed, wal_bytes FROM renew_writes('renew-a', :a + 1, '2 h');
SELECT renewed, row_changed, wal_bytes FROM renew_writes('renew-nobody', :a, '2 h');

-- Longer: the row is written, in this transaction, with everything else it had.
SELECT revenant.renew('renew-a', :a, '2 h') > now() + interval '1 h 59 min' AS longer;
SELECT * FROM renew_row;
SELECT ttl, remaining > interval '1 h 59 min' AS remaining, holder, metadata, token = :a AS same_token
FROM revenant.leases WHERE lease = 'renew-a';
-- From then on that is the ttl of a renewal that names none, and one hour is a shorter one.
SELECT renewed, row_changed, wal_bytes FROM renew_writes('renew-a', :a, NULL);
SELECT renewed, row_changed, wal_bytes FROM renew_writes('renew-a', :a, '1 h');
SELECT * FROM renew_row;

-- A lengthening that is rolled back: the row is as it was. What memory gives in addition is not promised.
BEGIN;
SELECT revenant.renew('renew-a', :a, '5 h') IS NOT NULL AS longer;
SELECT * FROM renew_row;
ROLLBACK;
SELECT * FROM renew_row;
SELECT ttl, remaining > interval '1 h 59 min' AS remaining FROM revenant.leases WHERE lease = 'renew-a';
SELECT revenant.is_current('renew-a', :a);
BEGIN;
SAVEPOINT s;
SELECT revenant.renew('renew-a', :a, '5 h') IS NOT NULL AS longer;
ROLLBACK TO s;
SELECT * FROM renew_row;
SELECT revenant.renew('renew-a', :a, '3 h') IS NOT NULL AS longer;
COMMIT;
SELECT * FROM renew_row;
-- Twice in one transaction, in both orders.
BEGIN;
SELECT revenant.renew('renew-a', :a, '4 h') IS NOT NULL AS longer;
SELECT revenant.renew('renew-a', :a, '6 h') IS NOT NULL AS longer;
SELECT revenant.renew('renew-a', :a, '5 h') IS NOT NULL AS shorter;
COMMIT;
SELECT * FROM renew_row;
SELECT ttl FROM revenant.leases WHERE lease = 'renew-a';

-- With a release in the same transaction there is nothing left to renew, before or after.
BEGIN;
SELECT revenant.renew('renew-a', :a, '7 h') IS NOT NULL AS longer;
SELECT revenant.release('renew-a', :a);
SELECT revenant.renew('renew-a', :a, '8 h') IS NULL AS lost;
COMMIT;
SELECT * FROM renew_row;
SELECT revenant.is_current('renew-a', :a), revenant.renew('renew-a', :a) IS NULL AS lost;

-- In the transaction that acquires it.
BEGIN;
SELECT revenant.acquire('renew-b', ttl => '1 h') AS b \gset
SELECT revenant.renew('renew-b', :b) IS NOT NULL AS renewed;
SELECT revenant.renew('renew-b', :b, '2 h') IS NOT NULL AS longer;
COMMIT;
SELECT * FROM renew_row;
SELECT ttl, remaining > interval '1 h 59 min' AS remaining FROM revenant.leases WHERE lease = 'renew-b';
SELECT revenant.release('renew-b', :b);

-- What has no deadline answers with none.
SELECT revenant.acquire('renew-s') AS s \gset
SELECT revenant.renew('renew-s', :s), revenant.renew('renew-s', :s + 1) IS NULL AS lost;
SELECT revenant.release('renew-s', :s);
SELECT count(*) FROM revenant.leases WHERE lease LIKE 'renew-%';

DROP VIEW renew_row;
DROP FUNCTION renew_writes;
