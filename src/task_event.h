/*
 * task_event.h
 *	  What is told of tasks.
 */
#ifndef REVENANT_TASK_EVENT_H
#define REVENANT_TASK_EVENT_H

#include "postgres.h"

#include "phase.h"
#include "worker.h"

extern void task_tell_supervised(bool begins);
extern void task_tell_phase(const char *name, Oid role, TaskPhase from, TaskPhase to, const char *reason);
extern void task_tell_started(const char *name, Oid role, const char *lease, int64 token, bool routine);
extern void task_tell_ended(const RunnerSlot *slot, Oid role, const char *outcome, bool routine);
extern void task_tell_interrupted(const char *name, Oid role, int64 token);

#endif							/* REVENANT_TASK_EVENT_H */
