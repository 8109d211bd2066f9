# shellcheck shell=bash disable=SC2034
#
# task_rows.sh: the rows of the benchmark that are about tasks
#
# As in lease_rows.sh. Both ends of an interval are read from the server's clock.

row_create()
{
	local from_before from_after

	sql bench '
		CREATE TABLE bench.asked (i int, before timestamptz, after timestamptz);
		CREATE TABLE bench.started (i int, at timestamptz)'
	create_tasks | sql_session bench
	from_before=$(median_milliseconds 'SELECT s.at - a.before FROM bench.asked AS a JOIN bench.started AS s USING (i)')
	from_after=$(median_milliseconds 'SELECT s.at - a.after FROM bench.asked AS a JOIN bench.started AS s USING (i)')
	put "task: create_task to its first statement, from just before COMMIT (from its return: $from_after ms)" \
		"$from_before ms" '—' "$from_before ms" '< 8 ms' "$(less "$from_before" 8)"
}

# The session that asks: both times are taken by the server, in that session.
create_tasks()
{
	local i

	for ((i = 1; i <= times; i++)); do
		cat <<-SQL
			BEGIN;
			SELECT revenant.create_task('bench-$i', 'INSERT INTO bench.started VALUES ($i, clock_timestamp())', backoff_min => '1 min') \\g /dev/null
			SELECT clock_timestamp() AS before \\gset
			COMMIT;
			INSERT INTO bench.asked VALUES ($i, :'before', clock_timestamp());
			SELECT bench.await('EXISTS (SELECT FROM bench.started WHERE i = $i)') \\g /dev/null
			SELECT revenant.drop_task('bench-$i') \\g /dev/null
		SQL
	done
}

row_restart()
{
	local took

	sql bench '
		CREATE TABLE bench.run (i int, pid int, at timestamptz);
		CREATE TABLE bench.killed (i int, pid int, at timestamptz)'
	restart_tasks | sql_session bench
	took=$(median_milliseconds 'SELECT r.at - k.at FROM bench.killed AS k JOIN bench.run AS r ON r.i = k.i AND r.pid <> k.pid')
	put "task: runner terminated, to the next run's first statement" \
		"$took ms" '—' "$took ms" '< 12 ms' "$(less "$took" 12)"
}

# Each time another task, so that none is given up for its failures.
restart_tasks()
{
	local i

	for ((i = 1; i <= times; i++)); do
		cat <<-SQL
			SELECT revenant.create_task('bench-restart-$i', 'INSERT INTO bench.run VALUES ($i, pg_backend_pid(), clock_timestamp()); SELECT pg_sleep(3600)', backoff_min => '0') \\g /dev/null
			SELECT bench.await('(SELECT count(*) = 1 FROM bench.run WHERE i = $i)') \\g /dev/null
			SELECT pg_sleep(0.02) \\g /dev/null
			INSERT INTO bench.killed SELECT i, pid, clock_timestamp() FROM bench.run WHERE i = $i;
			SELECT pg_terminate_backend(pid) FROM bench.killed WHERE i = $i \\g /dev/null
			SELECT bench.await('(SELECT count(*) = 2 FROM bench.run WHERE i = $i)') \\g /dev/null
			SELECT revenant.drop_task('bench-restart-$i') \\g /dev/null
		SQL
	done
}

# Each node is the primary that stops once, then the next follows it and takes
# its place: node1 stops and node2 is promoted, node3 copies node2, and so on.
row_promote()
{
	local times=3 i asked took

	bench_cluster node1 54331
	sql node1 "
		CREATE TABLE bench.run (node text, at timestamptz);
		SELECT revenant.create_task('bench-promote',
			'INSERT INTO bench.run VALUES (current_setting(''revenant.node_name''), clock_timestamp()); SELECT pg_sleep(3600)')" >/dev/null
	took=$(for ((i = 1; i <= times; i++)); do
		local old=node$i new=node$((i + 1))

		await "$old" 30 "EXISTS (SELECT FROM bench.run WHERE node = '$old')"
		cluster_follow "$new" $((54331 + i)) "$old"
		cluster_start "$new"
		await "$old" 30 "EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming' AND replay_lsn = pg_current_wal_lsn())"
		cluster_remove "$old"
		asked=$(sql "$new" 'SELECT clock_timestamp()')
		sql "$new" 'SELECT pg_promote()' >/dev/null
		await "$new" 30 "EXISTS (SELECT FROM bench.run WHERE node = '$new')"
		sql "$new" "SELECT 1000 * extract(epoch FROM at - '$asked') FROM bench.run WHERE node = '$new'"
	done | median)
	took=$(calculate "$took" %.0f)
	put 'task: pg_promote called, to the first statement on the new primary' \
		"$took ms" '—' "$took ms" '< 1000 ms' "$(less "$took" 1000)"
	cluster_remove "node$((times + 1))"
}

# The processor time of launcher and supervisors while nothing is due.
row_idle()
{
	local watched=${BENCH_IDLE_SECONDS:-60} before used

	bench_cluster idle 54342
	sql idle "SELECT revenant.create_task('idle-' || i, 'SELECT 1', schedule => '1 day')
		FROM generate_series(1, 1000) AS i" >/dev/null
	sleep 2				# what the creation itself costs is another matter
	before=$(processor_ticks idle)
	sleep "$watched"
	used=$(calculate "($(processor_ticks idle) - $before) / $(getconf CLK_TCK)" %.2f)
	put "task: processor time in $watched s, idle, 1,000 scheduled tasks" \
		"$used s" '—' "$used s" '< 0.1 s' "$(less "$used" 0.1)"
	cluster_remove idle
}

processor_ticks()
{
	local pid pids

	pids=$(sql "$1" "SELECT pid FROM pg_stat_activity
		WHERE backend_type IN ('revenant launcher', 'revenant supervisor')")
	[ "$(wc -w <<<"$pids")" -ge 2 ] || die 'no launcher or no supervisor'
	for pid in $pids; do
		# Fields 14 and 15, counted from behind the name, which may have spaces.
		sed 's/.*) //' "/proc/$pid/stat" | awk '{ print $12 + $13 }'
	done | awk '{ ticks += $1 } END { print ticks + 0 }'
}

# Everything is due at one commit; the clock stops when the last command has run.
row_due()
{
	local round a b
	local -a ratios=() our_rates=() their_rates=()

	bench_cluster due 54343 'revenant.max_runners = 4'
	sql due 'CREATE TABLE bench.done (round int, i int, at timestamptz)'
	for ((round = 1; round <= 3; round++)); do
		a=$(due_tasks "$round")
		b=$(due_by_psql "$round")
		our_rates+=("$a")
		their_rates+=("$b")
		ratios+=("$(calculate "$a / $b")")
		progress "    round $round: ours $a, beside $b a second"
	done
	ours=$(median_of "${our_rates[@]}")
	beside=$(median_of "${their_rates[@]}")
	ratio=$(median_of "${ratios[@]}")
	put_ratio 'task: 1,000 due tasks, 4 runners' "\`psql -Xc\` for each, 4 at a time" 1.5
	cluster_remove due
}

due_tasks()
{
	local asked rate

	asked=$(sql due "
		BEGIN;
		SELECT revenant.create_task('due-$1-' || i,
			'INSERT INTO bench.done VALUES ($1, ' || i || ', clock_timestamp())', backoff_min => '5 min')
		  FROM generate_series(1, 1000) AS i \\g /dev/null
		SELECT clock_timestamp();
		COMMIT")
	await due 120 "(SELECT count(*) >= 1000 FROM bench.done WHERE round = $1)" 0.1
	rate=$(sql due "SELECT round(1000 / extract(epoch FROM max(at) - '$asked'), 1) FROM bench.done WHERE round = $1")
	sql due "SELECT revenant.drop_task('due-$1-' || i) FROM generate_series(1, 1000) AS i" >/dev/null
	echo "$rate"
}

due_by_psql()
{
	local began

	began=$EPOCHREALTIME
	PGHOST=$scratch PGPORT=${port[due]} PGDATABASE=postgres xargs -P 4 -I '{}' \
		"$bin/psql" -Xqc "INSERT INTO bench.done VALUES (-$1, {}, clock_timestamp())" < <(seq 1000)
	calculate "1000 / ($EPOCHREALTIME - $began)" %.1f
}
