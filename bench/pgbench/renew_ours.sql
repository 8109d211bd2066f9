SELECT revenant.renew(:client_id, :token);
