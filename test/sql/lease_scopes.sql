-- What a session or a transaction holds ends with it, never earlier and never later, in each of the three
-- scopes; and nothing waits for itself.
\set VERBOSITY sqlstate

CREATE TABLE scopes (a int);
CREATE TEMP VIEW mine AS
SELECT
	(SELECT string_agg(l.lease || ' ' || l.scope, ', ' ORDER BY l.lease)
	 FROM revenant.leases AS l WHERE l.lease LIKE 'scope%') AS leases,
	(SELECT string_agg(r.name, ', ' ORDER BY r.name) FROM revenant.lease AS r WHERE r.name LIKE 'scope%') AS lease_rows,
	(SELECT count(*) FROM pg_catalog.pg_locks AS k
	 WHERE k.locktype = 'userlock' AND k.pid = pg_catalog.pg_backend_pid()) AS locks;

/* ---- the check that follows each scenario sees what is wrong */

SELECT revenant.try_acquire('checked', ttl => '1 h') AS token \gset
SELECT revenant._lease_check();
BEGIN;
DELETE FROM revenant.lease WHERE name = 'checked';
SELECT replace(c, :'token', 'its token') FROM revenant._lease_check() AS c;
ROLLBACK;
BEGIN;
UPDATE revenant.lease SET token = 1 WHERE name = 'checked';
SELECT replace(c, :'token', 'its token') FROM revenant._lease_check() AS c;
ROLLBACK;
SELECT revenant._lease_check();
SELECT revenant.release('checked', :token);

/* ---- asking again */

-- The session that has it gets the same token, as often as it asks, and one release is enough.
SELECT revenant.try_acquire('scope-s') AS s \gset
SELECT revenant.try_acquire('scope-s') = :s AS try_again, revenant.acquire('scope-s') = :s AS acquire_again,
	revenant.acquire('scope-s', wait => '0') = :s AS no_wait;
SELECT leases, lease_rows, locks FROM mine;
SELECT revenant.release('scope-s', :s);
SELECT leases, lease_rows, locks FROM mine;
SELECT revenant.release('scope-s', :s) AS twice, revenant.is_current('scope-s', :s);
-- Twice in one statement is one hold.
SELECT count(DISTINCT revenant.try_acquire('scope-s')) FROM generate_series(1, 3);
SELECT revenant.release('scope-s', revenant.acquire('scope-s')) AS released;
SELECT leases, lease_rows, locks FROM mine;
-- In its transaction, before and after the commit.
BEGIN;
SELECT revenant.try_acquire('scope-s') AS s2 \gset
SELECT :s2 > :s AS grown, revenant.try_acquire('scope-s') = :s2 AS again;
COMMIT;
SELECT revenant.try_acquire('scope-s') = :s2 AS again;
SELECT revenant.release('scope-s', :s2);
SELECT leases, lease_rows, locks FROM mine;

-- Transaction scope.
BEGIN;
SELECT revenant.try_acquire_xact('scope-x') AS x \gset
SELECT revenant.try_acquire_xact('scope-x') = :x AS again, revenant.acquire_xact('scope-x') = :x AS acquire_again;
SELECT revenant.is_current('scope-x', :x), revenant.renew('scope-x', :x);
SELECT leases, lease_rows, locks > 0 AS locked FROM mine;
COMMIT;
SELECT revenant.is_current('scope-x', :x);
SELECT leases, lease_rows, locks FROM mine;

-- A ttl lease is nobody's but the token's.
SELECT revenant.try_acquire('scope-t', ttl => '1 h', holder => 'me') AS t \gset
SELECT revenant.try_acquire('scope-t', ttl => '1 h', holder => 'me') IS NULL AS busy,
	revenant.acquire('scope-t', ttl => '1 h', holder => 'me', wait => '0') IS NULL AS no_wait;
SELECT leases, lease_rows, locks FROM mine;

SELECT revenant._lease_check();
/* ---- in another scope */

SELECT revenant.try_acquire('scope-t') IS NULL AS session, revenant.try_acquire_xact('scope-t') IS NULL AS xact,
	revenant.acquire('scope-t', wait => '1 ms') IS NULL AS session_wait,
	revenant.acquire_xact('scope-t', wait => '1 ms') IS NULL AS xact_wait;
SELECT revenant.try_acquire('scope-s') AS s \gset
SELECT revenant.try_acquire('scope-s', ttl => '1 h') IS NULL AS ttl, revenant.try_acquire_xact('scope-s') IS NULL AS xact;
SELECT revenant.acquire('scope-s', ttl => '1 h');
SELECT revenant.acquire('scope-s', ttl => '1 h', wait => '1 ms');
SELECT revenant.acquire_xact('scope-s');
SELECT revenant.acquire_xact('scope-s', wait => '1 ms');
BEGIN;
SELECT revenant.try_acquire_xact('scope-x') AS x \gset
SELECT revenant.try_acquire('scope-x') IS NULL AS session, revenant.try_acquire('scope-x', ttl => '1 h') IS NULL AS ttl;
SAVEPOINT p;
SELECT revenant.acquire('scope-x');
ROLLBACK TO p;
SELECT revenant.acquire('scope-x', ttl => '1 h');
ROLLBACK TO p;
SELECT revenant.acquire('scope-x', ttl => '1 h', wait => '1 ms');
ROLLBACK TO p;
-- It is still what it was.
SELECT revenant.is_current('scope-x', :x), revenant.try_acquire_xact('scope-x') = :x AS again;
COMMIT;
-- The same where what is held is of this transaction.
BEGIN;
SELECT revenant.try_acquire('scope-s2') AS s2 \gset
SELECT revenant.try_acquire('scope-t2', ttl => '1 h') AS t2 \gset
SELECT revenant.try_acquire('scope-s2', ttl => '1 h') IS NULL AS ttl, revenant.try_acquire_xact('scope-s2') IS NULL AS xact,
	revenant.try_acquire('scope-t2') IS NULL AS session, revenant.try_acquire_xact('scope-t2') IS NULL AS xact_t,
	revenant.try_acquire('scope-t2', ttl => '1 h') IS NULL AS ttl_t;
SAVEPOINT p;
SELECT revenant.acquire_xact('scope-s2');
ROLLBACK TO p;
SELECT revenant.acquire('scope-t2');
ROLLBACK TO p;
SELECT revenant.acquire('scope-t2', ttl => '1 h');
ROLLBACK TO p;
SELECT revenant.is_current('scope-s2', :s2), revenant.is_current('scope-t2', :t2);
ROLLBACK;
SELECT revenant.release('scope-s', :s), revenant.release('scope-t', :t);
SELECT leases, lease_rows, locks FROM mine;

SELECT revenant._lease_check();
/* ---- acquired, and rolled back */

BEGIN;
SELECT revenant.try_acquire('scope-s') AS s1 \gset
SELECT revenant.try_acquire_xact('scope-x') AS x1 \gset
SELECT revenant.try_acquire('scope-t', ttl => '1 h') AS t1 \gset
SELECT leases, lease_rows, locks > 0 AS locked FROM mine;
SELECT revenant.is_current('scope-s', :s1), revenant.is_current('scope-x', :x1), revenant.is_current('scope-t', :t1);
ROLLBACK;
SELECT leases, lease_rows, locks FROM mine;
SELECT revenant.is_current('scope-s', :s1), revenant.is_current('scope-x', :x1), revenant.is_current('scope-t', :t1),
	revenant.release('scope-s', :s1), revenant.release('scope-t', :t1), revenant.renew('scope-t', :t1);
SELECT revenant.fence('scope-t', :t1);

SELECT revenant._lease_check();
/* ---- released, and rolled back */

SELECT revenant.acquire('scope-s') AS s \gset
SELECT revenant.acquire('scope-t', ttl => '1 h') AS t \gset
SELECT :s > :s1 AND :t > :t1 AS grown;
BEGIN;
SELECT revenant.release('scope-s', :s), revenant.release('scope-t', :t);
SELECT revenant.is_current('scope-s', :s), revenant.is_current('scope-t', :t), revenant.renew('scope-t', :t),
	revenant.release('scope-s', :s) AS s_twice, revenant.release('scope-t', :t) AS t_twice;
SAVEPOINT p;
SELECT revenant.fence('scope-s', :s);
ROLLBACK TO p;
SELECT revenant.fence('scope-t', :t);
ROLLBACK;
SELECT revenant.is_current('scope-s', :s), revenant.is_current('scope-t', :t), revenant.renew('scope-t', :t) IS NOT NULL AS renewed;
SELECT leases, lease_rows, locks FROM mine;

-- What was released here is not to be had before the commit.
BEGIN;
SELECT revenant.release('scope-s', :s), revenant.release('scope-t', :t);
SAVEPOINT p;
SELECT revenant.try_acquire('scope-s');
ROLLBACK TO p;
SELECT revenant.acquire('scope-s');
ROLLBACK TO p;
SELECT revenant.try_acquire_xact('scope-s');
ROLLBACK TO p;
SELECT revenant.try_acquire('scope-s', ttl => '1 h');
ROLLBACK TO p;
SELECT revenant.try_acquire('scope-t');
ROLLBACK TO p;
SELECT revenant.acquire('scope-t', ttl => '1 h');
ROLLBACK TO p;
SELECT revenant.acquire_xact('scope-t', wait => '1 ms');
ROLLBACK TO p;
COMMIT;
SELECT leases, lease_rows, locks FROM mine;

SELECT revenant._lease_check();
/* ---- acquired and released in one transaction */

BEGIN;
SELECT revenant.acquire('scope-t', ttl => '1 h') AS t \gset
SELECT revenant.acquire('scope-s') AS s \gset
SELECT revenant.release('scope-t', :t), revenant.release('scope-s', :s);
SELECT revenant.is_current('scope-t', :t), revenant.is_current('scope-s', :s), revenant.release('scope-t', :t) AS twice;
COMMIT;
SELECT leases, lease_rows, locks FROM mine;
SELECT revenant.try_acquire('scope-t', ttl => '1 h') > :t AS free_again, revenant.try_acquire('scope-s') > :s AS free_too;
SELECT count(revenant.release(lease, token)) FROM revenant.leases WHERE lease LIKE 'scope%';

-- One in transaction scope ends with the transaction.
BEGIN;
SELECT revenant.acquire_xact('scope-x') AS x \gset
SAVEPOINT p;
SELECT revenant.release('scope-x', :x);
ROLLBACK TO p;
SELECT revenant.release('scope-x', 1);
SELECT revenant.renew('scope-x', :x, '1 h');
ROLLBACK;
SELECT leases, lease_rows, locks FROM mine;

SELECT revenant._lease_check();
/* ---- savepoints */

-- Acquired in one that is rolled back: free at once, also for this transaction.
BEGIN;
SAVEPOINT p;
SELECT revenant.acquire('scope-s') AS s1 \gset
SELECT revenant.acquire_xact('scope-x') AS x1 \gset
SELECT revenant.acquire('scope-t', ttl => '1 h') AS t1 \gset
ROLLBACK TO p;
SELECT revenant.is_current('scope-s', :s1), revenant.is_current('scope-x', :x1), revenant.is_current('scope-t', :t1);
SELECT leases, lease_rows, locks FROM mine;
SELECT revenant.try_acquire('scope-s') AS s \gset
SELECT revenant.try_acquire_xact('scope-x') AS x \gset
SELECT revenant.try_acquire('scope-t', ttl => '1 h') AS t \gset
SELECT :s > :s1 AND :x > :x1 AND :t > :t1 AS grown;
COMMIT;
SELECT leases, lease_rows, locks FROM mine;

-- Released in one that is rolled back: still held, and released all the same afterwards.
BEGIN;
SAVEPOINT p;
SELECT revenant.release('scope-s', :s), revenant.release('scope-t', :t);
ROLLBACK TO p;
SELECT revenant.is_current('scope-s', :s), revenant.is_current('scope-t', :t);
SELECT revenant.try_acquire('scope-s') = :s AS again;
COMMIT;
SELECT leases, lease_rows, locks FROM mine;
BEGIN;
SAVEPOINT p;
SELECT revenant.release('scope-s', :s), revenant.release('scope-t', :t);
ROLLBACK TO p;
SELECT revenant.release('scope-s', :s), revenant.release('scope-t', :t);
COMMIT;
SELECT leases, lease_rows, locks FROM mine;

-- Both in savepoints that are released, within one that is rolled back.
SELECT revenant.acquire('scope-s') AS s \gset
BEGIN;
SAVEPOINT p1;
SAVEPOINT p2;
SELECT revenant.acquire('scope-t', ttl => '1 h') AS t \gset
SELECT revenant.release('scope-s', :s);
RELEASE p2;
SELECT revenant.is_current('scope-t', :t), revenant.is_current('scope-s', :s);
ROLLBACK TO p1;
SELECT revenant.is_current('scope-t', :t), revenant.is_current('scope-s', :s);
COMMIT;
SELECT leases, lease_rows, locks FROM mine;

-- Asked again in a savepoint: the first hold is not undone with it.
BEGIN;
SELECT revenant.acquire_xact('scope-x') AS x \gset
SELECT revenant.acquire('scope-s2') AS s2 \gset
SAVEPOINT p;
SELECT revenant.acquire('scope-s') = :s AS same_s, revenant.acquire_xact('scope-x') = :x AS same_x,
	revenant.acquire('scope-s2') = :s2 AS same_s2;
ROLLBACK TO p;
SELECT revenant.is_current('scope-s', :s), revenant.is_current('scope-x', :x), revenant.is_current('scope-s2', :s2);
COMMIT;
SELECT leases, lease_rows, locks FROM mine;
SELECT revenant.release('scope-s', :s), revenant.release('scope-s2', :s2);

-- Acquired before a savepoint, released in it, and that is rolled back.
BEGIN;
SELECT revenant.acquire('scope-s') AS s \gset
SELECT revenant.acquire('scope-t', ttl => '1 h') AS t \gset
SAVEPOINT p;
SELECT revenant.release('scope-s', :s), revenant.release('scope-t', :t);
ROLLBACK TO p;
COMMIT;
SELECT leases, lease_rows, locks FROM mine;

-- A fence in a savepoint that is rolled back is forgotten, one that came before it is not.
SELECT revenant.guard_table('scopes', 'scope-t');
BEGIN;
SAVEPOINT p;
SELECT revenant.fence('scope-t', :t);
INSERT INTO scopes VALUES (1);
ROLLBACK TO p;
INSERT INTO scopes VALUES (2);
ROLLBACK;
BEGIN;
SELECT revenant.fence('scope-t', :t);
SAVEPOINT p;
SELECT revenant.fence('scope-t', :t);
ROLLBACK TO p;
INSERT INTO scopes VALUES (3);
COMMIT;
BEGIN;
SAVEPOINT p;
SELECT revenant.fence('scope-t', :t);
RELEASE p;
INSERT INTO scopes VALUES (4);
COMMIT;
-- It ends with the transaction.
INSERT INTO scopes VALUES (5);
SELECT a FROM scopes ORDER BY a;
SELECT revenant.unguard_table('scopes');
SELECT revenant.release('scope-s', :s), revenant.release('scope-t', :t);

SELECT revenant._lease_check();
/* ---- exception blocks */

DO $$
DECLARE
	s bigint;
	x bigint;
	t bigint;
	again bigint;
BEGIN
	BEGIN
		s := revenant.acquire('scope-s');
		x := revenant.acquire_xact('scope-x');
		t := revenant.acquire('scope-t', ttl => '1 h');
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN
		NULL;
	END;
	ASSERT NOT revenant.is_current('scope-s', s) AND NOT revenant.is_current('scope-x', x)
		AND NOT revenant.is_current('scope-t', t), 'acquired in a block that failed';
	again := revenant.acquire('scope-s');
	ASSERT again > t, 'tokens only grow';
	t := revenant.acquire('scope-t', ttl => '1 h');
	BEGIN
		ASSERT revenant.release('scope-s', again) AND revenant.release('scope-t', t);
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN
		NULL;
	END;
	ASSERT revenant.is_current('scope-s', again) AND revenant.is_current('scope-t', t), 'released in a block that failed';
	BEGIN
		PERFORM revenant.fence('scope-t', 1);
		RAISE EXCEPTION 'fenced by a wrong token';
	EXCEPTION WHEN SQLSTATE 'RV001' THEN
		NULL;
	END;
	ASSERT revenant.release('scope-s', again) AND revenant.release('scope-t', t);
END
$$;
SELECT leases, lease_rows, locks FROM mine;

-- A procedure that commits in the middle: transaction scope ends there, session scope does not.
DO $$
DECLARE
	s bigint := revenant.acquire('scope-s');
	x bigint := revenant.acquire_xact('scope-x');
BEGIN
	COMMIT;
	ASSERT NOT revenant.is_current('scope-x', x), 'transaction scope outlived its transaction';
	ASSERT revenant.is_current('scope-s', s), 'session scope ended with a transaction';
	ASSERT revenant.try_acquire('scope-s') = s;
	x := revenant.acquire_xact('scope-x');
	ROLLBACK;
	ASSERT NOT revenant.is_current('scope-x', x), 'transaction scope outlived its transaction';
	ASSERT revenant.release('scope-s', s);
END
$$;
SELECT leases, lease_rows, locks FROM mine;

SELECT revenant._lease_check();
/* ---- portals, loops and parallel queries */

-- A cursor takes a lease when it is fetched; closing it gives nothing back.
BEGIN;
DECLARE c CURSOR FOR SELECT revenant.try_acquire_xact('portal-' || i) IS NOT NULL AS held FROM generate_series(1, 3) AS i;
FETCH 2 FROM c;
SELECT count(*) FROM revenant.leases WHERE lease LIKE 'portal-%';
CLOSE c;
SELECT count(*) FROM revenant.leases WHERE lease LIKE 'portal-%';
SELECT revenant._lease_check();
COMMIT;
SELECT count(*) FROM revenant.leases WHERE lease LIKE 'portal-%';
-- One that is held on is fetched to its end at commit.
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT revenant.try_acquire('portal-' || i) AS token FROM generate_series(1, 3) AS i;
FETCH 1 FROM c \gset
COMMIT;
SELECT count(*) FROM revenant.leases WHERE lease LIKE 'portal-%';
CLOSE c;
SELECT revenant._lease_check();
SELECT count(*) FILTER (WHERE revenant.release(lease, token)) AS released FROM revenant.leases WHERE lease LIKE 'portal-%';
SELECT count(*) FROM revenant.leases WHERE lease LIKE 'portal-%';
-- A cursor in a savepoint that is rolled back, one of which was fetched before it.
BEGIN;
DECLARE c CURSOR FOR SELECT revenant.try_acquire_xact('portal-' || i) IS NOT NULL AS held FROM generate_series(1, 3) AS i;
FETCH 1 FROM c;
SAVEPOINT a;
FETCH 1 FROM c;
ROLLBACK TO a;
SELECT lease FROM revenant.leases WHERE lease LIKE 'portal-%' ORDER BY lease;
SELECT revenant._lease_check();
COMMIT;
-- A loop with exception blocks and one with commits.
DO $$
BEGIN
	FOR i IN 1 .. 20 LOOP
		BEGIN
			PERFORM revenant.try_acquire('loop-' || i);
			PERFORM revenant.try_acquire_xact('loop-x' || i);
			IF i % 2 = 0 THEN RAISE division_by_zero; END IF;
		EXCEPTION WHEN division_by_zero THEN NULL;
		END;
	END LOOP;
END $$;
SELECT count(*), bool_and(substr(lease, 6)::int % 2 = 1) AS odd FROM revenant.leases WHERE lease LIKE 'loop-%';
SELECT revenant._lease_check();
DO $$
BEGIN
	FOR i IN 1 .. 20 LOOP
		PERFORM revenant.release('loop-' || i, revenant.held_token('loop-' || i));
		IF i % 3 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
	END LOOP;
END $$;
SELECT string_agg(lease, ' ' ORDER BY lease) FROM revenant.leases WHERE lease LIKE 'loop-%';
SELECT revenant._lease_check();
SELECT count(*) FILTER (WHERE revenant.release(lease, token)) AS released FROM revenant.leases WHERE lease LIKE 'loop-%';
-- Beside a parallel query a lease is held as ever; within one none is acquired, whatever a function says of itself.
CREATE TABLE parallel_rows AS SELECT i FROM generate_series(1, 10000) AS i;
ALTER TABLE parallel_rows SET (parallel_workers = 2);
CREATE FUNCTION pg_temp.claims_to_be_safe() RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE AS $$ BEGIN RETURN revenant.try_acquire('parallel'); END $$;
BEGIN;
SET LOCAL parallel_setup_cost = 0;
SET LOCAL parallel_tuple_cost = 0;
SET LOCAL min_parallel_table_scan_size = 0;
SELECT revenant.try_acquire_xact('parallel') AS token \gset
SELECT count(*) FROM parallel_rows WHERE i % 2 = 0;
SELECT revenant.is_current('parallel', :token);
SELECT revenant._lease_check();
SELECT count(*) FROM parallel_rows WHERE pg_temp.claims_to_be_safe() = i;
ROLLBACK;
SELECT count(*) FROM revenant.leases WHERE lease = 'parallel';
DROP TABLE parallel_rows;

SELECT revenant._lease_check();
/* ---- what drops a session's locks ends its leases */

SELECT revenant.acquire('scope-s') AS s \gset
SELECT revenant.acquire('scope-t', ttl => '1 h') AS t \gset
DISCARD ALL;
-- (the temporary view is gone, too)
SELECT revenant.is_current('scope-s', :s), revenant.release('scope-s', :s), revenant.renew('scope-s', :s),
	revenant.is_current('scope-t', :t);
SELECT revenant.fence('scope-s', :s);
SELECT lease, scope FROM revenant.leases WHERE lease LIKE 'scope%' ORDER BY lease;
SELECT revenant.acquire('scope-s') AS s2 \gset
SELECT :s2 > :s AS taken_again, revenant.is_current('scope-s', :s) AS old, revenant.is_current('scope-s', :s2) AS new;
SELECT pg_advisory_unlock_all();
SELECT revenant.is_current('scope-s', :s2), revenant.release('scope-s', :s2), revenant.is_current('scope-t', :t);

-- In the middle of a transaction that acquired: not held after its commit.
BEGIN;
SELECT revenant.acquire('scope-s') AS s \gset
SELECT revenant.acquire_xact('scope-x') AS x \gset
SELECT pg_advisory_unlock_all();
SELECT revenant.is_current('scope-s', :s), revenant.is_current('scope-x', :x) AS of_the_transaction;
COMMIT;
SELECT revenant.is_current('scope-s', :s);
SELECT lease, scope FROM revenant.leases WHERE lease LIKE 'scope%' ORDER BY lease;

-- In the middle of a guarded transaction: the guard does not believe the session any more.
SELECT revenant.guard_table('scopes', 'scope-s');
SELECT revenant.acquire('scope-s') AS s \gset
BEGIN;
INSERT INTO scopes VALUES (6);
SELECT pg_advisory_unlock_all();
INSERT INTO scopes VALUES (7);
ROLLBACK;
BEGIN;
SELECT revenant.acquire('scope-s') AS s \gset
INSERT INTO scopes VALUES (6);
SELECT pg_advisory_unlock_all();
INSERT INTO scopes VALUES (7);
ROLLBACK;
-- One that called fence() keeps it to its end, and so does transaction scope.
SELECT revenant.acquire('scope-s') AS s \gset
BEGIN;
SELECT revenant.fence('scope-s', :s);
SELECT pg_advisory_unlock_all();
INSERT INTO scopes VALUES (8);
COMMIT;
BEGIN;
SELECT revenant.acquire_xact('scope-s') > :s AS taken;
-- What this very session had before by session scope is not confused with it.
SELECT revenant.is_current('scope-s', :s) AS old, revenant.release('scope-s', :s), revenant.try_acquire('scope-s') IS NULL AS busy;
SELECT pg_advisory_unlock_all();
INSERT INTO scopes VALUES (9);
COMMIT;
SELECT a FROM scopes ORDER BY a;
SELECT revenant.unguard_table('scopes');

SELECT revenant._lease_check();
/* ---- a session's end */

SELECT revenant.acquire('scope-s') AS s \gset
\c -
\set VERBOSITY sqlstate
SELECT revenant.is_current('scope-t', :t) AS ttl;
SELECT revenant.acquire('scope-s') > :s AS free_again;
SELECT revenant.is_current('scope-s', :s) AS old;
SELECT pg_advisory_unlock_all();

SELECT revenant._lease_check();
/* ---- PREPARE TRANSACTION */

SELECT revenant.acquire('scope-s') AS s \gset
SELECT revenant.guard_table('scopes', 'scope-s');
BEGIN;
SELECT revenant.acquire('scope-p') IS NOT NULL AS got;
PREPARE TRANSACTION 'scope';
BEGIN;
SELECT revenant.acquire_xact('scope-p') IS NOT NULL AS got;
PREPARE TRANSACTION 'scope';
BEGIN;
SELECT revenant.acquire('scope-p', ttl => '1 h') IS NOT NULL AS got;
PREPARE TRANSACTION 'scope';
BEGIN;
SELECT revenant.release('scope-s', :s);
PREPARE TRANSACTION 'scope';
BEGIN;
SELECT revenant.release('scope-t', :t);
PREPARE TRANSACTION 'scope';
BEGIN;
SELECT revenant.renew('scope-t', :t, '2 h') IS NOT NULL AS renewed;
PREPARE TRANSACTION 'scope';
BEGIN;
SELECT revenant.fence('scope-t', :t);
PREPARE TRANSACTION 'scope';
BEGIN;
INSERT INTO scopes VALUES (10);
PREPARE TRANSACTION 'scope';
-- Nothing of that stayed, and nothing else was lost.
SELECT revenant.is_current('scope-s', :s), revenant.is_current('scope-t', :t), revenant.try_acquire('scope-p') IS NOT NULL AS free;
SELECT count(revenant.release(lease, token)) FROM revenant.leases WHERE lease = 'scope-p';
SELECT count(*) FROM pg_prepared_xacts;
-- What only looked, and a savepoint that was rolled back, do not count.
BEGIN;
SELECT revenant.is_current('scope-t', :t), revenant.try_acquire('scope-t', ttl => '1 h') IS NULL AS busy, revenant.release('scope-t', 1);
SAVEPOINT p;
SELECT revenant.acquire('scope-p', ttl => '1 h') IS NOT NULL AS got;
ROLLBACK TO p;
PREPARE TRANSACTION 'scope';
ROLLBACK PREPARED 'scope';
SELECT a FROM scopes ORDER BY a;
SELECT revenant.unguard_table('scopes');
SELECT revenant.release('scope-s', :s), revenant.release('scope-t', :t);

SELECT revenant._lease_check();
/* ---- limits: a clean error long before the lock table is full */

SELECT count(revenant.try_acquire_xact('scope-' || i)) FROM generate_series(1, 1000) AS i;
SELECT count(revenant.try_acquire_xact('scope-' || i)) FROM generate_series(1, 1001) AS i;
BEGIN;
SELECT count(revenant.try_acquire_xact('scope-' || i)) FROM generate_series(1, 1000) AS i;
SAVEPOINT p;
SELECT revenant.try_acquire_xact('scope-7') IS NOT NULL AS again;
ROLLBACK TO p;
SELECT revenant.try_acquire('scope-1001');
ROLLBACK;
SELECT count(revenant.try_acquire('scope-' || i)) FROM generate_series(1, 1000) AS i;
SELECT revenant.try_acquire('scope-1001');
-- Asking again takes nothing more, so no limit is in its way.
SELECT count(revenant.try_acquire('scope-' || i)) AS again FROM generate_series(1, 999) AS i;
SELECT count(*) FROM revenant.leases WHERE lease LIKE 'scope%' AND scope = 'session';
SELECT count(*) FILTER (WHERE revenant.release(lease, token)) FROM revenant.leases WHERE lease = 'scope-7';
SELECT count(revenant.try_acquire('scope-1001'));
SELECT count(*) FILTER (WHERE revenant.release(lease, token)) FROM revenant.leases WHERE lease LIKE 'scope%';

SELECT count(*) AS leases FROM revenant.leases WHERE lease LIKE 'scope%';
SELECT count(*) AS locks FROM pg_locks WHERE locktype = 'userlock' AND pid = pg_backend_pid();
DROP TABLE scopes;
