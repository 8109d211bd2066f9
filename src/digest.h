/*
 * digest.h
 *	  What stands for a name in the keys of shared memory.
 */
#ifndef REVENANT_DIGEST_H
#define REVENANT_DIGEST_H

#include "postgres.h"

#define DIGEST_BYTES 16

extern void digest_bytes(const void *data, Size size, uint8 *digest);
extern void digest_name(Oid instance, const char *name, uint8 *digest);

#endif							/* REVENANT_DIGEST_H */
