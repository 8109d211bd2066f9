/*
 * clock.h
 *	  The monotonic clock that every deadline is on.
 */
#ifndef REVENANT_CLOCK_H
#define REVENANT_CLOCK_H

#include "postgres.h"

#include "datatype/timestamp.h"

#define US_PER_MS INT64CONST(1000)
#define US_PER_S INT64CONST(1000000)

/* Of a server that is no standby, or was none when it was looked at. */
typedef enum WriteState
{
	WRITES_UNKNOWN,				/* it has just been promoted, or started */
	WRITES_HELD,				/* its configuration makes transactions read-only */
	WRITES_ACCEPTED
} WriteState;

extern Size clock_shmem_size(void);
extern void clock_shmem_init(void *place, bool found);

extern int64 clock_now_us(void);
extern TimestampTz clock_to_timestamp(int64 monotonic_us);
extern bool clock_note_writes(bool accepted);
extern WriteState clock_write_state(void);
extern bool clock_has_accepted(void);
extern int64 clock_writable_since_us(void);
extern int64 clock_server_start(void);
#ifdef REVENANT_DEBUG
extern void clock_move(int64 us);
#endif

#endif							/* REVENANT_CLOCK_H */
