-- What happened is told: once, when it is committed, and only to whom it may be told.
\set VERBOSITY sqlstate

CREATE ROLE revenant_teller;
CREATE ROLE revenant_listener;
CREATE ROLE revenant_chief;
SELECT revenant.grant_usage('revenant_teller');
SELECT revenant.grant_usage('revenant_listener', 'reader');
SELECT revenant.grant_usage('revenant_chief', 'admin');
SELECT coalesce(max(seq), 0) AS before FROM revenant.events() \gset
CREATE TEMP VIEW told AS
SELECT row_number() OVER (ORDER BY e.seq) AS n, e.event, e.subject, e.phase, e.token IS NOT NULL AS token, e.node <> '' AS node,
	e.pid = pg_backend_pid() AS pid, e.at BETWEEN now() - interval '1 min' AND clock_timestamp() AS at, e.detail
FROM revenant.events() AS e WHERE e.subject LIKE 'told%' ORDER BY e.seq;

-- Nothing was told yet; what is no election is none of ours; what did not commit did not happen.
SELECT count(*) FROM told;
SELECT revenant.try_acquire('told-lease', ttl => '1 h') AS token \gset
SELECT revenant.release('told-lease', :token);
SELECT revenant.try_acquire('told-session') AS token \gset
SELECT revenant.release('told-session', :token);
BEGIN;
SELECT (revenant.claim('told', 'a')).is_leader;
SELECT count(*) FROM told;
ROLLBACK;
BEGIN;
SAVEPOINT one;
SELECT (revenant.claim('told', 'a')).is_leader;
ROLLBACK TO one;
COMMIT;
SELECT count(*) FROM told;

-- A term: claimed at commit, in a savepoint too; refreshed is nothing; a candidate that does not lead is told of once.
BEGIN;
SAVEPOINT one;
SELECT (revenant.claim('told', 'a', '1 h')).token AS token \gset
RELEASE one;
SELECT count(*) FROM told;
COMMIT;
SELECT (revenant.refresh('told', :token)).is_leader;
SELECT (revenant.claim('told', 'b')).is_leader;
SELECT (revenant.claim('told', 'b')).is_leader;
SELECT n, event, subject, phase, token, node, pid, at, detail FROM told;
SELECT bool_and(e.token = :token) AS token FROM revenant.events() AS e WHERE e.subject = 'told' AND e.token IS NOT NULL;

-- Where nobody leads nothing is rejected, whatever tokens are made up; and no more than one in a second is told.
SELECT count(*) FROM (SELECT revenant.refresh('told-nothing', g) FROM generate_series(1, 100) AS g) AS r;
SELECT count(*) FROM (SELECT revenant.refresh('told', g) FROM generate_series(1, 100) AS g) AS r;
SELECT count(*) < 20 AS few FROM told WHERE n > 2;

-- It ends: by an abdication, not by one that was rolled back; by a lapse, when somebody takes it; by an administrator.
BEGIN;
SELECT revenant.abdicate('told', :token);
ROLLBACK;
SELECT count(*) FROM told WHERE event = 'leadership.lost';
SELECT revenant.abdicate('told', :token);
SELECT (revenant.refresh('told', :token)).is_leader;
SELECT (revenant.claim('told', 'a', '100 ms')).token AS token \gset
SELECT revenant.acquire('told', ttl => '1 h', wait => '1 min') IS NOT NULL AS taken_over;
SELECT revenant.revoke('told', E'it is "stuck"\n') IS NOT NULL AS revoked;
SELECT revenant.try_acquire('told', ttl => '1 h') AS token \gset
BEGIN;
SELECT revenant.revoke('told') = :token AS revoked;
ROLLBACK;
SELECT revenant.revoke('told') = :token AS revoked;
SELECT event, subject, phase, token, detail FROM told WHERE n > 2 AND event <> 'leadership.rejected' ORDER BY n;

-- A long name and a long reason fit, in whole characters.
SELECT revenant.try_acquire('told' || repeat('ü', 254), ttl => '1 h') IS NOT NULL AS held;
SELECT revenant.revoke('told' || repeat('ü', 254), repeat('é', 1000)) IS NOT NULL AS revoked;
SELECT octet_length(subject) AS subject, detail ->> 'reason' ~ '^é{100,}$' AS reason FROM told ORDER BY n DESC LIMIT 1;
SELECT revenant.try_acquire('told-2', ttl => '1 h') IS NOT NULL AS held;
SELECT revenant.revoke('told-2', repeat(E'\001', 1000)) IS NOT NULL AS revoked;
SELECT event, subject, detail FROM told ORDER BY n DESC LIMIT 1;

-- Since a number: what came after it, and numbers only grow.
SELECT max(seq) AS last FROM revenant.events() \gset
SELECT :last > :before AS grown;
SELECT count(*) FROM revenant.events(:last);
SELECT seq - :last AS seq, subject FROM revenant.events(:last - 1);
SELECT count(*) = (SELECT count(*) FROM revenant.events()) AS all_of_them FROM revenant.events(NULL);
SELECT count(*) FROM revenant.events(9223372036854775807);
SELECT count(*) = (SELECT count(*) FROM revenant.events()) AS all_of_them FROM revenant.events(-1);

-- Tokens and details are for who held them, and for administrators.
SET ROLE revenant_teller;
SELECT (revenant.claim('told-role', 'c')).is_leader;
SELECT event, subject, token IS NOT NULL AS token, detail FROM revenant.events(:last);
SELECT count(*) AS of_others FROM revenant.events(:before) AS e WHERE e.subject IN ('told', 'told-2') AND (e.token IS NOT NULL OR e.detail IS NOT NULL);
SET ROLE revenant_listener;
SELECT event, subject, token IS NOT NULL AS token, detail FROM revenant.events(:last);
SET ROLE revenant_chief;
SELECT event, subject, token IS NOT NULL AS token, detail FROM revenant.events(:last);
RESET ROLE;
SELECT revenant.revoke_usage('revenant_listener');
SET ROLE revenant_listener;
SELECT count(*) FROM revenant.events();
RESET ROLE;
SELECT revenant.revoke('told-role') IS NOT NULL AS revoked;

-- The settings: a word, or beginnings of names; anything else is refused.
\set VERBOSITY default
ALTER SYSTEM SET revenant.log_events = 'transition';
ALTER SYSTEM SET revenant.log_events = '';
\set VERBOSITY sqlstate
ALTER SYSTEM SET revenant.log_events = 'leadership.lost', 'nothing.';
SET revenant.log_events = 'off';
SET revenant.notify = on;
SET revenant.event_buffer = 10;
SHOW revenant.log_events;
SHOW revenant.notify;
SHOW revenant.event_buffer;

SELECT revenant.revoke_usage('revenant_teller');
SELECT revenant.revoke_usage('revenant_chief');
DROP ROLE revenant_teller, revenant_listener, revenant_chief;
