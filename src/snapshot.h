/*
 * snapshot.h
 *	  Versioned snapshot tables: tables of their users', read and written by key.
 */
#ifndef REVENANT_SNAPSHOT_H
#define REVENANT_SNAPSHOT_H

#include "postgres.h"

#include "access/htup.h"
#include "datatype/timestamp.h"
#include "executor/spi.h"
#include "storage/itemptr.h"
#include "storage/lock.h"
#include "utils/jsonb.h"
#include "utils/rel.h"

/* The columns that a snapshot table has; it may have others beside them. */
typedef enum SnapshotColumn
{
	SNAPSHOT_ID = 0,
	SNAPSHOT_VERSION,
	SNAPSHOT_VSN,
	SNAPSHOT_STATE,
	SNAPSHOT_UPDATED_AT,
	SNAPSHOT_DELETED,
	SNAPSHOT_RESERVED,
	SNAPSHOT_COLUMNS			/* how many there are */
} SnapshotColumn;

/* Statements that are prepared once for each table */
typedef enum SnapshotPlan
{
	PLAN_READ = 0,
	PLAN_LOCK,
	PLAN_TRY_LOCK,
	PLAN_UPDATE,
	PLAN_INSERT,
	PLAN_OLDER,					/* of the history: one version, the latest before a time, all */
	PLAN_OLDER_AT,
	PLAN_HISTORY,
	PLAN_KEEP,					/* the trigger's */
	PLAN_PRUNE,
	PLAN_FORGET,
	SNAPSHOT_PLANS
} SnapshotPlan;

/* What a process knows of a snapshot table; valid until the next invalidation is looked at. */
typedef struct SnapshotTable
{
	Oid			oid;			/* hash key */
	bool		valid;
	bool		plain;			/* rows can be read and written without the executor */
	bool		calm;			/* nothing of the user's sees a write: no rule, no row security, no trigger but the history's; it is not temporary, and each id is one of its own */
	Oid			index;			/* the unique one on id */
	Oid			collation;		/* of that */
	Oid			owner;
	AttrNumber	attribute[SNAPSHOT_COLUMNS];
	SPIPlanPtr	plans[SNAPSHOT_PLANS];
} SnapshotTable;

/* A snapshot table that is open, with a lock that stays to the end of the transaction */
typedef struct Snapshots
{
	SnapshotTable *table;
	Relation	rel;
	bool		plain;			/* for this caller, in this transaction */
	bool		queued;			/* Q of a row is held: snapshot_row.c */
	LOCKTAG		queue;
} Snapshots;

/* One row. Zeroed: there is none. */
typedef struct SnapshotRow
{
	bool		exists;
	bool		deleted;		/* a tombstone */
	int32		vsn;
	int64		version;
	int64		reserved;		/* versions up to this one may have been given to states that are lost */
	TimestampTz updated_at;
	Jsonb	   *state;			/* NULL: none */
	ItemPointerData tid;
	TransactionId xmin;			/* who wrote it like this */
	HeapTuple	tuple;			/* of a row that was locked without the executor: all its columns, palloc'd */
	CommandId	command;		/* which locked that */
} SnapshotRow;

/* what a table is: snapshot_table.c */
extern Oid	snapshot_argument(FunctionCallInfo fcinfo, int argument);
extern void snapshot_open(Oid table, LOCKMODE mode, Snapshots *snapshots);
extern void snapshot_leave_queue(Snapshots *snapshots);
extern void snapshot_close(Snapshots *snapshots);
extern SPIPlanPtr snapshot_plan(Snapshots *snapshots, SnapshotPlan which);
extern char *snapshot_history_name(Oid table, Oid *history);
extern void snapshot_install_callbacks(void);

/* its rows: snapshot_row.c */
extern void snapshot_read(Snapshots *snapshots, const char *id, SnapshotRow *row);
extern void snapshot_lock(Snapshots *snapshots, const char *id, SnapshotRow *row);
extern bool snapshot_try_lock(Snapshots *snapshots, const char *id, SnapshotRow *row);
extern bool snapshot_may_write(const Snapshots *snapshots);
extern bool snapshot_wait_for_insert(Snapshots *snapshots, const char *id);
extern bool snapshot_insert(Snapshots *snapshots, const char *id, const SnapshotRow *row);
extern bool snapshot_update(Snapshots *snapshots, const char *id, const SnapshotRow *old, SnapshotRow *row);
extern void snapshot_complain_if_suppressed(Snapshots *snapshots, const char *id, const SnapshotRow *old);
extern void snapshot_next(const SnapshotRow *old, SnapshotRow *row);
extern Datum snapshot_column(const Snapshots *snapshots, HeapTuple tuple, SnapshotColumn which, bool *isnull);
extern void snapshot_fill(HeapTuple tuple, TupleDesc desc, SnapshotRow *row);

/* what SQL sees: snapshot_api.c */
extern void snapshot_require_writable(const char *function);
extern Datum snapshot_datum(FunctionCallInfo fcinfo, const char *id, const SnapshotRow *row, bool dirty);

#endif							/* REVENANT_SNAPSHOT_H */
