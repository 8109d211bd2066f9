/*-------------------------------------------------------------------------
 *
 * field.c
 *	  What of an object its owner may alter: the columns of its row, by name.
 *
 * For alter_task() and its like, whose changes are a JSON object.
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
field_read_changes(const FieldSet *set, Jsonb *changes, FieldDraft draft)
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
		draft.changed[field->attribute - 1] = true;
		draft.nulls[field->attribute - 1] = item.type == jbvNull;
		if (item.type != jbvNull)
			draft.values[field->attribute - 1] = datum_of(set, field, &item);
	}
}

/* Whether two values of a field are the same. */
bool
field_is_same(const Field *field, Datum a, Datum b)
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
