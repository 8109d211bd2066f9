/*
 * field.h
 *	  What of an object its owner may alter: the columns of its row, by name.
 */
#ifndef REVENANT_FIELD_H
#define REVENANT_FIELD_H

#include "postgres.h"

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

/* A row that is to be. Arrays have a place for each column. */
typedef struct FieldDraft
{
	Datum	   *values;
	bool	   *nulls;
	bool	   *changed;		/* it is new, and not checked yet */
} FieldDraft;

extern void field_read_changes(const FieldSet *set, Jsonb *changes, FieldDraft draft);
extern bool field_is_same(const Field *field, Datum a, Datum b);

#endif							/* REVENANT_FIELD_H */
