# shellcheck shell=bash disable=SC2034
#
# entity_rows.sh: the rows of the benchmark that are about entities and snapshots
#
# As in lease_rows.sh. What is beside a call is the UPDATE that somebody would
# write in its place: of a row found by its key in a table of the same shape, with
# the next state computed in it, a version that grows, and the answer RETURNed. Each is
# one statement and one transaction, and both are flushed.

entity_clients=(1 8 32)
entities=${BENCH_ENTITIES:-1000000}		# how many are many

# What no row says otherwise: a state of some fields, of which a message changes one.
entity_state="'{\"owner\": \"somebody\", \"currency\": \"EUR\", \"balance\": 0, \"limits\": {\"day\": 1000, \"month\": 20000}}'::jsonb"

# entity_handler NAME: a handler in the language that most will be written in.
entity_handler()
{
	sql bench "
		CREATE FUNCTION bench.$1(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE plpgsql AS \$\$
		DECLARE
			balance jsonb := to_jsonb((state->>'balance')::bigint + (message->>'amount')::bigint);
		BEGIN
			RETURN (balance, jsonb_set(state, '{balance}', balance), NULL)::revenant.reply;
		END \$\$"
}

# entity_table NAME COUNT: a snapshot table with so many rows, their ids 1, 2, 3 and so on.
entity_table()
{
	sql bench "
		SELECT revenant.create_snapshot_table('bench.$1');
		INSERT INTO bench.$1 (id, state) SELECT i, $entity_state FROM generate_series(1, $2) AS i;
		VACUUM ANALYZE bench.$1" >/dev/null
}

# entity_type NAME [DURABILITY]: entities in the table with this name, handled by bench.NAME_handler.
entity_type()
{
	entity_handler "$1_handler"
	sql bench "SELECT revenant.create_entity_type('$1', 'bench.$1', 'bench.$1_handler', durability => '${2:-strict}')" >/dev/null
}

# put_clients WORK BESIDE GOAL CLIENTS: a goal is one for 32 clients.
put_clients() { put_ratio "$1, $(clients "$4")" "$2" "$([ "$4" -ne 32 ] || echo "$3")"; }

row_call()
{
	local clients

	entity_table account 10000
	entity_table account_beside 10000
	entity_type account
	for clients in "${entity_clients[@]}"; do
		versus call_ours call_beside "$clients"
		put_clients 'entity: strict call, one of 10,000' "\`UPDATE … RETURNING\` by key" 0.8 "$clients"
	done
}

row_hot()
{
	local clients

	entity_table hot 1
	entity_table hot_beside 1
	entity_type hot
	for clients in "${entity_clients[@]}"; do
		versus hot_ours hot_beside "$clients"
		put_clients 'entity: strict call, always the same one' "the same \`UPDATE\` of one row" 1.0 "$clients"
	done
}

# No checkpoint lies between the load and the calls: of neither table are full pages logged.
row_million()
{
	local clients

	entity_table many "$entities"
	entity_table few 1000
	entity_type many
	entity_type few
	for clients in "${entity_clients[@]}"; do
		versus many_ours few_ours "$clients"
		put_clients "entity: strict call among $entities" 'among 1000' 0.8 "$clients"
	done
	sql bench "
		SELECT revenant.drop_entity_type('many');
		DROP TABLE bench.many" >/dev/null
}

# A transaction of two statements on either side, and each client has ids of its own: no version conflicts.
row_save()
{
	local clients

	entity_table doc 32000
	entity_table doc_beside 32000
	for clients in "${entity_clients[@]}"; do
		versus save_ours save_beside "$clients"
		put_clients 'snapshot: load, save' \
			"\`SELECT\`, \`UPDATE … WHERE version = … RETURNING\`" 1.0 "$clients"
	done
}

# offers CONDITION: whether this server has what a row is about.
offers() { [ "$(sql bench "SELECT $1")" = t ] || { progress '    left out: this server does not have it'; return 1; }; }

# Begins to be measured with the first version that can make such a type.
row_relaxed()
{
	local clients

	sql bench "
		CREATE FUNCTION bench.has_interval() RETURNS bool LANGUAGE plpgsql AS \$\$
		BEGIN
			PERFORM revenant.create_snapshot_table('bench.probe');
			PERFORM revenant.create_entity_type('probe', 'bench.probe', 'bench.probe_handler', durability => 'interval');
			PERFORM revenant.drop_entity_type('probe');
			DROP TABLE bench.probe;
			RETURN true;
		EXCEPTION
			WHEN feature_not_supported THEN RETURN false;
		END \$\$"
	entity_handler probe_handler
	offers 'bench.has_interval()' || return 0
	entity_table relaxed 1
	entity_table relaxed_beside 1
	entity_type relaxed interval
	for clients in "${entity_clients[@]}"; do
		versus relaxed_ours relaxed_beside "$clients"
		put_clients 'entity: interval call, always the same one' "the same \`UPDATE\` of one row" 5 "$clients"
	done
}

# Begins to be measured with the first version that has send().
row_send()
{
	offers "EXISTS (SELECT FROM pg_proc WHERE pronamespace = 'revenant'::regnamespace AND proname = 'send')" || return 0
	entity_table mail 1000
	entity_type mail
	send_latency
	send_rate
}

# From just before send() to when its sender can see that it was applied; each of 8 clients has an entity of its own.
send_latency()
{
	local took

	sql bench 'CREATE TABLE bench.delivered (sent timestamptz, seen timestamptz)'
	pgbench_run send_ours 8 --transactions="$times" >/dev/null
	took=$(median_milliseconds bench 'SELECT seen - sent FROM bench.delivered')
	put 'entity: send to applied, 8 clients' "$took ms" '—' "$took ms" '< 5 ms' "$(less "$took" 5)"
}

# 8 clients send, a thousand at a time, and the clock stops when the last one is applied.
send_rate()
{
	local asked took messages=80000 rate before

	before=$(sql bench "SELECT sum((state->>'balance')::bigint) FROM bench.mail")
	asked=$(sql bench 'SELECT clock_timestamp()')
	pgbench_run send_many_ours 8 --transactions=10 >/dev/null
	await bench 120 "(SELECT sum((state->>'balance')::bigint) = $before + $messages FROM bench.mail)" 0.05
	took=$(sql bench "SELECT extract(epoch FROM clock_timestamp() - '$asked')")
	rate=$(calculate "$messages / $took" %.0f)
	put "entity: $messages messages of 8 clients, sent and applied" "$rate/s" '—' "$rate/s" '≥ 10000/s' "$(at_least "$rate" 10000)"
}
