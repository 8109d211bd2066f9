/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  What the workers know about each other: slots in shared memory.
 *
 * One array of supervisor slots, one of runner slots, both of a fixed size and
 * under one LWLock. Whoever waits for a worker remembers the generation of its
 * slot: once it differs, the slot belongs to somebody else.
 *
 * {database, extension} × {made, dropped} and what becomes of the slots:
 *
 *	  CREATE EXTENSION		worker_extension_changed() at commit: the launcher
 *							probes the database again
 *	  DROP EXTENSION		worker_extension_changed() at commit: the supervisor
 *							looks, stops its runners and ends as ABSENT
 *	  DROP + CREATE			the supervisor sees another instance, forgets all that it
 *							knew and goes on with an empty slate
 *	  DROP DATABASE etc.	worker_pause(): no slot of it is given away until
 *							worker_resume(), or until the pausing process is gone
 *
 * NOTES
 *	  Lock order: the lock here is the last one taken; nothing is called with it
 *	  held but signals and latches.
 *
 *	  A hold (see TaskStatus) and a runner slot exclude each other without a
 *	  common lock: drop_task puts the hold and then looks for a slot, the
 *	  supervisor takes the slot and then looks for a hold. One of them sees
 *	  the other.
 *
 *	  A process is "gone" when its latch has been disowned: that is the last
 *	  thing it does in shared memory, after its locks and its place in the
 *	  process array were given back. Its slot may be free, and another's, before
 *	  that: whoever needs the database for himself looks for leavers, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "utils/guc.h"

#include "clock.h"
#include "compat.h"
#include "guc.h"
#include "shmem.h"
#include "worker_shared.h"

/* A worker that was registered and did not come in this time never will. */
#define REGISTRATION_TIMEOUT_US (10 * US_PER_S)

/* How long a supervisor that is not wanted any more has for its runs to end. */
#define DRAIN_TIMEOUT_US (10 * US_PER_S)

/* A supervisor that waits for a runner says so at least once a second; what it said earlier counts no more. */
#define HUNGER_LAPSES_US (2 * US_PER_S)

WorkerShared *worker_shared = NULL;
RunnerSlot *worker_runners = NULL;

/* ---------------------------------------------------------------- shared memory */

static Size
supervisors_size(void)
{
	return MAXALIGN(offsetof(WorkerShared, supervisors) +
					sizeof(SupervisorSlot) * max_worker_processes);
}

/* What this file needs in shared memory, in bytes. */
Size
worker_shmem_size(void)
{
	return add_size(supervisors_size(), mul_size(sizeof(RunnerSlot), guc_max_runners + RESERVED_RUNNERS));
}

/* Called by shmem.c at every start of shared memory, with zeroed memory if not found. */
void
worker_shmem_init(void *place, bool found)
{
	worker_shared = place;
	worker_runners = (RunnerSlot *) ((char *) place + supervisors_size());
	if (!found)
	{
		worker_shared->tranche = LWLockNewTrancheId();
		LWLockInitialize(&worker_shared->lock, worker_shared->tranche);
		worker_shared->nsupervisors = max_worker_processes;
		worker_shared->nrunners = guc_max_runners + RESERVED_RUNNERS;
	}
	LWLockRegisterTranche(worker_shared->tranche, "RevenantWorkers");
}

/* ---------------------------------------------------------------- processes */

/* Sets a process's latch. Harmless when the place in the array has another owner by now. */
void
slots_wake(int pid, int procno)
{
	if (pid != 0)
		SetLatch(&GetPGProcByNumber(procno)->procLatch);
}

/* Makes the launcher look again. Never raises. */
void
worker_wake_launcher(void)
{
	LWLockAcquire(&worker_shared->lock, LW_SHARED);
	slots_wake(worker_shared->launcher_pid, worker_shared->launcher_procno);
	LWLockRelease(&worker_shared->lock);
}

/* Whether a worker that was registered may still come. */
bool
slots_may_come(int64 registered_us)
{
	return clock_now_us() - registered_us <= REGISTRATION_TIMEOUT_US;
}

static bool
has_supervisor(const SupervisorSlot *slot, Oid database)
{
	return slot->database == database && slot->state != SUPERVISOR_FREE;
}

/* Whether it is there, or about to come. */
static bool
is_supervising(const SupervisorSlot *slot, Oid database)
{
	return has_supervisor(slot, database) &&
		(slot->state == SUPERVISOR_RUNNING || slot->state == SUPERVISOR_STARTING);
}

/* Makes a supervisor tick once more, also if it is in the middle of a tick. The caller holds the lock, exclusively. */
static void
wake_supervisor(SupervisorSlot *slot)
{
	slot->wakes++;
	slots_wake(slot->pid, slot->procno);
}

/* Has the launcher probe a database, at once. The caller holds the lock. */
static void
want(Oid database)
{
	for (int i = 0; i < worker_shared->nwanted; i++)
	{
		if (worker_shared->wanted[i] == database)
			return;
	}
	if (worker_shared->nwanted < WANTED_MAX)
		worker_shared->wanted[worker_shared->nwanted++] = database;
	else
		worker_shared->all_wanted = true;
}

/*
 * Tells a database's supervisor that its tasks may have changed; where there is
 * none, the launcher is to start one. Never raises: it is called in commit
 * callbacks.
 */
void
worker_wake_supervisor(Oid database)
{
	bool		supervised = false;

	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < worker_shared->nsupervisors; i++)
	{
		SupervisorSlot *slot = &worker_shared->supervisors[i];

		if (is_supervising(slot, database))
		{
			supervised = true;
			slot->changes++;
			wake_supervisor(slot);
		}
	}
	if (!supervised)
	{
		want(database);
		slots_wake(worker_shared->launcher_pid, worker_shared->launcher_procno);
	}
	LWLockRelease(&worker_shared->lock);
}

/* Makes a database's supervisor tick once more. False: there is none. The caller holds the lock, exclusively. */
bool
slots_nudge_supervisor(Oid database)
{
	bool		supervised = false;

	for (int i = 0; i < worker_shared->nsupervisors; i++)
	{
		if (is_supervising(&worker_shared->supervisors[i], database))
		{
			supervised = true;
			wake_supervisor(&worker_shared->supervisors[i]);
		}
	}
	return supervised;
}

/* Makes a database's supervisor tick once more, where there is one; no task has changed. */
void
worker_nudge_supervisor(Oid database)
{
	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	(void) slots_nudge_supervisor(database);
	LWLockRelease(&worker_shared->lock);
}

/* Makes the launcher and every supervisor look again. Never raises. */
void
worker_wake_all(void)
{
	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < worker_shared->nsupervisors; i++)
	{
		worker_shared->supervisors[i].changes++;
		wake_supervisor(&worker_shared->supervisors[i]);
	}
	slots_wake(worker_shared->launcher_pid, worker_shared->launcher_procno);
	LWLockRelease(&worker_shared->lock);
}

/* Whether users' code is run at all: on a standby, or on a server that leads. */
bool
worker_may_run(bool following)
{
	return guc_enabled && (following || clock_write_state() == WRITES_ACCEPTED);
}

/* Wakes the supervisors that wait for a runner. The caller holds the lock, exclusively. */
void
slots_wake_hungry(void)
{
	for (int i = 0; i < worker_shared->nsupervisors; i++)
	{
		if (worker_shared->supervisors[i].hungry_since_us != 0)
			wake_supervisor(&worker_shared->supervisors[i]);
	}
}

/*
 * The extension was created or dropped in this database, and that is
 * committed. Called in a commit callback; never raises.
 */
void
worker_extension_changed(Oid database)
{
	bool		known = false;

	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < worker_shared->nsupervisors; i++)
	{
		SupervisorSlot *slot = &worker_shared->supervisors[i];

		if (has_supervisor(slot, database))
		{
			known = true;
			slot->recheck = true;
			slot->changes++;
			wake_supervisor(slot);
		}
	}
	if (!known)
		want(database);
	slots_wake(worker_shared->launcher_pid, worker_shared->launcher_procno);
	LWLockRelease(&worker_shared->lock);
}

/* This server was promoted: every database is probed again, and everybody looks. */
void
worker_note_promotion(void)
{
	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	worker_shared->all_wanted = true;
	for (int i = 0; i < worker_shared->nsupervisors; i++)
		worker_shared->supervisors[i].recheck = true;
	LWLockRelease(&worker_shared->lock);
	worker_wake_all();
}

/* ---------------------------------------------------------------- supervisor slots */

/* The launcher is here. */
void
worker_launcher_attach(void)
{
	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	worker_shared->launcher_pid = MyProcPid;
	worker_shared->launcher_procno = compat_my_procno();
	LWLockRelease(&worker_shared->lock);
}

/*
 * The databases that are to be probed again, at most `limit`. Returns true
 * when it is all of them.
 */
bool
worker_take_wanted(Oid *databases, int *count, int limit)
{
	bool		all;

	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	all = worker_shared->all_wanted || worker_shared->nwanted > limit;
	*count = all ? 0 : worker_shared->nwanted;
	memcpy(databases, worker_shared->wanted, sizeof(Oid) * *count);
	worker_shared->nwanted = 0;
	worker_shared->all_wanted = false;
	LWLockRelease(&worker_shared->lock);
	return all;
}

/* The caller holds the lock. */
bool
slots_is_paused(Oid database)
{
	for (int i = 0; i < PAUSES_MAX; i++)
	{
		if (worker_shared->pauses[i].database == database &&
			worker_is_alive(worker_shared->pauses[i].pid, worker_shared->pauses[i].procno))
			return true;
	}
	return false;
}

/*
 * A slot for a database's supervisor: its number, or RESERVE_NONE_FREE,
 * RESERVE_PAUSED, or RESERVE_RUNNING when it has one.
 */
int
worker_supervisor_reserve(Oid database, uint32 *generation)
{
	int			found = RESERVE_NONE_FREE;

	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	if (slots_is_paused(database))
		found = RESERVE_PAUSED;
	for (int i = 0; i < worker_shared->nsupervisors && found != RESERVE_PAUSED; i++)
	{
		SupervisorSlot *slot = &worker_shared->supervisors[i];

		if (has_supervisor(slot, database))
		{
			found = RESERVE_RUNNING;
			break;
		}
		if (slot->state == SUPERVISOR_FREE && found < 0)
			found = i;
	}
	if (found >= 0)
	{
		SupervisorSlot *slot = &worker_shared->supervisors[found];

		*generation = slot->generation + 1;
		memset(slot, 0, sizeof(*slot));
		slot->state = SUPERVISOR_STARTING;
		slot->generation = *generation;
		slot->database = database;
		slot->registered_us = clock_now_us();
	}
	LWLockRelease(&worker_shared->lock);
	return found;
}

/* Remembers the process of a slot that is given back, if it is not gone yet. The caller holds the lock, exclusively. */
void
slots_note_leaver(Oid database, int pid, int procno)
{
	if (!worker_is_alive(pid, procno))
		return;
	for (int i = 0; i < LEAVERS_MAX; i++)
	{
		Leaver	   *leaver = &worker_shared->leavers[i];

		if (worker_is_alive(leaver->pid, leaver->procno))
			continue;
		leaver->database = database;
		leaver->pid = pid;
		leaver->procno = procno;
		return;
	}
}

/* Gives a supervisor slot back, if it is still this one's. */
void
worker_supervisor_free(int slot, uint32 generation)
{
	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	if (worker_shared->supervisors[slot].generation == generation)
	{
		slots_note_leaver(worker_shared->supervisors[slot].database, worker_shared->supervisors[slot].pid, worker_shared->supervisors[slot].procno);
		worker_shared->supervisors[slot].generation++;
		worker_shared->supervisors[slot].state = SUPERVISOR_FREE;
		worker_shared->supervisors[slot].database = InvalidOid;
		worker_shared->supervisors[slot].pid = 0;
		worker_shared->supervisors[slot].hungry_since_us = 0;
	}
	LWLockRelease(&worker_shared->lock);
}

/* How many supervisor slots there are. */
int
worker_supervisors(void)
{
	return worker_shared->nsupervisors;
}

/* A copy of a supervisor slot; false when it is free. */
bool
worker_supervisor_get(int slot, SupervisorSlot *copy)
{
	LWLockAcquire(&worker_shared->lock, LW_SHARED);
	*copy = worker_shared->supervisors[slot];
	LWLockRelease(&worker_shared->lock);
	return copy->state != SUPERVISOR_FREE;
}

/*
 * Frees the slot of a supervisor that ended, or that never came. *left says
 * that it found no extension, *absent that there was none after the last CREATE
 * EXTENSION either. False when the slot is in use.
 */
bool
worker_supervisor_collect(int slot, uint32 generation, bool *left, bool *absent)
{
	SupervisorSlot copy;
	bool		over = false;

	*left = *absent = false;
	LWLockAcquire(&worker_shared->lock, LW_SHARED);
	copy = worker_shared->supervisors[slot];
	LWLockRelease(&worker_shared->lock);
	if (copy.generation != generation)
		return false;
	switch (copy.state)
	{
		case SUPERVISOR_ABSENT:
			*left = true;
			*absent = !copy.recheck;
			over = true;
			break;
		case SUPERVISOR_DEAD:
			over = true;
			break;
		case SUPERVISOR_STARTING:
			over = !slots_may_come(copy.registered_us);
			break;
		case SUPERVISOR_RUNNING:
			over = !worker_is_alive(copy.pid, copy.procno);
			break;
		case SUPERVISOR_FREE:
			break;
	}
	if (over)
		worker_supervisor_free(slot, generation);
	return over;
}

/* Asks a supervisor to end. */
void
worker_supervisor_stop(int slot, uint32 generation)
{
	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	if (worker_shared->supervisors[slot].generation == generation)
	{
		SupervisorSlot *supervisor = &worker_shared->supervisors[slot];

		supervisor->stop = true;
		if (supervisor->state == SUPERVISOR_RUNNING)
			kill(supervisor->pid, SIGTERM);
	}
	LWLockRelease(&worker_shared->lock);
}

/* Tells a runner to end. The caller holds the lock, exclusively. */
void
slots_tell_to_end(RunnerSlot *runner)
{
	runner->stop = true;
	/* while it is RUNNING the process has not left yet: the pid is its own */
	if (runner->state == RUNNER_RUNNING)
		kill(runner->pid, SIGTERM);
}

/*
 * Has a supervisor start no run any more, and its runs end: it writes down how
 * they do. True when there is none left, or when that takes too long.
 */
bool
worker_supervisor_drain(int slot, uint32 generation)
{
	SupervisorSlot *supervisor = &worker_shared->supervisors[slot];
	bool		drained = true;

	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	if (supervisor->generation == generation && supervisor->state == SUPERVISOR_RUNNING)
	{
		if (supervisor->drained_since_us == 0)
			supervisor->drained_since_us = clock_now_us();
		for (int i = 0; i < worker_shared->nrunners; i++)
		{
			RunnerSlot *runner = &worker_runners[i];

			if (runner->state == RUNNER_FREE || runner->task.database != supervisor->database)
				continue;
			drained = false;
			if (!runner->stop && runner->state != RUNNER_EXITED)
				slots_tell_to_end(runner);
		}
		if (clock_now_us() - supervisor->drained_since_us > DRAIN_TIMEOUT_US)
			drained = true;
	}
	LWLockRelease(&worker_shared->lock);
	return drained;
}

/* It goes on after all. */
void
worker_supervisor_undrain(int slot, uint32 generation)
{
	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	if (worker_shared->supervisors[slot].generation == generation)
	{
		worker_shared->supervisors[slot].drained_since_us = 0;
		wake_supervisor(&worker_shared->supervisors[slot]);
	}
	LWLockRelease(&worker_shared->lock);
}

/* Whether a database's supervisor is to start no run. The caller holds the lock. */
bool
slots_is_drained(Oid database)
{
	for (int i = 0; i < worker_shared->nsupervisors; i++)
	{
		if (has_supervisor(&worker_shared->supervisors[i], database) && worker_shared->supervisors[i].drained_since_us != 0)
			return true;
	}
	return false;
}

/* A supervisor takes the slot it was made for. False: it is not wanted any more. */
bool
worker_supervisor_attach(int slot, uint32 generation)
{
	bool		wanted = false;

	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	if (worker_shared->supervisors[slot].generation == generation &&
		worker_shared->supervisors[slot].state == SUPERVISOR_STARTING)
	{
		SupervisorSlot *supervisor = &worker_shared->supervisors[slot];

		supervisor->pid = MyProcPid;
		supervisor->procno = compat_my_procno();
		wanted = !supervisor->stop;
		supervisor->state = wanted ? SUPERVISOR_RUNNING : SUPERVISOR_DEAD;
	}
	LWLockRelease(&worker_shared->lock);
	return wanted;
}

/* Whether a supervisor is in this database, or about to come. */
bool
worker_has_supervisor(Oid database)
{
	bool		result = false;

	LWLockAcquire(&worker_shared->lock, LW_SHARED);
	for (int i = 0; i < worker_shared->nsupervisors && !result; i++)
		result = is_supervising(&worker_shared->supervisors[i], database);
	LWLockRelease(&worker_shared->lock);
	return result;
}

/*
 * Says whether some supervisor finds no place in max_worker_processes. As long
 * as it does not, no runner is started that would take the place.
 */
void
worker_supervisors_starve(bool starving)
{
	if (worker_shared->starving == starving)
		return;
	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	worker_shared->starving = starving;
	if (!starving)
		slots_wake_hungry();
	LWLockRelease(&worker_shared->lock);
}

/* A number that differs whenever a task may have changed. Takes no lock: the latch orders it. */
uint32
worker_supervisor_changes(int slot)
{
	pg_read_barrier();
	return worker_shared->supervisors[slot].changes;
}

/*
 * A number that differs after every wake. Whoever waits for a heavyweight lock
 * resets the latch meanwhile: a supervisor compares this one before it sleeps.
 */
uint32
worker_supervisor_wakes(int slot)
{
	pg_memory_barrier();
	return worker_shared->supervisors[slot].wakes;
}

/*
 * A supervisor found no extension and is about to end. False when the
 * extension came or went since it looked: it must look again.
 */
bool
worker_supervisor_absent(int slot)
{
	bool		agreed;

	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	agreed = !worker_shared->supervisors[slot].recheck;
	worker_shared->supervisors[slot].recheck = false;
	if (agreed)
		worker_shared->supervisors[slot].state = SUPERVISOR_ABSENT;
	LWLockRelease(&worker_shared->lock);
	return agreed;
}

/* A supervisor ends. Called when its locks are gone; never raises. */
void
worker_supervisor_exit(int slot, uint32 generation)
{
	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	if (worker_shared->supervisors[slot].generation == generation)
	{
		if (worker_shared->supervisors[slot].state == SUPERVISOR_RUNNING)
			worker_shared->supervisors[slot].state = SUPERVISOR_DEAD;
		worker_shared->supervisors[slot].ended_us = clock_now_us();
		worker_shared->supervisors[slot].hungry_since_us = 0;
	}
	slots_wake(worker_shared->launcher_pid, worker_shared->launcher_procno);
	LWLockRelease(&worker_shared->lock);
}

/* Since when this supervisor's latest task has waited for a runner; 0: none does. */
void
worker_supervisor_hungry(int slot, int64 since_us)
{
	SupervisorSlot *supervisor = &worker_shared->supervisors[slot];

	if (supervisor->hungry_since_us == 0 && since_us == 0)
		return;
	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	supervisor->hungry_since_us = since_us;
	supervisor->hungry_noted_us = clock_now_us();
	/* who stood back for this one need not any more */
	if (since_us == 0)
		slots_wake_hungry();
	LWLockRelease(&worker_shared->lock);
}

/* How many other databases have a task that has waited for longer. The caller holds the lock. */
int
slots_count_hungrier(Oid database, int64 since_us)
{
	int			count = 0;

	for (int i = 0; i < worker_shared->nsupervisors; i++)
	{
		const SupervisorSlot *slot = &worker_shared->supervisors[i];

		if (slot->state == SUPERVISOR_RUNNING && slot->database != database &&
			slot->hungry_since_us != 0 && slot->hungry_since_us < since_us &&
			clock_now_us() - slot->hungry_noted_us < HUNGER_LAPSES_US && !slots_is_paused(slot->database))
			count++;
	}
	return count;
}

/* ---------------------------------------------------------------- pausing for DDL */

/*
 * From now on no worker of ours is started in this database, until
 * worker_resume() or until this process is gone. False when there are too
 * many such databases.
 */
bool
worker_pause(Oid database)
{
	bool		done = false;

	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < PAUSES_MAX && !done; i++)
	{
		Pause	   *pause = &worker_shared->pauses[i];

		if (OidIsValid(pause->database) && worker_is_alive(pause->pid, pause->procno))
			continue;
		pause->database = database;
		pause->pid = MyProcPid;
		pause->procno = compat_my_procno();
		done = true;
	}
	LWLockRelease(&worker_shared->lock);
	return done;
}

/* Ends this process's pause of a database. Never raises. */
void
worker_resume(Oid database)
{
	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < PAUSES_MAX; i++)
	{
		if (worker_shared->pauses[i].database == database && worker_shared->pauses[i].pid == MyProcPid)
		{
			worker_shared->pauses[i].database = InvalidOid;
			want(database);
			break;
		}
	}
	slots_wake(worker_shared->launcher_pid, worker_shared->launcher_procno);
	LWLockRelease(&worker_shared->lock);
}

/* Whether some process has paused this database. */
bool
worker_is_paused(Oid database)
{
	bool		result;

	LWLockAcquire(&worker_shared->lock, LW_SHARED);
	result = slots_is_paused(database);
	LWLockRelease(&worker_shared->lock);
	return result;
}

/*
 * Asks every worker in a database to end, this process excepted. Returns the
 * process id of one that is still there, -1 for one that was registered
 * and did not come yet, 0 when all are gone. Who comes later than that finds
 * that it was asked to end.
 */
int
worker_stop_database(Oid database)
{
	int			left = 0;

	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < LEAVERS_MAX; i++)
	{
		const Leaver *leaver = &worker_shared->leavers[i];

		if (leaver->database == database && leaver->pid != MyProcPid && worker_is_alive(leaver->pid, leaver->procno))
			left = leaver->pid;
	}
	for (int i = 0; i < worker_shared->nsupervisors; i++)
	{
		SupervisorSlot *slot = &worker_shared->supervisors[i];

		if (!has_supervisor(slot, database))
			continue;
		slot->stop = true;
		if (slot->state == SUPERVISOR_STARTING)
			left = slots_may_come(slot->registered_us) ? -1 : left;
		else if (worker_is_alive(slot->pid, slot->procno))
		{
			left = slot->pid;
			if (slot->state == SUPERVISOR_RUNNING)
				kill(slot->pid, SIGTERM);
		}
	}
	for (int i = 0; i < worker_shared->nrunners; i++)
	{
		RunnerSlot *slot = &worker_runners[i];

		if (slot->state == RUNNER_FREE || slot->task.database != database || slot->pid == MyProcPid)
			continue;
		slot->stop = true;
		if (slot->state == RUNNER_STARTING)
			left = slots_may_come(slot->registered_us) ? -1 : left;
		else if (worker_is_alive(slot->pid, slot->procno))
		{
			left = slot->pid;
			if (slot->state == RUNNER_RUNNING)
				kill(slot->pid, SIGTERM);
		}
	}
	LWLockRelease(&worker_shared->lock);
	return left;
}
