/*-------------------------------------------------------------------------
 *
 * update.c
 *	  The update of the extension to another version.
 *
 * What a script cannot do itself. It begins by asking whether the library that
 * is loaded is its own: one that was installed after the server started is not.
 * When it has ended, its objects are given to whoever owns the extension, and
 * roles get what the script has added to their levels or has made anew, not what
 * somebody took from them by hand. Privileges that a script grants count as the
 * extension's own, and no dump has them; so this is done in the same
 * transaction, but after the script.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/guc.h"
#include "utils/inval.h"

#include "extension.h"
#include "update.h"

#ifndef REVENANT_VERSION
#error "the Makefile says which version this is"
#endif

/* Commands that give each member of the extension to its owner which is somebody else's: what another superuser's update made. */
#define STRAY_MEMBERS \
	"SELECT pg_catalog.format('ALTER %s %s OWNER TO %I', m.type, m.identity, r.rolname)" \
	" FROM pg_catalog.pg_extension AS e" \
	" JOIN pg_catalog.pg_roles AS r ON r.oid OPERATOR(pg_catalog.=) e.extowner" \
	" JOIN pg_catalog.pg_depend AS d ON d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_extension'::pg_catalog.regclass" \
	"  AND d.refobjid OPERATOR(pg_catalog.=) e.oid AND d.deptype OPERATOR(pg_catalog.=) 'e'" \
	" CROSS JOIN LATERAL (SELECT o.type, o.identity FROM pg_catalog.pg_identify_object(d.classid, d.objid, 0) AS o) AS m" \
	" WHERE e.extname OPERATOR(pg_catalog.=) 'revenant' AND CASE m.type" \
	"  WHEN 'schema' THEN (SELECT n.nspowner FROM pg_catalog.pg_namespace AS n WHERE n.oid OPERATOR(pg_catalog.=) d.objid)" \
	"  WHEN 'function' THEN (SELECT p.proowner FROM pg_catalog.pg_proc AS p WHERE p.oid OPERATOR(pg_catalog.=) d.objid)" \
	"  WHEN 'procedure' THEN (SELECT p.proowner FROM pg_catalog.pg_proc AS p WHERE p.oid OPERATOR(pg_catalog.=) d.objid)" \
	/* a table's goes with it */ \
	"  WHEN 'type' THEN (SELECT t.typowner FROM pg_catalog.pg_type AS t JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) t.typrelid" \
	"   WHERE t.oid OPERATOR(pg_catalog.=) d.objid AND c.relkind OPERATOR(pg_catalog.=) 'c')" \
	"  ELSE (SELECT c.relowner FROM pg_catalog.pg_class AS c WHERE c.oid OPERATOR(pg_catalog.=) d.objid) END" \
	"  OPERATOR(pg_catalog.<>) e.extowner"

/* What an entry of _usage_object is about: it is another one if its object was made anew. */
#define LEVEL_ENTRY \
	"pg_catalog.concat_ws(' ', o.level, o.privilege, o.object, CASE pg_catalog.split_part(o.object, ' ', 1)" \
	"  WHEN 'SCHEMA' THEN pg_catalog.to_regnamespace(n.name)::pg_catalog.oid" \
	"  WHEN 'TYPE' THEN pg_catalog.to_regtype(n.name)::pg_catalog.oid" \
	"  WHEN 'TABLE' THEN pg_catalog.to_regclass(n.name)::pg_catalog.oid" \
	"  WHEN 'SEQUENCE' THEN pg_catalog.to_regclass(n.name)::pg_catalog.oid" \
	"  ELSE pg_catalog.to_regprocedure(n.name)::pg_catalog.oid END)"
#define LEVEL_ENTRIES \
	" FROM revenant._usage_object AS o" \
	" CROSS JOIN LATERAL pg_catalog.regexp_replace(o.object, '^[A-Z]+ ', '') AS n (name)"

#define LEVELS_BEFORE \
	"SELECT pg_catalog.array_agg(" LEVEL_ENTRY ")" LEVEL_ENTRIES

/* Commands that grant what is new to everybody who has its level; as an admin one has all of them. */
#define LEVELS_GROWN \
	"SELECT DISTINCT pg_catalog.format('GRANT %s ON %s TO %I', o.privilege, o.object, g.role)" LEVEL_ENTRIES \
	" JOIN revenant.usage_grant AS g ON g.level OPERATOR(pg_catalog.=) o.level OR g.level OPERATOR(pg_catalog.=) 'admin'" \
	" JOIN pg_catalog.pg_roles AS r ON r.rolname OPERATOR(pg_catalog.=) g.role" \
	/* not to who has the name of a role that was dropped */ \
	"  AND EXISTS (SELECT FROM pg_catalog.pg_namespace AS s CROSS JOIN LATERAL pg_catalog.aclexplode(s.nspacl) AS a" \
	"   WHERE s.nspname OPERATOR(pg_catalog.=) 'revenant' AND a.grantee OPERATOR(pg_catalog.=) r.oid)" \
	" WHERE " LEVEL_ENTRY " OPERATOR(pg_catalog.<>) ALL ($1)"

/* How the session was, while it works as the extension's owner and finds names in pg_catalog only */
typedef struct Session
{
	Oid			user;
	int			context;
	int			nest_level;
} Session;

static void
run(const char *command)
{
	int			result = SPI_execute(command, false, 0);

	if (result < 0)
		elog(ERROR, "could not run \"%s\": %s", command, SPI_result_code_string(result));
}

/* Runs each command that a query gives. */
static void
run_all(const char *query, int nargs, Datum *args)
{
	Oid			types[] = {TEXTARRAYOID};
	SPITupleTable *commands;
	uint64		ncommands;
	int			result = SPI_execute_with_args(query, nargs, types, args, NULL, false, 0);

	if (result < 0)
		elog(ERROR, "could not run \"%s\": %s", query, SPI_result_code_string(result));
	commands = SPI_tuptable;
	ncommands = SPI_processed;
	for (uint64 i = 0; i < ncommands; i++)
		run(SPI_getvalue(commands->vals[i], commands->tupdesc, 1));
}

static void
begin(Session *session)
{
	session->nest_level = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	GetUserIdAndSecContext(&session->user, &session->context);
	SPI_connect();
}

/* The tables that decide about levels are the extension's owner's, who may be less than the superuser who updates. */
static void
become_owner(const Extension *extension, const Session *session)
{
	SetUserIdAndSecContext(extension_owner(extension->extension),
						   session->context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
}

static void
end(const Session *session)
{
	SetUserIdAndSecContext(session->user, session->context);
	SPI_finish();
	AtEOXact_GUC(false, session->nest_level);
}

/* Before ALTER EXTENSION revenant UPDATE: what each level has. For update_finish(). */
Datum
update_begin(void)
{
	const Extension *extension = extension_find();
	MemoryContext context = CurrentMemoryContext;
	Session		session;
	Datum		levels = (Datum) 0;
	bool		isnull;

	if (extension == NULL)
		return levels;
	begin(&session);
	become_owner(extension, &session);
	run(LEVELS_BEFORE);
	if (SPI_processed == 1)
		levels = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	if (levels != (Datum) 0)
	{
		MemoryContext old = MemoryContextSwitchTo(context);

		levels = datumCopy(levels, false, -1);
		MemoryContextSwitchTo(old);
	}
	end(&session);
	return levels;
}

/* After it, in its transaction. */
void
update_finish(Datum levels)
{
	const Extension *extension;
	Session		session;

	CommandCounterIncrement();
	extension_forget();
	extension = extension_find();
	if (extension == NULL || levels == (Datum) 0)
		return;
	/* what other sessions know of the old version's objects is void when this commits */
	if (OidIsValid(extension->task))
		CacheInvalidateRelcacheByRelid(extension->task);
	begin(&session);
	run_all(STRAY_MEMBERS, 0, NULL);
	become_owner(extension, &session);
	run_all(LEVELS_GROWN, 1, &levels);
	end(&session);
}

/* The parts of "1.2" as numbers that can be compared. */
static bool
parse_version(const char *version, int *major, int *minor)
{
	int			end = 0;

	return sscanf(version, "%d.%d%n", major, minor, &end) == 2 && version[end] == '\0';
}

/*
 * revenant._require_library(version): the first statement of the script that
 * leads to this version.
 */
SQL_FUNCTION(revenant_require_library)
{
	char	   *version = text_to_cstring(PG_GETARG_TEXT_PP(0));
	int			wanted_major,
				wanted_minor,
				major,
				minor;

	if (!parse_version(version, &wanted_major, &wanted_minor))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" is not a version of revenant", version)));
	if (!parse_version(REVENANT_VERSION, &major, &minor))
		elog(ERROR, "\"%s\" is not a version", REVENANT_VERSION);
	if (wanted_major > major || (wanted_major == major && wanted_minor > minor))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("version %s of extension revenant needs its library, and the one that is loaded is of version %s", version, REVENANT_VERSION),
				 errhint("Restart the server.")));
	PG_RETURN_VOID();
}
