/*-------------------------------------------------------------------------
 *
 * lease_holder.c
 *	  Shared holds: many of one name, each with a token of its own.
 *
 * They are of session or transaction scope, so the lock manager has them (H in
 * share mode, once per holder); what it does not have is which token is whose.
 * That is a shared table by name and token, and for this process's own holds a
 * list, since the table cannot be asked by process.
 *
 * NOTES
 *	  As for all such holds, an entry here is believed only if its process has
 *	  the lock. Entries are marked as over in callbacks, and deleted at the
 *	  process's next call, or by the supervisor.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/ilist.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "storage/procarray.h"
#include "utils/memutils.h"

#include "compat.h"
#include "extension.h"
#include "lease_holder.h"
#include "lease_note.h"
#include "shmem.h"

#define HOLDER_BYTES ((sizeof(LeaseHolder) + 16) * 9 / 8 + 16)

/* One of this process's own, in TopMemoryContext; freed when it is found to be over. */
typedef struct Own
{
	dlist_node	node;
	LeaseHolderKey key;
	bool		over;
} Own;

static dlist_head own = DLIST_STATIC_INIT(own);

/* How shmem.c lays out the table of shared holders. */
const dshash_parameters *
lease_holder_params(void)
{
	static const dshash_parameters params = {
		.key_size = sizeof(LeaseHolderKey),
		.entry_size = sizeof(LeaseHolder),
		.compare_function = dshash_memcmp,
		.hash_function = dshash_memhash,
		COMPAT_DSHASH_COPY
	};

	return &params;
}

static LeaseHolderKey
key_of(const LeaseKey *lease, int64 token)
{
	LeaseHolderKey key;

	memset(&key, 0, sizeof(key));
	key.lease = *lease;
	key.token = token;
	return key;
}

/*
 * Adds a hold of this process whose transaction has not ended, busy until
 * lease_holder_unpin(). Raises 53200, and then has freed the hold's note.
 */
LeaseHolder *
lease_holder_add(const LeaseKey *lease, const char *name, const LeaseHold *hold)
{
	dshash_table *table = shmem_table(SHARED_HOLDERS);
	LeaseHolderKey key = key_of(lease, hold->token);
	dsa_pointer volatile name_place = InvalidDsaPointer;
	LeaseHolder *holder = NULL;
	Own		   *mine = NULL;
	bool		has_room = shmem_make_room(HOLDER_BYTES + strlen(name));
	bool		found;

	PG_TRY();
	{
		mine = MemoryContextAllocZero(TopMemoryContext, sizeof(Own));
		if (!has_room)
			lease_entry_raise_no_room();
		name_place = lease_entry_allocate(strlen(name));
		memcpy(dsa_get_address(shmem_area(), name_place), name, strlen(name));
		holder = dshash_find_or_insert(table, &key, &found);
		Assert(!found);			/* a token is given out once */
	}
	PG_CATCH();
	{
		if (DsaPointerIsValid(name_place))
			dsa_free(shmem_area(), name_place);
		lease_note_free(lease, hold->note);
		PG_RE_THROW();
	}
	PG_END_TRY();
	holder->committed = false;
	holder->busy = true;
	holder->hold = *hold;
	holder->name = name_place;
	holder->name_len = strlen(name);
	dshash_release_lock(table, holder);
	shmem_account(HOLDER_BYTES + strlen(name));
	mine->key = key;
	dlist_push_head(&own, &mine->node);
	return holder;
}

/* This process's hold, for a transaction that is about to end it: busy until lease_holder_unpin(). NULL: gone. */
LeaseHolder *
lease_holder_pin(const LeaseKey *lease, int64 token)
{
	dshash_table *table = shmem_table(SHARED_HOLDERS);
	LeaseHolderKey key = key_of(lease, token);
	LeaseHolder *holder = dshash_find(table, &key, true);

	if (holder == NULL)
		return NULL;
	holder->busy = true;
	dshash_release_lock(table, holder);
	return holder;
}

/*
 * The hold's transaction has committed. As the next two, for callbacks: a busy
 * entry is mapped and stays, and one word is written. Never raises.
 */
void
lease_holder_commit(LeaseHolder *holder)
{
	holder->committed = true;
}

/* The hold is over. */
void
lease_holder_end(LeaseHolder *holder)
{
	dlist_iter	iter;

	holder->hold.scope = LEASE_FREE;
	dlist_foreach(iter, &own)
	{
		Own		   *mine = dlist_container(Own, node, iter.cur);

		if (memcmp(&mine->key, &holder->key, sizeof(holder->key)) == 0)
			mine->over = true;
	}
}

/* The transaction is over. */
void
lease_holder_unpin(LeaseHolder *holder)
{
	holder->busy = false;
}

/* Whether this process lost the lock of one of its own: then it is over for good. */
static bool
is_over(Own *mine)
{
	LOCKTAG		tag = lease_lock_hold(&mine->key.lease);

	mine->over = mine->over || !compat_lock_held_by_me(&tag, ShareLock);
	return mine->over;
}

/*
 * This process was just granted H of a name and had none: what it once held of
 * it is over, and must not be taken for what it gets now.
 */
void
lease_holder_disown(const LeaseKey *lease)
{
	dlist_iter	iter;

	dlist_foreach(iter, &own)
	{
		Own		   *mine = dlist_container(Own, node, iter.cur);
		LeaseHolder *holder;

		if (memcmp(&mine->key.lease, lease, sizeof(*lease)) != 0)
			continue;
		mine->over = true;
		holder = dshash_find(shmem_table(SHARED_HOLDERS), &mine->key, true);
		if (holder == NULL)
			continue;
		holder->hold.scope = LEASE_FREE;
		dshash_release_lock(shmem_table(SHARED_HOLDERS), holder);
	}
}

/*
 * The shared hold that a token of a name stands for, if it stands: its process
 * has H, and it is committed or ends with its transaction.
 */
bool
lease_holder_find(const LeaseKey *lease, int64 token, LeaseHold *hold)
{
	dshash_table *table = shmem_table(SHARED_HOLDERS);
	LeaseHolderKey key = key_of(lease, token);
	LeaseHolder *holder = dshash_find(table, &key, false);
	LOCKTAG		tag = lease_lock_hold(lease);
	bool		stands;

	if (holder == NULL)
		return false;
	*hold = holder->hold;
	stands = hold->scope == LEASE_XACT || (hold->scope == LEASE_SESSION && holder->committed);
	dshash_release_lock(table, holder);
	return stands && lease_hold_has_lock(hold, &tag, ShareLock);
}

/* This process's own committed shared hold of a name, in session scope. */
bool
lease_holder_mine(const LeaseKey *lease, LeaseHold *hold)
{
	dlist_iter	iter;

	dlist_foreach(iter, &own)
	{
		Own		   *mine = dlist_container(Own, node, iter.cur);

		if (memcmp(&mine->key.lease, lease, sizeof(*lease)) == 0 && !is_over(mine) &&
			lease_holder_find(lease, mine->key.token, hold) && hold->scope == LEASE_SESSION)
			return true;
	}
	return false;
}

/* How many shared holds this process has. */
int
lease_holder_count_mine(void)
{
	dlist_iter	iter;
	int			count = 0;

	dlist_foreach(iter, &own)
		count += !is_over(dlist_container(Own, node, iter.cur));
	return count;
}

/* Frees what a holder that is about to be deleted has in the area. */
static void
dispose(LeaseHolder *holder)
{
	shmem_account(-(int64) (HOLDER_BYTES + holder->name_len));
	dsa_free(shmem_area(), holder->name);
	lease_note_dispose(holder->hold.note);
}

/* Deletes what this process marked as over. Outside of callbacks only. */
void
lease_holder_reap(void)
{
	dshash_table *table = shmem_table(SHARED_HOLDERS);
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &own)
	{
		Own		   *mine = dlist_container(Own, node, iter.cur);
		LeaseHolder *holder;

		if (!is_over(mine))
			continue;
		holder = dshash_find(table, &mine->key, true);
		if (holder != NULL && holder->busy)
		{
			/* of an operation of this transaction: at the next call */
			dshash_release_lock(table, holder);
			continue;
		}
		if (holder != NULL)
		{
			dispose(holder);
			dshash_delete_entry(table, holder);
		}
		dlist_delete(&mine->node);
		pfree(mine);
	}
}

/* Deletes the holds of a database (InvalidOid: of all) that do not stand, whatever became of their processes. */
void
lease_holder_purge(Oid database)
{
	dshash_seq_status scan;
	LeaseHolder *holder;

	dshash_seq_init(&scan, shmem_table(SHARED_HOLDERS), true);
	while ((holder = dshash_seq_next(&scan)) != NULL)
	{
		LOCKTAG		tag = lease_lock_hold(&holder->key.lease);

		if (OidIsValid(database) && holder->key.lease.database != database)
			continue;
		if (lease_hold_has_lock(&holder->hold, &tag, ShareLock) ||
			(holder->busy && BackendPidGetProc(holder->hold.pid) != NULL))
			continue;
		dispose(holder);
		dshash_delete_current(&scan);
	}
	dshash_seq_term(&scan);
}

/* Calls `visit` for each shared hold of this database that stands, with its partition locked. */
void
lease_holder_visit(LeaseHolderVisitor visit, void *arg)
{
	Oid			instance = extension_get()->extension;
	dshash_seq_status scan;
	LeaseHolder *holder;

	dshash_seq_init(&scan, shmem_table(SHARED_HOLDERS), false);
	while ((holder = dshash_seq_next(&scan)) != NULL)
	{
		LOCKTAG		tag = lease_lock_hold(&holder->key.lease);

		if (holder->key.lease.database == MyDatabaseId && holder->key.lease.instance == instance &&
			holder->hold.scope != LEASE_FREE && lease_hold_has_lock(&holder->hold, &tag, ShareLock))
			visit(holder, arg);
	}
	dshash_seq_term(&scan);
}
