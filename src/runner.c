/*-------------------------------------------------------------------------
 *
 * runner.c
 *	  The process that runs a task's command, or a standby's follower_command:
 *	  once, as the task's role.
 *
 * It is a fresh process for each run, connected as that role from the
 * beginning. In a first transaction of its own it takes the task's lease by
 * session scope and writes down that it runs; then it executes the command as
 * a session would, and ends. The lease ends with the process, so a run
 * cannot outlive its right. A follower_command takes no lease and writes
 * nothing; once the server does not follow any more it commits nothing either.
 *
 * NOTES
 *	  How such a process comes and ends is in runner_process.c. What our first
 *	  transaction needs of settings it sets for that transaction alone.
 *
 *	  The statements of a command are separate transactions, unlike those of a
 *	  simple query; BEGIN, COMMIT and procedures that commit work as they do
 *	  in psql.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "parser/analyze.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "alarm.h"
#include "clock.h"
#include "compat.h"
#include "debug.h"
#include "error.h"
#include "events.h"
#include "extension.h"
#include "guc.h"
#include "lease.h"
#include "row.h"
#include "runner.h"
#include "runner_process.h"
#include "task.h"
#include "task_event.h"
#include "task_state.h"
#include "task_status.h"
#include "worker.h"

/* This run */
static char task_name[TASK_NAME_MAX + 1];	/* empty in any other process */
static char *task_lease = NULL;
static char *task_command = NULL;
static int64 task_token = 0;
static bool task_follows = false;	/* it runs the follower_command of a standby, without a lease */
static Jsonb *task_settings = NULL;
static int64 task_timeout_us = 0;	/* 0: none */
static int64 task_deadline_us = 0;
static MemoryContext command_context = NULL;

/* The end of a run's timeout; a command that catches the cancel gets another one. */
static Alarm timeout_alarm;

#define CANCEL_AGAIN_US (1 * US_PER_S)

/* The name of the task whose command this process runs, or NULL. */
const char *
runner_current_task(void)
{
	return task_name[0] != '\0' ? task_name : NULL;
}

/* The token of this process's run, or 0. */
int64
runner_current_token(void)
{
	return task_token;
}

/* Begins the first transaction, in which nothing of the role's settings holds. */
static void
begin_claim(void)
{
	runner_process_begin(!task_follows);
	runner_process_pin("revenant.session_leases", "on");
}

/* The extension that this runner was started for, or NULL. */
static const Extension *
find_extension(const RunnerSlot *slot)
{
	const Extension *extension = extension_find();

	if (extension == NULL || extension->extension != slot->task.instance || !OidIsValid(extension->task_run))
		return NULL;
	extension_require_tables(extension);
	return extension;
}

/* Reads the task. False when it is not the one, or not to be run, any more. */
static bool
read_task(const Extension *extension, const RunnerSlot *slot, TaskRow *row)
{
	Relation	rel;
	HeapTuple	tuple;

	PushActiveSnapshot(GetTransactionSnapshot());
	rel = table_open(extension->task, AccessShareLock);
	tuple = row_find(rel, extension->task_pkey, slot->name);
	if (tuple != NULL)
		task_parse(tuple, RelationGetDescr(rel), row);
	table_close(rel, AccessShareLock);
	PopActiveSnapshot();
	return tuple != NULL && row->enabled && row->native && row->problem == NULL && row->run_as_oid == runner_me.role &&
		task_same_life(&row->life, &slot->life);
}

/* What is run, for the life of this process. */
static void
keep(const TaskRow *row, const char *command)
{
	task_command = MemoryContextStrdup(TopMemoryContext, command);
	task_timeout_us = row->timeout_us;
	if (row->settings != NULL)
	{
		task_settings = MemoryContextAlloc(TopMemoryContext, VARSIZE(row->settings));
		memcpy(task_settings, row->settings, VARSIZE(row->settings));
	}
}

static void
take_lease(const TaskRow *row)
{
	LeaseRequest request = {
		.name = row->lease,
		.function = "create_task",
		.scope = LEASE_SESSION,
		.holder = psprintf("task %s", row->name),
		.wait = true,
		.wait_us = -1,
		.trusted = true
	};

	/* the wait for the lease must not hold back vacuum */
	InvalidateCatalogSnapshot();
	task_token = lease_acquire(&request);
	if (task_token == 0)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not take lease \"%s\" of task \"%s\"", row->lease, row->name)));
}

/*
 * The first transaction: reads the task, takes its lease, and writes down that
 * it runs. False when there is nothing to run any more.
 */
static bool
claim(const RunnerSlot *slot)
{
	const Extension *extension;
	TaskRow		row;
	int64		run;

	begin_claim();
	pgstat_report_activity(STATE_RUNNING, "revenant: claiming the task's lease");
	DEBUG_POINT("runner-before-claim");
	extension = find_extension(slot);
	if (extension == NULL || !read_task(extension, slot, &row))
	{
		CommitTransactionCommand();
		return false;
	}
	take_lease(&row);

	/* it may have been a long wait: what is run is what the row says now, and another definition is another run */
	extension = find_extension(slot);
	if (extension == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension revenant was replaced")));
	if (!read_task(extension, slot, &row))
	{
		CommitTransactionCommand();
		return false;
	}
	PushActiveSnapshot(GetTransactionSnapshot());
	run = task_state_start(extension, &row, slot, task_token);
	PopActiveSnapshot();
	task_tell_started(row.name, runner_me.role, row.lease, task_token, row.has_schedule);
	task_lease = MemoryContextStrdup(TopMemoryContext, row.lease);	/* for the life of this process */
	keep(&row, row.command);

	/*
	 * A fire time is durable before the run, so that no crash repeats it. A run
	 * without one needs no flush: the token's mark is durable, and whatever the
	 * command commits is behind this in the WAL.
	 */
	if (row.has_schedule)
	{
		runner_process_pin("synchronous_commit", "local");
		ForceSyncCommit();
	}
	else
		runner_process_pin("synchronous_commit", "off");
	if (!worker_runner_commit(runner_me.slot, runner_me.generation))
		ereport(ERROR,
				(errcode(ERRCODE_ADMIN_SHUTDOWN),
				 errmsg("task \"%s\" was told to end before it began", task_name)));
	CommitTransactionCommand();

	worker_runner_lead(runner_me.slot, runner_me.generation, task_token, run);
	DEBUG_POINT_QUIET("runner-before-leading");
	task_status_lead(&slot->task, slot->next_run);
	return true;
}

/* Raises 25006 when this server does not follow any more: its task is another process's now. */
static void
require_standby(void)
{
	if (!RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("this server is not a standby any more"),
				 errdetail("The follower_command of task \"%s\" runs on standbys only.", task_name)));
}

/* Whatever the command set: what is still under way after a promotion does not commit. */
static void
on_xact_end(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT)
		require_standby();
}

/* On a standby: reads the task. False when there is nothing to run any more. */
static bool
follow(const RunnerSlot *slot)
{
	const Extension *extension;
	TaskRow		row;

	RegisterXactCallback(on_xact_end, NULL);
	begin_claim();
	require_standby();
	extension = find_extension(slot);
	if (extension == NULL || !read_task(extension, slot, &row) || row.follower_command == NULL)
	{
		CommitTransactionCommand();
		return false;
	}
	keep(&row, row.follower_command);
	task_tell_started(row.name, runner_me.role, NULL, 0, true);
	CommitTransactionCommand();
	SetConfigOption("default_transaction_read_only", "on", PGC_SUSET, PGC_S_OVERRIDE);
	worker_runner_lead(runner_me.slot, runner_me.generation, 0, 0);
	task_status_follow(&slot->task);
	return true;
}

/* Raises RV001 when the task's lease is not this run's any more; 25006 where there is none and this is no standby. Needs a transaction. */
static void
require_right(void)
{
	if (task_follows)
		require_standby();
	else if (!lease_session_holds(task_lease, task_token))
		ereport(ERROR,
				(errcode(ERRCODE_RV_STALE_TOKEN),
				 errmsg("task \"%s\" does not hold its lease any more", task_name),
				 errdetail("Lease \"%s\" with token " INT64_FORMAT " was released or revoked during the run.",
						   task_lease, task_token),
				 errhint("DISCARD ALL and pg_advisory_unlock_all() release leases, too.")));
}

/* There is no client that COPY could talk to. */
static void
refuse_copy(const RawStmt *parsed)
{
	if (IsA(parsed->stmt, CopyStmt) &&
		((CopyStmt *) parsed->stmt)->filename == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a task cannot COPY from its standard input or to its standard output"),
				 errdetail("A task has no client.")));
}

/* One top-level statement, in a transaction of its own unless the command has opened one. */
static void
run_statement(RawStmt *parsed)
{
	MemoryContext statement_context = AllocSetContextCreate(command_context, "revenant statement",
															ALLOCSET_DEFAULT_SIZES);
	DestReceiver *receiver;
	QueryCompletion completion;
	List	   *queries;
	List	   *plans;
	Portal		portal;

	SetCurrentStatementStartTimestamp();
	pgstat_report_activity(STATE_RUNNING, task_command);
	StartTransactionCommand();
	if (StatementTimeout > 0)
		enable_timeout_after(STATEMENT_TIMEOUT, StatementTimeout);
	CHECK_FOR_INTERRUPTS();

	require_right();
	refuse_copy(parsed);

	MemoryContextSwitchTo(statement_context);
	if (analyze_requires_snapshot(parsed))
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		queries = pg_analyze_and_rewrite_fixedparams(parsed, task_command, NULL, 0, NULL);
		plans = pg_plan_queries(queries, task_command, CURSOR_OPT_PARALLEL_OK, NULL);
		PopActiveSnapshot();
	}
	else
	{
		queries = pg_analyze_and_rewrite_fixedparams(parsed, task_command, NULL, 0, NULL);
		plans = pg_plan_queries(queries, task_command, CURSOR_OPT_PARALLEL_OK, NULL);
	}

	portal = CreatePortal("", true, true);
	portal->visible = false;
	PortalDefineQuery(portal, NULL, task_command, CreateCommandTag(parsed->stmt), plans, NULL);
	PortalStart(portal, NULL, 0, InvalidSnapshot);
	receiver = CreateDestReceiver(DestNone);
	MemoryContextSwitchTo(TopTransactionContext);
	(void) compat_portal_run(portal, receiver, &completion);
	receiver->rDestroy(receiver);
	PortalDrop(portal, false);

	if (StatementTimeout > 0 || get_timeout_active(STATEMENT_TIMEOUT))
		disable_timeout(STATEMENT_TIMEOUT, false);
	CommitTransactionCommand();
	MemoryContextDelete(statement_context);
	if (!IsTransactionOrTransactionBlock())
		(void) pgstat_report_stat(false);
}

/* The whole command. */
static void
run_command(void)
{
	List	   *parsed;
	ListCell   *cell;

	command_context = AllocSetContextCreate(TopMemoryContext, "revenant command", ALLOCSET_DEFAULT_SIZES);
	debug_query_string = task_command;
	pgstat_report_activity(STATE_RUNNING, task_command);

	if (task_timeout_us > 0)
	{
		task_deadline_us = clock_now_us() + task_timeout_us;
		alarm_set(&timeout_alarm, task_timeout_us, CANCEL_AGAIN_US);
	}

	StartTransactionCommand();
	DEBUG_POINT("runner-before-command");
	if (task_settings != NULL)
		task_apply_settings(task_settings, runner_me.role, true);
	MemoryContextSwitchTo(command_context);
	parsed = pg_parse_query(task_command);
	CommitTransactionCommand();

	foreach(cell, parsed)
	{
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		run_statement(lfirst_node(RawStmt, cell));
	}

	if (IsTransactionOrTransactionBlock())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("command of task \"%s\" ended within a transaction block", task_name),
				 errdetail("What it did in the block is rolled back."),
				 errhint("End the command with COMMIT.")));

	/* the last statement may have lost it */
	StartTransactionCommand();
	require_right();
	CommitTransactionCommand();
	alarm_clear(&timeout_alarm);
	debug_query_string = NULL;
}

/* A runner. */
void
revenant_runner_main(Datum main_arg)
{
	RunnerSlot	slot;
	bool		claimed;
	int			code = 0;

	runner_process_attach(main_arg, &slot);
	strlcpy(task_name, slot.name, sizeof(task_name));
	task_follows = slot.follows;
	runner_process_connect("revenant task ", task_name);

	PG_TRY();
	{
		runner_process_load_libraries();
		events_defer_notify(true);
		claimed = task_follows ? follow(&slot) : claim(&slot);
		events_defer_notify(false);
		if (claimed && guc_notify)
			worker_nudge_supervisor(runner_me.database);
		if (claimed)
			run_command();
		runner_process_succeeded();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(TopMemoryContext);
		alarm_clear(&timeout_alarm);
		error = CopyErrorData();
		if (task_timeout_us > 0 && error->sqlerrcode == ERRCODE_QUERY_CANCELED && clock_now_us() >= task_deadline_us)
			error->message = psprintf("the run took longer than its timeout of %.3f s", task_timeout_us / 1e6);
		runner_process_failed(error);
		EmitErrorReport();
		FlushErrorState();
		AbortOutOfAnyTransaction();
		code = 1;
	}
	PG_END_TRY();
	proc_exit(code);
}
