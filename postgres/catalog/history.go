package catalog

import (
	"context"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Identity asks for the identifier of the database cluster and the OID of the database over an
// ordinary connection: no replication right is needed.
func Identity(ctx context.Context, cfg postgres.Config) (system, database string, err error) {
	conn, err := postgres.Connect(ctx, cfg, false)
	if err != nil {
		return "", "", err
	}
	defer postgres.CloseQuietly(conn)
	const op = "read the system identifier and the database's OID"
	row, err := postgres.Querier{Ctx: ctx, Conn: conn}.One(`SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system()),
		(SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())`)
	if err != nil {
		return "", "", postgres.Classify(op, err)
	}
	return row.Text(0), row.Text(1), nil
}

// IdentityAndSlots is Identity with the names of the server's logical slots.
func IdentityAndSlots(ctx context.Context, cfg postgres.Config) (system, database string, slots []string, err error) {
	conn, err := postgres.Connect(ctx, cfg, false)
	if err != nil {
		return "", "", nil, err
	}
	defer postgres.CloseQuietly(conn)
	rows, err := postgres.Querier{Ctx: ctx, Conn: conn}.All(`SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system()), d.oid, s.slot_name
		FROM pg_catalog.pg_database d LEFT JOIN pg_catalog.pg_replication_slots s ON s.slot_type = 'logical' WHERE d.datname = pg_catalog.current_database()`)
	if err != nil {
		return "", "", nil, postgres.Classify("read the system identifier, the database's OID and the slots", err)
	}
	for _, row := range rows {
		system, database = row[0].Text, row[1].Text
		if !row[2].Null {
			slots = append(slots, row[2].Text)
		}
	}
	return system, database, slots, nil
}

// ReadOrigin asks for the origin of what the database has, over a replication connection.
func ReadOrigin(ctx context.Context, cfg postgres.Config) (wal.Origin, error) {
	q, server, err := postgres.OpenServer(ctx, cfg, true)
	if err != nil {
		return wal.Origin{}, err
	}
	defer postgres.CloseQuietly(q.Conn)
	if err := server.Identify(q); err != nil {
		return wal.Origin{}, err
	}
	return server.Origin(), nil
}
