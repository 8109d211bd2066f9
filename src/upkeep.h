/*
 * upkeep.h
 *	  What a supervisor does in each tick beside its tasks.
 */
#ifndef REVENANT_UPKEEP_H
#define REVENANT_UPKEEP_H

#include "postgres.h"

extern void upkeep_leases(void);
extern void upkeep_history(void);
extern void upkeep_requests(void);
extern void upkeep_notifications(void);

#endif							/* REVENANT_UPKEEP_H */
