/*
 * message_queue.h
 *	  What of a sender's messages is due, in which order, and when more will be.
 */
#ifndef REVENANT_MESSAGE_QUEUE_H
#define REVENANT_MESSAGE_QUEUE_H

#include "postgres.h"

#include "nodes/pg_list.h"
#include "utils/hsearch.h"
#include "utils/relcache.h"

#include "message.h"

/* So far a supervisor looks for something that is due, behind what waits for a failure. Then a runner is to find out. */
#define QUEUE_PATIENCE 1000

/* A message that is due; palloc'd. What it says is read when it is delivered. */
typedef struct DueMessage
{
	int64		message_id;
	uint64		entity;			/* which entity: see message_entity() */
	int			attempts;
} DueMessage;

/* A look at one sender's messages */
typedef struct QueueLook
{
	Oid			sender;
	int			limit;			/* of messages */
	int			patience;		/* of rows; 0: it looks as far as it must */
	/* what it found */
	DueMessage **due;			/* in the order in which they are to be delivered */
	int			ndue;
	TimestampTz next;			/* when the earliest of the others is due; 0: there is none */
	int			skipped;		/* messages that wait for another one's failure */
	bool		unsure;			/* its patience ended: there may be more */
} QueueLook;

extern uint64 message_entity(const char *type, const char *id);
extern void message_queue_look(const Extension *extension, Relation rel, QueueLook *look);
extern bool message_queue_next_sender(const Extension *extension, Relation rel, int64 after, int64 *sender, char **name);

/* A set of entities */
extern HTAB *entity_set_make(MemoryContext context);
extern void entity_set_add(HTAB *set, uint64 entity);
extern bool entity_set_has(HTAB *set, uint64 entity);

#endif							/* REVENANT_MESSAGE_QUEUE_H */
