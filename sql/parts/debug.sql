-- Debug builds only: see src/debug.c and src/clock.c.
CREATE FUNCTION revenant._debug_hold(point text) RETURNS void
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'revenant_debug_hold';
CREATE FUNCTION revenant._debug_let_go(point text) RETURNS boolean
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'revenant_debug_let_go';
CREATE FUNCTION revenant._debug_hold_quiet(point text) RETURNS void
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'revenant_debug_hold_quiet';
CREATE FUNCTION revenant._debug_hold_quiet_one(point text) RETURNS void
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'revenant_debug_hold_quiet_one';
CREATE FUNCTION revenant._debug_let_go_quiet(point text) RETURNS void
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'revenant_debug_let_go_quiet';
CREATE FUNCTION revenant._debug_quiet_waiters(point text) RETURNS integer
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'revenant_debug_quiet_waiters';
CREATE FUNCTION revenant._debug_move_clock(by interval) RETURNS void
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'revenant_debug_move_clock';
CREATE FUNCTION revenant._debug_tick(count integer, apart interval) RETURNS void
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'revenant_debug_tick';
CREATE FUNCTION revenant._debug_leak(bytes integer) RETURNS void
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'revenant_debug_leak';
CREATE FUNCTION revenant._debug_handler(id text, state jsonb, message jsonb) RETURNS revenant.reply
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'revenant_debug_handler';
REVOKE ALL ON FUNCTION revenant._debug_handler(text, jsonb, jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION revenant._debug_hold(text), revenant._debug_let_go(text), revenant._debug_hold_quiet(text), revenant._debug_hold_quiet_one(text),
	revenant._debug_let_go_quiet(text), revenant._debug_quiet_waiters(text), revenant._debug_move_clock(interval), revenant._debug_tick(integer, interval),
	revenant._debug_leak(integer) FROM PUBLIC;
