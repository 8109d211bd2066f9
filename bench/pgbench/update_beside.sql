\set mine :token + :client_id
UPDATE bench.heartbeat SET expires_at = clock_timestamp() + interval '30 s' WHERE name = :client_id AND token = :mine;
