/*-------------------------------------------------------------------------
 *
 * plan.c
 *	  Plans: what a row of revenant.plan says, and who they belong to.
 *
 * A plan belongs to the role that created it: its name is in the row, so that a dump carries
 * it, with the oid beside it. Who is a member of that role may use it. Where the name
 * is another role's by now, or nobody's, it is no one's, superusers excepted.
 *
 * A row that was made in another database or cluster is held: nothing is done with it
 * before adopt() took it over.
 *
 * NOTES
 *	  Every function that writes checks in this order: that writing is possible
 *	  at all, arguments, existence, that the plan is not held, membership in the owner's role.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "digest.h"
#include "error.h"
#include "extension.h"
#include "locktag.h"
#include "plan.h"
#include "row.h"
#include "task.h"

static const char *const verdict_names[] = {
	[VERDICT_COMPLETE] = "complete",
	[VERDICT_STALLED] = "stalled"
};

/* The same end of a planner's runs is written down that often. */
#define NOTE_EVERY_US (10 * US_PER_S)

/* ---------------------------------------------------------------- names */

/*
 * A plan's name from argument `n`. Raises 22004, and 22023 unless it has 1 to
 * PLAN_NAME_MAX bytes.
 */
char *
plan_name_arg(FunctionCallInfo fcinfo, int n)
{
	char	   *name;

	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("plan name must not be null")));
	name = text_to_cstring(PG_GETARG_TEXT_PP(n));
	if (name[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("plan name must not be empty")));
	if (strlen(name) > PLAN_NAME_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("plan name is too long"),
				 errdetail("It has %zu bytes, and may have %d.", strlen(name), PLAN_NAME_MAX)));
	return name;
}

/* What its lease is called, and the task of its planner; palloc'd. */
char *
plan_lease_name(const char *plan)
{
	return psprintf(PLAN_PREFIX "%s", plan);
}

/* What a verdict is called, in rows and views; NULL for none. */
const char *
plan_verdict_name(PlanVerdict verdict)
{
	return verdict_names[verdict];
}

/* ---------------------------------------------------------------- the row */

/* Raises XX001 where a column has no value that every plan has. */
static void
require_columns(TupleDesc desc, const bool *nulls)
{
	static const int optional[] = {
		ATT_PLAN_FINGERPRINT, ATT_PLAN_PLANNER_FUNCTION, ATT_PLAN_METADATA, ATT_PLAN_GENERATION, ATT_PLAN_LEADER, ATT_PLAN_CURSOR,
		ATT_PLAN_VERDICT, ATT_PLAN_VERDICT_SEQ, ATT_PLAN_REPLAN_AT, ATT_PLAN_REPLAN_OUTCOME, ATT_PLAN_REPLAN_ERROR
	};
	bool		may_lack[PLAN_COLUMNS] = {0};

	for (int i = 0; i < (int) lengthof(optional); i++)
		may_lack[optional[i] - 1] = true;
	for (int i = 0; i < PLAN_COLUMNS; i++)
	{
		if (nulls[i] && !may_lack[i])
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("a row of revenant.plan has no \"%s\"", NameStr(TupleDescAttr(desc, i)->attname)),
					 errdetail("Plans are written by the functions of revenant only."),
					 errhint("DELETE the row as a superuser, and create the plan again.")));
	}
}

/* Raises XX001: a column says what no function of ours writes there. */
compat_noreturn static void
complain_of_column(const char *name, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("the row of plan \"%s\" has no usable \"%s\"", name, what),
			 errdetail("Plans are written by the functions of revenant only."),
			 errhint("DELETE the row from revenant.plan as a superuser, and create the plan again.")));
}

/* A column of type text, or NULL. */
static char *
text_of(const Datum *values, const bool *nulls, int attribute)
{
	return nulls[attribute - 1] ? NULL : TextDatumGetCString(values[attribute - 1]);
}

static int64
number_of(const Datum *values, const bool *nulls, int attribute)
{
	return nulls[attribute - 1] ? 0 : DatumGetInt64(values[attribute - 1]);
}

static int64
duration_of(const char *name, const Datum *values, int attribute, const char *what)
{
	int64		us = task_duration_us(DatumGetIntervalP(values[attribute - 1]));

	if (us < 0)
		complain_of_column(name, what);
	return us;
}

static PlanVerdict
verdict_of(const char *name, const char *text)
{
	if (text == NULL)
		return VERDICT_NONE;
	for (int i = VERDICT_COMPLETE; i < (int) lengthof(verdict_names); i++)
	{
		if (strcmp(text, verdict_names[i]) == 0)
			return (PlanVerdict) i;
	}
	complain_of_column(name, "verdict");
}

/*
 * What the library needs of a row of revenant.plan; strings are palloc'd. Needs a
 * snapshot, values may be toasted. Raises XX001 where the row lacks what every plan has, or
 * says what none does: a superuser can write anything there.
 */
void
plan_parse(HeapTuple tuple, TupleDesc desc, PlanRow *row)
{
	Datum		values[PLAN_COLUMNS];
	bool		nulls[PLAN_COLUMNS];

	heap_deform_tuple(tuple, desc, values, nulls);
	require_columns(desc, nulls);
	memset(row, 0, sizeof(*row));
	row->name = text_of(values, nulls, ATT_PLAN_NAME);
	row->plan_id = number_of(values, nulls, ATT_PLAN_ID);
	row->owner = text_of(values, nulls, ATT_PLAN_OWNER);
	row->owner_oid = (Oid) number_of(values, nulls, ATT_PLAN_OWNER_OID);
	row->fingerprint = text_of(values, nulls, ATT_PLAN_FINGERPRINT);
	row->planner_function = text_of(values, nulls, ATT_PLAN_PLANNER_FUNCTION);
	row->replan_every_us = duration_of(row->name, values, ATT_PLAN_REPLAN_EVERY, "replan_every");
	row->lease_ttl_us = duration_of(row->name, values, ATT_PLAN_LEASE_TTL, "lease_ttl");
	row->max_attempts = DatumGetInt32(values[ATT_PLAN_MAX_ATTEMPTS - 1]);
	row->max_in_flight = DatumGetInt32(values[ATT_PLAN_MAX_IN_FLIGHT - 1]);
	row->rebalance_delay_us = duration_of(row->name, values, ATT_PLAN_REBALANCE_DELAY, "rebalance_delay");
	row->drain_deadline_us = duration_of(row->name, values, ATT_PLAN_DRAIN_DEADLINE, "drain_deadline");
	row->native = task_row_is_native(values[ATT_PLAN_SYSTEM_IDENTIFIER - 1], values[ATT_PLAN_DATABASE_OID - 1]);
	row->generation = number_of(values, nulls, ATT_PLAN_GENERATION);
	row->final = DatumGetBool(values[ATT_PLAN_FINAL - 1]);
	row->planned = number_of(values, nulls, ATT_PLAN_PLANNED);
	row->last_number = number_of(values, nulls, ATT_PLAN_LAST_NUMBER);
	row->revision = number_of(values, nulls, ATT_PLAN_REVISION);
	row->verdict = verdict_of(row->name, text_of(values, nulls, ATT_PLAN_VERDICT));
	row->verdict_seq = number_of(values, nulls, ATT_PLAN_VERDICT_SEQ);
	if (row->max_attempts < 1)
		complain_of_column(row->name, "max_attempts");
	if (row->max_in_flight < 1)
		complain_of_column(row->name, "max_in_flight");
}

/*
 * The row of a plan as it is now, a palloc'd copy; NULL: there is none. It is
 * parsed into *row, too, unless `row` is NULL. Raises XX001. Takes AccessShareLock on
 * revenant.plan.
 */
HeapTuple
plan_find_row(const Extension *extension, const char *name, PlanRow *row)
{
	Relation	rel = table_open(extension->plan, AccessShareLock);
	HeapTuple	tuple = row_find(rel, extension->plan_pkey, name);

	if (tuple != NULL && row != NULL)
		plan_parse(tuple, RelationGetDescr(rel), row);
	table_close(rel, AccessShareLock);
	return tuple;
}

/* ---------------------------------------------------------------- who may */

/* Raises 42704. */
void
plan_raise_unknown(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("plan \"%s\" does not exist", name),
			 errhint("create_plan() makes one.")));
}

/* Raises 55000: it was made in another database or cluster. */
void
plan_raise_held(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("plan \"%s\" is held", name),
			 errdetail("It was made in another database or cluster."),
			 errhint("SELECT revenant.adopt() takes over what came from another database or cluster.")));
}

/* Whether a row means the role with this oid: that has the name, or has another one by now and nobody else has that. */
static bool
is_still_called(Oid role, const char *name)
{
	const char *now = GetUserNameFromId(role, true);

	return now != NULL && (strcmp(now, name) == 0 || !OidIsValid(get_role_oid(name, true)));
}

/*
 * Whether the caller is a member of the role with this oid. That the role is the one which
 * a row names is for plan_require_owner().
 */
bool
plan_is_owned_by_caller(Oid owner_oid)
{
	return is_member_of_role(GetUserId(), owner_oid);
}

/*
 * Raises 42501 unless the caller is a member of the role that owns a plan. A name
 * that means another role now: the plan is nobody's, except a superuser's.
 */
void
plan_require_owner(const char *name, const char *owner, Oid owner_oid)
{
	bool		same = is_still_called(owner_oid, owner);

	if (same ? plan_is_owned_by_caller(owner_oid) : superuser())
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for plan \"%s\"", name),
			 same ?
			 errdetail("It belongs to role \"%s\", and role \"%s\" is not a member of that.",
					   owner, GetUserNameFromId(GetUserId(), false)) :
			 errdetail("The role \"%s\" that it belonged to was dropped, or another one has its name now.", owner)));
}

/*
 * Whether a plan is the caller's: it exists, is not held, and its owner's role has the
 * caller as a member. For who takes its lease. Raises XX001.
 */
bool
plan_role_owns(const char *name)
{
	PlanRow		row;

	if (plan_find_row(extension_get(), name, &row) == NULL || !row.native)
		return false;
	return is_still_called(row.owner_oid, row.owner) ? plan_is_owned_by_caller(row.owner_oid) : superuser();
}

/* Raises RV004 where a plan has another fingerprint than it is `given`; NULL is not checked. */
void
plan_require_fingerprint(const char *name, const char *has, const char *given)
{
	if (given == NULL || (has != NULL && strcmp(has, given) == 0))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_RV_FINGERPRINT_MISMATCH),
			 errmsg("plan \"%s\" has another fingerprint", name),
			 has != NULL ?
			 errdetail("It has \"%s\", and was given \"%s\".", has, given) :
			 errdetail("It has none, and was given \"%s\".", given),
			 errhint("Use the configuration that the plan was made for, or change the plan's with alter_plan().")));
}

/* ---------------------------------------------------------------- a change */

/*
 * Excludes who changes a plan of this name as a whole, to the end of the transaction. False, with `wait` false:
 * somebody does. Beside the lock of the row: this one is given back only when memory says what
 * was written, so memory hears of changes in the order in which they were made.
 */
bool
plan_lock_change(const Extension *extension, const char *name, bool wait)
{
	uint8		digest[DIGEST_BYTES];
	LOCKTAG		tag;

	digest_name(extension->extension, name, digest);
	tag = locktag_of_entity(MyDatabaseId, digest, LOCK_OTHER_CHANGE);
	return LockAcquire(&tag, ExclusiveLock, false, !wait) != LOCKACQUIRE_NOT_AVAIL;
}

/*
 * Begins a change to a plan: its row is locked until this transaction ends. The
 * caller has called task_require_writable() and closes it by plan_end_change(). Raises
 * 42501, 42704, 55000, XX001. Takes RowExclusiveLock on revenant.plan, then waits for whoever changes the plan.
 */
void
plan_begin_change(const char *name, PlanChange *change)
{
	change->oids = *extension_get();
	change->rel = table_open(change->oids.plan, RowExclusiveLock);
	/* not before it is known that the caller may */
	if (plan_find_row(&change->oids, name, &change->row) != NULL && change->row.native)
		plan_require_owner(name, change->row.owner, change->row.owner_oid);
	(void) plan_lock_change(&change->oids, name, true);
	do
	{
		CHECK_FOR_INTERRUPTS();
		change->tuple = row_find(change->rel, change->oids.plan_pkey, name);
		if (change->tuple == NULL)
			plan_raise_unknown(name);
		plan_parse(change->tuple, RelationGetDescr(change->rel), &change->row);
		if (!change->row.native)
			plan_raise_held(name);
		plan_require_owner(name, change->row.owner, change->row.owner_oid);
	} while (!row_lock(change->rel, change->tuple));
}

/*
 * Replaces the marked columns of the row, and makes that visible to this transaction.
 * change->tuple and change->row are what it says then; what was taken from the ones before stays valid.
 */
void
plan_write(PlanChange *change, Datum *values, bool *nulls, bool *replace)
{
	row_update(change->rel, change->tuple, values, nulls, replace);
	CommandCounterIncrement();
	change->tuple = row_find_locked(change->rel, change->oids.plan_pkey, change->row.name);
	Assert(change->tuple != NULL);
	plan_parse(change->tuple, RelationGetDescr(change->rel), &change->row);
}

/* The row is as it is to be. It stays locked to the end of the transaction. */
void
plan_end_change(PlanChange *change)
{
	table_close(change->rel, NoLock);
}

/* ---------------------------------------------------------------- how a planner's latest run ended */

/* Whether a column of type text says this; NULL is null. */
static bool
says(const PlanChange *change, int attribute, const char *expected)
{
	bool		isnull;
	Datum		value = heap_getattr(change->tuple, attribute, RelationGetDescr(change->rel), &isnull);

	if (isnull || expected == NULL)
		return isnull && expected == NULL;
	return strcmp(TextDatumGetCString(value), expected) == 0;
}

/* Whether the latest replan did not end like this one. */
bool
plan_replan_is_news(const PlanChange *change, const char *outcome, const char *error)
{
	return !says(change, ATT_PLAN_REPLAN_OUTCOME, outcome) || !says(change, ATT_PLAN_REPLAN_ERROR, error);
}

/* A column of a row that is to be written */
static void
put(Datum *values, bool *nulls, bool *replace, int attribute, Datum value)
{
	values[attribute - 1] = value;
	nulls[attribute - 1] = false;
	replace[attribute - 1] = true;
}

/*
 * How a run of the planner_function ended, in the columns of a plan's row. False: that need not be
 * written, the row says so already.
 */
bool
plan_note_replan(const PlanChange *change, const char *outcome, const char *error, Datum *values, bool *nulls, bool *replace)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		isnull;
	Datum		before = heap_getattr(change->tuple, ATT_PLAN_REPLAN_AT, RelationGetDescr(change->rel), &isnull);

	if (!isnull && now - DatumGetTimestampTz(before) < NOTE_EVERY_US && now >= DatumGetTimestampTz(before) &&
		!plan_replan_is_news(change, outcome, error))
		return false;
	put(values, nulls, replace, ATT_PLAN_REPLAN_AT, TimestampTzGetDatum(now));
	put(values, nulls, replace, ATT_PLAN_REPLAN_OUTCOME, CStringGetTextDatum(outcome));
	put(values, nulls, replace, ATT_PLAN_REPLAN_ERROR, error == NULL ? (Datum) 0 : CStringGetTextDatum(error));
	nulls[ATT_PLAN_REPLAN_ERROR - 1] = error == NULL;
	return true;
}
