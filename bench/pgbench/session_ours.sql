SELECT revenant.try_acquire(:client_id) AS token \gset
SELECT revenant.release(:client_id, :token) AS released \gset
