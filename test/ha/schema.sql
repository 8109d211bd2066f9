-- What the clients work on, and the tasks. Nothing here is unique or checked that need not be: a
-- second effect must show, and not be an error.

CREATE EXTENSION revenant;

-- A task that runs all the time. Each beat is a transaction, and waits for the standby. A node is known by
-- its port: what its configuration says is the other one's after a pg_rewind.
CREATE TABLE beat (n bigint GENERATED ALWAYS AS IDENTITY, token bigint NOT NULL, node text NOT NULL, at timestamptz NOT NULL);
CREATE PROCEDURE beats() LANGUAGE plpgsql AS $$
BEGIN
	LOOP
		INSERT INTO public.beat (token, node, at) VALUES (revenant.current_token(), current_setting('port'), clock_timestamp());
		COMMIT;
		PERFORM pg_sleep(0.05);
	END LOOP;
END
$$;
SELECT revenant.create_task('heart', 'CALL public.beats()', backoff_min => '0');
SELECT revenant.create_task('second', 'INSERT INTO public.beat (token, node, at) SELECT 0, ''second'', clock_timestamp()', '1 s');

-- Who holds a lease writes here. The number is drawn after fence(), so it is in the order of holders.
CREATE TABLE ledger (n bigint GENERATED ALWAYS AS IDENTITY, lease text NOT NULL, token bigint NOT NULL, id uuid NOT NULL);

-- Entities: strict calls, messages and timers. Each has its effect beside its state.
CREATE TABLE effect (n bigint GENERATED ALWAYS AS IDENTITY, type text NOT NULL, id text NOT NULL, kind text NOT NULL, what jsonb NOT NULL);
SELECT revenant.create_snapshot_table('entity');
CREATE FUNCTION count_one(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE plpgsql AS $$
BEGIN
	state := to_jsonb(state::bigint + 1);
	INSERT INTO public.effect (type, id, kind, what) VALUES ('counter', id, (revenant.current_message()).kind, message);
	RETURN (state, state, NULL)::revenant.reply;
END
$$;
SELECT revenant.create_entity_type('counter', 'entity', 'count_one', initial_state => '0');

-- A plan, whose splits are published and pulled all the time.
CREATE TABLE split_effect (n bigint GENERATED ALWAYS AS IDENTITY, split text NOT NULL, epoch bigint NOT NULL);
SELECT revenant.create_plan('work', lease_ttl => '2 s', max_attempts => 1000);

-- The test's own writes, by which it sees that a server accepts them.
CREATE TABLE probe (at timestamptz NOT NULL);
