package replication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	oldestVersion = 140000
	newestVersion = 180000 // the newest major that the tests run on

	failoverVersion = 170000 // slots with failover, invalidation_reason

	hintWALLevel = "set wal_level = logical at the server and restart it (managed services have a parameter for it)"
)

// Catalog is what the server says about everything that a stream depends on,
// read in one go before it starts.
type Catalog struct {
	ServerVersion int // server_version_num: 150014
	SystemID      string
	Timeline      int32
	WALEnd        pglogrepl.LSN
	Confirmed     pglogrepl.LSN // the slot's confirmed_flush_lsn, never zero
	Slot          SlotInfo
	SenderTimeout time.Duration // wal_sender_timeout of this connection; zero is never

	// Relations are the configured tables with the columns that the stream will
	// have; index and Relation.Table are the index in Config.Tables.
	Relations []*Relation

	// Warnings are one sentence each: what does not stop a stream but may surprise.
	Warnings []string

	forks      []Fork // of the timelines before this one
	walLevel   string
	inRecovery bool
}

// inspect asks, over a replication connection, for everything that must hold
// before streaming, and fails with one *Error for the first thing that does not.
// A slot in use is the last one: whoever stands by for it knows that all else is
// well.
func inspect(ctx context.Context, conn *pgconn.PgConn, cfg Config) (*Catalog, error) {
	c := &Catalog{}
	q := querier{ctx: ctx, conn: conn}
	if err := c.readServer(q); err != nil {
		return nil, err
	}
	if err := c.decodes(q); err != nil {
		return nil, err
	}
	system, err := pglogrepl.IdentifySystem(ctx, conn)
	if err != nil {
		return nil, classify("identify the server", err)
	}
	c.SystemID, c.Timeline, c.WALEnd = system.SystemID, system.Timeline, system.XLogPos
	if err := c.readHistory(ctx, conn); err != nil {
		return nil, err
	}
	if err := c.readSenderTimeout(q); err != nil {
		return nil, err
	}
	if err := wholeGeneration(q, c.ServerVersion, cfg); err != nil {
		return nil, err
	}
	if err := c.readTables(q, cfg); err != nil {
		return nil, err
	}
	slot, err := readSlot(q, c.ServerVersion, cfg.Slot)
	if err != nil {
		return nil, slotMissing(q, cfg, err)
	}
	c.Slot = slot.SlotInfo
	c.Confirmed = slot.Confirmed
	if err := slot.usable(cfg.Slot); err != nil {
		return nil, err
	}
	if slot.Active {
		return nil, slot.busy(q, cfg.Slot)
	}
	return c, nil
}

// readTables reads publication and tables over a connection of its own. Some of that
// makes the server open the tables (pg_publication_tables from version 16 on,
// pg_get_expr), and a walsender that has a table in its cache as it is now goes on
// with that when it decodes rows from before a change of the table: under the wrong
// names, and with bytes of one type read as another.
func (c *Catalog) readTables(q querier, cfg Config) error {
	beside, err := connect(q.ctx, cfg, false)
	if err != nil {
		return err
	}
	defer closeQuietly(beside)
	side := querier{ctx: q.ctx, conn: beside}
	if err := sameServer(q, side); err != nil {
		return err
	}
	publication, err := readPublication(side, c.ServerVersion, cfg.Publication)
	if err != nil {
		return publicationMissing(side, c.ServerVersion, cfg, err)
	}
	for i, table := range cfg.Tables {
		relation, warnings, err := inspectTable(side, c.ServerVersion, cfg, publication, table)
		if err != nil {
			return err
		}
		relation.Table = i
		if cfg.wants(i).Meta {
			if relation.Meta, err = readMeta(side, relation); err != nil {
				return err
			}
		}
		warnings = append(warnings, publication.missing(cfg.wants(i), table)...)
		c.Relations = append(c.Relations, relation)
		c.Warnings = append(c.Warnings, warnings...)
	}
	c.Warnings = append(c.Warnings, publication.warnings(cfg)...)
	return nil
}

// sameServer makes sure that two connections met one server: with several hosts, or
// a proxy, they need not.
func sameServer(a, b querier) error {
	var started [2]string
	for i, q := range []querier{a, b} {
		row, err := q.one(`SELECT extract(epoch FROM pg_catalog.pg_postmaster_start_time())`)
		if err != nil {
			return classify("ask when the server was started", err)
		}
		started[i] = row.text(0)
	}
	if started[0] != started[1] {
		return &Error{
			Kind: KindRetry, Reason: ReasonNetwork, Op: "look at the tables",
			Err:  fmt.Errorf("two connections reached two servers, %s and %s", remoteAddr(a.conn), remoteAddr(b.conn)),
			Hint: "a failover may be under way; if this stays, connect past the proxy or pooler in between",
		}
	}
	return nil
}

// readServer reads the server's settings and refuses a version that is too old.
func (c *Catalog) readServer(q querier) error {
	row, err := q.one(`SELECT current_setting('server_version_num'), current_setting('server_version'),
		current_setting('wal_level'), pg_catalog.pg_is_in_recovery()`)
	if err != nil {
		return classify("read the server's settings", err)
	}
	version, release := row.int("server_version_num", 0), row.text(1)
	if row.err != nil {
		return row.err
	}
	c.ServerVersion, c.walLevel, c.inRecovery = version, row.text(2), row.bool(3)
	switch {
	case version < oldestVersion:
		return &Error{
			Kind: KindRefused, Reason: ReasonServerVersion, Op: "check the server",
			Err: fmt.Errorf("PostgreSQL %s is not supported", release), Hint: "versions 14 and later are",
		}
	case version/10000 > newestVersion/10000:
		c.Warnings = append(c.Warnings, fmt.Sprintf("PostgreSQL %s is newer than the versions this program was tested with (14 to 18)", release))
	}
	if warning := oldMinor(version, release); warning != "" {
		c.Warnings = append(c.Warnings, warning)
	}
	return nil
}

// decodes tells whether the server can have and feed a logical slot.
func (c *Catalog) decodes(q querier) error {
	if c.inRecovery {
		return &Error{
			Kind: KindRetry, Reason: ReasonInRecovery, Op: "check the server", Subject: remoteAddr(q.conn),
			Err: errors.New("it is in recovery: a standby"), Hint: "connect to the primary; with several hosts in the URL it is found by itself",
		}
	}
	if c.walLevel != "logical" {
		return &Error{
			Kind: KindRefused, Reason: ReasonWALLevel, Op: "check the server",
			Err: fmt.Errorf("wal_level is %s", c.walLevel), Hint: hintWALLevel,
		}
	}
	return nil
}

// oldMinor names releases whose logical decoding is known to lose changes or to
// leave a slot broken (concurrent DDL on a publication, a restart position moving
// backwards, WAL removed while a slot advances, slot state lost on a full disk).
func oldMinor(version int, release string) string {
	fixed := map[int]int{14: 20, 15: 15, 16: 11, 17: 7, 18: 1}
	major, minor := version/10000, version%10000
	if since, ok := fixed[major]; ok && minor < since {
		return fmt.Sprintf("PostgreSQL %s has known faults in logical decoding that are fixed in %d.%d; update the server", release, major, since)
	}
	return ""
}

// readSenderTimeout takes the value in force, which a proxy or the server may
// have made another than the one we asked for.
func (c *Catalog) readSenderTimeout(q querier) error {
	row, err := q.one(`SELECT setting FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'`)
	if err != nil {
		return classify("read wal_sender_timeout", err)
	}
	c.SenderTimeout = time.Duration(row.int("wal_sender_timeout", 0)) * time.Millisecond
	return row.err
}
