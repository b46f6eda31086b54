#!/usr/bin/env bash
# test/modules.sh "MODULES" "FIRST" FLAG...: runs `go test $RACE FLAG...` on the root module, its
# packages FIRST at the beginning, and then on the modules beside it. With three packages
# at a time of each, both take longer on two processors, and tests with a bound of time fail.
#
# Packages in $UNRACED, which FIRST names too, run without $RACE and one at a time, beside two at a
# time of the others. The modules follow them, with it: three packages at a time as without $UNRACED.
set -euo pipefail
cd "$(dirname "$0")/.."
modules=$1 first=$2
shift 2
RACE=${RACE:-} UNRACED=${UNRACED:-}

in_modules() { # in_modules FLAG...
	local module code=0
	for module in $modules; do
		(cd "$module" && "$GO" test "$@" ./...) || code=$?
	done
	return "$code"
}

code=0
if [ -z "$RACE" ] || [ -z "$UNRACED" ]; then
	echo "$GO test $RACE $* ./..."
	# shellcheck disable=SC2086 # lists
	"$GO" test $RACE "$@" $first ./... || code=$?
	# shellcheck disable=SC2086
	in_modules $RACE "$@" || code=$?
	exit "$code"
fi

beside() { # beside FLAG...
	local code=0
	# shellcheck disable=SC2086
	"$GO" test "$@" -p 1 $UNRACED || code=$?
	# shellcheck disable=SC2086
	in_modules $RACE "$@" -p 1 || code=$?
	return "$code"
}

module=$("$GO" list -m)
left=()
# shellcheck disable=SC2086
for package in $("$GO" list $first ./...); do # the order of the arguments is kept
	case " $UNRACED " in *" ${package/#$module/.} "*) ;; *) left+=("$package") ;; esac
done
echo "$GO test $* $UNRACED, and beside it with $RACE all others"
beside "$@" & pid=$!
"$GO" test $RACE "$@" -p 2 "${left[@]}" || code=$?
wait "$pid" || code=$?
exit "$code"
