/*-------------------------------------------------------------------------
 *
 * lease_bound.c
 *	  Ttl holds that also end with the session that took them.
 *
 * Such a session has B of the name, in share mode and at session level, for as
 * long as one of its holds may stand: so the lock manager knows when it ended,
 * however it did. B is not waited for. It goes back when the session next does
 * something with leases and the hold is not the current one any more.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/ilist.h"
#include "storage/lock.h"
#include "utils/memutils.h"

#include "clock.h"
#include "compat.h"
#include "lease_bound.h"
#include "lease_budget.h"
#include "lease_wait.h"

/* One of this session's, in TopMemoryContext; freed when it is over. */
typedef struct Bound
{
	dlist_node	node;
	LeaseKey	key;
	int64		token;
} Bound;

static dlist_head bounds = DLIST_STATIC_INIT(bounds);

static bool
has_lock(const LeaseKey *key)
{
	LOCKTAG		tag = lease_lock_bound(key);

	return compat_lock_held_by_me(&tag, ShareLock);
}

/* Frees one, and gives B back if it was the last one of its name. Never raises. */
static void
end(Bound *bound)
{
	LOCKTAG		tag = lease_lock_bound(&bound->key);
	LeaseKey	key = bound->key;
	dlist_iter	iter;

	dlist_delete(&bound->node);
	pfree(bound);
	lease_budget_add(-1);
	dlist_foreach(iter, &bounds)
	{
		if (memcmp(&dlist_container(Bound, node, iter.cur)->key, &key, sizeof(key)) == 0)
			return;
	}
	if (compat_lock_held_by_me(&tag, ShareLock))
		LockRelease(&tag, ShareLock, true);
}

/* Binds the hold of a token to this session. Nobody has B in another mode, so this does not wait. */
void
lease_bound_add(const LeaseEntry *entry, int64 token)
{
	LOCKTAG		tag = lease_lock_bound(&entry->key);
	Bound	   *bound = MemoryContextAllocZero(TopMemoryContext, sizeof(Bound));

	bound->key = entry->key;
	bound->token = token;
	dlist_push_head(&bounds, &bound->node);
	lease_budget_add(1);
	if (!has_lock(&entry->key))
		lease_wait_lock(&tag, ShareLock, true, WAIT_FOREVER);
}

/* The hold came to nothing. For callbacks. */
void
lease_bound_forget(const LeaseEntry *entry, int64 token)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &bounds)
	{
		Bound	   *bound = dlist_container(Bound, node, iter.cur);

		if (bound->token == token && memcmp(&bound->key, &entry->key, sizeof(LeaseKey)) == 0)
			end(bound);
	}
}

/* How many holds are bound to this session. */
int
lease_bound_count(void)
{
	dlist_iter	iter;
	int			count = 0;

	lease_bound_reap();
	dlist_foreach(iter, &bounds)
		count++;
	return count;
}

/* Frees what is over: released, lapsed and taken over, or given up with B itself. Outside of callbacks only. */
void
lease_bound_reap(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &bounds)
	{
		Bound	   *bound = dlist_container(Bound, node, iter.cur);
		LeaseEntry *entry = lease_entry_pin(&bound->key, NULL, LEASE_PIN_EXISTING);
		LeaseHold	now = {0},
					next = {0};
		bool		stands;

		if (entry != NULL)
		{
			lease_entry_snapshot(entry, &now, &next);
			lease_entry_unpin(entry);
		}
		stands = next.token == bound->token ||
			(now.token == bound->token && lease_hold_is_live(&now, clock_now_us()));
		if (!stands || !has_lock(&bound->key))
			end(bound);
	}
}
