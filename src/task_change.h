/*
 * task_change.h
 *	  A change to a task: who may make it, the lock on its row, the end of its
 *	  runner, and the wake at the end of the transaction.
 */
#ifndef REVENANT_TASK_CHANGE_H
#define REVENANT_TASK_CHANGE_H

#include "postgres.h"

#include "access/htup.h"
#include "fmgr.h"
#include "utils/relcache.h"

#include "extension.h"

/* A change to the one task that a function's first argument names */
typedef struct TaskChange
{
	char	   *name;
	Extension	oids;
	Relation	rel;			/* revenant.task */
	HeapTuple	row;			/* locked against everybody else until this transaction ends */
} TaskChange;

extern void task_install_callbacks(void);
extern void task_note_change(void);
extern void task_require_writable(const char *function);
extern char *task_text_argument(FunctionCallInfo fcinfo, int arg);	/* NULL for null */
extern char *task_name_argument(FunctionCallInfo fcinfo);
extern void task_require_not_plans(const char *name, const char *function);
extern void task_require_membership(const char *task, Oid role);
extern HeapTuple task_find(Relation rel, const Extension *extension, const char *name);
extern void task_begin_change(FunctionCallInfo fcinfo, const char *function, TaskChange *change);
extern void task_end_change(TaskChange *change);
extern Datum task_column(const TaskChange *change, int attribute);
extern void task_write_enabled(const TaskChange *change, bool enabled, bool anew);
extern void task_stop_runner(const Extension *extension, const char *name);

#endif							/* REVENANT_TASK_CHANGE_H */
