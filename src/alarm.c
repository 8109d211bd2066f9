/*-------------------------------------------------------------------------
 *
 * alarm.c
 *	  Timers on the monotonic clock that cancel what this process does, as a
 *	  user's cancel would, or send it another signal.
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

/* Makes an alarm that sends this process a signal; alarm_set() makes one of SIGINT by itself. Raises 53000. */
void
alarm_make(Alarm *alarm, int signal)
{
	struct sigevent event = {0};

	event.sigev_notify = SIGEV_SIGNAL;
	event.sigev_signo = signal;
	if (timer_create(CLOCK_MONOTONIC, &event, &alarm->timer) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not create a timer: %m")));
	alarm->owner = MyProcPid;
}

/* Sets one that was made, once. For signal handlers: never raises. */
void
alarm_arm(Alarm *alarm, int64 in_us)
{
	struct itimerspec when = {.it_value = timespec_of(in_us)};

	if (alarm->owner == MyProcPid)
		(void) timer_settime(alarm->timer, 0, &when, NULL);
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
		alarm_make(alarm, SIGINT);
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
