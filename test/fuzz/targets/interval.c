/*
 * interval.c
 *	  A stand-in for PostgreSQL's own parser of intervals, which only a server has.
 *
 * It answers what the input says, whatever the text is: each error, and each interval that there can be. The real one is
 * fuzzed through preview_schedule(), by ../calls. The calendar's arithmetic is PostgreSQL's.
 */
#include "interval.h"

#include <limits.h>

#include "utils/datetime.h"
#include "utils/timestamp.h"

static struct
{
	int			parse;			/* errors; 0: none */
	int			decode;
	int			iso;
	int			dtype;
	bool		fits;
	Interval	span;
}			answer;

const int	day_tab[2][13] =
{
	{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0},
	{31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0}
};

static int
take_error(Input *input)
{
	static const int errors[] = {DTERR_BAD_FORMAT, DTERR_FIELD_OVERFLOW, DTERR_INTERVAL_OVERFLOW, DTERR_MD_FIELD_OVERFLOW};
	int			drawn = (int) take(input, 1);

	return drawn < 200 ? 0 : errors[drawn % lengthof(errors)];
}

/* A number of any size: few have all their bits. */
static int64
take_number(Input *input)
{
	int			bits = (int) (take(input, 1) % 65);
	uint64		value = take(input, 8);

	return (int64) (bits == 0 ? 0 : value >> (64 - bits));
}

void
interval_answers(Input *input)
{
	answer.parse = take_error(input);
	answer.decode = take_error(input);
	answer.iso = take_error(input);
	answer.dtype = take(input, 1) < 240 ? DTK_DELTA : DTK_LATE;
	answer.fits = take(input, 1) < 240;
	answer.span.month = (int32) take_number(input);
	answer.span.day = (int32) take_number(input);
	answer.span.time = take_number(input);
}

int
ParseDateTime(const char *timestr, char *workbuf, size_t buflen, char **field, int *ftype, int maxfields, int *numfields)
{
	/* the contract: a copy of each field, with a zero behind it, or an error */
	if (strlen(timestr) + MAXDATEFIELDS > buflen)
		return DTERR_BAD_FORMAT;
	memset(workbuf, 'x', buflen);
	*numfields = 0;
	return answer.parse;
}

int
DecodeInterval(char **field, int *ftype, int nf, int range, int *dtype, struct pg_itm_in *itm_in)
{
	*dtype = answer.dtype;
	return answer.decode;
}

int
DecodeISO8601Interval(char *str, int *dtype, struct pg_itm_in *itm_in)
{
	*dtype = answer.dtype;
	return answer.iso;
}

int
itmin2interval(struct pg_itm_in *itm_in, Interval *span)
{
	if (!answer.fits)
		return -1;
	*span = answer.span;
	return 0;
}

/* ---------------------------------------------------------------- dates */

static int
to_julian(int y, int m, int d)
{
	int			julian;
	int			century;

	if (m > 2)
	{
		m += 1;
		y += 4800;
	}
	else
	{
		m += 13;
		y += 4799;
	}
	century = y / 100;
	julian = y * 365 - 32167;
	julian += y / 4 - century + century / 4;
	return julian + 7834 * m / 256 + d;
}

static void
from_julian(int jd, int *year, int *month, int *day)
{
	unsigned int julian = jd;
	unsigned int quad;
	unsigned int extra;
	int			y;

	julian += 32044;
	quad = julian / 146097;
	extra = (julian - quad * 146097) * 4 + 3;
	julian += 60 + quad * 3 + extra / 146097;
	quad = julian / 1461;
	julian -= quad * 1461;
	y = julian * 4 / 1461;
	julian = ((y != 0) ? ((julian + 305) % 365) : ((julian + 306) % 366)) + 123;
	y += quad * 4;
	*year = y - 4800;
	quad = julian * 2141 / 65536;
	*day = julian - 7834 * quad / 256;
	*month = (quad + 10) % MONTHS_PER_YEAR + 1;
}

int
timestamp2tm(Timestamp dt, int *tzp, struct pg_tm *tm, fsec_t *fsec, const char **tzn, pg_tz *attimezone)
{
	int64		date = dt / USECS_PER_DAY;
	int64		time = dt % USECS_PER_DAY;

	if (time < 0)
	{
		time += USECS_PER_DAY;
		date--;
	}
	date += POSTGRES_EPOCH_JDATE;
	if (date < 0 || date > INT_MAX)
		return -1;
	from_julian((int) date, &tm->tm_year, &tm->tm_mon, &tm->tm_mday);
	tm->tm_hour = (int) (time / USECS_PER_HOUR);
	tm->tm_min = (int) (time / USECS_PER_MINUTE % 60);
	tm->tm_sec = (int) (time / USECS_PER_SEC % 60);
	*fsec = (fsec_t) (time % USECS_PER_SEC);
	return 0;
}

int
tm2timestamp(struct pg_tm *tm, fsec_t fsec, int *tzp, Timestamp *result)
{
	int64		date;

	/* what PostgreSQL only promises for a date that is one */
	if (tm->tm_mon < 1 || tm->tm_mon > 12 || tm->tm_mday < 1 || tm->tm_mday > day_tab[isleap(tm->tm_year)][tm->tm_mon - 1])
	{
		fprintf(stderr, "# no date: %d-%d-%d\n", tm->tm_year, tm->tm_mon, tm->tm_mday);
		abort();
	}
	if (!IS_VALID_JULIAN(tm->tm_year, tm->tm_mon, tm->tm_mday))
		return -1;
	date = to_julian(tm->tm_year, tm->tm_mon, tm->tm_mday) - POSTGRES_EPOCH_JDATE;
	if (date < -(INT64_MAX / USECS_PER_DAY) + 1 || date > INT64_MAX / USECS_PER_DAY - 1)
		return -1;
	*result = date * USECS_PER_DAY + ((int64) tm->tm_hour * 3600 + tm->tm_min * 60 + tm->tm_sec) * USECS_PER_SEC + fsec;
	return IS_VALID_TIMESTAMP(*result) ? 0 : -1;
}
