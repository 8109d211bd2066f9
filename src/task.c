/*-------------------------------------------------------------------------
 *
 * task.c
 *	  Tasks as SQL sees them: create, drop, enable, disable, adopt, look.
 *
 * {create, drop, enable, disable} × {commit, abort}: each writes the row of
 * revenant.task in the caller's transaction and wakes the supervisor when that
 * ends, either way; what is to be done the supervisor reads from the rows.
 * drop and disable besides stop the runner at once and return when it is gone;
 * a hold that names the transaction keeps the task from being started again
 * before it ends. When it aborts, the hold is over and the row is as before, so
 * the task is started again.
 *
 * NOTES
 *	  Every function that writes checks in this order: that writing is
 *	  possible at all, arguments, membership in the task's role, existence.
 *
 *	  The tables are read and written directly (row.c): that a caller may
 *	  execute the function is all the privilege that is needed on them.
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
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "common/int.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "pgtime.h"
#include "storage/latch.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/numeric.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "compat.h"
#include "debug.h"
#include "error.h"
#include "extension.h"
#include "guc.h"
#include "lease.h"
#include "row.h"
#include "runner.h"
#include "shmem.h"
#include "task.h"
#include "task_state.h"
#include "task_status.h"
#include "worker.h"
#include "zone.h"

/* How long drop_task and disable_task wait for the runner to be gone */
#define STOP_TIMEOUT_US (10 * US_PER_S)

/* The longest duration that a task's column may have */
#define LONGEST_DURATION_US (INT64CONST(3660) * USECS_PER_DAY)

/* Arguments of create_task, by position */
enum
{
	ARG_NAME, ARG_COMMAND, ARG_SCHEDULE, ARG_TIMEZONE, ARG_FOLLOWER_COMMAND, ARG_RUN_AS,
	ARG_RESTART, ARG_MAX_RESTARTS, ARG_RESTART_WINDOW, ARG_BACKOFF_MIN, ARG_BACKOFF_MAX,
	ARG_TIMEOUT, ARG_CATCH_UP, ARG_CLAIM_DELAY, ARG_LEASE, ARG_SETTINGS, ARG_ENABLED, ARG_METADATA
};

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

/* ---------------------------------------------------------------- rows */

/* The identity of this cluster, as a row of ours has it. */
int64
task_identifier(void)
{
	return (int64) GetSystemIdentifier();
}

/* A duration in microseconds, a month counted as 30 days; -1: negative, or longer than ten years. */
static int64
duration_us(const Interval *interval)
{
	int64		days;
	int64		us;

	if (pg_mul_s64_overflow(interval->month, DAYS_PER_MONTH, &days) ||
		pg_add_s64_overflow(days, interval->day, &days) ||
		pg_mul_s64_overflow(days, USECS_PER_DAY, &us) ||
		pg_add_s64_overflow(us, interval->time, &us) ||
		us < 0 || us > LONGEST_DURATION_US)
		return -1;
	return us;
}

/* Whether a row was made in, or adopted by, this database. */
static bool
is_native(const Datum *values)
{
	return DatumGetInt64(values[ATT_TASK_SYSTEM_IDENTIFIER - 1]) == task_identifier() &&
		DatumGetInt64(values[ATT_TASK_DATABASE_OID - 1]) == (int64) MyDatabaseId;
}

/* What the workers need of a row of revenant.task; palloc'd. Needs a snapshot, values may be toasted. */
void
task_parse(HeapTuple tuple, TupleDesc desc, TaskRow *row)
{
	Datum		values[TASK_COLUMNS];
	bool		nulls[TASK_COLUMNS];

	memset(row, 0, sizeof(*row));
	heap_deform_tuple(tuple, desc, values, nulls);
	row->name = TextDatumGetCString(values[ATT_TASK_NAME - 1]);
	row->command = TextDatumGetCString(values[ATT_TASK_COMMAND - 1]);
	row->run_as = TextDatumGetCString(values[ATT_TASK_RUN_AS - 1]);
	row->run_as_oid = (Oid) DatumGetInt64(values[ATT_TASK_RUN_AS_OID - 1]);
	row->lease = nulls[ATT_TASK_LEASE - 1] ? psprintf("task/%s", row->name) :
		TextDatumGetCString(values[ATT_TASK_LEASE - 1]);
	row->enabled = DatumGetBool(values[ATT_TASK_ENABLED - 1]);
	row->native = is_native(values);
	row->backoff_min_us = Max(duration_us(DatumGetIntervalP(values[ATT_TASK_BACKOFF_MIN - 1])), 0);
	row->backoff_max_us = Max(duration_us(DatumGetIntervalP(values[ATT_TASK_BACKOFF_MAX - 1])), row->backoff_min_us);
	row->claim_delay_us = Max(duration_us(DatumGetIntervalP(values[ATT_TASK_CLAIM_DELAY - 1])), 0);
	if (!restart_policy_parse(TextDatumGetCString(values[ATT_TASK_RESTART - 1]), &row->restart))
		row->restart = RESTART_PERMANENT;
	row->max_restarts = Min(DatumGetInt32(values[ATT_TASK_MAX_RESTARTS - 1]), RESTART_FAILURES_MAX);
	row->restart_window_us = Max(duration_us(DatumGetIntervalP(values[ATT_TASK_RESTART_WINDOW - 1])), 1);
	if (!nulls[ATT_TASK_TIMEOUT - 1])
		row->timeout_us = Max(duration_us(DatumGetIntervalP(values[ATT_TASK_TIMEOUT - 1])), 1);
	if (!nulls[ATT_TASK_SETTINGS - 1])
		row->settings = DatumGetJsonbPCopy(values[ATT_TASK_SETTINGS - 1]);
	row->run_requests = DatumGetInt64(values[ATT_TASK_RUN_REQUESTS - 1]);
	row->life.created_at = DatumGetTimestampTz(values[ATT_TASK_CREATED_AT - 1]);
	row->life.enabled_at = DatumGetTimestampTz(values[ATT_TASK_ENABLED_AT - 1]);
	row->has_schedule = !nulls[ATT_TASK_SCHEDULE - 1];
	if (row->has_schedule)
	{
		row->schedule_problem = schedule_parse(TextDatumGetCString(values[ATT_TASK_SCHEDULE - 1]), &row->schedule);
		row->place.anchor = row->life.created_at;
		if (row->schedule.kind == SCHEDULE_CALENDAR && !zone_place(nulls[ATT_TASK_TIMEZONE - 1] ? NULL : TextDatumGetCString(values[ATT_TASK_TIMEZONE - 1]),
						row->life.created_at, &row->place))
			row->schedule_problem = "its time zone does not exist";
	}
	row->catches_up = strcmp(TextDatumGetCString(values[ATT_TASK_CATCH_UP - 1]), "once") == 0;
}

/* Why a task cannot be run as its role now, or NULL. The text is palloc'd. Needs a transaction. */
const char *
task_role_problem(const char *run_as, Oid run_as_oid)
{
	HeapTuple	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(run_as_oid));
	const char *problem = NULL;

	if (!HeapTupleIsValid(tuple))
	{
		if (OidIsValid(get_role_oid(run_as, true)))
			return psprintf("role \"%s\" is not the role it was made for: that one was dropped", run_as);
		return psprintf("role \"%s\" does not exist", run_as);
	}
	if (strcmp(NameStr(((Form_pg_authid) GETSTRUCT(tuple))->rolname), run_as) != 0)
		problem = psprintf("role \"%s\" was renamed to \"%s\"", run_as,
						   NameStr(((Form_pg_authid) GETSTRUCT(tuple))->rolname));
	else if (!COMPAT_NOLOGIN_WORKERS && !((Form_pg_authid) GETSTRUCT(tuple))->rolcanlogin)
		problem = psprintf("role \"%s\" is not permitted to log in", run_as);
	ReleaseSysCache(tuple);
	return problem;
}

/* Refuses where nothing can be written. `function` is its SQL name. */
static void
require_writable(const char *function)
{
	char	   *call = psprintf("revenant.%s()", function);

	PreventCommandDuringRecovery(call);
	PreventCommandIfReadOnly(call);
}

static char *
text_argument(FunctionCallInfo fcinfo, int arg)
{
	return PG_ARGISNULL(arg) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(arg));
}

/* A task's name from argument 0: not null, not empty, not too long. */
static char *
name_argument(FunctionCallInfo fcinfo)
{
	char	   *name = text_argument(fcinfo, 0);

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

/* Raises 42501 unless the caller may become this role. */
static void
require_membership(const char *task, Oid role)
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
		require_membership(task, named);
	if (native && run_as_oid != named && SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(run_as_oid)))
		require_membership(task, run_as_oid);
}

/* The task's row, or 42704; and 42501 if it is not the caller's. */
static HeapTuple
find_task(Relation rel, const Extension *extension, const char *name)
{
	HeapTuple	tuple = row_find(rel, extension->task_pkey, name);
	Datum		values[TASK_COLUMNS];
	bool		nulls[TASK_COLUMNS];

	if (tuple == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("task \"%s\" does not exist", name)));
	heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
	require_task_membership(name, TextDatumGetCString(values[ATT_TASK_RUN_AS - 1]),
							(Oid) DatumGetInt64(values[ATT_TASK_RUN_AS_OID - 1]), is_native(values));
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
		tuple = find_task(rel, extension, name);
	} while (!row_lock(rel, tuple));
	return tuple;
}

/* A change to the one task that a function's first argument names. */
typedef struct TaskChange
{
	char	   *name;
	Extension	oids;
	Relation	rel;			/* revenant.task */
	HeapTuple	row;			/* locked against everybody else until this transaction ends */
} TaskChange;

/* Raises 22004, 22023, 25006, 42501, 42704. */
static void
begin_change(FunctionCallInfo fcinfo, const char *function, TaskChange *change)
{
	require_writable(function);
	change->name = name_argument(fcinfo);
	change->oids = *extension_get();
	change->rel = table_open(change->oids.task, RowExclusiveLock);
	change->row = lock_task(change->rel, &change->oids, change->name);
}

static void
end_change(TaskChange *change)
{
	table_close(change->rel, NoLock);
	changed_here = true;
}

static Datum
column_of(const TaskChange *change, int attribute)
{
	bool		isnull;

	return heap_getattr(change->row, attribute, RelationGetDescr(change->rel), &isnull);
}

/* Writes `enabled`, and with `anew` begins another life: what was counted and planned before is void. */
static void
write_enabled(const TaskChange *change, bool enabled, bool anew)
{
	Datum		values[TASK_COLUMNS] = {0};
	bool		nulls[TASK_COLUMNS] = {0};
	bool		replace[TASK_COLUMNS] = {0};

	values[ATT_TASK_ENABLED - 1] = BoolGetDatum(enabled);
	replace[ATT_TASK_ENABLED - 1] = true;
	values[ATT_TASK_ENABLED_AT - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
	replace[ATT_TASK_ENABLED_AT - 1] = anew;
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
static void
stop_runner(const Extension *extension, const char *name)
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

/* ---------------------------------------------------------------- create_task */

/* An interval argument in microseconds, between `lowest` and ten years; 22004, 22023. */
static int64
duration_argument(FunctionCallInfo fcinfo, int arg, const char *what, int64 lowest_us)
{
	int64		us;

	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", what)));
	us = duration_us(PG_GETARG_INTERVAL_P(arg));
	if (us < lowest_us)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is out of range", what),
				 errdetail("It must be %s, and no longer than ten years.",
						   lowest_us == 0 ? "0 or positive" : "positive")));
	return us;
}

/* A text argument that must be one of a few words; 22004, 22023. */
static char *
word_argument(FunctionCallInfo fcinfo, int arg, const char *what, const char *const *words, int nwords)
{
	char	   *value = text_argument(fcinfo, arg);
	StringInfoData list;

	if (value == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", what)));
	initStringInfo(&list);
	for (int i = 0; i < nwords; i++)
	{
		if (strcmp(value, words[i]) == 0)
			return value;
		appendStringInfo(&list, "%s\"%s\"", i == 0 ? "" : i == nwords - 1 ? " or " : ", ", words[i]);
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for %s: \"%s\"", what, value),
			 errdetail("It must be %s.", list.data)));
	return NULL;				/* not reached */
}

/* A schedule and its time zone (NULL: the database's), checked. `command` is for a hint, or NULL. Raises 22023. */
static void
parse_schedule(const char *text, const char *timezone, const char *command, Schedule *schedule, SchedulePlace *place)
{
	Schedule	swapped;
	const char *problem = schedule_parse(text, schedule);
	TimestampTz next;

	if (problem != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid schedule: \"%s\"", text),
				 errdetail("%s", problem),
				 command != NULL && schedule_parse(command, &swapped) == NULL ?
				 errhint("The command looks like a schedule: the order of the arguments is name, command, schedule.") : 0));
	if (!zone_place(timezone, GetCurrentTimestamp(), place))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 timezone != NULL ? errmsg("time zone \"%s\" not recognized", timezone) :
				 errmsg("the time zone of this database is not recognized")));
	if (timezone != NULL && schedule->kind != SCHEDULE_CALENDAR)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"timezone\" needs a calendar schedule"),
				 errdetail("An interval is the same everywhere.")));
	if (schedule->kind != SCHEDULE_REBOOT && !schedule_next(schedule, place, GetCurrentTimestamp(), &next))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid schedule: \"%s\"", text),
				 errdetail("Its first time is beyond the range of timestamps.")));
}

/* Checks a lease of one's own choice. */
static void
check_lease(const char *lease, const char *name)
{
	if (lease[0] == '\0' || strlen(lease) > LEASE_NAME_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("lease name must have 1 to %d bytes", LEASE_NAME_MAX)));
	if (strncmp(lease, "plan/", 5) == 0 ||
		(strncmp(lease, "task/", 5) == 0 && strcmp(lease + 5, name) != 0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("lease \"%s\" cannot be used by task \"%s\"", lease, name),
				 errdetail("Names that begin with \"task/\" or \"plan/\" belong to the task or plan that they name.")));
}

/*
 * Sets each setting of an object, for good or (not `really`) only to see whether
 * it could be, as a role could SET it. Raises 22023, 42501, 42704.
 */
void
task_apply_settings(Jsonb *settings, Oid role, bool really)
{
	JsonbIterator *iterator = JsonbIteratorInit(&settings->root);
	JsonbIteratorToken token;
	JsonbValue	item;
	char	   *name = NULL;

	while ((token = JsonbIteratorNext(&iterator, &item, true)) != WJB_DONE)
	{
		char	   *value = NULL;

		if (token == WJB_KEY)
			name = pnstrdup(item.val.string.val, item.val.string.len);
		if (token != WJB_VALUE)
			continue;
		if (item.type == jbvString)
			value = pnstrdup(item.val.string.val, item.val.string.len);
		else if (item.type == jbvNumeric)
			value = DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(item.val.numeric)));
		else if (item.type == jbvBool)
			value = item.val.boolean ? "on" : "off";
		else
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid value for setting \"%s\" of a task", name),
					 errdetail("It must be a string, a number, true or false.")));
		(void) set_config_option(name, value, superuser_arg(role) ? PGC_SUSET : PGC_USERSET,
								 really ? PGC_S_SESSION : PGC_S_TEST, GUC_ACTION_SET, really, ERROR, false);
	}
}

/* Checks settings as the task's role, without setting anything. */
static void
check_settings(Jsonb *settings, Oid role)
{
	Oid			user;
	int			context;

	if (!JB_ROOT_IS_OBJECT(settings))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("settings of a task must be a JSON object")));
	GetUserIdAndSecContext(&user, &context);
	/* an error ends the (sub)transaction, and with it this */
	SetUserIdAndSecContext(role, context | SECURITY_LOCAL_USERID_CHANGE);
	task_apply_settings(settings, role, false);
	SetUserIdAndSecContext(user, context);
}

/* The role that a task runs as, which the caller must be able to become. */
static Oid
check_role(const char *run_as)
{
	Oid			role = get_role_oid(run_as, false);

	if (!compat_role_can_become(GetUserId(), role))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to run a task as role \"%s\"", run_as),
				 errdetail("Role \"%s\" is not a member of it.", GetUserNameFromId(GetUserId(), false)),
				 errhint("GRANT %s TO %s", quote_identifier(run_as),
						 quote_identifier(GetUserNameFromId(GetUserId(), false)))));
	if (!COMPAT_NOLOGIN_WORKERS)
	{
		HeapTuple	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(role));
		bool		login = HeapTupleIsValid(tuple) && ((Form_pg_authid) GETSTRUCT(tuple))->rolcanlogin;

		if (HeapTupleIsValid(tuple))
			ReleaseSysCache(tuple);
		if (!login)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("a task cannot run as role \"%s\" on this server: the role is not permitted to log in", run_as),
					 errhint("ALTER ROLE %s LOGIN (it needs no password for this), or use another role; from PostgreSQL 17 on any role will do.",
							 quote_identifier(run_as))));
	}
	return role;
}

/* Writes the row. A name that appears meanwhile is 42710 as well. */
static void
insert_task(Relation rel, const char *name, Datum *values, bool *nulls)
{
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		row_insert(rel, values, nulls);
	}
	PG_CATCH();
	{
		if (geterrcode() != ERRCODE_UNIQUE_VIOLATION)
			PG_RE_THROW();
		MemoryContextSwitchTo(context);
		FlushErrorState();
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("task \"%s\" already exists", name),
				 errhint("drop_task() removes it.")));
	}
	PG_END_TRY();
}

/*
 * create_task(...): see sql/parts/task.sql for the arguments. Raises 22004,
 * 22023, 0A000, 25006, 42501, 42704 (no such role), 42710.
 */
SQL_FUNCTION(revenant_create_task)
{
	static const char *const restarts[] = {"permanent", "transient", "temporary"};
	static const char *const catch_ups[] = {"skip", "once"};
	char	   *name;
	char	   *command = text_argument(fcinfo, ARG_COMMAND);
	char	   *schedule = text_argument(fcinfo, ARG_SCHEDULE);
	char	   *timezone = text_argument(fcinfo, ARG_TIMEZONE);
	char	   *follower_command = text_argument(fcinfo, ARG_FOLLOWER_COMMAND);
	char	   *run_as = text_argument(fcinfo, ARG_RUN_AS);
	char	   *lease = text_argument(fcinfo, ARG_LEASE);
	const char *unsupported = NULL;
	const Extension *extension;
	Schedule	parsed;
	SchedulePlace place;
	Oid			role;
	int64		backoff_min_us;
	int64		backoff_max_us;
	Relation	rel;
	Datum		values[TASK_COLUMNS] = {0};
	bool		nulls[TASK_COLUMNS] = {0};

	require_writable("create_task");
	name = name_argument(fcinfo);
	if (command == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("command of a task must not be null")));
	if (command[strspn(command, " \t\r\n")] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("command of a task must not be empty")));

	/* what is invalid is refused before what is not built yet */
	if (schedule != NULL)
		parse_schedule(schedule, timezone, command, &parsed, &place);
	else if (timezone != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"timezone\" needs a calendar schedule")));
	if (follower_command != NULL)
	{
		if (follower_command[strspn(follower_command, " \t\r\n")] == '\0')
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("follower_command of a task must not be empty")));
		unsupported = "the argument \"follower_command\"";
	}
	(void) word_argument(fcinfo, ARG_RESTART, "restart", restarts, lengthof(restarts));
	if (PG_ARGISNULL(ARG_MAX_RESTARTS))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("max_restarts must not be null")));
	if (PG_GETARG_INT32(ARG_MAX_RESTARTS) < 0 || PG_GETARG_INT32(ARG_MAX_RESTARTS) > RESTART_FAILURES_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_restarts is out of range"),
				 errdetail("It is from 0 to %d.", RESTART_FAILURES_MAX)));
	(void) duration_argument(fcinfo, ARG_RESTART_WINDOW, "restart_window", 1);
	backoff_min_us = duration_argument(fcinfo, ARG_BACKOFF_MIN, "backoff_min", 0);
	backoff_max_us = duration_argument(fcinfo, ARG_BACKOFF_MAX, "backoff_max", 0);
	if (backoff_min_us > backoff_max_us)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("backoff_min must not be longer than backoff_max")));
	if (!PG_ARGISNULL(ARG_TIMEOUT))
		(void) duration_argument(fcinfo, ARG_TIMEOUT, "timeout", US_PER_MS);
	(void) word_argument(fcinfo, ARG_CATCH_UP, "catch_up", catch_ups, lengthof(catch_ups));
	(void) duration_argument(fcinfo, ARG_CLAIM_DELAY, "claim_delay", 0);
	if (lease != NULL)
		check_lease(lease, name);
	if (PG_ARGISNULL(ARG_ENABLED))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("enabled must not be null")));
	if (run_as == NULL)
		run_as = GetUserNameFromId(GetUserId(), false);
	role = check_role(run_as);
	if (!PG_ARGISNULL(ARG_SETTINGS))
		check_settings(PG_GETARG_JSONB_P(ARG_SETTINGS), role);
	if (unsupported != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("this version of revenant does not support %s", unsupported),
				 errhint("Leave it at its default.")));

	extension = extension_get();
	for (int arg = ARG_SCHEDULE; arg <= ARG_METADATA; arg++)
	{
		/* the columns are the arguments in their order, but for one more behind run_as */
		int			column = arg <= ARG_RUN_AS ? arg : arg + 1;

		nulls[column] = PG_ARGISNULL(arg);
		values[column] = nulls[column] ? (Datum) 0 : PG_GETARG_DATUM(arg);
	}
	values[ATT_TASK_NAME - 1] = CStringGetTextDatum(name);
	values[ATT_TASK_COMMAND - 1] = CStringGetTextDatum(command);
	values[ATT_TASK_RUN_AS - 1] = CStringGetTextDatum(run_as);
	nulls[ATT_TASK_RUN_AS - 1] = false;
	values[ATT_TASK_RUN_AS_OID - 1] = Int64GetDatum((int64) role);
	values[ATT_TASK_CREATED_AT - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
	values[ATT_TASK_ENABLED_AT - 1] = values[ATT_TASK_CREATED_AT - 1];
	values[ATT_TASK_SYSTEM_IDENTIFIER - 1] = Int64GetDatum(task_identifier());
	values[ATT_TASK_DATABASE_OID - 1] = Int64GetDatum((int64) MyDatabaseId);
	values[ATT_TASK_RUN_REQUESTS - 1] = Int64GetDatum(0);

	rel = table_open(extension->task, RowExclusiveLock);
	if (row_find(rel, extension->task_pkey, name) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("task \"%s\" already exists", name),
				 errhint("drop_task() removes it.")));
	insert_task(rel, name, values, nulls);
	CommandCounterIncrement();
	table_close(rel, NoLock);
	changed_here = true;
	PG_RETURN_VOID();
}

/* ---------------------------------------------------------------- drop, disable, enable, adopt */

/* drop_task(name): returns when its runner is gone. Raises 22004, 22023, 25006, 42501, 42704, 55006. */
SQL_FUNCTION(revenant_drop_task)
{
	Extension	oids;
	Relation	rel;
	char	   *name;

	require_writable("drop_task");
	name = name_argument(fcinfo);
	oids = *extension_get();
	rel = table_open(oids.task, RowExclusiveLock);
	while (!row_delete(rel, find_task(rel, &oids, name)))
		CHECK_FOR_INTERRUPTS();
	CommandCounterIncrement();
	table_close(rel, NoLock);
	changed_here = true;
	stop_runner(&oids, name);
	PG_RETURN_VOID();
}

/* disable_task(name): returns when its runner is gone. Raises what drop_task does. */
SQL_FUNCTION(revenant_disable_task)
{
	TaskChange	change;

	begin_change(fcinfo, "disable_task", &change);
	write_enabled(&change, false, false);
	end_change(&change);
	stop_runner(&change.oids, change.name);
	PG_RETURN_VOID();
}

/* enable_task(name). Raises 22004, 22023, 25006, 42501, 42704. */
SQL_FUNCTION(revenant_enable_task)
{
	TaskChange	change;

	begin_change(fcinfo, "enable_task", &change);
	if (!DatumGetBool(column_of(&change, ATT_TASK_ENABLED)))
		write_enabled(&change, true, true);
	end_change(&change);
	PG_RETURN_VOID();
}

/* Raises 55006 for a task that is disabled. */
static void
require_enabled(const TaskChange *change)
{
	if (!DatumGetBool(column_of(change, ATT_TASK_ENABLED)))
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

	begin_change(fcinfo, "restart_task", &change);
	require_enabled(&change);
	write_enabled(&change, true, true);
	end_change(&change);
	stop_runner(&change.oids, change.name);
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
		.created_at = DatumGetTimestampTz(column_of(change, ATT_TASK_CREATED_AT)),
		.enabled_at = DatumGetTimestampTz(column_of(change, ATT_TASK_ENABLED_AT))
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

	begin_change(fcinfo, "unquarantine_task", &change);
	if (quarantined_at(&change) != 0)
		write_enabled(&change, DatumGetBool(column_of(&change, ATT_TASK_ENABLED)), true);
	end_change(&change);
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

	begin_change(fcinfo, "run_task", &change);
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
	values[ATT_TASK_RUN_REQUESTS - 1] = Int64GetDatum(DatumGetInt64(column_of(&change, ATT_TASK_RUN_REQUESTS)) + 1);
	replace[ATT_TASK_RUN_REQUESTS - 1] = true;
	row_update(change.rel, change.row, values, nulls, replace);
	CommandCounterIncrement();
	end_change(&change);
	PG_RETURN_VOID();
}

/* Names of the rows that are not this database's. */
static void
collect_foreign(Relation rel, HeapTuple tuple, void *arg)
{
	List	  **names = arg;
	Datum		values[TASK_COLUMNS];
	bool		nulls[TASK_COLUMNS];

	heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
	if (!is_native(values))
		*names = lappend(*names, TextDatumGetCString(values[ATT_TASK_NAME - 1]));
}

/*
 * adopt(): makes this database's own what was copied into it. Returns how many
 * tasks. A role is looked up by its name; a task whose role does not exist here
 * stays held for that reason. Raises 25006, and 42501 if a task runs as a
 * role that the caller cannot become.
 */
SQL_FUNCTION(revenant_adopt)
{
	Extension	oids;
	Relation	rel;
	List	   *names = NIL;
	ListCell   *cell;
	int64		adopted = 0;

	require_writable("adopt");
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
		bool		isnull;
		char	   *run_as;
		Oid			role;

		do
		{
			CHECK_FOR_INTERRUPTS();
			old = row_find(rel, oids.task_pkey, name);
		} while (old != NULL && !row_lock(rel, old));
		if (old == NULL)
			continue;
		run_as = TextDatumGetCString(heap_getattr(old, ATT_TASK_RUN_AS, RelationGetDescr(rel), &isnull));
		role = get_role_oid(run_as, true);
		if (OidIsValid(role))
			require_membership(name, role);
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
	changed_here = adopted > 0 || changed_here;
	PG_RETURN_INT64(adopted);
}

/* ---------------------------------------------------------------- looking */

#define PREVIEW_MAX 1000

/*
 * preview_schedule(schedule, timezone, after, count): the next times of a
 * schedule, those of an interval counted from `after`. Raises 22004, 22023.
 */
SQL_FUNCTION(revenant_preview_schedule)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	char	   *text = text_argument(fcinfo, 0);
	char	   *timezone = text_argument(fcinfo, 1);
	Schedule	schedule;
	SchedulePlace place;
	TimestampTz time;

	if (text == NULL || PG_ARGISNULL(2) || PG_ARGISNULL(3))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"%s\" must not be null", text == NULL ? "schedule" : PG_ARGISNULL(2) ? "after" : "count")));
	if (PG_GETARG_INT32(3) < 0 || PG_GETARG_INT32(3) > PREVIEW_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"count\" is out of range"),
				 errdetail("It is from 0 to %d.", PREVIEW_MAX)));
	time = PG_GETARG_TIMESTAMPTZ(2);
	if (TIMESTAMP_NOT_FINITE(time))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"after\" must be finite")));
	parse_schedule(text, timezone, NULL, &schedule, &place);
	place.anchor = time;
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	for (int i = 0; i < PG_GETARG_INT32(3) && schedule_next(&schedule, &place, time, &time); i++)
	{
		Datum		value = TimestampTzGetDatum(time);
		bool		isnull = false;

		tuplestore_putvalues(result->setResult, result->setDesc, &value, &isnull);
	}
	return (Datum) 0;
}

/* current_task(): the name of the task that this is a run of, or NULL. */
SQL_FUNCTION(revenant_current_task)
{
	const char *name = runner_current_task();

	if (name == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(name));
}

/* current_token(): the token of this run, or NULL. */
SQL_FUNCTION(revenant_current_token)
{
	if (runner_current_token() == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(runner_current_token());
}

/* _task_status(): what shared memory knows of this database's tasks. */
SQL_FUNCTION(revenant_task_status)
{
	const Extension *extension = extension_get();
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	List	   *statuses = task_status_list(MyDatabaseId, extension->extension);
	ListCell   *cell;

	InitMaterializedSRF(fcinfo, 0);
	foreach(cell, statuses)
	{
		const TaskStatus *status = lfirst(cell);
		Datum		values[5];
		bool		nulls[5] = {0};
		int			pid;

		if (status->phase == PHASE_NEW)
			continue;
		pid = worker_runner_pid(&status->key);
		values[0] = CStringGetTextDatum(status->name);
		values[1] = CStringGetTextDatum(phase_name(status->phase));
		values[2] = Int32GetDatum(pid);
		nulls[2] = pid == 0;
		values[3] = TimestampTzGetDatum(status->next_run);
		nulls[3] = status->next_run == 0;
		nulls[4] = status->reason[0] == '\0';
		values[4] = nulls[4] ? (Datum) 0 : CStringGetTextDatum(status->reason);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* Whether this database is a template, in which nothing is supervised. */
static bool
is_template(void)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(MyDatabaseId));
	bool		result = HeapTupleIsValid(tuple) && ((Form_pg_database) GETSTRUCT(tuple))->datistemplate;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return result;
}

/* _supervision(): why no supervisor looks at this database's tasks, or NULL: one does. */
SQL_FUNCTION(revenant_supervision)
{
	const char *problem;

	if (worker_has_supervisor(MyDatabaseId))
		PG_RETURN_NULL();
	if (!guc_database_is_listed(get_database_name(MyDatabaseId)))
		problem = "revenant.databases does not name this database";
	else if (is_template())
		problem = "nothing runs in a template database";
	else if (worker_is_paused(MyDatabaseId))
		problem = "a command needs this database for itself";
	else
		problem = "no supervisor runs in this database: see the server's log, and max_worker_processes";
	PG_RETURN_TEXT_P(cstring_to_text(problem));
}
