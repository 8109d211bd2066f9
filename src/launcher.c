/*-------------------------------------------------------------------------
 *
 * launcher.c
 *	  The static workers: one that sees to it that every database with the
 *	  extension has a supervisor, and one that tells everybody of a promotion.
 *
 * The launcher is connected to no database, so it cannot see which ones have
 * the extension. It starts a supervisor in each that it does not know to lack
 * it; the supervisor looks, and ends as ABSENT where there is nothing to do.
 * That knowledge is the launcher's own: it is made again when it restarts,
 * and corrected by CREATE EXTENSION, by a promotion and, on a standby, where
 * nobody can tell us, every ten seconds.
 *
 * NOTES
 *	  SIGTERM is an exit with code 1, after which the postmaster starts the
 *	  launcher again: exit code 0 would be for good.
 *
 *	  The supervisors live on without a launcher; the next launcher finds
 *	  them in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "clock.h"
#include "compat.h"
#include "debug.h"
#include "entity_memory.h"
#include "guc.h"
#include "launcher.h"
#include "lease.h"
#include "plan_memory.h"
#include "stat.h"
#include "task_status.h"
#include "worker.h"
#include "zone.h"

#define LONGEST_SLEEP_MS 60000
#define STANDBY_PROBE_US (10 * US_PER_S)
#define RETRY_US (1 * US_PER_S)
#define LONGEST_RETRY_US (8 * US_PER_S)
#define HEALTHY_US (60 * US_PER_S)

/* What the launcher remembers of a database between two ticks. */
typedef struct KnownDatabase
{
	Oid			oid;			/* hash key */
	bool		listed;			/* seen in pg_database in this tick */
	bool		wanted;			/* ... and is to have a supervisor */
	bool		absent;			/* lacks the extension */
	int64		started_us;		/* when its last supervisor was started; 0: never */
	int64		retry_us;		/* how long after that the next one may be */
	int64		absent_since_us;
	bool		left_alone;		/* is not wanted, and nothing of ours is there */
	int64		starving_since_us;	/* since when no worker can be started; 0: one can */
	bool		complained;		/* ... and the log says so */
} KnownDatabase;

static HTAB *databases = NULL;
static MemoryContext tick_context = NULL;

static void tick(long *sleep_ms);

/* Registers both static workers. Called by _PG_init under shared_preload_libraries. */
void
launcher_register(void)
{
	BackgroundWorker worker;

	/* a server under pg_upgrade is to be left alone */
	if (IsBinaryUpgrade)
		return;

	worker_prepare(&worker, "revenant launcher", "revenant launcher", "revenant_launcher_main");
	worker.bgw_restart_time = 1;
	RegisterBackgroundWorker(&worker);

	/* the same: the postmaster forgets, at a crash, who is never to be restarted */
	worker_prepare(&worker, "revenant promotion", "revenant promotion", "revenant_promotion_main");
	worker.bgw_restart_time = 1;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	RegisterBackgroundWorker(&worker);
}

/*
 * Started by the postmaster at promotion, and at the start of a primary. It has
 * the postmaster's settings, and no database or role could change them.
 */
void
revenant_promotion_main(Datum main_arg)
{
	BackgroundWorkerUnblockSignals();
	(void) clock_note_writes(!DefaultXactReadOnly);
	worker_note_promotion();
	proc_exit(0);
}

/* The launcher. */
void
revenant_launcher_main(Datum main_arg)
{
	HASHCTL		control;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	pqsignal(SIGINT, SIG_IGN);	/* there is no query to cancel */
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);

	worker_launcher_attach();
	zone_publish_servers();
	control.keysize = sizeof(Oid);
	control.entrysize = sizeof(KnownDatabase);
	databases = hash_create("revenant databases", 32, &control, HASH_ELEM | HASH_BLOBS);
	tick_context = AllocSetContextCreate(TopMemoryContext, "revenant launcher tick", ALLOCSET_DEFAULT_SIZES);

	for (;;)
	{
		long		sleep_ms = LONGEST_SLEEP_MS;
		bool		standby;

		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		/* in this order: a setting that was changed before the promotion is known after it */
		standby = RecoveryInProgress();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			zone_publish_servers();
		}
		if (!standby && clock_note_writes(!DefaultXactReadOnly))
			worker_wake_all();

		DEBUG_TICK(TICK_OF_LAUNCHER);
		tick(&sleep_ms);
		MemoryContextReset(tick_context);

		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 sleep_ms, compat_wait_event("RevenantLauncherMain"));
	}
}

/* Reads pg_database into what is known. */
static void
list_databases(void)
{
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;
	HASH_SEQ_STATUS all;
	KnownDatabase *known;

	hash_seq_init(&all, databases);
	while ((known = hash_seq_search(&all)) != NULL)
		known->listed = known->wanted = false;

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while (HeapTupleIsValid(tuple = heap_getnext(scan, ForwardScanDirection)))
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);
		bool		found;

		known = hash_search(databases, &form->oid, HASH_ENTER, &found);
		if (!found)
		{
			memset(known, 0, sizeof(*known));
			known->oid = form->oid;
		}
		known->listed = true;
		known->wanted = form->datallowconn && !form->datistemplate && !database_is_invalid_form(form) &&
			guc_database_is_listed(NameStr(form->datname));
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
	MemoryContextSwitchTo(tick_context);
}

/* A database is gone: so is all that is known about it. */
static void
forget_database(KnownDatabase *known)
{
	RunnerSlot	runner;

	for (int i = worker_runner_next(0, known->oid, &runner); i >= 0;
		 i = worker_runner_next(i + 1, known->oid, &runner))
	{
		if (runner.state == RUNNER_EXITED)
			worker_runner_free(i, runner.generation);
		else
			worker_runner_stop(i, runner.generation);
	}
	task_status_purge(known->oid, InvalidOid);
	lease_forget_database(known->oid);
	stat_purge(known->oid, InvalidOid);
	entity_memory_purge(known->oid, InvalidOid);
	plan_memory_purge(known->oid, InvalidOid);
	hash_search(databases, &known->oid, HASH_REMOVE, NULL);
}

/* A database is not to have a supervisor (any more): ends its runners, then forgets what its tasks did. */
static void
leave_alone(KnownDatabase *known)
{
	RunnerSlot	runner;
	bool		empty = true;

	if (known->left_alone || worker_has_supervisor(known->oid))
		return;
	for (int i = worker_runner_next(0, known->oid, &runner); i >= 0;
		 i = worker_runner_next(i + 1, known->oid, &runner))
	{
		if (runner.state == RUNNER_EXITED || worker_runner_reap(i, runner.generation, false))
			worker_runner_free(i, runner.generation);
		else
		{
			empty = false;
			if (!runner.stop)
				worker_runner_stop(i, runner.generation);
		}
	}
	if (empty)
		task_status_purge(known->oid, InvalidOid);
	known->left_alone = empty;
}

/* A supervisor is not wanted any more. Where there still is a database it writes down how its runs end first. */
static void
dismiss(const KnownDatabase *known, int slot, const SupervisorSlot *supervisor, long *sleep_ms)
{
	if (known == NULL || !known->listed || worker_supervisor_drain(slot, supervisor->generation))
		worker_supervisor_stop(slot, supervisor->generation);
	else
		*sleep_ms = Min(*sleep_ms, RETRY_US / US_PER_MS);
}

/* Looks at every supervisor slot: collects those that ended, stops those that are not wanted. */
static void
collect_supervisors(long *sleep_ms)
{
	for (int i = 0; i < worker_supervisors(); i++)
	{
		SupervisorSlot slot;
		KnownDatabase *known;
		bool		left;
		bool		absent;

		if (!worker_supervisor_get(i, &slot))
			continue;
		known = hash_search(databases, &slot.database, HASH_FIND, NULL);
		if (worker_supervisor_collect(i, slot.generation, &left, &absent))
		{
			/* it did what it was there for: the next one need not be put off */
			if (known != NULL && left)
				known->started_us = 0;
			if (known != NULL && absent)
			{
				known->absent = true;
				known->absent_since_us = clock_now_us();
			}
		}
		else if (known != NULL && known->wanted && slot.drained_since_us != 0)
			worker_supervisor_undrain(i, slot.generation);
		else if ((known == NULL || !known->wanted) && !slot.stop)
			dismiss(known, i, &slot, sleep_ms);
	}
}

/* Registers a supervisor. False when there is no room for it. */
static bool
start_supervisor(KnownDatabase *known, int slot, uint32 generation)
{
	BackgroundWorker worker;
	WorkerExtra extra = {.slot = slot, .generation = generation, .database = known->oid};

	worker_prepare(&worker, "revenant supervisor", "revenant supervisor", "revenant_supervisor_main");
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), "revenant supervisor for database %u", known->oid);
	worker.bgw_main_arg = Int32GetDatum(slot);
	worker.bgw_notify_pid = MyProcPid;
	StaticAssertStmt(sizeof(extra) <= BGW_EXTRALEN, "bgw_extra is too small");
	memcpy(worker.bgw_extra, &extra, sizeof(extra));
	if (!RegisterDynamicBackgroundWorker(&worker, NULL))
		return false;
	/* the first time again after a second, then ever less often, unless it lived for a while */
	if (known->started_us == 0 || clock_now_us() - known->started_us > HEALTHY_US)
		known->retry_us = RETRY_US;
	else
		known->retry_us = Min(known->retry_us * 2, LONGEST_RETRY_US);
	known->started_us = clock_now_us();
	return true;
}

/* Starts what is missing, and says how long the next tick may wait. */
static void
start_supervisors(long *sleep_ms)
{
	HASH_SEQ_STATUS all;
	KnownDatabase *known;
	int64		now = clock_now_us();
	bool		standby = RecoveryInProgress();
	bool		starving = false;

	hash_seq_init(&all, databases);
	while ((known = hash_seq_search(&all)) != NULL)
	{
		uint32		generation;
		int			slot;

		if (!known->listed)
		{
			forget_database(known);
			continue;
		}
		if (!known->wanted)
		{
			leave_alone(known);
			continue;
		}
		known->left_alone = false;
		if (known->absent && standby)
		{
			if (now - known->absent_since_us >= STANDBY_PROBE_US)
				known->absent = false;
			else
				*sleep_ms = Min(*sleep_ms, STANDBY_PROBE_US / US_PER_MS);
		}
		if (known->absent)
			continue;

		slot = worker_supervisor_reserve(known->oid, &generation);
		if (slot == RESERVE_RUNNING)
			continue;
		if (slot >= 0 && known->started_us != 0 && now - known->started_us < known->retry_us)
		{
			/* it ended soon after it began */
			worker_supervisor_free(slot, generation);
			*sleep_ms = Min(*sleep_ms, (known->started_us + known->retry_us - now) / US_PER_MS + 1);
			continue;
		}
		if (slot >= 0 && start_supervisor(known, slot, generation))
		{
			known->starving_since_us = 0;
			known->complained = false;
			/* look again in case that it never comes */
			*sleep_ms = Min(*sleep_ms, STANDBY_PROBE_US / US_PER_MS);
			continue;
		}
		if (slot >= 0)
			worker_supervisor_free(slot, generation);
		*sleep_ms = Min(*sleep_ms, RETRY_US / US_PER_MS);
		if (slot == RESERVE_PAUSED)
			continue;
		starving = true;
		if (known->starving_since_us == 0)
			known->starving_since_us = now;
		/* not at once: while the server is shut down places are still taken by workers that have gone before us */
		if (!known->complained && now - known->starving_since_us >= RETRY_US)
		{
			ereport(LOG,
					(errmsg("no background worker is free for the supervisor of database %u", known->oid),
					 errhint("Set max_worker_processes higher.")));
			known->complained = true;
		}
	}
	worker_supervisors_starve(starving);
}

/* One look at everything. An error in it ends the launcher, which comes back with a clean slate. */
static void
tick(long *sleep_ms)
{
	Oid			wanted[64];
	int			nwanted;
	bool		all_wanted;
	HASH_SEQ_STATUS all;
	KnownDatabase *known;

	MemoryContextSwitchTo(tick_context);

	/* in this order: who is collected as absent may have been told to look again */
	list_databases();
	collect_supervisors(sleep_ms);
	all_wanted = worker_take_wanted(wanted, &nwanted, lengthof(wanted));
	if (all_wanted)
	{
		hash_seq_init(&all, databases);
		while ((known = hash_seq_search(&all)) != NULL)
		{
			known->absent = false;
			known->started_us = 0;
		}
	}
	for (int i = 0; i < nwanted; i++)
	{
		known = hash_search(databases, &wanted[i], HASH_FIND, NULL);
		if (known != NULL)
		{
			known->absent = false;
			known->started_us = 0;
		}
	}
	start_supervisors(sleep_ms);
}
