/*-------------------------------------------------------------------------
 *
 * lease_check.c
 *	  revenant._lease_check(): whether shared memory, the lock manager and the
 *	  rows say the same about leases.
 *
 * For tests, and for who suspects a bug. Only at rest does an answer mean
 * something: what is under way elsewhere may be seen half done.
 *
 * What is no disagreement: an entry of a session that lost H (everybody who
 * looks asks the lock manager), and H of who sleeps for the end of a ttl hold, or
 * who waits for another lock on its way to a grant.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"

#include "extension.h"
#include "lease_entry.h"
#include "lease_holder.h"
#include "lease_row.h"
#include "lease_standing.h"
#include "locktag.h"
#include "shmem.h"

/* What shared memory says about one name. */
typedef struct Said
{
	LOCKTAG		tag;			/* of H: the key */
	const char *name;
	bool		settled;
	LeaseHold	now;
	LeaseHold	next;
	bool		has_row;
} Said;

typedef struct Check
{
	ReturnSetInfo *result;
	HTAB	   *said;			/* Said */
	List	   *shared;			/* Said *: `now` is a shared hold */
	LockData   *locks;
} Check;

static void
complain(Check *check, const char *format,...) pg_attribute_printf(2, 3);

static void
complain(Check *check, const char *format,...)
{
	Datum		value;
	bool		isnull = false;
	char		text[2048];
	va_list		args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	value = CStringGetTextDatum(text);
	tuplestore_putvalues(check->result->setResult, check->result->setDesc, &value, &isnull);
}

static void
copy_entry(LeaseEntry *entry, void *arg)
{
	Check	   *check = arg;
	LOCKTAG		tag = lease_lock_hold(&entry->key);
	Said	   *said = hash_search(check->said, &tag, HASH_ENTER, NULL);

	said->name = lease_entry_name(entry);
	said->has_row = false;
	lease_entry_snapshot(entry, &said->now, &said->next);
	said->settled = lease_entry_is_settled(entry);
}

static void
copy_holder(const LeaseHolder *holder, void *arg)
{
	Check	   *check = arg;
	Said	   *said = palloc0(sizeof(Said));

	said->name = pnstrdup(dsa_get_address(shmem_area(), holder->name), holder->name_len);
	said->tag = lease_lock_hold(&holder->key.lease);
	said->now = holder->hold;
	check->shared = lappend(check->shared, said);
}

/* Each row, beside what shared memory has: a settled entry says the same token. */
static void
check_row(const LeaseRow *row, void *arg)
{
	Check	   *check = arg;
	LeaseKey	key;
	LOCKTAG		tag;
	Said	   *said;

	lease_key_make(&key, row->name);
	tag = lease_lock_hold(&key);
	said = hash_search(check->said, &tag, HASH_FIND, NULL);
	if (said == NULL)
		return;
	said->has_row = true;
	if (said->settled && said->now.token != row->hold.token && said->next.token != row->hold.token)
		complain(check, "lease \"%s\": the row has token %lld, shared memory %lld", row->name,
				 (long long) row->hold.token, (long long) said->now.token);
}

/* Whether the process is on its way: it waits for some lock. */
static bool
is_waiting(const Check *check, int pid)
{
	for (int i = 0; i < check->locks->nelements; i++)
	{
		const LockInstanceData *lock = &check->locks->locks[i];

		if (lock->pid == pid && lock->waitLockMode != NoLock)
			return true;
	}
	return false;
}

static bool
is_held_by(const LeaseHold *hold, int pid)
{
	return hold->scope != LEASE_FREE && hold->pid == pid;
}

static bool
is_held_shared_by(const Check *check, const LOCKTAG *tag, int pid)
{
	ListCell   *cell;

	foreach(cell, check->shared)
	{
		Said	   *said = lfirst(cell);

		if (memcmp(&said->tag, tag, sizeof(LOCKTAG)) == 0 && is_held_by(&said->now, pid))
			return true;
	}
	return false;
}

/* Somebody has H of a name: some hold must say why. */
static void
check_lock(Check *check, const LockInstanceData *lock)
{
	Said	   *said = hash_search(check->said, &lock->locktag, HASH_FIND, NULL);

	if (said != NULL &&
		(is_held_by(&said->now, lock->pid) || is_held_by(&said->next, lock->pid) || lease_hold_free_from(&said->now) != 0))
		return;
	if (is_held_shared_by(check, &lock->locktag, lock->pid) || is_waiting(check, lock->pid))
		return;
	complain(check, "lease \"%s\": process %d has it locked, and nothing says that it holds it",
			 said ? said->name : "?", lock->pid);
}

static void
check_entry(Check *check, const Said *said)
{
	LOCKTAG		tag = said->tag;

	if (said->next.scope != LEASE_FREE && !lease_hold_has_lock(&said->next, &tag, HOLD_EXCLUSIVE))
		complain(check, "lease \"%s\": process %d seems to acquire it and does not have it locked",
				 said->name, said->next.pid);
	if (said->settled && lease_hold_has_row(&said->now) && !said->has_row)
		complain(check, "lease \"%s\": shared memory has token %lld, and there is no row",
				 said->name, (long long) said->now.token);
	if (said->now.scope == LEASE_XACT)
		complain(check, "lease \"%s\": a transaction's hold outlived it", said->name);
}

/* revenant._lease_check(): a line for each disagreement. Locks: as revenant._leases(). */
SQL_FUNCTION(revenant_lease_check)
{
	HASHCTL		info = {.keysize = sizeof(LOCKTAG),.entrysize = sizeof(Said),.hcxt = CurrentMemoryContext};
	Check		check = {0};
	HASH_SEQ_STATUS scan;
	Said	   *said;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	check.result = (ReturnSetInfo *) fcinfo->resultinfo;
	check.said = hash_create("revenant leases checked", 64, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	lease_entry_visit(copy_entry, &check);
	lease_holder_visit(copy_holder, &check);
	check.locks = GetLockStatusData();
	lease_row_visit(false, check_row, &check);

	for (int i = 0; i < check.locks->nelements; i++)
	{
		const LockInstanceData *lock = &check.locks->locks[i];

		if (locktag_is_ours(&lock->locktag) && lock->locktag.locktag_field1 == MyDatabaseId &&
			locktag_kind(&lock->locktag) == LOCK_HOLD && lock->holdMask != 0)
			check_lock(&check, lock);
	}
	hash_seq_init(&scan, check.said);
	while ((said = hash_seq_search(&scan)) != NULL)
		check_entry(&check, said);
	return (Datum) 0;
}
