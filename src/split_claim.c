/*-------------------------------------------------------------------------
 *
 * split_claim.c
 *	  Claims of splits: claim_splits, await_splits, and what a claim is worth.
 *
 * The queue in shared memory says which split may be claimed next; its row decides. A claim is
 * that row, under a new epoch, and an entry that says until when. Nobody waits for a row:
 * what is locked goes back to the end of the queue.
 *
 *		taken		out of the queue; back at an abort
 *		pending		the row is written, the entry made; nobody else sees either
 *		live		committed; the entry is pushed on by every sign of life
 *		ending		a transaction has begun to end it
 *		dead		it has committed that, or the claim itself was rolled back
 *
 * NOTES
 *	  Who wants to end somebody's claim marks it first, and takes the claim's lock
 *	  exclusively then; who fences one takes that lock shared, and looks at the mark
 *	  then. One of them sees the other. A commit that changes its split needs neither: it has
 *	  the row, which whoever takes the split over must write.
 *
 * The idea: work stealing queues with visibility timeouts, as SQS has them; epochs are
 * fencing tokens.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/condition_variable.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "await.h"
#include "clock.h"
#include "debug.h"
#include "error.h"
#include "extension.h"
#include "fence.h"
#include "lease_api.h"
#include "lease_entry.h"
#include "lease_wait.h"
#include "locktag.h"
#include "request.h"
#include "result.h"
#include "split_claim.h"
#include "task_change.h"
#include "token.h"

/* So many splits that others have locked are passed over by one call, beside as many as it is to claim. */
#define BUSY_MAX 100

/* A longer wait looks again meanwhile. */
#define SLEEP_MAX_US (3600 * US_PER_S)

/* ---------------------------------------------------------------- arguments */

/* A ttl in microseconds; NULL is `unless_us`. Raises 22023. */
int64
plan_ttl_arg(FunctionCallInfo fcinfo, int n, int64 unless_us)
{
	int64		us = lease_ttl_arg(fcinfo, n);

	if (us == 0)
		return unless_us;
	if (us < PLAN_TTL_MIN_US)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ttl is out of range"),
				 errdetail("A worker of a plan has at least 300 ms."),
				 errhint("NULL is the plan's lease_ttl.")));
	return us;
}

/* The label of a worker, which is a name where it joins. Raises 22004, 22023. */
char *
plan_worker_arg(FunctionCallInfo fcinfo, int n)
{
	char	   *worker;

	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("worker must not be null")));
	worker = text_to_cstring(PG_GETARG_TEXT_PP(n));
	if (worker[0] == '\0' || strlen(worker) > WORKER_NAME_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("worker must have 1 to %d bytes", WORKER_NAME_MAX)));
	return worker;
}

/* ---------------------------------------------------------------- what a claim is worth */

/* The lock of a claim: see the head of this file. */
LOCKTAG
claim_lock_tag(int64 epoch)
{
	return locktag_make(LOCK_OTHER, MyDatabaseId, (uint64) epoch, LOCK_OTHER_CLAIM);
}

/* Whether a claim in memory is what the caller speaks of. */
static bool
is_meant(const ClaimEntry *claim, const PlanUse *use, const char *split)
{
	return claim->state != CLAIM_DEAD && claim->plan_id == use->plan_id && claim->number > plan_entry_floor(use->entry) &&
		claim->name_hash == split_name_hash(split);
}

/*
 * What an epoch of a split is worth now; where it is current this is a sign of
 * life, for `ttl_us` (0: as it was claimed). One that this transaction has fenced is current
 * whatever the time. Takes the claim's partition, then its member's. Raises 42501.
 */
void
claim_touch(const PlanUse *use, const char *split, int64 epoch, int64 ttl_us, ClaimLook *look)
{
	ClaimEntry *claim = epoch > 0 ? claim_find(use->instance, epoch) : NULL;
	bool		fenced = plan_op_find(PLAN_OP_FENCE, epoch) != NULL || plan_op_find(PLAN_OP_CLAIM, epoch) != NULL;
	PlanOp	   *end = plan_op_find(PLAN_OP_END, epoch);
	int64		now_us = clock_now_us();	/* under the lock: who ends it looks under the lock, too */
	bool		current;

	memset(look, 0, sizeof(*look));
	look->standing = CLAIM_UNKNOWN;
	if (claim == NULL)
		return;
	if (!is_meant(claim, use, split) || (claim->state == CLAIM_PENDING && claim->pid != MyProcPid) ||
		(claim->state == CLAIM_ENDING && claim->pid == MyProcPid) || (end != NULL && !end->undone))
	{
		claim_release(claim);
		return;
	}
	look->number = claim->number;
	look->member = claim->member;
	look->weight = claim->weight;
	look->role = claim->role;
	look->drain = claim->drain;
	look->drain_since_us = claim->drain_since_us;
	if (!is_member_of_role(GetUserId(), claim->role))
	{
		claim_release(claim);
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for split \"%s\" of plan \"%s\"", split, use->name),
				 errdetail("The epoch is the current one, but another role claimed the split."),
				 errhint("Be the role that claimed it, or a member of that role.")));
	}
	current = fenced || !claim_is_over(claim, now_us);
	/* who ends one that this transaction has fenced waits for us */
	if (claim->state == CLAIM_ENDING && !fenced)
	{
		look->standing = CLAIM_BUSY;
		look->ender = claim->ender;
	}
	else if (!current)
		look->standing = CLAIM_EXPIRED;
	else
	{
		look->standing = CLAIM_CURRENT;
		if (ttl_us > 0)
			claim->ttl_us = ttl_us;
		claim->deadline_us = Max(claim->deadline_us, now_us + claim->ttl_us);
		if (claim->drain == DRAIN_CANCELLED)
			claim->drain = DRAIN_NONE;
	}
	claim_release(claim);
	if (look->standing != CLAIM_CURRENT || look->member == 0)
		return;
	switch (member_renew(use->instance, look->member, &look->ender))
	{
		case MEMBER_IS_LIVE:
			break;
		case MEMBER_IS_ENDING:
			look->standing = fenced ? CLAIM_CURRENT : CLAIM_BUSY;
			break;
		case MEMBER_IS_OVER:
			look->standing = fenced ? CLAIM_CURRENT : CLAIM_EXPIRED;
			break;
	}
}

/* Marks a claim that is locked as being ended by this transaction. */
void
claim_mark_ending(ClaimEntry *claim)
{
	claim->state = CLAIM_ENDING;
	claim->pid = MyProcPid;
	GET_VXID_FROM_PGPROC(claim->ender, *MyProc);
}

/*
 * Marks a claim as being ended by this transaction. False: another one does, or it is over. Where this
 * transaction has fenced it, another one that has marked it waits for us, and finds what we did.
 */
bool
claim_begin_end(const PlanUse *use, int64 epoch)
{
	ClaimEntry *claim = claim_find(use->instance, epoch);
	bool		begun;

	if (claim == NULL)
		return false;
	begun = claim->state == CLAIM_LIVE || (claim->state == CLAIM_PENDING && claim->pid == MyProcPid);
	if (begun)
		claim_mark_ending(claim);
	else
		begun = claim->state == CLAIM_ENDING && claim->pid != MyProcPid && plan_op_find(PLAN_OP_FENCE, epoch) != NULL;
	claim_release(claim);
	return begun;
}

/*
 * A transaction that has ended has left a claim as being ended: an error had come between the mark and what
 * takes it away. So it was not ended.
 */
void
claim_heal(Oid instance, int64 epoch, const VirtualTransactionId *ender)
{
	ClaimEntry *claim = claim_find(instance, epoch);

	if (claim == NULL)
		return;
	if (claim->state == CLAIM_ENDING && VirtualTransactionIdEquals(claim->ender, *ender))
		claim->state = CLAIM_LIVE;
	claim_release(claim);
}

/* It is not ended after all. */
void
claim_cancel_end(const PlanUse *use, int64 epoch)
{
	ClaimEntry *claim = claim_find(use->instance, epoch);

	if (claim == NULL)
		return;
	if (claim->state == CLAIM_ENDING && claim->pid == MyProcPid)
		claim->state = plan_op_find(PLAN_OP_CLAIM, epoch) != NULL ? CLAIM_PENDING : CLAIM_LIVE;
	claim_release(claim);
}

/* Why an epoch that a split had is worth nothing now. */
static const char *
explain_end(const SplitRow *row)
{
	switch (row->ended)
	{
		case END_DONE:
			return "The split is done.";
		case END_RELEASED:
			return "It was released.";
		case END_FAILED:
			return "It was given back by fail_split().";
		case END_DRAINED:
			return "It was handed over.";
		case END_REVOKED:
			return "It was revoked: it had not been handed over within drain_deadline.";
		case END_STARVED:
			return "It was taken back: nothing was heard of it after its revocation had been cancelled.";
		case END_REQUEUED:
			return "The split was taken out of quarantine.";
		default:
			return "It is over.";
	}
}

/* Whether a member was replaced by another one of its name, or left: so that its claims are about to end. */
static bool
is_replaced(const PlanUse *use, int64 number)
{
	MemberEntry *member = member_find(use->instance, number);
	bool		replaced;

	if (member == NULL)
		return false;
	replaced = member->state == MEMBER_REPLACED || member->state == MEMBER_LEFT;
	member_release(member);
	return replaced;
}

/*
 * Whether a split that is not there may have been there when this epoch was: the plan was
 * reset or purged since, or a promotion lost it with its publication.
 */
static bool
is_gone(PlanUse *use, int64 epoch)
{
	PlanRow		row;

	/* as the rows have it: memory may not have heard yet that it was reset or purged */
	if (epoch <= 0 || plan_find_row(extension_get(), use->name, &row) == NULL || row.plan_id != use->plan_id)
		return false;
	/* the next token says which era it is now; it is wasted, with the transaction that fails */
	return row.planned < row.last_number ||
		(token_era(epoch) > 0 && token_era(epoch) < token_era(fence_next_token("the call")));
}

/* Raises 42704 for a split that there is none of; RV001 where it may have been there when the epoch was. */
compat_noreturn static void
raise_no_split(PlanUse *use, const char *split, int64 epoch)
{
	if (is_gone(use, epoch))
	{
		plan_count(use->entry, PLAN_FENCED_WRITES, 1);
		ereport(ERROR,
				(errcode(ERRCODE_RV_STALE_TOKEN),
				 errmsg("epoch " INT64_FORMAT " of split \"%s\" of plan \"%s\" is not the current one", epoch, split, use->name),
				 errdetail("There is no such split now: the plan was reset, splits that were done were purged, or a failover lost its publication."),
				 errhint("Stop the work on it.")));
	}
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("split \"%s\" does not exist in plan \"%s\"", split, use->name)));
}

/*
 * Raises what is wrong with an epoch that is not current: 42704, RV001, RV002. Looks
 * at the rows.
 */
void
claim_raise(PlanUse *use, SplitTables *tables, const char *split, int64 epoch)
{
	SplitSpec	spec;
	SplitRow	row;

	if (!split_find_name(tables, split, &spec) || !split_find_row(tables, spec.number, &row))
		raise_no_split(use, split, epoch);
	plan_count(use->entry, PLAN_FENCED_WRITES, 1);
	if (epoch > 0 && row.epoch == epoch && row.state == SPLIT_OWNED && row.member != 0 && is_replaced(use, row.member))
		ereport(ERROR,
				(errcode(ERRCODE_RV_STALE_TOKEN),
				 errmsg("epoch " INT64_FORMAT " of split \"%s\" of plan \"%s\" is not the current one", epoch, split, use->name),
				 errdetail("Its member " INT64_FORMAT " was replaced by another worker of the same name, or has left.", row.member),
				 errhint("Stop the work on it.")));
	if (epoch > 0 && row.epoch == epoch && (row.state == SPLIT_OWNED || row.ended == END_EXPIRED))
		ereport(ERROR,
				(errcode(ERRCODE_RV_LEASE_EXPIRED),
				 errmsg("the claim of split \"%s\" of plan \"%s\" has expired", split, use->name),
				 errdetail("Epoch " INT64_FORMAT " is still the newest, but nothing was heard of it for its ttl.", epoch),
				 errhint("Stop the work on it; what was not committed is to be done again by who claims it next.")));
	if (epoch > 0 && row.epoch == epoch)
		ereport(ERROR,
				(errcode(ERRCODE_RV_STALE_TOKEN),
				 errmsg("epoch " INT64_FORMAT " of split \"%s\" of plan \"%s\" is not the current one", epoch, split, use->name),
				 errdetail_internal("%s", _(explain_end(&row))),
				 errhint("Stop the work on it.")));
	ereport(ERROR,
			(errcode(ERRCODE_RV_STALE_TOKEN),
			 epoch > 0 ?
			 errmsg("epoch " INT64_FORMAT " of split \"%s\" of plan \"%s\" is not the current one", epoch, split, use->name) :
			 errmsg("split \"%s\" of plan \"%s\" was not claimed by a null epoch", split, use->name),
			 row.state == SPLIT_OWNED ?
			 errdetail("It belongs to worker \"%s\" since %s, by a newer epoch.", row.worker ? row.worker : "",
					   timestamptz_to_str(row.updated_at)) :
			 errdetail("The split is %s, and %s.", split_state_name(row.state),
					   row.epoch == 0 ? "was never claimed" : "was claimed by a newer epoch"),
			 errhint("Stop the work on it.")));
}

/* ---------------------------------------------------------------- claiming */

/* As what a claim of a split that is in this state is counted. */
PlanCounter
claim_acquired_as(const SplitRow *row)
{
	if (row->epoch == 0)
		return PLAN_ACQUIRED_CREATE;
	switch (row->ended)
	{
		case END_EXPIRED:
			return PLAN_ACQUIRED_EXPIRED;
		case END_DRAINED:
		case END_REVOKED:
		case END_STARVED:
		case END_FENCED:
			return PLAN_ACQUIRED_REASSIGNED;
		default:
			return PLAN_ACQUIRED_RECLAIMED;
	}
}

/* Makes the entry of a claim that is pending. Raises 53200. */
void
claim_open(const PlanUse *use, const SplitSpec *spec, int64 epoch, int64 member, Oid role, int64 ttl_us)
{
	ClaimEntry *claim = claim_make(use->instance, epoch);

	claim->state = CLAIM_PENDING;
	claim->plan_id = use->plan_id;
	claim->plan = use->entry->key;
	claim->number = spec->number;
	claim->name_hash = split_name_hash(spec->name);
	claim->member = member;
	claim->role = role;
	claim->pid = MyProcPid;
	claim->ttl_us = ttl_us;
	claim->deadline_us = clock_now_us() + ttl_us;
	claim->weight = spec->weight;
	claim->drain = DRAIN_NONE;
	claim->drain_since_us = claim->drain_seq = claim->declined_us = claim->retry_us = 0;
	claim_release(claim);
}

/* A call of claim_splits */
typedef struct Claiming
{
	PlanUse    *use;
	SplitTables tables;
	const char *worker;
	int64		ttl_us;
	ReturnSetInfo *result;
	JsonbParseState *answer;	/* what is remembered for a request_id; NULL: nothing is */
	bool		remembers;
	int			claimed;
} Claiming;

static void
put_claim(ReturnSetInfo *result, const SplitSpec *spec, const SplitRow *row, int64 epoch)
{
	Datum		values[5];
	bool		nulls[5] = {false};

	values[0] = CStringGetTextDatum(spec->name);
	values[1] = Int64GetDatum(epoch);
	values[2] = PointerGetDatum(spec->spec);
	nulls[2] = spec->spec == NULL;
	values[3] = PointerGetDatum(row->progress);
	nulls[3] = row->progress == NULL;
	values[4] = Int32GetDatum(row->attempts + 1);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

static void
remember(Claiming *claiming, const char *split, int64 epoch)
{
	JsonbValue	value = {.type = jbvString};

	value.val.string.val = unconstify(char *, split);
	value.val.string.len = (int) strlen(split);
	(void) pushJsonbValue(&claiming->answer, WJB_ELEM, &value);
	value.type = jbvNumeric;
	value.val.numeric = int64_to_numeric(epoch);
	(void) pushJsonbValue(&claiming->answer, WJB_ELEM, &value);
}

/*
 * Whether it is by this very transaction that a split is as it is (NULL: not there), so that all may be otherwise
 * after an abort.
 */
bool
split_is_own_doing(const PlanUse *use, const SplitRow *row)
{
	if (row != NULL)
		return TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(row->tuple->t_data));
	return plan_op_exists(PLAN_OP_RESET, use, 0) || plan_op_exists(PLAN_OP_PURGE, use, 0);
}

/* Claims the split that was taken out of the queue, if its row says that it can be. True where somebody has locked that. */
static bool
claim_one(Claiming *claiming, PlanOp *op)
{
	SplitSpec	spec;
	SplitRow	row;
	int64		epoch = 0;
	RowLock		written;
	bool		found;

	do
	{
		CHECK_FOR_INTERRUPTS();
		found = split_find_row(&claiming->tables, op->number, &row);
		if (!found || row.state != SPLIT_RUNNABLE)
		{
			/* it is there a second time, or was there in vain; but if that is our own doing it comes back with an abort */
			if (!split_is_own_doing(claiming->use, found ? &row : NULL))
				plan_op_forget(op);
			return false;
		}
		if (epoch == 0)
			epoch = fence_next_token("revenant.claim_splits()");
		written = split_own(&claiming->tables, &row, epoch, 0, GetUserId(), claiming->worker, false);
		if (written == ROW_BUSY)
			return true;
	} while (written != ROW_LOCKED);
	if (!split_find_spec(&claiming->tables, op->number, &spec))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("a split of plan \"%s\" has no row in revenant.split", claiming->use->name)));
	op->kind = PLAN_OP_CLAIM;
	op->weight = spec.weight;
	op->counted = claim_acquired_as(&row);
	plan_op_of_claim(op, epoch);
	claim_open(claiming->use, &spec, epoch, 0, GetUserId(), claiming->ttl_us);
	put_claim(claiming->result, &spec, &row, epoch);
	if (claiming->remembers)
		remember(claiming, spec.name, epoch);
	claiming->claimed++;
	return false;
}

/* Fills the queue from the rows, if it has lost what could be claimed. Needs no lock of the caller's. */
static void
refill(Claiming *claiming)
{
	Extension	oids = *extension_get();
	PlanEntry  *entry = claiming->use->entry;
	bool		lost;

	/* who has it fills the queue, too, or drops the plan */
	if (!plan_try_lock(claiming->use->name))
		return;
	LWLockAcquire(&entry->lock, LW_SHARED);
	lost = entry->queue_lost && entry->first.count == 0 && entry->again.count == 0;
	LWLockRelease(&entry->lock);
	if (lost)
		plan_refill(&oids, entry);
	plan_unlock(claiming->use->name);
}

/* So many splits out of the queue, as operations of this transaction; what it has itself published comes last. */
static int
take(Claiming *claiming, PlanOp **taken, int wanted)
{
	int64	   *numbers = palloc(wanted * sizeof(int64));
	bool	   *fresh = palloc(wanted * sizeof(bool));
	int			n;

	/* first the operations: what is taken then is not lost by any error */
	for (int i = 0; i < wanted; i++)
	{
		taken[i] = plan_op_add(PLAN_OP_TAKE, claiming->use);
		taken[i]->undone = true;
	}
	n = plan_entry_take(claiming->use->entry, claiming->use->plan_id, numbers, fresh, wanted);
	if (n == 0 && plan_take_own(claiming->use, &numbers[0]))
	{
		fresh[0] = true;
		n = 1;
	}
	for (int i = 0; i < n; i++)
	{
		taken[i]->number = numbers[i];
		taken[i]->fresh = fresh[i];
		taken[i]->undone = false;
	}
	for (int i = n; i < wanted; i++)
		plan_op_forget(taken[i]);
	pfree(numbers);
	pfree(fresh);
	return n;
}

/* What somebody has locked is claimed by who comes next. */
static void
give_back(PlanUse *use, PlanOp **busy, int nbusy)
{
	if (nbusy == 0)
		return;
	LWLockAcquire(&use->entry->lock, LW_EXCLUSIVE);
	for (int i = 0; i < nbusy; i++)
	{
		plan_entry_put_back(use->entry, busy[i]->number, false);
		plan_op_forget(busy[i]);
	}
	LWLockRelease(&use->entry->lock);
	ConditionVariableBroadcast(&use->entry->available);
}

static bool
queue_is_lost(PlanEntry *entry)
{
	bool		lost;

	LWLockAcquire(&entry->lock, LW_SHARED);
	lost = entry->queue_lost && plan_entry_available(entry) > 0;
	LWLockRelease(&entry->lock);
	return lost;
}

static void
claim_some(Claiming *claiming, int wanted)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "revenant claim", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	PlanOp	  **taken = MemoryContextAlloc(old, wanted * sizeof(PlanOp *));
	PlanOp	  **busy = MemoryContextAlloc(old, (wanted + BUSY_MAX) * sizeof(PlanOp *));
	int			nbusy = 0;
	bool		refilled = false;

	/* what is locked is passed over; a good deal of it */
	while (claiming->claimed < wanted && nbusy < wanted + BUSY_MAX)
	{
		int			n = take(claiming, taken, Min(wanted - claiming->claimed, wanted + BUSY_MAX - nbusy));

		if (n == 0 && !refilled && queue_is_lost(claiming->use->entry))
		{
			refilled = true;
			refill(claiming);
			continue;
		}
		if (n == 0)
			break;
		DEBUG_POINT("split-taken");
		for (int i = 0; i < n; i++)
		{
			if (claim_one(claiming, taken[i]))
				busy[nbusy++] = taken[i];
			if (!claiming->remembers)
				MemoryContextReset(context);
		}
	}
	give_back(claiming->use, busy, nbusy);
	MemoryContextSwitchTo(old);
	if (!claiming->remembers)
		MemoryContextDelete(context);
}

/* Answers a request again: those of its splits that are still claimed by it. */
static void
answer_again(Claiming *claiming, Jsonb *answer)
{
	for (int i = 0; answer != NULL && i + 1 < JB_ROOT_COUNT(answer); i += 2)
	{
		JsonbValue *name = getIthJsonbValueFromContainer(&answer->root, i);
		JsonbValue *number = getIthJsonbValueFromContainer(&answer->root, i + 1);
		char	   *split = pnstrdup(name->val.string.val, name->val.string.len);
		int64		epoch = DatumGetInt64(DirectFunctionCall1(numeric_int8, NumericGetDatum(number->val.numeric)));
		ClaimLook	look;
		SplitSpec	spec;
		SplitRow	row;

		claim_touch(claiming->use, split, epoch, claiming->ttl_us, &look);
		if (look.standing == CLAIM_CURRENT && split_find_spec(&claiming->tables, look.number, &spec) &&
			split_find_row(&claiming->tables, look.number, &row) && row.epoch == epoch)
			put_claim(claiming->result, &spec, &row, epoch);
	}
}

static int
count_arg(FunctionCallInfo fcinfo, int n)
{
	int			count;

	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"n\" must not be null")));
	count = PG_GETARG_INT32(n);
	if (count < 1 || count > CLAIM_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"n\" is out of range"),
				 errdetail("It is from 1 to %d.", CLAIM_MAX)));
	return count;
}

/*
 * claim_splits(plan, worker, n, ttl, fingerprint, request_id): up to n splits that nobody
 * has, those that were never owned first; each by a new epoch. Waits for nobody. A transaction that
 * does nothing else is not flushed. The same request_id again: those that the first one got, and still has.
 * Raises 22004, 22023, 25006, 42501, 42704, 53200, 55000, RV004.
 */
SQL_FUNCTION(revenant_claim_splits)
{
	Claiming	claiming = {0};
	Request		request = {.verb = "claim_splits"};
	RequestReply reply = {0};
	Extension	oids;
	char	   *plan;
	int			wanted;

	task_require_writable("claim_splits");
	plan = plan_name_arg(fcinfo, 0);
	claiming.worker = plan_worker_arg(fcinfo, 1);
	wanted = count_arg(fcinfo, 2);
	claiming.use = plan_use(plan);
	claiming.ttl_us = plan_ttl_arg(fcinfo, 3, claiming.use->lease_ttl_us);
	plan_use_check_worker(claiming.use, PG_ARGISNULL(4) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(4)));
	claiming.remembers = !PG_ARGISNULL(5);
	InitMaterializedSRF(fcinfo, 0);
	claiming.result = (ReturnSetInfo *) fcinfo->resultinfo;

	oids = *extension_get();
	split_open(&claiming.tables, &oids, claiming.use->plan_id, RowExclusiveLock);
	if (claiming.remembers)
	{
		request.request_id = PG_GETARG_UUID_P(5);
		request.type = plan;
		request.id = claiming.worker;
		request_lock(request.request_id);
		if (request_find(&request, &reply))
		{
			answer_again(&claiming, reply.reply);
			split_close(&claiming.tables);
			return (Datum) 0;
		}
		(void) pushJsonbValue(&claiming.answer, WJB_BEGIN_ARRAY, NULL);
	}
	plan_xact_begin_claims();
	plan_xact_begin_steps();
	claim_some(&claiming, wanted);
	if (claiming.remembers)
	{
		reply.reply = JsonbValueToJsonb(pushJsonbValue(&claiming.answer, WJB_END_ARRAY, NULL));
		request_note(&request, &reply);
	}
	plan_xact_end_claims();
	plan_xact_end_steps();
	split_close(&claiming.tables);
	if (claiming.claimed > 0)
		CommandCounterIncrement();
	return (Datum) 0;
}

/* ---------------------------------------------------------------- waiting for something to claim */

/* How many splits can be claimed; `over`: nothing will be any more. Takes the plan's lock. */
static int64
look_for_work(PlanUse *use, bool *over)
{
	PlanEntry  *entry = use->entry;
	int64		available;
	bool		queued;

	LWLockAcquire(&entry->lock, LW_SHARED);
	available = plan_entry_available(entry);
	/* what others have just taken and not committed is no work for us */
	queued = entry->first.count > 0 || entry->again.count > 0 || entry->queue_lost || entry->fresh_next <= entry->fresh_end;
	*over = entry->verdict != VERDICT_NONE || !entry->loaded || entry->plan_id != use->plan_id;
	LWLockRelease(&entry->lock);
	return queued && entry->loaded && entry->plan_id == use->plan_id ? available : 0;
}

/* Sleeps until there is something to claim, it is over, or the time has come. */
static int64
sleep_for_work(PlanUse *use, int64 until_us)
{
	uint32		wait_event = compat_wait_event("RevenantAwaitSplits");
	int64		available;
	bool		over;

	ConditionVariablePrepareToSleep(&use->entry->available);
	for (;;)
	{
		int64		now_us = clock_now_us();

		available = look_for_work(use, &over);
		if (available > 0 || over || (until_us != WAIT_FOREVER && now_us >= until_us))
			break;
		if (until_us == WAIT_FOREVER)
			ConditionVariableSleep(&use->entry->available, wait_event);
		else
			(void) ConditionVariableTimedSleep(&use->entry->available, (Min(until_us - now_us, SLEEP_MAX_US) + 999) / 1000, wait_event);
	}
	ConditionVariableCancelSleep();
	return available;
}

static PlanUse *
use_as_worker(const char *plan)
{
	PlanUse    *use = plan_use(plan);

	plan_use_check_worker(use, NULL);
	return use;
}

/*
 * CALL await_splits(plan, INOUT available, wait): returns when a split can be
 * claimed, and how many; 0: not within `wait`, or the plan is complete, stalled or gone.
 * Holds no snapshot while it waits, if it is called at top level. Raises 22004, 22023, 25006, 42501, 42704, 53200, 55000.
 */
SQL_FUNCTION(revenant_await_splits)
{
	char	   *plan;
	int64		wait_us;
	int64		available;
	bool		over;
	PlanUse    *use;
	Datum		value;
	bool		isnull = false;

	task_require_writable("await_splits");
	plan = plan_name_arg(fcinfo, 0);
	wait_us = lease_wait_arg(fcinfo, 2);
	use = use_as_worker(plan);
	available = look_for_work(use, &over);
	if (available == 0 && !over && wait_us != 0)
	{
		int64		until_us = wait_us < 0 ? WAIT_FOREVER : clock_now_us() + wait_us;

		await_leave_snapshot(fcinfo);
		use = use_as_worker(plan);
		InvalidateCatalogSnapshot();
		available = sleep_for_work(use, until_us);
	}
	value = Int64GetDatum(available);
	return result_row(fcinfo, &value, &isnull);
}
