-- Nobody but their owner writes to the extension's own tables, whatever was granted: what they say is run as the roles that they name.
\set VERBOSITY sqlstate

CREATE ROLE regress_writer;
CREATE ROLE regress_granted;
CREATE ROLE regress_owner SUPERUSER;
GRANT pg_write_all_data, pg_read_all_data TO regress_writer;
GRANT USAGE ON SCHEMA revenant TO regress_granted;
GRANT ALL ON ALL TABLES IN SCHEMA revenant TO regress_granted;
CREATE TABLE security_own (role text, relation text, verb text, answer text);
GRANT ALL ON security_own TO PUBLIC;

-- The rights are there: it is not for lack of them that the writes below fail.
SELECT r.rolname, c.relkind, bool_and(has_table_privilege(r.oid, c.oid, 'INSERT') AND has_table_privilege(r.oid, c.oid, 'UPDATE') AND has_table_privilege(r.oid, c.oid, 'DELETE')) AS may
FROM pg_roles AS r, pg_class AS c
WHERE r.rolname IN ('regress_writer', 'regress_granted') AND c.relnamespace = 'revenant'::regnamespace AND c.relkind IN ('r', 'v')
GROUP BY r.rolname, c.relkind ORDER BY 1, 2;

-- Tries every verb on every table and view, and writes down what was answered. What changes no row counts as much.
CREATE FUNCTION security_try() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	one record;
	first_column text;
	verb text;
	answer text;
BEGIN
	FOR one IN
		SELECT c.oid, c.relname FROM pg_class AS c WHERE c.relnamespace = 'revenant'::regnamespace AND c.relkind IN ('r', 'v') ORDER BY c.relname
	LOOP
		SELECT a.attname INTO first_column FROM pg_attribute AS a WHERE a.attrelid = one.oid AND a.attnum = 1;
		FOREACH verb IN ARRAY ARRAY[
			format('INSERT INTO revenant.%I SELECT * FROM revenant.%1$I LIMIT 0', one.relname),
			format('UPDATE revenant.%I SET %I = %2$I WHERE false', one.relname, first_column),
			format('DELETE FROM revenant.%I WHERE false', one.relname),
			format('MERGE INTO revenant.%I AS t USING (SELECT 1) AS s ON false WHEN MATCHED THEN DELETE', one.relname),
			format('WITH gone AS (DELETE FROM revenant.%I WHERE false RETURNING *) SELECT count(*) FROM gone', one.relname),
			format('TRUNCATE revenant.%I', one.relname)]
		LOOP
			BEGIN
				EXECUTE verb;
				answer := 'done';
			EXCEPTION WHEN OTHERS THEN
				answer := SQLSTATE;
			END;
			INSERT INTO security_own VALUES (current_user, one.relname, split_part(verb, ' ', 1), answer);
		END LOOP;
	END LOOP;
END $$;
SET ROLE regress_writer;
SELECT security_try();
SET ROLE regress_granted;
SELECT security_try();
RESET ROLE;
-- Of the tables all of it is 42501; a view that nobody can write to says so in its own way.
SELECT o.role, o.verb, bool_and(o.answer = '42501') AS refused, string_agg(o.relation || ' ' || o.answer, ', ' ORDER BY o.relation) FILTER (WHERE o.answer <> '42501') AS otherwise
FROM security_own AS o JOIN pg_class AS c ON c.relname = o.relation AND c.relnamespace = 'revenant'::regnamespace AND c.relkind = 'r'
GROUP BY o.role, o.verb ORDER BY o.role, o.verb;
SELECT o.role, o.relation, o.verb FROM security_own AS o WHERE o.answer = 'done';
-- This one view leads to its table.
SELECT o.role, o.verb, o.answer FROM security_own AS o WHERE o.relation = 'task_runs' AND o.verb IN ('INSERT', 'UPDATE', 'DELETE') ORDER BY o.role, o.verb;

-- COPY from a client, which is how a dump comes.
SET ROLE regress_writer;
\copy revenant.usage_grant from '/dev/null'
RESET ROLE;
-- Through somebody else's view, or function, it is that one's right that counts.
SET ROLE regress_writer;
CREATE TEMP VIEW security_view AS SELECT role, level FROM revenant.usage_grant;
INSERT INTO security_view VALUES ('regress_writer', 'admin');
RESET ROLE;
CREATE VIEW security_lent AS SELECT role, level FROM revenant.usage_grant;
GRANT ALL ON security_lent TO regress_writer;
CREATE FUNCTION security_lent() RETURNS void LANGUAGE sql SECURITY DEFINER AS $$ INSERT INTO revenant.usage_grant VALUES ('nobody at all', 'reader') $$;
SET ROLE regress_writer;
INSERT INTO security_lent VALUES ('nobody', 'reader');
SELECT security_lent();
RESET ROLE;
DELETE FROM revenant.usage_grant WHERE role LIKE 'nobody%' RETURNING role;
-- Reading is what was granted.
SET ROLE regress_granted;
SELECT count(*) FROM revenant.usage_grant;
SELECT count(*) FROM (SELECT FROM revenant.task FOR UPDATE) AS locked;
RESET ROLE;
-- An owner writes, as pg_restore does; and tables in other schemas are nobody's business, whatever they are called.
SET ROLE regress_owner;
BEGIN;
INSERT INTO revenant.usage_grant VALUES ('regress_owner', 'admin');
UPDATE revenant.usage_grant SET level = 'user' WHERE role = 'regress_owner';
DELETE FROM revenant.usage_grant WHERE role = 'regress_owner';
TRUNCATE revenant.usage_grant;
ROLLBACK;
RESET ROLE;
CREATE TABLE usage_grant (role text);
GRANT ALL ON usage_grant TO regress_granted;
SET ROLE regress_granted;
INSERT INTO usage_grant VALUES ('any');
RESET ROLE;

REVOKE ALL ON ALL TABLES IN SCHEMA revenant FROM regress_granted;
REVOKE USAGE ON SCHEMA revenant FROM regress_granted;
DROP VIEW security_view, security_lent;
DROP FUNCTION security_lent(), security_try();
DROP TABLE security_own, usage_grant;
DROP ROLE regress_writer, regress_granted, regress_owner;
