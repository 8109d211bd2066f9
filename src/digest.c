/*-------------------------------------------------------------------------
 *
 * digest.c
 *	  What stands for a name in the keys of shared memory.
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

/*
 * SHA-256 of the extension's oid and a name, its first DIGEST_BYTES. Needs a
 * transaction: OpenSSL's contexts belong to a resource owner.
 */
void
digest_name(Oid instance, const char *name, uint8 *digest)
{
	pg_cryptohash_ctx *context = pg_cryptohash_create(PG_SHA256);
	uint8		whole[PG_SHA256_DIGEST_LENGTH];

	if (context == NULL ||
		pg_cryptohash_init(context) < 0 ||
		pg_cryptohash_update(context, (const uint8 *) &instance, sizeof(instance)) < 0 ||
		pg_cryptohash_update(context, (const uint8 *) name, strlen(name)) < 0 ||
		pg_cryptohash_final(context, whole, sizeof(whole)) < 0)
		elog(ERROR, "could not compute the digest of a name");
	pg_cryptohash_free(context);
	memcpy(digest, whole, DIGEST_BYTES);
}
