/*-------------------------------------------------------------------------
 *
 * debug.c
 *	  Named places where a test can make a process stop, and ticks that it can
 *	  count; see debug.h.
 *
 * A test makes processes stop by holding the point's lock:
 *
 *	  SELECT revenant._debug_hold('lease-before-grant');	-- in one session
 *	  …														-- another one comes there and waits
 *	  SELECT revenant._debug_let_go('lease-before-grant');
 *
 * A point in a commit callback cannot wait for a lock, since that can raise.
 * Such a quiet point polls a flag in shared memory, which
 * _debug_hold_quiet() and _debug_let_go_quiet() set and clear, and
 * _debug_quiet_waiters() says how many processes are stopped there. With
 * _debug_hold_quiet_one() only the first one that comes there is stopped.
 *
 * _debug_tick() makes the launcher and the supervisors look at everything as
 * often as they do in a day, in as little time as it takes them. What a tick
 * leaves behind is to be seen then; _debug_leak() has each leave something, so
 * that a test can show that it would notice.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#ifdef REVENANT_DEBUG

#include "access/xact.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "debug.h"
#include "extension.h"
#include "locktag.h"
#include "result.h"
#include "worker.h"

#define QUIET_POINTS 8

/* QuietPoint.held */
#define HELD_NOT 0
#define HELD_ALL 1
#define HELD_ONE 2				/* the next one that comes */
#define HELD_PASSING 3			/* it has come: all others pass */
#define TICK_POLL_US 20

typedef struct QuietPoint
{
	char		name[NAMEDATALEN];
	pg_atomic_uint32 held;
	pg_atomic_uint32 waiters;
} QuietPoint;

typedef struct DebugShared
{
	pg_atomic_uint64 ticks[TICK_OF_SUPERVISOR + 1];	/* of all processes of a kind */
	pg_atomic_uint32 leak;		/* what each tick leaves behind, in bytes */
	QuietPoint	points[QUIET_POINTS];
} DebugShared;

static DebugShared *shared = NULL;

Size
debug_shmem_size(void)
{
	return sizeof(DebugShared);
}

void
debug_shmem_init(void *place, bool found)
{
	shared = place;
	if (found)
		return;
	for (int i = 0; i < (int) lengthof(shared->ticks); i++)
		pg_atomic_init_u64(&shared->ticks[i], 0);
	pg_atomic_init_u32(&shared->leak, 0);
	for (int i = 0; i < QUIET_POINTS; i++)
	{
		pg_atomic_init_u32(&shared->points[i].held, 0);
		pg_atomic_init_u32(&shared->points[i].waiters, 0);
	}
}

static LOCKTAG
point_lock(const char *name)
{
	return locktag_make(LOCK_OTHER, MyDatabaseId,
						hash_bytes_extended((const unsigned char *) name, strlen(name), 0), LOCK_OTHER_DEBUG);
}

/* Waits while a test holds the point. */
void
debug_point(const char *name)
{
	LOCKTAG		tag = point_lock(name);
	int			timeout = LockTimeout;

	if (!IsTransactionState())
		return;
	/* a worker's own lock_timeout is not the test's: that lets go itself */
	if (MyBgworkerEntry != NULL)
		LockTimeout = 0;
	PG_TRY();
	{
		(void) LockAcquire(&tag, ShareLock, false, false);
	}
	PG_FINALLY();
	{
		LockTimeout = timeout;
	}
	PG_END_TRY();
	LockRelease(&tag, ShareLock, false);
}

static QuietPoint *
quiet_point(const char *name, bool create)
{
	for (int i = 0; i < QUIET_POINTS; i++)
	{
		QuietPoint *point = &shared->points[i];

		if (strcmp(point->name, name) == 0)
			return point;
		if (point->name[0] == '\0')
		{
			if (create)
				strlcpy(point->name, name, NAMEDATALEN);
			return create ? point : NULL;
		}
	}
	return NULL;
}

/* The same where nothing may raise. */
void
debug_point_quiet(const char *name)
{
	QuietPoint *point = quiet_point(name, false);
	uint32		held = point == NULL ? HELD_NOT : pg_atomic_read_u32(&point->held);

	if (held == HELD_NOT || held == HELD_PASSING)
		return;
	if (held == HELD_ONE && !pg_atomic_compare_exchange_u32(&point->held, &held, HELD_PASSING))
		return;
	pg_atomic_fetch_add_u32(&point->waiters, 1);
	while (pg_atomic_read_u32(&point->held) != HELD_NOT)
		pg_usleep(1000);
	pg_atomic_fetch_sub_u32(&point->waiters, 1);
}

/* A worker begins another look at everything. */
void
debug_tick(TickOf whose)
{
	uint32		leak = pg_atomic_read_u32(&shared->leak);

	if (leak > 0)
		(void) MemoryContextAllocZero(TopMemoryContext, leak);	/* freed by nobody: that is what it is for */
	pg_atomic_fetch_add_u64(&shared->ticks[whose], 1);
}

/* Whether a runner was registered and has not come yet. */
static bool
somebody_is_on_the_way(RunnerSlot *slot)
{
	for (int i = worker_runner_next(0, InvalidOid, slot); i >= 0; i = worker_runner_next(i + 1, InvalidOid, slot))
	{
		if (slot->state == RUNNER_STARTING)
			return true;
	}
	return false;
}

/* True once somebody of that kind has begun another tick. */
static bool
ticked_since(TickOf whose, uint64 before)
{
	return pg_atomic_read_u64(&shared->ticks[whose]) != before;
}

SQL_FUNCTION(revenant_debug_hold)
{
	LOCKTAG		tag = point_lock(text_to_cstring(PG_GETARG_TEXT_PP(0)));

	(void) LockAcquire(&tag, ExclusiveLock, true, false);
	PG_RETURN_VOID();
}

SQL_FUNCTION(revenant_debug_let_go)
{
	LOCKTAG		tag = point_lock(text_to_cstring(PG_GETARG_TEXT_PP(0)));

	PG_RETURN_BOOL(LockRelease(&tag, ExclusiveLock, true));
}

static void
hold_quiet(FunctionCallInfo fcinfo, uint32 held)
{
	QuietPoint *point = quiet_point(text_to_cstring(PG_GETARG_TEXT_PP(0)), true);

	if (point == NULL)
		elog(ERROR, "no room for another quiet debug point");
	pg_atomic_write_u32(&point->held, held);
}

SQL_FUNCTION(revenant_debug_hold_quiet)
{
	hold_quiet(fcinfo, HELD_ALL);
	PG_RETURN_VOID();
}

SQL_FUNCTION(revenant_debug_hold_quiet_one)
{
	hold_quiet(fcinfo, HELD_ONE);
	PG_RETURN_VOID();
}

SQL_FUNCTION(revenant_debug_let_go_quiet)
{
	QuietPoint *point = quiet_point(text_to_cstring(PG_GETARG_TEXT_PP(0)), true);

	if (point != NULL)
		pg_atomic_write_u32(&point->held, HELD_NOT);
	PG_RETURN_VOID();
}

SQL_FUNCTION(revenant_debug_quiet_waiters)
{
	QuietPoint *point = quiet_point(text_to_cstring(PG_GETARG_TEXT_PP(0)), true);

	PG_RETURN_INT32(point == NULL ? 0 : (int32) pg_atomic_read_u32(&point->waiters));
}

/*
 * _debug_tick(count, apart): so many times the clock is moved by `apart`, the
 * launcher and the supervisors are woken and told that tasks may have changed, and
 * the next time comes when the launcher and one of the supervisors have begun
 * another tick. Who is on its way comes first: it would be late by the clock.
 */
SQL_FUNCTION(revenant_debug_tick)
{
	int32		count = PG_GETARG_INT32(0);
	Interval   *apart = PG_GETARG_INTERVAL_P(1);
	RunnerSlot *slot = palloc(sizeof(RunnerSlot));

	for (int32 i = 0; i < count; i++)
	{
		uint64		launcher;
		uint64		supervisor;

		while (somebody_is_on_the_way(slot))
		{
			CHECK_FOR_INTERRUPTS();
			pg_usleep(TICK_POLL_US);
		}
		launcher = pg_atomic_read_u64(&shared->ticks[TICK_OF_LAUNCHER]);
		supervisor = pg_atomic_read_u64(&shared->ticks[TICK_OF_SUPERVISOR]);
		clock_move((int64) apart->time + apart->day * USECS_PER_DAY);
		worker_wake_all();
		while (!ticked_since(TICK_OF_LAUNCHER, launcher) || !ticked_since(TICK_OF_SUPERVISOR, supervisor))
		{
			CHECK_FOR_INTERRUPTS();
			pg_usleep(TICK_POLL_US);
		}
	}
	PG_RETURN_VOID();
}

SQL_FUNCTION(revenant_debug_leak)
{
	pg_atomic_write_u32(&shared->leak, (uint32) Max(PG_GETARG_INT32(0), 0));
	PG_RETURN_VOID();
}

/* A handler in C: the state becomes the message, and the reply is what the state was. A message that is a number is a reason to stop, too. */
SQL_FUNCTION(revenant_debug_handler)
{
	Datum		values[3] = {0};
	bool		nulls[3];

	nulls[0] = PG_ARGISNULL(1);
	values[0] = nulls[0] ? (Datum) 0 : PG_GETARG_DATUM(1);
	nulls[1] = PG_ARGISNULL(2);
	values[1] = nulls[1] ? (Datum) 0 : PG_GETARG_DATUM(2);
	nulls[2] = nulls[1] || !JB_ROOT_IS_SCALAR(PG_GETARG_JSONB_P(2));
	values[2] = nulls[2] ? (Datum) 0 : CStringGetTextDatum("a number");
	return result_row(fcinfo, values, nulls);
}

#endif							/* REVENANT_DEBUG */
