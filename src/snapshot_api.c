/*-------------------------------------------------------------------------
 *
 * snapshot_api.c
 *	  load, save, remove: snapshots by hand, each with a version that only grows.
 *
 * A save names the version that it was made from, and fails with RV003 where the
 * row has another one by now: of those who save the same version, one wins. A
 * removed id leaves a tombstone, whose version goes on if it is saved again.
 *
 * The idea: optimistic locking by a version column; the tombstone, so that
 * no number is given to two lives of the same id.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "entity_call.h"
#include "error.h"
#include "extension.h"
#include "snapshot.h"

/* A row as a revenant.snapshot, which is what the function that is called returns. */
Datum
snapshot_datum(FunctionCallInfo fcinfo, const char *id, const SnapshotRow *row, bool dirty)
{
	TupleDesc	desc;
	Datum		values[7];
	bool		nulls[7] = {false};

	(void) get_call_result_type(fcinfo, NULL, &desc);
	if (desc == NULL || desc->natts != lengthof(values))
		elog(ERROR, "return type must be revenant.snapshot");
	values[0] = CStringGetTextDatum(id);
	values[1] = Int64GetDatum(row->version);
	values[2] = Int32GetDatum(row->vsn);
	values[3] = PointerGetDatum(row->state);
	nulls[3] = row->state == NULL;
	values[4] = TimestampTzGetDatum(row->updated_at);
	values[5] = BoolGetDatum(row->deleted);
	values[6] = BoolGetDatum(dirty);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}

/* The id that an argument names; 22004, 22023. */
static char *
id_argument(FunctionCallInfo fcinfo, int n)
{
	char	   *id = PG_ARGISNULL(n) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(n));

	if (id == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("id must not be null")));
	if (id[0] == '\0' || strlen(id) > ENTITY_ID_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("an id must have 1 to %d bytes", ENTITY_ID_MAX)));
	return id;
}

/* Raises 25006 where nothing can be written, 25000 in a parallel worker. */
void
snapshot_require_writable(const char *function)
{
	PreventCommandDuringRecovery(function);
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
}

/*
 * load(snapshots, id, for_update): the snapshot, or null where there is none. A
 * removed one is there, with deleted true; dirty where memory is ahead of the row. for_update
 * locks its row to the end of the transaction, with all that memory had in it. Raises 22004, 25006, 42501, 42P17,
 * 55P03.
 */
SQL_FUNCTION(revenant_load)
{
	Oid			table = snapshot_argument(fcinfo, 0);
	char	   *id = id_argument(fcinfo, 1);
	bool		for_update = !PG_ARGISNULL(2) && PG_GETARG_BOOL(2);
	bool		dirty = false;
	Snapshots	snapshots;
	SnapshotRow row;

	if (for_update)
		snapshot_require_writable("revenant.load(for_update)");
	snapshot_open(table, for_update ? RowExclusiveLock : AccessShareLock, &snapshots);
	if (for_update)
	{
		entity_yield(table, id);
		snapshot_lock(&snapshots, id, &row);
	}
	else
		dirty = entity_read(&snapshots, id, &row);
	snapshot_close(&snapshots);
	if (!row.exists)
		PG_RETURN_NULL();
	return snapshot_datum(fcinfo, id, &row, dirty);
}

/* Raises RV003: the row is not at the version that was expected. */
compat_noreturn static void
complain_of_version(const Snapshots *snapshots, const char *id, int64 expected, const SnapshotRow *row)
{
	const char *hint = expected == 0 ? "Load it, and save with its version what is made from that." :
		"Load it, make the change again, and save that.";

	ereport(ERROR,
			(errcode(ERRCODE_RV_VERSION_CONFLICT),
			 expected == 0 ?
			 errmsg("snapshot \"%s\" exists already", id) :
			 errmsg("snapshot \"%s\" is not at version " INT64_FORMAT, id, expected),
			 row->exists ?
			 errdetail("In table \"%s\" it is at version " INT64_FORMAT ", written at %s%s.",
					   RelationGetRelationName(snapshots->rel), row->version, timestamptz_to_str(row->updated_at),
					   row->deleted ? ", and removed" : "") :
			 errdetail("In table \"%s\" there is none.", RelationGetRelationName(snapshots->rel)),
			 errhint("%s", hint)));
}

/* The version that an argument expects; 22004, 22023. */
static int64
expected_argument(FunctionCallInfo fcinfo, int n, int64 lowest)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("expected_version must not be null"),
				 lowest == 0 ? errhint("0 says that there is none yet.") : 0));
	if (PG_GETARG_INT64(n) < lowest)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("expected_version must not be less than " INT64_FORMAT, lowest)));
	return PG_GETARG_INT64(n);
}

/* Whether what there is is what was expected: a removed one is none, too. */
static bool
is_expected(const SnapshotRow *row, int64 expected)
{
	if (expected == 0)
		return !row->exists || row->deleted;
	return row->exists && row->version == expected;
}

/* Writes the next version of a row that was looked at; returns it. RV003, 55000. */
static int64
write_next(Snapshots *snapshots, const char *id, int64 expected, const SnapshotRow *old, SnapshotRow *next)
{
	bool		wrote;

	snapshot_next(old, next);
	wrote = old->exists ? snapshot_update(snapshots, id, old, next) : snapshot_insert(snapshots, id, next);
	if (!wrote)
	{
		SnapshotRow row;

		snapshot_complain_if_suppressed(snapshots, id, old);
		snapshot_read(snapshots, id, &row);
		complain_of_version(snapshots, id, expected, &row);
	}
	return next->version;
}

/*
 * save(snapshots, id, expected_version, state, vsn): writes the next version and
 * returns it. Raises RV003 where the snapshot is not at expected_version (0: there must be none), 22004, 22023,
 * 25006, 42501, 42P17, 55P03, 40001. Takes RowExclusiveLock on the table, and the row's lock.
 */
SQL_FUNCTION(revenant_save)
{
	Oid			table = snapshot_argument(fcinfo, 0);
	char	   *id = id_argument(fcinfo, 1);
	int64		expected = expected_argument(fcinfo, 2, 0);
	SnapshotRow next = {0};
	SnapshotRow row;
	Snapshots	snapshots;
	int64		version;

	snapshot_require_writable("revenant.save()");
	if (PG_ARGISNULL(3) || PG_ARGISNULL(4))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", PG_ARGISNULL(3) ? "state" : "vsn"),
				 PG_ARGISNULL(3) ? errhint("remove() removes a snapshot.") : 0));
	next.state = PG_GETARG_JSONB_P(3);
	next.vsn = PG_GETARG_INT32(4);
	if (next.vsn < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("vsn must not be negative")));
	snapshot_open(table, RowExclusiveLock, &snapshots);
	entity_yield(table, id);
	snapshot_lock(&snapshots, id, &row);
	if (!is_expected(&row, expected))
		complain_of_version(&snapshots, id, expected, &row);
	version = write_next(&snapshots, id, expected, &row, &next);
	snapshot_close(&snapshots);
	PG_RETURN_INT64(version);
}

/*
 * remove(snapshots, id, expected_version): leaves a tombstone as the next version and
 * returns that. Raises RV003, and what save() does.
 */
SQL_FUNCTION(revenant_remove)
{
	Oid			table = snapshot_argument(fcinfo, 0);
	char	   *id = id_argument(fcinfo, 1);
	int64		expected = expected_argument(fcinfo, 2, 1);
	SnapshotRow next = {.deleted = true};
	SnapshotRow row;
	Snapshots	snapshots;
	int64		version;

	snapshot_require_writable("revenant.remove()");
	snapshot_open(table, RowExclusiveLock, &snapshots);
	entity_yield(table, id);
	snapshot_lock(&snapshots, id, &row);
	if (!is_expected(&row, expected) || row.deleted)
		complain_of_version(&snapshots, id, expected, &row);
	next.vsn = row.vsn;
	version = write_next(&snapshots, id, expected, &row, &next);
	snapshot_close(&snapshots);
	PG_RETURN_INT64(version);
}

/*
 * purge_deleted(snapshots, deleted_before): deletes the tombstones that are older
 * than that, with their history; returns how many. After it the versions of such an id begin anew. Raises 22004, 25006,
 * 42501, 42P17.
 */
SQL_FUNCTION(revenant_purge_deleted)
{
	Oid			table = snapshot_argument(fcinfo, 0);
	Oid			types[] = {TIMESTAMPTZOID};
	Datum		args[1];
	Snapshots	snapshots;
	int64		purged;

	snapshot_require_writable("revenant.purge_deleted()");
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("deleted_before must not be null")));
	args[0] = PG_GETARG_DATUM(1);
	snapshot_open(table, RowExclusiveLock, &snapshots);
	SPI_connect();
	if (SPI_execute_with_args(psprintf("DELETE FROM %s AS s WHERE s.deleted AND s.updated_at OPERATOR(pg_catalog.<) $1",
									   quote_qualified_identifier(get_namespace_name(get_rel_namespace(table)), get_rel_name(table))),
							  1, types, args, NULL, false, 0) != SPI_OK_DELETE)
		elog(ERROR, "could not purge tombstones");
	purged = (int64) SPI_processed;
	SPI_finish();
	snapshot_close(&snapshots);
	PG_RETURN_INT64(purged);
}
