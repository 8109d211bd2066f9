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

#define PG_TRY() do {
#define PG_CATCH() } while (0); if (unlikely(1)) {
#define PG_FINALLY() } while (0); {
#define PG_END_TRY() }
