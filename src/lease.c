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

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "compat.h"
#include "debug.h"
#include "error.h"
#include "extension.h"
#include "fence.h"
#include "lease.h"
#include "lease_api.h"
#include "lease_entry.h"
#include "lease_note.h"
#include "lease_row.h"
#include "lease_wait.h"
#include "lease_xact.h"
#include "row.h"
#include "task.h"

/* The modes of F: fences share it, an acquire excludes them. */
#define FENCE_MODE RowExclusiveLock
#define TAKEOVER_MODE AccessExclusiveLock

/* What a token stands for. */
typedef enum Standing
{
	STANDING_CURRENT,
	STANDING_EXPIRED,			/* the newest, but its time is over */
	STANDING_STALE				/* not the current one */
} Standing;

/* Reads the row into the entry if nobody did yet. The caller has pinned it. */
static void
settle(LeaseEntry *entry, const char *name)
{
	LeaseHold	hold;
	bool		settled;

	SpinLockAcquire(&entry->mutex);
	settled = entry->settled;
	SpinLockRelease(&entry->mutex);
	if (settled)
		return;
	if (!lease_row_load(name, &hold))
		memset(&hold, 0, sizeof(hold));
	SpinLockAcquire(&entry->mutex);
	if (!entry->settled)
	{
		entry->now = hold;
		entry->settled = true;
	}
	SpinLockRelease(&entry->mutex);
}

/*
 * The entry of a name that has one or has a row, settled, and pinned by an
 * operation that the caller ends with lease_xact_forget(); else NULL. After an
 * error the end of the transaction does that.
 */
static LeaseOp *
find_entry(const LeaseKey *key, const char *name)
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
	settle(entry, name);
	return look;
}

/* This session has H itself: it holds the name by session or transaction scope. */
static bool
have_hold_lock(const LeaseEntry *entry)
{
	LOCKTAG		tag = lease_lock_hold(&entry->key);

	return compat_lock_held_by_me(&tag, ExclusiveLock);
}

/* Whether a committed session hold stands: its owner has H. */
static bool
session_hold_stands(const LeaseEntry *entry, const LeaseHold *now)
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
static Standing
standing(LeaseEntry *entry, int64 token, LeaseHold *hold)
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
		if (!have_hold_lock(entry))
			return STANDING_STALE;
		return hold->scope != LEASE_TTL || lease_hold_is_live(hold, clock_now_us()) ?
			STANDING_CURRENT : STANDING_EXPIRED;
	}

	lease_entry_snapshot(entry, &now, &next);
	if (next.scope == LEASE_XACT && next.token == token)
	{
		/* of a transaction of another session */
		*hold = next;
		return lease_hold_has_lock(&next, &tag, ExclusiveLock) ? STANDING_CURRENT : STANDING_STALE;
	}
	if (now.scope == LEASE_FREE || now.token != token)
		return STANDING_STALE;
	*hold = now;
	if (now.scope == LEASE_SESSION)
		return session_hold_stands(entry, &now) ? STANDING_CURRENT : STANDING_STALE;
	if (lease_entry_is_live(entry, hold))
		return hold->token == token ? STANDING_CURRENT : STANDING_STALE;
	return hold->token == token ? STANDING_EXPIRED : STANDING_STALE;
}

/* A token alone opens nothing: 42501 unless the caller is a member of the role that acquired. */
static void
check_role(const LeaseHold *hold, const char *name)
{
	if (GetUserId() == hold->role || is_member_of_role(GetUserId(), hold->role))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for lease \"%s\"", name),
			 errdetail("The token is the current one, but another role acquired the lease."),
			 errhint("Be the role that acquired it, or a member of that role.")));
}

/* The oid of the role that a task with this lease runs as, or InvalidOid. */
static Oid
task_role(const char *name)
{
	const Extension *extension = extension_get();
	Relation	rel = table_open(extension->task, AccessShareLock);
	HeapTuple	tuple = row_find(rel, extension->task_pkey, name + strlen("task/"));
	Oid			role = InvalidOid;

	if (tuple != NULL)
	{
		TaskRow		task;

		task_parse(tuple, RelationGetDescr(rel), &task);
		/* a name that means another role now is nobody's */
		if (get_role_oid(task.run_as, true) == task.run_as_oid)
			role = task.run_as_oid;
	}
	table_close(rel, AccessShareLock);
	return role;
}

/* Names of tasks and plans are their owners': 42501 for everybody else. */
static void
check_reserved_name(const char *name)
{
	bool		task = strncmp(name, "task/", 5) == 0;
	Oid			owner;

	if (!task && strncmp(name, "plan/", 5) != 0)
		return;
	owner = task ? task_role(name) : InvalidOid;
	if (OidIsValid(owner) && is_member_of_role(GetUserId(), owner))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for lease \"%s\"", name),
			 errdetail("Names that begin with \"%s\" belong to %s; only members of the owner's role can take them.",
					   task ? "task/" : "plan/", task ? "tasks" : "plans"),
			 errhint("Use another name.")));
}

/* Acquiring has come to nothing: H goes back, and the operation. */
static void
withdraw(LeaseOp *op, const LOCKTAG *hold_lock)
{
	bool		session = op->locked;

	lease_unlock(hold_lock, ExclusiveLock, session);
	op->locked = false;
	lease_xact_forget(op);
}

/*
 * What this session itself already has of the name. True: `*token` is the
 * answer (0: busy). Raises 55006 where waiting would be waiting for oneself.
 */
static bool
answer_from_own(LeaseEntry *entry, const LeaseRequest *request, int64 *token)
{
	LeaseOp    *op = lease_xact_find(LEASE_OP_ACQUIRE, entry, 0);
	LeaseHold	now;
	LeaseScope	own;

	if (lease_xact_find(LEASE_OP_RELEASE, entry, 0) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("lease \"%s\" was released in this transaction", request->name),
				 errdetail("The release takes effect at commit."),
				 errhint("Commit before you acquire it again.")));

	if (op != NULL && op->granted && have_hold_lock(entry))
	{
		own = op->hold.scope;
		*token = op->hold.token;
	}
	else
	{
		lease_entry_snapshot(entry, &now, NULL);
		if (!lease_hold_is_mine(&now) || !session_hold_stands(entry, &now))
			return false;
		own = LEASE_SESSION;
		*token = now.token;
	}
	if (own == request->scope && own != LEASE_TTL)
		return true;			/* asking again does not stack */
	if (request->wait)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("lease \"%s\" is already held here", request->name),
				 errdetail("This %s holds it with token %lld; waiting for it would be waiting for oneself.",
						   own == LEASE_SESSION ? "session" : "transaction", (long long) *token),
				 errhint("Release it first.")));
	*token = 0;
	return true;
}

/* Whoever is granted H first clears what it finds of holders that lost it. */
static void
clear_dead(LeaseEntry *entry)
{
	dsa_pointer notes[2] = {InvalidDsaPointer, InvalidDsaPointer};

	SpinLockAcquire(&entry->mutex);
	if (entry->now.scope == LEASE_SESSION)
	{
		notes[0] = entry->now.note;
		memset(&entry->now, 0, sizeof(entry->now));
	}
	if (entry->next.scope != LEASE_FREE)
	{
		notes[1] = entry->next.note;
		memset(&entry->next, 0, sizeof(entry->next));
	}
	SpinLockRelease(&entry->mutex);
	lease_note_free(&entry->key, notes[0]);
	lease_note_free(&entry->key, notes[1]);
}

/* H is ours, and F: draws the token, writes the row, and shows to others that a grant is under way. */
static void
grant(LeaseOp *op, const LeaseRequest *request)
{
	LeaseEntry *entry = op->entry;
	LeaseHold	before;
	LeaseHold  *hold = &op->hold;

	lease_entry_snapshot(entry, &before, NULL);
	hold->role = GetUserId();
	hold->pid = MyProcPid;
	hold->procno = compat_my_procno();
	hold->token = fence_next_token(request->function);
	hold->acquired_at = GetCurrentTimestamp();
	if (request->scope == LEASE_TTL)
	{
		hold->ttl_us = request->ttl_us;
		hold->deadline_us = clock_now_us() + request->ttl_us;
	}
	else
		hold->note = lease_note_make(request->holder, request->metadata);

	/* from here on the end of the transaction takes care of it, in any case */
	SpinLockAcquire(&entry->mutex);
	entry->next = *hold;
	SpinLockRelease(&entry->mutex);
	op->granted = true;

	/* an older operation of this transaction may have deleted the row already */
	if (request->scope == LEASE_TTL)
		lease_row_write(request->name, hold, request, before.scope == LEASE_TTL);
	else if (before.scope == LEASE_TTL)
		(void) lease_row_delete(request->name, before.token);
}

/*
 * Acquires a lease; see the head of this file for the protocol.
 *
 * Returns the token, or 0 when it is busy, or not free within request->wait_us.
 * Raises 25006, 22023, 42501, 53200, 54000, 55006, and what waiting raises.
 */
int64
lease_acquire(const LeaseRequest *request)
{
	LeaseKey	key;
	LeaseEntry *entry;
	LeaseOp    *op;
	LOCKTAG		hold_lock,
				fence_lock;
	bool		session = request->scope == LEASE_SESSION;
	int64		until_us = WAIT_FOREVER;
	int64		token;
	LeaseHold	now;

	PreventCommandDuringRecovery(request->function);
	PreventCommandIfReadOnly(request->function);
	PreventCommandIfParallelMode(request->function);
	if (!request->trusted)
		check_reserved_name(request->name);
	if (!request->wait)
		until_us = 0;
	else if (request->wait_us >= 0)
		until_us = clock_now_us() + request->wait_us;

	lease_entry_reap();
	lease_key_make(&key, request->name);
	hold_lock = lease_lock_hold(&key);
	fence_lock = lease_lock_fence(&key);
	entry = lease_entry_pin(&key, request->name, LEASE_PIN_CREATE);
	op = lease_xact_add(LEASE_OP_LOOK, entry, 0);
	if (answer_from_own(entry, request, &token))
	{
		lease_xact_forget(op);
		return token;
	}
	if (session)
		lease_xact_check_session_limit();
	lease_xact_become_acquire(op);
	op->hold.scope = request->scope;

	/* before the wait: one that ends in an error may have been granted all the same */
	op->locked = session;
	if (!lease_wait_lock(&hold_lock, ExclusiveLock, session, until_us))
	{
		lease_xact_forget(op);
		return 0;
	}
	clear_dead(entry);
	settle(entry, request->name);

	if (lease_entry_is_live(entry, &now) &&
		(!request->wait || !lease_wait_lapse(entry, until_us)))
	{
		withdraw(op, &hold_lock);
		return 0;
	}
	DEBUG_POINT("lease-before-takeover");
	if (!lease_wait_lock(&fence_lock, TAKEOVER_MODE, false, until_us))
	{
		withdraw(op, &hold_lock);
		return 0;
	}
	DEBUG_POINT("lease-before-grant");
	grant(op, request);
	return op->hold.token;
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

	if (standing(entry, token, &hold) != STANDING_CURRENT)
		return 0;
	check_role(&hold, name);
	if (hold.scope != LEASE_TTL)
	{
		if (ttl_us != 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("lease \"%s\" has no ttl to change", name),
					 errdetail("It is held in %s scope.", hold.scope == LEASE_SESSION ? "session" : "transaction")));
		return PG_INT64_MAX;
	}
	if (ttl_us > hold.ttl_us)
	{
		/* the row's ttl is what a restart relies on */
		lease_wait_lock(&fence_lock, FENCE_MODE, false, WAIT_FOREVER);
		if (standing(entry, token, &hold) != STANDING_CURRENT ||
			!lease_row_lengthen(name, token, ttl_us))
			return 0;
		lease_xact_add(LEASE_OP_LENGTHEN, lease_entry_pin_again(entry), token)->hold.ttl_us = ttl_us;
	}
	else if (ttl_us == 0)
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
release_session(LeaseEntry *entry, const char *name, const LeaseHold *hold)
{
	if (!lease_hold_is_mine(hold))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("lease \"%s\" is held by another session", name),
				 errdetail("It is held in session scope by process %d.", hold->pid),
				 errhint("Release it there; it is also free as soon as that session ends.")));
	lease_xact_add(LEASE_OP_RELEASE, lease_entry_pin_again(entry), hold->token)->hold.scope = LEASE_SESSION;
	return true;
}

/* Releases a ttl hold: its row goes now, the hold at commit. */
static bool
release_ttl(LeaseEntry *entry, const char *name, int64 token)
{
	LOCKTAG		fence_lock = lease_lock_fence(&entry->key);
	LeaseHold	hold;

	lease_wait_lock(&fence_lock, FENCE_MODE, false, WAIT_FOREVER);
	DEBUG_POINT("lease-before-release");
	if (standing(entry, token, &hold) != STANDING_CURRENT || !lease_row_delete(name, token))
		return false;
	lease_xact_add(LEASE_OP_RELEASE, lease_entry_pin_again(entry), token)->hold.scope = LEASE_TTL;
	return true;
}

static bool
release(LeaseEntry *entry, const char *name, int64 token)
{
	LeaseHold	hold;

	if (standing(entry, token, &hold) != STANDING_CURRENT)
		return false;
	check_role(&hold, name);
	switch (hold.scope)
	{
		case LEASE_SESSION:
			return release_session(entry, name, &hold);
		case LEASE_TTL:
			return release_ttl(entry, name, token);
		default:
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("lease \"%s\" ends with its transaction", name),
					 errdetail("It is held in transaction scope."),
					 errhint("Commit or roll back, or acquire it in session scope.")));
	}
	return false;
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

static void
raise_not_current(LeaseEntry *entry, const char *name, int64 token, Standing why, const LeaseHold *hold)
{
	LeaseHold	now = {0};

	if (entry != NULL)
		lease_entry_snapshot(entry, &now, NULL);
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
			 now.scope == LEASE_FREE ?
			 errdetail("Nobody holds the lease: it was released or revoked, or its session ended.") :
			 errdetail("The lease is held by %s since %s, with a newer token.",
					   describe_holder(entry, name, &now), timestamptz_to_str(now.acquired_at)),
			 errhint("Stop the work that the lease stood for.")));
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
	Standing	why;

	lease_wait_lock(&fence_lock, FENCE_MODE, false, WAIT_FOREVER);
	DEBUG_POINT("lease-after-fence-lock");
	why = standing(entry, token, &hold);
	if (why != STANDING_CURRENT)
		raise_not_current(entry, name, token, why, &hold);
	check_role(&hold, name);
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
	if (op != NULL && (!op->implicit || have_hold_lock(op->entry)))
		return true;			/* one by fence() stands to the end of the transaction */

	op = lease_xact_find_key(LEASE_OP_ACQUIRE, &key);
	entry = lease_entry_pin(&key, name, LEASE_PIN_EXISTING);
	if (entry == NULL)
		return false;
	if (op != NULL && op->granted && op->hold.scope != LEASE_TTL)
		token = op->hold.token;
	else
	{
		lease_entry_snapshot(entry, &now, NULL);
		if (now.scope == LEASE_SESSION && lease_hold_is_mine(&now))
			token = now.token;
	}
	if (token == 0 || !have_hold_lock(entry) ||
		lease_xact_find(LEASE_OP_RELEASE, entry, token) != NULL)
	{
		lease_entry_unpin(entry);
		return false;
	}
	op = lease_xact_add(LEASE_OP_FENCE, entry, token);
	op->implicit = true;
	fence_lock = lease_lock_fence(&key);
	lease_wait_lock(&fence_lock, FENCE_MODE, false, WAIT_FOREVER);
	return have_hold_lock(entry);
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
	holds = standing(entry, token, &hold) == STANDING_CURRENT &&
		hold.scope == LEASE_SESSION && lease_hold_is_mine(&hold);
	lease_entry_unpin(entry);
	return holds;
}

/* Names whose row has lapsed, for the sweep. */
typedef struct SweepState
{
	List	   *names;
	int			limit;
} SweepState;

static void
collect_lapsed(const LeaseRow *row, void *arg)
{
	SweepState *state = arg;
	LeaseKey	key;
	LeaseEntry *entry;
	LeaseHold	now = row->hold;

	if (list_length(state->names) >= state->limit)
		return;
	lease_key_make(&key, row->name);
	entry = lease_entry_pin(&key, row->name, LEASE_PIN_EXISTING);
	if (entry != NULL)
	{
		if (entry->settled)
			lease_entry_snapshot(entry, &now, NULL);
		lease_entry_unpin(entry);
	}
	/* a guess is enough here: sweep_one() looks again */
	if (now.scope == LEASE_TTL && !lease_hold_is_live(&now, clock_now_us()))
		state->names = lappend(state->names, row->name);
}

/* Removes one lapsed lease, if nobody is at it. */
static bool
sweep_one(const char *name)
{
	LeaseKey	key;
	LeaseOp    *look;
	LeaseHold	now;
	LOCKTAG		hold_lock,
				fence_lock;
	bool		swept = false;

	lease_key_make(&key, name);
	hold_lock = lease_lock_hold(&key);
	fence_lock = lease_lock_fence(&key);
	if (!lease_wait_lock(&hold_lock, ExclusiveLock, false, 0))
		return false;
	if (!lease_wait_lock(&fence_lock, TAKEOVER_MODE, false, 0))
	{
		lease_unlock(&hold_lock, ExclusiveLock, false);
		return false;
	}
	look = find_entry(&key, name);
	if (look == NULL)
		return false;
	if (!lease_entry_is_live(look->entry, &now) && now.scope == LEASE_TTL)
		swept = lease_row_delete(name, now.token);
	if (swept)
		lease_xact_add(LEASE_OP_RELEASE, lease_entry_pin_again(look->entry), now.token)->hold.scope = LEASE_TTL;
	lease_xact_forget(look);
	return swept;
}

/* Gives back shared memory that nobody needs any more. Called by the supervisor, in a transaction. */
void
lease_purge(void)
{
	AcceptInvalidationMessages();	/* the extension may have been made anew */
	lease_entry_purge(MyDatabaseId, extension_get()->extension);
}

/*
 * Removes at most `limit` leases that lapsed and that nobody asks for. Called
 * by the supervisor, in a transaction of its own that then commits, flushed.
 * Returns how many were removed. Takes H and F of each conditionally.
 */
int
lease_sweep(int limit)
{
	SweepState	state = {NIL, limit};
	int			swept = 0;
	ListCell   *cell;

	lease_row_visit(false, collect_lapsed, &state);
	foreach(cell, state.names)
	{
		CHECK_FOR_INTERRUPTS();
		if (sweep_one(lfirst(cell)))
			swept++;
	}
	return swept;
}

/* For the functions of a name and a token: as find_entry(). NULL: nobody holds the name. */
static LeaseOp *
open_name(const LeaseNameToken *arg)
{
	LeaseKey	key;

	PreventCommandDuringRecovery(arg->function);
	lease_key_make(&key, arg->name);
	return find_entry(&key, arg->name);
}

/* revenant.renew(): see lease_api.c. The new deadline on the monotonic clock; 0: lost; PG_INT64_MAX: none. */
int64
lease_renew(const LeaseNameToken *arg, int64 ttl_us)
{
	LeaseOp    *look = open_name(arg);
	int64		deadline_us;

	if (look == NULL)
		return 0;
	deadline_us = renew(look->entry, arg->name, arg->token, ttl_us);
	lease_xact_forget(look);
	return deadline_us;
}

/* revenant.release(): whether the token's hold ends with this transaction. */
bool
lease_release(const LeaseNameToken *arg)
{
	LeaseOp    *look = open_name(arg);
	bool		released;

	if (look == NULL)
		return false;
	released = release(look->entry, arg->name, arg->token);
	lease_xact_forget(look);
	return released;
}

/* revenant.is_current() */
bool
lease_is_current(const LeaseNameToken *arg)
{
	LeaseOp    *look = open_name(arg);
	LeaseHold	hold;
	bool		current;

	if (look == NULL)
		return false;
	current = standing(look->entry, arg->token, &hold) == STANDING_CURRENT;
	lease_xact_forget(look);
	return current;
}

/* revenant.fence() */
void
lease_fence(const LeaseNameToken *arg)
{
	LeaseOp    *look = open_name(arg);

	if (look != NULL)
	{
		fence(look->entry, arg->name, arg->token);
		lease_xact_forget(look);
	}
	else
		raise_not_current(NULL, arg->name, arg->token, STANDING_STALE, NULL);
}
