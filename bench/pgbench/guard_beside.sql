BEGIN;
SELECT :client_id::text, :token::bigint;
INSERT INTO bench.unguarded VALUES (:client_id, clock_timestamp());
COMMIT;
