/*
 * restart.h
 *	  When a task that ended is started again. Arithmetic only.
 */
#ifndef REVENANT_RESTART_H
#define REVENANT_RESTART_H

#include "postgres.h"

extern int	restart_count_failure(int failures, int64 ran_us, int64 max_us);
extern int64 restart_backoff_us(int64 min_us, int64 max_us, int failures, uint32 random);

#endif							/* REVENANT_RESTART_H */
