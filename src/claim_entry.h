/*
 * claim_entry.h
 *	  The shared-memory entry of a claim: until when a split is whose.
 */
#ifndef REVENANT_CLAIM_ENTRY_H
#define REVENANT_CLAIM_ENTRY_H

#include "postgres.h"

#include "lib/dshash.h"
#include "storage/lock.h"

#include "plan_entry.h"

typedef struct ClaimKey
{
	Oid			database;
	Oid			instance;
	int64		epoch;
} ClaimKey;

typedef enum ClaimState
{
	CLAIM_PENDING,				/* its transaction has not ended */
	CLAIM_LIVE,
	CLAIM_ENDING,				/* somebody's transaction ends it */
	CLAIM_DEAD					/* to be removed by anybody */
} ClaimState;

typedef enum DrainState
{
	DRAIN_NONE,
	DRAIN_REQUESTED,			/* its member was told to hand it over */
	DRAIN_CANCELLED,			/* ... and then not to; it has not been heard of since */
} DrainState;

/* A split that is owned. All of it is under its partition's lock. */
typedef struct ClaimEntry
{
	ClaimKey	key;
	ClaimState	state;
	int64		plan_id;
	PlanKey		plan;
	int64		number;
	uint64		name_hash;		/* of the split's name */
	int64		member;			/* whose; 0: a puller's */
	Oid			role;			/* that claimed */
	int			pid;			/* PENDING, ENDING: whose transaction, of which process */
	VirtualTransactionId ender; /* ENDING: the same, to be waited for */
	int64		ttl_us;
	int64		deadline_us;	/* of a puller's; a member's is its member's */
	int64		retry_us;		/* its end was tried in vain: somebody has it in a transaction; not again before */
	int64		weight;
	DrainState	drain;
	int64		drain_since_us;
	int64		drain_seq;		/* of the event that told of it */
	int64		declined_us;	/* when its member last refused to hand it over; 0: never */
} ClaimEntry;


/* What is found, or made, is locked until it is released. */
extern const dshash_parameters *claim_entry_params(void);
extern ClaimEntry *claim_find(Oid instance, int64 epoch);
extern ClaimEntry *claim_make(Oid instance, int64 epoch);
extern void claim_release(ClaimEntry *claim);
extern bool claim_is_over(const ClaimEntry *claim, int64 now_us);
extern void claim_reap(Oid instance, int64 epoch);
extern void claim_visit(Oid instance, bool (*visit) (ClaimEntry *claim, void *arg), void *arg);
extern void claim_entry_purge(Oid database, Oid keep_instance);
extern uint64 split_name_hash(const char *name);

#endif							/* REVENANT_CLAIM_ENTRY_H */
