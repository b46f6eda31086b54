package replication

import (
	"context"
)

// SystemIdentifier asks for the identifier of the database cluster over an ordinary
// connection: no replication right is needed.
func SystemIdentifier(ctx context.Context, cfg Config) (string, error) {
	conn, err := connect(ctx, cfg, false)
	if err != nil {
		return "", err
	}
	defer closeQuietly(conn)
	const op = "read the system identifier"
	row, err := querier{ctx: ctx, conn: conn}.one("SELECT system_identifier FROM pg_catalog.pg_control_system()")
	if err != nil {
		return "", classify(op, err)
	}
	return row.text(0), nil
}

// History asks for the origin of what the database has, over a replication connection.
func History(ctx context.Context, cfg Config) (Origin, error) {
	q, server, err := openServer(ctx, cfg, true)
	if err != nil {
		return Origin{}, err
	}
	defer closeQuietly(q.conn)
	if err := server.identify(q); err != nil {
		return Origin{}, err
	}
	return server.origin(), nil
}
