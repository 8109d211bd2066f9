/*
 * target.c
 *	  What the targets share: reading an input, and a zone made from it.
 */
#include "target.h"

#include "mb/pg_wchar.h"

const char *__asan_default_options(void);

/* What the parsers have palloc'd belongs to a context, which only a server has. */
const char *
__asan_default_options(void)
{
	return "detect_leaks=0";
}

const char *
wrong(const char *format,...)
{
	static char text[2000];
	va_list		args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return text;
}

uint64
take(Input *input, int bytes)
{
	uint64		value = 0;

	for (; bytes > 0 && input->size > 0; bytes--)
	{
		value = value << 8 | *input->data++;
		input->size--;
	}
	return value;
}

/* The rest, up to a zero byte; malloc'd, of exactly its size, so that the address sanitizer sees its end. */
char *
take_text(Input *input)
{
	char	   *text = malloc(input->size + 1);
	size_t		length;

	memcpy(text, input->data, input->size);
	text[input->size] = '\0';
	length = strlen(text);
	input->data += length;
	input->size -= length;
	return realloc(text, length + 1);
}

bool
is_utf8(const char *text)
{
	int			length = (int) strlen(text);

	return pg_encoding_verifymbstr(PG_UTF8, text, length) == length;
}

/* Seconds in 26 hours: the farthest that a sane clock is from UTC, with some to spare. */
#define SANE_OFFSET (15 * 3600)
#define WILD_OFFSET (168 * 3600)
#define DAY_S INT64CONST(86400)

void
take_zone(Input *input, int64 near, Zone *zone)
{
	int64		at = near - 20 * DAY_S;

	memset(zone, 0, sizeof(*zone));
	zone->sane = take(input, 1) % 4 != 0;
	zone->switches = (int) (take(input, 1) % (ZONE_SWITCHES + 1));
	for (int i = 0; i <= zone->switches; i++)
	{
		int32		offset = (int32) (take(input, 3));

		if (!zone->sane)
			zone->offset[i] = offset % (2 * WILD_OFFSET) - WILD_OFFSET;
		else if (i == 0)
			zone->offset[i] = offset % (2 * SANE_OFFSET) - SANE_OFFSET;
		else
			zone->offset[i] = Max(Min(zone->offset[i - 1] + offset % (2 * 7200) - 7200, SANE_OFFSET), -SANE_OFFSET);
		if (i == zone->switches)
			break;
		at += zone->sane ? 7 * DAY_S + (int64) (take(input, 3) % (30 * DAY_S)) : (int64) (take(input, 3) % (10 * DAY_S));
		zone->at[i] = at;
	}
}

int32
zone_offset(int64 utc, void *arg)
{
	Zone	   *zone = arg;
	int			i = 0;

	zone->asked++;
	while (i < zone->switches && zone->at[i] <= utc)
		i++;
	return zone->offset[i];
}
