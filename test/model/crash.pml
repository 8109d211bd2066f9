/*
 * crash.pml - deadlines across renewals, longer and shorter ttls, and a crash.
 *
 * One ttl lease, token 1, held from time 0 with ttl S. The holder renews, with the same ttl, a longer or a shorter one; it counts
 * its own deadline from before it sent, and only from answers that reached it. Time passes anywhere. The server may crash (entry and
 * open transactions lost, rows kept) and come back; then a row is held for its ttl from the start. A rival takes the lease as soon as the
 * server lets it. Property: when it does, the holder's own deadline has passed.
 *
 *   the call     lease.c: renew; lease_row.c: lease_row_lengthen
 *   callback     lease_xact.c: commit_lengthen
 *   load         lease_standing.c: lease_settle; lease_row.c: hold_from_row
 *   eTtl         the ttl in the entry: the row's, as of the last commit. A shorter one that a renewal asks for is for that renewal
 *
 *   AT_ONCE   1: a longer ttl moves the deadline in memory at the call; ttl and row follow at commit
 *             0: it takes effect at commit, where a lapsed lease does not come back, and nobody is told
 *   PRECHECK  1: (with AT_ONCE 0) the commit fails at PRE_COMMIT if the lease has lapsed: not enough either
 *   NEARER    1: a renewal with a shorter ttl brings the deadline nearer        0: a deadline never moves back
 *   ROW_MAX   1: the row's ttl never becomes smaller          0: a renewal that lengthens writes what it asked for
 *   ENTRY_MAX 1: nor does the entry's: a renewal that is longer than the one before but no longer than the row's writes nothing
 *             0: it follows every renewal
 *             One of these two suffices here, with one connection that renews; with two, ROW_MAX is needed.
 *
 * By hand: spin -a crash.pml && gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -E -m1000000
 */
#ifndef AT_ONCE
#define AT_ONCE 1
#endif
#ifndef PRECHECK
#define PRECHECK 0
#endif
#ifndef NEARER
#define NEARER 0
#endif
#ifndef ROW_MAX
#define ROW_MAX 1
#endif
#ifndef ENTRY_MAX
#define ENTRY_MAX 1
#endif
#define S 2
#define M 3
#define L 5
#ifndef TMAX
#define TMAX 8
#endif
#define MAX(a, b) ((a) > (b) -> (a) : (b))

byte now = 0;
bool up = true; byte start = 0, crashes = 0;            /* crashes also numbers the server's lives */
bool ePres = true; byte eTtl = S, eDl = S;              /* entry in shared memory */
byte rTtl = S;                                          /* row */
bool rLock = false;                                     /* the holder's uncommitted version of the row */
byte hDl = S;                                           /* what the holder believes */
bool taken = false;

#define LIVE ((ePres && now < eDl) || (!ePres && now < start + rTtl))

inline load() { if :: !ePres -> ePres = true; eTtl = rTtl; eDl = start + rTtl :: else fi }

active proctype Holder()
{
	byte q, sent, got, call, life;
	do
	:: taken -> break
	:: !taken ->
		atomic { if :: q = S :: q = M :: q = L fi; sent = now; life = crashes; got = 0; call = 0 }
		/* the call */
		if
		:: atomic { up && life == crashes && !taken && LIVE ->
			load(); call = now;
			if
			:: q > eTtl && AT_ONCE -> eDl = MAX(eDl, now + q); rLock = true
			:: q > eTtl && !AT_ONCE -> eDl = MAX(eDl, now + eTtl); rLock = true
			:: q <= eTtl && NEARER -> eDl = now + q; got = q
			:: q <= eTtl && !NEARER -> eDl = MAX(eDl, now + q); got = q
			fi;
			if :: !ENTRY_MAX && got != 0 -> eTtl = q :: else fi }
		:: atomic { life != crashes || taken || (up && !LIVE) -> goto next }
		fi;
		/* the end of its transaction, if it writes the row */
		if
		:: atomic { rLock && life == crashes && up ->
			if
			:: PRECHECK && !LIVE -> rLock = false; goto next
			:: else -> rTtl = (ROW_MAX -> MAX(rTtl, q) : q)
			fi }
			if
			:: atomic { life == crashes && up ->                    /* callback */
				if
				:: !taken && LIVE -> eTtl = (ENTRY_MAX -> MAX(eTtl, q) : q); if :: !AT_ONCE -> eDl = MAX(eDl, call + q) :: else fi
				:: else
				fi;
				rLock = false; got = q }
			:: life != crashes -> goto next
			fi
		:: atomic { rLock && life == crashes && up -> rLock = false; got = 0 }  /* rolled back */
		:: !rLock
		:: life != crashes -> goto next
		fi;
		/* the answer */
		if
		:: atomic { got != 0 && life == crashes -> hDl = (NEARER -> sent + got : MAX(hDl, sent + got)) }
		:: true                                                         /* lost */
		fi;
next:		skip
	od
}

active proctype Rival()
{
	do
	:: taken -> break
	:: up && !taken && !LIVE ->
		if
		:: atomic { up && !rLock ->                                     /* F: no lengthening renewal is open */
			if
			:: LIVE
			:: else -> assert(hDl <= now); taken = true
			fi }
		:: !up
		fi
	od
}

active proctype World()
{
end:	do
	:: now < TMAX -> now++
	:: atomic { up && crashes < 2 -> up = false; crashes++; ePres = false; rLock = false }
	:: atomic { !up -> up = true; start = now }
	:: now == TMAX -> break
	od
}
