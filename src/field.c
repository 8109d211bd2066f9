/*-------------------------------------------------------------------------
 *
 * field.c
 *	  What of an object its owner may alter: the columns of its row, by name.
 *
 * For create_task(), alter_task() and their like: arguments, or changes as a JSON object, become a
 * draft of the row, which their own file then checks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "field.h"

/* Raises 22023: what a field is given is not of its type. */
compat_noreturn static void
complain_of_type(const FieldSet *set, const Field *field, const char *wanted)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for \"%s\" of %s", field->name, set->noun),
			 errdetail("It must be %s.", wanted)));
}

/* A value of JSON, not null, as the column has it. Raises 22003, 22007, 22023. */
static Datum
datum_of(const FieldSet *set, const Field *field, JsonbValue *value)
{
	char	   *text = NULL;

	if (value->type == jbvString)
		text = pnstrdup(value->val.string.val, value->val.string.len);
	switch (field->type)
	{
		case FIELD_TEXT:
			if (text == NULL)
				complain_of_type(set, field, "a string or null");
			return CStringGetTextDatum(text);
		case FIELD_INT:
			if (value->type == jbvNumeric)
				text = DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(value->val.numeric)));
			if (value->type != jbvNumeric || strspn(text, "-0123456789") != strlen(text))
				complain_of_type(set, field, "a whole number");
			return DirectFunctionCall1(int4in, CStringGetDatum(text));
		case FIELD_INTERVAL:
			if (text == NULL)
				complain_of_type(set, field, "an interval in a string, such as \"1 min\"");
			return DirectFunctionCall3(interval_in, CStringGetDatum(text), ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
		case FIELD_BOOL:
			if (value->type != jbvBool)
				complain_of_type(set, field, "true or false");
			return BoolGetDatum(value->val.boolean);
		case FIELD_JSON:
			return JsonbPGetDatum(JsonbValueToJsonb(value));
	}
	return (Datum) 0;			/* not reached */
}

/* The field with this name, or 22023. */
static const Field *
find(const FieldSet *set, const char *name)
{
	StringInfoData all;

	initStringInfo(&all);
	for (int i = 0; i < set->count; i++)
	{
		if (strcmp(set->fields[i].name, name) == 0)
			return &set->fields[i];
		appendStringInfo(&all, "%s%s", i == 0 ? "" : ", ", set->fields[i].name);
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 strcmp(name, set->key) == 0 ?
			 errmsg("%s cannot be renamed", set->noun) :
			 errmsg("%s has no \"%s\"", set->noun, name),
			 errhint("What can be altered: %s.", all.data)));
	return NULL;				/* not reached */
}

/*
 * Puts what a JSON object says into a draft, marked as changed; null is null.
 * Raises 22003, 22007, 22023.
 */
void
field_read_changes(const FieldSet *set, Jsonb *changes, FieldDraft *draft)
{
	JsonbIterator *iterator = JsonbIteratorInit(&changes->root);
	JsonbIteratorToken token;
	JsonbValue	item;
	const Field *field = NULL;

	if (!JB_ROOT_IS_OBJECT(changes))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("changes of %s must be a JSON object", set->noun),
				 errhint("Such as %s.", set->example)));
	while ((token = JsonbIteratorNext(&iterator, &item, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			field = find(set, pnstrdup(item.val.string.val, item.val.string.len));
		if (token != WJB_VALUE || field == NULL)
			continue;
		draft->changed[field->attribute - 1] = true;
		draft->nulls[field->attribute - 1] = item.type == jbvNull;
		if (item.type != jbvNull)
			draft->values[field->attribute - 1] = datum_of(set, field, &item);
	}
}

/* Whether two values of a field are the same. */
static bool
is_same(const Field *field, Datum a, Datum b)
{
	switch (field->type)
	{
		case FIELD_TEXT:
			return strcmp(TextDatumGetCString(a), TextDatumGetCString(b)) == 0;
		case FIELD_INT:
			return DatumGetInt32(a) == DatumGetInt32(b);
		case FIELD_INTERVAL:
			return memcmp(DatumGetIntervalP(a), DatumGetIntervalP(b), sizeof(Interval)) == 0;
		case FIELD_BOOL:
			return DatumGetBool(a) == DatumGetBool(b);
		case FIELD_JSON:
			return compareJsonbContainers(&DatumGetJsonbP(a)->root, &DatumGetJsonbP(b)->root) == 0;
	}
	return false;				/* not reached */
}

/* Whether a draft says of a field what a row has there. */
static bool
repeats(const Field *field, const FieldDraft *draft, const Datum *values, const bool *nulls)
{
	int			column = field->attribute - 1;

	return draft->nulls[column] == nulls[column] &&
		(nulls[column] || is_same(field, draft->values[column], values[column]));
}

/* The names of the fields of which a draft says something else than a row, for a message; NULL: none. */
char *
field_differing(const FieldSet *set, const FieldDraft *draft, const Datum *values, const bool *nulls)
{
	StringInfoData names;

	initStringInfo(&names);
	for (int i = 0; i < set->count; i++)
	{
		if (!repeats(&set->fields[i], draft, values, nulls))
			appendStringInfo(&names, "%s%s", names.len > 0 ? ", " : "", set->fields[i].name);
	}
	return names.len > 0 ? names.data : NULL;
}

/* Completes a draft by the row that it changes: what it repeats is no change. */
void
field_complete(const FieldSet *set, FieldDraft *draft, const Datum *values, const bool *nulls)
{
	for (int i = 0; i < set->count; i++)
	{
		int			column = set->fields[i].attribute - 1;

		if (draft->changed[column] && repeats(&set->fields[i], draft, values, nulls))
			draft->changed[column] = false;
		if (!draft->changed[column])
		{
			draft->values[column] = values[column];
			draft->nulls[column] = nulls[column];
		}
	}
}

/* Puts the arguments of a function from `first` on into a draft: the first `count` fields, in their order. */
void
field_read_arguments(const FieldSet *set, int count, FunctionCallInfo fcinfo, int first, FieldDraft *draft)
{
	for (int i = 0; i < count; i++)
	{
		int			column = set->fields[i].attribute - 1;

		draft->changed[column] = true;
		draft->nulls[column] = PG_ARGISNULL(first + i);
		draft->values[column] = draft->nulls[column] ? (Datum) 0 : PG_GETARG_DATUM(first + i);
	}
}

/* Whether any field is changed; `anew`: one of those that make another thing of the object. */
bool
field_any_changed(const FieldSet *set, const FieldDraft *draft, bool anew)
{
	for (int i = 0; i < set->count; i++)
	{
		if (field_is_changed(draft, set->fields[i].attribute) && (set->fields[i].anew || !anew))
			return true;
	}
	return false;
}

/* Raises 22004 where a column that must have a value has none. */
void
field_require_value(const FieldSet *set, const FieldDraft *draft, int attribute, const char *what)
{
	if (field_is_null(draft, attribute))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s of %s must not be null", what, set->noun)));
}

/* A column of the row, of the object's own or not, becomes this. */
void
field_set(FieldDraft *draft, int attribute, Datum value)
{
	draft->values[attribute - 1] = value;
	draft->nulls[attribute - 1] = false;
	draft->changed[attribute - 1] = true;
}

/* ... or null. */
void
field_clear(FieldDraft *draft, int attribute)
{
	draft->values[attribute - 1] = (Datum) 0;
	draft->nulls[attribute - 1] = true;
	draft->changed[attribute - 1] = true;
}

/* A column of type text; palloc'd, or NULL. */
char *
field_text(const FieldDraft *draft, int attribute)
{
	return field_is_null(draft, attribute) ? NULL : TextDatumGetCString(draft->values[attribute - 1]);
}
