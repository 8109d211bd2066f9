/*
 * lease_xact.h
 *	  What a transaction did to leases, and what becomes of it at its end.
 */
#ifndef REVENANT_LEASE_XACT_H
#define REVENANT_LEASE_XACT_H

#include "postgres.h"

#include "lease_entry.h"
#include "stat.h"

#define LEASE_OPS_MAX 1000		/* leases that a transaction holds and fences at most */

typedef enum LeaseOpKind
{
	LEASE_OP_ACQUIRE,			/* hold: what is published at commit */
	LEASE_OP_RELEASE,
	LEASE_OP_LENGTHEN,			/* hold.ttl_us: the row's ttl from the commit on */
	LEASE_OP_FENCE,
	LEASE_OP_LOOK				/* nothing: only the pin, while a call looks at the entry */
} LeaseOpKind;

typedef struct LeaseOp
{
	LeaseOpKind kind;
	LeaseEntry *entry;			/* pinned until the end of the transaction */
	int			nest_level;		/* of the subtransaction it belongs to */
	bool		locked;			/* acquire in session scope: H was taken at session level */
	bool		granted;		/* acquire: the token is drawn */
	bool		implicit;		/* fence: by holding the name, not by fence() */
	bool		has_bound_lock;	/* acquire: B was taken at session level */
	bool		takes_over;		/* acquire: from a ttl hold that was over */
	StatCounter counted;		/* at commit; STAT_NOTHING: it is not */
	int64		hold_off_us;	/* release: nobody gets the name for this long from the commit on */
	struct LeaseHolder *holder; /* of a shared hold: mapped, and not purged before the end */
	LeaseHold	hold;
	struct LeaseOp *previous;	/* newest first */
} LeaseOp;

extern void lease_xact_install_callbacks(void);
extern LeaseOp *lease_xact_add(LeaseOpKind kind, LeaseEntry *entry, int64 token);
extern void lease_xact_become_acquire(LeaseOp *look, bool trusted);
extern void lease_xact_forget(LeaseOp *op);
extern LeaseOp *lease_xact_find(LeaseOpKind kind, const LeaseEntry *entry, int64 token);
extern LeaseOp *lease_xact_find_key(LeaseOpKind kind, const LeaseKey *key);
extern bool lease_xact_is_empty(void);
extern void lease_xact_check_session_limit(int more);
extern void lease_xact_check_room(void);
extern void lease_xact_doubt_session(void);
extern void lease_xact_forget_session(void);

#endif							/* REVENANT_LEASE_XACT_H */
