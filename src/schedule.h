/*
 * schedule.h
 *	  What the text of a schedule means, and when it fires next.
 */
#ifndef REVENANT_SCHEDULE_H
#define REVENANT_SCHEDULE_H

#include "postgres.h"

#include "datatype/timestamp.h"

typedef enum ScheduleKind
{
	SCHEDULE_INVALID = 0,
	SCHEDULE_INTERVAL,			/* anchor + k * interval */
	SCHEDULE_CALENDAR			/* recognized, not built yet */
} ScheduleKind;

/* Plain data: it may be copied, and kept in any memory. */
typedef struct Schedule
{
	ScheduleKind kind;
	int32		months;			/* of the interval: by the calendar, in UTC */
	int64		time_us;		/* the rest of it; a day is 24 hours */
} Schedule;

extern const char *schedule_parse(const char *text, Schedule *schedule);
extern bool schedule_next(const Schedule *schedule, TimestampTz anchor, TimestampTz after, TimestampTz *next);

#endif							/* REVENANT_SCHEDULE_H */
