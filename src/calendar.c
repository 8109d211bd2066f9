/*-------------------------------------------------------------------------
 *
 * calendar.c
 *	  A calendar schedule: five or six fields, and the times that they name.
 *
 * The fields are those of cron: minute, hour, day of the month, month, day of
 * the week, with a leading second if there are six. Each is a list of *, n and
 * n-m, with or without /step; months and weekdays have names. When both days
 * are given, one of them is enough, as in cron.
 *
 * A schedule names times on the wall clock of a place. Each of them comes once:
 * one that the clock skips (it is put forward) comes at the end of the gap, all
 * that were skipped together, and one that it shows twice (it is put back)
 * comes the first time.
 *
 * NOTES
 *	  Pure: no transaction, no clock, and of the time zone only a function that
 *	  tells its offset at a time. Seconds since 1970, and for times on the wall
 *	  clock the same count as if the place were at UTC.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "calendar.h"

#define DAY_S INT64CONST(86400)

/* A 29th of February comes after 8 years at the latest, and after 40 it has been on every day of the week. */
#define YEARS_AHEAD 41

/* Within that of a time on a wall clock lie all times at UTC that it can be. */
#define ZONE_REACH_S (26 * 3600)

/* No zone's text can name a clock that is farther from UTC: what this one shows so much later it has not shown before. */
#define ZONE_FARTHEST_S (8 * DAY_S)

/* So often the next time of a schedule may turn out to have been; a clock that is put back makes it once. */
#define TRIES_MAX 100

static const char *const month_names[] = {
	"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"
};
static const char *const day_names[] = {
	"sun", "mon", "tue", "wed", "thu", "fri", "sat"
};

/* One field: its bounds, and the names that stand for its first values. */
typedef struct Field
{
	const char *what;
	int			lowest;
	int			highest;
	const char *const *names;
	int			nnames;
} Field;

enum
{
	FIELD_SECOND, FIELD_MINUTE, FIELD_HOUR, FIELD_DAY, FIELD_MONTH, FIELD_WEEKDAY, FIELDS
};

static const Field fields[FIELDS] = {
	{"second", 0, 59, NULL, 0},
	{"minute", 0, 59, NULL, 0},
	{"hour", 0, 23, NULL, 0},
	{"day of the month", 1, 31, NULL, 0},
	{"month", 1, 12, month_names, 12},
	{"day of the week", 0, 7, day_names, 7},
};

/* A place in the text, and what was found wrong there. */
typedef struct Reader
{
	const char *text;
	const char *at;
	char	   *problem;		/* palloc'd, or NULL */
} Reader;

/* Notes a problem, which is palloc'd, with its place. Returns false. */
static bool
fail(Reader *reader, const char *at, char *problem)
{
	reader->problem = psprintf("At character %d: %s", (int) (at - reader->text) + 1, problem);
	pfree(problem);
	return false;
}

static bool
read_number(Reader *reader, int *value)
{
	*value = 0;
	if (!isdigit((unsigned char) *reader->at))
		return false;
	for (; isdigit((unsigned char) *reader->at); reader->at++)
		*value = Min(*value * 10 + (*reader->at - '0'), 100000);
	return true;
}

/* A number or a name. */
static bool
read_value(Reader *reader, const Field *field, int *value)
{
	const char *begin = reader->at;

	if (!read_number(reader, value))
	{
		int			i;

		while (isalpha((unsigned char) *reader->at))
			reader->at++;
		for (i = 0; i < field->nnames; i++)
		{
			if (reader->at - begin == 3 && pg_strncasecmp(begin, field->names[i], 3) == 0)
				break;
		}
		if (reader->at == begin && strchr(" ,-/", *begin) != NULL)	/* or the end, which strchr() finds, too */
			return fail(reader, begin, psprintf("the %s is missing.", field->what));
		if (reader->at == begin)
			reader->at += strcspn(begin, " ,-/");
		if (i == field->nnames)
			return fail(reader, begin, psprintf("\"%.*s\" is no %s.", (int) (reader->at - begin), begin, field->what));
		*value = field->lowest + i;
	}
	if (*value < field->lowest || *value > field->highest)
		return fail(reader, begin, psprintf("the %s is from %d to %d.", field->what, field->lowest, field->highest));
	return true;
}

/* One item of a list: *, n, n-m, each with or without /step; n/step goes to the highest value. */
static bool
read_item(Reader *reader, const Field *field, uint64 *set)
{
	const char *begin = reader->at;
	int			from = field->lowest;
	int			to = field->highest;
	int			step = 1;

	if (*reader->at == '*')
		reader->at++;
	else
	{
		if (!read_value(reader, field, &from))
			return false;
		to = from;
		if (*reader->at == '-')
		{
			reader->at++;
			if (!read_value(reader, field, &to))
				return false;
			if (to < from)
				return fail(reader, begin, psprintf("the range ends before it begins: write %d-%d,%d-%d.",
													from, field->highest, field->lowest, to));
		}
		else if (*reader->at == '/')
			to = field->highest;
	}
	if (*reader->at == '/')
	{
		const char *place = ++reader->at;

		if (!read_number(reader, &step) || step < 1 || step > field->highest)
			return fail(reader, place, psprintf("a step is from 1 to %d.", field->highest));
	}
	for (int value = from; value <= to; value += step)
		*set |= UINT64CONST(1) << value;
	return true;
}

static bool
read_field(Reader *reader, const Field *field, uint64 *set)
{
	*set = 0;
	for (;;)
	{
		if (!read_item(reader, field, set))
			return false;
		if (*reader->at != ',')
			break;
		reader->at++;
	}
	if (*reader->at != '\0' && !isspace((unsigned char) *reader->at))
	{
		int			length = 1;

		/* never half a character: in all encodings of servers these bytes are those of whole ones */
		while (IS_HIGHBIT_SET(*reader->at) && IS_HIGHBIT_SET(reader->at[length]))
			length++;
		return fail(reader, reader->at, psprintf("\"%.*s\" cannot follow here.", length, reader->at));
	}
	return true;
}

static int
count_words(const char *text)
{
	int			words = 0;

	while (*(text += strspn(text, " \t\n")) != '\0')
	{
		words++;
		text += strcspn(text, " \t\n");
	}
	return words;
}

static const int month_days[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

/* Whether some day of some allowed month is allowed. */
static bool
has_some_day(const Calendar *calendar)
{
	if (calendar->either_day)
		return true;
	for (int month = 1; month <= 12; month++)
	{
		if ((calendar->months & (1U << month)) != 0 &&
			(calendar->days & ((UINT64CONST(1) << (month_days[month - 1] + 1)) - 1)) != 0)
			return true;
	}
	return false;
}

/*
 * Parses five or six fields. NULL when they are a schedule, else what is wrong
 * with them and where, a sentence for an errdetail.
 */
char *
calendar_parse(const char *text, Calendar *calendar)
{
	Reader		reader = {text, text, NULL};
	int			words = count_words(text);
	uint64		sets[FIELDS];
	bool		any[FIELDS] = {false};

	memset(calendar, 0, sizeof(*calendar));
	if (words != 5 && words != 6)
		return psprintf("A calendar schedule has five fields (minute, hour, day of the month, month, day of the week), or six with a second before them; this one has %d.",
						words);
	sets[FIELD_SECOND] = 1;
	for (int i = 6 - words; i < FIELDS; i++)
	{
		reader.at += strspn(reader.at, " \t\n");
		any[i] = *reader.at == '*';
		if (!read_field(&reader, &fields[i], &sets[i]))
			return reader.problem;
	}
	calendar->seconds = sets[FIELD_SECOND];
	calendar->minutes = sets[FIELD_MINUTE];
	calendar->hours = (uint32) sets[FIELD_HOUR];
	calendar->days = (uint32) sets[FIELD_DAY];
	calendar->months = (uint32) sets[FIELD_MONTH];
	calendar->weekdays = (uint32) ((sets[FIELD_WEEKDAY] | sets[FIELD_WEEKDAY] >> 7) & 0x7f);	/* 7 is Sunday, too */
	calendar->either_day = !any[FIELD_DAY] && !any[FIELD_WEEKDAY];
	return has_some_day(calendar) ? NULL : pstrdup("No such day ever comes.");
}

/* A day of the calendar that goes on for ever; the arithmetic is Howard Hinnant's. */
static void
civil_from_days(int64 days, int *year, int *month, int *day)
{
	int64		era;
	int64		of_era;
	int64		year_of_era;
	int64		of_year;
	int64		shifted;

	days += 719468;
	era = (days >= 0 ? days : days - 146096) / 146097;
	of_era = days - era * 146097;
	year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
	of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
	shifted = (5 * of_year + 2) / 153;	/* months from March on */
	*day = (int) (of_year - (153 * shifted + 2) / 5 + 1);
	*month = (int) (shifted < 10 ? shifted + 3 : shifted - 9);
	*year = (int) (year_of_era + era * 400 + (*month <= 2));
}

static bool
day_matches(const Calendar *calendar, int64 days)
{
	int			year,
				month,
				day;
	int			weekday = (int) (((days + 4) % 7 + 7) % 7); /* 1970 began on a Thursday */
	bool		by_day;
	bool		by_weekday = (calendar->weekdays & (1U << weekday)) != 0;

	civil_from_days(days, &year, &month, &day);
	by_day = (calendar->days & (1U << day)) != 0;
	return (calendar->months & (1U << month)) != 0 &&
		(calendar->either_day ? by_day || by_weekday : by_day && by_weekday);
}

/* The lowest member of a set that is not below `from`, or -1. */
static int
member_from(uint64 set, int from)
{
	for (int i = from; i < 64; i++)
	{
		if ((set & (UINT64CONST(1) << i)) != 0)
			return i;
	}
	return -1;
}

/* The first second of a day, from `from` on, that is named; -1: none. */
static int
second_of_day(const Calendar *calendar, int from)
{
	int			hour = member_from(calendar->hours, from / 3600);

	for (; hour >= 0; hour = member_from(calendar->hours, hour + 1))
	{
		int			rest = hour > from / 3600 ? 0 : from % 3600;
		int			minute = member_from(calendar->minutes, rest / 60);

		for (; minute >= 0; minute = member_from(calendar->minutes, minute + 1))
		{
			int			second = member_from(calendar->seconds, minute > rest / 60 ? 0 : rest % 60);

			if (second >= 0)
				return hour * 3600 + minute * 60 + second;
		}
	}
	return -1;
}

/* The first time on the wall clock that is named and later than `after`, also on the wall clock. False: none. */
static bool
next_on_wall(const Calendar *calendar, int64 after, int64 *next)
{
	int64		from = after + 1;
	int64		day = from >= 0 ? from / DAY_S : -((-from + DAY_S - 1) / DAY_S);
	int64		last_day = day + YEARS_AHEAD * 366;
	int			second = (int) (from - day * DAY_S);

	for (; day <= last_day; day++, second = 0)
	{
		int			found;

		if (!day_matches(calendar, day))
			continue;
		found = second_of_day(calendar, second);
		if (found >= 0)
		{
			*next = day * DAY_S + found;
			return true;
		}
	}
	return false;
}

/* The first time at UTC at which the offset is no longer the one at `from`; it changes before `to`. */
static int64
change_between(int64 from, int64 to, CalendarOffset offset, void *zone)
{
	int32		before = offset(from, zone);

	while (to - from > 1)
	{
		int64		middle = from + (to - from) / 2;

		if (offset(middle, zone) == before)
			from = middle;
		else
			to = middle;
	}
	return to;
}

/* When the wall clock shows a time first; the end of the gap for one that it skips. */
static int64
wall_to_utc(int64 wall, CalendarOffset offset, void *zone)
{
	int32		early = offset(wall - ZONE_REACH_S, zone);
	int32		late = offset(wall + ZONE_REACH_S, zone);

	/* put back: the larger offset is the earlier one, and comes first */
	if (offset(wall - early, zone) == early)
		return wall - early;
	if (offset(wall - late, zone) == late)
		return wall - late;
	return change_between(wall - ZONE_REACH_S, wall + ZONE_REACH_S, offset, zone);
}

/*
 * The first time, in seconds since 1970, that the schedule names and that is
 * later than `after`. False: none.
 */
bool
calendar_next(const Calendar *calendar, int64 after, CalendarOffset offset, void *zone, int64 *next)
{
	int64		wall = after + offset(after, zone);

	/* what the wall clock shows for the second time has been: go on to what it has not shown yet */
	for (int tries = 0; next_on_wall(calendar, wall, &wall); tries++)
	{
		*next = wall_to_utc(wall, offset, zone);
		if (*next > after)
			return true;
		/* to the last that it showed before it was put back: in steps it could be half a month of seconds */
		wall = Max(wall, change_between(*next, after, offset, zone) - 1 + offset(*next, zone));
		/* no place's clock: one that is put forward and back by days within days */
		if (tries >= TRIES_MAX)
			wall = Max(wall, after + ZONE_FARTHEST_S);
	}
	return false;
}
