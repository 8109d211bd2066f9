/*
 * debug.h
 *	  Named places where a test can make a process stop. Nothing in a normal build.
 *
 * DEBUG_POINT("name") waits for a lock that a test holds with
 * revenant._debug_hold('name') (see debug.c), so the isolation tester sees
 * the wait as it sees any other. Never inside a commit callback, nor with an
 * LWLock or a spinlock held; DEBUG_POINT_QUIET("name") is for those callbacks: it
 * polls, and cannot raise.
 */
#ifndef REVENANT_DEBUG_H
#define REVENANT_DEBUG_H

#include "postgres.h"

#ifdef REVENANT_DEBUG
extern Size debug_shmem_size(void);
extern void debug_shmem_init(void *place, bool found);
extern void debug_point(const char *name);
extern void debug_point_quiet(const char *name);
#define DEBUG_POINT(name) debug_point(name)
#define DEBUG_POINT_QUIET(name) debug_point_quiet(name)
#else
#define DEBUG_POINT(name) ((void) 0)
#define DEBUG_POINT_QUIET(name) ((void) 0)
#endif

#endif							/* REVENANT_DEBUG_H */
