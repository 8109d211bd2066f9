/*
 * restart.c
 *	  A failing task comes back ever less often, but does come back.
 *
 * link: src/restart.c
 */
#include "restart.h"

#include "tap.h"

#define SECOND INT64CONST(1000000)
#define MIDDLE (PG_UINT32_MAX / 2)

static void
doubling(void)
{
	int64		expected = SECOND;

	for (int failures = 1; failures <= 9; failures++)
	{
		int64		wait = restart_backoff_us(SECOND, 300 * SECOND, failures, MIDDLE);

		ok(wait > expected * 999 / 1000 && wait < expected * 1001 / 1000, "after %d failures it is doubled", failures);
		expected = expected * 2 > 300 * SECOND ? 300 * SECOND : expected * 2;
	}
	is(restart_backoff_us(SECOND, 300 * SECOND, PG_INT32_MAX, 0), 240 * SECOND, "it stays at the longest, and does not overflow");
	is(restart_backoff_us(SECOND, 300 * SECOND, 0, 0), 800000, "a normal end waits as a first failure does");
	is(restart_backoff_us(0, 300 * SECOND, 20, PG_UINT32_MAX), 0, "none stays none");
	is(restart_backoff_us(0, 0, 20, PG_UINT32_MAX), 0, "also as the longest");
	ok(restart_backoff_us(PG_INT64_MAX / 100, PG_INT64_MAX / 2, 40, PG_UINT32_MAX) > 0, "very long ones do not overflow");
}

static void
jitter(void)
{
	is(restart_backoff_us(SECOND, 300 * SECOND, 3, 0), 3200000, "a fifth less at the least");
	is(restart_backoff_us(SECOND, 300 * SECOND, 3, PG_UINT32_MAX), 4800000, "a fifth more at the most");
	ok(restart_backoff_us(3, 300 * SECOND, 1, PG_UINT32_MAX) >= 0, "a few microseconds are not negative");
}

static void
healthy_runs(void)
{
	is(restart_count_failure(0, 0, 300 * SECOND), 1, "the first failure");
	is(restart_count_failure(7, 299 * SECOND, 300 * SECOND), 8, "a run that was not healthy for long is one more");
	is(restart_count_failure(7, 300 * SECOND, 300 * SECOND), 1, "a run that was is the first one again");
	is(restart_count_failure(PG_INT32_MAX, 0, 300 * SECOND), PG_INT32_MAX, "the count ends somewhere");
}

int
main(void)
{
	doubling();
	jitter();
	healthy_runs();
	return done_testing();
}
