/*
 * zone.h
 *	  Where the wall clock of a calendar schedule hangs.
 */
#ifndef REVENANT_ZONE_H
#define REVENANT_ZONE_H

#include "postgres.h"

#include "schedule.h"

extern Size zone_shmem_size(void);
extern void zone_shmem_init(void *place, bool found);
extern void zone_publish_servers(void);
extern bool zone_place(const char *timezone, TimestampTz anchor, SchedulePlace *place);

#endif							/* REVENANT_ZONE_H */
