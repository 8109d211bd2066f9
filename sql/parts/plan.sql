/* ---------------------------------------------------------------- plans */

-- What a plan is, and what its planners made of it. Written by create_plan, alter_plan, reset_plan, purge_plan, lead_plan, resign_plan, publish, adopt in
-- their callers' transactions; by the supervisor, which gives the verdict; by the task of its planner, which says how that went. Dumped.
-- plan_id is a fence token: another plan of the same name has another one.
CREATE TABLE revenant.plan (
	plan pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	plan_id pg_catalog.int8 NOT NULL,
	owner pg_catalog.text NOT NULL,
	owner_oid pg_catalog.int8 NOT NULL,
	fingerprint pg_catalog.text,
	planner_function pg_catalog.text,
	replan_every pg_catalog.interval NOT NULL,
	lease_ttl pg_catalog.interval NOT NULL,
	max_attempts pg_catalog.int4 NOT NULL,
	max_in_flight pg_catalog.int4 NOT NULL,
	rebalance_delay pg_catalog.interval NOT NULL,
	drain_deadline pg_catalog.interval NOT NULL,
	metadata pg_catalog.jsonb,
	created_at pg_catalog.timestamptz NOT NULL,
	system_identifier pg_catalog.int8 NOT NULL,
	database_oid pg_catalog.int8 NOT NULL,
	generation pg_catalog.int8,			-- of the latest leader; null: nobody led yet
	leader pg_catalog.text,
	final pg_catalog.bool NOT NULL,
	planned pg_catalog.int8 NOT NULL,	-- how many splits there are
	last_number pg_catalog.int8 NOT NULL,	-- of its splits; none is ever used again
	revision pg_catalog.int8 NOT NULL,
	cursor pg_catalog.jsonb,
	updated_at pg_catalog.timestamptz NOT NULL,
	verdict pg_catalog.text,			-- complete, stalled
	verdict_seq pg_catalog.int8,
	replan_at pg_catalog.timestamptz,
	replan_outcome pg_catalog.text,
	replan_error pg_catalog.text,
	CONSTRAINT plan_pkey PRIMARY KEY (plan)
);
COMMENT ON TABLE revenant.plan IS 'plans as they were created or altered, and how far they are planned; written by the functions and workers of revenant only: see the view plans';
REVOKE ALL ON TABLE revenant.plan FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('revenant.plan', '');

-- What a split is. Written when it is published and never changed. Dumped. Numbers are in the order of publication.
CREATE TABLE revenant.split (
	plan_id pg_catalog.int8 NOT NULL,
	number pg_catalog.int8 NOT NULL,
	split pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	weight pg_catalog.int8 NOT NULL,
	generation pg_catalog.int8 NOT NULL,	-- that published it
	spec pg_catalog.jsonb,
	CONSTRAINT split_pkey PRIMARY KEY (plan_id, number),
	CONSTRAINT split_plan_id_split_key UNIQUE (plan_id, split)
);
COMMENT ON TABLE revenant.split IS 'the splits of plans as they were published; written by the functions of revenant only: see the view splits';
REVOKE ALL ON TABLE revenant.split FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('revenant.split', '');

-- How far it is: one row for each of revenant.split, written at each claim, commit and end. Dumped. No index has what changes, and each page has
-- room for two more versions of its rows: the claim's and the end's, which often comes before anybody may prune what the claim replaced.
CREATE TABLE revenant.split_state (
	plan_id pg_catalog.int8 NOT NULL,
	number pg_catalog.int8 NOT NULL,
	epoch pg_catalog.int8 NOT NULL,		-- of the latest claim; 0: there was none
	member pg_catalog.int8 NOT NULL,	-- whose it is; 0: a puller's, or nobody's
	updated_at pg_catalog.timestamptz NOT NULL,
	role_oid pg_catalog.int8 NOT NULL,	-- that claimed it
	attempts pg_catalog.int4 NOT NULL,
	state pg_catalog.int2 NOT NULL,		-- 0 runnable, 1 owned, 2 done, 3 quarantined
	ended pg_catalog.int2 NOT NULL,		-- how the latest claim ended: see the view splits
	worker pg_catalog.text,
	watermark pg_catalog.numeric,
	progress pg_catalog.jsonb,
	reasons pg_catalog.jsonb,
	CONSTRAINT split_state_pkey PRIMARY KEY (plan_id, number)
) WITH (fillfactor = 30);
COMMENT ON TABLE revenant.split_state IS 'how far each split is; written by the functions and workers of revenant only: see the view splits';
REVOKE ALL ON TABLE revenant.split_state FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('revenant.split_state', '');

-- Who joined. Written by join_plan and leave_plan, and by the supervisor when a member's time is over. Not dumped. Heartbeats are in memory.
CREATE TABLE revenant.member (
	plan_id pg_catalog.int8 NOT NULL,
	worker pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	member pg_catalog.int8 NOT NULL,
	role pg_catalog.text NOT NULL,
	role_oid pg_catalog.int8 NOT NULL,
	capacity pg_catalog.int4,	-- null: the plan's max_in_flight
	ttl pg_catalog.interval,	-- null: the plan's lease_ttl
	joined_at pg_catalog.timestamptz NOT NULL,
	supersedes pg_catalog.int8,	-- the member that had the name before
	CONSTRAINT member_pkey PRIMARY KEY (plan_id, worker)
);
COMMENT ON TABLE revenant.member IS 'workers that joined a plan; written by the functions and workers of revenant only: see the view members';
REVOKE ALL ON TABLE revenant.member FROM PUBLIC;

CREATE TYPE revenant.split_plan AS (
	splits pg_catalog.jsonb,
	cursor pg_catalog.jsonb,
	final pg_catalog.bool
);
COMMENT ON TYPE revenant.split_plan IS
'what the planner_function of a plan returns: the splits, the next cursor (null: unchanged), and whether there will be no more: see publish()';

CREATE FUNCTION revenant.create_plan(
	plan pg_catalog.text,
	fingerprint pg_catalog.text DEFAULT NULL,
	planner_function pg_catalog.text DEFAULT NULL,
	replan_every pg_catalog.interval DEFAULT '60 s',
	lease_ttl pg_catalog.interval DEFAULT '30 s',
	max_attempts pg_catalog.int4 DEFAULT 4,
	max_in_flight pg_catalog.int4 DEFAULT 8,
	rebalance_delay pg_catalog.interval DEFAULT '20 s',
	drain_deadline pg_catalog.interval DEFAULT '10 s',
	metadata pg_catalog.jsonb DEFAULT NULL
) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_create_plan';
COMMENT ON FUNCTION revenant.create_plan(pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.interval, pg_catalog.interval, pg_catalog.int4, pg_catalog.int4, pg_catalog.interval, pg_catalog.interval, pg_catalog.jsonb) IS
'makes a plan, owned by the caller: work that planners cut into splits and workers carry out. The same again is a no-op, with another fingerprint RV004, with another definition 42710. planner_function is the name of a function (cursor jsonb, generation bigint) RETURNS revenant.split_plan';
REVOKE ALL ON FUNCTION revenant.create_plan(pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.interval, pg_catalog.interval, pg_catalog.int4, pg_catalog.int4, pg_catalog.interval, pg_catalog.interval, pg_catalog.jsonb) FROM PUBLIC;

CREATE FUNCTION revenant.alter_plan(plan pg_catalog.text, changes pg_catalog.jsonb) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_alter_plan';
COMMENT ON FUNCTION revenant.alter_plan(pg_catalog.text, pg_catalog.jsonb) IS
'changes what of a plan the JSON object names, as create_plan has it; null sets null, what is absent stays';
REVOKE ALL ON FUNCTION revenant.alter_plan(pg_catalog.text, pg_catalog.jsonb) FROM PUBLIC;

CREATE FUNCTION revenant.drop_plan(plan pg_catalog.text) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_drop_plan';
COMMENT ON FUNCTION revenant.drop_plan(pg_catalog.text) IS
'removes a plan with its splits, its members and the task of its planner';
REVOKE ALL ON FUNCTION revenant.drop_plan(pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION revenant.reset_plan(plan pg_catalog.text) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_reset_plan';
COMMENT ON FUNCTION revenant.reset_plan(pg_catalog.text) IS
'takes a plan back to its start: its splits and its cursor are gone, and it is open; who works on one of them gets RV001';
REVOKE ALL ON FUNCTION revenant.reset_plan(pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION revenant.purge_plan(plan pg_catalog.text, finished_before pg_catalog.timestamptz) RETURNS pg_catalog.int8
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_purge_plan';
COMMENT ON FUNCTION revenant.purge_plan(pg_catalog.text, pg_catalog.timestamptz) IS
'deletes the splits of a plan that were done before this, and returns how many; a planner that publishes one of them again makes it anew';
REVOKE ALL ON FUNCTION revenant.purge_plan(pg_catalog.text, pg_catalog.timestamptz) FROM PUBLIC;

CREATE FUNCTION revenant.lead_plan(
	plan pg_catalog.text, candidate pg_catalog.text,
	ttl pg_catalog.interval DEFAULT NULL, fingerprint pg_catalog.text DEFAULT NULL, request_id pg_catalog.uuid DEFAULT NULL
) RETURNS pg_catalog.int8
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_lead_plan';
COMMENT ON FUNCTION revenant.lead_plan(pg_catalog.text, pg_catalog.text, pg_catalog.interval, pg_catalog.text, pg_catalog.uuid) IS
'makes the caller the planner of a plan and returns its generation, or NULL if somebody leads; what earlier generations publish is refused from the commit on. Renewed by renew(''plan/'' || plan, generation)';
REVOKE ALL ON FUNCTION revenant.lead_plan(pg_catalog.text, pg_catalog.text, pg_catalog.interval, pg_catalog.text, pg_catalog.uuid) FROM PUBLIC;

CREATE FUNCTION revenant.planner_state(
	plan pg_catalog.text, generation pg_catalog.int8,
	OUT cursor pg_catalog.jsonb, OUT revision pg_catalog.int8, OUT final pg_catalog.bool, OUT planned pg_catalog.int8
) RETURNS pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_planner_state';
COMMENT ON FUNCTION revenant.planner_state(pg_catalog.text, pg_catalog.int8) IS
'what was published last, for who leads now: the cursor, how many publications there were, whether it is final, and the number of splits; RV001 for an earlier generation, RV002 if its time is over';
REVOKE ALL ON FUNCTION revenant.planner_state(pg_catalog.text, pg_catalog.int8) FROM PUBLIC;

CREATE FUNCTION revenant.publish(
	plan pg_catalog.text, generation pg_catalog.int8, splits pg_catalog.jsonb,
	cursor pg_catalog.jsonb DEFAULT NULL, final pg_catalog.bool DEFAULT false,
	OUT outcome pg_catalog.text, OUT created pg_catalog.int8, OUT planned pg_catalog.int8, OUT revision pg_catalog.int8
) RETURNS pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_publish';
COMMENT ON FUNCTION revenant.publish(pg_catalog.text, pg_catalog.int8, pg_catalog.jsonb, pg_catalog.jsonb, pg_catalog.bool) IS
'adds splits to a plan, an array of {id, spec, weight, seed: {progress, watermark, done}}, and keeps the cursor (NULL: the old one); ids that are there already change nothing. outcome is ok, or noop: nothing was new. RV001 for an earlier generation, RV002 if its time is over, 22023 for a new split of a final plan';
REVOKE ALL ON FUNCTION revenant.publish(pg_catalog.text, pg_catalog.int8, pg_catalog.jsonb, pg_catalog.jsonb, pg_catalog.bool) FROM PUBLIC;

CREATE FUNCTION revenant.resign_plan(plan pg_catalog.text, generation pg_catalog.int8) RETURNS pg_catalog.bool
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_resign_plan';
COMMENT ON FUNCTION revenant.resign_plan(pg_catalog.text, pg_catalog.int8) IS
'ends a generation: its publications get RV001 from then on; false: it was over already';
REVOKE ALL ON FUNCTION revenant.resign_plan(pg_catalog.text, pg_catalog.int8) FROM PUBLIC;

-- What the task plan/<name> runs, as the owner of the plan: src/plan_planner.c.
CREATE FUNCTION revenant._run_planner(plan pg_catalog.text, lead pg_catalog.bool) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_run_planner';
REVOKE ALL ON FUNCTION revenant._run_planner(pg_catalog.text, pg_catalog.bool) FROM PUBLIC;

CREATE FUNCTION revenant.join_plan(
	plan pg_catalog.text, worker pg_catalog.text,
	capacity pg_catalog.int4 DEFAULT NULL, ttl pg_catalog.interval DEFAULT NULL, fingerprint pg_catalog.text DEFAULT NULL, request_id pg_catalog.uuid DEFAULT NULL
) RETURNS pg_catalog.int8
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_join_plan';
COMMENT ON FUNCTION revenant.join_plan(pg_catalog.text, pg_catalog.text, pg_catalog.int4, pg_catalog.interval, pg_catalog.text, pg_catalog.uuid) IS
'makes a worker a member of a plan, which is assigned splits, at most capacity at a time (NULL: max_in_flight), and returns the member''s token, for poll_plan. Who was a member by this name gets RV001; what it owned goes on under new epochs';
REVOKE ALL ON FUNCTION revenant.join_plan(pg_catalog.text, pg_catalog.text, pg_catalog.int4, pg_catalog.interval, pg_catalog.text, pg_catalog.uuid) FROM PUBLIC;

CREATE FUNCTION revenant.poll_plan(plan pg_catalog.text, member pg_catalog.int8, seen pg_catalog.int8 DEFAULT 0) RETURNS TABLE (
	seq pg_catalog.int8, event pg_catalog.text, split pg_catalog.text, epoch pg_catalog.int8, weight pg_catalog.int8,
	spec pg_catalog.jsonb, progress pg_catalog.jsonb, detail pg_catalog.jsonb
)
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 10 AS 'MODULE_PATHNAME', 'revenant_poll_plan';
COMMENT ON FUNCTION revenant.poll_plan(pg_catalog.text, pg_catalog.int8, pg_catalog.int8) IS
'keeps a member and what it owns alive, and returns what it was not told or has not seen yet: gained, revoke, revoke_cancelled, lost, quarantined, complete, stalled; seen is the greatest seq that it knows. RV001 if it was replaced or has left, RV002 if its time was over';
REVOKE ALL ON FUNCTION revenant.poll_plan(pg_catalog.text, pg_catalog.int8, pg_catalog.int8) FROM PUBLIC;

CREATE FUNCTION revenant.drained(plan pg_catalog.text, split pg_catalog.text, epoch pg_catalog.int8) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_drained';
COMMENT ON FUNCTION revenant.drained(pg_catalog.text, pg_catalog.text, pg_catalog.int8) IS
'hands a split over, as asked by revoke; its progress stays, and no attempt is used up. RV001 for an older epoch, RV002 if its time is over';
REVOKE ALL ON FUNCTION revenant.drained(pg_catalog.text, pg_catalog.text, pg_catalog.int8) FROM PUBLIC;

CREATE FUNCTION revenant.decline_revoke(plan pg_catalog.text, split pg_catalog.text, epoch pg_catalog.int8) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_decline_revoke';
COMMENT ON FUNCTION revenant.decline_revoke(pg_catalog.text, pg_catalog.text, pg_catalog.int8) IS
'keeps a split that the member was asked to hand over, and which is not asked for again at once; RV001 for an older epoch, RV002 if its time is over';
REVOKE ALL ON FUNCTION revenant.decline_revoke(pg_catalog.text, pg_catalog.text, pg_catalog.int8) FROM PUBLIC;

CREATE FUNCTION revenant.leave_plan(plan pg_catalog.text, member pg_catalog.int8) RETURNS pg_catalog.int4
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_leave_plan';
COMMENT ON FUNCTION revenant.leave_plan(pg_catalog.text, pg_catalog.int8) IS
'ends a membership, releases what the member owned, without using up an attempt, and returns how many splits that were';
REVOKE ALL ON FUNCTION revenant.leave_plan(pg_catalog.text, pg_catalog.int8) FROM PUBLIC;

CREATE FUNCTION revenant.claim_splits(
	plan pg_catalog.text, worker pg_catalog.text, n pg_catalog.int4 DEFAULT 1,
	ttl pg_catalog.interval DEFAULT NULL, fingerprint pg_catalog.text DEFAULT NULL, request_id pg_catalog.uuid DEFAULT NULL
) RETURNS TABLE (
	split pg_catalog.text, epoch pg_catalog.int8, spec pg_catalog.jsonb, progress pg_catalog.jsonb, attempt pg_catalog.int4
)
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 10 AS 'MODULE_PATHNAME', 'revenant_claim_splits';
COMMENT ON FUNCTION revenant.claim_splits(pg_catalog.text, pg_catalog.text, pg_catalog.int4, pg_catalog.interval, pg_catalog.text, pg_catalog.uuid) IS
'claims up to n splits, those never owned first, and returns them; each has a new epoch, and ends at ttl (NULL: the plan''s lease_ttl) unless it is committed or renewed. No row: there is nothing to claim now';
REVOKE ALL ON FUNCTION revenant.claim_splits(pg_catalog.text, pg_catalog.text, pg_catalog.int4, pg_catalog.interval, pg_catalog.text, pg_catalog.uuid) FROM PUBLIC;

CREATE FUNCTION revenant.commit_split(
	plan pg_catalog.text, split pg_catalog.text, epoch pg_catalog.int8,
	progress pg_catalog.jsonb DEFAULT NULL, watermark pg_catalog.numeric DEFAULT NULL, done pg_catalog.bool DEFAULT false
) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_commit_split';
COMMENT ON FUNCTION revenant.commit_split(pg_catalog.text, pg_catalog.text, pg_catalog.int8, pg_catalog.jsonb, pg_catalog.numeric, pg_catalog.bool) IS
'writes how far a split is, with the caller''s transaction, and renews its claim; NULL keeps what is there. A watermark only grows, 22023 otherwise; the same commit again succeeds. RV001 for an older epoch, RV002 if its time is over';
REVOKE ALL ON FUNCTION revenant.commit_split(pg_catalog.text, pg_catalog.text, pg_catalog.int8, pg_catalog.jsonb, pg_catalog.numeric, pg_catalog.bool) FROM PUBLIC;

CREATE FUNCTION revenant.commit_splits(plan pg_catalog.text, commits pg_catalog.jsonb) RETURNS pg_catalog.int4
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_commit_splits';
COMMENT ON FUNCTION revenant.commit_splits(pg_catalog.text, pg_catalog.jsonb) IS
'commit_split of many, an array of {split, epoch, progress, watermark, done}, and returns how many; if one is refused, none is written';
REVOKE ALL ON FUNCTION revenant.commit_splits(pg_catalog.text, pg_catalog.jsonb) FROM PUBLIC;

CREATE FUNCTION revenant.fence_split(plan pg_catalog.text, split pg_catalog.text, epoch pg_catalog.int8) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_fence_split';
COMMENT ON FUNCTION revenant.fence_split(pg_catalog.text, pg_catalog.text, pg_catalog.int8) IS
'fails unless the epoch is the current one (RV001, RV002); if it returns, the split cannot change hands before this transaction ends';
REVOKE ALL ON FUNCTION revenant.fence_split(pg_catalog.text, pg_catalog.text, pg_catalog.int8) FROM PUBLIC;

CREATE FUNCTION revenant.renew_splits(plan pg_catalog.text, splits pg_catalog.text[], epochs pg_catalog.int8[], ttl pg_catalog.interval DEFAULT NULL) RETURNS SETOF pg_catalog.text
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 10 AS 'MODULE_PATHNAME', 'revenant_renew_splits';
COMMENT ON FUNCTION revenant.renew_splits(pg_catalog.text, pg_catalog.text[], pg_catalog.int8[], pg_catalog.interval) IS
'moves the deadlines of claims, each of the split and the epoch in the same place, to ttl from now (NULL: the ttl that each has), and returns the splits that are lost; writes no row';
REVOKE ALL ON FUNCTION revenant.renew_splits(pg_catalog.text, pg_catalog.text[], pg_catalog.int8[], pg_catalog.interval) FROM PUBLIC;

CREATE FUNCTION revenant.fail_split(plan pg_catalog.text, split pg_catalog.text, epoch pg_catalog.int8, reason pg_catalog.text) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_fail_split';
COMMENT ON FUNCTION revenant.fail_split(pg_catalog.text, pg_catalog.text, pg_catalog.int8, pg_catalog.text) IS
'gives a split back and uses up an attempt; after max_attempts it is quarantined. RV001 for an older epoch, RV002 if its time is over';
REVOKE ALL ON FUNCTION revenant.fail_split(pg_catalog.text, pg_catalog.text, pg_catalog.int8, pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION revenant.release_split(plan pg_catalog.text, split pg_catalog.text, epoch pg_catalog.int8) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_release_split';
COMMENT ON FUNCTION revenant.release_split(pg_catalog.text, pg_catalog.text, pg_catalog.int8) IS
'gives a split back without using up an attempt; RV001 for an older epoch, RV002 if its time is over';
REVOKE ALL ON FUNCTION revenant.release_split(pg_catalog.text, pg_catalog.text, pg_catalog.int8) FROM PUBLIC;

CREATE FUNCTION revenant.requeue_split(plan pg_catalog.text, split pg_catalog.text) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_requeue_split';
COMMENT ON FUNCTION revenant.requeue_split(pg_catalog.text, pg_catalog.text) IS
'has a split worked on again that is quarantined; its attempts are counted anew';
REVOKE ALL ON FUNCTION revenant.requeue_split(pg_catalog.text, pg_catalog.text) FROM PUBLIC;

CREATE PROCEDURE revenant.await_splits(IN plan pg_catalog.text, INOUT available pg_catalog.int8 DEFAULT NULL, IN wait pg_catalog.interval DEFAULT NULL)
LANGUAGE c AS 'MODULE_PATHNAME', 'revenant_await_splits';
COMMENT ON PROCEDURE revenant.await_splits(pg_catalog.text, pg_catalog.int8, pg_catalog.interval) IS
'waits until there are splits to claim, or the plan is complete or stalled, or "wait" is over, and gives how many can be claimed now; called at top level it waits without a snapshot, so that it holds back no vacuum';
REVOKE ALL ON PROCEDURE revenant.await_splits(pg_catalog.text, pg_catalog.int8, pg_catalog.interval) FROM PUBLIC;

CREATE FUNCTION revenant.plan_progress(
	plan pg_catalog.text,
	OUT planned pg_catalog.int8, OUT runnable pg_catalog.int8, OUT owned pg_catalog.int8, OUT done pg_catalog.int8, OUT quarantined pg_catalog.int8,
	OUT rate pg_catalog.float8, OUT eta pg_catalog.interval
) RETURNS pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_plan_progress';
COMMENT ON FUNCTION revenant.plan_progress(pg_catalog.text) IS
'how many splits of a plan are in each state, how many became done per second in the last minute, and how long the rest takes at this rate (NULL: unknown; what will be planned later is not in it)';
REVOKE ALL ON FUNCTION revenant.plan_progress(pg_catalog.text) FROM PUBLIC;

-- What a plan's row does not say. visible: the caller may see what is for members of the owner's role and admins only. VOLATILE matters: it is why the
-- view splits asks once per plan. All of these answer on a standby, too: src/plan_view.c.
CREATE FUNCTION revenant._plan_live(
	plan pg_catalog.text,
	OUT state pg_catalog.text, OUT leader pg_catalog.text, OUT done pg_catalog.int8, OUT quarantined pg_catalog.int8, OUT owned pg_catalog.int8, OUT visible pg_catalog.bool
) RETURNS pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 AS 'MODULE_PATHNAME', 'revenant_plan_live';
REVOKE ALL ON FUNCTION revenant._plan_live(pg_catalog.text) FROM PUBLIC;

-- What the row of a split that is owned does not say. STABLE, so that the view splits asks only whoever wants to know.
CREATE FUNCTION revenant._split_live(
	plan_id pg_catalog.int8, number pg_catalog.int8, epoch pg_catalog.int8,
	OUT draining pg_catalog.bool, OUT deadline pg_catalog.timestamptz
) RETURNS pg_catalog.record
LANGUAGE c STABLE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'revenant_split_live';
REVOKE ALL ON FUNCTION revenant._split_live(pg_catalog.int8, pg_catalog.int8, pg_catalog.int8) FROM PUBLIC;

CREATE FUNCTION revenant._members(
	OUT plan pg_catalog.text, OUT worker pg_catalog.text, OUT member pg_catalog.int8, OUT state pg_catalog.text, OUT capacity pg_catalog.int4,
	OUT owned pg_catalog.int4, OUT weight pg_catalog.int8, OUT joined_at pg_catalog.timestamptz, OUT deadline pg_catalog.timestamptz
) RETURNS SETOF pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_members';
REVOKE ALL ON FUNCTION revenant._members() FROM PUBLIC;

CREATE VIEW revenant.plans AS
SELECT
	p.plan, p.owner,
	CASE WHEN l.visible THEN p.fingerprint END AS fingerprint,
	l.state,
	CASE WHEN l.visible THEN p.generation END AS generation,
	l.leader, p.final, p.planned, l.done, l.quarantined, p.revision,
	CASE WHEN l.visible THEN p.cursor END AS cursor,
	p.updated_at, l.owned, p.replan_at, p.replan_outcome,
	CASE WHEN l.visible THEN p.replan_error END AS replan_error,
	p.planner_function, p.replan_every, p.lease_ttl, p.max_attempts,
	p.max_in_flight, p.rebalance_delay, p.drain_deadline,
	CASE WHEN l.visible THEN p.metadata END AS metadata,
	p.created_at
FROM revenant.plan AS p
CROSS JOIN LATERAL revenant._plan_live(p.plan) AS l;
COMMENT ON VIEW revenant.plans IS 'plans, how far each is planned, and how much of it is done';
COMMENT ON COLUMN revenant.plans.owner IS 'the role that created it, or that adopted it; its members plan and work';
COMMENT ON COLUMN revenant.plans.fingerprint IS 'of what it was configured with: who plans or works by another one gets RV004; for members of the owner''s role and for admins';
COMMENT ON COLUMN revenant.plans.state IS 'open: more may be published; final: all is planned; complete: and done; stalled: what is not done is quarantined; held: it came from another database or cluster, see revenant.adopt()';
COMMENT ON COLUMN revenant.plans.generation IS 'the latest one; for members of the owner''s role and for admins';
COMMENT ON COLUMN revenant.plans.leader IS 'who plans now, as it has named itself; null: nobody leads';
COMMENT ON COLUMN revenant.plans.final IS 'no split will be added';
COMMENT ON COLUMN revenant.plans.planned IS 'how many splits there are';
COMMENT ON COLUMN revenant.plans.done IS 'of them, those that are done';
COMMENT ON COLUMN revenant.plans.quarantined IS 'of them, those that were given up after max_attempts: see revenant.requeue_split()';
COMMENT ON COLUMN revenant.plans.revision IS 'how many publications changed something';
COMMENT ON COLUMN revenant.plans.cursor IS 'where its planner goes on; for members of the owner''s role and for admins';
COMMENT ON COLUMN revenant.plans.updated_at IS 'when the latest such publication was, or else when it was created or reset';
COMMENT ON COLUMN revenant.plans.owned IS 'splits that are worked on';
COMMENT ON COLUMN revenant.plans.replan_at IS 'when the planner_function ran last';
COMMENT ON COLUMN revenant.plans.replan_outcome IS 'how that went: ok, noop (nothing new), error, fenced (another generation has taken over)';
COMMENT ON COLUMN revenant.plans.replan_error IS 'the message of the error, null: there was none; for members of the owner''s role and for admins';
COMMENT ON COLUMN revenant.plans.planner_function IS 'run by the task plan/<name>; null: planners are outside';
COMMENT ON COLUMN revenant.plans.metadata IS 'as it was created with; for members of the owner''s role and for admins';
COMMENT ON COLUMN revenant.plans.lease_ttl IS 'how long a leader, a claim or a member lives that says nothing else';
REVOKE ALL ON TABLE revenant.plans FROM PUBLIC;

CREATE VIEW revenant.splits AS
SELECT
	p.plan, s.split,
	CASE
		WHEN t.state OPERATOR(pg_catalog.=) 0 THEN 'runnable'
		WHEN t.state OPERATOR(pg_catalog.=) 1 THEN 'owned'
		WHEN t.state OPERATOR(pg_catalog.=) 2 THEN 'done'
		WHEN t.state OPERATOR(pg_catalog.=) 3 THEN 'quarantined' END AS state,
	CASE WHEN (p.live).visible THEN t.epoch END AS epoch,
	CASE WHEN t.state OPERATOR(pg_catalog.=) 1 THEN t.worker END AS worker,
	t.attempts, s.weight,
	CASE WHEN (p.live).visible THEN t.watermark END AS watermark,
	CASE WHEN (p.live).visible THEN t.progress END AS progress,
	CASE WHEN (p.live).visible THEN s.spec END AS spec,
	CASE WHEN (p.live).visible THEN t.reasons END AS reasons,
	CASE WHEN (p.live).visible THEN s.generation END AS generation,
	t.updated_at,
	CASE WHEN t.state OPERATOR(pg_catalog.=) 1 THEN (revenant._split_live(p.plan_id, t.number, t.epoch)).deadline END AS deadline,
	CASE WHEN t.state OPERATOR(pg_catalog.=) 1 THEN (revenant._split_live(p.plan_id, t.number, t.epoch)).draining END AS draining,
	CASE
		WHEN t.ended OPERATOR(pg_catalog.=) 1 THEN 'done'
		WHEN t.ended OPERATOR(pg_catalog.=) 2 THEN 'released'
		WHEN t.ended OPERATOR(pg_catalog.=) 3 THEN 'failed'
		WHEN t.ended OPERATOR(pg_catalog.=) 4 THEN 'expired'
		WHEN t.ended OPERATOR(pg_catalog.=) 5 THEN 'drained'
		WHEN t.ended OPERATOR(pg_catalog.=) 6 THEN 'revoked'
		WHEN t.ended OPERATOR(pg_catalog.=) 7 THEN 'starved'
		WHEN t.ended OPERATOR(pg_catalog.=) 8 THEN 'fenced'
		WHEN t.ended OPERATOR(pg_catalog.=) 9 THEN 'requeued' END AS ended
FROM (SELECT q.plan, q.plan_id, revenant._plan_live(q.plan) AS live FROM revenant.plan AS q) AS p
JOIN revenant.split AS s ON s.plan_id OPERATOR(pg_catalog.=) p.plan_id
JOIN revenant.split_state AS t ON t.plan_id OPERATOR(pg_catalog.=) s.plan_id AND t.number OPERATOR(pg_catalog.=) s.number;
COMMENT ON VIEW revenant.splits IS 'the splits of plans, and who works on each; ask for those of one plan: WHERE plan = ...';
COMMENT ON COLUMN revenant.splits.split IS 'its id, as its planner published it';
COMMENT ON COLUMN revenant.splits.state IS 'runnable: to be claimed; owned: somebody works on it; done; quarantined: given up after max_attempts, see revenant.requeue_split()';
COMMENT ON COLUMN revenant.splits.epoch IS 'of the latest claim, 0: there was none; for members of the role that owns the plan and for admins, as is what is marked with * below';
COMMENT ON COLUMN revenant.splits.worker IS 'who owns it, as it has named itself; null: nobody';
COMMENT ON COLUMN revenant.splits.attempts IS 'how often work on it ended by a failure or because its time was over, since it advanced; not counting releases, drains and revocations';
COMMENT ON COLUMN revenant.splits.weight IS 'as published: members are assigned about the same sum';
COMMENT ON COLUMN revenant.splits.watermark IS 'as committed last; it only grows *';
COMMENT ON COLUMN revenant.splits.progress IS 'as committed last: where the next worker goes on *';
COMMENT ON COLUMN revenant.splits.spec IS 'what is to be done, as published *';
COMMENT ON COLUMN revenant.splits.reasons IS 'why its attempts failed *';
COMMENT ON COLUMN revenant.splits.generation IS 'that published it *';
COMMENT ON COLUMN revenant.splits.updated_at IS 'the latest change of its row: publication, claim, commit, or end of a claim; renewals are none';
COMMENT ON COLUMN revenant.splits.deadline IS 'when its claim, or its member, expires unless it is heard of; null: nobody owns it';
COMMENT ON COLUMN revenant.splits.draining IS 'its member was asked to hand it over; null: nobody owns it';
COMMENT ON COLUMN revenant.splits.ended IS 'how its latest claim ended: done, released, failed, expired, drained (handed over), revoked (not handed over in time), starved (silent after a revocation that was cancelled), fenced (its member joined again), requeued (taken out of quarantine); null: it did not, or there was none';
REVOKE ALL ON TABLE revenant.splits FROM PUBLIC;

CREATE VIEW revenant.members AS
SELECT m.plan, m.worker, m.member, m.state, m.capacity, m.owned, m.weight, m.joined_at, m.deadline
FROM revenant._members() AS m;
COMMENT ON VIEW revenant.members IS 'workers that joined a plan, and what is assigned to them; those that pull are in the view splits only';
COMMENT ON COLUMN revenant.members.worker IS 'its name, as it has joined by';
COMMENT ON COLUMN revenant.members.member IS 'its token; for members of the role that owns the plan and for admins, null for others';
COMMENT ON COLUMN revenant.members.state IS 'live; expired: its time is over, and what it owned is about to be assigned to others';
COMMENT ON COLUMN revenant.members.capacity IS 'how many splits it is assigned at most, its own or the plan''s max_in_flight';
COMMENT ON COLUMN revenant.members.owned IS 'how many it owns';
COMMENT ON COLUMN revenant.members.weight IS 'the sum of their weights';
COMMENT ON COLUMN revenant.members.deadline IS 'when it expires unless it polls';
REVOKE ALL ON TABLE revenant.members FROM PUBLIC;
