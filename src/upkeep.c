/*-------------------------------------------------------------------------
 *
 * upkeep.c
 *	  What a supervisor does in each tick beside its tasks: lapsed leases, the
 *	  length of the history, old requests, notifications.
 *
 * A little each time, since tasks go on meanwhile.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "debug.h"
#include "events.h"
#include "extension.h"
#include "guc.h"
#include "lease.h"
#include "request.h"
#include "task_run.h"
#include "tick.h"
#include "upkeep.h"

#define SWEEP_EVERY_US (60 * US_PER_S)
#define SWEEP_AGAIN_US (1 * US_PER_S)	/* while there are many, or somebody may be listening for a lapse */
#define SWEEP_BATCH 50
#define SWEEP_SLICE_US (50 * US_PER_MS)
#define SWEEP_PAUSE_US (10 * US_PER_MS)
#define PRUNE_BATCH 1000
#define ROTATE_EVERY_US (60 * US_PER_S)

static int64 swept_us = 0;
static int64 purged_us = 0;
static int	lapsed = 0;			/* leases that are still to be removed */
static bool sweep_singly = false;	/* after a batch that failed */

static void
look_for_lapsed(void *arg)
{
	DEBUG_POINT("supervisor-before-sweep");
	*(bool *) arg = lease_sweep_look();
}

static void
sweep_some(void *arg)
{
	*(int *) arg = lease_sweep_some(sweep_singly ? 1 : SWEEP_BATCH);
}

static void
purge_leases(void *arg)
{
	lease_purge();
}

/*
 * Removes lapsed leases: once in a while, a few at a time, and while there are
 * more of them with pauses, since tasks go on meanwhile.
 */
void
upkeep_leases(void)
{
	static bool more = false;	/* than one look remembers */
	int64		every_us = more || guc_notify ? SWEEP_AGAIN_US : SWEEP_EVERY_US;
	int64		since_us = clock_now_us();

	if (lapsed == 0 && since_us - swept_us >= every_us)
	{
		swept_us = since_us;
		(void) tick_step("look for lapsed leases", look_for_lapsed, &more);
		lapsed = 1;
	}
	while (lapsed > 0 && clock_now_us() - since_us < SWEEP_SLICE_US)
	{
		CHECK_FOR_INTERRUPTS();
		lapsed = 0;
		if (tick_step("remove lapsed leases", sweep_some, &lapsed))
			continue;
		/* one that cannot be removed is not to keep the others of its batch: look again, and take one by one */
		more = !sweep_singly || more;
		lapsed = sweep_singly ? 1 : 0;
		sweep_singly = true;
	}
	if (lapsed == 0 && !more)
		sweep_singly = false;
	if (since_us - purged_us >= SWEEP_EVERY_US && lapsed == 0)
	{
		purged_us = since_us;
		(void) tick_step("give back the memory of leases", purge_leases, NULL);
	}
	tick_at_most(lapsed > 0 ? SWEEP_PAUSE_US : every_us);
}

typedef struct Prune
{
	TimestampTz before;
	int			removed;
} Prune;

static void
prune_some(void *arg)
{
	Prune	   *prune = arg;
	Extension	oids = *extension_get();
	TaskRuns	runs;

	if (!task_run_try_open(&oids, &runs))
		return;
	prune->removed = task_run_prune(&runs, prune->before, PRUNE_BATCH);
	task_run_close(&runs);
}

/* Removes runs that are older than the history goes back: now and then, a batch in each tick. */
void
upkeep_history(void)
{
	static int64 history_pruned_us = 0;
	Prune		prune = {0};

	if (guc_history_retention_s < 0 ||
		(history_pruned_us != 0 && clock_now_us() - history_pruned_us < SWEEP_EVERY_US))
		return;
	prune.before = GetCurrentTimestamp() - guc_history_retention_s * US_PER_S;
	(void) tick_step("shorten the history of its tasks", prune_some, &prune);
	if (prune.removed < PRUNE_BATCH)
		history_pruned_us = clock_now_us();
	else
		tick_at_most(SWEEP_PAUSE_US);
}

static void
rotate_requests(void *arg)
{
	request_rotate();
}

/* Has the answers to requests that are old enough forgotten: looks now and then. */
void
upkeep_requests(void)
{
	static int64 looked_us = 0;

	if (looked_us != 0 && clock_now_us() - looked_us < ROTATE_EVERY_US)
		return;
	looked_us = clock_now_us();
	(void) tick_step("forget old requests", rotate_requests, NULL);
}

static void
notify(void *arg)
{
	bool		more;

	if (!events_notify_deferred(&more))
		tick_at_most(RETRY_US);
	else if (more)
		tick_at_most(0);
}

/* Notifies of what workers told and left to it: a batch in each tick. */
void
upkeep_notifications(void)
{
	(void) tick_step("notify of what its tasks did", notify, NULL);
}
