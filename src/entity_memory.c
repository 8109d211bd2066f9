/*-------------------------------------------------------------------------
 *
 * entity_memory.c
 *	  Entities whose state is kept in shared memory, ahead of their rows.
 *
 * An entry is what a relaxed entity is now: its committed state and version, and
 * what its row says as far as we know. It is not the truth about anything that a
 * crash must not lose: what is ahead of the row is what was promised to be at stake.
 *
 * Who may change it:
 *
 *		version, state				a caller who has the entity's lock R, when its
 *									transaction commits
 *		flushed, row_xmin, reserved the same with what it wrote into the row; the
 *									flusher with what that wrote
 *		flushing, flushing_xid		the flusher
 *		that it is there at all		who has R
 *
 * So a caller that has found an entry under R may rely on it to the end of its
 * transaction. Each of these is read and changed under the entry's mutex; a state is a piece of the area
 * that is never changed, only replaced.
 *
 * NOTES
 *	  Who reads a state holds the partition of its entry meanwhile. Who frees one
 *	  has replaced it first, and then takes the partition exclusively: so no
 *	  reader is left. A callback puts it aside for that (as lease_note.c does).
 *
 *	  A transaction pins the entries that it may change; a pinned entry stays where it is.
 *
 *	  A flusher accepts, or not. Who is going to leave a state in memory counts
 *	  himself in first and looks at that then; a flusher that ends stops to accept
 *	  first, and then waits until nobody is in. One of them sees the other.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "compat.h"
#include "entity_memory.h"
#include "extension.h"
#include "shmem.h"
#include "stat.h"

/* A state in the area; what is behind it is a Jsonb. */
typedef struct EntityState
{
	Size		bytes;
	char		data[FLEXIBLE_ARRAY_MEMBER];
} EntityState;

/* What an entry takes in the area beside its names and its state: as that of a lease (lease_entry.c). */
#define ENTRY_BYTES ((sizeof(EntityEntry) + 16) * 9 / 8 + 16)
#define STATE_BYTES(size) (MAXALIGN(offsetof(EntityState, data) + (size)) * 5 / 4)

/* States that were replaced, and are freed where an error does no harm: all that a transaction may replace at once */
#define DISCARDED_MAX 1024
typedef struct Discarded
{
	EntityKey	key;
	dsa_pointer state;
	Size		bytes;
} Discarded;

static Discarded discarded[DISCARDED_MAX];
static int	ndiscarded = 0;
static bool exit_registered = false;
static bool exiting = false;

/* How shmem.c lays out the table of entities. */
const dshash_parameters *
entity_memory_params(void)
{
	static const dshash_parameters params = {
		.key_size = sizeof(EntityKey),
		.entry_size = sizeof(EntityEntry),
		.compare_function = dshash_memcmp,
		.hash_function = dshash_memhash,
		COMPAT_DSHASH_COPY
	};

	return &params;
}

/* How shmem.c lays out the table of flushers. */
const dshash_parameters *
flusher_params(void)
{
	static const dshash_parameters params = {
		.key_size = sizeof(FlusherKey),
		.entry_size = sizeof(Flusher),
		.compare_function = dshash_memcmp,
		.hash_function = dshash_memhash,
		COMPAT_DSHASH_COPY
	};

	return &params;
}

/* ---------------------------------------------------------------- states */

static void
free_at_exit(int code, Datum arg)
{
	entity_state_free_discarded();
	exiting = true;
}

/* What is told apart by this is another row. */
uint64
entity_state_hash(int32 vsn, const Jsonb *state)
{
	return hash_bytes_extended((const unsigned char *) VARDATA(state), (int) (VARSIZE(state) - VARHDRSZ), (uint64) vsn);
}

/* Puts a state into the area. False: there is no room. */
bool
entity_state_make(const Jsonb *state, dsa_pointer *place, Size *bytes)
{
	Size		size = offsetof(EntityState, data) + VARSIZE(state);
	EntityState *made;

	if (!exit_registered)
		before_shmem_exit(free_at_exit, (Datum) 0);
	exit_registered = true;
	*bytes = STATE_BYTES(VARSIZE(state));
	*place = InvalidDsaPointer;
	if (!shmem_make_room(*bytes))
		return false;
	*place = dsa_allocate_extended(shmem_area(), size, DSA_ALLOC_NO_OOM);
	if (!DsaPointerIsValid(*place))
		return false;
	made = dsa_get_address(shmem_area(), *place);
	made->bytes = VARSIZE(state);
	memcpy(made->data, state, VARSIZE(state));
	shmem_account(*bytes);
	return true;
}

static void
free_state(const EntityKey *key, dsa_pointer state, Size bytes)
{
	dshash_table *table = shmem_table(SHARED_ENTITIES);
	EntityEntry *entry = dshash_find(table, key, true);

	dsa_free(shmem_area(), state);
	shmem_account(-(int64) bytes);
	if (entry != NULL)
		dshash_release_lock(table, entry);
}

/* Frees a state of this entity that nobody finds any more, later. For callbacks: giving memory back may fail. */
void
entity_state_discard(const EntityKey *key, dsa_pointer state, Size bytes)
{
	if (!DsaPointerIsValid(state))
		return;
	/* a transaction that is open at the exit is aborted later than free_at_exit(), and there is no next call */
	if (ndiscarded < DISCARDED_MAX && !exiting)
		discarded[ndiscarded++] = (Discarded) {.key = *key,.state = state,.bytes = bytes};
	else
		free_state(key, state, bytes);
}

/* Frees what was discarded. */
void
entity_state_free_discarded(void)
{
	while (ndiscarded > 0)
	{
		ndiscarded--;
		free_state(&discarded[ndiscarded].key, discarded[ndiscarded].state, discarded[ndiscarded].bytes);
	}
}

/* ---------------------------------------------------------------- entries */

/* The key of an entity; needs a transaction. */
void
entity_key_make(EntityKey *key, Oid instance, Oid snapshots, const char *id)
{
	key->database = MyDatabaseId;
	key->instance = instance;
	digest_name(snapshots, id, key->digest);
}

/* Whether its state is ahead of its row. The caller has the mutex. */
bool
entity_is_dirty(const EntityEntry *entry)
{
	return entry->loaded && entry->image.version > entry->image.flushed;
}

/* The entry of an entity, pinned, or NULL. */
EntityEntry *
entity_entry_find(const EntityKey *key)
{
	dshash_table *table = shmem_table(SHARED_ENTITIES);
	EntityEntry *entry = dshash_find(table, key, false);

	if (entry == NULL)
		return NULL;
	SpinLockAcquire(&entry->mutex);
	entry->pins++;
	SpinLockRelease(&entry->mutex);
	dshash_release_lock(table, entry);
	return entry;
}

/* The two names, behind one another. */
static bool
make_names(const char *type, const char *id, dsa_pointer *place, Size *bytes)
{
	Size		type_size = strlen(type) + 1;
	Size		id_size = strlen(id) + 1;
	char	   *made;

	*bytes = MAXALIGN(type_size + id_size) * 5 / 4;
	*place = dsa_allocate_extended(shmem_area(), type_size + id_size, DSA_ALLOC_NO_OOM);
	if (!DsaPointerIsValid(*place))
		return false;
	made = dsa_get_address(shmem_area(), *place);
	memcpy(made, type, type_size);
	memcpy(made + type_size, id, id_size);
	return true;
}

/*
 * The entry of an entity, made if there is none, pinned. NULL: there is no room.
 * The caller has R. It is not loaded before somebody publishes a state.
 */
EntityEntry *
entity_entry_make(const EntityKey *key, const EntityType *type, Oid owner, const char *id)
{
	dshash_table *table = shmem_table(SHARED_ENTITIES);
	EntityEntry *entry = entity_entry_find(key);
	dsa_pointer names;
	Size		names_bytes;
	bool		found;

	if (entry != NULL)
		return entry;
	if (!shmem_make_room(ENTRY_BYTES + strlen(type->name) + strlen(id)) || !make_names(type->name, id, &names, &names_bytes))
		return NULL;
	entry = dshash_find_or_insert(table, key, &found);
	if (found)
		dsa_free(shmem_area(), names);
	else
	{
		memset((char *) entry + sizeof(EntityKey), 0, sizeof(EntityEntry) - sizeof(EntityKey));
		SpinLockInit(&entry->mutex);
		entry->owner = owner;
		entry->snapshots = type->snapshots;
		entry->names = names;
		entry->names_bytes = names_bytes;
		entry->idle_timeout_us = type->idle_timeout_us;
		entry->has_terminator = type->routine_names[ROUTINE_TERMINATOR] != NULL;
		shmem_account(ENTRY_BYTES + names_bytes);
	}
	SpinLockAcquire(&entry->mutex);
	entry->pins++;
	SpinLockRelease(&entry->mutex);
	dshash_release_lock(table, entry);
	return entry;
}

/*
 * The table of a pinned entry belongs to this flusher's role now (NULL: there is
 * no room for it). What is loaded stays with the one that it has until that one accepts, if so
 * wanted. Returns whose the entry is from here on. The caller has R.
 */
Flusher *
entity_entry_hand_over(EntityEntry *entry, Flusher *flusher, bool if_accepting)
{
	Flusher    *before;
	bool		loaded;

	if (flusher != NULL && entry->owner == flusher->key.owner)
		return flusher;
	before = flusher_find(entry->key.instance, entry->owner, false);
	SpinLockAcquire(&entry->mutex);
	loaded = entry->loaded;
	SpinLockRelease(&entry->mutex);
	if (flusher == NULL || (if_accepting && loaded && before != NULL && pg_atomic_read_u32(&flusher->accepting) == 0))
		return before;
	SpinLockAcquire(&entry->mutex);
	entry->owner = flusher->key.owner;
	SpinLockRelease(&entry->mutex);
	if (loaded && before != NULL)
		pg_atomic_fetch_sub_u32(&before->loaded, 1);
	if (loaded)
		pg_atomic_fetch_add_u32(&flusher->loaded, 1);
	return flusher;
}

/* Gives a pin back. Never raises. */
void
entity_entry_unpin(EntityEntry *entry)
{
	SpinLockAcquire(&entry->mutex);
	entry->pins--;
	SpinLockRelease(&entry->mutex);
}

/* What an entity is in memory, as it is committed, with a copy of its state in the current context. False: it is not loaded. */
bool
entity_entry_read(const EntityKey *key, EntityImage *image, Jsonb **state)
{
	dshash_table *table = shmem_table(SHARED_ENTITIES);
	EntityEntry *entry = dshash_find(table, key, false);
	bool		loaded;

	if (entry == NULL)
		return false;
	SpinLockAcquire(&entry->mutex);
	loaded = entry->loaded;
	*image = entry->image;
	SpinLockRelease(&entry->mutex);
	if (loaded)
	{
		EntityState *place = dsa_get_address(shmem_area(), image->state);

		*state = palloc(place->bytes);
		memcpy(*state, place->data, place->bytes);
	}
	dshash_release_lock(table, entry);
	return loaded;
}

/* The type and the id of an entry whose partition the caller holds, or that is pinned. Copies. */
void
entity_entry_names(EntityEntry *entry, char **type, char **id)
{
	char	   *names = dsa_get_address(shmem_area(), entry->names);

	*type = pstrdup(names);
	*id = pstrdup(names + strlen(names) + 1);
}

/* Removes an entry that is not loaded and that nobody has pinned, if it is one. */
void
entity_entry_sweep(const EntityKey *key)
{
	dshash_table *table = shmem_table(SHARED_ENTITIES);
	EntityEntry *entry = dshash_find(table, key, true);

	if (entry == NULL)
		return;
	if (entry->pins > 0 || entry->loaded)
	{
		dshash_release_lock(table, entry);
		return;
	}
	shmem_account(-(int64) (ENTRY_BYTES + entry->names_bytes));
	dsa_free(shmem_area(), entry->names);
	dshash_delete_entry(table, entry);
}

/* When a state that has just become ahead of its row is to be flushed. */
static int64
due_time(const EntityEntry *entry, int64 now_us, int64 flush_every_us)
{
	return Max(entry->not_before_us, now_us + flush_every_us / 2);
}

/*
 * From within a commit callback: what the transaction made of an entity. `in_row`:
 * it wrote the row as well, and row_xmin and reserved are what it wrote. flush_every_us is -1 where it is flushed when it is unloaded. The caller has R. Never raises.
 */
void
entity_entry_publish(EntityEntry *entry, Flusher *flusher, const EntityImage *image, int64 flush_every_us, bool in_row)
{
	int64		now_us = clock_now_us();
	dsa_pointer old_state;
	Size		old_bytes;
	int64		due_us = 0;
	bool		was_loaded;

	SpinLockAcquire(&entry->mutex);
	old_state = entry->image.state;
	old_bytes = entry->image.state_bytes;
	was_loaded = entry->loaded;
	entry->loaded = true;
	entry->last_used_us = now_us;
	entry->image.version = image->version;
	entry->image.vsn = image->vsn;
	entry->image.updated_at = image->updated_at;
	entry->image.state = image->state;
	entry->image.state_bytes = image->state_bytes;
	if (in_row)
	{
		entry->image.flushed = image->version;
		entry->image.reserved = image->reserved;
		entry->image.row_xmin = image->row_xmin;
		entry->image.row_hash = image->row_hash;
		entry->flushing = 0;
		entry->failures = 0;
		entry->dirty_since_us = entry->due_us = 0;
	}
	else
	{
		entry->flush_every_us = flush_every_us;
		if (entry->dirty_since_us == 0)
			entry->dirty_since_us = now_us;
		if (entry->due_us == 0 && flush_every_us >= 0)
			entry->due_us = due_us = due_time(entry, now_us, flush_every_us);
		entry->due_again |= entry->flushing != 0 && flush_every_us >= 0;
	}
	SpinLockRelease(&entry->mutex);
	entity_state_discard(&entry->key, old_state, old_bytes);
	if (!was_loaded)
	{
		pg_atomic_fetch_add_u32(&flusher->loaded, 1);
		stat_count(STAT_ENTITIES_LOADED);
	}
	if (!in_row)
		stat_count(STAT_ENTITIES_KEPT);
	if (due_us != 0 && (int64) pg_atomic_read_u64(&flusher->next_due_us) > due_us)
	{
		pg_atomic_write_u64(&flusher->next_due_us, due_us);
		flusher_wake(flusher);
	}
}

/* From within a commit callback: it is in its row alone. The entry stays until somebody removes it. The caller has R. Never raises. */
void
entity_entry_unload(EntityEntry *entry, Flusher *flusher)
{
	dsa_pointer old_state;
	Size		old_bytes;
	bool		was_loaded;

	SpinLockAcquire(&entry->mutex);
	old_state = entry->image.state;
	old_bytes = entry->image.state_bytes;
	was_loaded = entry->loaded;
	entry->loaded = false;
	entry->flushing = 0;
	entry->dirty_since_us = entry->due_us = 0;
	entry->unload_asked = false;
	memset(&entry->image, 0, sizeof(entry->image));
	SpinLockRelease(&entry->mutex);
	entity_state_discard(&entry->key, old_state, old_bytes);
	if (was_loaded)
	{
		pg_atomic_fetch_sub_u32(&flusher->loaded, 1);
		stat_count(STAT_ENTITIES_UNLOADED);
	}
}

/* ---------------------------------------------------------------- flush */

/*
 * The flusher is about to commit this version into the row, as this transaction.
 * False: there is nothing to flush any more.
 */
bool
entity_entry_begin_flush(EntityEntry *entry, int64 version, TransactionId xid)
{
	bool		loaded;

	SpinLockAcquire(&entry->mutex);
	loaded = entry->loaded && entry->image.version >= version;
	if (loaded)
	{
		entry->flushing = version;
		entry->flushing_xid = xid;
		entry->due_again = false;
	}
	SpinLockRelease(&entry->mutex);
	return loaded;
}

/* The flusher's transaction has ended: `done`, the row has what `flushed` says. Never raises. */
void
entity_entry_end_flush(EntityEntry *entry, const EntityImage *flushed, TransactionId xid, int64 begun_us, bool done)
{
	int64		version = flushed->version;

	SpinLockAcquire(&entry->mutex);
	/* whoever wrote the row after us has published that already */
	if (entry->flushing == version && entry->flushing_xid == xid)
	{
		entry->flushing = 0;
		if (done)
		{
			entry->image.flushed = version;
			entry->image.row_xmin = xid;
			entry->image.row_hash = flushed->row_hash;
			entry->image.reserved = flushed->reserved;
			entry->failures = 0;
			entry->not_before_us = begun_us + Max(entry->flush_every_us, 0);
			entry->dirty_since_us = entry->image.version > version ? begun_us : 0;
			entry->due_us = entry->image.version > version && (entry->flush_every_us >= 0 || entry->due_again) ? entry->not_before_us : 0;
		}
	}
	SpinLockRelease(&entry->mutex);
}

/* Calls `visit` for each entry of this database's, with its partition held: it neither raises nor waits. */
void
entity_memory_visit(Oid instance, EntityVisitor visit, void *arg)
{
	dshash_seq_status status;
	EntityEntry *entry;

	dshash_seq_init(&status, shmem_table(SHARED_ENTITIES), false);
	while ((entry = dshash_seq_next(&status)) != NULL)
	{
		if (entry->key.database == MyDatabaseId && entry->key.instance == instance)
			visit(entry, arg);
	}
	dshash_seq_term(&status);
}

/* Removes what is left of a database, or of its extensions but one, and of their flushers. */
void
entity_memory_purge(Oid database, Oid keep_instance)
{
	dshash_seq_status status;
	EntityEntry *entry;
	Flusher    *flusher;

	dshash_seq_init(&status, shmem_table(SHARED_ENTITIES), true);
	while ((entry = dshash_seq_next(&status)) != NULL)
	{
		if (entry->key.database != database || entry->key.instance == keep_instance || entry->pins > 0)
			continue;
		shmem_account(-(int64) (ENTRY_BYTES + entry->names_bytes + entry->image.state_bytes));
		if (DsaPointerIsValid(entry->image.state))
			dsa_free(shmem_area(), entry->image.state);
		dsa_free(shmem_area(), entry->names);
		dshash_delete_current(&status);
	}
	dshash_seq_term(&status);

	/* processes may have pointers to flushers: they stay, with nothing to do */
	dshash_seq_init(&status, shmem_table(SHARED_FLUSHERS), false);
	while ((flusher = dshash_seq_next(&status)) != NULL)
	{
		if (flusher->key.database == database && flusher->key.instance != keep_instance)
		{
			pg_atomic_write_u32(&flusher->loaded, 0);
			pg_atomic_write_u32(&flusher->wanted, 0);
		}
	}
	dshash_seq_term(&status);
}

/* ---------------------------------------------------------------- flushers, as callers see them */

/* Calls `visit` for each flusher of this database's, with its partition held: it neither raises nor waits. */
void
flusher_visit(Oid instance, FlusherVisitor visit, void *arg)
{
	dshash_seq_status status;
	Flusher    *flusher;

	dshash_seq_init(&status, shmem_table(SHARED_FLUSHERS), false);
	while ((flusher = dshash_seq_next(&status)) != NULL)
	{
		if (flusher->key.database == MyDatabaseId && flusher->key.instance == instance)
			visit(flusher, arg);
	}
	dshash_seq_term(&status);
}

/* The flusher of a role, as shared memory has it, made if it is to be. NULL: there is none, or no room for it. */
Flusher *
flusher_find(Oid instance, Oid owner, bool create)
{
	static Flusher *latest = NULL;	/* there is one table in most programs */
	FlusherKey	key = {.database = MyDatabaseId,.instance = instance,.owner = owner};
	dshash_table *table = shmem_table(SHARED_FLUSHERS);
	bool		found;

	if (latest != NULL && memcmp(&latest->key, &key, sizeof(key)) == 0)
		return latest;
	latest = dshash_find(table, &key, false);
	if (latest != NULL || !create || !shmem_make_room(sizeof(Flusher)))
	{
		if (latest != NULL)
			dshash_release_lock(table, latest);
		return latest;
	}
	latest = dshash_find_or_insert(table, &key, &found);
	if (!found)
	{
		pg_atomic_init_u32(&latest->accepting, 0);
		pg_atomic_init_u32(&latest->inflight, 0);
		pg_atomic_init_u32(&latest->loaded, 0);
		pg_atomic_init_u32(&latest->wanted, 0);
		pg_atomic_init_u32(&latest->pressed, 0);
		pg_atomic_init_u64(&latest->next_due_us, 0);
		pg_atomic_init_u32(&latest->place, 0);
		shmem_account(sizeof(Flusher));
	}
	dshash_release_lock(table, latest);
	return latest;
}

/* Makes it look. Never raises. */
void
flusher_wake(Flusher *flusher)
{
	uint32		place = pg_atomic_read_u32(&flusher->place);

	if (place != 0)
		SetLatch(&GetPGProcByNumber(place - 1)->procLatch);
}

/*
 * Counts this transaction in as one that will leave a state in memory. False: the
 * flusher does not accept it. Each true needs a flusher_leave() at the end.
 */
bool
flusher_enter(Flusher *flusher)
{
	pg_atomic_fetch_add_u32(&flusher->inflight, 1); /* a full barrier */
	if (pg_atomic_read_u32(&flusher->accepting) != 0)
		return true;
	flusher_leave(flusher);
	return false;
}

/* Counts it out again. Never raises. */
void
flusher_leave(Flusher *flusher)
{
	pg_atomic_fetch_sub_u32(&flusher->inflight, 1);
	if (pg_atomic_read_u32(&flusher->accepting) == 0)
		flusher_wake(flusher);	/* it may be waiting for that */
}
