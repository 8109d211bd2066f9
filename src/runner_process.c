/*-------------------------------------------------------------------------
 *
 * runner_process.c
 *	  What the processes of runners have in common: how they come, and how
 *	  they end.
 *
 * A runner is connected as one role from the beginning. What it was for has its
 * own file: runner.c, delivery.c.
 *
 * NOTES
 *	  The callback that reports the end is registered before the connection is
 *	  made, and therefore runs after the locks are released: when the
 *	  supervisor hears of it, what this process held is free.
 *
 *	  The role's settings are those of a login of that role. What our own
 *	  transactions need otherwise they set for themselves alone.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "compat.h"
#include "runner_process.h"

WorkerExtra runner_me;

/* How it ended; reported when the process exits */
static RunOutcome outcome = RUN_BROKEN;
static char last_sqlstate[6] = "";
static char last_message[WORKER_MESSAGE_MAX] = "";

static emit_log_hook_type previous_emit_log_hook = NULL;

static void
remember_error(const ErrorData *error)
{
	strlcpy(last_sqlstate, unpack_sql_state(error->sqlerrcode), sizeof(last_sqlstate));
	strlcpy(last_message, error->message ? error->message : "", sizeof(last_message));
}

/* A FATAL error is never caught; this is the only place that sees it. */
static void
on_log(ErrorData *error)
{
	if (error->elevel >= FATAL)
		remember_error(error);
	if (previous_emit_log_hook)
		previous_emit_log_hook(error);
}

static void
report_end(int code, Datum arg)
{
	if (outcome != RUN_SUCCEEDED && last_message[0] != '\0')
		outcome = RUN_FAILED;
	worker_runner_exit(runner_me.slot, runner_me.generation, outcome, last_sqlstate, last_message);
}

/* Takes the slot that this process was started for, and copies it; ends the process if it is not wanted any more. */
void
runner_process_attach(Datum main_arg, RunnerSlot *slot)
{
	memcpy(&runner_me, MyBgworkerEntry->bgw_extra, sizeof(runner_me));
	Assert(runner_me.slot == DatumGetInt32(main_arg));

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	before_shmem_exit(report_end, (Datum) 0);
	if (!worker_runner_attach(runner_me.slot, runner_me.generation) ||
		!worker_runner_get(runner_me.slot, runner_me.generation, slot))
		proc_exit(0);
	previous_emit_log_hook = emit_log_hook;
	emit_log_hook = on_log;
	BackgroundWorkerUnblockSignals();
}

/* Connects as the role. pg_stat_activity shows the process as `what`, and what it is for. */
void
runner_process_connect(const char *what, const char *name)
{
	char		application[NAMEDATALEN];
	int			left = (int) sizeof(application) - (int) strlen(what) - 1;

	BackgroundWorkerInitializeConnectionByOid(runner_me.database, runner_me.role, COMPAT_BYPASS_ROLELOGINCHECK);

	/* notices go to the log, unless the server is configured otherwise */
	SetConfigOption("log_min_messages", "notice", PGC_SUSET, PGC_S_DYNAMIC_DEFAULT);
	snprintf(application, sizeof(application), "%s%.*s", what, pg_mbcliplen(name, (int) strlen(name), left), name);
	SetConfigOption("application_name", application, PGC_USERSET, PGC_S_SESSION);
}

/* What a login of this role would load. */
void
runner_process_load_libraries(void)
{
	StartTransactionCommand();
	process_session_preload_libraries();
	CommitTransactionCommand();
}

/* A setting for this transaction alone. */
void
runner_process_pin(const char *name, const char *value)
{
	if (GetConfigOption(name, true, false) != NULL)
		(void) set_config_option(name, value, PGC_SUSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, ERROR, false);
}

/* Begins a transaction of ours, in which nothing of the role's settings holds. `writes`: whatever the role's default is. */
void
runner_process_begin(bool writes)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	if (writes)
		XactReadOnly = false;
	XactIsoLevel = XACT_READ_COMMITTED;
	XactDeferrable = false;
	runner_process_pin("search_path", "pg_catalog");
	runner_process_pin("lock_timeout", "0");
	runner_process_pin("transaction_timeout", "0");
}

/* It ends by this error. */
void
runner_process_failed(const ErrorData *error)
{
	remember_error(error);
	outcome = RUN_FAILED;
}

/* It has done what it was for. */
void
runner_process_succeeded(void)
{
	outcome = RUN_SUCCEEDED;
}

/* Does what this process is for, tells how that ended, and ends. */
void
runner_process_run(void (*work) (void))
{
	volatile int code = 0;

	PG_TRY();
	{
		work();
		runner_process_succeeded();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(TopMemoryContext);
		error = CopyErrorData();
		runner_process_failed(error);
		EmitErrorReport();
		FlushErrorState();
		AbortOutOfAnyTransaction();
		code = 1;
	}
	PG_END_TRY();
	proc_exit(code);
}
