/*
 * update.h
 *	  The update of the extension to another version.
 */
#ifndef REVENANT_UPDATE_H
#define REVENANT_UPDATE_H

#include "postgres.h"

extern Datum update_begin(void);
extern void update_finish(Datum levels);

#endif							/* REVENANT_UPDATE_H */
