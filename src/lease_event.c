/*-------------------------------------------------------------------------
 *
 * lease_event.c
 *	  What is told when leases change hands.
 *
 * Of elections: who leads now, who does not any more and why, and whom somebody
 * else kept from leading. Of other leases only that an administrator took
 * one away: they may change hands thousands of times a second.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"

#include "clock.h"
#include "events.h"
#include "lease_event.h"

static const char *
seconds(int64 us)
{
	return psprintf("%.3f s", us / 1e6);
}

/* An election has a new leader, from the commit on. */
void
lease_tell_claimed(const char *name, const LeaseHold *hold, const char *candidate)
{
	Event		event = {EVENT_LEADERSHIP_CLAIMED, name,.token = hold->token,.role = hold->role,
	.detail = {"leader", candidate, "ttl", seconds(hold->ttl_us)}};

	event_at_commit(&event);
}

/* A leader goes on leading. */
void
lease_tell_refreshed(const char *name, const LeaseHold *hold)
{
	Event		event = {EVENT_LEADERSHIP_REFRESHED, name,.token = hold->token,.role = hold->role};

	event_now(&event);
}

/*
 * A candidate asked and does not lead, since `leading` does; or it came with a
 * token that is worth nothing any more. Candidates ask again and again: it is
 * told once in a session for each leader, as far as it remembers, and at most once a second.
 */
void
lease_tell_rejected(const char *name, int64 token, const LeaseHold *leading, const char *candidate)
{
	static struct
	{
		char		name[LEASE_NAME_MAX + 1];
		int64		token;
		int64		leading;
	}			told[8];
	static int	next = 0;
	static int64 told_us = 0;
	Event		event = {EVENT_LEADERSHIP_REJECTED, name,.token = token,.role = GetUserId(),
	.detail = {"candidate", candidate, "reason", token != 0 ? "its token is not the current one" : "somebody else leads"}};

	/* anybody can make up names and tokens: only where somebody leads is it worth telling */
	if (leading->scope != LEASE_TTL || !leading->election || clock_now_us() - told_us < US_PER_S)
		return;
	for (int i = 0; i < (int) lengthof(told); i++)
	{
		if (told[i].token == token && told[i].leading == leading->token && strcmp(told[i].name, name) == 0)
			return;
	}
	told_us = clock_now_us();
	told[next].token = token;
	told[next].leading = leading->token;
	strlcpy(told[next].name, name, sizeof(told[next].name));
	next = (next + 1) % lengthof(told);
	event_now(&event);
}

/* A leader leads no more, from the commit on. Nothing for what is no election. */
void
lease_tell_lost(const char *name, const LeaseHold *hold, const char *reason)
{
	Event		event = {EVENT_LEADERSHIP_LOST, name,.token = hold->token,.role = hold->role,
	.detail = {"reason", reason}};

	if (hold->scope == LEASE_TTL && hold->election)
		event_at_commit(&event);
}

/*
 * An administrator took a lease away: from the commit on if it has a ttl. A
 * hold of another scope ended with its process, whatever becomes of this transaction.
 */
void
lease_tell_revoked(const char *name, const LeaseHold *hold, const char *reason)
{
	Event		event = {EVENT_LEADERSHIP_REVOKED, name,.token = hold->token,.role = hold->role,
	.detail = {"by", GetUserNameFromId(GetUserId(), true), "reason", reason}};

	if (lease_hold_has_row(hold))
		event_at_commit(&event);
	else
		event_now(&event);
}
