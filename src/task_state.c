/*-------------------------------------------------------------------------
 *
 * task_state.c
 *	  The rows of revenant.task_state: what became of each task.
 *
 * Only workers write here: a runner when its run begins, the supervisor when
 * it has ended. Users' transactions never do, so none of them can keep the
 * supervisor waiting: a task that is dropped leaves its row behind for the
 * supervisor to remove, and one that is enabled again makes what the row says
 * about failures void, by its TaskLife.
 *
 * A row belongs to the task of that name that was created at the row's
 * created_at. One of another task is nobody's: the view does not show it, the
 * next writer replaces it, the supervisor removes it.
 *
 * NOTES
 *	  The supervisor waits for nobody's lock, neither on the table nor on a row
 *	  (a superuser may hold either): its functions here return false instead,
 *	  and it comes back.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "guc.h"
#include "row.h"
#include "task_run.h"
#include "task_state.h"

static TimestampTz
timestamp_or_zero(const Datum *values, const bool *nulls, int attribute)
{
	return nulls[attribute - 1] ? 0 : DatumGetTimestampTz(values[attribute - 1]);
}

static void
parse_recent(Datum array, RestartFailures *recent)
{
	Datum	   *items;
	int			count;

	deconstruct_array(DatumGetArrayTypeP(array), TIMESTAMPTZOID, sizeof(TimestampTz), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE,
					  &items, NULL, &count);
	recent->count = Min(count, lengthof(recent->at_us));
	for (int i = 0; i < recent->count; i++)
		recent->at_us[i] = DatumGetTimestampTz(items[i]);
}

static Datum
recent_datum(const RestartFailures *recent)
{
	Datum		items[lengthof(recent->at_us)];

	for (int i = 0; i < recent->count; i++)
		items[i] = TimestampTzGetDatum(recent->at_us[i]);
	return PointerGetDatum(construct_array(items, recent->count, TIMESTAMPTZOID, sizeof(TimestampTz), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/* What the workers need of a row; palloc'd. */
void
task_state_parse(Relation rel, HeapTuple tuple, TaskState *state)
{
	Datum		values[STATE_COLUMNS];
	bool		nulls[STATE_COLUMNS];

	heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
	state->name = TextDatumGetCString(values[ATT_STATE_NAME - 1]);
	state->life.created_at = DatumGetTimestampTz(values[ATT_STATE_CREATED_AT - 1]);
	state->life.enabled_at = DatumGetTimestampTz(values[ATT_STATE_ENABLED_AT - 1]);
	state->failures = DatumGetInt32(values[ATT_STATE_CONSECUTIVE_FAILURES - 1]);
	state->token = nulls[ATT_STATE_TOKEN - 1] ? 0 : DatumGetInt64(values[ATT_STATE_TOKEN - 1]);
	state->started_at = timestamp_or_zero(values, nulls, ATT_STATE_STARTED_AT);
	state->next_run = timestamp_or_zero(values, nulls, ATT_STATE_NEXT_RUN);
	state->retry_at = timestamp_or_zero(values, nulls, ATT_STATE_RETRY_AT);
	state->open = state->started_at != 0 && nulls[ATT_STATE_FINISHED_AT - 1];
	state->ended = !nulls[ATT_STATE_FINISHED_AT - 1];
	state->succeeded = !nulls[ATT_STATE_LAST_EXIT - 1] && DatumGetInt32(values[ATT_STATE_LAST_EXIT - 1]) == 0;
	state->quarantined_at = timestamp_or_zero(values, nulls, ATT_STATE_QUARANTINED_AT);
	state->run_requests = DatumGetInt64(values[ATT_STATE_RUN_REQUESTS - 1]);
	state->recent.count = 0;
	if (!nulls[ATT_STATE_FAILED_AT - 1])
		parse_recent(values[ATT_STATE_FAILED_AT - 1], &state->recent);
}

/* A row of a task that has never run. */
static void
blank(Datum *values, bool *nulls, const char *name)
{
	memset(values, 0, sizeof(Datum) * STATE_COLUMNS);
	memset(nulls, true, sizeof(bool) * STATE_COLUMNS);
	values[ATT_STATE_NAME - 1] = CStringGetTextDatum(name);
	nulls[ATT_STATE_NAME - 1] = nulls[ATT_STATE_RUNS - 1] = nulls[ATT_STATE_FAILURES - 1] = false;
	nulls[ATT_STATE_RESTARTS - 1] = nulls[ATT_STATE_CONSECUTIVE_FAILURES - 1] = false;
	nulls[ATT_STATE_RUN_REQUESTS - 1] = false;
}

/* The run in the history that a row of whatever task names, or 0. */
static int64
run_of(Relation rel, HeapTuple tuple)
{
	bool		isnull = true;
	Datum		run = 0;

	if (tuple != NULL)
		run = heap_getattr(tuple, ATT_STATE_RUN, RelationGetDescr(rel), &isnull);
	return isnull ? 0 : DatumGetInt64(run);
}

/* What is there for this task, or a blank row. True when it was there. */
static bool
current_or_blank(Relation rel, HeapTuple old, const char *name, const TaskLife *life, Datum *values, bool *nulls)
{
	bool		own = false;

	if (old != NULL)
	{
		heap_deform_tuple(old, RelationGetDescr(rel), values, nulls);
		own = DatumGetTimestampTz(values[ATT_STATE_CREATED_AT - 1]) == life->created_at;
	}
	if (!own)
		blank(values, nulls, name);
	/* what was counted before it was enabled last is void */
	else if (DatumGetTimestampTz(values[ATT_STATE_ENABLED_AT - 1]) != life->enabled_at)
		nulls[ATT_STATE_FAILED_AT - 1] = nulls[ATT_STATE_QUARANTINED_AT - 1] = true;
	values[ATT_STATE_CREATED_AT - 1] = TimestampTzGetDatum(life->created_at);
	values[ATT_STATE_ENABLED_AT - 1] = TimestampTzGetDatum(life->enabled_at);
	nulls[ATT_STATE_CREATED_AT - 1] = nulls[ATT_STATE_ENABLED_AT - 1] = false;
	return own;
}

/* Writes a whole row, in the place of `old` if there is one. */
static void
put(Relation rel, HeapTuple old, Datum *values, bool *nulls)
{
	bool		replace[STATE_COLUMNS];

	memset(replace, true, sizeof(replace));
	if (old != NULL)
		row_update(rel, old, values, nulls, replace);
	else
		row_insert(rel, values, nulls);
}

/* The row, locked, or NULL where there is none. False when somebody else has it. */
static bool
try_lock(Relation rel, const Extension *extension, const char *name, HeapTuple *row)
{
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		*row = row_find(rel, extension->task_state_pkey, name);
		if (*row == NULL)
			return true;
		switch (row_try_lock(rel, *row))
		{
			case ROW_LOCKED:
				return true;
			case ROW_BUSY:
				return false;
			case ROW_CHANGED:
				break;
		}
	}
}

/* What a run was started for is done with, however it ends. */
static void
use_up(const RunnerSlot *slot, Datum *values, bool *nulls)
{
	values[ATT_STATE_NEXT_RUN - 1] = TimestampTzGetDatum(slot->next_run);
	nulls[ATT_STATE_NEXT_RUN - 1] = slot->next_run == 0;
	values[ATT_STATE_RUN_REQUESTS - 1] = Int64GetDatum(Max(DatumGetInt64(values[ATT_STATE_RUN_REQUESTS - 1]), slot->requests));
}

/*
 * A runner's: its run begins. The only writer that waits: it keeps nobody but
 * itself. Returns the number of the run in the history, 0 where none is kept.
 */
int64
task_state_start(const Extension *extension, const TaskRow *row, const RunnerSlot *slot, int64 token)
{
	Relation	rel = table_open(extension->task_state, RowExclusiveLock);
	Datum		values[STATE_COLUMNS];
	bool		nulls[STATE_COLUMNS];
	HeapTuple	old;
	TimestampTz started_at = GetCurrentTimestamp();
	int64		run;

	do
	{
		CHECK_FOR_INTERRUPTS();
		old = row_find(rel, extension->task_state_pkey, row->name);
	} while (old != NULL && !row_lock(rel, old));

	run = task_run_start(extension, row->name, token, started_at, run_of(rel, old));
	(void) current_or_blank(rel, old, row->name, &row->life, values, nulls);
	values[ATT_STATE_NODE - 1] = CStringGetTextDatum(guc_effective_node_name());
	values[ATT_STATE_PID - 1] = Int32GetDatum(MyProcPid);
	values[ATT_STATE_TOKEN - 1] = Int64GetDatum(token);
	values[ATT_STATE_STARTED_AT - 1] = TimestampTzGetDatum(started_at);
	nulls[ATT_STATE_NODE - 1] = nulls[ATT_STATE_PID - 1] = false;
	nulls[ATT_STATE_TOKEN - 1] = nulls[ATT_STATE_STARTED_AT - 1] = false;
	nulls[ATT_STATE_FINISHED_AT - 1] = true;
	nulls[ATT_STATE_RETRY_AT - 1] = true;
	use_up(slot, values, nulls);
	values[ATT_STATE_RUN - 1] = Int64GetDatum(run);
	nulls[ATT_STATE_RUN - 1] = run == 0;
	put(rel, old, values, nulls);
	table_close(rel, NoLock);
	return run;
}

/* How the run of a slot ended, into the columns of its row. */
static void
fill_in_ending(const RunnerSlot *slot, const TaskEnding *ending, Datum *values, bool *nulls)
{
	TimestampTz ended_at = clock_to_timestamp(slot->ended_us);

	values[ATT_STATE_FAILURES - 1] = Int64GetDatum(DatumGetInt64(values[ATT_STATE_FAILURES - 1]) + (ending->failed ? 1 : 0));
	values[ATT_STATE_RESTARTS - 1] = Int64GetDatum(DatumGetInt64(values[ATT_STATE_RESTARTS - 1]) + (ending->restarts ? 1 : 0));
	values[ATT_STATE_CONSECUTIVE_FAILURES - 1] = Int32GetDatum(ending->failures);
	values[ATT_STATE_RETRY_AT - 1] = TimestampTzGetDatum(ending->retry_at);
	nulls[ATT_STATE_RETRY_AT - 1] = ending->retry_at == 0;
	if (ending->recent != NULL)
	{
		values[ATT_STATE_FAILED_AT - 1] = recent_datum(ending->recent);
		nulls[ATT_STATE_FAILED_AT - 1] = false;
	}
	if (ending->quarantined)
	{
		values[ATT_STATE_QUARANTINED_AT - 1] = TimestampTzGetDatum(ended_at);
		nulls[ATT_STATE_QUARANTINED_AT - 1] = false;
	}
	if (ending->failed)
	{
		values[ATT_STATE_LAST_ERROR - 1] = CStringGetTextDatum(slot->message[0] ? slot->message : "ended without a message");
		nulls[ATT_STATE_LAST_ERROR - 1] = false;
		values[ATT_STATE_LAST_SQLSTATE - 1] = CStringGetTextDatum(slot->sqlstate);
		nulls[ATT_STATE_LAST_SQLSTATE - 1] = slot->sqlstate[0] == '\0';
	}

	if (slot->token == 0 && !ending->failed)
		return;
	values[ATT_STATE_LAST_EXIT - 1] = Int32GetDatum(slot->outcome == RUN_SUCCEEDED ? 0 : 1);
	nulls[ATT_STATE_LAST_EXIT - 1] = false;
	/* of one that never had the lease no more, so that the rest still tells of the latest that had it, if there was any */
	if (slot->token == 0)
		use_up(slot, values, nulls);
	if (slot->token != 0 || nulls[ATT_STATE_STARTED_AT - 1])
	{
		values[ATT_STATE_FINISHED_AT - 1] = TimestampTzGetDatum(ended_at);
		nulls[ATT_STATE_FINISHED_AT - 1] = false;
	}
	if (slot->token == 0)
		return;
	values[ATT_STATE_RUNS - 1] = Int64GetDatum(DatumGetInt64(values[ATT_STATE_RUNS - 1]) + 1);
	values[ATT_STATE_LAST_DURATION - 1] = IntervalPGetDatum(palloc0(sizeof(Interval)));
	DatumGetIntervalP(values[ATT_STATE_LAST_DURATION - 1])->time = Max(slot->ended_us - slot->started_us, 0);
	nulls[ATT_STATE_LAST_DURATION - 1] = false;
	if (slot->outcome == RUN_SUCCEEDED)
	{
		values[ATT_STATE_LAST_SUCCESS - 1] = TimestampTzGetDatum(ended_at);
		nulls[ATT_STATE_LAST_SUCCESS - 1] = false;
	}
}

/* How a run ended, in one of the history's words. */
const char *
task_state_outcome(const RunnerSlot *slot, const TaskEnding *ending)
{
	if (slot->outcome == RUN_SUCCEEDED)
		return RUN_STATE_SUCCEEDED;
	return ending->failed ? RUN_STATE_FAILED : RUN_STATE_STOPPED;
}

/* The supervisor's tables, opened without waiting; `state` is NULL where they are gone */
typedef struct Tables
{
	const Extension *extension;
	Relation	state;
	TaskRuns	runs;
} Tables;

/* False: somebody has locked one of them. */
static bool
open_tables(const Extension *extension, Tables *tables)
{
	tables->extension = extension;
	if (!row_try_open(extension->task_state, RowExclusiveLock, &tables->state))
		return false;
	if (task_run_try_open(extension, &tables->runs))
		return true;
	if (tables->state != NULL)
		table_close(tables->state, NoLock);
	return false;
}

static void
close_tables(Tables *tables)
{
	task_run_close(&tables->runs);
	if (tables->state != NULL)
		table_close(tables->state, NoLock);
}

static bool
write_ending(const Tables *tables, const RunnerSlot *slot, const TaskEnding *ending)
{
	HeapTuple	old;
	Datum		values[STATE_COLUMNS];
	bool		nulls[STATE_COLUMNS];
	bool		own;

	if (!try_lock(tables->state, tables->extension, slot->name, &old) ||
		!task_run_end(&tables->runs, slot, task_state_outcome(slot, ending)))
		return false;
	own = current_or_blank(tables->state, old, slot->name, &slot->life, values, nulls);
	/* a run that had the lease had written its row: now it is gone, the task was dropped */
	if (!own && slot->token != 0)
		return true;
	/* what an earlier task of the name left */
	if (!own && !task_run_interrupt(&tables->runs, run_of(tables->state, old)))
		return false;
	if (slot->token == 0 && ending->failed)
		task_run_note_unstarted(tables->extension, &tables->runs, slot);
	fill_in_ending(slot, ending, values, nulls);
	put(tables->state, old, values, nulls);
	return true;
}

/* The supervisor's: the run of this slot has ended. False: somebody else has a lock there, try again. */
bool
task_state_end(const Extension *extension, const RunnerSlot *slot, const TaskEnding *ending)
{
	Tables		tables;
	bool		done;

	if (!open_tables(extension, &tables))
		return false;
	done = tables.state == NULL || write_ending(&tables, slot, ending);
	close_tables(&tables);

	/* not flushed: the next run's start or the WAL writer does it; lost in a crash, the run was interrupted */
	(void) set_config_option("synchronous_commit", "off", PGC_SUSET, PGC_S_OVERRIDE, GUC_ACTION_LOCAL, true, ERROR, false);
	return done;
}

static bool
write_interruption(const Tables *tables, const TaskState *state)
{
	HeapTuple	old;
	Datum		values[STATE_COLUMNS];
	bool		nulls[STATE_COLUMNS];

	if (!try_lock(tables->state, tables->extension, state->name, &old) ||
		!task_run_interrupt(&tables->runs, run_of(tables->state, old)))
		return false;
	if (old == NULL)
		return true;
	heap_deform_tuple(old, RelationGetDescr(tables->state), values, nulls);
	if (nulls[ATT_STATE_FINISHED_AT - 1])
	{
		values[ATT_STATE_FINISHED_AT - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
		values[ATT_STATE_RUNS - 1] = Int64GetDatum(DatumGetInt64(values[ATT_STATE_RUNS - 1]) + 1);
		values[ATT_STATE_RESTARTS - 1] = Int64GetDatum(DatumGetInt64(values[ATT_STATE_RESTARTS - 1]) + 1);
		values[ATT_STATE_LAST_ERROR - 1] = CStringGetTextDatum("interrupted");
		nulls[ATT_STATE_FINISHED_AT - 1] = nulls[ATT_STATE_LAST_ERROR - 1] = false;
		nulls[ATT_STATE_LAST_SQLSTATE - 1] = nulls[ATT_STATE_LAST_EXIT - 1] = true;
		put(tables->state, old, values, nulls);
	}
	return true;
}

static bool
write_removal(const Tables *tables, const TaskState *state)
{
	HeapTuple	old;
	bool		isnull;

	if (!try_lock(tables->state, tables->extension, state->name, &old))
		return false;
	if (old == NULL || state->life.created_at !=
		DatumGetTimestampTz(heap_getattr(old, ATT_STATE_CREATED_AT, RelationGetDescr(tables->state), &isnull)))
		return true;
	if (!task_run_interrupt(&tables->runs, run_of(tables->state, old)))
		return false;
	(void) row_delete(tables->state, old);
	return true;
}

typedef bool (*Write) (const Tables *tables, const TaskState *state);

/* Opens the tables and writes. False: somebody else has a lock there. */
static bool
try_write(const Extension *extension, const TaskState *state, Write write)
{
	Tables		tables;
	bool		done;

	if (!open_tables(extension, &tables))
		return false;
	done = tables.state == NULL || write(&tables, state);
	close_tables(&tables);
	return done;
}

/* The supervisor's: closes a run that nobody runs any more. False: try again. */
bool
task_state_interrupt(const Extension *extension, const TaskState *state)
{
	return try_write(extension, state, write_interruption);
}

/*
 * The supervisor's: removes the row of a task that was dropped, and closes its
 * run in the history if that is open: nobody runs it any more. False: try again.
 */
bool
task_state_remove(const Extension *extension, const TaskState *state)
{
	return try_write(extension, state, write_removal);
}
