SELECT :client_id::text, :token::bigint;
