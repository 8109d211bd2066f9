/*
 * entity_type.h
 *	  Types of entities: what a row of revenant.entity_type says, and whom it names.
 */
#ifndef REVENANT_ENTITY_TYPE_H
#define REVENANT_ENTITY_TYPE_H

#include "postgres.h"

#include "access/htup.h"
#include "access/tupdesc.h"
#include "nodes/pg_list.h"
#include "utils/jsonb.h"
#include "utils/rel.h"

#include "entity.h"

/* Columns of revenant.entity_type */
enum
{
	ATT_ENTITY_TYPE = 1,
	ATT_ENTITY_SNAPSHOTS,
	ATT_ENTITY_SNAPSHOTS_OID,
	ATT_ENTITY_HANDLER,
	ATT_ENTITY_INITIAL_STATE,
	ATT_ENTITY_INITIALIZER,
	ATT_ENTITY_VSN,
	ATT_ENTITY_UPGRADE,
	ATT_ENTITY_DURABILITY,
	ATT_ENTITY_FLUSH_EVERY,
	ATT_ENTITY_IDLE_TIMEOUT,
	ATT_ENTITY_TERMINATOR,
	ATT_ENTITY_CREATED_AT,
	ATT_ENTITY_SYSTEM_IDENTIFIER,
	ATT_ENTITY_DATABASE_OID,
	ENTITY_TYPE_COLUMNS = ATT_ENTITY_DATABASE_OID
};

/* How soon a state is in its row */
typedef enum Durability
{
	DURABILITY_STRICT = 0,		/* when the transaction commits */
	DURABILITY_INTERVAL,		/* within flush_every of that */
	DURABILITY_ON_STOP			/* when it is unloaded */
} Durability;

/* The functions that a type may name */
typedef enum EntityRoutine
{
	ROUTINE_HANDLER = 0,
	ROUTINE_INITIALIZER,
	ROUTINE_UPGRADE,
	ROUTINE_TERMINATOR,
	ENTITY_ROUTINES				/* how many there are */
} EntityRoutine;

/* A type as this process knows it. Not changed once it is made: a change of the type makes another one. */
typedef struct EntityType
{
	char		name[ENTITY_TYPE_MAX + 1];	/* hash key of entity_type.c */
	MemoryContext context;		/* what it points at is here */
	Oid			snapshots;
	Oid			routines[ENTITY_ROUTINES];	/* InvalidOid: it names none */
	const char *routine_names[ENTITY_ROUTINES]; /* or NULL */
	Jsonb	   *initial_state;	/* or NULL */
	int32		vsn;
	Durability	durability;
	int64		flush_every_us;
	int64		idle_timeout_us;	/* -1: never */
} EntityType;

extern const EntityType *entity_type_find(const char *name);
extern const EntityType *entity_type_of(Oid table);
extern List *entity_type_names(void);
extern const EntityType *entity_type_get(const char *name);
extern void entity_type_install_callbacks(void);
extern Oid	entity_routine_find(const char *name, EntityRoutine which);
extern const char *entity_routine_what(EntityRoutine which);
extern Oid	entity_routine_resolve(const char *given, EntityRoutine which, char **name);
extern Oid	entity_snapshots_find(const char *name, int64 oid, bool native);
extern void entity_refresh_names(void);	/* entity_define.c */
extern char *entity_subject(const char *type, const char *id);
extern bool durability_parse(const char *text, Durability *durability);

#endif							/* REVENANT_ENTITY_TYPE_H */
