/*
 * req.pml - request_id: a retry after a lost reply gets the same token.
 *
 * One client sends acquire(ttl) with request R on backend 0; its connection may break at any time, the backend works on; the client
 * repeats R on backend 1, by acquire or try_acquire. A rival (backend 2) wants the same name, and asks with a request of its own.
 * Commit: visible, publish, locks go. A look-up reads the row (as committed), and what it finds counts if the entry agrees.
 *
 *   LOOK 2       lease_acquire.c: find_request
 *   SECOND       lease_acquire.c: is_repeated, and answer_from_request in take_all
 *   look_up      lease_acquire.c: answer_from_request; lease_row.c: lease_row_is_request; lease.c: lease_renew_all
 *
 *   LOOK    0: the request is looked up under H only
 *           1: first in the entry without a lock, then under H
 *           2: first under F share (waits for a grant that is being committed), then under H
 *   SECOND  1: looked up again once H is granted, or was not to be had
 *   SAME    1: the row's token is the answer only if the row is of this request and its lease is renewed by that
 *           0: it is the answer wherever there is a row and the name is not free
 *
 * Properties: R never has two tokens unless the first was lost in between (two_tokens); nobody is given a token that is not of
 * his request, or that had lapsed before he asked (foreign); a retry that arrives while R's lease is
 * live is answered while it is live, if its holder's backend was before it (in_time: it never sits in H's queue behind a rival that waits
 * for R's own lease, unless backend 0 drew R's token after the retry had looked).
 *
 * By hand: spin -a req.pml && gcc -O2 -DSAFETY -o pan pan.c && ./pan -E
 */
#ifndef LOOK
#define LOOK 2
#endif
#ifndef SECOND
#define SECOND 1
#endif
#ifndef SAME
#define SAME 1
#endif
#define NONE 7

byte eTok = 0; bool eLive = false, eReq = false;        /* entry; eReq: it was granted for R */
byte rTok = 0; bool rReq = false;                       /* row */
byte hOwn = NONE; chan hq = [3] of { byte };
byte fX = NONE; byte fS = 0; chan fq = [3] of { byte, bool };
byte nextTok = 1;
byte got[2];                                            /* answers for R */
byte owner[4] = 9;                                      /* ghost: whose request a token was granted to: 1 R, 0 the rival */
bool lost = false;                                      /* R's lease lapsed, or passed on, at some time */
bool sleeps = false;                                    /* the rival holds H and waits for the live lease */
bool late = false;                                      /* the retry looked before R was granted */

inline h_lock(me)   { atomic { if :: hOwn == NONE -> hOwn = me :: else -> hq ! me fi }; hOwn == me }
inline h_unlock(me) { if :: hOwn == me -> if :: len(hq) > 0 -> hq ? hOwn :: else -> hOwn = NONE fi :: else fi }
inline f_wake() {
	do
	:: len(fq) > 0 ->
		fq ? < fp, fm >;
		if
		:: fm && fX == NONE && fS == 0 -> fq ? fp, fm; fX = fp
		:: !fm && fX == NONE -> fq ? fp, fm; fS = fS | (1 << fp)
		:: else -> break
		fi
	:: else -> break
	od;
	fp = 0; fm = 0
}

inline answer(me, isR, t) {
	assert(owner[t] == isR);                                                /* foreign */
	if
	:: isR -> got[me] = t; if :: got[0] != 0 && got[1] != 0 -> assert(lost || got[0] == got[1]) :: else fi
	:: else
	fi
}

#define REPEATED(isR) (rTok != 0 && rReq == isR && eLive && eTok == rTok)
inline look_up(me, isR) {                                                       /* once the name is not to be had */
	if
	:: REPEATED(isR) -> answer(me, isR, eTok)
	:: !REPEATED(isR) && !SAME && rTok != 0 -> answer(me, isR, rTok)
	:: else
	fi
}

inline acquire(me, isR, mayTry) {
	if :: mayTry -> try = true :: try = false fi;
	if
	:: LOOK == 1 -> atomic { if :: eLive && eReq == isR -> answer(me, isR, eTok); goto done :: else -> if :: me == 1 && fX != 0 -> late = true :: else fi fi }
	:: LOOK == 2 ->
		atomic { if :: fX == NONE && len(fq) == 0 -> fS = fS | (1 << me) :: else -> fq ! me, false fi };
		if
		:: ((fS >> me) & 1)
		:: atomic { try && !((fS >> me) & 1) -> fq ?? eval(me), _; f_wake(); goto queue }       /* a try waits for a moment only */
		fi;
		atomic {
			if
			:: REPEATED(isR) -> answer(me, isR, eTok); fS = fS & ~(1 << me); f_wake(); goto done
			:: else -> if :: me == 1 && fX != 0 -> late = true :: else fi; fS = fS & ~(1 << me); f_wake()
			fi
		}
	:: else
	fi;
queue:	/* H */
	atomic {
		if
		:: hOwn == NONE -> hOwn = me
		:: hOwn != NONE && !try -> hq ! me
		:: hOwn != NONE && try -> if :: SECOND -> look_up(me, isR) :: else fi; goto done
		fi
	};
	hOwn == me;
	if
	:: atomic { eLive && ((SECOND && REPEATED(isR)) || try) -> look_up(me, isR); h_unlock(me); goto done }
	:: else
	fi;
	if
	:: atomic { !isR && eLive -> sleeps = true } atomic { !eLive -> sleeps = false }
	:: atomic { isR && eLive -> assert(!eReq) } !eLive     /* never asleep for one's own lease */
	:: !eLive
	fi;
	atomic { if :: fX == NONE && fS == 0 && len(fq) == 0 -> fX = me :: else -> fq ! me, true fi };
	fX == me;
	atomic { tok = nextTok; nextTok++; owner[tok] = isR };
	atomic { rTok = tok; rReq = isR };                                      /* visible */
	atomic { if :: eReq && !isR -> lost = true :: else fi; eTok = tok; eLive = true; eReq = isR };  /* published */
	atomic { fX = NONE; f_wake() };
	atomic { h_unlock(me); answer(me, isR, tok) };
done:	skip
}

active proctype First() { byte fp, tok; bool fm, try; acquire(0, true, false) }
active proctype Retry() { byte fp, tok; bool fm, try; acquire(1, true, true) }
active proctype Rival() { byte fp, tok; bool fm, try; acquire(2, false, true) }

active proctype Clock()
{
	do
	:: atomic { eLive ->
		/* it lapses; was its owner's retry stuck behind the rival that waits for this lapse? */
		assert(!(eReq && sleeps && hq ?? [1] && !late));
		eLive = false; if :: eReq -> lost = true :: else fi }
	od
}
