#!/usr/bin/env bash
# Runs every fuzz target for a while: as many at a time as there are cores, each
# on one core.
set -euo pipefail
cd "$(dirname "$0")/.."
export GO=$1 FUZZTIME=$2

targets() { # lines of: package name
	git ls-files -co --exclude-standard '*_test.go' | while read -r file; do
		[ -f "$file" ] && sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file" | sed "s|^|./$(dirname "$file") |"
	done
}

# Go's fuzzer sometimes fails a run whose time is up, with no input that failed
# (golang/go#75804): only such a run is repeated.
ended_late() { # ended_late OUTPUT
	grep -q '^ *context deadline exceeded$' <<<"$1" && ! grep -q 'Failing input written' <<<"$1"
}
export -f ended_late

run() { # run PACKAGE NAME
	local out code try module=$1
	until [ -f "$module/go.mod" ]; do module=$(dirname "$module"); done
	for try in 1 2 3; do
		code=0
		out=$(cd "$module" && "$GO" test -run '^$' -fuzz "^$2\$" -fuzztime "$FUZZTIME" -parallel 1 "./${1#"$module"}" 2>&1) || code=$?
		if [ $code -eq 0 ] || ! ended_late "$out"; then break; fi
	done
	printf '%s %s\n%s\n\n' "$1" "$2" "$(grep -v '^fuzz: elapsed: [0-9]*s, gathering' <<<"$out" | if [ $code -eq 0 ]; then tail -n 3; else cat; fi)"
	return $code
}
export -f run

count=$(targets | wc -l)
[ "$count" -gt 0 ] || { echo "no fuzz target found" >&2; exit 1; }
cores=$("$GO" env GOMAXPROCS 2>/dev/null)
cores=${cores:-$(getconf _NPROCESSORS_ONLN)}
targets | xargs -P "$cores" -L 1 bash -c 'run "$1" "$2"' run
printf '%d fuzz targets, %s each, nothing found\n' "$count" "$FUZZTIME"
