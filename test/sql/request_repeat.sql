-- A reply was lost, and the same request comes again: it gets the token that it has, and nobody else does.
\set VERBOSITY sqlstate

CREATE ROLE revenant_request;
SELECT revenant.grant_usage('revenant_request');
\set id '\'00000000-0000-0000-0000-000000000001\''
\set id2 '\'00000000-0000-0000-0000-000000000002\''
CREATE TEMP VIEW mine AS
SELECT
	(SELECT string_agg(l.lease || ' ' || l.scope, ', ' ORDER BY l.lease)
	 FROM revenant.leases AS l WHERE l.lease LIKE 'request%') AS leases,
	(SELECT string_agg(r.name, ', ' ORDER BY r.name) FROM revenant.lease AS r WHERE r.name LIKE 'request%') AS lease_rows,
	(SELECT count(*) FROM pg_catalog.pg_locks AS k
	 WHERE k.locktype = 'userlock' AND k.pid = pg_catalog.pg_backend_pid()) AS locks;

/* ---- the same id */

SELECT revenant.try_acquire('request', ttl => '1 h', request_id => :id) AS t \gset
SELECT leases, lease_rows, locks FROM mine;
SELECT revenant.try_acquire('request', ttl => '1 h', request_id => :id) = :t AS again,
	revenant.acquire('request', ttl => '1 h', request_id => :id) = :t AS waiting, revenant.acquire('request', ttl => '1 h', request_id => :id, wait => '0') = :t AS no_wait;
SELECT leases, lease_rows, locks FROM mine;
-- It is renewed by that, also with a longer ttl, and never made shorter.
SELECT revenant.try_acquire('request', ttl => '3 h', request_id => :id) = :t AS longer;
SELECT ttl, remaining > '2 h 59 min' AS renewed FROM revenant.leases WHERE lease = 'request';
SELECT revenant.try_acquire('request', ttl => '1 min', request_id => :id) = :t AS shorter;
SELECT ttl, remaining > '2 h 58 min' AS as_before FROM revenant.leases WHERE lease = 'request';
SELECT token = :t AS token FROM revenant.leases WHERE lease = 'request';

SELECT revenant._lease_check();
/* ---- anything else is busy */

SELECT revenant.try_acquire('request', ttl => '1 h', request_id => :id2) IS NULL AS another_id, revenant.try_acquire('request', ttl => '1 h') IS NULL AS no_id,
	revenant.try_acquire('request', ttl => '1 h', request_id => NULL) IS NULL AS null_id, revenant.try_acquire('request', request_id => :id) IS NULL AS session,
	revenant.acquire('request', ttl => '1 h', request_id => :id2, wait => '1 ms') IS NULL AS another_id_in_time;
SELECT c.is_leader, c.token FROM revenant.claim('request', 'a', request_id => :id2) AS c;
SET ROLE revenant_request;
SELECT revenant.try_acquire('request', ttl => '1 h', request_id => :id) IS NULL AS another_role,
	revenant.acquire('request', ttl => '1 h', request_id => :id, wait => '1 ms') IS NULL AS another_role_in_time;
-- The same id for another name is another request.
SELECT revenant.try_acquire('request-2', ttl => '1 h', request_id => :id) AS t2 \gset
SELECT :t2 > :t AS another_name;
RESET ROLE;
SELECT revenant.try_acquire('request-2', ttl => '1 h', request_id => :id) IS NULL AS another_role;
SELECT revenant.release('request-2', :t2);
-- A lease that was taken without an id is not got by any.
SELECT revenant.try_acquire('request-2', ttl => '1 h') AS t2 \gset
SELECT revenant.try_acquire('request-2', ttl => '1 h', request_id => :id) IS NULL AS busy;
SELECT revenant.release('request-2', :t2);
SELECT leases, lease_rows, locks FROM mine;

SELECT revenant._lease_check();
/* ---- the end of the hold is the end of the request */

SELECT revenant.release('request', :t);
SELECT revenant.try_acquire('request', ttl => '1 h', request_id => :id) AS t2 \gset
SELECT :t2 > :t AS a_new_hold;
SELECT revenant.release('request', :t2);
SELECT revenant.try_acquire('request', ttl => '100 ms', request_id => :id) AS t \gset
SELECT revenant.acquire('request', ttl => '1 h', wait => '1 min') AS t2 \gset
SELECT revenant.try_acquire('request', ttl => '1 h', request_id => :id) IS NULL AS taken_over;
SELECT revenant.release('request', :t2);
-- It lapsed and nobody took it: the same request gets it anew, by another token.
SELECT revenant.try_acquire('request', ttl => '100 ms', request_id => :id) AS t \gset
SELECT pg_catalog.set_config('request.token', :'t', false) \gset ignored_
DO $$ BEGIN WHILE revenant.is_current('request', current_setting('request.token')::bigint) LOOP NULL; END LOOP; END $$;
SELECT revenant.try_acquire('request', ttl => '1 h', request_id => :id) AS t2 \gset
SELECT :t2 > :t AS a_new_hold, revenant.is_current('request', :t) AS old, revenant.is_current('request', :t2) AS new;
SELECT revenant.release('request', :t2);
-- ... unless nobody gets it.
SELECT revenant.try_acquire('request', ttl => '100 ms', lock_delay => '1 h', request_id => :id) AS t \gset
SELECT pg_catalog.set_config('request.token', :'t', false) \gset ignored_
DO $$ BEGIN WHILE revenant.is_current('request', current_setting('request.token')::bigint) LOOP NULL; END LOOP; END $$;
SELECT revenant.try_acquire('request', ttl => '1 h', lock_delay => '1 h', request_id => :id) IS NULL AS lock_delay,
	revenant.acquire('request', ttl => '1 h', request_id => :id, wait => '1 ms') IS NULL AS lock_delay_in_time;
SELECT revenant.try_acquire('request-3', ttl => '1 h', request_id => :id) AS t3 \gset
SELECT revenant.release('request-3', :t3, hold_off => '1 h');
SELECT revenant.try_acquire('request-3', ttl => '1 h', request_id => :id) IS NULL AS hold_off,
	revenant.acquire('request-3', ttl => '1 h', request_id => :id, wait => '1 ms') IS NULL AS hold_off_in_time;

SELECT revenant._lease_check();
/* ---- elections */

SELECT (revenant.claim('request-e', 'a', request_id => :id)).token AS t \gset
SELECT c.is_leader, c.token = :t AS token, c.leader, c.refresh_after FROM revenant.claim('request-e', 'a', request_id => :id) AS c;
SELECT c.is_leader, c.token, c.leader FROM revenant.claim('request-e', 'a', request_id => :id2) AS c;
SELECT c.is_leader, c.token, c.leader FROM revenant.claim('request-e', 'a') AS c;
SELECT revenant.abdicate('request-e', :t);

SELECT revenant._lease_check();
/* ---- sets */

SELECT revenant.acquire_all('{request-b,request-a}', ttl => '1 h', request_id => :id) AS t \gset
SELECT revenant.acquire_all('{request-a,request-b,request-a}', ttl => '1 h', request_id => :id) = :t AS again,
	revenant.try_acquire_all('{request-b,request-a}', ttl => '2 h', request_id => :id) = :t AS longer;
SELECT lease, ttl FROM revenant.leases WHERE lease LIKE 'request-%' ORDER BY lease;
SELECT revenant.try_acquire_all('{request-a,request-b}', ttl => '1 h', request_id => :id2) IS NULL AS another_id,
	revenant.try_acquire_all('{request-a,request-b}', ttl => '1 h') IS NULL AS no_id;
-- Another set with the same id is not this one, whichever name comes first.
SELECT revenant.try_acquire_all('{request-a,request-c}', ttl => '1 h', request_id => :id) IS NULL AS a_and_c,
	revenant.try_acquire_all('{request-b,request-c}', ttl => '1 h', request_id => :id) IS NULL AS b_and_c,
	revenant.try_acquire_all('{request-a,request-b,request-c}', ttl => '1 h', request_id => :id) IS NULL AS all_three,
	revenant.acquire_all('{request-a,request-c}', ttl => '1 h', request_id => :id, wait => '1 ms') IS NULL AS a_and_c_in_time,
	revenant.acquire_all('{request-b,request-c}', ttl => '1 h', request_id => :id, wait => '1 ms') IS NULL AS b_and_c_in_time;
SELECT leases, locks FROM mine;
-- One of them is lost: then so is the request.
SELECT revenant.release('request-b', :t);
SELECT revenant.try_acquire_all('{request-a,request-b}', ttl => '1 h', request_id => :id) IS NULL AS one_is_lost;
SELECT leases, locks FROM mine;
SELECT revenant.release_all('{request-a,request-b}', :t);

SELECT revenant._lease_check();
/* ---- in a transaction */

-- A planner that evaluates the call twice takes one hold.
SELECT count(DISTINCT revenant.try_acquire('request-t', ttl => '1 h', request_id => :id)) AS tokens,
	count(revenant.try_acquire('request-t', ttl => '1 h', request_id => :id)) AS answers FROM generate_series(1, 3);
SELECT revenant.try_acquire('request-t', ttl => '1 h', request_id => :id) AS t \gset
SELECT revenant.release('request-t', :t);
BEGIN;
SELECT revenant.try_acquire('request-t', ttl => '1 h', request_id => :id) AS t \gset
SELECT revenant.try_acquire('request-t', ttl => '1 h', request_id => :id) = :t AS again;
SAVEPOINT p;
SELECT revenant.acquire('request-t', ttl => '1 h', request_id => :id) = :t AS again_waiting;
ROLLBACK TO p;
SELECT revenant.try_acquire('request-t', ttl => '1 h', request_id => :id2) IS NULL AS another_id;
SELECT revenant.is_current('request-t', :t);
COMMIT;
SELECT revenant.try_acquire('request-t', ttl => '1 h', request_id => :id) = :t AS again;
-- Rolled back: nothing was got, so nothing is repeated.
BEGIN;
SELECT revenant.release('request-t', :t);
ROLLBACK;
SELECT revenant.try_acquire('request-t', ttl => '1 h', request_id => :id) = :t AS again;
SELECT revenant.release('request-t', :t);
BEGIN;
SELECT revenant.try_acquire('request-t', ttl => '1 h', request_id => :id) AS t \gset
ROLLBACK;
SELECT revenant.try_acquire('request-t', ttl => '1 h', request_id => :id) AS t2 \gset
SELECT :t2 <> :t AS a_new_hold;
-- A repeat that is rolled back takes nothing away.
BEGIN;
SELECT revenant.try_acquire('request-t', ttl => '1 h', request_id => :id) = :t2 AS again;
ROLLBACK;
SELECT revenant.is_current('request-t', :t2), revenant.release('request-t', :t2);
-- In session scope it is ignored: asking again is the same there anyway.
SELECT revenant.try_acquire('request-s', request_id => :id) AS s \gset
SELECT revenant.try_acquire('request-s', request_id => :id2) = :s AS again, revenant.release('request-s', :s);
CALL revenant.await_lease('request-s', ttl => '1 h', request_id => 'x');
SELECT leases, lease_rows, locks FROM mine;
SELECT revenant.revoke_usage('revenant_request');
DROP ROLE revenant_request;
