/*-------------------------------------------------------------------------
 *
 * supervised.c
 *	  What a supervisor knows of a task: when it is due next.
 *
 * A plan is made when a task is first looked at, from its row and from what its
 * latest run left, and is void as soon as the task is not to be run.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "clock.h"
#include "supervised.h"
#include "task_status.h"

/*
 * A fire time that is over by no more than this is still run: the supervisor
 * was restarted, or the run before took longer than the interval. One that
 * waits for a runner stays due for as long as it takes.
 */
#define FIRE_GRACE_US (10 * US_PER_S)

/* The task begins anew. */
void
task_forget_plan(Task *task)
{
	task->ready = false;
	task->failures = 0;
	task->backoff = false;
	task->fires = false;
	task->due_us = 0;
	task->fire_at = 0;
	task->started_at = 0;
	task->quarantined = false;
	task->finished = false;
	task->recent.count = 0;
}

/* The first time of the schedule that is later than `after`, or 0. */
TimestampTz
task_next_time(const Task *task, TimestampTz after)
{
	TimestampTz next;

	return schedule_next(&task->schedule, &task->place, after, &next) ? next : 0;
}

/*
 * Whether a fire time is over by more than its grace, so that it is skipped: but
 * not while the task waits for a runner since, nor if it is to be made up for.
 */
static bool
is_missed(const Task *task, TimestampTz now)
{
	return now - task->fire_at > FIRE_GRACE_US && task->phase != PHASE_WAITING_FOR_SLOT && !task->catches_up;
}

/*
 * A fire time that is further away than the one after the next was made before
 * the wall clock was set back: the run is due by the clock as it is now. (Not
 * than the next: a clock that is set back a little repeats no time.) An
 * interval has no times of the day, so there the next one is as far as it goes.
 */
void
task_adjust_fire_time(Task *task, TimestampTz now, bool set_back)
{
	TimestampTz first;
	TimestampTz limit;

	if (task->fire_at == 0 || task->schedule.kind == SCHEDULE_REBOOT)
		return;
	if (is_missed(task, now))
		task->fire_at = task_next_time(task, now);
	if (!set_back || task->fire_at <= now)
		return;
	first = task_next_time(task, now);
	limit = task->schedule.kind == SCHEDULE_INTERVAL ? first + FIRE_GRACE_US : task_next_time(task, first);
	if (first != 0 && limit != 0 && task->fire_at > limit)
		task->fire_at = first;
}

/* Since when this server leads, by the wall clock. */
static TimestampTz
led_since(void)
{
	return clock_to_timestamp(clock_writable_since_us());
}

/* A task is about to be supervised: when is it due? */
void
task_make_ready(Task *task, bool first_look)
{
	TimestampTz now = GetCurrentTimestamp();

	if (!task->has_schedule)
		task->fire_at = 0;
	else if (task->schedule.kind == SCHEDULE_REBOOT)
		task->fire_at = task->life.enabled_at < led_since() && !task_status_has_begun(&task->key) ? now : 0;
	else
	{
		/* no time is written down: one that just passed may have been missed, if it was not run and the task was on */
		if (task->fire_at == 0 && first_look)
			task->fire_at = task_next_time(task, Max(now - FIRE_GRACE_US, Max(task->started_at, task->life.enabled_at)));
		if (task->fire_at == 0 || is_missed(task, now))
			task->fire_at = task_next_time(task, now);
		task_adjust_fire_time(task, now, true);
	}
	task->late_since_us = 0;
	task->ready = true;
}
