/*-------------------------------------------------------------------------
 *
 * revenant.c
 *	  The module: what is set up when the server loads it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "ddl.h"
#include "entity_type.h"
#include "entity_xact.h"
#include "events.h"
#include "extension.h"
#include "guard.h"
#include "guc.h"
#include "launcher.h"
#include "lease_xact.h"
#include "message.h"
#include "shmem.h"
#include "plan_xact.h"
#include "snapshot.h"
#include "task_change.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

/*
 * Without shared_preload_libraries there is nothing to set up: every function
 * then answers RV005.
 */
void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	guc_define();
	shmem_install_hooks();
	plan_xact_install_callbacks();	/* first, so called last: it sees what all others have written, and told */
	events_install_callbacks();
	extension_install_callbacks();
	lease_xact_install_callbacks();
	guard_install_hooks();
	task_install_callbacks();
	snapshot_install_callbacks();
	entity_type_install_callbacks();
	entity_xact_install_callbacks();
	message_install_callbacks();
	ddl_install_hooks();
	launcher_register();
}
