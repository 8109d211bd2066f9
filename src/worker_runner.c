/*-------------------------------------------------------------------------
 *
 * worker_runner.c
 *	  The slots of runners: who gets one, and what becomes of it.
 *
 *	  RUNNER_FREE		worker_runner_reserve(), worker_service_reserve(): by a
 *						supervisor, which registers the process
 *	  RUNNER_STARTING	worker_runner_attach(): the process has come
 *	  RUNNER_RUNNING	worker_runner_exit(): it ends; or worker_runner_reap():
 *						it is gone without a word, or never came
 *	  RUNNER_EXITED		worker_runner_free(): the supervisor has written down
 *						what became of it
 *
 * There are two more than revenant.max_runners. A task never takes the last one that a
 * kind of service could take: what tasks do, however many there are, puts off no message.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/lwlock.h"

#include "clock.h"
#include "compat.h"
#include "worker_shared.h"

/* Copies text, cut at a whole character. */
static void
clip(char *target, const char *source, int size)
{
	int			length = pg_mbcliplen(source, (int) strlen(source), size - 1);

	memcpy(target, source, length);
	target[length] = '\0';
}

/* ---------------------------------------------------------------- a place for a run */

/* Whether this slot is in use for a task. */
static bool
is_of_task(const RunnerSlot *slot, const TaskKey *task)
{
	return slot->state != RUNNER_FREE && slot->kind == RUNNER_TASK && memcmp(&slot->task, task, sizeof(TaskKey)) == 0;
}

/* Whether this slot is in use for a service to a role. */
static bool
is_of_service(const RunnerSlot *slot, const ServiceKey *service)
{
	return slot->state != RUNNER_FREE && slot->kind == service->kind && slot->task.database == service->database &&
		slot->task.instance == service->instance && slot->role == service->role;
}

/*
 * A free slot for this kind of runner, or RESERVE_NONE_FREE. As long as a kind
 * of service has no runner one slot is left for it, by all others. *spare is
 * how many there are besides. The caller holds the lock.
 */
static int
find_free(RunnerKind kind, int *spare)
{
	int			found = RESERVE_NONE_FREE;
	int			of_kind[RUNNER_KINDS] = {0};

	*spare = 0;
	for (int i = 0; i < worker_shared->nrunners; i++)
	{
		if (worker_runners[i].state != RUNNER_FREE)
			of_kind[worker_runners[i].kind]++;
		else
		{
			(*spare)++;
			if (found < 0)
				found = i;
		}
	}
	for (int other = RUNNER_TASK + 1; other < RUNNER_KINDS; other++)
	{
		if (other != (int) kind && of_kind[other] == 0)
			(*spare)--;
	}
	return *spare > 0 && !worker_shared->starving ? found : RESERVE_NONE_FREE;
}

/* Gives away a free slot: all of it zero but its generation. The caller holds the lock, exclusively. */
static RunnerSlot *
take(int number, RunnerKind kind, const char *name, uint32 *generation)
{
	RunnerSlot *slot = &worker_runners[number];

	*generation = slot->generation + 1;
	memset(slot, 0, sizeof(*slot));
	slot->state = RUNNER_STARTING;
	slot->generation = *generation;
	slot->kind = kind;
	slot->registered_us = clock_now_us();
	strlcpy(slot->name, name, sizeof(slot->name));
	return slot;
}

/*
 * A slot for a run of a task, filled in as `wanted` says: its number, or
 * RESERVE_NONE_FREE, RESERVE_PAUSED, or RESERVE_RUNNING when the task has one
 * already: there are never two. The last slots are left to the databases whose
 * tasks have been due for longer than since_us.
 */
int
worker_runner_reserve(const RunnerRequest *wanted, int64 since_us, uint32 *generation)
{
	int			found;
	int			spare;

	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	found = find_free(RUNNER_TASK, &spare);
	if (found >= 0 && spare <= slots_count_hungrier(wanted->task.database, since_us))
		found = RESERVE_NONE_FREE;
	for (int i = 0; i < worker_shared->nrunners; i++)
	{
		if (is_of_task(&worker_runners[i], &wanted->task))
			found = RESERVE_RUNNING;
	}
	if (slots_is_paused(wanted->task.database) || slots_is_drained(wanted->task.database))
		found = RESERVE_PAUSED;
	if (found >= 0)
	{
		RunnerSlot *slot = take(found, RUNNER_TASK, wanted->name, generation);

		slot->task = wanted->task;
		slot->life = wanted->life;
		slot->follows = wanted->follows;
		slot->scheduled = wanted->scheduled;
		slot->fire_at = wanted->fire_at;
		slot->next_run = wanted->next_run;
		slot->requests_before = wanted->requests_before;
		slot->requests = wanted->requests;
		slot->due_us = since_us != 0 ? since_us : slot->registered_us;
	}
	LWLockRelease(&worker_shared->lock);
	return found;
}

/*
 * A slot for a service to a role, which has this name: its number, or
 * RESERVE_NONE_FREE, RESERVE_PAUSED, or RESERVE_RUNNING when there is one
 * already: there are never two.
 */
int
worker_service_reserve(const ServiceKey *service, const char *role_name, bool cautious, uint32 *generation)
{
	int			found;
	int			spare;

	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	found = find_free(service->kind, &spare);
	for (int i = 0; i < worker_shared->nrunners; i++)
	{
		if (is_of_service(&worker_runners[i], service))
			found = RESERVE_RUNNING;
	}
	if (slots_is_paused(service->database) || slots_is_drained(service->database))
		found = RESERVE_PAUSED;
	if (found >= 0)
	{
		RunnerSlot *slot = take(found, service->kind, role_name, generation);

		slot->task.database = service->database;
		slot->task.instance = service->instance;
		slot->role = service->role;
		slot->cautious = cautious;
	}
	LWLockRelease(&worker_shared->lock);
	return found;
}

/* The caller holds the lock. */
static bool
free_runner(int slot, uint32 generation)
{
	if (worker_runners[slot].generation != generation)
		return false;
	slots_note_leaver(worker_runners[slot].task.database, worker_runners[slot].pid, worker_runners[slot].procno);
	worker_runners[slot].generation++;
	worker_runners[slot].state = RUNNER_FREE;
	worker_runners[slot].pid = 0;
	return true;
}

/* Frees the slot of a runner that ended: who waits for one may try. */
void
worker_runner_free(int slot, uint32 generation)
{
	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	if (free_runner(slot, generation))
		slots_wake_hungry();
	/* who has a supervisor drained waits for this */
	if (slots_is_drained(worker_runners[slot].task.database))
		slots_wake(worker_shared->launcher_pid, worker_shared->launcher_procno);
	LWLockRelease(&worker_shared->lock);
}

/* Gives back a slot for which no process was started. Wakes nobody: there is no more room than before. */
void
worker_runner_give_back(int slot, uint32 generation)
{
	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	(void) free_runner(slot, generation);
	LWLockRelease(&worker_shared->lock);
}

/*
 * The next runner slot of a database (of any database, if InvalidOid) in use,
 * for a task or a service, from number `from` on: its number, and a copy. -1: none.
 */
int
worker_runner_next(int from, Oid database, RunnerSlot *copy)
{
	int			found = -1;

	LWLockAcquire(&worker_shared->lock, LW_SHARED);
	for (int i = from; i < worker_shared->nrunners && found < 0; i++)
	{
		if (worker_runners[i].state != RUNNER_FREE &&
			(database == InvalidOid || worker_runners[i].task.database == database))
		{
			*copy = worker_runners[i];
			found = i;
		}
	}
	LWLockRelease(&worker_shared->lock);
	return found;
}

/* The process that runs a task as its leader, or 0. */
int
worker_runner_pid(const TaskKey *task)
{
	int			pid = 0;

	LWLockAcquire(&worker_shared->lock, LW_SHARED);
	for (int i = 0; i < worker_shared->nrunners; i++)
	{
		if (is_of_task(&worker_runners[i], task) && worker_runners[i].state == RUNNER_RUNNING && !worker_runners[i].follows)
			pid = worker_runners[i].pid;
	}
	LWLockRelease(&worker_shared->lock);
	return pid;
}

/* The runner slot of a task, and a copy. False: it has none. */
bool
worker_runner_find(const TaskKey *task, int *slot, RunnerSlot *copy)
{
	bool		found = false;

	LWLockAcquire(&worker_shared->lock, LW_SHARED);
	for (int i = 0; i < worker_shared->nrunners && !found; i++)
	{
		if (is_of_task(&worker_runners[i], task))
		{
			*copy = worker_runners[i];
			*slot = i;
			found = true;
		}
	}
	LWLockRelease(&worker_shared->lock);
	return found;
}

/* Asks a runner to end. False when it has ended. */
bool
worker_runner_stop(int slot, uint32 generation)
{
	bool		there = false;

	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	if (worker_runners[slot].generation == generation)
	{
		there = worker_runners[slot].state == RUNNER_STARTING || worker_runners[slot].state == RUNNER_RUNNING;
		slots_tell_to_end(&worker_runners[slot]);
	}
	LWLockRelease(&worker_shared->lock);
	return there;
}

/* The same for one that has not used up what it was started for. False: it has, or it has ended. */
bool
worker_runner_withdraw(int slot, uint32 generation)
{
	bool		withdrawn;

	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	withdrawn = worker_runners[slot].generation == generation && !worker_runners[slot].committed &&
		(worker_runners[slot].state == RUNNER_STARTING || worker_runners[slot].state == RUNNER_RUNNING);
	if (withdrawn)
		slots_tell_to_end(&worker_runners[slot]);
	LWLockRelease(&worker_shared->lock);
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

	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	if (worker_runners[slot].generation == generation)
	{
		RunnerSlot *runner = &worker_runners[slot];

		if (runner->state == RUNNER_RUNNING)
			reaped = !worker_is_alive(runner->pid, runner->procno);
		else if (runner->state == RUNNER_STARTING)
			reaped = never_came || !slots_may_come(runner->registered_us);
		if (reaped)
		{
			runner->state = RUNNER_EXITED;
			runner->ended_us = clock_now_us();
		}
	}
	LWLockRelease(&worker_shared->lock);
	return reaped;
}

/* A runner takes the slot it was made for. False: it is not wanted any more. */
bool
worker_runner_attach(int slot, uint32 generation)
{
	bool		wanted = false;

	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	if (worker_runners[slot].generation == generation && worker_runners[slot].state == RUNNER_STARTING)
	{
		RunnerSlot *runner = &worker_runners[slot];

		wanted = !runner->stop;
		runner->pid = MyProcPid;
		runner->procno = compat_my_procno();
		runner->state = wanted ? RUNNER_RUNNING : RUNNER_EXITED;
		runner->ended_us = clock_now_us();
	}
	LWLockRelease(&worker_shared->lock);
	return wanted;
}

/* A copy of a runner slot; false when it has another owner by now. */
bool
worker_runner_get(int slot, uint32 generation, RunnerSlot *copy)
{
	LWLockAcquire(&worker_shared->lock, LW_SHARED);
	*copy = worker_runners[slot];
	LWLockRelease(&worker_shared->lock);
	return copy->generation == generation && copy->state != RUNNER_FREE;
}

/* A runner is about to commit that its run begins. False: it was withdrawn, or told to end. */
bool
worker_runner_commit(int slot, uint32 generation)
{
	bool		wanted = false;

	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	if (worker_runners[slot].generation == generation)
		wanted = worker_runners[slot].committed = !worker_runners[slot].stop;
	LWLockRelease(&worker_shared->lock);
	return wanted;
}

/* A runner has the lease, and that is committed; or it is about to begin its follower_command, without a token. */
void
worker_runner_lead(int slot, uint32 generation, int64 token, int64 run)
{
	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	if (worker_runners[slot].generation == generation)
	{
		worker_runners[slot].token = token;
		worker_runners[slot].run = run;
		worker_runners[slot].started_us = clock_now_us();
	}
	LWLockRelease(&worker_shared->lock);
}

/* A service has done so much by now, and that is committed. */
void
worker_service_progress(int slot, uint32 generation, int64 served)
{
	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	if (worker_runners[slot].generation == generation)
		worker_runners[slot].served = served;
	LWLockRelease(&worker_shared->lock);
}

/* A runner ends. Called when its locks are gone; never raises. */
void
worker_runner_exit(int slot, uint32 generation, RunOutcome outcome, const char *sqlstate, const char *message)
{
	Oid			database = InvalidOid;
	bool		supervised = false;

	LWLockAcquire(&worker_shared->lock, LW_EXCLUSIVE);
	if (worker_runners[slot].generation == generation && worker_runners[slot].state == RUNNER_RUNNING)
	{
		RunnerSlot *runner = &worker_runners[slot];

		runner->state = RUNNER_EXITED;
		runner->ended_us = clock_now_us();
		runner->outcome = outcome;
		strlcpy(runner->sqlstate, sqlstate, sizeof(runner->sqlstate));
		clip(runner->message, message, sizeof(runner->message));
		database = runner->task.database;
	}
	if (OidIsValid(database))
		supervised = slots_nudge_supervisor(database);
	/* then it is the launcher that frees the slot; or it waits for the place */
	if (!supervised || worker_shared->starving)
		slots_wake(worker_shared->launcher_pid, worker_shared->launcher_procno);
	LWLockRelease(&worker_shared->lock);
}

/*
 * There is something to do for a role (InvalidOid: for some roles): wakes the
 * runner that does it. Where there is none, its supervisor is to look; not while one
 * starts, which looks, nor when one has ended, which made the supervisor look. Called in
 * commit callbacks; never raises.
 */
void
worker_service_wake(const ServiceKey *service)
{
	bool		served = false;

	LWLockAcquire(&worker_shared->lock, LW_SHARED);
	for (int i = 0; i < worker_shared->nrunners; i++)
	{
		RunnerSlot *slot = &worker_runners[i];
		ServiceKey	key = *service;

		if (key.role == InvalidOid)
			key.role = slot->role;
		if (!is_of_service(slot, &key))
			continue;
		served = service->role != InvalidOid;
		if (slot->state == RUNNER_RUNNING)
			slots_wake(slot->pid, slot->procno);
	}
	LWLockRelease(&worker_shared->lock);
	if (!served)
		worker_nudge_supervisor(service->database);
}
