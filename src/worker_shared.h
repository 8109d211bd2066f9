/*
 * worker_shared.h
 *	  The slots of all workers, as they lie in shared memory: for worker.c and
 *	  worker_runner.c alone.
 *
 * What begins with slots_ is called with the lock held, exclusively if it writes.
 */
#ifndef REVENANT_WORKER_SHARED_H
#define REVENANT_WORKER_SHARED_H

#include "postgres.h"

#include "storage/lwlock.h"

#include "worker.h"

/* Runners that no task takes: one for each kind of service */
#define RESERVED_RUNNERS (RUNNER_KINDS - 1)

#define WANTED_MAX 64
#define PAUSES_MAX 64
#define LEAVERS_MAX 64

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


extern WorkerShared *worker_shared;
extern RunnerSlot *worker_runners;

extern void slots_wake(int pid, int procno);
extern bool slots_may_come(int64 registered_us);
extern bool slots_nudge_supervisor(Oid database);	/* false: there is none */
extern void slots_wake_hungry(void);
extern bool slots_is_paused(Oid database);
extern bool slots_is_drained(Oid database);
extern void slots_note_leaver(Oid database, int pid, int procno);
extern void slots_tell_to_end(RunnerSlot *runner);
extern int	slots_count_hungrier(Oid database, int64 since_us);

#endif							/* REVENANT_WORKER_SHARED_H */
