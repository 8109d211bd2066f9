/*-------------------------------------------------------------------------
 *
 * result.c
 *	  Rows that functions return: ours to whoever called them, and users' to us.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "utils/typcache.h"

#include "result.h"

/* The one row that a function returns which has OUT arguments, or a composite type as its result. */
Datum
result_row(FunctionCallInfo fcinfo, const Datum *values, const bool *nulls)
{
	TupleDesc	desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), unconstify(Datum *, values), unconstify(bool *, nulls)));
}

/*
 * The columns of a row that a user's function returned; they point into it. `what` is for the error: it has as many
 * as the type that it was declared with, unless somebody has altered that.
 */
void
result_read(Datum composite, int columns, Datum *values, bool *nulls, const char *what)
{
	HeapTupleHeader header = DatumGetHeapTupleHeader(composite);
	TupleDesc	desc = lookup_rowtype_tupdesc(HeapTupleHeaderGetTypeId(header), HeapTupleHeaderGetTypMod(header));
	HeapTupleData tuple = {.t_len = HeapTupleHeaderGetDatumLength(header),.t_data = header};

	ItemPointerSetInvalid(&tuple.t_self);
	if (desc->natts != columns)
		elog(ERROR, "%s has %d columns", what, desc->natts);
	heap_deform_tuple(&tuple, desc, values, nulls);
	ReleaseTupleDesc(desc);
}
