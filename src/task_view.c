/*-------------------------------------------------------------------------
 *
 * task_view.c
 *	  What SQL can ask about tasks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "extension.h"
#include "guc.h"
#include "runner.h"
#include "task.h"
#include "task_change.h"
#include "task_define.h"
#include "task_status.h"
#include "worker.h"

#define PREVIEW_MAX 1000


/*
 * preview_schedule(schedule, timezone, after, count): the next times of a
 * schedule, those of an interval counted from `after`. Raises 22004, 22023.
 */
SQL_FUNCTION(revenant_preview_schedule)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	char	   *text = task_text_argument(fcinfo, 0);
	char	   *timezone = task_text_argument(fcinfo, 1);
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
	task_parse_schedule(text, timezone, NULL, &schedule, &place);
	place.anchor = time;
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	for (int i = 0; i < PG_GETARG_INT32(3) && schedule_next(&schedule, &place, time, &time); i++)
	{
		Datum		value = TimestampTzGetDatum(time);
		bool		isnull = false;

		CHECK_FOR_INTERRUPTS();
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
