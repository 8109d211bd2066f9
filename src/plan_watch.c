/*-------------------------------------------------------------------------
 *
 * plan_watch.c
 *	  What a supervisor does about plans: it ends what has expired, finds that
 *	  a plan is complete or stalled, and has planners run as long as there is
 *	  something to plan.
 *
 * In each tick, for all plans that are in memory:
 *
 *		expired		claims and members of which nothing was heard for their ttl: looked for
 *					when the earliest deadline that is known has come. Signs of life only move deadlines on, so one look
 *					at all claims is due once in a ttl, and not with each of these
 *		verdict		final, and all of it done or quarantined
 *		planner		the task of one that has nothing left to plan rests
 *		assignment	plan_assign.c
 *
 * When this server begins to lead, each plan is brought into memory, one in each tick, so that
 * what was claimed before then is looked after; and planners run at once.
 *
 * NOTES
 *	  Each step is a transaction of its own that waits for nobody: what somebody
 *	  has locked, or has fenced, is looked at again a moment later.
 *
 *	  Two workers who finish the last two splits do not see each other. This
 *	  transaction follows both, and the plan's row is locked while the verdict is reached.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "debug.h"
#include "events.h"
#include "extension.h"
#include "fence.h"
#include "member_row.h"
#include "plan_watch.h"
#include "plan_xact.h"
#include "row.h"
#include "split_claim.h"
#include "split_commit.h"
#include "task.h"
#include "task_status.h"
#include "tick.h"
#include "worker.h"

#define AGAIN_US (50 * US_PER_MS)	/* what was locked is looked at again then */
#define RETRY_CLAIM_US (500 * US_PER_MS) /* the same of a claim */
#define EXPIRE_BATCH 1000		/* claims and members in one transaction */
#define UNSETTLED_US (1 * US_PER_S)	/* what a transaction under way is about is looked at again then */
#define PURGE_EVERY_US (60 * US_PER_S)
#define ENDED_KEPT_US (600 * US_PER_S)	/* so long a member that was replaced, or expired, is told so */

/* ---------------------------------------------------------------- the first look */

/* Names of plans that are still to be brought into memory; in a context of their own. */
static List *to_load = NIL;
static MemoryContext load_context = NULL;

static void
collect_native(Relation rel, HeapTuple tuple, void *arg)
{
	PlanRow		row;
	MemoryContext old;

	plan_parse(tuple, RelationGetDescr(rel), &row);
	if (!row.native)
		return;
	old = MemoryContextSwitchTo(load_context);
	to_load = lappend(to_load, pstrdup(row.name));
	MemoryContextSwitchTo(old);
}

/* All plans of this database are to be brought into memory; raises where somebody has locked the table. */
static void
collect_plans(void *arg)
{
	Extension	oids = *extension_get();
	Relation	rel;

	if (!row_try_open(oids.plan, AccessShareLock, &rel) || rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("table revenant.plan is locked")));
	row_visit(rel, collect_native, NULL);
	relation_close(rel, NoLock);
}

/* A plan that is to be brought into memory */
typedef struct Load
{
	const char *name;
	bool		done;			/* or it is not there any more */
} Load;

/* Locks a table to the end of the transaction, so that nobody is waited for later. */
static bool
try_table(Oid table, LOCKMODE mode)
{
	Relation	rel = NULL;

	if (!row_try_open(table, mode, &rel) || rel == NULL)
		return false;
	relation_close(rel, NoLock);
	return true;
}

/* Brings a plan into memory, and has its planner run unless it was made just now, and that is asked for already. Waits for nobody. */
static void
load_plan(void *arg)
{
	Load	   *load = arg;
	Extension	oids = *extension_get();
	PlanRow		row;
	PlanUse    *use;
	bool		asked = false;

	if (!try_table(oids.plan, AccessShareLock) || !try_table(oids.split, AccessShareLock) ||
		!try_table(oids.split_state, AccessShareLock) || !try_table(oids.member, AccessShareLock) ||
		!plan_try_lock(load->name))
		return;
	load->done = true;
	if (plan_find_row(&oids, load->name, &row) == NULL || !row.native)
		return;
	use = plan_try_use(load->name);
	if (use != NULL)
	{
		LWLockAcquire(&use->entry->lock, LW_SHARED);
		asked = use->entry->made_here;
		LWLockRelease(&use->entry->lock);
	}
	if (row.planner_function != NULL && !row.final && !asked)
		load->done = plan_task_try_run_now(&oids, load->name);
}

/* False: not now. */
static bool
list_plans(void)
{
	if (load_context == NULL)
		load_context = AllocSetContextCreate(TopMemoryContext, "revenant plans", ALLOCSET_DEFAULT_SIZES);
	MemoryContextReset(load_context);
	to_load = NIL;
	if (tick_step("look for plans", collect_plans, NULL))
		return true;
	to_load = NIL;				/* not some of them */
	return false;
}

/* One plan in each tick: tasks go on meanwhile. */
static void
load_next(void)
{
	static int64 load_again_us = 0; /* after one that failed */
	Load		load = {0};

	if (to_load == NIL)
		return;
	if (clock_now_us() < load_again_us)
	{
		tick_at_most(load_again_us - clock_now_us());
		return;
	}
	load.name = linitial(to_load);
	if (!tick_step("bring a plan into memory", load_plan, &load))
		load.done = false;
	to_load = list_delete_first(to_load);
	if (!load.done)
	{
		/* somebody has a lock, or there is no memory: the others first */
		MemoryContext old = MemoryContextSwitchTo(load_context);

		to_load = lappend(to_load, unconstify(char *, load.name));
		MemoryContextSwitchTo(old);
		load_again_us = clock_now_us() + RETRY_US;
	}
	if (to_load != NIL)
		tick_at_most(Max(load_again_us - clock_now_us(), 0));
}

/* ---------------------------------------------------------------- what has expired */

/* What a look at all deadlines found, in tick_context */
typedef struct Expired
{
	HTAB	   *members;		/* int64: those that live */
	HTAB	   *plans;			/* PlanDeadline */
	MemberEntry *over;			/* copies */
	int			nover;
	ClaimEntry *claims;			/* copies */
	int			nclaims;
	List	   *reset;			/* ClaimEntry: of members, whose splits are gone */
	bool		more;
} Expired;

/* The earliest deadline of a plan */
typedef struct PlanDeadline
{
	int64		plan_id;
	int64		floor;
	int64		earliest_us;
	PlanEntry  *entry;
} PlanDeadline;

static PlanDeadline *
deadline_of(Expired *expired, int64 plan_id)
{
	return hash_search(expired->plans, &plan_id, HASH_FIND, NULL);
}

/* Whether the plan that something in memory is of is gone: it was not among those that were looked at. */
static bool
plan_is_gone(const PlanKey *key, int64 plan_id)
{
	PlanEntry  *entry = plan_entry_pin(key, NULL, false);
	bool		gone;

	if (entry == NULL)
		return true;
	LWLockAcquire(&entry->lock, LW_SHARED);
	/* one that is just being brought into memory is there */
	gone = entry->gone || (entry->loaded && entry->plan_id != plan_id);
	LWLockRelease(&entry->lock);
	plan_entry_unpin(entry);
	return gone;
}

static bool
look_at_member(MemberEntry *member, void *arg)
{
	Expired    *expired = arg;
	PlanDeadline *plan = deadline_of(expired, member->plan_id);
	int64		now_us = clock_now_us();

	if (member->state == MEMBER_DEAD)
		return true;
	if (member->state == MEMBER_REPLACED || member->state == MEMBER_EXPIRED || member->state == MEMBER_LEFT)
		return plan == NULL || now_us - member->ended_us > ENDED_KEPT_US;
	if (plan == NULL)
		return member->state == MEMBER_LIVE && plan_is_gone(&member->plan, member->plan_id);
	if (member->state == MEMBER_LIVE && member->deadline_us <= now_us)
	{
		if (expired->nover < EXPIRE_BATCH)
			expired->over[expired->nover++] = *member;
		else
			expired->more = true;
		return false;
	}
	(void) hash_search(expired->members, &member->key.member, HASH_ENTER, NULL);
	plan->earliest_us = Min(plan->earliest_us, member->state == MEMBER_LIVE ? member->deadline_us : now_us + UNSETTLED_US);
	return false;
}

static bool
look_at_claim(ClaimEntry *claim, void *arg)
{
	Expired    *expired = arg;
	PlanDeadline *plan = deadline_of(expired, claim->plan_id);
	bool		over;

	if (claim->state == CLAIM_DEAD)
		return true;
	/* what somebody's transaction is about: whatever becomes of it is looked at then, and soon, should nobody say so */
	if (claim->state != CLAIM_LIVE)
	{
		if (plan != NULL)
			plan->earliest_us = Min(plan->earliest_us, clock_now_us() + UNSETTLED_US);
		return false;
	}
	if (plan == NULL)
		return plan_is_gone(&claim->plan, claim->plan_id);
	if (claim->number <= plan->floor)
	{
		if (claim->member != 0)
			expired->reset = lappend(expired->reset, memcpy(palloc(sizeof(ClaimEntry)), claim, sizeof(ClaimEntry)));
		return true;			/* the split is gone */
	}
	if (claim->retry_us > clock_now_us())
	{
		plan->earliest_us = Min(plan->earliest_us, claim->retry_us);
		return false;
	}
	if (claim->member != 0)
		over = hash_search(expired->members, &claim->member, HASH_FIND, NULL) == NULL;
	else
		over = claim_is_over(claim, clock_now_us());
	if (over && expired->nclaims < EXPIRE_BATCH)
		expired->claims[expired->nclaims++] = *claim;
	else if (over)
		expired->more = true;
	else if (claim->member == 0)
		plan->earliest_us = Min(plan->earliest_us, claim->deadline_us);
	return false;
}

/* A transaction of the supervisor's that ends something of one plan */
typedef struct Ending
{
	PlanEntry  *entry;
	Oid			instance;
	Expired    *expired;
	bool		again;			/* something was locked */
	bool		put_off;		/* claims were put off */
} Ending;

/* Marks a member whose time is over as being ended, under its lock. False: it lives, after all. */
static bool
begin_member_end(const Ending *ending, PlanUse *use, int64 number)
{
	MemberEntry *member = member_find(ending->instance, number);
	bool		begun;

	if (member == NULL)
		return false;
	begun = member->state == MEMBER_LIVE && member->deadline_us <= clock_now_us();
	if (begun)
		member_mark_ending(member);
	member_release(member);
	return begun;
}

static void
cancel_member_end(const Ending *ending, int64 number)
{
	MemberEntry *member = member_find(ending->instance, number);

	if (member == NULL)
		return;
	if (member->state == MEMBER_ENDING && member->pid == MyProcPid)
		member->state = MEMBER_LIVE;
	member_release(member);
}

static void
end_member(Ending *ending, PlanUse *use, const MemberEntry *over)
{
	Extension	oids = *extension_get();
	Event		event = {
		.kind = EVENT_PLAN_EXPIRED,.subject = use->name,.token = over->key.member,.role = use->owner,
		.detail = {"worker", over->worker, NULL}
	};
	PlanOp	   *op;

	/* first the name: who joins under it has replaced the member then, or comes after us */
	if (!member_lock_name(use->plan_id, over->worker, false))
	{
		ending->again = true;
		return;
	}
	if (!begin_member_end(ending, use, over->key.member))
		return;
	if (!member_try_delete_row(&oids, use->plan_id, over->worker, over->key.member))
	{
		cancel_member_end(ending, over->key.member);
		ending->again = true;
		return;
	}
	op = plan_op_add(PLAN_OP_LEAVE, use);
	op->member = over->key.member;
	op->how = END_EXPIRED;
	event_at_commit(&event);
}

/* Whether a claim that was found to be over is still that, under its lock: then it is marked. */
static bool
begin_claim_end(const Ending *ending, const ClaimEntry *over)
{
	ClaimEntry *claim = claim_find(ending->instance, over->key.epoch);
	bool		begun;

	if (claim == NULL)
		return false;
	begun = claim->state == CLAIM_LIVE && (claim->member != 0 || claim_is_over(claim, clock_now_us()));
	if (begun)
		claim_mark_ending(claim);
	claim_release(claim);
	return begun;
}

/* Whether the member of a claim was replaced, or left: that is no fault of the split's. Its time may have come between the looks, too. */
static bool
was_replaced(const Ending *ending, int64 number, bool *lives)
{
	MemberEntry *member = member_find(ending->instance, number);
	bool		replaced = false;

	*lives = false;
	if (member == NULL)
		return false;
	replaced = member->state == MEMBER_REPLACED || member->state == MEMBER_LEFT;
	*lives = member->state == MEMBER_LIVE || member->state == MEMBER_PENDING ||
		(member->state == MEMBER_ENDING && member->pid != MyProcPid);
	member_release(member);
	return replaced;
}

/* Somebody has a claim that is over in a transaction: others come first. */
static void
put_off(Ending *ending, int64 epoch)
{
	ClaimEntry *claim = claim_find(ending->instance, epoch);

	if (claim == NULL)
		return;
	claim->retry_us = clock_now_us() + RETRY_CLAIM_US;
	claim_release(claim);
	ending->put_off = true;
}

static void
end_claim(Ending *ending, PlanUse *use, SplitTables *tables, const ClaimEntry *over)
{
	LOCKTAG		tag = claim_lock_tag(over->key.epoch);
	SplitSpec	spec;
	PlanOp	   *op;
	bool		lives = false;
	bool		graceful = over->member != 0 && was_replaced(ending, over->member, &lives);
	const char *reason = graceful ? NULL : over->member == 0 ? "expired: nothing was heard of its worker for its ttl" :
		"expired: nothing was heard of its member for its ttl";

	if (lives)
		return;
	/* whoever has fenced it keeps it until his transaction ends */
	if (LockAcquire(&tag, ExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
	{
		put_off(ending, over->key.epoch);
		return;
	}
	if (!begin_claim_end(ending, over))
	{
		LockRelease(&tag, ExclusiveLock, false);
		return;
	}
	LockRelease(&tag, ExclusiveLock, false);
	op = plan_op_end(use, over->key.epoch, over->number, over->member, over->weight,
					 graceful ? END_FENCED : END_EXPIRED, SPLIT_RUNNABLE);
	if (!split_try_end_claim(use, tables, op, reason))
		put_off(ending, over->key.epoch);
	else if (op->state == SPLIT_QUARANTINED && split_find_spec(tables, over->number, &spec))
		split_tell_quarantined(use, spec.name, over->key.epoch, use->max_attempts, reason);
}

/* Ends what has expired of one plan. */
static void
end_expired(void *arg)
{
	Ending	   *ending = arg;
	Extension	oids = *extension_get();
	PlanUse    *use = plan_use_entry(ending->entry, ending->instance);
	SplitTables tables;

	DEBUG_POINT("plan-before-expiry");
	if (!split_try_open(&tables, &oids, use->plan_id, RowExclusiveLock))
	{
		ending->again = true;
		return;
	}
	plan_entry_reserve(ending->entry, ending->expired->nclaims);
	for (int i = 0; i < ending->expired->nover; i++)
	{
		if (ending->expired->over[i].plan_id == use->plan_id)
			end_member(ending, use, &ending->expired->over[i]);
	}
	for (int i = 0; i < ending->expired->nclaims; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (ending->expired->claims[i].plan_id == use->plan_id)
			end_claim(ending, use, &tables, &ending->expired->claims[i]);
	}
	split_close(&tables);
	DEBUG_POINT("plan-expired");
}

/* ---------------------------------------------------------------- verdicts, and planners that rest */

/* Whether all of a plan is done or quarantined. */
static bool
is_over(PlanEntry *entry, int64 *quarantined, int64 *done)
{
	bool		over;

	LWLockAcquire(&entry->lock, LW_SHARED);
	over = entry->loaded && entry->native && entry->final && entry->done + entry->quarantined >= entry->planned;
	*quarantined = entry->quarantined;
	*done = entry->done;
	LWLockRelease(&entry->lock);
	return over;
}

/* A planner's task has nothing left to do; once it does not run. False: it runs. */
static bool
rest_planner(const Extension *oids, const PlanRow *row)
{
	TaskKey		key;
	RunnerSlot *slot = palloc(sizeof(RunnerSlot));
	int			number;

	if (row->planner_function == NULL || !row->final)
		return true;
	task_key(&key, MyDatabaseId, oids->extension, plan_lease_name(row->name));
	if (worker_runner_find(&key, &number, slot))
		return false;
	return plan_task_rest(oids, row->name, true);
}

/* A verdict, for the step that reaches it */
typedef struct Judging
{
	PlanEntry  *entry;
	Oid			instance;
	bool		again;			/* the row was locked */
} Judging;

/*
 * Reaches the verdict, if there is one: with the plan's row locked, so that nothing is
 * requeued, published or purged meanwhile; and what is done stays done.
 */
static void
judge(void *arg)
{
	Judging    *judging = arg;
	Extension	oids = *extension_get();
	PlanUse    *use = plan_use_entry(judging->entry, judging->instance);
	PlanChange	change = {.oids = oids};
	int64		quarantined;
	int64		done;
	Datum		values[PLAN_COLUMNS] = {0};
	bool		nulls[PLAN_COLUMNS] = {0};
	bool		replace[PLAN_COLUMNS] = {0};
	Event		event = {.subject = use->name,.role = use->owner};

	DEBUG_POINT("plan-before-verdict");
	if (!plan_lock_change(&oids, use->name, false) || !row_try_open(oids.plan, RowExclusiveLock, &change.rel) || change.rel == NULL)
	{
		judging->again = true;
		return;
	}
	change.tuple = plan_find_row(&oids, use->name, &change.row);
	if (change.tuple != NULL && row_try_lock(change.rel, change.tuple) != ROW_LOCKED)
		judging->again = true;
	else if (change.tuple != NULL && change.row.plan_id == use->plan_id)
	{
		judging->again = !rest_planner(&oids, &change.row);
		if (change.row.verdict == VERDICT_NONE && change.row.final && is_over(judging->entry, &quarantined, &done))
		{
			int64		seq = fence_next_token("revenant.poll_plan()");

			event.kind = quarantined == 0 ? EVENT_PLAN_COMPLETE : EVENT_PLAN_STALLED;
			event.detail[0] = "completed";
			event.detail[1] = psprintf(INT64_FORMAT, done);
			event.detail[2] = quarantined == 0 ? NULL : "quarantined";
			event.detail[3] = psprintf(INT64_FORMAT, quarantined);
			values[ATT_PLAN_VERDICT - 1] = CStringGetTextDatum(plan_verdict_name(quarantined == 0 ? VERDICT_COMPLETE : VERDICT_STALLED));
			values[ATT_PLAN_VERDICT_SEQ - 1] = Int64GetDatum(seq);
			replace[ATT_PLAN_VERDICT - 1] = replace[ATT_PLAN_VERDICT_SEQ - 1] = true;
			plan_write(&change, values, nulls, replace);
			plan_op_keep_row(plan_op_add(PLAN_OP_ALTER, use), &change.row);
			event_at_commit(&event);
		}
	}
	relation_close(change.rel, NoLock);
}

/* ---------------------------------------------------------------- the tick */

/* What one look at all plans finds out */
typedef struct Watch
{
	Oid			instance;
	HTAB	   *plans;			/* PlanDeadline */
	bool		due;			/* some deadline may have passed */
} Watch;

static void
note_plan(PlanEntry *entry, void *arg)
{
	Watch	   *watch = arg;
	PlanDeadline *plan;
	int64		plan_id;
	int64		look_us;
	int64		floor;
	bool		loaded;

	LWLockAcquire(&entry->lock, LW_SHARED);
	loaded = entry->loaded && !entry->gone;
	plan_id = entry->plan_id;
	floor = plan_entry_floor(entry);
	look_us = entry->look_us;
	LWLockRelease(&entry->lock);
	if (!loaded)
		return;
	plan = hash_search(watch->plans, &plan_id, HASH_ENTER, NULL);
	plan->entry = entry;
	plan->floor = floor;
	plan->earliest_us = PG_INT64_MAX;
	if (look_us <= clock_now_us())
		watch->due = true;
	else if (look_us != PG_INT64_MAX)
		tick_at_most(look_us - clock_now_us());
}

static void
look_later(PlanEntry *entry, int64 at_us)
{
	LWLockAcquire(&entry->lock, LW_EXCLUSIVE);
	entry->look_us = Min(entry->look_us, at_us);
	LWLockRelease(&entry->lock);
	if (at_us != PG_INT64_MAX)
		tick_at_most(at_us - clock_now_us());
}

static bool
has_expired(const Expired *expired, int64 plan_id)
{
	for (int i = 0; i < expired->nover; i++)
	{
		if (expired->over[i].plan_id == plan_id)
			return true;
	}
	for (int i = 0; i < expired->nclaims; i++)
	{
		if (expired->claims[i].plan_id == plan_id)
			return true;
	}
	return false;
}

static HTAB *
make_set(const char *name, Size entry_size)
{
	HASHCTL		control = {.keysize = sizeof(int64),.entrysize = entry_size,.hcxt = tick_context};

	return hash_create(name, 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* Members do not own any more what a reset has removed. */
static void
forget_reset(Oid instance, List *claims)
{
	ListCell   *cell;

	foreach(cell, claims)
	{
		const ClaimEntry *claim = lfirst(cell);
		MemberEntry *member = member_find(instance, claim->member);

		if (member == NULL)
			continue;
		member->owned--;
		member->weight -= claim->weight;
		member_release(member);
	}
}

/* Looks at all deadlines, and ends what has expired. */
static void
expire(Watch *watch)
{
	Expired		expired = {.plans = watch->plans};
	HASH_SEQ_STATUS all;
	PlanDeadline *plan;
	List	   *plans = NIL;
	ListCell   *cell;

	expired.members = make_set("revenant members", sizeof(int64));
	expired.over = palloc(EXPIRE_BATCH * sizeof(MemberEntry));
	expired.claims = palloc(EXPIRE_BATCH * sizeof(ClaimEntry));
	/* first this: what is claimed from here on says itself when it is to be looked at */
	hash_seq_init(&all, watch->plans);
	while ((plan = hash_seq_search(&all)) != NULL)
	{
		LWLockAcquire(&plan->entry->lock, LW_EXCLUSIVE);
		plan->entry->look_us = PG_INT64_MAX;
		LWLockRelease(&plan->entry->lock);
		plans = lappend(plans, plan);
	}
	member_visit(watch->instance, look_at_member, &expired);
	claim_visit(watch->instance, look_at_claim, &expired);
	forget_reset(watch->instance, expired.reset);
	/* a scan of the table would not outlast a transaction */
	foreach(cell, plans)
	{
		Ending		ending = {.instance = watch->instance,.expired = &expired};

		plan = lfirst(cell);
		ending.entry = plan->entry;
		if (has_expired(&expired, plan->plan_id) && !tick_step("end what has expired", end_expired, &ending))
			ending.again = true;
		/* what a member had that is gone now is found by the next look */
		if (ending.again || expired.more || expired.nover > 0)
			plan->earliest_us = Min(plan->earliest_us, clock_now_us() + (ending.again ? AGAIN_US : 0));
		if (ending.put_off)
			plan->earliest_us = Min(plan->earliest_us, clock_now_us() + RETRY_CLAIM_US);
		look_later(plan->entry, plan->earliest_us);
	}
}

/* Whether a plan was touched since the last look. */
static bool
take_touched(PlanEntry *entry)
{
	bool		touched;

	LWLockAcquire(&entry->lock, LW_EXCLUSIVE);
	touched = entry->touched && entry->loaded && entry->native && entry->creator_pid == 0;
	entry->touched = entry->touched && !touched;
	LWLockRelease(&entry->lock);
	return touched;
}

static void
look_at_plan(PlanEntry *entry, void *arg)
{
	Watch	   *watch = arg;

	CHECK_FOR_INTERRUPTS();
	if (take_touched(entry))
	{
		Judging		judging = {.entry = entry,.instance = watch->instance};

		if (!tick_step("see whether a plan is complete", judge, &judging) || judging.again)
		{
			LWLockAcquire(&entry->lock, LW_EXCLUSIVE);
			entry->touched = true;
			LWLockRelease(&entry->lock);
			tick_at_most(AGAIN_US);
		}
	}
	plan_assign_look(entry, watch->instance);
}

static bool
is_known(int64 plan_id, void *plans)
{
	return hash_search(plans, &plan_id, HASH_FIND, NULL) != NULL;
}

/* A supervisor before this one may have ended anywhere. */
static void
look_at_all(PlanEntry *entry, void *arg)
{
	LWLockAcquire(&entry->lock, LW_EXCLUSIVE);
	entry->look_us = 0;
	entry->touched = true;
	entry->notes_lost = true;
	entry->assign_wanted++;
	LWLockRelease(&entry->lock);
}

/* While no writes were accepted no worker could say that it lives. */
static bool
renew_claim(ClaimEntry *claim, void *arg)
{
	if (claim->state == CLAIM_LIVE)
		claim->deadline_us = Max(claim->deadline_us, clock_now_us() + claim->ttl_us);
	return false;
}

static bool
renew_member(MemberEntry *member, void *arg)
{
	if (member->state == MEMBER_LIVE)
		member->deadline_us = Max(member->deadline_us, clock_now_us() + member->ttl_us);
	return false;
}

/*
 * One look at all plans; `first`: this server has begun to lead since the last one. In a
 * supervisor's tick.
 */
void
plan_watch(Oid instance, bool first)
{
	static int64 purged_us = 0;
	static bool unlisted = true;
	static bool held = false;
	Watch		watch = {.instance = instance};

	unlisted = unlisted || first;
	if (first)
		plan_entry_visit(instance, look_at_all, NULL);
	if (unlisted)
		unlisted = !list_plans();
	held = held || clock_write_state() != WRITES_ACCEPTED;
	if (!worker_may_run(false))
		return;
	if (held)
	{
		member_visit(instance, renew_member, NULL);
		claim_visit(instance, renew_claim, NULL);
		held = false;
	}
	load_next();
	watch.plans = make_set("revenant plans", sizeof(PlanDeadline));
	plan_entry_visit(instance, note_plan, &watch);
	if (watch.due)
		expire(&watch);
	plan_entry_visit(instance, look_at_plan, &watch);
	if (clock_now_us() - purged_us > PURGE_EVERY_US)
	{
		purged_us = clock_now_us();
		plan_memory_purge(MyDatabaseId, instance);
		plan_assign_prune(is_known, watch.plans);
	}
}
