/*-------------------------------------------------------------------------
 *
 * token.c
 *	  The arithmetic of fence tokens.
 *
 * Pure functions from the durable state to the next one: fence.c reads and
 * writes that state, test/unit/token.c asks this file everything.
 *
 * A token is (era << 40) + n. The era is base + timeline: a promotion takes a
 * new timeline, so a promoted standby's tokens exceed all of every earlier
 * primary's, including those whose WAL never arrived. Where the timeline says
 * nothing (the state was written by another cluster, database or instance of
 * the extension: dump and restore, a template, an upgrade), base becomes the
 * era of the stored mark.
 *
 * NOTES
 *	  A dump carries one number: the era it was taken in and a digest of whose
 *	  era that was. Whoever finds somebody else's there enters an era above it:
 *	  the source may have issued any token of its era after the dump.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "token.h"

/* The base by which the next block is reserved, so that its era is above all that is known. */
static int64
next_base(const TokenState *state, uint64 identity, int64 timeline, int64 known_mark)
{
	int64		base = state->base;
	int64		highest = Max(state->mark, known_mark);

	if (state->identity != 0 && state->identity != identity)
		base = Max(base, token_era(state->mark));
	if (state->dump_identity != 0 && state->dump_identity != identity)
		base = Max(base, state->dump_era);
	/* a mark ahead of its era, for whatever reason: enter a fresh one */
	if (token_era(highest) > base + timeline)
		base = token_era(highest) + 1 - timeline;
	return base;
}

/*
 * Reserves the next block of at most `size` tokens. `known_mark` is the
 * highest mark this server's life knows of beside the durable one (0: none).
 * The caller makes block->next durable, in the order dump and base before
 * mark, before it hands out block->first .. block->last.
 */
TokenOutcome
token_reserve(const TokenState *state, uint64 identity, int64 timeline,
			  int64 known_mark, int64 size, TokenBlock *block)
{
	int64		base = next_base(state, identity, timeline, known_mark);
	int64		era = base + timeline;
	int64		floor;
	int64		end;

	if (era > TOKEN_MAX_ERA)
		return TOKEN_ERA_EXHAUSTED;
	floor = Max(Max(state->mark, known_mark), era << TOKEN_N_BITS);
	end = (era << TOKEN_N_BITS) + TOKEN_MAX_N;
	if (floor >= end)
		return TOKEN_N_EXHAUSTED;

	block->first = floor + 1;
	block->last = Min(floor + size, end);
	block->next.mark = block->last;
	block->next.base = base;
	block->next.identity = identity;
	block->next.dump_era = era;
	block->next.dump_identity = identity;
	return TOKEN_RESERVED;
}

/*
 * The state by which the next block is in an era above that of `beyond`: base
 * is raised, nothing else moves. Never lowers anything. TOKEN_ERA_EXHAUSTED
 * when there is no such era.
 */
TokenOutcome
token_advance(const TokenState *state, uint64 identity, int64 timeline,
			  int64 beyond, TokenState *next)
{
	int64		base = next_base(state, identity, timeline, 0);
	int64		wanted = token_era(beyond) + 1;

	if (wanted > base + timeline)
		base = wanted - timeline;
	if (base + timeline > TOKEN_MAX_ERA)
		return TOKEN_ERA_EXHAUSTED;
	*next = *state;
	next->base = base;
	next->identity = identity;
	next->dump_era = base + timeline;
	next->dump_identity = identity;
	return TOKEN_RESERVED;
}

/* One non-negative bigint of an era (or a base) and the digest of whose it is. */
int64
token_pack(int64 era, uint64 identity)
{
	return (era << TOKEN_IDENTITY_BITS) | (int64) identity;
}

/* The inverse of token_pack(). */
void
token_unpack(int64 packed, int64 *era, uint64 *identity)
{
	*era = packed >> TOKEN_IDENTITY_BITS;
	*identity = (uint64) packed & ((UINT64CONST(1) << TOKEN_IDENTITY_BITS) - 1);
}
