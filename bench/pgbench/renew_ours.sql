\set mine :token + :client_id
SELECT revenant.renew(:client_id, :mine);
