-- A split is nobody's but its worker's: each claim has an epoch of its own, what an older one writes is refused, progress only grows, and only what was no graceful end counts as an attempt.
\set VERBOSITY sqlstate
\pset null (null)

-- What this session has claimed, and its latest epoch of a split.
CREATE TABLE held (plan text, split text, epoch bigint, attempt int, n int GENERATED ALWAYS AS IDENTITY);
CREATE FUNCTION e(plan text, split text) RETURNS bigint LANGUAGE sql AS $$ SELECT max(h.epoch) FROM held AS h WHERE h.plan = $1 AND h.split = $2 $$;
CREATE FUNCTION claim(plan text, n int DEFAULT 1, ttl interval DEFAULT NULL, worker text DEFAULT 'w', request_id uuid DEFAULT NULL) RETURNS TABLE (split text, attempt int, progress jsonb) LANGUAGE plpgsql AS $$
DECLARE c record;
BEGIN
	FOR c IN SELECT * FROM revenant.claim_splits($1, $4, $2, $3, NULL, $5) LOOP
		INSERT INTO held VALUES ($1, c.split, c.epoch, c.attempt);
		split := c.split;
		attempt := c.attempt;
		progress := c.progress;
		RETURN NEXT;
	END LOOP;
END $$;
-- A plan with splits of these names
CREATE FUNCTION make(plan text, splits text, final boolean DEFAULT false, lease_ttl interval DEFAULT '30 s', max_attempts int DEFAULT 4) RETURNS void LANGUAGE plpgsql AS $$
DECLARE g bigint;
BEGIN
	PERFORM revenant.create_plan($1, lease_ttl => $4, max_attempts => $5);
	g := revenant.lead_plan($1, 'planner', '1 h');
	PERFORM revenant.publish($1, g, (SELECT jsonb_agg(jsonb_build_object('id', s, 'spec', upper(s))) FROM string_to_table($2, ' ') AS s), final => $3);
END $$;
CREATE FUNCTION shown(plan text) RETURNS TABLE (split text, state text, worker text, attempts int, watermark numeric, progress jsonb, ended text) LANGUAGE sql AS $$
	SELECT s.split, s.state, s.worker, s.attempts, s.watermark, s.progress, s.ended FROM revenant.splits AS s WHERE s.plan = $1 ORDER BY s.split COLLATE "C"
$$;
CREATE FUNCTION counted(plan text) RETURNS text LANGUAGE sql AS $$
	SELECT format('planned=%s runnable=%s owned=%s done=%s quarantined=%s', planned, runnable, owned, done, quarantined) FROM revenant.plan_progress($1)
$$;
-- Where the row of a split is: as long as this is the same, nothing was written.
CREATE FUNCTION place(plan text, split text) RETURNS text LANGUAGE sql AS $$
	SELECT format('%s %s', t.ctid, t.xmin) FROM revenant.plan AS p JOIN revenant.split AS s USING (plan_id) JOIN revenant.split_state AS t USING (plan_id, number) WHERE p.plan = $1 AND s.split = $2
$$;
CREATE FUNCTION deadline(plan text, split text) RETURNS timestamptz LANGUAGE sql AS $$ SELECT s.deadline FROM revenant.splits AS s WHERE s.plan = $1 AND s.split = $2 $$;
-- Until its time is over; until the supervisor has seen that.
CREATE FUNCTION lapse(plan text, split text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN WHILE deadline($1, $2) > clock_timestamp() LOOP NULL; END LOOP; END $$;
CREATE PROCEDURE await_end(plan text, split text) LANGUAGE plpgsql AS $$
BEGIN
	WHILE EXISTS (SELECT FROM revenant.splits AS s WHERE s.plan = $1 AND s.split = $2 AND s.state = 'owned') LOOP COMMIT; PERFORM pg_sleep(0.01); END LOOP;
END $$;
CREATE PROCEDURE await_state(plan text, state text) LANGUAGE plpgsql AS $$
BEGIN
	WHILE NOT EXISTS (SELECT FROM revenant.plans AS p WHERE p.plan = $1 AND p.state = $2) LOOP PERFORM pg_sleep(0.01); END LOOP;
END $$;

/* ---- claims: those never owned first, in the order of their publication; then what was given back */

SELECT make('sw order', 'c a b e d');
SELECT split, epoch > 0 AS epoch, spec, progress, attempt FROM revenant.claim_splits('sw order', 'w1', 2);
SELECT * FROM shown('sw order');
SELECT counted('sw order');
SELECT revenant.release_split('sw order', s.split, s.epoch) FROM revenant.splits AS s WHERE s.plan = 'sw order' AND s.state = 'owned' ORDER BY s.split;
SELECT * FROM claim('sw order', 2);
SELECT * FROM claim('sw order', 10);
SELECT * FROM claim('sw order', 10);
SELECT counted('sw order');
SELECT revenant.fail_split('sw order', 'e', e('sw order', 'e'), 'no'), revenant.release_split('sw order', 'd', e('sw order', 'd'));
SELECT * FROM claim('sw order');
SELECT * FROM claim('sw order');
SELECT count(*), count(DISTINCT epoch) AS epochs, bool_and(epoch > before) AS grow FROM (SELECT epoch, lag(epoch, 1, 0) OVER (ORDER BY n) AS before FROM held) AS h;
SELECT revenant.drop_plan('sw order');

/* ---- what was claimed in vain can be claimed again, before what was given back */

SELECT make('sw back', 'a b c d');
SELECT * FROM claim('sw back');
SELECT revenant.release_split('sw back', 'a', e('sw back', 'a'));
BEGIN;
SELECT * FROM claim('sw back', 2);
SELECT counted('sw back');
ROLLBACK;
SELECT counted('sw back');
BEGIN;
SELECT * FROM claim('sw back');
SAVEPOINT s;
SELECT split, epoch AS lost FROM revenant.claim_splits('sw back', 'w', 10) ORDER BY epoch LIMIT 1 \gset
SELECT :'split' AS split, counted('sw back');
ROLLBACK TO s;
SELECT revenant.commit_split('sw back', 'c', :lost, '1');
ROLLBACK TO s;
SELECT counted('sw back');
SELECT * FROM claim('sw back', 2);
-- Given back in the transaction that claimed it: it can be had after the commit.
SELECT revenant.release_split('sw back', 'b', e('sw back', 'b'));
SELECT * FROM claim('sw back', 10);
SELECT counted('sw back');
COMMIT;
SELECT counted('sw back');
SELECT * FROM shown('sw back');
SELECT * FROM claim('sw back', 10);
-- An end that was rolled back is none.
BEGIN;
SELECT revenant.commit_split('sw back', 'a', e('sw back', 'a'), done => true), revenant.fail_split('sw back', 'b', e('sw back', 'b'), 'no'), revenant.release_split('sw back', 'c', e('sw back', 'c'));
SELECT counted('sw back');
ROLLBACK;
SELECT counted('sw back');
BEGIN;
SAVEPOINT s;
SELECT revenant.release_split('sw back', 'a', e('sw back', 'a'));
SAVEPOINT t;
SELECT revenant.commit_split('sw back', 'a', e('sw back', 'a'), '1');
ROLLBACK TO t;
SELECT revenant.release_split('sw back', 'a', e('sw back', 'a'));
ROLLBACK TO s;
SELECT revenant.commit_split('sw back', 'a', e('sw back', 'a'), '1');
COMMIT;
SELECT * FROM shown('sw back');
SELECT revenant.drop_plan('sw back');

/* ---- the same request again */

SELECT make('sw request', 'a b c d e f');
SELECT * FROM claim('sw request', 2, request_id => '00000000-0000-0000-0000-000000000201');
SELECT c.split, c.epoch = e('sw request', c.split) AS same, c.spec, c.progress, c.attempt FROM revenant.claim_splits('sw request', 'w', 2, request_id => '00000000-0000-0000-0000-000000000201') AS c;
SELECT revenant.commit_split('sw request', 'a', e('sw request', 'a'), done => true), revenant.commit_split('sw request', 'b', e('sw request', 'b'), '"half"');
SELECT c.split, c.epoch = e('sw request', c.split) AS same, c.progress FROM revenant.claim_splits('sw request', 'w', 2, request_id => '00000000-0000-0000-0000-000000000201') AS c;
SELECT revenant.release_split('sw request', 'b', e('sw request', 'b'));
SELECT count(*) FROM revenant.claim_splits('sw request', 'w', 2, request_id => '00000000-0000-0000-0000-000000000201');
SELECT counted('sw request');
-- It was another one's, or for something else.
SELECT revenant.claim_splits('sw request', 'another', 2, request_id => '00000000-0000-0000-0000-000000000201');
SELECT revenant.join_plan('sw request', 'w', request_id => '00000000-0000-0000-0000-000000000201');
-- A request that was rolled back was not made.
BEGIN;
SELECT * FROM claim('sw request', 2, request_id => '00000000-0000-0000-0000-000000000202');
SELECT c.split, c.epoch = e('sw request', c.split) AS same FROM revenant.claim_splits('sw request', 'w', 2, request_id => '00000000-0000-0000-0000-000000000202') AS c;
ROLLBACK;
SELECT * FROM claim('sw request', 1, request_id => '00000000-0000-0000-0000-000000000202');
SELECT c.split, c.epoch = e('sw request', c.split) AS same FROM revenant.claim_splits('sw request', 'w', 9, request_id => '00000000-0000-0000-0000-000000000202') AS c;
-- One that got nothing gets nothing again.
SELECT count(*) FROM claim('sw request', 10);
SELECT * FROM claim('sw request', 10, request_id => '00000000-0000-0000-0000-000000000203');
SELECT revenant.release_split('sw request', 'd', e('sw request', 'd'));
SELECT * FROM claim('sw request', 10, request_id => '00000000-0000-0000-0000-000000000203');
SELECT revenant.drop_plan('sw request');

/* ---- commit: progress and watermark; null keeps; a watermark grows; done is the end */

SELECT make('sw commit', 'a b c');
SELECT * FROM claim('sw commit');
SELECT revenant.commit_split('sw commit', 'a', e('sw commit', 'a'), '{"at": 1}', 10);
SELECT * FROM shown('sw commit') WHERE split = 'a';
SELECT revenant.commit_split('sw commit', 'a', e('sw commit', 'a'), '{"at": 2}');
SELECT * FROM shown('sw commit') WHERE split = 'a';
SELECT revenant.commit_split('sw commit', 'a', e('sw commit', 'a'), watermark => 10.5);
SELECT * FROM shown('sw commit') WHERE split = 'a';
SELECT revenant.commit_split('sw commit', 'a', e('sw commit', 'a'), watermark => 10.4);
SELECT revenant.commit_split('sw commit', 'a', e('sw commit', 'a'), '{"at": 0}', 10.4);
SELECT revenant.commit_split('sw commit', 'a', e('sw commit', 'a'), '{"at": 0}', -1, true);
\set VERBOSITY default
SELECT revenant.commit_split('sw commit', 'a', e('sw commit', 'a'), '{"at": 0}', 10.4);
\set VERBOSITY sqlstate
SELECT * FROM shown('sw commit') WHERE split = 'a';
-- What says nothing new writes nothing: the same again, a heartbeat, a renewal.
SELECT place('sw commit', 'a') AS place \gset
SELECT revenant.commit_split('sw commit', 'a', e('sw commit', 'a'), '{"at":2}', 10.50), revenant.commit_split('sw commit', 'a', e('sw commit', 'a')),
	revenant.commit_split('sw commit', 'a', e('sw commit', 'a'), done => NULL), revenant.commit_split('sw commit', 'a', e('sw commit', 'a'), watermark => 10.5);
SELECT * FROM revenant.renew_splits('sw commit', '{a}', ARRAY[e('sw commit', 'a')], '1 h');
SELECT place('sw commit', 'a') = :'place' AS unchanged;
SELECT revenant.commit_split('sw commit', 'a', e('sw commit', 'a'), 'null', 1e20);
SELECT * FROM shown('sw commit') WHERE split = 'a';
SELECT revenant.commit_split('sw commit', 'a', e('sw commit', 'a'), '"last"', done => true);
SELECT * FROM shown('sw commit') WHERE split = 'a';
-- Repeated, also after it is done: it has been done. Anything else is refused.
SELECT place('sw commit', 'a') AS place \gset
SELECT revenant.commit_split('sw commit', 'a', e('sw commit', 'a'), '"last"', done => true), revenant.commit_split('sw commit', 'a', e('sw commit', 'a'), done => true),
	revenant.commit_split('sw commit', 'a', e('sw commit', 'a'), '"last"', 1e20);
SELECT revenant.commit_split('sw commit', 'a', e('sw commit', 'a'), '"another"', done => true);
SELECT revenant.commit_split('sw commit', 'a', e('sw commit', 'a'), '"last"', 1e21, done => true);
SELECT revenant.commit_split('sw commit', 'a', e('sw commit', 'a') - 1, '"last"', done => true);
SELECT revenant.release_split('sw commit', 'a', e('sw commit', 'a'));
SELECT revenant.fail_split('sw commit', 'a', e('sw commit', 'a'), 'no');
SELECT revenant.fence_split('sw commit', 'a', e('sw commit', 'a'));
SELECT * FROM revenant.renew_splits('sw commit', '{a}', ARRAY[e('sw commit', 'a')]);
SELECT place('sw commit', 'a') = :'place' AS unchanged;
\set VERBOSITY terse
SELECT revenant.release_split('sw commit', 'a', NULL);
SELECT revenant.commit_split('sw commit', 'none', 1, '1');
\set VERBOSITY sqlstate
-- Epochs that are none, or were others'
SELECT revenant.commit_split('sw commit', 'b', NULL, '1');
SELECT revenant.commit_split('sw commit', 'b', 0, '1');
SELECT revenant.commit_split('sw commit', 'b', -1, '1');
SELECT revenant.commit_split('sw commit', 'b', e('sw commit', 'a'), '1');
SELECT revenant.commit_split('sw commit', 'b', 9223372036854775807, '1');
SELECT * FROM claim('sw commit', 2);
SELECT revenant.commit_split('sw commit', 'b', e('sw commit', 'c'), '1');
SELECT revenant.release_split('sw commit', 'b', e('sw commit', 'b'));
SELECT revenant.commit_split('sw commit', 'b', e('sw commit', 'b'), '1');
SELECT * FROM claim('sw commit');
SELECT h.n, revenant.renew_splits('sw commit', '{b}', ARRAY[h.epoch]) AS lost FROM (SELECT row_number() OVER (ORDER BY epoch) AS n, epoch FROM held WHERE plan = 'sw commit' AND split = 'b') AS h;
-- The whole of a transaction rolls back with a commit that is refused.
CREATE TABLE effect (what text);
BEGIN;
INSERT INTO effect VALUES ('fenced');
SELECT revenant.commit_split('sw commit', 'b', (SELECT min(epoch) FROM held WHERE plan = 'sw commit' AND split = 'b'), '1');
COMMIT;
BEGIN;
INSERT INTO effect VALUES ('once');
SELECT revenant.commit_split('sw commit', 'b', e('sw commit', 'b'), '1', done => true);
COMMIT;
SELECT * FROM effect;
-- The reply to that was lost: whoever does it all again has nothing twice, in whatever order he does it.
BEGIN;
INSERT INTO effect VALUES ('twice');
SELECT revenant.commit_split('sw commit', 'b', e('sw commit', 'b'), '1', done => true);
COMMIT;
BEGIN;
SELECT revenant.commit_split('sw commit', 'b', e('sw commit', 'b'), '1', done => true);
INSERT INTO effect VALUES ('twice');
COMMIT;
BEGIN;
SAVEPOINT s;
SELECT revenant.commit_split('sw commit', 'b', e('sw commit', 'b'), '1', done => true);
ROLLBACK TO s;
INSERT INTO effect VALUES ('something else');
COMMIT;
BEGIN;
SELECT revenant.commit_split('sw commit', 'b', e('sw commit', 'b'), '1', done => true);
SELECT count(*) FROM effect;
COMMIT;
SELECT * FROM effect;
\set VERBOSITY default
BEGIN;
SELECT revenant.commit_split('sw commit', 'b', e('sw commit', 'b'), '1', done => true);
INSERT INTO effect VALUES ('twice');
COMMIT;
\set VERBOSITY sqlstate
DELETE FROM effect WHERE what = 'something else';
-- Beside other work on plans it is repeated: that has its own epochs.
BEGIN;
SELECT revenant.commit_split('sw commit', 'b', e('sw commit', 'b'), '1', done => true), revenant.release_split('sw commit', 'c', e('sw commit', 'c'));
COMMIT;
BEGIN;
SELECT split FROM revenant.claim_splits('sw commit', 'w');
SELECT revenant.commit_split('sw commit', 'b', e('sw commit', 'b'), '1', done => true);
ROLLBACK;
SELECT * FROM claim('sw commit');
-- Several commits in one transaction, and in savepoints
BEGIN;
SELECT revenant.commit_split('sw commit', 'c', e('sw commit', 'c'), '1', 1);
SAVEPOINT s;
SELECT revenant.commit_split('sw commit', 'c', e('sw commit', 'c'), '2', 2, true);
SELECT revenant.commit_split('sw commit', 'c', e('sw commit', 'c'), '2', 2, true);
SELECT counted('sw commit');
ROLLBACK TO s;
SELECT counted('sw commit');
SELECT revenant.commit_split('sw commit', 'c', e('sw commit', 'c'), '3', 1.5);
SELECT revenant.commit_split('sw commit', 'c', e('sw commit', 'c'), '4');
COMMIT;
SELECT * FROM shown('sw commit');
SELECT revenant.drop_plan('sw commit');

-- A watermark is a number, or infinite.
SELECT make('sw water', 'a');
SELECT * FROM claim('sw water');
SELECT revenant.commit_split('sw water', 'a', e('sw water', 'a'), watermark => 'NaN');
SELECT revenant.commit_split('sw water', 'a', e('sw water', 'a'), watermark => '-Infinity'), revenant.commit_split('sw water', 'a', e('sw water', 'a'), watermark => -1e-20);
SELECT revenant.commit_split('sw water', 'a', e('sw water', 'a'), watermark => -1);
SELECT revenant.commit_split('sw water', 'a', e('sw water', 'a'), watermark => 'Infinity');
SELECT revenant.commit_split('sw water', 'a', e('sw water', 'a'), watermark => 1e100);
SELECT watermark FROM shown('sw water');
SELECT revenant.drop_plan('sw water');

/* ---- commits of many: all or none */

SELECT make('sw many', 'a b c d');
SELECT * FROM claim('sw many', 4);
SELECT revenant.commit_splits('sw many', '[]');
SELECT revenant.commit_splits('sw many', jsonb_build_array(jsonb_build_object('split', 'a', 'epoch', e('sw many', 'a'), 'progress', 1, 'watermark', 1.5),
	jsonb_build_object('split', 'b', 'epoch', e('sw many', 'b'), 'progress', ARRAY[1, 2], 'watermark', NULL, 'done', NULL),
	jsonb_build_object('split', 'c', 'epoch', e('sw many', 'c'), 'done', true), jsonb_build_object('split', 'd', 'epoch', e('sw many', 'd'))));
SELECT * FROM shown('sw many');
-- Again, also among others; one split twice
SELECT revenant.commit_splits('sw many', jsonb_build_array(jsonb_build_object('split', 'c', 'epoch', e('sw many', 'c'), 'done', true), jsonb_build_object('split', 'd', 'epoch', e('sw many', 'd'))));
SELECT revenant.commit_splits('sw many', jsonb_build_array(jsonb_build_object('split', 'c', 'epoch', e('sw many', 'c'), 'done', true), jsonb_build_object('split', 'a', 'epoch', e('sw many', 'a'), 'watermark', 2)));
SELECT revenant.commit_splits('sw many', jsonb_build_array(jsonb_build_object('split', 'a', 'epoch', e('sw many', 'a'), 'watermark', 2), jsonb_build_object('split', 'c', 'epoch', e('sw many', 'c'), 'done', true)));
SELECT revenant.commit_splits('sw many', jsonb_build_array(jsonb_build_object('split', 'b', 'epoch', e('sw many', 'b'), 'watermark', 1),
	jsonb_build_object('split', 'a', 'epoch', e('sw many', 'a'), 'watermark', 2), jsonb_build_object('split', 'a', 'epoch', e('sw many', 'a'), 'watermark', 3, 'progress', '{"b": 1}'::jsonb)));
SELECT * FROM shown('sw many') WHERE split = 'a';
-- One is refused: none is written.
SELECT revenant.commit_splits('sw many', jsonb_build_array(jsonb_build_object('split', 'a', 'epoch', e('sw many', 'a'), 'done', true), jsonb_build_object('split', 'd', 'epoch', e('sw many', 'd') - 1, 'done', true)));
SELECT revenant.commit_splits('sw many', jsonb_build_array(jsonb_build_object('split', 'a', 'epoch', e('sw many', 'a'), 'done', true), jsonb_build_object('split', 'd', 'done', true)));
SELECT revenant.commit_splits('sw many', jsonb_build_array(jsonb_build_object('split', 'b', 'epoch', e('sw many', 'b'), 'done', true), jsonb_build_object('split', 'a', 'epoch', e('sw many', 'a'), 'watermark', 2)));
SELECT revenant.commit_splits('sw many', jsonb_build_array(jsonb_build_object('split', 'a', 'epoch', e('sw many', 'a'), 'done', true), jsonb_build_object('split', 'none', 'epoch', 1)));
SELECT counted('sw many');
BEGIN;
SAVEPOINT s;
SELECT revenant.commit_splits('sw many', jsonb_build_array(jsonb_build_object('split', 'a', 'epoch', e('sw many', 'a'), 'done', true), jsonb_build_object('split', 'd', 'epoch', 1, 'done', true)));
ROLLBACK TO s;
SELECT revenant.commit_split('sw many', 'a', e('sw many', 'a'), '"goes on"');
COMMIT;
SELECT * FROM shown('sw many') WHERE split = 'a';
-- What is no such array
SELECT revenant.commit_splits('sw many', 'null');
SELECT revenant.commit_splits('sw many', '5');
SELECT revenant.commit_splits('sw many', '{"split": "a", "epoch": 1}');
SELECT revenant.commit_splits('sw many', '["a"]');
SELECT revenant.commit_splits('sw many', '[null]');
SELECT revenant.commit_splits('sw many', '[["a"]]');
SELECT revenant.commit_splits('sw many', '[[]]');
SELECT revenant.commit_splits('sw many', '[{}]');
SELECT revenant.commit_splits('sw many', '[{"epoch": 1}]');
SELECT revenant.commit_splits('sw many', '[{"split": null, "epoch": 1}]');
SELECT revenant.commit_splits('sw many', '[{"split": 5, "epoch": 1}]');
SELECT revenant.commit_splits('sw many', '[{"split": "", "epoch": 1}]');
SELECT revenant.commit_splits('sw many', jsonb_build_array(jsonb_build_object('split', repeat('x', 129), 'epoch', 1)));
SELECT revenant.commit_splits('sw many', '[{"split": "a", "epoch": "1"}]');
SELECT revenant.commit_splits('sw many', '[{"split": "a", "epoch": 1e30}]');
SELECT revenant.commit_splits('sw many', jsonb_build_array(jsonb_build_object('split', 'a', 'epoch', e('sw many', 'a') + 0.1)));
SELECT revenant.commit_splits('sw many', '[{"split": "a", "epoch": 1, "watermark": "1"}]');
SELECT revenant.commit_splits('sw many', '[{"split": "a", "epoch": 1, "done": 1}]');
SELECT revenant.commit_splits('sw many', '[{"split": "a", "epoch": 1, "what": 1}]');
\set VERBOSITY default
SELECT revenant.commit_splits('sw many', '[{"split": "a", "epoch": 1, "done": "yes"}]');
SELECT revenant.commit_splits('sw many', '[{"split": "a", "epoch": 1, "what": {"epoch": 2}}]');
SELECT revenant.commit_splits('sw many', '{}');
\set VERBOSITY sqlstate
SELECT counted('sw many');
SELECT revenant.drop_plan('sw many');

/* ---- renewals, and a time that is over */

SELECT make('sw lapse', 'a b c', lease_ttl => '300 ms', max_attempts => 2);
SELECT * FROM claim('sw lapse', 3, '1 h');
SELECT round(extract(epoch FROM deadline('sw lapse', 'a') - now())) AS hour;
-- A renewal moves the deadline, and never nearer. Null: by what it has.
SELECT * FROM revenant.renew_splits('sw lapse', '{a,b}', ARRAY[e('sw lapse', 'a'), e('sw lapse', 'b')], '2 h');
SELECT round(extract(epoch FROM deadline('sw lapse', 'a') - now())) AS two_hours, round(extract(epoch FROM deadline('sw lapse', 'c') - now())) AS hour;
SELECT * FROM revenant.renew_splits('sw lapse', '{a}', ARRAY[e('sw lapse', 'a')], '300 ms');
SELECT round(extract(epoch FROM deadline('sw lapse', 'a') - now())) AS two_hours;
-- It tells which ones are lost, and renews the others.
SELECT * FROM revenant.renew_splits('sw lapse', '{a,c,none,b,a}', ARRAY[e('sw lapse', 'a') - 1, e('sw lapse', 'c'), 1, NULL, e('sw lapse', 'a')], '3 h');
SELECT round(extract(epoch FROM deadline('sw lapse', 'a') - now())) AS three_hours, round(extract(epoch FROM deadline('sw lapse', 'b') - now())) AS two_hours, round(extract(epoch FROM deadline('sw lapse', 'c') - now())) AS three_hours;
SELECT * FROM revenant.renew_splits('sw lapse', '{}', '{}');
SELECT revenant.release_split('sw lapse', split, e('sw lapse', split)) FROM unnest('{a,b,c}'::text[]) AS split;
-- Each sign of life moves it, too: a commit, also one that changes nothing.
SELECT * FROM claim('sw lapse', 1, '1 h');
SELECT deadline('sw lapse', 'a') AS before \gset
SELECT revenant.commit_split('sw lapse', 'a', e('sw lapse', 'a'));
SELECT deadline('sw lapse', 'a') > :'before' AS moved, deadline('sw lapse', 'a') AS before \gset
SELECT :'moved' AS moved, revenant.commit_split('sw lapse', 'a', e('sw lapse', 'a'), '1');
SELECT deadline('sw lapse', 'a') > :'before' AS moved, revenant.release_split('sw lapse', 'a', e('sw lapse', 'a'));
-- It is over as soon as its time is, and comes back by itself: an attempt.
SELECT revenant.release_split('sw lapse', c.split, c.epoch) FROM revenant.claim_splits('sw lapse', 'w', 2) AS c;
SELECT * FROM claim('sw lapse', 1, '300 ms');
SELECT lapse('sw lapse', 'a');
SELECT revenant.commit_split('sw lapse', 'a', e('sw lapse', 'a'), '2');
SELECT * FROM revenant.renew_splits('sw lapse', '{a}', ARRAY[e('sw lapse', 'a')], '1 h');
CALL await_end('sw lapse', 'a');
SELECT * FROM shown('sw lapse') WHERE split = 'a';
SELECT r ->> 'attempt' AS attempt, (r ->> 'epoch')::bigint = e('sw lapse', 'a') AS epoch, r ->> 'reason' AS reason, r ->> 'worker' AS worker, (r ->> 'at')::timestamptz BETWEEN now() - interval '1 min' AND now() AS at
FROM revenant.splits AS s, jsonb_array_elements(s.reasons) AS r WHERE s.plan = 'sw lapse' AND s.split = 'a';
SELECT revenant.commit_split('sw lapse', 'a', e('sw lapse', 'a'), '2');
SELECT revenant.fence_split('sw lapse', 'a', e('sw lapse', 'a'));
SELECT revenant.fail_split('sw lapse', 'a', e('sw lapse', 'a'), 'too late');
SELECT revenant.release_split('sw lapse', 'a', e('sw lapse', 'a'));
SELECT revenant.drained('sw lapse', 'a', e('sw lapse', 'a'));
SELECT revenant.decline_revoke('sw lapse', 'a', e('sw lapse', 'a'));
\set VERBOSITY terse
SELECT revenant.commit_split('sw lapse', 'a', e('sw lapse', 'a'), '2');
\set VERBOSITY sqlstate
-- Who claims it next goes on where it was; the old one is an older one then.
SELECT * FROM claim('sw lapse', 3, '300 ms');
SELECT revenant.commit_split('sw lapse', 'a', min(epoch), '2') FROM held WHERE plan = 'sw lapse' AND split = 'a';
-- The last attempt: it is given up.
CALL await_end('sw lapse', 'a');
SELECT * FROM shown('sw lapse') WHERE split = 'a';
SELECT jsonb_array_length(reasons) AS reasons FROM revenant.splits WHERE plan = 'sw lapse' AND split = 'a';
SELECT revenant.commit_split('sw lapse', 'a', e('sw lapse', 'a'), '2');
SELECT revenant.drop_plan('sw lapse');
-- What is fenced in time stays the worker's to the end of the transaction, whatever it does, and whatever its time.
SELECT make('sw fence', 'a b c d', lease_ttl => '1 s');
SELECT * FROM claim('sw fence', 4);
BEGIN;
SELECT revenant.fence_split('sw fence', 'a', e('sw fence', 'a')), revenant.commit_split('sw fence', 'b', e('sw fence', 'b')), revenant.commit_split('sw fence', 'c', e('sw fence', 'c'), '1');
SELECT lapse('sw fence', s.split) FROM shown('sw fence') AS s;
SELECT revenant.commit_split('sw fence', 'a', e('sw fence', 'a'), '"late"'), revenant.commit_split('sw fence', 'b', e('sw fence', 'b'), '"late"', done => true), revenant.commit_split('sw fence', 'c', e('sw fence', 'c'), '"late"');
SAVEPOINT s;
SELECT revenant.commit_split('sw fence', 'd', e('sw fence', 'd'), '"too late"');
ROLLBACK TO s;
COMMIT;
SELECT split, progress FROM shown('sw fence');
CALL await_end('sw fence', 'd');
-- Not by a fence that was rolled back.
SELECT revenant.release_split('sw fence', s.split, e('sw fence', s.split)) FROM shown('sw fence') AS s WHERE s.state = 'owned';
SELECT make('sw fence 2', 'a', lease_ttl => '1 s');
SELECT * FROM claim('sw fence 2');
BEGIN;
SAVEPOINT s;
SELECT revenant.fence_split('sw fence 2', 'a', e('sw fence 2', 'a'));
ROLLBACK TO s;
SELECT lapse('sw fence 2', 'a');
SELECT revenant.commit_split('sw fence 2', 'a', e('sw fence 2', 'a'), '"late"');
ROLLBACK;
CALL await_end('sw fence 2', 'a');
SELECT attempts FROM shown('sw fence 2');
-- In the transaction that claimed it, too
BEGIN;
SELECT * FROM claim('sw fence 2');
SELECT lapse('sw fence 2', 'a');
SELECT revenant.commit_split('sw fence 2', 'a', e('sw fence 2', 'a'), '"in time"', done => true);
COMMIT;
SELECT state, progress, attempts FROM shown('sw fence 2');
SELECT revenant.drop_plan('sw fence'), revenant.drop_plan('sw fence 2');
-- A transaction fences so many, and changes as many as it likes.
SELECT make('sw fences', (SELECT string_agg('s' || i, ' ') FROM generate_series(1, 1002) AS i));
SELECT count(*) FROM claim('sw fences', 1002);
BEGIN;
SELECT count(revenant.fence_split('sw fences', h.split, h.epoch)) FROM held AS h WHERE h.plan = 'sw fences' AND h.split <> 's1' AND h.split <> 's2';
SELECT revenant.commit_split('sw fences', 's1', e('sw fences', 's1'), '1');
SELECT revenant.fence_split('sw fences', 's1', e('sw fences', 's1')), revenant.fence_split('sw fences', 's3', e('sw fences', 's3'));
SAVEPOINT s;
SELECT revenant.fence_split('sw fences', 's2', e('sw fences', 's2'));
ROLLBACK TO s;
SELECT revenant.commit_split('sw fences', 's2', e('sw fences', 's2'));
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT count(revenant.fence_split('sw fences', h.split, h.epoch)) FROM held AS h WHERE h.plan = 'sw fences' AND h.split <> 's1' AND h.split <> 's2';
ROLLBACK TO s;
SELECT revenant.fence_split('sw fences', 's2', e('sw fences', 's2'));
COMMIT;
BEGIN;
SELECT count(revenant.commit_split('sw fences', h.split, h.epoch, '1')) FROM held AS h WHERE h.plan = 'sw fences';
COMMIT;
SELECT revenant.drop_plan('sw fences');

/* ---- failures: after max_attempts a split is given up, with its reasons */

SELECT make('sw fail', 'a b', max_attempts => 3);
SELECT * FROM claim('sw fail', 2);
SELECT revenant.fail_split('sw fail', 'a', e('sw fail', 'a'), 'first');
-- Repeated: it has been done, and counts once.
SELECT revenant.fail_split('sw fail', 'a', e('sw fail', 'a'), 'first'), revenant.fail_split('sw fail', 'a', e('sw fail', 'a'), 'another word');
SELECT revenant.release_split('sw fail', 'a', e('sw fail', 'a'));
SELECT revenant.commit_split('sw fail', 'a', e('sw fail', 'a'), '1');
SELECT * FROM shown('sw fail');
SELECT * FROM claim('sw fail', worker => 'w2');
SELECT revenant.fail_split('sw fail', 'a', e('sw fail', 'a'), '');
SELECT * FROM shown('sw fail') WHERE split = 'a';
-- The time of a reason can be read by everybody, however who failed writes times.
SELECT make('sw reason', 'a');
SELECT * FROM claim('sw reason');
SET datestyle = 'SQL, DMY';
SELECT revenant.fail_split('sw reason', 'a', e('sw reason', 'a'), 'no');
RESET datestyle;
SELECT reasons -> 0 ->> 'at' ~ '^\d{4}-\d\d-\d\dT' AS iso, (reasons -> 0 ->> 'at')::timestamptz BETWEEN now() - interval '1 min' AND clock_timestamp() AS now FROM revenant.splits WHERE plan = 'sw reason';
SELECT revenant.drop_plan('sw reason');
-- A release, and a commit that says nothing new, neither count nor forgive.
SELECT * FROM claim('sw fail');
SELECT revenant.commit_split('sw fail', 'a', e('sw fail', 'a')), revenant.release_split('sw fail', 'a', e('sw fail', 'a')), revenant.release_split('sw fail', 'a', e('sw fail', 'a'));
SELECT revenant.fail_split('sw fail', 'a', e('sw fail', 'a'), 'after a release');
SELECT * FROM shown('sw fail') WHERE split = 'a';
SELECT * FROM claim('sw fail');
BEGIN;
SELECT revenant.fail_split('sw fail', 'a', e('sw fail', 'a'), 'rolled back');
SELECT * FROM shown('sw fail') WHERE split = 'a';
ROLLBACK;
SELECT revenant.fail_split('sw fail', 'a', e('sw fail', 'a'), repeat('ü', 1001) || 'end');
SELECT * FROM shown('sw fail') WHERE split = 'a';
SELECT r ->> 'attempt' AS attempt, left(r ->> 'reason', 20) AS reason, octet_length(r ->> 'reason') AS length, r ->> 'worker' AS worker
FROM revenant.splits AS s, jsonb_array_elements(s.reasons) WITH ORDINALITY AS j (r, n) WHERE s.plan = 'sw fail' AND s.split = 'a' ORDER BY j.n;
SELECT counted('sw fail');
SELECT * FROM claim('sw fail', 10);
SELECT revenant.fail_split('sw fail', 'a', e('sw fail', 'a'), 'again');
SELECT revenant.commit_split('sw fail', 'a', e('sw fail', 'a'), '1');
-- Out of quarantine: with all its attempts; the reasons stay to be read.
SELECT revenant.requeue_split('sw fail', 'b');
SELECT revenant.requeue_split('sw fail', 'none');
BEGIN;
SELECT revenant.requeue_split('sw fail', 'a');
SELECT counted('sw fail');
ROLLBACK;
SELECT counted('sw fail');
SELECT revenant.requeue_split('sw fail', 'a');
SELECT revenant.requeue_split('sw fail', 'a');
SELECT counted('sw fail');
SELECT s.state, s.attempts, s.ended, jsonb_array_length(s.reasons) AS reasons FROM revenant.splits AS s WHERE s.plan = 'sw fail' AND s.split = 'a';
SELECT revenant.commit_split('sw fail', 'a', e('sw fail', 'a'), '1');
SELECT * FROM claim('sw fail', 10);
-- A commit that advances forgives: attempts are counted anew.
SELECT revenant.fail_split('sw fail', 'a', e('sw fail', 'a'), 'one');
SELECT * FROM claim('sw fail');
SELECT revenant.fail_split('sw fail', 'a', e('sw fail', 'a'), 'two');
SELECT * FROM claim('sw fail');
SELECT revenant.commit_split('sw fail', 'a', e('sw fail', 'a'), '"it moves"');
SELECT * FROM shown('sw fail') WHERE split = 'a';
SELECT revenant.fail_split('sw fail', 'a', e('sw fail', 'a'), 'three');
SELECT * FROM claim('sw fail');
SELECT revenant.commit_split('sw fail', 'a', e('sw fail', 'a'), watermark => 1);
SELECT * FROM shown('sw fail') WHERE split = 'a';
-- The latest reasons are kept, not all of them.
SELECT revenant.alter_plan('sw fail', '{"max_attempts": 1000}');
DO $$
BEGIN
	FOR i IN 1 .. 60 LOOP
		PERFORM revenant.fail_split('sw fail', 'a', e('sw fail', 'a'), 'no ' || i);
		COMMIT;
		PERFORM claim('sw fail');
		COMMIT;
	END LOOP;
END $$;
SELECT attempts, jsonb_array_length(reasons) < 60 AS bounded, reasons -> -1 ->> 'reason' AS latest FROM revenant.splits WHERE plan = 'sw fail' AND split = 'a';
-- Fewer attempts than it has used up: the next failure is the last.
SELECT revenant.alter_plan('sw fail', '{"max_attempts": 2}');
SELECT revenant.fail_split('sw fail', 'a', e('sw fail', 'a'), 'the end');
SELECT state, attempts FROM shown('sw fail') WHERE split = 'a';
SELECT revenant.drop_plan('sw fail');

/* ---- waiting for something to claim */

SELECT make('sw await', 'a b c');
CALL revenant.await_splits('sw await');
CALL revenant.await_splits('sw await', wait => '0');
SELECT count(*) FROM claim('sw await', 2);
CALL revenant.await_splits('sw await', 0, '1 h');
SELECT count(*) FROM claim('sw await', 2);
CALL revenant.await_splits('sw await', wait => '0');
CALL revenant.await_splits('sw await', wait => '50 ms');
BEGIN;
CALL revenant.await_splits('sw await', wait => '10 ms');
SELECT revenant.release_split('sw await', 'a', e('sw await', 'a'));
COMMIT;
CALL revenant.await_splits('sw await', wait => NULL);
-- From a procedure
CREATE PROCEDURE waiting() LANGUAGE plpgsql AS $$
DECLARE available bigint;
BEGIN
	CALL revenant.await_splits('sw await', available);
	RAISE NOTICE '% available', available;
	COMMIT;
	PERFORM claim('sw await', 10);
	CALL revenant.await_splits('sw await', available, '10 ms');
	RAISE NOTICE '% available', available;
END $$;
\set VERBOSITY terse
CALL waiting();
\set VERBOSITY sqlstate
-- Its time is over: the supervisor wakes who waits.
SELECT revenant.release_split('sw await', 'a', e('sw await', 'a'));
SELECT * FROM claim('sw await', 1, '300 ms');
CALL revenant.await_splits('sw await');
SELECT * FROM claim('sw await');
-- Nothing will come any more: it does not wait.
SELECT revenant.publish('sw await', p.generation, NULL, final => true) FROM revenant.plans AS p WHERE p.plan = 'sw await';
SELECT revenant.commit_split('sw await', s.split, e('sw await', s.split), done => true) FROM shown('sw await') AS s;
CALL revenant.await_splits('sw await');
SELECT state FROM revenant.plans WHERE plan = 'sw await';
CALL revenant.await_splits('sw await', wait => '1 h');
SELECT revenant.drop_plan('sw await');
CALL revenant.await_splits('sw await');

/* ---- the end of a plan: complete, or stalled */

CREATE VIEW told AS SELECT e.event, e.subject, e.detail FROM revenant.events() AS e WHERE e.subject LIKE 'sw end%' AND e.event LIKE 'plan.%' ORDER BY e.subject, e.event, e.seq;
SELECT make('sw end', 'a b', max_attempts => 1);
SELECT * FROM claim('sw end', 2);
SELECT revenant.commit_split('sw end', 'a', e('sw end', 'a'), done => true), revenant.commit_split('sw end', 'b', e('sw end', 'b'), done => true);
SELECT state, done FROM revenant.plans WHERE plan = 'sw end';
SELECT revenant.publish('sw end', p.generation, NULL, final => true) FROM revenant.plans AS p WHERE p.plan = 'sw end';
CALL await_state('sw end', 'complete');
SELECT * FROM told;
SELECT make('sw end 2', 'a b c', final => true, max_attempts => 1);
SELECT * FROM claim('sw end 2', 3);
SELECT revenant.commit_split('sw end 2', 'a', e('sw end 2', 'a'), done => true), revenant.fail_split('sw end 2', 'b', e('sw end 2', 'b'), 'broken');
SELECT state, done, quarantined FROM revenant.plans WHERE plan = 'sw end 2';
SELECT revenant.commit_split('sw end 2', 'c', e('sw end 2', 'c'), done => true);
CALL await_state('sw end 2', 'stalled');
SELECT * FROM told;
SELECT counted('sw end 2');
-- Out of quarantine it goes on; given up again, it is stalled again; done, complete.
SELECT revenant.requeue_split('sw end 2', 'b');
SELECT state, done, quarantined FROM revenant.plans WHERE plan = 'sw end 2';
SELECT * FROM claim('sw end 2');
SELECT revenant.fail_split('sw end 2', 'b', e('sw end 2', 'b'), 'still broken');
CALL await_state('sw end 2', 'stalled');
SELECT revenant.requeue_split('sw end 2', 'b');
SELECT * FROM claim('sw end 2');
SELECT revenant.commit_split('sw end 2', 'b', e('sw end 2', 'b'), done => true);
CALL await_state('sw end 2', 'complete');
SELECT * FROM told;
-- Complete it stays when what is done goes.
SELECT revenant.purge_plan('sw end 2', 'infinity');
SELECT state, planned, done, quarantined FROM revenant.plans WHERE plan = 'sw end 2';
SELECT revenant.drop_plan('sw end'), revenant.drop_plan('sw end 2');

/* ---- progress */

SELECT make('sw progress', 'a b c d', max_attempts => 1);
SELECT planned, runnable, owned, done, quarantined, rate, eta FROM revenant.plan_progress('sw progress');
SELECT * FROM claim('sw progress', 3);
SELECT revenant.commit_split('sw progress', 'a', e('sw progress', 'a'), done => true), revenant.fail_split('sw progress', 'b', e('sw progress', 'b'), 'no');
SELECT planned, runnable, owned, done, quarantined, rate > 0 AND rate <= 1 AS rate, eta BETWEEN '2 s' AND '1 h' AS eta FROM revenant.plan_progress('sw progress');
SELECT revenant.publish('sw progress', p.generation, NULL, final => true) FROM revenant.plans AS p WHERE p.plan = 'sw progress';
SELECT planned, runnable, owned, done, quarantined, rate > 0 AND rate <= 1 AS rate, eta BETWEEN '2 s' AND '1 h' AS eta FROM revenant.plan_progress('sw progress');
SELECT revenant.commit_split('sw progress', 'c', e('sw progress', 'c'), done => true);
SELECT * FROM claim('sw progress');
SELECT revenant.commit_split('sw progress', 'd', e('sw progress', 'd'), done => true);
SELECT planned, runnable, owned, done, quarantined, rate > 0 AND rate <= 3 AS rate, eta FROM revenant.plan_progress('sw progress');
SELECT revenant.drop_plan('sw progress');

/* ---- at each isolation level */

CREATE PROCEDURE work() LANGUAGE plpgsql AS $$
DECLARE
	level text := current_setting('transaction_isolation');
	epochs bigint[];
	n int;
BEGIN
	SELECT count(*) INTO n FROM revenant.splits WHERE plan = 'sw level';
	SELECT array_agg(c.epoch ORDER BY c.epoch) INTO epochs FROM revenant.claim_splits('sw level', level, 3) AS c;
	PERFORM revenant.commit_split('sw level', s.split, s.epoch, '1', done => s.epoch = epochs[1]) FROM revenant.splits AS s WHERE s.plan = 'sw level' AND s.epoch = ANY (epochs);
	PERFORM revenant.release_split('sw level', s.split, s.epoch) FROM revenant.splits AS s WHERE s.plan = 'sw level' AND s.epoch = epochs[2];
	RAISE NOTICE '%: %', level, counted('sw level');
	COMMIT;
	PERFORM revenant.commit_split('sw level', s.split, s.epoch, '1') FROM revenant.splits AS s WHERE s.plan = 'sw level' AND s.epoch = epochs[3];
	PERFORM revenant.fail_split('sw level', s.split, s.epoch, level) FROM revenant.splits AS s WHERE s.plan = 'sw level' AND s.epoch = epochs[3];
	PERFORM revenant.publish('sw level', p.generation, jsonb_build_array(jsonb_build_object('id', 'by ' || level))) FROM revenant.plans AS p WHERE p.plan = 'sw level';
	COMMIT;
	RAISE NOTICE '%: %', current_setting('transaction_isolation'), counted('sw level');
END $$;
SELECT make('sw level', 'a b c d e f g h i');
\set VERBOSITY terse
SET default_transaction_isolation = 'read committed';
CALL work();
SET default_transaction_isolation = 'repeatable read';
CALL work();
SET default_transaction_isolation = 'serializable';
CALL work();
SELECT * FROM claim('sw level', request_id => '00000000-0000-0000-0000-000000000204');
SELECT c.split, c.epoch = e('sw level', c.split) AS same FROM revenant.claim_splits('sw level', 'w', 1, request_id => '00000000-0000-0000-0000-000000000204') AS c;
RESET default_transaction_isolation;
\set VERBOSITY sqlstate
SELECT * FROM shown('sw level');
SELECT split, attempt FROM claim('sw level', 20);
SELECT revenant.drop_plan('sw level');

/* ---- prepared transactions */

SELECT make('sw prepare', 'a b c');
BEGIN;
SELECT * FROM claim('sw prepare');
PREPARE TRANSACTION 'sw';
SELECT counted('sw prepare');
SELECT * FROM claim('sw prepare', 2);
BEGIN;
SELECT revenant.commit_split('sw prepare', 'a', e('sw prepare', 'a'), '1');
PREPARE TRANSACTION 'sw';
BEGIN;
SELECT revenant.fence_split('sw prepare', 'a', e('sw prepare', 'a'));
PREPARE TRANSACTION 'sw';
BEGIN;
SELECT revenant.join_plan('sw prepare', 'member') > 0 AS joined;
PREPARE TRANSACTION 'sw';
BEGIN;
SELECT revenant.publish('sw prepare', p.generation, '[{"id": "d"}]') FROM revenant.plans AS p WHERE p.plan = 'sw prepare';
PREPARE TRANSACTION 'sw';
BEGIN;
SELECT revenant.create_plan('sw prepare 2');
PREPARE TRANSACTION 'sw';
\set VERBOSITY default
BEGIN;
SELECT revenant.release_split('sw prepare', 'a', e('sw prepare', 'a'));
PREPARE TRANSACTION 'sw';
\set VERBOSITY sqlstate
SELECT count(*) FROM pg_prepared_xacts;
SELECT counted('sw prepare'), (SELECT count(*) FROM revenant.members WHERE plan = 'sw prepare') AS members;
-- A mere look or a renewal is no work.
BEGIN;
INSERT INTO effect VALUES ('prepared');
SELECT counted('sw prepare');
SELECT * FROM revenant.renew_splits('sw prepare', '{a}', ARRAY[e('sw prepare', 'a')]);
PREPARE TRANSACTION 'sw';
COMMIT PREPARED 'sw';
SELECT revenant.commit_split('sw prepare', 'a', e('sw prepare', 'a'), '1', done => true);
SELECT * FROM effect;
SELECT revenant.drop_plan('sw prepare');

/* ---- nothing is left */

SELECT count(*) FROM revenant.plans WHERE plan LIKE 'sw %';
SELECT count(*) FROM revenant.split;
SELECT count(*) FROM revenant.split_state;
DROP VIEW told;
DROP TABLE held, effect;
DROP PROCEDURE work, waiting, await_state, await_end;
DROP FUNCTION e, claim, make, shown, counted, place, deadline, lapse;
