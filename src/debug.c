/*-------------------------------------------------------------------------
 *
 * debug.c
 *	  Named places where a test can make a process stop; see debug.h.
 *
 * A test makes processes stop by holding the point's lock:
 *
 *	  SELECT revenant._debug_hold('lease-before-grant');	-- in one session
 *	  …														-- another one comes there and waits
 *	  SELECT revenant._debug_let_go('lease-before-grant');
 *
 * A point in a commit callback cannot wait for a lock, since that can raise.
 * Such a quiet point polls a flag in shared memory, which
 * _debug_hold_quiet() and _debug_let_go_quiet() set and clear, and
 * _debug_quiet_waiters() says how many processes are stopped there.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#ifdef REVENANT_DEBUG

#include "access/xact.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/lock.h"
#include "utils/builtins.h"

#include "debug.h"
#include "extension.h"
#include "locktag.h"

#define QUIET_POINTS 8

typedef struct QuietPoint
{
	char		name[NAMEDATALEN];
	pg_atomic_uint32 held;
	pg_atomic_uint32 waiters;
} QuietPoint;

static QuietPoint *points = NULL;

Size
debug_shmem_size(void)
{
	return QUIET_POINTS * sizeof(QuietPoint);
}

void
debug_shmem_init(void *place, bool found)
{
	points = place;
	for (int i = 0; i < QUIET_POINTS && !found; i++)
	{
		pg_atomic_init_u32(&points[i].held, 0);
		pg_atomic_init_u32(&points[i].waiters, 0);
	}
}

static LOCKTAG
point_lock(const char *name)
{
	return locktag_make(LOCK_OTHER, MyDatabaseId,
						hash_bytes_extended((const unsigned char *) name, strlen(name), 0), LOCK_OTHER_DEBUG);
}

/* Waits while a test holds the point. */
void
debug_point(const char *name)
{
	LOCKTAG		tag = point_lock(name);

	if (!IsTransactionState())
		return;
	(void) LockAcquire(&tag, ShareLock, false, false);
	LockRelease(&tag, ShareLock, false);
}

static QuietPoint *
quiet_point(const char *name, bool create)
{
	for (int i = 0; i < QUIET_POINTS; i++)
	{
		if (strcmp(points[i].name, name) == 0)
			return &points[i];
		if (points[i].name[0] == '\0')
		{
			if (create)
				strlcpy(points[i].name, name, NAMEDATALEN);
			return create ? &points[i] : NULL;
		}
	}
	return NULL;
}

/* The same where nothing may raise. */
void
debug_point_quiet(const char *name)
{
	QuietPoint *point = quiet_point(name, false);

	if (point == NULL || pg_atomic_read_u32(&point->held) == 0)
		return;
	pg_atomic_fetch_add_u32(&point->waiters, 1);
	while (pg_atomic_read_u32(&point->held) != 0)
		pg_usleep(1000);
	pg_atomic_fetch_sub_u32(&point->waiters, 1);
}

SQL_FUNCTION(revenant_debug_hold)
{
	LOCKTAG		tag = point_lock(text_to_cstring(PG_GETARG_TEXT_PP(0)));

	(void) LockAcquire(&tag, ExclusiveLock, true, false);
	PG_RETURN_VOID();
}

SQL_FUNCTION(revenant_debug_let_go)
{
	LOCKTAG		tag = point_lock(text_to_cstring(PG_GETARG_TEXT_PP(0)));

	PG_RETURN_BOOL(LockRelease(&tag, ExclusiveLock, true));
}

SQL_FUNCTION(revenant_debug_hold_quiet)
{
	QuietPoint *point = quiet_point(text_to_cstring(PG_GETARG_TEXT_PP(0)), true);

	if (point == NULL)
		elog(ERROR, "no room for another quiet debug point");
	pg_atomic_write_u32(&point->held, 1);
	PG_RETURN_VOID();
}

SQL_FUNCTION(revenant_debug_let_go_quiet)
{
	QuietPoint *point = quiet_point(text_to_cstring(PG_GETARG_TEXT_PP(0)), true);

	if (point != NULL)
		pg_atomic_write_u32(&point->held, 0);
	PG_RETURN_VOID();
}

SQL_FUNCTION(revenant_debug_quiet_waiters)
{
	QuietPoint *point = quiet_point(text_to_cstring(PG_GETARG_TEXT_PP(0)), true);

	PG_RETURN_INT32(point == NULL ? 0 : (int32) pg_atomic_read_u32(&point->waiters));
}

#endif							/* REVENANT_DEBUG */
