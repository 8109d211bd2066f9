/*
 * lease.h
 *	  Leases as the rest of the library uses them.
 */
#ifndef REVENANT_LEASE_H
#define REVENANT_LEASE_H

#include "postgres.h"

#include "utils/jsonb.h"

#define LEASE_NAME_MAX 512		/* bytes */

typedef enum LeaseScope
{
	LEASE_FREE = 0,
	LEASE_TTL,
	LEASE_SESSION,
	LEASE_XACT
} LeaseScope;

/* What a caller asks for. Zero the struct, then set what matters. */
typedef struct LeaseRequest
{
	const char *name;
	const char *function;		/* SQL name of the caller, for messages */
	LeaseScope	scope;
	int64		ttl_us;			/* LEASE_TTL only */
	const char *holder;			/* label, or NULL */
	Jsonb	   *metadata;		/* or NULL */
	bool		wait;			/* false: try */
	int64		wait_us;		/* -1: as long as lock_timeout and statement_timeout allow */
	bool		trusted;		/* a task's own runner: the name may begin with task/ */
} LeaseRequest;

/* lease.c */
extern int64 lease_acquire(const LeaseRequest *request);	/* the token, or 0: not free (in time) */
extern bool lease_session_holds(const char *name, int64 token);
extern int	lease_sweep(int limit); /* within a transaction; how many lapsed rows were removed */
extern void lease_purge(void);	/* within a transaction */
extern void lease_forget_database(Oid database);

#endif							/* REVENANT_LEASE_H */
