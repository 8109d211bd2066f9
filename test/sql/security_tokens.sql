-- A token that somebody has guessed or overheard opens nothing: with the right one in the hands of another role each function refuses, says
-- nothing that it should not, and the holder notices nothing. Tokens are numbers in sequence: whoever draws one knows those beside it.

CREATE ROLE regress_alice;
CREATE ROLE regress_bob;
CREATE ROLE regress_kid NOINHERIT IN ROLE regress_alice;
CREATE ROLE regress_reader;
CREATE ROLE regress_admin;
CREATE ROLE regress_none;
SELECT revenant.grant_usage('regress_alice'), revenant.grant_usage('regress_bob'), revenant.grant_usage('regress_kid'),
	revenant.grant_usage('regress_reader', 'reader'), revenant.grant_usage('regress_admin', 'admin');
CREATE TABLE st_said (n serial, role text, call text, answer text);
GRANT ALL ON st_said, st_said_n_seq TO PUBLIC;

-- What a call answers, or its SQLSTATE with all that the error says. A subtransaction takes back what it does.
CREATE FUNCTION st_try(call text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	answer text;
	message text;
	detail text;
	hint text;
BEGIN
	BEGIN
		EXECUTE 'SELECT (' || call || ')::text' INTO answer;
		RAISE SQLSTATE 'ZZ000';
	EXCEPTION WHEN SQLSTATE 'ZZ000' THEN NULL; WHEN OTHERS THEN
		GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
		answer := concat_ws(' ', SQLSTATE, message, detail, hint);
	END;
	INSERT INTO st_said (role, call, answer) VALUES (current_user, call, coalesce(answer, 'null'));
END $$;

SET ROLE regress_alice;
SELECT revenant.acquire('st-ttl', ttl => '1 h', holder => 'alice one', metadata => '{"secret": 1}', request_id => '00000000-0000-0000-0000-0000000000a1') AS ttl \gset
SELECT revenant.acquire('st-session', metadata => '{"secret": 2}') AS session \gset
SELECT revenant.acquire_all('{st-one, st-two}', ttl => '1 h', metadata => '{"secret": 3}') AS pair \gset
SELECT revenant.try_acquire('st-shared', shared => true, metadata => '{"secret": 4}') AS shared \gset
SELECT (revenant.claim('st-election', 'alice one', '1 h')).token AS election \gset
CREATE TEMP TABLE st_call AS SELECT format(c.call, c.token) AS call, format(c.call, c.token - 1000000) AS stale FROM (VALUES
	('revenant.renew(''st-ttl'', %s)', :ttl), ('revenant.renew(''st-ttl'', %s, ''2 h'')', :ttl), ('revenant.renew_all(''{st-one, st-two}'', %s)', :pair),
	('revenant.release(''st-ttl'', %s)', :ttl), ('revenant.release(''st-ttl'', %s, ''1 h'')', :ttl), ('revenant.release(''st-session'', %s)', :session),
	('revenant.release_all(''{st-one, st-two}'', %s)', :pair), ('revenant.release(''st-shared'', %s)', :shared), ('revenant.fence(''st-ttl'', %s)', :ttl),
	('revenant.fence(''st-session'', %s)', :session), ('revenant.fence(''st-one'', %s)', :pair), ('revenant.fence(''st-shared'', %s)', :shared),
	('revenant.refresh(''st-election'', %s)', :election), ('revenant.abdicate(''st-election'', %s)', :election)) AS c (call, token);
GRANT SELECT ON st_call TO PUBLIC;

/* ---- the right token */

SET ROLE regress_bob;
SELECT FROM st_call, st_try(call);
SET ROLE regress_admin;
SELECT FROM st_call, st_try(call);
RESET ROLE;
SELECT role, left(answer, 5) AS state, count(*) FROM st_said GROUP BY 1, 2 ORDER BY 1, 2;
-- Who has no level, or may only look, does not even learn whether it is the right one.
SET ROLE regress_none;
SELECT FROM st_call, st_try(call);
SET ROLE regress_reader;
SELECT FROM st_call, st_try(call);
SELECT FROM st_try(format('revenant.is_current(''st-ttl'', %s)', :ttl));
RESET ROLE;
SELECT role, answer, count(*) FROM st_said WHERE role IN ('regress_none', 'regress_reader') GROUP BY role, answer ORDER BY role, answer COLLATE "C";

/* ---- a wrong one: the answer is anybody's, and has no token in it but the one that was given */

SET ROLE regress_bob;
SELECT FROM st_call, st_try(stale);
RESET ROLE;
SELECT s.answer ~ ' held by "alice one" ' AS holder, count(*) FROM st_said AS s WHERE s.answer LIKE 'RV001%' GROUP BY 1 ORDER BY 1;

/* ---- the same request_id, the same set, the same label, by another role: no repeat, a rival */

SET ROLE regress_bob;
SELECT FROM st_try('revenant.try_acquire(''st-ttl'', ttl => ''1 h'', holder => ''alice one'', request_id => ''00000000-0000-0000-0000-0000000000a1'')');
SELECT FROM st_try('revenant.try_acquire_all(''{st-one, st-two}'', ttl => ''1 h'')');
SELECT FROM st_try('revenant.held_token(''st-ttl'')');
SELECT FROM st_try('revenant.claim(''st-election'', ''alice one'', ''1 h'')');
SELECT FROM st_try('(SELECT concat_ws('' '', l.leader, l.token) FROM revenant.leader(''st-election'') AS l)');
SELECT FROM st_try('revenant.explain_lease(''st-ttl'')');
RESET ROLE;
SELECT substring(call FROM 'revenant\.(\w+)') AS call, regexp_replace(regexp_replace(answer, '(process|in) [0-9.]+', '\1 N', 'g'), '[0-9-]+ [0-9:.]+[+-][0-9]+', 'TIME') AS answer
FROM st_said WHERE n > (SELECT max(n) - 6 FROM st_said) ORDER BY n;

/* ---- not one of all these has told a token, or anything of the metadata */

SELECT count(*) AS calls, count(*) FILTER (WHERE s.answer LIKE '%secret%') AS secrets,
	count(*) FILTER (WHERE s.answer ~ ANY (ARRAY[:'ttl', :'session', :'pair', :'shared', :'election'])) AS tokens
FROM st_said AS s;
SET ROLE regress_bob;
SELECT count(*) AS leases, count(token) AS tokens, count(metadata) AS metadata FROM revenant.leases WHERE lease LIKE 'st-%';
SELECT count(*) > 0 AS events, count(token) AS tokens, count(detail) AS details FROM revenant.events() WHERE subject LIKE 'st-%' AND event <> 'leadership.rejected';
SET ROLE regress_reader;
SELECT count(*) AS leases, count(token) AS tokens, count(metadata) AS metadata FROM revenant.leases WHERE lease LIKE 'st-%';
SELECT count(*) > 0 AS events, count(token) AS tokens, count(detail) AS details FROM revenant.events() WHERE subject LIKE 'st-%' AND event <> 'leadership.rejected';
RESET ROLE;

-- What bob is told of his own attempt is what he has said himself.
SET ROLE regress_bob;
SELECT bool_and(token IS DISTINCT FROM :election) AS another FROM revenant.events() WHERE subject LIKE 'st-%' AND event = 'leadership.rejected';
RESET ROLE;

/* ---- what a session of two roles holds is the one's who acquired */

SET ROLE regress_bob;
SELECT revenant.held_token('st-session') = :session AS knows, revenant.try_acquire('st-session') = :session AS again;	-- the session does, whatever its role is now
SELECT FROM st_try(format('revenant.release(''st-session'', %s)', :session));
RESET ROLE;
SELECT left(answer, 5) AS answer FROM st_said ORDER BY n DESC LIMIT 1;

/* ---- the holder has not noticed, and a member of the role does it all, also one who inherits nothing */

SET ROLE regress_alice;
SELECT revenant.is_current('st-ttl', :ttl) AND revenant.is_current('st-session', :session) AND revenant.is_current('st-one', :pair) AND
	revenant.is_current('st-two', :pair) AND revenant.is_current('st-shared', :shared) AND (revenant.refresh('st-election', :election)).is_leader AS untouched;
SELECT ttl = '1 h' AS as_it_was FROM revenant.leases WHERE lease = 'st-ttl';
SET ROLE regress_kid;
SELECT FROM st_call, st_try(call);
RESET ROLE;
SELECT bool_and(answer !~ '^[0-9A-Z]{5} ') AS done FROM st_said WHERE role = 'regress_kid';
-- By a function of the holder's: the right is that of whoever it runs as.
SET ROLE regress_alice;
SELECT revenant.release('st-ttl', :ttl), revenant.release('st-session', :session), revenant.release_all('{st-one, st-two}', :pair), revenant.release('st-shared', :shared),
	revenant.abdicate('st-election', :election);
RESET ROLE;
CREATE FUNCTION st_lent(call text) RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $$ DECLARE answer text; BEGIN EXECUTE 'SELECT (' || call || ')::text' INTO answer; RETURN answer; END $$;
ALTER FUNCTION st_lent OWNER TO regress_alice;
SET ROLE regress_bob;
SELECT st_lent('revenant.acquire(''st-lent'', ttl => ''1 h'')') AS lent \gset
SELECT lease, role, token FROM revenant.leases WHERE lease = 'st-lent';
SELECT FROM st_try(format('revenant.release(''st-lent'', %s)', :lent));
SELECT st_lent(format('revenant.release(''st-lent'', %s)', :lent));
RESET ROLE;
SELECT left(answer, 5) AS answer FROM st_said ORDER BY n DESC LIMIT 1;

DROP FUNCTION st_lent, st_try;
DROP TABLE st_said, st_call;
SELECT revenant.revoke_usage(r) FROM unnest('{regress_alice, regress_bob, regress_kid, regress_reader, regress_admin}'::text[]) AS r;
DROP ROLE regress_kid, regress_alice, regress_bob, regress_reader, regress_admin, regress_none;
