/*-------------------------------------------------------------------------
 *
 * row.c
 *	  Direct access to the extension's own tables, by their primary key.
 *
 * NOTES
 *	  Writers of one key exclude each other by the locks of their own chapter
 *	  where they can (a lease's name by its lock F); where they cannot,
 *	  row_lock() waits for the other transaction, and the caller looks again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/pg_collation.h"
#include "commands/sequence.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "row.h"

/* Locks the indexes of an open table, and its toast table with those of that. False when somebody has one of them. */
static bool
try_lock_parts(Relation rel, LOCKMODE mode)
{
	List	   *indexes = RelationGetIndexList(rel);
	Oid			toast = rel->rd_rel->reltoastrelid;
	ListCell   *cell;
	bool		locked = true;

	foreach(cell, indexes)
		locked = locked && ConditionalLockRelationOid(lfirst_oid(cell), mode);
	list_free(indexes);
	if (locked && OidIsValid(toast))
	{
		Relation	toast_rel = NULL;

		locked = row_try_open(toast, mode, &toast_rel);
		if (toast_rel != NULL)
			relation_close(toast_rel, NoLock);
	}
	return locked;
}

/*
 * Opens a table of ours for a caller that must not wait for anybody. False
 * when somebody has a lock on it or on a part of it that excludes this one;
 * *rel is NULL when it does not exist any more. The locks stay to the end of
 * the transaction.
 */
bool
row_try_open(Oid table, LOCKMODE mode, Relation *rel)
{
	if (!ConditionalLockRelationOid(table, mode))
		return false;
	*rel = try_relation_open(table, NoLock);
	if (*rel == NULL)
		UnlockRelationOid(table, mode);
	else if (!try_lock_parts(*rel, mode))
	{
		relation_close(*rel, NoLock);
		*rel = NULL;
		return false;
	}
	return true;
}

static void
init_text_key(ScanKey scankey, const char *key)
{
	ScanKeyInit(scankey, 1, BTEqualStrategyNumber, F_TEXTEQ, CStringGetTextDatum(key));
	scankey->sk_collation = C_COLLATION_OID;	/* names have COLLATE "C" in every table of ours */
}

/* One look by one snapshot: a palloc'd copy, or NULL. */
static HeapTuple
look(Relation rel, Oid index, ScanKey key, Snapshot snapshot)
{
	SysScanDesc scan;
	HeapTuple	tuple;

	scan = systable_beginscan(rel, index, true, snapshot, 1, key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		tuple = heap_copytuple(tuple);
	systable_endscan(scan);
	return tuple;
}

/*
 * The row with this key as it is now: committed, or written by this
 * transaction (which makes it visible to itself by CommandCounterIncrement).
 * A palloc'd copy, or NULL. The caller has opened and locked `rel`, and holds
 * what keeps others from writing the row: a look that is not MVCC could miss
 * one that is updated meanwhile.
 */
HeapTuple
row_find_locked(Relation rel, Oid index, const char *key)
{
	ScanKeyData scankey;

	init_text_key(&scankey, key);
	return look(rel, index, &scankey, SnapshotSelf);
}

/* One that is not locked may be in the middle of an update: then a snapshot sees it. */
static HeapTuple
find(Relation rel, Oid index, ScanKey key)
{
	HeapTuple	tuple = look(rel, index, key, SnapshotSelf);

	if (tuple == NULL && IsolationIsSerializable())
		tuple = look(rel, index, key, SnapshotSelf);
	else if (tuple == NULL)
	{
		Snapshot	latest = RegisterSnapshot(GetLatestSnapshot());

		tuple = look(rel, index, key, latest);
		UnregisterSnapshot(latest);
	}
	return tuple;
}

/*
 * The same for a caller that holds nothing. Only a transaction that is
 * serializable can still miss a row in the middle of an update, if that happens twice, since a look
 * that is MVCC would make it fail with 40001.
 */
HeapTuple
row_find(Relation rel, Oid index, const char *key)
{
	ScanKeyData scankey;

	init_text_key(&scankey, key);
	return find(rel, index, &scankey);
}

/* The same where the key is a bigint. */
HeapTuple
row_find_number(Relation rel, Oid index, int64 key)
{
	ScanKeyData scankey;

	ScanKeyInit(&scankey, 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(key));
	return find(rel, index, &scankey);
}

/* The same where the key is a uuid. */
HeapTuple
row_find_uuid(Relation rel, Oid index, const pg_uuid_t *key)
{
	ScanKeyData scankey;

	ScanKeyInit(&scankey, 1, BTEqualStrategyNumber, F_UUID_EQ, UUIDPGetDatum(key));
	return find(rel, index, &scankey);
}

/* Writes a new row. Raises 23505 if the key is there: callers look before. */
void
row_insert(Relation rel, Datum *values, bool *nulls)
{
	HeapTuple	tuple = heap_form_tuple(RelationGetDescr(rel), values, nulls);

	CatalogTupleInsert(rel, tuple);
	heap_freetuple(tuple);
}

/*
 * The same for a caller that raises an error of its own where the key is there: it
 * must, and at once, since this transaction can go no further then. False: it is.
 */
bool
row_insert_first(Relation rel, Datum *values, bool *nulls)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool inserted = false;

	PG_TRY();
	{
		row_insert(rel, values, nulls);
		inserted = true;
	}
	PG_CATCH();
	{
		if (geterrcode() != ERRCODE_UNIQUE_VIOLATION)
			PG_RE_THROW();
		MemoryContextSwitchTo(context);
		FlushErrorState();
	}
	PG_END_TRY();
	return inserted;
}

/* What an attempt to lock, update or delete a row came to; the caller waits for nobody, or has waited. */
RowLock
row_outcome(TM_Result result)
{
	switch (result)
	{
		case TM_Ok:
			return ROW_LOCKED;
		case TM_BeingModified:
		case TM_WouldBlock:
			return ROW_BUSY;
		default:
			return ROW_CHANGED;
	}
}

/* Locks what is there now: a snapshot of the caller's does not matter. */
static TM_Result
lock_tuple(Relation rel, HeapTuple tuple, LockWaitPolicy policy)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TM_FailureData failure;
	TM_Result	result;

	result = table_tuple_lock(rel, &tuple->t_self, SnapshotAny, slot, GetCurrentCommandId(false),
							  LockTupleExclusive, policy, 0, &failure);
	ExecDropSingleTupleTableSlot(slot);
	return result;
}

/*
 * Locks a row that row_find() gave, waiting for whoever has it. False when it
 * was changed or deleted meanwhile, the caller then finds it again. What it
 * waits for is a transaction, so the deadlock detector sees it.
 */
bool
row_lock(Relation rel, HeapTuple tuple)
{
	return lock_tuple(rel, tuple, LockWaitBlock) == TM_Ok;
}

/* The same for a caller that must not wait for anybody. */
RowLock
row_try_lock(Relation rel, HeapTuple tuple)
{
	return row_outcome(lock_tuple(rel, tuple, LockWaitSkip));
}

/* Replaces the marked columns of a row that this transaction has locked, or that nobody else can write. */
void
row_update(Relation rel, HeapTuple old, Datum *values, bool *nulls, bool *replace)
{
	HeapTuple	tuple = heap_modify_tuple(old, RelationGetDescr(rel), values, nulls, replace);

	CatalogTupleUpdate(rel, &old->t_self, tuple);
	heap_freetuple(tuple);
}

/*
 * Deletes a row that row_find() gave, waiting for whoever has it. False when
 * somebody else changed or deleted it first.
 */
bool
row_delete(Relation rel, HeapTuple old)
{
	TM_FailureData failure;
	TM_Result	result;

	result = table_tuple_delete(rel, &old->t_self, GetCurrentCommandId(true), SnapshotAny,
								InvalidSnapshot, true, &failure, false);
	return result == TM_Ok;
}

/* The same for a caller that must not wait for anybody: ROW_LOCKED says that it is deleted. */
RowLock
row_try_delete(Relation rel, HeapTuple old)
{
	TM_FailureData failure;

	return row_outcome(table_tuple_delete(rel, &old->t_self, GetCurrentCommandId(true), SnapshotAny,
										  InvalidSnapshot, false, &failure, false));
}

/* Deletes what one pass over a key finds. True: nothing was left of it. */
static bool
delete_pass(Relation rel, Oid index, int64 key, int64 *deleted)
{
	Snapshot	latest = NULL;
	ScanKeyData scankey;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		changed = false;
	int64		before = *deleted;

	/* what this transaction wrote or deleted is seen as it is now */
	CommandCounterIncrement();
	if (!IsolationIsSerializable())
		latest = RegisterSnapshot(GetLatestSnapshot());
	ScanKeyInit(&scankey, 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(key));
	scan = systable_beginscan(rel, index, true, latest ? latest : SnapshotSelf, 1, &scankey);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		CHECK_FOR_INTERRUPTS();
		if (row_delete(rel, tuple))
			(*deleted)++;
		else
			changed = true;
	}
	systable_endscan(scan);
	if (latest)
		UnregisterSnapshot(latest);
	/* a look that is not MVCC may have missed a row in the middle of an update */
	return !changed && (latest != NULL || *deleted == before);
}

/*
 * Deletes the rows whose first column, the first one of `index`, is this number,
 * waiting for whoever has one of them. Returns how many. The caller holds what keeps others from inserting such rows;
 * updates may go on. Only a transaction that is serializable may leave
 * a row behind, if it is updated in both of two looks: see row_find().
 */
int64
row_delete_range(Relation rel, Oid index, int64 key)
{
	int64		deleted = 0;

	while (!delete_pass(rel, index, key, &deleted))
		CHECK_FOR_INTERRUPTS();
	CommandCounterIncrement();
	return deleted;
}

/* The value of a sequence of ours as it is now, without a privilege; 0: none was drawn yet. */
int64
row_sequence_value(Oid sequence)
{
	Relation	rel = relation_open(sequence, AccessShareLock);
	Buffer		buffer = ReadBuffer(rel, 0);
	HeapTupleHeader tuple;
	Form_pg_sequence_data row;
	int64		value;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	tuple = (HeapTupleHeader) PageGetItem(BufferGetPage(buffer), PageGetItemId(BufferGetPage(buffer), FirstOffsetNumber));
	row = (Form_pg_sequence_data) ((char *) tuple + tuple->t_hoff);
	value = row->is_called ? row->last_value : 0;
	UnlockReleaseBuffer(buffer);
	relation_close(rel, AccessShareLock);
	return value;
}

/* Calls `visit` for each row as it is now, in no order. The tuple is valid during the call only. */
void
row_visit(Relation rel, RowVisitor visit, void *arg)
{
	SysScanDesc scan;
	HeapTuple	tuple;
	Snapshot	latest = NULL;

	if (!IsolationIsSerializable())
		latest = RegisterSnapshot(GetLatestSnapshot());
	scan = systable_beginscan(rel, InvalidOid, false, latest ? latest : SnapshotSelf, 0, NULL);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		visit(rel, tuple, arg);
	systable_endscan(scan);
	if (latest)
		UnregisterSnapshot(latest);
}
