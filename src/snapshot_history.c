/*-------------------------------------------------------------------------
 *
 * snapshot_history.c
 *	  Older versions of snapshots: kept by a trigger, read by version or by time.
 *
 * A snapshot table with a history has a row trigger whose argument is how many
 * older versions are kept of each id: it shows in \d and is dumped with the
 * table. It copies a version that is replaced by another one into the table with the same name
 * and "_history" behind, as whoever replaces it, so whatever writes the table
 * keeps its history. What is deleted from the table is deleted from its history.
 *
 * NOTES
 *	  A write that leaves the version as it is replaces it: there is one state
 *	  for each version.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "extension.h"
#include "snapshot.h"

/* ---------------------------------------------------------------- the trigger */

/* Raises 42P01, 39P01: the trigger function was attached by hand to something that it is not for. */
static int
kept_versions(const TriggerData *trigger)
{
	char	   *end;
	long		keep = -1;

	if (trigger->tg_trigger->tgnargs == 1)
		keep = strtol(trigger->tg_trigger->tgargs[0], &end, 10);
	if (trigger->tg_trigger->tgnargs != 1 || end == trigger->tg_trigger->tgargs[0] || *end != '\0' || keep < -1 || keep > PG_INT32_MAX ||
		!TRIGGER_FIRED_FOR_ROW(trigger->tg_event) || !TRIGGER_FIRED_AFTER(trigger->tg_event) ||
		!(TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) || TRIGGER_FIRED_BY_DELETE(trigger->tg_event)))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("revenant._keep_history() is for AFTER UPDATE OR DELETE, for each row"),
				 errdetail("Its argument is how many older versions of each id are kept; -1 keeps all."),
				 errhint("create_snapshot_table() makes this trigger.")));
	return (int) keep;
}

static void
execute(Snapshots *snapshots, SnapshotPlan which, Datum *args, const char *nulls)
{
	int			result = SPI_execute_plan(snapshot_plan(snapshots, which), args, nulls, false, 0);

	if (result != SPI_OK_INSERT && result != SPI_OK_DELETE)
		elog(ERROR, "could not keep the history of a snapshot table: %s", SPI_result_code_string(result));
}

/* Copies the version that was replaced, and removes those that are too many. */
static void
keep_version(Snapshots *snapshots, HeapTuple tuple, int keep)
{
	static const SnapshotColumn copied[] = {
		SNAPSHOT_ID, SNAPSHOT_VERSION, SNAPSHOT_VSN, SNAPSHOT_STATE, SNAPSHOT_UPDATED_AT, SNAPSHOT_DELETED
	};
	Datum		args[lengthof(copied)];
	char		nulls[lengthof(copied) + 1] = "      ";
	Datum		prune[2];
	bool		isnull;

	for (int i = 0; i < (int) lengthof(copied); i++)
	{
		args[i] = snapshot_column(snapshots, tuple, copied[i], &isnull);
		if (isnull)
			nulls[i] = 'n';
	}
	execute(snapshots, PLAN_KEEP, args, nulls);
	if (keep < 0)
		return;
	prune[0] = args[0];
	prune[1] = Int64GetDatum(keep);
	execute(snapshots, PLAN_PRUNE, prune, NULL);
}

static bool
is_other_version(Snapshots *snapshots, HeapTuple old, HeapTuple new)
{
	bool		old_null;
	bool		new_null;
	Datum		before = snapshot_column(snapshots, old, SNAPSHOT_VERSION, &old_null);
	Datum		after = snapshot_column(snapshots, new, SNAPSHOT_VERSION, &new_null);

	return old_null != new_null || (!old_null && DatumGetInt64(before) != DatumGetInt64(after));
}

/* revenant._keep_history(keep): see the top of this file. Raises 39P01, 42P01 where the history table is gone, 42501. */
SQL_FUNCTION(revenant_keep_history)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	Snapshots	snapshots;
	int			keep;
	bool		isnull;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("revenant._keep_history() must be called as a trigger")));
	keep = kept_versions(trigger);
	snapshot_open(RelationGetRelid(trigger->tg_relation), RowExclusiveLock, &snapshots);
	SPI_connect();
	SPI_register_trigger_data(trigger);
	if (TRIGGER_FIRED_BY_UPDATE(trigger->tg_event))
	{
		if (is_other_version(&snapshots, trigger->tg_trigtuple, trigger->tg_newtuple))
			keep_version(&snapshots, trigger->tg_trigtuple, keep);
	}
	else
	{
		Datum		id = snapshot_column(&snapshots, trigger->tg_trigtuple, SNAPSHOT_ID, &isnull);

		if (!isnull)
			execute(&snapshots, PLAN_FORGET, &id, NULL);
	}
	SPI_finish();
	snapshot_close(&snapshots);
	return PointerGetDatum(NULL);
}

/* ---------------------------------------------------------------- what SQL reads */

/* The id that an argument names; 22004. */
static char *
id_argument(FunctionCallInfo fcinfo, int n)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("id must not be null")));
	return text_to_cstring(PG_GETARG_TEXT_PP(n));
}

/* One older version by a statement; false: there is none, or the table has no history. */
static bool
find_older(Snapshots *snapshots, SnapshotPlan which, const char *id, Datum second, SnapshotRow *row)
{
	MemoryContext context = CurrentMemoryContext;
	Datum		args[] = {CStringGetTextDatum(id), second};
	bool		found;

	if (snapshot_history_name(snapshots->table->oid, NULL) == NULL)
		return false;
	SPI_connect();
	if (SPI_execute_plan(snapshot_plan(snapshots, which), args, NULL, false, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not read the history of a snapshot table");
	found = SPI_processed > 0;
	if (found)
	{
		MemoryContext old = MemoryContextSwitchTo(context);

		snapshot_fill(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, row);
		MemoryContextSwitchTo(old);
	}
	SPI_finish();
	return found;
}

/* What load_version() and load_as_of() have in common: the row if it `fits`, else what the history has by a statement. */
static Datum
load_older(FunctionCallInfo fcinfo, const char *what, SnapshotPlan which, bool (*fits) (const SnapshotRow *row, Datum wanted))
{
	Oid			table = snapshot_argument(fcinfo, 0);
	char	   *id = id_argument(fcinfo, 1);
	Snapshots	snapshots;
	SnapshotRow row;
	bool		found;

	if (PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", what)));
	snapshot_open(table, AccessShareLock, &snapshots);
	snapshot_read(&snapshots, id, &row);
	found = (row.exists && fits(&row, PG_GETARG_DATUM(2))) ||
		find_older(&snapshots, which, id, PG_GETARG_DATUM(2), &row);
	snapshot_close(&snapshots);
	if (!found)
		PG_RETURN_NULL();
	return snapshot_datum(fcinfo, id, &row, false);
}

static bool
has_version(const SnapshotRow *row, Datum wanted)
{
	return row->version == DatumGetInt64(wanted);
}

static bool
is_of_time(const SnapshotRow *row, Datum wanted)
{
	return row->updated_at <= DatumGetTimestampTz(wanted);
}

/*
 * load_version(snapshots, id, version): the snapshot as it was at this version;
 * null where it never was, or is not kept any more. Raises 22004, 42501, 42P17.
 */
SQL_FUNCTION(revenant_load_version)
{
	return load_older(fcinfo, "version", PLAN_OLDER, has_version);
}

/*
 * load_as_of(snapshots, id, as_of): the snapshot as it was at this time; null
 * where there was none, or it is not kept any more. Raises 22004, 42501, 42P17.
 */
SQL_FUNCTION(revenant_load_as_of)
{
	return load_older(fcinfo, "as_of", PLAN_OLDER_AT, is_of_time);
}

/* Adds a row to the answer of history(). */
static void
put(ReturnSetInfo *result, FunctionCallInfo fcinfo, const char *id, const SnapshotRow *row)
{
	HeapTupleHeader header = DatumGetHeapTupleHeader(snapshot_datum(fcinfo, id, row, false));
	HeapTupleData tuple = {.t_len = HeapTupleHeaderGetDatumLength(header),.t_data = header};

	tuplestore_puttuple(result->setResult, &tuple);
}

/* Adds what is older than the row. */
static void
put_older(Snapshots *snapshots, const char *id, const SnapshotRow *row, FunctionCallInfo fcinfo)
{
	Datum		arg = CStringGetTextDatum(id);
	SnapshotRow older;

	SPI_connect();
	if (SPI_execute_plan(snapshot_plan(snapshots, PLAN_HISTORY), &arg, NULL, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read the history of a snapshot table");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		snapshot_fill(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, &older);
		if (!row->exists || older.version < row->version)
			put((ReturnSetInfo *) fcinfo->resultinfo, fcinfo, id, &older);
	}
	SPI_finish();
}

/*
 * history(snapshots, id): all versions that are kept, the newest one last, which is the
 * current one. Raises 22004, 42501, 42P17.
 */
SQL_FUNCTION(revenant_history)
{
	Oid			table = snapshot_argument(fcinfo, 0);
	char	   *id = id_argument(fcinfo, 1);
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Snapshots	snapshots;
	SnapshotRow row;

	InitMaterializedSRF(fcinfo, 0);
	snapshot_open(table, AccessShareLock, &snapshots);
	/* first the row: what is replaced after that is in the history when that is read */
	snapshot_read(&snapshots, id, &row);
	if (snapshot_history_name(table, NULL) != NULL)
		put_older(&snapshots, id, &row, fcinfo);
	if (row.exists)
		put(result, fcinfo, id, &row);
	snapshot_close(&snapshots);
	PG_RETURN_NULL();
}
