#!/bin/sh
set -e
if [ "$1" = postgres ] && [ "$(id -u)" = 0 ]; then
	mkdir -p "$PGDATA"
	chown -R postgres:postgres /var/lib/postgresql
	chmod 700 "$PGDATA"
	exec setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
fi
if [ "$1" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
	initdb -U postgres -E UTF8 --locale=C.UTF-8 --auth-local=trust -D "$PGDATA" >/dev/null
	for database in all replication; do
		echo "host $database all all ${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}"
	done >>"$PGDATA/pg_hba.conf"
	# Debian's psql looks for the socket there.
	printf "listen_addresses = '*'\nunix_socket_directories = '/var/run/postgresql'\n" >>"$PGDATA/postgresql.conf"
	# As in the official image the first server answers on the socket alone.
	pg_ctl -D "$PGDATA" -o "-c listen_addresses=''" -w start >/dev/null
	if [ "${POSTGRES_DB:-postgres}" != postgres ]; then
		psql -q -h /var/run/postgresql -U postgres -c "CREATE DATABASE \"$POSTGRES_DB\""
	fi
	pg_ctl -D "$PGDATA" -m fast -w stop >/dev/null
fi
exec "$@"
