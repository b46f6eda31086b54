#!/usr/bin/env bash
# test/fuzz.sh GO TIME PART/OF: runs fuzz targets for a while, all with 0/1: as many at a time as there
# are cores, each on one core. A package is built once for all its targets, which are neighbours in a part.
set -euo pipefail
cd "$(dirname "$0")/.."
export GO=$1 FUZZTIME=$2
part=${3%/*} of=${3#*/}

targets() { # lines of: package name
	find . \( -name .bin -o -name dist \) -prune -o -name '*_test.go' -print | while read -r file; do
		sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file" | sed "s|^|$(dirname "$file") |"
	done | sort
}

programs=$(mktemp -d)
trap 'rm -rf "$programs"' EXIT
export programs
# Where `go test -fuzz` keeps what it found, too.
found=$("$GO" env GOCACHE)/fuzz
export found

# The coverage of our own packages guides the fuzzer. With -fuzz, all that they use would be compiled for it too.
guided=$(GOWORK=off "$GO" list -m)
export guided
build() { # build PACKAGE
	local place=$programs/$1
	mkdir -p "$place"
	(cd "$1" && "$GO" list . >"$place/name" && "$GO" test -c -vet=off -ldflags '-s -w' -gcflags "$guided/...=-d=libfuzzer" -o "$place/fuzz" .)
}
export -f build

# Go's fuzzer sometimes fails a run whose time is up, with no input that failed
# (golang/go#75804): only such a run is repeated.
ended_late() { # ended_late OUTPUT
	grep -q '^ *context deadline exceeded$' <<<"$1" && ! grep -q 'Failing input written' <<<"$1"
}
export -f ended_late

run() { # run PACKAGE NAME
	local out code try cache
	cache=$found/$(cat "$programs/$1/name")
	mkdir -p "$cache"
	for try in 1 2 3; do
		code=0
		out=$(cd "$1" && "$programs/$1/fuzz" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$FUZZTIME" -test.parallel 1 -test.fuzzcachedir "$cache" 2>&1) || code=$?
		if [ $code -eq 0 ] || ! ended_late "$out"; then break; fi
	done
	printf '%s %s\n%s\n\n' "$1" "$2" "$(grep -v '^fuzz: elapsed: [0-9]*s, gathering' <<<"$out" | if [ $code -eq 0 ]; then tail -n 3; else cat; fi)"
	return $code
}
export -f run

known=$(targets)
count=$(wc -l <<<"$known")
all=$(awk -v part="$part" -v of="$of" -v count="$count" 'int((NR - 1) * of / count) == part' <<<"$known")
[ -n "$all" ] || { echo "no fuzz target found" >&2; exit 1; }
cores=$("$GO" env GOMAXPROCS 2>/dev/null)
cores=${cores:-$(getconf _NPROCESSORS_ONLN)}
# The first build compiles what the others share; they mostly link, which takes one core.
packages=$(cut -d' ' -f1 <<<"$all" | sort -u)
build "$(head -n 1 <<<"$packages")"
tail -n +2 <<<"$packages" | xargs -P "$cores" -I {} bash -c 'build "$1"' build {}
xargs -P "$cores" -L 1 bash -c 'run "$1" "$2"' run <<<"$all"
printf '%d of %d fuzz targets, %s each, nothing found\n' "$(wc -l <<<"$all")" "$count" "$FUZZTIME"
