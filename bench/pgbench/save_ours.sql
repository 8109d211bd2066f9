\set id 1 + :client_id * 1000 + random(0, 999)
BEGIN;
SELECT version, state FROM revenant.load('bench.doc', :id) \gset
SELECT revenant.save('bench.doc', :id, :version, :state) AS version \gset
COMMIT;
