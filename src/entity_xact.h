/*
 * entity_xact.h
 *	  What a transaction did to relaxed entities, and what becomes of it at its end.
 */
#ifndef REVENANT_ENTITY_XACT_H
#define REVENANT_ENTITY_XACT_H

#include "postgres.h"

#include "nodes/pg_list.h"

#include "entity_memory.h"
#include "entity_type.h"
#include "snapshot.h"

#define ENTITY_USES_MAX 1000	/* relaxed entities in one transaction */

typedef enum EntityChangeKind
{
	CHANGE_KEPT,				/* a state for memory, ahead of the row */
	CHANGE_WRITTEN,				/* the row has it */
	CHANGE_UNLOADED				/* the row has it, and memory nothing any more */
} EntityChangeKind;

/* One change of an entity by a transaction; the newest one counts */
typedef struct EntityChange
{
	EntityChangeKind kind;
	int			nest_level;		/* of the subtransaction it belongs to */
	Oid			user;			/* who called */
	SnapshotRow row;			/* what it is then; state in TopTransactionContext */
	int64		flush_every_us;	/* of what is kept; -1: when it is unloaded */
	EntityImage image;			/* prepared for memory; without a state for what is unloaded */
	struct EntityChange *previous;
} EntityChange;

/* An entity of a relaxed type that this transaction has used; its lock R is held to the end */
typedef struct EntityUse
{
	EntityKey	key;
	const EntityType *type;
	char	   *id;
	Flusher    *flusher;		/* NULL: there is no room for one */
	EntityEntry *entry;			/* pinned; NULL: it is not in memory */
	bool		entered;		/* counted in with the flusher */
	dsa_pointer prepared;		/* a state for what is about to be written into the row */
	Size		prepared_bytes;
	EntityChange *newest;		/* NULL: none */
	struct EntityUse *next;
} EntityUse;

extern void entity_xact_install_callbacks(void);
extern EntityUse *entity_xact_use(const EntityType *type, const char *id, Oid owner);
extern bool entity_use_row(EntityUse *use, SnapshotRow *row);
extern bool entity_is_row(const EntityImage *image, const SnapshotRow *row);
extern void entity_use_check(EntityUse *use, const SnapshotRow *row);
extern void entity_use_settle(EntityUse *use, SnapshotRow *row);
extern bool entity_use_is_dirty(EntityUse *use);
extern void entity_use_touch(EntityUse *use);
extern bool entity_use_is_idle(EntityUse *use);
extern int64 entity_use_room(EntityUse *use);
extern bool entity_use_prepare(EntityUse *use, const Jsonb *state);
extern bool entity_use_keep(EntityUse *use, const SnapshotRow *row, int64 flush_every_us);
extern void entity_use_wrote(EntityUse *use, const SnapshotRow *row, bool unload);
extern bool entity_xact_has(const EntityKey *key, bool written);
extern List *entity_xact_ids(Oid snapshots);
extern void entity_xact_write_kept(void);
extern const EntityUse *entity_xact_find(Oid snapshots, const char *id);

#endif							/* REVENANT_ENTITY_XACT_H */
