/*-------------------------------------------------------------------------
 *
 * clock.c
 *	  The monotonic clock that every deadline is on.
 *
 * Kept in shared memory: whether and since when this server accepts writes, a
 * number for this start of it, and, in a debug build, how far a test has moved
 * the clock.
 *
 * NOTES
 *	  CLOCK_MONOTONIC is common to all processes of a machine, is not stepped,
 *	  and stands still while the machine is suspended: a holder elsewhere then
 *	  believes its lease to be over earlier than this server does, which is
 *	  the safe side.
 *
 *	  A server that is no standby and whose configuration says
 *	  default_transaction_read_only accepts no writes. HA engines hold a server
 *	  so that they have promoted while the old primary may not be down yet.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>

#include "access/xlog.h"
#include "port/atomics.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "extension.h"
#include "shmem.h"

typedef struct ClockShared
{
	pg_atomic_uint32 write_state;	/* a WriteState */
	pg_atomic_uint64 writable_since;	/* when that became WRITES_ACCEPTED first; 0: never */
	int64		server_start;	/* another number at each start, never 0 */
	pg_atomic_uint64 moved; /* debug builds: what tests added, in us */
} ClockShared;

static ClockShared *shared = NULL;

/* What this file needs in shared memory, in bytes. */
Size
clock_shmem_size(void)
{
	return sizeof(ClockShared);
}

/* Called by shmem.c at every start of shared memory. */
void
clock_shmem_init(void *place, bool found)
{
	shared = place;
	if (!found)
	{
		pg_atomic_init_u32(&shared->write_state, WRITES_UNKNOWN);
		pg_atomic_init_u64(&shared->writable_since, 0);
		if (!pg_strong_random(&shared->server_start, sizeof(shared->server_start)))
			shared->server_start = (int64) GetCurrentTimestamp();
		shared->server_start |= 1;
		pg_atomic_init_u64(&shared->moved, 0);
	}
}

/* Microseconds on the monotonic clock. Never raises. */
int64
clock_now_us(void)
{
	struct timespec ts;
	int64		now;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	now = (int64) ts.tv_sec * US_PER_S + ts.tv_nsec / 1000;
#ifdef REVENANT_DEBUG
	now += (int64) pg_atomic_read_u64(&shared->moved);
#endif
	return now;
}

/* The wall clock's reading at a monotonic time, for people to read: never compared. */
TimestampTz
clock_to_timestamp(int64 monotonic_us)
{
	return GetCurrentTimestamp() + (monotonic_us - clock_now_us());
}

/*
 * Notes whether this server, which is no standby, accepts writes, and returns
 * whether that is news. Called by who knows its configuration. A later call
 * than necessary only makes leases that were found after a restart last longer.
 */
bool
clock_note_writes(bool accepted)
{
	WriteState	state = accepted ? WRITES_ACCEPTED : WRITES_HELD;
	uint64		expected = 0;

	Assert(!RecoveryInProgress());
	if (accepted)
		pg_atomic_compare_exchange_u64(&shared->writable_since, &expected, (uint64) clock_now_us());
	return pg_atomic_exchange_u32(&shared->write_state, state) != state;
}

/* What was noted last. */
WriteState
clock_write_state(void)
{
	return (WriteState) pg_atomic_read_u32(&shared->write_state);
}

/* Whether this server has ever accepted writes: only then is clock_writable_since_us() a time that stays. */
bool
clock_has_accepted(void)
{
	return pg_atomic_read_u64(&shared->writable_since) != 0;
}

/*
 * Since when, on the monotonic clock, this server accepts writes; now, if that
 * was not noted yet. The caller has made sure that it is no standby. This is
 * what the deadlines of rows that were found after a start count from.
 */
int64
clock_writable_since_us(void)
{
	int64		since = (int64) pg_atomic_read_u64(&shared->writable_since);

	return since != 0 ? since : clock_now_us();
}

/* Which start of the server this is: a deadline on the monotonic clock that was written down is void after another one. */
int64
clock_server_start(void)
{
	return shared->server_start;
}

#ifdef REVENANT_DEBUG
/* Moves every process's monotonic clock forward, at once. */
void
clock_move(int64 us)
{
	pg_atomic_fetch_add_u64(&shared->moved, us);
}

/* _debug_move_clock(interval): the same, for a test. */
SQL_FUNCTION(revenant_debug_move_clock)
{
	Interval   *by = PG_GETARG_INTERVAL_P(0);

	clock_move((int64) by->time + by->day * USECS_PER_DAY);
	PG_RETURN_VOID();
}
#endif
