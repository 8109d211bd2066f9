-- No task as somebody else: not by its role, its settings, its lease, its name, or by a change of what is there; and nobody stops one that is not his.

CREATE ROLE regress_alice LOGIN;
CREATE ROLE regress_boss LOGIN SUPERUSER;
CREATE ROLE regress_admin LOGIN;
CREATE ROLE regress_kid LOGIN NOINHERIT IN ROLE regress_alice;
CREATE ROLE regress_user LOGIN;
SELECT revenant.grant_usage('regress_admin', 'admin'), revenant.grant_usage('regress_kid', 'admin'), revenant.grant_usage('regress_user'), revenant.grant_usage('regress_alice', 'reader');
CREATE FUNCTION st_try(call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	message text;
BEGIN
	EXECUTE 'SELECT ' || call;
	RETURN 'done';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS message = MESSAGE_TEXT;
	RETURN SQLSTATE || ' ' || message;
END $$;
SELECT revenant.create_task('boss''s', 'SELECT 1', run_as => 'regress_boss', enabled => false),
	revenant.create_task('alice''s', 'SELECT 1', run_as => 'regress_alice', enabled => false),
	revenant.create_task('admin''s', 'SELECT 1', run_as => 'regress_admin', enabled => false);

/* ---- an admin who is no member of the role; all functions that name a task, so that none is forgotten */

SET ROLE regress_admin;
SELECT st_try(call) AS answer, call FROM unnest(ARRAY[
	$$revenant.create_task('t', 'SELECT 1', run_as => 'regress_alice')$$,
	$$revenant.create_task('t', 'SELECT 1', run_as => 'regress_boss')$$,
	$$revenant.create_task('t', 'SELECT 1', run_as => 'pg_write_all_data')$$,
	$$revenant.create_task('t', 'SELECT 1', run_as => 'public')$$,
	$$revenant.create_task('t', 'SELECT 1', run_as => 'none')$$,
	$$revenant.create_task('t', 'SELECT 1', run_as => 'session_user')$$,
	$$revenant.create_task('t', 'SELECT 1', run_as => '"regress_admin"')$$,
	$$revenant.create_task('t', 'SELECT 1', run_as => 'regress_admin; ALTER ROLE regress_admin SUPERUSER')$$,
	$$revenant.alter_task('admin''s', '{"run_as": "regress_boss"}')$$,
	$$revenant.alter_task('boss''s', '{"run_as": "regress_admin"}')$$,
	$$revenant.alter_task('boss''s', '{"run_as": null}')$$,
	$$revenant.alter_task('boss''s', '{"command": "ALTER ROLE regress_admin SUPERUSER"}')$$,
	$$revenant.alter_task('boss''s', '{"follower_command": "SELECT 1"}')$$,
	$$revenant.alter_task('boss''s', '{"settings": {"search_path": "public"}}')$$,
	$$revenant.alter_task('boss''s', '{"metadata": {}}')$$,
	$$revenant.alter_task('boss''s', '{}')$$,
	$$revenant.alter_task('admin''s', '{"run_as_oid": 10}')$$,
	$$revenant.alter_task('admin''s', '{"system_identifier": 1}')$$,
	$$revenant.alter_task('admin''s', '{"name": "boss''s"}')$$]) AS call;
SELECT p.proname, st_try(format('revenant.%I(''boss''''s'')', p.proname)) AS answer
FROM pg_proc AS p WHERE p.pronamespace = 'revenant'::regnamespace AND pg_get_function_identity_arguments(p.oid) = 'name text' ORDER BY p.proname;
RESET ROLE;
SELECT t.name, t.run_as, t.command, t.settings, t.enabled, t.run_requests FROM revenant.task AS t ORDER BY t.name;

/* ---- members: one who inherits nothing could SET ROLE, and that is what counts; what she is no member of she is not by that */

SET ROLE regress_kid;
SELECT st_try(call) AS answer, call FROM unnest(ARRAY[
	$$revenant.create_task('kid''s', 'SELECT 1', run_as => 'regress_alice', enabled => false)$$,
	$$revenant.alter_task('alice''s', '{"command": "SELECT 2"}')$$,
	$$revenant.alter_task('alice''s', '{"run_as": "regress_admin"}')$$,
	$$revenant.drop_task('admin''s')$$,
	$$revenant.drop_task('kid''s')$$]) AS call;
-- A role's members may have it run as that role; the role itself has no say without the level.
SET ROLE regress_alice;
SELECT st_try($$revenant.alter_task('alice''s', '{"command": "SELECT 3"}')$$), st_try($$revenant.drop_task('alice''s')$$);
SET ROLE regress_user;
SELECT st_try($$revenant.create_task('u', 'SELECT 1')$$), st_try($$revenant.run_task('boss''s')$$), st_try('(SELECT count(*) FROM revenant.tasks)'), st_try('(SELECT count(*) FROM revenant.task)');

/* ---- settings are what the role could SET: not more for an admin who is a superuser by another name, and no other role */

SET ROLE regress_admin;
SELECT left(st_try(format('revenant.create_task(%L, ''SELECT 1'', settings => %L, enabled => false)', 's' || n, setting)), 5) AS answer, setting FROM unnest(ARRAY[
	'{"role": "regress_boss"}', '{"role": "regress_admin"}', '{"session_authorization": "regress_boss"}', '{"session_replication_role": "replica"}', '{"log_statement": "none"}', '{"session_preload_libraries": "x"}', '{"local_preload_libraries": "../x"}',
	'{"shared_preload_libraries": ""}', '{"is_superuser": "on"}', '{"superuser_reserved_connections": 0}', '{"revenant.fence_grace": 1}', '{"revenant.session_leases": false}',
	'{"zero_damaged_pages": true}', '{"allow_system_table_mods": true}', '{"lo_compat_privileges": true}', '{"dynamic_library_path": "/tmp"}', '{"config_file": "x"}',
	'{"no.such\"thing": 1}', '{"": 1}', '{"work_mem": {"a": 1}}', '{"work_mem": null}', '{"work_mem": ["64MB"]}', '[]', '"x"', '{"work_mem": "64MB", "search_path": "pg_temp, \"$user\"" }']) WITH ORDINALITY AS s (setting, n);
RESET ROLE;
-- Granted to the one, a setting is not granted to the other.
GRANT SET ON PARAMETER log_statement TO regress_kid;
SET ROLE regress_kid;
SELECT st_try($$revenant.create_task('granted', 'SELECT 1', settings => '{"log_statement": "none"}', enabled => false)$$),
	st_try($$revenant.create_task('lent', 'SELECT 1', run_as => 'regress_alice', settings => '{"log_statement": "none"}', enabled => false)$$);
RESET ROLE;
REVOKE SET ON PARAMETER log_statement FROM regress_kid;

/* ---- the lease of another task or plan */

SET ROLE regress_admin;
SELECT st_try(call) AS answer, call FROM unnest(ARRAY[
	$$revenant.create_task('x', 'SELECT 1', lease => 'task/boss''s')$$,
	$$revenant.create_task('x', 'SELECT 1', lease => 'task/not yet there')$$,
	$$revenant.create_task('x', 'SELECT 1', lease => 'task/')$$,
	$$revenant.create_task('x', 'SELECT 1', lease => 'plan/x')$$,
	$$revenant.alter_task('admin''s', '{"lease": "task/boss''s"}')$$,
	$$revenant.alter_task('admin''s', '{"lease": "plan/any"}')$$,
	$$revenant.create_task('plan/x', 'SELECT 1')$$,
	$$revenant.drop_task('plan/x')$$,
	$$revenant.try_acquire('task/boss''s')$$,
	$$revenant.try_acquire_all('{free, task/boss''s}')$$,
	$$revenant.try_acquire('task/boss''s', ttl => '1 s')$$,
	$$revenant.try_acquire_xact('task/boss''s', shared => true)$$,
	$$(revenant.claim('task/boss''s', 'me')).token$$,
	$$revenant.try_acquire('task/admin''s')$$]) AS call;
SELECT revenant.release('task/admin''s', revenant.held_token('task/admin''s'));
RESET ROLE;
SELECT lease FROM revenant.leases;

SELECT revenant.drop_task(name) FROM revenant.task;
DROP FUNCTION st_try;
SELECT revenant.revoke_usage(r) FROM unnest('{regress_admin, regress_kid, regress_user, regress_alice}'::text[]) AS r;
DROP ROLE regress_kid, regress_alice, regress_boss, regress_admin, regress_user;
