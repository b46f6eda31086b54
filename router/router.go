package router

import (
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/preset"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/schemas"
)

// Router routes the rows of the configured tables. It has one owner: no two of
// its methods may run at a time.
type Router struct {
	mappings []*mapping

	connectors []Connector // of the mappings that have one, each once

	// What has been compiled, and the last one used: several tables of one slot
	// alternate.
	last    *plan
	plans   map[*wal.Relation]*plan
	scratch []byte

	extras   *record.Extras // what records get once they are made; nil: nothing
	registry schemas.Registry
	reserved record.Reserved

	notices record.Notices
}

// maxPlans bounds the memory for relations that have changed since.
const maxPlans = 256

// maxScratch is what Route keeps of its working memory between two rows.
const maxScratch = 1 << 20

// New parses the configuration. It reports everything that is wrong with it at
// once, each as a *ConfigError (see ConfigErrors).
func New(cfg Config) (*Router, error) {
	r := &Router{plans: make(map[*wal.Relation]*plan), extras: record.NewExtras(cfg.PositionHeaders, cfg.Tracer), registry: cfg.Registry, reserved: cfg.Reserved}
	var errs []error
	for i, m := range cfg.Mappings {
		parsed, err := newMapping(m, i)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if m.Connector != nil {
			if err := r.open(parsed, cfg.RunID); err != nil {
				errs = append(errs, err)
			}
		}
		r.mappings = append(r.mappings, parsed)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return r, nil
}

// Route appends the records of row to buf.Records: one, or with a connector none or several. They
// refer to row, and their bytes to the row's batch or to buf. With a *record.RowError nothing is appended; the
// same row fails again. With a *schemas.Need nothing is appended either: the row is not at
// fault, and is routed again once the schema is known.
func (r *Router) Route(buf *record.Buffer, row *wal.Row) error {
	p := r.last
	if p == nil || p.relation != row.Relation {
		p = r.planFor(row)
		r.last = p
	}
	if p.err != nil {
		return record.NewRowError(row, p.err)
	}
	n := len(buf.Records)
	if err := p.route(buf, row, &r.scratch); err != nil {
		buf.DropHeaders()
		if need, ok := errors.AsType[*schemas.Need](err); ok {
			return need
		}
		return record.NewRowError(row, err)
	}
	if err := r.reserved.Reject(buf.Records[n:]); err != nil {
		buf.Records = buf.Records[:n]
		return record.NewRowError(row, err)
	}
	for i := n + 1; i < len(buf.Records); i++ {
		buf.Records[i].Nth = uint8(i - n) // a row makes a handful
	}
	if r.extras != nil {
		r.extras.Add(buf, buf.Records[n:], row, p.connector == nil)
	}
	if cap(r.scratch) > maxScratch {
		r.scratch = nil
	}
	return nil
}

// planFor is the plan for a row. All rows of one Relation value follow each other in the stream, so
// its first row's place stands for all of them.
func (r *Router) planFor(row *wal.Row) *plan {
	rel := row.Relation
	if p, ok := r.plans[rel]; ok {
		return p
	}
	if len(r.plans) >= maxPlans {
		clear(r.plans)
	}
	at := row.Place()
	p, _, err := r.compile(rel, at)
	if err != nil {
		p = &plan{relation: rel, err: asSchema(err)}
	} else if pin := r.mappings[rel.Table].pin; pin != nil {
		pin.note(rel, at)
	}
	r.plans[rel] = p
	return p
}

// asSchema has the rows of a relation that does not compile rejected with reason schema.
func asSchema(err error) error {
	column := ""
	if c, ok := errors.AsType[*record.ColumnError](err); ok {
		column = c.Column
	}
	return &record.ColumnError{Column: column, Err: err}
}

// PositionHeaders reports whether Route adds them (Config.PositionHeaders).
func (r *Router) PositionHeaders() bool { return r.extras.Positions() }

// Traces reports whether rows may be traced.
func (r *Router) Traces() bool { return r.extras.Traces() }

// Pin decides for the router's life which column of rel, which comes from the catalog, has which
// role, and explains the mapping. A table that is pinned already keeps its roles. Errors are
// *ConfigError values, joined, except that of a table without a mapping.
func (r *Router) Pin(rel *wal.Relation) (*Explanation, error) {
	p, explanation, err := r.compile(rel, newest)
	if err != nil {
		return nil, err
	}
	if m := r.mappings[rel.Table]; m.pin == nil && p.shape != nil {
		m.pin = &pin{Shape: *p.shape}
	}
	return explanation, nil
}

// Forked forgets from which rows on a table had its columns: after a fork of the server's
// history other rows have their positions.
func (r *Router) Forked() {
	for _, m := range r.mappings {
		if m.pin != nil {
			m.pin.streamed = [preset.RoleCount]wal.Place{}
		}
	}
}

// newest is the position of a shape that the catalog has now.
var newest = wal.Place{Commit: ^wal.LSN(0)}

// BinarySafe reports whether rows of rel give the same records in the binary
// format: every mapped column has a type whose text form is known exactly. It is
// false for a relation that does not compile.
func (r *Router) BinarySafe(rel *wal.Relation) bool {
	p, _, err := r.compile(rel, newest)
	if err != nil || p.connector != nil {
		return false
	}
	for _, s := range p.sources {
		if !s.BinarySafe() {
			return false
		}
	}
	return true
}

// IDColumn is the column that the header id of a row's record is the text of.
func (r *Router) IDColumn(row *wal.Row) record.IDColumn { return r.planFor(row).idColumn }

// Notices gives what connectors noticed since the last call.
func (r *Router) Notices() []record.Notice { return r.notices.Take() }

func (r *Router) compile(rel *wal.Relation, at wal.Place) (*plan, *Explanation, error) {
	if rel.Table < 0 || rel.Table >= len(r.mappings) {
		return nil, nil, fmt.Errorf("no mapping for table %s", column.TableName(rel))
	}
	return r.mappings[rel.Table].compile(rel, at)
}
