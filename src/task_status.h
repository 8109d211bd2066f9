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
 * What a standby knows of a task's follower_command from one supervisor to the
 * next: it can write no row. Times are on the monotonic clock, but for those of failures.
 */
typedef struct FollowerMemory
{
	TaskLife	life;			/* whose it is ... */
	uint32		command_hash;	/* ... and of which command */
	int64		retry_us;		/* 0: none */
	int			failures;		/* in a row */
	bool		quarantined;
	bool		finished;
	RestartFailures recent;
} FollowerMemory;

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
	bool		follower_begun; /* its follower_command has run since this server follows */
	FollowerMemory follower;
	char		name[TASK_NAME_MAX + 1];
	char		reason[TASK_REASON_MAX];	/* why it does not run; empty: it does */
} TaskStatus;

extern const dshash_parameters *task_status_params(void);
extern void task_key(TaskKey *key, Oid database, Oid instance, const char *name);
extern bool task_status_set(const TaskKey *key, const char *name, TaskPhase phase, TimestampTz next_run, const char *reason,
							TaskPhase *before);
extern bool task_status_has_begun(const TaskKey *key, bool following);
extern void task_status_follow(const TaskKey *key);
extern void task_status_remember(const TaskKey *key, const FollowerMemory *memory);
extern bool task_status_recall(const TaskKey *key, FollowerMemory *memory);
extern void task_status_lead(const TaskKey *key, TimestampTz next_run);
extern bool task_status_hold(const TaskKey *key, const char *name);
extern int	task_status_holder(const TaskKey *key);
extern List *task_status_list(Oid database, Oid instance);	/* of palloc'd TaskStatus */
extern void task_status_forget(const TaskKey *key);
extern void task_status_prune(Oid database, bool (*is_known) (const TaskKey *key));
extern void task_status_purge(Oid database, Oid keep_instance);

#endif							/* REVENANT_TASK_STATUS_H */
