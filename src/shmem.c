/*-------------------------------------------------------------------------
 *
 * shmem.c
 *	  Where shared state lives: one fixed segment, and one bounded area for
 *	  what grows.
 *
 * The fixed segment holds what has a bound (the clock, the workers' slots, the
 * debug points) and the beginning of a DSA area. The area holds the hash
 * tables whose size depends on the users; it grows by dynamic shared memory
 * up to revenant.shared_memory and is attached by a process at its first use.
 *
 * NOTES
 *	  All of it is a cache: a crash restart begins with empty tables, and the
 *	  rows say what was there. No entry holds a pointer of one process.
 *
 *	  The area is created in place, before any process could be attached to
 *	  dynamic shared memory, as PostgreSQL's own statistics are.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/memutils.h"

#include "clock.h"
#include "debug.h"
#include "entity_memory.h"
#include "error.h"
#include "events.h"
#include "fence_state.h"
#include "guc.h"
#include "lease_budget.h"
#include "lease_entry.h"
#include "lease_holder.h"
#include "lease_local.h"
#include "plan_memory.h"
#include "shmem.h"
#include "stat.h"
#include "stat_task.h"
#include "task_status.h"
#include "worker.h"
#include "zone.h"

/* The part of the area that is in the fixed segment: enough for the empty tables and a few thousand leases. */
#define AREA_IN_PLACE (Size) (1024 * 1024)

/*
 * What has_room() does not give away: the tables' own growth (a table that
 * doubles has both arrays for a moment), fragmentation, tasks and tokens. For
 * what exists already and only has to be brought back there is a little more.
 */
#define AREA_RESERVE_DIVISOR 4
#define AREA_LAST_RESERVE_DIVISOR 8
#define AREA_LAST_RESERVE (Size) (512 * 1024)	/* beside that: what the segments of a small area lose */

/* After a look for what can go nobody looks for as long as ten looks take, so that they cost a tenth of a processor at most. */
#define RECLAIM_PAUSES 10
#define RECLAIM_PAUSE_MIN_US (10 * US_PER_MS)
#define RECLAIM_PAUSE_MAX_US (1 * US_PER_S)

typedef struct Shared
{
	int			tranches[SHARED_TABLES + 1];	/* one per table, and the area's */
	dshash_table_handle handles[SHARED_TABLES];
	pg_atomic_uint64 accounted; /* bytes in the area, as their users count them */
	LWLock		reclaim_lock;	/* of who looks for what can go; before those of the tables */
	pg_atomic_uint64 reclaim_due_us;	/* when one looks again */
} Shared;

static Shared *shared = NULL;
static void *area_place = NULL;

/* this process's attachment */
static dsa_area *area = NULL;
static dshash_table *tables[SHARED_TABLES];

static shmem_request_hook_type previous_request_hook = NULL;
static shmem_startup_hook_type previous_startup_hook = NULL;

static void request_hook(void);
static void startup_hook(void);
static void attach(void);

static const char *const tranche_names[] = {
	"RevenantDatabases", "RevenantLeases", "RevenantHolders", "RevenantTasks", "RevenantStats", "RevenantTaskStats", "RevenantEntities",
	"RevenantFlushers", "RevenantPlans", "RevenantClaims", "RevenantMembers", "RevenantArea"
};

/* What each table is made of; the tranche is known at run time only. */
static dshash_parameters
table_parameters(SharedTable which)
{
	dshash_parameters params;

	switch (which)
	{
		case SHARED_DATABASES:
			params = *fence_state_params();
			break;
		case SHARED_LEASES:
			params = *lease_entry_params();
			break;
		case SHARED_HOLDERS:
			params = *lease_holder_params();
			break;
		case SHARED_STATS:
			params = *stat_params();
			break;
		case SHARED_TASK_STATS:
			params = *stat_task_params();
			break;
		case SHARED_ENTITIES:
			params = *entity_memory_params();
			break;
		case SHARED_FLUSHERS:
			params = *flusher_params();
			break;
		case SHARED_PLANS:
			params = *plan_entry_params();
			break;
		case SHARED_CLAIMS:
			params = *claim_entry_params();
			break;
		case SHARED_MEMBERS:
			params = *member_entry_params();
			break;
		default:
			params = *task_status_params();
			break;
	}
	params.tranche_id = shared->tranches[which];
	return params;
}

/* The fixed parts, in the order in which they lie in the segment. */
static const struct
{
	Size		(*size) (void);
	void		(*init) (void *place, bool found);
}			parts[] = {
	{clock_shmem_size, clock_shmem_init},
	{lease_budget_shmem_size, lease_budget_shmem_init},
	{lease_entry_shmem_size, lease_entry_shmem_init},
	{lease_local_shmem_size, lease_local_shmem_init},
	{worker_shmem_size, worker_shmem_init},
	{events_shmem_size, events_shmem_init},
	{zone_shmem_size, zone_shmem_init},
#ifdef REVENANT_DEBUG
	{debug_shmem_size, debug_shmem_init},
#endif
};

static Size
fixed_size(void)
{
	Size		size = CACHELINEALIGN(sizeof(Shared));

	for (int i = 0; i < (int) lengthof(parts); i++)
		size = add_size(size, CACHELINEALIGN(parts[i].size()));
	return add_size(size, AREA_IN_PLACE);
}

/* Called once, by _PG_init under shared_preload_libraries. */
void
shmem_install_hooks(void)
{
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_hook;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = startup_hook;
}

static void
request_hook(void)
{
	if (previous_request_hook)
		previous_request_hook();
	RequestAddinShmemSpace(fixed_size());
}

static void
create_tables(void)
{
	dsa_area   *creation;

	for (int i = 0; i <= SHARED_TABLES; i++)
		shared->tranches[i] = LWLockNewTrancheId();
	creation = dsa_create_in_place(area_place, AREA_IN_PLACE, shared->tranches[SHARED_TABLES], 0);
	dsa_pin(creation);

	/* the empty tables belong into the fixed segment: the postmaster cannot make dynamic ones */
	dsa_set_size_limit(creation, AREA_IN_PLACE);
	for (int i = 0; i < SHARED_TABLES; i++)
	{
		dshash_parameters params = table_parameters(i);
		dshash_table *table = dshash_create(creation, &params, NULL);

		shared->handles[i] = dshash_get_hash_table_handle(table);
		dshash_detach(table);
	}
	dsa_set_size_limit(creation, (Size) guc_shared_memory_mb * 1024 * 1024);
	dsa_detach(creation);
}

static void
startup_hook(void)
{
	bool		found;
	char	   *place;

	if (previous_startup_hook)
		previous_startup_hook();

	area = NULL;
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	place = ShmemInitStruct("revenant", fixed_size(), &found);
	if (!found)
		memset(place, 0, fixed_size());
	shared = (Shared *) place;
	place += CACHELINEALIGN(sizeof(Shared));
	for (int i = 0; i < (int) lengthof(parts); i++)
	{
		parts[i].init(place, found);
		place += CACHELINEALIGN(parts[i].size());
	}
	area_place = place;
	if (!found)
	{
		pg_atomic_init_u64(&shared->accounted, 0);
		create_tables();
		LWLockInitialize(&shared->reclaim_lock, shared->tranches[SHARED_TABLES]);
		pg_atomic_init_u64(&shared->reclaim_due_us, 0);
	}
	LWLockRelease(AddinShmemInitLock);
	for (int i = 0; i <= SHARED_TABLES; i++)
		LWLockRegisterTranche(shared->tranches[i], tranche_names[i]);
}

/* Whether the library was preloaded, so that there is shared state at all. */
bool
shmem_is_ready(void)
{
	return shared != NULL;
}

/* Raises RV005 where the library was not preloaded. Every SQL function begins with it. */
void
shmem_require(void)
{
	if (shared == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_RV_NOT_PRELOADED),
				 errmsg("revenant is not in shared_preload_libraries"),
				 errdetail("The library was loaded by this session alone, without its shared memory and its workers."),
				 errhint("Run ALTER SYSTEM SET shared_preload_libraries = 'revenant' (keeping what is there already) and restart the server.")));
}

static void
attach(void)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);	/* for the life of this process */

	area = dsa_attach_in_place(area_place, NULL);
	dsa_pin_mapping(area);
	on_shmem_exit(dsa_on_shmem_exit_release_in_place, PointerGetDatum(area_place));
	for (int i = 0; i < SHARED_TABLES; i++)
	{
		dshash_parameters *params = palloc(sizeof(dshash_parameters));

		*params = table_parameters(i);
		tables[i] = dshash_attach(area, params, shared->handles[i], NULL);
	}
	MemoryContextSwitchTo(old);
}

/* The growing area, attached at the first use. Raises when it cannot be attached. */
dsa_area *
shmem_area(void)
{
	if (area == NULL)
		attach();
	return area;
}

/* The LWLock tranche of a shared table, for what else is locked there. */
int
shmem_tranche(SharedTable which)
{
	return shared->tranches[which];
}

/* One of the shared hash tables, attached at the first use. */
dshash_table *
shmem_table(SharedTable which)
{
	if (area == NULL)
		attach();
	return tables[which];
}

/* What has_room() gives away. */
static Size
area_limit(void)
{
	Size		limit = (Size) guc_shared_memory_mb * 1024 * 1024;

	return limit - limit / AREA_RESERVE_DIVISOR;
}

/*
 * Whether `more` bytes may still be taken from the area. What the tables need
 * to grow is kept out of it, so that whoever is told yes does get them.
 */
bool
shmem_has_room(Size more)
{
	return pg_atomic_read_u64(&shared->accounted) + more <= area_limit();
}

static bool
reclaim_is_due(void)
{
	return clock_now_us() >= (int64) pg_atomic_read_u64(&shared->reclaim_due_us);
}

/* Deletes what nobody needs any more, whose it was. The caller has the lock. */
static void
reclaim(void)
{
	int64		begun_us = clock_now_us();
	int64		took_us;

	lease_entry_purge(InvalidOid, InvalidOid);
	lease_holder_purge(InvalidOid);
	plan_memory_purge(InvalidOid, InvalidOid);
	took_us = clock_now_us() - begun_us;
	pg_atomic_write_u64(&shared->reclaim_due_us,
						begun_us + took_us + Min(Max(took_us * RECLAIM_PAUSES, RECLAIM_PAUSE_MIN_US), RECLAIM_PAUSE_MAX_US));
}

/*
 * The same, once what nobody needs any more has gone: what was released or has
 * ended may stay until then, or until a supervisor's next look. It is not looked for where somebody has
 * just done so. With no lock of a table, an entry or a plan, and not where a handler of errors takes one.
 */
bool
shmem_make_room(Size more)
{
	if (shmem_has_room(more))
		return true;
	if (more > area_limit() || !reclaim_is_due())
		return false;
	LWLockAcquire(&shared->reclaim_lock, LW_EXCLUSIVE);
	if (!shmem_has_room(more) && reclaim_is_due())
		reclaim();
	LWLockRelease(&shared->reclaim_lock);
	return shmem_has_room(more);
}

/* The same for what exists already, and is only brought back into shared memory. */
bool
shmem_has_room_to_load(Size more)
{
	Size		limit = (Size) guc_shared_memory_mb * 1024 * 1024;

	return shmem_has_room(more) ||
		pg_atomic_read_u64(&shared->accounted) + more <= limit - limit / AREA_LAST_RESERVE_DIVISOR - AREA_LAST_RESERVE;
}

/* Counts bytes that were taken from the area (or given back: negative). Never raises. */
void
shmem_account(int64 bytes)
{
	pg_atomic_fetch_add_u64(&shared->accounted, bytes);
}
