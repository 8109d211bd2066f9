/*
 * member_entry.h
 *	  The shared-memory entry of a member: until when a worker is there, and what it is to be told.
 */
#ifndef REVENANT_MEMBER_ENTRY_H
#define REVENANT_MEMBER_ENTRY_H

#include "postgres.h"

#include "lib/dshash.h"
#include "storage/lock.h"
#include "utils/dsa.h"

#include "plan_entry.h"
#include "split_row.h"

#define WORKER_NAME_MAX 512		/* bytes */

typedef enum NewsKind
{
	NEWS_GAINED,
	NEWS_REVOKE,
	NEWS_REVOKE_CANCELLED,
	NEWS_LOST,
	NEWS_QUARANTINED,
	NEWS_COMPLETE,
	NEWS_STALLED
} NewsKind;

/* Something that a member is to be told, until it has said that it knows */
typedef struct MemberNews
{
	int64		seq;
	int64		number;			/* of the split */
	int64		epoch;
	NewsKind	kind;
	ClaimEnd	how;			/* NEWS_LOST */
} MemberNews;

typedef struct MemberKey
{
	Oid			database;
	Oid			instance;
	int64		member;
} MemberKey;

typedef enum MemberState
{
	MEMBER_PENDING,				/* its join has not been committed */
	MEMBER_LIVE,
	MEMBER_ENDING,				/* somebody's transaction ends it */
	MEMBER_REPLACED,			/* another worker joined under its name: kept for a while, to say so */
	MEMBER_EXPIRED,				/* nothing was heard of it: the same */
	MEMBER_LEFT,				/* the same: what it has of splits in a transaction under way uses up no attempt */
	MEMBER_DEAD
} MemberState;

/* A member. All of it is under its partition's lock. */
typedef struct MemberEntry
{
	MemberKey	key;
	MemberState state;
	int64		plan_id;
	PlanKey		plan;
	Oid			role;
	int			capacity;
	int64		ttl_us;
	int64		deadline_us;
	int			pid;			/* PENDING, ENDING, and who writes its news (0: nobody): whose transaction */
	VirtualTransactionId ender; /* ENDING: the same, to be waited for */
	int			busy;			/* who is about to add news: they come in the order of their numbers */
	bool		busy_wanted;	/* the supervisor was refused that */
	int64		owned;
	int64		weight;			/* of what it owns */
	int64		last_seq;
	int64		seen;			/* as its latest poll said */
	dsa_pointer news;			/* of MemberNews, by seq */
	int			news_capacity;
	int			news_count;
	dsa_pointer offers;			/* of int64: splits that it is to own; it claims them when it polls */
	int			offers_capacity;
	int			offers_count;
	int64		ended_us;		/* REPLACED, EXPIRED, LEFT: since when */
	char		worker[WORKER_NAME_MAX + 1];
} MemberEntry;


/* What a sign of life of a member came to */
typedef enum MemberStanding
{
	MEMBER_IS_LIVE,
	MEMBER_IS_ENDING,			/* another transaction is about to end it */
	MEMBER_IS_OVER
} MemberStanding;

/* What is found, or made, is locked until it is released. */
extern const dshash_parameters *member_entry_params(void);
extern MemberEntry *member_find(Oid instance, int64 member);
extern MemberEntry *member_make(Oid instance, int64 member);
extern void member_release(MemberEntry *member);
extern MemberStanding member_renew(Oid instance, int64 member, VirtualTransactionId *ender);
extern void member_mark_ending(MemberEntry *member);
extern bool member_begin_news(Oid instance, int64 member, int more);
extern bool member_reserve_news(MemberEntry *member, int more);
extern void member_add_news(MemberEntry *member, const MemberNews *news);
extern void member_forget_news(MemberEntry *member, int64 seen);
extern MemberNews *member_copy_news(const MemberEntry *member);
extern bool member_set_offers(MemberEntry *member, const int64 *numbers, int count);
extern void member_take_offer(MemberEntry *member, int64 number);
extern int64 *member_copy_offers(const MemberEntry *member);
extern void member_visit(Oid instance, bool (*visit) (MemberEntry *member, void *arg), void *arg);
extern void member_entry_purge(Oid database, Oid keep_instance);

#endif							/* REVENANT_MEMBER_ENTRY_H */
