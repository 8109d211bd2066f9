/*
 * task_status.h
 *	  What shared memory knows about each live task.
 */
#ifndef REVENANT_TASK_STATUS_H
#define REVENANT_TASK_STATUS_H

#include "postgres.h"

#include "lib/dshash.h"

#include "task.h"

/*
 * An entry of SHARED_TASKS. The supervisor moves the phase (the runner only
 * from claiming to leading); drop_task and disable_task put the hold. It is a
 * cache: without an entry the task is as its row says.
 */
typedef struct TaskStatus
{
	TaskKey		key;
	TaskPhase	phase;
	int			hold_pid;		/* who keeps it from being started ... */
	int			hold_procno;
	LocalTransactionId hold_lxid;	/* ... until this transaction of its ends */
	TimestampTz next_run;		/* 0: none */
	bool		begun;			/* it has had the lease since this server leads */
	char		name[TASK_NAME_MAX + 1];
	char		reason[TASK_REASON_MAX];	/* why it does not run; empty: it does */
} TaskStatus;

extern const dshash_parameters *task_status_params(void);
extern void task_key(TaskKey *key, Oid database, Oid instance, const char *name);
extern bool task_status_set(const TaskKey *key, const char *name, TaskPhase phase, TimestampTz next_run, const char *reason);
extern bool task_status_has_begun(const TaskKey *key);
extern void task_status_lead(const TaskKey *key, TimestampTz next_run);
extern bool task_status_hold(const TaskKey *key, const char *name);
extern int	task_status_holder(const TaskKey *key);
extern List *task_status_list(Oid database, Oid instance);	/* of palloc'd TaskStatus */
extern void task_status_forget(const TaskKey *key);
extern void task_status_prune(Oid database, bool (*is_known) (const TaskKey *key));
extern void task_status_purge(Oid database, Oid keep_instance);

#endif							/* REVENANT_TASK_STATUS_H */
