/*
 * calendar.c
 *	  A calendar schedule fires once for every time that it names, in every
 *	  zone and over every switch of its clocks; what is none is refused, with its place.
 *
 * The oracle is a clock that is watched minute by minute, with the zones of the
 * C library: what the wall clock shows for the first time, or jumps over, is due.
 *
 * link: src/calendar.c
 */
#include "calendar.h"

#include <stdlib.h>
#include <time.h>

#include "tap.h"

#define DAY INT64CONST(86400)

static int32
library_offset(int64 utc, void *zone)
{
	time_t		t = (time_t) utc;
	struct tm	tm;

	localtime_r(&t, &tm);
	return (int32) tm.tm_gmtoff;
}

static int64
at(int year, int month, int day)
{
	struct tm	tm = {.tm_year = year - 1900,.tm_mon = month - 1,.tm_mday = day};

	return (int64) timegm(&tm);
}

/* Whether a time on the wall is named, from the sets alone. */
static bool
is_named(const Calendar *calendar, int64 wall)
{
	time_t		t = (time_t) wall;
	struct tm	tm;
	bool		day,
				weekday;

	gmtime_r(&t, &tm);
	day = (calendar->days >> tm.tm_mday & 1) != 0;
	weekday = (calendar->weekdays >> tm.tm_wday & 1) != 0;
	return (calendar->seconds >> tm.tm_sec & 1) != 0 && (calendar->minutes >> tm.tm_min & 1) != 0 &&
		(calendar->hours >> tm.tm_hour & 1) != 0 && (calendar->months >> (tm.tm_mon + 1) & 1) != 0 &&
		(calendar->either_day ? day || weekday : day && weekday);
}

/* Whether no clock is put forward or back within three days. */
static bool
is_quiet(int64 utc)
{
	return library_offset(utc - 3 * DAY, NULL) == library_offset(utc + 3 * DAY, NULL);
}

/* Watches the clock from `from` to `to`; how many differences there are to what calendar_next() says. */
static int
watch(const char *zone, const char *text, int64 from, int64 to, int *fired)
{
	Calendar	calendar;
	int64		shown;
	int64		next;
	int			wrong = 0;

	setenv("TZ", zone, 1);
	tzset();
	*fired = 0;
	if (calendar_parse(text, &calendar) != NULL)
		return 1000;
	shown = from + library_offset(from, NULL);
	if (!calendar_next(&calendar, from, library_offset, NULL, &next))
		return 2000;
	for (int64 utc = from + 60; utc < to; utc += 60)
	{
		int64		wall = utc + library_offset(utc, NULL);
		bool		due = false;

		/* days that are like any other are watched now and then only */
		if (utc % DAY == 0 && utc / DAY % 9 != 0 && is_quiet(utc))
		{
			utc += DAY - 60;
			shown = utc + library_offset(utc, NULL);
			if (next <= utc && !calendar_next(&calendar, utc, library_offset, NULL, &next))
				return 3000;
			continue;
		}

		while (shown < wall)
		{
			shown += 60;
			due = due || is_named(&calendar, shown);
		}
		if (due != (next == utc))
			wrong++;
		*fired += due;
		if (next <= utc && !calendar_next(&calendar, utc, library_offset, NULL, &next))
			return 3000;
	}
	return wrong;
}

static void
zones(void)
{
	static const struct
	{
		const char *zone;
		int			year;
	}			places[] = {
		{"UTC", 2024}, {"Europe/Berlin", 2024}, {"America/New_York", 2025}, {"Australia/Lord_Howe", 2024}, {"America/St_Johns", 2006},
		{"Pacific/Apia", 2011}, {"Asia/Kathmandu", 2023}, {"Africa/Casablanca", 2024}, {"America/Sao_Paulo", 2017},
		{"Asia/Tehran", 2021}, {"Antarctica/Troll", 2024}, {"Europe/Dublin", 2023}
	};
	static const char *const texts[] = {
		"* * * * *", "*/5 * * * *", "0 * * * *", "30 2 * * *", "0 2 * * *", "0 3 * * *", "15 1,2,3 * * *", "0 0 * * *", "59 23 31 12 *",
		"30 2 * mar,oct sun", "0 12 13 * 5", "0 0 29 2 *", "0 4 * * mon-fri", "7-59/13 */3 * * *", "0 0 1 * *", "0 0 * * 7", "45 0,1 1-7 * *"
	};

	for (int p = 0; p < (int) lengthof(places); p++)
	{
		for (int t = 0; t < (int) lengthof(texts); t++)
		{
			int			fired;
			int			wrong = watch(places[p].zone, texts[t], at(places[p].year, 1, 1), at(places[p].year + 1, 1, 2), &fired);

			is(wrong, 0, "%s: %s, %d times in %d", places[p].zone, texts[t], fired, places[p].year);
		}
	}
}

/* One number that people know: how often, over a switch of the clocks. */
static void
switches(void)
{
	static const struct
	{
		const char *zone;
		const char *text;
		int			year,
					month,
					day,
					times;
	}			cases[] = {
		{"Europe/Berlin", "30 2 * * *", 2024, 3, 31, 1},	/* 02:30 is skipped */
		{"Europe/Berlin", "30 2 * * *", 2024, 10, 27, 1},	/* 02:30 comes twice */
		{"Europe/Berlin", "0 * * * *", 2024, 3, 31, 23},
		{"Europe/Berlin", "0 * * * *", 2024, 10, 27, 24},
		{"America/New_York", "30 2 * * *", 2025, 3, 9, 1},
		{"America/New_York", "30 1 * * *", 2025, 11, 2, 1},
		{"America/New_York", "*/10 * * * *", 2025, 3, 9, 138},
		{"America/New_York", "*/10 * * * *", 2025, 11, 2, 144},
	};

	for (int i = 0; i < (int) lengthof(cases); i++)
	{
		Calendar	calendar;
		struct tm	tm = {.tm_year = cases[i].year - 1900,.tm_mon = cases[i].month - 1,.tm_mday = cases[i].day,.tm_isdst = -1};
		int64		utc;
		int64		end;
		int			times = 0;

		setenv("TZ", cases[i].zone, 1);
		tzset();
		utc = (int64) mktime(&tm) - 1;
		tm = (struct tm) {.tm_year = cases[i].year - 1900,.tm_mon = cases[i].month - 1,.tm_mday = cases[i].day + 1,.tm_isdst = -1};
		end = (int64) mktime(&tm);
		ok(calendar_parse(cases[i].text, &calendar) == NULL, "%s is a schedule", cases[i].text);
		while (calendar_next(&calendar, utc, library_offset, NULL, &utc) && utc < end)
			times++;
		is(times, cases[i].times, "%s on %d-%02d-%02d in %s", cases[i].text, cases[i].year, cases[i].month, cases[i].day, cases[i].zone);
	}
}

static void
seconds_and_far_times(void)
{
	Calendar	calendar;
	int64		next;

	setenv("TZ", "UTC", 1);
	tzset();
	ok(calendar_parse("*/15 * * * * *", &calendar) == NULL, "six fields have seconds");
	ok(calendar_next(&calendar, at(2024, 1, 1) + 1, library_offset, NULL, &next) && next == at(2024, 1, 1) + 15, "the next quarter of a minute");
	ok(calendar_next(&calendar, at(2024, 1, 1) + 45, library_offset, NULL, &next) && next == at(2024, 1, 1) + 60, "the next minute");
	ok(calendar_parse("0 0 29 2 *", &calendar) == NULL && calendar_next(&calendar, at(2096, 3, 1), library_offset, NULL, &next) &&
	   next == at(2104, 2, 29), "a 29th of February, over 2100");
	ok(calendar_parse("0 0 29 feb mon", &calendar) == NULL && calendar_next(&calendar, at(2024, 2, 6), library_offset, NULL, &next) &&
	   next == at(2024, 2, 12), "either day");
	ok(calendar_next(&calendar, at(1890, 1, 1), library_offset, NULL, &next) && next == at(1890, 2, 3), "long ago");
}

#define PUT_BACK INT64CONST(1800000000)
#define FARTHEST (167 * 3600 + 59 * 60 + 59)	/* what a time zone's text can say */

static int	times_asked;

static int32
two_weeks_back(int64 utc, void *zone)
{
	times_asked++;
	return utc < PUT_BACK ? FARTHEST : -FARTHEST;
}

/* Whoever asks is not kept by a clock that shows two weeks again, second by second. */
static void
far_zone(void)
{
	Calendar	calendar;
	int64		next = 0;

	ok(calendar_parse("* * * * * *", &calendar) == NULL && calendar_next(&calendar, PUT_BACK + 1000, two_weeks_back, NULL, &next),
	   "a clock that is put back by two weeks");
	is(next - PUT_BACK, 2 * FARTHEST, "goes on where it was");
	ok(times_asked < 100, "and is found in a few steps: %d", times_asked);
}

static void
refused(const char *text, const char *expected)
{
	Calendar	calendar;
	char	   *problem = calendar_parse(text, &calendar);

	ok(problem != NULL && strstr(problem, expected) != NULL, "\"%s\" is refused: %s", text, problem ? problem : "(it is not)");
	if (problem != NULL)
		pfree(problem);
}

static void
mistakes(void)
{
	refused("60 * * * *", "At character 1: the minute is from 0 to 59.");
	refused("* 24 * * *", "At character 3: the hour");
	refused("* * 0 * *", "At character 5: the day of the month is from 1 to 31.");
	refused("* * * 13 *", "At character 7");
	refused("* * * foo *", "At character 7: \"foo\" is no month.");
	refused("* * * * 8", "At character 9");
	refused("* * * * sunday", "\"sunday\" is no day of the week.");
	refused("* * * * fri-mon", "At character 9: the range ends before it begins: write 5-7,0-1.");
	refused("*/0 * * * *", "At character 3: a step is from 1 to 59.");
	refused("*/60 * * * *", "At character 3");
	refused("*/ * * * *", "At character 3");
	refused("1,, * * * *", "At character 3: the minute is missing.");
	refused("1- * * * *", "At character 3: the minute is missing.");
	refused("1-2-3 * * * *", "At character 4: \"-\" cannot follow here.");
	refused("* * L * *", "At character 5: \"L\" is no day of the month.");
	refused("* * 1w * *", "At character 6: \"w\" cannot follow here.");
	refused("  61  * * * *", "At character 3");
	refused("99999999999999999999 * * * *", "At character 1");
	refused("60 * * * * *", "At character 1: the second");
	refused("* * * *", "this one has 4.");
	refused("* * * * * * *", "this one has 7.");
	refused("", "this one has 0.");
	refused("0 0 30 2 *", "No such day ever comes.");
	refused("0 0 31 apr,jun,sep,nov *", "No such day ever comes.");
	refused("* * * * \xc3\xa4", "At character 9");
	/* a character of several bytes is named as a whole */
	refused("1\xc3\xa4 * * * *", "At character 2: \"\xc3\xa4\" cannot follow here.");
	refused("* * * * mon\xf0\x9f\x98\x80x", "At character 12: \"\xf0\x9f\x98\x80\" cannot follow here.");
}

int
main(void)
{
	zones();
	switches();
	seconds_and_far_times();
	far_zone();
	mistakes();
	return done_testing();
}
