/*
 * hostile_text.c
 *	  No text brings a parser of schedules out of bounds, makes it give a time twice, or get a message that cannot be shown.
 *
 * The targets are those of test/fuzz, which libFuzzer goes on with for as long as one likes; here a seeded generator calls them, with
 * pieces of schedules in any order.
 *
 * link: src/calendar.c src/schedule.c test/fuzz/targets/target.c test/fuzz/targets/calendar.c test/fuzz/targets/schedule.c
 * link: test/fuzz/targets/interval.c
 */
#include "../fuzz/targets/target.h"

#include "tap.h"

#define ROUNDS 30000

static const char *const pieces[] = {
	" ", " ", " ", "\t", "\n", "*", "*", "*", "*/", "/", "-", ",", "0", "1", "5", "7", "12", "23", "31", "59", "60", "999999999999", "jan", "FEB", "dec", "sun", "mon", "SAT", "foo", "@", "@daily",
	"@reboot", "@hourly", "@yearly", "5 min", "1 month", "1 s", "P1Y", "1:00", ":", ".", "0 0 29 2 *", "0 0 30 2 *", "30 2 * * *", "* * * * *", "0 12 13 * 5", "\xc3\xa4", "\xe2\x80\xae", "\xf0\x9f\x98\x80",
	"\xc3", "\xff", "\r", "\v", "\x01", "L", "W", "#", "?", "%s"
};

/* xorshift: the same numbers everywhere */
static uint64 state = 88172645463325252;

static uint64
drawn(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* A list for a field, mostly one that can be. */
static size_t
append_list(char *text, size_t size, int lowest, int highest, const char *const *names)
{
	size_t		length = 0;
	int			items = drawn() % 4 == 0 ? (int) (drawn() % 20) : 1;

	do
	{
		int			from = lowest + (int) (drawn() % (highest - lowest + 1));
		int			to = from + (int) (drawn() % (highest - from + 1));

		if (length > 0)
			length += snprintf(text + length, size - length, ",");
		switch (drawn() % 6)
		{
			case 0:
				length += snprintf(text + length, size - length, "*");
				break;
			case 1:
				length += snprintf(text + length, size - length, "%d-%d", from, to);
				break;
			case 2:
				length += snprintf(text + length, size - length, names != NULL ? "%s" : "5", names != NULL ? names[drawn() % 7] : "");
				break;
			default:
				length += snprintf(text + length, size - length, "%d", from);
		}
		if (drawn() % 5 == 0)
			length += snprintf(text + length, size - length, "/%d", (int) (drawn() % 16 == 0 ? 0 : 1 + drawn() % 7));
	} while (--items > 0 && length < size - 20);
	return length;
}

/* Fields, mostly of a schedule. */
static size_t
append_fields(char *text, size_t size)
{
	static const char *const months[] = {"jan", "jun", "JUL", "mar", "May", "aug", "apr"};
	static const char *const days[] = {"sun", "sat", "TUE", "thu", "Mon", "wed", "fri"};
	static const int highest[] = {59, 59, 23, 31, 12, 7};
	size_t		length = 0;

	for (int field = (int) (drawn() % 2); field < 6 && length < size - 100; field++)
	{
		length += append_list(text + length, size - length, field == 3 || field == 4 ? 1 : 0, highest[field], field == 4 ? months : field == 5 ? days : NULL);
		length += snprintf(text + length, size - length, drawn() % 8 == 0 ? "\t " : " ");
	}
	return length;
}

/* An input: random bytes in front, for what the target reads of them, and pieces or fields behind. */
static size_t
make(uint8 *data, size_t max)
{
	size_t		size = 0;
	size_t		head = drawn() % 8 == 0 ? drawn() % 90 : 60;
	int			count = (int) (drawn() % (drawn() % 8 == 0 ? 100 : 14));

	while (size < head)
		data[size++] = (uint8) drawn();
	if (drawn() % 2 == 0)
		return size + append_fields((char *) data + size, max - size);
	for (int i = 0; i < count; i++)
	{
		const char *piece = pieces[drawn() % lengthof(pieces)];
		size_t		length = strlen(piece);

		if (size + length >= max)
			break;
		memcpy(data + size, piece, length);
		size += length;
	}
	return size;
}

static void
run(Target target, const char *name)
{
	uint8		data[500];
	int			found = 0;

	for (int i = 0; i < ROUNDS && found < 5; i++)
	{
		size_t		size = make(data, sizeof(data));
		const char *problem = target(data, size);

		if (problem != NULL)
		{
			fprintf(stderr, "# round %d: %s\n", i, problem);
			found++;
		}
	}
	is(found, 0, "%s: %d inputs", name, ROUNDS);
}

int
main(void)
{
	run(fuzz_calendar, "calendar");
	run(fuzz_schedule, "schedule");
	return done_testing();
}
