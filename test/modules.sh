#!/usr/bin/env bash
# test/modules.sh "MODULES" "FIRST" FLAG...: runs `go test FLAG...` on the root module, its
# packages FIRST at the beginning, and on the modules beside it at the same time, because
# their tests mostly wait. What these said comes at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
modules=$1 first=$2
shift 2

# What the tests of both are built from: compiled once, before both ask for it at once.
race=
if [ "${1:-}" = -race ]; then race=-race; fi
"$GO" build $race ./test/harness/relaytest

said=$(mktemp)
trap 'rm -f "$said"' EXIT
(for module in $modules; do (cd "$module" && "$GO" test "$@" ./...); done) >"$said" 2>&1 &
beside=$!

code=0
echo "$GO test $* ./..."
# shellcheck disable=SC2086 # a list
"$GO" test "$@" $first ./... || code=$?
wait "$beside" || code=$?
cat "$said"
exit "$code"
