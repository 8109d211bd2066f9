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

/* Whether a row was made in, or adopted by, this database. */
bool
task_is_native(const Datum *values)
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
	if (!nulls[ATT_TASK_FOLLOWER_COMMAND - 1])
		row->follower_command = TextDatumGetCString(values[ATT_TASK_FOLLOWER_COMMAND - 1]);
	row->run_as = TextDatumGetCString(values[ATT_TASK_RUN_AS - 1]);
	row->run_as_oid = (Oid) DatumGetInt64(values[ATT_TASK_RUN_AS_OID - 1]);
	row->lease = nulls[ATT_TASK_LEASE - 1] ? psprintf("task/%s", row->name) :
		TextDatumGetCString(values[ATT_TASK_LEASE - 1]);
	row->enabled = DatumGetBool(values[ATT_TASK_ENABLED - 1]);
	row->native = task_is_native(values);
	row->backoff_min_us = Max(task_duration_us(DatumGetIntervalP(values[ATT_TASK_BACKOFF_MIN - 1])), 0);
	row->backoff_max_us = Max(task_duration_us(DatumGetIntervalP(values[ATT_TASK_BACKOFF_MAX - 1])), row->backoff_min_us);
	row->claim_delay_us = Max(task_duration_us(DatumGetIntervalP(values[ATT_TASK_CLAIM_DELAY - 1])), 0);
	if (!restart_policy_parse(TextDatumGetCString(values[ATT_TASK_RESTART - 1]), &row->restart))
		row->restart = RESTART_PERMANENT;
	row->max_restarts = Min(DatumGetInt32(values[ATT_TASK_MAX_RESTARTS - 1]), RESTART_FAILURES_MAX);
	row->restart_window_us = Max(task_duration_us(DatumGetIntervalP(values[ATT_TASK_RESTART_WINDOW - 1])), 1);
	if (!nulls[ATT_TASK_TIMEOUT - 1])
		row->timeout_us = Max(task_duration_us(DatumGetIntervalP(values[ATT_TASK_TIMEOUT - 1])), 1);
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
