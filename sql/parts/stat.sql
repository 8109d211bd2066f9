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
