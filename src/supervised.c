/*-------------------------------------------------------------------------
 *
 * supervised.c
 *	  What a supervisor knows of its tasks: their rows, and when each is due next.
 *
 * A plan is made when a task is first looked at, from its row and from what its
 * latest run left, and is void as soon as the task is not to be run.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "extension.h"
#include "row.h"
#include "stat_task.h"
#include "supervised.h"
#include "task_status.h"
#include "tick.h"
#include "worker.h"

/*
 * A fire time that is over by no more than this is still run: the supervisor
 * was restarted, or the run before took longer than the interval. One that
 * waits for a runner stays due for as long as it takes.
 */
#define FIRE_GRACE_US (10 * US_PER_S)

HTAB	   *supervised_tasks = NULL;

/* Called once in a process. */
void
supervised_init(void)
{
	HASHCTL		control;

	control.keysize = sizeof(TaskKey);
	control.entrysize = sizeof(Task);
	supervised_tasks = hash_create("revenant tasks", 64, &control, HASH_ELEM | HASH_BLOBS);
}

/* The task begins anew. */
void
task_forget_plan(Task *task)
{
	task->ready = false;
	task->failures = 0;
	task->unstarted = 0;
	task->not_before_us = 0;
	task->given_back = false;
	task->backoff = false;
	task->fires = false;
	task->due_us = 0;
	task->fire_at = 0;
	task->started_at = 0;
	task->quarantined = false;
	task->finished = false;
	task->slot_wait_counted = false;
	task->recent.count = 0;
}

/* The first time of the schedule that is later than `after`, or 0. */
TimestampTz
task_next_time(const Task *task, TimestampTz after)
{
	TimestampTz next;

	return schedule_next(&task->schedule, &task->place, after, &next) ? next : 0;
}

/*
 * Whether a fire time is over by more than its grace, so that it is skipped: but
 * not while the task waits for a runner since, nor if it is to be made up for.
 */
static bool
is_missed(const Task *task, TimestampTz now)
{
	return now - task->fire_at > FIRE_GRACE_US && task->phase != PHASE_WAITING_FOR_SLOT && !task->given_back &&
		!task->catches_up;
}

/*
 * A fire time that is further away than the one after the next was made before
 * the wall clock was set back: the run is due by the clock as it is now. (Not
 * than the next: a clock that is set back a little repeats no time.) An
 * interval has no times of the day, so there the next one is as far as it goes.
 */
void
task_adjust_fire_time(Task *task, TimestampTz now, bool set_back)
{
	TimestampTz first;
	TimestampTz limit;

	if (task->fire_at == 0 || task->schedule.kind == SCHEDULE_REBOOT)
		return;
	if (is_missed(task, now))
		task->fire_at = task_next_time(task, now);
	if (!set_back || task->fire_at <= now)
		return;
	first = task_next_time(task, now);
	limit = task->schedule.kind == SCHEDULE_INTERVAL ? first + FIRE_GRACE_US : task_next_time(task, first);
	if (first != 0 && limit != 0 && task->fire_at > limit)
		task->fire_at = first;
}

/* Since when this server leads, by the wall clock. */
static TimestampTz
led_since(void)
{
	return clock_to_timestamp(clock_writable_since_us());
}

/* A task is about to be supervised: when is it due? */
void
task_make_ready(Task *task, bool first_look, bool following)
{
	TimestampTz now = GetCurrentTimestamp();

	if (!task->has_schedule)
		task->fire_at = 0;
	else if (task->schedule.kind == SCHEDULE_REBOOT)
		task->fire_at = (following || task->life.enabled_at < led_since()) && !task_status_has_begun(&task->key, following) ? now : 0;
	else
	{
		/* no time is written down: one that just passed may have been missed, if it was not run and the task was on */
		if (task->fire_at == 0 && first_look && !following)
			task->fire_at = task_next_time(task, Max(now - FIRE_GRACE_US, Max(task->started_at, task->life.enabled_at)));
		if (task->fire_at == 0 || is_missed(task, now))
			task->fire_at = task_next_time(task, now);
		task_adjust_fire_time(task, now, true);
	}
	task->late_since_us = 0;
	task->ready = true;
}

/* The task is due, and no runner is free: counted once for each run, however often it is looked at. */
void
task_count_slot_wait(Task *task)
{
	if (!task->slot_wait_counted)
		stat_task_waits_for_slot(&task->key, &task->life);
	task->slot_wait_counted = true;
}

/* ---------------------------------------------------------------- the rows */

static TimestampTz
timestamp_of(Relation rel, HeapTuple tuple, int attribute)
{
	bool		isnull;

	return DatumGetTimestampTz(heap_getattr(tuple, attribute, RelationGetDescr(rel), &isnull));
}

/* It is another task, or is to be looked at as one, but a time that is due stays due. */
static void
begin_anew(Task *task)
{
	TimestampTz fire_at = task->fire_at;
	bool		given_back = task->given_back;
	bool		keeps_time = task->ready && !task->quarantined;

	task_forget_plan(task);
	task->fire_at = fire_at;
	task->given_back = given_back;
	task->ready = keeps_time;
}

/* Another follower_command begins anew, and ends the run of the old one. */
static void
note_follower(Task *task, uint32 hash)
{
	if (task->follower_hash != 0 && task->follower_hash != hash)
		task->follower_changed = true;
	task->follower_hash = hash;
}

static void
load_task(Relation rel, HeapTuple tuple, void *arg)
{
	Load	   *load = arg;
	TaskRow		row;
	TaskKey		key;
	Task	   *task;
	const char *unreadable = NULL;
	bool		found;
	bool		isnull;
	MemoryContext old = MemoryContextSwitchTo(tick_context);
	ResourceOwner owner = CurrentResourceOwner;
	char	   *name = TextDatumGetCString(heap_getattr(tuple, ATT_TASK_NAME, RelationGetDescr(rel), &isnull));

	/* a row that cannot be read is that task's trouble alone */
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(tick_context);
	PG_TRY();
	{
		task_parse(tuple, RelationGetDescr(rel), &row);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(tick_context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		memset(&row, 0, sizeof(row));
		row.enabled = row.native = true;
		row.run_as = "";
		row.life.created_at = timestamp_of(rel, tuple, ATT_TASK_CREATED_AT);
		row.life.enabled_at = timestamp_of(rel, tuple, ATT_TASK_ENABLED_AT);
		unreadable = error->message;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old);
	CurrentResourceOwner = owner;

	task_key(&key, MyDatabaseId, load->instance, name);
	task = hash_search(supervised_tasks, &key, HASH_ENTER, &found);
	if (!found)
	{
		memset((char *) task + sizeof(TaskKey), 0, sizeof(Task) - sizeof(TaskKey));
		strlcpy(task->name, name, sizeof(task->name));
		task->slot = -1;
	}
	/* another schedule is another grid */
	if (found && task->ready &&
		(task->life.created_at != row.life.created_at || task->has_schedule != row.has_schedule ||
		 !schedule_same(&task->schedule, &row.schedule) || task->place.zone != row.place.zone))
		task_forget_plan(task);
	else if (found && !task_same_life(&task->life, &row.life))
		begin_anew(task);
	/* by another policy it may be run after all */
	if (task->finished && restart_follows(row.restart, task->last_failed, false))
		task->finished = false;
	if (task->life.created_at != row.life.created_at)
		task->run_requests_done = 0;
	task->run_requests_done = Max(task->run_requests_done, row.requests_void);
	task->seen = true;
	task->enabled = row.enabled;
	task->native = row.native;
	task->has_follower = row.follower_command != NULL;
	note_follower(task, row.follower_command ? tick_text_hash(row.follower_command) : 0);
	strlcpy(task->run_as, row.run_as, sizeof(task->run_as));
	task->role = row.run_as_oid;
	task->has_schedule = row.has_schedule;
	task->schedule = row.schedule;
	task->place = row.place;
	task->catches_up = row.catches_up;
	task->restart = row.restart;
	task->max_restarts = row.max_restarts;
	task->restart_window_us = row.restart_window_us;
	task->run_requests = row.run_requests;
	task->backoff_min_us = row.backoff_min_us;
	task->backoff_max_us = row.backoff_max_us;
	task->claim_delay_us = row.claim_delay_us;
	task->life = row.life;
	if (unreadable != NULL)
		snprintf(task->problem, sizeof(task->problem), "its row cannot be read: %s", unreadable);
	else if (row.problem != NULL)
		strlcpy(task->problem, row.problem, sizeof(task->problem));
	else
		task->problem[0] = '\0';
}

static void
load_state(Relation rel, HeapTuple tuple, void *arg)
{
	Load	   *load = arg;
	TaskState  *state;
	TaskKey		key;
	Task	   *task;
	MemoryContext old = MemoryContextSwitchTo(tick_context);

	state = palloc(sizeof(TaskState));
	task_state_parse(rel, tuple, state);
	task_key(&key, MyDatabaseId, load->instance, state->name);
	task = hash_search(supervised_tasks, &key, HASH_FIND, NULL);
	if (task == NULL || !task->seen || task->life.created_at != state->life.created_at)
	{
		load->orphans = lappend(load->orphans, state);
		MemoryContextSwitchTo(old);
		return;
	}
	if (state->open)
		load->open_runs = lappend(load->open_runs, state);
	MemoryContextSwitchTo(old);

	/* what an earlier supervisor, or an earlier life of the server, had in mind */
	if (task->ready || !task->enabled)
		return;
	task->started_at = state->started_at;
	task->run_requests_done = Max(task->run_requests_done, state->run_requests);
	if (!task_same_life(&task->life, &state->life))
		return;
	task->failures = state->failures;
	task->recent = state->recent;
	task->last_failed = !state->succeeded || state->open;
	task->quarantined = state->quarantined_at != 0;
	/* a run that was cut off has ended, too */
	task->finished = !task->has_schedule && (state->ended || state->open) && state->retry_at == 0 &&
		!restart_follows(task->restart, task->last_failed, false);
	if (state->retry_at != 0)
	{
		int64		wait_us = state->retry_at - GetCurrentTimestamp();

		wait_us = Min(wait_us, task->backoff_max_us + task->backoff_max_us / 4);
		task->backoff = true;
		task->due_us = wait_us > 0 ? clock_now_us() + wait_us : 0;
	}
	if (task->has_schedule)
		task->fire_at = state->next_run;
}

/* What this server did while it followed. */
static void
recall(Task *task)
{
	FollowerMemory memory;

	if (!task_status_recall(&task->key, &memory) || !task_same_life(&memory.life, &task->life) ||
		memory.command_hash != task->follower_hash)
		return;
	task->failures = memory.failures;
	task->recent = memory.recent;
	task->quarantined = memory.quarantined;
	task->finished = memory.finished && task->restart != RESTART_PERMANENT;
	task->backoff = memory.retry_us != 0;
	task->due_us = memory.retry_us;
}

/* A run that is under way was started for a time, and for calls of run_task(), of which no row tells until it has its lease. */
static void
ask_runner(Task *task, const Load *load)
{
	RunnerSlot *slot = palloc(sizeof(RunnerSlot));
	int			number;

	if (worker_runner_find(&task->key, &number, slot) && slot->follows == load->following &&
		slot->life.created_at == task->life.created_at)
	{
		task->run_requests_done = Max(task->run_requests_done, slot->requests);
		if (task_same_life(&slot->life, &task->life))
		{
			task->fire_at = slot->next_run;
			task->ready = true;
		}
	}
	pfree(slot);
}

/* What is to become of a task whose row was read. */
static void
settle(Task *task, const Load *load)
{
	const char *problem;

	if (task->problem[0] == '\0' && (problem = task_role_problem(task->run_as, task->role)) != NULL)
		strlcpy(task->problem, problem, sizeof(task->problem));
	/* what comes due meanwhile is not made up for */
	if (!task->enabled || !task->native || task->problem[0] != '\0' || !worker_may_run(load->following) ||
		(load->following && !task->has_follower))
	{
		task_forget_plan(task);
		return;
	}
	if (load->following)
	{
		if (task->follower_changed)
			task_forget_plan(task);
		if (!task->ready)
			recall(task);
		task->run_requests_done = task->run_requests;	/* they are for who leads */
	}
	if (!task->ready)
		ask_runner(task, load);
	if (!task->ready)
		task_make_ready(task, load->first_look, load->following);
}

/*
 * Reads the rows, as a step of a tick: who is there, enabled, and when it is due.
 * Tasks whose rows are gone are left with `seen` false. Where a table cannot
 * be opened it changes nothing, and says why.
 */
void
supervised_load(void *arg)
{
	Load	   *load = arg;
	const Extension *extension = extension_find();
	Oid			state_oid = extension ? extension->task_state : InvalidOid;
	Relation	rel = NULL;
	Relation	state = NULL;
	HASH_SEQ_STATUS all;
	Task	   *task;

	/* DROP EXTENSION may be under way, or committed just now: then a later tick sees that it is gone */
	load->absent = extension == NULL;
	if (load->absent)
		return;
	extension_require_tables(extension);
	load->busy = !row_try_open(extension->task, AccessShareLock, &rel);
	if (!load->busy && !row_try_open(state_oid, AccessShareLock, &state))
		load->busy = true;
	load->gone = (rel == NULL || state == NULL) && !load->busy;
	if (rel == NULL || state == NULL)
	{
		if (rel != NULL)
			relation_close(rel, NoLock);
		return;
	}
	hash_seq_init(&all, supervised_tasks);
	while ((task = hash_seq_search(&all)) != NULL)
		task->seen = false;

	row_visit(rel, load_task, load);
	if (!load->following)
		row_visit(state, load_state, load);
	relation_close(rel, NoLock);
	relation_close(state, NoLock);

	hash_seq_init(&all, supervised_tasks);
	while ((task = hash_seq_search(&all)) != NULL)
	{
		if (!task->seen)
			continue;
		if (!task->native)
			load->foreign++;
		settle(task, load);
	}
}
