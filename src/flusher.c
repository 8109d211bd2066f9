/*-------------------------------------------------------------------------
 *
 * flusher.c
 *	  The process that writes the relaxed entities of one owner into their rows.
 *
 * It is connected as that role. In each round it goes through the entities in
 * memory and takes what is due, table by table, many in one transaction:
 *
 *		flush		the row gets the state, with versions reserved ahead; the
 *					entity stays in memory
 *		stop		what was not used for idle_timeout, and has a terminator: a
 *					message of the owner's, whose delivery tells it
 *		unload		what was not used for idle_timeout otherwise, the oldest where memory is
 *					short, and all of them at its end: the row gets the state, with no
 *					version reserved, and memory nothing
 *
 * To flush an entity it takes no lock that a call needs, but the row's for the
 * time of its transaction, and waits for none: a row that somebody has is left for later. To unload it, it
 * needs the entity's lock R, and takes that if it gets it at once.
 *
 * When it is told to end (a shutdown of the server, DDL that it is in the way of) it stops to
 * accept states, waits until no transaction is left that was going to leave one,
 * and writes the rest. So a fast shutdown loses nothing of what was committed.
 *
 * NOTES
 *	  A row that is not the one that memory is ahead of was written by somebody past
 *	  us, or by a call whose commit is not published yet; the latter has R. So only who gets R
 *	  may say that it is a conflict.
 *
 *	  What cannot be written stays in memory, and is tried again, ever later; and each
 *	  alone, so that it keeps no others from being written. Whose table is gone
 *	  stays until its type is dropped, or this process ends.
 *
 *	  A table may get another owner: the entities of it are handed over, and
 *	  another flusher writes them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "tcop/tcopprot.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timeout.h"

#include "alarm.h"
#include "clock.h"
#include "compat.h"
#include "debug.h"
#include "entity.h"
#include "entity_memory.h"
#include "entity_xact.h"
#include "events.h"
#include "extension.h"
#include "flusher.h"
#include "locktag.h"
#include "message.h"
#include "runner_process.h"
#include "service.h"
#include "snapshot.h"
#include "stat.h"
#include "task.h"
#include "tick.h"
#include "worker.h"

/* In one transaction: so many, and none is begun after so long, since a strict call waits for its row meanwhile */
#define BATCH_MAX 500
#define BATCH_BEGIN_US (20 * US_PER_MS)

/* It looks at memory at least that often, and not more often than that. */
#define ROUND_LONGEST_US (1 * US_PER_S)
#define ROUND_SHORTEST_US (5 * US_PER_MS)

/* What could not be written is tried again after that, doubled each time. */
#define RETRY_MIN_US (1 * US_PER_S)
#define RETRY_MAX_US (60 * US_PER_S)

/* It ends when it had nothing in memory for that long. */
#define LINGER_US (10 * US_PER_S)

/*
 * At its end it gives up when nothing could be written for that long: what somebody has locked, what
 * fails, and what another flusher will see to, since the server is not being stopped.
 */
#define GIVE_UP_BUSY_US (20 * US_PER_S)
#define GIVE_UP_FAILED_US (3 * US_PER_S)
#define GIVE_UP_LEFT_US (1 * US_PER_S)

/* It waits for a lock (which only what indexes check can need) not longer than that. */
#define LOCK_TIMEOUT "1s"

/* A transaction is not longer than that, whatever functions of the user's constraints and indexes take. */
#define BATCH_TIMEOUT_MS 10000

/* ... and what goes on although it was cancelled is ended with this process, that long after the transaction began. */
#define OVERDUE_US (BATCH_TIMEOUT_MS * US_PER_MS + 2 * US_PER_S)

/* What fails is logged the first time, and not more often than that. */
#define COMPLAIN_EVERY_US (60 * US_PER_S)

/* Between two attempts to do so. */
#define FINISH_PAUSE_US (50 * US_PER_MS)

/* Where memory is short, one entity in so many is unloaded. */
#define PRESSED_PART 8

/* What a round is to find */
typedef enum Wanted
{
	WANT_DUE,					/* what is due, and what is idle */
	WANT_OLDEST,				/* where memory is short */
	WANT_ALL					/* at the end */
} Wanted;

typedef struct Candidate
{
	EntityKey	key;
	Oid			snapshots;
	int64		last_used_us;
	bool		unload;
	bool		stop;			/* its terminator is to be told, by another process */
} Candidate;

typedef struct Round
{
	Wanted		wanted;
	int64		now_us;
	Candidate  *candidates;		/* in round_context */
	int			ncandidates;
	int			size;
	int64		next_us;		/* when something else is due */
	List	   *tables;			/* of theirs; in round_context */
	Oid			last_table;
	int			loaded;			/* entities of this owner */
	int			failed;			/* could not be written */
	bool		done;			/* some were */
} Round;

/* What the transaction that is open does to an entity */
typedef enum WorkKind
{
	WORK_NOTHING,
	WORK_FLUSH,
	WORK_UNLOAD,
	WORK_STOP,					/* its terminator is told by a message */
	WORK_DROP,					/* its row was written past us, or its table is gone */
	WORK_HAND_OVER				/* its table has another owner */
} WorkKind;

typedef struct Work
{
	EntityEntry *entry;			/* pinned */
	EntityImage image;
	EntityImage flushed;		/* what the row has of it, if the transaction commits */
	char	   *subject;		/* in batch_context */
	WorkKind	kind;
	int64		last_used_us;	/* when its terminator was to be told */
	TransactionId xid;			/* who wrote the row; invalid: it said the same */
	bool		told;			/* its event, after the commit: it was written, or there was a conflict */
} Work;

static const RunnerSlot *service;	/* what this process was started for */
static Flusher *flusher = NULL;
static MemoryContext round_context = NULL;	/* reset before each round */
static MemoryContext batch_context = NULL;	/* reset before each transaction */
static Work works[BATCH_MAX];
static int	nworks = 0;
static bool finishing = false;	/* it is to end: what it cannot write is given up */
static int64 begun_us = 0;		/* when the transaction began */
static int64 written = 0;		/* entities that something was done about, by this process */
static int64 complained_us = 0;
static bool timed_out = false;	/* the latest transaction was cancelled */
static Alarm overdue_alarm;
static volatile sig_atomic_t in_batch = false;
static volatile sig_atomic_t overdue = false;	/* this process is ended for that */

/* What the transaction is about: all of its candidates, or, while it is at one, that one. For who is ended there. */
static const Candidate *under_way = NULL;
static int	nunder_way = 0;

/* Tables of entities of ours, as of the latest round, and those of them that are not ours or are gone; in TopMemoryContext */
static List *tables = NIL;
static List *strange_tables = NIL;

/* ---------------------------------------------------------------- the end of a transaction */

/* Never raises. */
static void
finish_work(Work *work, bool committed)
{
	switch (work->kind)
	{
		case WORK_FLUSH:
			entity_entry_end_flush(work->entry, &work->flushed, work->xid, begun_us, committed);
			break;
		case WORK_UNLOAD:
		case WORK_DROP:
			if (committed)
				entity_entry_unload(work->entry, flusher);
			break;
		case WORK_STOP:
			SpinLockAcquire(&work->entry->mutex);
			/* one that was used since is not idle when it is told: then there is to be another message */
			work->entry->stop_sent |= committed && work->entry->last_used_us == work->last_used_us;
			SpinLockRelease(&work->entry->mutex);
			break;
		case WORK_HAND_OVER:
		case WORK_NOTHING:
			break;
	}
}

static void
on_xact_end(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT)
		return;
	if (nworks > 0)
		DEBUG_POINT_QUIET("flusher-before-publish");
	for (int i = 0; i < nworks; i++)
	{
		finish_work(&works[i], event == XACT_EVENT_COMMIT);
		entity_entry_unpin(works[i].entry);
		if (event == XACT_EVENT_ABORT)
			works[i].told = false;
	}
}

/* After the commit: tells what was done. */
static void
tell_all(void)
{
	for (int i = 0; i < nworks; i++)
	{
		Work	   *work = &works[i];
		Event		event = {.subject = work->subject,.role = runner_me.role,.routine = work->kind != WORK_DROP};

		if (!work->told)
			continue;
		stat_count(work->kind == WORK_DROP ? STAT_ENTITY_CONFLICTS : STAT_ENTITIES_FLUSHED);
		event.kind = work->kind == WORK_DROP ? EVENT_ENTITY_CONFLICT : EVENT_ENTITY_FLUSHED;
		event.detail[0] = "version";
		event.detail[1] = psprintf(INT64_FORMAT, work->image.version);
		event.detail[2] = "bytes";
		event.detail[3] = psprintf("%zu", work->image.state_bytes);
		event_now(&event);
	}
	nworks = 0;
}

/* ---------------------------------------------------------------- one entity */

static bool
try_lock_entity(const EntityKey *key)
{
	LOCKTAG		tag = locktag_of_entity(key->database, key->digest, LOCK_OTHER_ENTITY);

	return LockAcquire(&tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

/* Writes what memory says into the row, which is locked. Raises what an UPDATE does. */
static void
write_row(Snapshots *snapshots, Work *work, const char *id, const SnapshotRow *row, Jsonb *state)
{
	SnapshotRow next = {
		.exists = true,.version = work->image.version,.vsn = work->image.vsn,.state = state,.updated_at = work->image.updated_at
	};

	next.reserved = work->kind == WORK_UNLOAD ? next.version : entity_reserve(next.version, row->version);
	work->flushed = (EntityImage) {
		.version = next.version,.reserved = next.reserved,.row_hash = entity_state_hash(next.vsn, state)
	};
	work->xid = GetCurrentTransactionId();
	if (work->kind == WORK_FLUSH && !entity_entry_begin_flush(work->entry, next.version, work->xid))
	{
		work->kind = WORK_NOTHING;
		return;
	}
	if (!snapshot_update(snapshots, id, row, &next))
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
				 errmsg("the row of entity \"%s\" could not be written", work->subject)));
}

/*
 * Has the terminator of an idle entity told. It is user code, and may take its
 * time: a process that delivers messages runs it, as the same role, and unloads the entity then.
 */
static void
send_stop(const char *type, const char *id)
{
	Extension	oids = message_extension();

	(void) message_insert(&oids, MESSAGE_STOP, type, id, DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum("\"idle\""))), 0);
}

static bool
is_loaded(EntityEntry *entry)
{
	bool		loaded;

	SpinLockAcquire(&entry->mutex);
	loaded = entry->loaded;
	SpinLockRelease(&entry->mutex);
	return loaded;
}

static void note_failure(const Candidate *candidate);

/*
 * One whose table is not ours any more: its new owner's. Where there is none any more, what
 * its row says is all gone; what is ahead of it stays and is shown until
 * somebody says that it may go, or memory does.
 */
static void
do_strange(const Candidate *candidate, Oid owner)
{
	Work	   *work = &works[nworks];
	char	   *type;
	char	   *id;
	bool		given_up;

	memset(work, 0, sizeof(*work));
	work->entry = entity_entry_find(&candidate->key);
	if (work->entry == NULL)
		return;
	nworks++;
	entity_entry_names(work->entry, &type, &id);
	work->subject = entity_subject(type, id);
	if (!is_loaded(work->entry) || !try_lock_entity(&candidate->key))
		return;
	if (OidIsValid(owner))
	{
		Flusher    *next = flusher_find(service->task.instance, owner, true);

		if (next == NULL)
			return;
		(void) entity_entry_hand_over(work->entry, next, false);
		work->kind = WORK_HAND_OVER;
		worker_nudge_supervisor(MyDatabaseId);
		return;
	}
	SpinLockAcquire(&work->entry->mutex);
	work->image = work->entry->image;
	given_up = work->entry->unload_asked || finishing;
	SpinLockRelease(&work->entry->mutex);
	work->told = work->image.version > work->image.flushed;
	if (work->told && !given_up)
	{
		work->told = false;
		note_failure(candidate);
		return;
	}
	work->kind = WORK_DROP;
}

/* Flushes or unloads one, in the transaction that is open. What is locked is left alone. */
static void
do_candidate(Snapshots *snapshots, const Candidate *candidate)
{
	Work	   *work = &works[nworks];
	SnapshotRow row;
	Jsonb	   *state;
	char	   *type;
	char	   *id;
	bool		have_lock = false;
	bool		dirty;

	memset(work, 0, sizeof(*work));
	work->entry = entity_entry_find(&candidate->key);
	if (work->entry == NULL)
		return;
	nworks++;					/* from here on its pin is given back */
	entity_entry_names(work->entry, &type, &id);
	work->subject = entity_subject(type, id);
	if (!is_loaded(work->entry))
		return;
	if (candidate->stop)
	{
		send_stop(type, id);
		work->kind = WORK_STOP;
		work->last_used_us = candidate->last_used_us;
		return;
	}
	if (candidate->unload)
		have_lock = try_lock_entity(&candidate->key);
	DEBUG_POINT("flusher-before-row");
	if (!snapshot_try_lock(snapshots, id, &row) || !entity_entry_read(&candidate->key, &work->image, &state))
		return;
	if (!row.exists && snapshots->rel->rd_rel->relforcerowsecurity)
	{
		/* row security may hide it from its owner, too */
		note_failure(candidate);
		return;
	}
	if (!entity_is_row(&work->image, &row))
	{
		/* a call that is about to be published has R */
		if (!have_lock && !try_lock_entity(&candidate->key))
			return;
		have_lock = true;
		if (!entity_entry_read(&candidate->key, &work->image, &state))
			return;
	}
	dirty = work->image.version > work->image.flushed;
	if (!entity_is_row(&work->image, &row))
	{
		work->kind = WORK_DROP;
		work->told = dirty;
		return;
	}
	if (candidate->unload && have_lock)
		work->kind = WORK_UNLOAD;
	else if (dirty)
		work->kind = WORK_FLUSH;
	else
		return;
	work->told = dirty;
	if (dirty || row.reserved > row.version)
		write_row(snapshots, work, id, &row, state);
}

/* ---------------------------------------------------------------- a transaction */

/* The owner of a table; InvalidOid: it is gone. */
static Oid
table_owner(Oid table)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

/* Whether a table is gone, or is another flusher's, if its owner can have one. */
static bool
is_strange(Oid table, Oid *owner)
{
	char	   *name;

	*owner = table_owner(table);
	if (!OidIsValid(*owner) || *owner == runner_me.role)
		return !OidIsValid(*owner);
	name = GetUserNameFromId(*owner, true);
	return name != NULL && task_role_problem(name, *owner) == NULL;
}

/*
 * As many of the candidates as are of one table and fit into a transaction,
 * which is open. Returns how many it has seen to; the lock on the table is not waited for.
 */
static int
do_batch(const Candidate *candidates, int count)
{
	Oid			table = candidates[0].snapshots;
	Oid			owner;
	Snapshots	snapshots;
	int			done = 0;

	if (!ConditionalLockRelationOid(table, RowExclusiveLock))
	{
		while (done < count && candidates[done].snapshots == table)
			done++;
		return done;
	}
	if (is_strange(table, &owner))
	{
		while (done < count && done < BATCH_MAX && candidates[done].snapshots == table)
			do_strange(&candidates[done++], owner);
		return done;
	}
	snapshot_open(table, RowExclusiveLock, &snapshots);
	while (done < count && done < BATCH_MAX && candidates[done].snapshots == table &&
		   (done == 0 || clock_now_us() - begun_us < BATCH_BEGIN_US))
	{
		CHECK_FOR_INTERRUPTS();
		under_way = &candidates[done];
		nunder_way = 1;
		do_candidate(&snapshots, &candidates[done]);
		done++;
	}
	under_way = candidates;
	nunder_way = done;
	snapshot_close(&snapshots);
	return done;
}

/* It could not be written: later, and shown. */
static void
note_failure(const Candidate *candidate)
{
	EntityEntry *entry = entity_entry_find(&candidate->key);

	stat_count(STAT_FLUSH_FAILURES);
	if (entry == NULL)
		return;
	SpinLockAcquire(&entry->mutex);
	entry->failures++;
	entry->due_us = clock_now_us() + Min(RETRY_MIN_US << Min(entry->failures - 1, 16), RETRY_MAX_US);
	entry->unload_asked = false;	/* who asked is told */
	SpinLockRelease(&entry->mutex);
	entity_entry_unpin(entry);
}

/* The same for all that are of the table of the first one. Returns how many. */
static int
note_failures(const Candidate *candidates, int count)
{
	int			done = 0;

	while (done < count && candidates[done].snapshots == candidates[0].snapshots)
		note_failure(&candidates[done++]);
	return done;
}

/* Tells the log why an entity could not be written: where that is new, or the last time was a while ago. */
static void
complain(const Candidate *candidate, const ErrorData *error)
{
	EntityEntry *entry = entity_entry_find(&candidate->key);
	char	   *type;
	char	   *id;
	bool		first;

	if (entry == NULL)
		return;
	entity_entry_names(entry, &type, &id);
	SpinLockAcquire(&entry->mutex);
	first = entry->failures == 0;
	SpinLockRelease(&entry->mutex);
	entity_entry_unpin(entry);
	if (complained_us != 0 && clock_now_us() - complained_us < (first ? US_PER_S : COMPLAIN_EVERY_US))
		return;
	complained_us = clock_now_us();
	ereport(LOG,
			(errcode(error->sqlerrcode),
			 errmsg("revenant could not write entity \"%s\" of type \"%s\" into its row: %s", id, type, error->message ? error->message : "?"),
			 errdetail("It stays in memory, and is tried again. There may be others: see revenant.loaded_entities.")));
}

/* Between transactions there is nothing to cancel: who cancels has one written later, and does not end this process. */
static void
check_between(void)
{
	QueryCancelPending = false;
	CHECK_FOR_INTERRUPTS();
}

/* SIGUSR2: the transaction is overdue. SIGTERM alone would have this process end when all is written. */
static void
on_overdue(SIGNAL_ARGS)
{
	if (in_batch)
	{
		overdue = true;
		die(postgres_signal_arg);
	}
}

static void
begin_batch(void)
{
	check_between();
	begun_us = clock_now_us();
	in_batch = true;
	alarm_arm(&overdue_alarm, OVERDUE_US);
}

static void
end_batch(void)
{
	alarm_clear(&overdue_alarm);
	in_batch = false;
	nunder_way = 0;
}

/* One transaction. Returns how many candidates it has seen to; 0: it failed, and nothing happened. */
static int
run_batch(const Candidate *candidates, int count)
{
	volatile int done = 0;
	volatile bool wrote = false;

	MemoryContextReset(batch_context);
	nworks = 0;
	timed_out = false;
	begin_batch();
	PG_TRY();
	{
		enable_timeout_after(STATEMENT_TIMEOUT, BATCH_TIMEOUT_MS);
		runner_process_begin(true);
		runner_process_pin("lock_timeout", LOCK_TIMEOUT);
		runner_process_pin("statement_timeout", "0");
		runner_process_pin("synchronous_commit", "local");
		PushActiveSnapshot(GetTransactionSnapshot());
		MemoryContextSwitchTo(batch_context);
		done = do_batch(candidates, count);
		if (ActiveSnapshotSet())
			PopActiveSnapshot();
		wrote = TransactionIdIsValid(GetTopTransactionIdIfAny());
		if (wrote)
			ForceSyncCommit();
		DEBUG_POINT("flusher-before-commit");
		CommitTransactionCommand();
		end_batch();
		disable_timeout(STATEMENT_TIMEOUT, false);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		end_batch();
		disable_timeout(STATEMENT_TIMEOUT, false);
		MemoryContextSwitchTo(batch_context);
		error = CopyErrorData();
		timed_out = error->sqlerrcode == ERRCODE_QUERY_CANCELED;
		FlushErrorState();
		AbortOutOfAnyTransaction();
		nworks = 0;
		if (count == 1 || (timed_out && ShutdownRequestPending))
			complain(&candidates[0], error);
		done = 0;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(batch_context);
	if (done > 0)
	{
		if (wrote)
			stat_time(STAT_FLUSHES, clock_now_us() - begun_us);
		for (int i = 0; i < nworks; i++)
			written += works[i].kind != WORK_NOTHING ? 1 : 0;
		tell_all();
		worker_service_progress(runner_me.slot, runner_me.generation, written);
		(void) pgstat_report_stat(false);
	}
	return done;
}

/* All candidates. What cannot be written together is written one by one. Returns how many failed. */
static int
do_candidates(const Candidate *candidates, int count)
{
	int			failed = 0;
	int			position = 0;
	int			singly = 0;		/* so many are to be done alone */

	while (position < count)
	{
		int			batch = singly > 0 ? 1 : count - position;
		int			done = run_batch(&candidates[position], batch);

		if (done == 0 && timed_out && ShutdownRequestPending)
		{
			/* that is not to be waited for once for each entity of the table */
			done = note_failures(&candidates[position], count - position);
			failed += done;
		}
		else if (done == 0 && batch == 1)
		{
			note_failure(&candidates[position]);
			failed++;
			done = 1;
		}
		else if (done == 0)
			singly = Min(BATCH_MAX, count - position);
		singly = Max(singly - done, 0);
		position += done;
	}
	return failed;
}

/* ---------------------------------------------------------------- a round */

static void
add_candidate(Round *round, const EntityEntry *entry, bool unload, bool stop)
{
	if (round->ncandidates == round->size)
	{
		round->size = Max(round->size * 2, 1024);
		round->candidates = round->candidates == NULL ?
			MemoryContextAllocHuge(round_context, sizeof(Candidate) * round->size) :
			repalloc_huge(round->candidates, sizeof(Candidate) * round->size);
	}
	round->candidates[round->ncandidates++] = (Candidate) {
		.key = entry->key,.snapshots = entry->snapshots,.last_used_us = entry->last_used_us,.unload = unload,.stop = stop
	};
}

static void
look_at(EntityEntry *entry, void *arg)
{
	Round	   *round = arg;
	EntityEntry now;
	bool		idle;

	SpinLockAcquire(&entry->mutex);
	now = *entry;
	SpinLockRelease(&entry->mutex);
	if (now.owner != runner_me.role)
		return;
	if (!now.loaded)
	{
		/* its state went; so does the entry, when nobody uses it */
		if (now.pins == 0)
			add_candidate(round, &now, false, false);
		return;
	}
	round->loaded++;
	if (round->last_table != now.snapshots && !list_member_oid(round->tables, now.snapshots))
		round->tables = lappend_oid(round->tables, now.snapshots);
	round->last_table = now.snapshots;
	if (round->wanted != WANT_ALL && now.failures > 0 && now.due_us > round->now_us)
	{
		round->next_us = Min(round->next_us, now.due_us);
		return;
	}
	if (strange_tables != NIL && list_member_oid(strange_tables, now.snapshots))
	{
		add_candidate(round, &now, false, false);
		return;
	}
	idle = now.idle_timeout_us >= 0 && round->now_us - now.last_used_us >= now.idle_timeout_us;
	if (round->wanted != WANT_DUE || now.unload_asked)
		add_candidate(round, &now, true, false);
	else if (idle && now.failures == 0 && !now.has_terminator)
		add_candidate(round, &now, true, false);
	else if (idle && now.failures == 0 && !now.stop_sent)
		add_candidate(round, &now, false, true);
	else if (entity_is_dirty(&now) && (now.due_us != 0 ? now.due_us <= round->now_us : idle))
		add_candidate(round, &now, false, false);	/* idle: its terminator may fail, or be told much later */
	else
	{
		if (entity_is_dirty(&now) && now.due_us != 0)
			round->next_us = Min(round->next_us, now.due_us);
		if (now.idle_timeout_us >= 0 && !idle)
			round->next_us = Min(round->next_us, now.last_used_us + now.idle_timeout_us);
	}
}

static int
by_age(const void *a, const void *b)
{
	int64		left = ((const Candidate *) a)->last_used_us;
	int64		right = ((const Candidate *) b)->last_used_us;

	return left < right ? -1 : left > right ? 1 : 0;
}

static int
by_table(const void *a, const void *b)
{
	const Candidate *left = a;
	const Candidate *right = b;

	if (left->snapshots != right->snapshots)
		return left->snapshots < right->snapshots ? -1 : 1;
	return by_age(a, b);
}

static void
remember_tables(const List *found)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);	/* until the next round */

	list_free(tables);
	tables = list_copy(found);
	MemoryContextSwitchTo(old);
}

/* Looks through memory once, and does what it finds. Says what there was. */
static Round
do_round(Wanted wanted)
{
	Round		round = {.wanted = wanted,.now_us = clock_now_us()};
	int64		before = written;

	MemoryContextReset(round_context);
	MemoryContextSwitchTo(round_context);
	round.next_us = round.now_us + ROUND_LONGEST_US;
	/* what becomes due from here on makes it look earlier */
	pg_atomic_write_u64(&flusher->next_due_us, (uint64) PG_INT64_MAX);
	entity_memory_visit(service->task.instance, look_at, &round);
	remember_tables(round.tables);
	if (wanted == WANT_OLDEST)
	{
		qsort(round.candidates, round.ncandidates, sizeof(Candidate), by_age);
		round.ncandidates = round.ncandidates / PRESSED_PART + 1 < round.ncandidates ?
			round.ncandidates / PRESSED_PART + 1 : round.ncandidates;
	}
	qsort(round.candidates, round.ncandidates, sizeof(Candidate), by_table);
	round.failed = do_candidates(round.candidates, round.ncandidates);
	round.done = written != before;
	for (int i = 0; i < round.ncandidates; i++)
		entity_entry_sweep(&round.candidates[i].key);
	if ((int64) pg_atomic_read_u64(&flusher->next_due_us) > round.next_us)
		pg_atomic_write_u64(&flusher->next_due_us, (uint64) round.next_us);
	return round;
}

/* ---------------------------------------------------------------- its life */

static void
stop_accepting(int code, Datum arg)
{
	if (overdue)
	{
		/* the next flusher is not to begin with the same, or it would never come to anything else */
		(void) note_failures(under_way, nunder_way);
		ereport(LOG,
				(errmsg("revenant ended the flusher of role \"%s\": a function went on although it was cancelled", service->name),
				 errdetail("What was not written stays in memory, for the next one; it is lost if the server is being stopped.")));
	}
	pg_atomic_write_u32(&flusher->accepting, 0);
	pg_atomic_write_u32(&flusher->place, 0);
}

static void
wait_until(int64 until_us)
{
	int64		left_us = Max(until_us - clock_now_us(), ROUND_SHORTEST_US);

	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 (long) (left_us / US_PER_MS) + 1, compat_wait_event("RevenantFlusher"));
	ResetLatch(MyLatch);
	check_between();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

/* Finds those of the tables that are not ours any more. */
static void
look_for_strange_tables(void)
{
	ListCell   *cell;
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);	/* until the next round */

	list_free(strange_tables);
	strange_tables = NIL;
	foreach(cell, tables)
	{
		Oid			owner;

		if (is_strange(lfirst_oid(cell), &owner))
			strange_tables = lappend_oid(strange_tables, lfirst_oid(cell));
	}
	MemoryContextSwitchTo(old);
}

/* Whether the extension that it was started for is there still. Looks at the tables, too. */
static bool
is_wanted(void)
{
	const Extension *extension;
	bool		wanted;

	check_between();
	StartTransactionCommand();
	extension = extension_find();
	wanted = extension != NULL && extension->extension == service->task.instance;
	look_for_strange_tables();
	CommitTransactionCommand();
	return wanted;
}

/* Writes what it has accepted: as it becomes due, until it is told to end or had nothing for a while. */
static void
serve(void)
{
	int64		used_us = clock_now_us();

	while (!ShutdownRequestPending && is_wanted())
	{
		int			loaded;

		pgstat_report_activity(STATE_RUNNING, "revenant: flushing entities");
		if (pg_atomic_exchange_u32(&flusher->pressed, 0) != 0)
			(void) do_round(WANT_OLDEST);
		loaded = do_round(WANT_DUE).loaded;
		pgstat_report_activity(STATE_IDLE, NULL);
		if (loaded > 0 || pg_atomic_read_u32(&flusher->inflight) > 0)
			used_us = clock_now_us();
		if (clock_now_us() - used_us > LINGER_US)
			break;
		if (!ShutdownRequestPending)
			wait_until(Min((int64) pg_atomic_read_u64(&flusher->next_due_us), clock_now_us() + ROUND_LONGEST_US));
	}
}

/* How long it goes on at its end when nothing can be written. */
static int64
patience_us(const Round *round)
{
	if (!worker_server_is_stopping())
		return GIVE_UP_LEFT_US;
	/* who could give something back? */
	return round->failed < round->loaded && CountDBConnections(MyDatabaseId) > 0 ? GIVE_UP_BUSY_US : GIVE_UP_FAILED_US;
}

/* Accepts nothing more, waits for those that were counted in, and writes all. */
static void
finish(void)
{
	int64		progress_us;
	Round		round;

	pg_atomic_write_u32(&flusher->accepting, 0);
	pg_memory_barrier();
	DEBUG_POINT("flusher-finishing");
	while (pg_atomic_read_u32(&flusher->inflight) > 0)
	{
		(void) do_round(WANT_DUE);
		wait_until(clock_now_us() + 20 * US_PER_MS);
	}
	finishing = true;
	progress_us = clock_now_us();
	while ((round = do_round(WANT_ALL)).loaded > 0)
	{
		if (round.done)
			progress_us = clock_now_us();
		else if (clock_now_us() - progress_us > patience_us(&round))
			break;
		else
			wait_until(clock_now_us() + FINISH_PAUSE_US);
	}
	if (round.loaded > 0 && worker_server_is_stopping())
		ereport(WARNING,
				(errmsg("revenant could not write %d entities of role \"%s\" into their rows", round.loaded, service->name),
				 errdetail("The server is being stopped: what was not in their rows is lost.")));
	else if (round.loaded > 0)
		ereport(LOG,
				(errmsg("revenant leaves %d entities of role \"%s\" in memory to its next flusher", round.loaded, service->name)));
}

/* The whole life of a flusher. */
static void
flush(void)
{
	flusher = flusher_find(service->task.instance, runner_me.role, true);
	if (flusher == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("no shared memory is left for a flusher"),
				 errhint("Set revenant.shared_memory higher.")));
	stat_attach(service->task.instance);
	before_shmem_exit(stop_accepting, (Datum) 0);
	pg_atomic_write_u32(&flusher->wanted, 0);
	pg_atomic_write_u32(&flusher->place, (uint32) compat_my_procno() + 1);
	pg_atomic_write_u32(&flusher->accepting, 1);
	serve();
	finish();
}

/* A flusher. */
void
revenant_flush_main(Datum main_arg)
{
	RunnerSlot	slot;

	runner_process_attach(main_arg, &slot);
	service = &slot;
	runner_process_connect("revenant flush", "");
	worker_pin_settings();
	/* it ends when all is written */
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGUSR2, on_overdue);
	alarm_make(&overdue_alarm, SIGUSR2);
	RegisterXactCallback(on_xact_end, NULL);
	/* for the life of this process */
	round_context = AllocSetContextCreate(TopMemoryContext, "revenant flusher round", ALLOCSET_DEFAULT_SIZES);
	batch_context = AllocSetContextCreate(TopMemoryContext, "revenant flusher batch", ALLOCSET_DEFAULT_SIZES);

	runner_process_run(flush);
}

/* ---------------------------------------------------------------- the supervisor's */

static void
note_wanted(const Flusher *candidate, void *arg)
{
	if (pg_atomic_read_u32(unconstify(pg_atomic_uint32 *, &candidate->wanted)) != 0 ||
		pg_atomic_read_u32(unconstify(pg_atomic_uint32 *, &candidate->loaded)) > 0)
		*(List **) arg = lappend_oid(*(List **) arg, candidate->key.owner);
}

static void
want_flushers(void *arg)
{
	ListCell   *cell;

	foreach(cell, *(List **) arg)
	{
		char	   *name = GetUserNameFromId(lfirst_oid(cell), true);

		/* one that nobody can be connected as has its calls done strictly */
		if (name != NULL && task_role_problem(name, lfirst_oid(cell)) == NULL)
			service_want(RUNNER_FLUSH, lfirst_oid(cell), name);
	}
}

/* A supervisor's, in each tick: wants a flusher for each role that has entities in memory, or would have. */
void
flusher_look(Oid instance)
{
	List	   *owners = NIL;

	flusher_visit(instance, note_wanted, &owners);
	if (owners != NIL)
		(void) tick_step("look for entities that are to be flushed", want_flushers, &owners);
}
