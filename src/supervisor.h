/*
 * supervisor.h
 *	  One for each database: starts and stops runners.
 */
#ifndef REVENANT_SUPERVISOR_H
#define REVENANT_SUPERVISOR_H

#include "postgres.h"

extern PGDLLEXPORT void revenant_supervisor_main(Datum main_arg);

#endif							/* REVENANT_SUPERVISOR_H */
