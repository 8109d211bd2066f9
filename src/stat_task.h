/*
 * stat_task.h
 *	  What was counted of each task.
 */
#ifndef REVENANT_STAT_TASK_H
#define REVENANT_STAT_TASK_H

#include "postgres.h"

#include "lib/dshash.h"

#include "task.h"
#include "task_state.h"
#include "worker.h"

extern const dshash_parameters *stat_task_params(void);

/* the supervisor's */
extern void stat_task_ended(const TaskKey *key, const TaskLife *life, const RunnerSlot *slot, const TaskEnding *ending);
extern void stat_task_interrupted(const TaskKey *key, const TaskLife *life);
extern void stat_task_waits_for_slot(const TaskKey *key, const TaskLife *life);
extern void stat_task_forget(const TaskKey *key);
extern void stat_task_prune(Oid database, bool (*is_known) (const TaskKey *key));

/* stat.c's */
extern void stat_task_purge(Oid database, Oid keep_instance);
extern void stat_task_reset(Oid database, Oid instance);

#endif							/* REVENANT_STAT_TASK_H */
