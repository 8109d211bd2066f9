/*
 * phase.c
 *	  The table of transitions is well formed: no phase is a dead end, and none is out of reach.
 *
 * link: src/phase.c
 */
#include "phase.h"

#include "tap.h"

/* Whether `to` can be reached from `from`, by any number of transitions. */
static bool
reaches(TaskPhase from, TaskPhase to)
{
	bool		seen[PHASES] = {false};
	bool		grew = true;

	seen[from] = true;
	while (grew)
	{
		grew = false;
		for (int a = 0; a < PHASES; a++)
		{
			for (int b = 0; b < PHASES; b++)
			{
				if (seen[a] && !seen[b] && phase_can_follow(a, b))
					seen[b] = grew = true;
			}
		}
	}
	return seen[to];
}

int
main(void)
{
	TaskPhase	phase = PHASE_SCHEDULED;

	for (int p = 0; p < PHASES; p++)
	{
		ok(phase_name(p) != NULL && phase_name(p)[0] != '\0', "phase %d has a name", p);
		for (int q = p + 1; q < PHASES; q++)
			ok(strcmp(phase_name(p), phase_name(q)) != 0, "%s is not also %s", phase_name(p), phase_name(q));
		ok(p == PHASE_NEW || reaches(PHASE_NEW, p), "%s can be reached", phase_name(p));
		ok(reaches(p, PHASE_LEADING), "%s is no dead end", phase_name(p));
		ok(reaches(p, PHASE_DISABLED), "%s can be disabled", phase_name(p));
		ok(!phase_can_follow(p, PHASE_NEW), "%s is not forgotten", phase_name(p));
		ok(p == PHASE_CLAIMING || p == PHASE_NEW || !phase_can_follow(p, PHASE_LEADING),
		   "%s does not lead without a claim", phase_name(p));
	}
	ok(!phase_can_follow(PHASE_LEADING, PHASE_FOLLOWING), "a leader does not become a follower");
	ok(!phase_can_follow(PHASE_QUARANTINED, PHASE_CLAIMING), "what is in quarantine is let out first");

	ok(phase_move(&phase, PHASE_CLAIMING), "a move changes the phase");
	is(phase, PHASE_CLAIMING, "to what was asked for");
	ok(!phase_move(&phase, PHASE_CLAIMING), "staying is no move");
	return done_testing();
}
