/*-------------------------------------------------------------------------
 *
 * lease_note.c
 *	  The label and the metadata of a session's or a transaction's hold.
 *
 * A ttl hold has them in its row; the other holds have no row, so theirs are in
 * the shared area.
 *
 * NOTES
 *	  Others read a note while they hold the partition of its entry. Whoever
 *	  frees one has taken it out of the entry first, under the mutex, and then
 *	  takes the partition exclusively: so no reader is left.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/ipc.h"

#include "lease_note.h"
#include "shmem.h"

typedef struct LeaseNote
{
	uint32		holder_len;		/* 0: no label */
	uint32		metadata_len;	/* 0: none; a Jsonb, at MAXALIGN behind the label */
	char		data[FLEXIBLE_ARRAY_MEMBER];
} LeaseNote;

/* Notes that a callback took out: freed at the next call, where an error does no harm. */
#define DISCARDED_MAX 64
typedef struct Discarded
{
	LeaseKey	key;
	dsa_pointer place;
} Discarded;

static Discarded discarded[DISCARDED_MAX];
static int	ndiscarded = 0;
static bool exit_registered = false;
static bool exiting = false;

static Size
note_size(uint32 holder_len, uint32 metadata_len)
{
	return offsetof(LeaseNote, data) + MAXALIGN(holder_len) + metadata_len;
}

static void
free_at_exit(int code, Datum arg)
{
	lease_note_free_discarded();
	exiting = true;
}

/* Label and metadata as a note in the area, `reserved` as LEASE_PIN_RESERVED; InvalidDsaPointer for none of both. Raises 53200. */
dsa_pointer
lease_note_make(const char *holder, Jsonb *metadata, bool reserved)
{
	uint32		holder_len = holder ? strlen(holder) : 0;
	uint32		metadata_len = metadata ? VARSIZE(metadata) : 0;
	Size		size = note_size(holder_len, metadata_len);
	dsa_pointer place;
	LeaseNote  *note;

	if (holder_len == 0 && metadata_len == 0)
		return InvalidDsaPointer;
	if (!exit_registered)
		before_shmem_exit(free_at_exit, (Datum) 0);
	exit_registered = true;
	if (!reserved)
		lease_entry_need_room(size);
	place = lease_entry_allocate(size);
	note = dsa_get_address(shmem_area(), place);
	note->holder_len = holder_len;
	note->metadata_len = metadata_len;
	if (holder_len > 0)
		memcpy(note->data, holder, holder_len);
	if (metadata_len > 0)
		memcpy(note->data + MAXALIGN(holder_len), metadata, metadata_len);
	shmem_account(size);
	return place;
}

/* Copies what a note says, NULL for what it does not. The caller has the entry's partition. */
void
lease_note_read(dsa_pointer place, char **holder, Jsonb **metadata)
{
	LeaseNote  *note;

	*holder = NULL;
	*metadata = NULL;
	if (!DsaPointerIsValid(place))
		return;
	note = dsa_get_address(shmem_area(), place);
	if (note->holder_len > 0)
		*holder = pnstrdup(note->data, note->holder_len);
	if (note->metadata_len > 0)
	{
		*metadata = palloc(note->metadata_len);
		memcpy(*metadata, note->data + MAXALIGN(note->holder_len), note->metadata_len);
	}
}

/* The label of the committed hold of an entry that is pinned, palloc'd, or NULL. Takes its partition. */
char *
lease_note_label(LeaseEntry *entry)
{
	dshash_table *table = shmem_table(SHARED_LEASES);
	LeaseEntry *found = dshash_find(table, &entry->key, false);
	LeaseHold	now;
	char	   *holder = NULL;
	Jsonb	   *metadata;

	if (found == NULL)
		return NULL;
	lease_entry_snapshot(found, &now, NULL);
	lease_note_read(now.note, &holder, &metadata);
	dshash_release_lock(table, found);
	return holder;
}

/* Frees a note of an entry whose partition the caller has exclusively, if it is one. */
void
lease_note_dispose(dsa_pointer place)
{
	LeaseNote  *note;

	if (!DsaPointerIsValid(place))
		return;
	note = dsa_get_address(shmem_area(), place);
	shmem_account(-(int64) note_size(note->holder_len, note->metadata_len));
	dsa_free(shmem_area(), place);
}

/* Frees a note that was taken out of the entry with this key, if it is one. Takes the partition. */
void
lease_note_free(const LeaseKey *key, dsa_pointer place)
{
	dshash_table *table = shmem_table(SHARED_LEASES);
	LeaseEntry *entry;

	if (!DsaPointerIsValid(place))
		return;
	entry = dshash_find(table, key, true);
	lease_note_dispose(place);
	if (entry != NULL)
		dshash_release_lock(table, entry);
}

/*
 * The same from within a commit or abort callback, later: giving memory back
 * may have to map a part of the area that this process has not seen yet, which can fail.
 */
void
lease_note_discard(const LeaseKey *key, dsa_pointer place)
{
	if (!DsaPointerIsValid(place))
		return;
	/* a transaction that is open at the exit is aborted later than free_at_exit(), and there is no next call */
	if (ndiscarded < DISCARDED_MAX && !exiting)
		discarded[ndiscarded++] = (Discarded) {.key = *key,.place = place};
	else
		lease_note_free(key, place);
}

/* Frees what was discarded. */
void
lease_note_free_discarded(void)
{
	while (ndiscarded > 0)
	{
		ndiscarded--;
		lease_note_free(&discarded[ndiscarded].key, discarded[ndiscarded].place);
	}
}
