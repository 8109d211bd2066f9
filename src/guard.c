/*-------------------------------------------------------------------------
 *
 * guard.c
 *	  Guarded tables: a write needs a fence by the table's lease.
 *
 * The guard is a statement trigger, "revenant_guard", whose argument is the
 * lease's name: it shows in \d, is dumped with the table, and goes with it.
 * What enforces it is the executor's permission check, which runs once per
 * statement for INSERT, UPDATE, DELETE, MERGE, COPY, cascades and writes
 * through views; and the object-access hook, which runs for each table of a
 * TRUNCATE. A row lock (SELECT FOR UPDATE, the check of a foreign key) is no
 * write: it asks for UPDATE on no column.
 *
 * The same two places keep everybody but their owner from writing the extension's own
 * tables, whatever was granted: what these say is run as the roles that they name.
 *
 * A guard holds for the table and everything below it, partitions and
 * inheritance children, present and future. A write to a parent of a guarded
 * table may reach it, so it needs the fence too.
 *
 * NOTES
 *	  Which leases guard a table is kept in a cache of this process. It knows
 *	  every relation that it looked at on the way; a relcache invalidation of
 *	  one of them, or of everything, empties it.
 *
 *	  With `replicas`, a row trigger that fires always, "revenant_guard_replica",
 *	  refuses logical apply as well, which runs no permission check of a statement.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/bitmapset.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "compat.h"
#include "entity_flush.h"
#include "error.h"
#include "extension.h"
#include "guard.h"
#include "lease_api.h"
#include "stat.h"

#define GUARD_TRIGGER "revenant_guard"
#define GUARD_REPLICA_TRIGGER "revenant_guard_replica"

/* Who guards one table: names of leases, its own and those of what is above and below it. */
typedef struct GuardEntry
{
	Oid			relid;
	List	   *leases;			/* char *, in cache_context */
} GuardEntry;

/* All of it lives in cache_context, and goes with it. */
static MemoryContext cache_context = NULL;
static HTAB *entries = NULL;
static HTAB *known = NULL;		/* Oid: relations that an entry depends on */
static uint64 invalidations = 0;
static bool looking = false;

static ExecutorCheckPerms_hook_type previous_checkperms_hook = NULL;
static object_access_hook_type previous_object_access_hook = NULL;

static void
cache_drop(void)
{
	if (cache_context != NULL)
		MemoryContextDelete(cache_context);
	cache_context = NULL;
	entries = NULL;
	known = NULL;
}

static void
cache_create(void)
{
	HASHCTL		info = {.keysize = sizeof(Oid)};

	/* for the life of this process; cache_drop() frees it */
	cache_context = AllocSetContextCreate(CacheMemoryContext, "revenant guards",
										  ALLOCSET_SMALL_SIZES);
	info.hcxt = cache_context;
	info.entrysize = sizeof(GuardEntry);
	entries = hash_create("revenant guards", 64, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	info.entrysize = sizeof(Oid);
	known = hash_create("revenant guard dependencies", 64, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

static void
on_relation_change(Datum arg, Oid relid)
{
	/* in the middle of a look everything counts: what it depends on is not known yet */
	if (looking || (known != NULL &&
					(relid == InvalidOid || hash_search(known, &relid, HASH_FIND, NULL) != NULL)))
		invalidations++;
}

/*
 * The lease that a table's own guard trigger names, appended to `leases`. Read
 * from pg_trigger without opening the table: a statement is not to wait for a
 * lock on a partition that it does not touch.
 */
static List *
own_guards(Oid relid, List *leases)
{
	const Extension *extension = extension_find();	/* whatever its tables are like: guards must hold */
	Oid			guard = extension ? extension->guard_function : InvalidOid;
	Relation	rel = table_open(TriggerRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_trigger_tgrelid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relid));
	scan = systable_beginscan(rel, TriggerRelidNameIndexId, true, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_trigger trigger = (Form_pg_trigger) GETSTRUCT(tuple);
		bool		isnull;
		Datum		args;

		if (trigger->tgfoid != guard || trigger->tgenabled == TRIGGER_DISABLED || trigger->tgnargs != 1)
			continue;
		args = heap_getattr(tuple, Anum_pg_trigger_tgargs, RelationGetDescr(rel), &isnull);
		if (!isnull)			/* the one argument, ended by a zero byte */
			leases = lappend(leases, pstrdup(VARDATA_ANY(DatumGetByteaPP(args))));
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return leases;
}

/* Adds the direct parents (up) or children of a relation, by pg_inherits, to a list of those that are not in `seen`. */
static List *
add_neighbours(List *oids, HTAB *seen, Oid relid, bool up)
{
	Relation	rel = table_open(InheritsRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, up ? Anum_pg_inherits_inhrelid : Anum_pg_inherits_inhparent,
				BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relid));
	scan = systable_beginscan(rel, up ? InheritsRelidSeqnoIndexId : InheritsParentIndexId,
							  true, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_inherits row = (Form_pg_inherits) GETSTRUCT(tuple);
		Oid			oid = up ? row->inhparent : row->inhrelid;
		bool		found;

		hash_search(seen, &oid, HASH_ENTER, &found);
		if (!found)
			oids = lappend_oid(oids, oid);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return oids;
}

/* A relation, everything above it, and everything below it. */
static List *
relatives(Oid relid)
{
	HASHCTL		info = {.keysize = sizeof(Oid),.entrysize = sizeof(Oid),.hcxt = CurrentMemoryContext};
	HTAB	   *seen = hash_create("revenant relatives", 64, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	List	   *above = NIL;
	List	   *below = NIL;

	hash_search(seen, &relid, HASH_ENTER, NULL);
	/* the lists grow at their ends while we walk them */
	above = add_neighbours(above, seen, relid, true);
	for (int i = 0; i < list_length(above); i++)
		above = add_neighbours(above, seen, list_nth_oid(above, i), true);
	below = add_neighbours(below, seen, relid, false);
	for (int i = 0; i < list_length(below); i++)
		below = add_neighbours(below, seen, list_nth_oid(below, i), false);
	hash_destroy(seen);
	return lcons_oid(relid, list_concat(above, below));
}

/* One look: who guards a table. The names are in the caller's context. */
static List *
look(Oid relid, List **relations)
{
	List	   *leases = NIL;
	ListCell   *cell;

	*relations = relatives(relid);
	foreach(cell, *relations)
		leases = own_guards(lfirst_oid(cell), leases);
	return leases;
}

/* Finds out who guards a table, and remembers it with what it depends on. */
static List *
find_guards(Oid relid)
{
	MemoryContext old;
	List	   *relations;
	List	   *leases;
	ListCell   *cell;
	uint64		before;
	GuardEntry *entry;

	looking = true;
	PG_TRY();
	{
		do
		{
			AcceptInvalidationMessages();
			before = invalidations;
			leases = look(relid, &relations);
		} while (before != invalidations);
	}
	PG_FINALLY();
	{
		looking = false;
	}
	PG_END_TRY();

	if (entries == NULL)
		cache_create();
	foreach(cell, relations)
	{
		Oid			oid = lfirst_oid(cell);

		hash_search(known, &oid, HASH_ENTER, NULL);
	}
	entry = hash_search(entries, &relid, HASH_ENTER, NULL);
	entry->leases = NIL;
	old = MemoryContextSwitchTo(cache_context);
	foreach(cell, leases)
		entry->leases = lappend(entry->leases, pstrdup(lfirst(cell)));
	MemoryContextSwitchTo(old);
	return leases;
}

/* The leases that guard a table; NIL for nearly all of them. */
static List *
guards_of(Oid relid)
{
	static uint64 seen = 0;
	GuardEntry *entry;

	if (seen != invalidations)
		cache_drop();
	seen = invalidations;
	if (entries != NULL)
	{
		entry = hash_search(entries, &relid, HASH_FIND, NULL);
		if (entry != NULL)
			return entry->leases;
	}
	return find_guards(relid);
}

/*
 * Raises RV008 unless this transaction is fenced by every lease that guards
 * the table. Takes F of those leases, for a session or transaction holder.
 */
static void
check_write(Oid relid)
{
	ListCell   *cell;

	foreach(cell, guards_of(relid))
	{
		char	   *lease = lfirst(cell);

		if (lease_guard_passes(lease))
			continue;
		stat_count(STAT_FENCES_REJECTED);
		ereport(ERROR,
				(errcode(ERRCODE_RV_FENCE_REQUIRED),
				 errmsg("a write to table \"%s\" needs a fence", get_rel_name(relid)),
				 errdetail("The table is guarded by lease \"%s\", and this transaction is not fenced by it.", lease),
				 errhint("Call SELECT revenant.fence(%s, token) first in this transaction, or hold the lease in session or transaction scope.",
						 quote_literal_cstr(lease))));
	}
}

/* Whether guards may exist at all here: not while the extension is created, not in catalogs. */
static bool
may_be_guarded(Oid relid)
{
	return relid >= FirstNormalObjectId && IsTransactionState() && !RecoveryInProgress() &&
		extension_find() != NULL;
}

/*
 * Raises 42501 where somebody writes to a relation of the extension's who does not own it. Who has
 * pg_write_all_data may write to every table, and is no superuser for that.
 */
static void
check_own(Oid relid, Oid user)
{
	if (get_rel_namespace(relid) != extension_find()->schema || compat_relation_ownercheck(relid, user))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for relation %s", get_rel_name(relid)),
			 errdetail("What is in schema revenant is written by the functions of revenant and by its owner only, whatever was granted.")));
}

static bool
check_perms(COMPAT_CHECKPERMS_ARGS)
{
	ListCell   *cell;

	if (previous_checkperms_hook && !previous_checkperms_hook(COMPAT_CHECKPERMS_PASS))
		return false;
	foreach(cell, compat_perminfos)
	{
		CompatPermInfo *info = lfirst(cell);

		if (!compat_perminfo_usable(info))
			continue;
		if ((info->requiredPerms & (ACL_INSERT | ACL_DELETE)) == 0 &&
			((info->requiredPerms & ACL_UPDATE) == 0 || bms_is_empty(info->updatedCols)))
			continue;
		if (!may_be_guarded(info->relid))
			continue;
		check_own(info->relid, OidIsValid(info->checkAsUser) ? info->checkAsUser : GetUserId());
		check_write(info->relid);
	}
	return true;
}

static void
on_object_access(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id, void *arg)
{
	if (previous_object_access_hook)
		previous_object_access_hook(access, class_id, object_id, sub_id, arg);
	if (access != OAT_TRUNCATE || class_id != RelationRelationId || !may_be_guarded(object_id))
		return;
	check_own(object_id, GetUserId());
	check_write(object_id);
}

/* Called once, by _PG_init under shared_preload_libraries. */
void
guard_install_hooks(void)
{
	CacheRegisterRelcacheCallback(on_relation_change, (Datum) 0);
	previous_checkperms_hook = ExecutorCheckPerms_hook;
	ExecutorCheckPerms_hook = check_perms;
	previous_object_access_hook = object_access_hook;
	object_access_hook = on_object_access;
}

/*
 * revenant._guard(): the trigger function. As a statement trigger it looks
 * again, which costs a look into a cache; as the row trigger of `replicas` it
 * is what refuses logical apply.
 */
SQL_FUNCTION(revenant_guard)
{
	TriggerData *data = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("revenant._guard() must be called as a trigger")));
	if (data->tg_trigger->tgnargs != 1)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("revenant._guard() takes one argument, the name of a lease"),
				 errhint("Let revenant.guard_table() create the trigger.")));
	check_write(RelationGetRelid(data->tg_relation));
	if (TRIGGER_FIRED_FOR_STATEMENT(data->tg_event))
		return PointerGetDatum(NULL);
	return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(data->tg_event) ?
						   data->tg_newtuple : data->tg_trigtuple);
}

static Oid
table_arg(FunctionCallInfo fcinfo)
{
	Oid			relid;
	char		kind;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("table must not be null")));
	relid = PG_GETARG_OID(0);
	kind = get_rel_relkind(relid);
	if (kind == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("relation with OID %u does not exist", relid)));
	if (kind != RELKIND_RELATION && kind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" is not a table", get_rel_name(relid)),
				 errdetail("Tables and partitioned tables can be guarded.")));
	if (relid < FirstNormalObjectId || get_rel_namespace(relid) == extension_get()->schema)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied: \"%s\" belongs to the system", get_rel_name(relid))));
	if (!compat_relation_ownercheck(relid, GetUserId()))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of table %s", get_rel_name(relid))));
	return relid;
}

static char *
qualified_name(Oid relid)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)), get_rel_name(relid));
}

/* Runs one command as the caller, who owns the table that it is about. */
static void
run(const char *command)
{
	SPI_connect();
	if (SPI_execute(command, false, 0) < 0)
		elog(ERROR, "could not run: %s", command);
	SPI_finish();
}

/*
 * revenant.guard_table(target, lease, replicas)
 *
 * Writes to the table need a fence by the lease from the commit on. The caller
 * owns the table. Raises 22004, 22023, 25006, 42501, 42710 for a second guard.
 * Locks the table as CREATE TRIGGER does.
 */
SQL_FUNCTION(revenant_guard_table)
{
	Oid			relid;
	char	   *lease;
	const char *table;
	const EntityType *type;

	PreventCommandDuringRecovery("revenant.guard_table()");
	PreventCommandIfReadOnly("revenant.guard_table()");
	relid = table_arg(fcinfo);
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("lease name must not be null")));
	lease = lease_name_check(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	if (PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"replicas\" must not be null")));

	/* what memory is ahead of its rows was promised without a guard; a flusher has no fence */
	type = get_rel_name(relid) != NULL && compat_relation_ownercheck(relid, GetUserId()) ? entity_type_of(relid) : NULL;
	if (type != NULL && type->durability != DURABILITY_STRICT)
		(void) entity_flush_all(relid, NULL, true, false);
	LockRelationOid(relid, ShareRowExclusiveLock);	/* what CREATE TRIGGER takes; before the look */
	if (type != NULL && type->durability != DURABILITY_STRICT)
		entity_unload_rest(type);
	if (get_rel_name(relid) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("relation with OID %u does not exist", relid)));
	if (OidIsValid(get_trigger_oid(relid, GUARD_TRIGGER, true)))
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("table \"%s\" has a guard already", get_rel_name(relid)),
				 errhint("Run SELECT revenant.unguard_table(%s) first.",
						 quote_literal_cstr(qualified_name(relid)))));

	table = qualified_name(relid);
	run(psprintf("CREATE TRIGGER " GUARD_TRIGGER
				 " BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s"
				 " FOR EACH STATEMENT EXECUTE FUNCTION revenant._guard(%s)",
				 table, quote_literal_cstr(lease)));
	if (PG_GETARG_BOOL(2))
	{
		run(psprintf("CREATE TRIGGER " GUARD_REPLICA_TRIGGER
					 " BEFORE INSERT OR UPDATE OR DELETE ON %s"
					 " FOR EACH ROW EXECUTE FUNCTION revenant._guard(%s)",
					 table, quote_literal_cstr(lease)));
		run(psprintf("ALTER TABLE %s ENABLE ALWAYS TRIGGER " GUARD_REPLICA_TRIGGER, table));
		/* logical apply of a TRUNCATE fires no row trigger */
		run(psprintf("ALTER TABLE %s ENABLE ALWAYS TRIGGER " GUARD_TRIGGER, table));
	}
	PG_RETURN_VOID();
}

/*
 * Whether a table has a trigger of this name that is its own: none that it has as a partition, from a table above it. The caller
 * has locked it, or does not mind if another one is there a moment later.
 */
static bool
has_own_trigger(Oid relid, const char *name)
{
	Relation	rel = table_open(relid, AccessShareLock);
	bool		has = false;

	for (int i = 0; rel->trigdesc != NULL && i < rel->trigdesc->numtriggers; i++)
	{
		const Trigger *trigger = &rel->trigdesc->triggers[i];

		has = has || (strcmp(trigger->tgname, name) == 0 && !trigger->tgisclone);
	}
	table_close(rel, AccessShareLock);
	return has;
}

/* revenant.unguard_table(target): takes a table's own guard away. Raises 42704 where there is none. */
SQL_FUNCTION(revenant_unguard_table)
{
	Oid			relid;

	PreventCommandDuringRecovery("revenant.unguard_table()");
	PreventCommandIfReadOnly("revenant.unguard_table()");
	relid = table_arg(fcinfo);
	if (!OidIsValid(get_trigger_oid(relid, GUARD_TRIGGER, true)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("table \"%s\" has no guard", get_rel_name(relid))));
	run(psprintf("DROP TRIGGER " GUARD_TRIGGER " ON %s", qualified_name(relid)));
	if (has_own_trigger(relid, GUARD_REPLICA_TRIGGER))
		run(psprintf("DROP TRIGGER " GUARD_REPLICA_TRIGGER " ON %s", qualified_name(relid)));
	PG_RETURN_VOID();
}
