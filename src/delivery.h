/*
 * delivery.h
 *	  The process that delivers the messages and timers of one role.
 */
#ifndef REVENANT_DELIVERY_H
#define REVENANT_DELIVERY_H

#include "postgres.h"

extern PGDLLEXPORT void revenant_delivery_main(Datum main_arg);

#endif							/* REVENANT_DELIVERY_H */
