/*
 * restart.h
 *	  When a task that ended is started again. Arithmetic only.
 */
#ifndef REVENANT_RESTART_H
#define REVENANT_RESTART_H

#include "postgres.h"

/* From the second failure in a row on, nothing is restarted faster than this: a tenth of a second. */
#define RESTART_REPEATED_MIN_US INT64CONST(100000)

extern int	restart_count_failure(int failures, int64 ran_us, int64 max_us);
extern int64 restart_backoff_us(int64 min_us, int64 max_us, int failures, uint32 random);

#endif							/* REVENANT_RESTART_H */
