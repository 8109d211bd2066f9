/*
 * result.h
 *	  Rows that functions return: ours to whoever called them, and users' to us.
 */
#ifndef REVENANT_RESULT_H
#define REVENANT_RESULT_H

#include "postgres.h"

#include "fmgr.h"

extern Datum result_row(FunctionCallInfo fcinfo, const Datum *values, const bool *nulls);
extern void result_read(Datum composite, int columns, Datum *values, bool *nulls, const char *what);

#endif							/* REVENANT_RESULT_H */
