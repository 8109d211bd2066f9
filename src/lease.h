/*
 * lease.h
 *	  Leases as the rest of the library uses them.
 */
#ifndef REVENANT_LEASE_H
#define REVENANT_LEASE_H

#include "postgres.h"

#include "utils/jsonb.h"
#include "utils/uuid.h"

#define LEASE_NAME_MAX 512		/* bytes */
#define LEASE_SET_MAX 1000		/* names */
#define LEASE_EMPTY_SET "*"		/* the lease that an empty set stands for */

typedef enum LeaseScope
{
	LEASE_FREE = 0,
	LEASE_TTL,
	LEASE_SESSION,
	LEASE_XACT,
	LEASE_DELAYED				/* nobody's until its deadline: released with a hold_off */
} LeaseScope;

/* What a caller asks for. Zero the struct, then set what matters. */
typedef struct LeaseRequest
{
	const char *name;
	char	  **names;			/* a set, without duplicates, instead of `name`; or NULL */
	int			count;			/* of the set */
	const char *function;		/* SQL name of the caller, for messages */
	LeaseScope	scope;
	int64		ttl_us;			/* LEASE_TTL only, as all down to request_id */
	int64		lock_delay_us;	/* after a lapse nobody gets it for this long */
	bool		bound;			/* ends with this session, too */
	const pg_uuid_t *request_id;	/* or NULL: makes a repeat after a lost reply the same request */
	const char *holder;			/* label, or NULL */
	Jsonb	   *metadata;		/* or NULL */
	bool		shared;			/* session and transaction scope only */
	bool		wait;			/* false: try */
	int64		wait_us;		/* -1: as long as lock_timeout and statement_timeout allow */
	bool		election;		/* LEASE_TTL: its changes of hands are events */
	bool		trusted;		/* a task's own runner, or a plan's leader: the name may begin with task/ or plan/, and memory that is full for users is not full for it */
} LeaseRequest;

/* lease.c */
extern int64 lease_acquire(const LeaseRequest *request);	/* the token, or 0: not free (in time) */
extern int64 lease_held_token(const char *name);
extern bool lease_session_holds(const char *name, int64 token);

/* lease_sweep.c; each but the last within a transaction */
extern bool lease_sweep_look(void);
extern int	lease_sweep_some(int limit);
extern void lease_purge(void);
extern void lease_forget_database(Oid database);

#endif							/* REVENANT_LEASE_H */
