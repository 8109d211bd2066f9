/*-------------------------------------------------------------------------
 *
 * events.c
 *	  What happened last: a ring in shared memory, the log, and NOTIFY.
 *
 * An event is about a transition, never about a renewal. One that a
 * transaction causes is kept by it and told when it commits; what a savepoint
 * that was rolled back caused is not told.
 *
 * NOTES
 *	  The ring is a cache like everything in shared memory: a restart empties
 *	  it. Its numbers begin with the time of the start, so that they only grow,
 *	  and who asks for what came since a number misses nothing for having asked
 *	  before a restart.
 *
 *	  Workers leave NOTIFY to the supervisor, which does it when it need not wait.
 *
 *	  The commit callback only copies what was made ready before. The log and
 *	  NOTIFY can fail, and come before the commit: with a commit that fails at
 *	  its very end the log then tells of something that did not happen.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_database.h"
#include "commands/async.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "events.h"
#include "extension.h"
#include "guc.h"
#include "lease.h"
#include "stat.h"

#define CHANNEL "revenant"
#define PHASE_MAX 32
#define DETAIL_MAX 1024
#define VALUE_MAX 256			/* bytes of one value in the detail */
#define NOTIFY_BATCH 64			/* deferred notifications in one transaction */

/* One event in the ring. Fixed in size, so that a commit callback can write it. */
typedef struct Record
{
	int64		seq;
	TimestampTz at;
	Oid			database;
	Oid			role;
	int64		token;
	int			pid;
	EventKind	kind;
	bool		routine;
	bool		unsent;			/* NOTIFY is still to tell it */
	char		phase[PHASE_MAX];
	char		subject[LEASE_NAME_MAX + 1];
	char		detail[DETAIL_MAX]; /* JSON; empty: none */
} Record;

typedef struct Ring
{
	int			tranche;
	LWLock		lock;			/* all below; nothing is taken while it is held */
	int64		last;			/* the newest number */
	int64		first;			/* the number that the oldest record had when the ring was empty */
	Record		records[FLEXIBLE_ARRAY_MEMBER];
} Ring;

static Ring *ring = NULL;

static bool notify_deferred = false;	/* NOTIFY is left to the supervisor */

/* What this transaction will tell at commit, in the order in which it happened; all of it in TopTransactionContext. */
typedef struct Pending
{
	int			nest_level;
	Record		record;
} Pending;

static List *pending = NIL;

/* How far a kind of event goes */
typedef enum Reach
{
	REACH_ASKED,				/* only into the log, where revenant.log_events asks for it: it is not worth a place in the ring */
	REACH_RING,					/* into the ring and NOTIFY, and into the log where that is asked */
	REACH_LOG					/* everywhere */
} Reach;

static const struct
{
	const char *name;
	Reach		reach;
}			kinds[] = {
	[EVENT_PROCESS_INITIALIZED] = {"process.initialized", REACH_LOG},
	[EVENT_PROCESS_TERMINATING] = {"process.terminating", REACH_LOG},
	[EVENT_LEADERSHIP_CLAIMED] = {"leadership.claimed", REACH_LOG},
	[EVENT_LEADERSHIP_REFRESHED] = {"leadership.refreshed", REACH_ASKED},
	[EVENT_LEADERSHIP_REJECTED] = {"leadership.rejected", REACH_LOG},
	[EVENT_LEADERSHIP_LOST] = {"leadership.lost", REACH_LOG},
	[EVENT_LEADERSHIP_REVOKED] = {"leadership.revoked", REACH_LOG},
	[EVENT_MONITOR_STARTED] = {"monitor.started", REACH_LOG},
	[EVENT_MONITOR_LEADER_DOWN] = {"monitor.leader_down", REACH_LOG},
	[EVENT_CHILD_STARTED] = {"child.started", REACH_RING},
	[EVENT_CHILD_STOPPED] = {"child.stopped", REACH_RING},
	[EVENT_CHILD_EXITED] = {"child.exited", REACH_RING},
	[EVENT_TASK_DISABLED] = {"task.disabled", REACH_RING},
	[EVENT_TASK_HELD] = {"task.held", REACH_RING},
	[EVENT_TASK_SCHEDULED] = {"task.scheduled", REACH_RING},
	[EVENT_TASK_CLAIMING] = {"task.claiming", REACH_RING},
	[EVENT_TASK_LEADING] = {"task.leading", REACH_RING},
	[EVENT_TASK_STOPPING] = {"task.stopping", REACH_RING},
	[EVENT_TASK_BACKOFF] = {"task.backoff", REACH_RING},
	[EVENT_TASK_QUARANTINED] = {"task.quarantined", REACH_RING},
	[EVENT_TASK_WAITING_FOR_SLOT] = {"task.waiting_for_slot", REACH_RING},
	[EVENT_TASK_FOLLOWING] = {"task.following", REACH_RING},
	[EVENT_TASK_FINISHED] = {"task.finished", REACH_RING},
	[EVENT_ENTITY_LOADED] = {"entity.loaded", REACH_RING},
	[EVENT_ENTITY_FLUSHED] = {"entity.flushed", REACH_RING},
	[EVENT_ENTITY_CONFLICT] = {"entity.conflict", REACH_LOG},
	[EVENT_MESSAGE_SET_ASIDE] = {"message.set_aside", REACH_LOG},
	[EVENT_PLAN_JOINED] = {"plan.joined", REACH_RING},
	[EVENT_PLAN_LEFT] = {"plan.left", REACH_RING},
	[EVENT_PLAN_EXPIRED] = {"plan.expired", REACH_LOG},
	[EVENT_PLAN_QUARANTINED] = {"plan.quarantined", REACH_LOG},
	[EVENT_PLAN_COMPLETE] = {"plan.complete", REACH_LOG},
	[EVENT_PLAN_STALLED] = {"plan.stalled", REACH_LOG},
	[EVENT_PLAN_REPLAN_FAILED] = {"plan.replan_failed", REACH_RING},
};

/* What this file needs in the fixed segment, in bytes. */
Size
events_shmem_size(void)
{
	return add_size(offsetof(Ring, records), mul_size(guc_event_buffer, sizeof(Record)));
}

/* Called by shmem.c at every start of shared memory. */
void
events_shmem_init(void *place, bool found)
{
	ring = place;
	if (!found)
	{
		ring->tranche = LWLockNewTrancheId();
		LWLockInitialize(&ring->lock, ring->tranche);
		ring->first = ring->last = (int64) GetCurrentTimestamp();
	}
	LWLockRegisterTranche(ring->tranche, "RevenantEvents");
}

/* Whether it is worth a place in the ring, and a notification. */
static bool
is_kept(EventKind kind)
{
	return kinds[kind].reach >= REACH_RING;
}

/* The next item of a list, which is moved behind it; NULL: there is none. */
static const char *
next_item(const char **list, size_t *length)
{
	const char *item = *list + strspn(*list, ", ");

	*length = strcspn(item, ", ");
	*list = item + *length;
	return *length > 0 ? item : NULL;
}

/* Whether revenant.log_events may have this value: each item of a list must be the beginning of some event's name. */
bool
events_filter_is_valid(const char *filter)
{
	const char *item;
	size_t		length;
	int			items = 0;

	if (strcmp(filter, "off") == 0 || strcmp(filter, "transitions") == 0 || strcmp(filter, "all") == 0)
		return true;
	while ((item = next_item(&filter, &length)) != NULL)
	{
		int			kind = 0;

		while (kind < (int) lengthof(kinds) && strncmp(kinds[kind].name, item, length) != 0)
			kind++;
		if (kind == lengthof(kinds))
			return false;
		items++;
	}
	return items > 0;
}

/* Whether revenant.log_events wants this kind in the log. */
static bool
is_logged(EventKind kind, bool routine)
{
	const char *wanted = guc_log_events;
	const char *item;
	size_t		length;

	if (strcmp(wanted, "off") == 0)
		return false;
	if (strcmp(wanted, "all") == 0)
		return true;
	if (strcmp(wanted, "transitions") == 0)
		return kinds[kind].reach >= REACH_LOG && !routine;
	while ((item = next_item(&wanted, &length)) != NULL)
	{
		if (strncmp(kinds[kind].name, item, length) == 0)
			return true;
	}
	return false;
}

/* Appends a value as JSON, cut where it is too long for the ring. */
static void
append_value(StringInfo json, const char *value)
{
	int			length = pg_mbcliplen(value, strlen(value), VALUE_MAX);

	escape_json(json, pnstrdup(value, length));
}

static void
fill_detail(Record *record, const Event *event)
{
	StringInfoData json;

	initStringInfo(&json);
	for (int i = 0; i + 1 < (int) lengthof(event->detail) && event->detail[i] != NULL; i += 2)
	{
		if (event->detail[i + 1] == NULL)
			continue;
		appendStringInfoString(&json, json.len == 0 ? "{" : ", ");
		escape_json(&json, event->detail[i]);
		appendStringInfoString(&json, ": ");
		append_value(&json, event->detail[i + 1]);
	}
	if (json.len > 0)
		appendStringInfoChar(&json, '}');
	/* half a document is none; only values full of control characters come here */
	if (json.len < DETAIL_MAX)
		strlcpy(record->detail, json.data, DETAIL_MAX);
	pfree(json.data);
}

static void
fill(Record *record, const Event *event)
{
	memset(record, 0, sizeof(*record));
	record->at = GetCurrentTimestamp();
	record->database = MyDatabaseId;
	record->role = event->role;
	record->token = event->token;
	record->pid = event->pid != 0 ? event->pid : MyProcPid;
	record->kind = event->kind;
	record->routine = event->routine;
	record->unsent = notify_deferred && guc_notify && is_kept(event->kind) && !RecoveryInProgress();
	strlcpy(record->phase, event->phase ? event->phase : "", PHASE_MAX);
	strlcpy(record->subject, event->subject, sizeof(record->subject));
	fill_detail(record, event);
}

/* Has this transaction tell it to who listens: names only, since LISTEN needs no privilege. */
static void
notify(const Record *record)
{
	StringInfoData payload;

	initStringInfo(&payload);
	appendStringInfoString(&payload, "{\"event\": ");
	escape_json(&payload, kinds[record->kind].name);
	appendStringInfoString(&payload, ", \"subject\": ");
	escape_json(&payload, record->subject);
	appendStringInfoChar(&payload, '}');
	Async_Notify(CHANNEL, payload.data);
	pfree(payload.data);
}

/* The log, and NOTIFY where there is a transaction that can carry it. May raise. */
static void
announce(const Record *record)
{
	if (is_logged(record->kind, record->routine))
		ereport(LOG_SERVER_ONLY,	/* not to a client: the token is not for everybody */
				(errmsg("%s: \"%s\"", kinds[record->kind].name, record->subject),
				 record->token != 0 ? errdetail("Token %lld.%s%s", (long long) record->token,
												record->detail[0] ? " " : "", record->detail) :
				 record->detail[0] ? errdetail("%s", record->detail) : 0));
	if (guc_notify && is_kept(record->kind) && !notify_deferred && IsTransactionState() && !RecoveryInProgress())
		notify(record);
}

/* Never raises. */
static void
put(const Record *record)
{
	LWLockAcquire(&ring->lock, LW_EXCLUSIVE);
	ring->last++;
	ring->records[ring->last % guc_event_buffer] = *record;
	ring->records[ring->last % guc_event_buffer].seq = ring->last;
	LWLockRelease(&ring->lock);
	stat_count(STAT_EVENTS);
}

/*
 * Tells something that happened whatever becomes of this transaction. Takes
 * the ring's lock alone.
 */
void
event_now(const Event *event)
{
	Record	   *record;

	if (!is_kept(event->kind) && !is_logged(event->kind, event->routine))
		return;
	record = palloc(sizeof(Record));
	fill(record, event);
	announce(record);
	if (is_kept(event->kind))
		put(record);
	pfree(record);
}

static bool
is_pending(const Event *event)
{
	ListCell   *cell;

	foreach(cell, pending)
	{
		const Record *told = &((Pending *) lfirst(cell))->record;

		if (told->kind == event->kind && told->token == event->token && strcmp(told->subject, event->subject) == 0)
			return true;
	}
	return false;
}

/* Tells something that this transaction does, when it commits. Once for each kind, subject and token. */
void
event_at_commit(const Event *event)
{
	MemoryContext old;
	Pending    *added;

	if (is_pending(event))
		return;
	old = MemoryContextSwitchTo(TopTransactionContext);
	added = palloc(sizeof(Pending));
	fill(&added->record, event);
	added->nest_level = GetCurrentTransactionNestLevel();
	pending = lappend(pending, added);
	MemoryContextSwitchTo(old);
}

static void
on_xact_end(XactEvent event, void *arg)
{
	ListCell   *cell;

	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			foreach(cell, pending)
				announce(&((Pending *) lfirst(cell))->record);
			break;
		case XACT_EVENT_COMMIT:
			foreach(cell, pending)
				put(&((Pending *) lfirst(cell))->record);
			pending = NIL;		/* the memory goes with the transaction */
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			pending = NIL;
			break;
		default:
			break;
	}
}

static void
on_subxact_end(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	int			level = GetCurrentTransactionNestLevel();
	ListCell   *cell;

	if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		foreach(cell, pending)
		{
			Pending    *told = lfirst(cell);

			told->nest_level = Min(told->nest_level, level - 1);
		}
	}
	else if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		/* the latest ones are the innermost */
		while (pending != NIL && ((Pending *) llast(pending))->nest_level >= level)
			pending = list_truncate(pending, list_length(pending) - 1);
	}
}

/* Called once, by _PG_init under shared_preload_libraries. */
void
events_install_callbacks(void)
{
	RegisterXactCallback(on_xact_end, NULL);
	RegisterSubXactCallback(on_subxact_end, NULL);
}

/*
 * From here on what this process tells is notified by the database's supervisor:
 * a commit that notifies waits for every other one that does, which may take
 * as long as a standby keeps that waiting.
 */
void
events_defer_notify(bool deferred)
{
	notify_deferred = deferred;
}

/* Takes the lock under which a commit notifies, until this transaction ends. False: somebody has it. */
static bool
try_notify_lock(void)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, InvalidOid, 0);
	return LockAcquire(&tag, AccessExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

static int64 notified = 0;		/* up to here nothing of this database is unsent */

/* The next record that is to be notified, moved from *seq on; NULL: there is none. The caller holds the ring's lock. */
static Record *
next_unsent(int64 *seq)
{
	*seq = Max(Max(*seq, ring->first), ring->last - guc_event_buffer);
	while (*seq < ring->last)
	{
		Record	   *record = &ring->records[++*seq % guc_event_buffer];

		if (record->unsent && record->database == MyDatabaseId)
			return record;
	}
	return NULL;
}

static bool
is_among(const Record *record, const Record *records, int count)
{
	for (int i = 0; i < count; i++)
	{
		if (records[i].kind == record->kind && strcmp(records[i].subject, record->subject) == 0)
			return true;
	}
	return false;
}

/*
 * The supervisor's, in a transaction of its own: notifies of what was deferred
 * in this database, a batch of it: *more says that there is more, since a
 * transaction tells the same thing only once. Waits for nobody: false if somebody
 * else notifies just now. Takes the lock of NOTIFY, then the ring's. An
 * error loses what it took.
 */
bool
events_notify_deferred(bool *more)
{
	Record	   *taken;
	Record	   *record;
	int			count = 0;
	int64		seq = notified;

	*more = false;
	if (ring->last == notified)
		return true;
	LWLockAcquire(&ring->lock, LW_SHARED);
	record = next_unsent(&seq);
	LWLockRelease(&ring->lock);
	if (record == NULL)
	{
		notified = seq;
		return true;
	}
	if (!try_notify_lock())
		return false;
	taken = palloc(NOTIFY_BATCH * sizeof(Record));
	seq = notified;
	LWLockAcquire(&ring->lock, LW_EXCLUSIVE);
	while (!*more && (record = next_unsent(&seq)) != NULL)
	{
		*more = count == NOTIFY_BATCH || is_among(record, taken, count);
		if (*more)
			break;
		record->unsent = false;
		taken[count++] = *record;
		notified = seq;
	}
	if (!*more)
		notified = seq;
	LWLockRelease(&ring->lock);
	for (int i = 0; i < count; i++)
		notify(&taken[i]);
	pfree(taken);
	return true;
}

/* Copies of what the ring has of this database after `since`, oldest first. */
static Record *
copy_records(int64 since, int *count)
{
	Record	   *copies = palloc_extended((Size) guc_event_buffer * sizeof(Record), MCXT_ALLOC_HUGE);
	int64		seq;
	int			n = 0;

	LWLockAcquire(&ring->lock, LW_SHARED);
	seq = Min(Max(Max(since, ring->first), ring->last - guc_event_buffer), ring->last) + 1;
	for (; seq <= ring->last; seq++)
	{
		const Record *record = &ring->records[seq % guc_event_buffer];

		if (record->database == MyDatabaseId)
			copies[n++] = *record;
	}
	LWLockRelease(&ring->lock);
	*count = n;
	return copies;
}

/*
 * revenant.events(since)
 *
 * The latest events of this database with a number above `since`, oldest
 * first. Token and detail only for members of the role that they are about
 * and for admins. Works on a standby, which tells what happened there.
 */
SQL_FUNCTION(revenant_events)
{
	enum
	{
		COL_SEQ, COL_AT, COL_EVENT, COL_SUBJECT, COL_PHASE, COL_TOKEN, COL_NODE, COL_PID, COL_DETAIL, COLUMNS
	};
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	int64		since = PG_ARGISNULL(0) ? 0 : PG_GETARG_INT64(0);
	bool		admin = extension_role_is_admin(GetUserId());
	int			count;
	Record	   *records = copy_records(since, &count);

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < count; i++)
	{
		const Record *record = &records[i];
		bool		privileged = admin ||
			(OidIsValid(record->role) && is_member_of_role(GetUserId(), record->role));
		Datum		values[COLUMNS];
		bool		nulls[COLUMNS] = {false};

		memset(values, 0, sizeof(values));
		values[COL_SEQ] = Int64GetDatum(record->seq);
		values[COL_AT] = TimestampTzGetDatum(record->at);
		values[COL_EVENT] = CStringGetTextDatum(kinds[record->kind].name);
		values[COL_SUBJECT] = CStringGetTextDatum(record->subject);
		nulls[COL_PHASE] = record->phase[0] == '\0';
		if (!nulls[COL_PHASE])
			values[COL_PHASE] = CStringGetTextDatum(record->phase);
		values[COL_TOKEN] = Int64GetDatum(record->token);
		nulls[COL_TOKEN] = record->token == 0 || !privileged;
		values[COL_NODE] = CStringGetTextDatum(guc_effective_node_name());
		values[COL_PID] = Int32GetDatum(record->pid);
		nulls[COL_DETAIL] = record->detail[0] == '\0' || !privileged;
		if (!nulls[COL_DETAIL])
			values[COL_DETAIL] = DirectFunctionCall1(jsonb_in, CStringGetDatum(record->detail));
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	pfree(records);
	return (Datum) 0;
}
