/*
 * lease_standing.h
 *	  What a token of a name is worth now.
 */
#ifndef REVENANT_LEASE_STANDING_H
#define REVENANT_LEASE_STANDING_H

#include "postgres.h"

#include "compat.h"
#include "lease_api.h"
#include "lease_xact.h"

/* The modes of H: many shared holds, or one exclusive one. */
#define HOLD_EXCLUSIVE ExclusiveLock
#define HOLD_SHARED ShareLock

/*
 * The modes of F. Fences share it and an acquire excludes them; but shared
 * holders live beside each other, so their acquires share it too, and exclude
 * the fences of exclusive holders only.
 */
#define FENCE_BY_EXCLUSIVE RowExclusiveLock
#define FENCE_BY_SHARED AccessShareLock
#define TAKEOVER_EXCLUSIVE AccessExclusiveLock
#define TAKEOVER_SHARED ShareLock

/* What a token stands for. */
typedef enum Standing
{
	STANDING_CURRENT,
	STANDING_EXPIRED,			/* the newest, but its time is over */
	STANDING_STALE				/* not the current one */
} Standing;

static inline LOCKMODE
lease_hold_mode(const LeaseHold *hold)
{
	return hold->shared ? HOLD_SHARED : HOLD_EXCLUSIVE;
}

extern void lease_settle(LeaseEntry *entry, const char *name);
extern bool lease_settle_fenced(LeaseEntry *entry, const char *name, bool excluding);
extern LeaseOp *lease_find_entry(const LeaseKey *key, const char *name);
extern LeaseOp *lease_open_name(const LeaseNameToken *arg);
extern bool lease_have_hold_lock(const LeaseEntry *entry, LOCKMODE mode);
extern bool lease_session_hold_stands(const LeaseEntry *entry, const LeaseHold *now);
extern Standing lease_standing(LeaseEntry *entry, int64 token, LeaseHold *hold);
extern void lease_check_role(const LeaseHold *hold, const char *name);
extern compat_noreturn void lease_raise_not_current(LeaseEntry *entry, const char *name, int64 token,
													Standing why, const LeaseHold *hold);

#endif							/* REVENANT_LEASE_STANDING_H */
