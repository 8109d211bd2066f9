/*-------------------------------------------------------------------------
 *
 * entity_xact.c
 *	  What a transaction did to relaxed entities, and what becomes of it at its end.
 *
 * A transaction that uses an entity of a relaxed type takes its lock R first, to
 * the end: one call at a time, as the row's lock is for strict ones. Then nobody else
 * changes what memory says of the entity, but for the flusher, which says how far the row is.
 *
 *		a call leaves its state to memory		CHANGE_KEPT: prepared in the area, published
 *												at commit; a rollback gives it back
 *		it writes the row						CHANGE_WRITTEN: memory is brought up to it at
 *												commit, with versions reserved ahead
 *		the entity is stopped or deleted		CHANGE_UNLOADED
 *
 * What commits together is lost together. So before the commit of a transaction that
 * has written anything at all, or that keeps more than one state, what it keeps is
 * written into the rows, by whoever called. What is left to memory is one state, of a transaction that wrote
 * nothing else.
 *
 * NOTES
 *	  The callback at commit cannot fail: states are in the area before, entries are pinned,
 *	  and their places in memory only swapped.
 *
 *	  A row that memory is ahead of must be the one that was written last: by a
 *	  caller under R, or by the flusher, whose mark says so before it commits; or say the very same. Any other one
 *	  was written by somebody past us: what memory says is dropped, and not written over it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "clock.h"
#include "compat.h"
#include "debug.h"
#include "entity_xact.h"
#include "error.h"
#include "events.h"
#include "extension.h"
#include "lease_budget.h"
#include "locktag.h"
#include "receipt.h"
#include "stat.h"
#include "worker.h"

/* All in TopTransactionContext. */
static EntityUse *uses = NULL;
static int	nuses = 0;

/* ---------------------------------------------------------------- use */

static EntityUse *
find_use(const EntityKey *key)
{
	for (EntityUse *use = uses; use != NULL; use = use->next)
	{
		if (memcmp(&use->key, key, sizeof(*key)) == 0)
			return use;
	}
	return NULL;
}

/* What this transaction knows of an entity that it has used; NULL: it has not. */
const EntityUse *
entity_xact_find(Oid snapshots, const char *id)
{
	EntityKey	key;

	if (uses == NULL)
		return NULL;
	entity_key_make(&key, extension_get()->extension, snapshots, id);
	return find_use(&key);
}

/*
 * Whether this transaction has used an entity; with `written` only if it has
 * written its row. Neither is to be waited for by this transaction.
 */
bool
entity_xact_has(const EntityKey *key, bool written)
{
	const EntityUse *use = find_use(key);

	return use != NULL && (!written || (use->newest != NULL && use->newest->kind != CHANGE_KEPT));
}

/* The ids of the entities of a table that this transaction has used. */
List *
entity_xact_ids(Oid snapshots)
{
	List	   *ids = NIL;

	for (EntityUse *use = uses; use != NULL; use = use->next)
	{
		if (use->type->snapshots == snapshots)
			ids = lappend(ids, use->id);
	}
	return ids;
}

static void
lock_entity(const EntityKey *key)
{
	LOCKTAG		tag = locktag_of_entity(key->database, key->digest, LOCK_OTHER_ENTITY);

	(void) LockAcquire(&tag, ExclusiveLock, false, false);
}

/*
 * Takes the lock R of an entity, waiting for whoever has it, and looks for it in
 * memory. Raises 55P03, 40P01; 54000 beyond ENTITY_USES_MAX entities.
 */
EntityUse *
entity_xact_use(const EntityType *type, const char *id, Oid owner)
{
	Oid			instance = extension_get()->extension;
	EntityKey	key;
	EntityUse  *use;

	entity_state_free_discarded();
	entity_key_make(&key, instance, type->snapshots, id);
	use = find_use(&key);
	if (use == NULL && nuses >= ENTITY_USES_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a transaction cannot use more than %d entities that are not strict", ENTITY_USES_MAX),
				 errdetail("Each takes a lock to the end of the transaction."),
				 errhint("Use several transactions, or a type with durability \"strict\".")));
	if (use == NULL && !lease_budget_has_room(1, true))
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of locks for entities that are not strict"),
				 errdetail("Leases and such entities take most of the server's lock table in all sessions together."),
				 errhint("Use shorter transactions, or raise max_locks_per_transaction.")));
	lock_entity(&key);			/* again: a subtransaction that is gone may have been the first */
	if (use == NULL)
	{
		use = MemoryContextAllocZero(TopTransactionContext, sizeof(EntityUse));
		use->key = key;
		use->id = MemoryContextStrdup(TopTransactionContext, id);
		use->flusher = flusher_find(instance, owner, true);
		use->next = uses;
		uses = use;
		nuses++;
		lease_budget_add(1);
	}
	use->type = type;
	if (use->entry == NULL)
	{
		use->entry = entity_entry_find(&key);
		/* the table may have another owner by now, whose flusher may not be there yet */
		if (use->entry != NULL)
			use->flusher = entity_entry_hand_over(use->entry, use->flusher, true);
	}
	return use;
}

/* What the entity is, if this transaction or memory knows: else false, and its row says. */
bool
entity_use_row(EntityUse *use, SnapshotRow *row)
{
	EntityImage image;
	Jsonb	   *state;

	if (use->newest != NULL)
	{
		/* what was written is in the row, where this transaction may have written it again since */
		if (use->newest->kind != CHANGE_KEPT)
			return false;
		*row = use->newest->row;
		row->reserved = row->version;
		/* a copy: the next change may take the place of this one, and its state with it */
		row->state = palloc(VARSIZE(use->newest->row.state));
		memcpy(row->state, use->newest->row.state, VARSIZE(use->newest->row.state));
		return true;
	}
	if (use->entry == NULL || !entity_entry_read(&use->key, &image, &state))
		return false;
	memset(row, 0, sizeof(*row));
	row->exists = true;
	row->version = row->reserved = image.version;
	row->vsn = image.vsn;
	row->updated_at = image.updated_at;
	row->state = state;
	return true;
}

/* Whether memory, or what this transaction will leave there, is ahead of the row. */
bool
entity_use_is_dirty(EntityUse *use)
{
	bool		dirty = false;

	if (use->newest != NULL)
		return use->newest->kind == CHANGE_KEPT;
	if (use->entry == NULL)
		return false;
	SpinLockAcquire(&use->entry->mutex);
	dirty = entity_is_dirty(use->entry);
	SpinLockRelease(&use->entry->mutex);
	return dirty;
}

/* Raises RV003: this very transaction has written the row past us, or whatever it is will be undone with it. Memory stays as it is. */
compat_noreturn static void
complain_of_own_write(const EntityUse *use)
{
	ereport(ERROR,
			(errcode(ERRCODE_RV_VERSION_CONFLICT),
			 errmsg("entity \"%s\" of type \"%s\" was written by somebody else", use->id, use->type->name),
			 errdetail("This transaction has written its row in table \"%s\" itself.", get_rel_name(use->type->snapshots)),
			 errhint("Leave writing the table to revenant.")));
}

/*
 * Raises RV003, and drops what memory says of the entity: its row was written past
 * us. By a transaction that has committed: what this one wrote is undone by the error.
 */
compat_noreturn static void
drop_conflicting(EntityUse *use, const SnapshotRow *row, int64 flushed)
{
	int64		version = use->newest != NULL ? use->newest->row.version : use->entry->image.version;
	Event		event = {
		.kind = EVENT_ENTITY_CONFLICT,
		.subject = entity_subject(use->type->name, use->id),
		.role = use->flusher->key.owner,
		.detail = {"version", psprintf(INT64_FORMAT, version), "row", psprintf(INT64_FORMAT, row->version)}
	};

	if (row->exists ? TransactionIdIsCurrentTransactionId(row->xmin) : TransactionIdIsValid(GetTopTransactionIdIfAny()))
		complain_of_own_write(use);
	entity_entry_unload(use->entry, use->flusher);
	stat_count(STAT_ENTITY_CONFLICTS);
	event_now(&event);
	ereport(ERROR,
			(errcode(ERRCODE_RV_VERSION_CONFLICT),
			 errmsg("entity \"%s\" of type \"%s\" was written by somebody else", use->id, use->type->name),
			 flushed > 0 ?
			 errdetail("Its row in table \"%s\" is not version " INT64_FORMAT " as it was written last; what was kept in memory, version " INT64_FORMAT ", is dropped.",
					   get_rel_name(use->type->snapshots), flushed, version) :
			 errdetail("Its row in table \"%s\" was found to be another one; what this transaction has kept, version " INT64_FORMAT ", is dropped.",
					   get_rel_name(use->type->snapshots), version),
			 errhint("Call it again. Leave writing the table to revenant.")));
}

/*
 * Whether a row is the one that was written last. A rewrite of the table (ALTER
 * TABLE) or an UPDATE of other columns gives it another xmin, and changes nothing that is ours.
 */
bool
entity_is_row(const EntityImage *image, const SnapshotRow *row)
{
	if (!row->exists || row->version != image->flushed)
		return false;
	return row->xmin == image->row_xmin ||
		(!row->deleted && row->reserved == image->reserved && row->state != NULL &&
		 entity_state_hash(row->vsn, row->state) == image->row_hash);
}

/*
 * Checks that a row that was just locked is the one that memory is ahead of.
 * Raises RV003, and drops the entity from memory, where somebody else wrote it.
 */
void
entity_use_check(EntityUse *use, const SnapshotRow *row)
{
	EntityEntry *entry = use->entry;
	EntityImage image;
	bool		same;

	if (entry == NULL)
		return;
	SpinLockAcquire(&entry->mutex);
	image = entry->image;
	/* what is kept was made of what was in memory: if that is gone, a subtransaction found it in conflict */
	same = (!entry->loaded && (use->newest == NULL || use->newest->kind != CHANGE_KEPT)) ||
		(row->exists && entry->flushing != 0 && row->version == entry->flushing && row->xmin == entry->flushing_xid);
	SpinLockRelease(&entry->mutex);
	if (!same && !entity_is_row(&image, row))
		drop_conflicting(use, row, image.flushed);
}

/*
 * Says of a row that was locked, and that memory is not ahead of, whether the
 * versions reserved in it are ours to give: then none of them is skipped.
 */
void
entity_use_settle(EntityUse *use, SnapshotRow *row)
{
	if (use->newest != NULL && use->newest->kind == CHANGE_WRITTEN && row->version == use->newest->row.version)
		row->reserved = row->version;
}

/* It is used now. */
void
entity_use_touch(EntityUse *use)
{
	if (use->entry == NULL)
		return;
	SpinLockAcquire(&use->entry->mutex);
	use->entry->last_used_us = clock_now_us();
	use->entry->idle_timeout_us = use->type->idle_timeout_us;
	use->entry->has_terminator = use->type->routine_names[ROUTINE_TERMINATOR] != NULL;
	use->entry->stop_sent = false;
	SpinLockRelease(&use->entry->mutex);
}

/* Whether it was not used for its idle_timeout. If it was, its terminator is to be told another time. */
bool
entity_use_is_idle(EntityUse *use)
{
	bool		idle;

	if (use->entry == NULL)
		return false;
	SpinLockAcquire(&use->entry->mutex);
	idle = use->entry->idle_timeout_us >= 0 && clock_now_us() - use->entry->last_used_us >= use->entry->idle_timeout_us;
	use->entry->stop_sent &= idle;
	SpinLockRelease(&use->entry->mutex);
	return idle;
}

/* Up to which version states may be left to memory without writing the row; 0: it is not loaded. */
int64
entity_use_room(EntityUse *use)
{
	int64		reserved = 0;

	if (use->newest != NULL)
		return use->newest->kind == CHANGE_UNLOADED ? 0 : use->newest->image.reserved;
	if (use->entry == NULL)
		return 0;
	SpinLockAcquire(&use->entry->mutex);
	if (use->entry->loaded)
		reserved = use->entry->image.reserved;
	SpinLockRelease(&use->entry->mutex);
	return reserved;
}

/* Whether there is a flusher that looks after what is in memory; if not, one is asked for. */
static bool
may_load(EntityUse *use)
{
	if (use->flusher == NULL)
		return false;
	if (pg_atomic_read_u32(&use->flusher->accepting) != 0)
		return true;
	if (pg_atomic_exchange_u32(&use->flusher->wanted, 1) == 0)
		worker_nudge_supervisor(MyDatabaseId);
	return false;
}

/* ---------------------------------------------------------------- change */

static void
discard(EntityUse *use, EntityChange *change)
{
	entity_state_discard(&use->key, change->image.state, change->image.state_bytes);
	change->image.state = InvalidDsaPointer;
}

/* A change by the current subtransaction, in the place of the one that it made before. */
static EntityChange *
begin_change(EntityUse *use, EntityChangeKind kind, const SnapshotRow *row)
{
	EntityChange *change = use->newest;
	int			level = GetCurrentTransactionNestLevel();

	/* what was written before must be known as long as it may be what the row says */
	if (change == NULL || change->nest_level != level || (kind == CHANGE_KEPT && change->kind != CHANGE_KEPT))
	{
		change = MemoryContextAllocZero(TopTransactionContext, sizeof(EntityChange));
		change->nest_level = level;
		change->previous = use->newest;
		use->newest = change;
	}
	else
	{
		discard(use, change);
		if (change->row.state != NULL)
			pfree(change->row.state);
	}
	change->kind = kind;
	change->user = GetUserId();
	change->row = *row;
	change->row.tuple = NULL;
	change->row.state = NULL;
	if (row->state != NULL)
	{
		change->row.state = MemoryContextAlloc(TopTransactionContext, VARSIZE(row->state));
		memcpy(change->row.state, row->state, VARSIZE(row->state));
	}
	change->image = (EntityImage) {
		.version = row->version,.reserved = row->reserved,.vsn = row->vsn,.updated_at = row->updated_at
	};
	return change;
}

/* Memory is short: the flusher is to make room. */
static void
ask_for_room(const EntityUse *use)
{
	pg_atomic_write_u32(&use->flusher->pressed, 1);
	flusher_wake(use->flusher);
}

/* Counts this transaction in as one that leaves something to the flusher. */
static bool
enter(EntityUse *use)
{
	if (!use->entered)
		use->entered = flusher_enter(use->flusher);
	return use->entered;
}

static void
discard_prepared(EntityUse *use)
{
	entity_state_discard(&use->key, use->prepared, use->prepared_bytes);
	use->prepared = InvalidDsaPointer;
}

/*
 * Makes sure that memory has room for a state that is about to be written into the
 * row, and a flusher that looks after it: then entity_use_wrote() cannot fail to load it.
 */
bool
entity_use_prepare(EntityUse *use, const Jsonb *state)
{
	if (!may_load(use) || !enter(use))
		return false;
	if (use->entry == NULL)
		use->entry = entity_entry_make(&use->key, use->type, use->flusher->key.owner, use->id);
	discard_prepared(use);
	if (use->entry != NULL && entity_state_make(state, &use->prepared, &use->prepared_bytes))
		return true;
	ask_for_room(use);
	return false;
}

/*
 * Leaves a state to memory, if this transaction commits. False: it cannot be, and is
 * to be written into the row. flush_every_us: how soon the flusher is to write it, -1 for when it is unloaded.
 */
bool
entity_use_keep(EntityUse *use, const SnapshotRow *row, int64 flush_every_us)
{
	int64		reserved = entity_use_room(use);
	EntityChange *change;
	dsa_pointer state;
	Size		bytes;

	if (use->entry == NULL || use->entry->failures > 0 || row->version > reserved || TransactionIdIsValid(GetTopTransactionIdIfAny()) ||
		!may_load(use) || !enter(use))
		return false;
	if (!entity_state_make(row->state, &state, &bytes))
	{
		ask_for_room(use);
		return false;
	}
	change = begin_change(use, CHANGE_KEPT, row);
	change->flush_every_us = flush_every_us;
	change->image.reserved = reserved;
	change->image.state = state;
	change->image.state_bytes = bytes;
	return true;
}

static void
tell_loaded(EntityUse *use)
{
	Event		event = {
		.kind = EVENT_ENTITY_LOADED,
		.subject = entity_subject(use->type->name, use->id),
		.role = use->flusher->key.owner,
		.routine = true
	};

	event_at_commit(&event);
}

/*
 * The row was written as `row` says, in this transaction: brings memory up to it at
 * commit, or unloads it. In memory from then on only if `row` has reserved versions
 * ahead, after entity_use_prepare().
 */
void
entity_use_wrote(EntityUse *use, const SnapshotRow *row, bool unload)
{
	EntityChange *change;

	unload = unload || !DsaPointerIsValid(use->prepared) || row->reserved <= row->version;
	if (!unload && !use->entry->loaded && use->newest == NULL && row->version > 1)
		tell_loaded(use);
	change = begin_change(use, unload ? CHANGE_UNLOADED : CHANGE_WRITTEN, row);
	change->image.row_xmin = GetCurrentTransactionId();
	if (unload)
		return;
	change->image.row_hash = entity_state_hash(row->vsn, row->state);
	change->image.state = use->prepared;
	change->image.state_bytes = use->prepared_bytes;
	use->prepared = InvalidDsaPointer;
}

/* ---------------------------------------------------------------- the end */

/* Writes what was to be kept into its row, as whoever called. */
static void
write_kept(EntityUse *use)
{
	EntityChange *change = use->newest;
	SnapshotRow next = change->row;
	SnapshotRow old;
	Snapshots	snapshots;
	Oid			user;
	int			context;

	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(change->user, context | SECURITY_LOCAL_USERID_CHANGE);
	PushActiveSnapshot(GetTransactionSnapshot());
	snapshot_open(use->type->snapshots, RowExclusiveLock, &snapshots);
	snapshot_lock(&snapshots, use->id, &old);
	entity_use_check(use, &old);
	next.reserved = entity_reserve(next.version, old.version);
	if (!snapshot_update(&snapshots, use->id, &old, &next))
		complain_of_own_write(use);
	snapshot_close(&snapshots);
	PopActiveSnapshot();
	SetUserIdAndSecContext(user, context);

	change->kind = CHANGE_WRITTEN;
	change->image.reserved = next.reserved;
	change->image.row_xmin = GetCurrentTransactionId();
	change->image.row_hash = entity_state_hash(next.vsn, next.state);
	receipt_set_written(use->type->name, use->id, next.version);
	ForceSyncCommit();
}

/* Whether what is to be kept may be: it is all that this transaction does. */
static bool
may_keep(void)
{
	int			changed = 0;

	if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return false;
	for (EntityUse *use = uses; use != NULL; use = use->next)
		changed += use->newest != NULL ? 1 : 0;
	return changed <= 1;
}

/* This transaction has dropped the table: so is what it was to keep. */
static void
drop_kept(EntityUse *use)
{
	discard(use, use->newest);
	use->newest->kind = CHANGE_UNLOADED;
}

static void
write_all_kept(void)
{
	for (EntityUse *use = uses; use != NULL; use = use->next)
	{
		if (use->newest == NULL || use->newest->kind != CHANGE_KEPT)
			continue;
		if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(use->type->snapshots)))
			write_kept(use);
		else
			drop_kept(use);
	}
}

static void
before_commit(void)
{
	DEBUG_POINT("entity-before-commit");
	if (!may_keep())
		write_all_kept();
}

/*
 * Writes what this transaction was going to leave to memory, so that no flusher
 * waits for it: before a command that ends the flushers and waits for them.
 */
void
entity_xact_write_kept(void)
{
	write_all_kept();
	for (EntityUse *use = uses; use != NULL; use = use->next)
	{
		if (use->entered)
			flusher_leave(use->flusher);
		use->entered = false;
	}
}

/* Never raises. */
static void
publish(EntityUse *use)
{
	EntityChange *change = use->newest;

	if (change == NULL || use->entry == NULL)
		return;
	if (change->kind == CHANGE_UNLOADED)
		entity_entry_unload(use->entry, use->flusher);
	else
		entity_entry_publish(use->entry, use->flusher, &change->image, change->flush_every_us, change->kind == CHANGE_WRITTEN);
	change->image.state = InvalidDsaPointer;
}

/* A subtransaction has ended well: its change is its parent's, in the place of what that made before. */
static void
merge_changes(EntityUse *use, int level)
{
	EntityChange *change = use->newest;

	if (change == NULL || change->nest_level < level)
		return;
	change->nest_level = level - 1;
	while (change->previous != NULL && change->previous->nest_level >= level - 1)
	{
		discard(use, change->previous);
		change->previous = change->previous->previous;
	}
}

/* The transaction is over: gives back what was not published, and all pins. Never raises. */
static void
forget_all(void)
{
	for (EntityUse *use = uses; use != NULL; use = use->next)
	{
		discard_prepared(use);
		for (EntityChange *change = use->newest; change != NULL; change = change->previous)
			discard(use, change);
		if (use->entry != NULL)
			entity_entry_unpin(use->entry);
		if (use->entered)
			flusher_leave(use->flusher);
	}
	lease_budget_add(-nuses);
	uses = NULL;				/* the memory goes with the transaction */
	nuses = 0;
}

static void
on_xact_end(XactEvent event, void *arg)
{
	if (uses == NULL)
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			before_commit();
			break;
		case XACT_EVENT_PRE_PREPARE:
			/* also where it changed nothing: its lock R would stay with the prepared transaction */
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot PREPARE a transaction that called an entity that is not strict"),
					 errhint("Commit it, or use a type with durability \"strict\".")));
			break;
		case XACT_EVENT_COMMIT:
			DEBUG_POINT_QUIET("entity-before-publish");
			for (EntityUse *use = uses; use != NULL; use = use->next)
				publish(use);
			forget_all();
			break;
		case XACT_EVENT_ABORT:
			forget_all();
			break;
		default:
			break;
	}
}

static void
on_subxact_end(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	int			level = GetCurrentTransactionNestLevel();

	if (uses == NULL || (event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB))
		return;
	for (EntityUse *use = uses; use != NULL; use = use->next)
	{
		if (event == SUBXACT_EVENT_COMMIT_SUB)
		{
			merge_changes(use, level);
			continue;
		}
		while (use->newest != NULL && use->newest->nest_level >= level)
		{
			discard(use, use->newest);
			use->newest = use->newest->previous;
		}
	}
}

/* Called once, by _PG_init under shared_preload_libraries. */
void
entity_xact_install_callbacks(void)
{
	RegisterXactCallback(on_xact_end, NULL);
	RegisterSubXactCallback(on_subxact_end, NULL);
}
