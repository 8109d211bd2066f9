/*
 * member_row.h
 *	  Workers that joined a plan: their rows.
 */
#ifndef REVENANT_MEMBER_ROW_H
#define REVENANT_MEMBER_ROW_H

#include "postgres.h"

#include "access/htup.h"
#include "utils/rel.h"

#include "extension.h"

/* Columns of revenant.member */
enum
{
	ATT_MEMBER_PLAN_ID = 1,
	ATT_MEMBER_WORKER,
	ATT_MEMBER_MEMBER,
	ATT_MEMBER_ROLE,
	ATT_MEMBER_ROLE_OID,
	ATT_MEMBER_CAPACITY,
	ATT_MEMBER_TTL,
	ATT_MEMBER_JOINED_AT,
	ATT_MEMBER_SUPERSEDES,
	MEMBER_COLUMNS = ATT_MEMBER_SUPERSEDES
};

/* A row of revenant.member; strings are palloc'd. */
typedef struct MemberRow
{
	HeapTuple	tuple;			/* a copy */
	char	   *worker;
	int64		member;
	Oid			role;
	int			capacity;		/* 0: the plan's max_in_flight */
	int64		ttl_us;			/* 0: the plan's lease_ttl */
	TimestampTz joined_at;
	int64		supersedes;		/* the member that had its name before; 0: none */
} MemberRow;

extern void member_visit_rows(const Extension *extension, int64 plan_id, void (*visit) (const MemberRow *row, void *arg), void *arg);
extern bool member_find_row(Relation rel, const Extension *extension, int64 plan_id, const char *worker, MemberRow *row);
extern void member_delete_row(const Extension *extension, int64 plan_id, const char *worker, int64 member);
extern bool member_lock_name(int64 plan_id, const char *worker, bool wait);
extern bool member_try_delete_row(const Extension *extension, int64 plan_id, const char *worker, int64 member);

#endif							/* REVENANT_MEMBER_ROW_H */
