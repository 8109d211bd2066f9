/*
 * entity_call.h
 *	  What entity.c offers to the SQL functions about entities.
 */
#ifndef REVENANT_ENTITY_CALL_H
#define REVENANT_ENTITY_CALL_H

#include "postgres.h"

#include "entity.h"
#include "entity_type.h"
#include "request.h"
#include "snapshot.h"

/* An entity whose row is locked, or which this transaction may make */
typedef struct EntityAccess
{
	const EntityType *type;
	const char *id;
	Snapshots	snapshots;
	SnapshotRow row;
	bool		creating;		/* it has no row, and E is held */
} EntityAccess;

extern Jsonb *entity_call(const char *type_name, const char *id, const EntityMessage *message, const Request *request);
extern void entity_refuse_reentry(const char *type, const char *id);
extern void entity_open(EntityAccess *entity, const EntityType *type, const char *id, bool create);
extern void entity_close(EntityAccess *entity);
extern void entity_close_creation(EntityAccess *entity);
extern int64 entity_write(EntityAccess *entity, Jsonb *state);
extern Jsonb *entity_upgrade_state(const EntityType *type, const char *id, int32 vsn, Jsonb *state);
extern void entity_terminate(const EntityType *type, const char *id, const Jsonb *state, const char *reason);
extern const EntityMessage *entity_current_message(void);

#endif							/* REVENANT_ENTITY_CALL_H */
