/*-------------------------------------------------------------------------
 *
 * member_row.c
 *	  The rows of members: who joined a plan, by which name.
 *
 * A name is one member's: who joins, leaves or ends one that has expired has the lock of the
 * name, and so looks at its row without a snapshot.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "extension.h"
#include "locktag.h"
#include "member_row.h"
#include "row.h"
#include "task.h"

static void
parse_row(HeapTuple tuple, TupleDesc desc, MemberRow *row)
{
	Datum		values[MEMBER_COLUMNS];
	bool		nulls[MEMBER_COLUMNS];

	heap_deform_tuple(tuple, desc, values, nulls);
	row->tuple = tuple;
	row->worker = TextDatumGetCString(values[ATT_MEMBER_WORKER - 1]);
	row->member = DatumGetInt64(values[ATT_MEMBER_MEMBER - 1]);
	row->role = (Oid) DatumGetInt64(values[ATT_MEMBER_ROLE_OID - 1]);
	row->capacity = nulls[ATT_MEMBER_CAPACITY - 1] ? 0 : DatumGetInt32(values[ATT_MEMBER_CAPACITY - 1]);
	row->ttl_us = nulls[ATT_MEMBER_TTL - 1] ? 0 : Max(task_duration_us(DatumGetIntervalP(values[ATT_MEMBER_TTL - 1])), 0);
	row->joined_at = DatumGetTimestampTz(values[ATT_MEMBER_JOINED_AT - 1]);
	row->supersedes = nulls[ATT_MEMBER_SUPERSEDES - 1] ? 0 : DatumGetInt64(values[ATT_MEMBER_SUPERSEDES - 1]);
}

/* Calls `visit` for each member of a plan as it is now. */
void
member_visit_rows(const Extension *extension, int64 plan_id, void (*visit) (const MemberRow *row, void *arg), void *arg)
{
	Relation	rel = table_open(extension->member, AccessShareLock);
	Snapshot	latest = IsolationIsSerializable() ? NULL : RegisterSnapshot(GetLatestSnapshot());
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple	tuple;

	ScanKeyInit(&key, ATT_MEMBER_PLAN_ID, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(plan_id));
	scan = systable_beginscan(rel, extension->member_pkey, true, latest ? latest : SnapshotSelf, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		MemberRow	row;

		parse_row(tuple, RelationGetDescr(rel), &row);
		visit(&row, arg);
	}
	systable_endscan(scan);
	if (latest)
		UnregisterSnapshot(latest);
	table_close(rel, AccessShareLock);
}

/* The member of this name, as it is now. The caller has the lock of the name. False: there is none. */
bool
member_find_row(Relation rel, const Extension *extension, int64 plan_id, const char *worker, MemberRow *row)
{
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&keys[0], ATT_MEMBER_PLAN_ID, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(plan_id));
	ScanKeyInit(&keys[1], ATT_MEMBER_WORKER, BTEqualStrategyNumber, F_TEXTEQ, CStringGetTextDatum(worker));
	keys[1].sk_collation = C_COLLATION_OID;
	scan = systable_beginscan(rel, extension->member_pkey, true, SnapshotSelf, 2, keys);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		parse_row(heap_copytuple(tuple), RelationGetDescr(rel), row);
	systable_endscan(scan);
	return HeapTupleIsValid(tuple);
}

static LOCKTAG
name_lock(int64 plan_id, const char *worker)
{
	return locktag_make(LOCK_OTHER, MyDatabaseId,
						hash_bytes_extended((const unsigned char *) worker, (int) strlen(worker), (uint64) plan_id), LOCK_OTHER_MEMBER);
}

/* Excludes who joins or leaves under this name, to the end of the transaction. False, with `wait` false: somebody has it. */
bool
member_lock_name(int64 plan_id, const char *worker, bool wait)
{
	LOCKTAG		tag = name_lock(plan_id, worker);

	return LockAcquire(&tag, ExclusiveLock, false, !wait) != LOCKACQUIRE_NOT_AVAIL;
}

/*
 * Deletes the row of a member whose worker has this name, if it is still there. The caller has the lock of the name.
 * False: somebody has the row, or the table. Waits for nobody.
 */
bool
member_try_delete_row(const Extension *extension, int64 plan_id, const char *worker, int64 member)
{
	Relation	rel;
	MemberRow	row;
	bool		deleted = true;

	if (!row_try_open(extension->member, RowExclusiveLock, &rel) || rel == NULL)
		return false;
	if (member_find_row(rel, extension, plan_id, worker, &row) && row.member == member)
		deleted = row_try_delete(rel, row.tuple) == ROW_LOCKED;
	table_close(rel, NoLock);
	return deleted;
}

/* The same for who waits for whoever has the row. */
void
member_delete_row(const Extension *extension, int64 plan_id, const char *worker, int64 member)
{
	Relation	rel;
	MemberRow	row;

	rel = table_open(extension->member, RowExclusiveLock);
	if (member_find_row(rel, extension, plan_id, worker, &row) && row.member == member)
		(void) row_delete(rel, row.tuple);
	table_close(rel, NoLock);
}
