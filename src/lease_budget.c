/*-------------------------------------------------------------------------
 *
 * lease_budget.c
 *	  How much of the server's lock table leases may take.
 *
 * The lock table is bounded, and when it is full not even a new connection
 * gets in. So leases of session and transaction scope take three quarters of
 * what max_locks_per_transaction stands for at most, in all sessions together, and
 * then are refused with a clear error. Fences, and the moment in which a ttl lease
 * is acquired, may take an eighth more.
 *
 * NOTES
 *	  What is counted is what callers say that they take: an estimate of the
 *	  locks, which is too high rather than too low. What a process counted goes
 *	  with it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/twophase.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/lock.h"

#include "lease_budget.h"

/* In all processes together. */
static pg_atomic_uint64 *total = NULL;

/* Of them, this process's; and which process that is. */
static int64 mine = 0;
static int	owner = 0;

/* What this file needs in the fixed segment, in bytes. */
Size
lease_budget_shmem_size(void)
{
	return sizeof(pg_atomic_uint64);
}

/* Called by shmem.c at every start of shared memory. */
void
lease_budget_shmem_init(void *place, bool found)
{
	total = place;
	if (!found)
		pg_atomic_init_u64(total, 0);
}

/* How many locks leases may take, in eighths of what there is room for. */
#define EIGHTHS_HELD 6
#define EIGHTHS_PASSING 7

static int64
limit(int eighths)
{
	return (int64) max_locks_per_xact * (MaxBackends + max_prepared_xacts) * eighths / 8;
}

static void
on_process_exit(int code, Datum arg)
{
	pg_atomic_fetch_sub_u64(total, mine);
	mine = 0;
}

/* Whether `locks` more are not too many; `passing`: they are of a fence, or of a moment. */
bool
lease_budget_has_room(int locks, bool passing)
{
	return (int64) pg_atomic_read_u64(total) + locks <= limit(passing ? EIGHTHS_PASSING : EIGHTHS_HELD);
}

/* Raises 53200: there is no room. */
void
lease_budget_raise(bool passing)
{
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("out of locks for leases"),
			 errdetail("Leases that are held and fenced may take %lld locks in all sessions together, and do.",
					   (long long) limit(passing ? EIGHTHS_PASSING : EIGHTHS_HELD)),
			 passing ?
			 errhint("Raise max_locks_per_transaction.") :
			 errhint("Use ttl scope, which takes none while a lease is held, or raise max_locks_per_transaction.")));
}

/* Counts locks that are taken, or given back: negative. Never raises once it was called in this process. */
void
lease_budget_add(int locks)
{
	if (owner != MyProcPid)
	{
		on_shmem_exit(on_process_exit, (Datum) 0);
		owner = MyProcPid;
		mine = 0;
	}
	mine += locks;
	pg_atomic_fetch_add_u64(total, locks);
}
