/*
 * split_row.h
 *	  The rows of splits: what each is, which never changes, and how far it is.
 */
#ifndef REVENANT_SPLIT_ROW_H
#define REVENANT_SPLIT_ROW_H

#include "postgres.h"

#include "access/genam.h"
#include "access/htup.h"
#include "access/relscan.h"
#include "datatype/timestamp.h"
#include "executor/tuptable.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"
#include "utils/rel.h"

#include "extension.h"
#include "row.h"

#define SPLIT_NAME_MAX 128		/* bytes */

/* Columns of revenant.split */
enum
{
	ATT_SPLIT_PLAN_ID = 1,
	ATT_SPLIT_NUMBER,
	ATT_SPLIT_NAME,
	ATT_SPLIT_WEIGHT,
	ATT_SPLIT_GENERATION,
	ATT_SPLIT_SPEC,
	SPLIT_COLUMNS = ATT_SPLIT_SPEC
};

/* Columns of revenant.split_state */
enum
{
	ATT_STEP_PLAN_ID = 1,
	ATT_STEP_NUMBER,
	ATT_STEP_EPOCH,
	ATT_STEP_MEMBER,
	ATT_STEP_UPDATED_AT,
	ATT_STEP_ROLE_OID,
	ATT_STEP_ATTEMPTS,
	ATT_STEP_STATE,
	ATT_STEP_ENDED,
	ATT_STEP_WORKER,
	ATT_STEP_WATERMARK,
	ATT_STEP_PROGRESS,
	ATT_STEP_REASONS,
	STEP_COLUMNS = ATT_STEP_REASONS
};

/* Where a split is; stored as a number, for ever. */
typedef enum SplitState
{
	SPLIT_RUNNABLE = 0,			/* to be claimed */
	SPLIT_OWNED = 1,
	SPLIT_DONE = 2,
	SPLIT_QUARANTINED = 3		/* given up after max_attempts */
} SplitState;

/* How its latest claim ended; stored as a number, for ever. */
typedef enum ClaimEnd
{
	END_NONE = 0,				/* it did not, or there was none */
	END_DONE = 1,
	END_RELEASED = 2,			/* by its worker: release_split(), leave_plan() */
	END_FAILED = 3,				/* fail_split() */
	END_EXPIRED = 4,			/* its time was over, or its member's */
	END_DRAINED = 5,			/* handed over for the sake of balance: drained() */
	END_REVOKED = 6,			/* it was not drained in time */
	END_STARVED = 7,			/* its drain was cancelled, and nothing was heard of it then */
	END_FENCED = 8,				/* its member joined again under the same name, and goes on with it under a new epoch */
	END_REQUEUED = 9			/* it was out of quarantine by hand */
} ClaimEnd;

/* A row of revenant.split_state */
typedef struct SplitRow
{
	HeapTuple	tuple;			/* a copy; NULL for split_visit() */
	int64		number;
	int64		epoch;			/* 0: it was never claimed */
	int64		member;			/* 0: by claim_splits(), or nobody's */
	TimestampTz updated_at;
	Oid			role;
	int			attempts;		/* ends that were not graceful, since it advanced */
	SplitState	state;
	ClaimEnd	ended;
	/* not for split_visit(); or NULL */
	char	   *worker;
	Numeric		watermark;
	Jsonb	   *progress;
	Jsonb	   *reasons;		/* why attempts failed */
} SplitRow;

/* A row of revenant.split */
typedef struct SplitSpec
{
	int64		number;
	char	   *name;
	int64		weight;
	int64		generation;
	Jsonb	   *spec;			/* or NULL */
} SplitSpec;

/* One of the two tables, open and ready for many looks at rows of one plan */
typedef struct SplitTable
{
	Relation	rel;
	Relation	index;
	MemoryContext context;		/* of the two below: whoever opened it may look from contexts that come and go */
	IndexScanDesc scan;			/* NULL: no look yet */
	TupleTableSlot *slot;
	int64		latest;			/* the number of the latest look */
	bool		walks;			/* the scan goes on from there */
} SplitTable;

/* Both, as a statement uses them */
typedef struct SplitTables
{
	int64		plan_id;
	SplitTable	spec;
	SplitTable	state;
	Oid			by_name;		/* the index of revenant.split by plan and name */
} SplitTables;

extern void split_lock_fenced(int64 plan_id, LOCKMODE mode);
extern void split_open(SplitTables *tables, const Extension *extension, int64 plan_id, LOCKMODE mode);
extern bool split_try_open(SplitTables *tables, const Extension *extension, int64 plan_id, LOCKMODE mode);
extern void split_rest(SplitTables *tables);
extern void split_close(SplitTables *tables);
extern bool split_find_spec(SplitTables *tables, int64 number, SplitSpec *spec);
extern bool split_find_row(SplitTables *tables, int64 number, SplitRow *row);
extern bool split_find_name(SplitTables *tables, const char *name, SplitSpec *spec);
extern RowLock split_update(SplitTables *tables, const SplitRow *row, const Datum *values, const bool *nulls, const bool *replace, bool wait);
extern RowLock split_own(SplitTables *tables, const SplitRow *row, int64 epoch, int64 member, Oid role, const char *worker, bool wait);
extern RowLock split_end(SplitTables *tables, const SplitRow *row, ClaimEnd how, SplitState state, const char *reason, bool wait);
extern void split_visit(const Extension *extension, int64 plan_id, int64 from, int64 to,
						void (*visit) (const SplitRow *row, void *arg), void *arg);
extern const char *split_state_name(SplitState state);
extern const char *claim_end_name(ClaimEnd how);

#endif							/* REVENANT_SPLIT_ROW_H */
