/*
 * tick.h
 *	  One look of a worker at everything: its memory, its steps, and when the next one comes.
 */
#ifndef REVENANT_TICK_H
#define REVENANT_TICK_H

#include "postgres.h"

#include "clock.h"

/* The same error is told at most that often. */
#define TICK_COMPLAIN_EVERY_US (60 * US_PER_S)

/* What could not be done in a tick is tried again after that. */
#define RETRY_US (1 * US_PER_S)

typedef void (*TickStep) (void *arg);

extern MemoryContext tick_context;	/* reset after each tick */

extern void tick_init(void);
extern void tick_begin(int64 longest_us);
extern void tick_at_most(int64 us);
extern int64 tick_left_us(void);
extern bool tick_step(const char *what, TickStep step, void *arg);
extern uint32 tick_text_hash(const char *text);

#endif							/* REVENANT_TICK_H */
