package catalog

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/jackc/pgx/v5/pgconn"
)

// Catalog is what the server says about everything that a stream depends on,
// read in one go before it starts.
type Catalog struct {
	postgres.Server

	Confirmed wal.LSN // the slot's confirmed_flush_lsn, never zero
	Slot      SlotInfo
	Flushed   wal.LSN // end of the WAL, read while nobody had the slot

	// Relations are the configured tables with the columns that the stream will
	// have; index and Relation.Table are the index in postgres.Config.Tables.
	Relations []*wal.Relation
}

// Inspect asks, over a replication connection, for everything that must hold
// before streaming, and fails with one *fault.Error for the first thing that does not.
// A slot in use is the last one: whoever stands by for it knows that all else is
// well.
func Inspect(ctx context.Context, conn *pgconn.PgConn, cfg postgres.Config) (*Catalog, error) {
	c := &Catalog{}
	q := postgres.Querier{Ctx: ctx, Conn: conn}
	if err := c.ReadSettings(q); err != nil {
		return nil, err
	}
	if err := c.CheckDecoding(q); err != nil {
		return nil, err
	}
	if err := c.Identify(q); err != nil {
		return nil, err
	}
	if err := c.ReadSenderTimeout(q); err != nil {
		return nil, err
	}
	if err := wholeGeneration(q, c.ServerVersion, cfg); err != nil {
		return nil, err
	}
	if err := c.readTables(q, cfg); err != nil {
		return nil, err
	}
	slot, err := ReadSlot(q, c.ServerVersion, cfg.Slot)
	if err != nil {
		return nil, SlotMissing(q, cfg, err)
	}
	c.Slot = slot.SlotInfo
	c.Confirmed = slot.Confirmed
	if err := slot.Usable(cfg.Slot); err != nil {
		return nil, err
	}
	if slot.Active {
		return nil, slot.Busy(q, cfg.Slot)
	}
	c.Flushed, err = postgres.WALFlushed(q)
	return c, err
}

// readTables reads publication and tables over a connection of its own. Some of that
// makes the server open the tables (pg_publication_tables from version 16 on,
// pg_get_expr), and a walsender that has a table in its cache as it is now continues
// with that when it decodes rows from before a change of the table: under the wrong
// names, and with bytes of one type read as another.
func (c *Catalog) readTables(q postgres.Querier, cfg postgres.Config) error {
	beside, err := postgres.Connect(q.Ctx, cfg, false)
	if err != nil {
		return err
	}
	defer postgres.CloseQuietly(beside)
	side := postgres.Querier{Ctx: q.Ctx, Conn: beside}
	if err := sameServer(q, side); err != nil {
		return err
	}
	publication, err := ReadPublication(side, c.ServerVersion, cfg.Publication)
	if err != nil {
		return PublicationMissing(side, c.ServerVersion, cfg, err)
	}
	for i, table := range cfg.Tables {
		relation, warnings, err := InspectTable(side, c.ServerVersion, cfg, publication, table)
		if err != nil {
			return err
		}
		relation.Table = i
		if cfg.WantsOf(i).Meta {
			if relation.Meta, err = ReadColumnMeta(side, relation); err != nil {
				return err
			}
		}
		warnings = append(warnings, publication.missing(cfg.WantsOf(i), table)...)
		c.Relations = append(c.Relations, relation)
		c.Warnings = append(c.Warnings, warnings...)
	}
	c.Warnings = append(c.Warnings, publication.Warnings(cfg)...)
	return nil
}

// sameServer makes sure that two connections met one server: with several hosts, or
// a proxy, they need not.
func sameServer(a, b postgres.Querier) error {
	var started [2]string
	for i, q := range []postgres.Querier{a, b} {
		row, err := q.One(`SELECT extract(epoch FROM pg_catalog.pg_postmaster_start_time())`)
		if err != nil {
			return postgres.Classify("ask when the server was started", err)
		}
		started[i] = row.Text(0)
	}
	if started[0] != started[1] {
		return &fault.Error{
			Kind: fault.KindRetry, Reason: fault.ReasonNetwork, Op: "look at the tables",
			Err:  fmt.Errorf("two connections reached two servers, %s and %s", postgres.RemoteAddr(a.Conn), postgres.RemoteAddr(b.Conn)),
			Hint: "a failover may be under way; if this stays, connect past the proxy or pooler in between",
		}
	}
	return nil
}
