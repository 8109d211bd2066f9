-- A batch finds each of its splits, in whatever order it has them: rows that have moved to other pages, left dead entries in the index, or are gone lead it to no other row, and to no memory that is gone.
CREATE TABLE claimed (number int, split text, epoch bigint);
-- A batch of those splits: progress is this number, and long, so that each row moves to another page.
CREATE FUNCTION said(say int, splits int[], done boolean DEFAULT false) RETURNS int LANGUAGE sql AS $$
	SELECT revenant.commit_splits('sb', (
		SELECT jsonb_agg(jsonb_build_object('split', c.split, 'epoch', c.epoch, 'done', done, 'progress', jsonb_build_object('said', say, 'long', repeat(md5(c.split || say), 20))) ORDER BY s.i)
		  FROM unnest(splits) WITH ORDINALITY AS s (number, i) JOIN claimed AS c USING (number)))
$$;
-- Of how many splits this is the latest progress
CREATE VIEW heard AS
	SELECT progress->'said' AS said, count(*), min(split), max(split), bool_and(progress->>'long' = repeat(md5(split || (progress->>'said')), 20)) AS own
	  FROM revenant.splits WHERE plan = 'sb' GROUP BY 1 ORDER BY 1 NULLS FIRST;
SELECT revenant.create_plan('sb', lease_ttl => '1 h', replan_every => '1 h');
SELECT revenant.lead_plan('sb', 'planner', '1 h') AS generation \gset
SELECT created FROM revenant.publish('sb', :generation, (SELECT jsonb_agg(jsonb_build_object('id', to_char(i, '"s"FM0000'))) FROM generate_series(1, 1000) AS i));

-- In their order, many times: each leaves a dead entry in the index before the next.
INSERT INTO claimed SELECT row_number() OVER (), split, epoch FROM revenant.claim_splits('sb', 'w', 1000);
SELECT count(*), min(split), max(split), count(DISTINCT epoch) FROM claimed;
\set ECHO none
\o /dev/null
SELECT format('SELECT said(%s, array_agg(i)) FROM generate_series(1, 1000) AS i', say) FROM generate_series(1, 30) AS say \gexec
\o
\set ECHO all
SELECT * FROM heard;
-- Backwards, every third, one twice, by twos, in any order
SELECT said(31, array_agg(i ORDER BY i DESC)) FROM generate_series(1, 1000) AS i;
SELECT said(32, array_agg(i)) FROM generate_series(3, 1000, 3) AS i;
SELECT said(33, '{7, 8, 8, 9, 9, 10, 10, 9, 8, 7, 8}');
SELECT said(34, array_agg(i)) FROM generate_series(1, 1000, 50) AS a, LATERAL (VALUES (a + 19), (a + 20)) AS b (i);
SELECT said(35, array_agg(i ORDER BY md5(i::text))) FROM generate_series(900, 999) AS i;
SELECT * FROM heard;
-- In one transaction, with what it has itself written before
BEGIN;
SELECT said(36, array_agg(i)) FROM generate_series(1, 200) AS i;
SELECT said(37, array_agg(i)) FROM generate_series(101, 300) AS i;
SAVEPOINT s;
SELECT said(38, array_agg(i)) FROM generate_series(1, 1000) AS i;
ROLLBACK TO s;
SELECT said(39, array_agg(i)) FROM generate_series(201, 400) AS i;
COMMIT;
SELECT * FROM heard;

-- Gaps: what is done and purged is gone, released ones are claimed again without them.
SELECT said(40, array_agg(i), done => true) FROM generate_series(2, 1000, 2) AS i;
SELECT revenant.purge_plan('sb', 'infinity');
SELECT count(revenant.release_split('sb', split, epoch)) FROM claimed WHERE number % 2 = 1;
TRUNCATE claimed;
INSERT INTO claimed SELECT substr(split, 2)::int, split, epoch FROM revenant.claim_splits('sb', 'w', 1000);
SELECT count(*), count(*) FILTER (WHERE number % 2 = 1) AS odd, min(split), max(split) FROM claimed;
SELECT said(41, array_agg(number ORDER BY number)) FROM claimed;
SELECT said(42, array_agg(number ORDER BY number)) FROM claimed WHERE number < 500;
SELECT * FROM heard;
-- One stale element: nothing of the batch is written.
UPDATE claimed SET epoch = epoch - 1 WHERE number = 999;
\set VERBOSITY sqlstate
SELECT said(43, array_agg(number ORDER BY number)) FROM claimed;
SELECT * FROM heard;

SELECT revenant.drop_plan('sb');
DROP VIEW heard;
DROP FUNCTION said;
DROP TABLE claimed;
