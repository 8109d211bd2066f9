/*
 * lease_holder.h
 *	  Shared holds: many of one name, each with a token of its own.
 */
#ifndef REVENANT_LEASE_HOLDER_H
#define REVENANT_LEASE_HOLDER_H

#include "postgres.h"

#include "lease_entry.h"

typedef struct LeaseHolderKey
{
	LeaseKey	lease;
	int64		token;
} LeaseHolderKey;

typedef struct LeaseHolder
{
	LeaseHolderKey key;
	bool		committed;		/* false: its transaction has not ended */
	bool		busy;			/* a transaction of its process has a pointer to it */
	uint16		name_len;
	dsa_pointer name;
	LeaseHold	hold;			/* LEASE_FREE: over, to be deleted */
} LeaseHolder;

typedef void (*LeaseHolderVisitor) (const LeaseHolder *holder, void *arg);

extern const dshash_parameters *lease_holder_params(void);

extern LeaseHolder *lease_holder_add(const LeaseKey *lease, const char *name, const LeaseHold *hold);
extern LeaseHolder *lease_holder_pin(const LeaseKey *lease, int64 token);
extern void lease_holder_commit(LeaseHolder *holder);
extern void lease_holder_end(LeaseHolder *holder);
extern void lease_holder_unpin(LeaseHolder *holder);
extern bool lease_holder_find(const LeaseKey *lease, int64 token, LeaseHold *hold);
extern bool lease_holder_mine(const LeaseKey *lease, LeaseHold *hold);
extern void lease_holder_disown(const LeaseKey *lease);
extern int	lease_holder_count_mine(void);
extern void lease_holder_reap(void);
extern void lease_holder_purge(Oid database);
extern void lease_holder_visit(LeaseHolderVisitor visit, void *arg);

#endif							/* REVENANT_LEASE_HOLDER_H */
