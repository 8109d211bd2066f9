# shellcheck shell=bash disable=SC2034
#
# show.sh: how the demo speaks
#
# Steps with their times, SQL as a psql session would have it, and the table at
# the end. Needs cluster.sh.

shown=''		# what the last show printed, without its indentation
asked=''		# when it began, by that server's clock
sqlstate=''		# of the first error in it, '' if there was none

step_number=0
started=0		# when, in microseconds
claims=()		# what the summary prints: mark, claim and measure, tab-separated
broken=0		# how many claims did not hold

# Colours only for people.
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
	bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' red=$'\e[31m' plain=$'\e[0m'
else
	bold='' dim='' green='' red='' plain=''
fi

microseconds() { echo "${EPOCHREALTIME//[!0-9]/}"; }

clock_start() { started=$(microseconds); }

# seconds_since MICROSECONDS: with one decimal.
seconds_since()
{
	local tenths=$((($(microseconds) - $1) / 100000))

	echo "$((tenths / 10)).$((tenths % 10))"
}

# step TITLE
step()
{
	step_number=$((step_number + 1))
	printf '\n%s%2d  %s%s%s\n' "$bold" "$step_number" "$1" "$plain" \
		"$dim   [$(seconds_since "$started") s]$plain"
}

note() { printf '      %s\n' "$1"; }

# show NAME SQL, show_as ROLE NAME SQL: runs it there, as a session would look.
# An error is part of the show; what it was is in sqlstate.
show() { show_as postgres "$@"; }

show_as()
{
	local prompt='=#'

	if [ "$1" != postgres ]; then
		prompt='=>'
	fi
	# psql echoes each line before it runs what it has read, so the lines of the
	# script that come back in order are the ones to be given a prompt. What is
	# said before ECHO is set is not seen.
	shown=$(client "$2" psql --no-psqlrc --quiet --username="$1" --set=VERBOSITY=verbose \
		--pset=footer=off --pset=null=NULL 2>&1 <<-PSQL
			SELECT clock_timestamp() AS asked \\gset
			\\o $scratch/asked
			\\qecho :asked
			\\o
			\\set QUIET off
			\\set ECHO all
			${3#$'\n'}
		PSQL
	) || true
	asked=$(cat "$scratch/asked")
	awk -v prompt="$2$prompt " -v more="$2${prompt/=/-} " \
		-v bold="$bold" -v plain="$plain" -v red="$red" '
		NR == FNR            { line[NR] = $0; lines = NR; next }
		FNR == 1             { next_line = 1; start = 1 }
		next_line <= lines && $0 == line[next_line] {
			printf "      %s%s%s%s\n", start ? prompt : more, bold, $0, plain
			body = body_open($0, body)
			start = !body && /;$/
			next_line++
			next
		}
		/^LOCATION:/ || /^$/ { next }
		/^(ERROR|FATAL):/    { printf "      %s%s%s\n", red, $0, plain; next }
		                     { printf "      %s\n", $0 }
		# Are we between two $$?
		function body_open(text, open) {
			while (sub(/\$\$/, "", text))
				open = !open
			return open
		}
	' <(printf '%s\n' "${3#$'\n'}") <(printf '%s\n' "$shown")
	sqlstate=$(sed -n 's/^\(ERROR\|FATAL\):  \([0-9A-Z]\{5\}\): .*/\2/p' <<<"$shown" | head -n 1)
}

# shown_number: the last line of the last show that is a number alone.
shown_number() { sed -n 's/^ *\([0-9]\{1,\}\)$/\1/p' <<<"$shown" | tail -n 1; }

# truth VALUE: t as SQL says it, or true.
truth() { [ "$1" = t ] || [ "$1" = true ]; }

# holds CLAIM MEASURE VALUE: remembers it for the summary, and whether it held.
holds()
{
	local mark=yes

	if ! truth "$3"; then
		mark=NO
		broken=$((broken + 1))
		printf '      %sdid not hold: %s%s\n' "$red" "$1" "$plain"
	fi
	claims+=("$mark"$'\t'"$1"$'\t'"$2")
}

# summary: the table. Fails if a claim did not hold.
summary()
{
	local claim mark text measure colour

	printf '\n%sWhat was shown%s\n\n' "$bold" "$plain"
	for claim in "${claims[@]}"; do
		IFS=$'\t' read -r mark text measure <<<"$claim"
		colour=$green
		if [ "$mark" = NO ]; then
			colour=$red
			mark='✗'
		else
			mark='✓'
		fi
		printf '  %s%s%s  %-66s  %s\n' "$colour" "$mark" "$plain" "$text" "$measure"
	done
	printf '\n  %d of %d claims held, in %s s.\n' \
		$((${#claims[@]} - broken)) ${#claims[@]} "$(seconds_since "$started")"
	[ "$broken" -eq 0 ]
}
