/*
 * runner.h
 *	  The process that runs a task's command.
 */
#ifndef REVENANT_RUNNER_H
#define REVENANT_RUNNER_H

#include "postgres.h"

extern PGDLLEXPORT void revenant_runner_main(Datum main_arg);

extern const char *runner_current_task(void);
extern int64 runner_current_token(void);

#endif							/* REVENANT_RUNNER_H */
