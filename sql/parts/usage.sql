-- Who may use what. Nothing is granted to PUBLIC; grant_usage() grants by level and remembers it.
CREATE TABLE revenant._usage_object (
	object text COLLATE "C" NOT NULL,	-- as GRANT names it
	privilege text COLLATE "C" NOT NULL,
	level text COLLATE "C" NOT NULL,
	CONSTRAINT _usage_object_pkey PRIMARY KEY (object, level)
);
REVOKE ALL ON TABLE revenant._usage_object FROM PUBLIC;

INSERT INTO revenant._usage_object (object, privilege, level) VALUES
	('SCHEMA revenant', 'USAGE', 'reader'),
	('TABLE revenant.leases', 'SELECT', 'reader'),
	('FUNCTION revenant._leases()', 'EXECUTE', 'reader'),
	('FUNCTION revenant.events(bigint)', 'EXECUTE', 'reader'),
	('FUNCTION revenant.explain_lease(text)', 'EXECUTE', 'reader'),
	('FUNCTION revenant.leader(text)', 'EXECUTE', 'reader'),
	('TABLE revenant.tasks', 'SELECT', 'reader'),
	('TABLE revenant.task_runs', 'SELECT', 'reader'),
	('FUNCTION revenant._task_status()', 'EXECUTE', 'reader'),
	('FUNCTION revenant._supervision()', 'EXECUTE', 'reader'),
	('TABLE revenant.stat_database', 'SELECT', 'reader'),
	('TABLE revenant.stat_leases', 'SELECT', 'reader'),
	('TABLE revenant.stat_tasks', 'SELECT', 'reader'),
	('TABLE revenant.stat_entities', 'SELECT', 'reader'),
	('FUNCTION revenant._stat_entities()', 'EXECUTE', 'reader'),
	('FUNCTION revenant._stat(boolean)', 'EXECUTE', 'reader'),
	('FUNCTION revenant._stat_task(text, timestamp with time zone)', 'EXECUTE', 'reader'),
	('FUNCTION revenant.load(regclass, text, boolean)', 'EXECUTE', 'reader'),
	('FUNCTION revenant.load_version(regclass, text, bigint)', 'EXECUTE', 'reader'),
	('FUNCTION revenant.load_as_of(regclass, text, timestamp with time zone)', 'EXECUTE', 'reader'),
	('FUNCTION revenant.history(regclass, text)', 'EXECUTE', 'reader'),
	('FUNCTION revenant.read_entity(text, text)', 'EXECUTE', 'reader'),
	('TABLE revenant.loaded_entities', 'SELECT', 'reader'),
	('FUNCTION revenant._loaded_entities()', 'EXECUTE', 'reader'),
	('TABLE revenant.messages', 'SELECT', 'reader'),
	('FUNCTION revenant._may_see_message(text, bigint, bigint, bigint)', 'EXECUTE', 'reader'),
	('FUNCTION revenant._is_native(bigint, bigint)', 'EXECUTE', 'reader'),
	('TABLE revenant.plans', 'SELECT', 'reader'),
	('TABLE revenant.splits', 'SELECT', 'reader'),
	('TABLE revenant.members', 'SELECT', 'reader'),
	('TABLE revenant.stat_plans', 'SELECT', 'reader'),
	('FUNCTION revenant._plan_live(text)', 'EXECUTE', 'reader'),
	('FUNCTION revenant._split_live(bigint, bigint, bigint)', 'EXECUTE', 'reader'),
	('FUNCTION revenant._members()', 'EXECUTE', 'reader'),
	('FUNCTION revenant._stat_plans()', 'EXECUTE', 'reader'),
	('FUNCTION revenant.plan_progress(text)', 'EXECUTE', 'reader'),
	-- what pg_dump reads
	('TABLE revenant.task', 'SELECT', 'reader'),
	('TABLE revenant.entity_type', 'SELECT', 'reader'),
	('TABLE revenant.message', 'SELECT', 'reader'),
	('TABLE revenant.plan', 'SELECT', 'reader'),
	('TABLE revenant.split', 'SELECT', 'reader'),
	('TABLE revenant.split_state', 'SELECT', 'reader'),
	('TABLE revenant.usage_grant', 'SELECT', 'reader'),
	('SEQUENCE revenant._token_dump', 'SELECT', 'reader'),

	('SCHEMA revenant', 'USAGE', 'user'),
	('TABLE revenant.leases', 'SELECT', 'user'),
	('FUNCTION revenant._leases()', 'EXECUTE', 'user'),
	('FUNCTION revenant.events(bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.try_acquire(text, interval, text, jsonb, boolean, boolean, interval, uuid)', 'EXECUTE', 'user'),
	('FUNCTION revenant.acquire(text, interval, text, jsonb, boolean, boolean, interval, uuid, interval)', 'EXECUTE', 'user'),
	('FUNCTION revenant.try_acquire_xact(text, text, jsonb, boolean)', 'EXECUTE', 'user'),
	('FUNCTION revenant.acquire_xact(text, text, jsonb, boolean, interval)', 'EXECUTE', 'user'),
	('FUNCTION revenant.try_acquire_all(text[], interval, text, jsonb, boolean, boolean, interval, uuid)', 'EXECUTE', 'user'),
	('FUNCTION revenant.acquire_all(text[], interval, text, jsonb, boolean, boolean, interval, uuid, interval)', 'EXECUTE', 'user'),
	('FUNCTION revenant.try_acquire_all_xact(text[], text, jsonb, boolean)', 'EXECUTE', 'user'),
	('FUNCTION revenant.acquire_all_xact(text[], text, jsonb, boolean, interval)', 'EXECUTE', 'user'),
	('FUNCTION revenant.renew_all(text[], bigint, interval)', 'EXECUTE', 'user'),
	('FUNCTION revenant.release_all(text[], bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.renew(text, bigint, interval)', 'EXECUTE', 'user'),
	('FUNCTION revenant.release(text, bigint, interval)', 'EXECUTE', 'user'),
	('FUNCTION revenant.is_current(text, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.fence(text, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.held_token(text)', 'EXECUTE', 'user'),
	('FUNCTION revenant.explain_lease(text)', 'EXECUTE', 'user'),
	('PROCEDURE revenant.await_lease(text, bigint, interval, text, jsonb, boolean, boolean, interval, uuid, interval)', 'EXECUTE', 'user'),
	('PROCEDURE revenant.await_change(text, bigint, interval)', 'EXECUTE', 'user'),
	('FUNCTION revenant.claim(text, text, interval, uuid)', 'EXECUTE', 'user'),
	('FUNCTION revenant.refresh(text, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.abdicate(text, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.leader(text)', 'EXECUTE', 'user'),
	('FUNCTION revenant._guard()', 'EXECUTE', 'user'),
	('FUNCTION revenant.guard_table(regclass, text, boolean)', 'EXECUTE', 'user'),
	('FUNCTION revenant.unguard_table(regclass)', 'EXECUTE', 'user'),
	('FUNCTION revenant.create_snapshot_table(text, integer)', 'EXECUTE', 'user'),
	('FUNCTION revenant._keep_history()', 'EXECUTE', 'user'),
	('FUNCTION revenant.load(regclass, text, boolean)', 'EXECUTE', 'user'),
	('FUNCTION revenant.save(regclass, text, bigint, jsonb, integer)', 'EXECUTE', 'user'),
	('FUNCTION revenant.remove(regclass, text, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.load_version(regclass, text, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.load_as_of(regclass, text, timestamp with time zone)', 'EXECUTE', 'user'),
	('FUNCTION revenant.history(regclass, text)', 'EXECUTE', 'user'),
	('FUNCTION revenant.purge_deleted(regclass, timestamp with time zone)', 'EXECUTE', 'user'),
	('FUNCTION revenant.call(text, text, jsonb, text, uuid)', 'EXECUTE', 'user'),
	('FUNCTION revenant.read_entity(text, text)', 'EXECUTE', 'user'),
	('FUNCTION revenant.stop_entity(text, text, text)', 'EXECUTE', 'user'),
	('FUNCTION revenant.flush_entities(text, text)', 'EXECUTE', 'user'),
	('TABLE revenant.loaded_entities', 'SELECT', 'user'),
	('FUNCTION revenant._loaded_entities()', 'EXECUTE', 'user'),
	('FUNCTION revenant.delete_entity(text, text)', 'EXECUTE', 'user'),
	('FUNCTION revenant.current_message()', 'EXECUTE', 'user'),
	('FUNCTION revenant.receipt()', 'EXECUTE', 'user'),
	('FUNCTION revenant.receipt_status(xid8, pg_lsn, integer)', 'EXECUTE', 'user'),
	('FUNCTION revenant.upgrade_all(text, integer)', 'EXECUTE', 'user'),
	('FUNCTION revenant.current_task()', 'EXECUTE', 'user'),
	('FUNCTION revenant.preview_schedule(text, text, timestamp with time zone, integer)', 'EXECUTE', 'user'),
	('FUNCTION revenant.current_token()', 'EXECUTE', 'user'),
	('FUNCTION revenant.send(text, text, jsonb, uuid)', 'EXECUTE', 'user'),
	('FUNCTION revenant.send_after(text, text, jsonb, interval)', 'EXECUTE', 'user'),
	('FUNCTION revenant.cancel_timer(bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.resend_message(bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.discard_message(bigint)', 'EXECUTE', 'user'),
	('TABLE revenant.messages', 'SELECT', 'user'),
	('FUNCTION revenant._may_see_message(text, bigint, bigint, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant._is_native(bigint, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.lead_plan(text, text, interval, text, uuid)', 'EXECUTE', 'user'),
	('FUNCTION revenant.planner_state(text, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.publish(text, bigint, jsonb, jsonb, boolean)', 'EXECUTE', 'user'),
	('FUNCTION revenant.resign_plan(text, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant._run_planner(text, boolean)', 'EXECUTE', 'user'),
	('FUNCTION revenant.join_plan(text, text, integer, interval, text, uuid)', 'EXECUTE', 'user'),
	('FUNCTION revenant.poll_plan(text, bigint, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.drained(text, text, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.decline_revoke(text, text, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.leave_plan(text, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.claim_splits(text, text, integer, interval, text, uuid)', 'EXECUTE', 'user'),
	('FUNCTION revenant.commit_split(text, text, bigint, jsonb, numeric, boolean)', 'EXECUTE', 'user'),
	('FUNCTION revenant.commit_splits(text, jsonb)', 'EXECUTE', 'user'),
	('FUNCTION revenant.fence_split(text, text, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.renew_splits(text, text[], bigint[], interval)', 'EXECUTE', 'user'),
	('FUNCTION revenant.fail_split(text, text, bigint, text)', 'EXECUTE', 'user'),
	('FUNCTION revenant.release_split(text, text, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant.requeue_split(text, text)', 'EXECUTE', 'user'),
	('PROCEDURE revenant.await_splits(text, bigint, interval)', 'EXECUTE', 'user'),
	('TABLE revenant.plans', 'SELECT', 'user'),
	('TABLE revenant.splits', 'SELECT', 'user'),
	('TABLE revenant.members', 'SELECT', 'user'),
	('TABLE revenant.stat_plans', 'SELECT', 'user'),
	('FUNCTION revenant._plan_live(text)', 'EXECUTE', 'user'),
	('FUNCTION revenant._split_live(bigint, bigint, bigint)', 'EXECUTE', 'user'),
	('FUNCTION revenant._members()', 'EXECUTE', 'user'),
	('FUNCTION revenant._stat_plans()', 'EXECUTE', 'user'),
	('FUNCTION revenant.plan_progress(text)', 'EXECUTE', 'user'),

	('TYPE revenant.claim_result', 'USAGE', 'user'),

	('FUNCTION revenant.advance_tokens(bigint)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.revoke(text, text, boolean)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.create_task(text, text, text, text, text, text, text, integer, interval, interval, interval, interval, text, interval, text, jsonb, boolean, jsonb)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.alter_task(text, jsonb)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.drop_task(text)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.enable_task(text)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.disable_task(text)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.restart_task(text)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.run_task(text)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.unquarantine_task(text)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.adopt()', 'EXECUTE', 'admin'),
	('FUNCTION revenant.create_entity_type(text, regclass, text, jsonb, text, integer, text, text, interval, interval, text)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.alter_entity_type(text, jsonb)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.drop_entity_type(text)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.create_plan(text, text, text, interval, interval, integer, integer, interval, interval, jsonb)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.alter_plan(text, jsonb)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.drop_plan(text)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.reset_plan(text)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.purge_plan(text, timestamp with time zone)', 'EXECUTE', 'admin'),
	('FUNCTION revenant.stat_reset()', 'EXECUTE', 'admin');

CREATE TABLE revenant.usage_grant (
	role text COLLATE "C" NOT NULL,
	level text COLLATE "C" NOT NULL,
	CONSTRAINT usage_grant_pkey PRIMARY KEY (role)
);
COMMENT ON TABLE revenant.usage_grant IS 'who was given which level by revenant.grant_usage()';
REVOKE ALL ON TABLE revenant.usage_grant FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('revenant.usage_grant', '');

-- Grants or revokes what a level has. 'admin' has what 'user' and 'reader' have, too.
CREATE FUNCTION revenant._usage_apply(role text, level text, verb text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	item record;
BEGIN
	FOR item IN
		SELECT DISTINCT o.object, o.privilege
		FROM revenant._usage_object AS o
		WHERE o.level = _usage_apply.level OR _usage_apply.level = 'admin'
		ORDER BY o.object
	LOOP
		IF verb = 'GRANT' THEN
			EXECUTE pg_catalog.format('GRANT %s ON %s TO %I', item.privilege, item.object, role);
		ELSE
			EXECUTE pg_catalog.format('REVOKE %s ON %s FROM %I', item.privilege, item.object, role);
		END IF;
	END LOOP;
END
$$;
REVOKE ALL ON FUNCTION revenant._usage_apply(text, text, text) FROM PUBLIC;

-- Raises unless the caller owns the extension and the role exists.
CREATE FUNCTION revenant._usage_check(role text) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF role IS NULL THEN
		RAISE EXCEPTION 'role must not be null' USING ERRCODE = '22004';
	END IF;
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_extension AS e
				   WHERE e.extname = 'revenant' AND pg_catalog.pg_has_role(e.extowner, 'USAGE')) THEN
		RAISE EXCEPTION 'permission denied: only the owner of extension revenant can grant its use'
			USING ERRCODE = '42501';
	END IF;
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = role) THEN
		RAISE EXCEPTION 'role "%" does not exist', role
			USING ERRCODE = '42704',
				  HINT = CASE WHEN role = 'public' THEN 'Nothing of revenant is granted to PUBLIC; name a role.' ELSE '' END;
	END IF;
END
$$;
REVOKE ALL ON FUNCTION revenant._usage_check(text) FROM PUBLIC;

CREATE FUNCTION revenant.grant_usage(role text, level text DEFAULT 'user') RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	before text;
BEGIN
	PERFORM revenant._usage_check(role);
	IF level IS NULL THEN
		RAISE EXCEPTION 'level must not be null' USING ERRCODE = '22004';
	END IF;
	IF level NOT IN ('reader', 'user', 'admin') THEN
		RAISE EXCEPTION 'level "%" is not one of reader, user, admin', level USING ERRCODE = '22023';
	END IF;
	SELECT g.level INTO before FROM revenant.usage_grant AS g WHERE g.role = grant_usage.role;
	IF before IS NOT NULL THEN
		PERFORM revenant._usage_apply(role, before, 'REVOKE');
	END IF;
	PERFORM revenant._usage_apply(role, level, 'GRANT');
	INSERT INTO revenant.usage_grant AS g (role, level) VALUES (grant_usage.role, grant_usage.level)
	ON CONFLICT ON CONSTRAINT usage_grant_pkey DO UPDATE SET level = EXCLUDED.level;
END
$$;
COMMENT ON FUNCTION revenant.grant_usage(text, text) IS
'lets a role use the extension as reader (views, pg_dump), user (leases, entities, work on plans) or admin (tasks, types of entities, plans, tokens); only for the extension''s owner';
REVOKE ALL ON FUNCTION revenant.grant_usage(text, text) FROM PUBLIC;

CREATE FUNCTION revenant.revoke_usage(role text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	-- what is left of a role that was dropped: the next one of its name is not to have it
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = role) THEN
		DELETE FROM revenant.usage_grant AS g WHERE g.role = revoke_usage.role;
		IF FOUND THEN
			RETURN;
		END IF;
	END IF;
	PERFORM revenant._usage_check(role);
	PERFORM revenant._usage_apply(role, 'admin', 'REVOKE');
	DELETE FROM revenant.usage_grant AS g WHERE g.role = revoke_usage.role;
END
$$;
COMMENT ON FUNCTION revenant.revoke_usage(text) IS 'takes back what grant_usage() gave a role';
REVOKE ALL ON FUNCTION revenant.revoke_usage(text) FROM PUBLIC;
