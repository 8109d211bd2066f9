/*-------------------------------------------------------------------------
 *
 * split_commit.c
 *	  What a worker says of a split that it has claimed: commit_split(s),
 *	  fence_split, renew_splits, fail_split, release_split; and requeue_split.
 *
 * Each of these first asks what the epoch is worth (claim_touch), which is a sign of life, too.
 * A commit that changes its split writes the row, and with that keeps everybody
 * from taking it over until the transaction ends. One that changes nothing
 * takes the claim's lock for that, and writes nothing.
 *
 * A commit, a failure or a release that is repeated after a lost reply finds in
 * the row that it has been done, and succeeds again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "mb/pg_wchar.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/numeric.h"

#include "clock.h"
#include "debug.h"
#include "error.h"
#include "events.h"
#include "extension.h"
#include "fence.h"
#include "split_claim.h"
#include "split_commit.h"
#include "task_change.h"
#include "worker.h"

#define REASON_MAX_BYTES 2000

/* How often, and after how long, it is tried to tell a member something while somebody else does. */
#define TELL_TRIES 20
#define TELL_TRY_MS 5

/* ---------------------------------------------------------------- common to all */

/* Opens the plan and the tables for who works on its splits. */
void
split_work_begin(SplitWork *work, char *plan, LOCKMODE mode)
{
	Extension	oids;

	work->use = plan_use(plan);
	plan_use_check_worker(work->use, NULL);
	oids = *extension_get();
	split_open(&work->tables, &oids, work->use->plan_id, mode);
	work->wrote = false;
	plan_xact_begin_steps();
}

/* What was written is seen by what follows. */
void
split_work_end(SplitWork *work)
{
	split_close(&work->tables);
	plan_xact_end_steps();
	if (work->wrote)
		CommandCounterIncrement();
}

/* A split's name. Raises 22004, 22023. */
static char *
split_name_arg(FunctionCallInfo fcinfo, int n)
{
	char	   *name;

	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("split must not be null")));
	name = text_to_cstring(PG_GETARG_TEXT_PP(n));
	if (name[0] == '\0' || strlen(name) > SPLIT_NAME_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the name of a split has 1 to %d bytes", SPLIT_NAME_MAX)));
	return name;
}

static int64
epoch_arg(FunctionCallInfo fcinfo, int n)
{
	return PG_ARGISNULL(n) ? 0 : PG_GETARG_INT64(n);
}

/*
 * Another transaction is about to end the claim: waits until it has done so, or not. With nothing of the split's in our
 * hands: the other one may have to wait for that.
 */
static void
wait_for_end(SplitWork *work, int64 epoch, const ClaimLook *look)
{
	split_rest(&work->tables);
	(void) VirtualXactLock(look->ender, true);
	claim_heal(work->use->instance, epoch, &look->ender);
	CHECK_FOR_INTERRUPTS();
}

/* What an epoch is worth, once no other transaction is about to end it. */
static void
touch(SplitWork *work, const char *split, int64 epoch, ClaimLook *look)
{
	for (;;)
	{
		claim_touch(work->use, split, epoch, 0, look);
		if (look->standing != CLAIM_BUSY)
			return;
		wait_for_end(work, epoch, look);
	}
}

/*
 * Keeps the claim from changing hands until this transaction ends, without a
 * write. The caller has seen that it is current. Raises 54000, 53200, RV001, RV002.
 */
static void
fence(SplitWork *work, const char *split, int64 epoch)
{
	LOCKTAG		tag = claim_lock_tag(epoch);
	ClaimLook	look;
	PlanOp	   *op;

	if (plan_op_find(PLAN_OP_FENCE, epoch) != NULL || plan_op_find(PLAN_OP_CLAIM, epoch) != NULL)
		return;
	plan_require_fence_room();
	split_lock_fenced(work->use->plan_id, ShareLock);
	for (;;)
	{
		(void) LockAcquire(&tag, ShareLock, false, false);
		/* under the locks: who ends it has marked it before, or will see the lock; who removes all splits has done so, or waits */
		DEBUG_POINT("split-fence-locked");
		claim_touch(work->use, split, epoch, 0, &look);
		if (look.standing != CLAIM_BUSY)
			break;
		LockRelease(&tag, ShareLock, false);
		wait_for_end(work, epoch, &look);
	}
	if (look.standing != CLAIM_CURRENT)
		claim_raise(work->use, &work->tables, split, epoch);
	op = plan_op_add(PLAN_OP_FENCE, work->use);
	plan_op_of_claim(op, epoch);
	plan_op_count_fence(op);
}

/* ---------------------------------------------------------------- commit */

/* What a commit says; null keeps. */
typedef struct Commit
{
	char	   *split;
	int64		epoch;
	Jsonb	   *progress;
	Numeric		watermark;
	bool		done;
} Commit;

static bool
same_json(const Jsonb *a, const Jsonb *b)
{
	return a != NULL && b != NULL &&
		compareJsonbContainers(unconstify(JsonbContainer *, &a->root), unconstify(JsonbContainer *, &b->root)) == 0;
}

static int
compare_numbers(Numeric a, Numeric b)
{
	return DatumGetInt32(DirectFunctionCall2(numeric_cmp, NumericGetDatum(a), NumericGetDatum(b)));
}

/* Whether a commit says what the row says already; `done` apart. */
static bool
says_the_same(const Commit *commit, const SplitRow *row)
{
	return (commit->progress == NULL || same_json(commit->progress, row->progress)) &&
		(commit->watermark == NULL || (row->watermark != NULL && compare_numbers(commit->watermark, row->watermark) == 0));
}

/* Raises 22023 for a watermark that would go back, or could never go on. */
static void
check_watermark(const SplitWork *work, const Commit *commit, const SplitRow *row)
{
	if (commit->watermark != NULL && numeric_is_nan(commit->watermark))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the watermark of split \"%s\" of plan \"%s\" must be a number", commit->split, work->use->name)));
	if (commit->watermark == NULL || row->watermark == NULL || compare_numbers(commit->watermark, row->watermark) >= 0)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("the watermark of split \"%s\" of plan \"%s\" cannot go back", commit->split, work->use->name),
			 errdetail("It is %s, and would be %s.",
					   DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(row->watermark))),
					   DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(commit->watermark)))),
			 errhint("NULL keeps it.")));
}

/* Writes what a commit changes. ROW_CHANGED: look again. */
static RowLock
write_commit(SplitWork *work, const Commit *commit, const SplitRow *row)
{
	Datum		values[STEP_COLUMNS] = {0};
	bool		nulls[STEP_COLUMNS] = {0};
	bool		replace[STEP_COLUMNS] = {0};

	values[ATT_STEP_UPDATED_AT - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
	replace[ATT_STEP_UPDATED_AT - 1] = true;
	if (commit->progress != NULL)
	{
		values[ATT_STEP_PROGRESS - 1] = JsonbPGetDatum(commit->progress);
		replace[ATT_STEP_PROGRESS - 1] = true;
	}
	if (commit->watermark != NULL)
	{
		values[ATT_STEP_WATERMARK - 1] = NumericGetDatum(commit->watermark);
		replace[ATT_STEP_WATERMARK - 1] = true;
	}
	/* it goes on: what failed before does not count any more */
	if (!says_the_same(commit, row) || commit->done)
	{
		values[ATT_STEP_ATTEMPTS - 1] = Int32GetDatum(0);
		replace[ATT_STEP_ATTEMPTS - 1] = true;
	}
	if (commit->done)
	{
		values[ATT_STEP_STATE - 1] = Int16GetDatum(SPLIT_DONE);
		values[ATT_STEP_ENDED - 1] = Int16GetDatum(END_DONE);
		values[ATT_STEP_MEMBER - 1] = Int64GetDatum(0);
		replace[ATT_STEP_STATE - 1] = replace[ATT_STEP_ENDED - 1] = replace[ATT_STEP_MEMBER - 1] = true;
	}
	return split_update(&work->tables, row, values, nulls, replace, true);
}

/* A claim ends that somebody wanted its member to hand over. */
static void
count_drained(PlanOp *op, const ClaimLook *look)
{
	if (look->drain != DRAIN_REQUESTED)
		return;
	op->counted = PLAN_REVOCATIONS_DRAINED;
	op->drained_us = clock_now_us() - look->drain_since_us;
}

/* Notes what a commit has written. */
static void
note_commit(SplitWork *work, const Commit *commit, const ClaimLook *look)
{
	PlanOp	   *op;

	work->wrote = true;
	if (commit->done)
	{
		op = plan_op_end(work->use, commit->epoch, look->number, look->member, look->weight, END_DONE, SPLIT_DONE);
		(void) claim_begin_end(work->use, commit->epoch);
		count_drained(op, look);
	}
	else if (plan_op_find(PLAN_OP_FENCE, commit->epoch) == NULL)
	{
		/* the row is ours to the end of the transaction, and so is the claim */
		op = plan_op_add(PLAN_OP_FENCE, work->use);
		op->counted = PLAN_COMMITS;
		plan_op_of_claim(op, commit->epoch);
	}
	else
		plan_op_count(work->use, PLAN_COMMITS);
}

/*
 * Whether the split is done by this very epoch, with these values: then a commit is a repeated one. Raises 42501. Not
 * in a transaction that has written something else, or will have: whoever repeats that as a whole, since the reply
 * of its first COMMIT was lost, would have its effects twice (plan_xact.c looks at its end).
 */
static bool
is_repeated(SplitWork *work, const Commit *commit)
{
	SplitSpec	spec;
	SplitRow	row;

	if (commit->epoch <= 0 || !split_find_name(&work->tables, commit->split, &spec) ||
		!split_find_row(&work->tables, spec.number, &row) ||
		row.epoch != commit->epoch || row.state != SPLIT_DONE || !says_the_same(commit, &row))
		return false;
	if (!is_member_of_role(GetUserId(), row.role))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for split \"%s\" of plan \"%s\"", commit->split, work->use->name),
				 errdetail("It was done by another role.")));
	if (TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(row.tuple->t_data)))
		return true;			/* and so are its effects */
	if (plan_xact_has_effects())
		return false;
	plan_op_add(PLAN_OP_REPEAT, work->use)->number = row.number;
	return true;
}

/* One commit: see the head of this file. Raises RV001, RV002, 22023, 42501, 42704, 54000. */
static void
commit_one(SplitWork *work, const Commit *commit)
{
	RowLock		written;

	do
	{
		ClaimLook	look;
		SplitRow	row;

		CHECK_FOR_INTERRUPTS();
		touch(work, commit->split, commit->epoch, &look);
		if (look.standing != CLAIM_CURRENT)
		{
			if (is_repeated(work, commit))
				return;
			claim_raise(work->use, &work->tables, commit->split, commit->epoch);
		}
		if (commit->progress == NULL && commit->watermark == NULL && !commit->done)
		{
			fence(work, commit->split, commit->epoch);
			return;
		}
		if (!split_find_row(&work->tables, look.number, &row) || row.state != SPLIT_OWNED || row.epoch != commit->epoch)
			claim_raise(work->use, &work->tables, commit->split, commit->epoch);
		check_watermark(work, commit, &row);
		if (!commit->done && says_the_same(commit, &row))
		{
			fence(work, commit->split, commit->epoch);
			return;
		}
		DEBUG_POINT("split-before-commit");
		/* what this transaction has written itself before it must be visible to be written again */
		if (plan_op_find(PLAN_OP_FENCE, commit->epoch) != NULL || plan_op_find(PLAN_OP_CLAIM, commit->epoch) != NULL)
			CommandCounterIncrement();
		written = write_commit(work, commit, &row);
		if (written == ROW_LOCKED)
			note_commit(work, commit, &look);
	} while (written != ROW_LOCKED);
}

/*
 * commit_split(plan, split, epoch, progress, watermark, done): how far the split is; NULL keeps. A
 * sign of life; and until the transaction ends nobody else gets the split. Raises
 * RV001, RV002, 22004, 22023, 25006, 42501, 42704, 53200, 54000, 55000.
 */
SQL_FUNCTION(revenant_commit_split)
{
	SplitWork	work;
	Commit		commit = {0};
	char	   *plan;

	task_require_writable("commit_split");
	plan = plan_name_arg(fcinfo, 0);
	commit.split = split_name_arg(fcinfo, 1);
	commit.epoch = epoch_arg(fcinfo, 2);
	commit.progress = PG_ARGISNULL(3) ? NULL : PG_GETARG_JSONB_P(3);
	commit.watermark = PG_ARGISNULL(4) ? NULL : PG_GETARG_NUMERIC(4);
	commit.done = !PG_ARGISNULL(5) && PG_GETARG_BOOL(5);
	split_work_begin(&work, plan, RowExclusiveLock);
	commit_one(&work, &commit);
	split_work_end(&work);
	PG_RETURN_VOID();
}

/* Raises 22023: what is wrong with an element of an array of commits. */
compat_noreturn static void
complain_of_element(int number, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid element %d of \"commits\"", number),
			 errdetail_internal("%s", detail),
			 errhint("An element is {\"split\": \"a\", \"epoch\": 1, \"progress\": {}, \"watermark\": 1, \"done\": true}; all but split and epoch may be absent or null.")));
}

static void
read_field(Commit *commit, int number, const char *key, const JsonbValue *value)
{
	if (strcmp(key, "split") == 0)
	{
		if (value->type != jbvString || value->val.string.len == 0 || value->val.string.len > SPLIT_NAME_MAX)
			complain_of_element(number, psprintf("\"split\" must be a string of 1 to %d bytes.", SPLIT_NAME_MAX));
		commit->split = pnstrdup(value->val.string.val, value->val.string.len);
	}
	else if (strcmp(key, "epoch") == 0)
	{
		if (value->type != jbvNumeric)
			complain_of_element(number, "\"epoch\" must be a number.");
		commit->epoch = DatumGetInt64(DirectFunctionCall1(numeric_int8, NumericGetDatum(value->val.numeric)));
		/* rounded: there is something behind the point */
		if (compare_numbers(int64_to_numeric(commit->epoch), value->val.numeric) != 0)
			complain_of_element(number, "\"epoch\" must be a whole number.");
	}
	else if (strcmp(key, "progress") == 0)
		commit->progress = value->type == jbvNull ? NULL : JsonbValueToJsonb(unconstify(JsonbValue *, value));
	else if (strcmp(key, "watermark") == 0)
	{
		if (value->type != jbvNumeric && value->type != jbvNull)
			complain_of_element(number, "\"watermark\" must be a number.");
		commit->watermark = value->type == jbvNull ? NULL :
			DatumGetNumeric(datumCopy(NumericGetDatum(value->val.numeric), false, -1));
	}
	else if (strcmp(key, "done") == 0)
	{
		if (value->type != jbvBool && value->type != jbvNull)
			complain_of_element(number, "\"done\" must be true or false.");
		commit->done = value->type == jbvBool && value->val.boolean;
	}
	else
		complain_of_element(number, psprintf("It has an unknown key: \"%s\".", key));
}

/*
 * commit_splits(plan, commits): commit_split() for each element of an array of
 * {split, epoch, progress, watermark, done}; all or none. Returns how many. Raises what
 * commit_split() does, 22023 for what is no such array.
 */
SQL_FUNCTION(revenant_commit_splits)
{
	SplitWork	work;
	Jsonb	   *commits;
	JsonbIterator *iterator;
	JsonbIteratorToken token;
	JsonbValue	value;
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "revenant commit", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old;
	Commit		commit = {0};
	char	   *plan;
	char	   *key = "";
	int			depth = 0;
	int			count = 0;

	task_require_writable("commit_splits");
	plan = plan_name_arg(fcinfo, 0);
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"commits\" must not be null")));
	commits = PG_GETARG_JSONB_P(1);
	if (!JB_ROOT_IS_ARRAY(commits) || JB_ROOT_IS_SCALAR(commits))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"commits\" must be a JSON array")));
	split_work_begin(&work, plan, RowExclusiveLock);
	iterator = JsonbIteratorInit(&commits->root);
	old = MemoryContextSwitchTo(context);
	/* the iterator is the caller's, what an element needs the context's */
	for (;;)
	{
		MemoryContextSwitchTo(old);
		token = JsonbIteratorNext(&iterator, &value, depth >= 2);
		MemoryContextSwitchTo(context);
		if (token == WJB_DONE)
			break;
		switch (token)
		{
			case WJB_BEGIN_ARRAY:
				if (depth == 1)
					complain_of_element(count + 1, "It must be an object.");
				depth++;
				break;
			case WJB_BEGIN_OBJECT:
				depth++;
				memset(&commit, 0, sizeof(commit));
				break;
			case WJB_KEY:
				key = pnstrdup(value.val.string.val, value.val.string.len);
				break;
			case WJB_VALUE:
				read_field(&commit, count + 1, key, &value);
				break;
			case WJB_ELEM:
				complain_of_element(count + 1, "It must be an object.");
				break;
			case WJB_END_OBJECT:
				depth--;
				count++;
				if (commit.split == NULL)
					complain_of_element(count, "It has no \"split\".");
				commit_one(&work, &commit);
				MemoryContextReset(context);
				break;
			default:
				break;
		}
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	split_work_end(&work);
	PG_RETURN_INT32(count);
}

/*
 * fence_split(plan, split, epoch): returns if the epoch is current; then nobody else
 * gets the split before this transaction ends, however long it takes. Raises what commit_split() does.
 */
SQL_FUNCTION(revenant_fence_split)
{
	SplitWork	work;
	ClaimLook	look;
	char	   *plan;
	char	   *split;
	int64		epoch;

	task_require_writable("fence_split");
	plan = plan_name_arg(fcinfo, 0);
	split = split_name_arg(fcinfo, 1);
	epoch = epoch_arg(fcinfo, 2);
	split_work_begin(&work, plan, AccessShareLock);
	touch(&work, split, epoch, &look);
	if (look.standing != CLAIM_CURRENT)
		claim_raise(work.use, &work.tables, split, epoch);
	fence(&work, split, epoch);
	split_work_end(&work);
	PG_RETURN_VOID();
}

/* ---------------------------------------------------------------- renew */

/* The elements of an array argument. Raises 22004. */
static int
array_arg(FunctionCallInfo fcinfo, int n, const char *what, Oid type, Datum **elements, bool **nulls)
{
	int			count;
	int16		length;
	bool		by_value;
	char		align;

	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"%s\" must not be null", what)));
	get_typlenbyvalalign(type, &length, &by_value, &align);
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(n), type, length, by_value, align, elements, nulls, &count);
	return count;
}

/*
 * renew_splits(plan, splits, epochs, ttl): a sign of life for each; writes no row. Returns
 * the names of those that are lost. Raises 22004, 22023, 25006, 42501, 42704, 53200, 55000.
 */
SQL_FUNCTION(revenant_renew_splits)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	PlanUse    *use;
	char	   *plan;
	int64		ttl_us;
	Datum	   *splits;
	Datum	   *epochs;
	bool	   *no_split;
	bool	   *no_epoch;
	int			count;

	task_require_writable("renew_splits");
	plan = plan_name_arg(fcinfo, 0);
	count = array_arg(fcinfo, 1, "splits", TEXTOID, &splits, &no_split);
	if (array_arg(fcinfo, 2, "epochs", INT8OID, &epochs, &no_epoch) != count)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"splits\" and \"epochs\" must have as many elements")));
	ttl_us = plan_ttl_arg(fcinfo, 3, 0);
	use = plan_use(plan);
	plan_use_check_worker(use, NULL);
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	for (int i = 0; i < count; i++)
	{
		ClaimLook	look;
		bool		isnull = false;

		CHECK_FOR_INTERRUPTS();
		if (no_split[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("split must not be null"),
					 errdetail("It is element %d of \"splits\".", i + 1)));
		claim_touch(use, TextDatumGetCString(splits[i]), no_epoch[i] ? 0 : DatumGetInt64(epochs[i]), ttl_us, &look);
		/* what another transaction is about to end may be lost in a moment, and is not yet */
		if (look.standing != CLAIM_CURRENT && look.standing != CLAIM_BUSY)
			tuplestore_putvalues(result->setResult, result->setDesc, &splits[i], &isnull);
	}
	return (Datum) 0;
}

/* ---------------------------------------------------------------- the end of a claim by its worker */

/* Whether the claim was ended in this way already: by the same call, whose reply was lost. */
static bool
was_ended(SplitWork *work, const char *split, int64 epoch, ClaimEnd how)
{
	SplitSpec	spec;
	SplitRow	row;

	return epoch > 0 && split_find_name(&work->tables, split, &spec) &&
		split_find_row(&work->tables, spec.number, &row) && row.epoch == epoch && row.state != SPLIT_OWNED &&
		row.ended == how && is_member_of_role(GetUserId(), row.role);
}

/* Waits for who has fenced a claim that this transaction has marked as being ended: nobody else can fence it then. */
void
split_wait_for_fences(SplitWork *work, int64 epoch)
{
	LOCKTAG		tag = claim_lock_tag(epoch);

	split_rest(&work->tables);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
	LockRelease(&tag, ExclusiveLock, false);
}

/* Writes into its row how a claim ended that is marked so. False: it was not ended; then neither the mark nor `op` is there any more. */
static bool
write_end(PlanUse *use, SplitTables *tables, PlanOp *op, const char *reason, bool wait)
{
	RowLock		written;
	SplitRow	row;

	do
	{
		CHECK_FOR_INTERRUPTS();
		if (!split_find_row(tables, op->number, &row) || row.state != SPLIT_OWNED || row.epoch != op->epoch)
			break;
		op->state = reason != NULL && row.attempts + 1 >= use->max_attempts ? SPLIT_QUARANTINED : SPLIT_RUNNABLE;
		written = split_end(tables, &row, op->how, op->state, reason, wait);
		if (written == ROW_LOCKED)
			return true;
	} while (wait);
	claim_cancel_end(use, op->epoch);
	op->undone = true;
	return false;
}

/*
 * Ends a claim that this transaction has marked so: waits for who has fenced it, then writes the row.
 * `reason`: it uses up an attempt. False: what that one did has ended it.
 */
bool
split_end_claim(SplitWork *work, int64 epoch, const ClaimLook *look, ClaimEnd how, const char *reason)
{
	PlanOp	   *op = plan_op_end(work->use, epoch, look->number, look->member, look->weight, how, SPLIT_RUNNABLE);

	split_wait_for_fences(work, epoch);
	plan_entry_reserve(work->use->entry, 1);
	work->wrote = write_end(work->use, &work->tables, op, reason, true) || work->wrote;
	return !op->undone;
}

/*
 * The same for who waits for nobody, and has seen that nobody has fenced it; `op` is what he has noted. False: a
 * transaction of its worker's has the row, or has ended it, and it is not ended by us.
 */
bool
split_try_end_claim(PlanUse *use, SplitTables *tables, PlanOp *op, const char *reason)
{
	return write_end(use, tables, op, reason, false);
}

/* A member's split is quarantined: it is told, unless somebody else tells it something at this moment. */
static void
tell_quarantined(SplitWork *work, const ClaimLook *look, int64 epoch)
{
	PlanOp	   *op;
	int			tries = 0;

	if (look->member == 0)
		return;
	/* who has the right to tell it something has it for a moment, as a rule; and a word that is lost is no harm: it knows that it failed */
	while (!member_begin_news(work->use->instance, look->member, 1 + plan_op_pending_news(look->member)))
	{
		if (++tries > TELL_TRIES)
			return;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, TELL_TRY_MS, compat_wait_event("RevenantTellMember"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	plan_op_add(PLAN_OP_BUSY, work->use)->member = look->member;
	op = plan_op_add(PLAN_OP_NEWS, work->use);
	op->member = look->member;
	op->news = (MemberNews) {
		.seq = fence_next_token("revenant.fail_split()"),.number = look->number,.epoch = epoch,.kind = NEWS_QUARANTINED
	};
}

/* A split is given up: the event. */
void
split_tell_quarantined(const PlanUse *use, const char *split, int64 epoch, int attempts, const char *reason)
{
	Event		event = {
		.kind = EVENT_PLAN_QUARANTINED,.subject = use->name,.token = epoch,.role = use->owner,
		.detail = {"split", split, "attempts", psprintf("%d", attempts), "reason", reason, NULL}
	};

	event_at_commit(&event);
}

/* A worker ends its claim. Repeated after it was ended in this way: nothing. */
static void
end_own(SplitWork *work, const char *split, int64 epoch, ClaimEnd how, const char *reason)
{
	ClaimLook	look;

	do
	{
		CHECK_FOR_INTERRUPTS();
		touch(work, split, epoch, &look);
		if (look.standing != CLAIM_CURRENT)
		{
			if (was_ended(work, split, epoch, how))
				return;
			claim_raise(work->use, &work->tables, split, epoch);
		}
	} while (!claim_begin_end(work->use, epoch));
	if (!split_end_claim(work, epoch, &look, how, reason))
	{
		/* the transaction that had fenced it may have done the same */
		if (was_ended(work, split, epoch, how))
			return;
		claim_raise(work->use, &work->tables, split, epoch);
	}
	if (plan_op_find(PLAN_OP_END, epoch)->state == SPLIT_QUARANTINED)
	{
		split_tell_quarantined(work->use, split, epoch, work->use->max_attempts, reason);
		tell_quarantined(work, &look, epoch);
	}
	if (how == END_DRAINED)
		count_drained(plan_op_find(PLAN_OP_END, epoch), &look);
}

/* As many bytes of a reason as are kept, without cutting a character. */
static char *
reason_arg(FunctionCallInfo fcinfo, int n)
{
	char	   *reason;

	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("reason must not be null"),
				 errhint("It is what people read who look at the split when it is quarantined.")));
	reason = text_to_cstring(PG_GETARG_TEXT_PP(n));
	reason[pg_mbcliplen(reason, (int) strlen(reason), REASON_MAX_BYTES)] = '\0';
	return reason;
}

/* A function (plan, split, epoch, ...) by which a worker ends its claim; the one that fails it has a reason as well. */
static Datum
end_by_call(FunctionCallInfo fcinfo, const char *function, ClaimEnd how)
{
	SplitWork	work;
	char	   *plan;
	char	   *split;
	char	   *reason;

	task_require_writable(function);
	plan = plan_name_arg(fcinfo, 0);
	split = split_name_arg(fcinfo, 1);
	reason = how == END_FAILED ? reason_arg(fcinfo, 3) : NULL;
	split_work_begin(&work, plan, RowExclusiveLock);
	end_own(&work, split, epoch_arg(fcinfo, 2), how, reason);
	split_work_end(&work);
	PG_RETURN_VOID();
}

/*
 * fail_split(plan, split, epoch, reason): it could not be done; that uses up an attempt, and with the last
 * one the split is quarantined. Raises RV001, RV002, 22004, 22023, 25006, 42501, 42704, 53200, 55000.
 */
SQL_FUNCTION(revenant_fail_split)
{
	return end_by_call(fcinfo, "fail_split", END_FAILED);
}

/* release_split(plan, split, epoch): somebody else may have it; no attempt is used up. Raises what fail_split() does. */
SQL_FUNCTION(revenant_release_split)
{
	return end_by_call(fcinfo, "release_split", END_RELEASED);
}

/* drained(plan, split, epoch): it is handed over, as it was asked for. Raises what fail_split() does. */
SQL_FUNCTION(revenant_drained)
{
	return end_by_call(fcinfo, "drained", END_DRAINED);
}

/*
 * decline_revoke(plan, split, epoch): its member keeps it, and is not asked again for a while. Raises
 * RV001, RV002, 22004, 22023, 25006, 42501, 42704, 53200, 55000.
 */
SQL_FUNCTION(revenant_decline_revoke)
{
	SplitWork	work;
	ClaimLook	look;
	ClaimEntry *claim;
	char	   *plan;
	char	   *split;
	int64		epoch = epoch_arg(fcinfo, 2);

	task_require_writable("decline_revoke");
	plan = plan_name_arg(fcinfo, 0);
	split = split_name_arg(fcinfo, 1);
	split_work_begin(&work, plan, AccessShareLock);
	touch(&work, split, epoch, &look);
	if (look.standing != CLAIM_CURRENT)
		claim_raise(work.use, &work.tables, split, epoch);
	claim = claim_find(work.use->instance, epoch);
	if (claim != NULL)
	{
		claim->drain = DRAIN_NONE;
		claim->declined_us = clock_now_us();
		claim_release(claim);
	}
	if (look.drain == DRAIN_REQUESTED)
	{
		plan_op_count(work.use, PLAN_REVOCATIONS_DECLINED);
		/* somebody else may have one that can be handed over */
		plan_entry_want_assignment(work.use->entry);
		worker_wake_supervisor(MyDatabaseId);
	}
	split_work_end(&work);
	PG_RETURN_VOID();
}

/* ---------------------------------------------------------------- out of quarantine */

/* The plan goes on: what was found about its end is void. */
static void
void_verdict(PlanChange *change, PlanUse *use)
{
	Datum		values[PLAN_COLUMNS] = {0};
	bool		nulls[PLAN_COLUMNS] = {0};
	bool		replace[PLAN_COLUMNS] = {0};

	if (change->row.verdict == VERDICT_NONE)
		return;
	nulls[ATT_PLAN_VERDICT - 1] = nulls[ATT_PLAN_VERDICT_SEQ - 1] = true;
	replace[ATT_PLAN_VERDICT - 1] = replace[ATT_PLAN_VERDICT_SEQ - 1] = true;
	plan_write(change, values, nulls, replace);
	plan_op_keep_row(plan_op_add(PLAN_OP_ALTER, use), &change->row);
}

/*
 * requeue_split(plan, split): one that was given up is to be claimed again, with all its attempts.
 * Raises 22004, 22023, 25006, 42501, 42704, 53200, 55000 for one that is not quarantined.
 */
SQL_FUNCTION(revenant_requeue_split)
{
	SplitWork	work;
	PlanChange	change;
	SplitSpec	spec;
	SplitRow	row;
	char	   *plan;
	char	   *split;
	RowLock		written;

	task_require_writable("requeue_split");
	plan = plan_name_arg(fcinfo, 0);
	split = split_name_arg(fcinfo, 1);
	split_work_begin(&work, plan, RowExclusiveLock);
	plan_begin_change(plan, &change);
	do
	{
		Datum		values[STEP_COLUMNS] = {0};
		bool		nulls[STEP_COLUMNS] = {0};
		bool		replace[STEP_COLUMNS] = {0};

		CHECK_FOR_INTERRUPTS();
		if (!split_find_name(&work.tables, split, &spec) || !split_find_row(&work.tables, spec.number, &row))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_OBJECT),
					 errmsg("split \"%s\" does not exist in plan \"%s\"", split, plan)));
		if (row.state != SPLIT_QUARANTINED)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("split \"%s\" of plan \"%s\" is not quarantined", split, plan),
					 errdetail("It is %s.", split_state_name(row.state))));
		values[ATT_STEP_STATE - 1] = Int16GetDatum(SPLIT_RUNNABLE);
		values[ATT_STEP_ENDED - 1] = Int16GetDatum(END_REQUEUED);
		values[ATT_STEP_ATTEMPTS - 1] = Int32GetDatum(0);
		values[ATT_STEP_UPDATED_AT - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
		replace[ATT_STEP_STATE - 1] = replace[ATT_STEP_ENDED - 1] = true;
		replace[ATT_STEP_ATTEMPTS - 1] = replace[ATT_STEP_UPDATED_AT - 1] = true;
		written = split_update(&work.tables, &row, values, nulls, replace, true);
	} while (written != ROW_LOCKED);
	work.wrote = true;
	plan_entry_reserve(work.use->entry, 1);
	plan_op_add(PLAN_OP_REQUEUE, work.use)->number = spec.number;
	void_verdict(&change, work.use);
	plan_end_change(&change);
	split_work_end(&work);
	PG_RETURN_VOID();
}
