/*
 * era.pml - token numbers across crashes, promotions, dumps and upgrades.
 *
 * A token is (era, n). One primary at a time issues; a standby follows it, at any distance. The durable state is mark, lineage
 * (base and whose it is) and what a dump carries (an era and whose it is). Numbers are small: a block is 2, an era has 2^40 = 8
 * numbers here, eras go up to 15; a token is era * 8 + n.
 * Property: every token issued is greater than every one issued before.
 *
 *   reserve            token.c: next_base, token_reserve; fence.c: reserve_locked, state_write
 *   issue              fence.c: fence_next_token, draw (which sees that a restore changed the dump's row)
 *   enter              fence.c: fence_enter_era; here it is one step with CREATE EXTENSION or the promotion, in the code the
 *                      supervisor's first tick, so a dump or an upgrade before that tick is not in here
 *   advance            token.c: token_advance; fence.c: advance_locked
 *
 *   RAISE_BASE   1: advance_tokens raises base (the era follows); also if the mark's era is above base + timeline, for whatever reason
 *                0: advance_tokens raises the mark only
 *   DUMP_ROW     1: a dump carries a row of its own, and a restore changes nothing else
 *                0: it carries mark and lineage, and a restore overwrites them (shared memory puts the mark right at the next reservation)
 *   DUMP_ERA     1: whoever finds somebody else's era in the dump's row enters one above it
 *                0: one above its own state's is enough
 *   SEE_DUMP     1: a token is not issued from a block that was reserved before the dump's row changed        0: it may be
 *   IDENT_DB     1: the identity stored with the state has the database and the extension's instance in it, not only the system
 *   BASE_FIRST   1: the lineage is durable before the first mark that relies on it; 0: base is only computed, not stored
 *   PROMO_MARK   1: a block is reserved as the first thing in a new database and on a new timeline   0: when a token is first asked for
 *   FLUSH        1: the mark is flushed before the block is published
 *   ADV_WAIT     1: a standby that has not received advance_tokens is not promoted     0: it may be; up to the administrator
 *   TL_SEEN      1: a promotion picks a timeline nobody used (it sees the archive)   0: one above its own; up to the administrator
 *   NEWDB, NOADV (defined or not): the dump may be restored into a new database of this server, or this one be a template;
 *                no advance_tokens
 *
 * By hand: spin -a era.pml && gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -E -m1000000
 */
#ifndef RAISE_BASE
#define RAISE_BASE 1
#endif
#ifndef ADV_WAIT
#define ADV_WAIT 1
#endif
#ifndef DUMP_ROW
#define DUMP_ROW 1
#endif
#ifndef DUMP_ERA
#define DUMP_ERA 1
#endif
#ifndef SEE_DUMP
#define SEE_DUMP 1
#endif
#ifndef IDENT_DB
#define IDENT_DB 1
#endif
#ifndef BASE_FIRST
#define BASE_FIRST 1
#endif
#ifndef PROMO_MARK
#define PROMO_MARK 1
#endif
#ifndef FLUSH
#define FLUSH 1
#endif
#ifndef TL_SEEN
#define TL_SEEN 1
#endif
#ifndef EVENTS
#define EVENTS 5
#endif
#define ERA 8
#define BLOCK 2
#define ERA_OF(t) ((t) / ERA)
#define MAX(a, b) ((a) > (b) -> (a) : (b))

typedef Durable {
	byte mark;                /* last reserved token */
	byte base, sys, db;       /* lineage: era base; identity it belongs to, sys 0: nobody's yet */
	byte dEra, dSys, dDb      /* the dump's row: an era, and whose */
};

Durable wal;                      /* the primary's state as written (in memory: what the next reservation reads) */
Durable disk;                     /* as flushed: what a crash leaves */
Durable stby;                     /* a standby's copy: some earlier disk */
Durable stby2;                    /* a second standby's */
Durable dump;                     /* a dump taken at some time */
byte sys = 1, db = 1, tl = 1;   /* identity and timeline of the running primary */
byte tl1 = 1, tl2 = 1;          /* timelines the standbys are on */
byte sys1 = 1, sys2 = 1;
byte tlMax = 1;                 /* newest timeline anybody of this system used */
byte shMark = 0, shNext = 0;    /* shared memory: block reserved up to shMark, next to issue; 0 = nothing yet */
bool shSeen = false;            /* and it was reserved with the dump's row as it is */
byte issued = 0;                /* ghost: greatest token issued */
bool dumped = false, fresh = false;     /* there is a dump; it is of the running primary's timeline */
byte ev = 0;
byte base, era, m;

inline copy(a, b) {
	a.mark = b.mark; a.base = b.base; a.sys = b.sys; a.db = b.db;
	a.dEra = b.dEra; a.dSys = b.dSys; a.dDb = b.dDb
}
#define FOREIGN (wal.sys != 0 && (wal.sys != sys || (IDENT_DB && wal.db != db)))
#define FOREIGN_DUMP (wal.dSys != 0 && (wal.dSys != sys || (IDENT_DB && wal.dDb != db)))

inline next_base(known) {
	base = wal.base;
	m = MAX(wal.mark, known);
	if :: FOREIGN -> base = MAX(base, ERA_OF(wal.mark)) :: else fi;
	if :: DUMP_ERA && FOREIGN_DUMP -> base = MAX(base, wal.dEra) :: else fi;
	if :: RAISE_BASE && ERA_OF(m) > base + tl -> base = ERA_OF(m) + 1 - tl :: else fi
}

inline reserve() {
	next_base(shMark);
	era = base + tl;
	m = MAX(m, era * ERA);
	if
	:: ERA_OF(m + BLOCK) == ERA_OF(m) ->
		if
		:: BASE_FIRST -> wal.base = base; wal.sys = sys; wal.db = db; wal.dEra = era; wal.dSys = sys; wal.dDb = db; copy(disk, wal)
		:: else -> wal.dEra = era; wal.dSys = sys; wal.dDb = db
		fi;
		wal.mark = m + BLOCK;
		if :: FLUSH -> copy(disk, wal) :: else fi;
		shNext = m + 1; shMark = m + BLOCK; shSeen = true
	:: else -> shNext = 1; shMark = 0       /* exhausted: an error */
	fi;
	base = 0; era = 0; m = 0
}

#define ENTERED (!PROMO_MARK || !BASE_FIRST || !DUMP_ROW || (wal.dSys == sys && wal.dDb == db && wal.dEra == wal.base + tl))
#define STOP shMark = 0; shNext = 0; shSeen = false
#define ENTER if :: PROMO_MARK -> reserve() :: else fi
#define ROOM (ERA_OF(disk.mark) < 10 && disk.base < 10 && disk.dEra < 10)

init {
	d_step {
		ENTER;                                                                  /* CREATE EXTENSION */
		copy(disk, wal); copy(stby, disk); copy(stby2, disk)
	}
	do
	/* issue */
	:: d_step { issued < 100 ->
			if :: shNext == 0 || shNext > shMark || (SEE_DUMP && !shSeen) -> reserve() :: else fi;
			if
			:: shNext != 0 && shNext <= shMark ->
				assert(shNext > issued);
				issued = shNext; shNext++
			:: else
			fi }
	:: d_step { wal.mark != disk.mark -> copy(disk, wal) }                          /* walwriter */
	:: d_step { sys1 == sys && tl1 == tl -> copy(stby, disk) }                      /* replication */
	:: d_step { sys2 == sys && tl2 == tl -> copy(stby2, disk) }
	:: d_step { sys2 == sys && tl2 < tl -> tl2 = tl; copy(stby2, disk) }  /* the second follows the promoted one */
	/* events */
	:: d_step { ev < EVENTS -> ev++; copy(wal, disk); STOP }                        /* crash, restart */
	:: d_step { ev < EVENTS && sys1 == sys && tl1 <= tl && ERA_OF(stby.mark) + tl < 10 -> ev++;
		copy(wal, stby); copy(disk, stby);
		if :: TL_SEEN -> tlMax++; tl = tlMax :: else -> tl = tl1 + 1; tlMax = MAX(tl, tlMax) fi;
		STOP; tl1 = 99; fresh = false;                                                         /* promotion of the first standby */
		ENTER }
	:: d_step { ev < EVENTS && sys2 == sys && ERA_OF(stby2.mark) + tl < 10 -> ev++;
		copy(wal, stby2); copy(disk, stby2);
		if :: TL_SEEN -> tlMax++; tl = tlMax :: else -> tl = tl2 + 1; tlMax = MAX(tl, tlMax) fi;
		STOP; sys2 = 0; fresh = false;                                                         /* of the second */
		ENTER }
	:: d_step { ev < EVENTS && ENTERED && ROOM -> ev++;                             /* pg_upgrade, after a clean shutdown: all of it */
		copy(disk, wal); fresh = false;
		sys++; tl = 1; tlMax = 1; STOP; sys1 = sys; tl1 = 1; sys2 = sys; tl2 = 1;
		copy(stby, disk); copy(stby2, disk) }
	:: d_step { !dumped && ENTERED -> dumped = true; fresh = true; copy(dump, wal) }
	:: d_step { ev < EVENTS && dumped && ROOM -> ev++;                              /* a dump restored into this database, of it or of an earlier one */
		if
		:: DUMP_ROW -> wal.dEra = dump.dEra; wal.dSys = dump.dSys; wal.dDb = dump.dDb; shSeen = false
		:: else -> wal.mark = dump.mark; wal.base = dump.base; wal.sys = dump.sys; wal.db = dump.db
		fi;
		copy(disk, wal) }
	:: d_step { ev < EVENTS && dumped && fresh && ROOM -> ev++;
		/* ... into a new cluster, made by CREATE EXTENSION; the dump is of the present era */
		dumped = false; fresh = false; sys++; db++; tl = 1; tlMax = 1; STOP; sys1 = sys; tl1 = 1; sys2 = sys; tl2 = 1;
		wal.mark = 0; wal.base = 0; wal.sys = 0; wal.db = 0; wal.dEra = 0; wal.dSys = 0; wal.dDb = 0;
		ENTER;
		if
		:: DUMP_ROW -> wal.dEra = dump.dEra; wal.dSys = dump.dSys; wal.dDb = dump.dDb; shSeen = false
		:: else -> wal.mark = dump.mark; wal.base = dump.base; wal.sys = dump.sys; wal.db = dump.db
		fi;
		copy(disk, wal); copy(stby, disk); copy(stby2, disk) }
#ifdef NEWDB
	:: d_step { ev < EVENTS && dumped && dump.sys == sys && ROOM -> ev++;           /* ... into a new database of this server */
		dumped = false;                                                         /* once: of a second copy nothing here can know */
		db++; STOP;
		wal.mark = 0; wal.base = 0; wal.sys = 0; wal.db = 0; wal.dEra = 0; wal.dSys = 0; wal.dDb = 0;
		ENTER;
		if
		:: DUMP_ROW -> wal.dEra = dump.dEra; wal.dSys = dump.dSys; wal.dDb = dump.dDb; shSeen = false
		:: else -> wal.mark = dump.mark; wal.base = dump.base; wal.sys = dump.sys; wal.db = dump.db
		fi;
		copy(disk, wal); copy(stby, disk); copy(stby2, disk) }
	:: d_step { ev < EVENTS && ENTERED && ROOM -> ev++;                             /* a template */
		dumped = false; db++; STOP;
		ENTER;
		copy(stby, disk); copy(stby2, disk) }
#endif
#ifndef NOADV
	:: d_step { ev < EVENTS && !FOREIGN && !FOREIGN_DUMP && ERA_OF(disk.mark) < 8 && ROOM -> ev++; dumped = false;
		/* advance_tokens beyond the present era */
		next_base(0);
		era = MAX(ERA_OF(wal.mark), base + tl) + 1;
		if
		:: RAISE_BASE -> wal.base = era - tl; wal.sys = sys; wal.db = db; wal.dEra = era; wal.dSys = sys; wal.dDb = db; copy(disk, wal)
		:: else -> wal.mark = era * ERA; copy(disk, wal)
		fi;
		if :: issued < era * ERA -> issued = era * ERA :: else fi;              /* the world has tokens up to there */
		shNext = shMark + 1;
		if :: RAISE_BASE -> reserve() :: else -> STOP; base = 0; era = 0; m = 0 fi;
		if
		:: ADV_WAIT ->                                                          /* reaches each standby, or that one is written off */
			if :: tl1 == tl -> copy(stby, disk) :: else -> tl1 = 99 fi;
			if :: tl2 == tl && sys2 == sys -> copy(stby2, disk) :: else -> sys2 = 0 fi
		:: else
		fi }
#endif
	:: break
	od
}
