#!/usr/bin/env bash
# test/modules.sh "MODULES" "ALONE" "FIRST" FLAG...: runs `go test FLAG...` on everything, in two
# lanes at the same time. One has the packages ALONE, which start most of the servers, one after the
# other, and then the modules beside the root. The other has the rest of the root module two
# packages at a time, FIRST at the beginning. With more than three at a time tests with a bound of
# time fail on two processors.
set -euo pipefail
cd "$(dirname "$0")/.."
modules=$1 alone=$2 first=$3
shift 3

one_by_one() { # one_by_one FLAG...
	local module code=0
	# shellcheck disable=SC2086 # a list
	"$GO" test "$@" -p 1 $alone || code=$?
	for module in $modules; do
		(cd "$module" && "$GO" test "$@" -p 1 ./...) || code=$?
	done
	return "$code"
}

root=$("$GO" list -m)
rest=()
# shellcheck disable=SC2086 # a list
for package in $("$GO" list $first ./...); do # the order of the arguments is kept
	case " $alone " in *" ${package/#$root/.} "*) ;; *) rest+=("$package") ;; esac
done
code=0
echo "$GO test $*: $alone and the modules one by one, beside all others"
one_by_one "$@" & lane=$!
"$GO" test "$@" -p 2 "${rest[@]}" || code=$?
wait "$lane" || code=$?
exit "$code"
