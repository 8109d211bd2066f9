-- A set of names is all or nothing, by one token, in whatever order it is written; and it is never mixed up with
-- another set that has names in common.
\set VERBOSITY sqlstate

CREATE TEMP VIEW mine AS
SELECT
	(SELECT string_agg(l.lease || ' ' || l.scope, ', ' ORDER BY l.lease)
	 FROM revenant.leases AS l WHERE l.lease LIKE 'set%' OR l.lease = '*') AS leases,
	(SELECT count(DISTINCT l.token) FROM revenant.leases AS l WHERE l.lease LIKE 'set%' OR l.lease = '*') AS tokens,
	(SELECT string_agg(r.name, ', ' ORDER BY r.name) FROM revenant.lease AS r WHERE r.name LIKE 'set%' OR r.name = '*') AS lease_rows,
	(SELECT count(*) FROM pg_catalog.pg_locks AS k
	 WHERE k.locktype = 'userlock' AND k.pid = pg_catalog.pg_backend_pid()) AS locks;

/* ---- order, duplicates, asking again */

SELECT revenant.try_acquire_all('{set-b,set-a,set-c,set-a}') AS s \gset
SELECT leases, tokens, lease_rows, locks FROM mine;
SELECT revenant.is_current('set-a', :s) AS a, revenant.is_current('set-b', :s) AS b, revenant.is_current('set-c', :s) AS c,
	revenant.held_token('set-a') = :s AS held_a, revenant.held_token('set-c') = :s AS held_c;
-- The same set in any order is the same hold, also for who would wait.
SELECT revenant.try_acquire_all('{set-a,set-b,set-c}') = :s AS sorted, revenant.try_acquire_all('{set-c,set-c,set-b,set-a}') = :s AS backward,
	revenant.acquire_all('{set-b,set-c,set-a}') = :s AS waiting, revenant.acquire_all('{set-b,set-c,set-a}', wait => '0') = :s AS no_wait;
SELECT leases, tokens, lease_rows, locks FROM mine;

SELECT revenant._lease_check();
/* ---- a set that only overlaps */

SELECT revenant.try_acquire_all('{set-a,set-b}');
SELECT revenant.try_acquire_all('{set-a,set-b,set-c,set-d}');
SELECT revenant.try_acquire_all('{set-c,set-d}');
SELECT revenant.acquire_all('{set-d,set-c}');
SELECT revenant.acquire_all('{set-d,set-c}', wait => '0');
SELECT revenant.try_acquire_all_xact('{set-d,set-c}');
SELECT revenant.try_acquire_all('{set-d,set-c}', ttl => '1 h');
-- One of its names alone is another set, too.
SELECT revenant.try_acquire('set-b');
SELECT revenant.acquire('set-b');
SELECT revenant.try_acquire_all('{set-b}');
-- Nothing of these stayed, and nothing was lost.
SELECT leases, tokens, lease_rows, locks FROM mine;
SELECT revenant.try_acquire_all('{set-a,set-b,set-c}') = :s AS still_held;
-- The same set in another scope: busy, or would wait for itself.
SELECT revenant.try_acquire_all('{set-a,set-b,set-c}', ttl => '1 h') IS NULL AS ttl, revenant.try_acquire_all_xact('{set-a,set-b,set-c}') IS NULL AS xact;
SELECT revenant.acquire_all('{set-a,set-b,set-c}', ttl => '1 h');
SELECT revenant.acquire_all_xact('{set-a,set-b,set-c}');

-- A part of it may be released; the rest is then another set.
SELECT revenant.release('set-b', :s);
SELECT leases, tokens, locks FROM mine;
SELECT revenant.is_current('set-a', :s) AS a, revenant.is_current('set-b', :s) AS b;
SELECT revenant.try_acquire_all('{set-a,set-b,set-c}');
SELECT revenant.release_all('{set-a,set-b,set-c,set-c,set-z}', :s) AS released;
SELECT revenant.release_all('{set-a,set-b,set-c}', :s) AS twice;
SELECT leases, tokens, lease_rows, locks FROM mine;

-- Single names that are held one by one are no set.
SELECT revenant.acquire('set-a') AS a \gset
SELECT revenant.acquire('set-b') > :a AS another_token;
SELECT revenant.try_acquire_all('{set-a,set-b}');
SELECT revenant.try_acquire_all('{set-a}') = :a AS one_name_is_the_name;
SELECT revenant.release_all('{set-a,set-b}', :a) AS only_the_one;
SELECT revenant.release('set-b', revenant.held_token('set-b'));
SELECT leases, tokens, lease_rows, locks FROM mine;

SELECT revenant._lease_check();
/* ---- the empty set */

SELECT revenant.try_acquire_all('{}') AS s \gset
SELECT leases, tokens, lease_rows, locks FROM mine;
SELECT revenant.is_current('*', :s), revenant.try_acquire('*') = :s AS by_name, revenant.try_acquire_all('{*}') = :s AS by_set,
	revenant.held_token('*') = :s AS held;
-- It excludes itself, and no other name.
SELECT revenant.try_acquire_all('{set-a}') > :s AS another;
SELECT revenant.release_all('{set-a}', revenant.held_token('set-a'));
SELECT revenant.release_all('{}', :s) AS released;
SELECT revenant.acquire_all('{}', ttl => '1 h') AS t \gset
SELECT revenant.try_acquire_all('{}', ttl => '1 h') IS NULL AS busy, revenant.try_acquire('*') IS NULL AS busy_by_name;
SELECT revenant.renew_all('{}', :t) IS NOT NULL AS renewed, revenant.release('*', :t);
SELECT leases, tokens, lease_rows, locks FROM mine;

SELECT revenant._lease_check();
/* ---- arguments */

SELECT revenant.try_acquire_all(NULL);
SELECT revenant.acquire_all(NULL);
SELECT revenant.try_acquire_all_xact(NULL);
SELECT revenant.acquire_all_xact(NULL);
SELECT revenant.try_acquire_all('{set-a,NULL}');
SELECT revenant.acquire_all_xact('{NULL}');
SELECT revenant.try_acquire_all('{set-a,""}');
SELECT revenant.try_acquire_all(ARRAY['set-a', repeat('x', 513)]);
SELECT revenant.try_acquire_all('{set-a,task/nobody}');
SELECT revenant.try_acquire_all('{set-a}', ttl => '99 ms');
SELECT revenant.try_acquire_all('{set-a}', shared => NULL);
SELECT revenant.acquire_all('{set-a}', wait => '-1 ms');
SELECT revenant.renew_all(NULL, 1);
SELECT revenant.release_all(NULL, 1);
SELECT revenant.renew_all('{set-a,NULL}', 1);
SELECT revenant.release_all('{set-a,NULL}', 1);
SELECT revenant.renew_all('{set-a}', 1, '99 ms');
-- A token that is null is a lost one.
SELECT revenant.renew_all('{set-a}', NULL), revenant.release_all('{set-a}', NULL), revenant.renew_all('{set-a}', 1), revenant.release_all('{set-a}', 1);
SELECT leases, tokens, lease_rows, locks FROM mine;

SELECT revenant._lease_check();
/* ---- how many */

SELECT array_agg('set-' || i) AS thousand FROM generate_series(1, 1000) AS i \gset
SELECT revenant.try_acquire_all(array_append(:'thousand', 'set-1001'));
SELECT revenant.acquire_all_xact(array_append(:'thousand', 'set-1001'));
SELECT revenant.renew_all(array_append(:'thousand', 'set-1001'), 1);
SELECT revenant.release_all(array_append(:'thousand', 'set-1001'), 1);
SELECT leases, tokens, lease_rows, locks FROM mine;
SELECT revenant.try_acquire_all(:'thousand') AS s \gset
SELECT count(*), min(token) = :s AND max(token) = :s AS one_token FROM revenant.leases WHERE lease LIKE 'set%';
SELECT revenant.release_all(:'thousand', :s) AS released;
SELECT revenant.acquire_all_xact(:'thousand') > :s AS xact;
SELECT revenant.try_acquire_all(:'thousand', ttl => '1 h') AS t \gset
SELECT count(*) AS lease_rows FROM revenant.lease WHERE name LIKE 'set%';
SELECT revenant.release_all(:'thousand', :t) AS released;
SELECT leases, tokens, lease_rows, locks FROM mine;

SELECT revenant._lease_check();
/* ---- all or nothing */

SELECT revenant.acquire('set-c', ttl => '1 h') AS t \gset
SELECT revenant.try_acquire_all('{set-a,set-b,set-c,set-d}') IS NULL AS session,
	revenant.try_acquire_all_xact('{set-d,set-c,set-b,set-a}') IS NULL AS xact,
	revenant.try_acquire_all('{set-b,set-a,set-d,set-c}', ttl => '1 h') IS NULL AS ttl,
	revenant.acquire_all('{set-a,set-b,set-c,set-d}', wait => '1 ms') IS NULL AS in_time,
	revenant.acquire_all_xact('{set-a,set-b,set-c,set-d}', wait => '1 ms') IS NULL AS xact_in_time;
SELECT leases, tokens, lease_rows, locks FROM mine;
-- A time over in the middle leaves nothing either, nor does a cancel.
SET lock_timeout = '5 ms';
SELECT revenant.acquire_all('{set-a,set-b,set-c,set-d}');
SELECT leases, tokens, lease_rows, locks FROM mine;
BEGIN;
SAVEPOINT p;
SELECT revenant.acquire_all_xact('{set-a,set-b,set-c,set-d}');
ROLLBACK TO p;
SELECT leases, tokens, lease_rows, locks FROM mine;
SELECT revenant.try_acquire_all_xact('{set-a,set-b,set-d}') IS NOT NULL AS the_others_are_free;
COMMIT;
RESET lock_timeout;
SET statement_timeout = '20 ms';
SELECT revenant.acquire_all('{set-a,set-b,set-c,set-d}');
RESET statement_timeout;
SELECT leases, tokens, lease_rows, locks FROM mine;
SELECT revenant.release('set-c', :t);

SELECT revenant._lease_check();
/* ---- ttl */

SELECT revenant.acquire_all('{set-b,set-a,set-b}', ttl => '1 h', holder => 'me', metadata => '{"a": 1}') AS t \gset
SELECT leases, tokens, lease_rows, locks FROM mine;
SELECT lease, holder, ttl, metadata, token = :t AS same FROM revenant.leases WHERE lease LIKE 'set%' ORDER BY lease;
-- It belongs to no session: this one is told that it is busy like anybody else.
SELECT revenant.try_acquire_all('{set-a,set-b}', ttl => '1 h') IS NULL AS same_set, revenant.try_acquire_all('{set-b,set-c}', ttl => '1 h') IS NULL AS overlaps,
	revenant.try_acquire('set-a') IS NULL AS one;
SELECT leases, tokens, lease_rows, locks FROM mine;
SELECT revenant.held_token('set-a') AS ttl_is_no_sessions;
CREATE TABLE set_guarded (a int);
SELECT revenant.guard_table('set_guarded', 'set-b');
BEGIN;
SELECT revenant.fence('set-a', :t);
SAVEPOINT p;
INSERT INTO set_guarded VALUES (1);
ROLLBACK TO p;
SELECT revenant.fence('set-b', :t);
INSERT INTO set_guarded VALUES (2);
COMMIT;
SELECT a FROM set_guarded;
DROP TABLE set_guarded;

-- renew_all gives the earliest new deadline, and renews all of them.
SELECT revenant.renew_all('{set-a,set-b}', :t, '2 h') - now() BETWEEN '1 h 59 min' AND '2 h 1 min' AS renewed;
SELECT lease, ttl, remaining > '1 h 59 min' AS renewed FROM revenant.leases WHERE lease LIKE 'set%' ORDER BY lease;
SELECT revenant.renew('set-a', :t, '4 h') IS NOT NULL AS one_longer;
SELECT revenant.renew_all('{set-a,set-b}', :t) < now() + '3 h' AS earliest;
-- One is lost: NULL, and no other is renewed.
SELECT revenant.release('set-b', :t);
SELECT deadline AS before FROM revenant.leases WHERE lease = 'set-a' \gset
SELECT revenant.renew_all('{set-a,set-b}', :t, '9 h');
SELECT abs(extract(epoch FROM deadline - :'before')) < 60 AS unchanged, ttl FROM revenant.leases WHERE lease = 'set-a';
SELECT revenant.renew_all('{set-a,set-a}', :t) IS NOT NULL AS the_rest, revenant.release_all('{set-a,set-b}', :t) AS released;
SELECT leases, tokens, lease_rows, locks FROM mine;
-- Those of a session have no deadline.
SELECT revenant.acquire_all('{set-a,set-b}') AS s \gset
SELECT revenant.renew_all('{set-a,set-b}', :s), revenant.release_all('{set-a,set-b}', :s);
-- One whose time is over.
SELECT revenant.acquire_all('{set-a,set-b}', ttl => '100 ms') AS t \gset
SELECT revenant.renew('set-b', :t, '1 h') IS NOT NULL AS renewed;
SELECT revenant.acquire('set-a', wait => '1 min') > :t AS lapsed;
SELECT revenant.renew_all('{set-a,set-b}', :t), revenant.release_all('{set-a,set-b}', :t) AS released;
SELECT revenant.release('set-a', revenant.held_token('set-a'));
SELECT leases, tokens, lease_rows, locks FROM mine;

SELECT revenant._lease_check();
/* ---- transactions and savepoints */

BEGIN;
SELECT revenant.acquire_all_xact('{set-b,set-a}') AS x \gset
SELECT revenant.acquire_all_xact('{set-a,set-b,set-a}') = :x AS again, revenant.held_token('set-b') = :x AS held;
SELECT leases, tokens, lease_rows FROM mine;
SAVEPOINT p;
SELECT revenant.try_acquire_all_xact('{set-b,set-c}');
ROLLBACK TO p;
SELECT revenant.release_all('{set-a,set-b}', :x);
ROLLBACK TO p;
SELECT revenant.is_current('set-a', :x), revenant.is_current('set-b', :x);
COMMIT;
SELECT revenant.is_current('set-a', :x), revenant.is_current('set-b', :x);
SELECT leases, tokens, lease_rows, locks FROM mine;

BEGIN;
SELECT revenant.acquire_all('{set-a,set-b}') AS s \gset
SELECT revenant.acquire_all('{set-c,set-d}', ttl => '1 h') AS t \gset
ROLLBACK;
SELECT revenant.is_current('set-a', :s), revenant.is_current('set-c', :t), revenant.renew_all('{set-c,set-d}', :t), revenant.release_all('{set-a,set-b}', :s);
SELECT leases, tokens, lease_rows, locks FROM mine;

BEGIN;
SAVEPOINT p;
SELECT revenant.acquire_all('{set-a,set-b}') AS s1 \gset
SELECT revenant.acquire_all('{set-c,set-d}', ttl => '1 h') AS t1 \gset
ROLLBACK TO p;
SELECT leases, tokens, lease_rows, locks FROM mine;
SELECT revenant.acquire_all('{set-b,set-c}') AS s \gset
SELECT revenant.acquire_all('{set-d,set-a}', ttl => '1 h') AS t \gset
COMMIT;
SELECT leases, tokens, lease_rows, locks FROM mine;

-- Released, and rolled back.
BEGIN;
SELECT revenant.release_all('{set-b,set-c}', :s), revenant.release_all('{set-a,set-d}', :t);
SELECT revenant.is_current('set-b', :s), revenant.is_current('set-a', :t), revenant.renew_all('{set-a,set-d}', :t);
SAVEPOINT p;
SELECT revenant.try_acquire_all('{set-b,set-z}');
ROLLBACK TO p;
ROLLBACK;
SELECT leases, tokens, lease_rows, locks FROM mine;
BEGIN;
SAVEPOINT p;
SELECT revenant.release_all('{set-b,set-c}', :s), revenant.release_all('{set-a,set-d}', :t);
ROLLBACK TO p;
SELECT revenant.try_acquire_all('{set-c,set-b}') = :s AS still_held;
SELECT revenant.release_all('{set-b,set-c}', :s), revenant.release_all('{set-a,set-d}', :t);
COMMIT;
SELECT leases, tokens, lease_rows, locks FROM mine;
-- Acquired and released in one transaction.
BEGIN;
SELECT revenant.acquire_all('{set-a,set-b}') AS s \gset
SELECT revenant.acquire_all('{set-c,set-d}', ttl => '1 h') AS t \gset
SELECT revenant.release_all('{set-b,set-a}', :s), revenant.release_all('{set-d,set-c}', :t);
COMMIT;
SELECT leases, tokens, lease_rows, locks FROM mine;

-- What drops a session's locks ends its sets.
SELECT revenant.acquire_all('{set-a,set-b}') AS s \gset
SELECT pg_advisory_unlock_all();
SELECT revenant.is_current('set-a', :s), revenant.held_token('set-b'), revenant.release_all('{set-a,set-b}', :s);
SELECT revenant.acquire_all('{set-b,set-c}') > :s AS free_again;
SELECT revenant.release_all('{set-b,set-c}', revenant.held_token('set-b'));
SELECT leases, tokens, lease_rows, locks FROM mine;
BEGIN;
SELECT revenant.acquire_all('{set-a,set-b}') IS NOT NULL AS got;
PREPARE TRANSACTION 'set';
SELECT leases, tokens, lease_rows, locks FROM mine;
