/*
 * balance.c
 *	  No fleet is balanced in a way that somebody would have to explain.
 *
 * link: src/balance.c
 *
 * Thousands of random fleets, and one check for each thing that must not happen.
 * A check looks at results only, so it can be asked about any implementation:
 * about src/balance.c, and about the plain one below, in which each rule of
 * the design is a switch. With one of them off, the check that stands beside it must
 * find a fleet that goes wrong: a test that cannot fail says nothing. Without
 * moves there is one right result, and the two must agree about it.
 */
#include "balance.h"

#include <stdlib.h>
#include <time.h>

#include "tap.h"

#define FLEETS 4000
#define MEMBERS_MAX 12
#define SPLITS_MAX 60
#define STEPS_MAX (3 * SPLITS_MAX + 1)	/* odd, so that an endless exchange is seen */

typedef int (*Assign) (const BalanceMember *members, int nmembers, const BalanceSplit *splits, int nsplits,
					   bool may_move, int max_moves, int *targets);

/* A question and, after ask(), its answer. */
typedef struct Fleet
{
	int			nmembers;
	int			nsplits;
	BalanceMember *members;
	BalanceSplit *splits;
	bool		may_move;
	int			max_moves;
	int		   *targets;
	int			moves;
	int		   *kept;			/* what the plain one says: who keeps what */
	int		   *placed;			/* and where the rest goes, if nothing moves */
} Fleet;

typedef struct Rules
{
	bool		sticky;			/* what is owned stays */
	bool		stays;			/* what stays does, over capacity and whatever the balance */
	bool		capacity;		/* nobody gets more */
	bool		heaviest_kept;	/* too much is owned: the lightest are given up */
	bool		nobody_is_none; /* left out is -1 */
	bool		all_placed;		/* until nothing is left */
	bool		heaviest_first; /* into the fleet */
	bool		least_loaded;	/* is who gets it */
	bool		by_number;		/* among equals, not by place in the input */
	bool		by_token;
	bool		helps;			/* only a move that makes the pair more even */
	bool		strictly;		/* and not one that only exchanges their loads */
	bool		to_the_end;		/* until none helps */
	bool		most_loaded;	/* is who gives */
	bool		counted;		/* what changed hands */
	bool		limited;		/* to as many as are allowed */
	bool		some;			/* but those are made */
} Rules;

static const Rules all_rules = {
	true, true, true, true, true, true, true, true, true, true, true, true, true, true, true, true, true
};
static Rules rules;				/* of model_assign() */

static uint64 random_state;

/* xorshift64*; always the same numbers, so that a failure comes again. */
static uint64
random_bits(void)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return random_state * UINT64CONST(2685821657736338717);
}

/* From 0 to n - 1. */
static int64
below(int64 n)
{
	return (int64) ((random_bits() >> 1) % (uint64) n);
}

static bool
chance(int percent)
{
	return below(100) < percent;
}

/* ---------------------------------------------------------------- fleets */

static Fleet *
fleet_new(int nmembers, int nsplits)
{
	Fleet	   *fleet = palloc0(sizeof(Fleet));

	fleet->nmembers = nmembers;
	fleet->nsplits = nsplits;
	fleet->members = palloc0(nmembers * sizeof(BalanceMember));
	fleet->splits = palloc0(nsplits * sizeof(BalanceSplit));
	fleet->targets = palloc0(nsplits * sizeof(int));
	fleet->kept = palloc0(nsplits * sizeof(int));
	fleet->placed = palloc0(nsplits * sizeof(int));
	fleet->max_moves = -1;
	for (int i = 0; i < nmembers; i++)
		fleet->members[i] = (BalanceMember) {.member = 1000 + i, .capacity = PG_INT32_MAX};
	for (int i = 0; i < nsplits; i++)
		fleet->splits[i] = (BalanceSplit) {.number = 1 + i, .weight = 1, .owner = -1};
	return fleet;
}

static Fleet *
fleet_copy(const Fleet *fleet)
{
	Fleet	   *copy = fleet_new(fleet->nmembers, fleet->nsplits);

	memcpy(copy->members, fleet->members, fleet->nmembers * sizeof(BalanceMember));
	memcpy(copy->splits, fleet->splits, fleet->nsplits * sizeof(BalanceSplit));
	memcpy(copy->targets, fleet->targets, fleet->nsplits * sizeof(int));
	copy->may_move = fleet->may_move;
	copy->max_moves = fleet->max_moves;
	copy->moves = fleet->moves;
	return copy;
}

static void
fleet_free(Fleet *fleet)
{
	pfree(fleet->members);
	pfree(fleet->splits);
	pfree(fleet->targets);
	pfree(fleet->kept);
	pfree(fleet->placed);
	pfree(fleet);
}

static void
ask(Fleet *fleet, Assign assign, bool may_move, int max_moves)
{
	fleet->may_move = may_move;
	fleet->max_moves = max_moves;
	fleet->moves = assign(fleet->members, fleet->nmembers, fleet->splits, fleet->nsplits, may_move, max_moves, fleet->targets);
}

/* The answer becomes what is so. */
static void
adopt(Fleet *fleet)
{
	for (int i = 0; i < fleet->nsplits; i++)
	{
		fleet->splits[i].stays &= fleet->splits[i].owner >= 0;
		fleet->splits[i].owner = fleet->targets[i] < fleet->nmembers ? fleet->targets[i] : -1;
	}
}

/* New places for the members and the splits, and nothing else. */
static void
shuffle(Fleet *fleet)
{
	int		   *place = palloc(fleet->nmembers * sizeof(int));

	for (int i = 0; i < fleet->nmembers; i++)
		place[i] = i;
	for (int i = fleet->nmembers - 1; i > 0; i--)
	{
		int			j = (int) below(i + 1);
		BalanceMember member = fleet->members[i];
		int			swap = place[i];

		fleet->members[i] = fleet->members[j];
		fleet->members[j] = member;
		place[i] = place[j];
		place[j] = swap;
	}
	for (int i = 0; i < fleet->nsplits; i++)
	{
		for (int to = 0; to < fleet->nmembers; to++)
		{
			if (place[to] == fleet->splits[i].owner)
			{
				fleet->splits[i].owner = to;
				break;
			}
		}
	}
	for (int i = fleet->nsplits - 1; i > 0; i--)
	{
		int			j = (int) below(i + 1);
		BalanceSplit split = fleet->splits[i];

		fleet->splits[i] = fleet->splits[j];
		fleet->splits[j] = split;
	}
	pfree(place);
}

static int64
random_weight(int kind)
{
	switch (kind)
	{
		case 0:
			return 1;
		case 1:
			return 1 + below(3);
		case 2:
			return 1 + below(1000);
		case 3:
			return chance(90) ? 1 : 200;
		case 4:
			return INT64CONST(1) << below(40);
		default:
			return PG_INT64_MAX - below(100);
	}
}

static Fleet *
random_fleet(void)
{
	Fleet	   *fleet = fleet_new(chance(2) ? 0 : 1 + (int) below(MEMBERS_MAX), (int) below(SPLITS_MAX + 1));
	int			kind = chance(2) ? 5 : (int) below(5);
	int			owned = chance(30) ? 100 : (int) below(101);
	int			staying = chance(50) ? 0 : (int) below(40);
	int			capacity = chance(50) ? PG_INT32_MAX : 1 + (int) below(2 + 3 * fleet->nsplits / Max(fleet->nmembers, 1));
	int			owners = chance(50) ? fleet->nmembers : 1 + (int) below(fleet->nmembers + 1) / 2;

	for (int i = 0; i < fleet->nmembers; i++)
		fleet->members[i].capacity = (int) below(capacity) + (chance(5) ? 0 : 1);
	for (int i = 0; i < fleet->nsplits; i++)
	{
		fleet->splits[i].weight = random_weight(kind);
		if (fleet->nmembers > 0 && chance(owned))
			fleet->splits[i].owner = (int) below(owners);
		fleet->splits[i].stays = chance(staying);
	}
	shuffle(fleet);
	return fleet;
}

/* ---------------------------------------------------------------- the plain one */

static int64
weight_of(const Fleet *fleet, int split)
{
	return Min(Max(fleet->splits[split].weight, 1), BALANCE_WEIGHT_MAX(fleet->nsplits));
}

static int64
load_of(const Fleet *fleet, int member)
{
	int64		load = 0;

	for (int i = 0; i < fleet->nsplits; i++)
		load += fleet->targets[i] == member ? weight_of(fleet, i) : 0;
	return load;
}

static int
count_of(const Fleet *fleet, int member)
{
	int			count = 0;

	for (int i = 0; i < fleet->nsplits; i++)
		count += fleet->targets[i] == member;
	return count;
}

/* Who comes first by weight, or only by number. */
static bool
split_before(const Fleet *fleet, int a, int b, bool by_weight)
{
	if (by_weight && weight_of(fleet, a) != weight_of(fleet, b))
		return weight_of(fleet, a) > weight_of(fleet, b);
	return rules.by_number ? fleet->splits[a].number < fleet->splits[b].number : a < b;
}

static bool
member_before(const Fleet *fleet, int a, int b)
{
	if (load_of(fleet, a) != load_of(fleet, b))
		return load_of(fleet, a) < load_of(fleet, b);
	if (count_of(fleet, a) != count_of(fleet, b))
		return count_of(fleet, a) < count_of(fleet, b);
	return rules.by_token ? fleet->members[a].member < fleet->members[b].member : a < b;
}

/* The first split that is owned, or is not, and has no target. */
static int
next_split(const Fleet *fleet, bool owned, bool stays, bool by_weight)
{
	int			next = -1;

	for (int i = 0; i < fleet->nsplits; i++)
	{
		if (fleet->targets[i] != -1)
			continue;
		if (owned && (fleet->splits[i].owner < 0 || (fleet->splits[i].stays && rules.stays) != stays))
			continue;
		if (next < 0 || split_before(fleet, i, next, by_weight))
			next = i;
	}
	return next;
}

static int
next_member(const Fleet *fleet)
{
	int			next = -1;

	for (int i = 0; i < fleet->nmembers; i++)
	{
		if (rules.capacity && count_of(fleet, i) >= fleet->members[i].capacity)
			continue;
		if (next < 0 || (rules.least_loaded ? member_before(fleet, i, next) :
						 fleet->members[i].member < fleet->members[next].member))
			next = i;
	}
	return next;
}

static void
model_keep(Fleet *fleet)
{
	int			split;

	while ((split = next_split(fleet, true, true, rules.heaviest_kept)) >= 0)
		fleet->targets[split] = fleet->splits[split].owner;
	while ((split = next_split(fleet, true, false, rules.heaviest_kept)) >= 0)
	{
		int			owner = fleet->splits[split].owner;

		if (rules.capacity && count_of(fleet, owner) >= fleet->members[owner].capacity)
			fleet->targets[split] = -2;
		else
			fleet->targets[split] = owner;
	}
	for (int i = 0; i < fleet->nsplits; i++)
		fleet->targets[i] = Max(fleet->targets[i], -1);
}

/* A move that helps, from the most loaded that has one, or else from anybody. */
static bool
model_move(Fleet *fleet, const int *kept)
{
	int			to = next_member(fleet);
	int			best = -1;

	for (int i = 0; i < fleet->nsplits && to >= 0; i++)
	{
		int			from = fleet->targets[i];
		int64		difference = from < 0 ? 0 : load_of(fleet, from) - load_of(fleet, to);
		bool		useful = difference > (rules.helps ? weight_of(fleet, i) : 0) ||
			(!rules.strictly && difference == weight_of(fleet, i));

		if (from < 0 || from == to || !useful || (rules.stays && fleet->splits[i].stays && fleet->splits[i].owner >= 0))
			continue;
		if (rules.limited && fleet->max_moves >= 0 && kept[i] == from && fleet->moves >= fleet->max_moves)
			continue;
		if (best < 0)
			best = i;
		else if (rules.most_loaded && from != fleet->targets[best])
			best = member_before(fleet, fleet->targets[best], from) ? i : best;
		else
			best = split_before(fleet, i, best, rules.most_loaded) ? i : best;
	}
	if (best < 0)
		return false;
	if (kept[best] >= 0)
		fleet->moves += (kept[best] == fleet->targets[best]) - (kept[best] == to);
	fleet->targets[best] = to;
	return true;
}

static int
model_assign(const BalanceMember *members, int nmembers, const BalanceSplit *splits, int nsplits,
			 bool may_move, int max_moves, int *targets)
{
	Fleet		fleet = {nmembers, nsplits, (BalanceMember *) members, (BalanceSplit *) splits, may_move, max_moves, targets};
	int		   *kept = palloc(nsplits * sizeof(int));
	int			split;
	int			to;
	int			left = 0;

	for (int i = 0; i < nsplits; i++)
		targets[i] = -1;
	if (rules.sticky)
		model_keep(&fleet);
	memcpy(kept, targets, nsplits * sizeof(int));
	for (int i = 0; i < nsplits; i++)
		left += targets[i] == -1;
	while (left-- > (rules.all_placed ? 0 : 1) && (to = next_member(&fleet)) >= 0)
	{
		split = next_split(&fleet, false, false, rules.heaviest_first);
		targets[split] = to;
	}
	if (may_move && (rules.some || max_moves < 0))
	{
		for (int i = 0; i < STEPS_MAX && model_move(&fleet, kept) && rules.to_the_end; i++)
			;
	}
	for (int i = 0; i < nsplits && !rules.nobody_is_none; i++)
		targets[i] = targets[i] < 0 ? nmembers : targets[i];
	pfree(kept);
	return rules.counted ? fleet.moves : 0;
}

/* What must be kept, and where the rest must go if nothing moves. */
static void
expect(Fleet *fleet)
{
	Rules		saved = rules;
	Fleet		right = *fleet;

	rules = all_rules;
	right.targets = fleet->placed;
	ask(&right, model_assign, false, -1);
	right.targets = fleet->kept;
	for (int i = 0; i < fleet->nsplits; i++)
		fleet->kept[i] = -1;
	model_keep(&right);
	rules = saved;
}

/* ---------------------------------------------------------------- the checks: false is what must not be */

static bool
in_range(const Fleet *fleet)
{
	for (int i = 0; i < fleet->nsplits; i++)
	{
		if (fleet->targets[i] < -1 || fleet->targets[i] >= fleet->nmembers)
			return false;
	}
	return true;
}

static int
staying(const Fleet *fleet, int member)
{
	int			count = 0;

	for (int i = 0; i < fleet->nsplits; i++)
		count += fleet->splits[i].stays && fleet->splits[i].owner == member;
	return count;
}

static bool
within_capacity(const Fleet *fleet)
{
	for (int i = 0; i < fleet->nmembers; i++)
	{
		if (count_of(fleet, i) > Max(fleet->members[i].capacity, staying(fleet, i)))
			return false;
	}
	return true;
}

static bool
nothing_left_out(const Fleet *fleet)
{
	for (int i = 0; i < fleet->nmembers; i++)
	{
		if (count_of(fleet, -1) > 0 && count_of(fleet, i) < fleet->members[i].capacity)
			return false;
	}
	return true;
}

static bool
what_stays_does(const Fleet *fleet)
{
	for (int i = 0; i < fleet->nsplits; i++)
	{
		if (fleet->splits[i].stays && fleet->splits[i].owner >= 0 && fleet->targets[i] != fleet->splits[i].owner)
			return false;
	}
	return true;
}

static bool
owners_keep(const Fleet *fleet)
{
	for (int member = 0; member < fleet->nmembers; member++)
	{
		int			owned = 0;
		int			kept = 0;

		for (int i = 0; i < fleet->nsplits; i++)
		{
			owned += fleet->splits[i].owner == member;
			kept += fleet->splits[i].owner == member && fleet->targets[i] == member;
		}
		if (!fleet->may_move && kept < Min(owned, fleet->members[member].capacity))
			return false;
	}
	return true;
}

/* Of two that are owned by one, neither of which stays, the one given up comes after the one kept. */
static bool
the_lightest_are_given_up(const Fleet *fleet)
{
	const BalanceSplit *splits = fleet->splits;

	for (int i = 0; i < fleet->nsplits && !fleet->may_move; i++)
	{
		for (int j = 0; j < fleet->nsplits; j++)
		{
			if (splits[i].owner < 0 || splits[i].owner != splits[j].owner || splits[i].stays || splits[j].stays ||
				fleet->targets[i] == splits[i].owner || fleet->targets[j] != splits[j].owner)
				continue;
			if (weight_of(fleet, i) > weight_of(fleet, j) ||
				(weight_of(fleet, i) == weight_of(fleet, j) && splits[i].number < splits[j].number))
				return false;
		}
	}
	return true;
}

static bool
placed_as_the_plain_one_does(const Fleet *fleet)
{
	return fleet->may_move || memcmp(fleet->placed, fleet->targets, fleet->nsplits * sizeof(int)) == 0;
}

/* In one round over all: also for the large ones. When no more may move, what was only just placed still may. */
static bool
nothing_helps(const Fleet *fleet)
{
	int64	   *load = palloc0(fleet->nmembers * sizeof(int64));
	int64	   *lightest = palloc0(fleet->nmembers * sizeof(int64));
	int		   *count = palloc0(fleet->nmembers * sizeof(int));
	int64		least = PG_INT64_MAX;
	bool		good = true;

	for (int i = 0; i < fleet->nsplits; i++)
	{
		int			member = fleet->targets[i];

		if (member < 0 || member >= fleet->nmembers)
			continue;
		load[member] += weight_of(fleet, i);
		count[member]++;
		if (!(fleet->splits[i].stays && fleet->splits[i].owner >= 0) &&
			(fleet->max_moves < 0 || fleet->kept[i] < 0) &&
			(lightest[member] == 0 || weight_of(fleet, i) < lightest[member]))
			lightest[member] = weight_of(fleet, i);
	}
	for (int i = 0; i < fleet->nmembers; i++)
	{
		if (count[i] < fleet->members[i].capacity)
			least = Min(least, load[i]);
	}
	for (int i = 0; i < fleet->nmembers; i++)
		good &= lightest[i] == 0 || load[i] - lightest[i] <= least;
	pfree(load);
	pfree(lightest);
	pfree(count);
	return good || !fleet->may_move;
}

static int
moves_of(const Fleet *fleet)
{
	int			moves = 0;

	for (int i = 0; i < fleet->nsplits; i++)
		moves += fleet->kept[i] >= 0 && fleet->kept[i] != fleet->targets[i];
	return moves;
}

static bool
every_move_counts(const Fleet *fleet)
{
	return fleet->moves == moves_of(fleet);
}

static bool
within_the_limit(const Fleet *fleet)
{
	if (!fleet->may_move)
		return moves_of(fleet) == 0;
	return fleet->max_moves < 0 || moves_of(fleet) <= fleet->max_moves;
}

static bool
nobody_has_more(const Fleet *fleet)
{
	Fleet		before = *fleet;
	int64		most_before = 0;
	int64		most = 0;

	before.targets = fleet->placed;
	for (int i = 0; i < fleet->nmembers; i++)
	{
		most_before = Max(most_before, load_of(&before, i));
		most = Max(most, load_of(fleet, i));
	}
	return most <= most_before;
}

/* With weights that are all the same, who gives something does not get something. */
static bool
nobody_gives_and_takes(const Fleet *fleet)
{
	bool		good = true;

	for (int member = 0; member < fleet->nmembers; member++)
	{
		int			gave = 0;
		int			took = 0;

		for (int i = 0; i < fleet->nsplits; i++)
		{
			gave += fleet->kept[i] == member && fleet->targets[i] != member;
			took += fleet->kept[i] != member && fleet->targets[i] == member;
		}
		good &= gave == 0 || took == 0;
	}
	for (int i = 0; i < fleet->nsplits; i++)
		good |= weight_of(fleet, i) != weight_of(fleet, 0);
	return good;
}

static bool
order_does_not_matter(const Fleet *fleet, Assign assign)
{
	Fleet	   *other = fleet_copy(fleet);
	bool		same;

	shuffle(other);
	ask(other, assign, fleet->may_move, fleet->max_moves);
	same = other->moves == fleet->moves && in_range(fleet) && in_range(other);
	for (int i = 0; i < fleet->nsplits && same; i++)
	{
		for (int j = 0; j < fleet->nsplits; j++)
		{
			if (fleet->splits[i].number != other->splits[j].number)
				continue;
			same &= (fleet->targets[i] < 0 ? -1 : fleet->members[fleet->targets[i]].member) ==
				(other->targets[j] < 0 ? -1 : other->members[other->targets[j]].member);
		}
	}
	fleet_free(other);
	return same;
}

static bool
the_end_is_the_end(const Fleet *fleet, Assign assign)
{
	Fleet	   *again = fleet_copy(fleet);
	bool		same;

	adopt(again);
	ask(again, assign, fleet->may_move, -1);
	same = again->moves == 0 && memcmp(again->targets, fleet->targets, fleet->nsplits * sizeof(int)) == 0;
	fleet_free(again);
	return same || fleet->max_moves >= 0;
}

static bool
step_by_step_is_possible(const Fleet *fleet, Assign assign)
{
	Fleet	   *again = fleet_copy(fleet);
	bool		good;

	ask(again, assign, true, 0);
	for (int rounds = 0; rounds < STEPS_MAX; rounds++)
	{
		adopt(again);
		ask(again, assign, true, 1);
		if (again->moves == 0)
			break;
	}
	good = again->moves == 0;
	again->max_moves = -1;
	good &= nothing_helps(again);
	fleet_free(again);
	return good;
}

typedef struct Check
{
	const char *prevents;
	bool		(*look) (const Fleet *fleet);
	bool		(*look_again) (const Fleet *fleet, Assign assign);
} Check;

typedef enum CheckId
{
	IN_RANGE, CAPACITY, TOTAL, STAYS, STICKY, GIVEN_UP, PLACED, OPTIMAL, COUNTED, LIMITED, NO_WORSE, NO_TRADE, ORDER, FIXPOINT, STEPS,
	CHECKS
} CheckId;

static const Check checks[CHECKS] = {
	[IN_RANGE] = {"no split goes to a member that there is not", in_range, NULL},
	[CAPACITY] = {"nobody gets more than it can take", within_capacity, NULL},
	[TOTAL] = {"no split is left out while somebody has room", nothing_left_out, NULL},
	[STAYS] = {"no split that stays is taken away", what_stays_does, NULL},
	[STICKY] = {"no owner with capacity loses a split without a move", owners_keep, NULL},
	[GIVEN_UP] = {"no owner without capacity gives up the heavier one", the_lightest_are_given_up, NULL},
	[PLACED] = {"no unowned split goes to anybody but the least loaded, the heaviest first", placed_as_the_plain_one_does, NULL},
	[OPTIMAL] = {"no move is left that would help", nothing_helps, NULL},
	[COUNTED] = {"no move is not counted", every_move_counts, NULL},
	[LIMITED] = {"no move is more than are allowed", within_the_limit, NULL},
	[NO_WORSE] = {"no balance makes the most loaded more loaded", nobody_has_more, NULL},
	[NO_TRADE] = {"no member gives one and gets another of the same weight", nobody_gives_and_takes, NULL},
	[ORDER] = {"no order of the input makes another result", NULL, order_does_not_matter},
	[FIXPOINT] = {"no result is changed again by the next round", NULL, the_end_is_the_end},
	[STEPS] = {"no limit keeps a fleet from its balance for ever", NULL, step_by_step_is_possible},
};

/* Asks the same question three times: without moves, with some, with as many as help. */
static void
check_fleet(Fleet *fleet, Assign assign, CheckId first, CheckId last, int *failures)
{
	expect(fleet);
	for (int round = 0; round < 3; round++)
	{
		ask(fleet, assign, round > 0, round == 1 ? (int) below(5) : -1);
		for (int i = first; i <= last; i++)
			failures[i] += !(checks[i].look ? checks[i].look(fleet) : checks[i].look_again(fleet, assign));
	}
}

static void
check_fleets(Assign assign, int fleets, CheckId first, CheckId last, int *failures)
{
	memset(failures, 0, CHECKS * sizeof(int));
	random_state = 20240229;
	for (int i = 0; i < fleets; i++)
	{
		Fleet	   *fleet = random_fleet();

		check_fleet(fleet, assign, first, last, failures);
		fleet_free(fleet);
	}
}

/* ---------------------------------------------------------------- tests */

static void
test_fleets(void)
{
	int			failures[CHECKS];

	check_fleets(balance_assign, FLEETS, 0, CHECKS - 1, failures);
	for (int i = 0; i < CHECKS; i++)
		is(failures[i], 0, "%s, in %d fleets", checks[i].prevents, FLEETS);
}

static void
test_each_rule(void)
{
	static const struct
	{
		const char *name;
		size_t		offset;
		CheckId		check;
	}			broken[] = {
		{"sticky", offsetof(Rules, sticky), STICKY},
		{"stays", offsetof(Rules, stays), STAYS},
		{"capacity", offsetof(Rules, capacity), CAPACITY},
		{"heaviest_kept", offsetof(Rules, heaviest_kept), GIVEN_UP},
		{"nobody_is_none", offsetof(Rules, nobody_is_none), IN_RANGE},
		{"all_placed", offsetof(Rules, all_placed), TOTAL},
		{"heaviest_first", offsetof(Rules, heaviest_first), PLACED},
		{"least_loaded", offsetof(Rules, least_loaded), PLACED},
		{"by_number", offsetof(Rules, by_number), ORDER},
		{"by_token", offsetof(Rules, by_token), ORDER},
		{"helps", offsetof(Rules, helps), NO_WORSE},
		{"strictly", offsetof(Rules, strictly), FIXPOINT},
		{"to_the_end", offsetof(Rules, to_the_end), OPTIMAL},
		{"most_loaded", offsetof(Rules, most_loaded), NO_TRADE},
		{"counted", offsetof(Rules, counted), COUNTED},
		{"limited", offsetof(Rules, limited), LIMITED},
		{"some", offsetof(Rules, some), STEPS},
	};
	int			failures[CHECKS];
	int			wrong = 0;

	rules = all_rules;
	check_fleets(model_assign, 100, 0, CHECKS - 1, failures);
	for (int i = 0; i < CHECKS; i++)
	{
		wrong += failures[i];
		if (failures[i] > 0)
			fprintf(stderr, "# %s: %d times\n", checks[i].prevents, failures[i]);
	}
	is(wrong, 0, "the plain one with all its rules does nothing wrong");
	for (int i = 0; i < (int) lengthof(broken); i++)
	{
		rules = all_rules;
		((bool *) &rules)[broken[i].offset] = false;
		check_fleets(model_assign, 100, broken[i].check, broken[i].check, failures);
		ok(failures[broken[i].check] > 0, "without %s it does: \"%s\" fails", broken[i].name, checks[broken[i].check].prevents);
	}
	rules = all_rules;
}

/* As many as n members share evenly, then one more member. */
static void
test_joins(void)
{
	for (int n = 1; n <= 20; n++)
	{
		int			total = n * (n + 1) * 10;
		Fleet	   *fleet = fleet_new(n + 1, total);

		for (int i = 0; i < total; i++)
			fleet->splits[i].owner = i % n;
		ask(fleet, balance_assign, true, -1);
		if (!ok(fleet->moves == total / (n + 1), "one joins %d members with %d splits: no more than its share moves", n, total))
			fprintf(stderr, "# %d moves\n", fleet->moves);
		adopt(fleet);

		/* the one that joined dies */
		for (int i = 0; i < total; i++)
			fleet->splits[i].owner = fleet->splits[i].owner == n ? -1 : fleet->splits[i].owner;
		fleet->nmembers = n;
		ask(fleet, balance_assign, true, -1);
		ok(fleet->moves == 0 && count_of(fleet, 0) == total / n, "and when it leaves only what it had moves");
		fleet_free(fleet);
	}
}

/* Weights of every size, so that what moves is not the share of the number, but of the work. */
static void
test_uneven_joins(void)
{
	int			moves = 0;

	random_state = 11;
	for (int i = 0; i < 100; i++)
	{
		Fleet	   *fleet = fleet_new(11, 1100);

		for (int split = 0; split < 1100; split++)
			fleet->splits[split].weight = random_weight(2);
		fleet->members[10].capacity = 0;
		ask(fleet, balance_assign, true, -1);
		adopt(fleet);
		fleet->members[10].capacity = PG_INT32_MAX;
		ask(fleet, balance_assign, true, -1);
		moves += fleet->moves;
		fleet_free(fleet);
	}
	fprintf(stderr, "# one joins 10 members with 1100 uneven splits: %d moves\n", moves / 100);
	ok(moves < 100 * 100, "one joins members with uneven splits: fewer move than its share of the number");
}

/* As the plain one, which only ever moves the heaviest that helps from the most loaded; any fleet, with whatever it can take. */
static void
test_few_moves(void)
{
	int			moves = 0;
	int			plain = 0;

	rules = all_rules;
	random_state = 5;
	for (int i = 0; i < 500; i++)
	{
		Fleet	   *fleet = random_fleet();

		ask(fleet, balance_assign, true, -1);
		moves += fleet->moves;
		ask(fleet, model_assign, true, -1);
		plain += fleet->moves;
		fleet_free(fleet);
	}
	fprintf(stderr, "# 500 random fleets: %d moves, %d by the plain one\n", moves, plain);
	ok(moves <= plain * 98 / 100, "no more moves are made than by the plainer way, together");
}

static void
test_ends(void)
{
	Fleet	   *fleet = fleet_new(0, 3);

	ask(fleet, balance_assign, true, -1);
	is(count_of(fleet, -1), 3, "without members everything is left out");
	fleet_free(fleet);
	is(balance_assign(NULL, 0, NULL, 0, true, -1, NULL), 0, "nothing at all is nothing to do");

	fleet = fleet_new(3, 0);
	ask(fleet, balance_assign, true, -1);
	is(fleet->moves, 0, "without splits nothing moves");
	fleet_free(fleet);

	fleet = fleet_new(1, 5);
	for (int i = 0; i < 5; i++)
		fleet->splits[i] = (BalanceSplit) {.number = i, .weight = 5 - i, .owner = 0, .stays = i == 4};
	fleet->members[0].capacity = -1;
	ask(fleet, balance_assign, true, -1);
	is(count_of(fleet, -1), 4, "a capacity below 0 is none");
	is(fleet->targets[4], 0, "and takes away nothing that stays");
	fleet->members[0].capacity = 2;
	ask(fleet, balance_assign, true, -1);
	ok(fleet->targets[4] == 0 && fleet->targets[0] == 0 && count_of(fleet, -1) == 3,
	   "what stays has the room first, then the heaviest");
	fleet_free(fleet);

	fleet = fleet_new(2, 4);
	fleet->splits[0].weight = PG_INT64_MIN;
	fleet->splits[1].weight = 0;
	fleet->splits[2].weight = -1;
	ask(fleet, balance_assign, true, -1);
	is(count_of(fleet, 0), 2, "a weight below 1 is 1");
	fleet_free(fleet);

	/* what the undefined-behaviour sanitizer would stop at */
	fleet = fleet_new(3, 50000);
	for (int i = 0; i < fleet->nsplits; i++)
		fleet->splits[i] = (BalanceSplit) {.number = PG_INT64_MAX - i, .weight = PG_INT64_MAX - i, .owner = i % 2};
	ask(fleet, balance_assign, true, -1);
	is(count_of(fleet, 2), 16666, "weights without end do not overflow");
	fleet_free(fleet);
}

static void
test_examples(void)
{
	Fleet	   *fleet = fleet_new(2, 3);

	fleet->splits[0].weight = 60;
	fleet->splits[1].weight = 40;
	fleet->splits[2].weight = 5;
	for (int i = 0; i < 3; i++)
		fleet->splits[i].owner = 0;
	ask(fleet, balance_assign, true, -1);
	ok(fleet->moves == 1 && fleet->targets[0] == 1, "the one that is closest to half of the difference moves");
	ask(fleet, balance_assign, true, 0);
	ok(fleet->moves == 0 && count_of(fleet, 0) == 3, "with no move allowed, none does");
	fleet->splits[0].stays = true;
	ask(fleet, balance_assign, true, -1);
	ok(fleet->targets[0] == 0 && fleet->targets[1] == 1 && fleet->targets[2] == 1, "around what stays");
	fleet_free(fleet);

	/* 10 against 0 and one split of 10: the same the other way round */
	fleet = fleet_new(2, 1);
	fleet->splits[0].weight = 10;
	fleet->splits[0].owner = 1;
	ask(fleet, balance_assign, true, -1);
	is(fleet->moves, 0, "a move that only exchanges the loads is none");
	fleet_free(fleet);

	/* 8 moves to the third, and then it has too much: 3, which it has begun to work on, or 1, which was only just given to it */
	fleet = fleet_new(3, 5);
	fleet->members[0].capacity = 2;
	fleet->splits[0] = (BalanceSplit) {.number = 1, .weight = 8, .owner = 0};
	fleet->splits[1] = (BalanceSplit) {.number = 2, .weight = 10, .owner = 0};
	fleet->splits[2] = (BalanceSplit) {.number = 3, .weight = 8, .owner = -1};
	fleet->splits[3] = (BalanceSplit) {.number = 4, .weight = 1, .owner = -1};
	fleet->splits[4] = (BalanceSplit) {.number = 5, .weight = 3, .owner = 2};
	ask(fleet, balance_assign, true, -1);
	ok(fleet->moves == 1 && fleet->targets[4] == 2, "what nobody has begun to work on moves before what is owned");
	fleet_free(fleet);
}

/* The goal is a second; here it is processor time with sanitizers, for the log, and a loop without end is a failure. */
static void
timed(Fleet *fleet, const char *name)
{
	clock_t		start = clock();
	double		elapsed;

	ask(fleet, balance_assign, true, -1);
	elapsed = (double) (clock() - start) / CLOCKS_PER_SEC;
	fprintf(stderr, "# %d members, %d splits, %s: %.3f s, %d moves\n", fleet->nmembers, fleet->nsplits, name,
			elapsed, fleet->moves);
	ok(elapsed < 10, "%s: no fleet takes for ever", name);
	ok(nothing_helps(fleet), "%s: and it is balanced", name);
}

static void
test_large(void)
{
	Fleet	   *fleet = fleet_new(100, 100000);

	random_state = 99;
	for (int i = 0; i < fleet->nsplits; i++)
		fleet->splits[i].weight = random_weight(2);
	timed(fleet, "all unowned");
	adopt(fleet);
	timed(fleet, "already balanced");
	is(fleet->moves, 0, "nothing moves in it");
	for (int i = 0; i < 100; i++)
		fleet->members[i].capacity = i == 0 ? PG_INT32_MAX : 1100;
	for (int i = 0; i < fleet->nsplits; i++)
		fleet->splits[i].owner = 0;
	timed(fleet, "all owned by one");
	for (int i = 0; i < fleet->nsplits; i++)
		fleet->splits[i].owner = (int) below(50);
	timed(fleet, "half of the members are new");
	for (int i = 0; i < fleet->nsplits; i++)
		fleet->splits[i] = (BalanceSplit) {.number = i, .weight = 1, .owner = (int) below(3) - 1};
	timed(fleet, "all of the same weight");
	for (int i = 0; i < fleet->nsplits; i++)
		fleet->splits[i] = (BalanceSplit) {.number = i, .weight = INT64CONST(1) << below(46), .owner = (int) below(10)};
	timed(fleet, "of every magnitude");
	fleet_free(fleet);
}

int
main(void)
{
	test_each_rule();
	test_fleets();
	test_examples();
	test_joins();
	test_uneven_joins();
	test_few_moves();
	test_ends();
	test_large();
	return done_testing();
}
