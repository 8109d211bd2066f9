# Sourced by the scripts beside it.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
supported_majors='15 16 17 18'

say() { printf '%s\n' "$*"; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 2; }

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		die "needs root or sudo to run: $*"
	fi
}

# PGMAJOR as given, else the first supported one that is installed with its
# headers, else the first that can be installed.
choose_major() {
	local major
	[ -z "${PGMAJOR:-}" ] || return 0
	for major in $supported_majors; do
		if [ -x "/usr/lib/postgresql/$major/bin/postgres" ] && [ -x "/usr/lib/postgresql/$major/bin/pg_config" ]; then
			PGMAJOR=$major
			return 0
		fi
	done
	command -v apt-cache >/dev/null || die "no supported PostgreSQL ($supported_majors) is installed, and there is no apt to install one"
	for attempt in 1 2; do
		for major in $supported_majors; do
			if [ -n "$(apt-cache show "postgresql-$major" 2>/dev/null)" ]; then
				PGMAJOR=$major
				return 0
			fi
		done
		# A machine that has never fetched the lists of packages.
		[ $attempt = 2 ] || as_root apt-get -q update || true
	done
	die "this system's package lists have no supported PostgreSQL ($supported_majors)"
}

# Where servers that were built from source are kept.
servers_folder() {
	if [ -n "${REVENANT_SERVERS:-}" ]; then
		say "$REVENANT_SERVERS"
	elif [ "$(id -u)" = 0 ]; then
		say /var/cache/revenant-servers
	else
		say "${XDG_CACHE_HOME:-$HOME/.cache}/revenant-servers"
	fi
}
