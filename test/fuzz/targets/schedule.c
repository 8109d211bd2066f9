/*
 * schedule.c
 *	  A schedule from any text, and its times.
 *
 * The input: where the grid begins, after which time it is asked, what PostgreSQL's parser of intervals is to answer, a zone, the text.
 */
#include "target.h"

#include "datatype/timestamp.h"
#include "common/int.h"
#include "schedule.h"
#include "interval.h"

/* From so many bytes on it is too long. */
#define LENGTH_MAX 200

/* Any time that there is; some are near the ends. */
static TimestampTz
take_time(Input *input)
{
	uint64		kind = take(input, 1);

	if (kind % 8 == 0)
		return END_TIMESTAMP - 1 - (int64) take(input, 6) % (60 * USECS_PER_DAY);
	if (kind % 8 == 1)
		return MIN_TIMESTAMP + (int64) take(input, 6) % (60 * USECS_PER_DAY);
	return (TimestampTz) ((uint64) MIN_TIMESTAMP + take(input, 8) % ((uint64) END_TIMESTAMP - (uint64) MIN_TIMESTAMP));
}

static const char *
check_parsed(const Schedule *schedule, const char *text)
{
	switch (schedule->kind)
	{
		case SCHEDULE_INTERVAL:
			if (schedule->months < 0 || schedule->time_us < 0 || (schedule->months == 0 && schedule->time_us < 1000))
				return wrong("\"%s\" is an interval of %d months and %lld us", text, schedule->months, (long long) schedule->time_us);
			return NULL;
		case SCHEDULE_CALENDAR:
		case SCHEDULE_REBOOT:
			return NULL;
		default:
			return wrong("\"%s\" is of kind %d", text, schedule->kind);
	}
}

/* Blanks before it mean nothing. */
static const char *
indented(const Schedule *schedule, const char *text)
{
	char		copy[1000];
	Schedule	again;

	snprintf(copy, sizeof(copy), " \t%s", text);
	if (schedule_parse(copy, &again) != NULL || !schedule_same(schedule, &again))
		return wrong("\"%s\" is another one behind blanks", text);
	return NULL;
}

static const char *
times(const Schedule *schedule, const SchedulePlace *place, TimestampTz after, const char *text)
{
	bool		exact = schedule->kind == SCHEDULE_INTERVAL || ((Zone *) place->zone)->sane;
	int64		ignored;

	/* the distance of two times is not always one of int64; whoever asks begins at a time of this age */
	if (pg_sub_s64_overflow(after, place->anchor, &ignored))
		return NULL;
	for (int i = 0; i < 4; i++)
	{
		TimestampTz next;
		TimestampTz again;

		if (!schedule_next(schedule, place, after, &next))
			return NULL;
		if (next <= after || !IS_VALID_TIMESTAMP(next))
			return wrong("\"%s\" of %lld after %lld: %lld", text, (long long) place->anchor, (long long) after, (long long) next);
		if (exact && (!schedule_next(schedule, place, next - 1, &again) || again != next))
			return wrong("\"%s\" of %lld after %lld: %lld, but after a microsecond before that: %lld", text, (long long) place->anchor, (long long) after, (long long) next,
						 (long long) again);
		after = next;
	}
	return NULL;
}

const char *
fuzz_schedule(const uint8 *data, size_t size)
{
	Input		input = {data, size};
	SchedulePlace place = {0};
	TimestampTz after;
	Zone		zone;
	Schedule	schedule;
	char	   *text;
	const char *problem;
	const char *found = NULL;

	place.anchor = take_time(&input);
	after = take(&input, 1) % 2 == 0 ? place.anchor : take_time(&input);
	interval_answers(&input);
	take_zone(&input, after / USECS_PER_SEC + (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * INT64CONST(86400), &zone);
	place.offset = zone_offset;
	place.zone = &zone;
	text = take_text(&input);
	problem = schedule_parse(text, &schedule);
	if (problem == NULL && strlen(text + strspn(text, " \t\n\v\f\r")) >= LENGTH_MAX)
		found = wrong("a schedule of %d bytes is taken: \"%s\"", (int) strlen(text), text);
	else if (problem == NULL)
	{
		found = check_parsed(&schedule, text);
		if (found == NULL && strlen(text) < 150)
			found = indented(&schedule, text);
		if (found == NULL)
			found = times(&schedule, &place, after, text);
	}
	else if (problem[0] == '\0' || problem[strlen(problem) - 1] != '.')
		found = wrong("\"%s\" is refused by something that is no sentence: \"%s\"", text, problem);
	else if (is_utf8(text) && !is_utf8(problem))
		found = wrong("\"%s\" is refused by something that is no UTF-8: \"%s\"", text, problem);
	free(text);
	return found;
}
