/*-------------------------------------------------------------------------
 *
 * lease_xact.c
 *	  What a transaction did to leases, and what becomes of it at its end.
 *
 * {acquire, release, lengthen, fence} × {commit, abort, subtransaction
 * aborted, session ended in the middle}: what was acquired is not held after
 * an abort, what was released is still held, a fence is forgotten. Rows and
 * transaction-level locks see to themselves; this file publishes to shared
 * memory and gives session-level locks back.
 *
 * NOTES
 *	  The commit callback runs after the transaction is flushed and visible
 *	  and before its locks go, so who waits for H or F sees what it published.
 *	  It must not raise: it only swaps what was prepared, in entries that are
 *	  pinned.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"

#include "compat.h"
#include "clock.h"
#include "debug.h"
#include "lease_bound.h"
#include "lease_budget.h"
#include "lease_holder.h"
#include "lease_local.h"
#include "lease_note.h"
#include "lease_standing.h"
#include "lease_xact.h"

/* In TopTransactionContext, newest first. */
static LeaseOp *ops = NULL;
static int	ncounted = 0;		/* of them, what the limit is about */

/* Session leases that this session took and did not release, each a lock. pg_advisory_unlock_all() makes it too large, and says so. */
static int	session_holds = 0;
static bool session_holds_unsure = false;

static object_access_hook_type previous_object_access_hook = NULL;

static bool
is_limited(LeaseOpKind kind)
{
	return kind == LEASE_OP_ACQUIRE || kind == LEASE_OP_FENCE;
}

/* How many locks an operation takes to the end of the transaction: H and F, or F. */
static int
locks_of(LeaseOpKind kind)
{
	return kind == LEASE_OP_ACQUIRE ? 2 : kind == LEASE_OP_LOOK ? 0 : 1;
}

static void
add_session_holds(int more)
{
	session_holds += more;
	lease_budget_add(more);
}

/* Raises 54000, 53200. */
static void
raise_limit(bool passing)
{
	if (ncounted < LEASE_OPS_MAX)
		lease_budget_raise(passing);
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("a transaction cannot hold and fence more than %d leases", LEASE_OPS_MAX),
			 errhint("Use several transactions, or one lease for what belongs together.")));
}

static bool
is_within_limits(LeaseOpKind kind, bool passing)
{
	return !is_limited(kind) || (ncounted < LEASE_OPS_MAX && lease_budget_has_room(locks_of(kind), passing));
}

/* Counts operations, or those that are no more: negative. */
static void
count(LeaseOpKind kind, int more)
{
	ncounted += is_limited(kind) ? more : 0;
	if (locks_of(kind) > 0)
		lease_budget_add(more * locks_of(kind));
}

/* Notes what the transaction does; takes over the caller's pin. An operation that is over otherwise than by a release says so in `counted`. Raises 54000, 53200. */
LeaseOp *
lease_xact_add(LeaseOpKind kind, LeaseEntry *entry, int64 token)
{
	LeaseOp    *op;

	if (!is_within_limits(kind, true))
	{
		lease_entry_unpin(entry);
		raise_limit(true);
	}
	op = MemoryContextAllocZero(TopTransactionContext, sizeof(LeaseOp));
	op->kind = kind;
	op->entry = entry;
	op->nest_level = GetCurrentTransactionNestLevel();
	op->hold.token = token;
	op->counted = kind == LEASE_OP_RELEASE ? STAT_LEASES_RELEASED : kind == LEASE_OP_FENCE ? STAT_FENCES : STAT_NOTHING;
	op->previous = ops;
	ops = op;
	count(kind, 1);
	return op;
}

/* Before F is taken for what is no acquire and no fence: raises 53200 if there is no room for it. */
void
lease_xact_check_room(void)
{
	if (!lease_budget_has_room(1, true))
		lease_budget_raise(true);
}

/*
 * A look is followed by an acquire: asking again for what one holds is not one, and within any limit. A task's own runner
 * is within the limit of all sessions, too. Raises 54000, 53200.
 */
void
lease_xact_become_acquire(LeaseOp *look, bool trusted)
{
	bool		passing = look->hold.scope == LEASE_TTL;

	Assert(look->kind == LEASE_OP_LOOK);
	if (!trusted && !is_within_limits(LEASE_OP_ACQUIRE, passing))
		raise_limit(passing);
	look->kind = LEASE_OP_ACQUIRE;
	count(LEASE_OP_ACQUIRE, 1);
}

/* Takes out an operation that came to nothing, and unpins its entry. */
void
lease_xact_forget(LeaseOp *op)
{
	for (LeaseOp **link = &ops; *link != NULL; link = &(*link)->previous)
	{
		if (*link == op)
		{
			*link = op->previous;
			count(op->kind, -1);
			if (op->entry->now.scope == LEASE_FREE)	/* a hint: nothing depends on it */
				lease_entry_retire(op->entry);
			lease_entry_unpin(op->entry);
			pfree(op);
			return;
		}
	}
}

/* An acquire counts once its token is drawn. */
static bool
counts(const LeaseOp *op, LeaseOpKind kind)
{
	return op->kind == kind && (kind != LEASE_OP_ACQUIRE || op->granted);
}

/* The operation of this kind on an entry (token 0: of any token), or NULL. */
LeaseOp *
lease_xact_find(LeaseOpKind kind, const LeaseEntry *entry, int64 token)
{
	for (LeaseOp *op = ops; op != NULL; op = op->previous)
	{
		if (counts(op, kind) && op->entry == entry && (token == 0 || op->hold.token == token))
			return op;
	}
	return NULL;
}

/* The same by key, for who has no entry yet. */
LeaseOp *
lease_xact_find_key(LeaseOpKind kind, const LeaseKey *key)
{
	for (LeaseOp *op = ops; op != NULL; op = op->previous)
	{
		if (counts(op, kind) && memcmp(&op->entry->key, key, sizeof(LeaseKey)) == 0)
			return op;
	}
	return NULL;
}

/* Whether the transaction did nothing to leases yet. */
bool
lease_xact_is_empty(void)
{
	return ops == NULL;
}

static bool
has_granted(void)
{
	for (LeaseOp *op = ops; op != NULL; op = op->previous)
	{
		if (counts(op, LEASE_OP_ACQUIRE))
			return true;
	}
	return false;
}

/* Raises 54000 if this session would hold more session leases than it may, bound ones included. */
void
lease_xact_check_session_limit(int more)
{
	int			bound = lease_bound_count();

	if (session_holds + bound + more <= LEASE_OPS_MAX && !session_holds_unsure)
		return;
	/* what this transaction acquired is counted when it commits */
	if (!has_granted())
	{
		add_session_holds(lease_entry_count_mine() + lease_holder_count_mine() - session_holds);
		session_holds_unsure = false;
	}
	if (session_holds + bound + more > LEASE_OPS_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a session cannot hold more than %d leases", LEASE_OPS_MAX),
				 errhint("Release some, or use ttl scope.")));
}

/* Session leases may be about to end without a word: they are counted at the next acquire. */
void
lease_xact_doubt_session(void)
{
	session_holds_unsure = session_holds_unsure || session_holds > 0;
}

/* DISCARD ALL has ended all session leases. */
void
lease_xact_forget_session(void)
{
	add_session_holds(-session_holds);
	session_holds_unsure = false;
	lease_bound_reap();
}

/* Clears the hold that others see as being acquired. */
static void
clear_pending(LeaseOp *op)
{
	dsa_pointer note = InvalidDsaPointer;

	if (op->hold.shared)
	{
		if (op->holder != NULL)
			lease_holder_end(op->holder);
		return;
	}
	SpinLockAcquire(&op->entry->mutex);
	if (op->entry->next.token == op->hold.token)
	{
		note = op->entry->next.note;
		memset(&op->entry->next, 0, sizeof(op->entry->next));
	}
	SpinLockRelease(&op->entry->mutex);
	lease_note_discard(&op->entry->key, note);
}

/* A session's H goes back, if it is still there: DISCARD ALL may have been faster. */
static void
give_back_hold_lock(const LeaseOp *op)
{
	LOCKTAG		tag = lease_lock_hold(&op->entry->key);
	LOCKMODE	mode = lease_hold_mode(&op->hold);

	if (compat_lock_held_by_me(&tag, mode))
		LockRelease(&tag, mode, true);
}

/*
 * The hold of a committed acquire becomes what others see. Where it does not
 * stand (released again, over with its transaction, or its H gone by
 * pg_advisory_unlock_all()), what is left is that an older row was deleted, or
 * that nobody gets the name for a while.
 */
static void
publish(LeaseOp *op)
{
	LeaseEntry *entry = op->entry;
	LOCKTAG		tag = lease_lock_hold(&entry->key);
	LeaseOp    *release = lease_xact_find(LEASE_OP_RELEASE, entry, op->hold.token);
	bool		held = op->hold.scope != LEASE_XACT && release == NULL &&
		compat_lock_held_by_me(&tag, lease_hold_mode(&op->hold));

	SpinLockAcquire(&entry->mutex);
	entry->settled = true;
	if (held && !op->hold.shared && entry->next.token == op->hold.token)
	{
		entry->now = entry->next;
		entry->now.deadline_us = op->hold.deadline_us;	/* a renewal here may have moved it */
		memset(&entry->next, 0, sizeof(entry->next));
	}
	else if (lease_hold_has_row(&entry->now) && entry->now.token < op->hold.token)
		memset(&entry->now, 0, sizeof(entry->now));
	if (release != NULL && release->hold_off_us > 0)
	{
		entry->now.scope = LEASE_DELAYED;
		entry->now.token = op->hold.token;
		entry->now.deadline_us = clock_now_us() + release->hold_off_us;
	}
	SpinLockRelease(&entry->mutex);
	if (held)
	{
		add_session_holds(op->hold.scope == LEASE_SESSION ? 1 : 0);
		if (op->holder != NULL)
			lease_holder_commit(op->holder);
	}
	else
	{
		clear_pending(op);
		if (op->locked)
			give_back_hold_lock(op);
		lease_entry_retire(entry);
	}
	lease_entry_note_change(entry);
}

static void
commit_release(LeaseOp *op)
{
	/* what was acquired here, publish() saw to */
	if (lease_xact_find(LEASE_OP_ACQUIRE, op->entry, op->hold.token) != NULL)
		return;
	if (op->hold.shared)
	{
		if (op->holder != NULL)
			lease_holder_end(op->holder);
		lease_entry_note_change(op->entry);
	}
	else
		lease_entry_set_free(op->entry, op->hold.token,
							 op->hold_off_us > 0 ? clock_now_us() + op->hold_off_us : 0);
	if (op->hold.scope == LEASE_SESSION)
	{
		give_back_hold_lock(op);
		add_session_holds(session_holds > 0 ? -1 : 0);
	}
	lease_entry_retire(op->entry);
}

static void
commit_lengthen(LeaseOp *op)
{
	SpinLockAcquire(&op->entry->mutex);
	if (op->entry->now.token == op->hold.token)
		op->entry->now.ttl_us = Max(op->entry->now.ttl_us, op->hold.ttl_us);
	SpinLockRelease(&op->entry->mutex);
}

static void
count_committed(const LeaseOp *op)
{
	if (op->counted != STAT_NOTHING)
		stat_count(op->counted);
	if (op->takes_over)
		stat_count(STAT_LEASES_LAPSED);
}

static void
undo(LeaseOp *op)
{
	if (op->kind == LEASE_OP_ACQUIRE)
	{
		if (op->granted)
			clear_pending(op);
		if (op->locked)
			give_back_hold_lock(op);
		if (op->has_bound_lock)
			lease_bound_forget(op->entry, op->hold.token);
	}
	if (op->kind == LEASE_OP_ACQUIRE || op->kind == LEASE_OP_FENCE)
		lease_entry_retire(op->entry);
}

static void
on_xact_end(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_PREPARE:
			if (ops != NULL)
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot PREPARE a transaction that acquired, released or fenced a lease"),
						 errhint("Commit it, or do the work on leases in a transaction of its own.")));
			break;
		case XACT_EVENT_COMMIT:
			if (ops == NULL)
				break;
			DEBUG_POINT_QUIET("lease-before-publish");
			/* first what is acquired: the rest may be about it */
			for (LeaseOp *op = ops; op != NULL; op = op->previous)
			{
				if (op->kind == LEASE_OP_ACQUIRE && op->granted)
					publish(op);
			}
			for (LeaseOp *op = ops; op != NULL; op = op->previous)
			{
				if (op->kind == LEASE_OP_RELEASE)
					commit_release(op);
				else if (op->kind == LEASE_OP_LENGTHEN)
					commit_lengthen(op);
				count_committed(op);
			}
			break;
		case XACT_EVENT_ABORT:
			for (LeaseOp *op = ops; op != NULL; op = op->previous)
				undo(op);
			break;
		default:
			return;
	}
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT)
	{
		/* only now: an operation may look at another's entry */
		for (LeaseOp *op = ops; op != NULL; op = op->previous)
		{
			if (op->holder != NULL)
				lease_holder_unpin(op->holder);
			lease_entry_unpin(op->entry);
			count(op->kind, -1);
		}
		lease_local_forget_all();
		ops = NULL;				/* the memory goes with the transaction */
		ncounted = 0;
	}
}

static void
on_subxact_end(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	int			level = GetCurrentTransactionNestLevel();

	if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		for (LeaseOp *op = ops; op != NULL && op->nest_level >= level; op = op->previous)
			op->nest_level = level - 1;
	}
	else if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		while (ops != NULL && ops->nest_level >= level)
		{
			LeaseOp    *op = ops;

			undo(op);
			if (op->holder != NULL)
				lease_holder_unpin(op->holder);
			lease_entry_unpin(op->entry);
			ops = op->previous;
			count(op->kind, -1);
		}
	}
}

static void
on_object_access(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id, void *arg)
{
	if (previous_object_access_hook)
		previous_object_access_hook(access, class_id, object_id, sub_id, arg);
	if (access == OAT_FUNCTION_EXECUTE && object_id == F_PG_ADVISORY_UNLOCK_ALL)
		lease_xact_doubt_session();
}

/* Called once, by _PG_init under shared_preload_libraries. */
void
lease_xact_install_callbacks(void)
{
	previous_object_access_hook = object_access_hook;
	object_access_hook = on_object_access;
	RegisterXactCallback(on_xact_end, NULL);
	RegisterSubXactCallback(on_subxact_end, NULL);
}
