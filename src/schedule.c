/*-------------------------------------------------------------------------
 *
 * schedule.c
 *	  What the text of a schedule means, and when it fires next.
 *
 * An interval schedule is a grid: the task's creation is its origin, and the
 * k-th point, k from 1, is the origin plus k times the interval. Every fire
 * time is computed from the origin, so late runs and retries do not move it,
 * and points that passed meanwhile are skipped.
 *
 * A calendar schedule is in calendar.c.
 *
 * NOTES
 *	  Pure: no transaction, no clock. A day of an interval is 24 hours and a month
 *	  is counted by the calendar in UTC; whoever wants the wall clock of a place
 *	  uses a calendar schedule.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "common/int.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

#include "schedule.h"

#define SCHEDULE_TEXT_MAX 200

/* Names for the most common calendar schedules. */
static const struct
{
	const char *name;
	const char *fields;			/* NULL: @reboot */
}			nicknames[] = {
	{"@yearly", "0 0 1 1 *"},
	{"@annually", "0 0 1 1 *"},
	{"@monthly", "0 0 1 * *"},
	{"@weekly", "0 0 * * 0"},
	{"@daily", "0 0 * * *"},
	{"@midnight", "0 0 * * *"},
	{"@hourly", "0 * * * *"},
	{"@reboot", NULL},
};

/* Whether the text looks like fields and not like an interval: a first word that no interval begins with, or five words and more. */
static bool
looks_like_calendar(const char *text)
{
	int			words = 0;
	size_t		first = strcspn(text, " \t\n");

	if (text[strcspn(text, "*")] != '\0' || memchr(text, ',', first) != NULL || memchr(text, '/', first) != NULL)
		return true;
	while (*(text += strspn(text, " \t\n")) != '\0')
	{
		words++;
		text += strcspn(text, " \t\n");
	}
	return words >= 5;
}

/* Each number must be followed by its unit. NULL, or what is wrong. */
static const char *
number_without_unit(const char *text)
{
	bool		any = false;

	for (const char *p = text; *p != '\0';)
	{
		if (!isdigit((unsigned char) *p))
		{
			p++;
			continue;
		}
		any = true;
		while (isdigit((unsigned char) *p) || *p == '.')
			p++;
		while (isspace((unsigned char) *p))
			p++;
		if (*p == ':')
			return "It could be a time of day: an interval is written with its units, as in '10 h' or '1 h 30 min'.";
		if (!isalpha((unsigned char) *p))
			return "A number has no unit: an interval is written with its units, as in '30 s' or '5 min'.";
	}
	return any ? NULL : "It is neither an interval, as in '5 min', nor a calendar schedule, as in '*/5 * * * *'.";
}

/* Parses an interval without raising. NULL, or what is wrong. */
static const char *
parse_interval(const char *text, Schedule *schedule)
{
	char		work[SCHEDULE_TEXT_MAX + MAXDATEFIELDS];
	char	   *field[MAXDATEFIELDS];
	int			ftype[MAXDATEFIELDS];
	int			nfields;
	int			dtype;
	struct pg_itm_in itm;
	Interval	span;
	int64		days_us;
	int			error;

	memset(&itm, 0, sizeof(itm));
	error = ParseDateTime(text, work, sizeof(work), field, ftype, MAXDATEFIELDS, &nfields);
	if (error == 0)
		error = DecodeInterval(field, ftype, nfields, INTERVAL_FULL_RANGE, &dtype, &itm);
	if (error == DTERR_BAD_FORMAT)
	{
		char		copy[SCHEDULE_TEXT_MAX];

		strlcpy(copy, text, sizeof(copy));
		error = DecodeISO8601Interval(copy, &dtype, &itm);
	}
	if (error == DTERR_FIELD_OVERFLOW || error == DTERR_INTERVAL_OVERFLOW)
		return "The interval is out of range.";
	if (error != 0 || dtype != DTK_DELTA)
		return "It is neither an interval, as in '5 min', nor a calendar schedule, as in '*/5 * * * *'.";
	if (itmin2interval(&itm, &span) != 0)
		return "The interval is out of range.";
	if (span.month < 0 || span.day < 0 || span.time < 0)
		return "An interval between runs must be positive.";
	if (pg_mul_s64_overflow(span.day, USECS_PER_DAY, &days_us) ||
		pg_add_s64_overflow(days_us, span.time, &schedule->time_us))
		return "The interval is out of range.";
	schedule->months = span.month;
	if (schedule->months == 0 && schedule->time_us < 1000)
		return "An interval between runs must be at least a millisecond.";
	schedule->kind = SCHEDULE_INTERVAL;
	return NULL;
}

/*
 * Parses a schedule. NULL when it is one (schedule->kind says which), else the
 * reason why not, a sentence for an errdetail. Never raises but for memory.
 */
const char *
schedule_parse(const char *text, Schedule *schedule)
{
	const char *reason;

	memset(schedule, 0, sizeof(*schedule));
	while (isspace((unsigned char) *text))
		text++;
	if (*text == '\0')
		return "It is empty.";
	if (strlen(text) >= SCHEDULE_TEXT_MAX)
		return "It is too long.";
	if (text[0] == '@' && isalpha((unsigned char) text[1]))
	{
		for (int i = 0; i < (int) lengthof(nicknames); i++)
		{
			if (pg_strcasecmp(text, nicknames[i].name) != 0)
				continue;
			schedule->kind = nicknames[i].fields != NULL ? SCHEDULE_CALENDAR : SCHEDULE_REBOOT;
			return nicknames[i].fields != NULL ? calendar_parse(nicknames[i].fields, &schedule->calendar) : NULL;
		}
		return "The names are @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly and @reboot.";
	}
	reason = number_without_unit(text);
	if (reason == NULL)
		reason = parse_interval(text, schedule);
	if (reason != NULL && looks_like_calendar(text))
	{
		memset(schedule, 0, sizeof(*schedule));
		reason = calendar_parse(text, &schedule->calendar);
		if (reason == NULL)
			schedule->kind = SCHEDULE_CALENDAR;
	}
	return reason;
}

/* The origin plus k months by the calendar in UTC (the 31st becomes the last of a short month). */
static bool
add_months(TimestampTz origin, int64 months, TimestampTz *result)
{
	struct pg_tm tm;
	fsec_t		fsec;
	int64		total;
	int64		year;

	if (timestamp2tm(origin, NULL, &tm, &fsec, NULL, NULL) != 0)
		return false;
	total = (int64) tm.tm_year * MONTHS_PER_YEAR + (tm.tm_mon - 1) + months;
	year = total / MONTHS_PER_YEAR;
	if (total % MONTHS_PER_YEAR < 0)
		year--;					/* before the year 0, which is 1 BC */
	if (year > JULIAN_MAXYEAR)
		return false;
	tm.tm_year = (int) year;
	tm.tm_mon = (int) (total - year * MONTHS_PER_YEAR) + 1;
	if (tm.tm_mday > day_tab[isleap(tm.tm_year)][tm.tm_mon - 1])
		tm.tm_mday = day_tab[isleap(tm.tm_year)][tm.tm_mon - 1];
	return tm2timestamp(&tm, fsec, NULL, result) == 0;
}

/* The k-th point of the grid; false when it is beyond the end of time. */
static bool
grid_point(const Schedule *schedule, TimestampTz anchor, int64 k, TimestampTz *point)
{
	int64		months;
	int64		us;

	if (pg_mul_s64_overflow(k, schedule->months, &months) ||
		pg_mul_s64_overflow(k, schedule->time_us, &us))
		return false;
	*point = anchor;
	if (months != 0 && !add_months(anchor, months, point))
		return false;
	return !pg_add_s64_overflow(*point, us, point) && IS_VALID_TIMESTAMP(*point);
}

/* The first point of an interval's grid that is later than `after`. False: there is none. */
static bool
interval_next(const Schedule *schedule, TimestampTz anchor, TimestampTz after, TimestampTz *next)
{
	int64		low = 0;		/* a point that is not later than `after`, or the origin */
	int64		high;
	TimestampTz point;

	if (after < anchor)
		return grid_point(schedule, anchor, 1, next);
	if (schedule->months == 0)
		return grid_point(schedule, anchor, (after - anchor) / schedule->time_us + 1, next);

	/* months differ in length: double until one is later, then halve */
	for (high = 1; grid_point(schedule, anchor, high, &point) && point <= after; high *= 2)
		low = high;
	while (high - low > 1)
	{
		int64		middle = low + (high - low) / 2;

		if (grid_point(schedule, anchor, middle, &point) && point <= after)
			low = middle;
		else
			high = middle;
	}
	return grid_point(schedule, anchor, high, next);
}

/* Seconds from 1970 to 2000, where timestamps begin. */
#define EPOCH_S ((int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY)

/*
 * The first time of the schedule that is later than `after`. False: there is
 * none. @reboot has no times.
 */
bool
schedule_next(const Schedule *schedule, const SchedulePlace *place, TimestampTz after, TimestampTz *next)
{
	int64		after_s;
	int64		next_s;

	if (schedule->kind == SCHEDULE_INTERVAL)
		return interval_next(schedule, place->anchor, after, next);
	if (schedule->kind != SCHEDULE_CALENDAR)
		return false;
	after_s = after / USECS_PER_SEC - (after % USECS_PER_SEC < 0 ? 1 : 0) + EPOCH_S;
	if (!calendar_next(&schedule->calendar, after_s, place->offset, place->zone, &next_s))
		return false;
	return !pg_mul_s64_overflow(next_s - EPOCH_S, USECS_PER_SEC, next) && IS_VALID_TIMESTAMP(*next);
}

/* Whether two schedules name the same times at the same place. */
bool
schedule_same(const Schedule *a, const Schedule *b)
{
	const Calendar *one = &a->calendar;
	const Calendar *other = &b->calendar;

	return a->kind == b->kind && a->months == b->months && a->time_us == b->time_us &&
		one->seconds == other->seconds && one->minutes == other->minutes && one->hours == other->hours &&
		one->days == other->days && one->months == other->months && one->weekdays == other->weekdays &&
		one->either_day == other->either_day;
}
