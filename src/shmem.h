/*
 * shmem.h
 *	  Where shared state lives: one fixed segment, and one bounded area for what grows.
 */
#ifndef REVENANT_SHMEM_H
#define REVENANT_SHMEM_H

#include "postgres.h"

#include "lib/dshash.h"
#include "storage/lwlock.h"
#include "utils/dsa.h"

/* The hash tables in the growing area; each has its own LWLock tranche. */
typedef enum SharedTable
{
	SHARED_DATABASES,			/* DatabaseState: token blocks, one per database and instance */
	SHARED_LEASES,				/* LeaseEntry */
	SHARED_HOLDERS,				/* LeaseHolder: shared holds */
	SHARED_TASKS,				/* TaskStatus */
	SHARED_STATS,				/* StatDatabase: what was counted for each database and instance */
	SHARED_TASK_STATS,			/* StatTask */
	SHARED_ENTITIES,			/* EntityEntry: states that are ahead of their rows */
	SHARED_FLUSHERS,			/* Flusher: one per owner of such */
	SHARED_PLANS,				/* PlanEntry */
	SHARED_CLAIMS,				/* ClaimEntry: splits that are owned */
	SHARED_MEMBERS,				/* MemberEntry: workers that joined a plan */
	SHARED_TABLES				/* how many there are */
} SharedTable;

extern void shmem_install_hooks(void);
extern bool shmem_is_ready(void);
extern void shmem_require(void);
extern dsa_area *shmem_area(void);
extern int	shmem_tranche(SharedTable which);
extern dshash_table *shmem_table(SharedTable which);
extern bool shmem_has_room(Size more);
extern bool shmem_make_room(Size more);
extern bool shmem_has_room_to_load(Size more);
extern void shmem_account(int64 bytes);

#endif							/* REVENANT_SHMEM_H */
