/*-------------------------------------------------------------------------
 *
 * lease_api.c
 *	  The SQL functions of leases: arguments in, values out.
 *
 * None of them is STRICT: a null name is an error (22004), a null token a lost
 * one. What an argument means that is not supported yet is refused when it is
 * used (0A000); the signatures are final.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "error.h"
#include "extension.h"
#include "lease.h"
#include "lease_api.h"
#include "lease_entry.h"

#define TTL_MIN_US (100 * US_PER_MS)
#define TTL_MAX_US (INT64CONST(3660) * 86400 * US_PER_S)	/* 10 years, however they are counted */
#define HOLDER_MAX 512
#define METADATA_MAX 8192

/*
 * Checks the bytes of a lease's name and returns it. Raises 22023.
 */
char *
lease_name_check(const char *name)
{
	if (name[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("lease name must not be empty"),
				 errhint("Give a name of 1 to %d bytes.", LEASE_NAME_MAX)));
	if (strlen(name) > LEASE_NAME_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("lease name is too long"),
				 errdetail("It has %zu bytes, at most %d are possible.", strlen(name), LEASE_NAME_MAX),
				 errhint("Put what is long into metadata, or use a digest of it as the name.")));
	return unconstify(char *, name);
}

static char *
name_arg(FunctionCallInfo fcinfo, int n)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("lease name must not be null"),
				 errhint("Give a name of 1 to %d bytes.", LEASE_NAME_MAX)));
	return lease_name_check(text_to_cstring(PG_GETARG_TEXT_PP(n)));
}

/* A ttl in microseconds; 0 for NULL. */
static int64
ttl_arg(FunctionCallInfo fcinfo, int n)
{
	int64		us;

	if (PG_ARGISNULL(n))
		return 0;
	us = lease_interval_us(PG_GETARG_INTERVAL_P(n));
	if (us < TTL_MIN_US || us > TTL_MAX_US)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ttl is out of range"),
				 errdetail("A ttl is from 100 ms to 10 years."),
				 errhint("Without a ttl, the lease is held until it is released or the session ends.")));
	return us;
}

/* How long to wait, in microseconds; -1 for NULL: as long as it takes. */
static int64
wait_arg(FunctionCallInfo fcinfo, int n)
{
	int64		us;

	if (PG_ARGISNULL(n))
		return -1;
	us = lease_interval_us(PG_GETARG_INTERVAL_P(n));
	if (us < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("wait must not be negative"),
				 errhint("NULL waits as long as lock_timeout and statement_timeout allow.")));
	return Min(us, TTL_MAX_US);
}

static const char *
holder_arg(FunctionCallInfo fcinfo, int n)
{
	char	   *holder;

	if (PG_ARGISNULL(n))
		return NULL;
	holder = text_to_cstring(PG_GETARG_TEXT_PP(n));
	if (strlen(holder) > HOLDER_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("holder is too long"),
				 errdetail("It has %zu bytes, at most %d are possible.", strlen(holder), HOLDER_MAX),
				 errhint("It is a label for people; put the rest into metadata.")));
	return holder;
}

static Jsonb *
metadata_arg(FunctionCallInfo fcinfo, int n)
{
	Jsonb	   *metadata;

	if (PG_ARGISNULL(n))
		return NULL;
	metadata = PG_GETARG_JSONB_P(n);
	if (VARSIZE(metadata) > METADATA_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("metadata is too large"),
				 errdetail("It has %zu bytes, at most %d are possible.", (size_t) VARSIZE(metadata), METADATA_MAX),
				 errhint("Keep it in a table of your own, and put its key here.")));
	return metadata;
}

static void
refuse_later(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("\"%s\" is not supported yet", what),
			 errhint("Leave the argument out.")));
}

static bool
boolean_arg(FunctionCallInfo fcinfo, int n, const char *what)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"%s\" must not be null", what)));
	return PG_GETARG_BOOL(n);
}

/* The arguments that acquire() and try_acquire() have in common. */
static void
acquire_args(FunctionCallInfo fcinfo, LeaseRequest *request)
{
	request->name = name_arg(fcinfo, 0);
	request->ttl_us = ttl_arg(fcinfo, 1);
	request->scope = request->ttl_us > 0 ? LEASE_TTL : LEASE_SESSION;
	request->holder = holder_arg(fcinfo, 2);
	request->metadata = metadata_arg(fcinfo, 3);
	if (boolean_arg(fcinfo, 4, "shared"))
		refuse_later("shared");
	if (boolean_arg(fcinfo, 5, "bound"))
		refuse_later("bound");
	if (PG_ARGISNULL(6))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"lock_delay\" must not be null")));
	if (lease_interval_us(PG_GETARG_INTERVAL_P(6)) < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("lock_delay must not be negative")));
	if (lease_interval_us(PG_GETARG_INTERVAL_P(6)) > 0)
		refuse_later("lock_delay");
	if (!PG_ARGISNULL(7))
		refuse_later("request_id");
}

/* The same of the _xact functions. */
static void
acquire_xact_args(FunctionCallInfo fcinfo, LeaseRequest *request)
{
	request->name = name_arg(fcinfo, 0);
	request->scope = LEASE_XACT;
	request->holder = holder_arg(fcinfo, 1);
	request->metadata = metadata_arg(fcinfo, 2);
	if (boolean_arg(fcinfo, 3, "shared"))
		refuse_later("shared");
}

static Datum
acquire_result(FunctionCallInfo fcinfo, const LeaseRequest *request)
{
	int64		token = lease_acquire(request);

	if (token == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(token);
}

/*
 * revenant.try_acquire(lease, ttl, holder, metadata, shared, bound, lock_delay, request_id)
 *
 * The token, or NULL when it is busy. Session scope without a ttl. Raises
 * 22004, 22023, 25006, 42501, 53200, 54000, 55006. Locks: lease.c.
 */
SQL_FUNCTION(revenant_try_acquire)
{
	LeaseRequest request = {.function = "revenant.try_acquire()"};

	acquire_args(fcinfo, &request);
	return acquire_result(fcinfo, &request);
}

/* revenant.acquire(…, wait): the same, waiting for its turn; NULL when it was not free within `wait`. */
SQL_FUNCTION(revenant_acquire)
{
	LeaseRequest request = {.function = "revenant.acquire()",.wait = true};

	acquire_args(fcinfo, &request);
	request.wait_us = wait_arg(fcinfo, 8);
	return acquire_result(fcinfo, &request);
}

/* revenant.try_acquire_xact(lease, holder, metadata, shared): held until the transaction ends. */
SQL_FUNCTION(revenant_try_acquire_xact)
{
	LeaseRequest request = {.function = "revenant.try_acquire_xact()"};

	acquire_xact_args(fcinfo, &request);
	return acquire_result(fcinfo, &request);
}

/* revenant.acquire_xact(…, wait) */
SQL_FUNCTION(revenant_acquire_xact)
{
	LeaseRequest request = {.function = "revenant.acquire_xact()",.wait = true};

	acquire_xact_args(fcinfo, &request);
	request.wait_us = wait_arg(fcinfo, 4);
	return acquire_result(fcinfo, &request);
}

/* lease, token: false when the token is null, so that it is a lost one. */
static bool
name_token_args(FunctionCallInfo fcinfo, LeaseNameToken *arg)
{
	arg->name = name_arg(fcinfo, 0);
	arg->token = PG_ARGISNULL(1) ? 0 : PG_GETARG_INT64(1);
	PreventCommandDuringRecovery(arg->function);
	return arg->token > 0;
}

/*
 * revenant.renew(lease, token, ttl)
 *
 * The new deadline for people to read ("infinity" where the hold has none), or
 * NULL when the lease is lost. Raises 22004, 22023, 25006, 42501.
 */
SQL_FUNCTION(revenant_renew)
{
	LeaseNameToken arg = {.function = "revenant.renew()"};
	bool		token = name_token_args(fcinfo, &arg);
	int64		ttl_us = ttl_arg(fcinfo, 2);
	int64		deadline_us;

	PreventCommandIfReadOnly(arg.function);
	deadline_us = token ? lease_renew(&arg, ttl_us) : 0;
	if (deadline_us == 0)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(deadline_us == PG_INT64_MAX ? DT_NOEND : clock_to_timestamp(deadline_us));
}

/*
 * revenant.release(lease, token, hold_off)
 *
 * Whether the token was the current one and its hold now ends, at commit.
 * Raises 22004, 22023, 25006, 42501, 0A000 in transaction scope, 55006 when
 * another session holds it in session scope.
 */
SQL_FUNCTION(revenant_release)
{
	LeaseNameToken arg = {.function = "revenant.release()"};
	bool		token = name_token_args(fcinfo, &arg);

	PreventCommandIfReadOnly(arg.function);
	if (!PG_ARGISNULL(2))
	{
		int64		hold_off = lease_interval_us(PG_GETARG_INTERVAL_P(2));

		if (hold_off < 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("hold_off must not be negative")));
		if (hold_off > 0)
			refuse_later("hold_off");
	}
	PG_RETURN_BOOL(token && lease_release(&arg));
}

/* revenant.is_current(lease, token): whether the token is the current one and its time is not over. */
SQL_FUNCTION(revenant_is_current)
{
	LeaseNameToken arg = {.function = "revenant.is_current()"};

	PG_RETURN_BOOL(name_token_args(fcinfo, &arg) && lease_is_current(&arg));
}

/*
 * revenant.fence(lease, token)
 *
 * Returns if the token is the current one; the lease then cannot change hands
 * before this transaction ends. Raises RV001, RV002, 22004, 22023, 25006, 42501, 54000.
 */
SQL_FUNCTION(revenant_fence)
{
	LeaseNameToken arg = {.function = "revenant.fence()"};

	if (!name_token_args(fcinfo, &arg))
		ereport(ERROR,
				(errcode(ERRCODE_RV_STALE_TOKEN),
				 PG_ARGISNULL(1) ?
				 errmsg("a null token of lease \"%s\" is not the current one", arg.name) :
				 errmsg("token %lld of lease \"%s\" is not the current one", (long long) arg.token, arg.name),
				 errdetail("Tokens are positive; null is what a failed acquire returns."),
				 errhint("Stop the work that the lease stood for.")));
	lease_fence(&arg);
	PG_RETURN_VOID();
}
