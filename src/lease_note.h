/*
 * lease_note.h
 *	  The label and the metadata of a session's or a transaction's hold.
 */
#ifndef REVENANT_LEASE_NOTE_H
#define REVENANT_LEASE_NOTE_H

#include "postgres.h"

#include "utils/jsonb.h"

#include "lease_entry.h"

extern dsa_pointer lease_note_make(const char *holder, Jsonb *metadata, bool reserved);
extern void lease_note_read(dsa_pointer place, char **holder, Jsonb **metadata);
extern char *lease_note_label(LeaseEntry *entry);
extern void lease_note_free(const LeaseKey *key, dsa_pointer place);
extern void lease_note_discard(const LeaseKey *key, dsa_pointer place);
extern void lease_note_free_discarded(void);
extern void lease_note_dispose(dsa_pointer place);

#endif							/* REVENANT_LEASE_NOTE_H */
