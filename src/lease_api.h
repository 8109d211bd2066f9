/*
 * lease_api.h
 *	  What lease.c offers to the SQL functions in lease_api.c.
 */
#ifndef REVENANT_LEASE_API_H
#define REVENANT_LEASE_API_H

#include "postgres.h"

#include "fmgr.h"

#include "lease.h"
#include "lease_entry.h"

#define LEASE_TTL_MAX_US (INT64CONST(3660) * 86400 * US_PER_S)	/* 10 years, however they are counted */

typedef struct LeaseNameToken
{
	const char *function;		/* SQL name of the caller, for messages */
	const char *name;
	int64		token;
} LeaseNameToken;

extern int64 lease_renew(const LeaseNameToken *arg, int64 ttl_us);
extern int64 lease_renew_all(const LeaseNameToken *arg, char **names, int count, int64 ttl_us);
extern bool lease_release(const LeaseNameToken *arg, int64 hold_off_us);
extern char *lease_who(const char *name, LeaseHold *hold);
extern int64 lease_await_change(const char *name, int64 seen, int64 until_us);
extern bool lease_is_current(const LeaseNameToken *arg);
extern void lease_fence(const LeaseNameToken *arg);
extern bool lease_guard_passes(const char *name);
extern void lease_end_ttl(const char *name, const char *reason);

/* lease_api.c: arguments, for all SQL functions about leases */
extern char *lease_name_check(const char *name);
extern char *lease_name_arg(FunctionCallInfo fcinfo, int n);
extern int64 lease_ttl_arg(FunctionCallInfo fcinfo, int n);
extern int64 lease_wait_arg(FunctionCallInfo fcinfo, int n);
extern char *lease_holder_arg(FunctionCallInfo fcinfo, int n);
extern bool lease_name_token_args(FunctionCallInfo fcinfo, LeaseNameToken *arg);
extern void lease_acquire_args(FunctionCallInfo fcinfo, int first, LeaseRequest *request);

#endif							/* REVENANT_LEASE_API_H */
