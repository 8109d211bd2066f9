BEGIN;
SELECT id, split, spec FROM bench.queue ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1 \gset
DELETE FROM bench.queue WHERE id = :id;
COMMIT;
