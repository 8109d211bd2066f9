/*
 * interval.h
 *	  A stand-in for PostgreSQL's own parser of intervals, which only a server has.
 */
#ifndef REVENANT_FUZZ_INTERVAL_H
#define REVENANT_FUZZ_INTERVAL_H

#include "target.h"

extern void interval_answers(Input *input);

#endif							/* REVENANT_FUZZ_INTERVAL_H */
