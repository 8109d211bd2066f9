/*
 * ddl.h
 *	  Commands that need a database for themselves, and our workers in it.
 */
#ifndef REVENANT_DDL_H
#define REVENANT_DDL_H

#include "postgres.h"

extern void ddl_install_hooks(void);

#endif							/* REVENANT_DDL_H */
