/*
 * error.h
 *	  Our SQLSTATEs. They are part of the contract: stable for ever.
 */
#ifndef REVENANT_ERROR_H
#define REVENANT_ERROR_H

#include "postgres.h"

#define ERRCODE_RV_STALE_TOKEN MAKE_SQLSTATE('R', 'V', '0', '0', '1')
#define ERRCODE_RV_LEASE_EXPIRED MAKE_SQLSTATE('R', 'V', '0', '0', '2')
#define ERRCODE_RV_VERSION_CONFLICT MAKE_SQLSTATE('R', 'V', '0', '0', '3')
#define ERRCODE_RV_FINGERPRINT_MISMATCH MAKE_SQLSTATE('R', 'V', '0', '0', '4')
#define ERRCODE_RV_NOT_PRELOADED MAKE_SQLSTATE('R', 'V', '0', '0', '5')
#define ERRCODE_RV_UPGRADE_FAILED MAKE_SQLSTATE('R', 'V', '0', '0', '6')
#define ERRCODE_RV_QUARANTINED MAKE_SQLSTATE('R', 'V', '0', '0', '7')
#define ERRCODE_RV_FENCE_REQUIRED MAKE_SQLSTATE('R', 'V', '0', '0', '8')

#endif							/* REVENANT_ERROR_H */
