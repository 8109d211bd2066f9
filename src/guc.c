/*-------------------------------------------------------------------------
 *
 * guc.c
 *	  The settings, in alphabetical order. docs/settings.md has a paragraph
 *	  on each.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "utils/guc.h"
#include "utils/varlena.h"

#include "events.h"
#include "guc.h"

char	   *guc_databases = NULL;
bool		guc_enabled = true;
int			guc_event_buffer = 1024;
int			guc_fence_grace_ms = 0;
int			guc_history_retention_s = 7 * 24 * 3600;
char	   *guc_log_events = NULL;
int			guc_max_runners = 16;
char	   *guc_node_name = NULL;
bool		guc_notify = false;
bool		guc_session_leases = true;
int			guc_shared_memory_mb = 256;

/* Whether the text is a list of names. */
static bool
check_databases(char **value, void **extra, GucSource source)
{
	List	   *names;

	if (SplitIdentifierString(pstrdup(*value ? *value : ""), ',', &names))
		return true;
	GUC_check_errdetail("It is not a list of names separated by commas. A name with other characters than letters, digits and _ is put in double quotes.");
	return false;
}

/* Whether the text is one of the words that revenant.log_events knows, or a list of what event names begin with. */
static bool
check_log_events(char **value, void **extra, GucSource source)
{
	if (events_filter_is_valid(*value ? *value : ""))
		return true;
	GUC_check_errdetail("It is off, transitions, all, or a list of beginnings of event names separated by commas, such as leadership.lost, leadership.revoked.");
	return false;
}

/* Whether revenant.databases names this database; an empty list names all. */
bool
guc_database_is_listed(const char *name)
{
	List	   *names;
	ListCell   *cell;

	if (!SplitIdentifierString(pstrdup(guc_databases ? guc_databases : ""), ',', &names))
		return false;
	foreach(cell, names)
	{
		if (strcmp((char *) lfirst(cell), name) == 0)
			return true;
	}
	return names == NIL;
}

/* Defines all settings. Called once, by _PG_init under shared_preload_libraries. */
void
guc_define(void)
{
	DefineCustomStringVariable("revenant.databases",
							   "Databases whose tasks are run and whose leases and plans are looked after.",
							   "A list of names separated by commas; empty for every database that has the extension.",
							   &guc_databases, "",
							   PGC_SIGHUP, GUC_LIST_INPUT, check_databases, NULL, NULL);

	DefineCustomBoolVariable("revenant.enabled",
							 "Runs tasks, and looks after plans. Off stops every task of this server.",
							 NULL,
							 &guc_enabled, true,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);

	DefineCustomIntVariable("revenant.event_buffer",
							"How many of the latest events are kept in shared memory.",
							"They are what revenant.events() shows; each takes about 1.6 kB.",
							&guc_event_buffer, 1024, 16, 1024 * 1024,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);

	DefineCustomIntVariable("revenant.fence_grace",
							"How long after its lease lapsed a fenced transaction may stay open while somebody waits.",
							"Its process is then terminated by who waits. 0 waits for ever.",
							&guc_fence_grace_ms, 0, 0, PG_INT32_MAX,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);

	DefineCustomIntVariable("revenant.history_retention",
							"How long ended runs of tasks stay in revenant.task_runs.",
							"0 keeps no history, -1 keeps it for ever.",
							&guc_history_retention_s, 7 * 24 * 3600, -1, PG_INT32_MAX,
							PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);

	DefineCustomStringVariable("revenant.log_events",
							   "Which events are written to the log.",
							   "off, transitions, all (renewals of elections, too), or a list of beginnings of their names.",
							   &guc_log_events, "transitions",
							   PGC_SIGHUP, GUC_LIST_INPUT, check_log_events, NULL, NULL);

	DefineCustomIntVariable("revenant.max_runners",
							"How many runners of tasks there may be at once, in all databases together.",
							"Each needs a place in max_worker_processes, beside the launcher, one supervisor for each database, and two more runners for messages and entities.",
							&guc_max_runners, 16, 1, 10000,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);

	DefineCustomStringVariable("revenant.node_name",
							   "The name of this server in views and runs.",
							   "Empty: the host's name and the port.",
							   &guc_node_name, "",
							   PGC_SIGHUP, 0, NULL, NULL, NULL);

	DefineCustomBoolVariable("revenant.notify",
							 "Sends events on the channel \"revenant\", too.",
							 "A notification takes a lock of the whole server at commit, and LISTEN needs no privilege: it has names only.",
							 &guc_notify, false,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);

	DefineCustomBoolVariable("revenant.session_leases",
							 "Allows leases in session scope.",
							 "Off for a role that comes through a pooler in transaction mode, which would strand them.",
							 &guc_session_leases, true,
							 PGC_SUSET, 0, NULL, NULL, NULL);

	DefineCustomIntVariable("revenant.shared_memory",
							"The most shared memory that leases, tasks, plans and entities may take.",
							"It is taken as it is needed. When it is used up, a new lease and a claim of a split fail with SQLSTATE 53200, and states of entities go into their rows at once.",
							&guc_shared_memory_mb, 256, 4, 1024 * 1024,
							PGC_POSTMASTER, GUC_UNIT_MB, NULL, NULL, NULL);

	MarkGUCPrefixReserved("revenant");
}

/* This server's name in views and runs: revenant.node_name, or host and port. Valid until the next call. */
const char *
guc_effective_node_name(void)
{
	static char name[256];
	char		host[128];

	if (guc_node_name != NULL && guc_node_name[0] != '\0')
		return guc_node_name;
	if (gethostname(host, sizeof(host)) != 0)
		strlcpy(host, "localhost", sizeof(host));
	host[sizeof(host) - 1] = '\0';
	snprintf(name, sizeof(name), "%s:%d", host, PostPortNumber);
	return name;
}
