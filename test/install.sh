#!/usr/bin/env bash
# Installs the program by its tag, and requires the nested modules by theirs, as users will:
# from a local repository with the tags of a release, through a local proxy of modules.
set -euo pipefail
cd "$(dirname "$0")/.."
module=github.com/cdc-relay/cdc-relay version=v0.1.0
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
failed() { echo "FAILED: $*" >&2; exit 1; }

git clone -q --bare . "$work/repository"
for tag in $version outbox/$version inbox/$version; do git -C "$work/repository" tag "$tag" "$(git rev-parse HEAD)"; done
export GIT_CONFIG_GLOBAL=$work/gitconfig
git config --global "url.file://$work/repository.insteadOf" "https://$module"
git config --global --add safe.directory '*'

# Every other module comes from what was downloaded already, or from the usual proxy.
usual="file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)"
export GOMODCACHE=$work/modules GOBIN=$work/bin GOFLAGS="-modcacherw -trimpath" GONOSUMDB=$module,$module/*
cd "$work"

# By git first: this is what a proxy does when a tag is asked for, and what it leaves is a proxy itself.
for path in $module $module/outbox $module/inbox; do
	GOPROXY=$usual GONOPROXY=$module,$module/* go mod download -json "$path@$version" >"$work/download.json" || { cat "$work/download.json" >&2; failed "$path@$version"; }
	grep -q '"Error"' "$work/download.json" && failed "$(cat "$work/download.json")"
	echo "ok: $path@$version is a module of its own: $(unzip -l "$(sed -n 's/.*"Zip": "\(.*\)",/\1/p' "$work/download.json")" | tail -n 1 | awk '{ print $2 " files, " $1 " bytes" }')"
done
cp -R "$work/modules/cache/download" "$work/proxy"
go clean -modcache
export GOPROXY="file://$work/proxy,$usual" GIT_ALLOW_PROTOCOL=none

go install "$module/cmd/cdc-relay@$version"
"$work/bin/cdc-relay" version | grep -q "${version#v}" || failed "go install gives $("$work/bin/cdc-relay" version)"
echo "ok: go install $module/cmd/cdc-relay@$version: $("$work/bin/cdc-relay" version | head -n 1)"

mkdir service && cd service
go mod init example.com/service >/dev/null 2>&1
cat >main.go <<'EOF'
package main

import (
	_ "github.com/cdc-relay/cdc-relay/inbox/pgxinbox"
	_ "github.com/cdc-relay/cdc-relay/outbox/pgxoutbox"
)

func main() {}
EOF
go get "$module/outbox@$version" "$module/inbox@$version" >/dev/null 2>&1 || go get "$module/outbox@$version" "$module/inbox@$version"
go mod tidy >/dev/null 2>&1
go build -o service .
! grep -q "$module v" go.mod || failed "a service that writes events requires the relay itself"
echo "ok: a service requires outbox and inbox at $version, and nothing of the relay"
