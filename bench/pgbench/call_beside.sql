\set id random(1, 10000)
UPDATE bench.account_beside SET version = version + 1, updated_at = clock_timestamp(), state = jsonb_set(state, '{balance}', to_jsonb((state->>'balance')::bigint + 1)) WHERE id = :id RETURNING state->'balance';
