-- Arguments that mean nothing are refused, each with its own SQLSTATE, and leave nothing behind.
\set VERBOSITY sqlstate

CREATE ROLE regress_bad_input;
SELECT revenant.grant_usage('regress_bad_input');
CREATE TABLE bad_input (a int);
CREATE VIEW bad_input_view AS SELECT a FROM bad_input;
CREATE INDEX bad_input_index ON bad_input (a);

SELECT revenant.try_acquire('bad-session') AS held \gset
SELECT revenant.try_acquire('bad-ttl', ttl => '1 h', holder => 'me', metadata => '{"a": 1}') AS timed \gset

-- What must be the same at the end.
CREATE TEMP VIEW bad_input_state AS
SELECT
	(SELECT array_agg(ROW(l.lease, l.scope, l.token, l.holder, l.role, l.ttl, l.metadata)::text ORDER BY l.lease)
	 FROM revenant.leases AS l) AS leases,
	(SELECT array_agg(r::text ORDER BY r.name) FROM revenant.lease AS r) AS lease_rows,
	(SELECT count(*) FROM pg_catalog.pg_locks AS k WHERE k.locktype = 'userlock' AND k.pid = pg_backend_pid()) AS locks,
	(SELECT last_value FROM revenant._token_lineage) AS lineage,
	(SELECT count(*) FROM pg_catalog.pg_trigger AS t WHERE t.tgname LIKE 'revenant%') AS guards,
	(SELECT array_agg(u::text ORDER BY u.role) FROM revenant.usage_grant AS u) AS usage;
CREATE TEMP TABLE bad_input_before AS SELECT * FROM bad_input_state;

-- Names: null, empty, too long in bytes. Of 512 bytes is the longest.
SELECT revenant.try_acquire(NULL);
SELECT revenant.try_acquire('');
SELECT revenant.try_acquire(repeat('x', 513));
SELECT revenant.try_acquire(repeat('é', 257));
SELECT revenant.acquire(NULL);
SELECT revenant.acquire('');
SELECT revenant.acquire(repeat('x', 513));
SELECT revenant.try_acquire_xact(NULL);
SELECT revenant.try_acquire_xact('');
SELECT revenant.try_acquire_xact(repeat('x', 513));
SELECT revenant.acquire_xact(NULL);
SELECT revenant.acquire_xact('');
SELECT revenant.acquire_xact(repeat('x', 513));
SELECT revenant.renew(NULL, 1);
SELECT revenant.renew('', 1);
SELECT revenant.renew(repeat('x', 513), 1);
SELECT revenant.release(NULL, 1);
SELECT revenant.release('', 1);
SELECT revenant.release(repeat('x', 513), 1);
SELECT revenant.is_current(NULL, 1);
SELECT revenant.is_current('', 1);
SELECT revenant.is_current(repeat('x', 513), 1);
SELECT revenant.fence(NULL, 1);
SELECT revenant.fence('', 1);
SELECT revenant.fence(repeat('x', 513), 1);
SELECT revenant.guard_table('bad_input', NULL);
SELECT revenant.guard_table('bad_input', '');
SELECT revenant.guard_table('bad_input', repeat('x', 513));

-- A null name is an error before a null token is an answer.
SELECT revenant.renew(NULL, NULL);
SELECT revenant.release(NULL, NULL);
SELECT revenant.is_current(NULL, NULL);
SELECT revenant.fence(NULL, NULL);

-- The longest name works from one end to the other, as do two that differ in the last byte only.
SELECT revenant.try_acquire(repeat('x', 512), ttl => '1 h') AS longest \gset
SELECT revenant.try_acquire(repeat('x', 511) || 'y', ttl => '1 h') AS beside \gset
SELECT revenant.try_acquire(repeat('é', 256)) AS accents \gset
SELECT :beside > :longest AS two_names;
SELECT lease = repeat('x', 512) AS whole_name FROM revenant.leases WHERE token = :longest;
SELECT revenant.is_current(repeat('x', 512), :beside) AS of_another_name;
SELECT revenant.renew(repeat('x', 512), :longest) IS NOT NULL AS renewed;
SELECT revenant.fence(repeat('x', 512), :longest);
SELECT revenant.release(repeat('x', 512), :longest);
SELECT revenant.release(repeat('x', 511) || 'y', :beside);
SELECT revenant.release(repeat('é', 256), :accents);

-- A null token, one that nobody got, and a name that nobody has: lost, and no error but in fence().
SELECT revenant.renew('bad-ttl', NULL) IS NULL AS lost;
SELECT revenant.release('bad-ttl', NULL);
SELECT revenant.is_current('bad-ttl', NULL);
SELECT revenant.fence('bad-ttl', NULL);
SELECT revenant.renew('bad-ttl', 0) IS NULL AS lost;
SELECT revenant.renew('bad-ttl', -1) IS NULL AS lost;
SELECT revenant.release('bad-ttl', -9223372036854775808);
SELECT revenant.is_current('bad-ttl', 9223372036854775807);
SELECT revenant.fence('bad-ttl', 0);
SELECT revenant.fence('bad-ttl', -1);
SELECT revenant.fence('bad-ttl', :held);
SELECT revenant.renew('bad-nobody', :timed) IS NULL AS lost;
SELECT revenant.release('bad-nobody', :timed);
SELECT revenant.is_current('bad-nobody', :timed);
SELECT revenant.fence('bad-nobody', :timed);

-- A ttl is from 100 ms to 10 years.
SELECT revenant.try_acquire('bad-new', ttl => '99 ms');
SELECT revenant.try_acquire('bad-new', ttl => '99.999 ms');
SELECT revenant.try_acquire('bad-new', ttl => '0');
SELECT revenant.try_acquire('bad-new', ttl => '-1 s');
SELECT revenant.try_acquire('bad-new', ttl => '11 years');
SELECT revenant.try_acquire('bad-new', ttl => '178000000 years');
SELECT revenant.try_acquire('bad-new', ttl => '-178000000 years');
SELECT revenant.acquire('bad-new', ttl => '99 ms');
SELECT revenant.acquire('bad-new', ttl => '-1 s');
SELECT revenant.acquire('bad-new', ttl => '11 years');
SELECT revenant.renew('bad-ttl', :timed, ttl => '99 ms');
SELECT revenant.renew('bad-ttl', :timed, ttl => '0');
SELECT revenant.renew('bad-ttl', :timed, ttl => '-1 s');
SELECT revenant.renew('bad-ttl', :timed, ttl => '11 years');
SELECT revenant.renew('bad-ttl', NULL, ttl => '11 years');
SELECT revenant.renew('bad-session', :held, ttl => '1 h');
SELECT revenant.try_acquire('bad-years', ttl => '10 years') AS years \gset
SELECT revenant.try_acquire('bad-least', ttl => '100 ms') AS least \gset
SELECT :least > :years AS both_ends_work;
SELECT revenant.release('bad-years', :years);
SELECT revenant.release('bad-least', :least) IS NOT NULL AS answered;
-- It is taken over if it lapsed before that, so that its row is gone in any case.
SELECT revenant.release('bad-least', revenant.acquire('bad-least', ttl => '1 h'));

-- A wait is not negative.
SELECT revenant.acquire('bad-new', wait => '-1 ms');
SELECT revenant.acquire('bad-new', wait => '-178000000 years');
SELECT revenant.acquire_xact('bad-new', wait => '-1 ms');

-- Labels: a holder of 512 bytes and metadata of 8 kB are the largest.
SELECT revenant.try_acquire('bad-new', holder => repeat('h', 513));
SELECT revenant.try_acquire('bad-new', ttl => '1 h', holder => repeat('é', 257));
SELECT revenant.acquire('bad-new', holder => repeat('h', 513));
SELECT revenant.try_acquire_xact('bad-new', holder => repeat('h', 513));
SELECT revenant.acquire_xact('bad-new', holder => repeat('h', 513));
SELECT revenant.try_acquire('bad-new', metadata => to_jsonb(repeat('m', 8192)));
SELECT revenant.try_acquire('bad-new', ttl => '1 h', metadata => to_jsonb(repeat('m', 8192)));
SELECT revenant.acquire('bad-new', metadata => to_jsonb(repeat('m', 8192)));
SELECT revenant.try_acquire_xact('bad-new', metadata => to_jsonb(repeat('m', 8192)));
SELECT revenant.acquire_xact('bad-new', metadata => to_jsonb(repeat('m', 8192)));
SELECT revenant.try_acquire('bad-large', ttl => '1 h', holder => repeat('h', 512), metadata => to_jsonb(repeat('m', 8000))) AS large \gset
SELECT revenant.try_acquire('bad-large-2', holder => repeat('é', 256), metadata => to_jsonb(repeat('m', 8000))) AS large2 \gset
SELECT lease, octet_length(holder) AS holder, length(metadata #>> '{}') AS metadata
FROM revenant.leases WHERE lease LIKE 'bad-large%' ORDER BY lease;
SELECT revenant.release('bad-large', :large), revenant.release('bad-large-2', :large2);
SELECT revenant.try_acquire('bad-large', holder => '', metadata => 'null') AS large \gset
SELECT holder, metadata FROM revenant.leases WHERE lease = 'bad-large';
SELECT revenant.release('bad-large', :large);

-- What does not go together is refused.
SELECT revenant.try_acquire('bad-new', ttl => '1 h', shared => true);
SELECT revenant.acquire('bad-new', ttl => '1 h', shared => true);
SELECT revenant.try_acquire('bad-new', shared => NULL);
SELECT revenant.try_acquire_xact('bad-new', shared => NULL);
SELECT revenant.try_acquire('bad-new', bound => true);
SELECT revenant.acquire('bad-new', bound => true);
SELECT revenant.try_acquire('bad-new', ttl => '1 h', bound => NULL);
SELECT revenant.try_acquire('bad-new', lock_delay => '1 s');
SELECT revenant.try_acquire('bad-new', ttl => '1 h', lock_delay => '-1 s');
SELECT revenant.try_acquire('bad-new', ttl => '1 h', lock_delay => '11 years');
SELECT revenant.try_acquire('bad-new', ttl => '1 h', lock_delay => NULL);
SELECT revenant.release('bad-ttl', :timed, hold_off => '-1 s');
SELECT revenant.revoke(NULL);
SELECT revenant.revoke('');
SELECT revenant.revoke('bad-ttl', terminate => NULL);
SELECT revenant.explain_lease(NULL);
SELECT revenant.explain_lease('');
SELECT revenant.held_token(NULL);
SELECT revenant.leader(NULL);
SELECT revenant.refresh(NULL, 1);
SELECT revenant.abdicate('', 1);
CALL revenant.await_change(NULL);
CALL revenant.await_lease(NULL);
SELECT revenant.try_acquire('bad-unused', ttl => '1 h', shared => false, bound => false, lock_delay => '0', request_id => NULL) AS unused \gset
SELECT revenant.release('bad-unused', :unused, hold_off => '0');

-- In a read-only transaction: whatever would change something.
BEGIN TRANSACTION READ ONLY;
SAVEPOINT s;
SELECT revenant.try_acquire('bad-new');
ROLLBACK TO s;
SELECT revenant.try_acquire('bad-new', ttl => '1 h');
ROLLBACK TO s;
SELECT revenant.acquire('bad-new');
ROLLBACK TO s;
SELECT revenant.try_acquire_xact('bad-new');
ROLLBACK TO s;
SELECT revenant.acquire_xact('bad-new');
ROLLBACK TO s;
-- also where it holds the lease already, or would get no for an answer
SELECT revenant.try_acquire('bad-session');
ROLLBACK TO s;
SELECT revenant.renew('bad-ttl', :timed);
ROLLBACK TO s;
SELECT revenant.renew('bad-ttl', NULL);
ROLLBACK TO s;
SELECT revenant.release('bad-ttl', :timed);
ROLLBACK TO s;
SELECT revenant.release('bad-ttl', NULL);
ROLLBACK TO s;
SELECT revenant.guard_table('bad_input', 'bad-ttl');
ROLLBACK TO s;
SELECT revenant.unguard_table('bad_input');
ROLLBACK TO s;
SELECT revenant.advance_tokens(1);
ROLLBACK TO s;
SELECT revenant.grant_usage('regress_bad_input');
ROLLBACK TO s;
SELECT revenant.revoke_usage('regress_bad_input');
ROLLBACK TO s;
-- Looking is allowed.
SELECT revenant.is_current('bad-ttl', :timed);
SELECT revenant.fence('bad-ttl', :timed);
SELECT count(*) FROM revenant.leases WHERE lease = 'bad-ttl';
COMMIT;

-- The right token of another role opens nothing.
SET ROLE regress_bad_input;
SELECT revenant.renew('bad-ttl', :timed);
SELECT revenant.release('bad-ttl', :timed);
SELECT revenant.fence('bad-ttl', :timed);
SELECT revenant.renew('bad-session', :held);
SELECT revenant.release('bad-session', :held);
SELECT revenant.fence('bad-session', :held);
-- A wrong one neither: it is a wrong one.
SELECT revenant.renew('bad-ttl', 1) IS NULL AS lost;
SELECT revenant.release('bad-ttl', 1);
SELECT revenant.fence('bad-ttl', 1);
RESET ROLE;

-- Tables that are none, or are not there.
SELECT revenant.guard_table(NULL, 'bad-ttl');
SELECT revenant.guard_table(0, 'bad-ttl');
SELECT revenant.guard_table('no_such_table', 'bad-ttl');
SELECT revenant.guard_table('bad_input', 'bad-ttl', replicas => NULL);
SELECT revenant.guard_table('bad_input_view', 'bad-ttl');
SELECT revenant.guard_table('bad_input_index', 'bad-ttl');
SELECT revenant.guard_table('pg_catalog.pg_class', 'bad-ttl');
SELECT revenant.guard_table('revenant.lease', 'bad-ttl');
SELECT revenant.unguard_table(NULL);
SELECT revenant.unguard_table(0);
SELECT revenant.unguard_table('bad_input');
SELECT revenant.unguard_table('bad_input_view');

-- Roles and levels.
SELECT revenant.grant_usage(NULL);
SELECT revenant.grant_usage('');
SELECT revenant.grant_usage('regress_nobody_at_all');
SELECT revenant.grant_usage('public');
SELECT revenant.grant_usage('regress_bad_input', NULL);
SELECT revenant.grant_usage('regress_bad_input', '');
SELECT revenant.grant_usage('regress_bad_input', 'owner');
SELECT revenant.revoke_usage(NULL);
SELECT revenant.revoke_usage('regress_nobody_at_all');
SELECT revenant.revoke_usage('public');

-- Tokens.
SELECT revenant.advance_tokens(NULL);
SELECT revenant.advance_tokens(-1);
SELECT revenant.advance_tokens(9223372036854775807);

-- The trigger function is not for calling.
SELECT revenant._guard();
CREATE TRIGGER bad_input_trigger BEFORE INSERT ON bad_input FOR EACH STATEMENT EXECUTE FUNCTION revenant._guard();
INSERT INTO bad_input VALUES (1);
DROP TRIGGER bad_input_trigger ON bad_input;
CREATE TRIGGER bad_input_trigger BEFORE INSERT ON bad_input FOR EACH STATEMENT EXECUTE FUNCTION revenant._guard('a', 'b');
INSERT INTO bad_input VALUES (1);
DROP TRIGGER bad_input_trigger ON bad_input;

-- Nothing of all that left anything.
SELECT b.leases = s.leases AS leases, b.lease_rows = s.lease_rows AS lease_rows, b.locks = s.locks AS locks,
	b.lineage = s.lineage AS lineage, b.guards = s.guards AS guards, b.usage = s.usage AS usage
FROM bad_input_before AS b, bad_input_state AS s;
SELECT revenant.is_current('bad-session', :held), revenant.is_current('bad-ttl', :timed);

SELECT revenant.release('bad-session', :held), revenant.release('bad-ttl', :timed);
SELECT count(*) FROM revenant.leases WHERE lease LIKE 'bad-%';
SELECT revenant.revoke_usage('regress_bad_input');
DROP TABLE bad_input CASCADE;
DROP ROLE regress_bad_input;
