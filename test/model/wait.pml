/*
 * wait.pml - nobody waits for ever: the queue of one lease name.
 *
 * P holds the lease by ttl (token 1) and works: renew, fence + write, release, acquire again with its request_id (its reply
 * was lost), lengthen and then fence; at some time it stops. A heartbeat HB renews on another connection while P works.
 * A and B want the lease. Either may be cancelled or die while it waits. The clock lets a lease lapse that nobody renewed since
 * its last tick. A holds a row lock of the application when it acquires, and P's fenced transaction wants that row.
 * All under weak fairness (pan -a -f).
 *
 *   P          lease.c: renew, fence, release_ttl; lease_acquire.c: find_request
 *   waiter     lease_acquire.c: take_hold, take_fence, grant; lease_wait.c: lease_wait_lapse, check_deadlock
 *
 *   REL_H       0: release takes F share, as a fence does               1: it takes H first
 *   RETRY_H     0: a request_id is looked up under F share first, then under H        1: under H only
 *   ROW_FIRST   0: a lengthening renew takes F share before the row, as a fence does
 *               1: it locks the row and not F, and P fences in the same transaction
 *   DEADLOCK    1: who sleeps for a lapse looks whether a holder of F waits for it, and then gives up
 *               0: it does not, and the deadlock detector does not see that sleep
 *
 * By hand: spin -a wait.pml && gcc -O2 -DNFAIR=4 -o pan pan.c && ./pan -a -f -N p_moves     (and a_gets, b_gets)
 */
#ifndef REL_H
#define REL_H 0
#endif
#ifndef RETRY_H
#define RETRY_H 0
#endif
#ifndef DEADLOCK
#define DEADLOCK 1
#endif
#ifndef APP_LOCK
#define APP_LOCK 1              /* 0: fewer states */
#endif
#ifndef ROW_FIRST
#define ROW_FIRST 0
#endif

#define NONE 7
#define P_ 0
#define A_ 1
#define B_ 2

byte eTok = 1;  bool eLive = true, fresh = true;        /* entry; fresh: renewed since the last tick */
byte nextTok = 2;

byte hOwn = NONE;  chan hq = [3] of { byte };
byte fX = NONE, fS = 0;  chan fq = [3] of { byte, bool };
byte row = NONE;                                        /* who has the lease's row locked */
byte app = NONE;                                        /* who has the application's row locked */

bool appWait = false;                                   /* P waits for the application's row */
bool pWait = false, pDone = false, aWait = false, bWait = false;

inline h_lock(me)   { atomic { if :: hOwn == NONE -> hOwn = me :: else -> hq ! me fi }; hOwn == me }
inline h_unlock(me) { if :: hOwn == me -> if :: len(hq) > 0 -> hq ? hOwn :: else -> hOwn = NONE fi :: else fi }
inline f_wake() {
	do
	:: len(fq) > 0 ->
		fq ? < fp, fm >;
		if
		:: fm && (fX == NONE || fX == fp) && (fS & ~(1 << fp)) == 0 -> fq ? fp, fm; fX = fp
		:: !fm && (fX == NONE || fX == fp) -> fq ? fp, fm; fS = fS | (1 << fp)
		:: else -> break
		fi
	:: else -> break
	od;
	fp = 0; fm = 0
}
#define F_SHARED(me) ((fS >> me) & 1)
inline f_share(me) {
	atomic {
		if
		:: F_SHARED(me) || fX == me || (fX == NONE && len(fq) == 0) -> fS = fS | (1 << me)
		:: else -> fq ! me, false
		fi
	}
	F_SHARED(me)
}
inline f_unlock(me) { if :: fX == me -> fX = NONE :: else fi; fS = fS & ~(1 << me); f_wake() }

active proctype P()
{
	byte fp; bool fm;
	do
	:: atomic { eTok == 1 && eLive -> fresh = true }                /* renew: no lock at all */
	:: pWait = true;                                                /* a fenced transaction */
		f_share(P_);
		if
		:: eTok == 1 && eLive ->
			if
			:: APP_LOCK -> appWait = true; atomic { app == NONE -> app = P_; appWait = false }
			:: !APP_LOCK
			fi
		:: else                                                 /* RV001, RV002 */
		fi;
		atomic { if :: app == P_ -> app = NONE :: else fi; f_unlock(P_); pWait = false }
	:: pWait = true;                                                /* renew with a longer ttl, then fence, one transaction */
		if :: !ROW_FIRST -> f_share(P_) :: ROW_FIRST fi;
		if
		:: eTok == 1 && eLive -> atomic { row == NONE -> row = P_ } f_share(P_)
		:: else
		fi;
		atomic { if :: row == P_ -> row = NONE; if :: eTok == 1 && eLive -> fresh = true :: else fi :: else fi;
			f_unlock(P_); pWait = false }
	:: pWait = true;                                                /* acquire again with its request_id */
		if
		:: RETRY_H
		:: !RETRY_H ->
			f_share(P_);
			if
			:: atomic { eTok == 1 && eLive -> fresh = true; f_unlock(P_); pWait = false }
				goto again
			:: else -> atomic { f_unlock(P_) }
			fi
		fi;
		if
		:: !(eTok == 1 && eLive) && !RETRY_H -> atomic { pWait = false }      /* lapsed: would queue as anybody does */
			break
		:: else
		fi;
		h_lock(P_);
		atomic { if :: eTok == 1 && eLive -> fresh = true :: else fi; h_unlock(P_); pWait = false };
again:		skip
	:: pWait = true;
		if :: REL_H -> h_lock(P_) :: !REL_H -> f_share(P_) fi;                 /* release */
		atomic { if :: eTok == 1 -> eLive = false :: else fi; h_unlock(P_); f_unlock(P_); pWait = false }
		break
	:: break
	od;
	pDone = true
}

active proctype HB()
{
	do
	:: atomic { !pDone && eTok == 1 && eLive -> fresh = true }
	:: pDone -> break
	od
}

/* P is fenced, and waits for this one's row, or for one of who waits for this one's H */
#define CIRCLE(me) (appWait && F_SHARED(P_) && (app == me || (hOwn == me && app == A_ && hq ?? [A_])))

inline waiter(me, w) {
	if :: patient = true :: patient = false fi;             /* an impatient one is cancelled or dies at some wait */
	if :: APP_LOCK && me == A_ -> atomic { app == NONE -> app = me } :: !(APP_LOCK && me == A_) fi;
	w = true;
	atomic { if :: hOwn == NONE -> hOwn = me :: else -> hq ! me fi };
	if
	:: hOwn == me
	:: atomic { hOwn != me && !patient -> hq ?? eval(me); goto gone }
	fi;
	if
	:: !eLive
	:: eLive && !patient -> goto gone
	:: DEADLOCK && eLive && CIRCLE(me) -> goto gone         /* 40P01 */
	fi;
	atomic { if :: fX == NONE && (fS & ~(1 << me)) == 0 && len(fq) == 0 -> fX = me :: else -> fq ! me, true fi };
	if
	:: fX == me
	:: atomic { fX != me && !patient -> fq ?? eval(me), _; f_wake(); goto gone }
	:: atomic { fX != me && CIRCLE(me) -> fq ?? eval(me), _; f_wake(); goto gone }  /* the lock manager's detector */
	fi;
	assert(!eLive);
	atomic { row == NONE -> row = me };
	atomic { tok = nextTok; nextTok++; row = NONE; eTok = tok; eLive = true; fresh = false; w = false };
	atomic { f_unlock(me); h_unlock(me); if :: app == me -> app = NONE :: else fi };
	/* works; then releases, or is never seen again */
	if
	:: atomic { eTok == tok && eLive -> eLive = false }
	:: true
	fi;
	goto out;
gone:	atomic { h_unlock(me); f_unlock(me); if :: app == me -> app = NONE :: else fi; w = false };
out:	skip
}

active proctype A() { byte fp, tok; bool fm, patient; waiter(A_, aWait) }
active proctype B() { byte fp, tok; bool fm, patient; waiter(B_, bWait) }

active proctype Clock()
{
end:	do
	:: atomic { eLive -> if :: fresh -> fresh = false :: !fresh -> eLive = false fi }
	od
}

ltl p_moves { [] (pWait -> <> !pWait) }
ltl a_gets  { [] ((aWait && pDone) -> <> !aWait) }
ltl b_gets  { [] ((bWait && pDone) -> <> !bWait) }
