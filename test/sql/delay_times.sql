-- A name stays nobody's for as long as lock_delay (after a lapse) and hold_off (at a release) say, not longer, and a
-- delay of 0 is none.
\set VERBOSITY sqlstate

CREATE TEMP VIEW mine AS
SELECT
	(SELECT string_agg(l.lease || ' ' || l.scope, ', ' ORDER BY l.lease)
	 FROM revenant.leases AS l WHERE l.lease LIKE 'delay%') AS leases,
	(SELECT string_agg(r.name, ', ' ORDER BY r.name) FROM revenant.lease AS r WHERE r.name LIKE 'delay%') AS lease_rows,
	(SELECT count(*) FROM pg_catalog.pg_locks AS k
	 WHERE k.locktype = 'userlock' AND k.pid = pg_catalog.pg_backend_pid()) AS locks;
-- What it takes to get a name, in milliseconds, since a time that was noted before.
CREATE FUNCTION pg_temp.ms_since(t timestamptz) RETURNS numeric LANGUAGE sql VOLATILE
AS 'SELECT extract(epoch FROM pg_catalog.clock_timestamp() - t) * 1000';

/* ---- arguments */

SELECT revenant.try_acquire('delay-t', ttl => '1 h', lock_delay => '-1 ms');
SELECT revenant.try_acquire('delay-t', ttl => '1 h', lock_delay => '11 years');
SELECT revenant.acquire('delay-t', ttl => '1 h', lock_delay => '-1 day');
SELECT revenant.try_acquire_all('{delay-t}', ttl => '1 h', lock_delay => '178000000 years');
SELECT revenant.try_acquire('delay-t', ttl => '1 h', lock_delay => NULL);
-- What does not lapse has no use for one.
SELECT revenant.try_acquire('delay-s', lock_delay => '1 s');
SELECT revenant.try_acquire('delay-s', lock_delay => '0') AS s \gset
SELECT revenant.release('delay-s', :s, hold_off => '-1 us');
SELECT revenant.release('delay-s', :s, hold_off => '11 years');
SELECT revenant.is_current('delay-s', :s) AS still_held, revenant.release('delay-s', :s, hold_off => NULL);
-- The longest ones there are.
SELECT revenant.try_acquire('delay-t', ttl => '10 years', lock_delay => '10 years') AS t \gset
SELECT revenant.release('delay-t', :t);
SELECT leases, lease_rows, locks FROM mine;

SELECT revenant._lease_check();
/* ---- lock_delay: after a lapse */

SELECT revenant.acquire('delay-t', ttl => '100 ms', lock_delay => '1 h') AS t \gset
SELECT revenant.acquire('delay-t', ttl => '1 h', wait => '300 ms') IS NULL AS nobody_gets_it;
-- Its time is over, and a renewal or a fence does not bring it back.
SELECT revenant.is_current('delay-t', :t), revenant.renew('delay-t', :t), revenant.release('delay-t', :t);
SELECT revenant.fence('delay-t', :t);
SELECT revenant.try_acquire('delay-t') IS NULL AS session, revenant.try_acquire_xact('delay-t') IS NULL AS xact,
	revenant.try_acquire('delay-t', ttl => '1 h') IS NULL AS ttl, revenant.try_acquire('delay-t', shared => true) IS NULL AS shared,
	revenant.try_acquire_all('{delay-t,delay-u}') IS NULL AS a_set, (revenant.claim('delay-t', 'me')).is_leader AS claim;
SELECT lease_rows, locks FROM mine;

-- It is over in time, and not before.
SELECT clock_timestamp() AS t0, revenant.acquire('delay-u', ttl => '100 ms', lock_delay => '200 ms') AS t \gset
SELECT revenant.acquire('delay-u', wait => '1 min') AS s \gset
SELECT pg_temp.ms_since(:'t0') AS ms \gset
SELECT :s > :t AS taken_over, :ms >= 299 AS not_before, :ms < 5000 AS in_time;
SELECT revenant.release('delay-u', :s);

-- 0 is 0, and so is what nobody gave.
SELECT revenant.acquire('delay-u', ttl => '100 ms', lock_delay => '0') AS t \gset
SELECT revenant.acquire('delay-u', wait => '1 min') > :t AS taken_over;
SELECT revenant.release('delay-u', revenant.held_token('delay-u'), hold_off => '0');
SELECT revenant.try_acquire('delay-u') IS NOT NULL AS at_once;
SELECT revenant.release('delay-u', revenant.held_token('delay-u'));
SELECT revenant.try_acquire('delay-u') IS NOT NULL AS at_once;
SELECT revenant.release('delay-u', revenant.held_token('delay-u'));

-- Not after a release, nor while it is renewed.
SELECT revenant.acquire('delay-u', ttl => '1 h', lock_delay => '1 h') AS t \gset
SELECT revenant.renew('delay-u', :t) IS NOT NULL AS renewed, revenant.release('delay-u', :t);
SELECT revenant.try_acquire('delay-u', ttl => '1 h', lock_delay => '1 h') AS t2 \gset
SELECT :t2 > :t AS at_once;
SELECT revenant.release('delay-u', :t2);
-- Of a set, each name has it.
SELECT revenant.acquire_all('{delay-v,delay-w}', ttl => '100 ms', lock_delay => '1 h') AS t \gset
SELECT revenant.acquire('delay-v', wait => '200 ms') IS NULL AS v, revenant.acquire('delay-w', wait => '1 ms') IS NULL AS w;
SELECT lease_rows, locks FROM mine;

SELECT revenant._lease_check();
/* ---- hold_off: at a release */

SELECT revenant.acquire('delay-x', ttl => '1 h') AS t \gset
SELECT revenant.release('delay-x', :t, hold_off => '1 h');
SELECT revenant.is_current('delay-x', :t), revenant.renew('delay-x', :t), revenant.release('delay-x', :t) AS twice, revenant.release('delay-x', :t, hold_off => '0') AS shorter;
SELECT revenant.fence('delay-x', :t);
SELECT revenant.try_acquire('delay-x') IS NULL AS session, revenant.try_acquire_xact('delay-x') IS NULL AS xact,
	revenant.try_acquire('delay-x', ttl => '1 h') IS NULL AS ttl, revenant.acquire('delay-x', wait => '1 ms') IS NULL AS in_time,
	revenant.try_acquire('delay-x', shared => true) IS NULL AS shared, revenant.held_token('delay-x');
SELECT count(*) AS nobody_holds_it FROM revenant.leases WHERE lease = 'delay-x';
SELECT lease_rows, locks FROM mine;

-- The end of a session's hold, too.
SELECT revenant.acquire('delay-s') AS s \gset
SELECT revenant.release('delay-s', :s, hold_off => '1 h');
SELECT revenant.try_acquire('delay-s') IS NULL AS session, revenant.try_acquire('delay-s', ttl => '1 h') IS NULL AS ttl,
	revenant.held_token('delay-s'), revenant.is_current('delay-s', :s);
SELECT lease_rows, locks FROM mine;
-- It is over in time, and not before; then the row goes with the next holder.
SELECT revenant.acquire('delay-y') AS s \gset
SELECT clock_timestamp() AS t0, revenant.release('delay-y', :s, hold_off => '200 ms') \gset
SELECT revenant.acquire('delay-y', wait => '1 min') AS s2 \gset
SELECT pg_temp.ms_since(:'t0') AS ms \gset
SELECT :s2 > :s AS taken, :ms >= 199 AS not_before, :ms < 5000 AS in_time;
SELECT lease_rows, locks FROM mine;
SELECT revenant.release('delay-y', :s2);
SELECT revenant.acquire('delay-y', ttl => '1 h') AS t \gset
SELECT revenant.release('delay-y', :t, hold_off => '1 ms') AS released \gset
SELECT revenant.acquire('delay-y', wait => '1 min') AS s \gset
SELECT :'released' AS released, :s > :t AS taken;
SELECT revenant.release('delay-y', :s);
-- A lock_delay of the same lease does not come on top of it.
SELECT revenant.acquire('delay-y', ttl => '1 h', lock_delay => '1 h') AS t \gset
SELECT revenant.release('delay-y', :t, hold_off => '100 ms');
SELECT revenant.acquire('delay-y', wait => '1 min') > :t AS taken;
SELECT revenant.release('delay-y', revenant.held_token('delay-y'));
SELECT lease_rows, locks FROM mine;
-- A wrong token, and one whose time is over, hold nothing off.
SELECT revenant.release('delay-y', 1, hold_off => '1 h'), revenant.release('delay-y', NULL, hold_off => '1 h');
SELECT revenant.try_acquire('delay-y', ttl => '1 h') AS t \gset
SELECT revenant.release('delay-y', :t - 1, hold_off => '1 h'), revenant.release('delay-y', :t);
SELECT revenant.try_acquire('delay-y') IS NOT NULL AS free;
SELECT revenant.release('delay-y', revenant.held_token('delay-y'));

SELECT revenant._lease_check();
/* ---- in transactions */

-- Rolled back: still held, and nothing is held off.
SELECT revenant.acquire('delay-a') AS s \gset
SELECT revenant.acquire('delay-b', ttl => '1 h') AS t \gset
BEGIN;
SELECT revenant.release('delay-a', :s, hold_off => '1 h'), revenant.release('delay-b', :t, hold_off => '1 h');
SELECT revenant.is_current('delay-a', :s), revenant.is_current('delay-b', :t);
ROLLBACK;
SELECT revenant.is_current('delay-a', :s), revenant.is_current('delay-b', :t), revenant.try_acquire('delay-a') = :s AS again,
	revenant.renew('delay-b', :t) IS NOT NULL AS renewed;
BEGIN;
SAVEPOINT p;
SELECT revenant.release('delay-a', :s, hold_off => '1 h'), revenant.release('delay-b', :t, hold_off => '1 h');
ROLLBACK TO p;
SELECT revenant.is_current('delay-a', :s), revenant.is_current('delay-b', :t);
SELECT revenant.release('delay-a', :s), revenant.release('delay-b', :t);
COMMIT;
SELECT revenant.try_acquire('delay-a') AS s, revenant.try_acquire('delay-b') AS s2 \gset
SELECT :s IS NOT NULL AS a_is_free, :s2 IS NOT NULL AS b_is_free;
SELECT revenant.release('delay-a', :s), revenant.release('delay-b', :s2);

-- Acquired and released in one transaction: held off all the same.
BEGIN;
SELECT revenant.acquire('delay-c') AS s \gset
SELECT revenant.acquire('delay-d', ttl => '1 h') AS t \gset
SELECT revenant.release('delay-c', :s, hold_off => '1 h'), revenant.release('delay-d', :t, hold_off => '1 h');
COMMIT;
SELECT revenant.try_acquire('delay-c') IS NULL AS session, revenant.try_acquire('delay-d') IS NULL AS ttl,
	revenant.is_current('delay-c', :s), revenant.is_current('delay-d', :t);
SELECT lease_rows, locks FROM mine;
BEGIN;
SELECT revenant.acquire('delay-e') AS s \gset
SELECT revenant.acquire('delay-f', ttl => '1 h') AS t \gset
SELECT revenant.release('delay-e', :s, hold_off => '1 h'), revenant.release('delay-f', :t, hold_off => '1 h');
ROLLBACK;
SELECT revenant.try_acquire('delay-e') IS NOT NULL AS session, revenant.try_acquire('delay-f') IS NOT NULL AS ttl;
SELECT count(*) FILTER (WHERE revenant.release(lease, token)) FROM revenant.leases WHERE lease IN ('delay-e', 'delay-f');
-- Held off by a session that took over a row, and taken over from that.
SELECT revenant.acquire('delay-g', ttl => '100 ms') AS t \gset
SELECT revenant.acquire('delay-g', wait => '1 min') AS s \gset
BEGIN;
SELECT revenant.release('delay-g', :s, hold_off => '100 ms');
COMMIT;
SELECT revenant.acquire('delay-g', ttl => '1 h', wait => '1 min') AS t2 \gset
SELECT :t2 > :s AS taken, revenant.renew('delay-g', :t2) IS NOT NULL AS renewed, revenant.release('delay-g', :t2);
SELECT lease_rows, locks FROM mine;
-- PREPARE TRANSACTION is refused after it.
SELECT revenant.acquire('delay-g') AS s \gset
BEGIN;
SELECT revenant.release('delay-g', :s, hold_off => '1 h');
PREPARE TRANSACTION 'delay';
SELECT revenant.is_current('delay-g', :s), revenant.release('delay-g', :s);

SELECT leases, lease_rows, locks FROM mine;
