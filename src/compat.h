/*-------------------------------------------------------------------------
 *
 * compat.h
 *	  The differences between the supported servers, and nothing else.
 *
 * This is the only file that names PG_VERSION_NUM. Each entry says which
 * major changed what; the rest of the tree is written for the newest one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef REVENANT_COMPAT_H
#define REVENANT_COMPAT_H

#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/tableam.h"
#include "catalog/namespace.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_tablespace.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "tcop/pquery.h"
#include "utils/acl.h"

#if PG_VERSION_NUM < 150000
#error "revenant needs PostgreSQL 15 or later"
#endif

/* 16: pg_class_ownercheck and its siblings became object_ownercheck */
#if PG_VERSION_NUM < 160000
#define compat_database_ownercheck(db, role) pg_database_ownercheck(db, role)
#define compat_extension_ownercheck(ext, role) pg_extension_ownercheck(ext, role)
#define compat_relation_ownercheck(rel, role) pg_class_ownercheck(rel, role)
#define compat_tablespace_aclcheck(space, role) pg_tablespace_aclcheck(space, role, ACL_CREATE)
#define compat_function_aclcheck(fn, role) pg_proc_aclcheck(fn, role, ACL_EXECUTE)
#else
#define compat_database_ownercheck(db, role) object_ownercheck(DatabaseRelationId, db, role)
#define compat_extension_ownercheck(ext, role) object_ownercheck(ExtensionRelationId, ext, role)
#define compat_relation_ownercheck(rel, role) object_ownercheck(RelationRelationId, rel, role)
#define compat_tablespace_aclcheck(space, role) object_aclcheck(TableSpaceRelationId, space, role, ACL_CREATE)
#define compat_function_aclcheck(fn, role) object_aclcheck(ProcedureRelationId, fn, role, ACL_EXECUTE)
#endif

/* 16: the permission bits of a range table entry moved to a list of their own */
#if PG_VERSION_NUM < 160000
typedef RangeTblEntry CompatPermInfo;
#define COMPAT_CHECKPERMS_ARGS List *rangeTable, bool ereport_on_violation
#define COMPAT_CHECKPERMS_PASS rangeTable, ereport_on_violation
#define compat_perminfos rangeTable
#define compat_perminfo_usable(info) ((info)->rtekind == RTE_RELATION)
#else
typedef RTEPermissionInfo CompatPermInfo;
#define COMPAT_CHECKPERMS_ARGS List *rangeTable, List *rteperminfos, bool ereport_on_violation
#define COMPAT_CHECKPERMS_PASS rangeTable, rteperminfos, ereport_on_violation
#define compat_perminfos rteperminfos
#define compat_perminfo_usable(info) true
#endif

/* 16: input functions learned to report an error without raising it */
#if PG_VERSION_NUM < 160000
#define compat_qualified_name_list(text) stringToQualifiedNameList(text)
#else
#define compat_qualified_name_list(text) stringToQualifiedNameList(text, NULL)
#endif

/* 16: an update says which indexes it concerns, not only whether any */
#if PG_VERSION_NUM < 160000
typedef bool CompatUpdateIndexes;
#define compat_updates_indexes(which) (which)
#define compat_insert_index_tuples(target, slot, estate, which) \
	((void) (which), ExecInsertIndexTuples(target, slot, estate, true, false, NULL, NIL))
#else
typedef TU_UpdateIndexes CompatUpdateIndexes;
#define compat_updates_indexes(which) ((which) != TU_None)
#define compat_insert_index_tuples(target, slot, estate, which) \
	ExecInsertIndexTuples(target, slot, estate, true, false, NULL, NIL, (which) == TU_Summarizing)
#endif

/* 16: SHM_QUEUE became dlist */
#if PG_VERSION_NUM < 160000
#define COMPAT_FOREACH_PROCLOCK(proclock, proc, partition) \
	for (PROCLOCK *proclock = (PROCLOCK *) \
			 SHMQueueNext(&(proc)->myProcLocks[partition], &(proc)->myProcLocks[partition], \
						  offsetof(PROCLOCK, procLink)); \
		 proclock != NULL; \
		 proclock = (PROCLOCK *) \
			 SHMQueueNext(&(proc)->myProcLocks[partition], &proclock->procLink, \
						  offsetof(PROCLOCK, procLink)))
#else
#define COMPAT_FOREACH_PROCLOCK(proclock, proc, partition) \
	for (dlist_iter compat_iter_ = { \
			 .cur = dlist_is_empty(&(proc)->myProcLocks[partition]) ? \
			 &(proc)->myProcLocks[partition].head : \
			 (proc)->myProcLocks[partition].head.next, \
			 .end = &(proc)->myProcLocks[partition].head}; \
		 compat_iter_.cur != compat_iter_.end; \
		 compat_iter_.cur = compat_iter_.cur->next) \
		for (PROCLOCK *proclock = dlist_container(PROCLOCK, procLink, compat_iter_.cur); \
			 proclock != NULL; proclock = NULL)
#endif

/* 16: heap_update() says which indexes it concerns */
#if PG_VERSION_NUM < 160000
#define compat_heap_update(rel, tid, tuple, cid, failure, mode) \
	heap_update(rel, tid, tuple, cid, InvalidSnapshot, true, failure, mode)
#else
#define compat_heap_update(rel, tid, tuple, cid, failure, mode) \
	heap_update(rel, tid, tuple, cid, InvalidSnapshot, true, failure, mode, &(TU_UpdateIndexes) {TU_None})
#endif

/* 17: backend ids became process numbers, 0-based, equal to the index of the PGPROC */
#if PG_VERSION_NUM < 170000
#define compat_my_procno() (MyProc->pgprocno)
#else
#define compat_my_procno() ((int) GetNumberFromPGProc(MyProc))
#endif

/* 17: LockHeldByMe learned to accept a stronger mode */
#if PG_VERSION_NUM < 170000
#define compat_lock_held_by_me(tag, mode) LockHeldByMe(tag, mode)
#else
#define compat_lock_held_by_me(tag, mode) LockHeldByMe(tag, mode, false)
#endif

/* 17: wait events and their names can be registered; before, workers show as Extension */
#if PG_VERSION_NUM < 170000
#include "utils/wait_event.h"
#define compat_wait_event(name) ((void) (name), PG_WAIT_EXTENSION)
#else
#include "utils/wait_event.h"
#define compat_wait_event(name) WaitEventExtensionNew(name)
#endif

/* 17: a worker may connect as a role that may not log in */
#if PG_VERSION_NUM < 170000
#define COMPAT_NOLOGIN_WORKERS false
#define COMPAT_BYPASS_ROLELOGINCHECK 0
#else
#define COMPAT_NOLOGIN_WORKERS true
#define COMPAT_BYPASS_ROLELOGINCHECK BGWORKER_BYPASS_ROLELOGINCHECK
#endif

/* 16: membership alone no longer lets a role become another; the grant must say SET */
#if PG_VERSION_NUM < 160000
#define compat_role_can_become(member, role) is_member_of_role(member, role)
#else
#define compat_role_can_become(member, role) member_can_set_role(member, role)
#endif

/* 17: the local transaction id of a process moved into a struct */
#if PG_VERSION_NUM < 170000
#define compat_proc_lxid(proc) ((proc)->lxid)
#else
#define compat_proc_lxid(proc) ((proc)->vxid.lxid)
#endif

/* 17: dshash asks how to copy a key */
#if PG_VERSION_NUM < 170000
#define COMPAT_DSHASH_COPY
#else
#define COMPAT_DSHASH_COPY .copy_function = dshash_memcpy,
#endif

/* 18: index_beginscan() counts its searches */
#if PG_VERSION_NUM < 180000
#define compat_index_beginscan(rel, index, snapshot, nkeys) index_beginscan(rel, index, snapshot, nkeys, 0)
#else
#define compat_index_beginscan(rel, index, snapshot, nkeys) index_beginscan(rel, index, snapshot, NULL, nkeys, 0)
#endif

/* 18: functions that do not return are declared in another way */
#if PG_VERSION_NUM < 180000
#define compat_noreturn pg_attribute_noreturn()
#else
#define compat_noreturn pg_noreturn
#endif

/* 18: PortalRun lost run_once */
#if PG_VERSION_NUM < 180000
#define compat_portal_run(portal, dest, qc) \
	PortalRun(portal, FETCH_ALL, true, true, dest, dest, qc)
#else
#define compat_portal_run(portal, dest, qc) \
	PortalRun(portal, FETCH_ALL, true, dest, dest, qc)
#endif

#endif							/* REVENANT_COMPAT_H */
