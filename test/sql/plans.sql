-- Only who leads plans: what a deposed planner publishes changes nothing, what was published stays as it was, and a plan is counted exactly.
\set VERBOSITY sqlstate
\pset null (null)

CREATE ROLE revenant_pl_owner LOGIN;
CREATE ROLE revenant_pl_member IN ROLE revenant_pl_owner;
CREATE ROLE revenant_pl_admin;
SELECT revenant.grant_usage('revenant_pl_owner', 'admin');
SELECT revenant.grant_usage('revenant_pl_admin', 'admin');
CREATE SCHEMA pl;
GRANT CREATE, USAGE ON SCHEMA pl TO revenant_pl_owner;
GRANT USAGE ON SCHEMA pl TO revenant_pl_member, revenant_pl_admin;
SET search_path = pl, public;
-- What a plan says of itself, and of its splits; where its row is: as long as this is the same, nothing was written.
CREATE FUNCTION shown(plan text) RETURNS text LANGUAGE sql AS $$
	SELECT format('%s %s leader=%s final=%s planned=%s done=%s quarantined=%s revision=%s cursor=%s', p.plan, p.state, coalesce(p.leader, '-'), p.final, p.planned, p.done,
		p.quarantined, p.revision, coalesce(p.cursor::text, '-')) FROM revenant.plans AS p WHERE p.plan = $1
$$;
CREATE FUNCTION splits(plan text) RETURNS TABLE (split text, state text, weight bigint, watermark numeric, progress jsonb, spec jsonb) LANGUAGE sql AS $$
	SELECT s.split, s.state, s.weight, s.watermark, s.progress, s.spec FROM revenant.splits AS s WHERE s.plan = $1 ORDER BY s.split COLLATE "C"
$$;
CREATE FUNCTION place(plan text) RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = '' AS $$ SELECT format('%s %s', p.ctid, p.xmin) FROM revenant.plan AS p WHERE p.plan = $1 $$;
CREATE FUNCTION lapse(plan text, generation bigint) RETURNS void LANGUAGE plpgsql AS $$ BEGIN WHILE revenant.is_current('plan/' || $1, $2) LOOP NULL; END LOOP; END $$;
-- Until the supervisor has seen it
CREATE PROCEDURE await_state(plan text, state text) LANGUAGE plpgsql AS $$
BEGIN
	WHILE NOT EXISTS (SELECT FROM revenant.plans AS p WHERE p.plan = $1 AND p.state = $2) LOOP PERFORM pg_sleep(0.01); END LOOP;
END $$;
SET ROLE revenant_pl_owner;

/* ---- create */

SELECT revenant.create_plan('pl one');
SELECT plan, owner, fingerprint, state, generation, leader, final, planned, done, quarantined, revision, cursor, updated_at = created_at AS never_published, planner_function,
	replan_every, lease_ttl, max_attempts, max_in_flight, rebalance_delay, drain_deadline, metadata
FROM revenant.plans WHERE plan LIKE 'pl %';
-- The same again is nothing, each thing that can be another one is refused.
SELECT place('pl one') AS place \gset
SELECT revenant.create_plan('pl one');
SELECT revenant.create_plan('pl one', NULL, NULL, '1 min', '30000 ms', 4, 8, '20 s', '10 s', NULL);
SELECT revenant.create_plan('pl one', replan_every => '61 s');
SELECT revenant.create_plan('pl one', lease_ttl => '31 s');
SELECT revenant.create_plan('pl one', max_attempts => 5);
SELECT revenant.create_plan('pl one', max_in_flight => 9);
SELECT revenant.create_plan('pl one', rebalance_delay => '0');
SELECT revenant.create_plan('pl one', drain_deadline => '0');
SELECT revenant.create_plan('pl one', metadata => '{}');
SELECT revenant.create_plan('pl one', 'fingerprint');
SELECT place('pl one') = :'place' AS unchanged;
SELECT revenant.create_plan('pl two', 'v1', NULL, '1 h', '400 ms', 1, 1, '0', '0', '{"who": "we"}');
SELECT plan, fingerprint, replan_every, lease_ttl, max_attempts, max_in_flight, rebalance_delay, drain_deadline, metadata FROM revenant.plans WHERE plan = 'pl two';
SELECT revenant.create_plan('pl two', 'v1', NULL, '1 h', '0.4 s', 1, 1, '0', '0', '{"who":"we"}');
\set VERBOSITY default
SELECT revenant.create_plan('pl two', 'v2', NULL, '1 h', '400 ms', 1, 1, '0', '0', '{"who": "we"}');
SELECT revenant.create_plan('pl two', 'v2');
SELECT revenant.create_plan('pl two', 'v1', NULL, '1 h', '400 ms', 1, 2, '0', '0', '[]');
SELECT revenant.create_plan('pl two', NULL, NULL, '1 h', '400 ms', 1, 1, '0', '0', '{"who": "we"}');
SELECT revenant.create_plan('pl one', 'v1');
-- Another role's plan is another one; its fingerprint is told to members only.
SET ROLE revenant_pl_admin;
SELECT revenant.create_plan('pl two', 'v2', NULL, '1 h', '400 ms', 1, 1, '0', '0', '{"who": "we"}');
SET ROLE revenant_pl_member;
SELECT revenant.create_plan('pl two', 'v2', NULL, '1 h', '400 ms', 1, 1, '0', '0', '{"who": "we"}');
SELECT revenant.create_plan('pl two', 'v1', NULL, '1 h', '400 ms', 1, 1, '0', '0', '{"who": "we"}');
SET ROLE revenant_pl_owner;
\set VERBOSITY sqlstate
-- Nothing is left of one that was rolled back.
BEGIN;
SELECT revenant.create_plan('pl gone');
SELECT revenant.create_plan('pl gone');
SELECT shown('pl gone');
ROLLBACK;
SELECT count(*) FROM revenant.plans WHERE plan = 'pl gone';
SELECT revenant.lead_plan('pl gone', 'a');
BEGIN;
SAVEPOINT s;
SELECT revenant.create_plan('pl gone', 'v1');
SELECT revenant.lead_plan('pl gone', 'a') IS NOT NULL AS leads;
ROLLBACK TO s;
SELECT count(*) FROM revenant.plans WHERE plan = 'pl gone';
SELECT revenant.create_plan('pl gone', 'v2');
SELECT revenant.lead_plan('pl gone', 'a', fingerprint => 'v2') AS g \gset
SELECT * FROM revenant.publish('pl gone', :g, '[{"id": "1"}]');
COMMIT;
SELECT shown('pl gone');
SELECT revenant.drop_plan('pl gone');

/* ---- lead */

SELECT revenant.lead_plan('pl one', 'a') AS g \gset
SELECT p.generation = :g AS generation, p.leader, (SELECT l.token = :g FROM revenant.leases AS l WHERE l.lease = 'plan/pl one') AS lease,
	(SELECT l.ttl FROM revenant.leases AS l WHERE l.lease = 'plan/pl one') AS ttl FROM revenant.plans AS p WHERE plan = 'pl one';
-- A label is no proof: nobody else leads meanwhile, whatever he calls himself.
SELECT revenant.lead_plan('pl one', 'b'), revenant.lead_plan('pl one', 'a');
SELECT revenant.renew('plan/pl one', :g) IS NOT NULL AS renewed, revenant.is_current('plan/pl one', :g), revenant.is_current('plan/pl one', :g - 1);
-- The next one: from its commit on the one before plans no more.
SELECT revenant.resign_plan('pl one', :g), revenant.resign_plan('pl one', :g) AS twice, revenant.resign_plan('pl one', NULL) AS none;
SELECT p.generation = :g AS generation, p.leader FROM revenant.plans AS p WHERE plan = 'pl one';
SELECT revenant.publish('pl one', :g, '[]');
SELECT revenant.planner_state('pl one', :g);
SELECT revenant.lead_plan('pl one', 'b', '1 h') AS next \gset
SELECT :next > :g AS grown, (SELECT l.ttl FROM revenant.leases AS l WHERE l.lease = 'plan/pl one') AS ttl;
SELECT revenant.publish('pl one', :g, '[]');
SELECT revenant.resign_plan('pl one', :g);
SELECT revenant.publish('pl one', :next, '[]'), revenant.resign_plan('pl one', :next);
-- The same request again: the reply was lost.
SELECT revenant.lead_plan('pl one', 'a', request_id => '00000000-0000-0000-0000-000000000101') AS g \gset
SELECT revenant.lead_plan('pl one', 'a', request_id => '00000000-0000-0000-0000-000000000101') = :g AS same, revenant.lead_plan('pl one', 'a', request_id => '00000000-0000-0000-0000-000000000102');
SELECT revenant.resign_plan('pl one', :g);
SELECT revenant.lead_plan('pl one', 'a', request_id => '00000000-0000-0000-0000-000000000101') = :g AS same;
SELECT revenant.resign_plan('pl one', (SELECT p.generation FROM revenant.plans AS p WHERE p.plan = 'pl one')) IS NOT NULL AS resigned;
-- Fingerprints
SELECT revenant.lead_plan('pl two', 'a', fingerprint => 'v2');
SELECT revenant.lead_plan('pl one', 'a', fingerprint => 'v1');
SELECT revenant.lead_plan('pl two', 'a', '1 h', 'v1') IS NOT NULL AS leads;
SELECT revenant.lead_plan('pl two', 'a', fingerprint => 'v2');
\set VERBOSITY default
SELECT revenant.lead_plan('pl two', 'a', fingerprint => 'v2');
\set VERBOSITY sqlstate
-- One that was rolled back does not lead, and fences nobody.
SELECT revenant.lead_plan('pl one', 'a') AS g \gset
BEGIN;
SELECT revenant.resign_plan('pl one', :g);
ROLLBACK;
SELECT revenant.publish('pl one', :g, '[]');
SELECT revenant.resign_plan('pl one', :g);
SELECT revenant.lead_plan('pl one', 'a') AS g \gset
BEGIN;
SAVEPOINT s;
SELECT revenant.resign_plan('pl one', :g);
ROLLBACK TO s;
SELECT revenant.publish('pl one', :g, '[]');
COMMIT;
SELECT revenant.resign_plan('pl one', :g);
BEGIN;
SELECT revenant.lead_plan('pl one', 'a') AS lost \gset
SELECT revenant.publish('pl one', :lost, '[{"id": "lost"}]', '"lost"');
ROLLBACK;
SELECT shown('pl one'), count(*) FROM splits('pl one');
SELECT revenant.publish('pl one', :lost, '[]');
-- Its time is over, and nobody leads: nothing is published; then somebody does.
SELECT revenant.lead_plan('pl one', 'a', '300 ms') AS g \gset
SELECT revenant.publish('pl one', :g, '[{"id": "a", "spec": {"from": 1}}]', '1');
SELECT lapse('pl one', :g);
SELECT revenant.publish('pl one', :g, '[{"id": "b"}]', '2');
SELECT revenant.planner_state('pl one', :g);
SELECT revenant.renew('plan/pl one', :g), revenant.resign_plan('pl one', :g);
SELECT shown('pl one');
SELECT revenant.lead_plan('pl one', 'b', '1 h') AS next \gset
SELECT revenant.publish('pl one', :g, '[{"id": "b"}]', '2');
SELECT revenant.planner_state('pl one', :g);
SELECT * FROM revenant.planner_state('pl one', :next);
-- It needs a live lease at each publication, also where it has fenced the transaction before.
SELECT revenant.resign_plan('pl one', :next);
SELECT revenant.lead_plan('pl one', 'a', '300 ms') AS g \gset
BEGIN;
SELECT cursor FROM revenant.planner_state('pl one', :g);
SELECT outcome FROM revenant.publish('pl one', :g, '[{"id": "b"}]', '2');
SELECT lapse('pl one', :g);
SAVEPOINT s;
SELECT revenant.publish('pl one', :g, '[{"id": "c"}]', '3');
ROLLBACK TO s;
COMMIT;
SELECT shown('pl one');
-- In one transaction nobody leads after a resignation.
SELECT revenant.lead_plan('pl one', 'a', '1 h') AS g \gset
BEGIN;
SELECT revenant.resign_plan('pl one', :g);
SELECT shown('pl one');
SAVEPOINT s;
SELECT revenant.publish('pl one', :g, '[]');
ROLLBACK TO s;
SELECT revenant.lead_plan('pl one', 'a');
ROLLBACK TO s;
COMMIT;
-- Nobody leads by a lease that he took himself, since its token is no generation.
SELECT revenant.try_acquire('plan/pl one', ttl => '1 h', holder => 'x') AS taken \gset
SELECT revenant.publish('pl one', :taken, '[{"id": "c"}]');
SELECT revenant.planner_state('pl one', :taken);
SELECT revenant.lead_plan('pl one', 'a');
SELECT revenant.release('plan/pl one', :taken);
\set VERBOSITY default
SELECT revenant.planner_state('pl two', NULL);
SELECT revenant.publish('pl two', 0, '[]');
SELECT revenant.publish('pl two', -5, '[]');
\set VERBOSITY sqlstate

/* ---- publish */

SELECT revenant.create_plan('pl pub');
SELECT revenant.lead_plan('pl pub', 'a', '1 h') AS g \gset
SELECT * FROM revenant.planner_state('pl pub', :g);
SELECT * FROM revenant.publish('pl pub', :g, '[{"id": "b", "spec": {"from": 1, "to": [2, 3]}, "weight": 7}, {"id": "a"}, {"id": "c", "weight": 0, "spec": 5}]');
SELECT * FROM splits('pl pub');
SELECT shown('pl pub'), bool_and(s.generation = :g) AS generation, bool_and(s.epoch = 0) AS epoch, bool_and(s.attempts = 0) AS attempts FROM revenant.splits AS s WHERE s.plan = 'pl pub';
-- The first writer wins; what is new beside it is made. Twice in one call: the first one.
SELECT * FROM revenant.publish('pl pub', :g, '[{"id": "a", "spec": "another", "weight": 99, "seed": {"done": true, "progress": 1, "watermark": 1}}, {"id": "d", "spec": 1}, {"id": "d", "spec": 2}]');
SELECT * FROM splits('pl pub');
SELECT shown('pl pub');
-- Nothing new writes nothing, also where the reply to the first one was lost.
SELECT place('pl pub') AS place \gset
SELECT * FROM revenant.publish('pl pub', :g, '[{"id": "a"}, {"id": "d"}]');
SELECT * FROM revenant.publish('pl pub', :g, '[]');
SELECT * FROM revenant.publish('pl pub', :g, NULL);
SELECT * FROM revenant.publish('pl pub', :g, NULL, NULL, NULL);
SELECT place('pl pub') = :'place' AS unchanged;
-- The cursor: null keeps it, the same is nothing new, another one is; also JSON's null.
SELECT outcome, created, revision FROM revenant.publish('pl pub', :g, '[]', '{"at": 1}');
SELECT outcome, created, revision FROM revenant.publish('pl pub', :g, '[{"id": "e"}]', NULL);
SELECT outcome, created, revision FROM revenant.publish('pl pub', :g, '[{"id": "e"}]', '{"at":1}');
SELECT cursor FROM revenant.planner_state('pl pub', :g);
SELECT outcome, created, revision FROM revenant.publish('pl pub', :g, '[{"id": "e"}]', '{"at": 2}');
SELECT outcome, created, revision FROM revenant.publish('pl pub', :g, '[]', 'null');
SELECT * FROM revenant.planner_state('pl pub', :g);
SELECT outcome, created, revision FROM revenant.publish('pl pub', :g, '[]', 'null');
-- Seeds
SELECT * FROM revenant.publish('pl pub', :g, '[{"id": "s1", "seed": {"progress": {"at": 5}, "watermark": 12.50}}, {"id": "s2", "seed": {"done": true}}, {"id": "s3", "seed": {}},
	{"id": "s4", "seed": {"done": false, "progress": null, "watermark": null}}, {"id": "s5", "seed": null, "spec": null, "weight": null}, {"id": "s6", "seed": {"done": true, "watermark": -1, "progress": "all"}}]');
SELECT * FROM splits('pl pub') WHERE split LIKE 's%';
SELECT shown('pl pub');
SELECT planned, runnable, owned, done, quarantined, rate, eta FROM revenant.plan_progress('pl pub');
-- What is no such array, and none of it is written.
SELECT place('pl pub') AS place \gset
SELECT revenant.publish('pl pub', :g, '{}');
SELECT revenant.publish('pl pub', :g, '5');
SELECT revenant.publish('pl pub', :g, 'null');
SELECT revenant.publish('pl pub', :g, '["f"]');
SELECT revenant.publish('pl pub', :g, '[["f"]]');
SELECT revenant.publish('pl pub', :g, '[[]]');
SELECT revenant.publish('pl pub', :g, '[{"id": "f"}, {}]');
SELECT revenant.publish('pl pub', :g, '[{"id": "f"}, {"id": null}]');
SELECT revenant.publish('pl pub', :g, '[{"id": "f"}, {"id": 5}]');
SELECT revenant.publish('pl pub', :g, '[{"id": "f"}, {"id": ["g"]}]');
SELECT revenant.publish('pl pub', :g, '[{"id": "f"}, {"id": ""}]');
SELECT revenant.publish('pl pub', :g, jsonb_build_array(jsonb_build_object('id', 'f'), jsonb_build_object('id', repeat('x', 129))));
SELECT revenant.publish('pl pub', :g, jsonb_build_array(jsonb_build_object('id', repeat('ü', 65))));
SELECT revenant.publish('pl pub', :g, '[{"id": "f", "speck": 1}]');
SELECT revenant.publish('pl pub', :g, '[{"id": "f", "ID": 1}]');
SELECT revenant.publish('pl pub', :g, '[{"id": "f", "weight": -1}]');
SELECT revenant.publish('pl pub', :g, '[{"id": "f", "weight": 0.5}]');
SELECT revenant.publish('pl pub', :g, '[{"id": "f", "weight": "1"}]');
SELECT revenant.publish('pl pub', :g, '[{"id": "f", "weight": 1e30}]');
SELECT revenant.publish('pl pub', :g, '[{"id": "f", "weight": [1]}]');
SELECT revenant.publish('pl pub', :g, '[{"id": "f", "seed": 1}]');
SELECT revenant.publish('pl pub', :g, '[{"id": "f", "seed": []}]');
SELECT revenant.publish('pl pub', :g, '[{"id": "f", "seed": {"watermark": "1"}}]');
SELECT revenant.publish('pl pub', :g, '[{"id": "f", "seed": {"done": "yes"}}]');
SELECT revenant.publish('pl pub', :g, '[{"id": "f", "seed": {"speck": 1}}]');
SELECT revenant.publish('pl pub', :g, '[{"id": "a", "weight": -1}]');
\set VERBOSITY default
SELECT revenant.publish('pl pub', :g, '[{"id": "f"}, {"id": "g", "weight": -1}]');
SELECT revenant.publish('pl pub', :g, '[{"id": "f"}, {"id": "g", "seed": {"done": 1}}]');
SELECT revenant.publish('pl pub', :g, '[{"id": "f"}, {"id": "g", "wait": 1}]');
SELECT revenant.publish('pl pub', :g, '{"id": "f"}');
\set VERBOSITY sqlstate
SELECT place('pl pub') = :'place' AS unchanged, count(*) FROM splits('pl pub');
-- Names of any kind; the longest ones; specs that are large
SELECT outcome, created FROM revenant.publish('pl pub', :g, jsonb_build_array(jsonb_build_object('id', repeat('x', 128)), jsonb_build_object('id', repeat('ü', 64)), jsonb_build_object('id', ' '),
	jsonb_build_object('id', E'quote '' " \\ \n'), jsonb_build_object('id', 'A'), jsonb_build_object('id', 'large', 'spec', repeat(md5('1'), 100000), 'weight', 1099511627776)));
SELECT to_jsonb(split) AS split, length(spec::text) AS spec, weight FROM splits('pl pub') WHERE split COLLATE "C" < 'a' COLLATE "C" OR split = 'large' OR length(split) > 60;
-- Savepoints, and what was rolled back
BEGIN;
SELECT outcome, created, planned, revision FROM revenant.publish('pl pub', :g, '[{"id": "t1"}]', '"t1"');
SAVEPOINT s;
SELECT outcome, created, planned, revision FROM revenant.publish('pl pub', :g, '[{"id": "t2"}, {"id": "t1"}]', '"t2"');
ROLLBACK TO s;
SELECT outcome, created, planned, revision FROM revenant.publish('pl pub', :g, '[{"id": "t3"}]');
SELECT cursor, planned FROM revenant.planner_state('pl pub', :g);
COMMIT;
SELECT count(*), count(*) FILTER (WHERE split LIKE 't%') AS t FROM splits('pl pub');
SELECT planned, planned = runnable + owned + done + quarantined AS exact FROM revenant.plan_progress('pl pub');
BEGIN;
SELECT outcome, created, planned FROM revenant.publish('pl pub', :g, '[{"id": "t4"}]', NULL, true);
ROLLBACK;
SELECT final, planned FROM revenant.plans WHERE plan = 'pl pub';
-- Many at once: several batches, with those that are there already among them.
SELECT outcome, created, planned FROM revenant.publish('pl pub', :g, (SELECT jsonb_agg(jsonb_build_object('id', 'm' || i, 'weight', i)) FROM generate_series(1, 2500, 2) AS i));
SELECT outcome, created, planned FROM revenant.publish('pl pub', :g, (SELECT jsonb_agg(jsonb_build_object('id', 'm' || i, 'weight', -i * 0)) FROM generate_series(2500, 1, -1) AS i));
SELECT count(*), count(DISTINCT split), sum(weight) FILTER (WHERE split LIKE 'm%') AS weight FROM splits('pl pub');
SELECT planned FROM revenant.plans WHERE plan = 'pl pub';
SELECT outcome, created FROM revenant.publish('pl pub', :g, (SELECT jsonb_agg(jsonb_build_object('id', 'm' || i)) FROM generate_series(1, 2500) AS i));

/* ---- final */

SELECT revenant.create_plan('pl final');
SELECT revenant.lead_plan('pl final', 'a', '1 h') AS g \gset
SELECT * FROM revenant.publish('pl final', :g, '[{"id": "a"}, {"id": "b", "seed": {"done": true}}]', final => true);
SELECT shown('pl final');
SELECT * FROM revenant.publish('pl final', :g, '[{"id": "a"}, {"id": "b"}]', final => true);
SELECT * FROM revenant.publish('pl final', :g, '[{"id": "a"}]');
SELECT * FROM revenant.publish('pl final', :g, '[{"id": "c"}]');
SELECT * FROM revenant.publish('pl final', :g, '[{"id": "a"}, {"id": "c"}]', '1', true);
\set VERBOSITY default
SELECT * FROM revenant.publish('pl final', :g, '[{"id": "a"}, {"id": "c"}]', '1', true);
\set VERBOSITY sqlstate
SELECT shown('pl final');
-- It is not to be opened again.
SELECT outcome FROM revenant.publish('pl final', :g, '[]', final => false);
SELECT shown('pl final'), (SELECT final FROM revenant.planner_state('pl final', :g)) AS final;
-- Final in the call that makes the last ones, and by a call that makes none
SELECT revenant.create_plan('pl final 2');
SELECT revenant.lead_plan('pl final 2', 'a', '1 h') AS g \gset
SELECT outcome, created, revision FROM revenant.publish('pl final 2', :g, '[{"id": "a"}]');
SELECT outcome, created, revision FROM revenant.publish('pl final 2', :g, NULL, final => true);
SELECT outcome, created, revision FROM revenant.publish('pl final 2', :g, NULL, final => true);
SELECT shown('pl final 2');
-- One that has nothing to do is complete.
SELECT revenant.create_plan('pl nothing');
SELECT revenant.lead_plan('pl nothing', 'a', '1 h') AS g \gset
SELECT outcome FROM revenant.publish('pl nothing', :g, '[]', final => true);
CALL await_state('pl nothing', 'complete');
SELECT revenant.create_plan('pl seeded');
SELECT revenant.lead_plan('pl seeded', 'a', '1 h') AS g \gset
SELECT outcome FROM revenant.publish('pl seeded', :g, '[{"id": "a", "seed": {"done": true}}]', final => true);
CALL await_state('pl seeded', 'complete');
SELECT * FROM revenant.claim_splits('pl seeded', 'w');
SELECT outcome, revision FROM revenant.publish('pl seeded', :g, '[{"id": "a"}]', final => true);
SELECT outcome, revision FROM revenant.publish('pl seeded', :g, '[]', '"at the end"', true);
SELECT shown('pl seeded');

/* ---- alter */

SELECT revenant.create_plan('pl alter', 'v1');
SELECT revenant.alter_plan('pl alter', '{"fingerprint": "v2", "max_attempts": 2, "lease_ttl": "500 ms", "metadata": {"a": 1}}');
SELECT fingerprint, lease_ttl, max_attempts, max_in_flight, metadata FROM revenant.plans WHERE plan = 'pl alter';
SELECT revenant.lead_plan('pl alter', 'a', fingerprint => 'v1');
SELECT revenant.lead_plan('pl alter', 'a', fingerprint => 'v2') AS g \gset
SELECT ttl FROM revenant.leases WHERE lease = 'plan/pl alter';
SELECT revenant.resign_plan('pl alter', :g);
-- What says the same writes nothing.
SELECT place('pl alter') AS place \gset
SELECT revenant.alter_plan('pl alter', '{}'), revenant.alter_plan('pl alter', '{"max_attempts": 2, "lease_ttl": "0.5 s", "metadata": {"a":1}, "planner_function": null}');
SELECT place('pl alter') = :'place' AS unchanged;
SELECT revenant.alter_plan('pl alter', '{"fingerprint": null, "metadata": null}');
SELECT fingerprint, metadata FROM revenant.plans WHERE plan = 'pl alter';
SELECT place('pl alter') AS place \gset
SELECT revenant.alter_plan('pl alter', '{"max_attempts": 0}');
SELECT revenant.alter_plan('pl alter', '{"max_attempts": null}');
SELECT revenant.alter_plan('pl alter', '{"max_attempts": "3"}');
SELECT revenant.alter_plan('pl alter', '{"max_attempts": 1.5}');
SELECT revenant.alter_plan('pl alter', '{"max_attempts": 99999999999}');
SELECT revenant.alter_plan('pl alter', '{"max_in_flight": 0}');
SELECT revenant.alter_plan('pl alter', '{"lease_ttl": "299 ms"}');
SELECT revenant.alter_plan('pl alter', '{"lease_ttl": null}');
SELECT revenant.alter_plan('pl alter', '{"lease_ttl": 5}');
SELECT revenant.alter_plan('pl alter', '{"lease_ttl": "soon"}');
SELECT revenant.alter_plan('pl alter', '{"replan_every": "499 ms"}');
SELECT revenant.alter_plan('pl alter', '{"replan_every": null}');
SELECT revenant.alter_plan('pl alter', '{"rebalance_delay": "-1 s"}');
SELECT revenant.alter_plan('pl alter', '{"drain_deadline": "11 years"}');
SELECT revenant.alter_plan('pl alter', '{"plan": "another"}');
SELECT revenant.alter_plan('pl alter', '{"owner": "revenant_pl_admin"}');
SELECT revenant.alter_plan('pl alter', '[]');
SELECT revenant.alter_plan('pl alter', 'null');
SELECT revenant.alter_plan('pl alter', NULL);
SELECT revenant.alter_plan('pl alter', '{"planner_function": "none"}');
SELECT place('pl alter') = :'place' AS unchanged;
-- Both at once, since they go together
SELECT revenant.alter_plan('pl alter', '{"lease_ttl": "2 min", "replan_every": "3 min"}');
SELECT lease_ttl, replan_every FROM revenant.plans WHERE plan = 'pl alter';
BEGIN;
SELECT revenant.alter_plan('pl alter', '{"lease_ttl": "1 s"}');
SELECT revenant.lead_plan('pl alter', 'a') IS NOT NULL AS leads;
ROLLBACK;
SELECT revenant.lead_plan('pl alter', 'a') AS g \gset
SELECT ttl FROM revenant.leases WHERE lease = 'plan/pl alter';

/* ---- purge */

SELECT revenant.create_plan('pl purge');
SELECT revenant.lead_plan('pl purge', 'a', '1 h') AS g \gset
SELECT outcome FROM revenant.publish('pl purge', :g, '[{"id": "a"}, {"id": "b", "seed": {"done": true}}, {"id": "c"}, {"id": "d"}]');
SELECT split AS a_split, epoch AS a FROM revenant.claim_splits('pl purge', 'w') \gset
SELECT split AS c_split, epoch AS c FROM revenant.claim_splits('pl purge', 'w') \gset
SELECT :'a_split' AS a, :'c_split' AS c, revenant.commit_split('pl purge', 'a', :a, done => true);
SELECT revenant.purge_plan('pl purge', now() - interval '1 h');
SELECT shown('pl purge');
BEGIN;
SELECT revenant.purge_plan('pl purge', 'infinity');
SELECT shown('pl purge'), revenant.purge_plan('pl purge', 'infinity') AS twice;
ROLLBACK;
SELECT shown('pl purge'), count(*) FROM splits('pl purge');
SELECT revenant.purge_plan('pl purge', 'infinity'), revenant.purge_plan('pl purge', 'infinity') AS twice, revenant.purge_plan('pl purge', '-infinity') AS none;
SELECT shown('pl purge');
SELECT split, state FROM splits('pl purge');
SELECT planned, runnable, owned, done FROM revenant.plan_progress('pl purge');
-- What is gone is not known any more, and made anew.
SELECT revenant.commit_split('pl purge', 'a', :a, done => true);
SELECT outcome, created, planned FROM revenant.publish('pl purge', :g, '[{"id": "a"}, {"id": "b"}, {"id": "c"}]');
SELECT revenant.commit_split('pl purge', 'a', :a, done => true);
SELECT revenant.commit_split('pl purge', 'c', :c, done => true), revenant.purge_plan('pl purge', 'infinity');
SELECT shown('pl purge');
SELECT split, attempt FROM revenant.claim_splits('pl purge', 'w', 10);
SELECT revenant.purge_plan('pl purge', NULL);
SELECT revenant.purge_plan('pl none', 'infinity');

/* ---- reset */

SELECT revenant.create_plan('pl reset', max_attempts => 1);
SELECT revenant.lead_plan('pl reset', 'a', '1 h') AS g \gset
SELECT outcome FROM revenant.publish('pl reset', :g, '[{"id": "a"}, {"id": "b"}, {"id": "c"}]', '"end"', true);
SELECT split, epoch AS a FROM revenant.claim_splits('pl reset', 'w') \gset
SELECT split, epoch AS b FROM revenant.claim_splits('pl reset', 'w') \gset
SELECT split, epoch AS c FROM revenant.claim_splits('pl reset', 'w') \gset
SELECT revenant.commit_split('pl reset', 'a', :a, done => true), revenant.fail_split('pl reset', 'b', :b, 'broken');
SELECT shown('pl reset');
BEGIN;
SELECT revenant.reset_plan('pl reset');
SELECT shown('pl reset'), count(*) FROM splits('pl reset');
ROLLBACK;
SELECT shown('pl reset'), count(*) FROM splits('pl reset');
SELECT revenant.commit_split('pl reset', 'c', :c, '"still mine"'), revenant.publish('pl reset', :g, '[]');
SELECT revenant.reset_plan('pl reset');
SELECT shown('pl reset'), count(*) FROM splits('pl reset');
SELECT planned, runnable, owned, done, quarantined FROM revenant.plan_progress('pl reset');
SELECT * FROM revenant.claim_splits('pl reset', 'w');
-- Who planned plans no more, who worked on it does not either: also when splits of the same names are there again.
SELECT revenant.publish('pl reset', :g, '[]');
SELECT revenant.planner_state('pl reset', :g);
SELECT revenant.resign_plan('pl reset', :g);
SELECT revenant.commit_split('pl reset', 'c', :c, '"mine"');
SELECT revenant.commit_split('pl reset', 'a', :a, done => true);
SELECT * FROM revenant.renew_splits('pl reset', '{c}', ARRAY[:c]);
SELECT revenant.lead_plan('pl reset', 'a', '1 h') AS g \gset
SELECT * FROM revenant.planner_state('pl reset', :g);
SELECT * FROM revenant.publish('pl reset', :g, '[{"id": "a"}, {"id": "c"}]');
SELECT revenant.commit_split('pl reset', 'c', :c, '"mine"');
SELECT revenant.commit_split('pl reset', 'a', :a, done => true);
SELECT * FROM revenant.renew_splits('pl reset', '{c}', ARRAY[:c]);
SELECT split, epoch > :c AS newer, attempt, progress FROM revenant.claim_splits('pl reset', 'w', 10);
SELECT shown('pl reset');
-- One that is complete is open again.
SELECT revenant.reset_plan('pl seeded');
SELECT shown('pl seeded');
SELECT revenant.reset_plan('pl none');

/* ---- drop */

SELECT revenant.create_plan('pl drop', lease_ttl => '1 s');
SELECT revenant.lead_plan('pl drop', 'a', '1 h') AS g \gset
SELECT outcome FROM revenant.publish('pl drop', :g, '[{"id": "a"}, {"id": "b"}]');
SELECT split, epoch AS e FROM revenant.claim_splits('pl drop', 'w') \gset
BEGIN;
SELECT revenant.drop_plan('pl drop');
SELECT count(*) FROM revenant.plans WHERE plan = 'pl drop';
SELECT count(*) FROM revenant.splits WHERE plan = 'pl drop';
SAVEPOINT s;
SELECT revenant.claim_splits('pl drop', 'w');
ROLLBACK TO s;
SELECT revenant.drop_plan('pl drop');
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT revenant.drop_plan('pl drop');
ROLLBACK TO s;
SELECT shown('pl drop');
SELECT revenant.commit_split('pl drop', 'a', :e, '1');
COMMIT;
SELECT revenant.drop_plan('pl drop');
SELECT revenant.drop_plan('pl drop');
SELECT revenant.publish('pl drop', :g, '[]');
SELECT revenant.commit_split('pl drop', 'a', :e, '1');
SELECT count(*) FROM revenant.leases WHERE lease = 'plan/pl drop';
-- Another one of the same name knows nothing of it.
SELECT revenant.create_plan('pl drop', 'v2');
SELECT shown('pl drop'), count(*) FROM splits('pl drop');
SELECT revenant.publish('pl drop', :g, '[]');
SELECT revenant.commit_split('pl drop', 'a', :e, '1');
SELECT revenant.lead_plan('pl drop', 'b', '1 h') AS next \gset
SELECT outcome, created, planned, revision FROM revenant.publish('pl drop', :next, '[{"id": "a"}]');
SELECT revenant.commit_split('pl drop', 'a', :e, '1');
SELECT * FROM revenant.renew_splits('pl drop', '{a}', ARRAY[:e]);
SELECT split, attempt FROM revenant.claim_splits('pl drop', 'w', 10);
-- In one transaction: it is another one from the commit on, and is not used before.
BEGIN;
SELECT revenant.drop_plan('pl drop'), revenant.create_plan('pl drop', 'v3');
SELECT fingerprint, state, planned, done, leader, revision FROM revenant.plans WHERE plan = 'pl drop';
SELECT count(*) FROM revenant.splits WHERE plan = 'pl drop';
SELECT planned, runnable, owned, done FROM revenant.plan_progress('pl drop');
SELECT plan, planned, done FROM revenant.stat_plans WHERE plan = 'pl drop';
SELECT count(*) FROM revenant.members WHERE plan = 'pl drop';
SAVEPOINT s;
SELECT revenant.lead_plan('pl drop', 'a');
ROLLBACK TO s;
SELECT revenant.claim_splits('pl drop', 'w');
ROLLBACK TO s;
SELECT revenant.drop_plan('pl drop');
ROLLBACK TO s;
COMMIT;
SELECT fingerprint, state, planned, done, revision, leader FROM revenant.plans WHERE plan = 'pl drop';
SELECT revenant.publish('pl drop', :next, '[]');
SELECT revenant.lead_plan('pl drop', 'a', '1 h') AS g \gset
SELECT outcome, created, planned, revision FROM revenant.publish('pl drop', :g, '[{"id": "a"}]');
SELECT split, attempt FROM revenant.claim_splits('pl drop', 'w', 10);
BEGIN;
SELECT revenant.drop_plan('pl drop'), revenant.create_plan('pl drop', 'v4');
ROLLBACK;
SELECT fingerprint, planned FROM revenant.plans WHERE plan = 'pl drop';
SELECT outcome, planned FROM revenant.publish('pl drop', :g, '[{"id": "b"}]');
SELECT split, attempt FROM revenant.claim_splits('pl drop', 'w', 10);
BEGIN;
SAVEPOINT s;
SELECT revenant.drop_plan('pl drop'), revenant.create_plan('pl drop', 'v4');
ROLLBACK TO s;
SELECT outcome, planned FROM revenant.publish('pl drop', :g, '[{"id": "c"}]');
SELECT split, attempt FROM revenant.claim_splits('pl drop', 'w', 10);
COMMIT;
SELECT shown('pl drop');
BEGIN;
SELECT revenant.create_plan('pl brief'), revenant.drop_plan('pl brief');
COMMIT;
SELECT count(*) FROM revenant.plans WHERE plan = 'pl brief';
SELECT revenant.create_plan('pl brief');
SELECT shown('pl brief');

-- Led, and dropped or reset then, in one transaction: nobody leads.
BEGIN;
SELECT revenant.drop_plan('pl brief'), revenant.create_plan('pl briefer'), revenant.lead_plan('pl briefer', 'a') IS NOT NULL AS leads, revenant.drop_plan('pl briefer');
COMMIT;
SELECT count(*) FROM revenant.leases WHERE lease LIKE 'plan/pl brief%';
SELECT revenant.create_plan('pl brief');
BEGIN;
SELECT revenant.lead_plan('pl brief', 'a') IS NOT NULL AS leads, revenant.reset_plan('pl brief');
SELECT shown('pl brief');
COMMIT;
SELECT shown('pl brief');
SELECT revenant.lead_plan('pl brief', 'b') IS NOT NULL AS leads;

/* ---- all of it in one transaction */

BEGIN;
SELECT revenant.create_plan('pl whole');
SELECT revenant.lead_plan('pl whole', 'a') AS g \gset
SELECT * FROM revenant.publish('pl whole', :g, '[{"id": "a"}, {"id": "b"}, {"id": "c"}]');
SELECT split, epoch AS a, attempt FROM revenant.claim_splits('pl whole', 'w') \gset
SELECT :'split' AS split, revenant.commit_split('pl whole', :'split', :a, '1', done => true);
SELECT split, epoch AS b FROM revenant.claim_splits('pl whole', 'w') \gset
SELECT :'split' AS split, revenant.commit_split('pl whole', :'split', :b, '2');
SELECT shown('pl whole');
SELECT split, state, progress FROM splits('pl whole');
SELECT planned, runnable, owned, done, quarantined FROM revenant.plan_progress('pl whole');
ROLLBACK;
SELECT count(*) FROM revenant.plans WHERE plan = 'pl whole';
BEGIN;
SELECT revenant.create_plan('pl whole', lease_ttl => '1 h', replan_every => '1 h');
SELECT revenant.lead_plan('pl whole', 'a') AS g \gset
SELECT outcome FROM revenant.publish('pl whole', :g, '[{"id": "a"}, {"id": "b"}, {"id": "c"}]');
SELECT split, epoch AS a FROM revenant.claim_splits('pl whole', 'w') \gset
SELECT revenant.commit_split('pl whole', 'a', :a, '1', done => true);
SAVEPOINT s;
SELECT split, epoch AS lost FROM revenant.claim_splits('pl whole', 'w') \gset
SELECT :'split' AS split, revenant.commit_split('pl whole', 'b', :lost, done => true);
SELECT outcome, created, planned FROM revenant.publish('pl whole', :g, '[{"id": "d"}]', final => true);
ROLLBACK TO s;
SELECT split, epoch AS b, epoch > :lost AS newer FROM revenant.claim_splits('pl whole', 'w') \gset
SELECT :'split' AS split, :'newer' AS newer, revenant.commit_split('pl whole', 'b', :b, '2');
SAVEPOINT t;
SELECT revenant.commit_split('pl whole', 'b', :lost, '3');
ROLLBACK TO t;
SELECT outcome, created, planned FROM revenant.publish('pl whole', :g, '[{"id": "e"}]', '"e"');
COMMIT;
SELECT shown('pl whole');
SELECT split, state, progress FROM splits('pl whole');
SELECT planned, runnable, owned, done, quarantined FROM revenant.plan_progress('pl whole');
SELECT revenant.commit_split('pl whole', 'b', :b, done => true);
SELECT split, attempt FROM revenant.claim_splits('pl whole', 'w', 10);
SELECT split, state FROM splits('pl whole');
SELECT planned, runnable, owned, done, quarantined FROM revenant.plan_progress('pl whole');
SELECT outcome, created, planned FROM revenant.publish('pl whole', :g, NULL, NULL, true);
SELECT revenant.commit_splits('pl whole', (SELECT jsonb_agg(jsonb_build_object('split', s.split, 'epoch', s.epoch, 'done', true)) FROM revenant.splits AS s WHERE s.plan = 'pl whole' AND s.state = 'owned'));
CALL await_state('pl whole', 'complete');
SELECT shown('pl whole');

/* ---- in the database */

CREATE FUNCTION planner(cursor jsonb, generation bigint) RETURNS revenant.split_plan LANGUAGE sql AS $$
	SELECT jsonb_agg(jsonb_build_object('id', 'part ' || i, 'spec', i)), to_jsonb(coalesce($1::int, 0) + 2), coalesce($1::int, 0) >= 2
	FROM generate_series(coalesce($1::int, 0) + 1, coalesce($1::int, 0) + 2) AS i
$$;
CREATE FUNCTION wrong(cursor jsonb, generation bigint) RETURNS jsonb LANGUAGE sql AS $$ SELECT '[]'::jsonb $$;
CREATE FUNCTION several(cursor jsonb, generation bigint) RETURNS SETOF revenant.split_plan LANGUAGE sql AS $$ SELECT NULL::jsonb, NULL::jsonb, false $$;
CREATE FUNCTION secret(cursor jsonb, generation bigint) RETURNS revenant.split_plan LANGUAGE sql AS $$ SELECT NULL::jsonb, NULL::jsonb, false $$;
REVOKE EXECUTE ON FUNCTION secret FROM PUBLIC;
SELECT revenant.create_plan('pl task', planner_function => 'none');
SELECT revenant.create_plan('pl task', planner_function => '');
SELECT revenant.create_plan('pl task', planner_function => 'wrong');
SELECT revenant.create_plan('pl task', planner_function => 'several');
SELECT revenant.create_plan('pl task', planner_function => 'planner(jsonb, bigint)');
SET ROLE revenant_pl_admin;
SELECT revenant.create_plan('pl task', planner_function => 'secret');
SET ROLE revenant_pl_owner;
BEGIN;
SELECT revenant.create_plan('pl task', planner_function => 'planner', replan_every => '300 ms', lease_ttl => '300 ms');
SELECT name, run_as, schedule IS NOT NULL AS schedule, lease, enabled FROM revenant.tasks WHERE name LIKE 'plan/%';
ROLLBACK;
SELECT count(*) FROM revenant.tasks WHERE name LIKE 'plan/%';
SELECT revenant.create_plan('pl task', planner_function => 'planner', replan_every => '300 ms', lease_ttl => '300 ms');
SELECT revenant.create_plan('pl task', planner_function => 'pl.planner', replan_every => '300 ms', lease_ttl => '300 ms');
SELECT revenant.create_plan('pl task', planner_function => 'secret', replan_every => '300 ms', lease_ttl => '300 ms');
CALL await_state('pl task', 'final');
SELECT planned, revision, cursor, planner_function, replan_outcome, replan_error FROM revenant.plans WHERE plan = 'pl task';
SELECT split, spec FROM splits('pl task');
-- Only the task is what runs it; nobody else's business.
SELECT revenant._run_planner('pl task', true);
SELECT revenant.alter_plan('pl task', '{"planner_function": null}');
SELECT count(*) FROM revenant.tasks WHERE name LIKE 'plan/%';
SELECT planner_function, planned FROM revenant.plans WHERE plan = 'pl task';

/* ---- nothing is left */

RESET ROLE;
SELECT revenant.drop_plan(plan) FROM revenant.plans WHERE plan LIKE 'pl %';
SELECT count(*) FROM revenant.split;
SELECT count(*) FROM revenant.split_state;
SELECT count(*) FROM revenant.leases WHERE lease LIKE 'plan/%';
SELECT revenant.revoke_usage('revenant_pl_owner'), revenant.revoke_usage('revenant_pl_admin');
\set VERBOSITY terse
SET client_min_messages = warning;
DROP SCHEMA pl CASCADE;
DROP ROLE revenant_pl_owner, revenant_pl_member, revenant_pl_admin;
