/*-------------------------------------------------------------------------
 *
 * member_entry.c
 *	  The shared-memory entry of a member: until when a worker is there, and
 *	  what it is to be told.
 *
 * By its token. All of an entry is under the lock of its partition; member.c has what its
 * states mean.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/proc.h"

#include "clock.h"
#include "compat.h"
#include "member_entry.h"
#include "shmem.h"

#define NEWS_MIN 8

/* How shmem.c lays out the table of members. */
const dshash_parameters *
member_entry_params(void)
{
	static const dshash_parameters params = {
		.key_size = sizeof(MemberKey),
		.entry_size = sizeof(MemberEntry),
		.compare_function = dshash_memcmp,
		.hash_function = dshash_memhash,
		COMPAT_DSHASH_COPY
	};

	return &params;
}

static MemberKey
member_key(Oid instance, int64 member)
{
	MemberKey	key;

	memset(&key, 0, sizeof(key));
	key.database = MyDatabaseId;
	key.instance = instance;
	key.member = member;
	return key;
}

/* A member by its token, locked, or NULL. Never raises. */
MemberEntry *
member_find(Oid instance, int64 member)
{
	MemberKey	key = member_key(instance, member);

	return dshash_find(shmem_table(SHARED_MEMBERS), &key, true);
}

/* The same, made if it is not there. Raises 53200. */
MemberEntry *
member_make(Oid instance, int64 number)
{
	MemberKey	key = member_key(instance, number);
	MemberEntry *member;
	bool		found;

	plan_require_room(PLAN_ENTRY_BYTES(MemberEntry));
	member = dshash_find_or_insert(shmem_table(SHARED_MEMBERS), &key, &found);
	if (!found)
	{
		memset((char *) member + sizeof(MemberKey), 0, sizeof(MemberEntry) - sizeof(MemberKey));
		member->state = MEMBER_DEAD;
		shmem_account(PLAN_ENTRY_BYTES(MemberEntry));
	}
	return member;
}

void
member_release(MemberEntry *member)
{
	dshash_release_lock(shmem_table(SHARED_MEMBERS), member);
}

/* A sign of life of a member. Where its end is under way `ender` is whose transaction decides. Takes its partition. */
MemberStanding
member_renew(Oid instance, int64 number, VirtualTransactionId *ender)
{
	MemberEntry *member = member_find(instance, number);
	int64		now_us = clock_now_us();
	MemberStanding standing = MEMBER_IS_OVER;

	if (member == NULL)
		return standing;
	if (member->state == MEMBER_PENDING || (member->state == MEMBER_LIVE && member->deadline_us > now_us))
	{
		standing = MEMBER_IS_LIVE;
		member->deadline_us = Max(member->deadline_us, now_us + member->ttl_us);
	}
	else if (member->state == MEMBER_ENDING && member->pid != MyProcPid)
	{
		standing = MEMBER_IS_ENDING;
		*ender = member->ender;
	}
	member_release(member);
	return standing;
}

/* Marks a member that is locked as being ended by this transaction. */
void
member_mark_ending(MemberEntry *member)
{
	member->state = MEMBER_ENDING;
	member->pid = MyProcPid;
	GET_VXID_FROM_PGPROC(member->ender, *MyProc);
}

/* An array in the area, made larger; `used` bytes of it are kept. False: there is no room. */
static bool
grow(dsa_pointer *place, Size before, Size after, Size used)
{
	dsa_pointer made;

	if (!shmem_has_room(PLAN_ARRAY_BYTES(after)))
		return false;
	made = dsa_allocate_extended(shmem_area(), after, DSA_ALLOC_NO_OOM);
	if (!DsaPointerIsValid(made))
		return false;
	shmem_account(PLAN_ARRAY_BYTES(after));
	if (used > 0)
		memcpy(dsa_get_address(shmem_area(), made), dsa_get_address(shmem_area(), *place), used);
	if (before > 0)
	{
		dsa_free(shmem_area(), *place);
		shmem_account(-(int64) PLAN_ARRAY_BYTES(before));
	}
	*place = made;
	return true;
}

static MemberNews *
news_of(const MemberEntry *member)
{
	return dsa_get_address(shmem_area(), member->news);
}

/* Makes room for news of a member that is locked. False: there is no memory. Not in a callback. */
bool
member_reserve_news(MemberEntry *member, int more)
{
	int			capacity = Max(member->news_capacity, NEWS_MIN);

	while (capacity < member->news_count + more)
		capacity *= 2;
	if (capacity == member->news_capacity)
	{
		(void) news_of(member);	/* mapped here: to do that in a callback could fail */
		return true;
	}
	if (!grow(&member->news, member->news_capacity * sizeof(MemberNews), capacity * sizeof(MemberNews), member->news_count * sizeof(MemberNews)))
		return false;
	member->news_capacity = capacity;
	return true;
}

/*
 * The right to add so much to a member's news: this process's until it is given back
 * (MemberEntry.busy). False: somebody else has it, there is no memory, or it is no member.
 * Takes its partition. Not in a callback.
 */
bool
member_begin_news(Oid instance, int64 number, int more)
{
	MemberEntry *member = member_find(instance, number);
	bool		begun;

	if (member == NULL)
		return false;
	begun = (member->busy == 0 || member->busy == MyProcPid) && member->state == MEMBER_LIVE && member_reserve_news(member, more);
	if (begun)
		member->busy = MyProcPid;
	else
		member->busy_wanted = true;
	member_release(member);
	return begun;
}

/* What a member that is locked has not said that it knows; palloc'd. */
MemberNews *
member_copy_news(const MemberEntry *member)
{
	MemberNews *copy = palloc(Max(member->news_count, 1) * sizeof(MemberNews));

	if (member->news_count > 0)
		memcpy(copy, news_of(member), member->news_count * sizeof(MemberNews));
	return copy;
}

/* Adds what was reserved for. Never raises. */
void
member_add_news(MemberEntry *member, const MemberNews *news)
{
	Assert(member->news_count < member->news_capacity);
	if (member->news_count == member->news_capacity)
		return;
	news_of(member)[member->news_count++] = *news;
	member->last_seq = Max(member->last_seq, news->seq);
}

/* A member knows all up to this number. */
void
member_forget_news(MemberEntry *member, int64 seen)
{
	int			kept = 0;

	member->seen = Max(member->seen, seen);
	if (member->news_count == 0 || news_of(member)[0].seq > seen)
		return;
	for (int i = 0; i < member->news_count; i++)
	{
		if (news_of(member)[i].seq > seen)
			news_of(member)[kept++] = news_of(member)[i];
	}
	member->news_count = kept;
}

/* What a member that is locked is to own. False: there is no memory. Not in a callback. */
bool
member_set_offers(MemberEntry *member, const int64 *numbers, int count)
{
	int			capacity = Max(member->offers_capacity, NEWS_MIN);

	while (capacity < count)
		capacity *= 2;
	if (capacity != member->offers_capacity &&
		!grow(&member->offers, member->offers_capacity * sizeof(int64), capacity * sizeof(int64), 0))
		return false;
	member->offers_capacity = capacity;
	member->offers_count = count;
	if (count > 0)
		memcpy(dsa_get_address(shmem_area(), member->offers), numbers, count * sizeof(int64));
	return true;
}

/* A copy of what a member that is locked was offered; palloc'd. */
int64 *
member_copy_offers(const MemberEntry *member)
{
	int64	   *copy = palloc(Max(member->offers_count, 1) * sizeof(int64));

	if (member->offers_count > 0)
		memcpy(copy, dsa_get_address(shmem_area(), member->offers), member->offers_count * sizeof(int64));
	return copy;
}

/* It has claimed what it was offered. Never raises. */
void
member_take_offer(MemberEntry *member, int64 number)
{
	int64	   *offers = member->offers_count == 0 ? NULL : dsa_get_address(shmem_area(), member->offers);

	for (int i = 0; i < member->offers_count; i++)
	{
		if (offers[i] != number)
			continue;
		offers[i] = offers[--member->offers_count];
		return;
	}
}

static void
free_arrays(MemberEntry *member)
{
	if (member->news_capacity > 0)
	{
		dsa_free(shmem_area(), member->news);
		shmem_account(-(int64) PLAN_ARRAY_BYTES(member->news_capacity * sizeof(MemberNews)));
	}
	if (member->offers_capacity > 0)
	{
		dsa_free(shmem_area(), member->offers);
		shmem_account(-(int64) PLAN_ARRAY_BYTES(member->offers_capacity * sizeof(int64)));
	}
	member->news_capacity = member->news_count = 0;
	member->offers_capacity = member->offers_count = 0;
}

/* As claim_visit(), for members. */
void
member_visit(Oid instance, bool (*visit) (MemberEntry *member, void *arg), void *arg)
{
	dshash_seq_status scan;
	MemberEntry *member;

	dshash_seq_init(&scan, shmem_table(SHARED_MEMBERS), true);
	while ((member = dshash_seq_next(&scan)) != NULL)
	{
		if (member->key.database != MyDatabaseId || member->key.instance != instance || !visit(member, arg))
			continue;
		free_arrays(member);
		dshash_delete_current(&scan);
		shmem_account(-(int64) PLAN_ENTRY_BYTES(MemberEntry));
	}
	dshash_seq_term(&scan);
}

/* Removes members that are over, and those of other instances of the extension: see plan_purge_removes(). */
void
member_entry_purge(Oid database, Oid keep_instance)
{
	dshash_seq_status scan;
	MemberEntry *member;

	dshash_seq_init(&scan, shmem_table(SHARED_MEMBERS), true);
	while ((member = dshash_seq_next(&scan)) != NULL)
	{
		if (!plan_purge_removes(member->key.database, member->key.instance, member->state == MEMBER_DEAD, database, keep_instance))
			continue;
		free_arrays(member);
		dshash_delete_current(&scan);
		shmem_account(-(int64) PLAN_ENTRY_BYTES(MemberEntry));
	}
	dshash_seq_term(&scan);
}
