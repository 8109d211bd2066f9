/*-------------------------------------------------------------------------
 *
 * plan_use.c
 *	  The plans that a transaction uses: found by name, in memory, and there until its end.
 *
 * An entry is pinned while a transaction uses it, so that it stays where it is, and
 * at the commit nothing that is told to it can fail. Whoever brings a plan into memory has the lock of its name; whoever
 * makes one has it to the end of the transaction, so nobody finds what is not committed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "error.h"
#include "locktag.h"
#include "plan_use.h"
#include "stat.h"

/* In TopTransactionContext, all of it. */
static PlanUse *uses = NULL;

/* Claims that are dead, to be removed when an error does no harm: at the next call. */
#define REAP_MAX 10000
static int64 reap[REAP_MAX];
static int	nreap = 0;
static Oid	reap_instance = InvalidOid;

static LOCKTAG
plan_lock_tag(const PlanKey *key)
{
	return locktag_of_entity(MyDatabaseId, key->digest, LOCK_OTHER_PLAN);
}

/* Removes the claims that are dead. */
static void
reap_claims(Oid instance)
{
	if (nreap > 0 && reap_instance != instance)
		nreap = 0;
	while (nreap > 0)
		claim_reap(instance, reap[--nreap]);
	reap_instance = instance;
}

/* Whether the entry says what the plan is, for this transaction. Takes its lock. */
static bool
is_usable(PlanEntry *entry)
{
	bool		usable;

	LWLockAcquire(&entry->lock, LW_SHARED);
	usable = entry->loaded && !entry->gone && entry->creator_pid == 0;
	LWLockRelease(&entry->lock);
	return usable;
}

/* Adds an entry that is pinned to what this transaction uses. */
static PlanUse *
add_use(PlanEntry *entry, Oid instance, const char *name)
{
	PlanUse    *use = MemoryContextAllocZero(TopTransactionContext, sizeof(PlanUse));

	use->entry = entry;
	use->instance = instance;
	use->name = MemoryContextStrdup(TopTransactionContext, name);
	use->next = uses;
	uses = use;
	return use;
}

static void
copy_definition(PlanUse *use)
{
	PlanEntry  *entry = use->entry;

	LWLockAcquire(&entry->lock, LW_SHARED);
	use->plan_id = entry->plan_id;
	use->owner = entry->owner;
	use->native = entry->native;
	use->lease_ttl_us = entry->lease_ttl_us;
	use->max_attempts = entry->max_attempts;
	use->max_in_flight = entry->max_in_flight;
	LWLockRelease(&entry->lock);
}

/*
 * Brings a plan into memory, if nobody else has: under a lock that also who makes a plan of
 * this name has to the end of its transaction. False: there is no such plan.
 */
static bool
load(const Extension *extension, PlanEntry *entry, const char *name)
{
	LOCKTAG		tag = plan_lock_tag(&entry->key);
	PlanRow		row;
	bool		found = true;
	bool		bare = !ActiveSnapshotSet();	/* await_splits() waits without one, and what is toasted needs one */

	(void) LockAcquire(&tag, ExclusiveLock, false, false);
	if (bare)
		PushActiveSnapshot(GetTransactionSnapshot());
	if (!is_usable(entry))
	{
		found = plan_find_row(extension, name, &row) != NULL;
		if (found)
			plan_load(extension, entry, &row);
	}
	if (bare)
		PopActiveSnapshot();
	LockRelease(&tag, ExclusiveLock, false);
	return found;
}

static PlanUse *
find_use(const char *name)
{
	for (PlanUse *use = uses; use != NULL; use = use->next)
	{
		if (strcmp(use->name, name) == 0)
			return use;
	}
	return NULL;
}

/*
 * A plan, loaded, and its entry pinned to the end of the transaction; NULL: there is none of this
 * name. Waits for who makes one. Raises 53200, and 55006 for one that was made in this
 * transaction in the place of another one.
 */
PlanUse *
plan_try_use(const char *name)
{
	Extension	oids = *extension_get();
	PlanUse    *use = find_use(name);
	PlanEntry  *entry;
	PlanKey		key;

	stat_attach(oids.extension);
	reap_claims(oids.extension);
	if (use != NULL && use->unusable)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("plan \"%s\" cannot be used in the transaction that replaced it", name),
				 errdetail("This transaction has dropped a plan of this name, and made another one."),
				 errhint("Commit first.")));
	if (use != NULL && use->dropped)
		return NULL;
	if (use != NULL && (use->mine || is_usable(use->entry)))
	{
		/* it may be altered since, or reset */
		copy_definition(use);
		return use;
	}

	plan_key_make(&key, oids.extension, name);
	entry = use != NULL ? use->entry : plan_entry_pin(&key, name, false);
	if (entry == NULL && plan_find_row(&oids, name, NULL) == NULL)
		return NULL;
	if (entry == NULL)
		entry = plan_entry_pin(&key, name, true);
	if (use == NULL)
		use = add_use(entry, oids.extension, name);
	if (!is_usable(entry) && (plan_find_row(&oids, name, NULL) == NULL || !load(&oids, entry, name)))
		return NULL;
	copy_definition(use);
	return use;
}

/* The same; raises 42704 where there is none. */
PlanUse *
plan_use(const char *name)
{
	PlanUse    *use = plan_try_use(name);

	if (use == NULL)
		plan_raise_unknown(name);
	return use;
}

/*
 * A plan that this transaction has just made: nobody else finds it before the commit. The
 * caller has the lock of plan_lock().
 */
PlanUse *
plan_use_new(const PlanRow *row)
{
	Oid			instance = extension_get()->extension;
	PlanUse    *use = find_use(row->name);
	PlanEntry  *entry;
	PlanKey		key;

	if (use != NULL && use->dropped)
	{
		use->unusable = true;
		return use;
	}
	plan_key_make(&key, instance, row->name);
	entry = use != NULL ? use->entry : plan_entry_pin(&key, row->name, true);
	if (use == NULL)
		use = add_use(entry, instance, row->name);
	use->mine = true;
	LWLockAcquire(&entry->lock, LW_EXCLUSIVE);
	plan_entry_begin(entry, row);
	entry->creator_pid = MyProcPid;
	LWLockRelease(&entry->lock);
	copy_definition(use);
	return use;
}

/* Whether plan_use() would refuse a plan, since this transaction has put it in the place of another one. */
bool
plan_is_replaced(const char *name)
{
	PlanUse    *use = find_use(name);

	return use != NULL && use->unusable;
}

static LOCKTAG
name_lock_tag(const char *name)
{
	PlanKey		key;

	plan_key_make(&key, extension_get()->extension, name);
	return plan_lock_tag(&key);
}

/* Excludes who makes, or brings into memory, a plan of this name, to the end of the transaction. */
void
plan_lock(const char *name)
{
	LOCKTAG		tag = name_lock_tag(name);

	(void) LockAcquire(&tag, ExclusiveLock, false, false);
}

/* The same for who waits for nobody. False: somebody does. */
bool
plan_try_lock(const char *name)
{
	LOCKTAG		tag = name_lock_tag(name);

	return LockAcquire(&tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

/* Gives it back before the end of the transaction. */
void
plan_unlock(const char *name)
{
	LOCKTAG		tag = name_lock_tag(name);

	LockRelease(&tag, ExclusiveLock, false);
}

/* A worker's or planner's: 55000 where the plan is held, 42501 where it is another role's, RV004 where it is another job's. */
void
plan_use_check_worker(const PlanUse *use, const char *fingerprint)
{
	PlanRow		row;
	bool		same;

	if (!use->native)
		plan_raise_held(use->name);
	if (!is_member_of_role(GetUserId(), use->owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for plan \"%s\"", use->name),
				 errdetail("It is worked on by members of the role that owns it.")));
	if (fingerprint == NULL)
		return;
	LWLockAcquire(&use->entry->lock, LW_SHARED);
	same = plan_entry_has_fingerprint(use->entry, fingerprint);
	LWLockRelease(&use->entry->lock);
	if (same)
		return;
	if (plan_find_row(extension_get(), use->name, &row) == NULL)
		plan_raise_unknown(use->name);
	plan_require_fingerprint(use->name, row.fingerprint, fingerprint);
}

/* A supervisor's: a plan that it has found in memory. */
PlanUse *
plan_use_entry(PlanEntry *entry, Oid instance)
{
	PlanUse    *use = find_use(entry->name);

	if (use == NULL)
	{
		pg_atomic_fetch_add_u32(&entry->pins, 1);
		use = add_use(entry, instance, entry->name);
	}
	copy_definition(use);
	return use;
}

/* A claim is dead: the next call that uses a plan removes it. Raises nothing. */
void
plan_use_reap_later(int64 epoch)
{
	if (nreap < REAP_MAX)
		reap[nreap++] = epoch;
}

/* ---------------------------------------------------------------- all of them */

bool
plan_uses_any(void)
{
	return uses != NULL;
}

/* Attaches to what will be written at the commit: there nothing may fail. */
void
plan_uses_map(void)
{
	for (PlanUse *use = uses; use != NULL; use = use->next)
		plan_entry_map(use->entry);
}

/* The transaction is over. */
void
plan_uses_release(void)
{
	for (PlanUse *use = uses; use != NULL; use = use->next)
		plan_entry_unpin(use->entry);
	uses = NULL;
}
