-- However a hold ended, its token is worth nothing to any call, whoever has the lease next: nothing says "held", and nothing that is
-- done with it touches the next holder, who may have the same label.
\set VERBOSITY sqlstate

-- What a token is good for. The releases come last, so that they would do their harm.
CREATE FUNCTION pg_temp.worth(lease text, token bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	said text[] := '{}';
BEGIN
	IF revenant.is_current(lease, token) THEN said := said || 'is_current'::text; END IF;
	IF revenant.held_token(lease) = token THEN said := said || 'held_token'::text; END IF;
	IF revenant.renew(lease, token) IS NOT NULL THEN said := said || 'renew'::text; END IF;
	IF revenant.renew_all(ARRAY[lease], token) IS NOT NULL THEN said := said || 'renew_all'::text; END IF;
	IF (revenant.refresh(lease, token)).is_leader THEN said := said || 'refresh'::text; END IF;
	IF (revenant.leader(lease)).token = token THEN said := said || 'leader'::text; END IF;
	IF EXISTS (SELECT FROM revenant.leases AS l WHERE l.lease = worth.lease AND l.token = worth.token) THEN said := said || 'leases'::text; END IF;
	BEGIN
		PERFORM revenant.fence(lease, token);
		said := said || 'fence'::text;
	EXCEPTION WHEN SQLSTATE 'RV001' OR SQLSTATE 'RV002' THEN
		NULL;
	END;
	BEGIN
		IF revenant.abdicate(lease, token) THEN said := said || 'abdicate'::text; RAISE division_by_zero; END IF;
	EXCEPTION WHEN division_by_zero THEN
		NULL;
	END;
	BEGIN
		IF revenant.release_all(ARRAY[lease], token) > 0 THEN said := said || 'release_all'::text; RAISE division_by_zero; END IF;
	EXCEPTION WHEN division_by_zero THEN
		NULL;
	END;
	IF revenant.release(lease, token, hold_off => '1 ms') THEN said := said || 'release'::text; END IF;
	RETURN coalesce(nullif(array_to_string(said, ' '), ''), 'nothing');
END
$$;
CREATE TABLE old_token (how text PRIMARY KEY, lease text, token bigint);
CREATE FUNCTION pg_temp.old(how text, token bigint) RETURNS text LANGUAGE sql AS
$$ INSERT INTO old_token VALUES (how, 'old-' || how, token) RETURNING how $$;

-- One that is current is good for all of it.
SELECT pg_temp.worth('old-control', revenant.acquire('old-control', ttl => '1 h', holder => 'me')) AS ttl;
SELECT pg_temp.worth('old-control-2', revenant.acquire('old-control-2', holder => 'me')) AS session;
SELECT pg_temp.worth('old-control-3', (revenant.claim('old-control-3', 'me')).token) AS election;

/* ---- all the ways to end */

SELECT revenant.acquire('old-released', ttl => '1 h', holder => 'me') AS t \gset
SELECT pg_temp.old('released', :t), revenant.release('old-released', :t);
SELECT revenant.acquire('old-released-session', holder => 'me') AS t \gset
SELECT pg_temp.old('released-session', :t), revenant.release('old-released-session', :t);
SELECT revenant.acquire('old-released-shared', shared => true, holder => 'me') AS t \gset
SELECT pg_temp.old('released-shared', :t), revenant.release('old-released-shared', :t);
SELECT (revenant.claim('old-abdicated', 'me')).token AS t \gset
SELECT pg_temp.old('abdicated', :t), revenant.abdicate('old-abdicated', :t);
SELECT revenant.acquire('old-revoked', ttl => '1 h', holder => 'me') AS t \gset
SELECT pg_temp.old('revoked', :t), revenant.revoke('old-revoked') = :t AS revoked;
SELECT revenant.acquire_all('{old-set,old-set-2}', ttl => '1 h', holder => 'me') AS t \gset
SELECT pg_temp.old('set', :t), revenant.release_all('{old-set,old-set-2}', :t);
BEGIN;
SELECT revenant.acquire_xact('old-xact', holder => 'me') AS x \gset
SELECT revenant.acquire_xact('old-xact-shared', holder => 'me', shared => true) AS y \gset
SELECT revenant.acquire('old-in-one', ttl => '1 h', holder => 'me') AS t \gset
SELECT revenant.release('old-in-one', :t);
COMMIT;
SELECT pg_temp.old('xact', :x), pg_temp.old('xact-shared', :y), pg_temp.old('in-one', :t);
BEGIN;
SELECT revenant.acquire('old-rolled-back', ttl => '1 h', holder => 'me') AS t \gset
SELECT revenant.acquire('old-rolled-back-session', holder => 'me') AS s \gset
ROLLBACK;
SELECT pg_temp.old('rolled-back', :t), pg_temp.old('rolled-back-session', :s);
BEGIN;
SAVEPOINT p;
SELECT revenant.acquire('old-savepoint', ttl => '1 h', holder => 'me') AS t \gset
ROLLBACK TO p;
COMMIT;
SELECT pg_temp.old('savepoint', :t);
SELECT revenant.acquire('old-unlocked', holder => 'me') AS s \gset
SELECT revenant.acquire('old-unlocked-shared', holder => 'me', shared => true) AS h \gset
SELECT revenant.acquire('old-unlocked-bound', ttl => '1 h', holder => 'me', bound => true) AS b \gset
SELECT pg_advisory_unlock_all();
SELECT pg_temp.old('unlocked', :s), pg_temp.old('unlocked-shared', :h), pg_temp.old('unlocked-bound', :b);
SELECT revenant.acquire('old-lapsed', ttl => '100 ms', holder => 'me') AS t \gset
SELECT revenant.acquire('old-taken-over', ttl => '100 ms', holder => 'me') AS t2 \gset
SELECT pg_temp.old('lapsed', :t), pg_temp.old('taken-over', :t2);
SELECT revenant.acquire('old-taken-over', ttl => '1 h', holder => 'me', wait => '1 min') AS next \gset
DO $$ BEGIN WHILE (SELECT revenant.is_current(o.lease, o.token) FROM old_token AS o WHERE o.how = 'lapsed') LOOP NULL; END LOOP; END $$;
SELECT pg_temp.worth('old-taken-over', (SELECT token FROM old_token WHERE how = 'taken-over')) AS worth, revenant.release('old-taken-over', :next) AS next;
-- Never held by anybody.
SELECT pg_temp.old('nobody', 1), pg_temp.old('negative', -1), pg_temp.old('null', NULL);

/* ---- nobody has it */

SELECT o.how, pg_temp.worth(o.lease, o.token) FROM old_token AS o ORDER BY o.how;

/* ---- somebody with the same label has it by ttl */

CREATE TEMP TABLE next AS SELECT o.lease, revenant.acquire(o.lease, ttl => '1 h', holder => 'me') AS token FROM old_token AS o;
SELECT count(*) AS names, count(token) AS acquired FROM next;
SELECT o.how, pg_temp.worth(o.lease, o.token) FROM old_token AS o ORDER BY o.how;
SELECT count(*) AS still_held FROM next AS n WHERE revenant.is_current(n.lease, n.token);
SELECT count(*) AS released FROM next AS n WHERE revenant.release(n.lease, n.token);

/* ---- this very session has it */

TRUNCATE next;
INSERT INTO next SELECT o.lease, revenant.acquire(o.lease, holder => 'me') FROM old_token AS o;
SELECT o.how, pg_temp.worth(o.lease, o.token) FROM old_token AS o ORDER BY o.how;
SELECT count(*) AS still_held FROM next AS n WHERE revenant.is_current(n.lease, n.token) AND revenant.held_token(n.lease) = n.token;
SELECT count(*) AS released FROM next AS n WHERE revenant.release(n.lease, n.token);
TRUNCATE next;
INSERT INTO next SELECT o.lease, revenant.acquire(o.lease, holder => 'me', shared => true) FROM old_token AS o;
SELECT o.how, pg_temp.worth(o.lease, o.token) FROM old_token AS o ORDER BY o.how;
SELECT count(*) AS still_held FROM next AS n WHERE revenant.is_current(n.lease, n.token) AND revenant.held_token(n.lease) = n.token;
SELECT count(*) AS released FROM next AS n WHERE revenant.release(n.lease, n.token);
BEGIN;
TRUNCATE next;
INSERT INTO next SELECT o.lease, revenant.acquire_xact(o.lease, holder => 'me') FROM old_token AS o;
SELECT o.how, pg_temp.worth(o.lease, o.token) FROM old_token AS o ORDER BY o.how;
SELECT count(*) AS still_held FROM next AS n WHERE revenant.is_current(n.lease, n.token) AND revenant.held_token(n.lease) = n.token;
COMMIT;

/* ---- a new session: what the last one held is worth nothing either */

SELECT revenant.acquire('old-ended', holder => 'me') AS s \gset
SELECT revenant.acquire('old-ended-bound', ttl => '1 h', holder => 'me', bound => true) AS b \gset
SELECT revenant.acquire('old-ended-ttl', ttl => '1 h', holder => 'me') AS t \gset
\c -
\set VERBOSITY sqlstate
SELECT revenant.acquire('old-ended', ttl => '1 h', holder => 'me') > :s AS free, revenant.acquire('old-ended-bound', ttl => '1 h', holder => 'me') > :b AS free_too;
SELECT revenant.is_current('old-ended', :s), revenant.renew('old-ended', :s), revenant.release('old-ended', :s),
	revenant.is_current('old-ended-bound', :b), revenant.renew('old-ended-bound', :b), revenant.release('old-ended-bound', :b), revenant.is_current('old-ended-ttl', :t) AS ttl;
SELECT count(*) FILTER (WHERE revenant.release(lease, token)) AS released FROM revenant.leases WHERE lease LIKE 'old-%';
DROP TABLE old_token;
