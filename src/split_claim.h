/*
 * split_claim.h
 *	  Claims of splits: made, looked at, fenced, ended.
 */
#ifndef REVENANT_SPLIT_CLAIM_H
#define REVENANT_SPLIT_CLAIM_H

#include "postgres.h"

#include "compat.h"
#include "plan_xact.h"

#define CLAIM_MAX 10000			/* splits by one call */

/* What an epoch is worth now. */
typedef enum ClaimStanding
{
	CLAIM_CURRENT,
	CLAIM_EXPIRED,				/* the newest one, but its time is over */
	CLAIM_UNKNOWN,				/* no claim: what it was its row says */
	CLAIM_BUSY					/* another transaction is about to end it */
} ClaimStanding;

/* One claim, as it was looked at */
typedef struct ClaimLook
{
	ClaimStanding standing;
	int64		number;
	int64		member;
	int64		weight;
	Oid			role;
	DrainState	drain;
	int64		drain_since_us;
	VirtualTransactionId ender; /* CLAIM_BUSY: whose end decides */
} ClaimLook;

/* split_claim.c */
extern int64 plan_ttl_arg(FunctionCallInfo fcinfo, int n, int64 unless_us);
extern char *plan_worker_arg(FunctionCallInfo fcinfo, int n);
extern bool split_is_own_doing(const PlanUse *use, const SplitRow *row);
extern PlanCounter claim_acquired_as(const SplitRow *row);
extern void claim_open(const PlanUse *use, const SplitSpec *spec, int64 epoch, int64 member, Oid role, int64 ttl_us);
extern void claim_touch(const PlanUse *use, const char *split, int64 epoch, int64 ttl_us, ClaimLook *look);
extern void claim_mark_ending(ClaimEntry *claim);
extern bool claim_begin_end(const PlanUse *use, int64 epoch);
extern void claim_cancel_end(const PlanUse *use, int64 epoch);
extern void claim_heal(Oid instance, int64 epoch, const VirtualTransactionId *ender);
extern LOCKTAG claim_lock_tag(int64 epoch);
extern compat_noreturn void claim_raise(PlanUse *use, SplitTables *tables, const char *split, int64 epoch);

#endif							/* REVENANT_SPLIT_CLAIM_H */
