/*
 * calendar.c
 *	  A calendar schedule from any text, and its times in any zone.
 *
 * The input: the time after which it is asked, a zone, the text.
 */
#include "target.h"

#include "calendar.h"

/* What one question may cost: a wall clock that shows a week again, second by second. */
#define ASKED_MAX (4 * 2 * 168 * 3600)

/* A list of the members of a set; `*` for all of them. */
static void
print_set(char *text, size_t size, uint64 set, int lowest, int highest)
{
	size_t		length = strlen(text);
	uint64		all = 0;

	for (int i = lowest; i <= highest; i++)
		all |= UINT64CONST(1) << i;
	if (set == all)
	{
		snprintf(text + length, size - length, "* ");
		return;
	}
	for (int i = lowest; i <= highest; i++)
	{
		if ((set & (UINT64CONST(1) << i)) != 0)
		{
			snprintf(text + length, size - length, "%d,", i);
			length = strlen(text);
		}
	}
	text[length - 1] = ' ';
}

/* The schedule as text, and parsed again. */
static const char *
print_and_parse(const Calendar *calendar, const char *text)
{
	char		printed[1000] = "";
	Calendar	again;
	char	   *problem;
	bool		all_days = calendar->days == 0xfffffffe;
	bool		all_weekdays = calendar->weekdays == 0x7f;

	print_set(printed, sizeof(printed), calendar->seconds, 0, 59);
	print_set(printed, sizeof(printed), calendar->minutes, 0, 59);
	print_set(printed, sizeof(printed), calendar->hours, 0, 23);
	/* a field that is all of them counts as given only if it does not begin with an asterisk */
	if (calendar->either_day && all_days)
		strcat(printed, "1-31 ");
	else
		print_set(printed, sizeof(printed), calendar->days, 1, 31);
	print_set(printed, sizeof(printed), calendar->months, 1, 12);
	if (calendar->either_day && all_weekdays)
		strcat(printed, "0-6");
	else
		print_set(printed, sizeof(printed), calendar->weekdays, 0, 6);
	/* both are restricted, and one of them began with an asterisk: a list cannot say that */
	if (!calendar->either_day && !all_days && !all_weekdays)
		return NULL;
	problem = calendar_parse(printed, &again);
	if (problem != NULL)
		return wrong("\"%s\", printed as \"%s\", is refused: %s", text, printed, problem);
	if (calendar->seconds != again.seconds || calendar->minutes != again.minutes || calendar->hours != again.hours || calendar->days != again.days ||
		calendar->months != again.months || calendar->weekdays != again.weekdays || calendar->either_day != again.either_day)
		return wrong("\"%s\", printed as \"%s\", is another one", text, printed);
	return NULL;
}

/* The times after `after`: later, in order, none between them, and as cheap as they must be. */
static const char *
times(const Calendar *calendar, int64 after, Zone *zone, const char *text)
{
	for (int i = 0; i < 4; i++)
	{
		int64		next;
		int64		again;

		zone->asked = 0;
		if (!calendar_next(calendar, after, zone_offset, zone, &next))
			return wrong("\"%s\" has no time after %lld", text, (long long) after);
		if (zone->asked > ASKED_MAX)
			return wrong("\"%s\" asked for the offset %lld times", text, (long long) zone->asked);
		if (next <= after)
			return wrong("\"%s\" after %lld: %lld", text, (long long) after, (long long) next);
		if (zone->sane)
		{
			if (!calendar_next(calendar, next - 1, zone_offset, zone, &again) || again != next)
				return wrong("\"%s\" after %lld: %lld, but after a second before that: %lld", text, (long long) after, (long long) next, (long long) again);
			if (!calendar_next(calendar, after + (next - after) / 2, zone_offset, zone, &again) || (again != next && next - after > 1))
				return wrong("\"%s\" after %lld: %lld, but after half of that: %lld", text, (long long) after, (long long) next, (long long) again);
		}
		after = next;
	}
	return NULL;
}

const char *
fuzz_calendar(const uint8 *data, size_t size)
{
	Input		input = {data, size};
	int64		after = (int64) (take(&input, 5) % UINT64CONST(9000000000)) - INT64CONST(2500000000);
	Zone		zone;
	Calendar	calendar;
	char	   *text;
	char	   *problem;
	const char *found = NULL;

	take_zone(&input, after, &zone);
	text = take_text(&input);
	problem = calendar_parse(text, &calendar);
	if (problem != NULL)
	{
		if (problem[0] == '\0' || problem[strlen(problem) - 1] != '.')
			found = wrong("\"%s\" is refused by something that is no sentence: \"%s\"", text, problem);
		else if (is_utf8(text) && !is_utf8(problem))
			found = wrong("\"%s\" is refused by something that is no UTF-8: \"%s\"", text, problem);
		pfree(problem);
	}
	else
	{
		found = print_and_parse(&calendar, text);
		if (found == NULL)
			found = times(&calendar, after, &zone, text);
	}
	free(text);
	return found;
}
