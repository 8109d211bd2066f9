/*
 * plan_use.h
 *	  The plans that a transaction uses: found by name, in memory, and there until its end.
 */
#ifndef REVENANT_PLAN_USE_H
#define REVENANT_PLAN_USE_H

#include "postgres.h"

#include "plan_memory.h"

/* A plan that this transaction uses: its entry is pinned to the end of the transaction. */
typedef struct PlanUse
{
	PlanEntry  *entry;
	Oid			instance;
	int64		plan_id;
	/* copies, as of the moment when it was opened */
	Oid			owner;
	bool		native;
	int64		lease_ttl_us;
	int			max_attempts;
	int			max_in_flight;
	bool		mine;			/* this transaction made it */
	bool		unusable;		/* ... after it had dropped another one of its name */
	bool		dropped;		/* by this transaction */
	char	   *name;
	struct PlanUse *next;
} PlanUse;

extern PlanUse *plan_try_use(const char *name);
extern PlanUse *plan_use(const char *name);
extern PlanUse *plan_use_new(const PlanRow *row);
extern bool plan_is_replaced(const char *name);
extern void plan_lock(const char *name);
extern bool plan_try_lock(const char *name);
extern void plan_unlock(const char *name);
extern PlanUse *plan_use_entry(PlanEntry *entry, Oid instance);
extern void plan_use_check_worker(const PlanUse *use, const char *fingerprint);
extern void plan_use_reap_later(int64 epoch);
extern bool plan_uses_any(void);
extern void plan_uses_map(void);
extern void plan_uses_release(void);

#endif							/* REVENANT_PLAN_USE_H */
