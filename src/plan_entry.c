/*-------------------------------------------------------------------------
 *
 * plan_entry.c
 *	  The shared-memory entry of a plan: how far it is, and what of it can be
 *	  claimed.
 *
 * It is made from the rows when the plan is used for the first time since the server's start
 * (plan_memory.c), and kept exact by the callbacks of who writes these rows (plan_xact.c): nobody writes a
 * row of a plan that is not loaded.
 *
 * What can be claimed is a range of numbers that were never given away and two
 * queues of numbers that came back. They are hints: whether a split can be claimed its
 * row says. A number too many costs a look at a row; one too few would be work that nobody
 * does, so a queue that had no room for one says so, and is filled from the rows
 * when it has run empty.
 *
 * NOTES
 *	  Callbacks at the end of a transaction must not fail: they never allocate
 *	  or free anything in the area. What they are to have room for was reserved before.
 *
 *	  The locks of plans, claims and members are taken one at a time. A copy of what one says
 *	  may be outdated when the next is taken; where that matters the row decides.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "compat.h"
#include "plan_entry.h"
#include "shmem.h"

#define QUEUE_MIN 64
#define QUEUE_MAX PLAN_QUEUE_MAX

/* How shmem.c lays out the table of plans. */
const dshash_parameters *
plan_entry_params(void)
{
	static const dshash_parameters params = {
		.key_size = sizeof(PlanKey),
		.entry_size = sizeof(PlanEntry),
		.compare_function = dshash_memcmp,
		.hash_function = dshash_memhash,
		COMPAT_DSHASH_COPY
	};

	return &params;
}

/* Raises 53200. */
void
plan_raise_no_room(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("out of shared memory for plans"),
			 errdetail("revenant.shared_memory is used up."),
			 errhint("Set revenant.shared_memory higher, and restart the server.")));
}

/* Raises 53200 unless there is so much room in the area, or can be made. With none of its locks. */
void
plan_require_room(Size bytes)
{
	if (!shmem_make_room(bytes))
		plan_raise_no_room();
}

/* ---------------------------------------------------------------- plans */

/* The key of a plan. */
void
plan_key_make(PlanKey *key, Oid instance, const char *name)
{
	memset(key, 0, sizeof(*key));
	key->database = MyDatabaseId;
	key->instance = instance;
	digest_name(instance, name, key->digest);
}

static void
init_entry(PlanEntry *entry, const char *name)
{
	memset((char *) entry + sizeof(PlanKey), 0, sizeof(PlanEntry) - sizeof(PlanKey));
	pg_atomic_init_u32(&entry->pins, 0);
	pg_atomic_init_u64(&entry->floor, 0);
	LWLockInitialize(&entry->lock, shmem_tranche(SHARED_PLANS));
	ConditionVariableInit(&entry->available);
	ConditionVariableInit(&entry->assignment);
	for (int i = 0; i < PLAN_COUNTERS; i++)
		pg_atomic_init_u64(&entry->counters[i], 0);
	pg_atomic_init_u64(&entry->since, (uint64) GetCurrentTimestamp());
	strlcpy(entry->name, name, sizeof(entry->name));
	entry->name_len = (int) strlen(entry->name);
}

/* The entry of a plan, pinned; NULL where there is none and none is to be made. Raises 53200. */
PlanEntry *
plan_entry_pin(const PlanKey *key, const char *name, bool create)
{
	dshash_table *table = shmem_table(SHARED_PLANS);
	PlanEntry  *entry = dshash_find(table, key, false);
	bool		found;

	if (entry == NULL && !create)
		return NULL;
	if (entry == NULL)
	{
		plan_require_room(PLAN_ENTRY_BYTES(PlanEntry));
		entry = dshash_find_or_insert(table, key, &found);
		if (!found)
		{
			init_entry(entry, name);
			shmem_account(PLAN_ENTRY_BYTES(PlanEntry));
		}
	}
	pg_atomic_fetch_add_u32(&entry->pins, 1);
	dshash_release_lock(table, entry);
	return entry;
}

/* Gives a pin back. Never raises. */
void
plan_entry_unpin(PlanEntry *entry)
{
	pg_atomic_fetch_sub_u32(&entry->pins, 1);
}

/* Two fingerprints are told apart by this. Cannot fail, unlike a digest. */
static void
fingerprint_digest(const char *fingerprint, uint8 *digest)
{
	for (int half = 0; half < 2; half++)
	{
		uint64		hash = hash_bytes_extended((const unsigned char *) fingerprint, (int) strlen(fingerprint), half + 1);

		memcpy(digest + half * sizeof(hash), &hash, sizeof(hash));
	}
}

/* Counts from zero. */
static void
reset_counters(PlanEntry *entry, void *arg)
{
	for (int i = 0; i < PLAN_COUNTERS; i++)
		pg_atomic_write_u64(&entry->counters[i], 0);
	pg_atomic_write_u64(&entry->since, (uint64) GetCurrentTimestamp());
}

/* What a row says of a plan's definition. The caller has the entry's lock. Never raises. */
void
plan_entry_define(PlanEntry *entry, const PlanRow *row)
{
	if (entry->plan_id != row->plan_id)
		reset_counters(entry, NULL);	/* another one of this name */
	entry->plan_id = row->plan_id;
	entry->owner = row->owner_oid;
	entry->native = row->native;
	entry->lease_ttl_us = row->lease_ttl_us;
	entry->max_attempts = row->max_attempts;
	entry->max_in_flight = row->max_in_flight;
	entry->rebalance_delay_us = row->rebalance_delay_us;
	entry->drain_deadline_us = row->drain_deadline_us;
	entry->has_fingerprint = row->fingerprint != NULL;
	if (row->fingerprint != NULL)
		fingerprint_digest(row->fingerprint, entry->fingerprint);
	entry->final = row->final;
	entry->verdict = row->verdict;
	entry->verdict_seq = row->verdict_seq;
	entry->planned = row->planned;
}

/* A plan that was just made. The caller has the entry's lock. Never raises. */
void
plan_entry_begin(PlanEntry *entry, const PlanRow *row)
{
	plan_entry_define(entry, row);
	entry->done = entry->quarantined = entry->owned = 0;
	pg_atomic_write_u64(&entry->floor, 0);
	entry->fresh_next = row->last_number + 1;
	entry->fresh_end = row->last_number;
	entry->first.count = entry->again.count = 0;
	entry->queue_lost = false;
	entry->members = 0;
	entry->balanced_from_us = 0;
	entry->notes_lost = true;
	entry->rate_second = 0;
	memset(entry->rate_done, 0, sizeof(entry->rate_done));
	entry->look_us = PG_INT64_MAX;
	entry->gone = entry->made_here = false;
	entry->loaded = true;
}

/* All splits up to the row's last one are gone. The caller has the entry's lock. Never raises. */
void
plan_entry_reset(PlanEntry *entry, const PlanRow *row)
{
	plan_entry_define(entry, row);
	pg_atomic_write_u64(&entry->floor, (uint64) row->last_number);
	entry->done = entry->quarantined = entry->owned = 0;
	entry->fresh_next = row->last_number + 1;
	entry->fresh_end = row->last_number;
	entry->first.count = entry->again.count = 0;
	entry->queue_lost = false;
	entry->notes_lost = true;
	entry->assign_wanted++;
	entry->look_us = 0;			/* its claims are over */
}

/* Whether this is the fingerprint that the plan has. The caller has the entry's lock. */
bool
plan_entry_has_fingerprint(const PlanEntry *entry, const char *given)
{
	uint8		digest[DIGEST_BYTES];

	fingerprint_digest(given, digest);
	return entry->has_fingerprint && memcmp(digest, entry->fingerprint, DIGEST_BYTES) == 0;
}

/* Counts. Never raises. */
void
plan_count(PlanEntry *entry, PlanCounter which, int64 more)
{
	if (which != PLAN_COUNTERS)
		pg_atomic_fetch_add_u64(&entry->counters[which], more);
}

/* ---------------------------------------------------------------- what can be claimed */

static int64 *
queue_items(const NumberQueue *queue)
{
	return dsa_get_address(shmem_area(), queue->place);
}

/* Makes room for so many numbers in all, up to QUEUE_MAX; less if there is no more memory. The caller has the plan's lock. */
static void
queue_reserve(NumberQueue *queue, int64 wanted)
{
	int			capacity = Max(queue->capacity, QUEUE_MIN);
	dsa_pointer place;
	int64	   *items;

	while (capacity < wanted && capacity < QUEUE_MAX)
		capacity *= 2;
	if (capacity == queue->capacity || !shmem_has_room(PLAN_ARRAY_BYTES(capacity * sizeof(int64))))
		return;
	place = dsa_allocate_extended(shmem_area(), capacity * sizeof(int64), DSA_ALLOC_NO_OOM | DSA_ALLOC_HUGE);
	if (!DsaPointerIsValid(place))
		return;
	shmem_account(PLAN_ARRAY_BYTES(capacity * sizeof(int64)));
	items = dsa_get_address(shmem_area(), place);
	for (int i = 0; i < queue->count; i++)
		items[i] = queue_items(queue)[(queue->head + i) % queue->capacity];
	if (queue->capacity > 0)
	{
		dsa_free(shmem_area(), queue->place);
		shmem_account(-(int64) PLAN_ARRAY_BYTES(queue->capacity * sizeof(int64)));
	}
	queue->place = place;
	queue->capacity = capacity;
	queue->head = 0;
}

/* Adds a number at the end. False: there is no room. Never raises. */
static bool
queue_add(NumberQueue *queue, int64 number)
{
	if (queue->count == queue->capacity)
		return false;
	queue_items(queue)[(queue->head + queue->count) % queue->capacity] = number;
	queue->count++;
	return true;
}

/* The same at the beginning. */
static bool
queue_return(NumberQueue *queue, int64 number)
{
	if (queue->count == queue->capacity)
		return false;
	queue->head = (queue->head + queue->capacity - 1) % queue->capacity;
	queue_items(queue)[queue->head] = number;
	queue->count++;
	return true;
}

static int64
queue_take(NumberQueue *queue)
{
	int64		number = queue_items(queue)[queue->head];

	queue->head = (queue->head + 1) % queue->capacity;
	queue->count--;
	return number;
}

/* Frees what a queue has. */
static void
queue_free(NumberQueue *queue)
{
	if (queue->capacity > 0)
	{
		dsa_free(shmem_area(), queue->place);
		shmem_account(-(int64) PLAN_ARRAY_BYTES(queue->capacity * sizeof(int64)));
	}
	memset(queue, 0, sizeof(*queue));
}

/*
 * Takes up to `wanted` numbers of splits that may be claimed: what was never owned first.
 * Returns how many; `fresh` says of each where it belongs if it is put back. None where the entry
 * is another plan's by now: the caller looks for them in the rows of the one that he knows.
 * Takes the plan's lock.
 */
int
plan_entry_take(PlanEntry *entry, int64 plan_id, int64 *numbers, bool *fresh, int wanted)
{
	int			n = 0;

	LWLockAcquire(&entry->lock, LW_EXCLUSIVE);
	if (entry->plan_id != plan_id)
		wanted = 0;
	/* first the room: each of them may have to come back, and so may whatever is owned */
	plan_entry_reserve_again(entry, wanted);
	plan_entry_reserve_first(entry, wanted);
	while (n < wanted)
	{
		fresh[n] = true;
		if (entry->first.count > 0)
			numbers[n] = queue_take(&entry->first);
		else if (entry->fresh_next <= entry->fresh_end)
			numbers[n] = entry->fresh_next++;
		else if (entry->again.count > 0)
		{
			numbers[n] = queue_take(&entry->again);
			fresh[n] = false;
		}
		else
			break;
		if (numbers[n] > plan_entry_floor(entry))
			n++;
	}
	LWLockRelease(&entry->lock);
	return n;
}

/* Room for so many numbers that come back to the front. The caller has the plan's lock. */
void
plan_entry_reserve_first(PlanEntry *entry, int more)
{
	queue_reserve(&entry->first, entry->first.count + more);
}

/* The same for those that come back otherwise; whatever is owned may do so, too. */
void
plan_entry_reserve_again(PlanEntry *entry, int more)
{
	queue_reserve(&entry->again, entry->again.count + entry->owned + more);
}

/* So many more splits may have to go into the queue at the end of this transaction. Takes the plan's lock. */
void
plan_entry_reserve(PlanEntry *entry, int more)
{
	LWLockAcquire(&entry->lock, LW_EXCLUSIVE);
	plan_entry_reserve_again(entry, more);
	LWLockRelease(&entry->lock);
}

/* A split can be claimed (again). The caller has the plan's lock, and wakes who waits. Never raises. */
void
plan_entry_put_back(PlanEntry *entry, int64 number, bool fresh)
{
	if (number <= plan_entry_floor(entry))
		return;
	if (fresh && queue_add(&entry->first, number))
		return;
	/* nobody takes from it where all splits are assigned */
	if (entry->members > 0 && entry->again.count > plan_entry_available(entry) + QUEUE_MIN)
	{
		entry->queue_lost = true;
		return;
	}
	if (!queue_add(&entry->again, number))
		entry->queue_lost = true;
}

/* A split was taken for nothing, and is the next one again. As plan_entry_put_back(). */
void
plan_entry_return(PlanEntry *entry, int64 number, bool fresh)
{
	if (number <= plan_entry_floor(entry) || (fresh && queue_return(&entry->first, number)) || queue_return(&entry->again, number))
		return;
	entry->queue_lost = true;
}

/* Forgets which splits can be claimed. The caller has the plan's lock. */
void
plan_entry_forget_queues(PlanEntry *entry)
{
	queue_free(&entry->first);
	queue_free(&entry->again);
}

/* Maps what a callback may have to write: to do that there could fail. Takes the plan's lock. */
void
plan_entry_map(PlanEntry *entry)
{
	LWLockAcquire(&entry->lock, LW_SHARED);
	if (entry->first.capacity > 0)
		(void) queue_items(&entry->first);
	if (entry->again.capacity > 0)
		(void) queue_items(&entry->again);
	if (DsaPointerIsValid(entry->notes))
		(void) dsa_get_address(shmem_area(), entry->notes);
	LWLockRelease(&entry->lock);
}

/* Splits up to this number are gone. */
int64
plan_entry_floor(PlanEntry *entry)
{
	return (int64) pg_atomic_read_u64(&entry->floor);
}

/* How many splits can be claimed, as committed. The caller has the plan's lock. */
int64
plan_entry_available(const PlanEntry *entry)
{
	return Max(entry->planned - entry->done - entry->quarantined - entry->owned, 0);
}

/* ---------------------------------------------------------------- for who assigns */

/* Makes room for notes about splits, from the first member on. Raises 53200. Takes the plan's lock. */
void
plan_entry_keep_notes(PlanEntry *entry)
{
	const Size	bytes = PLAN_ARRAY_BYTES(PLAN_NOTES * sizeof(PlanNote));
	bool		lacking;

	LWLockAcquire(&entry->lock, LW_SHARED);
	lacking = !DsaPointerIsValid(entry->notes);
	LWLockRelease(&entry->lock);
	if (!lacking)
		return;
	plan_require_room(bytes);
	LWLockAcquire(&entry->lock, LW_EXCLUSIVE);
	if (!DsaPointerIsValid(entry->notes))
	{
		entry->notes = dsa_allocate_extended(shmem_area(), PLAN_NOTES * sizeof(PlanNote), DSA_ALLOC_NO_OOM);
		if (DsaPointerIsValid(entry->notes))
			shmem_account(bytes);
		entry->notes_lost = true;
	}
	lacking = !DsaPointerIsValid(entry->notes);
	LWLockRelease(&entry->lock);
	if (lacking)
		plan_raise_no_room();
}

/* Who gets what may be another by now. Takes the plan's lock. */
void
plan_entry_want_assignment(PlanEntry *entry)
{
	LWLockAcquire(&entry->lock, LW_EXCLUSIVE);
	entry->assign_wanted++;
	LWLockRelease(&entry->lock);
}

/* Something became of a split. The caller has the plan's lock. Never raises. */
void
plan_entry_note(PlanEntry *entry, int64 number, int64 member)
{
	PlanNote   *notes;

	if (!DsaPointerIsValid(entry->notes))
		return;
	notes = dsa_get_address(shmem_area(), entry->notes);
	notes[entry->noted % PLAN_NOTES] = (PlanNote) {.number = number,.member = member};
	entry->noted++;
	entry->assign_wanted++;
}

/*
 * The notes from number *from on, oldest first, into `notes`, which has room for
 * PLAN_NOTES; -1: some are lost. *from becomes the next one's. Takes the plan's lock.
 */
int
plan_entry_read_notes(PlanEntry *entry, uint64 *from, PlanNote *notes)
{
	int			n = 0;

	LWLockAcquire(&entry->lock, LW_SHARED);
	if (!DsaPointerIsValid(entry->notes) || entry->noted - *from > PLAN_NOTES || *from > entry->noted)
		n = -1;
	else
	{
		const PlanNote *ring = dsa_get_address(shmem_area(), entry->notes);

		for (uint64 at = *from; at < entry->noted; at++)
			notes[n++] = ring[at % PLAN_NOTES];
	}
	*from = entry->noted;
	LWLockRelease(&entry->lock);
	return n;
}

/* ---------------------------------------------------------------- the rate */

static void
turn_buckets(PlanEntry *entry, int64 second)
{
	int64		gone = second - entry->rate_second;

	if (gone <= 0)
		return;
	for (int64 i = 1; i <= Min(gone, RATE_BUCKETS); i++)
		entry->rate_done[(entry->rate_second + i) % RATE_BUCKETS] = 0;
	entry->rate_second = second;
}

static int64
done_lately(const PlanEntry *entry)
{
	int64		sum = 0;

	for (int i = 0; i < RATE_BUCKETS; i++)
		sum += entry->rate_done[i];
	return sum;
}

/* A split is done, now. The caller has the plan's lock. Never raises. */
void
plan_entry_note_done(PlanEntry *entry)
{
	int64		now_us = clock_now_us();

	turn_buckets(entry, now_us / US_PER_S);
	if (done_lately(entry) == 0)
		entry->rate_since_us = now_us;
	entry->rate_done[(now_us / US_PER_S) % RATE_BUCKETS]++;
}

/* Splits done per second, over the latest minute or since the work began anew. Takes the plan's lock. */
double
plan_entry_rate(PlanEntry *entry)
{
	int64		now_us = clock_now_us();
	int64		since_us;
	int64		sum;

	LWLockAcquire(&entry->lock, LW_EXCLUSIVE);
	turn_buckets(entry, now_us / US_PER_S);
	sum = done_lately(entry);
	/* the oldest bucket began so long ago */
	since_us = Max(entry->rate_since_us, (now_us / US_PER_S - (RATE_BUCKETS - 1)) * US_PER_S);
	LWLockRelease(&entry->lock);
	return sum == 0 ? 0 : (double) sum * US_PER_S / Max(now_us - since_us, US_PER_S);
}

/* ---------------------------------------------------------------- all of them */

/* Calls `visit` for each plan of this database and instance, pinned, without any lock. */
void
plan_entry_visit(Oid instance, void (*visit) (PlanEntry *entry, void *arg), void *arg)
{
	dshash_seq_status scan;
	PlanEntry  *entry;
	List	   *all = NIL;
	ListCell   *cell;

	dshash_seq_init(&scan, shmem_table(SHARED_PLANS), false);
	while ((entry = dshash_seq_next(&scan)) != NULL)
	{
		if (entry->key.database != MyDatabaseId || entry->key.instance != instance)
			continue;
		pg_atomic_fetch_add_u32(&entry->pins, 1);
		all = lappend(all, entry);
	}
	dshash_seq_term(&scan);
	PG_TRY();
	{
		foreach(cell, all)
			visit(lfirst(cell), arg);
	}
	PG_FINALLY();
	{
		foreach(cell, all)
			plan_entry_unpin(lfirst(cell));
	}
	PG_END_TRY();
	list_free(all);
}

static void
free_plan(PlanEntry *entry)
{
	queue_free(&entry->first);
	queue_free(&entry->again);
	if (DsaPointerIsValid(entry->notes))
	{
		dsa_free(shmem_area(), entry->notes);
		shmem_account(-(int64) PLAN_ARRAY_BYTES(PLAN_NOTES * sizeof(PlanNote)));
	}
	shmem_account(-(int64) PLAN_ENTRY_BYTES(PlanEntry));
}

/* Removes plans that are gone, and those of other instances of the extension: see plan_purge_removes(). */
void
plan_entry_purge(Oid database, Oid keep_instance)
{
	dshash_seq_status scan;
	PlanEntry  *entry;

	dshash_seq_init(&scan, shmem_table(SHARED_PLANS), true);
	while ((entry = dshash_seq_next(&scan)) != NULL)
	{
		if (!plan_purge_removes(entry->key.database, entry->key.instance, entry->gone, database, keep_instance) ||
			pg_atomic_read_u32(&entry->pins) > 0)
			continue;
		free_plan(entry);
		dshash_delete_current(&scan);
	}
	dshash_seq_term(&scan);
}

/* stat_reset(), of the plans of this database. */
void
plan_reset_counters(Oid instance)
{
	plan_entry_visit(instance, reset_counters, NULL);
}
