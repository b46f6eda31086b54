package catalog

import (
	"context"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// SystemIdentifier asks for the identifier of the database cluster over an ordinary
// connection: no replication right is needed.
func SystemIdentifier(ctx context.Context, cfg postgres.Config) (string, error) {
	conn, err := postgres.Connect(ctx, cfg, false)
	if err != nil {
		return "", err
	}
	defer postgres.CloseQuietly(conn)
	const op = "read the system identifier"
	row, err := postgres.Querier{Ctx: ctx, Conn: conn}.One("SELECT system_identifier FROM pg_catalog.pg_control_system()")
	if err != nil {
		return "", postgres.Classify(op, err)
	}
	return row.Text(0), nil
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
