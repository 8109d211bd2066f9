/*-------------------------------------------------------------------------
 *
 * entity_define.c
 *	  What a type of entities may be: create, alter, drop, and the checks of all.
 *
 * create_entity_type and alter_entity_type fill in a draft of the row and mark
 * what is new in it; what is new is checked. So what can be created can be
 * altered to, and nothing else.
 *
 * NOTES
 *	  The owner of a type's table is who flushes and ends its entities when no
 *	  caller does. So only who could become that role says what these are.
 *
 *	  Changes of types exclude each other by a lock on our table, and the table of the type
 *	  that is changed or dropped is locked against calls: one that is under way ends
 *	  by the old definition before the new one is there.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "compat.h"
#include "entity.h"
#include "entity_flush.h"
#include "entity_type.h"
#include "error.h"
#include "extension.h"
#include "field.h"
#include "row.h"
#include "snapshot.h"
#include "task.h"
#include "task_change.h"

/* The arguments of create_entity_type behind the type and its table, in their order. */
static const Field fields[] = {
	{"handler", ATT_ENTITY_HANDLER, FIELD_TEXT, false},
	{"initial_state", ATT_ENTITY_INITIAL_STATE, FIELD_JSON, false},
	{"initializer", ATT_ENTITY_INITIALIZER, FIELD_TEXT, false},
	{"vsn", ATT_ENTITY_VSN, FIELD_INT, false},
	{"upgrade", ATT_ENTITY_UPGRADE, FIELD_TEXT, false},
	{"durability", ATT_ENTITY_DURABILITY, FIELD_TEXT, false},
	{"flush_every", ATT_ENTITY_FLUSH_EVERY, FIELD_INTERVAL, false},
	{"idle_timeout", ATT_ENTITY_IDLE_TIMEOUT, FIELD_INTERVAL, false},
	{"terminator", ATT_ENTITY_TERMINATOR, FIELD_TEXT, false},
	{"snapshots", ATT_ENTITY_SNAPSHOTS, FIELD_TEXT, false},
};

static const FieldSet entity_fields = {
	.noun = "an entity type",
	.key = "type",
	.example = "{\"vsn\": 2, \"upgrade\": \"account_upgrade\"}",
	.fields = fields,
	.count = lengthof(fields)
};

/* What a row of revenant.entity_type is to say */
typedef struct TypeDraft
{
	const char *type;
	FieldDraft	row;
} TypeDraft;

StaticAssertDecl(ENTITY_TYPE_COLUMNS <= FIELD_COLUMNS_MAX, "a draft has no place for an entity type");

/* ---------------------------------------------------------------- checks */

/* A function of the type: found now, and written down by its qualified name. */
static void
check_routine(TypeDraft *draft, int attribute, EntityRoutine which)
{
	char	   *name;

	if (!draft->row.changed[attribute - 1] || draft->row.nulls[attribute - 1])
		return;
	(void) entity_routine_resolve(field_text(&draft->row, attribute), which, &name);
	field_set(&draft->row, attribute, CStringGetTextDatum(name));
}

static void
check_interval(const TypeDraft *draft, int attribute, const char *what, int64 lowest_us)
{
	if (!draft->row.changed[attribute - 1] || draft->row.nulls[attribute - 1])
		return;
	if (task_duration_us(DatumGetIntervalP(draft->row.values[attribute - 1])) < lowest_us)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is out of range", what),
				 errdetail("It must be at least %d ms, and no longer than ten years.", (int) (lowest_us / US_PER_MS))));
}

static void
check_durability(const TypeDraft *draft)
{
	Durability	durability;

	if (!draft->row.changed[ATT_ENTITY_DURABILITY - 1])
		return;
	field_require_value(&entity_fields, &draft->row, ATT_ENTITY_DURABILITY, "durability");
	if (!durability_parse(field_text(&draft->row, ATT_ENTITY_DURABILITY), &durability))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for durability: \"%s\"", field_text(&draft->row, ATT_ENTITY_DURABILITY)),
				 errdetail("It must be \"strict\", \"interval\" or \"on_stop\".")));
}

static void
check_vsn(const TypeDraft *draft)
{
	if (!draft->row.changed[ATT_ENTITY_VSN - 1])
		return;
	field_require_value(&entity_fields, &draft->row, ATT_ENTITY_VSN, "vsn");
	if (DatumGetInt32(draft->row.values[ATT_ENTITY_VSN - 1]) < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("vsn must not be negative")));
}

/* Checks what is new in a draft, its table excepted. Raises 0A000, 22004, 22023, 42501, 42883, 42P13. */
static void
check_draft(TypeDraft *draft)
{
	field_require_value(&entity_fields, &draft->row, ATT_ENTITY_HANDLER, "handler");
	check_routine(draft, ATT_ENTITY_HANDLER, ROUTINE_HANDLER);
	check_routine(draft, ATT_ENTITY_INITIALIZER, ROUTINE_INITIALIZER);
	check_routine(draft, ATT_ENTITY_UPGRADE, ROUTINE_UPGRADE);
	check_routine(draft, ATT_ENTITY_TERMINATOR, ROUTINE_TERMINATOR);
	check_vsn(draft);
	check_durability(draft);
	if (draft->row.changed[ATT_ENTITY_FLUSH_EVERY - 1])
		field_require_value(&entity_fields, &draft->row, ATT_ENTITY_FLUSH_EVERY, "flush_every");
	check_interval(draft, ATT_ENTITY_FLUSH_EVERY, "flush_every", US_PER_MS);
	check_interval(draft, ATT_ENTITY_IDLE_TIMEOUT, "idle_timeout", US_PER_MS);
	if (!draft->row.nulls[ATT_ENTITY_INITIAL_STATE - 1] && !draft->row.nulls[ATT_ENTITY_INITIALIZER - 1])
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("an entity type has either an initial_state or an initializer")));
}

/* Raises 42501 unless the caller could become the owner of a table; 42P01. */
static void
require_owner(Oid table)
{
	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(table)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("table with oid %u does not exist", table)));
	if (!compat_relation_ownercheck(table, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, get_rel_name(table));
}

/* What is looked for in a scan over all types */
typedef struct Search
{
	Oid			table;
	char	   *type;			/* that has it, or NULL */
} Search;

static void
look_for_table(Relation rel, HeapTuple tuple, void *arg)
{
	Search	   *search = arg;
	TupleDesc	desc = RelationGetDescr(rel);
	bool		isnull;
	Datum		values[ENTITY_TYPE_COLUMNS];
	bool		nulls[ENTITY_TYPE_COLUMNS];
	bool		native;

	heap_deform_tuple(tuple, desc, values, nulls);
	isnull = nulls[ATT_ENTITY_SNAPSHOTS - 1] || nulls[ATT_ENTITY_SNAPSHOTS_OID - 1];
	native = task_row_is_native(values[ATT_ENTITY_SYSTEM_IDENTIFIER - 1], values[ATT_ENTITY_DATABASE_OID - 1]);
	if (!isnull && entity_snapshots_find(TextDatumGetCString(values[ATT_ENTITY_SNAPSHOTS - 1]),
										 DatumGetInt64(values[ATT_ENTITY_SNAPSHOTS_OID - 1]), native) == search->table)
		search->type = TextDatumGetCString(values[ATT_ENTITY_TYPE - 1]);
}

/* The table of a type, checked and written down. Raises 42501, 42710 where it has another type, 42P17. */
static void
check_table(Relation rel, TypeDraft *draft, Oid table)
{
	Search		search = {.table = table};
	Snapshots	snapshots;

	require_owner(table);
	snapshot_open(table, AccessShareLock, &snapshots);
	snapshot_close(&snapshots);
	row_visit(rel, look_for_table, &search);
	if (search.type != NULL && strcmp(search.type, draft->type) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("table \"%s\" serves entity type \"%s\" already", get_rel_name(table), search.type),
				 errdetail("A table serves one type."),
				 errhint("create_snapshot_table() makes another one.")));
	field_set(&draft->row, ATT_ENTITY_SNAPSHOTS,
		CStringGetTextDatum(quote_qualified_identifier(get_namespace_name(get_rel_namespace(table)), get_rel_name(table))));
	field_set(&draft->row, ATT_ENTITY_SNAPSHOTS_OID, Int64GetDatum((int64) table));
	field_set(&draft->row, ATT_ENTITY_SYSTEM_IDENTIFIER, Int64GetDatum(task_identifier()));
	field_set(&draft->row, ATT_ENTITY_DATABASE_OID, Int64GetDatum((int64) MyDatabaseId));
}

/* The name of a type; 22004, 22023. */
static char *
type_argument(FunctionCallInfo fcinfo)
{
	char	   *type = PG_ARGISNULL(0) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(0));

	entity_check_name(type, "-");
	return type;
}

/* Has every process look at the types again, once this commits. */
static void
note_change(const Extension *extension)
{
	CommandCounterIncrement();
	CacheInvalidateRelcacheByRelid(extension->entity_type);
}

/* ---------------------------------------------------------------- create_entity_type */

/* Raises 42710, or RV004 where the type that exists is another one. */
compat_noreturn static void
complain_of_existing(Relation rel, const TypeDraft *draft, HeapTuple existing)
{
	Datum		values[ENTITY_TYPE_COLUMNS];
	bool		nulls[ENTITY_TYPE_COLUMNS];
	char	   *differing;

	heap_deform_tuple(existing, RelationGetDescr(rel), values, nulls);
	differing = field_differing(&entity_fields, &draft->row, values, nulls);
	ereport(ERROR,
			(errcode(differing != NULL ? ERRCODE_RV_FINGERPRINT_MISMATCH : ERRCODE_DUPLICATE_OBJECT),
			 errmsg("entity type \"%s\" already exists", draft->type),
			 differing != NULL ? errdetail("It has another %s.", differing) : 0,
			 errhint("alter_entity_type() changes it, drop_entity_type() removes it.")));
}

/*
 * create_entity_type(...): see sql/parts/entity.sql for the arguments. The caller
 * owns the table. Raises 22004, 22023, 25006, 42501, 42710, 42883, 42P13, 42P17, RV004. Takes
 * ShareRowExclusiveLock on revenant.entity_type, AccessShareLock on the table.
 */
SQL_FUNCTION(revenant_create_entity_type)
{
	TypeDraft	draft = {0};
	Extension	extension;
	Relation	rel;
	HeapTuple	existing;

	task_require_writable("create_entity_type");
	draft.type = type_argument(fcinfo);
	/* the table comes first among the arguments, and is looked up apart */
	field_read_arguments(&entity_fields, entity_fields.count - 1, fcinfo, 2, &draft.row);
	check_draft(&draft);
	field_set(&draft.row, ATT_ENTITY_TYPE, CStringGetTextDatum(draft.type));
	field_set(&draft.row, ATT_ENTITY_CREATED_AT, TimestampTzGetDatum(GetCurrentTimestamp()));

	extension = *extension_get();
	rel = table_open(extension.entity_type, ShareRowExclusiveLock);
	check_table(rel, &draft, snapshot_argument(fcinfo, 1));
	existing = row_find(rel, extension.entity_type_pkey, draft.type);
	if (existing != NULL)
		complain_of_existing(rel, &draft, existing);
	row_insert(rel, draft.row.values, draft.row.nulls);
	note_change(&extension);
	table_close(rel, NoLock);
	PG_RETURN_VOID();
}

/* ---------------------------------------------------------------- alter, drop */

/*
 * The row of a type, whose table the caller owns, with calls of it kept out; and
 * its entities out of memory, if that is to be. Raises 42501, 42704, 55006.
 */
static HeapTuple
find_for_change(Relation rel, const Extension *extension, const char *name, bool unload)
{
	const EntityType *type = entity_type_get(name);
	HeapTuple	tuple;
	bool		isnull;

	if (OidIsValid(type->snapshots))
	{
		require_owner(type->snapshots);
		/* most of them by the flusher, as long as that can */
		if (unload)
			(void) entity_flush_all(type->snapshots, NULL, true, false);
		LockRelationOid(type->snapshots, ShareRowExclusiveLock);
		if (unload)
			entity_unload_rest(type);
	}
	else if (!extension_role_is_admin(GetUserId()))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for entity type \"%s\"", name)));
	tuple = row_find(rel, extension->entity_type_pkey, name);
	if (tuple == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("entity type \"%s\" does not exist", name)));
	if (!OidIsValid(type->snapshots) && unload)
		entity_give_up((Oid) DatumGetInt64(heap_getattr(tuple, ATT_ENTITY_SNAPSHOTS_OID, RelationGetDescr(rel), &isnull)));
	return tuple;
}

/* Whether memory must have nothing of a type when this change is made. */
static bool
must_unload(const TypeDraft *draft)
{
	return draft->row.changed[ATT_ENTITY_SNAPSHOTS - 1] ||
		(draft->row.changed[ATT_ENTITY_DURABILITY - 1] && !draft->row.nulls[ATT_ENTITY_DURABILITY - 1] &&
		 strcmp(field_text(&draft->row, ATT_ENTITY_DURABILITY), "strict") == 0);
}

/* The table that a change of a type names, as a regclass is read. */
static Oid
table_of(const TypeDraft *draft)
{
	field_require_value(&entity_fields, &draft->row, ATT_ENTITY_SNAPSHOTS, "snapshots");
	return DatumGetObjectId(DirectFunctionCall1(regclassin, CStringGetDatum(field_text(&draft->row, ATT_ENTITY_SNAPSHOTS))));
}

/*
 * alter_entity_type(type, changes): changes what the JSON object says, null sets
 * null. Waits for the calls that are under way. Raises what create_entity_type() does, and 42704.
 * Takes ShareRowExclusiveLock on revenant.entity_type and on the type's table.
 */
SQL_FUNCTION(revenant_alter_entity_type)
{
	TypeDraft	draft = {0};
	TypeDraft	before = {0};
	Extension	extension;
	Relation	rel;
	HeapTuple	tuple;

	task_require_writable("alter_entity_type");
	draft.type = type_argument(fcinfo);
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("changes of an entity type must not be null")));
	field_read_changes(&entity_fields, PG_GETARG_JSONB_P(1), &draft.row);

	extension = *extension_get();
	rel = table_open(extension.entity_type, ShareRowExclusiveLock);
	tuple = find_for_change(rel, &extension, draft.type, must_unload(&draft));
	heap_deform_tuple(tuple, RelationGetDescr(rel), before.row.values, before.row.nulls);
	for (int i = 0; i < ENTITY_TYPE_COLUMNS; i++)
	{
		if (!draft.row.changed[i])
		{
			draft.row.values[i] = before.row.values[i];
			draft.row.nulls[i] = before.row.nulls[i];
		}
	}
	check_draft(&draft);
	if (draft.row.changed[ATT_ENTITY_SNAPSHOTS - 1])
		check_table(rel, &draft, table_of(&draft));
	row_update(rel, tuple, draft.row.values, draft.row.nulls, draft.row.changed);
	note_change(&extension);
	table_close(rel, NoLock);
	PG_RETURN_VOID();
}

/*
 * drop_entity_type(type): forgets the type; its table stays as it is. Waits for the
 * calls that are under way. Raises 22004, 25006, 42501, 42704. Takes the locks that alter_entity_type() does.
 */
SQL_FUNCTION(revenant_drop_entity_type)
{
	Extension	extension;
	Relation	rel;
	char	   *type;

	task_require_writable("drop_entity_type");
	type = type_argument(fcinfo);
	extension = *extension_get();
	rel = table_open(extension.entity_type, ShareRowExclusiveLock);
	if (!row_delete(rel, find_for_change(rel, &extension, type, true)))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("entity type \"%s\" was changed by somebody else", type)));
	note_change(&extension);
	table_close(rel, NoLock);
	PG_RETURN_VOID();
}

/* ---------------------------------------------------------------- renamed tables */

/* A row whose table has another name by now */
typedef struct Renamed
{
	char	   *type;
	char	   *name;
} Renamed;

static void
look_for_renamed(Relation rel, HeapTuple tuple, void *arg)
{
	List	  **found = arg;
	Datum		values[ENTITY_TYPE_COLUMNS];
	bool		nulls[ENTITY_TYPE_COLUMNS];
	Oid			table;
	char	   *name;

	heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
	if (nulls[ATT_ENTITY_SNAPSHOTS - 1] || nulls[ATT_ENTITY_SNAPSHOTS_OID - 1] ||
		!task_row_is_native(values[ATT_ENTITY_SYSTEM_IDENTIFIER - 1], values[ATT_ENTITY_DATABASE_OID - 1]))
		return;
	table = (Oid) DatumGetInt64(values[ATT_ENTITY_SNAPSHOTS_OID - 1]);
	if (get_rel_name(table) == NULL)
		return;
	name = quote_qualified_identifier(get_namespace_name(get_rel_namespace(table)), get_rel_name(table));
	if (strcmp(name, TextDatumGetCString(values[ATT_ENTITY_SNAPSHOTS - 1])) != 0)
	{
		Renamed    *renamed = palloc(sizeof(Renamed));

		renamed->type = TextDatumGetCString(values[ATT_ENTITY_TYPE - 1]);
		renamed->name = name;
		*found = lappend(*found, renamed);
	}
}

/*
 * A table or a schema was renamed in this transaction: types that have such a
 * table say its name, so that a dump does. Writes only if there is one.
 */
void
entity_refresh_names(void)
{
	const Extension *found = extension_find();
	Extension	extension;
	Relation	rel;
	List	   *renamed = NIL;
	ListCell   *cell;

	if (found == NULL || !OidIsValid(found->entity_type_pkey) || found->differs)
		return;
	extension = *found;
	rel = table_open(extension.entity_type, AccessShareLock);
	row_visit(rel, look_for_renamed, &renamed);
	table_close(rel, AccessShareLock);
	if (renamed == NIL)
		return;
	rel = table_open(extension.entity_type, ShareRowExclusiveLock);
	foreach(cell, renamed)
	{
		Renamed    *one = lfirst(cell);
		TypeDraft	draft = {0};
		HeapTuple	tuple = row_find(rel, extension.entity_type_pkey, one->type);

		if (tuple == NULL)
			continue;
		field_set(&draft.row, ATT_ENTITY_SNAPSHOTS, CStringGetTextDatum(one->name));
		row_update(rel, tuple, draft.row.values, draft.row.nulls, draft.row.changed);
	}
	note_change(&extension);
	table_close(rel, NoLock);
}
