package provision

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// TableState is what is found out about a table of the configuration.
type TableState struct {
	Table     wal.Table
	OID       uint32
	Published map[string]string // as catalog.PublishedAs has it
	Ended     uint64            // catalog.Ended
	Empty     bool              // nobody sees a row of it; false: somebody does, or it could not be found out
}

// emptyPatience is how long open transactions are waited for.
const emptyPatience = 10 * time.Second

// ReadTables looks up the tables of cfg, and not whether they are empty.
func ReadTables(ctx context.Context, cfg postgres.Config) ([]TableState, error) {
	q, server, err := postgres.OpenServer(ctx, cfg, false)
	if err != nil {
		return nil, err
	}
	defer postgres.CloseQuietly(q.Conn)
	var publications []string
	for _, shard := range cfg.Shards() {
		publications = append(publications, shard.Publication)
	}
	ended, err := catalog.Ended(q)
	if err != nil {
		return nil, postgres.Classify("look at the open transactions", err)
	}
	var tables []TableState
	for _, table := range cfg.Tables {
		t, err := catalog.ReadTable(q, table)
		if err != nil {
			return nil, err
		}
		if t == nil {
			return nil, catalog.TableMissing(q, cfg, table)
		}
		published, err := catalog.PublishedAs(q, server.ServerVersion, t.OID, publications)
		if err != nil {
			return nil, postgres.Classify("look at publications", err)
		}
		tables = append(tables, TableState{Table: table, OID: t.OID, Published: published, Ended: ended})
	}
	return tables, nil
}

// FindEmpty says which of the tables have no row that lies before the slots of cfg, which exist.
// A table that is empty now has none:
//
//  1. What commits from a slot's beginning on, the slot has. What committed before is seen by
//     now, or was deleted, or its transaction has not ended yet: a commit is in the WAL before
//     others see the commit, and a synchronous standby can hold it up for long.
//  2. So transactions that are open at the call are waited for, and rows are looked for
//     afterwards. A transaction that begins later commits after the slots' beginning.
//
// Where that cannot be found out, for want of rights or because a transaction does not end, no
// table is empty.
func FindEmpty(ctx context.Context, cfg postgres.Config, tables []TableState) ([]TableState, error) {
	return findEmpty(ctx, cfg, tables, emptyPatience)
}

func findEmpty(ctx context.Context, cfg postgres.Config, tables []TableState, patience time.Duration) ([]TableState, error) {
	q, _, err := postgres.OpenServer(ctx, cfg, false)
	if err != nil {
		return nil, err
	}
	defer postgres.CloseQuietly(q.Conn)
	// A policy would hide rows.
	if err := q.Exec(fmt.Sprintf("SET row_security = off; SET statement_timeout = %d", countTimeout.Milliseconds())); err != nil {
		return nil, postgres.Classify("look for rows before the slot", err)
	}
	left, err := catalog.AwaitEnd(q, patience)
	if err != nil || left != "" {
		return tables, err
	}
	found := make([]TableState, len(tables))
	for i, t := range tables {
		found[i] = t
		row, err := q.One(fmt.Sprintf("SELECT NOT EXISTS (SELECT FROM %s) AND %s::regclass = '%d'::oid", t.Table.SQL(), postgres.QuoteLiteral(t.Table.SQL()), t.OID))
		if err != nil && q.Conn.IsClosed() {
			return nil, postgres.Classify("look for rows before the slot", err)
		}
		found[i].Empty = err == nil && row.Bool(0)
	}
	return found, nil
}
