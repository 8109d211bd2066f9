/*
 * lease_budget.h
 *	  How much of the server's lock table leases may take.
 */
#ifndef REVENANT_LEASE_BUDGET_H
#define REVENANT_LEASE_BUDGET_H

#include "postgres.h"

#include "compat.h"

extern Size lease_budget_shmem_size(void);
extern void lease_budget_shmem_init(void *place, bool found);
extern bool lease_budget_has_room(int locks, bool passing);
extern compat_noreturn void lease_budget_raise(bool passing);
extern void lease_budget_add(int locks);

#endif							/* REVENANT_LEASE_BUDGET_H */
