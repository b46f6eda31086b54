#!/usr/bin/env bash
# Makes everything of a release below dist/, and publishes nothing. The same commit, version,
# Go and list of authorities give the same bytes.
#
#   deploy/release/release.sh VERSION        such as 1.2.3
#
# nfpm (packages) and cyclonedx-gomod (bills of materials) are in .bin or on PATH, or are
# built into .bin. With GPG_KEY the list of checksums is signed by that key.
set -euo pipefail
cd "$(dirname "$0")/../.."
PATH=$PWD/.bin:$PATH
version=${1:?a version, such as 1.2.3}
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] || { echo "the version $version is not like 1.2.3 or 1.2.3-rc.1" >&2; exit 2; }

tool() { # tool PROGRAM PACKAGE
	command -v "$1" >/dev/null && return
	echo "building $1, once, some minutes" >&2
	(unset GOOS GOARCH && GOBIN=$PWD/.bin go install "$2")
}
tool nfpm github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.0
tool cyclonedx-gomod github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.9.0

umask 022
export LC_ALL=C TZ=UTC CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -mod=readonly -buildvcs=false"
commit=$(git rev-parse HEAD)
SOURCE_DATE_EPOCH=$(git show -s --format=%ct HEAD)
export SOURCE_DATE_EPOCH
date=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
[ -z "$(git status --porcelain)" ] || echo "NOTE: the checkout has changes that no commit has" >&2
go mod verify >/dev/null

dist=$PWD/dist
rm -rf "$dist"
mkdir -p "$dist"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# In order, of one owner, of one time: the bytes depend on what is in it alone.
pack() { # pack ARCHIVE FOLDER NAME...
	local archive=$1 folder=$2
	shift 2
	find "$folder" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	tar -C "$folder" --sort=name --owner=0 --group=0 --numeric-owner --format=ustar --mtime="@$SOURCE_DATE_EPOCH" -c "$@" | gzip -9n >"$archive"
}

repository=$(sed -n 's/^  repository: //p' deploy/helm/cdc-relay/values.yaml) # the one place of the image's name
for os in linux darwin; do
	for arch in amd64 arm64; do
		name=cdc-relay_${version}_${os}_${arch}
		folder=$work/$os-$arch/$name
		mkdir -p "$folder/deploy"
		GOOS=$os GOARCH=$arch go build -trimpath -gcflags='github.com/aws/...=-l' -gcflags='google.golang.org/protobuf/...=-l' -ldflags "-s -w -X main.version=$version -X main.commit=$commit -X main.date=$date" -o "$folder/cdc-relay" ./cmd/cdc-relay
		cp -R LICENSE README.md CHANGELOG.md cdc-relay.example.yaml docs "$folder/"
		cp -R deploy/systemd deploy/observability "$folder/deploy/"
		find "$folder" -type d -exec chmod 755 {} + -o -type f -exec chmod 644 {} +
		chmod 755 "$folder/cdc-relay"
		pack "$dist/$name.tar.gz" "$work/$os-$arch" "$name"
		# Of what is in the binary; without the serial number, which is random, and at the commit's time.
		cyclonedx-gomod bin -json -std -noserial -version "v$version" -output "$work/bill.json" "$folder/cdc-relay" 2>"$work/sbom.log" || { cat "$work/sbom.log" >&2; exit 1; }
		python3 -c 'import json, sys
bill = json.load(sys.stdin)
bill["metadata"]["timestamp"] = sys.argv[1]
json.dump(bill, sys.stdout, indent=1, sort_keys=True)' "$date" <"$work/bill.json" >"$dist/$name.cdx.json"

		[ "$os" = linux ] || continue
		sed "s|src: .bin/cdc-relay|src: $folder/cdc-relay|" deploy/nfpm.yaml >"$work/nfpm.yaml"
		echo "mtime: $date" >>"$work/nfpm.yaml"
		echo "rpm: {buildhost: cdc-relay}" >>"$work/nfpm.yaml"
		for kind in deb rpm; do
			VERSION=$version ARCH=$arch nfpm package -f "$work/nfpm.yaml" -p $kind -t "$dist/$name.$kind" >/dev/null
		done
		(unset GOOS GOARCH && go run ./deploy/release/ociarchive -binary "$folder/cdc-relay" -arch "$arch" -epoch "$SOURCE_DATE_EPOCH" \
			-name "$repository:$version" -out "$work/image.tar")
		gzip -9n <"$work/image.tar" >"$dist/cdc-relay_${version}_image_${arch}.tar.gz"
	done
done

mkdir -p "$work/chart"
cp -R deploy/helm/cdc-relay "$work/chart/"
sed -i "s/^version: .*/version: $version/; s/^appVersion: .*/appVersion: $version/" "$work/chart/cdc-relay/Chart.yaml"
find "$work/chart" -type d -exec chmod 755 {} + -o -type f -exec chmod 644 {} +
pack "$dist/cdc-relay-chart-$version.tgz" "$work/chart" cdc-relay

(cd "$dist" && sha256sum -- * >checksums.txt)
if [ -n "${GPG_KEY:-}" ]; then
	gpg --batch --yes --armor --local-user "$GPG_KEY" --output "$dist/checksums.txt.asc" --detach-sign "$dist/checksums.txt"
else
	echo "not signed: GPG_KEY names no key" >&2
fi
(cd "$dist" && ls -l | awk 'NR > 1 { printf "%10d %s\n", $5, $9 }')
