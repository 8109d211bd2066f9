# shellcheck shell=bash disable=SC2034
#
# rounds.sh: how the benchmark measures two things fairly
#
# Two scripts that do the same work are run in turns, ours first, in short
# rounds, so that whatever else the machine does meets both. Of each round one
# ratio is taken, and of the ratios the median. Needs cluster.sh.

seconds=${BENCH_SECONDS:-4}		# of one round
rounds=${BENCH_ROUNDS:-5}		# of each of the two

declare -A token=()		# what the scripts use, by cluster
defines=()				# what some of them use beside: pgbench options

# What versus found: medians.
ours=0			# transactions per second
beside=0
ratio=0

progress() { printf '%s\n' "$*" >&2; }

# median: of the numbers on stdin, one a line.
median()
{
	sort -g | awk '{ v[NR] = $1 }
		END { if (NR) printf "%.9g\n", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

median_of() { printf '%s\n' "$@" | median; }

# calculate EXPRESSION [FORMAT]
calculate() { awk "BEGIN { printf \"${2:-%.9g}\", $1 }"; }

# at_least A B, less A B: yes or no, as the table says it
at_least() { calculate "($1 >= $2) ? \"yes\" : \"no\"" %s; }
less() { calculate "($1 < $2) ? \"yes\" : \"no\"" %s; }

# pgbench_run SCRIPT[@CLUSTER] CLIENTS [pgbench option…]: its report. The cluster
# is bench unless it is named; the script's :token is that cluster's.
pgbench_run()
{
	local script=${1%@*} clients=$2 name
	name=$(cluster_of "$1")

	shift 2
	client "$name" pgbench --no-vacuum --protocol=prepared --client="$clients" \
		--jobs="$((clients < cores ? clients : cores))" --define=token="${token[$name]:-0}" \
		--define=entities="$entities" "${defines[@]}" \
		--file="$here/pgbench/$script.sql" "$@" 2>&1
}

# wal_of SCRIPT: bytes of WAL of 10,000 transactions of one client. The least of three
# runs: what a server writes for itself is not the script's.
wal_of()
{
	local before

	for _ in 1 2 3; do
		before=$(sql bench 'SELECT pg_current_wal_insert_lsn()')
		pgbench_run "$1" 1 --transactions=10000 >/dev/null
		sql bench "SELECT pg_current_wal_insert_lsn() - '$before'"
	done | sort -n | head -n 1
}

cluster_of() { if [[ $1 == *@* ]]; then echo "${1#*@}"; else echo bench; fi; }

# rate SCRIPT[@CLUSTER] CLIENTS: of one round, in transactions a second. A client
# that fails makes the number worthless; so it ends the row.
rate()
{
	local report tps

	report=$(pgbench_run "$@" --time="$seconds") || { progress "$report"; return 1; }
	tps=$(sed -n 's/^tps = \([0-9.]*\) (without.*/\1/p' <<<"$report")
	if [ -z "$tps" ] || grep -q 'aborted' <<<"$report"; then
		progress "$report"
		return 1
	fi
	echo "$tps"
}

# versus OURS BESIDE CLIENTS [READY]: both as rate takes them. READY SCRIPT, if it is
# given, is called before each round: what one uses up is made anew there.
versus()
{
	local round a b ready=${4:-:}
	local -a our_rates=() their_rates=() ratios=()

	for ((round = 1; round <= rounds; round++)); do
		# Dead rows of the round before are nobody's merit.
		"$ready" "$1"
		sql "$(cluster_of "$1")" VACUUM
		a=$(rate "$1" "$3")
		"$ready" "$2"
		sql "$(cluster_of "$2")" VACUUM
		b=$(rate "$2" "$3")
		our_rates+=("$a")
		their_rates+=("$b")
		ratios+=("$(calculate "$a / $b")")
		progress "    round $round: ours $a, beside $b a second"
	done
	ours=$(median_of "${our_rates[@]}")
	beside=$(median_of "${their_rates[@]}")
	ratio=$(median_of "${ratios[@]}")
}
