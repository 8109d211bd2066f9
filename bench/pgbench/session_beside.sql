SELECT pg_try_advisory_lock(:client_id) AS token \gset
SELECT pg_advisory_unlock(:client_id) AS released \gset
