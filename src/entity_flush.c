/*-------------------------------------------------------------------------
 *
 * entity_flush.c
 *	  Entities that somebody wants to be in their rows now, and what is in memory.
 *
 * Who asks does not write: the flusher does, as always, and is waited for.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rls.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "compat.h"
#include "entity_call.h"
#include "entity_flush.h"
#include "entity_memory.h"
#include "entity_xact.h"
#include "extension.h"
#include "task_change.h"
#include "worker.h"

/* What is waited for without any progress until it is an error */
#define PATIENCE_US (10 * US_PER_S)
/* ... or the rest is done by who asks, who waits for the callers then */
#define REST_PATIENCE_US (500 * US_PER_MS)

/* An entity that is to be flushed */
typedef struct Asked
{
	EntityKey	key;
	Oid			owner;
	int64		version;		/* this one, or a later one */
	int			failures;		/* there were before */
} Asked;

/* Which are, and those that were found */
typedef struct Search
{
	Oid			snapshots;
	const EntityKey *key;		/* this one only; NULL: all of the table */
	bool		unload;
	bool		own;			/* also those that this transaction has in hand */
	Asked	   *found;
	int			nfound;
	int			size;
} Search;

static void
ask(EntityEntry *entry, void *arg)
{
	Search	   *search = arg;
	bool		wanted;
	Asked		asked = {.key = entry->key,.owner = entry->owner};

	if (!search->own && entity_xact_has(&entry->key, !search->unload))
		return;
	if (entry->snapshots != search->snapshots || (search->key != NULL && memcmp(&entry->key, search->key, sizeof(EntityKey)) != 0))
		return;
	SpinLockAcquire(&entry->mutex);
	wanted = entry->loaded && (search->unload || entity_is_dirty(entry));
	asked.version = entry->image.version;
	asked.failures = entry->failures;
	if (wanted)
	{
		entry->due_us = clock_now_us();
		entry->unload_asked |= search->unload;
	}
	SpinLockRelease(&entry->mutex);
	if (!wanted)
		return;
	if (search->nfound == search->size)
	{
		search->size = Max(search->size * 2, 64);
		search->found = search->found == NULL ? MemoryContextAllocHuge(CurrentMemoryContext, sizeof(Asked) * search->size) :
			repalloc_huge(search->found, sizeof(Asked) * search->size);
	}
	search->found[search->nfound++] = asked;
}

/* Whether the flusher has done what was asked. With `all` it raises where that failed. */
static bool
is_done(const Asked *asked, bool unload, bool all)
{
	EntityEntry *entry = entity_entry_find(&asked->key);
	bool		done;
	int			failures;
	char	   *type;
	char	   *id;

	if (entry == NULL)
		return true;
	SpinLockAcquire(&entry->mutex);
	done = !entry->loaded || (!unload && entry->image.flushed >= asked->version);
	failures = entry->failures;
	entry->pins--;
	SpinLockRelease(&entry->mutex);
	if (!done && all && failures > asked->failures)
	{
		entry = entity_entry_find(&asked->key);
		if (entry == NULL)
			return true;
		entity_entry_names(entry, &type, &id);
		entity_entry_unpin(entry);
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("entity \"%s\" of type \"%s\" could not be written into its row", id, type),
				 errdetail("The server's log says why. It stays in memory, and is tried again.")));
	}
	return done;
}

/* Has the flusher look, or one started. */
static void
wake_flusher(Oid instance, Oid owner)
{
	Flusher    *flusher = flusher_find(instance, owner, false);

	if (flusher != NULL && pg_atomic_read_u32(&flusher->accepting) != 0)
		flusher_wake(flusher);
	else
		worker_nudge_supervisor(MyDatabaseId);
}

/* Keeps those that are not done yet. Returns how many these are; with `all` it raises where one failed. */
static int
keep_waiting(Asked *asked, int count, bool unload, bool all)
{
	int			left = 0;

	for (int i = 0; i < count; i++)
	{
		if (!is_done(&asked[i], unload, all))
			asked[left++] = asked[i];
	}
	return left;
}

/*
 * Has the entities of a table (or one of them) written that are ahead of their
 * rows, or all that are loaded unloaded, and waits for it; those that this transaction itself has in hand are
 * left alone. Returns how many there were. With `all` it raises 55000 where one cannot be written, 55006 when it takes
 * too long; else it leaves those that fail or that somebody has.
 */
int64
entity_flush_all(Oid snapshots, const char *id, bool unload, bool all)
{
	Oid			instance = extension_get()->extension;
	EntityKey	key;
	Search		search = {.snapshots = snapshots,.unload = unload};
	int64		progress_us = clock_now_us();
	long		pause_ms = 1;
	int			left;

	if (id != NULL)
		entity_key_make(&key, instance, snapshots, id);
	search.key = id != NULL ? &key : NULL;
	entity_memory_visit(instance, ask, &search);
	left = search.nfound;
	while (left > 0)
	{
		int			before = left;

		left = keep_waiting(search.found, left, unload, all);
		if (left == 0)
			break;
		if (left < before)
			progress_us = clock_now_us();
		if (clock_now_us() - progress_us > (all ? PATIENCE_US : REST_PATIENCE_US))
		{
			if (!all)
				break;
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("entities of table \"%s\" are still not in their rows", get_rel_name(snapshots)),
					 errdetail("%d of %d wait, for their flusher or for a transaction that has one of them.", left, search.nfound),
					 errhint("See the view revenant.loaded_entities.")));
		}
		wake_flusher(instance, search.found[0].owner);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, pause_ms, compat_wait_event("RevenantFlush"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		pause_ms = Min(pause_ms * 2, 20);
	}
	return search.nfound;
}

static void
unload_one(const EntityType *type, const char *id)
{
	EntityAccess entity;

	entity_open(&entity, type, id, false);
	(void) entity_flush(&entity, true);
	entity_close(&entity);
}

/* What memory has of a table that is gone may go, too: the flusher drops it, at once. */
void
entity_give_up(Oid snapshots)
{
	Oid			instance = extension_get()->extension;
	Search		search = {.snapshots = snapshots,.unload = true};

	entity_memory_visit(instance, ask, &search);
	for (int i = 0; i < search.nfound; i++)
		wake_flusher(instance, search.found[i].owner);
}

/*
 * Writes and unloads what is left in memory of a type whose table this
 * transaction has locked against calls. Raises 54000 where that is too much.
 */
void
entity_unload_rest(const EntityType *type)
{
	Search		search = {.snapshots = type->snapshots,.unload = true,.own = true};
	ListCell   *cell;

	if (type->durability == DURABILITY_STRICT)
		return;
	/* what this transaction has called will be in memory only when it commits */
	foreach(cell, entity_xact_ids(type->snapshots))
		unload_one(type, lfirst(cell));
	entity_memory_visit(extension_get()->extension, ask, &search);
	for (int i = 0; i < search.nfound; i++)
	{
		EntityEntry *entry = entity_entry_find(&search.found[i].key);
		char	   *name;
		char	   *id;

		if (entry == NULL)
			continue;
		entity_entry_names(entry, &name, &id);
		entity_entry_unpin(entry);
		unload_one(type, id);
	}
}

/* ---------------------------------------------------------------- SQL */

/* Whether the caller may have a type's entities flushed. */
static bool
may_flush(const EntityType *type)
{
	return OidIsValid(type->snapshots) && pg_class_aclcheck(type->snapshots, GetUserId(), ACL_UPDATE) == ACLCHECK_OK;
}

/*
 * flush_entities(type, id): returns when what memory is ahead is in the rows: of an
 * entity, a type, or of all types whose tables the caller may update; how many there were. Raises 22023, 25006, 42501,
 * 42704, 55000, 55006.
 */
SQL_FUNCTION(revenant_flush_entities)
{
	char	   *name = PG_ARGISNULL(0) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(0));
	char	   *id = PG_ARGISNULL(1) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(1));
	const EntityType *type;
	int64		flushed = 0;
	ListCell   *cell;

	task_require_writable("flush_entities");
	if (name == NULL && id != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("an id needs a type")));
	if (name != NULL)
	{
		entity_check_name(name, id != NULL ? id : "-");
		type = entity_type_get(name);
		entity_require_table(type);
		if (!may_flush(type))
			aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE, get_rel_name(type->snapshots));
		PG_RETURN_INT64(entity_flush_all(type->snapshots, id, false, true));
	}
	foreach(cell, entity_type_names())
	{
		type = entity_type_find(lfirst(cell));
		if (type != NULL && type->durability != DURABILITY_STRICT && may_flush(type))
			flushed += entity_flush_all(type->snapshots, NULL, false, true);
	}
	PG_RETURN_INT64(flushed);
}

/* A row of the view. */
typedef struct Loaded
{
	EntityEntry entry;
	char	   *type;
	char	   *id;
} Loaded;

static void
collect(EntityEntry *entry, void *arg)
{
	List	  **all = arg;
	Loaded	   *loaded = palloc(sizeof(Loaded));

	SpinLockAcquire(&entry->mutex);
	loaded->entry = *entry;
	SpinLockRelease(&entry->mutex);
	if (!loaded->entry.loaded)
		return;
	entity_entry_names(entry, &loaded->type, &loaded->id);
	*all = lappend(*all, loaded);
}

/* Whether the caller may know which ids a table has, of which nothing may be left. */
static bool
may_see(Oid table)
{
	bool		is_missing = false;

	return pg_class_aclcheck_ext(table, GetUserId(), ACL_SELECT, &is_missing) == ACLCHECK_OK &&
		check_enable_rls(table, InvalidOid, true) != RLS_ENABLED;
}

/* What is behind the view loaded_entities: of the tables that the caller may read. */
SQL_FUNCTION(revenant_loaded_entities)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	List	   *all = NIL;
	ListCell   *cell;

	InitMaterializedSRF(fcinfo, 0);
	entity_memory_visit(extension_get()->extension, collect, &all);
	foreach(cell, all)
	{
		Loaded	   *loaded = lfirst(cell);
		const EntityEntry *entry = &loaded->entry;
		Datum		values[8];
		bool		nulls[8] = {false};

		CHECK_FOR_INTERRUPTS();
		if (!extension_role_is_admin(GetUserId()) && !may_see(entry->snapshots))
			continue;
		values[0] = CStringGetTextDatum(loaded->type);
		values[1] = CStringGetTextDatum(loaded->id);
		values[2] = Int64GetDatum(entry->image.version);
		values[3] = BoolGetDatum(entry->image.version > entry->image.flushed);
		nulls[4] = entry->dirty_since_us == 0;
		values[4] = nulls[4] ? (Datum) 0 : TimestampTzGetDatum(clock_to_timestamp(entry->dirty_since_us));
		values[5] = TimestampTzGetDatum(clock_to_timestamp(entry->last_used_us));
		values[6] = Int64GetDatum((int64) (sizeof(EntityEntry) + entry->names_bytes + entry->image.state_bytes));
		values[7] = Int32GetDatum(entry->failures);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	PG_RETURN_NULL();
}
