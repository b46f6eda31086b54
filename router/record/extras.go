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

// Traced are the extras of a router whose rows may be traced; without a tracer there are none.
func Traced(tracer *tracing.Tracer) *Extras {
	if tracer == nil {
		return nil
	}
	return &Extras{picker: tracer.Picker()}
}

// WithPositions adds position headers to what there is.
func (e *Extras) WithPositions() *Extras {
	if e == nil {
		e = new(Extras)
	}
	e.positions = true
	return e
}

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
