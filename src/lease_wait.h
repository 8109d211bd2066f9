/*
 * lease_wait.h
 *	  Waiting for a lease: in the lock manager's queue, then for a ttl holder.
 */
#ifndef REVENANT_LEASE_WAIT_H
#define REVENANT_LEASE_WAIT_H

#include "postgres.h"

#include "lease_entry.h"

#define WAIT_FOREVER INT64CONST(-1)

extern bool lease_wait_lock(const LOCKTAG *tag, LOCKMODE mode, bool session, int64 until_us);
extern int	lease_wait_holders(const LOCKTAG *tag, int *pids, int max);
extern void lease_unlock(const LOCKTAG *tag, LOCKMODE mode, bool session);
extern bool lease_wait_lapse(LeaseEntry *entry, int64 until_us);
extern void lease_wait_change(LeaseEntry *entry, uint64 seen, int64 until_us);

#endif							/* REVENANT_LEASE_WAIT_H */
