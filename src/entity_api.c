/*-------------------------------------------------------------------------
 *
 * entity_api.c
 *	  The SQL functions about entities: their arguments, and what they answer.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "debug.h"
#include "entity.h"
#include "entity_call.h"
#include "extension.h"
#include "result.h"
#include "row.h"
#include "task.h"

static char *
text_argument(FunctionCallInfo fcinfo, int n)
{
	return PG_ARGISNULL(n) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(n));
}

/* The type and the id that the first two arguments name; 22004, 22023. */
static void
name_arguments(FunctionCallInfo fcinfo, char **type, char **id)
{
	*type = text_argument(fcinfo, 0);
	*id = text_argument(fcinfo, 1);
	entity_check_name(*type, *id);
}

/* The durability that a call asks for; 22023. */
static void
durability_argument(FunctionCallInfo fcinfo, int n, EntityHow *how)
{
	char	   *given = text_argument(fcinfo, n);

	how->has_durability = given != NULL;
	if (given != NULL && !durability_parse(given, &how->durability))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for durability: \"%s\"", given),
				 errdetail("It must be \"strict\", \"interval\" or \"on_stop\".")));
}

/*
 * call(type, id, message, durability, request_id): runs the entity's handler on
 * a message. A call that asks for less than its type's durability gets that. See entity_call().
 */
SQL_FUNCTION(revenant_call)
{
	EntityMessage message = {.kind = "call",.attempt = 1};
	Request		request = {.verb = "call"};
	EntityHow	how = {0};
	char	   *type;
	char	   *id;
	Jsonb	   *reply;

	snapshot_require_writable("revenant.call()");
	name_arguments(fcinfo, &type, &id);
	if (!PG_ARGISNULL(2))
		message.message = PG_GETARG_JSONB_P(2);
	durability_argument(fcinfo, 3, &how);
	message.sender = GetUserNameFromId(GetUserId(), false);
	request.type = type;
	request.id = id;
	request.message = message.message;
	if (!PG_ARGISNULL(4))
	{
		request.request_id = PG_GETARG_UUID_P(4);
		how.request = &request;
	}
	reply = entity_call(type, id, &message, &how);
	if (reply == NULL)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(reply);
}

/*
 * read_entity(type, id): its latest snapshot, or null; dirty where memory is ahead
 * of the row. Runs nothing, waits for nobody, takes AccessShareLock on the table. Raises 42704, 42501.
 */
SQL_FUNCTION(revenant_read_entity)
{
	const EntityType *type;
	Snapshots	snapshots;
	SnapshotRow row;
	bool		dirty;
	char	   *name;
	char	   *id;

	name_arguments(fcinfo, &name, &id);
	type = entity_type_get(name);
	entity_open_table(type, AccessShareLock, &snapshots);
	dirty = entity_read(&snapshots, id, &row);
	snapshot_close(&snapshots);
	if (!row.exists)
		PG_RETURN_NULL();
	return snapshot_datum(fcinfo, id, &row, dirty);
}

/*
 * stop_entity(type, id, reason): writes what memory has, tells the terminator, and
 * unloads it at the commit. False: it was not loaded, as a strict entity never is. Takes what a call takes. Raises 42704, 42501,
 * 55006, RV003.
 */
SQL_FUNCTION(revenant_stop_entity)
{
	char	   *name;
	char	   *id;
	char	   *reason;

	snapshot_require_writable("revenant.stop_entity()");
	name_arguments(fcinfo, &name, &id);
	reason = text_argument(fcinfo, 2);
	if (reason == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("reason must not be null")));
	PG_RETURN_BOOL(entity_stop(entity_type_get(name), id, reason, false));
}

/*
 * delete_entity(type, id): leaves a tombstone, so that versions go on if it is ever made
 * again. False: there was none. Takes what a call takes. Raises 42704, 42501, 55006, RV003.
 */
SQL_FUNCTION(revenant_delete_entity)
{
	EntityAccess entity;
	char	   *type;
	char	   *id;
	bool		existed;

	snapshot_require_writable("revenant.delete_entity()");
	name_arguments(fcinfo, &type, &id);
	entity_refuse_reentry(type, id);
	entity_open(&entity, entity_type_get(type), id, false);
	existed = entity.row.exists && !entity.row.deleted;
	if (existed)
		(void) entity_write(&entity, NULL, true);
	entity_close(&entity);
	PG_RETURN_BOOL(existed);
}

/* current_message(): how the message came that the handler of this process works on; nulls outside of one. */
SQL_FUNCTION(revenant_current_message)
{
	const EntityMessage *message = entity_current_message();
	Datum		values[4] = {0};
	bool		nulls[4] = {true, true, true, true};

	if (message != NULL)
	{
		values[0] = CStringGetTextDatum(message->kind);
		values[1] = Int64GetDatum(message->message_id);
		values[2] = Int32GetDatum(message->attempt);
		values[3] = CStringGetTextDatum(message->sender);
		memset(nulls, false, sizeof(nulls));
		nulls[1] = message->message_id == 0;
	}
	return result_row(fcinfo, values, nulls);
}

/* ---------------------------------------------------------------- upgrade_all */

/*
 * The ids of up to `batch` snapshots that are behind. Those of strict entities have
 * their rows locked, and what somebody else has is left out unless it waits; others have locks that come before that of their row.
 */
static List *
find_old(const EntityType *type, int batch, bool wait)
{
	MemoryContext context = CurrentMemoryContext;
	char	   *table = quote_qualified_identifier(get_namespace_name(get_rel_namespace(type->snapshots)), get_rel_name(type->snapshots));
	const char *lock = type->durability != DURABILITY_STRICT ? "" :
		wait ? " FOR NO KEY UPDATE" : " FOR NO KEY UPDATE SKIP LOCKED";
	List	   *ids = NIL;

	SPI_connect();
	(void) SPI_execute(psprintf("SELECT s.id FROM %s AS s WHERE s.vsn OPERATOR(pg_catalog.<) %d AND NOT s.deleted LIMIT %d%s",
								table, type->vsn, batch, lock), false, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		char	   *id = SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1);
		MemoryContext old = MemoryContextSwitchTo(context);

		ids = lappend(ids, pstrdup(id));
		MemoryContextSwitchTo(old);
	}
	SPI_finish();
	return ids;
}

/* Brings one to the type's vsn, in its row. False: somebody else has done so. */
static bool
upgrade_one(const EntityType *type, const char *id)
{
	EntityAccess entity;
	bool		upgraded = false;

	entity_open(&entity, type, id, false);
	if (entity.row.exists && !entity.row.deleted && entity.row.vsn < type->vsn)
	{
		(void) entity_write(&entity, entity_upgrade_state(type, id, entity.row.vsn, entity.row.state), false);
		upgraded = true;
	}
	else
		/* memory may be ahead of a row that is behind */
		upgraded = entity_flush(&entity, false);
	entity_close(&entity);
	return upgraded;
}

/*
 * upgrade_all(type, batch): brings up to `batch` snapshots to the type's vsn, in
 * this transaction; returns how many. To be called until that is 0. What calls have
 * locked is left for the next time, unless there is nothing else. Raises 42704, RV006.
 */
SQL_FUNCTION(revenant_upgrade_all)
{
	char	   *name = text_argument(fcinfo, 0);
	const EntityType *type;
	Snapshots	snapshots;
	MemoryContext outer = CurrentMemoryContext;
	MemoryContext context;		/* of one upgrade: there may be very many */
	List	   *ids;
	ListCell   *cell;
	int64		upgraded = 0;
	int			batch;

	snapshot_require_writable("revenant.upgrade_all()");
	entity_check_name(name, "-");
	if (PG_ARGISNULL(1) || PG_GETARG_INT32(1) < 1)
		ereport(ERROR,
				(errcode(PG_ARGISNULL(1) ? ERRCODE_NULL_VALUE_NOT_ALLOWED : ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("batch must be positive")));
	type = entity_type_get(name);
	batch = PG_GETARG_INT32(1);
	if (type->durability != DURABILITY_STRICT)
		batch = Min(batch, ENTITY_USES_MAX);
	entity_open_table(type, RowExclusiveLock, &snapshots);
	ids = find_old(type, batch, false);
	if (ids == NIL && type->durability == DURABILITY_STRICT)
		ids = find_old(type, 1, true);
	context = AllocSetContextCreate(CurrentMemoryContext, "revenant upgrade", ALLOCSET_DEFAULT_SIZES);
	foreach(cell, ids)
	{
		CHECK_FOR_INTERRUPTS();
		MemoryContextSwitchTo(context);
		if (upgrade_one(type, lfirst(cell)))
			upgraded++;
		MemoryContextSwitchTo(outer);
		MemoryContextReset(context);
	}
	MemoryContextDelete(context);
	snapshot_close(&snapshots);
	PG_RETURN_INT64(upgraded);
}
