/*-------------------------------------------------------------------------
 *
 * lease_local.c
 *	  Entries of this process alone, for leases that shared memory has no room for.
 *
 * After a restart there may be more rows of leases than there is memory for.
 * Their holders go on all the same: they work on an entry of their own, made
 * from the row, for one transaction, and what a renewal would have written into
 * shared memory goes into the row.
 *
 * Such a row has two truths as soon as there is room and somebody makes an
 * entry in shared memory. What keeps them one:
 *
 *	  - Whoever writes the row by an entry of its own has F first, as a fence
 *		has it, and then looks that no settled entry is there (53200 if there is: the
 *		next try finds it).
 *	  - An entry in shared memory settles only under F in a mode that keeps
 *		those out, or else stays unsettled: then it says what the row says, as
 *		far as that is committed, and counts for no more than an entry of one's own.
 *		It does not settle by a row that this transaction has written itself and may roll back.
 *	  - What was read before somebody else stored something is not stored.
 *	  - Who acquires has F exclusively, and settles again then.
 *	  - Who sleeps for an entry that is not settled looks at the row again now and then.
 *
 * test/model/full.pml shows what each of them prevents.
 *
 * NOTES
 *	  Nobody pays for this until it happens for the first time since the start:
 *	  a flag in shared memory says so. It is set before the table of leases is
 *	  searched once more and the row is read; who settles reads it after its entry is in
 *	  the table, and again after the row. One of the two sees the other.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/atomics.h"
#include "utils/memutils.h"

#include "lease_local.h"

typedef struct LocalEntry
{
	LeaseEntry	entry;			/* first, so that a pointer to it is one to this */
	struct LocalEntry *next;
	char		name[FLEXIBLE_ARRAY_MEMBER];
} LocalEntry;

/* In TopTransactionContext. */
static LocalEntry *locals = NULL;

/* Whether any process may ever have had one since the start. */
static pg_atomic_uint32 *crowded = NULL;

/* What this file needs in the fixed segment, in bytes. */
Size
lease_local_shmem_size(void)
{
	return sizeof(pg_atomic_uint32);
}

/* Called by shmem.c at every start of shared memory. */
void
lease_local_shmem_init(void *place, bool found)
{
	crowded = place;
	if (!found)
		pg_atomic_init_u32(crowded, 0);
}

/* Whether some process may have an entry of its own. The caller's own entry is in the table. */
bool
lease_local_may_exist(void)
{
	return pg_atomic_read_u32(crowded) != 0;
}

/* To be called before the table is searched for the last time. */
void
lease_local_will_exist(void)
{
	(void) pg_atomic_exchange_u32(crowded, 1);	/* a full barrier */
}

/* This transaction's own entry of a name, or NULL. */
LeaseEntry *
lease_local_find(const LeaseKey *key)
{
	for (LocalEntry *local = locals; local != NULL; local = local->next)
	{
		if (memcmp(&local->entry.key, key, sizeof(LeaseKey)) == 0)
			return &local->entry;
	}
	return NULL;
}

/* Makes one, not settled: it never is. It has no pin yet. */
LeaseEntry *
lease_local_make(const LeaseKey *key, const char *name)
{
	LocalEntry *local = MemoryContextAllocZero(TopTransactionContext,
											   offsetof(LocalEntry, name) + strlen(name) + 1);

	lease_entry_init(&local->entry, name, InvalidDsaPointer);
	local->entry.key = *key;
	memcpy(local->name, name, strlen(name) + 1);
	local->next = locals;
	locals = local;
	return &local->entry;
}

/* The name of an entry that lease_local_make() gave. */
const char *
lease_local_name(const LeaseEntry *entry)
{
	return ((const LocalEntry *) entry)->name;
}

/* Nobody has a pin on it any more: the next look begins with shared memory again. Never raises. */
void
lease_local_drop(LeaseEntry *entry)
{
	for (LocalEntry **link = &locals; *link != NULL; link = &(*link)->next)
	{
		if (&(*link)->entry == entry)
		{
			*link = (*link)->next;
			return;				/* the memory goes with the transaction */
		}
	}
}

/* The transaction is over, and with it their memory. */
void
lease_local_forget_all(void)
{
	locals = NULL;
}
