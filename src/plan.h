/*
 * plan.h
 *	  Plans: their rows, and who they belong to.
 */
#ifndef REVENANT_PLAN_H
#define REVENANT_PLAN_H

#include "postgres.h"

#include "access/htup.h"
#include "datatype/timestamp.h"
#include "fmgr.h"
#include "utils/jsonb.h"
#include "utils/rel.h"

#include "clock.h"
#include "compat.h"
#include "extension.h"

#define PLAN_NAME_MAX 400		/* bytes; it is a part of a task's name and of a lease's */
#define PLAN_TTL_MIN_US (300 * US_PER_MS)	/* of who leads a plan, or works on it */
#define PLAN_PREFIX "plan/"		/* of its lease, and of the task of its planner */

/* Columns of revenant.plan */
enum
{
	ATT_PLAN_NAME = 1,
	ATT_PLAN_ID,
	ATT_PLAN_OWNER,
	ATT_PLAN_OWNER_OID,
	ATT_PLAN_FINGERPRINT,
	ATT_PLAN_PLANNER_FUNCTION,
	ATT_PLAN_REPLAN_EVERY,
	ATT_PLAN_LEASE_TTL,
	ATT_PLAN_MAX_ATTEMPTS,
	ATT_PLAN_MAX_IN_FLIGHT,
	ATT_PLAN_REBALANCE_DELAY,
	ATT_PLAN_DRAIN_DEADLINE,
	ATT_PLAN_METADATA,
	ATT_PLAN_CREATED_AT,
	ATT_PLAN_SYSTEM_IDENTIFIER,
	ATT_PLAN_DATABASE_OID,
	/* what planners made of it */
	ATT_PLAN_GENERATION,
	ATT_PLAN_LEADER,
	ATT_PLAN_FINAL,
	ATT_PLAN_PLANNED,
	ATT_PLAN_LAST_NUMBER,
	ATT_PLAN_REVISION,
	ATT_PLAN_CURSOR,
	ATT_PLAN_UPDATED_AT,
	ATT_PLAN_VERDICT,
	ATT_PLAN_VERDICT_SEQ,
	ATT_PLAN_REPLAN_AT,
	ATT_PLAN_REPLAN_OUTCOME,
	ATT_PLAN_REPLAN_ERROR,
	PLAN_COLUMNS = ATT_PLAN_REPLAN_ERROR
};

/* What was found when all was planned and nothing was left to be done; stored as a text. */
typedef enum PlanVerdict
{
	VERDICT_NONE = 0,
	VERDICT_COMPLETE,			/* every split is done */
	VERDICT_STALLED				/* the rest is quarantined */
} PlanVerdict;

/* What the library needs of a row of revenant.plan beside its planner's cursor; strings are palloc'd. */
typedef struct PlanRow
{
	char	   *name;
	int64		plan_id;
	char	   *owner;
	Oid			owner_oid;
	char	   *fingerprint;	/* or NULL */
	char	   *planner_function;	/* or NULL */
	int64		replan_every_us;
	int64		lease_ttl_us;
	int			max_attempts;
	int			max_in_flight;
	int64		rebalance_delay_us;
	int64		drain_deadline_us;
	bool		native;			/* made in, or adopted by, this database */
	int64		generation;		/* 0: nobody led yet */
	bool		final;
	int64		planned;
	int64		last_number;	/* of its splits: they are numbered in the order of their publication */
	int64		revision;
	PlanVerdict verdict;
	int64		verdict_seq;	/* 0: none */
} PlanRow;

/* A row that is locked against everybody else until this transaction ends */
typedef struct PlanChange
{
	Extension	oids;
	Relation	rel;			/* revenant.plan */
	HeapTuple	tuple;
	PlanRow		row;
} PlanChange;

/* plan.c */
extern char *plan_name_arg(FunctionCallInfo fcinfo, int n);
extern char *plan_lease_name(const char *plan);
extern HeapTuple plan_find_row(const Extension *extension, const char *name, PlanRow *row);
extern void plan_parse(HeapTuple tuple, TupleDesc desc, PlanRow *row);
extern bool plan_lock_change(const Extension *extension, const char *name, bool wait);
extern void plan_begin_change(const char *name, PlanChange *change);
extern void plan_write(PlanChange *change, Datum *values, bool *nulls, bool *replace);
extern void plan_end_change(PlanChange *change);
extern bool plan_replan_is_news(const PlanChange *change, const char *outcome, const char *error);
extern bool plan_note_replan(const PlanChange *change, const char *outcome, const char *error, Datum *values, bool *nulls, bool *replace);
extern void plan_require_owner(const char *name, const char *owner, Oid owner_oid);
extern bool plan_is_owned_by_caller(Oid owner_oid);
extern bool plan_role_owns(const char *name);
extern compat_noreturn void plan_raise_unknown(const char *name);
extern compat_noreturn void plan_raise_held(const char *name);
extern void plan_require_fingerprint(const char *name, const char *has, const char *given);
extern const char *plan_verdict_name(PlanVerdict verdict);

/* plan_define.c */
extern int64 plan_adopt(const Extension *extension);

/* What a planner publishes, and what became of it */
typedef struct PlanPublication
{
	int64		generation;
	Jsonb	   *splits;			/* an array; NULL: nothing new */
	Jsonb	   *cursor;			/* NULL: keep the one that is there */
	bool		final;
	bool		replan;			/* by a planner_function: the row says how that went */
	bool		changed;		/* something was new */
	int64		created;
	int64		planned;
	int64		revision;
} PlanPublication;

struct PlanUse;					/* plan_xact.h */

/* plan_publish.c */
extern void plan_lead(struct PlanUse *use, int64 generation, const char *leader);
extern void plan_publish(struct PlanUse *use, PlanPublication *publication);
extern bool plan_error_is_fence(int sqlerrcode);

/* plan_planner.c: the task of an in-database planner */
extern void plan_task_write(const Extension *extension, const PlanRow *row, bool anew);
extern void plan_task_remove(const Extension *extension, const char *plan);
extern bool plan_task_rest(const Extension *extension, const char *plan, bool rest);
extern void plan_task_run_now(const Extension *extension, const char *plan);
extern bool plan_task_try_run_now(const Extension *extension, const char *plan);
extern Oid	plan_function_find(const char *name);
extern bool plan_function_is_planner(const Extension *extension, Oid function);

#endif							/* REVENANT_PLAN_H */
