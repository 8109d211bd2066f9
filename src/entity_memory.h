/*
 * entity_memory.h
 *	  Entities whose state is kept in shared memory, ahead of their rows.
 */
#ifndef REVENANT_ENTITY_MEMORY_H
#define REVENANT_ENTITY_MEMORY_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "lib/dshash.h"
#include "port/atomics.h"
#include "storage/spin.h"
#include "utils/dsa.h"
#include "utils/jsonb.h"

#include "digest.h"
#include "entity_type.h"

/*
 * How many versions are reserved in a row ahead of its state: so many calls can
 * be done in memory before one has to write the row, and so many numbers an unclean end skips.
 */
#define ENTITY_AHEAD 4096

/* An entity that goes faster reserves more, but not more than that. */
#define ENTITY_AHEAD_MAX (256 * ENTITY_AHEAD)

/*
 * Up to which version a row reserves when it gets this one, after `before`: enough for
 * four times as many as it took since then, so that the flusher and not a call has to write the row next.
 */
static inline int64
entity_reserve(int64 version, int64 before)
{
	int64		ahead = Min(Max(version - before, 0), ENTITY_AHEAD_MAX) * 4;

	ahead = Min(Max(ahead, ENTITY_AHEAD), ENTITY_AHEAD_MAX);
	return version > PG_INT64_MAX - ahead ? version : version + ahead;
}

typedef struct Flusher Flusher;

typedef struct EntityKey
{
	Oid			database;
	Oid			instance;		/* pg_extension.oid */
	uint8		digest[DIGEST_BYTES];	/* of the table and the id */
} EntityKey;

/* What a loaded entity is: its committed state, and what its row says. */
typedef struct EntityImage
{
	int64		version;
	int64		flushed;		/* the version in the row */
	int64		reserved;		/* in the row: no version beyond it may be given in memory */
	TransactionId row_xmin;		/* who wrote the row last, as far as we know ... */
	uint64		row_hash;		/* ... and what: of its vsn and its state */
	int32		vsn;
	TimestampTz updated_at;
	dsa_pointer state;			/* an EntityState */
	Size		state_bytes;
} EntityImage;

/*
 * An entity in shared memory. What callers may change is theirs who has the
 * entity's lock R; the flusher's marks are the flusher's. All is read and written under the mutex.
 */
typedef struct EntityEntry
{
	EntityKey	key;
	slock_t		mutex;
	int			pins;			/* processes that have a pointer to it: it is not removed */
	bool		loaded;			/* else it is only being loaded */
	EntityImage image;

	/* the flusher's: a version that it is about to commit, or has committed, into the row */
	int64		flushing;		/* 0: none */
	TransactionId flushing_xid;

	int64		dirty_since_us; /* 0: the row says the same */
	int64		due_us;			/* when it is to be flushed; 0: when it is unloaded */
	int64		not_before_us;	/* nor earlier than that after the last flush */
	int64		last_used_us;
	bool		unload_asked;	/* somebody waits for it to be unloaded */
	bool		has_terminator; /* which is to be told before it is unloaded because it is idle ... */
	bool		stop_sent;		/* ... by a message, which is on its way */
	int			failures;		/* to flush it, in a row */
	int64		flush_every_us; /* as it was last kept; -1: when it is unloaded */
	bool		due_again;		/* something was kept to be written in time while it was being flushed */

	/* of its type, when it was last used */
	Oid			owner;			/* of the table */
	Oid			snapshots;
	int64		idle_timeout_us;	/* -1: never */
	dsa_pointer names;			/* the type's and its own, each with its zero; never changed */
	Size		names_bytes;
} EntityEntry;

/* A role's flusher, as callers see it. Never freed while the server runs, so processes keep pointers. */
typedef struct FlusherKey
{
	Oid			database;
	Oid			instance;
	Oid			owner;
} FlusherKey;

struct Flusher
{
	FlusherKey	key;
	pg_atomic_uint32 accepting; /* it runs, and will flush what is left in memory */
	pg_atomic_uint32 inflight;	/* transactions that will publish a state that is in no row */
	pg_atomic_uint32 loaded;	/* entities */
	pg_atomic_uint32 wanted;	/* somebody would have left a state to it */
	pg_atomic_uint32 pressed;	/* memory is short: unload the oldest */
	pg_atomic_uint64 next_due_us;	/* when it looks next */
	pg_atomic_uint32 place;		/* of its process in the array of processes, from 1 on; 0: it does not run */
};

/* shared memory */
extern const dshash_parameters *entity_memory_params(void);
extern const dshash_parameters *flusher_params(void);

extern void entity_key_make(EntityKey *key, Oid instance, Oid snapshots, const char *id);
extern EntityEntry *entity_entry_find(const EntityKey *key);
extern EntityEntry *entity_entry_make(const EntityKey *key, const EntityType *type, Oid owner, const char *id);
extern Flusher *entity_entry_hand_over(EntityEntry *entry, Flusher *flusher, bool if_accepting);
extern void entity_entry_unpin(EntityEntry *entry);
extern bool entity_entry_read(const EntityKey *key, EntityImage *image, Jsonb **state);
extern void entity_entry_names(EntityEntry *entry, char **type, char **id);
extern void entity_entry_sweep(const EntityKey *key);
extern void entity_entry_publish(EntityEntry *entry, Flusher *flusher, const EntityImage *image, int64 flush_every_us, bool in_row);
extern void entity_entry_unload(EntityEntry *entry, Flusher *flusher);
extern bool entity_state_make(const Jsonb *state, dsa_pointer *place, Size *bytes);
extern void entity_state_discard(const EntityKey *key, dsa_pointer state, Size bytes);
extern void entity_state_free_discarded(void);
extern bool entity_is_dirty(const EntityEntry *entry);
extern uint64 entity_state_hash(int32 vsn, const Jsonb *state);

typedef void (*EntityVisitor) (EntityEntry *entry, void *arg);

extern void entity_memory_visit(Oid instance, EntityVisitor visit, void *arg);
extern void entity_memory_purge(Oid database, Oid keep_instance);
extern bool entity_entry_begin_flush(EntityEntry *entry, int64 version, TransactionId xid);
extern void entity_entry_end_flush(EntityEntry *entry, const EntityImage *flushed, TransactionId xid, int64 begun_us, bool done);

typedef void (*FlusherVisitor) (const Flusher *flusher, void *arg);

extern void flusher_visit(Oid instance, FlusherVisitor visit, void *arg);
extern Flusher *flusher_find(Oid instance, Oid owner, bool create);
extern void flusher_wake(Flusher *flusher);
extern bool flusher_enter(Flusher *flusher);
extern void flusher_leave(Flusher *flusher);

#endif							/* REVENANT_ENTITY_MEMORY_H */
