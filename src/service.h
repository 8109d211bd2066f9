/*
 * service.h
 *	  A supervisor's runners that serve a role: they deliver its messages, or flush its entities.
 */
#ifndef REVENANT_SERVICE_H
#define REVENANT_SERVICE_H

#include "postgres.h"

#include "worker.h"

extern void service_init(void);
extern void service_forget_all(void);
extern void service_collect(Oid instance);
extern bool service_runs(RunnerKind kind, Oid role);
extern void service_want(RunnerKind kind, Oid role, const char *role_name);
extern void service_start_wanted(Oid instance);
extern void service_stop_all(RunnerKind kind);

#endif							/* REVENANT_SERVICE_H */
