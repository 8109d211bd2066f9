/*
 * runner_process.h
 *	  What the processes of runners have in common: how they come, and how they end.
 */
#ifndef REVENANT_RUNNER_PROCESS_H
#define REVENANT_RUNNER_PROCESS_H

#include "postgres.h"

#include "compat.h"
#include "worker.h"

/* This runner */
extern WorkerExtra runner_me;

extern void runner_process_attach(Datum main_arg, RunnerSlot *slot);
extern void runner_process_connect(const char *what, const char *name);
extern void runner_process_load_libraries(void);
extern void runner_process_begin(bool writes);
extern void runner_process_pin(const char *name, const char *value);
extern compat_noreturn void runner_process_run(void (*work) (void));
extern void runner_process_failed(const ErrorData *error);
extern void runner_process_succeeded(void);

#endif							/* REVENANT_RUNNER_PROCESS_H */
