/*-------------------------------------------------------------------------
 *
 * plan_view.c
 *	  What the views of plans ask: plans, splits, members, stat_plans; and plan_progress().
 *
 * On a primary, what is counted and who lives is in shared memory. A standby has
 * only rows: there splits are counted, and nothing is said of who lives.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/xlog.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "extension.h"
#include "lease_api.h"
#include "lease_entry.h"
#include "member_row.h"
#include "plan_xact.h"
#include "result.h"
#include "row.h"
#include "split_claim.h"
#include "stat.h"

/* How far a plan is */
typedef struct PlanCounts
{
	int64		planned;
	int64		done;
	int64		quarantined;
	int64		owned;
	bool		final;
	PlanVerdict verdict;
	double		rate;			/* done per second; 0 on a standby */
} PlanCounts;

static void
count_row(const SplitRow *row, void *arg)
{
	PlanCounts *counts = arg;

	counts->planned++;
	counts->done += row->state == SPLIT_DONE;
	counts->quarantined += row->state == SPLIT_QUARANTINED;
	counts->owned += row->state == SPLIT_OWNED;
}

/*
 * The plan as memory has it. NULL where that does not count: on a standby, and on a server that does not accept writes
 * (a look would bring it into memory, where claims count from that moment), for the transaction that has dropped
 * a plan of this name and made this one, and where somebody else has just dropped it.
 */
static PlanUse *
use_to_look(const PlanRow *row)
{
	return RecoveryInProgress() || clock_write_state() != WRITES_ACCEPTED || plan_is_replaced(row->name) ? NULL : plan_try_use(row->name);
}

/* Counts the splits of a plan. */
static void
count_splits(const PlanRow *row, PlanCounts *counts)
{
	PlanUse    *use = use_to_look(row);
	Extension	oids = *extension_get();

	memset(counts, 0, sizeof(*counts));
	counts->final = row->final;
	counts->verdict = row->verdict;
	/* of a plan that is held memory knows no claims */
	if (use == NULL || !row->native || plan_use_has_ops(use))
	{
		split_visit(&oids, row->plan_id, 1, row->last_number, count_row, counts);
		return;
	}
	LWLockAcquire(&use->entry->lock, LW_SHARED);
	counts->planned = use->entry->planned;
	counts->done = use->entry->done;
	counts->quarantined = use->entry->quarantined;
	counts->owned = use->entry->owned;
	LWLockRelease(&use->entry->lock);
	counts->rate = plan_entry_rate(use->entry);
}

/* Whether the caller may see what only members of the owner's role and admins see. */
static bool
is_visible(const PlanRow *row)
{
	return (row->native && is_member_of_role(GetUserId(), row->owner_oid)) || extension_role_is_admin(GetUserId());
}

static const char *
state_of(const PlanRow *row)
{
	if (!row->native)
		return "held";
	if (row->verdict != VERDICT_NONE)
		return plan_verdict_name(row->verdict);
	return row->final ? "final" : "open";
}

/* Who leads a plan now; NULL: nobody, or not known here. */
static char *
leader_of(const char *plan)
{
	LeaseHold	hold;

	return RecoveryInProgress() ? NULL : lease_who(plan_lease_name(plan), &hold);
}

/* _plan_live(plan): state, leader, done, quarantined, owned, visible. NULL: there is no such plan. Works on a standby. */
SQL_FUNCTION(revenant_plan_live)
{
	enum
	{
		COL_STATE, COL_LEADER, COL_DONE, COL_QUARANTINED, COL_OWNED, COL_VISIBLE, COLUMNS
	};
	Extension	oids = *extension_get();
	Datum		values[COLUMNS];
	bool		nulls[COLUMNS] = {false};
	PlanCounts	counts;
	PlanRow		row;
	char	   *leader;

	if (PG_ARGISNULL(0) || plan_find_row(&oids, text_to_cstring(PG_GETARG_TEXT_PP(0)), &row) == NULL)
		PG_RETURN_NULL();
	count_splits(&row, &counts);
	leader = leader_of(row.name);
	values[COL_STATE] = CStringGetTextDatum(state_of(&row));
	nulls[COL_LEADER] = leader == NULL;
	values[COL_LEADER] = leader == NULL ? (Datum) 0 : CStringGetTextDatum(leader);
	values[COL_DONE] = Int64GetDatum(counts.done);
	values[COL_QUARANTINED] = Int64GetDatum(counts.quarantined);
	values[COL_OWNED] = Int64GetDatum(counts.owned);
	values[COL_VISIBLE] = BoolGetDatum(is_visible(&row));
	return result_row(fcinfo, values, nulls);
}

/*
 * plan_progress(plan): how many splits are planned, and of them runnable, owned, done, quarantined;
 * how many are done per second, over the latest minute of work; and how long the rest takes at
 * that rate (null: nobody knows). Works on a standby, but for the last two. Raises 22004, 22023, 42704.
 */
SQL_FUNCTION(revenant_plan_progress)
{
	enum
	{
		COL_PLANNED, COL_RUNNABLE, COL_OWNED, COL_DONE, COL_QUARANTINED, COL_RATE, COL_ETA, COLUMNS
	};
	char	   *plan = plan_name_arg(fcinfo, 0);
	Extension	oids = *extension_get();
	Datum		values[COLUMNS];
	bool		nulls[COLUMNS] = {false};
	PlanCounts	counts;
	PlanRow		row;
	int64		left;

	if (plan_find_row(&oids, plan, &row) == NULL)
		plan_raise_unknown(plan);
	count_splits(&row, &counts);
	left = Max(counts.planned - counts.done - counts.quarantined, 0);
	values[COL_PLANNED] = Int64GetDatum(counts.planned);
	values[COL_RUNNABLE] = Int64GetDatum(Max(left - counts.owned, 0));
	values[COL_OWNED] = Int64GetDatum(counts.owned);
	values[COL_DONE] = Int64GetDatum(counts.done);
	values[COL_QUARANTINED] = Int64GetDatum(counts.quarantined);
	values[COL_RATE] = Float8GetDatum(counts.rate);
	nulls[COL_RATE] = RecoveryInProgress();
	nulls[COL_ETA] = left > 0 && counts.rate <= 0;
	values[COL_ETA] = lease_interval_datum(left == 0 || counts.rate <= 0 ? 0 :
										   (int64) Min((double) left / counts.rate * US_PER_S, (double) PG_INT64_MAX / 4));
	return result_row(fcinfo, values, nulls);
}

/* _split_live(plan_id, number, epoch): whether it was asked for, and until when it is owned. Nulls on a standby, and for what nobody owns. */
SQL_FUNCTION(revenant_split_live)
{
	Datum		values[2] = {0};
	bool		nulls[2] = {true, true};
	Oid			instance = extension_get()->extension;
	ClaimEntry *claim = RecoveryInProgress() || PG_ARGISNULL(2) ? NULL : claim_find(instance, PG_GETARG_INT64(2));
	int64		member = 0;
	int64		deadline_us = 0;

	if (claim != NULL)
	{
		values[0] = BoolGetDatum(claim->drain == DRAIN_REQUESTED);
		nulls[0] = false;
		deadline_us = claim->deadline_us;
		member = claim->member;
		claim_release(claim);
	}
	if (member != 0)
	{
		MemberEntry *entry = member_find(instance, member);

		deadline_us = entry == NULL ? 0 : entry->deadline_us;
		if (entry != NULL)
			member_release(entry);
	}
	if (deadline_us != 0)
	{
		values[1] = TimestampTzGetDatum(clock_to_timestamp(deadline_us));
		nulls[1] = false;
	}
	return result_row(fcinfo, values, nulls);
}

/* ---------------------------------------------------------------- members */

static void
collect_plan(Relation rel, HeapTuple tuple, void *arg)
{
	List	  **plans = arg;
	PlanRow    *row = palloc(sizeof(PlanRow));

	plan_parse(tuple, RelationGetDescr(rel), row);
	*plans = lappend(*plans, row);
}

/* All plans, as their rows say. */
static List *
all_plans(const Extension *extension)
{
	Relation	rel = table_open(extension->plan, AccessShareLock);
	List	   *plans = NIL;

	row_visit(rel, collect_plan, &plans);
	table_close(rel, AccessShareLock);
	return plans;
}

/* What lists members */
typedef struct MemberListing
{
	ReturnSetInfo *result;
	const PlanRow *plan;
	Oid			instance;
	bool		visible;
} MemberListing;

static void
put_member(const MemberRow *row, void *arg)
{
	enum
	{
		COL_PLAN, COL_WORKER, COL_MEMBER, COL_STATE, COL_CAPACITY, COL_OWNED, COL_WEIGHT, COL_JOINED_AT, COL_DEADLINE, COLUMNS
	};
	MemberListing *listing = arg;
	MemberEntry *member = RecoveryInProgress() ? NULL : member_find(listing->instance, row->member);
	Datum		values[COLUMNS] = {0};
	bool		nulls[COLUMNS] = {false};

	values[COL_PLAN] = CStringGetTextDatum(listing->plan->name);
	values[COL_WORKER] = CStringGetTextDatum(row->worker);
	values[COL_MEMBER] = Int64GetDatum(row->member);
	nulls[COL_MEMBER] = !listing->visible;
	values[COL_CAPACITY] = Int32GetDatum(row->capacity > 0 ? row->capacity : listing->plan->max_in_flight);
	values[COL_JOINED_AT] = TimestampTzGetDatum(row->joined_at);
	nulls[COL_STATE] = nulls[COL_OWNED] = nulls[COL_WEIGHT] = nulls[COL_DEADLINE] = member == NULL;
	if (member != NULL)
	{
		bool		lives = member->state == MEMBER_PENDING || member->deadline_us > clock_now_us();

		values[COL_OWNED] = Int32GetDatum((int32) member->owned);
		values[COL_WEIGHT] = Int64GetDatum(member->weight);
		values[COL_DEADLINE] = TimestampTzGetDatum(clock_to_timestamp(member->deadline_us));
		member_release(member);
		values[COL_STATE] = CStringGetTextDatum(lives ? "live" : "expired");
	}
	tuplestore_putvalues(listing->result->setResult, listing->result->setDesc, values, nulls);
}

/* _members(): as the view. */
SQL_FUNCTION(revenant_members)
{
	MemberListing listing = {.result = (ReturnSetInfo *) fcinfo->resultinfo};
	Extension	oids = *extension_get();
	ListCell   *cell;

	InitMaterializedSRF(fcinfo, 0);
	listing.instance = oids.extension;
	foreach(cell, all_plans(&oids))
	{
		listing.plan = lfirst(cell);
		if (!listing.plan->native)
			continue;
		(void) use_to_look(listing.plan);
		listing.visible = is_visible(listing.plan);
		member_visit_rows(&oids, listing.plan->plan_id, put_member, &listing);
	}
	return (Datum) 0;
}

/* ---------------------------------------------------------------- counters */

/* What is there of a plan just now, by one look at all members and claims */
typedef struct Gauge
{
	int64		plan_id;		/* hash key */
	int			live;
	int			idle;
	int64		draining;
} Gauge;

static Gauge *
gauge_of(HTAB *gauges, int64 plan_id)
{
	bool		found;
	Gauge	   *gauge = hash_search(gauges, &plan_id, HASH_ENTER, &found);

	if (!found)
	{
		gauge->live = gauge->idle = 0;
		gauge->draining = 0;
	}
	return gauge;
}

static bool
gauge_member(MemberEntry *member, void *arg)
{
	if (member->state == MEMBER_LIVE && member->deadline_us > clock_now_us())
	{
		Gauge	   *gauge = gauge_of(arg, member->plan_id);

		gauge->live++;
		gauge->idle += member->owned == 0;
	}
	return false;
}

static bool
gauge_claim(ClaimEntry *claim, void *arg)
{
	if (claim->state == CLAIM_LIVE && claim->drain == DRAIN_REQUESTED)
		gauge_of(arg, claim->plan_id)->draining++;
	return false;
}

static void
put_counters(ReturnSetInfo *result, const PlanRow *row, HTAB *gauges)
{
	enum
	{
		COL_PLAN, COL_FIRST_COUNTER, COL_OWNED = COL_FIRST_COUNTER + PLAN_COUNTERS, COL_DONE, COL_QUARANTINED, COL_LIVE, COL_LEADER,
		COL_IDLE, COL_DRAINING, COL_SINCE, COLUMNS
	};
	Datum		values[COLUMNS] = {0};
	bool		nulls[COLUMNS] = {false};
	PlanUse    *use = use_to_look(row);
	Gauge	   *gauge = gauge_of(gauges, row->plan_id);
	char	   *leader = leader_of(row->name);
	PlanCounts	counts;

	count_splits(row, &counts);
	values[COL_PLAN] = CStringGetTextDatum(row->name);
	for (int i = 0; i < PLAN_COUNTERS; i++)
	{
		int64		counted = use == NULL ? 0 : (int64) pg_atomic_read_u64(&use->entry->counters[i]);
		bool		time = i == PLAN_REPLAN_US || i == PLAN_DRAIN_US || i == PLAN_ASSIGN_US;

		values[COL_FIRST_COUNTER + i] = time ? STAT_MS_DATUM(counted) : Int64GetDatum(counted);
	}
	values[COL_OWNED] = Int64GetDatum(counts.owned);
	values[COL_DONE] = Int64GetDatum(counts.done);
	values[COL_QUARANTINED] = Int64GetDatum(counts.quarantined);
	values[COL_LIVE] = Int32GetDatum(gauge->live);
	nulls[COL_LEADER] = leader == NULL;
	values[COL_LEADER] = leader == NULL ? (Datum) 0 : CStringGetTextDatum(leader);
	values[COL_IDLE] = Int32GetDatum(gauge->idle);
	values[COL_DRAINING] = Int64GetDatum(gauge->draining);
	nulls[COL_SINCE] = use == NULL;
	values[COL_SINCE] = TimestampTzGetDatum(use == NULL ? 0 : (TimestampTz) pg_atomic_read_u64(&use->entry->since));
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* _stat_plans(): one row for each plan. On a standby nothing was counted. */
SQL_FUNCTION(revenant_stat_plans)
{
	Extension	oids = *extension_get();
	HASHCTL		control = {.keysize = sizeof(int64),.entrysize = sizeof(Gauge),.hcxt = CurrentMemoryContext};
	HTAB	   *gauges = hash_create("revenant gauges", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	ListCell   *cell;

	InitMaterializedSRF(fcinfo, 0);
	if (!RecoveryInProgress())
	{
		member_visit(oids.extension, gauge_member, gauges);
		claim_visit(oids.extension, gauge_claim, gauges);
	}
	foreach(cell, all_plans(&oids))
		put_counters((ReturnSetInfo *) fcinfo->resultinfo, lfirst(cell), gauges);
	return (Datum) 0;
}
