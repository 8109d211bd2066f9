/*-------------------------------------------------------------------------
 *
 * tick.c
 *	  One look of a worker at everything: its memory, its steps, and when the
 *	  next one comes.
 *
 * A step is a transaction of its own. One that fails is rolled back and told in
 * the log, and the rest of the tick goes on.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "debug.h"
#include "tick.h"

/* After a step that failed the next tick comes that soon. */
#define AFTER_ERROR_US (1 * US_PER_S)

MemoryContext tick_context = NULL;

static int64 wake_us = 0;		/* when the next tick must come at the latest */
static int64 complained_us = 0;
static uint32 complained_hash = 0;

/* Called once in a process. */
void
tick_init(void)
{
	/* for the life of this process */
	tick_context = AllocSetContextCreate(TopMemoryContext, "revenant supervisor tick", ALLOCSET_DEFAULT_SIZES);
}

/* Begins a tick; without anything else the next one comes in `longest_us`. */
void
tick_begin(int64 longest_us)
{
	DEBUG_TICK(TICK_OF_SUPERVISOR);
	wake_us = clock_now_us() + longest_us;
	MemoryContextSwitchTo(tick_context);
}

/* The next tick comes in `us` at the latest; however much that is, what was said before holds. */
void
tick_at_most(int64 us)
{
	int64		now_us = clock_now_us();

	if (us < wake_us - now_us)
		wake_us = now_us + Max(us, 0);
}

/* How long it is to the next tick; not positive: it is due. */
int64
tick_left_us(void)
{
	return wake_us - clock_now_us();
}

uint32
tick_text_hash(const char *text)
{
	return DatumGetUInt32(hash_any((const unsigned char *) text, (int) strlen(text)));
}

/*
 * Runs a step in a transaction of its own. False when it failed: then it was
 * rolled back, and the log says so, but the same error at most once a minute.
 */
bool
tick_step(const char *what, TickStep step, void *arg)
{
	volatile bool done = false;

	PG_TRY();
	{
		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		PushActiveSnapshot(GetTransactionSnapshot());
		step(arg);
		if (ActiveSnapshotSet())
			PopActiveSnapshot();
		CommitTransactionCommand();
		done = true;
	}
	PG_CATCH();
	{
		ErrorData  *error;
		uint32		hash;

		MemoryContextSwitchTo(tick_context);
		error = CopyErrorData();
		FlushErrorState();
		AbortOutOfAnyTransaction();
		hash = tick_text_hash(error->message ? error->message : "") ^ tick_text_hash(what);
		if (hash != complained_hash || clock_now_us() - complained_us > TICK_COMPLAIN_EVERY_US)
		{
			complained_hash = hash;
			complained_us = clock_now_us();
			ereport(LOG,
					(errcode(error->sqlerrcode),
					 errmsg("revenant supervisor could not %s: %s", what, error->message ? error->message : "?"),
					 error->detail ? errdetail_internal("%s", error->detail) : 0));
		}
		tick_at_most(AFTER_ERROR_US);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(tick_context);
	return done;
}

