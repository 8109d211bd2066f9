/*-------------------------------------------------------------------------
 *
 * zone.c
 *	  Where the wall clock of a calendar schedule hangs: a time zone by its
 *	  name, or the one that the database has.
 *
 * The database's is what ALTER DATABASE set, else the server's. A session may
 * have another one, by its role or by itself, and that is not meant. So the
 * server's is told by the launcher, which is connected to no database.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_db_role_setting.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "pgtime.h"
#include "storage/spin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"

#include "zone.h"

#define SETTING "timezone="

typedef struct ZoneShared
{
	slock_t		mutex;
	char		servers[TZ_STRLEN_MAX + 1]; /* empty: not told yet */
} ZoneShared;

static ZoneShared *shared = NULL;

/* What this file needs in the fixed segment, in bytes. */
Size
zone_shmem_size(void)
{
	return sizeof(ZoneShared);
}

/* Called by shmem.c at every start of shared memory. */
void
zone_shmem_init(void *place, bool found)
{
	shared = place;
	if (!found)
	{
		SpinLockInit(&shared->mutex);
		shared->servers[0] = '\0';
	}
}

/* The launcher's: tells what the server's setting is now. */
void
zone_publish_servers(void)
{
	char		name[TZ_STRLEN_MAX + 1];

	strlcpy(name, pg_get_timezone_name(session_timezone), sizeof(name));
	SpinLockAcquire(&shared->mutex);
	memcpy(shared->servers, name, sizeof(name));
	SpinLockRelease(&shared->mutex);
}

static pg_tz *
servers_zone(void)
{
	char		name[TZ_STRLEN_MAX + 1];

	SpinLockAcquire(&shared->mutex);
	memcpy(name, shared->servers, sizeof(name));
	SpinLockRelease(&shared->mutex);
	return name[0] != '\0' ? pg_tzset(name) : session_timezone;
}

/* The value that ALTER DATABASE gave the setting, palloc'd, or NULL. Reads the catalog as it is now. */
static char *
database_setting(void)
{
	Relation	rel = table_open(DbRoleSettingRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	char	   *value = NULL;

	ScanKeyInit(&keys[0], Anum_pg_db_role_setting_setdatabase, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(MyDatabaseId));
	ScanKeyInit(&keys[1], Anum_pg_db_role_setting_setrole, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(InvalidOid));
	scan = systable_beginscan(rel, DbRoleSettingDatidRolidIndexId, true, NULL, 2, keys);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		isnull;
		Datum		config = heap_getattr(tuple, Anum_pg_db_role_setting_setconfig, RelationGetDescr(rel), &isnull);
		Datum	   *items = NULL;
		int			count = 0;

		if (!isnull)
			deconstruct_array(DatumGetArrayTypeP(config), TEXTOID, -1, false, TYPALIGN_INT, &items, NULL, &count);
		for (int i = 0; i < count; i++)
		{
			char	   *item = TextDatumGetCString(items[i]);

			if (pg_strncasecmp(item, SETTING, strlen(SETTING)) == 0)
				value = item + strlen(SETTING);
		}
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return value;
}

static int32
offset_at(int64 utc, void *zone)
{
	pg_time_t	time = (pg_time_t) utc;
	struct pg_tm *tm = pg_localtime(&time, zone);

	return tm != NULL ? (int32) tm->tm_gmtoff : 0;
}

/*
 * The place of a schedule: `timezone` is a name, or NULL for the database's
 * own. False: there is no such zone. Needs a transaction.
 */
bool
zone_place(const char *timezone, TimestampTz anchor, SchedulePlace *place)
{
	pg_tz	   *zone;

	if (timezone == NULL)
		timezone = database_setting();
	zone = timezone != NULL ? pg_tzset(timezone) : servers_zone();
	place->anchor = anchor;
	place->offset = offset_at;
	place->zone = zone;
	return zone != NULL;
}
