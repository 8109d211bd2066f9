/*
 * receipt.h
 *	  What became of the last call of this session.
 */
#ifndef REVENANT_RECEIPT_H
#define REVENANT_RECEIPT_H

#include "postgres.h"

#include "access/xlogdefs.h"

#include "entity.h"

typedef struct Receipt
{
	char		type[ENTITY_TYPE_MAX + 1];	/* empty: no call yet */
	char		id[ENTITY_ID_MAX + 1];
	int64		version;
	bool		durable;		/* once the transaction is committed */
	uint64		xid;			/* 0: it wrote nothing */
	XLogRecPtr	lsn;
	TimeLineID	timeline;
	XLogRecPtr	written_to;		/* the end of what the transaction had written; 0: nothing, or it is flushed */
} Receipt;

extern void receipt_set_written(const char *type, const char *id, int64 version);
extern void receipt_set(const Receipt *receipt);

#endif							/* REVENANT_RECEIPT_H */
