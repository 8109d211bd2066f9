/*-------------------------------------------------------------------------
 *
 * entity_type.c
 *	  Types of entities: what a row of revenant.entity_type says, and whom it names.
 *
 * A row names functions and its table by text, so that it survives a dump; the
 * table by its oid, too, so that it survives a rename. Who is meant is found out at use, and
 * remembered by the process until something that it looked at may have changed:
 * a type (told by an invalidation of our table), a function, a schema, a table.
 *
 * NOTES
 *	  A call may still use what it has been given when its own handler alters the
 *	  type. What was remembered is freed when the transaction has ended.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/regproc.h"
#include "utils/syscache.h"

#include "compat.h"
#include "entity_type.h"
#include "extension.h"
#include "lease.h"
#include "row.h"
#include "task.h"

/* The signature of each routine; the handler's result is known at run time only. */
static const struct
{
	const char *what;
	const char *signature;
	int			nargs;
	Oid			args[3];
	Oid			result;			/* InvalidOid: any */
}			routines[ENTITY_ROUTINES] = {
	[ROUTINE_HANDLER] = {"handler", "(id text, state jsonb, message jsonb) RETURNS revenant.reply", 3, {TEXTOID, JSONBOID, JSONBOID}, InvalidOid},
	[ROUTINE_INITIALIZER] = {"initializer", "(id text) RETURNS jsonb", 1, {TEXTOID}, JSONBOID},
	[ROUTINE_UPGRADE] = {"upgrade", "(old_vsn integer, state jsonb) RETURNS jsonb", 2, {INT4OID, JSONBOID}, JSONBOID},
	[ROUTINE_TERMINATOR] = {"terminator", "(id text, state jsonb, reason text)", 3, {TEXTOID, JSONBOID, TEXTOID}, InvalidOid},
};

typedef struct KnownType
{
	char		name[ENTITY_TYPE_MAX + 1];	/* hash key */
	EntityType *type;			/* NULL: forgotten */
} KnownType;

static HTAB *known = NULL;		/* of KnownType, in TopMemoryContext for the life of this process */
static Oid	our_table = InvalidOid; /* revenant.entity_type, when they were made */
static bool known_valid = true; /* nothing that they were made from has changed */
static bool all_known = false;	/* every type was looked up since */
static uint64 forgettings = 0;	/* how often they were all forgotten */
static List *stale = NIL;		/* contexts, freed at the end of the transaction */

static void
on_relation_change(Datum arg, Oid relation)
{
	HASH_SEQ_STATUS status;
	KnownType  *entry;

	if (!known_valid)
		return;
	if (!OidIsValid(relation) || relation == our_table)
	{
		known_valid = false;
		return;
	}
	if (known == NULL)
		return;
	hash_seq_init(&status, known);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		/* one whose table is missing may have it now */
		if (entry->type != NULL && (entry->type->snapshots == relation || !OidIsValid(entry->type->snapshots)))
			known_valid = false;
	}
}

static void
on_catalog_change(Datum arg, int cacheid, uint32 hashvalue)
{
	known_valid = false;
}

static void
on_xact_end(XactEvent event, void *arg)
{
	ListCell   *cell;

	if (stale == NIL || (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE))
		return;
	foreach(cell, stale)
		MemoryContextDelete(lfirst(cell));
	list_free(stale);
	stale = NIL;
}

/* Called once, by _PG_init under shared_preload_libraries. */
void
entity_type_install_callbacks(void)
{
	CacheRegisterRelcacheCallback(on_relation_change, (Datum) 0);
	CacheRegisterSyscacheCallback(PROCOID, on_catalog_change, (Datum) 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, on_catalog_change, (Datum) 0);
	RegisterXactCallback(on_xact_end, NULL);
}

/* Forgets what was remembered; who uses it goes on to the end of the transaction. */
static void
forget_all(void)
{
	HASH_SEQ_STATUS status;
	KnownType  *entry;
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	if (known == NULL)
		return;
	hash_seq_init(&status, known);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (entry->type != NULL)
			stale = lappend(stale, entry->type->context);
		entry->type = NULL;
	}
	MemoryContextSwitchTo(old);
}

/* The same, if anything that it was made from has changed. */
static void
forget_if_changed(void)
{
	if (known_valid)
		return;
	known_valid = true;			/* first: what changes during the look counts for the next one */
	all_known = false;
	forgettings++;
	forget_all();
}

/* ---------------------------------------------------------------- whom it names */

/* Whether a function that has the arguments is one for this: a plain function with the right result. */
static bool
is_usable(Oid function, EntityRoutine which)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc form;
	Oid			result = which == ROUTINE_HANDLER ? extension_get()->reply_type : routines[which].result;
	bool		usable;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_proc) GETSTRUCT(tuple);
	usable = form->prokind == PROKIND_FUNCTION && !form->proretset && (!OidIsValid(result) || form->prorettype == result);
	ReleaseSysCache(tuple);
	return usable;
}

/*
 * The function that a type names: qualified, as entity_routine_resolve() wrote
 * it. InvalidOid where there is none any more, or it returns something else.
 */
Oid
entity_routine_find(const char *name, EntityRoutine which)
{
	List	   *names = compat_qualified_name_list(name);
	Oid			schema;
	Oid			function;

	if (list_length(names) != 2)
		return InvalidOid;
	schema = get_namespace_oid(strVal(linitial(names)), true);
	if (!OidIsValid(schema))
		return InvalidOid;
	function = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum(strVal(lsecond(names))),
							   PointerGetDatum(buildoidvector(routines[which].args, routines[which].nargs)),
							   ObjectIdGetDatum(schema));
	return OidIsValid(function) && is_usable(function, which) ? function : InvalidOid;
}

/* What a function of a type is for, as a message calls it. */
const char *
entity_routine_what(EntityRoutine which)
{
	return routines[which].what;
}

/*
 * The function that somebody means by a name, found as a call of it would be, and
 * how it is written down. Raises 42883, 42P13, 42501.
 */
Oid
entity_routine_resolve(const char *given, EntityRoutine which, char **name)
{
	List	   *names = compat_qualified_name_list(given);
	Oid			function = LookupFuncName(names, routines[which].nargs, routines[which].args, true);

	if (!OidIsValid(function))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("%s \"%s\" does not exist", routines[which].what, given),
				 errdetail("It is the name of a function %s.", routines[which].signature)));
	if (!is_usable(function, which))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
				 errmsg("function \"%s\" cannot be a %s", given, routines[which].what),
				 errdetail("It must be a function %s.", routines[which].signature)));
	if (compat_function_aclcheck(function, GetUserId()) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_FUNCTION, get_func_name(function));
	*name = quote_qualified_identifier(get_namespace_name(get_func_namespace(function)), get_func_name(function));
	return function;
}

/*
 * The table of a row: by its oid where the row is of this database and there
 * still is such a table, else by name. InvalidOid: there is none.
 */
Oid
entity_snapshots_find(const char *name, int64 oid, bool native)
{
	List	   *names;
	Oid			schema;

	if (native && SearchSysCacheExists1(RELOID, ObjectIdGetDatum((Oid) oid)))
		return (Oid) oid;
	names = compat_qualified_name_list(name);
	if (list_length(names) != 2)
		return InvalidOid;
	schema = get_namespace_oid(strVal(linitial(names)), true);
	return OidIsValid(schema) ? get_relname_relid(strVal(lsecond(names)), schema) : InvalidOid;
}

/* What events call an entity; palloc'd. */
char *
entity_subject(const char *type, const char *id)
{
	char	   *subject = psprintf("%s/%s", type, id);

	return pnstrdup(subject, pg_mbcliplen(subject, (int) strlen(subject), LEASE_NAME_MAX));
}

/* The durability with this name; false: there is none. */
bool
durability_parse(const char *text, Durability *durability)
{
	static const char *const words[] = {"strict", "interval", "on_stop"};

	for (int i = 0; i < (int) lengthof(words); i++)
	{
		if (strcmp(text, words[i]) == 0)
		{
			*durability = (Durability) i;
			return true;
		}
	}
	return false;
}

/* ---------------------------------------------------------------- the row */

static char *
text_of(const Datum *values, const bool *nulls, int attribute)
{
	return nulls[attribute - 1] ? NULL : TextDatumGetCString(values[attribute - 1]);
}

/* Raises XX001: somebody else than our functions has written the row. */
compat_noreturn static void
complain_of_row(const char *name, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("the row of entity type \"%s\" has no usable \"%s\"", name, what),
			 errdetail("Entity types are written by the functions of revenant only."),
			 errhint("DELETE the row from revenant.entity_type as a superuser, and create the type again.")));
}

/* Fills in all that the row says itself. Raises XX001. */
static void
parse(HeapTuple tuple, TupleDesc desc, EntityType *type)
{
	static const int named[] = {ATT_ENTITY_HANDLER, ATT_ENTITY_INITIALIZER, ATT_ENTITY_UPGRADE, ATT_ENTITY_TERMINATOR};
	static const int needed[] = {
		ATT_ENTITY_SNAPSHOTS, ATT_ENTITY_SNAPSHOTS_OID, ATT_ENTITY_HANDLER, ATT_ENTITY_VSN, ATT_ENTITY_DURABILITY, ATT_ENTITY_FLUSH_EVERY,
		ATT_ENTITY_SYSTEM_IDENTIFIER, ATT_ENTITY_DATABASE_OID
	};
	Datum		values[ENTITY_TYPE_COLUMNS];
	bool		nulls[ENTITY_TYPE_COLUMNS];
	bool		native;

	heap_deform_tuple(tuple, desc, values, nulls);
	for (int i = 0; i < (int) lengthof(needed); i++)
	{
		if (nulls[needed[i] - 1])
			complain_of_row(type->name, NameStr(TupleDescAttr(desc, needed[i] - 1)->attname));
	}
	if (!durability_parse(text_of(values, nulls, ATT_ENTITY_DURABILITY), &type->durability))
		complain_of_row(type->name, "durability");
	native = task_row_is_native(values[ATT_ENTITY_SYSTEM_IDENTIFIER - 1], values[ATT_ENTITY_DATABASE_OID - 1]);
	type->snapshots = entity_snapshots_find(text_of(values, nulls, ATT_ENTITY_SNAPSHOTS),
											DatumGetInt64(values[ATT_ENTITY_SNAPSHOTS_OID - 1]), native);
	if (!nulls[ATT_ENTITY_INITIAL_STATE - 1])
		type->initial_state = DatumGetJsonbPCopy(values[ATT_ENTITY_INITIAL_STATE - 1]);
	type->vsn = DatumGetInt32(values[ATT_ENTITY_VSN - 1]);
	type->flush_every_us = task_duration_us(DatumGetIntervalP(values[ATT_ENTITY_FLUSH_EVERY - 1]));
	type->idle_timeout_us = nulls[ATT_ENTITY_IDLE_TIMEOUT - 1] ? -1 :
		task_duration_us(DatumGetIntervalP(values[ATT_ENTITY_IDLE_TIMEOUT - 1]));
	for (int i = 0; i < ENTITY_ROUTINES; i++)
	{
		type->routine_names[i] = text_of(values, nulls, named[i]);
		if (type->routine_names[i] != NULL)
			type->routines[i] = entity_routine_find(type->routine_names[i], (EntityRoutine) i);
	}
}

/* Reads a type. NULL: there is none. */
static EntityType *
make(const char *name)
{
	const Extension *extension = extension_get();
	Relation	rel = table_open(extension->entity_type, AccessShareLock);
	HeapTuple	tuple = row_find(rel, extension->entity_type_pkey, name);
	EntityType *type = NULL;

	our_table = extension->entity_type;
	if (tuple != NULL)
	{
		MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "revenant entity type", ALLOCSET_SMALL_SIZES);
		MemoryContext old = MemoryContextSwitchTo(context);

		type = palloc0(sizeof(EntityType));
		strlcpy(type->name, name, sizeof(type->name));
		type->context = context;
		parse(tuple, RelationGetDescr(rel), type);
		MemoryContextSwitchTo(old);
		/* from here on for as long as it is remembered */
		MemoryContextSetParent(context, TopMemoryContext);
	}
	table_close(rel, AccessShareLock);
	return type;
}

/*
 * The type with this name, valid to the end of the transaction; NULL where
 * there is none. A function or a table that it names may be missing: then its oid is invalid.
 */
const EntityType *
entity_type_find(const char *name)
{
	KnownType  *entry;
	EntityType *type;
	bool		found;
	char		key[ENTITY_TYPE_MAX + 1];

	if (known == NULL)
	{
		HASHCTL		control = {.keysize = ENTITY_TYPE_MAX + 1,.entrysize = sizeof(KnownType),.hcxt = TopMemoryContext};

		known = hash_create("revenant entity types", 16, &control, HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
	}
	forget_if_changed();
	strlcpy(key, name, sizeof(key));
	entry = hash_search(known, key, HASH_FIND, NULL);
	if (entry != NULL && entry->type != NULL)
		return entry->type;
	type = make(key);
	if (type != NULL)
	{
		entry = hash_search(known, key, HASH_ENTER, &found);
		entry->type = type;
	}
	return type;
}

/* The same; raises 42704 where there is none. */
const EntityType *
entity_type_get(const char *name)
{
	const EntityType *type = entity_type_find(name);

	if (type == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("entity type \"%s\" does not exist", name),
				 errhint("create_entity_type() makes one.")));
	return type;
}

static void
note_name(Relation rel, HeapTuple tuple, void *arg)
{
	bool		isnull;
	Datum		name = heap_getattr(tuple, ATT_ENTITY_TYPE, RelationGetDescr(rel), &isnull);

	if (!isnull)
		*(List **) arg = lappend(*(List **) arg, TextDatumGetCString(name));
}

/* The names of all types. */
List *
entity_type_names(void)
{
	Relation	rel = table_open(extension_get()->entity_type, AccessShareLock);
	List	   *names = NIL;

	our_table = extension_get()->entity_type;
	row_visit(rel, note_name, &names);
	table_close(rel, AccessShareLock);
	return names;
}

/* The type that a table serves, valid to the end of the transaction; NULL: none. */
const EntityType *
entity_type_of(Oid table)
{
	HASH_SEQ_STATUS status;
	KnownType  *entry;
	const EntityType *type = NULL;

	forget_if_changed();
	while (!all_known)
	{
		uint64		before = forgettings;
		ListCell   *cell;

		CHECK_FOR_INTERRUPTS();
		foreach(cell, entity_type_names())
			(void) entity_type_find(lfirst(cell));
		/* those that were found before a change are forgotten */
		forget_if_changed();
		all_known = forgettings == before;
	}
	if (known == NULL)
		return NULL;
	hash_seq_init(&status, known);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (entry->type != NULL && entry->type->snapshots == table)
			type = entry->type;
	}
	return type;
}
