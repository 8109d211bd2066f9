/*
 * launcher.h
 *	  The static workers.
 */
#ifndef REVENANT_LAUNCHER_H
#define REVENANT_LAUNCHER_H

#include "postgres.h"

extern void launcher_register(void);

extern PGDLLEXPORT void revenant_launcher_main(Datum main_arg);
extern PGDLLEXPORT void revenant_promotion_main(Datum main_arg);

#endif							/* REVENANT_LAUNCHER_H */
