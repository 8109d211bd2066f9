/*-------------------------------------------------------------------------
 *
 * lease_row.c
 *	  The rows of revenant.lease: ttl holds, durably.
 *
 * A row is written when a ttl lease is acquired and deleted when it is
 * released or taken over by a lease of another scope. A renewal writes none,
 * unless it lengthens the ttl: after a restart the row's ttl is what the hold
 * is granted again for; or unless shared memory has no room for its deadline.
 *
 * NOTES
 *	  Every commit that writes a row here is flushed, whatever
 *	  synchronous_commit is: else a crash could bring an older holder's row
 *	  back after a newer one had the lease.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "clock.h"
#include "extension.h"
#include "lease_local.h"
#include "lease_row.h"
#include "row.h"

static Datum
column(HeapTuple tuple, TupleDesc desc, int number, bool *isnull)
{
	return heap_getattr(tuple, number, desc, isnull);
}

static int64
interval_column(HeapTuple tuple, TupleDesc desc, int number)
{
	bool		isnull;
	Datum		value = column(tuple, desc, number, &isnull);

	return isnull ? 0 : lease_interval_us(DatumGetIntervalP(value));
}

static int64
bigint_column(HeapTuple tuple, TupleDesc desc, int number)
{
	bool		isnull;
	Datum		value = column(tuple, desc, number, &isnull);

	return isnull ? 0 : DatumGetInt64(value);
}

static char *
text_column(HeapTuple tuple, TupleDesc desc, int number)
{
	bool		isnull;
	Datum		value = column(tuple, desc, number, &isnull);

	return isnull ? NULL : TextDatumGetCString(value);
}

/*
 * The hold that a row stands for when nothing is known beside it: until
 * ttl + lock_delay after this server began to accept writes, never shorter
 * than the holder believes; or until the deadline that this server itself
 * wrote there. A row that was copied from another cluster or
 * database (a template, an upgrade) is nobody's: it has lapsed.
 */
static void
hold_from_row(HeapTuple tuple, TupleDesc desc, LeaseHold *hold)
{
	bool		isnull;
	int64		hold_off_us;

	memset(hold, 0, sizeof(*hold));
	hold->scope = LEASE_TTL;
	hold->token = bigint_column(tuple, desc, LEASE_ROW_TOKEN);
	hold->role = (Oid) bigint_column(tuple, desc, LEASE_ROW_ROLE_OID);
	hold->pid = DatumGetInt32(column(tuple, desc, LEASE_ROW_PID, &isnull));
	hold->ttl_us = interval_column(tuple, desc, LEASE_ROW_TTL);
	hold->election = DatumGetBool(column(tuple, desc, LEASE_ROW_ELECTION, &isnull));
	hold->lock_delay_us = interval_column(tuple, desc, LEASE_ROW_LOCK_DELAY);
	hold_off_us = interval_column(tuple, desc, LEASE_ROW_HOLD_OFF);
	if (hold_off_us > 0)
		hold->scope = LEASE_DELAYED;
	hold->acquired_at = DatumGetTimestampTz(column(tuple, desc, LEASE_ROW_ACQUIRED_AT, &isnull));
	hold->procno = -1;
	if ((uint64) bigint_column(tuple, desc, LEASE_ROW_SYSTEM_IDENTIFIER) != GetSystemIdentifier() ||
		(Oid) bigint_column(tuple, desc, LEASE_ROW_DATABASE_OID) != MyDatabaseId)
		hold->deadline_us = 0;
	else if (RecoveryInProgress())
		hold->deadline_us = PG_INT64_MAX / 2;
	else if (bigint_column(tuple, desc, LEASE_ROW_SERVER_START) == clock_server_start())
		hold->deadline_us = bigint_column(tuple, desc, LEASE_ROW_DEADLINE_US);
	else
	{
		int64		left_us = hold->scope == LEASE_DELAYED ? hold_off_us : hold->ttl_us;

		/* in this order: when it is noted meanwhile, whoever reads the hold next makes up for it */
		hold->unaccepted_us = clock_has_accepted() ? 0 : left_us;
		hold->deadline_us = clock_writable_since_us() + left_us;
	}
	hold->bound = false;		/* its session was another server's, or another life's: time alone ends it */
}

/*
 * The row of a name, or NULL. The caller has pinned the name's entry, so nobody
 * is writing that row, or only asks for a guess; but for those who write it by
 * entries of their own.
 */
static HeapTuple
find(Relation rel, const char *name)
{
	HeapTuple	tuple = NULL;

	if (!lease_local_may_exist())
		tuple = row_find_locked(rel, extension_get()->lease_pkey, name);
	/* also if the first one of them came in this very moment */
	if (tuple == NULL && lease_local_may_exist())
		tuple = row_find(rel, extension_get()->lease_pkey, name);
	return tuple;
}

/* Reads the row of a name; see find(). False: there is none. */
bool
lease_row_load(const char *name, LeaseHold *hold)
{
	Relation	rel = table_open(extension_get()->lease, AccessShareLock);
	HeapTuple	tuple = find(rel, name);

	if (tuple != NULL)
	{
		hold_from_row(tuple, RelationGetDescr(rel), hold);
		heap_freetuple(tuple);
	}
	table_close(rel, AccessShareLock);
	return tuple != NULL;
}

/* The label in the row of a name, or NULL. */
char *
lease_row_holder(const char *name)
{
	const Extension *extension = extension_get();
	Relation	rel = table_open(extension->lease, AccessShareLock);
	HeapTuple	tuple = row_find(rel, extension->lease_pkey, name);
	char	   *holder = NULL;

	if (tuple != NULL)
		holder = text_column(tuple, RelationGetDescr(rel), LEASE_ROW_HOLDER);
	table_close(rel, AccessShareLock);
	return holder;
}

/*
 * Writes the row of a hold that was just granted. `exists`: the name has a row
 * of a hold that is over, unless this transaction deleted it already. The caller has H and F exclusively. The commit is flushed.
 */
void
lease_row_write(const char *name, const LeaseHold *hold, const LeaseRequest *request, bool exists)
{
	const Extension *extension = extension_get();
	Relation	rel = table_open(extension->lease, RowExclusiveLock);
	Datum		values[LEASE_ROW_COLUMNS] = {0};
	bool		nulls[LEASE_ROW_COLUMNS] = {false};
	bool		replace[LEASE_ROW_COLUMNS];
	char	   *role = GetUserNameFromId(hold->role, true);

#define SET(col, value) (values[(col) - 1] = (value))
#define SET_NULL(col) (nulls[(col) - 1] = true)
	SET(LEASE_ROW_NAME, CStringGetTextDatum(name));
	SET(LEASE_ROW_TOKEN, Int64GetDatum(hold->token));
	if (request->holder)
		SET(LEASE_ROW_HOLDER, CStringGetTextDatum(request->holder));
	else
		SET_NULL(LEASE_ROW_HOLDER);
	SET(LEASE_ROW_ROLE, CStringGetTextDatum(role != NULL ? role : "?"));
	SET(LEASE_ROW_ROLE_OID, Int64GetDatum((int64) hold->role));
	SET(LEASE_ROW_PID, Int32GetDatum(hold->pid));
	SET(LEASE_ROW_TTL, lease_interval_datum(hold->ttl_us));
	SET(LEASE_ROW_BOUND, BoolGetDatum(hold->bound));
	SET(LEASE_ROW_ELECTION, BoolGetDatum(hold->election));
	SET(LEASE_ROW_LOCK_DELAY, lease_interval_datum(hold->lock_delay_us));
	SET_NULL(LEASE_ROW_HOLD_OFF);
	if (request->metadata)
		SET(LEASE_ROW_METADATA, JsonbPGetDatum(request->metadata));
	else
		SET_NULL(LEASE_ROW_METADATA);
	SET(LEASE_ROW_ACQUIRED_AT, TimestampTzGetDatum(hold->acquired_at));
	if (request->request_id)
		SET(LEASE_ROW_REQUEST_ID, UUIDPGetDatum(request->request_id));
	else
		SET_NULL(LEASE_ROW_REQUEST_ID);
	SET(LEASE_ROW_SYSTEM_IDENTIFIER, Int64GetDatum((int64) GetSystemIdentifier()));
	SET(LEASE_ROW_DATABASE_OID, Int64GetDatum((int64) MyDatabaseId));
	SET_NULL(LEASE_ROW_DEADLINE_US);
	SET_NULL(LEASE_ROW_SERVER_START);
#undef SET
#undef SET_NULL

	if (exists)
	{
		HeapTuple	old = row_find_locked(rel, extension->lease_pkey, name);

		memset(replace, true, sizeof(replace));
		if (old != NULL)
			row_update(rel, old, values, nulls, replace);
		else
			row_insert(rel, values, nulls);
	}
	else
		row_insert(rel, values, nulls);
	table_close(rel, NoLock);
	CommandCounterIncrement();
	ForceSyncCommit();
}

/*
 * The row of this token, to be written; NULL when it is not there any more.
 * With `held` only while it stands for a hold: what a release with a hold_off
 * left is not its holder's any more.
 */
static HeapTuple
find_for_write(Relation rel, const char *name, int64 token, bool held)
{
	HeapTuple	tuple = row_find(rel, extension_get()->lease_pkey, name);
	TupleDesc	desc = RelationGetDescr(rel);

	if (tuple == NULL || bigint_column(tuple, desc, LEASE_ROW_TOKEN) != token ||
		(held && interval_column(tuple, desc, LEASE_ROW_HOLD_OFF) > 0))
		return NULL;
	return tuple;
}

/*
 * Deletes the row of a token, with `held` only if it stands for a hold. False
 * when it is not there any more, after waiting for whoever was writing it. The caller has F. The
 * commit is flushed.
 */
bool
lease_row_delete(const char *name, int64 token, bool held)
{
	Relation	rel = table_open(extension_get()->lease, RowExclusiveLock);
	HeapTuple	tuple;
	bool		deleted = false;

	while (!deleted && (tuple = find_for_write(rel, name, token, held)) != NULL)
		deleted = row_delete(rel, tuple);
	table_close(rel, NoLock);
	if (deleted)
	{
		CommandCounterIncrement();
		ForceSyncCommit();
	}
	return deleted;
}

/*
 * Whether the row of a name is of this very request: same id, same role. Its
 * token then. The caller has F, so no grant is being committed, or H.
 */
bool
lease_row_is_request(const char *name, const LeaseRequest *request, int64 *token)
{
	Relation	rel = table_open(extension_get()->lease, AccessShareLock);
	TupleDesc	desc = RelationGetDescr(rel);
	HeapTuple	tuple = find(rel, name);
	bool		same = false;

	if (tuple != NULL)
	{
		bool		isnull;
		Datum		id = column(tuple, desc, LEASE_ROW_REQUEST_ID, &isnull);

		same = !isnull && memcmp(DatumGetUUIDP(id), request->request_id, sizeof(pg_uuid_t)) == 0 &&
			(Oid) bigint_column(tuple, desc, LEASE_ROW_ROLE_OID) == GetUserId();
		if (same)
			*token = bigint_column(tuple, desc, LEASE_ROW_TOKEN);
	}
	table_close(rel, AccessShareLock);
	return same;
}

/* What is changed in the row of a hold. */
typedef struct RowChange
{
	int64		ttl_us;			/* at least */
	int64		hold_off_us;
	int64		deadline_us;	/* 0: as it is in shared memory. At least, for a renewal; then what it is in the end */
	bool		flushed;
} RowChange;

/* Changes the row of a name's hold. Otherwise as lease_row_delete(). */
static bool
change_row(const char *name, int64 token, RowChange *change)
{
	Relation	rel = table_open(extension_get()->lease, RowExclusiveLock);
	Datum		values[LEASE_ROW_COLUMNS] = {0};
	bool		nulls[LEASE_ROW_COLUMNS] = {false};
	bool		replace[LEASE_ROW_COLUMNS] = {false};
	HeapTuple	tuple;
	bool		locked = false;

	while (!locked && (tuple = find_for_write(rel, name, token, true)) != NULL)
		locked = row_lock(rel, tuple);
	if (locked)
	{
		TupleDesc	desc = RelationGetDescr(rel);
		int64		ttl_us = interval_column(tuple, desc, LEASE_ROW_TTL);

		/* a renewal never brings the deadline nearer: another one may have been faster */
		if (change->hold_off_us == 0 && change->deadline_us != 0 &&
			bigint_column(tuple, desc, LEASE_ROW_SERVER_START) == clock_server_start())
			change->deadline_us = Max(change->deadline_us, bigint_column(tuple, desc, LEASE_ROW_DEADLINE_US));
		values[LEASE_ROW_TTL - 1] = lease_interval_datum(Max(ttl_us, change->ttl_us));
		replace[LEASE_ROW_TTL - 1] = change->ttl_us > ttl_us;
		values[LEASE_ROW_HOLD_OFF - 1] = lease_interval_datum(change->hold_off_us);
		replace[LEASE_ROW_HOLD_OFF - 1] = change->hold_off_us > 0;
		values[LEASE_ROW_DEADLINE_US - 1] = Int64GetDatum(change->deadline_us);
		values[LEASE_ROW_SERVER_START - 1] = Int64GetDatum(clock_server_start());
		replace[LEASE_ROW_DEADLINE_US - 1] = replace[LEASE_ROW_SERVER_START - 1] = change->deadline_us != 0;
		row_update(rel, tuple, values, nulls, replace);
		CommandCounterIncrement();
		if (change->flushed || change->ttl_us > ttl_us)
			ForceSyncCommit();
	}
	table_close(rel, NoLock);
	return locked;
}

/* Raises the ttl of a name's row to at least `ttl_us`. Otherwise as lease_row_delete(). */
bool
lease_row_lengthen(const char *name, int64 token, int64 ttl_us)
{
	RowChange	longer = {.ttl_us = ttl_us,.flushed = true};

	return change_row(name, token, &longer);
}

/*
 * A renewal for which shared memory has no room: at least until `deadline_us` on
 * the monotonic clock of this server, unless it is restarted, and with a ttl of at
 * least `ttl_us`. Returns the deadline that it has then, or 0: it is lost. The caller has F. The commit is flushed only if the ttl grew:
 * after a crash the row is held for its ttl anyway.
 */
int64
lease_row_renew(const char *name, int64 token, int64 ttl_us, int64 deadline_us)
{
	RowChange	renewed = {.ttl_us = ttl_us,.deadline_us = deadline_us};

	return change_row(name, token, &renewed) ? renewed.deadline_us : 0;
}

/*
 * Makes the row of a hold that is released one that only keeps the name free
 * for `hold_off_us`; a session's hold has no row yet. Otherwise as lease_row_delete().
 */
bool
lease_row_hold_off(const char *name, const LeaseHold *hold, int64 hold_off_us)
{
	LeaseRequest nothing = {.name = name};
	RowChange	off = {.hold_off_us = hold_off_us,.deadline_us = clock_now_us() + hold_off_us,.flushed = true};

	if (hold->scope != LEASE_TTL)
		lease_row_write(name, hold, &nothing, false);
	return change_row(name, hold->token, &off);
}

typedef struct VisitState
{
	bool		details;
	void		(*visit) (const LeaseRow *row, void *arg);
	void	   *arg;
} VisitState;

static void
visit_tuple(Relation rel, HeapTuple tuple, void *arg)
{
	VisitState *state = arg;
	TupleDesc	desc = RelationGetDescr(rel);
	LeaseRow	row = {0};
	Datum		metadata;
	bool		isnull;

	hold_from_row(tuple, desc, &row.hold);
	row.name = text_column(tuple, desc, LEASE_ROW_NAME);
	if (state->details)
	{
		row.holder = text_column(tuple, desc, LEASE_ROW_HOLDER);
		row.role = text_column(tuple, desc, LEASE_ROW_ROLE);
		row.bound = DatumGetBool(column(tuple, desc, LEASE_ROW_BOUND, &isnull));
		metadata = column(tuple, desc, LEASE_ROW_METADATA, &isnull);
		row.metadata = isnull ? NULL : DatumGetJsonbPCopy(metadata);
	}
	state->visit(&row, state->arg);
	if (!state->details)
		pfree(row.name);		/* there may be very many */
}

/* Calls `visit` for each row, with name and hold, and the rest too if `details` are wanted; without them the name is gone after the call. */
void
lease_row_visit(bool details, void (*visit) (const LeaseRow *row, void *arg), void *arg)
{
	Relation	rel = table_open(extension_get()->lease, AccessShareLock);
	VisitState	state = {details, visit, arg};

	row_visit(rel, visit_tuple, &state);
	table_close(rel, AccessShareLock);
}
