#!/usr/bin/env bash
# test/modules.sh "MODULES" "ALONE" "FIRST" "UNRACED" FLAG...: runs `go test FLAG...` on everything, in
# two lanes at the same time. One has the packages ALONE, which start most of the servers, one after
# the other, and then the modules beside the root. The other has the rest of the root module two
# packages at a time, FIRST at the beginning. With more than three at a time tests with a bound of
# time fail on two processors. Packages and modules UNRACED run without -race, and before the others.
set -euo pipefail
cd "$(dirname "$0")/.."
modules=$1 alone=$2 first=$3 unraced=$4
shift 4
flags=("$@")
plain=() raced=()
for flag in "$@"; do
	if [ "$flag" = -race ]; then raced=(env CGO_ENABLED=1); else plain+=("$flag"); fi # .ci/run turns cgo off
done

# What servers are started from is made once for all packages. The name is one of a sandbox's folders, with
# our process in it: a later sandbox removes it where we could not.
CDC_RELAY_TEMPLATES=$(mktemp -d "${TMPDIR:-/tmp}/cdc-relay-sandbox-templates-$$-XXXXXX")
chmod 711 "$CDC_RELAY_TEMPLATES" # servers of root run as another account
export CDC_RELAY_TEMPLATES
trap 'rm -rf "$CDC_RELAY_TEMPLATES"' EXIT

# is_unraced is for what the list has, and with a list for packages that start no goroutine and share nothing, in
# source and tests: the detector has nothing to find there.
is_unraced() { # is_unraced FOLDER
	case " $unraced " in *" $1 "*) return 0 ;; esac
	[ -n "$unraced" ] && ! grep -qE '^[[:space:]]*go |\.Go\(|\.Parallel\(|"sync["/]|sync/errgroup"' "$1"/*.go
}

# go_test tests packages, those that are unraced before the others.
go_test() { # go_test P PACKAGE...
	local at_a_time=$1 package quick=() slow=() code=0
	shift
	for package in "$@"; do
		if is_unraced "${package/#$root/.}"; then quick+=("$package"); else slow+=("$package"); fi
	done
	[ ${#quick[@]} -eq 0 ] || "$GO" test "${plain[@]}" -p "$at_a_time" "${quick[@]}" || code=$?
	[ ${#slow[@]} -eq 0 ] || "${raced[@]}" "$GO" test "${flags[@]}" -p "$at_a_time" "${slow[@]}" || code=$?
	return "$code"
}

one_by_one() {
	local module how code=0
	# shellcheck disable=SC2086 # a list
	go_test 1 $alone || code=$?
	for module in $modules; do
		how=("${raced[@]}" "$GO" test "${flags[@]}")
		if [[ " $unraced " == *" $module "* ]]; then how=("$GO" test "${plain[@]}"); fi
		(cd "$module" && "${how[@]}" -p 1 ./...) || code=$?
	done
	return "$code"
}

root=$(GOWORK=off "$GO" list -m)
rest=()
# shellcheck disable=SC2086 # a list
for package in $("$GO" list $first ./...); do # the order of the arguments is kept
	case " $alone " in *" ${package/#$root/.} "*) ;; *) rest+=("$package") ;; esac
done
code=0
echo "$GO test $*: $alone and the modules one by one, beside all others${unraced:+; without -race: $unraced}"
one_by_one & lane=$!
go_test 2 "${rest[@]}" || code=$?
wait "$lane" || code=$?
exit "$code"
