/*-------------------------------------------------------------------------
 *
 * task_event.c
 *	  What is told of tasks.
 *
 *		a supervisor begins, ends		process.initialized, process.terminating
 *		claiming -> leading				leadership.claimed, child.started
 *		a run ends						child.exited or child.stopped, leadership.lost
 *		-> following					monitor.started
 *		following -> anything else		monitor.leader_down
 *		any other transition			task. and the phase that it leads to
 *
 * A follower_command begins and ends as a child, too, but nobody leads by it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "events.h"
#include "task_event.h"
#include "task_run.h"

/* The supervisor of this database begins (in a transaction), or ends (whether or not there is one). */
void
task_tell_supervised(bool begins)
{
	static char database[NAMEDATALEN] = "";
	Event		event = {begins ? EVENT_PROCESS_INITIALIZED : EVENT_PROCESS_TERMINATING, database};

	if (begins)
	{
		const char *name = get_database_name(MyDatabaseId);

		strlcpy(database, name ? name : "", sizeof(database));
	}
	if (database[0] != '\0')
		event_now(&event);
}

/* A task went from one phase to another. */
void
task_tell_phase(const char *name, Oid role, TaskPhase from, TaskPhase to, const char *reason)
{
	Event		event = {
		.subject = name,
		.phase = phase_name(to),
		.role = role,
		.detail = {"reason", reason[0] ? reason : NULL}
	};

	if (from == PHASE_FOLLOWING && !RecoveryInProgress())
	{
		Event		down = {EVENT_MONITOR_LEADER_DOWN, name, phase_name(PHASE_FOLLOWING),.role = role};

		event_now(&down);
	}
	event.kind = to == PHASE_FOLLOWING ? EVENT_MONITOR_STARTED : EVENT_TASK_DISABLED + (to - PHASE_DISABLED);
	event.routine = true;
	event_now(&event);
}

/*
 * A runner's: from the commit on the command runs; by a lease, or (NULL) as a
 * standby's follower_command. The runs of a schedule are routine, and in the history.
 */
void
task_tell_started(const char *name, Oid role, const char *lease, int64 token, bool routine)
{
	Event		claimed = {EVENT_LEADERSHIP_CLAIMED, name, phase_name(PHASE_LEADING), token,.role = role,.routine = routine,
	.detail = {"lease", lease}};
	Event		started = {EVENT_CHILD_STARTED, name, phase_name(lease ? PHASE_LEADING : PHASE_FOLLOWING), token,.role = role};

	if (lease != NULL)
		event_at_commit(&claimed);
	event_at_commit(&started);
}

/* The supervisor's: a run ended, from the commit on. */
void
task_tell_ended(const RunnerSlot *slot, Oid role, const char *outcome, bool routine)
{
	bool		stopped = strcmp(outcome, RUN_STATE_STOPPED) == 0;
	Event		ended = {stopped ? EVENT_CHILD_STOPPED : EVENT_CHILD_EXITED, slot->name,
		phase_name(slot->follows ? PHASE_FOLLOWING : PHASE_SCHEDULED), slot->token, slot->pid, role, routine,
	.detail = {"outcome", outcome, "sqlstate", slot->sqlstate[0] ? slot->sqlstate : NULL, "message", slot->message[0] ? slot->message : NULL}};
	Event		lost = {EVENT_LEADERSHIP_LOST, slot->name, phase_name(PHASE_SCHEDULED), slot->token, slot->pid, role, routine,
	.detail = {"reason", stopped ? "the run was stopped" : "the run has ended"}};

	event_at_commit(&ended);
	if (slot->token != 0)
		event_at_commit(&lost);
}

/* The supervisor's: a run was cut off by a crash or a failover, it was found now. */
void
task_tell_interrupted(const char *name, Oid role, int64 token)
{
	Event		lost = {EVENT_LEADERSHIP_LOST, name, phase_name(PHASE_SCHEDULED), token,.role = role,
	.detail = {"reason", "the run was interrupted"}};

	event_at_commit(&lost);
}
