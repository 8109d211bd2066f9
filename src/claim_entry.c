/*-------------------------------------------------------------------------
 *
 * claim_entry.c
 *	  The shared-memory entry of a claim: until when a split is whose.
 *
 * By epoch: an epoch is one claim's. All of an entry is under the lock of its partition; split_claim.c
 * has what its states mean.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"

#include "claim_entry.h"
#include "compat.h"
#include "shmem.h"

/* How shmem.c lays out the table of claims. */
const dshash_parameters *
claim_entry_params(void)
{
	static const dshash_parameters params = {
		.key_size = sizeof(ClaimKey),
		.entry_size = sizeof(ClaimEntry),
		.compare_function = dshash_memcmp,
		.hash_function = dshash_memhash,
		COMPAT_DSHASH_COPY
	};

	return &params;
}

/* What stands for a split's name beside its epoch. */
uint64
split_name_hash(const char *name)
{
	return hash_bytes_extended((const unsigned char *) name, (int) strlen(name), 0);
}

static ClaimKey
claim_key(Oid instance, int64 epoch)
{
	ClaimKey	key;

	memset(&key, 0, sizeof(key));
	key.database = MyDatabaseId;
	key.instance = instance;
	key.epoch = epoch;
	return key;
}

/* A claim by its epoch, locked, or NULL. Never raises. */
ClaimEntry *
claim_find(Oid instance, int64 epoch)
{
	ClaimKey	key = claim_key(instance, epoch);

	return dshash_find(shmem_table(SHARED_CLAIMS), &key, true);
}

static bool
is_dead(ClaimEntry *claim, void *arg)
{
	return claim->state == CLAIM_DEAD;
}

/*
 * The same, made if it is not there: what it says is to be filled in. Where memory is full what is
 * dead goes first, whose session has ended without removing it. Raises 53200.
 */
ClaimEntry *
claim_make(Oid instance, int64 epoch)
{
	ClaimKey	key = claim_key(instance, epoch);
	ClaimEntry *claim;
	bool		found;

	/* the first look is left out where somebody has just looked, the second one never is */
	if (!shmem_make_room(PLAN_ENTRY_BYTES(ClaimEntry)))
		claim_visit(instance, is_dead, NULL);
	plan_require_room(PLAN_ENTRY_BYTES(ClaimEntry));
	claim = dshash_find_or_insert(shmem_table(SHARED_CLAIMS), &key, &found);
	if (!found)
	{
		memset((char *) claim + sizeof(ClaimKey), 0, sizeof(ClaimEntry) - sizeof(ClaimKey));
		claim->state = CLAIM_DEAD;
		shmem_account(PLAN_ENTRY_BYTES(ClaimEntry));
	}
	return claim;
}

void
claim_release(ClaimEntry *claim)
{
	dshash_release_lock(shmem_table(SHARED_CLAIMS), claim);
}

/* Whether the time of a puller's claim is over. */
bool
claim_is_over(const ClaimEntry *claim, int64 now_us)
{
	return claim->member == 0 && claim->deadline_us <= now_us;
}

/* Removes a claim that is dead. Not in a callback. */
void
claim_reap(Oid instance, int64 epoch)
{
	ClaimEntry *claim = claim_find(instance, epoch);

	if (claim == NULL)
		return;
	if (claim->state != CLAIM_DEAD)
	{
		claim_release(claim);
		return;
	}
	dshash_delete_entry(shmem_table(SHARED_CLAIMS), claim);
	shmem_account(-(int64) PLAN_ENTRY_BYTES(ClaimEntry));
}

/*
 * Calls `visit` for each claim of this database and instance, under the locks of
 * its partition; true: it is to be removed.
 */
void
claim_visit(Oid instance, bool (*visit) (ClaimEntry *claim, void *arg), void *arg)
{
	dshash_seq_status scan;
	ClaimEntry *claim;

	dshash_seq_init(&scan, shmem_table(SHARED_CLAIMS), true);
	while ((claim = dshash_seq_next(&scan)) != NULL)
	{
		if (claim->key.database != MyDatabaseId || claim->key.instance != instance || !visit(claim, arg))
			continue;
		dshash_delete_current(&scan);
		shmem_account(-(int64) PLAN_ENTRY_BYTES(ClaimEntry));
	}
	dshash_seq_term(&scan);
}

/* Removes claims that are over, whose session has ended without that, and those of other instances of the extension: see plan_purge_removes(). */
void
claim_entry_purge(Oid database, Oid keep_instance)
{
	dshash_seq_status scan;
	ClaimEntry *claim;

	dshash_seq_init(&scan, shmem_table(SHARED_CLAIMS), true);
	while ((claim = dshash_seq_next(&scan)) != NULL)
	{
		if (!plan_purge_removes(claim->key.database, claim->key.instance, claim->state == CLAIM_DEAD, database, keep_instance))
			continue;
		dshash_delete_current(&scan);
		shmem_account(-(int64) PLAN_ENTRY_BYTES(ClaimEntry));
	}
	dshash_seq_term(&scan);
}
