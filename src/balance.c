/*-------------------------------------------------------------------------
 *
 * balance.c
 *	  Who works on which split. Arithmetic only: one pure function.
 *
 * Three steps. What is owned stays, as far as its owner has capacity. What is
 * not goes, the heaviest first, to whoever has least to do and has room: list
 * scheduling by longest processing time (Graham, Bounds on Multiprocessing
 * Timing Anomalies, 1969). Then, if that is wanted, single splits move while it
 * strictly helps: from > to + weight.
 *
 * NOTES
 *	  Everything is sorted first, and decided by place in that order: the order
 *	  of the input cannot matter.
 *
 *	  Moves have two parts. The first one is to need few of them: from the
 *	  most loaded to the least loaded, what comes closest to half of the
 *	  difference. What nobody has begun to work on, because this assignment
 *	  placed it, costs nothing and comes before what is owned. Each split moves
 *	  once at most. The second one is to be done for sure: one pass, the
 *	  heaviest first, each to the least loaded if that helps. A split that was
 *	  passed stays content: the least load of those with room never falls, and
 *	  what arrives later is no heavier and arrives where the load was least
 *	  (Even-Dar, Kesselman and Mansour, Convergence Time to Nash Equilibria, 2003).
 *	  So no split moves more than twice, and the end is a local optimum.
 *
 *	  Capacity left over and splits left out never go together: a move leaves
 *	  the sum of the room as it was.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "balance.h"

#define NOBODY (-1)
#define NOTHING (-1)

typedef struct Member
{
	int64		token;
	int64		load;
	int			count;
	int			capacity;
	int			index;			/* the caller's */
} Member;

typedef struct Split
{
	int64		weight;
	int64		number;
	int			index;			/* the caller's */
	int			owner;			/* who keeps it if nothing moves: NOBODY when it was given up, too */
	int			target;
	bool		stays;
} Split;

/* Some of the members, the least or the most loaded first. */
typedef struct Heap
{
	bool		most_loaded;
	int			size;
	int		   *member;			/* the first one is [0] */
	int		   *place;			/* of each member, or -1 */
} Heap;

typedef struct Fleet
{
	int			nmembers;
	int			nsplits;
	Member	   *members;		/* by token */
	Split	   *splits;			/* the heaviest first, then by number */
	Heap		room;			/* those with free capacity, the least loaded first */
	Heap		givers;			/* those that may have something to give, the most loaded first */
	int			moves;			/* owned splits that are not with their owner */
	int			max_moves;
} Fleet;

/*
 * What has not moved yet, by group: two for each member, what it was given and
 * what it owns. Splits are only taken out, so the next one that is left is found
 * by links that are shortened as they are followed.
 */
typedef struct Pool
{
	int		   *start;			/* of each group, and the end of the last one */
	int		   *split;			/* the heaviest of a group first */
	int		   *later;			/* from p to the first one left that is not before p */
	int		   *earlier;		/* from p to 1 + the last one left that is before p */
} Pool;

#define GIVEN(member) (2 * (member))
#define OWNED(member) (2 * (member) + 1)

static int
compare_members(const void *a, const void *b)
{
	const Member *left = a;
	const Member *right = b;

	if (left->token != right->token)
		return left->token < right->token ? -1 : 1;
	return left->index < right->index ? -1 : 1;
}

static int
compare_splits(const void *a, const void *b)
{
	const Split *left = a;
	const Split *right = b;

	if (left->weight != right->weight)
		return left->weight > right->weight ? -1 : 1;
	if (left->number != right->number)
		return left->number < right->number ? -1 : 1;
	return left->index < right->index ? -1 : 1;
}

/* ---------------------------------------------------------------- heaps of members */

static void
heap_make(Heap *heap, int nmembers, bool most_loaded)
{
	heap->most_loaded = most_loaded;
	heap->size = 0;
	heap->member = palloc(nmembers * sizeof(int));
	heap->place = palloc(nmembers * sizeof(int));
	for (int i = 0; i < nmembers; i++)
		heap->place[i] = -1;
}

/* A total order: no two members are equal in it. */
static bool
heap_before(const Heap *heap, const Member *members, int a, int b)
{
	if (members[a].load != members[b].load)
		return (members[a].load > members[b].load) == heap->most_loaded;
	if (members[a].count != members[b].count)
		return (members[a].count > members[b].count) == heap->most_loaded;
	return a < b;
}

static void
heap_set(Heap *heap, int place, int member)
{
	heap->member[place] = member;
	heap->place[member] = place;
}

/* Puts a member where it belongs, given that a place is free and all others are right. */
static void
heap_settle(Heap *heap, const Member *members, int place, int member)
{
	while (place > 0 && heap_before(heap, members, member, heap->member[(place - 1) / 2]))
	{
		heap_set(heap, place, heap->member[(place - 1) / 2]);
		place = (place - 1) / 2;
	}
	for (;;)
	{
		int			child = 2 * place + 1;

		if (child + 1 < heap->size && heap_before(heap, members, heap->member[child + 1], heap->member[child]))
			child++;
		if (child >= heap->size || !heap_before(heap, members, heap->member[child], member))
			break;
		heap_set(heap, place, heap->member[child]);
		place = child;
	}
	heap_set(heap, place, member);
}

/* After a member's load changed: it is in the heap if it belongs there, and in its place. */
static void
heap_update(Heap *heap, const Member *members, int member, bool belongs)
{
	int			place = heap->place[member];

	if (belongs)
		heap_settle(heap, members, place < 0 ? heap->size++ : place, member);
	else if (place >= 0)
	{
		int			last = heap->member[--heap->size];

		heap->place[member] = -1;
		if (last != member)
			heap_settle(heap, members, place, last);
	}
}

static void
heap_free(Heap *heap)
{
	pfree(heap->member);
	pfree(heap->place);
}

/* ---------------------------------------------------------------- the fleet */

/* The input in the one order in which everything is decided. Nothing has a target yet. */
static void
fleet_make(Fleet *fleet, const BalanceMember *members, int nmembers, const BalanceSplit *splits, int nsplits, int max_moves)
{
	int		   *rank = palloc(nmembers * sizeof(int));

	fleet->nmembers = nmembers;
	fleet->nsplits = nsplits;
	fleet->moves = 0;
	fleet->max_moves = max_moves;
	fleet->members = palloc(nmembers * sizeof(Member));
	fleet->splits = palloc(nsplits * sizeof(Split));
	heap_make(&fleet->room, nmembers, false);
	heap_make(&fleet->givers, nmembers, true);

	for (int i = 0; i < nmembers; i++)
		fleet->members[i] = (Member) {.token = members[i].member, .capacity = members[i].capacity, .index = i};
	qsort(fleet->members, nmembers, sizeof(Member), compare_members);
	for (int i = 0; i < nmembers; i++)
	{
		rank[fleet->members[i].index] = i;
		heap_update(&fleet->room, fleet->members, i, fleet->members[i].capacity > 0);
	}

	for (int i = 0; i < nsplits; i++)
	{
		Assert(splits[i].owner < nmembers);
		fleet->splits[i] = (Split) {
			.weight = Min(Max(splits[i].weight, 1), BALANCE_WEIGHT_MAX(nsplits)),
			.number = splits[i].number,
			.index = i,
			.owner = splits[i].owner < 0 ? NOBODY : rank[splits[i].owner],
			.target = NOBODY,
			.stays = splits[i].stays,
		};
	}
	qsort(fleet->splits, nsplits, sizeof(Split), compare_splits);
	pfree(rank);
}

static void
fleet_free(Fleet *fleet)
{
	heap_free(&fleet->room);
	heap_free(&fleet->givers);
	pfree(fleet->members);
	pfree(fleet->splits);
}

/* Loads, counts and the heap of those with room always agree with the targets. */
static void
put(Fleet *fleet, Split *split, int to)
{
	Member	   *member;

	if (split->target != NOBODY)
	{
		member = &fleet->members[split->target];
		member->load -= split->weight;
		member->count--;
		heap_update(&fleet->room, fleet->members, split->target, member->count < member->capacity);
	}
	member = &fleet->members[to];
	member->load += split->weight;
	member->count++;
	heap_update(&fleet->room, fleet->members, to, member->count < member->capacity);
	split->target = to;
}

/* A split changes hands for the sake of balance; one that its owner gets back has not moved after all. */
static void
move(Fleet *fleet, Split *split, int to)
{
	if (split->owner != NOBODY)
		fleet->moves += (split->target == split->owner) - (to == split->owner);
	put(fleet, split, to);
}

static bool
may_move_more(const Fleet *fleet)
{
	return fleet->max_moves < 0 || fleet->moves < fleet->max_moves;
}

/* ---------------------------------------------------------------- three steps */

/* What stays does so whatever the capacity; of the rest each owner keeps the heaviest, and gives up what is too much. */
static void
keep_owned(Fleet *fleet)
{
	for (int i = 0; i < fleet->nsplits; i++)
	{
		Split	   *split = &fleet->splits[i];

		if (split->owner != NOBODY && split->stays)
			put(fleet, split, split->owner);
	}
	for (int i = 0; i < fleet->nsplits; i++)
	{
		Split	   *split = &fleet->splits[i];

		if (split->owner == NOBODY || split->stays)
			continue;
		if (fleet->members[split->owner].count < fleet->members[split->owner].capacity)
			put(fleet, split, split->owner);
		else
			split->owner = NOBODY;
	}
}

/* The heaviest to the least loaded, until nothing is left or nobody has room. */
static void
place_unowned(Fleet *fleet)
{
	for (int i = 0; i < fleet->nsplits && fleet->room.size > 0; i++)
	{
		if (fleet->splits[i].target == NOBODY)
			put(fleet, &fleet->splits[i], fleet->room.member[0]);
	}
}

/* Where to look for a split: one that stays for its owner, or was left out, is nowhere. */
static int
group_of(const Split *split)
{
	if (split->target == NOBODY || (split->stays && split->owner != NOBODY))
		return NOTHING;
	return split->owner == NOBODY ? GIVEN(split->target) : OWNED(split->target);
}

static void
pool_make(Pool *pool, const Fleet *fleet)
{
	int			ngroups = 2 * fleet->nmembers;
	int			size = 0;
	int		   *end = palloc0((ngroups + 1) * sizeof(int));

	pool->start = palloc((ngroups + 1) * sizeof(int));
	pool->split = palloc(fleet->nsplits * sizeof(int));
	pool->later = palloc((fleet->nsplits + 1) * sizeof(int));
	pool->earlier = palloc((fleet->nsplits + 1) * sizeof(int));

	for (int i = 0; i < fleet->nsplits; i++)
	{
		int			group = group_of(&fleet->splits[i]);

		if (group != NOTHING)
			end[group]++;
	}
	for (int group = 0; group <= ngroups; group++)
	{
		pool->start[group] = size;
		size += end[group];
		end[group] = pool->start[group];
	}
	for (int i = 0; i < fleet->nsplits; i++)
	{
		int			group = group_of(&fleet->splits[i]);

		if (group != NOTHING)
			pool->split[end[group]++] = i;
	}
	for (int p = 0; p <= fleet->nsplits; p++)
		pool->later[p] = pool->earlier[p] = p;
	pfree(end);
}

static void
pool_free(Pool *pool)
{
	pfree(pool->start);
	pfree(pool->split);
	pfree(pool->later);
	pfree(pool->earlier);
}

static int
follow(int *links, int p)
{
	while (links[p] != p)
	{
		links[p] = links[links[p]];
		p = links[p];
	}
	return p;
}

/* Of a group, the place of what comes closest to half of a difference and is less than the whole, or NOTHING. */
static int
pool_closest(const Pool *pool, const Split *splits, int group, int64 difference)
{
	int			low = pool->start[group];
	int			high = pool->start[group + 1];
	int			lighter;
	int			heavier;
	int64		lighter_weight;
	int64		heavier_weight;

	while (low < high)
	{
		int			middle = low + (high - low) / 2;
		int64		weight = splits[pool->split[middle]].weight;

		if (weight <= difference - weight)
			high = middle;
		else
			low = middle + 1;
	}
	lighter = follow(pool->later, low);
	if (lighter >= pool->start[group + 1])
		lighter = NOTHING;
	heavier = follow(pool->earlier, low) - 1;
	if (heavier < pool->start[group] || splits[pool->split[heavier]].weight >= difference)
		return lighter;
	if (lighter == NOTHING)
		return heavier;

	lighter_weight = splits[pool->split[lighter]].weight;
	heavier_weight = splits[pool->split[heavier]].weight;
	return lighter_weight >= difference - heavier_weight ? lighter : heavier;
}

/* Takes what helps most out of a member's groups, free of charge if possible. NULL: nothing helps. */
static Split *
pool_take(Pool *pool, const Fleet *fleet, int from, int64 difference)
{
	int			p = pool_closest(pool, fleet->splits, GIVEN(from), difference);

	if (p == NOTHING && may_move_more(fleet))
		p = pool_closest(pool, fleet->splits, OWNED(from), difference);
	if (p == NOTHING)
		return NULL;
	pool->later[p] = p + 1;
	pool->earlier[p + 1] = p;
	return &fleet->splits[pool->split[p]];
}

/*
 * Few moves that help much. Who has nothing to give is not asked again before
 * it got something: the least load of those with room does not fall.
 */
static void
move_best(Fleet *fleet)
{
	Heap	   *givers = &fleet->givers;
	Pool		pool;

	pool_make(&pool, fleet);
	for (int i = 0; i < fleet->nmembers; i++)
		heap_update(givers, fleet->members, i, true);
	while (givers->size > 0 && fleet->room.size > 0)
	{
		int			from = givers->member[0];
		int			to = fleet->room.member[0];
		Split	   *split = pool_take(&pool, fleet, from, fleet->members[from].load - fleet->members[to].load);

		if (split == NULL)
		{
			heap_update(givers, fleet->members, from, false);
			continue;
		}
		move(fleet, split, to);
		heap_update(givers, fleet->members, from, true);
		heap_update(givers, fleet->members, to, true);
	}
	pool_free(&pool);
}

/* Whatever still helps, the heaviest first. Afterwards nothing does, but for moves of owned splits beyond the limit. */
static void
move_rest(Fleet *fleet)
{
	for (int i = 0; i < fleet->nsplits && fleet->room.size > 0; i++)
	{
		Split	   *split = &fleet->splits[i];
		int			to = fleet->room.member[0];

		if (group_of(split) == NOTHING || fleet->members[split->target].load - fleet->members[to].load <= split->weight)
			continue;
		if (split->target != split->owner || may_move_more(fleet))
			move(fleet, split, to);
	}
}

/*
 * Fills targets[i] with the index of the member that is to work on splits[i],
 * or -1: there is no room. With may_move, owned splits may change hands for the
 * sake of balance, at most max_moves of them (less than 0: any number). Returns
 * how many do; what an owner gives up for want of capacity does not count.
 * Takes n log n; raises nothing but out of memory.
 */
int
balance_assign(const BalanceMember *members, int nmembers, const BalanceSplit *splits, int nsplits,
			   bool may_move, int max_moves, int *targets)
{
	Fleet		fleet;

	fleet_make(&fleet, members, nmembers, splits, nsplits, max_moves);
	keep_owned(&fleet);
	place_unowned(&fleet);
	if (may_move)
	{
		move_best(&fleet);
		move_rest(&fleet);
	}
	for (int i = 0; i < nsplits; i++)
	{
		int			target = fleet.splits[i].target;

		targets[fleet.splits[i].index] = target == NOBODY ? -1 : fleet.members[target].index;
	}
	fleet_free(&fleet);
	return fleet.moves;
}
