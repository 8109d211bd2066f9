/*
 * lease_event.h
 *	  What is told when leases change hands.
 */
#ifndef REVENANT_LEASE_EVENT_H
#define REVENANT_LEASE_EVENT_H

#include "postgres.h"

#include "lease_entry.h"

extern void lease_tell_claimed(const char *name, const LeaseHold *hold, const char *candidate);
extern void lease_tell_refreshed(const char *name, const LeaseHold *hold);
extern void lease_tell_rejected(const char *name, int64 token, const LeaseHold *leading, const char *candidate);
extern void lease_tell_lost(const char *name, const LeaseHold *hold, const char *reason);
extern void lease_tell_revoked(const char *name, const LeaseHold *hold, const char *reason);

#endif							/* REVENANT_LEASE_EVENT_H */
