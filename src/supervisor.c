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
 *		sweep		lapsed leases, once a minute
 *
 * Each of these is a transaction of its own, or several, and an error in one
 * ends that one only. What can be wrong with one task ends in a phase and a
 * reason of that task.
 *
 * NOTES
 *	  On a standby nothing is started and nothing is read: the view says
 *	  `following` by itself. Leading begins with entering the era of the
 *	  tokens, in a transaction of its own.
 *
 *	  The supervisor never runs users' code: it reads and writes the
 *	  extension's own tables directly, and evaluates no expression.
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
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "common/hashfn.h"
#include "common/pg_prng.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
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
#include "extension.h"
#include "fence.h"
#include "guc.h"
#include "lease.h"
#include "restart.h"
#include "row.h"
#include "supervisor.h"
#include "task.h"
#include "worker.h"

#define LONGEST_SLEEP_US (10 * US_PER_S)
#define RETRY_US (1 * US_PER_S)
#define LOAD_EVERY_US (30 * US_PER_S)
#define SWEEP_EVERY_US (60 * US_PER_S)
#define SWEEP_BATCH 50
#define COMPLAIN_EVERY_US (60 * US_PER_S)

/* A fire time that is over by no more than this is still run: the supervisor was only restarted. */
#define FIRE_GRACE_US (10 * US_PER_S)

/* What the supervisor knows of a task between two ticks: a row, and what is to be done about it. */
typedef struct Task
{
	TaskKey		key;			/* hash key */
	char		name[TASK_NAME_MAX + 1];

	/* from the row */
	bool		seen;			/* in the last look at the table */
	bool		enabled;
	bool		native;
	char		run_as[NAMEDATALEN];
	Oid			role;
	bool		has_schedule;
	Schedule	schedule;
	int64		backoff_min_us;
	int64		backoff_max_us;
	int64		claim_delay_us;
	TimestampTz created_at;
	char		problem[TASK_REASON_MAX];	/* why it cannot be run at all; empty: it can */

	/* when it runs next */
	bool		ready;			/* the fields below are valid: it was enabled when it was last looked at */
	int			failures;		/* in a row */
	bool		backoff;		/* due_us is the end of a backoff */
	int64		due_us;			/* not before; 0: at once */
	TimestampTz fire_at;		/* of the schedule; 0: none */
	int64		late_since_us;	/* since when it is due */

	/* its runner */
	int			slot;			/* -1: none */
	RunnerState runner_state;
	uint32		runner_generation;
	bool		runner_stop;
	bool		runner_leads;
	BackgroundWorkerHandle *handle; /* in TopMemoryContext, freed when the run was collected */

	/* what was published last */
	TaskPhase	phase;
	uint32		reason_hash;
} Task;

/* A run that ended, for the step that writes it down. */
typedef struct Ending
{
	const RunnerSlot *slot;
	bool		failed;
	bool		stopped;
	bool		restarts;
	int			failures;
	TimestampTz retry_at;		/* 0: none */
} Ending;

typedef void (*Step) (void *arg);

static WorkerExtra me;
static HTAB *tasks = NULL;
static MemoryContext tick_context = NULL;

static Oid	instance = InvalidOid;	/* of the extension; InvalidOid: not known yet */
static bool extension_present = false;
static bool leading = false;	/* the era was entered */
static int	foreign = 0;		/* tasks that wait for adopt() */
static bool roles_changed = true;
static uint32 seen_changes = 0;
static int64 loaded_us = 0;		/* 0: never */
static int64 swept_us = 0;
static int64 pruned_us = 0;
static int64 wake_us = 0;		/* when the next tick must come at the latest */
static int64 complained_us = 0;
static uint32 complained_hash = 0;
static int64 slots_complained_us = 0;

/* ---------------------------------------------------------------- small things */

static void
sleep_at_most(int64 us)
{
	wake_us = Min(wake_us, clock_now_us() + Max(us, 0));
}

static uint32
text_hash(const char *text)
{
	return DatumGetUInt32(hash_any((const unsigned char *) text, (int) strlen(text)));
}

/*
 * Runs a step in a transaction of its own. False when it failed: then it was
 * rolled back, and the log says so, but the same error at most once a minute.
 */
static bool
guarded(const char *what, Step step, void *arg)
{
	volatile bool done = false;

	PG_TRY();
	{
		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		PushActiveSnapshot(GetTransactionSnapshot());
		step(arg);
		if (ActiveSnapshotSet())
			PopActiveSnapshot();
		CommitTransactionCommand();
		done = true;
	}
	PG_CATCH();
	{
		ErrorData  *error;
		uint32		hash;

		MemoryContextSwitchTo(tick_context);
		error = CopyErrorData();
		FlushErrorState();
		AbortOutOfAnyTransaction();
		hash = text_hash(error->message ? error->message : "") ^ text_hash(what);
		if (hash != complained_hash || clock_now_us() - complained_us > COMPLAIN_EVERY_US)
		{
			complained_hash = hash;
			complained_us = clock_now_us();
			ereport(LOG,
					(errcode(error->sqlerrcode),
					 errmsg("revenant supervisor could not %s: %s", what, error->message ? error->message : "?"),
					 error->detail ? errdetail_internal("%s", error->detail) : 0));
		}
		sleep_at_most(RETRY_US);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(tick_context);
	return done;
}

static void
on_role_change(Datum arg, int cacheid, uint32 hashvalue)
{
	roles_changed = true;
}

/* Makes the phase and the reason of a task known, if they are not. */
static void
publish(Task *task, TaskPhase phase, TimestampTz next_run, const char *reason)
{
	uint32		hash = text_hash(reason) ^ (uint32) next_run;
	bool		changed;

	if (task->phase == phase && task->reason_hash == hash)
		return;
	changed = task_status_set(&task->key, task->name, phase, next_run, reason);
	/* what holds all tasks alike is not said for each */
	if (changed && phase == PHASE_HELD && reason == task->problem)
		ereport(LOG,
				(errmsg("task \"%s\" is held: %s", task->name, reason)));
	task->phase = phase;
	task->reason_hash = hash;
}

/* ---------------------------------------------------------------- the rows */

/* What the rows say; visited with the table open. */
typedef struct Load
{
	List	   *open_runs;		/* palloc'd names, in tick_context */
	int			foreign;		/* tasks that wait for adopt() */
	bool		gone;			/* the table is not there any more */
} Load;

/* The task begins anew. */
static void
forget_plan(Task *task)
{
	task->ready = false;
	task->failures = 0;
	task->backoff = false;
	task->due_us = 0;
	task->fire_at = 0;
}

static void
load_task(Relation rel, HeapTuple tuple, void *arg)
{
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
		unreadable = error->message;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old);
	CurrentResourceOwner = owner;

	task_key(&key, MyDatabaseId, instance, name);
	task = hash_search(tasks, &key, HASH_ENTER, &found);
	if (!found)
	{
		memset((char *) task + sizeof(TaskKey), 0, sizeof(Task) - sizeof(TaskKey));
		strlcpy(task->name, name, sizeof(task->name));
		task->slot = -1;
	}
	/* another schedule is another grid */
	if (found && task->ready &&
		(task->has_schedule != row.has_schedule || task->created_at != row.created_at ||
		 memcmp(&task->schedule, &row.schedule, sizeof(Schedule)) != 0))
		forget_plan(task);
	task->seen = true;
	task->enabled = row.enabled;
	task->native = row.native;
	strlcpy(task->run_as, row.run_as, sizeof(task->run_as));
	task->role = row.run_as_oid;
	task->has_schedule = row.has_schedule;
	task->schedule = row.schedule;
	task->backoff_min_us = row.backoff_min_us;
	task->backoff_max_us = row.backoff_max_us;
	task->claim_delay_us = row.claim_delay_us;
	task->created_at = row.created_at;
	if (unreadable != NULL)
		snprintf(task->problem, sizeof(task->problem), "its row cannot be read: %s", unreadable);
	else if (row.schedule_problem != NULL)
		snprintf(task->problem, sizeof(task->problem), "its schedule cannot be used: %s", row.schedule_problem);
	else
		task->problem[0] = '\0';
}

static void
load_state(Relation rel, HeapTuple tuple, void *arg)
{
	Load	   *load = arg;
	Datum		values[STATE_COLUMNS];
	bool		nulls[STATE_COLUMNS];
	char	   *name;
	TaskKey		key;
	Task	   *task;

	heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
	name = TextDatumGetCString(values[ATT_STATE_NAME - 1]);
	task_key(&key, MyDatabaseId, instance, name);
	task = hash_search(tasks, &key, HASH_FIND, NULL);

	if (!nulls[ATT_STATE_STARTED_AT - 1] && nulls[ATT_STATE_FINISHED_AT - 1])
	{
		MemoryContext old = MemoryContextSwitchTo(tick_context);

		load->open_runs = lappend(load->open_runs, pstrdup(name));
		MemoryContextSwitchTo(old);
	}

	/* what an earlier supervisor, or an earlier life of the server, had in mind */
	if (task != NULL && !task->ready && task->enabled)
	{
		TimestampTz now = GetCurrentTimestamp();

		task->failures = DatumGetInt32(values[ATT_STATE_CONSECUTIVE_FAILURES - 1]);
		if (!nulls[ATT_STATE_RETRY_AT - 1])
		{
			int64		wait_us = DatumGetTimestampTz(values[ATT_STATE_RETRY_AT - 1]) - now;

			wait_us = Min(wait_us, task->backoff_max_us + task->backoff_max_us / 4);
			task->backoff = true;
			task->due_us = wait_us > 0 ? clock_now_us() + wait_us : 0;
		}
		if (task->has_schedule && !nulls[ATT_STATE_NEXT_RUN - 1])
			task->fire_at = DatumGetTimestampTz(values[ATT_STATE_NEXT_RUN - 1]);
	}
}

/* A task is about to be supervised: when is it due? */
static void
make_ready(Task *task, bool first_look)
{
	TimestampTz now = GetCurrentTimestamp();

	if (task->has_schedule)
	{
		TimestampTz next;

		/* the fire time that was written down; one that this task has never had is not late either */
		if (task->fire_at == 0 && first_look &&
			!schedule_next(&task->schedule, task->created_at, now - FIRE_GRACE_US, &task->fire_at))
			task->fire_at = 0;
		if (task->fire_at == 0 || now - task->fire_at > FIRE_GRACE_US)
			task->fire_at = schedule_next(&task->schedule, task->created_at, now, &next) ? next : 0;
	}
	else
		task->fire_at = 0;
	task->late_since_us = 0;
	task->ready = true;
}

static void
load(void *arg)
{
	const Extension *extension = extension_get();
	Extension	oids = *extension;
	Load	   *result = arg;
	Relation	rel;
	HASH_SEQ_STATUS all;
	Task	   *task;
	bool		first_look = loaded_us == 0;

	hash_seq_init(&all, tasks);
	while ((task = hash_seq_search(&all)) != NULL)
		task->seen = false;

	/* DROP EXTENSION may be committed just now: then the next tick sees that it is gone */
	rel = try_relation_open(oids.task, AccessShareLock);
	if (rel == NULL)
	{
		result->gone = true;
		return;
	}
	row_visit(rel, load_task, NULL);
	relation_close(rel, AccessShareLock);
	rel = table_open(oids.task_state, AccessShareLock);
	row_visit(rel, load_state, result);
	table_close(rel, AccessShareLock);

	hash_seq_init(&all, tasks);
	while ((task = hash_seq_search(&all)) != NULL)
	{
		const char *problem;

		if (!task->seen)
			continue;
		if (!task->native)
			result->foreign++;
		if (task->problem[0] == '\0' && (problem = task_role_problem(task->run_as, task->role)) != NULL)
			strlcpy(task->problem, problem, sizeof(task->problem));
		if (!task->enabled || !task->native || task->problem[0] != '\0')
			forget_plan(task);
		else if (!task->ready)
			make_ready(task, first_look);
	}
}

/* A row of revenant.task_state, locked for update; NULL when there is none. */
static HeapTuple
lock_state(Relation rel, const Extension *extension, const char *name)
{
	HeapTuple	old;

	do
	{
		CHECK_FOR_INTERRUPTS();
		old = row_find(rel, extension->task_state_pkey, name);
	} while (old != NULL && !row_lock(rel, old));
	return old;
}

/* Closes a run that nobody runs any more. */
static void
close_interrupted(void *arg)
{
	const char *name = arg;
	Extension	oids = *extension_get();
	Relation	rel = table_open(oids.task_state, RowExclusiveLock);
	HeapTuple	old = lock_state(rel, &oids, name);
	Datum		values[STATE_COLUMNS];
	bool		nulls[STATE_COLUMNS];
	bool		replace[STATE_COLUMNS] = {0};

	if (old != NULL)
	{
		heap_deform_tuple(old, RelationGetDescr(rel), values, nulls);
		if (nulls[ATT_STATE_FINISHED_AT - 1])
		{
			values[ATT_STATE_FINISHED_AT - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
			values[ATT_STATE_RUNS - 1] = Int64GetDatum(DatumGetInt64(values[ATT_STATE_RUNS - 1]) + 1);
			values[ATT_STATE_RESTARTS - 1] = Int64GetDatum(DatumGetInt64(values[ATT_STATE_RESTARTS - 1]) + 1);
			values[ATT_STATE_LAST_ERROR - 1] = CStringGetTextDatum("interrupted");
			nulls[ATT_STATE_FINISHED_AT - 1] = nulls[ATT_STATE_LAST_ERROR - 1] = false;
			nulls[ATT_STATE_LAST_SQLSTATE - 1] = nulls[ATT_STATE_LAST_EXIT - 1] = true;
			replace[ATT_STATE_FINISHED_AT - 1] = replace[ATT_STATE_RUNS - 1] = replace[ATT_STATE_RESTARTS - 1] = true;
			replace[ATT_STATE_LAST_ERROR - 1] = replace[ATT_STATE_LAST_SQLSTATE - 1] = true;
			replace[ATT_STATE_LAST_EXIT - 1] = true;
			row_update(rel, old, values, nulls, replace);
		}
	}
	table_close(rel, NoLock);
}

static bool
is_known(const TaskKey *key)
{
	return hash_search(tasks, key, HASH_FIND, NULL) != NULL;
}

/* Reads the rows again, and closes the runs that ended without a word. */
static void
reload(void)
{
	Load		result = {0};
	ListCell   *cell;
	uint32		changes = worker_supervisor_changes(me.slot);

	roles_changed = false;
	if (!guarded("read its tasks", load, &result) || result.gone)
	{
		roles_changed = true;
		if (result.gone)
		{
			extension_forget();
			sleep_at_most(0);
		}
		return;
	}
	if (result.foreign > foreign)
		ereport(LOG,
				(errmsg("%d tasks are held until revenant.adopt() is called", result.foreign),
				 errdetail("They were made in another database or cluster.")));
	foreign = result.foreign;
	seen_changes = changes;
	loaded_us = clock_now_us();
	if (loaded_us - pruned_us >= SWEEP_EVERY_US)
	{
		pruned_us = loaded_us;
		task_status_prune(MyDatabaseId, is_known);
	}

	foreach(cell, result.open_runs)
	{
		TaskKey		key;
		RunnerSlot	slot;
		int			number;

		task_key(&key, MyDatabaseId, instance, lfirst(cell));
		if (!worker_runner_find(&key, &number, &slot))
			(void) guarded("close an interrupted run", close_interrupted, lfirst(cell));
	}
}

/* ---------------------------------------------------------------- runs that ended */

static void
write_ending(void *arg)
{
	const Ending *ending = arg;
	const RunnerSlot *slot = ending->slot;
	Extension	oids = *extension_get();
	Relation	rel = table_open(oids.task_state, RowExclusiveLock);
	HeapTuple	old = lock_state(rel, &oids, slot->name);
	Datum		values[STATE_COLUMNS] = {0};
	bool		nulls[STATE_COLUMNS];
	bool		replace[STATE_COLUMNS];
	bool		claimed = slot->token != 0;
	TimestampTz ended_at = clock_to_timestamp(slot->ended_us);

	if (old != NULL)
		heap_deform_tuple(old, RelationGetDescr(rel), values, nulls);
	else
	{
		memset(nulls, true, sizeof(nulls));
		values[ATT_STATE_NAME - 1] = CStringGetTextDatum(slot->name);
		nulls[ATT_STATE_NAME - 1] = nulls[ATT_STATE_RUNS - 1] = nulls[ATT_STATE_FAILURES - 1] = false;
		nulls[ATT_STATE_RESTARTS - 1] = nulls[ATT_STATE_CONSECUTIVE_FAILURES - 1] = false;
	}
	/* the run that is written there may be another one than the run that ended: this one never claimed */
	if (claimed || !nulls[ATT_STATE_STARTED_AT - 1])
	{
		values[ATT_STATE_FINISHED_AT - 1] = TimestampTzGetDatum(ended_at);
		nulls[ATT_STATE_FINISHED_AT - 1] = false;
	}
	values[ATT_STATE_RUNS - 1] = Int64GetDatum(DatumGetInt64(values[ATT_STATE_RUNS - 1]) + (claimed ? 1 : 0));
	values[ATT_STATE_FAILURES - 1] = Int64GetDatum(DatumGetInt64(values[ATT_STATE_FAILURES - 1]) + (ending->failed ? 1 : 0));
	values[ATT_STATE_RESTARTS - 1] = Int64GetDatum(DatumGetInt64(values[ATT_STATE_RESTARTS - 1]) + (ending->restarts ? 1 : 0));
	values[ATT_STATE_CONSECUTIVE_FAILURES - 1] = Int32GetDatum(ending->failures);
	values[ATT_STATE_RETRY_AT - 1] = TimestampTzGetDatum(ending->retry_at);
	nulls[ATT_STATE_RETRY_AT - 1] = ending->retry_at == 0;
	values[ATT_STATE_LAST_EXIT - 1] = Int32GetDatum(slot->outcome == RUN_SUCCEEDED ? 0 : 1);
	nulls[ATT_STATE_LAST_EXIT - 1] = false;
	if (claimed)
	{
		Interval   *duration = palloc0(sizeof(Interval));

		duration->time = Max(slot->ended_us - slot->started_us, 0);
		values[ATT_STATE_LAST_DURATION - 1] = IntervalPGetDatum(duration);
		nulls[ATT_STATE_LAST_DURATION - 1] = false;
	}
	if (slot->outcome == RUN_SUCCEEDED)
	{
		values[ATT_STATE_LAST_SUCCESS - 1] = TimestampTzGetDatum(ended_at);
		nulls[ATT_STATE_LAST_SUCCESS - 1] = false;
	}
	if (ending->failed)
	{
		values[ATT_STATE_LAST_ERROR - 1] = CStringGetTextDatum(slot->message[0] ? slot->message : "ended without a message");
		nulls[ATT_STATE_LAST_ERROR - 1] = false;
		values[ATT_STATE_LAST_SQLSTATE - 1] = CStringGetTextDatum(slot->sqlstate);
		nulls[ATT_STATE_LAST_SQLSTATE - 1] = slot->sqlstate[0] == '\0';
	}
	if (old != NULL)
	{
		memset(replace, true, sizeof(replace));
		row_update(rel, old, values, nulls, replace);
	}
	else
		row_insert(rel, values, nulls);
	table_close(rel, NoLock);

	/* not flushed: the next run's start or the WAL writer does it; lost in a crash, the run was interrupted */
	(void) set_config_option("synchronous_commit", "off", PGC_SUSET, PGC_S_OVERRIDE, GUC_ACTION_LOCAL, true, ERROR, false);
}

/* A run of a task ended: decide when the next one is due, and write both down. */
static void
finish_run(Task *task, const RunnerSlot *slot)
{
	Ending		ending = {.slot = slot};
	int64		ran_us = slot->token != 0 ? slot->ended_us - slot->started_us : 0;

	/* it found that there is nothing to run */
	if (slot->outcome == RUN_SUCCEEDED && slot->token == 0)
		return;
	ending.stopped = slot->stop && slot->outcome != RUN_SUCCEEDED;
	ending.failed = slot->outcome != RUN_SUCCEEDED && !ending.stopped;

	task->backoff = false;
	task->due_us = 0;
	task->late_since_us = 0;
	if (ending.failed)
		task->failures = restart_count_failure(task->failures, ran_us, task->backoff_max_us);
	else if (!ending.stopped)
		task->failures = 0;
	if (ending.failed || (!ending.stopped && !task->has_schedule))
	{
		int64		wait_us = restart_backoff_us(task->backoff_min_us, task->backoff_max_us,
												 task->failures, pg_prng_uint32(&pg_global_prng_state));

		ending.restarts = true;
		task->backoff = true;
		task->due_us = slot->ended_us + wait_us;
		ending.retry_at = clock_to_timestamp(task->due_us);
	}
	ending.failures = task->failures;
	task->phase = PHASE_NEW;	/* its runner has moved it meanwhile */
	publish(task, PHASE_SCHEDULED, 0, "its run has ended");
	(void) guarded("write down how a run ended", write_ending, &ending);
}

/* Looks at every runner slot of this database. */
static void
collect(void)
{
	RunnerSlot *slot = palloc(sizeof(RunnerSlot));
	HASH_SEQ_STATUS all;
	Task	   *task;

	hash_seq_init(&all, tasks);
	while ((task = hash_seq_search(&all)) != NULL)
		task->slot = -1;

	for (int i = worker_runner_next(0, MyDatabaseId, slot); i >= 0;
		 i = worker_runner_next(i + 1, MyDatabaseId, slot))
	{
		pid_t		pid;
		bool		never_came;

		task = hash_search(tasks, &slot->task, HASH_FIND, NULL);
		never_came = slot->state == RUNNER_STARTING && task != NULL && task->handle != NULL &&
			task->runner_generation == slot->generation &&
			GetBackgroundWorkerPid(task->handle, &pid) == BGWH_STOPPED;
		if (slot->state != RUNNER_EXITED && worker_runner_reap(i, slot->generation, never_came) &&
			!worker_runner_get(i, slot->generation, slot))
			continue;

		if (slot->state == RUNNER_EXITED)
		{
			if (task != NULL)
				finish_run(task, slot);
			if (task != NULL && task->handle != NULL)
			{
				pfree(task->handle);
				task->handle = NULL;
			}
			worker_runner_free(i, slot->generation);
			continue;
		}
		if (task != NULL)
		{
			task->slot = i;
			task->runner_state = slot->state;
			task->runner_generation = slot->generation;
			task->runner_stop = slot->stop;
			task->runner_leads = slot->token != 0;
		}
		/* of a task, or an extension, that is gone */
		else if (loaded_us != 0 && !slot->stop)
			worker_runner_stop(i, slot->generation);
		if (slot->state == RUNNER_STARTING)
			sleep_at_most(RETRY_US);
	}
	pfree(slot);
}

/* ---------------------------------------------------------------- what should run */

static bool
start(Task *task)
{
	BackgroundWorker worker;
	WorkerExtra extra = {.database = MyDatabaseId, .role = task->role};
	const char *problem;
	MemoryContext old;
	int			holder;
	bool		registered;

	/* the role may have changed since the row was read */
	problem = task_role_problem(task->run_as, task->role);
	if (problem != NULL)
	{
		strlcpy(task->problem, problem, sizeof(task->problem));
		publish(task, PHASE_HELD, 0, task->problem);
		return true;
	}
	extra.slot = worker_runner_reserve(&task->key, task->name, task->role, task->fire_at, &extra.generation);
	if (extra.slot == RESERVE_NONE_FREE)
		return false;
	if (extra.slot < 0)
	{
		sleep_at_most(RETRY_US);
		return true;
	}
	DEBUG_POINT("supervisor-before-hold-check");
	/* only now: see worker.c on holds */
	holder = task_status_holder(&task->key);
	if (holder != 0)
	{
		worker_runner_free(extra.slot, extra.generation);
		publish(task, PHASE_SCHEDULED, 0,
				psprintf("process %d is about to drop, disable or restart it", holder));
		sleep_at_most(RETRY_US);
		return true;
	}

	if (task->phase == PHASE_NEW)
		publish(task, PHASE_SCHEDULED, 0, "");
	publish(task, PHASE_CLAIMING, 0, "waits for its lease");
	worker_prepare(&worker, "revenant runner", "", "revenant_runner_main");
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), "revenant runner for %.*s",
			 pg_mbcliplen(task->name, (int) strlen(task->name), BGW_MAXLEN - (int) sizeof("revenant runner for ")),
			 task->name);
	worker.bgw_main_arg = Int32GetDatum(extra.slot);
	worker.bgw_notify_pid = MyProcPid;
	memcpy(worker.bgw_extra, &extra, sizeof(extra));

	old = MemoryContextSwitchTo(TopMemoryContext);	/* freed by collect() */
	if (task->handle != NULL)
		pfree(task->handle);
	task->handle = NULL;
	registered = RegisterDynamicBackgroundWorker(&worker, &task->handle);
	MemoryContextSwitchTo(old);
	if (!registered)
	{
		worker_runner_free(extra.slot, extra.generation);
		publish(task, PHASE_SCHEDULED, 0, "");
		return false;
	}

	task->runner_generation = extra.generation;
	task->slot = extra.slot;
	task->late_since_us = 0;
	if (task->has_schedule &&
		!schedule_next(&task->schedule, task->created_at, Max(GetCurrentTimestamp(), task->fire_at), &task->fire_at))
		task->fire_at = 0;
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
	int64		claim_us = clock_writable_since_us() + task->claim_delay_us;
	TimestampTz now;

	if (task->claim_delay_us > 0 && now_us < claim_us)
	{
		publish(task, PHASE_SCHEDULED, clock_to_timestamp(claim_us), "waits for its claim_delay to pass");
		sleep_at_most(claim_us - now_us);
		return false;
	}
	if (task->has_schedule)
	{
		now = GetCurrentTimestamp();
		/* the wall clock was set back: the grid is where it was */
		if (task->schedule.months == 0 && task->fire_at != 0 &&
			task->fire_at - now > task->schedule.time_us + FIRE_GRACE_US &&
			!schedule_next(&task->schedule, task->created_at, now, &task->fire_at))
			task->fire_at = 0;
		if (task->backoff && now_us >= task->due_us)
		{
			task->late_since_us = task->due_us;
			return true;
		}
		if (task->fire_at != 0 && now >= task->fire_at)
		{
			task->late_since_us = now_us - (now - task->fire_at);
			return true;
		}
		if (task->fire_at == 0 && !task->backoff)
		{
			publish(task, PHASE_SCHEDULED, 0, "its schedule has no further time");
			return false;
		}
		if (task->fire_at != 0)
			sleep_at_most(task->fire_at - now);
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
	sleep_at_most(task->due_us - now_us);
	return false;
}

/* Compares what should run with what does, and acts on the difference. */
static void
decide(void *arg)
{
	HASH_SEQ_STATUS all;
	Task	   *task;
	Task	  **due = palloc(sizeof(Task *) * (hash_get_num_entries(tasks) + 1));
	int			ndue = 0;
	bool		room = true;

	hash_seq_init(&all, tasks);
	while ((task = hash_seq_search(&all)) != NULL)
	{
		const char *reason = NULL;
		TaskPhase	rest = PHASE_HELD;

		if (!task->seen)
		{
			if (task->slot >= 0)
			{
				worker_runner_stop(task->slot, task->runner_generation);
				sleep_at_most(RETRY_US);
				continue;
			}
			task_status_forget(&task->key);
			hash_search(tasks, &task->key, HASH_REMOVE, NULL);
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

		if (task->slot >= 0)
		{
			if (reason != NULL && !task->runner_stop)
				worker_runner_stop(task->slot, task->runner_generation);
			if (reason != NULL || task->runner_stop)
			{
				publish(task, PHASE_STOPPING, 0, "its runner was told to end");
				sleep_at_most(RETRY_US);
			}
			else if (task->runner_leads && task->phase != PHASE_LEADING)
				publish(task, PHASE_LEADING, task->fire_at, "");
		}
		else if (reason != NULL)
			publish(task, rest, 0, reason);
		else if (is_due(task))
			due[ndue++] = task;
	}

	qsort(due, ndue, sizeof(Task *), by_lateness);
	for (int i = 0; i < ndue; i++)
	{
		if (room)
			room = start(due[i]);
		if (!room)
			publish(due[i], PHASE_WAITING_FOR_SLOT, 0,
					"no runner is free: see revenant.max_runners and max_worker_processes");
	}
	worker_supervisor_hungry(me.slot, !room);
	if (!room)
	{
		sleep_at_most(RETRY_US);
		if (slots_complained_us == 0 || clock_now_us() - slots_complained_us > 10 * COMPLAIN_EVERY_US)
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
	found = extension != NULL && OidIsValid(extension->task_state_pkey) ? extension->extension : InvalidOid;

	extension_present = OidIsValid(found);
	if (found != instance && extension_present)
	{
		/* another instance: nothing of the old one is true any more */
		HASH_SEQ_STATUS all;
		Task	   *task;

		hash_seq_init(&all, tasks);
		while ((task = hash_seq_search(&all)) != NULL)
			hash_search(tasks, &task->key, HASH_REMOVE, NULL);
		instance = found;
		leading = false;
		loaded_us = 0;
		task_status_purge(MyDatabaseId, instance);
		lease_purge();
	}
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
		sleep_at_most(RETRY_US);
		return;
	}
	if (OidIsValid(instance))
	{
		task_status_purge(MyDatabaseId, InvalidOid);
		lease_forget_database(MyDatabaseId);
		instance = InvalidOid;
	}
	if (worker_supervisor_absent(me.slot))
		proc_exit(0);
	sleep_at_most(0);
}

static void
enter_era(void *arg)
{
	fence_enter_era();
}

static void
sweep_once(void *arg)
{
	*(int *) arg = lease_sweep(SWEEP_BATCH);
}

static void
purge_leases(void *arg)
{
	lease_purge();
}

static void
sweep(void)
{
	int			removed = SWEEP_BATCH;

	swept_us = clock_now_us();
	while (removed >= SWEEP_BATCH)
	{
		CHECK_FOR_INTERRUPTS();
		removed = 0;
		(void) guarded("remove lapsed leases", sweep_once, &removed);
	}
	(void) guarded("give back the memory of leases", purge_leases, NULL);
}

/* One look at everything. */
static void
tick(void)
{
	bool		entered;

	if (!guarded("look for the extension", look_for_extension, NULL))
		return;
	if (!extension_present)
	{
		leave();
		return;
	}
	if (RecoveryInProgress())
		return;

	clock_note_writable();
	/* each time, tasks or not: a restore may have brought another era to be above */
	entered = guarded("enter the era of its tokens", enter_era, NULL);
	if (guc_enabled && !leading)
	{
		leading = entered;
		if (!leading)
			return;
	}
	/* a run that ended belongs to a task that is known */
	if (loaded_us == 0)
		reload();
	collect();
	if (seen_changes != worker_supervisor_changes(me.slot) || roles_changed || loaded_us == 0 ||
		clock_now_us() - loaded_us >= LOAD_EVERY_US)
		reload();
	if (loaded_us != 0)
		(void) guarded("decide what to run", decide, NULL);
	if (guc_enabled && clock_now_us() - swept_us >= SWEEP_EVERY_US)
		sweep();
}

static void
report_end(int code, Datum arg)
{
	worker_supervisor_exit(me.slot, me.generation);
}

/* Settings of roles and databases must not reach the supervisor. */
static void
pin_settings(void)
{
	static const char *const pinned[][2] = {
		{"search_path", "pg_catalog"},
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_read_only", "off"},
		{"default_transaction_deferrable", "off"},
		{"statement_timeout", "0"},
		{"lock_timeout", "0"},
		{"idle_in_transaction_session_timeout", "0"},
		{"transaction_timeout", "0"},
		{"synchronous_commit", "local"},
		{"row_security", "off"},
		{"session_replication_role", "origin"},
	};

	for (int i = 0; i < (int) lengthof(pinned); i++)
	{
		if (GetConfigOption(pinned[i][0], true, false) != NULL)
			SetConfigOption(pinned[i][0], pinned[i][1], PGC_SUSET, PGC_S_OVERRIDE);
	}
}

/* A supervisor. */
void
revenant_supervisor_main(Datum main_arg)
{
	HASHCTL		control;
	uint32		wait_event;

	memcpy(&me, MyBgworkerEntry->bgw_extra, sizeof(me));
	Assert(me.slot == DatumGetInt32(main_arg));

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	before_shmem_exit(report_end, (Datum) 0);
	if (!worker_supervisor_attach(me.slot, me.generation))
		proc_exit(0);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(me.database, InvalidOid, 0);
	pin_settings();
	pgstat_report_activity(STATE_IDLE, NULL);
	CacheRegisterSyscacheCallback(AUTHOID, on_role_change, (Datum) 0);

	tick_context = AllocSetContextCreate(TopMemoryContext, "revenant supervisor tick", ALLOCSET_DEFAULT_SIZES);
	control.keysize = sizeof(TaskKey);
	control.entrysize = sizeof(Task);
	tasks = hash_create("revenant tasks", 64, &control, HASH_ELEM | HASH_BLOBS);
	wait_event = compat_wait_event("RevenantSupervisorMain");

	for (;;)
	{
		int64		sleep_us;

		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}

		wake_us = clock_now_us() + LONGEST_SLEEP_US;
		MemoryContextSwitchTo(tick_context);
		tick();
		MemoryContextReset(tick_context);
		(void) pgstat_report_stat(false);

		sleep_us = wake_us - clock_now_us();
		if (sleep_us > 0)
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							 (long) ((sleep_us + 999) / 1000), wait_event);
	}
}
