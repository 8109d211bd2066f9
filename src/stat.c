/*-------------------------------------------------------------------------
 *
 * stat.c
 *	  What was counted: cumulative counters of a database, in shared memory.
 *
 * One entry for each database and instance of the extension. A process attaches
 * to the one of its database once, before it counts the first time; from then
 * on to count is one atomic addition, which takes no lock and cannot fail, so
 * that a commit callback may do it.
 *
 *		DROP EXTENSION, CREATE EXTENSION	another instance has another entry; a process moves to it at its next
 *											call, and holds the old one in place until then
 *		stat_reset()						sets to zero what is there; the entry stays
 *		DROP DATABASE						nobody is attached any more: the launcher removes it
 *		shared memory is full				nothing is counted, and nobody fails for it
 *		a crash, a restart					begins at zero
 *
 * NOTES
 *	  An entry is used without a lock by who is attached to it, and is removed
 *	  only while nobody is: `users` counts them. It grows under the partition's
 *	  lock, shared; who removes has it exclusively.
 *
 *	  What a reader sees is not one moment's: each number is right by itself.
 *
 * The idea: PostgreSQL's cumulative statistics, without their delay.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "compat.h"
#include "extension.h"
#include "plan_entry.h"
#include "result.h"
#include "shmem.h"
#include "stat.h"
#include "stat_task.h"

/* A process that found no room for its database's entry looks again after that time. */
#define ATTACH_AGAIN_US US_PER_S

typedef struct StatKey
{
	Oid			database;
	Oid			instance;		/* pg_extension.oid */
} StatKey;

typedef struct StatTime
{
	pg_atomic_uint64 count;
	pg_atomic_uint64 total_us;
	pg_atomic_uint64 max_us;
} StatTime;

typedef struct StatDatabase
{
	StatKey		key;
	pg_atomic_uint32 users;		/* processes that are attached */
	bool		over;			/* its extension is gone, and only its users keep it; under the partition's lock */
	pg_atomic_uint64 since;		/* TimestampTz: when all below was zero */
	pg_atomic_uint64 counters[STAT_COUNTERS];
	StatTime	times[STAT_TIMERS];
} StatDatabase;

/* What this process is attached to: NULL if to nothing, for want of room if `wanted` is an instance. */
static StatDatabase *mine = NULL;
static Oid	wanted = InvalidOid;
static int64 tried_us = 0;
static bool exit_registered = false;

/* How shmem.c lays out the table. */
const dshash_parameters *
stat_params(void)
{
	static const dshash_parameters params = {
		.key_size = sizeof(StatKey),
		.entry_size = sizeof(StatDatabase),
		.compare_function = dshash_memcmp,
		.hash_function = dshash_memhash,
		COMPAT_DSHASH_COPY
	};

	return &params;
}

/* Never raises. */
static void
detach(void)
{
	if (mine != NULL)
		(void) pg_atomic_fetch_sub_u32(&mine->users, 1);
	mine = NULL;
	wanted = InvalidOid;
}

static void
detach_at_exit(int code, Datum arg)
{
	detach();
}

static void
init(StatDatabase *stat)
{
	pg_atomic_init_u32(&stat->users, 0);
	stat->over = false;
	pg_atomic_init_u64(&stat->since, (uint64) GetCurrentTimestamp());
	for (int i = 0; i < STAT_COUNTERS; i++)
		pg_atomic_init_u64(&stat->counters[i], 0);
	for (int i = 0; i < STAT_TIMERS; i++)
	{
		pg_atomic_init_u64(&stat->times[i].count, 0);
		pg_atomic_init_u64(&stat->times[i].total_us, 0);
		pg_atomic_init_u64(&stat->times[i].max_us, 0);
	}
}

/* The entry of this database and an instance, made if there is none, and one more user; NULL: there is no room for it. */
static StatDatabase *
use_entry(Oid instance)
{
	dshash_table *table = shmem_table(SHARED_STATS);
	StatKey		key = {.database = MyDatabaseId,.instance = instance};
	StatDatabase *stat = dshash_find(table, &key, false);
	bool		found;

	if (stat == NULL && !shmem_has_room(STAT_ROOM))
		return NULL;
	if (stat == NULL)
	{
		stat = dshash_find_or_insert(table, &key, &found);
		if (!found)
		{
			init(stat);
			shmem_account(sizeof(StatDatabase));
		}
	}
	(void) pg_atomic_fetch_add_u32(&stat->users, 1);
	dshash_release_lock(table, stat);
	return stat;
}

/*
 * From now on this process counts for this instance of the extension. Called
 * before anything is counted, by everything that counts, outside of callbacks:
 * nearly always it has nothing to do. Takes a partition of the table of
 * counters, alone. Raises only what attaching to shared memory does.
 */
void
stat_attach(Oid instance)
{
	if (wanted == instance && (mine != NULL || clock_now_us() - tried_us < ATTACH_AGAIN_US))
		return;
	detach();
	if (!exit_registered)
		before_shmem_exit(detach_at_exit, (Datum) 0);
	exit_registered = true;
	tried_us = clock_now_us();
	mine = use_entry(instance);
	wanted = instance;
}

/* Counts one. Never raises; nothing if this process is not attached. */
void
stat_count(StatCounter which)
{
	if (mine != NULL)
		(void) pg_atomic_fetch_add_u64(&mine->counters[which], 1);
}

/* Counts one, and how long it took. As stat_count(). */
void
stat_time(StatTimer which, int64 us)
{
	StatTime   *time;
	uint64		took_us = (uint64) Max(us, 0);
	uint64		max_us;

	if (mine == NULL)
		return;
	time = &mine->times[which];
	(void) pg_atomic_fetch_add_u64(&time->count, 1);
	(void) pg_atomic_fetch_add_u64(&time->total_us, took_us);
	max_us = pg_atomic_read_u64(&time->max_us);
	while (took_us > max_us && !pg_atomic_compare_exchange_u64(&time->max_us, &max_us, took_us))
		;						/* max_us is what it is by now */
}

/*
 * Removes what was counted for a database, tasks included, but for this
 * instance of the extension (InvalidOid: for all). What somebody is attached to
 * stays, and is not shown. Called by workers.
 */
void
stat_purge(Oid database, Oid keep_instance)
{
	dshash_seq_status scan;
	StatDatabase *stat;

	if (database == MyDatabaseId && wanted != keep_instance)
		detach();
	dshash_seq_init(&scan, shmem_table(SHARED_STATS), true);
	while ((stat = dshash_seq_next(&scan)) != NULL)
	{
		if (stat->key.database != database || stat->key.instance == keep_instance)
			continue;
		stat->over = true;
		if (pg_atomic_read_u32(&stat->users) > 0)
			continue;
		dshash_delete_current(&scan);
		shmem_account(-(int64) sizeof(StatDatabase));
	}
	dshash_seq_term(&scan);
	stat_task_purge(database, keep_instance);
}

static Datum
counted(StatDatabase *stat, StatCounter which)
{
	return Int64GetDatum((int64) (stat == NULL ? 0 : pg_atomic_read_u64(&stat->counters[which])));
}

/* Three columns: how often, milliseconds in all, the longest. */
static void
put_time(StatDatabase *stat, StatTimer which, Datum *values)
{
	StatTime   *time = stat == NULL ? NULL : &stat->times[which];

	values[0] = Int64GetDatum((int64) (time == NULL ? 0 : pg_atomic_read_u64(&time->count)));
	values[1] = STAT_MS_DATUM(time == NULL ? 0 : pg_atomic_read_u64(&time->total_us));
	values[2] = STAT_MS_DATUM(time == NULL ? 0 : pg_atomic_read_u64(&time->max_us));
}

/* One row; `stat` NULL: of this database, which has no entry. */
static void
put(ReturnSetInfo *result, StatDatabase *stat)
{
	enum
	{
		COL_DATID, COL_ACQUIRED, COL_REJECTED, COL_WAITS, COL_WAIT_TOTAL, COL_WAIT_MAX, COL_RENEWED, COL_RELEASED, COL_LAPSED,
		COL_REVOKED, COL_FENCED, COL_FENCE_REJECTED, COL_TOKENS, COL_EVENTS, COL_RUNS, COL_FAILURES, COL_TICKS, COL_LOADS,
		COL_LOAD_TOTAL, COL_LOAD_MAX, COL_SINCE, COLUMNS
	};
	Datum		values[COLUMNS];
	bool		nulls[COLUMNS] = {false};

	values[COL_DATID] = ObjectIdGetDatum(stat == NULL ? MyDatabaseId : stat->key.database);
	values[COL_ACQUIRED] = counted(stat, STAT_LEASES_ACQUIRED);
	values[COL_REJECTED] = counted(stat, STAT_LEASES_REJECTED);
	put_time(stat, STAT_LEASE_WAITS, &values[COL_WAITS]);
	values[COL_RENEWED] = counted(stat, STAT_LEASES_RENEWED);
	values[COL_RELEASED] = counted(stat, STAT_LEASES_RELEASED);
	values[COL_LAPSED] = counted(stat, STAT_LEASES_LAPSED);
	values[COL_REVOKED] = counted(stat, STAT_LEASES_REVOKED);
	values[COL_FENCED] = counted(stat, STAT_FENCES);
	values[COL_FENCE_REJECTED] = counted(stat, STAT_FENCES_REJECTED);
	values[COL_TOKENS] = counted(stat, STAT_TOKENS);
	values[COL_EVENTS] = counted(stat, STAT_EVENTS);
	values[COL_RUNS] = counted(stat, STAT_TASK_RUNS);
	values[COL_FAILURES] = counted(stat, STAT_TASK_FAILURES);
	values[COL_TICKS] = counted(stat, STAT_TICKS);
	put_time(stat, STAT_LOADS, &values[COL_LOADS]);
	values[COL_SINCE] = TimestampTzGetDatum(stat == NULL ? 0 : (TimestampTz) pg_atomic_read_u64(&stat->since));
	nulls[COL_SINCE] = stat == NULL;
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * revenant._stat(others)
 *
 * What was counted for this database, and with `others` for every other one
 * that this server has counted something for. Works on a standby, too.
 */
SQL_FUNCTION(revenant_stat)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	bool		others = !PG_ARGISNULL(0) && PG_GETARG_BOOL(0);
	dshash_seq_status scan;
	StatDatabase *stat;

	stat_attach(extension_get()->extension);
	InitMaterializedSRF(fcinfo, 0);
	put(result, mine);
	if (!others)
		return (Datum) 0;
	dshash_seq_init(&scan, shmem_table(SHARED_STATS), false);
	while ((stat = dshash_seq_next(&scan)) != NULL)
	{
		if (stat->key.database != MyDatabaseId && !stat->over)
			put(result, stat);
	}
	dshash_seq_term(&scan);
	return (Datum) 0;
}

/* revenant._stat_entities(): one row, what was counted of the entities of this database. */
SQL_FUNCTION(revenant_stat_entities)
{
	static const StatCounter counters[] = {
		STAT_CALLS, STAT_ENTITIES_KEPT, STAT_ENTITIES_WRITTEN, STAT_ENTITIES_CREATED, STAT_ENTITIES_DELETED, STAT_ENTITIES_UPGRADED,
		STAT_ENTITIES_LOADED, STAT_ENTITIES_UNLOADED, STAT_ENTITY_CONFLICTS, STAT_ENTITIES_FLUSHED, STAT_FLUSH_FAILURES,
		STAT_MESSAGES_SENT, STAT_MESSAGES_APPLIED, STAT_MESSAGE_FAILURES, STAT_MESSAGES_SET_ASIDE
	};
	Datum		values[lengthof(counters) + 4];
	bool		nulls[lengthof(counters) + 4] = {false};
	int			column = 0;

	stat_attach(extension_get()->extension);
	for (; column < (int) lengthof(counters); column++)
		values[column] = counted(mine, counters[column]);
	put_time(mine, STAT_FLUSHES, &values[column]);
	column += 3;
	values[column] = TimestampTzGetDatum(mine == NULL ? 0 : (TimestampTz) pg_atomic_read_u64(&mine->since));
	nulls[column] = mine == NULL;
	return result_row(fcinfo, values, nulls);
}

/*
 * revenant.stat_reset()
 *
 * Sets all counters of this database to zero, on this server, at once: a
 * rollback does not bring them back. What others count meanwhile is counted
 * before or after. Works on a standby, too.
 */
SQL_FUNCTION(revenant_stat_reset)
{
	Oid			instance = extension_get()->extension;

	stat_attach(instance);
	if (mine != NULL)
	{
		for (int i = 0; i < STAT_COUNTERS; i++)
			pg_atomic_write_u64(&mine->counters[i], 0);
		for (int i = 0; i < STAT_TIMERS; i++)
		{
			pg_atomic_write_u64(&mine->times[i].count, 0);
			pg_atomic_write_u64(&mine->times[i].total_us, 0);
			pg_atomic_write_u64(&mine->times[i].max_us, 0);
		}
		pg_atomic_write_u64(&mine->since, (uint64) GetCurrentTimestamp());
	}
	stat_task_reset(MyDatabaseId, instance);
	plan_reset_counters(instance);
	PG_RETURN_VOID();
}
