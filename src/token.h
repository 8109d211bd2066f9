/*
 * token.h
 *	  The arithmetic of fence tokens; no executor, no shared memory, no clock.
 *
 * A token is (era << 40) + n with n from 1. See fence.c for how eras come about.
 */
#ifndef REVENANT_TOKEN_H
#define REVENANT_TOKEN_H

#include "postgres.h"

#define TOKEN_N_BITS 40
#define TOKEN_ERA_BITS 22
#define TOKEN_MAX_ERA ((INT64CONST(1) << TOKEN_ERA_BITS) - 1)
#define TOKEN_MAX_N ((INT64CONST(1) << TOKEN_N_BITS) - 1)
#define TOKEN_MAX ((TOKEN_MAX_ERA << TOKEN_N_BITS) + TOKEN_MAX_N)
#define TOKEN_IDENTITY_BITS 41

/* What is durable about tokens, as read from the three sequences of fence.c. */
typedef struct TokenState
{
	int64		mark;			/* highest token that may have been issued; 0: none */
	int64		base;			/* what is added to the timeline */
	uint64		identity;		/* digest of who wrote base; 0: nobody yet */
	int64		dump_era;		/* what a dump carries: the era it was taken in ... */
	uint64		dump_identity;	/* ... and whose; 0: nobody's yet */
} TokenState;

typedef enum TokenOutcome
{
	TOKEN_RESERVED,
	TOKEN_ERA_EXHAUSTED,		/* the era would pass 2^22 */
	TOKEN_N_EXHAUSTED			/* n would pass 2^40 */
} TokenOutcome;

/* The result of token_reserve(): the next durable state and the block it opens. */
typedef struct TokenBlock
{
	TokenState	next;
	int64		first;			/* first token of the block */
	int64		last;			/* last one; equals next.mark */
} TokenBlock;

static inline int64
token_era(int64 token)
{
	return token >> TOKEN_N_BITS;
}

extern TokenOutcome token_reserve(const TokenState *state, uint64 identity, int64 timeline,
								  int64 known_mark, int64 size, TokenBlock *block);
extern TokenOutcome token_advance(const TokenState *state, uint64 identity, int64 timeline,
								  int64 beyond, TokenState *next);
extern int64 token_pack(int64 era, uint64 identity);
extern void token_unpack(int64 packed, int64 *era, uint64 *identity);

#endif							/* REVENANT_TOKEN_H */
