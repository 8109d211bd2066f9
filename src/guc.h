/*
 * guc.h
 *	  The settings; guc.c has what each means.
 */
#ifndef REVENANT_GUC_H
#define REVENANT_GUC_H

#include "postgres.h"

extern char *guc_databases;
extern bool guc_enabled;
extern int	guc_event_buffer;
extern int	guc_fence_grace_ms;
extern int	guc_history_retention_s;
extern char *guc_log_events;
extern int	guc_max_runners;
extern char *guc_node_name;
extern bool guc_notify;
extern bool guc_session_leases;
extern int	guc_shared_memory_mb;

extern void guc_define(void);
extern const char *guc_effective_node_name(void);
extern bool guc_database_is_listed(const char *name);

#endif							/* REVENANT_GUC_H */
