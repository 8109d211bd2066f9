/*
 * lock.pml - the lock protocol of one lease name.
 *
 * Clients run transactions of up to OPS operations: acquire (ttl, session, xact), release, lengthen, fence + guarded write,
 * revoke, pg_advisory_unlock_all; a transaction commits, aborts or dies with its session at any point, and any wait can be
 * cancelled. A sweeper and a clock run beside them. Commit has PostgreSQL's order: visible, then the callback publishes
 * to shared memory, then the transaction's locks go.
 *
 *   acquire            lease_acquire.c: find_own, take_hold with clear_dead, take_fences, grant
 *   release            lease.c: release_ttl; pRelS: release_session
 *   lengthen           lease.c: renew, with a longer ttl
 *   fence              lease.c: fence, lease_guard_passes; lease_standing.c: lease_standing
 *   revoke             lease_admin.c: exclude_fenced, revoke_ttl
 *   commit, abort      lease_xact.c: publish, commit_release, undo
 *   Sweeper            lease.c: sweep_one
 *   LIVE_TTL           lease_entry.c: lease_entry_is_live, lease_entry_is_taken
 *
 * Not in here: subtransactions, sets of names, shared holders (shared.pml), bound holds, an entry that is loaded from its row.
 *
 * Rules are switches, 1 = the protocol as it is. A counter-example shows with PUB_CHECK, CLEAR_DEAD, RECHECK or CHECK_LATE 0,
 * and with these pairs: KEEP_F OWN_BUSY, KEEP_F PUB_CHECK, REL_F REL_CAS, SWEEP_H SWEEP_F. Each pair's other member then
 * suffices. FENCE_ASK alone gives none: an entry of a lost H is cleared before anybody draws a token.
 *   KEEP_F      F exclusive is kept to the end of the acquiring transaction in every scope (0: only ttl keeps it)
 *   REL_CAS     the release callback frees the entry only if it still has the released token
 *   PUB_CHECK   a session acquire is published only if H is still held at commit (pg_advisory_unlock_all!)
 *   FENCE_ASK   fence with a session token asks the lock manager whether the holder has H, not only the entry
 *   OWN_BUSY    acquire after an uncommitted release in the same transaction is refused (0: the name counts as free)
 *   CLEAR_DEAD  whoever is granted H clears a session entry at once: its holder is gone
 *   SWEEP_H     the sweeper takes H conditionally
 *   SWEEP_F     and F
 *   REL_F       release takes F share, as a fence does, before the row (never H); 0: neither
 *   RECHECK     release looks at the token again once it has F, and at the row's once it has that
 *   CHECK_LATE  fence checks the token after it has F share (0: before)
 *
 * By hand: spin -a lock.pml && gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -E -m1000000
 */
#ifndef NC
#define NC 2            /* clients */
#endif
#ifndef MAXT
#define MAXT 3          /* tokens to hand out */
#endif
#ifndef OPS
#define OPS 2           /* operations per transaction */
#endif
#ifndef KEEP_F
#define KEEP_F 1
#endif
#ifndef REL_CAS
#define REL_CAS 1
#endif
#ifndef PUB_CHECK
#define PUB_CHECK 1
#endif
#ifndef FENCE_ASK
#define FENCE_ASK 1
#endif
#ifndef OWN_BUSY
#define OWN_BUSY 1
#endif
#ifndef CLEAR_DEAD
#define CLEAR_DEAD 1
#endif
#ifndef SWEEP_H
#define SWEEP_H 1
#endif
#ifndef SWEEP_F
#define SWEEP_F 1
#endif
#ifndef REL_F
#define REL_F 1
#endif
#ifndef RECHECK
#define RECHECK 1
#endif
#ifndef CHECK_LATE
#define CHECK_LATE 1
#endif

#define NONE 15
#define FREE 0
#define TTL  1
#define SESS 2
#define XACT 3
#define DEL  14         /* pRow: the row is deleted */
#define SW   NC         /* the sweeper's process number */

byte nextTok = 1;

/* shared memory: the entry of the lease */
byte eKind = FREE, eTok = 0, eOwn = NONE;
bool eLive = false;                     /* ttl only: its deadline has not passed */

/* the row as committed, and who has an uncommitted version of it */
byte rTok = 0, rLock = NONE;

/* H: exclusive only; held at session level (hS) or transaction level (hX) */
byte hOwn = NONE;
bool hS = false, hX = false;
chan hq = [NC] of { byte };

/* F: exclusive by fX, shared by the set fS; one fair queue */
byte fX = NONE, fS = 0;
chan fq = [NC] of { byte, bool };       /* who, exclusive? */

/* ghosts */
byte gAct[NC];                          /* token granted to a transaction that has not ended */
byte gCom = 0;                          /* newest token whose acquire committed */
bool inTx[NC + 1];

inline h_drop() {                       /* after hS or hX was cleared */
	if
	:: !hS && !hX ->
		if
		:: len(hq) > 0 -> hq ? hOwn; hX = true
		:: else -> hOwn = NONE
		fi
	:: else
	fi
}

inline f_wake() {                       /* grant from the head of the queue as far as nothing conflicts */
	do
	:: len(fq) > 0 ->
		fq ? < fp, fm >;
		if
		:: fm && (fX == NONE || fX == fp) && (fS & ~(1 << fp)) == 0 -> fq ? fp, fm; fX = fp
		:: !fm && (fX == NONE || fX == fp) -> fq ? fp, fm; fS = fS | (1 << fp)
		:: else -> break
		fi
	:: len(fq) == 0 -> break
	od;
	fp = 0; fm = 0
}

#define LIVE_TTL (eKind == TTL && eLive)
#define F_SHARED ((fS >> me) & 1)

/* at rest, entry, row and lock table agree */
inline check_quiet() {
	if
	:: !inTx[0] && !inTx[1] && !inTx[NC] && (NC == 2 || !inTx[NC - 1]) ->
		assert(!LIVE_TTL || rTok == eTok);              /* a live ttl holder has its row */
		assert(rTok == 0 || (eKind == TTL && eTok == rTok));
		assert(!hX && fX == NONE && fS == 0 && rLock == NONE);
		assert(!hS || (eKind == SESS && eOwn == hOwn)); /* H at session level is a published session lease */
		assert(hS || hOwn == NONE)
	:: else
	fi
}

proctype Client(byte me)
{
	byte t, sc, n, fp;
	bool fm, dead, ok;
	/* what the transaction will do at commit */
	byte pAcq, pTok, pRel, pRow, wTok;
	bool pRelS;

idle:
	atomic {
		t = 0; sc = 0; n = 0; dead = false; ok = false;
		pAcq = 0; pTok = 0; pRel = 0; pRow = 0; wTok = 0; pRelS = false
	}
	if
	:: atomic { hS && hOwn == me -> hS = false; h_drop() } goto idle        /* DISCARD ALL, or the session ends */
	:: inTx[me] = true
	fi;

next:
	if
	:: n >= OPS -> goto commit
	:: n < OPS ->
		n++;
		if
		:: goto commit
		:: goto abort
		:: atomic { dead = true; goto abort }
		:: nextTok <= MAXT && hOwn != me && (pAcq == 0 || pAcq == SESS) -> goto acquire
		:: atomic { LIVE_TTL && pAcq == 0 && pRel == 0 -> t = eTok; goto release }
		:: atomic { hOwn == me && hS && !pRelS -> pRelS = true; goto next }         /* release a session lease */
		:: atomic { eKind != FREE -> t = eTok; goto fence }
		:: atomic { pAcq != 0 -> t = pTok; goto fence }
		:: atomic { LIVE_TTL && pAcq == 0 && pRel == 0 -> t = eTok; goto lengthen }
		:: atomic { LIVE_TTL && pAcq == 0 && pRel == 0 -> t = eTok; goto revoke }
		:: atomic { hOwn == me && hS ->                                             /* pg_advisory_unlock_all() */
				if :: pAcq == SESS -> gAct[me] = 0 :: else fi;
				hS = false; h_drop(); goto next }
		fi
	fi;

acquire:
	atomic {
		if :: sc = TTL :: sc = SESS :: sc = XACT fi;
		if
		:: hOwn == NONE -> hOwn = me; hX = true
		:: else -> hq ! me
		fi
	}
	if
	:: atomic { hOwn == me -> if :: sc == SESS -> hS = true; hX = false :: else fi }
	:: atomic { hOwn != me -> hq ?? eval(me); goto abort }                  /* cancelled, timed out */
	fi;
	/* from here a session-level H must be given back by the abort callback: pAcq says so */
	atomic {
		if :: sc == SESS -> pAcq = SESS; pTok = 0 :: else fi;
		if :: CLEAR_DEAD && eKind == SESS -> eKind = FREE :: else fi
	}
	if
	:: !LIVE_TTL -> skip
	:: LIVE_TTL && pRel == eTok && !OWN_BUSY -> skip
	:: LIVE_TTL -> goto abort
	fi;
	atomic {
		if
		:: fX == me || (fX == NONE && (fS & ~(1 << me)) == 0 && len(fq) == 0) -> fX = me
		:: else -> fq ! me, true
		fi
	}
	if
	:: fX == me
	:: atomic { fX != me -> fq ?? eval(me), _; f_wake(); goto abort }
	fi;
	d_step {
		/* nobody else holds the lease now */
		assert(!LIVE_TTL || pRel == eTok);
		assert(gAct[0] == 0 || me == 0); assert(gAct[1] == 0 || me == 1); assert(gAct[NC - 1] == 0 || me == NC - 1);
		assert(eTok < nextTok && gCom < nextTok);
		pTok = nextTok; nextTok++;
		pAcq = sc; gAct[me] = pTok
	}
	if
	:: sc == TTL || rTok != 0 ->
		if
		:: atomic { rLock == NONE || rLock == me -> rLock = me;
			if :: sc == TTL -> pRow = pTok :: else -> pRow = DEL fi }
		:: rLock != NONE && rLock != me -> goto abort
		fi
	:: else
	fi;
	if
	:: atomic { !KEEP_F && sc != TTL -> fX = NONE; f_wake() }
	:: else
	fi;
	goto next;

release:                                        /* of a ttl lease: never H */
	atomic {
		if
		:: !REL_F || F_SHARED || fX == me || (fX == NONE && len(fq) == 0) -> if :: REL_F -> fS = fS | (1 << me) :: else fi
		:: else -> fq ! me, false
		fi
	}
	if
	:: !REL_F || F_SHARED
	:: atomic { REL_F && !F_SHARED -> fq ?? eval(me), _; f_wake(); goto abort }
	fi;
	if
	:: RECHECK && !(eTok == t && LIVE_TTL) -> goto next
	:: else
	fi;
	if
	:: atomic { rLock == NONE || rLock == me ->
		if
		:: !RECHECK || rTok == t -> rLock = me; pRow = DEL; pRel = t
		:: else
		fi }
	:: rLock != NONE && rLock != me -> goto abort
	fi;
	goto next;

lengthen:                                       /* a renewal that writes the row; the entry keeps its token */
	atomic {
		if
		:: F_SHARED || fX == me || (fX == NONE && len(fq) == 0) -> fS = fS | (1 << me)
		:: else -> fq ! me, false
		fi
	}
	if
	:: F_SHARED
	:: atomic { !F_SHARED -> fq ?? eval(me), _; f_wake(); goto abort }
	fi;
	if
	:: !(eTok == t && LIVE_TTL) -> goto next
	:: else
	fi;
	if
	:: atomic { rLock == NONE || rLock == me ->
		if
		:: rTok == t -> rLock = me; pRow = t
		:: else
		fi }
	:: rLock != NONE && rLock != me -> goto abort
	fi;
	goto next;

fence:                                          /* and a guarded write */
	atomic {
		if
		:: CHECK_LATE -> ok = true
		:: else -> ok = (eKind == TTL && eTok == t && eLive)
		fi;
		if
		:: F_SHARED || fX == me || (fX == NONE && len(fq) == 0) -> fS = fS | (1 << me)
		:: else -> fq ! me, false
		fi
	}
	if
	:: F_SHARED
	:: atomic { !F_SHARED -> fq ?? eval(me), _; f_wake(); goto abort }
	fi;
	atomic {
		if
		:: CHECK_LATE ->
			if
			:: pAcq != 0 && pTok != 0 -> ok = (t == pTok && hOwn == me)     /* our own, not yet published */
			:: else ->
				ok = eTok == t && pRel != t &&
					((eKind == TTL && eLive) ||
					 (eKind == SESS && (!FENCE_ASK || (hOwn == eOwn && hS))))
			fi
		:: else
		fi;
		if
		:: ok -> ok = false; if :: t > wTok -> wTok = t :: else fi; goto next
		:: else -> goto abort                           /* RV001, RV002 */
		fi
	}

revoke:                                         /* F, not H */
	atomic {
		if
		:: fX == me || (fX == NONE && (fS & ~(1 << me)) == 0 && len(fq) == 0) -> fX = me
		:: else -> fq ! me, true
		fi
	}
	if
	:: fX == me
	:: atomic { fX != me -> fq ?? eval(me), _; f_wake(); goto abort }
	fi;
	if
	:: atomic { rLock == NONE || rLock == me ->
		if
		:: LIVE_TTL && eTok == t && rTok == t -> rLock = me; pRow = DEL; pRel = t
		:: else
		fi }
	:: rLock != NONE && rLock != me -> goto abort
	fi;
	goto next;

commit:
	atomic {                                /* flushed and visible: the tuple's new state counts from here */
		if
		:: wTok != 0 ->
			assert(wTok >= gCom);
			assert(me == 0 || wTok >= gAct[0]); assert(me == 1 || wTok >= gAct[1]);
			assert(me == NC - 1 || wTok >= gAct[NC - 1])
		:: else
		fi;
		if
		:: rLock == me -> rLock = NONE; if :: pRow == DEL -> rTok = 0 :: else -> rTok = pRow fi
		:: else
		fi;
		if :: pAcq != 0 && gCom < pTok && gAct[me] != 0 -> gCom = pTok :: else fi
	}
	d_step {                                /* XACT_EVENT_COMMIT */
		if
		:: pRel != 0 && (!REL_CAS || (eKind == TTL && eTok == pRel)) -> eKind = FREE; eLive = false
		:: else
		fi;
		if
		:: pAcq == TTL -> assert(pTok > eTok); eKind = TTL; eTok = pTok; eOwn = me; eLive = true
		:: pAcq == SESS && !pRelS && (!PUB_CHECK || (hOwn == me && hS)) ->
			assert(pTok > eTok); eKind = SESS; eTok = pTok; eOwn = me; eLive = false
		:: pAcq == XACT -> eKind = FREE; eTok = pTok; eLive = false
		:: else
		fi;
		if
		:: pRelS && hOwn == me && hS ->
			if :: eKind == SESS && eOwn == me -> eKind = FREE :: else fi;
			hS = false; h_drop()
		:: else
		fi;
		gAct[me] = 0
	}
	goto unlock;

abort:
	atomic {
		gAct[me] = 0;
		if :: rLock == me -> rLock = NONE :: else fi
	}
	d_step {                                /* XACT_EVENT_ABORT; and the session-level locks if the session dies */
		if
		:: hOwn == me && hS && (dead || pAcq == SESS) -> hS = false; h_drop()
		:: else
		fi
	}

unlock:
	if                                      /* locks go in no particular order */
	:: d_step { if :: fX == me -> fX = NONE :: else fi; fS = fS & ~(1 << me); f_wake() }
	   d_step { if :: hOwn == me && hX -> hX = false; h_drop() :: else fi; inTx[me] = false; check_quiet() }
	:: hOwn == me && hX ->
	   d_step { hX = false; h_drop() }
	   d_step { if :: fX == me -> fX = NONE :: else fi; fS = fS & ~(1 << me); f_wake(); inTx[me] = false; check_quiet() }
	fi;
	goto idle
}

active proctype Sweeper()
{
	byte was, fp;
	bool fm;
end:
	do
	:: atomic { rTok != 0 && !(LIVE_TTL && eTok == rTok) && (!SWEEP_H || hOwn == NONE) ->
			inTx[SW] = true;
			if :: SWEEP_H -> hOwn = SW; hX = true :: else fi }
		atomic {
			if
			:: !SWEEP_F || (fX == NONE && fS == 0 && len(fq) == 0) ->
				if :: SWEEP_F -> fX = SW :: else fi;
				if
				:: rTok != 0 && !(LIVE_TTL && eTok == rTok) && rLock == NONE -> rLock = SW; was = rTok
				:: else -> was = 0
				fi
			:: else -> was = 0
			fi
		}
		if
		:: was != 0 ->
			d_step { rTok = 0; rLock = NONE }
			d_step { if :: eKind == TTL && eTok == was && !eLive -> eKind = FREE :: else fi }
		:: else
		fi;
		d_step { if :: fX == SW -> fX = NONE; f_wake() :: else fi }
		d_step {
			was = 0;
			if :: SWEEP_H -> hX = false; h_drop() :: else fi;
			inTx[SW] = false; check_quiet()
		}
	od
}

active proctype Clock()
{
end:
	do
	:: atomic { LIVE_TTL -> eLive = false }
	od
}

init {
	atomic { run Client(0); run Client(1); if :: NC > 2 -> run Client(2) :: else fi }
}
