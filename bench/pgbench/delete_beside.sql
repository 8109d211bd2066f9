BEGIN;
DELETE FROM bench.queue WHERE id = (SELECT id FROM bench.queue ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING id, split, spec \gset
COMMIT;
