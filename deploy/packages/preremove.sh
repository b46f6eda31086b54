#!/bin/sh
# deb says "remove", rpm says 0; an upgrade leaves the service alone.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now cdc-relay.service || true
	fi
	;;
esac
