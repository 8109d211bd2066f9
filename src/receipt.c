/*-------------------------------------------------------------------------
 *
 * receipt.c
 *	  What became of a call: receipt() says what to keep, receipt_status() what
 *	  became of it.
 *
 * A client that has lost its connection at COMMIT does not know whether its
 * transaction is there. Its number alone tells only on the server that ran
 * it: a standby that was promoted gives numbers that it never saw to other
 * transactions. So a receipt has the timeline, and a position in the WAL behind what
 * the call wrote: if this server left that timeline before that position, the
 * transaction cannot be here.
 *
 * The number is that of the subtransaction that made the call: if that was rolled
 * back alone, the call is not here, though the rest is. And a server that has
 * crashed gives a number again of which nothing was on disk: so what the call wrote is
 * flushed before anybody is told its number.
 *
 * The idea: a transaction's fate by txid, after pg_xact_status(); the rest is
 * PostgreSQL's own timeline history.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/timeline.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/pg_lsn.h"
#include "utils/xid8.h"

#include "extension.h"
#include "receipt.h"
#include "result.h"

static Receipt last;			/* of this process; empty before its first call */

/* Remembers what receipt() answers. */
void
receipt_set(const Receipt *receipt)
{
	last = *receipt;
}

/* What the last call left to memory was written after all, in its transaction. */
void
receipt_set_written(const char *type, const char *id, int64 version)
{
	if (strcmp(last.type, type) != 0 || strcmp(last.id, id) != 0 || last.version != version)
		return;
	last.durable = true;
	last.xid = U64FromFullTransactionId(GetTopFullTransactionId());
	last.lsn = GetXLogInsertRecPtr();
	last.timeline = GetWALInsertionTimeLine();
	last.written_to = XactLastRecEnd;
}

/*
 * receipt(): of the last call of this session, also if its transaction was rolled
 * back since; nulls before the first one. xid, lsn and timeline are null for a call that wrote nothing.
 */
SQL_FUNCTION(revenant_receipt)
{
	Datum		values[7] = {0};
	bool		nulls[7] = {true, true, true, true, true, true, true};

	if (last.type[0] != '\0')
	{
		values[0] = CStringGetTextDatum(last.type);
		values[1] = CStringGetTextDatum(last.id);
		values[2] = Int64GetDatum(last.version);
		values[3] = BoolGetDatum(last.durable);
		memset(nulls, false, 4);
	}
	if (last.xid != 0)
	{
		/* mostly it is: the commit has done so */
		if (!XLogRecPtrIsInvalid(last.written_to) && !RecoveryInProgress())
			XLogFlush(last.written_to);
		last.written_to = InvalidXLogRecPtr;
		values[4] = FullTransactionIdGetDatum(FullTransactionIdFromU64(last.xid));
		values[5] = LSNGetDatum(last.lsn);
		values[6] = Int32GetDatum((int32) last.timeline);
		nulls[4] = nulls[5] = nulls[6] = false;
	}
	return result_row(fcinfo, values, nulls);
}

/* Whether what is at this place of this timeline can be on this server at all: 1 yes, 0 no, -1 it cannot be known. */
static int
is_of_this_history(TimeLineID timeline, XLogRecPtr lsn)
{
	TimeLineID	now = GetWALInsertionTimeLine();
	List	   *history;
	XLogRecPtr	left;

	if (timeline == now)
		return lsn <= GetXLogInsertRecPtr() ? 1 : -1;
	history = readTimeLineHistory(now);
	if (!tliInHistory(timeline, history))
		return -1;				/* a sibling's, or one that is to come */
	left = tliSwitchPoint(timeline, history, NULL);
	return XLogRecPtrIsInvalid(left) || lsn <= left ? 1 : 0;
}

/* What this server knows of a transaction; NULL where it is too old or was never begun. */
static const char *
xact_status(FullTransactionId xid)
{
	LOCAL_FCINFO(fcinfo, 1);
	Datum		status;

	if (!FullTransactionIdIsNormal(xid) || !FullTransactionIdPrecedes(xid, ReadNextFullTransactionId()))
		return NULL;
	InitFunctionCallInfoData(*fcinfo, NULL, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = FullTransactionIdGetDatum(xid);
	fcinfo->args[0].isnull = false;
	status = pg_xact_status(fcinfo);
	return fcinfo->isnull ? NULL : TextDatumGetCString(status);
}

/*
 * receipt_status(xid, lsn, timeline): 'committed', 'aborted', 'in progress' or
 * 'unknown': too old, or of a server that is none of this one's ancestors. Raises 22004, 25006.
 */
SQL_FUNCTION(revenant_receipt_status)
{
	const char *status = NULL;
	int			here;

	PreventCommandDuringRecovery("revenant.receipt_status()");
	for (int i = 0; i < 3; i++)
	{
		if (PG_ARGISNULL(i))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("xid, lsn and timeline must not be null"),
					 errdetail("A call whose receipt has none wrote nothing.")));
	}
	here = PG_GETARG_INT32(2) <= 0 ? -1 : is_of_this_history((TimeLineID) PG_GETARG_INT32(2), PG_GETARG_LSN(1));
	if (here == 0)
		status = "aborted";
	else if (here == 1)
		status = xact_status(PG_GETARG_FULLTRANSACTIONID(0));
	PG_RETURN_TEXT_P(cstring_to_text(status != NULL ? status : "unknown"));
}
