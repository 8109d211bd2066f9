\set id 1 + :client_id * 1000 + random(0, 999)
BEGIN;
SELECT version, state FROM bench.doc_beside WHERE id = :id \gset
UPDATE bench.doc_beside SET version = version + 1, updated_at = clock_timestamp(), state = :state WHERE id = :id AND version = :version RETURNING version \gset
COMMIT;
