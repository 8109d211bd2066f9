/*-------------------------------------------------------------------------
 *
 * lease_sweep.c
 *	  Removing the leases that lapsed and that nobody asks for.
 *
 * The supervisor looks once in a while which have lapsed, and then removes
 * them a few at a time, so that neither its tasks nor anybody's lease waits for
 * it: what is busy is left for the next time.
 *
 * NOTES
 *	  A row that has an entry lapses by what the entry says, so a look at
 *	  shared memory finds it. Only what a start of the server found has no
 *	  entry before somebody asks for it. So the table itself is read at the
 *	  first look, and again when the next of those rows can lapse.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/inval.h"
#include "utils/memutils.h"

#include "clock.h"
#include "debug.h"
#include "extension.h"
#include "lease.h"
#include "lease_entry.h"
#include "lease_event.h"
#include "lease_holder.h"
#include "lease_row.h"
#include "lease_standing.h"
#include "lease_wait.h"
#include "row.h"

/* At most so many are known to have lapsed at once. */
#define LAPSED_MAX 10000

/* The table is read no more often than this, and at least this often, whatever is known. */
#define TABLE_MIN_US (60 * US_PER_S)
#define TABLE_MAX_US (3600 * US_PER_S)

/* Names that had lapsed at the last look, in a context of their own that the next look resets. */
static MemoryContext lapsed_context = NULL;
static List *lapsed = NIL;

/* When to read the table, and of which instance of the extension that is true. */
static int64 table_due_us = 0;
static Oid	table_instance = InvalidOid;

static void
add_lapsed(const char *name)
{
	MemoryContext old;

	if (list_length(lapsed) >= LAPSED_MAX)
		return;
	old = MemoryContextSwitchTo(lapsed_context);
	lapsed = lappend(lapsed, pstrdup(name));
	MemoryContextSwitchTo(old);
}

/* Whether a hold's row can go. A guess is enough: remove_one() looks again. */
static bool
is_lapsed(const LeaseHold *hold, const LeaseKey *key, int64 now_us)
{
	return lease_hold_has_row(hold) &&
		(lease_hold_free_from(hold) <= now_us || lease_hold_lost_its_session(hold, key));
}

static void
look_at_entry(LeaseEntry *entry, void *arg)
{
	LeaseHold	now;

	lease_entry_snapshot(entry, &now, NULL);
	if (lease_entry_is_settled(entry) && is_lapsed(&now, &entry->key, *(int64 *) arg))
		add_lapsed(lease_entry_name(entry));
}

/* A row that no entry speaks for. */
static void
look_at_row(const LeaseRow *row, void *arg)
{
	LeaseKey	key;
	LeaseEntry *entry;
	bool		settled = false;

	lease_key_make(&key, row->name);
	entry = lease_entry_pin(&key, row->name, LEASE_PIN_EXISTING);
	if (entry != NULL)
	{
		settled = lease_entry_is_settled(entry);
		lease_entry_unpin(entry);
	}
	if (settled)
		return;
	if (is_lapsed(&row->hold, &key, *(int64 *) arg))
		add_lapsed(row->name);
	else
		table_due_us = Min(table_due_us, lease_hold_free_from(&row->hold));
}

/* The supervisor waits for nobody, not even for who has locked the table or a part of it. To the end of the transaction. */
static bool
lock_table(void)
{
	Relation	rel = NULL;
	bool		locked = row_try_open(extension_get()->lease, RowExclusiveLock, &rel);

	if (rel != NULL)
		relation_close(rel, NoLock);
	return locked;
}

/*
 * Looks which leases have lapsed; what an earlier look found is forgotten.
 * Called by the supervisor, in a transaction. True when there may be more than it
 * remembers. Takes each partition of the table of leases in turn, shared.
 */
bool
lease_sweep_look(void)
{
	Oid			instance = extension_get()->extension;
	int64		now_us = clock_now_us();

	if (lapsed_context == NULL)
		lapsed_context = AllocSetContextCreate(TopMemoryContext, "revenant lapsed leases", ALLOCSET_DEFAULT_SIZES);
	MemoryContextReset(lapsed_context);
	lapsed = NIL;
	if (!lock_table())
		return false;
	lease_entry_visit(look_at_entry, &now_us);
	if (list_length(lapsed) < LAPSED_MAX && (instance != table_instance || now_us >= table_due_us))
	{
		table_instance = InvalidOid;	/* until it has been read */
		table_due_us = now_us + TABLE_MAX_US;
		lease_row_visit(false, look_at_row, &now_us);
		table_instance = instance;
		table_due_us = list_length(lapsed) < LAPSED_MAX ? Max(table_due_us, now_us + TABLE_MIN_US) : now_us;
	}
	return list_length(lapsed) >= LAPSED_MAX;
}

/* One that is busy is looked at again, also if it has no entry. */
static void
skip(void)
{
	table_due_us = Min(table_due_us, clock_now_us() + TABLE_MIN_US);
}

/* Removes one lapsed lease, if nobody is at it. */
static void
remove_one(const char *name)
{
	LeaseKey	key;
	LeaseOp    *look;
	LeaseHold	now;
	LOCKTAG		hold_lock,
				fence_lock;

	lease_key_make(&key, name);
	hold_lock = lease_lock_hold(&key);
	fence_lock = lease_lock_fence(&key);
	if (!lease_wait_lock(&hold_lock, HOLD_EXCLUSIVE, false, 0))
	{
		skip();
		return;
	}
	if (!lease_wait_lock(&fence_lock, TAKEOVER_EXCLUSIVE, false, 0))
	{
		lease_unlock(&hold_lock, HOLD_EXCLUSIVE, false);
		skip();
		return;
	}
	look = lease_find_entry(&key, name);
	if (look == NULL)
		return;
	(void) lease_settle_fenced(look->entry, name, true);
	if (!lease_entry_is_taken(look->entry, &now) && lease_hold_has_row(&now) &&
		lease_row_delete(name, now.token, false))
	{
		LeaseOp    *op = lease_xact_add(LEASE_OP_RELEASE, lease_entry_pin_again(look->entry), now.token);

		op->hold.scope = LEASE_TTL;
		op->counted = now.scope == LEASE_TTL ? STAT_LEASES_LAPSED : STAT_NOTHING;	/* else a hold_off is over */
		lease_tell_lost(name, &now, "expired");
	}
	lease_xact_forget(look);
}

/*
 * Removes at most `limit` of what lease_sweep_look() found, and returns how
 * many are left to be looked at. Called by the supervisor, in a transaction of its own that
 * then commits, flushed. Takes H and F of each conditionally.
 */
int
lease_sweep_some(int limit)
{
	if (!lock_table())
		lapsed = NIL;			/* at the next look, then */
	while (limit-- > 0 && lapsed != NIL)
	{
		char	   *name = llast(lapsed);

		CHECK_FOR_INTERRUPTS();
		lapsed = list_delete_last(lapsed);	/* first, so that an error is not met for ever */
		remove_one(name);
		DEBUG_POINT("lease-swept");
	}
	return list_length(lapsed);
}

/* Gives back shared memory that nobody needs any more. Called by the supervisor, in a transaction. */
void
lease_purge(void)
{
	AcceptInvalidationMessages();	/* the extension may have been made anew */
	lease_entry_purge(MyDatabaseId, extension_get()->extension);
	lease_holder_purge(MyDatabaseId);
}

/* A database or its extension is gone: nothing of its leases is true any more. Called by workers. */
void
lease_forget_database(Oid database)
{
	lease_entry_purge(database, InvalidOid);
	lease_holder_purge(database);
}
