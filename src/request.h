/*
 * request.h
 *	  What was answered to a request, for whoever asks again after a lost reply.
 */
#ifndef REVENANT_REQUEST_H
#define REVENANT_REQUEST_H

#include "postgres.h"

#include "utils/jsonb.h"
#include "utils/uuid.h"

/* A request as its client repeats it: all of it must be the same. */
typedef struct Request
{
	const pg_uuid_t *request_id;
	const char *verb;			/* "call" or "send" */
	const char *type;
	const char *id;
	const Jsonb *message;
} Request;

/* What the first one was answered */
typedef struct RequestReply
{
	Jsonb	   *reply;			/* or NULL */
	int64		number;			/* of a call: the version; of a send: the message */
	uint64		xid;			/* the transaction that answered */
	uint64		lsn;
	uint32		timeline;
} RequestReply;

extern bool request_find(const Request *request, RequestReply *reply);
extern void request_note(const Request *request, const RequestReply *reply);
extern bool request_rotate(void);

#endif							/* REVENANT_REQUEST_H */
