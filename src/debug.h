/*
 * debug.h
 *	  Named places where a test can make a process stop, and ticks that it can
 *	  count. Nothing in a normal build.
 *
 * DEBUG_POINT("name") waits for a lock that a test holds with
 * revenant._debug_hold('name') (see debug.c), so the isolation tester sees
 * the wait as it sees any other. Never inside a commit callback, nor with an
 * LWLock or a spinlock held; DEBUG_POINT_QUIET("name") is for those callbacks: it
 * polls, and cannot raise.
 *
 * DEBUG_TICK(TICK_OF_LAUNCHER) is where a worker begins another look at everything:
 * revenant._debug_tick() makes it come there as often as a test wants.
 */
#ifndef REVENANT_DEBUG_H
#define REVENANT_DEBUG_H

#include "postgres.h"

/* Whose ticks are counted */
typedef enum TickOf
{
	TICK_OF_LAUNCHER = 0,
	TICK_OF_SUPERVISOR
} TickOf;

#ifdef REVENANT_DEBUG
extern Size debug_shmem_size(void);
extern void debug_shmem_init(void *place, bool found);
extern void debug_point(const char *name);
extern void debug_point_quiet(const char *name);
extern void debug_tick(TickOf whose);
#define DEBUG_POINT(name) debug_point(name)
#define DEBUG_POINT_QUIET(name) debug_point_quiet(name)
#define DEBUG_TICK(whose) debug_tick(whose)
#else
#define DEBUG_POINT(name) ((void) 0)
#define DEBUG_POINT_QUIET(name) ((void) 0)
#define DEBUG_TICK(whose) ((void) 0)
#endif

#endif							/* REVENANT_DEBUG_H */
