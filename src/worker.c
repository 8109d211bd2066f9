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

#include "mb/pg_wchar.h"
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
#include "worker.h"

#define WANTED_MAX 64
#define PAUSES_MAX 64
#define LEAVERS_MAX 64

/* A worker that was registered and did not come in this time never will. */
#define REGISTRATION_TIMEOUT_US (10 * US_PER_S)

/* How long a supervisor that is not wanted any more has for its runs to end. */
#define DRAIN_TIMEOUT_US (10 * US_PER_S)

/* A supervisor that waits for a runner says so at least once a second; what it said earlier counts no more. */
#define HUNGER_LAPSES_US (2 * US_PER_S)

typedef struct Pause
{
	Oid			database;		/* 0: free */
	int			pid;
	int			procno;
} Pause;

/* A worker that has given its slot back and is not gone yet */
typedef struct Leaver
{
	Oid			database;
	int			pid;			/* 0: nobody */
	int			procno;
} Leaver;

typedef struct WorkerShared
{
	int			tranche;
	LWLock		lock;
	int			launcher_pid;
	int			launcher_procno;
	int			nwanted;
	bool		all_wanted;
	bool		starving;		/* a supervisor finds no place: no runner is started */
	Oid			wanted[WANTED_MAX]; /* databases to be probed (again) */
	Pause		pauses[PAUSES_MAX];
	Leaver		leavers[LEAVERS_MAX];
	int			nsupervisors;
	int			nrunners;
	SupervisorSlot supervisors[FLEXIBLE_ARRAY_MEMBER];
	/* the runner slots follow */
} WorkerShared;

static WorkerShared *shared = NULL;
static RunnerSlot *runners = NULL;

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
	return add_size(supervisors_size(), mul_size(sizeof(RunnerSlot), guc_max_runners));
}

/* Called by shmem.c at every start of shared memory, with zeroed memory if not found. */
void
worker_shmem_init(void *place, bool found)
{
	shared = place;
	runners = (RunnerSlot *) ((char *) place + supervisors_size());
	if (!found)
	{
		shared->tranche = LWLockNewTrancheId();
		LWLockInitialize(&shared->lock, shared->tranche);
		shared->nsupervisors = max_worker_processes;
		shared->nrunners = guc_max_runners;
	}
	LWLockRegisterTranche(shared->tranche, "RevenantWorkers");
}

/* Copies text, cut at a whole character. */
static void
clip(char *target, const char *source, int size)
{
	int			length = pg_mbcliplen(source, (int) strlen(source), size - 1);

	memcpy(target, source, length);
	target[length] = '\0';
}

/* ---------------------------------------------------------------- processes */

/* Sets a process's latch. Harmless when the place in the array has another owner by now. */
static void
wake(int pid, int procno)
{
	if (pid != 0)
		SetLatch(&GetPGProcByNumber(procno)->procLatch);
}

/* Makes the launcher look again. Never raises. */
void
worker_wake_launcher(void)
{
	LWLockAcquire(&shared->lock, LW_SHARED);
	wake(shared->launcher_pid, shared->launcher_procno);
	LWLockRelease(&shared->lock);
}

/* Whether a worker that was registered may still come. */
static bool
may_come(int64 registered_us)
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
	wake(slot->pid, slot->procno);
}

/* Has the launcher probe a database, at once. The caller holds the lock. */
static void
want(Oid database)
{
	for (int i = 0; i < shared->nwanted; i++)
	{
		if (shared->wanted[i] == database)
			return;
	}
	if (shared->nwanted < WANTED_MAX)
		shared->wanted[shared->nwanted++] = database;
	else
		shared->all_wanted = true;
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

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared->nsupervisors; i++)
	{
		SupervisorSlot *slot = &shared->supervisors[i];

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
		wake(shared->launcher_pid, shared->launcher_procno);
	}
	LWLockRelease(&shared->lock);
}

/* Makes a database's supervisor tick once more. False: there is none. The caller holds the lock, exclusively. */
static bool
nudge_supervisor(Oid database)
{
	bool		supervised = false;

	for (int i = 0; i < shared->nsupervisors; i++)
	{
		if (is_supervising(&shared->supervisors[i], database))
		{
			supervised = true;
			wake_supervisor(&shared->supervisors[i]);
		}
	}
	return supervised;
}

/* Makes a database's supervisor tick once more, where there is one; no task has changed. */
void
worker_nudge_supervisor(Oid database)
{
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	(void) nudge_supervisor(database);
	LWLockRelease(&shared->lock);
}

/* Makes the launcher and every supervisor look again. Never raises. */
void
worker_wake_all(void)
{
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared->nsupervisors; i++)
	{
		shared->supervisors[i].changes++;
		wake_supervisor(&shared->supervisors[i]);
	}
	wake(shared->launcher_pid, shared->launcher_procno);
	LWLockRelease(&shared->lock);
}

/* Wakes the supervisors that wait for a runner. The caller holds the lock, exclusively. */
static void
wake_hungry(void)
{
	for (int i = 0; i < shared->nsupervisors; i++)
	{
		if (shared->supervisors[i].hungry_since_us != 0)
			wake_supervisor(&shared->supervisors[i]);
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

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared->nsupervisors; i++)
	{
		SupervisorSlot *slot = &shared->supervisors[i];

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
	wake(shared->launcher_pid, shared->launcher_procno);
	LWLockRelease(&shared->lock);
}

/* This server was promoted: every database is probed again, and everybody looks. */
void
worker_note_promotion(void)
{
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	shared->all_wanted = true;
	for (int i = 0; i < shared->nsupervisors; i++)
		shared->supervisors[i].recheck = true;
	LWLockRelease(&shared->lock);
	worker_wake_all();
}

/* ---------------------------------------------------------------- supervisor slots */

/* The launcher is here. */
void
worker_launcher_attach(void)
{
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	shared->launcher_pid = MyProcPid;
	shared->launcher_procno = compat_my_procno();
	LWLockRelease(&shared->lock);
}

/*
 * The databases that are to be probed again, at most `limit`. Returns true
 * when it is all of them.
 */
bool
worker_take_wanted(Oid *databases, int *count, int limit)
{
	bool		all;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	all = shared->all_wanted || shared->nwanted > limit;
	*count = all ? 0 : shared->nwanted;
	memcpy(databases, shared->wanted, sizeof(Oid) * *count);
	shared->nwanted = 0;
	shared->all_wanted = false;
	LWLockRelease(&shared->lock);
	return all;
}

/* The caller holds the lock. */
static bool
is_paused(Oid database)
{
	for (int i = 0; i < PAUSES_MAX; i++)
	{
		if (shared->pauses[i].database == database &&
			worker_is_alive(shared->pauses[i].pid, shared->pauses[i].procno))
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

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	if (is_paused(database))
		found = RESERVE_PAUSED;
	for (int i = 0; i < shared->nsupervisors && found != RESERVE_PAUSED; i++)
	{
		SupervisorSlot *slot = &shared->supervisors[i];

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
		SupervisorSlot *slot = &shared->supervisors[found];

		*generation = slot->generation + 1;
		memset(slot, 0, sizeof(*slot));
		slot->state = SUPERVISOR_STARTING;
		slot->generation = *generation;
		slot->database = database;
		slot->registered_us = clock_now_us();
	}
	LWLockRelease(&shared->lock);
	return found;
}

/* Remembers the process of a slot that is given back, if it is not gone yet. The caller holds the lock, exclusively. */
static void
note_leaver(Oid database, int pid, int procno)
{
	if (!worker_is_alive(pid, procno))
		return;
	for (int i = 0; i < LEAVERS_MAX; i++)
	{
		Leaver	   *leaver = &shared->leavers[i];

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
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	if (shared->supervisors[slot].generation == generation)
	{
		note_leaver(shared->supervisors[slot].database, shared->supervisors[slot].pid, shared->supervisors[slot].procno);
		shared->supervisors[slot].generation++;
		shared->supervisors[slot].state = SUPERVISOR_FREE;
		shared->supervisors[slot].database = InvalidOid;
		shared->supervisors[slot].pid = 0;
		shared->supervisors[slot].hungry_since_us = 0;
	}
	LWLockRelease(&shared->lock);
}

/* How many supervisor slots there are. */
int
worker_supervisors(void)
{
	return shared->nsupervisors;
}

/* A copy of a supervisor slot; false when it is free. */
bool
worker_supervisor_get(int slot, SupervisorSlot *copy)
{
	LWLockAcquire(&shared->lock, LW_SHARED);
	*copy = shared->supervisors[slot];
	LWLockRelease(&shared->lock);
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
	LWLockAcquire(&shared->lock, LW_SHARED);
	copy = shared->supervisors[slot];
	LWLockRelease(&shared->lock);
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
			over = !may_come(copy.registered_us);
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
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	if (shared->supervisors[slot].generation == generation)
	{
		SupervisorSlot *supervisor = &shared->supervisors[slot];

		supervisor->stop = true;
		if (supervisor->state == SUPERVISOR_RUNNING)
			kill(supervisor->pid, SIGTERM);
	}
	LWLockRelease(&shared->lock);
}

/* Tells a runner to end. The caller holds the lock, exclusively. */
static void
tell_to_end(RunnerSlot *runner)
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
	SupervisorSlot *supervisor = &shared->supervisors[slot];
	bool		drained = true;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	if (supervisor->generation == generation && supervisor->state == SUPERVISOR_RUNNING)
	{
		if (supervisor->drained_since_us == 0)
			supervisor->drained_since_us = clock_now_us();
		for (int i = 0; i < shared->nrunners; i++)
		{
			RunnerSlot *runner = &runners[i];

			if (runner->state == RUNNER_FREE || runner->task.database != supervisor->database)
				continue;
			drained = false;
			if (!runner->stop && runner->state != RUNNER_EXITED)
				tell_to_end(runner);
		}
		if (clock_now_us() - supervisor->drained_since_us > DRAIN_TIMEOUT_US)
			drained = true;
	}
	LWLockRelease(&shared->lock);
	return drained;
}

/* It goes on after all. */
void
worker_supervisor_undrain(int slot, uint32 generation)
{
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	if (shared->supervisors[slot].generation == generation)
	{
		shared->supervisors[slot].drained_since_us = 0;
		wake_supervisor(&shared->supervisors[slot]);
	}
	LWLockRelease(&shared->lock);
}

/* Whether a database's supervisor is to start no run. The caller holds the lock. */
static bool
is_drained(Oid database)
{
	for (int i = 0; i < shared->nsupervisors; i++)
	{
		if (has_supervisor(&shared->supervisors[i], database) && shared->supervisors[i].drained_since_us != 0)
			return true;
	}
	return false;
}

/* A supervisor takes the slot it was made for. False: it is not wanted any more. */
bool
worker_supervisor_attach(int slot, uint32 generation)
{
	bool		wanted = false;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	if (shared->supervisors[slot].generation == generation &&
		shared->supervisors[slot].state == SUPERVISOR_STARTING)
	{
		SupervisorSlot *supervisor = &shared->supervisors[slot];

		supervisor->pid = MyProcPid;
		supervisor->procno = compat_my_procno();
		wanted = !supervisor->stop;
		supervisor->state = wanted ? SUPERVISOR_RUNNING : SUPERVISOR_DEAD;
	}
	LWLockRelease(&shared->lock);
	return wanted;
}

/* Whether a supervisor is in this database, or about to come. */
bool
worker_has_supervisor(Oid database)
{
	bool		result = false;

	LWLockAcquire(&shared->lock, LW_SHARED);
	for (int i = 0; i < shared->nsupervisors && !result; i++)
		result = is_supervising(&shared->supervisors[i], database);
	LWLockRelease(&shared->lock);
	return result;
}

/*
 * Says whether some supervisor finds no place in max_worker_processes. As long
 * as it does not, no runner is started that would take the place.
 */
void
worker_supervisors_starve(bool starving)
{
	if (shared->starving == starving)
		return;
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	shared->starving = starving;
	if (!starving)
		wake_hungry();
	LWLockRelease(&shared->lock);
}

/* A number that differs whenever a task may have changed. Takes no lock: the latch orders it. */
uint32
worker_supervisor_changes(int slot)
{
	pg_read_barrier();
	return shared->supervisors[slot].changes;
}

/*
 * A number that differs after every wake. Whoever waits for a heavyweight lock
 * resets the latch meanwhile: a supervisor compares this one before it sleeps.
 */
uint32
worker_supervisor_wakes(int slot)
{
	pg_memory_barrier();
	return shared->supervisors[slot].wakes;
}

/*
 * A supervisor found no extension and is about to end. False when the
 * extension came or went since it looked: it must look again.
 */
bool
worker_supervisor_absent(int slot)
{
	bool		agreed;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	agreed = !shared->supervisors[slot].recheck;
	shared->supervisors[slot].recheck = false;
	if (agreed)
		shared->supervisors[slot].state = SUPERVISOR_ABSENT;
	LWLockRelease(&shared->lock);
	return agreed;
}

/* A supervisor ends. Called when its locks are gone; never raises. */
void
worker_supervisor_exit(int slot, uint32 generation)
{
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	if (shared->supervisors[slot].generation == generation)
	{
		if (shared->supervisors[slot].state == SUPERVISOR_RUNNING)
			shared->supervisors[slot].state = SUPERVISOR_DEAD;
		shared->supervisors[slot].ended_us = clock_now_us();
		shared->supervisors[slot].hungry_since_us = 0;
	}
	wake(shared->launcher_pid, shared->launcher_procno);
	LWLockRelease(&shared->lock);
}

/* Since when this supervisor's latest task has waited for a runner; 0: none does. */
void
worker_supervisor_hungry(int slot, int64 since_us)
{
	SupervisorSlot *supervisor = &shared->supervisors[slot];

	if (supervisor->hungry_since_us == 0 && since_us == 0)
		return;
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	supervisor->hungry_since_us = since_us;
	supervisor->hungry_noted_us = clock_now_us();
	/* who stood back for this one need not any more */
	if (since_us == 0)
		wake_hungry();
	LWLockRelease(&shared->lock);
}

/* How many other databases have a task that has waited for longer. The caller holds the lock. */
static int
count_hungrier(Oid database, int64 since_us)
{
	int			count = 0;

	for (int i = 0; i < shared->nsupervisors; i++)
	{
		const SupervisorSlot *slot = &shared->supervisors[i];

		if (slot->state == SUPERVISOR_RUNNING && slot->database != database &&
			slot->hungry_since_us != 0 && slot->hungry_since_us < since_us &&
			clock_now_us() - slot->hungry_noted_us < HUNGER_LAPSES_US && !is_paused(slot->database))
			count++;
	}
	return count;
}

/* ---------------------------------------------------------------- runner slots */

/*
 * A slot for a run of a task, filled in as `wanted` says: its number, or
 * RESERVE_NONE_FREE, RESERVE_PAUSED, or RESERVE_RUNNING when the task has one
 * already: there are never two. The last slots are left to the databases whose
 * tasks have been due for longer than since_us.
 */
int
worker_runner_reserve(const RunnerRequest *wanted, int64 since_us, uint32 *generation)
{
	int			found = RESERVE_NONE_FREE;
	int			nfree = 0;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	if (is_paused(wanted->task.database) || is_drained(wanted->task.database))
		found = RESERVE_PAUSED;
	for (int i = 0; i < shared->nrunners && found != RESERVE_PAUSED; i++)
	{
		if (runners[i].state == RUNNER_FREE)
		{
			nfree++;
			if (found < 0)
				found = i;
		}
		else if (memcmp(&runners[i].task, &wanted->task, sizeof(TaskKey)) == 0)
		{
			found = RESERVE_RUNNING;
			break;
		}
	}
	if (found >= 0 && (shared->starving || nfree <= count_hungrier(wanted->task.database, since_us)))
		found = RESERVE_NONE_FREE;
	if (found >= 0)
	{
		RunnerSlot *slot = &runners[found];

		*generation = slot->generation + 1;
		memset(slot, 0, sizeof(*slot));
		slot->state = RUNNER_STARTING;
		slot->generation = *generation;
		slot->task = wanted->task;
		slot->life = wanted->life;
		slot->follows = wanted->follows;
		slot->scheduled = wanted->scheduled;
		slot->fire_at = wanted->fire_at;
		slot->next_run = wanted->next_run;
		slot->requests_before = wanted->requests_before;
		slot->requests = wanted->requests;
		slot->registered_us = clock_now_us();
		slot->due_us = since_us != 0 ? since_us : slot->registered_us;
		strlcpy(slot->name, wanted->name, sizeof(slot->name));
	}
	LWLockRelease(&shared->lock);
	return found;
}

/* The caller holds the lock. */
static bool
free_runner(int slot, uint32 generation)
{
	if (runners[slot].generation != generation)
		return false;
	note_leaver(runners[slot].task.database, runners[slot].pid, runners[slot].procno);
	runners[slot].generation++;
	runners[slot].state = RUNNER_FREE;
	runners[slot].pid = 0;
	return true;
}

/* Frees the slot of a runner that ended: who waits for one may try. */
void
worker_runner_free(int slot, uint32 generation)
{
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	if (free_runner(slot, generation))
		wake_hungry();
	/* who has a supervisor drained waits for this */
	if (is_drained(runners[slot].task.database))
		wake(shared->launcher_pid, shared->launcher_procno);
	LWLockRelease(&shared->lock);
}

/* Gives back a slot for which no process was started. Wakes nobody: there is no more room than before. */
void
worker_runner_give_back(int slot, uint32 generation)
{
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	(void) free_runner(slot, generation);
	LWLockRelease(&shared->lock);
}

/*
 * The next runner slot of a database (of any database, if InvalidOid) in use,
 * from number `from` on: its number, and a copy. -1: none.
 */
int
worker_runner_next(int from, Oid database, RunnerSlot *copy)
{
	int			found = -1;

	LWLockAcquire(&shared->lock, LW_SHARED);
	for (int i = from; i < shared->nrunners && found < 0; i++)
	{
		if (runners[i].state != RUNNER_FREE &&
			(database == InvalidOid || runners[i].task.database == database))
		{
			*copy = runners[i];
			found = i;
		}
	}
	LWLockRelease(&shared->lock);
	return found;
}

/* The process that runs a task as its leader, or 0. */
int
worker_runner_pid(const TaskKey *task)
{
	int			pid = 0;

	LWLockAcquire(&shared->lock, LW_SHARED);
	for (int i = 0; i < shared->nrunners; i++)
	{
		if (runners[i].state == RUNNER_RUNNING && !runners[i].follows && memcmp(&runners[i].task, task, sizeof(TaskKey)) == 0)
			pid = runners[i].pid;
	}
	LWLockRelease(&shared->lock);
	return pid;
}

/* The runner slot of a task, and a copy. False: it has none. */
bool
worker_runner_find(const TaskKey *task, int *slot, RunnerSlot *copy)
{
	bool		found = false;

	LWLockAcquire(&shared->lock, LW_SHARED);
	for (int i = 0; i < shared->nrunners && !found; i++)
	{
		if (runners[i].state != RUNNER_FREE && memcmp(&runners[i].task, task, sizeof(TaskKey)) == 0)
		{
			*copy = runners[i];
			*slot = i;
			found = true;
		}
	}
	LWLockRelease(&shared->lock);
	return found;
}

/* Asks a runner to end. False when it has ended. */
bool
worker_runner_stop(int slot, uint32 generation)
{
	bool		there = false;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	if (runners[slot].generation == generation)
	{
		there = runners[slot].state == RUNNER_STARTING || runners[slot].state == RUNNER_RUNNING;
		tell_to_end(&runners[slot]);
	}
	LWLockRelease(&shared->lock);
	return there;
}

/* The same for one that has not used up what it was started for. False: it has, or it has ended. */
bool
worker_runner_withdraw(int slot, uint32 generation)
{
	bool		withdrawn;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	withdrawn = runners[slot].generation == generation && !runners[slot].committed &&
		(runners[slot].state == RUNNER_STARTING || runners[slot].state == RUNNER_RUNNING);
	if (withdrawn)
		tell_to_end(&runners[slot]);
	LWLockRelease(&shared->lock);
	return withdrawn;
}

/*
 * Marks as ended a runner that is gone without having said so, or that never
 * came (the caller knows, or has waited too long). True when it did.
 */
bool
worker_runner_reap(int slot, uint32 generation, bool never_came)
{
	bool		reaped = false;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	if (runners[slot].generation == generation)
	{
		RunnerSlot *runner = &runners[slot];

		if (runner->state == RUNNER_RUNNING)
			reaped = !worker_is_alive(runner->pid, runner->procno);
		else if (runner->state == RUNNER_STARTING)
			reaped = never_came || !may_come(runner->registered_us);
		if (reaped)
		{
			runner->state = RUNNER_EXITED;
			runner->ended_us = clock_now_us();
		}
	}
	LWLockRelease(&shared->lock);
	return reaped;
}

/* A runner takes the slot it was made for. False: it is not wanted any more. */
bool
worker_runner_attach(int slot, uint32 generation)
{
	bool		wanted = false;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	if (runners[slot].generation == generation && runners[slot].state == RUNNER_STARTING)
	{
		RunnerSlot *runner = &runners[slot];

		wanted = !runner->stop;
		runner->pid = MyProcPid;
		runner->procno = compat_my_procno();
		runner->state = wanted ? RUNNER_RUNNING : RUNNER_EXITED;
		runner->ended_us = clock_now_us();
	}
	LWLockRelease(&shared->lock);
	return wanted;
}

/* A copy of a runner slot; false when it has another owner by now. */
bool
worker_runner_get(int slot, uint32 generation, RunnerSlot *copy)
{
	LWLockAcquire(&shared->lock, LW_SHARED);
	*copy = runners[slot];
	LWLockRelease(&shared->lock);
	return copy->generation == generation && copy->state != RUNNER_FREE;
}

/* A runner is about to commit that its run begins. False: it was withdrawn, or told to end. */
bool
worker_runner_commit(int slot, uint32 generation)
{
	bool		wanted = false;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	if (runners[slot].generation == generation)
		wanted = runners[slot].committed = !runners[slot].stop;
	LWLockRelease(&shared->lock);
	return wanted;
}

/* A runner has the lease, and that is committed; or it is about to begin its follower_command, without a token. */
void
worker_runner_lead(int slot, uint32 generation, int64 token, int64 run)
{
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	if (runners[slot].generation == generation)
	{
		runners[slot].token = token;
		runners[slot].run = run;
		runners[slot].started_us = clock_now_us();
	}
	LWLockRelease(&shared->lock);
}

/* A runner ends. Called when its locks are gone; never raises. */
void
worker_runner_exit(int slot, uint32 generation, RunOutcome outcome, const char *sqlstate, const char *message)
{
	Oid			database = InvalidOid;
	bool		supervised = false;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	if (runners[slot].generation == generation && runners[slot].state == RUNNER_RUNNING)
	{
		RunnerSlot *runner = &runners[slot];

		runner->state = RUNNER_EXITED;
		runner->ended_us = clock_now_us();
		runner->outcome = outcome;
		strlcpy(runner->sqlstate, sqlstate, sizeof(runner->sqlstate));
		clip(runner->message, message, sizeof(runner->message));
		database = runner->task.database;
	}
	if (OidIsValid(database))
		supervised = nudge_supervisor(database);
	/* then it is the launcher that frees the slot; or it waits for the place */
	if (!supervised || shared->starving)
		wake(shared->launcher_pid, shared->launcher_procno);
	LWLockRelease(&shared->lock);
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

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < PAUSES_MAX && !done; i++)
	{
		Pause	   *pause = &shared->pauses[i];

		if (OidIsValid(pause->database) && worker_is_alive(pause->pid, pause->procno))
			continue;
		pause->database = database;
		pause->pid = MyProcPid;
		pause->procno = compat_my_procno();
		done = true;
	}
	LWLockRelease(&shared->lock);
	return done;
}

/* Ends this process's pause of a database. Never raises. */
void
worker_resume(Oid database)
{
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < PAUSES_MAX; i++)
	{
		if (shared->pauses[i].database == database && shared->pauses[i].pid == MyProcPid)
		{
			shared->pauses[i].database = InvalidOid;
			want(database);
			break;
		}
	}
	wake(shared->launcher_pid, shared->launcher_procno);
	LWLockRelease(&shared->lock);
}

/* Whether some process has paused this database. */
bool
worker_is_paused(Oid database)
{
	bool		result;

	LWLockAcquire(&shared->lock, LW_SHARED);
	result = is_paused(database);
	LWLockRelease(&shared->lock);
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

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < LEAVERS_MAX; i++)
	{
		const Leaver *leaver = &shared->leavers[i];

		if (leaver->database == database && leaver->pid != MyProcPid && worker_is_alive(leaver->pid, leaver->procno))
			left = leaver->pid;
	}
	for (int i = 0; i < shared->nsupervisors; i++)
	{
		SupervisorSlot *slot = &shared->supervisors[i];

		if (!has_supervisor(slot, database))
			continue;
		slot->stop = true;
		if (slot->state == SUPERVISOR_STARTING)
			left = may_come(slot->registered_us) ? -1 : left;
		else if (worker_is_alive(slot->pid, slot->procno))
		{
			left = slot->pid;
			if (slot->state == SUPERVISOR_RUNNING)
				kill(slot->pid, SIGTERM);
		}
	}
	for (int i = 0; i < shared->nrunners; i++)
	{
		RunnerSlot *slot = &runners[i];

		if (slot->state == RUNNER_FREE || slot->task.database != database || slot->pid == MyProcPid)
			continue;
		slot->stop = true;
		if (slot->state == RUNNER_STARTING)
			left = may_come(slot->registered_us) ? -1 : left;
		else if (worker_is_alive(slot->pid, slot->procno))
		{
			left = slot->pid;
			if (slot->state == RUNNER_RUNNING)
				kill(slot->pid, SIGTERM);
		}
	}
	LWLockRelease(&shared->lock);
	return left;
}
