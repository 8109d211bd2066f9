/*
 * entity_call.h
 *	  What entity.c offers to the SQL functions about entities.
 */
#ifndef REVENANT_ENTITY_CALL_H
#define REVENANT_ENTITY_CALL_H

#include "postgres.h"

#include "storage/lock.h"

#include "entity.h"
#include "entity_type.h"
#include "entity_xact.h"
#include "request.h"
#include "snapshot.h"

/* How a message is to be applied */
typedef struct EntityHow
{
	bool		has_durability; /* it asks for one of its own */
	Durability	durability;
	const Request *request;		/* or NULL */
} EntityHow;

/* An entity that this transaction has to itself: its row is locked, or its lock R is held */
typedef struct EntityAccess
{
	const EntityType *type;
	const char *id;
	Snapshots	snapshots;
	SnapshotRow row;			/* what the entity is now, from its row or from memory */
	bool		creating;		/* it has no row, and E is held ... */
	LOCKTAG		creation;		/* ... which is this */
	bool		locked;			/* the row was looked at, and is locked if there is one; else this is what memory says */
	EntityUse  *use;			/* of a relaxed type: what this transaction knows of it in memory */
} EntityAccess;

extern Jsonb *entity_call(const char *type_name, const char *id, const EntityMessage *message, const EntityHow *how);
extern void entity_refuse_reentry(const char *type, const char *id);
extern void entity_require_table(const EntityType *type);
extern void entity_open_table(const EntityType *type, LOCKMODE mode, Snapshots *snapshots);
extern void entity_open(EntityAccess *entity, const EntityType *type, const char *id, bool create);
extern void entity_close(EntityAccess *entity);
extern int64 entity_write(EntityAccess *entity, Jsonb *state, bool unload);
extern bool entity_flush(EntityAccess *entity, bool unload);
extern bool entity_stop(const EntityType *type, const char *id, const char *reason, bool only_idle);
extern bool entity_read(Snapshots *snapshots, const char *id, SnapshotRow *row);
extern void entity_yield(Oid table, const char *id);
extern Jsonb *entity_upgrade_state(const EntityType *type, const char *id, int32 vsn, Jsonb *state);
extern const EntityMessage *entity_current_message(void);

#endif							/* REVENANT_ENTITY_CALL_H */
