/*
 * task_define.h
 *	  What a task may be: create_task, alter_task, and the checks of both.
 */
#ifndef REVENANT_TASK_DEFINE_H
#define REVENANT_TASK_DEFINE_H

#include "postgres.h"

#include "schedule.h"

extern void task_parse_schedule(const char *text, const char *timezone, const char *command, Schedule *schedule,
								SchedulePlace *place);

#endif							/* REVENANT_TASK_DEFINE_H */
