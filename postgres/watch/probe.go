package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/jackc/pgx/v5/pgconn"
)

// Probe looks at the server from the side, over an ordinary connection of its
// own, for what a stream never says: a publication or table that was changed
// sends no error, its rows just stop coming. A role with LOGIN and REPLICATION
// is enough. It is used by one goroutine.
type Probe struct {
	cfg     postgres.Config
	conn    *pgconn.PgConn
	version int
	first   *baseline

	confirmed wal.LSN // by the slot, at the last look that saw it
}

// baseline is what the first Read found, which later ones are held against.
type baseline struct {
	publication string // OID
	version     string // of the publication's line in the catalog
	sends       string // what the publication shows of itself
	tables      []tableShape
	links       map[string]string // of a table's OID: what makes it a member
}

type tableShape struct {
	OID    uint32
	filter string
}

// Snapshot is one look. WALEnd and Slot are of the same moment.
type Snapshot struct {
	WALEnd wal.LSN
	Slot   catalog.SlotInfo
	Away   string // standbys that are away and for which the server holds the slot's rows back, with the next step; empty: none

	// Drift is a *fault.Error when the stream can no longer be trusted to have every
	// row: the slot, the publication or a table is gone or not the same.
	Drift error
}

const hintBetween = "send the rows that were written in between again (`cdc-relay replay`): " + postgres.SeeSendingAgain

// NewProbe connects at the first Read.
func NewProbe(cfg postgres.Config) *Probe { return &Probe{cfg: cfg} }

// Close gives the connection up. Read may be called again.
func (p *Probe) Close() {
	if p.conn != nil {
		postgres.CloseQuietly(p.conn)
		p.conn = nil
	}
}

// Read asks the server once. After an error the next Read connects anew; what
// the first successful one found remains the measure.
func (p *Probe) Read(ctx context.Context) (*Snapshot, error) {
	if p.conn != nil && p.conn.IsClosed() {
		p.conn = nil
	}
	if p.conn == nil {
		conn, err := postgres.Connect(ctx, p.cfg, false)
		if err != nil {
			return nil, err
		}
		p.conn = conn
	}
	q := postgres.Querier{Ctx: ctx, Conn: p.conn}
	snapshot, err := p.readServer(q)
	if err != nil {
		p.Close()
		return nil, err
	}
	return snapshot, nil
}

func (p *Probe) readServer(q postgres.Querier) (*Snapshot, error) {
	row, err := q.One(`SELECT pg_catalog.pg_current_wal_lsn(), current_setting('server_version_num')`)
	if err != nil {
		return nil, postgres.Classify("look at the server", err)
	}
	s := &Snapshot{WALEnd: row.LSN("pg_current_wal_lsn", 0)}
	p.version = row.Int("server_version_num", 1)
	if row.Err != nil {
		return nil, row.Err
	}
	slot, err := catalog.ReadSlot(q, p.version, p.cfg.Slot)
	switch {
	case err == nil:
		s.Slot, p.confirmed = slot.SlotInfo, slot.Confirmed
		s.Drift = slot.Lost(p.cfg.Slot)
	case postgres.Reason(err) == fault.ReasonSlotMissing && p.confirmed != 0:
		s.Drift = catalog.SlotGone(p.cfg.Slot, p.confirmed)
	default:
		if s.Drift = driftOnly(err); s.Drift == nil {
			return nil, err
		}
	}
	if s.Drift == nil {
		away, err := catalog.ReadAwayStandbys(q, p.version, p.cfg.Slot)
		if err != nil {
			return nil, err
		}
		if len(away) > 0 {
			s.Away = catalog.AwayText(away) + "; " + catalog.HintStandby
		}
	}
	if s.Drift != nil {
		return s, nil //nolint:nilerr // err, if any, is the drift
	}
	drift, err := p.shapes(q)
	if err != nil {
		return nil, err
	}
	s.Drift = drift
	return s, nil
}

// driftOnly passes on what a catalog says, and not a failure to read it.
func driftOnly(err error) error {
	switch postgres.Reason(err) {
	case fault.ReasonSlotMissing, fault.ReasonSlotLost, fault.ReasonPublicationMissing:
		return err
	}
	return nil
}

// shapes compares publication and tables with the first look.
func (p *Probe) shapes(q postgres.Querier) (drift, err error) {
	now, drift, err := p.readBaseline(q)
	switch {
	case drift != nil || err != nil:
		return drift, err
	case p.first == nil:
		p.first = now
		return nil, nil
	}
	return p.compare(now), nil
}

// readBaseline reads publication and tables, and ends at a drift.
func (p *Probe) readBaseline(q postgres.Querier) (now *baseline, drift, err error) {
	publication, err := catalog.ReadPublication(q, p.version, p.cfg.Publication)
	if err != nil {
		if drift := driftOnly(err); drift != nil {
			return nil, p.dropped(), nil
		}
		return nil, nil, err
	}
	now = &baseline{publication: publication.OID}
	for i, table := range p.cfg.Tables {
		t, err := catalog.ReadTable(q, table)
		if err != nil {
			return nil, nil, err
		}
		if t == nil {
			drift, err = p.vanished(q, i, table)
			return nil, drift, err
		}
		if p.first != nil && p.first.tables[i].OID != t.OID {
			return nil, p.changed(fault.ReasonTableChanged, "table "+table.String(), "it was replaced by another table of that name",
				"restart the relay for the rows of the new one, and send those written before it was published again (`cdc-relay replay`): "+postgres.SeeSendingAgain), nil
		}
		if err := publication.Publishes(table, t); err != nil {
			// One that was dropped between the questions about it has no tables either.
			if _, again := catalog.ReadPublication(q, p.version, p.cfg.Publication); driftOnly(again) != nil {
				return nil, p.dropped(), nil
			}
			var e *fault.Error
			errors.As(err, &e)
			return nil, &fault.Error{Kind: fault.KindDrift, Reason: e.Reason, Op: "watch", Subject: e.Subject, Err: e.Err, Hint: e.Hint}, nil
		}
		if drift, err := p.filters(q, publication, table, t.OID); drift != nil || err != nil {
			return nil, drift, err
		}
		now.tables = append(now.tables, tableShape{OID: t.OID, filter: publication.Tables[table].Filter})
	}
	if now.links, err = p.links(q, now); err != nil {
		return nil, nil, err
	}
	now.version, now.sends = publication.Version, fmt.Sprint(publication.Owner, publication.Insert, publication.ViaRoot, publication.Others)
	return now, nil, nil
}

// compare returns what is not as it was at the first look, as a drift.
func (p *Probe) compare(now *baseline) error {
	if now.publication != p.first.publication {
		return p.changed(fault.ReasonPublicationChanged, postgres.PublicationSubject(p.cfg.Publication), "it was dropped and recreated",
			hintBetween)
	}
	if drift := p.putBack(now); drift != nil {
		return drift
	}
	if i := slices.IndexFunc(now.tables, func(t tableShape) bool { return !slices.Contains(p.first.tables, t) }); i >= 0 {
		return p.changed(fault.ReasonPublicationChanged, postgres.PublicationSubject(p.cfg.Publication),
			fmt.Sprintf("the row filter on %s is now %q", p.cfg.Tables[i], now.tables[i].filter), "restore it, or restart to accept it")
	}
	return nil
}

// dropped is the drift of a publication that is not there any more.
func (p *Probe) dropped() error {
	return p.changed(fault.ReasonPublicationMissing, postgres.PublicationSubject(p.cfg.Publication), "it was dropped",
		"the slot cannot stream rows from before a new one: "+postgres.HintRecreate(fault.ReasonPublicationMissing, p.confirmed))
}

// links reads what makes each of the tables a member of the publication: another one
// after it was taken out and put back. It has none where the publication is of all
// tables or of a schema, or where its root is the member.
func (p *Probe) links(q postgres.Querier, now *baseline) (map[string]string, error) {
	rows, err := q.All("SELECT prrelid, oid FROM pg_catalog.pg_publication_rel WHERE prpubid = " + now.publication)
	if err != nil {
		return nil, postgres.Classify("look at "+postgres.PublicationSubject(p.cfg.Publication), err)
	}
	links := make(map[string]string)
	for _, row := range rows {
		if slices.ContainsFunc(now.tables, func(t tableShape) bool { return fmt.Sprint(t.OID) == row[0].Text }) {
			links[row[0].Text] = row[1].Text
		}
	}
	return links, nil
}

// unlinked reports whether a link is not there any more, though the publication had the table a
// moment ago: one of them was taken away between the two questions, and the next look
// says which.
func unlinked(first, now map[string]string) bool {
	for table := range first {
		if _, ok := now[table]; !ok {
			return true
		}
	}
	return false
}

// putBack sees what was changed between two looks and looks right again: rows of that
// time may be in no stream.
func (p *Probe) putBack(now *baseline) error {
	var cause string
	switch {
	case now.version != p.first.version && now.sends == p.first.sends:
		cause = "it was altered and put back"
	case !maps.Equal(now.links, p.first.links) && slices.Equal(now.tables, p.first.tables) && !unlinked(p.first.links, now.links):
		cause = "a table was taken out of it and put back"
	default:
		p.first.version, p.first.sends = now.version, now.sends
		return nil
	}
	return p.changed(fault.ReasonPublicationChanged, postgres.PublicationSubject(p.cfg.Publication), cause, hintBetween)
}

// filters compares a shard's filter with what it has to be, which the first look of a
// process cannot know from the server.
func (p *Probe) filters(q postgres.Querier, publication *catalog.PublicationRow, table wal.Table, oid uint32) (drift, err error) {
	if !p.cfg.Shard.Divided() {
		return nil, nil
	}
	columns, err := catalog.ReadColumns(q, p.version, oid, table, publication.Membership(table))
	if err != nil {
		return nil, err
	}
	err = publication.Filtered(p.cfg, p.version, columns.Relation(oid, table))
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Reason == fault.ReasonShards {
		return &fault.Error{Kind: fault.KindDrift, Reason: e.Reason, Op: "watch", Subject: e.Subject, Err: e.Err, Hint: e.Hint}, nil
	}
	return nil, err
}

// vanished distinguishes a renamed table from a dropped one. A rename keeps the OID and
// the membership in the publication: its rows would keep coming, under a name
// that nobody configured.
func (p *Probe) vanished(q postgres.Querier, i int, table wal.Table) (drift, err error) {
	if p.first != nil {
		row, err := q.One(fmt.Sprintf(`SELECT n.nspname, c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
			WHERE c.oid = %d`, p.first.tables[i].OID))
		if err == nil {
			name := wal.Table{Schema: row.Text(0), Name: row.Text(1)}
			return p.changed(fault.ReasonTableChanged, "table "+table.String(), "it was renamed to "+name.String(),
				"rename it back, or configure the new name"), nil
		}
		if !errors.Is(err, postgres.ErrNoRow) {
			return nil, postgres.Classify("look at table "+table.String(), err)
		}
	}
	return p.changed(fault.ReasonTableMissing, "table "+table.String(), "it was dropped", "create it again and add it to the publication"), nil
}

func (p *Probe) changed(reason, subject, cause, hint string) error {
	return &fault.Error{Kind: fault.KindDrift, Reason: reason, Op: "watch", Subject: subject, Err: errors.New(cause), Hint: hint}
}
