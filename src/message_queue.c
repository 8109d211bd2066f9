/*-------------------------------------------------------------------------
 *
 * message_queue.c
 *	  What of a sender's messages is due, in which order, and when more will be.
 *
 * A sender has three queues (MessageLane), which are stretches of one index:
 *
 *		sends		by message_id
 *		timers		by deliver_at, then message_id
 *		retries		by deliver_at; as long as an entity has one here nothing
 *					else of this sender is delivered to it
 *
 * Sends and timers are merged by the time when each was sent or due. Neither is
 * reordered in itself.
 *
 * NOTES
 *	  A look goes through the queues from their beginnings, by one snapshot. There
 *	  is no mark of how far delivery has come: commits come out of order, and a number
 *	  that is lower than what was delivered may appear later. By one snapshot: if it sees a
 *	  message, it sees every one that was committed before that one was sent.
 *
 *	  The index begins with what a database is known by, so rows that came from
 *	  elsewhere are never met here, and ends with what the order is by, so the
 *	  earliest of 100,000 timers is the first one.
 *
 *	  Two entities with the same hash wait for each other's failures, and that is all.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/skey.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "message_queue.h"
#include "task.h"

/* As many of the retries are taken with one look: they come last, and everybody's turn comes. */
#define RETRIES_MAX 100

/* One lane, as it is read */
typedef struct Lane
{
	SysScanDesc scan;
	HeapTuple	tuple;			/* the next one, or NULL */
	Datum		values[MESSAGE_COLUMNS];
	bool		nulls[MESSAGE_COLUMNS];
} Lane;

/* ---------------------------------------------------------------- sets of entities */

/* What stands for an entity. */
uint64
message_entity(const char *type, const char *id)
{
	return hash_bytes_extended((const unsigned char *) id, (int) strlen(id),
							   hash_bytes_extended((const unsigned char *) type, (int) strlen(type), 0));
}

/* An empty set, which goes with its context. */
HTAB *
entity_set_make(MemoryContext context)
{
	HASHCTL		control = {.keysize = sizeof(uint64),.entrysize = sizeof(uint64),.hcxt = context};

	return hash_create("revenant entities", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

void
entity_set_add(HTAB *set, uint64 entity)
{
	(void) hash_search(set, &entity, HASH_ENTER, NULL);
}

bool
entity_set_has(HTAB *set, uint64 entity)
{
	return hash_get_num_entries(set) > 0 && hash_search(set, &entity, HASH_FIND, NULL) != NULL;
}

/* ---------------------------------------------------------------- lanes */

/* Reads on; when the patience of the look is over there is nothing more. */
static void
lane_next(Relation rel, Lane *lane, QueueLook *look, int *visited)
{
	CHECK_FOR_INTERRUPTS();
	lane->tuple = systable_getnext_ordered(lane->scan, ForwardScanDirection);
	if (!HeapTupleIsValid(lane->tuple))
		lane->tuple = NULL;
	else if (look->patience > 0 && (*visited)++ >= look->patience)
	{
		look->unsure = true;
		lane->tuple = NULL;
	}
	else
		heap_deform_tuple(lane->tuple, RelationGetDescr(rel), lane->values, lane->nulls);
}

static void
native_keys(ScanKey keys)
{
	ScanKeyInit(&keys[0], ATT_MESSAGE_SYSTEM_IDENTIFIER, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(task_identifier()));
	ScanKeyInit(&keys[1], ATT_MESSAGE_DATABASE_OID, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum((int64) MyDatabaseId));
}

static void
lane_open(Relation rel, Relation index, Snapshot snapshot, MessageLane which, Lane *lane, QueueLook *look, int *visited)
{
	ScanKeyData keys[4];

	native_keys(keys);
	ScanKeyInit(&keys[2], ATT_MESSAGE_SENDER_OID, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum((int64) look->sender));
	ScanKeyInit(&keys[3], ATT_MESSAGE_LANE, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(which));
	lane->scan = systable_beginscan_ordered(rel, index, snapshot, 4, keys);
	lane_next(rel, lane, look, visited);
}

static void
lane_close(Lane *lane)
{
	systable_endscan_ordered(lane->scan);
}

/* When the lane's next message is due, or was sent. */
static TimestampTz
lane_time(const Lane *lane, MessageLane which)
{
	int			attribute = which == LANE_SENDS ? ATT_MESSAGE_SENT_AT : ATT_MESSAGE_DELIVER_AT;

	return lane->nulls[attribute - 1] ? 0 : DatumGetTimestampTz(lane->values[attribute - 1]);
}

static uint64
lane_entity(const Lane *lane)
{
	char	   *type = TextDatumGetCString(lane->values[ATT_MESSAGE_TYPE - 1]);
	char	   *id = TextDatumGetCString(lane->values[ATT_MESSAGE_ID - 1]);
	uint64		entity = message_entity(type, id);

	pfree(type);
	pfree(id);
	return entity;
}

static DueMessage *
lane_due(const Lane *lane, uint64 entity)
{
	DueMessage *due = palloc(sizeof(DueMessage));

	due->message_id = DatumGetInt64(lane->values[ATT_MESSAGE_MESSAGE_ID - 1]);
	due->entity = entity;
	due->attempts = DatumGetInt32(lane->values[ATT_MESSAGE_ATTEMPTS - 1]);
	return due;
}

static void
note_next(QueueLook *look, TimestampTz at)
{
	if (look->next == 0 || at < look->next)
		look->next = at;
}

/* ---------------------------------------------------------------- a look */

/* The entities for which something is tried again; those that are due now besides, at most RETRIES_MAX. */
static int
look_at_retries(Relation rel, Relation index, Snapshot snapshot, QueueLook *look, TimestampTz now, HTAB *blocked, DueMessage **due,
				int *visited)
{
	Lane		lane;
	int			count = 0;

	lane_open(rel, index, snapshot, LANE_RETRIES, &lane, look, visited);
	for (; lane.tuple != NULL; lane_next(rel, &lane, look, visited))
	{
		TimestampTz at = lane_time(&lane, LANE_RETRIES);
		uint64		entity = lane_entity(&lane);

		if (!message_retry_is_due(at, DatumGetInt32(lane.values[ATT_MESSAGE_ATTEMPTS - 1]), now))
			note_next(look, at);
		else if (count < RETRIES_MAX && !entity_set_has(blocked, entity))
			due[count++] = lane_due(&lane, entity);
		entity_set_add(blocked, entity);
	}
	lane_close(&lane);
	return count;
}

/*
 * Fills in what is due now, and when more will be. The caller has opened and
 * locked `rel`, and is in a transaction that is READ COMMITTED.
 */
void
message_queue_look(const Extension *extension, Relation rel, QueueLook *look)
{
	Relation	index = index_open(extension->message_queue, AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	HTAB	   *blocked = entity_set_make(CurrentMemoryContext);
	DueMessage *retries[RETRIES_MAX];
	TimestampTz now = GetCurrentTimestamp();
	int			visited = 0;
	int			nretries;
	Lane		sends;
	Lane		timers;

	look->ndue = look->skipped = 0;
	look->next = 0;
	look->unsure = false;
	look->due = palloc(sizeof(DueMessage *) * (look->limit + RETRIES_MAX));
	nretries = look_at_retries(rel, index, snapshot, look, now, blocked, retries, &visited);

	lane_open(rel, index, snapshot, LANE_SENDS, &sends, look, &visited);
	lane_open(rel, index, snapshot, LANE_TIMERS, &timers, look, &visited);
	while (look->ndue < look->limit)
	{
		bool		timer_is_due = timers.tuple != NULL && lane_time(&timers, LANE_TIMERS) <= now;
		Lane	   *lane = &sends;
		uint64		entity;

		if (timer_is_due && (sends.tuple == NULL || lane_time(&timers, LANE_TIMERS) <= lane_time(&sends, LANE_SENDS)))
			lane = &timers;
		if (lane->tuple == NULL)
			break;
		entity = lane_entity(lane);
		if (entity_set_has(blocked, entity))
			look->skipped++;
		else
			look->due[look->ndue++] = lane_due(lane, entity);
		lane_next(rel, lane, look, &visited);
	}
	if (timers.tuple != NULL && lane_time(&timers, LANE_TIMERS) > now)
		note_next(look, lane_time(&timers, LANE_TIMERS));
	lane_close(&timers);
	lane_close(&sends);

	for (int i = 0; i < nretries; i++)
		look->due[look->ndue++] = retries[i];
	hash_destroy(blocked);
	UnregisterSnapshot(snapshot);
	index_close(index, AccessShareLock);
}

/*
 * The next sender behind `after` who has a message of any kind in this database; its
 * name, palloc'd, is the one in the first of its rows. False: there is none. The same conditions.
 */
bool
message_queue_next_sender(const Extension *extension, Relation rel, int64 after, int64 *sender, char **name)
{
	Relation	index = index_open(extension->message_queue, AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	ScanKeyData keys[3];
	SysScanDesc scan;
	HeapTuple	tuple;

	native_keys(keys);
	ScanKeyInit(&keys[2], ATT_MESSAGE_SENDER_OID, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum(after));
	scan = systable_beginscan_ordered(rel, index, snapshot, 3, keys);
	tuple = systable_getnext_ordered(scan, ForwardScanDirection);
	if (HeapTupleIsValid(tuple))
	{
		Datum		values[MESSAGE_COLUMNS];
		bool		nulls[MESSAGE_COLUMNS];

		heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
		*sender = DatumGetInt64(values[ATT_MESSAGE_SENDER_OID - 1]);
		*name = TextDatumGetCString(values[ATT_MESSAGE_SENDER - 1]);
	}
	systable_endscan_ordered(scan);
	UnregisterSnapshot(snapshot);
	index_close(index, AccessShareLock);
	return HeapTupleIsValid(tuple);
}
