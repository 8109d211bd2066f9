/*
 * schedule.h
 *	  What the text of a schedule means, and when it fires next.
 */
#ifndef REVENANT_SCHEDULE_H
#define REVENANT_SCHEDULE_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "calendar.h"

typedef enum ScheduleKind
{
	SCHEDULE_INVALID = 0,
	SCHEDULE_INTERVAL,			/* anchor + k * interval */
	SCHEDULE_CALENDAR,			/* times on the wall clock of a place */
	SCHEDULE_REBOOT				/* once, when this server begins to lead */
} ScheduleKind;

/* Plain data: it may be copied, and kept in any memory. */
typedef struct Schedule
{
	ScheduleKind kind;
	int32		months;			/* of the interval: by the calendar, in UTC */
	int64		time_us;		/* the rest of it; a day is 24 hours */
	Calendar	calendar;
} Schedule;

/* Where a schedule is: the origin of an interval's grid, and the place of a calendar's wall clock. */
typedef struct SchedulePlace
{
	TimestampTz anchor;
	CalendarOffset offset;
	void	   *zone;
} SchedulePlace;

extern const char *schedule_parse(const char *text, Schedule *schedule);
extern bool schedule_same(const Schedule *a, const Schedule *b);
extern bool schedule_next(const Schedule *schedule, const SchedulePlace *place, TimestampTz after, TimestampTz *next);

#endif							/* REVENANT_SCHEDULE_H */
