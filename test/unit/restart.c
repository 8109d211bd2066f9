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
	is(restart_backoff_us(0, 300 * SECOND, 0, PG_UINT32_MAX), 0, "none is none after a normal end");
	is(restart_backoff_us(0, 300 * SECOND, 1, PG_UINT32_MAX), 0, "and after the first failure");
	ok(restart_backoff_us(PG_INT64_MAX / 100, PG_INT64_MAX / 2, 40, PG_UINT32_MAX) > 0, "very long ones do not overflow");
}

/* A backoff_min of 0 and a command that fails at once must not fork and log without end. */
static void
no_loop(void)
{
	int64		waited = 0;

	for (int failures = 1; failures <= 10; failures++)
		waited += restart_backoff_us(0, 300 * SECOND, failures, 0);
	ok(waited > 40 * SECOND, "ten failures in a row without a backoff take most of a minute");
	is(restart_backoff_us(0, 300 * SECOND, 2, MIDDLE) / 1000, 99, "the second one in a row waits a tenth of a second");
	ok(restart_backoff_us(0, 300 * SECOND, 3, MIDDLE) > 199000, "the third one twice as long");
	ok(restart_backoff_us(0, 300 * SECOND, 30, 0) <= 300 * SECOND, "never longer than the longest");
	ok(restart_backoff_us(0, 0, 20, 0) >= 80000, "also if the longest backoff is none");
	ok(restart_backoff_us(60000, 60000, 5, 0) >= 80000, "or next to none");
	is(restart_backoff_us(SECOND, 300 * SECOND, 2, MIDDLE) / 1000, 1999, "a backoff that is longer is as it was");
	is(restart_count_failure(7, 999999, 0), 8, "no run of less than a second was healthy");
	is(restart_count_failure(7, SECOND, 0), 1, "one of a second may be");
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

/* Too many failures within the window are the end; the same number spread over a longer time is not. */
static void
intensity(void)
{
	RestartFailures failures = {0};
	bool		given_up = false;

	for (int i = 1; i <= 5; i++)
		given_up = restart_note_failure(&failures, i * SECOND, 600 * SECOND, 5) || given_up;
	ok(!given_up, "five failures are allowed");
	ok(restart_note_failure(&failures, 6 * SECOND, 600 * SECOND, 5), "the sixth is too many");
	failures.count = 0;
	for (int i = 1; i <= 1000; i++)
		given_up = restart_note_failure(&failures, i * 121 * SECOND, 600 * SECOND, 5) || given_up;
	ok(!given_up, "one every two minutes is none too many, for ever");
	is(failures.count, 5, "and what is long ago is forgotten");
	failures.count = 0;
	for (int i = 1; i <= 1000; i++)
		given_up = restart_note_failure(&failures, i * 119 * SECOND, 600 * SECOND, 5) || given_up;
	ok(given_up, "one more often than that is");
	failures.count = 0;
	ok(restart_note_failure(&failures, 0, 600 * SECOND, 0), "where none is allowed the first is too many");
	failures.count = 0;
	for (int i = 0; i < 100; i++)
		given_up = restart_note_failure(&failures, i, 600 * SECOND, RESTART_FAILURES_MAX);
	ok(!given_up, "as many as there can be");
	for (int i = 100; i < 1000; i++)
		given_up = restart_note_failure(&failures, i, 600 * SECOND, RESTART_FAILURES_MAX);
	ok(given_up && failures.count == RESTART_FAILURES_MAX + 1, "and more do not overflow");
	is(failures.at_us[RESTART_FAILURES_MAX], 999, "the newest is the last");
	failures.count = 0;
	(void) restart_note_failure(&failures, 1000 * SECOND, 600 * SECOND, 5);
	(void) restart_note_failure(&failures, 10 * SECOND, 600 * SECOND, 5);
	is(failures.count, 1, "one in the future, of a clock that was set back, does not count for ever");
	(void) restart_note_failure(&failures, PG_INT64_MAX, 600 * SECOND, 5);
	is(failures.count, 1, "the end of time is no overflow");
}

/* What follows a run: policy, how it ended, with and without a schedule. */
static void
policies_follow(void)
{
	static const struct
	{
		const char *name;
		bool		failed;
		bool		scheduled;
		bool		follows;
	}			cases[] = {
		{"permanent", false, false, true}, {"permanent", true, false, true}, {"permanent", false, true, false}, {"permanent", true, true, true},
		{"transient", false, false, false}, {"transient", true, false, true}, {"transient", false, true, false}, {"transient", true, true, true},
		{"temporary", false, false, false}, {"temporary", true, false, false}, {"temporary", false, true, false}, {"temporary", true, true, false},
	};
	RestartPolicy policy;

	for (int i = 0; i < (int) lengthof(cases); i++)
	{
		ok(restart_policy_parse(cases[i].name, &policy), "%s is a policy", cases[i].name);
		is(restart_follows(policy, cases[i].failed, cases[i].scheduled), cases[i].follows, "%s, %s, %s schedule", cases[i].name,
		   cases[i].failed ? "failed" : "ended", cases[i].scheduled ? "with a" : "no");
	}
	ok(!restart_policy_parse("always", &policy), "others are none");
}

int
main(void)
{
	doubling();
	no_loop();
	jitter();
	healthy_runs();
	intensity();
	policies_follow();
	return done_testing();
}
