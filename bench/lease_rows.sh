# shellcheck shell=bash
#
# lease_rows.sh: the rows of the benchmark that are about leases and guards
#
# One function for each row, row_NAME. It runs in a subshell of its own and says
# what it found with put or put_ratio.

row_session()
{
	versus session_ours session_beside 1
	put_ratio 'session: acquire + release' \
		"\`pg_try_advisory_lock\` + \`pg_advisory_unlock\`" 0.9
}

row_renew()
{
	local wal

	acquire_for_clients bench 1
	versus renew_ours renew_beside 1
	put_ratio 'ttl: renew' "\`SELECT\` of the same two parameters" 0.85

	wal=$(wal_of renew_ours)
	put 'ttl: WAL of 10,000 renewals' "$wal bytes" '—' "$wal bytes" '0 bytes' "$(at_least 0 "$wal")"
	release_for_clients bench 1
}

# The scripts name a client's lease by its number. Tokens that are drawn in one
# go follow one another, so the first one is all that the scripts need.
acquire_for_clients()
{
	token[$1]=$(sql "$1" "
		SELECT min(token) FROM (
			SELECT revenant.try_acquire(i::text, ttl => '1 h') AS token
			  FROM generate_series(0, $2 - 1) AS i ORDER BY i) AS acquired
		HAVING count(token) = $2 AND max(token) = min(token) + $2 - 1")
	[ -n "${token[$1]}" ] || die 'the leases are not free, or their tokens do not follow one another'
}

release_for_clients()
{
	sql "$1" "SELECT revenant.release(i::text, ${token[$1]} + i)
		FROM generate_series(0, $2 - 1) AS i" >/dev/null
}

row_update()
{
	local clients

	sql bench '
		CREATE TABLE bench.heartbeat (
			name       text PRIMARY KEY,
			token      bigint NOT NULL,
			expires_at timestamptz NOT NULL)'
	for clients in 1 8; do
		acquire_for_clients bench "$clients"
		sql bench "TRUNCATE bench.heartbeat;
			INSERT INTO bench.heartbeat
			SELECT i, ${token[bench]} + i, 'infinity' FROM generate_series(0, $clients - 1) AS i"
		versus renew_ours update_beside "$clients"
		put_ratio "ttl: renew, $(clients "$clients")" "\`UPDATE\` of a row" 2.5
		release_for_clients bench "$clients"
	done
}

# The same on a server where another session holds a snapshot all along.
row_xmin()
{
	bench_cluster held 54340
	acquire_for_clients held 1
	acquire_for_clients bench 1
	hold_xmin held
	versus renew_ours@held renew_ours 1
	put_ratio 'ttl: renew while a transaction holds xmin' 'itself without' 0.95
	release_for_clients bench 1
	cluster_remove held
}

# Two servers again: one with many live leases, one with a thousand.
row_crowd()
{
	local many=${BENCH_LEASES:-1000000} before after began

	bench_cluster crowded 54341 "revenant.shared_memory = '2GB'"
	before=$(leases_memory crowded)
	began=$SECONDS
	fill_with_leases crowded "$many"
	progress "    $many leases acquired in $((SECONDS - began)) s"
	after=$(leases_memory crowded)
	put "ttl: memory of $many live leases" "$(calculate "($after - $before) / 1048576" %.0f) MB" '—' \
		"$(calculate "($after - $before) / $many" %.0f) bytes each" '—' '—'
	fill_with_leases bench 1000
	versus ttl_ours@crowded ttl_ours 1
	put_ratio "ttl: acquire + release among $many live leases" 'among 1000' 0.8
	cluster_remove crowded
}

# leases_memory CLUSTER: bytes of dynamic shared memory that the leases there have.
#
# Segments are taken from the system in full when they are made, and a process maps
# one when it first needs something in it. So a session that has just seen every
# lease has all of them mapped, and its map of memory says how large they are.
# What is in none: the area's first MB, which is in the main segment.
leases_memory()
{
	sql "$1" "
		SELECT count(*) FROM revenant.leases \\g /dev/null
		SELECT coalesce(sum(('x' || lpad(m[2], 16, '0'))::bit(64)::bigint - ('x' || lpad(m[1], 16, '0'))::bit(64)::bigint), 0)
		  FROM regexp_matches(pg_read_file('/proc/self/maps'), '^([0-9a-f]+)-([0-9a-f]+) [^\n]* /dev/shm/PostgreSQL', 'gn') AS m"
}

# A transaction may take a thousand at most.
fill_with_leases()
{
	sql "$1" "DO \$\$
		BEGIN
			FOR base IN 0 .. $2 - 1 BY 1000 LOOP
				PERFORM revenant.acquire('live-' || i, ttl => '1 day')
				   FROM generate_series(base, base + 999) AS i;
				COMMIT;
			END LOOP;
		END \$\$"
}

row_ttl()
{
	local clients

	sql bench "
		CREATE SEQUENCE bench.token;
		CREATE TABLE bench.lock (
			name       text PRIMARY KEY,
			token      bigint NOT NULL DEFAULT nextval('bench.token'),
			expires_at timestamptz NOT NULL)"
	for clients in 1 8; do
		versus ttl_ours ttl_beside "$clients"
		put_ratio "ttl: acquire + release, $(clients "$clients")" \
			"hand-written \`INSERT … ON CONFLICT\` + \`DELETE\`" 1.0
	done
}

# A ttl lease is fenced and a row written. Beside: the same without a guard, with
# a SELECT of the two parameters in the place of the fence.
row_guard()
{
	acquire_for_clients bench 1
	sql bench "
		CREATE TABLE bench.guarded (i int, at timestamptz);
		CREATE TABLE bench.unguarded (LIKE bench.guarded);
		SELECT revenant.guard_table('bench.guarded', '0')" >/dev/null
	versus guard_ours guard_beside 1
	put_ratio 'guard: fence + single-row INSERT' 'the same unguarded' 0.9
	release_for_clients bench 1
}

# COPY into a guarded table, and into one whose guard is for replicas, too. Beside:
# the same unguarded. Unlogged, so that it is not the disk that is measured; who
# is first changes from round to round.
row_copy()
{
	local copy_token round kind
	local -A milliseconds=() times=() ratios=()

	copy_token=$(sql bench "SELECT revenant.acquire('copied', ttl => '1 h')")
	sql bench "
		CREATE UNLOGGED TABLE bench.unguarded_rows (i int, t text, at timestamptz);
		CREATE UNLOGGED TABLE bench.guarded_rows (LIKE bench.unguarded_rows);
		CREATE UNLOGGED TABLE bench.replica_rows (LIKE bench.unguarded_rows);
		SELECT revenant.guard_table('bench.guarded_rows', 'copied');
		SELECT revenant.guard_table('bench.replica_rows', 'copied', replicas => true);
		COPY (SELECT i, md5(i::text), now() FROM generate_series(1, 1000000) AS i) TO '$scratch/bench/rows'" >/dev/null
	for ((round = 1; round <= 2 * rounds; round++)); do
		for kind in $([ $((round % 2)) -eq 0 ] && echo 'unguarded guarded replica' || echo 'replica guarded unguarded'); do
			milliseconds[$kind]=$(copy_milliseconds "${kind}_rows" "revenant.fence('copied', $copy_token)")
			times[$kind]+=" ${milliseconds[$kind]}"
		done
		for kind in guarded replica; do
			ratios[$kind]+=" $(calculate "${milliseconds[unguarded]} / ${milliseconds[$kind]}")"
		done
		progress "    round $round: guarded ${milliseconds[guarded]}, with replicas ${milliseconds[replica]}, unguarded ${milliseconds[unguarded]} ms"
	done
	# shellcheck disable=SC2086
	put_copy guarded 'guard: COPY of 1,000,000 rows' '≥ 0.97' "$(at_least "$(median_of ${ratios[guarded]})" 0.97)"
	put_copy replica 'guard with replicas: COPY of 1,000,000 rows' '—' '—'
}

# put_copy KIND WORK GOAL MET: what row_copy has measured.
put_copy()
{
	# shellcheck disable=SC2086
	put "$2" "$(calculate "$(median_of ${times[$1]})" %.0f) ms" \
		"the same unguarded: $(calculate "$(median_of ${times[unguarded]})" %.0f) ms" \
		"$(calculate "$(median_of ${ratios[$1]})" %.2f)" "$3" "$4"
}

# copy_milliseconds TABLE FIRST: of a COPY and its commit, after SELECT FIRST.
copy_milliseconds()
{
	sql bench "
		BEGIN;
		SELECT $2 \\g /dev/null
		TRUNCATE bench.$1;
		SELECT clock_timestamp() AS began \\gset
		COPY bench.$1 FROM '$scratch/bench/rows';
		COMMIT;
		SELECT round(1000 * extract(epoch FROM clock_timestamp() - :'began'), 1);
		CHECKPOINT;"
}

# One session holds the lease and gives it up when the other one waits for it.
row_wake()
{
	local took

	sql bench '
		CREATE TABLE bench.held (i int);
		CREATE TABLE bench.released (i int, at timestamptz);
		CREATE TABLE bench.woken (i int, at timestamptz)'
	wake_waiter | sql_session bench &
	wake_holder | sql_session bench
	wait $!
	took=$(sql bench 'SELECT round(1000 * extract(epoch FROM
		percentile_cont(0.5) WITHIN GROUP (ORDER BY w.at - r.at))::numeric, 2)
		FROM bench.woken AS w JOIN bench.released AS r USING (i)')
	put "session: release to the return of the next waiter's acquire" \
		"$took ms" '—' "$took ms" '< 1 ms' "$(less "$took" 1)"
}

wake_holder()
{
	local i

	for ((i = 1; i <= times; i++)); do
		cat <<-SQL
			SELECT revenant.acquire('wake') AS token \\gset
			INSERT INTO bench.held VALUES ($i);
			SELECT bench.await('EXISTS (SELECT FROM revenant.leases WHERE lease = ''wake'' AND waiters = 1)') \\g /dev/null
			SELECT clock_timestamp() AS at, revenant.release('wake', :token) AS released \\gset
			INSERT INTO bench.released VALUES ($i, :'at');
			SELECT bench.await('EXISTS (SELECT FROM bench.woken WHERE i = $i)') \\g /dev/null
		SQL
	done
}

wake_waiter()
{
	local i

	for ((i = 1; i <= times; i++)); do
		cat <<-SQL
			SELECT bench.await('EXISTS (SELECT FROM bench.held WHERE i = $i)') \\g /dev/null
			SELECT revenant.acquire('wake') AS token, clock_timestamp() AS at \\gset
			SELECT revenant.release('wake', :token) \\g /dev/null
			INSERT INTO bench.woken VALUES ($i, :'at');
		SQL
	done
}
