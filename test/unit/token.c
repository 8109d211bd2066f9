/*
 * token.c
 *	  No history makes a token that is not greater than all before it.
 *
 * link: src/token.c
 *
 * A world of one primary, two standbys, dumps and copies lives through thousands
 * of random histories. What is durable is a log of states, one for each setval:
 * a crash keeps a prefix of it, a standby has a shorter one. The driver below
 * does what fence.c does with the arithmetic under test.
 *
 * Each rule of the design is a switch. With one of them off, some history must
 * go wrong: a test that cannot fail says nothing. The switches in the arithmetic
 * itself need a second copy of it, which with all switches on must agree with
 * src/token.c about every state.
 */
#include "token.h"

#include <stdlib.h>

#include "tap.h"

#define HISTORIES 20000
#define EVENTS 60
#define LOG_MAX 4096
#define TOKEN(era, n) (((int64) (era) << TOKEN_N_BITS) + (n))

typedef struct Rules
{
	/* of the arithmetic */
	bool		foreign_mark;	/* somebody else's mark raises base */
	bool		foreign_dump;	/* somebody else's dump raises base */
	bool		fresh_era;		/* a mark ahead of its era enters a fresh one */
	bool		above_mark;		/* a block begins above the durable mark */
	/* of who uses it */
	bool		identity_has_database;	/* the system's identifier alone is not enough */
	bool		mark_last;		/* base and identity are durable before the mark that relies on them */
	bool		base_first;		/* and before the dump's row says that somebody else's was heeded */
	bool		flush;			/* before the block is published */
	bool		publish_last;	/* a block is handed out only when it is durable */
	bool		every_setval;	/* the mark is logged each time, not every 32nd time as by nextval */
	bool		enter_era;		/* a block is reserved on a new timeline, wanted or not */
	bool		merge;			/* a restore brings the dump's row, and neither mark nor base */
	bool		look_at_dump;	/* a row that a restore brought ends the present block */
	bool		standbys_wait;	/* one without an advance_tokens, or a stranger's dump, is not promoted */
	bool		new_timeline;	/* a promotion takes a timeline that nobody used */
} Rules;

static const Rules all_rules = {
	true, true, true, true,
	true, true, true, true, true, true, true, true, true, true, true
};

typedef struct Standby
{
	bool		alive;
	int			position;		/* in the log: the last state that it has */
	int64		timeline;
} Standby;

typedef struct World
{
	Rules		rules;
	bool		edges;			/* numbers near their ends: errors are right there */

	TokenState	log[LOG_MAX];	/* one for each record; log[end] is what the primary's memory has */
	int			end;
	int			flushed;
	Standby		standby[2];

	uint64		system;
	uint64		database;
	int64		timeline;
	int64		newest_timeline;	/* of this system */

	int64		next;			/* shared memory: the block */
	int64		last;			/* 0: none */
	int			unlogged;		/* marks since the last one that was logged */

	bool		dumped;			/* there is a dump that may still be restored */
	bool		dump_is_of_this_era;
	TokenState	dump;

	int64		issued;			/* the greatest one */
	int64		tokens;			/* how many */
	int			errors;			/* how often numbers were exhausted */
	bool		over;			/* an era could not be entered: nothing follows */
	const char *wrong;			/* what went wrong first */
	const char *event;			/* in which event */
} World;

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

/* ---------------------------------------------------------------- the arithmetic again */

static int64
model_base(const Rules *rules, const TokenState *state, uint64 identity, int64 timeline, int64 known_mark)
{
	int64		base = state->base;
	int64		highest = Max(state->mark, known_mark);

	if (rules->foreign_mark && state->identity != 0 && state->identity != identity)
		base = Max(base, token_era(state->mark));
	if (rules->foreign_dump && state->dump_identity != 0 && state->dump_identity != identity)
		base = Max(base, state->dump_era);
	if (rules->fresh_era && token_era(highest) > base + timeline)
		base = token_era(highest) + 1 - timeline;
	return base;
}

static TokenOutcome
model_reserve(const Rules *rules, const TokenState *state, uint64 identity, int64 timeline,
			  int64 known_mark, int64 size, TokenBlock *block)
{
	int64		base = model_base(rules, state, identity, timeline, known_mark);
	int64		era = base + timeline;
	int64		floor = Max(known_mark, TOKEN(era, 0));
	int64		end = TOKEN(era, TOKEN_MAX_N);

	if (rules->above_mark)
		floor = Max(floor, state->mark);
	if (era > TOKEN_MAX_ERA)
		return TOKEN_ERA_EXHAUSTED;
	if (floor >= end)
		return TOKEN_N_EXHAUSTED;
	block->first = floor + 1;
	block->last = Min(floor + size, end);
	block->next = (TokenState) {block->last, base, identity, era, identity};
	return TOKEN_RESERVED;
}

static TokenOutcome
model_advance(const Rules *rules, const TokenState *state, uint64 identity, int64 timeline,
			  int64 beyond, TokenState *next)
{
	int64		base = model_base(rules, state, identity, timeline, 0);

	if (token_era(beyond) >= base + timeline)
		base = token_era(beyond) + 1 - timeline;
	if (base + timeline > TOKEN_MAX_ERA)
		return TOKEN_ERA_EXHAUSTED;
	*next = (TokenState) {state->mark, base, identity, base + timeline, identity};
	return TOKEN_RESERVED;
}

static bool
arithmetic_is_whole(const Rules *rules)
{
	return rules->foreign_mark && rules->foreign_dump && rules->fresh_era && rules->above_mark;
}

static bool
same_state(const TokenState *a, const TokenState *b)
{
	return a->mark == b->mark && a->base == b->base && a->identity == b->identity &&
		a->dump_era == b->dump_era && a->dump_identity == b->dump_identity;
}

/* ---------------------------------------------------------------- what fence.c does */

static void
wrong(World *w, const char *what)
{
	if (w->wrong == NULL)
		w->wrong = what;
}

static void
in_the_world(World *w, int64 token)
{
	w->issued = Max(w->issued, token);
}

static uint64
identity(const World *w)
{
	return w->rules.identity_has_database ? w->system * 1000 + w->database : w->system * 1000;
}

static const TokenState *
now(const World *w)
{
	return &w->log[w->end];
}

static void
append(World *w, const TokenState *state)
{
	if (w->end + 1 >= LOG_MAX)
		abort();
	w->log[++w->end] = *state;
}

static void
forget_memory(World *w)
{
	w->next = w->last = 0;
	w->unlogged = 0;
}

/* The log keeps what was flushed, and perhaps more. */
static void
lose_power(World *w)
{
	w->end = w->flushed += (int) below(w->end - w->flushed + 1);
	forget_memory(w);
}

/* Three records at most. False: the server crashed after some of them. */
static bool
state_write(World *w, const TokenState *next, bool may_crash)
{
	enum
	{
	MARK, LINEAGE, DUMP} order[3] = {LINEAGE, DUMP, MARK};
	int			crash_before = may_crash && chance(15) ? (int) below(4) : -1;
	TokenState	state = *now(w);

	if (!w->rules.base_first)
		order[0] = DUMP, order[1] = LINEAGE;
	if (!w->rules.mark_last)
		order[0] = MARK, order[1] = DUMP, order[2] = LINEAGE;
	for (int i = 0; i < 4; i++)
	{
		if (i == crash_before)
		{
			lose_power(w);
			return false;
		}
		if (i == 3)
			break;
		if (order[i] == MARK)
			state.mark = next->mark;
		else if (order[i] == LINEAGE)
			state.base = next->base, state.identity = next->identity;
		else
			state.dump_era = next->dump_era, state.dump_identity = next->dump_identity;
		if (!w->rules.every_setval && order[i] == MARK && w->unlogged++ % 32 != 0)
			w->log[w->end] = state;
		else if (!same_state(&state, now(w)))
			append(w, &state);
	}
	if (w->rules.flush && w->rules.every_setval)
		w->flushed = w->end;
	return true;
}

static TokenOutcome
ask_reserve(World *w, TokenBlock *block)
{
	TokenState	state = *now(w);
	int64		size = w->edges ? INT64CONST(1) << below(40) : 1 + below(4);
	TokenOutcome outcome;

	outcome = arithmetic_is_whole(&w->rules) ?
		token_reserve(&state, identity(w), w->timeline, w->last, size, block) :
		model_reserve(&w->rules, &state, identity(w), w->timeline, w->last, size, block);
	if (outcome != TOKEN_RESERVED)
	{
		w->errors++;
		w->over |= outcome == TOKEN_ERA_EXHAUSTED;
		if (!w->edges)
			wrong(w, "numbers are exhausted");
		return outcome;
	}

	if (token_era(block->first) != token_era(block->last) || block->first > block->last ||
		block->last - block->first >= size)
		wrong(w, "the block is not within one era, or not of its size");
	if (block->last > TOKEN_MAX || token_era(block->first) < 1 || (block->first & TOKEN_MAX_N) == 0)
		wrong(w, "the block has numbers that are no tokens");
	if (w->rules.merge && w->rules.above_mark &&
		(block->next.mark < state.mark || block->next.mark < w->last || block->next.base < state.base))
		wrong(w, "a mark or a base was lowered");
	return outcome;
}

/* False: there is no block, because numbers are exhausted or the server crashed. */
static bool
reserve(World *w, bool may_crash)
{
	TokenBlock	block;

	if (ask_reserve(w, &block) != TOKEN_RESERVED)
		return false;
	if (!w->rules.publish_last && chance(50))
	{
		/* one is handed out at once, before the crash that may come */
		in_the_world(w, block.first++);
	}
	if (!state_write(w, &block.next, may_crash))
		return false;
	w->next = block.first;
	w->last = block.last;
	return true;
}

/* A restore may have brought another row than the one that this block's reservation wrote. */
static void
look_at_dump(World *w)
{
	const TokenState *state = now(w);

	if (w->rules.look_at_dump && state->dump_identity != 0 &&
		(state->dump_identity != identity(w) || state->dump_era != state->base + w->timeline))
	{
		w->next = w->last + 1;
		(void) reserve(w, false);
	}
}

static void
issue(World *w)
{
	look_at_dump(w);
	if ((w->last == 0 || w->next > w->last) && !reserve(w, true))
		return;
	if (w->next > w->last)
		return;
	if (w->next <= w->issued)
		wrong(w, "a token is not greater than one before it");
	if (w->next > now(w)->mark && w->rules.merge)
		wrong(w, "a token is above the mark");
	in_the_world(w, w->next++);
	w->tokens++;
}

static void
issue_some(World *w)
{
	for (int64 i = below(12); i > 0; i--)
		issue(w);
}

/* The supervisor, after a promotion: also when a crash interrupts it. */
static void
enter_era(World *w)
{
	for (int i = 0; i < 100 && w->rules.enter_era && w->last == 0; i++)
		(void) reserve(w, true);
}

/* ---------------------------------------------------------------- events */

static void
event_crash(World *w)
{
	lose_power(w);
	if (chance(50))
		enter_era(w);			/* else a token that is asked for comes first */
}

static void
event_checkpoint(World *w)
{
	w->flushed = w->end;
}

/* The part of the log that lies in the future of this standby is lost with the old primary. */
static void
event_promote(World *w)
{
	Standby    *standby = &w->standby[below(2)];
	Standby    *other = standby == &w->standby[0] ? &w->standby[1] : &w->standby[0];

	if (!standby->alive)
		return;
	w->end = w->flushed = standby->position;
	forget_memory(w);
	w->timeline = w->rules.new_timeline ? w->newest_timeline + 1 : standby->timeline + 1;
	w->newest_timeline = Max(w->newest_timeline, w->timeline);
	standby->timeline = w->timeline;
	if (w->rules.new_timeline)
	{
		/* the other follows, if it is not ahead */
		other->alive = other->alive && other->position <= w->end;
		other->timeline = w->timeline;
	}
	else
		other->position = Min(other->position, w->end);
	w->dump_is_of_this_era = false;
	enter_era(w);
}

static void
event_replicate(World *w)
{
	Standby    *standby = &w->standby[below(2)];

	if (standby->alive && standby->timeline == w->timeline && standby->position < w->flushed)
		standby->position += (int) below(w->flushed - standby->position + 1);
}

/* The log of another database begins with one state, and its standbys have that. */
static void
begin_log(World *w, TokenState state)
{
	w->log[0] = state;
	w->end = w->flushed = 0;
	forget_memory(w);
	w->standby[0] = w->standby[1] = (Standby) {true, 0, w->timeline};
	w->dumped = false;
}

/* Whoever brings in what only the world knew waits for each standby, or writes it off. */
static void
wait_for_standbys(World *w)
{
	for (int i = 0; i < 2 && w->rules.standbys_wait; i++)
	{
		if (w->standby[i].timeline == w->timeline)
			w->standby[i].position = w->flushed;
		else
			w->standby[i].alive = false;
	}
}

static void
move_to_new_system(World *w, int64 timeline)
{
	w->system++;
	w->database = 1;
	w->timeline = w->newest_timeline = timeline;
}

static void
event_upgrade(World *w)
{
	move_to_new_system(w, 1);
	begin_log(w, *now(w));
	enter_era(w);
}

/* pg_resetwal with the first timeline's WAL: the same system, and an era below its mark's. */
static void
event_reset_timeline(World *w)
{
	w->timeline = w->newest_timeline = 1;
	begin_log(w, *now(w));
	enter_era(w);
	wait_for_standbys(w);
}

static void
event_template(World *w)
{
	TokenState	copy;

	look_at_dump(w);
	copy = *now(w);
	issue_some(w);				/* by the source, after the copy was made */
	w->database++;
	begin_log(w, copy);
	enter_era(w);
}

static void
event_dump(World *w)
{
	look_at_dump(w);
	/* a database without another era cannot put its row right any more */
	w->dumped = now(w)->dump_identity == identity(w) || !w->rules.look_at_dump;
	w->dump_is_of_this_era = true;
	w->dump = *now(w);
}

/* CREATE EXTENSION, then the dump's row over the one that it wrote. */
static void
restore_into_new(World *w)
{
	TokenState	state = {0};
	TokenState	dump = w->dump;

	begin_log(w, state);
	(void) reserve(w, false);
	state = w->log[w->end];
	state.dump_era = dump.dump_era;
	state.dump_identity = dump.dump_identity;
	append(w, &state);
	w->flushed = w->end;		/* the restore committed */
	look_at_dump(w);
	wait_for_standbys(w);
}

static void
event_restore_elsewhere(World *w)
{
	/* a promotion after the dump is as unknown there as any later restore of the same dump */
	if (!w->dumped || !w->dump_is_of_this_era)
		return;
	issue_some(w);
	if (!w->dumped || !w->dump_is_of_this_era)
		return;
	move_to_new_system(w, 1 + below(3));
	restore_into_new(w);
}

static void
event_restore_beside(World *w)
{
	if (!w->dumped)
		return;
	issue_some(w);
	w->database++;
	restore_into_new(w);
}

/* The data alone, into the database that it came from. */
static void
event_restore_over(World *w)
{
	TokenState	state;

	if (!w->dumped)
		return;
	look_at_dump(w);
	state = *now(w);
	if (!w->rules.merge)
	{
		state = w->dump;
		w->last = w->next = 0;	/* and a restart after it */
	}
	state.dump_era = w->dump.dump_era;
	state.dump_identity = w->dump.dump_identity;
	append(w, &state);
	w->flushed = w->end;
}

/* The data of a stranger, whose tokens are in the world. */
static void
event_restore_stranger(World *w)
{
	TokenState	state;
	int64		era = w->edges ? 1 + below(TOKEN_MAX_ERA) : 1 + below(20);

	look_at_dump(w);
	state = *now(w);
	state.dump_era = era;
	state.dump_identity = 999;	/* no system has this one */
	append(w, &state);
	w->flushed = w->end;
	in_the_world(w, TOKEN(era, 1 + below(TOKEN_MAX_N)));
	w->dumped = false;
	wait_for_standbys(w);
}

static void
event_advance(World *w)
{
	TokenState	next;
	int64		beyond = TOKEN(w->edges ? below(TOKEN_MAX_ERA + 1) : token_era(w->issued) + below(4), below(TOKEN_MAX_N));
	TokenState	state;

	if (chance(20))
		beyond = below(w->issued + 1);
	/* whoever is interrupted by a crash calls it again */
	for (int i = 0; i < 100; i++)
	{
		TokenOutcome outcome;

		state = *now(w);
		outcome = arithmetic_is_whole(&w->rules) ?
			token_advance(&state, identity(w), w->timeline, beyond, &next) :
			model_advance(&w->rules, &state, identity(w), w->timeline, beyond, &next);
		if (outcome != TOKEN_RESERVED)
		{
			w->errors++;
			if (!w->edges)
				wrong(w, "eras are exhausted");
			return;
		}
		if (next.mark != state.mark || next.base < state.base)
			wrong(w, "advance moved the mark, or lowered base");
		if (w->last != 0)
			w->next = w->last + 1;
		if (!state_write(w, &next, true) && chance(30))
		{
			/* the caller sees to everything else first; what became durable is true already */
			w->dumped = false;
			wait_for_standbys(w);
			return;
		}
		if (same_state(now(w), &next))
			break;
	}
	if (!reserve(w, false))
		return;
	in_the_world(w, beyond);
	w->dumped = false;
	wait_for_standbys(w);
}

typedef struct Event
{
	const char *name;
	void		(*happen) (World *w);
	int			weight;
} Event;

static const Event events[] = {
	{"issue", issue_some, 12},
	{"crash", event_crash, 3},
	{"checkpoint", event_checkpoint, 2},
	{"replicate", event_replicate, 5},
	{"promote", event_promote, 3},
	{"upgrade", event_upgrade, 1},
	{"reset of the timeline", event_reset_timeline, 1},
	{"template", event_template, 1},
	{"dump", event_dump, 3},
	{"restore elsewhere", event_restore_elsewhere, 2},
	{"restore beside", event_restore_beside, 2},
	{"restore over", event_restore_over, 2},
	{"restore of a stranger's dump", event_restore_stranger, 1},
	{"advance", event_advance, 1},
};

static const Event *
any_event(void)
{
	int64		total = 0;
	int64		drawn;

	for (int i = 0; i < lengthof(events); i++)
		total += events[i].weight;
	drawn = below(total);
	for (int i = 0;; i++)
	{
		if (drawn < events[i].weight)
			return &events[i];
		drawn -= events[i].weight;
	}
}

/* One history; true when nothing went wrong. */
static bool
live(World *w, const Rules *rules, bool edges, uint64 seed)
{
	TokenState	nothing = {0};

	random_state = (seed + 1) * UINT64CONST(0x9E3779B97F4A7C15);
	memset(w, 0, sizeof(*w));
	w->rules = *rules;
	w->edges = edges;
	w->event = "the beginning";
	move_to_new_system(w, 1);
	if (edges)
	{
		/* an old database, about to reach the last era */
		nothing.base = TOKEN_MAX_ERA - 1 - below(8);
		nothing.identity = identity(w);
		nothing.mark = TOKEN(nothing.base + 1, TOKEN_MAX_N - below(20));
		w->issued = nothing.mark - below(20);
	}
	begin_log(w, nothing);
	enter_era(w);
	for (int i = 0; i < EVENTS && w->wrong == NULL && !w->over; i++)
	{
		const Event *event = any_event();

		w->event = event->name;
		event->happen(w);
	}
	return w->wrong == NULL;
}

/* ---------------------------------------------------------------- the tests */

static World world;

static void
test_histories(bool edges)
{
	int64		tokens = 0;
	int64		errors = 0;
	uint64		seed;

	for (seed = 0; seed < HISTORIES; seed++)
	{
		bool		good = live(&world, &all_rules, edges, seed);

		tokens += world.tokens;
		errors += world.errors;
		if (!good)
			break;
	}
	if (!ok(seed == HISTORIES, "%d histories%s: every token is greater than all before it", HISTORIES,
			edges ? " near the last number" : ""))
		fprintf(stderr, "# history %llu, %s: %s\n", (unsigned long long) seed, world.event, world.wrong);
	ok(tokens > (edges ? HISTORIES : 50 * HISTORIES), "there were many tokens");
	if (edges)
		ok(errors > HISTORIES, "and numbers were exhausted often");
}

static void
test_each_rule(void)
{
#define RULE(name) {#name, offsetof(Rules, name)}
	static const struct
	{
		const char *name;
		size_t		offset;
	}			rules[] = {
		RULE(foreign_mark), RULE(foreign_dump), RULE(fresh_era), RULE(above_mark),
		RULE(identity_has_database), RULE(mark_last), RULE(base_first), RULE(flush), RULE(publish_last),
		RULE(every_setval), RULE(enter_era), RULE(merge), RULE(look_at_dump), RULE(standbys_wait),
		RULE(new_timeline),
	};

	StaticAssertStmt(lengthof(rules) * sizeof(bool) == sizeof(Rules), "a rule is missing");
	for (int i = 0; i < lengthof(rules); i++)
	{
		Rules		without = all_rules;
		bool		good = true;

		*((bool *) ((char *) &without + rules[i].offset)) = false;
		for (uint64 seed = 0; seed < HISTORIES && good; seed++)
			good = live(&world, &without, false, seed);
		if (ok(!good, "without the rule %s some history goes wrong", rules[i].name))
			printf("# %s, %s\n", world.event, world.wrong);
	}
}

/* A number of the size of a token, at the ends more often than in between. */
static int64
any_token(void)
{
	static const int64 eras[] = {0, 1, 2, 3, 4, 7, TOKEN_MAX_ERA - 2, TOKEN_MAX_ERA - 1, TOKEN_MAX_ERA};
	static const int64 numbers[] = {0, 1, 2, 8192, TOKEN_MAX_N - 8192, TOKEN_MAX_N - 1, TOKEN_MAX_N};

	return TOKEN(chance(80) ? eras[below(lengthof(eras))] : below(TOKEN_MAX_ERA + 1),
				 chance(80) ? numbers[below(lengthof(numbers))] : below(TOKEN_MAX_N + 1));
}

static void
test_against_model(void)
{
	static const int64 sizes[] = {1, 2, 8192, TOKEN_MAX_N};
	int			differences = 0;
	int			outcomes[3] = {0};

	random_state = 42;
	for (int i = 0; i < 500000; i++)
	{
		TokenState	state = {any_token(), token_era(any_token()), below(4), token_era(any_token()), below(4)};
		int64		known = chance(50) ? 0 : any_token();
		int64		timeline = 1 + (chance(90) ? below(5) : below(TOKEN_MAX_ERA));
		int64		size = sizes[below(lengthof(sizes))];
		int64		beyond = any_token();
		uint64		identity = 1 + below(3);
		TokenBlock	block = {{0}},
					expected_block = {{0}};
		TokenState	next = {0},
					expected_next = {0};
		TokenOutcome outcome;
		TokenOutcome advanced;

		if (chance(30))
			state.base = Max(token_era(state.mark) - timeline, 0);
		outcome = token_reserve(&state, identity, timeline, known, size, &block);
		advanced = token_advance(&state, identity, timeline, beyond, &next);

		if (outcome != model_reserve(&all_rules, &state, identity, timeline, known, size, &expected_block) ||
			!same_state(&block.next, &expected_block.next) ||
			block.first != expected_block.first || block.last != expected_block.last ||
			advanced != model_advance(&all_rules, &state, identity, timeline, beyond, &expected_next) ||
			!same_state(&next, &expected_next))
			differences++;
		outcomes[outcome]++;

		/* and directly: what must hold, whatever the way to it */
		if (outcome == TOKEN_RESERVED &&
			(block.first <= state.mark || block.first <= known || block.last > TOKEN_MAX ||
			 block.last < block.first || block.next.mark != block.last || block.next.base < state.base ||
			 token_era(block.first) != block.next.base + timeline))
			differences++;
		if (advanced == TOKEN_RESERVED &&
			(next.mark != state.mark || next.base < state.base || next.base + timeline > TOKEN_MAX_ERA ||
			 next.base + timeline <= token_era(beyond)))
			differences++;
	}
	is(differences, 0, "the arithmetic agrees with its second copy about any state");
	ok(outcomes[TOKEN_RESERVED] > 1000 && outcomes[TOKEN_ERA_EXHAUSTED] > 1000 && outcomes[TOKEN_N_EXHAUSTED] > 1000,
	   "with each outcome");
}

static void
test_ends(void)
{
	TokenState	state = {TOKEN(3, TOKEN_MAX_N - 3), 2, 7, 3, 7};
	TokenState	next;
	TokenBlock	block;

	is(token_reserve(&state, 7, 1, 0, 8192, &block), TOKEN_RESERVED, "the last block of an era");
	is(block.last, TOKEN(3, TOKEN_MAX_N), "is a short one");
	is(block.last - block.first, 2, "with what was left");
	state = block.next;
	is(token_reserve(&state, 7, 1, 0, 8192, &block), TOKEN_N_EXHAUSTED, "then the era has no more, and is not left by itself");
	is(token_reserve(&state, 7, 1, state.mark, 8192, &block), TOKEN_N_EXHAUSTED, "however it is asked");
	is(token_reserve(&state, 7, 2, 0, 8192, &block), TOKEN_RESERVED, "a promotion goes on");
	is(block.first, TOKEN(4, 1), "in the next era, from 1");
	is(token_advance(&state, 7, 1, state.mark, &next), TOKEN_RESERVED, "and so does advance");
	is(token_reserve(&next, 7, 1, state.mark, 8192, &block), TOKEN_RESERVED, "which opens a block");
	is(block.first, TOKEN(4, 1), "in the next era, from 1");

	state = (TokenState) {TOKEN(TOKEN_MAX_ERA, TOKEN_MAX_N - 1), TOKEN_MAX_ERA - 1, 7, TOKEN_MAX_ERA, 7};
	is(token_reserve(&state, 7, 1, 0, 8192, &block), TOKEN_RESERVED, "the very last token");
	is(block.first, TOKEN_MAX, "is the greatest there can be");
	is(token_reserve(&block.next, 7, 1, 0, 8192, &block), TOKEN_N_EXHAUSTED, "and nothing follows it");
	is(token_reserve(&state, 7, 2, 0, 8192, &block), TOKEN_ERA_EXHAUSTED, "there is no era for another timeline");
	is(token_reserve(&state, 8, 1, 0, 8192, &block), TOKEN_ERA_EXHAUSTED, "nor for a copy");
	is(token_advance(&state, 7, 1, TOKEN_MAX, &next), TOKEN_ERA_EXHAUSTED, "nor beyond it");
	is(token_advance(&state, 7, 1, PG_INT64_MAX, &next), TOKEN_ERA_EXHAUSTED, "nor beyond any number");

	state = (TokenState) {0};
	is(token_reserve(&state, 7, TOKEN_MAX_ERA + 1, 0, 1, &block), TOKEN_ERA_EXHAUSTED, "nor for such a timeline");
	is(token_reserve(&state, 7, 1, 0, 1, &block), TOKEN_RESERVED, "a new database");
	is(block.first, TOKEN(1, 1), "begins with 1 in era 1");
	is(token_reserve(&state, 7, 1, TOKEN(1, 100), 1, &block), TOKEN_RESERVED, "what shared memory knows");
	is(block.first, TOKEN(1, 101), "counts like a mark");
}

static void
test_packing(void)
{
	const uint64 greatest = (UINT64CONST(1) << TOKEN_IDENTITY_BITS) - 1;
	int			differences = 0;
	int64		era;
	uint64		identity;

	random_state = 7;
	for (int i = 0; i < 100000; i++)
	{
		int64		some_era = chance(10) ? TOKEN_MAX_ERA - below(2) : below(TOKEN_MAX_ERA + 1);
		uint64		some_identity = chance(10) ? greatest - below(2) : random_bits() & greatest;
		int64		packed = token_pack(some_era, some_identity);

		token_unpack(packed, &era, &identity);
		if (packed < 0 || era != some_era || identity != some_identity)
			differences++;
	}
	is(differences, 0, "era and identity survive packing into a number that is not negative");
	token_unpack(0, &era, &identity);
	ok(era == 0 && identity == 0, "a sequence that was never set is nobody's");
	is(token_era(TOKEN(3, 17)), 3, "the era is above the number");
	is(token_era(TOKEN_MAX), TOKEN_MAX_ERA, "also in the highest token there can be");
	is(TOKEN_MAX, (INT64CONST(1) << 62) - 1, "which is a positive bigint");
}

int
main(void)
{
	test_packing();
	test_ends();
	test_against_model();
	test_histories(false);
	test_histories(true);
	test_each_rule();
	return done_testing();
}
