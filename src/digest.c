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
#include "common/sha2.h"

#include "digest.h"

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

/* The digest of a name, of this extension's. Needs a transaction. */
void
digest_name(Oid instance, const char *name, uint8 *digest)
{
	digest_pieces(&instance, sizeof(instance), name, strlen(name), digest);
}
