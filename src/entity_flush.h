/*
 * entity_flush.h
 *	  Entities that somebody wants to be in their rows now.
 */
#ifndef REVENANT_ENTITY_FLUSH_H
#define REVENANT_ENTITY_FLUSH_H

#include "postgres.h"

#include "entity_type.h"

extern int64 entity_flush_all(Oid snapshots, const char *id, bool unload, bool all);
extern void entity_give_up(Oid snapshots);
extern void entity_unload_rest(const EntityType *type);

#endif							/* REVENANT_ENTITY_FLUSH_H */
