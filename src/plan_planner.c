/*-------------------------------------------------------------------------
 *
 * plan_planner.c
 *	  Planners in the database: a function of the user's, run by a task.
 *
 * A plan with a planner_function has a task of its name with `plan/` before it, which runs as the plan's owner every
 * replan_every and holds the plan's lease while it does; the run's token is the generation. Its command is two
 * transactions: one says in the plan's row who leads, so that the row is not locked for as long as the function
 * takes; in the other the function is called, and what it returns is published.
 *
 *		the function, or the publication		the run		the row says
 *		succeeds								succeeds	ok, noop
 *		fails									succeeds	error, and which
 *		is refused by its generation			succeeds	fenced
 *		is cancelled, or the run ended			fails		nothing
 *
 * So a planner that fails is tried again at the next time, for ever, and its task is
 * not given up. What it wrote itself is rolled back with its failure, to a savepoint.
 *
 * NOTES
 *	  The task is ours alone: its row is written here, by who has the plan's row locked, and by who may disable any
 *	  task of that role. create_task() and its like refuse such names (task_change.c).
 *
 *	  When the plan is final the task rests: the supervisor disables it when its run is over.
 *
 *	  That all is well is written down at most every ten seconds, since each time is a version of the plan's row.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "parser/parse_func.h"
#include "pgstat.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "compat.h"
#include "debug.h"
#include "error.h"
#include "events.h"
#include "extension.h"
#include "lease_api.h"
#include "plan.h"
#include "plan_xact.h"
#include "restart.h"
#include "result.h"
#include "row.h"
#include "runner.h"
#include "task.h"
#include "task_change.h"

/* How soon a run that failed, as no planner makes it do, is repeated; bounded by replan_every. */
#define BACKOFF_MIN_US (1 * US_PER_S)
#define BACKOFF_MAX_US (10 * US_PER_S)

/* Too short for as many failures as a task may have: a planner's task is never given up. */
#define RESTART_WINDOW_US (10 * US_PER_S)

/* How old what the row says of the latest replan may be */

#define ERROR_MAX 1024			/* bytes of a message that are kept */

/* ---------------------------------------------------------------- its task */

/* A value of a row of revenant.task that is to be, and that it is to be written. */
static void
set(Datum *values, bool *nulls, bool *replace, int attribute, Datum value)
{
	values[attribute - 1] = value;
	nulls[attribute - 1] = false;
	replace[attribute - 1] = true;
}

/* The schedule of a task that runs so often, as schedule_parse() reads it. */
static char *
schedule_text(int64 every_us)
{
	if (every_us % US_PER_S == 0)
		return psprintf("%lld s", (long long) (every_us / US_PER_S));
	if (every_us % US_PER_MS == 0)
		return psprintf("%lld ms", (long long) (every_us / US_PER_MS));
	return psprintf("%lld us", (long long) every_us);
}

/* What the task is by its plan. */
static void
define_task(const PlanRow *plan, Datum *values, bool *nulls, bool *replace)
{
	static const int never[] = {
		ATT_TASK_TIMEZONE, ATT_TASK_FOLLOWER_COMMAND, ATT_TASK_TIMEOUT, ATT_TASK_SETTINGS, ATT_TASK_METADATA
	};
	char	   *name = quote_literal_cstr(plan->name);
	char	   *command = psprintf("SELECT revenant._run_planner(%s, true); SELECT revenant._run_planner(%s, false)", name, name);

	set(values, nulls, replace, ATT_TASK_COMMAND, CStringGetTextDatum(command));
	set(values, nulls, replace, ATT_TASK_SCHEDULE, CStringGetTextDatum(schedule_text(plan->replan_every_us)));
	set(values, nulls, replace, ATT_TASK_RUN_AS, CStringGetTextDatum(plan->owner));
	set(values, nulls, replace, ATT_TASK_RUN_AS_OID, Int64GetDatum((int64) plan->owner_oid));
	set(values, nulls, replace, ATT_TASK_RESTART, CStringGetTextDatum("permanent"));
	set(values, nulls, replace, ATT_TASK_MAX_RESTARTS, Int32GetDatum(RESTART_FAILURES_MAX));
	set(values, nulls, replace, ATT_TASK_RESTART_WINDOW, lease_interval_datum(RESTART_WINDOW_US));
	set(values, nulls, replace, ATT_TASK_BACKOFF_MIN, lease_interval_datum(Min(BACKOFF_MIN_US, plan->replan_every_us)));
	set(values, nulls, replace, ATT_TASK_BACKOFF_MAX, lease_interval_datum(Min(BACKOFF_MAX_US, plan->replan_every_us)));
	set(values, nulls, replace, ATT_TASK_CATCH_UP, CStringGetTextDatum("once"));
	set(values, nulls, replace, ATT_TASK_CLAIM_DELAY, lease_interval_datum(0));
	set(values, nulls, replace, ATT_TASK_LEASE, CStringGetTextDatum(plan_lease_name(plan->name)));
	set(values, nulls, replace, ATT_TASK_SYSTEM_IDENTIFIER, Int64GetDatum(task_identifier()));
	set(values, nulls, replace, ATT_TASK_DATABASE_OID, Int64GetDatum((int64) MyDatabaseId));
	for (int i = 0; i < (int) lengthof(never); i++)
	{
		nulls[never[i] - 1] = true;
		replace[never[i] - 1] = true;
	}
}

/* Begins a change to a plan's task: its row is locked. False: it has none. Waits for whoever has the row. */
static bool
begin_task_change(const Extension *extension, const char *plan, TaskChange *change)
{
	change->name = plan_lease_name(plan);
	change->oids = *extension;
	change->rel = table_open(extension->task, RowExclusiveLock);
	do
	{
		CHECK_FOR_INTERRUPTS();
		change->row = row_find(change->rel, extension->task_pkey, change->name);
	} while (change->row != NULL && !row_lock(change->rel, change->row));
	return change->row != NULL;
}

/*
 * Makes the task of a plan's planner, or (`anew`) has it begin another life: from the commit on it runs
 * at once, though a run that is under way goes on. One that is there otherwise is only brought to
 * what the plan's row says: whether it rests, and when it is due, stays. The caller may change the plan, and has its row locked
 * or has just made it. Locks the row of the task.
 */
void
plan_task_write(const Extension *extension, const PlanRow *row, bool anew)
{
	TaskChange	change;
	Datum		values[TASK_COLUMNS] = {0};
	bool		nulls[TASK_COLUMNS] = {0};
	bool		replace[TASK_COLUMNS] = {0};
	TimestampTz now = GetCurrentTimestamp();
	bool		there = begin_task_change(extension, row->name, &change);
	int64		requests = there ? DatumGetInt64(task_column(&change, ATT_TASK_RUN_REQUESTS)) : 0;

	define_task(row, values, nulls, replace);
	if (!there || anew)
	{
		set(values, nulls, replace, ATT_TASK_ENABLED, BoolGetDatum(true));
		set(values, nulls, replace, ATT_TASK_ENABLED_AT, TimestampTzGetDatum(now));
		set(values, nulls, replace, ATT_TASK_REQUESTS_VOID, Int64GetDatum(requests));
		set(values, nulls, replace, ATT_TASK_RUN_REQUESTS, Int64GetDatum(requests + 1));
	}
	if (there)
		row_update(change.rel, change.row, values, nulls, replace);
	else
	{
		set(values, nulls, replace, ATT_TASK_NAME, CStringGetTextDatum(change.name));
		set(values, nulls, replace, ATT_TASK_CREATED_AT, TimestampTzGetDatum(now));
		row_insert(change.rel, values, nulls);
	}
	CommandCounterIncrement();
	task_end_change(&change);
}

/*
 * Removes the task of a plan's planner, if it has one, and returns when its runner is
 * gone; from the task itself at once. Raises 55006 after ten seconds.
 */
void
plan_task_remove(const Extension *extension, const char *plan)
{
	char	   *name = plan_lease_name(plan);
	Relation	rel = table_open(extension->task, RowExclusiveLock);
	HeapTuple	tuple;

	do
	{
		CHECK_FOR_INTERRUPTS();
		tuple = row_find(rel, extension->task_pkey, name);
	} while (tuple != NULL && !row_delete(rel, tuple));
	CommandCounterIncrement();
	table_close(rel, NoLock);
	if (tuple == NULL)
		return;
	task_note_change();
	task_stop_runner(extension, name);
}

/* The same as begin_task_change() for who must not wait for anybody. False also where somebody has a lock on it. */
static bool
try_task_change(const Extension *extension, const char *plan, TaskChange *change)
{
	change->name = plan_lease_name(plan);
	change->oids = *extension;
	if (!row_try_open(extension->task, RowExclusiveLock, &change->rel) || change->rel == NULL)
		return false;
	change->row = row_find(change->rel, extension->task_pkey, change->name);
	if (change->row != NULL && row_try_lock(change->rel, change->row) == ROW_LOCKED)
		return true;
	table_close(change->rel, NoLock);
	return false;
}

/* Whether the task of a plan's planner, if there is one, is enabled. */
static bool
is_task_enabled(const Extension *extension, const char *plan)
{
	Relation	rel;
	HeapTuple	tuple;
	bool		isnull;
	bool		enabled;

	if (!row_try_open(extension->task, AccessShareLock, &rel) || rel == NULL)
		return false;
	tuple = row_find(rel, extension->task_pkey, plan_lease_name(plan));
	enabled = tuple != NULL && DatumGetBool(heap_getattr(tuple, ATT_TASK_ENABLED, RelationGetDescr(rel), &isnull));
	table_close(rel, AccessShareLock);
	return enabled;
}

/*
 * Disables (`rest`) the task of a plan's planner, if there is one, or enables it again, as
 * another life of it. A run that is under way is left alone, but the supervisor ends
 * what is disabled. To have it rest is for the supervisor: that waits for nobody, and does nothing
 * where somebody has the row, and says false. To enable it waits.
 */
bool
plan_task_rest(const Extension *extension, const char *plan, bool rest)
{
	TaskChange	change;

	if (rest && !is_task_enabled(extension, plan))
		return true;
	if (rest && !try_task_change(extension, plan, &change))
		return false;
	if ((!rest && !begin_task_change(extension, plan, &change)) || DatumGetBool(task_column(&change, ATT_TASK_ENABLED)) == !rest)
	{
		table_close(change.rel, NoLock);
		return true;
	}
	task_write_enabled(&change, !rest, !rest);
	task_end_change(&change);
	return true;
}

/* One more run is asked for, if the task is enabled. Closes the change. */
static void
request_run(TaskChange *change)
{
	Datum		values[TASK_COLUMNS] = {0};
	bool		nulls[TASK_COLUMNS] = {0};
	bool		replace[TASK_COLUMNS] = {0};

	if (!DatumGetBool(task_column(change, ATT_TASK_ENABLED)))
	{
		table_close(change->rel, NoLock);
		return;
	}
	set(values, nulls, replace, ATT_TASK_RUN_REQUESTS,
		Int64GetDatum(DatumGetInt64(task_column(change, ATT_TASK_RUN_REQUESTS)) + 1));
	row_update(change->rel, change->row, values, nulls, replace);
	CommandCounterIncrement();
	task_end_change(change);
}

/* Has a plan's planner run once, from the commit on, beside its schedule; nothing where there is none, or it rests. */
void
plan_task_run_now(const Extension *extension, const char *plan)
{
	TaskChange	change;

	if (begin_task_change(extension, plan, &change))
		request_run(&change);
	else
		table_close(change.rel, NoLock);
}

/* The same for the supervisor, which waits for nobody. False: somebody has the task's row. */
bool
plan_task_try_run_now(const Extension *extension, const char *plan)
{
	TaskChange	change;

	if (!is_task_enabled(extension, plan))
		return true;
	if (!try_task_change(extension, plan, &change))
		return false;
	request_run(&change);
	return true;
}

/* ---------------------------------------------------------------- what became of it */

/* A planner failed, and not like that the last time: to the log, and as an event. */
static void
tell_failure(const PlanUse *use, const ErrorData *error, const char *message)
{
	Event		event = {EVENT_PLAN_REPLAN_FAILED, use->name,.role = use->owner,.detail = {"error", message}};

	ereport(WARNING,
			(errcode(error->sqlerrcode),
			 errmsg("the planner of plan \"%s\" failed: %s", use->name, message),
			 error->detail ? errdetail_internal("%s", error->detail) : 0,
			 error->hint ? errhint("%s", error->hint) : 0,
			 error->context ? errcontext("%s", error->context) : 0));
	event_at_commit(&event);
}

/* Writes down how a replan failed; nothing, if the plan is gone meanwhile. The first one of a kind is told, too. */
static void
note_failure(PlanUse *use, const ErrorData *error)
{
	bool		fenced = plan_error_is_fence(error->sqlerrcode);
	char	   *message = error->message ? error->message : "?";
	PlanChange	change;
	PlanRow		row;
	Datum		values[PLAN_COLUMNS] = {0};
	bool		nulls[PLAN_COLUMNS] = {0};
	bool		replace[PLAN_COLUMNS] = {0};
	const char *outcome = fenced ? "fenced" : "error";

	plan_count(use->entry, fenced ? PLAN_REPLANS_FENCED : PLAN_REPLANS_ERROR, 1);
	if (plan_find_row(extension_get(), use->name, &row) == NULL || row.plan_id != use->plan_id)
		return;
	message = pnstrdup(message, pg_mbcliplen(message, (int) strlen(message), ERROR_MAX));
	plan_begin_change(use->name, &change);
	if (!fenced && plan_replan_is_news(&change, outcome, message))
		tell_failure(use, error, message);
	if (plan_note_replan(&change, outcome, message, values, nulls, replace))
		plan_write(&change, values, nulls, replace);
	plan_end_change(&change);
}

/* ---------------------------------------------------------------- a run */

/* Whether a function that has a planner's arguments can be one: a plain function with the right result. */
bool
plan_function_is_planner(const Extension *extension, Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc form;
	bool		usable;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_proc) GETSTRUCT(tuple);
	usable = form->prokind == PROKIND_FUNCTION && !form->proretset && form->prorettype == extension->split_plan_type;
	ReleaseSysCache(tuple);
	return usable;
}

/* The function that a name means, found as a call of it would be, with a planner's arguments; InvalidOid: none. */
Oid
plan_function_find(const char *name)
{
	static const Oid args[] = {JSONBOID, INT8OID};

	return LookupFuncName(compat_qualified_name_list(name), lengthof(args), args, true);
}

/*
 * The function that a plan names: (cursor jsonb, generation bigint) RETURNS revenant.split_plan. Raises 42883,
 * 42501.
 */
static Oid
require_function(const Extension *extension, const PlanRow *row)
{
	Oid			function = plan_function_find(row->planner_function);

	if (!OidIsValid(function) || !plan_function_is_planner(extension, function))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("planner function \"%s\" of plan \"%s\" does not exist", row->planner_function, row->name),
				 errdetail("It was dropped, or has other arguments or another result now than (cursor jsonb, generation bigint) RETURNS revenant.split_plan."),
				 errhint("Create it again, or name another one: SELECT revenant.alter_plan(%s, '{\"planner_function\": \"...\"}')",
						 quote_literal_cstr(row->name))));
	if (compat_function_aclcheck(function, GetUserId()) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_FUNCTION, get_func_name(function));
	InvokeFunctionExecuteHook(function);
	return function;
}

/* What a planner returned, a revenant.split_plan, as something to be published. */
static void
read_result(Datum composite, PlanPublication *publication)
{
	Datum		values[3];
	bool		nulls[3];

	result_read(composite, lengthof(values), values, nulls, "a planner's result");
	publication->splits = nulls[0] ? NULL : DatumGetJsonbP(values[0]);
	publication->cursor = nulls[1] ? NULL : DatumGetJsonbP(values[1]);
	publication->final = !nulls[2] && DatumGetBool(values[2]);
}

/* Calls the planner as the current user, with a snapshot of its own. A null result: nothing is new. */
static void
call_planner(const Extension *extension, const PlanRow *row, Jsonb *cursor, PlanPublication *publication)
{
	LOCAL_FCINFO(fcinfo, 2);
	FmgrInfo	function;
	PgStat_FunctionCallUsage usage;
	Datum		result;

	fmgr_info(require_function(extension, row), &function);
	/* it would never be called, since there is no cursor before it was */
	if (function.fn_strict && cursor == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("planner function \"%s\" of plan \"%s\" is strict, and there is no cursor yet", row->planner_function, row->name),
				 errhint("ALTER FUNCTION %s(jsonb, bigint) CALLED ON NULL INPUT", row->planner_function)));
	InitFunctionCallInfoData(*fcinfo, &function, 2, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = JsonbPGetDatum(cursor);
	fcinfo->args[0].isnull = cursor == NULL;
	fcinfo->args[1].value = Int64GetDatum(publication->generation);
	fcinfo->args[1].isnull = false;
	PushActiveSnapshot(GetTransactionSnapshot());
	pgstat_init_function_usage(fcinfo, &usage);
	result = FunctionCallInvoke(fcinfo);
	pgstat_end_function_usage(&usage, true);
	/* before its snapshot goes: it may be out of line */
	if (!fcinfo->isnull)
		read_result(result, publication);
	PopActiveSnapshot();
}

/* Calls the planner and publishes what it returns, or does neither: then the error is returned, palloc'd. What ends the run is raised. */
static ErrorData *
try_replan(PlanUse *use, const PlanRow *row, Jsonb *cursor)
{
	PlanPublication publication = {.generation = runner_current_token(),.replan = true};
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		Extension	oids = *extension_get();

		call_planner(&oids, row, cursor, &publication);
		DEBUG_POINT("planner-before-publish");
		plan_publish(use, &publication);
		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		if (ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION)
			ReThrowError(error);
	}
	PG_END_TRY();
	return error;
}

/* The second half of a run. */
static void
replan(PlanUse *use)
{
	Relation	rel = table_open(extension_get()->plan, AccessShareLock);
	PlanRow		row;
	HeapTuple	tuple = plan_find_row(extension_get(), use->name, &row);
	Jsonb	   *cursor = NULL;
	int64		began_us = clock_now_us();
	ErrorData  *error;

	if (tuple == NULL || row.plan_id != use->plan_id)
		plan_raise_unknown(use->name);
	if (!row.final && row.planner_function != NULL)
	{
		bool		isnull;
		Datum		value = heap_getattr(tuple, ATT_PLAN_CURSOR, RelationGetDescr(rel), &isnull);

		if (!isnull)
			cursor = DatumGetJsonbPCopy(value);
	}
	table_close(rel, AccessShareLock);
	if (row.final || row.planner_function == NULL)
		return;
	error = try_replan(use, &row, cursor);
	plan_count(use->entry, PLAN_REPLAN_US, clock_now_us() - began_us);
	if (error != NULL)
		note_failure(use, error);
}

/* The first half: from its commit on what an earlier generation publishes is refused. Nothing where nothing is to be planned any more. */
static void
lead(PlanUse *use)
{
	LeaseNameToken arg = {.function = "revenant._run_planner()",.name = plan_lease_name(use->name),.token = runner_current_token()};
	PlanRow		row;

	if (plan_find_row(extension_get(), use->name, &row) != NULL && row.plan_id == use->plan_id &&
		(row.final || row.planner_function == NULL))
		return;
	lease_fence(&arg);
	plan_lead(use, arg.token, psprintf("task %s", arg.name));
}

/*
 * revenant._run_planner(plan, lead)
 *
 * A half of what the task of a plan's planner does: the one before the function is called, or (lead
 * false) the call. Raises 55000 in any other process, RV001, 25006, 42501, 42704; what cancels it.
 */
SQL_FUNCTION(revenant_run_planner)
{
	char	   *name;
	PlanUse    *use;

	task_require_writable("_run_planner");
	name = plan_name_arg(fcinfo, 0);
	if (runner_current_task() == NULL || strcmp(runner_current_task(), plan_lease_name(name)) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this is not the task of the planner of plan \"%s\"", name),
				 errdetail("revenant._run_planner() is what the task \"%s\" runs.", plan_lease_name(name)),
				 errhint("SELECT revenant.run_task(%s)", quote_literal_cstr(plan_lease_name(name)))));
	use = plan_use(name);
	plan_use_check_worker(use, NULL);
	if (!PG_ARGISNULL(1) && PG_GETARG_BOOL(1))
		lead(use);
	else
		replan(use);
	PG_RETURN_VOID();
}
