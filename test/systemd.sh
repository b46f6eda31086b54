#!/usr/bin/env bash
# Installs the deb below a real systemd, in a container, and looks at what the unit and the
# package promise: readiness, state and lag in StatusText, credentials, rights, what is
# restarted and what is not, upgrade, removal and purge. The rpm is unpacked and compared.
#
#   CDC_RELAY_ENGINE_ONLY=systemd test/engine/engine.sh bash test/systemd.sh
#
# engine.sh has the engine and the image. nfpm is in .bin or on PATH.
# What is missing is a skip (exit 0), and a failure with CDC_RELAY_REQUIRE=all.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PWD/.bin:$PATH

if ! command -v nfpm >/dev/null; then
	echo 'SKIPPED: systemd in a container needs nfpm: GOBIN=$PWD/.bin go install github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.0' >&2
	[ "${CDC_RELAY_REQUIRE:-}" = all ] && exit 1
	exit 0
fi

work=$(mktemp -d /tmp/cdc-relay-systemd-XXXXXX)
mkdir "$work/build"
name=cdc-relay-systemd-$$
clean() {
	docker rm -fv "$name" >/dev/null 2>&1 || true
	rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

failed() { echo "FAILED: $*" >&2; exit 1; }
ok() { echo "ok: $*"; }
await() { # await SECONDS WHAT COMMAND...
	local until=$((SECONDS + $1)) what=$2
	shift 2
	until "$@" >/dev/null 2>&1; do
		if [ $SECONDS -ge $until ]; then
			inside systemctl status --no-pager cdc-relay >&2 || true
			inside journalctl --no-pager -n 40 -u cdc-relay >&2 || true
			failed "not within its time: $what"
		fi
		sleep 0.2
	done
}

# The program, and one that panics when the folder /run/panic is there: the source carries no hooks.
mkdir -p "$work/build"
ARCH=$(go env GOARCH)
export ARCH
package() { # package VERSION: its deb and rpm
	CGO_ENABLED=0 go build -trimpath $(grep -v '^#' cmd/cdc-relay/gcflags) -ldflags "-s -w -X main.version=$1" -o "$work/build/cdc-relay" ./cmd/cdc-relay
	sed "s|src: .bin/cdc-relay|src: $work/build/cdc-relay|" deploy/nfpm.yaml >"$work/nfpm.yaml"
	grep -q "$work/build/cdc-relay" "$work/nfpm.yaml" || failed "deploy/nfpm.yaml no longer takes .bin/cdc-relay"
	local kind
	for kind in deb rpm; do VERSION=$1 nfpm package -f "$work/nfpm.yaml" -p $kind -t "$work/build/$1.$kind" >/dev/null; done
}
package 0.0.1
package 0.0.2
sed 's|^\tprepareForCrashes()$|&\n\tgo func() {\n\t\tfor {\n\t\t\tif _, err := os.Stat("/run/panic"); err == nil {\n\t\t\t\tpanic("asked for")\n\t\t\t}\n\t\t\ttime.Sleep(100 * time.Millisecond)\n\t\t}\n\t}()|' cmd/cdc-relay/main.go >"$work/build/main.go"
grep -q 'asked for' "$work/build/main.go" || failed "the patch has to follow cmd/cdc-relay/main.go"
printf '{"Replace": {"%s": "%s"}}' "$PWD/cmd/cdc-relay/main.go" "$work/build/main.go" >"$work/build/overlay.json"
CGO_ENABLED=0 go build -overlay "$work/build/overlay.json" -o "$work/build/panics" ./cmd/cdc-relay

# systemd mounts credentials: without --make-rshared they would be empty in here.
docker run -d --name "$name" --cap-add SYS_ADMIN --cap-add SYS_PTRACE --cap-add NET_ADMIN --security-opt seccomp=unconfined --cgroupns private \
	--tmpfs /run --tmpfs /run/lock --tmpfs /tmp --stop-signal RTMIN+3 -v "$work/build:/build:ro" -t cdc-relay-systemd \
	sh -c 'mount --make-rshared / && exec /sbin/init' >/dev/null
inside() { docker exec "$name" "$@"; }
booted() { case $(inside systemctl is-system-running 2>/dev/null) in running | degraded) ;; *) return 1 ;; esac; }
await 60 "systemd is up" booted

# What an rpm has is what the deb has, but for the compression of nothing.
inside sh -euc 'mkdir /tmp/deb /tmp/rpm
	dpkg-deb -x /build/0.0.1.deb /tmp/deb
	cd /tmp/rpm && rpm2cpio /build/0.0.1.rpm | cpio -idm --quiet --no-absolute-filenames 2>/dev/null
	for package in deb rpm; do cd /tmp/$package && find . -type f -printf "%p %m %s\n" | sort >/tmp/$package.list && find . -type f -exec sha256sum {} + | sort -k 2 >>/tmp/$package.list; done
	test -s /tmp/deb.list && diff /tmp/deb.list /tmp/rpm.list
	test "$(rpm -qpc /build/0.0.1.rpm)" = /etc/cdc-relay/config.yaml
	rpm -qp --scripts /build/0.0.1.rpm | grep -q "systemctl disable --now cdc-relay.service"' || failed "the rpm differs from the deb"
ok "the rpm has the deb's files, modes, configuration file and scripts"

inside dpkg --install /build/0.0.1.deb >/dev/null
[ "$(inside systemctl is-active cdc-relay || true)" = inactive ] || failed "the installation starts the relay, which has no configuration"
[ "$(inside stat -c '%a %U' /etc/cdc-relay/config.yaml)" = '600 root' ] || failed "the configuration is not root's alone"
# Nobody listens there: the relay waits, ready for systemd.
inside sh -c 'printf "%s\n" "postgres: {url: postgres://relay@127.0.0.1:1/shop?sslmode=disable, password_file: postgres}" "kafka: {brokers: [127.0.0.1:1]}" "outbox: [{table: public.outbox}]" >/etc/cdc-relay/config.yaml
	(umask 077 && echo secret >/etc/cdc-relay/postgres.secret)
	mkdir -p /etc/systemd/system/cdc-relay.service.d && cp /build/panics /usr/local/bin/
	printf "%s\n" "[Service]" "LoadCredential=postgres:/etc/cdc-relay/postgres.secret" >/etc/systemd/system/cdc-relay.service.d/secret.conf'

property() { inside systemctl show cdc-relay --value -p "$1"; }
drop_in() { # drop_in LINE...
	printf '%s\n' '[Service]' "$@" | docker exec -i "$name" sh -c 'cat >/etc/systemd/system/cdc-relay.service.d/test.conf'
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

inside systemctl daemon-reload
inside systemctl enable cdc-relay 2>/dev/null
start
pid=$(property MainPID)
credentials=/run/credentials/cdc-relay.service
user=$(inside awk '/^Uid:/ { print $2 }' "/proc/$pid/status")
for file in config.yaml postgres; do
	[ "$(inside stat -c %a $credentials/$file)" = 400 ] || failed "the credential $file has the mode $(inside stat -c %a $credentials/$file)"
	[ "$(inside stat -c %u $credentials/$file)" = "$user" ] || failed "the credential $file belongs to $(inside stat -c %u $credentials/$file), not to the dynamic user $user"
done
[ "$(inside cat $credentials/postgres)" = secret ] || failed "the secret is not handed over"
! inside grep -aq secret "/proc/$pid/environ" || failed "the secret is in the environment"
! inside sh -c 'journalctl -u cdc-relay | grep -q "cannot read"' || failed "the relay cannot read its credentials"
[ "$user" -ge 61184 ] || failed "the relay is not a dynamic user"
for set in CapInh CapPrm CapEff CapBnd CapAmb; do
	inside grep -q "^$set:.0000000000000000$" "/proc/$pid/status" || failed "$set is not empty"
done
inside grep -q '^NoNewPrivs:.1$' "/proc/$pid/status" && inside grep -q '^Seccomp:.2$' "/proc/$pid/status" || failed "NoNewPrivs or Seccomp is not set"
ok "credentials are read-only and a dynamic user's, no capability, NoNewPrivs, seccomp"

exposure=$(inside systemd-analyze security --no-pager cdc-relay | sed -n 's/.*Overall exposure level for cdc-relay.service: \([0-9.]*\).*/\1/p')
inside systemd-analyze security --no-pager --threshold=15 cdc-relay >/dev/null || failed "the exposure level is $exposure; at most 1.5"
ok "exposure level $exposure"

says() { property StatusText | grep -qE "$1"; }
await 30 "StatusText says the state" says '^(Starting|Reconnecting to (PostgreSQL|Kafka)) for .*_unreachable'
ok "StatusText without a server: $(property StatusText)"

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

# An upgrade leaves the running relay alone; a restart makes it effective.
inside rm /etc/systemd/system/cdc-relay.service.d/test.conf
inside systemctl daemon-reload
start
pid=$(property MainPID)
inside dpkg --install /build/0.0.2.deb >/dev/null
[ "$(property MainPID)" = "$pid" ] || failed "the upgrade touched the running relay"
inside cdc-relay version | grep -q 0.0.2 || failed "the upgrade installed nothing"
inside grep -q 127.0.0.1:1 /etc/cdc-relay/config.yaml || failed "the upgrade took the configuration"
[ "$(inside systemctl is-enabled cdc-relay)" = enabled ] || failed "the upgrade disabled the unit"
# status exits with 1: it does not stream.
runs() { local answer; answer=$(inside cdc-relay status --json 2>/dev/null || true); grep -q "\"version\": *\"$1\"" <<<"$answer"; }
await 20 "the old version still runs" runs 0.0.1
inside systemctl restart cdc-relay
await 20 "the new version runs" runs 0.0.2
ok "an upgrade leaves the relay running, and a restart has the new version"

begin=$(date +%s%N)
inside systemctl stop cdc-relay
ok "stopped in $((($(date +%s%N) - begin) / 1000000)) ms: $(property Result)"
[ "$(property Result)" = success ] || failed "the stop ended with $(property Result)"

start
inside dpkg --remove cdc-relay >/dev/null
[ "$(property MainPID)" = 0 ] || failed "the removal left the relay running"
[ "$(inside systemctl is-enabled cdc-relay 2>/dev/null || true)" != enabled ] || failed "the removal left the unit enabled"
inside test -s /etc/cdc-relay/config.yaml || failed "the removal took the configuration"
inside rm -r /etc/cdc-relay/postgres.secret
inside dpkg --purge cdc-relay >/dev/null
! inside test -e /etc/cdc-relay || failed "the purge left the configuration"
ok "remove stops and disables, purge takes the configuration"
