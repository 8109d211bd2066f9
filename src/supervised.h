/*
 * supervised.h
 *	  What a supervisor knows of its tasks: their rows, and when each is due next.
 */
#ifndef REVENANT_SUPERVISED_H
#define REVENANT_SUPERVISED_H

#include "postgres.h"

#include "nodes/pg_list.h"
#include "postmaster/bgworker.h"
#include "utils/hsearch.h"

#include "restart.h"
#include "task.h"
#include "task_state.h"
#include "worker.h"

/* What the supervisor knows of a task between two ticks: a row, and what is to be done about it. */
typedef struct Task
{
	TaskKey		key;			/* hash key */

	/* from the row; more of it at the end */
	Oid			role;
	Schedule	schedule;
	SchedulePlace place;
	int64		restart_window_us;
	int64		run_requests;
	int64		backoff_min_us;
	int64		backoff_max_us;
	int64		claim_delay_us;
	TaskLife	life;
	RestartPolicy restart;
	int			max_restarts;

	/* when it runs next; `ready` and what else is yes or no, at the end */
	int64		due_us;			/* not before; 0: at once */
	int64		not_before_us;	/* nor before that, whatever it is due for; 0: no such time */
	TimestampTz fire_at;		/* of the schedule; 0: none */
	int64		late_since_us;	/* since when it is due */
	TimestampTz started_at;		/* of the latest run; 0: none, or not known yet */
	int64		run_requests_done;
	bool		last_failed;	/* its latest run did, or was cut off */
	RestartFailures recent;		/* failures, by the wall clock */

	/* its runner */
	TaskLife	runner_life;
	BackgroundWorkerHandle *handle; /* in TopMemoryContext, freed when the run was collected */
	int			slot;			/* -1: none */
	int			runner_pid;
	uint32		runner_generation;
	uint32		follower_hash;	/* of the follower_command */

	/* a run that ended and is not written down yet */
	uint32		ended_generation;
	TaskEnding	ending;

	/* what was published last */
	TaskPhase	phase;
	uint32		reason_hash;

	int			failures;		/* in a row */
	int			unstarted;		/* how often in a row no process came for its run */
	bool		seen;			/* in the last look at the table */
	bool		enabled;
	bool		native;
	bool		has_schedule;
	bool		catches_up;
	bool		ready;			/* what is planned is valid: it was enabled when it was last looked at */
	bool		backoff;		/* due_us is the end of a backoff */
	bool		given_back;		/* fire_at was to be run, and is to be still */
	bool		fires;			/* it is due because fire_at has come, and not to try a failed run again */
	bool		quarantined;	/* it was given up */
	bool		finished;		/* its last run was the last one */
	bool		slot_wait_counted;	/* of the run that is due: that it waits for a runner */
	bool		runner_stop;
	bool		runner_begun;	/* it has the lease; or runs its follower_command */
	bool		runner_follows;
	bool		runner_scheduled;
	bool		has_follower;	/* a follower_command ... */
	bool		follower_changed;	/* ... which is not the one that its runner has */
	bool		ended;
	char		run_as[NAMEDATALEN];
	char		name[TASK_NAME_MAX + 1];
	char		problem[TASK_REASON_MAX];	/* why it cannot be run at all; empty: it can */
} Task;

/* A look at the rows: what it is for, and what it found beside the tasks */
typedef struct Load
{
	Oid			instance;		/* of the extension */
	bool		following;		/* this server is a standby */
	bool		first_look;
	List	   *open_runs;		/* of palloc'd TaskState, in tick_context */
	List	   *orphans;		/* the same: rows of tasks that were dropped */
	int			foreign;		/* tasks that wait for adopt() */
	bool		absent;			/* the extension is not there any more */
	bool		gone;			/* the tables are not, though it is */
	bool		busy;			/* somebody has locked them */
} Load;

extern HTAB *supervised_tasks;	/* of Task */

extern void supervised_init(void);
extern void supervised_load(void *arg);
extern void task_forget_plan(Task *task);
extern void task_make_ready(Task *task, bool first_look, bool following);
extern void task_adjust_fire_time(Task *task, TimestampTz now, bool set_back);
extern TimestampTz task_next_time(const Task *task, TimestampTz after);
extern void task_count_slot_wait(Task *task);

#endif							/* REVENANT_SUPERVISED_H */
