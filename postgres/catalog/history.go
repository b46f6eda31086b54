package catalog

import (
	"context"
	"slices"

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

// Sources are what dead letters may be of: the database and the tables of a configuration, and the logical slots
// of the server.
type Sources struct {
	System, Database string   // as Identity has them
	Slots            []string // OID of the database/name
	Tables           []uint32 // OIDs of those that exist
}

// Has reports whether a database has a slot of that name.
func (s *Sources) Has(database, slot string) bool { return slices.Contains(s.Slots, database+"/"+slot) }

// ReadSources asks over an ordinary connection.
func ReadSources(ctx context.Context, cfg postgres.Config) (*Sources, error) {
	conn, err := postgres.Connect(ctx, cfg, false)
	if err != nil {
		return nil, err
	}
	defer postgres.CloseQuietly(conn)
	const op = "read the system identifier, the database's OID and the slots"
	q, s := postgres.Querier{Ctx: ctx, Conn: conn}, &Sources{}
	rows, err := q.All(`SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system()), d.oid, s.datoid, s.slot_name
		FROM pg_catalog.pg_database d LEFT JOIN pg_catalog.pg_replication_slots s ON s.slot_type = 'logical' WHERE d.datname = pg_catalog.current_database()`)
	if err != nil {
		return nil, postgres.Classify(op, err)
	}
	for _, row := range rows {
		s.System, s.Database = row[0].Text, row[1].Text
		if !row[3].Null {
			s.Slots = append(s.Slots, row[2].Text+"/"+row[3].Text)
		}
	}
	for _, table := range cfg.Tables {
		t, err := ReadTable(q, table)
		if err != nil {
			return nil, err
		}
		if t != nil {
			s.Tables = append(s.Tables, t.OID)
		}
	}
	return s, nil
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
