#!/usr/bin/env bash
# Runs the integration tests once for each server version and prints a table.
set -uo pipefail
go=$1 race=$2
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0 rows=()
for version in 14 15 16 17 18; do
	echo "== PostgreSQL $version"
	start=$SECONDS
	CDC_RELAY_TEST_POSTGRES_VERSIONS=$version "$go" test $race -count=1 -timeout 15m -v ./test/integration/... >"$log" 2>&1
	code=$?
	count() { grep -cE "^ *--- $1: .*/postgres$version" "$log" || true; }
	passed=$(count PASS) bad=$(count FAIL) skipped=$(count SKIP) verdict=ok
	if [ "$code" -ne 0 ]; then
		failed=1 verdict=FAILED
		grep -vE '^(=== |--- PASS)' "$log"
	fi
	rows+=("$(printf '%-12s %-8s %7d %7d %8d %7ds' "$version" "$verdict" "$passed" "$bad" "$skipped" $((SECONDS - start)))")
done

printf '\n%-12s %-8s %7s %7s %8s %8s\n' PostgreSQL verdict passed failed skipped took
printf '%s\n' "${rows[@]}"
exit $failed
