/*-------------------------------------------------------------------------
 *
 * task_status.c
 *	  What shared memory knows about each live task.
 *
 * A dshash without a bound of its own; when shared memory is full, a task
 * merely is not shown as it is.
 *
 * NOTES
 *	  Nothing else is locked while a partition of the table is, not even the
 *	  workers' slots: who needs both copies the status first.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "storage/proc.h"

#include "compat.h"
#include "digest.h"
#include "shmem.h"
#include "task_status.h"
#include "worker.h"

static const dshash_parameters status_params = {
	.key_size = sizeof(TaskKey),
	.entry_size = sizeof(TaskStatus),
	.compare_function = dshash_memcmp,
	.hash_function = dshash_memhash,
	COMPAT_DSHASH_COPY
};

/* What the table is made of. */
const dshash_parameters *
task_status_params(void)
{
	return &status_params;
}

/* The key of a task: a name is as long as it likes, its digest is not. Needs a transaction. */
void
task_key(TaskKey *key, Oid database, Oid instance, const char *name)
{
	memset(key, 0, sizeof(*key));
	key->database = database;
	key->instance = instance;
	digest_name(instance, name, key->digest);
}

/* The entry, made if there is none; NULL when there is no room for one. The caller releases its lock. */
static TaskStatus *
status_enter(const TaskKey *key, const char *name)
{
	dshash_table *table = shmem_table(SHARED_TASKS);
	TaskStatus *status = dshash_find(table, key, true);
	bool		found;

	if (status != NULL)
		return status;
	if (!shmem_has_room(sizeof(TaskStatus)))
		return NULL;
	status = dshash_find_or_insert(table, key, &found);
	if (!found)
	{
		memset((char *) status + sizeof(TaskKey), 0, sizeof(TaskStatus) - sizeof(TaskKey));
		strlcpy(status->name, name, sizeof(status->name));
		shmem_account(sizeof(TaskStatus));
	}
	return status;
}

/*
 * Moves a task to a phase, from *before. True when the phase or the reason
 * changed. When shared memory is full the task merely is not shown as it is.
 */
bool
task_status_set(const TaskKey *key, const char *name, TaskPhase phase, TimestampTz next_run, const char *reason,
				TaskPhase *before)
{
	TaskStatus *status = status_enter(key, name);
	bool		moved;
	bool		changed;
	int			length;

	*before = phase;
	if (status == NULL)
		return false;
	*before = status->phase;
	moved = phase_move(&status->phase, phase);
	changed = moved || strncmp(status->reason, reason, TASK_REASON_MAX - 1) != 0;
	if (moved || *before == phase)
	{
		status->next_run = next_run;
		length = pg_mbcliplen(reason, (int) strlen(reason), sizeof(status->reason) - 1);
		memcpy(status->reason, reason, length);
		status->reason[length] = '\0';
	}
	dshash_release_lock(shmem_table(SHARED_TASKS), status);
	if (!moved && *before != phase)
	{
		elog(WARNING, "task cannot go from phase %s to %s", phase_name(*before), phase_name(phase));
		*before = phase;
	}
	return changed;
}

/*
 * A runner got its lease. Only from where a claim leads to it: told to stop or
 * held meanwhile, the task stays what the supervisor made of it.
 */
void
task_status_lead(const TaskKey *key, TimestampTz next_run)
{
	TaskStatus *status = dshash_find(shmem_table(SHARED_TASKS), key, true);

	if (status == NULL)
		return;
	status->begun = true;
	if (status->phase == PHASE_NEW || status->phase == PHASE_CLAIMING)
	{
		(void) phase_move(&status->phase, PHASE_LEADING);
		status->next_run = next_run;
		status->reason[0] = '\0';
	}
	dshash_release_lock(shmem_table(SHARED_TASKS), status);
}

/* The task's follower_command runs. */
void
task_status_follow(const TaskKey *key)
{
	TaskStatus *status = dshash_find(shmem_table(SHARED_TASKS), key, true);

	if (status == NULL)
		return;
	status->follower_begun = true;
	dshash_release_lock(shmem_table(SHARED_TASKS), status);
}

/* Keeps what a standby knows of a task's follower_command, where there is an entry for it. */
void
task_status_remember(const TaskKey *key, const FollowerMemory *memory)
{
	TaskStatus *status = dshash_find(shmem_table(SHARED_TASKS), key, true);

	if (status == NULL)
		return;
	status->follower = *memory;
	dshash_release_lock(shmem_table(SHARED_TASKS), status);
}

/* What was kept so. False: nothing. */
bool
task_status_recall(const TaskKey *key, FollowerMemory *memory)
{
	TaskStatus *status = dshash_find(shmem_table(SHARED_TASKS), key, false);

	if (status == NULL)
		return false;
	*memory = status->follower;
	dshash_release_lock(shmem_table(SHARED_TASKS), status);
	return memory->life.created_at != 0;
}

/* Whether the task has had its lease since this server leads, or has run its follower_command since it follows. */
bool
task_status_has_begun(const TaskKey *key, bool following)
{
	TaskStatus *status = dshash_find(shmem_table(SHARED_TASKS), key, false);
	bool		begun;

	if (status == NULL)
		return false;
	begun = following ? status->follower_begun : status->begun;
	dshash_release_lock(shmem_table(SHARED_TASKS), status);
	return begun;
}

/* Copies of all statuses of a database's tasks. */
List *
task_status_list(Oid database, Oid instance)
{
	List	   *result = NIL;
	dshash_seq_status scan;
	TaskStatus *status;

	dshash_seq_init(&scan, shmem_table(SHARED_TASKS), false);
	while ((status = dshash_seq_next(&scan)) != NULL)
	{
		if (status->key.database == database && status->key.instance == instance)
		{
			TaskStatus *copy = palloc(sizeof(TaskStatus));

			memcpy(copy, status, sizeof(TaskStatus));
			result = lappend(result, copy);
		}
	}
	dshash_seq_term(&scan);
	return result;
}

/*
 * Keeps a task from being started until this transaction ends: the hold names
 * the transaction, and lapses with it or with this process. False when shared
 * memory is full.
 */
bool
task_status_hold(const TaskKey *key, const char *name)
{
	TaskStatus *status = status_enter(key, name);

	if (status == NULL)
		return false;
	status->hold_pid = MyProcPid;
	status->hold_procno = compat_my_procno();
	status->hold_lxid = compat_proc_lxid(MyProc);
	dshash_release_lock(shmem_table(SHARED_TASKS), status);
	return true;
}

/* The process whose hold is still good, or 0. */
static int
holder_of(const TaskStatus *status)
{
	if (worker_is_alive(status->hold_pid, status->hold_procno) &&
		compat_proc_lxid(GetPGProcByNumber(status->hold_procno)) == status->hold_lxid)
		return status->hold_pid;
	return 0;
}

/* The process that keeps a task from being started, or 0. */
int
task_status_holder(const TaskKey *key)
{
	TaskStatus *status = dshash_find(shmem_table(SHARED_TASKS), key, false);
	int			holder;

	if (status == NULL)
		return 0;
	holder = holder_of(status);
	dshash_release_lock(shmem_table(SHARED_TASKS), status);
	return holder;
}

/* Forgets a task that is gone. */
void
task_status_forget(const TaskKey *key)
{
	if (dshash_delete_key(shmem_table(SHARED_TASKS), key))
		shmem_account(-(int64) sizeof(TaskStatus));
}

/* Forgets the tasks of a database, except those of this instance of the extension (InvalidOid: all). */
void
task_status_purge(Oid database, Oid keep_instance)
{
	dshash_seq_status scan;
	TaskStatus *status;

	dshash_seq_init(&scan, shmem_table(SHARED_TASKS), true);
	while ((status = dshash_seq_next(&scan)) != NULL)
	{
		if (status->key.database == database && status->key.instance != keep_instance)
		{
			dshash_delete_current(&scan);
			shmem_account(-(int64) sizeof(TaskStatus));
		}
	}
	dshash_seq_term(&scan);
}

/* Forgets those that the caller does not know, and that nobody holds. */
void
task_status_prune(Oid database, bool (*is_known) (const TaskKey *key))
{
	dshash_seq_status scan;
	TaskStatus *status;

	dshash_seq_init(&scan, shmem_table(SHARED_TASKS), true);
	while ((status = dshash_seq_next(&scan)) != NULL)
	{
		if (status->key.database == database && !is_known(&status->key) && holder_of(status) == 0)
		{
			dshash_delete_current(&scan);
			shmem_account(-(int64) sizeof(TaskStatus));
		}
	}
	dshash_seq_term(&scan);
}
