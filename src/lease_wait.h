/*
 * lease_wait.h
 *	  Waiting for a lease: in the lock manager's queue, then for a ttl holder.
 */
#ifndef REVENANT_LEASE_WAIT_H
#define REVENANT_LEASE_WAIT_H

#include "postgres.h"

#include "clock.h"
#include "lease_entry.h"

#define WAIT_FOREVER INT64CONST(-1)

/* How often who waits for an entry that is not settled looks at its row again. */
#define UNSETTLED_LOOK_US (200 * US_PER_MS)

extern bool lease_wait_lock(const LOCKTAG *tag, LOCKMODE mode, bool session, int64 until_us);
extern int	lease_wait_holders(const LOCKTAG *tag, int *pids, int max);
extern PGPROC *lease_wait_session(int pid);
extern void lease_unlock(const LOCKTAG *tag, LOCKMODE mode, bool session);
extern bool lease_wait_lapse(LeaseEntry *entry, int64 since_us, int64 until_us);
extern void lease_wait_change(LeaseEntry *entry, uint64 seen, int64 until_us);
extern void lease_wait_watch(void);
extern bool lease_wait_watched(int64 *waited_us);

#endif							/* REVENANT_LEASE_WAIT_H */
