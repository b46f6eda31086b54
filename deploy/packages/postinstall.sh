#!/bin/sh
# The service is not started: it needs its configuration first.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
