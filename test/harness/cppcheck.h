/*
 * cppcheck.h
 *	  What cppcheck has to know of PostgreSQL's headers, which it does not read.
 */
#define DEBUG1 14
#define LOG 15
#define INFO 17
#define NOTICE 18
#define WARNING 19
#define ERROR 21
#define FATAL 22
#define PANIC 23

/* Errors do not return. */
#define ereport(elevel, ...) do { (void) (__VA_ARGS__); if ((elevel) >= ERROR) abort(); } while (0)
#define elog(elevel, ...) do { (void) (__VA_ARGS__); if ((elevel) >= ERROR) abort(); } while (0)

#define foreach(cell, list) for ((cell) = list_begin(list); (cell) != NULL; (cell) = list_next(cell))

#define PG_TRY() do {
#define PG_CATCH() } while (0); if (unlikely(1)) {
#define PG_FINALLY() } while (0); {
#define PG_END_TRY() }

#define foreach(cell, list) for (ListCell *cell = list_head(list); cell != NULL; cell = lnext(list, cell))
#define dlist_foreach(iter, head) for (iter.cur = (head)->head.next; iter.cur != &(head)->head; iter.cur = iter.cur->next)
#define dlist_foreach_modify(iter, head) dlist_foreach(iter, head)
#define slist_foreach(iter, head) for (iter.cur = (head)->head.next; iter.cur != NULL; iter.cur = iter.cur->next)
#define slist_foreach_modify(iter, head) slist_foreach(iter, head)
