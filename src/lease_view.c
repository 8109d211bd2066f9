/*-------------------------------------------------------------------------
 *
 * lease_view.c
 *	  revenant._leases(): who holds what, as the view revenant.leases shows it.
 *
 * Three sources, in this order of trust: the lock manager (is H really held,
 * who waits, who is fenced), the entries (deadlines, session and transaction
 * holds), the rows (ttl holds, with their labels).
 *
 * Tokens and metadata are shown to members of the role that acquired and to
 * admins. On a standby deadlines are not known: they are null there.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "compat.h"
#include "extension.h"
#include "lease_entry.h"
#include "lease_holder.h"
#include "lease_note.h"
#include "lease_row.h"
#include "lease_standing.h"
#include "locktag.h"
#include "shmem.h"

/* Columns of revenant.leases, in the order of the contract. */
enum
{
	COL_LEASE, COL_SCOPE, COL_TOKEN, COL_HOLDER, COL_ROLE, COL_PID, COL_SHARED, COL_BOUND,
	COL_ACQUIRED_AT, COL_TTL, COL_DEADLINE, COL_REMAINING, COL_WAITERS, COL_FENCED, COL_METADATA,
	COLUMNS
};

/* What the lock manager says about one name. */
typedef struct Crowd
{
	LOCKTAG		tag;			/* of H */
	int			waiting;		/* in the queue of H */
	int			holding;		/* of H: while a ttl hold is live, who sleeps for its end */
	int			fenced;			/* transactions fenced by the name */
} Crowd;

typedef struct Output
{
	ReturnSetInfo *result;
	HTAB	   *crowds;
	bool		admin;
} Output;

/* Counts the holders and waiters of all names of this database. */
static HTAB *
count_crowds(void)
{
	HASHCTL		info = {.keysize = sizeof(LOCKTAG),.entrysize = sizeof(Crowd),.hcxt = CurrentMemoryContext};
	HTAB	   *crowds = hash_create("revenant lease crowds", 64, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	LockData   *locks = GetLockStatusData();

	for (int i = 0; i < locks->nelements; i++)
	{
		LockInstanceData *lock = &locks->locks[i];
		LOCKTAG		tag = lock->locktag;
		LockKind	kind;
		Crowd	   *crowd;
		bool		found;

		if (!locktag_is_ours(&tag) || tag.locktag_field1 != MyDatabaseId)
			continue;
		kind = locktag_kind(&tag);
		if (kind != LOCK_HOLD && kind != LOCK_FENCE)
			continue;
		tag.locktag_field4 = (uint16) ((tag.locktag_field4 & ~3) | LOCK_HOLD);
		crowd = hash_search(crowds, &tag, HASH_ENTER, &found);
		if (!found)
			crowd->waiting = crowd->holding = crowd->fenced = 0;
		if (kind == LOCK_HOLD)
		{
			crowd->waiting += lock->waitLockMode != NoLock;
			crowd->holding += lock->holdMask != 0;
		}
		else
			crowd->fenced += (lock->holdMask &
							  (LOCKBIT_ON(FENCE_BY_EXCLUSIVE) | LOCKBIT_ON(FENCE_BY_SHARED))) != 0;
	}
	return crowds;
}

static void
put_row(Output *output, const char *name, const LeaseHold *hold, const char *role,
		const char *holder, Jsonb *metadata, bool bound)
{
	Datum		values[COLUMNS] = {0};
	bool		nulls[COLUMNS] = {false};
	bool		privileged = output->admin || is_member_of_role(GetUserId(), hold->role);
	bool		ttl = hold->scope == LEASE_TTL;
	LeaseKey	key;
	LOCKTAG		tag;
	Crowd	   *crowd;

	lease_key_make(&key, name);
	tag = lease_lock_hold(&key);
	crowd = hash_search(output->crowds, &tag, HASH_FIND, NULL);

	values[COL_LEASE] = CStringGetTextDatum(name);
	values[COL_SCOPE] = CStringGetTextDatum(ttl ? "ttl" : hold->scope == LEASE_SESSION ? "session" : "transaction");
	values[COL_TOKEN] = Int64GetDatum(hold->token);
	nulls[COL_TOKEN] = !privileged;
	if (holder != NULL)
		values[COL_HOLDER] = CStringGetTextDatum(holder);
	else
		nulls[COL_HOLDER] = true;
	if (role != NULL)
		values[COL_ROLE] = CStringGetTextDatum(role);
	else
		nulls[COL_ROLE] = true;
	values[COL_PID] = Int32GetDatum(hold->pid);
	values[COL_SHARED] = BoolGetDatum(hold->shared);
	values[COL_BOUND] = BoolGetDatum(bound);
	values[COL_ACQUIRED_AT] = TimestampTzGetDatum(hold->acquired_at);
	nulls[COL_TTL] = nulls[COL_DEADLINE] = nulls[COL_REMAINING] = true;
	if (ttl)
	{
		values[COL_TTL] = lease_interval_datum(hold->ttl_us);
		nulls[COL_TTL] = false;
	}
	if (ttl && !RecoveryInProgress())
	{
		values[COL_REMAINING] = lease_interval_datum(hold->deadline_us - clock_now_us());
		values[COL_DEADLINE] = TimestampTzGetDatum(clock_to_timestamp(hold->deadline_us));
		nulls[COL_DEADLINE] = nulls[COL_REMAINING] = false;
	}
	values[COL_WAITERS] = Int32GetDatum(crowd == NULL ? 0 :
										crowd->waiting + (ttl ? crowd->holding : 0));
	values[COL_FENCED] = Int32GetDatum(crowd == NULL ? 0 : crowd->fenced);
	if (metadata != NULL && privileged)
		values[COL_METADATA] = JsonbPGetDatum(metadata);
	else
		nulls[COL_METADATA] = true;
	tuplestore_putvalues(output->result->setResult, output->result->setDesc, values, nulls);
}

/* A ttl hold; whether it is live says the entry, if there is one. */
static void
put_ttl(const LeaseRow *row, void *arg)
{
	LeaseHold	hold = row->hold;
	LeaseKey	key;
	LeaseEntry *entry;

	lease_key_make(&key, row->name);
	entry = lease_entry_pin(&key, row->name, LEASE_PIN_EXISTING);
	if (entry != NULL)
	{
		LeaseHold	now;

		lease_entry_snapshot(entry, &now, NULL);
		if (entry->settled && now.token == hold.token)
			hold = now;
		else if (entry->settled)
			hold.deadline_us = 0;	/* being taken over or released */
		lease_entry_unpin(entry);
	}
	if (lease_hold_is_live(&hold, clock_now_us()) &&
		(RecoveryInProgress() || !lease_hold_lost_its_session(&hold, &key)))
		put_row(arg, row->name, &hold, row->role, row->holder, row->metadata, row->bound);
}

/* Copies of the session and transaction holds of this database that stand. */
typedef struct Copy
{
	char	   *name;
	LeaseHold	hold;
	char	   *holder;
	Jsonb	   *metadata;
} Copy;

static void
copy_process_hold(LeaseEntry *entry, void *arg)
{
	List	  **copies = arg;
	LeaseHold	now,
				next;
	LOCKTAG		tag = lease_lock_hold(&entry->key);
	Copy	   *copy;

	lease_entry_snapshot(entry, &now, &next);
	if (now.scope != LEASE_SESSION)
		now = next;				/* a grant that is not committed is a hold, too */
	if (now.scope == LEASE_FREE || !lease_hold_has_lock(&now, &tag, ExclusiveLock))
		return;
	copy = palloc(sizeof(Copy));
	copy->name = pstrdup(lease_entry_name(entry));
	copy->hold = now;
	lease_note_read(now.note, &copy->holder, &copy->metadata);
	*copies = lappend(*copies, copy);
}

static void
copy_shared_hold(const LeaseHolder *holder, void *arg)
{
	List	  **copies = arg;
	Copy	   *copy = palloc(sizeof(Copy));

	copy->name = pnstrdup(dsa_get_address(shmem_area(), holder->name), holder->name_len);
	copy->hold = holder->hold;
	lease_note_read(holder->hold.note, &copy->holder, &copy->metadata);
	*copies = lappend(*copies, copy);
}

/*
 * revenant._leases(): the rows of revenant.leases. Takes each partition of the
 * table of leases in turn, the lock manager's all at once as pg_locks does.
 */
SQL_FUNCTION(revenant_leases)
{
	Output		output;
	List	   *copies = NIL;
	ListCell   *cell;

	InitMaterializedSRF(fcinfo, 0);
	output.result = (ReturnSetInfo *) fcinfo->resultinfo;
	output.crowds = count_crowds();
	output.admin = extension_role_is_admin(GetUserId());

	lease_row_visit(true, put_ttl, &output);
	lease_entry_visit(copy_process_hold, &copies);
	lease_holder_visit(copy_shared_hold, &copies);
	foreach(cell, copies)
	{
		Copy	   *copy = lfirst(cell);

		put_row(&output, copy->name, &copy->hold, GetUserNameFromId(copy->hold.role, true),
				copy->holder, copy->metadata, false);
	}
	return (Datum) 0;
}
