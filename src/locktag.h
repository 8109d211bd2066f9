/*
 * locktag.h
 *	  The heavyweight locks that are ours.
 *
 * They are user locks (LOCKTAG_USERLOCK), so they survive an abort at session
 * level and share nothing with advisory locks. In pg_locks they show as
 * "userlock": database, then 64 bits of the name's digest in classid and objid,
 * 14 more and the kind in objsubid.
 */
#ifndef REVENANT_LOCKTAG_H
#define REVENANT_LOCKTAG_H

#include "postgres.h"

#include "storage/lock.h"

typedef enum LockKind
{
	LOCK_OTHER = 0,				/* reserving a block of tokens (more = 0), debug points (1), an entity (2), a request_id of send (3),
								 * the queue for a row of a snapshot table (4), a plan (5), the claim of a split (6),
								 * the name of a member of a plan (7), who changes a plan as a whole (8), transactions that have fenced splits of
								 * a plan (9) */
	LOCK_HOLD = 1,				/* H: who holds a name, and the queue of those who want to */
	LOCK_FENCE = 2,				/* F: who is fenced by a name */
	LOCK_BOUND = 3				/* B: sessions whose end ends a hold of the name */
} LockKind;

#define LOCK_OTHER_TOKEN 0
#define LOCK_OTHER_DEBUG 1
#define LOCK_OTHER_ENTITY 2
#define LOCK_OTHER_REQUEST 3
#define LOCK_OTHER_QUEUE 4
#define LOCK_OTHER_PLAN 5
#define LOCK_OTHER_CLAIM 6
#define LOCK_OTHER_MEMBER 7
#define LOCK_OTHER_CHANGE 8
#define LOCK_OTHER_FENCED 9

static inline LOCKTAG
locktag_make(LockKind kind, Oid database, uint64 digest, uint16 more)
{
	LOCKTAG		tag;

	memset(&tag, 0, sizeof(tag));
	tag.locktag_field1 = database;
	tag.locktag_field2 = (uint32) (digest >> 32);
	tag.locktag_field3 = (uint32) digest;
	tag.locktag_field4 = (uint16) ((more << 2) | kind);
	tag.locktag_type = LOCKTAG_USERLOCK;
	tag.locktag_lockmethodid = USER_LOCKMETHOD;
	return tag;
}

/* Of an entity, by the digest of its table and its id: `more` is one of LOCK_OTHER_*. */
static inline LOCKTAG
locktag_of_entity(Oid database, const uint8 *digest, uint16 more)
{
	uint64		key;

	memcpy(&key, digest, sizeof(key));
	return locktag_make(LOCK_OTHER, database, key, more);
}

static inline bool
locktag_is_ours(const LOCKTAG *tag)
{
	return tag->locktag_type == LOCKTAG_USERLOCK &&
		tag->locktag_lockmethodid == USER_LOCKMETHOD;
}

static inline LockKind
locktag_kind(const LOCKTAG *tag)
{
	return (LockKind) (tag->locktag_field4 & 3);
}

#endif							/* REVENANT_LOCKTAG_H */
