/*-------------------------------------------------------------------------
 *
 * request.c
 *	  What was answered to a request, for whoever asks again after a lost reply.
 *
 * An answer is a row that commits together with what the request did. It is kept
 * for an hour at least in one of two tables: new ones go into one half while the
 * other one grows old, until a TRUNCATE empties that and they change places.
 * So no row is ever deleted, and nothing has to be vacuumed.
 *
 * The half that is written is the parity of a sequence. What a supervisor does
 * about the other one:
 *
 *		somebody still writes there		look again
 *		nobody does						from now on nobody will: remember when
 *		an hour after that				TRUNCATE, and then the sequence's next value
 *
 * NOTES
 *	  Who writes looks at the sequence again when it has the lock on its half. So
 *	  once nobody has a lock on the half that is not written, all that is in it is committed, and its
 *	  hour begins. A supervisor that is started later begins that hour anew.
 *
 *	  The tables are searched by a look that is not MVCC (row.c): an answer that was
 *	  committed a moment ago counts at every isolation level.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "commands/sequence.h"
#include "common/hashfn.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "clock.h"
#include "compat.h"
#include "debug.h"
#include "digest.h"
#include "extension.h"
#include "locktag.h"
#include "request.h"
#include "row.h"

#define KEPT_US (3600 * US_PER_S)

/* Keeps out whoever asks by the same request_id, until this transaction ends: what it is answered is known then. */
void
request_lock(const pg_uuid_t *request_id)
{
	LOCKTAG		tag = locktag_make(LOCK_OTHER, MyDatabaseId, hash_bytes_extended(request_id->data, UUID_LEN, 0), LOCK_OTHER_REQUEST);

	(void) LockAcquire(&tag, ExclusiveLock, false, false);
}

/* What must be the same when a request is repeated, as one digest. */
static void
digest_of(const Request *request, uint8 *digest)
{
	digest_bytes(request->message, request->message ? VARSIZE(request->message) : 0, digest);
}

static Datum
column(HeapTuple tuple, TupleDesc desc, int attribute, bool *isnull)
{
	return heap_getattr(tuple, attribute, desc, isnull);
}

static bool
is_text(HeapTuple tuple, TupleDesc desc, int attribute, const char *wanted)
{
	bool		isnull;
	Datum		value = column(tuple, desc, attribute, &isnull);

	return !isnull && strcmp(TextDatumGetCString(value), wanted) == 0;
}

compat_noreturn static void
complain_of_other(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("request_id was already used for another request"),
			 errdetail("A request is repeated by the same role, with the same type, id and message."),
			 errhint("Use a new request_id for each request.")));
}

/* Raises 22023 where this request_id was used for something else. */
static void
require_same(HeapTuple tuple, TupleDesc desc, const Request *request)
{
	uint8		digest[DIGEST_BYTES];
	bool		isnull;
	Datum		value = column(tuple, desc, ATT_REQUEST_DIGEST, &isnull);
	bytea	   *known = isnull ? NULL : DatumGetByteaPP(value);

	digest_of(request, digest);
	if (known != NULL && VARSIZE_ANY_EXHDR(known) == DIGEST_BYTES && memcmp(VARDATA_ANY(known), digest, DIGEST_BYTES) == 0 &&
		DatumGetInt64(column(tuple, desc, ATT_REQUEST_ROLE_OID, &isnull)) == (int64) GetUserId() &&
		is_text(tuple, desc, ATT_REQUEST_VERB, request->verb) &&
		is_text(tuple, desc, ATT_REQUEST_TYPE, request->type) &&
		is_text(tuple, desc, ATT_REQUEST_ENTITY, request->id))
		return;
	complain_of_other();
}

static int64
number(HeapTuple tuple, TupleDesc desc, int attribute)
{
	bool		isnull;
	Datum		value = column(tuple, desc, attribute, &isnull);

	return isnull ? 0 : DatumGetInt64(value);
}

/*
 * Whether this request was answered before, and what. The reply is a copy. Waits
 * for nobody: who asks for the same at the same time must be excluded by a lock
 * of the caller's. Raises 22023 when its request_id was another request's.
 */
bool
request_find(const Request *request, RequestReply *reply)
{
	const Extension *extension = extension_get();
	bool		found = false;

	for (int half = 0; half < 2 && !found; half++)
	{
		Relation	rel = table_open(extension->request[half], AccessShareLock);
		TupleDesc	desc = RelationGetDescr(rel);
		HeapTuple	tuple = row_find_uuid(rel, extension->request_pkey[half], request->request_id);

		if (tuple != NULL)
		{
			bool		isnull;
			Datum		value;

			require_same(tuple, desc, request);
			value = column(tuple, desc, ATT_REQUEST_REPLY, &isnull);
			reply->reply = isnull ? NULL : DatumGetJsonbPCopy(value);
			reply->number = number(tuple, desc, ATT_REQUEST_NUMBER);
			reply->xid = (uint64) number(tuple, desc, ATT_REQUEST_XID);
			reply->lsn = (XLogRecPtr) number(tuple, desc, ATT_REQUEST_LSN);
			value = column(tuple, desc, ATT_REQUEST_TIMELINE, &isnull);
			reply->timeline = isnull ? 0 : (TimeLineID) DatumGetInt32(value);
			found = true;
		}
		table_close(rel, AccessShareLock);
	}
	return found;
}

/* Opens the half that is written, with a lock that stays to the end of the transaction. */
static Relation
open_written(const Extension *extension)
{
	for (;;)
	{
		int			half = (int) (row_sequence_value(extension->request_half) & 1);
		Relation	rel = table_open(extension->request[half], RowExclusiveLock);

		DEBUG_POINT("request-opened");
		if (half == (int) (row_sequence_value(extension->request_half) & 1))
			return rel;
		table_close(rel, RowExclusiveLock);
	}
}

/*
 * Writes down the answer, in this transaction. Raises 22023 if the same
 * request_id is answered for another entity at the same moment.
 */
void
request_note(const Request *request, const RequestReply *reply)
{
	Relation	rel = open_written(extension_get());
	Datum		values[REQUEST_COLUMNS];
	bool		nulls[REQUEST_COLUMNS] = {false};
	bytea	   *digest = palloc(VARHDRSZ + DIGEST_BYTES);

	SET_VARSIZE(digest, VARHDRSZ + DIGEST_BYTES);
	digest_of(request, (uint8 *) VARDATA(digest));
	values[ATT_REQUEST_ID - 1] = UUIDPGetDatum(request->request_id);
	values[ATT_REQUEST_ROLE_OID - 1] = Int64GetDatum((int64) GetUserId());
	values[ATT_REQUEST_VERB - 1] = CStringGetTextDatum(request->verb);
	values[ATT_REQUEST_TYPE - 1] = CStringGetTextDatum(request->type);
	values[ATT_REQUEST_ENTITY - 1] = CStringGetTextDatum(request->id);
	values[ATT_REQUEST_DIGEST - 1] = PointerGetDatum(digest);
	values[ATT_REQUEST_REPLY - 1] = PointerGetDatum(reply->reply);
	nulls[ATT_REQUEST_REPLY - 1] = reply->reply == NULL;
	values[ATT_REQUEST_NUMBER - 1] = Int64GetDatum(reply->number);
	values[ATT_REQUEST_XID - 1] = Int64GetDatum((int64) reply->xid);
	values[ATT_REQUEST_LSN - 1] = Int64GetDatum((int64) reply->lsn);
	values[ATT_REQUEST_TIMELINE - 1] = Int32GetDatum((int32) reply->timeline);
	if (!row_insert_first(rel, values, nulls))
		complain_of_other();
	CommandCounterIncrement();
	table_close(rel, NoLock);
}

/* Whether anybody has a lock on a table that excludes this one, or wants to. */
static bool
is_quiet(Oid table)
{
	if (!ConditionalLockRelationOid(table, ShareLock))
		return false;
	UnlockRelationOid(table, ShareLock);
	return true;
}

/* Empties a table that this transaction has locked. */
static void
empty(Oid table)
{
	char	   *name = get_rel_name(table);

	if (name == NULL)
		return;
	SPI_connect();
	(void) SPI_execute(psprintf("TRUNCATE TABLE revenant.%s", quote_identifier(name)), false, 0);
	SPI_finish();
}

/*
 * A supervisor's, now and then, in a transaction of its own that waits for
 * nobody: empties the half that is not written when all of it is an hour old, and has it written.
 */
void
request_rotate(void)
{
	static Oid	instance = InvalidOid;
	static int64 written = 0;
	static int64 quiet_since_us = 0;
	const Extension *extension = extension_get();
	int64		now_written = row_sequence_value(extension->request_half);
	Oid			other = extension->request[(now_written + 1) & 1];

	if (instance != extension->extension || written != now_written)
		quiet_since_us = 0;
	instance = extension->extension;
	written = now_written;
	if (quiet_since_us == 0)
	{
		if (is_quiet(other))
			quiet_since_us = clock_now_us();
		return;
	}
	if (clock_now_us() - quiet_since_us < KEPT_US || !ConditionalLockRelationOid(other, AccessExclusiveLock))
		return;
	/* whoever sees the sequence's next value waits for the lock, and so for the commit */
	empty(other);
	(void) nextval_internal(extension->request_half, false);
}
