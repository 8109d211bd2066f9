/*-------------------------------------------------------------------------
 *
 * member.c
 *	  Workers by assignment: join_plan, poll_plan, leave_plan.
 *
 * A member is a row, which says who it is, and an entry in shared memory, which says until
 * when it is alive and what it is to be told. The supervisor offers it splits; with its
 * next poll it claims them itself, in its own transaction, as its own role.
 *
 *		pending		the row is written
 *		live		committed
 *		replaced	another worker joined under its name	these are kept for a while,
 *		expired		its time was over						to say so
 *		left		by leave_plan()
 *		dead		there is nothing to say of it
 *
 * What a member is told has a number that grows: of a split that it gained the epoch, of all
 * else a token. It says with each poll up to where it knows, and is told the
 * rest again. So that the numbers of one member come in their order, one transaction at a
 * time adds to its news (MemberEntry.busy); nobody waits for that.
 *
 * NOTES
 *	  A poll in which nothing is new touches shared memory only.
 *
 * The idea: membership and rebalancing as in Kafka's consumer groups, with
 * cooperative revocation.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/condition_variable.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "debug.h"
#include "error.h"
#include "events.h"
#include "extension.h"
#include "fence.h"
#include "lease_entry.h"
#include "locktag.h"
#include "member_row.h"
#include "request.h"
#include "row.h"
#include "split_claim.h"
#include "split_commit.h"
#include "task.h"
#include "task_change.h"
#include "worker.h"

/* So long a poll waits for an assignment that is being made. */
#define ASSIGNMENT_WAIT_US (200 * US_PER_MS)

#define CAPACITY_MAX 1000000

/* ---------------------------------------------------------------- who is a member */

/* Which member superseded one */
typedef struct Successor
{
	int64		member;
	char	   *worker;
	TimestampTz joined_at;
} Successor;

static void
look_for_successor(const MemberRow *row, void *arg)
{
	Successor  *successor = arg;

	if (row->supersedes != successor->member)
		return;
	successor->worker = pstrdup(row->worker);
	successor->joined_at = row->joined_at;
}

/* Raises RV001 for who is no member any more. */
compat_noreturn static void
raise_no_member(PlanUse *use, int64 member, bool replaced)
{
	Successor	successor = {.member = member};

	plan_count(use->entry, PLAN_FENCED_WRITES, 1);
	member_visit_rows(extension_get(), use->plan_id, look_for_successor, &successor);
	if (successor.worker != NULL || replaced)
		ereport(ERROR,
				(errcode(ERRCODE_RV_STALE_TOKEN),
				 successor.worker != NULL ?
				 errmsg("another worker joined plan \"%s\" as \"%s\"", use->name, successor.worker) :
				 errmsg("another worker joined plan \"%s\" under the name of member " INT64_FORMAT, use->name, member),
				 successor.worker != NULL ?
				 errdetail("It did so at %s, and has the splits of member " INT64_FORMAT " now.",
						   timestamptz_to_str(successor.joined_at), member) : 0,
				 errhint("Stop, and do not join again: two workers of one name would take turns. Give each a name of its own.")));
	ereport(ERROR,
			(errcode(ERRCODE_RV_STALE_TOKEN),
			 member > 0 ?
			 errmsg(INT64_FORMAT " is no member of plan \"%s\"", member, use->name) :
			 errmsg("null is no member of plan \"%s\"", use->name),
			 errdetail("It left, or nothing was heard of it for its ttl; what it had is others' to do."),
			 errhint("Stop the work on its splits, and join again.")));
}

/* What a poll finds in the entry of its member */
typedef struct MemberLook
{
	MemberNews *news;			/* NULL: none */
	int			nnews;
	int64	   *offers;			/* NULL: none, or somebody else adds to its news */
	int			noffers;
	int64		ttl_us;
	Oid			role;
	bool		has_room;
	char		worker[WORKER_NAME_MAX + 1];
} MemberLook;

/*
 * A sign of life of a member, which knows all news up to `seen`. Takes its
 * partition. Raises RV001, RV002, 42501.
 */
static void
look_at_member(PlanUse *use, int64 number, int64 seen, MemberLook *look)
{
	MemberEntry *member = number > 0 ? member_find(use->instance, number) : NULL;
	int64		now_us = clock_now_us();
	Oid			role = InvalidOid;
	bool		expired;

	memset(look, 0, sizeof(*look));
	if (member == NULL)
		raise_no_member(use, number, false);
	if (member->plan_id != use->plan_id || member->state == MEMBER_DEAD || member->state == MEMBER_REPLACED || member->state == MEMBER_LEFT ||
		(member->state == MEMBER_PENDING && member->pid != MyProcPid) ||
		(member->state == MEMBER_ENDING && member->pid == MyProcPid))
	{
		bool		replaced = member->state == MEMBER_REPLACED;

		member_release(member);
		raise_no_member(use, number, replaced);
	}
	role = member->role;
	if (!is_member_of_role(GetUserId(), role))
	{
		member_release(member);
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for member " INT64_FORMAT " of plan \"%s\"", number, use->name),
				 errdetail("Another role joined as this member.")));
	}
	expired = member->state == MEMBER_EXPIRED || (member->state != MEMBER_PENDING && member->deadline_us <= now_us);
	if (!expired)
	{
		member->deadline_us = Max(member->deadline_us, now_us + member->ttl_us);
		member_forget_news(member, seen);
		look->ttl_us = member->ttl_us;
		look->role = role;
		look->has_room = member->owned < (member->capacity > 0 ? member->capacity : use->max_in_flight);
		strlcpy(look->worker, member->worker, sizeof(look->worker));
		if (member->news_count > 0)
		{
			look->news = member_copy_news(member);
			look->nnews = member->news_count;
		}
		if (member->offers_count > 0 && member->state == MEMBER_LIVE && member->busy == 0 &&
			member_reserve_news(member, member->offers_count + plan_op_pending_news(number)))
		{
			look->offers = member_copy_offers(member);
			look->noffers = member->offers_count;
			member->busy = MyProcPid;
		}
	}
	member_release(member);
	if (look->offers != NULL)
		plan_op_add(PLAN_OP_BUSY, use)->member = number;
	if (expired)
	{
		plan_count(use->entry, PLAN_FENCED_WRITES, 1);
		ereport(ERROR,
				(errcode(ERRCODE_RV_LEASE_EXPIRED),
				 errmsg("member " INT64_FORMAT " of plan \"%s\" has expired", number, use->name),
				 errdetail("Nothing was heard of it for its ttl."),
				 errhint("Stop the work on its splits, and join again.")));
	}
}

/* ---------------------------------------------------------------- join_plan */

/* Claims of one member, as they are collected */
typedef struct ClaimList
{
	int64		member;
	MemoryContext context;
	ClaimEntry *claims;			/* copies */
	int			count;
	int			capacity;
} ClaimList;

static bool
collect_claim(ClaimEntry *claim, void *arg)
{
	ClaimList  *list = arg;

	/* also what this very transaction has claimed for it */
	if (claim->member != list->member || !(claim->state == CLAIM_LIVE || (claim->state == CLAIM_PENDING && claim->pid == MyProcPid)))
		return false;
	/* under a lock: if there is no memory all locks go with the error */
	if (list->count == list->capacity)
	{
		list->capacity *= 2;
		list->claims = repalloc_huge(list->claims, list->capacity * sizeof(ClaimEntry));
	}
	list->claims[list->count++] = *claim;
	return false;
}

static int
by_number(const void *a, const void *b)
{
	int64		left = ((const ClaimEntry *) a)->number;
	int64		right = ((const ClaimEntry *) b)->number;

	return left < right ? -1 : left > right ? 1 : 0;
}

/* What a member has, in the order in which it was published. */
static void
collect_claims(ClaimList *list, const PlanUse *use, int64 member)
{
	list->member = member;
	list->count = 0;
	list->capacity = 16;
	list->claims = palloc(list->capacity * sizeof(ClaimEntry));
	claim_visit(use->instance, collect_claim, list);
	qsort(list->claims, list->count, sizeof(ClaimEntry), by_number);
}

/* A member owns a split from the commit on, whose row says so; then it is told. */
static PlanOp *
note_gain(PlanUse *use, const SplitSpec *spec, int64 epoch, int64 member, Oid role, int64 ttl_us, PlanCounter counted)
{
	PlanOp	   *op = plan_op_add(PLAN_OP_GAIN, use);

	op->number = spec->number;
	op->member = member;
	op->weight = spec->weight;
	op->counted = counted;
	op->news = (MemberNews) {.seq = epoch,.number = spec->number,.epoch = epoch,.kind = NEWS_GAINED};
	plan_op_of_claim(op, epoch);
	claim_open(use, spec, epoch, member, role, ttl_us);
	return op;
}

/* A claim of a member that was replaced goes on as one of the member that replaces it. */
static void
go_on_with(SplitWork *work, const ClaimEntry *claim, int64 member, const char *worker, int64 ttl_us)
{
	SplitSpec	spec;
	SplitRow	row;
	int64		epoch;
	PlanOp	   *op;

	if (!claim_begin_end(work->use, claim->key.epoch))
		return;					/* somebody ends it: it is nobody's then */
	op = plan_op_end(work->use, claim->key.epoch, claim->number, claim->member, claim->weight, END_FENCED, SPLIT_OWNED);
	split_wait_for_fences(work, claim->key.epoch);
	epoch = fence_next_token("revenant.join_plan()");
	do
	{
		CHECK_FOR_INTERRUPTS();
		if (!split_find_row(&work->tables, claim->number, &row) || row.state != SPLIT_OWNED || row.epoch != claim->key.epoch)
		{
			/* it was done, or given back, in a transaction that has ended meanwhile */
			claim_cancel_end(work->use, claim->key.epoch);
			op->undone = true;
			return;
		}
	} while (split_own(&work->tables, &row, epoch, member, GetUserId(), worker, true) != ROW_LOCKED);
	if (!split_find_spec(&work->tables, claim->number, &spec))
		return;					/* a superuser has deleted it: there is nothing to be told of it */
	(void) note_gain(work->use, &spec, epoch, member, GetUserId(), ttl_us, PLAN_ACQUIRED_REASSIGNED);
	work->wrote = true;
}

/* What a worker asks for that joins */
typedef struct Joining
{
	char	   *worker;
	int			capacity;		/* 0: the plan's */
	int64		ttl_us;
	bool		own_ttl;
} Joining;

static void
write_row(Relation rel, const PlanUse *use, const Joining *joining, int64 member, const MemberRow *before)
{
	Datum		values[MEMBER_COLUMNS];
	bool		nulls[MEMBER_COLUMNS] = {false};
	bool		replace[MEMBER_COLUMNS];

	values[ATT_MEMBER_PLAN_ID - 1] = Int64GetDatum(use->plan_id);
	values[ATT_MEMBER_WORKER - 1] = CStringGetTextDatum(joining->worker);
	values[ATT_MEMBER_MEMBER - 1] = Int64GetDatum(member);
	values[ATT_MEMBER_ROLE - 1] = CStringGetTextDatum(GetUserNameFromId(GetUserId(), false));
	values[ATT_MEMBER_ROLE_OID - 1] = Int64GetDatum((int64) GetUserId());
	values[ATT_MEMBER_CAPACITY - 1] = Int32GetDatum(joining->capacity);
	nulls[ATT_MEMBER_CAPACITY - 1] = joining->capacity == 0;
	values[ATT_MEMBER_TTL - 1] = lease_interval_datum(joining->ttl_us);
	nulls[ATT_MEMBER_TTL - 1] = !joining->own_ttl;
	values[ATT_MEMBER_JOINED_AT - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
	values[ATT_MEMBER_SUPERSEDES - 1] = Int64GetDatum(before == NULL ? 0 : before->member);
	nulls[ATT_MEMBER_SUPERSEDES - 1] = before == NULL;
	memset(replace, true, sizeof(replace));
	if (before == NULL)
		row_insert(rel, values, nulls);
	else
		row_update(rel, before->tuple, values, nulls, replace);
}

static void
open_member(PlanUse *use, const Joining *joining, int64 number)
{
	MemberEntry *member;
	PlanOp	   *op;

	plan_entry_keep_notes(use->entry);
	member = member_make(use->instance, number);
	member->state = MEMBER_PENDING;
	member->plan_id = use->plan_id;
	member->plan = use->entry->key;
	member->role = GetUserId();
	member->capacity = joining->capacity;
	member->ttl_us = joining->ttl_us;
	member->deadline_us = clock_now_us() + joining->ttl_us;
	member->pid = member->busy = MyProcPid;
	member->owned = member->weight = 0;
	member->last_seq = number;
	strlcpy(member->worker, joining->worker, sizeof(member->worker));
	member_release(member);
	op = plan_op_add(PLAN_OP_JOIN, use);
	op->member = number;
	plan_op_add(PLAN_OP_BUSY, use)->member = number;
}

/* Marks a member as being replaced or gone by this transaction. False: it is over already. */
static bool
begin_member_end(PlanUse *use, int64 number, PlanOpKind kind)
{
	MemberEntry *member = member_find(use->instance, number);
	bool		begun;

	if (member == NULL)
		return false;
	begun = member->state == MEMBER_LIVE || (member->state == MEMBER_PENDING && member->pid == MyProcPid);
	if (begun)
		member_mark_ending(member);
	member_release(member);
	if (begun)
		plan_op_add(kind, use)->member = number;
	return begun;
}

/* A worker takes the place of one with its name: what that had it goes on with. */
static void
replace(SplitWork *work, const Joining *joining, const MemberRow *before, int64 number)
{
	ClaimList	list;
	MemberEntry *member;
	bool		room;

	if (!is_member_of_role(GetUserId(), before->role))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to join plan \"%s\" as \"%s\"", work->use->name, joining->worker),
				 errdetail("A worker of role \"%s\" has that name.",
						   GetUserNameFromId(before->role, true) ? GetUserNameFromId(before->role, true) : "?"),
				 errhint("Give each worker a name of its own.")));
	(void) begin_member_end(work->use, before->member, PLAN_OP_REPLACE);
	DEBUG_POINT("member-replacing");
	collect_claims(&list, work->use, before->member);
	member = member_find(work->use->instance, number);
	room = member != NULL && member_reserve_news(member, list.count + plan_op_pending_news(number));
	if (member != NULL)
		member_release(member);
	if (!room)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of shared memory for plans"),
				 errhint("Set revenant.shared_memory higher.")));
	for (int i = 0; i < list.count; i++)
		go_on_with(work, &list.claims[i], number, joining->worker, joining->ttl_us);
}

static void
tell_member(const PlanUse *use, EventKind kind, const char *worker, int64 member)
{
	Event		event = {.kind = kind,.subject = use->name,.token = member,.role = use->owner,.detail = {"worker", worker, NULL}};

	event_at_commit(&event);
}

/*
 * join_plan(plan, worker, capacity, ttl, fingerprint, request_id): the member's token. Under a name that is a member's
 * already it takes over what that one has, under new epochs. Waits for who joins under the same name.
 * Raises 22004, 22023, 25006, 42501, 42704, 53200, 55000, RV004.
 */
SQL_FUNCTION(revenant_join_plan)
{
	SplitWork	work;
	Joining		joining = {0};
	MemberRow	before;
	Request		request = {.verb = "join_plan"};
	RequestReply reply = {0};
	Extension	oids;
	Relation	rel;
	char	   *plan;
	bool		known;

	task_require_writable("join_plan");
	plan = plan_name_arg(fcinfo, 0);
	joining.worker = plan_worker_arg(fcinfo, 1);
	joining.capacity = PG_ARGISNULL(2) ? 0 : PG_GETARG_INT32(2);
	if (!PG_ARGISNULL(2) && (joining.capacity < 1 || joining.capacity > CAPACITY_MAX))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("capacity is out of range"),
				 errdetail("It is from 1 to %d.", CAPACITY_MAX),
				 errhint("NULL is the plan's max_in_flight; a worker that wants nothing more leaves.")));
	split_work_begin(&work, plan, RowExclusiveLock);
	joining.own_ttl = !PG_ARGISNULL(3);
	joining.ttl_us = plan_ttl_arg(fcinfo, 3, work.use->lease_ttl_us);
	plan_use_check_worker(work.use, PG_ARGISNULL(4) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(4)));
	oids = *extension_get();
	if (!PG_ARGISNULL(5))
	{
		request.request_id = PG_GETARG_UUID_P(5);
		request.type = plan;
		request.id = joining.worker;
		request_lock(request.request_id);
		if (request_find(&request, &reply))
		{
			VirtualTransactionId ender;

			(void) member_renew(work.use->instance, reply.number, &ender);
			split_work_end(&work);
			PG_RETURN_INT64(reply.number);
		}
	}
	(void) member_lock_name(work.use->plan_id, joining.worker, true);
	rel = table_open(oids.member, RowExclusiveLock);
	known = member_find_row(rel, &oids, work.use->plan_id, joining.worker, &before);
	reply.number = fence_next_token("revenant.join_plan()");
	open_member(work.use, &joining, reply.number);
	if (known)
		replace(&work, &joining, &before, reply.number);
	write_row(rel, work.use, &joining, reply.number, known ? &before : NULL);
	table_close(rel, NoLock);
	if (request.request_id != NULL)
		request_note(&request, &reply);
	tell_member(work.use, EVENT_PLAN_JOINED, joining.worker, reply.number);
	split_work_end(&work);
	CommandCounterIncrement();
	PG_RETURN_INT64(reply.number);
}

/* ---------------------------------------------------------------- leave_plan */

/*
 * leave_plan(plan, member): gives back what it has, which uses up no attempt, and ends the
 * membership. Returns how many splits; 0, too, where it is no member any more. Raises
 * 22004, 22023, 25006, 42501, 42704, 53200, 55000.
 */
SQL_FUNCTION(revenant_leave_plan)
{
	SplitWork	work;
	ClaimList	list;
	MemberEntry *member;
	Extension	oids;
	char	   *plan;
	char		name[WORKER_NAME_MAX + 1] = "";
	int64		number = PG_ARGISNULL(1) ? 0 : PG_GETARG_INT64(1);
	int			released = 0;
	Oid			role = InvalidOid;

	task_require_writable("leave_plan");
	plan = plan_name_arg(fcinfo, 0);
	split_work_begin(&work, plan, RowExclusiveLock);
	member = number > 0 ? member_find(work.use->instance, number) : NULL;
	if (member != NULL)
	{
		role = member->plan_id == work.use->plan_id ? member->role : InvalidOid;
		strlcpy(name, member->worker, sizeof(name));
		member_release(member);
	}
	if (OidIsValid(role) && !is_member_of_role(GetUserId(), role))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for member " INT64_FORMAT " of plan \"%s\"", number, plan),
				 errdetail("Another role joined as this member.")));
	oids = *extension_get();
	/* who joins under its name comes before, or after */
	if (OidIsValid(role))
		(void) member_lock_name(work.use->plan_id, name, true);
	if (OidIsValid(role) && begin_member_end(work.use, number, PLAN_OP_LEAVE))
	{
		collect_claims(&list, work.use, number);
		for (int i = 0; i < list.count; i++)
		{
			const ClaimEntry *claim = &list.claims[i];
			ClaimLook	look = {.number = claim->number,.member = number,.weight = claim->weight};

			CHECK_FOR_INTERRUPTS();
			if (claim_begin_end(work.use, claim->key.epoch) && split_end_claim(&work, claim->key.epoch, &look, END_RELEASED, NULL))
				released++;
		}
		member_delete_row(&oids, work.use->plan_id, name, number);
		tell_member(work.use, EVENT_PLAN_LEFT, name, number);
		work.wrote = true;
	}
	split_work_end(&work);
	PG_RETURN_INT32(released);
}

/* ---------------------------------------------------------------- poll_plan */

static const char *const news_names[] = {"gained", "revoke", "revoke_cancelled", "lost", "quarantined", "complete", "stalled"};

/* A call of poll_plan */
typedef struct Polling
{
	PlanUse    *use;
	SplitTables tables;
	LOCKMODE	mode;
	bool		opened;
	ReturnSetInfo *result;
	bool		begun;			/* the result is */
} Polling;

static void
open_tables(Polling *polling)
{
	Extension	oids;

	if (polling->opened)
		return;
	oids = *extension_get();
	split_open(&polling->tables, &oids, polling->use->plan_id, polling->mode);
	polling->opened = true;
}

static Jsonb *
detail_of(const char *text)
{
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(text)));
}

/* Tells of something. About a split: what that is, and how far; about the plan both are NULL. */
static void
put_event(FunctionCallInfo fcinfo, Polling *polling, const MemberNews *news, const SplitSpec *spec, const SplitRow *row, const char *detail)
{
	enum
	{
		COL_SEQ, COL_EVENT, COL_SPLIT, COL_EPOCH, COL_WEIGHT, COL_SPEC, COL_PROGRESS, COL_DETAIL, COLUMNS
	};
	Datum		values[COLUMNS] = {0};
	bool		nulls[COLUMNS];

	if (!polling->begun)
		InitMaterializedSRF(fcinfo, 0);
	polling->begun = true;
	memset(nulls, true, sizeof(nulls));
	values[COL_SEQ] = Int64GetDatum(news->seq);
	values[COL_EVENT] = CStringGetTextDatum(news_names[news->kind]);
	nulls[COL_SEQ] = nulls[COL_EVENT] = false;
	if (spec != NULL)
	{
		values[COL_SPLIT] = CStringGetTextDatum(spec->name);
		values[COL_EPOCH] = Int64GetDatum(news->epoch);
		values[COL_WEIGHT] = Int64GetDatum(spec->weight);
		nulls[COL_SPLIT] = nulls[COL_EPOCH] = nulls[COL_WEIGHT] = false;
		if (news->kind == NEWS_GAINED)
		{
			values[COL_SPEC] = PointerGetDatum(spec->spec);
			nulls[COL_SPEC] = spec->spec == NULL;
			values[COL_PROGRESS] = PointerGetDatum(row->progress);
			nulls[COL_PROGRESS] = row->progress == NULL;
		}
		if (news->kind == NEWS_LOST)
			detail = psprintf("{\"reason\": \"%s\"}", claim_end_name(news->how));
		if (news->kind == NEWS_QUARANTINED)
			detail = psprintf("{\"attempts\": %d, \"reasons\": %s}", row->attempts,
							  row->reasons == NULL ? "[]" : JsonbToCString(NULL, &row->reasons->root, VARSIZE(row->reasons)));
	}
	if (detail != NULL)
	{
		values[COL_DETAIL] = JsonbPGetDatum(detail_of(detail));
		nulls[COL_DETAIL] = false;
	}
	tuplestore_putvalues(polling->result->setResult, polling->result->setDesc, values, nulls);
}

/* Tells what a member is to know of a split. */
static void
put_news(FunctionCallInfo fcinfo, Polling *polling, const MemberNews *news)
{
	SplitSpec	spec;
	SplitRow	row;

	open_tables(polling);
	/* one that was purged, or reset: there is nothing to be done about it */
	if (split_find_spec(&polling->tables, news->number, &spec) && split_find_row(&polling->tables, news->number, &row))
		put_event(fcinfo, polling, news, &spec, &row, NULL);
}

/* Claims a split that the member was offered, and tells it. False: it cannot be claimed any more (`over`), or just now. */
static bool
gain(FunctionCallInfo fcinfo, Polling *polling, int64 member, const MemberLook *look, int64 number, bool *over)
{
	SplitSpec	spec;
	SplitRow	row;
	const PlanOp *op;
	int64		epoch;
	bool		found;

	found = split_find_row(&polling->tables, number, &row) && split_find_spec(&polling->tables, number, &spec);
	/* of what is owned or quarantined its own operation has told who assigns */
	*over = (!found || row.state == SPLIT_DONE) && !split_is_own_doing(polling->use, found ? &row : NULL);
	if (!found || row.state != SPLIT_RUNNABLE)
		return false;
	epoch = fence_next_token("revenant.poll_plan()");
	if (split_own(&polling->tables, &row, epoch, member, look->role, look->worker, false) != ROW_LOCKED)
		return false;
	op = note_gain(polling->use, &spec, epoch, member, look->role, look->ttl_us, claim_acquired_as(&row));
	put_event(fcinfo, polling, &op->news, &spec, &row, NULL);
	return true;
}

/* What is no offer any more is none; the supervisor makes another one. */
static void
forget_offer(Polling *polling, int64 number, int64 split, bool over)
{
	MemberEntry *member = member_find(polling->use->instance, number);

	if (member != NULL)
	{
		member_take_offer(member, split);
		member_release(member);
	}
	if (over)
	{
		LWLockAcquire(&polling->use->entry->lock, LW_EXCLUSIVE);
		if (polling->use->entry->plan_id == polling->use->plan_id)
			plan_entry_note(polling->use->entry, split, NOTE_GONE);
		LWLockRelease(&polling->use->entry->lock);
	}
	plan_entry_want_assignment(polling->use->entry);
}

/* Whether who gets what is being worked out, and something is to be had. `verdict_seq`: of the plan. */
static bool
assignment_is_pending(PlanEntry *entry, int64 *verdict_seq, PlanVerdict *verdict)
{
	bool		pending;

	LWLockAcquire(&entry->lock, LW_SHARED);
	pending = entry->assigned != entry->assign_wanted && plan_entry_available(entry) > 0;
	*verdict = entry->verdict;
	*verdict_seq = entry->verdict == VERDICT_NONE ? 0 : entry->verdict_seq;
	LWLockRelease(&entry->lock);
	return pending;
}

/* Waits for an assignment that is being made: a moment, no more. */
static void
wait_for_assignment(PlanEntry *entry)
{
	uint32		wait_event = compat_wait_event("RevenantAssignment");
	int64		until_us = clock_now_us() + ASSIGNMENT_WAIT_US;
	int64		verdict_seq;
	PlanVerdict verdict;

	worker_wake_supervisor(MyDatabaseId);
	ConditionVariablePrepareToSleep(&entry->assignment);
	while (assignment_is_pending(entry, &verdict_seq, &verdict) && clock_now_us() < until_us)
		(void) ConditionVariableTimedSleep(&entry->assignment, Max((until_us - clock_now_us()) / 1000, 1), wait_event);
	ConditionVariableCancelSleep();
}

static void
put_verdict(FunctionCallInfo fcinfo, Polling *polling, PlanVerdict verdict, int64 seq)
{
	PlanEntry  *entry = polling->use->entry;
	MemberNews	news = {.seq = seq,.kind = verdict == VERDICT_COMPLETE ? NEWS_COMPLETE : NEWS_STALLED};
	int64		done;
	int64		quarantined;

	LWLockAcquire(&entry->lock, LW_SHARED);
	done = entry->done;
	quarantined = entry->quarantined;
	LWLockRelease(&entry->lock);
	put_event(fcinfo, polling, &news, NULL, NULL, news.kind == NEWS_COMPLETE ? psprintf("{\"completed\": " INT64_FORMAT "}", done) :
			  psprintf("{\"completed\": " INT64_FORMAT ", \"quarantined\": " INT64_FORMAT "}", done, quarantined));
}

/*
 * poll_plan(plan, member, seen): a sign of life; what the member does not know yet, in the order of seq: all
 * that has a higher one than `seen`. Claims what the member was offered. Where nothing is new
 * it writes nothing. Raises RV001, RV002, 22004, 22023, 25006, 42501, 42704, 53200, 55000.
 */
SQL_FUNCTION(revenant_poll_plan)
{
	Polling		polling = {.result = (ReturnSetInfo *) fcinfo->resultinfo};
	MemberLook	look;
	char	   *plan;
	int64		number = PG_ARGISNULL(1) ? 0 : PG_GETARG_INT64(1);
	int64		seen = PG_ARGISNULL(2) ? 0 : PG_GETARG_INT64(2);
	int64		verdict_seq;
	PlanVerdict verdict;
	bool		gained = false;

	task_require_writable("poll_plan");
	plan = plan_name_arg(fcinfo, 0);
	polling.use = plan_use(plan);
	plan_use_check_worker(polling.use, NULL);
	look_at_member(polling.use, number, seen, &look);
	if (assignment_is_pending(polling.use->entry, &verdict_seq, &verdict) && look.offers == NULL && look.has_room)
	{
		wait_for_assignment(polling.use->entry);
		look_at_member(polling.use, number, seen, &look);
		(void) assignment_is_pending(polling.use->entry, &verdict_seq, &verdict);
	}
	if (polling.result == NULL || !IsA(polling.result, ReturnSetInfo) || (polling.result->allowedModes & SFRM_Materialize) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("set-valued function called in context that cannot accept a set")));
	polling.result->returnMode = SFRM_Materialize;
	polling.mode = look.noffers > 0 ? RowExclusiveLock : AccessShareLock;

	for (int i = 0; i < look.nnews; i++)
		put_news(fcinfo, &polling, &look.news[i]);
	for (int i = 0; i < look.noffers; i++)
	{
		bool		over;

		CHECK_FOR_INTERRUPTS();
		open_tables(&polling);
		DEBUG_POINT("member-gaining");
		if (gain(fcinfo, &polling, number, &look, look.offers[i], &over))
			gained = true;
		else
			forget_offer(&polling, number, look.offers[i], over);
	}
	if (verdict_seq > seen)
		put_verdict(fcinfo, &polling, verdict, verdict_seq);
	if (polling.opened)
		split_close(&polling.tables);
	if (gained)
		CommandCounterIncrement();
	return (Datum) 0;
}
