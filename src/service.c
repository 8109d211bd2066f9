/*-------------------------------------------------------------------------
 *
 * service.c
 *	  A supervisor's runners that serve a role: they deliver its messages, or
 *	  flush its entities.
 *
 * There is at most one of a kind for a role. It is started when somebody wants it and
 * ends by itself when it has had nothing to do for a while. In each tick:
 *
 *		service_collect()		those that ended are told apart: well, or badly
 *		service_want()			whoever knows of something to do says so, each tick anew
 *		service_start_wanted()	those are started, in the order in which they were first wanted
 *
 * One that ended badly is followed by a cautious one, and so is one that this supervisor
 * knows nothing of: what ends its process, or the whole server, is not to do so for ever.
 * (What cautious means is the service's own.) One that got nothing done
 * is followed after a while only, ever longer.
 *
 * NOTES
 *	  A new kind of service needs an entry in kinds[], a main function that begins
 *	  as that of delivery.c does, somebody who calls service_want() in a step of
 *	  each tick, and worker_service_wake() at the commit of what makes it wanted.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "clock.h"
#include "service.h"
#include "task.h"
#include "tick.h"

#define BACKOFF_MIN_US (100 * US_PER_MS)
#define BACKOFF_MAX_US (60 * US_PER_S)

static const struct
{
	const char *type;			/* as pg_stat_activity shows it */
	const char *function;
}			kinds[RUNNER_KINDS] = {
	[RUNNER_DELIVERY] = {"revenant delivery", "revenant_delivery_main"},
	[RUNNER_FLUSH] = {"revenant flush", "revenant_flush_main"},
};

typedef struct ServiceId
{
	RunnerKind	kind;
	Oid			role;
} ServiceId;

/* What this supervisor knows of a service. It never forgets one: there are as many as there are roles. */
typedef struct Service
{
	ServiceId	id;				/* hash key */
	char		role_name[NAMEDATALEN];
	BackgroundWorkerHandle *handle; /* in TopMemoryContext, freed when its end was collected */
	int			slot;			/* -1: it has no runner */
	uint32		generation;
	bool		wanted;			/* in this tick */
	bool		ended_well;		/* the latest one did */
	int			failures;		/* in a row */
	int64		wanted_since_us;	/* 0: it is not, or it has a runner */
	int64		not_before_us;
} Service;

static HTAB *services = NULL;
static int64 complained_us = 0;

/* Called once in a process. */
void
service_init(void)
{
	HASHCTL		control = {.keysize = sizeof(ServiceId),.entrysize = sizeof(Service)};

	services = hash_create("revenant services", 16, &control, HASH_ELEM | HASH_BLOBS);
}

static Service *
get(RunnerKind kind, Oid role)
{
	ServiceId	id = {kind, role};
	bool		found;
	Service    *service = hash_search(services, &id, HASH_ENTER, &found);

	if (!found)
	{
		memset((char *) service + sizeof(ServiceId), 0, sizeof(Service) - sizeof(ServiceId));
		service->slot = -1;
	}
	return service;
}

static void
free_handle(Service *service)
{
	if (service->handle != NULL)
		pfree(service->handle);
	service->handle = NULL;
}

/* Another extension is here: nothing of the old one is true any more. */
void
service_forget_all(void)
{
	HASH_SEQ_STATUS all;
	Service    *service;

	hash_seq_init(&all, services);
	while ((service = hash_seq_search(&all)) != NULL)
	{
		free_handle(service);
		hash_search(services, &service->id, HASH_REMOVE, NULL);
	}
}

/* A runner ended: what does that say about the next one? */
static void
note_end(Service *service, const RunnerSlot *slot)
{
	service->ended_well = slot->stop || slot->outcome == RUN_SUCCEEDED;
	if (service->ended_well || slot->served > 0)
		service->failures = 0;
	else
		service->failures++;
	service->not_before_us = service->failures == 0 ? 0 :
		clock_now_us() + Min(BACKOFF_MIN_US << Min(service->failures - 1, 20), BACKOFF_MAX_US);
	free_handle(service);
}

static void
stop_misplaced(void *arg)
{
	HASH_SEQ_STATUS all;
	Service    *service;

	hash_seq_init(&all, services);
	while ((service = hash_seq_search(&all)) != NULL)
	{
		if (service->slot >= 0 && task_role_problem(service->role_name, service->id.role) != NULL)
			(void) worker_runner_stop(service->slot, service->generation);
	}
}

/*
 * Looks at every runner slot of a service in this database: frees those that
 * ended, and ends those whose role is not what it was, or whose extension is gone.
 */
void
service_collect(Oid instance)
{
	RunnerSlot *slot = palloc(sizeof(RunnerSlot));
	HASH_SEQ_STATUS all;
	Service    *service;
	bool		any = false;

	hash_seq_init(&all, services);
	while ((service = hash_seq_search(&all)) != NULL)
	{
		service->slot = -1;
		service->wanted = false;
	}
	for (int i = worker_runner_next(0, MyDatabaseId, slot); i >= 0;
		 i = worker_runner_next(i + 1, MyDatabaseId, slot))
	{
		pid_t		pid;
		bool		own = slot->task.instance == instance;
		bool		never_came;

		if (slot->kind == RUNNER_TASK)
			continue;
		service = get(slot->kind, slot->role);
		never_came = slot->state == RUNNER_STARTING && own && service->handle != NULL &&
			service->generation == slot->generation && GetBackgroundWorkerPid(service->handle, &pid) == BGWH_STOPPED;
		if (slot->state != RUNNER_EXITED && worker_runner_reap(i, slot->generation, never_came) &&
			!worker_runner_get(i, slot->generation, slot))
			continue;
		if (slot->state == RUNNER_EXITED)
		{
			if (own)
				note_end(service, slot);
			worker_runner_free(i, slot->generation);
			continue;
		}
		if (slot->state == RUNNER_STARTING)
			tick_at_most(RETRY_US);
		if (!own)
		{
			if (!slot->stop)
				(void) worker_runner_stop(i, slot->generation);
			continue;
		}
		service->slot = i;
		service->generation = slot->generation;
		strlcpy(service->role_name, slot->name, sizeof(service->role_name));
		any = true;
	}
	pfree(slot);
	if (any)
		(void) tick_step("look at the roles of its services", stop_misplaced, NULL);
}

/* Whether a role has a runner of this kind, or one is about to come. As of service_collect(). */
bool
service_runs(RunnerKind kind, Oid role)
{
	ServiceId	id = {kind, role};
	const Service *service = hash_search(services, &id, HASH_FIND, NULL);

	return service != NULL && service->slot >= 0;
}

/* There is something to do for this role. */
void
service_want(RunnerKind kind, Oid role, const char *role_name)
{
	Service    *service = get(kind, role);

	service->wanted = true;
	strlcpy(service->role_name, role_name, sizeof(service->role_name));
	if (service->slot < 0 && service->wanted_since_us == 0)
		service->wanted_since_us = clock_now_us();
}

/* Starts a runner. False: there is none to be had. */
static bool
start(Service *service, Oid instance)
{
	ServiceKey	key = {service->id.kind, MyDatabaseId, instance, service->id.role};
	WorkerExtra extra = {.database = MyDatabaseId,.role = service->id.role};
	const char *type = kinds[service->id.kind].type;
	BackgroundWorker worker;
	MemoryContext old;
	bool		registered;

	extra.slot = worker_service_reserve(&key, service->role_name, !service->ended_well, &extra.generation);
	if (extra.slot == RESERVE_NONE_FREE)
		return false;
	if (extra.slot < 0)
	{
		tick_at_most(RETRY_US);
		return true;
	}
	worker_prepare(&worker, type, "", kinds[service->id.kind].function);
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), "%s for %.*s", type,
			 pg_mbcliplen(service->role_name, (int) strlen(service->role_name), BGW_MAXLEN - (int) strlen(type) - (int) sizeof(" for ")),
			 service->role_name);
	worker.bgw_main_arg = Int32GetDatum(extra.slot);
	worker.bgw_notify_pid = MyProcPid;
	memcpy(worker.bgw_extra, &extra, sizeof(extra));

	free_handle(service);
	old = MemoryContextSwitchTo(TopMemoryContext);	/* freed by note_end() */
	registered = RegisterDynamicBackgroundWorker(&worker, &service->handle);
	MemoryContextSwitchTo(old);
	if (!registered)
	{
		worker_runner_give_back(extra.slot, extra.generation);
		return false;
	}
	service->generation = extra.generation;
	service->slot = extra.slot;
	service->wanted_since_us = 0;
	return true;
}

static int
by_wait(const void *a, const void *b)
{
	const Service *left = *(Service *const *) a;
	const Service *right = *(Service *const *) b;

	if (left->wanted_since_us != right->wanted_since_us)
		return left->wanted_since_us < right->wanted_since_us ? -1 : 1;
	return left->id.role < right->id.role ? -1 : 1;
}

/* Starts those that are wanted and have no runner, as far as there are any to be had. */
void
service_start_wanted(Oid instance)
{
	HASH_SEQ_STATUS all;
	Service    *service;
	Service   **waiting = palloc(sizeof(Service *) * (hash_get_num_entries(services) + 1));
	int			nwaiting = 0;
	bool		room[RUNNER_KINDS];

	for (int i = 0; i < RUNNER_KINDS; i++)
		room[i] = true;
	hash_seq_init(&all, services);
	while ((service = hash_seq_search(&all)) != NULL)
	{
		if (!service->wanted)
			service->wanted_since_us = 0;
		else if (service->slot >= 0)
			continue;
		else if (service->not_before_us > clock_now_us())
			tick_at_most(service->not_before_us - clock_now_us());
		else
			waiting[nwaiting++] = service;
	}
	qsort(waiting, nwaiting, sizeof(Service *), by_wait);
	for (int i = 0; i < nwaiting; i++)
	{
		bool	   *of_kind = &room[waiting[i]->id.kind];

		*of_kind = *of_kind && start(waiting[i], instance);
		if (*of_kind)
			continue;
		tick_at_most(RETRY_US);
		if (complained_us == 0 || clock_now_us() - complained_us > 10 * TICK_COMPLAIN_EVERY_US)
		{
			complained_us = clock_now_us();
			ereport(LOG,
					(errmsg("messages or entities of role \"%s\" wait for a free runner", waiting[i]->role_name),
					 errhint("Set revenant.max_runners or max_worker_processes higher.")));
		}
	}
	pfree(waiting);
}

/* Ends all runners of a kind. */
void
service_stop_all(RunnerKind kind)
{
	HASH_SEQ_STATUS all;
	Service    *service;

	hash_seq_init(&all, services);
	while ((service = hash_seq_search(&all)) != NULL)
	{
		if (service->id.kind == kind && service->slot >= 0)
			(void) worker_runner_stop(service->slot, service->generation);
	}
}
