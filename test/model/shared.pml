/*
 * shared.pml - shared holders, and the modes of F.
 *
 * Three clients take one name by session scope, shared or exclusive, fence in the acquiring transaction or later ones, and let go
 * by a release or by DISCARD ALL, for ever.
 *
 *   mode of an acquire     lease_acquire.c: take_hold (HOLD_...), take_fence (TAKEOVER_...)
 *   mode of a fence        lease.c: fence (FENCE_BY_...)
 *   old                    lease_holder.c: an entry that is marked as committed, and that DISCARD ALL did not end;
 *                          believed by lease_holder_find while its process has H share; lease_holder_disown ends it
 *
 *   MODES 0: two modes of F: every acquire takes it exclusive, every fence takes it shared
 *         1: four, all of them PostgreSQL's own: AX acquire exclusive (AccessExclusive)  AS acquire shared (Share)
 *                                                FX fence of an exclusive holder (RowExclusive)  FS fence of a shared holder (AccessShare)
 *            AX conflicts with all, AS with AX and FX, FX with AX and AS, FS with AX only
 *   OWN_MODE   1: a shared holder's fence in the acquiring transaction itself is one of a shared holder, too
 *              0: it takes FX, as if the token, not being committed, were of an exclusive holder
 *   CLEAR_OWN  1: who takes H share anew first ends what it finds of older shared holds of its own process
 *              0: they stand again, since the process has H again
 *
 * Properties: an effect with token t does not commit after the grant of a later token of a conflicting mode (order); no shared
 * acquire waits while F is held or wanted by shared holders' transactions only (nowait); nobody waits in a circle.
 *
 * By hand: spin -a shared.pml && gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -m1000000
 */
#ifndef MODES
#define MODES 1
#endif
#ifndef OWN_MODE
#define OWN_MODE 1
#endif
#ifndef CLEAR_OWN
#define CLEAR_OWN 1
#endif
#define N 3
#define NO 0
#define AX 1
#define AS 2
#define FX 3
#define FS 4
#define ASX 5           /* held: AS and FX */
#define CONFLICT(a, b) ((a) != NO && (b) != NO && ((a) == AX || (b) == AX || ((a) == AS && (b) == FX) || ((a) == FX && (b) == AS) || \
	((a) == ASX && (b) != FS) || ((b) == ASX && (a) != FS)))

/* two lock tags: H is 0..2, F is 3..5, indexed by tag + client */
#define H 0
#define F 3
byte has[6], want[6], place[6];         /* mode held, mode wanted, place in that tag's queue (1 first) */
bool over[N];           /* since this client fenced, a conflicting token was granted */
bool old[N];            /* a shared hold of this client that DISCARD ALL ended has its entry still */
bool oldOver[N];        /* and since then a conflicting token was granted */

#define AHEAD(k, i, x, m) ((i) != (x) && (CONFLICT(has[k + i], m) || (want[k + i] != NO && place[k + i] < place[k + x] && CONFLICT(want[k + i], m))))
#define FREE_FOR(k, x, m) (!AHEAD(k, 0, x, m) && !AHEAD(k, 1, x, m) && !AHEAD(k, 2, x, m))
#define NONE_HAS(k, m) (has[k] != m && has[k + 1] != m && has[k + 2] != m)

inline enqueue(k, x, m) {
	place[k + x] = 1; i = 0;
	do
	:: i < N -> if :: i != x && want[k + i] != NO && place[k + i] >= place[k + x] -> place[k + x] = place[k + i] + 1 :: else fi; i++
	:: else -> break
	od;
	i = 0; want[k + x] = m
}
inline grant(k, x) {
	i = 0;
	do
	:: i < N -> if :: i != x && want[k + i] != NO && place[k + i] > place[k + x] -> place[k + i] = place[k + i] - 1 :: else fi; i++
	:: else -> break
	od;
	i = 0; has[k + x] = (has[k + x] == AS && want[k + x] == FX -> ASX : want[k + x]); want[k + x] = NO; place[k + x] = 0
}

inline let_go() {
	if
	:: m == AS && has[H + me] == AS -> old[me] = true; oldOver[me] = false     /* DISCARD ALL, pg_advisory_unlock_all() */
	:: true                                                                 /* a release, which ends the entry */
	fi;
	has[H + me] = NO
}

proctype Client(byte me)
{
	byte m, i;
	do
	::	if :: m = AX :: m = AS fi;
		d_step { enqueue(H, me, m) }
		atomic { FREE_FOR(H, me, m) -> grant(H, me); if :: CLEAR_OWN -> old[me] = false; oldOver[me] = false :: else fi }
		/* F: an acquire's mode */
		d_step {
			if :: MODES -> enqueue(F, me, m) :: else -> enqueue(F, me, AX) fi;
			/* nowait: a shared acquire is not held up by shared holders and their fences */
			assert(m == AX || FREE_FOR(F, me, want[F + me]) || !NONE_HAS(H, AX) || !NONE_HAS(F, FX) || (MODES && !NONE_HAS(F, AX)) ||
				(!MODES && NONE_HAS(F, FS)))
		}
		atomic { FREE_FOR(F, me, want[F + me]) -> grant(F, me) }
		d_step {                                                /* the token is drawn */
			i = 0;
			do
			:: i < N ->
				if :: i != me && (has[F + i] == FX || has[F + i] == ASX || (has[F + i] == FS && m == AX)) -> over[i] = true :: else fi;
				if :: old[i] && m == AX -> oldOver[i] = true :: else fi;
				i++
			:: else -> break
			od;
			i = 0
		}
		if                                                      /* a fence in the same transaction; what has AX has all */
		:: m == AS && MODES && !OWN_MODE ->
			d_step { enqueue(F, me, FX) }
			atomic { FREE_FOR(F, me, FX) -> grant(F, me) }
		:: true
		fi;
		has[F + me] = NO;                                       /* the acquiring transaction ends */
		do
		::	d_step { if :: m == AX -> enqueue(F, me, FX) :: else -> enqueue(F, me, FS) fi }
			atomic { FREE_FOR(F, me, want[F + me]) -> grant(F, me); over[me] = false }
			if
			:: has[H + me] == m ->                          /* still held: work. The session's lock may go before the commit */
				if :: atomic { let_go() } :: true fi;
				assert(!over[me])                       /* order: commit */
			:: else
			fi;
			d_step { has[F + me] = NO; over[me] = false }
			if :: has[H + me] == NO -> break :: else fi
		:: old[me] && m == AS ->                                /* somebody fences with the older token */
			d_step { enqueue(F, me, FS) }
			atomic { FREE_FOR(F, me, want[F + me]) -> grant(F, me) }
			assert(has[H + me] != AS || !oldOver[me]);      /* order */
			d_step { has[F + me] = NO; over[me] = false }
		:: break
		od;
		atomic { let_go(); skip }
	od
}

init { atomic { run Client(0); run Client(1); run Client(2) } }
