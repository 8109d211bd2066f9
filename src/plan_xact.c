/*-------------------------------------------------------------------------
 *
 * plan_xact.c
 *	  What a transaction did to plans and splits, and what becomes of it at its end.
 *
 * {claim, end, join, leave, publish, requeue, purge, reset, create, alter, drop} ×
 * {commit, abort, subtransaction aborted}: the rows see to themselves. This
 * file publishes to shared memory what was committed, in the order in which it was done, and
 * gives back what was taken from there for nothing.
 *
 * NOTES
 *	  The commit callback runs when the transaction is visible and before its
 *	  locks go. So who waited for a row finds memory as the row says it is; and
 *	  so counters are exact: what happens to a split is counted in
 *	  the order in which it happens to its row.
 *
 *	  Who claims and does nothing else need not wait for the disk: a claim that a
 *	  crash loses is one that fences its worker, no more. Whether anything else was
 *	  written is seen by the WAL that this process has written.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "clock.h"
#include "debug.h"
#include "error.h"
#include "lease_budget.h"
#include "lease_xact.h"
#include "plan_xact.h"
#include "shmem.h"
#include "worker.h"

/* In TopTransactionContext, all of it. */
static dlist_head ops = DLIST_STATIC_INIT(ops);
static HTAB *by_epoch = NULL;	/* of EpochOps */

/* The newest operation of each kind on a claim */
typedef struct EpochOps
{
	int64		epoch;
	PlanOp	   *claim;			/* CLAIM or GAIN */
	PlanOp	   *end;
	PlanOp	   *fence;
} EpochOps;

/* What this transaction has written is of this kind alone, up to there in the WAL. */
typedef struct OwnWrites
{
	bool		alone;
	XLogRecPtr	end;			/* InvalidXLogRecPtr: none was written yet */
} OwnWrites;

static OwnWrites claims = {0};	/* whose loss in a crash does no harm */
static OwnWrites steps = {0};	/* about splits: no effects of a worker's */

static bool wake_supervisor = false;

/* Fences by locks of claims, of which a transaction may have as many as of leases. */
static int	nfences = 0;

/* ---------------------------------------------------------------- operations */

/* Notes what the transaction does. */
PlanOp *
plan_op_add(PlanOpKind kind, PlanUse *use)
{
	PlanOp	   *op = MemoryContextAllocZero(TopTransactionContext, sizeof(PlanOp));

	op->kind = kind;
	op->use = use;
	op->nest_level = GetCurrentTransactionNestLevel();
	op->counted = PLAN_COUNTERS;
	dlist_push_tail(&ops, &op->node);
	if (kind == PLAN_OP_DROP)
		use->dropped = true;
	return op;
}

/* An operation came to nothing before it was about anything. */
void
plan_op_forget(PlanOp *op)
{
	dlist_delete(&op->node);
	pfree(op);
}

/* Something is counted if the transaction commits. */
void
plan_op_count(PlanUse *use, PlanCounter which)
{
	plan_op_add(PLAN_OP_COUNT, use)->counted = which;
}

static PlanOp **
epoch_place(EpochOps *of, PlanOpKind kind)
{
	switch (kind)
	{
		case PLAN_OP_CLAIM:
		case PLAN_OP_GAIN:
			return &of->claim;
		case PLAN_OP_END:
			return &of->end;
		case PLAN_OP_FENCE:
			return &of->fence;
		default:
			return NULL;
	}
}

/* The operation is about this claim: CLAIM, GAIN, END, FENCE. */
void
plan_op_of_claim(PlanOp *op, int64 epoch)
{
	EpochOps   *of;
	bool		found;

	if (by_epoch == NULL)
	{
		HASHCTL		control = {.keysize = sizeof(int64),.entrysize = sizeof(EpochOps),.hcxt = TopTransactionContext};

		by_epoch = hash_create("revenant claims", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	op->epoch = epoch;
	of = hash_search(by_epoch, &epoch, HASH_ENTER, &found);
	if (!found)
		of->claim = of->end = of->fence = NULL;
	*epoch_place(of, op->kind) = op;
}

/* Notes that a claim ends, and where its split is then. From here on an abort takes the mark away that it has (claim_mark_ending()). */
PlanOp *
plan_op_end(PlanUse *use, int64 epoch, int64 number, int64 member, int64 weight, ClaimEnd how, SplitState state)
{
	PlanOp	   *op = plan_op_add(PLAN_OP_END, use);

	op->number = number;
	op->member = member;
	op->weight = weight;
	op->how = how;
	op->state = state;
	plan_op_of_claim(op, epoch);
	return op;
}

/* The operation of this kind on a claim, or NULL. A claim is found by either of its kinds. */
PlanOp *
plan_op_find(PlanOpKind kind, int64 epoch)
{
	EpochOps   *of = by_epoch == NULL ? NULL : hash_search(by_epoch, &epoch, HASH_FIND, NULL);

	return of == NULL ? NULL : *epoch_place(of, kind);
}

/* Whether there is an operation of this kind: on this plan (NULL: on any), about this member (0: about none). */
bool
plan_op_exists(PlanOpKind kind, const PlanUse *use, int64 member)
{
	dlist_iter	iter;

	dlist_foreach(iter, &ops)
	{
		const PlanOp *op = dlist_container(PlanOp, node, iter.cur);

		if (op->kind == kind && (use == NULL || op->use == use) && op->member == member && !op->undone)
			return true;
	}
	return false;
}

/* How much this transaction is going to tell a member at its commit. */
int
plan_op_pending_news(int64 member)
{
	dlist_iter	iter;
	int			n = 0;

	dlist_foreach(iter, &ops)
	{
		const PlanOp *op = dlist_container(PlanOp, node, iter.cur);

		n += (op->kind == PLAN_OP_NEWS || op->kind == PLAN_OP_GAIN) && op->member == member && !op->undone;
	}
	return n;
}

/* Raises 54000, 53200 where the transaction cannot have one more lock of a claim. */
void
plan_require_fence_room(void)
{
	if (nfences >= LEASE_OPS_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a transaction cannot fence more than %d splits that it does not change", LEASE_OPS_MAX),
				 errhint("Use several transactions; a commit_split() that advances is not counted.")));
	if (!lease_budget_has_room(1, true))
		lease_budget_raise(true);
}

/* The operation is a fence by a lock of the claim, which was just taken. */
void
plan_op_count_fence(PlanOp *op)
{
	op->locked = true;
	nfences++;
	lease_budget_add(1);
}

/* A split that this very transaction has published, and not claimed yet. False: none. */
bool
plan_take_own(PlanUse *use, int64 *number)
{
	dlist_iter	iter;

	dlist_foreach(iter, &ops)
	{
		PlanOp	   *op = dlist_container(PlanOp, node, iter.cur);

		if (op->kind != PLAN_OP_PUBLISH || op->use != use || op->number > op->row->last_number)
			continue;
		*number = op->number++;
		return true;
	}
	return false;
}

/* What the plan's row says from the commit on. */
void
plan_op_keep_row(PlanOp *op, const PlanRow *row)
{
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);

	op->row = palloc(sizeof(PlanRow));
	*op->row = *row;
	op->row->name = op->use->name;
	op->row->owner = NULL;
	op->row->planner_function = NULL;
	op->row->fingerprint = row->fingerprint == NULL ? NULL : pstrdup(row->fingerprint);
	MemoryContextSwitchTo(old);
}

/* Whether this transaction has changed anything of a plan: then memory does not say how that is for it. */
bool
plan_use_has_ops(const PlanUse *use)
{
	dlist_iter	iter;

	dlist_foreach(iter, &ops)
	{
		const PlanOp *op = dlist_container(PlanOp, node, iter.cur);

		if (op->use == use && op->kind != PLAN_OP_BUSY && op->kind != PLAN_OP_FENCE && op->kind != PLAN_OP_COUNT &&
			op->kind != PLAN_OP_REPEAT)
			return true;
	}
	return false;
}

/* Whether the transaction has done nothing to plans. */
bool
plan_xact_is_empty(void)
{
	return dlist_is_empty(&ops);
}

static void
begin_writes(OwnWrites *writes)
{
	if (writes->end == InvalidXLogRecPtr)
		writes->alone = XactLastRecEnd == InvalidXLogRecPtr && !TransactionIdIsValid(GetTopTransactionIdIfAny());
	else
		writes->alone = writes->alone && XactLastRecEnd == writes->end;
}

/* Before something is written whose loss in a crash does no harm. */
void
plan_xact_begin_claims(void)
{
	begin_writes(&claims);
}

/* It is written. */
void
plan_xact_end_claims(void)
{
	claims.end = XactLastRecEnd;
}

/* Before a call writes something about splits ... */
void
plan_xact_begin_steps(void)
{
	begin_writes(&steps);
}

/* ... and when it has. */
void
plan_xact_end_steps(void)
{
	steps.end = XactLastRecEnd;
}

/* Whether the transaction had written anything else before the call that is under way. */
bool
plan_xact_has_effects(void)
{
	return TransactionIdIsValid(GetTopTransactionIdIfAny()) && !steps.alone;
}

/* ---------------------------------------------------------------- the end of a transaction */

static void
mark_dead(ClaimEntry *claim)
{
	claim->state = CLAIM_DEAD;
	plan_use_reap_later(claim->key.epoch);
}

/* Whether a split that an operation is about is still there: callbacks of who committed before a reset or a drop may come after it. */
static bool
is_there(const PlanOp *op)
{
	PlanEntry  *entry = op->use->entry;

	return entry->plan_id == op->use->plan_id && op->number > plan_entry_floor(entry);
}

static PlanEntry *
lock_entry(const PlanOp *op)
{
	PlanEntry  *entry = op->use->entry;

	LWLockAcquire(&entry->lock, LW_EXCLUSIVE);
	return entry;
}

/* The supervisor is to look at deadlines by then. The caller has the plan's lock. */
static void
look_by(PlanEntry *entry, int64 deadline_us)
{
	if (deadline_us >= entry->look_us)
		return;
	entry->look_us = deadline_us;
	wake_supervisor = true;
}

/* Somebody is to look who gets what, or whether this is the end of it. The caller has the plan's lock. */
static void
note_change(PlanEntry *entry, int64 number, int64 member)
{
	plan_entry_note(entry, number, member);
	if (entry->members > 0)
		wake_supervisor = true;
	if (entry->final && entry->verdict == VERDICT_NONE && entry->done + entry->quarantined >= entry->planned)
	{
		entry->touched = true;
		wake_supervisor = true;
	}
}

static void
commit_claim(const PlanOp *op)
{
	ClaimEntry *claim = claim_find(op->use->instance, op->epoch);
	MemberEntry *member;
	PlanEntry  *entry;
	int64		deadline_us = PG_INT64_MAX;
	bool		lives = true;

	if (claim != NULL)
	{
		claim->state = CLAIM_LIVE;
		if (claim->member == 0)
			deadline_us = claim->deadline_us;
		claim_release(claim);
	}
	member = op->member == 0 ? NULL : member_find(op->use->instance, op->member);
	if (member != NULL)
	{
		lives = member->state == MEMBER_LIVE || member->state == MEMBER_PENDING;
		member->owned++;
		member->weight += op->weight;
		member_take_offer(member, op->number);
		member_add_news(member, &op->news);
		member_release(member);
	}
	else
		lives = op->member == 0;
	/* a member that has ended meanwhile: nobody else knows of this claim of its */
	if (!lives)
		deadline_us = 0;
	entry = lock_entry(op);
	if (is_there(op))
	{
		entry->owned++;
		note_change(entry, op->number, op->member != 0 ? op->member : NOTE_GONE);
	}
	look_by(entry, deadline_us);
	LWLockRelease(&entry->lock);
}

/* As what the end of a claim is counted. */
static PlanCounter
lost_as(ClaimEnd how)
{
	switch (how)
	{
		case END_DONE:
			return PLAN_COMMITS;
		case END_RELEASED:
			return PLAN_RELEASES;
		case END_FAILED:
			return PLAN_FAILURES;
		case END_EXPIRED:
			return PLAN_LOST_EXPIRED;
		case END_REVOKED:
			return PLAN_LOST_REVOKED;
		case END_STARVED:
			return PLAN_LOST_STARVED;
		case END_FENCED:
			return PLAN_LOST_FENCED;
		default:
			return PLAN_COUNTERS;
	}
}

static void
commit_end(const PlanOp *op)
{
	ClaimEntry *claim = claim_find(op->use->instance, op->epoch);
	MemberEntry *member;
	PlanEntry  *entry;

	if (claim != NULL)
	{
		mark_dead(claim);
		claim_release(claim);
	}
	if (op->member != 0 && (member = member_find(op->use->instance, op->member)) != NULL)
	{
		member->owned--;
		member->weight -= op->weight;
		member_release(member);
	}
	entry = lock_entry(op);
	if (!is_there(op))
	{
		LWLockRelease(&entry->lock);
		return;
	}
	entry->owned--;
	switch (op->state)
	{
		case SPLIT_DONE:
			entry->done++;
			plan_entry_note_done(entry);
			plan_count(entry, PLAN_FINISHED, 1);
			break;
		case SPLIT_QUARANTINED:
			entry->quarantined++;
			plan_count(entry, PLAN_QUARANTINES, 1);
			break;
		case SPLIT_RUNNABLE:
			plan_entry_put_back(entry, op->number, false);
			break;
		case SPLIT_OWNED:		/* under another epoch: the next operation is about that */
			break;
	}
	if (op->state != SPLIT_OWNED)
		note_change(entry, op->number, op->state == SPLIT_RUNNABLE ? NOTE_RUNNABLE : NOTE_GONE);
	LWLockRelease(&entry->lock);
	plan_count(entry, lost_as(op->how), 1);
	plan_count(entry, PLAN_DRAIN_US, op->drained_us);
	if (op->state == SPLIT_RUNNABLE)
		ConditionVariableBroadcast(&entry->available);
}

static void
commit_member(const PlanOp *op)
{
	MemberEntry *member = member_find(op->use->instance, op->member);
	PlanEntry  *entry;
	int64		deadline_us = PG_INT64_MAX;

	if (member != NULL)
	{
		if (op->kind == PLAN_OP_JOIN)
		{
			/* to have joined is a sign of life: a join may have waited long for what the name's worker had fenced */
			member->state = MEMBER_LIVE;
			member->deadline_us = Max(member->deadline_us, clock_now_us() + member->ttl_us);
			deadline_us = member->deadline_us;
		}
		else
			member->state = op->kind == PLAN_OP_REPLACE ? MEMBER_REPLACED : op->how == END_EXPIRED ? MEMBER_EXPIRED : MEMBER_LEFT;
		member->pid = 0;
		member->ended_us = clock_now_us();
		member->news_count = op->kind == PLAN_OP_JOIN ? member->news_count : 0;
		member->offers_count = 0;
		member_release(member);
	}
	if (op->kind != PLAN_OP_JOIN)
		deadline_us = 0;		/* it may have claims that are known to be its only now */
	entry = lock_entry(op);
	if (entry->plan_id != op->use->plan_id)
	{
		LWLockRelease(&entry->lock);
		return;
	}
	entry->members += op->kind == PLAN_OP_JOIN ? 1 : -1;
	entry->balanced_from_us = Max(entry->balanced_from_us, clock_now_us() + entry->rebalance_delay_us);
	entry->assign_wanted++;
	look_by(entry, deadline_us);
	LWLockRelease(&entry->lock);
	wake_supervisor = true;
}

static void
commit_plan(const PlanOp *op)
{
	PlanEntry  *entry = lock_entry(op);

	if (entry->plan_id != op->use->plan_id)
	{
		LWLockRelease(&entry->lock);
		return;
	}
	switch (op->kind)
	{
		case PLAN_OP_CREATE:
			plan_entry_define(entry, op->row);
			entry->creator_pid = 0;
			entry->made_here = true;
			break;
		case PLAN_OP_ALTER:
			plan_entry_define(entry, op->row);
			entry->assign_wanted++;
			entry->touched = true;
			break;
		case PLAN_OP_ADOPT:
			entry->loaded = false;
			break;
		case PLAN_OP_PUBLISH:
			plan_count(entry, PLAN_SPLITS_PLANNED, op->row->last_number - entry->fresh_end);
			plan_entry_define(entry, op->row);
			entry->fresh_end = op->row->last_number;
			entry->done += op->done;
			entry->assign_wanted++;
			entry->touched = true;
			break;
		case PLAN_OP_RESET:
			plan_entry_reset(entry, op->row);
			break;
		case PLAN_OP_PURGE:
			entry->planned -= op->number;
			entry->done -= op->number;
			break;
		case PLAN_OP_REQUEUE:
			if (!is_there(op))
				break;
			entry->quarantined--;
			plan_entry_put_back(entry, op->number, false);
			plan_entry_note(entry, op->number, NOTE_RUNNABLE);
			break;
		case PLAN_OP_DROP:
			entry->gone = true;
			entry->loaded = false;
			pg_atomic_write_u64(&entry->floor, PG_INT64_MAX);	/* no claim of it is worth anything */
			break;
		default:
			break;
	}
	LWLockRelease(&entry->lock);
	if (op->kind != PLAN_OP_PURGE)
		ConditionVariableBroadcast(&entry->available);
	wake_supervisor = true;
}

/* A member was asked for a split, or not to hand it over after all. */
static void
commit_drain(const PlanOp *op)
{
	ClaimEntry *claim;

	if (op->news.kind != NEWS_REVOKE && op->news.kind != NEWS_REVOKE_CANCELLED)
		return;
	claim = claim_find(op->use->instance, op->epoch);
	if (claim == NULL)
		return;
	claim->drain = op->news.kind == NEWS_REVOKE ? DRAIN_REQUESTED : DRAIN_CANCELLED;
	claim->drain_since_us = clock_now_us();
	claim->drain_seq = op->news.seq;
	claim_release(claim);
}

static void
commit(PlanOp *op)
{
	MemberEntry *member;

	switch (op->kind)
	{
		case PLAN_OP_TAKE:
		case PLAN_OP_FENCE:
			break;
		case PLAN_OP_CLAIM:
		case PLAN_OP_GAIN:
			commit_claim(op);
			break;
		case PLAN_OP_END:
			commit_end(op);
			break;
		case PLAN_OP_NEWS:
			member = member_find(op->use->instance, op->member);
			if (member != NULL)
			{
				member_add_news(member, &op->news);
				member_release(member);
			}
			commit_drain(op);
			break;
		case PLAN_OP_JOIN:
		case PLAN_OP_LEAVE:
		case PLAN_OP_REPLACE:
			commit_member(op);
			break;
		case PLAN_OP_BUSY:
		case PLAN_OP_COUNT:
		case PLAN_OP_REPEAT:
			break;
		default:
			commit_plan(op);
	}
	plan_count(op->use->entry, op->counted, 1);
}

/* Who had the right to add news to a member has it no more, unless he has it by an earlier operation, too. */
static void
end_busy(const PlanOp *op)
{
	MemberEntry *member;
	dlist_iter	iter;
	bool		wanted;

	dlist_foreach(iter, &ops)
	{
		const PlanOp *other = dlist_container(PlanOp, node, iter.cur);

		if (other == op)
			break;
		if (other->kind == PLAN_OP_BUSY && other->member == op->member && !other->undone)
			return;
	}
	member = member_find(op->use->instance, op->member);
	if (member == NULL)
		return;
	if (member->busy == MyProcPid)
		member->busy = 0;
	wanted = member->busy_wanted;
	member->busy_wanted = false;
	member_release(member);
	if (!wanted)
		return;
	plan_entry_want_assignment(op->use->entry);
	wake_supervisor = true;
}

/* What was taken from memory goes back. */
static void
undo(PlanOp *op)
{
	ClaimEntry *claim;
	MemberEntry *member;
	PlanEntry  *entry;

	switch (op->kind)
	{
		case PLAN_OP_CLAIM:
		case PLAN_OP_GAIN:
		case PLAN_OP_TAKE:
			claim = op->epoch == 0 ? NULL : claim_find(op->use->instance, op->epoch);
			if (claim != NULL)
			{
				mark_dead(claim);
				claim_release(claim);
			}
			entry = lock_entry(op);
			/* from the last to the first: so they come back in their order */
			if (op->kind != PLAN_OP_GAIN)
				plan_entry_return(entry, op->number, op->fresh);
			/* who assigns splits may have taken it for somebody's */
			if (op->kind != PLAN_OP_TAKE)
				plan_entry_note(entry, op->number, NOTE_RUNNABLE);
			entry->assign_wanted++;
			LWLockRelease(&entry->lock);
			ConditionVariableBroadcast(&entry->available);
			break;
		case PLAN_OP_END:
			claim = claim_find(op->use->instance, op->epoch);
			if (claim == NULL)
				break;
			if (claim->state == CLAIM_ENDING && claim->pid == MyProcPid)
				claim->state = plan_op_find(PLAN_OP_CLAIM, op->epoch) != NULL ? CLAIM_PENDING : CLAIM_LIVE;
			claim_release(claim);
			/* nobody has looked at its deadline meanwhile, nor whether it was handed over in time */
			entry = lock_entry(op);
			look_by(entry, 0);
			if (op->member != 0)
			{
				entry->assign_wanted++;
				wake_supervisor = true;
			}
			LWLockRelease(&entry->lock);
			break;
		case PLAN_OP_JOIN:
		case PLAN_OP_LEAVE:
		case PLAN_OP_REPLACE:
			member = member_find(op->use->instance, op->member);
			if (member == NULL)
				break;
			if (op->kind == PLAN_OP_JOIN)
				member->state = MEMBER_DEAD;
			else if (member->state == MEMBER_ENDING && member->pid == MyProcPid)
				member->state = plan_op_exists(PLAN_OP_JOIN, NULL, op->member) ? MEMBER_PENDING : MEMBER_LIVE;
			member_release(member);
			entry = lock_entry(op);
			look_by(entry, 0);
			LWLockRelease(&entry->lock);
			break;
		case PLAN_OP_BUSY:
			end_busy(op);
			break;
		case PLAN_OP_CREATE:
			op->use->mine = op->use->unusable = false;
			if (op->use->dropped)
				break;
			entry = lock_entry(op);
			entry->gone = true;
			entry->loaded = false;
			entry->creator_pid = 0;
			LWLockRelease(&entry->lock);
			break;
		case PLAN_OP_DROP:
			op->use->dropped = false;
			break;
		default:
			break;
	}
}

/* An operation is undone, and is none of the transaction's any more. */
static void
take_back(PlanOp *op)
{
	if (!op->undone)
		undo(op);
	dlist_delete(&op->node);
	if (op->locked)
	{
		nfences--;
		lease_budget_add(-1);
	}
	if (op->epoch != 0 && by_epoch != NULL)
	{
		EpochOps   *of = hash_search(by_epoch, &op->epoch, HASH_FIND, NULL);
		PlanOp	  **place = of == NULL ? NULL : epoch_place(of, op->kind);

		if (place != NULL && *place == op)
			*place = NULL;
	}
}

/*
 * Raises RV001 where the transaction has written something else beside a commit that had been made before: it may be
 * the whole of that one, once more.
 */
static void
check_repeats(void)
{
	dlist_iter	iter;

	if (!TransactionIdIsValid(GetTopTransactionIdIfAny()) || (steps.alone && steps.end == XactLastRecEnd))
		return;
	dlist_foreach(iter, &ops)
	{
		const PlanOp *op = dlist_container(PlanOp, node, iter.cur);

		if (op->kind == PLAN_OP_REPEAT)
			ereport(ERROR,
					(errcode(ERRCODE_RV_STALE_TOKEN),
					 errmsg("a split of plan \"%s\" was done before this transaction, which has written something", op->use->name),
					 errdetail("A commit that is repeated alone succeeds; with other writes they would be there twice."),
					 errhint("The split is done: there is nothing left to do.")));
	}
}

/* Claims alone need not be on disk when the client is told. */
static void
spare_flush(void)
{
	if (!claims.alone || claims.end == InvalidXLogRecPtr || XactLastRecEnd != claims.end ||
		synchronous_commit == SYNCHRONOUS_COMMIT_OFF)
		return;
	(void) set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
}

static void
forget_all(void)
{
	plan_uses_release();
	if (nfences > 0)
		lease_budget_add(-nfences);
	nfences = 0;
	dlist_init(&ops);
	by_epoch = NULL;
	memset(&claims, 0, sizeof(claims));
	memset(&steps, 0, sizeof(steps));
	if (wake_supervisor)
		worker_wake_supervisor(MyDatabaseId);
	wake_supervisor = false;
}

static void
on_xact_end(XactEvent event, void *arg)
{
	dlist_iter	iter;

	if (!plan_uses_any() && dlist_is_empty(&ops))
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_PREPARE:
			if (!dlist_is_empty(&ops))
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot PREPARE a transaction that worked on a plan"),
						 errhint("Commit it, or do the work on plans in a transaction of its own.")));
			break;
		case XACT_EVENT_PREPARE:
			forget_all();
			break;
		case XACT_EVENT_PRE_COMMIT:
			if (!dlist_is_empty(&ops))
				plan_uses_map();
			check_repeats();
			spare_flush();
			break;
		case XACT_EVENT_COMMIT:
			if (!dlist_is_empty(&ops))
				DEBUG_POINT_QUIET("plan-before-publish");
			dlist_foreach(iter, &ops)
			{
				PlanOp	   *op = dlist_container(PlanOp, node, iter.cur);

				if (!op->undone)
					commit(op);
			}
			/* only now: what was told before is told in its order */
			dlist_foreach(iter, &ops)
			{
				PlanOp	   *op = dlist_container(PlanOp, node, iter.cur);

				if (op->kind == PLAN_OP_BUSY && !op->undone)
				{
					op->undone = true;
					end_busy(op);
				}
			}
			forget_all();
			break;
		case XACT_EVENT_ABORT:
			while (!dlist_is_empty(&ops))
				take_back(dlist_tail_element(PlanOp, node, &ops));
			forget_all();
			break;
		default:
			break;
	}
}

static void
on_subxact_end(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	int			level = GetCurrentTransactionNestLevel();
	dlist_iter	iter;

	if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		dlist_reverse_foreach(iter, &ops)
		{
			PlanOp	   *op = dlist_container(PlanOp, node, iter.cur);

			if (op->nest_level < level)
				break;
			op->nest_level = level - 1;
		}
	}
	else if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		while (!dlist_is_empty(&ops) && dlist_tail_element(PlanOp, node, &ops)->nest_level >= level)
			take_back(dlist_tail_element(PlanOp, node, &ops));
	}
}

/* Called once, by _PG_init under shared_preload_libraries, before all others that write at the end of a transaction. */
void
plan_xact_install_callbacks(void)
{
	RegisterXactCallback(on_xact_end, NULL);
	RegisterSubXactCallback(on_subxact_end, NULL);
}
