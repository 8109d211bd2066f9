/*-------------------------------------------------------------------------
 *
 * extension.c
 *	  The extension as this database has it.
 *
 * {CREATE, DROP} × {commit, abort} of the extension, and what becomes of the
 * shared state: its keys hold the database's oid and the extension's, so what a
 * dropped extension left is never taken for a new one's. CREATE EXTENSION
 * wakes the launcher at commit, DROP EXTENSION the supervisor.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/index.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "postmaster/bgworker_internals.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "compat.h"
#include "entity_type.h"
#include "extension.h"
#include "fence.h"
#include "guc.h"
#include "lease_row.h"
#include "member_row.h"
#include "message.h"
#include "plan.h"
#include "request.h"
#include "shmem.h"
#include "split_row.h"
#include "task.h"
#include "worker.h"

#define SCHEMA_NAME "revenant"

static Extension cache;
static bool cache_valid = false;
static bool changed_here = false;	/* this transaction created or dropped the extension */

static object_access_hook_type previous_object_access_hook = NULL;

static void
on_namespace_change(Datum arg, int cacheid, uint32 hashvalue)
{
	cache_valid = false;
}

static void
on_relation_change(Datum arg, Oid relation)
{
	if (relation == InvalidOid || relation == cache.lease || relation == cache.task ||
		relation == cache.task_state || relation == cache.task_run || relation == cache.entity_type ||
		relation == cache.request[0] || relation == cache.request[1] || relation == cache.message ||
		relation == cache.plan || relation == cache.split || relation == cache.split_state || relation == cache.member)
		cache_valid = false;
}

/* Forgets what is cached about the extension; the next call looks again. */
void
extension_forget(void)
{
	cache_valid = false;
}

static Oid
function_oid(const char *name, int nargs, const Oid *args)
{
	oidvector  *types = buildoidvector(args, nargs);

	return GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum(name),
						   PointerGetDatum(types), ObjectIdGetDatum(cache.schema));
}

/* A relation of the schema by name, if it is the extension's own; else InvalidOid. */
static Oid
member_relation(const char *name)
{
	Oid			oid = get_relname_relid(name, cache.schema);

	return OidIsValid(oid) && getExtensionOfObject(RelationRelationId, oid) == cache.extension ?
		oid : InvalidOid;
}

/* The index of a table of ours. */
static Oid
index_of(Oid table, const char *name)
{
	Oid			oid = get_relname_relid(name, cache.schema);

	return OidIsValid(table) && OidIsValid(oid) && IndexGetRelation(oid, true) == table ? oid : InvalidOid;
}

/* Whether a table of ours, if it is there, has the columns that this library writes. */
static bool
has_columns(Oid table, int columns)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
	bool		result = true;

	if (HeapTupleIsValid(tuple))
	{
		result = ((Form_pg_class) GETSTRUCT(tuple))->relnatts == columns;
		ReleaseSysCache(tuple);
	}
	return result;
}

/*
 * Raises 55000 where the library meets the tables of another version: between an
 * installation and the update of the extension. For everybody who reads or writes them.
 */
void
extension_require_tables(const Extension *extension)
{
	if (!extension->differs)
		return;
	cache_valid = false;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the tables of extension revenant are not those of the library that is loaded"),
			 errhint("Run ALTER EXTENSION revenant UPDATE; or, if the library is the older one, restart the server.")));
}

/*
 * The extension's objects, or NULL where this database does not have it. Needs
 * a transaction. The result is valid until the next call.
 *
 * What is found by name counts only if the extension owns it: workers read and
 * write these as superuser, and somebody may have renamed our schema and let
 * another one take its place.
 */
const Extension *
extension_find(void)
{
	const Oid	bigint_arg[] = {INT8OID};

	if (cache_valid)
		return &cache;

	/* set first: an invalidation during the look makes the next call look again */
	cache_valid = true;
	cache.schema = get_namespace_oid(SCHEMA_NAME, true);
	cache.extension = OidIsValid(cache.schema) ? get_extension_oid("revenant", true) : InvalidOid;
	if (!OidIsValid(cache.extension) ||
		getExtensionOfObject(NamespaceRelationId, cache.schema) != cache.extension)
	{
		cache_valid = false;
		return NULL;
	}
	cache.token_mark = member_relation("_token_mark");
	cache.token_lineage = member_relation("_token_lineage");
	cache.token_dump = member_relation("_token_dump");
	cache.lease = member_relation("lease");
	cache.lease_pkey = index_of(cache.lease, "lease_pkey");
	cache.task = member_relation("task");
	cache.task_pkey = index_of(cache.task, "task_pkey");
	cache.task_state = member_relation("task_state");
	cache.task_state_pkey = index_of(cache.task_state, "task_state_pkey");
	cache.task_run = member_relation("task_run");
	cache.task_run_pkey = index_of(cache.task_run, "task_run_pkey");
	cache.task_run_number = member_relation("_task_run_number");
	cache.entity_type = member_relation("entity_type");
	cache.entity_type_pkey = index_of(cache.entity_type, "entity_type_pkey");
	for (int half = 0; half < 2; half++)
	{
		cache.request[half] = member_relation(half == 0 ? "_request_0" : "_request_1");
		cache.request_pkey[half] = index_of(cache.request[half], half == 0 ? "_request_0_pkey" : "_request_1_pkey");
	}
	cache.request_half = member_relation("_request_half");
	cache.reply_type = GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, CStringGetDatum("reply"), ObjectIdGetDatum(cache.schema));
	cache.history_function = function_oid("_keep_history", 0, NULL);
	cache.message = member_relation("message");
	cache.message_pkey = index_of(cache.message, "message_pkey");
	cache.message_queue = index_of(cache.message, "message_queue_idx");
	cache.plan = member_relation("plan");
	cache.plan_pkey = index_of(cache.plan, "plan_pkey");
	cache.split = member_relation("split");
	cache.split_pkey = index_of(cache.split, "split_pkey");
	cache.split_by_name = index_of(cache.split, "split_plan_id_split_key");
	cache.split_state = member_relation("split_state");
	cache.split_state_pkey = index_of(cache.split_state, "split_state_pkey");
	cache.member = member_relation("member");
	cache.member_pkey = index_of(cache.member, "member_pkey");
	cache.split_plan_type = GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, CStringGetDatum("split_plan"), ObjectIdGetDatum(cache.schema));
	cache.differs = !has_columns(cache.lease, LEASE_ROW_COLUMNS) || !has_columns(cache.task, TASK_COLUMNS) ||
		!has_columns(cache.task_state, STATE_COLUMNS) || !has_columns(cache.task_run, RUN_COLUMNS) ||
		!has_columns(cache.entity_type, ENTITY_TYPE_COLUMNS) || !has_columns(cache.request[0], REQUEST_COLUMNS) ||
		!has_columns(cache.request[1], REQUEST_COLUMNS) || !has_columns(cache.message, MESSAGE_COLUMNS) ||
		!has_columns(cache.plan, PLAN_COLUMNS) || !has_columns(cache.split, SPLIT_COLUMNS) ||
		!has_columns(cache.split_state, STEP_COLUMNS) || !has_columns(cache.member, MEMBER_COLUMNS);
	cache.guard_function = function_oid("_guard", 0, NULL);
	cache.admin_function = function_oid("advance_tokens", 1, bigint_arg);
	/* while its script runs some of it is still missing */
	if (!OidIsValid(cache.admin_function) || !OidIsValid(cache.guard_function) ||
		!OidIsValid(cache.task_state_pkey) || !OidIsValid(cache.task_run_pkey) || !OidIsValid(cache.lease_pkey) ||
		!OidIsValid(cache.entity_type_pkey) || !OidIsValid(cache.request_half) || !OidIsValid(cache.history_function) ||
		!OidIsValid(cache.message_queue) || !OidIsValid(cache.member_pkey) || !OidIsValid(cache.split_by_name))
		cache_valid = false;
	return &cache;
}

/* The same; raises 42704 where there is none, 55000 where its tables are not ours. */
const Extension *
extension_get(void)
{
	const Extension *extension = extension_find();

	if (extension == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("extension revenant does not exist in this database"),
				 errhint("Run CREATE EXTENSION revenant.")));
	extension_require_tables(extension);
	return extension;
}

/* Who owns an extension, by its oid. */
Oid
extension_owner(Oid extension)
{
	Relation	rel = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	Oid			owner = InvalidOid;

	ScanKeyInit(&key, Anum_pg_extension_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(extension));
	scan = systable_beginscan(rel, ExtensionOidIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		owner = ((Form_pg_extension) GETSTRUCT(tuple))->extowner;
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return owner;
}

/* Whether a role is an admin: a superuser, or granted the level "admin" by grant_usage(). */
bool
extension_role_is_admin(Oid role)
{
	const Extension *extension = extension_get();

	return superuser_arg(role) ||
		(OidIsValid(extension->admin_function) &&
		 compat_function_aclcheck(extension->admin_function, role) == ACLCHECK_OK);
}

static void
on_object_access(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id, void *arg)
{
	if (previous_object_access_hook)
		previous_object_access_hook(access, class_id, object_id, sub_id, arg);
	if (access == OAT_FUNCTION_EXECUTE &&
		(object_id == F_SETVAL_REGCLASS_INT8 || object_id == F_SETVAL_REGCLASS_INT8_BOOL))
		fence_note_setval();
	if (access == OAT_DROP && class_id == ExtensionRelationId &&
		object_id == get_extension_oid("revenant", true))
	{
		changed_here = true;
		cache_valid = false;
	}
}

static void
on_xact_end(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_PREPARE && changed_here)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot PREPARE a transaction that created or dropped extension revenant"),
				 errdetail("Its workers learn of it at the commit, in this session.")));
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	fence_note_xact_end();
	if (changed_here && event == XACT_EVENT_COMMIT)
		worker_extension_changed(MyDatabaseId);
	if (changed_here)
		cache_valid = false;
	changed_here = false;
}

/* Called once, by _PG_init under shared_preload_libraries. */
void
extension_install_callbacks(void)
{
	CacheRegisterSyscacheCallback(NAMESPACEOID, on_namespace_change, (Datum) 0);
	CacheRegisterRelcacheCallback(on_relation_change, (Datum) 0);
	RegisterXactCallback(on_xact_end, NULL);
	previous_object_access_hook = object_access_hook;
	object_access_hook = on_object_access;
}

/*
 * revenant._created(): the last statement of the extension's script.
 *
 * Enters the first era, wakes the launcher at commit, and warns when the
 * workers do not fit into max_worker_processes.
 */
SQL_FUNCTION(revenant_created)
{
	int			needed = 1 + 1 + guc_max_runners + RUNNER_KINDS - 1;

	fence_enter_era();
	changed_here = true;
	if (max_worker_processes < needed)
		ereport(WARNING,
				(errmsg("max_worker_processes = %d does not hold revenant's workers", max_worker_processes),
				 errdetail("They are 1 launcher, 1 supervisor for each database with the extension, up to %d runners, and %d that are kept for messages and entities.",
						   guc_max_runners, RUNNER_KINDS - 1),
				 errhint("Set max_worker_processes to at least %d plus what other extensions and parallel queries need, or lower revenant.max_runners.",
						 needed)));
	PG_RETURN_VOID();
}
