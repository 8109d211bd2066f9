/*
 * lease_row.h
 *	  The rows of revenant.lease: ttl holds, durably.
 */
#ifndef REVENANT_LEASE_ROW_H
#define REVENANT_LEASE_ROW_H

#include "postgres.h"

#include "lease_entry.h"

/* Column numbers of revenant.lease; sql/parts/lease.sql has them in this order. */
enum
{
	LEASE_ROW_NAME = 1,
	LEASE_ROW_TOKEN,
	LEASE_ROW_HOLDER,
	LEASE_ROW_ROLE,
	LEASE_ROW_ROLE_OID,
	LEASE_ROW_PID,
	LEASE_ROW_TTL,
	LEASE_ROW_BOUND,
	LEASE_ROW_ELECTION,
	LEASE_ROW_LOCK_DELAY,
	LEASE_ROW_HOLD_OFF,
	LEASE_ROW_METADATA,
	LEASE_ROW_ACQUIRED_AT,
	LEASE_ROW_REQUEST_ID,
	LEASE_ROW_SYSTEM_IDENTIFIER,
	LEASE_ROW_DATABASE_OID,
	LEASE_ROW_DEADLINE_US,
	LEASE_ROW_SERVER_START,
	LEASE_ROW_COLUMNS = LEASE_ROW_SERVER_START
};

/* A row as the view wants it; strings and metadata are palloc'd. */
typedef struct LeaseRow
{
	char	   *name;
	LeaseHold	hold;			/* its deadline as after a restart; 0 when the row was copied from elsewhere */
	char	   *holder;
	char	   *role;
	Jsonb	   *metadata;
	bool		bound;
} LeaseRow;

extern bool lease_row_load(const char *name, LeaseHold *hold);
extern void lease_row_write(const char *name, const LeaseHold *hold, const LeaseRequest *request, bool exists);
extern bool lease_row_delete(const char *name, int64 token, bool held);
extern bool lease_row_hold_off(const char *name, const LeaseHold *hold, int64 hold_off_us);
extern bool lease_row_is_request(const char *name, const LeaseRequest *request, int64 *token);
extern bool lease_row_lengthen(const char *name, int64 token, int64 ttl_us);
extern int64 lease_row_renew(const char *name, int64 token, int64 ttl_us, int64 deadline_us);
extern char *lease_row_holder(const char *name);
extern void lease_row_visit(bool details, void (*visit) (const LeaseRow *row, void *arg), void *arg);

#endif							/* REVENANT_LEASE_ROW_H */
