/*-------------------------------------------------------------------------
 *
 * lease_await.c
 *	  Waiting without a snapshot: await_lease and await_change.
 *
 * A statement that waits holds back vacuum and CREATE INDEX CONCURRENTLY by its
 * snapshot. These are procedures: called at top level, in a transaction that
 * has done nothing yet, they commit first and wait in a new transaction, in which
 * nobody has taken a snapshot. Anywhere else they wait as the functions do.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "tcop/utility.h"

#include "await.h"
#include "clock.h"
#include "extension.h"
#include "lease_api.h"
#include "lease_wait.h"
#include "result.h"

/* The one INOUT argument; NULL for 0. */
static Datum
result(FunctionCallInfo fcinfo, int64 number)
{
	Datum		value = Int64GetDatum(number);
	bool		isnull = number == 0;

	return result_row(fcinfo, &value, &isnull);
}

/*
 * CALL revenant.await_lease(lease, INOUT token, ttl, …, wait): acquire() as a
 * procedure. Raises what acquire() raises.
 */
SQL_FUNCTION(revenant_await_lease)
{
	LeaseRequest request = {.function = "revenant.await_lease()",.wait = true};

	request.name = lease_name_arg(fcinfo, 0);
	lease_acquire_args(fcinfo, 2, &request);
	request.wait_us = lease_wait_arg(fcinfo, 9);
	PreventCommandDuringRecovery(request.function);
	await_leave_snapshot(fcinfo);
	return result(fcinfo, lease_acquire(&request));
}

/*
 * CALL revenant.await_change(lease, INOUT seen, wait)
 *
 * With a null `seen` the name's change counter, at once; with a counter it
 * returns the new one when it differs, or the same after `wait`. A lapse is a change, too.
 * It may return early; whoever calls it looks again. Raises 22004, 22023, 25006.
 */
SQL_FUNCTION(revenant_await_change)
{
	char	   *name = lease_name_arg(fcinfo, 0);
	int64		seen = PG_ARGISNULL(1) ? 0 : PG_GETARG_INT64(1);
	int64		wait_us = lease_wait_arg(fcinfo, 2);

	PreventCommandDuringRecovery("revenant.await_change()");
	if (seen != 0)
		await_leave_snapshot(fcinfo);
	return result(fcinfo, lease_await_change(name, seen, wait_us < 0 ? WAIT_FOREVER : clock_now_us() + wait_us));
}
