/*-------------------------------------------------------------------------
 *
 * restart.c
 *	  When a task that ended is started again. Arithmetic only: the clock and
 *	  the random number come from the caller.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/int.h"

#include "restart.h"

/* However short the backoff, failures in a row must not become a loop of processes and log lines. */
#define HEALTHY_MIN_US INT64CONST(1000000)

/* The wait varies by this much in both directions, so that tasks that failed together do not come back together. */
#define JITTER_PERCENT 20

static const char *const policies[] = {
	[RESTART_PERMANENT] = "permanent",
	[RESTART_TRANSIENT] = "transient",
	[RESTART_TEMPORARY] = "temporary",
};

/* A policy by its name. False: there is none of that name. */
bool
restart_policy_parse(const char *text, RestartPolicy *policy)
{
	for (int i = 0; i < (int) lengthof(policies); i++)
	{
		if (strcmp(text, policies[i]) != 0)
			continue;
		*policy = (RestartPolicy) i;
		return true;
	}
	return false;
}

/*
 * Whether another run follows the end of one, beside the times of a schedule:
 * with a schedule that is to try what failed again.
 */
bool
restart_follows(RestartPolicy policy, bool failed, bool has_schedule)
{
	switch (policy)
	{
		case RESTART_PERMANENT:
			return failed || !has_schedule;
		case RESTART_TRANSIENT:
			return failed;
		default:
			return false;
	}
}

/*
 * Notes a failure, and forgets those that are longer ago than the window (or
 * in the future: the clock was set back). True: there are more than `allowed`
 * within it, so the task is to be given up. The idea: restart intensity, as OTP's
 * supervisors have it.
 */
bool
restart_note_failure(RestartFailures *failures, int64 now_us, int64 window_us, int allowed)
{
	int			kept = 0;

	for (int i = 0; i < failures->count; i++)
	{
		if (failures->at_us[i] <= now_us && now_us - failures->at_us[i] < window_us)
			failures->at_us[kept++] = failures->at_us[i];
	}
	if (kept > RESTART_FAILURES_MAX)
	{
		kept--;
		memmove(&failures->at_us[0], &failures->at_us[1], kept * sizeof(int64));
	}
	failures->at_us[kept++] = now_us;
	failures->count = kept;
	return kept > allowed;
}

/*
 * How many failures in a row there are after one more, given how many there
 * were and how long the failed run lasted: a run that was healthy for as long
 * as the longest backoff (a second at least) starts the count again.
 */
int
restart_count_failure(int failures, int64 ran_us, int64 max_us)
{
	if (ran_us >= max_us && ran_us >= HEALTHY_MIN_US)
		failures = 0;
	return failures < PG_INT32_MAX ? failures + 1 : failures;
}

/*
 * How long to wait after this many failures in a row: min_us after the first
 * (and after none, a normal end), doubled by each further one, at most max_us,
 * and then 20 % more or less as the random number says. 0 stays 0 once: from the
 * second failure in a row on it is doubled from at least a tenth of a second.
 */
int64
restart_backoff_us(int64 min_us, int64 max_us, int failures, uint32 random)
{
	int64		wait_us = min_us;
	int64		span;

	if (failures > 1)
	{
		max_us = Max(max_us, RESTART_REPEATED_MIN_US);
		wait_us = Max(wait_us, RESTART_REPEATED_MIN_US / 2);
	}
	for (int i = 1; i < failures && wait_us > 0 && wait_us < max_us; i++)
	{
		if (pg_mul_s64_overflow(wait_us, 2, &wait_us))
			wait_us = max_us;
	}
	if (wait_us > max_us)
		wait_us = max_us;

	/* in steps of a ten-thousandth, so that nothing overflows below 29 years */
	span = wait_us / 10000 * (2 * JITTER_PERCENT * 100);
	return wait_us - span / 2 + (int64) ((double) span * ((double) random / (double) PG_UINT32_MAX));
}
