#!/usr/bin/env bash
# Runs the integration tests with their shared servers in containers, asks the engine what ran,
# and looks that nothing stays behind, neither at the end nor after kill -9 of a test.
#
#   test/engine/engine.sh bash test/containers.sh [ARGUMENT OF go test...]
set -euo pipefail
cd "$(dirname "$0")/.."
export CDC_RELAY_TEST_SERVERS=containers
: "${CDC_RELAY_REQUIRE:=servers}"
export CDC_RELAY_REQUIRE
unset CDC_RELAY_TEST_POSTGRES_URL CDC_RELAY_TEST_KAFKA_BROKERS

failed() { echo "FAILED: $*" >&2; exit 1; }
left() { docker ps -aq --filter label=cdc-relay.sandbox.owner; }
work=$(mktemp -d /tmp/cdc-relay-containers-XXXXXX)
watch='' test=''
clean() {
	[ -z "$watch" ] || kill "$watch" 2>/dev/null || true
	[ -z "$test" ] || kill -9 "$test" 2>/dev/null || true
	rm -rf "$work"
}
trap clean EXIT

docker events --filter event=start --filter label=cdc-relay.sandbox.owner --format '{{.From}}' >"$work/started" &
watch=$!

go test -c -o "$work/integration.test" ./test/integration
run() { (cd test/integration && exec "$work/integration.test" -test.timeout=25m "$@"); }

begin=$SECONDS
run -test.v "$@" >"$work/log" 2>&1 || { grep -vE '^ *(=== |--- PASS)' "$work/log" | tail -n 200; failed "the tests in containers"; }
count() { grep -cE "^ *--- $1: " "$work/log" || true; }
echo "tests in containers: $(count PASS) passed, $(count SKIP) skipped, in $((SECONDS - begin)) s"
grep -E '^ *--- SKIP' "$work/log" || true
for image in postgres:15 postgres:18 apache/kafka; do
	n=$(grep -c "^$image" "$work/started" || true)
	echo "containers of $image: $n"
	[ "$n" -gt 0 ] || failed "no test ran on $image in a container"
done
for ((i = 0; i < 60; i++)); do [ -n "$(left)" ] || break; sleep 0.5; done
[ -z "$(left)" ] || failed "containers are left: $(left)"

# A test that is killed while its servers run.
before=$(wc -l <"$work/started")
(cd test/integration && exec "$work/integration.test" -test.run '^TestKill') >/dev/null 2>&1 &
test=$!
for ((i = 0; i < 300; i++)); do
	[ "$(wc -l <"$work/started")" -le "$before" ] || break
	sleep 0.2
done
[ -n "$(left)" ] || failed "the test that is to be killed has started no container"
kill -9 "$test"
wait "$test" 2>/dev/null || true
test=''
begin=$SECONDS
for ((i = 0; i < 60; i++)); do [ -n "$(left)" ] || break; sleep 0.5; done
[ -z "$(left)" ] || failed "containers are left after kill -9 of a test: $(left)"
echo "after kill -9 of a test its containers are gone within $((SECONDS - begin + 1)) s"
