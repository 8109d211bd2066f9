/*
 * assert.c
 *	  What a failed Assert() calls, for programs without a server.
 *
 * Deliberately without postgres.h: the prototype there differs between the
 * majors, but the first argument is the condition in all of them.
 */
#include <stdio.h>
#include <stdlib.h>

void		ExceptionalCondition(const char *condition);

void
ExceptionalCondition(const char *condition)
{
	fprintf(stderr, "# failed assertion: %s\n", condition);
	abort();
}
