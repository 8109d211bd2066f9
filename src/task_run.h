/*
 * task_run.h
 *	  The rows of revenant.task_run: the history of runs.
 */
#ifndef REVENANT_TASK_RUN_H
#define REVENANT_TASK_RUN_H

#include "postgres.h"

#include "utils/relcache.h"

#include "extension.h"
#include "worker.h"

/* How a run ended, as the history has it */
#define RUN_STATE_RUNNING "running"
#define RUN_STATE_SUCCEEDED "succeeded"
#define RUN_STATE_FAILED "failed"
#define RUN_STATE_STOPPED "stopped"
#define RUN_STATE_INTERRUPTED "interrupted"

/* The history, opened by somebody who must not wait; `rel` is NULL where there is none */
typedef struct TaskRuns
{
	Relation	rel;
	Oid			pkey;
} TaskRuns;

extern int64 task_run_start(const Extension *extension, const char *name, int64 token, TimestampTz started_at, int64 earlier);
extern bool task_run_try_open(const Extension *extension, TaskRuns *runs);
extern void task_run_close(TaskRuns *runs);
extern bool task_run_end(const TaskRuns *runs, const RunnerSlot *slot, const char *outcome);
extern void task_run_note_unstarted(const Extension *extension, const TaskRuns *runs, const RunnerSlot *slot);
extern bool task_run_interrupt(const TaskRuns *runs, int64 run);
extern int	task_run_prune(const TaskRuns *runs, TimestampTz before, int limit);

#endif							/* REVENANT_TASK_RUN_H */
