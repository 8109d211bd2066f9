# shellcheck shell=bash
#
# cluster.sh: servers of one's own, for the demo and the benchmark
#
# Source this file, call install_packages, scratch_open and stage_server, then
# what is needed of the rest. Everything lives in one scratch folder: the copy of the server,
# the data folders, the sockets and the logs. No server listens on a network
# address, a standby follows through the socket, too; so nothing here can meet
# another cluster of this machine.
#
# NOTES
#	The scratch folder has mode 0700: the servers trust whoever can reach
#	their socket, and that is their own user and root, nobody else.
#
#	scratch_close runs on every way out (the end, an error, Ctrl-C, SIGTERM,
#	SIGHUP). It stops what runs and removes the folder, and may run twice.

# shellcheck source=test/harness/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../test/harness/lib.sh"

scratch=''			# the folder, '' when there is none
server_user=''		# who runs the servers, '' for whoever runs this script
bin=''				# the programs of the staged server
declare -A port=()	# of each cluster, by its name

# A caller's libpq settings must not lead anywhere else. PGMAJOR is the harness's.
for variable in "${!PG@}"; do
	[ "$variable" = PGMAJOR ] || unset "$variable"
done
export LC_ALL=C PGUSER=postgres PGCONNECT_TIMEOUT=10

# ---------------------------------------------------------------------------
# The scratch folder
# ---------------------------------------------------------------------------

# scratch_open PREFIX: makes the folder and sees to it that it goes again.
scratch_open()
{
	trap scratch_close EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM

	scratch=$(mktemp -d "/tmp/$1.XXXXXX")
	if [ "$(id -u)" -eq 0 ]; then
		server_user=$(server_user_of_root)
		chown "$server_user" "$scratch"
	fi
}

# The server refuses to run as root.
server_user_of_root()
{
	if id postgres >/dev/null 2>&1; then echo postgres; else echo nobody; fi
}

# scratch_close: no process and no file is left. Keeps the exit status.
scratch_close()
{
	local status=$? pid_file signal

	trap '' HUP INT TERM
	[ -n "$scratch" ] || return "$status"

	for pid_file in "$scratch"/*/postmaster.pid; do
		[ -e "$pid_file" ] || continue
		cluster_stop "$(basename "$(dirname "$pid_file")")" immediate || true
	done
	# Usually nobody. A server that was only just starting, perhaps.
	for signal in TERM KILL; do
		processes_of "$scratch" | xargs --no-run-if-empty kill -s "$signal" 2>/dev/null || true
		gone_within_a_second "$scratch" && break
	done
	rm -rf "$scratch"
	scratch=''
	trap - EXIT HUP INT TERM
	return "$status"
}

gone_within_a_second()
{
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		[ -n "$(processes_of "$1")" ] || return 0
		sleep 0.1
	done
	return 1
}

# processes_of FOLDER: the processes that work in it or run a program of it.
processes_of()
{
	local process

	for process in /proc/[0-9]*; do
		case $(readlink "$process/cwd" "$process/exe" 2>/dev/null || true) in
			*"$1"*) basename "$process" ;;
		esac
	done
}

# as_server COMMAND…: runs it as the servers' user, from a folder it may enter.
as_server()
(
	cd "$scratch" || exit
	if [ -n "$server_user" ]; then
		exec setpriv --reuid="$server_user" \
			--regid="$(id -g "$server_user")" --init-groups "$@"
	fi
	exec "$@"
)

# install_packages: before the scratch folder, since they may bring the user.
install_packages()
{
	choose_major
	export PGMAJOR
	"$top/test/harness/packages" build
}

# stage_server: a copy of the server that has the extension, in $bin.
stage_server()
{
	"$top/test/harness/stage" "$scratch/server"
	bin=$scratch/server/bin
}

# ---------------------------------------------------------------------------
# Clusters
# ---------------------------------------------------------------------------

# logged NAME COMMAND…: silent, unless it fails; then with the reason.
logged()
{
	local log=$scratch/$1.command

	shift
	"$@" >"$log" 2>&1 </dev/null || { cat "$log" >&2; return 1; }
}

# cluster_create NAME PORT: a new cluster, with the settings read from stdin.
cluster_create()
{
	port[$1]=$2
	logged "$1" as_server "$bin/initdb" --pgdata="$scratch/$1" \
		--username=postgres --auth=trust --encoding=UTF8 --locale=C --no-sync
	cluster_configure "$1" "shared_preload_libraries = 'revenant'
max_worker_processes = 32"
	cluster_configure "$1" "$(cat)"
	cluster_name "$1"
}

# cluster_follow NAME PORT UPSTREAM: a standby of a running cluster, a copy of it.
cluster_follow()
{
	port[$1]=$2
	logged "$1" as_server "$bin/pg_basebackup" --pgdata="$scratch/$1" \
		--host="$scratch" --port="${port[$3]}" --checkpoint=fast \
		--wal-method=stream --write-recovery-conf --no-sync
	cluster_name "$1"
}

# What must differ from one cluster to the next. The last line of a setting wins.
cluster_name()
{
	cluster_configure "$1" "port = ${port[$1]}
listen_addresses = ''
unix_socket_directories = '$scratch'
cluster_name = '$1'
revenant.node_name = '$1'"
}

cluster_configure() { printf '%s\n' "$2" >>"$scratch/$1/postgresql.conf"; }

cluster_start()
{
	logged "$1" as_server "$bin/pg_ctl" start --silent --wait \
		--pgdata="$scratch/$1" --log="$scratch/$1.log" ||
		{ tail -n 20 "$scratch/$1.log" >&2; return 1; }
}

# cluster_stop NAME MODE: waits until it is gone; one that does not run is fine.
cluster_stop()
{
	[ -e "$scratch/$1/postmaster.pid" ] || return 0
	logged "$1" as_server "$bin/pg_ctl" stop --silent --wait --timeout=20 \
		--mode="$2" --pgdata="$scratch/$1"
}

# cluster_remove NAME: stops it and forgets it.
cluster_remove()
{
	cluster_stop "$1" immediate
	rm -rf "${scratch:?}/$1" "$scratch/$1".*
	unset "port[$1]"
}

# ---------------------------------------------------------------------------
# Clients
# ---------------------------------------------------------------------------

# client NAME COMMAND…: a program of the server, pointed at that cluster.
client()
{
	local name=$1 program=$2

	shift 2
	PGHOST=$scratch PGPORT=${port[$name]} PGDATABASE=${database:-postgres} \
		"$bin/$program" "$@"
}

# sql NAME SQL [psql option…]: the bare values; an error ends the script.
sql()
{
	local name=$1 text=$2

	shift 2
	client "$name" psql --no-psqlrc --quiet --tuples-only --no-align \
		--field-separator=' ' --set=ON_ERROR_STOP=1 "$@" <<<"$text"
}

# await NAME SECONDS CONDITION [INTERVAL]: until the condition is true there, with
# a look every so many seconds.
await()
{
	local interval=${4:-0.002}

	sql "$1" "DO \$await\$
		BEGIN
			FOR look IN 1 .. $2 / $interval LOOP
				IF ($3) THEN
					RETURN;
				END IF;
				PERFORM pg_catalog.pg_sleep($interval);
				PERFORM pg_catalog.pg_stat_clear_snapshot();
			END LOOP;
			RAISE EXCEPTION USING MESSAGE = 'not true within $2 s on $1',
				DETAIL = \$condition\$$3\$condition\$;
		END \$await\$;"
}
