/*
 * plan_watch.h
 *	  What a supervisor does about plans.
 */
#ifndef REVENANT_PLAN_WATCH_H
#define REVENANT_PLAN_WATCH_H

#include "postgres.h"

#include "plan_memory.h"

/* plan_watch.c */
extern void plan_watch(Oid instance, bool first);

/* plan_assign.c */
extern void plan_assign_init(void);
extern void plan_assign_prune(bool (*is_there) (int64 plan_id, void *arg), void *arg);
extern void plan_assign_look(PlanEntry *entry, Oid instance);

#endif							/* REVENANT_PLAN_WATCH_H */
