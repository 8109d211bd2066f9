/*
 * lease_api.h
 *	  What lease.c offers to the SQL functions in lease_api.c.
 */
#ifndef REVENANT_LEASE_API_H
#define REVENANT_LEASE_API_H

#include "postgres.h"

typedef struct LeaseNameToken
{
	const char *function;		/* SQL name of the caller, for messages */
	const char *name;
	int64		token;
} LeaseNameToken;

extern int64 lease_renew(const LeaseNameToken *arg, int64 ttl_us);
extern bool lease_release(const LeaseNameToken *arg);
extern bool lease_is_current(const LeaseNameToken *arg);
extern void lease_fence(const LeaseNameToken *arg);
extern bool lease_guard_passes(const char *name);
extern char *lease_name_check(const char *name);

#endif							/* REVENANT_LEASE_API_H */
