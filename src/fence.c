/*-------------------------------------------------------------------------
 *
 * fence.c
 *	  Fence tokens: issued from blocks that are durable before they are used.
 *
 * The durable state is in three sequences, whose values are written outside of
 * transactions and always logged by setval():
 *
 *	  _token_mark		the highest token that may have been issued
 *	  _token_lineage	base, and a digest of {system, database, instance}
 *	  _token_dump		the same of the present era: the one that a dump carries
 *
 * A dump restores _token_dump alone, so nothing that it does can lower a mark;
 * token.c says what each number means for the next era.
 *
 * NOTES
 *	  One process at a time reserves a block, under a heavyweight lock, so that
 *	  the others wait where they can be cancelled. The mark's record is the
 *	  last of the three and is flushed before the block is published: a crash
 *	  skips numbers and repeats none.
 *
 *	  What is flushed up to is the end of the record that setval() wrote.
 *	  The insert position itself would not do: just after a page boundary it
 *	  lies behind a page header that is not written yet, and XLogFlush()
 *	  refuses it.
 *
 * The idea: fencing tokens after Lamport's and Chubby's sequencers; blocks
 * after Oracle's and PostgreSQL's sequence caches; eras after view numbers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "commands/sequence.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/spin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

#include "compat.h"
#include "debug.h"
#include "extension.h"
#include "fence.h"
#include "fence_state.h"
#include "locktag.h"
#include "row.h"
#include "shmem.h"
#include "stat.h"
#include "token.h"

/* Tokens in a block: what a crash skips at most, and how often a reservation is flushed. */
#define BLOCK_SIZE INT64CONST(8192)

typedef struct DatabaseKey
{
	Oid			database;
	Oid			instance;		/* pg_extension.oid */
} DatabaseKey;

/* One per database and instance; never freed while the server runs, so processes may keep a pointer. */
typedef struct DatabaseState
{
	DatabaseKey key;
	slock_t		mutex;
	int64		next;			/* next token to hand out */
	int64		last;			/* last of the block; 0: none reserved in this server's life */
	int64		dump;			/* what _token_dump was then: another value came with a restore */
	int			setvals;		/* transactions that called setval() and have not ended */
	uint64		setval_serial;	/* another number whenever one of them begins or ends */
	bool		looked;			/* _token_dump was compared since, so a token needs no look at it */
} DatabaseState;

static DatabaseState *my_state = NULL;

/* This transaction is one of state->setvals. */
static DatabaseState *setval_state = NULL;

static DatabaseState *database_state(const Extension *extension);
static bool draw(DatabaseState *state, int64 *token);
static bool look_and_draw(const Extension *extension, DatabaseState *state, int64 *token);
static bool is_entered(DatabaseState *state, int64 dump);
static int64 dump_row(const Extension *extension);
static void reserve(const Extension *extension, DatabaseState *state);
static void publish(DatabaseState *state, const TokenBlock *block);

/* How shmem.c lays out the table of databases. */
const dshash_parameters *
fence_state_params(void)
{
	static const dshash_parameters params = {
		.key_size = sizeof(DatabaseKey),
		.entry_size = sizeof(DatabaseState),
		.compare_function = dshash_memcmp,
		.hash_function = dshash_memhash,
		COMPAT_DSHASH_COPY
	};

	return &params;
}

/*
 * A token greater than every one issued before in this database, its dumps'
 * sources and its earlier primaries. `function` is the SQL function that asks,
 * for messages. Raises 25006 on a standby and in a read-only transaction,
 * whether or not the block is empty; 54000 when numbers are exhausted.
 * Takes, at a reservation only: the token lock, the sequences' locks, a WAL flush.
 */
int64
fence_next_token(const char *function)
{
	const Extension *extension = extension_get();
	DatabaseState *state = database_state(extension);
	int64		token;

	PreventCommandDuringRecovery(function);
	PreventCommandIfReadOnly(function);
	while (!draw(state, &token) && !look_and_draw(extension, state, &token))
		reserve(extension, state);
	stat_count(STAT_TOKENS);
	return token;
}

/*
 * Reserves a block if this server's life has none yet, or if a restore brought
 * what it did not know: the next lineage must see that this era was entered,
 * wanted or not. Called at CREATE EXTENSION and by the supervisor at every tick.
 */
void
fence_enter_era(void)
{
	const Extension *extension = extension_get();
	DatabaseState *state = database_state(extension);

	if (!is_entered(state, dump_row(extension)))
		reserve(extension, state);
}

static DatabaseState *
database_state(const Extension *extension)
{
	DatabaseKey key = {.database = MyDatabaseId,.instance = extension->extension};
	bool		found;

	if (my_state != NULL && my_state->key.instance == key.instance)
		return my_state;
	my_state = dshash_find_or_insert(shmem_table(SHARED_DATABASES), &key, &found);
	if (!found)
	{
		SpinLockInit(&my_state->mutex);
		my_state->next = 0;
		my_state->last = 0;
		my_state->dump = 0;
		my_state->setvals = 0;
		my_state->setval_serial = 0;
		my_state->looked = false;
	}
	dshash_release_lock(shmem_table(SHARED_DATABASES), my_state);
	return my_state;
}

/* Whether a block was reserved in this server's life, with all that is known by now. */
static bool
is_entered(DatabaseState *state, int64 dump)
{
	bool		entered;

	SpinLockAcquire(&state->mutex);
	entered = state->last != 0 && state->dump == dump;
	SpinLockRelease(&state->mutex);
	return entered;
}

/* What _token_dump is now. CREATE EXTENSION has reserved a block before a restore brings the row. */
static int64
dump_row(const Extension *extension)
{
	return row_sequence_value(extension->token_dump);
}

static void
count_setval(DatabaseState *state, int change)
{
	SpinLockAcquire(&state->mutex);
	state->setvals += change;
	state->setval_serial++;
	state->looked = false;
	SpinLockRelease(&state->mutex);
}

/*
 * Somebody is about to call setval() in this database, as a restore does to
 * _token_dump: until that transaction has ended, and once after, each token
 * looks at the row. Called by the object-access hook, before the call.
 */
void
fence_note_setval(void)
{
	const Extension *extension = extension_find();

	if (extension == NULL || setval_state != NULL || RecoveryInProgress())
		return;
	setval_state = database_state(extension);
	count_setval(setval_state, 1);
}

/* The transaction has ended, however it did. Never raises. */
void
fence_note_xact_end(void)
{
	if (setval_state != NULL)
		count_setval(setval_state, -1);
	setval_state = NULL;
}

/* The next token of the block, if nothing can have come with a restore since the last look. */
static bool
draw(DatabaseState *state, int64 *token)
{
	bool		drawn = false;

	SpinLockAcquire(&state->mutex);
	if (state->looked && state->next <= state->last)
	{
		*token = state->next++;
		drawn = true;
	}
	SpinLockRelease(&state->mutex);
	return drawn;
}

/* The same with a look at _token_dump. False: a block must be reserved. */
static bool
look_and_draw(const Extension *extension, DatabaseState *state, int64 *token)
{
	bool		drawn = false;
	uint64		serial;
	int64		dump;

	SpinLockAcquire(&state->mutex);
	serial = state->setval_serial;
	SpinLockRelease(&state->mutex);
	dump = dump_row(extension);
	SpinLockAcquire(&state->mutex);
	if (state->last != 0 && state->next <= state->last && state->dump == dump)
	{
		*token = state->next++;
		drawn = true;
		state->looked = state->setvals == 0 && state->setval_serial == serial;
	}
	SpinLockRelease(&state->mutex);
	return drawn;
}

static void
publish(DatabaseState *state, const TokenBlock *block)
{
	int64		dump = token_pack(block->next.dump_era, block->next.dump_identity);

	SpinLockAcquire(&state->mutex);
	state->next = block->first;
	state->last = block->last;
	state->dump = dump;
	state->looked = false;
	SpinLockRelease(&state->mutex);
}

/* {system, database, instance} in 41 bits, never 0. */
static uint64
identity(const Extension *extension)
{
	struct
	{
		uint64		system;
		Oid			database;
		Oid			instance;
	}			who = {GetSystemIdentifier(), MyDatabaseId, extension->extension};
	uint64		digest;

	digest = hash_bytes_extended((const unsigned char *) &who, sizeof(who), 0) >>
		(64 - TOKEN_IDENTITY_BITS);
	return digest == 0 ? 1 : digest;
}

static int64
sequence_read(Oid sequence)
{
	LOCAL_FCINFO(fcinfo, 1);
	Datum		value;

	InitFunctionCallInfoData(*fcinfo, NULL, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = ObjectIdGetDatum(sequence);
	fcinfo->args[0].isnull = false;
	value = pg_sequence_last_value(fcinfo);
	return fcinfo->isnull ? 0 : DatumGetInt64(value);
}

static void
sequence_write(Oid sequence, int64 value)
{
	DirectFunctionCall2(setval_oid, ObjectIdGetDatum(sequence), Int64GetDatum(value));
}

static TokenState
state_read(const Extension *extension)
{
	TokenState	state;

	state.mark = sequence_read(extension->token_mark);
	token_unpack(sequence_read(extension->token_lineage), &state.base, &state.identity);
	token_unpack(sequence_read(extension->token_dump), &state.dump_era, &state.dump_identity);
	return state;
}

/* Makes the next state durable; the mark comes last, so a crash in between leaves a prefix. */
static void
state_write(const Extension *extension, const TokenState *old, const TokenState *next)
{
	if (old->base != next->base || old->identity != next->identity)
		sequence_write(extension->token_lineage, token_pack(next->base, next->identity));
	if (old->dump_era != next->dump_era || old->dump_identity != next->dump_identity)
		sequence_write(extension->token_dump, token_pack(next->dump_era, next->dump_identity));
	DEBUG_POINT("token-before-mark");
	if (old->mark != next->mark)
		sequence_write(extension->token_mark, next->mark);
	XLogFlush(XactLastRecEnd);
}

static void
raise_exhausted(TokenOutcome outcome)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("fence tokens are exhausted"),
			 outcome == TOKEN_ERA_EXHAUSTED ?
			 errdetail("The era of the next token would be above %lld.", (long long) TOKEN_MAX_ERA) :
			 errdetail("This era has issued all of its %lld tokens.", (long long) TOKEN_MAX_N),
			 outcome == TOKEN_ERA_EXHAUSTED ?
			 errhint("Tokens of this database cannot grow any further.") :
			 errhint("Enter the next era with SELECT revenant.advance_tokens(beyond), beyond being the greatest token issued.")));
}

/*
 * Runs `work` as the one process that reads and writes the token state, with
 * the right to do so whoever the user is.
 */
static void
with_state_locked(const Extension *extension,
				  void (*work) (const Extension *extension, DatabaseState *state, int64 beyond),
				  DatabaseState *state, int64 beyond)
{
	LOCKTAG		tag = locktag_make(LOCK_OTHER, MyDatabaseId, extension->extension, LOCK_OTHER_TOKEN);
	Oid			user;
	int			context;

	/* the sequences' own locks first: who drops the extension makes us wait here, holding nothing */
	LockRelationOid(extension->token_mark, RowExclusiveLock);
	LockRelationOid(extension->token_lineage, RowExclusiveLock);
	LockRelationOid(extension->token_dump, RowExclusiveLock);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);

	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID, context | SECURITY_LOCAL_USERID_CHANGE);
	work(extension, state, beyond);
	SetUserIdAndSecContext(user, context);

	LockRelease(&tag, ExclusiveLock, false);
}

static void
reserve_locked(const Extension *extension, DatabaseState *state, int64 known_mark)
{
	TokenState	now = state_read(extension);
	TokenBlock	block;
	TokenOutcome outcome;

	outcome = token_reserve(&now, identity(extension), GetWALInsertionTimeLine(), known_mark,
							BLOCK_SIZE, &block);
	if (outcome != TOKEN_RESERVED)
		raise_exhausted(outcome);
	state_write(extension, &now, &block.next);
	DEBUG_POINT("token-before-publish");
	publish(state, &block);
}

static void
reserve_if_needed(const Extension *extension, DatabaseState *state, int64 unused)
{
	int64		next,
				last;

	SpinLockAcquire(&state->mutex);
	next = state->next;
	last = state->last;
	SpinLockRelease(&state->mutex);
	if (next > last || !is_entered(state, dump_row(extension)))
		reserve_locked(extension, state, last);
}

static void
reserve(const Extension *extension, DatabaseState *state)
{
	with_state_locked(extension, reserve_if_needed, state, 0);
}

static void
advance_locked(const Extension *extension, DatabaseState *state, int64 beyond)
{
	TokenState	now = state_read(extension);
	TokenState	next;
	int64		last;

	if (token_advance(&now, identity(extension), GetWALInsertionTimeLine(), beyond, &next) != TOKEN_RESERVED)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"beyond\" is too large for a fence token"),
				 errdetail("The greatest value is %lld.",
						   (long long) ((TOKEN_MAX_ERA << TOKEN_N_BITS) - 1))));
	SpinLockAcquire(&state->mutex);
	last = state->last;
	state->next = last + 1;		/* what is left of the old block is not handed out any more */
	SpinLockRelease(&state->mutex);
	state_write(extension, &now, &next);
	reserve_locked(extension, state, last);
}

/*
 * revenant.advance_tokens(beyond bigint)
 *
 * Makes every later token greater than `beyond`, by entering an era above its
 * own if need be. Not undone by a rollback. Raises 22004, 22023, 25006.
 */
SQL_FUNCTION(revenant_advance_tokens)
{
	const Extension *extension = extension_get();
	int64		beyond;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("\"beyond\" must not be null")));
	beyond = PG_GETARG_INT64(0);
	if (beyond < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"beyond\" must not be negative"),
				 errhint("Give the greatest token that is known anywhere.")));
	PreventCommandDuringRecovery("revenant.advance_tokens()");
	PreventCommandIfReadOnly("revenant.advance_tokens()");
	with_state_locked(extension, advance_locked, database_state(extension), beyond);
	PG_RETURN_VOID();
}
