#!/usr/bin/env bash
# Installs the deb below a real systemd, in a container, and looks at what is restarted:
# after kill -9, a panic and the watchdog it is, after the exit codes 2, 3 and 4 it is not.
#
#   bash test/systemd.sh [FOLDER]
#
# Needs root, dockerd and its client, debootstrap, nfpm (in .bin or on PATH) and Debian's
# mirror. It starts an engine of its own below FOLDER (default: a new one in /var/tmp) and
# stops it at the end. A FOLDER that is given keeps the image for the next time.
# What is missing is a skip (exit 0), and a failure with CDC_RELAY_REQUIRE=all.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PWD/.bin:$PATH

lacks=()
[ "$(id -u)" -eq 0 ] || lacks+=("root")
# Debian's client by its path: one of another origin may ask for a plugin.
docker=$([ -x /usr/bin/docker ] && echo /usr/bin/docker || command -v docker) || true
[ -n "$docker" ] || lacks+=("the client of docker.io")
for program in dockerd debootstrap nfpm; do command -v "$program" >/dev/null || lacks+=("$program"); done
if [ ${#lacks[@]} -gt 0 ]; then
	printf 'SKIPPED: systemd in a container needs %s\n' "$(IFS=,; echo "${lacks[*]}")" >&2
	[ "${CDC_RELAY_REQUIRE:-}" = all ] && exit 1
	exit 0
fi

work=${1:-$(mktemp -d /var/tmp/cdc-relay-systemd-XXXXXX)}
mkdir -p "$work"
work=$(cd "$work" && pwd)
name=cdc-relay-systemd-$$ engine=
export DOCKER_HOST=unix://$work/docker.sock
clean() {
	"$docker" rm -f "$name" >/dev/null 2>&1 || true
	if [ -n "$engine" ]; then
		kill "$engine" 2>/dev/null || true
		wait "$engine" 2>/dev/null || true
	fi
	rm -rf "$work/build"
	[ $# -eq 0 ] || rm -rf "$work"
}
if [ $# -eq 0 ]; then trap 'clean all' EXIT; else trap clean EXIT; fi

await() { # await SECONDS WHAT COMMAND...
	local until=$((SECONDS + $1)) what=$2
	shift 2
	until "$@" >/dev/null 2>&1; do
		if [ $SECONDS -ge $until ]; then
			echo "FAILED: not within its time: $what" >&2
			inside journalctl --no-pager -n 40 -u cdc-relay >&2 || true
			exit 1
		fi
		sleep 0.2
	done
}

if ! "$docker" version >/dev/null 2>&1; then
	dockerd --data-root "$work/data" --exec-root "$work/exec" -p "$work/dockerd.pid" -H "$DOCKER_HOST" --log-level warn >"$work/dockerd.log" 2>&1 &
	engine=$!
	await 60 "the engine answers" "$docker" version
fi

if ! "$docker" image inspect cdc-relay-systemd >/dev/null 2>&1; then
	echo "== a Debian with systemd, once, some minutes"
	mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
	debootstrap --variant=minbase --include=ca-certificates,systemd,systemd-sysv,dbus,procps bookworm "$work/root" "$mirror" >"$work/debootstrap.log"
	rm -rf "$work"/root/var/cache/apt/archives/*.deb "$work"/root/var/lib/apt/lists/*
	tar -C "$work/root" -c . | "$docker" import - cdc-relay-systemd >/dev/null
	rm -rf "$work/root"
fi

# The program, and one that panics when the folder /run/panic is there: the source carries no hooks.
mkdir -p "$work/build"
make build >/dev/null
VERSION=0.0.1 ARCH=amd64 nfpm package -f deploy/nfpm.yaml -p deb -t "$work/build/cdc-relay.deb" >/dev/null
sed 's|^\tprepareForCrashes()$|&\n\tgo func() {\n\t\tfor {\n\t\t\tif _, err := os.Stat("/run/panic"); err == nil {\n\t\t\t\tpanic("asked for")\n\t\t\t}\n\t\t\ttime.Sleep(100 * time.Millisecond)\n\t\t}\n\t}()|' cmd/cdc-relay/main.go >"$work/build/main.go"
grep -q 'asked for' "$work/build/main.go" || { echo "FAILED: the patch has to follow cmd/cdc-relay/main.go" >&2; exit 1; }
printf '{"Replace": {"%s": "%s"}}' "$PWD/cmd/cdc-relay/main.go" "$work/build/main.go" >"$work/build/overlay.json"
CGO_ENABLED=0 go build -overlay "$work/build/overlay.json" -o "$work/build/panics" ./cmd/cdc-relay

# systemd mounts credentials: without --make-rshared they would be empty in here.
"$docker" run -d --name "$name" --cap-add SYS_ADMIN --cap-add SYS_PTRACE --cap-add NET_ADMIN --security-opt seccomp=unconfined --cgroupns private \
	--tmpfs /run --tmpfs /run/lock --tmpfs /tmp --stop-signal RTMIN+3 -v "$work/build:/build:ro" -t cdc-relay-systemd \
	sh -c 'mount --make-rshared / && exec /sbin/init' >/dev/null
inside() { "$docker" exec "$name" "$@"; }
booted() { case $(inside systemctl is-system-running 2>/dev/null) in running | degraded) ;; *) return 1 ;; esac; }
await 60 "systemd is up" booted

inside dpkg --install /build/cdc-relay.deb >/dev/null
# Nobody listens there: the relay waits, ready for systemd.
inside sh -c 'printf "%s\n" "postgres: {url: postgres://relay@127.0.0.1:1/shop?sslmode=disable}" "kafka: {brokers: [127.0.0.1:1]}" "outbox: [{table: public.outbox}]" >/etc/cdc-relay/config.yaml
	mkdir -p /etc/systemd/system/cdc-relay.service.d && cp /build/panics /usr/local/bin/'

property() { inside systemctl show cdc-relay --value -p "$1"; }
drop_in() { # drop_in LINE...
	printf '%s\n' '[Service]' "$@" | "$docker" exec -i "$name" sh -c 'cat >/etc/systemd/system/cdc-relay.service.d/test.conf'
	inside systemctl daemon-reload
}
active() { [ "$(property ActiveState)" = active ] && [ "$(property MainPID)" -gt 1 ]; }
anew() { active && [ "$(property MainPID)" != "$1" ] && [ "$(property NRestarts)" -gt "$2" ]; }
start() {
	inside systemctl reset-failed cdc-relay 2>/dev/null || true
	inside systemctl restart cdc-relay
	await 30 "the relay runs" active
}
restarted() { # restarted WHAT COMMAND...: after the command, which knows the process as $pid, it runs again
	local what=$1 pid times
	shift
	start
	pid=$(property MainPID) times=$(property NRestarts)
	"$@"
	await 60 "$what is restarted" anew "$pid" "$times"
	echo "ok: $what: restarted"
}
by_signal() { inside kill "-$1" "$pid"; }
by_panic() { inside touch /run/panic; await 20 "it panics" gone; inside rm /run/panic; }
gone() { [ "$(property MainPID)" != "$pid" ]; }

restarted "kill -9" by_signal KILL
restarted "SIGQUIT" by_signal QUIT
restarted "SIGABRT" by_signal ABRT
drop_in WatchdogSec=3
restarted "what stands still, by the watchdog" by_signal STOP
# ProtectSystem leaves /run readable.
drop_in ExecStart= 'ExecStart=/usr/local/bin/panics run --config ${CREDENTIALS_DIRECTORY}/config.yaml'
restarted "a panic" by_panic
inside journalctl --no-pager -u cdc-relay | grep -c 'panic: asked for' >/dev/null || { echo "FAILED: the log has no panic" >&2; exit 1; }

down() { [ "$(property ActiveState)" = failed ]; }
for code in 2 3 4; do
	drop_in ExecStart= "ExecStart=/bin/sh -c 'exit $code'" Type=simple
	inside systemctl reset-failed cdc-relay 2>/dev/null || true
	inside systemctl stop cdc-relay 2>/dev/null || true
	inside systemctl start cdc-relay 2>/dev/null || true
	await 20 "code $code ends the unit" down
	sleep 4 # RestartSec is 2: it would be starting by now
	if ! down || [ "$(property NRestarts)" -ne 0 ]; then
		echo "FAILED: code $code was restarted $(property NRestarts) times" >&2
		exit 1
	fi
	echo "ok: exit code $code: stays down"
done
drop_in ExecStart= "ExecStart=/bin/sh -c 'exit 1'" Type=simple
inside systemctl reset-failed cdc-relay 2>/dev/null || true
inside systemctl start cdc-relay 2>/dev/null || true
often() { [ "$(property NRestarts)" -ge 6 ]; }
await 60 "exit code 1 is restarted more often than systemd's limit of five" often
echo "ok: exit code 1: restarted $(property NRestarts) times and on"
