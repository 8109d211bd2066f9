/*-------------------------------------------------------------------------
 *
 * await.c
 *	  Waiting without a snapshot: what the procedures that wait have in common.
 *
 * A statement that waits holds back vacuum and CREATE INDEX CONCURRENTLY by its
 * snapshot. A procedure can commit first, and wait in a new transaction, in which
 * nobody has taken one.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"

#include "await.h"
#include "lease_xact.h"
#include "plan_xact.h"

/*
 * Leaves the caller's snapshot behind if that is possible: this is a CALL at
 * top level, not in a transaction block, and nothing was written or done to leases and plans.
 */
void
await_leave_snapshot(FunctionCallInfo fcinfo)
{
	CallContext *context = (CallContext *) fcinfo->context;

	if (context == NULL || !IsA(context, CallContext) || context->atomic ||
		GetCurrentTransactionNestLevel() > 1 || SPI_inside_nonatomic_context() ||
		TransactionIdIsValid(GetTopTransactionIdIfAny()) || !lease_xact_is_empty() || !plan_xact_is_empty())
		return;
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	SPI_commit();
	SPI_finish();
	XactIsoLevel = XACT_READ_COMMITTED; /* any other would keep its first snapshot to its end */
}
