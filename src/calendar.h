/*
 * calendar.h
 *	  A calendar schedule: five or six fields, and the times that they name.
 */
#ifndef REVENANT_CALENDAR_H
#define REVENANT_CALENDAR_H

#include "postgres.h"

/* Plain data: sets of what each field allows, as bits. */
typedef struct Calendar
{
	uint64		seconds;		/* bits 0..59 */
	uint64		minutes;		/* 0..59 */
	uint32		hours;			/* 0..23 */
	uint32		days;			/* 1..31 */
	uint32		months;			/* 1..12 */
	uint32		weekdays;		/* 0..6, Sunday is 0 */
	bool		either_day;		/* day of the month and day of the week are both given: one of them is enough */
} Calendar;

/* How many seconds the wall clock of a place is ahead of UTC, at a time in seconds since 1970. */
typedef int32 (*CalendarOffset) (int64 utc, void *zone);

extern char *calendar_parse(const char *text, Calendar *calendar);
extern bool calendar_next(const Calendar *calendar, int64 after, CalendarOffset offset, void *zone, int64 *next);

#endif							/* REVENANT_CALENDAR_H */
