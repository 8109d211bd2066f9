/*
 * alarm.h
 *	  Timers on the monotonic clock that cancel what this process does.
 */
#ifndef REVENANT_ALARM_H
#define REVENANT_ALARM_H

#include "postgres.h"

#include <time.h>

/* Zero it; one for each purpose. */
typedef struct Alarm
{
	timer_t		timer;
	int			owner;			/* the process that made the timer: a fork does not have it */
} Alarm;

extern void alarm_make(Alarm *alarm, int signal);
extern void alarm_arm(Alarm *alarm, int64 in_us);
extern void alarm_set(Alarm *alarm, int64 in_us, int64 again_us);
extern void alarm_clear(Alarm *alarm);

#endif							/* REVENANT_ALARM_H */
