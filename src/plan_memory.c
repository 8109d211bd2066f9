/*-------------------------------------------------------------------------
 *
 * plan_memory.c
 *	  How plans, claims and members come into shared memory, and go.
 *
 * All of it is made from the rows: when a plan is used for the first time since the server's
 * start, or a supervisor begins to lead. What is claimed then stands for lease_ttl, whatever was left
 * of its time before.
 *
 * NOTES
 *	  Who loads a plan has a heavyweight lock of it, so that the work is done once, can be
 *	  interrupted, and others wait for it where the deadlock detector sees them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "clock.h"
#include "extension.h"
#include "member_row.h"
#include "plan_memory.h"
#include "split_row.h"

/* Numbers that can be claimed, as they are found in the rows */
typedef struct Refilling
{
	int64	   *numbers;
	bool	   *fresh;
	int			count;
	bool		lost;			/* there are more */
} Refilling;

static void
refill_row(const SplitRow *row, void *arg)
{
	Refilling  *refilling = arg;

	if (row->state != SPLIT_RUNNABLE)
		return;
	if (refilling->count == PLAN_QUEUE_MAX)
	{
		refilling->lost = true;
		return;
	}
	refilling->numbers[refilling->count] = row->number;
	refilling->fresh[refilling->count++] = row->epoch == 0;
}

static void
refill_begin(Refilling *refilling)
{
	refilling->numbers = palloc_extended(PLAN_QUEUE_MAX * sizeof(int64), MCXT_ALLOC_HUGE);
	refilling->fresh = palloc(PLAN_QUEUE_MAX * sizeof(bool));
	refilling->count = 0;
	refilling->lost = false;
}

/* Puts what was found into the queues, up to a number. The caller has the plan's lock. */
static void
refill_end(PlanEntry *entry, const Refilling *refilling, int64 to)
{
	int			count = 0;
	int			fresh = 0;

	for (; count < refilling->count && refilling->numbers[count] <= to; count++)
		fresh += refilling->fresh[count];
	plan_entry_reserve_first(entry, fresh);
	plan_entry_reserve_again(entry, count - fresh);
	for (int i = 0; i < count; i++)
		plan_entry_put_back(entry, refilling->numbers[i], refilling->fresh[i]);
	/* what did not fit is wanted only if it is in the range, too */
	entry->queue_lost = entry->queue_lost || (refilling->lost && count == refilling->count);
}

/* A claim that a row knows, while a plan is loaded */
typedef struct KnownClaim
{
	int64		epoch;
	int64		number;
	int64		member;
	Oid			role;
} KnownClaim;

/* What a look at the rows of a plan found */
typedef struct Loading
{
	int64		planned;
	int64		done;
	int64		quarantined;
	int64		last_owned;		/* the highest number that was ever owned */
	KnownClaim *claims;
	int			nclaims;
	int			claims_capacity;
	Refilling	runnable;
} Loading;

static void
load_row(const SplitRow *row, void *arg)
{
	Loading    *loading = arg;

	loading->planned++;
	if (row->epoch != 0)
		loading->last_owned = Max(loading->last_owned, row->number);
	switch (row->state)
	{
		case SPLIT_DONE:
			loading->done++;
			break;
		case SPLIT_QUARANTINED:
			loading->quarantined++;
			break;
		case SPLIT_OWNED:
			if (loading->nclaims == loading->claims_capacity)
			{
				loading->claims_capacity *= 2;
				loading->claims = repalloc_huge(loading->claims, loading->claims_capacity * sizeof(KnownClaim));
			}
			loading->claims[loading->nclaims++] = (KnownClaim)
			{
				.epoch = row->epoch,.number = row->number,.member = row->member,.role = row->role
			};
			break;
		case SPLIT_RUNNABLE:
			refill_row(row, &loading->runnable);
			break;
	}
}

/*
 * Fills the queues from the rows: all that can be claimed below the range of what was never given away.
 * The caller has the plan's lock of kind LOCK_OTHER_PLAN, so that one does it at a time.
 */
void
plan_refill(const Extension *extension, PlanEntry *entry)
{
	Refilling	refilling;
	int64		plan_id;
	int64		to;

	refill_begin(&refilling);
	LWLockAcquire(&entry->lock, LW_EXCLUSIVE);
	plan_id = entry->plan_id;
	to = entry->fresh_next - 1;
	/* from here on what is given back is put there, and may be there twice then */
	entry->queue_lost = false;
	LWLockRelease(&entry->lock);
	split_visit(extension, plan_id, 1, to, refill_row, &refilling);
	LWLockAcquire(&entry->lock, LW_EXCLUSIVE);
	if (entry->plan_id == plan_id)
		refill_end(entry, &refilling, to);
	LWLockRelease(&entry->lock);
	pfree(refilling.numbers);
	pfree(refilling.fresh);
}

/* A look at the members of a plan that is loaded */
typedef struct LoadingMembers
{
	PlanEntry  *entry;
	Oid			instance;
	int64		lease_ttl_us;
	int			count;
} LoadingMembers;

static void
load_member(const MemberRow *row, void *arg)
{
	LoadingMembers *loading = arg;
	MemberEntry *member = member_make(loading->instance, row->member);
	int64		ttl_us = row->ttl_us == 0 ? loading->lease_ttl_us : row->ttl_us;

	member->state = MEMBER_LIVE;
	member->plan_id = loading->entry->plan_id;
	member->plan = loading->entry->key;
	member->role = row->role;
	member->capacity = row->capacity;
	member->ttl_us = ttl_us;
	member->deadline_us = clock_now_us() + Max(ttl_us, loading->lease_ttl_us);
	member->pid = member->busy = 0;
	member->owned = member->weight = 0;
	member->last_seq = row->member;
	member->news_count = member->offers_count = 0;
	strlcpy(member->worker, row->worker, sizeof(member->worker));
	member_release(member);
	loading->count++;
}

static int
by_epoch(const void *a, const void *b)
{
	int64		left = ((const KnownClaim *) a)->epoch;
	int64		right = ((const KnownClaim *) b)->epoch;

	return left < right ? -1 : left > right ? 1 : 0;
}

/* A claim that was committed before this server began, or before anybody looked at its plan: it stands for lease_ttl. */
static void
load_claim(PlanEntry *entry, Oid instance, const KnownClaim *known, const SplitSpec *spec, int64 lease_ttl_us)
{
	ClaimEntry *claim;
	MemberEntry *member = known->member == 0 ? NULL : member_find(instance, known->member);
	int64		owner = member == NULL ? 0 : known->member;

	if (member != NULL)
	{
		MemberNews	news = {.seq = known->epoch,.number = known->number,.epoch = known->epoch,.kind = NEWS_GAINED};
		bool		room = member_reserve_news(member, 1);

		if (room)
		{
			member->owned++;
			member->weight += spec->weight;
			member_add_news(member, &news);
		}
		member_release(member);
		if (!room)
			plan_raise_no_room();
	}
	claim = claim_make(instance, known->epoch);
	claim->state = CLAIM_LIVE;
	claim->plan_id = entry->plan_id;
	claim->plan = entry->key;
	claim->number = known->number;
	claim->name_hash = split_name_hash(spec->name);
	claim->member = owner;
	claim->role = known->role;
	claim->pid = 0;
	claim->ttl_us = lease_ttl_us;
	claim->deadline_us = clock_now_us() + lease_ttl_us;
	claim->weight = spec->weight;
	claim->drain = DRAIN_NONE;
	claim->declined_us = claim->retry_us = 0;
	claim_release(claim);
}

/*
 * Brings a plan into memory as its rows say it is. The caller has the plan's
 * lock of kind LOCK_OTHER_PLAN, and nobody has written a row of the plan since it was
 * not loaded. Raises 53200, and can be repeated then.
 */
void
plan_load(const Extension *extension, PlanEntry *entry, const PlanRow *row)
{
	Loading		loading = {.claims_capacity = 64};
	LoadingMembers members = {
		.entry = entry,.instance = extension->extension,.lease_ttl_us = row->lease_ttl_us
	};
	SplitTables tables;

	LWLockAcquire(&entry->lock, LW_EXCLUSIVE);
	plan_entry_define(entry, row);
	plan_entry_forget_queues(entry);
	LWLockRelease(&entry->lock);

	loading.claims = palloc(loading.claims_capacity * sizeof(KnownClaim));
	refill_begin(&loading.runnable);
	split_visit(extension, row->plan_id, 1, row->last_number, load_row, &loading);
	if (!row->native)
		loading.nclaims = 0;
	else
		member_visit_rows(extension, row->plan_id, load_member, &members);
	qsort(loading.claims, loading.nclaims, sizeof(KnownClaim), by_epoch);
	split_open(&tables, extension, row->plan_id, AccessShareLock);
	for (int i = 0; i < loading.nclaims; i++)
	{
		SplitSpec	spec;

		CHECK_FOR_INTERRUPTS();
		if (split_find_spec(&tables, loading.claims[i].number, &spec))
			load_claim(entry, extension->extension, &loading.claims[i], &spec, row->lease_ttl_us);
	}
	split_close(&tables);
	if (members.count > 0)
		plan_entry_keep_notes(entry);

	LWLockAcquire(&entry->lock, LW_EXCLUSIVE);
	entry->planned = loading.planned;
	entry->done = loading.done;
	entry->quarantined = loading.quarantined;
	entry->owned = loading.nclaims;
	entry->fresh_next = loading.last_owned + 1;
	entry->fresh_end = row->last_number;
	pg_atomic_write_u64(&entry->floor, 0);
	entry->rate_second = 0;
	memset(entry->rate_done, 0, sizeof(entry->rate_done));
	entry->queue_lost = false;
	refill_end(entry, &loading.runnable, loading.last_owned);
	entry->members = members.count;
	entry->balanced_from_us = clock_now_us() + row->lease_ttl_us;
	entry->notes_lost = true;
	entry->assign_wanted++;
	entry->look_us = 0;
	entry->touched = true;
	entry->creator_pid = 0;
	entry->made_here = false;
	entry->gone = false;
	entry->loaded = true;
	LWLockRelease(&entry->lock);
	pfree(loading.claims);
	pfree(loading.runnable.numbers);
	pfree(loading.runnable.fresh);
}

/* Removes what is over of a database, and all of any other instance of the extension there; InvalidOid: of every database what is over. */
void
plan_memory_purge(Oid database, Oid keep_instance)
{
	plan_entry_purge(database, keep_instance);
	claim_entry_purge(database, keep_instance);
	member_entry_purge(database, keep_instance);
}
