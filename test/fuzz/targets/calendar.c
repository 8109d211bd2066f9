/*
 * calendar.c
 *	  A calendar schedule from any text, and its times in any zone.
 *
 * The input: the time after which it is asked, a zone, the text.
 */
#include "target.h"

#include "calendar.h"

/* What one question may cost: nobody waits for a clock that shows a week again, second by second. */
#define ASKED_MAX 10000

static const char *const months[] = {"", "Jan", "feb", "MAR", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"};
static const char *const weekdays[] = {"sun", "MON", "Tue", "wed", "thu", "fri", "sat", "---"};

/* A list of the members of a set, by name if they have some; `*` for all of them. */
static void
print_set(char *text, size_t size, uint64 set, int lowest, int highest, const char *const *names)
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
			if (names != NULL)
				snprintf(text + length, size - length, "%s,", names[i]);
			else
				snprintf(text + length, size - length, "%d,", i);
			length = strlen(text);
		}
	}
	text[length - 1] = ' ';
}

/* ---------------------------------------------------------------- what the fields mean, read once more */

static int
read_value(const char *at, const char **rest, const char *const *names, int lowest, int highest)
{
	if (*at >= '0' && *at <= '9')
		return (int) strtol(at, (char **) rest, 10);
	*rest = at + 3;
	for (int i = lowest; names != NULL && i <= highest; i++)
	{
		if (pg_strncasecmp(at, names[i], 3) == 0)
			return i;
	}
	return -1;
}

/* Whether a list, as it stands in the text, has a value. */
static bool
list_has(const char *list, int value, int lowest, int highest, const char *const *names)
{
	for (;;)
	{
		const char *rest = list + 1;
		int			from = lowest;
		int			to = highest;
		int			step = 1;

		if (*list != '*')
		{
			from = read_value(list, &rest, names, lowest, highest);
			if (*rest == '-')
				to = read_value(rest + 1, &rest, names, lowest, highest);
			else if (*rest != '/')
				to = from;
		}
		if (*rest == '/')
			step = (int) strtol(rest + 1, (char **) &rest, 10);
		if (value >= from && value <= to && (value - from) % step == 0)
			return true;
		if (*rest != ',')
			return false;
		list = rest + 1;
	}
}

/* Whether the sets are what the text says. */
static const char *
check_sets(const Calendar *calendar, const char *text)
{
	const uint64 sets[] = {calendar->seconds, calendar->minutes, calendar->hours, calendar->days, calendar->months};
	static const int lowest[] = {0, 0, 0, 1, 1, 0};
	static const int highest[] = {59, 59, 23, 31, 12, 7};
	const char *words[6] = {"0"};
	int			count = 0;

	for (const char *at = text + strspn(text, " \t\n"); *at != '\0'; at += strspn(at, " \t\n"))
	{
		words[Min(count, 5)] = at;
		count++;
		at += strcspn(at, " \t\n");
	}
	if (count == 5)
	{
		memmove(&words[1], &words[0], 5 * sizeof(words[0]));
		words[0] = "0";
	}
	for (int field = 0; field < 5; field++)
	{
		for (int value = lowest[field]; value <= highest[field]; value++)
		{
			if (list_has(words[field], value, lowest[field], highest[field], field == 4 ? months : NULL) != (sets[field] >> value & 1))
				return wrong("\"%s\": %d of field %d", text, value, field);
		}
	}
	for (int day = 0; day < 7; day++)
	{
		if ((list_has(words[5], day, 0, 7, weekdays) || (day == 0 && list_has(words[5], 7, 0, 7, weekdays))) != (calendar->weekdays >> day & 1))
			return wrong("\"%s\": day %d of the week", text, day);
	}
	if (calendar->either_day != (words[3][0] != '*' && words[5][0] != '*'))
		return wrong("\"%s\": which days", text);
	return NULL;
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

	print_set(printed, sizeof(printed), calendar->seconds, 0, 59, NULL);
	print_set(printed, sizeof(printed), calendar->minutes, 0, 59, NULL);
	print_set(printed, sizeof(printed), calendar->hours, 0, 23, NULL);
	/* a field that is all of them counts as given only if it does not begin with an asterisk */
	if (calendar->either_day && all_days)
		strcat(printed, "1-31 ");
	else
		print_set(printed, sizeof(printed), calendar->days, 1, 31, NULL);
	print_set(printed, sizeof(printed), calendar->months, 1, 12, months);
	if (calendar->either_day && all_weekdays)
		strcat(printed, "0-6");
	else
		print_set(printed, sizeof(printed), calendar->weekdays, 0, 6, weekdays);
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
		found = check_sets(&calendar, text);
		if (found == NULL)
			found = print_and_parse(&calendar, text);
		if (found == NULL)
			found = times(&calendar, after, &zone, text);
	}
	free(text);
	return found;
}
