package replication

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
)

// Probe looks at the server from the side, over an ordinary connection of its
// own, for what a stream never says: a publication or table that was changed
// sends no error, its rows just stop coming. A role with LOGIN and REPLICATION
// is enough. It is used by one goroutine.
type Probe struct {
	cfg     Config
	conn    *pgconn.PgConn
	version int
	first   *baseline

	confirmed pglogrepl.LSN // by the slot, at the last look that saw it
}

// baseline is what the first Look found, which later ones are held against.
type baseline struct {
	publication string // OID
	version     string // of the publication's line in the catalog
	sends       string // what the publication shows of itself
	tables      []tableShape
	links       map[string]string // of a table's OID: what makes it a member
}

type tableShape struct {
	oid    uint32
	filter string
}

// Snapshot is one look. WALEnd and Slot are of the same moment.
type Snapshot struct {
	WALEnd pglogrepl.LSN
	Slot   SlotInfo

	// Drift is an *Error when the stream can no longer be trusted to have every
	// row: the slot, the publication or a table is gone or not the same.
	Drift error
}

const hintBetween = "insert the rows that were written in between again: " + seeSendingAgain

// NewProbe connects at the first Look.
func NewProbe(cfg Config) *Probe { return &Probe{cfg: cfg} }

// Close gives the connection up. Look may be called again.
func (p *Probe) Close() {
	if p.conn != nil {
		closeQuietly(p.conn)
		p.conn = nil
	}
}

// Look asks the server once. After an error the next Look connects anew; what
// the first successful one found remains the measure.
func (p *Probe) Look(ctx context.Context) (*Snapshot, error) {
	if p.conn != nil && p.conn.IsClosed() {
		p.conn = nil
	}
	if p.conn == nil {
		conn, err := connect(ctx, p.cfg, false)
		if err != nil {
			return nil, err
		}
		p.conn = conn
	}
	q := querier{ctx: ctx, conn: p.conn}
	snapshot, err := p.look(q)
	if err != nil {
		p.Close()
		return nil, err
	}
	return snapshot, nil
}

func (p *Probe) look(q querier) (*Snapshot, error) {
	row, err := q.one(`SELECT pg_catalog.pg_current_wal_lsn(), current_setting('server_version_num')`)
	if err != nil {
		return nil, classify("look at the server", err)
	}
	s := &Snapshot{WALEnd: row.lsn("pg_current_wal_lsn", 0)}
	p.version = row.int("server_version_num", 1)
	if row.err != nil {
		return nil, row.err
	}
	slot, err := readSlot(q, p.version, p.cfg.Slot)
	switch {
	case err == nil:
		s.Slot, p.confirmed = slot.SlotInfo, slot.Confirmed
		s.Drift = slot.lost(p.cfg.Slot)
	case Reason(err) == ReasonSlotMissing && p.confirmed != 0:
		s.Drift = SlotGone(p.cfg.Slot, p.confirmed)
	default:
		if s.Drift = driftOnly(err); s.Drift == nil {
			return nil, err
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
	switch Reason(err) {
	case ReasonSlotMissing, ReasonSlotLost, ReasonPublicationMissing:
		return err
	}
	return nil
}

// shapes compares publication and tables with the first look.
func (p *Probe) shapes(q querier) (drift, err error) {
	publication, err := readPublication(q, p.version, p.cfg.Publication)
	if err != nil {
		if drift := driftOnly(err); drift != nil {
			return p.dropped(), nil
		}
		return nil, err
	}
	now := &baseline{publication: publication.oid}
	for i, table := range p.cfg.Tables {
		t, err := readTable(q, table)
		if err != nil {
			return nil, err
		}
		if t == nil {
			return p.vanished(q, i, table)
		}
		if p.first != nil && p.first.tables[i].oid != t.oid {
			return p.changed(ReasonTableChanged, "table "+table.String(), "it was replaced by another table of that name",
				"rows of the new one need a restart, and those written before it was published have to be inserted again: "+seeSendingAgain), nil
		}
		if err := publication.publishes(table, t); err != nil {
			// One that was dropped between the questions about it has no tables either.
			if _, again := readPublication(q, p.version, p.cfg.Publication); driftOnly(again) != nil {
				return p.dropped(), nil
			}
			var e *Error
			errors.As(err, &e)
			return &Error{Kind: KindDrift, Reason: e.Reason, Op: "watch", Subject: e.Subject, Err: e.Err, Hint: e.Hint}, nil
		}
		if drift, err := p.filters(q, publication, table, t.oid); drift != nil || err != nil {
			return drift, err
		}
		now.tables = append(now.tables, tableShape{oid: t.oid, filter: publication.tables[table].filter})
	}
	if now.links, err = p.links(q, now); err != nil {
		return nil, err
	}
	now.version, now.sends = publication.version, fmt.Sprint(publication.owner, publication.insert, publication.viaRoot, publication.others)
	if p.first == nil {
		p.first = now
		return nil, nil
	}
	if now.publication != p.first.publication {
		return p.changed(ReasonPublicationChanged, publicationSubject(p.cfg.Publication), "it was dropped and made again",
			hintBetween), nil
	}
	if drift := p.putBack(now); drift != nil {
		return drift, nil
	}
	if i := slices.IndexFunc(now.tables, func(t tableShape) bool { return !slices.Contains(p.first.tables, t) }); i >= 0 {
		return p.changed(ReasonPublicationChanged, publicationSubject(p.cfg.Publication),
			fmt.Sprintf("the row filter on %s is now %q", p.cfg.Tables[i], now.tables[i].filter), "restore it, or restart to accept it"), nil
	}
	return nil, nil
}

// dropped is the drift of a publication that is not there any more.
func (p *Probe) dropped() error {
	return p.changed(ReasonPublicationMissing, publicationSubject(p.cfg.Publication), "it was dropped",
		"the slot cannot stream rows from before a new one: "+hintRecreate(ReasonPublicationMissing, p.confirmed))
}

// links reads what makes each of the tables a member of the publication: another one
// after it was taken out and put back. It has none where the publication is of all
// tables or of a schema, or where its root is the member.
func (p *Probe) links(q querier, now *baseline) (map[string]string, error) {
	rows, err := q.all("SELECT prrelid, oid FROM pg_catalog.pg_publication_rel WHERE prpubid = " + now.publication)
	if err != nil {
		return nil, classify("look at "+publicationSubject(p.cfg.Publication), err)
	}
	links := make(map[string]string)
	for _, row := range rows {
		if slices.ContainsFunc(now.tables, func(t tableShape) bool { return fmt.Sprint(t.oid) == row[0].text }) {
			links[row[0].text] = row[1].text
		}
	}
	return links, nil
}

// unlinked says that a link is not there any more, though the publication had the table a
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
	return p.changed(ReasonPublicationChanged, publicationSubject(p.cfg.Publication), cause, hintBetween)
}

// filters compares a shard's filter with what it has to be, which the first look of a
// process cannot know from the server.
func (p *Probe) filters(q querier, publication *publicationRow, table Table, oid uint32) (drift, err error) {
	if !p.cfg.Shard.Divided() {
		return nil, nil
	}
	columns, err := readColumns(q, p.version, oid, table, publication.membership(table))
	if err != nil {
		return nil, err
	}
	err = publication.filtered(p.cfg, p.version, columns.relation(oid, table))
	if e, ok := errors.AsType[*Error](err); ok && e.Reason == ReasonShards {
		return &Error{Kind: KindDrift, Reason: e.Reason, Op: "watch", Subject: e.Subject, Err: e.Err, Hint: e.Hint}, nil
	}
	return nil, err
}

// vanished tells a renamed table from a dropped one. A rename keeps the OID and
// the membership in the publication: its rows would keep coming, under a name
// that nobody configured.
func (p *Probe) vanished(q querier, i int, table Table) (drift, err error) {
	if p.first != nil {
		row, err := q.one(fmt.Sprintf(`SELECT n.nspname, c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
			WHERE c.oid = %d`, p.first.tables[i].oid))
		if err == nil {
			name := Table{Schema: row.text(0), Name: row.text(1)}
			return p.changed(ReasonTableChanged, "table "+table.String(), "it was renamed to "+name.String(),
				"rename it back, or configure the new name"), nil
		}
		if !errors.Is(err, errNoRow) {
			return nil, classify("look at table "+table.String(), err)
		}
	}
	return p.changed(ReasonTableMissing, "table "+table.String(), "it was dropped", "create it again and add it to the publication"), nil
}

func (p *Probe) changed(reason, subject, cause, hint string) error {
	return &Error{Kind: KindDrift, Reason: reason, Op: "watch", Subject: subject, Err: errors.New(cause), Hint: hint}
}
