/*-------------------------------------------------------------------------
 *
 * stat_task.c
 *	  What was counted of each task.
 *
 * The supervisor counts, when a run has ended; anybody may set to zero. An entry
 * is made at the first count and is the task's that was created at its
 * created_at: one that is dropped and made again begins at zero. Without an
 * entry, as for want of room, everything is zero.
 *
 * NOTES
 *	  A run is no such hot path as a lease is: an entry is read and written with
 *	  its partition locked, and nothing else is taken meanwhile.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "extension.h"
#include "result.h"
#include "shmem.h"
#include "stat.h"
#include "stat_task.h"
#include "task_status.h"

typedef struct StatTask
{
	TaskKey		key;
	TimestampTz created_at;		/* whose counters they are */

	/* all below is what stat_task_reset() sets to zero */
	int64		runs;			/* that had the lease */
	int64		succeeded;
	int64		failed;
	int64		stopped;
	int64		interrupted;
	int64		restarts;
	int64		run_us;
	int64		run_max_us;
	int64		delay_us;
	int64		delay_max_us;
	int64		slot_waits;
	int64		quarantined;
} StatTask;

#define FIRST_COUNTER offsetof(StatTask, runs)

/* How shmem.c lays out the table. */
const dshash_parameters *
stat_task_params(void)
{
	static const dshash_parameters params = {
		.key_size = sizeof(TaskKey),
		.entry_size = sizeof(StatTask),
		.compare_function = dshash_memcmp,
		.hash_function = dshash_memhash,
		COMPAT_DSHASH_COPY
	};

	return &params;
}

static void
set_to_zero(StatTask *stat)
{
	memset((char *) stat + FIRST_COUNTER, 0, sizeof(StatTask) - FIRST_COUNTER);
}

/* The entry, made if there is none; NULL when there is no room for one. The caller releases its lock. */
static StatTask *
enter(const TaskKey *key, const TaskLife *life)
{
	dshash_table *table = shmem_table(SHARED_TASK_STATS);
	StatTask   *stat = dshash_find(table, key, true);
	bool		found = true;

	if (stat == NULL && !shmem_has_room(STAT_ROOM))
		return NULL;
	if (stat == NULL)
		stat = dshash_find_or_insert(table, key, &found);
	if (!found)
		shmem_account(sizeof(StatTask));
	if (!found || stat->created_at != life->created_at)
		set_to_zero(stat);
	stat->created_at = life->created_at;
	return stat;
}

static void
leave(StatTask *stat)
{
	dshash_release_lock(shmem_table(SHARED_TASK_STATS), stat);
}

/* A run of this task ended, and this is what was decided about it. */
void
stat_task_ended(const TaskKey *key, const TaskLife *life, const RunnerSlot *slot, const TaskEnding *ending)
{
	StatTask   *stat;

	/* of an earlier task of that name */
	if (slot->life.created_at != life->created_at)
		return;
	if (slot->token != 0)
		stat_count(STAT_TASK_RUNS);
	if (ending->failed)
		stat_count(STAT_TASK_FAILURES);
	stat = enter(key, life);
	if (stat == NULL)
		return;
	if (slot->outcome == RUN_SUCCEEDED)
		stat->succeeded++;
	else if (ending->failed)
		stat->failed++;
	else
		stat->stopped++;
	stat->restarts += ending->restarts ? 1 : 0;
	stat->quarantined += ending->quarantined ? 1 : 0;
	if (slot->token != 0)
	{
		int64		run_us = Max(slot->ended_us - slot->started_us, 0);
		int64		delay_us = Max(slot->started_us - slot->due_us, 0);

		stat->runs++;
		stat->run_us += run_us;
		stat->run_max_us = Max(stat->run_max_us, run_us);
		stat->delay_us += delay_us;
		stat->delay_max_us = Max(stat->delay_max_us, delay_us);
	}
	leave(stat);
}

/* A run of this task was found that nobody runs any more. */
void
stat_task_interrupted(const TaskKey *key, const TaskLife *life)
{
	StatTask   *stat;

	stat_count(STAT_TASK_RUNS);
	stat = enter(key, life);
	if (stat == NULL)
		return;
	stat->runs++;
	stat->interrupted++;
	stat->restarts++;
	leave(stat);
}

/* The task is due, and no runner is free. Once for each run. */
void
stat_task_waits_for_slot(const TaskKey *key, const TaskLife *life)
{
	StatTask   *stat = enter(key, life);

	if (stat == NULL)
		return;
	stat->slot_waits++;
	leave(stat);
}

/* Forgets a task that is gone. */
void
stat_task_forget(const TaskKey *key)
{
	if (dshash_delete_key(shmem_table(SHARED_TASK_STATS), key))
		shmem_account(-(int64) sizeof(StatTask));
}

/* Forgets the tasks of a database that are not of this instance, or (with `is_known`) that the caller does not know. */
static void
forget_all(Oid database, Oid keep_instance, bool (*is_known) (const TaskKey *key))
{
	dshash_seq_status scan;
	StatTask   *stat;

	dshash_seq_init(&scan, shmem_table(SHARED_TASK_STATS), true);
	while ((stat = dshash_seq_next(&scan)) != NULL)
	{
		if (stat->key.database != database)
			continue;
		if (is_known != NULL ? is_known(&stat->key) : stat->key.instance == keep_instance)
			continue;
		dshash_delete_current(&scan);
		shmem_account(-(int64) sizeof(StatTask));
	}
	dshash_seq_term(&scan);
}

/* Forgets those that the caller does not know. */
void
stat_task_prune(Oid database, bool (*is_known) (const TaskKey *key))
{
	forget_all(database, InvalidOid, is_known);
}

/* Forgets those of other instances of the extension than this one (InvalidOid: all). */
void
stat_task_purge(Oid database, Oid keep_instance)
{
	forget_all(database, keep_instance, NULL);
}

/* Sets the counters of all tasks to zero. */
void
stat_task_reset(Oid database, Oid instance)
{
	dshash_seq_status scan;
	StatTask   *stat;

	dshash_seq_init(&scan, shmem_table(SHARED_TASK_STATS), true);
	while ((stat = dshash_seq_next(&scan)) != NULL)
	{
		if (stat->key.database == database && stat->key.instance == instance)
			set_to_zero(stat);
	}
	dshash_seq_term(&scan);
}

/* What was counted of the task that has this name and was created then; all zero: nothing. */
static StatTask
copy_entry(const char *name, TimestampTz created_at)
{
	dshash_table *table = shmem_table(SHARED_TASK_STATS);
	StatTask	copy = {0};
	StatTask   *stat;
	TaskKey		key;

	task_key(&key, MyDatabaseId, extension_get()->extension, name);
	stat = dshash_find(table, &key, false);
	if (stat == NULL)
		return copy;
	if (stat->created_at == created_at)
		copy = *stat;
	dshash_release_lock(table, stat);
	return copy;
}

/* revenant._stat_task(name, created_at): one row of revenant.stat_tasks. Works on a standby, too. */
SQL_FUNCTION(revenant_stat_task)
{
	enum
	{
		COL_RUNS, COL_SUCCEEDED, COL_FAILED, COL_STOPPED, COL_INTERRUPTED, COL_RESTARTS, COL_RUN_TOTAL, COL_RUN_MAX,
		COL_DELAY_TOTAL, COL_DELAY_MAX, COL_SLOT_WAITS, COL_QUARANTINED, COLUMNS
	};
	Datum		values[COLUMNS];
	bool		nulls[COLUMNS] = {false};
	StatTask	stat = {0};

	if (!PG_ARGISNULL(0) && !PG_ARGISNULL(1))
		stat = copy_entry(text_to_cstring(PG_GETARG_TEXT_PP(0)), PG_GETARG_TIMESTAMPTZ(1));
	values[COL_RUNS] = Int64GetDatum(stat.runs);
	values[COL_SUCCEEDED] = Int64GetDatum(stat.succeeded);
	values[COL_FAILED] = Int64GetDatum(stat.failed);
	values[COL_STOPPED] = Int64GetDatum(stat.stopped);
	values[COL_INTERRUPTED] = Int64GetDatum(stat.interrupted);
	values[COL_RESTARTS] = Int64GetDatum(stat.restarts);
	values[COL_RUN_TOTAL] = STAT_MS_DATUM(stat.run_us);
	values[COL_RUN_MAX] = STAT_MS_DATUM(stat.run_max_us);
	values[COL_DELAY_TOTAL] = STAT_MS_DATUM(stat.delay_us);
	values[COL_DELAY_MAX] = STAT_MS_DATUM(stat.delay_max_us);
	values[COL_SLOT_WAITS] = Int64GetDatum(stat.slot_waits);
	values[COL_QUARANTINED] = Int64GetDatum(stat.quarantined);
	return result_row(fcinfo, values, nulls);
}
