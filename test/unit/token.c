/* link: src/token.c */
#include "token.h"

#include "tap.h"

int
main(void)
{
	int64		packed;
	int64		era;
	uint64		identity;

	is(token_era((INT64CONST(3) << TOKEN_N_BITS) + 17), 3, "the era is above the number");
	is(token_era(TOKEN_MAX), TOKEN_MAX_ERA, "also in the highest token there can be");

	packed = token_pack(TOKEN_MAX_ERA, 1234567);
	token_unpack(packed, &era, &identity);
	is(era, TOKEN_MAX_ERA, "an era survives packing");
	is(identity, 1234567, "an identity survives packing");
	return done_testing();
}
