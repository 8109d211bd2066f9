/*
 * request.h
 *	  What was answered to a request, for whoever asks again after a lost reply.
 */
#ifndef REVENANT_REQUEST_H
#define REVENANT_REQUEST_H

#include "postgres.h"

#include "access/xlogdefs.h"
#include "utils/jsonb.h"
#include "utils/uuid.h"

/* A request as its client repeats it: all of it must be the same. */
typedef struct Request
{
	const pg_uuid_t *request_id;
	const char *verb;			/* "call", "send", "claim_splits", "join_plan" */
	const char *type;
	const char *id;
	const Jsonb *message;
} Request;

/* What the first one was answered */
typedef struct RequestReply
{
	Jsonb	   *reply;			/* or NULL */
	int64		number;			/* of a call: the version; of a send: the message */
	uint64		xid;			/* the transaction that answered, whole */
	XLogRecPtr	lsn;
	TimeLineID	timeline;
} RequestReply;

/* Columns of revenant._request_0 and _request_1 */
enum
{
	ATT_REQUEST_ID = 1,
	ATT_REQUEST_ROLE_OID,
	ATT_REQUEST_VERB,
	ATT_REQUEST_TYPE,
	ATT_REQUEST_ENTITY,
	ATT_REQUEST_DIGEST,
	ATT_REQUEST_REPLY,
	ATT_REQUEST_NUMBER,
	ATT_REQUEST_XID,
	ATT_REQUEST_LSN,
	ATT_REQUEST_TIMELINE,
	REQUEST_COLUMNS = ATT_REQUEST_TIMELINE
};

extern void request_lock(const pg_uuid_t *request_id);
extern bool request_find(const Request *request, RequestReply *reply);
extern void request_note(const Request *request, const RequestReply *reply);
extern void request_rotate(void);

#endif							/* REVENANT_REQUEST_H */
