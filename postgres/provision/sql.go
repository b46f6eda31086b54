package provision

import (
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// PublicationSQL is the statement by which Setup makes cfg's publication, without
// its semicolon. viaRoot is for partitioned tables; lists are those of ColumnLists, nil
// for all columns.
func PublicationSQL(cfg postgres.Config, viaRoot bool, lists map[wal.Table][]string) string {
	return createPublication(cfg, viaRoot, cfg.Published(), lists, nil)
}

// SlotSQL is the statement by which Setup makes a slot on a server of that
// server_version_num, without its semicolon. It cannot run in a transaction that
// has written.
func SlotSQL(name string, version int) string { return createSlot(name, version) }

// DropPublicationSQL takes back PublicationSQL.
func DropPublicationSQL(cfg postgres.Config) string {
	return "DROP PUBLICATION " + wal.QuoteIdentifier(cfg.Publication)
}
