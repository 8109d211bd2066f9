/*-------------------------------------------------------------------------
 *
 * lease.c
 *	  Leases: one holder at a time for a name, with a token that only grows.
 *
 * The lock protocol. Two lock tags per name: H says who holds it, and is the
 * queue of those who want to; F says who is fenced by it.
 *
 *	  acquire	H exclusively; clear a session entry that is found there (its
 *				owner lost H); sleep while a ttl hold is live; F exclusively,
 *				which waits for fenced transactions; only then draw the token
 *				and write the row. Published by the commit callback. F is kept to
 *				the end of the transaction, H too, in session scope until the
 *				session gives it back.
 *	  fence		F in a mode that fences share, then look at token and deadline.
 *	  release	F as a fence does, look again, then the row. Never H: the head
 *				of its queue may be waiting for this very release.
 *	  renew		nothing; F as a release does if the ttl becomes longer.
 *	  sweep		H and F conditionally; what is busy is left alone.
 *
 * NOTES
 *	  Questions (try_acquire, renew, release, is_current) answer with a value,
 *	  guards (fence) raise. All of them refuse a standby with 25006.
 *
 * The idea: leases after Gray and Cheriton; fencing after Chubby's sequencers;
 * queueing is the lock manager's.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"

#include "clock.h"
#include "debug.h"
#include "extension.h"
#include "lease.h"
#include "lease_api.h"
#include "lease_entry.h"
#include "lease_event.h"
#include "lease_holder.h"
#include "lease_row.h"
#include "lease_standing.h"
#include "lease_wait.h"
#include "lease_xact.h"
#include "stat.h"

/* There is no room for the deadline in shared memory: it goes into the row, and counts from the commit on. */
static int64
renew_row(LeaseEntry *entry, const char *name, const LeaseHold *hold, int64 ttl_us)
{
	int64		deadline_us = Max(hold->deadline_us, clock_now_us() + (ttl_us == 0 ? hold->ttl_us : ttl_us));

	deadline_us = lease_row_renew(name, hold->token, ttl_us, deadline_us);
	if (deadline_us != 0)
		lease_xact_add(LEASE_OP_LENGTHEN, lease_entry_pin_again(entry), hold->token);
	return deadline_us;
}

/*
 * renew: the deadline moves to now + ttl, never nearer. Returns the new one on
 * the monotonic clock, 0 when the lease is lost, PG_INT64_MAX for one without
 * a deadline. `ttl_us` 0: as the lease has it. Raises 42501, 22023.
 */
static int64
renew(LeaseEntry *entry, const char *name, int64 token, int64 ttl_us)
{
	LOCKTAG		fence_lock = lease_lock_fence(&entry->key);
	LeaseHold	hold;
	LeaseOp    *mine;
	int64		now_us;
	int64		deadline_us = 0;

	if (lease_standing(entry, token, &hold) != STANDING_CURRENT)
		return 0;
	lease_check_role(&hold, name);
	if (hold.scope != LEASE_TTL)
	{
		if (ttl_us != 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("lease \"%s\" has no ttl to change", name),
					 errdetail("It is held in %s scope.", hold.scope == LEASE_SESSION ? "session" : "transaction")));
		return PG_INT64_MAX;
	}
	if (ttl_us > hold.ttl_us || !lease_entry_is_settled(entry))
	{
		bool		by_row;

		lease_xact_check_room();
		lease_wait_lock(&fence_lock, FENCE_BY_EXCLUSIVE, false, WAIT_FOREVER);
		by_row = lease_settle_fenced(entry, name, false);
		if (lease_standing(entry, token, &hold) != STANDING_CURRENT)
		{
			lease_unlock(&fence_lock, FENCE_BY_EXCLUSIVE, false);
			return 0;
		}
		if (by_row)
			return renew_row(entry, name, &hold, ttl_us);
		/* the row's ttl is what a restart relies on */
		if (ttl_us > hold.ttl_us)
		{
			if (!lease_row_lengthen(name, token, ttl_us))
				return 0;
			lease_xact_add(LEASE_OP_LENGTHEN, lease_entry_pin_again(entry), token)->hold.ttl_us = ttl_us;
		}
	}
	if (ttl_us == 0)
		ttl_us = hold.ttl_us;

	mine = lease_xact_find(LEASE_OP_ACQUIRE, entry, token);
	if (mine != NULL)
	{
		mine->hold.deadline_us = Max(mine->hold.deadline_us, clock_now_us() + ttl_us);
		return mine->hold.deadline_us;
	}
	SpinLockAcquire(&entry->mutex);
	now_us = clock_now_us();	/* under the mutex: see lease_entry_is_live() */
	if (entry->now.token == token && lease_hold_is_live(&entry->now, now_us))
	{
		entry->now.deadline_us = Max(entry->now.deadline_us, now_us + ttl_us);
		deadline_us = entry->now.deadline_us;
	}
	SpinLockRelease(&entry->mutex);
	return deadline_us;
}

/* Releases a session hold at commit. */
static bool
release_session(LeaseEntry *entry, const char *name, const LeaseHold *hold, int64 hold_off_us)
{
	LeaseOp    *op;

	if (!lease_hold_is_mine(hold))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("lease \"%s\" is held by another session", name),
				 errdetail("It is held in session scope by process %d.", hold->pid),
				 errhint("Release it there; it is also free as soon as that session ends.")));
	if (hold->shared && hold_off_us > 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("hold_off is for exclusive holders"),
				 errdetail("Lease \"%s\" is held shared; others may hold it, too.", name)));
	if (hold_off_us > 0)
	{
		LOCKTAG		fence_lock = lease_lock_fence(&entry->key);
		LeaseHold	again;

		/* a row is written: who takes the name over, should H be dropped before the commit, waits for it */
		lease_wait_lock(&fence_lock, FENCE_BY_EXCLUSIVE, false, WAIT_FOREVER);
		if (lease_standing(entry, hold->token, &again) != STANDING_CURRENT)
			return false;
		(void) lease_row_hold_off(name, hold, hold_off_us);
	}
	op = lease_xact_add(LEASE_OP_RELEASE, lease_entry_pin_again(entry), hold->token);
	op->hold.scope = LEASE_SESSION;
	op->hold.shared = hold->shared;
	op->hold_off_us = hold_off_us;
	if (hold->shared)
		op->holder = lease_holder_pin(&entry->key, hold->token);
	return true;
}

/* Releases a ttl hold: its row goes now, the hold at commit. */
static bool
release_ttl(LeaseEntry *entry, const char *name, int64 token, int64 hold_off_us)
{
	LOCKTAG		fence_lock = lease_lock_fence(&entry->key);
	LeaseHold	hold;
	LeaseOp    *op;

	lease_xact_check_room();
	lease_wait_lock(&fence_lock, FENCE_BY_EXCLUSIVE, false, WAIT_FOREVER);
	DEBUG_POINT("lease-before-release");
	if (lease_settle_fenced(entry, name, false) && hold_off_us > 0)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of shared memory for leases"),
				 errdetail("A hold_off needs room there, from the commit on."),
				 errhint("Release lease \"%s\" without a hold_off.", name)));
	if (lease_standing(entry, token, &hold) != STANDING_CURRENT ||
		!(hold_off_us > 0 ? lease_row_hold_off(name, &hold, hold_off_us) : lease_row_delete(name, token, true)))
	{
		lease_unlock(&fence_lock, FENCE_BY_EXCLUSIVE, false);
		return false;
	}
	op = lease_xact_add(LEASE_OP_RELEASE, lease_entry_pin_again(entry), token);
	op->hold.scope = LEASE_TTL;
	op->hold_off_us = hold_off_us;
	lease_tell_lost(name, &hold, "released");
	return true;
}

static bool
release(LeaseEntry *entry, const char *name, int64 token, int64 hold_off_us)
{
	LeaseHold	hold;

	if (lease_standing(entry, token, &hold) != STANDING_CURRENT)
		return false;
	lease_check_role(&hold, name);
	switch (hold.scope)
	{
		case LEASE_SESSION:
			return release_session(entry, name, &hold, hold_off_us);
		case LEASE_TTL:
			return release_ttl(entry, name, token, hold_off_us);
		default:
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("lease \"%s\" ends with its transaction", name),
					 errdetail("It is held in transaction scope."),
					 errhint("Commit or roll back, or acquire it in session scope.")));
	}
	return false;
}

/*
 * Fences the transaction: when it returns, the lease cannot change hands
 * before the transaction ends. Takes F in a mode that fences share, waiting for
 * a grant or a takeover under way. Raises RV001, RV002, 42501, 54000.
 */
static void
fence(LeaseEntry *entry, const char *name, int64 token)
{
	LOCKTAG		fence_lock = lease_lock_fence(&entry->key);
	LeaseHold	hold = {0};
	LeaseOp    *mine;
	bool		shared;
	Standing	why;

	/* which kind of holder a token is never changes; whether it still is one is looked at under F */
	mine = lease_xact_find(LEASE_OP_ACQUIRE, entry, token);
	shared = mine != NULL ? mine->hold.shared : lease_holder_find(&entry->key, token, &hold);
	lease_wait_lock(&fence_lock, shared ? FENCE_BY_SHARED : FENCE_BY_EXCLUSIVE, false, WAIT_FOREVER);
	DEBUG_POINT("lease-after-fence-lock");
	if (!shared)
		(void) lease_settle_fenced(entry, name, false);
	why = lease_standing(entry, token, &hold);
	if (why != STANDING_CURRENT)
		lease_raise_not_current(entry, name, token, why, &hold);
	lease_check_role(&hold, name);
	if (lease_xact_find(LEASE_OP_FENCE, entry, token) == NULL)
		(void) lease_xact_add(LEASE_OP_FENCE, lease_entry_pin_again(entry), token);
}

/*
 * Whether this transaction may write what a lease guards: it called fence(),
 * or its session holds the lease by session or transaction scope, which is an
 * implicit fence. Takes F as fence() does. Never answers yes for a hold that
 * the lock manager does not know.
 */
bool
lease_guard_passes(const char *name)
{
	LeaseKey	key;
	LeaseEntry *entry;
	LeaseOp    *op;
	LeaseHold	now;
	LOCKTAG		fence_lock;
	int64		token = 0;

	lease_key_make(&key, name);
	op = lease_xact_find_key(LEASE_OP_FENCE, &key);
	if (op != NULL && (!op->implicit || lease_have_hold_lock(op->entry, HOLD_EXCLUSIVE)))
		return true;			/* one by fence() stands to the end of the transaction */

	op = lease_xact_find_key(LEASE_OP_ACQUIRE, &key);
	entry = lease_entry_pin(&key, name, LEASE_PIN_EXISTING);
	if (entry == NULL)
		return false;
	if (op != NULL && op->hold.scope != LEASE_TTL && !op->hold.shared)
		token = op->hold.token;
	else
	{
		lease_entry_snapshot(entry, &now, NULL);
		if (now.scope == LEASE_SESSION && lease_hold_is_mine(&now))
			token = now.token;
	}
	if (token == 0 || !lease_have_hold_lock(entry, HOLD_EXCLUSIVE) ||
		lease_xact_find(LEASE_OP_RELEASE, entry, token) != NULL)
	{
		lease_entry_unpin(entry);
		return false;
	}
	op = lease_xact_add(LEASE_OP_FENCE, entry, token);
	op->implicit = true;
	fence_lock = lease_lock_fence(&key);
	lease_wait_lock(&fence_lock, FENCE_BY_EXCLUSIVE, false, WAIT_FOREVER);
	return lease_have_hold_lock(entry, HOLD_EXCLUSIVE);
}

/* Whether this session still holds a session lease with this token. For runners, before each statement. */
bool
lease_session_holds(const char *name, int64 token)
{
	LeaseKey	key;
	LeaseEntry *entry;
	LeaseHold	hold;
	bool		holds;

	lease_key_make(&key, name);
	entry = lease_entry_pin(&key, name, LEASE_PIN_EXISTING);
	if (entry == NULL)
		return false;
	holds = lease_standing(entry, token, &hold) == STANDING_CURRENT &&
		hold.scope == LEASE_SESSION && lease_hold_is_mine(&hold);
	lease_entry_unpin(entry);
	return holds;
}

/*
 * The change counter of a name, once it differs from `seen` or at `until_us`;
 * at once for 0. The entry stays while somebody waits; one that was made anew
 * since counts as changed.
 */
int64
lease_await_change(const char *name, int64 seen, int64 until_us)
{
	LeaseKey	key;
	LeaseEntry *entry;
	LeaseOp    *look;
	int64		number;

	lease_key_make(&key, name);
	entry = lease_entry_pin(&key, name, LEASE_PIN_CREATE);
	look = lease_xact_add(LEASE_OP_LOOK, entry, 0);
	lease_settle(entry, name);
	while (seen != 0 && !lease_entry_is_settled(entry) && lease_entry_changes(entry) == (uint64) seen &&
		   (until_us == WAIT_FOREVER || clock_now_us() < until_us))
	{
		/* what the row says may change without a word: see lease_local.c */
		int64		again_us = clock_now_us() + UNSETTLED_LOOK_US;

		lease_wait_change(entry, (uint64) seen, until_us == WAIT_FOREVER ? again_us : Min(until_us, again_us));
		lease_settle(entry, name);
	}
	if (seen != 0)
		lease_wait_change(entry, (uint64) seen, until_us);
	number = (int64) lease_entry_changes(entry);
	lease_xact_forget(look);
	return number;
}

/* revenant.renew(): see lease_api.c. The new deadline on the monotonic clock; 0: lost; PG_INT64_MAX: none. */
int64
lease_renew(const LeaseNameToken *arg, int64 ttl_us)
{
	LeaseOp    *look = lease_open_name(arg);
	int64		deadline_us;

	if (look == NULL)
		return 0;
	deadline_us = renew(look->entry, arg->name, arg->token, ttl_us);
	if (deadline_us != 0 && deadline_us != PG_INT64_MAX)
		stat_count(STAT_LEASES_RENEWED);
	lease_xact_forget(look);
	return deadline_us;
}

/* revenant.renew_all(): the earliest of the new deadlines, as lease_renew(); 0, and none is renewed, if one is lost. */
int64
lease_renew_all(const LeaseNameToken *arg, char **names, int count, int64 ttl_us)
{
	LeaseNameToken one = *arg;
	int64		deadline_us = PG_INT64_MAX;

	for (int i = 0; i < count; i++)
	{
		one.name = names[i];
		if (!lease_is_current(&one))
			return 0;
	}
	for (int i = 0; i < count; i++)
	{
		int64		renewed_us;

		one.name = names[i];
		renewed_us = lease_renew(&one, ttl_us);
		deadline_us = Min(deadline_us, renewed_us); /* a macro, which looks at each twice */
	}
	return deadline_us;
}

/* revenant.release(): whether the token's hold ends with this transaction. */
bool
lease_release(const LeaseNameToken *arg, int64 hold_off_us)
{
	LeaseOp    *look = lease_open_name(arg);
	bool		released;

	if (look == NULL)
		return false;
	released = release(look->entry, arg->name, arg->token, hold_off_us);
	lease_xact_forget(look);
	return released;
}

/* revenant.fence() */
void
lease_fence(const LeaseNameToken *arg)
{
	LeaseOp    *look = lease_open_name(arg);

	if (look != NULL)
	{
		fence(look->entry, arg->name, arg->token);
		lease_xact_forget(look);
	}
	else
		lease_raise_not_current(NULL, arg->name, arg->token, STANDING_STALE, NULL);
}
