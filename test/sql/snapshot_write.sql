-- What the executor does for an UPDATE holds for a snapshot that is written without it.
CREATE FUNCTION sum_handler(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE sql AS
	$$ SELECT to_jsonb(n), jsonb_build_object('n', n, 'pad', message->'pad'), NULL::text
	     FROM (SELECT coalesce((state->>'n')::int, 0) + coalesce((message->>'add')::int, 0)) AS s (n) $$;
SELECT revenant.create_snapshot_table('written');
ALTER TABLE written ADD COLUMN note text DEFAULT repeat('n', 3000), ADD COLUMN far text COLLATE "C";
SELECT revenant.create_entity_type('written', 'written', 'sum_handler', '{}');
SELECT revenant.call('written', 'a', '{"add": 1}'), revenant.call('written', 'b', '{"add": 2}');
UPDATE written SET far = (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 500) AS i);

-- an index on what changes
CREATE INDEX written_n ON written (((state->>'n')::int));
CREATE INDEX written_at ON written USING brin (updated_at);
SELECT revenant.call('written', 'a', '{"add": 10}'), revenant.call('written', 'b', '{"add": 10}');
SET enable_seqscan = off;
SELECT id, version, length(note) AS note, length(far) AS far FROM written WHERE (state->>'n')::int = 11;
SELECT id FROM written WHERE (state->>'n')::int = 1;
RESET enable_seqscan;
DROP INDEX written_at;

-- a unique one, whose key another row has
CREATE UNIQUE INDEX written_once ON written (((state->>'n')::int));
SELECT revenant.call('written', 'a', '{"add": 1}');

-- constraints
ALTER TABLE written ADD CONSTRAINT small CHECK ((state->>'n')::int < 100), ALTER state SET NOT NULL;
\set VERBOSITY sqlstate
SELECT revenant.call('written', 'a', '{"add": 100}');
SELECT revenant.delete_entity('written', 'a');
\set VERBOSITY default
SELECT revenant.call('written', 'a', '{"add": 50}');

-- a state that is out of line
SELECT revenant.call('written', 'a', jsonb_build_object('pad', (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 500) AS i)));
SELECT revenant.call('written', 'a', '{"add": 1}');
SELECT id, version, state->>'n' AS n, length(far) AS far FROM written ORDER BY id;

-- the command that calls has just written the row
UPDATE written SET far = NULL WHERE id = 'a' RETURNING revenant.call('written', 'a', '{"add": 1}');
SELECT revenant.save('written', 'b', version, '{"n": 3}') FROM written WHERE id = 'b';
SELECT id, version, state->>'n' AS n FROM written ORDER BY id;

SELECT revenant.drop_entity_type('written');
DROP TABLE written;
DROP FUNCTION sum_handler;
