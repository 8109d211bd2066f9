/*-------------------------------------------------------------------------
 *
 * task_run.c
 *	  The rows of revenant.task_run: the history of runs.
 *
 * A runner writes its row in the transaction that takes the lease; the
 * supervisor closes it together with revenant.task_state. Each row that is open is
 * named by the row there of its task (column run), and whoever replaces or
 * removes that one closes this one: so nothing is "running" for ever, and
 * nobody has to look for it.
 *
 * NOTES
 *	  Runs are numbered in the order in which they begin, so what is too old is
 *	  at the beginning of the primary key.
 *
 *	  The supervisor waits for nobody here, as in task_state.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "commands/sequence.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "guc.h"
#include "row.h"
#include "task_run.h"

static void
set(Datum *values, bool *nulls, int attribute, Datum value)
{
	values[attribute - 1] = value;
	nulls[attribute - 1] = false;
}

/* The columns that every new row has. */
static void
begin(Datum *values, bool *nulls, const Extension *extension, const char *name, int pid, TimestampTz started_at,
	  const char *outcome, int64 *run)
{
	memset(nulls, true, sizeof(bool) * RUN_COLUMNS);
	*run = nextval_internal(extension->task_run_number, false);
	set(values, nulls, ATT_RUN_RUN, Int64GetDatum(*run));
	set(values, nulls, ATT_RUN_NAME, CStringGetTextDatum(name));
	set(values, nulls, ATT_RUN_NODE, CStringGetTextDatum(guc_effective_node_name()));
	if (pid != 0)
		set(values, nulls, ATT_RUN_PID, Int32GetDatum(pid));
	set(values, nulls, ATT_RUN_STARTED_AT, TimestampTzGetDatum(started_at));
	set(values, nulls, ATT_RUN_OUTCOME, CStringGetTextDatum(outcome));
}

static void
set_ending(Datum *values, bool *nulls, TimestampTz finished_at, const char *outcome, const char *sqlstate, const char *message)
{
	set(values, nulls, ATT_RUN_FINISHED_AT, TimestampTzGetDatum(finished_at));
	set(values, nulls, ATT_RUN_OUTCOME, CStringGetTextDatum(outcome));
	if (sqlstate[0] != '\0')
		set(values, nulls, ATT_RUN_SQLSTATE, CStringGetTextDatum(sqlstate));
	if (message[0] != '\0')
		set(values, nulls, ATT_RUN_MESSAGE, CStringGetTextDatum(message));
}

/* Closes a row, unless it is closed or gone. False: somebody has locked it, and the caller does not wait. */
static bool
end_row(const TaskRuns *runs, int64 run, bool wait, TimestampTz finished_at, const char *outcome, const char *sqlstate,
		const char *message)
{
	Datum		values[RUN_COLUMNS];
	bool		nulls[RUN_COLUMNS];
	bool		replace[RUN_COLUMNS];
	HeapTuple	old;

	if (run == 0 || runs->rel == NULL)
		return true;
	for (;;)
	{
		RowLock		lock;

		CHECK_FOR_INTERRUPTS();
		old = row_find_number(runs->rel, runs->pkey, run);
		if (old == NULL || !heap_attisnull(old, ATT_RUN_FINISHED_AT, RelationGetDescr(runs->rel)))
			return true;
		if (wait)
			lock = row_lock(runs->rel, old) ? ROW_LOCKED : ROW_CHANGED;
		else
			lock = row_try_lock(runs->rel, old);
		if (lock == ROW_BUSY)
			return false;
		if (lock == ROW_LOCKED)
			break;
	}
	memset(nulls, true, sizeof(nulls));
	set_ending(values, nulls, finished_at, outcome, sqlstate, message);
	for (int i = 0; i < RUN_COLUMNS; i++)
		replace[i] = !nulls[i];
	row_update(runs->rel, old, values, nulls, replace);
	return true;
}

/*
 * A runner's: its run begins, and the one before it that the task names is over.
 * Waits. Returns its number, or 0 where no history is kept.
 */
int64
task_run_start(const Extension *extension, const char *name, int64 token, TimestampTz started_at, int64 earlier)
{
	TaskRuns	runs = {.pkey = extension->task_run_pkey};
	Datum		values[RUN_COLUMNS];
	bool		nulls[RUN_COLUMNS];
	int64		run = 0;

	runs.rel = table_open(extension->task_run, RowExclusiveLock);
	(void) end_row(&runs, earlier, true, started_at, RUN_STATE_INTERRUPTED, "", "");
	if (guc_history_retention_s != 0)
	{
		begin(values, nulls, extension, name, MyProcPid, started_at, RUN_STATE_RUNNING, &run);
		set(values, nulls, ATT_RUN_TOKEN, Int64GetDatum(token));
		row_insert(runs.rel, values, nulls);
	}
	table_close(runs.rel, NoLock);
	return run;
}

/* Opens the history for a writer that does not wait. False: somebody has locked it, or its numbers, try again. */
bool
task_run_try_open(const Extension *extension, TaskRuns *runs)
{
	runs->pkey = extension->task_run_pkey;
	return ConditionalLockRelationOid(extension->task_run_number, RowExclusiveLock) &&
		row_try_open(extension->task_run, RowExclusiveLock, &runs->rel);
}

/* The lock stays to the end of the transaction. */
void
task_run_close(TaskRuns *runs)
{
	if (runs->rel != NULL)
		table_close(runs->rel, NoLock);
}

/* The supervisor's: the run of this slot has ended. False: try again. */
bool
task_run_end(const TaskRuns *runs, const RunnerSlot *slot, const char *outcome)
{
	bool		failed = strcmp(outcome, RUN_STATE_FAILED) == 0;

	return end_row(runs, slot->run, false, clock_to_timestamp(slot->ended_us), outcome,
				   slot->sqlstate, failed && slot->message[0] == '\0' ? "ended without a message" : slot->message);
}

/* The supervisor's: a run failed before it had the lease, and nobody wrote a row for it. */
void
task_run_note_unstarted(const Extension *extension, const TaskRuns *runs, const RunnerSlot *slot)
{
	Datum		values[RUN_COLUMNS];
	bool		nulls[RUN_COLUMNS];
	int64		run;

	if (guc_history_retention_s == 0 || runs->rel == NULL)
		return;
	begin(values, nulls, extension, slot->name, slot->pid, clock_to_timestamp(slot->registered_us), RUN_STATE_FAILED, &run);
	set_ending(values, nulls, clock_to_timestamp(slot->ended_us), RUN_STATE_FAILED, slot->sqlstate,
			   slot->message[0] ? slot->message : "ended without a message");
	row_insert(runs->rel, values, nulls);
}

/* The supervisor's: closes a run that nobody runs any more. False: try again. */
bool
task_run_interrupt(const TaskRuns *runs, int64 run)
{
	return end_row(runs, run, false, GetCurrentTimestamp(), RUN_STATE_INTERRUPTED, "", "");
}

/*
 * The supervisor's: removes runs that ended before a time, at most `limit` of
 * them. Returns how many it removed: `limit` says that there may be more.
 */
int
task_run_prune(const TaskRuns *runs, TimestampTz before, int limit)
{
	TimestampTz now = GetCurrentTimestamp();
	Relation	index;
	SysScanDesc scan;
	HeapTuple	tuple;
	int			removed = 0;

	if (runs->rel == NULL)
		return 0;
	index = index_open(runs->pkey, AccessShareLock);
	scan = systable_beginscan_ordered(runs->rel, index, NULL, 0, NULL);
	while (removed < limit && HeapTupleIsValid(tuple = systable_getnext_ordered(scan, ForwardScanDirection)))
	{
		Datum		values[RUN_COLUMNS];
		bool		nulls[RUN_COLUMNS];
		TimestampTz started_at;

		CHECK_FOR_INTERRUPTS();
		heap_deform_tuple(tuple, RelationGetDescr(runs->rel), values, nulls);
		started_at = DatumGetTimestampTz(values[ATT_RUN_STARTED_AT - 1]);
		/* those behind it began later still, unless the clock was ahead when this one did */
		if (started_at >= before && started_at <= now)
			break;
		if (nulls[ATT_RUN_FINISHED_AT - 1] || DatumGetTimestampTz(values[ATT_RUN_FINISHED_AT - 1]) >= before)
			continue;
		if (row_try_lock(runs->rel, tuple) == ROW_LOCKED && row_delete(runs->rel, tuple))
			removed++;
	}
	systable_endscan_ordered(scan);
	index_close(index, AccessShareLock);
	return removed;
}
