/*
 * full.pml - leases that shared memory has no room for.
 *
 * One name, whose row a restart has found: token 1, held by ttl. Shared memory is full or has room, anew at each look. Two sessions of its holder
 * work in transactions of up to OPS operations: look, renew, fence, release; one that finds no entry makes it, or works on one of its own,
 * from the row. A session commits or rolls back. An acquirer, who may give up, a sweeper and a reader run beside them, and a clock. Whoever
 * reads or writes something shared does that in a step of its own: search, flag, F, row, entry. Time is what is left of each deadline, in ticks.
 *
 *   open               lease_standing.c: lease_find_entry; lease_entry.c: lease_entry_pin, pin_local
 *   settle             lease_standing.c: lease_settle, load
 *   settle_fenced      lease_standing.c: lease_settle_fenced; lease_entry.c: lease_entry_is_outdated
 *   Session            lease.c: renew, renew_row, fence, release_ttl; lease_row.c: change
 *   its commit         lease_xact.c: commit_release; lease_entry.c: lease_entry_set_free
 *   Acquirer           lease_acquire.c: take_hold, take_fences, grant; lease_xact.c: publish
 *   Sweeper            lease_sweep.c: remove_one
 *   purge              lease_entry.c: lease_entry_purge, lease_entry_reap
 *
 * Properties:
 *   granted   nobody is granted the name, nor is it swept, before the deadline that the holder was told: by a renewal in memory at once, by one
 *             that goes into the row at its commit
 *   fenced    nor while a transaction is fenced
 *   over      once a release has ended, or somebody else was granted the name, no renewal and no fence that is asked for then succeeds
 *   quiet     when no transaction is open, an entry that is settled has the row's token, or is free and there is no row
 *   asleep    nor is the acquirer then asleep for a hold that has no row; and nobody waits in a circle
 *
 * Switches, 1 = the protocol as it should be. A counter-example shows with each at 0, except that FLAG_FIRST and FLAG_LATE matter where FLAG_AGAIN
 * is 0 only: with it they are not needed.
 *   LOOK_F      who writes or is fenced by an entry of its own looks under F that no settled one is in shared memory
 *   SETTLE_F    once the flag is set, an entry settles only under F in a mode that keeps writers of the row out
 *   AGAIN       who has F exclusively settles again, and looks again
 *   FLAG_FIRST  the flag is set before the last search of the table           (0: after it)
 *   FLAG_LATE   it is read once the entry is in the table                     (0: before the search)
 *   FLAG_AGAIN  who settles without F reads it once more when it has read the row: what is set by now may have been by a writer of it
 *   TELL        who sleeps for an entry that is not settled sees a release by an entry of one's own (he looks at the row now and then)
 *   NEWEST      what was read of the row is of no use if the entry was given something meanwhile: the row is read anew
 *   OWN         who has written the row in this transaction does not settle the entry by it
 *   ROW_MAX     a renewal never brings the row's deadline nearer              (0: it writes what it counted before it waited for the row)
 *   QUEUE       1: a try of F may also fail for who waits for it              0: only for who has it. Who waits is not in here otherwise
 *
 * How much there is of everything: TX0, TX1 transactions of the sessions, of OPS operations; ACQ, SWEEPS, READS: 0 for none.
 * Not in here: lengthening (crash.pml), lock_delay and hold_off (delay.pml), scopes other than ttl, revoke, which is as a release by who has F
 * exclusively, and a row that is not found while it is updated.
 *
 * By hand: spin -a full.pml && gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -m1000000
 */
#ifndef LOOK_F
#define LOOK_F 1
#endif
#ifndef SETTLE_F
#define SETTLE_F 1
#endif
#ifndef AGAIN
#define AGAIN 1
#endif
#ifndef FLAG_FIRST
#define FLAG_FIRST 1
#endif
#ifndef FLAG_LATE
#define FLAG_LATE 1
#endif
#ifndef FLAG_AGAIN
#define FLAG_AGAIN 1
#endif
#ifndef TELL
#define TELL 1
#endif
#ifndef NEWEST
#define NEWEST 1
#endif
#ifndef OWN
#define OWN 1
#endif
#ifndef QUEUE
#define QUEUE 1
#endif
#ifndef ROW_MAX
#define ROW_MAX 1
#endif
#ifndef TX0
#define TX0 1
#endif
#ifndef TX1
#define TX1 1
#endif
#ifndef OPS
#define OPS 1
#endif
#ifndef ACQ
#define ACQ 1
#endif
#ifndef SWEEPS
#define SWEEPS 0
#endif
#ifndef READS
#define READS 0
#endif

#define A 2
#define W 3
#define R 4
#define NP 5
#define NONE 7
#define S 1             /* ttl of a short renewal */
#define L 2             /* the lease's */
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define ME (1 << me)

/* shared memory: the entry, who has it pinned, whose look at the row is not overtaken yet; the flag */
bool ePres = false, eSet = false;
byte eTok = 0, eDl = 0, ePin = 0, eLook = 0;
bool crowded = false;

/* the row as committed; who has written it, and what */
byte rTok = 1, rDl = L;
byte rW = NONE, pTok = 0, pDl = 0;

byte hOwn = NONE;
byte fX = NONE, fR = 0, fS = 0;         /* F: AccessExclusive, RowExclusive, Share */

/* of each process: the entry that it uses (1 shared, 2 its own); what it read of the row, also its own entry; what it will have told */
#define SHARED 1
#define LOCAL 2
byte use[NP], lTok[NP], lDl[NP], n[NP];

/* ghosts */
byte told = L;                          /* what the holder relies on */
bool released = false, second = false;  /* a release has ended; somebody else has the name */
byte fenced = 0, open = 0;              /* transactions: fenced, open */
bool asleep = false;

#define VIS_TOK (rW == me -> pTok : rTok)
#define VIS_DL  (rW == me -> pDl : rDl)
#define CUR_TOK (use[me] == LOCAL -> lTok[me] : eTok)
#define CUR_DL  (use[me] == LOCAL -> lDl[me] : eDl)
#define F_FREE ((fX == NONE || fX == me) && (fR & ~ME) == 0)       /* for Share */
#define CURRENT (CUR_TOK == 1 && CUR_DL > 0 && !gone)

inline check_quiet() {
	if
	:: (open & ~(asleep -> 1 << A : 0)) == 0 && ePres ->
		assert(!eSet || eTok == rTok);                                  /* quiet */
		assert(!asleep || eTok == 0 || eDl == 0 || eTok == rTok)                                /* asleep */
	:: else
	fi
}

/* The entry, pinned; use 0: there is none, nor a row. */
inline pin_entry() {
	atomic { was = crowded; if :: use[me] == 0 && ePres -> ePin = ePin | ME; use[me] = SHARED :: else fi }
	if
	:: use[me] != 0
	:: else ->
		atomic {
			if
			:: ePres -> ePin = ePin | ME; use[me] = SHARED
			:: !ePres && rTok == 0
			:: !ePres && rTok != 0 -> ePres = true; ePin = ME; use[me] = SHARED                     /* room */
			:: !ePres && rTok != 0 -> if :: FLAG_FIRST -> crowded = true :: else fi; use[me] = LOCAL /* none */
			fi
		}
		if
		:: atomic { use[me] == LOCAL && FLAG_FIRST -> if :: ePres -> ePin = ePin | ME; use[me] = SHARED :: else fi }
		:: atomic { use[me] == LOCAL && !FLAG_FIRST -> crowded = true }
		:: use[me] != LOCAL
		fi
	fi
}

/* how: 0 does not settle, 1 without F, 2 under F */
inline settle() {
	if
	:: atomic { use[me] == LOCAL -> lTok[me] = VIS_TOK; lDl[me] = VIS_DL }
	:: use[me] == SHARED && eSet
	:: else ->
		atomic {
			if
			:: !(FLAG_LATE -> crowded : was) -> how = 1
			:: (FLAG_LATE -> crowded : was) && !SETTLE_F -> how = 1
			:: (FLAG_LATE -> crowded : was) && SETTLE_F && F_FREE -> how = 2; fS = fS | ME
			:: (FLAG_LATE -> crowded : was) && SETTLE_F && (QUEUE || !F_FREE) -> how = 0
			fi
		}
		do
		:: atomic { eLook = eLook | ME; lTok[me] = VIS_TOK; lDl[me] = VIS_DL }
			atomic {
				if
				:: !eSet && NEWEST && (eLook & ME) == 0
				:: else ->
					if
					:: !eSet ->
						eTok = lTok[me]; eDl = lDl[me]; eLook = 0;
						eSet = how != 0 && !(OWN && rW == me) && (how == 2 || !FLAG_AGAIN || !SETTLE_F || !crowded)
					:: else -> eLook = eLook & ~ME
					fi;
					fS = fS & ~ME; how = 0; lTok[me] = 0; lDl[me] = 0;
					break
				fi
			}
		od
	fi
}

/* F as a fence has it; then `out`, an error, if the entry is one of our own and outdated */
inline settle_fenced(out) {
	atomic { (fX == NONE || fX == me) && (fS & ~ME) == 0 -> fR = fR | ME }
	settle();
	if
	:: use[me] == LOCAL && LOOK_F && ePres && eSet -> goto out
	:: else
	fi
}

inline unpin() { ePin = ePin & ~ME; use[me] = 0; lTok[me] = 0; lDl[me] = 0 }

/* A token's hold is over, as the row says by now. */
inline set_free(tok) {
	if
	:: use[me] == SHARED -> eLook = 0; if :: eTok == tok -> eTok = 0; eDl = 0 :: else fi
	:: use[me] == LOCAL && TELL && ePres && !eSet -> eLook = 0; if :: eTok == tok -> eTok = 0; eDl = 0 :: else fi
	:: else
	fi
}

/* The locks go. */
inline finish() {
	unpin();
	fenced = fenced & ~ME; open = open & ~ME; n[me] = 0;
	fR = fR & ~ME; fS = fS & ~ME; eLook = eLook & ~ME;
	if :: fX == me -> fX = NONE :: else fi;
	if :: hOwn == me -> hOwn = NONE :: else fi;
	check_quiet()
}

proctype Session(byte me; byte txs)
{
	byte ops, how, ttl;
	bool was, gone, late;

	do
	:: txs == 0 -> break
	:: txs > 0 ->
		atomic { txs--; ops = OPS; open = open | ME }
next:		atomic {
			ttl = 0; late = false;
			if :: use[me] != 0 && !gone && rW != me && (fenced & ME) == 0 -> unpin() :: else fi
		}
		if
		:: ops == 0 || ops < OPS -> goto commit
		:: ops < OPS -> goto abort
		:: atomic { ops > 0 -> ops--; late = released }
		fi;
		pin_entry();
		if :: use[me] == 0 -> goto next :: else fi;                     /* lost */
		settle();
		if
		:: goto next                                                    /* a look */
		:: CURRENT -> goto renew
		:: goto fence                                                   /* which looks at the token under F only */
		:: CURRENT -> goto release
		:: !CURRENT && !gone -> goto next
		fi;

renew:
		if :: ttl = S :: ttl = L fi;
		if
		:: use[me] == LOCAL || !eSet ->
			settle_fenced(abort);
			if
			:: !CURRENT -> goto next
			:: else
			fi;
			if
			:: atomic { use[me] == LOCAL || !eSet -> lDl[me] = MAX(CUR_DL, ttl) }       /* to be written, counting from now */
				atomic { rW == NONE || rW == me ->
					if
					:: VIS_TOK == 1 ->
						pDl = (ROW_MAX -> MAX(VIS_DL, lDl[me]) : lDl[me]); pTok = 1; rW = me;
						n[me] = MAX(n[me], lDl[me])
					:: else
					fi;
					if :: use[me] == SHARED -> lDl[me] = 0 :: else fi }
				goto next
			:: use[me] == SHARED && eSet
			fi
		:: use[me] == SHARED && eSet
		fi;
		atomic {
			if
			:: eTok == 1 && eDl > 0 ->
				eDl = MAX(eDl, ttl); told = MAX(told, eDl);
				assert(!released && !second)                            /* over */
			:: else
			fi
		}
		goto next;

fence:
		settle_fenced(abort);
		atomic {
			if
			:: CURRENT -> fenced = fenced | ME; assert(!late && !second)    /* over */
			:: else -> goto abort
			fi
		}
		goto next;

release:
		settle_fenced(abort);
		if
		:: !CURRENT -> goto next
		:: else
		fi;
		atomic { rW == NONE || rW == me -> if :: VIS_TOK == 1 -> pTok = 0; pDl = 0; rW = me; gone = true :: else fi }
		goto next;

commit:
		if
		:: atomic { rW == me ->                                         /* visible */
			rTok = pTok; rDl = pDl; rW = NONE; pTok = 0; pDl = 0;
			if
			:: !gone -> told = MAX(told, n[me]); assert(!released && !second)       /* over */
			:: else
			fi;
			n[me] = 0 }
		:: rW != me
		fi;
		d_step {                                                        /* published */
			if
			:: gone -> set_free(1); told = 0; released = true
			:: else
			fi;
			gone = false; late = false; ops = 0; ttl = 0;
			finish()
		}
		goto over;

abort:
		atomic {
			if :: rW == me -> rW = NONE; pTok = 0; pDl = 0 :: else fi;
			gone = false; late = false; ops = 0; ttl = 0; how = 0; was = false;
			finish()
		}
over:		skip
	od
}

proctype Acquirer(byte me)
{
	byte how;
	bool was;

again:	atomic {
		if
		:: ePres -> ePin = ePin | ME
		:: !ePres -> ePres = true; ePin = ME
		:: !ePres -> goto no_room                                          /* 53200 */
		fi;
		use[me] = SHARED; open = open | ME
	}
	hOwn == NONE -> hOwn = me;
	settle();
sleep:	if
	:: eTok != 0 && eDl > 0 ->
		d_step { asleep = true; check_quiet() }
		if
		:: atomic { !(eTok != 0 && eDl > 0) -> asleep = false }
		:: atomic { asleep = false; goto give_up }
		fi
	:: else
	fi;
	atomic { fX == NONE && fR == 0 && (fS & ~ME) == 0 -> fX = me }
	if
	:: AGAIN -> settle()
	:: !AGAIN
	fi;
	if
	:: atomic { AGAIN && eTok != 0 && eDl > 0 -> fX = NONE } goto sleep
	:: atomic { !AGAIN || eTok == 0 || eDl == 0 ->
		assert(told == 0);                                              /* granted */
		assert(fenced == 0);                                            /* fenced */
		assert(rW == NONE);
		rW = me; pTok = 2; pDl = L }
	fi;
	if :: settle() :: true fi;                                              /* it looks at the name itself */
	if
	:: true
	:: goto give_up                                                         /* rolled back */
	fi;
	atomic { rTok = pTok; rDl = pDl; rW = NONE; pTok = 0; pDl = 0 }         /* visible */
	d_step { eSet = true; eTok = 2; eDl = L; told = L; second = true; finish() }
	goto done;
give_up:
	atomic { if :: rW == me -> rW = NONE; pTok = 0; pDl = 0 :: else fi; finish() }
no_room:
	if
	:: goto again
	:: true
	fi;
done:	skip
}

proctype Sweeper(byte me)
{
	byte how, tok, left = SWEEPS;
	bool was;

end:	do
	:: left == 0 -> break
	:: atomic { left > 0 && hOwn == NONE && rTok != 0 -> hOwn = me; left--; open = open | ME }
		if
		:: atomic { fX == NONE && fR == 0 && fS == 0 -> fX = me }
		:: goto give_up
		fi;
		if :: goto give_up :: true fi;                                  /* an error */
		pin_entry();
		if :: use[me] == 0 -> goto give_up :: else fi;
		settle();
		if
		:: CUR_TOK != 0 && CUR_DL == 0 ->
			atomic {
				assert(told == 0);                                      /* granted */
				assert(fenced == 0);                                    /* fenced */
				assert(rW == NONE);
				tok = CUR_TOK;
				if
				:: rTok == tok -> rW = me; pTok = 0; pDl = 0
				:: else -> goto give_up
				fi
			}
			if :: goto give_up :: true fi;
			atomic { rTok = 0; rDl = 0; rW = NONE }
			d_step { set_free(tok); finish() }
			goto over
		:: else
		fi;
give_up:
		atomic { if :: rW == me -> rW = NONE; pTok = 0; pDl = 0 :: else fi; how = 0; was = false; finish() }
over:		tok = 0
	od
}

proctype Reader(byte me)
{
	byte how, left = READS;
	bool was;

	do
	:: left == 0 -> break
	:: left > 0 ->
		atomic { left--; open = open | ME }
		pin_entry();
		if :: use[me] != 0 -> settle() :: else fi;
		atomic { finish() }
	od
}

#define LESS(x) x = (x > 0 -> x - 1 : 0)

proctype World()
{
end:	do
	:: d_step { eDl > 0 || rDl > 0 || pDl > 0 || told > 0 ->
		LESS(eDl); LESS(rDl); LESS(pDl); LESS(told);
		LESS(lDl[0]); LESS(lDl[1]); LESS(lDl[2]); LESS(lDl[3]); LESS(lDl[4]); LESS(n[0]); LESS(n[1]) }
	:: d_step { ePres && ePin == 0 && eTok == 0 -> ePres = false; eSet = false; eLook = 0 }         /* purge */
	:: d_step { !crowded -> crowded = true }                                                        /* for another name */
	od
}

init {
	atomic {
		if :: TX0 > 0 -> run Session(0, TX0) :: else fi;
		if :: TX1 > 0 -> run Session(1, TX1) :: else fi;
		if :: ACQ > 0 -> run Acquirer(A) :: else fi;
		if :: SWEEPS > 0 -> run Sweeper(W) :: else fi;
		if :: READS > 0 -> run Reader(R) :: else fi;
		run World()
	}
}
