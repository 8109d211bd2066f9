# shellcheck shell=bash disable=SC2034
#
# task_rows.sh: the rows of the benchmark that are about tasks
#
# As in lease_rows.sh. Both ends of an interval are read from the server's clock.

cron_times=10		# how often pg_cron is asked for a job: each time may take a minute

# Beside pg_cron, on a server that has both.
row_create()
{
	bench_cluster cron 54345 "shared_preload_libraries = 'revenant,pg_cron'" \
		'cron.use_background_workers = on' 'cron.log_run = off' 'cron.log_statement = off'
	sql cron 'CREATE EXTENSION pg_cron'
	create_latency cron
	cron_latency cron
	ratio=$(calculate "$cron_median / $from_before" %.0f)
	put "task: create_task to its first statement, from just before COMMIT (from its return: $from_after ms)" \
		"$from_before ms" "pg_cron $cron_version, \`$cron_schedule\`, asked evenly over its period: $cron_median ms ($cron_range)" \
		"$from_before ms, $ratio times as fast" '< 8 ms' "$(less "$from_before" 8)"
	cluster_remove cron
}

# create_latency NAME: sets from_before and from_after, in milliseconds.
create_latency()
{
	sql "$1" '
		CREATE TABLE bench.asked (i int, before timestamptz, after timestamptz);
		CREATE TABLE bench.started (i int, at timestamptz)'
	create_tasks | sql_session "$1"
	from_before=$(median_milliseconds "$1" 'SELECT s.at - a.before FROM bench.asked AS a JOIN bench.started AS s USING (i)')
	from_after=$(median_milliseconds "$1" 'SELECT s.at - a.after FROM bench.asked AS a JOIN bench.started AS s USING (i)')
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

# cron_latency NAME: sets what pg_cron needs, in milliseconds, with the shortest
# period that it has: a second, before 1.5 a minute. A job waits for the next
# tick; so the commits lie evenly over one period, and all of them are awaited.
cron_latency()
{
	local period=1 first='SELECT min(s.at) - a.before FROM bench.cron_asked AS a JOIN bench.cron_started AS s USING (i) GROUP BY i, a.before'

	cron_schedule='1 second'
	if ! sql "$1" "SELECT cron.schedule('bench', '$cron_schedule', 'SELECT 1'), cron.unschedule('bench')" >/dev/null 2>&1; then
		cron_schedule='* * * * *'
		period=60
	fi
	cron_version=$(sql "$1" "SELECT extversion FROM pg_extension WHERE extname = 'pg_cron'")
	sql "$1" '
		CREATE TABLE bench.cron_asked (i int, before timestamptz);
		CREATE TABLE bench.cron_started (i int, at timestamptz)'
	progress "    waits for pg_cron, up to $((2 * period)) s"
	cron_jobs "$period" | sql_session "$1"
	await "$1" $((period + 30)) "(SELECT count(DISTINCT i) = $cron_times FROM bench.cron_started)" 0.1
	sql "$1" 'SELECT cron.unschedule(jobid) FROM cron.job' >/dev/null
	cron_median=$(calculate "$(median_milliseconds "$1" "$first")" %.0f)
	cron_range=$(sql "$1" "SELECT concat_ws(' to ', round(1000 * extract(epoch FROM min(took))), round(1000 * extract(epoch FROM max(took))))
		FROM ($first) AS t (took)")
}

cron_jobs()
{
	local i

	for ((i = 1; i <= cron_times; i++)); do
		cat <<-SQL
			BEGIN;
			SELECT cron.schedule('bench-$i', '$cron_schedule', 'INSERT INTO bench.cron_started VALUES ($i, clock_timestamp())') \\g /dev/null
			SELECT clock_timestamp() AS before \\gset
			COMMIT;
			INSERT INTO bench.cron_asked VALUES ($i, :'before');
			SELECT pg_sleep($1.0 / $cron_times) \\g /dev/null
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
	took=$(median_milliseconds bench 'SELECT r.at - k.at FROM bench.killed AS k JOIN bench.run AS r ON r.i = k.i AND r.pid <> k.pid')
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

# What launcher and supervisors cost while nothing is due: one database with many
# tasks, and many databases with one, which are watched at the same time.
row_idle()
{
	local watched=${BENCH_IDLE_SECONDS:-60} databases=50 tasks_before many_before used

	bench_cluster idle 54342
	sql idle "SELECT revenant.create_task('idle-' || i, 'SELECT 1', schedule => '1 day')
		FROM generate_series(1, 1000) AS i" >/dev/null
	create_many "$databases"
	sleep 2				# what the creation itself costs is another matter

	tasks_before=$(processor_seconds idle 1)
	many_before=$(processor_seconds many $((databases + 1)))
	sleep "$watched"
	used=$(calculate "$(processor_seconds idle 1) - $tasks_before" %.2f)
	put "task: processor time in $watched s, idle, 1,000 scheduled tasks" \
		"$used s" '—' "$used s" '< 0.1 s' "$(less "$used" 0.1)"
	used=$(own_megabytes idle 1)
	put 'task: memory of launcher and supervisor, without what is shared, 1,000 scheduled tasks' \
		"$used MB" '—' "$used MB" '—' '—'
	used=$(calculate "$(processor_seconds many $((databases + 1))) - $many_before" %.2f)
	put "task: processor time in $watched s, idle, $databases databases with a scheduled task" \
		"$used s" '—' "$used s" '—' '—'
	used=$(own_megabytes many $((databases + 1)))
	put "task: memory of launcher and $((databases + 1)) supervisors, without what is shared, $databases databases with a scheduled task" \
		"$used MB" '—' "$used MB" '—' '—'
	cluster_remove idle

	database=many1 create_latency many
	put "task: create_task to its first statement in one of $databases databases, from just before COMMIT (from its return: $from_after ms)" \
		"$from_before ms" '—' "$from_before ms" '—' '—'
	cluster_remove many
}

# create_many COUNT: a cluster with that many databases beside the first one.
create_many()
{
	local i

	# launcher and another one of ours, the server's own, supervisors, runners
	bench_cluster many 54344 "max_worker_processes = $((3 + $1 + 1 + 16))"
	for ((i = 1; i <= $1; i++)); do
		sql many "CREATE DATABASE many$i"
		database=many$i bench_database many
		database=many$i sql many "SELECT revenant.create_task('idle', 'SELECT 1', schedule => '1 day')" >/dev/null
	done
	await many 30 "(SELECT count(*) = $1 + 1 FROM pg_stat_activity WHERE backend_type = 'revenant supervisor')" 0.1
}

# workers NAME SUPERVISORS: the processes of the launcher and of that many supervisors.
workers()
{
	local pids

	pids=$(sql "$1" "SELECT pid FROM pg_stat_activity
		WHERE backend_type IN ('revenant launcher', 'revenant supervisor')")
	[ "$(wc -w <<<"$pids")" -eq $(($2 + 1)) ] || die "not one launcher and $2 supervisors"
	echo "$pids"
}

# processor_seconds NAME SUPERVISORS: what they have used since they began. In
# nanoseconds, since many of them may use less than a clock tick each.
processor_seconds()
{
	local pid pids

	pids=$(workers "$@")
	for pid in $pids; do
		cut -d ' ' -f 1 "/proc/$pid/schedstat"
	done | awk '{ nanoseconds += $1 } END { printf "%.6f\n", nanoseconds / 1e9 }'
}

# own_megabytes NAME SUPERVISORS: resident, and neither of a file nor of shared memory.
own_megabytes()
{
	local pid pids

	pids=$(workers "$@")
	for pid in $pids; do
		sed -n 's/^RssAnon:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$pid/status"
	done | awk '{ kilobytes += $1 } END { if (NR) printf "%.1f\n", kilobytes / 1024; else exit 1 }'
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
