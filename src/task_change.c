/*-------------------------------------------------------------------------
 *
 * task_change.c
 *	  A change to a task: who may make it, the lock on its row, the end of its
 *	  runner, and the wake at the end of the transaction.
 *
 * {create, alter, drop, enable, disable} × {commit, abort}: each writes the row
 * of revenant.task in the caller's transaction and wakes the supervisor when
 * that ends, either way; what is to be done the supervisor reads from the rows.
 * drop, disable and others besides stop the runner at once and return when it
 * is gone; a hold that names the transaction keeps the task from being started
 * again before it ends. When it aborts, the hold is over and the row is as
 * before, so the task is started again.
 *
 * NOTES
 *	  Every function that writes checks in this order: that writing is
 *	  possible at all, arguments, membership in the task's role, existence.
 *
 *	  Nothing here writes revenant.task_state: a lock on a row of that, kept to
 *	  the end of a user's transaction, would be in the workers' way. See
 *	  task_state.c for how a row there becomes void.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "compat.h"
#include "debug.h"
#include "plan.h"
#include "row.h"
#include "task.h"
#include "task_change.h"
#include "task_status.h"
#include "worker.h"

/* How long a change that ends a runner waits for it to be gone */
#define STOP_TIMEOUT_US (10 * US_PER_S)

/* this transaction changed a task, and the supervisor is to know when it ends */
static bool changed_here = false;

/* ---------------------------------------------------------------- transactions */

static void
on_xact_end(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_PREPARE:
			if (changed_here)
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot PREPARE a transaction that has changed a task")));
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
			if (changed_here)
				worker_wake_supervisor(MyDatabaseId);
			changed_here = false;
			break;
		default:
			break;
	}
}

/* Called once, by _PG_init under shared_preload_libraries. */
void
task_install_callbacks(void)
{
	RegisterXactCallback(on_xact_end, NULL);
}

/* This transaction has changed a task. */
void
task_note_change(void)
{
	changed_here = true;
}

/* ---------------------------------------------------------------- who may, and what */

/* Refuses where nothing can be written. `function` is its SQL name. */
void
task_require_writable(const char *function)
{
	char	   *call = psprintf("revenant.%s()", function);

	PreventCommandDuringRecovery(call);
	PreventCommandIfReadOnly(call);
}

/* An argument of type text; NULL for null. */
char *
task_text_argument(FunctionCallInfo fcinfo, int arg)
{
	return PG_ARGISNULL(arg) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(arg));
}

/* A task's name from argument 0: not null, not empty, not too long. */
char *
task_name_argument(FunctionCallInfo fcinfo)
{
	char	   *name = task_text_argument(fcinfo, 0);

	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("task name must not be null")));
	if (name[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("task name must not be empty")));
	if (strlen(name) > TASK_NAME_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("task name is too long"),
				 errdetail("It has %zu bytes, and may have %d.", strlen(name), TASK_NAME_MAX)));
	return name;
}

/*
 * Raises 22023 for a name that only the planner of a plan has for its task. `function` is
 * create_task, alter_task or drop_task.
 */
void
task_require_not_plans(const char *name, const char *function)
{
	char	   *plan;

	if (strncmp(name, PLAN_PREFIX, strlen(PLAN_PREFIX)) != 0)
		return;
	plan = quote_literal_cstr(name + strlen(PLAN_PREFIX));
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("task name \"%s\" belongs to a plan", name),
			 errdetail("Names that begin with \"%s\" are those of the tasks that run the planners of plans.", PLAN_PREFIX),
			 strcmp(function, "create_task") == 0 ?
			 errhint("SELECT revenant.create_plan(%s, planner_function => 'schema.function')", plan) :
			 strcmp(function, "drop_task") == 0 ?
			 errhint("SELECT revenant.drop_plan(%s), or revenant.alter_plan(%s, '{\"planner_function\": null}')", plan, plan) :
			 errhint("SELECT revenant.alter_plan(%s, '{\"replan_every\": \"60 s\"}')", plan)));
}

/* Raises 42501 unless the caller may become this role. */
void
task_require_membership(const char *task, Oid role)
{
	if (!compat_role_can_become(GetUserId(), role))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for task \"%s\"", task),
				 errdetail("It runs as role \"%s\", and role \"%s\" is not a member of that.",
						   GetUserNameFromId(role, false), GetUserNameFromId(GetUserId(), false))));
}

/*
 * Raises 42501 unless the caller may become every role that the row may mean:
 * the one that has the name now, and in a row of this database the one that it
 * was made for, whatever that is called now. (The oid in a row that was made
 * elsewhere means nothing here.) Where both are gone the task cannot run, and the right to
 * call the function is enough.
 */
static void
require_task_membership(const char *task, const char *run_as, Oid run_as_oid, bool native)
{
	Oid			named = get_role_oid(run_as, true);

	if (OidIsValid(named))
		task_require_membership(task, named);
	if (native && run_as_oid != named && SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(run_as_oid)))
		task_require_membership(task, run_as_oid);
}

/* The task's row, or 42704; and 42501 if it is not the caller's. */
HeapTuple
task_find(Relation rel, const Extension *extension, const char *name)
{
	HeapTuple	tuple = row_find(rel, extension->task_pkey, name);
	Datum		values[TASK_COLUMNS];
	bool		nulls[TASK_COLUMNS];

	if (tuple == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("task \"%s\" does not exist", name)));
	task_deform(tuple, RelationGetDescr(rel), values, nulls);
	require_task_membership(name, TextDatumGetCString(values[ATT_TASK_RUN_AS - 1]),
							(Oid) DatumGetInt64(values[ATT_TASK_RUN_AS_OID - 1]), task_is_native(values));
	return tuple;
}

/* The same, locked against everybody else until this transaction ends. */
static HeapTuple
lock_task(Relation rel, const Extension *extension, const char *name)
{
	HeapTuple	tuple;

	do
	{
		CHECK_FOR_INTERRUPTS();
		tuple = task_find(rel, extension, name);
	} while (!row_lock(rel, tuple));
	return tuple;
}

/*
 * Begins a change to the task that argument 0 names: its row is locked until
 * this transaction ends. Raises 22004, 22023, 25006, 42501, 42704.
 */
void
task_begin_change(FunctionCallInfo fcinfo, const char *function, TaskChange *change)
{
	task_require_writable(function);
	change->name = task_name_argument(fcinfo);
	change->oids = *extension_get();
	change->rel = table_open(change->oids.task, RowExclusiveLock);
	change->row = lock_task(change->rel, &change->oids, change->name);
}

/* The row is as it is to be: the supervisor looks when this transaction ends. */
void
task_end_change(TaskChange *change)
{
	table_close(change->rel, NoLock);
	task_note_change();
}

/* A column of the row that is changed, as it was; not one that may be null. */
Datum
task_column(const TaskChange *change, int attribute)
{
	bool		isnull;

	return heap_getattr(change->row, attribute, RelationGetDescr(change->rel), &isnull);
}

/* Writes `enabled`, and with `anew` begins another life: what was counted and planned before is void. */
void
task_write_enabled(const TaskChange *change, bool enabled, bool anew)
{
	Datum		values[TASK_COLUMNS] = {0};
	bool		nulls[TASK_COLUMNS] = {0};
	bool		replace[TASK_COLUMNS] = {0};

	values[ATT_TASK_ENABLED - 1] = BoolGetDatum(enabled);
	replace[ATT_TASK_ENABLED - 1] = true;
	values[ATT_TASK_ENABLED_AT - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
	replace[ATT_TASK_ENABLED_AT - 1] = anew;
	values[ATT_TASK_REQUESTS_VOID - 1] = task_column(change, ATT_TASK_RUN_REQUESTS);
	replace[ATT_TASK_REQUESTS_VOID - 1] = anew;
	row_update(change->rel, change->row, values, nulls, replace);
	CommandCounterIncrement();
}

/* ---------------------------------------------------------------- stopping */

/*
 * Ends the runner of a task and returns when its process is gone, or raises
 * 55006 after ten seconds. From here to the end of this transaction the task
 * is not started again. A task that does this to itself runs on until the
 * transaction ends.
 */
void
task_stop_runner(const Extension *extension, const char *name)
{
	TaskKey		key;
	RunnerSlot *slot = palloc(sizeof(RunnerSlot));
	int			number;
	uint32		generation;
	int			pid = 0;
	int			procno = 0;
	long		pause_ms = 1;
	int64		deadline_us = clock_now_us() + STOP_TIMEOUT_US;

	task_key(&key, MyDatabaseId, extension->extension, name);
	if (!task_status_hold(&key, name))
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("no shared memory is left to stop task \"%s\"", name),
				 errhint("Set revenant.shared_memory higher.")));
	DEBUG_POINT("task-before-stop");

	/* first the hold, then the look: see worker.c */
	if (!worker_runner_find(&key, &number, slot) || slot->pid == MyProcPid)
		return;
	generation = slot->generation;
	(void) worker_runner_stop(number, generation);
	for (;;)
	{
		bool		there = worker_runner_get(number, generation, slot);

		if (there && slot->pid != 0)
		{
			pid = slot->pid;
			procno = slot->procno;
		}
		/* the slot may be somebody else's by now while the process still leaves */
		if ((!there || slot->state == RUNNER_EXITED) && !worker_is_alive(pid, procno))
			break;
		if (clock_now_us() >= deadline_us)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 pid != 0 ?
					 errmsg("task \"%s\" still runs in process %d", name, pid) :
					 errmsg("task \"%s\" is still being started", name),
					 errdetail("It was told to end %d seconds ago, and ends when its statement next checks for interrupts.",
							   (int) (STOP_TIMEOUT_US / US_PER_S))));
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 pause_ms, compat_wait_event("RevenantStopRunner"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		pause_ms = Min(pause_ms * 2, 20);
	}
	pfree(slot);
}
