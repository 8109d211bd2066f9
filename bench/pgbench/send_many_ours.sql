SELECT count(revenant.send('mail', i::text, '{"amount": 1}')) FROM generate_series(1, 1000) AS i;
