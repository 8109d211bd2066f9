-- Nobody's program breaks by a changed signature: the public functions and views are those of the contract, to the letter.
BEGIN;
SELECT plan(11);

-- Every public function there will be. What is not built yet is not there; what is there must be one of these.
CREATE TEMP TABLE contract (line text PRIMARY KEY);
INSERT INTO contract (line) VALUES
	('function abdicate(election text, token bigint) returns boolean'),
	('function acquire(lease text, ttl interval DEFAULT NULL::interval, holder text DEFAULT NULL::text, metadata jsonb DEFAULT NULL::jsonb, shared boolean DEFAULT false, bound boolean DEFAULT false, lock_delay interval DEFAULT ''00:00:00''::interval, request_id uuid DEFAULT NULL::uuid, wait interval DEFAULT NULL::interval) returns bigint'),
	('function acquire_all(leases text[], ttl interval DEFAULT NULL::interval, holder text DEFAULT NULL::text, metadata jsonb DEFAULT NULL::jsonb, shared boolean DEFAULT false, bound boolean DEFAULT false, lock_delay interval DEFAULT ''00:00:00''::interval, request_id uuid DEFAULT NULL::uuid, wait interval DEFAULT NULL::interval) returns bigint'),
	('function acquire_all_xact(leases text[], holder text DEFAULT NULL::text, metadata jsonb DEFAULT NULL::jsonb, shared boolean DEFAULT false, wait interval DEFAULT NULL::interval) returns bigint'),
	('function acquire_xact(lease text, holder text DEFAULT NULL::text, metadata jsonb DEFAULT NULL::jsonb, shared boolean DEFAULT false, wait interval DEFAULT NULL::interval) returns bigint'),
	('function adopt() returns bigint'),
	('function advance_tokens(beyond bigint) returns void'),
	('function alter_entity_type(type text, changes jsonb) returns void'),
	('function alter_plan(plan text, changes jsonb) returns void'),
	('function alter_task(name text, changes jsonb) returns void'),
	('procedure await_change(IN lease text, INOUT seen bigint DEFAULT NULL::bigint, IN wait interval DEFAULT NULL::interval)'),
	('procedure await_lease(IN lease text, INOUT token bigint DEFAULT NULL::bigint, IN ttl interval DEFAULT NULL::interval, IN holder text DEFAULT NULL::text, IN metadata jsonb DEFAULT NULL::jsonb, IN shared boolean DEFAULT false, IN bound boolean DEFAULT false, IN lock_delay interval DEFAULT ''00:00:00''::interval, IN request_id uuid DEFAULT NULL::uuid, IN wait interval DEFAULT NULL::interval)'),
	('procedure await_splits(IN plan text, INOUT available bigint DEFAULT NULL::bigint, IN wait interval DEFAULT NULL::interval)'),
	('function call(type text, id text, message jsonb, durability text DEFAULT NULL::text, request_id uuid DEFAULT NULL::uuid) returns jsonb'),
	('function cancel_timer(timer bigint) returns boolean'),
	('function claim(election text, candidate text, ttl interval DEFAULT ''00:00:30''::interval, request_id uuid DEFAULT NULL::uuid) returns revenant.claim_result'),
	('function claim_splits(plan text, worker text, n integer DEFAULT 1, ttl interval DEFAULT NULL::interval, fingerprint text DEFAULT NULL::text, request_id uuid DEFAULT NULL::uuid) returns TABLE(split text, epoch bigint, spec jsonb, progress jsonb, attempt integer)'),
	('function commit_split(plan text, split text, epoch bigint, progress jsonb DEFAULT NULL::jsonb, watermark numeric DEFAULT NULL::numeric, done boolean DEFAULT false) returns void'),
	('function commit_splits(plan text, commits jsonb) returns integer'),
	('function create_entity_type(type text, snapshots regclass, handler text, initial_state jsonb DEFAULT NULL::jsonb, initializer text DEFAULT NULL::text, vsn integer DEFAULT 1, upgrade text DEFAULT NULL::text, durability text DEFAULT ''strict''::text, flush_every interval DEFAULT ''00:00:01''::interval, idle_timeout interval DEFAULT ''00:05:00''::interval, terminator text DEFAULT NULL::text) returns void'),
	('function create_plan(plan text, fingerprint text DEFAULT NULL::text, planner_function text DEFAULT NULL::text, replan_every interval DEFAULT ''00:01:00''::interval, lease_ttl interval DEFAULT ''00:00:30''::interval, max_attempts integer DEFAULT 4, max_in_flight integer DEFAULT 8, rebalance_delay interval DEFAULT ''00:00:20''::interval, drain_deadline interval DEFAULT ''00:00:10''::interval, metadata jsonb DEFAULT NULL::jsonb) returns void'),
	('function create_snapshot_table(name text, history integer DEFAULT 0) returns regclass'),
	('function create_task(name text, command text, schedule text DEFAULT NULL::text, timezone text DEFAULT NULL::text, follower_command text DEFAULT NULL::text, run_as text DEFAULT NULL::text, restart text DEFAULT ''permanent''::text, max_restarts integer DEFAULT 5, restart_window interval DEFAULT ''00:10:00''::interval, backoff_min interval DEFAULT ''00:00:01''::interval, backoff_max interval DEFAULT ''00:05:00''::interval, timeout interval DEFAULT NULL::interval, catch_up text DEFAULT ''skip''::text, claim_delay interval DEFAULT ''00:00:00''::interval, lease text DEFAULT NULL::text, settings jsonb DEFAULT NULL::jsonb, enabled boolean DEFAULT true, metadata jsonb DEFAULT NULL::jsonb) returns void'),
	('function current_message(OUT kind text, OUT message_id bigint, OUT attempt integer, OUT sender text) returns record'),
	('function current_task() returns text'),
	('function current_token() returns bigint'),
	('function decline_revoke(plan text, split text, epoch bigint) returns void'),
	('function delete_entity(type text, id text) returns boolean'),
	('function disable_task(name text) returns void'),
	('function discard_message(message_id bigint) returns void'),
	('function drained(plan text, split text, epoch bigint) returns void'),
	('function drop_entity_type(type text) returns void'),
	('function drop_plan(plan text) returns void'),
	('function drop_task(name text) returns void'),
	('function enable_task(name text) returns void'),
	('function events(since bigint DEFAULT 0) returns TABLE(seq bigint, at timestamp with time zone, event text, subject text, phase text, token bigint, node text, pid integer, detail jsonb)'),
	('function explain_lease(lease text) returns text'),
	('function fail_split(plan text, split text, epoch bigint, reason text) returns void'),
	('function fence(lease text, token bigint) returns void'),
	('function fence_split(plan text, split text, epoch bigint) returns void'),
	('function flush_entities(type text DEFAULT NULL::text, id text DEFAULT NULL::text) returns bigint'),
	('function grant_usage(role text, level text DEFAULT ''user''::text) returns void'),
	('function guard_table(target regclass, lease text, replicas boolean DEFAULT false) returns void'),
	('function held_token(lease text) returns bigint'),
	('function history(snapshots regclass, id text) returns SETOF revenant.snapshot'),
	('function is_current(lease text, token bigint) returns boolean'),
	('function join_plan(plan text, worker text, capacity integer DEFAULT NULL::integer, ttl interval DEFAULT NULL::interval, fingerprint text DEFAULT NULL::text, request_id uuid DEFAULT NULL::uuid) returns bigint'),
	('function lead_plan(plan text, candidate text, ttl interval DEFAULT NULL::interval, fingerprint text DEFAULT NULL::text, request_id uuid DEFAULT NULL::uuid) returns bigint'),
	('function leader(election text, OUT leader text, OUT token bigint, OUT since timestamp with time zone) returns record'),
	('function leave_plan(plan text, member bigint) returns integer'),
	('function load(snapshots regclass, id text, for_update boolean DEFAULT false) returns revenant.snapshot'),
	('function load_as_of(snapshots regclass, id text, as_of timestamp with time zone) returns revenant.snapshot'),
	('function load_version(snapshots regclass, id text, version bigint) returns revenant.snapshot'),
	('function plan_progress(plan text, OUT planned bigint, OUT runnable bigint, OUT owned bigint, OUT done bigint, OUT quarantined bigint, OUT rate double precision, OUT eta interval) returns record'),
	('function planner_state(plan text, generation bigint, OUT cursor jsonb, OUT revision bigint, OUT final boolean, OUT planned bigint) returns record'),
	('function poll_plan(plan text, member bigint, seen bigint DEFAULT 0) returns TABLE(seq bigint, event text, split text, epoch bigint, weight bigint, spec jsonb, progress jsonb, detail jsonb)'),
	('function preview_schedule(schedule text, timezone text DEFAULT NULL::text, after timestamp with time zone DEFAULT now(), count integer DEFAULT 5) returns SETOF timestamp with time zone'),
	('function publish(plan text, generation bigint, splits jsonb, cursor jsonb DEFAULT NULL::jsonb, final boolean DEFAULT false, OUT outcome text, OUT created bigint, OUT planned bigint, OUT revision bigint) returns record'),
	('function purge_deleted(snapshots regclass, deleted_before timestamp with time zone) returns bigint'),
	('function purge_plan(plan text, finished_before timestamp with time zone) returns bigint'),
	('function read_entity(type text, id text) returns revenant.snapshot'),
	('function receipt(OUT type text, OUT id text, OUT version bigint, OUT durable boolean, OUT xid xid8, OUT lsn pg_lsn, OUT timeline integer) returns record'),
	('function receipt_status(xid xid8, lsn pg_lsn, timeline integer) returns text'),
	('function refresh(election text, token bigint) returns revenant.claim_result'),
	('function release(lease text, token bigint, hold_off interval DEFAULT NULL::interval) returns boolean'),
	('function release_all(leases text[], token bigint) returns integer'),
	('function release_split(plan text, split text, epoch bigint) returns void'),
	('function remove(snapshots regclass, id text, expected_version bigint) returns bigint'),
	('function renew(lease text, token bigint, ttl interval DEFAULT NULL::interval) returns timestamp with time zone'),
	('function renew_all(leases text[], token bigint, ttl interval DEFAULT NULL::interval) returns timestamp with time zone'),
	('function renew_splits(plan text, splits text[], epochs bigint[], ttl interval DEFAULT NULL::interval) returns SETOF text'),
	('function requeue_split(plan text, split text) returns void'),
	('function resend_message(message_id bigint) returns void'),
	('function reset_plan(plan text) returns void'),
	('function resign_plan(plan text, generation bigint) returns boolean'),
	('function restart_task(name text) returns void'),
	('function revoke(lease text, reason text DEFAULT NULL::text, terminate boolean DEFAULT false) returns bigint'),
	('function revoke_usage(role text) returns void'),
	('function run_task(name text) returns void'),
	('function save(snapshots regclass, id text, expected_version bigint, state jsonb, vsn integer DEFAULT 1) returns bigint'),
	('function send(type text, id text, message jsonb, request_id uuid DEFAULT NULL::uuid) returns bigint'),
	('function send_after(type text, id text, message jsonb, delay interval) returns bigint'),
	('function stat_reset() returns void'),
	('function stop_entity(type text, id text, reason text DEFAULT ''normal''::text) returns boolean'),
	('function try_acquire(lease text, ttl interval DEFAULT NULL::interval, holder text DEFAULT NULL::text, metadata jsonb DEFAULT NULL::jsonb, shared boolean DEFAULT false, bound boolean DEFAULT false, lock_delay interval DEFAULT ''00:00:00''::interval, request_id uuid DEFAULT NULL::uuid) returns bigint'),
	('function try_acquire_all(leases text[], ttl interval DEFAULT NULL::interval, holder text DEFAULT NULL::text, metadata jsonb DEFAULT NULL::jsonb, shared boolean DEFAULT false, bound boolean DEFAULT false, lock_delay interval DEFAULT ''00:00:00''::interval, request_id uuid DEFAULT NULL::uuid) returns bigint'),
	('function try_acquire_all_xact(leases text[], holder text DEFAULT NULL::text, metadata jsonb DEFAULT NULL::jsonb, shared boolean DEFAULT false) returns bigint'),
	('function try_acquire_xact(lease text, holder text DEFAULT NULL::text, metadata jsonb DEFAULT NULL::jsonb, shared boolean DEFAULT false) returns bigint'),
	('function unguard_table(target regclass) returns void'),
	('function unquarantine_task(name text) returns void'),
	('function upgrade_all(type text, batch integer DEFAULT 1000) returns bigint');

CREATE TEMP TABLE contract_column (relation text, position int, name text, type text);
INSERT INTO contract_column (relation, position, name, type) VALUES
	('leases', 1, 'lease', 'text'),
	('leases', 2, 'scope', 'text'),
	('leases', 3, 'token', 'bigint'),
	('leases', 4, 'holder', 'text'),
	('leases', 5, 'role', 'text'),
	('leases', 6, 'pid', 'integer'),
	('leases', 7, 'shared', 'boolean'),
	('leases', 8, 'bound', 'boolean'),
	('leases', 9, 'acquired_at', 'timestamp with time zone'),
	('leases', 10, 'ttl', 'interval'),
	('leases', 11, 'deadline', 'timestamp with time zone'),
	('leases', 12, 'remaining', 'interval'),
	('leases', 13, 'waiters', 'integer'),
	('leases', 14, 'fenced', 'integer'),
	('leases', 15, 'metadata', 'jsonb'),
	('stat_database', 1, 'datid', 'oid'),
	('stat_database', 2, 'datname', 'name'),
	('stat_database', 3, 'leases_acquired', 'bigint'),
	('stat_database', 4, 'leases_rejected', 'bigint'),
	('stat_database', 5, 'leases_lapsed', 'bigint'),
	('stat_database', 6, 'lease_waits', 'bigint'),
	('stat_database', 7, 'lease_wait_time', 'double precision'),
	('stat_database', 8, 'fences_rejected', 'bigint'),
	('stat_database', 9, 'tokens', 'bigint'),
	('stat_database', 10, 'events', 'bigint'),
	('stat_database', 11, 'task_runs', 'bigint'),
	('stat_database', 12, 'task_failures', 'bigint'),
	('stat_database', 13, 'supervisor_ticks', 'bigint'),
	('stat_database', 14, 'supervisor_loads', 'bigint'),
	('stat_database', 15, 'total_load_time', 'double precision'),
	('stat_database', 16, 'max_load_time', 'double precision'),
	('stat_database', 17, 'stats_reset', 'timestamp with time zone'),
	('stat_leases', 1, 'acquired', 'bigint'),
	('stat_leases', 2, 'rejected', 'bigint'),
	('stat_leases', 3, 'waits', 'bigint'),
	('stat_leases', 4, 'total_wait_time', 'double precision'),
	('stat_leases', 5, 'max_wait_time', 'double precision'),
	('stat_leases', 6, 'renewed', 'bigint'),
	('stat_leases', 7, 'released', 'bigint'),
	('stat_leases', 8, 'lapsed', 'bigint'),
	('stat_leases', 9, 'revoked', 'bigint'),
	('stat_leases', 10, 'fenced', 'bigint'),
	('stat_leases', 11, 'fence_rejected', 'bigint'),
	('stat_leases', 12, 'stats_reset', 'timestamp with time zone'),
	('stat_tasks', 1, 'name', 'text'),
	('stat_tasks', 2, 'runs', 'bigint'),
	('stat_tasks', 3, 'succeeded', 'bigint'),
	('stat_tasks', 4, 'failed', 'bigint'),
	('stat_tasks', 5, 'stopped', 'bigint'),
	('stat_tasks', 6, 'interrupted', 'bigint'),
	('stat_tasks', 7, 'restarts', 'bigint'),
	('stat_tasks', 8, 'total_run_time', 'double precision'),
	('stat_tasks', 9, 'max_run_time', 'double precision'),
	('stat_tasks', 10, 'total_start_delay', 'double precision'),
	('stat_tasks', 11, 'max_start_delay', 'double precision'),
	('stat_tasks', 12, 'slot_waits', 'bigint'),
	('stat_tasks', 13, 'quarantined', 'bigint'),
	('stat_tasks', 14, 'stats_reset', 'timestamp with time zone'),
	('tasks', 1, 'name', 'text'),
	('tasks', 2, 'phase', 'text'),
	('tasks', 3, 'node', 'text'),
	('tasks', 4, 'pid', 'integer'),
	('tasks', 5, 'token', 'bigint'),
	('tasks', 6, 'started_at', 'timestamp with time zone'),
	('tasks', 7, 'next_run', 'timestamp with time zone'),
	('tasks', 8, 'runs', 'bigint'),
	('tasks', 9, 'failures', 'bigint'),
	('tasks', 10, 'restarts', 'bigint'),
	('tasks', 11, 'last_success', 'timestamp with time zone'),
	('tasks', 12, 'last_duration', 'interval'),
	('tasks', 13, 'last_error', 'text'),
	('tasks', 14, 'last_sqlstate', 'text'),
	('tasks', 15, 'last_exit', 'integer'),
	('tasks', 16, 'reason', 'text'),
	('tasks', 17, 'schedule', 'text'),
	('tasks', 18, 'command', 'text'),
	('tasks', 19, 'run_as', 'text'),
	('tasks', 20, 'lease', 'text'),
	('tasks', 21, 'enabled', 'boolean');

CREATE TEMP VIEW public_function AS
SELECT p.oid, p.proname AS name, p.provolatile, p.proparallel, p.proisstrict, p.prosecdef, p.proacl, p.proowner,
	CASE p.prokind WHEN 'p' THEN 'procedure ' ELSE 'function ' END || p.proname || '('
		|| pg_get_function_arguments(p.oid) || ')'
		|| coalesce(' returns ' || pg_get_function_result(p.oid), '') AS line
FROM pg_proc AS p
WHERE p.pronamespace = 'revenant'::regnamespace AND p.proname NOT LIKE '\_%';

CREATE TEMP VIEW public_column AS
SELECT c.relname::text AS relation, a.attnum::int AS position, a.attname::text AS name, format_type(a.atttypid, a.atttypmod) AS type
FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
WHERE c.relnamespace = 'revenant'::regnamespace AND c.relkind = 'v' AND a.attnum > 0 AND NOT a.attisdropped;

SELECT is_empty(
	'SELECT line FROM public_function EXCEPT SELECT line FROM contract',
	'every public function has the signature of the contract');
SELECT is_empty(
	$$
		SELECT n.name FROM unnest(ARRAY['acquire', 'acquire_xact', 'advance_tokens', 'fence', 'grant_usage', 'guard_table',
			'is_current', 'release', 'renew', 'revoke_usage', 'try_acquire', 'try_acquire_xact', 'unguard_table']) AS n (name)
		EXCEPT SELECT name FROM public_function
	$$,
	'those of leases, fencing and their use are there');
SELECT is_empty(
	'SELECT name FROM public_function GROUP BY name HAVING count(*) > 1',
	'none is there in two variants');
-- Answers of the moment are VOLATILE, and none of them may run in a parallel worker. What a run of a task is about does not change.
SELECT is_empty(
	$$
		SELECT line, provolatile, proparallel FROM public_function
		WHERE (provolatile, proparallel) <> ('v'::"char", 'u'::"char")
			AND NOT (name IN ('current_task', 'current_token', 'preview_schedule') AND (provolatile, proparallel) = ('s'::"char", 'r'::"char"))
	$$,
	'volatility and parallel safety');
-- A null is answered or refused, never skipped.
SELECT is_empty('SELECT line FROM public_function WHERE proisstrict', 'none is STRICT');
SELECT is_empty('SELECT line FROM public_function WHERE prosecdef', 'none is SECURITY DEFINER');
SELECT is_empty(
	$$
		SELECT p.oid::regprocedure FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
		WHERE p.pronamespace = 'revenant'::regnamespace AND a.grantee = 0
	$$,
	'PUBLIC can execute none, private ones included');
SELECT is_empty(
	$$ SELECT line FROM public_function WHERE coalesce(obj_description(oid, 'pg_proc'), '') = '' $$,
	'every public function has a comment');
SELECT is_empty(
	$$
		SELECT c.oid::regclass FROM pg_class AS c
		WHERE c.relnamespace = 'revenant'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm') AND c.relname NOT LIKE '\_%'
			AND coalesce(obj_description(c.oid, 'pg_class'), '') = ''
	$$,
	'every table and view has one');
-- A view may have more columns at its end.
SELECT is_empty(
	'SELECT relation, position, name, type FROM contract_column EXCEPT SELECT relation, position, name, type FROM public_column',
	'the columns of the views, in order, with their types');
SELECT is_empty(
	$$
		SELECT t.typname FROM pg_type AS t LEFT JOIN pg_class AS c ON c.oid = t.typrelid
		WHERE t.typnamespace = 'revenant'::regnamespace AND t.typtype IN ('c', 'd', 'e', 'r') AND coalesce(c.relkind, 'c') = 'c'
			AND t.typname NOT IN ('claim_result', 'reply', 'snapshot', 'split_plan')
	$$,
	'no type but those of the contract');

SELECT * FROM finish();
ROLLBACK;
