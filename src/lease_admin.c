/*-------------------------------------------------------------------------
 *
 * lease_admin.c
 *	  For administrators: taking a lease away, and explaining one.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "compat.h"
#include "debug.h"
#include "extension.h"
#include "lease_api.h"
#include "lease_event.h"
#include "lease_holder.h"
#include "lease_row.h"
#include "lease_standing.h"
#include "lease_wait.h"
#include "stat.h"

/* How long revoke() waits for a process that it terminated, and how often it looks. */
#define TERMINATE_WAIT_US (10 * US_PER_S)
#define TERMINATE_LOOK_MS 10

/* How often it looks for more of them. */
#define TERMINATE_AGAIN_US (200 * US_PER_MS)

/* The shared holds of one name. */
typedef struct SharedHolds
{
	LeaseKey	key;
	List	   *holds;			/* LeaseHold * */
} SharedHolds;

static void
collect_shared(const LeaseHolder *holder, void *arg)
{
	SharedHolds *state = arg;
	LeaseHold  *copy;

	if (memcmp(&holder->key.lease, &state->key, sizeof(LeaseKey)) != 0)
		return;
	copy = palloc(sizeof(LeaseHold));
	*copy = holder->hold;
	state->holds = lappend(state->holds, copy);
}

/*
 * Ends a process of a session that holds or is fenced by a lease. Raises 42501
 * where it is a superuser's and the caller is none. A supervisor is never ended, and has the lock for a moment only.
 */
static void
terminate_process(int pid)
{
	PGPROC	   *proc = lease_wait_session(pid);

	if (proc == NULL)
		return;
	if (superuser_arg(proc->roleId) && !superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to terminate process %d", pid),
				 errdetail("Only superusers may terminate the processes of superusers.")));
	(void) kill(pid, SIGTERM);
}

/* Takes F exclusively, waiting for fenced transactions in flight, or ending them. */
static void
exclude_fenced(const LeaseKey *key, bool terminate)
{
	LOCKTAG		fence_lock = lease_lock_fence(key);
	int64		until_us = 0;

	DEBUG_POINT("lease-before-revoke");
	if (!terminate)
		until_us = WAIT_FOREVER;
	while (!lease_wait_lock(&fence_lock, TAKEOVER_EXCLUSIVE, false, until_us))
	{
		int			pids[128];
		int			n = lease_wait_holders(&fence_lock, pids, lengthof(pids));

		for (int i = 0; i < n; i++)
			terminate_process(pids[i]);
		/* then again: one may have been fenced between the two looks */
		until_us = clock_now_us() + TERMINATE_AGAIN_US;
	}
}

/* Ends a hold of session or transaction scope with its process. Raises 55006. */
static void
revoke_process(const char *name, const LeaseKey *key, const LeaseHold *hold, const char *reason, bool terminate)
{
	LOCKTAG		hold_lock = lease_lock_hold(key);
	int64		until_us = clock_now_us() + TERMINATE_WAIT_US;

	if (lease_hold_is_mine(hold))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("lease \"%s\" is held by this session", name),
				 errhint("Release it.")));
	if (!terminate)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("lease \"%s\" is held in %s scope by process %d", name,
						hold->scope == LEASE_SESSION ? "session" : "transaction", hold->pid),
				 errdetail("Such a hold ends with its %s only.",
						   hold->scope == LEASE_SESSION ? "session" : "transaction"),
				 errhint("SELECT revenant.revoke(%s, terminate => true) ends that process.",
						 quote_literal_cstr(name))));
	terminate_process(hold->pid);
	while (lease_hold_has_lock(hold, &hold_lock, lease_hold_mode(hold)))
	{
		if (clock_now_us() >= until_us)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("process %d still holds lease \"%s\"", hold->pid, name),
					 errdetail("It was told to end, and has not done so in 10 s.")));
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 TERMINATE_LOOK_MS, compat_wait_event("RevenantLease"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	stat_count(STAT_LEASES_REVOKED);
	lease_tell_revoked(name, hold, reason);
}

/* Ends a ttl hold, or the time in which nobody gets the name, at commit; 0: it was over when its turn came. */
static int64
revoke_ttl(LeaseEntry *entry, const char *name, int64 token, const char *reason, bool terminate)
{
	LeaseHold	hold;
	LeaseOp    *op;

	exclude_fenced(&entry->key, terminate);
	(void) lease_settle_fenced(entry, name, true);
	lease_entry_snapshot(entry, &hold, NULL);
	if (hold.token != token || lease_hold_free_from(&hold) <= clock_now_us() || !lease_row_delete(name, token, false))
		return 0;
	op = lease_xact_add(LEASE_OP_RELEASE, lease_entry_pin_again(entry), token);
	op->hold.scope = LEASE_TTL;
	op->counted = STAT_LEASES_REVOKED;
	lease_tell_revoked(name, &hold, reason);
	return token;
}

/* Ends whatever holds a name; the greatest token of what was ended, or 0. */
static int64
revoke_all(const char *name, const char *reason, bool terminate)
{
	SharedHolds shared = {.holds = NIL};
	LeaseOp    *look;
	LeaseHold	now,
				next;
	int64		token = 0;
	ListCell   *cell;

	lease_key_make(&shared.key, name);
	look = lease_find_entry(&shared.key, name);
	if (look != NULL)
	{
		lease_entry_snapshot(look->entry, &now, &next);
		if (lease_entry_is_taken(look->entry, &now))
			token = revoke_ttl(look->entry, name, now.token, reason, terminate);
		else
		{
			LOCKTAG		hold_lock = lease_lock_hold(&shared.key);

			if (!lease_session_hold_stands(look->entry, &now))
				now = next;		/* of a transaction that has not ended */
			if (now.scope != LEASE_FREE && lease_hold_has_lock(&now, &hold_lock, HOLD_EXCLUSIVE))
			{
				revoke_process(name, &shared.key, &now, reason, terminate);
				token = now.token;
			}
		}
		lease_xact_forget(look);
	}
	lease_holder_visit(collect_shared, &shared);
	foreach(cell, shared.holds)
	{
		LeaseHold  *hold = lfirst(cell);

		revoke_process(name, &shared.key, hold, reason, terminate);
		token = Max(token, hold->token);
	}
	return token;
}

/*
 * Ends a hold by ttl, if there is one, at commit: for what the name stands for is no more. Waits for
 * who is fenced by it. One that this very transaction acquired is released.
 */
void
lease_end_ttl(const char *name, const char *reason)
{
	LeaseNameToken arg = {.function = "revenant.release()",.name = name};
	LeaseKey	key;
	LeaseOp    *look;
	LeaseOp    *mine;
	LeaseHold	now;

	lease_key_make(&key, name);
	look = lease_find_entry(&key, name);
	if (look == NULL)
		return;
	if (lease_entry_is_taken(look->entry, &now) && now.scope == LEASE_TTL)
		(void) revoke_ttl(look->entry, name, now.token, reason, false);
	mine = lease_xact_find(LEASE_OP_ACQUIRE, look->entry, 0);
	if (mine != NULL && mine->hold.scope == LEASE_TTL)
	{
		arg.token = mine->hold.token;
		(void) lease_release(&arg, 0);
	}
	lease_xact_forget(look);
}

/*
 * revenant.revoke(lease, reason, terminate)
 *
 * Takes a lease away from whoever holds it, in every scope, and returns the
 * token that is worth nothing any more; NULL: nobody held it. A ttl lease waits
 * for fenced transactions in flight, or ends them with `terminate`; a session's or
 * a transaction's hold ends with its process, only with `terminate`. Takes F exclusively to the
 * end of the transaction, never H. Raises 22004, 22023, 25006, 42501, 55006.
 */
SQL_FUNCTION(revenant_revoke)
{
	char	   *name = lease_name_arg(fcinfo, 0);
	char	   *reason = PG_ARGISNULL(1) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(1));
	int64		token;

	PreventCommandDuringRecovery("revenant.revoke()");
	PreventCommandIfReadOnly("revenant.revoke()");
	if (PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"terminate\" must not be null")));
	token = revoke_all(name, reason, PG_GETARG_BOOL(2));
	if (token == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(token);
}

static const char *
scope_name(const LeaseHold *hold)
{
	switch (hold->scope)
	{
		case LEASE_TTL:
			return "ttl";
		case LEASE_SESSION:
			return "session";
		default:
			return "transaction";
	}
}

static void
explain_hold(StringInfo text, const char *name, const LeaseHold *hold, const char *label)
{
	char	   *role = GetUserNameFromId(hold->role, true);

	appendStringInfo(text, "\"%s\" is held in %s scope%s by ", name, scope_name(hold),
					 hold->shared ? ", shared," : "");
	if (label != NULL && label[0] != '\0')
		appendStringInfo(text, "\"%s\", ", label);
	appendStringInfo(text, "role \"%s\", process %d, since %s.\n", role ? role : "?", hold->pid,
					 timestamptz_to_str(hold->acquired_at));
}

static void
explain_ttl(StringInfo text, const LeaseHold *hold)
{
	int64		left_us = hold->deadline_us - clock_now_us();

	appendStringInfo(text, "Its ttl is %.3f s; without a renewal it lapses in %.3f s.\n",
					 hold->ttl_us / 1e6, Max(left_us, 0) / 1e6);
	if (hold->lock_delay_us > 0)
		appendStringInfo(text, "After a lapse nobody gets it for %.3f s.\n", hold->lock_delay_us / 1e6);
	if (hold->bound)
		appendStringInfoString(text, "It also ends with its session.\n");
}

/* Why somebody who asks for the name now would wait, or would not. */
static void
explain(StringInfo text, const char *name)
{
	SharedHolds shared = {.holds = NIL};
	LeaseHold	now = {0},
				next = {0};
	LOCKTAG		hold_lock,
				fence_lock;
	LeaseOp    *look;
	char	   *label;
	int			pids[128];
	int			n;
	ListCell   *cell;

	lease_key_make(&shared.key, name);
	hold_lock = lease_lock_hold(&shared.key);
	fence_lock = lease_lock_fence(&shared.key);
	lease_holder_visit(collect_shared, &shared);
	label = lease_who(name, &now);
	look = lease_find_entry(&shared.key, name);
	if (look != NULL)
	{
		if (label == NULL)
			lease_entry_snapshot(look->entry, &now, &next);
		lease_xact_forget(look);
	}

	if (label != NULL)
	{
		explain_hold(text, name, &now, label);
		if (now.scope == LEASE_TTL)
			explain_ttl(text, &now);
	}
	else if (next.scope != LEASE_FREE && lease_hold_has_lock(&next, &hold_lock, HOLD_EXCLUSIVE))
	{
		explain_hold(text, name, &next, NULL);
		if (next.scope != LEASE_XACT)
			appendStringInfoString(text, "The transaction that acquired it has not committed.\n");
	}
	else if (shared.holds == NIL)
	{
		int64		left_us = lease_hold_free_from(&now) - clock_now_us();

		if (left_us > 0 && !lease_hold_lost_its_session(&now, &shared.key))
			appendStringInfo(text, "\"%s\" is nobody's, and nobody gets it for another %.3f s (%s).\n", name,
							 left_us / 1e6, now.scope == LEASE_TTL ? "lock_delay after a lapse" : "hold_off of a release");
		else
			appendStringInfo(text, lease_wait_holders(&fence_lock, pids, lengthof(pids)) > 0 ?
							 "\"%s\" is nobody's any more.\n" : "\"%s\" is free.\n", name);
	}
	foreach(cell, shared.holds)
		explain_hold(text, name, lfirst(cell), NULL);

	n = lease_wait_holders(&fence_lock, pids, lengthof(pids));
	if (n > 0)
		appendStringInfo(text, "Open transactions are fenced by it, and it cannot change hands before they end: process %d", pids[0]);
	for (int i = 1; i < n; i++)
		appendStringInfo(text, ", %d", pids[i]);
	appendStringInfoString(text, n > 0 ? ".\n" : "");
}

/* revenant.explain_lease(lease): who holds it, until when, and what it waits for, in words. */
SQL_FUNCTION(revenant_explain_lease)
{
	char	   *name = lease_name_arg(fcinfo, 0);
	StringInfoData text;

	PreventCommandDuringRecovery("revenant.explain_lease()");
	initStringInfo(&text);
	explain(&text, name);
	while (text.len > 0 && text.data[text.len - 1] == '\n')
		text.data[--text.len] = '\0';
	PG_RETURN_TEXT_P(cstring_to_text(text.data));
}
