/*
 * tap.h
 *	  For unit tests of code that needs no server: a program that prints TAP.
 *
 * A test is one file in test/unit with a main() that calls ok() and the like and
 * ends with return done_testing(). The sources that it is linked with are
 * named in a comment of its own in the file: link: src/token.c
 */
#ifndef REVENANT_TAP_H
#define REVENANT_TAP_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int	tap_run = 0;
static int	tap_failed = 0;

#define ok(condition, ...) tap_ok((condition) ? 1 : 0, __FILE__, __LINE__, __VA_ARGS__)

/* Compares integers of any width. */
#define is(got, expected, ...) \
	do { \
		long long	got_ = (long long) (got); \
		long long	expected_ = (long long) (expected); \
		if (!ok(got_ == expected_, __VA_ARGS__)) \
			fprintf(stderr, "#      got: %lld\n# expected: %lld\n", got_, expected_); \
	} while (0)

#define is_string(got, expected, ...) \
	do { \
		const char *got_ = (got); \
		const char *expected_ = (expected); \
		if (!ok(strcmp(got_, expected_) == 0, __VA_ARGS__)) \
			fprintf(stderr, "#      got: %s\n# expected: %s\n", got_, expected_); \
	} while (0)

static inline int __attribute__((format(printf, 4, 5)))
tap_ok(int good, const char *file, int line, const char *name, ...)
{
	va_list		args;

	printf("%sok %d - ", good ? "" : "not ", ++tap_run);
	va_start(args, name);
	vprintf(name, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	if (!good)
	{
		tap_failed++;
		fprintf(stderr, "# failed: test %d at %s line %d\n", tap_run, file, line);
	}
	return good;
}

static inline int
done_testing(void)
{
	printf("1..%d\n", tap_run);
	return tap_failed > 0;
}

#endif							/* REVENANT_TAP_H */
