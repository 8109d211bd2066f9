-- A message is sent by who may, to what exists, and belongs to its sender's members; what was asked wrongly is refused, and nothing of it stays.
CREATE ROLE regress_mail_a LOGIN;
CREATE ROLE regress_mail_b LOGIN;
CREATE ROLE regress_mail_member LOGIN IN ROLE regress_mail_a;
CREATE ROLE regress_mail_reader LOGIN;
CREATE ROLE regress_mail_admin LOGIN;
CREATE ROLE regress_mail_none LOGIN;
SELECT revenant.grant_usage(r, 'user') FROM unnest(ARRAY['regress_mail_a', 'regress_mail_b', 'regress_mail_member']) AS r;
SELECT revenant.grant_usage('regress_mail_reader', 'reader'), revenant.grant_usage('regress_mail_admin', 'admin');
CREATE SCHEMA regress_mail;
CREATE FUNCTION regress_mail.handler(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql
AS $$ SELECT ROW(NULL, message, NULL)::revenant.reply $$;
SELECT revenant.create_snapshot_table('regress_mail.entity');
SELECT revenant.create_entity_type('regress mail', 'regress_mail.entity', 'regress_mail.handler');

-- The first number is not known.
CREATE TABLE regress_mail.number (what text PRIMARY KEY, n bigint);
GRANT ALL ON SCHEMA regress_mail TO PUBLIC;
GRANT ALL ON regress_mail.number TO PUBLIC;
CREATE FUNCTION regress_mail.n(what text) RETURNS bigint LANGUAGE sql STABLE AS $$ SELECT n FROM regress_mail.number AS m WHERE m.what = n.what $$;

/* ---- bad input */

\set VERBOSITY sqlstate
SELECT revenant.send(NULL, 'x', '{}');
SELECT revenant.send('regress mail', NULL, '{}');
SELECT revenant.send('regress mail', 'x', NULL);
SELECT revenant.send('', 'x', '{}');
SELECT revenant.send('regress mail', '', '{}');
SELECT revenant.send('regress mail', repeat('x', 1025), '{}');
SELECT revenant.send('no such type', 'x', '{}');
SELECT revenant.send_after(NULL, 'x', '{}', '1 s');
SELECT revenant.send_after('regress mail', 'x', '{}', NULL);
SELECT revenant.send_after('regress mail', 'x', '{}', '-1 us');
SELECT revenant.send_after('regress mail', 'x', '{}', '11 years');
SELECT revenant.send_after('no such type', 'x', '{}', '1 s');
SELECT revenant.cancel_timer(NULL);
SELECT revenant.resend_message(NULL);
SELECT revenant.discard_message(NULL);
SELECT revenant.cancel_timer(0);
SELECT revenant.resend_message(0);
SELECT revenant.discard_message(0);
BEGIN READ ONLY; SELECT revenant.send('regress mail', 'x', '{}'); ROLLBACK;
BEGIN READ ONLY; SELECT revenant.send_after('regress mail', 'x', '{}', '1 s'); ROLLBACK;
BEGIN READ ONLY; SELECT revenant.cancel_timer(1); ROLLBACK;
BEGIN READ ONLY; SELECT revenant.resend_message(1); ROLLBACK;
BEGIN READ ONLY; SELECT revenant.discard_message(1); ROLLBACK;
\set VERBOSITY default
SELECT revenant.send_after('regress mail', 'x', '{}', '-1 day');
SELECT revenant.discard_message(0);
SELECT count(*) FROM revenant.messages;

/* ---- in a transaction */

BEGIN;
SELECT revenant.send('regress mail', 'x', '{"a": 1}') > 0 AS sent;
SAVEPOINT s;
SELECT revenant.send_after('regress mail', 'y', '{}', '1 h') > 0 AS sent;
ROLLBACK TO s;
SELECT type, id, kind, message, sender = current_user AS mine, due_at, state, attempts, sqlstate, error, sent_at <= clock_timestamp() AS sent FROM revenant.messages;
SELECT revenant.cancel_timer(message_id) AS a_send_is_no_timer FROM revenant.messages;
SELECT revenant.discard_message(message_id) FROM revenant.messages;
SELECT count(*) FROM revenant.messages;
SELECT revenant.send('regress mail', 'x', '{}') > 0 AS sent;
ROLLBACK;
SELECT count(*) FROM revenant.messages;

-- The same request is one message, before its commit and after; another one by its name is refused.
BEGIN;
INSERT INTO regress_mail.number SELECT 'once', revenant.send('regress mail', 'once', '{"b": 1, "a": 2}', '00000000-0000-0000-0000-0000000000aa');
SELECT revenant.send('regress mail', 'once', '{"a": 2, "b": 1}', '00000000-0000-0000-0000-0000000000aa') = regress_mail.n('once') AS the_same;
SELECT count(*) FROM revenant.messages;
COMMIT;
SELECT revenant.send('regress mail', 'once', '{"a": 2, "b": 1}', '00000000-0000-0000-0000-0000000000aa') = regress_mail.n('once') AS the_same;
SELECT revenant.send('regress mail', 'once', '{}', '00000000-0000-0000-0000-0000000000aa');
DO $$ BEGIN WHILE EXISTS (SELECT FROM revenant.messages) LOOP PERFORM pg_sleep(0.01); END LOOP; END $$;

/* ---- who sees it, and who may do what with it */

SET ROLE regress_mail_a;
INSERT INTO regress_mail.number SELECT 'a', revenant.send_after('regress mail', 'x', '{"secret": true}', '1 h');
SET ROLE regress_mail_b;
INSERT INTO regress_mail.number SELECT 'b', revenant.send_after('regress mail', 'x', '{}', '1 day');
RESET ROLE;
SELECT what, sender, kind, state, due_at - sent_at BETWEEN '59 min' AND '25 h' AS later FROM revenant.messages JOIN regress_mail.number ON n = message_id ORDER BY 1;
SET ROLE regress_mail_a;
SELECT what FROM revenant.messages JOIN regress_mail.number ON n = message_id ORDER BY 1;
SET ROLE regress_mail_member;
SELECT what FROM revenant.messages JOIN regress_mail.number ON n = message_id ORDER BY 1;
SET ROLE regress_mail_b;
SELECT what FROM revenant.messages JOIN regress_mail.number ON n = message_id ORDER BY 1;
-- Nor by a function that tells what it is given.
CREATE FUNCTION regress_mail.tell(message jsonb) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS $$ BEGIN RAISE NOTICE 'saw %', message; RETURN true; END $$;
SELECT count(*) FROM revenant.messages WHERE regress_mail.tell(message);
SET ROLE regress_mail_reader;
SELECT count(*) FROM revenant.messages WHERE message_id IN (SELECT n FROM regress_mail.number);
SET ROLE regress_mail_admin;
SELECT what FROM revenant.messages JOIN regress_mail.number ON n = message_id ORDER BY 1;
\set VERBOSITY sqlstate
SET ROLE regress_mail_none;
SELECT revenant.send('regress mail', 'x', '{}');
SELECT count(*) FROM revenant.messages;
SET ROLE regress_mail_reader;
SELECT revenant.send('regress mail', 'x', '{}');
SET ROLE regress_mail_b;
SELECT count(*) FROM revenant.message;
SELECT revenant.cancel_timer(regress_mail.n('a'));
SELECT revenant.discard_message(regress_mail.n('a'));
SELECT revenant.resend_message(regress_mail.n('a'));
-- Nothing was set aside.
SELECT revenant.resend_message(regress_mail.n('b'));
\set VERBOSITY default
SELECT revenant.cancel_timer(regress_mail.n('b')), revenant.cancel_timer(regress_mail.n('b')) AS again;

-- One that was set aside can be sent again, in its old place; its members may.
RESET ROLE;
UPDATE revenant.message SET lane = 3, deliver_at = NULL, attempts = 6, sqlstate = '22012', error = 'division by zero', set_aside_at = now()
WHERE message_id = regress_mail.n('a');
SET ROLE regress_mail_member;
SELECT kind, state, attempts, sqlstate, error, due_at IS NOT NULL AS due FROM revenant.messages WHERE message_id = regress_mail.n('a');
SELECT revenant.resend_message(regress_mail.n('a'));
SELECT kind, state, attempts, sqlstate, error, due_at IS NOT NULL AS due FROM revenant.messages WHERE message_id = regress_mail.n('a');
RESET ROLE;
UPDATE revenant.message SET lane = 3, deliver_at = NULL, set_aside_at = now() WHERE message_id = regress_mail.n('a');
SET ROLE regress_mail_admin;
SELECT revenant.cancel_timer(regress_mail.n('a')) AS also_one_that_was_set_aside;
RESET ROLE;
SELECT count(*) FROM revenant.messages WHERE message_id IN (SELECT n FROM regress_mail.number WHERE what <> 'once');

-- What came from another database is held.
INSERT INTO regress_mail.number SELECT 'held', revenant.send_after('regress mail', 'x', '{}', '1 h');
UPDATE revenant.message SET database_oid = database_oid + 1 WHERE message_id = regress_mail.n('held');
SELECT state FROM revenant.messages WHERE message_id = regress_mail.n('held');
SELECT revenant.adopt();
SELECT state FROM revenant.messages WHERE message_id = regress_mail.n('held');
SELECT revenant.discard_message(regress_mail.n('held'));

/* ---- the end */

SELECT id, version, state FROM revenant.load('regress_mail.entity', 'once');
SELECT revenant.drop_entity_type('regress mail');
DROP SCHEMA regress_mail CASCADE;
SELECT revenant.revoke_usage(r) FROM unnest(ARRAY['regress_mail_a', 'regress_mail_b', 'regress_mail_member', 'regress_mail_reader', 'regress_mail_admin']) AS r;
DROP ROLE regress_mail_a, regress_mail_b, regress_mail_member, regress_mail_reader, regress_mail_admin, regress_mail_none;
