/*
 * stat.h
 *	  What was counted: cumulative counters of a database, in shared memory.
 */
#ifndef REVENANT_STAT_H
#define REVENANT_STAT_H

#include "postgres.h"

#include "lib/dshash.h"

/* What is only counted. */
typedef enum StatCounter
{
	STAT_NOTHING = 0,			/* for a variable that may say: nothing is */
	STAT_LEASES_ACQUIRED,
	STAT_LEASES_REJECTED,
	STAT_LEASES_RENEWED,
	STAT_LEASES_RELEASED,
	STAT_LEASES_LAPSED,
	STAT_LEASES_REVOKED,
	STAT_FENCES,
	STAT_FENCES_REJECTED,
	STAT_TOKENS,
	STAT_EVENTS,
	STAT_TASK_RUNS,
	STAT_TASK_FAILURES,
	STAT_CALLS,
	STAT_ENTITIES_KEPT,
	STAT_ENTITIES_WRITTEN,
	STAT_ENTITIES_CREATED,
	STAT_ENTITIES_DELETED,
	STAT_ENTITIES_UPGRADED,
	STAT_ENTITIES_LOADED,
	STAT_ENTITIES_UNLOADED,
	STAT_ENTITIES_FLUSHED,
	STAT_ENTITY_CONFLICTS,
	STAT_FLUSH_FAILURES,
	STAT_MESSAGES_SENT,
	STAT_MESSAGES_APPLIED,
	STAT_MESSAGE_FAILURES,
	STAT_MESSAGES_SET_ASIDE,
	STAT_TICKS,
	STAT_COUNTERS				/* how many there are */
} StatCounter;

/* What is counted and takes its time. */
typedef enum StatTimer
{
	STAT_LEASE_WAITS,
	STAT_LOADS,
	STAT_FLUSHES,
	STAT_TIMERS					/* how many there are */
} StatTimer;

extern const dshash_parameters *stat_params(void);
extern void stat_attach(Oid instance);
extern void stat_count(StatCounter which);
extern void stat_time(StatTimer which, int64 us);
extern void stat_purge(Oid database, Oid keep_instance);

/* Counters do not take the last room from leases: there must be this much, in bytes. */
#define STAT_ROOM 4096

/* Microseconds as the views show them: milliseconds. */
#define STAT_MS_DATUM(us) Float8GetDatum((double) (us) / 1000.0)

#endif							/* REVENANT_STAT_H */
