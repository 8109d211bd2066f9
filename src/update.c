/*-------------------------------------------------------------------------
 *
 * update.c
 *	  The update of the extension to another version.
 *
 * What a script cannot do itself. It begins by asking whether the library that
 * is loaded is its own: one that was installed after the server started is not.
 * When it has ended, its objects are given to whoever owns the extension, and
 * roles get what the script has added to their levels. Privileges that a
 * script grants count as the extension's own, and no dump has them; so this is
 * done in the same transaction, but after the script.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_extension.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"

#include "extension.h"
#include "update.h"

#ifndef REVENANT_VERSION
#error "the Makefile says which version this is"
#endif

/* Commands that give each member of the extension to its owner which is somebody else's: what another superuser's update made. */
#define STRAY_MEMBERS \
	"SELECT pg_catalog.format('ALTER %s %s OWNER TO %I', CASE m.type WHEN 'composite type' THEN 'TYPE' ELSE m.type END, m.identity, r.rolname)" \
	" FROM pg_catalog.pg_extension AS e" \
	" JOIN pg_catalog.pg_roles AS r ON r.oid OPERATOR(pg_catalog.=) e.extowner" \
	" JOIN pg_catalog.pg_depend AS d ON d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_extension'::pg_catalog.regclass" \
	"  AND d.refobjid OPERATOR(pg_catalog.=) e.oid AND d.deptype OPERATOR(pg_catalog.=) 'e'" \
	" CROSS JOIN LATERAL (SELECT o.type, o.identity FROM pg_catalog.pg_identify_object(d.classid, d.objid, 0) AS o) AS m" \
	" WHERE e.extname OPERATOR(pg_catalog.=) 'revenant' AND CASE m.type" \
	"  WHEN 'schema' THEN (SELECT n.nspowner FROM pg_catalog.pg_namespace AS n WHERE n.oid OPERATOR(pg_catalog.=) d.objid)" \
	"  WHEN 'function' THEN (SELECT p.proowner FROM pg_catalog.pg_proc AS p WHERE p.oid OPERATOR(pg_catalog.=) d.objid)" \
	"  WHEN 'procedure' THEN (SELECT p.proowner FROM pg_catalog.pg_proc AS p WHERE p.oid OPERATOR(pg_catalog.=) d.objid)" \
	"  WHEN 'composite type' THEN (SELECT t.typowner FROM pg_catalog.pg_type AS t WHERE t.oid OPERATOR(pg_catalog.=) d.objid)" \
	"  ELSE (SELECT c.relowner FROM pg_catalog.pg_class AS c WHERE c.oid OPERATOR(pg_catalog.=) d.objid) END" \
	"  OPERATOR(pg_catalog.<>) e.extowner"

/* What levels have now, for everybody who has one. */
#define LEVELS_AGAIN \
	"SELECT revenant._usage_apply(g.role, g.level, 'GRANT') FROM revenant.usage_grant AS g" \
	" JOIN pg_catalog.pg_roles AS r ON r.rolname OPERATOR(pg_catalog.=) g.role"

static void
run(const char *command)
{
	int			result = SPI_execute(command, false, 0);

	if (result < 0)
		elog(ERROR, "could not run \"%s\": %s", command, SPI_result_code_string(result));
}

static void
give_to_owner(void)
{
	SPITupleTable *members;
	uint64		nmembers;

	run(STRAY_MEMBERS);
	members = SPI_tuptable;
	nmembers = SPI_processed;
	for (uint64 i = 0; i < nmembers; i++)
		run(SPI_getvalue(members->vals[i], members->tupdesc, 1));
}

/*
 * After ALTER EXTENSION revenant UPDATE, in its transaction, as the superuser
 * who runs it. Whose functions and tables decide about levels may be
 * somebody less: that part runs as the owner.
 */
void
update_finish(void)
{
	const Extension *extension;
	Oid			owner;
	Oid			user;
	int			context;
	int			nest_level;

	CommandCounterIncrement();
	extension_forget();
	extension = extension_find();
	if (extension == NULL)
		return;
	owner = extension_owner(extension->extension);
	/* what other sessions know of the old version's objects is void when this commits */
	if (OidIsValid(extension->task))
		CacheInvalidateRelcacheByRelid(extension->task);

	nest_level = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	SPI_connect();
	give_to_owner();
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(owner, context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
	run(LEVELS_AGAIN);
	SetUserIdAndSecContext(user, context);
	SPI_finish();
	AtEOXact_GUC(false, nest_level);
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
