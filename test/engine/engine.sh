#!/usr/bin/env bash
# Has a container engine, and in it the images that the project names: of its own where no
# engine answers, with stand-ins where images cannot be pulled.
#
#   test/engine/engine.sh                 make the images, say how large they are
#   test/engine/engine.sh COMMAND ARG...  and run the command, with DOCKER_HOST, DOCKER_CONFIG and PATH set
#   test/engine/engine.sh --clean         remove all that was kept
#
# An engine that answers is taken if it has the images or can pull them. Otherwise an engine
# is started, with a folder and a socket of its own, and stopped at the end. That takes root
# on Debian and the packages docker.io, iptables and debootstrap. Its images are made from
# Debian's packages, from the mirror that apt is configured for, from this machine's Go, and
# from Maven Central by mvn. They stand in for the official ones: they prove this project's
# files, and nothing of the official images' entry points.
#
# What is missing is a skip (exit 0, no command is run) with a line that begins with SKIPPED,
# and a failure with CDC_RELAY_REQUIRE=all.
#
#   CDC_RELAY_ENGINE        the folder that keeps images between runs; default /var/cache/cdc-relay-engine
#   CDC_RELAY_ENGINE_ONLY   the images that are wanted; default "golang postgres kafka";
#                           prometheus and systemd are others
#   CDC_RELAY_ENGINE_OWN=1  starts an engine even where one answers
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
keep=${CDC_RELAY_ENGINE:-/var/cache/cdc-relay-engine}
only=${CDC_RELAY_ENGINE_ONLY:-golang postgres kafka}
kafka_version=$(sed -n 's|.*<kafka.version>\(.*\)</kafka.version>.*|\1|p' "$repository/test/harness/kafka/pom.xml")
prometheus=$(sed -n 's/^ *image: \(prom\/prometheus:.*\)/\1/p' "$repository/compose.yaml")
go_version=$(sed -n 's/^FROM.* golang:\([^ ]*\) AS.*/\1/p' "$repository/Dockerfile")
began=$SECONDS

say() { printf '== %s\n' "$*" >&2; }
# Without a machine to run on nothing is wrong with the project.
skip() {
	printf 'SKIPPED: containers: %s\n' "$*" >&2
	[ "${CDC_RELAY_REQUIRE:-}" != all ] || exit 1
	exit 0
}
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

if [ "${1:-}" = --clean ]; then
	rm -rf "$keep"
	say "removed $keep"
	exit 0
fi

# Those who are called by another of this kind share its engine.
if [ -n "${CDC_RELAY_ENGINE_RUNNING:-}" ] && [ $# -gt 0 ]; then exec "$@"; fi

wanted() { # the names that Dockerfile, compose.yaml and the tests use
	local image
	for image in $only; do
		case $image in
		golang) echo "golang:$go_version" ;;
		postgres) echo postgres:15 postgres:18 ;;
		kafka) echo "apache/kafka:$kafka_version" ;;
		prometheus) echo "$prometheus" ;;
		systemd) echo cdc-relay-systemd ;;
		*) fail "CDC_RELAY_ENGINE_ONLY: no image $image: golang, postgres, kafka, prometheus, systemd" ;;
		esac
	done
}
wanted >/dev/null

use_at_hand() {
	local image
	[ -z "${CDC_RELAY_ENGINE_OWN:-}" ] || return 1
	docker version >/dev/null 2>&1 || return 1
	for image in $(wanted); do
		docker image inspect "$image" >/dev/null 2>&1 && continue
		# An image that only this script makes is made in its own engine.
		[ "$image" != cdc-relay-systemd ] || return 1
		say "pulling $image"
		if ! timeout 300 docker pull -q "$image" >/dev/null 2>&1; then
			say "the engine at hand cannot pull $image"
			return 1
		fi
	done
	say "the engine at hand is used: $(docker version --format '{{.Server.Version}}')"
}

run() { # run COMMAND...: as the last thing
	[ $# -gt 0 ] || return 0
	export CDC_RELAY_ENGINE_RUNNING=1
	"$@"
}

if use_at_hand; then
	run "$@"
	exit
fi

lacks=()
[ "$(id -u)" -eq 0 ] || lacks+=("root")
[ "$(. /etc/os-release 2>/dev/null && echo "${ID:-}")" = debian ] || lacks+=("Debian, whose packages the images are made of")
for program in dockerd iptables debootstrap mvn java python3 go flock; do command -v "$program" >/dev/null || lacks+=("$program"); done
# Debian's client by its path: one of another origin may ask for a plugin.
client=$([ -x /usr/bin/docker ] && echo /usr/bin/docker || command -v docker) || lacks+=("docker")
if [ ${#lacks[@]} -gt 0 ]; then
	skip "no engine answers that has the images or can pull them, and one of its own needs $(IFS=,; echo "${lacks[*]}"); on Debian: apt-get install -y --no-install-recommends docker.io iptables debootstrap maven default-jre-headless"
fi

umask 022
mkdir -p "$keep/bin" "$keep/config/cli-plugins"
exec 9>"$keep/lock"
if ! flock -n 9; then
	say "another run has the engine of $keep; this one waits"
	flock 9
fi

engine= socket=$(mktemp -d /tmp/cdc-relay-engine-XXXXXX) # a socket's path must be short
export DOCKER_HOST=unix://$socket/docker.sock DOCKER_CONFIG=$keep/config
docker() { "$client" "$@"; }
stop_engine() {
	trap '' INT TERM
	if [ -n "$engine" ]; then
		local containers
		containers=$(docker ps -aq 2>/dev/null || true)
		[ -z "$containers" ] || docker rm -fv $containers >/dev/null 2>&1 || true
		docker network prune -f >/dev/null 2>&1 || true
		docker volume prune -f >/dev/null 2>&1 || true
		kill "$engine" 2>/dev/null || true
		wait "$engine" 2>/dev/null || true
	fi
	rm -rf "$socket" "$keep/build"
}
trap stop_engine EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# A process that was killed has left its number; what has it now may be another.
if left=$(cat "$keep/dockerd.pid" 2>/dev/null) && tr '\0' ' ' <"/proc/$left/cmdline" 2>/dev/null | grep -q -- "--data-root $keep/data"; then
	say "an engine of a run that was killed is stopped: process $left"
	kill "$left"
	while kill -0 "$left" 2>/dev/null; do sleep 0.1; done
fi
rm -f "$keep/dockerd.pid"
dockerd --data-root "$keep/data" --exec-root "$socket/exec" -p "$keep/dockerd.pid" -H "$DOCKER_HOST" --log-level warn >"$keep/dockerd.log" 2>&1 9>&- &
engine=$!
for ((i = 0; ; i++)); do
	docker version >/dev/null 2>&1 && break
	if [ "$i" -ge 300 ] || ! kill -0 "$engine" 2>/dev/null; then
		tail -n 5 "$keep/dockerd.log" >&2
		skip "an engine of its own does not start here, see above"
	fi
	sleep 0.2
done
say "an engine of its own: $(docker version --format '{{.Server.Version}}'), images are kept in $keep"
leftover=$(docker ps -aq)
[ -z "$leftover" ] || docker rm -fv $leftover >/dev/null

# What apt is configured with is the mirror of the images too.
mirror() { apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' 2>/dev/null | grep -v -e security | sed -n '1s|/*$||p'; }
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(mirror)
[ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(SITE)' | sed -n '1s|/*$||p')
[ -n "$mirror" ] || skip "apt knows no mirror: run apt-get update"
proxy=$(apt-config dump Acquire::http::Proxy --format '%v%n')
[ -z "$proxy" ] || export http_proxy=$proxy
build_arguments=(${proxy:+--build-arg "http_proxy=$proxy"})

recipe() { find "$@" -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -c 1-16; }
has() { [ "$(docker image inspect --format '{{index .Config.Labels "cdc-relay.recipe"}}' "$1" 2>/dev/null)" = "$2" ]; }

build() { # build NAME RECIPE FOLDER ARGUMENT...: what FOLDER has
	local name=$1 recipe=$2 folder=$3 from=$SECONDS
	shift 3
	# Its steps need no mounts, and the older builder has every client.
	if ! DOCKER_BUILDKIT=0 docker build -q "${build_arguments[@]}" --label "cdc-relay.recipe=$recipe" -t "$name" "$@" "$folder" >"$keep/build.log" 2>&1; then
		tail -n 30 "$keep/build.log" >&2
		fail "the image $name cannot be made"
	fi
	say "made $name in $((SECONDS - from)) s"
}

base=$suite-1
if ! has cdc-relay-base "$base"; then
	from=$SECONDS
	say "Debian $suite, from $mirror, some minutes"
	rm -rf "$keep/build" && mkdir -p "$keep/build"
	if ! debootstrap --variant=minbase --include=ca-certificates "$suite" "$keep/build/root" "$mirror" >"$keep/debootstrap.log" 2>&1; then
		tail -n 5 "$keep/debootstrap.log" >&2
		skip "debootstrap does not work here, see above"
	fi
	(cd "$keep/build/root" && rm -rf var/cache/apt/archives/*.deb var/lib/apt/lists/* usr/share/doc/* usr/share/man/* usr/share/locale/* usr/share/info/*)
	tar -C "$keep/build/root" -c . | docker import -c 'ENV LANG=C.UTF-8' -c "LABEL cdc-relay.recipe=$base" - cdc-relay-base >/dev/null
	rm -rf "$keep/build"
	say "made cdc-relay-base in $((SECONDS - from)) s"
fi
context() { # context IMAGE: a new folder with its files
	rm -rf "$keep/build" && mkdir -p "$keep/build"
	cp -R "$here/images/$1/." "$keep/build/"
}
maven() { (cd "$keep" && mvn -q -B "$@" >"$keep/maven.log" 2>&1) || { tail -n 20 "$keep/maven.log" >&2; skip "Maven cannot fetch the programs, see above"; }; }

make_golang() {
	local recipe
	recipe=$base-$(recipe "$here/images/golang")-$(go env GOVERSION)
	has "golang:$go_version" "$recipe" && return
	context golang
	(cd "$(go env GOROOT)" && tar -ch --exclude=./test --exclude=./api --exclude=./doc --exclude=testdata .) | (mkdir "$keep/build/go" && tar -C "$keep/build/go" -x)
	local bundle=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
	cp -L "$bundle" "$keep/build/ca-certificates.crt"
	build "golang:$go_version" "$recipe" "$keep/build" --build-arg "GOPROXY=$(go env GOPROXY)" --build-arg "GOSUMDB=$(go env GOSUMDB)"
}

make_postgres() {
	local recipe major version platform
	platform=linux-$(go env GOARCH | sed 's/arm64/arm64v8/')
	for major in 15 18; do
		version=$(cd "$repository" && sed -n "s/.*V$major *= *PostgresVersion(\"\(.*\)\").*/\1/p" "$(go list -m -f '{{.Dir}}' github.com/fergusstrange/embedded-postgres)/config.go")
		[ -n "$version" ] || fail "embedded-postgres names no PostgreSQL $major"
		recipe=$base-$(recipe "$here/images/postgres")-$version
		has "postgres:$major" "$recipe" && continue
		context postgres
		maven dependency:copy -Dartifact="io.zonky.test.postgres:embedded-postgres-binaries-$platform:$version" -DoutputDirectory="$keep/build/jar"
		# A build's cache must not depend on the other major's files.
		mkdir "$keep/build/pgsql-$major"
		(cd "$keep/build/jar" && jar_extract ./*.jar) | tar -xJ -C "$keep/build/pgsql-$major"
		rm -rf "$keep/build/jar"
		build "postgres:$major" "$recipe" "$keep/build" --build-arg "MAJOR=$major"
	done
}
jar_extract() { python3 -c 'import sys, zipfile
archive = zipfile.ZipFile(sys.argv[1])
sys.stdout.buffer.write(archive.read(next(n for n in archive.namelist() if n.endswith(".txz"))))' "$1"; }

make_kafka() {
	local recipe
	recipe=$base-$(recipe "$here/images/kafka" "$repository/test/harness/kafka/pom.xml")
	has "apache/kafka:$kafka_version" "$recipe" && return
	context kafka
	maven -f "$repository/test/harness/kafka/pom.xml" dependency:copy-dependencies -DoutputDirectory="$keep/build/libs"
	build "apache/kafka:$kafka_version" "$recipe" "$keep/build"
}

make_prometheus() {
	local recipe
	recipe=$base-$(recipe "$here/images/prometheus")
	has "$prometheus" "$recipe" && return
	context prometheus
	build "$prometheus" "$recipe" "$keep/build"
}

make_systemd() {
	local recipe
	recipe=$base-$(recipe "$here/images/systemd")
	has cdc-relay-systemd "$recipe" && return
	context systemd
	build cdc-relay-systemd "$recipe" "$keep/build"
}

# Compose and buildx from Debian 13, which has newer ones and runs here; this machine's own list
# of packages is not touched.
plugins() {
	docker compose version >/dev/null 2>&1 && docker buildx version >/dev/null 2>&1 && return
	local apt=$keep/build/apt package options
	rm -rf "$keep/build" && mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" >"$apt/list"
	options=(-qq -o "Dir::Etc::sourcelist=$apt/list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=root)
	if ! (cd "$apt" && apt-get "${options[@]}" update && apt-get "${options[@]}" download docker-compose docker-buildx) >"$keep/plugins.log" 2>&1; then
		tail -n 3 "$keep/plugins.log" >&2
		say "NOTE: compose cannot be had here, see above"
		return
	fi
	for package in "$apt"/docker-*.deb; do dpkg-deb -x "$package" "$apt/x"; done
	cp "$apt"/x/usr/libexec/docker/cli-plugins/* "$keep/config/cli-plugins/"
	rm -rf "$keep/build"
	docker compose version >/dev/null 2>&1 || say "NOTE: compose of Debian 13 does not run here"
}

plugins
for image in $only; do "make_$image"; done
docker image prune -f >/dev/null

{
	printf '%-24s %10s\n' image size
	for image in cdc-relay-base $(wanted); do
		printf '%-24s %7d MB\n' "$image" $(($(docker image inspect --format '{{.Size}}' "$image") / 1000000))
	done
	printf 'together, with shared layers and the build cache: %s in %s\n' "$(du -shx "$keep" | cut -f 1)" "$keep"
	printf 'ready after %d s\n' $((SECONDS - began))
} >&2

ln -sfn "$client" "$keep/bin/docker"
export PATH=$keep/bin:$PATH
code=0
run "$@" 9>&- || code=$?
exit "$code"
