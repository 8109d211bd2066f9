/*
 * fence_state.h
 *	  The shared state of one database's tokens, for shmem.c to lay out.
 */
#ifndef REVENANT_FENCE_STATE_H
#define REVENANT_FENCE_STATE_H

#include "postgres.h"

#include "lib/dshash.h"

extern const dshash_parameters *fence_state_params(void);

#endif							/* REVENANT_FENCE_STATE_H */
