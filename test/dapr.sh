#!/usr/bin/env bash
# Builds the Dapr sidecar from its module's source and runs the test that needs one. Go cannot
# install it by name, because its go.mod replaces modules. Of its components it gets Kafka alone.
# Cold it takes some ten minutes and a gigabyte of build cache; CI leaves it out.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${1:-go}
version=v1.14.0
program=$PWD/.bin/daprd-$version

if [ ! -x "$program" ]; then
	echo "building Dapr $version; this takes ten minutes or more" >&2
	source=$(cd / && "$go" mod download -json "github.com/dapr/dapr@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p') || true
	if [ -z "$source" ]; then
		echo "the source of Dapr $version could not be downloaded" >&2
		exit 1
	fi
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	cp -R "$source/." "$work" && chmod -R u+w "$work"
	# A component is compiled with a tag that brings all others too.
	sed -i '1s|^//go:build .*||' "$work/cmd/daprd/components/pubsub_kafka.go"
	rm "$work/cmd/daprd/components/zz_notag.go" # which ends the program without such a tag
	mkdir -p .bin
	(cd "$work" && nice "$go" build -ldflags "-X github.com/dapr/dapr/pkg/buildinfo.version=${version#v}" -o "$program" ./cmd/daprd)
fi
echo "daprd: $("$program" --version)"
cd test/ends
CDC_RELAY_DAPRD=$program "$go" test -tags dapr -count=1 -timeout 10m -v -run '^TestDapr_Sidecar' .
