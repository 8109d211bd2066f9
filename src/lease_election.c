/*-------------------------------------------------------------------------
 *
 * lease_election.c
 *	  Elections: a ttl lease with an answer made for a loop.
 *
 * A candidate calls claim() until it leads, then refresh() at every third of
 * its ttl, and abdicate() after its work has stopped. The same loop in every
 * language; examples/ has it.
 *
 * The idea: leader election over a lease, as over Chubby's or etcd's.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "extension.h"
#include "lease_api.h"
#include "lease_event.h"
#include "result.h"

/* A candidate that does not lead asks again no sooner than this, and no later than a third of its ttl. */
#define ASK_AGAIN_MIN_US (100 * US_PER_MS)

/* revenant.claim_result (is_leader, token, leader, refresh_after); token 0 and leader NULL for null */
static Datum
claim_result(FunctionCallInfo fcinfo, int64 token, const char *leader, int64 refresh_after_us)
{
	Datum		values[4] = {0};
	bool		nulls[4] = {false};

	values[0] = BoolGetDatum(token != 0);
	values[1] = Int64GetDatum(token);
	nulls[1] = token == 0;
	if (leader != NULL)
		values[2] = CStringGetTextDatum(leader);
	nulls[2] = leader == NULL;
	values[3] = lease_interval_datum(refresh_after_us);
	return result_row(fcinfo, values, nulls);
}

/*
 * Who leads instead, and when to ask again: when its time may be over, or at a
 * third of one's own. `candidate` or `token` says who asked.
 */
static Datum
not_leading(FunctionCallInfo fcinfo, const char *election, const char *candidate, int64 token, int64 ttl_us)
{
	LeaseHold	hold = {0};
	char	   *leader = lease_who(election, &hold);
	int64		after_us = ttl_us / 3;

	lease_tell_rejected(election, token, &hold, candidate);

	if (leader != NULL && hold.scope == LEASE_TTL)
		after_us = Min(after_us, lease_hold_free_from(&hold) - clock_now_us());
	return claim_result(fcinfo, 0, leader, Max(after_us, ASK_AGAIN_MIN_US));
}

/*
 * revenant.claim(election, candidate, ttl, request_id)
 *
 * Tries to lead. The same request_id again, after a lost reply, gives the same
 * token. Raises 22004, 22023, 25006, 42501, 53200, 55006.
 */
SQL_FUNCTION(revenant_claim)
{
	LeaseRequest request = {.function = "revenant.claim()",.scope = LEASE_TTL,.election = true};
	int64		token;

	request.name = lease_name_arg(fcinfo, 0);
	request.holder = lease_holder_arg(fcinfo, 1);
	request.ttl_us = lease_ttl_arg(fcinfo, 2);
	request.request_id = PG_ARGISNULL(3) ? NULL : PG_GETARG_UUID_P(3);
	if (request.holder == NULL || request.ttl_us == 0)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", request.holder == NULL ? "candidate" : "ttl")));
	if (request.holder[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("candidate must not be empty"),
				 errhint("Give a label by which people know it; it proves nothing.")));
	token = lease_acquire(&request);
	if (token == 0)
		return not_leading(fcinfo, request.name, request.holder, 0, request.ttl_us);
	return claim_result(fcinfo, token, request.holder, request.ttl_us / 3);
}

/*
 * revenant.refresh(election, token)
 *
 * Goes on leading for the ttl from now. is_leader false: stop your work first.
 * Raises 22004, 22023, 25006, 42501.
 */
SQL_FUNCTION(revenant_refresh)
{
	LeaseNameToken arg = {.function = "revenant.refresh()"};
	bool		token = lease_name_token_args(fcinfo, &arg);
	LeaseHold	hold;
	char	   *leader;

	PreventCommandIfReadOnly(arg.function);
	if (!token || lease_renew(&arg, 0) == 0)
		return not_leading(fcinfo, arg.name, NULL, token ? arg.token : 0, 3 * ASK_AGAIN_MIN_US);
	leader = lease_who(arg.name, &hold);
	if (leader != NULL)
		lease_tell_refreshed(arg.name, &hold);
	return claim_result(fcinfo, arg.token, leader, leader == NULL ? ASK_AGAIN_MIN_US : Max(hold.ttl_us / 3, ASK_AGAIN_MIN_US));
}

/* revenant.abdicate(election, token): after your work has stopped. As release(). */
SQL_FUNCTION(revenant_abdicate)
{
	LeaseNameToken arg = {.function = "revenant.abdicate()"};
	bool		token = lease_name_token_args(fcinfo, &arg);

	PreventCommandIfReadOnly(arg.function);
	PG_RETURN_BOOL(token && lease_release(&arg, 0));
}

/*
 * revenant.leader(election, OUT leader, OUT token, OUT since)
 *
 * Who leads now; all null: nobody. The token only for members of the role that
 * acquired. Raises 22004, 22023, 25006.
 */
SQL_FUNCTION(revenant_leader)
{
	char	   *election = lease_name_arg(fcinfo, 0);
	Datum		values[3] = {0};
	bool		nulls[3] = {true, true, true};
	LeaseHold	hold;
	char	   *leader;

	PreventCommandDuringRecovery("revenant.leader()");
	leader = lease_who(election, &hold);
	if (leader != NULL)
	{
		values[0] = CStringGetTextDatum(leader);
		values[1] = Int64GetDatum(hold.token);
		values[2] = TimestampTzGetDatum(hold.acquired_at);
		nulls[0] = nulls[2] = false;
		nulls[1] = !is_member_of_role(GetUserId(), hold.role);
	}
	return result_row(fcinfo, values, nulls);
}
