/*
 * field.h
 *	  What of an object its owner may alter: the columns of its row, by name.
 */
#ifndef REVENANT_FIELD_H
#define REVENANT_FIELD_H

#include "postgres.h"

#include "fmgr.h"
#include "utils/jsonb.h"

typedef enum FieldType
{
	FIELD_TEXT,
	FIELD_INT,
	FIELD_INTERVAL,
	FIELD_BOOL,
	FIELD_JSON
} FieldType;

typedef struct Field
{
	const char *name;
	int			attribute;		/* its column */
	FieldType	type;
	bool		anew;			/* a change of it makes another thing of the object */
} Field;

/* All that can be altered of a kind of object, and how to speak of it */
typedef struct FieldSet
{
	const char *noun;			/* "a task" */
	const char *key;			/* what its name is called: it cannot be altered */
	const char *example;		/* of changes, for a hint */
	const Field *fields;
	int			count;
} FieldSet;

#define FIELD_COLUMNS_MAX 32	/* of a table whose rows have drafts */

/* A row that is to be: all of it, or what is to change. Arrays have a place for each column, by its number less one. */
typedef struct FieldDraft
{
	Datum		values[FIELD_COLUMNS_MAX];
	bool		nulls[FIELD_COLUMNS_MAX];
	bool		changed[FIELD_COLUMNS_MAX]; /* it is new, and not checked yet */
} FieldDraft;

extern void field_read_arguments(const FieldSet *set, int count, FunctionCallInfo fcinfo, int first, FieldDraft *draft);
extern void field_read_changes(const FieldSet *set, Jsonb *changes, FieldDraft *draft);
extern void field_complete(const FieldSet *set, FieldDraft *draft, const Datum *values, const bool *nulls);
extern char *field_differing(const FieldSet *set, const FieldDraft *draft, const Datum *values, const bool *nulls);
extern bool field_any_changed(const FieldSet *set, const FieldDraft *draft, bool anew);
extern void field_require_value(const FieldSet *set, const FieldDraft *draft, int attribute, const char *what);
extern void field_set(FieldDraft *draft, int attribute, Datum value);
extern void field_clear(FieldDraft *draft, int attribute);
extern char *field_text(const FieldDraft *draft, int attribute);

static inline bool
field_is_changed(const FieldDraft *draft, int attribute)
{
	return draft->changed[attribute - 1];
}

static inline bool
field_is_null(const FieldDraft *draft, int attribute)
{
	return draft->nulls[attribute - 1];
}

#endif							/* REVENANT_FIELD_H */
