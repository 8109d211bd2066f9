/*
 * guard.h
 *	  Guarded tables: writes that need a fence.
 */
#ifndef REVENANT_GUARD_H
#define REVENANT_GUARD_H

extern void guard_install_hooks(void);

#endif							/* REVENANT_GUARD_H */
