/*
 * fence.h
 *	  Fence tokens: numbers that only ever grow, across crash, failover and restore.
 */
#ifndef REVENANT_FENCE_H
#define REVENANT_FENCE_H

#include "postgres.h"

extern int64 fence_next_token(const char *function);
extern void fence_enter_era(void);
extern void fence_note_setval(void);
extern void fence_note_xact_end(void);

#endif							/* REVENANT_FENCE_H */
