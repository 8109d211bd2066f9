/*
 * lease_local.h
 *	  Entries of this process alone, for leases that shared memory has no room for.
 */
#ifndef REVENANT_LEASE_LOCAL_H
#define REVENANT_LEASE_LOCAL_H

#include "postgres.h"

#include "lease_entry.h"

extern Size lease_local_shmem_size(void);
extern void lease_local_shmem_init(void *place, bool found);
extern bool lease_local_may_exist(void);
extern void lease_local_will_exist(void);
extern LeaseEntry *lease_local_find(const LeaseKey *key);
extern LeaseEntry *lease_local_make(const LeaseKey *key, const char *name);
extern const char *lease_local_name(const LeaseEntry *entry);
extern void lease_local_drop(LeaseEntry *entry);
extern void lease_local_forget_all(void);

#endif							/* REVENANT_LEASE_LOCAL_H */
