/*
 * row.h
 *	  Direct access to the extension's own tables, by their primary key.
 *
 * No executor and no SPI: no privilege of the caller's is needed, no trigger
 * of anybody's runs, and a serializable transaction reads by no MVCC snapshot,
 * so nothing here can give a user 40001. Readers see what is committed now
 * and what their own transaction wrote, at every isolation level.
 */
#ifndef REVENANT_ROW_H
#define REVENANT_ROW_H

#include "postgres.h"

#include "access/htup.h"
#include "access/genam.h"
#include "access/tableam.h"
#include "storage/lockdefs.h"
#include "utils/rel.h"
#include "utils/uuid.h"

/* What became of an attempt to lock a row */
typedef enum RowLock
{
	ROW_LOCKED,
	ROW_CHANGED,				/* or gone; find it again */
	ROW_BUSY					/* somebody else has it */
} RowLock;

typedef void (*RowVisitor) (Relation rel, HeapTuple tuple, void *arg);

extern bool row_try_open(Oid table, LOCKMODE mode, Relation *rel);	/* false: locked by somebody else */
extern HeapTuple row_find(Relation rel, Oid index, const char *key);	/* palloc'd copy, or NULL */
extern HeapTuple row_find_number(Relation rel, Oid index, int64 key);
extern HeapTuple row_find_uuid(Relation rel, Oid index, const pg_uuid_t *key);
extern HeapTuple row_find_locked(Relation rel, Oid index, const char *key); /* nobody else can write it */
extern void row_insert(Relation rel, Datum *values, bool *nulls);
extern bool row_insert_first(Relation rel, Datum *values, bool *nulls);
extern RowLock row_outcome(TM_Result result);
extern bool row_lock(Relation rel, HeapTuple tuple);	/* false: changed or gone; find it again */
extern RowLock row_try_lock(Relation rel, HeapTuple tuple);	/* the same, without waiting */
extern void row_update(Relation rel, HeapTuple old, Datum *values, bool *nulls, bool *replace);
extern bool row_delete(Relation rel, HeapTuple old);	/* waits for a concurrent writer; false: gone or changed */
extern int64 row_delete_range(Relation rel, Oid index, int64 key);	/* how many */
extern int64 row_sequence_value(Oid sequence);
extern RowLock row_try_delete(Relation rel, HeapTuple old);
extern void row_visit(Relation rel, RowVisitor visit, void *arg);

#endif							/* REVENANT_ROW_H */
