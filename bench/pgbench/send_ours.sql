\set id :client_id + 1
SELECT clock_timestamp() AS sent, version + 1 AS version FROM bench.mail WHERE id = :id \gset
SELECT revenant.send('mail', :id, '{"amount": 1}') AS message \gset
SELECT bench.await(format('(SELECT version >= %s FROM bench.mail WHERE id = %L)', :version::bigint, :id::text));
INSERT INTO bench.delivered VALUES (:sent, clock_timestamp());
