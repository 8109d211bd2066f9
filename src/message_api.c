/*-------------------------------------------------------------------------
 *
 * message_api.c
 *	  Messages and timers as SQL sees them: send, send_after, cancel_timer,
 *	  resend_message, discard_message, and what the view messages asks.
 *
 * NOTES
 *	  Every function that writes checks in this order: that writing is
 *	  possible at all, arguments, existence of what they name, who may.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "entity.h"
#include "extension.h"
#include "message.h"
#include "request.h"
#include "row.h"
#include "task.h"
#include "task_change.h"

/* A message as it was asked for */
typedef struct Letter
{
	char	   *type;
	char	   *id;
	Jsonb	   *message;
} Letter;

static void
require_argument(FunctionCallInfo fcinfo, int arg, const char *name)
{
	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"%s\" must not be null", name)));
}

/* Raises 0A000 where no worker could connect as the current user. */
static void
require_sender(void)
{
	HeapTuple	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	bool		possible = COMPAT_NOLOGIN_WORKERS ||
		(HeapTupleIsValid(tuple) && ((Form_pg_authid) GETSTRUCT(tuple))->rolcanlogin);

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	if (!possible)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("role \"%s\" cannot send messages", GetUserNameFromId(GetUserId(), false)),
				 errdetail("They are delivered by a process that is connected as their sender, and that role is not permitted to log in."),
				 errhint("ALTER ROLE %s LOGIN, or use PostgreSQL 17 or later.", quote_identifier(GetUserNameFromId(GetUserId(), false)))));
}

/* The arguments that send and send_after have in common. Raises 22004, 22023, 25006, 42704, 0A000. */
static Letter
letter_argument(FunctionCallInfo fcinfo, const char *function)
{
	Letter		letter;

	task_require_writable(function);
	require_argument(fcinfo, 0, "type");
	require_argument(fcinfo, 1, "id");
	require_argument(fcinfo, 2, "message");
	letter.type = text_to_cstring(PG_GETARG_TEXT_PP(0));
	letter.id = text_to_cstring(PG_GETARG_TEXT_PP(1));
	letter.message = PG_GETARG_JSONB_P(2);
	entity_check_name(letter.type, letter.id);
	return letter;
}

/* Raises 42704 where there is no such type, 0A000 where nothing could deliver it. */
static void
require_deliverable(const Letter *letter)
{
	entity_require_type(letter->type);
	require_sender();
}

/*
 * send(type, id, message, request_id): its number. One with a request_id that was
 * answered gives the first answer again, for which it waits if need be. Raises 22004, 22023, 25006, 42704, 0A000.
 */
SQL_FUNCTION(revenant_send)
{
	Letter		letter = letter_argument(fcinfo, "send");
	Extension	oids = message_extension();
	Request		request = {.verb = "send",.type = letter.type,.id = letter.id,.message = letter.message};
	RequestReply reply = {0};

	require_deliverable(&letter);
	if (!PG_ARGISNULL(3))
	{
		request.request_id = PG_GETARG_UUID_P(3);
		request_lock(request.request_id);
		if (request_find(&request, &reply))
			PG_RETURN_INT64(reply.number);
	}
	reply.number = message_insert(&oids, MESSAGE_SEND, letter.type, letter.id, letter.message, 0);
	if (request.request_id != NULL)
		request_note(&request, &reply);
	PG_RETURN_INT64(reply.number);
}

/* send_after(type, id, message, delay): its number. The delay is counted from now. Raises 22004, 22023, 25006, 42704, 0A000. */
SQL_FUNCTION(revenant_send_after)
{
	Letter		letter = letter_argument(fcinfo, "send_after");
	Extension	oids = message_extension();
	int64		delay_us;

	require_argument(fcinfo, 3, "delay");
	delay_us = task_duration_us(PG_GETARG_INTERVAL_P(3));
	if (delay_us < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("delay is out of range"),
				 errdetail("It is from 0 to ten years.")));
	require_deliverable(&letter);
	PG_RETURN_INT64(message_insert(&oids, MESSAGE_TIMER, letter.type, letter.id, letter.message, GetCurrentTimestamp() + delay_us));
}

/* A message that is to be changed */
typedef struct MessageChange
{
	Extension	oids;
	Relation	rel;
	HeapTuple	tuple;			/* locked until this transaction ends; NULL: there is no such message */
	MessageRow	row;
} MessageChange;

/* Begins a change to the message that argument 0 names. Waits for a delivery that is under way. Raises 22004, 25006, 42501. */
static void
begin_change(FunctionCallInfo fcinfo, const char *function, const char *argument, MessageChange *change)
{
	task_require_writable(function);
	require_argument(fcinfo, 0, argument);
	change->oids = message_extension();
	change->rel = table_open(change->oids.message, RowExclusiveLock);
	do
	{
		CHECK_FOR_INTERRUPTS();
		change->tuple = row_find_number(change->rel, change->oids.message_pkey, PG_GETARG_INT64(0));
		if (change->tuple == NULL)
			return;
		message_parse(change->tuple, RelationGetDescr(change->rel), &change->row);
		/* before the lock: who may not is not to be in the way of the delivery */
		if (!message_is_callers(&change->row))
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("permission denied for message " INT64_FORMAT, change->row.message_id),
					 errdetail("It belongs to the members of the role that sent it.")));
	} while (!row_lock(change->rel, change->tuple));
	message_note_change(change->oids.extension, change->row.sender_oid, true);
}

static void
end_change(const MessageChange *change)
{
	table_close(change->rel, NoLock);
}

/* Raises 42704 for one that is not there. */
static void
require_message(const MessageChange *change, int64 message_id)
{
	if (change->tuple == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("message " INT64_FORMAT " does not exist", message_id),
				 errdetail("One that was applied is gone.")));
}

static void
remove_message(const MessageChange *change)
{
	/* it is locked: nobody else has changed it */
	(void) row_delete(change->rel, change->tuple);
	CommandCounterIncrement();
}

/* cancel_timer(timer): false when it was delivered, or is none. Raises 22004, 25006, 42501. */
SQL_FUNCTION(revenant_cancel_timer)
{
	MessageChange change;
	bool		cancelled;

	begin_change(fcinfo, "cancel_timer", "timer", &change);
	cancelled = change.tuple != NULL && change.row.kind == MESSAGE_TIMER;
	if (cancelled)
		remove_message(&change);
	end_change(&change);
	PG_RETURN_BOOL(cancelled);
}

/* discard_message(message_id), whatever its state. Raises 22004, 25006, 42501, 42704. */
SQL_FUNCTION(revenant_discard_message)
{
	MessageChange change;

	begin_change(fcinfo, "discard_message", "message_id", &change);
	require_message(&change, PG_GETARG_INT64(0));
	remove_message(&change);
	end_change(&change);
	PG_RETURN_VOID();
}

/*
 * resend_message(message_id): one that was set aside is delivered after all, as its
 * sender, whatever that role is called by now. Raises 22004, 25006, 42501, 42704, and 55000
 * for one that was not set aside, or whose sender is gone or not permitted to log in.
 */
SQL_FUNCTION(revenant_resend_message)
{
	MessageChange change;
	const char *problem;
	char	   *sender;

	begin_change(fcinfo, "resend_message", "message_id", &change);
	require_message(&change, PG_GETARG_INT64(0));
	if (!change.row.native || change.row.lane != LANE_SET_ASIDE)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("message " INT64_FORMAT " is not set aside", change.row.message_id),
				 change.row.native ? 0 : errhint("SELECT revenant.adopt() takes over what came from another database or cluster.")));
	sender = GetUserNameFromId(change.row.sender_oid, true);
	problem = task_role_problem(sender ? sender : change.row.sender, change.row.sender_oid);
	if (problem != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("message " INT64_FORMAT " cannot be delivered", change.row.message_id),
				 errdetail_internal("%s.", problem)));
	message_requeue(change.rel, change.tuple, &change.row, sender);
	end_change(&change);
	PG_RETURN_VOID();
}

/* _may_see_message(sender, sender_oid, system_identifier, database_oid): as the caller. */
SQL_FUNCTION(revenant_may_see_message)
{
	MessageRow	row = {0};

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(2) || PG_ARGISNULL(3))
		PG_RETURN_BOOL(false);
	row.sender = text_to_cstring(PG_GETARG_TEXT_PP(0));
	row.sender_oid = (Oid) PG_GETARG_INT64(1);
	row.native = task_row_is_native(PG_GETARG_DATUM(2), PG_GETARG_DATUM(3));
	PG_RETURN_BOOL(message_is_callers(&row));
}

/* _is_native(system_identifier, database_oid) */
SQL_FUNCTION(revenant_is_native)
{
	PG_RETURN_BOOL(task_row_is_native(PG_GETARG_DATUM(0), PG_GETARG_DATUM(1)));
}
