/*
 * delay.pml - lock_delay after a lapse, hold_off after a release, and a crash.
 *
 * A ttl lease (ttl T, lock_delay D); its holder may release it with hold_off O, or let it lapse. Somebody else who has the token
 * may release it without one, at the same time. The sweeper removes what has lapsed; the server may crash once. A commit has two
 * steps: the row is visible, then the entry is published.
 * Property: nobody is granted the name within O of an answered release, nor within D of the moment the holder's own deadline passed.
 *
 *   Holder    lease.c: renew, release_ttl; lease_row.c: lease_row_hold_off; lease_xact.c: commit_release
 *   Second    lease.c: release_ttl; lease_row.c: lease_row_delete, which waits for who writes the row, and finds it again
 *   Sweeper   lease.c: sweep_one
 *   Rival     lease_acquire.c: take_hold, then take_fences
 *   UNTIL     lease_entry.c: lease_hold_free_from, lease_entry_is_taken
 *   FROM_ROW  lease_row.c: hold_from_row
 *
 *   SWEEP_WAIT 1: the sweeper leaves an entry and its row alone until its delay is over
 *   ROW_KEPT   1: a release with hold_off keeps the row, marked so, until the hold_off is over (0: removes it)
 *   START_ADD  1: after a start a row is held for ttl + lock_delay (a released one for hold_off)   0: for ttl
 *   LOOK_AGAIN 1: who has F looks again whether the name is nobody's   0: it has looked under H, before it waited for F
 *   LOOK_MARK  1: a release takes a row that is marked as released for somebody else's   0: it looks at the token only
 *
 * By hand: spin -a delay.pml && gcc -O2 -DSAFETY -o pan pan.c && ./pan -E
 */
#ifndef SWEEP_WAIT
#define SWEEP_WAIT 1
#endif
#ifndef ROW_KEPT
#define ROW_KEPT 1
#endif
#ifndef START_ADD
#define START_ADD 1
#endif
#ifndef LOOK_AGAIN
#define LOOK_AGAIN 1
#endif
#ifndef LOOK_MARK
#define LOOK_MARK 1
#endif
#define T 2
#define D 3
#define O 3
#define TMAX 12

byte now = 0, start = 0; bool up = true, crashed = false;
bool ePres = true, eRel = false; byte eDl = T;          /* entry: live until eDl; eRel: released, held off until eDl */
bool rPres = true, rRel = false;                        /* row, as committed */
byte rLock = 0;                                         /* who has an uncommitted version: 1 the holder, 2 the second */
byte fS = 0;                                            /* who has F share, to the end of its transaction */
byte life = 0;                                          /* of the server: a crash ends transactions */
byte hDl = T;                                           /* what the holder counts on; once released, when hold_off ends */
bool hRel = false, taken = false;
bool asked = false;                                     /* the holder has asked for its release: it counts on nothing before the answer */
bool sRel = false;                                      /* the second's release has committed, before the holder's */

#define FROM_ROW (rRel -> start + O : (START_ADD -> start + T + D : start + T))
#define UNTIL (ePres -> (eRel -> eDl : eDl + D) : (rPres -> FROM_ROW : 0))

active proctype Holder()
{
	byte sent, until, mine;
	do
	:: atomic { up && !taken && !hRel && ePres && !eRel && now < eDl -> eDl = now + T; sent = now } if :: hDl = sent + T :: true fi
	:: atomic { up && !taken && ePres && !eRel && now < eDl && !rLock && rPres && !rRel -> rLock = 1; fS = fS | 1; mine = life; asked = true }
		if
		:: atomic { up && mine == life -> rLock = 0; rPres = ROW_KEPT; rRel = true; until = now + O }  /* visible */
			if
			:: atomic { up && mine == life ->                                                       /* published */
				eRel = true; eDl = until; fS = fS & 2; hRel = true; hDl = until }
			:: mine != life
			fi
		:: mine != life
		fi;
		break
	:: taken || hRel || !up || crashed -> break
	od
}

active proctype Second()
{
	byte mine;
	if
	:: atomic { up && !taken && ePres && !eRel && now < eDl -> mine = life; fS = fS | 2 }           /* the token is current, under F */
		if
		:: atomic { up && mine == life && !rLock && rPres && !(LOOK_MARK && rRel) -> rLock = 2 }
			if
			:: atomic { up && mine == life -> rLock = 0; rPres = false; sRel = true }       /* visible */
				if
				:: atomic { up && mine == life -> ePres = false; fS = fS & 1 }          /* published */
				:: mine != life
				fi
			:: mine != life
			fi
		:: atomic { mine == life && up && !rLock && (!rPres || (LOOK_MARK && rRel)) -> fS = fS & 1 }      /* false: not its row any more */
		:: mine != life
		fi
	:: true
	fi
}

active proctype Sweeper()
{
	do
	:: atomic { up && !taken && (ePres || rPres) && !fS && (now >= UNTIL || (!SWEEP_WAIT && ePres && now >= eDl)) ->
		ePres = false; rPres = false } break
	:: taken -> break
	od
}

active proctype Rival()
{
again:	up && now >= UNTIL;                                     /* under H */
	atomic { up && !fS ->                                   /* F */
		if
		:: LOOK_AGAIN && now < UNTIL -> goto again
		:: else
		fi;
		assert((hRel && now >= hDl) || (!hRel && (asked || sRel || now >= hDl + D)));
		taken = true }
}

active proctype World()
{
	do
	:: now < TMAX -> now++
	:: atomic { up && !crashed -> up = false; crashed = true; ePres = false; rLock = 0; fS = 0; life++ }
	:: atomic { !up -> up = true; start = now }
	:: now == TMAX -> break
	od
}
