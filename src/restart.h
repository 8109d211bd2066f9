/*
 * restart.h
 *	  When a task that ended is started again. Arithmetic only.
 */
#ifndef REVENANT_RESTART_H
#define REVENANT_RESTART_H

#include "postgres.h"

/* From the second failure in a row on, nothing is restarted faster than this: a tenth of a second. */
#define RESTART_REPEATED_MIN_US INT64CONST(100000)

/* How many failures a task may be allowed within its window, at most. */
#define RESTART_FAILURES_MAX 100

/* What follows the end of a run. */
typedef enum RestartPolicy
{
	RESTART_PERMANENT,			/* always another one */
	RESTART_TRANSIENT,			/* another one after a failure */
	RESTART_TEMPORARY			/* none */
} RestartPolicy;

/* The latest failures, oldest first, as times of any one clock in microseconds; one more than are allowed are kept. */
typedef struct RestartFailures
{
	int			count;
	int64		at_us[RESTART_FAILURES_MAX + 1];
} RestartFailures;

extern bool restart_policy_parse(const char *text, RestartPolicy *policy);
extern bool restart_follows(RestartPolicy policy, bool failed, bool has_schedule);
extern bool restart_note_failure(RestartFailures *failures, int64 now_us, int64 window_us, int allowed);
extern int	restart_count_failure(int failures, int64 ran_us, int64 max_us);
extern int64 restart_backoff_us(int64 min_us, int64 max_us, int failures, uint32 random);

#endif							/* REVENANT_RESTART_H */
