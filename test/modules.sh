#!/usr/bin/env bash
# test/modules.sh "MODULES" "FIRST" FLAG...: runs `go test FLAG...` on the root module, its
# packages FIRST at the beginning, and then on the modules beside it. At the same time both take
# longer on two processors than one after the other, and tests with a bound of time fail.
set -euo pipefail
cd "$(dirname "$0")/.."
modules=$1 first=$2
shift 2

code=0
echo "$GO test $* ./..."
# shellcheck disable=SC2086 # a list
"$GO" test "$@" $first ./... || code=$?
for module in $modules; do
	(cd "$module" && "$GO" test "$@" ./...) || code=$?
done
exit "$code"
