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
	EVENT_LEADERSHIP_CLAIMED,
	EVENT_LEADERSHIP_REFRESHED, /* in the log only, and only by revenant.log_events = all */
	EVENT_LEADERSHIP_REJECTED,
	EVENT_LEADERSHIP_LOST,
	EVENT_LEADERSHIP_REVOKED
} EventKind;

/* Zero the struct, then set what matters. The strings are copied. */
typedef struct Event
{
	EventKind	kind;
	const char *subject;		/* the name alone */
	const char *phase;			/* or NULL */
	int64		token;			/* or 0 */
	Oid			role;			/* its members may see token and detail; InvalidOid: admins only */
	const char *detail[6];		/* pairs of key and value (NULL: none), ended by a NULL key */
} Event;

extern Size events_shmem_size(void);
extern void events_shmem_init(void *place, bool found);
extern bool events_filter_is_valid(const char *filter);
extern void events_install_callbacks(void);
extern void event_now(const Event *event);
extern void event_at_commit(const Event *event);

#endif							/* REVENANT_EVENTS_H */
