\set mine :token + :client_id
SELECT :client_id::text, :mine::bigint;
