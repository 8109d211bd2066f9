/*
 * balance.h
 *	  Who works on which split. Arithmetic only.
 */
#ifndef REVENANT_BALANCE_H
#define REVENANT_BALANCE_H

#include "postgres.h"

typedef struct BalanceMember
{
	int64		member;			/* its token, no two are the same: order among equals */
	int			capacity;		/* how many splits it takes at most */
} BalanceMember;

typedef struct BalanceSplit
{
	int64		number;			/* no two are the same: order among equals */
	int64		weight;			/* at least 1 */
	int			owner;			/* index of its member, or -1 */
	bool		stays;			/* its owner keeps it, whatever the balance says */
} BalanceSplit;

/* More than this is no more, so that no sum overflows. */
#define BALANCE_WEIGHT_MAX(nsplits) (PG_INT64_MAX / 2 / Max(nsplits, 1))

extern int	balance_assign(const BalanceMember *members, int nmembers, const BalanceSplit *splits, int nsplits,
						   bool may_move, int max_moves, int *targets);

#endif							/* REVENANT_BALANCE_H */
