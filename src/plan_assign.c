/*-------------------------------------------------------------------------
 *
 * plan_assign.c
 *	  Who gets which split: a supervisor's part of plans that have members.
 *
 * A supervisor keeps a book of each such plan: which splits are not done, and how
 * heavy each is. It reads that from the rows once, and learns from the notes in the plan's entry
 * what became of each; who owns what, the claims in memory say. When something has
 * changed, balance.c says who is to have what, and this file acts on the difference:
 *
 *		nobody's			offered to who is to have it; he claims it with his next poll
 *		somebody else's		he is asked to hand it over (revoke); once he did, it is nobody's
 *		asked for, and to	the request is cancelled
 *		stay after all
 *
 * A request that is not answered:
 *
 *		requested ── drained() ─────────────────────────────▶ nobody's
 *			│  └──── decline_revoke() ──▶ none: not asked again for a while
 *			├─────── after drain_deadline ──────────────────▶ nobody's (revoked)
 *			└─────── to stay after all ──▶ cancelled ── a sign of life of the split,
 *									│				   or the member knows ──▶ none
 *									└── after drain_deadline ────────▶ nobody's (starved)
 *
 * NOTES
 *	  A split that was asked for is nobody's to balance.c: so what is being
 *	  moved is moved on, and not asked for again from somebody else.
 *
 *	  Nothing is moved for the sake of balance before entry->balanced_from_us: after a member joined or
 *	  left for rebalance_delay, after a start for lease_ttl.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/condition_variable.h"
#include "storage/lmgr.h"
#include "utils/fmgroids.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "balance.h"
#include "clock.h"
#include "debug.h"
#include "extension.h"
#include "fence.h"
#include "plan_watch.h"
#include "plan_xact.h"
#include "row.h"
#include "split_claim.h"
#include "split_commit.h"
#include "tick.h"

#define AGAIN_US (50 * US_PER_MS)	/* what could not be done is tried again after that, and then after twice as much ... */
#define AGAIN_MAX_US (1 * US_PER_S)
#define DECLINED_MIN_US (10 * US_PER_S) /* a split that its member would not hand over is not asked for again before */
#define REQUESTS_AT_ONCE 1000	/* news in one transaction */

/* A split, as heavy as it is */
typedef struct BookLine
{
	int64		number;
	int64		weight;
} BookLine;

/* What a supervisor knows of the splits of a plan, in a context of its own */
typedef struct Book
{
	int64		plan_id;		/* hash key */
	MemoryContext context;
	HTAB	   *splits;			/* BookSplit: those that are not done, quarantined or a puller's */
	BookLine   *lines;			/* the same and some that are not in it any more, the heaviest first */
	int			nlines;
	int			capacity;
	int			first;			/* what is before is owned, or not in the book; what of it comes back is loose */
	List	   *loose;			/* BookLine, in the context */
	uint64		notes_from;		/* the next note to be read */
	int64		known_to;		/* splits up to this number were read */
	int64		drain_us;		/* when a request is over at the earliest; PG_INT64_MAX: there is none */
	int64		balanced_us;	/* when the latest assignment was made */
	int64		again_us;		/* something of it could not be done, and is tried again after that; 0: all was */
} Book;

typedef struct BookSplit
{
	int64		number;			/* hash key */
	int64		weight;
} BookSplit;

static HTAB *books = NULL;

/* Called once by each supervisor. */
void
plan_assign_init(void)
{
	HASHCTL		control = {.keysize = sizeof(int64),.entrysize = sizeof(Book),.hcxt = TopMemoryContext};

	books = hash_create("revenant plan books", 16, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

static void
close_book(int64 plan_id)
{
	Book	   *book = hash_search(books, &plan_id, HASH_FIND, NULL);

	if (book == NULL)
		return;
	if (book->context != NULL)
		MemoryContextDelete(book->context);
	(void) hash_search(books, &plan_id, HASH_REMOVE, NULL);
}

/* ---------------------------------------------------------------- the book */

static void
write_state(const SplitRow *row, void *arg)
{
	Book	   *book = arg;

	if (row->state == SPLIT_RUNNABLE || (row->state == SPLIT_OWNED && row->member != 0))
		((BookSplit *) hash_search(book->splits, &row->number, HASH_ENTER, NULL))->weight = 0;
}

static void
add_line(Book *book, const BookSplit *split)
{
	if (book->nlines == book->capacity)
	{
		book->capacity *= 2;
		book->lines = repalloc_huge(book->lines, book->capacity * sizeof(BookLine));
	}
	book->lines[book->nlines++] = (BookLine) {.number = split->number,.weight = split->weight};
}

/* One that comes back, or comes alone: it is looked at each time until it is owned. */
static void
add_loose(Book *book, const BookSplit *split)
{
	MemoryContext old = MemoryContextSwitchTo(book->context);
	BookLine   *line = palloc(sizeof(BookLine));

	*line = (BookLine) {.number = split->number,.weight = split->weight};
	book->loose = lappend(book->loose, line);
	MemoryContextSwitchTo(old);
}

/* How heavy those are that were just written down: from the rows that never change. `sorted`: they become lines, to be sorted. */
static void
write_weights(const Extension *extension, Book *book, int64 from, int64 to, bool sorted)
{
	Relation	rel = relation_open(extension->split, AccessShareLock);
	Relation	index = index_open(extension->split_pkey, AccessShareLock);
	Snapshot	latest = RegisterSnapshot(GetLatestSnapshot());
	SysScanDesc scan;
	HeapTuple	tuple;
	ScanKeyData keys[3];

	ScanKeyInit(&keys[0], ATT_SPLIT_PLAN_ID, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(book->plan_id));
	ScanKeyInit(&keys[1], ATT_SPLIT_NUMBER, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(from));
	ScanKeyInit(&keys[2], ATT_SPLIT_NUMBER, BTLessEqualStrategyNumber, F_INT8LE, Int64GetDatum(to));
	scan = systable_beginscan_ordered(rel, index, latest, 3, keys);
	while (HeapTupleIsValid(tuple = systable_getnext_ordered(scan, ForwardScanDirection)))
	{
		bool		isnull;
		int64		number = DatumGetInt64(heap_getattr(tuple, ATT_SPLIT_NUMBER, RelationGetDescr(rel), &isnull));
		BookSplit  *split = hash_search(book->splits, &number, HASH_FIND, NULL);

		CHECK_FOR_INTERRUPTS();
		if (split == NULL)
			continue;
		split->weight = Max(DatumGetInt64(heap_getattr(tuple, ATT_SPLIT_WEIGHT, RelationGetDescr(rel), &isnull)), 1);
		if (sorted)
			add_line(book, split);
		else
			add_loose(book, split);
	}
	systable_endscan_ordered(scan);
	UnregisterSnapshot(latest);
	index_close(index, AccessShareLock);
	relation_close(rel, NoLock);
}

/* The heaviest first; of equals the one that was published first. */
static int
compare_lines(const void *a, const void *b)
{
	const BookLine *left = a;
	const BookLine *right = b;

	if (left->weight != right->weight)
		return left->weight > right->weight ? -1 : 1;
	return left->number < right->number ? -1 : left->number > right->number ? 1 : 0;
}

static void
read_range(const Extension *extension, Book *book, int64 from, int64 to)
{
	if (to < from)
		return;
	split_visit(extension, book->plan_id, from, to, write_state, book);
	write_weights(extension, book, from, to, true);
	/* what was passed over is owned, gone or loose */
	memmove(book->lines, book->lines + book->first, (book->nlines - book->first) * sizeof(BookLine));
	book->nlines -= book->first;
	book->first = 0;
	qsort(book->lines, book->nlines, sizeof(BookLine), compare_lines);
	book->known_to = to;
}

/* A split can be claimed again that the book had crossed out. */
static void
write_again(const Extension *extension, Book *book, int64 number)
{
	bool		found;
	BookSplit  *split;

	if (number > book->known_to)
		return;					/* to be read with its range */
	split = hash_search(book->splits, &number, HASH_ENTER, &found);
	if (found)
		add_loose(book, split);
	else
		write_weights(extension, book, number, number, false);
}

/* Opens the book of a plan, or brings it up to date. */
static Book *
keep_book(const Extension *extension, PlanEntry *entry, int64 plan_id)
{
	bool		found;
	Book	   *book = hash_search(books, &plan_id, HASH_ENTER, &found);
	PlanNote   *notes = palloc(PLAN_NOTES * sizeof(PlanNote));
	int64		to;
	bool		lost;
	int			n;

	if (!found)
	{
		book->context = NULL;
		book->splits = NULL;
		book->notes_from = 0;
		book->drain_us = PG_INT64_MAX;
		book->balanced_us = 0;
		book->again_us = 0;
	}
	LWLockAcquire(&entry->lock, LW_EXCLUSIVE);
	lost = entry->notes_lost || book->splits == NULL;
	entry->notes_lost = false;
	to = entry->fresh_end;
	LWLockRelease(&entry->lock);
	n = plan_entry_read_notes(entry, &book->notes_from, notes);
	if (lost || n < 0)
	{
		HASHCTL		control = {.keysize = sizeof(int64),.entrysize = sizeof(BookSplit)};

		if (book->context != NULL)
			MemoryContextDelete(book->context);
		book->splits = NULL;
		book->context = AllocSetContextCreate(TopMemoryContext, "revenant plan book", ALLOCSET_DEFAULT_SIZES);
		control.hcxt = book->context;
		book->splits = hash_create("revenant splits", 1024, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
		book->capacity = 1024;
		book->lines = MemoryContextAlloc(book->context, book->capacity * sizeof(BookLine));
		book->nlines = book->first = 0;
		book->loose = NIL;
		read_range(extension, book, 1, to);
		book->known_to = to;
	}
	else
	{
		for (int i = 0; i < n; i++)
		{
			if (notes[i].member == NOTE_GONE)
				(void) hash_search(book->splits, &notes[i].number, HASH_REMOVE, NULL);
			else if (notes[i].member == NOTE_RUNNABLE)
				write_again(extension, book, notes[i].number);
		}
		read_range(extension, book, book->known_to + 1, to);
	}
	pfree(notes);
	return book;
}

/* ---------------------------------------------------------------- who is there, and owns what */

/* A member, as this look finds it */
typedef struct Seat
{
	int64		member;			/* hash key */
	int			index;			/* in the arrays below */
} Seat;

/* What a split of a member's is to balance.c, and to us */
typedef struct Owned
{
	int64		number;			/* hash key */
	ClaimEntry	claim;			/* a copy */
	int			seat;			/* its owner's; -1: that is over */
} Owned;

/* One assignment; all of it in the memory of its step */
typedef struct Assignment
{
	PlanEntry  *entry;
	Oid			instance;
	PlanUse    *use;
	Book	   *book;
	HTAB	   *seats;
	BalanceMember *members;
	MemberEntry *entries;		/* copies, in the same order */
	int			nmembers;
	int			capacity;		/* of the two arrays */
	HTAB	   *owned;			/* Owned */
	BalanceSplit *splits;
	int		   *targets;
	int			nsplits;
	HTAB	   *loose;			/* int64: those of the book that are listed as such */
	int			requests;
	bool		again;			/* something could not be done just now */
	int64		now_us;
	int64		plan_id;
	int			max_in_flight;
	int64		drain_deadline_us;
	int64		declined_us;	/* so long a split is not asked for again that its member would not hand over */
	uint64		wanted;
} Assignment;

static bool
take_seat(MemberEntry *member, void *arg)
{
	Assignment *work = arg;
	Seat	   *seat;

	if (member->state != MEMBER_LIVE || member->plan_id != work->plan_id || member->deadline_us <= work->now_us)
		return false;
	if (work->nmembers == work->capacity)
	{
		work->capacity *= 2;
		work->members = repalloc(work->members, work->capacity * sizeof(BalanceMember));
		work->entries = repalloc_huge(work->entries, work->capacity * sizeof(MemberEntry));
	}
	seat = hash_search(work->seats, &member->key.member, HASH_ENTER, NULL);
	seat->index = work->nmembers;
	work->members[work->nmembers].member = member->key.member;
	work->members[work->nmembers].capacity = member->capacity > 0 ? member->capacity : work->max_in_flight;
	work->entries[work->nmembers++] = *member;
	return false;
}

static bool
look_at_claim(ClaimEntry *claim, void *arg)
{
	Assignment *work = arg;
	Owned	   *owned;
	Seat	   *seat;

	if (claim->plan_id != work->plan_id || claim->state == CLAIM_DEAD)
		return false;
	owned = hash_search(work->owned, &claim->number, HASH_ENTER, NULL);
	owned->claim = *claim;
	seat = claim->member == 0 ? NULL : hash_search(work->seats, &claim->member, HASH_FIND, NULL);
	owned->seat = seat == NULL ? -1 : seat->index;
	return false;
}

static HTAB *
make_table(const char *name, Size entry_size)
{
	HASHCTL		control = {.keysize = sizeof(int64),.entrysize = entry_size,.hcxt = CurrentMemoryContext};

	return hash_create(name, 256, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* Whether its member is to be left alone with a split. */
static bool
stays(const Assignment *work, const ClaimEntry *claim)
{
	return claim->state != CLAIM_LIVE ||
		(claim->declined_us != 0 && work->now_us - claim->declined_us < work->declined_us);
}

/* How many splits all members together may own. */
static int64
room_of(const Assignment *work)
{
	int64		room = 0;

	for (int i = 0; i < work->nmembers; i++)
		room += work->members[i].capacity;
	return room;
}

static void
list_split(Assignment *work, int64 number, int64 weight, int owner, bool stays)
{
	work->splits[work->nsplits].number = number;
	work->splits[work->nsplits].weight = Max(weight, 1);
	work->splits[work->nsplits].owner = owner;
	work->splits[work->nsplits++].stays = stays;
}

/* Whether a line is of a split that nobody owns; `over`: it is not in the book any more. */
static bool
is_nobodys(const Assignment *work, const BookLine *line, bool *over)
{
	*over = hash_search(work->book->splits, &line->number, HASH_FIND, NULL) == NULL;
	return !*over && hash_search(work->owned, &line->number, HASH_FIND, NULL) == NULL;
}

/* Those that came back and are nobody's; what is owned by now, or is over, is loose no more. */
static void
list_loose(Assignment *work)
{
	HTAB	   *listed = make_table("revenant loose", sizeof(int64));
	ListCell   *cell;

	foreach(cell, work->book->loose)
	{
		BookLine   *line = lfirst(cell);
		bool		over;
		bool		twice = true;

		if (is_nobodys(work, line, &over))
			(void) hash_search(listed, &line->number, HASH_ENTER, &twice);
		if (!twice)
			list_split(work, line->number, line->weight, -1, false);
		else
		{
			pfree(line);
			work->book->loose = foreach_delete_current(work->book->loose, cell);
		}
	}
	work->loose = listed;
}

/*
 * As many of the heaviest that are nobody's as could be placed at all: what is lighter than these
 * makes no difference. Lines that are passed over for good are left behind.
 */
static void
list_heaviest(Assignment *work, int64 wanted)
{
	Book	   *book = work->book;
	int			at = book->first;
	int			kept = 0;
	int64		listed = 0;

	for (; at < book->nlines && listed < wanted; at++)
	{
		BookLine   *line = &book->lines[at];
		bool		over;
		bool		nobodys = is_nobodys(work, line, &over);

		if (nobodys && hash_search(work->loose, &line->number, HASH_FIND, NULL) == NULL)
		{
			list_split(work, line->number, line->weight, -1, false);
			listed++;
		}
		/* what is owned comes back as a loose one */
		else if (!nobodys)
			line->number = 0;
	}
	/* those that are still to be looked at move together, at the end of what was walked over */
	for (int i = at - 1; i >= book->first; i--)
	{
		if (book->lines[i].number != 0)
			book->lines[at - ++kept] = book->lines[i];
	}
	book->first = at - kept;
}

/* What balance.c is to look at: what members own, and the heaviest of what nobody does. */
static void
list_splits(Assignment *work)
{
	HASH_SEQ_STATUS all;
	Owned	   *owned;
	int64		wanted = Min(room_of(work), (int64) hash_get_num_entries(work->book->splits));
	Size		room = (Size) wanted + hash_get_num_entries(work->owned) + list_length(work->book->loose) + 1;

	work->splits = palloc_extended(room * sizeof(BalanceSplit), MCXT_ALLOC_HUGE);
	work->targets = palloc_extended(room * sizeof(int), MCXT_ALLOC_HUGE);
	hash_seq_init(&all, work->owned);
	while ((owned = hash_seq_search(&all)) != NULL)
	{
		/* not a puller's, nor of a member whose time is over */
		if (owned->seat >= 0)
			list_split(work, owned->number, owned->claim.weight, owned->claim.drain == DRAIN_REQUESTED ? -1 : owned->seat,
					   stays(work, &owned->claim));
	}
	list_loose(work);
	list_heaviest(work, wanted);
}

/* Whether a split was asked for, and is to go to another one than whom it was asked from. */
static Owned *
leaves_home(const Assignment *work, int i)
{
	Owned	   *owned = hash_search(work->owned, &work->splits[i].number, HASH_FIND, NULL);

	return owned != NULL && owned->claim.drain == DRAIN_REQUESTED && work->targets[i] >= 0 && work->targets[i] != owned->seat ?
		owned : NULL;
}

/* Places for splits of one weight with one member */
typedef struct Seating
{
	struct
	{
		int64		weight;
		int64		seat;
	}			key;
	int			newest;			/* the index of a split that was placed there from elsewhere; -1: none */
} Seating;

/*
 * What was asked for is nobody's to balance.c, so it may go to anybody. Of two that are as heavy as each other
 * the one stays where it is that would otherwise make room for the other one there.
 */
static void
bring_home(Assignment *work)
{
	HASHCTL		control = {.keysize = sizeof(((Seating *) NULL)->key),.entrysize = sizeof(Seating),.hcxt = CurrentMemoryContext};
	HTAB	   *seatings = hash_create("revenant seatings", 256, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	int		   *older = palloc_extended(Max(work->nsplits, 1) * sizeof(int), MCXT_ALLOC_HUGE);
	Seating		wanted = {0};
	bool		found;

	for (int i = 0; i < work->nsplits; i++)
	{
		const Owned *owned;
		Seating    *seating;

		if (work->splits[i].owner != -1 || work->targets[i] < 0)
			continue;
		owned = hash_search(work->owned, &work->splits[i].number, HASH_FIND, NULL);
		if (owned != NULL && owned->seat == work->targets[i])
			continue;			/* it is at home there itself */
		wanted.key.weight = work->splits[i].weight;
		wanted.key.seat = work->targets[i];
		seating = hash_search(seatings, &wanted.key, HASH_ENTER, &found);
		older[i] = found ? seating->newest : -1;
		seating->newest = i;
	}
	for (int i = 0; i < work->nsplits; i++)
	{
		Owned	   *owned = work->splits[i].owner == -1 ? leaves_home(work, i) : NULL;
		Seating    *seating;
		int			other;

		if (owned == NULL)
			continue;
		wanted.key.weight = work->splits[i].weight;
		wanted.key.seat = owned->seat;
		seating = hash_search(seatings, &wanted.key, HASH_FIND, NULL);
		other = seating == NULL ? -1 : seating->newest;
		/* one that has moved on meanwhile is in another list now, too */
		while (other >= 0 && work->targets[other] != owned->seat)
			other = older[other];
		if (other < 0)
			continue;
		seating->newest = older[other];
		work->targets[other] = work->targets[i];
		work->targets[i] = owned->seat;
	}
	hash_destroy(seatings);
	pfree(older);
}

/* ---------------------------------------------------------------- acting on it */

static int
compare_numbers(const void *a, const void *b)
{
	int64		left = *(const int64 *) a;
	int64		right = *(const int64 *) b;

	return left < right ? -1 : left > right ? 1 : 0;
}

/* Offers each member what it is to own and nobody does. */
static void
offer(Assignment *work)
{
	int64	  **offers = palloc0(work->nmembers * sizeof(int64 *));
	int		   *counts = palloc0(work->nmembers * sizeof(int));
	int		   *filled = palloc0(work->nmembers * sizeof(int));

	for (int i = 0; i < work->nsplits; i++)
	{
		if (work->targets[i] >= 0 && hash_search(work->owned, &work->splits[i].number, HASH_FIND, NULL) == NULL)
			counts[work->targets[i]]++;
	}
	for (int i = 0; i < work->nmembers; i++)
		offers[i] = palloc(Max(counts[i], 1) * sizeof(int64));
	for (int i = 0; i < work->nsplits; i++)
	{
		int			target = work->targets[i];

		if (target >= 0 && hash_search(work->owned, &work->splits[i].number, HASH_FIND, NULL) == NULL)
			offers[target][filled[target]++] = work->splits[i].number;
	}
	for (int i = 0; i < work->nmembers; i++)
	{
		MemberEntry *member;

		if (counts[i] == 0 && work->entries[i].offers_count == 0)
			continue;
		qsort(offers[i], counts[i], sizeof(int64), compare_numbers);
		member = member_find(work->instance, work->members[i].member);
		if (member == NULL)
			continue;
		if (member->state == MEMBER_LIVE && !member_set_offers(member, offers[i], counts[i]))
			work->again = true;
		member_release(member);
	}
}

/* The right to tell a member something; it is told at the commit. NULL: not just now. */
static PlanOp *
tell(Assignment *work, int64 member, const ClaimEntry *claim, NewsKind kind, ClaimEnd how)
{
	PlanOp	   *op;

	if (work->requests >= REQUESTS_AT_ONCE || !member_begin_news(work->instance, member, work->requests + 1))
	{
		work->again = true;
		return NULL;
	}
	work->requests++;
	if (!plan_op_exists(PLAN_OP_BUSY, NULL, member))
		plan_op_add(PLAN_OP_BUSY, work->use)->member = member;
	op = plan_op_add(PLAN_OP_NEWS, work->use);
	op->member = member;
	op->news = (MemberNews) {
		.seq = fence_next_token("revenant.poll_plan()"),.number = claim->number,.epoch = claim->key.epoch,.kind = kind,.how = how
	};
	return op;
}

/* A request begins, or is cancelled: from the commit on. */
static void
set_drain(Assignment *work, const ClaimEntry *owned, DrainState drain)
{
	PlanOp	   *op = tell(work, owned->member, owned, drain == DRAIN_REQUESTED ? NEWS_REVOKE : NEWS_REVOKE_CANCELLED, END_NONE);
	ClaimEntry *claim;

	if (op == NULL)
		return;
	claim = claim_find(work->instance, owned->key.epoch);
	op->undone = claim == NULL || claim->state != CLAIM_LIVE;	/* it is ended just now */
	if (claim != NULL)
		claim_release(claim);
	op->epoch = owned->key.epoch;
	op->counted = drain == DRAIN_REQUESTED ? PLAN_REVOCATIONS_REQUESTED : PLAN_REVOCATIONS_CANCELLED;
}

/* A request was not answered in time: the split is taken back, which uses up no attempt. */
static void
take_back(Assignment *work, SplitTables *tables, const ClaimEntry *owned, ClaimEnd how)
{
	LOCKTAG		tag = claim_lock_tag(owned->key.epoch);
	PlanOp	   *told;
	PlanOp	   *op;
	bool		begun;

	if (LockAcquire(&tag, ExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
	{
		work->again = true;		/* fenced: its transaction ends some time */
		return;
	}
	/* under the lock: who fences it has it, or will see the mark */
	told = tell(work, owned->member, owned, NEWS_LOST, how);
	begun = told != NULL && claim_begin_end(work->use, owned->key.epoch);
	LockRelease(&tag, ExclusiveLock, false);
	if (!begun)
	{
		if (told != NULL)
			told->undone = true;
		return;
	}
	op = plan_op_end(work->use, owned->key.epoch, owned->number, owned->member, owned->weight, how, SPLIT_RUNNABLE);
	op->counted = how == END_REVOKED ? PLAN_REVOCATIONS_FORCED : PLAN_COUNTERS;
	if (how == END_REVOKED)
		op->drained_us = work->now_us - owned->drain_since_us;
	if (split_try_end_claim(work->use, tables, op, NULL))
		return;
	/* it is heard of */
	told->undone = true;
	work->again = true;
}

/* Whether the member knows that it is to keep a split after all. */
static bool
member_knows(const Assignment *work, const Owned *owned)
{
	return work->entries[owned->seat].seen >= owned->claim.drain_seq;
}

static void
settle_drain(Assignment *work, int64 epoch)
{
	ClaimEntry *claim = claim_find(work->instance, epoch);

	if (claim == NULL)
		return;
	if (claim->drain == DRAIN_CANCELLED)
		claim->drain = DRAIN_NONE;
	claim_release(claim);
}

/* Requests that are made, cancelled, or over. */
static void
drain(Assignment *work, SplitTables *tables)
{
	work->book->drain_us = PG_INT64_MAX;
	for (int i = 0; i < work->nsplits; i++)
	{
		Owned	   *owned = hash_search(work->owned, &work->splits[i].number, HASH_FIND, NULL);
		int64		over_us;

		if (owned == NULL || owned->claim.state != CLAIM_LIVE)
			continue;
		over_us = owned->claim.drain_since_us + work->drain_deadline_us;
		switch (owned->claim.drain)
		{
			case DRAIN_NONE:
				if (work->targets[i] == owned->seat)
					continue;
				set_drain(work, &owned->claim, DRAIN_REQUESTED);
				over_us = work->now_us + work->drain_deadline_us;
				break;
			case DRAIN_REQUESTED:
				if (work->now_us >= over_us)
				{
					take_back(work, tables, &owned->claim, END_REVOKED);
					continue;
				}
				if (work->targets[i] == owned->seat)
				{
					set_drain(work, &owned->claim, DRAIN_CANCELLED);
					over_us = work->now_us + work->drain_deadline_us;
				}
				break;
			case DRAIN_CANCELLED:
				if (member_knows(work, owned))
				{
					settle_drain(work, owned->claim.key.epoch);
					continue;
				}
				if (work->now_us >= over_us)
				{
					take_back(work, tables, &owned->claim, END_STARVED);
					continue;
				}
				break;
		}
		work->book->drain_us = Min(work->book->drain_us, over_us);
	}
}

/* ---------------------------------------------------------------- one look */

/* One assignment of a plan, in a transaction of its own. */
static void
assign(void *arg)
{
	Assignment *work = arg;
	Extension	oids = *extension_get();
	SplitTables tables;
	int64		began_us = clock_now_us();
	bool		may_move;

	if (!split_try_open(&tables, &oids, work->plan_id, RowExclusiveLock))
	{
		work->again = true;
		return;
	}
	DEBUG_POINT("plan-before-assignment");
	work->use = plan_use_entry(work->entry, work->instance);
	work->now_us = began_us;
	work->capacity = 16;
	work->members = palloc(work->capacity * sizeof(BalanceMember));
	work->entries = palloc(work->capacity * sizeof(MemberEntry));
	work->seats = make_table("revenant seats", sizeof(Seat));
	work->owned = make_table("revenant owned", sizeof(Owned));
	member_visit(work->instance, take_seat, work);
	work->book = keep_book(&oids, work->entry, work->plan_id);
	/* after the book: what is claimed since is not nobody's */
	claim_visit(work->instance, look_at_claim, work);
	list_splits(work);
	LWLockAcquire(&work->entry->lock, LW_SHARED);
	may_move = work->now_us >= work->entry->balanced_from_us;
	LWLockRelease(&work->entry->lock);
	(void) balance_assign(work->members, work->nmembers, work->splits, work->nsplits, may_move, -1, work->targets);
	bring_home(work);
	offer(work);
	plan_entry_reserve(work->entry, REQUESTS_AT_ONCE);
	drain(work, &tables);
	split_close(&tables);
	plan_count(work->entry, PLAN_ASSIGNMENTS, 1);
	plan_count(work->entry, PLAN_ASSIGN_US, clock_now_us() - began_us);
}

/* Forgets the books of plans that are not there any more. Now and then. */
void
plan_assign_prune(bool (*is_there) (int64 plan_id, void *arg), void *arg)
{
	HASH_SEQ_STATUS all;
	Book	   *book;

	hash_seq_init(&all, books);
	while ((book = hash_seq_search(&all)) != NULL)
	{
		if (!is_there(book->plan_id, arg))
			close_book(book->plan_id);
	}
}

/* Whether the plan has an assignment to make now; when else, the tick is told. */
static bool
is_due(Assignment *work)
{
	PlanEntry  *entry = work->entry;
	Book	   *book;
	int64		now_us = clock_now_us();
	int64		balanced_from_us;
	bool		due;

	LWLockAcquire(&entry->lock, LW_SHARED);
	work->plan_id = entry->plan_id;
	work->max_in_flight = entry->max_in_flight;
	work->drain_deadline_us = entry->drain_deadline_us;
	work->declined_us = Max(entry->rebalance_delay_us, DECLINED_MIN_US);
	work->wanted = entry->assign_wanted;
	balanced_from_us = entry->balanced_from_us;
	due = entry->members > 0 && entry->loaded && entry->native && entry->creator_pid == 0 && entry->assigned != entry->assign_wanted;
	if (entry->members == 0 || !entry->loaded)
	{
		LWLockRelease(&entry->lock);
		close_book(work->plan_id);
		return false;
	}
	LWLockRelease(&entry->lock);
	book = hash_search(books, &work->plan_id, HASH_FIND, NULL);
	if (book != NULL && (book->drain_us <= now_us || (book->again_us > 0 && now_us - book->balanced_us >= book->again_us)))
		due = true;
	else if (book != NULL)
		tick_at_most(Min(book->drain_us - now_us, book->again_us > 0 ? book->balanced_us + book->again_us - now_us : PG_INT64_MAX));
	/* what must not be moved now may be later */
	if (balanced_from_us > now_us)
		tick_at_most(balanced_from_us - now_us);
	else if (book != NULL && book->balanced_us < balanced_from_us)
		due = true;
	return due;
}

/* Works out who gets what, if that may be another by now. In a supervisor's tick. */
void
plan_assign_look(PlanEntry *entry, Oid instance)
{
	Assignment	work = {.entry = entry,.instance = instance};
	Book	   *book;
	bool		done;

	if (!is_due(&work))
		return;
	done = tick_step("assign the splits of a plan", assign, &work);
	book = hash_search(books, &work.plan_id, HASH_FIND, NULL);
	if (book != NULL)
	{
		book->again_us = done && !work.again ? 0 : Min(Max(book->again_us * 2, AGAIN_US), AGAIN_MAX_US);
		book->balanced_us = work.now_us;
	}
	LWLockAcquire(&entry->lock, LW_EXCLUSIVE);
	entry->assigned = Max(entry->assigned, work.wanted);
	entry->notes_lost = entry->notes_lost || !done;
	LWLockRelease(&entry->lock);
	if (book != NULL && book->again_us > 0)
		tick_at_most(book->again_us);
	else if (!done)
		tick_at_most(AGAIN_MAX_US);
	ConditionVariableBroadcast(&entry->assignment);
	if (book != NULL && book->drain_us != PG_INT64_MAX)
		tick_at_most(Max(book->drain_us - clock_now_us(), 0));
}
