BEGIN;
SELECT array_agg(id) AS ids FROM (SELECT id, split, spec FROM bench.queue ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 100) AS claimed \gset
DELETE FROM bench.queue WHERE id = ANY (:ids::bigint[]);
COMMIT;
