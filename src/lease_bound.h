/*
 * lease_bound.h
 *	  Ttl holds that also end with the session that took them.
 */
#ifndef REVENANT_LEASE_BOUND_H
#define REVENANT_LEASE_BOUND_H

#include "postgres.h"

#include "lease_entry.h"

extern void lease_bound_add(const LeaseEntry *entry, int64 token);
extern void lease_bound_forget(const LeaseEntry *entry, int64 token);
extern int	lease_bound_count(void);
extern void lease_bound_reap(void);

#endif							/* REVENANT_LEASE_BOUND_H */
