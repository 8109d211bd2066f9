/*
 * events.h
 *	  What happened last: a ring in shared memory, the log, and NOTIFY.
 */
#ifndef REVENANT_EVENTS_H
#define REVENANT_EVENTS_H

#include "postgres.h"

/* The kinds of events; events.c has their names. */
typedef enum EventKind
{
	EVENT_PROCESS_INITIALIZED,	/* a supervisor, of its database */
	EVENT_PROCESS_TERMINATING,
	EVENT_LEADERSHIP_CLAIMED,	/* of an election or a task */
	EVENT_LEADERSHIP_REFRESHED, /* in the log only, and only by revenant.log_events = all */
	EVENT_LEADERSHIP_REJECTED,
	EVENT_LEADERSHIP_LOST,
	EVENT_LEADERSHIP_REVOKED,
	EVENT_MONITOR_STARTED,		/* a standby begins to follow a task */
	EVENT_MONITOR_LEADER_DOWN,	/* it was promoted: who led is gone */
	EVENT_CHILD_STARTED,		/* a run */
	EVENT_CHILD_STOPPED,		/* it ended because it was told to */
	EVENT_CHILD_EXITED,			/* it ended by itself */
	/* any other transition of a task, named after the phase that it leads to, in the order of TaskPhase */
	EVENT_TASK_DISABLED,
	EVENT_TASK_HELD,
	EVENT_TASK_SCHEDULED,
	EVENT_TASK_CLAIMING,
	EVENT_TASK_LEADING,
	EVENT_TASK_STOPPING,
	EVENT_TASK_BACKOFF,
	EVENT_TASK_QUARANTINED,
	EVENT_TASK_WAITING_FOR_SLOT,
	EVENT_TASK_FOLLOWING,
	EVENT_TASK_FINISHED,
	EVENT_ENTITY_LOADED,		/* into memory, not at its creation */
	EVENT_ENTITY_FLUSHED,		/* out of memory into its row */
	EVENT_ENTITY_CONFLICT,		/* its row was written past us: what memory had is dropped */
	EVENT_MESSAGE_SET_ASIDE,	/* a message to an entity was given up */
	EVENT_PLAN_JOINED,			/* a worker */
	EVENT_PLAN_LEFT,
	EVENT_PLAN_EXPIRED,			/* nothing was heard of a worker for its ttl */
	EVENT_PLAN_QUARANTINED,		/* a split was given up */
	EVENT_PLAN_COMPLETE,
	EVENT_PLAN_STALLED,			/* what is not done is quarantined */
	EVENT_PLAN_REPLAN_FAILED	/* of a planner within the database */
} EventKind;

/* Zero the struct, then set what matters. The strings are copied. */
typedef struct Event
{
	EventKind	kind;
	const char *subject;		/* the name alone */
	const char *phase;			/* or NULL */
	int64		token;			/* or 0 */
	int			pid;			/* which process it is about; 0: this one */
	Oid			role;			/* its members may see token and detail; InvalidOid: admins only */
	bool		routine;		/* one of many: not in the log unless revenant.log_events names it */
	const char *detail[8];		/* pairs of key and value (NULL: none), ended by a NULL key */
} Event;

extern Size events_shmem_size(void);
extern void events_shmem_init(void *place, bool found);
extern bool events_filter_is_valid(const char *filter);
extern void events_install_callbacks(void);
extern void events_defer_notify(bool deferred);
extern bool events_notify_deferred(bool *more);
extern void event_now(const Event *event);
extern void event_at_commit(const Event *event);

#endif							/* REVENANT_EVENTS_H */
