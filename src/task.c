/*-------------------------------------------------------------------------
 *
 * task.c
 *	  Tasks: what a row of revenant.task says.
 *
 * The tables are read and written directly (row.c): that a caller may execute a
 * function is all the privilege that is needed on them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "common/int.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "lease.h"
#include "task.h"
#include "zone.h"

/* The longest duration that a task's column may have */
#define LONGEST_DURATION_US (INT64CONST(3660) * USECS_PER_DAY)

/* The identity of this cluster, as a row of ours has it. */
int64
task_identifier(void)
{
	return (int64) GetSystemIdentifier();
}

/* A duration in microseconds, a month counted as 30 days; -1: negative, or longer than ten years. */
int64
task_duration_us(const Interval *interval)
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

/* Whether a row with these two columns was made in, or adopted by, this database. */
bool
task_row_is_native(Datum system_identifier, Datum database_oid)
{
	return DatumGetInt64(system_identifier) == task_identifier() && DatumGetInt64(database_oid) == (int64) MyDatabaseId;
}

/* The same of a row of revenant.task. */
bool
task_is_native(const Datum *values)
{
	return task_row_is_native(values[ATT_TASK_SYSTEM_IDENTIFIER - 1], values[ATT_TASK_DATABASE_OID - 1]);
}

/*
 * The columns of a row of revenant.task. Raises XX001 where one has no value that
 * every task has: a superuser can write anything there.
 */
void
task_deform(HeapTuple tuple, TupleDesc desc, Datum *values, bool *nulls)
{
	static const int optional[] = {
		ATT_TASK_SCHEDULE, ATT_TASK_TIMEZONE, ATT_TASK_FOLLOWER_COMMAND, ATT_TASK_TIMEOUT, ATT_TASK_LEASE, ATT_TASK_SETTINGS,
		ATT_TASK_METADATA
	};
	bool		may_lack[TASK_COLUMNS] = {0};

	for (int i = 0; i < (int) lengthof(optional); i++)
		may_lack[optional[i] - 1] = true;
	heap_deform_tuple(tuple, desc, values, nulls);
	for (int i = 0; i < TASK_COLUMNS; i++)
	{
		if (nulls[i] && !may_lack[i])
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("a row of revenant.task has no \"%s\"", NameStr(TupleDescAttr(desc, i)->attname)),
					 errdetail("Tasks are written by the functions of revenant only."),
					 errhint("DELETE the row as a superuser, and create the task again.")));
	}
}

static char *
text_of(const Datum *values, int attribute)
{
	return TextDatumGetCString(values[attribute - 1]);
}

/* A duration of at least `lowest_us`; else that, and a problem of the row. */
static int64
parse_duration(TaskRow *row, const Datum *values, int attribute, const char *what, int64 lowest_us)
{
	int64		us = task_duration_us(DatumGetIntervalP(values[attribute - 1]));

	if (us < lowest_us)
		row->problem = psprintf("its %s is out of range", what);
	return Max(us, lowest_us);
}

/* The schedule, in its time zone or the database's. */
static void
parse_schedule(TaskRow *row, const Datum *values, const bool *nulls)
{
	const char *problem = schedule_parse(text_of(values, ATT_TASK_SCHEDULE), &row->schedule);

	row->place.anchor = row->life.created_at;
	if (row->schedule.kind == SCHEDULE_CALENDAR &&
		!zone_place(nulls[ATT_TASK_TIMEZONE - 1] ? NULL : text_of(values, ATT_TASK_TIMEZONE), row->life.created_at, &row->place))
		problem = "its time zone does not exist";
	if (problem != NULL)
		row->problem = psprintf("its schedule cannot be used: %s", problem);
}

/* What follows the end of a run. */
static void
parse_restart(TaskRow *row, const Datum *values)
{
	int			allowed = DatumGetInt32(values[ATT_TASK_MAX_RESTARTS - 1]);

	if (!restart_policy_parse(text_of(values, ATT_TASK_RESTART), &row->restart))
		row->problem = "its restart is none of permanent, transient, temporary";
	row->max_restarts = Min(Max(allowed, 0), RESTART_FAILURES_MAX);
	if (allowed != row->max_restarts)
		row->problem = "its max_restarts is out of range";
	row->restart_window_us = parse_duration(row, values, ATT_TASK_RESTART_WINDOW, "restart_window", 1);
	row->backoff_min_us = parse_duration(row, values, ATT_TASK_BACKOFF_MIN, "backoff_min", 0);
	row->backoff_max_us = parse_duration(row, values, ATT_TASK_BACKOFF_MAX, "backoff_max", row->backoff_min_us);
}

/*
 * What the workers need of a row of revenant.task; palloc'd. What cannot be
 * used is its `problem`. Needs a snapshot, values may be toasted. Raises XX001.
 */
void
task_parse(HeapTuple tuple, TupleDesc desc, TaskRow *row)
{
	Datum		values[TASK_COLUMNS];
	bool		nulls[TASK_COLUMNS];
	const char *catch_up;

	memset(row, 0, sizeof(*row));
	task_deform(tuple, desc, values, nulls);
	row->name = text_of(values, ATT_TASK_NAME);
	row->command = text_of(values, ATT_TASK_COMMAND);
	if (!nulls[ATT_TASK_FOLLOWER_COMMAND - 1])
		row->follower_command = text_of(values, ATT_TASK_FOLLOWER_COMMAND);
	row->run_as = text_of(values, ATT_TASK_RUN_AS);
	row->run_as_oid = (Oid) DatumGetInt64(values[ATT_TASK_RUN_AS_OID - 1]);
	row->enabled = DatumGetBool(values[ATT_TASK_ENABLED - 1]);
	row->native = task_is_native(values);
	row->run_requests = DatumGetInt64(values[ATT_TASK_RUN_REQUESTS - 1]);
	row->requests_void = DatumGetInt64(values[ATT_TASK_REQUESTS_VOID - 1]);
	row->life.created_at = DatumGetTimestampTz(values[ATT_TASK_CREATED_AT - 1]);
	row->life.enabled_at = DatumGetTimestampTz(values[ATT_TASK_ENABLED_AT - 1]);

	row->lease = nulls[ATT_TASK_LEASE - 1] ? psprintf("task/%s", row->name) : text_of(values, ATT_TASK_LEASE);
	if (row->lease[0] == '\0' || strlen(row->lease) > LEASE_NAME_MAX)
		row->problem = "its lease cannot have this name";
	row->claim_delay_us = parse_duration(row, values, ATT_TASK_CLAIM_DELAY, "claim_delay", 0);
	parse_restart(row, values);
	if (!nulls[ATT_TASK_TIMEOUT - 1])
		row->timeout_us = parse_duration(row, values, ATT_TASK_TIMEOUT, "timeout", 1);
	if (!nulls[ATT_TASK_SETTINGS - 1])
		row->settings = DatumGetJsonbPCopy(values[ATT_TASK_SETTINGS - 1]);
	if (row->settings != NULL && !JB_ROOT_IS_OBJECT(row->settings))
		row->problem = "its settings are no JSON object";
	catch_up = text_of(values, ATT_TASK_CATCH_UP);
	row->catches_up = strcmp(catch_up, "once") == 0;
	if (!row->catches_up && strcmp(catch_up, "skip") != 0)
		row->problem = "its catch_up is neither skip nor once";
	row->has_schedule = !nulls[ATT_TASK_SCHEDULE - 1];
	if (row->has_schedule)
		parse_schedule(row, values, nulls);
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
