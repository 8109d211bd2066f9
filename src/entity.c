/*-------------------------------------------------------------------------
 *
 * entity.c
 *	  A call of an entity: one message, its handler, the new state.
 *
 * Everything happens in the caller's transaction and as the caller:
 *
 *		find the type			and check that its handler may be executed
 *		lock the entity			its row; what has no row yet, by a lock of ours
 *		bring its state			to the type's vsn, step by step; or the first state
 *		run the handler
 *		write					the next version, if the state is another one
 *
 * So a call is over when the transaction is: committed together with all that
 * the handler wrote, or gone with it.
 *
 * NOTES
 *	  The first calls of an entity exclude each other by a lock of ours (E), since
 *	  there is no row to lock. It is given back as soon as the row is written, where
 *	  those who come then can see that row before it is committed; a transaction may create
 *	  any number of entities. With statements (snapshot_row.c) they cannot, and E
 *	  stays to the end of the transaction.
 *
 *	  The idea: a durable GenServer of OTP's, whose process is the row.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_proc.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/lock.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "compat.h"
#include "debug.h"
#include "digest.h"
#include "entity.h"
#include "entity_call.h"
#include "entity_type.h"
#include "error.h"
#include "extension.h"
#include "locktag.h"
#include "receipt.h"
#include "request.h"
#include "result.h"
#include "snapshot.h"
#include "stat.h"

/* How many entities a transaction creates at most where each keeps its lock */
#define CREATIONS_MAX 1000

/* The functions of types that run in this process, the innermost first */
typedef struct Running
{
	const char *type;
	const char *id;
	const EntityMessage *message;	/* NULL: it is no handler */
	struct Running *outer;
} Running;

static Running *running = NULL;

/* See entity_set_patience(). */
static int	patience_ms = 0;
static bool was_busy = false;

/* Creations of this transaction whose locks stay; counted anew in each */
static int	creations = 0;
static LocalTransactionId creations_in = InvalidLocalTransactionId;

/* ---------------------------------------------------------------- arguments */

/* Checks the name of a type and the id of an entity; 22004, 22023. */
void
entity_check_name(const char *type, const char *id)
{
	if (type == NULL || id == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s of an entity must not be null", type == NULL ? "type" : "id")));
	if (type[0] == '\0' || strlen(type) > ENTITY_TYPE_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the name of an entity type must have 1 to %d bytes", ENTITY_TYPE_MAX)));
	if (id[0] == '\0' || strlen(id) > ENTITY_ID_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the id of an entity must have 1 to %d bytes", ENTITY_ID_MAX)));
}

/* Raises 42704 unless there is such a type. */
void
entity_require_type(const char *type)
{
	(void) entity_type_get(type);
}

/* The message that the innermost function of this process was given; NULL where it is no handler. */
const EntityMessage *
entity_current_message(void)
{
	return running != NULL ? running->message : NULL;
}

/* ---------------------------------------------------------------- locks */

/* One more E that stays to the end of the transaction; 54000. */
static void
count_creation(const EntityAccess *entity)
{
	if (creations_in != compat_proc_lxid(MyProc))
		creations = 0;
	creations_in = compat_proc_lxid(MyProc);
	if (creations >= CREATIONS_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a transaction cannot create more than %d entities in table \"%s\"", CREATIONS_MAX,
						get_rel_name(entity->type->snapshots)),
				 errdetail("Where a table has row security, triggers, rules or partitions, each new entity takes a lock to the end of the transaction; so does a call with a request_id that leaves no row."),
				 errhint("Use several transactions.")));
	creations++;
}

/* Takes E of an entity, to the end of the transaction unless it is given back. 55P03, 40P01; 54000. */
static void
lock_creation(EntityAccess *entity)
{
	uint8		digest[DIGEST_BYTES];

	if (!entity->snapshots.plain)
		count_creation(entity);
	digest_name(entity->type->snapshots, entity->id, digest);
	entity->creation = locktag_of_entity(MyDatabaseId, digest, LOCK_OTHER_ENTITY);
	(void) LockAcquire(&entity->creation, ExclusiveLock, false, false);
	entity->creating = true;
}

/* Raises 42P01 where the table of a type is gone. */
void
entity_require_table(const EntityType *type)
{
	if (!OidIsValid(type->snapshots))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("the table of entity type \"%s\" does not exist", type->name),
				 errhint("alter_entity_type() can give it another one.")));
}

/* Opens the table of a type. Raises 42P01, and what snapshot_open() does. */
void
entity_open_table(const EntityType *type, LOCKMODE mode, Snapshots *snapshots)
{
	entity_require_table(type);
	snapshot_open(type->snapshots, mode, snapshots);
}

static void
close_creation(EntityAccess *entity)
{
	if (entity->creating && entity->snapshots.plain)
		(void) LockRelease(&entity->creation, ExclusiveLock, false);
	entity->creating = false;
}

/* Locks the row of an entity, if it has one; else, if it is to be made (`create`), takes E of it. */
static void
lock_row(EntityAccess *entity, bool create)
{
	for (;;)
	{
		snapshot_lock(&entity->snapshots, entity->id, &entity->row);
		if (entity->row.exists || !create || entity->creating)
			break;
		lock_creation(entity);
		/* somebody may have made it just before that: look again, and for what is not committed yet, too */
		if (entity->snapshots.table->plain)
			(void) snapshot_wait_for_insert(&entity->snapshots, entity->id);
	}
	if (entity->creating && entity->row.exists)
		close_creation(entity);
	entity->locked = true;
}

/*
 * Opens the table of a type and has this transaction have an entity to itself:
 * locks its row, or what it is made of where it has none yet (`create`). The lock of an
 * entity that is not strict comes first, and if memory knows it, its row is left alone.
 * Raises what snapshot_lock() does, 42P01, and 54000.
 */
void
entity_open(EntityAccess *entity, const EntityType *type, const char *id, bool create)
{
	memset(entity, 0, sizeof(*entity));
	entity->type = type;
	entity->id = id;
	stat_attach(extension_get()->extension);
	entity_open_table(type, RowExclusiveLock, &entity->snapshots);
	DEBUG_POINT("entity-before-lock");
	if (type->durability != DURABILITY_STRICT)
		entity->use = entity_xact_use(type, id, entity->snapshots.table->owner);
	if (entity->use != NULL && entity_use_row(entity->use, &entity->row))
	{
		bool		calm = entity->snapshots.table->calm;
		SnapshotRow found;

		if (calm && snapshot_may_write(&entity->snapshots))
			return;
		snapshot_lock(&entity->snapshots, id, &found);
		/* row security may have come since it is in memory: what hides the row hides that, too */
		if (calm || found.exists)
			return;
	}
	lock_row(entity, create);
	if (entity->use != NULL)
		entity_use_settle(entity->use, &entity->row);
}

/* Closes what entity_open() gave; the locks stay, but for E of what is in its row now. */
void
entity_close(EntityAccess *entity)
{
	close_creation(entity);
	snapshot_close(&entity->snapshots);
}

/* ---------------------------------------------------------------- functions of the user's */

/* Raises 42883 where a function that a type names is not there any more; 42501. */
static Oid
require_routine(const EntityType *type, EntityRoutine which)
{
	Oid			function = type->routines[which];

	if (!OidIsValid(function))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("function \"%s\" of entity type \"%s\" does not exist", type->routine_names[which], type->name),
				 errdetail("It was dropped, or has other arguments or another result now."),
				 errhint("Create it again, or name another one with alter_entity_type().")));
	if (compat_function_aclcheck(function, GetUserId()) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_FUNCTION, get_func_name(function));
	InvokeFunctionExecuteHook(function);
	return function;
}

/*
 * Calls a function of the user's for an entity, with a snapshot of its own. While
 * it runs, that entity is in the middle of a call. `message` is the handler's, NULL for the others.
 */
static Datum
call_function(const EntityType *type, const char *id, const EntityMessage *message, EntityRoutine which,
			  const NullableDatum *args, int nargs, bool *isnull)
{
	LOCAL_FCINFO(fcinfo, 3);
	Running		me = {.type = type->name,.id = id,.message = message,.outer = running};
	FmgrInfo	function;
	PgStat_FunctionCallUsage usage;
	volatile Datum result = (Datum) 0;

	fmgr_info(require_routine(type, which), &function);
	InitFunctionCallInfoData(*fcinfo, &function, nargs, InvalidOid, NULL, NULL);
	*isnull = false;
	for (int i = 0; i < nargs; i++)
	{
		fcinfo->args[i] = args[i];
		*isnull |= args[i].isnull && function.fn_strict;
	}
	if (*isnull)
		return result;			/* a strict function says null to null, without being called */
	PushActiveSnapshot(GetTransactionSnapshot());
	pgstat_init_function_usage(fcinfo, &usage);
	running = &me;
	PG_TRY();
	{
		result = FunctionCallInvoke(fcinfo);
	}
	PG_FINALLY();
	{
		running = me.outer;
	}
	PG_END_TRY();
	pgstat_end_function_usage(&usage, true);
	*isnull = fcinfo->isnull;
	PopActiveSnapshot();
	return result;
}

static NullableDatum
text_arg(const char *text)
{
	return (NullableDatum) {.value = text ? CStringGetTextDatum(text) : (Datum) 0,.isnull = text == NULL};
}

static NullableDatum
jsonb_arg(const Jsonb *json)
{
	return (NullableDatum) {.value = PointerGetDatum(json),.isnull = json == NULL};
}

/* The state of an entity that is called for the first time, or after it was deleted. */
static Jsonb *
first_state(const EntityType *type, const char *id)
{
	NullableDatum arg = text_arg(id);
	bool		isnull;
	Datum		state;

	if (type->routine_names[ROUTINE_INITIALIZER] == NULL)
		return type->initial_state;
	state = call_function(type, id, NULL, ROUTINE_INITIALIZER, &arg, 1, &isnull);
	return isnull ? NULL : DatumGetJsonbPCopy(state);
}

/* Raises RV006: why a snapshot cannot be brought to its type's vsn. */
compat_noreturn static void
complain_of_upgrade(const EntityType *type, const char *id, int32 vsn, const char *detail, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_RV_UPGRADE_FAILED),
			 errmsg("entity \"%s\" of type \"%s\" cannot be upgraded from vsn %d to %d", id, type->name, vsn, type->vsn),
			 errdetail_internal("%s", detail),
			 errhint("%s", hint)));
}

/* One step, from `vsn` to the next one. */
static Jsonb *
upgrade_step(const EntityType *type, const char *id, int32 vsn, const Jsonb *state)
{
	MemoryContext context = CurrentMemoryContext;
	NullableDatum args[] = {{.value = Int32GetDatum(vsn),.isnull = false}, jsonb_arg(state)};
	Jsonb	   *volatile result = NULL;
	bool		isnull;

	PG_TRY();
	{
		Datum		value = call_function(type, id, NULL, ROUTINE_UPGRADE, args, lengthof(args), &isnull);

		result = isnull ? NULL : DatumGetJsonbPCopy(value);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		/* what cancels the call is not a fault of the step's */
		if (geterrcode() == ERRCODE_QUERY_CANCELED || ERRCODE_TO_CATEGORY(geterrcode()) == ERRCODE_OPERATOR_INTERVENTION ||
			ERRCODE_TO_CATEGORY(geterrcode()) == ERRCODE_TRANSACTION_ROLLBACK)
			PG_RE_THROW();
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		complain_of_upgrade(type, id, vsn, psprintf("Step %d failed: %s", vsn, error->message ? error->message : "?"),
							"Mend the upgrade function; nothing was written.");
	}
	PG_END_TRY();
	if (result == NULL)
		complain_of_upgrade(type, id, vsn, psprintf("Step %d returned null.", vsn),
							"An upgrade function returns the state of the next vsn.");
	return result;
}

/* A state at the type's vsn. Raises RV006. */
Jsonb *
entity_upgrade_state(const EntityType *type, const char *id, int32 vsn, Jsonb *state)
{
	if (vsn > type->vsn)
		complain_of_upgrade(type, id, vsn, "The snapshot is newer than its type.",
							"Was the type altered back? alter_entity_type() sets its vsn and its upgrade function.");
	if (vsn < type->vsn && type->routine_names[ROUTINE_UPGRADE] == NULL)
		complain_of_upgrade(type, id, vsn, "The type has no upgrade function.",
							"Give it one with alter_entity_type(): (old_vsn integer, state jsonb) RETURNS jsonb.");
	for (int32 step = vsn; step < type->vsn; step++)
	{
		CHECK_FOR_INTERRUPTS();
		state = upgrade_step(type, id, step, state);
	}
	if (vsn < type->vsn)
		stat_count(STAT_ENTITIES_UPGRADED);
	return state;
}

/* Tells the terminator, if the type has one. */
static void
terminate(const EntityType *type, const char *id, const Jsonb *state, const char *reason)
{
	NullableDatum args[] = {text_arg(id), jsonb_arg(state), text_arg(reason)};
	bool		isnull;

	if (type->routine_names[ROUTINE_TERMINATOR] != NULL)
		(void) call_function(type, id, NULL, ROUTINE_TERMINATOR, args, lengthof(args), &isnull);
}

/* What a handler answered */
typedef struct Reply
{
	Jsonb	   *reply;			/* or NULL */
	Jsonb	   *state;			/* NULL: unchanged */
	char	   *stop;			/* NULL: it goes on */
} Reply;

static void
read_reply(Datum composite, Reply *reply)
{
	Datum		values[3];
	bool		nulls[3];

	result_read(composite, lengthof(values), values, nulls, "a handler's reply");
	reply->reply = nulls[0] ? NULL : DatumGetJsonbPCopy(values[0]);
	reply->state = nulls[1] ? NULL : DatumGetJsonbPCopy(values[1]);
	reply->stop = nulls[2] ? NULL : TextDatumGetCString(values[2]);
}

/* Raises 55006 when a function of this entity's type is running for it already, further out. */
void
entity_refuse_reentry(const char *type, const char *id)
{
	for (const Running *call = running; call != NULL; call = call->outer)
	{
		if (strcmp(call->type, type) == 0 && strcmp(call->id, id) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("entity \"%s\" of type \"%s\" is in the middle of a call", id, type),
					 errdetail("A handler, or another function of its type, cannot call its own entity, not even through another one."),
					 errhint("Use send(), which is delivered after this transaction.")));
	}
}

/* Runs the handler. */
static void
handle(const EntityType *type, const char *id, const Jsonb *state, const EntityMessage *message, Reply *reply)
{
	NullableDatum args[] = {text_arg(id), jsonb_arg(state), jsonb_arg(message->message)};
	bool		isnull;
	Datum		result = call_function(type, id, message, ROUTINE_HANDLER, args, lengthof(args), &isnull);

	memset(reply, 0, sizeof(*reply));
	if (!isnull)
		read_reply(result, reply);
}

/* ---------------------------------------------------------------- write */

/* Raises RV003: the row is not the one that was locked. */
compat_noreturn static void
complain_of_conflict(const EntityAccess *entity)
{
	ereport(ERROR,
			(errcode(ERRCODE_RV_VERSION_CONFLICT),
			 errmsg("entity \"%s\" of type \"%s\" was written by somebody else during the call", entity->id, entity->type->name),
			 entity->row.exists ?
			 errdetail("Its row in table \"%s\" is not version " INT64_FORMAT " as it was loaded.",
					   get_rel_name(entity->type->snapshots), entity->row.version) :
			 errdetail("A row for it appeared in table \"%s\".", get_rel_name(entity->type->snapshots)),
			 errhint("Call it again. Leave writing the table to revenant.")));
}

/* Writes a row for an entity, in the place of the one that it has. Raises RV003. */
static void
write_row(EntityAccess *entity, SnapshotRow *next, bool unload)
{
	SnapshotRow old = entity->row;
	bool		wrote;

	if (entity->use != NULL && !entity->locked)
	{
		/* it is in memory: is the row still the one that memory is ahead of? */
		snapshot_lock(&entity->snapshots, entity->id, &old);
		entity_use_check(entity->use, &old);
	}
	/* only what will certainly be in memory: versions that are reserved otherwise are skipped */
	if (entity->use != NULL && !unload && next->state != NULL && entity->snapshots.table->calm && entity_use_prepare(entity->use, next->state))
		next->reserved = entity_reserve(next->version, old.version);
	wrote = old.exists ? snapshot_update(&entity->snapshots, entity->id, &old, next) :
		snapshot_insert(&entity->snapshots, entity->id, next);
	if (!wrote)
	{
		snapshot_complain_if_suppressed(&entity->snapshots, entity->id, &old);
		complain_of_conflict(entity);
	}
	if (entity->use != NULL)
		entity_use_wrote(entity->use, next, unload);
	stat_count(STAT_ENTITIES_WRITTEN);
	if (!old.exists)
		stat_count(STAT_ENTITIES_CREATED);
	if (next->deleted)
		stat_count(STAT_ENTITIES_DELETED);
	ForceSyncCommit();
}

/*
 * Writes the next version of an entity that entity_open() gave into its row: `state`
 * (NULL: a tombstone). Returns the version. The commit is flushed, whatever synchronous_commit says. Raises RV003, 55000.
 */
int64
entity_write(EntityAccess *entity, Jsonb *state, bool unload)
{
	SnapshotRow next = {.vsn = entity->type->vsn,.state = state,.deleted = state == NULL};

	snapshot_next(&entity->row, &next);
	write_row(entity, &next, unload);
	return next.version;
}

/*
 * Writes what memory is ahead of the row, as it is; to unload it, too, if it is loaded. False:
 * there was nothing to do. Raises RV003.
 */
bool
entity_flush(EntityAccess *entity, bool unload)
{
	SnapshotRow next = entity->row;

	if (entity->use == NULL || !entity->row.exists || !(entity_use_is_dirty(entity->use) || (unload && entity_use_room(entity->use) > 0)))
		return false;
	next.reserved = next.version;
	write_row(entity, &next, unload);
	return true;
}

/*
 * What an entity is, in `row`: what this transaction made of it, or memory, or its row.
 * True where that is ahead of the row. Waits for nobody. The table is open.
 */
bool
entity_read(Snapshots *snapshots, const char *id, SnapshotRow *row)
{
	const EntityType *type = entity_type_of(snapshots->table->oid);
	const EntityUse *use;
	EntityKey	key;
	EntityImage image;
	Jsonb	   *state;
	bool		loaded = false;

	if (type == NULL || type->durability == DURABILITY_STRICT)
	{
		snapshot_read(snapshots, id, row);
		return false;
	}
	use = entity_xact_find(snapshots->table->oid, id);
	/* memory first: what is unloaded in between is in the row then, and not the other way round */
	if (use == NULL || use->newest == NULL)
	{
		entity_key_make(&key, extension_get()->extension, snapshots->table->oid, id);
		loaded = entity_entry_read(&key, &image, &state);
		DEBUG_POINT("entity-read-between");
	}
	snapshot_read(snapshots, id, row);
	if (use != NULL && use->newest != NULL)
	{
		if (use->newest->kind == CHANGE_KEPT)
			*row = use->newest->row;
		return use->newest->kind == CHANGE_KEPT;
	}
	if (!row->exists && !snapshots->table->calm)
		return false;			/* row security may hide it */
	if (!loaded || image.version <= row->version)
		return false;
	row->exists = true;
	row->deleted = false;
	row->version = image.version;
	row->vsn = image.vsn;
	row->updated_at = image.updated_at;
	row->state = state;
	return image.version > image.flushed;
}

/*
 * Has the row of an entity say all that memory does, and nobody else call it, to
 * the end of this transaction; memory lets it go at the commit. For whoever writes rows of a type's table by hand. Raises RV003, and
 * what entity_open() does.
 */
void
entity_yield(Oid table, const char *id)
{
	const EntityType *type = entity_type_of(table);
	EntityAccess entity;

	if (type == NULL || type->durability == DURABILITY_STRICT)
		return;
	entity_open(&entity, type, id, false);
	(void) entity_flush(&entity, true);
	entity_close(&entity);
}

/* Leaves the next version of an entity to memory, where that may be. Returns it, or 0. */
static int64
keep(EntityAccess *entity, Jsonb *state, Durability durability)
{
	SnapshotRow next = {.vsn = entity->type->vsn,.state = state};

	if (entity->use == NULL || !entity->snapshots.table->calm || !entity->row.exists || entity->row.deleted)
		return 0;
	snapshot_next(&entity->row, &next);
	if (!entity_use_keep(entity->use, &next, durability == DURABILITY_ON_STOP ? -1 : entity->type->flush_every_us))
		return 0;
	return next.version;
}

/* Whether a state is what the row says already. */
static bool
is_unchanged(const EntityAccess *entity, const Jsonb *state)
{
	const SnapshotRow *row = &entity->row;

	return row->exists && !row->deleted && row->vsn == entity->type->vsn && row->state != NULL &&
		VARSIZE(row->state) == VARSIZE(state) && memcmp(row->state, state, VARSIZE(state)) == 0;
}

/* ---------------------------------------------------------------- call */

/* How a call ended */
typedef struct Outcome
{
	int64		version;
	bool		wrote;			/* the row */
	bool		kept;			/* in memory, ahead of the row */
} Outcome;

/* What became of a call, for receipt() */
static void
note_receipt(const EntityAccess *entity, const Outcome *outcome)
{
	Receipt		receipt = {
		.version = outcome->version,
		.durable = !outcome->kept && entity->snapshots.rel->rd_rel->relpersistence == RELPERSISTENCE_PERMANENT
	};

	strlcpy(receipt.type, entity->type->name, sizeof(receipt.type));
	strlcpy(receipt.id, entity->id, sizeof(receipt.id));
	if (outcome->wrote)
	{
		receipt.xid = U64FromFullTransactionId(GetCurrentFullTransactionId());
		receipt.lsn = GetXLogInsertRecPtr();
		receipt.timeline = GetWALInsertionTimeLine();
		receipt.written_to = XactLastRecEnd;
	}
	receipt_set(&receipt);
}

/* The first answer again. */
static Jsonb *
answer_again(const Request *request, const RequestReply *answer)
{
	Receipt		receipt = {.version = answer->number,.durable = true,.xid = answer->xid,.lsn = answer->lsn,.timeline = answer->timeline};

	strlcpy(receipt.type, request->type, sizeof(receipt.type));
	strlcpy(receipt.id, request->id, sizeof(receipt.id));
	receipt_set(&receipt);
	return answer->reply;
}

/* Writes down the answer to a request. */
static void
note_request(const Request *request, const Jsonb *reply, int64 version)
{
	RequestReply answer = {
		.reply = unconstify(Jsonb *, reply),.number = version,.xid = U64FromFullTransactionId(GetCurrentFullTransactionId()),
		.timeline = GetWALInsertionTimeLine()
	};

	answer.lsn = GetXLogInsertRecPtr();
	request_note(request, &answer);
	ForceSyncCommit();
}

/*
 * Opens an entity for a call, by its type as it is then: the locks may have let in
 * a change of it. Where that gave it another table, or other locks to be taken, it is opened again.
 */
static void
open_for_call(EntityAccess *entity, const EntityType *type, const char *id, bool create)
{
	for (;;)
	{
		const EntityType *now;

		CHECK_FOR_INTERRUPTS();
		entity_open(entity, type, id, create);
		/* a snapshot that is newer than the type was written by one that this process has not heard of yet */
		if (entity->row.exists && entity->row.vsn > type->vsn)
			AcceptInvalidationMessages();
		now = entity_type_get(type->name);
		if (now->snapshots == entity->snapshots.table->oid && (now->durability != DURABILITY_STRICT) == (entity->use != NULL))
		{
			entity->type = now;
			return;
		}
		entity_close(entity);
		type = now;
	}
}

/*
 * How long this process waits to have an entity to itself, in milliseconds, before what
 * it does fails with 55P03; 0: as long as lock_timeout says. It says nothing about what a handler waits for.
 */
void
entity_set_patience(int ms)
{
	patience_ms = ms;
	was_busy = false;
}

/* Whether that was why the latest call failed since then. */
bool
entity_was_busy(void)
{
	return was_busy;
}

/* What open_for_call() does, not longer than this process has patience. */
static void
open_patiently(EntityAccess *entity, const EntityType *type, const char *id, bool create)
{
	int			lock_timeout = LockTimeout;

	was_busy = false;
	if (running != NULL || patience_ms == 0 || (lock_timeout > 0 && lock_timeout <= patience_ms))
	{
		open_for_call(entity, type, id, create);
		return;
	}
	PG_TRY();
	{
		LockTimeout = patience_ms;
		open_for_call(entity, type, id, create);
		LockTimeout = lock_timeout;
	}
	PG_CATCH();
	{
		LockTimeout = lock_timeout;
		was_busy = geterrcode() == ERRCODE_LOCK_NOT_AVAILABLE;
		PG_RE_THROW();
	}
	PG_END_TRY();
}

/* How durable a call is: as its type says, or more than that. */
static Durability
durability_of(const EntityType *type, const EntityHow *how)
{
	if (how->request != NULL)
		return DURABILITY_STRICT;
	return how->has_durability && how->durability < type->durability ? how->durability : type->durability;
}

/* Keeps or writes the state that a handler gave, or does neither where that is no other one. */
static void
apply(EntityAccess *entity, const Reply *reply, Durability durability, Outcome *outcome)
{
	bool		relaxed = durability != DURABILITY_STRICT && reply->stop == NULL;

	outcome->version = entity->row.version;
	if (reply->state == NULL || is_unchanged(entity, reply->state))
	{
		outcome->wrote = !relaxed && entity_flush(entity, reply->stop != NULL);
		outcome->kept = relaxed && entity_use_is_dirty(entity->use);
		return;
	}
	if (relaxed)
		outcome->version = keep(entity, reply->state, durability);
	outcome->kept = relaxed && outcome->version != 0;
	outcome->wrote = !outcome->kept;
	if (outcome->wrote)
		outcome->version = entity_write(entity, reply->state, reply->stop != NULL);
}

/*
 * Runs one message on an entity, in this transaction and as the current user:
 * what becomes of it is the transaction's fate. With a request it is answered once.
 * Returns the reply, or NULL. Raises 42704, 42883, 42501, 42P01, 54000, 55006, 55P03, RV003, RV006,
 * and whatever the handler raises. Takes the table's RowExclusiveLock, then the lock R of an entity that is not
 * strict, then the lock of its row, or E.
 */
Jsonb *
entity_call(const char *type_name, const char *id, const EntityMessage *message, const EntityHow *how)
{
	const EntityType *type = entity_type_get(type_name);
	const Request *request = how->request;
	EntityAccess entity;
	RequestReply answer;
	Outcome		outcome = {0};
	Jsonb	   *state;
	Reply		reply;
	XLogRecPtr	before;

	entity_refuse_reentry(type_name, id);
	if (request != NULL && request_find(request, &answer))
		return answer_again(request, &answer);
	(void) require_routine(type, ROUTINE_HANDLER);
	open_patiently(&entity, type, id, true);
	type = entity.type;
	if (request != NULL && request_find(request, &answer))
	{
		entity_close(&entity);
		return answer_again(request, &answer);
	}
	DEBUG_POINT("entity-locked");
	if (entity.use != NULL)
		entity_use_touch(entity.use);

	before = XactLastRecEnd;
	if (!entity.row.exists || entity.row.deleted)
		state = first_state(type, id);
	else
		state = entity_upgrade_state(type, id, entity.row.vsn, entity.row.state);
	handle(type, id, state, message, &reply);
	DEBUG_POINT("entity-handled");
	apply(&entity, &reply, durability_of(type, how), &outcome);
	if (reply.stop != NULL)
		terminate(type, id, reply.state != NULL ? reply.state : state, reply.stop);
	stat_count(STAT_CALLS);
	if (request != NULL)
	{
		note_request(request, reply.reply, outcome.version);
		/* without a row it is E that keeps the same request out until this one is committed */
		if (entity.creating && entity.snapshots.plain && !outcome.wrote)
			count_creation(&entity);
		entity.creating &= outcome.wrote;
	}
	/* whatever its functions wrote, elsewhere too, is as durable as the reply; a page that was merely tidied up is nobody's */
	outcome.wrote = XactLastRecEnd != before && TransactionIdIsValid(GetTopTransactionIdIfAny());
	if (outcome.wrote)
		ForceSyncCommit();
	note_receipt(&entity, &outcome);
	entity_close(&entity);
	return reply.reply;
}

/*
 * Raises 42501 where the owner of a function could not become the current user, or there is no such function any
 * more. Nobody asks for it to run when an entity was idle; and the table may have got another owner since it was named.
 */
static void
require_trusted(const EntityType *type, EntityRoutine which)
{
	HeapTuple	tuple;
	Oid			owner;

	if (type->routine_names[which] == NULL)
		return;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(require_routine(type, which)));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", type->routines[which]);
	owner = ((Form_pg_proc) GETSTRUCT(tuple))->proowner;
	ReleaseSysCache(tuple);
	if (superuser_arg(owner) || compat_role_can_become(owner, GetUserId()))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for %s \"%s\" of entity type \"%s\"", entity_routine_what(which), type->routine_names[which], type->name),
			 errdetail("It would run as role \"%s\", the owner of the table, which its own owner \"%s\" cannot become.",
					   GetUserNameFromId(GetUserId(), false), GetUserNameFromId(owner, false)),
			 errhint("Give the function to the owner of the table, or set another one with alter_entity_type().")));
}

/*
 * Writes what memory has of an entity, tells the terminator, and unloads it at the
 * commit. With `only_idle` nothing is done to one that was used for less than its idle_timeout ago. False: it was not loaded, as
 * a strict entity never is. Raises and takes what a call does.
 */
bool
entity_stop(const EntityType *type, const char *id, const char *reason, bool only_idle)
{
	EntityAccess entity;
	bool		stopped;

	entity_refuse_reentry(type->name, id);
	if (type->durability == DURABILITY_STRICT)
		return false;
	open_patiently(&entity, type, id, false);
	stopped = entity.row.exists && entity_use_room(entity.use) > 0 && (!only_idle || entity_use_is_idle(entity.use));
	if (stopped)
	{
		Jsonb	   *state = entity.row.state;

		if (type->routine_names[ROUTINE_TERMINATOR] != NULL)
		{
			if (only_idle)
				require_trusted(type, ROUTINE_TERMINATOR);
			if (only_idle && entity.row.vsn < type->vsn)
				require_trusted(type, ROUTINE_UPGRADE);
			state = entity_upgrade_state(type, id, entity.row.vsn, state);
		}
		(void) entity_flush(&entity, true);
		terminate(type, id, state, reason);
	}
	entity_close(&entity);
	return stopped;
}

/* An entity was idle: its terminator is told by a process of the owner of its table. Raises 42501, and what entity_stop() does. */
void
entity_stop_idle(const char *type, const char *id)
{
	const EntityType *known = entity_type_find(type);

	if (known == NULL)
		return;
	(void) entity_stop(known, id, "idle", true);
}

/* Runs a message that was sent, as its sender, in the transaction that takes it from the queue. */
void
entity_deliver(const char *type, const char *id, const EntityMessage *message)
{
	EntityHow	how = {0};

	(void) entity_call(type, id, message, &how);
}
