/*-------------------------------------------------------------------------
 *
 * lease_entry.c
 *	  The shared-memory entries of leases.
 *
 * An entry is a cache of what the row says (a ttl hold), of what the lock
 * manager says (a session's or a transaction's), plus the one thing that is
 * nowhere else: the deadline.
 *
 * NOTES
 *	  Whoever reads or writes the row of a name, or wants its locks, pins the
 *	  entry for the whole transaction first. So while an entry is not settled,
 *	  nobody is in the middle of writing its row: that writer would have
 *	  settled it. This is why a row can be loaded without a lock.
 *
 *	  Names are compared by a cryptographic digest, also in the lock tags (78
 *	  bits of it): nobody can find a name that blocks another one.
 *
 *	  A free entry is kept for a while by the process that freed it, since the
 *	  same name tends to be asked for again; the ring below says for how long.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "compat.h"
#include "digest.h"
#include "extension.h"
#include "guc.h"
#include "lease_bound.h"
#include "lease_entry.h"
#include "lease_holder.h"
#include "lease_local.h"
#include "lease_note.h"
#include "locktag.h"
#include "shmem.h"
#include "stat.h"

/*
 * What one entry takes in the area beside its name: itself, the table's item
 * header and two buckets, rounded as the area rounds (by a quarter at most).
 */
#define ENTRY_BYTES ((sizeof(LeaseEntry) + 16) * 9 / 8 + 16)
#define NAME_BYTES(len) (MAXALIGN(len) * 5 / 4)

/*
 * Keys of entries that this process freed, oldest first: the last KEEP_FREE
 * stay, the ones before are deleted at the next call. What does not fit
 * is left to whoever needs the room, or to the supervisor's sweep.
 */
#define KEEP_FREE 8
#define RETIRED_MAX 256
static LeaseKey retired[RETIRED_MAX];
static int	nretired = 0;

/* How shmem.c lays out the table of leases. */
const dshash_parameters *
lease_entry_params(void)
{
	static const dshash_parameters params = {
		.key_size = sizeof(LeaseKey),
		.entry_size = sizeof(LeaseEntry),
		.compare_function = dshash_memcmp,
		.hash_function = dshash_memhash,
		COMPAT_DSHASH_COPY
	};

	return &params;
}

/* The key of a name (of 1 to LEASE_NAME_MAX bytes) in this database. Who has one can count: see stat.c. */
void
lease_key_make(LeaseKey *key, const char *name)
{
	Oid			instance = extension_get()->extension;

	stat_attach(instance);
	key->database = MyDatabaseId;
	key->instance = instance;
	digest_name(instance, name, key->digest);
}

static LOCKTAG
lock_of(LockKind kind, const LeaseKey *key)
{
	uint64		digest;
	uint16		more;

	memcpy(&digest, key->digest, sizeof(digest));
	memcpy(&more, key->digest + sizeof(digest), sizeof(more));
	return locktag_make(kind, key->database, digest, more);
}

/* H: who holds the name, and the queue of those who want to. */
LOCKTAG
lease_lock_hold(const LeaseKey *key)
{
	return lock_of(LOCK_HOLD, key);
}

/* F: who is fenced by the name. */
LOCKTAG
lease_lock_fence(const LeaseKey *key)
{
	return lock_of(LOCK_FENCE, key);
}

/* B: sessions whose end ends a hold of the name. Shared: an older one may not have noticed its lapse. */
LOCKTAG
lease_lock_bound(const LeaseKey *key)
{
	return lock_of(LOCK_BOUND, key);
}

/* The number of the latest change of any name; it begins with the time, so that it never repeats. */
static pg_atomic_uint64 *all_changes = NULL;

/* What this file needs in the fixed segment, in bytes. */
Size
lease_entry_shmem_size(void)
{
	return sizeof(pg_atomic_uint64);
}

/* Called by shmem.c at every start of shared memory. */
void
lease_entry_shmem_init(void *place, bool found)
{
	all_changes = place;
	if (!found)
		pg_atomic_init_u64(all_changes, (uint64) GetCurrentTimestamp());
}

/* Gives the entry a new number, and wakes who sleeps for a change. Never raises. */
void
lease_entry_note_change(LeaseEntry *entry)
{
	uint64		number = pg_atomic_add_fetch_u64(all_changes, 1);

	SpinLockAcquire(&entry->mutex);
	entry->changes = Max(entry->changes, number);
	SpinLockRelease(&entry->mutex);
	ConditionVariableBroadcast(&entry->changed);
}

/*
 * A ttl hold that is over by its time or with its session, and a session's that
 * is gone, end without anybody doing anything: whoever looks here first counts
 * that as a change, once for each token.
 */
void
lease_entry_note_end(LeaseEntry *entry)
{
	LOCKTAG		tag = lease_lock_hold(&entry->key);
	LeaseHold	now;
	bool		over;
	bool		first = false;

	if (!lease_entry_is_settled(entry))
		return;					/* nobody knows for how long it is held */
	over = !lease_entry_is_taken(entry, &now) && lease_hold_has_row(&now);
	over = over || (now.scope == LEASE_SESSION && !lease_hold_has_lock(&now, &tag, ExclusiveLock));
	if (!over)
		return;
	SpinLockAcquire(&entry->mutex);
	if (entry->now.token == now.token && entry->noted_end != now.token)
	{
		entry->noted_end = now.token;
		first = true;
	}
	SpinLockRelease(&entry->mutex);
	if (first)
		lease_entry_note_change(entry);
}

/* The entry's number: another one after each change. */
uint64
lease_entry_changes(LeaseEntry *entry)
{
	uint64		number;

	SpinLockAcquire(&entry->mutex);
	number = entry->changes;
	SpinLockRelease(&entry->mutex);
	return number;
}

/* Makes an empty entry; its key is there already. `name_place` has the name, without an end. */
void
lease_entry_init(LeaseEntry *entry, const char *name, dsa_pointer name_place)
{
	pg_atomic_init_u32(&entry->pins, 0);
	SpinLockInit(&entry->mutex);
	entry->settled = false;
	entry->name_len = strlen(name);
	entry->name = name_place;
	ConditionVariableInit(&entry->changed);
	entry->changes = pg_atomic_add_fetch_u64(all_changes, 1);
	entry->noted_end = 0;
	entry->stores = 0;
	memset(&entry->now, 0, sizeof(entry->now));
	memset(&entry->next, 0, sizeof(entry->next));
}

static LeaseEntry *
pin_existing(const LeaseKey *key)
{
	dshash_table *table = shmem_table(SHARED_LEASES);
	LeaseEntry *entry = lease_local_find(key);

	if (entry != NULL)
		return lease_entry_pin_again(entry);
	entry = dshash_find(table, key, false);
	if (entry == NULL)
		return NULL;
	pg_atomic_fetch_add_u32(&entry->pins, 1);
	dshash_release_lock(table, entry);
	return entry;
}

/* There is no room: one of this process's own, unless one in shared memory came meanwhile. */
static LeaseEntry *
pin_local(const LeaseKey *key, const char *name)
{
	LeaseEntry *entry;

	lease_local_will_exist();
	entry = pin_existing(key);
	return entry != NULL ? entry : lease_entry_pin_again(lease_local_make(key, name));
}

/*
 * Whether an entry in shared memory that is settled speaks for the same name as
 * this one, which is of this process alone. Nobody settles one while the caller has F.
 */
bool
lease_entry_is_outdated(const LeaseEntry *local)
{
	dshash_table *table = shmem_table(SHARED_LEASES);
	LeaseEntry *entry = dshash_find(table, &local->key, false);
	bool		settled = entry != NULL && lease_entry_is_settled(entry);

	if (entry != NULL)
		dshash_release_lock(table, entry);
	return settled;
}

/* Raises 53200. */
void
lease_entry_raise_no_room(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("out of shared memory for leases"),
			 errdetail("Three quarters of revenant.shared_memory (%d MB) are for leases, and are used up.",
					   guc_shared_memory_mb),
			 errhint("Raise revenant.shared_memory, or let fewer leases be held at once.")));
}

/* Raises 53200 unless leases may take `bytes` more; looks for what can go first. */
void
lease_entry_need_room(Size bytes)
{
	if (!shmem_make_room(bytes))
		lease_entry_raise_no_room();
}

/* `size` bytes in the area. Raises 53200. */
dsa_pointer
lease_entry_allocate(Size size)
{
	dsa_pointer place = dsa_allocate_extended(shmem_area(), size, DSA_ALLOC_NO_OOM);

	if (!DsaPointerIsValid(place))
		lease_entry_raise_no_room();
	return place;
}

/*
 * The entry of a name, pinned: it stays where it is until lease_entry_unpin().
 * LEASE_PIN_EXISTING: NULL when there is none. Raises 53200 when the memory
 * for a new one is used up.
 */
LeaseEntry *
lease_entry_pin(const LeaseKey *key, const char *name, LeasePin how)
{
	dshash_table *table = shmem_table(SHARED_LEASES);
	LeaseEntry *entry = pin_existing(key);
	dsa_pointer name_place;
	Size		bytes;
	bool		found;

	if (entry != NULL && (how == LEASE_PIN_CREATE || how == LEASE_PIN_RESERVED) && lease_entry_is_local(entry))
	{
		lease_entry_unpin(entry);
		lease_entry_raise_no_room();	/* what others must see cannot be in memory of ours */
	}
	if (entry != NULL || how == LEASE_PIN_EXISTING)
		return entry;
	bytes = ENTRY_BYTES + NAME_BYTES(strlen(name)); /* who asks for an existing one may have no name */
	if (how == LEASE_PIN_CREATE)
		lease_entry_need_room(bytes);
	else if (how == LEASE_PIN_LOAD && !shmem_has_room_to_load(bytes) && !shmem_make_room(bytes))
		return pin_local(key, name);

	name_place = lease_entry_allocate(strlen(name));
	memcpy(dsa_get_address(shmem_area(), name_place), name, strlen(name));
	PG_TRY();
	{
		entry = dshash_find_or_insert(table, key, &found);
	}
	PG_CATCH();
	{
		dsa_free(shmem_area(), name_place);
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (!found)
	{
		lease_entry_init(entry, name, name_place);
		shmem_account(ENTRY_BYTES + NAME_BYTES(entry->name_len));
	}
	pg_atomic_fetch_add_u32(&entry->pins, 1);
	dshash_release_lock(table, entry);
	if (found)
		dsa_free(shmem_area(), name_place);
	return entry;
}

/* One more pin on an entry that is pinned. */
LeaseEntry *
lease_entry_pin_again(LeaseEntry *entry)
{
	pg_atomic_fetch_add_u32(&entry->pins, 1);
	return entry;
}

/* Gives a pin back. Never raises. */
void
lease_entry_unpin(LeaseEntry *entry)
{
	bool		local = lease_entry_is_local(entry);	/* without our pin a shared one may be gone */

	Assert(pg_atomic_read_u32(&entry->pins) > 0);
	if (pg_atomic_fetch_sub_u32(&entry->pins, 1) == 1 && local)
		lease_local_drop(entry);
}

/* Notes that an entry may be of no use any more. Never raises; before the last unpin. */
void
lease_entry_retire(const LeaseEntry *entry)
{
	for (int i = nretired - 1; i >= 0 && i >= nretired - KEEP_FREE; i--)
	{
		if (memcmp(&retired[i], &entry->key, sizeof(LeaseKey)) == 0)
			return;				/* among those that stay anyway */
	}
	if (nretired < RETIRED_MAX)
		retired[nretired++] = entry->key;
}

/* Deletes an entry if nobody uses it and it says nothing. The caller holds its partition. */
static bool
is_disposable(LeaseEntry *entry)
{
	bool		disposable;

	SpinLockAcquire(&entry->mutex);
	disposable = pg_atomic_read_u32(&entry->pins) == 0 &&
		entry->now.scope == LEASE_FREE && entry->next.scope == LEASE_FREE;
	SpinLockRelease(&entry->mutex);
	return disposable;
}

/* Frees what an entry that is about to be deleted has in the area. */
static void
entry_dispose(LeaseEntry *entry)
{
	shmem_account(-(int64) (ENTRY_BYTES + NAME_BYTES(entry->name_len)));
	dsa_free(shmem_area(), entry->name);
	lease_note_dispose(entry->now.note);
	lease_note_dispose(entry->next.note);
}

/* Deletes the entries that this process retired, except the last few. Outside of callbacks only. */
void
lease_entry_reap(void)
{
	dshash_table *table = shmem_table(SHARED_LEASES);

	lease_note_free_discarded();
	lease_holder_reap();
	lease_bound_reap();
	while (nretired > KEEP_FREE)
	{
		LeaseKey	key = retired[0];
		LeaseEntry *entry;

		nretired--;
		memmove(&retired[0], &retired[1], nretired * sizeof(LeaseKey));
		entry = dshash_find(table, &key, true);
		if (entry == NULL)
			continue;
		if (is_disposable(entry))
		{
			entry_dispose(entry);
			dshash_delete_entry(table, entry);
		}
		else
			dshash_release_lock(table, entry);
	}
}

/*
 * Whether the entry is of a session that is gone, or lost its lock: nobody may
 * ever ask for that name again. With `foreign`, of an instance that is not the
 * present one: its ttl holds are nobody's, too.
 */
static bool
is_abandoned(LeaseEntry *entry, bool foreign)
{
	LOCKTAG		tag = lease_lock_hold(&entry->key);
	LeaseHold	now,
				next;

	lease_entry_snapshot(entry, &now, &next);
	if (next.scope != LEASE_FREE && lease_hold_has_lock(&next, &tag, ExclusiveLock))
		return false;
	if (now.scope == LEASE_SESSION)
		return !lease_hold_has_lock(&now, &tag, ExclusiveLock);
	return foreign;
}

/*
 * Deletes what a database has no use for: free entries, those that sessions
 * left behind, and everything of instances of the extension other than
 * `keep_instance` (InvalidOid: of all). `database` InvalidOid: the first two, of all databases; what is of which instance is left to
 * supervisors, who know of a committed one. What is pinned stays; its user is
 * still there. While a partition is locked nobody can pin what is in it.
 */
void
lease_entry_purge(Oid database, Oid keep_instance)
{
	dshash_seq_status scan;
	LeaseEntry *entry;

	dshash_seq_init(&scan, shmem_table(SHARED_LEASES), true);
	while ((entry = dshash_seq_next(&scan)) != NULL)
	{
		if ((OidIsValid(database) && entry->key.database != database) || pg_atomic_read_u32(&entry->pins) > 0)
			continue;
		if (is_disposable(entry) || is_abandoned(entry, OidIsValid(database) && entry->key.instance != keep_instance))
		{
			entry_dispose(entry);
			dshash_delete_current(&scan);
		}
	}
	dshash_seq_term(&scan);
}

/* The name of an entry that is pinned or locked, palloc'd. */
const char *
lease_entry_name(const LeaseEntry *entry)
{
	if (lease_entry_is_local(entry))
		return lease_local_name(entry);
	return pnstrdup(dsa_get_address(shmem_area(), entry->name), entry->name_len);
}

/* Whether the entry says what the row says. One that is settled stays so. */
bool
lease_entry_is_settled(LeaseEntry *entry)
{
	bool		settled;

	SpinLockAcquire(&entry->mutex);
	settled = entry->settled;
	SpinLockRelease(&entry->mutex);
	return settled;
}

/*
 * Reads the committed hold. The deadline of one that was found before this server accepted
 * writes is moved first: it counts from when that does, and until then it is always ahead. The caller has the mutex.
 */
static void
read_now(LeaseEntry *entry, LeaseHold *now)
{
	LeaseHold  *hold = &entry->now;

	if (hold->unaccepted_us != 0)
	{
		bool		accepted = clock_has_accepted();

		hold->deadline_us = Max(hold->deadline_us, clock_writable_since_us() + hold->unaccepted_us);
		if (accepted)
			hold->unaccepted_us = 0;
	}
	*now = *hold;
}

/* Reads both holds at one instant. `next` may be NULL. */
void
lease_entry_snapshot(LeaseEntry *entry, LeaseHold *now, LeaseHold *next)
{
	SpinLockAcquire(&entry->mutex);
	read_now(entry, now);
	if (next)
		*next = entry->next;
	SpinLockRelease(&entry->mutex);
}

/*
 * Reads the committed hold, and says whether it is a ttl hold whose time is
 * not over. The clock is read under the mutex, as a renewal does: so once this
 * has said no, no renewal of that hold can succeed.
 */
bool
lease_entry_is_live(LeaseEntry *entry, LeaseHold *now)
{
	bool		live;

	SpinLockAcquire(&entry->mutex);
	read_now(entry, now);
	live = lease_hold_is_live(now, clock_now_us());
	SpinLockRelease(&entry->mutex);
	return live;
}

/*
 * From when on somebody else may get the name, as far as clocks say: 0 for now.
 * A session that lost a bound hold released it, so no lock_delay follows; that
 * is lease_hold_lost_its_session()'s to say.
 */
int64
lease_hold_free_from(const LeaseHold *hold)
{
	switch (hold->scope)
	{
		case LEASE_TTL:
			return hold->deadline_us == 0 ? 0 : hold->deadline_us + hold->lock_delay_us;
		case LEASE_DELAYED:
			return hold->deadline_us;
		default:
			return 0;
	}
}

/* Whether a bound hold is over because its session is, or gave B up. */
bool
lease_hold_lost_its_session(const LeaseHold *hold, const LeaseKey *key)
{
	LOCKTAG		tag = lease_lock_bound(key);

	return hold->scope == LEASE_TTL && hold->bound && !lease_hold_has_lock(hold, &tag, ShareLock);
}

/*
 * Reads the committed hold, and says whether the name is still somebody's, or
 * nobody's for a while: who has H waits for that to end. The clock is read under
 * the mutex, as for lease_entry_is_live().
 */
bool
lease_entry_is_taken(LeaseEntry *entry, LeaseHold *now)
{
	bool		taken;

	SpinLockAcquire(&entry->mutex);
	read_now(entry, now);
	taken = lease_hold_free_from(now) != 0 && lease_hold_free_from(now) > clock_now_us();
	SpinLockRelease(&entry->mutex);
	return taken && !lease_hold_lost_its_session(now, &entry->key);
}

/*
 * Calls `visit` for each entry of this database and the present instance. The
 * entry's partition is locked, shared, so `visit` asks for no entry by name.
 */
void
lease_entry_visit(void (*visit) (LeaseEntry *entry, void *arg), void *arg)
{
	Oid			instance = extension_get()->extension;
	dshash_seq_status scan;
	LeaseEntry *entry;

	dshash_seq_init(&scan, shmem_table(SHARED_LEASES), false);
	while ((entry = dshash_seq_next(&scan)) != NULL)
	{
		if (entry->key.database == MyDatabaseId && entry->key.instance == instance)
			visit(entry, arg);
	}
	dshash_seq_term(&scan);
}

static void
count_mine(LeaseEntry *entry, void *arg)
{
	LeaseHold	now;
	LOCKTAG		tag = lease_lock_hold(&entry->key);

	lease_entry_snapshot(entry, &now, NULL);
	if (now.scope == LEASE_SESSION && lease_hold_is_mine(&now) &&
		compat_lock_held_by_me(&tag, ExclusiveLock))
		(*(int *) arg)++;
}

/* How many session holds of this database are this process's and stand. Reads the whole table. */
int
lease_entry_count_mine(void)
{
	int			count = 0;

	lease_entry_visit(count_mine, &count);
	return count;
}

/*
 * Frees the committed hold if it still is the one of this token, and wakes who
 * sleeps for that. With `delayed_until_us` nobody gets the name before. Never raises.
 */
void
lease_entry_set_free(LeaseEntry *entry, int64 token, int64 delayed_until_us)
{
	dsa_pointer note = InvalidDsaPointer;

	SpinLockAcquire(&entry->mutex);
	if (entry->now.token == token || (delayed_until_us != 0 && entry->now.scope == LEASE_FREE))
	{
		note = entry->now.note;
		memset(&entry->now, 0, sizeof(entry->now));
		entry->stores++;
		if (delayed_until_us != 0)
		{
			entry->now.scope = LEASE_DELAYED;
			entry->now.token = token;	/* the row's */
			entry->now.deadline_us = delayed_until_us;
		}
	}
	SpinLockRelease(&entry->mutex);
	lease_note_discard(&entry->key, note);
	lease_entry_note_change(entry);
}

/*
 * Whether the process that made a session's or a transaction's hold has the
 * lock: the lock manager is asked, in the holder's own list, since a hold may
 * have gone by DISCARD ALL, and its process in any way. Takes the lock's partition, shared.
 */
bool
lease_hold_has_lock(const LeaseHold *hold, const LOCKTAG *tag, LOCKMODE mode)
{
	uint32		hashcode = LockTagHashCode(tag);
	LWLock	   *partition = LockHashPartitionLock(hashcode);
	PGPROC	   *proc;
	bool		held = false;

	if (hold->pid == 0 || hold->procno < 0)
		return false;			/* read from a row */
	proc = GetPGProcByNumber(hold->procno);
	if (proc->pid != hold->pid)
		return false;
	LWLockAcquire(partition, LW_SHARED);
	COMPAT_FOREACH_PROCLOCK(proclock, proc, LockHashPartition(hashcode))
	{
		if (memcmp(&proclock->tag.myLock->tag, tag, sizeof(LOCKTAG)) == 0 &&
			(proclock->holdMask & LOCKBIT_ON(mode)) != 0)
			held = true;
	}
	LWLockRelease(partition);
	return held;
}

/* Whether this very process made the hold. */
bool
lease_hold_is_mine(const LeaseHold *hold)
{
	return hold->scope != LEASE_FREE && hold->pid == MyProcPid && hold->procno == compat_my_procno();
}

/* An interval in microseconds, a month being 30 days; saturates at the ends of int64. */
int64
lease_interval_us(const Interval *span)
{
	double		approximate = ((double) span->month * 30 + span->day) * USECS_PER_DAY + span->time;

	if (approximate >= 9.0e18)
		return PG_INT64_MAX;
	if (approximate <= -9.0e18)
		return PG_INT64_MIN;
	return ((int64) span->month * 30 + span->day) * USECS_PER_DAY + span->time;
}

/* The inverse: microseconds as an interval, palloc'd. */
Datum
lease_interval_datum(int64 us)
{
	Interval   *span = palloc0(sizeof(Interval));

	span->time = us;
	return IntervalPGetDatum(span);
}
