/*-------------------------------------------------------------------------
 *
 * task_define.c
 *	  What a task may be: create_task, alter_task, and the checks of both.
 *
 * Both fill in a draft of the row and mark what is new in it; what is new is
 * checked, together with what it has to fit. So what can be created can be
 * altered to, and nothing else.
 *
 * What alter_task changes, and what becomes of a run that is under way:
 *
 *		what runs or when		the task begins anew: what was counted of failures
 *		(fields[].anew)			is void, also a quarantine. One that runs all the time
 *								is ended and started again; the run of a schedule
 *								goes on, and the next one is by the new definition.
 *								What still waits for its lease is started anew
 *		enabled					as enable_task and disable_task
 *		anything else			nothing: it counts from the next run or decision on
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "compat.h"
#include "extension.h"
#include "field.h"
#include "lease.h"
#include "row.h"
#include "task.h"
#include "task_change.h"
#include "task_define.h"
#include "zone.h"

/* What of a task is its owner's to say: the arguments of create_task behind the name, in their order. `anew`: another thing to run, or another time. */
static const Field fields[] = {
	{"command", ATT_TASK_COMMAND, FIELD_TEXT, true},
	{"schedule", ATT_TASK_SCHEDULE, FIELD_TEXT, true},
	{"timezone", ATT_TASK_TIMEZONE, FIELD_TEXT, true},
	{"follower_command", ATT_TASK_FOLLOWER_COMMAND, FIELD_TEXT, false},
	{"run_as", ATT_TASK_RUN_AS, FIELD_TEXT, true},
	{"restart", ATT_TASK_RESTART, FIELD_TEXT, false},
	{"max_restarts", ATT_TASK_MAX_RESTARTS, FIELD_INT, false},
	{"restart_window", ATT_TASK_RESTART_WINDOW, FIELD_INTERVAL, false},
	{"backoff_min", ATT_TASK_BACKOFF_MIN, FIELD_INTERVAL, false},
	{"backoff_max", ATT_TASK_BACKOFF_MAX, FIELD_INTERVAL, false},
	{"timeout", ATT_TASK_TIMEOUT, FIELD_INTERVAL, false},
	{"catch_up", ATT_TASK_CATCH_UP, FIELD_TEXT, false},
	{"claim_delay", ATT_TASK_CLAIM_DELAY, FIELD_INTERVAL, false},
	{"lease", ATT_TASK_LEASE, FIELD_TEXT, true},
	{"settings", ATT_TASK_SETTINGS, FIELD_JSON, true},
	{"enabled", ATT_TASK_ENABLED, FIELD_BOOL, false},
	{"metadata", ATT_TASK_METADATA, FIELD_JSON, false},
};

static const FieldSet task_fields = {
	.noun = "a task",
	.key = "name",
	.example = "{\"schedule\": \"5 min\", \"timeout\": null}",
	.fields = fields,
	.count = lengthof(fields)
};

/* What a row of revenant.task is to say */
typedef struct TaskDraft
{
	const char *name;
	bool		creating;
	FieldDraft	row;
} TaskDraft;

StaticAssertDecl(TASK_COLUMNS <= FIELD_COLUMNS_MAX, "a draft has no place for a task");

/* ---------------------------------------------------------------- checks */

/* Raises 22004 where a column that must have a value has none. */
static void
require_value(const TaskDraft *draft, int attribute, const char *what)
{
	if (field_is_null(&draft->row, attribute))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", what)));
}

/* A duration in microseconds, between `lowest` and ten years; 22004, 22023. */
static int64
check_duration(const TaskDraft *draft, int attribute, const char *what, int64 lowest_us)
{
	int64		us;

	require_value(draft, attribute, what);
	us = task_duration_us(DatumGetIntervalP(draft->row.values[attribute - 1]));
	if (us < lowest_us)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is out of range", what),
				 errdetail("It must be %s, and no longer than ten years.",
						   lowest_us == 0 ? "0 or positive" : "positive")));
	return us;
}

/* A text that must be one of a few words; 22004, 22023. */
static void
check_word(const TaskDraft *draft, int attribute, const char *what, const char *const *words, int nwords)
{
	char	   *value;
	StringInfoData list;

	require_value(draft, attribute, what);
	value = field_text(&draft->row, attribute);
	initStringInfo(&list);
	for (int i = 0; i < nwords; i++)
	{
		if (strcmp(value, words[i]) == 0)
			return;
		appendStringInfo(&list, "%s\"%s\"", i == 0 ? "" : i == nwords - 1 ? " or " : ", ", words[i]);
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for %s: \"%s\"", what, value),
			 errdetail("It must be %s.", list.data)));
}

/* A command: not null unless it `may_lack`, and something in it; 22004, 22023. */
static void
check_command(const TaskDraft *draft, int attribute, const char *what, bool may_lack)
{
	char	   *command = field_text(&draft->row, attribute);

	if (!may_lack)
		require_value(draft, attribute, what);
	if (command != NULL && command[strspn(command, " \t\r\n")] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be empty", what)));
}

/* A schedule and its time zone (NULL: the database's), checked. `command` is for a hint, or NULL. Raises 22023. */
void
task_parse_schedule(const char *text, const char *timezone, const char *command, Schedule *schedule, SchedulePlace *place)
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

/* The schedule and its time zone, which have to fit; 22023. */
static void
check_schedule(const TaskDraft *draft)
{
	char	   *schedule = field_text(&draft->row, ATT_TASK_SCHEDULE);
	char	   *timezone = field_text(&draft->row, ATT_TASK_TIMEZONE);
	Schedule	parsed;
	SchedulePlace place;

	if (schedule != NULL)
		task_parse_schedule(schedule, timezone, draft->creating ? field_text(&draft->row, ATT_TASK_COMMAND) : NULL, &parsed, &place);
	else if (timezone != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"timezone\" needs a calendar schedule")));
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

/* The restart policy: what follows the end of a run, how soon, and how often; 22004, 22023. */
static void
check_restart(const TaskDraft *draft)
{
	static const char *const restarts[] = {"permanent", "transient", "temporary"};

	if (field_is_changed(&draft->row, ATT_TASK_RESTART))
		check_word(draft, ATT_TASK_RESTART, "restart", restarts, lengthof(restarts));
	if (field_is_changed(&draft->row, ATT_TASK_MAX_RESTARTS))
	{
		int			allowed;

		require_value(draft, ATT_TASK_MAX_RESTARTS, "max_restarts");
		allowed = DatumGetInt32(draft->row.values[ATT_TASK_MAX_RESTARTS - 1]);
		if (allowed < 0 || allowed > RESTART_FAILURES_MAX)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("max_restarts is out of range"),
					 errdetail("It is from 0 to %d.", RESTART_FAILURES_MAX)));
	}
	if (field_is_changed(&draft->row, ATT_TASK_RESTART_WINDOW))
		(void) check_duration(draft, ATT_TASK_RESTART_WINDOW, "restart_window", 1);
	if ((field_is_changed(&draft->row, ATT_TASK_BACKOFF_MIN) || field_is_changed(&draft->row, ATT_TASK_BACKOFF_MAX)) &&
		check_duration(draft, ATT_TASK_BACKOFF_MIN, "backoff_min", 0) >
		check_duration(draft, ATT_TASK_BACKOFF_MAX, "backoff_max", 0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("backoff_min must not be longer than backoff_max")));
}

/* Without a role it is the caller's own. */
static void
fill_in_role(TaskDraft *draft)
{
	if (field_is_changed(&draft->row, ATT_TASK_RUN_AS) && field_is_null(&draft->row, ATT_TASK_RUN_AS))
		field_set(&draft->row, ATT_TASK_RUN_AS, CStringGetTextDatum(GetUserNameFromId(GetUserId(), false)));
}

/* The role, and the settings, which it must be able to set. */
static void
check_identity(TaskDraft *draft)
{
	Oid			role;

	if (!field_is_changed(&draft->row, ATT_TASK_RUN_AS) && !field_is_changed(&draft->row, ATT_TASK_SETTINGS))
		return;
	role = check_role(field_text(&draft->row, ATT_TASK_RUN_AS));
	if (field_is_changed(&draft->row, ATT_TASK_RUN_AS))
		field_set(&draft->row, ATT_TASK_RUN_AS_OID, Int64GetDatum((int64) role));
	if (!field_is_null(&draft->row, ATT_TASK_SETTINGS))
		task_check_settings(DatumGetJsonbP(draft->row.values[ATT_TASK_SETTINGS - 1]), role);
}

/* Checks what is new in a draft. Raises 0A000, 22004, 22023, 42501, 42704. */
static void
check_draft(TaskDraft *draft)
{
	static const char *const catch_ups[] = {"skip", "once"};

	if (field_is_changed(&draft->row, ATT_TASK_COMMAND))
		check_command(draft, ATT_TASK_COMMAND, "command of a task", false);
	if (field_is_changed(&draft->row, ATT_TASK_SCHEDULE) || field_is_changed(&draft->row, ATT_TASK_TIMEZONE))
		check_schedule(draft);
	if (field_is_changed(&draft->row, ATT_TASK_FOLLOWER_COMMAND))
		check_command(draft, ATT_TASK_FOLLOWER_COMMAND, "follower_command of a task", true);
	check_restart(draft);
	if (field_is_changed(&draft->row, ATT_TASK_TIMEOUT) && !field_is_null(&draft->row, ATT_TASK_TIMEOUT))
		(void) check_duration(draft, ATT_TASK_TIMEOUT, "timeout", US_PER_MS);
	if (field_is_changed(&draft->row, ATT_TASK_CATCH_UP))
		check_word(draft, ATT_TASK_CATCH_UP, "catch_up", catch_ups, lengthof(catch_ups));
	if (field_is_changed(&draft->row, ATT_TASK_CLAIM_DELAY))
		(void) check_duration(draft, ATT_TASK_CLAIM_DELAY, "claim_delay", 0);
	if (field_is_changed(&draft->row, ATT_TASK_LEASE) && !field_is_null(&draft->row, ATT_TASK_LEASE))
		check_lease(field_text(&draft->row, ATT_TASK_LEASE), draft->name);
	if (field_is_changed(&draft->row, ATT_TASK_ENABLED))
		require_value(draft, ATT_TASK_ENABLED, "enabled");
	check_identity(draft);
}

/* ---------------------------------------------------------------- create_task */

/* Raises 42710. */
compat_noreturn static void
complain_of_duplicate(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_DUPLICATE_OBJECT),
			 errmsg("task \"%s\" already exists", name),
			 errhint("alter_task() changes it, drop_task() removes it.")));
}

/*
 * create_task(...): see sql/parts/task.sql for the arguments. Raises 22004,
 * 22023, 0A000, 25006, 42501, 42704 (no such role), 42710.
 */
SQL_FUNCTION(revenant_create_task)
{
	TaskDraft	draft = {.creating = true};
	const Extension *extension;
	Datum		now;
	Relation	rel;

	task_require_writable("create_task");
	draft.name = task_name_argument(fcinfo);
	task_require_not_plans(draft.name, "create_task");
	field_read_arguments(&task_fields, task_fields.count, fcinfo, 1, &draft.row);
	fill_in_role(&draft);
	check_draft(&draft);

	now = TimestampTzGetDatum(GetCurrentTimestamp());
	field_set(&draft.row, ATT_TASK_NAME, CStringGetTextDatum(draft.name));
	field_set(&draft.row, ATT_TASK_CREATED_AT, now);
	field_set(&draft.row, ATT_TASK_ENABLED_AT, now);
	field_set(&draft.row, ATT_TASK_SYSTEM_IDENTIFIER, Int64GetDatum(task_identifier()));
	field_set(&draft.row, ATT_TASK_DATABASE_OID, Int64GetDatum((int64) MyDatabaseId));
	field_set(&draft.row, ATT_TASK_RUN_REQUESTS, Int64GetDatum(0));
	field_set(&draft.row, ATT_TASK_REQUESTS_VOID, Int64GetDatum(0));

	extension = extension_get();
	rel = table_open(extension->task, RowExclusiveLock);
	if (row_find(rel, extension->task_pkey, draft.name) != NULL)
		complain_of_duplicate(draft.name);
	/* a name that appears meanwhile is a duplicate as well */
	if (!row_insert_first(rel, draft.row.values, draft.row.nulls))
		complain_of_duplicate(draft.name);
	CommandCounterIncrement();
	table_close(rel, NoLock);
	task_note_change();
	PG_RETURN_VOID();
}

/* ---------------------------------------------------------------- alter_task */

/* Completes a draft by the row that it changes: what it repeats is no change, unless the same name is another role by now. */
static void
complete_draft(const TaskChange *change, TaskDraft *draft)
{
	Datum		values[TASK_COLUMNS];
	bool		nulls[TASK_COLUMNS];
	bool		names_role = field_is_changed(&draft->row, ATT_TASK_RUN_AS);

	task_deform(change->row, RelationGetDescr(change->rel), values, nulls);
	field_complete(&task_fields, &draft->row, values, nulls);
	if (names_role && !field_is_changed(&draft->row, ATT_TASK_RUN_AS) && !field_is_null(&draft->row, ATT_TASK_RUN_AS))
		draft->row.changed[ATT_TASK_RUN_AS - 1] =
			DatumGetInt64(values[ATT_TASK_RUN_AS_OID - 1]) != (int64) get_role_oid(field_text(&draft->row, ATT_TASK_RUN_AS), true);
}

/*
 * alter_task(name, changes): changes what the object says, null sets null. What
 * becomes of a run under way stands at the top of this file; where it is ended,
 * this returns when it is gone. Raises what create_task and disable_task do, and
 * 22003, 22007 for numbers and intervals.
 */
SQL_FUNCTION(revenant_alter_task)
{
	TaskChange	change;
	TaskDraft	draft = {0};
	bool		was_enabled;
	bool		was_continuous;
	bool		stop;

	task_require_writable("alter_task");
	draft.name = task_name_argument(fcinfo);
	task_require_not_plans(draft.name, "alter_task");
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("changes of a task must not be null")));
	field_read_changes(&task_fields, PG_GETARG_JSONB_P(1), &draft.row);
	fill_in_role(&draft);

	task_begin_change(fcinfo, "alter_task", &change);
	was_enabled = DatumGetBool(task_column(&change, ATT_TASK_ENABLED));
	was_continuous = heap_attisnull(change.row, ATT_TASK_SCHEDULE, RelationGetDescr(change.rel));
	complete_draft(&change, &draft);
	check_draft(&draft);

	stop = was_enabled && field_is_changed(&draft.row, ATT_TASK_ENABLED);
	/* one that runs all the time would never come to it */
	stop = stop || (was_continuous && field_any_changed(&task_fields, &draft.row, true));
	if (field_any_changed(&task_fields, &draft.row, true) || (!was_enabled && field_is_changed(&draft.row, ATT_TASK_ENABLED)))
		field_set(&draft.row, ATT_TASK_ENABLED_AT, TimestampTzGetDatum(GetCurrentTimestamp()));
	if (!was_enabled && field_is_changed(&draft.row, ATT_TASK_ENABLED))
		field_set(&draft.row, ATT_TASK_REQUESTS_VOID, task_column(&change, ATT_TASK_RUN_REQUESTS));
	row_update(change.rel, change.row, draft.row.values, draft.row.nulls, draft.row.changed);
	CommandCounterIncrement();
	task_end_change(&change);
	if (stop)
		task_stop_runner(&change.oids, change.name);
	PG_RETURN_VOID();
}
