/*-------------------------------------------------------------------------
 *
 * alarm.c
 *	  Timers on the monotonic clock that cancel what this process does, as a
 *	  user's cancel would.
 *
 * NOTES
 *	  PostgreSQL's own timeouts compare with the wall clock: when that is set
 *	  back by an hour they come an hour late.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"

#include "alarm.h"
#include "clock.h"

static struct timespec
timespec_of(int64 us)
{
	struct timespec result;

	result.tv_sec = us / US_PER_S;
	result.tv_nsec = us % US_PER_S * 1000;
	return result;
}

/*
 * Cancels the statement in `in_us`, which is positive, and then again every
 * `again_us` (0: never). The process must have the default handler of SIGINT. Raises 53000.
 */
void
alarm_set(Alarm *alarm, int64 in_us, int64 again_us)
{
	struct itimerspec when = {.it_value = timespec_of(in_us),.it_interval = timespec_of(again_us)};

	if (alarm->owner != MyProcPid)
	{
		struct sigevent event = {0};

		event.sigev_notify = SIGEV_SIGNAL;
		event.sigev_signo = SIGINT;
		if (timer_create(CLOCK_MONOTONIC, &event, &alarm->timer) != 0)
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
					 errmsg("could not create a timer: %m")));
		alarm->owner = MyProcPid;
	}
	if (timer_settime(alarm->timer, 0, &when, NULL) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not set a timer: %m")));
}

/* It does not come any more, if it has not come yet. Never raises. */
void
alarm_clear(Alarm *alarm)
{
	struct itimerspec never = {0};

	if (alarm->owner == MyProcPid)
		(void) timer_settime(alarm->timer, 0, &never, NULL);
}
