/*
 * phase.h
 *	  The phases of a task and how one follows another.
 */
#ifndef REVENANT_PHASE_H
#define REVENANT_PHASE_H

#include "postgres.h"

typedef enum TaskPhase
{
	PHASE_NEW = 0,				/* nobody looked at the task yet; never shown */
	PHASE_DISABLED,
	PHASE_HELD,					/* set aside, the reason says why */
	PHASE_SCHEDULED,			/* waits for its time */
	PHASE_CLAIMING,				/* its runner waits for the lease */
	PHASE_LEADING,				/* its runner has the lease and runs the command */
	PHASE_STOPPING,				/* its runner was told to end */
	PHASE_BACKOFF,				/* waits to be started again */
	PHASE_QUARANTINED,			/* failed too often */
	PHASE_WAITING_FOR_SLOT,		/* due, and no runner is free */
	PHASE_FOLLOWING,			/* this server is a standby */
	PHASE_FINISHED,				/* ended, and is not to be started again */
	PHASES						/* how many there are */
} TaskPhase;

extern const char *phase_name(TaskPhase phase);
extern bool phase_can_follow(TaskPhase from, TaskPhase to);
extern bool phase_move(TaskPhase *phase, TaskPhase to);

#endif							/* REVENANT_PHASE_H */
