/*
 * message.h
 *	  Messages and timers: their rows, and who may do what with them.
 */
#ifndef REVENANT_MESSAGE_H
#define REVENANT_MESSAGE_H

#include "postgres.h"

#include "access/htup.h"
#include "datatype/timestamp.h"
#include "utils/jsonb.h"
#include "utils/relcache.h"

#include "extension.h"

/* Columns of revenant.message */
enum
{
	ATT_MESSAGE_MESSAGE_ID = 1,
	ATT_MESSAGE_TYPE,
	ATT_MESSAGE_ID,
	ATT_MESSAGE_KIND,
	ATT_MESSAGE_MESSAGE,
	ATT_MESSAGE_SENDER,
	ATT_MESSAGE_SENDER_OID,
	ATT_MESSAGE_DUE_AT,
	ATT_MESSAGE_LANE,
	ATT_MESSAGE_DELIVER_AT,
	ATT_MESSAGE_ATTEMPTS,
	ATT_MESSAGE_SQLSTATE,
	ATT_MESSAGE_ERROR,
	ATT_MESSAGE_SENT_AT,
	ATT_MESSAGE_SET_ASIDE_AT,
	ATT_MESSAGE_SYSTEM_IDENTIFIER,
	ATT_MESSAGE_DATABASE_OID,
	MESSAGE_COLUMNS = ATT_MESSAGE_DATABASE_OID
};

/* Which of its sender's queues a message is in */
typedef enum MessageLane
{
	LANE_SENDS = 0,				/* by message_id; deliver_at is null */
	LANE_TIMERS,				/* by deliver_at, which is due_at */
	LANE_RETRIES,				/* its handler failed: not before deliver_at, and nothing else to that entity before it */
	LANE_SET_ASIDE				/* given up */
} MessageLane;

/* What a message is */
typedef enum MessageKind
{
	MESSAGE_SEND,
	MESSAGE_TIMER,
	MESSAGE_STOP				/* the flusher's: an idle entity whose terminator is to be told */
} MessageKind;

/* After that many failures a message is set aside. */
#define MESSAGE_ATTEMPTS_MAX 6

/* A row; strings are palloc'd. */
typedef struct MessageRow
{
	int64		message_id;
	char	   *type;
	char	   *id;
	MessageKind kind;
	Jsonb	   *message;
	char	   *sender;
	Oid			sender_oid;
	TimestampTz due_at;			/* of a timer */
	MessageLane lane;
	TimestampTz deliver_at;		/* 0: none */
	int			attempts;
	char	   *sqlstate;		/* or NULL */
	char	   *error;			/* or NULL */
	bool		native;			/* made in, or adopted by, this database */
} MessageRow;

/* Why an attempt failed, or none can be made */
typedef struct MessageFailure
{
	const char *sqlstate;		/* or NULL */
	const char *error;
} MessageFailure;

extern void message_install_callbacks(void);
extern void message_note_change(Oid instance, Oid sender, bool also_at_abort);
extern Extension message_extension(void);
extern void message_parse(HeapTuple tuple, TupleDesc desc, MessageRow *row);
extern bool message_is_callers(const MessageRow *row);
extern const char *message_kind_name(MessageKind kind);
extern int64 message_insert(const Extension *extension, MessageKind kind, const char *type, const char *id, const Jsonb *message,
							TimestampTz due_at);
extern bool message_retry_is_due(TimestampTz at, int attempts, TimestampTz now);
extern bool message_note_attempt(Relation rel, HeapTuple tuple, const MessageRow *row, int attempts,
								 const MessageFailure *failure);
extern void message_set_aside(Relation rel, HeapTuple tuple, const MessageRow *row, const MessageFailure *failure);
extern void message_restore(Relation rel, HeapTuple tuple, const MessageRow *row);
extern void message_requeue(Relation rel, HeapTuple tuple, const MessageRow *row, const char *sender);
extern int64 message_adopt(const Extension *extension);

#endif							/* REVENANT_MESSAGE_H */
