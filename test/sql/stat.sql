-- Every counter counts what its comment says: once, when it is true; and is shown and reset only for whom it may be.
-- In a database of its own, where nobody else does anything.
\set VERBOSITY sqlstate
CREATE DATABASE regress_stat;
\c regress_stat
CREATE EXTENSION revenant;
CREATE TEMP VIEW counted AS
SELECT acquired, rejected, waits, renewed, released, lapsed, revoked, fenced, fence_rejected FROM revenant.stat_leases;
CREATE PROCEDURE pg_temp.zero() LANGUAGE sql AS 'SELECT revenant.stat_reset()';

-- Nothing was done and nothing is counted; then something was, and is: so what follows would be seen.
SELECT * FROM counted;
SELECT acquired, total_wait_time, max_wait_time, stats_reset IS NOT NULL AS since FROM revenant.stat_leases;
SELECT revenant.try_acquire('one') AS token \gset
SELECT * FROM counted;
SELECT revenant.release('one', :token);
SELECT * FROM counted;

/* ---- acquired: in every scope, each name of a set, at commit */

CALL pg_temp.zero();
BEGIN;
SELECT revenant.try_acquire('one') IS NOT NULL AS held;
SELECT acquired AS not_yet FROM counted;
ROLLBACK;
BEGIN;
SAVEPOINT one;
SELECT revenant.try_acquire('one', ttl => '1 h') IS NOT NULL AS held;
ROLLBACK TO one;
COMMIT;
SELECT * FROM counted;
BEGIN;
SAVEPOINT one;
SELECT revenant.try_acquire('one') AS token \gset
RELEASE one;
COMMIT;
SELECT revenant.acquire('one') = :token AS the_same_again;
SELECT revenant.acquire_xact('two') IS NOT NULL AS held;
SELECT revenant.acquire('three', ttl => '1 h') AS three \gset
SELECT revenant.acquire_all('{a,b,c,c}') AS set \gset
SELECT revenant.try_acquire('shared', shared => true) AS shared \gset
SELECT (revenant.claim('election', 'me')).token AS leading \gset
SELECT * FROM counted;

/* ---- rejected: each call that is answered NULL; waits: each that waited */

CALL pg_temp.zero();
SELECT revenant.try_acquire('three', ttl => '1 h');
SELECT revenant.try_acquire_xact('one');
SELECT revenant.try_acquire_all('{three,four,five}', ttl => '1 h');
SELECT (revenant.claim('election', 'you')).is_leader;
SELECT revenant.acquire('three', ttl => '1 h', wait => '0 s');
SELECT * FROM counted;
SELECT revenant.acquire('three', ttl => '1 h', wait => '20 ms');
SELECT waits, rejected, total_wait_time BETWEEN 5 AND 20000 AS waited, max_wait_time = total_wait_time AS max FROM revenant.stat_leases;
SET lock_timeout = '30 ms';
SELECT revenant.acquire('three', ttl => '1 h');
RESET lock_timeout;
SELECT waits, rejected, total_wait_time - max_wait_time BETWEEN 5 AND 20000 AS waited, max_wait_time < total_wait_time AS max FROM revenant.stat_leases;
-- Nothing to wait for, nothing waited.
SELECT revenant.release('four', revenant.acquire('four', wait => '1 h'));
SELECT * FROM counted;

/* ---- renewed: what has a deadline, when it is answered */

CALL pg_temp.zero();
SELECT revenant.renew('one', :token);
SELECT revenant.renew('three', :three - 1), revenant.renew('nothing', 1), revenant.renew('three', NULL);
SELECT * FROM counted;
SELECT revenant.renew('three', :three) IS NOT NULL AS renewed, revenant.renew('three', :three, '2 h') IS NOT NULL AS longer;
BEGIN;
SELECT revenant.renew('three', :three) IS NOT NULL AS renewed;
ROLLBACK;
SELECT (revenant.refresh('election', :leading)).is_leader, (revenant.refresh('election', :leading - 1)).is_leader;
SELECT * FROM counted;
SELECT revenant.acquire_all('{r,s}', ttl => '1 h', request_id => '00000000-0000-0000-0000-000000000001') AS request \gset
SELECT revenant.acquire_all('{r,s}', ttl => '1 h', request_id => '00000000-0000-0000-0000-000000000001') = :request AS the_same_again;
SELECT * FROM counted;
SELECT revenant.renew_all('{r,s}', :request) IS NOT NULL AS renewed, revenant.renew_all('{r,s,three}', :request);
SELECT renewed FROM counted;

/* ---- released: by a call, at commit */

CALL pg_temp.zero();
BEGIN;
SELECT revenant.release('one', :token);
ROLLBACK;
SELECT revenant.release('one', :token - 1), revenant.release('nothing', 1);
SELECT * FROM counted;
SELECT revenant.release('one', :token), revenant.release_all('{a,b,c}', :set), revenant.release_all('{r,s}', :request),
	revenant.release('shared', :shared), revenant.abdicate('election', :leading), revenant.release('three', :three, hold_off => '1 h');
SELECT * FROM counted;
BEGIN;
SELECT revenant.release('one', revenant.acquire('one', ttl => '1 h'));
COMMIT;
SELECT revenant.acquire('one') IS NOT NULL AS held;
DISCARD ALL;
CREATE TEMP VIEW counted AS
SELECT acquired, rejected, waits, renewed, released, lapsed, revoked, fenced, fence_rejected FROM revenant.stat_leases;
CREATE PROCEDURE pg_temp.zero() LANGUAGE sql AS 'SELECT revenant.stat_reset()';
SELECT * FROM counted;

/* ---- revoked: a ttl hold or a hold_off, at commit */

CALL pg_temp.zero();
SELECT revenant.acquire('one', ttl => '1 h') AS token \gset
BEGIN;
SELECT revenant.revoke('one') = :token AS revoked;
ROLLBACK;
SELECT revenant.revoke('nothing');
SELECT * FROM counted;
SELECT revenant.revoke('one') = :token AS revoked;
SELECT revenant.revoke('three') = :three AS revoked;
SELECT * FROM counted;

/* ---- lapsed: once, whoever takes the row away; not what was released with a hold_off */

CALL pg_temp.zero();
SELECT revenant.acquire('one', ttl => '100 ms') IS NOT NULL AS held;
SELECT revenant.acquire('one', ttl => '1 h', wait => '1 min') AS token \gset
SELECT acquired, lapsed FROM counted;
SELECT revenant.release('one', :token, hold_off => '10 ms');
SELECT revenant.acquire_xact('one', wait => '1 min') IS NOT NULL AS held;
SELECT acquired, released, lapsed FROM counted;
SELECT revenant.acquire('one', ttl => '100 ms') IS NOT NULL AS held;
BEGIN;
SELECT revenant.acquire_xact('one', wait => '1 min') IS NOT NULL AS held;
ROLLBACK;
SELECT lapsed AS not_yet FROM counted;
SELECT revenant.acquire_xact('one', shared => true, wait => '1 min') IS NOT NULL AS held;
SELECT lapsed FROM counted;

/* ---- fenced: each lease once in a transaction, at commit; and fences that were refused */

CALL pg_temp.zero();
CREATE TABLE guarded (a int);
SELECT revenant.guard_table('guarded', 'one');
SELECT revenant.acquire('one', ttl => '1 h') AS token \gset
BEGIN;
SELECT revenant.fence('one', :token), revenant.fence('one', :token);
INSERT INTO guarded VALUES (1);
COMMIT;
BEGIN;
SELECT revenant.fence('one', :token);
ROLLBACK;
SELECT fenced, fence_rejected FROM counted;
SELECT revenant.release('one', :token);
SELECT revenant.fence('one', :token);
SELECT revenant.fence('one', NULL);
SELECT revenant.fence('nothing', 1);
INSERT INTO guarded VALUES (2);
SELECT fenced, fence_rejected FROM counted;
SELECT revenant.acquire('one') AS token \gset
BEGIN;
INSERT INTO guarded VALUES (3);
INSERT INTO guarded VALUES (4);
COMMIT;
SELECT fenced, fence_rejected FROM counted;
SELECT revenant.acquire('brief', ttl => '100 ms') AS brief \gset
SELECT revenant.acquire('brief', wait => '1 min') IS NOT NULL AS held;
SELECT revenant.fence('brief', :brief);
SELECT fenced, fence_rejected FROM counted;

/* ---- the database */

CALL pg_temp.zero();
SELECT tokens, events, leases_acquired, leases_rejected, leases_lapsed, lease_waits, fences_rejected, task_runs, task_failures
FROM revenant.stat_database WHERE datname = current_database();
BEGIN;
SELECT revenant.acquire('rolled back') IS NOT NULL AS held;
ROLLBACK;
SELECT (revenant.claim('election', 'me')).token AS leading \gset
SELECT revenant.acquire_all('{a,b}') IS NOT NULL AS held;
SELECT revenant.acquire('election', ttl => '1 h', wait => '10 ms');
SELECT revenant.fence('nothing', 1);
SELECT revenant.abdicate('election', :leading);
SELECT tokens, events, leases_acquired, leases_rejected, leases_lapsed, lease_waits, lease_wait_time >= 2 AS waited, fences_rejected, task_runs, task_failures
FROM revenant.stat_database WHERE datname = current_database();
SELECT d.datid = (SELECT oid FROM pg_database WHERE datname = current_database()) AS datid, d.stats_reset = l.stats_reset AS stats_reset
FROM revenant.stat_database AS d, revenant.stat_leases AS l WHERE d.datname = current_database();
SELECT count(*) = count(DISTINCT datid) AND count(*) = count(datname) AS one_for_each FROM revenant.stat_database;

/* ---- tasks: a row for each, also if it has never run */

SELECT revenant.create_task('never', 'SELECT 1', enabled => false);
SELECT t.name, t.runs, t.succeeded, t.failed, t.stopped, t.interrupted, t.restarts, t.total_run_time, t.max_run_time, t.total_start_delay, t.max_start_delay,
	t.slot_waits, t.quarantined, t.stats_reset = l.stats_reset AS stats_reset
FROM revenant.stat_tasks AS t, revenant.stat_leases AS l;
SELECT revenant.drop_task('never');
SELECT count(*) FROM revenant.stat_tasks;

/* ---- reset: at once, whatever becomes of the transaction */

SELECT acquired > 0 AS counted, stats_reset AS before FROM revenant.stat_leases \gset
\echo :counted
BEGIN;
SELECT revenant.stat_reset();
ROLLBACK;
SELECT * FROM counted;
SELECT total_wait_time, max_wait_time, stats_reset > :'before' AS later FROM revenant.stat_leases;

/* ---- who sees it, and who resets it */

CREATE ROLE regress_none;
CREATE ROLE regress_reader;
CREATE ROLE regress_user;
CREATE ROLE regress_admin;
SELECT revenant.grant_usage('regress_reader', 'reader');
SELECT revenant.grant_usage('regress_user', 'user');
SELECT revenant.grant_usage('regress_admin', 'admin');
SET ROLE regress_none;
SELECT acquired FROM revenant.stat_leases;
SET ROLE regress_user;
SELECT acquired FROM revenant.stat_leases;
SELECT revenant.stat_reset();
SET ROLE regress_reader;
SELECT acquired FROM revenant.stat_leases;
SELECT count(*) FROM revenant.stat_tasks;
SELECT leases_acquired FROM revenant.stat_database WHERE datname = current_database();
SELECT revenant.stat_reset();
SET ROLE regress_admin;
SELECT count(*) FROM revenant.stat_tasks;
SELECT revenant.stat_reset();
RESET ROLE;
SELECT revenant.revoke_usage('regress_reader'), revenant.revoke_usage('regress_user'), revenant.revoke_usage('regress_admin');
DROP ROLE regress_none, regress_reader, regress_user, regress_admin;

/* ---- another instance of the extension begins at zero; one that was rolled back changes nothing */

DROP TABLE guarded;
SELECT revenant.release('five', revenant.acquire('five'));
SELECT acquired, released FROM counted;
BEGIN;
DROP EXTENSION revenant CASCADE;
CREATE EXTENSION revenant;
SELECT acquired FROM revenant.stat_leases;
SELECT revenant.acquire_xact('five') IS NOT NULL AS held;
ROLLBACK;
SELECT revenant.release('five', revenant.acquire('five'));
SELECT acquired, released FROM counted;
\set VERBOSITY terse
DROP EXTENSION revenant CASCADE;
CREATE EXTENSION revenant;
SELECT acquired, released FROM revenant.stat_leases;
SELECT revenant.release('five', revenant.acquire('five'));
SELECT acquired, released FROM revenant.stat_leases;
SELECT leases_acquired FROM revenant.stat_database WHERE datname = current_database();

/* ---- others see a row of numbers, as long as the database is there */

\c regression
SELECT leases_acquired, tokens FROM revenant.stat_database WHERE datname = 'regress_stat';
DROP DATABASE regress_stat;
SELECT count(*) FROM revenant.stat_database WHERE datname = 'regress_stat' OR datname IS NULL;
