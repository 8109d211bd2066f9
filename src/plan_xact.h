/*
 * plan_xact.h
 *	  What a transaction did to plans and splits, and what becomes of it at its end.
 */
#ifndef REVENANT_PLAN_XACT_H
#define REVENANT_PLAN_XACT_H

#include "postgres.h"

#include "lib/ilist.h"

#include "plan_use.h"

typedef enum PlanOpKind
{
	PLAN_OP_TAKE,				/* a number was taken from the queue; back it goes at the abort */
	PLAN_OP_CLAIM,				/* a split is owned from the commit on */
	PLAN_OP_GAIN,				/* the same, by a member that was offered it */
	PLAN_OP_END,				/* a claim ends */
	PLAN_OP_FENCE,				/* a claim cannot change hands before the end of the transaction */
	PLAN_OP_NEWS,				/* a member is told of something */
	PLAN_OP_JOIN,
	PLAN_OP_LEAVE,				/* or its time was over */
	PLAN_OP_REPLACE,			/* a member is replaced by another one of its name */
	PLAN_OP_BUSY,				/* who has the right to add news to a member */
	PLAN_OP_COUNT,				/* nothing, but that it is counted */
	PLAN_OP_REPEAT,				/* a split was found to be done: that is the answer for who has written nothing */
	PLAN_OP_REQUEUE,			/* out of quarantine */
	PLAN_OP_PUBLISH,			/* `row`: what the plan says from the commit on */
	PLAN_OP_PURGE,				/* number: how many done splits are gone */
	PLAN_OP_RESET,
	PLAN_OP_CREATE,
	PLAN_OP_ALTER,
	PLAN_OP_ADOPT,				/* its rows were written by others: they are read when it is used next */
	PLAN_OP_DROP
} PlanOpKind;

/* One thing that the transaction did. What plan_op_add() gives is zeroed; set what matters for its kind. */
typedef struct PlanOp
{
	dlist_node	node;			/* oldest first */
	PlanOpKind	kind;
	PlanUse    *use;
	int			nest_level;		/* of the subtransaction it belongs to */
	int64		number;			/* of the split; of a PURGE, how many; of a PUBLISH, the next of its own to be claimed here */
	int64		epoch;
	int64		member;			/* whose the claim is, or which member */
	int64		weight;
	ClaimEnd	how;			/* END */
	SplitState	state;			/* END: where the split is then */
	PlanCounter counted;		/* what is counted at the commit; PLAN_COUNTERS: nothing */
	int64		drained_us;		/* END: how long its drain took; 0: it was none */
	bool		fresh;			/* TAKE, CLAIM: it was never owned */
	bool		undone;			/* it came to nothing */
	bool		locked;			/* FENCE: by a lock of the claim, and not by its row's */
	MemberNews	news;			/* NEWS, GAIN */
	PlanRow    *row;			/* PUBLISH, ALTER, CREATE, RESET */
	int64		done;			/* PUBLISH: so many splits began done */
} PlanOp;

extern void plan_xact_install_callbacks(void);

extern PlanOp *plan_op_add(PlanOpKind kind, PlanUse *use);
extern void plan_op_forget(PlanOp *op);
extern void plan_op_count(PlanUse *use, PlanCounter which);
extern void plan_op_of_claim(PlanOp *op, int64 epoch);
extern PlanOp *plan_op_end(PlanUse *use, int64 epoch, int64 number, int64 member, int64 weight, ClaimEnd how, SplitState state);
extern PlanOp *plan_op_find(PlanOpKind kind, int64 epoch);
extern bool plan_op_exists(PlanOpKind kind, const PlanUse *use, int64 member);
extern int	plan_op_pending_news(int64 member);
extern void plan_op_count_fence(PlanOp *op);
extern void plan_require_fence_room(void);
extern bool plan_take_own(PlanUse *use, int64 *number);
extern void plan_op_keep_row(PlanOp *op, const PlanRow *row);
extern bool plan_use_has_ops(const PlanUse *use);
extern bool plan_xact_is_empty(void);
extern void plan_xact_begin_claims(void);
extern void plan_xact_end_claims(void);
extern void plan_xact_begin_steps(void);
extern void plan_xact_end_steps(void);
extern bool plan_xact_has_effects(void);

#endif							/* REVENANT_PLAN_XACT_H */
