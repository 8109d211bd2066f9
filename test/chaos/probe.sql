-- What the probes need: one of each kind of thing that is to work again after a fault, used by nobody else.

CREATE ROLE probe LOGIN;
CREATE SCHEMA probe;
GRANT USAGE ON SCHEMA probe TO probe;
SELECT revenant.grant_usage('probe', 'admin');

-- for full slots: enough pages for every worker
CREATE TABLE probe.wide (filler text) WITH (parallel_workers = 14);
ALTER TABLE probe.wide ALTER COLUMN filler SET STORAGE PLAIN;
INSERT INTO probe.wide SELECT repeat('x', 4000) FROM generate_series(1, 400);

SELECT revenant.create_snapshot_table('probe.entity');
CREATE FUNCTION probe.handle(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS $$
	SELECT message, message, NULL::text
$$;
SELECT revenant.create_entity_type('probe', 'probe.entity', 'probe.handle');
GRANT SELECT, INSERT, UPDATE ON probe.entity TO probe;

CREATE TABLE probe.beat (beats bigint NOT NULL);
INSERT INTO probe.beat VALUES (0);
GRANT SELECT ON probe.beat TO probe;
-- Short runs that begin anew: pg_sleep() would go by the wall clock, which is stepped. They end in any way more often than in the field, and are
-- not to be quarantined for it.
SELECT revenant.create_task('probe', 'UPDATE probe.beat SET beats = beats + 1', max_restarts => 100, restart_window => '1 s',
	backoff_min => '100 ms', backoff_max => '1 s');

SET ROLE probe;
SELECT revenant.create_plan('probe', lease_ttl => '2 s', max_attempts => 1000);
RESET ROLE;
