BEGIN;
SELECT revenant.fence(:client_id, :token);
INSERT INTO bench.guarded VALUES (:client_id, clock_timestamp());
COMMIT;
