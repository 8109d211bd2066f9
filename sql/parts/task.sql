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
