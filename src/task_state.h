/*
 * task_state.h
 *	  The rows of revenant.task_state: what became of each task.
 */
#ifndef REVENANT_TASK_STATE_H
#define REVENANT_TASK_STATE_H

#include "postgres.h"

#include "utils/relcache.h"

#include "extension.h"
#include "task.h"
#include "worker.h"

/* What the supervisor decided about a run that ended */
typedef struct TaskEnding
{
	bool		failed;
	bool		restarts;
	int			failures;		/* in a row */
	TimestampTz retry_at;		/* 0: none */
	const RestartFailures *recent;	/* by the wall clock; NULL: as they are */
	bool		quarantined;
} TaskEnding;

/* What the workers need of a row; strings are palloc'd */
typedef struct TaskState
{
	char	   *name;
	TaskLife	life;			/* whose state it is */
	bool		open;			/* a run is under way, or was cut off */
	int			failures;		/* in a row */
	int64		token;			/* of the latest run; 0: none */
	TimestampTz started_at;		/* of the latest run; 0: none */
	TimestampTz next_run;		/* of the schedule; 0: none */
	TimestampTz retry_at;		/* 0: none */
	bool		ended;			/* a run has ended: `succeeded` says how the latest one did */
	bool		succeeded;
	TimestampTz quarantined_at; /* 0: it is not */
	int64		run_requests;	/* how many of the task's were run */
	RestartFailures recent;		/* by the wall clock */
} TaskState;

extern void task_state_parse(Relation rel, HeapTuple tuple, TaskState *state);
extern int64 task_state_start(const Extension *extension, const TaskRow *row, const RunnerSlot *slot, int64 token);
extern const char *task_state_outcome(const RunnerSlot *slot, const TaskEnding *ending);
extern bool task_state_end(const Extension *extension, const RunnerSlot *slot, const TaskEnding *ending);
extern bool task_state_interrupt(const Extension *extension, const TaskState *state);
extern bool task_state_remove(const Extension *extension, const TaskState *state);

#endif							/* REVENANT_TASK_STATE_H */
