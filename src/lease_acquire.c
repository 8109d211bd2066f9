/*-------------------------------------------------------------------------
 *
 * lease_acquire.c
 *	  Acquiring: one name or a set of them, all or nothing, by one token.
 *
 * The part of the lock protocol (lease.c) that takes H: for each name in the
 * order of the locks, H, then the sleep while it is somebody's by ttl, or
 * nobody's for a while; then F of each; only then the token, and the rows. Since
 * everybody takes sets in that order, sets cannot deadlock with each other.
 *
 * NOTES
 *	  From its first lock on, everything that a call took is in the
 *	  transaction's operations, so an error gives all of it back.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "compat.h"
#include "debug.h"
#include "extension.h"
#include "fence.h"
#include "guc.h"
#include "lease.h"
#include "lease_bound.h"
#include "lease_event.h"
#include "lease_holder.h"
#include "lease_note.h"
#include "lease_row.h"
#include "lease_standing.h"
#include "lease_wait.h"
#include "plan.h"
#include "row.h"
#include "stat.h"
#include "task.h"

/* How long a try with a request_id waits for a grant to the same request that is being committed. */
#define COMMIT_WAIT_US (100 * US_PER_MS)

/* One name of what is asked for. */
typedef struct Target
{
	const char *name;
	LeaseKey	key;
	LeaseOp    *op;				/* NULL: nothing was taken yet */
	bool		has_hold_lock;
	bool		has_fence_lock;
	LOCKMODE	fence_mode;
} Target;

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
	if (task ? OidIsValid(owner) && is_member_of_role(GetUserId(), owner) : plan_role_owns(name + strlen("plan/")))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for lease \"%s\"", name),
			 errdetail("Names that begin with \"%s\" belong to %s; only members of the owner's role can take them.",
					   task ? "task/" : "plan/", task ? "tasks" : "plans"),
			 errhint("Use another name.")));
}

static int
compare_targets(const void *a, const void *b)
{
	return memcmp(&((const Target *) a)->key, &((const Target *) b)->key, sizeof(LeaseKey));
}

/* The targets of a request, in the order in which they are locked, each name once. */
static Target *
make_targets(const LeaseRequest *request, int *count)
{
	int			given = request->names != NULL ? request->count : 1;
	Target	   *targets = palloc0(given * sizeof(Target));
	int			n = 1;

	for (int i = 0; i < given; i++)
	{
		targets[i].name = request->names != NULL ? request->names[i] : request->name;
		if (!request->trusted)
			check_reserved_name(targets[i].name);
		lease_key_make(&targets[i].key, targets[i].name);
	}
	if (given > 1)
		qsort(targets, given, sizeof(Target), compare_targets);
	for (int i = 1; i < given; i++)
	{
		if (compare_targets(&targets[n - 1], &targets[i]) != 0)
			targets[n++] = targets[i];
	}
	*count = n;
	return targets;
}

/* Pins the entries; from here on the transaction's end cleans up. */
static void
open_targets(Target *targets, int count, const LeaseRequest *request)
{
	for (int i = 0; i < count; i++)
	{
		Target	   *target = &targets[i];

		target->op = lease_xact_add(LEASE_OP_LOOK,
									lease_entry_pin(&target->key, target->name,
													request->trusted ? LEASE_PIN_RESERVED : LEASE_PIN_CREATE), 0);
		target->op->hold.scope = request->scope;
		target->op->hold.shared = request->shared;
		target->op->hold.set_size = count;
	}
}

/* F of all names goes back, the last first. */
static void
give_back_fences(Target *targets, int count)
{
	for (int i = count - 1; i >= 0; i--)
	{
		LOCKTAG		fence_lock = lease_lock_fence(&targets[i].key);

		if (targets[i].has_fence_lock)
			lease_unlock(&fence_lock, targets[i].fence_mode, false);
		targets[i].has_fence_lock = false;
	}
}

/* Acquiring has come to nothing: what was taken goes back, the last first. */
static void
withdraw(Target *targets, int count)
{
	give_back_fences(targets, count);
	for (int i = count - 1; i >= 0; i--)
	{
		Target	   *target = &targets[i];
		LOCKTAG		hold_lock = lease_lock_hold(&target->key);

		if (target->has_hold_lock)
			lease_unlock(&hold_lock, lease_hold_mode(&target->op->hold), target->op->locked);
		target->op->locked = false;
		lease_xact_forget(target->op);
	}
}

/* What this session or transaction itself holds of a name; false: nothing. Raises 55006 for what it released. */
static bool
find_own(const Target *target, LeaseHold *hold)
{
	LeaseEntry *entry = target->op->entry;
	LeaseOp    *op = lease_xact_find(LEASE_OP_ACQUIRE, entry, 0);

	if (lease_xact_find(LEASE_OP_RELEASE, entry, 0) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("lease \"%s\" was released in this transaction", target->name),
				 errdetail("The release takes effect at commit."),
				 errhint("Commit before you acquire it again.")));
	if (op != NULL && lease_have_hold_lock(entry, lease_hold_mode(&op->hold)))
	{
		*hold = op->hold;
		return true;
	}
	lease_entry_snapshot(entry, hold, NULL);
	if (lease_hold_is_mine(hold) && lease_session_hold_stands(entry, hold))
		return true;
	return lease_holder_mine(&target->key, hold);
}

static void
raise_own(const Target *target, const LeaseHold *hold, bool overlap)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("lease \"%s\" is already held here", target->name),
			 overlap ?
			 errdetail("This %s holds it with token %lld as one of another set of names.",
					   hold->scope == LEASE_SESSION ? "session" : "transaction", (long long) hold->token) :
			 errdetail("This %s holds it with token %lld; waiting for it would be waiting for oneself.",
					   hold->scope == LEASE_SESSION ? "session" : "transaction", (long long) hold->token),
			 errhint("Release it first.")));
}

/* Whether an earlier try of the same request holds a name now, and not bound to a session that is not this one. */
static bool
is_repeated(const Target *target, const LeaseRequest *request)
{
	LeaseHold	hold;
	int64		token;

	if (request->request_id == NULL || request->scope != LEASE_TTL)
		return false;
	lease_settle(target->op->entry, target->name);
	return
		lease_row_is_request(target->name, request, &token) &&
		lease_standing(target->op->entry, token, &hold) == STANDING_CURRENT &&
		(!hold.bound || lease_hold_is_mine(&hold));
}

/*
 * Whether the names are held by an earlier try of the same request, whose reply
 * was lost: then that token is the answer, and the request renews it.
 */
static bool
answer_from_request(Target *targets, int count, const LeaseRequest *request, int64 *token)
{
	LeaseNameToken arg = {.function = request->function};
	char	  **names;

	for (int i = 0; i < count; i++)
	{
		if (!is_repeated(&targets[i], request))
			return false;
	}
	(void) lease_row_is_request(targets[0].name, request, &arg.token);
	names = palloc(count * sizeof(char *));
	for (int i = 0; i < count; i++)
		names[i] = unconstify(char *, targets[i].name);
	if (lease_renew_all(&arg, names, count, request->ttl_us) == 0)
		return false;
	*token = arg.token;
	return true;
}

/*
 * What this session itself already has of the names. True: `*token` is the
 * answer (0: busy). Asking again for the same does not stack. Raises 55006 where
 * waiting would be waiting for oneself, and for a set that only overlaps.
 */
static bool
answer_from_own(Target *targets, int count, const LeaseRequest *request, int64 *token)
{
	LeaseHold	first = {0};
	int			first_held = -1;
	bool		same = true;

	for (int i = 0; i < count; i++)
	{
		LeaseHold	hold;

		if (!find_own(&targets[i], &hold))
		{
			same = false;
			continue;
		}
		if (first_held < 0)
		{
			first = hold;
			first_held = i;
		}
		same = same && hold.token == first.token;
	}
	if (first_held < 0)
		return false;
	same = same && first.set_size == count;
	*token = first.token;
	if (same && first.scope == request->scope && first.scope != LEASE_TTL && first.shared == request->shared)
		return true;
	/* repeated in the transaction that acquired it */
	if (same && first.scope == LEASE_TTL && answer_from_request(targets, count, request, token))
		return true;
	if (request->wait || !same)
		raise_own(&targets[first_held], &first, !same);
	*token = 0;
	return true;
}

/* The same before the queue: under F, since a grant to this request may be being committed. */
static bool
find_request(Target *targets, int count, const LeaseRequest *request, int64 until_us, int64 *token)
{
	LOCKTAG		fence_lock = lease_lock_fence(&targets[0].key);
	bool		repeated = false;

	if (request->request_id == NULL || request->scope != LEASE_TTL)
		return false;
	for (int i = 0; i < count; i++)
		lease_settle(targets[i].op->entry, targets[i].name);
	if (!request->wait)
		until_us = clock_now_us() + COMMIT_WAIT_US;
	if (lease_wait_lock(&fence_lock, FENCE_BY_EXCLUSIVE, false, until_us))
	{
		repeated = answer_from_request(targets, count, request, token);
		lease_unlock(&fence_lock, FENCE_BY_EXCLUSIVE, false);
	}
	return repeated;
}

/* Whoever is granted H first clears what it finds of holders that lost it. */
static void
clear_dead(LeaseEntry *entry)
{
	dsa_pointer notes[2] = {InvalidDsaPointer, InvalidDsaPointer};
	LeaseHold	now,
				next;
	bool		lost;

	lease_entry_snapshot(entry, &now, &next);
	if (now.scope == LEASE_FREE && next.scope == LEASE_FREE)
		return;					/* and only who has H changes that */
	lost = lease_hold_lost_its_session(&now, &entry->key);
	SpinLockAcquire(&entry->mutex);
	if (lost && entry->now.token == now.token)
	{
		/* over for good, though the same session may take B again; grant() replaces its row */
		entry->now.bound = false;
		entry->now.deadline_us = 0;
		entry->now.lock_delay_us = 0;
	}
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

/* The wait until a name is nobody's. False: not in time. */
static bool
wait_lapse(Target *target, int64 until_us)
{
	LeaseEntry *entry = target->op->entry;
	int64		since_us = clock_now_us();

	/* as long as others may write the row by entries of their own nobody tells when they do */
	while (!lease_entry_is_settled(entry))
	{
		int64		again_us = clock_now_us() + UNSETTLED_LOOK_US;

		if (until_us != WAIT_FOREVER)
			again_us = Min(again_us, until_us);
		if (lease_wait_lapse(entry, since_us, again_us))
			return true;
		if (again_us == until_us)
			return false;
		lease_settle(entry, target->name);
	}
	return lease_wait_lapse(entry, since_us, until_us);
}

/* H of one name, and the wait until it is nobody's. False: not in time. */
static bool
take_hold(Target *target, const LeaseRequest *request, int64 until_us)
{
	LOCKTAG		hold_lock = lease_lock_hold(&target->key);
	LeaseEntry *entry = target->op->entry;
	bool		session = request->scope == LEASE_SESSION;
	LeaseHold	now;

	/* before the wait: one that ends in an error may have been granted all the same */
	target->op->locked = session;
	if (!lease_wait_lock(&hold_lock, lease_hold_mode(&target->op->hold), session, until_us))
		return false;
	target->has_hold_lock = true;
	lease_holder_disown(&target->key);
	clear_dead(entry);
	lease_settle(entry, target->name);
	if (!lease_entry_is_taken(entry, &now))
		return true;
	return request->wait && !is_repeated(target, request) && wait_lapse(target, until_us);
}

/*
 * revenant.fence_grace: ends the transactions that are fenced by a hold that
 * lapsed that long ago. The setting is a superuser's, so the right is lent.
 */
static void
end_fenced(const Target *target)
{
	LOCKTAG		fence_lock = lease_lock_fence(&target->key);
	int			pids[128];
	int			n = lease_wait_holders(&fence_lock, pids, lengthof(pids));

	for (int i = 0; i < n; i++)
	{
		if (kill(pids[i], SIGTERM) == 0)
			ereport(LOG_SERVER_ONLY,
					(errmsg("terminated process %d, fenced by lease \"%s\" that lapsed", pids[i], target->name),
					 errdetail("Its transaction was open for longer than revenant.fence_grace after the lapse, and somebody waits.")));
	}
}

/* Until when what a hold that is over had fenced is waited for in patience; WAIT_FOREVER: without an end. */
static int64
grace_ends_us(const LeaseHold *lapsed)
{
	int64		since_us = lapsed->deadline_us;

	if (guc_fence_grace_ms == 0 || lapsed->scope != LEASE_TTL)
		return WAIT_FOREVER;
	if (since_us == 0)
		since_us = clock_now_us();	/* it ended with its session: nobody knows when */
	return since_us + guc_fence_grace_ms * US_PER_MS;
}

/* F of one name. False: not in time. Somebody who only tries ends what is fenced for too long, for the next try. */
static bool
take_fence(Target *target, const LeaseRequest *request, int64 until_us)
{
	LOCKTAG		fence_lock = lease_lock_fence(&target->key);
	LeaseHold	lapsed;

	lease_entry_snapshot(target->op->entry, &lapsed, NULL);
	/* who has a row to delete does that alone: it must be gone, durably, before any other grant commits */
	target->fence_mode = request->shared && !lease_hold_has_row(&lapsed) ? TAKEOVER_SHARED : TAKEOVER_EXCLUSIVE;
	for (;;)
	{
		int64		grace_us = grace_ends_us(&lapsed);
		bool		patient = grace_us == WAIT_FOREVER || until_us == 0 ||
			(until_us != WAIT_FOREVER && until_us <= grace_us);

		target->has_fence_lock = lease_wait_lock(&fence_lock, target->fence_mode, false, patient ? until_us : grace_us);
		if (target->has_fence_lock || grace_us == WAIT_FOREVER || clock_now_us() < grace_us)
			break;
		/* unless it lives: a renewal that is in its row only */
		lease_settle(target->op->entry, target->name);
		if (!lease_entry_is_taken(target->op->entry, &lapsed))
		{
			end_fenced(target);
			target->has_fence_lock = lease_wait_lock(&fence_lock, target->fence_mode, false, until_us);
			break;
		}
		if (until_us == 0)
			break;
	}
	return target->has_fence_lock;
}

/*
 * F of all names. False with `in_time`: what was fenced did something that
 * keeps a name from us (a release with a hold_off), which has ended meanwhile; to be tried again.
 */
static bool
take_fences(Target *targets, int count, const LeaseRequest *request, int64 until_us, bool *in_time)
{
	*in_time = false;
	for (int i = 0; i < count; i++)
	{
		if (!take_fence(&targets[i], request, until_us))
			return false;
	}
	for (int i = 0; i < count; i++)
	{
		LeaseHold	now;

		(void) lease_settle_fenced(targets[i].op->entry, targets[i].name, true);
		if (!lease_entry_is_taken(targets[i].op->entry, &now))
			continue;
		give_back_fences(targets, count);	/* nobody sleeps with F */
		*in_time = request->wait && wait_lapse(&targets[i], until_us);
		return false;
	}
	return true;
}

static bool
take_all(Target *targets, int count, const LeaseRequest *request, int64 until_us, int64 *token)
{
	bool		in_time;

	*token = 0;
	if (request->scope == LEASE_SESSION || request->bound)
		lease_xact_check_session_limit(count);
	for (int i = 0; i < count; i++)
		lease_xact_become_acquire(targets[i].op, request->trusted);
	for (int i = 0; i < count; i++)
	{
		if (!take_hold(&targets[i], request, until_us))
		{
			/* under H: an earlier try of this request may have got it since */
			(void) answer_from_request(targets, count, request, token);
			return false;
		}
	}
	DEBUG_POINT("lease-before-takeover");
	while (!take_fences(targets, count, request, until_us, &in_time))
	{
		if (!in_time)
			return false;
	}
	return true;
}

/* H and F are ours: the row, and what others see while the grant is under way. */
static void
grant(Target *target, const LeaseRequest *request, int64 token)
{
	LeaseOp    *op = target->op;
	LeaseEntry *entry = op->entry;
	LeaseHold  *hold = &op->hold;
	LeaseHold	before;

	lease_entry_snapshot(entry, &before, NULL);
	hold->role = GetUserId();
	hold->pid = MyProcPid;
	hold->procno = compat_my_procno();
	hold->token = token;
	hold->acquired_at = request->wait ? GetCurrentTimestamp() : GetCurrentStatementStartTimestamp();
	if (request->scope == LEASE_TTL)
	{
		hold->ttl_us = request->ttl_us;
		hold->deadline_us = clock_now_us() + request->ttl_us;
		hold->lock_delay_us = request->lock_delay_us;
		hold->bound = request->bound;
		hold->election = request->election;
	}
	else
		hold->note = lease_note_make(request->holder, request->metadata, request->trusted);

	/* from here on the end of the transaction takes care of it, in any case */
	if (request->shared)
		op->holder = lease_holder_add(&target->key, target->name, hold);
	else
	{
		SpinLockAcquire(&entry->mutex);
		entry->next = *hold;
		SpinLockRelease(&entry->mutex);
	}
	op->granted = true;
	op->counted = STAT_LEASES_ACQUIRED;
	op->takes_over = before.scope == LEASE_TTL;

	/* an older operation of this transaction may have deleted the row already */
	if (request->scope == LEASE_TTL)
		lease_row_write(target->name, hold, request, lease_hold_has_row(&before));
	else if (lease_hold_has_row(&before))
		(void) lease_row_delete(target->name, before.token, false);
	lease_tell_lost(target->name, &before, "expired");
	if (request->election)
		lease_tell_claimed(target->name, hold, request->holder);
}

/* Everything up to the grant. True: H and F of all names are ours. Else `*token` is the answer, 0 for busy. */
static bool
obtain(Target *targets, int count, const LeaseRequest *request, int64 until_us, int64 *token)
{
	return !answer_from_own(targets, count, request, token) &&
		!find_request(targets, count, request, until_us, token) &&
		take_all(targets, count, request, until_us, token);
}

/* The same for who may wait: that is counted, however it ends. */
static bool
obtain_waiting(Target *targets, int count, const LeaseRequest *request, int64 until_us, int64 *token)
{
	volatile bool obtained = false;

	lease_wait_watch();
	PG_TRY();
	{
		obtained = obtain(targets, count, request, until_us, token);
	}
	PG_FINALLY();
	{
		int64		waited_us;

		if (lease_wait_watched(&waited_us))
			stat_time(STAT_LEASE_WAITS, waited_us);
	}
	PG_END_TRY();
	return obtained;
}

/*
 * Acquires one lease or a set of them; see the head of this file.
 *
 * Returns the token, or 0 when it is busy, or not free within request->wait_us.
 * Raises 25006, 22023, 42501, 53200, 54000, 55006, and what waiting raises.
 */
int64
lease_acquire(const LeaseRequest *request)
{
	int64		until_us = WAIT_FOREVER;
	int64		token;
	Target	   *targets;
	int			count;
	bool		bare;
	bool		obtained;

	PreventCommandDuringRecovery(request->function);
	PreventCommandIfReadOnly(request->function);
	PreventCommandIfParallelMode(request->function);
	if (!request->wait)
		until_us = 0;
	else if (request->wait_us >= 0)
		until_us = clock_now_us() + request->wait_us;

	bare = !ActiveSnapshotSet();	/* await_lease() waits without one */
	lease_entry_reap();
	if (bare)
		PushActiveSnapshot(GetTransactionSnapshot());
	targets = make_targets(request, &count);
	open_targets(targets, count, request);
	if (bare)
		PopActiveSnapshot();
	obtained = request->wait ? obtain_waiting(targets, count, request, until_us, &token) :
		obtain(targets, count, request, until_us, &token);
	if (!obtained)
	{
		withdraw(targets, count);
		if (token == 0)
			stat_count(STAT_LEASES_REJECTED);
		return token;
	}
	DEBUG_POINT("lease-before-grant");

	if (bare)
		PushActiveSnapshot(GetTransactionSnapshot());
	token = fence_next_token(request->function);
	for (int i = 0; i < count; i++)
	{
		if (request->bound)
		{
			targets[i].op->hold.token = token;
			targets[i].op->has_bound_lock = true;
			lease_bound_add(targets[i].op->entry, token);
		}
		grant(&targets[i], request, token);
	}
	if (bare)
		PopActiveSnapshot();
	return token;
}
