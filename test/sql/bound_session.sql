-- A bound lease ends with its session or by its ttl, whichever is first; and what a session behind a pooler may not take.
\set VERBOSITY sqlstate

CREATE TEMP VIEW mine AS
SELECT
	(SELECT string_agg(l.lease || ' ' || l.scope || CASE WHEN l.bound THEN ' bound' ELSE '' END, ', ' ORDER BY l.lease)
	 FROM revenant.leases AS l WHERE l.lease LIKE 'bound%') AS leases,
	(SELECT count(*) FROM pg_catalog.pg_locks AS k
	 WHERE k.locktype = 'userlock' AND k.pid = pg_catalog.pg_backend_pid()) AS locks;

/* ---- arguments */

SELECT revenant.try_acquire('bound', bound => true);
SELECT revenant.acquire('bound', bound => true);
SELECT revenant.try_acquire_all('{bound}', bound => true);
SELECT revenant.try_acquire('bound', ttl => '1 h', bound => NULL);
CALL revenant.await_lease('bound', bound => true);

-- (A session gives back what it no longer needs when it next acquires something.)

SELECT revenant._lease_check();
/* ---- a ttl lease like any other, while the session lives */

SELECT revenant.try_acquire('bound', ttl => '1 h', bound => true) AS t \gset
SELECT lease, scope, token = :t AS token, bound, ttl, pid = pg_backend_pid() AS pid FROM revenant.leases WHERE lease = 'bound';
SELECT revenant.try_acquire_xact('bound-other') IS NOT NULL AS tidied;
SELECT leases, locks FROM mine;
SELECT revenant.is_current('bound', :t), revenant.renew('bound', :t) IS NOT NULL AS renewed, revenant.held_token('bound'),
	revenant.try_acquire('bound', ttl => '1 h', bound => true) IS NULL AS busy, revenant.try_acquire('bound') IS NULL AS busy_session;
BEGIN;
SELECT revenant.fence('bound', :t);
COMMIT;
SELECT revenant.release('bound', :t);
SELECT revenant.try_acquire_xact('bound-other') IS NOT NULL AS tidied;
SELECT leases, locks FROM mine;
-- It lapses.
SELECT revenant.try_acquire('bound', ttl => '100 ms', bound => true) AS t \gset
SELECT revenant.acquire('bound', ttl => '1 h', bound => true, wait => '1 min') AS t2 \gset
SELECT :t2 > :t AS lapsed, revenant.is_current('bound', :t), revenant.is_current('bound', :t2);
-- The old token of the same session, released late, ends nothing of the new one.
SELECT revenant.release('bound', :t) AS old;
SELECT revenant.is_current('bound', :t2), revenant.release('bound', :t2);
SELECT revenant.try_acquire_xact('bound-other') IS NOT NULL AS tidied;
SELECT leases, locks FROM mine;

SELECT revenant._lease_check();
/* ---- what drops the session's locks ends it, at once, and without a lock_delay: that is a release */

SELECT revenant.acquire('bound', ttl => '1 h', bound => true, lock_delay => '1 h') AS t \gset
SELECT pg_advisory_unlock_all();
SELECT revenant.try_acquire_xact('bound-other') IS NOT NULL AS tidied;
SELECT leases, locks FROM mine;
SELECT revenant.is_current('bound', :t), revenant.renew('bound', :t), revenant.release('bound', :t);
SELECT revenant.fence('bound', :t);
SELECT revenant.try_acquire('bound', ttl => '1 h', bound => true) AS t2 \gset
SELECT :t2 > :t AS free_again, revenant.is_current('bound', :t2);
SELECT revenant.acquire_all('{bound-a,bound-b}', ttl => '1 h', bound => true) AS t3 \gset
SELECT revenant.acquire('bound-c', ttl => '1 h') AS t4 \gset
DISCARD ALL;
SELECT revenant.is_current('bound', :t2), revenant.is_current('bound-a', :t3), revenant.is_current('bound-b', :t3), revenant.is_current('bound-c', :t4) AS not_bound;
SELECT lease, bound FROM revenant.leases WHERE lease LIKE 'bound%' ORDER BY lease;
SELECT revenant.try_acquire_all('{bound,bound-a,bound-b}') > :t3 AS free_again;
SELECT pg_advisory_unlock_all();
SELECT revenant.release('bound-c', :t4);

-- So does the end of the session.
SELECT revenant.acquire('bound', ttl => '1 h', bound => true, lock_delay => '1 h') AS t \gset
\c -
\set VERBOSITY sqlstate
SELECT revenant.acquire('bound', ttl => '1 h', bound => true, wait => '1 min') AS t2 \gset
SELECT :t2 > :t AS free_again, revenant.is_current('bound', :t), revenant.is_current('bound', :t2);
SELECT revenant.release('bound', :t2);

SELECT revenant._lease_check();
/* ---- transactions */

CREATE TEMP VIEW mine AS
SELECT
	(SELECT string_agg(l.lease || ' ' || l.scope || CASE WHEN l.bound THEN ' bound' ELSE '' END, ', ' ORDER BY l.lease)
	 FROM revenant.leases AS l WHERE l.lease LIKE 'bound%') AS leases,
	(SELECT count(*) FROM pg_catalog.pg_locks AS k
	 WHERE k.locktype = 'userlock' AND k.pid = pg_catalog.pg_backend_pid()) AS locks;
BEGIN;
SELECT revenant.acquire('bound', ttl => '1 h', bound => true) AS t \gset
SELECT revenant.is_current('bound', :t);
ROLLBACK;
SELECT revenant.is_current('bound', :t);
SELECT revenant.try_acquire_xact('bound-other') IS NOT NULL AS tidied;
SELECT leases, locks FROM mine;
BEGIN;
SAVEPOINT p;
SELECT revenant.acquire('bound', ttl => '1 h', bound => true) AS t1 \gset
ROLLBACK TO p;
SELECT revenant.acquire('bound', ttl => '1 h', bound => true) AS t \gset
COMMIT;
SELECT revenant.is_current('bound', :t);
SELECT revenant.try_acquire_xact('bound-other') IS NOT NULL AS tidied;
SELECT leases, locks FROM mine;
BEGIN;
SELECT revenant.release('bound', :t);
ROLLBACK;
SELECT revenant.is_current('bound', :t), revenant.renew('bound', :t) IS NOT NULL AS renewed;
SELECT revenant.try_acquire_xact('bound-other') IS NOT NULL AS tidied;
SELECT leases, locks FROM mine;
SELECT revenant.release('bound', :t);
BEGIN;
SELECT revenant.acquire('bound', ttl => '1 h', bound => true) AS t \gset
SELECT revenant.release('bound', :t);
COMMIT;
SELECT revenant.try_acquire_xact('bound-other') IS NOT NULL AS tidied;
SELECT leases, locks FROM mine;
-- Released in the transaction that acquired, then taken by the session: two holds, one lock each.
SELECT revenant.acquire('bound') AS s \gset
SELECT revenant.try_acquire_xact('bound-other') IS NOT NULL AS tidied;
SELECT leases, locks FROM mine;
SELECT revenant.release('bound', :s);
-- Locks dropped in the middle of the transaction that acquires.
BEGIN;
SELECT revenant.acquire('bound', ttl => '1 h', bound => true) AS t \gset
SELECT pg_advisory_unlock_all();
COMMIT;
SELECT revenant.is_current('bound', :t), revenant.try_acquire('bound') IS NOT NULL AS free;
SELECT pg_advisory_unlock_all();
SELECT revenant.try_acquire_xact('bound-other') IS NOT NULL AS tidied;
SELECT leases, locks FROM mine;

SELECT revenant._lease_check();
/* ---- revenant.session_leases */

CREATE ROLE revenant_pooled;
SELECT revenant.grant_usage('revenant_pooled');
ALTER ROLE revenant_pooled SET revenant.session_leases = off;
SET revenant.session_leases = off;
\set VERBOSITY default
SELECT revenant.try_acquire('bound');
\set VERBOSITY sqlstate
SELECT revenant.acquire('bound');
SELECT revenant.acquire('bound', shared => true);
SELECT revenant.try_acquire_all('{bound,bound-a}');
SELECT revenant.acquire_all('{}');
CALL revenant.await_lease('bound');
-- The other scopes are as always.
SELECT revenant.try_acquire('bound', ttl => '1 h') AS t \gset
SELECT revenant.renew('bound', :t) IS NOT NULL AS renewed, revenant.release('bound', :t);
SELECT revenant.acquire_xact('bound') > 0 AS xact, revenant.acquire_xact('bound-a', shared => true) > 0 AS shared_xact, revenant.try_acquire_all_xact('{bound-b,bound-c}') > 0 AS xact_set;
SELECT (revenant.claim('bound', 'a', ttl => '1 h')).token AS t \gset
SELECT revenant.abdicate('bound', :t);
SELECT revenant.try_acquire_xact('bound-other') IS NOT NULL AS tidied;
SELECT leases, locks FROM mine;
RESET revenant.session_leases;
-- Who comes through the pooler cannot turn it on.
SET ROLE revenant_pooled;
SET revenant.session_leases = on;
RESET ROLE;
SELECT revenant.revoke_usage('revenant_pooled');
DROP ROLE revenant_pooled;
