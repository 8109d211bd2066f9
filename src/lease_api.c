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

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "error.h"
#include "extension.h"
#include "guc.h"
#include "lease.h"
#include "lease_api.h"
#include "lease_entry.h"
#include "stat.h"

#define TTL_MIN_US (100 * US_PER_MS)
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

/* A lease's name. Raises 22004, 22023. */
char *
lease_name_arg(FunctionCallInfo fcinfo, int n)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("lease name must not be null"),
				 errhint("Give a name of 1 to %d bytes.", LEASE_NAME_MAX)));
	return lease_name_check(text_to_cstring(PG_GETARG_TEXT_PP(n)));
}

/*
 * A set of names; the empty one is the ordinary lease LEASE_EMPTY_SET. Raises
 * 22004, 22023, 54000.
 */
static char **
names_arg(FunctionCallInfo fcinfo, int n, int *count)
{
	Datum	   *elements;
	bool	   *nulls;
	char	  **names;

	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("the set of lease names must not be null")));
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(n), TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, count);
	if (*count > LEASE_SET_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a set cannot have more than %d lease names", LEASE_SET_MAX),
				 errdetail("It has %d.", *count),
				 errhint("Use one lease for what belongs together.")));
	names = palloc((*count + 1) * sizeof(char *));
	for (int i = 0; i < *count; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("lease name must not be null"),
					 errdetail("It is number %d of the set.", i + 1)));
		names[i] = lease_name_check(TextDatumGetCString(elements[i]));
	}
	if (*count == 0)
		names[(*count)++] = LEASE_EMPTY_SET;
	return names;
}

/* A ttl in microseconds; 0 for NULL. */
int64
lease_ttl_arg(FunctionCallInfo fcinfo, int n)
{
	int64		us;

	if (PG_ARGISNULL(n))
		return 0;
	us = lease_interval_us(PG_GETARG_INTERVAL_P(n));
	if (us < TTL_MIN_US || us > LEASE_TTL_MAX_US)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ttl is out of range"),
				 errdetail("A ttl is from 100 ms to 10 years."),
				 errhint("Without a ttl, the lease is held until it is released or the session ends.")));
	return us;
}

/* How long to wait, in microseconds; -1 for NULL: as long as it takes. */
int64
lease_wait_arg(FunctionCallInfo fcinfo, int n)
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
	return Min(us, LEASE_TTL_MAX_US);
}

/* An interval in which nobody gets the lease, in microseconds; not null. */
static int64
delay_arg(FunctionCallInfo fcinfo, int n, const char *what)
{
	int64		us = lease_interval_us(PG_GETARG_INTERVAL_P(n));

	if (us < 0 || us > LEASE_TTL_MAX_US)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is out of range", what),
				 errdetail("It is from 0 to 10 years.")));
	return us;
}

/* A label for people. Raises 22023. */
char *
lease_holder_arg(FunctionCallInfo fcinfo, int n)
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

static bool
boolean_arg(FunctionCallInfo fcinfo, int n, const char *what)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"%s\" must not be null", what)));
	return PG_GETARG_BOOL(n);
}

/* The arguments from ttl to request_id that acquire() and its like have in common; `first` is ttl's number. */
void
lease_acquire_args(FunctionCallInfo fcinfo, int first, LeaseRequest *request)
{
	int			n = first;

	request->ttl_us = lease_ttl_arg(fcinfo, n++);
	request->scope = request->ttl_us > 0 ? LEASE_TTL : LEASE_SESSION;
	request->holder = lease_holder_arg(fcinfo, n++);
	request->metadata = metadata_arg(fcinfo, n++);
	request->shared = boolean_arg(fcinfo, n++, "shared");
	request->bound = boolean_arg(fcinfo, n++, "bound");
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"lock_delay\" must not be null")));
	request->lock_delay_us = delay_arg(fcinfo, n++, "lock_delay");
	request->request_id = PG_ARGISNULL(n) ? NULL : PG_GETARG_UUID_P(n);
	if (request->scope == LEASE_TTL && request->shared)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a lease with a ttl cannot be shared"),
				 errhint("Use session or transaction scope.")));
	if (request->scope != LEASE_TTL && (request->bound || request->lock_delay_us > 0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" needs a ttl", request->bound ? "bound" : "lock_delay"),
				 errdetail("A lease without a ttl ends with its session anyway, and never lapses.")));
	if (request->scope == LEASE_SESSION && !guc_session_leases)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("this role cannot hold leases in session scope"),
				 errdetail("revenant.session_leases is off, because the connection comes through a pooler."),
				 errhint("Use a ttl (acquire(name, ttl => '30 s')), or transaction scope (acquire_xact).")));
}

/* The same of the _xact functions. */
static void
acquire_xact_args(FunctionCallInfo fcinfo, LeaseRequest *request)
{
	request->scope = LEASE_XACT;
	request->holder = lease_holder_arg(fcinfo, 1);
	request->metadata = metadata_arg(fcinfo, 2);
	request->shared = boolean_arg(fcinfo, 3, "shared");
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

	request.name = lease_name_arg(fcinfo, 0);
	lease_acquire_args(fcinfo, 1, &request);
	return acquire_result(fcinfo, &request);
}

/* revenant.acquire(…, wait): the same, waiting for its turn; NULL when it was not free within `wait`. */
SQL_FUNCTION(revenant_acquire)
{
	LeaseRequest request = {.function = "revenant.acquire()",.wait = true};

	request.name = lease_name_arg(fcinfo, 0);
	lease_acquire_args(fcinfo, 1, &request);
	request.wait_us = lease_wait_arg(fcinfo, 8);
	return acquire_result(fcinfo, &request);
}

/* revenant.try_acquire_xact(lease, holder, metadata, shared): held until the transaction ends. */
SQL_FUNCTION(revenant_try_acquire_xact)
{
	LeaseRequest request = {.function = "revenant.try_acquire_xact()"};

	request.name = lease_name_arg(fcinfo, 0);
	acquire_xact_args(fcinfo, &request);
	return acquire_result(fcinfo, &request);
}

/* revenant.acquire_xact(…, wait) */
SQL_FUNCTION(revenant_acquire_xact)
{
	LeaseRequest request = {.function = "revenant.acquire_xact()",.wait = true};

	request.name = lease_name_arg(fcinfo, 0);
	acquire_xact_args(fcinfo, &request);
	request.wait_us = lease_wait_arg(fcinfo, 4);
	return acquire_result(fcinfo, &request);
}

/* revenant.try_acquire_all(leases, …): a set of names, all or none, by one token. */
SQL_FUNCTION(revenant_try_acquire_all)
{
	LeaseRequest request = {.function = "revenant.try_acquire_all()"};

	request.names = names_arg(fcinfo, 0, &request.count);
	lease_acquire_args(fcinfo, 1, &request);
	return acquire_result(fcinfo, &request);
}

/* revenant.acquire_all(leases, …, wait) */
SQL_FUNCTION(revenant_acquire_all)
{
	LeaseRequest request = {.function = "revenant.acquire_all()",.wait = true};

	request.names = names_arg(fcinfo, 0, &request.count);
	lease_acquire_args(fcinfo, 1, &request);
	request.wait_us = lease_wait_arg(fcinfo, 8);
	return acquire_result(fcinfo, &request);
}

/* revenant.try_acquire_all_xact(leases, holder, metadata, shared) */
SQL_FUNCTION(revenant_try_acquire_all_xact)
{
	LeaseRequest request = {.function = "revenant.try_acquire_all_xact()"};

	request.names = names_arg(fcinfo, 0, &request.count);
	acquire_xact_args(fcinfo, &request);
	return acquire_result(fcinfo, &request);
}

/* revenant.acquire_all_xact(leases, …, wait) */
SQL_FUNCTION(revenant_acquire_all_xact)
{
	LeaseRequest request = {.function = "revenant.acquire_all_xact()",.wait = true};

	request.names = names_arg(fcinfo, 0, &request.count);
	acquire_xact_args(fcinfo, &request);
	request.wait_us = lease_wait_arg(fcinfo, 4);
	return acquire_result(fcinfo, &request);
}

/* lease, token: false when the token is null, so that it is a lost one. */
bool
lease_name_token_args(FunctionCallInfo fcinfo, LeaseNameToken *arg)
{
	arg->name = lease_name_arg(fcinfo, 0);
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
	bool		token = lease_name_token_args(fcinfo, &arg);
	int64		ttl_us = lease_ttl_arg(fcinfo, 2);
	int64		deadline_us;

	PreventCommandIfReadOnly(arg.function);
	deadline_us = token ? lease_renew(&arg, ttl_us) : 0;
	if (deadline_us == 0)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(deadline_us == PG_INT64_MAX ? DT_NOEND : clock_to_timestamp(deadline_us));
}

/* A set and a token; NULL when the token is null. */
static char **
names_token_args(FunctionCallInfo fcinfo, LeaseNameToken *arg, int *count)
{
	char	  **names = names_arg(fcinfo, 0, count);

	PreventCommandDuringRecovery(arg->function);
	PreventCommandIfReadOnly(arg->function);
	arg->token = PG_ARGISNULL(1) ? 0 : PG_GETARG_INT64(1);
	return arg->token > 0 ? names : NULL;
}

/* revenant.renew_all(leases, token, ttl): the earliest new deadline; NULL, and none is renewed, if one is lost. */
SQL_FUNCTION(revenant_renew_all)
{
	LeaseNameToken arg = {.function = "revenant.renew_all()"};
	int			count;
	char	  **names = names_token_args(fcinfo, &arg, &count);
	int64		ttl_us = lease_ttl_arg(fcinfo, 2);
	int64		deadline_us = names == NULL ? 0 : lease_renew_all(&arg, names, count, ttl_us);

	if (deadline_us == 0)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(deadline_us == PG_INT64_MAX ? DT_NOEND : clock_to_timestamp(deadline_us));
}

/* revenant.release_all(leases, token): how many of them were released. */
SQL_FUNCTION(revenant_release_all)
{
	LeaseNameToken arg = {.function = "revenant.release_all()"};
	int			count;
	char	  **names = names_token_args(fcinfo, &arg, &count);
	int			released = 0;

	for (int i = 0; names != NULL && i < count; i++)
	{
		arg.name = names[i];
		released += lease_release(&arg, 0);
	}
	PG_RETURN_INT32(released);
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
	bool		token = lease_name_token_args(fcinfo, &arg);
	int64		hold_off_us = 0;

	PreventCommandIfReadOnly(arg.function);
	if (!PG_ARGISNULL(2))
		hold_off_us = delay_arg(fcinfo, 2, "hold_off");
	PG_RETURN_BOOL(token && lease_release(&arg, hold_off_us));
}

/* revenant.is_current(lease, token): whether the token is the current one and its time is not over. */
SQL_FUNCTION(revenant_is_current)
{
	LeaseNameToken arg = {.function = "revenant.is_current()"};

	PG_RETURN_BOOL(lease_name_token_args(fcinfo, &arg) && lease_is_current(&arg));
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

	if (!lease_name_token_args(fcinfo, &arg))
	{
		stat_attach(extension_get()->extension);
		stat_count(STAT_FENCES_REJECTED);
		ereport(ERROR,
				(errcode(ERRCODE_RV_STALE_TOKEN),
				 PG_ARGISNULL(1) ?
				 errmsg("a null token of lease \"%s\" is not the current one", arg.name) :
				 errmsg("token %lld of lease \"%s\" is not the current one", (long long) arg.token, arg.name),
				 errdetail("Tokens are positive; null is what a failed acquire returns."),
				 errhint("Stop the work that the lease stood for.")));
	}
	lease_fence(&arg);
	PG_RETURN_VOID();
}

/*
 * revenant.held_token(lease)
 *
 * The token by which this session or transaction holds the lease, or NULL. Not
 * of ttl leases, which belong to no session. Raises 22004, 22023, 25006.
 */
SQL_FUNCTION(revenant_held_token)
{
	int64		token;

	PreventCommandDuringRecovery("revenant.held_token()");
	token = lease_held_token(lease_name_arg(fcinfo, 0));
	if (token == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64(token);
}
