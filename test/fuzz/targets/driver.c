/*
 * driver.c
 *	  What libFuzzer calls: the target that TARGET names.
 */
#include "target.h"

#include <stdio.h>
#include <stdlib.h>

int			LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *found = TARGET(data, size);

	if (found != NULL)
	{
		fprintf(stderr, "%s\n", found);
		abort();
	}
	return 0;
}
