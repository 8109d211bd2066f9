-- Shared holders: each has a token of its own, none of them can be mistaken for an exclusive one.
-- (Beside each other, in several sessions: specs/shared_beside.)
\set VERBOSITY sqlstate

CREATE TEMP VIEW mine AS
SELECT
	(SELECT string_agg(l.lease || ' ' || l.scope || CASE WHEN l.shared THEN ' shared' ELSE '' END, ', ' ORDER BY l.lease, l.token)
	 FROM revenant.leases AS l WHERE l.lease LIKE 'share%') AS leases,
	(SELECT string_agg(r.name, ', ' ORDER BY r.name) FROM revenant.lease AS r WHERE r.name LIKE 'share%') AS lease_rows,
	(SELECT count(*) FROM pg_catalog.pg_locks AS k
	 WHERE k.locktype = 'userlock' AND k.pid = pg_catalog.pg_backend_pid()) AS locks;

/* ---- one holder */

SELECT revenant.try_acquire('share-s', holder => 'me', metadata => '{"a": 1}', shared => true) AS s \gset
SELECT leases, lease_rows, locks FROM mine;
SELECT lease, scope, token = :s AS token, holder, pid = pg_backend_pid() AS pid, shared, bound, ttl, deadline, remaining, metadata
FROM revenant.leases WHERE lease = 'share-s';
SELECT revenant.is_current('share-s', :s), revenant.held_token('share-s') = :s AS held, revenant.renew('share-s', :s);
-- Asking again for the same does not stack.
SELECT revenant.try_acquire('share-s', shared => true) = :s AS again, revenant.acquire('share-s', shared => true) = :s AS waiting,
	revenant.try_acquire_all('{share-s}', shared => true) = :s AS as_a_set;
SELECT leases, lease_rows, locks FROM mine;
SELECT revenant.release('share-s', :s), revenant.release('share-s', :s) AS twice, revenant.is_current('share-s', :s), revenant.held_token('share-s');
SELECT leases, lease_rows, locks FROM mine;

-- In transaction scope.
BEGIN;
SELECT revenant.try_acquire_xact('share-x', shared => true) AS x \gset
SELECT revenant.acquire_xact('share-x', shared => true) = :x AS again, revenant.is_current('share-x', :x), revenant.held_token('share-x') = :x AS held;
SELECT leases, lease_rows FROM mine;
SELECT revenant.release('share-x', :x);
ROLLBACK;
SELECT revenant.is_current('share-x', :x), revenant.held_token('share-x');
SELECT leases, lease_rows, locks FROM mine;

SELECT revenant._lease_check();
/* ---- the other kind of hold: busy, or it would wait for itself */

SELECT revenant.acquire('share-s', shared => true) AS s \gset
SELECT revenant.try_acquire('share-s') IS NULL AS exclusive, revenant.try_acquire_xact('share-s') IS NULL AS xact,
	revenant.try_acquire('share-s', ttl => '1 h') IS NULL AS ttl, revenant.try_acquire_xact('share-s', shared => true) IS NULL AS shared_xact,
	(revenant.claim('share-s', 'me')).is_leader AS claim;
SELECT revenant.acquire('share-s');
SELECT revenant.acquire('share-s', wait => '1 ms');
SELECT revenant.acquire_xact('share-s');
SELECT revenant.acquire_xact('share-s', shared => true);
SELECT revenant.acquire('share-s', ttl => '1 h');
SELECT revenant.try_acquire_all('{share-s,share-t}', shared => true);
SELECT revenant.is_current('share-s', :s), revenant.try_acquire('share-s', shared => true) = :s AS still_held;
SELECT leases, lease_rows, locks FROM mine;
SELECT revenant.release('share-s', :s);
SELECT revenant.acquire('share-s') AS s \gset
SELECT revenant.try_acquire('share-s', shared => true) IS NULL AS shared, revenant.try_acquire_xact('share-s', shared => true) IS NULL AS shared_xact;
SELECT revenant.acquire('share-s', shared => true);
SELECT shared FROM revenant.leases WHERE lease = 'share-s';
SELECT revenant.release('share-s', :s);
SELECT leases, lease_rows, locks FROM mine;

SELECT revenant._lease_check();
/* ---- with a ttl there is none */

SELECT revenant.try_acquire('share-t', ttl => '1 h', shared => true);
SELECT revenant.acquire('share-t', ttl => '1 h', shared => true);
SELECT revenant.try_acquire_all('{share-t}', ttl => '1 h', shared => true);
CALL revenant.await_lease('share-t', ttl => '1 h', shared => true);
SELECT revenant.try_acquire('share-t', shared => NULL);
SELECT revenant.try_acquire_xact('share-t', shared => NULL);
SELECT leases, lease_rows, locks FROM mine;
-- A ttl holder excludes shared ones, and its end makes room for them.
SELECT revenant.acquire('share-t', ttl => '1 h') AS t \gset
SELECT revenant.try_acquire('share-t', shared => true) IS NULL AS busy, revenant.acquire('share-t', shared => true, wait => '1 ms') IS NULL AS busy_in_time;
SELECT revenant.release('share-t', :t);
SELECT revenant.acquire('share-t', ttl => '100 ms') AS t \gset
SELECT revenant.acquire('share-t', shared => true, wait => '1 min') AS s \gset
SELECT :s > :t AS taken_over, revenant.is_current('share-t', :t), revenant.is_current('share-t', :s);
SELECT leases, lease_rows, locks FROM mine;
SELECT revenant.release('share-t', :s);

SELECT revenant._lease_check();
/* ---- release */

SELECT revenant.acquire('share-s', shared => true) AS s \gset
SELECT revenant.release('share-s', :s, hold_off => '1 s');
SELECT revenant.release('share-s', :s - 1) AS another_token, revenant.is_current('share-s', :s);
SELECT revenant.release('share-s', :s, hold_off => '0');
SELECT leases, lease_rows, locks FROM mine;

SELECT revenant._lease_check();
/* ---- fence and guard: a shared holder may fence, it is not a writer by itself */

CREATE TABLE share_guarded (a int);
SELECT revenant.guard_table('share_guarded', 'share-s');
SELECT revenant.acquire('share-s', shared => true) AS s \gset
INSERT INTO share_guarded VALUES (1);
BEGIN;
SELECT revenant.fence('share-s', :s);
INSERT INTO share_guarded VALUES (2);
SELECT fenced FROM revenant.leases WHERE lease = 'share-s';
COMMIT;
SELECT revenant.fence('share-s', :s - 1);
SELECT revenant.release('share-s', :s);
SELECT revenant.fence('share-s', :s);
BEGIN;
SELECT revenant.acquire_xact('share-s', shared => true) AS x \gset
SAVEPOINT p;
INSERT INTO share_guarded VALUES (3);
ROLLBACK TO p;
SELECT revenant.fence('share-s', :x);
INSERT INTO share_guarded VALUES (4);
COMMIT;
SELECT a FROM share_guarded ORDER BY a;
DROP TABLE share_guarded;
SELECT leases, lease_rows, locks FROM mine;

SELECT revenant._lease_check();
/* ---- transactions and savepoints */

BEGIN;
SELECT revenant.acquire('share-s', shared => true) AS s1 \gset
ROLLBACK;
SELECT revenant.is_current('share-s', :s1), revenant.held_token('share-s'), revenant.release('share-s', :s1);
SELECT leases, lease_rows, locks FROM mine;
BEGIN;
SAVEPOINT p;
SELECT revenant.acquire('share-s', shared => true) AS s1 \gset
SELECT revenant.acquire_xact('share-x', shared => true) AS x1 \gset
ROLLBACK TO p;
SELECT revenant.is_current('share-s', :s1), revenant.is_current('share-x', :x1), revenant.held_token('share-s'), revenant.held_token('share-x');
SELECT leases, lease_rows, locks FROM mine;
SELECT revenant.acquire('share-s', shared => true) AS s \gset
SELECT :s > :s1 AS grown;
COMMIT;
SELECT revenant.is_current('share-s', :s);
BEGIN;
SELECT revenant.release('share-s', :s);
SELECT revenant.is_current('share-s', :s), revenant.held_token('share-s');
SAVEPOINT p;
SELECT revenant.acquire('share-s', shared => true);
ROLLBACK TO p;
ROLLBACK;
SELECT revenant.is_current('share-s', :s), revenant.held_token('share-s') = :s AS held;
BEGIN;
SAVEPOINT p;
SELECT revenant.release('share-s', :s);
ROLLBACK TO p;
SELECT revenant.release('share-s', :s);
COMMIT;
SELECT leases, lease_rows, locks FROM mine;
BEGIN;
SELECT revenant.acquire('share-s', shared => true) AS s \gset
SELECT revenant.release('share-s', :s);
COMMIT;
SELECT leases, lease_rows, locks FROM mine;
BEGIN;
SELECT revenant.acquire('share-s', shared => true) IS NOT NULL AS got;
PREPARE TRANSACTION 'share';

SELECT revenant._lease_check();
/* ---- sets of shared holds; the session's end */

SELECT revenant.acquire_all('{share-b,share-a}', shared => true) AS s \gset
SELECT leases, lease_rows, locks FROM mine;
SELECT revenant.try_acquire_all('{share-a,share-b}', shared => true) = :s AS again, revenant.try_acquire_all('{share-a,share-b}') IS NULL AS exclusive;
SELECT revenant.release_all('{share-a,share-b}', :s);
SELECT revenant.acquire('share-s', shared => true) AS s \gset
SELECT pg_advisory_unlock_all();
SELECT revenant.is_current('share-s', :s), revenant.held_token('share-s'), revenant.release('share-s', :s);
SELECT revenant.acquire('share-s') > :s AS exclusive;
SELECT revenant.release('share-s', revenant.held_token('share-s'));
SELECT revenant.acquire('share-s', shared => true) AS s \gset
DISCARD ALL;
SELECT revenant.is_current('share-s', :s), revenant.held_token('share-s');
SELECT revenant.acquire('share-s', shared => true) AS s \gset
\c -
\set VERBOSITY sqlstate
SELECT revenant.acquire('share-s', wait => '1 min') > :s AS exclusive;
SELECT revenant.is_current('share-s', :s), revenant.release('share-s', revenant.held_token('share-s'));
-- Many of one session count against its limit as any others.
SELECT count(revenant.acquire('share-' || i, shared => true)) FROM generate_series(1, 1000) AS i;
SELECT revenant.try_acquire('share-1001', shared => true);
SELECT count(*) AS leases, count(DISTINCT token) AS tokens FROM revenant.leases WHERE lease LIKE 'share%' AND shared;
SELECT count(*) FILTER (WHERE revenant.release(lease, token)) AS released FROM revenant.leases WHERE lease LIKE 'share%';
SELECT count(*) FROM revenant.leases WHERE lease LIKE 'share%';
SELECT count(*) AS locks FROM pg_locks WHERE locktype = 'userlock' AND pid = pg_backend_pid();
