-- Nobody can do what was not granted to him, nobody keeps what was revoked, and a token is not shown to those who could misuse it.
\set VERBOSITY sqlstate

CREATE ROLE regress_none;
CREATE ROLE regress_reader;
CREATE ROLE regress_user LOGIN;
CREATE ROLE regress_user_2;
CREATE ROLE regress_user_member IN ROLE regress_user;
CREATE ROLE regress_admin;

-- PUBLIC has nothing: not on the schema, a relation, a function or a type that is more than a relation's own.
SELECT 'schema' AS what, n.nspname::text AS name
FROM pg_namespace AS n, aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) AS a
WHERE n.nspname = 'revenant' AND a.grantee = 0
UNION ALL
SELECT 'relation', c.oid::regclass::text
FROM pg_class AS c, aclexplode(coalesce(c.relacl, acldefault(CASE c.relkind WHEN 'S' THEN 's'::"char" ELSE 'r' END, c.relowner))) AS a
WHERE c.relnamespace = 'revenant'::regnamespace AND c.relkind IN ('r', 'v', 'm', 'S', 'p', 'f') AND a.grantee = 0
UNION ALL
SELECT 'column', a.attrelid::regclass || '.' || a.attname
FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
WHERE c.relnamespace = 'revenant'::regnamespace AND a.attacl IS NOT NULL
UNION ALL
SELECT 'function', p.oid::regprocedure::text
FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
WHERE p.pronamespace = 'revenant'::regnamespace AND a.grantee = 0
ORDER BY 1, 2;
-- No default privileges either, and nothing that runs with its owner's rights.
SELECT count(*) FROM pg_default_acl WHERE defaclnamespace = 'revenant'::regnamespace;
SELECT count(*) FROM pg_proc WHERE pronamespace = 'revenant'::regnamespace AND prosecdef;

SELECT revenant.grant_usage('regress_reader', 'reader');
SELECT revenant.grant_usage('regress_user');
SELECT revenant.grant_usage('regress_user_2', 'user');
SELECT revenant.grant_usage('regress_admin', level => 'admin');
SELECT role, level FROM revenant.usage_grant ORDER BY role;

-- Who may call what of leases, fencing and tokens.
SELECT p.proname AS function,
	has_function_privilege('regress_none', p.oid, 'EXECUTE') AS none,
	has_function_privilege('regress_reader', p.oid, 'EXECUTE') AS reader,
	has_function_privilege('regress_user', p.oid, 'EXECUTE') AS "user",
	has_function_privilege('regress_user_member', p.oid, 'EXECUTE') AS member,
	has_function_privilege('regress_admin', p.oid, 'EXECUTE') AS admin
FROM pg_proc AS p
WHERE p.pronamespace = 'revenant'::regnamespace
	AND p.proname IN ('acquire', 'acquire_xact', 'advance_tokens', 'fence', 'grant_usage', 'guard_table', 'is_current',
		'release', 'renew', 'revoke_usage', 'try_acquire', 'try_acquire_xact', 'unguard_table')
ORDER BY p.proname;
-- Nobody of them can write a table of the extension, or read the row of a lease, which has its token.
SELECT c.relname, r.rolname, string_agg(p.privilege, ' ' ORDER BY p.privilege) AS privileges
FROM pg_class AS c, pg_roles AS r, unnest(ARRAY['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) AS p (privilege)
WHERE c.relnamespace = 'revenant'::regnamespace AND c.relkind IN ('r', 'v') AND r.rolname LIKE 'regress\_%'
	AND has_table_privilege(r.oid, c.oid, p.privilege)
GROUP BY c.relname, r.rolname;
SELECT r.rolname, has_table_privilege(r.oid, 'revenant.lease', 'SELECT') AS lease,
	has_table_privilege(r.oid, 'revenant.leases', 'SELECT') AS leases,
	has_sequence_privilege(r.oid, 'revenant._token_mark', 'USAGE') AS mark
FROM pg_roles AS r WHERE r.rolname IN ('regress_none', 'regress_reader', 'regress_user', 'regress_admin') ORDER BY 1;

/* ---- in action */

SET ROLE regress_none;
SELECT count(*) FROM revenant.leases;
SELECT revenant.try_acquire('usage');
SELECT revenant.is_current('usage', 1);

SET ROLE regress_reader;
SELECT count(*) FROM revenant.leases WHERE lease LIKE 'usage%';
SELECT revenant.try_acquire('usage');
SELECT revenant.acquire_xact('usage');
SELECT revenant.renew('usage', 1);
SELECT revenant.release('usage', 1);
SELECT revenant.fence('usage', 1);
SELECT revenant.is_current('usage', 1);
SELECT count(*) FROM revenant.lease;
SELECT revenant.advance_tokens(1);
SELECT revenant.grant_usage('regress_reader', 'admin');

SET ROLE regress_user;
SELECT revenant.acquire('usage-ttl', ttl => '1 h', holder => 'label', metadata => '{"secret": 1}') AS token \gset
SELECT revenant.acquire('usage-session', metadata => '{"secret": 2}') AS session \gset
SELECT revenant.is_current('usage-ttl', :token), revenant.renew('usage-ttl', :token) IS NOT NULL AS renewed,
	revenant.renew('usage-ttl', :token, '2 h') IS NOT NULL AS longer, revenant.fence('usage-ttl', :token);
SELECT lease, scope, token IN (:token, :session) AS token, holder, role, metadata
FROM revenant.leases WHERE lease LIKE 'usage%' ORDER BY lease;
SELECT revenant.advance_tokens(1);
SELECT revenant.grant_usage('regress_none');
SELECT revenant.revoke_usage('regress_none');
SELECT count(*) FROM revenant.lease;
DELETE FROM revenant.lease;
SELECT nextval('revenant._token_mark');

-- Another user sees that it is held and by whom, but neither token nor metadata, and a token alone opens nothing.
SET ROLE regress_user_2;
SELECT lease, scope, token, holder, role, metadata FROM revenant.leases WHERE lease LIKE 'usage%' ORDER BY lease;
SELECT revenant.try_acquire('usage-ttl', ttl => '1 h') IS NULL AS busy;
SELECT revenant.renew('usage-ttl', :token);
SELECT revenant.release('usage-ttl', :token);
SELECT revenant.fence('usage-ttl', :token);
SELECT revenant.release('usage-session', :session);
-- Asking for a wrong one is answered as to anybody.
SELECT revenant.renew('usage-ttl', :token - 1) IS NULL AS lost, revenant.release('usage-ttl', :token - 1);
SET ROLE regress_reader;
SELECT lease, scope, token, holder, role, metadata FROM revenant.leases WHERE lease LIKE 'usage%' ORDER BY lease;
-- A member of the role that acquired can do all of it; an admin only looks.
SET ROLE regress_user_member;
SELECT lease, token IN (:token, :session) AS token, metadata FROM revenant.leases WHERE lease LIKE 'usage%' ORDER BY lease;
SELECT revenant.renew('usage-ttl', :token) IS NOT NULL AS renewed, revenant.fence('usage-ttl', :token);
SET ROLE regress_admin;
SELECT lease, token IN (:token, :session) AS token, metadata FROM revenant.leases WHERE lease LIKE 'usage%' ORDER BY lease;
SELECT revenant.renew('usage-ttl', :token);
SELECT revenant.release('usage-ttl', :token);
SELECT revenant.advance_tokens(1);
SELECT revenant.grant_usage('regress_none');
SET ROLE regress_user_member;
SELECT revenant.release('usage-ttl', :token), revenant.release('usage-session', :session);
RESET ROLE;

/* ---- names of tasks and plans */

SELECT revenant.create_task('usage', 'SELECT 1', run_as => 'regress_user', enabled => false);
SET ROLE regress_user_2;
SELECT revenant.try_acquire('task/usage');
SELECT revenant.acquire('task/usage', ttl => '1 h');
SELECT revenant.try_acquire_xact('task/usage');
SELECT revenant.acquire_xact('task/');
SELECT revenant.try_acquire('task/nobody''s');
SELECT revenant.try_acquire('plan/usage');
SELECT revenant.try_acquire('plan/');
-- Only these two beginnings.
BEGIN;
SELECT revenant.try_acquire_xact('task') IS NOT NULL AS a, revenant.try_acquire_xact('tasks/x') IS NOT NULL AS b,
	revenant.try_acquire_xact('Task/x') IS NOT NULL AS c, revenant.try_acquire_xact(' plan/x') IS NOT NULL AS d;
COMMIT;
SET ROLE regress_admin;
SELECT revenant.try_acquire('task/usage');
SELECT revenant.try_acquire('plan/usage');
SET ROLE regress_user;
SELECT revenant.try_acquire('task/usage') AS task \gset
SELECT revenant.is_current('task/usage', :task);
SET ROLE regress_user_2;
SELECT revenant.fence('task/usage', :task);
SELECT revenant.release('task/usage', :task);
SET ROLE regress_user;
SELECT revenant.release('task/usage', :task);
RESET ROLE;
SELECT revenant.drop_task('usage');

/* ---- levels change, and go */

SELECT revenant.grant_usage('regress_user_2', 'reader');
SET ROLE regress_user_2;
SELECT count(*) FROM revenant.leases WHERE lease LIKE 'usage%';
SELECT revenant.try_acquire('usage');
RESET ROLE;
SELECT revenant.grant_usage('regress_user_2', 'admin');
SELECT revenant.grant_usage('regress_user_2', 'user');
SELECT has_function_privilege('regress_user_2', 'revenant.advance_tokens(bigint)', 'EXECUTE') AS advance,
	has_function_privilege('regress_user_2', 'revenant.fence(text, bigint)', 'EXECUTE') AS fence;
SELECT role, level FROM revenant.usage_grant ORDER BY role;
SELECT revenant.revoke_usage('regress_user');
SET ROLE regress_user;
SELECT revenant.try_acquire('usage');
SELECT count(*) FROM revenant.leases;
RESET ROLE;
-- Twice, and for somebody who never had it: no error, and still nothing.
SELECT revenant.revoke_usage('regress_user');
SELECT revenant.revoke_usage('regress_none');
SELECT revenant.revoke_usage('regress_reader');
SELECT revenant.revoke_usage('regress_user_2');
SELECT revenant.revoke_usage('regress_admin');
SELECT role, level FROM revenant.usage_grant ORDER BY role;
SELECT revenant.revoke_usage('regress_gone');
-- What a role that was dropped has left is found, and can be taken away by its name.
CREATE ROLE regress_gone;
SELECT revenant.grant_usage('regress_gone');
DROP OWNED BY regress_gone;
DROP ROLE regress_gone;
SELECT role, level FROM revenant.usage_grant ORDER BY role;
SELECT revenant.revoke_usage('regress_gone');
SELECT role, level FROM revenant.usage_grant ORDER BY role;
SELECT revenant.revoke_usage('regress_gone');
-- Nothing of them is left that would keep a role from being dropped.
DROP ROLE regress_none, regress_reader, regress_user_member, regress_user, regress_user_2, regress_admin;
SELECT count(*) FROM revenant.leases WHERE lease LIKE 'usage%';
