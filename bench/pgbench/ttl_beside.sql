INSERT INTO bench.lock AS held (name, expires_at) VALUES (:client_id, clock_timestamp() + interval '30 s') ON CONFLICT (name) DO UPDATE SET token = excluded.token, expires_at = excluded.expires_at WHERE held.expires_at < clock_timestamp() RETURNING token \gset
DELETE FROM bench.lock WHERE name = :client_id AND token = :token RETURNING true AS released \gset
