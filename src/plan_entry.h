/*
 * plan_entry.h
 *	  The shared-memory entry of a plan: how far it is, and what of it can be claimed.
 */
#ifndef REVENANT_PLAN_ENTRY_H
#define REVENANT_PLAN_ENTRY_H

#include "postgres.h"

#include "lib/dshash.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "utils/dsa.h"

#include "digest.h"
#include "plan.h"

/* What is counted of a plan, since the server's start or stat_reset(). plan_view.c shows it. */
typedef enum PlanCounter
{
	PLAN_ACQUIRED_CREATE = 0,	/* claims of what was never owned */
	PLAN_ACQUIRED_RECLAIMED,	/* ... of what was released, failed or requeued */
	PLAN_ACQUIRED_EXPIRED,		/* ... of what had expired */
	PLAN_ACQUIRED_REASSIGNED,	/* ... of what was drained or revoked for the sake of balance, or went on under a new epoch */
	PLAN_LOST_FENCED,
	PLAN_LOST_STARVED,
	PLAN_LOST_REVOKED,
	PLAN_LOST_EXPIRED,
	PLAN_RELEASES,
	PLAN_COMMITS,				/* that changed something */
	PLAN_FINISHED,				/* splits that became done by a commit */
	PLAN_FAILURES,
	PLAN_QUARANTINES,
	PLAN_REVOCATIONS_REQUESTED,
	PLAN_REVOCATIONS_DRAINED,
	PLAN_REVOCATIONS_FORCED,
	PLAN_REVOCATIONS_CANCELLED,
	PLAN_REVOCATIONS_DECLINED,
	PLAN_SPLITS_PLANNED,
	PLAN_REPLANS_OK,
	PLAN_REPLANS_NOOP,
	PLAN_REPLANS_ERROR,
	PLAN_REPLANS_FENCED,
	PLAN_REPLAN_US,				/* how long replans took, all together */
	PLAN_DRAIN_US,				/* ... drains, from the request to their end */
	PLAN_ASSIGNMENTS,			/* computations of who gets what */
	PLAN_ASSIGN_US,
	PLAN_FENCED_WRITES,			/* calls with an epoch or a generation that was refused */
	PLAN_COUNTERS				/* how many there are */
} PlanCounter;

typedef struct PlanKey
{
	Oid			database;
	Oid			instance;		/* pg_extension.oid */
	uint8		digest[DIGEST_BYTES];	/* of the name */
} PlanKey;

/* Numbers of splits, oldest first; in the area, bounded: what does not fit is found in the rows again. */
typedef struct NumberQueue
{
	dsa_pointer place;			/* of int64 */
	int			capacity;
	int			head;
	int			count;
} NumberQueue;

/* What became of a split, for who assigns splits to members */
typedef struct PlanNote
{
	int64		number;
	int64		member;			/* whose it is now; NOTE_RUNNABLE, NOTE_GONE */
} PlanNote;

#define NOTE_RUNNABLE INT64CONST(0)
#define NOTE_GONE INT64CONST(-1)	/* done, quarantined, or a puller's */

#define PLAN_NOTES 4096
#define PLAN_QUEUE_MAX (1024 * 1024)	/* numbers: 8 MB */
#define RATE_BUCKETS 64			/* seconds that the rate looks back, and the one that is not over */

/*
 * A plan. key never changes; pins, counters and seen_us are atomic: what is pinned stays
 * where it is. The rest is under `lock`. Lock order: the table's partition,
 * then lock; with lock held a claim's or member's partition may be taken, never the other way round.
 */
typedef struct PlanEntry
{
	PlanKey		key;
	pg_atomic_uint32 pins;
	LWLock		lock;

	/* what it is; valid while it is loaded */
	bool		loaded;
	bool		gone;			/* dropped, or not there any more: look at its row before it is used */
	int			creator_pid;	/* the transaction of this process that made it has not ended; 0: it has */
	bool		made_here;		/* by a transaction of this server's life, which has asked for its planner, too */
	int64		plan_id;
	Oid			owner;
	bool		native;
	int64		lease_ttl_us;
	int			max_attempts;
	int			max_in_flight;
	int64		rebalance_delay_us;
	int64		drain_deadline_us;
	bool		has_fingerprint;
	uint8		fingerprint[DIGEST_BYTES];

	/* how far it is; as committed */
	bool		final;
	PlanVerdict verdict;
	int64		verdict_seq;
	int64		planned;
	int64		done;
	int64		quarantined;
	int64		owned;			/* claims, by pulling and of members */
	pg_atomic_uint64 floor;		/* splits up to this number are gone by a reset; written under the lock */

	/* what can be claimed: splits that were never owned from fresh_next to fresh_end, and those that were given back */
	int64		fresh_next;
	int64		fresh_end;
	NumberQueue first;			/* never owned after all: their claims were rolled back */
	NumberQueue again;
	bool		queue_lost;		/* some number did not fit: they are all in the rows */

	/* members, and who assigns splits to them */
	int			members;
	int64		balanced_from_us;	/* no move for the sake of balance before */
	uint64		assign_wanted;	/* grows when the assignment may be another one */
	uint64		assigned;		/* the value of assign_wanted that the latest assignment saw */
	dsa_pointer notes;			/* of PlanNote; from the first member on */
	uint64		noted;			/* how many were ever written */
	bool		notes_lost;
	bool		touched;		/* the supervisor is to look whether this is the end of it */
	int64		look_us;		/* when the supervisor looks at deadlines next; 0: at once */

	/* how fast it goes */
	int64		rate_second;	/* of the clock: the newest bucket's */
	int64		rate_since_us;	/* when the first commit that is counted was made */
	uint32		rate_done[RATE_BUCKETS];

	ConditionVariable available;	/* something can be claimed, or it is over */
	ConditionVariable assignment;
	pg_atomic_uint64 counters[PLAN_COUNTERS];
	pg_atomic_uint64 since;		/* TimestampTz: when they were zero */
	int			name_len;
	char		name[PLAN_NAME_MAX + 1];
} PlanEntry;


/* In bytes of the area: an entry of a table, an array */
#define PLAN_ENTRY_BYTES(type) ((sizeof(type) + 16) * 9 / 8 + 16)
#define PLAN_ARRAY_BYTES(size) (MAXALIGN(size) * 5 / 4)

/*
 * Whether a purge of a database removes what is of this one and of this instance of the extension, and is over or not: what is over, and
 * all of any other instance than one. InvalidOid: of every database what is over.
 */
static inline bool
plan_purge_removes(Oid of_database, Oid of_instance, bool is_over, Oid database, Oid keep_instance)
{
	if (!OidIsValid(database))
		return is_over;
	return of_database == database && (is_over || of_instance != keep_instance);
}

extern const dshash_parameters *plan_entry_params(void);
extern void plan_require_room(Size bytes);
extern compat_noreturn void plan_raise_no_room(void);
extern void plan_key_make(PlanKey *key, Oid instance, const char *name);
extern PlanEntry *plan_entry_pin(const PlanKey *key, const char *name, bool create);
extern void plan_entry_unpin(PlanEntry *entry);
extern void plan_entry_define(PlanEntry *entry, const PlanRow *row);
extern void plan_entry_begin(PlanEntry *entry, const PlanRow *row);
extern void plan_entry_reset(PlanEntry *entry, const PlanRow *row);
extern bool plan_entry_has_fingerprint(const PlanEntry *entry, const char *given);
extern int	plan_entry_take(PlanEntry *entry, int64 plan_id, int64 *numbers, bool *fresh, int wanted);
extern void plan_entry_reserve(PlanEntry *entry, int more);
extern void plan_entry_reserve_first(PlanEntry *entry, int more);
extern void plan_entry_reserve_again(PlanEntry *entry, int more);
extern void plan_entry_put_back(PlanEntry *entry, int64 number, bool fresh);
extern void plan_entry_return(PlanEntry *entry, int64 number, bool fresh);
extern void plan_entry_forget_queues(PlanEntry *entry);
extern void plan_entry_map(PlanEntry *entry);
extern int64 plan_entry_floor(PlanEntry *entry);
extern int64 plan_entry_available(const PlanEntry *entry);
extern void plan_entry_keep_notes(PlanEntry *entry);
extern void plan_entry_want_assignment(PlanEntry *entry);
extern void plan_entry_note(PlanEntry *entry, int64 number, int64 member);
extern int	plan_entry_read_notes(PlanEntry *entry, uint64 *from, PlanNote *notes);
extern void plan_entry_note_done(PlanEntry *entry);
extern double plan_entry_rate(PlanEntry *entry);
extern void plan_entry_visit(Oid instance, void (*visit) (PlanEntry *entry, void *arg), void *arg);
extern void plan_entry_purge(Oid database, Oid keep_instance);
extern void plan_count(PlanEntry *entry, PlanCounter which, int64 more);
extern void plan_reset_counters(Oid instance);

#endif							/* REVENANT_PLAN_ENTRY_H */
