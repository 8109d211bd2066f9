/*-------------------------------------------------------------------------
 *
 * supervisor.c
 *	  One for each database: starts and stops the runners of its tasks.
 *
 * Every tick compares what should run, by the rows, with what does, by the
 * slots, and acts on the difference. No event is needed for correctness: a
 * latch that is set only makes the next tick come sooner.
 *
 *		collect		runners that ended: write the outcome, free the slot
 *		load		the rows, if they may have changed, or every half a minute
 *		decide		for each task the phase it belongs in; start what is due, in
 *					order of lateness, and stop what must not run
 *		serve		runners that deliver messages: service.c, message_due.c; plans: plan_watch.c
 *		upkeep		what is beside the tasks: upkeep.c
 *
 * Each of these is a transaction of its own, or several, and an error in one
 * ends that one only. What can be wrong with one task ends in a phase and a
 * reason of that task.
 *
 * NOTES
 *	  On a standby the same is done for the follower_commands: they run without
 *	  a lease, nothing is written, and what became of them is kept in shared
 *	  memory. At a promotion all of that is void; a follower_command that still
 *	  runs has the runner slot of its task, so the task's own command
 *	  cannot start before it is gone. Leading begins with entering the era
 *	  of the tokens, in a transaction of its own.
 *
 *	  The supervisor never runs users' code: it reads and writes the
 *	  extension's own tables directly, and evaluates no expression. Nor does it
 *	  wait for a user's transaction: what is locked is done in a later tick.
 *
 *	  Times are on the monotonic clock, except the fire times of schedules.
 *	  Those are looked at again at least every ten seconds, so a step of the
 *	  wall clock is noticed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "common/hashfn.h"
#include "common/pg_prng.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "compat.h"
#include "debug.h"
#include "events.h"
#include "entity_memory.h"
#include "extension.h"
#include "flusher.h"
#include "fence.h"
#include "guc.h"
#include "lease.h"
#include "message_due.h"
#include "plan_memory.h"
#include "plan_watch.h"
#include "restart.h"
#include "row.h"
#include "service.h"
#include "stat.h"
#include "stat_task.h"
#include "supervisor.h"
#include "supervised.h"
#include "task.h"
#include "task_event.h"
#include "task_state.h"
#include "task_status.h"
#include "tick.h"
#include "upkeep.h"
#include "worker.h"

#define LONGEST_SLEEP_US (10 * US_PER_S)
#define LONGEST_PUT_OFF_US (60 * US_PER_S)
#define LOAD_EVERY_US (30 * US_PER_S)
#define PRUNE_EVERY_US (60 * US_PER_S)

static WorkerExtra me;

static Oid	instance = InvalidOid;	/* of the extension; InvalidOid: not known yet */
static bool extension_present = false;
static bool leading = false;	/* the era was entered */
static bool following = false;	/* this server is a standby, as of this tick */
static bool initialized = false;	/* it was told that this supervisor is here */
static int	foreign = 0;		/* tasks that wait for adopt() */
static bool reload_wanted = true;
static uint32 seen_changes = 0;
static uint32 role_changes = 0;	/* grows whenever a role may have changed */
static uint32 seen_role_changes = 0;
static int64 loaded_us = 0;		/* 0: never */
static int64 load_every_us = LOAD_EVERY_US;
static int64 pruned_us = 0;
static int64 slots_complained_us = 0;
static bool clock_set_back = false;	/* the wall clock, since the last tick */
static bool plans_unseen = true;	/* this server has begun to lead, or the extension is another one, since plans were looked for */

/* ---------------------------------------------------------------- small things */

static void
on_role_change(Datum arg, int cacheid, uint32 hashvalue)
{
	role_changes++;
}

/* What a standby shows of a phase: it follows, whatever its follower_command does. */
static TaskPhase
shown_phase(TaskPhase phase)
{
	return following && phase != PHASE_DISABLED && phase != PHASE_HELD ? PHASE_FOLLOWING : phase;
}

/* Makes the phase and the reason of a task known. `told`: as an event, too. Returns the phase that was shown before. */
static TaskPhase
publish_as(Task *task, TaskPhase phase, TimestampTz next_run, const char *reason, bool told)
{
	uint32		hash = tick_text_hash(reason) ^ (uint32) next_run;
	TaskPhase	shown = shown_phase(phase);
	const char *text = reason;
	TaskPhase	before;
	bool		changed;

	if (task->phase == phase && task->reason_hash == hash)
		return shown;
	if (shown == PHASE_FOLLOWING && phase != PHASE_FOLLOWING)
		text = reason[0] ? psprintf("follower_command: %s", reason) : "its follower_command runs";
	changed = task_status_set(&task->key, task->name, shown, next_run, text, &before);
	/* what holds all tasks alike is not said for each */
	if (changed && phase == PHASE_HELD && reason == task->problem)
		ereport(LOG,
				(errmsg("task \"%s\" is held: %s", task->name, reason)));
	if ((told || shown == PHASE_FOLLOWING) && before != shown)
		task_tell_phase(task->name, task->role, before, shown, text);
	task->phase = phase;
	task->reason_hash = hash;
	return before;
}

/* Makes the phase and the reason of a task known, if they are not. */
static void
publish(Task *task, TaskPhase phase, TimestampTz next_run, const char *reason)
{
	(void) publish_as(task, phase, next_run, reason, true);
}

/* A phase between two others, of which something else tells. Returns the one that was shown before. */
static TaskPhase
pass_through(Task *task, TaskPhase phase, const char *reason)
{
	return publish_as(task, phase, 0, reason, false);
}

/* ---------------------------------------------------------------- the rows */

/* Whether a task of this name has a runner, of whatever life; its key besides. */
static bool
has_runner(const char *name, TaskKey *key)
{
	RunnerSlot	slot;
	int			number;

	task_key(key, MyDatabaseId, instance, name);
	return worker_runner_find(key, &number, &slot);
}

static void
close_interrupted(void *arg)
{
	Extension	oids = *extension_get();
	const TaskState *state = arg;
	Task	   *task;
	TaskKey		key;

	if (has_runner(state->name, &key))
		return;
	if (!task_state_interrupt(&oids, state))
	{
		reload_wanted = true;
		return;
	}
	stat_task_interrupted(&key, &state->life);
	task = hash_search(supervised_tasks, &key, HASH_FIND, NULL);
	if (task != NULL)
		task_tell_interrupted(task->name, task->role, state->token);
}

/* The row of a task that was dropped: when its last run is over, which writes its own end. */
static void
remove_orphan(void *arg)
{
	Extension	oids = *extension_get();
	const TaskState *state = arg;
	TaskKey		key;

	if (has_runner(state->name, &key) || !task_state_remove(&oids, state))
		reload_wanted = true;
}

static bool
is_known(const TaskKey *key)
{
	return hash_search(supervised_tasks, key, HASH_FIND, NULL) != NULL;
}

/* Reads the rows again, and closes the runs that ended without a word. */
static void
reload(void)
{
	Load		result = {.instance = instance,.following = following,.first_look = loaded_us == 0};
	ListCell   *cell;
	uint32		changes = worker_supervisor_changes(me.slot);
	uint32		of_roles = role_changes;
	int64		began_us = clock_now_us();

	reload_wanted = false;
	if (!tick_step("read its tasks", supervised_load, &result) || result.absent || result.gone || result.busy)
	{
		reload_wanted = true;
		if (result.gone)
			extension_forget();
		tick_at_most(result.absent ? 0 : RETRY_US);
		return;
	}
	if (result.foreign > foreign)
		ereport(LOG,
				(errmsg("%d tasks are held until revenant.adopt() is called", result.foreign),
				 errdetail("They were made in another database or cluster.")));
	foreign = result.foreign;
	seen_changes = changes;
	seen_role_changes = of_roles;
	loaded_us = clock_now_us();
	stat_time(STAT_LOADS, loaded_us - began_us);
	/* nobody tells a standby of a change: it looks often, as long as that costs next to nothing */
	load_every_us = following ? Min(Max((loaded_us - began_us) * 1000, RETRY_US), LOAD_EVERY_US) : LOAD_EVERY_US;
	if (loaded_us - pruned_us >= PRUNE_EVERY_US)
	{
		pruned_us = loaded_us;
		task_status_prune(MyDatabaseId, is_known);
		stat_task_prune(MyDatabaseId, is_known);
	}

	foreach(cell, result.open_runs)
		(void) tick_step("close an interrupted run", close_interrupted, lfirst(cell));
	foreach(cell, result.orphans)
		(void) tick_step("remove what is left of a dropped task", remove_orphan, lfirst(cell));
	if (reload_wanted)
		tick_at_most(RETRY_US);
}

/* ---------------------------------------------------------------- runs that ended */

/* A run that ended, for the step that writes it down */
typedef struct Ended
{
	Task	   *task;
	const RunnerSlot *slot;
	const TaskEnding *ending;
	bool		written;
} Ended;

static void
tell_ended(void *arg)
{
	Ended	   *ended = arg;

	task_tell_ended(ended->slot, ended->task->role, task_state_outcome(ended->slot, ended->ending), ended->task->has_schedule);
	ended->written = true;
}

static void
write_ending(void *arg)
{
	Ended	   *ended = arg;
	Extension	oids = *extension_get();

	ended->written = task_state_end(&oids, ended->slot, ended->ending);
	if (ended->written)
		tell_ended(ended);
}

/* A standby's follower_command ended: it can write no row. */
static void
remember_ending(void *arg)
{
	Ended	   *ended = arg;
	Task	   *task = ended->task;
	FollowerMemory memory = {
		.life = task->life,
		.command_hash = task->follower_hash,
		.retry_us = task->backoff ? task->due_us : 0,
		.failures = task->failures,
		.quarantined = task->quarantined,
		.finished = task->finished,
		.recent = task->recent
	};

	if (!task->follower_changed)
		task_status_remember(&task->key, &memory);
	tell_ended(ended);
}

/* A task is given up: one line in the log. */
static void
complain_of_quarantine(const Task *task, const RunnerSlot *slot)
{
	const char *last = slot->message[0] ? slot->message : "it ended without a message";

	if (slot->follows)
		ereport(LOG,
				(errmsg("the follower_command of task \"%s\" is quarantined on this standby: it failed %d times within its restart_window",
						task->name, task->recent.count),
				 errdetail("The last time: %s", last),
				 errhint("On the primary, give it another follower_command with alter_task(), or disable and enable it.")));
	else
		ereport(LOG,
				(errmsg("task \"%s\" is quarantined: it failed %d times within its restart_window", task->name, task->recent.count),
				 errdetail("The last time: %s", last),
				 errhint("SELECT revenant.unquarantine_task(%s)", quote_literal_cstr(task->name))));
}

/* Whether an error with this code ended a run. */
static bool
ended_by(const RunnerSlot *slot, int sqlerrcode)
{
	return strcmp(slot->sqlstate, unpack_sql_state(sqlerrcode)) == 0;
}

/* A run of a task ended: decides when the next one is due. */
static void
decide_ending(Task *task, const RunnerSlot *slot)
{
	TaskEnding *ending = &task->ending;
	bool		stopped = slot->stop && slot->outcome != RUN_SUCCEEDED;
	bool		own = task_same_life(&slot->life, &task->life);
	int64		ran_us = slot->started_us != 0 ? slot->ended_us - slot->started_us : 0;
	bool		terminated;
	bool		conflicted;

	memset(ending, 0, sizeof(*ending));
	ending->failed = slot->outcome != RUN_SUCCEEDED && !stopped;
	ending->failures = task->failures;
	task->phase = PHASE_NEW;	/* its runner has moved it meanwhile */
	(void) pass_through(task, PHASE_SCHEDULED, "its run has ended");
	/* of an earlier task of that name, or before it was enabled again: nothing follows from it */
	if (!own)
	{
		ending->failures = 0;
		return;
	}

	task->backoff = false;
	task->due_us = 0;
	task->late_since_us = 0;
	/* a run that somebody terminated after a while says nothing about the next one */
	terminated = ending->failed && ran_us >= RESTART_REPEATED_MIN_US &&
		ended_by(slot, ERRCODE_ADMIN_SHUTDOWN);
	/* nor does one that was in the way of what a standby replays */
	conflicted = ending->failed && slot->follows &&
		(ended_by(slot, ERRCODE_T_R_SERIALIZATION_FAILURE) || ended_by(slot, ERRCODE_T_R_DEADLOCK_DETECTED));
	terminated |= conflicted;
	if (ending->failed && !terminated)
		task->failures = restart_count_failure(task->failures, ran_us, task->backoff_max_us);
	else if (!stopped && !terminated)
		task->failures = 0;
	if (ending->failed && !terminated)
	{
		ending->quarantined = restart_note_failure(&task->recent, clock_to_timestamp(slot->ended_us),
												   task->restart_window_us, task->max_restarts);
		ending->recent = &task->recent;
		task->quarantined = ending->quarantined;
		if (task->quarantined)
			complain_of_quarantine(task, slot);
	}
	task->finished = !stopped && !task->has_schedule && !task->quarantined &&
		!restart_follows(task->restart, ending->failed, false);
	if (!task->quarantined && !stopped && restart_follows(task->restart, ending->failed, task->has_schedule))
	{
		int64		wait_us = restart_backoff_us(task->backoff_min_us, task->backoff_max_us,
												 conflicted ? 2 : terminated ? 1 : task->failures, pg_prng_uint32(&pg_global_prng_state));

		ending->restarts = true;
		task->backoff = true;
		task->due_us = slot->ended_us + wait_us;
		ending->retry_at = clock_to_timestamp(task->due_us);
	}
	ending->failures = task->failures;
	task->last_failed = ending->failed;
}

/* A run did not begin, and that was no failure: what it was started for is still to be done. */
static void
give_back_what_it_was_for(Task *task, const RunnerSlot *slot)
{
	if (slot->life.created_at != task->life.created_at)
		return;
	if (slot->fire_at != 0 && task->fire_at == slot->next_run)
	{
		task->fire_at = slot->fire_at;
		task->given_back = true;
	}
	if (task->run_requests_done == slot->requests)
		task->run_requests_done = slot->requests_before;
}

/*
 * No process came for a run: the server could not start one. That is no failure
 * of the task, and uses up none of its times: it is tried again, ever less often.
 */
static void
put_off(Task *task)
{
	task->phase = PHASE_NEW;
	(void) pass_through(task, PHASE_SCHEDULED, "");
	task->not_before_us = clock_now_us() + Min(RETRY_US << Min(task->unstarted, 10), LONGEST_PUT_OFF_US);
	task->unstarted++;
}

/*
 * A run of a task ended: decides when the next one is due, once, and writes
 * both down. False when that is not possible yet: the slot is kept until it is.
 */
static bool
finish_run(Task *task, const RunnerSlot *slot)
{
	Ended		ended = {.task = task,.slot = slot,.ending = &task->ending};

	/* what a standby ran before its promotion says nothing about what it runs now */
	if (slot->follows != following)
	{
		ended.ending = &(TaskEnding) {0};
		(void) tick_step("tell how a follower_command ended", tell_ended, &ended);
		return true;
	}
	if (slot->started_us == 0 && (slot->outcome == RUN_SUCCEEDED || slot->stop || slot->pid == 0))
		give_back_what_it_was_for(task, slot);
	if (slot->pid == 0 && !slot->stop)
	{
		put_off(task);
		return true;
	}
	task->unstarted = 0;
	/* it found that there is nothing to run: another look at the rows will say why, as soon as that is possible */
	if (slot->outcome == RUN_SUCCEEDED && slot->started_us == 0)
	{
		reload_wanted = true;
		if (task_same_life(&slot->life, &task->life))
			task->not_before_us = clock_now_us() + RETRY_US;
		return true;
	}
	if (!task->ended || task->ended_generation != slot->generation)
	{
		decide_ending(task, slot);
		stat_task_ended(&task->key, &task->life, slot, &task->ending);
	}
	task->ended_generation = slot->generation;
	(void) tick_step("write down how a run ended", following ? remember_ending : write_ending, &ended);
	task->ended = !ended.written;
	if (!ended.written)
		tick_at_most(RETRY_US);
	return ended.written;
}

static void
free_handle(Task *task)
{
	if (task->handle != NULL)
		pfree(task->handle);
	task->handle = NULL;
}

/* Whether a run was terminated by nobody but the end of the whole server, in which we have no part yet. */
static bool
ended_with_server(const RunnerSlot *slot)
{
	return !slot->stop && ended_by(slot, ERRCODE_ADMIN_SHUTDOWN) && worker_server_is_stopping();
}

/* Looks at every runner slot of this database that is a task's. */
static void
collect(void)
{
	RunnerSlot *slot = palloc(sizeof(RunnerSlot));
	HASH_SEQ_STATUS all;
	Task	   *task;

	hash_seq_init(&all, supervised_tasks);
	while ((task = hash_seq_search(&all)) != NULL)
		task->slot = -1;

	for (int i = worker_runner_next(0, MyDatabaseId, slot); i >= 0;
		 i = worker_runner_next(i + 1, MyDatabaseId, slot))
	{
		pid_t		pid;
		bool		never_came;

		if (slot->kind != RUNNER_TASK)
			continue;
		task = hash_search(supervised_tasks, &slot->task, HASH_FIND, NULL);
		never_came = slot->state == RUNNER_STARTING && task != NULL && task->handle != NULL &&
			task->runner_generation == slot->generation &&
			GetBackgroundWorkerPid(task->handle, &pid) == BGWH_STOPPED;
		if (slot->state != RUNNER_EXITED && worker_runner_reap(i, slot->generation, never_came) &&
			!worker_runner_get(i, slot->generation, slot))
			continue;

		if (slot->state == RUNNER_EXITED)
		{
			CHECK_FOR_INTERRUPTS();
			/* the next start finds it interrupted */
			if (ended_with_server(slot) || (task != NULL && !finish_run(task, slot)))
				continue;
			if (task != NULL)
				free_handle(task);
			worker_runner_free(i, slot->generation);
			continue;
		}
		if (task != NULL)
		{
			task->slot = i;
			task->runner_generation = slot->generation;
			task->runner_stop = slot->stop;
			task->runner_begun = slot->started_us != 0;
			task->runner_follows = slot->follows;
			task->runner_scheduled = slot->scheduled;
			task->runner_pid = slot->pid;
			task->runner_life = slot->life;
		}
		/* of a task, or an extension, that is gone */
		else if (!slot->stop)
			worker_runner_stop(i, slot->generation);
		if (slot->state == RUNNER_STARTING)
			tick_at_most(RETRY_US);
	}
	pfree(slot);
}

/* ---------------------------------------------------------------- what should run */

#define NO_RUNNER "no runner is free: see revenant.max_runners and max_worker_processes"

/* Starts a runner. False: there is none to be had. */
static bool
start(Task *task)
{
	BackgroundWorker worker;
	WorkerExtra extra = {.database = MyDatabaseId, .role = task->role};
	RunnerRequest wanted = {.task = task->key,.name = task->name,.life = task->life,.next_run = task->fire_at,
	.requests_before = task->run_requests_done,.requests = task->run_requests,.follows = following,
	.scheduled = task->has_schedule};
	TaskPhase	before = task->phase;
	TaskPhase	shown_before;
	const char *problem;
	MemoryContext old;
	int			holder;
	bool		told;
	bool		registered;

	/* to try a failed run again uses up no time of the schedule */
	if (task->fires)
	{
		wanted.fire_at = task->fire_at;
		wanted.next_run = task_next_time(task, Max(GetCurrentTimestamp(), task->fire_at));
	}

	/* the role may have changed since the row was read */
	problem = task_role_problem(task->run_as, task->role);
	if (problem != NULL)
	{
		strlcpy(task->problem, problem, sizeof(task->problem));
		publish(task, PHASE_HELD, 0, task->problem);
		return true;
	}
	extra.slot = worker_runner_reserve(&wanted, task->late_since_us, &extra.generation);
	if (extra.slot == RESERVE_NONE_FREE)
		return false;
	if (extra.slot < 0)
	{
		if (task->ended)
			publish(task, PHASE_SCHEDULED, 0, "how its last run ended cannot be written down yet: somebody has locked revenant.task_state or revenant.task_run");
		tick_at_most(RETRY_US);
		return true;
	}
	DEBUG_POINT("supervisor-before-hold-check");
	/* only now: see worker.c on holds */
	holder = task_status_holder(&task->key);
	if (holder != 0)
	{
		worker_runner_give_back(extra.slot, extra.generation);
		publish(task, PHASE_SCHEDULED, 0,
				psprintf("process %d is about to drop, disable or restart it", holder));
		tick_at_most(RETRY_US);
		return true;
	}

	/* before its runner says that it leads; but not again and again while there is none to be had */
	shown_before = pass_through(task, PHASE_CLAIMING, following ? "is being started" : "waits for its lease");
	told = !following && before != PHASE_WAITING_FOR_SLOT;
	if (told)
		task_tell_phase(task->name, task->role, shown_before, PHASE_CLAIMING, "");
	worker_prepare(&worker, "revenant runner", "", "revenant_runner_main");
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), "revenant runner for %.*s",
			 pg_mbcliplen(task->name, (int) strlen(task->name), BGW_MAXLEN - (int) sizeof("revenant runner for ")),
			 task->name);
	worker.bgw_main_arg = Int32GetDatum(extra.slot);
	worker.bgw_notify_pid = MyProcPid;
	memcpy(worker.bgw_extra, &extra, sizeof(extra));

	free_handle(task);
	old = MemoryContextSwitchTo(TopMemoryContext);	/* freed by collect() */
	registered = RegisterDynamicBackgroundWorker(&worker, &task->handle);
	MemoryContextSwitchTo(old);
	if (!registered)
	{
		worker_runner_give_back(extra.slot, extra.generation);
		(void) pass_through(task, PHASE_SCHEDULED, "");
		if (before == PHASE_WAITING_FOR_SLOT)
			(void) pass_through(task, before, NO_RUNNER);
		return false;
	}

	if (!following && !told)
		task_tell_phase(task->name, task->role, shown_before, PHASE_CLAIMING, "");
	task->runner_generation = extra.generation;
	task->slot = extra.slot;
	task->late_since_us = 0;
	task->slot_wait_counted = false;
	task->fire_at = wanted.next_run;
	task->fires = false;
	task->given_back = false;
	task->not_before_us = 0;
	task->run_requests_done = task->run_requests;
	task->follower_changed = false;
	return true;
}

static int
by_lateness(const void *a, const void *b)
{
	const Task *left = *(Task *const *) a;
	const Task *right = *(Task *const *) b;

	if (left->late_since_us != right->late_since_us)
		return left->late_since_us < right->late_since_us ? -1 : 1;
	return strcmp(left->name, right->name);
}

/*
 * Puts a task that has no runner into its phase, or notes that it is due. True
 * when it is.
 */
static bool
is_due(Task *task)
{
	int64		now_us = clock_now_us();
	int64		claim_us = following ? 0 : clock_writable_since_us() + task->claim_delay_us;
	TimestampTz now;

	if (task->claim_delay_us > 0 && now_us < claim_us)
	{
		publish(task, PHASE_SCHEDULED, clock_to_timestamp(claim_us), "waits for its claim_delay to pass");
		tick_at_most(claim_us - now_us);
		return false;
	}
	if (now_us < task->not_before_us)
	{
		if (task->unstarted > 0)
			publish(task, PHASE_WAITING_FOR_SLOT, 0, "the server could not start its process: see the server's log");
		else
			publish(task, PHASE_SCHEDULED, 0, "it has changed, and cannot be read just now");
		tick_at_most(task->not_before_us - now_us);
		return false;
	}
	if (task->run_requests > task->run_requests_done)
	{
		task->fires = false;
		if (task->late_since_us == 0)
			task->late_since_us = now_us;
		return true;
	}
	if (task->has_schedule)
	{
		now = GetCurrentTimestamp();
		task_adjust_fire_time(task, now, clock_set_back);
		task->fires = task->fire_at != 0 && now >= task->fire_at;
		if (task->backoff && now_us >= task->due_us)
		{
			task->late_since_us = task->due_us;
			return true;
		}
		if (task->fires)
		{
			task->late_since_us = now_us - (now - task->fire_at);
			return true;
		}
		if (task->fire_at == 0 && !task->backoff)
		{
			publish(task, PHASE_SCHEDULED, 0, task->schedule.kind == SCHEDULE_REBOOT ?
					following ? "ran once" : "waits until this server, or another one, begins to lead" : "its schedule has no further time");
			return false;
		}
		if (task->fire_at != 0)
			tick_at_most(task->fire_at - now);
		if (!task->backoff)
		{
			publish(task, PHASE_SCHEDULED, task->fire_at, "waits for the next time of its schedule");
			return false;
		}
	}
	else if (now_us >= task->due_us)
	{
		if (task->late_since_us == 0)
			task->late_since_us = task->due_us != 0 ? task->due_us : now_us;
		return true;
	}
	publish(task, PHASE_BACKOFF, clock_to_timestamp(task->due_us) / 1000 * 1000,
			task->failures == 0 ? "ended, and waits for backoff_min before the next run" :
			psprintf("waits to be started again after %d failure(s) in a row", task->failures));
	tick_at_most(task->due_us - now_us);
	return false;
}

/*
 * Whether the task's runner is not what it is to be: one of an earlier task of
 * its name; what ran before a promotion; and by an older definition one that
 * would never end, and a standby's.
 */
static bool
is_obsolete(const Task *task)
{
	if (task->runner_life.created_at != task->life.created_at || task->runner_follows != following)
		return true;
	if (following && (task->follower_changed || !task->has_follower))
		return true;
	return !task_same_life(&task->runner_life, &task->life) && (following || !task->runner_scheduled);
}

/* Ends the task's runner if it is not to run, or not so. True when it is ending. */
static bool
end_runner(Task *task, bool unwanted)
{
	if (task->runner_stop)
		return true;
	if (unwanted || is_obsolete(task))
		return worker_runner_stop(task->slot, task->runner_generation);
	/* what has not begun is begun by the new definition */
	return !task_same_life(&task->runner_life, &task->life) && !task->runner_begun &&
		worker_runner_withdraw(task->slot, task->runner_generation);
}

/* A run has begun. On a primary its runner has told so; on a standby nobody sees it but here. */
static void
publish_leading(Task *task)
{
	if (following)
		publish(task, PHASE_LEADING, task->fire_at, psprintf("runs in process %d", task->runner_pid));
	else
		(void) publish_as(task, PHASE_LEADING, task->fire_at, "", false);
}

/* Compares what should run with what does, and acts on the difference. */
static void
decide(void *arg)
{
	HASH_SEQ_STATUS all;
	Task	   *task;
	Task	  **due = palloc(sizeof(Task *) * (hash_get_num_entries(supervised_tasks) + 1));
	int			ndue = 0;
	bool		room = true;
	int64		hungry_since_us = 0;
	static TimestampTz latest = 0;
	TimestampTz now = GetCurrentTimestamp();

	clock_set_back = now < latest;
	latest = now;
	hash_seq_init(&all, supervised_tasks);
	while ((task = hash_seq_search(&all)) != NULL)
	{
		const char *reason = NULL;
		TaskPhase	rest = PHASE_HELD;

		if (!task->seen)
		{
			if (task->slot >= 0)
			{
				worker_runner_stop(task->slot, task->runner_generation);
				tick_at_most(RETRY_US);
				continue;
			}
			task_status_forget(&task->key);
			stat_task_forget(&task->key);
			free_handle(task);
			hash_search(supervised_tasks, &task->key, HASH_REMOVE, NULL);
			continue;
		}

		if (!task->enabled)
		{
			reason = "it is disabled";
			rest = PHASE_DISABLED;
		}
		else if (!task->native)
			reason = "it was made in another database or cluster: revenant.adopt() takes it over";
		else if (task->problem[0] != '\0')
			reason = task->problem;
		else if (!guc_enabled)
			reason = "revenant.enabled is off";
		else if (!worker_may_run(following))
			reason = "default_transaction_read_only is on in this server's configuration";

		if (task->slot >= 0)
		{
			if (end_runner(task, reason != NULL))
			{
				publish(task, PHASE_STOPPING, 0, "its runner was told to end");
				tick_at_most(RETRY_US);
			}
			else if (task->runner_begun && task->phase != PHASE_LEADING)
				publish_leading(task);
		}
		else if (reason != NULL)
			publish(task, rest, 0, reason);
		else if (following && !task->has_follower)
			publish(task, PHASE_FOLLOWING, 0, "this server is a standby");
		else if (task->quarantined)
			publish(task, PHASE_QUARANTINED, 0, following ?
					psprintf("failed more often than its max_restarts (%d) within its restart_window: see this server's log; on the primary, alter_task() it, or disable and enable it",
							 task->max_restarts) :
					psprintf("failed more often than its max_restarts (%d) within its restart_window: see last_error, and revenant.unquarantine_task()",
							 task->max_restarts));
		else if (task->finished && task->run_requests <= task->run_requests_done)
			publish(task, PHASE_FINISHED, 0, task->restart == RESTART_TRANSIENT ? "has ended normally, and restart is transient" :
					"has ended, and restart is temporary");
		else if (is_due(task))
		{
			if (!phase_can_follow(task->phase, PHASE_CLAIMING))
				(void) pass_through(task, PHASE_SCHEDULED, "is due");
			due[ndue++] = task;
		}
	}

	qsort(due, ndue, sizeof(Task *), by_lateness);
	for (int i = 0; i < ndue; i++)
	{
		if (room)
			room = start(due[i]);
		if (!room)
		{
			task_count_slot_wait(due[i]);
			publish(due[i], PHASE_WAITING_FOR_SLOT, 0, NO_RUNNER);
		}
		if (!room && hungry_since_us == 0)
			hungry_since_us = due[i]->late_since_us;
	}
	worker_supervisor_hungry(me.slot, hungry_since_us);
	if (!room)
	{
		tick_at_most(RETRY_US);
		if (slots_complained_us == 0 || clock_now_us() - slots_complained_us > 10 * TICK_COMPLAIN_EVERY_US)
		{
			slots_complained_us = clock_now_us();
			ereport(LOG,
					(errmsg("tasks wait for a free runner"),
					 errhint("Set revenant.max_runners or max_worker_processes higher.")));
		}
	}
}

/* ---------------------------------------------------------------- the loop */

static void
look_for_extension(void *arg)
{
	const Extension *extension;
	Oid			found;

	DEBUG_POINT("supervisor-tick");
	extension = extension_find();
	found = extension != NULL ? extension->extension : InvalidOid;
	if (extension != NULL)
		extension_require_tables(extension);
	if (OidIsValid(found) &&
		(!OidIsValid(extension->task) || !OidIsValid(extension->task_pkey) || !OidIsValid(extension->task_run_pkey) ||
		 !OidIsValid(extension->task_state) || !OidIsValid(extension->task_state_pkey)))
	{
		extension_forget();
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("tables of the extension are missing")));
	}

	extension_present = OidIsValid(found);
	if (found != instance && extension_present)
	{
		/* another instance: nothing of the old one is true any more */
		HASH_SEQ_STATUS all;
		Task	   *task;

		hash_seq_init(&all, supervised_tasks);
		while ((task = hash_seq_search(&all)) != NULL)
		{
			free_handle(task);
			hash_search(supervised_tasks, &task->key, HASH_REMOVE, NULL);
		}
		instance = found;
		leading = false;
		loaded_us = 0;
		task_status_purge(MyDatabaseId, instance);
		lease_purge();
		stat_purge(MyDatabaseId, instance);
		entity_memory_purge(MyDatabaseId, instance);
		plan_memory_purge(MyDatabaseId, instance);
		plans_unseen = true;
		service_forget_all();
	}
	if (extension_present)
		stat_attach(instance);
}

/* The extension is not here: end everything of this database, then ourselves. */
static void
leave(void)
{
	RunnerSlot *slot = palloc(sizeof(RunnerSlot));
	bool		empty = true;

	for (int i = worker_runner_next(0, MyDatabaseId, slot); i >= 0;
		 i = worker_runner_next(i + 1, MyDatabaseId, slot))
	{
		if (slot->state == RUNNER_EXITED || worker_runner_reap(i, slot->generation, false))
			worker_runner_free(i, slot->generation);
		else
		{
			worker_runner_stop(i, slot->generation);
			empty = false;
		}
	}
	pfree(slot);
	if (!empty)
	{
		tick_at_most(RETRY_US);
		return;
	}
	/* also what a supervisor left that was gone before the extension was */
	task_status_purge(MyDatabaseId, InvalidOid);
	lease_forget_database(MyDatabaseId);
	stat_purge(MyDatabaseId, InvalidOid);
	entity_memory_purge(MyDatabaseId, InvalidOid);
	plan_memory_purge(MyDatabaseId, InvalidOid);
	instance = InvalidOid;
	if (worker_supervisor_absent(me.slot))
		proc_exit(0);
	tick_at_most(0);
}

static void
enter_era(void *arg)
{
	Extension	oids = *extension_get();

	/* what would be waited for there: a DROP EXTENSION that is not committed yet */
	if (ConditionalLockRelationOid(oids.token_mark, RowExclusiveLock) &&
		ConditionalLockRelationOid(oids.token_lineage, RowExclusiveLock) &&
		ConditionalLockRelationOid(oids.token_dump, RowExclusiveLock))
	{
		fence_enter_era();
		*(bool *) arg = true;
	}
	else
		tick_at_most(RETRY_US);
}

static void
tell_initialized(void *arg)
{
	task_tell_supervised(true);
}

/* This server was promoted: what it knew as a standby is void. */
static void
stop_following(void)
{
	HASH_SEQ_STATUS all;
	Task	   *task;

	hash_seq_init(&all, supervised_tasks);
	while ((task = hash_seq_search(&all)) != NULL)
	{
		task_forget_plan(task);
		task->run_requests_done = 0;
		task->ended = false;
		task->phase = PHASE_NEW;
		task->reason_hash = 0;
	}
	loaded_us = 0;
	plans_unseen = true;
}

/* Enters the era, without which nothing is done. False: not yet. */
static bool
lead(void)
{
	bool		entered = false;

	if (clock_write_state() == WRITES_UNKNOWN)
		return false;			/* the launcher is about to say, and wakes us */
	/* each time, tasks or not: a restore may have brought another era to be above */
	(void) tick_step("enter the era of its tokens", enter_era, &entered);
	if (worker_may_run(false) && !leading)
		leading = entered;
	return leading || !worker_may_run(false);
}

/* Beside the tasks: runners that serve roles, on a server that leads. */
static void
serve(void)
{
	service_collect(instance);
	if (following)
		return;
	message_look_for_due();
	flusher_look(instance);
	service_start_wanted(instance);
	plan_watch(instance, plans_unseen);
	plans_unseen = false;
}

/* One look at everything. */
static void
tick(void)
{
	bool		followed = following;

	if (!tick_step("look for the extension", look_for_extension, NULL))
		return;
	if (!extension_present)
	{
		leave();
		return;
	}
	stat_count(STAT_TICKS);
	following = RecoveryInProgress();
	if (followed && !following)
		stop_following();
	if (!following && !lead())
		return;
	/* a run that ended belongs to a task that is known */
	if (loaded_us == 0)
		reload();
	if (loaded_us == 0)
		return;
	collect();
	if (seen_changes != worker_supervisor_changes(me.slot) || seen_role_changes != role_changes || reload_wanted ||
		clock_now_us() - loaded_us >= load_every_us)
		reload();
	if (!initialized)
		initialized = tick_step("tell that it is here", tell_initialized, NULL);
	(void) tick_step("decide what to run", decide, NULL);
	serve();
	if (following && !reload_wanted)
		tick_at_most(loaded_us + load_every_us - clock_now_us());
	if (!following && worker_may_run(false))
		upkeep_leases();
	if (!following)
	{
		upkeep_history();
		upkeep_requests();
	}
	if (guc_notify && !following)
		upkeep_notifications();
}

static void
report_end(int code, Datum arg)
{
	if (initialized)
		task_tell_supervised(false);
	worker_supervisor_exit(me.slot, me.generation);
}

/* A supervisor. */
void
revenant_supervisor_main(Datum main_arg)
{
	uint32		wait_event;

	memcpy(&me, MyBgworkerEntry->bgw_extra, sizeof(me));
	Assert(me.slot == DatumGetInt32(main_arg));

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	pqsignal(SIGINT, SIG_IGN);	/* there is no query to cancel */
	before_shmem_exit(report_end, (Datum) 0);
	if (!worker_supervisor_attach(me.slot, me.generation))
		proc_exit(0);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(me.database, InvalidOid, 0);
	/* who connects without a role is whom the database's owner wants: ALTER DATABASE ... SET session_authorization */
	SetSessionAuthorization(BOOTSTRAP_SUPERUSERID, true);
	worker_pin_settings();
	pgstat_report_activity(STATE_IDLE, NULL);
	CacheRegisterSyscacheCallback(AUTHOID, on_role_change, (Datum) 0);

	tick_init();
	supervised_init();
	service_init();
	plan_assign_init();
	events_defer_notify(true);
	wait_event = compat_wait_event("RevenantSupervisorMain");

	for (;;)
	{
		int64		sleep_us;
		uint32		wakes;
		uint32		of_roles;

		ResetLatch(MyLatch);
		wakes = worker_supervisor_wakes(me.slot);
		of_roles = role_changes;
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			reload_wanted = true;
		}

		tick_begin(LONGEST_SLEEP_US);
		tick();
		MemoryContextReset(tick_context);
		(void) pgstat_report_stat(false);

		/* whoever waited for a lock meanwhile has reset the latch, and what it stood for may have come too late for this tick */
		sleep_us = tick_left_us();
		if (sleep_us > 0 && wakes == worker_supervisor_wakes(me.slot) && !ConfigReloadPending &&
			of_roles == role_changes)
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							 (long) ((sleep_us + 999) / 1000), wait_event);
	}
}
