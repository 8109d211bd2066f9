-- No way of writing leads around a guard, and nothing that is no write is refused.
\set VERBOSITY sqlstate

CREATE TABLE guarded (id int PRIMARY KEY, v text);
INSERT INTO guarded VALUES (1, 'one'), (2, 'two');
CREATE VIEW guarded_view AS SELECT g.id, g.v FROM guarded AS g;
CREATE TABLE log (id int, v text);
CREATE TABLE refers (id int REFERENCES guarded);
CREATE FUNCTION add_definer() RETURNS void LANGUAGE sql SECURITY DEFINER AS $$ INSERT INTO guarded VALUES (99, 'definer') $$;
PREPARE insert_prepared AS INSERT INTO guarded VALUES (98, 'prepared');

SELECT revenant.acquire('guard', ttl => '1 h') AS token \gset
SELECT revenant.acquire('guard-other', ttl => '1 h') AS other \gset

/* ---- the guard itself */

-- It is there at once, and is gone if it is rolled back.
BEGIN;
SELECT revenant.guard_table('guarded', 'guard');
INSERT INTO guarded VALUES (3, 'three');
ROLLBACK;
BEGIN;
INSERT INTO guarded VALUES (3, 'three');
ROLLBACK;
SELECT revenant.guard_table('guarded', 'guard');
SELECT pg_get_triggerdef(t.oid), t.tgenabled FROM pg_trigger AS t
WHERE t.tgrelid = 'guarded'::regclass AND t.tgname LIKE 'revenant%' ORDER BY t.tgname;
-- One is enough.
SELECT revenant.guard_table('guarded', 'guard');
SELECT revenant.guard_table('guarded', 'guard-other', replicas => true);
-- What the error says.
\set VERBOSITY default
\set SHOW_CONTEXT never
INSERT INTO guarded VALUES (3, 'three');
\set VERBOSITY sqlstate

SELECT revenant._lease_check();
/* ---- every kind of write */

INSERT INTO guarded VALUES (3, 'three');
INSERT INTO guarded VALUES (1, 'one') ON CONFLICT DO NOTHING;
INSERT INTO guarded VALUES (1, 'one') ON CONFLICT (id) DO UPDATE SET v = 'more';
INSERT INTO guarded SELECT 4, 'four' WHERE false;
UPDATE guarded SET v = 'x';
UPDATE guarded SET v = 'x' WHERE false;
UPDATE guarded SET id = id;
DELETE FROM guarded;
DELETE FROM guarded WHERE id = 1000;
TRUNCATE guarded CASCADE;
TRUNCATE log, guarded CASCADE;
COPY guarded FROM PROGRAM 'echo 5';
COPY guarded (id) FROM PROGRAM 'true';
MERGE INTO guarded AS g USING (VALUES (1)) AS s (id) ON g.id = s.id WHEN MATCHED THEN UPDATE SET v = 'merged';
MERGE INTO guarded AS g USING (VALUES (7)) AS s (id) ON g.id = s.id WHEN NOT MATCHED THEN INSERT VALUES (7, 'merged');
MERGE INTO guarded AS g USING (VALUES (1)) AS s (id) ON g.id = s.id WHEN MATCHED THEN DELETE;
WITH w AS (INSERT INTO guarded VALUES (3, 'three') RETURNING id) SELECT id FROM w;
WITH w AS (DELETE FROM guarded) SELECT 1;
WITH w AS (SELECT 1 AS one) INSERT INTO log SELECT one, 'x' FROM w WHERE (SELECT count(*) FROM guarded) = 0;
INSERT INTO guarded_view VALUES (3, 'three');
UPDATE guarded_view SET v = 'x';
DELETE FROM guarded_view;
EXPLAIN (ANALYZE, COSTS OFF) INSERT INTO guarded VALUES (3, 'three');
EXECUTE insert_prepared;
SELECT add_definer();
DO $$ BEGIN INSERT INTO guarded VALUES (3, 'three'); END $$;
-- not even so
SET session_replication_role = replica;
INSERT INTO guarded VALUES (3, 'three');
RESET session_replication_role;

-- By a trigger, and by a rule.
CREATE FUNCTION also_guarded() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO guarded VALUES (NEW.id, NEW.v); RETURN NEW; END $$;
CREATE TRIGGER also_guarded AFTER INSERT ON log FOR EACH ROW EXECUTE FUNCTION also_guarded();
INSERT INTO log VALUES (10, 'ten');
DROP TRIGGER also_guarded ON log;
CREATE RULE also_guarded AS ON INSERT TO log DO ALSO INSERT INTO guarded VALUES (NEW.id, NEW.v);
INSERT INTO log VALUES (10, 'ten');
DROP RULE also_guarded ON log;

-- What only reads or locks is no write.
SELECT id FROM guarded WHERE id = 1 FOR UPDATE;
SELECT id FROM guarded WHERE id = 1 FOR KEY SHARE;
SELECT id FROM guarded_view WHERE id = 1 FOR NO KEY UPDATE;
INSERT INTO refers VALUES (1);
DELETE FROM refers;
INSERT INTO log SELECT id, v FROM guarded;
COPY guarded TO PROGRAM 'cat > /dev/null';
BEGIN;
LOCK guarded IN ACCESS EXCLUSIVE MODE;
ALTER TABLE guarded ADD COLUMN more int;
ROLLBACK;
SELECT id, v FROM guarded ORDER BY id;

SELECT revenant._lease_check();
/* ---- fenced, everything goes */

BEGIN;
SELECT revenant.fence('guard', :token);
INSERT INTO guarded VALUES (3, 'three') ON CONFLICT (id) DO UPDATE SET v = 'x';
UPDATE guarded SET v = 'x' WHERE id = 3;
DELETE FROM guarded WHERE id = 3;
COPY guarded FROM PROGRAM 'printf "5\\tfive\\n"';
MERGE INTO guarded AS g USING (VALUES (5)) AS s (id) ON g.id = s.id WHEN MATCHED THEN DELETE;
WITH w AS (INSERT INTO guarded VALUES (6, 'six') RETURNING id) SELECT id FROM w;
UPDATE guarded_view SET v = 'X' WHERE id = 6;
EXECUTE insert_prepared;
SELECT add_definer();
SAVEPOINT s;
TRUNCATE guarded CASCADE;
ROLLBACK TO s;
SELECT id, v FROM guarded ORDER BY id;
ROLLBACK;
-- Also where the transaction goes on to release it.
BEGIN;
SELECT revenant.acquire('guard-once', ttl => '1 h') AS once \gset
SELECT revenant.fence('guard-once', :once);
SELECT revenant.unguard_table('guarded');
SELECT revenant.guard_table('guarded', 'guard-once');
INSERT INTO guarded VALUES (3, 'three');
SELECT revenant.release('guard-once', :once);
ROLLBACK;

-- By another lease, or a wrong token: not. A ttl holder has to call fence(), a lease of the same session means nothing.
BEGIN;
SELECT revenant.fence('guard-other', :other);
INSERT INTO guarded VALUES (3, 'three');
ROLLBACK;
BEGIN;
SELECT revenant.fence('guard', :other);
INSERT INTO guarded VALUES (3, 'three');
ROLLBACK;
BEGIN;
SELECT revenant.is_current('guard', :token), revenant.renew('guard', :token) IS NOT NULL AS renewed;
INSERT INTO guarded VALUES (3, 'three');
ROLLBACK;
SELECT revenant.release('guard', :token);
BEGIN;
SELECT revenant.acquire('guard', ttl => '1 h') IS NOT NULL AS got;
INSERT INTO guarded VALUES (3, 'three');
ROLLBACK;

-- Holders by session or transaction are fenced by writing.
BEGIN;
SELECT revenant.acquire_xact('guard') IS NOT NULL AS got;
INSERT INTO guarded VALUES (3, 'three');
TRUNCATE guarded CASCADE;
ROLLBACK;
INSERT INTO guarded VALUES (3, 'three');
BEGIN;
SAVEPOINT s;
SELECT revenant.acquire_xact('guard') IS NOT NULL AS got;
INSERT INTO guarded VALUES (3, 'three');
ROLLBACK TO s;
INSERT INTO guarded VALUES (3, 'three');
ROLLBACK;
SELECT revenant.acquire('guard') AS session \gset
BEGIN;
INSERT INTO guarded VALUES (3, 'three');
SELECT count(*) AS fenced FROM pg_locks WHERE locktype = 'userlock' AND pid = pg_backend_pid() AND mode = 'RowExclusiveLock';
-- A release that is not committed does not let others in, so what was fenced stays so; what was not, is not.
SELECT revenant.release('guard', :session);
INSERT INTO guarded VALUES (4, 'four');
ROLLBACK;
BEGIN;
SELECT revenant.release('guard', :session);
INSERT INTO guarded VALUES (4, 'four');
ROLLBACK;
-- One that was never acquired is held by nobody, whatever the name of the other lock is.
SELECT pg_advisory_lock(1);
SELECT revenant.release('guard', :session);
INSERT INTO guarded VALUES (3, 'three');
SELECT pg_advisory_unlock(1);

SELECT revenant._lease_check();
/* ---- cascades of foreign keys */

CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE cascaded (id int REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE nulled (id int REFERENCES parent ON DELETE SET NULL);
INSERT INTO parent VALUES (1), (2), (3);
INSERT INTO cascaded VALUES (1);
INSERT INTO nulled VALUES (2);
SELECT revenant.guard_table('cascaded', 'guard');
SELECT revenant.guard_table('nulled', 'guard');
DELETE FROM parent WHERE id = 1;
UPDATE parent SET id = 10 WHERE id = 1;
DELETE FROM parent WHERE id = 2;
TRUNCATE parent CASCADE;
INSERT INTO parent VALUES (4);
SELECT revenant.acquire('guard') AS session \gset
UPDATE parent SET id = 10 WHERE id = 1;
DELETE FROM parent WHERE id = 10;
DELETE FROM parent WHERE id = 2;
SELECT (SELECT count(*) FROM parent) AS parents, (SELECT count(*) FROM cascaded) AS cascaded, (SELECT id IS NULL FROM nulled) AS nulled;
SELECT revenant.release('guard', :session);
DROP TABLE cascaded, nulled, parent;

SELECT revenant._lease_check();
/* ---- partitions */

CREATE TABLE parts (a int, b int) PARTITION BY RANGE (a);
CREATE TABLE part_before PARTITION OF parts FOR VALUES FROM (0) TO (10);
CREATE TABLE part_deep PARTITION OF parts FOR VALUES FROM (10) TO (20) PARTITION BY LIST (b);
CREATE TABLE part_deep_1 PARTITION OF part_deep FOR VALUES IN (1);
CREATE TABLE part_attached (a int, b int);
INSERT INTO part_before VALUES (1, 1);
SELECT revenant.guard_table('parts', 'guard');
CREATE TABLE part_after PARTITION OF parts FOR VALUES FROM (20) TO (30);
INSERT INTO part_attached VALUES (31, 1);
ALTER TABLE parts ATTACH PARTITION part_attached FOR VALUES FROM (30) TO (40);
INSERT INTO parts VALUES (2, 1);
INSERT INTO part_before VALUES (2, 1);
INSERT INTO part_deep VALUES (11, 1);
INSERT INTO part_deep_1 VALUES (11, 1);
UPDATE part_after SET b = 2;
DELETE FROM part_attached;
TRUNCATE part_before;
TRUNCATE part_deep_1;
COPY part_after FROM PROGRAM 'printf "21\\t1\\n"';
BEGIN;
SELECT revenant.acquire_xact('guard') IS NOT NULL AS got;
INSERT INTO parts VALUES (2, 1), (11, 1), (21, 1), (32, 1);
UPDATE parts SET a = 22 WHERE a = 2;
INSERT INTO part_deep_1 VALUES (12, 1);
TRUNCATE part_attached;
ROLLBACK;
-- What is no part of it any more is free, and is guarded when it comes back.
ALTER TABLE parts DETACH PARTITION part_attached;
INSERT INTO part_attached VALUES (32, 1);
ALTER TABLE parts ATTACH PARTITION part_attached FOR VALUES FROM (30) TO (40);
INSERT INTO part_attached VALUES (33, 1);
SELECT revenant.unguard_table('parts');
INSERT INTO part_attached VALUES (33, 1);
INSERT INTO part_deep_1 VALUES (11, 1);

-- One partition that is guarded alone: the parent may reach it, its siblings do not.
SELECT revenant.guard_table('part_deep_1', 'guard');
INSERT INTO part_deep_1 VALUES (11, 1);
INSERT INTO part_deep VALUES (11, 1);
INSERT INTO parts VALUES (11, 1);
UPDATE parts SET b = 1 WHERE a = 11;
TRUNCATE parts;
INSERT INTO part_after VALUES (21, 1);
TRUNCATE part_after;
-- Two guards want two fences.
SELECT revenant.guard_table('parts', 'guard-other');
BEGIN;
SELECT revenant.fence('guard-other', :other);
INSERT INTO part_after VALUES (21, 1);
SAVEPOINT s;
INSERT INTO part_deep_1 VALUES (12, 1);
ROLLBACK TO s;
SELECT revenant.acquire_xact('guard') IS NOT NULL AS got;
INSERT INTO part_deep_1 VALUES (12, 1);
ROLLBACK;
BEGIN;
SELECT revenant.acquire_xact('guard') IS NOT NULL AS got;
INSERT INTO part_deep_1 VALUES (12, 1);
ROLLBACK;
DROP TABLE parts;

SELECT revenant._lease_check();
/* ---- inheritance */

CREATE TABLE family (a int);
CREATE TABLE child_before () INHERITS (family);
CREATE TABLE grandchild () INHERITS (child_before);
CREATE TABLE adopted (a int);
SELECT revenant.guard_table('family', 'guard');
CREATE TABLE child_after () INHERITS (family);
INSERT INTO adopted VALUES (1);
ALTER TABLE adopted INHERIT family;
INSERT INTO child_before VALUES (1);
INSERT INTO grandchild VALUES (1);
INSERT INTO child_after VALUES (1);
UPDATE adopted SET a = 2;
TRUNCATE grandchild;
ALTER TABLE adopted NO INHERIT family;
UPDATE adopted SET a = 3;
SELECT revenant.unguard_table('family');
INSERT INTO child_before VALUES (1);
SELECT revenant.guard_table('child_before', 'guard');
INSERT INTO child_before VALUES (1);
INSERT INTO grandchild VALUES (1);
UPDATE family SET a = 2;
DELETE FROM family;
TRUNCATE family;
INSERT INTO child_after VALUES (1);
DROP TABLE family CASCADE;

SELECT revenant._lease_check();
/* ---- with replicas */

CREATE TABLE parts (a int) PARTITION BY RANGE (a);
CREATE TABLE part_before PARTITION OF parts FOR VALUES FROM (0) TO (10);
SELECT revenant.guard_table('parts', 'guard', replicas => true);
CREATE TABLE part_after PARTITION OF parts FOR VALUES FROM (10) TO (20);
SELECT t.tgrelid::regclass AS relation, t.tgname, t.tgenabled FROM pg_trigger AS t
WHERE t.tgname LIKE 'revenant%' AND t.tgrelid::regclass::text LIKE 'part%' ORDER BY 1, 2;
SET session_replication_role = replica;
INSERT INTO parts VALUES (1);
INSERT INTO part_after VALUES (11);
TRUNCATE parts;
RESET session_replication_role;
BEGIN;
SELECT revenant.acquire_xact('guard') IS NOT NULL AS got;
INSERT INTO parts VALUES (1), (11);
UPDATE parts SET a = a + 1;
DELETE FROM parts WHERE a = 2;
SELECT a FROM parts;
TRUNCATE parts;
ROLLBACK;
-- a guard of a partition's own comes and goes; what it has from the table above it stays
SELECT revenant.guard_table('part_after', 'guard-other');
SELECT revenant.unguard_table('part_after');
SELECT revenant.unguard_table('part_after');
SELECT t.tgrelid::regclass AS relation, t.tgname, t.tgenabled FROM pg_trigger AS t
WHERE t.tgname LIKE 'revenant%' AND t.tgrelid::regclass::text LIKE 'part%' ORDER BY 1, 2;
SELECT revenant.unguard_table('parts');
SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'revenant%' AND tgrelid::regclass::text LIKE 'part%';
INSERT INTO part_after VALUES (11);
DROP TABLE parts;

SELECT revenant._lease_check();
/* ---- whose table it is */

CREATE ROLE regress_guard_owner;
CREATE ROLE regress_guard_writer;
SELECT revenant.grant_usage('regress_guard_owner');
CREATE SCHEMA "Odd schema" AUTHORIZATION regress_guard_owner;
GRANT USAGE ON SCHEMA "Odd schema" TO regress_guard_writer;
GRANT USAGE ON SCHEMA "Odd schema" TO PUBLIC;
SET ROLE regress_guard_owner;
SELECT revenant.guard_table('guarded', 'guard');
SELECT revenant.unguard_table('guarded');
CREATE TABLE "Odd schema"."it's ""mine""" (a int);
GRANT ALL ON "Odd schema"."it's ""mine""" TO regress_guard_writer;
SELECT revenant.guard_table('"Odd schema"."it''s ""mine"""', E'it''s a "lease" \\ of\nmine');
INSERT INTO "Odd schema"."it's ""mine""" VALUES (1);
BEGIN;
SELECT revenant.acquire_xact(E'it''s a "lease" \\ of\nmine') IS NOT NULL AS got;
INSERT INTO "Odd schema"."it's ""mine""" VALUES (1);
COMMIT;
-- Who may write but may not even use the extension is refused by the guard all the same.
SET ROLE regress_guard_writer;
INSERT INTO "Odd schema"."it's ""mine""" VALUES (2);
TRUNCATE "Odd schema"."it's ""mine""";
SELECT revenant.unguard_table('"Odd schema"."it''s ""mine"""');
DROP TRIGGER revenant_guard ON "Odd schema"."it's ""mine""";
-- Who may not write is told that.
RESET ROLE;
REVOKE ALL ON "Odd schema"."it's ""mine""" FROM regress_guard_writer;
SET ROLE regress_guard_writer;
INSERT INTO "Odd schema"."it's ""mine""" VALUES (2);
RESET ROLE;
-- The owner can do what owners can: that is what a guard cannot stop.
SET ROLE regress_guard_owner;
ALTER TABLE "Odd schema"."it's ""mine""" DISABLE TRIGGER revenant_guard;
INSERT INTO "Odd schema"."it's ""mine""" VALUES (3);
ALTER TABLE "Odd schema"."it's ""mine""" ENABLE TRIGGER revenant_guard;
INSERT INTO "Odd schema"."it's ""mine""" VALUES (4);
ALTER TABLE "Odd schema"."it's ""mine""" RENAME TO renamed;
INSERT INTO "Odd schema".renamed VALUES (4);
SELECT revenant.unguard_table('"Odd schema".renamed');
INSERT INTO "Odd schema".renamed VALUES (5);
RESET ROLE;
SELECT a FROM "Odd schema".renamed ORDER BY a;
DROP SCHEMA "Odd schema" CASCADE;
SELECT revenant.revoke_usage('regress_guard_owner');
DROP ROLE regress_guard_owner, regress_guard_writer;

SELECT id, v FROM guarded ORDER BY id;
SELECT revenant.release('guard-other', :other);
SELECT count(*) FROM revenant.leases WHERE lease LIKE 'guard%';
DROP TABLE guarded, refers, log CASCADE;
DROP FUNCTION add_definer, also_guarded;
DEALLOCATE insert_prepared;
