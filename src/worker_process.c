/*-------------------------------------------------------------------------
 *
 * worker_process.c
 *	  What the workers have in common as processes of the server.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "postmaster/bgworker.h"
#include "storage/fd.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/pidfile.h"

#include "worker.h"

/* Whether this process is still attached to shared memory. Takes no lock. */
bool
worker_is_alive(int pid, int procno)
{
	return pid != 0 && GetPGProcByNumber(procno)->procLatch.owner_pid == pid;
}

/*
 * Whether this server is being shut down, as the postmaster writes it down
 * before it has anybody end. For a worker that sees others end and does not
 * know yet. Reads a file; false where that cannot be read.
 */
bool
worker_server_is_stopping(void)
{
	FILE	   *file = AllocateFile("postmaster.pid", "r");
	char		line[MAXPGPATH];
	bool		stopping = false;

	if (file == NULL)
		return false;
	for (int i = 1; i <= LOCK_FILE_LINE_PM_STATUS && fgets(line, sizeof(line), file) != NULL; i++)
		stopping = i == LOCK_FILE_LINE_PM_STATUS && strncmp(line, PM_STATUS_STOPPING, strlen(PM_STATUS_STOPPING)) == 0;
	FreeFile(file);
	return stopping;
}

/* Fills in what all of our workers have in common. */
void
worker_prepare(BackgroundWorker *worker, const char *type, const char *name, const char *function)
{
	memset(worker, 0, sizeof(*worker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker->bgw_start_time = BgWorkerStart_ConsistentState;
	worker->bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker->bgw_library_name, "revenant", sizeof(worker->bgw_library_name));
	strlcpy(worker->bgw_function_name, function, sizeof(worker->bgw_function_name));
	strlcpy(worker->bgw_type, type, sizeof(worker->bgw_type));
	strlcpy(worker->bgw_name, name, sizeof(worker->bgw_name));
}

/* Settings of roles and databases must not reach a worker that does our own work. */
void
worker_pin_settings(void)
{
	static const char *const pinned[][2] = {
		{"role", "none"},
		{"search_path", "pg_catalog"},
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_read_only", "off"},
		{"default_transaction_deferrable", "off"},
		{"statement_timeout", "0"},
		{"lock_timeout", "0"},
		{"idle_in_transaction_session_timeout", "0"},
		{"transaction_timeout", "0"},
		{"synchronous_commit", "local"},
		{"row_security", "off"},
		{"session_replication_role", "origin"},
	};

	for (int i = 0; i < (int) lengthof(pinned); i++)
	{
		if (GetConfigOption(pinned[i][0], true, false) != NULL)
			SetConfigOption(pinned[i][0], pinned[i][1], PGC_SUSET, PGC_S_OVERRIDE);
	}
}
