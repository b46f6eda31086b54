package main

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/migrations"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
)

const insertRows = `
INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
SELECT (ARRAY['order','customer','invoice','shipment'])[1 + i % 4],
       ('00000000-0000-4000-8000-' || lpad(to_hex(i % 10000), 12, '0'))::uuid,
       'Changed',
       jsonb_build_object('n', i, 'text', repeat(md5(i::text), 8))
FROM generate_series($1::int, $2::int) i`

// database makes a fresh one with our own table, publication and slots, so that
// every contestant reads the same rows from a slot of its own.
func (b *bench) database(ctx context.Context, name string, slots ...string) (*pgx.Conn, error) {
	admin, err := pgx.Connect(ctx, b.pg.URL("postgres"))
	if err != nil {
		return nil, err
	}
	defer admin.Close(ctx)
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, b.pg.URL(name))
	if err != nil {
		return nil, err
	}
	ddl, err := migrations.Table("outbox", "public", "outbox")
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, ddl+"; CREATE PUBLICATION bench FOR TABLE outbox WITH (publish = 'insert')"); err != nil {
		return nil, err
	}
	for _, slot := range slots {
		if _, err := conn.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", slot); err != nil {
			return nil, err
		}
	}
	return conn, nil
}

// fill writes n rows in transactions of perTxn rows and returns the WAL position
// after them.
func fill(ctx context.Context, conn *pgx.Conn, n, perTxn int) (pglogrepl.LSN, error) {
	began := time.Now()
	// Only for the backlog: rows are sent once their WAL is flushed, which
	// without waiting for it happens every 200 ms.
	if _, err := conn.Exec(ctx, "SET synchronous_commit = off"); err != nil {
		return 0, err
	}
	batch := &pgx.Batch{}
	for at := 1; at <= n; at += perTxn {
		batch.Queue("BEGIN")
		batch.Queue(insertRows, at, min(at+perTxn-1, n))
		batch.Queue("COMMIT")
		if batch.Len() >= 3000 || at+perTxn > n {
			if err := conn.SendBatch(ctx, batch).Close(); err != nil {
				return 0, err
			}
			batch = &pgx.Batch{}
		}
	}
	if _, err := conn.Exec(ctx, "SET synchronous_commit = on; CHECKPOINT"); err != nil {
		return 0, err
	}
	var text string
	var size float64
	if err := conn.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text, (SELECT avg(octet_length(payload::text)) FROM (SELECT payload FROM outbox LIMIT 1000) x)").Scan(&text, &size); err != nil {
		return 0, err
	}
	fmt.Printf("  wrote %d rows of %.0f B payload, %d a transaction, in %.1f s\n", n, size, perTxn, time.Since(began).Seconds())
	return pglogrepl.ParseLSN(text)
}
