/*
 * message_due.h
 *	  Whose messages are due: what a supervisor does about them.
 */
#ifndef REVENANT_MESSAGE_DUE_H
#define REVENANT_MESSAGE_DUE_H

#include "postgres.h"

extern void message_look_for_due(void);

#endif							/* REVENANT_MESSAGE_DUE_H */
