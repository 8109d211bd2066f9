-- An election: who leads is told by a token, never by a label, and an old token does no harm.
\set VERBOSITY sqlstate

CREATE ROLE revenant_candidate;
CREATE ROLE revenant_voter;
SELECT revenant.grant_usage('revenant_candidate');
SELECT revenant.grant_usage('revenant_voter');
CREATE FUNCTION pg_temp.told(r revenant.claim_result) RETURNS text LANGUAGE sql STABLE
AS $$ SELECT pg_catalog.concat_ws(' ', r.is_leader, CASE WHEN r.token IS NULL THEN 'no token' ELSE 'token' END, coalesce(r.leader, 'nobody'), r.refresh_after) $$;

/* ---- claim */

SELECT is_leader, token, leader, refresh_after FROM revenant.claim('election', 'a') \gset
SELECT :'is_leader' AS is_leader, :token > 0 AS token, :'leader' AS leader, :'refresh_after' AS refresh_after;
SELECT lease, scope, token = :token AS token, holder, ttl, bound, shared FROM revenant.leases WHERE lease = 'election';
-- A label is no proof: neither another candidate nor one that calls itself the same gets it.
SELECT c.is_leader, c.token, c.leader, c.refresh_after BETWEEN '1 ms' AND '30 s' AS ask_again FROM revenant.claim('election', 'b') AS c;
SELECT c.is_leader, c.token, c.leader FROM revenant.claim('election', 'a') AS c;
SELECT revenant.try_acquire('election', ttl => '1 h', holder => 'a') IS NULL AS busy, revenant.try_acquire('election') IS NULL AS busy_session;
SELECT l.leader, l.token = :token AS token, l.since BETWEEN now() - interval '1 h' AND now() AS since FROM revenant.leader('election') AS l;
-- Who asks is told to come back when the leader's time may be over, or at a third of its own.
SELECT (revenant.claim('election', 'b', ttl => '3 s')).refresh_after;

SELECT revenant._lease_check();
/* ---- refresh */

SELECT c.is_leader, c.token = :token AS token, c.leader, c.refresh_after FROM revenant.refresh('election', :token) AS c;
SELECT c.is_leader, c.token, c.leader FROM revenant.refresh('election', :token - 1) AS c;
SELECT c.is_leader, c.token, c.leader FROM revenant.refresh('election', :token + 1) AS c;
SELECT c.is_leader, c.token, c.leader FROM revenant.refresh('election', NULL) AS c;
SELECT c.is_leader, c.token, c.leader, c.refresh_after > '0' AS ask_again FROM revenant.refresh('election-2', 1) AS c;
SELECT revenant.is_current('election', :token);

SELECT revenant._lease_check();
/* ---- abdicate */

SELECT revenant.abdicate('election', :token - 1) AS old_token, revenant.abdicate('election', NULL) AS no_token;
SELECT (revenant.refresh('election', :token)).is_leader AS still_leads;
SELECT revenant.abdicate('election', :token), revenant.abdicate('election', :token) AS twice;
SELECT l.leader, l.token, l.since FROM revenant.leader('election') AS l;
SELECT c.is_leader, c.token, c.leader FROM revenant.refresh('election', :token) AS c;
-- A late resignation of an earlier term does not end the next one, even of the same candidate.
SELECT (revenant.claim('election', 'a', ttl => '1 h')).token AS next \gset
SELECT :next > :token AS grown;
SELECT revenant.abdicate('election', :token) AS late, (revenant.refresh('election', :token)).is_leader AS old_leads, (revenant.refresh('election', :next)).is_leader AS new_leads;
SELECT refresh_after FROM revenant.refresh('election', :next);
SELECT l.leader, l.token = :next AS token FROM revenant.leader('election') AS l;

SELECT revenant._lease_check();
/* ---- a term that lapsed */

SELECT revenant.abdicate('election', :next);
SELECT (revenant.claim('election', 'a', ttl => '100 ms')).token AS token \gset
SELECT revenant.acquire('election', ttl => '1 h', holder => 'b', wait => '1 min') AS next \gset
SELECT :next > :token AS grown, pg_temp.told(revenant.refresh('election', :token)) LIKE 'f no token b %' AS refresh, revenant.abdicate('election', :token);
SELECT l.leader, l.token = :next AS token FROM revenant.leader('election') AS l;
SELECT revenant.abdicate('election', :next);
-- Nobody took it: all the same it is over.
SELECT (revenant.claim('election', 'a', ttl => '100 ms')).token AS token \gset
SELECT pg_catalog.set_config('election.token', :'token', false) \gset ignored_
DO $$ BEGIN WHILE revenant.is_current('election', current_setting('election.token')::bigint) LOOP NULL; END LOOP; END $$;
SELECT c.is_leader, c.token, c.leader FROM revenant.refresh('election', :token) AS c;
SELECT l.leader, l.token, l.since FROM revenant.leader('election') AS l;
SELECT revenant.abdicate('election', :token);
SELECT revenant.fence('election', :token);

SELECT revenant._lease_check();
/* ---- arguments */

SELECT revenant.claim(NULL, 'a');
SELECT revenant.claim('election', NULL);
SELECT revenant.claim('election', 'a', ttl => NULL);
SELECT revenant.claim('election', '');
SELECT revenant.claim('', 'a');
SELECT revenant.claim(repeat('x', 513), 'a');
SELECT revenant.claim('election', repeat('x', 513));
SELECT revenant.claim('election', 'a', ttl => '99 ms');
SELECT revenant.claim('election', 'a', ttl => '11 years');
SELECT revenant.claim('task/election', 'a');
SELECT revenant.refresh(NULL, 1);
SELECT revenant.refresh('', 1);
SELECT revenant.abdicate(NULL, 1);
SELECT revenant.leader(NULL);
SELECT revenant.leader('');
BEGIN READ ONLY;
SAVEPOINT p;
SELECT revenant.claim('election', 'a');
ROLLBACK TO p;
SELECT revenant.refresh('election', 1);
ROLLBACK TO p;
SELECT revenant.abdicate('election', 1);
ROLLBACK TO p;
SELECT l.leader FROM revenant.leader('election') AS l;
ROLLBACK;
SELECT count(*) FROM revenant.leases WHERE lease LIKE 'election%';

SELECT revenant._lease_check();
/* ---- other roles */

SET ROLE revenant_candidate;
SELECT (revenant.claim('election', 'c', ttl => '1 h')).token AS token \gset
SELECT l.leader, l.token = :token AS token FROM revenant.leader('election') AS l;
SET ROLE revenant_voter;
-- It is told who leads and since when, not by which token.
SELECT l.leader, l.token, l.since IS NOT NULL AS since FROM revenant.leader('election') AS l;
SELECT c.is_leader, c.token, c.leader FROM revenant.claim('election', 'c') AS c;
SELECT lease, token, holder, metadata FROM revenant.leases WHERE lease = 'election';
-- A token that was guessed opens nothing.
SELECT revenant.refresh('election', :token);
SELECT revenant.abdicate('election', :token);
SELECT revenant.fence('election', :token);
SELECT revenant.abdicate('election', :token - 1) AS another_token;
RESET ROLE;
-- A member of the role that claimed is told, and may act for it.
GRANT revenant_candidate TO revenant_voter;
SET ROLE revenant_voter;
SELECT l.leader, l.token = :token AS token FROM revenant.leader('election') AS l;
SELECT (revenant.refresh('election', :token)).is_leader, revenant.abdicate('election', :token);
RESET ROLE;
CREATE ROLE revenant_stranger;
SET ROLE revenant_stranger;
SELECT revenant.claim('election', 'd');
SELECT leader FROM revenant.leader('election');
RESET ROLE;

SELECT revenant._lease_check();
/* ---- in a transaction */

BEGIN;
SELECT (revenant.claim('election', 'a')).token AS token \gset
SELECT c.is_leader, c.token = :token AS token, c.leader, c.refresh_after FROM revenant.refresh('election', :token) AS c;
ROLLBACK;
SELECT l.leader FROM revenant.leader('election') AS l;
SELECT (revenant.refresh('election', :token)).is_leader, revenant.abdicate('election', :token);
SELECT (revenant.claim('election', 'a', ttl => '1 h')).token AS token \gset
BEGIN;
SELECT revenant.abdicate('election', :token);
SELECT (revenant.refresh('election', :token)).is_leader;
ROLLBACK;
SELECT (revenant.refresh('election', :token)).is_leader;
-- The first write of a leader's transaction is checked with its token.
CREATE TABLE election_log (a int);
SELECT revenant.guard_table('election_log', 'election');
INSERT INTO election_log VALUES (1);
BEGIN;
SELECT revenant.fence('election', :token);
INSERT INTO election_log VALUES (2);
COMMIT;
SELECT revenant.abdicate('election', :token);
BEGIN;
SELECT revenant.fence('election', :token);
ROLLBACK;
SELECT a FROM election_log;
DROP TABLE election_log;

SELECT revenant._lease_check();
/* ---- elections are leases */

SELECT revenant.acquire('election', holder => 'session') AS s \gset
SELECT l.leader, l.token = :s AS token FROM revenant.leader('election') AS l;
SELECT c.is_leader, c.token, c.leader FROM revenant.claim('election', 'a') AS c;
SELECT c.is_leader, c.token = :s AS token, c.leader FROM revenant.refresh('election', :s) AS c;
SELECT revenant.abdicate('election', :s);
SELECT (revenant.claim('election', 'a')).token AS token \gset
SELECT revenant.renew('election', :token, '2 h') IS NOT NULL AS renewed;
SELECT (revenant.refresh('election', :token)).refresh_after AS a_third_of_the_new_ttl;
SELECT revenant.release('election', :token);
SELECT count(*) FROM revenant.leases WHERE lease LIKE 'election%';
SELECT count(*) AS locks FROM pg_locks WHERE locktype = 'userlock' AND pid = pg_backend_pid();
SELECT revenant.revoke_usage('revenant_candidate');
SELECT revenant.revoke_usage('revenant_voter');
DROP ROLE revenant_candidate, revenant_voter, revenant_stranger;
