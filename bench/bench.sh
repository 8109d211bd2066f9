#!/usr/bin/env bash
#
# bench.sh: what revenant costs, measured beside the alternative in one run
#
# Prints a markdown table. A goal that is missed is told there and is no error;
# a row that could not be measured is one.
#
#	BENCH_ONLY=session,renew	only these rows (the names are in the list below)
#	BENCH_SECONDS=4				of one round of pgbench
#	BENCH_ROUNDS=5				for each of the two sides
#	BENCH_TIMES=50				how often an interval is measured
#	BENCH_LEASES=1000000		how many live leases are many
#	BENCH_ENTITIES=1000000		how many entities are many
#	BENCH_IDLE_SECONDS=60		how long idle supervisors are watched
#	BENCH_SPLITS=1000000		how many splits that wait are many
#	BENCH_XMIN_SECONDS=120		how long a queue is worked on under an old snapshot before it is measured

# What only rows call looks unreachable to the linter.
# shellcheck disable=SC2317

set -euo pipefail
shopt -s inherit_errexit

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=demo/cluster.sh
source "$here/../demo/cluster.sh"
# shellcheck source=bench/rounds.sh
source "$here/rounds.sh"
# shellcheck source=bench/lease_rows.sh
source "$here/lease_rows.sh"
# shellcheck source=bench/task_rows.sh
source "$here/task_rows.sh"
# shellcheck source=bench/entity_rows.sh
source "$here/entity_rows.sh"
# shellcheck source=bench/plan_rows.sh
source "$here/plan_rows.sh"

cores=$(nproc)
times=${BENCH_TIMES:-50}

all_rows=(session wake renew update xmin ttl crowd guard copy create restart promote idle due
	call hot million save relaxed send
	pull batch claim aged publish poll)
IFS=, read -r -a wanted_rows <<<"${BENCH_ONLY:-$(IFS=,; echo "${all_rows[*]}")}"

# ---------------------------------------------------------------------------
# The server
# ---------------------------------------------------------------------------

# bench_cluster NAME PORT [SETTING…]: with nothing in the background that writes
# of its own.
bench_cluster()
{
	cluster_create "$1" "$2" <<-SETTINGS
		shared_buffers = 256MB
		max_wal_size = 16GB
		checkpoint_timeout = 1h
		autovacuum = off
		synchronous_commit = on
		fsync = on
		jit = off
		$(printf '%s\n' "${@:3}")
	SETTINGS
	cluster_start "$1"
	bench_database "$1"
}

# bench_database NAME: what the rows need in a database of that cluster.
bench_database()
{
	sql "$1" "
		CREATE EXTENSION revenant;
		CREATE SCHEMA bench;
		CREATE FUNCTION bench.await(condition text) RETURNS void LANGUAGE plpgsql AS \$\$
		DECLARE
			met boolean;
		BEGIN
			FOR i IN 1 .. 20000 LOOP
				EXECUTE 'SELECT ' || condition INTO met;
				IF met THEN
					RETURN;
				END IF;
				PERFORM pg_sleep(0.0005);
			END LOOP;
			RAISE EXCEPTION 'not met in time: %', condition;
		END \$\$;"
}

# sql_session NAME: runs the psql script on stdin in one session.
sql_session()
{
	client "$1" psql --no-psqlrc --quiet --tuples-only --no-align --set=ON_ERROR_STOP=1 >&2
}

# hold_xmin NAME: from now on another session holds a snapshot there, until the server stops.
hold_xmin()
{
	PGAPPNAME=holder sql_session "$1" 2>/dev/null <<-'SQL' &
		BEGIN ISOLATION LEVEL REPEATABLE READ;
		SELECT pg_current_xact_id() \g /dev/null
		SELECT pg_sleep(86400);
	SQL
	await "$1" 10 "EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'holder' AND backend_xmin IS NOT NULL)"
}

# median_milliseconds NAME QUERY: of the intervals it returns.
median_milliseconds()
{
	sql "$1" "SELECT round((1000 * extract(epoch FROM percentile_cont(0.5) WITHIN GROUP (ORDER BY took)))::numeric, 1) FROM ($2) AS t (took)"
}

# ---------------------------------------------------------------------------
# The table
# ---------------------------------------------------------------------------

# put WORK OURS BESIDE VALUE GOAL MET. Rows are measured in subshells, so what
# they found goes into a file.
put()
{
	printf '| %s | %s | %s | %s | %s | %s |\n' "$@" >>"$scratch/table"
	progress "    $1: $4 (goal: $5, met: $6)"
}

# put_ratio WORK BESIDE [GOAL]: what versus has just measured.
put_ratio()
{
	local goal='—' met='—'

	if [ -n "${3:-}" ]; then
		goal="≥ $3"
		met=$(at_least "$ratio" "$3")
	fi
	put "$1" "$(calculate "$ours" %.0f)/s" "$2: $(calculate "$beside" %.0f)/s" \
		"$(calculate "$ratio" %.2f)" "$goal" "$met"
}

clients() { if [ "$1" -eq 1 ]; then echo '1 client'; else echo "$1 clients"; fi; }

print_facts()
{
	local server

	server=$(sql bench 'SHOW server_version')
	cat <<-EOT

		- machine: $cores cores ($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)), $(awk '/^MemTotal/ { printf "%.0f GB", $2 / 1048576 }' /proc/meminfo), load $(cut -d ' ' -f 1 /proc/loadavg) at the end, scratch folder on $(df --output=fstype "$scratch" | tail -n 1)
		- server: PostgreSQL $server; $(sql bench "
			SELECT string_agg(name || ' = ' || current_setting(name), ', ' ORDER BY name)
			  FROM pg_settings WHERE name IN ('autovacuum', 'checkpoint_timeout', 'fsync', 'jit',
				'max_wal_size', 'shared_buffers', 'synchronous_commit', 'wal_level')")
		- pgbench: prepared statements, $rounds rounds of $seconds s for each side, in turns; rates are medians, a ratio is the median of the rounds' ratios
		- intervals: medians of $times, both ends by the server's clock; promotions: 3, pg_cron's: $cron_times

	EOT
}

print_table()
{
	echo '| work | ours | beside | ratio or value | goal | met |'
	echo '| --- | ---: | ---: | ---: | ---: | --- |'
	cat "$scratch/table"
}

# ---------------------------------------------------------------------------

for row in "${wanted_rows[@]}"; do
	[[ " ${all_rows[*]} " == *" $row "* ]] || die "no row \"$row\"; there are: ${all_rows[*]}"
done

row_job=''		# the process group of the row that is being measured
row_status=0

# What a signal must end first, or it would start servers behind our back.
end_row()
{
	[ -z "$row_job" ] || kill -s TERM -- "-$row_job" 2>/dev/null || true
	scratch_close
}

# measure ROW: in a process group of its own, so that a signal need not wait
# for it. Leaves its status in row_status; as a condition it would lose set -e.
measure()
{
	row_status=0
	set -m
	"row_$1" </dev/null &
	row_job=$!
	set +m
	wait "$row_job" || row_status=$?
	row_job=''
}

install_packages
# Before the server is copied, since pg_cron is to be in the copy.
[[ " ${wanted_rows[*]} " != *' create '* ]] || "$top/test/harness/packages" "+postgresql-$PGMAJOR-cron"
scratch_open revenant-bench
trap end_row EXIT
stage_server
bench_cluster bench 54330
: >"$scratch/table"

failed=0
for row in "${wanted_rows[@]}"; do
	progress "$row"
	measure "$row"
	if [ "$row_status" -ne 0 ]; then
		failed=1
		sql bench 'SELECT revenant.release(lease, token) FROM revenant.leases' >/dev/null
		put "$row" '—' '—' 'could not be measured' '—' '—'
	fi
done

print_facts
print_table
exit "$failed"
