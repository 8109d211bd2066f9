/*
 * plan_memory.h
 *	  How plans, claims and members come into shared memory, and go.
 */
#ifndef REVENANT_PLAN_MEMORY_H
#define REVENANT_PLAN_MEMORY_H

#include "postgres.h"

#include "claim_entry.h"
#include "member_entry.h"
#include "plan_entry.h"

extern void plan_load(const Extension *extension, PlanEntry *entry, const PlanRow *row);
extern void plan_refill(const Extension *extension, PlanEntry *entry);
extern void plan_memory_purge(Oid database, Oid keep_instance);

#endif							/* REVENANT_PLAN_MEMORY_H */
