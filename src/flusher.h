/*
 * flusher.h
 *	  What a supervisor does about flushers: see flusher.c.
 */
#ifndef REVENANT_FLUSHER_H
#define REVENANT_FLUSHER_H

#include "postgres.h"

extern void flusher_look(Oid instance);
extern PGDLLEXPORT void revenant_flush_main(Datum main_arg);

#endif							/* REVENANT_FLUSHER_H */
