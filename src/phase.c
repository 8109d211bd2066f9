/*-------------------------------------------------------------------------
 *
 * phase.c
 *	  The phases of a task and how one follows another.
 *
 * NOTES
 *	  The supervisor decides by comparing what should run with what does, so
 *	  it may come late and see the end of something whose beginning it missed.
 *	  Transitions that skip a phase for that reason are in the table, too; what
 *	  is not in it would be a mistake in the supervisor.
 *
 *	  A server can stop being a standby, but not become one without a restart:
 *	  only a new or a still status leads to PHASE_FOLLOWING.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "phase.h"

#define TO(phase) (1 << (phase))

/* where every phase without a runner may go when the task is looked at again */
#define IDLE (TO(PHASE_DISABLED) | TO(PHASE_HELD) | TO(PHASE_SCHEDULED) | TO(PHASE_QUARANTINED))
/* where it may go when it is due */
#define DUE (TO(PHASE_CLAIMING) | TO(PHASE_WAITING_FOR_SLOT))
/* where it may go when its run is over */
#define OVER (IDLE | TO(PHASE_BACKOFF) | TO(PHASE_FINISHED))

static const struct
{
	const char *name;
	uint32		next;
}			phases[PHASES] = {
	[PHASE_NEW] = {"new", OVER | DUE | TO(PHASE_LEADING) | TO(PHASE_STOPPING) | TO(PHASE_FOLLOWING)},
	[PHASE_DISABLED] = {"disabled", IDLE | DUE | TO(PHASE_BACKOFF) | TO(PHASE_FOLLOWING)},
	[PHASE_HELD] = {"held", IDLE | DUE | TO(PHASE_BACKOFF) | TO(PHASE_FOLLOWING)},
	[PHASE_SCHEDULED] = {"scheduled", IDLE | DUE | TO(PHASE_BACKOFF) | TO(PHASE_FINISHED)},
	[PHASE_CLAIMING] = {"claiming", OVER | TO(PHASE_LEADING) | TO(PHASE_STOPPING)},
	[PHASE_LEADING] = {"leading", OVER | TO(PHASE_STOPPING)},
	[PHASE_STOPPING] = {"stopping", OVER | DUE},
	[PHASE_BACKOFF] = {"backoff", IDLE | DUE},
	[PHASE_QUARANTINED] = {"quarantined", IDLE},
	[PHASE_WAITING_FOR_SLOT] = {"waiting_for_slot", IDLE | DUE | TO(PHASE_BACKOFF)},
	[PHASE_FOLLOWING] = {"following", OVER | DUE | TO(PHASE_STOPPING)},
	[PHASE_FINISHED] = {"finished", IDLE},
};

/* A phase as revenant.tasks shows it. */
const char *
phase_name(TaskPhase phase)
{
	Assert(phase >= 0 && phase < PHASES);
	return phases[phase].name;
}

/* Whether a task in phase `from` may go to phase `to`. Staying is not a transition. */
bool
phase_can_follow(TaskPhase from, TaskPhase to)
{
	return (phases[from].next & TO(to)) != 0;
}

/*
 * The only place that changes a phase. True when it changed; a transition that
 * the table does not have is not made.
 */
bool
phase_move(TaskPhase *phase, TaskPhase to)
{
	if (*phase == to)
		return false;
	Assert(phase_can_follow(*phase, to));
	if (!phase_can_follow(*phase, to))
		return false;
	*phase = to;
	return true;
}
