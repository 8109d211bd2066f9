/*
 * extension.h
 *	  The extension as this database has it: oids, instance, who is an admin.
 */
#ifndef REVENANT_EXTENSION_H
#define REVENANT_EXTENSION_H

#include "postgres.h"

#include "fmgr.h"

#include "shmem.h"

/*
 * Oids of our objects in this database, looked up once and again after the
 * schema changed. A zero says that the object does not exist (yet).
 */
typedef struct Extension
{
	Oid			extension;		/* pg_extension.oid: the "instance" of shared state */
	Oid			schema;			/* namespace revenant */
	Oid			token_mark;		/* sequences of fence.c */
	Oid			token_lineage;
	Oid			token_dump;
	Oid			lease;			/* tables and their primary keys */
	Oid			lease_pkey;
	Oid			task;
	Oid			task_pkey;
	Oid			task_state;
	Oid			task_state_pkey;
	Oid			task_run;
	Oid			task_run_pkey;
	Oid			task_run_number;	/* a sequence */
	Oid			entity_type;
	Oid			entity_type_pkey;
	Oid			request[2];		/* the halves of what was answered, their keys, and which one is written */
	Oid			request_pkey[2];
	Oid			request_half;	/* a sequence */
	Oid			reply_type;		/* revenant.reply */
	Oid			message;
	Oid			message_pkey;
	Oid			message_queue;	/* an index: see message_queue.c */
	Oid			plan;
	Oid			plan_pkey;
	Oid			split;			/* what each split is, its primary key, and the one by name */
	Oid			split_pkey;
	Oid			split_by_name;
	Oid			split_state;	/* how far it is */
	Oid			split_state_pkey;
	Oid			member;
	Oid			member_pkey;
	Oid			split_plan_type;	/* revenant.split_plan */
	Oid			guard_function; /* revenant._guard() */
	Oid			history_function;	/* revenant._keep_history() */
	Oid			admin_function; /* EXECUTE on it makes an admin */
	bool		differs;		/* its tables are not those that this library knows */
} Extension;

extern const Extension *extension_find(void);	/* NULL: not in this database */
extern const Extension *extension_get(void);	/* raises instead */
extern void extension_require_tables(const Extension *extension);
extern Oid	extension_owner(Oid extension);
extern bool extension_role_is_admin(Oid role);
extern void extension_install_callbacks(void);
extern void extension_forget(void);

/*
 * Every function that SQL can call starts here: it declares the function, and
 * answers RV005 where the library was not preloaded.
 */
#define SQL_FUNCTION(name) \
	PG_FUNCTION_INFO_V1(name); \
	static Datum name##_body(PG_FUNCTION_ARGS); \
	Datum \
	name(PG_FUNCTION_ARGS) \
	{ \
		shmem_require(); \
		return name##_body(fcinfo); \
	} \
	static Datum \
	name##_body(PG_FUNCTION_ARGS)

#endif							/* REVENANT_EXTENSION_H */
