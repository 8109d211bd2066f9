/*
 * update.h
 *	  The update of the extension to another version.
 */
#ifndef REVENANT_UPDATE_H
#define REVENANT_UPDATE_H

#include "postgres.h"

extern void update_finish(void);

#endif							/* REVENANT_UPDATE_H */
