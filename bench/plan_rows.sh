# shellcheck shell=bash disable=SC2034
#
# plan_rows.sh: the rows of the benchmark that are about plans
#
# As in lease_rows.sh. What is beside pulling is the queue of the textbooks: a table
# whose rows are taken with FOR UPDATE SKIP LOCKED and deleted, in a transaction that
# stays open while the work is done. A split is claimed in one transaction and
# done in another, and stays in the plan when it is done.

workers=16
many_splits=${BENCH_SPLITS:-1000000}
xmin_seconds=${BENCH_XMIN_SECONDS:-120}

# What a worker is told of split number i
split_name="'part-' || i"
split_spec="jsonb_build_object('from', i * 1000, 'to', (i + 1) * 1000)"

# ---------------------------------------------------------------------------
# Plans and queues
# ---------------------------------------------------------------------------

# plan_create CLUSTER PLAN [ARGUMENTS]: a plan without a split, led by the benchmark; arguments of create_plan().
plan_create()
{
	sql "$1" "
		SELECT revenant.create_plan('$2'${3:+, $3});
		SELECT revenant.lead_plan('$2', 'bench', '1 day')" >/dev/null
}

# plan_fill CLUSTER PLAN COUNT: publishes as many splits as are missing until so many wait.
plan_fill()
{
	sql "$1" "DO \$\$
		DECLARE
			published bigint;
			missing bigint;
			part bigint;
		BEGIN
			SELECT planned, $3 - runnable INTO published, missing FROM revenant.plan_progress('$2');
			WHILE missing > 0 LOOP
				part := least(missing, 100000);
				PERFORM revenant.publish('$2', (SELECT generation FROM revenant.plan WHERE plan = '$2'),
					(SELECT jsonb_agg(jsonb_build_object('id', $split_name, 'spec', $split_spec))
					   FROM generate_series(published + 1, published + part) AS i));
				COMMIT;
				published := published + part;
				missing := missing - part;
			END LOOP;
		END \$\$"
}

# plan_drop CLUSTER PLAN: it leaves no dead row behind.
plan_drop()
{
	sql "$1" "
		SELECT revenant.drop_plan('$2') \\g /dev/null
		VACUUM"
}

# queue_create CLUSTER: the textbook's; with what a split has, too.
queue_create()
{
	sql "$1" '
		CREATE TABLE bench.queue (
			id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
			split    text NOT NULL,
			weight   bigint NOT NULL DEFAULT 1,
			attempts int NOT NULL DEFAULT 0,
			added_at timestamptz NOT NULL DEFAULT now(),
			spec     jsonb,
			progress jsonb)'
}

# queue_fill CLUSTER COUNT: adds as many rows as are missing.
queue_fill()
{
	sql "$1" "INSERT INTO bench.queue (split, spec)
		SELECT $split_name, $split_spec FROM generate_series(1, $2 - (SELECT count(*) FROM bench.queue)) AS i"
}

# fill SCRIPT[@CLUSTER] A_SECOND: so many for each second of a round, and for each core.
fill()
{
	local count=$(($2 * seconds * cores))

	case $1 in
		*_ours*) plan_fill "$(cluster_of "$1")" pull "$count" ;;
		*) queue_fill "$(cluster_of "$1")" "$count" ;;
	esac
}

# More than a machine can pull, or the round fails for lack of splits
fill_for_pull() { fill "$1" 20000; }
fill_for_batch() { fill "$1" 150000; }

# ---------------------------------------------------------------------------
# Pulling
# ---------------------------------------------------------------------------

row_pull()
{
	plan_create bench pull
	queue_create bench
	versus pull_ours pull_beside "$workers" fill_for_pull
	put_ratio "plan: claim + commit done, $workers workers" \
		"\`SELECT … FOR UPDATE SKIP LOCKED LIMIT 1\` + \`DELETE\`" 1.0
	versus pull_ours delete_beside "$workers" fill_for_pull
	put_ratio "plan: claim + commit done, $workers workers" 'both in one statement'
	plan_drop bench pull
	sql bench 'DROP TABLE bench.queue'
}

# What a client puts together of what it was told, the array of commits or of ids, the statement does here.
row_batch()
{
	plan_create bench pull
	queue_create bench
	versus batch_ours batch_beside "$workers" fill_for_batch
	put_ratio "plan: claim + commit done in batches of 100, $workers workers" \
		"\`SELECT … LIMIT 100\` + \`DELETE … = ANY\`" 1.0
	plan_drop bench pull
	sql bench 'DROP TABLE bench.queue'
}

# Claimed and released, so that as many wait all along. Nothing is flushed: releases would
# be, and hide what a claim costs.
row_claim()
{
	export PGOPTIONS='-c synchronous_commit=off'
	bench_cluster crowded 54342
	plan_create crowded claim
	plan_fill crowded claim "$many_splits"
	plan_create bench claim
	plan_fill bench claim 1000
	versus claim_ours@crowded claim_ours "$workers"
	put_ratio "plan: claim + release of one of $many_splits, not flushed, $workers workers" 'of 1000' 0.8
	plan_drop bench claim
	cluster_remove crowded
}

# On a server where another session has held a snapshot since before the first split was
# published, once so much was pulled that the dead rows have piled up; beside one where
# none does and nothing has.
row_aged()
{
	local cluster

	bench_cluster held 54343
	hold_xmin held
	for cluster in held bench; do
		plan_create "$cluster" pull
		queue_create "$cluster"
	done
	age pull_ours@held
	versus pull_ours@held pull_ours "$workers" fill_for_pull
	put_ratio "plan: claim + commit done while a transaction has held xmin for $xmin_seconds s, $workers workers" 'itself without' 0.8
	age pull_beside@held
	versus pull_beside@held pull_beside "$workers" fill_for_pull
	put_ratio "the textbook's queue, the same" 'itself without'
	plan_drop bench pull
	sql bench 'DROP TABLE bench.queue'
	cluster_remove held
}

# age SCRIPT@CLUSTER: runs it for xmin_seconds, not counting what it takes to give it new splits.
age()
{
	local left seconds

	for ((left = xmin_seconds; left > 0; left -= 10)); do
		seconds=$((left < 10 ? left : 10))
		fill_for_pull "$1"
		progress "    $1: $(rate "$1" "$workers") a second, $left s before it is measured"
	done
}

# ---------------------------------------------------------------------------
# Publishing, and members
# ---------------------------------------------------------------------------

# The plan is new each time, and what is published is there as an array. Beside: two tables that are
# the same to the last index, and what is inserted is there as a table.
row_publish()
{
	local round ours_ms beside_ms splits=100000
	local -a our_rates=() their_rates=() ratios=()

	publish_schema "$splits"
	for ((round = 1; round <= rounds; round++)); do
		plan_create bench publish
		ours_ms=$(publish_milliseconds "SELECT revenant.publish('publish', :generation, splits) FROM bench.splits \\g /dev/null")
		plan_drop bench publish
		beside_ms=$(publish_milliseconds "
			INSERT INTO bench.split SELECT 1, i, split, 1, :generation, spec FROM bench.source;
			INSERT INTO bench.split_state SELECT 1, i, 0, 0, now(), 0, 0, 0, 0, NULL, NULL, NULL, NULL FROM bench.source")
		sql bench '
			DELETE FROM bench.split;
			DELETE FROM bench.split_state;
			VACUUM'
		our_rates+=("$(calculate "1000 * $splits / $ours_ms")")
		their_rates+=("$(calculate "1000 * $splits / $beside_ms")")
		ratios+=("$(calculate "$beside_ms / $ours_ms")")
		progress "    round $round: ours $ours_ms, beside $beside_ms ms"
	done
	ours=$(median_of "${our_rates[@]}")
	beside=$(median_of "${their_rates[@]}")
	ratio=$(median_of "${ratios[@]}")
	put_ratio "plan: publish $splits splits" "\`INSERT … SELECT\` of both rows of each" 0.5
}

publish_schema()
{
	sql bench "
		CREATE TABLE bench.source AS
			SELECT i, $split_name AS split, $split_spec AS spec FROM generate_series(1, $1) AS i;
		CREATE TABLE bench.splits (splits jsonb);
		ALTER TABLE bench.splits ALTER splits SET STORAGE EXTERNAL;
		INSERT INTO bench.splits
			SELECT jsonb_agg(jsonb_build_object('id', split, 'spec', spec) ORDER BY i) FROM bench.source;
		CREATE TABLE bench.split (LIKE revenant.split INCLUDING ALL);
		CREATE TABLE bench.split_state (LIKE revenant.split_state INCLUDING ALL) WITH (fillfactor = 30);
		VACUUM ANALYZE bench.source, bench.splits"
}

# publish_milliseconds SQL: of one transaction, with its commit.
publish_milliseconds()
{
	sql bench "
		SELECT coalesce(max(generation), 1) AS generation FROM revenant.plan WHERE plan = 'publish' \\gset
		SELECT clock_timestamp() AS began \\gset
		BEGIN;
		$1;
		COMMIT;
		SELECT round(1000 * extract(epoch FROM clock_timestamp() - :'began'), 1)"
}

# Every member has as much as it may have, so nothing is moved and nothing is to be had; each poll is
# another member's.
row_poll()
{
	local members=1000 splits=100000 clients wal

	plan_create bench poll "lease_ttl => '1 h', replan_every => '1 h', max_in_flight => $((splits / members))"
	plan_fill bench poll "$splits"
	plan_join poll "$members"
	plan_own poll "$members" "$splits"
	for clients in 1 "$workers"; do
		versus poll_ours poll_beside "$clients"
		put_ratio "plan: poll_plan with nothing new, $members members, $splits splits, $(clients "$clients")" "\`SELECT 1\`" 0.5
	done
	wal=$(wal_of poll_ours)
	put 'plan: WAL of 10,000 polls' "$wal bytes" '—' "$wal bytes" '0 bytes' "$(at_least 0 "$wal")"
	plan_drop bench poll
}

# plan_join PLAN COUNT: so many members. As with leases, the first one's token is all that the script needs.
plan_join()
{
	token[bench]=$(sql bench "
		SELECT min(member) FROM (
			SELECT revenant.join_plan('$1', 'worker-' || i) AS member FROM generate_series(1, $2) AS i) AS joined
		HAVING max(member) = min(member) + $2 - 1")
	[ -n "${token[bench]}" ] || die 'the tokens of the members do not follow one another'
}

# plan_own PLAN MEMBERS SPLITS: each member polls until all splits are somebody's, and once more to say that it knows.
plan_own()
{
	sql bench "DO \$\$
		BEGIN
			WHILE (SELECT owned < $3 FROM revenant.plan_progress('$1')) LOOP
				FOR i IN 0 .. $2 - 1 LOOP
					PERFORM revenant.poll_plan('$1', ${token[bench]} + i);
					COMMIT;
				END LOOP;
			END LOOP;
		END \$\$"
	defines=(--define=seen="$(sql bench 'SELECT max(epoch) FROM revenant.split_state')")
	await bench 60 "(SELECT count(*) = 0 FROM generate_series(0, $2 - 1) AS i,
		LATERAL revenant.poll_plan('$1', ${token[bench]} + i, ${defines[0]#*=*=}))" 0.1
}
