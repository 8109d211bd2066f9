/*
 * task.h
 *	  Tasks: their rows and keys.
 */
#ifndef REVENANT_TASK_H
#define REVENANT_TASK_H

#include "postgres.h"

#include "access/htup.h"
#include "access/tupdesc.h"
#include "datatype/timestamp.h"
#include "utils/jsonb.h"

#include "digest.h"
#include "phase.h"
#include "restart.h"
#include "schedule.h"

#define TASK_NAME_MAX 480		/* bytes */
#define TASK_REASON_MAX 256

/* Columns of revenant.task */
enum
{
	ATT_TASK_NAME = 1,
	ATT_TASK_COMMAND,
	ATT_TASK_SCHEDULE,
	ATT_TASK_TIMEZONE,
	ATT_TASK_FOLLOWER_COMMAND,
	ATT_TASK_RUN_AS,
	ATT_TASK_RUN_AS_OID,
	ATT_TASK_RESTART,
	ATT_TASK_MAX_RESTARTS,
	ATT_TASK_RESTART_WINDOW,
	ATT_TASK_BACKOFF_MIN,
	ATT_TASK_BACKOFF_MAX,
	ATT_TASK_TIMEOUT,
	ATT_TASK_CATCH_UP,
	ATT_TASK_CLAIM_DELAY,
	ATT_TASK_LEASE,
	ATT_TASK_SETTINGS,
	ATT_TASK_ENABLED,
	ATT_TASK_METADATA,
	ATT_TASK_CREATED_AT,
	ATT_TASK_SYSTEM_IDENTIFIER,
	ATT_TASK_DATABASE_OID,
	ATT_TASK_ENABLED_AT,
	ATT_TASK_RUN_REQUESTS,
	ATT_TASK_REQUESTS_VOID,
	TASK_COLUMNS = ATT_TASK_REQUESTS_VOID
};

/* Columns of revenant.task_state */
enum
{
	ATT_STATE_NAME = 1,
	ATT_STATE_NODE,
	ATT_STATE_PID,
	ATT_STATE_TOKEN,
	ATT_STATE_STARTED_AT,
	ATT_STATE_FINISHED_AT,
	ATT_STATE_NEXT_RUN,
	ATT_STATE_RUNS,
	ATT_STATE_FAILURES,
	ATT_STATE_RESTARTS,
	ATT_STATE_CONSECUTIVE_FAILURES,
	ATT_STATE_LAST_SUCCESS,
	ATT_STATE_LAST_DURATION,
	ATT_STATE_LAST_ERROR,
	ATT_STATE_LAST_SQLSTATE,
	ATT_STATE_LAST_EXIT,
	ATT_STATE_RETRY_AT,
	ATT_STATE_CREATED_AT,
	ATT_STATE_ENABLED_AT,
	ATT_STATE_FAILED_AT,
	ATT_STATE_QUARANTINED_AT,
	ATT_STATE_RUN_REQUESTS,
	ATT_STATE_RUN,
	STATE_COLUMNS = ATT_STATE_RUN
};

/* Columns of revenant.task_run */
enum
{
	ATT_RUN_RUN = 1,
	ATT_RUN_NAME,
	ATT_RUN_TOKEN,
	ATT_RUN_NODE,
	ATT_RUN_PID,
	ATT_RUN_STARTED_AT,
	ATT_RUN_FINISHED_AT,
	ATT_RUN_OUTCOME,
	ATT_RUN_SQLSTATE,
	ATT_RUN_MESSAGE,
	RUN_COLUMNS = ATT_RUN_MESSAGE
};

/*
 * Which task it is that has a name: one that is dropped and created again is
 * another one. What was counted and planned before it was enabled last is void.
 */
typedef struct TaskLife
{
	TimestampTz created_at;
	TimestampTz enabled_at;
} TaskLife;

/* What the workers need of a row of revenant.task; strings are palloc'd. */
typedef struct TaskRow
{
	char	   *name;
	char	   *command;
	char	   *follower_command;	/* or NULL */
	char	   *run_as;
	Oid			run_as_oid;
	char	   *lease;			/* the effective name */
	bool		enabled;
	bool		native;			/* made in, or adopted by, this database */
	bool		has_schedule;
	Schedule	schedule;
	SchedulePlace place;
	const char *problem;		/* why it cannot be run at all; NULL: it can */
	bool		catches_up;		/* a time that was missed is made up for, once */
	RestartPolicy restart;
	int			max_restarts;
	int64		restart_window_us;
	int64		backoff_min_us;
	int64		backoff_max_us;
	int64		claim_delay_us;
	int64		run_requests;	/* how often run_task() was called ... */
	int64		requests_void;	/* ... and how many of these are void, whether or not they were run */
	int64		timeout_us;		/* of one run; 0: none */
	Jsonb	   *settings;		/* or NULL */
	TaskLife	life;
} TaskRow;

/* Which task: names are as long as they like, keys are not. */
typedef struct TaskKey
{
	Oid			database;
	Oid			instance;		/* oid of the extension */
	uint8		digest[DIGEST_BYTES];	/* of the name */
} TaskKey;

static inline bool
task_same_life(const TaskLife *a, const TaskLife *b)
{
	return a->created_at == b->created_at && a->enabled_at == b->enabled_at;
}

extern void task_deform(HeapTuple tuple, TupleDesc desc, Datum *values, bool *nulls);
extern void task_parse(HeapTuple tuple, TupleDesc desc, TaskRow *row);
extern const char *task_role_problem(const char *run_as, Oid run_as_oid);
extern bool task_row_is_native(Datum system_identifier, Datum database_oid);
extern bool task_is_native(const Datum *values);
extern int64 task_identifier(void);
extern int64 task_duration_us(const Interval *interval);

/* task_settings.c */
extern void task_apply_settings(Jsonb *settings, Oid role, bool really);
extern void task_check_settings(Jsonb *settings, Oid role);

#endif							/* REVENANT_TASK_H */
