/*-------------------------------------------------------------------------
 *
 * digest.c
 *	  What stands for a name in the keys of shared memory, and for data that must be the same.
 *
 * A cryptographic digest, so that nobody can find a name that is taken for
 * another one.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/cryptohash.h"
#include "common/hashfn.h"
#include "common/sha2.h"
#include "utils/memutils.h"

#include "digest.h"

/* The digests of the names that this process used last; longer ones are computed each time. */
#define SLOTS 64
#define SLOT_NAME_MAX 511
typedef struct Slot
{
	Oid			instance;
	uint8		digest[DIGEST_BYTES];
	char		name[SLOT_NAME_MAX + 1];
} Slot;

static Slot *slots = NULL;

/* SHA-256 of two pieces of memory, its first DIGEST_BYTES. Needs a transaction: OpenSSL's contexts belong to a resource owner. */
static void
digest_pieces(const void *first, Size first_size, const void *second, Size second_size, uint8 *digest)
{
	pg_cryptohash_ctx *context = pg_cryptohash_create(PG_SHA256);
	uint8		whole[PG_SHA256_DIGEST_LENGTH];

	if (context == NULL ||
		pg_cryptohash_init(context) < 0 ||
		pg_cryptohash_update(context, first, first_size) < 0 ||
		pg_cryptohash_update(context, second, second_size) < 0 ||
		pg_cryptohash_final(context, whole, sizeof(whole)) < 0)
		elog(ERROR, "could not compute a digest");
	pg_cryptohash_free(context);
	memcpy(digest, whole, DIGEST_BYTES);
}

/* The digest of some data. Needs a transaction. */
void
digest_bytes(const void *data, Size size, uint8 *digest)
{
	digest_pieces("", 0, data, size, digest);
}

/* The digest of a name of `instance`: of this extension, or of a table of the user's. Needs a transaction. */
void
digest_name(Oid instance, const char *name, uint8 *digest)
{
	Size		length = strlen(name);
	Slot	   *slot;

	if (length > SLOT_NAME_MAX)
	{
		digest_pieces(&instance, sizeof(instance), name, length, digest);
		return;
	}
	if (slots == NULL)
		slots = MemoryContextAllocZero(TopMemoryContext, SLOTS * sizeof(Slot));	/* for the life of this process */
	slot = &slots[(hash_bytes((const unsigned char *) name, (int) length) ^ instance) % SLOTS];
	if (slot->instance != instance || strcmp(slot->name, name) != 0)
	{
		slot->instance = InvalidOid;
		digest_pieces(&instance, sizeof(instance), name, length, slot->digest);
		memcpy(slot->name, name, length + 1);
		slot->instance = instance;
	}
	memcpy(digest, slot->digest, DIGEST_BYTES);
}
