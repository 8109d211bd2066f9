/*
 * entity.h
 *	  Entities: named state machines, each in a row of a table that its user owns.
 */
#ifndef REVENANT_ENTITY_H
#define REVENANT_ENTITY_H

#include "postgres.h"

#include "utils/jsonb.h"
#include "utils/uuid.h"

#define ENTITY_TYPE_MAX 255		/* bytes of a type's name */
#define ENTITY_ID_MAX 1024		/* bytes of an entity's id */

/* How a message came; what revenant.current_message() says in its handler */
typedef struct EntityMessage
{
	const char *kind;			/* "call", "send" or "timer" */
	int64		message_id;		/* 0: a call has none */
	int			attempt;		/* from 1 on */
	const char *sender;			/* the role's name */
	Jsonb	   *message;
} EntityMessage;

extern void entity_check_name(const char *type, const char *id);
extern void entity_require_type(const char *type);
extern void entity_set_patience(int ms);
extern bool entity_was_busy(void);
extern void entity_stop_idle(const char *type, const char *id);
extern void entity_deliver(const char *type, const char *id, const EntityMessage *message);

#endif							/* REVENANT_ENTITY_H */
