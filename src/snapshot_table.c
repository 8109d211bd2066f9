/*-------------------------------------------------------------------------
 *
 * snapshot_table.c
 *	  What a versioned snapshot table is, and how it is made.
 *
 * It is the user's own: in the user's schema, with the user's privileges, row
 * security, partitions, and further columns. What makes it one are seven
 * columns by their names and types, and a unique index on id.
 *
 * A process remembers what it found out about a table, and the statements that
 * it prepared for it, until the table is changed.
 *
 * NOTES
 *	  Whoever reads or writes a row has opened the table before, with a lock that
 *	  stays to the end of the transaction: the lock lets pending invalidations in, so what
 *	  is remembered holds as long as the lock does.
 *
 *	  A statement may be running while its table is found to be changed (a trigger
 *	  of the user's that writes into the same table): prepared statements
 *	  are put aside, and freed when the transaction has ended.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rls.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

#include "compat.h"
#include "extension.h"
#include "snapshot.h"
#include "task_change.h"

#define HISTORY_SUFFIX "_history"

/* What each column is called, and is. In the order of SnapshotColumn. */
static const struct
{
	const char *name;
	Oid			type;
}			columns[SNAPSHOT_COLUMNS] = {
	{"id", TEXTOID},
	{"version", INT8OID},
	{"vsn", INT4OID},
	{"state", JSONBOID},
	{"updated_at", TIMESTAMPTZOID},
	{"deleted", BOOLOID},
	{"reserved", INT8OID},
};

static HTAB *tables = NULL;		/* of SnapshotTable, in TopMemoryContext for the life of this process */
static List *stale_plans = NIL; /* in TopMemoryContext; freed at the end of the transaction */

static void
on_relation_change(Datum arg, Oid relation)
{
	HASH_SEQ_STATUS status;
	SnapshotTable *table;

	if (tables == NULL)
		return;
	if (OidIsValid(relation))
	{
		table = hash_search(tables, &relation, HASH_FIND, NULL);
		if (table != NULL)
			table->valid = false;
		return;
	}
	hash_seq_init(&status, tables);
	while ((table = hash_seq_search(&status)) != NULL)
		table->valid = false;
}

/* The statements name their table with its schema. */
static void
on_schema_change(Datum arg, int cacheid, uint32 hashvalue)
{
	on_relation_change((Datum) 0, InvalidOid);
}

static void
on_xact_end(XactEvent event, void *arg)
{
	ListCell   *cell;

	if (stale_plans == NIL || (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE))
		return;
	foreach(cell, stale_plans)
		SPI_freeplan(lfirst(cell));
	list_free(stale_plans);
	stale_plans = NIL;
}

/* Called once, by _PG_init under shared_preload_libraries. */
void
snapshot_install_callbacks(void)
{
	CacheRegisterRelcacheCallback(on_relation_change, (Datum) 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, on_schema_change, (Datum) 0);
	RegisterXactCallback(on_xact_end, NULL);
}

/* ---------------------------------------------------------------- what it is */

/* Raises 42P17: what is wrong with a table that was to be one of snapshots. */
compat_noreturn static void
complain_of_table(Relation rel, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
			 errmsg("\"%s\" is not a snapshot table", RelationGetRelationName(rel)),
			 errdetail_internal("%s", detail),
			 errhint("create_snapshot_table() makes one.")));
}

static void
find_columns(Relation rel, SnapshotTable *table)
{
	for (int i = 0; i < SNAPSHOT_COLUMNS; i++)
	{
		AttrNumber	attribute = get_attnum(RelationGetRelid(rel), columns[i].name);

		if (attribute <= 0)
			complain_of_table(rel, psprintf("It has no column \"%s\".", columns[i].name));
		if (TupleDescAttr(RelationGetDescr(rel), attribute - 1)->atttypid != columns[i].type)
			complain_of_table(rel, psprintf("Its column \"%s\" is not of type %s.", columns[i].name, format_type_be(columns[i].type)));
		table->attribute[i] = attribute;
	}
}

/* Whether an index makes id the key: unique, at once, on it alone, for all rows. */
static bool
is_key(Relation index, AttrNumber id)
{
	Form_pg_index form = index->rd_index;

	return form->indisunique && form->indimmediate && form->indisvalid && form->indisready && form->indnkeyatts == 1 &&
		form->indkey.values[0] == id && index->rd_rel->relam == BTREE_AM_OID &&
		heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL) &&
		heap_attisnull(index->rd_indextuple, Anum_pg_index_indexprs, NULL);
}

static bool
is_partitioned_key(Relation index, AttrNumber id)
{
	return index->rd_rel->relkind == RELKIND_PARTITIONED_INDEX && index->rd_index->indisunique &&
		index->rd_index->indnkeyatts == 1 && index->rd_index->indkey.values[0] == id;
}

static void
find_key(Relation rel, SnapshotTable *table)
{
	List	   *indexes = RelationGetIndexList(rel);
	ListCell   *cell;

	table->index = InvalidOid;
	foreach(cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);

		if (is_key(index, table->attribute[SNAPSHOT_ID]) || is_partitioned_key(index, table->attribute[SNAPSHOT_ID]))
		{
			table->index = lfirst_oid(cell);
			table->collation = index->rd_indcollation[0];
		}
		index_close(index, AccessShareLock);
		if (OidIsValid(table->index))
			break;
	}
	list_free(indexes);
	if (!OidIsValid(table->index))
		complain_of_table(rel, "Its column \"id\" is no key: it needs a unique index of its own.");
}

/* Whether it has no trigger but the one that keeps its history. */
static bool
has_only_history_trigger(Relation rel)
{
	const Extension *extension = extension_get();

	if (rel->trigdesc == NULL)
		return true;
	for (int i = 0; i < rel->trigdesc->numtriggers; i++)
	{
		if (rel->trigdesc->triggers[i].tgfoid != extension->history_function || !OidIsValid(extension->history_function))
			return false;
	}
	return true;
}

/* Whether ids are the same only if their bytes are, as all that knows an id outside of the table takes for granted. */
static bool
has_distinct_ids(Relation rel, const SnapshotTable *table)
{
	return get_collation_isdeterministic(table->collation) &&
		get_collation_isdeterministic(TupleDescAttr(RelationGetDescr(rel), table->attribute[SNAPSHOT_ID] - 1)->attcollation);
}

static bool
has_generated_columns(Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < desc->natts; i++)
	{
		if (!TupleDescAttr(desc, i)->attisdropped && TupleDescAttr(desc, i)->attgenerated != '\0')
			return true;
	}
	return false;
}

/*
 * Finds out all about a table. Raises 42P17, 42809 where it is none. (What pg_class says of
 * triggers and rules stays true after the last one was dropped; what the cache has read of them is right.)
 */
static void
examine(Relation rel, SnapshotTable *table)
{
	char		kind = rel->rd_rel->relkind;

	if (kind != RELKIND_RELATION && kind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a table", RelationGetRelationName(rel))));
	find_columns(rel, table);
	find_key(rel, table);
	table->owner = rel->rd_rel->relowner;
	table->calm = rel->rd_rel->relpersistence != RELPERSISTENCE_TEMP && rel->rd_rules == NULL && !rel->rd_rel->relrowsecurity &&
		has_only_history_trigger(rel) && has_distinct_ids(rel, table);
	/* a guard of a parent's is the executor's to look at, too */
	table->plain = rel->rd_rules == NULL && !rel->rd_rel->relrowsecurity && kind == RELKIND_RELATION && rel->rd_rel->relam == HEAP_TABLE_AM_OID &&
		rel->trigdesc == NULL && !rel->rd_rel->relispartition && !rel->rd_rel->relhassubclass &&
		!has_superclass(RelationGetRelid(rel)) && !has_generated_columns(rel);
}

static SnapshotTable *
lookup(Relation rel)
{
	Oid			oid = RelationGetRelid(rel);
	SnapshotTable *table;
	bool		found;

	if (tables == NULL)
	{
		HASHCTL		control = {.keysize = sizeof(Oid),.entrysize = sizeof(SnapshotTable),.hcxt = TopMemoryContext};

		tables = hash_create("revenant snapshot tables", 16, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	table = hash_search(tables, &oid, HASH_ENTER, &found);
	if (!found)
	{
		memset(table, 0, sizeof(*table));
		table->oid = oid;
	}
	if (table->valid)
		return table;
	for (int i = 0; i < SNAPSHOT_PLANS; i++)
	{
		MemoryContext old;

		if (table->plans[i] == NULL)
			continue;
		old = MemoryContextSwitchTo(TopMemoryContext);
		stale_plans = lappend(stale_plans, table->plans[i]);
		MemoryContextSwitchTo(old);
		table->plans[i] = NULL;
	}
	/* set first: a change during the look makes the next one look again */
	table->valid = true;
	PG_TRY();
	{
		examine(rel, table);
	}
	PG_CATCH();
	{
		table->valid = false;
		PG_RE_THROW();
	}
	PG_END_TRY();
	return table;
}

/* The table that an argument names; 22004. */
Oid
snapshot_argument(FunctionCallInfo fcinfo, int argument)
{
	if (PG_ARGISNULL(argument))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("snapshots must not be null")));
	return PG_GETARG_OID(argument);
}

/* Whether a caller may do without the executor: the table has nothing that it would look at, and the caller has all rights on it. */
static bool
may_be_plain(const SnapshotTable *table, LOCKMODE mode)
{
	AclMode		needed = mode == AccessShareLock ? ACL_SELECT : ACL_SELECT | ACL_UPDATE;

	return table->plain && pg_class_aclmask(table->oid, GetUserId(), needed, ACLMASK_ALL) == needed;
}

/*
 * Opens a snapshot table with a lock that stays to the end of the transaction:
 * AccessShareLock to read, RowExclusiveLock to write. Checks no privilege: what is done with a row does.
 * Raises 42P01, 42809, 42P17.
 */
void
snapshot_open(Oid table, LOCKMODE mode, Snapshots *snapshots)
{
	snapshots->rel = try_relation_open(table, mode);
	if (snapshots->rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("snapshot table with oid %u does not exist", table)));
	snapshots->queued = false;
	snapshots->table = lookup(snapshots->rel);
	snapshots->plain = may_be_plain(snapshots->table, mode) &&
		(mode == AccessShareLock || !IsolationUsesXactSnapshot());
}

/* Gives Q, the queue of those who wait for a row, back to the next one, if it was taken. */
void
snapshot_leave_queue(Snapshots *snapshots)
{
	if (snapshots->queued)
		(void) LockRelease(&snapshots->queue, ExclusiveLock, false);
	snapshots->queued = false;
}

/* Closes it; the lock stays, and that of a row. */
void
snapshot_close(Snapshots *snapshots)
{
	snapshot_leave_queue(snapshots);
	table_close(snapshots->rel, NoLock);
}

/* ---------------------------------------------------------------- its statements */

static char *
qualified_name(Oid relation)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(relation)), get_rel_name(relation));
}

/* Whether a relation can be the history of a table: a table, of the same owner. */
static bool
is_history_of(Oid relation, Oid table)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	HeapTuple	of = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
	bool		is = false;

	if (HeapTupleIsValid(tuple) && HeapTupleIsValid(of))
	{
		Form_pg_class form = (Form_pg_class) GETSTRUCT(tuple);

		is = (form->relkind == RELKIND_RELATION || form->relkind == RELKIND_PARTITIONED_TABLE) &&
			form->relowner == ((Form_pg_class) GETSTRUCT(of))->relowner;
	}
	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	if (HeapTupleIsValid(of))
		ReleaseSysCache(of);
	return is;
}

/*
 * The history table of a snapshot table, quoted and qualified: it has its name
 * with "_history" behind, in the same schema, and the same owner: what somebody else calls so must not be
 * read or written in its place. Partitions have that of their parent. NULL where there is none.
 */
char *
snapshot_history_name(Oid table, Oid *history)
{
	char	   *name = psprintf("%s%s", get_rel_name(table), HISTORY_SUFFIX);
	Oid			schema = get_rel_namespace(table);
	Oid			oid = strlen(name) < NAMEDATALEN ? get_relname_relid(name, schema) : InvalidOid;

	if (OidIsValid(oid) && !is_history_of(oid, table))
		oid = InvalidOid;
	/* the trigger of a partitioned table runs for its partitions, which have no history of their own */
	if (!OidIsValid(oid) && get_rel_relispartition(table))
		return snapshot_history_name(get_partition_parent(table, true), history);
	if (history != NULL)
		*history = oid;
	return OidIsValid(oid) ? quote_qualified_identifier(get_namespace_name(schema), name) : NULL;
}

/* Raises 42P17 unless a history has the columns that it must have: what is read there is taken for what they are. */
static void
check_history(Oid history)
{
	static const SnapshotColumn needed[] = {
		SNAPSHOT_ID, SNAPSHOT_VERSION, SNAPSHOT_VSN, SNAPSHOT_STATE, SNAPSHOT_UPDATED_AT, SNAPSHOT_DELETED
	};

	for (int i = 0; i < (int) lengthof(needed); i++)
	{
		AttrNumber	attribute = get_attnum(history, columns[needed[i]].name);

		if (attribute <= 0 || get_atttype(history, attribute) != columns[needed[i]].type)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
					 errmsg("table \"%s\" is not the history of a snapshot table", get_rel_name(history)),
					 errdetail("It has no column \"%s\" of type %s.", columns[needed[i]].name, format_type_be(columns[needed[i]].type)),
					 errhint("create_snapshot_table() makes one.")));
	}
}

/* The name of a history, which is checked, and locked to the end of the transaction: it stays what it is. NULL where there is none. */
static char *
open_history(Oid table)
{
	for (;;)
	{
		Oid			history;
		Oid			now;
		char	   *name = snapshot_history_name(table, &history);

		if (name == NULL)
			return NULL;
		LockRelationOid(history, AccessShareLock);
		name = snapshot_history_name(table, &now);
		if (now == history)
		{
			check_history(history);
			return name;
		}
		UnlockRelationOid(history, AccessShareLock);
	}
}

#define SNAPSHOT_LIST "s.version, s.vsn, s.state, s.updated_at, s.deleted"
#define WHERE_ID " WHERE s.id OPERATOR(pg_catalog.=) $1"

static const struct
{
	const char *text;			/* %s: the table, or its history */
	bool		of_history;
	int			nargs;
	Oid			args[8];
}			statements[SNAPSHOT_PLANS] = {
	[PLAN_READ] = {"SELECT " SNAPSHOT_LIST " FROM %s AS s" WHERE_ID, false, 1, {TEXTOID}},
	[PLAN_LOCK] = {"SELECT " SNAPSHOT_LIST ", s.reserved, s.ctid, s.xmin FROM %s AS s" WHERE_ID " FOR NO KEY UPDATE", false, 1, {TEXTOID}},
	[PLAN_TRY_LOCK] = {"SELECT " SNAPSHOT_LIST ", s.reserved, s.ctid, s.xmin FROM %s AS s" WHERE_ID " FOR NO KEY UPDATE SKIP LOCKED", false, 1, {TEXTOID}},
	[PLAN_UPDATE] = {"UPDATE %s AS s SET version = $2, vsn = $3, state = $4, updated_at = $5, deleted = $6, reserved = $7"
	WHERE_ID " AND s.ctid OPERATOR(pg_catalog.=) $8", false, 8, {TEXTOID, INT8OID, INT4OID, JSONBOID, TIMESTAMPTZOID, BOOLOID, INT8OID, TIDOID}},
	[PLAN_INSERT] = {"INSERT INTO %s AS s (id, version, vsn, state, updated_at, deleted, reserved) VALUES ($1, $2, $3, $4, $5, $6, $7)"
	" ON CONFLICT (id) DO NOTHING", false, 7, {TEXTOID, INT8OID, INT4OID, JSONBOID, TIMESTAMPTZOID, BOOLOID, INT8OID}},
	[PLAN_OLDER] = {"SELECT " SNAPSHOT_LIST " FROM %s AS s" WHERE_ID " AND s.version OPERATOR(pg_catalog.=) $2", true, 2, {TEXTOID, INT8OID}},
	[PLAN_OLDER_AT] = {"SELECT " SNAPSHOT_LIST " FROM %s AS s" WHERE_ID " AND s.updated_at OPERATOR(pg_catalog.<=) $2"
	" ORDER BY s.version DESC LIMIT 1", true, 2, {TEXTOID, TIMESTAMPTZOID}},
	[PLAN_HISTORY] = {"SELECT " SNAPSHOT_LIST " FROM %s AS s" WHERE_ID " ORDER BY s.version", true, 1, {TEXTOID}},
	[PLAN_KEEP] = {"INSERT INTO %s AS s (id, version, vsn, state, updated_at, deleted) VALUES ($1, $2, $3, $4, $5, $6)"
	" ON CONFLICT (id, version) DO UPDATE SET vsn = EXCLUDED.vsn, state = EXCLUDED.state, updated_at = EXCLUDED.updated_at, deleted = EXCLUDED.deleted",
	true, 6, {TEXTOID, INT8OID, INT4OID, JSONBOID, TIMESTAMPTZOID, BOOLOID}},
	[PLAN_PRUNE] = {"DELETE FROM %1$s AS s" WHERE_ID " AND s.version OPERATOR(pg_catalog.<=) (SELECT o.version FROM %1$s AS o"
	" WHERE o.id OPERATOR(pg_catalog.=) $1 ORDER BY o.version DESC OFFSET $2 LIMIT 1)", true, 2, {TEXTOID, INT8OID}},
	[PLAN_FORGET] = {"DELETE FROM %s AS s" WHERE_ID, true, 1, {TEXTOID}},
};

/*
 * A statement for this table, prepared at its first use. The caller is
 * connected to SPI, and the statement runs as whoever executes it. Raises 42P01 where it is one of the history and there is none, 42P17.
 */
SPIPlanPtr
snapshot_plan(Snapshots *snapshots, SnapshotPlan which)
{
	SnapshotTable *table = snapshots->table;
	Oid			args[lengthof(statements[0].args)];
	char	   *name;
	SPIPlanPtr	plan;

	if (table->plans[which] != NULL && !statements[which].of_history)
		return table->plans[which];
	/* the history is looked at each time: it may be another one */
	name = statements[which].of_history ? open_history(table->oid) : qualified_name(table->oid);
	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("table \"%s" HISTORY_SUFFIX "\" does not exist, or has another owner", get_rel_name(table->oid)),
				 errdetail("The older versions of table \"%s\" are in the table with this name in the same schema, which has the same owner.",
						   get_rel_name(table->oid)),
				 errhint("Rename both tables alike, and give both to one owner.")));
	if (table->plans[which] != NULL)
		return table->plans[which];
	memcpy(args, statements[which].args, sizeof(args));
	plan = SPI_prepare(psprintf(statements[which].text, name), statements[which].nargs, args);
	if (plan == NULL || SPI_keepplan(plan) != 0)
		elog(ERROR, "could not prepare a statement for a snapshot table: %s", SPI_result_code_string(SPI_result));
	table->plans[which] = plan;
	return plan;
}

/* ---------------------------------------------------------------- create_snapshot_table */

static void
run(const char *statement)
{
	int			result = SPI_execute(statement, false, 0);

	if (result != SPI_OK_UTILITY)
		elog(ERROR, "could not make a snapshot table: %s", SPI_result_code_string(result));
}

/* The table with the columns of all snapshot tables. */
static void
make_table(const char *name)
{
	run(psprintf("CREATE TABLE %s (id pg_catalog.text COLLATE pg_catalog.\"C\" PRIMARY KEY,"
				 " version pg_catalog.int8 NOT NULL DEFAULT 1, vsn pg_catalog.int4 NOT NULL DEFAULT 1, state pg_catalog.jsonb,"
				 " updated_at pg_catalog.timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(), deleted pg_catalog.bool NOT NULL DEFAULT false,"
				 " reserved pg_catalog.int8 NOT NULL DEFAULT 0) WITH (fillfactor = 85)", name));
}

/* The table of older versions, and the trigger that fills it. `keep` is -1 for all. */
static void
make_history(Oid table, int keep)
{
	char	   *name = qualified_name(table);
	char	   *history = psprintf("%s%s", get_rel_name(table), HISTORY_SUFFIX);

	if (strlen(history) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("the name of snapshot table \"%s\" is too long for one with a history", get_rel_name(table)),
				 errdetail("Its history is in a table with this name and \"%s\".", HISTORY_SUFFIX)));
	history = quote_qualified_identifier(get_namespace_name(get_rel_namespace(table)), history);
	run(psprintf("CREATE TABLE %s (id pg_catalog.text COLLATE pg_catalog.\"C\" NOT NULL, version pg_catalog.int8 NOT NULL,"
				 " vsn pg_catalog.int4 NOT NULL, state pg_catalog.jsonb, updated_at pg_catalog.timestamptz NOT NULL,"
				 " deleted pg_catalog.bool NOT NULL, PRIMARY KEY (id, version))", history));
	run(psprintf("COMMENT ON TABLE %s IS %s", history,
				 quote_literal_cstr(psprintf("older versions of %s", get_rel_name(table)))));
	run(psprintf("CREATE TRIGGER revenant_history AFTER UPDATE OR DELETE ON %s FOR EACH ROW"
				 " EXECUTE FUNCTION revenant._keep_history('%d')", name, keep));
}

/*
 * create_snapshot_table(name, history): makes a table of the caller's, in the
 * schema that the name says or else the first one of search_path. Raises 22004,
 * 22023, and what CREATE TABLE raises.
 */
SQL_FUNCTION(revenant_create_snapshot_table)
{
	List	   *names;
	RangeVar   *range;
	Oid			schema;
	Oid			table;
	char	   *name;
	int			keep;

	task_require_writable("create_snapshot_table");
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", PG_ARGISNULL(0) ? "name" : "history")));
	keep = PG_GETARG_INT32(1);
	if (keep < -1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("history must not be less than -1"),
				 errdetail("It is how many older versions of each id are kept; -1 keeps all.")));
	names = textToQualifiedNameList(PG_GETARG_TEXT_PP(0));
	range = makeRangeVarFromNameList(names);
	/* where it is made is not where a table with this name is found first: that may be a temporary one */
	schema = RangeVarGetCreationNamespace(range);
	name = quote_qualified_identifier(get_namespace_name(schema), range->relname);

	SPI_connect();
	make_table(name);
	table = get_relname_relid(range->relname, schema);
	run(psprintf("COMMENT ON TABLE %s IS 'versioned snapshots: written by revenant.save() and the entities that are kept here'", name));
	if (keep != 0)
		make_history(table, keep);
	SPI_finish();
	PG_RETURN_OID(table);
}
