/*
 * lease_entry.h
 *	  The shared-memory entry of a lease: who is alive now.
 */
#ifndef REVENANT_LEASE_ENTRY_H
#define REVENANT_LEASE_ENTRY_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "lib/dshash.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/lock.h"
#include "storage/spin.h"
#include "utils/dsa.h"

#include "compat.h"
#include "lease.h"

typedef struct LeaseKey
{
	Oid			database;
	Oid			instance;		/* pg_extension.oid */
	uint8		digest[16];		/* SHA-256 of instance and name, its first half */
} LeaseKey;

/* One hold of a name. */
typedef struct LeaseHold
{
	int64		token;
	int64		ttl_us;			/* LEASE_TTL: as the row has it */
	int64		deadline_us;	/* LEASE_TTL, LEASE_DELAYED: on the monotonic clock */
	int64		unaccepted_us;	/* of a row that was read before this server accepted writes: so long after that it lapses; else 0 */
	int64		lock_delay_us;	/* LEASE_TTL: for how long nobody gets it after a lapse */
	TimestampTz acquired_at;
	dsa_pointer note;			/* LeaseNote of a session or transaction holder; a ttl holder's is in its row */
	Oid			role;
	int			procno;			/* session, transaction: the holder's PGPROC ... */
	int			pid;			/* ... and process; of a ttl holder the one that acquired */
	uint8		scope;			/* LeaseScope; LEASE_FREE: no hold */
	bool		bound;			/* LEASE_TTL: ends with its session, which has B */
	bool		shared;			/* session, transaction: one of several, by a token of its own */
	bool		election;		/* LEASE_TTL: by claim() */
	uint16		set_size;		/* of the set of names that was acquired with this token */
} LeaseHold;

/*
 * key and name never change. pins is atomic: what is pinned is not deleted.
 * The rest is under the mutex. Lock order: the table's partition, then mutex.
 */
typedef struct LeaseEntry
{
	LeaseKey	key;
	pg_atomic_uint32 pins;
	slock_t		mutex;
	bool		settled;		/* `now` says what the row says; false: nobody has looked yet */
	uint16		name_len;
	dsa_pointer name;
	ConditionVariable changed;	/* who sleeps for the end of a ttl hold, or for any change */
	uint64		changes;		/* another number after each change */
	int64		noted_end;		/* the token whose end by itself was counted as a change */
	uint32		stores;			/* how often `now` was written by who read the row, or freed it */
	LeaseHold	now;			/* the hold that is committed */
	LeaseHold	next;			/* of a transaction that has not ended yet */
} LeaseEntry;

extern const dshash_parameters *lease_entry_params(void);

extern void lease_key_make(LeaseKey *key, const char *name);
extern LOCKTAG lease_lock_hold(const LeaseKey *key);
extern LOCKTAG lease_lock_fence(const LeaseKey *key);
extern LOCKTAG lease_lock_bound(const LeaseKey *key);
extern Size lease_entry_shmem_size(void);
extern void lease_entry_shmem_init(void *place, bool found);

/* How to look for an entry: as it is, made for a new lease (of a user, or a task), or made for one that has a row */
typedef enum LeasePin
{
	LEASE_PIN_EXISTING,
	LEASE_PIN_CREATE,
	LEASE_PIN_RESERVED,			/* as CREATE, also from what is kept for tasks: see shmem.c */
	LEASE_PIN_LOAD				/* as CREATE, also from what is kept in reserve; this process's own when that is used up */
} LeasePin;

extern void lease_entry_init(LeaseEntry *entry, const char *name, dsa_pointer name_place);
extern LeaseEntry *lease_entry_pin(const LeaseKey *key, const char *name, LeasePin how);
extern LeaseEntry *lease_entry_pin_again(LeaseEntry *entry);
extern void lease_entry_unpin(LeaseEntry *entry);
extern void lease_entry_retire(const LeaseEntry *entry);
extern void lease_entry_reap(void);
extern void lease_entry_purge(Oid database, Oid keep_instance);
extern bool lease_entry_is_outdated(const LeaseEntry *local);
extern const char *lease_entry_name(const LeaseEntry *entry);
extern void lease_entry_need_room(Size bytes);
extern compat_noreturn void lease_entry_raise_no_room(void);
extern dsa_pointer lease_entry_allocate(Size size);

extern bool lease_entry_is_settled(LeaseEntry *entry);
extern void lease_entry_snapshot(LeaseEntry *entry, LeaseHold *now, LeaseHold *next);
extern bool lease_entry_is_live(LeaseEntry *entry, LeaseHold *now);
extern bool lease_entry_is_taken(LeaseEntry *entry, LeaseHold *now);
extern int64 lease_hold_free_from(const LeaseHold *hold);
extern bool lease_hold_lost_its_session(const LeaseHold *hold, const LeaseKey *key);
extern void lease_entry_note_change(LeaseEntry *entry);
extern void lease_entry_note_end(LeaseEntry *entry);
extern uint64 lease_entry_changes(LeaseEntry *entry);
extern void lease_entry_visit(void (*visit) (LeaseEntry *entry, void *arg), void *arg);
extern int	lease_entry_count_mine(void);
extern void lease_entry_set_free(LeaseEntry *entry, int64 token, int64 delayed_until_us);
extern bool lease_hold_has_lock(const LeaseHold *hold, const LOCKTAG *tag, LOCKMODE mode);
extern bool lease_hold_is_mine(const LeaseHold *hold);

extern int64 lease_interval_us(const Interval *span);
extern Datum lease_interval_datum(int64 us);

/* Whether the entry is of this process alone: see lease_local.c. */
static inline bool
lease_entry_is_local(const LeaseEntry *entry)
{
	return !DsaPointerIsValid(entry->name);
}

/* Whether the name has a row of revenant.lease, for this hold. */
static inline bool
lease_hold_has_row(const LeaseHold *hold)
{
	return hold->scope == LEASE_TTL || hold->scope == LEASE_DELAYED;
}

static inline bool
lease_hold_is_live(const LeaseHold *hold, int64 now_us)
{
	return hold->scope == LEASE_TTL && hold->deadline_us > now_us;
}

#endif							/* REVENANT_LEASE_ENTRY_H */
