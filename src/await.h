/*
 * await.h
 *	  Waiting without a snapshot.
 */
#ifndef REVENANT_AWAIT_H
#define REVENANT_AWAIT_H

#include "postgres.h"

#include "fmgr.h"

extern void await_leave_snapshot(FunctionCallInfo fcinfo);

#endif							/* REVENANT_AWAIT_H */
