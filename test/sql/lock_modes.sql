-- Which locks each call takes, in which mode, and until when: H says who holds a name, F who is fenced by it.
\set VERBOSITY sqlstate

CREATE TEMP VIEW mine AS
SELECT coalesce(string_agg(pg_catalog.substr('?HFB', (k.objsubid & 3) + 1, 1) || ' ' || pg_catalog.replace(k.mode, 'Lock', ''), ', '
	ORDER BY k.objsubid & 3, k.mode), 'none') AS locks
FROM pg_catalog.pg_locks AS k WHERE k.locktype = 'userlock' AND k.pid = pg_catalog.pg_backend_pid() AND k.granted;
CREATE TABLE modes (a int);
SELECT revenant.guard_table('modes', 'modes');

/* ---- acquire: H and F to the end of the transaction; H to the session's in session scope */

BEGIN;
SELECT revenant.acquire('modes') AS s \gset
SELECT locks AS session FROM mine;
COMMIT;
SELECT locks AS session_after FROM mine;
-- Writing to what it guards is a fence; asking again is nothing.
BEGIN;
INSERT INTO modes VALUES (1);
SELECT locks AS guarded_write FROM mine;
COMMIT;
BEGIN;
SELECT revenant.acquire('modes') = :s AS again;
SELECT revenant.try_acquire('modes', ttl => '1 h') IS NULL AS busy;
SELECT locks AS again FROM mine;
COMMIT;
SELECT revenant.release('modes', :s);
SELECT locks AS released FROM mine;
BEGIN;
SELECT revenant.acquire_xact('modes') > :s AS got;
SELECT locks AS xact FROM mine;
INSERT INTO modes VALUES (2);
SELECT locks AS guarded_write FROM mine;
COMMIT;
SELECT locks AS xact_after FROM mine;
BEGIN;
SELECT revenant.acquire('modes', ttl => '1 h') AS t \gset
SELECT locks AS ttl FROM mine;
COMMIT;
SELECT locks AS ttl_after FROM mine;

/* ---- what a ttl holder does */

BEGIN;
SELECT revenant.renew('modes', :t) IS NOT NULL AS renewed, (revenant.refresh('modes', :t)).is_leader, revenant.is_current('modes', :t);
SELECT locks AS renewed FROM mine;
SELECT revenant.renew('modes', :t, '2 h') IS NOT NULL AS longer;
SELECT locks AS longer FROM mine;
COMMIT;
BEGIN;
SAVEPOINT p;
SELECT revenant.fence('modes', :t);
SELECT locks AS fenced FROM mine;
ROLLBACK TO p;
SELECT locks AS fence_forgotten FROM mine;
SELECT revenant.fence('modes', :t);
INSERT INTO modes VALUES (3);
SELECT locks AS fenced FROM mine;
COMMIT;
BEGIN;
SELECT revenant.release('modes', :t);
SELECT locks AS released FROM mine;
ROLLBACK;
BEGIN;
SELECT revenant.release('modes', :t, hold_off => '1 h');
SELECT locks AS held_off FROM mine;
ROLLBACK;
BEGIN;
SELECT revenant.abdicate('modes', :t);
SELECT locks AS abdicated FROM mine;
ROLLBACK;
-- A revocation takes F exclusively, and never H.
BEGIN;
SELECT revenant.revoke('modes') = :t AS revoked;
SELECT locks AS revoked FROM mine;
ROLLBACK;
-- Who gets nothing keeps nothing.
BEGIN;
SELECT revenant.try_acquire('modes') IS NULL AS session, revenant.try_acquire_xact('modes') IS NULL AS xact,
	revenant.try_acquire('modes', ttl => '1 h') IS NULL AS ttl, revenant.try_acquire('modes', shared => true) IS NULL AS shared,
	revenant.acquire('modes', wait => '1 ms') IS NULL AS in_time, revenant.release('modes', :t - 1) AS released,
	revenant.renew('modes', :t - 1, '9 h') IS NULL AS lost;
SELECT locks AS nothing FROM mine;
COMMIT;
SELECT revenant.release('modes', :t);

/* ---- bound: B says that the session is still there */

SELECT revenant.acquire('modes', ttl => '1 h', bound => true) AS t \gset
SELECT locks AS bound FROM mine;
BEGIN;
SELECT revenant.release('modes', :t);
COMMIT;
SELECT pg_advisory_unlock_all();

/* ---- shared: modes that live beside each other */

BEGIN;
SELECT revenant.acquire('modes', shared => true) AS s \gset
SELECT locks AS shared FROM mine;
COMMIT;
SELECT locks AS shared_after FROM mine;
BEGIN;
SELECT revenant.fence('modes', :s);
SELECT locks AS shared_fence FROM mine;
COMMIT;
SELECT revenant.release('modes', :s);
BEGIN;
SELECT revenant.acquire_xact('modes', shared => true) > :s AS got;
SELECT locks AS shared_xact FROM mine;
COMMIT;
SELECT locks AS released FROM mine;

/* ---- a request that is repeated does not queue */

SELECT revenant.acquire('modes', ttl => '1 h', request_id => '00000000-0000-0000-0000-00000000000a') AS t \gset
BEGIN;
SELECT revenant.acquire('modes', ttl => '1 h', request_id => '00000000-0000-0000-0000-00000000000a') = :t AS again;
SELECT locks AS repeated FROM mine;
COMMIT;
SELECT revenant.release('modes', :t);

/* ---- a set: of each name what one has; an election: what a ttl lease has */

BEGIN;
SELECT revenant.acquire_all('{modes,modes-2,modes-3}') AS s \gset
SELECT locks AS a_set FROM mine;
COMMIT;
SELECT locks AS a_set_after FROM mine;
SELECT revenant.release_all('{modes,modes-2,modes-3}', :s);
BEGIN;
SELECT (revenant.claim('modes', 'me')).is_leader;
SELECT locks AS claimed FROM mine;
ROLLBACK;

/* ---- savepoints and errors give all of it back */

BEGIN;
SAVEPOINT p;
SELECT revenant.acquire('modes') IS NOT NULL AS session, revenant.acquire('modes-2', ttl => '1 h') IS NOT NULL AS ttl, revenant.acquire_xact('modes-3') IS NOT NULL AS xact;
ROLLBACK TO p;
SELECT locks AS rolled_back FROM mine;
SELECT revenant.fence('modes', 1);
ROLLBACK TO p;
SELECT locks AS not_fenced FROM mine;
INSERT INTO modes VALUES (4);
ROLLBACK TO p;
SELECT locks AS not_written FROM mine;
COMMIT;
SELECT a FROM modes ORDER BY a;
DROP TABLE modes;
