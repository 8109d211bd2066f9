/*
 * async.pml - asynchronous commits and a crash.
 *
 * Token 1 is held by ttl. It is released, or lapses and a session or transaction lease takes the name over (no row of its own; a row it finds
 * is removed), or another ttl lease does. A commit that is not flushed is lost in a crash unless something later was flushed. After
 * the crash the holder of token 1 tries a renewal.
 * Property: a token is not current again once a later one was granted and its grant committed.
 * Shared leases are taken by two transactions at once: one has removed the row and has not committed (busy), the other comes meanwhile.
 *
 *   release, sweep, session    lease_row.c: lease_row_delete, which forces the commit to be flushed; lease_acquire.c: grant
 *   ttl                        lease_row.c: lease_row_write, likewise
 *   after a crash              lease_row.c: hold_from_row
 *
 *   FLUSH_REL   1: the commit of a release is flushed, whatever synchronous_commit is
 *   FLUSH_SWEEP 1: so is the sweeper's
 *   FLUSH_TAKE  1: so is that of a session or transaction acquire, if it removed a row
 *               2: up to the last write of the name's row even where the acquire itself wrote nothing: then the other two need not be
 *   ROW_WAIT    1: a shared acquire waits for who is removing the row, and removes it if that one did not
 *               0: it leaves the row to the other one, who may roll back, or be lost in a crash
 *
 * By hand: spin -a async.pml && gcc -O2 -DSAFETY -o pan pan.c && ./pan -E
 */
#ifndef FLUSH_REL
#define FLUSH_REL 1
#endif
#ifndef FLUSH_SWEEP
#define FLUSH_SWEEP 1
#endif
#ifndef FLUSH_TAKE
#define FLUSH_TAKE 1
#endif
#ifndef ROW_WAIT
#define ROW_WAIT 1
#endif
byte vRow = 1, dRow = 1;        /* the row's token as visible, as durable; 0: no row */
byte eTok = 1; bool eLive = true, up = true, crashed = false;
bool busy = false;              /* a shared acquire has removed the row, and its transaction is open */
byte next = 2, granted = 1;     /* ghost: newest token whose grant committed */

#define FLUSH dRow = vRow
#define MAX(a, b) ((a) > (b) -> (a) : (b))

active proctype World()
{
	bool wrote;
	byte drawn;
	do
	:: atomic { up && eTok == 1 && eLive -> eLive = false; vRow = 0; if :: FLUSH_REL -> FLUSH :: else fi }          /* release */
	:: atomic { up && eTok != 0 && eLive -> eLive = false }                                                         /* lapse */
	:: atomic { up && !busy && !eLive && next < 5 ->                                                                /* session, transaction */
		wrote = (vRow != 0); vRow = 0;
		if :: (FLUSH_TAKE == 1 && wrote) || FLUSH_TAKE == 2 -> FLUSH :: else fi;
		granted = next; eTok = 0; next++ }
	:: atomic { up && !busy && !eLive && next < 5 -> vRow = next; FLUSH; eTok = next; eLive = true; granted = next; next++ } /* ttl */
	:: atomic { up && !busy && !eLive && vRow != 0 -> vRow = 0; if :: FLUSH_SWEEP -> FLUSH :: else fi }                      /* sweep */
	:: atomic { up && !busy && !eLive && vRow != 0 && next < 5 -> drawn = next; next++; busy = true }               /* shared, one */
	:: atomic { busy -> busy = false; vRow = 0;                                                                     /* commits, its token the older */
		if :: FLUSH_TAKE -> FLUSH :: else fi; granted = MAX(granted, drawn); eTok = 0 }
	:: atomic { busy -> busy = false }                                                                              /* rolls back */
	:: atomic { up && busy && !ROW_WAIT && next < 5 -> granted = next; next++ }                                     /* shared, the other one */
	:: atomic { FLUSH }                                                                                             /* walwriter, other commits */
	:: atomic { up && !crashed -> up = false; crashed = true; busy = false }
	:: atomic { !up -> up = true; vRow = dRow; eTok = dRow; eLive = (dRow != 0) }
	:: atomic { up && eLive && eTok != 0 -> assert(eTok >= granted) }                                               /* renew */
	:: break
	od
}
