/*-------------------------------------------------------------------------
 *
 * lease_standing.c
 *	  What a token of a name is worth now.
 *
 * Asked of, in this order: what the transaction itself did, the shared holds,
 * the entry; and for every hold that is not of ttl scope, of the lock manager.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "compat.h"
#include "error.h"
#include "extension.h"
#include "lease_holder.h"
#include "lease_local.h"
#include "lease_note.h"
#include "lease_row.h"
#include "lease_standing.h"
#include "lease_wait.h"
#include "stat.h"

/* How a look at the row settles the entry */
typedef enum Settling
{
	SETTLES_NOT,
	SETTLES_UNLESS_CROWDED,		/* without F: as long as nobody can have an entry of his own */
	SETTLES						/* with F, in a mode that keeps writers out */
} Settling;

/* Reads the row into the entry, and may say that this is now what the entry says, too. */
static void
load(LeaseEntry *entry, const char *name, Settling settling)
{
	bool		stored = false;

	while (!stored)
	{
		LeaseHold	hold;
		uint32		stores;

		SpinLockAcquire(&entry->mutex);
		stores = entry->stores;
		SpinLockRelease(&entry->mutex);
		if (!lease_row_load(name, &hold))
			memset(&hold, 0, sizeof(hold));
		SpinLockAcquire(&entry->mutex);
		if (entry->settled)
			stored = true;
		/* what somebody stored meanwhile may be newer than what was read: then once more */
		else if (entry->stores == stores)
		{
			entry->now = hold;
			entry->settled = settling == SETTLES ||
				(settling == SETTLES_UNLESS_CROWDED && !lease_local_may_exist());
			entry->noted_end = 0;
			entry->stores++;
			stored = true;
		}
		SpinLockRelease(&entry->mutex);
	}
}

/* Whether this transaction itself has changed the row: then nobody knows yet what it will say. */
static bool
has_changed_row(const LeaseKey *key)
{
	return lease_xact_find_key(LEASE_OP_RELEASE, key) != NULL || lease_xact_find_key(LEASE_OP_LENGTHEN, key) != NULL ||
		lease_xact_find_key(LEASE_OP_ACQUIRE, key) != NULL;
}

/*
 * Reads the row into the entry if nobody did yet. The caller has pinned it.
 * While others may be writing the row by entries of their own (lease_local.c),
 * that only lasts if F can be had in a mode that keeps them out, and if this
 * transaction has not written it itself.
 */
void
lease_settle(LeaseEntry *entry, const char *name)
{
	LOCKTAG		fence_lock = lease_lock_fence(&entry->key);

	if (lease_entry_is_settled(entry))
		return;
	if (!lease_entry_is_local(entry) && !lease_local_may_exist())
		load(entry, name, SETTLES_UNLESS_CROWDED);
	else if (!lease_entry_is_local(entry) && !has_changed_row(&entry->key) &&
			 lease_wait_lock(&fence_lock, TAKEOVER_SHARED, false, 0))
	{
		load(entry, name, SETTLES);
		lease_unlock(&fence_lock, TAKEOVER_SHARED, false);
	}
	else
		load(entry, name, SETTLES_NOT);
}

/*
 * For who has F, as a fence or (`excluding`) in a mode that keeps fences out,
 * and is about to look at a ttl hold or to write its row: brings an entry that
 * is not settled up to date. True: what is written goes into the row only, since
 * this entry is not where others look. Raises 53200.
 */
bool
lease_settle_fenced(LeaseEntry *entry, const char *name, bool excluding)
{
	if (lease_entry_is_settled(entry))
		return false;
	if (lease_entry_is_local(entry) && lease_entry_is_outdated(entry))
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of shared memory for leases"),
				 errdetail("While lease \"%s\" was looked at there was room for it again.", name),
				 errhint("Try again.")));
	/* not by lease_settle(): the lock manager may refuse even who has F, because of others that wait */
	if (excluding && !lease_entry_is_local(entry))
		load(entry, name, has_changed_row(&entry->key) ? SETTLES_NOT : SETTLES);
	else
		lease_settle(entry, name);
	return !lease_entry_is_settled(entry);
}

/*
 * The entry of a name that has one or has a row, settled, and pinned by an
 * operation that the caller ends with lease_xact_forget(); else NULL. After an
 * error the end of the transaction does that.
 */
LeaseOp *
lease_find_entry(const LeaseKey *key, const char *name)
{
	LeaseEntry *entry = lease_entry_pin(key, name, LEASE_PIN_EXISTING);
	LeaseHold	unused;
	LeaseOp    *look;

	/* without a pin the row may be in the middle of an update: then there is an entry now */
	if (entry == NULL)
		entry = lease_entry_pin(key, name,
								lease_row_load(name, &unused) ? LEASE_PIN_LOAD : LEASE_PIN_EXISTING);
	if (entry == NULL)
		return NULL;
	look = lease_xact_add(LEASE_OP_LOOK, entry, 0);
	lease_settle(entry, name);
	return look;
}

/* This session has H itself, in this mode: it holds the name by session or transaction scope. */
bool
lease_have_hold_lock(const LeaseEntry *entry, LOCKMODE mode)
{
	LOCKTAG		tag = lease_lock_hold(&entry->key);

	return compat_lock_held_by_me(&tag, mode);
}

/* Whether a committed session hold stands: its owner has H. */
bool
lease_session_hold_stands(const LeaseEntry *entry, const LeaseHold *now)
{
	LOCKTAG		tag = lease_lock_hold(&entry->key);

	if (now->scope != LEASE_SESSION)
		return false;
	if (lease_hold_is_mine(now))
		return compat_lock_held_by_me(&tag, ExclusiveLock);
	return lease_hold_has_lock(now, &tag, ExclusiveLock);
}

/*
 * What a token of a name is worth now. `hold` gets the hold that it stands
 * for, also when its time is over.
 */
Standing
lease_standing(LeaseEntry *entry, int64 token, LeaseHold *hold)
{
	LeaseHold	now,
				next;
	LeaseOp    *mine;
	LOCKTAG		tag = lease_lock_hold(&entry->key);

	if (lease_xact_find(LEASE_OP_RELEASE, entry, token) != NULL)
		return STANDING_STALE;

	/* acquired by this transaction, not published yet */
	mine = lease_xact_find(LEASE_OP_ACQUIRE, entry, token);
	if (mine != NULL && mine->granted)
	{
		*hold = mine->hold;
		if (!lease_have_hold_lock(entry, lease_hold_mode(hold)))
			return STANDING_STALE;
		return hold->scope != LEASE_TTL || lease_hold_is_live(hold, clock_now_us()) ?
			STANDING_CURRENT : STANDING_EXPIRED;
	}

	lease_entry_snapshot(entry, &now, &next);
	/* a token is one hold's: the table of shared ones is looked at only for what the entry does not know */
	if (now.token != token && next.token != token && lease_holder_find(&entry->key, token, hold))
		return STANDING_CURRENT;
	if (next.scope == LEASE_XACT && next.token == token)
	{
		/* of a transaction of another session */
		*hold = next;
		return lease_hold_has_lock(&next, &tag, ExclusiveLock) ? STANDING_CURRENT : STANDING_STALE;
	}
	if (now.scope == LEASE_FREE || now.scope == LEASE_DELAYED || now.token != token ||
		lease_hold_lost_its_session(&now, &entry->key))
		return STANDING_STALE;
	*hold = now;
	if (now.scope == LEASE_SESSION)
		return lease_session_hold_stands(entry, &now) ? STANDING_CURRENT : STANDING_STALE;
	if (lease_entry_is_live(entry, hold))
		return hold->token == token ? STANDING_CURRENT : STANDING_STALE;
	return hold->token == token ? STANDING_EXPIRED : STANDING_STALE;
}

/* A token alone opens nothing: 42501 unless the caller is a member of the role that acquired. */
void
lease_check_role(const LeaseHold *hold, const char *name)
{
	if (GetUserId() == hold->role || is_member_of_role(GetUserId(), hold->role))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for lease \"%s\"", name),
			 errdetail("The token is the current one, but another role acquired the lease."),
			 errhint("Be the role that acquired it, or a member of that role.")));
}

/* Who holds a lease, for a message: its role, and its label if it has one. */
static const char *
describe_holder(LeaseEntry *entry, const char *name, const LeaseHold *hold)
{
	char	   *role = GetUserNameFromId(hold->role, true);
	const char *label = hold->scope == LEASE_TTL ? lease_row_holder(name) : lease_note_label(entry);

	if (role == NULL)
		role = "?";
	return label != NULL ? psprintf("\"%s\" (role \"%s\")", label, role) : psprintf("role \"%s\"", role);
}

/* Raises RV001 or RV002 with the facts, and counts it. `entry` may be NULL: nobody holds the name. */
void
lease_raise_not_current(LeaseEntry *entry, const char *name, int64 token, Standing why, const LeaseHold *hold)
{
	LeaseHold	now = {0};

	if (entry != NULL)
		lease_entry_snapshot(entry, &now, NULL);
	stat_count(STAT_FENCES_REJECTED);
	if (why == STANDING_EXPIRED)
		ereport(ERROR,
				(errcode(ERRCODE_RV_LEASE_EXPIRED),
				 errmsg("lease \"%s\" has expired", name),
				 errdetail("Token %lld is still the newest, but its time ended at %s.",
						   (long long) token,
						   timestamptz_to_str(clock_to_timestamp(hold->deadline_us))),
				 errhint("Stop the work that the lease stood for, and acquire it again.")));
	ereport(ERROR,
			(errcode(ERRCODE_RV_STALE_TOKEN),
			 errmsg("token %lld of lease \"%s\" is not the current one", (long long) token, name),
			 now.scope == LEASE_FREE || now.scope == LEASE_DELAYED || now.token == token ?
			 errdetail("Nobody holds the lease: it was released or revoked, or its session ended.") :
			 errdetail("The lease is held by %s since %s, with a newer token.",
					   describe_holder(entry, name, &now), timestamptz_to_str(now.acquired_at)),
			 errhint("Stop the work that the lease stood for.")));
}

/* The token by which this session or transaction holds a name itself; 0: it does not. */
int64
lease_held_token(const char *name)
{
	LeaseKey	key;
	LeaseEntry *entry;
	LeaseOp    *op;
	LeaseHold	now;
	int64		token = 0;

	lease_key_make(&key, name);
	entry = lease_entry_pin(&key, name, LEASE_PIN_EXISTING);
	if (entry == NULL)
		return lease_holder_mine(&key, &now) ? now.token : 0;
	op = lease_xact_find(LEASE_OP_ACQUIRE, entry, 0);
	lease_entry_snapshot(entry, &now, NULL);
	if (op != NULL && op->hold.scope != LEASE_TTL)
		now = op->hold;
	else if (now.scope != LEASE_SESSION || !lease_hold_is_mine(&now))
	{
		if (!lease_holder_mine(&key, &now))
			now.token = 0;
	}
	if (now.token != 0 && lease_have_hold_lock(entry, lease_hold_mode(&now)) &&
		lease_xact_find(LEASE_OP_RELEASE, entry, now.token) == NULL)
		token = now.token;
	lease_entry_unpin(entry);
	return token;
}

/*
 * Who holds a name now, committed or by this transaction: its label ("" for none), palloc'd, and the
 * hold. NULL: nobody.
 */
char *
lease_who(const char *name, LeaseHold *hold)
{
	LeaseKey	key;
	LeaseOp    *look;
	LeaseOp    *mine;
	char	   *label = NULL;
	bool		held;

	lease_key_make(&key, name);
	look = lease_find_entry(&key, name);
	if (look == NULL)
		return NULL;
	held = lease_entry_is_live(look->entry, hold) && !lease_hold_lost_its_session(hold, &key);
	held = held || lease_session_hold_stands(look->entry, hold);
	held = held && lease_xact_find(LEASE_OP_RELEASE, look->entry, hold->token) == NULL;
	mine = lease_xact_find(LEASE_OP_ACQUIRE, look->entry, 0);
	if (!held && mine != NULL)
		held = lease_standing(look->entry, mine->hold.token, hold) == STANDING_CURRENT;
	if (held)
		label = hold->scope == LEASE_TTL ? lease_row_holder(name) : lease_note_label(look->entry);
	lease_xact_forget(look);
	if (!held)
		return NULL;
	return label != NULL ? label : pstrdup("");
}

/* For the functions of a name and a token: as lease_find_entry(). NULL: nobody holds the name. */
LeaseOp *
lease_open_name(const LeaseNameToken *arg)
{
	LeaseKey	key;
	LeaseOp    *look;
	LeaseHold	hold;

	lease_key_make(&key, arg->name);
	look = lease_find_entry(&key, arg->name);
	/* a shared hold has neither a row nor, for long, an entry */
	if (look == NULL && lease_holder_find(&key, arg->token, &hold))
	{
		look = lease_xact_add(LEASE_OP_LOOK, lease_entry_pin(&key, arg->name, LEASE_PIN_LOAD), 0);
		lease_settle(look->entry, arg->name);
	}
	return look;
}

/* revenant.is_current() */
bool
lease_is_current(const LeaseNameToken *arg)
{
	LeaseOp    *look = lease_open_name(arg);
	LeaseHold	hold;
	bool		current;

	if (look == NULL)
		return false;
	current = lease_standing(look->entry, arg->token, &hold) == STANDING_CURRENT;
	lease_xact_forget(look);
	return current;
}
