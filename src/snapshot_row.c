/*-------------------------------------------------------------------------
 *
 * snapshot_row.c
 *	  The rows of a snapshot table: read, locked and written by their key.
 *
 * Everything is done as the caller. In general that is a prepared statement: it
 * checks the caller's privileges and the table's row security, fires triggers,
 * finds partitions. Where there is none of that, and the caller has all rights on
 * the table (Snapshots.plain), the row is found and updated without the executor,
 * which is what a call of an entity costs beside its handler.
 *
 * NOTES
 *	  In a transaction with a snapshot of its own (REPEATABLE READ and above) rows are
 *	  locked and written by statements only: what PostgreSQL does there when a row
 *	  was changed meanwhile (40001) is what is to happen.
 *
 *	  Who finds the row busy waits for it in a queue (Q), a lock of ours that is given back when
 *	  the row is written or the table closed: so one process at a time waits for the row itself, and the next one wakes
 *	  up while this one's commit is flushed. PostgreSQL's own queue is one for each version of a
 *	  row; with each commit all who wait would wake up, see that there is a newer version, and
 *	  queue for that. Nobody asks for Q who has the row, and who has Q has the row or waits for it: so whoever
 *	  waits for Q would wait for that process or a later one anyway, and no order of locks changes.
 *
 *	  A row that was locked is written only if it is still the very same tuple:
 *	  the handler of an entity, or a trigger, may have written it in between.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "digest.h"
#include "locktag.h"
#include "snapshot.h"

/* ---------------------------------------------------------------- without the executor */

/* The value of a column of ours in a row of the table. */
Datum
snapshot_column(const Snapshots *snapshots, HeapTuple tuple, SnapshotColumn which, bool *isnull)
{
	return heap_getattr(tuple, snapshots->table->attribute[which], RelationGetDescr(snapshots->rel), isnull);
}

/*
 * Puts the columns of ours into `row`, each from its place in the tuple (0: it is not
 * there). A column that is null says the least. The state is a copy in the current context.
 */
static void
fill(HeapTuple tuple, TupleDesc desc, const AttrNumber *places, SnapshotRow *row)
{
	Datum		values[SNAPSHOT_COLUMNS];
	bool		nulls[SNAPSHOT_COLUMNS];

	for (int i = SNAPSHOT_VERSION; i < SNAPSHOT_COLUMNS; i++)
	{
		nulls[i] = places[i] == 0;
		if (!nulls[i])
			values[i] = heap_getattr(tuple, places[i], desc, &nulls[i]);
	}
	row->exists = true;
	row->version = nulls[SNAPSHOT_VERSION] ? 0 : DatumGetInt64(values[SNAPSHOT_VERSION]);
	row->vsn = nulls[SNAPSHOT_VSN] ? 1 : DatumGetInt32(values[SNAPSHOT_VSN]);
	row->state = nulls[SNAPSHOT_STATE] ? NULL : DatumGetJsonbPCopy(values[SNAPSHOT_STATE]);
	row->updated_at = nulls[SNAPSHOT_UPDATED_AT] ? 0 : DatumGetTimestampTz(values[SNAPSHOT_UPDATED_AT]);
	row->deleted = !nulls[SNAPSHOT_DELETED] && DatumGetBool(values[SNAPSHOT_DELETED]);
	row->reserved = nulls[SNAPSHOT_RESERVED] ? 0 : DatumGetInt64(values[SNAPSHOT_RESERVED]);
}

/* A row of the table itself. */
static void
fill_from_tuple(const Snapshots *snapshots, HeapTuple tuple, SnapshotRow *row)
{
	fill(tuple, RelationGetDescr(snapshots->rel), snapshots->table->attribute, row);
	row->tid = tuple->t_self;
	row->xmin = HeapTupleHeaderGetRawXmin(tuple->t_data);
}

/* The row with this id as a snapshot sees it: its place. False: there is none. */
static bool
find_tuple(const Snapshots *snapshots, const char *id, Snapshot snapshot, HeapTuple *copy)
{
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, snapshots->table->attribute[SNAPSHOT_ID], BTEqualStrategyNumber, F_TEXTEQ, CStringGetTextDatum(id));
	key.sk_collation = snapshots->table->collation;
	scan = systable_beginscan(snapshots->rel, snapshots->table->index, true, snapshot, 1, &key);
	tuple = systable_getnext(scan);
	*copy = HeapTupleIsValid(tuple) ? heap_copytuple(tuple) : NULL;
	systable_endscan(scan);
	return *copy != NULL;
}

static void
read_plain(const Snapshots *snapshots, const char *id, SnapshotRow *row)
{
	Snapshot	snapshot;
	HeapTuple	tuple;

	CommandCounterIncrement();	/* as a statement sees what the command that calls this has written so far */
	snapshot = RegisterSnapshot(GetTransactionSnapshot());
	if (find_tuple(snapshots, id, snapshot, &tuple))
		fill_from_tuple(snapshots, tuple, row);
	UnregisterSnapshot(snapshot);
}

/* Whether a row that was locked still has this id: somebody may have given it another one. */
static bool
has_id(const Snapshots *snapshots, HeapTuple tuple, const char *id)
{
	bool		isnull;
	Datum		value = snapshot_column(snapshots, tuple, SNAPSHOT_ID, &isnull);

	return !isnull && DatumGetBool(DirectFunctionCall2Coll(texteq, snapshots->table->collation, value, CStringGetTextDatum(id)));
}

/*
 * Finds the newest row with this id and locks it. False: there is none. `result` is what
 * table_tuple_lock() says: TM_WouldBlock where somebody else has the row and it is not to be waited for.
 */
static bool
try_lock(const Snapshots *snapshots, const char *id, LockWaitPolicy wait, TupleTableSlot *slot, TM_Result *result)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TM_FailureData failure;
	HeapTuple	tuple;
	bool		found = find_tuple(snapshots, id, snapshot, &tuple);

	if (found)
		*result = table_tuple_lock(snapshots->rel, &tuple->t_self, snapshot, slot, GetCurrentCommandId(false),
								   LockTupleNoKeyExclusive, wait, TUPLE_LOCK_FLAG_FIND_LAST_VERSION, &failure);
	UnregisterSnapshot(snapshot);
	return found;
}

/* Takes Q of an id. 55P03, 40P01. */
static void
enter_queue(Snapshots *snapshots, const char *id)
{
	uint8		digest[DIGEST_BYTES];

	digest_name(snapshots->table->oid, id, digest);
	snapshots->queue = locktag_of_entity(MyDatabaseId, digest, LOCK_OTHER_QUEUE);
	(void) LockAcquire(&snapshots->queue, ExclusiveLock, false, false);
	snapshots->queued = true;
}

/*
 * Locks a row. Waits for whoever has it: lock_timeout and the deadlock detector see that. A
 * caller that waits for nobody is told by false that somebody has it.
 */
static bool
lock_plain(Snapshots *snapshots, const char *id, bool wait, SnapshotRow *row)
{
	TupleTableSlot *slot = table_slot_create(snapshots->rel, NULL);
	TM_Result	result = TM_Deleted;

	/* what the command that calls this has written counts: locking its old version would fail for ever */
	CommandCounterIncrement();
	snapshot_leave_queue(snapshots);
	while (try_lock(snapshots, id, snapshots->queued ? LockWaitBlock : LockWaitSkip, slot, &result))
	{
		CHECK_FOR_INTERRUPTS();
		if (result == TM_WouldBlock)
		{
			if (!wait)
				break;
			enter_queue(snapshots, id);
		}
		else if (result == TM_Ok)
		{
			HeapTuple	tuple = ExecCopySlotHeapTuple(slot);

			tuple->t_self = slot->tts_tid;
			if (has_id(snapshots, tuple, id))
			{
				fill_from_tuple(snapshots, tuple, row);
				row->tuple = tuple;
				row->command = GetCurrentCommandId(false);
				break;
			}
		}
		ExecClearTuple(slot);
	}
	ExecDropSingleTupleTableSlot(slot);
	return result != TM_WouldBlock;
}

/* Whether a row that this transaction has locked is still as it was then. */
static bool
is_same_tuple(const Snapshots *snapshots, const SnapshotRow *old)
{
	TupleTableSlot *slot = table_slot_create(snapshots->rel, NULL);
	ItemPointerData tid = old->tid;
	bool		same = table_tuple_fetch_row_version(snapshots->rel, &tid, SnapshotSelf, slot);

	ExecDropSingleTupleTableSlot(slot);
	return same;
}

static void
set_column(const Snapshots *snapshots, TupleTableSlot *slot, SnapshotColumn which, Datum value, bool isnull)
{
	slot->tts_values[snapshots->table->attribute[which] - 1] = value;
	slot->tts_isnull[snapshots->table->attribute[which] - 1] = isnull;
}

/* The old row with the columns of ours replaced. */
static void
fill_slot(const Snapshots *snapshots, HeapTuple old, const SnapshotRow *row, TupleTableSlot *slot)
{
	heap_deform_tuple(old, RelationGetDescr(snapshots->rel), slot->tts_values, slot->tts_isnull);
	set_column(snapshots, slot, SNAPSHOT_VERSION, Int64GetDatum(row->version), false);
	set_column(snapshots, slot, SNAPSHOT_VSN, Int32GetDatum(row->vsn), false);
	set_column(snapshots, slot, SNAPSHOT_STATE, PointerGetDatum(row->state), row->state == NULL);
	set_column(snapshots, slot, SNAPSHOT_UPDATED_AT, TimestampTzGetDatum(row->updated_at), false);
	set_column(snapshots, slot, SNAPSHOT_DELETED, BoolGetDatum(row->deleted), false);
	set_column(snapshots, slot, SNAPSHOT_RESERVED, Int64GetDatum(row->reserved), false);
	(void) ExecStoreVirtualTuple(slot);
}

/* Whether the executor has to look at a new row: at CHECK constraints, or to say which column must not be null. */
static bool
needs_check(TupleDesc desc, const TupleTableSlot *slot)
{
	if (desc->constr == NULL)
		return false;
	if (desc->constr->num_check > 0)
		return true;
	for (int i = 0; desc->constr->has_not_null && i < desc->natts; i++)
	{
		if (slot->tts_isnull[i] && TupleDescAttr(desc, i)->attnotnull)
			return true;
	}
	return false;
}

static void
check_constraints(Relation rel, TupleTableSlot *slot)
{
	EState	   *estate = CreateExecutorState();
	ResultRelInfo *target = makeNode(ResultRelInfo);

	PushActiveSnapshot(GetTransactionSnapshot());
	InitResultRelInfo(target, rel, 0, NULL, 0);
	ExecConstraints(target, slot, estate);
	PopActiveSnapshot();
	FreeExecutorState(estate);
}

/* Enters a row that was written into the indexes that need it. */
static void
update_indexes(Relation rel, TupleTableSlot *slot, CompatUpdateIndexes which)
{
	EState	   *estate = CreateExecutorState();
	ResultRelInfo *target = makeNode(ResultRelInfo);

	PushActiveSnapshot(GetTransactionSnapshot());
	InitResultRelInfo(target, rel, 0, NULL, 0);
	ExecOpenIndices(target, false);
	if (target->ri_NumIndices > 0)
		(void) compat_insert_index_tuples(target, slot, estate, which);
	ExecCloseIndices(target);
	PopActiveSnapshot();
	FreeExecutorState(estate);
}

/*
 * As ExecSimpleRelationUpdate(), but most updates change no indexed column and find place on
 * their page: they do not open the indexes.
 */
static bool
update_plain(const Snapshots *snapshots, const SnapshotRow *old, SnapshotRow *row)
{
	Relation	rel = snapshots->rel;
	ItemPointerData tid = old->tid;
	TupleTableSlot *slot;
	TM_FailureData failure;
	LockTupleMode mode;
	CompatUpdateIndexes indexes;
	TM_Result	result;
	bool		pushed = !ActiveSnapshotSet();	/* what is out of line needs one */

	/* as long as no command of this transaction has ended, heap_update() sees what it wrote */
	if (old->command != GetCurrentCommandId(false) && !is_same_tuple(snapshots, old))
		return false;
	CheckCmdReplicaIdentity(rel, CMD_UPDATE);
	slot = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsVirtual);
	fill_slot(snapshots, old->tuple, row, slot);
	if (pushed)
		PushActiveSnapshot(GetTransactionSnapshot());
	if (needs_check(RelationGetDescr(rel), slot))
		check_constraints(rel, slot);
	result = table_tuple_update(rel, &tid, slot, GetCurrentCommandId(true), GetActiveSnapshot(), InvalidSnapshot, true, &failure,
								&mode, &indexes);
	if (result == TM_Ok && compat_updates_indexes(indexes))
		update_indexes(rel, slot, indexes);
	if (pushed)
		PopActiveSnapshot();
	row->tid = slot->tts_tid;
	ExecDropSingleTupleTableSlot(slot);
	if (result != TM_Ok && result != TM_SelfModified)
		elog(ERROR, "could not write a row of table \"%s\" that is locked: %d", RelationGetRelationName(rel), result);
	if (result == TM_Ok)
		CommandCounterIncrement();
	return result == TM_Ok;
}

/*
 * Waits until a row with this id that another transaction has inserted is
 * committed or gone. False when there was none. For tables that some callers use without the executor only.
 */
bool
snapshot_wait_for_insert(Snapshots *snapshots, const char *id)
{
	SnapshotData dirty;
	HeapTuple	tuple;

	InitDirtySnapshot(dirty);
	if (!find_tuple(snapshots, id, &dirty, &tuple) || !TransactionIdIsValid(dirty.xmin))
		return false;
	if (dirty.speculativeToken != 0)
		SpeculativeInsertionWait(dirty.xmin, dirty.speculativeToken);
	else
		XactLockTableWait(dirty.xmin, snapshots->rel, &tuple->t_self, XLTW_None);
	return true;
}

/* ---------------------------------------------------------------- by statements */

/* The columns that our statements select, in their order, into `row`. The state is a copy in the current context. */
void
snapshot_fill(HeapTuple tuple, TupleDesc desc, SnapshotRow *row)
{
	static const AttrNumber short_list[SNAPSHOT_COLUMNS] = {0, 1, 2, 3, 4, 5, 0};
	static const AttrNumber long_list[SNAPSHOT_COLUMNS] = {0, 1, 2, 3, 4, 5, 6};
	bool		isnull;
	Datum		value;

	memset(row, 0, sizeof(*row));
	fill(tuple, desc, desc->natts < 8 ? short_list : long_list, row);
	if (desc->natts < 8)
		return;
	value = heap_getattr(tuple, 7, desc, &isnull);
	if (!isnull)
		row->tid = *(ItemPointer) DatumGetPointer(value);
	value = heap_getattr(tuple, 8, desc, &isnull);
	row->xmin = DatumGetTransactionId(value);
}

static void
select_row(Snapshots *snapshots, const char *id, SnapshotPlan which, SnapshotRow *row)
{
	MemoryContext context = CurrentMemoryContext;
	Datum		args[] = {CStringGetTextDatum(id)};
	int			result;

	SPI_connect();
	result = SPI_execute_plan(snapshot_plan(snapshots, which), args, NULL, false, 1);
	if (result != SPI_OK_SELECT)
		elog(ERROR, "could not read a snapshot: %s", SPI_result_code_string(result));
	if (SPI_processed > 0)
	{
		MemoryContext old = MemoryContextSwitchTo(context);

		snapshot_fill(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, row);
		MemoryContextSwitchTo(old);
	}
	SPI_finish();
}

/* Executes a statement that writes; whether it wrote a row. */
static bool
write_row(Snapshots *snapshots, SnapshotPlan which, const char *id, const SnapshotRow *row, ItemPointer tid)
{
	Datum		args[] = {
		CStringGetTextDatum(id), Int64GetDatum(row->version), Int32GetDatum(row->vsn), PointerGetDatum(row->state),
		TimestampTzGetDatum(row->updated_at), BoolGetDatum(row->deleted), Int64GetDatum(row->reserved), PointerGetDatum(tid)
	};
	char		nulls[lengthof(args) + 1] = "        ";
	int			result;
	bool		wrote;

	if (row->state == NULL)
		nulls[3] = 'n';
	SPI_connect();
	result = SPI_execute_plan(snapshot_plan(snapshots, which), args, nulls, false, 0);
	/* SPI_OK_REWRITTEN: a rule of the user's says INSTEAD */
	if (result != SPI_OK_INSERT && result != SPI_OK_UPDATE && result != SPI_OK_REWRITTEN)
		elog(ERROR, "could not write a snapshot: %s", SPI_result_code_string(result));
	wrote = result != SPI_OK_REWRITTEN && SPI_processed > 0;
	SPI_finish();
	return wrote;
}

/* ---------------------------------------------------------------- for both */

/* The row with this id as the current statement sees it. */
void
snapshot_read(Snapshots *snapshots, const char *id, SnapshotRow *row)
{
	memset(row, 0, sizeof(*row));
	if (snapshots->plain)
		read_plain(snapshots, id, row);
	else
		select_row(snapshots, id, PLAN_READ, row);
}

/*
 * The newest row with this id, locked as FOR NO KEY UPDATE does to the end of
 * the transaction. Waits for whoever has it (55P03 after lock_timeout, 40P01);
 * 40001 in a transaction with a snapshot of its own. The table is open with RowExclusiveLock.
 */
void
snapshot_lock(Snapshots *snapshots, const char *id, SnapshotRow *row)
{
	memset(row, 0, sizeof(*row));
	if (snapshots->plain)
		(void) lock_plain(snapshots, id, true, row);
	else
		select_row(snapshots, id, PLAN_LOCK, row);
}

/* The same for a caller that waits for nobody. False: somebody else has the row. */
bool
snapshot_try_lock(Snapshots *snapshots, const char *id, SnapshotRow *row)
{
	memset(row, 0, sizeof(*row));
	if (snapshots->plain)
		return lock_plain(snapshots, id, false, row);
	select_row(snapshots, id, PLAN_TRY_LOCK, row);
	if (row->exists)
		return true;
	snapshot_read(snapshots, id, row);
	return !row->exists;
}

/* Whether the caller may certainly do with any row what a call does; else a statement has to find out. */
bool
snapshot_may_write(const Snapshots *snapshots)
{
	AclMode		needed = ACL_SELECT | ACL_UPDATE;

	if (snapshots->rel->rd_rel->relrowsecurity)
		return false;
	return snapshots->plain || pg_class_aclmask(snapshots->table->oid, GetUserId(), needed, ACLMASK_ALL) == needed;
}

/* Writes a new row. False when one with this id is there, also one that was committed while this waited for it. */
bool
snapshot_insert(Snapshots *snapshots, const char *id, const SnapshotRow *row)
{
	return write_row(snapshots, PLAN_INSERT, id, row, NULL);
}

/*
 * Replaces a row that snapshot_lock() gave, and says in `row` where it is now. False when it is
 * not that one any more: somebody in this very transaction has written it, or a trigger kept it as it is.
 */
bool
snapshot_update(Snapshots *snapshots, const char *id, const SnapshotRow *old, SnapshotRow *row)
{
	ItemPointerData tid = old->tid;
	bool		wrote;

	if (old->tuple == NULL)
		return write_row(snapshots, PLAN_UPDATE, id, row, &tid);
	wrote = update_plain(snapshots, old, row);
	snapshot_leave_queue(snapshots);
	return wrote;
}

/*
 * For a write that wrote nothing. Raises 55000 where the row is still the one that was
 * locked, so that nobody else is to blame: repeating it would not help.
 */
void
snapshot_complain_if_suppressed(Snapshots *snapshots, const char *id, const SnapshotRow *old)
{
	SnapshotRow now;

	snapshot_lock(snapshots, id, &now);
	if (now.exists != old->exists || (now.exists && !ItemPointerEquals(&now.tid, unconstify(ItemPointerData *, &old->tid))))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("snapshot \"%s\" was not written", id),
			 now.exists ?
			 errdetail("A trigger or a rule of table \"%s\" suppressed it.", RelationGetRelationName(snapshots->rel)) :
			 errdetail("A trigger or a rule of table \"%s\" suppressed it, or its row security hides a row with this id.",
					   RelationGetRelationName(snapshots->rel))));
}

/*
 * What every new version has: the next number, beyond all that may have been
 * given, and the time, which never goes back within one id. Raises 54000 where there is none.
 */
void
snapshot_next(const SnapshotRow *old, SnapshotRow *row)
{
	int64		given = Max(old->version, old->reserved);

	if (given == PG_INT64_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a snapshot has no version after " INT64_FORMAT, given)));
	row->version = given + 1;
	row->reserved = row->version;
	row->updated_at = Max(GetCurrentTimestamp(), old->updated_at);
	row->exists = true;
}
