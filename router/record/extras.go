package record

import (
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/tracing"
)

// Extras are what records get once they are made. Most routers have none, which is nil.
type Extras struct {
	positions bool            // position headers
	picker    *tracing.Picker // nil: no row is traced
}

// NewExtras are position headers, and spans with a tracer; nil for neither.
func NewExtras(positions bool, tracer *tracing.Tracer) *Extras {
	switch {
	case tracer != nil:
		return &Extras{positions: positions, picker: tracer.Picker()}
	case positions:
		return &Extras{positions: true}
	}
	return nil
}

// Positions reports whether records get position headers.
func (e *Extras) Positions() bool { return e != nil && e.positions }

// Traces reports whether rows may be traced.
func (e *Extras) Traces() bool { return e != nil && e.picker != nil }

// Add adds what the records of a row get. own: their headers are the relay's to change.
func (e *Extras) Add(b *Buffer, records []Record, row *wal.Row, own bool) {
	if e.picker != nil && len(records) > 0 {
		pick(b, &records[0], e.picker, own)
	}
	if e.positions {
		AddPositions(b, records, row)
	}
}
