\echo Use "CREATE EXTENSION revenant" to load this file. \quit
-- The schema. One that somebody else made before is an error: nothing of it could be trusted.
CREATE SCHEMA revenant;
COMMENT ON SCHEMA revenant IS 'leases, fencing, elected tasks, durable entities and plans: there is only one';
-- What happened last. The ring is in shared memory: src/events.c.
CREATE FUNCTION revenant.events(since bigint DEFAULT 0) RETURNS TABLE (
	seq bigint, at timestamp with time zone, event text, subject text, phase text, token bigint, node text, pid integer,
	detail jsonb)
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 100 AS 'MODULE_PATHNAME', 'revenant_events';
COMMENT ON FUNCTION revenant.events(bigint) IS
'the latest events of this database on this server with a number above "since", oldest first; token and detail for members of the role that they are about and for admins';
REVOKE ALL ON FUNCTION revenant.events(bigint) FROM PUBLIC;
-- Fence tokens: see src/fence.c for what each number means.
CREATE SEQUENCE revenant._token_mark AS bigint MINVALUE 0 START WITH 0 NO CYCLE;
COMMENT ON SEQUENCE revenant._token_mark IS 'the highest fence token that may have been issued';
CREATE SEQUENCE revenant._token_lineage AS bigint MINVALUE 0 START WITH 0 NO CYCLE;
COMMENT ON SEQUENCE revenant._token_lineage IS 'what is added to the timeline to make an era, and a digest of whose it is';
CREATE SEQUENCE revenant._token_dump AS bigint MINVALUE 0 START WITH 0 NO CYCLE;
COMMENT ON SEQUENCE revenant._token_dump IS 'the present era and a digest of whose it is: what a dump carries';
SELECT pg_catalog.pg_extension_config_dump('revenant._token_dump', '');

CREATE FUNCTION revenant.advance_tokens(beyond bigint) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_advance_tokens';
COMMENT ON FUNCTION revenant.advance_tokens(bigint) IS
'makes every later fence token greater than the given one, for what the server cannot know (a restored snapshot of files, a second restore of one dump); not undone by a rollback';
REVOKE ALL ON FUNCTION revenant.advance_tokens(bigint) FROM PUBLIC;
-- Leases: ttl holds are rows, written when one is acquired and deleted when it is released or taken over.
-- src/lease_row.h has the columns' numbers.
CREATE TABLE revenant.lease (
	name text COLLATE "C" NOT NULL,
	token bigint NOT NULL,
	holder text,
	role text NOT NULL,
	role_oid bigint NOT NULL,
	pid integer NOT NULL,
	ttl interval NOT NULL,
	bound boolean NOT NULL,
	election boolean NOT NULL,
	lock_delay interval NOT NULL,
	hold_off interval,
	metadata jsonb,
	acquired_at timestamp with time zone NOT NULL,
	request_id uuid,
	system_identifier bigint NOT NULL,
	database_oid bigint NOT NULL,
	deadline_us bigint,			-- on the monotonic clock, as long as the server that has this start is up: where shared memory has no room
	server_start bigint,
	CONSTRAINT lease_pkey PRIMARY KEY (name)
);
COMMENT ON TABLE revenant.lease IS 'ttl leases as a restart finds them; read the view revenant.leases instead';
REVOKE ALL ON TABLE revenant.lease FROM PUBLIC;

CREATE FUNCTION revenant.try_acquire(
	lease text, ttl interval DEFAULT NULL, holder text DEFAULT NULL, metadata jsonb DEFAULT NULL,
	shared boolean DEFAULT false, bound boolean DEFAULT false, lock_delay interval DEFAULT '0',
	request_id uuid DEFAULT NULL) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_try_acquire';
COMMENT ON FUNCTION revenant.try_acquire(text, interval, text, jsonb, boolean, boolean, interval, uuid) IS
'acquires a lease and returns its fence token, or NULL if it is busy; without a ttl it is held until released or until the session ends';
REVOKE ALL ON FUNCTION revenant.try_acquire(text, interval, text, jsonb, boolean, boolean, interval, uuid) FROM PUBLIC;

CREATE FUNCTION revenant.acquire(
	lease text, ttl interval DEFAULT NULL, holder text DEFAULT NULL, metadata jsonb DEFAULT NULL,
	shared boolean DEFAULT false, bound boolean DEFAULT false, lock_delay interval DEFAULT '0',
	request_id uuid DEFAULT NULL, wait interval DEFAULT NULL) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_acquire';
COMMENT ON FUNCTION revenant.acquire(text, interval, text, jsonb, boolean, boolean, interval, uuid, interval) IS
'acquires a lease, first come, first served, and returns its fence token, or NULL if it was not free within "wait" (NULL: as long as lock_timeout allows)';
REVOKE ALL ON FUNCTION revenant.acquire(text, interval, text, jsonb, boolean, boolean, interval, uuid, interval) FROM PUBLIC;

CREATE FUNCTION revenant.try_acquire_xact(
	lease text, holder text DEFAULT NULL, metadata jsonb DEFAULT NULL, shared boolean DEFAULT false) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_try_acquire_xact';
COMMENT ON FUNCTION revenant.try_acquire_xact(text, text, jsonb, boolean) IS
'acquires a lease until the end of this transaction and returns its fence token, or NULL if it is busy';
REVOKE ALL ON FUNCTION revenant.try_acquire_xact(text, text, jsonb, boolean) FROM PUBLIC;

CREATE FUNCTION revenant.acquire_xact(
	lease text, holder text DEFAULT NULL, metadata jsonb DEFAULT NULL, shared boolean DEFAULT false,
	wait interval DEFAULT NULL) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_acquire_xact';
COMMENT ON FUNCTION revenant.acquire_xact(text, text, jsonb, boolean, interval) IS
'acquires a lease until the end of this transaction, first come, first served, and returns its fence token, or NULL if it was not free within "wait"';
REVOKE ALL ON FUNCTION revenant.acquire_xact(text, text, jsonb, boolean, interval) FROM PUBLIC;

CREATE FUNCTION revenant.try_acquire_all(
	leases text[],
	ttl interval DEFAULT NULL, holder text DEFAULT NULL, metadata jsonb DEFAULT NULL,
	shared boolean DEFAULT false, bound boolean DEFAULT false, lock_delay interval DEFAULT '0',
	request_id uuid DEFAULT NULL) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_try_acquire_all';
COMMENT ON FUNCTION revenant.try_acquire_all(text[], interval, text, jsonb, boolean, boolean, interval, uuid) IS
'acquires a set of leases, all or none, and returns one fence token for them, or NULL if one is busy; the empty set is the lease "*"';
REVOKE ALL ON FUNCTION revenant.try_acquire_all(text[], interval, text, jsonb, boolean, boolean, interval, uuid) FROM PUBLIC;

CREATE FUNCTION revenant.acquire_all(
	leases text[],
	ttl interval DEFAULT NULL, holder text DEFAULT NULL, metadata jsonb DEFAULT NULL,
	shared boolean DEFAULT false, bound boolean DEFAULT false, lock_delay interval DEFAULT '0',
	request_id uuid DEFAULT NULL, wait interval DEFAULT NULL) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_acquire_all';
COMMENT ON FUNCTION revenant.acquire_all(text[], interval, text, jsonb, boolean, boolean, interval, uuid, interval) IS
'acquires a set of leases, all or none, in any order without deadlock, and returns one fence token for them, or NULL if they were not free within "wait"';
REVOKE ALL ON FUNCTION revenant.acquire_all(text[], interval, text, jsonb, boolean, boolean, interval, uuid, interval) FROM PUBLIC;

CREATE FUNCTION revenant.try_acquire_all_xact(
	leases text[], holder text DEFAULT NULL, metadata jsonb DEFAULT NULL, shared boolean DEFAULT false) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_try_acquire_all_xact';
COMMENT ON FUNCTION revenant.try_acquire_all_xact(text[], text, jsonb, boolean) IS
'acquires a set of leases until the end of this transaction, all or none, and returns one fence token for them, or NULL if one is busy';
REVOKE ALL ON FUNCTION revenant.try_acquire_all_xact(text[], text, jsonb, boolean) FROM PUBLIC;

CREATE FUNCTION revenant.acquire_all_xact(
	leases text[], holder text DEFAULT NULL, metadata jsonb DEFAULT NULL, shared boolean DEFAULT false,
	wait interval DEFAULT NULL) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_acquire_all_xact';
COMMENT ON FUNCTION revenant.acquire_all_xact(text[], text, jsonb, boolean, interval) IS
'acquires a set of leases until the end of this transaction, all or none, and returns one fence token for them, or NULL if they were not free within "wait"';
REVOKE ALL ON FUNCTION revenant.acquire_all_xact(text[], text, jsonb, boolean, interval) FROM PUBLIC;

CREATE FUNCTION revenant.renew(lease text, token bigint, ttl interval DEFAULT NULL) RETURNS timestamp with time zone
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_renew';
COMMENT ON FUNCTION revenant.renew(text, bigint, interval) IS
'moves the deadline of a ttl lease to its ttl from now and returns it, for people to read, or NULL if the lease is lost; a holder counts its own deadline from before it sent the request';
REVOKE ALL ON FUNCTION revenant.renew(text, bigint, interval) FROM PUBLIC;

CREATE FUNCTION revenant.release(lease text, token bigint, hold_off interval DEFAULT NULL) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_release';
COMMENT ON FUNCTION revenant.release(text, bigint, interval) IS
'releases a lease at commit; false if the token is not the current one or its time was over';
REVOKE ALL ON FUNCTION revenant.release(text, bigint, interval) FROM PUBLIC;

CREATE FUNCTION revenant.renew_all(leases text[], token bigint, ttl interval DEFAULT NULL) RETURNS timestamp with time zone
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_renew_all';
COMMENT ON FUNCTION revenant.renew_all(text[], bigint, interval) IS
'renews a set of ttl leases and returns the earliest new deadline; NULL, and none is renewed, if one is lost';
REVOKE ALL ON FUNCTION revenant.renew_all(text[], bigint, interval) FROM PUBLIC;

CREATE FUNCTION revenant.release_all(leases text[], token bigint) RETURNS integer
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_release_all';
COMMENT ON FUNCTION revenant.release_all(text[], bigint) IS 'releases a set of leases at commit and returns how many of them were current';
REVOKE ALL ON FUNCTION revenant.release_all(text[], bigint) FROM PUBLIC;

CREATE FUNCTION revenant.is_current(lease text, token bigint) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_is_current';
COMMENT ON FUNCTION revenant.is_current(text, bigint) IS
'whether a token is the current one of a lease at this moment; a write needs fence() instead';
REVOKE ALL ON FUNCTION revenant.is_current(text, bigint) FROM PUBLIC;

CREATE FUNCTION revenant.fence(lease text, token bigint) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_fence';
COMMENT ON FUNCTION revenant.fence(text, bigint) IS
'fails unless the token is the current one (RV001, RV002); if it returns, the lease cannot change hands before this transaction ends';
REVOKE ALL ON FUNCTION revenant.fence(text, bigint) FROM PUBLIC;

CREATE FUNCTION revenant.held_token(lease text) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_held_token';
COMMENT ON FUNCTION revenant.held_token(text) IS
'the token by which this session or transaction holds a lease, or NULL; not of ttl leases, which belong to no session';
REVOKE ALL ON FUNCTION revenant.held_token(text) FROM PUBLIC;

CREATE PROCEDURE revenant.await_lease(
	IN lease text, INOUT token bigint DEFAULT NULL, IN ttl interval DEFAULT NULL, IN holder text DEFAULT NULL,
	IN metadata jsonb DEFAULT NULL, IN shared boolean DEFAULT false, IN bound boolean DEFAULT false,
	IN lock_delay interval DEFAULT '0', IN request_id uuid DEFAULT NULL, IN wait interval DEFAULT NULL)
LANGUAGE c AS 'MODULE_PATHNAME', 'revenant_await_lease';
COMMENT ON PROCEDURE revenant.await_lease(text, bigint, interval, text, jsonb, boolean, boolean, interval, uuid, interval) IS
'acquire() as a procedure: called at top level it waits without a snapshot, so that it holds back no vacuum';
REVOKE ALL ON PROCEDURE revenant.await_lease(text, bigint, interval, text, jsonb, boolean, boolean, interval, uuid, interval) FROM PUBLIC;

CREATE PROCEDURE revenant.await_change(IN lease text, INOUT seen bigint DEFAULT NULL, IN wait interval DEFAULT NULL)
LANGUAGE c AS 'MODULE_PATHNAME', 'revenant_await_change';
COMMENT ON PROCEDURE revenant.await_change(text, bigint, interval) IS
'waits until a lease changes hands, is released or lapses: gives the change counter at once for NULL, else when it differs from the one given, or at "wait"; it may return early';
REVOKE ALL ON PROCEDURE revenant.await_change(text, bigint, interval) FROM PUBLIC;

CREATE FUNCTION revenant.revoke(lease text, reason text DEFAULT NULL, terminate boolean DEFAULT false) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_revoke';
COMMENT ON FUNCTION revenant.revoke(text, text, boolean) IS
'takes a lease away from whoever holds it and returns the token that is worth nothing any more; "terminate" ends the processes in the way';
REVOKE ALL ON FUNCTION revenant.revoke(text, text, boolean) FROM PUBLIC;

CREATE FUNCTION revenant.explain_lease(lease text) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_explain_lease';
COMMENT ON FUNCTION revenant.explain_lease(text) IS 'who holds a lease, until when, and what it waits for, in words';
REVOKE ALL ON FUNCTION revenant.explain_lease(text) FROM PUBLIC;

CREATE FUNCTION revenant._leases(
	OUT lease text, OUT scope text, OUT token bigint, OUT holder text, OUT role text, OUT pid integer,
	OUT shared boolean, OUT bound boolean, OUT acquired_at timestamp with time zone, OUT ttl interval,
	OUT deadline timestamp with time zone, OUT remaining interval, OUT waiters integer, OUT fenced integer,
	OUT metadata jsonb) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_leases';
REVOKE ALL ON FUNCTION revenant._leases() FROM PUBLIC;

-- For tests and bug reports: a line for each disagreement between shared memory, the lock manager and the rows.
CREATE FUNCTION revenant._lease_check() RETURNS SETOF text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_lease_check';
REVOKE ALL ON FUNCTION revenant._lease_check() FROM PUBLIC;

CREATE VIEW revenant.leases AS
SELECT l.lease, l.scope, l.token, l.holder, l.role, l.pid, l.shared, l.bound, l.acquired_at, l.ttl,
       l.deadline, l.remaining, l.waiters, l.fenced, l.metadata
FROM revenant._leases() AS l;
COMMENT ON VIEW revenant.leases IS
'the leases that are held now; tokens and metadata only for members of the role that acquired and for admins';
REVOKE ALL ON TABLE revenant.leases FROM PUBLIC;

-- Elections: a ttl lease with an answer made for a loop.
CREATE TYPE revenant.claim_result AS (is_leader boolean, token bigint, leader text, refresh_after interval);
REVOKE ALL ON TYPE revenant.claim_result FROM PUBLIC;
COMMENT ON TYPE revenant.claim_result IS 'whether one leads, by which token, who leads, and when to call again';

CREATE FUNCTION revenant.claim(
	election text, candidate text, ttl interval DEFAULT '30 s', request_id uuid DEFAULT NULL) RETURNS revenant.claim_result
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_claim';
COMMENT ON FUNCTION revenant.claim(text, text, interval, uuid) IS 'tries to lead; refresh_after says when to call refresh() or to try again';
REVOKE ALL ON FUNCTION revenant.claim(text, text, interval, uuid) FROM PUBLIC;

CREATE FUNCTION revenant.refresh(election text, token bigint) RETURNS revenant.claim_result
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_refresh';
COMMENT ON FUNCTION revenant.refresh(text, bigint) IS 'goes on leading for the ttl from now; is_leader = false: stop your work first';
REVOKE ALL ON FUNCTION revenant.refresh(text, bigint) FROM PUBLIC;

CREATE FUNCTION revenant.abdicate(election text, token bigint) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_abdicate';
COMMENT ON FUNCTION revenant.abdicate(text, bigint) IS 'gives leadership up, after your work has stopped; false if it was not yours any more';
REVOKE ALL ON FUNCTION revenant.abdicate(text, bigint) FROM PUBLIC;

CREATE FUNCTION revenant.leader(
	election text, OUT leader text, OUT token bigint, OUT since timestamp with time zone) RETURNS record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_leader';
COMMENT ON FUNCTION revenant.leader(text) IS 'who leads now; the token only if it is yours';
REVOKE ALL ON FUNCTION revenant.leader(text) FROM PUBLIC;
-- Guarded tables.
CREATE FUNCTION revenant._guard() RETURNS trigger
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_guard';
REVOKE ALL ON FUNCTION revenant._guard() FROM PUBLIC;

CREATE FUNCTION revenant.guard_table(target regclass, lease text, replicas boolean DEFAULT false) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_guard_table';
COMMENT ON FUNCTION revenant.guard_table(regclass, text, boolean) IS
'from now on a write to the table (and to its partitions and children) needs a transaction that is fenced by the lease; "replicas" also refuses logical apply, at a cost per row';
REVOKE ALL ON FUNCTION revenant.guard_table(regclass, text, boolean) FROM PUBLIC;

CREATE FUNCTION revenant.unguard_table(target regclass) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_unguard_table';
COMMENT ON FUNCTION revenant.unguard_table(regclass) IS 'takes the guard of a table away';
REVOKE ALL ON FUNCTION revenant.unguard_table(regclass) FROM PUBLIC;
/* ---------------------------------------------------------------- tasks */

-- What a task is. Written by create_task, alter_task, drop_task, enable_task, disable_task and their like only. Dumped. enabled_at is when it
-- began anew: was created, enabled, restarted, taken out of quarantine, adopted, or got another command or schedule.
CREATE TABLE revenant.task (
	name pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	command pg_catalog.text NOT NULL,
	schedule pg_catalog.text,
	timezone pg_catalog.text,
	follower_command pg_catalog.text,
	run_as pg_catalog.text NOT NULL,
	run_as_oid pg_catalog.int8 NOT NULL,
	restart pg_catalog.text NOT NULL,
	max_restarts pg_catalog.int4 NOT NULL,
	restart_window pg_catalog.interval NOT NULL,
	backoff_min pg_catalog.interval NOT NULL,
	backoff_max pg_catalog.interval NOT NULL,
	timeout pg_catalog.interval,
	catch_up pg_catalog.text NOT NULL,
	claim_delay pg_catalog.interval NOT NULL,
	lease pg_catalog.text,
	settings pg_catalog.jsonb,
	enabled pg_catalog.bool NOT NULL,
	metadata pg_catalog.jsonb,
	created_at pg_catalog.timestamptz NOT NULL,
	system_identifier pg_catalog.int8 NOT NULL,
	database_oid pg_catalog.int8 NOT NULL,
	enabled_at pg_catalog.timestamptz NOT NULL,
	run_requests pg_catalog.int8 NOT NULL,
	requests_void pg_catalog.int8 NOT NULL,
	CONSTRAINT task_pkey PRIMARY KEY (name)
);
COMMENT ON TABLE revenant.task IS 'tasks as they were created or altered; written by the functions of revenant only';
REVOKE ALL ON TABLE revenant.task FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('revenant.task', '');

-- What became of it. Written by its runner and by the supervisor, never by a user's transaction. Not dumped. It belongs
-- to the task with the same name and created_at; what it says of failures and of the next run holds if enabled_at is the same, too.
CREATE TABLE revenant.task_state (
	name pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	node pg_catalog.text,
	pid pg_catalog.int4,
	token pg_catalog.int8,
	started_at pg_catalog.timestamptz,
	finished_at pg_catalog.timestamptz,
	next_run pg_catalog.timestamptz,
	runs pg_catalog.int8 NOT NULL,
	failures pg_catalog.int8 NOT NULL,
	restarts pg_catalog.int8 NOT NULL,
	consecutive_failures pg_catalog.int4 NOT NULL,
	last_success pg_catalog.timestamptz,
	last_duration pg_catalog.interval,
	last_error pg_catalog.text,
	last_sqlstate pg_catalog.text,
	last_exit pg_catalog.int4,
	retry_at pg_catalog.timestamptz,
	created_at pg_catalog.timestamptz NOT NULL,
	enabled_at pg_catalog.timestamptz NOT NULL,
	failed_at pg_catalog.timestamptz[],		-- the latest failures
	quarantined_at pg_catalog.timestamptz,
	run_requests pg_catalog.int8 NOT NULL DEFAULT 0,	-- how many of the task's were run
	run pg_catalog.int8,	-- the latest one in revenant.task_run
	CONSTRAINT task_state_pkey PRIMARY KEY (name)
);
COMMENT ON TABLE revenant.task_state IS 'the latest run of each task; written by the workers of revenant only';
REVOKE ALL ON TABLE revenant.task_state FROM PUBLIC;

-- The history, for revenant.history_retention. Written by the same processes as task_state, in the same transactions. Not dumped. What is
-- still open is named by the row of task_state of its task.
CREATE TABLE revenant.task_run (
	run pg_catalog.int8 NOT NULL,
	name pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	token pg_catalog.int8,
	node pg_catalog.text NOT NULL,
	pid pg_catalog.int4,
	started_at pg_catalog.timestamptz NOT NULL,
	finished_at pg_catalog.timestamptz,
	outcome pg_catalog.text NOT NULL,
	sqlstate pg_catalog.text,
	message pg_catalog.text,
	CONSTRAINT task_run_pkey PRIMARY KEY (run)
) WITH (fillfactor = 85);
COMMENT ON TABLE revenant.task_run IS 'runs of tasks; written by the workers of revenant only: see the view task_runs';
REVOKE ALL ON TABLE revenant.task_run FROM PUBLIC;
CREATE INDEX task_run_name_run_idx ON revenant.task_run (name, run);
CREATE SEQUENCE revenant._task_run_number;
REVOKE ALL ON SEQUENCE revenant._task_run_number FROM PUBLIC;

CREATE VIEW revenant.task_runs AS
SELECT r.run, r.name, r.token, r.node, r.pid, r.started_at, r.finished_at, r.outcome, r.sqlstate, r.message
FROM revenant.task_run AS r;
COMMENT ON VIEW revenant.task_runs IS 'the history of runs, kept for revenant.history_retention';
COMMENT ON COLUMN revenant.task_runs.run IS 'its number, in the order in which runs began';
COMMENT ON COLUMN revenant.task_runs.name IS 'the task, which may be dropped by now';
COMMENT ON COLUMN revenant.task_runs.token IS 'the fence token of the run; null: it failed before it had the lease';
COMMENT ON COLUMN revenant.task_runs.finished_at IS 'null: it runs';
COMMENT ON COLUMN revenant.task_runs.outcome IS 'running, succeeded, failed, stopped (by us, no failure), interrupted (by a crash or a failover)';
COMMENT ON COLUMN revenant.task_runs.message IS 'of the error that ended it';
REVOKE ALL ON TABLE revenant.task_runs FROM PUBLIC;

CREATE FUNCTION revenant.create_task(
	name pg_catalog.text,
	command pg_catalog.text,
	schedule pg_catalog.text DEFAULT NULL,
	timezone pg_catalog.text DEFAULT NULL,
	follower_command pg_catalog.text DEFAULT NULL,
	run_as pg_catalog.text DEFAULT NULL,
	restart pg_catalog.text DEFAULT 'permanent',
	max_restarts pg_catalog.int4 DEFAULT 5,
	restart_window pg_catalog.interval DEFAULT '10 min',
	backoff_min pg_catalog.interval DEFAULT '1 s',
	backoff_max pg_catalog.interval DEFAULT '5 min',
	timeout pg_catalog.interval DEFAULT NULL,
	catch_up pg_catalog.text DEFAULT 'skip',
	claim_delay pg_catalog.interval DEFAULT '0',
	lease pg_catalog.text DEFAULT NULL,
	settings pg_catalog.jsonb DEFAULT NULL,
	enabled pg_catalog.bool DEFAULT true,
	metadata pg_catalog.jsonb DEFAULT NULL
) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_create_task';
COMMENT ON FUNCTION revenant.create_task(pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.int4, pg_catalog.interval, pg_catalog.interval, pg_catalog.interval, pg_catalog.interval, pg_catalog.text, pg_catalog.interval, pg_catalog.text, pg_catalog.jsonb, pg_catalog.bool, pg_catalog.jsonb)
	IS 'a command that runs one at a time in the whole cluster, wherever the primary is: all the time, or by a schedule';
REVOKE ALL ON FUNCTION revenant.create_task(pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.text, pg_catalog.int4, pg_catalog.interval, pg_catalog.interval, pg_catalog.interval, pg_catalog.interval, pg_catalog.text, pg_catalog.interval, pg_catalog.text, pg_catalog.jsonb, pg_catalog.bool, pg_catalog.jsonb) FROM PUBLIC;

CREATE FUNCTION revenant.preview_schedule(
	schedule pg_catalog.text,
	timezone pg_catalog.text DEFAULT NULL,
	after pg_catalog.timestamptz DEFAULT pg_catalog.now(),
	count pg_catalog.int4 DEFAULT 5
) RETURNS SETOF pg_catalog.timestamptz
LANGUAGE c STABLE PARALLEL RESTRICTED ROWS 5 AS 'MODULE_PATHNAME', 'revenant_preview_schedule';
COMMENT ON FUNCTION revenant.preview_schedule(pg_catalog.text, pg_catalog.text, pg_catalog.timestamptz, pg_catalog.int4)
	IS 'the next times of a schedule, on the wall clock of a time zone or of the database''s; those of an interval are counted from "after"';
REVOKE ALL ON FUNCTION revenant.preview_schedule(pg_catalog.text, pg_catalog.text, pg_catalog.timestamptz, pg_catalog.int4) FROM PUBLIC;

CREATE FUNCTION revenant.alter_task(name pg_catalog.text, changes pg_catalog.jsonb) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_alter_task';
COMMENT ON FUNCTION revenant.alter_task(pg_catalog.text, pg_catalog.jsonb)
	IS 'changes what the object names, as create_task has it; null sets null, what is absent stays. A run is ended only if it would never come to the change';
REVOKE ALL ON FUNCTION revenant.alter_task(pg_catalog.text, pg_catalog.jsonb) FROM PUBLIC;

CREATE FUNCTION revenant.drop_task(name pg_catalog.text) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_drop_task';
COMMENT ON FUNCTION revenant.drop_task(pg_catalog.text) IS 'removes a task; returns when its run has ended';
REVOKE ALL ON FUNCTION revenant.drop_task(pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION revenant.enable_task(name pg_catalog.text) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_enable_task';
COMMENT ON FUNCTION revenant.enable_task(pg_catalog.text) IS 'lets a disabled task run again';
REVOKE ALL ON FUNCTION revenant.enable_task(pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION revenant.disable_task(name pg_catalog.text) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_disable_task';
COMMENT ON FUNCTION revenant.disable_task(pg_catalog.text) IS 'stops a task until it is enabled again; returns when its run has ended';
REVOKE ALL ON FUNCTION revenant.disable_task(pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION revenant.restart_task(name pg_catalog.text) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_restart_task';
COMMENT ON FUNCTION revenant.restart_task(pg_catalog.text) IS 'ends the run of a task and starts it again; what it counted of failures is void';
REVOKE ALL ON FUNCTION revenant.restart_task(pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION revenant.run_task(name pg_catalog.text) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_run_task';
COMMENT ON FUNCTION revenant.run_task(pg_catalog.text) IS 'runs a task once, now, beside its schedule';
REVOKE ALL ON FUNCTION revenant.run_task(pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION revenant.unquarantine_task(name pg_catalog.text) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_unquarantine_task';
COMMENT ON FUNCTION revenant.unquarantine_task(pg_catalog.text) IS 'lets a task run again that was given up after too many failures';
REVOKE ALL ON FUNCTION revenant.unquarantine_task(pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION revenant.adopt() RETURNS pg_catalog.int8
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_adopt';
COMMENT ON FUNCTION revenant.adopt() IS 'starts the tasks, delivers the messages, and goes on with the plans, that came from another cluster or database by a dump, a template or pg_upgrade; returns how many';
REVOKE ALL ON FUNCTION revenant.adopt() FROM PUBLIC;

CREATE FUNCTION revenant.current_task() RETURNS pg_catalog.text
LANGUAGE c STABLE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'revenant_current_task';
COMMENT ON FUNCTION revenant.current_task() IS 'within a run of a task: its name';
REVOKE ALL ON FUNCTION revenant.current_task() FROM PUBLIC;

CREATE FUNCTION revenant.current_token() RETURNS pg_catalog.int8
LANGUAGE c STABLE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'revenant_current_token';
COMMENT ON FUNCTION revenant.current_token() IS 'within a run of a task: the fence token of this run';
REVOKE ALL ON FUNCTION revenant.current_token() FROM PUBLIC;

CREATE FUNCTION revenant._task_status(
	OUT name pg_catalog.text, OUT phase pg_catalog.text, OUT pid pg_catalog.int4,
	OUT next_run pg_catalog.timestamptz, OUT reason pg_catalog.text
) RETURNS SETOF pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_task_status';
REVOKE ALL ON FUNCTION revenant._task_status() FROM PUBLIC;

-- Why no supervisor looks at this database's tasks; NULL: one does.
CREATE FUNCTION revenant._supervision() RETURNS pg_catalog.text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_supervision';
REVOKE ALL ON FUNCTION revenant._supervision() FROM PUBLIC;

CREATE VIEW revenant.tasks AS
SELECT
	t.name,
	COALESCE(u.phase, CASE
		WHEN NOT t.enabled THEN 'disabled'
		WHEN pg_catalog.pg_is_in_recovery() THEN 'following'
		ELSE 'scheduled' END) AS phase,
	s.node,
	COALESCE(u.pid, CASE
		WHEN pg_catalog.pg_is_in_recovery() AND s.started_at IS NOT NULL AND s.finished_at IS NULL THEN s.pid END) AS pid,
	s.token,
	s.started_at,
	CASE
		WHEN NOT t.enabled THEN NULL
		WHEN u.name IS NOT NULL THEN u.next_run
		ELSE COALESCE(s.retry_at, s.next_run) END AS next_run,
	COALESCE(s.runs, 0::pg_catalog.int8) AS runs,
	COALESCE(s.failures, 0::pg_catalog.int8) AS failures,
	COALESCE(s.restarts, 0::pg_catalog.int8) AS restarts,
	s.last_success,
	s.last_duration,
	s.last_error,
	s.last_sqlstate,
	s.last_exit,
	CASE
		WHEN u.name IS NOT NULL THEN u.reason
		WHEN NOT t.enabled THEN 'it is disabled'
		WHEN pg_catalog.pg_is_in_recovery() THEN 'this server is a standby'
		ELSE COALESCE(revenant._supervision(), 'the supervisor has not seen it yet') END AS reason,
	t.schedule,
	t.command,
	t.run_as,
	COALESCE(t.lease, 'task/'::pg_catalog.text OPERATOR(pg_catalog.||) t.name) AS lease,
	t.enabled
FROM revenant.task AS t
LEFT JOIN revenant.task_state AS s
	ON s.name OPERATOR(pg_catalog.=) t.name AND s.created_at OPERATOR(pg_catalog.=) t.created_at
LEFT JOIN revenant._task_status() AS u ON u.name OPERATOR(pg_catalog.=) t.name;
COMMENT ON VIEW revenant.tasks IS 'tasks, what each does now, and how its latest runs went';
REVOKE ALL ON TABLE revenant.tasks FROM PUBLIC;
/* ---------------------------------------------------------------- snapshots */

CREATE TYPE revenant.snapshot AS (
	id pg_catalog.text,
	version pg_catalog.int8,
	vsn pg_catalog.int4,
	state pg_catalog.jsonb,
	updated_at pg_catalog.timestamptz,
	deleted pg_catalog.bool,
	dirty pg_catalog.bool
);
COMMENT ON TYPE revenant.snapshot IS 'one version of a snapshot; dirty: newer than what its row says';

CREATE FUNCTION revenant.create_snapshot_table(name pg_catalog.text, history pg_catalog.int4 DEFAULT 0) RETURNS pg_catalog.regclass
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_create_snapshot_table';
COMMENT ON FUNCTION revenant.create_snapshot_table(pg_catalog.text, pg_catalog.int4) IS
'makes a table of versioned snapshots, owned by the caller; history is how many older versions of each id are kept in name_history, -1 keeps all';
REVOKE ALL ON FUNCTION revenant.create_snapshot_table(pg_catalog.text, pg_catalog.int4) FROM PUBLIC;

-- The row trigger of a snapshot table with a history: src/snapshot_history.c.
CREATE FUNCTION revenant._keep_history() RETURNS pg_catalog.trigger
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_keep_history';
REVOKE ALL ON FUNCTION revenant._keep_history() FROM PUBLIC;

CREATE FUNCTION revenant.load(snapshots pg_catalog.regclass, id pg_catalog.text, for_update pg_catalog.bool DEFAULT false) RETURNS revenant.snapshot
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_load';
COMMENT ON FUNCTION revenant.load(pg_catalog.regclass, pg_catalog.text, pg_catalog.bool) IS
'the snapshot with this id, null if there is none; a removed one has deleted = true; for_update locks it to the end of the transaction';
REVOKE ALL ON FUNCTION revenant.load(pg_catalog.regclass, pg_catalog.text, pg_catalog.bool) FROM PUBLIC;

CREATE FUNCTION revenant.save(
	snapshots pg_catalog.regclass,
	id pg_catalog.text,
	expected_version pg_catalog.int8,
	state pg_catalog.jsonb,
	vsn pg_catalog.int4 DEFAULT 1
) RETURNS pg_catalog.int8
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_save';
COMMENT ON FUNCTION revenant.save(pg_catalog.regclass, pg_catalog.text, pg_catalog.int8, pg_catalog.jsonb, pg_catalog.int4) IS
'writes the next version of a snapshot and returns it; RV003 unless it is at expected_version, 0 for one that must not exist';
REVOKE ALL ON FUNCTION revenant.save(pg_catalog.regclass, pg_catalog.text, pg_catalog.int8, pg_catalog.jsonb, pg_catalog.int4) FROM PUBLIC;

CREATE FUNCTION revenant.remove(snapshots pg_catalog.regclass, id pg_catalog.text, expected_version pg_catalog.int8) RETURNS pg_catalog.int8
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_remove';
COMMENT ON FUNCTION revenant.remove(pg_catalog.regclass, pg_catalog.text, pg_catalog.int8) IS
'removes a snapshot and returns the version of the tombstone that stays; RV003 unless it is at expected_version';
REVOKE ALL ON FUNCTION revenant.remove(pg_catalog.regclass, pg_catalog.text, pg_catalog.int8) FROM PUBLIC;

CREATE FUNCTION revenant.load_version(snapshots pg_catalog.regclass, id pg_catalog.text, version pg_catalog.int8) RETURNS revenant.snapshot
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_load_version';
COMMENT ON FUNCTION revenant.load_version(pg_catalog.regclass, pg_catalog.text, pg_catalog.int8) IS
'the snapshot as it was at this version; null if it never was, or is not kept any more';
REVOKE ALL ON FUNCTION revenant.load_version(pg_catalog.regclass, pg_catalog.text, pg_catalog.int8) FROM PUBLIC;

CREATE FUNCTION revenant.load_as_of(snapshots pg_catalog.regclass, id pg_catalog.text, as_of pg_catalog.timestamptz) RETURNS revenant.snapshot
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_load_as_of';
COMMENT ON FUNCTION revenant.load_as_of(pg_catalog.regclass, pg_catalog.text, pg_catalog.timestamptz) IS
'the snapshot as it was at this time; null if there was none, or it is not kept any more';
REVOKE ALL ON FUNCTION revenant.load_as_of(pg_catalog.regclass, pg_catalog.text, pg_catalog.timestamptz) FROM PUBLIC;

CREATE FUNCTION revenant.history(snapshots pg_catalog.regclass, id pg_catalog.text) RETURNS SETOF revenant.snapshot
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 10 AS 'MODULE_PATHNAME', 'revenant_history';
COMMENT ON FUNCTION revenant.history(pg_catalog.regclass, pg_catalog.text) IS
'all versions of a snapshot that are kept, the current one last';
REVOKE ALL ON FUNCTION revenant.history(pg_catalog.regclass, pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION revenant.purge_deleted(snapshots pg_catalog.regclass, deleted_before pg_catalog.timestamptz) RETURNS pg_catalog.int8
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_purge_deleted';
COMMENT ON FUNCTION revenant.purge_deleted(pg_catalog.regclass, pg_catalog.timestamptz) IS
'deletes the tombstones that are older than this, with their history, and returns how many; versions of these ids begin anew';
REVOKE ALL ON FUNCTION revenant.purge_deleted(pg_catalog.regclass, pg_catalog.timestamptz) FROM PUBLIC;

/* ---------------------------------------------------------------- entities */

CREATE TYPE revenant.reply AS (
	reply pg_catalog.jsonb,
	state pg_catalog.jsonb,
	stop pg_catalog.text
);
COMMENT ON TYPE revenant.reply IS
'what a handler returns: the reply, the next state (null: unchanged), and a reason to stop (null: none)';

-- What a type is. Written by create_entity_type, alter_entity_type and drop_entity_type only. Dumped. Functions and the table
-- are named by text; the table by its oid, too, which counts in the database that the row was made in.
CREATE TABLE revenant.entity_type (
	type pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	snapshots pg_catalog.text NOT NULL,
	snapshots_oid pg_catalog.int8 NOT NULL,
	handler pg_catalog.text NOT NULL,
	initial_state pg_catalog.jsonb,
	initializer pg_catalog.text,
	vsn pg_catalog.int4 NOT NULL,
	upgrade pg_catalog.text,
	durability pg_catalog.text NOT NULL,
	flush_every pg_catalog.interval NOT NULL,
	idle_timeout pg_catalog.interval,
	terminator pg_catalog.text,
	created_at pg_catalog.timestamptz NOT NULL,
	system_identifier pg_catalog.int8 NOT NULL,
	database_oid pg_catalog.int8 NOT NULL,
	CONSTRAINT entity_type_pkey PRIMARY KEY (type)
);
COMMENT ON TABLE revenant.entity_type IS 'types of entities as they were created or altered; written by the functions of revenant only';
REVOKE ALL ON TABLE revenant.entity_type FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('revenant.entity_type', '');

-- What was answered to requests with a request_id: src/request.c. Not dumped.
CREATE TABLE revenant._request_0 (
	request_id pg_catalog.uuid NOT NULL,
	role_oid pg_catalog.int8 NOT NULL,
	verb pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	type pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	id pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	message_digest pg_catalog.bytea NOT NULL,
	reply pg_catalog.jsonb,
	number pg_catalog.int8 NOT NULL,
	xid pg_catalog.int8 NOT NULL,
	lsn pg_catalog.int8 NOT NULL,
	timeline pg_catalog.int4 NOT NULL,
	CONSTRAINT _request_0_pkey PRIMARY KEY (request_id)
);
REVOKE ALL ON TABLE revenant._request_0 FROM PUBLIC;
CREATE TABLE revenant._request_1 (LIKE revenant._request_0, CONSTRAINT _request_1_pkey PRIMARY KEY (request_id));
REVOKE ALL ON TABLE revenant._request_1 FROM PUBLIC;
CREATE SEQUENCE revenant._request_half;
REVOKE ALL ON SEQUENCE revenant._request_half FROM PUBLIC;

CREATE FUNCTION revenant.create_entity_type(
	type pg_catalog.text,
	snapshots pg_catalog.regclass,
	handler pg_catalog.text,
	initial_state pg_catalog.jsonb DEFAULT NULL,
	initializer pg_catalog.text DEFAULT NULL,
	vsn pg_catalog.int4 DEFAULT 1,
	upgrade pg_catalog.text DEFAULT NULL,
	durability pg_catalog.text DEFAULT 'strict',
	flush_every pg_catalog.interval DEFAULT '1 s',
	idle_timeout pg_catalog.interval DEFAULT '5 min',
	terminator pg_catalog.text DEFAULT NULL
) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_create_entity_type';
COMMENT ON FUNCTION revenant.create_entity_type(pg_catalog.text, pg_catalog.regclass, pg_catalog.text, pg_catalog.jsonb, pg_catalog.text, pg_catalog.int4, pg_catalog.text, pg_catalog.text, pg_catalog.interval, pg_catalog.interval, pg_catalog.text) IS
'makes a type of entities that live in a snapshot table of the caller''s; handler is the name of a function (id text, state jsonb, message jsonb) RETURNS revenant.reply';
REVOKE ALL ON FUNCTION revenant.create_entity_type(pg_catalog.text, pg_catalog.regclass, pg_catalog.text, pg_catalog.jsonb, pg_catalog.text, pg_catalog.int4, pg_catalog.text, pg_catalog.text, pg_catalog.interval, pg_catalog.interval, pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION revenant.alter_entity_type(type pg_catalog.text, changes pg_catalog.jsonb) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_alter_entity_type';
COMMENT ON FUNCTION revenant.alter_entity_type(pg_catalog.text, pg_catalog.jsonb) IS
'changes what of a type the JSON object names, such as {"vsn": 2, "upgrade": "account_upgrade"}; waits for calls that are under way';
REVOKE ALL ON FUNCTION revenant.alter_entity_type(pg_catalog.text, pg_catalog.jsonb) FROM PUBLIC;

CREATE FUNCTION revenant.drop_entity_type(type pg_catalog.text) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_drop_entity_type';
COMMENT ON FUNCTION revenant.drop_entity_type(pg_catalog.text) IS 'forgets a type of entities; its table and what is in it stay';
REVOKE ALL ON FUNCTION revenant.drop_entity_type(pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION revenant.call(
	type pg_catalog.text,
	id pg_catalog.text,
	message pg_catalog.jsonb,
	durability pg_catalog.text DEFAULT NULL,
	request_id pg_catalog.uuid DEFAULT NULL
) RETURNS pg_catalog.jsonb
LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000 AS 'MODULE_PATHNAME', 'revenant_call';
COMMENT ON FUNCTION revenant.call(pg_catalog.text, pg_catalog.text, pg_catalog.jsonb, pg_catalog.text, pg_catalog.uuid) IS
'runs an entity''s handler on a message and returns the reply; the new state commits with this transaction. The same request_id gives the first reply again';
REVOKE ALL ON FUNCTION revenant.call(pg_catalog.text, pg_catalog.text, pg_catalog.jsonb, pg_catalog.text, pg_catalog.uuid) FROM PUBLIC;

CREATE FUNCTION revenant.read_entity(type pg_catalog.text, id pg_catalog.text) RETURNS revenant.snapshot
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_read_entity';
COMMENT ON FUNCTION revenant.read_entity(pg_catalog.text, pg_catalog.text) IS 'the latest snapshot of an entity, null if there is none; runs nothing, works on standbys';
REVOKE ALL ON FUNCTION revenant.read_entity(pg_catalog.text, pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION revenant.stop_entity(type pg_catalog.text, id pg_catalog.text, reason pg_catalog.text DEFAULT 'normal') RETURNS pg_catalog.bool
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_stop_entity';
COMMENT ON FUNCTION revenant.stop_entity(pg_catalog.text, pg_catalog.text, pg_catalog.text) IS
'writes and unloads an entity; false: it was not loaded';
REVOKE ALL ON FUNCTION revenant.stop_entity(pg_catalog.text, pg_catalog.text, pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION revenant.delete_entity(type pg_catalog.text, id pg_catalog.text) RETURNS pg_catalog.bool
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_delete_entity';
COMMENT ON FUNCTION revenant.delete_entity(pg_catalog.text, pg_catalog.text) IS
'deletes an entity and leaves a tombstone, so that its versions go on if it is made again; false: there was none';
REVOKE ALL ON FUNCTION revenant.delete_entity(pg_catalog.text, pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION revenant.current_message(
	OUT kind pg_catalog.text, OUT message_id pg_catalog.int8, OUT attempt pg_catalog.int4, OUT sender pg_catalog.text
) RETURNS pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_current_message';
COMMENT ON FUNCTION revenant.current_message() IS
'in a handler: how its message came, call, send or timer, and from which role; nulls elsewhere';
REVOKE ALL ON FUNCTION revenant.current_message() FROM PUBLIC;

CREATE FUNCTION revenant.receipt(
	OUT type pg_catalog.text, OUT id pg_catalog.text, OUT version pg_catalog.int8, OUT durable pg_catalog.bool,
	OUT xid pg_catalog.xid8, OUT lsn pg_catalog.pg_lsn, OUT timeline pg_catalog.int4
) RETURNS pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_receipt';
COMMENT ON FUNCTION revenant.receipt() IS
'of the last call of this session: what receipt_status() needs to tell what became of it; nulls for what wrote nothing';
REVOKE ALL ON FUNCTION revenant.receipt() FROM PUBLIC;

CREATE FUNCTION revenant.receipt_status(xid pg_catalog.xid8, lsn pg_catalog.pg_lsn, timeline pg_catalog.int4) RETURNS pg_catalog.text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_receipt_status';
COMMENT ON FUNCTION revenant.receipt_status(pg_catalog.xid8, pg_catalog.pg_lsn, pg_catalog.int4) IS
'what became of the transaction of a receipt: committed, aborted, in progress or unknown; also on a standby that was promoted';
REVOKE ALL ON FUNCTION revenant.receipt_status(pg_catalog.xid8, pg_catalog.pg_lsn, pg_catalog.int4) FROM PUBLIC;

CREATE FUNCTION revenant.upgrade_all(type pg_catalog.text, batch pg_catalog.int4 DEFAULT 1000) RETURNS pg_catalog.int8
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_upgrade_all';
COMMENT ON FUNCTION revenant.upgrade_all(pg_catalog.text, pg_catalog.int4) IS
'upgrades up to batch snapshots to the vsn of their type and returns how many; call it until it says 0';
REVOKE ALL ON FUNCTION revenant.upgrade_all(pg_catalog.text, pg_catalog.int4) FROM PUBLIC;

CREATE FUNCTION revenant.flush_entities(type pg_catalog.text DEFAULT NULL, id pg_catalog.text DEFAULT NULL) RETURNS pg_catalog.int8
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_flush_entities';
COMMENT ON FUNCTION revenant.flush_entities(pg_catalog.text, pg_catalog.text) IS
'returns when what is in memory ahead of its rows is in them, of one entity, of a type, or of all; and how many entities that were';
REVOKE ALL ON FUNCTION revenant.flush_entities(pg_catalog.text, pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION revenant._loaded_entities(
	OUT type pg_catalog.text, OUT id pg_catalog.text, OUT version pg_catalog.int8, OUT dirty pg_catalog.bool,
	OUT dirty_since pg_catalog.timestamptz, OUT last_used pg_catalog.timestamptz, OUT bytes pg_catalog.int8,
	OUT flush_failures pg_catalog.int4
) RETURNS SETOF pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_loaded_entities';
REVOKE ALL ON FUNCTION revenant._loaded_entities() FROM PUBLIC;

CREATE VIEW revenant.loaded_entities AS
SELECT l.type, l.id, l.version, l.dirty, l.dirty_since, l.last_used, l.bytes, l.flush_failures
FROM revenant._loaded_entities() AS l;
COMMENT ON VIEW revenant.loaded_entities IS
'entities whose state is kept in shared memory, of the tables that the user may read; admins see all';
COMMENT ON COLUMN revenant.loaded_entities.version IS 'of the state in memory';
COMMENT ON COLUMN revenant.loaded_entities.dirty IS 'the state is ahead of the row';
COMMENT ON COLUMN revenant.loaded_entities.dirty_since IS 'the oldest change that is not in the row; null: all are';
COMMENT ON COLUMN revenant.loaded_entities.bytes IS 'of shared memory';
COMMENT ON COLUMN revenant.loaded_entities.flush_failures IS 'how often in a row it could not be written; the log says why';
REVOKE ALL ON TABLE revenant.loaded_entities FROM PUBLIC;
/* ---------------------------------------------------------------- messages and timers of entities */

-- What is to be delivered. Written by send, send_after, cancel_timer, resend_message, discard_message, adopt in their callers' transactions; by the
-- runner that delivers; by the supervisor where there can be none. Dumped. A row is gone with the transaction that applied it.
-- "lane" and "deliver_at" say which queue of its sender it is in, and where: 0 sends, 1 timers, 2 what failed and is tried again, 3 what was set aside.
CREATE TABLE revenant.message (
	message_id pg_catalog.int8 NOT NULL,
	type pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	id pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
	kind pg_catalog.text NOT NULL,		-- send, timer; stop: an idle entity whose terminator is to be told
	message pg_catalog.jsonb NOT NULL,
	sender pg_catalog.text NOT NULL,
	sender_oid pg_catalog.int8 NOT NULL,
	due_at pg_catalog.timestamptz,		-- of a timer
	lane pg_catalog.int4 NOT NULL,
	deliver_at pg_catalog.timestamptz,	-- not before that
	attempts pg_catalog.int4 NOT NULL,
	sqlstate pg_catalog.text,
	error pg_catalog.text,
	sent_at pg_catalog.timestamptz NOT NULL,
	set_aside_at pg_catalog.timestamptz,
	system_identifier pg_catalog.int8 NOT NULL,
	database_oid pg_catalog.int8 NOT NULL,
	CONSTRAINT message_pkey PRIMARY KEY (message_id)
);
COMMENT ON TABLE revenant.message IS 'messages and timers that were sent and not yet applied; written by the functions and workers of revenant only';
REVOKE ALL ON TABLE revenant.message FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('revenant.message', '');
-- What this database does not own is nowhere near what it does: who looks for what is due never meets it.
CREATE INDEX message_queue_idx ON revenant.message (system_identifier, database_oid, sender_oid, lane, deliver_at, message_id);

CREATE FUNCTION revenant.send(type pg_catalog.text, id pg_catalog.text, message pg_catalog.jsonb, request_id pg_catalog.uuid DEFAULT NULL) RETURNS pg_catalog.int8
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_send';
COMMENT ON FUNCTION revenant.send(pg_catalog.text, pg_catalog.text, pg_catalog.jsonb, pg_catalog.uuid)
	IS 'sends an entity a message, from the commit on: it is applied once, as the caller''s role, in order; returns its message_id';
REVOKE ALL ON FUNCTION revenant.send(pg_catalog.text, pg_catalog.text, pg_catalog.jsonb, pg_catalog.uuid) FROM PUBLIC;

CREATE FUNCTION revenant.send_after(type pg_catalog.text, id pg_catalog.text, message pg_catalog.jsonb, delay pg_catalog.interval) RETURNS pg_catalog.int8
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_send_after';
COMMENT ON FUNCTION revenant.send_after(pg_catalog.text, pg_catalog.text, pg_catalog.jsonb, pg_catalog.interval)
	IS 'a timer: sends an entity a message when the delay is over, counted from now; returns its message_id, for cancel_timer';
REVOKE ALL ON FUNCTION revenant.send_after(pg_catalog.text, pg_catalog.text, pg_catalog.jsonb, pg_catalog.interval) FROM PUBLIC;

CREATE FUNCTION revenant.cancel_timer(timer pg_catalog.int8) RETURNS pg_catalog.bool
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_cancel_timer';
COMMENT ON FUNCTION revenant.cancel_timer(pg_catalog.int8)
	IS 'takes a timer back; false: it was delivered, or there is no such timer. Waits for a delivery that is under way';
REVOKE ALL ON FUNCTION revenant.cancel_timer(pg_catalog.int8) FROM PUBLIC;

CREATE FUNCTION revenant.resend_message(message_id pg_catalog.int8) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_resend_message';
COMMENT ON FUNCTION revenant.resend_message(pg_catalog.int8) IS 'has a message delivered that was set aside, in its old place; its attempts are counted anew';
REVOKE ALL ON FUNCTION revenant.resend_message(pg_catalog.int8) FROM PUBLIC;

CREATE FUNCTION revenant.discard_message(message_id pg_catalog.int8) RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_discard_message';
COMMENT ON FUNCTION revenant.discard_message(pg_catalog.int8) IS 'removes a message or timer that was not applied. Waits for a delivery that is under way';
REVOKE ALL ON FUNCTION revenant.discard_message(pg_catalog.int8) FROM PUBLIC;

-- Whether the caller may see, take back and resend what this role has sent.
CREATE FUNCTION revenant._may_see_message(
	sender pg_catalog.text, sender_oid pg_catalog.int8, system_identifier pg_catalog.int8, database_oid pg_catalog.int8
) RETURNS pg_catalog.bool
LANGUAGE c STABLE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'revenant_may_see_message';
REVOKE ALL ON FUNCTION revenant._may_see_message(pg_catalog.text, pg_catalog.int8, pg_catalog.int8, pg_catalog.int8) FROM PUBLIC;

-- Whether a row was made in, or adopted by, this database.
CREATE FUNCTION revenant._is_native(system_identifier pg_catalog.int8, database_oid pg_catalog.int8) RETURNS pg_catalog.bool
LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'revenant_is_native';
REVOKE ALL ON FUNCTION revenant._is_native(pg_catalog.int8, pg_catalog.int8) FROM PUBLIC;

CREATE VIEW revenant.messages WITH (security_barrier) AS
SELECT
	m.message_id, m.type, m.id, m.kind, m.message, m.sender, m.due_at,
	CASE
		WHEN NOT revenant._is_native(m.system_identifier, m.database_oid) THEN 'held'
		WHEN m.set_aside_at IS NOT NULL THEN 'set aside'
		WHEN m.attempts OPERATOR(pg_catalog.>) 0 THEN 'retrying'
		WHEN m.due_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp() THEN 'scheduled'
		ELSE 'pending' END AS state,
	m.attempts, m.sqlstate, m.error, m.sent_at
FROM revenant.message AS m
WHERE revenant._may_see_message(m.sender, m.sender_oid, m.system_identifier, m.database_oid);
COMMENT ON VIEW revenant.messages IS 'messages and timers that were sent and not yet applied, of those senders whose member the caller is; admins see all';
COMMENT ON COLUMN revenant.messages.message_id IS 'what send and send_after returned; it grows, though not in the order of commits';
COMMENT ON COLUMN revenant.messages.type IS 'the type of the entity that it is for';
COMMENT ON COLUMN revenant.messages.id IS 'the entity that it is for';
COMMENT ON COLUMN revenant.messages.kind IS 'send, timer, or stop: the terminator of an entity that was idle is to be told, as the owner of its table';
COMMENT ON COLUMN revenant.messages.message IS 'what the handler is given';
COMMENT ON COLUMN revenant.messages.sender IS 'the role that sent it, as which its handler runs';
COMMENT ON COLUMN revenant.messages.due_at IS 'when a timer is due; NULL for a send';
COMMENT ON COLUMN revenant.messages.state IS 'pending: to be delivered as soon as those before it are; scheduled: a timer that is not due yet; retrying: its handler failed, and is run again; set aside: given up, see error; held: it came from another database or cluster, see revenant.adopt()';
COMMENT ON COLUMN revenant.messages.attempts IS 'how often its handler has failed';
COMMENT ON COLUMN revenant.messages.sqlstate IS 'of the latest failure';
COMMENT ON COLUMN revenant.messages.error IS 'the message of the latest failure, or why it cannot be delivered';
COMMENT ON COLUMN revenant.messages.sent_at IS 'when it was sent, by the clock of then';
REVOKE ALL ON TABLE revenant.messages FROM PUBLIC;
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
/* ---------------------------------------------------------------- counters */

-- What this server has counted, in shared memory: src/stat.c. Without "others" one row, of this database.
CREATE FUNCTION revenant._stat(
	others pg_catalog.bool,
	OUT datid pg_catalog.oid,
	OUT acquired pg_catalog.int8, OUT rejected pg_catalog.int8,
	OUT waits pg_catalog.int8, OUT total_wait_time pg_catalog.float8, OUT max_wait_time pg_catalog.float8,
	OUT renewed pg_catalog.int8, OUT released pg_catalog.int8, OUT lapsed pg_catalog.int8, OUT revoked pg_catalog.int8,
	OUT fenced pg_catalog.int8, OUT fence_rejected pg_catalog.int8,
	OUT tokens pg_catalog.int8, OUT events pg_catalog.int8,
	OUT task_runs pg_catalog.int8, OUT task_failures pg_catalog.int8,
	OUT supervisor_ticks pg_catalog.int8,
	OUT supervisor_loads pg_catalog.int8, OUT total_load_time pg_catalog.float8, OUT max_load_time pg_catalog.float8,
	OUT stats_reset pg_catalog.timestamptz
) RETURNS SETOF pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_stat';
REVOKE ALL ON FUNCTION revenant._stat(pg_catalog.bool) FROM PUBLIC;

CREATE FUNCTION revenant._stat_task(
	name pg_catalog.text, created_at pg_catalog.timestamptz,
	OUT runs pg_catalog.int8, OUT succeeded pg_catalog.int8, OUT failed pg_catalog.int8, OUT stopped pg_catalog.int8,
	OUT interrupted pg_catalog.int8, OUT restarts pg_catalog.int8,
	OUT total_run_time pg_catalog.float8, OUT max_run_time pg_catalog.float8,
	OUT total_start_delay pg_catalog.float8, OUT max_start_delay pg_catalog.float8,
	OUT slot_waits pg_catalog.int8, OUT quarantined pg_catalog.int8
) RETURNS pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_stat_task';
REVOKE ALL ON FUNCTION revenant._stat_task(pg_catalog.text, pg_catalog.timestamptz) FROM PUBLIC;

CREATE VIEW revenant.stat_leases AS
SELECT
	s.acquired, s.rejected, s.waits, s.total_wait_time, s.max_wait_time, s.renewed, s.released, s.lapsed, s.revoked, s.fenced,
	s.fence_rejected, s.stats_reset
FROM revenant._stat(false) AS s;
COMMENT ON VIEW revenant.stat_leases IS 'one row: what was counted of the leases of this database, on this server, since stats_reset';
COMMENT ON COLUMN revenant.stat_leases.acquired IS 'leases that were acquired in transactions that committed, in every scope, by runs of tasks too; each name of a set is one, and what a session has already and asks for again is none';
COMMENT ON COLUMN revenant.stat_leases.rejected IS 'calls that were answered NULL because a name was busy: of try_acquire and its like, of claim, and of acquire and its like at the end of "wait"';
COMMENT ON COLUMN revenant.stat_leases.waits IS 'calls of acquire and its like that had to wait and do so no more, whether they got the lease, gave up or failed; a call that waits several times is one';
COMMENT ON COLUMN revenant.stat_leases.total_wait_time IS 'how long they waited, all together, in milliseconds';
COMMENT ON COLUMN revenant.stat_leases.max_wait_time IS 'the longest of them, in milliseconds';
COMMENT ON COLUMN revenant.stat_leases.renewed IS 'renewals of leases with a ttl that were answered with a deadline, by refresh and by a repeated request_id too; each name of a set is one; also if the transaction rolls back, since the renewal stands';
COMMENT ON COLUMN revenant.stat_leases.released IS 'leases that were released by release, release_all and abdicate, in transactions that committed; not those that ended with their session or transaction';
COMMENT ON COLUMN revenant.stat_leases.lapsed IS 'leases with a ttl that ended without being released, by their time or with the session that they were bound to; counted when somebody takes the lease over, or else by the sweep, which comes once a minute';
COMMENT ON COLUMN revenant.stat_leases.revoked IS 'leases, or the rest of a hold_off, that revoke() took away';
COMMENT ON COLUMN revenant.stat_leases.fenced IS 'fences of transactions that committed, by fence() or by a write to a guarded table while the session holds the lease; the same one again in a transaction is none';
COMMENT ON COLUMN revenant.stat_leases.fence_rejected IS 'how often a fence was refused: RV001 or RV002 by fence(), RV008 by a write to a guarded table';
COMMENT ON COLUMN revenant.stat_leases.stats_reset IS 'since when this server counts: its start, the first use of the extension after that, or stat_reset(); NULL: it does not count, since shared memory is full';
REVOKE ALL ON TABLE revenant.stat_leases FROM PUBLIC;

CREATE VIEW revenant.stat_tasks AS
SELECT
	t.name, c.runs, c.succeeded, c.failed, c.stopped, c.interrupted, c.restarts, c.total_run_time, c.max_run_time,
	c.total_start_delay, c.max_start_delay, c.slot_waits, c.quarantined, s.stats_reset
FROM revenant._stat(false) AS s
CROSS JOIN revenant.task AS t
CROSS JOIN LATERAL revenant._stat_task(t.name, t.created_at) AS c;
COMMENT ON VIEW revenant.stat_tasks IS 'one row for each task: what was counted of it on this server, since stats_reset or since it was created; revenant.tasks has what outlasts a restart';
COMMENT ON COLUMN revenant.stat_tasks.runs IS 'runs that had the lease, and that have ended: the one that is under way is counted at its end, as in all columns below';
COMMENT ON COLUMN revenant.stat_tasks.succeeded IS 'of them, those that ended normally';
COMMENT ON COLUMN revenant.stat_tasks.failed IS 'those that failed, were terminated or cancelled; also before they had the lease, and then they are no runs';
COMMENT ON COLUMN revenant.stat_tasks.stopped IS 'those that revenant ended: the task was disabled or restarted, its role is gone, revenant.enabled was switched off; also before they had the lease';
COMMENT ON COLUMN revenant.stat_tasks.interrupted IS 'runs that were cut off by a crash or on another server before a failover, as found when this server began to lead; their time is not known';
COMMENT ON COLUMN revenant.stat_tasks.restarts IS 'how often it was started again after its end: after a failure, a normal end of a task without a schedule, or an interruption';
COMMENT ON COLUMN revenant.stat_tasks.total_run_time IS 'how long the runs had the lease, all together, in milliseconds';
COMMENT ON COLUMN revenant.stat_tasks.max_run_time IS 'the longest run, in milliseconds';
COMMENT ON COLUMN revenant.stat_tasks.total_start_delay IS 'how long after they were due the runs had the lease, all together, in milliseconds: by the wait for a runner, the start of the process and the wait for the lease';
COMMENT ON COLUMN revenant.stat_tasks.max_start_delay IS 'the longest such delay, in milliseconds; a time that is made up for by catch_up was due when it was missed';
COMMENT ON COLUMN revenant.stat_tasks.slot_waits IS 'how many runs had to wait for a runner to be free (phase waiting_for_slot)';
COMMENT ON COLUMN revenant.stat_tasks.quarantined IS 'how often it was given up after too many failures';
COMMENT ON COLUMN revenant.stat_tasks.stats_reset IS 'as in revenant.stat_leases';
REVOKE ALL ON TABLE revenant.stat_tasks FROM PUBLIC;

CREATE VIEW revenant.stat_database AS
SELECT DISTINCT ON (s.datid)
	s.datid, d.datname,
	s.acquired AS leases_acquired, s.rejected AS leases_rejected, s.lapsed AS leases_lapsed,
	s.waits AS lease_waits, s.total_wait_time AS lease_wait_time, s.fence_rejected AS fences_rejected,
	s.tokens, s.events, s.task_runs, s.task_failures,
	s.supervisor_ticks, s.supervisor_loads, s.total_load_time, s.max_load_time, s.stats_reset
FROM revenant._stat(true) AS s
JOIN pg_catalog.pg_database AS d ON d.oid OPERATOR(pg_catalog.=) s.datid
ORDER BY s.datid, s.stats_reset DESC;
COMMENT ON VIEW revenant.stat_database IS 'one row for each database that this server has counted something for, since stats_reset: sums, as every user of revenant.stat_database may see them';
COMMENT ON COLUMN revenant.stat_database.datid IS 'the database''s oid';
COMMENT ON COLUMN revenant.stat_database.leases_acquired IS 'as acquired in revenant.stat_leases of that database';
COMMENT ON COLUMN revenant.stat_database.leases_rejected IS 'as rejected there';
COMMENT ON COLUMN revenant.stat_database.leases_lapsed IS 'as lapsed there';
COMMENT ON COLUMN revenant.stat_database.lease_waits IS 'as waits there';
COMMENT ON COLUMN revenant.stat_database.lease_wait_time IS 'as total_wait_time there, in milliseconds';
COMMENT ON COLUMN revenant.stat_database.fences_rejected IS 'as fence_rejected there';
COMMENT ON COLUMN revenant.stat_database.tokens IS 'fence tokens that were drawn, also in transactions that rolled back; a set of names draws one';
COMMENT ON COLUMN revenant.stat_database.events IS 'events that were told: more than revenant.events() still has';
COMMENT ON COLUMN revenant.stat_database.task_runs IS 'the sum of runs in revenant.stat_tasks of that database, of tasks that are gone too';
COMMENT ON COLUMN revenant.stat_database.task_failures IS 'the sum of failed there, of tasks that are gone too';
COMMENT ON COLUMN revenant.stat_database.supervisor_ticks IS 'how often the supervisor has looked at everything';
COMMENT ON COLUMN revenant.stat_database.supervisor_loads IS 'how often it has read the tasks'' rows';
COMMENT ON COLUMN revenant.stat_database.total_load_time IS 'how long that took, all together, in milliseconds';
COMMENT ON COLUMN revenant.stat_database.max_load_time IS 'the longest of these, in milliseconds';
COMMENT ON COLUMN revenant.stat_database.stats_reset IS 'as in revenant.stat_leases of that database';
REVOKE ALL ON TABLE revenant.stat_database FROM PUBLIC;

CREATE FUNCTION revenant._stat_entities(
	OUT calls pg_catalog.int8, OUT kept pg_catalog.int8, OUT written pg_catalog.int8, OUT created pg_catalog.int8,
	OUT deleted pg_catalog.int8, OUT upgraded pg_catalog.int8, OUT loaded pg_catalog.int8, OUT unloaded pg_catalog.int8,
	OUT conflicts pg_catalog.int8, OUT flushed pg_catalog.int8, OUT flush_failures pg_catalog.int8,
	OUT messages_sent pg_catalog.int8, OUT messages_applied pg_catalog.int8, OUT message_failures pg_catalog.int8,
	OUT messages_set_aside pg_catalog.int8, OUT flushes pg_catalog.int8, OUT total_flush_time pg_catalog.float8,
	OUT max_flush_time pg_catalog.float8, OUT stats_reset pg_catalog.timestamptz
) RETURNS pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_stat_entities';
REVOKE ALL ON FUNCTION revenant._stat_entities() FROM PUBLIC;

CREATE VIEW revenant.stat_entities AS
SELECT
	s.calls, s.kept, s.written, s.created, s.deleted, s.upgraded, s.loaded, s.unloaded, s.conflicts, s.flushed, s.flush_failures,
	s.flushes, s.total_flush_time, s.max_flush_time, s.messages_sent, s.messages_applied, s.message_failures, s.messages_set_aside, s.stats_reset
FROM revenant._stat_entities() AS s;
COMMENT ON VIEW revenant.stat_entities IS 'one row: what was counted of this database''s entities on this server since stats_reset';
COMMENT ON COLUMN revenant.stat_entities.calls IS 'calls whose handler ended normally, messages and timers too; also if the transaction rolls back, as in all columns that do not say otherwise';
COMMENT ON COLUMN revenant.stat_entities.kept IS 'states that commits left in memory, ahead of their rows';
COMMENT ON COLUMN revenant.stat_entities.written IS 'rows of entities that calls, stop_entity, delete_entity and upgrade_all wrote; not those that were flushed';
COMMENT ON COLUMN revenant.stat_entities.created IS 'of them, those of entities that had no row';
COMMENT ON COLUMN revenant.stat_entities.deleted IS 'of them, tombstones';
COMMENT ON COLUMN revenant.stat_entities.upgraded IS 'states that were brought to the vsn of their type, written or not';
COMMENT ON COLUMN revenant.stat_entities.loaded IS 'how often a commit brought an entity into memory';
COMMENT ON COLUMN revenant.stat_entities.unloaded IS 'how often one went out of memory, by a commit or by the flusher';
COMMENT ON COLUMN revenant.stat_entities.conflicts IS 'how often memory was dropped because somebody else had written the row (event entity.conflict)';
COMMENT ON COLUMN revenant.stat_entities.flushed IS 'rows that flushers wrote and committed';
COMMENT ON COLUMN revenant.stat_entities.flush_failures IS 'how often an entity could not be flushed; it is tried again';
COMMENT ON COLUMN revenant.stat_entities.flushes IS 'transactions of flushers that wrote';
COMMENT ON COLUMN revenant.stat_entities.total_flush_time IS 'how long they took, all together, in milliseconds';
COMMENT ON COLUMN revenant.stat_entities.max_flush_time IS 'the longest of them, in milliseconds';
COMMENT ON COLUMN revenant.stat_entities.messages_sent IS 'by send and send_after; one that is repeated by its request_id is none';
COMMENT ON COLUMN revenant.stat_entities.messages_applied IS 'messages and timers whose handler''s transaction committed, and idle entities whose terminator was told';
COMMENT ON COLUMN revenant.stat_entities.message_failures IS 'how often the handler of one failed';
COMMENT ON COLUMN revenant.stat_entities.messages_set_aside IS 'messages that were given up (event message.set_aside)';
COMMENT ON COLUMN revenant.stat_entities.stats_reset IS 'as in revenant.stat_leases';
REVOKE ALL ON TABLE revenant.stat_entities FROM PUBLIC;

-- What this server has counted of each plan, in the order of enum PlanCounter, and how it is now: src/plan_view.c.
CREATE FUNCTION revenant._stat_plans(
	OUT plan pg_catalog.text, OUT acquired_create pg_catalog.int8, OUT acquired_reclaimed pg_catalog.int8, OUT acquired_expired pg_catalog.int8,
	OUT acquired_reassigned pg_catalog.int8, OUT lost_fenced pg_catalog.int8, OUT lost_starved pg_catalog.int8, OUT lost_revoked pg_catalog.int8,
	OUT lost_expired pg_catalog.int8, OUT releases pg_catalog.int8, OUT commits pg_catalog.int8, OUT finished pg_catalog.int8,
	OUT failures pg_catalog.int8, OUT quarantines pg_catalog.int8, OUT revocations_requested pg_catalog.int8,
	OUT revocations_drained pg_catalog.int8, OUT revocations_forced pg_catalog.int8, OUT revocations_cancelled pg_catalog.int8,
	OUT revocations_declined pg_catalog.int8, OUT planned pg_catalog.int8, OUT replans_ok pg_catalog.int8, OUT replans_noop pg_catalog.int8,
	OUT replans_error pg_catalog.int8, OUT replans_fenced pg_catalog.int8, OUT total_replan_time pg_catalog.float8,
	OUT total_drain_time pg_catalog.float8, OUT assignments pg_catalog.int8, OUT total_assign_time pg_catalog.float8,
	OUT fenced_writes pg_catalog.int8, OUT owned pg_catalog.int8, OUT done pg_catalog.int8, OUT quarantined pg_catalog.int8,
	OUT live_members pg_catalog.int4, OUT leader pg_catalog.text, OUT idle_members pg_catalog.int4, OUT draining pg_catalog.int8,
	OUT stats_reset pg_catalog.timestamptz
) RETURNS SETOF pg_catalog.record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_stat_plans';
REVOKE ALL ON FUNCTION revenant._stat_plans() FROM PUBLIC;

CREATE VIEW revenant.stat_plans AS
SELECT
	s.plan, s.acquired_create, s.acquired_reclaimed, s.acquired_expired, s.acquired_reassigned, s.lost_fenced, s.lost_starved, s.lost_revoked,
	s.lost_expired, s.releases, s.commits, s.finished, s.failures, s.quarantines, s.revocations_requested, s.revocations_drained,
	s.revocations_forced, s.revocations_cancelled, s.revocations_declined, s.planned, s.replans_ok, s.replans_noop, s.replans_error,
	s.replans_fenced, s.total_replan_time, s.total_drain_time, s.assignments, s.total_assign_time, s.fenced_writes, s.owned, s.done, s.quarantined,
	s.live_members, s.leader, s.idle_members, s.draining, s.stats_reset
FROM revenant._stat_plans() AS s;
COMMENT ON VIEW revenant.stat_plans IS 'one row for each plan: what was counted of it on this server since stats_reset, and, from owned on, how it is now';
COMMENT ON COLUMN revenant.stat_plans.acquired_create IS 'claims of splits that were never owned, in transactions that committed, as in all columns that do not say otherwise';
COMMENT ON COLUMN revenant.stat_plans.acquired_reclaimed IS 'claims of splits that had been released, had failed, or were requeued';
COMMENT ON COLUMN revenant.stat_plans.acquired_expired IS 'claims of splits whose claim before had expired';
COMMENT ON COLUMN revenant.stat_plans.acquired_reassigned IS 'claims of splits that were handed over or revoked for the sake of balance, or whose member joined again';
COMMENT ON COLUMN revenant.stat_plans.lost_fenced IS 'claims that ended because a newer one took their place: their member joined again';
COMMENT ON COLUMN revenant.stat_plans.lost_starved IS 'claims that ended because their member was silent after a revocation that was cancelled';
COMMENT ON COLUMN revenant.stat_plans.lost_revoked IS 'claims that ended because their split was not handed over in time';
COMMENT ON COLUMN revenant.stat_plans.lost_expired IS 'claims whose time, or whose member''s, was over';
COMMENT ON COLUMN revenant.stat_plans.releases IS 'claims that their worker ended itself: by release_split and leave_plan; what it handed over (drained) is in revocations_drained';
COMMENT ON COLUMN revenant.stat_plans.commits IS 'commits of splits that changed something; one of a split that says what is there already is none';
COMMENT ON COLUMN revenant.stat_plans.finished IS 'splits that became done by a commit; not those that were published as done';
COMMENT ON COLUMN revenant.stat_plans.failures IS 'calls of fail_split';
COMMENT ON COLUMN revenant.stat_plans.quarantines IS 'splits that were given up after max_attempts';
COMMENT ON COLUMN revenant.stat_plans.revocations_requested IS 'how often a member was asked to hand a split over';
COMMENT ON COLUMN revenant.stat_plans.revocations_drained IS 'of them, those that the member followed';
COMMENT ON COLUMN revenant.stat_plans.revocations_forced IS 'of them, those that it did not follow in time';
COMMENT ON COLUMN revenant.stat_plans.revocations_cancelled IS 'of them, those that were taken back';
COMMENT ON COLUMN revenant.stat_plans.revocations_declined IS 'of them, those that it declined';
COMMENT ON COLUMN revenant.stat_plans.planned IS 'splits that were published';
COMMENT ON COLUMN revenant.stat_plans.replans_ok IS 'publications, by planner_function or from outside, that changed something';
COMMENT ON COLUMN revenant.stat_plans.replans_noop IS 'publications in which nothing was new';
COMMENT ON COLUMN revenant.stat_plans.replans_error IS 'runs of the planner_function that failed';
COMMENT ON COLUMN revenant.stat_plans.replans_fenced IS 'publications that were refused because another generation had taken over';
COMMENT ON COLUMN revenant.stat_plans.total_replan_time IS 'how long the runs of the planner_function took, all together, in milliseconds';
COMMENT ON COLUMN revenant.stat_plans.total_drain_time IS 'how long revocations took from the request to their end, all together, in milliseconds';
COMMENT ON COLUMN revenant.stat_plans.assignments IS 'how often it was computed which member gets what';
COMMENT ON COLUMN revenant.stat_plans.total_assign_time IS 'how long that took, all together, in milliseconds';
COMMENT ON COLUMN revenant.stat_plans.fenced_writes IS 'calls that were refused for their epoch or generation, RV001 and RV002; their transactions need not commit';
COMMENT ON COLUMN revenant.stat_plans.owned IS 'splits that are owned now';
COMMENT ON COLUMN revenant.stat_plans.done IS 'splits that are done now';
COMMENT ON COLUMN revenant.stat_plans.quarantined IS 'splits that are quarantined now';
COMMENT ON COLUMN revenant.stat_plans.live_members IS 'members whose time is not over';
COMMENT ON COLUMN revenant.stat_plans.leader IS 'who plans now, as it has named itself; null: nobody leads';
COMMENT ON COLUMN revenant.stat_plans.idle_members IS 'of the live members, those that own nothing';
COMMENT ON COLUMN revenant.stat_plans.draining IS 'splits that a member was asked to hand over, and has not yet';
COMMENT ON COLUMN revenant.stat_plans.stats_reset IS 'as in revenant.stat_leases, but not before this server knew the plan';
REVOKE ALL ON TABLE revenant.stat_plans FROM PUBLIC;

CREATE FUNCTION revenant.stat_reset() RETURNS pg_catalog.void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_stat_reset';
COMMENT ON FUNCTION revenant.stat_reset() IS
'sets the counters of this database to zero on this server, those of its tasks and plans too; at once, and a rollback does not bring them back';
REVOKE ALL ON FUNCTION revenant.stat_reset() FROM PUBLIC;
-- Who may use what. Nothing is granted to PUBLIC; grant_usage() grants by level and remembers it.
CREATE TABLE revenant._usage_object (
	object text COLLATE "C" NOT NULL,	-- as GRANT names it
	privilege text COLLATE "C" NOT NULL,
	level text COLLATE "C" NOT NULL,
	CONSTRAINT _usage_object_pkey PRIMARY KEY (object, level)
);
REVOKE ALL ON TABLE revenant._usage_object FROM PUBLIC;

INSERT INTO revenant._usage_object (object, privilege, level) VALUES
	('SCHEMA revenant', 'USAGE', 'reader'),
	('TABLE revenant.leases', 'SELECT', 'reader'),
	('FUNCTION revenant._leases()', 'EXECUTE', 'reader'),
	('FUNCTION revenant.events(bigint)', 'EXECUTE', 'reader'),
	('FUNCTION revenant.explain_lease(text)', 'EXECUTE', 'reader'),
	('FUNCTION revenant.leader(text)', 'EXECUTE', 'reader'),
	('TABLE revenant.tasks', 'SELECT', 'reader'),
	('TABLE revenant.task_runs', 'SELECT', 'reader'),
	('FUNCTION revenant._task_status()', 'EXECUTE', 'reader'),
	('FUNCTION revenant._supervision()', 'EXECUTE', 'reader'),
	('TABLE revenant.stat_database', 'SELECT', 'reader'),
	('TABLE revenant.stat_leases', 'SELECT', 'reader'),
	('TABLE revenant.stat_tasks', 'SELECT', 'reader'),
	('TABLE revenant.stat_entities', 'SELECT', 'reader'),
	('FUNCTION revenant._stat_entities()', 'EXECUTE', 'reader'),
	('FUNCTION revenant._stat(boolean)', 'EXECUTE', 'reader'),
	('FUNCTION revenant._stat_task(text, timestamp with time zone)', 'EXECUTE', 'reader'),
	('FUNCTION revenant.load(regclass, text, boolean)', 'EXECUTE', 'reader'),
	('FUNCTION revenant.load_version(regclass, text, bigint)', 'EXECUTE', 'reader'),
	('FUNCTION revenant.load_as_of(regclass, text, timestamp with time zone)', 'EXECUTE', 'reader'),
	('FUNCTION revenant.history(regclass, text)', 'EXECUTE', 'reader'),
	('FUNCTION revenant.read_entity(text, text)', 'EXECUTE', 'reader'),
	('TABLE revenant.loaded_entities', 'SELECT', 'reader'),
	('FUNCTION revenant._loaded_entities()', 'EXECUTE', 'reader'),
	('TABLE revenant.messages', 'SELECT', 'reader'),
	('FUNCTION revenant._may_see_message(text, bigint, bigint, bigint)', 'EXECUTE', 'reader'),
	('FUNCTION revenant._is_native(bigint, bigint)', 'EXECUTE', 'reader'),
	('TABLE revenant.plans', 'SELECT', 'reader'),
	('TABLE revenant.splits', 'SELECT', 'reader'),
	('TABLE revenant.members', 'SELECT', 'reader'),
	('TABLE revenant.stat_plans', 'SELECT', 'reader'),
	('FUNCTION revenant._plan_live(text)', 'EXECUTE', 'reader'),
	('FUNCTION revenant._split_live(bigint, bigint, bigint)', 'EXECUTE', 'reader'),
	('FUNCTION revenant._members()', 'EXECUTE', 'reader'),
	('FUNCTION revenant._stat_plans()', 'EXECUTE', 'reader'),
	('FUNCTION revenant.plan_progress(text)', 'EXECUTE', 'reader'),
	-- what pg_dump reads
	('TABLE revenant.task', 'SELECT', 'reader'),
	('TABLE revenant.entity_type', 'SELECT', 'reader'),
	('TABLE revenant.message', 'SELECT', 'reader'),
	('TABLE revenant.plan', 'SELECT', 'reader'),
	('TABLE revenant.split', 'SELECT', 'reader'),
	('TABLE revenant.split_state', 'SELECT', 'reader'),
	('TABLE revenant.usage_grant', 'SELECT', 'reader'),
	('SEQUENCE revenant._token_dump', 'SELECT', 'reader'),

	('SCHEMA revenant', 'USAGE', 'user'),
	('TABLE revenant.leases', 'SELECT', 'user'),
	('FUNCTION revenant._leases()', 'EXECUTE', 'user'),
	('FUNCTION revenant.events(bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.try_acquire(text, interval, text, jsonb, boolean, boolean, interval, uuid)', 'EXECUTE', 'user'),
	('FUNCTION revenant.acquire(text, interval, text, jsonb, boolean, boolean, interval, uuid, interval)', 'EXECUTE', 'user'),
	('FUNCTION revenant.try_acquire_xact(text, text, jsonb, boolean)', 'EXECUTE', 'user'),
	('FUNCTION revenant.acquire_xact(text, text, jsonb, boolean, interval)', 'EXECUTE', 'user'),
	('FUNCTION revenant.try_acquire_all(text[], interval, text, jsonb, boolean, boolean, interval, uuid)', 'EXECUTE', 'user'),
	('FUNCTION revenant.acquire_all(text[], interval, text, jsonb, boolean, boolean, interval, uuid, interval)', 'EXECUTE', 'user'),
	('FUNCTION revenant.try_acquire_all_xact(text[], text, jsonb, boolean)', 'EXECUTE', 'user'),
	('FUNCTION revenant.acquire_all_xact(text[], text, jsonb, boolean, interval)', 'EXECUTE', 'user'),
	('FUNCTION revenant.renew_all(text[], bigint, interval)', 'EXECUTE', 'user'),
	('FUNCTION revenant.release_all(text[], bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.renew(text, bigint, interval)', 'EXECUTE', 'user'),
	('FUNCTION revenant.release(text, bigint, interval)', 'EXECUTE', 'user'),
	('FUNCTION revenant.is_current(text, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.fence(text, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.held_token(text)', 'EXECUTE', 'user'),
	('FUNCTION revenant.explain_lease(text)', 'EXECUTE', 'user'),
	('PROCEDURE revenant.await_lease(text, bigint, interval, text, jsonb, boolean, boolean, interval, uuid, interval)', 'EXECUTE', 'user'),
	('PROCEDURE revenant.await_change(text, bigint, interval)', 'EXECUTE', 'user'),
	('FUNCTION revenant.claim(text, text, interval, uuid)', 'EXECUTE', 'user'),
	('FUNCTION revenant.refresh(text, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.abdicate(text, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.leader(text)', 'EXECUTE', 'user'),
	('FUNCTION revenant._guard()', 'EXECUTE', 'user'),
	('FUNCTION revenant.guard_table(regclass, text, boolean)', 'EXECUTE', 'user'),
	('FUNCTION revenant.unguard_table(regclass)', 'EXECUTE', 'user'),
	('FUNCTION revenant.create_snapshot_table(text, integer)', 'EXECUTE', 'user'),
	('FUNCTION revenant._keep_history()', 'EXECUTE', 'user'),
	('FUNCTION revenant.load(regclass, text, boolean)', 'EXECUTE', 'user'),
	('FUNCTION revenant.save(regclass, text, bigint, jsonb, integer)', 'EXECUTE', 'user'),
	('FUNCTION revenant.remove(regclass, text, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.load_version(regclass, text, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.load_as_of(regclass, text, timestamp with time zone)', 'EXECUTE', 'user'),
	('FUNCTION revenant.history(regclass, text)', 'EXECUTE', 'user'),
	('FUNCTION revenant.purge_deleted(regclass, timestamp with time zone)', 'EXECUTE', 'user'),
	('FUNCTION revenant.call(text, text, jsonb, text, uuid)', 'EXECUTE', 'user'),
	('FUNCTION revenant.read_entity(text, text)', 'EXECUTE', 'user'),
	('FUNCTION revenant.stop_entity(text, text, text)', 'EXECUTE', 'user'),
	('FUNCTION revenant.flush_entities(text, text)', 'EXECUTE', 'user'),
	('TABLE revenant.loaded_entities', 'SELECT', 'user'),
	('FUNCTION revenant._loaded_entities()', 'EXECUTE', 'user'),
	('FUNCTION revenant.delete_entity(text, text)', 'EXECUTE', 'user'),
	('FUNCTION revenant.current_message()', 'EXECUTE', 'user'),
	('FUNCTION revenant.receipt()', 'EXECUTE', 'user'),
	('FUNCTION revenant.receipt_status(xid8, pg_lsn, integer)', 'EXECUTE', 'user'),
	('FUNCTION revenant.upgrade_all(text, integer)', 'EXECUTE', 'user'),
	('FUNCTION revenant.current_task()', 'EXECUTE', 'user'),
	('FUNCTION revenant.preview_schedule(text, text, timestamp with time zone, integer)', 'EXECUTE', 'user'),
	('FUNCTION revenant.current_token()', 'EXECUTE', 'user'),
	('FUNCTION revenant.send(text, text, jsonb, uuid)', 'EXECUTE', 'user'),
	('FUNCTION revenant.send_after(text, text, jsonb, interval)', 'EXECUTE', 'user'),
	('FUNCTION revenant.cancel_timer(bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.resend_message(bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.discard_message(bigint)', 'EXECUTE', 'user'),
	('TABLE revenant.messages', 'SELECT', 'user'),
	('FUNCTION revenant._may_see_message(text, bigint, bigint, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant._is_native(bigint, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.lead_plan(text, text, interval, text, uuid)', 'EXECUTE', 'user'),
	('FUNCTION revenant.planner_state(text, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.publish(text, bigint, jsonb, jsonb, boolean)', 'EXECUTE', 'user'),
	('FUNCTION revenant.resign_plan(text, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant._run_planner(text, boolean)', 'EXECUTE', 'user'),
	('FUNCTION revenant.join_plan(text, text, integer, interval, text, uuid)', 'EXECUTE', 'user'),
	('FUNCTION revenant.poll_plan(text, bigint, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.drained(text, text, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.decline_revoke(text, text, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.leave_plan(text, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.claim_splits(text, text, integer, interval, text, uuid)', 'EXECUTE', 'user'),
	('FUNCTION revenant.commit_split(text, text, bigint, jsonb, numeric, boolean)', 'EXECUTE', 'user'),
	('FUNCTION revenant.commit_splits(text, jsonb)', 'EXECUTE', 'user'),
	('FUNCTION revenant.fence_split(text, text, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.renew_splits(text, text[], bigint[], interval)', 'EXECUTE', 'user'),
	('FUNCTION revenant.fail_split(text, text, bigint, text)', 'EXECUTE', 'user'),
	('FUNCTION revenant.release_split(text, text, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.requeue_split(text, text)', 'EXECUTE', 'user'),
	('PROCEDURE revenant.await_splits(text, bigint, interval)', 'EXECUTE', 'user'),
	('TABLE revenant.plans', 'SELECT', 'user'),
	('TABLE revenant.splits', 'SELECT', 'user'),
	('TABLE revenant.members', 'SELECT', 'user'),
	('TABLE revenant.stat_plans', 'SELECT', 'user'),
	('FUNCTION revenant._plan_live(text)', 'EXECUTE', 'user'),
	('FUNCTION revenant._split_live(bigint, bigint, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant._members()', 'EXECUTE', 'user'),
	('FUNCTION revenant._stat_plans()', 'EXECUTE', 'user'),
	('FUNCTION revenant.plan_progress(text)', 'EXECUTE', 'user'),

	('FUNCTION revenant.advance_tokens(bigint)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.revoke(text, text, boolean)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.create_task(text, text, text, text, text, text, text, integer, interval, interval, interval, interval, text, interval, text, jsonb, boolean, jsonb)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.alter_task(text, jsonb)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.drop_task(text)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.enable_task(text)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.disable_task(text)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.restart_task(text)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.run_task(text)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.unquarantine_task(text)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.adopt()', 'EXECUTE', 'admin'),
	('FUNCTION revenant.create_entity_type(text, regclass, text, jsonb, text, integer, text, text, interval, interval, text)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.alter_entity_type(text, jsonb)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.drop_entity_type(text)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.create_plan(text, text, text, interval, interval, integer, integer, interval, interval, jsonb)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.alter_plan(text, jsonb)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.drop_plan(text)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.reset_plan(text)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.purge_plan(text, timestamp with time zone)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.stat_reset()', 'EXECUTE', 'admin');

CREATE TABLE revenant.usage_grant (
	role text COLLATE "C" NOT NULL,
	level text COLLATE "C" NOT NULL,
	CONSTRAINT usage_grant_pkey PRIMARY KEY (role)
);
COMMENT ON TABLE revenant.usage_grant IS 'who was given which level by revenant.grant_usage()';
REVOKE ALL ON TABLE revenant.usage_grant FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('revenant.usage_grant', '');

-- Grants or revokes what a level has. 'admin' has what 'user' and 'reader' have, too.
CREATE FUNCTION revenant._usage_apply(role text, level text, verb text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	item record;
BEGIN
	FOR item IN
		SELECT DISTINCT o.object, o.privilege
		FROM revenant._usage_object AS o
		WHERE o.level = _usage_apply.level OR _usage_apply.level = 'admin'
		ORDER BY o.object
	LOOP
		IF verb = 'GRANT' THEN
			EXECUTE pg_catalog.format('GRANT %s ON %s TO %I', item.privilege, item.object, role);
		ELSE
			EXECUTE pg_catalog.format('REVOKE %s ON %s FROM %I', item.privilege, item.object, role);
		END IF;
	END LOOP;
END
$$;
REVOKE ALL ON FUNCTION revenant._usage_apply(text, text, text) FROM PUBLIC;

-- Raises unless the caller owns the extension and the role exists.
CREATE FUNCTION revenant._usage_check(role text) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF role IS NULL THEN
		RAISE EXCEPTION 'role must not be null' USING ERRCODE = '22004';
	END IF;
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_extension AS e
				   WHERE e.extname = 'revenant' AND pg_catalog.pg_has_role(e.extowner, 'USAGE')) THEN
		RAISE EXCEPTION 'permission denied: only the owner of extension revenant can grant its use'
			USING ERRCODE = '42501';
	END IF;
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = role) THEN
		RAISE EXCEPTION 'role "%" does not exist', role
			USING ERRCODE = '42704',
				  HINT = CASE WHEN role = 'public' THEN 'Nothing of revenant is granted to PUBLIC; name a role.' ELSE '' END;
	END IF;
END
$$;
REVOKE ALL ON FUNCTION revenant._usage_check(text) FROM PUBLIC;

CREATE FUNCTION revenant.grant_usage(role text, level text DEFAULT 'user') RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	before text;
BEGIN
	PERFORM revenant._usage_check(role);
	IF level IS NULL THEN
		RAISE EXCEPTION 'level must not be null' USING ERRCODE = '22004';
	END IF;
	IF level NOT IN ('reader', 'user', 'admin') THEN
		RAISE EXCEPTION 'level "%" is not one of reader, user, admin', level USING ERRCODE = '22023';
	END IF;
	SELECT g.level INTO before FROM revenant.usage_grant AS g WHERE g.role = grant_usage.role;
	IF before IS NOT NULL THEN
		PERFORM revenant._usage_apply(role, before, 'REVOKE');
	END IF;
	PERFORM revenant._usage_apply(role, level, 'GRANT');
	INSERT INTO revenant.usage_grant AS g (role, level) VALUES (grant_usage.role, grant_usage.level)
	ON CONFLICT ON CONSTRAINT usage_grant_pkey DO UPDATE SET level = EXCLUDED.level;
END
$$;
COMMENT ON FUNCTION revenant.grant_usage(text, text) IS
'lets a role use the extension as reader (views, pg_dump), user (leases, entities, work on plans) or admin (tasks, types of entities, plans, tokens); only for the extension''s owner';
REVOKE ALL ON FUNCTION revenant.grant_usage(text, text) FROM PUBLIC;

CREATE FUNCTION revenant.revoke_usage(role text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	-- what is left of a role that was dropped: the next one of its name is not to have it
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = role) THEN
		DELETE FROM revenant.usage_grant AS g WHERE g.role = revoke_usage.role;
		IF FOUND THEN
			RETURN;
		END IF;
	END IF;
	PERFORM revenant._usage_check(role);
	PERFORM revenant._usage_apply(role, 'admin', 'REVOKE');
	DELETE FROM revenant.usage_grant AS g WHERE g.role = revoke_usage.role;
END
$$;
COMMENT ON FUNCTION revenant.revoke_usage(text) IS 'takes back what grant_usage() gave a role';
REVOKE ALL ON FUNCTION revenant.revoke_usage(text) FROM PUBLIC;
-- Last: enters the first era of tokens, and wakes the launcher at commit.
CREATE FUNCTION revenant._created() RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'revenant_created';
REVOKE ALL ON FUNCTION revenant._created() FROM PUBLIC;
SELECT revenant._created();
