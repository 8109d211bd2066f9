/*-------------------------------------------------------------------------
 *
 * delivery.c
 *	  The process that delivers the messages and timers of one role, as that role.
 *
 * It takes what is due in the order of message_queue.c. A message's row is deleted in
 * the transaction in which its handler runs: so it is applied once, or not yet.
 *
 *		together	many messages in one transaction, for a short while. If
 *					anything goes wrong nothing of it happened, and the one that
 *					it went wrong with is next, alone
 *		alone		one message in one transaction. If its handler fails that is
 *					written down, in a transaction of its own
 *		cautiously	alone, and the attempt is written down before it is made
 *
 * The last is for the beginning of a process that follows one that ended badly, or
 * of which nothing is known: a handler that ends its process, or the server, is
 * given up as any other that fails. It is the service's answer to `cautious`.
 *
 * NOTES
 *	  Together, a message waits for nothing: after TOGETHER_MAX_US what has begun
 *	  is cancelled, to be delivered alone. So this process is never waited for
 *	  while it waits with the locks of several entities; a caller
 *	  with a deadlock is not made its victim for that.
 *
 *	  A row that somebody has locked, to cancel or resend it, is not waited for:
 *	  its entity waits, and whoever has locked it wakes this process at the end.
 *
 *	  A process that is told to end in the middle of an attempt that it has written down
 *	  takes that back, unless it is the handler that ends it: so it is cancelled first.
 *
 *	  The handler has the role's own settings. What one sets, for its transaction
 *	  or its session, is undone behind it.
 *
 *	  A process is replaced after a while: what a session keeps (settings, temporary
 *	  tables, and what the role was allowed when it began) is not kept for ever.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "alarm.h"
#include "clock.h"
#include "compat.h"
#include "debug.h"
#include "delivery.h"
#include "entity.h"
#include "extension.h"
#include "message.h"
#include "message_queue.h"
#include "row.h"
#include "runner_process.h"
#include "stat.h"
#include "worker.h"

/*
 * Messages that are looked for at a time. More of them where a look takes long: what was delivered is
 * in its way for as long as some transaction could still see it.
 */
#define LOOK_MAX 1000
#define LOOK_MAX_SLOW 16000
#define LOOK_SLOW_US (10 * US_PER_MS)

/* No message is begun in a transaction that has had that many, or that long; and none goes on in one after TOGETHER_MAX_US. */
#define TOGETHER_MAX 200
#define TOGETHER_BEGIN_US (20 * US_PER_MS)
#define TOGETHER_MAX_US (50 * US_PER_MS)

/* So many messages a cautious process delivers cautiously. */
#define CAUTIOUS_MAX 50

/* A transaction that failed because of others is repeated at once, that many times. */
#define CONFLICTS_MAX 5

/* It ends after that long without anything to do, and after LIFE_US in any case. */
#define LINGER_US (1 * US_PER_S)
#define LIFE_US (30 * US_PER_S)

/* A message waits for its entity not longer than that: others of its sender are for other entities. */
#define PATIENCE_MS 100

/* What somebody has locked is looked at again after that, at the latest. */
#define BUSY_US (50 * US_PER_MS)

/* When it is told to end it has that long to write down what it must; then it is ended. */
#define END_US (1 * US_PER_S)

/* What became of a message */
typedef enum Delivered
{
	DELIVERED,					/* applied, if the transaction commits */
	DELIVERY_VOID,				/* it is gone, or not due any more */
	DELIVERY_BUSY,				/* somebody has locked it, or has just changed it */
	DELIVERY_IMPOSSIBLE			/* not as it is: it is to be set aside */
} Delivered;

/* What was looked for, and how far it is delivered */
typedef struct Round
{
	QueueLook	look;
	int			position;		/* in look.due */
	HTAB	   *blocked;		/* entities that nothing more is delivered to in this round */
	bool		progress;		/* something was delivered, or its failure was written down */
} Round;

static const RunnerSlot *service;	/* what this process was started for */
static MemoryContext round_context = NULL;	/* reset before each look */
static MemoryContext message_context = NULL;	/* reset before each message */
static int64 delivered = 0;		/* by this process */
static int	cautious_left = 0;	/* messages to be delivered cautiously */
static int	alone_left = 0;		/* ... alone */
static int	together_max = TOGETHER_MAX;	/* so many in the next transaction */
static Alarm together_alarm;
static Alarm end_alarm;
static volatile sig_atomic_t ends_gently = false;	/* an attempt is written down that may have to be taken back */
static volatile sig_atomic_t told_to_end = false;
static int64 told_us = 0;

/* ---------------------------------------------------------------- the end */

/*
 * SIGTERM. Gently: what is under way is cancelled, as by a user; in a handler
 * that goes on nevertheless it ends all the same, a while later.
 */
static void
on_term(SIGNAL_ARGS)
{
	int			save_errno = errno;

	if (!ends_gently || (told_to_end && clock_now_us() - told_us >= END_US / 2))
	{
		die(postgres_signal_arg);
		errno = save_errno;
		return;
	}
	if (!told_to_end)
	{
		told_to_end = true;
		told_us = clock_now_us();
		alarm_arm(&end_alarm, END_US);
		InterruptPending = true;
		QueryCancelPending = true;
		SetLatch(MyLatch);
	}
	errno = save_errno;
}

/* Whether this process was told to end by whoever looks after it, or the server is about to end. */
static bool
end_is_ordered(void)
{
	RunnerSlot	slot;

	return (worker_runner_get(runner_me.slot, runner_me.generation, &slot) && slot.stop) || worker_server_is_stopping();
}

compat_noreturn static void
end_now(void)
{
	ereport(FATAL,
			(errcode(ERRCODE_ADMIN_SHUTDOWN),
			 errmsg("terminating delivery of messages due to administrator command")));
}

/* ---------------------------------------------------------------- one message */

/* The extension that this process was started for. False: it is gone, or another one. */
static bool
find_extension(Extension *oids)
{
	const Extension *extension = extension_find();

	if (extension == NULL || extension->extension != service->task.instance)
		return false;
	*oids = message_extension();
	return true;
}

/* Why this role cannot deliver it, or NULL. palloc'd. */
static const char *
find_problem(const MessageRow *row)
{
	if (strcmp(row->sender, service->name) != 0)
		return psprintf("role \"%s\" was renamed to \"%s\"", row->sender, service->name);
	if (row->attempts >= MESSAGE_ATTEMPTS_MAX)
		return row->error ? row->error : "its handler failed too often";
	return NULL;
}

/* Whether it is still this role's, and due. */
static bool
is_due(const MessageRow *row)
{
	if (!row->native || row->sender_oid != runner_me.role || row->lane == LANE_SET_ASIDE)
		return false;
	if (row->lane == LANE_RETRIES)
		return message_retry_is_due(row->deliver_at, row->attempts, GetCurrentTimestamp());
	return row->deliver_at == 0 || row->deliver_at <= GetCurrentTimestamp();
}

static void
report_activity(const MessageRow *row)
{
	static char activity[256];

	snprintf(activity, sizeof(activity), "revenant: message " INT64_FORMAT " to %s", row->message_id, row->type);
	debug_query_string = activity;
	pgstat_report_activity(STATE_RUNNING, activity);
}

/*
 * Takes the message out of the queue and runs its handler, in the transaction
 * that is open. Raises what the handler does.
 */
static Delivered
apply(const Extension *oids, Relation rel, const DueMessage *due, bool counted)
{
	EntityMessage message = {0};
	MessageRow	row = {0};
	HeapTuple	tuple;
	int			nest_level;

	SetCurrentStatementStartTimestamp();
	PushActiveSnapshot(GetTransactionSnapshot());
	tuple = row_find_number(rel, oids->message_pkey, due->message_id);
	if (tuple != NULL)
		message_parse(tuple, RelationGetDescr(rel), &row);
	if (tuple == NULL || (!counted && !is_due(&row)))
	{
		PopActiveSnapshot();
		return DELIVERY_VOID;
	}
	if (!counted && find_problem(&row) != NULL)
	{
		PopActiveSnapshot();
		return DELIVERY_IMPOSSIBLE;
	}
	if (row_try_delete(rel, tuple) != ROW_LOCKED)
	{
		PopActiveSnapshot();
		return DELIVERY_BUSY;
	}
	CommandCounterIncrement();
	UpdateActiveSnapshotCommandId();
	DEBUG_POINT("delivery-before-handler");

	report_activity(&row);
	message.kind = message_kind_name(row.kind);
	message.message_id = row.message_id;
	message.attempt = counted ? row.attempts : row.attempts + 1;
	message.sender = row.sender;
	message.message = row.message;
	nest_level = NewGUCNestLevel();
	if (StatementTimeout > 0)
		enable_timeout_after(STATEMENT_TIMEOUT, StatementTimeout);
	if (row.kind == MESSAGE_STOP)
		entity_stop_idle(row.type, row.id);
	else
		entity_deliver(row.type, row.id, &message);
	if (StatementTimeout > 0 || get_timeout_active(STATEMENT_TIMEOUT))
		disable_timeout(STATEMENT_TIMEOUT, false);
	AtEOXact_GUC(false, nest_level);
	PopActiveSnapshot();
	CommandCounterIncrement();
	return DELIVERED;
}

/* Begins a transaction in which a handler runs: with the role's settings, but it can write. */
static void
begin_delivery(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	XactReadOnly = false;
	entity_set_patience(PATIENCE_MS);
	CHECK_FOR_INTERRUPTS();
}

/* What has been committed is known: to the supervisor, to the statistics. */
static void
note_delivered(int count)
{
	if (count == 0)
		return;
	delivered += count;
	for (int i = 0; i < count; i++)
		stat_count(STAT_MESSAGES_APPLIED);
	worker_service_progress(runner_me.slot, runner_me.generation, delivered);
	(void) pgstat_report_stat(false);
}

/* An error ended the transaction: takes the error, and cleans up. It is palloc'd in round_context. */
static ErrorData *
take_error(void)
{
	ErrorData  *error;

	MemoryContextSwitchTo(round_context);
	alarm_clear(&together_alarm);
	error = CopyErrorData();
	disable_all_timeouts(false);
	FlushErrorState();
	AbortOutOfAnyTransaction();
	/* an alarm that came after the error is meant for what is over */
	QueryCancelPending = false;
	MemoryContextSwitchTo(round_context);
	debug_query_string = NULL;
	return error;
}

/* ---------------------------------------------------------------- together */

/*
 * Delivers the next messages in one transaction. If that fails nothing has
 * happened, and it is known what to deliver alone.
 */
static void
deliver_together(Round *round)
{
	volatile int position = round->position;
	volatile int count = 0;
	volatile bool applied = false;	/* all that were begun */
	volatile bool failed = false;
	volatile bool busy = false;	/* it failed since somebody had the entity of the next message */
	bool		hurried = false;
	int64		begin_until_us = clock_now_us() + TOGETHER_BEGIN_US;
	Extension	oids;

	PG_TRY();
	{
		Relation	rel;

		begin_delivery();
		if (!find_extension(&oids))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("extension revenant was replaced")));
		rel = table_open(oids.message, RowExclusiveLock);
		while (position < round->look.ndue && count < together_max && (count == 0 || clock_now_us() < begin_until_us))
		{
			const DueMessage *due = round->look.due[position];
			Delivered	result;

			if (entity_set_has(round->blocked, due->entity))
			{
				position++;
				continue;
			}
			/* what is to be delivered alone ends this transaction */
			if (due->attempts > 0)
				break;
			if (count > 0 && !hurried)
				alarm_set(&together_alarm, TOGETHER_MAX_US, 0);
			hurried = count > 0;
			MemoryContextSwitchTo(message_context);
			MemoryContextReset(message_context);
			result = apply(&oids, rel, due, false);
			if (result == DELIVERY_IMPOSSIBLE)
				break;
			position++;
			if (result == DELIVERED)
				count++;
			else if (result == DELIVERY_BUSY)
				entity_set_add(round->blocked, due->entity);
		}
		table_close(rel, NoLock);
		applied = true;
		if (hurried)
		{
			alarm_clear(&together_alarm);
			CHECK_FOR_INTERRUPTS();
		}
		DEBUG_POINT("delivery-before-commit");
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		(void) take_error();
		failed = true;
		busy = !applied && entity_was_busy();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(round_context);

	if (busy)
	{
		/* all others again */
		entity_set_add(round->blocked, round->look.due[position]->entity);
		return;
	}
	if (failed)
	{
		/* what went well so far goes well again, without the one that did not; at the commit it was any of them */
		together_max = applied || count == 0 ? TOGETHER_MAX : count;
		alone_left = applied ? count : count == 0 ? 1 : 0;
		return;
	}
	note_delivered(count);
	round->progress |= count > 0;
	round->position = position;
	alone_left = together_max < TOGETHER_MAX || count == 0 ? 1 : 0;
	together_max = TOGETHER_MAX;
}

/* ---------------------------------------------------------------- alone */

/*
 * Begins a transaction of ours about one message: its row, locked. NULL: it is
 * gone, or somebody else has locked it, who may take it back.
 */
static HeapTuple
begin_note(const DueMessage *due, Relation *rel, MessageRow *row)
{
	Extension	oids;
	HeapTuple	tuple;
	RowLock		lock;

	runner_process_begin(true);
	PushActiveSnapshot(GetTransactionSnapshot());
	oids = message_extension();
	*rel = table_open(oids.message, RowExclusiveLock);
	do
	{
		CHECK_FOR_INTERRUPTS();
		tuple = row_find_number(*rel, oids.message_pkey, due->message_id);
		lock = tuple != NULL ? row_try_lock(*rel, tuple) : ROW_BUSY;
	} while (lock == ROW_CHANGED);
	if (lock == ROW_BUSY)
		return NULL;
	message_parse(tuple, RelationGetDescr(*rel), row);
	return tuple;
}

static void
end_note(Relation rel)
{
	table_close(rel, NoLock);
	PopActiveSnapshot();
	CommitTransactionCommand();
	MemoryContextSwitchTo(round_context);
}

/* An attempt failed. `counted`: it was written down before it was made. */
static void
note_failure(Round *round, const DueMessage *due, const ErrorData *error, bool counted)
{
	MessageFailure failure = {.sqlstate = unpack_sql_state(error->sqlerrcode),.error = error->message ? error->message : ""};
	Relation	rel;
	MessageRow	row = {0};
	HeapTuple	tuple = begin_note(due, &rel, &row);

	stat_count(STAT_MESSAGE_FAILURES);
	if (tuple != NULL && row.lane != LANE_SET_ASIDE)
		(void) message_note_attempt(rel, tuple, &row, counted ? row.attempts : row.attempts + 1, &failure);
	end_note(rel);
	entity_set_add(round->blocked, due->entity);
	round->progress |= tuple != NULL;
}

/*
 * An attempt is about to be made, and may end this process: until it is known better it has
 * failed. False: it is not to be made.
 */
static bool
note_attempt(const DueMessage *due, MessageRow *before)
{
	MessageFailure failure = {.error = "its handler was begun, and did not come to an end"};
	Relation	rel;
	HeapTuple	tuple = begin_note(due, &rel, before);
	bool		wanted = tuple != NULL && is_due(before) && find_problem(before) == NULL;

	if (wanted)
		(void) message_note_attempt(rel, tuple, before, before->attempts + 1, &failure);
	end_note(rel);
	return wanted;
}

/* The attempt was cut off by others: it is as if it had not been made. */
static void
take_attempt_back(const DueMessage *due, const MessageRow *before)
{
	Relation	rel;
	MessageRow	row = {0};
	HeapTuple	tuple = begin_note(due, &rel, &row);

	if (tuple != NULL && row.lane == LANE_RETRIES && row.attempts == before->attempts + 1)
		message_restore(rel, tuple, before);
	end_note(rel);
}

/* It cannot be delivered, as long as it is as it is. */
static void
set_aside(Round *round, const DueMessage *due)
{
	Relation	rel;
	MessageRow	row = {0};
	HeapTuple	tuple = begin_note(due, &rel, &row);
	const char *problem = tuple != NULL && is_due(&row) ? find_problem(&row) : NULL;

	if (problem != NULL)
	{
		MessageFailure failure = {.sqlstate = row.sqlstate,.error = problem};

		message_set_aside(rel, tuple, &row, &failure);
	}
	end_note(rel);
	entity_set_add(round->blocked, due->entity);
	round->progress |= problem != NULL;
}

/* One transaction for one message; NULL when it was no failure, else the error. */
static ErrorData *
try_alone(const DueMessage *due, bool counted, Delivered *result)
{
	ErrorData  *volatile error = NULL;
	volatile Delivered what = DELIVERY_VOID;
	Extension	oids;

	PG_TRY();
	{
		Relation	rel;

		begin_delivery();
		oids = message_extension();
		rel = table_open(oids.message, RowExclusiveLock);
		MemoryContextSwitchTo(message_context);
		MemoryContextReset(message_context);
		what = apply(&oids, rel, due, counted);
		table_close(rel, NoLock);
		DEBUG_POINT("delivery-before-commit");
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(round_context);
		error = CopyErrorData();
		/* a cancel that stands for the end of this process is nobody's error */
		if (!told_to_end && !entity_was_busy())
			EmitErrorReport();
		(void) take_error();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(round_context);
	*result = what;
	return error;
}

/* Whether an error says nothing about the handler, but that others were in its way. */
static bool
is_conflict(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED || error->sqlerrcode == ERRCODE_T_R_SERIALIZATION_FAILURE;
}

/* Delivers the next message in a transaction of its own. */
static void
deliver_alone(Round *round)
{
	const DueMessage *due = round->look.due[round->position++];
	bool		cautious = cautious_left > 0;
	MessageRow	before = {0};
	Delivered	result = DELIVERY_VOID;
	ErrorData  *error = NULL;
	int			conflicts = 0;

	if (entity_set_has(round->blocked, due->entity))
		return;
	cautious_left = Max(cautious_left - 1, 0);
	alone_left = Max(alone_left - 1, 0);
	ends_gently = cautious;
	if (cautious && !note_attempt(due, &before))
	{
		set_aside(round, due);
		ends_gently = false;
		return;
	}
	while (!told_to_end && (error = try_alone(due, cautious, &result)) != NULL && is_conflict(error) && conflicts++ < CONFLICTS_MAX)
		CHECK_FOR_INTERRUPTS();
	if (!told_to_end && error != NULL && entity_was_busy())
	{
		if (cautious)
			take_attempt_back(due, &before);
		error = NULL;
		result = DELIVERY_BUSY;
	}
	if (told_to_end)
	{
		if ((error != NULL || result != DELIVERED) && end_is_ordered())
			take_attempt_back(due, &before);
		end_now();
	}
	ends_gently = false;
	if (error != NULL)
		note_failure(round, due, error, cautious);
	else if (result == DELIVERED)
	{
		note_delivered(1);
		round->progress = true;
	}
	else if (result == DELIVERY_BUSY)
		entity_set_add(round->blocked, due->entity);
	else if (result == DELIVERY_IMPOSSIBLE)
		set_aside(round, due);
}

/* ---------------------------------------------------------------- rounds */

/* Between transactions there is nothing to cancel. */
static void
check_between(void)
{
	QueryCancelPending = false;
	CHECK_FOR_INTERRUPTS();
}

/* Finds out what is due. False: there is nothing to deliver from any more. */
static bool
look(Round *round)
{
	static int	limit = LOOK_MAX;
	int64		began_us = clock_now_us();
	Extension	oids;
	bool		there;

	MemoryContextReset(round_context);
	memset(round, 0, sizeof(*round));
	round->look.sender = runner_me.role;
	round->look.limit = limit;
	runner_process_begin(true);
	there = find_extension(&oids);
	if (there)
	{
		Relation	rel = table_open(oids.message, AccessShareLock);

		MemoryContextSwitchTo(round_context);
		message_queue_look(&oids, rel, &round->look);
		round->blocked = entity_set_make(round_context);
		table_close(rel, NoLock);
	}
	CommitTransactionCommand();
	MemoryContextSwitchTo(round_context);
	if (clock_now_us() - began_us < LOOK_SLOW_US)
		limit = LOOK_MAX;
	else if (round->look.ndue >= limit)
		limit = Min(limit * 2, LOOK_MAX_SLOW);
	return there;
}

/* Delivers what was found, as far as that goes. */
static void
deliver(Round *round)
{
	while (round->position < round->look.ndue)
	{
		check_between();
		if (cautious_left > 0 || alone_left > 0 || round->look.due[round->position]->attempts > 0)
			deliver_alone(round);
		else
			deliver_together(round);
	}
}

/* Waits for something to do. False: it was long enough. */
static bool
wait_for_more(const Round *round, int64 idle_since_us)
{
	int64		left_us = idle_since_us + LINGER_US - clock_now_us();
	long		wait_ms;

	/* a supervisor that cannot see the end of what waits would start another one again and again */
	if (round->look.skipped >= QUEUE_PATIENCE / 2)
		left_us = Max(left_us, LINGER_US);
	if (left_us <= 0)
		return false;
	if (round->look.next != 0)
		left_us = Min(left_us, Max(round->look.next - GetCurrentTimestamp(), 0));
	if (round->look.ndue > 0)
		left_us = Min(left_us, BUSY_US);
	wait_ms = (long) ((left_us + 999) / 1000);
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, wait_ms, compat_wait_event("RevenantDelivery"));
	return true;
}

static void
deliver_all(void)
{
	int64		began_us = clock_now_us();
	int64		idle_since_us = began_us;
	Round		round;

	runner_process_load_libraries();
	round_context = AllocSetContextCreate(TopMemoryContext, "revenant delivery round", ALLOCSET_DEFAULT_SIZES);
	message_context = AllocSetContextCreate(TopMemoryContext, "revenant delivery message", ALLOCSET_DEFAULT_SIZES);
	for (;;)
	{
		ResetLatch(MyLatch);
		check_between();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		if (!look(&round))
			return;
		if (round.look.ndue > 0)
			deliver(&round);
		if (round.progress)
			idle_since_us = clock_now_us();
		if (clock_now_us() - began_us > LIFE_US)
			return;
		if (round.progress)
			continue;
		debug_query_string = NULL;
		pgstat_report_activity(STATE_IDLE, NULL);
		(void) pgstat_report_stat(true);
		if (!wait_for_more(&round, idle_since_us))
			return;
	}
}

/* A runner that delivers. */
void
revenant_delivery_main(Datum main_arg)
{
	RunnerSlot	slot;

	runner_process_attach(main_arg, &slot);
	alarm_make(&end_alarm, SIGTERM);
	pqsignal(SIGTERM, on_term);
	service = &slot;
	cautious_left = slot.cautious ? CAUTIOUS_MAX : 0;
	runner_process_connect("revenant delivery", "");

	runner_process_run(deliver_all);
}
