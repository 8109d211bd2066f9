/*-------------------------------------------------------------------------
 *
 * message_due.c
 *	  Whose messages are due: what a supervisor does about them.
 *
 * In each tick it goes from sender to sender, looks at the beginning of the queues
 * of each, and wants a runner where something is due; when something else
 * will be it learns there, too. Where nothing is pending that is one look into
 * an empty index. Senders that have a runner are passed over: that one looks after them.
 *
 * What a role has sent that cannot be connected as any more is set aside here.
 *
 * NOTES
 *	  The supervisor waits for nobody: what is locked is done in a later tick.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "extension.h"
#include "message.h"
#include "message_due.h"
#include "message_queue.h"
#include "row.h"
#include "service.h"
#include "task.h"
#include "tick.h"
#include "worker.h"

/* So many messages of a role that is gone are set aside in one tick. */
#define SET_ASIDE_BATCH 200

/* Sets aside what is due of a role that nobody can be connected as. */
static void
set_aside_due(const Extension *extension, const QueueLook *look, const char *problem)
{
	MessageFailure failure = {.error = problem};
	Relation	rel;

	if (!row_try_open(extension->message, RowExclusiveLock, &rel) || rel == NULL)
	{
		tick_at_most(RETRY_US);
		return;
	}
	for (int i = 0; i < look->ndue; i++)
	{
		HeapTuple	tuple = row_find_number(rel, extension->message_pkey, look->due[i]->message_id);
		MessageRow	row;

		if (tuple == NULL || row_try_lock(rel, tuple) != ROW_LOCKED)
			continue;
		message_parse(tuple, RelationGetDescr(rel), &row);
		message_set_aside(rel, tuple, &row, &failure);
	}
	relation_close(rel, NoLock);
	/* more of them, or those that somebody has locked */
	tick_at_most(look->ndue >= SET_ASIDE_BATCH ? 0 : RETRY_US);
}

/* What is due of one sender, and when more will be. */
static void
look_at_sender(const Extension *extension, Relation rel, Oid sender, const char *name)
{
	char	   *current = GetUserNameFromId(sender, true);
	const char *problem = task_role_problem(current ? current : name, sender);
	QueueLook	look = {.sender = sender,.limit = problem ? SET_ASIDE_BATCH : 1,.patience = QUEUE_PATIENCE};

	message_queue_look(extension, rel, &look);
	if (look.next != 0)
		tick_at_most(look.next - GetCurrentTimestamp());
	if (look.ndue == 0 && !look.unsure)
		return;
	if (problem != NULL)
		set_aside_due(extension, &look, problem);
	else
		service_want(RUNNER_DELIVERY, sender, current);
}

static void
look_at_senders(void *arg)
{
	Extension	oids = *extension_get();
	Relation	rel = NULL;
	int64		sender = -1;
	char	   *name;
	MemoryContext context;
	MemoryContext old;

	if (!OidIsValid(oids.message_pkey) || !OidIsValid(oids.message_queue))
		return;
	if (!row_try_open(oids.message, AccessShareLock, &rel))
	{
		tick_at_most(RETRY_US);
		return;
	}
	if (rel == NULL)
		return;
	context = AllocSetContextCreate(CurrentMemoryContext, "revenant sender", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	while (message_queue_next_sender(&oids, rel, sender, &sender, &name))
	{
		CHECK_FOR_INTERRUPTS();
		if (!service_runs(RUNNER_DELIVERY, (Oid) sender))
			look_at_sender(&oids, rel, (Oid) sender, name);
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	relation_close(rel, NoLock);
}

/* Wants the runners that are to deliver. In a supervisor's tick, on a server that leads. */
void
message_look_for_due(void)
{
	if (worker_may_run(false))
		(void) tick_step("look for messages that are due", look_at_senders, NULL);
	else
		service_stop_all(RUNNER_DELIVERY);
}
