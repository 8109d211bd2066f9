/*
 * target.h
 *	  One parser under fuzz: what is done with an input, and what must be true then.
 *
 * The same function is called by libFuzzer (driver.c) and, with a seeded generator, by test/unit/hostile_text.c.
 */
#ifndef REVENANT_FUZZ_TARGET_H
#define REVENANT_FUZZ_TARGET_H

#include "postgres.h"

/* Does it. NULL, or what is wrong, in a static buffer. */
typedef const char *(*Target) (const uint8 *data, size_t size);

extern const char *fuzz_calendar(const uint8 *data, size_t size);
extern const char *fuzz_schedule(const uint8 *data, size_t size);

/* Says what is wrong; returns that. */
extern const char *wrong(const char *format,...) pg_attribute_printf(1, 2);

/* The bytes of an input, one after the other; zeroes behind its end. */
typedef struct Input
{
	const uint8 *data;
	size_t		size;
} Input;

extern uint64 take(Input *input, int bytes);
extern char *take_text(Input *input);

extern bool is_utf8(const char *text);

/* A wall clock that an input has made up: its offset between one switch and the next. */
#define ZONE_SWITCHES 4
typedef struct Zone
{
	int			switches;
	int64		at[ZONE_SWITCHES];	/* ascending */
	int32		offset[ZONE_SWITCHES + 1];
	bool		sane;			/* as clocks are: switches weeks apart, by a day at most */
	int64		asked;			/* how often */
} Zone;

extern void take_zone(Input *input, int64 near, Zone *zone);
extern int32 zone_offset(int64 utc, void *zone);

#endif							/* REVENANT_FUZZ_TARGET_H */
