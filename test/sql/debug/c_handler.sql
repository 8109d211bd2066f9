-- A handler in C is a handler like any other: its reply is read, its state kept or written, its stop unloads; what it returns is not used after it is gone.
SELECT revenant.create_snapshot_table('c_handled');
SELECT revenant.create_entity_type('c_handled', 'c_handled', 'revenant._debug_handler', initial_state => '{"first": true}');
SELECT revenant.call('c_handled', 'a', '{"n": 1}'), revenant.call('c_handled', 'a', '{"n": 2}'), revenant.call('c_handled', 'a', NULL);
SELECT version, state FROM c_handled;
-- large ones, many in one statement
SELECT count(*), sum(length(revenant.call('c_handled', 'b', jsonb_build_object('pad', repeat('x', i)))::text)) FROM generate_series(1, 2000) AS i;
SELECT version, length(state::text) FROM c_handled WHERE id = 'b';
-- relaxed, and its stop
SELECT revenant.alter_entity_type('c_handled', '{"durability": "on_stop", "idle_timeout": null}');
DO $$
BEGIN
	WHILE NOT EXISTS (SELECT FROM revenant.loaded_entities WHERE type = 'c_handled' AND id = 'a') LOOP
		PERFORM revenant.call('c_handled', 'a', jsonb_build_object('n', random()));
		COMMIT;
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
SELECT revenant.call('c_handled', 'a', '{"n": 3}') IS NOT NULL AS replied;
SELECT durable FROM revenant.receipt();
SELECT state <> '{"n": 3}' AS behind FROM c_handled WHERE id = 'a';
SELECT revenant.call('c_handled', 'a', '4');
SELECT state FROM c_handled WHERE id = 'a';
SELECT count(*) AS loaded FROM revenant.loaded_entities WHERE type = 'c_handled' AND id = 'a';
SELECT revenant.drop_entity_type('c_handled');
DROP TABLE c_handled;
