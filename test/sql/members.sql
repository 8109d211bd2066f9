-- Members are told all that concerns them, once and in order, and again until they know it; who is moved, replaced or lost loses no work, and no attempt unless he vanished.
\set VERBOSITY sqlstate
\pset null (null)

CREATE ROLE revenant_mb_owner;
CREATE ROLE revenant_mb_worker IN ROLE revenant_mb_owner;
CREATE ROLE revenant_mb_other IN ROLE revenant_mb_owner;
SELECT revenant.grant_usage('revenant_mb_owner', 'admin');
CREATE SCHEMA mb AUTHORIZATION revenant_mb_owner;
GRANT USAGE, CREATE ON SCHEMA mb TO revenant_mb_worker, revenant_mb_other;
SET ROLE revenant_mb_owner;
SET search_path = mb, public;
-- Who has joined, by which token, and up to where he knows; and what each was told.
CREATE TABLE joined (plan text, worker text, member bigint, seen bigint DEFAULT 0, PRIMARY KEY (plan, worker));
CREATE TABLE told (n int GENERATED ALWAYS AS IDENTITY, plan text, worker text, member bigint, seq bigint, event text, split text, epoch bigint, weight bigint, spec jsonb, progress jsonb, detail jsonb);
CREATE FUNCTION m(plan text, worker text) RETURNS bigint LANGUAGE sql AS $$ SELECT j.member FROM joined AS j WHERE j.plan = $1 AND j.worker = $2 $$;
CREATE FUNCTION e(plan text, worker text, split text) RETURNS bigint LANGUAGE sql AS $$ SELECT max(t.epoch) FROM told AS t WHERE t.plan = $1 AND t.worker = $2 AND t.split = $3 AND t.event = 'gained' $$;
CREATE FUNCTION make(plan text, splits text, final boolean DEFAULT false, max_attempts int DEFAULT 4, drain_deadline interval DEFAULT '1 h', rebalance_delay interval DEFAULT '0') RETURNS void LANGUAGE plpgsql AS $$
DECLARE g bigint;
BEGIN
	PERFORM revenant.create_plan($1, max_attempts => $4, rebalance_delay => $6, drain_deadline => $5);
	g := revenant.lead_plan($1, 'planner', '1 h');
	PERFORM revenant.publish($1, g, (SELECT jsonb_agg(jsonb_build_object('id', s)) FROM string_to_table($2, ' ') AS s), final => $3);
END $$;
CREATE FUNCTION join_as(plan text, worker text, capacity int DEFAULT NULL, ttl interval DEFAULT NULL) RETURNS text LANGUAGE sql AS $$
	INSERT INTO joined VALUES ($1, $2, revenant.join_plan($1, $2, $3, $4)) ON CONFLICT ON CONSTRAINT joined_pkey DO UPDATE SET member = excluded.member, seen = 0 RETURNING 'joined' $$;
-- One poll: what is new
CREATE FUNCTION poll(plan text, worker text) RETURNS TABLE (event text, split text, detail jsonb) LANGUAGE plpgsql AS $$
DECLARE
	news record;
	j joined;
BEGIN
	SELECT * INTO j FROM joined WHERE joined.plan = $1 AND joined.worker = $2;
	FOR news IN SELECT * FROM revenant.poll_plan($1, j.member, j.seen) LOOP
		INSERT INTO told (plan, worker, member, seq, event, split, epoch, weight, spec, progress, detail)
		VALUES ($1, $2, j.member, news.seq, news.event, news.split, news.epoch, news.weight, news.spec, news.progress, news.detail);
		UPDATE joined SET seen = greatest(seen, news.seq) WHERE joined.plan = $1 AND joined.worker = $2;
		event := news.event;
		split := news.split;
		detail := news.detail;
		RETURN NEXT;
	END LOOP;
END $$;
-- Until a member was told of so many events of a kind in all
CREATE PROCEDURE poll_until(plan text, worker text, event text, n int) LANGUAGE plpgsql AS $$
BEGIN
	LOOP
		PERFORM poll($1, $2);
		COMMIT;
		EXIT WHEN (SELECT count(*) FROM told AS t WHERE t.plan = $1 AND t.worker = $2 AND t.event = $3) >= $4;
		PERFORM pg_sleep(0.01);
		COMMIT;
	END LOOP;
END $$;
-- Until so many splits are as they are to be
CREATE PROCEDURE await_splits(plan text, condition text, n int) LANGUAGE plpgsql AS $$
DECLARE found int;
BEGIN
	LOOP
		EXECUTE format('SELECT count(*) FROM revenant.splits AS s WHERE s.plan = %L AND (%s)', $1, $2) INTO found;
		EXIT WHEN found = $3;
		COMMIT;
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
CREATE FUNCTION shown(plan text) RETURNS TABLE (split text, state text, worker text, attempts int, draining boolean, ended text, progress jsonb) LANGUAGE sql AS $$
	SELECT s.split, s.state, s.worker, s.attempts, s.draining, s.ended, s.progress FROM revenant.splits AS s WHERE s.plan = $1 ORDER BY s.split COLLATE "C"
$$;
CREATE FUNCTION members(plan text) RETURNS TABLE (worker text, state text, capacity int, owned int, weight bigint, token boolean) LANGUAGE sql AS $$
	SELECT v.worker, v.state, v.capacity, v.owned, v.weight, v.member = m($1, v.worker) FROM revenant.members AS v WHERE v.plan = $1 ORDER BY v.worker COLLATE "C"
$$;
-- What an error says to a worker that has lost its place
CREATE FUNCTION complaint(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	message text;
	hint text;
	detail text;
BEGIN
	EXECUTE command;
	RETURN 'none';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT, detail = PG_EXCEPTION_DETAIL;
	RETURN format(E'%s %s\n%s\n%s', SQLSTATE, regexp_replace(message, '\d{6,}', 'N', 'g'), regexp_replace(detail, '(\d{4}-\d\d-\d\d [0-9:.+A-Z -]+\y)|(\d{6,})', 'N', 'g'), hint);
END $$;

/* ---- a member gains what is to be done, with all it needs to know */

SELECT revenant.create_plan('mb a', rebalance_delay => '0', drain_deadline => '1 h');
SELECT revenant.lead_plan('mb a', 'planner', '1 h') AS g \gset
SELECT outcome, created FROM revenant.publish('mb a', :g, '[{"id": "a", "spec": {"from": 1}}, {"id": "b", "weight": 5, "seed": {"progress": "half", "watermark": 7}}, {"id": "c"}, {"id": "z", "seed": {"done": true}}]');
SELECT join_as('mb a', 'one');
SELECT * FROM members('mb a');
CALL poll_until('mb a', 'one', 'gained', 3);
SELECT seq = epoch AS seq, event, split, weight, spec, progress, detail FROM told WHERE plan = 'mb a' ORDER BY split;
SELECT bool_and(t.seq > before) AS grow FROM (SELECT seq, lag(seq, 1, 0) OVER (ORDER BY n) AS before FROM told WHERE plan = 'mb a') AS t;
SELECT * FROM shown('mb a');
SELECT * FROM members('mb a');
-- What is not known yet is told again, as it was; what is known is not.
SELECT count(*), bool_and(p.epoch = t.epoch AND p.seq = t.seq) AS same FROM revenant.poll_plan('mb a', m('mb a', 'one'), 0) AS p JOIN told AS t ON t.plan = 'mb a' AND t.split = p.split;
SELECT min(seq) AS first, max(seq) AS last FROM told WHERE plan = 'mb a' \gset
SELECT count(*) FROM revenant.poll_plan('mb a', m('mb a', 'one'), :first);
SELECT count(*) FROM revenant.poll_plan('mb a', m('mb a', 'one'), 0);
SELECT count(*) FROM revenant.poll_plan('mb a', m('mb a', 'one'), NULL);
SELECT count(*) FROM revenant.poll_plan('mb a', m('mb a', 'one'), :last);
SELECT count(*) FROM revenant.poll_plan('mb a', m('mb a', 'one'));
-- A heartbeat writes nothing.
SELECT deadline AS before FROM revenant.members WHERE plan = 'mb a' \gset
BEGIN;
SELECT count(*) FROM revenant.poll_plan('mb a', m('mb a', 'one'), :last);
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing, deadline > :'before' AS moved FROM revenant.members WHERE plan = 'mb a';
COMMIT;
-- So is a commit of one of its splits a sign of life of it, and of all that it owns.
SELECT deadline AS before FROM revenant.members WHERE plan = 'mb a' \gset
SELECT revenant.commit_split('mb a', 'a', e('mb a', 'one', 'a'), '1');
SELECT m.deadline > :'before' AS moved, bool_and(abs(extract(epoch FROM s.deadline - m.deadline)) < 0.01) AS all_of_them FROM revenant.members AS m JOIN revenant.splits AS s USING (plan, worker) WHERE m.plan = 'mb a' GROUP BY m.deadline;
SELECT deadline AS before FROM revenant.members WHERE plan = 'mb a' \gset
SELECT * FROM revenant.renew_splits('mb a', '{b,c}', ARRAY[e('mb a', 'one', 'b'), e('mb a', 'one', 'a')]);
SELECT deadline > :'before' AS moved FROM revenant.members WHERE plan = 'mb a';
-- New splits, and what is done
SELECT outcome FROM revenant.publish('mb a', :g, '[{"id": "d", "spec": 4}]');
CALL poll_until('mb a', 'one', 'gained', 4);
SELECT revenant.commit_split('mb a', 'd', e('mb a', 'one', 'd'), done => true);
SELECT * FROM members('mb a');
SELECT count(*) FROM poll('mb a', 'one');
-- Who pulls has his own.
SELECT outcome FROM revenant.publish('mb a', :g, '[{"id": "p"}]');
CALL poll_until('mb a', 'one', 'gained', 5);
SELECT count(*) FROM revenant.claim_splits('mb a', 'puller', 10);
-- It leaves, and gives back what it has: no attempt is used up.
BEGIN;
SELECT revenant.leave_plan('mb a', m('mb a', 'one'));
SELECT count(*) FROM revenant.members WHERE plan = 'mb a';
SAVEPOINT s;
SELECT revenant.poll_plan('mb a', m('mb a', 'one'));
ROLLBACK TO s;
SELECT revenant.commit_split('mb a', 'a', e('mb a', 'one', 'a'), '2');
ROLLBACK;
SELECT count(*) FROM poll('mb a', 'one');
SELECT * FROM members('mb a');
SELECT revenant.leave_plan('mb a', m('mb a', 'one')), revenant.leave_plan('mb a', m('mb a', 'one')) AS twice, revenant.leave_plan('mb a', NULL) AS none, revenant.leave_plan('mb a', -1) AS minus, revenant.leave_plan('mb a', :g) AS another;
SELECT * FROM shown('mb a');
SELECT * FROM members('mb a');
SELECT complaint(format('SELECT revenant.poll_plan(%L, %s)', 'mb a', m('mb a', 'one')));
SELECT revenant.commit_split('mb a', 'a', e('mb a', 'one', 'a'), '2');
SELECT revenant.poll_plan('mb a', NULL);
SELECT revenant.poll_plan('mb a', 0);
SELECT revenant.poll_plan('mb a', :g);
SELECT split, attempt, progress FROM revenant.claim_splits('mb a', 'puller', 10) ORDER BY split;
SELECT revenant.drop_plan('mb a');

/* ---- capacity */

SELECT make('mb capacity', 'a b c d e f');
SELECT join_as('mb capacity', 'two', 2), join_as('mb capacity', 'one', 1);
CALL poll_until('mb capacity', 'two', 'gained', 2);
CALL poll_until('mb capacity', 'one', 'gained', 1);
SELECT * FROM members('mb capacity');
SELECT count(*) FROM poll('mb capacity', 'one');
SELECT count(*) FROM poll('mb capacity', 'two');
-- One that is done makes room for another one.
SELECT revenant.commit_split('mb capacity', s.split, s.epoch, done => true) FROM revenant.splits AS s WHERE s.plan = 'mb capacity' AND s.worker = 'one';
CALL poll_until('mb capacity', 'one', 'gained', 2);
SELECT * FROM members('mb capacity');
-- As many as max_in_flight, which may change
SELECT revenant.alter_plan('mb capacity', '{"max_in_flight": 1}');
SELECT join_as('mb capacity', 'null');
CALL poll_until('mb capacity', 'null', 'gained', 1);
SELECT * FROM members('mb capacity');
SELECT revenant.alter_plan('mb capacity', '{"max_in_flight": 3}');
CALL poll_until('mb capacity', 'null', 'gained', 2);
SELECT * FROM members('mb capacity');
SELECT counted.* FROM revenant.plan_progress('mb capacity') AS p, LATERAL (VALUES (p.planned, p.runnable, p.owned, p.done)) AS counted (planned, runnable, owned, done);
SELECT revenant.drop_plan('mb capacity');

/* ---- the same name again: the newest wins, and goes on with what is there, under new epochs */

SELECT make('mb name', 'a b');
SELECT join_as('mb name', 'w') AS first;
CALL poll_until('mb name', 'w', 'gained', 2);
SELECT m('mb name', 'w') AS old, e('mb name', 'w', 'a') AS a, e('mb name', 'w', 'b') AS b, (SELECT seen FROM joined WHERE plan = 'mb name') AS seen \gset
SELECT revenant.commit_split('mb name', 'a', :a, '"half"', 5);
BEGIN;
SELECT join_as('mb name', 'w');
ROLLBACK;
SELECT count(*) FROM revenant.poll_plan('mb name', :old, :seen);
SELECT join_as('mb name', 'w') AS second;
SELECT revenant.poll_plan('mb name', :old, :seen);
SELECT complaint(format('SELECT revenant.poll_plan(%L, %s)', 'mb name', :old));
SELECT revenant.commit_split('mb name', 'a', :a, '"old"');
SELECT revenant.fence_split('mb name', 'b', :b);
SELECT revenant.fail_split('mb name', 'b', :b, 'late');
SELECT revenant.drained('mb name', 'b', :b);
SELECT * FROM revenant.renew_splits('mb name', '{a,b}', ARRAY[:a, :b]);
SELECT revenant.leave_plan('mb name', :old);
-- It need not wait for anybody: it owns them from the commit on, and is told so.
SELECT event, split FROM poll('mb name', 'w') ORDER BY split;
SELECT t.split, t.epoch > CASE t.split WHEN 'a' THEN :a ELSE :b END AS newer, t.progress FROM told AS t WHERE t.plan = 'mb name' AND t.member = m('mb name', 'w') ORDER BY t.split;
SELECT * FROM shown('mb name');
SELECT * FROM members('mb name');
SELECT revenant.commit_split('mb name', 'a', e('mb name', 'w', 'a'), '"more"', 6);
-- Twice in one transaction, and again
BEGIN;
SELECT join_as('mb name', 'w') AS third, m('mb name', 'w') AS third_member \gset
SELECT join_as('mb name', 'w') AS fourth;
COMMIT;
SELECT revenant.poll_plan('mb name', :third_member);
CALL poll_until('mb name', 'w', 'gained', 6);
SELECT * FROM shown('mb name');
SELECT * FROM members('mb name');
-- Another role does not take the name; a member of the one that has it may.
SELECT join_as('mb name', 'w') AS fifth;
SET ROLE revenant_mb_other;
SELECT revenant.join_plan('mb name', 'mine') > 0 AS joined;
SET ROLE revenant_mb_worker;
SELECT revenant.join_plan('mb name', 'mine');
SELECT complaint('SELECT revenant.join_plan(''mb name'', ''mine'')');
RESET ROLE;
SET ROLE revenant_mb_owner;
SELECT revenant.join_plan('mb name', 'mine');
SET ROLE revenant_mb_worker;
SELECT revenant.join_plan('mb name', 'w') > 0 AS joined;
SET ROLE revenant_mb_owner;
-- Now it is that role's, of which this one is no member.
SELECT revenant.poll_plan('mb name', (SELECT v.member FROM revenant.members AS v WHERE v.plan = 'mb name' AND v.worker = 'w'));
SELECT revenant.leave_plan('mb name', (SELECT v.member FROM revenant.members AS v WHERE v.plan = 'mb name' AND v.worker = 'w'));
SELECT worker, state, owned FROM members('mb name');
SELECT max(attempts) AS attempts FROM revenant.splits WHERE plan = 'mb name';
SELECT revenant.drop_plan('mb name');
-- The same request again is the same member, no newer one.
SELECT make('mb request', 'a');
SELECT revenant.join_plan('mb request', 'w', request_id => '00000000-0000-0000-0000-000000000301') AS member \gset
SELECT revenant.join_plan('mb request', 'w', request_id => '00000000-0000-0000-0000-000000000301') = :member AS same;
SELECT count(*) FROM revenant.poll_plan('mb request', :member);
SELECT revenant.join_plan('mb request', 'v', request_id => '00000000-0000-0000-0000-000000000301');
SELECT revenant.claim_splits('mb request', 'w', request_id => '00000000-0000-0000-0000-000000000301');
SELECT revenant.join_plan('mb request', 'w', request_id => '00000000-0000-0000-0000-000000000302') > :member AS newer;
SELECT revenant.join_plan('mb request', 'w', request_id => '00000000-0000-0000-0000-000000000301') = :member AS same;
SELECT revenant.poll_plan('mb request', :member);
SELECT count(*) FROM revenant.members WHERE plan = 'mb request';
SELECT revenant.drop_plan('mb request');

/* ---- somebody joins: what is moved is asked for, and handed over by its member */

SELECT make('mb drain', 'a b c d');
SELECT join_as('mb drain', 'one');
CALL poll_until('mb drain', 'one', 'gained', 4);
SELECT join_as('mb drain', 'two');
CALL poll_until('mb drain', 'one', 'revoke', 2);
SELECT event, split, detail FROM told WHERE plan = 'mb drain' AND event <> 'gained' ORDER BY split;
SELECT bool_and(t.epoch = e('mb drain', 'one', t.split)) AS epoch, bool_and(t.seq > t.epoch) AS seq FROM told AS t WHERE t.plan = 'mb drain' AND t.event = 'revoke';
SELECT * FROM shown('mb drain');
SELECT event, split FROM revenant.poll_plan('mb drain', m('mb drain', 'one'), (SELECT max(epoch) FROM told WHERE plan = 'mb drain')) ORDER BY split;
SELECT count(*) FROM poll('mb drain', 'two');
SELECT min(split) AS first, max(split) AS second FROM told WHERE plan = 'mb drain' AND event = 'revoke' \gset
-- One is worked on a little longer, and handed over.
SELECT revenant.commit_split('mb drain', :'first', e('mb drain', 'one', :'first'), '"at the end"');
SELECT draining FROM shown('mb drain') WHERE split = :'first';
SELECT revenant.drained('mb drain', :'first', e('mb drain', 'one', :'first')), revenant.drained('mb drain', :'first', e('mb drain', 'one', :'first')) AS twice;
SELECT revenant.commit_split('mb drain', :'first', e('mb drain', 'one', :'first'), '"later"');
CALL poll_until('mb drain', 'two', 'gained', 1);
SELECT t.split = :'first' AS split, t.progress FROM told AS t WHERE t.plan = 'mb drain' AND t.worker = 'two';
-- The other one is kept: it is not asked for again at once, another one is.
SELECT revenant.decline_revoke('mb drain', :'second', e('mb drain', 'one', :'second')), revenant.decline_revoke('mb drain', :'second', e('mb drain', 'one', :'second')) AS twice;
CALL poll_until('mb drain', 'one', 'revoke', 3);
SELECT count(*) FILTER (WHERE split = :'second') AS declined, count(DISTINCT split) AS asked_for FROM told WHERE plan = 'mb drain' AND event = 'revoke';
SELECT max(attempts) AS attempts, count(*) FILTER (WHERE draining) AS draining FROM shown('mb drain');
-- What is done meanwhile is not handed over.
SELECT split AS third FROM shown('mb drain') WHERE draining \gset
SELECT revenant.commit_split('mb drain', :'third', e('mb drain', 'one', :'third'), done => true);
SELECT state, ended FROM shown('mb drain') WHERE split = :'third';
SELECT worker, owned FROM members('mb drain') ORDER BY worker;
SELECT revenant.drop_plan('mb drain');
-- Drained without having been asked, and declined without: the one is given back, the other is kept.
SELECT make('mb drain', 'a b');
SELECT join_as('mb drain', 'one');
DELETE FROM told WHERE plan = 'mb drain';
CALL poll_until('mb drain', 'one', 'gained', 2);
SELECT revenant.decline_revoke('mb drain', 'a', e('mb drain', 'one', 'a')), revenant.drained('mb drain', 'b', e('mb drain', 'one', 'b'));
CALL poll_until('mb drain', 'one', 'gained', 3);
SELECT split, state, worker, attempts FROM shown('mb drain');
SELECT revenant.drained('mb drain', 'a', e('mb drain', 'one', 'a') - 1);
SELECT revenant.drained('mb drain', 'a', NULL);
SELECT revenant.decline_revoke('mb drain', 'a', NULL);
SELECT revenant.decline_revoke('mb drain', 'none', 1);
SELECT revenant.drop_plan('mb drain');

-- Only its role can hand it over, by the right epoch, too.
SELECT make('mb drain', 'a');
SET ROLE revenant_mb_worker;
SELECT revenant.join_plan('mb drain', 'mine') AS member \gset
CREATE PROCEDURE poll_once(plan text, member bigint) LANGUAGE plpgsql AS $$
BEGIN
	WHILE NOT EXISTS (SELECT FROM revenant.poll_plan($1, $2)) LOOP COMMIT; PERFORM pg_sleep(0.01); COMMIT; END LOOP;
END $$;
CALL poll_once('mb drain', :member);
SELECT epoch AS a FROM revenant.splits WHERE plan = 'mb drain' AND split = 'a' \gset
SET ROLE revenant_mb_other;
SELECT revenant.drained('mb drain', 'a', :a);
SELECT revenant.decline_revoke('mb drain', 'a', :a);
SELECT revenant.poll_plan('mb drain', :member);
SELECT revenant.leave_plan('mb drain', :member);
SET ROLE revenant_mb_worker;
SELECT revenant.decline_revoke('mb drain', 'a', :a), revenant.drained('mb drain', 'a', :a), revenant.leave_plan('mb drain', :member);
SET ROLE revenant_mb_owner;
SELECT revenant.drop_plan('mb drain');

/* ---- not handed over in time: taken back; asked for in vain: kept, by who is heard of */

SELECT make('mb force', 'a b', drain_deadline => '300 ms');
SELECT join_as('mb force', 'one');
CALL poll_until('mb force', 'one', 'gained', 2);
SELECT join_as('mb force', 'two');
CALL poll_until('mb force', 'one', 'lost', 1);
SELECT event, detail, count(DISTINCT split) AS splits FROM told WHERE plan = 'mb force' AND worker = 'one' AND event <> 'gained' GROUP BY event, detail ORDER BY event;
SELECT split AS lost FROM told WHERE plan = 'mb force' AND event = 'lost' \gset
SELECT attempts, progress FROM shown('mb force') WHERE split = :'lost';
SELECT revenant.commit_split('mb force', :'lost', e('mb force', 'one', :'lost'), '1');
CALL poll_until('mb force', 'two', 'gained', 1);
SELECT split = :'lost' AS lost, worker, attempts FROM shown('mb force') ORDER BY worker;
SELECT revenant.drop_plan('mb force');
-- The reason for it is gone before it was handed over.
SELECT make('mb cancel', 'a b c d');
SELECT join_as('mb cancel', 'one');
CALL poll_until('mb cancel', 'one', 'gained', 4);
SELECT join_as('mb cancel', 'two');
CALL poll_until('mb cancel', 'one', 'revoke', 2);
SELECT revenant.drained('mb cancel', min(split), e('mb cancel', 'one', min(split))) FROM told WHERE plan = 'mb cancel' AND event = 'revoke';
CALL poll_until('mb cancel', 'two', 'gained', 1);
SELECT revenant.leave_plan('mb cancel', m('mb cancel', 'two'));
CALL poll_until('mb cancel', 'one', 'revoke_cancelled', 1);
CALL poll_until('mb cancel', 'one', 'gained', 5);
SELECT event, count(*), count(DISTINCT split) AS splits FROM told WHERE plan = 'mb cancel' AND worker = 'one' GROUP BY event ORDER BY event;
SELECT * FROM shown('mb cancel');
SELECT revenant.drop_plan('mb cancel');
-- Who is silent then, though he lives, is told that he has lost it: nothing is known of what he does.
SELECT make('mb starve', 'a b');
SELECT join_as('mb starve', 'one', ttl => '1 h');
CALL poll_until('mb starve', 'one', 'gained', 2);
SELECT join_as('mb starve', 'two');
CALL poll_until('mb starve', 'one', 'revoke', 1);
SELECT revenant.leave_plan('mb starve', m('mb starve', 'two'));
CALL await_splits('mb starve', 'NOT draining', 2);
SELECT revenant.alter_plan('mb starve', '{"drain_deadline": "300 ms"}');
CALL await_splits('mb starve', $$ended = 'starved'$$, 1);
SELECT attempts, state FROM shown('mb starve') WHERE ended = 'starved';
CALL poll_until('mb starve', 'one', 'lost', 1);
SELECT detail FROM told WHERE plan = 'mb starve' AND event = 'lost';
CALL poll_until('mb starve', 'one', 'gained', 3);
SELECT event, count(*) FROM told WHERE plan = 'mb starve' AND worker = 'one' GROUP BY event ORDER BY event;
SELECT split, state, worker, attempts FROM shown('mb starve');
SELECT revenant.drop_plan('mb starve');
-- Nothing is moved for the sake of balance before rebalance_delay; what is nobody's is assigned at once.
SELECT make('mb delay', 'a b c d', rebalance_delay => '1 h');
SELECT join_as('mb delay', 'one');
CALL poll_until('mb delay', 'one', 'gained', 4);
SELECT join_as('mb delay', 'two');
SELECT revenant.publish('mb delay', p.generation, '[{"id": "e"}]') FROM revenant.plans AS p WHERE p.plan = 'mb delay';
CALL poll_until('mb delay', 'two', 'gained', 1);
SELECT event, count(*) FROM told WHERE plan = 'mb delay' GROUP BY event ORDER BY event;
SELECT worker, owned FROM members('mb delay');
SELECT revenant.drop_plan('mb delay');

/* ---- a member that vanished: an attempt, and somebody else's turn */

SELECT make('mb gone', 'a b', max_attempts => 2);
SELECT join_as('mb gone', 'one', ttl => '1 s');
CALL poll_until('mb gone', 'one', 'gained', 2);
SELECT e('mb gone', 'one', 'a') AS a \gset
CALL await_splits('mb gone', $$state = 'owned'$$, 0);
SELECT * FROM shown('mb gone');
SELECT * FROM members('mb gone');
SELECT complaint(format('SELECT revenant.poll_plan(%L, %s)', 'mb gone', m('mb gone', 'one')));
SELECT revenant.commit_split('mb gone', 'a', :a, '1');
SELECT revenant.leave_plan('mb gone', m('mb gone', 'one'));
SELECT r ->> 'worker' AS worker, r ->> 'reason' AS reason FROM revenant.splits AS s, jsonb_array_elements(s.reasons) AS r WHERE s.plan = 'mb gone' AND s.split = 'a';
SELECT join_as('mb gone', 'two');
CALL poll_until('mb gone', 'two', 'gained', 2);
SELECT revenant.commit_split('mb gone', 'a', :a, '1');
SELECT revenant.poll_plan('mb gone', m('mb gone', 'one'));
-- It may come back, as a new one.
SELECT join_as('mb gone', 'one', ttl => '1 h');
SELECT count(*) FROM poll('mb gone', 'one') WHERE event = 'gained';
SELECT worker, state FROM members('mb gone');
SELECT revenant.drop_plan('mb gone');

/* ---- what was told in a transaction that was rolled back is told again; joined in one, nobody has */

SELECT make('mb back', 'a b');
BEGIN;
SELECT join_as('mb back', 'w');
SELECT count(*) FROM poll('mb back', 'w');
SELECT worker, state FROM members('mb back');
ROLLBACK;
SELECT count(*) FROM revenant.members WHERE plan = 'mb back';
BEGIN;
SAVEPOINT s;
SELECT revenant.join_plan('mb back', 'w') AS lost \gset
ROLLBACK TO s;
SELECT revenant.poll_plan('mb back', :lost);
ROLLBACK TO s;
SELECT join_as('mb back', 'w');
SELECT revenant.leave_plan('mb back', m('mb back', 'w'));
SELECT join_as('mb back', 'w');
COMMIT;
SELECT worker, state FROM members('mb back');
-- The offers are there: in a transaction they are gained, and not.
CREATE FUNCTION gained(plan text, worker text, n int) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	WHILE (SELECT count(*) FROM told AS t WHERE t.plan = $1 AND t.worker = $2 AND t.event = 'gained') < $3 LOOP PERFORM poll($1, $2); END LOOP;
	RETURN (SELECT count(*) FROM revenant.splits AS s WHERE s.plan = $1 AND s.worker = $2);
END $$;
BEGIN;
SELECT gained('mb back', 'w', 2);
SELECT revenant.commit_split('mb back', 'a', e('mb back', 'w', 'a'), '"in vain"');
SELECT e('mb back', 'w', 'a') AS a \gset
ROLLBACK;
SELECT count(*) FROM told WHERE plan = 'mb back';
CALL poll_until('mb back', 'w', 'gained', 2);
SELECT e('mb back', 'w', 'a') > :a AS newer;
SELECT revenant.commit_split('mb back', 'a', :a, '1');
SELECT * FROM shown('mb back');
SELECT revenant.drop_plan('mb back');
-- Gained and left in one transaction; gained and replaced in one: no attempt.
SELECT make('mb brief', 'a b');
SELECT join_as('mb brief', 'w');
BEGIN;
SELECT gained('mb brief', 'w', 2);
SELECT revenant.leave_plan('mb brief', m('mb brief', 'w'));
COMMIT;
CALL await_splits('mb brief', $$state = 'runnable'$$, 2);
SELECT * FROM shown('mb brief');
DELETE FROM told WHERE plan = 'mb brief';
SELECT join_as('mb brief', 'w');
BEGIN;
SELECT gained('mb brief', 'w', 2);
SELECT join_as('mb brief', 'w');
COMMIT;
CALL poll_until('mb brief', 'w', 'gained', 4);
SELECT split, state, worker, attempts FROM shown('mb brief');
SELECT * FROM members('mb brief');
SELECT revenant.drop_plan('mb brief');

/* ---- given up; the end of the plan, told to each member once */

SELECT make('mb end', 'a b', max_attempts => 2, final => true);
SELECT join_as('mb end', 'one'), join_as('mb end', 'idle', 1);
CALL poll_until('mb end', 'one', 'gained', 1);
CALL poll_until('mb end', 'idle', 'gained', 1);
SELECT split AS mine FROM shown('mb end') WHERE worker = 'one' \gset
SELECT split AS other FROM shown('mb end') WHERE worker = 'idle' \gset
SELECT revenant.commit_split('mb end', :'other', e('mb end', 'idle', :'other'), done => true);
SELECT revenant.alter_plan('mb end', '{"max_attempts": 1}');
SELECT revenant.fail_split('mb end', :'mine', e('mb end', 'one', :'mine'), E'a "broken" disk\n');
CALL poll_until('mb end', 'one', 'stalled', 1);
CALL poll_until('mb end', 'idle', 'stalled', 1);
SELECT worker, event, split = :'mine' AS mine, epoch = e('mb end', 'one', :'mine') AS epoch, detail - 'reasons' AS detail, jsonb_array_length(detail -> 'reasons') AS reasons, detail #>> '{reasons,0,reason}' AS reason
FROM told WHERE plan = 'mb end' AND event <> 'gained' ORDER BY worker, n;
SELECT count(*) FROM poll('mb end', 'one');
SELECT count(*) FROM poll('mb end', 'idle');
-- Told again until it is known, also to who joins now.
SELECT event, detail FROM revenant.poll_plan('mb end', m('mb end', 'idle'), 0);
SELECT join_as('mb end', 'late');
SELECT * FROM poll('mb end', 'late');
SELECT * FROM poll('mb end', 'late');
-- It goes on, and ends well.
SELECT revenant.requeue_split('mb end', :'mine');
SELECT revenant.leave_plan('mb end', m('mb end', 'one')), revenant.leave_plan('mb end', m('mb end', 'late'));
CALL poll_until('mb end', 'idle', 'gained', 2);
SELECT state FROM revenant.plans WHERE plan = 'mb end';
SELECT revenant.commit_split('mb end', :'mine', e('mb end', 'idle', :'mine'), done => true);
CALL poll_until('mb end', 'idle', 'complete', 1);
SELECT event, split = :'mine' AS mine, detail FROM told WHERE plan = 'mb end' AND worker = 'idle' ORDER BY n;
SELECT count(*) FROM poll('mb end', 'idle');
SELECT event, count(*) FROM revenant.events() WHERE subject = 'mb end' AND event LIKE 'plan.%' GROUP BY event ORDER BY event;
SELECT revenant.drop_plan('mb end');

/* ---- reset and drop under a member */

SELECT make('mb reset', 'a b');
SELECT join_as('mb reset', 'w');
CALL poll_until('mb reset', 'w', 'gained', 2);
SELECT revenant.reset_plan('mb reset');
SELECT revenant.commit_split('mb reset', 'a', e('mb reset', 'w', 'a'), '1');
SELECT count(*) FROM poll('mb reset', 'w');
SELECT revenant.lead_plan('mb reset', 'planner', '1 h') AS g \gset
SELECT outcome FROM revenant.publish('mb reset', :g, '[{"id": "a"}, {"id": "c"}]');
CALL poll_until('mb reset', 'w', 'gained', 4);
SELECT * FROM members('mb reset');
SELECT * FROM shown('mb reset');
SELECT revenant.drop_plan('mb reset');
SELECT revenant.poll_plan('mb reset', m('mb reset', 'w'));
SELECT revenant.leave_plan('mb reset', m('mb reset', 'w'));
SELECT revenant.create_plan('mb reset');
SELECT revenant.poll_plan('mb reset', m('mb reset', 'w'));
SELECT revenant.leave_plan('mb reset', m('mb reset', 'w'));
SELECT count(*) FROM revenant.members WHERE plan LIKE 'mb %';
SELECT revenant.drop_plan('mb reset');

/* ---- nothing is left */

RESET ROLE;
SELECT count(*) FROM revenant.plans WHERE plan LIKE 'mb %';
SELECT count(*) FROM revenant.member;
SELECT count(*) FROM revenant.split_state;
SELECT revenant.revoke_usage('revenant_mb_owner');
\set VERBOSITY terse
SET client_min_messages = warning;
DROP SCHEMA mb CASCADE;
DROP ROLE revenant_mb_owner, revenant_mb_worker, revenant_mb_other;
