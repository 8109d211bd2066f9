/*-------------------------------------------------------------------------
 *
 * lease_wait.c
 *	  Waiting for a lease: in the lock manager's queue, then for a ttl holder.
 *
 * The queue is first come, first served, a dead waiter leaves it at once, and
 * the deadlock detector sees who waits for whom. The head of the queue may
 * have to wait further, for a ttl hold to end: that is a sleep on the entry's
 * condition variable, which the detector cannot see, so the sleeper looks for
 * itself after deadlock_timeout.
 *
 * NOTES
 *	  LockAcquire() takes no timeout. A wait with a bound is a subtransaction
 *	  and a timer on the monotonic clock that cancels it; it is only entered
 *	  when the lock is not free at once.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

#include "alarm.h"
#include "clock.h"
#include "compat.h"
#include "debug.h"
#include "lease_wait.h"
#include "locktag.h"

/* How often who sleeps for a bound hold looks whether its session is still there. */
#define BOUND_LOOK_US (20 * US_PER_MS)

/* What was waited since lease_wait_watch(); a wait that ended in an error is still under way here. */
static struct
{
	int			waits;
	int64		since_us;		/* of the one that is under way; 0: none is */
	int64		total_us;
}			watched;

static void
wait_begins(void)
{
	watched.waits++;
	watched.since_us = clock_now_us();
}

static void
wait_ends(void)
{
	watched.total_us += clock_now_us() - watched.since_us;
	watched.since_us = 0;
}

/* From here on it is noted what this process waits for locks and for the end of holds. */
void
lease_wait_watch(void)
{
	memset(&watched, 0, sizeof(watched));
}

/* Whether it has waited since, also if that ended in an error, and for how long. */
bool
lease_wait_watched(int64 *waited_us)
{
	if (watched.since_us != 0)
		wait_ends();
	*waited_us = watched.total_us;
	return watched.waits > 0;
}

/*
 * Takes or gives back a lock at transaction level as the transaction's own:
 * not as the portal's that runs this statement, since a lock that was taken in a
 * subtransaction of ours goes to the transaction, and is found there.
 */
static LockAcquireResult
acquire(const LOCKTAG *tag, LOCKMODE mode, bool session, bool dont_wait)
{
	ResourceOwner owner = CurrentResourceOwner;
	LockAcquireResult result;

	if (!dont_wait)
		InvalidateCatalogSnapshot();	/* who waits is not to hold back vacuum more than its statement does */
	CurrentResourceOwner = CurTransactionResourceOwner; /* an error resets it, too */
	result = LockAcquire(tag, mode, session, dont_wait);
	CurrentResourceOwner = owner;
	return result;
}

/* Gives back a lock that lease_wait_lock() took, before the end of the transaction. */
void
lease_unlock(const LOCKTAG *tag, LOCKMODE mode, bool session)
{
	ResourceOwner owner = CurrentResourceOwner;

	CurrentResourceOwner = CurTransactionResourceOwner;
	LockRelease(tag, mode, session);
	CurrentResourceOwner = owner;
}

/*
 * The end of a bounded wait. A cancel by a user that comes in the same moment is
 * taken for it, as one that came too late.
 */
static Alarm wait_alarm;

/* Whether an error is a cancel of the statement, and none of PostgreSQL's timeouts. */
static bool
is_cancel(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_QUERY_CANCELED && error->message_id != NULL &&
		strcmp(error->message_id, "canceling statement due to user request") == 0;
}

/*
 * Waits in a subtransaction, with an alarm; false when it was our bound that
 * ended the wait. A lock at session level may be granted in the very moment in which
 * the wait is given up: the lock manager then keeps it, so it counts as granted.
 */
static bool
wait_bounded(const LOCKTAG *tag, LOCKMODE mode, bool session, int64 until_us)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	bool		granted = true;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		alarm_set(&wait_alarm, Max(until_us - clock_now_us(), 1), 0);
		(void) acquire(tag, mode, session, false);
		alarm_clear(&wait_alarm);
		/* the alarm may have come in the moment of the grant: it is to be caught here */
		CHECK_FOR_INTERRUPTS();
		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
	}
	PG_CATCH();
	{
		ErrorData  *error;
		bool		over;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		alarm_clear(&wait_alarm);
		over = clock_now_us() >= until_us;
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		if (over)
			QueryCancelPending = false; /* of an alarm that came beside another error */
		if (!over || !is_cancel(error))
			ReThrowError(error);
		FreeErrorData(error);
		granted = session && compat_lock_held_by_me(tag, mode);
	}
	PG_END_TRY();
	return granted;
}

/*
 * Takes a lock, waiting in its queue until `until_us` on the monotonic clock
 * (WAIT_FOREVER: as long as lock_timeout and statement_timeout allow; a time
 * that is past: not at all). False when it was not free in time. Raises what
 * LockAcquire() raises: 55P03, 57014, 40P01, 53200.
 */
bool
lease_wait_lock(const LOCKTAG *tag, LOCKMODE mode, bool session, int64 until_us)
{
	bool		granted = true;

	/* at once, or else it is a wait */
	if (acquire(tag, mode, session, true) != LOCKACQUIRE_NOT_AVAIL)
		return true;
	if (until_us != WAIT_FOREVER && clock_now_us() >= until_us)
		return false;
	wait_begins();
	if (until_us == WAIT_FOREVER)
		(void) acquire(tag, mode, session, false);
	else
		granted = wait_bounded(tag, mode, session, until_us);
	wait_ends();
	return granted;
}

/* The other processes that hold a lock. Reads the whole lock table, as pg_locks does. */
int
lease_wait_holders(const LOCKTAG *tag, int *pids, int max)
{
	LockData   *locks = GetLockStatusData();
	int			n = 0;

	for (int i = 0; i < locks->nelements && n < max; i++)
	{
		LockInstanceData *lock = &locks->locks[i];

		if (lock->pid > 0 && lock->holdMask != 0 && memcmp(&lock->locktag, tag, sizeof(LOCKTAG)) == 0 &&
			lock->pid != MyProcPid)
			pids[n++] = lock->pid;
	}
	return n;
}

/*
 * The process with this pid, if it may be ended so that a lock of ours is free: NULL for one that is gone, and for
 * one that is no role's. That is a worker of the server's own, as our supervisor is when it sweeps.
 */
PGPROC *
lease_wait_session(int pid)
{
	PGPROC	   *proc = BackendPidGetProc(pid);

	return proc != NULL && OidIsValid(proc->roleId) ? proc : NULL;
}

/* Who a process waits for, appended to `pids` if new. */
static int
add_blockers(int pid, int *pids, int n, int max)
{
	ArrayType  *array = DatumGetArrayTypeP(DirectFunctionCall1(pg_blocking_pids, Int32GetDatum(pid)));
	int32	   *blockers = (int32 *) ARR_DATA_PTR(array);
	int			count = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));

	for (int i = 0; i < count && n < max; i++)
	{
		bool		known = false;

		for (int j = 0; j < n; j++)
			known = known || pids[j] == blockers[i];
		if (!known)
			pids[n++] = blockers[i];
	}
	return n;
}

/*
 * Raises 40P01 if a process that is fenced by the name waits, directly or
 * through others, for this one: then neither the holder's transaction nor
 * this sleep would ever end.
 */
static void
check_deadlock(const LeaseEntry *entry)
{
#define MAX_PIDS 1024
	LOCKTAG		fence = lease_lock_fence(&entry->key);
	int		   *pids = palloc(MAX_PIDS * sizeof(int));
	int			n = lease_wait_holders(&fence, pids, MAX_PIDS);

	for (int i = 0; i < n; i++)
	{
		n = add_blockers(pids[i], pids, n, MAX_PIDS);
		for (int j = 0; j < n; j++)
		{
			if (pids[j] == MyProcPid)
				ereport(ERROR,
						(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
						 errmsg("deadlock detected"),
						 errdetail("Process %d waits for lease \"%s\", whose holder's transaction waits for process %d.",
								   MyProcPid, lease_entry_name(entry), MyProcPid),
						 errhint("Acquire leases before you lock anything.")));
		}
	}
	pfree(pids);
}

/* Sleeps until the entry changes, or until a time on the monotonic clock; interrupts are served. */
static void
sleep_until(LeaseEntry *entry, int64 wake_us)
{
	static uint32 wait_event = 0;
	int64		sleep_us;

	if (wait_event == 0)
		wait_event = compat_wait_event("RevenantLease");
	/* never negative, also if we were stopped since we looked: that would be for ever */
	sleep_us = Max(wake_us - clock_now_us(), 0);
#ifdef REVENANT_DEBUG
	sleep_us = Min(sleep_us, 20 * US_PER_MS);	/* a test may move the clock */
#endif
	(void) ConditionVariableTimedSleep(&entry->changed,
									   (long) Min((sleep_us + US_PER_MS - 1) / US_PER_MS, PG_INT32_MAX),
									   wait_event);
}

/*
 * Sleeps until the name is nobody's: its ttl hold was released, revoked or
 * lapsed, and no lock_delay or hold_off is left. The caller has H, so there is one sleeper at most, and no newer holder can
 * come. It has waited since `since_us`. False when that was not before `until_us`. Raises 55P03 after
 * lock_timeout, 57014, and 40P01.
 */
bool
lease_wait_lapse(LeaseEntry *entry, int64 since_us, int64 until_us)
{
	int64		lock_timeout_us = LockTimeout > 0 ? since_us + LockTimeout * US_PER_MS : PG_INT64_MAX;
	int64		deadlock_check_us = since_us + DeadlockTimeout * US_PER_MS;
	bool		in_time = true;
	LeaseHold	hold;

	if (!lease_entry_is_taken(entry, &hold))
		return true;
	if (until_us != WAIT_FOREVER && clock_now_us() >= until_us)
		return false;
	InvalidateCatalogSnapshot();
	wait_begins();
	ConditionVariablePrepareToSleep(&entry->changed);
	for (;;)
	{
		int64		now_us;
		int64		wake_us;

		if (!lease_entry_is_taken(entry, &hold))
			break;
		now_us = clock_now_us();
		if (until_us != WAIT_FOREVER && now_us >= until_us)
		{
			in_time = false;
			break;
		}
		if (now_us >= lock_timeout_us)
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("canceling statement due to lock timeout"),
					 errdetail("Lease \"%s\" is held with token %lld.",
							   lease_entry_name(entry), (long long) hold.token)));
		if (now_us >= deadlock_check_us)
		{
			check_deadlock(entry);
			now_us = clock_now_us();
			deadlock_check_us = now_us + DeadlockTimeout * US_PER_MS;
		}

		wake_us = Min(Min(lease_hold_free_from(&hold), lock_timeout_us), deadlock_check_us);
		if (hold.bound)			/* the end of a session wakes nobody here */
			wake_us = Min(wake_us, now_us + BOUND_LOOK_US);
		if (until_us != WAIT_FOREVER)
			wake_us = Min(wake_us, until_us);
		sleep_until(entry, wake_us);
	}
	ConditionVariableCancelSleep();
	wait_ends();
	return in_time;
}

/* What is waited for at most when nothing else bounds it: a look now and then does no harm. */
#define LOOK_AGAIN_US (60 * US_PER_S)

/*
 * Sleeps until the entry's number is not `seen` any more, or `until_us`. That a
 * ttl hold ends by its time or with its session is noticed here, and counts as
 * a change from then on. Raises 57014.
 */
void
lease_wait_change(LeaseEntry *entry, uint64 seen, int64 until_us)
{
	LeaseHold	hold;

	InvalidateCatalogSnapshot();
	ConditionVariablePrepareToSleep(&entry->changed);
	for (;;)
	{
		int64		now_us = clock_now_us();
		int64		wake_us = now_us + LOOK_AGAIN_US;
		bool		taken = lease_entry_is_taken(entry, &hold);

		lease_entry_note_end(entry);
		if (lease_entry_changes(entry) != seen)
			break;
		if (until_us != WAIT_FOREVER && now_us >= until_us)
			break;
		if (taken)
			wake_us = Min(wake_us, lease_hold_free_from(&hold));
		if ((taken && hold.bound) || hold.scope == LEASE_SESSION)
			wake_us = Min(wake_us, now_us + BOUND_LOOK_US);
		if (until_us != WAIT_FOREVER)
			wake_us = Min(wake_us, until_us);
		sleep_until(entry, wake_us);
	}
	ConditionVariableCancelSleep();
}
