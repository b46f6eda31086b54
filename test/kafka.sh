#!/usr/bin/env bash
# Runs the tests that have a real Apache Kafka once for each of its versions, on one PostgreSQL, and
# prints a table. The versions are those that README.md names.
#
#   test/kafka.sh GO RACE [VERSION...]
set -uo pipefail
go=$1 race=$2
shift 2
[ $# -gt 0 ] || set -- 3.5.2 3.9.1 4.3.1
cd "$(dirname "$0")/.."

# Tests in files that ask the harness for a real broker.
names() { grep -lE 'harness\.(Kafka|OwnKafka|EachBroker|KafkaProgram)\(|onEach\(' "$1"/*_test.go | xargs sed -nE 's/^func (Test[A-Za-z0-9_]+)\(t .*/\1/p' | grep -v '^TestMain$' | paste -sd '|'; }

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0 rows=()
for version; do
	echo "== Apache Kafka $version"
	start=$SECONDS code=0
	: >"$log"
	for package in ./sink/kafka ./sink/topics ./test/integration; do
		CDC_RELAY_REQUIRE=servers CDC_RELAY_TEST_POSTGRES_VERSIONS=18 CDC_RELAY_TEST_KAFKA_VERSION=$version \
			"$go" test $race -count=1 -timeout 25m -v -run "^($(names "$package"))\$" "$package" >>"$log" 2>&1 || code=1
	done
	count() { grep -cE "^ *--- $1: " "$log" || true; }
	passed=$(count PASS) bad=$(count FAIL) skipped=$(count SKIP) verdict=ok
	[ "$passed" -gt 20 ] || code=1
	if [ "$code" -ne 0 ]; then
		failed=1 verdict=FAILED
		grep -vE '^ *(=== |--- PASS)' "$log"
	fi
	rows+=("$(printf '%-12s %-8s %7d %7d %8d %7ds' "$version" "$verdict" "$passed" "$bad" "$skipped" $((SECONDS - start)))")
done

printf '\n%-12s %-8s %7s %7s %8s %8s\n' 'Apache Kafka' verdict passed failed skipped took
printf '%s\n' "${rows[@]}"
exit $failed
