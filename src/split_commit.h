/*
 * split_commit.h
 *	  What a worker says of a split that it has claimed.
 */
#ifndef REVENANT_SPLIT_COMMIT_H
#define REVENANT_SPLIT_COMMIT_H

#include "postgres.h"

#include "split_claim.h"

/* A call on behalf of a worker: the plan, and the tables of its splits */
typedef struct SplitWork
{
	PlanUse    *use;
	SplitTables tables;
	bool		wrote;
} SplitWork;

extern void split_work_begin(SplitWork *work, char *plan, LOCKMODE mode);
extern void split_work_end(SplitWork *work);
extern void split_tell_quarantined(const PlanUse *use, const char *split, int64 epoch, int attempts, const char *reason);
extern void split_wait_for_fences(SplitWork *work, int64 epoch);
extern bool split_try_end_claim(PlanUse *use, SplitTables *tables, PlanOp *op, const char *reason);
extern bool split_end_claim(SplitWork *work, int64 epoch, const ClaimLook *look, ClaimEnd how, const char *reason);

#endif							/* REVENANT_SPLIT_COMMIT_H */
