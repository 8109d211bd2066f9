/*-------------------------------------------------------------------------
 *
 * split_row.c
 *	  The rows of splits: what each is, and how far it is.
 *
 * Two tables: revenant.split is written when a split is published and never again;
 * revenant.split_state is narrow, has no index but its key, and is updated
 * with each step, so that its updates stay on their page.
 *
 * As row.c does it: direct access, by looks that are not MVCC, so that what was
 * committed a moment ago counts at every isolation level, and that no look
 * gives a user 40001. A statement opens both tables once and looks many times.
 *
 * NOTES
 *	  Who writes a row says what he saw: an update of what has changed since then
 *	  does not happen, and the caller looks again. Nobody waits for a
 *	  row unless he says so.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/indexing.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/fmgroids.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "locktag.h"
#include "split_row.h"

/* Reasons that are kept of one split: the latest ones */
#define REASONS_MAX 16

static const char *const state_names[] = {"runnable", "owned", "done", "quarantined"};
static const char *const end_names[] = {
	NULL, "done", "released", "failed", "expired", "drained", "revoked", "starved", "fenced", "requeued"
};

/* As the views have it. */
const char *
split_state_name(SplitState state)
{
	return state >= 0 && state < (int) lengthof(state_names) ? state_names[state] : "?";
}

/* As the views and members have it; NULL: it did not end. */
const char *
claim_end_name(ClaimEnd how)
{
	return how >= 0 && how < (int) lengthof(end_names) ? end_names[how] : "?";
}

/* ---------------------------------------------------------------- open, close */

static void
open_table(SplitTable *table, Relation rel, Oid index)
{
	table->rel = rel;
	table->context = CurrentMemoryContext;
	table->index = index_open(index, AccessShareLock);
	table->scan = NULL;
	table->slot = NULL;
	table->latest = 0;
	table->walks = false;
}

/*
 * Share: this transaction has fenced splits of a plan without a write. Exclusive: nobody has, and nobody does, to
 * the end of this one.
 */
void
split_lock_fenced(int64 plan_id, LOCKMODE mode)
{
	LOCKTAG		tag = locktag_make(LOCK_OTHER, MyDatabaseId, (uint64) plan_id, LOCK_OTHER_FENCED);

	(void) LockAcquire(&tag, mode, false, false);
}

/* Opens both tables. The locks on them stay to the end of the transaction. */
void
split_open(SplitTables *tables, const Extension *extension, int64 plan_id, LOCKMODE mode)
{
	tables->plan_id = plan_id;
	tables->by_name = extension->split_by_name;
	open_table(&tables->spec, table_open(extension->split, AccessShareLock), extension->split_pkey);
	open_table(&tables->state, table_open(extension->split_state, mode), extension->split_state_pkey);
}

/* The same for a caller that waits for nobody. False: somebody has locked one, or it is gone. */
bool
split_try_open(SplitTables *tables, const Extension *extension, int64 plan_id, LOCKMODE mode)
{
	Relation	spec = NULL;
	Relation	state = NULL;

	if (!row_try_open(extension->split, AccessShareLock, &spec) || spec == NULL)
		return false;
	if (!row_try_open(extension->split_state, mode, &state) || state == NULL)
	{
		relation_close(spec, NoLock);
		return false;
	}
	tables->plan_id = plan_id;
	tables->by_name = extension->split_by_name;
	open_table(&tables->spec, spec, extension->split_pkey);
	open_table(&tables->state, state, extension->split_state_pkey);
	return true;
}

/* Lets the pages go that the latest look has in hand. */
static void
rest_table(SplitTable *table)
{
	if (table->scan != NULL)
		index_endscan(table->scan);
	if (table->slot != NULL)
		ExecDropSingleTupleTableSlot(table->slot);
	table->scan = NULL;
	table->slot = NULL;
	table->walks = false;
}

/* Before a wait: vacuum is not to wait for us. Looks go on as before. */
void
split_rest(SplitTables *tables)
{
	rest_table(&tables->spec);
	rest_table(&tables->state);
}

static void
close_table(SplitTable *table)
{
	rest_table(table);
	index_close(table->index, AccessShareLock);
	table_close(table->rel, NoLock);
}

/* Closes both. */
void
split_close(SplitTables *tables)
{
	close_table(&tables->state);
	close_table(&tables->spec);
}

/* ---------------------------------------------------------------- looks */

static void
number_keys(ScanKey keys, int64 plan_id, int64 number)
{
	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(plan_id));
	ScanKeyInit(&keys[1], 2, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(number));
}

/* The row with these keys by a snapshot of the caller's: a copy, or NULL. */
static HeapTuple
look_by(Relation rel, Oid index, ScanKey keys, Snapshot snapshot)
{
	SysScanDesc scan = systable_beginscan(rel, index, true, snapshot, 2, keys);
	HeapTuple	tuple = systable_getnext(scan);

	if (HeapTupleIsValid(tuple))
		tuple = heap_copytuple(tuple);
	systable_endscan(scan);
	return tuple;
}

/* One that is not found may be in the middle of an update: then a snapshot sees it (row.c). */
static HeapTuple
look_again(Relation rel, Oid index, ScanKey keys)
{
	HeapTuple	tuple;
	Snapshot	latest;

	if (IsolationIsSerializable())
		return look_by(rel, index, keys, SnapshotSelf);
	latest = RegisterSnapshot(GetLatestSnapshot());
	tuple = look_by(rel, index, keys, latest);
	UnregisterSnapshot(latest);
	return tuple;
}

/* Begins a scan of one number, or of all from there on. */
static void
begin_scan(SplitTable *table, int64 plan_id, int64 number, bool walk)
{
	ScanKeyData keys[2];

	if (table->scan == NULL)
	{
		table->slot = table_slot_create(table->rel, NULL);
		table->scan = compat_index_beginscan(table->rel, table->index, SnapshotSelf, 2);
	}
	number_keys(keys, plan_id, number);
	if (walk)
		ScanKeyInit(&keys[1], 2, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(number));
	index_rescan(table->scan, keys, 2, NULL, 0);
	table->walks = walk;
}

StaticAssertDecl((int) ATT_SPLIT_NUMBER == (int) ATT_STEP_NUMBER, "both tables have the number in the same column");

/* Goes on to a number. False: it is not where the scan has come to. */
static bool
walk_to(SplitTable *table, int64 number)
{
	while (index_getnext_slot(table->scan, ForwardScanDirection, table->slot))
	{
		bool		isnull;
		int64		found = DatumGetInt64(slot_getattr(table->slot, ATT_STEP_NUMBER, &isnull));

		/* a lower one: what was written of it since the look at it */
		if (found >= number)
			return found == number;
	}
	return false;
}

/*
 * The row with this number as it is now: in the table's slot, valid until the next look. False: it is not
 * found by a quick look. Who looks at one number after the other walks along the index. Each row is
 * seen as it is when the scan comes to it, since a scan that is not MVCC keeps its page of the index pinned;
 * and where it misses one, written anew since the scan came to that page, there is another look.
 *
 * In the table's context: the scan keeps what it allocates on the way (a btree's list of dead entries)
 * until its end.
 */
static bool
look_quickly(SplitTable *table, int64 plan_id, int64 number)
{
	MemoryContext old = MemoryContextSwitchTo(table->context);
	bool		found = false;

	if (table->scan != NULL && number == table->latest + 1)
	{
		if (!table->walks)
			begin_scan(table, plan_id, number, true);
		found = walk_to(table, number);
	}
	if (!found)
	{
		begin_scan(table, plan_id, number, false);
		found = index_getnext_slot(table->scan, ForwardScanDirection, table->slot);
	}
	table->latest = number;
	MemoryContextSwitchTo(old);
	return found;
}

/* The same as a copy, or NULL. */
static HeapTuple
find(SplitTable *table, int64 plan_id, int64 number)
{
	ScanKeyData keys[2];

	if (look_quickly(table, plan_id, number))
		return ExecCopySlotHeapTuple(table->slot);
	number_keys(keys, plan_id, number);
	return look_again(table->rel, RelationGetRelid(table->index), keys);
}

static void
parse_spec(HeapTuple tuple, TupleDesc desc, SplitSpec *spec)
{
	Datum		values[SPLIT_COLUMNS];
	bool		nulls[SPLIT_COLUMNS];

	heap_deform_tuple(tuple, desc, values, nulls);
	spec->number = DatumGetInt64(values[ATT_SPLIT_NUMBER - 1]);
	spec->name = TextDatumGetCString(values[ATT_SPLIT_NAME - 1]);
	spec->weight = Max(DatumGetInt64(values[ATT_SPLIT_WEIGHT - 1]), 1);
	spec->generation = DatumGetInt64(values[ATT_SPLIT_GENERATION - 1]);
	spec->spec = nulls[ATT_SPLIT_SPEC - 1] ? NULL : DatumGetJsonbP(values[ATT_SPLIT_SPEC - 1]);
}

/* What a split is. False: there is none with this number. */
bool
split_find_spec(SplitTables *tables, int64 number, SplitSpec *spec)
{
	HeapTuple	tuple = find(&tables->spec, tables->plan_id, number);

	if (tuple == NULL)
		return false;
	parse_spec(tuple, RelationGetDescr(tables->spec.rel), spec);
	return true;
}

/* The same by its name. */
bool
split_find_name(SplitTables *tables, const char *name, SplitSpec *spec)
{
	ScanKeyData keys[2];
	HeapTuple	tuple;

	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(tables->plan_id));
	ScanKeyInit(&keys[1], ATT_SPLIT_NAME, BTEqualStrategyNumber, F_TEXTEQ, CStringGetTextDatum(name));
	keys[1].sk_collation = C_COLLATION_OID;
	tuple = look_by(tables->spec.rel, tables->by_name, keys, SnapshotSelf);
	if (tuple == NULL)
		return false;			/* such a row is never updated */
	parse_spec(tuple, RelationGetDescr(tables->spec.rel), spec);
	return true;
}

static void
parse_fixed(const Datum *values, SplitRow *row)
{
	memset(row, 0, sizeof(*row));
	row->number = DatumGetInt64(values[ATT_STEP_NUMBER - 1]);
	row->epoch = DatumGetInt64(values[ATT_STEP_EPOCH - 1]);
	row->member = DatumGetInt64(values[ATT_STEP_MEMBER - 1]);
	row->updated_at = DatumGetTimestampTz(values[ATT_STEP_UPDATED_AT - 1]);
	row->role = (Oid) DatumGetInt64(values[ATT_STEP_ROLE_OID - 1]);
	row->attempts = DatumGetInt32(values[ATT_STEP_ATTEMPTS - 1]);
	row->state = (SplitState) DatumGetInt16(values[ATT_STEP_STATE - 1]);
	row->ended = (ClaimEnd) DatumGetInt16(values[ATT_STEP_ENDED - 1]);
}

/* How far a split is, as committed now or written by this transaction. False: there is none with this number. */
bool
split_find_row(SplitTables *tables, int64 number, SplitRow *row)
{
	HeapTuple	tuple = find(&tables->state, tables->plan_id, number);
	Datum		values[STEP_COLUMNS];
	bool		nulls[STEP_COLUMNS];

	if (tuple == NULL)
		return false;
	heap_deform_tuple(tuple, RelationGetDescr(tables->state.rel), values, nulls);
	parse_fixed(values, row);
	row->tuple = tuple;
	row->worker = nulls[ATT_STEP_WORKER - 1] ? NULL : TextDatumGetCString(values[ATT_STEP_WORKER - 1]);
	row->watermark = nulls[ATT_STEP_WATERMARK - 1] ? NULL : DatumGetNumeric(values[ATT_STEP_WATERMARK - 1]);
	row->progress = nulls[ATT_STEP_PROGRESS - 1] ? NULL : DatumGetJsonbP(values[ATT_STEP_PROGRESS - 1]);
	row->reasons = nulls[ATT_STEP_REASONS - 1] ? NULL : DatumGetJsonbP(values[ATT_STEP_REASONS - 1]);
	return true;
}

/*
 * Calls `visit` for each split of a plan with a number in the range, in their order, with
 * what has a fixed size alone. By one snapshot; a serializable transaction looks
 * by none, and so may miss a row that is updated meanwhile.
 */
void
split_visit(const Extension *extension, int64 plan_id, int64 from, int64 to, void (*visit) (const SplitRow *row, void *arg), void *arg)
{
	Relation	rel;
	Relation	index;
	Snapshot	latest = NULL;
	SysScanDesc scan;
	HeapTuple	tuple;
	ScanKeyData keys[3];

	if (to < from)
		return;
	rel = table_open(extension->split_state, AccessShareLock);
	index = index_open(extension->split_state_pkey, AccessShareLock);
	if (!IsolationIsSerializable())
		latest = RegisterSnapshot(GetLatestSnapshot());
	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(plan_id));
	ScanKeyInit(&keys[1], 2, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(from));
	ScanKeyInit(&keys[2], 2, BTLessEqualStrategyNumber, F_INT8LE, Int64GetDatum(to));
	scan = systable_beginscan_ordered(rel, index, latest ? latest : SnapshotSelf, 3, keys);
	while (HeapTupleIsValid(tuple = systable_getnext_ordered(scan, ForwardScanDirection)))
	{
		Datum		values[STEP_COLUMNS];
		bool		nulls[STEP_COLUMNS];
		SplitRow	row;

		CHECK_FOR_INTERRUPTS();
		heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
		parse_fixed(values, &row);
		visit(&row, arg);
	}
	systable_endscan_ordered(scan);
	if (latest)
		UnregisterSnapshot(latest);
	index_close(index, AccessShareLock);
	table_close(rel, AccessShareLock);
}

/* ---------------------------------------------------------------- writes */

/* Index entries of a row that did not stay on its page. */
static void
insert_index_entries(Relation rel, HeapTuple tuple)
{
	CatalogIndexState indexes = CatalogOpenIndexes(rel);

	for (int i = 0; i < indexes->ri_NumIndices; i++)
	{
		IndexInfo  *info = indexes->ri_IndexRelationInfo[i];
		Datum		values[INDEX_MAX_KEYS];
		bool		nulls[INDEX_MAX_KEYS];

		if (info->ii_Expressions != NIL || info->ii_Predicate != NIL)
			elog(ERROR, "index \"%s\" is none of revenant's", RelationGetRelationName(indexes->ri_IndexRelationDescs[i]));
		for (int key = 0; key < info->ii_NumIndexAttrs; key++)
			values[key] = heap_getattr(tuple, info->ii_IndexAttrNumbers[key], RelationGetDescr(rel), &nulls[key]);
		(void) index_insert(indexes->ri_IndexRelationDescs[i], values, nulls, &tuple->t_self, rel,
							indexes->ri_IndexRelationDescs[i]->rd_index->indisunique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO, false, info);
	}
	CatalogCloseIndexes(indexes);
}

/*
 * Replaces the marked columns of a row as it was found. ROW_LOCKED: it is done. heap_update()
 * is for callers that wait (it asserts that they do): who must not locks the row first.
 */
RowLock
split_update(SplitTables *tables, const SplitRow *row, const Datum *values, const bool *nulls, const bool *replace, bool wait)
{
	Relation	rel = tables->state.rel;
	HeapTuple	tuple = heap_modify_tuple(row->tuple, RelationGetDescr(rel), unconstify(Datum *, values),
										  unconstify(bool *, nulls), unconstify(bool *, replace));
	TM_FailureData failure;
	LockTupleMode mode;
	RowLock		result = wait ? ROW_LOCKED : row_try_lock(rel, row->tuple);

	if (result == ROW_LOCKED)
		result = row_outcome(compat_heap_update(rel, &row->tuple->t_self, tuple, GetCurrentCommandId(true), &failure, &mode));
	if (result == ROW_LOCKED && !HeapTupleIsHeapOnly(tuple))
		insert_index_entries(rel, tuple);
	heap_freetuple(tuple);
	return result;
}

/* A column of a row that is to be written */
static void
put(int attribute, Datum value, Datum *values, bool *replace)
{
	values[attribute - 1] = value;
	replace[attribute - 1] = true;
}

/* The split becomes somebody's of this role, or a member's, under a new epoch. `worker` may be NULL. */
RowLock
split_own(SplitTables *tables, const SplitRow *row, int64 epoch, int64 member, Oid role, const char *worker, bool wait)
{
	Datum		values[STEP_COLUMNS] = {0};
	bool		nulls[STEP_COLUMNS] = {0};
	bool		replace[STEP_COLUMNS] = {0};

	put(ATT_STEP_EPOCH, Int64GetDatum(epoch), values, replace);
	put(ATT_STEP_MEMBER, Int64GetDatum(member), values, replace);
	put(ATT_STEP_UPDATED_AT, TimestampTzGetDatum(GetCurrentTimestamp()), values, replace);
	put(ATT_STEP_ROLE_OID, Int64GetDatum((int64) role), values, replace);
	put(ATT_STEP_STATE, Int16GetDatum(SPLIT_OWNED), values, replace);
	put(ATT_STEP_ENDED, Int16GetDatum(END_NONE), values, replace);
	put(ATT_STEP_WORKER, worker == NULL ? (Datum) 0 : CStringGetTextDatum(worker), values, replace);
	nulls[ATT_STEP_WORKER - 1] = worker == NULL;
	return split_update(tables, row, values, nulls, replace, wait);
}

/* One key and its value, in an object that is being made */
static void
push_pair(JsonbParseState **state, const char *name, JsonbValue *value)
{
	JsonbValue	key = {.type = jbvString};

	key.val.string.val = unconstify(char *, name);
	key.val.string.len = (int) strlen(name);
	(void) pushJsonbValue(state, WJB_KEY, &key);
	(void) pushJsonbValue(state, WJB_VALUE, value);
}

static void
push_text(JsonbParseState **state, const char *name, const char *text)
{
	JsonbValue	value = {.type = text == NULL ? jbvNull : jbvString};

	if (text != NULL)
	{
		value.val.string.val = unconstify(char *, text);
		value.val.string.len = (int) strlen(text);
	}
	push_pair(state, name, &value);
}

static void
push_number(JsonbParseState **state, const char *name, int64 number)
{
	JsonbValue	value = {.type = jbvNumeric};

	value.val.numeric = int64_to_numeric(number);
	push_pair(state, name, &value);
}

/* The reasons of a split, and one more: who had it, by which epoch, and what became of that. */
static Jsonb *
add_reason(const SplitRow *row, const char *reason)
{
	JsonbParseState *state = NULL;
	JsonbValue *result;
	char		at[MAXDATELEN + 1];
	int			known = row->reasons == NULL ? 0 : JB_ROOT_COUNT(row->reasons);

	(void) pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	for (int i = Max(known - (REASONS_MAX - 1), 0); i < known; i++)
		(void) pushJsonbValue(&state, WJB_ELEM, getIthJsonbValueFromContainer(&row->reasons->root, i));
	(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	push_text(&state, "at", JsonEncodeDateTime(at, TimestampTzGetDatum(GetCurrentTimestamp()), TIMESTAMPTZOID, NULL));
	push_number(&state, "attempt", row->attempts + 1);
	push_number(&state, "epoch", row->epoch);
	push_text(&state, "reason", reason);
	push_text(&state, "worker", row->worker);
	(void) pushJsonbValue(&state, WJB_END_OBJECT, NULL);
	result = pushJsonbValue(&state, WJB_END_ARRAY, NULL);
	return JsonbValueToJsonb(result);
}

/*
 * The claim of a split ends. With a `reason` (at most 2,000 bytes of it) it uses up an
 * attempt, and where `state` is SPLIT_QUARANTINED that was the last one.
 */
RowLock
split_end(SplitTables *tables, const SplitRow *row, ClaimEnd how, SplitState state, const char *reason, bool wait)
{
	Datum		values[STEP_COLUMNS] = {0};
	bool		nulls[STEP_COLUMNS] = {0};
	bool		replace[STEP_COLUMNS] = {0};

	put(ATT_STEP_MEMBER, Int64GetDatum(0), values, replace);
	put(ATT_STEP_UPDATED_AT, TimestampTzGetDatum(GetCurrentTimestamp()), values, replace);
	put(ATT_STEP_STATE, Int16GetDatum(state), values, replace);
	put(ATT_STEP_ENDED, Int16GetDatum(how), values, replace);
	if (reason != NULL)
	{
		put(ATT_STEP_ATTEMPTS, Int32GetDatum(row->attempts + 1), values, replace);
		put(ATT_STEP_REASONS, JsonbPGetDatum(add_reason(row, reason)), values, replace);
	}
	return split_update(tables, row, values, nulls, replace, wait);
}
