/*-------------------------------------------------------------------------
 *
 * task_admin.c
 *	  Tasks as SQL sees them: drop, enable, disable, restart, run, adopt.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "error.h"
#include "extension.h"
#include "message.h"
#include "plan.h"
#include "row.h"
#include "task.h"
#include "task_change.h"
#include "task_state.h"
#include "task_status.h"
#include "worker.h"

/* drop_task(name): returns when its runner is gone. Raises 22004, 22023, 25006, 42501, 42704, 55006. */
SQL_FUNCTION(revenant_drop_task)
{
	Extension	oids;
	Relation	rel;
	char	   *name;

	task_require_writable("drop_task");
	name = task_name_argument(fcinfo);
	task_require_not_plans(name, "drop_task");
	oids = *extension_get();
	rel = table_open(oids.task, RowExclusiveLock);
	while (!row_delete(rel, task_find(rel, &oids, name)))
		CHECK_FOR_INTERRUPTS();
	CommandCounterIncrement();
	table_close(rel, NoLock);
	task_note_change();
	task_stop_runner(&oids, name);
	PG_RETURN_VOID();
}

/* disable_task(name): returns when its runner is gone. Raises what drop_task does. */
SQL_FUNCTION(revenant_disable_task)
{
	TaskChange	change;

	task_begin_change(fcinfo, "disable_task", &change);
	task_write_enabled(&change, false, false);
	task_end_change(&change);
	task_stop_runner(&change.oids, change.name);
	PG_RETURN_VOID();
}

/* enable_task(name). Raises 22004, 22023, 25006, 42501, 42704. */
SQL_FUNCTION(revenant_enable_task)
{
	TaskChange	change;

	task_begin_change(fcinfo, "enable_task", &change);
	if (!DatumGetBool(task_column(&change, ATT_TASK_ENABLED)))
		task_write_enabled(&change, true, true);
	task_end_change(&change);
	PG_RETURN_VOID();
}

/* Raises 55006 for a task that is disabled. */
static void
require_enabled(const TaskChange *change)
{
	if (!DatumGetBool(task_column(change, ATT_TASK_ENABLED)))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("task \"%s\" is disabled", change->name),
				 errhint("SELECT revenant.enable_task(%s)", quote_literal_cstr(change->name))));
}

/*
 * restart_task(name): ends its run, if there is one, and begins anew: what it
 * counted of failures is void, and one that is finished or quarantined runs again.
 * Returns when the old runner is gone. Raises what drop_task does, and 55006 if it is disabled.
 */
SQL_FUNCTION(revenant_restart_task)
{
	TaskChange	change;

	task_begin_change(fcinfo, "restart_task", &change);
	require_enabled(&change);
	task_write_enabled(&change, true, true);
	task_end_change(&change);
	task_stop_runner(&change.oids, change.name);
	PG_RETURN_VOID();
}

/* Since when a task is quarantined; 0: it is not. */
static TimestampTz
quarantined_at(const TaskChange *change)
{
	Relation	rel = table_open(change->oids.task_state, AccessShareLock);
	HeapTuple	tuple = row_find(rel, change->oids.task_state_pkey, change->name);
	TaskState	state = {0};
	TaskLife	life = {
		.created_at = DatumGetTimestampTz(task_column(change, ATT_TASK_CREATED_AT)),
		.enabled_at = DatumGetTimestampTz(task_column(change, ATT_TASK_ENABLED_AT))
	};

	if (tuple != NULL)
		task_state_parse(rel, tuple, &state);
	table_close(rel, AccessShareLock);
	return tuple != NULL && task_same_life(&state.life, &life) ? state.quarantined_at : 0;
}

/*
 * unquarantine_task(name): one that was given up begins anew; of any other
 * nothing changes. Raises 22004, 22023, 25006, 42501, 42704.
 */
SQL_FUNCTION(revenant_unquarantine_task)
{
	TaskChange	change;

	task_begin_change(fcinfo, "unquarantine_task", &change);
	if (quarantined_at(&change) != 0)
		task_write_enabled(&change, DatumGetBool(task_column(&change, ATT_TASK_ENABLED)), true);
	task_end_change(&change);
	PG_RETURN_VOID();
}

/*
 * run_task(name): runs it once, from the commit on, beside its schedule. Raises
 * 22004, 22023, 25006, 42501, 42704, 55006 while it runs or is disabled, RV007 while it is quarantined.
 */
SQL_FUNCTION(revenant_run_task)
{
	TaskChange	change;
	TaskKey		key;
	RunnerSlot *slot = palloc(sizeof(RunnerSlot));
	int			number;
	TimestampTz since;
	Datum		values[TASK_COLUMNS] = {0};
	bool		nulls[TASK_COLUMNS] = {0};
	bool		replace[TASK_COLUMNS] = {0};

	task_begin_change(fcinfo, "run_task", &change);
	require_enabled(&change);
	task_key(&key, MyDatabaseId, change.oids.extension, change.name);
	if (worker_runner_find(&key, &number, slot))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("task \"%s\" runs already", change.name),
				 slot->pid != 0 ? errdetail("It runs in process %d.", slot->pid) : 0));
	since = quarantined_at(&change);
	if (since != 0)
		ereport(ERROR,
				(errcode(ERRCODE_RV_QUARANTINED),
				 errmsg("task \"%s\" is quarantined", change.name),
				 errdetail("It failed too often, and was given up at %s.", timestamptz_to_str(since)),
				 errhint("SELECT revenant.unquarantine_task(%s)", quote_literal_cstr(change.name))));
	values[ATT_TASK_RUN_REQUESTS - 1] = Int64GetDatum(DatumGetInt64(task_column(&change, ATT_TASK_RUN_REQUESTS)) + 1);
	replace[ATT_TASK_RUN_REQUESTS - 1] = true;
	row_update(change.rel, change.row, values, nulls, replace);
	CommandCounterIncrement();
	task_end_change(&change);
	PG_RETURN_VOID();
}

/* Names of the rows that are not this database's. */
static void
collect_foreign(Relation rel, HeapTuple tuple, void *arg)
{
	List	  **names = arg;
	Datum		values[TASK_COLUMNS];
	bool		nulls[TASK_COLUMNS];

	task_deform(tuple, RelationGetDescr(rel), values, nulls);
	if (!task_is_native(values))
		*names = lappend(*names, TextDatumGetCString(values[ATT_TASK_NAME - 1]));
}

/*
 * adopt(): makes this database's own what was copied into it. Returns how many
 * tasks, messages and plans. A role is looked up by its name; a task whose role does not exist here
 * stays held for that reason. Raises 25006, and 42501 if a task runs as a
 * role that the caller cannot become, or a message was sent by one.
 */
SQL_FUNCTION(revenant_adopt)
{
	Extension	oids;
	Relation	rel;
	List	   *names = NIL;
	ListCell   *cell;
	int64		adopted = 0;

	task_require_writable("adopt");
	oids = *extension_get();
	rel = table_open(oids.task, RowExclusiveLock);
	row_visit(rel, collect_foreign, &names);
	foreach(cell, names)
	{
		char	   *name = lfirst(cell);
		HeapTuple	old;
		Datum		values[TASK_COLUMNS] = {0};
		bool		nulls[TASK_COLUMNS] = {0};
		bool		replace[TASK_COLUMNS] = {0};
		Datum		before[TASK_COLUMNS];
		bool		before_nulls[TASK_COLUMNS];
		char	   *run_as;
		Oid			role;

		do
		{
			CHECK_FOR_INTERRUPTS();
			old = row_find(rel, oids.task_pkey, name);
		} while (old != NULL && !row_lock(rel, old));
		if (old == NULL)
			continue;
		task_deform(old, RelationGetDescr(rel), before, before_nulls);
		run_as = TextDatumGetCString(before[ATT_TASK_RUN_AS - 1]);
		role = get_role_oid(run_as, true);
		if (OidIsValid(role))
			task_require_membership(name, role);
		values[ATT_TASK_RUN_AS_OID - 1] = Int64GetDatum((int64) role);
		values[ATT_TASK_SYSTEM_IDENTIFIER - 1] = Int64GetDatum(task_identifier());
		values[ATT_TASK_DATABASE_OID - 1] = Int64GetDatum((int64) MyDatabaseId);
		values[ATT_TASK_ENABLED_AT - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
		replace[ATT_TASK_ENABLED_AT - 1] = true;
		replace[ATT_TASK_RUN_AS_OID - 1] = true;
		replace[ATT_TASK_SYSTEM_IDENTIFIER - 1] = true;
		replace[ATT_TASK_DATABASE_OID - 1] = true;
		row_update(rel, old, values, nulls, replace);
		CommandCounterIncrement();
		adopted++;
	}
	table_close(rel, NoLock);
	if (adopted > 0)
		task_note_change();
	if (OidIsValid(oids.message_pkey))
		adopted += message_adopt(&oids);
	adopted += plan_adopt(&oids);
	PG_RETURN_INT64(adopted);
}
