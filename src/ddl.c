/*-------------------------------------------------------------------------
 *
 * ddl.c
 *	  Commands that our workers would be in the way of.
 *
 * DROP DATABASE, ALTER DATABASE ... RENAME and SET TABLESPACE and CREATE
 * DATABASE ... TEMPLATE fail while anybody is connected to the database. DROP
 * EXTENSION, DROP OWNED by its owner, and an update of it wait for whoever has
 * locked one of its tables, and a task may do so for hours. So before such a
 * command the database is paused, its workers are ended, and the command begins
 * when they are gone. Afterwards, whether it succeeded or not, the launcher is
 * told to look again.
 *
 *		command				succeeds				fails, or is undone
 *		DROP DATABASE		nothing to supervise	supervised again
 *		RENAME				supervised again		supervised again
 *		SET TABLESPACE		supervised again		supervised again
 *		CREATE ... TEMPLATE both are supervised		supervised again
 *		DROP EXTENSION		nothing to supervise	supervised again
 *		DROP OWNED			nothing to supervise	supervised again
 *		ALTER ... UPDATE	supervised again		supervised again
 *
 * NOTES
 *	  The pause names this process and lapses when it is gone. While it lasts
 *	  no slot of the database is given away (worker.c), so the launcher cannot
 *	  start a supervisor behind our back.
 *
 *	  It lasts until the (sub)transaction has ended, and there may be several: a
 *	  transaction can rename many databases.
 *
 *	  Nothing is paused before it is clear that the caller may run the command,
 *	  and here: otherwise anybody could stop the workers by trying. What else
 *	  may be wrong with the command PostgreSQL finds out itself.
 *
 *	  Roles are dropped, renamed and locked out from any database, while tasks
 *	  of all databases run as them: every supervisor looks again at once. So
 *	  does a database's own after a restore, which copies rows into our tables, and
 *	  after COMMIT PREPARED, which may bring messages.
 *
 *	  A type of entities names its table, and follows it through a rename.
 *
 *	  What an update of the extension needs beside its script is in update.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "commands/tablespace.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/fmgroids.h"
#include "utils/resowner.h"
#include "utils/syscache.h"

#include "clock.h"
#include "compat.h"
#include "ddl.h"
#include "debug.h"
#include "entity_type.h"
#include "entity_xact.h"
#include "extension.h"
#include "lease_xact.h"
#include "shmem.h"
#include "update.h"
#include "worker.h"

/* How long a command waits for the workers to be gone */
#define STOP_TIMEOUT_US (10 * US_PER_S)

static ProcessUtility_hook_type previous_process_utility = NULL;

/* The databases that this transaction has paused, and in which of its subtransactions */
#define PAUSED_MAX 16
static struct
{
	Oid			database;
	SubTransactionId in;
}			paused[PAUSED_MAX];
static int	npaused = 0;
static bool roles_changed = false;	/* the supervisors are to look when it ends */
static bool databases_changed = false;	/* the launcher is to look when it ends */
static bool rows_restored = false;	/* the supervisor here is to look when it ends */
static bool prepared_committed = false; /* another transaction's messages have come with this one */

/* Whether the caller may create databases. */
static bool
may_create_databases(void)
{
	HeapTuple	tuple;
	bool		result = false;

	if (superuser())
		return true;
	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	if (HeapTupleIsValid(tuple))
	{
		result = ((Form_pg_authid) GETSTRUCT(tuple))->rolcreatedb;
		ReleaseSysCache(tuple);
	}
	return result;
}

static bool
is_template(Oid database)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database));
	bool		result = false;

	if (HeapTupleIsValid(tuple))
	{
		result = ((Form_pg_database) GETSTRUCT(tuple))->datistemplate;
		ReleaseSysCache(tuple);
	}
	return result;
}

/* The string of an option of a statement, or NULL. */
static const char *
option(List *options, const char *name)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *element = lfirst_node(DefElem, cell);

		if (strcmp(element->defname, name) == 0 && element->arg != NULL)
			return defGetString(element);
	}
	return NULL;
}

/* Whether DROP EXTENSION, which may name several, drops ours, and the caller may. */
static bool
drops_extension(const DropStmt *statement)
{
	ListCell   *cell;

	if (statement->removeType != OBJECT_EXTENSION)
		return false;
	foreach(cell, statement->objects)
	{
		Oid			extension = InvalidOid;

		if (strcmp(strVal(lfirst(cell)), "revenant") == 0)
			extension = get_extension_oid("revenant", true);
		if (OidIsValid(extension))
			return compat_extension_ownercheck(extension, GetUserId());
	}
	return false;
}

/* Whether DROP OWNED drops our extension, and the caller may. */
static bool
drops_owner_of_extension(const DropOwnedStmt *statement)
{
	Oid			extension = get_extension_oid("revenant", true);
	bool		result = false;
	ListCell   *cell;

	if (!OidIsValid(extension))
		return false;
	foreach(cell, statement->roles)
	{
		Oid			role = get_rolespec_oid(lfirst(cell), true);

		if (!OidIsValid(role) || !has_privs_of_role(GetUserId(), role))
			return false;
		/* by itself and not as a member */
		result |= extension_owner(extension) == role;
	}
	return result;
}

/*
 * The database in which this statement must not meet a worker, if the caller
 * may run it; InvalidOid for every other statement.
 */
static Oid
database_to_pause(Node *statement)
{
	Oid			database = InvalidOid;

	switch (nodeTag(statement))
	{
		case T_DropdbStmt:
			database = get_database_oid(castNode(DropdbStmt, statement)->dbname, true);
			if (database == MyDatabaseId || !OidIsValid(database) ||
				!compat_database_ownercheck(database, GetUserId()))
				return InvalidOid;
			return database;

		case T_RenameStmt:
			if (castNode(RenameStmt, statement)->renameType != OBJECT_DATABASE)
				return InvalidOid;
			database = get_database_oid(castNode(RenameStmt, statement)->subname, true);
			if (database == MyDatabaseId || !OidIsValid(database) ||
				!compat_database_ownercheck(database, GetUserId()) || !may_create_databases())
				return InvalidOid;
			return database;

		case T_AlterDatabaseStmt:
			{
				const char *name = option(castNode(AlterDatabaseStmt, statement)->options, "tablespace");
				Oid			tablespace = name != NULL ? get_tablespace_oid(name, true) : InvalidOid;

				if (!OidIsValid(tablespace))
					return InvalidOid;
				database = get_database_oid(castNode(AlterDatabaseStmt, statement)->dbname, true);
				if (database == MyDatabaseId || !OidIsValid(database) ||
					!compat_database_ownercheck(database, GetUserId()) ||
					compat_tablespace_aclcheck(tablespace, GetUserId()) != ACLCHECK_OK)
					return InvalidOid;
				return database;
			}

		case T_CreatedbStmt:
			{
				const char *template = option(castNode(CreatedbStmt, statement)->options, "template");

				if (!may_create_databases())
					return InvalidOid;
				/* the session's own database may be copied, too */
				database = get_database_oid(template ? template : "template1", true);
				if (!OidIsValid(database) ||
					(!is_template(database) && !compat_database_ownercheck(database, GetUserId())))
					return InvalidOid;
				return database;
			}

		case T_DropStmt:
			return drops_extension(castNode(DropStmt, statement)) ? MyDatabaseId : InvalidOid;

		case T_DropOwnedStmt:
			return drops_owner_of_extension(castNode(DropOwnedStmt, statement)) ? MyDatabaseId : InvalidOid;

		case T_AlterExtensionStmt:
			/* its script is for superusers, whoever owns it */
			if (strcmp(castNode(AlterExtensionStmt, statement)->extname, "revenant") != 0 || !superuser() ||
				!OidIsValid(get_extension_oid("revenant", true)))
				return InvalidOid;
			return MyDatabaseId;

		default:
			return InvalidOid;
	}
}

/* Raises where PostgreSQL is going to: in a block or a function, and the command does not work in one. */
static void
prevent_in_block(Node *statement, bool top_level)
{
	if (IsA(statement, DropdbStmt))
		PreventInTransactionBlock(top_level, "DROP DATABASE");
	else if (IsA(statement, CreatedbStmt))
		PreventInTransactionBlock(top_level, "CREATE DATABASE");
	else if (IsA(statement, AlterDatabaseStmt))
		PreventInTransactionBlock(top_level, "ALTER DATABASE SET TABLESPACE");
}

/* Whether a table may have another name afterwards. */
static bool
renames_tables(Node *statement)
{
	if (IsA(statement, AlterObjectSchemaStmt))
		return castNode(AlterObjectSchemaStmt, statement)->objectType == OBJECT_TABLE;
	return IsA(statement, RenameStmt) &&
		(castNode(RenameStmt, statement)->renameType == OBJECT_TABLE || castNode(RenameStmt, statement)->renameType == OBJECT_SCHEMA);
}

static bool
changes_roles(Node *statement)
{
	return IsA(statement, DropRoleStmt) || IsA(statement, AlterRoleStmt) || IsA(statement, CreateRoleStmt) ||
		(IsA(statement, RenameStmt) && castNode(RenameStmt, statement)->renameType == OBJECT_ROLE);
}

/* Whether this is how pg_dump's output brings tasks, or messages. */
static bool
restores_rows(Node *statement)
{
	const CopyStmt *copy = (CopyStmt *) statement;

	return IsA(statement, CopyStmt) && copy->is_from && copy->relation != NULL && copy->relation->schemaname != NULL &&
		strcmp(copy->relation->schemaname, "revenant") == 0 &&
		(strcmp(copy->relation->relname, "task") == 0 || strcmp(copy->relation->relname, "message") == 0);
}

/* Whether it commits what another transaction has prepared, of which nobody here knows what it did. */
static bool
commits_prepared(Node *statement)
{
	return IsA(statement, TransactionStmt) && castNode(TransactionStmt, statement)->kind == TRANS_STMT_COMMIT_PREPARED;
}

/* Ends the workers in a database and returns when their processes are gone; 55006 after ten seconds. */
static void
stop_workers(Oid database)
{
	int64		deadline_us = clock_now_us() + STOP_TIMEOUT_US;
	long		pause_ms = 1;
	int			pid;

	while ((pid = worker_stop_database(database)) != 0)
	{
		if (clock_now_us() >= deadline_us)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("a worker of revenant is still connected to database \"%s\"", get_database_name(database)),
					 pid > 0 ?
					 errdetail("Process %d was told to end, and ends when its statement next checks for interrupts.", pid) :
					 errdetail("It was just about to be started.")));
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 pause_ms, compat_wait_event("RevenantStopWorkers"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		pause_ms = Min(pause_ms * 2, 20);
	}
}

/* Has no worker in a database from here to the end of the (sub)transaction. */
static void
pause_database(Oid database)
{
	for (int i = 0; i < npaused; i++)
	{
		if (paused[i].database == database)
			return;
	}
	if (npaused == PAUSED_MAX || !worker_pause(database))
		return;
	/* noted first: the pause ends with the (sub)transaction whatever happens from here on */
	paused[npaused].database = database;
	paused[npaused].in = GetCurrentSubTransactionId();
	npaused++;
	stop_workers(database);
	DEBUG_POINT("ddl-workers-stopped");
}

static void
call_next(PlannedStmt *pstmt, const char *query_string, bool read_only_tree,
		  ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *environment,
		  DestReceiver *dest, QueryCompletion *completion)
{
	if (previous_process_utility)
		previous_process_utility(pstmt, query_string, read_only_tree, context, params, environment, dest, completion);
	else
		standard_ProcessUtility(pstmt, query_string, read_only_tree, context, params, environment, dest, completion);
}

static void
process_utility(PlannedStmt *pstmt, const char *query_string, bool read_only_tree,
				ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *environment,
				DestReceiver *dest, QueryCompletion *completion)
{
	Oid			database = shmem_is_ready() ? database_to_pause(pstmt->utilityStmt) : InvalidOid;
	/* found out first: the statement may be freed by its own execution */
	bool		renames = renames_tables(pstmt->utilityStmt);
	bool		updates = OidIsValid(database) && IsA(pstmt->utilityStmt, AlterExtensionStmt);
	Datum		levels = (Datum) 0;
	bool		discards_all;

	if (IsA(pstmt->utilityStmt, CreatedbStmt) || IsA(pstmt->utilityStmt, AlterDatabaseStmt))
		databases_changed = true;
	roles_changed |= changes_roles(pstmt->utilityStmt);
	rows_restored |= restores_rows(pstmt->utilityStmt);
	prepared_committed |= commits_prepared(pstmt->utilityStmt);
	if (OidIsValid(database))
	{
		prevent_in_block(pstmt->utilityStmt, context == PROCESS_UTILITY_TOPLEVEL);
		entity_xact_write_kept();
		pause_database(database);
	}
	if (updates)
		levels = update_begin();
	discards_all = IsA(pstmt->utilityStmt, DiscardStmt) && ((DiscardStmt *) pstmt->utilityStmt)->target == DISCARD_ALL;
	if (discards_all)
		lease_xact_doubt_session(); /* it may fail after it has dropped the locks */
	call_next(pstmt, query_string, read_only_tree, context, params, environment, dest, completion);
	if (updates)
		update_finish(levels);
	if (discards_all && shmem_is_ready())
		lease_xact_forget_session();
	if (renames && shmem_is_ready())
	{
		CommandCounterIncrement();
		entity_refresh_names();
	}
}

/*
 * The pause lasts until the command's transaction ends: a supervisor that came
 * earlier would wait for the lock on the database, only to find it gone.
 * (SET TABLESPACE ends one transaction half-way; from there on its own lock
 * keeps everybody out.)
 */
static void
on_xact_end(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	if (npaused == 0 && databases_changed && shmem_is_ready())
		worker_wake_launcher();
	while (npaused > 0)
		worker_resume(paused[--npaused].database);
	if (rows_restored && event == XACT_EVENT_COMMIT && shmem_is_ready())
		worker_wake_supervisor(MyDatabaseId);
	if (prepared_committed && event == XACT_EVENT_COMMIT && shmem_is_ready())
		worker_nudge_supervisor(MyDatabaseId);
	databases_changed = rows_restored = prepared_committed = false;
	if (event != XACT_EVENT_COMMIT)
		roles_changed = false;
}

/*
 * A commit tells of changed roles later than that: the supervisors look into
 * their caches, so what was changed must have been announced to them before.
 */
static void
on_release(ResourceReleasePhase phase, bool commit, bool top_level, void *arg)
{
	if (!roles_changed || !top_level || phase != RESOURCE_RELEASE_AFTER_LOCKS)
		return;
	roles_changed = false;
	if (commit && shmem_is_ready())
		worker_wake_all();
}

/* A command that failed under a savepoint, or was rolled back to one: the pause was for nothing. */
static void
on_subxact_end(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	if (event != SUBXACT_EVENT_ABORT_SUB)
		return;
	/* subtransactions that began later than the one that is aborted are within it, and so are the last ones here */
	while (npaused > 0 && paused[npaused - 1].in >= mine)
		worker_resume(paused[--npaused].database);
}

/* Called once, by _PG_init under shared_preload_libraries. */
void
ddl_install_hooks(void)
{
	previous_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
	RegisterXactCallback(on_xact_end, NULL);
	RegisterSubXactCallback(on_subxact_end, NULL);
	RegisterResourceReleaseCallback(on_release, NULL);
}
