/*-------------------------------------------------------------------------
 *
 * plan_publish.c
 *	  Planning: who leads a plan, and what is published of it.
 *
 * Who leads holds the plan's lease, `plan/` and its name; the lease's token is the generation. lead_plan()
 * takes the lease and writes the generation into the plan's row in one
 * transaction. A publication is fenced by the lease, and then finds its generation in the row, or is refused:
 * so from the commit of lead_plan() on nothing of an earlier generation is written.
 *
 * One transaction has all of a publication: the splits, how many there are, the cursor, whether
 * it is final, the revision. Memory hears of it at the commit.
 *
 * NOTES
 *	  Locks, in this order: the lease's F as a fence does (an acquire: H, then F exclusively), then the plan's row, to
 *	  the end of the transaction. Who has the row is the only one who writes or removes
 *	  ids of the plan; so which are there can be looked up, a batch at a time, before they are
 *	  written. Should that ever be wrong, the unique index on the ids raises 23505.
 *
 *	  The array is read once, and never becomes text: what is kept of an element points into it
 *	  until its batch is written.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/indexing.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/numeric.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "debug.h"
#include "error.h"
#include "lease.h"
#include "lease_api.h"
#include "plan.h"
#include "plan_xact.h"
#include "result.h"
#include "split_row.h"
#include "task_change.h"

#define WEIGHT_MAX (INT64CONST(1) << 40)

/* Splits that are looked up and written together, and the bytes of them from which on it is fewer */
#define BATCH_MAX 1000
#define BATCH_BYTES (4 * 1024 * 1024)

/* ---------------------------------------------------------------- generations */

/* Whether an error says that somebody else leads, or that the caller's time is over. */
bool
plan_error_is_fence(int sqlerrcode)
{
	return sqlerrcode == ERRCODE_RV_STALE_TOKEN || sqlerrcode == ERRCODE_RV_LEASE_EXPIRED;
}

/* A call with a generation was refused. `publishes`: it was one of publish(). */
static void
count_fenced(const PlanUse *use, bool publishes)
{
	plan_count(use->entry, PLAN_FENCED_WRITES, 1);
	if (publishes)
		plan_count(use->entry, PLAN_REPLANS_FENCED, 1);
}

/* Raises RV001. `current`: the plan's generation, 0: nobody led yet. */
compat_noreturn static void
raise_stale(const PlanUse *use, int64 generation, int64 current)
{
	ereport(ERROR,
			(errcode(ERRCODE_RV_STALE_TOKEN),
			 errmsg("generation %lld of plan \"%s\" is not the current one", (long long) generation, use->name),
			 current != 0 ?
			 errdetail("The current one is %lld.", (long long) current) :
			 errdetail("Nobody leads the plan: nobody did yet, or it was reset."),
			 errhint("Stop planning. A new generation is SELECT revenant.lead_plan(%s, 'candidate')",
					 quote_literal_cstr(use->name))));
}

/* A generation from argument 1. Raises RV001 where it is null, or none that was ever given. */
static int64
generation_arg(FunctionCallInfo fcinfo, const PlanUse *use, bool publishes)
{
	int64		generation = PG_ARGISNULL(1) ? 0 : PG_GETARG_INT64(1);

	if (generation > 0)
		return generation;
	count_fenced(use, publishes);
	ereport(ERROR,
			(errcode(ERRCODE_RV_STALE_TOKEN),
			 PG_ARGISNULL(1) ?
			 errmsg("a null generation of plan \"%s\" is not the current one", use->name) :
			 errmsg("generation %lld of plan \"%s\" is not the current one", (long long) generation, use->name),
			 errdetail("Generations are positive; null is what lead_plan() returns when somebody else leads."),
			 errhint("Stop planning. A new generation is SELECT revenant.lead_plan(%s, 'candidate')",
					 quote_literal_cstr(use->name))));
	return 0;					/* not reached */
}

/*
 * Fences the transaction by the plan's lease: it cannot change hands before the end of it. Raises
 * RV001, RV002, 42501, 54000.
 */
static void
fence(const PlanUse *use, int64 generation, const char *function, bool publishes)
{
	LeaseNameToken arg = {.function = function,.name = plan_lease_name(use->name),.token = generation};

	PG_TRY();
	{
		lease_fence(&arg);
	}
	PG_CATCH();
	{
		if (plan_error_is_fence(geterrcode()))
			count_fenced(use, publishes);
		PG_RE_THROW();
	}
	PG_END_TRY();
}

/* Locks the row of the very plan that is used; 42704 where it is gone, or another one by now. */
static void
begin_change(const PlanUse *use, PlanChange *change)
{
	plan_begin_change(use->name, change);
	if (change->row.plan_id != use->plan_id)
		plan_raise_unknown(use->name);
}

/*
 * Makes the token of the plan's lease its generation, unless it is that already. The
 * caller holds the lease, and has fenced this transaction by it or acquired it here. Raises 42501, 42704,
 * 55000. Locks the plan's row.
 */
void
plan_lead(PlanUse *use, int64 generation, const char *leader)
{
	PlanChange	change;
	PlanRow		row;
	Datum		values[PLAN_COLUMNS] = {0};
	bool		nulls[PLAN_COLUMNS] = {0};
	bool		replace[PLAN_COLUMNS] = {0};

	if (plan_find_row(extension_get(), use->name, &row) != NULL && row.plan_id == use->plan_id && row.generation == generation)
		return;
	begin_change(use, &change);
	values[ATT_PLAN_GENERATION - 1] = Int64GetDatum(generation);
	replace[ATT_PLAN_GENERATION - 1] = true;
	values[ATT_PLAN_LEADER - 1] = CStringGetTextDatum(leader);
	replace[ATT_PLAN_LEADER - 1] = true;
	plan_write(&change, values, nulls, replace);
	plan_op_keep_row(plan_op_add(PLAN_OP_ALTER, use), &change.row);
	plan_end_change(&change);
}

/* The ttl of a leader from argument 2; NULL: the plan's. Raises 22023. */
static int64
ttl_arg(FunctionCallInfo fcinfo, const PlanUse *use)
{
	int64		us;

	if (PG_ARGISNULL(2))
		return use->lease_ttl_us;
	us = lease_interval_us(PG_GETARG_INTERVAL_P(2));
	if (us < PLAN_TTL_MIN_US || us > LEASE_TTL_MAX_US)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ttl is out of range"),
				 errdetail("The ttl of who leads a plan is from 300 ms to 10 years."),
				 errhint("Without a ttl it is the plan's lease_ttl.")));
	return us;
}

/*
 * revenant.lead_plan(plan, candidate, ttl, fingerprint, request_id)
 *
 * The generation, or NULL: somebody leads. The same request_id again, after a lost
 * reply, gives the same one. Raises 22004, 22023, 25006, 42501, 42704, 53200, 54000, 55000 (held), 55006, RV004.
 */
SQL_FUNCTION(revenant_lead_plan)
{
	LeaseRequest request = {.function = "revenant.lead_plan()",.scope = LEASE_TTL,.election = true,.trusted = true};
	char	   *name;
	char	   *fingerprint;
	PlanUse    *use;
	int64		generation;

	task_require_writable("lead_plan");
	name = plan_name_arg(fcinfo, 0);
	request.holder = lease_holder_arg(fcinfo, 1);
	if (request.holder == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("candidate must not be null")));
	if (request.holder[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("candidate must not be empty"),
				 errhint("Give a label by which people know it; it proves nothing.")));
	fingerprint = task_text_argument(fcinfo, 3);
	use = plan_use(name);
	plan_use_check_worker(use, fingerprint);
	request.name = plan_lease_name(name);
	request.ttl_us = ttl_arg(fcinfo, use);
	request.request_id = PG_ARGISNULL(4) ? NULL : PG_GETARG_UUID_P(4);
	generation = lease_acquire(&request);
	if (generation == 0)
		PG_RETURN_NULL();
	DEBUG_POINT("plan-before-lead");
	plan_lead(use, generation, request.holder);
	PG_RETURN_INT64(generation);
}

/*
 * revenant.resign_plan(plan, generation)
 *
 * Whether the generation led, and ends with this transaction. Raises 22004, 22023,
 * 25006, 42501, 42704, 55000 (held), 55006.
 */
SQL_FUNCTION(revenant_resign_plan)
{
	LeaseNameToken arg = {.function = "revenant.resign_plan()"};
	char	   *name;
	PlanUse    *use;

	task_require_writable("resign_plan");
	name = plan_name_arg(fcinfo, 0);
	use = plan_use(name);
	plan_use_check_worker(use, NULL);
	arg.name = plan_lease_name(name);
	arg.token = PG_ARGISNULL(1) ? 0 : PG_GETARG_INT64(1);
	PG_RETURN_BOOL(arg.token > 0 && lease_release(&arg, 0));
}

/*
 * revenant.planner_state(plan, generation, OUT cursor, OUT revision, OUT final, OUT planned)
 *
 * What was published last, for who leads; the lease then cannot change hands before the
 * transaction ends. Raises RV001, RV002, 22004, 22023, 25006, 42501, 42704, 55000 (held).
 */
SQL_FUNCTION(revenant_planner_state)
{
	char	   *name;
	PlanUse    *use;
	int64		generation;
	const Extension *extension;
	Relation	rel;
	HeapTuple	tuple;
	PlanRow		row;
	Datum		values[4];
	bool		nulls[4] = {false};

	PreventCommandDuringRecovery("revenant.planner_state()");
	name = plan_name_arg(fcinfo, 0);
	use = plan_use(name);
	plan_use_check_worker(use, NULL);
	generation = generation_arg(fcinfo, use, false);
	fence(use, generation, "revenant.planner_state()", false);

	extension = extension_get();
	rel = table_open(extension->plan, AccessShareLock);
	tuple = plan_find_row(extension, name, &row);
	if (tuple == NULL || row.plan_id != use->plan_id)
		plan_raise_unknown(name);
	if (row.generation != generation)
	{
		count_fenced(use, false);
		raise_stale(use, generation, row.generation);
	}
	values[0] = heap_getattr(tuple, ATT_PLAN_CURSOR, RelationGetDescr(rel), &nulls[0]);
	values[1] = Int64GetDatum(row.revision);
	values[2] = BoolGetDatum(row.final);
	values[3] = Int64GetDatum(row.planned);
	if (!nulls[0])
		values[0] = JsonbPGetDatum(DatumGetJsonbPCopy(values[0]));
	table_close(rel, AccessShareLock);
	return result_row(fcinfo, values, nulls);
}

/* ---------------------------------------------------------------- elements of `splits` */

/* An element; what it points at is in the array. */
typedef struct Split
{
	int			element;		/* its number in the array, from 1 */
	const char *id;
	int			id_len;
	int64		weight;
	JsonbValue	spec;			/* jbvNull: none */
	JsonbValue	progress;		/* the same */
	Numeric		watermark;		/* or NULL */
	bool		done;
	bool		known;			/* the plan has it already */
} Split;

/* Raises 22023: a value is not what its key needs. */
compat_noreturn static void
complain_of_value(int element, const char *key, const char *wanted)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid \"%s\" in element %d of splits", key, element),
			 errdetail("It must be %s.", wanted)));
}

/* Which one of a few keys this is. Raises 22023 for any other. */
static int
find_key(const JsonbValue *key, const char *const *keys, int nkeys, int element, const char *all)
{
	for (int i = 0; i < nkeys; i++)
	{
		if (strlen(keys[i]) == (size_t) key->val.string.len && memcmp(keys[i], key->val.string.val, key->val.string.len) == 0)
			return i;
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("element %d of splits has an unknown key \"%s\"", element, pnstrdup(key->val.string.val, key->val.string.len)),
			 errhint("The keys are %s.", all)));
	return -1;					/* not reached */
}

/* A weight: a whole number up to WEIGHT_MAX, 0 stands for 1. Raises 22023. */
static int64
read_weight(const JsonbValue *value, int element)
{
	Datum		number = (Datum) 0;
	int64		weight = -1;

	if (value->type == jbvNumeric)
	{
		number = NumericGetDatum(value->val.numeric);
		if (DatumGetBool(DirectFunctionCall2(numeric_ge, number, NumericGetDatum(int64_to_numeric(0)))) &&
			DatumGetBool(DirectFunctionCall2(numeric_le, number, NumericGetDatum(int64_to_numeric(WEIGHT_MAX)))))
			weight = DatumGetInt64(DirectFunctionCall1(numeric_int8, number));
	}
	/* rounded: there is something behind the point */
	if (weight < 0 || !DatumGetBool(DirectFunctionCall2(numeric_eq, number, NumericGetDatum(int64_to_numeric(weight)))))
		complain_of_value(element, "weight", psprintf("a whole number from 0 to %lld", (long long) WEIGHT_MAX));
	return Max(weight, 1);
}

/* What a split begins with. Raises 22023. */
static void
read_seed(const JsonbValue *seed, Split *split)
{
	static const char *const keys[] = {"progress", "watermark", "done"};
	JsonbIterator *iterator;
	JsonbIteratorToken token;
	JsonbValue	item;
	int			key = -1;

	if (seed->type != jbvBinary || !JsonContainerIsObject(seed->val.binary.data))
		complain_of_value(split->element, "seed", "an object {progress, watermark, done}");
	iterator = JsonbIteratorInit(seed->val.binary.data);
	while ((token = JsonbIteratorNext(&iterator, &item, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			key = find_key(&item, keys, lengthof(keys), split->element, "progress, watermark and done of a seed");
		if (token != WJB_VALUE || item.type == jbvNull)
			continue;
		if (key == 0)
			split->progress = item;
		else if (key == 1 && item.type != jbvNumeric)
			complain_of_value(split->element, "watermark", "a number");
		else if (key == 1)
			split->watermark = item.val.numeric;
		else if (item.type != jbvBool)
			complain_of_value(split->element, "done", "true or false");
		else
			split->done = item.val.boolean;
	}
}

/* The rest of an element whose beginning was read. Null is as if the key was not there. Raises 22023. */
static void
read_split(JsonbIterator **iterator, Split *split)
{
	static const char *const keys[] = {"id", "spec", "weight", "seed"};
	JsonbIteratorToken token;
	JsonbValue	item;
	int			key = -1;

	split->spec.type = split->progress.type = jbvNull;
	split->weight = 1;
	while ((token = JsonbIteratorNext(iterator, &item, true)) != WJB_END_OBJECT)
	{
		if (token == WJB_KEY)
			key = find_key(&item, keys, lengthof(keys), split->element, "id, spec, weight and seed");
		if (token != WJB_VALUE || item.type == jbvNull)
			continue;
		if (key == 0 && item.type == jbvString)
		{
			split->id = item.val.string.val;
			split->id_len = item.val.string.len;
		}
		else if (key == 1)
			split->spec = item;
		else if (key == 2)
			split->weight = read_weight(&item, split->element);
		else if (key == 3)
			read_seed(&item, split);
	}
	if (split->id == NULL || split->id_len < 1 || split->id_len > SPLIT_NAME_MAX)
		complain_of_value(split->element, "id", psprintf("a string of 1 to %d bytes", SPLIT_NAME_MAX));
}

/* How much memory a value of an element takes. */
static Size
value_size(const JsonbValue *value)
{
	if (value->type == jbvBinary)
		return value->val.binary.len;
	return value->type == jbvString ? value->val.string.len : sizeof(JsonbValue);
}

/* ---------------------------------------------------------------- ids */

/* The ids of one call, each once */
typedef struct IdKey
{
	const char *data;
	int			len;
} IdKey;

typedef struct SeenId
{
	IdKey		key;
	uint32		hash;
	int			position;		/* in the batch that it came in */
	char		status;
} SeenId;

#define SH_PREFIX ids
#define SH_ELEMENT_TYPE SeenId
#define SH_KEY_TYPE IdKey
#define SH_KEY key
#define SH_HASH_KEY(table, id) hash_bytes((const unsigned char *) (id).data, (id).len)
#define SH_EQUAL(table, a, b) ((a).len == (b).len && memcmp((a).data, (b).data, (a).len) == 0)
#define SH_STORE_HASH
#define SH_GET_HASH(table, id) (id)->hash
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* ---------------------------------------------------------------- the rows */

/* A table that rows are added to */
typedef struct Target
{
	Relation	rel;			/* NULL: not opened */
	CatalogIndexState indexes;
	TupleTableSlot **slots;		/* of a batch */
} Target;

/* A call of publish() */
typedef struct Publishing
{
	const PlanUse *use;
	const PlanRow *row;			/* as it was */
	const Extension *oids;
	int64		generation;
	TimestampTz now;
	ids_hash   *ids;
	Split	   *batch;
	int			batch_max;
	int			count;			/* in the batch */
	Size		bytes;
	MemoryContext context;		/* for a batch */
	Target		specs;			/* revenant.split */
	Target		states;			/* revenant.split_state */
	int64		last_number;
	int64		done;			/* of the new ones */
} Publishing;

static void
open_target(Target *target, Oid table, int slots)
{
	target->rel = table_open(table, RowExclusiveLock);
	target->indexes = CatalogOpenIndexes(target->rel);
	target->slots = palloc(slots * sizeof(TupleTableSlot *));
	for (int i = 0; i < slots; i++)
		target->slots[i] = MakeSingleTupleTableSlot(RelationGetDescr(target->rel), &TTSOpsHeapTuple);
}

static void
close_target(Target *target, int slots)
{
	if (target->rel == NULL)
		return;
	for (int i = 0; i < slots; i++)
		ExecDropSingleTupleTableSlot(target->slots[i]);
	CatalogCloseIndexes(target->indexes);
	table_close(target->rel, NoLock);
}

/*
 * Writes the first so many slots. Not by CatalogTuplesMultiInsertWithInfo(), which does not know
 * where a row is that had to be toasted; and by no ring of buffers, since who claims reads these pages next.
 */
static void
insert(Target *target, int count)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		nulls[INDEX_MAX_KEYS];

	heap_multi_insert(target->rel, target->slots, count, GetCurrentCommandId(true), 0, NULL);
	for (int i = 0; i < target->indexes->ri_NumIndices; i++)
	{
		Relation	index = target->indexes->ri_IndexRelationDescs[i];
		IndexInfo  *info = target->indexes->ri_IndexRelationInfo[i];

		if (!info->ii_ReadyForInserts)
			continue;
		for (int j = 0; j < count; j++)
		{
			FormIndexDatum(info, target->slots[j], NULL, values, nulls);
			(void) index_insert(index, values, nulls, &target->slots[j]->tts_tid, target->rel,
								index->rd_index->indisunique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO, false, info);
		}
	}
	for (int i = 0; i < count; i++)
		ExecClearTuple(target->slots[i]);
}

/* A slot for another row, in which each column is 0. */
static TupleTableSlot *
begin_row(Target *target, int number)
{
	TupleTableSlot *slot = target->slots[number];
	int			columns = slot->tts_tupleDescriptor->natts;

	memset(slot->tts_values, 0, columns * sizeof(Datum));
	memset(slot->tts_isnull, false, columns * sizeof(bool));
	return slot;
}

static void
set_json(TupleTableSlot *slot, int attribute, JsonbValue *value)
{
	slot->tts_isnull[attribute - 1] = value->type == jbvNull;
	if (value->type != jbvNull)
		slot->tts_values[attribute - 1] = JsonbPGetDatum(JsonbValueToJsonb(value));
}

/* Both rows of a split that is new, as number `place` of those of its batch. */
static void
make_rows(Publishing *publishing, Split *split, int place)
{
	TupleTableSlot *spec = begin_row(&publishing->specs, place);
	TupleTableSlot *state = begin_row(&publishing->states, place);
	int64		number = ++publishing->last_number;

	spec->tts_values[ATT_SPLIT_PLAN_ID - 1] = Int64GetDatum(publishing->row->plan_id);
	spec->tts_values[ATT_SPLIT_NUMBER - 1] = Int64GetDatum(number);
	spec->tts_values[ATT_SPLIT_NAME - 1] = PointerGetDatum(cstring_to_text_with_len(split->id, split->id_len));
	spec->tts_values[ATT_SPLIT_WEIGHT - 1] = Int64GetDatum(split->weight);
	spec->tts_values[ATT_SPLIT_GENERATION - 1] = Int64GetDatum(publishing->generation);
	set_json(spec, ATT_SPLIT_SPEC, &split->spec);
	(void) ExecStoreVirtualTuple(spec);

	state->tts_values[ATT_STEP_PLAN_ID - 1] = Int64GetDatum(publishing->row->plan_id);
	state->tts_values[ATT_STEP_NUMBER - 1] = Int64GetDatum(number);
	state->tts_values[ATT_STEP_UPDATED_AT - 1] = TimestampTzGetDatum(publishing->now);
	state->tts_values[ATT_STEP_STATE - 1] = Int16GetDatum(split->done ? SPLIT_DONE : SPLIT_RUNNABLE);
	state->tts_isnull[ATT_STEP_WORKER - 1] = true;
	state->tts_values[ATT_STEP_WATERMARK - 1] = NumericGetDatum(split->watermark);
	state->tts_isnull[ATT_STEP_WATERMARK - 1] = split->watermark == NULL;
	set_json(state, ATT_STEP_PROGRESS, &split->progress);
	state->tts_isnull[ATT_STEP_REASONS - 1] = true;
	(void) ExecStoreVirtualTuple(state);
	if (split->done)
		publishing->done++;
}

/* Marks those of the batch that the plan has already: one look at the index for all of them. */
static void
mark_known(Publishing *publishing)
{
	Relation	rel = table_open(publishing->oids->split, AccessShareLock);
	Relation	index = index_open(publishing->oids->split_by_name, AccessShareLock);
	Datum	   *names = palloc(publishing->count * sizeof(Datum));
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	for (int i = 0; i < publishing->count; i++)
		names[i] = PointerGetDatum(cstring_to_text_with_len(publishing->batch[i].id, publishing->batch[i].id_len));
	ScanKeyInit(&keys[0], ATT_SPLIT_PLAN_ID, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(publishing->row->plan_id));
	ScanKeyEntryInitialize(&keys[1], SK_SEARCHARRAY, ATT_SPLIT_NAME, BTEqualStrategyNumber, InvalidOid, C_COLLATION_OID, F_TEXTEQ,
						   PointerGetDatum(construct_array(names, publishing->count, TEXTOID, -1, false, TYPALIGN_INT)));

	/* what is committed now, and what this transaction wrote; the rows are never updated, so none can be missed */
	scan = systable_beginscan_ordered(rel, index, SnapshotSelf, lengthof(keys), keys);
	while ((tuple = systable_getnext_ordered(scan, ForwardScanDirection)) != NULL)
	{
		bool		isnull;
		text	   *name = DatumGetTextPP(heap_getattr(tuple, ATT_SPLIT_NAME, RelationGetDescr(rel), &isnull));
		SeenId	   *id = ids_lookup(publishing->ids, (IdKey) {VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name)});

		Assert(id != NULL);
		publishing->batch[id->position].known = true;
	}
	systable_endscan_ordered(scan);
	index_close(index, NoLock);
	table_close(rel, NoLock);
}

/* Raises 22023: a plan to which no split can be added was given one. */
compat_noreturn static void
complain_of_final(const Publishing *publishing, const Split *split)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("plan \"%s\" is final", publishing->use->name),
			 errdetail("Element %d of splits, \"%s\", is not one of its splits, and no other can be added any more.",
					   split->element, pnstrdup(split->id, split->id_len)),
			 errhint("Publish with final => true only what is the last. SELECT revenant.reset_plan(%s) begins the plan anew.",
					 quote_literal_cstr(publishing->use->name))));
}

/* Writes those of the batch that are new, and empties it. */
static void
flush_batch(Publishing *publishing)
{
	MemoryContext old = MemoryContextSwitchTo(publishing->context);
	int			count = 0;

	CHECK_FOR_INTERRUPTS();
	if (publishing->row->last_number > 0 && publishing->count > 0)
		mark_known(publishing);
	for (int i = 0; i < publishing->count; i++)
	{
		Split	   *split = &publishing->batch[i];

		if (split->known)
			continue;
		if (publishing->row->final)
			complain_of_final(publishing, split);
		if (publishing->specs.rel == NULL)
		{
			MemoryContextSwitchTo(old);
			open_target(&publishing->specs, publishing->oids->split, publishing->batch_max);
			open_target(&publishing->states, publishing->oids->split_state, publishing->batch_max);
			MemoryContextSwitchTo(publishing->context);
		}
		make_rows(publishing, split, count++);
	}
	if (count > 0)
	{
		insert(&publishing->specs, count);
		insert(&publishing->states, count);
	}
	publishing->count = 0;
	publishing->bytes = 0;
	MemoryContextSwitchTo(old);
	MemoryContextReset(publishing->context);
}

/* Adds an element to the batch, unless there was one of its id. */
static void
add_split(Publishing *publishing, const Split *split)
{
	SeenId	   *id;
	bool		found;

	id = ids_insert(publishing->ids, (IdKey) {split->id, split->id_len}, &found);
	if (found)
		return;
	id->position = publishing->count;
	publishing->batch[publishing->count++] = *split;
	publishing->bytes += value_size(&split->spec) + value_size(&split->progress);
	if (publishing->count == publishing->batch_max || publishing->bytes >= BATCH_BYTES)
		flush_batch(publishing);
}

/* Reads the array and writes what of it is new. Raises 22023. */
static void
publish_splits(Publishing *publishing, Jsonb *splits)
{
	JsonbIterator *iterator;
	JsonbIteratorToken token;
	JsonbValue	item;
	int			element = 0;

	if (!JB_ROOT_IS_ARRAY(splits) || JB_ROOT_IS_SCALAR(splits))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("splits must be a JSON array"),
				 errhint("Such as '[{\"id\": \"part-1\", \"spec\": {\"from\": 0, \"to\": 1000}}]'.")));
	if (JB_ROOT_COUNT(splits) == 0)
		return;
	publishing->batch_max = Min(JB_ROOT_COUNT(splits), BATCH_MAX);
	publishing->batch = palloc(publishing->batch_max * sizeof(Split));
	publishing->ids = ids_create(CurrentMemoryContext, JB_ROOT_COUNT(splits), NULL);
	publishing->context = AllocSetContextCreate(CurrentMemoryContext, "revenant splits", ALLOCSET_DEFAULT_SIZES);

	iterator = JsonbIteratorInit(&splits->root);
	(void) JsonbIteratorNext(&iterator, &item, false);	/* the beginning of the array */
	while ((token = JsonbIteratorNext(&iterator, &item, false)) != WJB_END_ARRAY)
	{
		Split		split = {0};

		split.element = ++element;
		if (token != WJB_BEGIN_OBJECT)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("element %d of splits is not an object", element),
					 errhint("Each is {id, spec, weight, seed: {progress, watermark, done}}; all but id may be missing.")));
		read_split(&iterator, &split);
		add_split(publishing, &split);
	}
	flush_batch(publishing);
	close_target(&publishing->specs, publishing->batch_max);
	close_target(&publishing->states, publishing->batch_max);
	MemoryContextDelete(publishing->context);
	ids_destroy(publishing->ids);
	pfree(publishing->batch);
	CommandCounterIncrement();
}

/* ---------------------------------------------------------------- publish */

/* Whether a cursor is another one than the row's. */
static bool
is_new_cursor(const PlanChange *change, const Jsonb *cursor)
{
	bool		isnull;
	Datum		value;

	if (cursor == NULL)
		return false;
	value = heap_getattr(change->tuple, ATT_PLAN_CURSOR, RelationGetDescr(change->rel), &isnull);
	return isnull || compareJsonbContainers(&DatumGetJsonbP(value)->root, unconstify(JsonbContainer *, &cursor->root)) != 0;
}

/* Says in the plan's row what was published, and what memory will say. */
static void
write_plan(PlanUse *use, PlanChange *change, const Publishing *publishing, PlanPublication *publication)
{
	PlanRow		before = change->row;
	Datum		values[PLAN_COLUMNS] = {0};
	bool		nulls[PLAN_COLUMNS] = {0};
	bool		replace[PLAN_COLUMNS] = {0};
	bool		write = false;
	PlanOp	   *op;

	publication->created = publishing->last_number - before.last_number;
	publication->changed = publication->created > 0 || is_new_cursor(change, publication->cursor) ||
		(publication->final && !before.final);
	if (publication->replan)
		write = plan_note_replan(change, publication->changed ? "ok" : "noop", NULL, values, nulls, replace);
	if (publication->changed)
	{
		values[ATT_PLAN_PLANNED - 1] = Int64GetDatum(before.planned + publication->created);
		values[ATT_PLAN_LAST_NUMBER - 1] = Int64GetDatum(publishing->last_number);
		values[ATT_PLAN_REVISION - 1] = Int64GetDatum(before.revision + 1);
		values[ATT_PLAN_FINAL - 1] = BoolGetDatum(before.final || publication->final);
		values[ATT_PLAN_UPDATED_AT - 1] = TimestampTzGetDatum(publishing->now);
		values[ATT_PLAN_CURSOR - 1] = JsonbPGetDatum(publication->cursor);
		replace[ATT_PLAN_PLANNED - 1] = replace[ATT_PLAN_LAST_NUMBER - 1] = replace[ATT_PLAN_REVISION - 1] =
			replace[ATT_PLAN_FINAL - 1] = replace[ATT_PLAN_UPDATED_AT - 1] = true;
		replace[ATT_PLAN_CURSOR - 1] = publication->cursor != NULL;
		/* there is something to be done again */
		nulls[ATT_PLAN_VERDICT - 1] = nulls[ATT_PLAN_VERDICT_SEQ - 1] = true;
		replace[ATT_PLAN_VERDICT - 1] = replace[ATT_PLAN_VERDICT_SEQ - 1] = publication->created > 0;
	}
	if (publication->changed || write)
		plan_write(change, values, nulls, replace);
	if (publication->changed)
	{
		op = plan_op_add(PLAN_OP_PUBLISH, use);
		plan_op_keep_row(op, &change->row);
		op->number = before.last_number + 1;
		op->done = publishing->done;
		op->counted = PLAN_REPLANS_OK;
	}
	else
		plan_op_count(use, PLAN_REPLANS_NOOP);
	publication->planned = change->row.planned;
	publication->revision = change->row.revision;
}

/*
 * Publishes, and fills in what became of it. The caller has used the plan (plan_use_check_worker()). Raises
 * RV001 unless the generation leads, RV002 if its time is over, 22023 for splits that are not as they are to be
 * or come too late, 42501, 42704, 54000, 55000. Locks: see the head of this file.
 */
void
plan_publish(PlanUse *use, PlanPublication *publication)
{
	PlanChange	change;
	PlanRow		row;
	Publishing	publishing = {.use = use,.row = &row,.oids = &change.oids,.generation = publication->generation};

	fence(use, publication->generation, "revenant.publish()", !publication->replan);
	DEBUG_POINT("plan-before-publication");
	begin_change(use, &change);
	row = change.row;
	if (row.generation != publication->generation)
	{
		count_fenced(use, !publication->replan);
		raise_stale(use, publication->generation, row.generation);
	}
	publishing.now = GetCurrentTimestamp();
	publishing.last_number = row.last_number;
	if (publication->splits != NULL)
		publish_splits(&publishing, publication->splits);
	write_plan(use, &change, &publishing, publication);
	plan_end_change(&change);
}

/*
 * revenant.publish(plan, generation, splits, cursor, final, OUT outcome, OUT created, OUT planned, OUT revision)
 *
 * 'ok', or 'noop': nothing was new, and nothing is written. Raises what plan_publish() does,
 * 22004, 25006.
 */
SQL_FUNCTION(revenant_publish)
{
	PlanPublication publication = {0};
	char	   *name;
	PlanUse    *use;
	Datum		values[4];
	bool		nulls[4] = {false};

	task_require_writable("publish");
	name = plan_name_arg(fcinfo, 0);
	use = plan_use(name);
	plan_use_check_worker(use, NULL);
	publication.generation = generation_arg(fcinfo, use, true);
	publication.splits = PG_ARGISNULL(2) ? NULL : PG_GETARG_JSONB_P(2);
	publication.cursor = PG_ARGISNULL(3) ? NULL : PG_GETARG_JSONB_P(3);
	publication.final = !PG_ARGISNULL(4) && PG_GETARG_BOOL(4);
	plan_publish(use, &publication);
	values[0] = CStringGetTextDatum(publication.changed ? "ok" : "noop");
	values[1] = Int64GetDatum(publication.created);
	values[2] = Int64GetDatum(publication.planned);
	values[3] = Int64GetDatum(publication.revision);
	return result_row(fcinfo, values, nulls);
}
