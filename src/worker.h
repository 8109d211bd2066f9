/*
 * worker.h
 *	  What the workers know about each other: slots in shared memory.
 */
#ifndef REVENANT_WORKER_H
#define REVENANT_WORKER_H

#include "postgres.h"

#include "postmaster/bgworker.h"

#include "task.h"

#define WORKER_MESSAGE_MAX 1024

typedef enum SupervisorState
{
	SUPERVISOR_FREE = 0,
	SUPERVISOR_STARTING,		/* registered, not there yet */
	SUPERVISOR_RUNNING,
	SUPERVISOR_ABSENT,			/* ended: the database does not have the extension */
	SUPERVISOR_DEAD				/* ended otherwise */
} SupervisorState;

typedef struct SupervisorSlot
{
	SupervisorState state;
	uint32		generation;		/* grows whenever the slot is given away */
	Oid			database;
	int			pid;			/* 0: not there yet */
	int			procno;
	bool		stop;			/* asked to end */
	int64		drained_since_us;	/* since when it starts no run, and is to see its runs end; 0: it is not */
	bool		recheck;		/* the extension came or went since it looked */
	int64		hungry_since_us;	/* since when a due task has no runner; 0: none */
	int64		hungry_noted_us;	/* when it said so */
	uint32		changes;		/* grows whenever a task may have changed */
	uint32		wakes;			/* grows with every wake */
	int64		registered_us;
	int64		ended_us;
} SupervisorSlot;

typedef enum RunnerState
{
	RUNNER_FREE = 0,
	RUNNER_STARTING,			/* registered, not there yet */
	RUNNER_RUNNING,
	RUNNER_EXITED				/* its supervisor has not written the outcome yet */
} RunnerState;

/* What a runner is for */
typedef enum RunnerKind
{
	RUNNER_TASK = 0,			/* one run of a task */
	/* services to a role, as that role; there is at most one of each kind for a role in a database */
	RUNNER_DELIVERY,			/* its messages and timers */
	RUNNER_FLUSH,				/* the relaxed entities in its tables */
	RUNNER_KINDS
} RunnerKind;

/* Which service to which role */
typedef struct ServiceKey
{
	RunnerKind	kind;
	Oid			database;
	Oid			instance;		/* oid of the extension */
	Oid			role;
} ServiceKey;

typedef enum RunOutcome
{
	RUN_BROKEN = 0,				/* ended without saying how */
	RUN_SUCCEEDED,
	RUN_FAILED
} RunOutcome;

typedef struct RunnerSlot
{
	RunnerState state;
	uint32		generation;
	RunnerKind	kind;
	TaskKey		task;			/* of a service: database and instance alone */
	Oid			role;			/* of a service */
	bool		cautious;		/* of a service: the one before it ended badly, or is not known */
	int64		served;			/* by a service: how much it has done */
	TaskLife	life;
	bool		follows;		/* runs the follower_command of a standby: without a lease, and without a row */
	bool		scheduled;		/* its task had a schedule when it was started */
	bool		committed;		/* what it was for is used up, or about to be: it is not withdrawn any more */
	int			pid;			/* 0: not there yet */
	int			procno;
	bool		stop;			/* asked to end */
	int64		registered_us;
	int64		started_us;		/* when it got the lease, or began to follow, or to serve; 0: not yet */
	int64		due_us;			/* since when the run was due */
	int64		ended_us;
	int64		token;
	int64		run;			/* its number in the history; 0: none */
	TimestampTz fire_at;		/* the time of the schedule that this run is for; 0: none */
	TimestampTz next_run;		/* the schedule's next time, this one not counted; 0: none */
	int64		requests_before;	/* how many calls of run_task() were run before this one ... */
	int64		requests;		/* ... and with it */
	RunOutcome	outcome;
	char		sqlstate[6];
	char		name[TASK_NAME_MAX + 1];	/* of the task, or the role */
	char		message[WORKER_MESSAGE_MAX];
} RunnerSlot;

/* What a runner slot is wanted for */
typedef struct RunnerRequest
{
	TaskKey		task;
	const char *name;
	TaskLife	life;
	TimestampTz fire_at;
	TimestampTz next_run;
	int64		requests_before;
	int64		requests;
	bool		follows;
	bool		scheduled;
} RunnerRequest;

/* Why there is no runner slot */
#define RESERVE_NONE_FREE (-1)
#define RESERVE_PAUSED (-2)
#define RESERVE_RUNNING (-3)

/* What a worker is told through bgw_extra */
typedef struct WorkerExtra
{
	int			slot;
	uint32		generation;
	Oid			database;
	Oid			role;
} WorkerExtra;

/* shared memory */
extern Size worker_shmem_size(void);
extern void worker_shmem_init(void *place, bool found);

/* processes: worker_process.c */
extern bool worker_is_alive(int pid, int procno);
extern bool worker_server_is_stopping(void);
extern void worker_prepare(BackgroundWorker *worker, const char *type, const char *name, const char *function);
extern void worker_pin_settings(void);

/* who is to look again */
extern void worker_wake_launcher(void);
extern void worker_wake_supervisor(Oid database);
extern void worker_nudge_supervisor(Oid database);
extern void worker_wake_all(void);
extern bool worker_may_run(bool following);
extern void worker_extension_changed(Oid database);
extern void worker_note_promotion(void);

/* the launcher's */
extern void worker_launcher_attach(void);
extern bool worker_take_wanted(Oid *databases, int *count, int limit);
extern int	worker_supervisor_reserve(Oid database, uint32 *generation);
extern void worker_supervisor_free(int slot, uint32 generation);
extern int	worker_supervisors(void);
extern bool worker_supervisor_get(int slot, SupervisorSlot *copy);
extern bool worker_supervisor_collect(int slot, uint32 generation, bool *left, bool *absent);
extern void worker_supervisor_stop(int slot, uint32 generation);
extern bool worker_supervisor_drain(int slot, uint32 generation);
extern void worker_supervisor_undrain(int slot, uint32 generation);
extern void worker_supervisors_starve(bool starving);
extern bool worker_has_supervisor(Oid database);

/* the supervisor's */
extern bool worker_supervisor_attach(int slot, uint32 generation);
extern uint32 worker_supervisor_changes(int slot);
extern uint32 worker_supervisor_wakes(int slot);
extern bool worker_supervisor_absent(int slot);
extern void worker_supervisor_exit(int slot, uint32 generation);
extern void worker_supervisor_hungry(int slot, int64 since_us);
extern int	worker_runner_reserve(const RunnerRequest *wanted, int64 since_us, uint32 *generation);
extern int	worker_service_reserve(const ServiceKey *service, const char *role_name, bool cautious, uint32 *generation);
extern void worker_runner_free(int slot, uint32 generation);
extern void worker_runner_give_back(int slot, uint32 generation);
extern int	worker_runner_pid(const TaskKey *task);
extern int	worker_runner_next(int from, Oid database, RunnerSlot *copy);
extern bool worker_runner_find(const TaskKey *task, int *slot, RunnerSlot *copy);
extern bool worker_runner_stop(int slot, uint32 generation);
extern bool worker_runner_withdraw(int slot, uint32 generation);
extern bool worker_runner_reap(int slot, uint32 generation, bool never_came);

/* the runner's */
extern bool worker_runner_attach(int slot, uint32 generation);
extern bool worker_runner_get(int slot, uint32 generation, RunnerSlot *copy);
extern bool worker_runner_commit(int slot, uint32 generation);
extern void worker_runner_lead(int slot, uint32 generation, int64 token, int64 run);
extern void worker_service_progress(int slot, uint32 generation, int64 served);
extern void worker_runner_exit(int slot, uint32 generation, RunOutcome outcome, const char *sqlstate, const char *message);

/* of those who have something to do for a service */
extern void worker_service_wake(const ServiceKey *service);

/* of DDL */
extern bool worker_pause(Oid database);
extern int	worker_stop_database(Oid database);
extern void worker_resume(Oid database);
extern bool worker_is_paused(Oid database);

#endif							/* REVENANT_WORKER_H */
