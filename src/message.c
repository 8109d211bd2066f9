/*-------------------------------------------------------------------------
 *
 * message.c
 *	  Messages and timers: their rows, and who may do what with them.
 *
 * A message is a row of revenant.message, written in its sender's transaction:
 * there is none after a rollback. It is gone with the transaction that applies
 * it, so it is applied once, whatever crashes. What happens to it on the way:
 *
 *		send, send_after	LANE_SENDS, LANE_TIMERS
 *		its handler fails	LANE_RETRIES; after MESSAGE_ATTEMPTS_MAX times LANE_SET_ASIDE
 *		its sender cannot be connected as any more	LANE_SET_ASIDE
 *		resend_message		from LANE_SET_ASIDE into the lane where it began
 *		cancel_timer, discard_message, applied	gone
 *
 * NOTES
 *	  Whoever changes or deletes a row has its lock to the end of the transaction:
 *	  cancel_timer waits for a delivery that is under way, and then knows
 *	  what became of it. The runner does not wait for anybody: it comes back when told.
 *
 *	  The tables are read and written directly (row.c): that a caller may execute a
 *	  function is all the privilege that is needed on them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "compat.h"
#include "entity_type.h"
#include "events.h"
#include "fence.h"
#include "message.h"
#include "row.h"
#include "stat.h"
#include "task.h"
#include "worker.h"

/* How long after a failure the handler is run again: this, and each time twice as long */
#define BACKOFF_MIN_US (1 * US_PER_S)
#define BACKOFF_MAX_US (60 * US_PER_S)

/* A message of an error is kept up to this many bytes. */
#define ERROR_MAX 8192

/* The senders that this transaction did something for */
#define SENDERS_MAX 4
static struct
{
	Oid			sender;
	bool		also_at_abort;	/* a runner may have found a row locked by this transaction */
}			changed[SENDERS_MAX];
static int	nchanged = 0;
static bool more_changed = false;	/* than there is place for */
static Oid	changed_instance = InvalidOid;

/* ---------------------------------------------------------------- transactions */

static void
on_xact_end(XactEvent event, void *arg)
{
	ServiceKey	service = {RUNNER_DELIVERY, MyDatabaseId, changed_instance, InvalidOid};

	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	for (int i = 0; i < nchanged; i++)
	{
		service.role = changed[i].sender;
		if (event == XACT_EVENT_COMMIT || (event == XACT_EVENT_ABORT && changed[i].also_at_abort))
			worker_service_wake(&service);
	}
	service.role = InvalidOid;
	if (more_changed && event != XACT_EVENT_PREPARE)
		worker_service_wake(&service);
	nchanged = 0;
	more_changed = false;
}

/* Called once, by _PG_init under shared_preload_libraries. */
void
message_install_callbacks(void)
{
	RegisterXactCallback(on_xact_end, NULL);
}

/* When this transaction ends, who delivers for this sender is to look. */
void
message_note_change(Oid instance, Oid sender, bool also_at_abort)
{
	changed_instance = instance;
	for (int i = 0; i < nchanged; i++)
	{
		if (changed[i].sender == sender)
		{
			changed[i].also_at_abort |= also_at_abort;
			return;
		}
	}
	if (nchanged == SENDERS_MAX)
	{
		more_changed = true;
		return;
	}
	changed[nchanged].sender = sender;
	changed[nchanged].also_at_abort = also_at_abort;
	nchanged++;
}

/* The extension with its tables of messages. Raises 42704, 55000. */
Extension
message_extension(void)
{
	Extension	oids = *extension_get();

	if (!OidIsValid(oids.message_pkey) || !OidIsValid(oids.message_queue))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension revenant has no messages in this version"),
				 errhint("Run ALTER EXTENSION revenant UPDATE.")));
	return oids;
}

/* ---------------------------------------------------------------- a row */

static char *
text_of(const Datum *values, const bool *nulls, int attribute)
{
	return nulls[attribute - 1] ? NULL : TextDatumGetCString(values[attribute - 1]);
}

static TimestampTz
time_of(const Datum *values, const bool *nulls, int attribute)
{
	return nulls[attribute - 1] ? 0 : DatumGetTimestampTz(values[attribute - 1]);
}

/* Whether a row was made in, or adopted by, this database. */
static bool
is_native(const Datum *values)
{
	return task_row_is_native(values[ATT_MESSAGE_SYSTEM_IDENTIFIER - 1], values[ATT_MESSAGE_DATABASE_OID - 1]);
}

static const char *const kind_names[] = {
	[MESSAGE_SEND] = "send",
	[MESSAGE_TIMER] = "timer",
	[MESSAGE_STOP] = "stop",
};

/* As the column "kind" has it. */
const char *
message_kind_name(MessageKind kind)
{
	return kind_names[kind];
}

/* What is none is a send: a superuser can write anything there. */
static MessageKind
parse_kind(const char *name)
{
	for (int i = 0; i < (int) lengthof(kind_names); i++)
	{
		if (strcmp(name, kind_names[i]) == 0)
			return (MessageKind) i;
	}
	return MESSAGE_SEND;
}

/*
 * What a row says, palloc'd. Needs a snapshot, values may be toasted. Raises XX001
 * where a column has no value that every message has: a superuser can write anything there.
 */
void
message_parse(HeapTuple tuple, TupleDesc desc, MessageRow *row)
{
	static const int optional[] = {
		ATT_MESSAGE_DUE_AT, ATT_MESSAGE_DELIVER_AT, ATT_MESSAGE_SQLSTATE, ATT_MESSAGE_ERROR, ATT_MESSAGE_SET_ASIDE_AT
	};
	Datum		values[MESSAGE_COLUMNS];
	bool		nulls[MESSAGE_COLUMNS];
	bool		may_lack[MESSAGE_COLUMNS] = {0};

	for (int i = 0; i < (int) lengthof(optional); i++)
		may_lack[optional[i] - 1] = true;
	heap_deform_tuple(tuple, desc, values, nulls);
	for (int i = 0; i < MESSAGE_COLUMNS; i++)
	{
		if (nulls[i] && !may_lack[i])
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("a row of revenant.message has no \"%s\"", NameStr(TupleDescAttr(desc, i)->attname)),
					 errdetail("Messages are written by the functions of revenant only."),
					 errhint("DELETE the row as a superuser, and send the message again.")));
	}
	row->message_id = DatumGetInt64(values[ATT_MESSAGE_MESSAGE_ID - 1]);
	row->type = text_of(values, nulls, ATT_MESSAGE_TYPE);
	row->id = text_of(values, nulls, ATT_MESSAGE_ID);
	row->due_at = time_of(values, nulls, ATT_MESSAGE_DUE_AT);
	row->kind = parse_kind(text_of(values, nulls, ATT_MESSAGE_KIND));
	row->message = DatumGetJsonbPCopy(values[ATT_MESSAGE_MESSAGE - 1]);
	row->sender = text_of(values, nulls, ATT_MESSAGE_SENDER);
	row->sender_oid = (Oid) DatumGetInt64(values[ATT_MESSAGE_SENDER_OID - 1]);
	row->lane = (MessageLane) DatumGetInt32(values[ATT_MESSAGE_LANE - 1]);
	row->deliver_at = time_of(values, nulls, ATT_MESSAGE_DELIVER_AT);
	row->attempts = DatumGetInt32(values[ATT_MESSAGE_ATTEMPTS - 1]);
	row->sqlstate = text_of(values, nulls, ATT_MESSAGE_SQLSTATE);
	row->error = text_of(values, nulls, ATT_MESSAGE_ERROR);
	row->native = is_native(values);
}

/*
 * Whether the caller may see, take back and resend it: a member of the sender, and
 * an admin. In a row that was made elsewhere the oid means nothing, the name counts.
 */
bool
message_is_callers(const MessageRow *row)
{
	Oid			role = row->native ? row->sender_oid : get_role_oid(row->sender, true);

	return (OidIsValid(role) && is_member_of_role(GetUserId(), role)) || extension_role_is_admin(GetUserId());
}

static void
set(Datum *values, bool *nulls, int attribute, Datum value)
{
	values[attribute - 1] = value;
	nulls[attribute - 1] = false;
}

/*
 * A message of the current user's; due_at 0: a send. Returns its number. That is a
 * token: a timer that was lost with its primary is not to be taken for one of the next.
 */
int64
message_insert(const Extension *extension, MessageKind kind, const char *type, const char *id, const Jsonb *message, TimestampTz due_at)
{
	Relation	rel = table_open(extension->message, RowExclusiveLock);
	Datum		values[MESSAGE_COLUMNS];
	bool		nulls[MESSAGE_COLUMNS];
	int64		message_id = fence_next_token(due_at == 0 ? "revenant.send()" : "revenant.send_after()");

	memset(nulls, true, sizeof(nulls));
	set(values, nulls, ATT_MESSAGE_MESSAGE_ID, Int64GetDatum(message_id));
	set(values, nulls, ATT_MESSAGE_TYPE, CStringGetTextDatum(type));
	set(values, nulls, ATT_MESSAGE_ID, CStringGetTextDatum(id));
	set(values, nulls, ATT_MESSAGE_KIND, CStringGetTextDatum(message_kind_name(kind)));
	set(values, nulls, ATT_MESSAGE_MESSAGE, PointerGetDatum(message));
	set(values, nulls, ATT_MESSAGE_SENDER, CStringGetTextDatum(GetUserNameFromId(GetUserId(), false)));
	set(values, nulls, ATT_MESSAGE_SENDER_OID, Int64GetDatum((int64) GetUserId()));
	if (due_at != 0)
	{
		set(values, nulls, ATT_MESSAGE_DUE_AT, TimestampTzGetDatum(due_at));
		set(values, nulls, ATT_MESSAGE_DELIVER_AT, TimestampTzGetDatum(due_at));
	}
	set(values, nulls, ATT_MESSAGE_LANE, Int32GetDatum(due_at != 0 ? LANE_TIMERS : LANE_SENDS));
	set(values, nulls, ATT_MESSAGE_ATTEMPTS, Int32GetDatum(0));
	set(values, nulls, ATT_MESSAGE_SENT_AT, TimestampTzGetDatum(GetCurrentTimestamp()));
	set(values, nulls, ATT_MESSAGE_SYSTEM_IDENTIFIER, Int64GetDatum(task_identifier()));
	set(values, nulls, ATT_MESSAGE_DATABASE_OID, Int64GetDatum((int64) MyDatabaseId));
	row_insert(rel, values, nulls);
	table_close(rel, NoLock);
	CommandCounterIncrement();
	message_note_change(extension->extension, GetUserId(), false);
	stat_attach(extension->extension);
	if (kind != MESSAGE_STOP)
		stat_count(STAT_MESSAGES_SENT);
	return message_id;
}

/* ---------------------------------------------------------------- its way */

/* What a change of a row's place writes, and what it leaves. */
typedef struct Move
{
	Datum		values[MESSAGE_COLUMNS];
	bool		nulls[MESSAGE_COLUMNS];
	bool		replace[MESSAGE_COLUMNS];
} Move;

static void
move_set(Move *move, int attribute, Datum value)
{
	move->values[attribute - 1] = value;
	move->nulls[attribute - 1] = false;
	move->replace[attribute - 1] = true;
}

static void
move_clear(Move *move, int attribute)
{
	move->nulls[attribute - 1] = true;
	move->replace[attribute - 1] = true;
}

/* NULL for null; no longer than ERROR_MAX. */
static void
move_set_text(Move *move, int attribute, const char *text)
{
	if (text != NULL)
		move_set(move, attribute,
				 PointerGetDatum(cstring_to_text_with_len(text, pg_mbcliplen(text, (int) strlen(text), ERROR_MAX))));
	else
		move_clear(move, attribute);
}

static void
move_set_failure(Move *move, const MessageFailure *failure)
{
	move_set_text(move, ATT_MESSAGE_SQLSTATE, failure->sqlstate);
	move_set_text(move, ATT_MESSAGE_ERROR, failure->error);
}

static void
tell_set_aside(const MessageRow *row, const MessageFailure *failure)
{
	Event		event = {
		.kind = EVENT_MESSAGE_SET_ASIDE,
		.subject = entity_subject(row->type, row->id),
		.role = row->sender_oid,
		.detail = {"message_id", psprintf(INT64_FORMAT, row->message_id), "sqlstate", failure->sqlstate, "error", failure->error}
	};

	event_at_commit(&event);
}

static void
move_aside(Relation rel, HeapTuple tuple, const MessageRow *row, Move *move, const MessageFailure *failure)
{
	move_set_failure(move, failure);
	move_set(move, ATT_MESSAGE_LANE, Int32GetDatum(LANE_SET_ASIDE));
	move_clear(move, ATT_MESSAGE_DELIVER_AT);
	move_set(move, ATT_MESSAGE_SET_ASIDE_AT, TimestampTzGetDatum(GetCurrentTimestamp()));
	row_update(rel, tuple, move->values, move->nulls, move->replace);
	stat_count(STAT_MESSAGES_SET_ASIDE);
	tell_set_aside(row, failure);
}

static int64
backoff_us(int attempts)
{
	return Min(BACKOFF_MIN_US << Max(Min(attempts, 11) - 1, 0), BACKOFF_MAX_US);
}

/*
 * Whether a message that failed `attempts` times, and is to be tried again at `at`,
 * is due. A time that is further away than its backoff was made before the wall
 * clock was set back: neither it nor what is behind it waits for the clock to come there again.
 */
bool
message_retry_is_due(TimestampTz at, int attempts, TimestampTz now)
{
	return at <= now || at - now > backoff_us(attempts);
}

/*
 * An attempt has failed, or is about to be made and may not return: it is the
 * `attempts`th. True when that was the last one, and the message is set aside.
 * The caller has locked the row.
 */
bool
message_note_attempt(Relation rel, HeapTuple tuple, const MessageRow *row, int attempts, const MessageFailure *failure)
{
	Move		move = {0};

	move_set(&move, ATT_MESSAGE_ATTEMPTS, Int32GetDatum(attempts));
	if (attempts >= MESSAGE_ATTEMPTS_MAX && failure->sqlstate != NULL)
	{
		move_aside(rel, tuple, row, &move, failure);
		return true;
	}
	move_set_failure(&move, failure);
	move_set(&move, ATT_MESSAGE_LANE, Int32GetDatum(LANE_RETRIES));
	move_set(&move, ATT_MESSAGE_DELIVER_AT, TimestampTzGetDatum(GetCurrentTimestamp() + backoff_us(attempts)));
	row_update(rel, tuple, move.values, move.nulls, move.replace);
	return false;
}

/* Gives it up, for a reason that is no failure of its handler. The caller has locked the row. */
void
message_set_aside(Relation rel, HeapTuple tuple, const MessageRow *row, const MessageFailure *failure)
{
	Move		move = {0};

	move_aside(rel, tuple, row, &move, failure);
}

/* An attempt that was written down before it was made was none: the row is what it was. The caller has locked it. */
void
message_restore(Relation rel, HeapTuple tuple, const MessageRow *row)
{
	Move		move = {0};

	move_set(&move, ATT_MESSAGE_LANE, Int32GetDatum(row->lane));
	move_set(&move, ATT_MESSAGE_ATTEMPTS, Int32GetDatum(row->attempts));
	move_set_text(&move, ATT_MESSAGE_SQLSTATE, row->sqlstate);
	move_set_text(&move, ATT_MESSAGE_ERROR, row->error);
	if (row->deliver_at != 0)
		move_set(&move, ATT_MESSAGE_DELIVER_AT, TimestampTzGetDatum(row->deliver_at));
	else
		move_clear(&move, ATT_MESSAGE_DELIVER_AT);
	row_update(rel, tuple, move.values, move.nulls, move.replace);
}

/* Back into the lane where it began, as if it had never been tried. The caller has locked the row. */
void
message_requeue(Relation rel, HeapTuple tuple, const MessageRow *row, const char *sender)
{
	Move		move = {0};

	move_set(&move, ATT_MESSAGE_SENDER, CStringGetTextDatum(sender));
	move_set(&move, ATT_MESSAGE_ATTEMPTS, Int32GetDatum(0));
	move_set_text(&move, ATT_MESSAGE_SQLSTATE, NULL);
	move_set_text(&move, ATT_MESSAGE_ERROR, NULL);
	move_clear(&move, ATT_MESSAGE_SET_ASIDE_AT);
	move_set(&move, ATT_MESSAGE_LANE, Int32GetDatum(row->due_at != 0 ? LANE_TIMERS : LANE_SENDS));
	if (row->due_at != 0)
		move_set(&move, ATT_MESSAGE_DELIVER_AT, TimestampTzGetDatum(row->due_at));
	row_update(rel, tuple, move.values, move.nulls, move.replace);
	CommandCounterIncrement();
}

/* ---------------------------------------------------------------- adopt */

/* The row as it is now, locked against everybody else until this transaction ends; NULL: there is none. Waits. */
static HeapTuple
lock_message(Relation rel, const Extension *extension, int64 message_id)
{
	HeapTuple	tuple;

	do
	{
		CHECK_FOR_INTERRUPTS();
		tuple = row_find_number(rel, extension->message_pkey, message_id);
	} while (tuple != NULL && !row_lock(rel, tuple));
	return tuple;
}

/* Numbers of the rows that are not this database's */
typedef struct Foreign
{
	int64	   *numbers;
	int			count;
	int			room;
} Foreign;

static void
collect_foreign(Relation rel, HeapTuple tuple, void *arg)
{
	Foreign    *foreign = arg;
	Datum		values[MESSAGE_COLUMNS];
	bool		nulls[MESSAGE_COLUMNS];

	heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
	if (is_native(values))
		return;
	if (foreign->count == foreign->room)
	{
		foreign->room *= 2;
		foreign->numbers = repalloc_huge(foreign->numbers, foreign->room * sizeof(int64));
	}
	foreign->numbers[foreign->count++] = DatumGetInt64(values[ATT_MESSAGE_MESSAGE_ID - 1]);
}

/*
 * adopt()'s: makes this database's own what was copied into it. A role is looked up
 * by its name; a message whose role does not exist here is set aside when it is
 * due. Returns how many. Raises 42501 if one was sent by a role that the caller cannot become.
 */
int64
message_adopt(const Extension *extension)
{
	Relation	rel = table_open(extension->message, RowExclusiveLock);
	Foreign		foreign = {.room = 64};
	int64		adopted = 0;
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "revenant adopt", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old;

	foreign.numbers = palloc(foreign.room * sizeof(int64));
	row_visit(rel, collect_foreign, &foreign);
	old = MemoryContextSwitchTo(context);
	for (int i = 0; i < foreign.count; i++)
	{
		HeapTuple	tuple;
		MessageRow	row;
		Move		move = {0};
		Oid			role;

		MemoryContextReset(context);
		tuple = lock_message(rel, extension, foreign.numbers[i]);
		if (tuple == NULL)
			continue;
		message_parse(tuple, RelationGetDescr(rel), &row);
		role = get_role_oid(row.sender, true);
		if (OidIsValid(role) && !compat_role_can_become(GetUserId(), role))
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("permission denied for message " INT64_FORMAT, row.message_id),
					 errdetail("Its handler would run as role \"%s\", and role \"%s\" is not a member of that.",
							   row.sender, GetUserNameFromId(GetUserId(), false))));
		move_set(&move, ATT_MESSAGE_SENDER_OID, Int64GetDatum((int64) role));
		move_set(&move, ATT_MESSAGE_SYSTEM_IDENTIFIER, Int64GetDatum(task_identifier()));
		move_set(&move, ATT_MESSAGE_DATABASE_OID, Int64GetDatum((int64) MyDatabaseId));
		row_update(rel, tuple, move.values, move.nulls, move.replace);
		message_note_change(extension->extension, role, false);
		adopted++;
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	table_close(rel, NoLock);
	if (adopted > 0)
		CommandCounterIncrement();
	return adopted;
}
