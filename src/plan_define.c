/*-------------------------------------------------------------------------
 *
 * plan_define.c
 *	  What a plan may be: create, alter, drop, reset, purge, adopt.
 *
 * create_plan and alter_plan fill in a draft of the row and mark what is new in it;
 * what is new is checked, together with what it has to fit. So what can be created can be
 * altered to, and nothing else.
 *
 * {create, alter, drop, reset, purge, adopt} × {commit, abort}: each writes rows in the
 * caller's transaction and notes an operation (plan_xact.c), which says the same to
 * shared memory at the commit. A plan is brought into memory before its first
 * row is written, with its row locked: so memory counts what was there before, and the
 * operation the rest.
 *
 * NOTES
 *	  All but create_plan lock the plan's row first, as publish() and lead_plan() do, and splits and the
 *	  task of the planner after it. Workers never lock the plan's row. So who deletes splits
 *	  waits for the workers that have one of them, and no new ones appear.
 *
 *	  Two sessions that create the same plan: the second one waits for the
 *	  lock of plan_lock() until the first one has ended, and finds its row then.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/regproc.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "compat.h"
#include "extension.h"
#include "fence.h"
#include "field.h"
#include "lease_api.h"
#include "plan.h"
#include "plan_xact.h"
#include "row.h"
#include "split_row.h"
#include "task.h"
#include "task_change.h"

#define PLAN_NUMBER_MAX 1000000 /* of max_attempts, max_in_flight */
#define REPLAN_EVERY_DEFAULT_US (60 * US_PER_S)	/* as sql/parts/plan.sql has it */
#define PURGE_CHUNK 10000		/* splits that are deleted at once */

/* What of a plan is its owner's to say: the arguments of create_plan behind the name, in their order. `anew`: another planner, or another time. */
static const Field fields[] = {
	{"fingerprint", ATT_PLAN_FINGERPRINT, FIELD_TEXT, false},
	{"planner_function", ATT_PLAN_PLANNER_FUNCTION, FIELD_TEXT, true},
	{"replan_every", ATT_PLAN_REPLAN_EVERY, FIELD_INTERVAL, true},
	{"lease_ttl", ATT_PLAN_LEASE_TTL, FIELD_INTERVAL, false},
	{"max_attempts", ATT_PLAN_MAX_ATTEMPTS, FIELD_INT, false},
	{"max_in_flight", ATT_PLAN_MAX_IN_FLIGHT, FIELD_INT, false},
	{"rebalance_delay", ATT_PLAN_REBALANCE_DELAY, FIELD_INTERVAL, false},
	{"drain_deadline", ATT_PLAN_DRAIN_DEADLINE, FIELD_INTERVAL, false},
	{"metadata", ATT_PLAN_METADATA, FIELD_JSON, false},
};

static const FieldSet plan_fields = {
	.noun = "a plan",
	.key = "plan",
	.example = "{\"max_attempts\": 8, \"planner_function\": null}",
	.fields = fields,
	.count = lengthof(fields)
};

/* What a row of revenant.plan is to say */
typedef struct PlanDraft
{
	const char *name;
	const char *owner;
	Oid			owner_oid;
	FieldDraft	row;
} PlanDraft;

StaticAssertDecl(PLAN_COLUMNS <= FIELD_COLUMNS_MAX, "a draft has no place for a plan");

/* ---------------------------------------------------------------- the draft */

/* The row was made here. */
static void
set_identity(PlanDraft *draft, Oid owner)
{
	field_set(&draft->row, ATT_PLAN_OWNER_OID, Int64GetDatum((int64) owner));
	field_set(&draft->row, ATT_PLAN_SYSTEM_IDENTIFIER, Int64GetDatum(task_identifier()));
	field_set(&draft->row, ATT_PLAN_DATABASE_OID, Int64GetDatum((int64) MyDatabaseId));
}

/* ---------------------------------------------------------------- checks */

/* A duration in microseconds, from `lowest_us` to ten years; 22004, 22023. */
static int64
check_duration(const PlanDraft *draft, int attribute, const char *what, int64 lowest_us)
{
	int64		us;

	field_require_value(&plan_fields, &draft->row, attribute, what);
	us = task_duration_us(DatumGetIntervalP(draft->row.values[attribute - 1]));
	if (us < lowest_us)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is out of range", what),
				 lowest_us == 0 ?
				 errdetail("It must be 0 or positive, and no longer than ten years.") :
				 errdetail("It must be at least %d ms, and no longer than ten years.", (int) (lowest_us / US_PER_MS))));
	return us;
}

/* A number from 1 on; 22004, 22023. */
static void
check_number(const PlanDraft *draft, int attribute, const char *what)
{
	int			number;

	if (!field_is_changed(&draft->row, attribute))
		return;
	field_require_value(&plan_fields, &draft->row, attribute, what);
	number = DatumGetInt32(draft->row.values[attribute - 1]);
	if (number < 1 || number > PLAN_NUMBER_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is out of range", what),
				 errdetail("It is from 1 to %d.", PLAN_NUMBER_MAX)));
}

/* Whether it matters how often a planner within the database runs: there is one, or somebody has said how often. */
static bool
replans(const PlanDraft *draft)
{
	return !field_is_null(&draft->row, ATT_PLAN_PLANNER_FUNCTION) ||
		task_duration_us(DatumGetIntervalP(draft->row.values[ATT_PLAN_REPLAN_EVERY - 1])) != REPLAN_EVERY_DEFAULT_US;
}

/* The durations, and that a planner is not called again before its lease could lapse; 22004, 22023. */
static void
check_durations(const PlanDraft *draft)
{
	if (field_is_changed(&draft->row, ATT_PLAN_LEASE_TTL) || field_is_changed(&draft->row, ATT_PLAN_REPLAN_EVERY) || field_is_changed(&draft->row, ATT_PLAN_PLANNER_FUNCTION))
	{
		int64		ttl_us = check_duration(draft, ATT_PLAN_LEASE_TTL, "lease_ttl", PLAN_TTL_MIN_US);

		field_require_value(&plan_fields, &draft->row, ATT_PLAN_REPLAN_EVERY, "replan_every");
		if (task_duration_us(DatumGetIntervalP(draft->row.values[ATT_PLAN_REPLAN_EVERY - 1])) < ttl_us && replans(draft))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("replan_every is out of range"),
					 errdetail("It must be at least lease_ttl, which is %s, and no longer than ten years.",
							   DatumGetCString(DirectFunctionCall1(interval_out, draft->row.values[ATT_PLAN_LEASE_TTL - 1])))));
	}
	if (field_is_changed(&draft->row, ATT_PLAN_REBALANCE_DELAY))
		(void) check_duration(draft, ATT_PLAN_REBALANCE_DELAY, "rebalance_delay", 0);
	if (field_is_changed(&draft->row, ATT_PLAN_DRAIN_DEADLINE))
		(void) check_duration(draft, ATT_PLAN_DRAIN_DEADLINE, "drain_deadline", 0);
}

/*
 * The function that somebody means by a name, found as a call of it would be: how
 * it is written down, qualified; palloc'd. Raises 42883, 42P13, 42501.
 */
static char *
resolve_planner(const char *given)
{
	static const char *const signature = "(cursor jsonb, generation bigint) RETURNS revenant.split_plan";
	Oid			function = plan_function_find(given);

	if (!OidIsValid(function))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("planner_function \"%s\" does not exist", given),
				 errdetail("It is the name of a function %s.", signature)));
	if (!plan_function_is_planner(extension_get(), function))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
				 errmsg("function \"%s\" cannot be a planner_function", given),
				 errdetail("It must be a function %s.", signature)));
	if (compat_function_aclcheck(function, GetUserId()) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_FUNCTION, get_func_name(function));
	return quote_qualified_identifier(get_namespace_name(get_func_namespace(function)), get_func_name(function));
}

/*
 * That a task can run code as the owner, and that the caller is one to say which; 0A000, 42501.
 * To be a member is not enough for that: see check_role() of task_define.c.
 */
static void
check_planner_role(const PlanDraft *draft)
{
	const char *problem = task_role_problem(draft->owner, draft->owner_oid);

	if (!compat_role_can_become(GetUserId(), draft->owner_oid))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to set planner_function of plan \"%s\"", draft->name),
				 errdetail("It runs as role \"%s\", which role \"%s\" cannot become.",
						   draft->owner, GetUserNameFromId(GetUserId(), false))));
	if (problem != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a planner_function of plan \"%s\" cannot be run: %s", draft->name, problem),
				 COMPAT_NOLOGIN_WORKERS || get_role_oid(draft->owner, true) != draft->owner_oid ? 0 :
				 errhint("ALTER ROLE %s LOGIN (it needs no password for this); from PostgreSQL 17 on any role will do.",
						 quote_identifier(draft->owner))));
}

/* A function found now, and written down by its qualified name. */
static void
check_planner(PlanDraft *draft)
{
	if (!field_is_changed(&draft->row, ATT_PLAN_PLANNER_FUNCTION) || field_is_null(&draft->row, ATT_PLAN_PLANNER_FUNCTION))
		return;
	field_set(&draft->row, ATT_PLAN_PLANNER_FUNCTION, CStringGetTextDatum(resolve_planner(field_text(&draft->row, ATT_PLAN_PLANNER_FUNCTION))));
	check_planner_role(draft);
}

/* Checks what is new in a draft. Raises 0A000, 22004, 22023, 42501, 42883, 42P13. */
static void
check_draft(PlanDraft *draft)
{
	check_number(draft, ATT_PLAN_MAX_ATTEMPTS, "max_attempts");
	check_number(draft, ATT_PLAN_MAX_IN_FLIGHT, "max_in_flight");
	check_durations(draft);
	check_planner(draft);
}

/* ---------------------------------------------------------------- create_plan */

/* Raises 42710. */
compat_noreturn static void
complain_of_duplicate(const char *name, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_DUPLICATE_OBJECT),
			 errmsg("plan \"%s\" already exists", name),
			 detail != NULL ? errdetail("%s", detail) : 0,
			 errhint("alter_plan() changes it, drop_plan() removes it.")));
}

/*
 * Whether the plan is there already, as it is to be. Raises 42710 where it is another one,
 * RV004 where it has another fingerprint, which only a member of its owner's role is told; 55000.
 */
static bool
exists_already(Relation rel, const Extension *extension, const PlanDraft *draft)
{
	HeapTuple	tuple = row_find(rel, extension->plan_pkey, draft->name);
	PlanRow		row;
	Datum		values[PLAN_COLUMNS];
	bool		nulls[PLAN_COLUMNS];
	char	   *differing;

	if (tuple == NULL)
		return false;
	plan_parse(tuple, RelationGetDescr(rel), &row);
	if (!row.native)
		plan_raise_held(draft->name);
	if (plan_is_owned_by_caller(row.owner_oid))
		plan_require_fingerprint(draft->name, row.fingerprint, field_text(&draft->row, ATT_PLAN_FINGERPRINT));
	if (row.owner_oid != draft->owner_oid || strcmp(row.owner, draft->owner) != 0)
		complain_of_duplicate(draft->name, psprintf("It belongs to role \"%s\".", row.owner));
	heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
	differing = field_differing(&plan_fields, &draft->row, values, nulls);
	if (differing != NULL)
		complain_of_duplicate(draft->name, psprintf("It has another %s.", differing));
	return true;
}

/* What nobody says of a plan that is new. */
static void
fill_in(PlanDraft *draft)
{
	static const int none_yet[] = {
		ATT_PLAN_GENERATION, ATT_PLAN_LEADER, ATT_PLAN_CURSOR, ATT_PLAN_VERDICT, ATT_PLAN_VERDICT_SEQ, ATT_PLAN_REPLAN_AT,
		ATT_PLAN_REPLAN_OUTCOME, ATT_PLAN_REPLAN_ERROR
	};
	Datum		now = TimestampTzGetDatum(GetCurrentTimestamp());

	for (int i = 0; i < (int) lengthof(none_yet); i++)
		field_clear(&draft->row, none_yet[i]);
	field_set(&draft->row, ATT_PLAN_NAME, CStringGetTextDatum(draft->name));
	field_set(&draft->row, ATT_PLAN_ID, Int64GetDatum(fence_next_token("revenant.create_plan()")));
	field_set(&draft->row, ATT_PLAN_OWNER, CStringGetTextDatum(draft->owner));
	field_set(&draft->row, ATT_PLAN_CREATED_AT, now);
	field_set(&draft->row, ATT_PLAN_UPDATED_AT, now);
	field_set(&draft->row, ATT_PLAN_FINAL, BoolGetDatum(false));
	field_set(&draft->row, ATT_PLAN_PLANNED, Int64GetDatum(0));
	field_set(&draft->row, ATT_PLAN_LAST_NUMBER, Int64GetDatum(0));
	field_set(&draft->row, ATT_PLAN_REVISION, Int64GetDatum(0));
	set_identity(draft, draft->owner_oid);
}

/* Writes the row, which is not there, and the task of its planner. */
static void
create(Relation rel, const Extension *extension, PlanDraft *draft)
{
	PlanRow		row;
	PlanOp	   *op;

	fill_in(draft);
	/* a name that appears in spite of the lock is not by our functions */
	if (!row_insert_first(rel, draft->row.values, draft->row.nulls))
		complain_of_duplicate(draft->name, NULL);
	CommandCounterIncrement();
	plan_parse(row_find_locked(rel, extension->plan_pkey, draft->name), RelationGetDescr(rel), &row);
	if (row.planner_function != NULL)
		plan_task_write(extension, &row, true);
	op = plan_op_add(PLAN_OP_CREATE, plan_use_new(&row));
	plan_op_keep_row(op, &row);
}

/*
 * create_plan(...): see sql/parts/plan.sql for the arguments. The caller owns it. The same
 * again is a no-op. Waits for who creates a plan of this name. Raises 0A000, 22004, 22023, 25006, 42501,
 * 42710, 42883, 42P13, 53200, 55000, RV004.
 */
SQL_FUNCTION(revenant_create_plan)
{
	PlanDraft	draft = {0};
	Extension	oids;
	Relation	rel;

	task_require_writable("create_plan");
	oids = *extension_get();
	draft.name = plan_name_arg(fcinfo, 0);
	draft.owner_oid = GetUserId();
	draft.owner = GetUserNameFromId(draft.owner_oid, false);
	field_read_arguments(&plan_fields, plan_fields.count, fcinfo, 1, &draft.row);
	check_draft(&draft);

	rel = table_open(oids.plan, RowExclusiveLock);
	if (!exists_already(rel, &oids, &draft))
	{
		plan_lock(draft.name);
		if (!exists_already(rel, &oids, &draft))
			create(rel, &oids, &draft);
	}
	table_close(rel, NoLock);
	PG_RETURN_VOID();
}

/* ---------------------------------------------------------------- alter_plan */

/* Writes what is new in a draft, and has the planner's task follow. */
static void
alter(PlanChange *change, PlanDraft *draft)
{
	PlanUse    *use = plan_use(draft->name);
	PlanOp	   *op;

	plan_write(change, draft->row.values, draft->row.nulls, draft->row.changed);
	if (change->row.planner_function != NULL)
		plan_task_write(&change->oids, &change->row, field_any_changed(&plan_fields, &draft->row, true));
	else if (field_is_changed(&draft->row, ATT_PLAN_PLANNER_FUNCTION))
		plan_task_remove(&change->oids, draft->name);
	op = plan_op_add(PLAN_OP_ALTER, use);
	plan_op_keep_row(op, &change->row);
}

/*
 * alter_plan(plan, changes): changes what the JSON object says, null sets null. What is
 * under way goes on; ttls and delays count from the next claim, join or decision on. Raises what create_plan
 * does but 42710 and RV004, and 22003, 22007 for numbers and intervals, 42704; 55006 where a planner does not end.
 */
SQL_FUNCTION(revenant_alter_plan)
{
	PlanChange	change;
	PlanDraft	draft = {0};
	Datum		values[PLAN_COLUMNS];
	bool		nulls[PLAN_COLUMNS];

	task_require_writable("alter_plan");
	(void) extension_get();
	draft.name = plan_name_arg(fcinfo, 0);
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("changes of a plan must not be null")));
	field_read_changes(&plan_fields, PG_GETARG_JSONB_P(1), &draft.row);

	plan_begin_change(draft.name, &change);
	draft.owner = change.row.owner;
	draft.owner_oid = change.row.owner_oid;
	heap_deform_tuple(change.tuple, RelationGetDescr(change.rel), values, nulls);
	field_complete(&plan_fields, &draft.row, values, nulls);
	check_draft(&draft);
	/* what was found by a function's name may be the one that it has */
	field_complete(&plan_fields, &draft.row, values, nulls);
	if (field_any_changed(&plan_fields, &draft.row, false))
		alter(&change, &draft);
	plan_end_change(&change);
	PG_RETURN_VOID();
}

/* ---------------------------------------------------------------- drop_plan, reset_plan */

/* Deletes all rows of a plan in a table whose key begins with the plan's. Waits for who has one of them. */
static void
delete_rows(Oid table, Oid index, int64 plan_id)
{
	Relation	rel = table_open(table, RowExclusiveLock);

	(void) row_delete_range(rel, index, plan_id);
	table_close(rel, NoLock);
}

/* Deletes all splits of a plan. Waits for whoever has one of them, or has fenced one. */
static void
delete_splits(const PlanChange *change)
{
	split_lock_fenced(change->row.plan_id, ExclusiveLock);
	delete_rows(change->oids.split_state, change->oids.split_state_pkey, change->row.plan_id);
	delete_rows(change->oids.split, change->oids.split_pkey, change->row.plan_id);
}

/*
 * As plan_begin_change(); whoever leads it leads no more. First its lease, then the row: as who publishes.
 */
static void
begin_end(const char *name, const char *reason, PlanChange *change)
{
	PlanRow		row;

	if (plan_find_row(extension_get(), name, &row) != NULL && row.native && plan_is_owned_by_caller(row.owner_oid))
		lease_end_ttl(plan_lease_name(name), reason);
	plan_begin_change(name, change);
}

/*
 * drop_plan(plan): with its splits, its members, and the task of its planner. Waits for the
 * transactions that have a split. Raises 22004, 22023, 25006, 42501, 42704, 55000; 55006 where its planner does not end.
 */
SQL_FUNCTION(revenant_drop_plan)
{
	PlanChange	change;
	PlanUse    *use;
	char	   *name;

	task_require_writable("drop_plan");
	(void) extension_get();
	name = plan_name_arg(fcinfo, 0);
	begin_end(name, "plan dropped", &change);
	/* who makes another one of this name comes after us */
	plan_lock(name);
	use = plan_use(name);
	if (!row_delete(change.rel, change.tuple))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("plan \"%s\" was changed by somebody else", name)));
	delete_splits(&change);
	delete_rows(change.oids.member, change.oids.member_pkey, change.row.plan_id);
	CommandCounterIncrement();
	if (change.row.planner_function != NULL)
		plan_task_remove(&change.oids, name);
	(void) plan_op_add(PLAN_OP_DROP, use);
	plan_end_change(&change);
	PG_RETURN_VOID();
}

/*
 * reset_plan(plan): back to its start: no split, no cursor, open; a generation that led leads no more. Its members stay, and
 * numbers go on where they are: a split that is published again is another one. Waits for the
 * transactions that have a split. Raises 22004, 22023, 25006, 42501, 42704, 55000.
 */
SQL_FUNCTION(revenant_reset_plan)
{
	static const int forgotten[] = {ATT_PLAN_CURSOR, ATT_PLAN_GENERATION, ATT_PLAN_LEADER, ATT_PLAN_VERDICT, ATT_PLAN_VERDICT_SEQ};
	PlanChange	change;
	PlanDraft	draft = {0};
	PlanUse    *use;
	PlanOp	   *op;

	task_require_writable("reset_plan");
	(void) extension_get();
	draft.name = plan_name_arg(fcinfo, 0);
	begin_end(draft.name, "plan reset", &change);
	use = plan_use(draft.name);
	delete_splits(&change);
	for (int i = 0; i < (int) lengthof(forgotten); i++)
		field_clear(&draft.row, forgotten[i]);
	field_set(&draft.row, ATT_PLAN_FINAL, BoolGetDatum(false));
	field_set(&draft.row, ATT_PLAN_PLANNED, Int64GetDatum(0));
	field_set(&draft.row, ATT_PLAN_REVISION, Int64GetDatum(change.row.revision + 1));
	field_set(&draft.row, ATT_PLAN_UPDATED_AT, TimestampTzGetDatum(GetCurrentTimestamp()));
	plan_write(&change, draft.row.values, draft.row.nulls, draft.row.changed);
	if (change.row.planner_function != NULL)
	{
		plan_task_rest(&change.oids, draft.name, false);
		plan_task_run_now(&change.oids, draft.name);
	}
	op = plan_op_add(PLAN_OP_RESET, use);
	plan_op_keep_row(op, &change.row);
	plan_end_change(&change);
	PG_RETURN_VOID();
}

/* ---------------------------------------------------------------- purge_plan */

/* Splits that are done never change: one look is enough, and finds them in the order of their numbers. */
typedef struct Purge
{
	int64		plan_id;
	TimestampTz finished_before;
	Snapshot	snapshot;
	Relation	spec;
	Relation	spec_index;
	Relation	state;
	Relation	state_index;
	int64		next;			/* the number from which on nobody has looked */
	int64	   *numbers;		/* of this chunk, ascending */
	int			count;
} Purge;

/* Whether a row of revenant.split_state is to go, and which one it is. */
static bool
is_purged(const Purge *purge, HeapTuple tuple, int64 *number)
{
	TupleDesc	desc = RelationGetDescr(purge->state);
	bool		isnull;

	*number = DatumGetInt64(heap_getattr(tuple, ATT_STEP_NUMBER, desc, &isnull));
	return DatumGetInt16(heap_getattr(tuple, ATT_STEP_STATE, desc, &isnull)) == SPLIT_DONE &&
		DatumGetTimestampTz(heap_getattr(tuple, ATT_STEP_UPDATED_AT, desc, &isnull)) < purge->finished_before;
}

/* Deletes the next rows of revenant.split_state that are to go, a chunk of them at the most, and notes their numbers. */
static void
purge_states(Purge *purge)
{
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	purge->count = 0;
	ScanKeyInit(&keys[0], ATT_STEP_PLAN_ID, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(purge->plan_id));
	ScanKeyInit(&keys[1], ATT_STEP_NUMBER, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(purge->next));
	scan = systable_beginscan_ordered(purge->state, purge->state_index, purge->snapshot, lengthof(keys), keys);
	while (purge->count < PURGE_CHUNK && (tuple = systable_getnext_ordered(scan, ForwardScanDirection)) != NULL)
	{
		int64		number;

		CHECK_FOR_INTERRUPTS();
		if (!is_purged(purge, tuple, &number) || !row_delete(purge->state, tuple))
			continue;
		purge->numbers[purge->count++] = number;
		purge->next = number + 1;
	}
	systable_endscan_ordered(scan);
}

/* Deletes the rows of revenant.split that belong to these. */
static void
purge_specs(const Purge *purge)
{
	ScanKeyData keys[3];
	SysScanDesc scan;
	HeapTuple	tuple;
	int			at = 0;

	if (purge->count == 0)
		return;
	ScanKeyInit(&keys[0], ATT_SPLIT_PLAN_ID, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(purge->plan_id));
	ScanKeyInit(&keys[1], ATT_SPLIT_NUMBER, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(purge->numbers[0]));
	ScanKeyInit(&keys[2], ATT_SPLIT_NUMBER, BTLessEqualStrategyNumber, F_INT8LE, Int64GetDatum(purge->numbers[purge->count - 1]));
	scan = systable_beginscan_ordered(purge->spec, purge->spec_index, purge->snapshot, lengthof(keys), keys);
	while ((tuple = systable_getnext_ordered(scan, ForwardScanDirection)) != NULL)
	{
		bool		isnull;
		int64		number = DatumGetInt64(heap_getattr(tuple, ATT_SPLIT_NUMBER, RelationGetDescr(purge->spec), &isnull));

		CHECK_FOR_INTERRUPTS();
		while (at < purge->count && purge->numbers[at] < number)
			at++;
		if (at < purge->count && purge->numbers[at] == number)
			(void) row_delete(purge->spec, tuple);
	}
	systable_endscan_ordered(scan);
}

/* Deletes what was done before a time. Returns how many. The caller has the plan's row. */
static int64
purge_splits(const PlanChange *change, TimestampTz finished_before)
{
	Snapshot	latest = IsolationIsSerializable() ? NULL : RegisterSnapshot(GetLatestSnapshot());
	Purge		purge = {
		.plan_id = change->row.plan_id,
		.finished_before = finished_before,
		.snapshot = latest != NULL ? latest : SnapshotSelf,
		.numbers = palloc(PURGE_CHUNK * sizeof(int64))
	};
	int64		purged = 0;

	purge.spec = table_open(change->oids.split, RowExclusiveLock);
	purge.spec_index = index_open(change->oids.split_pkey, RowExclusiveLock);
	purge.state = table_open(change->oids.split_state, RowExclusiveLock);
	purge.state_index = index_open(change->oids.split_state_pkey, RowExclusiveLock);
	do
	{
		purge_states(&purge);
		purge_specs(&purge);
		purged += purge.count;
	} while (purge.count == PURGE_CHUNK);
	index_close(purge.state_index, NoLock);
	table_close(purge.state, NoLock);
	index_close(purge.spec_index, NoLock);
	table_close(purge.spec, NoLock);
	if (latest != NULL)
		UnregisterSnapshot(latest);
	pfree(purge.numbers);
	CommandCounterIncrement();
	return purged;
}

/*
 * purge_plan(plan, finished_before): deletes the splits that were done before this, and
 * returns how many. Nobody can publish or lead meanwhile. Raises 22004, 22023, 25006, 42501, 42704, 55000.
 */
SQL_FUNCTION(revenant_purge_plan)
{
	PlanChange	change;
	PlanDraft	draft = {0};
	PlanUse    *use;
	PlanOp	   *op;
	int64		purged;

	task_require_writable("purge_plan");
	(void) extension_get();
	draft.name = plan_name_arg(fcinfo, 0);
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("finished_before must not be null")));
	plan_begin_change(draft.name, &change);
	use = plan_use(draft.name);
	purged = purge_splits(&change, PG_GETARG_TIMESTAMPTZ(1));
	if (purged > 0)
	{
		field_set(&draft.row, ATT_PLAN_PLANNED, Int64GetDatum(change.row.planned - purged));
		plan_write(&change, draft.row.values, draft.row.nulls, draft.row.changed);
		op = plan_op_add(PLAN_OP_PURGE, use);
		op->number = purged;
	}
	plan_end_change(&change);
	PG_RETURN_INT64(purged);
}

/* ---------------------------------------------------------------- adopt */

/* Names of the rows that are not this database's. */
static void
collect_held(Relation rel, HeapTuple tuple, void *arg)
{
	List	  **names = arg;
	PlanRow		row;

	plan_parse(tuple, RelationGetDescr(rel), &row);
	if (!row.native)
		*names = lappend(*names, row.name);
}

/* Who owned a split elsewhere owns it no more. Nobody else writes to a plan that is held. */
static void
free_splits(const Extension *extension, int64 plan_id)
{
	Datum		values[STEP_COLUMNS] = {0};
	bool		nulls[STEP_COLUMNS] = {0};
	bool		replace[STEP_COLUMNS] = {0};
	Relation	rel = table_open(extension->split_state, RowExclusiveLock);
	Snapshot	latest = IsolationIsSerializable() ? NULL : RegisterSnapshot(GetLatestSnapshot());
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "revenant adopt", ALLOCSET_SMALL_SIZES);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	values[ATT_STEP_STATE - 1] = Int16GetDatum(SPLIT_RUNNABLE);
	replace[ATT_STEP_STATE - 1] = true;
	values[ATT_STEP_MEMBER - 1] = Int64GetDatum(0);
	replace[ATT_STEP_MEMBER - 1] = true;
	ScanKeyInit(&key, ATT_STEP_PLAN_ID, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(plan_id));
	scan = systable_beginscan(rel, extension->split_state_pkey, true, latest != NULL ? latest : SnapshotSelf, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		MemoryContext old;
		bool		isnull;

		CHECK_FOR_INTERRUPTS();
		if (DatumGetInt16(heap_getattr(tuple, ATT_STEP_STATE, RelationGetDescr(rel), &isnull)) != SPLIT_OWNED)
			continue;
		old = MemoryContextSwitchTo(context);
		row_update(rel, tuple, values, nulls, replace);
		MemoryContextSwitchTo(old);
		MemoryContextReset(context);
	}
	systable_endscan(scan);
	if (latest != NULL)
		UnregisterSnapshot(latest);
	MemoryContextDelete(context);
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

/* The row of a plan that is held, locked to the end of this transaction; false: there is none any more. */
static bool
lock_held(PlanChange *change, const char *name)
{
	do
	{
		CHECK_FOR_INTERRUPTS();
		change->tuple = row_find(change->rel, change->oids.plan_pkey, name);
		if (change->tuple == NULL)
			return false;
		plan_parse(change->tuple, RelationGetDescr(change->rel), &change->row);
		if (change->row.native)
			return false;
	} while (!row_lock(change->rel, change->tuple));
	return true;
}

/* Takes over a plan. False: it stays held, for its owner does not exist here, or there is nothing to take over. Raises 42501. */
static bool
adopt_plan(PlanChange *change, const char *name)
{
	PlanDraft	draft = {.name = name};
	PlanUse    *use;
	Oid			owner;

	if (!lock_held(change, name))
		return false;
	owner = get_role_oid(change->row.owner, true);
	if (!OidIsValid(owner))
		return false;
	if (!compat_role_can_become(GetUserId(), owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for plan \"%s\"", name),
				 errdetail("It belongs to role \"%s\", and role \"%s\" is not a member of that.",
						   change->row.owner, GetUserNameFromId(GetUserId(), false))));
	(void) plan_lock_change(&change->oids, name, true);
	use = plan_use(name);
	set_identity(&draft, owner);
	plan_write(change, draft.row.values, draft.row.nulls, draft.row.changed);
	free_splits(&change->oids, change->row.plan_id);
	/* a copy of the whole database has members, too */
	delete_rows(change->oids.member, change->oids.member_pkey, change->row.plan_id);
	/* it may have run where this database was copied from: its schedule would begin now */
	if (change->row.planner_function != NULL && !change->row.final)
		plan_task_run_now(&change->oids, name);
	(void) plan_op_add(PLAN_OP_ADOPT, use);
	return true;
}

/*
 * adopt()'s: makes this database's own the plans that were copied into it; what was worked
 * on elsewhere can be claimed here. Returns how many. A role is looked up by its name; a plan
 * whose owner does not exist here stays held. The task of a planner is a task, and adopted as one. Raises 42501 if a
 * plan belongs to a role that the caller cannot become; XX001.
 */
int64
plan_adopt(const Extension *extension)
{
	PlanChange	change = {.oids = *extension};
	List	   *names = NIL;
	ListCell   *cell;
	int64		adopted = 0;

	if (!OidIsValid(extension->plan_pkey))
		return 0;
	change.rel = table_open(extension->plan, RowExclusiveLock);
	row_visit(change.rel, collect_held, &names);
	foreach(cell, names)
	{
		if (adopt_plan(&change, lfirst(cell)))
			adopted++;
	}
	table_close(change.rel, NoLock);
	return adopted;
}
