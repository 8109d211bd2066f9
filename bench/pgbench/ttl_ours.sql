SELECT revenant.try_acquire(:client_id, '30 s') AS token \gset
SELECT revenant.release(:client_id, :token) AS released \gset
